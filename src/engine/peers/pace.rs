//! Usual durations, to recognize what takes far longer. Pure.

use super::Phase;
use crate::limits::{
    HEDGE_AFTER_MIN_US, HEDGE_FACTOR, PACE_SAMPLES, PACE_SAMPLES_MIN, STUCK_AFTER_MAX_US,
    STUCK_AFTER_MIN_US, STUCK_DOUBLINGS_MAX, STUCK_FACTOR,
};

/// Durations of one kind of operation, the last [`PACE_SAMPLES`] of them.
#[derive(Debug)]
struct Pace {
    recent_us: [u32; PACE_SAMPLES],
    /// Which of them were ended because they were stuck: they take at least this long.
    stuck: [bool; PACE_SAMPLES],
    noted: usize,
    /// The 90th percentile, when it was last computed.
    usual_us: Option<u32>,
    /// The requests in flight then.
    usual_busy: usize,
}

impl Default for Pace {
    /// Nothing is known yet.
    fn default() -> Self {
        Self {
            recent_us: [0; PACE_SAMPLES],
            stuck: [false; PACE_SAMPLES],
            noted: 0,
            usual_us: None,
            usual_busy: 1,
        }
    }
}

impl Pace {
    /// Records one that is over, or was ended because it was stuck.
    fn note(&mut self, duration_us: u64, busy: usize, is_stuck: bool) {
        let at = self.noted % PACE_SAMPLES;
        self.recent_us[at] = u32::try_from(duration_us).unwrap_or(u32::MAX);
        self.stuck[at] = is_stuck;
        self.noted += 1;
        if self.noted.is_multiple_of(PACE_SAMPLES_MIN) {
            self.usual_us = Some(self.work_out());
            self.usual_busy = busy.max(1);
        }
    }

    /// Computes the 90th percentile. If most were stuck, the server is slow, and would never be
    /// awaited if they were ignored; if few were, those hang, and the others show how long an
    /// answer takes.
    fn work_out(&self) -> u32 {
        let known = self.noted.min(PACE_SAMPLES);
        let last = (self.noted - PACE_SAMPLES_MIN..self.noted).map(|number| number % PACE_SAMPLES);
        let is_slow = last.filter(|at| self.stuck[*at]).count() * 2 > PACE_SAMPLES_MIN;
        let (mut counted_us, mut counted) = ([0; PACE_SAMPLES], 0);
        for (took_us, is_stuck) in self.recent_us[..known].iter().zip(&self.stuck) {
            if is_slow || !is_stuck {
                counted_us[counted] = *took_us;
                counted += 1;
            }
        }
        let (_, usual_us, _) = counted_us[..counted].select_nth_unstable(counted * 9 / 10);
        *usual_us
    }

    /// The usual duration with `busy` requests in flight: on a full line, twice as many take twice
    /// as long.
    fn usual_us(&self, busy: usize) -> Option<u64> {
        let (busy, before) = (busy.max(self.usual_busy) as u64, self.usual_busy as u64);
        Some(u64::from(self.usual_us?) * busy / before)
    }

    /// Duration after which an operation is late; `None` while too little is known.
    fn late_after_us(&self, busy: usize) -> Option<u64> {
        let usual_us = self.usual_us(busy)?;
        Some((usual_us * HEDGE_FACTOR).max(HEDGE_AFTER_MIN_US))
    }

    /// Duration after which an operation will hardly ever end; `None` while too little is known.
    fn stuck_after_us(&self, busy: usize) -> Option<u64> {
        let usual_us = self.usual_us(busy)?;
        let late_us = usual_us * HEDGE_FACTOR;
        let stuck_us = (usual_us * STUCK_FACTOR).max(STUCK_AFTER_MIN_US);
        Some(stuck_us.min(STUCK_AFTER_MAX_US).max(late_us))
    }
}

/// The paces of all phases.
#[derive(Debug, Default)]
pub struct Paces {
    phases: [Pace; 3],
    /// Requests in flight.
    busy: usize,
}

impl Paces {
    /// Sets the number of requests in flight.
    pub fn set_busy(&mut self, busy: usize) {
        self.busy = busy;
    }

