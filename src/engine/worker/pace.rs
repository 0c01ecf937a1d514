//! How many connections a worker uses, and when it may send: its side of the pacer; and which
//! requests wait for an answer without a slot.

use std::sync::Arc;

use super::Worker;
use super::connection::Connection;
use super::job::{Job, JobState};
use super::redirects::RequestTarget;
use crate::engine::metrics::WaitFor;
use crate::engine::pace::Totals;
use crate::engine::request::ClientRequest;
use crate::engine::schedule::{Assignment, Room, Supply};
use crate::files::host::FileHost;
use crate::limits::{
    FREE_CONNECTIONS_LOOKED_AT_MAX, SLOTS_EAGER_SHARE, SLOTS_PER_CONNECTION, SLOTS_PER_WORKER_MIN,
};
use crate::s3::Endpoint;
use crate::sys::{Ring, Slot};

/// What a range that cannot be requested now waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Its endpoint asked for fewer requests, or answers no more connections.
    ForEndpoint,
    /// A connection, the pace, or the bandwidth: all others of its kind wait, too.
    ForRoom,
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Number of busy connections.
    pub(super) fn busy(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// How many more may become busy, in total and of those paced here.
    pub(super) fn room(&self) -> Room {
        let busy = self.busy();
        let all = self.connections_max.saturating_sub(busy);
        Room { ranges: self.share.room(busy - self.unpaced.min(busy)).min(all), all }
    }

    /// True if one more may become busy, of those paced by clients or here.
    pub(super) fn has_room(&self, by_client: bool) -> bool {
        let room = self.room();
        if by_client { room.all > 0 } else { room.ranges > 0 }
    }

    /// A connection for one more range of this endpoint, if allowed.
    pub(super) fn free_connection(
        &mut self,
        by_client: bool,
        endpoint: &Arc<Endpoint>,
    ) -> Option<usize> {
        if !self.has_room(by_client) {
            return None;
        }
        Some(self.take_free(endpoint).unwrap_or_else(|| {
            let cipher = self.tls.as_ref().map(|(_, pool)| pool.take().expect("a slot each"));
            let control = self.control.take().expect("a control slot each");
            self.connections.push(Connection::new(control, cipher, self.data.slot_length_bytes()));
            self.connections.len() - 1
        }))
    }

    /// Takes a free connection: the last used. With several endpoints, one that is connected there
    /// already, or to none; others are kept while more may be opened, and then the least recently
    /// used is closed.
    fn take_free(&mut self, endpoint: &Arc<Endpoint>) -> Option<usize> {
        let from = self.free.len().saturating_sub(FREE_CONNECTIONS_LOOKED_AT_MAX);
        let link = |index: &usize| self.connections[*index].link.as_ref();
        let leads = |index: &usize| link(index).is_some_and(|link| link.leads_to(endpoint));
        if self.free.last().is_some_and(leads) {
            return self.free.pop();
        }
        let last = &self.free[from..];
        let found =
            last.iter().rposition(leads).or(last.iter().rposition(|index| link(index).is_none()));
        let most = self.connections_max.min(self.share.room(0) * 2);
        match found {
            Some(at) => Some(self.free.remove(from + at)),
            None if self.free.is_empty() || self.connections.len() < most => None,
            None => Some(self.free.remove(0)),
        }
    }

    /// A connection for a range that is requested now.
    ///
    /// # Errors
    /// What it waits for.
    pub(super) fn connection_to_ask(
        &mut self,
        next: &Assignment,
        target: &RequestTarget,
    ) -> Result<usize, Wait> {
        let (to, number) = (target.server(next), target.endpoint);
        if next.recipient.request().is_some_and(ClientRequest::is_paced_by_client) {
            // Its client had the right to send it.
            return self.free_connection(true, to).ok_or(Wait::ForRoom);
        }
        if !self.has_room(false) {
            return Err(Wait::ForRoom);
        }
        if self.is_full(number) {
            return Err(Wait::ForEndpoint);
        }
        if !self.share.may_send(number, self.now_us) {
            let is_endpoint = self.now_us < self.share.next_again_us(number);
            self.held = Some(if is_endpoint { WaitFor::Refused } else { WaitFor::Bandwidth });
            return Err(if is_endpoint { Wait::ForEndpoint } else { Wait::ForRoom });
        }
        let connection = self.free_connection(false, to).ok_or(Wait::ForRoom)?;
        self.share.sent(number, self.now_us, next.range.length);
        Ok(connection)
    }

    /// Takes the right to send a connection's request again. If the endpoint's rate delays it, it
    /// waits for its turn.
    ///
    /// # Errors
    /// When to ask again, in microseconds.
    pub(super) fn resume_in_turn(&mut self, index: usize) -> Result<(), u64> {
        self.may_resume(index).inspect_err(|&until_us| {
            let job = self.connections[index].state.job_mut();
            let wait_us = until_us.saturating_sub(self.now_us);
            job.attempts.waits_for_turn(wait_us, self.retries);
            job.state = JobState::Backoff { until_us };
        })
    }

    fn may_resume(&mut self, index: usize) -> Result<(), u64> {
        let Job { into, endpoint, .. } = self.connections[index].state.job();
        let endpoint = *endpoint;
        if let Some(ticket) = into.ticket().filter(|_| into.is_paced_by_client()) {
            let taken = ticket.inbox().take_request(endpoint, self.now_us);
            return taken.map_err(|wait_us| self.now_us + wait_us);
        }
        if self.share.may_send_again(endpoint, self.now_us) {
            // Its bytes are charged already.
            self.share.sent(endpoint, self.now_us, 0);
            return Ok(());
        }
        Err(self.share.next_again_us(endpoint))
    }

    /// Reports the totals of what it paces to the pacer. Clients report what they pace.
    pub(super) fn note_pace(&mut self) {
        let more = matches!(self.supply, Supply::Given | Supply::Paced) || !self.ready.is_empty();
        let came = Totals {
            bytes: self.metrics.bytes - self.unpaced_bytes,
            first_byte_us: self.metrics.stages.first_byte_us - self.unpaced_first_byte_us,
            ended: self.paced_ranges,
            ended_us: self.paced_ranges_us,
            ended_bytes: self.paced_ranges_bytes,
            busy: u32::try_from(self.busy().saturating_sub(self.unpaced)).unwrap_or(u32::MAX),
            is_bound: more && !self.has_room(false),
            held_up: u32::try_from(self.held_up()).unwrap_or(u32::MAX),
            // The share counts these.
            answers: 0,
            refused: 0,
            asked: 0,
            asked_bytes: 0,
            // Workers have no reader.
            reader_waited_us: 0,
            reader_kept_us: 0,
        };
        self.share.note(self.now_us, came);
    }

    /// Takes a data slot, if the connections that the pace allows may use one more: memory that the
    /// pace does not need is not touched, however far the writes are behind.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        if self.may_use_slot() { self.data.take() } else { None }
    }

    fn may_use_slot(&self) -> bool {
        let connections = self.share.room(0).max(self.busy());
        let most = connections * SLOTS_PER_CONNECTION as usize;
        self.slots_in_use() < most.max(SLOTS_PER_WORKER_MIN)
    }

    /// Data slots of connections and writes, without those leased to clients, which delay nothing
    /// here and return at the clients' pace.
    fn slots_in_use(&self) -> usize {
        (self.data.count() - self.data.free()).saturating_sub(self.leases.held())
    }

    /// Before the ring waits: true if there is a data slot for a connection that waits for one. If
    /// not, a returned lease ends the wait from now on.
    pub(super) fn finds_slot(&self) -> bool {
        let is_waiting = !self.slot_queue.is_empty();
        self.leases.want_slot(is_waiting);
        is_waiting && self.data.free() > 0 && self.may_use_slot()
    }

    /// Connections that wait for a slot because the file system is behind. If slow connections hold
    /// the slots instead, more connections bring more.
    pub(super) fn held_up(&self) -> usize {
        // Each that does not wait for a slot has at most one; the others are being written.
        let receiving = self.busy().saturating_sub(self.slot_queue.len());
        if self.slots_in_use() >= receiving * 2 { self.slot_queue.len() } else { 0 }
    }

    /// True if a small object's request should wait for its answer without a data slot: if many are
    /// taken, the rest is for bytes that have arrived.
    pub(super) fn polls_first(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let taken = self.data.count() - self.data.free();
        let is_scarce = taken * SLOTS_EAGER_SHARE > self.data.count();
        let is_readable = matches!(job.state, JobState::Readable);
        is_scarce && !is_readable && job.data.is_none() && connection.conn.awaits_head()
    }
}
