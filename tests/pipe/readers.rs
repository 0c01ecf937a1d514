//! Readers of other manners: without blocking, byte by byte, leaving early, splicing on, many at
//! once.

use std::io::Read as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::matrix::{Objects, bytes_of};
use crate::program::Running;
use crate::reader::{Reader, soon};
use crate::served::serve;
use crate::{
    INTERRUPTED, MIB, STOP_SECONDS, Stage, assert_read, epochs_of, mixture, objects, pipe, sha256,
    stream,
};

/// Reads an epoch in each manner; all but the last as a whole or, `leave:N`, in part.
#[track_caller]
fn read_in(all: &Objects, words: &[&str], manners: &[&str]) {
    let origin = serve(all);
    let stage = Stage::new();
    let epochs = manners.len().to_string();
    let running = stage.serve(&origin, &[&["--epochs", &epochs], words].concat());
    let epochs = Reader::start(&stage.channel("train"), manners).finish();
    let whole = stream(all);
    let run = stage.end(running, 0);
    let summary = epochs_of(&run, 0);
    run.check(summary.len() == manners.len(), "every epoch is in the summary");
    for ((epoch, manner), summary) in epochs.iter().zip(manners).zip(&summary) {
        let left = manner.strip_prefix("leave:").map(|n| n.parse::<usize>().expect("a number"));
        assert_read(epoch, &whole[..left.unwrap_or(whole.len())]);
        let left_early = left.is_some_and(|bytes| bytes < whole.len());
        run.check(summary["left_early"] == left_early, &format!("left early in {manner}?"));
        let taken = left.unwrap_or(whole.len());
        run.check(summary["bytes"] == taken, &format!("{taken} bytes are taken in {manner}"));
    }
}

#[test]
fn a_reader_that_selects_and_never_blocks() {
    read_in(&mixture(), &[], &["wait"; 3]);
}

#[test]
fn a_reader_that_takes_single_bytes() {
    read_in(&mixture(), &[], &["single:20000", "all", "single:70000"]);
}

#[test]
fn readers_that_leave_and_go_on_with_the_next_epoch() {
    let all = mixture();
    read_in(&all, &[], &["leave:5000000", "all", "leave:1", "all"]);
    read_in(&all, &["--connections", "1"], &["leave:3000000", "leave:65536", "all"]);
    let positions = [0, 1, 4095, 65_536, 65_537, 1 << 20, 5 << 20, 9 << 20, 23 << 20];
    for connections in ["2", "32"] {
        let leaving: Vec<String> = positions.iter().map(|at| format!("leave:{at}")).collect();
        let mut manners = Vec::new();
        for leaving in &leaving {
            manners.extend([leaving.as_str(), "all"]);
        }
        read_in(&all, &["--connections", connections], &manners);
    }
}

#[test]
fn readers_that_leave_again_and_again() {
    let all = mixture();
    let mut manners = vec!["leave:0"; 30];
    manners.extend(vec!["leave:100000"; 30]);
    manners.push("all");
    read_in(&all, &[], &manners);
    manners.push("leave:0");
    read_in(&all, &["--part-size", "1MiB"], &manners);
    read_in(&all, &[], &["leave:0"]);
    read_in(&all, &[], &["leave:6000000"]);
}

#[test]
fn leaving_an_epoch_whose_listing_is_not_at_its_end() {
    let all: Objects = (0..6000)
        .map(|number| (format!("o{number:05}"), bytes_of("o", 700 + number % 9)))
        .collect();
    read_in(&all, &[], &["leave:10", "leave:2000000", "all", "leave:0", "all"]);
}

#[test]
fn a_reader_that_splices_the_pages_on() {
    let asked = Command::new("python3").args(["-c", "import os; os.splice"]).output();
    if !asked.is_ok_and(|output| output.status.success()) {
        crate::skip::skip("this python3 has no os.splice");
        return;
    }
    read_in(&mixture(), &[], &["splice"; 3]);
}

#[test]
fn pv_reads_the_stream() {
    if Command::new("pv").arg("--version").output().is_err() {
        crate::skip::skip("there is no pv");
        return;
    }
    let all = mixture();
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    for epoch in 0..2 {
        let pipe = stage.channel(&format!("train_{epoch}"));
        // It splices from the pipe into the one to sha256sum, and slower than it could.
        let script = "timeout 40 pv --quiet --rate-limit 40m \"$0\" | sha256sum";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&pipe).stdin(Stdio::null());
        let output = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.starts_with(&sha256(&stream(&all))), "epoch {epoch}: {said}");
    }
    stage.end(running, 0);
}

