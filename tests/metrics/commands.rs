//! What the other commands export, scraped while they run: streams and a mount wait for their
//! readers, so each is looked at before its first byte, half way and at its end.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use inrush::report::exposition::{INFO, METRICS, MetricKind};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::fuse::{can_mount, unmount_lazily};
use super::matrix::{Objects, bytes_of};
use super::program::{Program, Running};
use super::served::{ACCESS_KEY, SECRET, config, serve, start};
use super::text::Scrape;
use super::{MIB, address, objects, scraped};

const RECEIVED: &str = "inrush_received_bytes_total";

/// A command that exports, and what was scraped of it last.
struct Watched {
    running: Running,
    at: SocketAddr,
    last: Scrape,
    command: &'static str,
    folder: TempDir,
}

impl Watched {
    /// Starts it, and scrapes it once.
    fn new(program: Program, command: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [log, out, metrics] = ["log", "out", "m.prom"].map(|name| folder.path().join(name));
        let program = program.with(["--metrics-listen", "127.0.0.1:0", "--metrics-file"]);
        let program = program.with([metrics.as_os_str()]).with_keys(ACCESS_KEY, SECRET);
        let file = |path: &Path| fs::File::create(path).expect("a file").into();
        let mut running = program.start_with(file(&out), file(&log));
        let at = address(&mut running, &log);
        let last = scraped(at).expect("it serves from its start on");
        let watched = Self { running, at, last, command, folder };
        watched.check(&watched.last);
        watched
    }

    fn check(&self, scrape: &Scrape) {
        assert_eq!(scrape.labels[INFO]["command"], self.command);
        for metric in METRICS {
            let (value, before) = (scrape.value(metric.name), self.last.value(metric.name));
            let may_fall = metric.kind != MetricKind::Counter;
            assert!(may_fall || value >= before, "{}: {} went back", self.command, metric.name);
        }
    }

    /// Scrapes it once more; false when it has ended meanwhile.
    fn look(&mut self) -> bool {
        let Some(now) = scraped(self.at) else { return false };
        self.check(&now);
        self.last = now;
        true
    }

    fn received(&self) -> f64 {
        self.last.value(RECEIVED)
    }

    /// Its last file, and its document. The file is no earlier than any scrape, and nothing is
    /// under way in it.
    fn end(self, code: i32) -> (Scrape, Value) {
        let Self { running, last, folder, command, .. } = self;
        let run = running.wait();
        let said = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a file");
        assert_eq!(run.status.code(), Some(code), "{command}: {}{run}", said("log"));
        let end = Scrape::read(&said("m.prom"));
        assert_eq!(end.labels[INFO]["command"], command);
        for metric in METRICS.iter().filter(|metric| metric.kind == MetricKind::Counter) {
            assert!(end.value(metric.name) >= last.value(metric.name), "{}", metric.name);
        }
        for name in
            ["inrush_requests_in_flight", "inrush_wanted_requests", "inrush_waiting_connections"]
        {
            assert_eq!(end.value(name), 0.0, "{command}: {name} at the end");
        }
        (end, serde_json::from_str(&said("out")).unwrap_or_default())
    }
}

fn size(objects: &Objects) -> usize {
    objects.values().map(Vec::len).sum()
}

/// Reads the pipe of an epoch; looks before it, when half of it has come, and when it has not been
/// closed yet.
fn read_watched(watched: &mut Watched, path: &Path, length: usize) {
    assert!(watched.running.until(|| path.exists()), "there is a pipe");
    assert!(watched.look(), "it waits for its reader");
    let mut pipe = fs::File::open(path).expect("a pipe");
    let mut half = vec![0; length / 2];
    pipe.read_exact(&mut half).expect("bytes");
    // Counters are shown once a worker has done what it has to do.
    let is_shown = (0..1000).any(|_| {
        assert!(watched.look(), "it waits for its reader");
        watched.received() >= half.len() as f64
    });
    assert!(is_shown, "what was read was received");
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).expect("bytes");
    assert_eq!(half.len() + rest.len(), length);
}

fn epoch_path(folder: &Path, channel: &str) -> PathBuf {
    folder.join(format!("{channel}_0"))
}

#[test]
fn a_stream_counts_the_bytes_of_its_document() {
    let all = objects();
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let channel = folder.path().join("train");
    let program = Program::new(["pipe", "--json", "--epochs", "1", "s3://lab/a/"]);
    let mut watched = Watched::new(program.with([channel]).asking(&origin), "pipe");
    read_watched(&mut watched, &epoch_path(folder.path(), "train"), size(&all));
    let (end, summary) = watched.end(0);
    assert_eq!(Some(end.value(RECEIVED)), summary["bytes"].as_f64(), "{summary}");
    assert_eq!(summary["bytes"], size(&all), "{summary}");
    let requests = summary["channels"][0]["requests"].as_f64().expect("a number");
    assert_eq!(end.value("inrush_answers_total"), requests, "no attempt failed");
    assert_eq!(end.value("inrush_objects_total"), 0.0, "streams count bytes");
}

