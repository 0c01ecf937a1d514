//! Runs this program as a child process, `get` or `pipe`, and parses its document.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inrush_origin::Origin;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::super::session::Interrupts;
use super::interrupted;
use crate::cli::ServiceArgs;
use crate::error::{Error, ErrorKind, Result};
use crate::report::bench::Measured;
use crate::sys::{orphans, process};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Pause between two checks for the pipe.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// The location of objects, and the options and variables for downloading them.
#[derive(Debug, Clone)]
pub(super) struct Source {
    uri: String,
    words: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Source {
    /// Generated objects.
    pub(super) fn own(
        origin: &Origin,
        uri: &str,
        (key, secret, region): (&str, &str, &str),
    ) -> Self {
        let words = ["--endpoint-url", &origin.url(), "--region", region].map(str::to_owned);
        let words = words.into_iter().chain(["--addressing-style", "path"].map(str::to_owned));
        let variables = vec![
            ("AWS_ACCESS_KEY_ID", key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_SESSION_TOKEN", String::new()),
            ("AWS_SECURITY_TOKEN", String::new()),
            ("AWS_CREDENTIAL_EXPIRATION", String::new()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            // The user's profile does not apply to this server.
            ("AWS_CONFIG_FILE", "/dev/null".to_owned()),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null".to_owned()),
            ("AWS_PROFILE", String::new()),
            ("AWS_DEFAULT_PROFILE", String::new()),
            ("NO_PROXY", "*".to_owned()),
        ];
        Self { uri: uri.to_owned(), words: words.collect(), variables }
    }

    /// The user's objects.
    pub(super) fn of_user(uri: &str, service: &ServiceArgs) -> Self {
        let words = service.to_words();
        Self { uri: uri.to_owned(), words, variables: Vec::new() }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct RunResult {
    pub(super) measured: Option<Measured>,
    pub(super) limit: Option<Value>,
    pub(super) latencies: Option<Value>,
    pub(super) course: Option<Value>,
    pub(super) pace: Option<Value>,
}

impl RunResult {
    /// True if it was measured.
    pub(super) fn is_there(&self) -> bool {
        self.measured.is_some()
    }

    fn of(mut document: Value) -> Self {
        let number = |name: &str| document[name].as_f64().unwrap_or(0.0);
        let bytes = document["bytes"].as_u64().unwrap_or(0);
        let measured = Measured::new(bytes, number("seconds"), number("cpu_seconds"));
        let mut take = |name: &str| Some(document[name].take()).filter(|value| !value.is_null());
        let [limit, latencies, course, pace] =
            ["limit", "latencies", "course", "pace"].map(&mut take);
        Self { measured: Some(measured), limit, latencies, course, pace }
    }
}

/// A process to start.
#[derive(Debug)]
pub(super) struct Child {
    command: Command,
}

impl Child {
    /// A command of this program with a source.
    pub(super) fn new(name: &str, source: &Source) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.args([name, "--quiet", &source.uri]).args(&source.words);
        // A mount has no document.
        command.args((name != "mount").then_some("--json"));
        command.envs(source.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command }
    }

    /// The command, for callers that read its output themselves.
    pub(super) fn into_command(self) -> Command {
        self.command
    }

    /// Adds arguments.
    pub(super) fn with(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.command.args(words);
        self
    }

    /// Runs it to its end.
    pub(super) async fn run(mut self, signals: &mut Interrupts) -> Result<RunResult> {
        // If the bench died, nothing would remove its files.
        process::supervise(&mut self.command, false);
        let _awaited = orphans::awaits_child();
        let child = self.command.spawn().map_err(not_started)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // A process that has ended needs no signal.
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut ended = tokio::task::spawn_blocking(move || child.wait_with_output());
        let mut is_interrupted = false;
        let output = loop {
            tokio::select! {
                biased;
                output = &mut ended => break output.expect("it does not panic"),
                () = signals.next() => {
                    is_interrupted = true;
                    if let Some(handle) = &handle {
                        let _ = pidfd_send_signal(handle, Signal::INT);
                    }
                }
            }
        };
        let output = output.map_err(not_started)?;
        if is_interrupted {
            return Err(interrupted());
        }
        read(&output)
    }

    /// Runs a `pipe`, whose first epoch is read as fast as it comes.
    pub(super) async fn run_with_reader(
        self,
        channel: &Path,
        signals: &mut Interrupts,
    ) -> Result<RunResult> {
        let pipe = PathBuf::from(format!("{}_0", channel.display()));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reader = tokio::task::spawn_blocking(move || read_pipe(&pipe, &stopped));
        let result = self.run(signals).await;
        stop.store(true, Ordering::Relaxed);
        let read = reader.await.expect("the reader does not panic");
        let result = result?;
        read.map_err(|errno| {
            Error::new(ErrorKind::Host, format!("cannot read the pipe: {errno}"))
        })?;
        Ok(result)
    }
}

/// The error of a process that could not be started.
pub(super) fn not_started(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Host, format!("cannot start a run: {error}"))
        .advise("raise the limit of processes (ulimit -u)")
        .caused_by(error)
}

/// Parses the output of a process.
fn read(output: &Output) -> Result<RunResult> {
    if !output.status.success() {
        return Err(failed(output));
    }
    serde_json::from_slice(&output.stdout).map(RunResult::of).map_err(|_| failed(output))
}

/// The error of a failed process.
pub(super) fn failed(output: &Output) -> Error {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    let kind = ErrorKind::ALL.into_iter().find(|kind| code == Some(i32::from(kind.exit_code())));
    let line = stderr.lines().next().unwrap_or("it said nothing");
    let line = line.trim_start_matches("error: ").to_owned();
    Error::new(kind.unwrap_or(ErrorKind::Host), format!("a run failed: {line}"))
        .advise("run it alone, as inrush get, with -v")
}

/// Opens the pipe once it exists, and reads to its end; ends early when stopped.
fn read_pipe(path: &Path, stopped: &AtomicBool) -> rustix::io::Result<()> {
    let is_stopped = || stopped.load(Ordering::Relaxed);
    // A process that has ended has removed its pipes.
    let pipe: OwnedFd = loop {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(pipe) => break pipe,
            Err(rustix::io::Errno::NOENT) if !is_stopped() => std::thread::sleep(LOOK_PAUSE),
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut polled = [PollFd::new(&pipe, PollFlags::IN)];
        let ready = rustix::event::poll(&mut polled, Some(&timeout))?;
        if ready == 0 && is_stopped() {
            return Ok(());
        }
        if ready == 0 {
            continue;
        }
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
