//! Decides which files are opened past the kernel's page cache (FOPEN_DIRECT_IO), by how the files
//! of the mount were read before: a state machine without clock or kernel.
//!
//! Bytes that are read once gain nothing from the page cache, and copying them into it is a large
//! part of the processor time of a read. But past it each read(2) is a request of its own, nothing
//! is read ahead in the kernel, and programs that read the same file share no bytes. So a file is
//! opened past it only after `Evidence` of long reads in order, and only when it was not opened
//! before; and anything that speaks for the page cache ends that until the next mount.

use std::collections::HashMap;
use std::ops::Range;

use crate::limits::{
    PAGE_CACHE_FILE_BYTES_MIN, PAGE_CACHE_FILES_KNOWN_MAX, PAGE_CACHE_LONG_READ_BYTES,
    PAGE_CACHE_ORDER_SLACK_BYTES, PAGE_CACHE_READS_JUDGED,
};
use crate::mount::tree::Inode;

/// What the reads of a mount have shown so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Evidence {
    /// Nothing yet: all files use the page cache.
    #[default]
    None,
    /// A file was read through the page cache, in order and, as far as its requests show, by long
    /// reads. One file at a time is opened past the page cache: its requests show the reads.
    Likely,
    /// Such a file was read in order by long reads.
    Confirmed,
    /// The page cache is of use: all files use it.
    Refuted,
}

/// An open file that is large enough to be opened past the page cache.
#[derive(Debug)]
struct WatchedFile {
    inode: Inode,
    size_bytes: u64,
    /// It was opened past the page cache.
    is_past: bool,
    /// It was opened past the page cache before, which could still have its bytes otherwise.
    was_past: bool,
    reads: u64,
    bytes: u64,
    /// Length of the request at the file's beginning; 0: none came.
    first_bytes: u64,
    /// Length of the longest request.
    longest_bytes: u64,
    /// Offset at which the next request is expected.
    next: u64,
    is_in_order: bool,
}

/// A file that was opened before.
#[derive(Debug, Clone, Copy)]
struct KnownFile {
    /// It was opened past the page cache.
    was_past: bool,
    /// Bytes of it that were read.
    bytes: u64,
    /// Bytes that had been read of all files when this one was last opened or read.
    at_bytes: u64,
}

/// The decisions of one mount.
#[derive(Debug)]
pub struct PageCachePolicy {
    /// Memory that the page cache may have.
    memory_bytes: u64,
    evidence: Evidence,
    /// By handle.
    open: HashMap<u64, WatchedFile>,
    known: HashMap<Inode, KnownFile>,
    /// Bytes read of all files.
    read_bytes: u64,
}