    /// Records a duration; `is_stuck`: it was ended because it was stuck, so this is a minimum.
    pub fn note(&mut self, phase: Phase, duration_us: u64, is_stuck: bool) {
        self.phases[phase as usize].note(duration_us, self.busy, is_stuck);
    }

    /// The phase by which a small object's body is judged: it usually comes with its head, so the
    /// head's pace applies while its own is unknown.
    #[must_use]
    pub fn phase_of_whole(&self, phase: Phase) -> Phase {
        let is_known = self.phases[phase as usize].usual_us.is_some();
        if phase == Phase::Body && !is_known { Phase::Head } else { phase }
    }

    /// Duration after which a phase is late; doubled for each move of the range so far.
    #[must_use]
    pub fn late_after_us(&self, phase: Phase, moves: u32) -> Option<u64> {
        self.phases[phase as usize].late_after_us(self.busy).map(|after_us| after_us << moves)
    }

    /// Duration after which an attempt is over, like a timeout; doubled for each attempt after the
    /// first one, because if everything is stuck, only waiting helps.
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
            pace.note(1, 1, false);
        }
        assert_eq!(pace.late_after_us(1), None);
        pace.note(1, 1, false);
        assert_eq!(pace.late_after_us(1), Some(HEDGE_AFTER_MIN_US));
        assert_eq!(pace.stuck_after_us(1), Some(STUCK_AFTER_MIN_US));
    }

    #[test]
    fn sixteen_are_enough_and_the_last_64_count() {
        let mut pace = Pace::default();
        let mut note = |count, duration_us| {
            (0..count).for_each(|_| pace.note(duration_us, 1, false));
            pace.usual_us(1)
        };
        assert_eq!(note(10, 5_000_000), None);
        assert_eq!(note(10, 5_000_000), Some(5_000_000));
        assert_eq!(note(44, 20_000), Some(5_000_000), "20 of 64 are slow");
        assert_eq!(note(32, 20_000), Some(20_000), "they are long ago");
    }

    #[test]
    fn one_in_ten_does_not_count_and_the_past_is_forgotten() {
        let mut pace = Pace::default();
        for number in 0..PACE_SAMPLES {
            let slow = number % 16 == 0;
            pace.note(if slow { 60_000_000 } else { 200_000 }, 1, false);
        }
        assert_eq!(pace.late_after_us(1), Some(200_000 * HEDGE_FACTOR));
        assert_eq!(pace.stuck_after_us(1), Some(200_000 * STUCK_FACTOR));
        for _ in 0..PACE_SAMPLES {
            pace.note(u64::MAX, 1, false);
        }
        let late_us = u64::from(u32::MAX) * HEDGE_FACTOR;
        assert_eq!(pace.late_after_us(1), Some(late_us));
        assert_eq!(pace.stuck_after_us(1), Some(late_us), "a slow network is waited for longer");
        for _ in 0..PACE_SAMPLES {
            pace.note(1_000_000, 1, false);
        }
        assert_eq!(pace.stuck_after_us(1), Some(STUCK_AFTER_MAX_US));
    }

    #[test]
    fn what_was_stuck_counts_where_most_of_the_last_were() {
        let mut pace = Pace::default();
        for number in 0..PACE_SAMPLES {
            let hangs = number % 2 == 0;
            pace.note(if hangs { 600_000 } else { 20_000 }, 1, hangs);
        }
        assert_eq!(pace.usual_us(1), Some(20_000), "half of them hang");
        for _ in 0..PACE_SAMPLES_MIN {
            pace.note(600_000, 1, true);
        }
        assert_eq!(pace.usual_us(1), Some(600_000), "the server is slow");
        for _ in 0..PACE_SAMPLES_MIN {
            pace.note(20_000, 1, false);
        }
        assert_eq!(pace.usual_us(1), Some(20_000), "it is no more");
    }

    #[test]
    fn more_at_once_may_take_longer() {
        let mut pace = Pace::default();
        for _ in 0..PACE_SAMPLES {
            pace.note(1_000_000, 16, false);
        }
        assert_eq!(pace.late_after_us(8), Some(HEDGE_FACTOR * 1_000_000));
        assert_eq!(pace.late_after_us(32), Some(HEDGE_FACTOR * 2_000_000));
    }
}
