//! Requests of one priority that nobody has begun: in the order in which they came, but that those
//! which must wait let the others pass.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Assignment;
use crate::engine::lease::Leases;
use crate::engine::request::Errand;

/// Requests of one priority.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// How many are in flight is for their clients to say.
    paced_by_client: VecDeque<Assignment>,
    /// Those that the pace of this engine counts.
    paced_here: VecDeque<Queued>,
    /// Those that need a lease of the worker that takes them, too.
    for_lease: VecDeque<Queued>,
    /// How many have come.
    came: u64,
}

/// A request, and how many had come before it.
#[derive(Debug)]
struct Queued {
    number: u64,
    request: Assignment,
}

impl Waiting {
    pub(super) fn count(&self) -> usize {
        self.paced_by_client.len() + self.paced_here.len() + self.for_lease.len()
    }

    /// Those that wait for a lease.
    pub(super) fn leases_wanted(&self) -> usize {
        self.for_lease.len()
    }

    /// True when there are some that only the pace holds back from a worker with these leases.
    pub(super) fn has_paced(&self, leases: &Leases) -> bool {
        !self.paced_here.is_empty() || !self.for_lease.is_empty() && leases.has_room()
    }

    pub(super) fn push(&mut self, request: Assignment) {
        let errand = request.errand.as_ref();
        let by_client = errand.is_some_and(Errand::is_paced_by_client);
        let for_lease = errand.is_some_and(Errand::wants_lease);
        self.came += 1;
        let number = self.came;
        match (for_lease, by_client) {
            (true, _) => self.for_lease.push_back(Queued { number, request }),
            (false, true) => self.paced_by_client.push_back(request),
            (false, false) => self.paced_here.push_back(Queued { number, request }),
        }
    }

    /// The next one for a worker with these leases, and whether it is paced here; where no more of
    /// those may be, it is not.
    pub(super) fn next(
        &mut self,
        may_be_paced: bool,
        leases: &Arc<Leases>,
    ) -> Option<(Assignment, bool)> {
        if let Some(request) = self.paced_by_client.pop_front() {
            return Some((request, false));
        }
        if !may_be_paced {
            return None;
        }
        let number = |queue: &VecDeque<Queued>| queue.front().map(|queued| queued.number);
        let (lease, other) = (number(&self.for_lease), number(&self.paced_here));
        let is_lease = lease.is_some_and(|lease| other.is_none_or(|other| lease < other));
        if is_lease && let Some(reserved) = leases.reserve() {
            let Queued { mut request, .. } = self.for_lease.pop_front()?;
            let errand = request.errand.as_mut().expect("a request");
            errand.grant(reserved);
            let is_paced = !errand.is_paced_by_client();
            return Some((request, is_paced));
        }
        self.paced_here.pop_front().map(|queued| (queued.request, true))
    }

    /// Takes one out, whatever it waits for.
    pub(super) fn pop(&mut self) -> Option<Assignment> {
        self.paced_by_client.pop_front().or_else(|| {
            let queued = self.paced_here.pop_front().or_else(|| self.for_lease.pop_front());
            queued.map(|queued| queued.request)
        })
    }

    /// Takes those out that were cancelled.
    pub(super) fn take_cancelled(&mut self, into: &mut Vec<Errand>) {
        let mut keeps = |request: &mut Assignment| {
            let errand = request.errand.take_if(|errand| errand.ticket.is_cancelled());
            let keeps = errand.is_none();
            into.extend(errand);
            keeps
        };
        self.paced_by_client.retain_mut(&mut keeps);
        self.paced_here.retain_mut(|queued| keeps(&mut queued.request));
        self.for_lease.retain_mut(|queued| keeps(&mut queued.request));
    }
}
