//! Signals and the deadline: they end a run, or the process if the run cannot end.
//!
//! A system call may block forever: a write to a frozen file system, a line for a reader that does
//! not read. A blocked thread cannot react to signals, so a separate thread does: some seconds
//! after a signal or the deadline, or at a second signal, it prints the state and exits. Workers
//! are not joined then: the kernel may still use their memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::Signal as KernelSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::context::Context;
use super::train::child::RunningCommand;
use crate::download::cancel::{self, Cancel, until};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{ENDING_GRACE, LAST_WORDS_TIME};
use crate::report::document::failure_json;
use crate::report::stderr;
use crate::sys::orphans;

/// Longest time between two looks for orphans that have ended.
const REAP_PAUSE: Duration = Duration::from_secs(1);

/// Ctrl-C, SIGTERM and SIGHUP.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if it is ignored, as under nohup(1), or has another meaning.
    hangup: Option<Signal>,
}

/// True if this process ignores SIGHUP (SigIgn of proc_pid_status(5)). If that cannot be read the
/// disposition is left unchanged.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = 1u64 << (KernelSignal::HUP.as_raw() - 1);
    ignored.is_none_or(|mask| mask & bit != 0)
}

impl Signals {
    /// Starts listening; must run inside a runtime.
    fn listen(hangup: Hangup) -> Result<Self> {
        // By default it would end the process when a file exceeds its limit (setrlimit(2)); with a
        // handler the write fails instead, as an error of its file.
        drop(listen(SignalKind::from_raw(KernelSignal::XFSZ.as_raw()))?);
        let interrupt = listen(SignalKind::interrupt())?;
        let ends = hangup == Hangup::Ends && !is_hangup_ignored();
        let listened = ends.then(|| listen(SignalKind::hangup()));
        let hangup = listened.transpose()?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())?, hangup })
    }

    async fn next(&mut self) -> KernelSignal {
        tokio::select! {
            _ = self.interrupt.recv() => KernelSignal::INT,
            _ = self.terminate.recv() => KernelSignal::TERM,
            () = next_of(self.hangup.as_mut()) => KernelSignal::HUP,
        }
    }
}

/// What SIGHUP does to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hangup {
    Ends,
    Refreshes,
}

fn listen(kind: SignalKind) -> Result<Signal> {
    let trouble = |error| format!("cannot listen for signals: {error}");
    signal(kind).map_err(|error| Error::new(ErrorKind::Host, trouble(error)))
}

/// SIGHUPs of a run that they do not end.
#[derive(Debug)]
pub(super) struct Hangups(Signal);

impl Hangups {
    /// Waits for the next one. Cancel safe.
    pub(super) async fn next(&mut self) {
        next_of(Some(&mut self.0)).await;
    }
}

/// Waits for this signal; without one forever.
async fn next_of(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// A signal of the same kind counts as a second one only this long after the first: timeout(1)
/// sends SIGTERM to its child and at once to its group, which the child is in, too.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// The first signal that asked for the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstSignal {
    pub(super) by: KernelSignal,
    pub(super) at: tokio::time::Instant,
}

impl FirstSignal {
    /// True if this signal counts as a second one.
    pub(super) fn is_again(self, next: KernelSignal, now: tokio::time::Instant) -> bool {
        next != self.by || now >= self.at + AGAIN_AFTER
    }
}

/// Listens for Ctrl-C, SIGTERM and SIGHUP from here on: until then they end the process at once.
/// SIGXFSZ is ignored from here on.
pub(super) struct Interrupts {
    signals: Signals,
    deadline: Option<Instant>,
    /// Ends a run like a signal.
    halt: Arc<Notify>,
    is_halted: bool,
    context: Arc<Context>,
}

impl Interrupts {
    /// Starts listening; must run inside the runtime.
    pub(super) fn listen(context: &Arc<Context>) -> Result<Self> {
        Self::listen_until(None, context)
    }

