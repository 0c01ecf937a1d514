//! The safe interface of the only module with `unsafe`: slots, lent memory, rings, descriptors.
//!
//! It knows nothing of S3, HTTP or the meaning of files. [`Ring`] is the worker's view of
//! asynchronous I/O; [`uring::Uring`] implements it with io_uring, [`readiness::Readiness`] with
//! epoll and plain system calls, and [`choice::AnyRing`] is one of the two. Tests use a seeded
//! simulator instead.

pub mod choice;
pub mod descriptor;
pub mod environment;
pub mod ethtool;
pub mod fuse_ring;
pub mod loan;
pub mod orphans;
pub mod pool;
pub mod process;
pub mod process_state;
pub mod readiness;
mod registered;
mod shorter;
pub mod slot;
pub mod tcp_memory;
pub mod threads;
pub mod topology;
pub mod uring;
pub mod usage;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use loan::{Lender, Loan, Place};
pub use pool::{Pool, Region};
pub use slot::Slot;

/// An error number of the kernel, always positive (errno(3)).
///
/// Completions carry it negated; the ring converts it where it reads the completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroI32);

impl Errno {
    /// Operation cancelled.
    pub const CANCELED: Self = Self::known(rustix::io::Errno::CANCELED);
    /// Connection reset by peer.
    pub const RESET: Self = Self::known(rustix::io::Errno::CONNRESET);
    /// Input/output error.
    pub const IO: Self = Self::known(rustix::io::Errno::IO);
    /// Broken pipe: no reader.
    pub const PIPE: Self = Self::known(rustix::io::Errno::PIPE);
    /// No space left on device.
    pub const NO_SPACE: Self = Self::known(rustix::io::Errno::NOSPC);
    /// Interrupted system call.
    pub const INTERRUPTED: Self = Self::known(rustix::io::Errno::INTR);
    /// Try again.
    pub const AGAIN: Self = Self::known(rustix::io::Errno::AGAIN);
    /// Invalid argument.
    pub const INVALID: Self = Self::known(rustix::io::Errno::INVAL);
    /// Bad file descriptor.
    pub const BAD_DESCRIPTOR: Self = Self::known(rustix::io::Errno::BADF);
    /// Operation not permitted.
    pub const NOT_PERMITTED: Self = Self::known(rustix::io::Errno::PERM);
    /// Connection refused.
    pub const REFUSED: Self = Self::known(rustix::io::Errno::CONNREFUSED);

    /// Advice for a ring that failed with this error ([`Ring::enter`]).
    #[must_use]
    pub fn advice_for_ring(self) -> &'static str {
        match self.named() {
            // epoll(7): the limit of watches per user.
            rustix::io::Errno::NOSPC => "raise the limit with 'sysctl fs.epoll.max_user_watches'",
            _ => "check the kernel log",
        }
    }

    const fn known(errno: rustix::io::Errno) -> Self {
        match NonZeroI32::new(errno.raw_os_error()) {
            Some(number) => Self(number),
            None => panic!("an errno is not zero"),
        }
    }

    /// From a positive errno; other numbers become EIO, so that no caller takes them for success.
    #[must_use]
    pub const fn new(number: i32) -> Self {
        match NonZeroI32::new(number) {
            Some(nonzero) if number > 0 => Self(nonzero),
            _ => Self::IO,
        }
    }

    /// The positive number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0.get()
    }

    /// The error as rustix's type.
    #[must_use]
    pub const fn named(self) -> rustix::io::Errno {
        rustix::io::Errno::from_raw_os_error(self.0.get())
    }

    /// True if the process or the machine has run out of descriptors: EMFILE or ENFILE.
    #[must_use]
    pub const fn is_of_descriptors(self) -> bool {
        matches!(self.named(), rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    }

    /// True if the same call may succeed at once: EINTR or EAGAIN.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self == Self::INTERRUPTED || self == Self::AGAIN
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::new(errno.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(0))
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.number())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.number())
    }
}

/// The target of an operation; each operation holds a clone, so it lives until the last one ends.
#[derive(Debug, Clone)]
pub enum Handle {
    /// A file descriptor of this process.
    Descriptor(Arc<OwnedFd>),
    /// A number that only a simulated ring understands.
    Simulated(u64),
}