impl PageCachePolicy {
    /// For a machine with this much memory.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        let evidence = Evidence::default();
        Self { memory_bytes, evidence, open: HashMap::new(), known: HashMap::new(), read_bytes: 0 }
    }

    /// Takes the open of a file; true if it should be opened past the page cache. `mount_bytes`: of
    /// all files of the mount. Those that fit memory together come from there in a second epoch.
    pub fn open(
        &mut self,
        handle: u64,
        (inode, size_bytes): (Inode, u64),
        mount_bytes: impl FnOnce() -> u64,
    ) -> bool {
        if size_bytes < PAGE_CACHE_FILE_BYTES_MIN
            || self.evidence == Evidence::Refuted
            || mount_bytes() <= self.memory_bytes
        {
            return false;
        }
        let known = self.known.get(&inode).copied();
        // What was read since then did not displace its pages.
        let could_have =
            |known: &KnownFile| self.read_bytes - known.at_bytes + size_bytes <= self.memory_bytes;
        let cached = known.filter(could_have);
        let is_past = cached.is_none()
            && match self.evidence {
                Evidence::None | Evidence::Refuted => false,
                Evidence::Likely => !self.open.values().any(|file| file.is_past),
                Evidence::Confirmed => true,
            };
        let was_past = cached.is_some_and(|known| known.was_past);
        let bytes = cached.map_or(0, |known| known.bytes);
        self.forget_displaced();
        let (was, at_bytes) = (is_past || was_past, self.read_bytes);
        let known = KnownFile { was_past: was, bytes, at_bytes };
        self.known.insert(inode, known);
        let file = WatchedFile {
            inode,
            size_bytes,
            is_past,
            was_past,
            reads: 0,
            bytes: 0,
            first_bytes: 0,
            longest_bytes: 0,
            next: 0,
            is_in_order: true,
        };
        self.open.insert(handle, file);
        is_past
    }

    /// Takes a request for bytes of an open file. `is_past`: it is a program's read past the page
    /// cache; otherwise the page cache requests it, for a read or for a mapping.
    pub fn read(&mut self, handle: u64, range: &Range<u64>, is_past: bool) {
        let Some(file) = self.open.get_mut(&handle) else { return };
        let length = range.end.min(file.size_bytes).saturating_sub(range.start);
        if length == 0 {
            return;
        }
        self.read_bytes += length;
        if let Some(known) = self.known.get_mut(&file.inode) {
            known.bytes += length;
            known.at_bytes = self.read_bytes;
        }
        file.note(range.start, length);
        let shown = match file.is_past {
            true => file.shown_past(is_past, self.memory_bytes),
            false => file.shown_cached(),
        };
        match (shown, self.evidence) {
            (Evidence::Likely, Evidence::None) | (Evidence::Confirmed, Evidence::Likely) => {
                self.evidence = shown;
            }
            (Evidence::Refuted, _) => {
                self.evidence = shown;
                self.open = HashMap::new();
                self.known = HashMap::new();
            }
            _ => {}
        }
    }

    /// Takes the close of a file. If it was opened to look at it only, it is not a known one.
    pub fn close(&mut self, handle: u64) {
        let Some(WatchedFile { inode, .. }) = self.open.remove(&handle) else { return };
        let was_read = |known: &KnownFile| known.bytes >= PAGE_CACHE_LONG_READ_BYTES;
        if !self.known.get(&inode).is_some_and(was_read)
            && !self.open.values().any(|file| file.inode == inode)
        {
            self.known.remove(&inode);
        }
    }

    /// Makes room for one more known file: those that the page cache can no longer have are
    /// forgotten, and if that is not enough, all.
    fn forget_displaced(&mut self) {
        if self.known.len() < PAGE_CACHE_FILES_KNOWN_MAX {
            return;
        }
        let (read_bytes, memory_bytes) = (self.read_bytes, self.memory_bytes);
        self.known.retain(|_, known| read_bytes - known.at_bytes < memory_bytes);
        if self.known.len() >= PAGE_CACHE_FILES_KNOWN_MAX {
            self.known.clear();
        }
    }
}

impl WatchedFile {
    /// Records a request.
    fn note(&mut self, offset: u64, length: u64) {
        self.reads += 1;
        self.bytes += length;
        if offset == 0 && self.first_bytes == 0 {
            self.first_bytes = length;
        }
        self.longest_bytes = self.longest_bytes.max(length);
        // Several threads take the kernel's requests, so neighbours may change places.
        self.is_in_order &= offset.abs_diff(self.next) <= PAGE_CACHE_ORDER_SLACK_BYTES;
        self.next = self.next.max(offset + length);
    }

    /// It was read in order, enough to judge by.
    fn is_judged_in_order(&self) -> bool {
        self.is_in_order && self.bytes >= PAGE_CACHE_FILE_BYTES_MIN
    }

    /// What the requests of the page cache show. Its first one is at least half as long as later
    /// ones only if the program's first read is long: from a short one the kernel's readahead grows
    /// by more.
    fn shown_cached(&self) -> Evidence {
        let is_long = self.first_bytes >= PAGE_CACHE_LONG_READ_BYTES
            && self.first_bytes >= self.longest_bytes / 2;
        match self.is_judged_in_order() {
            // It was read past the page cache before: its bytes came twice.
            _ if self.was_past && self.bytes >= PAGE_CACHE_FILE_BYTES_MIN => Evidence::Refuted,
            true if is_long => Evidence::Likely,
            _ => Evidence::None,
        }
    }

