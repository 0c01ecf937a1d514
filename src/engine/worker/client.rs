//! Ranges requested by clients ([`crate::engine::request`]): how they begin, what is counted for
//! the clients, and how they end.
//!
//! If a client controls its requests in flight, they are not paced here. Their failures fail no
//! object and end no run.

use std::sync::Arc;

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::{Job, JobState, Route};
use super::redirects::RequestTarget;
use super::stream::{Flow, FlowInto};
use crate::engine::metrics::AddressCount;
use crate::engine::request::{Brought, ClientRequest, Destination, Ticket, cancelled};
use crate::engine::schedule::{Assignment, Recipient};
use crate::error::Error;
use crate::files::file_download::{FileDownload, Shape};
use crate::files::host::{FileHost, SlotBytes};
use crate::link::attempt::Attempts;
use crate::link::conn::{EtagDigest, Manner};
use crate::link::object::ObjectRef;
use crate::sys::{Loan, Ring, Slot};

/// The state of a client's range.
#[derive(Debug)]
pub(super) struct ClientRange {
    pub(super) request: ClientRequest,
    /// Why it fails.
    failure: Option<Error>,
    brought: Brought,
}

impl ClientRange {
    /// Nothing of it was requested.
    pub(super) fn new(request: ClientRequest) -> Self {
        Self { request, failure: None, brought: Brought::default() }
    }

    /// Records why it fails; the first reason stays.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Why it fails, if it does.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Completes its request.
    pub(super) fn complete(self) {
        self.request.complete(self.failure.map_or(Ok(()), Err), self.brought);
    }
}

impl Route {
    /// The route of a range's bytes, as its connection sees it.
    pub(super) fn of(recipient: &Recipient) -> Self {
        let (object, request) = match recipient {
            Recipient::File(download) => return Self::File(Arc::clone(download)),
            Recipient::Client { object, request } => (Arc::clone(object), request),
        };
        let ticket = Arc::clone(&request.ticket);
        let into = match &request.into {
            Destination::Pipe(pipe) => FlowInto::Pipe(pipe.clone()),
            Destination::Backlog(range) => FlowInto::Memory(Arc::clone(range)),
            Destination::Handover(pipes) => FlowInto::Handover(Arc::clone(pipes)),
            Destination::Memory(_)
            | Destination::Place(_)
            | Destination::Loan(_)
            | Destination::Lease(_)
            | Destination::Nothing => return Self::Client(object, ticket),
        };
        Self::Stream(object, Flow::new(into, ticket))
    }

    /// The route for a second connection, which requests the rest of the range.
    pub(super) fn of_rival(&self) -> Self {
        match self {
            Self::File(download) => Self::File(Arc::clone(download)),
            Self::Client(object, ticket) => Self::Client(Arc::clone(object), Arc::clone(ticket)),
            Self::Stream(object, flow) => Self::Stream(Arc::clone(object), flow.of_rival()),
        }
    }

    /// How a body is received.
    pub(super) fn manner(&self) -> Manner {
        match self {
            Self::File(download) if download.shape == Shape::Whole => Manner::Whole,
            Self::File(_) | Self::Client(..) => Manner::Slots,
            Self::Stream(..) => Manner::Stream,
        }
    }

    /// The object of the range.
    pub(super) fn object(&self) -> &ObjectRef {
        match self {
            Self::File(download) => &download.object,
            Self::Client(object, _) | Self::Stream(object, _) => object,
        }
    }

    /// The download of the object's file; `None` if there is a client.
    pub(super) fn download(&self) -> Option<&Arc<FileDownload>> {
        match self {
            Self::File(download) => Some(download),
            Self::Client(..) | Self::Stream(..) => None,
        }
    }

    /// True if its client controls the requests in flight.
    pub(super) fn is_paced_by_client(&self) -> bool {
        self.ticket().is_some_and(|ticket| ticket.inbox().is_paced_by_client())
    }

    /// The client's ticket, if there is a client.
    pub(super) fn ticket(&self) -> Option<&Arc<Ticket>> {
        match self {
            Self::File(_) => None,
            Self::Client(_, ticket) => Some(ticket),
            Self::Stream(_, flow) => Some(&flow.ticket),
        }
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Starts a range on a free connection.
    pub(super) fn begin(&mut self, index: usize, assignment: Assignment, target: RequestTarget) {
        let Assignment { recipient, range, .. } = assignment;
        let into = Route::of(&recipient);
        self.unpaced += usize::from(into.is_paced_by_client());
        let etag = into.object().etag;
        let number = self.ranges.insert(recipient, range.offset, self.now_us);
        let RequestTarget { elsewhere, endpoint } = target;
        let mut job = Job::new((into, endpoint), range, number, Attempts::default());
        job.elsewhere = elsewhere;
        self.begin_on(index, job, etag);
    }

    /// Gives a range to a free connection, wherever that is connected now.
    pub(super) fn begin_on(&mut self, index: usize, job: Job, etag: Option<EtagDigest>) {
        let connection = &self.connections[index];
        let endpoint = job.server();
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
        let is_cancelled = || job.into.ticket().is_some_and(|ticket| ticket.is_cancelled());
        let failure = self.ranges.failure(job.range).cloned();
        failure.or_else(|| is_cancelled().then(cancelled))
    }

    /// Fails a connection's range, and its object if that is downloaded to a file.
    pub(super) fn fail_job(&mut self, index: usize, error: Error) {
        self.ranges.fail(self.connections[index].state.job().range, error);
    }

    /// Gives up cancelled requests.
    pub(super) fn give_up_cancelled(&mut self) {
        let cancels = self.scheduler.cancels();
        if self.cancels_seen == cancels {
            return;
        }
        while let Some(at) = self.ready.iter().position(is_cancelled) {
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
        if let Some(client) = self.ranges.client_mut(range) {
            client.brought.from = Some(from);
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
        self.metrics.sent.requests += 1;
        if let Some(client) = self.ranges.client_mut(range) {
            client.brought.requests += 1;
        }
    }

    /// The loan of a connection's range, and the offset of the next piece in it.
    fn loan(&self, index: usize) -> Option<(&Loan, u64)> {
        let ConnectionState::Busy(job) = &self.connections[index].state else { return None };
        let Route::Client(..) = job.into else { return None };
        let Destination::Loan(loan) = &self.ranges.client(job.range)?.request.into else {
            return None;
        };
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
        let Some(client) = self.ranges.client_mut(range) else { return };
        let SlotBytes { slot, at, length } = piece;
        match &mut client.request.into {
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

/// True for a request that its client has cancelled.
pub(super) fn is_cancelled(assignment: &Assignment) -> bool {
    assignment.recipient.request().is_some_and(|request| request.ticket.is_cancelled())
}

/// Ends a request that no connection has.
pub(super) fn refuse(assignment: Assignment, reason: Option<Error>) {
    if let Recipient::Client { request, .. } = assignment.recipient {
        request.refuse(reason);
    }
}
