//! The input and output of a [`Conn`]: plain data.

use std::fmt;

#[cfg(doc)]
use super::Conn;
use crate::checksum::AnswerCheck;
use crate::link::failure::Failure;
use crate::s3::ByteRange;
use crate::sys::Errno;

/// One of the connection's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The small one: requests, and heads of answers to range requests.
    Control,
    /// The data slot: bodies, and small answers as a whole.
    Data,
}

/// What to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Bytes of the object. For [`Manner::Whole`] all of them, without a `Range` header.
    pub range: ByteRange,
    /// Size of the whole object in bytes.
    pub size: u64,
    /// How the body is received.
    pub manner: Manner,
    /// The listed ETag, which the answer must have if it has one; `None` if none was listed.
    pub etag: Option<EtagDigest>,
    /// `Last-Modified` of earlier answers without an ETag, which the answer must have if it has
    /// one.
    pub last_modified: Option<EtagDigest>,
    /// The server sends the whole object whatever range is requested, and the range is its rest.
    pub is_whole_only: bool,
    /// How the answer's checksum of the whole object is used; `None` if none is requested. If it
    /// is, a range that covers the whole object is requested without `Range`.
    pub check: Option<AnswerCheck>,
}

/// How a body is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Into data slots, each delivered when it is full.
    Slots,
    /// A small object: head and body are received into one data slot and delivered together.
    Whole,
    /// The body stays in the socket: the driver of the connection moves it on ([`Action::Move`])
    /// and reports the bytes moved.
    Stream,
}

/// A 64-bit digest (FNV-1a) of an ETag, or of a `Last-Modified` where a server sends no ETag:
/// enough to notice that an answer belongs to another version.
/// The server has compared the tag itself (`If-Match`); this guards against servers that do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtagDigest(u64);

impl EtagDigest {
    /// Digest of a tag from a header or a listing, with or without quotes; a weak one (`W/`) equals
    /// its strong form.
    #[must_use]
    pub fn of(etag: &[u8]) -> Self {
        let strong = etag.strip_prefix(b"W/").unwrap_or(etag);
        let inner = strong.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        Self(inner.unwrap_or(strong).iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// The result of the operation that an action requested.
pub enum Event<'a> {
    /// The socket is connected.
    Connected,
    /// The socket leads to a proxy, and a CONNECT of this length is in the control buffer.
    Tunnel {
        /// Length in bytes.
        length: u32,
    },
    /// A request of this length is in the control buffer.
    Written {
        /// Length in bytes.
        length: u32,
    },
    /// Bytes were sent.
    Sent(u32),
    /// Bytes were received; 0 is the end of the stream. `buffer` is the target's whole content.
    Received(u32, &'a [u8]),
    /// Headers were dropped: the number of bytes left in the buffer, and its whole content.
    Dropped(u32, &'a [u8]),
    /// Chunks were decoded in place: the number of body bytes, and the buffer's whole content.
    Decoded(u32, &'a [u8]),
    /// The operation failed.
    Failed(Errno),
    /// Body bytes were moved on; 0 is the end of the stream.
    Moved(u64),
    /// The operation timed out.
    Expired,
    /// A receive timed out after this many bytes.
    Cut(u32),
    /// TLS, below the connection, failed.
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
    /// The proxy has opened its tunnel: start TLS in it.
    Secure,
    /// Write the request for this range into the control buffer; `None` for a whole object.
    Write(Option<ByteRange>),
    /// Send bytes of the control buffer.
    Send {
        /// First byte.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Receive into a buffer.
    Receive {
        /// The buffer.
        target: Target,
        /// First byte.
        at: u32,
        /// Most bytes.
        length: u32,
        /// Wait for all of them.
        fill: bool,
    },
    /// Drop the irrelevant headers from the head, as far as it has come, at the start of a buffer
    /// ([`crate::link::http::drop_headers`]).
    DropHeaders {
        /// The buffer.
        target: Target,
        /// Number of bytes.
        filled: u32,
    },
    /// Decode chunks in place in a buffer ([`Conn::decode`]).
    Decode {
        /// The buffer.
        target: Target,
        /// First byte.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Copy body bytes that came with the head from the control buffer to the data slot.
    Copy {
        /// First byte in the control buffer.
        from: u32,
        /// First byte in the data slot.
        to: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Bytes of the data slot are bytes of the object: take the slot and write it.
    Deliver {
        /// First byte in the data slot.
        at: u32,
        /// Number of bytes.
        length: u32,
        /// Their offset in the object.
        offset: u64,
    },
    /// Move the body on, piece by piece: first the bytes that came with the head, then those in the
    /// socket.
    Move {
        /// Offset of the body bytes in the control buffer.
        from: u32,
        /// Number of body bytes in the control buffer.
        length: u32,
    },
    /// All bytes of the ask have been delivered.
    Finished,
    /// The attempt failed; the ask and the received bytes stay here until [`Conn::resume`] or
    /// [`Conn::forget`]. For [`Failure::Status`] the error body is in the buffer. Unless
    /// [`Self::Close`] follows, the connection stays open.
    Fail {
        /// The reason.
        failure: Failure,
        /// The error answer's body, if there is one.
        body: Option<BufferRange>,
    },
    /// Close the socket.
    Close,
}

/// A part of one of the connection's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferRange {
    /// Which buffer.
    pub target: Target,
    /// First byte.
    pub at: u32,
    /// Number of bytes.
    pub length: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_prints_no_bytes() {
        assert_eq!(format!("{:?}", Event::Received(3, &[83; 9])), "Received(3 of 9)");
    }
}
