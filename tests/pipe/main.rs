//! Named pipes and standard output, read by other programs: the real program against the in-repo
//! origin. Every stream is compared by its length and SHA-256.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and processes of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "what is checked of a folder belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
mod program;
#[path = "../common/rest.rs"]
mod rest;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` belongs to other tests")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

mod cat;
mod channels;
mod epochs;
mod faults;
mod gzip;
mod hold;
mod life;
mod lines;
mod lock;
mod markers;
mod parts;
mod reader;
mod readers;
mod ready;
mod records;
mod refuser;
mod replaced;
mod reports;
mod resting;
mod ring;
mod slow;
mod slow_reader;
mod verified;

use std::path::{Path, PathBuf};

use inrush_origin::Origin;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use matrix::{Objects, bytes_of};
use program::{Program, Run, Running};
use reader::{ReadEpoch, sound};
use served::{ACCESS_KEY, SECRET};

const MIB: usize = 1 << 20;
/// The documented exit codes.
const OBJECTS: i32 = 1;
const ACCESS: i32 = 3;
const NOT_FOUND: i32 = 4;
const DESTINATION: i32 = 5;
const ENDPOINT: i32 = 6;
const DEADLINE: i32 = 8;
const INTERRUPTED: i32 = 130;
/// A stop takes well under a second. A busy machine gets more, but less than any wait for an answer
/// (30 s).
const STOP_SECONDS: f64 = 15.0;

/// A folder for pipes.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What a channel is called on the command line.
    fn channel(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Where the ready file of [`Self::serve`] is.
    fn ready(&self) -> PathBuf {
        self.path().join("ready")
    }

    /// The names in it, sorted; the ready file is left out.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).expect("a folder that can be read");
        let names = entries.map(|entry| {
            entry.expect("an entry").file_name().into_string().expect("a name in UTF-8")
        });
        let mut names: Vec<String> = names.filter(|name| name != "ready").collect();
        names.sort();
        names
    }

    /// `names` without the locks of channels, while they are served.
    fn pipes(&self) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| !name.ends_with(".lock"));
        names
    }

    /// Starts serving the channel `train` and waits until it can be read.
    #[track_caller]
    fn serve(&self, origin: &Origin, words: &[&str]) -> Running {
        self.start(pipe(origin, ["s3://lab/"]).with([self.channel("train")]).with(words))
    }

    /// Starts a run and waits until its ready file is there.
    #[track_caller]
    fn start(&self, program: Program) -> Running {
        let (running, is_ready) = self.start_or_end(program);
        if !is_ready {
            panic!("it ended before its pipes were there\n{}", running.wait());
        }
        running
    }

    /// Starts a run and waits until its ready file is there, or it has ended: false then. Both may
    /// be over before a test sees the file.
    fn start_or_end(&self, program: Program) -> (Running, bool) {
        let mut running = program.with(["--ready-file".as_ref(), self.ready().as_os_str()]).start();
        let is_ready = running.until(|| self.ready().exists());
        (running, is_ready)
    }

    /// Fails unless it ended with this exit code and left nothing.
    #[track_caller]
    fn end(&self, running: Running, code: i32) -> Run {
        let run = running.wait().expect(code);
        run.check(self.names().is_empty(), &format!("{:?} are left", self.names()));
        run
    }
}

/// `inrush pipe` of these words from the origin, with its keys and a summary in JSON.
fn pipe<W: AsRef<std::ffi::OsStr>>(origin: &Origin, words: impl IntoIterator<Item = W>) -> Program {
    let program = Program::new(["pipe", "--json"]).with(words).asking(origin);
    program.with_keys(ACCESS_KEY, SECRET)
}

/// Objects of these keys and lengths.
fn objects(keys: &[(&str, usize)]) -> Objects {
    keys.iter().map(|(key, length)| ((*key).to_owned(), bytes_of(key, *length))).collect()
}

/// Small and large objects, empty ones among them.
fn mixture() -> Objects {
    let mut all: Objects = (0..300)
        .map(|number| {
            let key = format!("small/{}/{number:03}", number % 7);
            let bytes = bytes_of(&key, 97 * number);
            (key, bytes)
        })
        .collect();
    all.extend(objects(&[("large/a", 20 * MIB + 1), ("large/b", 8 * MIB), ("z", MIB - 1)]));
    all
}

/// The stream in key order.
fn stream(objects: &Objects) -> Vec<u8> {
    objects.values().flatten().copied().collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Fails unless this was read, and the pipes came and went as they should.
#[track_caller]
fn assert_read(epoch: &ReadEpoch, bytes: &[u8]) {
    sound(epoch);
    assert_eq!(epoch.bytes, bytes.len() as u64, "bytes of epoch {}", epoch.epoch);
    assert_eq!(epoch.sha256, sha256(bytes), "bytes of epoch {} differ", epoch.epoch);
}

/// What the summary says of the epochs of a channel.
#[track_caller]
fn epochs_of(run: &Run, channel: usize) -> Vec<serde_json::Value> {
    let summary = run.json();
    summary["channels"][channel]["epochs"].as_array().expect("epochs").clone()
}
