//! Lines far behind their peers: ended before their timeout, and what is missing asked for on
//! another connection, at another address where there is one.
//!
//! What counts is how long a line has waited for the network within one step: the connection, the
//! head of an answer, [`LATE_STEP_BYTES`] of a body. A line whose pipe is full waits for the reader
//! and is never late. Nothing is asked for twice at once: what a line has received stays in its
//! pipe, and the range goes on from there. Bounds and budget are those of File mode.

use super::Feeder;
use super::line::{Line, Pending};
use crate::host::PipeHost;
use crate::limits::{LATE_LOOK_US, LATE_STEP_BYTES, MOVES_MAX};
use crate::peers::{self, LateEnd, Phase};
use crate::sys::Ring;

/// What a line waits for, and how long it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    phase: Phase,
    /// Number of the step within a body.
    number: u64,
    /// Waited for the network within it so far, in microseconds.
    waited_us: u64,
}

impl Line {
    /// What it is about now, with what it has waited for that.
    fn current(&self) -> Step {
        let phase = Phase::of(&self.conn);
        let number = if phase == Phase::Body { self.conn.reached() / LATE_STEP_BYTES } else { 0 };
        let same = |before: &Step| (before.phase, before.number) == (phase, number);
        self.last_step.filter(same).unwrap_or(Step { phase, number, waited_us: 0 })
    }

    /// The step it waits in, and for how long since something came, in microseconds; `None` when it
    /// does not wait, is about to be ended, or is told why it gets nothing.
    fn waiting_us(&self, now_us: u64) -> Option<(Step, u64)> {
        let waits = self.pending != Pending::None && !self.expired && self.transfer.is_some();
        let waits = waits && !self.conn.reads_refusal();
        waits.then(|| (self.current(), now_us.saturating_sub(self.submitted_us)))
    }
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// A line begins to wait: it is looked at when it is late.
    pub(super) fn begin_wait(&mut self, index: usize) {
        let line = &self.lines[index];
        let step = line.current();
        if let Some(after_us) = self.paces.late_after_us(step.phase, line.moves) {
            let late_us = self.now_us + after_us.saturating_sub(step.waited_us) + 1;
            self.late_look_us = self.late_look_us.min(late_us);
        }
    }

    /// A line's wait is over: counts it to its step. Called before the line goes on.
    pub(super) fn count_wait(&mut self, index: usize) {
        let line = &mut self.lines[index];
        let waited_us = self.now_us.saturating_sub(line.submitted_us);
        let mut step = line.current();
        step.waited_us += waited_us;
        match step.phase {
            Phase::Head => {
                line.times.first_byte_us += waited_us;
                self.came.first_byte_us += waited_us;
            }
            Phase::Body => line.times.body_us += waited_us,
            Phase::Connect => {}
        }
        line.last_step = Some(step);
    }

    /// A line has gone on: what is behind it becomes its step's pace.
    pub(super) fn note_step(&mut self, index: usize) {
        let line = &mut self.lines[index];
        let Some(before) = line.last_step else { return };
        if line.current() != before {
            self.paces.note(before.phase, before.waited_us);
            line.last_step = None;
        }
    }

    /// A line has received its range: notes what it did not wait for, too.
    pub(super) fn note_range(&mut self, index: usize) {
        let line = &mut self.lines[index];
        if let Some(last) = line.last_step.take() {
            self.paces.note(last.phase, last.waited_us);
        }
        self.came.answers += 1;
        if line.times.first_byte_us == 0 {
            self.paces.note(Phase::Head, 0);
        }
        if line.times.body_us == 0 {
            self.paces.note(Phase::Body, 0);
        }
        if let Some(address) = line.address {
            self.addresses.brought(address, line.conn.reached(), line.times);
        }
    }

    /// Ends the line that is latest, if one is late; returns when to look again.
    pub(super) fn end_latest(&mut self) -> u64 {
        if self.now_us < self.late_look_us {
            return self.late_look_us;
        }
        let left = peers::is_within_budget(self.count.moves, self.count.requests, self.lines.len());
        let (mut waiting, mut late, mut latest) = (0, 0, None);
        let mut look_us = self.now_us + LATE_LOOK_US;
        for (index, line) in self.lines.iter().enumerate() {
            let Some((step, silent_us)) = line.waiting_us(self.now_us) else { continue };
            let waited_us = step.waited_us + silent_us;
            waiting += 1;
            let Some(after_us) = self.paces.late_after_us(step.phase, line.moves) else { continue };
            if waited_us <= after_us {
                look_us = look_us.min(self.now_us + after_us - waited_us + 1);
                continue;
            }
            late += 1;
            let stuck_after_us = self.paces.stuck_after_us(step.phase, line.attempts.tries());
            // What comes slowly may be the best there is; only silence is not.
            let why = if stuck_after_us.is_some_and(|after_us| silent_us > after_us) {
                LateEnd::Stuck
            } else if left && line.moves < MOVES_MAX {
                LateEnd::Move
            } else {
                continue;
            };
            if latest.is_none_or(|(_, worst_us, _)| waited_us > worst_us) {
                latest = Some((index, waited_us, why));
            }
        }
        let is_general = peers::is_general(late, waiting, self.lines.len());
        if let Some((index, _, why)) = latest.filter(|end| !is_general || end.2 == LateEnd::Stuck) {
            self.lines[index].late_end = Some(why);
            self.end_early(index);
            // There may be more.
            look_us = self.now_us;
        }
        self.late_look_us = look_us;
        if waiting > 0 { look_us } else { u64::MAX }
    }
}
