//! The command of `train`: start, signals, end, and its exit status.
//!
//! It leads its own process group, so that none of its processes remains after its end, and each
//! signal reaches it once. On a terminal that group is in the foreground, as in a shell: input
//! there, including Ctrl-C and Ctrl-Z, is for the command alone, and when it is stopped this
//! process stops, too, so that the shell takes over. Otherwise signals are forwarded to the
//! command, not to its group: a program that starts others decides which signals they get.

mod ending;
mod program;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal as KernelSignal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process,
    kill_process_group, waitid, waitpid,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use self::ending::{Deed, Ending};
pub(super) use self::program::{NotStarted, look_up};
use self::program::{OWN_FAILURE, not_started};
use crate::command::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LAST_WORDS_TIME;
use crate::report::stderr;
use crate::sys::{orphans, process};

/// Added to the number of the signal that ended a command, as in shells.
const SIGNAL_BASE: i32 = 128;
/// Longest time between two checks for the command's end: SIGCHLD reports it, which is not blocked.
/// The cost of a lost wake-up.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Signals that are forwarded, and true if they ask for the end.
const FORWARDED: [(KernelSignal, bool); 5] = [
    (KernelSignal::INT, true),
    (KernelSignal::TERM, true),
    (KernelSignal::HUP, true),
    (KernelSignal::USR1, false),
    (KernelSignal::USR2, false),
];

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The exit code of this process.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(SIGNAL_BASE + signal).unwrap_or(u8::MAX),
        }
    }
}

/// The command as the thread of signals sees it.
#[derive(Debug, Default)]
pub(in crate::command) struct RunningCommand {
    /// Its process group while the number is certainly the command's, and its grace period.
    group: Mutex<Option<(Pid, Duration)>>,
    /// It has been started, or is being started; stays true after its end.
    has_started: AtomicBool,
}

impl RunningCommand {
    fn group(&self) -> MutexGuard<'_, Option<(Pid, Duration)>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a command has been started, however long ago, or is being started.
    pub(in crate::command) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Acquire)
    }

    /// The process of the running command.
    pub(in crate::command) fn pid(&self) -> Option<Pid> {
        self.group().map(|(pid, _)| pid)
    }

    /// Time for the running command to end; `None` if none runs.
    pub(in crate::command) fn grace(&self) -> Option<Duration> {
        self.group().map(|(_, grace)| grace)
    }

    /// Kills the running command, if any; for a process that ends without its run.
    pub(in crate::command) fn end_by_force(&self) {
        if let Some((group, _)) = *self.group() {
            let _ = kill_process_group(group, KernelSignal::KILL);
        }
    }
}

/// A running command; it is killed when this is dropped.
pub(super) struct Child {
    pid: Pid,
    context: Arc<Context>,
    /// It owns the terminal.
    has_terminal: bool,
    ending: Ending,
    signals: Vec<(Signal, KernelSignal, bool)>,
    children: Signal,
    exit: Option<Exit>,
    /// An action before it is killed.
    at_kill: Option<Box<dyn Fn()>>,
}

