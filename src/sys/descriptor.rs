//! Creates sockets, pipes and event counters, and calls on them that do not use a ring.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};

use super::{Errno, Handle};

/// Offset of tcpi_rcv_ooopack in the struct of TCP_INFO, which only grows at its end, so the offset
/// is the same in all kernels.
const OUT_OF_ORDER_AT_BYTES: usize = 224;

/// True for a regular file of the effective user with one hard link. Metadata in another user's
/// file may be forged, and a file with a second hard link may be needed under that name.
#[must_use]
pub fn is_ours(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_nlink == 1
}

/// A TCP socket for `address`, not yet connected, without Nagle's delay.
///
/// It is blocking on purpose: io_uring polls by itself, and with O_NONBLOCK it would return EAGAIN
/// instead of waiting for data.
///
/// # Errors
/// The error of socket(2): EMFILE or ENFILE if descriptors run out.
pub fn tcp_socket(address: &SocketAddr) -> Result<Handle, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(Handle::from(socket))
}

/// Binds an unconnected socket to one network interface (SO_BINDTODEVICE, socket(7)): the kernel
/// then uses only routes of that interface.
///
/// # Errors
/// ENODEV if there is no such interface; EPERM before Linux 5.7 without CAP_NET_RAW.
pub fn bind_to_interface(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(name.len()).map_err(|_| Errno::INVALID)?;
    // SAFETY: setsockopt reads `length` bytes at the pointer during the call only: those are the
    // bytes of `name`, which outlives it; the descriptor is open for as long as it is borrowed.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            length,
        )
    };
    if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// Like [`bind_to_interface`], for a worker's socket.
///
/// # Errors
/// The errors of [`bind_to_interface`].
pub fn bind_worker_socket(socket: &Handle, name: &str) -> Result<(), Errno> {
    bind_to_interface(owned(socket)?.as_fd(), name)
}

/// Number of packets that arrived out of order on a TCP socket because earlier ones were lost or
/// dropped (tcpi_rcv_ooopack of TCP_INFO, tcp(7)); `None` before Linux 5.4.
///
/// This is the only counter there that a receiver needs: tcpi_total_retrans counts this side's
/// retransmissions, and tcpi_rcv_space is the kernel's window estimate, not a loss.
#[must_use]
pub fn out_of_order_packets(socket: &Handle) -> Option<u32> {
    const BYTES: usize = OUT_OF_ORDER_AT_BYTES + size_of::<u32>();
    let socket = owned(socket).ok()?;
    let mut info = [0u8; BYTES];
    let mut length = libc::socklen_t::try_from(BYTES).ok()?;
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes at most
    // `length` bytes to `info`, which has as many, and how many it wrote to `length`; both outlive
    // the call, and any bytes are valid for them.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let is_there = refused == 0 && usize::try_from(length).is_ok_and(|length| length >= BYTES);
    is_there.then(|| u32::from_ne_bytes(info[OUT_OF_ORDER_AT_BYTES..].try_into().expect("4 bytes")))
}

/// An eventfd that wakes a worker: [`raise`] from any thread, [`super::Op::Poll`] in its ring.
///
/// # Errors
/// The error of eventfd(2): EMFILE or ENFILE if descriptors run out.
pub fn event_counter() -> Result<Handle, Errno> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(Handle::from(counter))
}

