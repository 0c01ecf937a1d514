//! How many connections a worker uses, and when it may ask: its side of the pacer, and what waits
//! for an answer without a slot.

use super::Worker;
use super::connection::Connection;
use super::job::JobState;
use crate::engine::pace::Totals;
use crate::engine::schedule::{Room, Supply};
use crate::files::host::FileHost;
use crate::limits::{SLOTS_EAGER_SHARE, SLOTS_PER_CONNECTION, SLOTS_PER_WORKER_MIN};
use crate::link::failure::RetryReason;
use crate::sys::{Ring, Slot};

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Connections that have something to do.
    pub(super) fn busy(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// How many more may have, of all and of those that are paced here.
    pub(super) fn room(&self) -> Room {
        let busy = self.busy();
        let all = self.connections_max.saturating_sub(busy);
        Room { ranges: self.share.room(busy - self.unpaced.min(busy)).min(all), all }
    }

    /// True when one more may have something to do, of those that are paced by their clients or
    /// here.
    pub(super) fn has_room(&self, by_client: bool) -> bool {
        let room = self.room();
        if by_client { room.all > 0 } else { room.ranges > 0 }
    }

    /// A connection for one more range, if there may be one.
    pub(super) fn free_connection(&mut self, by_client: bool) -> Option<usize> {
        if !self.has_room(by_client) {
            return None;
        }
        Some(self.free.pop().unwrap_or_else(|| {
            let cipher = self.tls.as_ref().map(|(_, pool)| pool.take().expect("a slot each"));
            let control = self.control.take().expect("a control slot each");
            self.connections.push(Connection::new(control, cipher, self.data.slot_length_bytes()));
            self.connections.len() - 1
        }))
    }

    /// A connection for a range of so many bytes that is asked for now.
    pub(super) fn connection_to_ask(&mut self, by_client: bool, bytes: u64) -> Option<usize> {
        if by_client {
            // Its client had the right to send it.
            return self.free_connection(true);
        }
        if !self.has_room(false) || !self.share.may_send(self.now_us) {
            return None;
        }
        let connection = self.free_connection(false)?;
        self.share.sent(self.now_us, bytes);
        Some(connection)
    }

    /// Takes the right to send a connection's request again.
    ///
    /// # Errors
    /// When to ask again, in microseconds.
    pub(super) fn may_resume(&mut self, index: usize) -> Result<(), u64> {
        let into = &self.connections[index].state.job().into;
        if let Some(ticket) = into.ticket().filter(|_| into.is_paced_by_client()) {
            let taken = ticket.inbox().take_request(self.now_us);
            return taken.map_err(|wait_us| self.now_us + wait_us);
        }
        if self.share.may_send_again(self.now_us) {
            // Its bytes are charged already.
            self.share.sent(self.now_us, 0);
            return Ok(());
        }
        Err(self.share.next_again_us())
    }

    /// Tells the pacer what has come.
    pub(super) fn note_pace(&mut self) {
        let more = matches!(self.supply, Supply::Given | Supply::Paced) || !self.ready.is_empty();
        let came = Totals {
            bytes: self.metrics.bytes - self.unpaced_bytes,
            answers: self.metrics.answers - self.unpaced_answers,
            refused: self.metrics.retries[RetryReason::SlowDown as usize],
            first_byte_us: self.metrics.stages.first_byte_us,
            busy: u32::try_from(self.busy().saturating_sub(self.unpaced)).unwrap_or(u32::MAX),
            is_bound: more && !self.has_room(false),
            held_up: u32::try_from(self.held_up()).unwrap_or(u32::MAX),
        };
        self.share.note(self.now_us, came);
    }

    /// A data slot, where the connections that the pace asks for may use one more: memory that no
    /// pace needs is not touched, however far the writes are behind.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        if self.may_use_slot() { self.data.take() } else { None }
    }

    fn may_use_slot(&self) -> bool {
        let connections = self.share.room(0).max(self.busy());
        let most = connections * SLOTS_PER_CONNECTION as usize;
        self.slots_in_use() < most.max(SLOTS_PER_WORKER_MIN)
    }

    /// Data slots that connections and writes have. Those that clients hold are no part of them:
    /// they hold up nothing, and come back when it pleases the clients.
    fn slots_in_use(&self) -> usize {
        (self.data.count() - self.data.free()).saturating_sub(self.leases.held())
    }

    /// Before the ring waits: true when there is a data slot for a connection that waits for one.
    /// If not, a lease that comes back from now on ends the wait.
    pub(super) fn finds_slot(&self) -> bool {
        let is_waiting = !self.slot_queue.is_empty();
        self.leases.want_slot(is_waiting);
        is_waiting && self.data.free() > 0 && self.may_use_slot()
    }

    /// Connections that wait for a slot because the file system is behind. Where it is slow
    /// connections that have the slots, more of them bring more.
    fn held_up(&self) -> usize {
        // Each that does not wait for one has one at most; the others are being written.
        let receiving = self.busy().saturating_sub(self.slot_queue.len());
        if self.slots_in_use() >= receiving * 2 { self.slot_queue.len() } else { 0 }
    }

    /// Whether a small object's request waits for its answer without a data slot: where many of
    /// them are taken, those that are left are for bytes that are there.
    pub(super) fn polls_first(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let taken = self.data.count() - self.data.free();
        let is_scarce = taken * SLOTS_EAGER_SHARE > self.data.count();
        let is_readable = matches!(job.state, JobState::Readable);
        is_scarce && !is_readable && job.data.is_none() && connection.conn.awaits_head()
    }
}
