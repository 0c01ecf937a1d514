//! Limits of the data plane: name, unit, and the relations that must hold.
//!
//! The control plane's are in `control::limits`, those of one run in [`crate::engine::config`].

mod answers;
mod bench;
mod destinations;
mod gunzip;
mod memory;
pub mod metrics;
mod mount;
mod network;
mod pace;
mod stream;
mod train;

pub use answers::*;
pub use bench::*;
pub use destinations::*;
pub use gunzip::*;
pub use memory::*;
pub use mount::*;
pub use network::*;
pub use pace::*;
pub use stream::*;
pub use train::*;

/// Direct I/O alignment in bytes: of memory, file offset and length. Every common device and file
/// system accepts 4,096 (statx(2), STATX_DIOALIGN); one that needs more refuses the write.
pub const DIRECT_ALIGNMENT_BYTES: u32 = 4096;

/// Longest data slot, in bytes. Writes of 1 MiB saturate a virtual disk at depth 16.
pub const SLOT_BYTES_MAX: u32 = 1 << 20;

/// Shortest data slot, in bytes: smaller ones cost more system calls than they save memory.
pub const SLOT_BYTES_MIN: u32 = 64 << 10;

/// Length of data slots, in bytes, if the first page of a listing has only small objects: less
/// memory to touch, and still long enough for direct writes of later objects.
pub const SLOT_BYTES_SMALL: u32 = 256 << 10;

/// Length of a connection's control slot in bytes, for the request sent and the head received.
pub const CONTROL_SLOT_BYTES: u32 = 16 << 10;

/// Longest TLS record on the wire, in bytes: TLS 1.2 allows 2^14 + 2,048 and a header of 5
/// (RFC 5246 section 6.2.3), TLS 1.3 less (RFC 8446 section 5.2).
pub const TLS_RECORD_BYTES_MAX: u32 = (16 << 10) + 2048 + 5;

/// Longest handshake message that is accepted after the TLS handshake, in bytes: a ticket may be as
/// long (RFC 8446 section 4.6.1).
pub const TLS_MESSAGE_BYTES_MAX: u32 = 0xffff;

/// Most consecutive TLS records without data, and messages of TLS itself: a server sends a few
/// tickets at once. rustls and BoringSSL allow as many key updates.
pub const TLS_RECORDS_WITHOUT_DATA_MAX: u32 = 32;

/// Front part of a TLS connection's buffer, in bytes, for sending: a request as long as a control
/// slot allows, in records, after the end of the handshake.
pub const TLS_OUT_BYTES: u32 = CONTROL_SLOT_BYTES + (4 << 10);

/// Length of a TLS connection's buffer, in bytes: bytes to send, then received ciphertext. It
/// should stay in the core's cache between the socket and the decryption, and each receive costs a
/// wake-up: 4 GiB from nginx took 271 CPU-seconds a TB with 256 KiB, 247 with 512 KiB, and 315 with
/// 1 MiB (two cores with 2 MiB of cache each).
pub const TLS_SLOT_BYTES: u32 = 512 << 10;

/// Length of a buffer for a stream's bytes in memory: the content of a full buffer of ciphertext.
/// Each write of it costs a system call, and may wake the reader.
pub const TLS_PIECE_BYTES: u32 = 256 << 10;

/// Bytes in memory of a channel's ranges ahead of their turn, if memory is not scarce: all cores
/// receive, or decrypt, the next ranges while one is handed on.
pub const BACKLOG_BYTES_MIN: u64 = 64 << 20;

/// Bytes in memory ahead of their turn per core that receives them, if that is more.
pub const BACKLOG_BYTES_PER_WORKER: u64 = 16 << 20;

/// Buffers that the range whose turn it is may always fill: one is handed on while others are
/// filled.
pub const BACKLOG_BUFFERS_AT_TURN: usize = 4;

/// Buffers of a range that is not among the next ones: it has begun, so its server sees that it is
/// read.
pub const BACKLOG_BUFFERS_FAR: usize = 2;

/// Number of ranges after the one whose turn it is that may be in memory as a whole, however long.
pub const BACKLOG_RANGES_NEAR_MIN: u64 = 2;

