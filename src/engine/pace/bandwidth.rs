//! A bound that the user sets on the bytes a second of a run.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes a second of a run at most, on average. What is asked for is charged when it is asked for,
/// and nothing more is asked for until that much time has passed.
#[derive(Debug)]
pub struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When the next bytes may be asked for, in microseconds.
    next_us: AtomicU64,
}

impl Bandwidth {
    /// So many bytes a second.
    #[must_use]
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, next_us: AtomicU64::new(0) }
    }

    /// How long to wait before more may be asked for, in microseconds; 0 for now.
    #[must_use]
    pub fn wait_us(&self, now_us: u64) -> u64 {
        self.next_us.load(Ordering::Relaxed).saturating_sub(now_us)
    }

    /// So many bytes are asked for.
    pub fn charge(&self, now_us: u64, bytes: u64) {
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_second.get());
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        let charged = |next_us: u64| Some(next_us.max(now_us).saturating_add(micros));
        // The closure always has a value.
        let _ = self.next_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_in_a_while_is_what_the_rate_allows() {
        for (rate, bytes) in [(1_000_000, 8 << 20), (100_000_000, 39_000), (3, 1), (7, 0)] {
            let bandwidth = Bandwidth::new(NonZeroU64::new(rate).expect("not 0"));
            let (mut now_us, mut asked) = (0, 0u64);
            for _ in 0..200 {
                assert!(bytes > 0 || bandwidth.wait_us(now_us) == 0, "nothing is charged");
                now_us += bandwidth.wait_us(now_us);
                bandwidth.charge(now_us, bytes);
                asked += bytes;
            }
            let allowed = rate as f64 * now_us as f64 / 1e6 + bytes as f64;
            assert!((asked as f64) <= allowed * 1.001 + 1.0, "{asked} of {allowed}");
            assert!(asked as f64 >= allowed * 0.999 - 1.0, "{asked} of {allowed}");
        }
    }

    #[test]
    fn time_in_which_nothing_was_asked_for_is_not_saved_up() {
        let bandwidth = Bandwidth::new(NonZeroU64::new(1_000).expect("not 0"));
        bandwidth.charge(3_600_000_000, 1_000);
        assert_eq!(bandwidth.wait_us(3_600_000_000), 1_000_000);
        bandwidth.charge(3_600_000_000, u64::MAX);
        assert!(bandwidth.wait_us(3_600_000_000) > u64::MAX / 2, "no overflow");
    }
}
