//! Requests ranges that are far behind their peers a second time, on another address.
//!
//! While all connections are busy, a late connection ends its own attempt and requests the missing
//! bytes elsewhere, at most [`MOVES_MAX`] times per range, each time after twice the wait. If a
//! connection is free, it becomes a rival instead.
//!
//! The late connection and its rival share one range. The first that has bytes of it (an answer's
//! head, or the next piece of a body) keeps it; the other is ended before any of the winner's bytes
//! are delivered, so no byte is written twice. A rival begins at the first byte that was not
//! delivered. Into a client's memory the winner receives only once the kernel has given back the
//! other's operation there; the request does not complete before that, whatever happens to the
//! winner. A connection that is being ended wins only with everything that its operation was to
//! receive, because a part had arrived before it was late, and nothing since. The budget of both is
//! [`HEDGES_PER_100_REQUESTS_MAX`] and one for each connection. If neither helps, the attempt is
//! ended and counted like a timeout, after [`STUCK_FACTOR`] times the usual duration, doubled for
//! each further attempt.
//!
//! [`HEDGES_PER_100_REQUESTS_MAX`]: crate::limits::HEDGES_PER_100_REQUESTS_MAX
//! [`STUCK_FACTOR`]: crate::limits::STUCK_FACTOR

use std::sync::Arc;

use super::Worker;
use super::connection::ConnectionState;
use super::job::Rivalry;
use super::link::Link;
use crate::engine::peers::{self, EndpointAddress, LateEnd, Phase};
use crate::files::host::FileHost;
use crate::limits::{HEDGE_LOOK_US, MOVES_MAX, UNHEARD_AFTER_US};
use crate::link::conn::Manner;
use crate::s3::ByteRange;
use crate::sys::Ring;

/// What to do about the latest connection.
#[derive(Debug, Clone, Copy)]
enum LateRemedy {
    Hedge,
    Move,
    /// End its attempt, as by its timeout.
    End,
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Requests late ranges a second time.
    pub(super) fn hedge(&mut self) {
        let clock_us = self.clock.now_us();
        if clock_us < self.hedge_look_us {
            return;
        }
        self.hedge_look_us = clock_us + HEDGE_LOOK_US;
        let left = self.is_within_budget();
        // While the server asks for fewer requests, no range is requested twice at once.
        let has_free = [false, true].map(|by_client| self.has_room(by_client));
        // A rival may need the only slot, which the late connection has.
        let has_slot = self.data.free() > 0;
        let (mut busy, mut late, mut latest) = (0usize, 0usize, None);
        for (index, connection) in self.connections.iter().enumerate() {
            busy += usize::from(!connection.is_free());
            let Some(by_us) = self.late_by_us(index) else { continue };
            late += 1;
            let job = connection.state.job();
            let by_client = job.into.is_paced_by_client();
            let is_slowed = self.share.is_slowed(job.endpoint, self.now_us);
            let has_free = has_free[usize::from(by_client)] && has_slot && !is_slowed;
            // A silent address has served nothing: away from it no byte is requested twice.
            let may_move = left || self.is_unheard(index) && self.is_heard_elsewhere(index);
            let remedy = match (job.rival(), has_free) {
                _ if self.is_stuck(index) => LateRemedy::End,
                // Another request for the rest would get all of it again.
                _ if job.object().listed.is_whole_only() => continue,
                // The second one is no better; the one that stays may get another rival.
                (Some(rival), _) if self.late_by_us(rival).is_some() => LateRemedy::End,
                (None, true) if left => LateRemedy::Hedge,
                (None, false) if may_move && job.moves < MOVES_MAX => LateRemedy::Move,
                _ => continue,
            };
            if latest.is_none_or(|(_, worst_us, _)| by_us > worst_us) {
                latest = Some((index, by_us, remedy));
            }
        }
        let Some((index, _, remedy)) = latest else { return };
        // If not all are late, or another address has answered, this address is silent; so it may
        // be if there is only one connection.
        let is_there =
            self.is_unheard(index) && (busy == 1 || late < busy || self.is_heard_elsewhere(index));
        let is_general = !is_there && peers::is_general(late, busy, self.connections.len());
        if is_general && !matches!(remedy, LateRemedy::End) {
            return;
        }
        self.hedge_look_us = clock_us;
        match remedy {
            LateRemedy::Hedge => self.start_hedge(index),
            LateRemedy::Move => self.end_late(index, LateEnd::Move),
            LateRemedy::End => self.end_late(index, LateEnd::Stuck),
        }
    }

    fn is_within_budget(&self) -> bool {
        let asked_again = self.metrics.sent.hedges + self.metrics.sent.moves;
        peers::is_within_budget(asked_again, self.metrics.sent.requests, self.connections.len())
    }

    /// True if a connection's range may be requested a second time.
    pub(super) fn may_ask_again(&self, index: usize) -> bool {
        let endpoint = self.connections[index].state.job().endpoint;
        self.is_within_budget()
            && self.data.free() > 0
            && !self.share.is_slowed(endpoint, self.now_us)
    }

    /// How long a connection's operation has been late, in microseconds; `None` if it is not.
    fn late_by_us(&self, index: usize) -> Option<u64> {
        let connection = &self.connections[index];
        let ConnectionState::Busy(job) = &connection.state else { return None };
        let operation = connection.operation.as_ref()?;
        let conn = &connection.conn;
        if operation.is_ending()
            || conn.reads_refusal()
            || conn.is_beside_body()
            || job.awaits_room()
        {
            return None;
        }
        let elapsed_us = self.clock.now_us().saturating_sub(operation.submitted_us);
        let usual_us = self.paces.late_after_us(self.phase(index), job.moves);
        let late_after_us = usual_us.unwrap_or(UNHEARD_AFTER_US << job.moves);
        let is_late = elapsed_us >= late_after_us && (usual_us.is_some() || self.is_unheard(index));
        is_late.then(|| elapsed_us - late_after_us)
    }

