//! Ranges that wait for their next try without a connection: what one endpoint refuses, or cannot
//! bring now, takes no connection that another endpoint could use.
//!
//! Only where there are several endpoints; else a range keeps its connection, for nobody else wants
//! it. What comes first is what was parked: new ranges of its endpoint wait behind it.

use std::sync::Arc;

use super::Worker;
use super::job::Job;
use crate::engine::endpoints::{EndpointNumber, EndpointSet};
use crate::engine::schedule::Supply;
use crate::error::Error;
use crate::files::host::FileHost;
use crate::limits::ENDPOINTS_MAX;
use crate::link::conn::{EtagDigest, Manner};
use crate::s3::ByteRange;
use crate::sys::Ring;

/// A range that waits for its next try.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) job: Job,
    /// The version that it was answered with, or was listed with.
    etag: Option<EtagDigest>,
    until_us: u64,
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Takes the range from a connection that waits for its next try, where another endpoint could
    /// use the connection. One whose client says how many are in flight keeps it: that client has
    /// connections enough.
    pub(super) fn park(&mut self, index: usize, until_us: u64) {
        let several = self.scheduler.endpoints().are_several();
        let connection = &self.connections[index];
        let job = connection.state.job();
        let (delivered, bytes) = (self.delivered(index), job.bytes);
        let is_full = self.parked.len() >= self.connections_max;
        if !several || is_full || job.into.is_paced_by_client() || delivered >= bytes.length {
            return;
        }
        let left = ByteRange { offset: bytes.offset + delivered, length: bytes.length - delivered };
        let rest = job.for_next_try(left, job.attempts.without_first(delivered));
        let parked =
            Parked { job: rest, etag: connection.conn.etag().or(job.object().etag), until_us };
        self.connections[index].conn.forget();
        self.end_moving(index);
        self.connections[index].let_go(self.now_us);
        self.free.push(index);
        self.parked.push_back(parked);
    }

    /// How many bytes of a connection's range need not be asked for again.
    pub(super) fn delivered(&self, index: usize) -> u64 {
        let connection = &self.connections[index];
        match connection.state.job().manner() {
            Manner::Slots => connection.conn.reached() / self.slot_length * self.slot_length,
            Manner::Whole => 0,
            Manner::Stream => connection.conn.reached(),
        }
    }

    /// Goes on with parked ranges whose time has come, and gives up those that nobody wants.
    pub(super) fn resume_parked(&mut self) {
        for _ in 0..self.parked.len() {
            let Some(parked) = self.parked.pop_front() else { return };
            if let Some(error) = self.failure_of_job(&parked.job) {
                self.give_up_parked(&parked.job, error);
            } else if parked.until_us > self.now_us || !self.resume(&parked) {
                self.parked.push_back(parked);
            } else {
                self.begin_again(parked);
            }
        }
    }

    /// Takes the right to go on with a parked range.
    fn resume(&mut self, parked: &Parked) -> bool {
        let endpoint = parked.job.endpoint;
        let may = self.has_room(false) && self.share.may_send_again(endpoint, self.now_us);
        if may {
            // Its bytes are charged already.
            self.share.sent(endpoint, self.now_us, 0);
        }
        may
    }

    fn begin_again(&mut self, parked: Parked) {
        let Parked { job, etag, until_us } = parked;
        let endpoint = Arc::clone(&job.object().endpoint);
        let Some(index) = self.free_connection(false, &endpoint) else {
            self.parked.push_back(Parked { job, etag, until_us });
            return;
        };
        self.begin_on(index, job, etag);
    }

    /// Gives up all of them.
    pub(super) fn give_up_all_parked(&mut self, reason: &Error) {
        while let Some(parked) = self.parked.pop_front() {
            self.give_up_parked(&parked.job, reason.clone());
        }
    }

    fn give_up_parked(&mut self, job: &Job, error: Error) {
        match job.into.ticket() {
            None => job.object().fail(error),
            Some(_) => self.ranges.purpose_mut(job.range).fail(error),
        }
        if self.ranges.fetched(job.range) {
            self.end_range(job.range);
        }
    }

    /// When the first parked range may go on, in microseconds from now; one that waits for a
    /// connection is woken by what ends.
    pub(super) fn parked_wait_us(&self) -> Option<u64> {
        let until = self.parked.iter().filter_map(|parked| {
            let until_us = parked.until_us.max(self.share.next_again_us(parked.job.endpoint));
            until_us.checked_sub(self.now_us).filter(|wait_us| *wait_us > 0)
        });
        until.min()
    }

    /// When the first endpoint that is slowed may be asked again, in microseconds from now, where
    /// ranges of it may be waiting.
    pub(super) fn slowed_wait_us(&self) -> Option<u64> {
        let endpoints = self.scheduler.endpoints();
        // Of several endpoints the ranges may be with the scheduler, which was told to keep them.
        if self.ready.is_empty() && !(endpoints.are_several() && self.supply == Supply::Paced) {
            return None;
        }
        let waits = (0..endpoints.count().max(1)).filter_map(|index| {
            let next_us = self.share.next_us(EndpointNumber::at(index));
            next_us.checked_sub(self.now_us).filter(|wait_us| *wait_us > 0)
        });
        waits.min()
    }

    /// The endpoints that no new range is asked of now: those that asked for less and have had it,
    /// and those of which as many ranges are parked as may be in flight. None where there is only
    /// one: whatever waits then, waits for that one.
    pub(super) fn held_endpoints(&self) -> EndpointSet {
        let endpoints = self.scheduler.endpoints();
        let mut held = EndpointSet::EMPTY;
        if !endpoints.are_several() {
            return held;
        }
        let mut parked = [0; ENDPOINTS_MAX];
        for Parked { job, .. } in &self.parked {
            parked[job.endpoint.index()] += 1;
        }
        let most = self.share.room(0);
        for endpoint in (0..endpoints.count()).map(EndpointNumber::at) {
            let is_slowed = self.now_us < self.share.next_again_us(endpoint);
            if is_slowed || parked[endpoint.index()] >= most {
                held.insert(endpoint);
            }
        }
        held
    }
}
