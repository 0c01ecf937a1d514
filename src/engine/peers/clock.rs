//! The clock by which connections are judged: it stands still while their worker is busy. Pure.
//!
//! A slow file system call, or a stopped process (SIGSTOP, a busy machine), keeps the worker from
//! its connections, which are not late because of it. So this clock counts the time in the ring, up
//! to the requested wait, and at most [`LOOP_PAUSE_MIN_US`] of the time between two waits. It moves
//! only when the ring is entered and left, so everything that had arrived is reaped before a
//! connection is judged.

use crate::limits::LOOP_PAUSE_MIN_US;

/// The time by which connections are judged.
#[derive(Debug, Default)]
pub struct NetworkClock {
    now_us: u64,
    /// When the ring was last entered or left, in the host's time.
    seen_us: u64,
    /// The requested wait of the last entry.
    wait_us: u64,
}

impl NetworkClock {
    /// Its time in microseconds since the worker began; at most the real time.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Records that the ring is entered: until now the worker was busy.
    pub fn ring_entered(&mut self, host_us: u64, wait_us: u64) {
        let busy_us = self.since_seen_us(host_us);
        self.now_us += busy_us.min(LOOP_PAUSE_MIN_US);
        self.wait_us = wait_us;
    }

    /// Records that the ring is left. If that took longer than requested, the worker was stopped at
    /// an unknown time: the longer it took, the less of the wait counts.
    pub fn ring_left(&mut self, host_us: u64) {
        let elapsed_us = self.since_seen_us(host_us);
        let over_us = elapsed_us.saturating_sub(self.wait_us);
        self.now_us += if over_us <= LOOP_PAUSE_MIN_US {
            elapsed_us
        } else {
            self.wait_us.saturating_sub(over_us).max(LOOP_PAUSE_MIN_US)
        };
    }

    fn since_seen_us(&mut self, host_us: u64) -> u64 {
        host_us.saturating_sub(std::mem::replace(&mut self.seen_us, host_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HEDGE_AFTER_MIN_US, TURN_WAIT_MAX_US};

    /// A turn: busy for a time, then in the ring for `elapsed_us` of the requested `wait_us`.
    fn turn(clock: &mut NetworkClock, busy_us: u64, wait_us: u64, elapsed_us: u64) -> u64 {
        let before_us = clock.now_us();
        let host_us = clock.seen_us + busy_us;
        clock.ring_entered(host_us, wait_us);
        clock.ring_left(host_us + elapsed_us);
        clock.now_us() - before_us
    }

    #[test]
    fn time_in_the_ring_counts_and_the_loops_own_does_not() {
        let clock = &mut NetworkClock::default();
        assert_eq!(turn(clock, 100, 5_000, 700), 800);
        assert_eq!(turn(clock, 100, 5_000, 5_060), 5_160, "a wake-up is never exact");
        assert_eq!(turn(clock, 30_000_000, 5_000, 700), LOOP_PAUSE_MIN_US + 700);
        assert_eq!(turn(clock, 0, 5_000, 30_000_000), LOOP_PAUSE_MIN_US);
        assert_eq!(turn(clock, 0, 0, 40), 40);
    }

    #[test]
    fn a_stop_within_a_wait_is_no_lateness_and_a_late_wake_up_is_no_stop() {
        let clock = &mut NetworkClock::default();
        let stopped_us = 2 * TURN_WAIT_MAX_US;
        assert!(turn(clock, 0, TURN_WAIT_MAX_US, stopped_us) < HEDGE_AFTER_MIN_US / 10);
        let woken_us = TURN_WAIT_MAX_US + 2 * LOOP_PAUSE_MIN_US;
        assert!(turn(clock, 0, TURN_WAIT_MAX_US, woken_us) > TURN_WAIT_MAX_US / 2);
    }

    #[test]
    fn it_moves_on_however_busy_the_worker_is() {
        let clock = &mut NetworkClock::default();
        for _ in 0..100 {
            assert!(turn(clock, 1_000_000, 0, 0) == LOOP_PAUSE_MIN_US);
        }
    }
}