/// Ciphertext takes at most one part in this many of a run's memory, unless the user sets the
/// number of connections.
pub const TLS_MEMORY_SHARE: u64 = 2;

/// Its buffers are as long as the memory allows for this many connections per worker: over TLS more
/// connections are limited by the CPU.
pub const TLS_CONNECTIONS_PER_WORKER: usize = 64;

/// Least length of a TLS connection's buffer, in bytes, if memory is scarce: it must hold a
/// certificate chain.
pub const TLS_SLOT_BYTES_MIN: u32 = 128 << 10;

/// Low-water mark of a long body's receive, in bytes (SO_RCVLOWAT), at most half a slot. Each
/// wake-up of a waiting receive costs a task switch and a poll: with 512 KiB a loopback download
/// took 0.165 CPU-seconds a GB, without 0.225 (two workers, 32 connections, medians).
pub const RECEIVE_LOW_WATER_BYTES_MAX: u32 = 512 << 10;

/// Low-water mark for a body that is spliced into a pipe, in bytes: the pipe's reader gets the
/// bytes as soon as they come.
pub const STREAM_LOW_WATER_BYTES: u32 = 256 << 10;

/// And at least one wake-up per this time, in microseconds, by the rate of the body so far: 256 KiB
/// over a share of a slow network would reach the reader only each second.
pub const STREAM_LOW_WATER_US: u64 = 50_000;

/// Time after which a receive with a low-water mark is checked, in microseconds: a few bytes may
/// have come, and no more may follow. A connection of 500 kB/s fills a slot in that time.
pub const RECEIVE_LOOK_US: u64 = 2_000_000;

/// A shorter rest of a body wakes its receive with every byte.
pub const RECEIVE_LOW_WATER_BYTES_MIN: u32 = 32 << 10;

/// True if an object of this size is fetched completely into one slot, after the space for the
/// head.
#[must_use]
pub const fn fits_whole(size_bytes: u64, slot_length_bytes: u32) -> bool {
    size_bytes + HEAD_ROOM_BYTES as u64 <= slot_length_bytes as u64
}

/// Most headers in a response head, also of the control plane. S3 sends about 20, an object's
/// `x-amz-meta-*` may be any number within 2 KiB, and proxies add theirs. They are parsed into an
/// array of 8 KiB on the stack, which is not initialized.
pub const HEADERS_MAX: usize = 256;

/// Most bytes of an error answer's body that are stored to explain it.
pub const REFUSAL_BYTES_MAX: u32 = 8 << 10;

/// Most data slots that a connection uses at once: one is filled while the other is written.
pub const SLOTS_PER_CONNECTION: u32 = 2;

/// Fewest data slots of a worker.
pub const SLOTS_PER_WORKER_MIN: usize = 2;

/// At most one in this many of a worker's data slots is leased to clients at the same time: the
/// others are enough for everything else, however long the clients hold theirs.
pub const LEASED_SLOTS_SHARE: usize = 2;

/// While more than this part of a worker's data slots is in use, a request for a small object takes
/// one only when its answer has come; else it takes one when it is sent, which saves a poll.
pub const SLOTS_EAGER_SHARE: usize = 4;

/// Control slots take at most one part in this many of a run's memory.
pub const CONTROL_MEMORY_SHARE: u64 = 4;

/// Most workers; a machine with more cores leaves the others to the training job.
pub const WORKERS_MAX: usize = 256;

/// Connections with which each worker begins by default.
pub const CONNECTIONS_PER_WORKER_START: usize = 16;

/// Most connections with which a run begins by default.
pub const CONNECTIONS_START_MAX: usize = 256;

/// Fewest connections to which a run's pace is reduced.
pub const CONNECTIONS_LEAST: usize = 4;

/// Most connections of a run by default, with up to 16 workers: more than 400 Gb/s at 90 MB/s each.
pub const CONNECTIONS_DEFAULT_MAX: usize = 1024;

/// With more workers, this many per worker: 3,200 Gb/s on 192 of them need 8,000 at 68 MB/s each.
pub const CONNECTIONS_DEFAULT_PER_WORKER: usize = 64;

/// Most connections of a run.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Most connections of one worker; the ring is sized for it.
pub const CONNECTIONS_PER_WORKER_MAX: usize = 2048;