    /// Starts listening, for a run with a deadline.
    pub(super) fn listen_until(deadline: Option<Instant>, context: &Arc<Context>) -> Result<Self> {
        Self::listen_for(Hangup::Ends, deadline, context)
    }

    /// Starts listening, for a run that SIGHUP does not end, even where it was ignored.
    pub(super) fn listen_except_hangup(context: &Arc<Context>) -> Result<(Self, Hangups)> {
        let hangups = Hangups(listen(SignalKind::hangup())?);
        Ok((Self::listen_for(Hangup::Refreshes, None, context)?, hangups))
    }

    fn listen_for(
        hangup: Hangup,
        deadline: Option<Instant>,
        context: &Arc<Context>,
    ) -> Result<Self> {
        let signals = Signals::listen(hangup)?;
        guard(hangup, deadline, context)?;
        let (halt, context) = (Arc::default(), Arc::clone(context));
        Ok(Self { signals, deadline, halt, is_halted: false, context })
    }

    /// The context of the command that they end.
    pub(super) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.context)
    }

    /// To be notified to end the run like a signal.
    pub(super) fn halt(&self) -> Arc<Notify> {
        Arc::clone(&self.halt)
    }

    /// True if the run was not ended by a signal: then nothing is printed.
    pub(super) const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// The deadline.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits for a signal. Cancel safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.signals.next() => {}
            () = self.halt.notified() => self.is_halted = true,
        }
    }
}

impl Cancel for Interrupts {
    async fn cancelled(&mut self) {
        self.next().await;
    }

    async fn unless_reported<T>(
        &mut self,
        when: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (deadline, context) = (self.deadline, self.context());
        cancel::unless((self.next(), deadline), (when, || context.blame()), work).await
    }
}

/// Why the process ends without its run.
#[derive(Debug, Clone, Copy)]
enum Forced {
    Signal,
    SecondSignal,
    Deadline,
}

impl Forced {
    fn error(self, context: &Context) -> Error {
        let (kind, why) = match self {
            Self::Signal => (ErrorKind::Interrupted, "interrupted"),
            Self::SecondSignal => (ErrorKind::Interrupted, "interrupted again, ended at once"),
            Self::Deadline => (ErrorKind::Deadline, "the deadline has passed"),
        };
        Error::new(kind, format!("{why}: {}", context.left()))
    }

    /// Ends the process.
    fn exit(self, context: &Arc<Context>) -> ! {
        let kind = match self {
            Self::Signal | Self::SecondSignal => ErrorKind::Interrupted,
            Self::Deadline => ErrorKind::Deadline,
        };
        context.child.end_by_force();
        // Standard output may be the blocked call.
        let (said, saying) = sync_channel(1);
        let context = Arc::clone(context);
        let say = move || {
            let error = self.error(&context);
            context.messages.progress(false).error(&error);
            let _ = context.document.print(&failure_json(&error));
        };
        let thread = std::thread::Builder::new();
        let blocking = thread.spawn({
            let say = say.clone();
            move || {
                say();
                let _ = said.send(());
            }
        });
        match blocking {
            Ok(_) => drop(saying.recv_timeout(LAST_WORDS_TIME)),
            // The system has no thread left.
            Err(_) => say(),
        }
        stderr::flush(LAST_WORDS_TIME);
        std::process::exit(i32::from(kind.exit_code()))
    }
}

/// Starts the thread that ends the process if its run does not; one per command.
fn guard(hangup: Hangup, deadline: Option<Instant>, context: &Arc<Context>) -> Result<()> {
    if context.is_guarded.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let context = Arc::clone(context);
    let (ready, readiness) = sync_channel(1);
    let thread = std::thread::Builder::new().name("inrush-signals".to_owned());
    let watch = move || watch(hangup, deadline, &context, &ready);
    thread.spawn(watch).map_err(Error::no_thread)?;
    let lost = || Err(Error::new(ErrorKind::Host, "the thread that listens for signals ended"));
    readiness.recv().unwrap_or_else(|_| lost())
}

