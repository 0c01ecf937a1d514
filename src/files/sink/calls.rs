//! Which thread makes file system calls: the worker while they are fast, helper threads once they
//! are slow.
//!
//! A call on a local file system takes about 10 µs, and so does handing it to another thread. Over
//! a network, or if each file is synced, it takes milliseconds: a worker that made it would stall
//! its connections, and no two calls would overlap. Only the calls themselves show which case
//! applies, and it may change. Pure: takes measured durations.

use crate::limits::{FILE_CALL_SLOW_US, FILE_CALLS_WATCHED};

/// Durations of one worker's calls.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    watched: u32,
    took_us: u64,
    slow: bool,
}

impl Calls {
    /// True if calls are slow: helper threads should make them.
    #[must_use]
    pub fn are_slow(&self) -> bool {
        self.slow
    }

    /// Records the duration of one call, whichever thread made it, in microseconds. One call that
    /// takes longer than the whole window allows is slow at once.
    pub fn note(&mut self, took_us: u64) {
        self.watched += 1;
        self.took_us = self.took_us.saturating_add(took_us);
        let is_long = self.took_us > u64::from(FILE_CALLS_WATCHED) * FILE_CALL_SLOW_US;
        if is_long || self.watched == FILE_CALLS_WATCHED {
            *self = Self { slow: is_long, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(calls: &mut Calls, took_us: u64, count: u32) -> bool {
        (0..count).for_each(|_| calls.note(took_us));
        calls.are_slow()
    }

    #[test]
    fn quick_calls_stay_and_slow_ones_go_to_helpers() {
        let mut calls = Calls::default();
        assert!(!noted(&mut calls, 80, 10_000));
        assert!(noted(&mut calls, 50_000, 1), "one that takes long is enough");
        assert!(noted(&mut calls, 80, FILE_CALLS_WATCHED - 1), "not all have been watched");
        assert!(!noted(&mut calls, 80, 1), "they are quick again");
        assert!(!noted(&mut calls, 3_000, 5), "a few of some milliseconds do not matter");
        assert!(noted(&mut calls, 3_000, 27));
        assert!(noted(&mut calls, 3_000, 1_000));
        assert!(noted(&mut calls, u64::MAX, 3));
        assert!(!noted(&mut calls, FILE_CALL_SLOW_US, FILE_CALLS_WATCHED));
    }

    #[test]
    fn a_call_that_was_kept_from_its_processor_changes_nothing() {
        let mut calls = Calls::default();
        for _ in 0..1000 {
            assert!(!noted(&mut calls, 4_000, 1));
            assert!(!noted(&mut calls, 80, 31));
        }
    }
}
