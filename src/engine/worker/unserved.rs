//! Servers that answer a limited number of connections: no more are opened, and ranges without a
//! connection wait without one ([`super::parked`]).
//!
//! All workers together find out how many an address serves ([`crate::engine::peers`]). Each may
//! have its share, at least one. If these are more than are served, connections take turns: one is
//! closed after a range, and the server answers another.
//!
//! Ranges paced by clients are exempt: a stream's range keeps its connection until its turn comes,
//! so the current range must not wait for one.

use std::sync::Arc;

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::Job;
use super::link::Link;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::peers::LateEnd;
use crate::files::host::FileHost;
use crate::limits::{SERVED_TURN_US, UNANSWERED_AFTER_US, UNANSWERED_FACTOR, UNANSWERED_LOOK_US};
use crate::s3::Endpoint;
use crate::sys::Ring;

/// Most connections of a worker to an endpoint that serves a limited number.
#[derive(Debug)]
pub(super) struct ServedShare {
    number: EndpointNumber,
    endpoint: Arc<Endpoint>,
    most: usize,
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Finds connections that are not answered while others are, and takes the ranges from the
    /// surplus ones.
    pub(super) fn look_for_unserved(&mut self) {
        let clock_us = self.clock.now_us();
        if clock_us < self.unserved_look_us {
            return;
        }
        self.unserved_look_us = clock_us + UNANSWERED_LOOK_US;
        for connection in &self.connections {
            let Some(waited_us) = self.waited_for_answer_us(connection) else { continue };
            if waited_us >= UNANSWERED_AFTER_US {
                self.addresses.waits(connection.link().open(), waited_us, self.now_us);
            }
        }
        self.use_idle();
        if !self.addresses.has_limited() {
            return;
        }
        self.renew_shares();
        for at in 0..self.served.len() {
            self.end_unserved(at);
        }
    }

    /// Requests the range of an unanswered connection again on an idle one that was answered
    /// before; or closes an idle one, if another worker's connection waits.
    fn use_idle(&mut self) {
        for at in (0..self.free.len()).rev() {
            // One may have been taken meanwhile.
            let Some(index) = self.free.get(at).copied() else { continue };
            let connection = &self.connections[index];
            let ConnectionState::Free { since_us } = connection.state else { continue };
            let Some(link) = connection.link.as_ref().filter(|_| connection.conn.is_idle()) else {
                continue;
            };
            let has_rested = since_us + UNANSWERED_AFTER_US <= self.now_us;
            if link.open().answers() == 0
                || !self.addresses.has_unanswered(link.address(), self.now_us)
            {
                continue;
            }
            let slowest_us = self.addresses.slowest_us(link.address());
            let late_us = slowest_us.map_or(u64::MAX, |us| us * UNANSWERED_FACTOR);
            let waiting = self.connections.iter().position(|waiting| {
                waiting.is_unanswered()
                    && waiting.is_endable()
                    && waiting.link().leads_to(&link.endpoint)
                    && waiting.state.job().rival().is_none()
                    && self.waited_us(waiting) >= UNANSWERED_AFTER_US.max(late_us)
            });
            match waiting {
                Some(waiting) if self.may_ask_again(waiting) => self.start_hedge(waiting),
                // The server then answers one more, and not all connections lose their use.
                None if has_rested => return self.hang_up(index),
                Some(_) | None => {}
            }
        }
    }

    /// How long a connection has waited for an answer: its first one, or another.
    fn waited_for_answer_us(&self, connection: &Connection) -> Option<u64> {
        if connection.is_unanswered() {
            return Some(self.waited_us(connection));
        }
        let ConnectionState::Busy(job) = &connection.state else { return None };
        job.waited_us(self.now_us).filter(|_| connection.conn.awaits_head())
    }

    /// How long it has been connected.
    fn waited_us(&self, connection: &Connection) -> u64 {
        let connected_us = connection.link().connected_us;
        connected_us.map_or(0, |us| self.clock.now_us().saturating_sub(us))
    }

