//! Which bytes have come: pieces that must not overlap.

use std::collections::BTreeMap;

/// Pieces of one sequence of bytes: the end of each, by its offset.
#[derive(Debug, Default)]
pub(crate) struct Pieces(BTreeMap<u64, u64>);

impl Pieces {
    /// Takes a piece in; false when one of its bytes is there already.
    #[must_use]
    pub(crate) fn add(&mut self, offset: u64, length: u64) -> bool {
        let end = offset + length;
        let before = self.0.range(..end).next_back();
        if before.is_some_and(|(_, end_before)| *end_before > offset) {
            return false;
        }
        self.0.insert(offset, end);
        true
    }

    /// How many bytes are there.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(offset, end)| end - offset).sum()
    }
}

#[test]
fn no_byte_is_taken_twice() {
    let mut pieces = Pieces::default();
    assert!(pieces.add(10, 10) && pieces.add(0, 10) && pieces.add(30, 1));
    for (offset, length) in [(0, 1), (9, 1), (15, 1), (19, 2), (5, 100), (30, 1), (10, 10)] {
        assert!(!pieces.add(offset, length), "{offset} {length}");
    }
    assert!(pieces.add(20, 10));
    assert_eq!(pieces.total(), 31);
}
