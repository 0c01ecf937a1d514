//! Ranges requested by clients ([`crate::engine::request`]): how they begin, what is counted for
//! the clients, and how they end.
//!
//! If a client controls its requests in flight, they are not paced here. Their failures fail no
//! object and end no run.

use std::sync::Arc;

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::{Job, JobState, Route};
use super::stream::{Flow, FlowInto};
use crate::engine::metrics::AddressCount;
use crate::engine::request::{Brought, ClientRequest, Destination, Ticket, cancelled};
use crate::engine::schedule::Assignment;
use crate::error::Error;
use crate::files::file_download::Shape;
use crate::files::host::{FileHost, SlotBytes};
use crate::link::attempt::Attempts;
use crate::link::conn::{EtagDigest, Manner};
use crate::sys::{Loan, Ring, Slot};

/// What a range is fetched for.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it stays with its range, and is not allocated")]
pub(super) enum Purpose {
    /// Its object's file, or nothing, depending on the run's sink.
    Sink,
    /// A client.
    Client {
        request: ClientRequest,
        /// Why it fails; the first reason stays.
        failure: Option<Error>,
        brought: Brought,
    },
}

impl Purpose {
    /// The purpose of a range that was handed out.
    pub(super) fn of(client: Option<ClientRequest>) -> Self {
        match client {
            None => Self::Sink,
            Some(request) => Self::Client { request, failure: None, brought: Brought::default() },
        }
    }

    /// Records why it fails.
    pub(super) fn fail(&mut self, error: Error) {
        if let Self::Client { failure, .. } = self {
            failure.get_or_insert(error);
        }
    }

    /// Why it fails, if it does.
    pub(super) fn failure(&self) -> Option<&Error> {
        match self {
            Self::Sink => None,
            Self::Client { failure, .. } => failure.as_ref(),
        }
    }
}

impl Route {
    /// The route of a range's bytes, as its connection sees it.
    pub(super) fn of(purpose: &Purpose, shape: Shape) -> Self {
        let Purpose::Client { request, .. } = purpose else {
            return Self::Sink { is_whole: shape == Shape::Whole };
        };
        let ticket = Arc::clone(&request.ticket);
        match &request.into {
            Destination::Pipe(pipe) => {
                Self::Stream(Flow::new(FlowInto::Pipe(pipe.clone()), ticket))
            }
            Destination::Backlog(range) => {
                Self::Stream(Flow::new(FlowInto::Memory(Arc::clone(range)), ticket))
            }
            Destination::Handover(pipes) => {
                Self::Stream(Flow::new(FlowInto::Handover(Arc::clone(pipes)), ticket))
            }
            Destination::Memory(_)
            | Destination::Place(_)
            | Destination::Loan(_)
            | Destination::Lease(_)
            | Destination::Nothing => Self::Client(ticket),
        }
    }

    /// The route for a second connection, which requests the rest of the range.
    pub(super) fn of_rival(&self) -> Self {
        match self {
            Self::Sink { is_whole } => Self::Sink { is_whole: *is_whole },
            Self::Client(ticket) => Self::Client(Arc::clone(ticket)),
            Self::Stream(flow) => Self::Stream(flow.of_rival()),
        }
    }

    /// How a body is received.
    pub(super) fn manner(&self) -> Manner {
        match self {
            Self::Sink { is_whole: true } => Manner::Whole,
            Self::Sink { is_whole: false } | Self::Client(_) => Manner::Slots,
            Self::Stream(_) => Manner::Stream,
        }
    }

    /// True if its client controls the requests in flight.
    pub(super) fn is_paced_by_client(&self) -> bool {
        self.ticket().is_some_and(|ticket| ticket.inbox().is_paced_by_client())
    }

