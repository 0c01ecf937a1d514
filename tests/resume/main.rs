//! A `get` that is run again: what is complete is not fetched, what is unfinished goes on, and what
//! cannot be relied on begins again.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "../common/folded.rs"]
mod folded;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "../common/mount.rs"]
#[expect(dead_code, reason = "full and read-only file systems belong to other tests")]
mod mount;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "usage errors belong to other tests")]
mod program;
#[path = "../common/served.rs"]
mod served;
#[path = "../common/skip.rs"]
mod skip;

mod again;
mod own_files;
mod slow;
mod sync;
mod times;
mod trust;
mod unfinished;
mod verified;

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use inrush_origin::{Config, ObjectContent, ObjectSpec, Origin, synthetic_bytes};

use matrix::Objects;
use program::Program;
use served::{BUCKET, config, get};

const MIB: usize = 1 << 20;

/// Objects of these keys and lengths, with bytes of their own.
fn objects(keys: &[(&str, usize)]) -> Objects {
    let bytes = |(key, length): &(&str, usize)| {
        let mut bytes = vec![0; *length];
        synthetic_bytes(key, 0, &mut bytes);
        ((*key).to_owned(), bytes)
    };
    keys.iter().map(bytes).collect()
}

/// An origin of these objects, which it computes.
fn computed(objects: &Objects) -> Config {
    let spec = |(key, bytes): (&String, &Vec<u8>)| {
        let length_bytes = bytes.len() as u64;
        ObjectSpec::new(BUCKET, key, ObjectContent::Synthetic { length_bytes })
    };
    Config { objects: objects.iter().map(spec).collect(), ..config(&Objects::new()) }
}

/// As `computed`, but with `rate` MiB a second on each connection.
fn slow(objects: &Objects, rate: u64) -> Config {
    let connection_rate = NonZeroU64::new(rate << 20);
    let first_byte_latency = Duration::from_millis(5);
    Config { connection_rate, first_byte_latency, ..computed(objects) }
}

/// `inrush get` of the whole bucket in ranges of 1 MiB over four connections.
fn fetch(origin: &Origin, destination: &Path) -> Program {
    let options = ["s3://lab/", "--part-size", "1MiB", "--connections", "4", "--json"];
    get(origin, options).with([destination])
}

/// The names below a folder that are ours alone.
fn temporaries(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.starts_with(".inrush") {
                found.insert(name);
            }
        }
    }
    found
}

/// Fails unless exactly these objects are there, and nothing of ours beside them.
#[track_caller]
fn assert_complete(folder: &Path, objects: &Objects) {
    assert_eq!(temporaries(folder), BTreeSet::new(), "left behind");
    let mut files = objects.clone();
    files.retain(|key, _| !key.ends_with('/'));
    matrix::assert_same(folder, &files);
}
