//! How a controller climbs: it doubles, or leaps, while that pays. Pure.

use super::{Controller, Stage};
use crate::engine::pace::levels::per_mille;
use crate::engine::pace::timeline::Change;
use crate::engine::pace::window::{Measured, whole_rounds};
use crate::limits::{
    PACE_CLEAR_PER_MILLE, PACE_CLIMB_PER_MILLE, PACE_DOWN_PAUSE_US, PACE_FULL_UP_PER_MILLE,
    PACE_KNEE_PER_MILLE, PACE_LEAP_BYTES_MAX, PACE_LEAP_FIRST_BYTE_US, PACE_LEAP_WAIT_PER_MILLE,
    PACE_REQUEST_BYTES, PACE_UNLIKE_FACTOR, PACE_WINDOW_MIN_US,
};

/// Where a climb came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Below {
    pub(super) level: usize,
    /// Bytes per request there.
    request_bytes: u64,
}

impl Below {
    /// True if bytes per request differ too much to compare the two levels.
    fn is_unlike(self, measured: Measured) -> bool {
        let most = self.request_bytes.max(measured.request_bytes);
        let least = self.request_bytes.min(measured.request_bytes).max(PACE_REQUEST_BYTES);
        most > least * PACE_UNLIKE_FACTOR
    }
}

impl Controller {
    /// True if the gain of a step is already so large that the rest of the window cannot change
    /// the decision: the best number is far above, and each step costs time.
    pub(super) fn is_clear(
        &self,
        now_us: u64,
        elapsed_us: u64,
        (pieces, work): (u64, u64),
    ) -> bool {
        // Requests that began together bring their pieces together, so a window shorter than one of
        // them takes at most (see `go_to`) would show too much.
        let requests = u64::from(self.levels.requests(self.level));
        let needed_us = whole_rounds(PACE_WINDOW_MIN_US.max(self.piece_us), self.round_us());
        let is_long = elapsed_us >= needed_us;
        is_long && pieces >= requests && self.is_far_more(now_us, work)
    }

    /// True if this step of a climb has brought nearly all that it could.
    pub(super) fn is_far_more(&self, now_us: u64, work: u64) -> bool {
        let Stage::Climb { below: Some(Below { level: below, .. }), .. } = self.stage else {
            return false;
        };
        let needed = self.gain(below, PACE_CLEAR_PER_MILLE);
        let known = self.levels.known(below, now_us);
        known.is_some_and(|before| work >= per_mille(before, needed))
    }

    /// The gain that the step from the level below needs, given the gain for a doubling.
    fn gain(&self, below: usize, doubled_per_mille: u64) -> u64 {
        match self.is_leap(below, self.level) {
            true => per_mille(doubled_per_mille, doubled_per_mille),
            false => doubled_per_mille,
        }
    }

    pub(super) fn is_leap(&self, below: usize, level: usize) -> bool {
        self.levels.requests(level) / self.levels.requests(below).max(1) > 2
    }

    /// True if requests mostly wait, so that the best number is far above.
    fn mostly_waits(&self, measured: Measured) -> bool {
        self.request_us > 0
            && self.first_byte_us >= PACE_LEAP_FIRST_BYTE_US
            && self.first_byte_us >= per_mille(self.request_us, PACE_LEAP_WAIT_PER_MILLE)
            && measured.request_bytes <= PACE_LEAP_BYTES_MAX
            && !measured.is_full
    }

    pub(super) fn climbed(
        &mut self,
        now_us: u64,
        from: Option<Below>,
        again: bool,
        measured: Measured,
    ) {
        self.levels.note(self.level, measured.work, now_us);
        let below = from.map(|below| below.level);
        if self.bounds.is_ordered && from.is_some_and(|below| below.is_unlike(measured)) {
            // Small objects came before or after large ones: what they bring says nothing about the
            // best number for the others.
            self.levels.forget();
            return self.hold(now_us);
        }
        // A disk that is the limit may still take more requests, but noise must not decide.
        let needed = if measured.is_full { PACE_FULL_UP_PER_MILLE } else { PACE_CLIMB_PER_MILLE };
        let before = below.and_then(|below| self.levels.known(below, now_us));
        if let Some((below, before)) = below.zip(before)
            && self.is_leap(below, self.level)
            && measured.work < per_mille(before, self.gain(below, PACE_KNEE_PER_MILLE))
        {
            // The leap was too far: continue from the level between with normal steps.
            let between = self.levels.requests(below).saturating_mul(2);
            self.stage = Stage::Climb { below: from, again: false };
            return self.go_to(now_us, self.levels.of(between), Change::Back, measured);
        }
        let pays =
            before.map_or(!measured.is_full, |before| measured.work >= per_mille(before, needed));
        // Ordered measurements are exact, and a step too far fills memory with bytes that wait for
        // their turn: probes find what is left above.
        let knee = match self.bounds.is_ordered {
            true => PACE_CLEAR_PER_MILLE,
            false => PACE_KNEE_PER_MILLE,
        };
        let is_knee = before.is_some_and(|before| measured.work < per_mille(before, knee));
        let may_go_on = !is_knee || (again && !self.bounds.is_ordered);
        if pays && may_go_on && self.level < self.levels.last() {
            let is_far = before.is_none() || measured.is_clear;
            let is_new = self.levels.is_new_above(self.level, now_us);
            let is_leap = is_far && is_new && self.mostly_waits(measured);
            return self.multiply(now_us, if is_leap { 4 } else { 2 }, Change::More, measured);
        }
        let is_more = before.is_none_or(|before| measured.work >= before);
        if is_more && !measured.is_full && !again && !self.bounds.is_ordered {
            self.stage = Stage::Climb { below: from, again: true };
            return;
        }
        let best = self.levels.choose(now_us).unwrap_or(self.level);
        // If doubling the first level adds nothing, fewer requests may suffice; likewise if
        // the last useful step brought far less than twice as much. Otherwise they do not.
        let is_first = below.is_some_and(|below| best <= below && self.climbed_from == below);
        let half = self.levels.of(self.levels.requests(best) / 2);
        let is_near_knee = self
            .levels
            .known(half, now_us)
            .zip(self.levels.known(best, now_us))
            .is_some_and(|(half, best)| best < per_mille(half, PACE_KNEE_PER_MILLE));
        // A probe of an ordered stream takes long, and costs what is missing meanwhile.
        let is_quick = !self.bounds.is_ordered && (is_first || is_near_knee);
        let looks_at_once = is_quick || measured.is_full;
        self.down_pause_us = PACE_DOWN_PAUSE_US;
        self.look_down_us = if looks_at_once { now_us } else { now_us + self.down_pause_us };
        self.hold(now_us);
        if best != self.level {
            self.go_to(now_us, best, Change::Back, measured);
        }
        if self.bounds.is_ordered {
            // Later measurements use another method.
            self.levels.forget();
        }
    }

    /// Climbs again: doubling may pay.
    pub(super) fn climb_on(&mut self, now_us: u64, change: Change, measured: Measured) {
        self.climbed_from = self.level;
        self.multiply(now_us, 2, change, measured);
    }

    fn multiply(&mut self, now_us: u64, factor: u32, change: Change, measured: Measured) {
        let below = Below { level: self.level, request_bytes: measured.request_bytes };
        self.stage = Stage::Climb { below: Some(below), again: false };
        let multiplied = self.levels.requests(self.level).saturating_mul(factor);
        self.go_to(now_us, self.levels.of(multiplied), change, measured);
    }
}
