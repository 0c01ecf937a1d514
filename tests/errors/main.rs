//! Each failure prints one line that says what to do, and exits with the documented code; no file
//! is published that is not whole: the real program against the in-repo origin.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "../common/mount.rs"]
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

mod answers;
mod destination;
mod disk;
mod expired;
mod faults;
mod host;
mod json;
mod keys;
mod protected;
mod ring;
mod server;
mod services;
mod space;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use matrix::{Objects, bytes_of};

/// The documented exit codes.
const OBJECTS: i32 = 1;
const USAGE: i32 = 2;
const ACCESS: i32 = 3;
const NOT_FOUND: i32 = 4;
const DESTINATION: i32 = 5;
const ENDPOINT: i32 = 6;
const HOST: i32 = 7;
const DEADLINE: i32 = 8;

/// A destination that is not there, in a folder with nothing else in it.
struct Nowhere {
    folder: TempDir,
}

impl Nowhere {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// The destination.
    fn path(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// Fails unless nothing was made, here or beside it.
    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!(names(self.folder.path()), Vec::<String>::new(), "something was written");
    }

    /// Fails unless the destination holds exactly these objects and nothing is beside it.
    #[track_caller]
    fn assert_holds(&self, objects: &Objects) {
        matrix::assert_same(&self.path(), objects);
        assert_eq!(names(self.folder.path()), ["destination"], "something was written beside it");
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder that can be read");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Fails unless every file below the folder is one of these objects, whole; returns how many.
#[track_caller]
fn assert_whole(folder: &Path, objects: &Objects) -> usize {
    let below = |path: &Path| -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let (mut count, mut paths) = (0, below(folder));
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(below(&path));
            continue;
        }
        let key = path.strip_prefix(folder).expect("below it").to_str().expect("UTF-8");
        let bytes = fs::read(&path).expect("a file");
        assert!(objects.get(key) == Some(&bytes), "{key} is not whole: {} bytes", bytes.len());
        count += 1;
    }
    count
}

/// Objects of these keys and lengths.
fn objects(keys: &[(&str, usize)]) -> Objects {
    keys.iter().map(|(key, length)| ((*key).to_owned(), bytes_of(key, *length))).collect()
}

/// The objects below a prefix, without that prefix in their keys.
fn below(prefix: &str, objects: &Objects) -> Objects {
    let inside = objects.iter().filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?, bytes)));
    inside.map(|(key, bytes)| (key.to_owned(), bytes.clone())).collect()
}
