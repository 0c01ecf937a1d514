//! `get`, `ls` and `verify` of the real program against the in-repo origin: byte for byte, what it
//! reports, which objects it takes, and how it finds its server and keys.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "one size of the matrix belongs to another test")]
mod matrix;
#[path = "../common/mount.rs"]
#[expect(dead_code, reason = "nothing is read-only here")]
mod mount;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
mod served;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/without.rs"]
mod without;

mod channels;
mod complete;
mod endpoints;
mod files;
mod filters;
mod load;
mod named;
mod output;
mod repeated;
mod service;
mod shown;
mod sources;
mod verbose;

use std::path::PathBuf;

use tempfile::TempDir;

use matrix::{Objects, bytes_of};

/// A destination that is not there yet.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// Fails unless it holds exactly these objects.
    #[track_caller]
    fn assert_holds(&self, objects: &Objects) {
        matrix::assert_same(&self.path(), objects);
    }
}

/// Objects of these keys and lengths.
fn objects(keys: &[(&str, usize)]) -> Objects {
    keys.iter().map(|(key, length)| ((*key).to_owned(), bytes_of(key, *length))).collect()
}

/// Some of the objects, each under its name at the destination.
fn pick(objects: &Objects, names: &[(&str, &str)]) -> Objects {
    names.iter().map(|(name, key)| ((*name).to_owned(), objects[*key].clone())).collect()
}
