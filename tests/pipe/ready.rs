//! What is announced, and when: pipes and ready file come after the first answer to each listing,
//! and go with the run.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileTypeExt as _;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use crate::reader::Reader;
use crate::served::serve;
use crate::{
    ACCESS, ACCESS_KEY, INTERRUPTED, MIB, NOT_FOUND, SECRET, Stage, assert_read, objects, pipe,
    stream,
};

/// Fails unless the run of these words ends so, and nothing ever came to be in its folder.
#[track_caller]
fn announces_nothing(words: &[&str], secret: &str, code: i32, expected: &str) {
    let origin = serve(&objects(&[("a", 5), ("folder/b", 5)]));
    let stage = Stage::new();
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
    let what = WatchFlags::CREATE | WatchFlags::MOVED_TO;
    inotify::add_watch(&watch, stage.path(), what).expect("a watch");
    let program = pipe(&origin, words).with_keys(ACCESS_KEY, secret);
    let program = match words[0] {
        "--channel" => program.with([stage.path()]),
        _ => program.with([stage.channel("train")]),
    };
    let run = program.with(["--ready-file".as_ref(), stage.ready().as_os_str()]).run();
    run.expect(code).expect_error(&[expected]);
    let mut buffer = [MaybeUninit::uninit(); 1024];
    if let Ok(event) = inotify::Reader::new(&watch, &mut buffer).next() {
        panic!("{words:?}: {:?} was there", event.file_name());
    }
}

#[test]
fn a_source_that_cannot_be_read_is_never_announced() {
    announces_nothing(&["s3://lab/nothere/"], SECRET, NOT_FOUND, "nothing in this folder");
    announces_nothing(&["s3://lab/nothere"], SECRET, NOT_FOUND, "channel train: ");
    announces_nothing(&["s3://lab/*.jpg"], SECRET, NOT_FOUND, "nothing matches");
    announces_nothing(&["s3://elsewhere/"], SECRET, NOT_FOUND, "elsewhere");
    announces_nothing(&["s3://lab/"], "wrong", ACCESS, "channel train: ");
    let words = ["s3://lab/nothere/", "--shuffle-seed", "1", "--epochs", "forever"];
    announces_nothing(&words, SECRET, NOT_FOUND, "nothing in this folder");
    let words = ["--channel", "good=s3://lab/", "--channel", "bad=s3://lab/nothere/"];
    announces_nothing(&words, SECRET, NOT_FOUND, "channel bad: ");
}

#[test]
fn the_ready_file_goes_with_its_run() {
    let all = objects(&[("a", MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &[]);
    let epochs = Reader::start(&stage.channel("train"), &["all"]).finish();
    assert_read(&epochs[0], &stream(&all));
    stage.end(running, 0);
    assert!(!stage.ready().exists(), "its pipes are gone");
    let running = stage.serve(&origin, &[]);
    running.signal(Signal::TERM);
    stage.end(running, INTERRUPTED);
    assert!(!stage.ready().exists(), "its pipes are gone");
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_of_the_ready_file() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, stage.ready(), FileType::Fifo, mode, 0).expect("a FIFO");
    let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
    let mut running = program.with(["--ready-file".as_ref(), stage.ready().as_os_str()]).start();
    assert!(running.until(|| stage.channel("train_0").exists()), "it ended at once");
    running.signal(Signal::INT);
    stage.end(running, INTERRUPTED).expect_words(&["interrupted before the ready file"]);
    let found = fs::symlink_metadata(stage.ready()).expect("it is somebody else's");
    assert!(found.file_type().is_fifo());
}

/// Who makes a pipe of the channel's own name waits there for ever.
#[test]
fn a_pipe_of_the_channels_own_name_is_reported() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let pipe = stage.channel("train");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("a FIFO");
    let running = stage.serve(&origin, &["--quiet"]);
    assert_eq!(stage.pipes(), ["train", "train_0"]);
    running.signal(Signal::INT);
    let name = pipe.display();
    let words =
        format!("warning: {name} is a named pipe that is not used: the epochs have {name}_0");
    running.wait().expect(INTERRUPTED).expect_words(&[&words]);
    assert_eq!(stage.names(), ["train"], "it is somebody else's");
}

#[test]
fn a_ready_file_that_was_there_stays() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    fs::write(stage.ready(), "").expect("a file");
    let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
    let mut running = program.with(["--ready-file".as_ref(), stage.ready().as_os_str()]).start();
    let names = || fs::read_to_string(stage.ready()).expect("UTF-8");
    assert!(running.until(|| names().ends_with("train_0\n")));
    running.signal(Signal::TERM);
    stage.end(running, INTERRUPTED);
    assert!(names().ends_with("train_0\n"), "it is somebody else's");
}
