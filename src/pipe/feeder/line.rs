//! One connection of a feeder: its socket, its private pipe, and what it is to bring.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use super::late::Step;
use crate::attempt::Attempts;
use crate::conn::Conn;
use crate::failure::Failure;
use crate::host::PrivatePipe;
use crate::limits::CONTROL_SLOT_BYTES;
use crate::peers::{LateEnd, OpenConnection, Times};
use crate::s3::Endpoint;
use crate::sys::Handle;
use crate::tls::session::{Fault, Session};
use crate::transfer::Transfer;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineState {
    /// It may be given a range.
    Free,
    /// It has a range that is not wholly received.
    Busy,
    /// It waits before the next try.
    Backoff {
        /// Until when.
        until_us: u64,
    },
    /// All is received; some of it is still in its pipe.
    Received,
}

/// What the ring does for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing.
    None,
    /// A connect.
    Connect,
    /// Waits for the socket to be readable.
    Readable,
    /// Waits for the socket to be writable.
    Writable,
}

/// One connection of a feeder.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) conn: Conn,
    pub(super) state: LineState,
    pub(super) pending: Pending,
    pub(super) expired: bool,
    pub(super) deadline_us: u64,
    /// When the operation in flight was submitted.
    pub(super) submitted_us: u64,
    /// The step that it waited for last.
    pub(super) last_step: Option<Step>,
    /// How long its range has waited for the network.
    pub(super) times: Times,
    /// How often its range was moved from a late connection to another.
    pub(super) moves: u32,
    /// Its attempt is ended because it is late beside others, not after its timeout.
    pub(super) late_end: Option<LateEnd>,
    /// The socket has said that it is readable since the last time that nothing came.
    pub(super) readable: bool,
    /// The private pipe takes no more.
    pub(super) full: bool,
    /// Bytes in the private pipe.
    pub(super) in_pipe: u64,
    pub(super) pipe: Option<PrivatePipe>,
    pub(super) socket: Option<Handle>,
    /// Where it is connected to.
    pub(super) address: Option<SocketAddr>,
    /// Counts as open there, for all feeders.
    pub(super) open: Option<OpenConnection>,
    /// Address that failed it last: the next connection goes to another, if there is one.
    pub(super) other_than: Option<SocketAddr>,
    pub(super) endpoint: Option<Arc<Endpoint>>,
    pub(super) transfer: Option<Arc<Transfer>>,
    pub(super) epoch: u64,
    /// Version of the keys that signed its last request.
    pub(super) keys_version: u64,
    /// Tries in a row that brought nothing.
    pub(super) attempts: Attempts,
    /// Why the last of them failed.
    pub(super) last_failure: Option<Failure>,
    pub(super) idle_since_us: u64,
    /// What the connection asks for: bytes of `control` to send, or to receive into.
    pub(super) want: Want,
    /// Requests on their way out, heads on their way in.
    pub(super) control: Vec<u8>,
    /// The session, over TLS, and the buffer under it.
    pub(super) session: Option<Session>,
    pub(super) cipher: Vec<u8>,
    /// What was decrypted last, and which part of it is not in the private pipe yet.
    pub(super) piece: Vec<u8>,
    pub(super) unwritten: Range<usize>,
    /// What went wrong with it last, for the error.
    pub(super) fault: Option<Fault>,
    /// When the connection must have been made, handshake included.
    pub(super) connected_by_us: u64,
}

/// What a line waits to do once its socket allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing.
    Nothing,
    /// Send these bytes of the control buffer.
    Send {
        /// From.
        at: u32,
        /// How many.
        length: u32,
    },
    /// Receive (a head, or an error's body) into the control buffer.
    Receive {
        /// From.
        at: u32,
        /// At most so many.
        length: u32,
    },
    /// Move the body on.
    Move,
    /// Get a session of TLS.
    Handshake,
    /// Send an encrypted request of this length.
    Flush {
        /// Before encryption.
        length: u32,
    },
}

impl Line {
    /// A line without socket and pipe.
    pub(super) fn new() -> Self {
        Self {
            conn: Conn::new(CONTROL_SLOT_BYTES),
            state: LineState::Free,
            pending: Pending::None,
            expired: false,
            deadline_us: 0,
            submitted_us: 0,
            last_step: None,
            times: Times::default(),
            moves: 0,
            late_end: None,
            readable: false,
            full: false,
            in_pipe: 0,
            pipe: None,
            socket: None,
            address: None,
            open: None,
            other_than: None,
            endpoint: None,
            transfer: None,
            epoch: 0,
            keys_version: 0,
            attempts: Attempts::default(),
            last_failure: None,
            idle_since_us: 0,
            want: Want::Nothing,
            control: vec![0; CONTROL_SLOT_BYTES as usize],
            session: None,
            cipher: Vec::new(),
            piece: Vec::new(),
            unwritten: 0..0,
            fault: None,
            connected_by_us: 0,
        }
    }

    /// Drops the socket, with nothing of it in flight.
    pub(super) fn hang_up(&mut self) {
        self.conn.reset();
        self.close();
        self.want = Want::Nothing;
    }

    /// Drops the socket and what was on it.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.address = None;
        self.open = None;
        self.endpoint = None;
        self.session = None;
        self.unwritten = 0..0;
        self.readable = false;
    }

    /// Drops everything: what it brought is not wanted any more. A pipe with bytes in it goes too.
    pub(super) fn discard(&mut self) {
        self.hang_up();
        if self.in_pipe > 0 {
            self.pipe = None;
            self.in_pipe = 0;
        }
        self.full = false;
        self.transfer = None;
        self.state = LineState::Free;
    }

    /// The object of a busy line.
    pub(super) fn object(&self) -> Arc<Transfer> {
        Arc::clone(self.transfer.as_ref().expect("a busy line has an object"))
    }
}