const CHANNELS: usize = 20;

/// Twenty channels, each with a folder of its own.
fn twenty() -> Objects {
    let mut all = Objects::new();
    for channel in 0..CHANNELS {
        for (part, length) in [(0, 2 * MIB + channel), (1, 77), (2, 0)] {
            let key = format!("{channel:02}/{part}");
            let bytes = bytes_of(&key, length);
            all.insert(key, bytes);
        }
    }
    all
}

fn start_twenty(stage: &Stage, origin: &inrush_origin::Origin, epochs: &str) -> Running {
    let mut program = pipe(origin, ["--epochs", epochs]);
    for channel in 0..CHANNELS {
        program = program.with(["--channel", &format!("c{channel}=s3://lab/{channel:02}/")]);
    }
    stage.start(program.with([stage.path()]))
}

fn folder_of(all: &Objects, channel: usize) -> Vec<u8> {
    let prefix = format!("{channel:02}/");
    let inside = all.iter().filter(|(key, _)| key.starts_with(&prefix));
    inside.flat_map(|(_, bytes)| bytes).copied().collect()
}

#[test]
fn twenty_channels_at_once() {
    let all = twenty();
    let origin = serve(&all);
    let stage = Stage::new();
    let running = start_twenty(&stage, &origin, "2");
    let first: Vec<String> = (0..CHANNELS).map(|channel| format!("c{channel}_0")).collect();
    let mut sorted = first.clone();
    sorted.sort();
    assert_eq!(stage.pipes(), sorted, "all pipes are there before the ready file");
    let ready = std::fs::read_to_string(stage.ready()).expect("the ready file");
    let paths = first.iter().map(|name| stage.channel(name).display().to_string() + "\n");
    assert_eq!(ready, paths.collect::<String>());
    let start = |channel| Reader::start(&stage.channel(&format!("c{channel}")), &["all", "wait"]);
    let readers: Vec<Reader> = (0..CHANNELS).map(start).collect();
    for (channel, reader) in readers.into_iter().enumerate() {
        for epoch in reader.finish() {
            assert_read(&epoch, &folder_of(&all, channel));
        }
    }
    let run = stage.end(running, 0);
    for channel in 0..CHANNELS {
        run.check(epochs_of(&run, channel).len() == 2, "two epochs of each channel");
    }
}

#[test]
fn channels_that_nobody_opens_end_with_a_signal() {
    let mut all = twenty();
    // More than a pipe of 256 fragments of 32 KiB holds.
    all.insert("03/3".to_owned(), bytes_of("03/3", 60 * MIB));
    let origin = serve(&all);
    let stage = Stage::new();
    let running = start_twenty(&stage, &origin, "forever");
    for channel in [0, 7, 19] {
        let epochs = Reader::start(&stage.channel(&format!("c{channel}")), &["all"; 2]).finish();
        epochs.iter().for_each(|epoch| assert_read(epoch, &folder_of(&all, channel)));
    }
    // Somebody is in the middle of an epoch, and somebody waits for the one after it.
    let mut sleeper = Reader::start(&stage.channel("c3"), &["sleep:100000:2"]);
    sleeper.until("asleep");
    soon("the next pipe", || stage.channel("c3_1").exists());
    // It says so right before it opens the pipe, which blocks.
    let mut waiting = Command::new("timeout")
        .args(["30", "sh", "-c", "echo; exec <\"$0\"; exec cat"])
        .arg(stage.channel("c3_1"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a reader that blocks");
    let said = waiting.stdout.as_mut().expect("a pipe").read_exact(&mut [0]);
    said.expect("it is about to open the pipe");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let begun = std::time::Instant::now();
    running.signal(Signal::TERM);
    let run = stage.end(running, INTERRUPTED);
    let seconds = begun.elapsed().as_secs_f64();
    run.check(seconds < STOP_SECONDS, &format!("it took {seconds:.2} s to stop"));
    let output = waiting.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let epochs = sleeper.finish();
    assert!(epochs[0].bytes < folder_of(&all, 3).len() as u64, "{epochs:?}");
}

#[test]
fn an_object_list_that_is_short_and_a_reader_that_comes_late() {
    let all = objects(&[("a", 10)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let epochs = Reader::start(&stage.channel("train"), &["all", "wait"]).finish();
    epochs.iter().for_each(|epoch| assert_read(epoch, &stream(&all)));
    stage.end(running, 0);
}
