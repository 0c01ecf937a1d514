//! Files by direct I/O: aligned writes in any order, a padded tail, cut to size at the end.
//!
//! Pure: lengths and decisions. The calls are [`crate::files::host::Host`]'s.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::files::journal::HEADER_BYTES;
use crate::limits::{DIRECT_ALIGNMENT_BYTES, JOURNAL_SPARE_RECORDS};
use crate::sys::Handle;

/// A file that is being written under a temporary name.
#[derive(Debug)]
pub struct OpenFile {
    /// The open file.
    pub handle: Handle,
    /// Writes go past the page cache (O_DIRECT) and must be aligned.
    pub direct: bool,
    /// The folder that it is in.
    pub folder: Handle,
    /// Its temporary name there.
    pub temporary: String,
    /// Its name when it is whole.
    pub name: String,
    /// Its whole path as people know it, for messages.
    pub place: String,
    /// Which of its ranges are there, for a later run; `None` where nobody will ask.
    pub journal: Option<Journal>,
}

impl OpenFile {
    /// True when a later run can go on with it.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.records() > 0)
    }
}

/// The open journal of an unfinished file, and how much it holds.
#[derive(Debug)]
pub struct Journal {
    /// The open file: each write goes to its end.
    pub handle: Handle,
    /// Its name in the file's folder.
    pub name: String,
    /// Its header, which each record is checked with.
    pub header: [u8; HEADER_BYTES],
    records: AtomicU64,
    /// No beginnings of ranges are noted beyond so many records: while a run goes on, and when it
    /// ends.
    prefix_records_max: [u64; 2],
    ended: AtomicBool,
}

impl Journal {
    /// A journal with this header and so many records, of an object with so many ranges.
    #[must_use]
    pub fn new(
        handle: Handle,
        name: String,
        header: [u8; HEADER_BYTES],
        (records, ranges): (u64, u64),
    ) -> Self {
        Self {
            handle,
            name,
            header,
            records: AtomicU64::new(records),
            prefix_records_max: [
                journal_records_max(ranges) / 2,
                journal_records_max(ranges) - 2 * ranges,
            ],
            ended: AtomicBool::new(false),
        }
    }

    /// Counts a record that was appended, or notes that none can be any more: a torn one would
    /// shift those after it.
    pub fn note(&self, appended: bool) {
        if appended {
            self.records.fetch_add(1, Ordering::Relaxed);
        } else {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    /// True when no more records may be appended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// True when the beginning of a range may be noted. Room is kept for whole ranges, and for the
    /// beginnings that are known when a run ends: without those an interruption would lose them.
    #[must_use]
    pub fn has_room(&self, run_ends: bool) -> bool {
        self.records() < self.prefix_records_max[usize::from(run_ends)]
    }

    /// Records that it holds.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// Records that the journal of an object with so many ranges may have. A range may be recorded
/// twice when two connections fetched it, and once more by each run that ended before the file had
/// its name; as many may be of beginnings of ranges, and [`JOURNAL_SPARE_RECORDS`] of either.
#[must_use]
pub fn journal_records_max(ranges: u64) -> u64 {
    4 * ranges + JOURNAL_SPARE_RECORDS
}

/// How many bytes of a slot to write for `length` bytes of an object: rounded up to the alignment
/// where the write is direct. Only the tail of an object is ever rounded.
#[must_use]
pub fn write_length(length: u32, direct: bool) -> u32 {
    if direct { length.next_multiple_of(DIRECT_ALIGNMENT_BYTES) } else { length }
}

/// Space to allocate for an object of `size_bytes`: whole alignment units, so that the padded tail
/// does not extend the file.
#[must_use]
pub fn allocation(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(u64::from(DIRECT_ALIGNMENT_BYTES))
}

/// After `done` of a write's bytes: how many count. A direct write goes on at an aligned place, so
/// a ragged end is written again.
#[must_use]
pub fn progress(done: u32, direct: bool) -> u32 {
    if direct { done - done % DIRECT_ALIGNMENT_BYTES } else { done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (length, direct, expected) in [
            (1, true, 4096),
            (4096, true, 4096),
            (4097, true, 8192),
            (1 << 20, true, 1 << 20),
            (4097, false, 4097),
        ] {
            assert_eq!(write_length(length, direct), expected, "{length} {direct}");
        }
        assert_eq!([allocation(1), allocation(4096), allocation(4097)], [4096, 4096, 8192]);
        assert_eq!(
            [progress(8191, true), progress(8192, true), progress(8191, false)],
            [4096, 8192, 8191]
        );
    }
}
