//! Commands that have nothing to do: the real program makes no system call more than once a second,
//! over either ring.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and processes of its own"
)]

#[path = "../common/fuse.rs"]
#[expect(dead_code, reason = "the table of mounts belongs to other tests")]
mod fuse;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "what is checked of a folder belongs to other tests")]
mod matrix;
#[path = "../common/mounted.rs"]
#[expect(dead_code, reason = "notes belong to other tests")]
mod mounted;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "JSON belongs to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` belongs to other tests")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

mod trace;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use inrush::{Client, ClientOptions, Engine, EngineOptions, RingChoice};
use inrush_origin::Origin;
use tempfile::TempDir;

use matrix::{Objects, bytes_of};
use mounted::Mounted;
use program::{Program, Running};
use served::{ACCESS_KEY, SECRET, serve};
use trace::{Trace, assert_idle, can_trace};

const RINGS: [&str; 2] = ["io_uring", "epoll"];

/// A traced run, and what it needs until its end.
struct Stage {
    folder: TempDir,
    trace: Option<Trace>,
    ring: &'static str,
}

impl Stage {
    fn new(ring: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = Trace::of(&folder).named(ring);
        Self { folder, trace: Some(trace), ring }
    }

    fn trace(&mut self) -> Trace {
        self.trace.take().expect("once")
    }

    fn traced(&self, origin: &Origin, program: Program) -> Program {
        let words = self.trace.as_ref().expect("not yet taken").words();
        let program = program.asking(origin).with_keys(ACCESS_KEY, SECRET);
        program.set("INRUSH_RING", self.ring).set("PATH", path()).by_way_of(words)
    }

    /// Serves all epochs of a channel, whose pipes are `train_0` and so on.
    #[track_caller]
    fn pipe(&self, origin: &Origin, words: &[&str]) -> Running {
        let [channel, ready] = ["train", "ready"].map(|name| self.folder.path().join(name));
        let program = Program::new(["pipe", "s3://lab/"]).with([channel]).with(words);
        let program = program.with(["--epochs", "forever", "--ready-file"]).with([ready.clone()]);
        let mut running = self.traced(origin, program).start();
        if !running.until(|| ready.exists()) {
            panic!("{}", running.wait());
        }
        running
    }

    fn reader(&self) -> File {
        File::open(self.folder.path().join("train_0")).expect("a pipe")
    }
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into())
}

/// Starts runs over either ring, and fails unless both come to rest.
fn on_either_ring<T>(start: impl Fn(&mut Stage) -> T) {
    if !can_trace() {
        return;
    }
    let runs = RINGS.map(|ring| {
        let mut stage = Stage::new(ring);
        let run = start(&mut stage);
        (stage.trace(), run, stage)
    });
    let (mut traces, mut kept) = (Vec::new(), Vec::new());
    for (trace, run, stage) in runs {
        traces.push(trace);
        kept.push((run, stage));
    }
    assert_idle(traces);
}

/// More objects than a feed takes at once, so its supplier waits for room.
fn many() -> Objects {
    (0..5000).map(|number| (format!("{number:04}"), bytes_of("a", 4 << 10))).collect()
}

/// More bytes than all pipes have room for.
fn large() -> Objects {
    (0..6).map(|number| (format!("d/{number}"), bytes_of("a", 24 << 20))).collect()
}

#[test]
fn a_pipe_without_a_reader() {
    let origin = serve(&many());
    on_either_ring(|stage| stage.pipe(&origin, &[]));
}

#[test]
fn a_pipe_between_two_epochs() {
    let origin = serve(&[("a".to_owned(), bytes_of("a", 3 << 20))].into_iter().collect());
    on_either_ring(|stage| {
        let running = stage.pipe(&origin, &[]);
        let count = std::io::copy(&mut stage.reader(), &mut std::io::sink()).expect("an epoch");
        assert_eq!(count, 3 << 20);
        running
    });
}

#[test]
fn a_pipe_whose_reader_does_not_read() {
    let origin = serve(&large());
    on_either_ring(|stage| {
        let running = stage.pipe(&origin, &[]);
        let mut reader = stage.reader();
        reader.read_exact(&mut [0; 4 << 10]).expect("the first bytes");
        (running, reader)
    });
}

#[test]
fn cat_whose_output_is_not_read() {
    let origin = serve(&large());
    on_either_ring(|stage| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let program = stage.traced(&origin, Program::new(["cat", "s3://lab/d/"]));
        let running = program.start_with(writer.into(), Stdio::null());
        let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
        reader.read_exact(&mut [0; 4 << 10]).expect("the first bytes");
        (running, reader)
    });
}

#[test]
fn a_mount_without_access() {
    if !fuse::can_mount() {
        return;
    }
    let origin = serve(&large());
    on_either_ring(|stage| {
        let words = stage.trace.as_ref().expect("not yet taken").words();
        // It waits for its time, and for signals.
        let program =
            mounted::program(&origin, &["--refresh", "1h"]).set("INRUSH_RING", stage.ring);
        let mounted = Mounted::of(&origin, program.set("PATH", path()).by_way_of(words));
        let bytes = std::fs::read(mounted.at("3")).expect("a file");
        assert_eq!(bytes.len(), 24 << 20);
        mounted
    });
}

#[test]
fn a_training_job_whose_command_sleeps() {
    let origin = serve(&large());
    on_either_ring(|stage| {
        let base = stage.folder.path().join("ml");
        let program = Program::new(["train", "--base-dir"]).with([&base]);
        let program = stage.traced(&origin, program.with(["--channel", "train=s3://lab/d/"]));
        let begun = stage.folder.path().join("begun");
        let script = format!("touch {}; exec sleep 600", begun.display());
        let mut running = program.with(["--", "sh", "-c"]).with([script]).start();
        if !running.until(|| begun.exists()) {
            panic!("{}", running.wait());
        }
        running
    });
}

/// A process with an engine, which ends with the test.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Names the server to the process of [`an_engine_that_nobody_asks`].
const SERVER: &str = "INRUSH_TEST_SERVER";

#[test]
fn an_engine_that_nobody_asks() {
    let origin = serve(&large());
    on_either_ring(|stage| {
        let words = stage.trace.as_ref().expect("not yet taken").words();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "holds_an_engine", "--nocapture"])
            .env(SERVER, origin.url())
            .env("INRUSH_RING", stage.ring)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let holder = Holder(child);
        let is_ready = output.lines().any(|line| line.is_ok_and(|line| line.contains("ready")));
        assert!(is_ready, "it ended");
        holder
    });
}

/// Not a test of its own: what a program does that keeps an engine and asks for nothing.
#[test]
#[ignore = "an_engine_that_nobody_asks starts it"]
fn holds_an_engine() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let options = ClientOptions::new().endpoint_url(url).region("us-east-1");
    let client = Client::connect(options.keys(ACCESS_KEY, SECRET)).expect("a client");
    let ring = match std::env::var("INRUSH_RING").as_deref() {
        Ok("epoll") => RingChoice::Epoll,
        _ => RingChoice::IoUring,
    };
    let options = EngineOptions::new().workers(2).ring(ring);
    let engine = Engine::start(&client, options).expect("an engine");
    println!("ready");
    std::thread::sleep(std::time::Duration::from_secs(600));
    drop(engine);
}