/// Most connections of a channel.
pub const CONNECTIONS_PER_CHANNEL_MAX: usize = 1024;

/// Descriptors of a stream's range: a socket and both ends of a pipe.
pub const DESCRIPTORS_PER_RANGE: u64 = 3;

/// Default length of one range GET, in bytes.
pub const PART_BYTES_DEFAULT: u64 = 8 << 20;

/// Smallest part size, in bytes.
pub const PART_BYTES_MIN: u64 = SLOT_BYTES_MAX as u64;

/// Largest part size, in bytes.
pub const PART_BYTES_MAX: u64 = 1 << 30;

/// Most objects in a scheduler, including those in flight: the listing pauses until there is space.
/// Each connection may have an object of its own.
pub const OBJECTS_QUEUED_MAX: usize = CONNECTIONS_MAX;

/// Most queued requests of all clients together: a client limits its own.
pub const REQUESTS_QUEUED_MAX: usize = 65_536;

/// Most tries of a run to lock unfinished files that another process holds, all files together.
pub const LOCK_LOOKS_MAX: u32 = 50;

/// Pause before each of these tries.
pub const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Age of a file's last change before `verify --adopt` reads it: more than a tick of the clock of
/// file times (10 ms if the kernel's HZ is 100), so that another change shows.
pub const ADOPT_REST: std::time::Duration = std::time::Duration::from_millis(20);

/// Age of the last change if file times have whole seconds only: FAT's resolution is two seconds.
pub const ADOPT_REST_COARSE: std::time::Duration = std::time::Duration::from_millis(2100);

/// Number of checks if a file has come to rest; one that has not is not adopted.
pub const ADOPT_LOOKS_MAX: usize = 4;

/// Most large objects left unfinished by an earlier run that wait with open files; others begin
/// again.
pub const UNFINISHED_OPEN_MAX: usize = 256;

/// Most ranges of an object with a journal: 2 MiB of memory during the download, and more than 50
/// TB in ranges of the default length.
pub const JOURNAL_RANGES_MAX: u64 = 1 << 24;

/// Records of a journal besides four per range: a run that is killed before a complete file is
/// published leaves one more, a slow range records its progress, and an interrupted run writes one
/// for each connection with a range of the object. They take 400 kB.
pub const JOURNAL_SPARE_RECORDS: u64 = 20_000;

/// Interval at which a range in progress records its written bytes, in microseconds: a kill then
/// costs a slow connection only a few seconds of its bytes.
pub const PREFIX_PAUSE_US: u64 = 4_000_000;

/// Longest index of marks that is read or appended to, in bytes, if files cannot have their own
/// marks: 78 per written file, and 80 of memory during a run's lookups.
pub const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Most whole syncs recorded at a destination: one per boot of the machine.
pub const SYNCS_REMEMBERED_MAX: usize = 32;

/// Most ranges handed out to a worker at once.
pub const RANGES_PER_HANDOUT_MAX: usize = 64;

/// Most empty objects that one turn of a worker creates: they need no connection, and its
/// connections must not wait for a long row of them.
pub const EMPTY_OBJECTS_PER_TURN_MAX: usize = 16;

/// Objects from this size on, in bytes, are written through the ring past the page cache, in one
/// range if they fit a slot; smaller ones by one call. 2,000 files of 256 KiB took 137 microseconds
/// of CPU time each through the ring and 171 by one call, in no more time; with 128 KiB both are
/// alike.
pub const WHOLE_BYTES_MAX: u64 = 256 << 10;

/// Objects up to this size, in bytes, have no journal: it would cost more calls than their bytes
/// are worth.
pub const JOURNAL_OBJECT_BYTES_MIN: u64 = SLOT_BYTES_MAX as u64;

/// Most file jobs in progress of a worker before it begins no more objects: those of its
/// connections and slots come besides.
pub const FILE_JOBS_MAX: usize = 256;

/// Consecutive file system calls whose durations are averaged.
pub const FILE_CALLS_WATCHED: u32 = 32;

/// If they take longer than this on average, in microseconds, helper threads make them. Handing one
/// over costs a few microseconds and two task switches.
pub const FILE_CALL_SLOW_US: u64 = 1_000;

