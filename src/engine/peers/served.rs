//! Finds how many connections an address serves at a time, if fewer than were opened. Pure.
//!
//! A server with a fixed number of threads, each for one connection until it is closed, accepts
//! more connections than it answers, because the kernel does so. Such a connection waits for its
//! first answer while others of the address are answered repeatedly. Then no more connections are
//! opened than were answered, and twice as many are tried after a while. If connections that were
//! answered before wait as long, requests hang regardless of the connection, which says nothing
//! about how many are served.

use crate::limits::{
    SERVED_PAUSE_MAX_US, SERVED_PAUSE_MIN_US, SERVED_TRIAL_US, UNANSWERED_AFTER_US,
    UNANSWERED_ANSWERS_MIN, UNANSWERED_FACTOR, UNANSWERED_MIN, UNANSWERED_SHARE,
};

/// State of an address.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Answers on all its connections.
    answers: u64,
    /// The slowest recent first byte of connections that had been answered before; decays with each
    /// answer.
    slowest_us: Option<u64>,
    /// When a connection last waited too long for its first answer, and when one that was answered
    /// before did.
    unanswered_us: Option<u64>,
    hung_us: Option<u64>,
    limit: Option<ServedLimit>,
}

#[derive(Debug, Clone, Copy)]
struct ServedLimit {
    /// Number of answered connections.
    served: usize,
    /// Twice as many are being tried.
    is_trial: bool,
    /// The end of the trial, or the beginning of the next one.
    until_us: u64,
    pause_us: u64,
}

/// Open connections of an address, how many of them were ever answered, and their fastest first
/// answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenConnections {
    pub(super) all: usize,
    pub(super) answered: usize,
    pub(super) first_answer_us: Option<u64>,
}

impl Served {
    /// Records the end of an answer, and the time from its request to its first byte.
    pub(super) fn answered(&mut self, first_byte_us: u64, is_first: bool) {
        self.answers += 1;
        if !is_first {
            let before_us = self.slowest_us.unwrap_or(0);
            self.slowest_us = Some(first_byte_us.max(before_us - before_us / 16));
        }
    }

    /// Answers so far.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// The slowest recent first byte of connections that had been answered before.
    pub(super) fn slowest_us(&self) -> Option<u64> {
        self.slowest_us
    }

    /// True if this wait is too long compared with other answers.
    fn is_too_long(&self, waited_us: u64) -> bool {
        self.slowest_us.is_some_and(|slowest_us| is_too_long(waited_us, slowest_us))
    }

    /// Records that a connection that was answered before waits for its next answer.
    pub(super) fn waits_again(&mut self, waited_us: u64, now_us: u64) {
        if self.is_too_long(waited_us) {
            (self.hung_us, self.limit) = (Some(now_us), None);
        }
    }

    /// True if requests hang lately, regardless of their connection.
    fn is_hung(&self, now_us: u64) -> bool {
        self.hung_us.is_some_and(|hung_us| now_us < hung_us + UNANSWERED_AFTER_US)
    }

    /// True if connections wait for their first answer lately, and only such connections.
    pub(super) fn has_unanswered(&self, now_us: u64) -> bool {
        let is_late = |us| now_us < us + UNANSWERED_AFTER_US;
        self.unanswered_us.is_some_and(is_late) && !self.is_hung(now_us)
    }

    /// Records that a connection, opened after `answers_before` answers, waits for its first one.
    /// True if the limit is new.
    pub(super) fn waits(
        &mut self,
        waited_us: u64,
        answers_before: u64,
        open: OpenConnections,
        now_us: u64,
    ) -> bool {
        let slowest_us = self.slowest_us.or(open.first_answer_us);
        if slowest_us.is_some_and(|slowest_us| is_too_long(waited_us, slowest_us)) {
            self.unanswered_us = Some(now_us);
        }
        let answers = self.answers.saturating_sub(answers_before);
        let is_served = open.answered > 0 && answers >= UNANSWERED_ANSWERS_MIN;
        if !is_served || self.is_hung(now_us) || !self.is_too_long(waited_us) {
            return false;
        }
        let unanswered = open.all.saturating_sub(open.answered);
        let is_new = match self.limit {
            // Connections above the limit wait for their turn.
            Some(limit) => limit.is_trial,
            None => unanswered >= UNANSWERED_MIN && unanswered * UNANSWERED_SHARE >= open.all,
        };
        if is_new {
            self.go_back(open, now_us);
        }
        is_new
    }

    /// Tries twice as many when it is time, and keeps going while they are answered.
    pub(super) fn look(&mut self, open: OpenConnections, now_us: u64) {
        let Some(limit) = &mut self.limit else { return };
        if now_us < limit.until_us {
            return;
        }
        if limit.is_trial && open.answered < open.all {
            return self.go_back(open, now_us);
        }
        if limit.is_trial && open.answered <= limit.served {
            // More were not needed.
            self.limit = None;
            return;
        }
        if limit.is_trial {
            limit.served *= 2;
            limit.pause_us = SERVED_PAUSE_MIN_US / 2;
        }
        let trial_us = self.slowest_us.unwrap_or(0) * UNANSWERED_FACTOR * 2;
        (limit.is_trial, limit.until_us) = (true, now_us + trial_us.max(SERVED_TRIAL_US));
    }

