//! Work with a mount that ends, whatever the mount does.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;

use crate::mounted::Mounted;
use crate::program::Running;

/// Does this with a mount, as [`bounded`] does.
pub(crate) fn within<T>(
    mut mounted: Mounted,
    limit: Duration,
    work: impl FnOnce(&Mounted) -> T,
) -> T {
    let running = mounted.running();
    bounded(&running, limit, || work(&mounted))
}

/// Does this while a mount runs. A mount with which it takes longer than `limit` is killed: then
/// all that waits for it fails, in this process and in others.
///
/// # Panics
/// When it was killed, also where the work has not minded.
#[track_caller]
pub(crate) fn bounded<T>(running: &Running, limit: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let is_late = is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                eprintln!("not done after {limit:?}: the mount is killed");
                running.signal(Signal::KILL);
            }
            is_late
        });
        let result = work();
        drop(done);
        assert!(!watcher.join().expect("no panic"), "not done after {limit:?}");
        result
    })
}