/// Helper threads of a run, divided evenly among its workers: this many calls, and syncs, overlap.
pub const FILE_HELPERS_MAX: usize = 64;

/// But at least this many per worker.
pub const FILE_HELPERS_PER_WORKER_MIN: usize = 4;

/// Threads of a run that write to files without io_uring, divided evenly among its workers: this
/// many writes are at the disk at once.
pub const RING_WRITERS_MAX: usize = 32;

/// But at least this many per worker.
pub const RING_WRITERS_PER_WORKER_MIN: usize = 4;

/// Most large objects in progress at once: few unfinished files, but more than one inode.
pub const OBJECTS_OPEN_MAX: usize = 4;

/// Most large objects in progress including those of endpoints that are passed over now. Beyond
/// that another one begins only if nothing else can be requested.
pub const OBJECTS_OPEN_ALL_MAX: usize = 2 * OBJECTS_OPEN_MAX;

/// Tries of one range, including the first.
pub const ATTEMPTS_MAX: u32 = 8;

/// Most tries of one range that a user may set: with the longest backoff about three hours.
pub const ATTEMPTS_WISHED_MAX: u32 = 1000;

/// Default time for which an endpoint that refuses or does not answer is retried, in microseconds:
/// a server that restarts or a name that moves takes most of a minute.
pub const RETRY_FOR_US: u64 = 60_000_000;

/// Longest such time that a user may set: a day.
pub const RETRY_FOR_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Default number of requests that list one source at once: at 20 ms per page they return more than
/// one thread can process.
pub const LIST_REQUESTS_DEFAULT: usize = 16;

/// Most such requests that a user may set.
pub const LIST_REQUESTS_MAX: usize = 32;

/// Retries that a worker always has: a bad minute of a small run.
pub const RETRIES_BASE_MAX: u64 = 10_000;

/// Further retries of a worker, per 100 requests: an endpoint that fails four times out of five is
/// not worth the bytes that are fetched in vain.
pub const RETRIES_PER_100_REQUESTS_MAX: u64 = 80;

/// Ranges requested a second time because they are far behind their peers, per 100 requests, in
/// addition to one per connection.
pub const HEDGES_PER_100_REQUESTS_MAX: u64 = 5;

/// But at most this many at once.
pub const HEDGES_AT_ONCE_MAX: usize = 32;

/// Most moves of one range from a late connection to another.
pub const MOVES_MAX: u32 = 3;

/// An operation is late after this many times the duration of nine in ten.
pub const HEDGE_FACTOR: u64 = 4;

/// An operation is not late before this time, in microseconds.
pub const HEDGE_AFTER_MIN_US: u64 = 200_000;

/// An operation is stuck after this many times the duration of nine in ten: it is ended before its
/// timeout.
pub const STUCK_FACTOR: u64 = 8;

/// The time after which an operation counts as stuck is doubled at most this often, once per try.
pub const STUCK_DOUBLINGS_MAX: u32 = 5;

/// An operation is not stuck before this time, in microseconds.
pub const STUCK_AFTER_MIN_US: u64 = 600_000;

/// A late operation is stuck after this time at the latest, in microseconds.
pub const STUCK_AFTER_MAX_US: u64 = 5_000_000;

/// If an endpoint has several addresses, one from which nothing has come is late after this time,
/// in microseconds, while the usual duration of an answer is unknown; twice that for each move of
/// the range.
pub const UNHEARD_AFTER_US: u64 = 2_000_000;

/// Pause between two checks for late operations, in microseconds.
pub const HEDGE_LOOK_US: u64 = 10_000;

/// Time for which an address that failed is avoided, in microseconds; doubled each time.
pub const ADDRESS_AVOID_BASE_US: u64 = 1_000_000;

/// Longest of these times, in microseconds.
pub const ADDRESS_AVOID_MAX_US: u64 = 30_000_000;

/// Most endpoints (hosts and ports) that an engine distinguishes: each has its own request rate if
/// it asks for fewer requests, and its own counters. Further ones share the last one's.
pub const ENDPOINTS_MAX: usize = 32;

/// Most free connections of a worker that are checked for one to a range's endpoint, if there are
/// several endpoints.
pub const FREE_CONNECTIONS_LOOKED_AT_MAX: usize = 64;