#[test]
fn sync_counts_as_get_does() {
    let all = objects();
    let origin = start(inrush_origin::Config {
        capacity: std::num::NonZeroU64::new(16 << 20),
        ..config(&all)
    });
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("0"), &all["a/0"]).expect("a file");
    let program = Program::new(["sync", "--json", "--delete", "s3://lab/a/"]);
    let mut watched = Watched::new(program.with([folder.path()]).asking(&origin), "sync");
    while watched.look() {}
    let (end, summary) = watched.end(0);
    assert_eq!(Some(end.value(RECEIVED)), summary["bytes"].as_f64(), "{summary}");
    for (name, field) in [
        ("inrush_objects_total", "objects"),
        ("inrush_kept_objects_total", "kept_objects"),
        ("inrush_failed_objects_total", "failed_objects"),
    ] {
        assert_eq!(Some(end.value(name)), summary[field].as_f64(), "{name} and {field}: {summary}");
    }
    assert_eq!(end.value("inrush_objects_total"), all.len() as f64, "the file is of no object");
    assert_eq!(end.value("inrush_known_bytes"), size(&all) as f64);
}

#[test]
fn files_and_streams_of_a_job_are_one_sum() {
    let mut all = objects();
    all.insert("b/1".to_owned(), bytes_of("stream", 5 * MIB));
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path().join("ml");
    let words = ["--channel", "a=s3://lab/a/", "--channel", "b=s3://lab/b/,mode=Pipe"];
    let program = Program::new(["train", "--json", "--epochs", "1", "--base-dir"]);
    let program = program.with([base.as_os_str()]).with(words).asking(&origin);
    let mut watched = Watched::new(program, "train");
    read_watched(&mut watched, &epoch_path(&base.join("input/data"), "b"), 5 * MIB);
    let (end, summary) = watched.end(0);
    let number = |value: &Value| value.as_f64().expect("a number");
    let files = number(&summary["downloads"][0]["bytes"]);
    let stream = number(&summary["pipes"][0]["epochs"][0]["bytes"]);
    assert_eq!(files + stream, size(&all) as f64, "{summary}");
    assert_eq!(end.value(RECEIVED), files + stream, "{summary}");
    let objects = number(&summary["downloads"][0]["objects"]);
    assert_eq!(end.value("inrush_objects_total"), objects, "{summary}");
}

/// Only against a test that hangs: a look takes about a millisecond.
const LOOKS_MAX: u32 = 10_000;

#[test]
fn a_mount_counts_what_is_read_of_it() {
    if !can_mount() {
        return;
    }
    let all = objects();
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let point = folder.path().join("mount");
    fs::create_dir(&point).expect("a folder");
    let ready = folder.path().join("ready");
    let program = Program::new(["mount", "s3://lab/a/"]).with([point.as_os_str()]);
    let program =
        program.with(["--foreground", "--json", "--ready-file"]).with([ready.as_os_str()]);
    let mut watched = Watched::new(program.asking(&origin), "mount");
    assert!(watched.running.until(|| ready.exists()), "it is mounted");
    assert!(watched.look(), "it serves");
    assert_eq!(watched.received(), 0.0, "nothing was read yet");
    let mut received = 0.0;
    for name in ["3", "7"] {
        let read = fs::read(point.join(name)).expect("a file");
        assert!(read == all[&format!("a/{name}")], "the bytes of {name}");
        // A worker counts what it has received at the end of its turn: the reader may be sooner.
        let wanted = received + read.len() as f64;
        let counted = (0..LOOKS_MAX).any(|_| {
            assert!(watched.look(), "it serves");
            watched.received() >= wanted
        });
        assert!(counted, "{} of {wanted} bytes", watched.received());
        received = watched.received();
    }
    assert!(watched.look(), "it serves");
    assert_eq!(watched.last.value("inrush_opened_files_total"), 2.0, "while it is mounted, too");
    watched.running.signal(Signal::TERM);
    let (end, summary) = watched.end(130);
    unmount_lazily(&point);
    assert!(end.value(RECEIVED) >= received);
    for (name, field) in [
        ("inrush_opened_files_total", "opens"),
        ("inrush_reads_total", "reads"),
        ("inrush_failed_reads_total", "failed_reads"),
        ("inrush_read_bytes_total", "served_bytes"),
    ] {
        assert_eq!(Some(end.value(name)), summary[field].as_f64(), "{name} and {field}: {summary}");
    }
    let read = all["a/3"].len() + all["a/7"].len();
    assert!(end.value("inrush_read_bytes_total") >= read as f64, "{summary}");
}
