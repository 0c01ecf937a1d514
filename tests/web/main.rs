//! Objects that URLs name, with the real program: published and presigned ones, behind redirects
//! that expire; byte for byte, without keys, and without a secret in anything that is printed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and sockets of its own"
)]

mod apart;
mod behind;
#[path = "../common/certified.rs"]
mod certified;
#[path = "../common/fuse.rs"]
#[expect(dead_code, reason = "the table of mounts belongs to other tests")]
mod fuse;
mod gateway;
mod misled;
mod objects;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals and servers of S3 belong to other tests")]
mod program;
mod publisher;
mod redirects;
mod refusals;
mod secrets;
#[path = "../common/skip.rs"]
mod skip;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use program::Program;

/// The documented exit codes.
const OBJECTS: i32 = 1;
const USAGE: i32 = 2;
const ACCESS: i32 = 3;
const NOT_FOUND: i32 = 4;
const ENDPOINT: i32 = 6;

/// Part of every query here; it is printed nowhere.
const SECRET: &str = "hunter2";

/// A query as S3 signs it.
fn presigned(date: &str) -> String {
    format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK{SECRET}%2F20240101&X-Amz-Date={date}\
         &X-Amz-Expires=3600&X-Amz-Security-Token={SECRET}%2B&X-Amz-Signature={SECRET}"
    )
}

/// Text of this length, which shows where a byte is missing.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b' ' + u8::try_from((at * 7 + at / 97) % 95).expect("small")).collect()
}

/// A folder for destinations.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Fails unless this file has these bytes.
    #[track_caller]
    fn assert_has(&self, name: &str, bytes: &[u8]) {
        let found = fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == bytes, "{name} has {} bytes, which are others", found.len());
    }
}

/// `get` of these words in parts of 1 MiB to this destination, without any credentials.
fn get(words: &[&str], to: &Path) -> Program {
    Program::new(["get", "--part-size", "1MiB"]).with(words).with([to])
}
