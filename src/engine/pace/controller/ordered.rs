//! Measures goodput of bytes that are passed on in order, and so in crowds. Pure.

use super::{Controller, Stage};
use crate::engine::pace::Totals;
use crate::engine::pace::levels::per_mille;
use crate::engine::pace::window::{Came, Measured, Window, whole_rounds};
use crate::limits::{
    PACE_DOWN_PAUSE_MAX_US, PACE_ORDERED_CLIMB_PER_MILLE, PACE_ORDERED_LOST_PER_MILLE,
    PACE_ORDERED_LOST_ROUNDS, PACE_ORDERED_ROUNDS, PACE_ORDERED_WINDOW_MIN_US,
    PACE_READER_WAITED_PER_MILLE, PACE_SAMPLES_MIN, PACE_SETTLE_MAX_US, PACE_UP_PAUSE_MAX_US,
    PACE_WINDOW_HOLD_MIN_US,
};

impl Controller {
    /// Length of a window for ordered bytes, which are passed on in crowds: requests that began
    /// together are passed on together.
    fn ordered_window_us(&self) -> u64 {
        let rounds_us = self.request_us * PACE_ORDERED_ROUNDS;
        whole_rounds(rounds_us.max(PACE_ORDERED_WINDOW_MIN_US), self.request_us)
    }

    /// The next pause after a probe above that brought nothing. Ordered bytes wait in memory, so a
    /// probe above costs as much as one below.
    pub(super) fn longer_up_pause_us(&self) -> u64 {
        let most_us = match self.bounds.is_ordered {
            true => PACE_DOWN_PAUSE_MAX_US,
            false => PACE_UP_PAUSE_MAX_US,
        };
        (self.up_pause_us * 2).min(most_us)
    }

    /// True if a successful step up should be followed by a climb. An ordered stream may bring a
    /// little more by chance: then one step is enough.
    pub(super) fn is_worth_a_climb(&self, before: u64, measured: Measured) -> bool {
        let needed = per_mille(before, PACE_ORDERED_CLIMB_PER_MILLE);
        !self.bounds.is_ordered || measured.work >= needed
    }

    /// True if a probe has already brought clearly less: it costs what is missing.
    fn is_lost(&self, now_us: u64, came: &Came) -> bool {
        let Stage::Probe { home, .. } = self.stage else { return false };
        let least_us = (self.request_us * PACE_ORDERED_LOST_ROUNDS).max(PACE_WINDOW_HOLD_MIN_US);
        let home = self.levels.known(home, now_us).unwrap_or(0);
        came.elapsed_us >= least_us && came.work() < per_mille(home, PACE_ORDERED_LOST_PER_MILLE)
    }

    /// Measures once all requests that were in flight at the choice have ended. A climb uses the
    /// durations of requests, which few of them suffice for. Later the bytes passed on count, over
    /// several request times, because the durations vary more than a step gains, and requests that
    /// began while their number fell say nothing about it.
    pub(super) fn measure_ordered(
        &mut self,
        now_us: u64,
        totals: &Totals,
        is_filled: bool,
    ) -> Option<Measured> {
        let wanted = u64::from(self.levels.requests(self.level));
        let enough = ordered_ended(self.levels.requests(self.level));
        let is_new = totals.ended + enough < self.window.ended_least;
        let now = (now_us, *totals);
        let (begun_us, at) = match self.window.begun.filter(|_| !is_new) {
            Some(begun) => begun,
            None => *self.window.begun.insert(now),
        };
        // Requests in flight count only once the choice has taken effect.
        if self.ramp.is_rising(now_us) || u64::from(totals.busy) * 8 > wanted * 9 {
            self.window.forget();
        }
        self.window.note(totals, is_filled);
        let came = Came::between(&at, totals, now_us - begun_us);
        let is_climb = matches!(self.stage, Stage::First { .. } | Stage::Climb { .. });
        let is_long = match is_climb {
            true => now_us >= self.window.chosen_us + self.window_least_us(),
            false => came.elapsed_us >= self.ordered_window_us() || self.is_lost(now_us, &came),
        };
        // However long that takes: earlier bytes say nothing about these requests.
        if totals.ended < self.window.ended_least || !is_long {
            return None;
        }
        let new = Window {
            begun: Some(now),
            chosen_us: now_us,
            ended_least: totals.ended + enough,
            ..Window::default()
        };
        let window = std::mem::replace(&mut self.window, new);
        let brings = match is_climb {
            true => came.by_ended(&window),
            false => (came.bytes_per_second(), came.work()),
        };
        self.piece_us = came.each_ended_us().min(PACE_SETTLE_MAX_US);
        // While the reader is the limit, or absent, goodput says nothing about the network.
        let waited = came.reader_waited_per_mille();
        if waited.is_none_or(|waited| waited < PACE_READER_WAITED_PER_MILLE) {
            return None;
        }
        let is_clear = self.is_far_more(now_us, brings.1);
        let measured = window.measured(&came, brings, is_clear)?;
        // The bytes passed on may belong to a few large requests that others waited for.
        let request_bytes = came.ended_each_bytes().unwrap_or(measured.request_bytes);
        Some(Measured { request_bytes, ..measured })
    }
}

/// How many requests of a stream must end for a measurement, if `requests` may be in flight.
pub(super) fn ordered_ended(requests: u32) -> u64 {
    u64::from(requests).min(PACE_SAMPLES_MIN as u64)
}
