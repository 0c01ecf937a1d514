//! Limits of `mount`.

/// Blocks in which stat(2) counts the space of a file, in bytes.
pub const BLOCK_BYTES: u64 = 512;

/// Keys without a name in the mount that are listed; those beyond are counted.
pub const HIDDEN_KEPT_MAX: usize = 100_000;

/// Streams of one open file, at most: places from which it is read on.
pub const MOUNT_STREAMS_MAX: usize = 8;

/// A stream that so many reads of its file have not gone on with is over.
pub const MOUNT_IDLE_READS: u64 = 16;

/// Fewer bytes are not asked for ahead of a reader, unless the file ends there: each request has
/// its cost.
pub const MOUNT_AHEAD_BYTES_MIN: u64 = 128 << 10;

/// One in so many leases is left for what is waited for.
pub const MOUNT_LEASES_RESERVED_SHARE: usize = 4;

/// Where nothing but leases takes data slots, one of so many of a worker's is not leased: for
/// ranges that are asked for twice.
pub const UNLEASED_SLOTS_SHARE: usize = 8;

/// Longest read that the kernel asks for, in bytes: its own limit on one request.
pub const MOUNT_READ_BYTES_MAX: u32 = 1 << 20;

/// How far the kernel reads ahead by itself, in KiB, where it may be told: reads come in pieces of
/// [`MOUNT_READ_BYTES_MAX`] then.
pub const MOUNT_READAHEAD_KIB: u32 = 1024;

/// Reads ahead of programs that the kernel has under way at once, at most.
pub const MOUNT_BACKGROUND_MAX: u16 = 64;

/// Threads that take the kernel's requests, at most.
pub const MOUNT_THREADS_MAX: usize = 4;

/// Requests that the kernel has under way at once over io_uring for each processor, at most: so
/// many pieces of memory, each of [`MOUNT_READ_BYTES_MAX`].
pub const MOUNT_QUEUE_ENTRIES_MAX: usize = 32;

/// The same, at least: with fewer of them requests would wait for each other.
pub const MOUNT_QUEUE_ENTRIES_MIN: usize = 8;

/// One in so many bytes of the memory that a user has named may be for such requests.
pub const MOUNT_QUEUE_MEMORY_SHARE: u64 = 4;

/// The same of the machine's memory, where nobody has named any.
pub const MOUNT_QUEUE_MACHINE_SHARE: u64 = 16;

/// Where files have more bytes than this on average, the device is taken: over io_uring each byte
/// is copied once more, and each request costs less. On two cores, 2026-11-26, both read files of
/// 256 KiB equally fast; the ring was up to 1.95 times as fast with requests alone, and 0.85 times
/// as fast with files of 1 GiB.
pub const MOUNT_QUEUE_MEAN_BYTES_MAX: u64 = 256 << 10;

/// Longest wait of a thread that serves such requests before it looks again.
pub const MOUNT_QUEUE_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Names that are asked for at once because their objects were replaced, at most.
pub const MOUNT_LOOKUPS_MAX: usize = 16;

/// Folders that are listed at once because a program uses them, at most.
pub const MOUNT_LISTINGS_MAX: usize = 16;

/// Names and folders that wait to be asked for, at most; more fail with EAGAIN.
pub const MOUNT_LOOKUPS_QUEUED_MAX: usize = 1024;

/// Files that were closed and wait for their lines in the report, at most; of more there are only
/// the totals.
pub const MOUNT_CLOSED_TOLD_MAX: usize = 4096;

/// How long the kernel may keep names and attributes: those that change while it is mounted it is
/// told to forget.
pub const MOUNT_NAMES_TTL: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Errors of reads that are printed, at most; a read that succeeds makes room for more.
pub const MOUNT_ERRORS_TOLD_MAX: usize = 20;

/// Bytes that a cache of objects leaves free on its file system.
pub const CACHE_FREE_BYTES_MIN: u64 = 256 << 20;

/// Where a cache needs room, one in so many of its bytes goes with what has to go, so that the next
/// objects find some.
pub const CACHE_ROOM_SHARE: u64 = 16;

/// When one in so many of its bytes has come, a cache is looked through again: others may share it.
pub const CACHE_SCAN_SHARE: u64 = 8;

/// Objects that a cache removes at once, at most: of so many it remembers names and times.
pub const CACHE_EVICTED_MAX: usize = 65_536;

/// For so long a cache removes nothing more because the disk is full: space may come back late.
pub const CACHE_DISK_FULL_PAUSE: std::time::Duration = std::time::Duration::from_secs(10);

/// An object of a cache that was used again within so long is not noted as used: that costs a write
/// of its inode.
pub const CACHE_USED_PERIOD: std::time::Duration = std::time::Duration::from_secs(300);

/// Threads that write objects into a cache.
pub const CACHE_WRITERS: usize = 2;

/// How often a cache is synced while something comes.
pub const CACHE_SYNC_PERIOD: std::time::Duration = std::time::Duration::from_secs(30);

/// When bytes have waited so long to be written, the disk does not answer: reads go on without it.
pub const CACHE_STALL_MAX: std::time::Duration = std::time::Duration::from_secs(20);

/// Pieces of one object that have come and do not touch each other, at most: with more it is not
/// kept.
pub const CACHE_PIECES_MAX: usize = 16_384;

/// Of the descriptors that a process may have, one in so many is for files of a cache.
pub const CACHE_DESCRIPTORS_SHARE: u64 = 4;
