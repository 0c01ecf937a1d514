//! Who makes the calls of the file system: the worker itself while they are quick, helper threads
//! once they are slow.
//!
//! A call on a local file system takes some 10 microseconds, and to hand it to another thread takes
//! about as long. Over a network, or when each file is synced, it takes milliseconds: then a worker
//! that makes it keeps its connections waiting, and no two calls overlap. Which of the two it is
//! is known only from the calls themselves, and may change. Pure: told how long calls took.

use crate::limits::{FILE_CALL_SLOW_US, FILE_CALLS_WATCHED};

/// How long one worker's calls take.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    watched: u32,
    took_us: u64,
    slow: bool,
}

impl Calls {
    /// True when calls are slow: helper threads are to make them.
    #[must_use]
    pub fn are_slow(&self) -> bool {
        self.slow
    }

    /// Notes how long one took, whoever made it, in microseconds. What took as long as all that are
    /// watched may is slow at once.
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
