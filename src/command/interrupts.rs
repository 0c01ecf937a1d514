//! Signals and the deadline: a run ends by them, and where it cannot, the process does.
//!
//! A call to the kernel may never come back: a write to a frozen file system, a line for a reader
//! that does not read. Whoever waits for it cannot listen, so a thread of its own does: some
//! seconds after a signal or the deadline, or at a second signal, it says what is left and exits.
//! No worker is joined then: the kernel may still own its memory.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::process::Signal as KernelSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::child;
use super::ending::Reader;
use super::sources::STDIN;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{ENDING_GRACE, LAST_WORDS_TIME};
use crate::link::waiting::{Board, Ticket};
use crate::report::document::failure_json;
use crate::report::progress::Progress;
use crate::s3::uri::shown;

/// Ctrl-C, SIGTERM and SIGHUP.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where it is ignored, as under nohup(1).
    hangup: Option<Signal>,
}

/// Whether SIGHUP means nothing to this process (SigIgn of proc_pid_status(5)). Where that cannot
/// be read it is left as it is.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = 1u64 << (KernelSignal::HUP.as_raw() - 1);
    ignored.is_none_or(|mask| mask & bit != 0)
}

impl Signals {
    /// Listens; it must run inside a runtime.
    fn listen() -> Result<Self> {
        let listen = |kind| {
            let trouble = |error| format!("cannot listen for signals: {error}");
            signal(kind).map_err(|error| Error::new(ErrorKind::Host, trouble(error)))
        };
        // It would end the process where a file grows beyond its limit (setrlimit(2)); once anyone
        // has listened the write fails instead, and is an error of its file.
        drop(listen(SignalKind::from_raw(KernelSignal::XFSZ.as_raw()))?);
        let interrupt = listen(SignalKind::interrupt())?;
        let listened = (!is_hangup_ignored()).then(|| listen(SignalKind::hangup()));
        let hangup = listened.transpose()?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())?, hangup })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = next_of(self.hangup.as_mut()) => {}
        }
    }
}

/// Waits for this signal; without one for ever.
async fn next_of(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Ctrl-C, SIGTERM and SIGHUP, listened to from here on: until then they end the process at once.
/// SIGXFSZ means nothing from here on.
#[derive(Debug)]
pub(super) struct Interrupts {
    signals: Signals,
    deadline: Option<Instant>,
    /// What ends a run as a signal does.
    halt: Arc<Notify>,
    is_halted: bool,
}

impl Interrupts {
    /// Listens; it must run inside the runtime.
    pub(super) fn listen() -> Result<Self> {
        Self::listen_until(None)
    }

    /// The same, for a run that has a deadline.
    pub(super) fn listen_until(deadline: Option<Instant>) -> Result<Self> {
        let signals = Signals::listen()?;
        guard(deadline)?;
        Ok(Self { signals, deadline, halt: Arc::default(), is_halted: false })
    }

    /// To be notified where the run is to end as by a signal.
    pub(super) fn halt(&self) -> Arc<Notify> {
        Arc::clone(&self.halt)
    }

    /// Whether it was no signal that ended the run: then nobody is to be told.
    pub(super) const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// When the run is to end.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits for a signal; may be dropped and asked again.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = self.signals.next() => {}
            () = self.halt.notified() => self.is_halted = true,
        }
    }

    /// Does this before anything is fetched, unless it is interrupted or the deadline passes.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.unless_told("before anything was downloaded", work).await
    }

    /// Does this unless it is interrupted or the deadline passes, which is told with these words.
    pub(super) async fn unless_told<T>(
        &mut self,
        when: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = self.deadline;
        tokio::select! {
            biased;
            // Asked before the work is dropped, which waits.
            blame = async { self.next().await; blame() } => {
                Err(Error::new(ErrorKind::Interrupted, format!("interrupted {when}{blame}")))
            }
            blame = async { until(deadline).await; blame() } => {
                let error = Error::new(
                    ErrorKind::Deadline,
                    format!("the deadline has passed {when}{blame}"),
                );
                Err(error.advise("run it again with a longer --deadline"))
            }
            done = work => done,
        }
    }
}

/// Waits for this moment; without one for ever.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

static BOARD: Mutex<Option<Arc<Board>>> = Mutex::new(None);

/// From now on a deadline that passes tells what was waited for by this board.
pub(super) fn waits_for(board: Arc<Board>) {
    // Of several control planes the newest counts: the one before was not made.
    *BOARD.lock().unwrap_or_else(PoisonError::into_inner) = Some(board);
}

/// Notes a file that is read from now on, until the ticket is dropped.
pub(super) fn reads(path: &Path) -> Ticket {
    let mut board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
    let name =
        if path.as_os_str() == STDIN { "standard input".into() } else { path.to_string_lossy() };
    board.get_or_insert_default().begin_file(shown(&name).to_string())
}

/// What is waited for in vain, to be said behind a message.
pub(super) fn blame() -> String {
    let board = BOARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let wait = board.and_then(|board| board.oldest());
    wait.map(|wait| format!(": {}", wait.blame())).unwrap_or_default()
}

/// Says what a process leaves that ends without its run.
type Left = Box<dyn Fn() -> String + Send>;

static LEFT: Mutex<Option<Left>> = Mutex::new(None);

