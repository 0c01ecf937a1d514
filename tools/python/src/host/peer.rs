//! Whose process is at the other end of a Unix socket.

use std::os::fd::{AsRawFd as _, OwnedFd};

/// Whether the process at the other end is of the effective user of this one, and in its PID
/// namespace (`SO_PEERCRED` of unix(7)). Containers may share a network, and so the names of
/// sockets; what this process cannot see has the process number 0. Of a listener it is the process
/// that made it listen.
pub(super) fn is_of_this_user(socket: &OwnedFd) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("12 bytes");
    // SAFETY: the descriptor is open (`OwnedFd`); both pointers are of variables that live over the
    // call, and `length` says how long the first one is. All values of its fields are valid.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    failed == 0 && peer.pid != 0 && peer.uid == rustix::process::geteuid().as_raw()
}
