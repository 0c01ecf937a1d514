//! Requests of one priority that no worker has begun, in order of arrival; those that must wait do
//! not block others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Assignment, Recipient};
use crate::engine::endpoints::{EndpointNumber, EndpointSet};
use crate::engine::lease::Leases;
use crate::engine::request::ClientRequest;
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;

/// A request that no worker has begun.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) object: Arc<ObjectRef>,
    pub(super) range: ByteRange,
    pub(super) request: ClientRequest,
    pub(super) endpoint: EndpointNumber,
}

impl From<QueuedRequest> for Assignment {
    fn from(queued: QueuedRequest) -> Self {
        let QueuedRequest { object, range, request, endpoint } = queued;
        Self { recipient: Recipient::Client { object, request }, range, endpoint }
    }
}

/// Requests by number of arrival: the first is next, and any can be found.
type Queue = BTreeMap<u64, QueuedRequest>;

/// Requests of one priority.
#[derive(Debug, Default)]
pub(super) struct RequestQueues {
    /// Their clients control how many are in flight, and the endpoints' rates.
    paced_by_client: Queue,
    /// The others, by the endpoint's number.
    endpoints: Vec<OfEndpoint>,
}

/// Requests to one endpoint that this engine's pace counts.
#[derive(Debug, Default)]
struct OfEndpoint {
    paced_here: Queue,
    /// Paced requests that also need a lease of the worker that takes them.
    for_lease: Queue,
}

impl OfEndpoint {
    fn queue(&self, for_lease: bool) -> &Queue {
        if for_lease { &self.for_lease } else { &self.paced_here }
    }

    fn queue_mut(&mut self, for_lease: bool) -> &mut Queue {
        if for_lease { &mut self.for_lease } else { &mut self.paced_here }
    }
}

impl RequestQueues {
    pub(super) fn count(&self) -> usize {
        let of = |endpoint: &OfEndpoint| endpoint.paced_here.len() + endpoint.for_lease.len();
        self.paced_by_client.len() + self.endpoints.iter().map(of).sum::<usize>()
    }

    /// Requests that wait for a lease.
    pub(super) fn leases_wanted(&self) -> usize {
        self.endpoints.iter().map(|endpoint| endpoint.for_lease.len()).sum()
    }

    /// True if there are some that only the pace holds back from a worker with these leases.
    pub(super) fn has_paced(&self, leases: &Leases) -> bool {
        let has =
            |for_lease| self.endpoints.iter().any(|endpoint| !endpoint.queue(for_lease).is_empty());
        has(false) || has(true) && leases.has_room()
    }

    /// Adds a request with its number of arrival.
    pub(super) fn push(&mut self, number: u64, queued: QueuedRequest) {
        let request = &queued.request;
        let (for_lease, by_client) = (request.wants_lease(), request.is_paced_by_client());
        request.ticket.set_place(number);
        if by_client && !for_lease {
            self.paced_by_client.insert(number, queued);
            return;
        }
        let index = queued.endpoint.index();
        if self.endpoints.len() <= index {
            self.endpoints.resize_with(index + 1, OfEndpoint::default);
        }
        self.endpoints[index].queue_mut(for_lease).insert(number, queued);
    }

    /// The next request for a worker with these leases, and whether the engine paces it; not one
    /// that is paced unless `may_be_paced`. Endpoints in `passed_over` are skipped for paced ones.
    pub(super) fn next(
        &mut self,
        may_be_paced: bool,
        leases: &Arc<Leases>,
        passed_over: EndpointSet,
    ) -> Option<(QueuedRequest, bool)> {
        if let Some((_, queued)) = self.paced_by_client.pop_first() {
            return Some((queued, false));
        }
        if !may_be_paced {
            return None;
        }
        let first = |for_lease: bool| {
            let endpoints = self.endpoints.iter().enumerate();
            let may_be =
                endpoints.filter(|(index, _)| !passed_over.has(EndpointNumber::at(*index)));
            let firsts = may_be.filter_map(|(index, endpoint)| {
                let (number, _) = endpoint.queue(for_lease).first_key_value()?;
                Some((*number, index))
            });
            firsts.min()
        };
        let (lease, other) = (first(true), first(false));
        if let Some((number, index)) = lease
            && other.is_none_or(|(other, _)| number < other)
            && let Some(reserved) = leases.reserve()
        {
            let (_, mut queued) = self.endpoints[index].for_lease.pop_first()?;
            queued.request.grant(reserved);
            let is_paced = !queued.request.is_paced_by_client();
            return Some((queued, is_paced));
        }
        let (_, index) = other?;
        self.endpoints[index].paced_here.pop_first().map(|(_, queued)| (queued, true))
    }

    fn queues<'a>(&'a mut self) -> impl Iterator<Item = &'a mut Queue> {
        let of = |endpoint: &'a mut OfEndpoint| [&mut endpoint.paced_here, &mut endpoint.for_lease];
        [&mut self.paced_by_client].into_iter().chain(self.endpoints.iter_mut().flat_map(of))
    }

    /// Removes a request, whatever it waits for.
    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        self.queues().find_map(|queue| queue.pop_first().map(|(_, queued)| queued))
    }

    /// Removes the request with this number, if it is here: one look-up per queue.
    pub(super) fn take(&mut self, number: u64) -> Option<QueuedRequest> {
        self.queues().find_map(|queue| queue.remove(&number))
    }

    /// Removes cancelled requests.
    pub(super) fn take_cancelled(&mut self, into: &mut Vec<ClientRequest>) {
        for queue in self.queues() {
            let cancelled = queue.extract_if(.., |_, queued| queued.request.ticket.is_cancelled());
            into.extend(cancelled.map(|(_, queued)| queued.request));
        }
    }
}