/// Waits for a reason to end the process; a run that ends by itself ends this thread, too.
fn watch(
    hangup: Hangup,
    deadline: Option<Instant>,
    context: &Arc<Context>,
    ready: &SyncSender<Result<()>>,
) {
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
    let child = &context.child;
    runtime.block_on(async {
        let mut signals = match Signals::listen(hangup) {
            Ok(signals) => signals,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        let forced = async {
            tokio::select! {
                first = signals.next() => after_signal(first, &mut signals, child).await,
                forced = async { until(deadline).await; after_deadline(child).await } => forced,
            }
        };
        tokio::select! {
            forced = forced => forced.exit(context),
            () = reap_orphans(child), if orphans::is_reaper() => {}
        }
    });
}

/// Reaps the orphans that this process inherits, for ever.
async fn reap_orphans(child: &RunningCommand) {
    // Without a listener they are noticed at the next look.
    let mut children = signal(SignalKind::child()).ok();
    loop {
        let are_all_reaped = orphans::reap(|| child.pid());
        let is_heard = are_all_reaped && children.is_some();
        tokio::select! {
            () = next_of(children.as_mut()) => {}
            () = tokio::time::sleep(REAP_PAUSE), if !is_heard => {}
        }
    }
}

/// The end of a process whose deadline has passed, if its run does not end. A running command gets
/// its grace period first.
async fn after_deadline(child: &RunningCommand) -> Forced {
    tokio::time::sleep(ENDING_GRACE + child.grace().unwrap_or_default()).await;
    Forced::Deadline
}

/// The end of a process after a signal, if its run does not end. While a command runs, signals are
/// for it: it has its grace period, and its run handles a second one.
async fn after_signal(
    first: KernelSignal,
    signals: &mut Signals,
    child: &RunningCommand,
) -> Forced {
    let asked = FirstSignal { by: first, at: tokio::time::Instant::now() };
    let mut end = tokio::time::Instant::now() + ENDING_GRACE;
    let mut has_grace = false;
    loop {
        if let Some(grace) = child.grace().filter(|_| !has_grace) {
            end += grace;
            has_grace = true;
        }
        tokio::select! {
            next = signals.next() => {
                match child.grace() {
                    _ if !asked.is_again(next, tokio::time::Instant::now()) => {}
                    Some(_) => {}
                    None if !child.has_started() => return Forced::SecondSignal,
                    // It may have killed the command: now the run ends by itself.
                    None => end = end.min(tokio::time::Instant::now() + ENDING_GRACE),
                }
            }
            () = tokio::time::sleep_until(end) => {
                // A command may have been started meanwhile.
                if has_grace || child.grace().is_none() {
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

    /// The result of a run that waits forever, this long before its deadline.
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test is from now on")]
    fn waits(left: Option<Duration>, work: impl Future<Output = Result<u32>>) -> Result<u32> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let deadline = left.map(|left| Instant::now() + left);
            // Not with `listen`: its guard would end the process of the tests.
            let signals = Signals::listen(Hangup::Ends)?;
            let (halt, context) = (Arc::default(), Arc::default());
            let mut interrupts = Interrupts { signals, deadline, halt, is_halted: false, context };
            interrupts.unless_reported("behind the last object", work).await
        })
    }

    #[test]
    fn a_signal_that_is_sent_twice_at_once_is_one() {
        let at = tokio::time::Instant::now();
        let asked = FirstSignal { by: KernelSignal::TERM, at };
        assert!(!asked.is_again(KernelSignal::TERM, at));
        assert!(!asked.is_again(KernelSignal::TERM, at + AGAIN_AFTER / 2));
        assert!(asked.is_again(KernelSignal::TERM, at + AGAIN_AFTER));
        assert!(asked.is_again(KernelSignal::INT, at), "whoever sends another one means it");
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
