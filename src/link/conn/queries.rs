//! Queries of a connection's state, for its driver.

use super::{Comparison, Conn, EtagDigest, Manner, State};
use crate::limits::{
    CONNECT_TIMEOUT_US, FIRST_BYTE_TIMEOUT_US, RECEIVE_LOW_WATER_BYTES_MAX, STALL_TIMEOUT_US,
};
use crate::link::attempt::Timeouts;
use crate::link::failure::Failure;

impl Conn {
    /// True while the head of an answer is incomplete.
    #[must_use]
    pub fn awaits_head(&self) -> bool {
        matches!(self.state, State::Sending { .. } | State::Head { .. })
    }

    /// True while the body of an error answer is read. It decides what follows, so it gets its full
    /// time.
    #[must_use]
    pub fn reads_refusal(&self) -> bool {
        matches!(self.state, State::Refusal { .. })
    }

    /// True while bytes come that are not part of the requested body: their duration says nothing
    /// about bodies.
    #[must_use]
    pub fn is_beside_body(&self) -> bool {
        matches!(self.state, State::Skip { .. } | State::End { .. })
    }

    /// Sets what the next answer is if it has no ETag; `None`: it needs none.
    pub fn set_without_etag(&mut self, failure: Option<Failure>) {
        self.without_etag = failure;
    }

    /// Sets whether the next request accepts gzip.
    pub fn set_accepts_gzip(&mut self, accepts_gzip: bool) {
        self.accepts_gzip = accepts_gzip;
    }

    /// True while the connection is not established.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting | State::Tunnel { .. } | State::TunnelHead { .. })
    }

    /// True once bytes of the requested body have come, or all of them.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        let is_body = matches!(
            self.state,
            State::WithHead { .. }
                | State::Body { .. }
                | State::Piece { .. }
                | State::WholeBody { .. }
                | State::End { .. }
        );
        self.ask.is_none() || is_body
    }

    /// True when it can take an ask.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.ask.is_none() && matches!(self.state, State::Idle | State::Closed)
    }

    /// True when it has a socket and no request.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// True when every action has been taken.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.taken == self.queued
    }

    /// ETag of the answers to the last ask, or the listed one.
    #[must_use]
    pub fn etag(&self) -> Option<EtagDigest> {
        self.etag
    }

    /// `Last-Modified` of the answers to the last ask that had no ETag.
    #[must_use]
    pub fn last_modified(&self) -> Option<EtagDigest> {
        self.last_modified
    }

    /// The checksum of the whole object in the answers to the last ask.
    #[must_use]
    pub fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    /// Low-water mark for a receive of `length`, in bytes (`SO_RCVLOWAT`). More than one only while
    /// at least as many bytes follow it: a tail shorter than the mark would never wake the receive.
    #[must_use]
    pub fn low_water(&self, length: u32, fill: bool) -> u32 {
        // A small object comes in one receive, with nothing after it.
        let ask = self.ask.filter(|ask| ask.manner == Manner::Slots);
        let left = ask.map_or(0, |ask| ask.range.length - self.reached);
        let mark = RECEIVE_LOW_WATER_BYTES_MAX.min(self.slot_length / 2);
        let enough = left >= u64::from(length) + u64::from(mark);
        if fill && enough { mark } else { 1 }
    }

    /// Bytes of the ask that have been received.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Bytes of the ask at the start of the data slot that are not delivered.
    #[must_use]
    pub fn undelivered(&self) -> u32 {
        let fills_slots = self.ask.is_some_and(|ask| ask.manner == Manner::Slots);
        if fills_slots { self.slot_position() } else { 0 }
    }

    /// Timeout of the operation in flight, in microseconds.
    #[must_use]
    pub fn timeout_us(&self, timeouts: Timeouts) -> u64 {
        let (given_us, usual_us) = match self.state {
            _ if self.is_connecting() => (timeouts.connect_us, CONNECT_TIMEOUT_US),
            State::Sending { .. } | State::Head { .. } | State::Asking => {
                (timeouts.read_us, FIRST_BYTE_TIMEOUT_US)
            }
            _ => (timeouts.read_us, STALL_TIMEOUT_US),
        };
        given_us.unwrap_or(usual_us)
    }

    /// Least body bytes of the current answer that are still to be received or moved; of a chunked
    /// one only those that are decoded and not moved. 0 without a body.
    #[must_use]
    pub fn body_left(&self) -> u64 {
        match self.state {
            State::Piece { count, .. } => u64::from(count),
            _ if self.is_chunked() => 0,
            State::Body { left } => left,
            State::WholeBody { head, filled } => {
                u64::from(head) + self.current().size - u64::from(filled)
            }
            _ => 0,
        }
    }
}