/// Addresses whose health a run records, and for which each worker has counters.
pub const ADDRESSES_KEPT_MAX: usize = 256;

/// Most restarts of an object from its first byte, because it changed or its checksum is wrong.
pub const RESTARTS_MAX: u32 = 3;

/// Consecutive failed attempts of a run, without a byte of any object in between, after which the
/// endpoint counts as gone and the run ends. At a fault rate of one half the chance is 1 in 2^256.
pub const FAILED_ATTEMPTS_IN_A_ROW_MAX: u32 = 256;

/// They must fail for at least this time, in microseconds; longer if an endpoint that does not
/// answer is retried for longer.
pub const FAILING_TIME_MIN_US: u64 = 10_000_000;

/// Pause before the first retry, in microseconds; doubled each time, and drawn from 0 up to it.
pub const BACKOFF_BASE_US: u64 = 100_000;

/// Longest pause between two tries, in microseconds.
pub const BACKOFF_MAX_US: u64 = 10_000_000;

/// Longest pause between two tries while the endpoint does not answer, in microseconds: a server
/// that is back is noticed in a second or two, and until then it gets about one connection per
/// second from each of ours.
pub const UNREACHABLE_BACKOFF_MAX_US: u64 = 2_000_000;

/// A wait is reported after this time, in microseconds: a healthy server answers far sooner.
pub const WAIT_REPORTED_AFTER_US: u64 = 2_000_000;

/// A wait for a piece of a body is reported after this time, in microseconds, because a slow
/// network may take long.
pub const WAIT_REPORTED_BODY_AFTER_US: u64 = 10_000_000;

/// Interval of the checks for waits to report, in microseconds, while something is waited for.
pub const WAIT_LOOK_US: u64 = 250_000;

/// Shortest time between two lines about one wait without a terminal, in microseconds.
pub const WAIT_REPORTED_PAUSE_US: u64 = 10_000_000;

/// Shortest time between two lines if host or reason has changed, in microseconds.
pub const WAIT_REPORTED_CHANGED_US: u64 = 2_000_000;

/// Timeout of a connection attempt, in microseconds.
pub const CONNECT_TIMEOUT_US: u64 = 10_000_000;

/// Time from the request to the first byte of the answer, in microseconds.
pub const FIRST_BYTE_TIMEOUT_US: u64 = 30_000_000;

/// Timeout of one receive of at most a slot, in microseconds: a slower connection has stalled.
pub const STALL_TIMEOUT_US: u64 = 30_000_000;

/// Time after which an idle connection is closed, in microseconds: S3 closes its side after about 5
/// s.
pub const IDLE_TIMEOUT_US: u64 = 4_000_000;

/// Most that a server's time may move the signing clock. A machine whose clock has local time
/// instead of UTC is off by up to 14 hours (UTC+14), and drifts; a man in the middle could
/// otherwise obtain signatures for any other day, to use them then.
pub const CLOCK_CORRECTION_MAX: std::time::Duration = std::time::Duration::from_secs(15 * 3_600);

/// A worker that is away from its ring for longer has paused, in microseconds: the excess does not
/// count against its connections. Long enough for the work of a usual turn.
pub const LOOP_PAUSE_MIN_US: u64 = 10_000;

/// Longest sleep of a worker with something in flight, in microseconds: then it checks whether
/// connections are late. One that its pace holds back asks for work again as often.
pub const TURN_WAIT_MAX_US: u64 = 200_000;

/// Longest sleep of a feeder, or of a worker, that waits for a stream's reader, in microseconds: an
/// event wakes it, and a lost wake-up costs this time.
pub const REST_WAIT_MAX_US: u64 = 1_000_000;

/// Longest sleep of a worker with nothing in flight, in microseconds: its counter wakes it, and a
/// lost wake-up costs this time.
pub const IDLE_WAIT_MAX_US: u64 = 10_000_000;

/// Most folder handles that one worker holds open; fewer if descriptors are scarce.
pub const FOLDERS_OPEN_MAX: usize = 512;
/// Descriptors that `verify` reserves for its runtime, its signals, its report and its listing.
pub const VERIFY_DESCRIPTORS_BESIDES: u64 = 20;

