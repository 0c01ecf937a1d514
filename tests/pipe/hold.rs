//! What the reader of a stream sees that fails: an end, or nothing more.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::process::Stdio;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Fault, FaultPlan, Match, Origin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::lock::open_at_once;
use crate::matrix::Objects;
use crate::program::Running;
use crate::reader::soon;
use crate::served::{config, serve, start};
use crate::{ENDPOINT, MIB, NOT_FOUND, Stage, objects, pipe};

/// Three objects, the last of which never comes.
pub(crate) fn broken() -> (Objects, Origin) {
    let all = objects(&[("a", 3 * MIB), ("b", 2 * MIB), ("c", MIB)]);
    let when = Match { operation: Some(GetObject), key: Some("c".to_owned()), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ResetAfter { bytes: 0 });
    let origin = start(inrush_origin::Config { faults, ..config(&all) });
    (all, origin)
}

/// A run that fails, its reader, and one who waits at the next epoch's pipe.
struct Broken {
    stage: Stage,
    running: Running,
    reader: File,
    next: File,
    /// What the first one has read.
    read: Vec<u8>,
    log: TempDir,
}

fn said(log: &TempDir) -> String {
    fs::read_to_string(log.path().join("stderr")).expect("UTF-8")
}

impl Broken {
    /// Starts it, and reads until it has said that it failed and nothing more is there.
    fn start(origin: &Origin, words: &[&str]) -> Self {
        let (stage, log) = (Stage::new(), tempfile::tempdir().expect("a folder"));
        let program = pipe(origin, ["s3://lab/"]).with([stage.channel("train")]).with(words);
        let program = program.with(["--epochs", "2", "--connections", "1", "--max-attempts", "2"]);
        let stderr = Stdio::from(File::create(log.path().join("stderr")).expect("a file"));
        let running = program.start_with(Stdio::null(), stderr);
        let opened = |name: &str| {
            let path = stage.channel(name);
            soon("the pipe", || path.exists());
            open_at_once(&path)
        };
        let reader = opened("train_0");
        let next = opened("train_1");
        let mut broken = Self { stage, running, reader, next, read: Vec::new(), log };
        soon("the failure", || broken.take() || said(&broken.log).contains("error: "));
        while !broken.take() && !broken.is_empty() {}
        broken
    }

    /// Reads what is there; true at its end.
    fn take(&mut self) -> bool {
        let mut buffer = [0; 1 << 16];
        match self.reader.read(&mut buffer) {
            Ok(count) => {
                self.read.extend_from_slice(&buffer[..count]);
                // Before the first writer there is nothing to wait for (fifo(7)).
                count == 0 && !self.read.is_empty()
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn is_empty(&self) -> bool {
        events(&self.reader).is_empty()
    }
}

/// What poll(2) says of a pipe now.
fn events(pipe: &File) -> PollFlags {
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).expect("a poll");
    polled[0].revents()
}

#[test]
fn held_readers_see_no_end_and_the_run_ends_when_they_leave() {
    let (all, origin) = broken();
    let mut broken = Broken::start(&origin, &["--on-failure", "hold"]);
    let text = said(&broken.log);
    assert!(text.contains("channel train: ") && text.contains("s3://lab/c"), "{text}");
    assert!(broken.read == [all["a"].clone(), all["b"].clone()].concat(), "all before it came");
    soon("the names are gone", || broken.stage.pipes().is_empty());
    for _ in 0..3 {
        for pipe in [&broken.reader, &broken.next] {
            assert_eq!(events(pipe), PollFlags::empty(), "neither bytes nor an end");
        }
        let outcome = broken.reader.read(&mut [0; 10]);
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        assert!(!broken.running.has_ended(), "it waits for its readers");
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    drop(broken.reader);
    assert_eq!(events(&broken.next), PollFlags::empty(), "the other one is held, too");
    drop(broken.next);
    broken.running.wait().expect(ENDPOINT);
    assert_eq!(broken.stage.names(), Vec::<String>::new());
    assert_eq!(said(&broken.log).matches("error: ").count(), 1, "it is reported once");
}

#[test]
fn a_signal_ends_what_is_held() {
    let (_, origin) = broken();
    let mut broken = Broken::start(&origin, &["--on-failure", "hold"]);
    assert_eq!(events(&broken.reader), PollFlags::empty());
    broken.running.signal(Signal::TERM);
    soon("the end", || events(&broken.reader) == PollFlags::HUP);
    soon("the end", || events(&broken.next) == PollFlags::HUP);
    assert!(broken.take(), "an end of file");
    // It had failed before: that is what its exit code says.
    broken.running.wait().expect(ENDPOINT);
    assert_eq!(broken.stage.names(), Vec::<String>::new());
}

#[test]
fn a_failure_is_an_end_of_file_where_nothing_is_said() {
    for words in [&[][..], &["--on-failure", "end"]] {
        let (all, origin) = broken();
        let mut broken = Broken::start(&origin, words);
        soon("the end", || broken.take());
        assert!(broken.read == [all["a"].clone(), all["b"].clone()].concat());
        broken.running.wait().expect(ENDPOINT);
        assert_eq!(broken.stage.names(), Vec::<String>::new());
    }
}

#[test]
fn nobody_is_waited_for_where_nobody_reads() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    let program = pipe(&origin, ["s3://lab/missing/", "--on-failure", "hold"]);
    let running = program.with([stage.channel("train")]).start();
    stage.end(running, NOT_FOUND);
}

#[test]
fn a_channel_that_is_held_does_not_stop_the_others() {
    let (all, origin) = broken();
    let (stage, log) = (Stage::new(), tempfile::tempdir().expect("a folder"));
    let words = ["--channel", "bad=s3://lab/", "--channel", "good=s3://lab/a"];
    let words = [&words[..], &["--on-failure", "hold", "--max-attempts", "2"]].concat();
    let stderr = Stdio::from(File::create(log.path().join("stderr")).expect("a file"));
    let running = pipe(&origin, words).with([stage.path()]).start_with(Stdio::null(), stderr);
    let path = |name: &str| {
        soon("the pipe", || stage.channel(name).exists());
        stage.channel(name)
    };
    let held = File::open(path("bad_0")).expect("a pipe");
    // The failure is reported while the other channel goes on.
    soon("the failure", || said(&log).contains("error: channel bad: "));
    assert!(fs::read(path("good_0")).expect("a stream") == all["a"]);
    drop(held);
    running.wait().expect(ENDPOINT);
    assert_eq!(stage.names(), Vec::<String>::new());
    assert_eq!(said(&log).matches("error: ").count(), 1, "it is reported once");
}