/// From now on this says what is stuck and what is left, should the process have to end without its
/// run. It must not wait for anything.
pub(super) fn leaves(tell: impl Fn() -> String + Send + 'static) {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
}

static READER: OnceLock<Reader> = OnceLock::new();

/// From now on a process that ends without its run tells this reader so, too.
pub(super) fn tells(reader: Reader) {
    // There is one command in a process.
    let _ = READER.set(reader);
}

/// Why the process ends without its run.
#[derive(Debug, Clone, Copy)]
enum Forced {
    Signal,
    SecondSignal,
    Deadline,
}

impl Forced {
    fn tell(self) -> Error {
        let (kind, why) = match self {
            Self::Signal => (ErrorKind::Interrupted, "interrupted"),
            Self::SecondSignal => (ErrorKind::Interrupted, "interrupted again, ended at once"),
            Self::Deadline => (ErrorKind::Deadline, "the deadline has passed"),
        };
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left
            .as_ref()
            .map_or_else(|| "a system call has not returned".to_owned(), |tell| tell());
        Error::new(kind, format!("{why}: {left}"))
    }

    /// Ends the process.
    fn exit(self) -> ! {
        let kind = match self {
            Self::Signal | Self::SecondSignal => ErrorKind::Interrupted,
            Self::Deadline => ErrorKind::Deadline,
        };
        child::end_by_force();
        // Standard error may be what does not come back.
        let (said, saying) = sync_channel(1);
        let say = move || {
            let error = self.tell();
            Progress::new(false).error(&error);
            let reader = READER.get().copied().unwrap_or(Reader::Nobody);
            // As little as for the line before there is anybody to tell.
            let _ = reader.print(&failure_json(&error));
        };
        let thread = std::thread::Builder::new();
        let aside = thread.spawn(move || {
            say();
            let _ = said.send(());
        });
        match aside {
            Ok(_) => drop(saying.recv_timeout(LAST_WORDS_TIME)),
            // The system has no thread left.
            Err(_) => say(),
        }
        std::process::exit(i32::from(kind.exit_code()))
    }
}

/// Starts the thread that ends the process where its run does not; one for the process.
fn guard(deadline: Option<Instant>) -> Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let (ready, readiness) = sync_channel(1);
    let thread = std::thread::Builder::new().name("inrush-signals".to_owned());
    thread.spawn(move || watch(deadline, &ready)).map_err(Error::no_thread)?;
    let lost = || Err(Error::new(ErrorKind::Host, "the thread that listens for signals ended"));
    readiness.recv().unwrap_or_else(|_| lost())
}

/// Waits for what ends the process; a run that ends by itself ends this thread with it.
fn watch(deadline: Option<Instant>, ready: &SyncSender<Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot listen for signals: {error}");
            let error = Error::new(ErrorKind::Host, message);
            let _ = ready.send(Err(error.advise("raise the limit of open files (ulimit -n)")));
            return;
        }
    };
    runtime.block_on(async {
        let mut signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        let forced = tokio::select! {
            () = signals.next() => after_signal(&mut signals).await,
            forced = async { until(deadline).await; after_deadline().await } => forced,
        };
        forced.exit()
    });
}

/// How the process ends whose deadline has passed, where its run does not. A command that runs has
/// its grace first.
async fn after_deadline() -> Forced {
    tokio::time::sleep(ENDING_GRACE + child::grace().unwrap_or_default()).await;
    Forced::Deadline
}

/// How the process ends that was sent a signal, where its run does not. While a command runs
/// signals are for it: it has its grace, and its run decides what a second one means.
async fn after_signal(signals: &mut Signals) -> Forced {
    let mut end = tokio::time::Instant::now() + ENDING_GRACE;
    let mut has_grace = false;
    loop {
        if let Some(grace) = child::grace().filter(|_| !has_grace) {
            end += grace;
            has_grace = true;
        }
        tokio::select! {
            () = signals.next() => {
                match child::grace() {
                    Some(_) => {}
                    None if !child::has_started() => return Forced::SecondSignal,
                    // It may be what has just killed the command: the run ends by itself now.
                    None => end = end.min(tokio::time::Instant::now() + ENDING_GRACE),
                }
            }
            () = tokio::time::sleep_until(end) => {
                // One may have started since.
                if has_grace || child::grace().is_none() {
                    return Forced::Signal;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What a run that waits for ever comes to, so long before its deadline.
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test is from now on")]
    fn waits(left: Option<Duration>, work: impl Future<Output = Result<u32>>) -> Result<u32> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let deadline = left.map(|left| Instant::now() + left);
            // Not by `listen`: the guard would end the process of the tests.
            let signals = Signals::listen()?;
            let mut interrupts =
                Interrupts { signals, deadline, halt: Arc::default(), is_halted: false };
            interrupts.unless_told("behind the last object", work).await
        })
    }

    #[test]
    fn the_deadline_ends_what_waits_and_says_where() {
        let error = waits(Some(Duration::ZERO), std::future::pending()).expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::Deadline);
        let text = error.to_string();
        assert!(text.contains("the deadline has passed behind the last object"), "{text}");
        assert_eq!(waits(None, async { Ok(7) }).ok(), Some(7));
        assert_eq!(waits(Some(Duration::from_secs(600)), async { Ok(7) }).ok(), Some(7));
    }
}