    /// Sets the limit to the answered connections.
    fn go_back(&mut self, open: OpenConnections, now_us: u64) {
        let before_us = self.limit.map_or(SERVED_PAUSE_MIN_US / 2, |limit| limit.pause_us);
        let pause_us = (before_us * 2).min(SERVED_PAUSE_MAX_US);
        let until_us = now_us + pause_us;
        // The trial opened too many, not those that were answered before it.
        let before = self.limit.map_or(1, |limit| limit.served);
        let served = open.answered.max(before);
        self.limit = Some(ServedLimit { served, is_trial: false, until_us, pause_us });
    }

    /// Most connections that may be open; `None` if no limit is known.
    pub(super) fn most(&self) -> Option<usize> {
        let limit = self.limit?;
        Some(if limit.is_trial { limit.served * 2 } else { limit.served })
    }
}

fn is_too_long(waited_us: u64, slowest_us: u64) -> bool {
    waited_us >= UNANSWERED_AFTER_US.max(slowest_us * UNANSWERED_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR_OF_32: OpenConnections = open(32, 4);

    const fn open(all: usize, answered: usize) -> OpenConnections {
        OpenConnections { all, answered, first_answer_us: None }
    }

    /// An address with this first byte time.
    fn answering(first_byte_us: u64) -> Served {
        let mut served = Served::default();
        (0..100).for_each(|_| served.answered(first_byte_us, false));
        served
    }

    #[test]
    fn those_that_are_answered_are_as_many_as_are_served() {
        let mut served = answering(5_000);
        let (long_us, before) = (UNANSWERED_AFTER_US, 96);
        assert!(!served.waits(long_us - 1, before, FOUR_OF_32, 0), "it has not waited long");
        assert!(!served.waits(long_us, 97, FOUR_OF_32, 0), "few were answered meanwhile");
        assert!(!served.waits(long_us, before, open(32, 0), 0));
        assert!(!served.waits(long_us, before, open(32, 17), 0), "15 of 32");
        assert!(!served.waits(long_us, before, open(2, 1), 0), "it alone");
        assert_eq!(served.most(), None);
        assert!(served.waits(long_us, before, FOUR_OF_32, 0));
        assert_eq!(served.most(), Some(4));
        assert!(!served.waits(long_us, before, FOUR_OF_32, 1), "that is known");
    }

    #[test]
    fn a_trial_takes_nothing_from_those_that_were_answered() {
        let mut served = answering(5_000);
        assert!(served.waits(UNANSWERED_AFTER_US, 0, FOUR_OF_32, 0));
        served.look(open(4, 4), SERVED_PAUSE_MIN_US);
        assert_eq!(served.most(), Some(8));
        // They are being connected again.
        let end_us = SERVED_PAUSE_MIN_US + SERVED_TRIAL_US;
        served.look(open(8, 0), end_us);
        assert_eq!(served.most(), Some(4));
    }

    #[test]
    fn a_server_that_is_slow_is_waited_for() {
        let mut served = answering(2_000_000);
        assert!(!served.waits(7_900_000, 0, FOUR_OF_32, 0));
        assert!(served.waits(8_000_000, 0, FOUR_OF_32, 0));
        // A server that is slow only at first gets no limit.
        let mut served = Served::default();
        (0..100).for_each(|_| served.answered(5_000, true));
        assert!(!served.waits(60_000_000, 0, FOUR_OF_32, 0), "none was answered twice");
    }

    #[test]
    fn where_answered_connections_wait_too_requests_hang() {
        let mut served = answering(5_000);
        let long_us = UNANSWERED_AFTER_US;
        served.waits_again(long_us, 1_000_000);
        assert!(!served.waits(long_us, 0, FOUR_OF_32, 999_999 + long_us));
        served.waits_again(long_us - 1, 1_000_000 + long_us);
        assert!(served.waits(long_us, 0, FOUR_OF_32, 1_000_000 + long_us), "it was long ago");
        served.waits_again(long_us, 2_000_000);
        assert_eq!(served.most(), None, "what was concluded is void");
    }

    #[test]
    fn more_are_tried_and_each_time_later() {
        let mut served = answering(5_000);
        let (mut now_us, mut pauses) = (0, Vec::new());
        let four_of_8 = open(8, 4);
        assert!(served.waits(UNANSWERED_AFTER_US, 0, FOUR_OF_32, now_us));
        for _ in 0..6 {
            let from_us = now_us;
            while served.most() == Some(4) {
                now_us += 100_000;
                served.look(four_of_8, now_us);
            }
            pauses.push((now_us - from_us) / 1_000_000);
            assert_eq!(served.most(), Some(8));
            assert!(served.waits(UNANSWERED_AFTER_US, 0, four_of_8, now_us));
            assert_eq!(served.most(), Some(4));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }

    #[test]
    fn a_server_that_takes_more_again_gets_more() {
        let mut served = answering(5_000);
        assert!(served.waits(UNANSWERED_AFTER_US, 0, FOUR_OF_32, 0));
        let mut now_us = SERVED_PAUSE_MIN_US;
        for most in [8, 16, 32] {
            served.look(open(most / 2, most / 2), now_us);
            assert_eq!(served.most(), Some(most));
            now_us += SERVED_TRIAL_US;
            served.look(open(most, most), now_us - 1);
        }
        served.look(open(16, 16), now_us);
        assert_eq!(served.most(), None, "nobody had a use for 32");
    }
}
