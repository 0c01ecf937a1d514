//! How pipes come and go, and what is in their place before.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::reader::{Reader, soon};
use crate::served::serve;
use crate::{
    DEADLINE, DESTINATION, INTERRUPTED, MIB, Stage, assert_read, epochs_of, objects, pipe, stream,
};

#[test]
fn the_first_pipe_is_there_before_the_ready_line() {
    let all = objects(&[("a", MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let log = stage.path().join("ready");
    let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
    let stderr = Stdio::from(File::create(&log).expect("a file"));
    let mut running = program.start_with(Stdio::null(), stderr);
    let wanted = format!("ready: {}", stage.channel("train_0").display());
    assert!(running.until(|| fs::read_to_string(&log).expect("UTF-8").contains(&wanted)));
    let found = fs::metadata(stage.channel("train_0")).expect("the pipe");
    assert!(found.file_type().is_fifo());
    assert_eq!(stage.pipes(), ["train_0"], "the next one comes with the reader");
    running.signal(Signal::INT);
    stage.end(running, INTERRUPTED);
}

#[test]
fn the_next_pipe_comes_with_the_reader_and_this_one_goes_at_its_end() {
    let all = objects(&[("a", 60 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    let mut reader = Reader::start(&stage.channel("train"), &["sleep:1000:1", "sleep:1000:1"]);
    reader.until("\"asleep\": 0");
    assert_eq!(stage.pipes(), ["train_0", "train_1"]);
    reader.until("\"asleep\": 1");
    assert_eq!(stage.pipes(), ["train_1"], "no pipe follows the last epoch's");
    reader.finish().iter().for_each(|epoch| assert_read(epoch, &stream(&all)));
    stage.end(running, 0);
}

#[test]
fn folders_that_it_made_go_with_it_if_they_are_empty() {
    let all = objects(&[("a", 3)]);
    let origin = serve(&all);
    let stage = Stage::new();
    fs::create_dir(stage.channel("there")).expect("a folder");
    for (folder, more, stays) in [
        ("new", &[][..], false),
        ("new/deep", &[], false),
        ("there", &[], true),
        ("marked", &["--epoch-markers"], true),
    ] {
        let channel = stage.channel(folder).join("train");
        let running = pipe(&origin, ["s3://lab/"]).with([channel]).with(more).start();
        let path = stage.channel(folder).join("train_0");
        soon("the pipe", || path.exists());
        assert_eq!(fs::read(path).expect("the epoch"), stream(&all));
        running.wait().expect(0);
        assert_eq!(stage.channel(folder).exists(), stays, "{folder}");
    }
    assert!(!stage.channel("new").exists(), "nor the one above");
}

#[test]
fn an_empty_stream_is_opened_and_closed() {
    let all = objects(&[("a", 0), ("b", 0), ("c", 0)]);
    let origin = serve(&all);
    for manner in ["all", "wait"] {
        let stage = Stage::new();
        let running = stage.serve(&origin, &["--epochs", "3"]);
        let epochs = Reader::start(&stage.channel("train"), &[manner; 3]).finish();
        epochs.iter().for_each(|epoch| assert_read(epoch, &[]));
        let run = stage.end(running, 0);
        let left = epochs_of(&run, 0).iter().any(|epoch| epoch["left_early"] == true);
        run.check(!left, "nobody left early");
    }
}

#[test]
fn opened_and_closed_is_an_epoch() {
    // More than a pipe holds: what fits into it is handed over before its reader can leave.
    let all = objects(&[("a", 40 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "4"]);
    for epoch in 0..3 {
        let path = stage.channel(&format!("train_{epoch}"));
        soon("the pipe", || path.exists());
        drop(File::open(&path).expect("a pipe"));
        soon("the pipe is gone", || !path.exists());
    }
    let whole = fs::read(stage.channel("train_3")).expect("the last epoch");
    assert!(whole == stream(&all), "the last epoch is whole");
    let run = stage.end(running, 0);
    for epoch in &epochs_of(&run, 0)[..3] {
        run.check(epoch["left_early"] == true, "the reader left early");
    }
}

#[test]
fn a_killed_run_is_followed_by_another() {
    let all = objects(&[("a", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "forever"]);
    let mut reader = Reader::start(&stage.channel("train"), &["sleep:1000:0.2"]);
    reader.until("asleep");
    running.signal(Signal::KILL);
    running.wait().expect_killed(Signal::KILL);
    drop(reader);
    assert_eq!(stage.names(), [".inrush-train.lock", "train_0", "train_1"]);
    fs::remove_file(stage.ready()).expect("the ready file");
    let running = stage.serve(&origin, &["--epochs", "2"]);
    let epochs = Reader::start(&stage.channel("train"), &["all"; 2]).finish();
    epochs.iter().for_each(|epoch| assert_read(epoch, &stream(&all)));
    stage.end(running, 0);
}

/// Puts something in the way of an epoch's pipe.
fn obstruct(stage: &Stage, name: &str, folder: bool) {
    let path = stage.channel(name);
    if folder {
        fs::create_dir(path).expect("a folder");
    } else {
        fs::write(path, "precious").expect("a file");
    }
}

#[track_caller]
fn assert_untouched(stage: &Stage, name: &str, folder: bool) {
    assert_eq!(stage.names(), [name], "only what was there before");
    let path = stage.channel(name);
    assert_eq!(path.is_dir(), folder);
    assert!(folder || fs::read(path).expect("a file") == b"precious");
}

#[test]
fn what_is_no_pipe_is_somebody_elses() {
    let origin = serve(&objects(&[("a", MIB)]));
    for folder in [false, true] {
        let stage = Stage::new();
        obstruct(&stage, "train_0", folder);
        let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]);
        program.run().expect(DESTINATION).expect_error(&["train_0"]);
        assert_untouched(&stage, "train_0", folder);
    }
}

#[test]
fn what_is_no_pipe_in_a_later_epochs_place_stays() {
    // More than a pipe holds.
    let all = objects(&[("a", 9 * MIB)]);
    let origin = serve(&all);
    for folder in [false, true] {
        let stage = Stage::new();
        obstruct(&stage, "train_1", folder);
        let running = stage.serve(&origin, &["--epochs", "2"]);
        let first = fs::read(stage.channel("train_0")).expect("the first epoch");
        assert!(first == stream(&all), "the epoch before is whole");
        running.wait().expect(DESTINATION).expect_words(&["error: ", "train_1"]);
        assert_untouched(&stage, "train_1", folder);
    }
}

#[test]
fn a_later_epochs_pipe_is_made_once_its_place_is_free() {
    let all = objects(&[("a", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    obstruct(&stage, "train_1", false);
    let running = stage.serve(&origin, &["--epochs", "2"]);
    let mut first = File::open(stage.channel("train_0")).expect("a pipe");
    let mut bytes = vec![0];
    first.read_exact(&mut bytes).expect("its first byte");
    fs::remove_file(stage.channel("train_1")).expect("our file");
    first.read_to_end(&mut bytes).expect("the rest");
    assert!(bytes == stream(&all), "the first epoch is whole");
    let path = stage.channel("train_1");
    soon("the next pipe", || path.exists());
    assert!(fs::read(path).expect("the next epoch") == stream(&all), "it is whole, too");
    stage.end(running, 0);
}

#[test]
fn what_lies_beyond_the_last_epoch_stays() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    obstruct(&stage, "train_1", false);
    let running = stage.serve(&origin, &[]);
    running.signal(Signal::TERM);
    running.wait().expect(INTERRUPTED);
    assert_untouched(&stage, "train_1", false);
}

#[test]
fn a_channel_that_cannot_begin_takes_the_others_with_it() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    obstruct(&stage, "second_0", false);
    let program = pipe(&origin, ["--channel", "first=s3://lab/", "--channel", "second=s3://lab/"]);
    let run = program.with([stage.path()]).run().expect(DESTINATION);
    run.expect_error(&["second_0"]);
    assert_untouched(&stage, "second_0", false);
}

#[test]
fn a_ready_file_that_cannot_be_written_leaves_nothing() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let nowhere = stage.path().join("no/such/folder");
    let program = pipe(&origin, ["s3://lab/", "--quiet"]).with([stage.channel("train")]);
    let run = program.with(["--ready-file".as_ref(), nowhere.as_os_str()]).run();
    run.expect(DESTINATION).expect_error(&["such/folder"]);
    assert_eq!(stage.names(), Vec::<String>::new());
}

#[test]
fn a_folder_that_is_not_there() {
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let run = pipe(&origin, ["s3://lab/"]).with([stage.path().join("new/train")]).start();
    // Made, as `get` makes its destination; then there is a pipe in it.
    let path = stage.path().join("new/train_0");
    soon("the pipe", || path.exists());
    run.signal(Signal::TERM);
    run.wait().expect(INTERRUPTED);
    assert!(!path.exists());
}

#[test]
fn the_deadline_ends_a_stream_that_nobody_reads() {
    let all = objects(&[("a", MIB)]);
    let origin = serve(&all);
    for words in [&[][..], &["--on-failure", "hold", "--epochs", "forever"]] {
        let stage = Stage::new();
        let program = pipe(&origin, ["s3://lab/", "--deadline", "3s", "--memory", "64MiB"]);
        let running = program.with([stage.channel("train")]).with(words).start();
        let run = stage.end(running, DEADLINE);
        run.expect_words(&["error: the deadline has passed"]);
        assert!(stage.pipes().is_empty(), "{words:?}");
    }
}

#[test]
fn filters_choose_what_a_stream_has() {
    let all = objects(&[("d/a.tar", 5), ("d/b.txt", 6), ("d/old/c.tar", 7), ("d/z.tar", 8)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let program = pipe(&origin, ["s3://lab/d/", "--epochs", "2"]);
    let program = program.with([stage.channel("train")]);
    let running = stage.start(program.with(["--include", "*.tar", "--exclude", "old"]));
    let wanted = [&all["d/a.tar"][..], &all["d/z.tar"]].concat();
    let epochs = Reader::start(&stage.channel("train"), &["all"; 2]).finish();
    assert_eq!(epochs.len(), 2);
    epochs.iter().for_each(|epoch| assert_read(epoch, &wanted));
    stage.end(running, 0);
}
