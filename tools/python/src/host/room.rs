//! Which parts of the shared memory are free.

use std::collections::BTreeMap;
use std::ops::Range;

/// Parts begin at multiples of this: a page of most processors, so that a part that is used again
/// touches no other pages than before.
const STEP_BYTES: u64 = 4096;

/// The free parts of a memory, by their first byte. No two of them touch each other.
#[derive(Debug)]
pub(super) struct Room {
    free: BTreeMap<u64, u64>,
}

impl Room {
    pub(super) fn new(length_bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, length_bytes)]) }
    }

    /// Takes the first part that is long enough: few pages are ever touched.
    pub(super) fn take(&mut self, length_bytes: u64) -> Option<Range<u64>> {
        let whole = length_bytes.next_multiple_of(STEP_BYTES);
        let found = self.free.iter().find(|(start, end)| *end - *start >= whole);
        let (start, end) = found.map(|(start, end)| (*start, *end))?;
        self.free.remove(&start);
        if start + whole < end {
            self.free.insert(start + whole, end);
        }
        Some(start..start + length_bytes)
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, part: &Range<u64>) {
        let mut start = part.start;
        let mut end = start + (part.end - start).next_multiple_of(STEP_BYTES);
        if let Some((before, _)) =
            self.free.range(..start).next_back().filter(|(_, before_end)| **before_end == start)
        {
            start = *before;
        }
        if let Some(behind_end) = self.free.remove(&end) {
            end = behind_end;
        }
        self.free.insert(start, end);
    }
}
