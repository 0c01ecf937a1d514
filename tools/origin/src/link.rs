//! What a connection, its requests and its bodies know of each other: what is to happen next.
//!
//! Not here: who decides it (`handle.rs`, `body.rs`) and who does it (`gate.rs`, `tunnel.rs`,
//! `wire.rs`).

use std::cell::Cell;
use std::time::Duration;

use crate::pace::Own;

/// What a connection, its requests and its bodies know of each other.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Close with a reset instead of an orderly end.
    pub(crate) reset: Cell<bool>,
    /// What becomes of the next head.
    pub(crate) head_act: Cell<Option<HeadAct>>,
    /// What the session is to do now.
    pub(crate) act: Cell<Option<Act>>,
    /// Plaintext of one record, where it is smaller than usual.
    pub(crate) record_bytes: Cell<Option<usize>>,
    /// Whether TLS is spoken.
    pub(crate) secured: Cell<bool>,
    /// Whether its keys can be renewed.
    pub(crate) renewable: Cell<bool>,
    /// The pace of this connection.
    pub(crate) own_pace: Cell<Own>,
    /// Through which of the addresses the client came, in the order of the configuration.
    pub(crate) address_index: usize,
}

impl Link {
    pub(crate) fn new(address_index: usize) -> Self {
        Self { address_index, ..Self::default() }
    }
}

/// What becomes of the next head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadAct {
    /// It comes in pieces.
    Drip { bytes: usize, pause: Duration },
    /// `count` interim answers come before it.
    Interim { status: u16, count: u32 },
    /// Its Content-Length is wrong by this.
    Length { by: i32 },
}

/// What a session does in the middle of an answer that no server should, or only some do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// A fatal alert, then the end.
    Alert,
    /// An orderly end of the session, on a connection that stays open.
    CloseNotify,
    /// The end of the connection without one of the session.
    Cut,
    /// The next record cannot be opened.
    Garbage,
    /// New keys.
    KeyUpdate,
}

impl Act {
    /// Whether no further bytes of the answer follow.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Alert | Self::CloseNotify | Self::Cut)
    }
}
