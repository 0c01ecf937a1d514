//! A reader in Python, in a process of its own: bounded, and gone when dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::program::LOOK;

/// Longest time of a reader.
const READER_SECONDS: u64 = 60;
/// Longest time for a pipe to come or go once it should: a machine that is busy with other tests
/// takes its time, a program that forgot takes for ever.
const PIPE_SECONDS: f64 = 10.0;

/// What a reader reports of an epoch.
#[derive(Debug, Clone)]
pub(crate) struct ReadEpoch {
    pub(crate) epoch: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// From its opening to the next epoch's pipe; `None` for the last it was to read.
    appeared: Option<f64>,
    /// From the end of the stream until the pipe was gone.
    gone: Option<f64>,
    last: bool,
}

/// Fails unless the next pipe came with the reader and this one went at its end.
#[track_caller]
pub(crate) fn sound(epoch: &ReadEpoch) {
    let soon = |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds < PIPE_SECONDS);
    assert!(soon(epoch.gone), "pipe {} is there after its end: {epoch:?}", epoch.epoch);
    assert!(
        epoch.last || soon(epoch.appeared),
        "the pipe after {} is late: {epoch:?}",
        epoch.epoch
    );
}

/// A reader that runs.
pub(crate) struct Reader {
    child: Child,
    folder: TempDir,
    started: Instant,
    epochs: usize,
}

impl Reader {
    /// Starts a reader of a channel: an epoch in each of these manners.
    pub(crate) fn start(channel: &Path, manners: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let output = |name| File::create(folder.path().join(name)).expect("an output file");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pipe/reader.py");
        let child = Command::new("python3")
            .arg(script)
            .arg(channel)
            .args(manners)
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("python3");
        Self { child, folder, started: Instant::now(), epochs: manners.len() }
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect("UTF-8")
    }

    /// Waits until it has said this.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) {
        while !self.said("stdout").contains(words) {
            let ended = self.child.try_wait().expect("a child").is_some();
            assert!(!ended || self.said("stdout").contains(words), "{}", self.report());
            self.check_time();
            std::thread::sleep(LOOK);
        }
    }

    #[track_caller]
    fn check_time(&self) {
        let seconds = self.started.elapsed().as_secs();
        assert!(seconds < READER_SECONDS, "a reader is not done: {}", self.report());
    }

    fn report(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.said("stdout"), self.said("stderr"))
    }

    /// Waits for its end, and returns its report of each epoch.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Vec<ReadEpoch> {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            self.check_time();
            std::thread::sleep(LOOK);
        };
        assert!(status.success(), "a reader failed: {}", self.report());
        let said = self.said("stdout");
        let lines = said.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let epochs: Vec<ReadEpoch> = lines
            .filter(|line: &serde_json::Value| line["epoch"].is_u64())
            .map(|line| ReadEpoch {
                epoch: line["epoch"].as_u64().expect("a number"),
                bytes: line["bytes"].as_u64().expect("a number"),
                sha256: line["sha256"].as_str().expect("a text").to_owned(),
                appeared: line["appeared"].as_f64(),
                gone: line["gone"].as_f64(),
                last: line["epoch"].as_u64() == Some(self.epochs as u64 - 1),
            })
            .collect();
        assert_eq!(epochs.len(), self.epochs, "{}", self.report());
        epochs
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Longest wait for something that comes at once where nothing else runs.
const SOON_SECONDS: u64 = 30;

/// Waits until something is so.
#[track_caller]
pub(crate) fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        let seconds = begun.elapsed().as_secs();
        assert!(seconds < SOON_SECONDS, "{what}: not within {SOON_SECONDS} s");
        std::thread::sleep(LOOK);
    }
}