    /// True if a connection waits for an address without a success since its last failure, and its
    /// endpoint has others: before the usual time of an answer is known, this may be the only
    /// address that does not answer.
    fn is_unheard(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let ConnectionState::Busy(job) = &connection.state else { return false };
        let is_answering = Phase::of(&connection.conn) == Phase::Body;
        let is_unheard = |place: EndpointAddress| !self.addresses.is_good(place.address);
        !is_answering
            && job.server().has_several_addresses()
            && connection.place().is_some_and(is_unheard)
    }

    /// The phase that a connection's operation is judged by.
    fn phase(&self, index: usize) -> Phase {
        let connection = &self.connections[index];
        let phase = Phase::of(&connection.conn);
        match connection.state.job().manner() {
            Manner::Whole => self.paces.phase_of_whole(phase),
            _ => phase,
        }
    }

    /// True if ranges came from another address of its endpoint.
    fn is_heard_elsewhere(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let at = connection.link.as_ref().map(Link::address);
        let endpoint = connection.state.job().server();
        let others = endpoint.addresses().into_iter().filter(|address| Some(*address) != at);
        others.into_iter().any(|address| self.addresses.is_good(address))
    }

    /// True if it is so late that the attempt is over, as after its timeout.
    fn is_stuck(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let Some(operation) = &connection.operation else { return false };
        let tries = connection.state.job().attempts.tries();
        let after_us = self.paces.stuck_after_us(self.phase(index), tries);
        after_us.is_some_and(|after_us| self.clock.now_us() - operation.submitted_us > after_us)
    }

    pub(super) fn start_hedge(&mut self, late: usize) {
        let connection = &self.connections[late];
        let job = connection.state.job();
        let endpoint = Arc::clone(job.server());
        let at = connection.link.as_ref().map(Link::address);
        let bytes = job.bytes;
        let etag = connection.conn.etag().or(job.object().etag);
        let delivered = self.delivered(late);
        // Bytes that are fetched again are no progress.
        let attempts = job.attempts.without_first(delivered);
        let left = ByteRange { offset: bytes.offset + delivered, length: bytes.length - delivered };
        let by_client = job.into.is_paced_by_client();
        let mut job = job.for_rest(left, attempts);
        let is_unanswered = connection.is_unanswered();
        // Prefer an idle connection to another address, or one that this address has answered.
        let elsewhere = self.free.iter().rposition(|free| {
            let connection = &self.connections[*free];
            let is_other = |link: &Link| {
                let is_answered = is_unanswered && link.open().answers() > 0;
                link.leads_to(&endpoint) && (Some(link.address()) != at || is_answered)
            };
            connection.conn.is_idle() && connection.link.as_ref().is_some_and(is_other)
        });
        let index = match elsewhere {
            Some(position) => self.free.remove(position),
            None => match self.free_connection(by_client, &endpoint) {
                Some(index) => index,
                // There is no room any more.
                None => return,
            },
        };
        if elsewhere.is_none() {
            self.hang_up(index);
        }
        job.other_than = at;
        job.rivalry = Rivalry::HedgeOf(late);
        self.connections[index].begin(job, etag);
        self.connections[late].state.job_mut().rivalry = Rivalry::HedgedBy(index);
        self.metrics.sent.hedges += 1;
        if let Some(ticket) = self.connections[late].state.job().into.ticket() {
            ticket.inbox().note_hedge();
        }
        self.drive(index);
    }

    /// A connection has received bytes of a range that two requested: it keeps the range.
    pub(super) fn won(&mut self, index: usize) {
        let job = self.connections[index].state.job_mut();
        let loser = match std::mem::replace(&mut job.rivalry, Rivalry::Alone) {
            Rivalry::Alone => return,
            Rivalry::HedgedBy(loser) => loser,
            Rivalry::HedgeOf(loser) => {
                self.metrics.hedges_won += 1;
                // If both use one address that answers, the connection alone may be slow.
                let winners = self.connections[index].place();
                if let Some(place) = self.connections[loser].place()
                    && winners != Some(place)
                {
                    self.addresses.failed(place, self.now_us);
                }
                loser
            }
        };
        self.release(loser);
    }

    /// Takes its range from a connection that lost it; the range is not settled by that.
    pub(super) fn release(&mut self, index: usize) {
        self.end_waiting(index);
        let job = self.connections[index].state.job();
        let range = job.range;
        if job.state.is_parked() {
            self.leave_queues(index);
        }
        let connection = &mut self.connections[index];
        let Some(operation) = &connection.operation else { return self.released(index) };
        let fills = operation.fills_loan().then_some(range);
        if let Some(range) = fills {
            // The kernel may write there until it gives the operation back.
            self.ranges.job_begins(range);
        }
        connection.state = ConnectionState::Lost { fills };
        self.end_early(index);
    }

    /// The operation of a connection that lost its range has ended.
    pub(super) fn released(&mut self, index: usize) {
        let fills = match self.connections[index].state {
            ConnectionState::Lost { fills } => fills,
            _ => None,
        };
        self.hang_up(index);
        self.connections[index].let_go(self.now_us);
        self.free.push(index);
        if let Some(range) = fills {
            self.write_ended(range);
        }
    }
}
