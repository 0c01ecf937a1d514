//! The messages between a client and the engine of its host, in JSON; several are one packet of a
//! Unix socket that keeps packets apart (unix(7), `SOCK_SEQPACKET`).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};

use crate::errors::Failure;
use crate::info::ObjectInfo;

/// Bytes of a packet, at most. It fits the usual buffer of a Unix socket (net.core.wmem_default,
/// 212,992 bytes) several times.
pub(super) const PACKET_BYTES_MAX: usize = 64 << 10;

/// Bytes of one message, at most: an address with a key of 1,024 bytes, each of them as an escape
/// of six characters, or an error. Longer texts of errors are cut.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Packets that wait to be sent, at most, before nothing more is taken from who does not take them.
const PACKETS_MAX: usize = 64;

/// Questions of one connection that the engine has not answered, at most.
pub(super) const UNANSWERED_MAX: usize = 2048;

/// Another version of the package has other messages: its name of the engine is another one, too.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a client asks. `number` is of its choice; the answer has it, too.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question<'a> {
    /// The first one. `clients`: how many are expected to share the engine.
    Attach { version: Cow<'a, str>, clients: u64 },
    /// What a HEAD says of an object.
    Stat { number: u64, uri: Cow<'a, str> },
    /// A range of an object, into the shared memory from byte `place` on.
    /// Reads of one `group` are parts of one object, and must be of one version.
    Read {
        number: u64,
        object: Cow<'a, ObjectInfo>,
        group: Option<u64>,
        offset: u64,
        length: u64,
        place: u64,
    },
    /// The read of this number is of no use any more; it is answered all the same.
    Cancel { number: u64 },
    /// What limited all reads so far.
    Limit,
}

/// What the engine answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer<'a> {
    /// The first one; with it comes the descriptor of the shared memory.
    Attached {
        process: u32,
    },
    /// Instead of it; the connection is over. `alone`: the client may read by an engine of its own.
    Refused {
        failure: Failure,
        alone: bool,
    },
    Found {
        number: u64,
        object: Cow<'a, ObjectInfo>,
    },
    /// There is no answer to a `Stat`.
    Unfound {
        number: u64,
        failure: Failure,
    },
    Done {
        number: u64,
    },
    Failed {
        number: u64,
        failure: Failure,
    },
    Limit {
        limit: Cow<'a, str>,
    },
}

/// Packets that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    packets: VecDeque<Vec<u8>>,
}

impl Outgoing {
    /// Adds a message to the last packet, or begins another one.
    pub(super) fn push(&mut self, message: &impl Serialize) {
        let text = serde_json::to_vec(message).expect("a message is JSON");
        debug_assert!(text.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", text.len());
        match self.packets.back_mut() {
            Some(last) if last.len() + text.len() <= PACKET_BYTES_MAX => last.extend(text),
            _ => self.packets.push_back(text),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether the other end takes nothing although there is much.
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() > PACKETS_MAX
    }

    /// Sends what the socket takes now.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn flush(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while let Some(packet) = self.packets.front() {
            match send(socket.as_fd(), packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                // A packet is sent as a whole.
                Ok(_) => drop(self.packets.pop_front()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Receives one packet; `Ok(None)` while there is none.
///
/// # Errors
/// The connection is over, or broken.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Option<&[u8]>, Errno> {
    loop {
        match recv(socket.as_fd(), &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Errno::CONNRESET),
            // A packet that is too long would be cut.
            Ok((_, length)) if length > buffer.len() => return Err(Errno::MSGSIZE),
            Ok((_, length)) => return Ok(Some(&buffer[..length])),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}

/// The messages of a packet. One that is none ends them, as an error.
pub(super) fn messages<'a, M: Deserialize<'a>>(
    packet: &'a [u8],
) -> impl Iterator<Item = Result<M, serde_json::Error>> {
    serde_json::Deserializer::from_slice(packet).into_iter()
}
