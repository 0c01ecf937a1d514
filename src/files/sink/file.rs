//! Files written by direct I/O: aligned writes in any order, a padded tail, truncated at the end.
//!
//! Pure: lengths and decisions. [`crate::files::host::Host`] makes the calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::files::journal::HEADER_BYTES;
use crate::limits::{DIRECT_ALIGNMENT_BYTES, JOURNAL_SPARE_RECORDS};
use crate::sys::Handle;

/// A file that is being written under a temporary name.
#[derive(Debug)]
pub struct OpenFile {
    /// The open file.
    pub handle: Handle,
    /// Writes bypass the page cache (O_DIRECT) and must be aligned.
    pub direct: bool,
    /// Its folder.
    pub folder: Handle,
    /// Its temporary name in that folder.
    pub temporary: String,
    /// Its final name.
    pub name: String,
    /// Its whole path, for messages.
    pub place: String,
    /// Journal for a later run; `None` if the file cannot be resumed.
    pub journal: Option<Journal>,
}

impl OpenFile {
    /// True if a later run can resume it.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.records() > 0)
    }
}

/// The open journal of an unfinished file, and its number of records.
#[derive(Debug)]
pub struct Journal {
    /// The open file, in append mode.
    pub handle: Handle,
    /// Its name in the file's folder.
    pub name: String,
    /// Its header, which is part of each record's check.
    pub header: [u8; HEADER_BYTES],
    records: AtomicU64,
    /// Limits on records before prefixes are no longer recorded: during a run, and at its end.
    prefix_records_max: [u64; 2],
    ended: AtomicBool,
}

impl Journal {
    /// A journal with this header and this many records, of an object with `ranges` ranges.
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

    /// Counts an appended record; after a failure no more are appended, since a torn record would
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

    /// True if a prefix of a range may be recorded. Room is reserved for whole ranges, and for the
    /// prefixes at the end of a run, which an interruption would otherwise lose.
    #[must_use]
    pub fn has_room(&self, run_ends: bool) -> bool {
        self.records() < self.prefix_records_max[usize::from(run_ends)]
    }

    /// Number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// Most records of the journal of an object with this many ranges. A range may be recorded twice if
/// two connections fetched it, and once more by each run that ended before the file was named; the
/// same number again for prefixes, and [`JOURNAL_SPARE_RECORDS`] for either.
#[must_use]
pub fn journal_records_max(ranges: u64) -> u64 {
    4 * ranges + JOURNAL_SPARE_RECORDS
}

/// Bytes of a slot to write for `length` bytes of an object: rounded up to the alignment if the
/// write is direct. Only an object's tail is ever rounded.
#[must_use]
pub fn write_length(length: u32, direct: bool) -> u32 {
    if direct { length.next_multiple_of(DIRECT_ALIGNMENT_BYTES) } else { length }
}

/// Bytes to allocate for an object of `size_bytes`: whole alignment units, so that the padded tail
/// does not extend the file.
#[must_use]
pub fn allocation(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(u64::from(DIRECT_ALIGNMENT_BYTES))
}

/// How many of the `done` bytes of a write count. A direct write continues at an aligned offset, so
/// an unaligned end is written again.
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
