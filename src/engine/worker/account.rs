//! What a worker waits for while its ring sleeps, and whether that may be long; determined once per
//! turn.

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::operation::Operation;
use crate::engine::metrics::WaitFor;
use crate::engine::schedule::Supply;
use crate::files::host::FileHost;
use crate::limits::{FILE_JOBS_MAX, IDLE_WAIT_MAX_US, REST_WAIT_MAX_US};
use crate::link::failure::RetryReason;
use crate::sys::Ring;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// What the ring is about to sleep for.
    pub(super) fn sleeps_for(&self) -> WaitFor {
        let for_disk = match self.file_jobs > self.writes.count() {
            true => WaitFor::Files,
            false => WaitFor::Writes,
        };
        let busy = self.busy();
        let has_file_work = self.file_jobs > 0 || !self.writes.is_empty();
        if !self.slot_queue.is_empty() {
            // Connections without a slot wait for the disk if the slots are being written.
            return if self.held_up() > 0 { for_disk } else { WaitFor::Memory };
        }
        if self.file_jobs >= FILE_JOBS_MAX || busy == 0 && has_file_work {
            return for_disk;
        }
        if let Some(held) = self.held {
            return held;
        }
        let waiting = usize::try_from(self.metrics.waiting).unwrap_or(usize::MAX);
        if waiting > 0 && waiting * 2 >= busy {
            return match self.metrics.last_retry {
                Some(RetryReason::SlowDown) => WaitFor::Refused,
                _ => WaitFor::Retry,
            };
        }
        let is_behind = self.supply == Supply::Later && self.ready.is_empty();
        match is_behind && self.has_room(false) {
            true if !self.scheduler.is_complete() => match busy {
                0 => WaitFor::Work,
                _ => WaitFor::MoreWork,
            },
            _ if busy == 0 => WaitFor::Nothing,
            _ => WaitFor::Requests,
        }
    }

    /// How long the ring may wait if there is nothing to look at before an event. Shorter while
    /// ranges wait for a stream's reader: its channel may cancel them, and waits for their end.
    pub(super) fn rest_us(&self) -> Option<u64> {
        let rest_us = if self.busy() == 0 { IDLE_WAIT_MAX_US } else { REST_WAIT_MAX_US };
        self.rests().then_some(rest_us)
    }

    /// True if there is no work that its pace delays, no open connection that could be late or idle
    /// for too long, and nothing under way at the file system. Its counter reports work, a stop,
    /// returned slots and room in a stream's memory; the ring reports room in a pipe.
    fn rests(&self) -> bool {
        self.awaiting
            && self.supply != Supply::Paced
            && self.ready.is_empty()
            && self.parked.is_empty()
            && self.slot_queue.is_empty()
            && self.loan_queue.is_empty()
            && self.writes.is_empty()
            && self.file_jobs == 0
            && !self.scheduler.is_stopped()
            && self.connections.iter().all(Connection::rests)
            // Nobody takes it back while it sleeps.
            && !self.gauge.board.has_range()
    }

    /// Publishes the counts if they were requested.
    pub(super) fn publish_counts(&mut self) {
        let asked = self.gauge.snapshot.asked();
        if asked == self.answered {
            return;
        }
        self.answered = asked;
        let mut metrics = self.metrics.clone();
        metrics.sent.addresses = self.addresses.counts();
        metrics.connections = self.connections.len() as u64;
        metrics.processor = self.host.processor_time();
        self.gauge.snapshot.publish(asked, metrics);
    }
}

impl Connection {
    /// True if it is closed, or waits for the reader of a stream, however long.
    fn rests(&self) -> bool {
        match &self.state {
            ConnectionState::Free { .. } => self.link.is_none() && self.operation.is_none(),
            ConnectionState::Busy(job) => {
                let is_endless = |operation: &Operation| operation.deadline_us == u64::MAX;
                job.awaits_room() && self.operation.as_ref().is_none_or(is_endless)
            }
            ConnectionState::Lost { .. } => false,
        }
    }
}
