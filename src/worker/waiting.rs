//! For whom a worker waits, for those who tell it.

use super::Worker;
use super::lane::{Lane, LaneState};
use crate::host::FileHost;
use crate::limits::{WAIT_LOOK_US, WAIT_TOLD_AFTER_US, WAIT_TOLD_BODY_AFTER_US};
use crate::peers::Phase;
use crate::sys::Ring;
use crate::transfer::Shape;
use crate::waiting::Wait;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Shows the connection that has waited for longest, if that is long enough to be told.
    pub(super) fn show_waiting(&mut self) {
        if self.now_us < self.wait_look_us {
            return;
        }
        self.wait_look_us = self.now_us + WAIT_LOOK_US;
        let waited = self.lanes.iter().filter_map(|lane| {
            let elapsed_us = lane.waited_us(self.now_us, self.clock.now_us())?;
            Some((elapsed_us, lane))
        });
        let longest = waited.max_by_key(|(elapsed_us, _)| *elapsed_us);
        let wait = longest.map(|(elapsed_us, lane)| Wait {
            whom: lane.object().endpoint.host.clone(),
            what: format!("to answer GET {}", lane.told_range()),
            tries: lane.attempts.tries(),
            elapsed_us,
            retry_for_us: self.retries.retry_for_us,
            why: lane.last_failure.map_or_else(String::new, |failure| failure.to_string()),
        });
        self.gauge.show_wait(wait);
    }
}

impl Lane {
    /// How long it has waited for the network in vain, if that is long enough to be told. Failures
    /// go by the host's time, an operation in flight by the worker's clock.
    fn waited_us(&self, now_us: u64, clock_us: u64) -> Option<u64> {
        let waits = match self.state {
            LaneState::Backoff { .. } => true,
            LaneState::Busy => self.in_flight,
            _ => false,
        };
        if !waits {
            return None;
        }
        let in_flight_us = clock_us.saturating_sub(self.submitted_us);
        let (elapsed_us, least_us) = match self.attempts.failing_since_us() {
            Some(since_us) => (now_us.saturating_sub(since_us), WAIT_TOLD_AFTER_US),
            None if self.phase() == Phase::Body => (in_flight_us, WAIT_TOLD_BODY_AFTER_US),
            None => (in_flight_us, WAIT_TOLD_AFTER_US),
        };
        Some(elapsed_us).filter(|elapsed_us| *elapsed_us >= least_us)
    }

    /// Its object, and its bytes where they are not all.
    pub(super) fn told_range(&self) -> String {
        let transfer = self.object();
        match transfer.shape {
            Shape::Ranges => {
                let last = self.bytes.offset + self.bytes.length - 1;
                format!("{} bytes {}-{last}", transfer.name(), self.bytes.offset)
            }
            _ => transfer.name(),
        }
    }
}
