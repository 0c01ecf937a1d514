//! What goes into a [`Conn`] and what comes out of it: plain data.

use std::fmt;

#[cfg(doc)]
use super::Conn;
use crate::checksum::AnswerCheck;
use crate::link::failure::Failure;
use crate::s3::ByteRange;
use crate::sys::Errno;

/// Which of the connection's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The small one: requests, and heads of answers to range requests.
    Control,
    /// The data slot: bodies, and whole small answers.
    Data,
}

/// What to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Bytes of the object. For [`Manner::Whole`] all of them, without a `Range` header.
    pub range: ByteRange,
    /// Size of the whole object in bytes.
    pub size: u64,
    /// How the body is taken.
    pub manner: Manner,
    /// The listed ETag, which the answer must carry if it carries one; `None` when none was listed.
    pub etag: Option<EtagDigest>,
    /// What is done with the checksum of the whole object that the answer carries; `None` where
    /// none is asked for. A range that is the whole object is asked for without `Range` then.
    pub check: Option<AnswerCheck>,
}

/// How a body is taken from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Into data slots, each delivered when it is full.
    Slots,
    /// A small object: head and body come into one data slot and are delivered together.
    Whole,
    /// The body stays in the socket: whoever drives the connection moves it on ([`Action::Move`])
    /// and says how far that got.
    Stream,
}

/// A 64-bit digest (FNV-1a) of an ETag: enough to notice that an answer belongs to another version.
/// The server has compared the tag itself (`If-Match`); this guards against one that did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtagDigest(u64);

impl EtagDigest {
    /// Digest of a tag as headers and listings give it, with quotes or without them; a weak one
    /// (`W/`) counts as its strong form.
    #[must_use]
    pub fn of(etag: &[u8]) -> Self {
        let strong = etag.strip_prefix(b"W/").unwrap_or(etag);
        let inner = strong.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        Self(inner.unwrap_or(strong).iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// What happened to the operation that an action asked for.
pub enum Event<'a> {
    /// The socket is connected.
    Connected,
    /// The socket leads to a proxy, and a CONNECT of this length stands in the control buffer.
    Tunnel {
        /// Length in bytes.
        length: u32,
    },
    /// The request with this length stands in the control buffer.
    Written {
        /// Length in bytes.
        length: u32,
    },
    /// So many bytes were sent.
    Sent(u32),
    /// So many bytes came; 0 is the end of the stream. `buffer` is the target's whole content.
    Received(u32, &'a [u8]),
    /// Headers were dropped: so many bytes are left in the buffer, whose whole content this is.
    Dropped(u32, &'a [u8]),
    /// Chunks were decoded: so many body bytes stand where they began, in the buffer whose whole
    /// content this is.
    Decoded(u32, &'a [u8]),
    /// The operation failed.
    Failed(Errno),
    /// So many body bytes were moved on; 0 is the end of the stream.
    Moved(u64),
    /// The operation was ended because its time was over.
    Expired,
    /// The same of a receive, of which so many bytes had come.
    Cut(u32),
    /// The layer below failed in its own way.
    Fault(Failure),
}

impl fmt::Debug for Event<'_> {
    /// Lengths only: a buffer may hold a request with its session token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("Connected"),
            Self::Tunnel { length } => write!(f, "Tunnel({length})"),
            Self::Written { length } => write!(f, "Written({length})"),
            Self::Sent(count) => write!(f, "Sent({count})"),
            Self::Received(count, buffer) => write!(f, "Received({count} of {})", buffer.len()),
            Self::Dropped(left, buffer) => write!(f, "Dropped({left} of {})", buffer.len()),
            Self::Decoded(count, buffer) => write!(f, "Decoded({count} of {})", buffer.len()),
            Self::Failed(errno) => write!(f, "Failed({errno:?})"),
            Self::Moved(count) => write!(f, "Moved({count})"),
            Self::Expired => f.write_str("Expired"),
            Self::Cut(count) => write!(f, "Cut({count})"),
            Self::Fault(failure) => write!(f, "Fault({failure:?})"),
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Make a socket and connect it.
    Connect,
    /// The proxy has opened its tunnel: begin TLS in it.
    Secure,
    /// Write the request for this range into the control buffer; `None` for a whole object.
    Write(Option<ByteRange>),
    /// Send bytes of the control buffer.
    Send {
        /// First byte.
        at: u32,
        /// How many.
        length: u32,
    },
    /// Receive into a buffer.
    Receive {
        /// Which.
        target: Target,
        /// First byte.
        at: u32,
        /// How many at most.
        length: u32,
        /// Wait for all of them.
        fill: bool,
    },
    /// Take from the first bytes of a buffer, a head as far as it has come, the headers that do not
    /// count ([`crate::link::http::drop_headers`]).
    DropHeaders {
        /// Which.
        target: Target,
        /// How many bytes.
        filled: u32,
    },
    /// Decode chunks that came into a buffer where they are ([`Conn::decode`]).
    Decode {
        /// Which.
        target: Target,
        /// First byte.
        at: u32,
        /// How many.
        length: u32,
    },
    /// Copy body bytes that came with the head from the control buffer to the data slot.
    Copy {
        /// First byte in the control buffer.
        from: u32,
        /// First byte in the data slot.
        to: u32,
        /// How many.
        length: u32,
    },
    /// Bytes of the data slot are bytes of the object: take the slot away and write it.
    Deliver {
        /// First byte in the data slot.
        at: u32,
        /// How many.
        length: u32,
        /// Their offset in the object.
        offset: u64,
    },
    /// Move the body on, piece by piece: first what came with the head, then what is in the socket.
    Move {
        /// Where body bytes begin in the control buffer.
        from: u32,
        /// How many there are.
        length: u32,
    },
    /// All bytes of the ask have been delivered.
    Finished,
    /// The attempt failed; the ask and what was reached stay here until [`Conn::resume`] or
    /// [`Conn::forget`]. For [`Failure::Status`] the error body stands in the buffer. Unless
    /// [`Self::Close`] follows, the connection is kept.
    Fail {
        /// Why.
        failure: Failure,
        /// The error answer's body, where there is one.
        body: Option<BufferRange>,
    },
    /// Close the socket.
    Close,
}

/// A piece of one of the connection's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferRange {
    /// Which buffer.
    pub target: Target,
    /// First byte.
    pub at: u32,
    /// How many.
    pub length: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_tells_no_bytes() {
        assert_eq!(format!("{:?}", Event::Received(3, &[83; 9])), "Received(3 of 9)");
    }
}
