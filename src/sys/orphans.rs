//! Reaps orphans: as the first process of a container, or as a child subreaper (prctl(2)), this
//! process inherits the children of processes that have ended. Those remain zombies until they are
//! waited for.

use std::mem::MaybeUninit;
use std::sync::{MutexGuard, PoisonError};

use rustix::process::{Pid, WaitOptions, child_subreaper, getpid, waitpid};

use super::process_state::AWAITED;

fn awaited() -> MutexGuard<'static, usize> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this exists, no child is reaped here.
#[derive(Debug)]
pub struct AwaitedChild(());

impl Drop for AwaitedChild {
    fn drop(&mut self) {
        *awaited() -= 1;
    }
}

/// To be called before a child is started whose end other code waits for, and kept until then.
#[must_use]
pub fn awaits_child() -> AwaitedChild {
    *awaited() += 1;
    AwaitedChild(())
}

/// True if this process inherits orphans.
#[must_use]
pub fn is_reaper() -> bool {
    getpid() == Pid::INIT || child_subreaper().is_ok_and(|reaper| reaper.is_some())
}

/// Reaps all children that have ended, unless one of our own may be among them. The child `kept` is
/// never reaped; the others wait for its end if it ends first. True if none is left of those that
/// have ended.
pub fn reap(kept: impl Fn() -> Option<Pid>) -> bool {
    // No child of our own is started meanwhile.
    let awaited = awaited();
    if *awaited > 0 {
        return false;
    }
    let kept = kept();
    while let Some(ended) = ended_child() {
        if Some(ended) == kept || waitpid(Some(ended), WaitOptions::NOHANG).is_err() {
            return false;
        }
    }
    true
}

/// A child that has ended and is not reaped, if there is one.
fn ended_child() -> Option<Pid> {
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes one siginfo_t at the pointer, which has room for it.
    let failed = unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), options) };
    if failed != 0 {
        return None;
    }
    // SAFETY: all bytes are zero, which is valid for it, or as the kernel wrote them.
    let found = unsafe { found.assume_init() };
    // SAFETY: waitid(2) sets the field, to 0 if no child has ended.
    Pid::from_raw(unsafe { found.si_pid() })
}
