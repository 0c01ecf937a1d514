//! Reads of one open file at equal distances from each other, such as every eighth record.

use std::ops::Range;

use crate::limits::{MOUNT_STRIDE_READS_MIN, PAGE_BYTES};

/// The last reads of a file, as far as they were at equal distances.
#[derive(Debug, Default)]
pub(super) struct Stride {
    /// Offset of the first one.
    first: u64,
    /// Offset of the last one.
    last: u64,
    /// Their number, less one.
    steps: u64,
    /// Length of the longest.
    length: u64,
    /// All distances are the same to the byte. The page cache reads whole pages, so those of
    /// records that do not begin with a page differ by up to one.
    is_exact: bool,
    /// Steps from the first read up to which bytes were requested.
    requested: u64,
}

impl Stride {
    /// Records a read.
    pub(super) fn note(&mut self, offset: u64, length: u64) {
        let step = offset.checked_sub(self.last);
        let expected = (self.steps > 0).then(|| self.place(self.steps + 1));
        let missed_by = expected.map(|expected| offset.abs_diff(expected));
        match (step, missed_by) {
            (Some(_), Some(missed_by)) if missed_by <= 2 * PAGE_BYTES => {
                self.is_exact &= missed_by == 0;
                self.steps += 1;
                self.length = self.length.max(length);
            }
            // Reads that follow each other are a stream.
            (Some(step), None) if step > self.length && self.length > 0 => {
                self.steps = 1;
                self.length = self.length.max(length);
            }
            _ => *self = Self { first: offset, length, is_exact: true, ..Self::default() },
        }
        self.last = offset;
        self.requested = self.requested.max(self.steps);
    }

    /// Offset of the read after this number of steps.
    fn place(&self, steps: u64) -> u64 {
        let run = u128::from(self.last - self.first) * u128::from(steps);
        let run = run / u128::from(self.steps.max(1));
        self.first.saturating_add(u64::try_from(run).unwrap_or(u64::MAX))
    }

    /// The bytes that the read after this number of steps may need.
    fn bytes(&self, steps: u64) -> Range<u64> {
        let place = self.place(steps);
        let end = place.saturating_add(self.length);
        match self.is_exact {
            true => place..end,
            false => {
                let start = place.saturating_sub(PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
                start..end.saturating_add(PAGE_BYTES).next_multiple_of(PAGE_BYTES)
            }
        }
    }

    /// Enough reads were at equal distances.
    const fn is_sure(&self) -> bool {
        self.steps + 1 >= MOUNT_STRIDE_READS_MIN
    }

    /// More reads of it are expected in a file of this size.
    pub(super) fn goes_on(&self, size_bytes: u64) -> bool {
        self.is_sure() && self.place(self.steps + 1) < size_bytes
    }

    /// The next bytes to request, if fewer reads ahead were requested than there were;
    /// [`Self::advance`] follows.
    pub(super) fn next(&self, size_bytes: u64, chunk_bytes: u64) -> Option<Range<u64>> {
        if !self.is_sure() || self.requested >= 2 * self.steps {
            return None;
        }
        let bytes = self.bytes(self.requested + 1);
        let bytes = bytes.start..bytes.end.min(size_bytes);
        (bytes.start < bytes.end && bytes.end - bytes.start <= chunk_bytes).then_some(bytes)
    }

    /// Records that the next bytes were requested, or are requested already.
    pub(super) const fn advance(&mut self) {
        self.requested += 1;
    }

    /// True for bytes between the last read and the last ones that were requested.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.is_sure() && range.end > self.last && range.start < self.bytes(self.requested).end
    }
}