/// Descriptors of a run besides its connections and cached ones: standard streams, runtime, large
/// objects with their journals; workers have their own besides.
pub const DESCRIPTORS_OTHER: u64 = 48;

/// Descriptors of each worker: its event counter and its ring, which are two over epoll.
pub const DESCRIPTORS_PER_WORKER: u64 = 3;

/// Most objects and folders whose paths `sync --delete` stores, at 8 bytes each: a source with more
/// is an error.
pub const SYNC_DELETE_OBJECTS_MAX: usize = 1 << 25;

/// Deepest nesting of folders that `sync --delete` enters; keys have fewer levels.
pub const SWEEP_DEPTH_MAX: usize = 600;

/// Time after which a process that was interrupted, or whose deadline has passed, exits whatever
/// system call is blocked: on a file system that responds, operations in flight end in a fraction
/// of it.
pub const ENDING_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Default time for the command of `train` to end after a signal, or after its input has failed,
/// before it is killed.
pub const COMMAND_GRACE: std::time::Duration = std::time::Duration::from_secs(30);

/// Longest such time that an option may set.
pub const COMMAND_GRACE_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Most characters of `output/failure`: those of `FailureReason` of Amazon's `DescribeTrainingJob`.
pub const FAILURE_TEXT_MAX: usize = 1024;

/// Most problems of one channel that are reported before a training job begins.
pub const CHANNEL_PROBLEMS_REPORTED_MAX: usize = 10;

/// Then it waits this long until its last messages are written.
pub const LAST_WORDS_TIME: std::time::Duration = std::time::Duration::from_millis(500);

/// Most removed files queued for reporting.
pub const REMOVED_QUEUED_MAX: usize = 256;

/// Longest time that a run which was ended early waits for its report file: less than
/// [`ENDING_GRACE`], so that it can report the outcome.
pub const REPORT_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Most files that `verify` reads at once; fewer if there are fewer cores.
pub const CHECK_READERS_MAX: usize = 16;

/// Most unfinished files of earlier runs that are read at once while workers are busy.
pub const RESUMED_READERS_MAX: usize = 2;

/// Bytes of a file read at a time to compute its checksum.
pub const CHECK_PIECE_BYTES: usize = 1 << 20;

/// Most sources that an error names if none of many can be read.
pub const NAMED_SOURCES_MAX: usize = 3;

/// Most failed objects that are printed one by one; the report has all.
pub const FAILURES_PRINTED_MAX: usize = 20;

/// Retries that each worker logs with `--verbose`.
pub const RETRIES_LOGGED_MAX: u64 = 100;

/// Default size of the demo's large objects together, in bytes, if there is space.
pub const DEMO_LARGE_BYTES_DEFAULT: u64 = 2 << 30;

/// Smallest such size, in bytes: several parts each.
pub const DEMO_LARGE_BYTES_MIN: u64 = 64 << 20;

/// Largest such size, in bytes.
pub const DEMO_LARGE_BYTES_MAX: u64 = 1 << 40;

/// Preferred size of a private pipe and of the reader's pipe, in bytes: the usual limit of an
/// unprivileged user (pipe(7), pipe-max-size).
pub const PIPE_BYTES: u64 = 1 << 20;

/// Most pieces of one body that a worker moves into a pipe before it serves its other connections.
/// A socket that is filled while it is emptied would otherwise hold it for a whole range.
pub const STREAM_PIECES_PER_TURN_MAX: usize = 16;

/// Most bytes of one splice.
pub const SPLICE_BYTES_MAX: u64 = 4 << 20;

/// Most objects queued in a channel's feed.
pub const FEED_OBJECTS_MAX: usize = 2048;

/// Most bytes of one piece of a stream that inrush itself writes. Longer texts are split.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Most such bytes queued in a channel's feed, besides one more batch, and in its feeder's window,
/// besides one more piece.
pub const INLINE_AHEAD_BYTES_MAX: usize = 1 << 20;

/// Most such pieces in a feeder's window: several for each range in flight.
pub const INLINE_AHEAD_PIECES_MAX: usize = 1024;

/// Most attributes of an augmented manifest in a stream: SageMaker's limit.
pub const AUGMENTED_ATTRIBUTES_MAX: usize = 16;

