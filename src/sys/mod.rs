//! The safe face of the only room with `unsafe`: slots, lent memory, the ring, descriptors.
//!
//! It knows nothing of S3, HTTP or files' meaning. [`Ring`] is what a worker sees of the kernel's
//! asynchronous side; [`uring::Uring`] is io_uring, [`readiness::Readiness`] epoll and plain system
//! calls where there is no io_uring, and [`choice::AnyRing`] one of the two. Tests put a seeded
//! simulator in their place.

pub mod choice;
pub mod descriptor;
pub mod ethtool;
pub mod fuse_ring;
pub mod loan;
pub mod pool;
pub mod process;
pub mod readiness;
mod registered;
mod shorter;
pub mod slot;
pub mod standard;
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
/// Completions carry it negated; it is turned round once, where the completion is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroI32);

impl Errno {
    /// Operation cancelled.
    pub const CANCELED: Self = Self::known(rustix::io::Errno::CANCELED);
    /// Connection reset by peer.
    pub const RESET: Self = Self::known(rustix::io::Errno::CONNRESET);
    /// Input/output error.
    pub const IO: Self = Self::known(rustix::io::Errno::IO);
    /// Broken pipe: nobody reads.
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

    /// What to do about a ring that failed so ([`Ring::enter`]).
    #[must_use]
    pub fn advice_for_ring(self) -> &'static str {
        match self.named() {
            // epoll(7): what one user may watch.
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

    /// From a positive errno; anything else is told as EIO, for no caller may take it for success.
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

    /// The same with rustix's names.
    #[must_use]
    pub const fn named(self) -> rustix::io::Errno {
        rustix::io::Errno::from_raw_os_error(self.0.get())
    }

    /// True when the same call may succeed at once: EINTR or EAGAIN.
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
        Self::new(error.raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.number()).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.number())
    }
}

/// Something that operations act on; cloned into each, so it lives until the last one is done.
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

/// There is something to read.
pub const POLL_IN: u16 = 1;
/// There is room to write.
pub const POLL_OUT: u16 = 4;
/// The other side is gone, or the descriptor is broken.
pub const POLL_ERROR: u16 = 8;

/// One operation: plain data and what it acts on. It owns its slot from submission to completion.
#[derive(Debug)]
pub enum Op {
    /// Connects a socket (connect(2)).
    Connect {
        /// The socket.
        socket: Handle,
        /// Where to.
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
        /// How many bytes.
        length: u32,
    },
    /// Receives into a slot (recv(2)); 0 is the peer's end of stream.
    Receive {
        /// The socket.
        socket: Handle,
        /// Where the bytes go.
        slot: Slot,
        /// First byte within the slot.
        at: u32,
        /// How many bytes at most.
        length: u32,
        /// Wait for all of them (MSG_WAITALL); it may still be short.
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
        /// How many bytes.
        length: u32,
        /// Where in the file.
        offset: u64,
    },
    /// Completes when one of these events is there, or an error or hang-up, be it of the peer's
    /// sending side alone (POLLRDHUP, poll(2)); the result is the events.
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
    /// The number it was submitted under.
    pub token: u64,
    /// The operation with its slot.
    pub op: Op,
    /// Bytes moved (0 for a connect, the events of a poll), or why not.
    pub result: Result<u32, Errno>,
}

/// The asynchronous side of the kernel: operations in, completions out.
pub trait Ring {
    /// Takes an operation. `token` is unique among those in flight.
    ///
    /// # Errors
    /// Gives the operation back when there is no room for one more.
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op>;

    /// Asks for the operation under `token` to be ended early. It still completes: with
    /// [`Errno::CANCELED`], or with what it had reached. The request itself may be lost when the
    /// kernel has no room for it: whoever still waits asks again.
    fn cancel(&mut self, token: u64);

    /// Hands submissions to the kernel and waits for a completion, at most `wait_us` microseconds.
    ///
    /// # Errors
    /// Only what makes the ring unusable; EINTR and a timeout are success.
    fn enter(&mut self, wait_us: u64) -> Result<(), Errno>;

    /// Takes one completion.
    fn reap(&mut self) -> Option<Completion>;

    /// Operations that the kernel owns now.
    fn in_flight(&self) -> usize;

    /// True when a receive that was to fill its place, and is cancelled, completes with what had
    /// come. So it is over epoll, and over io_uring from Linux 6.1 on (commit 7e6b638ed501); older
    /// kernels may say that it was cancelled, and the bytes are lost.
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
