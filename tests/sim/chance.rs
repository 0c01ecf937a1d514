//! Seeded randomness.

use inrush::plan::splitmix::SplitMix64;

/// Small, and the same on every machine.
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        let mut words = SplitMix64(self.0);
        let word = words.next_word();
        self.0 = words.0;
        word
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True in `per_mille` of 1,000 cases.
    pub(crate) fn hits(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}
