//! One connection of a worker: its state, its socket, its buffers.

use std::sync::Arc;

use super::job::Job;
use super::link::Link;
use super::operation::Operation;
use super::secure::Security;
use crate::engine::peers::EndpointAddress;
use crate::link::conn::{Ask, BufferRange, Conn, EtagDigest, Target};
use crate::sys::{Op, Slot};

/// The state of a connection.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a range is moved within its connection, not allocated"
)]
pub(super) enum ConnectionState {
    /// Available for a range.
    Free { since_us: u64 },
    /// It has a range.
    Busy(Job),
    /// Another connection has taken its range over; its operation must still end.
    Lost {
        /// The range, if the operation fills memory of a client, which cannot be returned before.
        fills: Option<usize>,
    },
}

impl ConnectionState {
    /// The range of a busy connection.
    pub(super) fn job(&self) -> &Job {
        let Self::Busy(job) = self else { unreachable!("only a busy connection has a range") };
        job
    }

    /// The range of a busy connection, mutable.
    pub(super) fn job_mut(&mut self) -> &mut Job {
        let Self::Busy(job) = self else { unreachable!("only a busy connection has a range") };
        job
    }
}

/// A buffer of a connection, which may be in an operation.
#[derive(Debug)]
pub(super) struct OwnSlot(Option<Slot>);

impl OwnSlot {
    /// True if it is in an operation.
    pub(super) fn is_lent(&self) -> bool {
        self.0.is_none()
    }

    /// Takes it for an operation.
    pub(super) fn lend(&mut self) -> Slot {
        self.0.take().expect("not in flight")
    }

    /// Takes it back from an operation.
    pub(super) fn put_back(&mut self, slot: Slot) {
        self.0 = Some(slot);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_deref().expect("not in flight")
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().expect("not in flight")
    }
}

/// One connection of a worker.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) conn: Conn,
    pub(super) state: ConnectionState,
    /// Its socket, if open.
    pub(super) link: Option<Link>,
    /// Interface that its latest socket is bound to, if the user named any.
    pub(super) interface: Option<Arc<str>>,
    /// Its operation in flight.
    pub(super) operation: Option<Operation>,
    /// For requests, and for heads of answers to range requests.
    pub(super) control: OwnSlot,
    /// For ciphertext; absent in a run without TLS.
    pub(super) cipher: OwnSlot,
}

impl Connection {
    /// A connection without a socket; with a ciphertext buffer in a run over TLS.
    pub(super) fn new(control: Slot, cipher: Option<Slot>, slot_length: u32) -> Self {
        Self {
            conn: Conn::new(slot_length),
            state: ConnectionState::Free { since_us: 0 },
            link: None,
            interface: None,
            operation: None,
            control: OwnSlot(Some(control)),
            cipher: OwnSlot(cipher),
        }
    }

    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, ConnectionState::Free { .. })
    }

    pub(super) fn is_secure(&self) -> bool {
        self.link.as_ref().is_some_and(|link| matches!(link.security, Security::On(_)))
    }

    /// Its address, if it has a socket.
    pub(super) fn place(&self) -> Option<EndpointAddress> {
        self.link.as_ref().map(Link::place)
    }

    /// Its open socket.
    pub(super) fn link(&self) -> &Link {
        self.link.as_ref().expect("it is connected")
    }

    /// Its open socket, mutable.
    pub(super) fn link_mut(&mut self) -> &mut Link {
        self.link.as_mut().expect("it is connected")
    }

    /// Gives it a range, and requests the bytes of this version of the object.
    pub(super) fn begin(&mut self, job: Job, etag: Option<EtagDigest>) {
        self.conn.ask(Ask {
            range: job.bytes,
            size: job.object().listed.size_bytes,
            manner: job.manner(),
            etag,
            last_modified: job.last_modified,
            is_whole_only: job.object().listed.is_whole_only(),
            check: job
                .into
                .download()
                .and_then(|download| download.verification.of_answer(&download.object.listed.etag)),
        });
        self.state = ConnectionState::Busy(job);
    }

    /// Releases it from its range.
    pub(super) fn let_go(&mut self, now_us: u64) {
        self.state = ConnectionState::Free { since_us: now_us };
    }

    /// True for a receive of body bytes directly into the data slot.
    pub(super) fn fills_data(&self, op: &Op) -> bool {
        matches!(op, Op::Receive { .. }) && !self.control.is_lent() && !self.is_secure()
    }

    /// Puts an operation's slot back where it is missing.
    pub(super) fn take_back(&mut self, op: Op) -> Target {
        let Some(slot) = op.into_slot() else { return Target::Control };
        if self.is_secure() {
            self.cipher.put_back(slot);
            return Target::Control;
        }
        if self.control.is_lent() {
            self.control.put_back(slot);
            return Target::Control;
        }
        // Without a range it returns to its pool.
        if let ConnectionState::Busy(job) = &mut self.state {
            job.data = Some(slot);
        }
        Target::Data
    }

    /// Part of a buffer that is not in an operation.
    pub(super) fn piece(&self, piece: BufferRange) -> &[u8] {
        let buffer = match piece.target {
            Target::Control => Some(self.control.bytes()),
            Target::Data => self.state.job().data.as_deref(),
        };
        let (at, end) = (piece.at as usize, (piece.at + piece.length) as usize);
        buffer.map_or(&[], |bytes| &bytes[at..end])
    }
}