    /// What the requests of a file that was opened past the page cache show.
    fn shown_past(&self, is_past: bool, memory_bytes: u64) -> Evidence {
        let are_short = self.reads >= PAGE_CACHE_READS_JUDGED
            && self.bytes / self.reads < PAGE_CACHE_LONG_READ_BYTES;
        let is_repeated = self.bytes > self.size_bytes + PAGE_CACHE_ORDER_SLACK_BYTES
            && self.size_bytes <= memory_bytes;
        // A mapping, or sendfile(2), uses the page cache in any case.
        match !is_past || are_short || is_repeated {
            true => Evidence::Refuted,
            false if self.is_judged_in_order() => Evidence::Confirmed,
            false => Evidence::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 64 * MIB;
    const MEMORY: u64 = 1024 * MIB;

    /// Opens a file of [`SIZE`]; its handle is its inode, unless it is opened again.
    fn open(policy: &mut PageCachePolicy, inode: Inode) -> bool {
        open_as(policy, inode, inode, SIZE)
    }

    /// Opens a file of a mount that does not fit memory.
    fn open_as(policy: &mut PageCachePolicy, handle: u64, inode: Inode, size_bytes: u64) -> bool {
        policy.open(handle, (inode, size_bytes), || u64::MAX)
    }

    /// Requests a file whole, in order.
    fn read(policy: &mut PageCachePolicy, handle: u64, length: u64, is_past: bool) {
        for start in (0..SIZE).step_by(usize::try_from(length).expect("short")) {
            policy.read(handle, &(start..start + length), is_past);
        }
    }

    /// A mount in which one file was read through the page cache, and one past it.
    fn confirmed() -> PageCachePolicy {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1));
        read(&mut policy, 1, MIB, false);
        policy.close(1);
        assert!(open(&mut policy, 2));
        read(&mut policy, 2, MIB, true);
        policy.close(2);
        assert_eq!(policy.evidence, Evidence::Confirmed);
        policy
    }

