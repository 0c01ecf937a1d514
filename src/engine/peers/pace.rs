//! How long things usually take, so that what takes far longer is noticed. Pure.

use super::Phase;
use crate::limits::{
    HEDGE_AFTER_MIN_US, HEDGE_FACTOR, PACE_SAMPLES, PACE_SAMPLES_MIN, STUCK_AFTER_MAX_US,
    STUCK_AFTER_MIN_US, STUCK_DOUBLINGS_MAX, STUCK_FACTOR,
};

/// Durations of one kind of operation, the last [`PACE_SAMPLES`] of them.
#[derive(Debug)]
struct Pace {
    recent_us: [u32; PACE_SAMPLES],
    noted: usize,
    /// Nine of ten took at most so long, when it was last worked out.
    usual_us: Option<u32>,
    /// With so many requests in flight.
    usual_busy: usize,
}

impl Default for Pace {
    /// Nothing is known yet.
    fn default() -> Self {
        Self { recent_us: [0; PACE_SAMPLES], noted: 0, usual_us: None, usual_busy: 1 }
    }
}

impl Pace {
    /// Notes one that is over.
    fn note(&mut self, duration_us: u64, busy: usize) {
        self.recent_us[self.noted % PACE_SAMPLES] = u32::try_from(duration_us).unwrap_or(u32::MAX);
        self.noted += 1;
        if self.noted.is_multiple_of(PACE_SAMPLES_MIN) {
            let known = self.noted.min(PACE_SAMPLES);
            let mut sorted = self.recent_us;
            let (_, usual_us, _) = sorted[..known].select_nth_unstable(known * 9 / 10);
            self.usual_us = Some(*usual_us);
            self.usual_busy = busy.max(1);
        }
    }

    /// What is usual with so many in flight: where they share a line that is full, twice as many
    /// take twice as long.
    fn usual_us(&self, busy: usize) -> Option<u64> {
        let (busy, before) = (busy.max(self.usual_busy) as u64, self.usual_busy as u64);
        Some(u64::from(self.usual_us?) * busy / before)
    }

    /// After so long one that is not over is late; `None` while too little is known.
    fn late_after_us(&self, busy: usize) -> Option<u64> {
        let usual_us = self.usual_us(busy)?;
        Some((usual_us * HEDGE_FACTOR).max(HEDGE_AFTER_MIN_US))
    }

    /// After so long one that is not over will hardly ever be; `None` while too little is known.
    fn stuck_after_us(&self, busy: usize) -> Option<u64> {
        let usual_us = self.usual_us(busy)?;
        let late_us = usual_us * HEDGE_FACTOR;
        let stuck_us = (usual_us * STUCK_FACTOR).max(STUCK_AFTER_MIN_US);
        Some(stuck_us.min(STUCK_AFTER_MAX_US).max(late_us))
    }
}

/// The paces of all that connections wait for.
#[derive(Debug, Default)]
pub struct Paces {
    phases: [Pace; 3],
    /// Requests in flight now.
    busy: usize,
}

impl Paces {
    /// So many requests are in flight now.
    pub fn set_busy(&mut self, busy: usize) {
        self.busy = busy;
    }

    /// Notes how long something took.
    pub fn note(&mut self, phase: Phase, duration_us: u64) {
        self.phases[phase as usize].note(duration_us, self.busy);
    }

    /// The same of a small object's body, which comes with its head as a rule: where that is not
    /// known by itself, a head's pace is.
    #[must_use]
    pub fn phase_of_whole(&self, phase: Phase) -> Phase {
        let is_known = self.phases[phase as usize].usual_us.is_some();
        if phase == Phase::Body && !is_known { Phase::Head } else { phase }
    }

    /// After so long it is late; longer for what was moved so often already.
    #[must_use]
    pub fn late_after_us(&self, phase: Phase, moves: u32) -> Option<u64> {
        self.phases[phase as usize].late_after_us(self.busy).map(|after_us| after_us << moves)
    }

    /// After so long an attempt is over, as after its timeout; longer for each of the attempts, the
    /// first one excepted: where all is stuck, patience is what helps.
    #[must_use]
    pub fn stuck_after_us(&self, phase: Phase, attempts: u32) -> Option<u64> {
        let doublings = attempts.saturating_sub(1).min(STUCK_DOUBLINGS_MAX);
        self.phases[phase as usize].stuck_after_us(self.busy).map(|after_us| after_us << doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_late_before_something_is_known() {
        let mut pace = Pace::default();
        for _ in 1..PACE_SAMPLES_MIN {
            pace.note(1, 1);
        }
        assert_eq!(pace.late_after_us(1), None);
        pace.note(1, 1);
        assert_eq!(pace.late_after_us(1), Some(HEDGE_AFTER_MIN_US));
        assert_eq!(pace.stuck_after_us(1), Some(STUCK_AFTER_MIN_US));
    }

    #[test]
    fn one_in_ten_does_not_count_and_the_past_is_forgotten() {
        let mut pace = Pace::default();
        for number in 0..PACE_SAMPLES {
            let slow = number % 16 == 0;
            pace.note(if slow { 60_000_000 } else { 200_000 }, 1);
        }
        assert_eq!(pace.late_after_us(1), Some(200_000 * HEDGE_FACTOR));
        assert_eq!(pace.stuck_after_us(1), Some(200_000 * STUCK_FACTOR));
        for _ in 0..PACE_SAMPLES {
            pace.note(u64::MAX, 1);
        }
        let late_us = u64::from(u32::MAX) * HEDGE_FACTOR;
        assert_eq!(pace.late_after_us(1), Some(late_us));
        assert_eq!(pace.stuck_after_us(1), Some(late_us), "a slow network has patience");
        for _ in 0..PACE_SAMPLES {
            pace.note(1_000_000, 1);
        }
        assert_eq!(pace.stuck_after_us(1), Some(STUCK_AFTER_MAX_US));
    }

    #[test]
    fn more_at_once_may_take_longer() {
        let mut pace = Pace::default();
        for _ in 0..PACE_SAMPLES {
            pace.note(1_000_000, 16);
        }
        assert_eq!(pace.late_after_us(8), Some(HEDGE_FACTOR * 1_000_000));
        assert_eq!(pace.late_after_us(32), Some(HEDGE_FACTOR * 2_000_000));
    }
}
