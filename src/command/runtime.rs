//! The control plane's runtime: one thread, with an io_uring for its report if available. Commands
//! that transfer no objects run without.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use tokio::task::LocalSet;

use super::context::Context;
use crate::control::refresh::keep_helper;
use crate::error::{Error, ErrorKind, Result};
#[cfg(not(target_env = "musl"))]
use crate::sys::Errno;
use crate::sys::choice::RingChoice;
use crate::sys::uring::{SetupError, Uring};
use crate::sys::{descriptor, tcp_memory};

/// Descriptors of a runtime: possibly a ring, epoll(7), its wake-up, and a pair for signals and its
/// duplicate.
const RUNTIME_DESCRIPTORS: usize = 6;

/// Returns why io_uring is unavailable, if it is.
pub(super) fn probe_io_uring() -> std::result::Result<(), SetupError> {
    Uring::new(2).map(drop)
}

/// Runs the control plane on this thread: with a ring, unless epoll is selected. A seccomp profile
/// may kill a process that only tries io_uring.
///
/// Its runtime is never dropped: that would wait for a name lookup or a blocked file system call,
/// which cannot be cancelled. The process ends next.
pub(super) fn on_runtime<F: Future>(
    choice: RingChoice,
    context: &Context,
    future: impl FnOnce() -> F,
) -> Result<F::Output> {
    check_descriptors().map_err(|error| trouble(&error))?;
    // tokio-uring does not compile with musl.
    #[cfg(not(target_env = "musl"))]
    if let Some(runtime) = ring_runtime(choice).map_err(|error| trouble(&error))? {
        let runtime = ManuallyDrop::new(runtime);
        context.has_ring.store(true, Ordering::Relaxed);
        return runtime.block_on(with_helper(future));
    }
    #[cfg(target_env = "musl")]
    let _ = (choice, context);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = ManuallyDrop::new(runtime.map_err(|error| trouble(&error))?);
    let tasks = ManuallyDrop::new(LocalSet::new());
    tasks.block_on(&runtime, with_helper(future))
}

/// A command on a runtime that has a helper thread. From now on workers watch the machine's TCP
/// memory.
async fn with_helper<F: Future>(future: impl FnOnce() -> F) -> Result<F::Output> {
    keep_helper()?;
    tcp_memory::begin();
    Ok(future().await)
}

/// A runtime with a ring; `None` if there is to be none, or it could not be used: tokio-uring does
/// not check if a ring can be entered.
#[cfg(not(target_env = "musl"))]
fn ring_runtime(choice: RingChoice) -> std::io::Result<Option<tokio_uring::Runtime>> {
    if choice == RingChoice::Epoll || probe_io_uring().is_err() {
        return Ok(None);
    }
    match tokio_uring::Runtime::new(&tokio_uring::builder()) {
        Ok(runtime) => Ok(Some(runtime)),
        Err(error) if Errno::from(&error).is_of_descriptors() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Checks that there are enough descriptors for a runtime: tokio's panics without them.
fn check_descriptors() -> std::io::Result<()> {
    let spare: std::result::Result<Vec<_>, _> =
        (0..RUNTIME_DESCRIPTORS).map(|_| descriptor::event_counter()).collect();
    spare.map(drop).map_err(|errno| errno.named().into())
}

fn trouble(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Host, format!("cannot start the control plane: {error}"))
        .advise("raise the limit of open files (ulimit -n)")
        .caused_by_io(error)
}