/// Most characters of an attribute's name.
pub const ATTRIBUTE_NAME_CHARS_MAX: usize = 256;

/// Longest line of an augmented manifest, in bytes.
pub const AUGMENTED_LINE_BYTES_MAX: usize = 1 << 20;

/// Longest augmented manifest in bytes, which is held in memory with 8 bytes per line and per key;
/// those that a job fetches are together no longer.
pub const AUGMENTED_BYTES_MAX: u64 = 4 << 30;

/// Most buckets in its lines.
pub const AUGMENTED_BUCKETS_MAX: usize = 100;

/// Most folders that describe where the keys of a bucket are: each is listed separately.
pub const NAMED_FOLDERS_MAX: usize = 32;

/// Number of markers of whole epochs that a channel retains in its folder: the last ones.
pub const EPOCH_MARKERS_MAX: u64 = 1000;

/// Most tries of a run to lock a channel that another process holds: locks of a process that was
/// just killed may be released a little later.
pub const CHANNEL_LOCK_LOOKS_MAX: u32 = 20;

/// Longest time for which a feeder does not check an empty feed, in microseconds: its counter wakes
/// it long before, unless a wake-up is lost.
pub const FEED_LOOK_US: u64 = TURN_WAIT_MAX_US;

/// Most bytes of memory per channel for a listing that is sorted, of a shuffle or a directory
/// bucket: 41 million objects with keys of 60 bytes. Streams in key order hold a page or two.
pub const LISTING_BYTES_MAX: u64 = 4 << 30;

/// The next epoch is listed when this epoch has one range left per this many of its objects:
/// listing n objects takes n/1000 requests in turn, fetching an eighth of them over 32 connections
/// n/256 rounds.
pub const LISTED_AHEAD_SHARE: u64 = 8;

/// It is listed when this many ranges are left, whatever the number of objects: two rounds of 32
/// connections, for the first page.
pub const LISTED_AHEAD_RANGES_MIN: u64 = 64;

/// Most epochs of a channel that are reported one by one at the end: the last ones.
pub const EPOCHS_REPORTED_MAX: usize = 1000;

const _: () = assert!(INLINE_BYTES_MAX < INLINE_AHEAD_BYTES_MAX);
const _: () = assert!(SLOT_BYTES_MIN.is_multiple_of(DIRECT_ALIGNMENT_BYTES));
const _: () = assert!(SLOT_BYTES_MAX.is_power_of_two() && SLOT_BYTES_MIN.is_power_of_two());
const _: () = assert!(SLOT_BYTES_SMALL >= SLOT_BYTES_MIN && SLOT_BYTES_SMALL <= SLOT_BYTES_MAX);
const _: () = assert!(SLOT_BYTES_SMALL.is_power_of_two());
const _: () = assert!(CONTROL_SLOT_BYTES.is_multiple_of(DIRECT_ALIGNMENT_BYTES));
const _: () = assert!(PART_BYTES_MIN.is_multiple_of(SLOT_BYTES_MAX as u64));
const _: () = assert!(LEASED_SLOTS_SHARE > 1 && SLOTS_PER_WORKER_MIN >= LEASED_SLOTS_SHARE);
const _: () = assert!(HEAD_ROOM_BYTES < SLOT_BYTES_MIN && HEAD_RECEIVE_BYTES <= HEAD_BUFFER_BYTES);
const _: () = assert!(FAILED_ATTEMPTS_IN_A_ROW_MAX > ATTEMPTS_MAX);
const _: () = assert!(REPORT_WAIT_MAX.as_millis() * 2 < ENDING_GRACE.as_millis());
const _: () = assert!(BACKOFF_BASE_US <= UNREACHABLE_BACKOFF_MAX_US);
const _: () = assert!(UNREACHABLE_BACKOFF_MAX_US <= BACKOFF_MAX_US);
const _: () = assert!(TLS_SLOT_BYTES_MIN >= TLS_OUT_BYTES + 2 * TLS_RECORD_BYTES_MAX);
const _: () = assert!(TLS_SLOT_BYTES_MIN.is_multiple_of(DIRECT_ALIGNMENT_BYTES));
const _: () = assert!(LOOP_PAUSE_MIN_US * 10 <= HEDGE_AFTER_MIN_US);
