//! `inrush train` with shells and Python as the command of the job: the real program against the
//! in-repo origin.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and processes of its own"
)]

#[path = "../common/fuse.rs"]
mod fuse;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "the way of other commands belongs to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` belongs to other tests")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

mod codes;
mod failures;
mod files;
mod golden;
mod jobs;
mod kinds;
mod lines;
mod mounts;
mod order;
mod plan;
mod refusals;
mod runs;
mod shares;
mod signals;
mod started;
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use inrush_origin::Origin;
use tempfile::TempDir;

use matrix::{Objects, bytes_of};
use program::{Program, Run, Running};
use served::{ACCESS_KEY, SECRET};

const MIB: usize = 1 << 20;
/// The documented exit codes.
const INPUT_FAILED: i32 = 125;
const INTERRUPTED: i32 = 130;
/// Longest time for what happens at once: a machine that is busy with other tests takes its time.
const SOON: Duration = Duration::from_secs(20);

/// A base folder.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// What stands for `/opt/ml`.
    fn base(&self) -> PathBuf {
        self.folder.path().join("ml")
    }

    fn data(&self, name: &str) -> PathBuf {
        self.base().join("input/data").join(name)
    }

    /// What the command wrote into a file of `output/data`.
    #[track_caller]
    fn output(&self, name: &str) -> String {
        let path = self.base().join("output/data").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn has_output(&self, name: &str) -> bool {
        self.base().join("output/data").join(name).exists()
    }

    /// Why the job failed, as its files say; `None` where they say nothing.
    fn failure(&self) -> Option<String> {
        fs::read_to_string(self.base().join("output/failure")).ok()
    }

    /// `inrush train` from the origin without a command.
    fn train(&self, origin: &Origin, words: &[&str]) -> Program {
        let program = Program::new(["train", "--base-dir"]).with([self.base()]).with(words);
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        program.asking(origin).with_keys(ACCESS_KEY, SECRET).set("PATH", path)
    }

    /// `inrush train` with a script of sh(1) as its command, in which `$d` is the folder of the
    /// channels and `$o` that of the output.
    fn shell(&self, origin: &Origin, words: &[&str], script: &str) -> Program {
        let folders = format!(
            "d='{}' o='{}'; {script}",
            self.base().join("input/data").display(),
            self.base().join("output/data").display()
        );
        self.train(origin, words).with(["--", "sh", "-c"]).with([folders])
    }

    /// Fails unless it ended with this exit code, and left no pipe and no lock.
    #[track_caller]
    fn end(&self, running: Running, code: i32) -> Run {
        let run = running.wait().expect(code);
        let left = self.leftovers();
        run.check(left.is_empty(), &format!("{left:?} are left"));
        run
    }

    /// Pipes, locks and temporary files among the channels.
    fn leftovers(&self) -> Vec<String> {
        use std::os::unix::fs::FileTypeExt as _;
        let Ok(entries) = fs::read_dir(self.base().join("input/data")) else { return Vec::new() };
        let entries = entries.map(|entry| entry.expect("an entry"));
        let left = entries.filter(|entry| {
            let is_fifo = entry.file_type().expect("a type").is_fifo();
            is_fifo || entry.file_name().to_string_lossy().starts_with(".inrush")
        });
        left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Waits until the command has written this file, as long as the program runs.
    #[track_caller]
    fn until_output(&self, running: &mut Running, name: &str) -> String {
        let is_written = running.until(|| self.has_output(name) && !self.output(name).is_empty());
        assert!(is_written, "it ended before the command wrote {name}");
        self.output(name)
    }
}

/// Waits for something that happens at once.
#[track_caller]
fn soon(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "{what} is not so after {SOON:?}");
        std::thread::sleep(program::LOOK);
    }
}

/// Whether a process runs; one that has ended and is not awaited does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    let state = stat.ok().and_then(|stat| {
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.chars().next()
    });
    !matches!(state, None | Some('Z' | 'X'))
}

/// Objects of these keys and lengths.
fn objects(keys: &[(&str, usize)]) -> Objects {
    keys.iter().map(|(key, length)| ((*key).to_owned(), bytes_of(key, *length))).collect()
}

/// These bytes as a record of MXNet's RecordIO.
fn record(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    let head = [0xced7_230a_u32.to_le_bytes(), length.to_le_bytes()].concat();
    let mut record = [&head, bytes].concat();
    record.resize(record.len().next_multiple_of(4), 0);
    record
}

/// The stream of what begins so, in key order.
fn stream(objects: &Objects, prefix: &str) -> Vec<u8> {
    let of = |key: &String| key.starts_with(prefix);
    objects.iter().filter(|(key, _)| of(key)).flat_map(|(_, bytes)| bytes).copied().collect()
}
