//! HTTPS with the real program: every byte over both versions, refusals by name with nothing
//! written, and no secret in anything that is printed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and sockets of its own"
)]

#[path = "../common/certified.rs"]
mod certified;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "this test asks in more ways than `get` alone")]
mod served;

mod bytes;
mod fake;
mod given;
mod grants;
mod keys;
mod login;
mod refusals;
mod secrets;
mod wire;

use std::fs;
use std::path::PathBuf;

use inrush_origin::{Config, Origin, TlsConfig};
use tempfile::TempDir;

use matrix::{Objects, bytes_of};
use program::Program;
use served::{ACCESS_KEY, SECRET, config, start};

/// The documented exit codes.
const USAGE: i32 = 2;
const ACCESS: i32 = 3;
const ENDPOINT: i32 = 6;

/// An origin that speaks TLS, and a folder for its authority's certificate and for destinations.
struct Stage {
    origin: Origin,
    folder: TempDir,
}

impl Stage {
    fn new(objects: &Objects, tls: TlsConfig) -> Self {
        Self::with(Config { tls: Some(tls), ..config(objects) })
    }

    fn with(config: Config) -> Self {
        let origin = start(config);
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), origin.ca_pem().expect("over TLS")).expect("room");
        Self { origin, folder }
    }

    fn bundle(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn destination(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// The program with these words, asking the origin with its keys; nobody is trusted yet.
    fn program(&self, words: &[&str]) -> Program {
        Program::new(words).asking(&self.origin).with_keys(ACCESS_KEY, SECRET)
    }

    /// The program with these words, which trusts the origin's authority.
    fn trusting(&self, words: &[&str]) -> Program {
        self.program(words).with(["--ca-bundle".as_ref(), self.bundle().as_os_str()])
    }
}

/// Objects on both sides of every border, and larger ones.
fn mixture() -> Objects {
    let mut all = matrix::sizes();
    for (key, length) in [("large/a", (20 << 20) + 1), ("large/b", 9 << 20)] {
        all.insert(key.to_owned(), bytes_of(key, length));
    }
    all
}