impl Child {
    /// Starts a command with these variables in addition to this process's. Must be called on the
    /// command's thread, inside a runtime.
    pub(super) fn start(
        words: &[OsString],
        variables: &BTreeMap<String, String>,
        grace: Duration,
        context: Arc<Context>,
    ) -> Result<Self, NotStarted> {
        let [program, arguments @ ..] = words else { unreachable!("there is a command") };
        let ours = |error: Error| NotStarted { code: OWN_FAILURE, error };
        // Before the start: signals that come meanwhile are for the command.
        let signals = listen().map_err(ours)?;
        let children = listener(SignalKind::child()).map_err(ours)?;
        let has_terminal = process::has_terminal();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables);
        process::supervise(&mut command, has_terminal);
        // Messages before it are not among its own.
        stderr::flush(LAST_WORDS_TIME);
        // It may run, and be asked to end, before this thread continues.
        context.child.has_started.store(true, Ordering::Release);
        // Until it is known as the command it may be taken for an orphan.
        let _awaited = orphans::awaits_child();
        let spawned = command.spawn().map_err(|error| {
            context.child.has_started.store(false, Ordering::Release);
            if has_terminal {
                let _ = process::take_terminal();
            }
            not_started(program, &error)
        })?;
        let pid = Pid::from_child(&spawned);
        *context.child.group() = Some((pid, grace));
        Ok(Self {
            pid,
            context,
            has_terminal,
            ending: Ending::new(grace),
            signals,
            children,
            exit: None,
            at_kill: None,
        })
    }

    /// Waits for its end, forwards signals, and kills it when its time is over. Cancel safe.
    pub(super) async fn ended(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.look() {
                return exit;
            }
            if let Some(deed) = self.ending.due(Instant::now()) {
                self.act(deed);
            }
            let look_at = Instant::now() + LOOK_PAUSE;
            let until = self.ending.kill_at.filter(|at| *at > Instant::now());
            tokio::select! {
                _ = self.children.recv() => {}
                (signal, ends) = next(&mut self.signals) => {
                    if let Some(deed) = self.ending.signal(signal, ends, Instant::now()) {
                        self.act(deed);
                    }
                }
                () = tokio::time::sleep_until(until.map_or(look_at, |at| at.min(look_at))) => {}
            }
        }
    }

    /// Asks it to end, and kills it after its grace period; [`Self::ended`] must be awaited.
    pub(in crate::command) fn end(&mut self) {
        if let Some(deed) = self.ending.ask(Instant::now()) {
            self.act(deed);
        }
    }

    /// Registers an action before it is killed: a process blocked in a request to our mount cannot
    /// end by a signal.
    pub(super) fn at_kill(&mut self, work: impl Fn() + 'static) {
        self.at_kill = Some(Box::new(work));
    }

    /// True if it was asked to end.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.kill_at.is_some()
    }

    fn act(&self, deed: Deed) {
        // A process that has just ended cannot be signalled, and its end is noticed next.
        let _ = match deed {
            Deed::Send(signal) => {
                tracing::info!("{} is sent to the command", name(signal));
                let sent = kill_process(self.pid, signal);
                if self.is_ending() {
                    // A stopped process would notice it only when it is continued.
                    let _ = kill_process(self.pid, KernelSignal::CONT);
                }
                sent
            }
            Deed::Kill => {
                tracing::info!("the command is killed");
                self.at_kill.iter().for_each(|work| work());
                kill_process_group(self.pid, KernelSignal::KILL)
            }
        };
    }

    /// How it ended, if it has; then no process of its group is left.
    fn look(&mut self) -> Option<Exit> {
        if self.exit.is_some() {
            return self.exit;
        }
        let seen = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(_)) = waitid(WaitId::Pid(self.pid), seen) {
            let _awaited = orphans::awaits_child();
            // Until it is awaited its number is not reused.
            let _ = kill_process_group(self.pid, KernelSignal::KILL);
            *self.context.child.group() = None;
            let (_, status) = waitpid(Some(self.pid), WaitOptions::empty()).ok().flatten()?;
            self.exit = Some(match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)),
                (None, signal) => Exit::Signal(signal.unwrap_or(KernelSignal::KILL.as_raw())),
            });
            if self.has_terminal {
                // If the terminal is gone, nothing reads from it.
                let _ = process::take_terminal();
            }
            return self.exit;
        }
        if self.has_terminal {
            self.stop_with_it();
        }
        None
    }

    /// When it was stopped, usually by Ctrl-Z, this process stops, too: its parent, a shell, then
    /// owns the terminal. Both continue together.
    fn stop_with_it(&self) {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let Ok(Some(status)) = waitid(WaitId::Pid(self.pid), stopped) else { return };
        if !status.stopped() {
            return;
        }
        let _ = process::take_terminal();
        let _ = kill_process(getpid(), KernelSignal::STOP);
        // It continues: in the foreground if this process is, which the shell decides.
        if process::has_terminal() {
            let _ = process::give_terminal(self.pid);
        }
        let _ = kill_process_group(self.pid, KernelSignal::CONT);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.look().is_none() {
            self.act(Deed::Kill);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
            *self.context.child.group() = None;
            if self.has_terminal {
                let _ = process::take_terminal();
            }
        }
    }
}

fn listener(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot listen for signals: {error}"))
            .advise("raise the limit of open files (ulimit -n)")
            .caused_by(error)
    })
}

/// Listens for forwarded signals. The command ignores those that this process ignores.
fn listen() -> Result<Vec<(Signal, KernelSignal, bool)>> {
    FORWARDED
        .into_iter()
        .filter(|(signal, _)| !process::ignores(*signal))
        .map(|(signal, ends)| {
            let listener = listener(SignalKind::from_raw(signal.as_raw()))?;
            Ok((listener, signal, ends))
        })
        .collect()
}

/// The next of these signals, and true if it asks for the end.
async fn next(signals: &mut [(Signal, KernelSignal, bool)]) -> (KernelSignal, bool) {
    std::future::poll_fn(|context| {
        for (listener, signal, ends) in signals.iter_mut() {
            if listener.poll_recv(context).is_ready() {
                return std::task::Poll::Ready((*signal, *ends));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

fn name(signal: KernelSignal) -> &'static str {
    match signal {
        KernelSignal::INT => "SIGINT",
        KernelSignal::TERM => "SIGTERM",
        KernelSignal::HUP => "SIGHUP",
        KernelSignal::USR1 => "SIGUSR1",
        _ => "SIGUSR2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(Exit::Code(0).code(), 0);
        assert_eq!(Exit::Code(255).code(), 255);
        assert_eq!(Exit::Signal(15).code(), 143);
        assert_eq!(Exit::Signal(9).code(), 137);
    }
}
