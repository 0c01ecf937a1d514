//! Opens what operations act on: sockets and event counters.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::{Errno, Handle};

/// A TCP socket for `address`, not yet connected, without Nagle's delay.
///
/// It blocks on purpose: io_uring polls by itself, and an O_NONBLOCK socket would make it answer
/// EAGAIN instead of waiting for data.
///
/// # Errors
/// What socket(2) says: EMFILE or ENFILE when descriptors run out.
pub fn tcp_socket(address: &SocketAddr) -> Result<Handle, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(Handle::from(socket))
}

/// A counter that wakes a worker: [`raise`] from any thread, [`super::Op::Poll`] in its ring.
///
/// # Errors
/// What eventfd(2) says: EMFILE or ENFILE when descriptors run out.
pub fn event_counter() -> Result<Handle, Errno> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(Handle::from(counter))
}

/// Raises an event counter. One that is already raised stays so.
pub fn raise(counter: &Handle) {
    if let Handle::Descriptor(descriptor) = counter {
        // EAGAIN means that the counter stands at its highest value: raised all the same.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}

/// Lowers an event counter to 0.
pub fn lower(counter: &Handle) {
    if let Handle::Descriptor(descriptor) = counter {
        // EAGAIN means that it was not raised.
        let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
    }
}

/// Wakes a receive on `socket` only when so many bytes have come (SO_RCVLOWAT, socket(7)): fewer
/// wake-ups for a long body. Whoever sets it must know that as many bytes will come.
///
/// A kernel that refuses leaves it as it was, which is right too, only slower.
pub fn set_low_water(socket: &Handle, bytes: u32) {
    let Handle::Descriptor(descriptor) = socket else { return };
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("four");
    // SAFETY: setsockopt reads `length` bytes at the pointer during the call only: that is `value`,
    // which outlives it; the descriptor is open for as long as `socket` is borrowed.
    unsafe {
        libc::setsockopt(
            descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            length,
        );
    }
}
