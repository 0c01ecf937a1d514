//! What a controller does before anything is known: it requests more small objects at once while
//! they wait for their first answer. Pure.

use super::{Controller, Stage};
use crate::engine::pace::Totals;
use crate::engine::pace::timeline::Change;
use crate::engine::pace::window::Measured;
use crate::limits::{
    PACE_LEAP_BYTES_MAX, PACE_LEAP_FIRST_BYTE_US, PACE_LEAP_QUEUE_FACTOR, PACE_ROUND_FIRST_BYTES,
    PACE_UNANSWERED_MAX,
};

impl Controller {
    /// Small objects without early answers only wait, regardless of their number: requests four
    /// times as many before anything is measured.
    pub(super) fn leap_unanswered(&mut self, now_us: u64, totals: &Totals) {
        let Stage::First { filled_us, .. } = &mut self.stage else { return };
        // None has failed: all requests sent are still in flight.
        let is_in_flight = totals.asked <= u64::from(totals.busy);
        let is_unanswered = self.answered.is_none() && totals.refused == 0 && is_in_flight;
        let requests = self.levels.requests(self.level);
        let is_sent = totals.asked * 8 >= u64::from(requests) * 7;
        let is_small = totals.asked_bytes <= totals.asked * PACE_LEAP_BYTES_MAX;
        if !(is_unanswered && is_sent && is_small && totals.is_bound) {
            return;
        }
        let since_us = *filled_us.get_or_insert(now_us);
        let to = self.levels.of((requests * 4).min(PACE_UNANSWERED_MAX));
        if now_us < since_us + PACE_LEAP_FIRST_BYTE_US || to <= self.level {
            return;
        }
        self.stage = Stage::First { filled_us: None, has_leapt: true };
        self.level = to;
        self.climbed_from = to;
        self.record(now_us, Change::More, 0);
        self.begin_window(now_us, 0);
    }

    /// Takes the first measurement: the leap before any answer may have been too far.
    pub(super) fn begun(&mut self, now_us: u64, has_leapt: bool, measured: Measured) {
        self.stage = Stage::Climb { below: None, again: false };
        // How long the first ones waited, and how long one takes now (Little's law).
        let alone_us = self.answered.map_or(0, |(_, first_byte_us)| first_byte_us);
        let requests = u64::from(self.levels.requests(self.level));
        let in_flight_bytes = requests * measured.request_bytes;
        let takes_us = in_flight_bytes * 1_000_000 / measured.bytes_per_second.max(1);
        if !has_leapt || takes_us < alone_us * PACE_LEAP_QUEUE_FACTOR {
            return self.climbed(now_us, None, false, measured);
        }
        // Too far: they queue somewhere. This many are served while one waits.
        self.levels.note(self.level, measured.work, now_us);
        let served = u32::try_from(requests * alone_us / takes_us.max(1)).unwrap_or(u32::MAX);
        let level = self.levels.of(served.max(self.bounds.start));
        self.climbed_from = level;
        self.go_to(now_us, level, Change::Back, measured);
    }

    /// True if the first measurement can begin. At first requests connect, and a stream's later
    /// ranges arrive before they can be passed on. Their goodput shows once each has brought a
    /// piece or a small object, or, with long waits for the first byte, once they have ended.
    pub(super) fn is_begun(&self, now_us: u64, wanted: u64, totals: &Totals) -> bool {
        let pieces = totals.bytes / self.bounds.piece_bytes;
        if totals.answers < wanted || (totals.answers < wanted * 2 && pieces < wanted) {
            return false;
        }
        let long_us = self.first_byte_us * PACE_ROUND_FIRST_BYTES;
        let is_long = self.answered.is_some_and(|(first_us, _)| now_us >= first_us + long_us);
        is_long || totals.ended * 2 >= wanted || totals.answers >= wanted * 2
    }
}
