//! Ranges that wait for their retry without a connection, so that the pauses of one endpoint take
//! no connection that another could use. A retry needs a connection again; if nothing answers, for
//! as long as a connect may take.
//!
//! Only with several endpoints, or if a server answers a limited number of connections
//! ([`super::unserved`]); otherwise a range keeps its connection, because nothing else needs it.
//! Parked ranges go first: new ranges of their endpoint wait behind them. Each endpoint has its
//! share of the places, which no other can fill, and of the leases that parked requests hold.

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

/// A range that waits for its retry.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) job: Job,
    /// The version of its last answer, or of the listing.
    etag: Option<EtagDigest>,
    until_us: u64,
}

/// Most parked ranges of a worker with this many connections: as many as connections, plus the
/// unused shares of other endpoints.
pub(super) const fn parked_max(connections: usize) -> usize {
    2 * connections + ENDPOINTS_MAX
}

/// Numbers of parked ranges, by endpoint.
#[derive(Debug)]
struct Counts {
    all: usize,
    ranges: [usize; ENDPOINTS_MAX],
    /// Parked ranges with a reserved lease.
    leases: [usize; ENDPOINTS_MAX],
}

/// What the endpoints of a worker share.
#[derive(Debug, Clone, Copy)]
struct Means {
    endpoints: usize,
    connections: usize,
    /// Requests that may be in flight now.
    share: usize,
    leases: usize,
}

impl Means {
    /// Places reserved for one endpoint.
    fn places(&self) -> usize {
        (self.connections / self.endpoints.max(1)).max(1)
    }
}

impl Counts {
    fn none() -> Self {
        Self { all: 0, ranges: [0; ENDPOINTS_MAX], leases: [0; ENDPOINTS_MAX] }
    }

    fn add(&mut self, endpoint: EndpointNumber, has_lease: bool) {
        self.all += 1;
        self.ranges[endpoint.index()] += 1;
        self.leases[endpoint.index()] += usize::from(has_lease);
    }

    /// True if one more of this endpoint finds a place: a shared one or one of its own.
    fn has_place(&self, endpoint: EndpointNumber, means: Means) -> bool {
        self.all < means.connections || self.ranges[endpoint.index()] < means.places()
    }

