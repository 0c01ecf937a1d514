//! Child processes: they start with the limits and signals of this one's start, one that is
//! supervised dies with its parent, and may own the terminal.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpgrp, getpid, getppid, getrlimit,
    set_parent_process_death_signal, setrlimit,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::process_state::{DESCRIPTORS, MASK};

/// Signals that commands handle.
const HANDLED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::CHILD];

/// Unblocks the signals that commands handle, for this thread and those that it starts: a parent
/// that blocks them in itself, to wait for them, leaves them blocked in its children. Ignored ones
/// stay ignored.
pub fn unblock_signals() {
    if let Ok(before) = change_mask(libc::SIG_UNBLOCK, &set_of(&HANDLED)) {
        // That of the first call is the one that the process was started with.
        let _ = MASK.set(before);
    }
}

/// Raises the limit of descriptors to its maximum: small files need many.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = DESCRIPTORS.set(limit);
    // If that is refused the limit stays; running out of descriptors has its own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Starts a child with the signal mask and the limit of descriptors that this process was started
/// with, as timeout(1) and tini do: it has what its user set for it. A program with select(2) fails
/// at descriptors from 1,024, and others close all that the limit allows.
pub fn as_started(command: &mut Command) {
    let set_up = || {
        if let Some(mask) = MASK.get() {
            change_mask(libc::SIG_SETMASK, mask)?;
        }
        if let Some(limit) = DESCRIPTORS.get() {
            setrlimit(Resource::Nofile, *limit)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls that are async-signal-safe
    // (signal-safety(7)): sigprocmask(2), and prlimit(2), a bare system call. It allocates nothing,
    // takes no lock (a set OnceLock is only read), and its errors are plain numbers.
    unsafe {
        command.pre_exec(set_up);
    }
}

/// The set of these signals.
fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it initialises the set that it is given, and cannot fail.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set is initialised, and the signal exists.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal.as_raw()) };
    }
    // SAFETY: it is initialised.
    unsafe { set.assume_init() }
}

/// Changes this thread's signal mask; returns the previous one.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set is initialised, the second may be written to.
    let failed = unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: the call has written it.
    Ok(unsafe { before.assume_init() })
}

/// Makes the child the leader of its own process group, and lets the kernel kill it (SIGKILL) as
/// soon as the calling thread ends (`PR_SET_PDEATHSIG`, prctl(2)): call this on one that lasts.
/// With `takes_terminal` the group becomes the foreground group of the terminal on standard input
/// before the child executes its program.
pub fn supervise(command: &mut Command, takes_terminal: bool) {
    as_started(command);
    command.process_group(0);
    let parent = getpid();
    let set_up = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before prctl(2).
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        match takes_terminal {
            true => give_terminal(getpid()),
            false => Ok(()),
        }
    };
    // SAFETY: between fork and exec the closure only makes system calls that are async-signal-safe
    // (signal-safety(7)): prctl(2), getppid(2), tcsetpgrp(3), sigprocmask(2). It allocates nothing,
    // takes no lock, and its errors are plain numbers.
    unsafe {
        command.pre_exec(set_up);
    }
}

/// True if standard input is a terminal and this process is in its foreground group.
#[must_use]
pub fn has_terminal() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Makes this process's group the terminal's foreground group, if standard input is its terminal.
///
/// # Errors
/// The errors of tcsetpgrp(3).
pub fn take_terminal() -> io::Result<()> {
    give_terminal(getpgrp())
}

/// Makes this group, of the same session, the foreground group of the terminal on standard input.
///
/// # Errors
/// The errors of tcsetpgrp(3).
pub fn give_terminal(group: Pid) -> io::Result<()> {
    give(stdin(), group)
}

/// Standard input, without the lock of Rust's library.
fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the Rust runtime sees to it that the descriptor is open when the program starts, and
    // nothing here closes it.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

fn give(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    // SIGTTOU would stop a background process; if it is blocked, the call is allowed.
    let before = change_mask(libc::SIG_BLOCK, &set_of(&[Signal::TTOU]))?;
    let given = tcsetpgrp(terminal, group);
    let restored = change_mask(libc::SIG_SETMASK, &before);
    debug_assert!(restored.is_ok(), "a mask that was in use");
    Ok(given?)
}

/// True if this process ignores a signal, as nohup(1) arranges for SIGHUP.
#[must_use]
pub fn ignores(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action nothing changes, and the present one is written to `action`.
    let failed = unsafe { libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr()) };
    if failed != 0 {
        return false;
    }
    // SAFETY: the call has succeeded, so it is written.
    let action = unsafe { action.assume_init() };
    action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_child_leads_its_own_group_and_may_not_outlive_its_thread() {
        let started = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            supervise(command.arg("600").stdin(Stdio::null()), false);
            let child = command.spawn().expect("sleep(1) starts");
            let pid = Pid::from_child(&child);
            let group = rustix::process::getpgid(Some(pid)).expect("it runs");
            assert_eq!(group, pid);
            child
        });
        // The thread ends here, and its child with it.
        let mut child = started.join().expect("no panic");
        let status = child.wait().expect("it is a child of this process");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn an_ignored_signal_is_seen() {
        assert!(!ignores(Signal::HUP) || !ignores(Signal::USR2));
        // The Rust runtime ignores it in every program.
        assert!(ignores(Signal::PIPE));
    }

    #[test]
    fn what_is_no_terminal_is_none() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let error = give(reader.as_fd(), getpgrp()).expect_err("no terminal");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