/// Raises an event counter. One that is already raised stays so.
pub fn raise(counter: &Handle) {
    if let Handle::Descriptor(descriptor) = counter {
        // EAGAIN means that the counter is at its maximum: it is raised.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}

/// Resets an event counter to 0.
pub fn lower(counter: &Handle) {
    if let Handle::Descriptor(descriptor) = counter {
        // EAGAIN means that it was not raised.
        let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
    }
}

fn owned(handle: &Handle) -> Result<&OwnedFd, Errno> {
    match handle {
        Handle::Descriptor(descriptor) => Ok(descriptor),
        Handle::Simulated(_) => Err(Errno::BAD_DESCRIPTOR),
    }
}

/// Sets or clears O_NONBLOCK on a socket (fcntl(2)).
///
/// # Errors
/// The error of fcntl(2).
pub fn set_nonblocking(socket: &Handle, is_on: bool) -> Result<(), Errno> {
    let socket = owned(socket)?;
    let mut flags = rustix::fs::fcntl_getfl(socket)?;
    flags.set(OFlags::NONBLOCK, is_on);
    Ok(rustix::fs::fcntl_setfl(socket, flags)?)
}

/// A non-blocking pipe, as large as the kernel allows up to `wish_bytes` (F_SETPIPE_SZ, fcntl(2)):
/// its write end, its read end, and its size in bytes.
///
/// # Errors
/// EMFILE and ENFILE if descriptors run out.
pub fn pipe(wish_bytes: u64) -> Result<(Handle, Handle, u64), Errno> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let capacity_bytes = grow_pipe(writer.as_fd(), wish_bytes);
    Ok((writer.into(), reader.into(), capacity_bytes))
}

/// Enlarges a pipe as far as the kernel allows (F_SETPIPE_SZ); returns its size.
pub fn grow_pipe(pipe: BorrowedFd<'_>, wish_bytes: u64) -> u64 {
    let wish = usize::try_from(wish_bytes).unwrap_or(usize::MAX);
    let granted = rustix::pipe::fcntl_setpipe_size(pipe, wish)
        .or_else(|_| rustix::pipe::fcntl_getpipe_size(pipe));
    granted.map_or(0, |bytes| bytes as u64)
}

/// Unread bytes in a pipe (FIONREAD, ioctl(2)).
///
/// # Errors
/// The error of ioctl(2).
pub fn unread(pipe: &Handle) -> Result<u64, Errno> {
    Ok(rustix::io::ioctl_fionread(owned(pipe)?)?)
}

/// Writes into a non-blocking pipe (write(2)).
///
/// # Errors
/// [`Errno::AGAIN`] if the pipe is full, [`Errno::PIPE`] if it has no reader.
pub fn write_pipe(pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
    Ok(rustix::io::write(owned(pipe)?, bytes)?)
}

/// Writes all bytes, at the offset where the last write ended (write(2)), and waits for space, also
/// if the descriptor is non-blocking: any process that shares it may make it so.
///
/// # Errors
/// The errors of write(2) besides EAGAIN and EINTR.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> std::io::Result<()> {
    use rustix::io::Errno;
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_writable(to)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Waits until a write makes progress or fails (poll(2)).
///
/// # Errors
/// The errors of poll(2) besides EINTR.
pub fn wait_writable(to: BorrowedFd<'_>) -> std::io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads from a non-blocking pipe or socket (read(2)). 0 is the end.
///
/// # Errors
/// [`Errno::AGAIN`] if it is empty, or the error of a socket's connection.
pub fn read(from: &Handle, into: &mut [u8]) -> Result<usize, Errno> {
    Ok(rustix::io::read(owned(from)?, into)?)
}

/// Moves bytes into or out of a pipe without copying them to user memory and without blocking
/// (splice(2)). A socket must be non-blocking, too: the flag of splice(2) applies to the pipe only.
///
/// # Errors
/// [`Errno::AGAIN`] if the source is empty or the target full, [`Errno::PIPE`] if it has no reader.
pub fn splice(from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok(rustix::pipe::splice(owned(from)?, None, owned(to)?, None, length, flags)? as u64)
}

/// Wakes a receive on `socket` only once `bytes` have arrived (SO_RCVLOWAT, socket(7)): fewer
/// wake-ups for a long body. The caller must know that this many bytes will arrive.
///
/// If the kernel refuses, receives are correct but slower.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_out_of_order_are_counted_of_tcp_sockets_alone() {
        let address = "127.0.0.1:80".parse().expect("an address");
        let socket = tcp_socket(&address).expect("a descriptor");
        assert_eq!(out_of_order_packets(&socket), Some(0), "nothing has come");
        let counter = event_counter().expect("a descriptor");
        assert_eq!(out_of_order_packets(&counter), None);
        assert_eq!(out_of_order_packets(&Handle::Simulated(1)), None);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn their_place_is_that_of_the_kernels_struct() {
        assert_eq!(std::mem::offset_of!(libc::tcp_info, tcpi_rcv_ooopack), OUT_OF_ORDER_AT_BYTES);
    }
}
