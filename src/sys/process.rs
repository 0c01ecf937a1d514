//! Supervises a child process: it dies with its parent, and may own the terminal.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, getppid, set_parent_process_death_signal};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Makes the child the leader of its own process group, and lets the kernel kill it (SIGKILL) as
/// soon as the calling thread ends (`PR_SET_PDEATHSIG`, prctl(2)): call this on one that lasts.
/// With `takes_terminal` the group becomes the foreground group of the terminal on standard input
/// before the child executes its program.
pub fn supervise(command: &mut Command, takes_terminal: bool) {
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
    let before = block_terminal_output_signal()?;
    let given = tcsetpgrp(terminal, group);
    // SAFETY: the set is initialised, and a null pointer says that the old one is not wanted.
    let restored =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    debug_assert_eq!(restored, 0, "a mask that was in use");
    Ok(given?)
}

/// Blocks SIGTTOU in this thread; returns the previous mask.
fn block_terminal_output_signal() -> io::Result<libc::sigset_t> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it initialises the set that it is given, and cannot fail.
    unsafe { libc::sigemptyset(blocked.as_mut_ptr()) };
    // SAFETY: the set is initialised, and the signal exists.
    unsafe { libc::sigaddset(blocked.as_mut_ptr(), libc::SIGTTOU) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set is initialised, the second may be written to.
    let failed =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: the call has written it.
    Ok(unsafe { before.assume_init() })
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