    /// The client's ticket, if there is a client.
    pub(super) fn ticket(&self) -> Option<&Arc<Ticket>> {
        match self {
            Self::Sink { .. } => None,
            Self::Client(ticket) => Some(ticket),
            Self::Stream(flow) => Some(&flow.ticket),
        }
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Starts a range on a free connection.
    pub(super) fn begin(&mut self, index: usize, assignment: Assignment) {
        let Assignment { download: transfer, range, client, endpoint } = assignment;
        let purpose = Purpose::of(client);
        let into = Route::of(&purpose, transfer.shape);
        self.unpaced += usize::from(into.is_paced_by_client());
        let object = Arc::clone(&transfer);
        let number = self.ranges.insert(object, range.offset, self.now_us, purpose);
        let etag = transfer.object.etag;
        let object = (transfer, endpoint);
        let job = Job::new(object, range, number, into, Attempts::default());
        self.begin_on(index, job, etag);
    }

    /// Gives a range to a free connection, wherever that is connected now.
    pub(super) fn begin_on(&mut self, index: usize, job: Job, etag: Option<EtagDigest>) {
        let connection = &self.connections[index];
        let endpoint = &job.object().object.endpoint;
        let is_other = job.other_than.is_none() || !endpoint.has_several_addresses();
        let same = connection.link.as_ref().is_some_and(|link| {
            link.leads_to(endpoint) && (is_other || job.other_than != Some(link.address()))
        });
        if connection.conn.is_idle() && !same {
            self.hang_up(index);
        }
        self.connections[index].begin(job, etag);
        self.drive(index);
    }

    /// Why a connection's range must not be retried: its object has failed, or its client has
    /// cancelled it.
    pub(super) fn failure_of(&self, index: usize) -> Option<Error> {
        self.failure_of_job(self.connections[index].state.job())
    }

    /// Like [`Self::failure_of`], for a range without a connection.
    pub(super) fn failure_of_job(&self, job: &Job) -> Option<Error> {
        let Some(ticket) = job.into.ticket() else {
            return job.object().failure().cloned();
        };
        let failure = self.ranges.purpose(job.range).failure().cloned();
        failure.or_else(|| ticket.is_cancelled().then(cancelled))
    }

    /// Fails a connection's range, and its object if it has one.
    pub(super) fn fail_job(&mut self, index: usize, error: Error) {
        let job = self.connections[index].state.job();
        match job.into.ticket() {
            None => job.object().fail(error),
            Some(_) => self.ranges.purpose_mut(job.range).fail(error),
        }
    }

    /// Gives up cancelled requests.
    pub(super) fn give_up_cancelled(&mut self) {
        let cancels = self.scheduler.cancels();
        if self.cancels_seen == cancels {
            return;
        }
        let is_cancelled = |one: &mut Assignment| {
            one.client.as_ref().is_some_and(|request| request.ticket.is_cancelled())
        };
        while let Some(at) = self.ready.iter_mut().position(is_cancelled) {
            self.ready.remove(at).into_iter().for_each(|assignment| refuse(assignment, None));
        }
        let mut is_done = true;
        for index in 0..self.connections.len() {
            let Connection { state, operation, .. } = &self.connections[index];
            let ConnectionState::Busy(job) = state else { continue };
            if !job.into.ticket().is_some_and(|ticket| ticket.is_cancelled()) {
                continue;
            }
            is_done = false;
            match operation {
                Some(operation) if operation.is_ending() => {}
                Some(_) => self.end_early(index),
                None => {
                    if matches!(job.state, JobState::ForSlot { .. }) {
                        self.leave_queues(index);
                    }
                    self.give_up(index, &cancelled());
                }
            }
        }
        if is_done {
            self.cancels_seen = cancels;
        }
    }

    /// Records the address and times of a request's range.
    pub(super) fn count_brought(&mut self, range: usize, from: AddressCount) {
        if let Purpose::Client { brought, .. } = self.ranges.purpose_mut(range) {
            brought.from = Some(from);
        }
    }

    /// Counts delivered bytes of a connection's range.
    pub(super) fn count_bytes(&mut self, index: usize, count: u64) {
        self.metrics.bytes += count;
        if self.connections[index].state.job().into.is_paced_by_client() {
            self.unpaced_bytes += count;
        }
    }

    /// Counts an HTTP request for a range.
    pub(super) fn count_request(&mut self, range: usize) {
        self.metrics.requests += 1;
        if let Purpose::Client { brought, .. } = self.ranges.purpose_mut(range) {
            brought.requests += 1;
        }
    }

    /// The loan of a connection's range, and the offset of the next piece in it.
    fn loan(&self, index: usize) -> Option<(&Loan, u64)> {
        let ConnectionState::Busy(job) = &self.connections[index].state else { return None };
        let Route::Client(_) = job.into else { return None };
        let Purpose::Client { request, .. } = self.ranges.purpose(job.range) else { return None };
        let Destination::Loan(loan) = &request.into else { return None };
        Some((loan, job.piece_at - self.ranges.offset(job.range)))
    }

    /// The piece of a client's memory that a connection fills next; outer `None` if its range has
    /// no such memory, inner `None` while it is in use by a connection that lost the range and
    /// whose operation has not ended.
    pub(super) fn lent_piece(&self, index: usize) -> Option<Option<Slot>> {
        let (loan, at) = self.loan(index)?;
        Some(loan.part(at, self.data.slot_length_bytes()))
    }

    /// Resumes connections that waited for a piece of their client's memory.
    pub(super) fn serve_loan_queue(&mut self) {
        for _ in 0..self.loan_queue.len() {
            let Some(index) = self.loan_queue.pop_front() else { return };
            match self.lent_piece(index).flatten() {
                Some(piece) => self.slot_came(index, piece),
                None => self.loan_queue.push_back(index),
            }
        }
    }

    /// Delivers a piece of a client's range: leases its slot, or drops it. In a client's own memory
    /// it is in place already.
    pub(super) fn deliver_to_client(&mut self, range: usize, piece: SlotBytes) {
        let Purpose::Client { request, .. } = self.ranges.purpose_mut(range) else { return };
        let SlotBytes { slot, at, length } = piece;
        match &mut request.into {
            // A range of at most a slot is one piece, whichever connection receives it.
            Destination::Lease(lease) => lease.fill(slot, at as usize..(at + length) as usize),
            Destination::Loan(_) => assert!(slot.is_lent(), "it is received where it belongs"),
            Destination::Nothing
            | Destination::Memory(_)
            | Destination::Place(_)
            | Destination::Pipe(_)
            | Destination::Backlog(_)
            | Destination::Handover(_) => {}
        }
    }
}

/// Ends a request that no connection has.
pub(super) fn refuse(assignment: Assignment, reason: Option<Error>) {
    if let Some(request) = assignment.client {
        request.refuse(reason);
    }
}
