//! One process alone serves a channel, and only what it made is its own.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;

use crate::reader::soon;
use crate::served::serve;
use crate::{DESTINATION, INTERRUPTED, MIB, Stage, objects, pipe, stream};

const LOCK: &str = ".inrush-train.lock";

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

/// A reader that does not wait for a writer.
pub(crate) fn open_at_once(path: &Path) -> File {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    File::options().read(true).custom_flags(flags).open(path).expect("a pipe")
}

/// What is there: names, and which files they are.
fn inodes(stage: &Stage) -> Vec<(String, u64)> {
    let inode = |name: &String| fs::symlink_metadata(stage.channel(name)).expect("an entry").ino();
    stage.names().into_iter().map(|name| (name.clone(), inode(&name))).collect()
}

#[test]
fn a_second_run_on_a_channel_refuses_and_touches_nothing() {
    let all = objects(&[("a", 40 * MIB), ("b", 5)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    // More than a pipe holds: the epoch lasts for as long as nobody reads.
    let mut reader = File::open(stage.channel("train_0")).expect("the first pipe");
    wait_for(&stage, "train_1");
    let pid = fs::read_to_string(stage.channel(LOCK)).expect("the lock file");
    let before = inodes(&stage);
    let words = ["--channel", "new=s3://lab/", "--channel", "train=s3://lab/"];
    for program in [
        pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]),
        // Of several channels none begins.
        pipe(&origin, words).with([stage.path()]),
    ] {
        let refused = program.run().expect(DESTINATION);
        let pid = format!("(pid {})", pid.trim());
        let place = stage.channel("train").display().to_string();
        refused.expect_error(&[&pid, &place, LOCK]);
        assert_eq!(inodes(&stage), before, "nothing was made, removed or replaced");
    }
    // Another channel in the same folder is nobody's yet.
    let other = pipe(&origin, ["s3://lab/"]).with([stage.channel("other")]).start();
    assert!(fs::read(wait_for(&stage, "other_0")).expect("a stream") == stream(&all));
    other.wait().expect(0);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the stream");
    assert!(bytes == stream(&all), "the first run's stream is whole");
    assert!(fs::read(stage.channel("train_1")).expect("a stream") == stream(&all));
    stage.end(running, 0);
}

fn wait_for(stage: &Stage, name: &str) -> PathBuf {
    let path = stage.channel(name);
    soon("the pipe", || path.exists());
    path
}

#[test]
fn a_killed_runs_lock_keeps_nobody_out() {
    let all = objects(&[("a", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &[]);
    running.signal(Signal::KILL);
    running.wait().expect_killed(Signal::KILL);
    assert_eq!(stage.names(), [LOCK, "train_0"]);
    // It waits at the pipe that the run has left, as a job that has not noticed does.
    let waiting = open_at_once(&stage.channel("train_0"));
    fs::remove_file(stage.ready()).expect("the ready file");
    let running = stage.serve(&origin, &[]);
    // The old pipe is replaced, and nothing comes through it: that is an end, not a wait for ever.
    let mut polled = [PollFd::new(&waiting, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).expect("a poll");
    assert!(polled[0].revents().contains(PollFlags::HUP), "{:?}", polled[0].revents());
    assert_eq!((&waiting).read(&mut [0; 10]).expect("an end"), 0);
    assert!(fs::read(stage.channel("train_0")).expect("a stream") == stream(&all));
    stage.end(running, 0);
}

/// Somebody has made them, and waits in open(2) already.
#[test]
fn pipes_that_were_made_for_it_are_used_and_stay() {
    let all = objects(&[("a", MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let readers = ["train_0", "train_1"].map(|name| {
        let path = stage.channel(name);
        make_fifo(&path);
        thread::spawn(move || fs::read(path).expect("a stream"))
    });
    let before = inodes(&stage);
    // Its readers wait: it may be over before anybody sees that it is ready.
    let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
    let running = program.with(["--epochs", "2"]).start();
    for reader in readers {
        assert!(reader.join().expect("a reader") == stream(&all), "it has all of its epoch");
    }
    running.wait().expect(0);
    assert_eq!(inodes(&stage), before, "they are whose they were");
}

#[test]
fn a_pipe_that_was_made_for_it_is_not_said_to_be_removed_or_made() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let (path, other) = (stage.channel("train_0"), stage.channel("other"));
    make_fifo(&path);
    make_fifo(&other);
    let before = inodes(&stage);
    let start = || pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
    let run = start().with(["--deadline", "1s"]).run().expect(8);
    let expected = "all named pipes that this run made are removed; no reader opened train_0";
    run.expect_words(&[expected]);
    assert_eq!(inodes(&stage), before, "nobody has touched it");
    let running = stage.start(start());
    fs::rename(&other, &path).expect("the other pipe in its place");
    let run = running.wait().expect(DESTINATION);
    run.expect_words(&["train_0 is not the named pipe that this run found: it was removed or"]);
}

#[test]
fn what_replaces_a_pipe_is_neither_written_nor_removed() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let running = stage.serve(&origin, &[]);
    let path = stage.channel("train_0");
    let other = stage.channel("other");
    make_fifo(&other);
    let reader = open_at_once(&other);
    fs::rename(&other, &path).expect("the other pipe in its place");
    let run = running.wait().expect(DESTINATION);
    run.expect_words(&["error: ", "train_0 is not the named pipe that this run made"]);
    let found = fs::metadata(&path).expect("the other pipe");
    assert!(found.file_type().is_fifo());
    assert_eq!(found.ino(), reader.metadata().expect("the same").ino());
    // It has had no writer: poll(2) would report one that is gone, too.
    let mut polled = [PollFd::new(&reader, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).expect("a poll");
    assert!(polled[0].revents().is_empty(), "{:?}", polled[0].revents());
    assert_eq!(stage.names(), ["train_0"]);
}

#[test]
fn a_pipe_that_is_replaced_while_it_is_read_stays_at_the_end() {
    // More than a pipe holds: with pages of the socket that can be 8 MiB.
    let all = objects(&[("a", 40 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    let path = stage.channel("train_0");
    let mut reader = File::open(&path).expect("a pipe");
    // Made again under the same name: often with the same inode number, if that was free.
    fs::remove_file(&path).expect("the pipe");
    make_fifo(&path);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the stream");
    assert!(bytes == stream(&all), "who had it open gets all");
    assert!(fs::read(wait_for(&stage, "train_1")).expect("a stream") == stream(&all));
    running.wait().expect(0);
    assert_eq!(stage.names(), ["train_0"], "what was put there is somebody's");
}

#[test]
fn an_interrupted_run_removes_its_lock() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let running = stage.serve(&origin, &[]);
    assert_eq!(stage.names(), [LOCK, "train_0"]);
    running.signal(Signal::TERM);
    stage.end(running, INTERRUPTED);
}
