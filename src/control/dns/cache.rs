//! The addresses of one host name from name resolution, and the time of its next lookup. Pure.
//!
//! A host name of S3 has hundreds of addresses; each answer has eight of them and a TTL of seconds.
//! So the addresses of several answers are collected, and connections can be spread over many more
//! addresses than one answer has.

use std::net::IpAddr;
use std::time::Duration;

use crate::control::limits::{
    ADDRESS_UNSEEN_MAX, ADDRESSES_MAX, LOOKUP_PAUSE_DEFAULT, LOOKUP_PAUSE_MAX, LOOKUP_PAUSE_MIN,
};

/// The addresses of one host name. All times are of one clock, in microseconds.
#[derive(Debug, Default)]
pub(super) struct DnsCache {
    /// Each with the time of the last answer that had it; newest answers first.
    seen: Vec<(IpAddr, u64)>,
    next_us: u64,
    /// Consecutive failed lookups.
    failures: u32,
}

impl DnsCache {
    /// Merges an answer: its addresses come first; others stay until no answer has had them for
    /// [`ADDRESS_UNSEEN_MAX`], or until there are [`ADDRESSES_MAX`] newer ones. `ttl`: the answer's
    /// time to live, if known.
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

    /// Records a failed lookup: known addresses stay, and the pause before the next lookup grows.
    pub(super) fn failed(&mut self, now_us: u64) {
        let pause = LOOKUP_PAUSE_MIN.saturating_mul(1 << self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        self.next_us = now_us.saturating_add(micros(pause.min(LOOKUP_PAUSE_MAX)));
    }

    /// Time of the next lookup.
    pub(super) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// All known addresses; those of the newest answer first.
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

    fn known(cache: &DnsCache) -> Vec<IpAddr> {
        cache.addresses().collect()
    }

    #[test]
    fn answers_are_gathered_the_newest_first() {
        let mut cache = DnsCache::default();
        cache.merge(&[ip(1), ip(2), ip(1)], None, 0);
        cache.merge(&[ip(3), ip(2)], None, 5 * SECOND_US);
        assert_eq!(known(&cache), [ip(3), ip(2), ip(1)]);
    }

    #[test]
    fn what_no_answer_has_any_more_goes_after_a_while() {
        let mut cache = DnsCache::default();
        let unseen_us = micros(ADDRESS_UNSEEN_MAX);
        cache.merge(&[ip(1), ip(2)], None, 0);
        cache.merge(&[ip(2)], None, SECOND_US);
        cache.merge(&[ip(3)], None, unseen_us);
        assert_eq!(known(&cache), [ip(3), ip(2), ip(1)]);
        cache.merge(&[ip(3)], None, unseen_us + 1);
        assert_eq!(known(&cache), [ip(3), ip(2)]);
        // However long there is no answer.
        cache.failed(10 * unseen_us);
        assert_eq!(known(&cache), [ip(3), ip(2)]);
        cache.merge(&[], None, 20 * unseen_us);
        assert_eq!(known(&cache), [ip(3), ip(2)]);
    }

    #[test]
    fn few_addresses_are_kept_and_the_newest_answer_is_among_them() {
        let mut cache = DnsCache::default();
        for number in 0..20 {
            let found: Vec<_> = (0..8).map(|at| ip(number * 8 + at)).collect();
            cache.merge(&found, None, number as u64);
        }
        assert_eq!(known(&cache).len(), ADDRESSES_MAX);
        assert!((152..160).all(|number| cache.has(ip(number))));
        let many: Vec<_> = (0..2 * ADDRESSES_MAX).map(ip).collect();
        cache.merge(&many, None, 99);
        assert_eq!(known(&cache), many[..ADDRESSES_MAX]);
    }

    #[test]
    fn the_next_lookup_comes_when_the_answer_ends_within_bounds() {
        let pause_us = |ttl| {
            let mut cache = DnsCache::default();
            cache.merge(&[ip(1)], ttl, 7);
            cache.next_us() - 7
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause_us(seconds(20)), 20 * SECOND_US);
        assert_eq!(pause_us(seconds(0)), micros(LOOKUP_PAUSE_MIN));
        assert_eq!(pause_us(seconds(86_400)), micros(LOOKUP_PAUSE_MAX));
        assert_eq!(pause_us(None), micros(LOOKUP_PAUSE_DEFAULT));
    }

    #[test]
    fn while_lookups_fail_they_come_less_often() {
        let mut cache = DnsCache::default();
        cache.merge(&[ip(1)], None, 0);
        let pauses_us = [0; 12].map(|now_us| {
            cache.failed(now_us);
            cache.next_us()
        });
        let least_us = micros(LOOKUP_PAUSE_MIN);
        assert_eq!(pauses_us[..3], [least_us, 2 * least_us, 4 * least_us]);
        assert_eq!(pauses_us[11], micros(LOOKUP_PAUSE_MAX));
        cache.merge(&[ip(1)], Some(Duration::ZERO), 0);
        cache.failed(0);
        assert_eq!(cache.next_us(), least_us, "an answer forgives");
    }
}
