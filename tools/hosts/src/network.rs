//! Connections of one worker: what they wait for, what has come and was not read.

use std::collections::VecDeque;
use std::sync::Arc;

use inrush::files::file_download::FileDownload;
use inrush::s3::ByteRange;

/// A socket's receive buffer in bytes: as Linux lets it grow (tcp_rmem, third value).
const RECEIVE_BUFFER: f64 = 6_291_456.0;

/// A range on its way over one connection.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) download: Arc<FileDownload>,
    pub(crate) range: ByteRange,
    pub(crate) begins_us: u64,
    /// Bytes a second that come at most.
    pub(crate) rate: f64,
    pub(crate) is_answered: bool,
    /// Bytes that have not come yet.
    pub(crate) left: f64,
    /// Bytes that have come and were not read.
    pub(crate) unread: f64,
    /// Bytes of the slot that is being filled; `None` without one.
    pub(crate) slot: Option<f64>,
    /// Bytes of it that were read.
    pub(crate) read: f64,
}

impl Flight {
    pub(crate) fn length(&self) -> f64 {
        exact(self.range.length)
    }

    /// Bytes that may come in `seconds` seconds.
    pub(crate) fn wish(&self, seconds: f64, now_us: u64) -> f64 {
        if self.begins_us > now_us {
            return 0.0;
        }
        (self.rate * seconds).min(self.left).min(RECEIVE_BUFFER - self.unread).max(0.0)
    }

    /// True when there is something to read, or to be filled.
    pub(crate) fn wants_slot(&self) -> bool {
        self.slot.is_none() && self.unread > 0.0
    }
}

/// Where a worker's bytes come from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Side {
    pub(crate) interface: usize,
    /// Whether the interface is on the node where the worker runs.
    pub(crate) is_near: bool,
}

/// One worker's side.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    pub(crate) side: Side,
    pub(crate) flights: Vec<Flight>,
    pub(crate) ready: VecDeque<inrush::engine::schedule::Assignment>,
    pub(crate) free_slots: usize,
    /// Processor time that it has left in this step, in microseconds; what was too much is owed.
    pub(crate) left_us: f64,
    pub(crate) used_us: f64,
    /// Bytes that came, and those of them that were read.
    pub(crate) came: f64,
    pub(crate) bytes: f64,
    pub(crate) asked: u64,
    pub(crate) asked_bytes: u64,
    pub(crate) answers: u64,
    pub(crate) first_byte_us: u64,
    /// Requests that have ended, and how long they took together, in microseconds.
    pub(crate) ended: u64,
    pub(crate) ended_us: u64,
}

impl Crew {
    pub(crate) fn spend(&mut self, time_us: f64) {
        self.left_us -= time_us;
        self.used_us += time_us;
    }
}

/// Numbers of bytes are exact below 2^53.
pub(crate) fn exact(bytes: u64) -> f64 {
    let (high, low) = (u32::try_from(bytes >> 32), u32::try_from(bytes & 0xffff_ffff));
    f64::from(high.unwrap_or(u32::MAX)) * 4_294_967_296.0 + f64::from(low.unwrap_or(u32::MAX))
}
