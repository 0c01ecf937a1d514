//! What a worker waits for while its ring sleeps, determined once per turn.

use super::Worker;
use crate::engine::metrics::WaitFor;
use crate::engine::schedule::Supply;
use crate::files::host::FileHost;
use crate::limits::FILE_JOBS_MAX;
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

    /// Publishes the counts if they were requested.
    pub(super) fn publish_counts(&mut self) {
        let asked = self.gauge.snapshot.asked();
        if asked == self.answered {
            return;
        }
        self.answered = asked;
        let mut metrics = self.metrics.clone();
        metrics.addresses = self.addresses.counts();
        metrics.connections = self.connections.len() as u64;
        metrics.processor = self.host.processor_time();
        self.gauge.snapshot.publish(asked, metrics);
    }
}
