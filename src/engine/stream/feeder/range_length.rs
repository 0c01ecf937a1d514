//! Limits the length of a stream's ranges by the durations of requests. Pure.
//!
//! If many requests share a slow network, each takes longer, and the reader waits for the next one.
//! Shorter ranges end sooner.

use crate::engine::pace::Totals;
use crate::limits::{PART_BYTES_MIN, STREAM_REQUEST_US, STREAM_REQUESTS_JUDGED};
use crate::plan::ranges::PartSize;

/// The current limit.
#[derive(Debug)]
pub(super) struct RangeLength {
    most: PartSize,
    now: PartSize,
    judged: Totals,
}

impl RangeLength {
    /// Starts with the longest.
    pub(super) fn new(most: PartSize) -> Self {
        Self { most, now: most, judged: Totals::default() }
    }

    /// The longest range that may be requested now.
    pub(super) fn longest(&self) -> PartSize {
        self.now
    }

    /// Takes the totals so far. Requests whose bodies take longer than [`STREAM_REQUEST_US`] are
    /// shortened while the reader waits for them; the time that they wait for the reader does not
    /// count, and the time to their first byte does not depend on their length. Those that take
    /// less than a quarter of it are lengthened.
    pub(super) fn note(&mut self, totals: &Totals) {
        let ended = totals.ended.saturating_sub(self.judged.ended);
        if ended < STREAM_REQUESTS_JUDGED {
            return;
        }
        let judged = std::mem::replace(&mut self.judged, *totals);
        let first_byte_us = totals.first_byte_us.saturating_sub(judged.first_byte_us);
        let took_us = totals.ended_us.saturating_sub(judged.ended_us);
        let waited_us = totals.reader_waited_us.saturating_sub(judged.reader_waited_us);
        let kept_us = totals.reader_kept_us.saturating_sub(judged.reader_kept_us);
        let usual_us = took_us.saturating_sub(first_byte_us) / ended;
        if usual_us > STREAM_REQUEST_US && waited_us > kept_us {
            let bytes = totals.ended_bytes.saturating_sub(judged.ended_bytes) / ended;
            let fits = bytes.saturating_mul(STREAM_REQUEST_US) / usual_us;
            let fits = 1 << fits.max(PART_BYTES_MIN).ilog2();
            self.now = PartSize::new(fits).map_or(self.now, |fits| self.now.min(fits));
        } else if usual_us < STREAM_REQUEST_US / 4 {
            let doubled = self.now.bytes().saturating_mul(2);
            self.now = PartSize::new(doubled).map_or(self.most, |doubled| self.most.min(doubled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn part(bytes: u64) -> PartSize {
        PartSize::new(bytes).expect("aligned")
    }

    /// Ends `requests` requests of the longest length that took `each_us`; the reader waits for
    /// this share of the time, in thousandths.
    fn end(length: &mut RangeLength, requests: u64, each_us: u64, waited_per_mille: u64) -> u64 {
        let mut totals = length.judged;
        for _ in 0..requests {
            totals.ended += 1;
            totals.ended_us += each_us;
            totals.ended_bytes += length.longest().bytes();
            totals.reader_waited_us += waited_per_mille;
            totals.reader_kept_us += 1000 - waited_per_mille;
            length.note(&totals);
        }
        length.longest().bytes()
    }

    #[test]
    fn ranges_that_take_longer_than_a_second_become_shorter() {
        let mut length = RangeLength::new(part(8 * MIB));
        assert_eq!(end(&mut length, 100, 999_000, 1000), 8 * MIB, "they take less");
        assert_eq!(end(&mut length, 3, 3_900_000, 1000), 8 * MIB, "too few to judge");
        assert_eq!(end(&mut length, 4, 3_900_000, 1000), 2 * MIB);
        assert_eq!(end(&mut length, 100, 60_000_000, 1000), MIB, "no shorter: requests cost");
    }

    #[test]
    fn they_become_longer_again_where_they_take_a_quarter_of_that() {
        let mut length = RangeLength::new(part(6 * MIB));
        assert_eq!(end(&mut length, 4, 9_000_000, 1000), MIB);
        assert_eq!(end(&mut length, 100, 260_000, 1000), MIB);
        assert_eq!(end(&mut length, 4, 240_000, 0), 2 * MIB);
        assert_eq!(end(&mut length, 40, 240_000, 0), 6 * MIB, "as long as they may be");
    }

    #[test]
    fn a_long_time_to_the_first_byte_makes_them_no_shorter() {
        let mut length = RangeLength::new(part(8 * MIB));
        let totals = |each_us: u64| Totals {
            ended: 4,
            ended_us: 4 * each_us,
            ended_bytes: 32 * MIB,
            first_byte_us: 4 * 3_000_000,
            reader_waited_us: 1,
            ..Totals::default()
        };
        length.note(&totals(3_900_000));
        assert_eq!(length.longest().bytes(), 8 * MIB);
        let mut length = RangeLength::new(part(8 * MIB));
        length.note(&totals(5_000_000));
        assert_eq!(length.longest().bytes(), 4 * MIB);
    }

    #[test]
    fn a_slow_reader_makes_them_no_shorter() {
        let mut length = RangeLength::new(part(8 * MIB));
        assert_eq!(end(&mut length, 40, 5_000_000, 499), 8 * MIB);
        assert_eq!(end(&mut length, 4, 5_000_000, 501), MIB);
    }

    #[test]
    fn what_the_user_wants_shorter_stays_so() {
        let mut length = RangeLength::new(part(MIB / 4));
        assert_eq!(end(&mut length, 40, 5_000_000, 1000), MIB / 4);
        assert_eq!(end(&mut length, 40, 5_000, 1000), MIB / 4);
    }
}
