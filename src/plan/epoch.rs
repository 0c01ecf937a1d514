//! The order of an epoch: key order, or a permutation determined by seed and epoch; then the shard.
//!
//! The permutation of `n` objects, 0 to `n - 1` in key order, is a Fisher-Yates shuffle: for `i`
//! from `n - 1` down to 1 the objects at `i` and `j` change places, where `j` is the upper 64 bits
//! of the 128-bit product of the next random word and `i + 1`. The words are those of SplitMix64
//! (Steele, Lea and Flood, 2014) from the state `seed XOR (epoch + 1) * 0x9E3779B97F4A7C15` (modulo
//! 2^64). Shard `I/N` has the objects at the places `p` with `p mod N = I` after the shuffle, so
//! shards never overlap and together are the epoch.

use std::str::FromStr;

use super::splitmix::{GOLDEN, SplitMix64};

/// Part `index` of `count` parts of every epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Index, from 0.
    pub index: u32,
    /// Number of shards; not 0.
    pub count: u32,
}

impl Shard {
    /// The only shard of one.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// True if `place` of the epoch belongs to it.
    #[must_use]
    pub const fn takes(self, place: u64) -> bool {
        place % self.count as u64 == self.index as u64
    }

    /// How many of the first `places` places belong to it.
    #[must_use]
    pub const fn share_of(self, places: u64) -> u64 {
        (places + (self.count - 1 - self.index) as u64) / self.count as u64
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("'{text}' is not a shard: expected I/N with I below N, such as 0/4");
        let (index, count) = text.split_once('/').ok_or_else(expected)?;
        let (index, count) = match (index.parse(), count.parse()) {
            (Ok(index), Ok(count)) if index < count => (index, count),
            _ => return Err(expected()),
        };
        Ok(Self { index, count })
    }
}

/// The permutation of `count` objects for this seed and epoch.
#[must_use]
pub fn permutation(seed: u64, epoch: u64, count: u32) -> Vec<u32> {
    let mut words = SplitMix64(seed ^ epoch.wrapping_add(1).wrapping_mul(GOLDEN));
    let mut order: Vec<u32> = (0..count).collect();
    for last in (1..order.len()).rev() {
        let product = u128::from(words.next_word()) * (last as u128 + 1);
        let other = usize::try_from(product >> 64).expect("at most last");
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn shares_are_counted_as_they_are_taken() {
        for count in 1..6 {
            for index in 0..count {
                let shard = Shard { index, count };
                for places in 0..20 {
                    let taken = (0..places).filter(|place| shard.takes(*place)).count() as u64;
                    assert_eq!(shard.share_of(places), taken, "{shard:?} of {places}");
                }
            }
        }
    }

    #[test]
    fn a_permutation_has_everything_once_and_depends_on_seed_and_epoch() {
        let first = permutation(7, 0, 1000);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
        assert_eq!(first, permutation(7, 0, 1000));
        assert_ne!(first, permutation(7, 1, 1000));
        assert_ne!(first, permutation(8, 0, 1000));
        assert_eq!((permutation(1, 2, 0), permutation(1, 2, 1)), (vec![], vec![0]));
    }

    /// Vectors of a Python program that was written from the description above and the paper, not
    /// from this code: unbounded integers, reduced modulo 2^64 where the description says so, after
    /// a check of its SplitMix64 with the published words of the state 1234567
    /// (6457827717110365317, 3203168211198807973, 9817491932198370423).
    #[test]
    fn the_order_stays_what_it_is_from_version_to_version() {
        let check = |seed, epoch, expected: &[u32]| {
            let count = u32::try_from(expected.len()).expect("a few");
            assert_eq!(permutation(seed, epoch, count), expected, "seed {seed}, epoch {epoch}");
        };
        check(42, 0, &[5, 6, 4, 3, 0, 2, 7, 1]);
        check(42, 1, &[3, 6, 0, 1, 4, 5, 7, 2]);
        check(0, 0, &[8, 7, 11, 3, 6, 4, 1, 2, 10, 9, 0, 5]);
        check(u64::MAX, 2, &[6, 0, 11, 4, 3, 2, 1, 10, 8, 7, 9, 5]);
        check(7, 1_000_000_000, &[4, 3, 1, 6, 8, 0, 7, 2, 5, 9]);
        check(1, u64::MAX - 1, &[0, 5, 3, 4, 2, 1, 8, 7, 6]);
        // SHA-256 of all numbers as four bytes each, little-endian.
        let many = permutation(5, 3, 100_000);
        assert_eq!(many[..6], [98_973, 3_908, 24_243, 86_110, 89_397, 51_657]);
        let bytes: Vec<u8> = many.into_iter().flat_map(u32::to_le_bytes).collect();
        let expected = "668fa700db64e0b0b5f5ae42171eb1dd9fa0d348f5458e2bbbafb1ef78df2faf";
        assert_eq!(hex::encode(Sha256::digest(bytes)), expected);
    }

    #[test]
    fn shards_are_disjoint_and_complete() {
        let shards: Vec<Shard> = (0..3).map(|index| Shard { index, count: 3 }).collect();
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.takes(place)).count(), 1);
        }
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, count: 3 }));
        for bad in ["", "1", "3/3", "-1/3", "a/b", "0/0", "1/2/3"] {
            let error = bad.parse::<Shard>().expect_err("no shard");
            assert!(error.contains("expected I/N"), "{error}");
        }
    }
}