    /// True if no new range of this endpoint may begin: it has its share of the places or of the
    /// leases, or it has some and no shared place is left.
    fn holds(&self, endpoint: EndpointNumber, means: Means) -> bool {
        let (ranges, leases) = (self.ranges[endpoint.index()], self.leases[endpoint.index()]);
        let most = means.share.min(means.places()).max(1);
        let is_full = self.all >= means.connections;
        ranges >= most
            || is_full && ranges > 0
            || leases > 0 && leases * means.endpoints >= means.leases
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    fn parked_counts(&self) -> Counts {
        let mut counts = Counts::none();
        for Parked { job, .. } in &self.parked {
            let client = self.ranges.client(job.range);
            let has_lease = client.is_some_and(|client| client.request.wants_lease());
            counts.add(job.endpoint, has_lease);
        }
        counts
    }

    fn means(&self) -> Means {
        Means {
            endpoints: self.scheduler.endpoints().count(),
            connections: self.connections_max,
            share: self.share.room(0),
            leases: self.leases.most(),
        }
    }

    /// Takes the range from a connection that waits for its retry, if another endpoint could use
    /// the connection. A range whose client controls the requests in flight keeps it, because that
    /// client has connections enough.
    pub(super) fn park(&mut self, index: usize, until_us: u64) {
        let several = self.scheduler.endpoints().are_several();
        if several && !self.connections[index].state.job().into.is_paced_by_client() {
            self.set_aside(index, until_us);
        }
    }

    /// Parks the range of a connection that waits for its retry; false if there is no place for it.
    pub(super) fn set_aside(&mut self, index: usize, until_us: u64) -> bool {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let (delivered, bytes) = (self.delivered(index), job.bytes);
        let has_place = || self.parked_counts().has_place(job.endpoint, self.means());
        if delivered >= bytes.length || !has_place() {
            return false;
        }
        let left = ByteRange { offset: bytes.offset + delivered, length: bytes.length - delivered };
        let mut rest = job.for_next_try(left, job.attempts.without_first(delivered));
        rest.last_modified = connection.conn.last_modified();
        let parked =
            Parked { job: rest, etag: connection.conn.etag().or(job.object().etag), until_us };
        self.connections[index].conn.forget();
        self.end_moving(index);
        self.connections[index].let_go(self.now_us);
        self.free.push(index);
        self.parked.push_back(parked);
        true
    }

    /// Bytes of a connection's range that need not be requested again.
    pub(super) fn delivered(&self, index: usize) -> u64 {
        let connection = &self.connections[index];
        match connection.state.job().manner() {
            Manner::Slots => connection.conn.reached() / self.slot_length * self.slot_length,
            Manner::Whole => 0,
            Manner::Stream => connection.conn.reached(),
        }
    }

    /// Resumes parked ranges whose time has come, and gives up cancelled ones.
    pub(super) fn resume_parked(&mut self) {
        for _ in 0..self.parked.len() {
            let Some(mut parked) = self.parked.pop_front() else { return };
            if let Some(error) = self.failure_of_job(&parked.job) {
                self.give_up_parked(&parked.job, error);
            } else if parked.until_us > self.now_us || !self.resume(&mut parked) {
                self.parked.push_back(parked);
            } else {
                self.begin_again(parked);
            }
        }
    }

    /// Takes the right to resume a parked range. If the endpoint's rate delays it, it waits for its
    /// turn.
    fn resume(&mut self, parked: &mut Parked) -> bool {
        let endpoint = parked.job.endpoint;
        if !self.has_room(false) || self.is_full(endpoint) {
            return false;
        }
        let may = self.share.may_send_again(endpoint, self.now_us);
        if may {
            // Its bytes are charged already.
            self.share.sent(endpoint, self.now_us, 0);
        } else {
            parked.until_us = self.share.next_again_us(endpoint);
            let wait_us = parked.until_us.saturating_sub(self.now_us);
            parked.job.attempts.waits_for_turn(wait_us, self.retries);
        }
        may
    }

    fn begin_again(&mut self, parked: Parked) {
        let Parked { job, etag, until_us } = parked;
        let endpoint = Arc::clone(job.server());
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
        self.ranges.fail(job.range, error);
        if self.ranges.fetched(job.range) {
            self.end_range(job.range);
        }
    }

    /// When the first parked range may resume, in microseconds from now; one that waits for a
    /// connection is woken when one is freed.
    pub(super) fn parked_wait_us(&self) -> Option<u64> {
        let until = self.parked.iter().filter_map(|parked| {
            let until_us = parked.until_us.max(self.share.next_again_us(parked.job.endpoint));
            until_us.checked_sub(self.now_us).filter(|wait_us| *wait_us > 0)
        });
        until.min()
    }

    /// When the first slowed endpoint may be sent to again, in microseconds from now, if ranges of
    /// it may be waiting.
    pub(super) fn slowed_wait_us(&self) -> Option<u64> {
        let endpoints = self.scheduler.endpoints();
        // With several endpoints the ranges may still be with the scheduler.
        if self.ready.is_empty() && !(endpoints.are_several() && self.supply == Supply::Paced) {
            return None;
        }
        let waits = (0..endpoints.count().max(1)).filter_map(|index| {
            let next_us = self.share.next_us(EndpointNumber::at(index));
            next_us.checked_sub(self.now_us).filter(|wait_us| *wait_us > 0)
        });
        waits.min()
    }

    /// The endpoints without new requests now: those whose rate is used up, and those with their
    /// share of parked ranges. None if there is only one: then everything waits for that one.
    pub(super) fn held_endpoints(&self) -> EndpointSet {
        let endpoints = self.scheduler.endpoints();
        let mut held = EndpointSet::EMPTY;
        if !endpoints.are_several() {
            return held;
        }
        let (parked, means) = (self.parked_counts(), self.means());
        for endpoint in (0..endpoints.count()).map(EndpointNumber::at) {
            let is_slowed = self.now_us < self.share.next_again_us(endpoint);
            if is_slowed || parked.holds(endpoint, means) {
                held.insert(endpoint);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEANS: Means = Means { endpoints: 3, connections: 1, share: 1, leases: 0 };

    fn three() -> [EndpointNumber; 3] {
        [0, 1, 2].map(EndpointNumber::at)
    }

    #[test]
    fn two_endpoints_that_bring_nothing_leave_the_connections_to_a_third() {
        let [one, other, free] = three();
        for connections in 1..100 {
            for share in 0..=connections {
                let means = Means { connections, share, ..MEANS };
                let mut parked = Counts::none();
                // All requests that each endpoint may have in flight fail at once, in either order.
                for busy in [one, other] {
                    for _ in 0..connections / 2 + 1 {
                        if parked.has_place(busy, means) {
                            parked.add(busy, false);
                        }
                    }
                    assert!(parked.ranges[busy.index()] > 0, "{connections}: it has a place");
                }
                assert!(parked.has_place(free, means) && !parked.holds(free, means));
                let is_held = |busy| parked.holds(busy, means);
                assert!(is_held(one) && is_held(other), "{connections} {share}: {parked:?}");
            }
        }
    }

    #[test]
    fn what_is_parked_is_bounded() {
        for connections in 1..100 {
            for endpoints in 2..=ENDPOINTS_MAX {
                let means = Means { endpoints, connections, ..MEANS };
                let mut parked = Counts::none();
                for endpoint in (0..endpoints).map(EndpointNumber::at) {
                    while parked.has_place(endpoint, means) {
                        parked.add(endpoint, false);
                    }
                }
                assert!(parked.all <= parked_max(connections), "{connections} {endpoints}");
            }
        }
    }

    #[test]
    fn parked_requests_of_an_endpoint_keep_no_more_leases_than_its_part() {
        let [busy, free, _] = three();
        let means = Means { endpoints: 2, connections: 64, share: 64, leases: 8 };
        let mut parked = Counts::none();
        assert!(!parked.holds(busy, Means { leases: 0, ..means }), "it has none");
        for count in 1..=8 {
            parked.add(busy, true);
            assert_eq!(parked.holds(busy, means), count >= 4, "{count} of 8");
            assert!(!parked.holds(free, means));
        }
    }
}