impl From<OwnedFd> for Handle {
    fn from(descriptor: OwnedFd) -> Self {
        Self::Descriptor(Arc::new(descriptor))
    }
}

/// Readable.
pub const POLL_IN: u16 = 1;
/// Writable.
pub const POLL_OUT: u16 = 4;
/// Hang-up or error.
pub const POLL_ERROR: u16 = 8;

/// One operation, its target and its slot, which it owns from submission to completion.
#[derive(Debug)]
pub enum Op {
    /// Connects a socket (connect(2)).
    Connect {
        /// The socket.
        socket: Handle,
        /// The peer's address.
        address: SocketAddr,
    },
    /// Sends bytes of a slot (send(2)); may be short.
    Send {
        /// The socket.
        socket: Handle,
        /// The bytes.
        slot: Slot,
        /// First byte within the slot.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Receives into a slot (recv(2)); 0 is the peer's end of stream.
    Receive {
        /// The socket.
        socket: Handle,
        /// Destination of the bytes.
        slot: Slot,
        /// First byte within the slot.
        at: u32,
        /// Most bytes.
        length: u32,
        /// Waits for all of them (MSG_WAITALL); may still be short.
        fill: bool,
    },
    /// Writes bytes of a slot to a file at an offset (pwrite(2)); may be short.
    Write {
        /// The file.
        file: Handle,
        /// The bytes.
        slot: Slot,
        /// First byte within the slot.
        at: u32,
        /// Number of bytes.
        length: u32,
        /// Offset in the file.
        offset: u64,
    },
    /// Completes on one of these events, an error or a hang-up, including one of only the peer's
    /// sending side (POLLRDHUP, poll(2)); the result is the events.
    Poll {
        /// A socket, pipe or event counter.
        handle: Handle,
        /// [`POLL_IN`], [`POLL_OUT`], or 0 for errors and hang-ups alone.
        events: u16,
    },
}

impl Op {
    /// Takes the slot back, if the operation has one.
    #[must_use]
    pub fn into_slot(self) -> Option<Slot> {
        match self {
            Self::Send { slot, .. } | Self::Receive { slot, .. } | Self::Write { slot, .. } => {
                Some(slot)
            }
            Self::Connect { .. } | Self::Poll { .. } => None,
        }
    }
}

/// An operation that the kernel has given back.
#[derive(Debug)]
pub struct Completion {
    /// The token of its submission.
    pub token: u64,
    /// The operation with its slot.
    pub op: Op,
    /// Bytes moved (0 for a connect, the events of a poll), or the error.
    pub result: Result<u32, Errno>,
}

/// Asynchronous I/O: operations in, completions out.
pub trait Ring {
    /// Submits an operation. `token` is unique among those in flight.
    ///
    /// # Errors
    /// Returns the operation if there is no room for it.
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op>;

    /// Requests the early end of the operation with this token. It still completes: with
    /// [`Errno::CANCELED`], or with what it had done. The request may be lost if the kernel has no
    /// room for it; a caller that still waits must repeat it.
    fn cancel(&mut self, token: u64);

    /// Passes submissions to the kernel and waits at most `wait_us` microseconds for a completion.
    ///
    /// # Errors
    /// Only errors that make the ring unusable; EINTR and a timeout are success.
    fn enter(&mut self, wait_us: u64) -> Result<(), Errno>;

    /// Takes one completion.
    fn reap(&mut self) -> Option<Completion>;

    /// Operations in flight.
    fn in_flight(&self) -> usize;

    /// True if a cancelled receive with `fill` completes with the bytes received so far. True for
    /// epoll, and for io_uring from Linux 6.1 on (commit 7e6b638ed501); older kernels may return
    /// ECANCELED and lose the bytes.
    fn keeps_what_came(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_means_what_the_kernel_means() {
        assert_eq!(
            std::io::Error::from_raw_os_error(Errno::RESET.number()).kind(),
            std::io::ErrorKind::ConnectionReset
        );
        assert_eq!(
            std::io::Error::from_raw_os_error(Errno::NO_SPACE.number()).kind(),
            std::io::ErrorKind::StorageFull
        );
        assert_eq!(Errno::CANCELED.to_string(), "Operation canceled (os error 125)");
        assert_eq!(Errno::new(-22), Errno::IO, "a negative number is never an errno");
    }
}
