//! Limits of `mount`.

/// Size of the blocks of `st_blocks` (stat(2)), in bytes.
pub const BLOCK_BYTES: u64 = 512;

/// Most keys without a name in the mount that are listed; further ones are only counted.
pub const HIDDEN_KEPT_MAX: usize = 100_000;

/// Most streams of one open file: positions of sequential reads.
pub const MOUNT_STREAMS_MAX: usize = 8;

/// A stream ends after this many reads of its file that did not continue it.
pub const MOUNT_IDLE_READS: u64 = 16;

/// Fewest reads at equal distances after which the next ones are requested ahead.
pub const MOUNT_STRIDE_READS_MIN: u64 = 4;

/// Length of the pages of the page cache, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Fewest bytes requested ahead of a reader, except at the file's end: each request has a cost.
pub const MOUNT_AHEAD_BYTES_MIN: u64 = 128 << 10;

/// One in this many leases is reserved for reads that programs wait for.
pub const MOUNT_LEASES_RESERVED_SHARE: usize = 4;

/// If only leases use data slots, one in this many of a worker's is not leased: for hedged ranges.
pub const UNLEASED_SLOTS_SHARE: usize = 8;

/// Longest read that the kernel requests, in bytes: its limit of one request.
pub const MOUNT_READ_BYTES_MAX: u32 = 1 << 20;

/// The kernel's read-ahead, in KiB, if it can be set: reads then come in pieces of
/// [`MOUNT_READ_BYTES_MAX`].
pub const MOUNT_READAHEAD_KIB: u32 = 1024;

/// Most simultaneous read-ahead requests of the kernel (`max_background`).
pub const MOUNT_BACKGROUND_MAX: u16 = 64;

/// Smallest file that `--page-cache auto` opens past the page cache, and fewest bytes of a file
/// that show how files are read.
pub const PAGE_CACHE_FILE_BYTES_MIN: u64 = 16 << 20;

/// Shortest mean read of a file that is opened past the page cache. On two cores, 2026-12-01, `dd`
/// read a file past the page cache and through it in the ratios 0.8 (reads of 8 KiB), 1.1 (32 KiB),
/// 1.5 (64 KiB) and 1.9 (128 KiB): each read is a request, but its bytes are copied once less.
pub const PAGE_CACHE_LONG_READ_BYTES: u64 = 64 << 10;

/// Reads of one file past the page cache after which their mean length counts.
pub const PAGE_CACHE_READS_JUDGED: u64 = 16;

/// Distance of a request from the expected offset, in bytes, up to which it is in order: requests
/// of the kernel's readahead overtake each other.
pub const PAGE_CACHE_ORDER_SLACK_BYTES: u64 = 4 << 20;

/// Most files that a mount knows to have been opened before: about 4 MiB of memory.
pub const PAGE_CACHE_FILES_KNOWN_MAX: usize = 65_536;

/// Most threads that read the kernel's requests.
pub const MOUNT_THREADS_MAX: usize = 4;

/// Most simultaneous requests of the kernel over io_uring per processor, each with a buffer of
/// [`MOUNT_READ_BYTES_MAX`].
pub const MOUNT_QUEUE_ENTRIES_MAX: usize = 32;

/// Fewest simultaneous requests over io_uring per processor: with fewer of them requests would wait
/// for each other.
pub const MOUNT_QUEUE_ENTRIES_MIN: usize = 8;

/// One in this many bytes of `--memory` may be for such requests.
pub const MOUNT_QUEUE_MEMORY_SHARE: u64 = 4;

/// One in this many bytes of the machine's memory may be for such requests, without `--memory`.
pub const MOUNT_QUEUE_MACHINE_SHARE: u64 = 16;

/// If files have more bytes than this on average, /dev/fuse is used: over io_uring each byte is
/// copied once more, and each request costs less. On two cores, 2026-11-26, both read files of 256
/// KiB equally fast; the ring was up to 1.95 times as fast with requests alone, and 0.85 times as
/// fast with files of 1 GiB.
pub const MOUNT_QUEUE_MEAN_BYTES_MAX: u64 = 256 << 10;

/// Longest wait of a thread that serves such requests before it checks its state again.
pub const MOUNT_QUEUE_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Most simultaneous requests for names whose objects were replaced.
pub const MOUNT_LOOKUPS_MAX: usize = 16;

/// Most folders listed at once because a program uses them.
pub const MOUNT_LISTINGS_MAX: usize = 16;

/// Most names and folders queued for a request; further ones fail with EAGAIN.
pub const MOUNT_LOOKUPS_QUEUED_MAX: usize = 1024;

/// Most closed files queued for their lines in the report; further ones are only in the totals.
pub const MOUNT_CLOSED_QUEUED_MAX: usize = 4096;

/// Time for which the kernel may cache names and attributes; those that change during the mount are
/// invalidated.
pub const MOUNT_NAMES_TTL: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Most read errors that are printed; each successful read allows one more.
pub const MOUNT_ERRORS_PRINTED_MAX: usize = 20;

/// Bytes that a cache of objects leaves free on its file system.
pub const CACHE_FREE_BYTES_MIN: u64 = 256 << 20;

/// When a cache needs space, it also removes one in this many of its bytes, so that the next
/// objects have space.
pub const CACHE_ROOM_SHARE: u64 = 16;

/// After one in this many of its bytes has been added, a cache is scanned again: other processes
/// may share it.
pub const CACHE_SCAN_SHARE: u64 = 8;

/// Most objects that a cache removes at once: it stores the names and times of this many.
pub const CACHE_EVICTED_MAX: usize = 65_536;

/// Time for which a cache removes nothing more after the disk was full: space may be freed late.
pub const CACHE_DISK_FULL_PAUSE: std::time::Duration = std::time::Duration::from_secs(10);

/// An object's use is not recorded again within this time: each record writes its inode.
pub const CACHE_USED_PERIOD: std::time::Duration = std::time::Duration::from_secs(300);

/// Threads that write objects into a cache.
pub const CACHE_WRITERS: usize = 2;

/// Interval at which a cache is synced while objects are added.
pub const CACHE_SYNC_PERIOD: std::time::Duration = std::time::Duration::from_secs(30);

/// After bytes have waited this long to be written, the disk counts as stalled: reads continue
/// without it.
pub const CACHE_STALL_MAX: std::time::Duration = std::time::Duration::from_secs(20);

/// Most separate pieces of one object: with more it is not cached.
pub const CACHE_PIECES_MAX: usize = 16_384;

/// One in this many of the process's descriptors is for files of a cache.
pub const CACHE_DESCRIPTORS_SHARE: u64 = 4;

/// Most names that `--refresh` adds to a mount, also those that are gone again, and objects that it
/// replaces: about 100 MiB.
pub const MOUNT_CHANGES_MAX: usize = 250_000;

/// Shortest interval of `--refresh`.
pub const MOUNT_REFRESH_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Most results of refreshes queued for their lines.
pub const MOUNT_REFRESHES_QUEUED_MAX: usize = 4;
