//! Pipe mode: what a reader got is what the stream begins with, and all of it where the run ended
//! well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::case::{Case, OBJECTS};
use crate::count::{Counted, Tally};
use crate::program::Run;
use crate::{counts, expect_named};

/// Longest time for a reader to see the end once the program has ended.
const READER_TIME: Duration = Duration::from_secs(10);

/// `pipe`, each epoch read to its end.
pub(crate) fn pipe(case: &Case) -> Tally {
    let origin = case.serve();
    let folder = tempfile::tempdir().expect("a folder");
    let name = |epoch: usize| folder.path().join(format!("train_{epoch}"));
    let epochs = case.epochs.to_string();
    let program = case.program(&origin, folder.path()).with(["--epochs", &epochs]);
    let mut running = program.with([folder.path().join("train")]).start();
    let mut readers = Vec::new();
    for epoch in 0..case.epochs {
        let path = name(epoch);
        if !running.until(|| path.exists()) {
            break;
        }
        let reader = read(path);
        // The next one opens its pipe when this one is done, as a training job does.
        let mut stream = None;
        running.until(|| {
            stream = stream.take().or_else(|| reader.try_recv().ok());
            stream.is_some()
        });
        readers.push((stream, reader));
    }
    let run = running.wait();
    let streams: Vec<Vec<u8>> = readers
        .into_iter()
        .map(|(stream, reader)| {
            let late = |_| panic!("{case}: a reader waits for nobody\n{run}");
            stream.unwrap_or_else(|| reader.recv_timeout(READER_TIME).unwrap_or_else(late))
        })
        .collect();
    for epoch in 0..=case.epochs {
        run.check(!name(epoch).exists(), &format!("{case}: pipe {epoch} is left"));
    }
    let stderr = run.stderr.clone();
    judge(case, &run, &streams, &run.stdout, &stderr, origin.stop())
}

/// `cat` to a pipe.
pub(crate) fn cat(case: &Case) -> Tally {
    let origin = case.serve();
    let folder = tempfile::tempdir().expect("a folder");
    let said = folder.path().join("stderr");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let stderr = Stdio::from(fs::File::create(&said).expect("a file"));
    let running = case.program(&origin, folder.path()).start_with(Stdio::from(writer), stderr);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut reader, mut stream) = (reader, Vec::new());
        std::io::Read::read_to_end(&mut reader, &mut stream).expect("a stream");
        // Nobody waits any more when the test has failed.
        let _ = sender.send(stream);
    });
    let run = running.wait();
    let stream = receiver.recv_timeout(READER_TIME).expect("the end of the stream");
    let stderr = fs::read_to_string(&said).expect("UTF-8");
    let summary = stderr.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    judge(case, &run, &[stream], summary, &stderr, origin.stop())
}

/// Reads a pipe to its end on a thread of its own, which hangs where nobody ever writes.
fn read(path: PathBuf) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(read_all(&path)));
    receiver
}

fn read_all(path: &Path) -> Vec<u8> {
    // Taken away between the look and the opening: its run has ended.
    fs::read(path).unwrap_or_default()
}

fn judge(
    case: &Case,
    run: &Run,
    streams: &[Vec<u8>],
    summary: &str,
    stderr: &str,
    stats: inrush_origin::Stats,
) -> Tally {
    let right: Vec<u8> =
        OBJECTS.iter().map(|(_, bytes)| bytes.as_ref()).collect::<Vec<_>>().concat();
    let failed = run.status.code() != Some(0);
    for (epoch, stream) in streams.iter().enumerate() {
        let length = stream.len();
        let same = right.len() >= length && right[..length] == stream[..];
        run.check(same, &format!("{case}: epoch {epoch} has a wrong byte in {length}"));
        let whole = length == right.len();
        run.check(failed || whole, &format!("{case}: epoch {epoch} ended early, {length} bytes"));
    }
    if failed {
        expect_named(run, stderr, case);
    } else {
        let expected = if case.mode == crate::Mode::Cat {
            stderr == format!("{summary}\n")
        } else {
            stderr.is_empty()
        };
        run.check(expected, &format!("{case}: nothing was to be said\n{stderr}"));
    }
    if failed && summary.is_empty() {
        return Tally::of(Counted { failed, ..Counted::default() }, stats);
    }
    let summary: serde_json::Value = serde_json::from_str(summary).expect("a summary");
    let handed: u64 = streams.iter().map(|stream| stream.len() as u64).sum();
    let reported = summary["bytes"].as_u64().expect("a count");
    run.check(
        failed || reported == handed,
        &format!("{case}: {reported} bytes reported, {handed} read"),
    );
    let retries = counts(&summary["channels"][0]["retries"]);
    let control = counts(&summary["control_retries"]);
    let [hedges, moves] =
        ["hedges", "moves"].map(|name| summary["channels"][0][name].as_u64().expect("a count"));
    let counted = Counted { retries, control, moves, failed, hedges };
    counted.check(&stats, case);
    Tally::of(counted, stats)
}