    fn renew_shares(&mut self) {
        let mut shares = std::mem::take(&mut self.served);
        shares.retain_mut(|share| {
            let most = self.addresses.served(&share.endpoint.addresses(), self.now_us);
            share.most = most.unwrap_or(0);
            most.is_some()
        });
        for connection in &self.connections {
            let ConnectionState::Busy(job) = &connection.state else { continue };
            let (number, endpoint) = (job.endpoint, Arc::clone(job.server()));
            if shares.iter().any(|share| share.number == number) {
                continue;
            }
            if let Some(most) = self.addresses.served(&endpoint.addresses(), self.now_us) {
                shares.push(ServedShare { number, endpoint, most });
            }
        }
        self.served = shares;
    }

    /// Ends the waits of the connections opened last: the server takes them in order.
    fn end_unserved(&mut self, at: usize) {
        let ServedShare { number, most, .. } = self.served[at];
        let is_limited = |job: &Job| job.endpoint == number && !job.into.is_paced_by_client();
        for _ in most..self.busy_at(number) {
            let waiting = self.connections.iter().enumerate().filter(|(_, connection)| {
                connection.is_unanswered()
                    && connection.is_endable()
                    && is_limited(connection.state.job())
            });
            let latest = waiting
                .max_by_key(|(_, connection)| connection.link().connected_us.unwrap_or(u64::MAX));
            let Some((index, _)) = latest else { return };
            self.end_late(index, LateEnd::Unserved);
        }
    }

    /// Connections with a range of this endpoint.
    fn busy_at(&self, endpoint: EndpointNumber) -> usize {
        let is_at = |connection: &&Connection| match &connection.state {
            ConnectionState::Busy(job) => job.endpoint == endpoint,
            ConnectionState::Free { .. } | ConnectionState::Lost { .. } => false,
        };
        self.connections.iter().filter(is_at).count()
    }

    /// Its limit of connections, if the endpoint serves a limited number.
    fn served_share(&self, endpoint: EndpointNumber) -> Option<usize> {
        let mut shares = self.served.iter();
        shares.find(|share| share.number == endpoint).map(|share| share.most)
    }

    /// True if it has reached its limit.
    pub(super) fn is_full(&self, endpoint: EndpointNumber) -> bool {
        self.served_share(endpoint).is_some_and(|most| self.busy_at(endpoint) >= most)
    }

    /// True if it exceeds its limit.
    pub(super) fn is_over_full(&self, index: usize) -> bool {
        let job = self.connections[index].state.job();
        let most = self.served_share(job.endpoint).filter(|_| !job.into.is_paced_by_client());
        most.is_some_and(|most| self.busy_at(job.endpoint) > most)
    }

    /// A range of a connection has ended: closes the connection if others wait for an answer.
    pub(super) fn give_way(&mut self, index: usize, endpoint: EndpointNumber) {
        let Some(most) = self.served_share(endpoint) else { return };
        let Some(link) = &self.connections[index].link else { return };
        let (to, clock_us) = (Arc::clone(&link.endpoint), self.clock.now_us());
        let is_open = |connection: &&Connection| {
            connection.link.as_ref().is_some_and(|link| link.leads_to(&to))
        };
        let is_surplus = self.connections.iter().filter(is_open).count() > most;
        let had_turn = link.answered_us.is_some_and(|us| us + SERVED_TURN_US <= clock_us);
        if is_surplus || had_turn && self.addresses.has_unanswered(link.address(), self.now_us) {
            self.hang_up(index);
        }
    }
}

impl Connection {
    /// True if it has a range, and a socket over which nothing was ever answered.
    pub(super) fn is_unanswered(&self) -> bool {
        let is_new = |link: &Link| link.open().answers() == 0;
        matches!(self.state, ConnectionState::Busy(_)) && self.link.as_ref().is_some_and(is_new)
    }

    /// True if it has an operation whose end was not requested.
    fn is_endable(&self) -> bool {
        self.operation.as_ref().is_some_and(|operation| !operation.is_ending())
    }
}
