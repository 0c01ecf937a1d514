//! What a controller does while the reader of a stream is the limit: goodput is then the reader's
//! rate, whatever is requested, and says nothing about the network. Pure.
//!
//! While the reader waits for bytes less than [`PACE_READER_WAITED_PER_MILLE`] of the time, the
//! number of requests in flight shrinks step by step; it does not grow, and nothing is measured.
//! One step is taken back if the reader waits longer after it than before. The controller climbs
//! again if the reader waits long without a step: then the network is the limit again.

use super::{Controller, Stage};
use crate::engine::pace::Totals;
use crate::engine::pace::levels::per_mille;
use crate::engine::pace::timeline::Change;
use crate::engine::pace::window::{Came, Measured};
use crate::limits::{
    PACE_CHANGED_PER_MILLE, PACE_DOWN_PAUSE_US, PACE_PAUSE_MIN_US, PACE_READER_FLOOR_US,
    PACE_READER_MISSED_PER_MILLE, PACE_READER_REST_US, PACE_READER_WAITED_PER_MILLE,
    PACE_READER_WINDOW_US, PACE_READER_WINDOWS,
};

/// State of a stream's reader.
#[derive(Debug, Default)]
pub(super) struct StreamReader {
    /// When the window began, and the totals then.
    begun: (u64, Totals),
    /// Consecutive windows in which the reader was slow.
    slow: u32,
    floor: Floor,
    /// Bytes and waiting time when one of them last grew, and when that was.
    moved: (u64, u64, u64),
}

/// The fewest requests that suffice for a reader.
#[derive(Debug, Clone, Copy, Default)]
struct Floor {
    level: usize,
    /// Applies to readers of about this many bytes per second, or more.
    bytes_per_second: u64,
    /// Expires then, because the network may have changed.
    until_us: u64,
}

/// A step down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// The level before it.
    from: usize,
    /// Share of the time that the reader waited there, in thousandths.
    waited_per_mille: u64,
}

impl Step {
    /// The step was too much if the reader waits at least this share of the time, in thousandths,
    /// or is no longer the limit.
    fn too_much_per_mille(self) -> u64 {
        let missed = self.waited_per_mille + PACE_READER_MISSED_PER_MILLE;
        missed.min(PACE_READER_WAITED_PER_MILLE)
    }
}

impl Controller {
    /// Restarts the measurement after a rest of the reader: a window with a rest in it says
    /// nothing.
    pub(super) fn pass_over_rest(&mut self, now_us: u64, totals: &Totals) {
        let Totals { bytes, reader_waited_us, reader_kept_us, .. } = *totals;
        let (bytes_before, waited_before_us, since_us) = self.reader.moved;
        if (bytes, reader_waited_us) != (bytes_before, waited_before_us) || reader_kept_us == 0 {
            self.reader.moved = (bytes, reader_waited_us, now_us);
        } else if now_us >= since_us + PACE_READER_REST_US {
            self.begin_window(now_us, self.piece_us);
        }
    }

    /// Checks whether the reader or the network is the limit.
    pub(super) fn look_at_reader(&mut self, now_us: u64, totals: &Totals) {
        let (begun_us, at) = self.reader.begun;
        if now_us < begun_us + PACE_READER_WINDOW_US {
            return;
        }
        let came = Came::between(&at, totals, now_us - begun_us);
        self.reader.begun = (now_us, *totals);
        // A resting reader says nothing about its needs.
        let Some(waited) = came.reader_waited_per_mille().filter(|_| came.bytes > 0) else {
            return;
        };
        let is_slow = waited < PACE_READER_WAITED_PER_MILLE;
        self.reader.slow = if is_slow { self.reader.slow + 1 } else { 0 };
        let is_slow_again = self.reader.slow >= PACE_READER_WINDOWS;
        let measured = came.unjudged();
        match self.stage {
            Stage::Reader { step: Some(step) } if waited >= step.too_much_per_mille() => {
                self.reader.floor = Floor {
                    level: step.from,
                    bytes_per_second: measured.bytes_per_second,
                    until_us: now_us + PACE_READER_FLOOR_US,
                };
                self.stage = Stage::Reader { step: None };
                self.go_to(now_us, step.from, Change::Reader, measured);
            }
            Stage::Reader { .. } if !is_slow => {
                // The network is the limit again. The reader's rate is not what these requests can
                // bring: measure that before adding more.
                self.levels.forget();
                self.up_pause_us = PACE_PAUSE_MIN_US;
                self.look_down_us = now_us + PACE_DOWN_PAUSE_US;
                self.hold(now_us);
                self.begin_window(now_us, self.piece_us);
            }
            _ if is_slow_again => self.shrink(now_us, waited, measured),
            _ => {}
        }
    }

    /// Tries fewer requests, unless they are known to be too few.
    fn shrink(&mut self, now_us: u64, waited_per_mille: u64, measured: Measured) {
        self.reader.slow = 0;
        // Take back a step up that a burst caused and that the reader's rate does not need:
        // otherwise each burst too short for a measurement would leave twice as many requests.
        let is_enough = |level: &usize| {
            self.levels.known(*level, now_us).is_some_and(|work| work >= measured.work)
        };
        let enough = self.before_step_up().filter(is_enough);
        self.stage = Stage::Reader { step: None };
        if let Some(before) = enough {
            return self.go_to(now_us, before, Change::Reader, measured);
        }
        let floor = self.reader.floor;
        let is_slower = measured.bytes_per_second
            < per_mille(floor.bytes_per_second, 1000 - PACE_CHANGED_PER_MILLE);
        let is_floor = self.level <= floor.level && now_us < floor.until_us && !is_slower;
        if self.level == 0 || is_floor {
            return;
        }
        let from = self.level;
        let step = Step { from, waited_per_mille };
        self.go_to(now_us, from - 1, Change::Reader, measured);
        self.stage = Stage::Reader { step: Some(step) };
    }

    /// The level before a step up that is still being measured.
    fn before_step_up(&self) -> Option<usize> {
        let before = match self.stage {
            Stage::Climb { below: Some(below), .. } => below.level,
            Stage::Probe { home, .. } => home,
            _ => return None,
        };
        (before < self.level).then_some(before)
    }

    /// If the byte budget has no room for the chosen requests, returns to the level before the step
    /// up, or to the number that fits.
    pub(super) fn fit_room(&mut self, now_us: u64, totals: &Totals) {
        let fits = self.levels.of(totals.held_up.max(self.bounds.least));
        if totals.held_up > 0 && fits < self.level {
            let before = self.before_step_up();
            if before.is_some() {
                // A probe above was in vain; if other streams took the room, no probe was.
                self.up_pause_us = self.longer_up_pause_us();
            }
            self.level = fits.min(before.unwrap_or(fits));
            self.hold(now_us);
            self.record(now_us, Change::Room, 0);
            self.begin_window(now_us, self.piece_us);
        }
    }
}
