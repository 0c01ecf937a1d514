//! What a run does while nobody reads, or the reader rests: it waits, and is not woken.

use std::fs::File;
use std::io::Read as _;

use rustix::process::Signal;

use crate::matrix::{Objects, bytes_of};
use crate::program::Running;
use crate::rest::assert_rests;
use crate::served::serve;
use crate::{INTERRUPTED, MIB, Stage, objects};

/// More objects than a feed takes at once, so its supplier waits for room.
fn many() -> Objects {
    (0..5000).map(|number| (format!("{number:04}"), bytes_of("a", 4 << 10))).collect()
}

/// Serves these objects over either ring, and does so with the run.
fn with_either_ring(all: &Objects, words: &[&str], check: impl Fn(&Stage, &Running)) {
    let origin = serve(all);
    for ring in ["io_uring", "epoll"] {
        let stage = Stage::new();
        let words = [&["--epochs", "forever", "--ring", ring], words].concat();
        let running = stage.serve(&origin, &words);
        check(&stage, &running);
        running.signal(Signal::INT);
        stage.end(running, INTERRUPTED);
    }
}

#[test]
fn a_run_without_a_reader_is_not_woken() {
    with_either_ring(&many(), &[], |_, running| assert_rests(running.pid()));
}

#[test]
fn a_run_whose_reader_rests_is_not_woken() {
    with_either_ring(&many(), &[], |stage, running| {
        let mut reader = File::open(stage.channel("train_0")).expect("a pipe");
        reader.read_exact(&mut [0; 4 << 10]).expect("the first bytes");
        assert_rests(running.pid());
    });
}

#[test]
fn a_run_that_reports_and_waits_for_the_next_epoch_is_not_woken() {
    let all = objects(&[("a", 40 * MIB)]);
    let report = tempfile::NamedTempFile::new().expect("a file");
    let report = report.path().to_str().expect("UTF-8");
    with_either_ring(&all, &["--report", report], |stage, running| {
        let mut reader = File::open(stage.channel("train_0")).expect("a pipe");
        let count = std::io::copy(&mut reader, &mut std::io::sink()).expect("an epoch");
        assert_eq!(count, 40 << 20);
        assert_rests(running.pid());
    });
}
