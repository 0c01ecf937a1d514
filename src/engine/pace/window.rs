//! Measurements of a controller: windows of time, and what arrived in them. Pure.

use super::Totals;
use crate::limits::{
    PACE_HELD_UP_PER_MILLE, PACE_REQUEST_BYTES, PACE_WINDOW_MAX_US, PACE_WINDOW_MIN_US,
};

/// One measurement; it begins when the choice has taken effect.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// Not before this time.
    pub(super) settled_us: u64,
    /// When the choice was made, and, for ordered bytes, the number of ended requests at which it
    /// is over.
    pub(super) chosen_us: u64,
    pub(super) ended_least: u64,
    /// When it began, and the totals then.
    pub(super) begun: Option<(u64, Totals)>,
    pub(super) ticks: u64,
    /// Ticks in which there was more work than allowed.
    pub(super) bound_ticks: u64,
    /// Ticks in which many requests had no slot.
    pub(super) full_ticks: u64,
    pub(super) busy_ticks: u64,
}

impl Window {
    /// Records the state at one tick; `is_filled`: nearly all allowed requests are in flight.
    pub(super) fn note(&mut self, totals: &Totals, is_filled: bool) {
        let busy = u64::from(totals.busy);
        self.ticks += 1;
        // A busy worker notices late that a connection is free.
        self.bound_ticks += u64::from(totals.is_bound || is_filled);
        let held_up = u64::from(totals.held_up) * 1000;
        let is_full = totals.held_up > 0 && held_up >= busy * PACE_HELD_UP_PER_MILLE;
        self.full_ticks += u64::from(is_full);
        self.busy_ticks += busy;
    }

    /// Resets the records of ticks.
    pub(super) fn forget(&mut self) {
        (self.ticks, self.bound_ticks, self.full_ticks, self.busy_ticks) = (0, 0, 0, 0);
    }

    /// The result, as bytes per second and as work; `None` if there was too little work: more
    /// requests would have brought nothing.
    pub(super) fn measured(
        &self,
        came: &Came,
        (bytes_per_second, work): (u64, u64),
        is_clear: bool,
    ) -> Option<Measured> {
        (self.bound_ticks * 2 >= self.ticks).then(|| Measured {
            work,
            bytes_per_second,
            is_full: self.full_ticks * 2 >= self.ticks,
            is_clear,
            request_bytes: came.bytes / came.answers.max(1),
        })
    }
}

/// What arrived in a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    pub(super) elapsed_us: u64,
    pub(super) bytes: u64,
    pub(super) answers: u64,
    pub(super) ended: u64,
    ended_us: u64,
    ended_bytes: u64,
    reader_waited_us: u64,
    reader_kept_us: u64,
}

impl Came {
    pub(super) fn between(before: &Totals, now: &Totals, elapsed_us: u64) -> Self {
        Self {
            elapsed_us,
            bytes: now.bytes - before.bytes,
            answers: now.answers - before.answers,
            ended: now.ended.saturating_sub(before.ended),
            ended_us: now.ended_us.saturating_sub(before.ended_us),
            ended_bytes: now.ended_bytes.saturating_sub(before.ended_bytes),
            reader_waited_us: now.reader_waited_us.saturating_sub(before.reader_waited_us),
            reader_kept_us: now.reader_kept_us.saturating_sub(before.reader_kept_us),
        }
    }

    /// Share of the time that a stream's reader waited for bytes, in thousandths.
    pub(super) fn reader_waited_per_mille(&self) -> Option<u64> {
        let time_us = self.reader_waited_us + self.reader_kept_us;
        (self.reader_waited_us * 1000).checked_div(time_us)
    }

    /// Number of pieces of this length, or of small objects.
    pub(super) fn pieces(&self, piece_bytes: u64) -> u64 {
        (self.bytes / piece_bytes).max(self.answers)
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes * 1000 / (self.elapsed_us / 1000).max(1)
    }

    /// Work per second: bytes, plus a constant per request.
    pub(super) fn work(&self) -> u64 {
        let work = self.bytes + self.answers * PACE_REQUEST_BYTES;
        work * 1000 / (self.elapsed_us / 1000).max(1)
    }

    /// Bytes and work per second of the requests in flight, from the durations of those that ended
    /// (Little's law). Ordered bytes are passed on in crowds, but each request of a crowd has its
    /// own duration.
    pub(super) fn by_ended(&self, window: &Window) -> (u64, u64) {
        let bring = |bytes: u64| {
            let each = u128::from(bytes) * 1_000_000 / u128::from(self.ended_us.max(1));
            let all = each * u128::from(window.busy_ticks) / u128::from(window.ticks.max(1));
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        (bring(self.ended_bytes), bring(self.ended_bytes + self.ended * PACE_REQUEST_BYTES))
    }

    /// Mean bytes of an ended request; `None` if none has ended.
    pub(super) fn ended_each_bytes(&self) -> Option<u64> {
        self.ended_bytes.checked_div(self.ended)
    }

    /// The result, if no decision depends on it.
    pub(super) fn unjudged(&self) -> Measured {
        Measured {
            work: self.work(),
            bytes_per_second: self.bytes_per_second(),
            is_full: false,
            is_clear: false,
            request_bytes: self.bytes / self.answers.max(1),
        }
    }

    /// Time of a connection for a piece of this length, or a small object.
    pub(super) fn each_us(&self, window: &Window, piece_bytes: u64) -> u64 {
        self.elapsed_us * window.busy_ticks / window.ticks.max(1) / self.pieces(piece_bytes).max(1)
    }

    /// Mean time of an ended request.
    pub(super) fn each_ended_us(&self) -> u64 {
        self.ended_us / self.ended.max(1)
    }
}

/// The result of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Work per second: bytes, plus a constant per request.
    pub(super) work: u64,
    pub(super) bytes_per_second: u64,
    /// This machine was the limit: more requests bring nothing, whatever was measured.
    pub(super) is_full: bool,
    /// It was clear before the end of its time.
    pub(super) is_clear: bool,
    /// Approximate bytes of one request.
    pub(super) request_bytes: u64,
}

/// A raised level takes effect gradually: requests that are all sent at once are all answered at
/// once, and a window would see one crowd of answers too many or too few.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ramp {
    pub(super) from: u32,
    pub(super) begun_us: u64,
    pub(super) time_us: u64,
}

impl Ramp {
    /// True while the limit still rises.
    pub(super) fn is_rising(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.begun_us) < self.time_us
    }

    /// The limit on the way to `to`.
    pub(super) fn requests(&self, to: u32, now_us: u64) -> u32 {
        let elapsed_us = now_us.saturating_sub(self.begun_us);
        let Some(more) = to.checked_sub(self.from).filter(|_| elapsed_us < self.time_us) else {
            return to;
        };
        let reached = u64::from(more) * elapsed_us / self.time_us;
        self.from + u32::try_from(reached).unwrap_or(more)
    }
}

/// The whole number of rounds of requests nearest to this time, at least one: requests that begin
/// together wait together, so part of a round yields all of it or nothing. Rounds longer than a
/// window are ignored, because bytes arrive most of such a time.
pub(super) fn whole_rounds(time_us: u64, round_us: u64) -> u64 {
    if !(1..=PACE_WINDOW_MAX_US).contains(&round_us) {
        return time_us;
    }
    let rounds = (time_us + round_us / 2) / round_us;
    let whole_us = rounds.max(1) * round_us;
    if whole_us < PACE_WINDOW_MIN_US { time_us } else { whole_us }
}
