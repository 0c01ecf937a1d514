//! Work with a mount that ends, whatever the mount does.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;

use crate::mounted::Mounted;

/// Does this with a mount. A mount with which it takes longer than `limit` is killed: then all that
/// waits for it fails, in this process and in others.
pub(crate) fn within<T>(
    mut mounted: Mounted,
    limit: Duration,
    work: impl FnOnce(&Mounted) -> T,
) -> T {
    let running = mounted.running();
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let running = &running;
        scope.spawn(move || {
            if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("not done after {limit:?}: the mount is killed");
                running.signal(Signal::KILL);
            }
        });
        let result = work(&mounted);
        drop(done);
        result
    })
}
