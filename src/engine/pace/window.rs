//! What of a controller is measured: windows of time, and what came in one. Pure.

use super::Totals;
use crate::limits::{
    PACE_HELD_UP_PER_MILLE, PACE_REQUEST_BYTES, PACE_WINDOW_MAX_US, PACE_WINDOW_MIN_US,
};

/// One measurement: it begins when what was chosen has come into effect.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// Not before this time.
    pub(super) settled_us: u64,
    /// When it was chosen what is measured, and how many requests will have ended when it is over,
    /// where bytes come in order.
    pub(super) chosen_us: u64,
    pub(super) ended_least: u64,
    /// Begun then, with what had come.
    pub(super) begun: Option<(u64, Totals)>,
    pub(super) ticks: u64,
    /// Those of them in which there was more to ask for.
    pub(super) bound_ticks: u64,
    /// Those in which many of the requests found no slot.
    pub(super) full_ticks: u64,
    pub(super) busy_ticks: u64,
}

impl Window {
    /// Takes in how things stand; `is_filled`: about as many requests are in flight as may be.
    pub(super) fn note(&mut self, totals: &Totals, is_filled: bool) {
        let busy = u64::from(totals.busy);
        self.ticks += 1;
        // A busy worker comes late to those of its connections that are free again.
        self.bound_ticks += u64::from(totals.is_bound || is_filled);
        let held_up = u64::from(totals.held_up) * 1000;
        let is_full = totals.held_up > 0 && held_up >= busy * PACE_HELD_UP_PER_MILLE;
        self.full_ticks += u64::from(is_full);
        self.busy_ticks += busy;
    }

    /// Begins to look how things stand.
    pub(super) fn forget(&mut self) {
        (self.ticks, self.bound_ticks, self.full_ticks, self.busy_ticks) = (0, 0, 0, 0);
    }

    /// What it came to, in bytes a second and with what requests count besides; `None` where there
    /// was nothing more to ask for: more requests would have brought nothing.
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

/// What came in so long.
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

    /// How much of the time the reader of a stream waited for bytes, in thousandths.
    pub(super) fn reader_waited_per_mille(&self) -> Option<u64> {
        let time_us = self.reader_waited_us + self.reader_kept_us;
        (self.reader_waited_us * 1000).checked_div(time_us)
    }

    /// How many pieces of so many bytes, or small objects.
    pub(super) fn pieces(&self, piece_bytes: u64) -> u64 {
        (self.bytes / piece_bytes).max(self.answers)
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes * 1000 / (self.elapsed_us / 1000).max(1)
    }

    /// Bytes a second, and what requests count besides.
    pub(super) fn work(&self) -> u64 {
        let work = self.bytes + self.answers * PACE_REQUEST_BYTES;
        work * 1000 / (self.elapsed_us / 1000).max(1)
    }

    /// What so many requests in flight bring by the time that those which ended took (Little's
    /// law): bytes a second, and with what requests count besides. What is handed on in order comes
    /// in crowds, but each of a crowd has taken its time.
    pub(super) fn by_ended(&self, window: &Window) -> (u64, u64) {
        let bring = |bytes: u64| {
            let each = u128::from(bytes) * 1_000_000 / u128::from(self.ended_us.max(1));
            let all = each * u128::from(window.busy_ticks) / u128::from(window.ticks.max(1));
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        (bring(self.ended_bytes), bring(self.ended_bytes + self.ended * PACE_REQUEST_BYTES))
    }

    /// Bytes of a request that ended, on average; `None` where none has.
    pub(super) fn ended_each_bytes(&self) -> Option<u64> {
        self.ended_bytes.checked_div(self.ended)
    }

    /// What it came to, where nothing follows from it.
    pub(super) fn unjudged(&self) -> Measured {
        Measured {
            work: self.work(),
            bytes_per_second: self.bytes_per_second(),
            is_full: false,
            is_clear: false,
            request_bytes: self.bytes / self.answers.max(1),
        }
    }

    /// How long a connection took for a piece of so many bytes, or a small object.
    pub(super) fn each_us(&self, window: &Window, piece_bytes: u64) -> u64 {
        self.elapsed_us * window.busy_ticks / window.ticks.max(1) / self.pieces(piece_bytes).max(1)
    }

    /// Usual time of a request that ended.
    pub(super) fn each_ended_us(&self) -> u64 {
        self.ended_us / self.ended.max(1)
    }
}

/// What a window came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Bytes a second, and what requests count besides.
    pub(super) work: u64,
    pub(super) bytes_per_second: u64,
    /// This machine was the limit: more requests bring nothing, whatever was measured.
    pub(super) is_full: bool,
    /// It was clear before the end of its time.
    pub(super) is_clear: bool,
    /// Bytes of one request, about.
    pub(super) request_bytes: u64,
}

/// A raised level comes into effect little by little: requests that are all sent at once are all
/// answered at once, and a window then sees one crowd of answers more than its time brings, or one
/// less.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ramp {
    pub(super) from: u32,
    pub(super) begun_us: u64,
    pub(super) time_us: u64,
}

impl Ramp {
    /// Whether there may be more soon.
    pub(super) fn is_rising(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.begun_us) < self.time_us
    }

    /// How many there may be on the way to so many.
    pub(super) fn requests(&self, to: u32, now_us: u64) -> u32 {
        let elapsed_us = now_us.saturating_sub(self.begun_us);
        let Some(more) = to.checked_sub(self.from).filter(|_| elapsed_us < self.time_us) else {
            return to;
        };
        let reached = u64::from(more) * elapsed_us / self.time_us;
        self.from + u32::try_from(reached).unwrap_or(more)
    }
}

/// The whole rounds of requests that are nearest to this time, at least one: what begins together
/// waits together, and a part of a round brings all of it or nothing. Rounds that are longer than a
/// window are ignored: most of such a time bytes come.
pub(super) fn whole_rounds(time_us: u64, round_us: u64) -> u64 {
    if !(1..=PACE_WINDOW_MAX_US).contains(&round_us) {
        return time_us;
    }
    let rounds = (time_us + round_us / 2) / round_us;
    let whole_us = rounds.max(1) * round_us;
    if whole_us < PACE_WINDOW_MIN_US { time_us } else { whole_us }
}