    #[test]
    fn long_reads_in_order_lead_past_the_page_cache() {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1) && !open(&mut policy, 2));
        read(&mut policy, 1, MIB, false);
        // One file at a time until its requests have shown how programs read.
        assert!(open(&mut policy, 3));
        assert!(!open(&mut policy, 4));
        policy.close(3);
        assert!(open(&mut policy, 5));
        read(&mut policy, 5, MIB, true);
        assert!(open(&mut policy, 6) && open(&mut policy, 7));
        assert!(!open_as(&mut policy, 8, 8, PAGE_CACHE_FILE_BYTES_MIN - 1), "a small file");
    }

    #[test]
    fn requests_may_come_in_any_order_of_neighbours() {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1));
        for start in (0..SIZE).step_by(2 << 20) {
            policy.read(1, &(start + MIB..start + 2 * MIB), false);
            policy.read(1, &(start..start + MIB), false);
        }
        assert_eq!(policy.evidence, Evidence::Likely);
    }

    /// What a first request of this length, and then ones of 1 MiB, show.
    fn shown_by_readahead(first: u64) -> Evidence {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1));
        policy.read(1, &(0..first), false);
        for start in (first..SIZE).step_by(1 << 20) {
            policy.read(1, &(start..start + MIB), false);
        }
        policy.evidence
    }

    #[test]
    fn readahead_that_grows_little_is_of_long_reads() {
        assert_eq!(shown_by_readahead(MIB / 2), Evidence::Likely);
    }

    #[test]
    fn readahead_that_grows_is_of_short_reads() {
        assert_eq!(shown_by_readahead(MIB / 4), Evidence::None);
    }

    #[test]
    fn reads_anywhere_are_no_evidence() {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1));
        for place in 0..64 {
            let start = place * 37 % 64 * MIB;
            policy.read(1, &(start..start + MIB), false);
        }
        assert_eq!(policy.evidence, Evidence::None);
    }

    #[test]
    fn files_that_fit_memory_together_use_the_page_cache() {
        let mut policy = confirmed();
        assert!(!policy.open(3, (3, SIZE), || MEMORY));
        assert!(policy.open(4, (4, SIZE), || MEMORY + 1));
    }

    #[test]
    fn short_reads_end_it() {
        let mut policy = confirmed();
        assert!(open(&mut policy, 3));
        for number in 0..PAGE_CACHE_READS_JUDGED {
            policy.read(3, &(number * 8192..(number + 1) * 8192), true);
        }
        assert!(!open(&mut policy, 4));
        // For ever.
        read(&mut policy, 4, MIB, false);
        assert!(!open(&mut policy, 5));
    }

    #[test]
    fn a_short_header_or_a_buffer_between_pages_does_not() {
        let mut policy = confirmed();
        assert!(open(&mut policy, 3));
        policy.read(3, &(0..8), true);
        policy.read(3, &(8..600), true);
        // A buffer that begins within a page takes two requests for each MiB.
        for start in (600..SIZE - MIB).step_by(1 << 20) {
            policy.read(3, &(start..start + MIB - 32), true);
            policy.read(3, &(start + MIB - 32..start + MIB), true);
        }
        assert!(open(&mut policy, 4));
    }

    #[test]
    fn a_mapping_ends_it() {
        let mut policy = confirmed();
        assert!(open(&mut policy, 3));
        policy.read(3, &(0..MIB), false);
        assert!(!open(&mut policy, 4));
    }

    #[test]
    fn a_trial_that_shows_a_mapping_is_the_last() {
        let mut policy = PageCachePolicy::new(MEMORY);
        assert!(!open(&mut policy, 1));
        read(&mut policy, 1, MIB, false);
        assert!(open(&mut policy, 2));
        policy.read(2, &(0..MIB), false);
        policy.close(2);
        assert!(!open(&mut policy, 3));
    }

    #[test]
    fn a_file_that_is_open_or_was_read_is_read_through_the_page_cache() {
        let mut policy = confirmed();
        assert!(!open(&mut policy, 1), "its pages are there");
        assert!(open(&mut policy, 3));
        assert!(!open_as(&mut policy, 30, 3, SIZE), "another program reads it at the same time");
        read(&mut policy, 3, MIB, true);
        policy.close(3);
        assert!(!open_as(&mut policy, 31, 3, SIZE));
        // New files skip the page cache until that was read, which shows a second epoch.
        assert!(open(&mut policy, 4));
        read(&mut policy, 31, MIB, false);
        assert!(!open(&mut policy, 5));
    }

    #[test]
    fn a_file_that_was_only_looked_at_counts_as_new() {
        let mut policy = confirmed();
        assert!(open(&mut policy, 3));
        policy.read(3, &(0..4096), true);
        assert!(!open_as(&mut policy, 30, 3, SIZE));
        policy.close(3);
        assert!(!open_as(&mut policy, 31, 3, SIZE), "it is open");
        policy.close(30);
        policy.close(31);
        assert!(open(&mut policy, 3));
    }

    #[test]
    fn a_handle_that_is_read_twice_ends_it() {
        let mut policy = confirmed();
        assert!(open(&mut policy, 3));
        read(&mut policy, 3, MIB, true);
        assert!(open(&mut policy, 4));
        read(&mut policy, 3, MIB, true);
        assert!(!open(&mut policy, 5));
    }

    #[test]
    fn epochs_that_do_not_fit_in_memory_skip_the_page_cache() {
        let mut policy = confirmed();
        let files = 3..4 + MEMORY / SIZE;
        for _ in 0..3 {
            for inode in files.clone() {
                assert!(open(&mut policy, inode), "{inode}");
                read(&mut policy, inode, MIB, true);
                policy.close(inode);
            }
        }
        // Larger than the memory, also if it is read again without a close.
        for handle in 1000..1003 {
            assert!(open_as(&mut policy, handle, 1000, 2 * MEMORY));
            for start in (0..4 * MEMORY).step_by(1 << 20) {
                let start = start % (2 * MEMORY);
                policy.read(handle, &(start..start + MIB), true);
            }
        }
    }

    #[test]
    fn what_is_known_of_files_is_bounded() {
        let mut policy = PageCachePolicy::new(u64::MAX - 1);
        for inode in 0..3 * PAGE_CACHE_FILES_KNOWN_MAX as u64 {
            let _ = open(&mut policy, inode);
            policy.read(inode, &(0..MIB), false);
            policy.close(inode);
            assert!(policy.known.len() <= PAGE_CACHE_FILES_KNOWN_MAX);
        }
    }
}
