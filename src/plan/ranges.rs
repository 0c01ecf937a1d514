//! Splits an object into ranges: each byte exactly once, every start aligned.
//!
//! Pure. The scheduler decides the order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::s3::ByteRange;

/// Ranges start at multiples of this many bytes, because direct writes must.
pub const ALIGNMENT_BYTES: u64 = 4096;

/// Length of a range: a positive multiple of [`ALIGNMENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartSize(u64);

impl PartSize {
    /// `None` if it is zero or not aligned.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes > 0 && bytes.is_multiple_of(ALIGNMENT_BYTES) { Some(Self(bytes)) } else { None }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A set of an object's ranges, by index, and prefixes of other ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet {
    words: Vec<u64>,
    count: u64,
    /// Bytes at the start of ranges that are not in the set.
    prefixes: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// An empty set for an object with `ranges` ranges.
    #[must_use]
    pub fn none(ranges: u64) -> Self {
        let words = usize::try_from(ranges.div_ceil(64)).expect("a set that fits memory");
        Self { words: vec![0; words], count: 0, prefixes: BTreeMap::new() }
    }

    fn place(index: u64) -> (usize, u64) {
        (usize::try_from(index / 64).unwrap_or(usize::MAX), 1 << (index % 64))
    }

    /// Adds a range of the object.
    pub fn insert(&mut self, index: u64) {
        let (word, bit) = Self::place(index);
        self.count += u64::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.prefixes.remove(&index);
    }

    /// Adds a prefix of a range; a longer prefix and the whole range stay.
    pub fn reach(&mut self, index: u64, prefix_bytes: u64) {
        if !self.contains(index) {
            let before = self.prefixes.entry(index).or_default();
            *before = prefix_bytes.max(*before);
        }
    }

    /// Bytes at the start of a range that is not in the set.
    #[must_use]
    pub fn reached(&self, index: u64) -> u64 {
        self.prefixes.get(&index).copied().unwrap_or(0)
    }

    /// True if there are no ranges and no prefixes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.prefixes.is_empty()
    }

    /// Removes a range of the object, and its prefix.
    pub fn remove(&mut self, index: u64) {
        let (word, bit) = Self::place(index);
        self.count -= u64::from(self.words[word] & bit != 0);
        self.words[word] &= !bit;
        self.prefixes.remove(&index);
    }

    /// True if the whole range is in the set.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        let (word, bit) = Self::place(index);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Number of whole ranges.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// The ranges of one object in order; none if it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    size_bytes: u64,
    part: PartSize,
    next: u64,
    without: Option<Arc<RangeSet>>,
}

impl Ranges {
    /// Cuts `size_bytes` into parts; only the last may be shorter.
    #[must_use]
    pub const fn new(size_bytes: u64, part: PartSize) -> Self {
        Self { size_bytes, part, next: 0, without: None }
    }

    /// Skips these ranges, and prefixes of others.
    #[must_use]
    pub fn without(mut self, done: Option<Arc<RangeSet>>) -> Self {
        self.without = done;
        self
    }

    /// Number of ranges of an object.
    #[must_use]
    pub const fn count_of(size_bytes: u64, part: PartSize) -> u64 {
        size_bytes.div_ceil(part.0)
    }

    /// Range `index`, from 0; `None` beyond the end.
    #[must_use]
    pub fn at(size_bytes: u64, part: PartSize, index: u64) -> Option<ByteRange> {
        let offset = index.checked_mul(part.0).filter(|offset| *offset < size_bytes)?;
        Some(ByteRange { offset, length: part.0.min(size_bytes - offset) })
    }
}

impl Iterator for Ranges {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        if let Some(without) = &self.without {
            while without.contains(self.next) {
                self.next += 1;
            }
        }
        let mut range = Self::at(self.size_bytes, self.part, self.next)?;
        if let Some(without) = &self.without {
            let prefix_bytes = without.reached(self.next);
            range.offset += prefix_bytes;
            range.length -= prefix_bytes;
        }
        self.next += 1;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cuts() {
        let check = |size: u64, part: u64, expected: &[(u64, u64)]| {
            let part = PartSize::new(part).expect("aligned");
            let cuts: Vec<_> =
                Ranges::new(size, part).map(|cut| (cut.offset, cut.length)).collect();
            assert_eq!(cuts, expected);
            assert_eq!(Ranges::count_of(size, part), expected.len() as u64);
        };
        check(0, 4096, &[]);
        check(1, 4096, &[(0, 1)]);
        check(4096, 4096, &[(0, 4096)]);
        check(4097, 4096, &[(0, 4096), (4096, 1)]);
        check(20_000, 8192, &[(0, 8192), (8192, 8192), (16_384, 3616)]);
    }

    #[test]
    fn part_sizes_are_aligned() {
        for bytes in [0, 1, 4095, 4097] {
            assert_eq!(PartSize::new(bytes), None);
        }
        assert_eq!(PartSize::new(8192).map(PartSize::bytes), Some(8192));
        let part = PartSize::new(1 << 40).expect("aligned");
        assert_eq!(Ranges::at(u64::MAX, part, u64::MAX), None);
    }

    #[test]
    fn what_is_there_is_left_out() {
        let part = PartSize::new(4096).expect("aligned");
        let mut done = RangeSet::none(70);
        [0, 1, 5, 5, 64, 69].into_iter().for_each(|index| done.insert(index));
        [64, 64, 63].into_iter().for_each(|index| done.remove(index));
        assert_eq!(done.count(), 4);
        let all = Ranges::new(69 * 4096 + 1, part);
        let left: Vec<u64> =
            all.clone().without(Some(Arc::new(done))).map(|range| range.offset / 4096).collect();
        let expected: Vec<u64> = (2..69).filter(|index| *index != 5).collect();
        assert_eq!(left, expected);
        assert_eq!(all.count(), 70);
    }

    #[test]
    fn ranges_go_on_behind_their_beginnings() {
        let part = PartSize::new(8192).expect("aligned");
        let mut done = RangeSet::none(4);
        done.reach(1, 4096);
        done.reach(3, 4096);
        done.reach(3, 1024);
        done.insert(2);
        done.reach(2, 4096);
        assert_eq!(
            (done.count(), [0, 1, 2, 3].map(|index| done.reached(index))),
            (1, [0, 4096, 0, 4096])
        );
        let left = Ranges::new(3 * 8192 + 5000, part).without(Some(Arc::new(done.clone())));
        let left: Vec<_> = left.map(|range| (range.offset, range.length)).collect();
        assert_eq!(left, [(0, 8192), (12_288, 4096), (28_672, 904)]);
        done.remove(2);
        done.remove(3);
        assert!(!done.is_empty());
        done.remove(1);
        assert!(done.is_empty() && done == RangeSet::none(4));
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn each_byte_exactly_once(size in 0..1_u64 << 42, blocks in 1..1_u64 << 12) {
            // At least 2^42 / 1000 per part: a thousand ranges are enough.
            let bytes = (blocks * ALIGNMENT_BYTES).max((size / 1000).next_multiple_of(4096));
            let part = PartSize::new(bytes).expect("aligned");
            let mut reached = 0;
            for (index, range) in Ranges::new(size, part).enumerate() {
                prop_assert_eq!(range.offset, reached);
                prop_assert_eq!(range.offset % ALIGNMENT_BYTES, 0);
                prop_assert!(range.length > 0 && range.length <= part.bytes());
                prop_assert_eq!(Ranges::at(size, part, index as u64), Some(range));
                reached += range.length;
            }
            prop_assert_eq!(reached, size);
        }
    }
}
