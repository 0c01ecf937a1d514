//! The longest wait of a worker, for messages.

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::{Job, JobState};
use crate::engine::peers::Phase;
use crate::files::host::FileHost;
use crate::limits::{WAIT_LOOK_US, WAIT_REPORTED_AFTER_US, WAIT_REPORTED_BODY_AFTER_US};
use crate::link::waiting::Wait;
use crate::sys::Ring;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Publishes the connection that has waited longest, if that is long enough to be reported.
    /// Lets the host look at what may delay all connections.
    pub(super) fn show_waiting(&mut self) {
        if self.now_us < self.wait_look_us {
            return;
        }
        self.wait_look_us = self.now_us + WAIT_LOOK_US;
        // Ranges that wait for a stream's reader have nothing in flight.
        if self.busy() > 0 && self.rest_us().is_none() {
            self.host.watch_machine();
        }
        let waited = self.connections.iter().filter_map(|connection| {
            let ConnectionState::Busy(job) = &connection.state else { return None };
            let elapsed_us = connection.waited_us(job, self.now_us, self.clock.now_us())?;
            Some((elapsed_us, job))
        });
        let parked = self.parked.iter().filter_map(|parked| {
            let elapsed_us = self.now_us.saturating_sub(parked.job.attempts.failing_since_us()?);
            (elapsed_us >= WAIT_REPORTED_AFTER_US).then_some((elapsed_us, &parked.job))
        });
        let longest = waited.chain(parked).max_by_key(|(elapsed_us, _)| *elapsed_us);
        let wait = longest.map(|(elapsed_us, job)| Wait {
            whom: job.awaited_host(),
            what: format!("to answer GET {}", job.range_in_words()),
            tries: job.attempts.tries(),
            elapsed_us,
            retry_for_us: self.retries.retry_for_us,
            why: job.last_failure.map_or_else(String::new, |failure| failure.to_string()),
            may_prompt: false,
        });
        self.gauge.board.set_range(wait);
    }
}

impl Connection {
    /// How long it has waited for the network, if that is long enough to be reported. Failures are
    /// timed by the host's clock, an operation in flight by the worker's.
    fn waited_us(&self, job: &Job, now_us: u64, clock_us: u64) -> Option<u64> {
        let submitted_us = self.operation.as_ref().map(|operation| operation.submitted_us);
        let is_waiting = submitted_us.is_some() || matches!(job.state, JobState::Backoff { .. });
        if !is_waiting || job.awaits_room() {
            return None;
        }
        let (elapsed_us, least_us) = match job.attempts.failing_since_us() {
            Some(since_us) => (now_us.saturating_sub(since_us), WAIT_REPORTED_AFTER_US),
            None => {
                let is_body = Phase::of(&self.conn) == Phase::Body;
                let least_us =
                    if is_body { WAIT_REPORTED_BODY_AFTER_US } else { WAIT_REPORTED_AFTER_US };
                (clock_us.saturating_sub(submitted_us?), least_us)
            }
        };
        Some(elapsed_us).filter(|elapsed_us| *elapsed_us >= least_us)
    }
}

impl Job {
    /// Its object, and its bytes unless they are all of it.
    pub(super) fn range_in_words(&self) -> String {
        let object = self.object();
        match self.bytes.length < object.listed.size_bytes {
            true => {
                let last = self.bytes.offset + self.bytes.length - 1;
                format!("{} bytes {}-{last}", object.name(), self.bytes.offset)
            }
            false => object.name(),
        }
    }
}
