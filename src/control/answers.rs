//! What name resolution has given for one name so far, and when to ask again. Pure.
//!
//! A name of S3 has hundreds of addresses; each answer has eight of them, and lives for seconds.
//! So answers are gathered: connections can be spread over far more than one answer has.

use std::net::IpAddr;
use std::time::Duration;

use super::limits::{
    ADDRESS_UNSEEN_MAX, ADDRESSES_MAX, LOOKUP_PAUSE_DEFAULT, LOOKUP_PAUSE_MAX, LOOKUP_PAUSE_MIN,
};

/// The addresses of one name. The times that it is given are all by one clock, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// With the time of the last answer that had it; those of newer answers first.
    seen: Vec<(IpAddr, u64)>,
    next_us: u64,
    /// Lookups in a row that failed.
    failures: u32,
}

impl Answers {
    /// Takes an answer in: what it has comes first, what it does not have stays until no answer has
    /// had it for [`ADDRESS_UNSEEN_MAX`], or until there are [`ADDRESSES_MAX`] newer ones. `ttl`:
    /// how long it is valid, where that is known.
    pub(super) fn merge(&mut self, found: &[IpAddr], ttl: Option<Duration>, now_us: u64) {
        let older = std::mem::take(&mut self.seen);
        for address in found {
            if !self.has(*address) {
                self.seen.push((*address, now_us));
            }
        }
        let oldest_us = now_us.saturating_sub(micros(ADDRESS_UNSEEN_MAX));
        for (address, seen_us) in older {
            if !self.has(address) && (seen_us >= oldest_us || found.is_empty()) {
                self.seen.push((address, seen_us));
            }
        }
        self.seen.truncate(ADDRESSES_MAX);
        self.failures = 0;
        let pause = ttl.unwrap_or(LOOKUP_PAUSE_DEFAULT).clamp(LOOKUP_PAUSE_MIN, LOOKUP_PAUSE_MAX);
        self.next_us = now_us.saturating_add(micros(pause));
    }

    /// There was no answer: what is known stays, and the next lookup comes later each time.
    pub(super) fn failed(&mut self, now_us: u64) {
        let pause = LOOKUP_PAUSE_MIN.saturating_mul(1 << self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        self.next_us = now_us.saturating_add(micros(pause.min(LOOKUP_PAUSE_MAX)));
    }

    /// When to look the name up again.
    pub(super) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// All that are known; those of the newest answer first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.seen.iter().map(|(address, _)| *address)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.seen.iter().any(|(known, _)| *known == address)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: usize) -> IpAddr {
        let [.., high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    const SECOND_US: u64 = 1_000_000;

    fn known(answers: &Answers) -> Vec<IpAddr> {
        answers.addresses().collect()
    }

    #[test]
    fn answers_are_gathered_the_newest_first() {
        let mut answers = Answers::default();
        answers.merge(&[ip(1), ip(2), ip(1)], None, 0);
        answers.merge(&[ip(3), ip(2)], None, 5 * SECOND_US);
        assert_eq!(known(&answers), [ip(3), ip(2), ip(1)]);
    }

    #[test]
    fn what_no_answer_has_any_more_goes_after_a_while() {
        let mut answers = Answers::default();
        let unseen_us = micros(ADDRESS_UNSEEN_MAX);
        answers.merge(&[ip(1), ip(2)], None, 0);
        answers.merge(&[ip(2)], None, SECOND_US);
        answers.merge(&[ip(3)], None, unseen_us);
        assert_eq!(known(&answers), [ip(3), ip(2), ip(1)]);
        answers.merge(&[ip(3)], None, unseen_us + 1);
        assert_eq!(known(&answers), [ip(3), ip(2)]);
        // However long there is no answer.
        answers.failed(10 * unseen_us);
        assert_eq!(known(&answers), [ip(3), ip(2)]);
        answers.merge(&[], None, 20 * unseen_us);
        assert_eq!(known(&answers), [ip(3), ip(2)]);
    }

    #[test]
    fn only_so_many_are_kept_and_the_newest_answer_is_among_them() {
        let mut answers = Answers::default();
        for number in 0..20 {
            let found: Vec<_> = (0..8).map(|at| ip(number * 8 + at)).collect();
            answers.merge(&found, None, number as u64);
        }
        assert_eq!(known(&answers).len(), ADDRESSES_MAX);
        assert!((152..160).all(|number| answers.has(ip(number))));
        let many: Vec<_> = (0..2 * ADDRESSES_MAX).map(ip).collect();
        answers.merge(&many, None, 99);
        assert_eq!(known(&answers), many[..ADDRESSES_MAX]);
    }

    #[test]
    fn the_next_lookup_comes_when_the_answer_ends_within_bounds() {
        let pause_us = |ttl| {
            let mut answers = Answers::default();
            answers.merge(&[ip(1)], ttl, 7);
            answers.next_us() - 7
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause_us(seconds(20)), 20 * SECOND_US);
        assert_eq!(pause_us(seconds(0)), micros(LOOKUP_PAUSE_MIN));
        assert_eq!(pause_us(seconds(86_400)), micros(LOOKUP_PAUSE_MAX));
        assert_eq!(pause_us(None), micros(LOOKUP_PAUSE_DEFAULT));
    }

    #[test]
    fn while_lookups_fail_they_come_less_often() {
        let mut answers = Answers::default();
        answers.merge(&[ip(1)], None, 0);
        let pauses_us = [0; 12].map(|now_us| {
            answers.failed(now_us);
            answers.next_us()
        });
        let least_us = micros(LOOKUP_PAUSE_MIN);
        assert_eq!(pauses_us[..3], [least_us, 2 * least_us, 4 * least_us]);
        assert_eq!(pauses_us[11], micros(LOOKUP_PAUSE_MAX));
        answers.merge(&[ip(1)], Some(Duration::ZERO), 0);
        answers.failed(0);
        assert_eq!(answers.next_us(), least_us, "an answer forgives");
    }
}
