//! Every limit of the data plane: its name, its unit, and the relations that must hold.
//!
//! The control plane's are in `control::limits`, this run's in [`crate::engine::config`].

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
/// system takes 4,096 (statx(2), STATX_DIOALIGN); one that asks for more refuses the write.
pub const DIRECT_ALIGNMENT_BYTES: u32 = 4096;

/// Longest data slot, in bytes. 1 MiB a write is where a virtual disk is saturated at depth 16.
pub const SLOT_BYTES_MAX: u32 = 1 << 20;

/// Shortest data slot, in bytes: smaller ones cost more system calls than they save memory.
pub const SLOT_BYTES_MIN: u32 = 64 << 10;

/// Where the first page of a listing holds small objects alone, data slots are made only so long,
/// in bytes: less memory to touch, and still long enough for direct writes of what may follow.
pub const SLOT_BYTES_SMALL: u32 = 256 << 10;

/// Length of a connection's control slot: the request on its way out, the head on its way in.
pub const CONTROL_SLOT_BYTES: u32 = 16 << 10;

/// Longest TLS record on the wire, in bytes: TLS 1.2 allows 2^14 + 2,048 and a header of 5
/// (RFC 5246 section 6.2.3), TLS 1.3 less (RFC 8446 section 5.2).
pub const TLS_RECORD_BYTES_MAX: u32 = (16 << 10) + 2048 + 5;

/// Longest message of TLS's handshake protocol that is accepted after the handshake, in bytes: a
/// ticket may be as long (RFC 8446 section 4.6.1).
pub const TLS_MESSAGE_BYTES_MAX: u32 = 0xffff;

/// Most TLS records without data, and messages of TLS itself, in a row: a server sends a few
/// tickets at once. rustls and BoringSSL allow as many updates of keys.
pub const TLS_RECORDS_WITHOUT_DATA_MAX: u32 = 32;

/// Front part of a TLS connection's buffer, in bytes, for what is to be sent: a request as long as
/// a control slot allows, in records, behind the end of the handshake.
pub const TLS_OUT_BYTES: u32 = CONTROL_SLOT_BYTES + (4 << 10);

/// Length of a TLS connection's buffer, in bytes: what is to be sent, and behind it ciphertext as
/// it comes. It should stay in the core's cache between the socket and the decryption, and each
/// receive costs a wake-up: 4 GiB from nginx took 271 CPU-seconds a TB with 256 KiB, 247 with
/// 512 KiB, and 315 with 1 MiB (two cores with 2 MiB of cache each).
pub const TLS_SLOT_BYTES: u32 = 512 << 10;

/// Length of a buffer for plaintext of a stream, in bytes: what a full buffer of ciphertext holds.
/// Each write of it costs a system call, and may wake the reader.
pub const TLS_PIECE_BYTES: u32 = 256 << 10;

/// Plaintext of a channel's ranges ahead of their turn, in bytes, where memory is not scarce: the
/// ranges next in line are decrypted by all cores while one is handed on.
pub const BACKLOG_BYTES_MIN: u64 = 64 << 20;

/// The same for each core that decrypts, where that is more.
pub const BACKLOG_BYTES_PER_WORKER: u64 = 16 << 20;

/// Buffers of the range whose turn it is that may always be filled: one is handed on while others
/// are.
pub const BACKLOG_BUFFERS_AT_TURN: usize = 4;

/// Buffers of a range that is not one of the next: it has begun, and its server sees that it is
/// read.
pub const BACKLOG_BUFFERS_FAR: usize = 2;

/// So many ranges behind the one whose turn it is may be decrypted whole, however long they are.
pub const BACKLOG_RANGES_NEAR_MIN: u64 = 2;

/// Ciphertext takes at most one part in so many of a run's memory, unless a number of connections
/// is asked for.
pub const TLS_MEMORY_SHARE: u64 = 2;

/// Its buffers are as long as so many connections of each worker leave room for: over TLS more than
/// that are bound by its processor.
pub const TLS_CONNECTIONS_PER_WORKER: usize = 64;

/// The same where memory is scarce: it must hold a chain of certificates.
pub const TLS_SLOT_BYTES_MIN: u32 = 128 << 10;

/// A long body wakes its receive only when so many bytes have come (SO_RCVLOWAT), at most half a
/// slot. Each wake-up of a waiting receive costs a task switch and a poll: with 512 KiB a loopback
/// download took 0.165 CPU-seconds a GB, without 0.225 (two workers, 32 connections, medians).
pub const RECEIVE_LOW_WATER_BYTES_MAX: u32 = 512 << 10;

/// The same for a body that is spliced into a pipe: whoever reads the pipe has what came sooner.
pub const STREAM_LOW_WATER_BYTES: u32 = 256 << 10;

/// And as often as this at least, in microseconds, by the rate at which its body came so far: 256
/// KiB of one that shares a slow network would reach the reader each second.
pub const STREAM_LOW_WATER_US: u64 = 50_000;

/// What waits for many bytes is looked at after so long, in microseconds: few may have come, and no
/// more may follow. A connection of 500 kB/s fills a slot in that time.
pub const RECEIVE_LOOK_US: u64 = 2_000_000;

/// Shorter rests of a body wake their receive with every byte.
pub const RECEIVE_LOW_WATER_BYTES_MIN: u32 = 32 << 10;

/// True when an object of this size is fetched whole into one slot, behind that room.
#[must_use]
pub const fn fits_whole(size_bytes: u64, slot_length_bytes: u32) -> bool {
    size_bytes + HEAD_ROOM_BYTES as u64 <= slot_length_bytes as u64
}

/// Most headers in a response head, of the control plane's answers too. S3 sends about 20 and an
/// object's `x-amz-meta-*` may be any number within 2 KiB; proxies add theirs. They are parsed into
/// an array on the stack, which nobody fills in vain: 8 KiB.
pub const HEADERS_MAX: usize = 256;

/// Most bytes of an error answer's body that are kept to explain it.
pub const REFUSAL_BYTES_MAX: u32 = 8 << 10;

/// Data slots that a connection uses at once, at most: one fills while the other is written.
pub const SLOTS_PER_CONNECTION: u32 = 2;

/// Fewest data slots of a worker.
pub const SLOTS_PER_WORKER_MIN: usize = 2;

/// At most one of so many of a worker's data slots is leased to clients at the same time: the
/// others are enough for all else to go on, however long the clients keep theirs.
pub const LEASED_SLOTS_SHARE: usize = 2;

/// While more than this part of a worker's data slots is taken, a request for a small object takes
/// one only when its answer is there; else it takes one when it is sent, which saves a poll.
pub const SLOTS_EAGER_SHARE: usize = 4;

/// Control slots take at most one part in so many of a run's memory.
pub const CONTROL_MEMORY_SHARE: u64 = 4;

/// Most workers; a machine with more cores leaves the others to the training job.
pub const WORKERS_MAX: usize = 256;

/// Connections with which each worker begins when nothing is said.
pub const CONNECTIONS_PER_WORKER_START: usize = 16;

/// Connections with which a run begins when nothing is said, at most.
pub const CONNECTIONS_START_MAX: usize = 256;

/// Fewest that the pace of a run goes down to.
pub const CONNECTIONS_LEAST: usize = 4;

/// Connections that a run may come to when nothing is said, with up to 16 workers: more than 400
/// Gb/s at 90 MB/s each.
pub const CONNECTIONS_DEFAULT_MAX: usize = 1024;

/// With more workers so many for each: 3,200 Gb/s on 192 of them need 8,000 at 68 MB/s each.
pub const CONNECTIONS_DEFAULT_PER_WORKER: usize = 64;

/// Most connections of a run.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Most connections of one worker; the ring is sized for it.
pub const CONNECTIONS_PER_WORKER_MAX: usize = 2048;

/// Most connections of a channel.
pub const CONNECTIONS_PER_CHANNEL_MAX: usize = 1024;

/// Descriptors of a stream's range: a socket and both ends of a pipe.
pub const DESCRIPTORS_PER_RANGE: u64 = 3;

/// Bytes of one range GET when nothing is said.
pub const PART_BYTES_DEFAULT: u64 = 8 << 20;

/// Smallest part size.
pub const PART_BYTES_MIN: u64 = SLOT_BYTES_MAX as u64;

/// Largest part size.
pub const PART_BYTES_MAX: u64 = 1 << 30;

/// Objects that a scheduler holds at most, those in flight included: the listing stops until there
/// is room. Each connection may have one of its own.
pub const OBJECTS_QUEUED_MAX: usize = CONNECTIONS_MAX;

/// Requests of all clients that no worker has begun, at most: a client bounds its own.
pub const REQUESTS_QUEUED_MAX: usize = 65_536;

/// How often a run asks again for locks of unfinished files that somebody has, all files together.
pub const LOCK_LOOKS_MAX: u32 = 50;

/// Pause before each of these.
pub const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Age of a file's last change before `verify --adopt` reads it: more than a tick of the clock that
/// times of files come from (10 ms where the kernel's HZ is 100), so that another change shows.
pub const ADOPT_REST: std::time::Duration = std::time::Duration::from_millis(20);

/// The same where times of files have no fractions of a second: FAT counts two of them.
pub const ADOPT_REST_COARSE: std::time::Duration = std::time::Duration::from_millis(2100);

/// How often it looks whether a file has come to rest; one that has not is not adopted.
pub const ADOPT_LOOKS_MAX: usize = 4;

/// Large objects that an earlier run left unfinished and that wait with their files open, at most;
/// others begin again.
pub const UNFINISHED_OPEN_MAX: usize = 256;

/// Most ranges of an object that has a journal: 2 MiB of memory while it goes on, and more than 50
/// TB in ranges of the usual length.
pub const JOURNAL_RANGES_MAX: u64 = 1 << 24;

/// Records that a journal may have beside four for each range: a run that is killed before a
/// complete file has its name leaves one more, a slow range notes how far it is, and a run that is
/// interrupted one for each connection that has a range of the object. They take 400 kB.
pub const JOURNAL_SPARE_RECORDS: u64 = 20_000;

/// A range that is under way for so long notes which of its bytes are written, in microseconds, and
/// again after as long: a kill costs a slow connection what it brought in a few seconds.
pub const PREFIX_PAUSE_US: u64 = 4_000_000;

/// Longest index of marks that is read or added to, in bytes, where files cannot carry their own:
/// 78 a file that was written, 80 of memory while a run looks.
pub const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Whole syncs that a destination remembers: one for each start of the machine.
pub const SYNCS_REMEMBERED_MAX: usize = 32;

/// Ranges that one hand-out gives to a worker, at most.
pub const RANGES_PER_HANDOUT_MAX: usize = 64;

/// Objects without bytes that one turn of a worker makes, at most: they take no connection, and its
/// connections must not wait for a long run of them.
pub const EMPTY_OBJECTS_PER_TURN_MAX: usize = 16;

/// Objects from this size on are written through the ring past the page cache, in one range if they
/// fit a slot; smaller ones by one call. 2,000 files of 256 KiB took 137 microseconds of processor
/// time each through the ring and 171 by one call, in no more time; with 128 KiB both are alike.
pub const WHOLE_BYTES_MAX: u64 = 256 << 10;

/// Objects up to this size have no journal: it costs more calls than their bytes are worth.
pub const JOURNAL_OBJECT_BYTES_MIN: u64 = SLOT_BYTES_MAX as u64;

/// File jobs of a worker that have not ended, at most, before it begins no more objects: what its
/// connections and slots have then comes besides.
pub const FILE_JOBS_MAX: usize = 256;

/// So many calls of the file system in a row say how long they take.
pub const FILE_CALLS_WATCHED: u32 = 32;

/// When they take longer than this on average, in microseconds, helper threads make them. To hand
/// one over costs a few microseconds and two task switches.
pub const FILE_CALL_SLOW_US: u64 = 1_000;

/// Helper threads of a run, shared out evenly among its workers: as many calls, and syncs, overlap.
pub const FILE_HELPERS_MAX: usize = 64;

/// But each worker may have so many.
pub const FILE_HELPERS_PER_WORKER_MIN: usize = 4;

/// Threads of a run that write to files where there is no io_uring, shared out evenly among its
/// workers: so many writes are at the disk at once.
pub const RING_WRITERS_MAX: usize = 32;

/// But each worker may have so many.
pub const RING_WRITERS_PER_WORKER_MIN: usize = 4;

/// Large objects that are in progress at once: few half-done files, but more than one inode.
pub const OBJECTS_OPEN_MAX: usize = 4;

/// The same with those of endpoints that are passed over now. Beyond it another is begun only where
/// nothing else may be asked for.
pub const OBJECTS_OPEN_ALL_MAX: usize = 2 * OBJECTS_OPEN_MAX;

/// Tries of one range, the first included.
pub const ATTEMPTS_MAX: u32 = 8;

/// Most tries of one range that may be asked for: with the longest backoff about three hours.
pub const ATTEMPTS_WISHED_MAX: u32 = 1000;

/// An endpoint that refuses or does not answer is retried for so long when nothing is said, in
/// microseconds: a server that starts again or a name that moves takes most of a minute.
pub const RETRY_FOR_US: u64 = 60_000_000;

/// Longest time of that kind that may be asked for: a day.
pub const RETRY_FOR_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Requests that list one source at once when nothing is said: with 20 ms to a page they bring more
/// than one thread can use.
pub const LIST_REQUESTS_DEFAULT: usize = 16;

/// As many as may be asked for.
pub const LIST_REQUESTS_MAX: usize = 32;

/// Retries that a worker has whatever happens: a bad minute of a small run.
pub const RETRIES_BASE_MAX: u64 = 10_000;

/// Retries that a worker has besides, per 100 requests: an endpoint that fails four times of five
/// is not worth the bytes that are fetched in vain.
pub const RETRIES_PER_100_REQUESTS_MAX: u64 = 80;

/// Ranges that are asked for a second time, per 100 requests, because they are far behind their
/// peers; and one for each connection besides.
pub const HEDGES_PER_100_REQUESTS_MAX: u64 = 5;

/// But no more than so many besides.
pub const HEDGES_AT_ONCE_MAX: usize = 32;

/// How often one range is moved from a late connection to another.
pub const MOVES_MAX: u32 = 3;

/// An operation is late after so many times what nine of ten took.
pub const HEDGE_FACTOR: u64 = 4;

/// Nothing is late sooner, in microseconds.
pub const HEDGE_AFTER_MIN_US: u64 = 200_000;

/// An operation is stuck after so many times what nine of ten took: it is ended before its timeout.
pub const STUCK_FACTOR: u64 = 8;

/// The patience with what is stuck is doubled so often at most, once for each try.
pub const STUCK_DOUBLINGS_MAX: u32 = 5;

/// Nothing is stuck sooner, in microseconds.
pub const STUCK_AFTER_MIN_US: u64 = 600_000;

/// What is late is stuck after this time at the latest, in microseconds.
pub const STUCK_AFTER_MAX_US: u64 = 5_000_000;

/// An address from which nothing has come, of several that an endpoint has, is late after this
/// time, in microseconds, while it is not known how long an answer usually takes; twice that for
/// each move of the range.
pub const UNHEARD_AFTER_US: u64 = 2_000_000;

/// Pause between two looks for late operations, in microseconds.
pub const HEDGE_LOOK_US: u64 = 10_000;

/// An address that failed is avoided for so long, in microseconds; doubled each time.
pub const ADDRESS_AVOID_BASE_US: u64 = 1_000_000;

/// The longest of these times.
pub const ADDRESS_AVOID_MAX_US: u64 = 30_000_000;

/// Endpoints (hosts and ports) that an engine tells apart: each has its own rate of requests where
/// it asks for less, and its own counts. Those beyond share the last one's.
pub const ENDPOINTS_MAX: usize = 32;

/// Free connections of a worker that are looked at for one that leads to a range's endpoint
/// already, where there are several endpoints.
pub const FREE_CONNECTIONS_LOOKED_AT_MAX: usize = 64;

/// Addresses that a run knows the health of, and that each worker keeps counts of.
pub const ADDRESSES_KEPT_MAX: usize = 256;

/// How often an object is fetched again from its first byte, because it changed or its checksum is
/// wrong.
pub const RESTARTS_MAX: u32 = 3;

/// Attempts of a run that may fail in a row, with no byte of any object between them: the endpoint
/// is gone, and the run ends. At a fault rate of one half that is one chance in 2^256.
pub const FAILED_ATTEMPTS_IN_A_ROW_MAX: u32 = 256;

/// For so long they must have failed at least, in microseconds; longer where an endpoint that does
/// not answer is retried for longer.
pub const FAILING_TIME_MIN_US: u64 = 10_000_000;

/// Wait before the first retry, in microseconds; doubled each time, drawn from 0 up to it.
pub const BACKOFF_BASE_US: u64 = 100_000;

/// Longest wait between two tries, in microseconds.
pub const BACKOFF_MAX_US: u64 = 10_000_000;

/// The same while the endpoint does not answer: a server that is back is noticed in a second or
/// two, and until then it gets about one connection per second from each of ours.
pub const UNREACHABLE_BACKOFF_MAX_US: u64 = 2_000_000;

/// What is waited for so long is told, in microseconds: a healthy server answers far sooner.
pub const WAIT_TOLD_AFTER_US: u64 = 2_000_000;

/// The same of a piece of a body that is on its way, which a slow network may take long for.
pub const WAIT_TOLD_BODY_AFTER_US: u64 = 10_000_000;

/// How often it is looked whether there is something to tell, in microseconds.
pub const WAIT_LOOK_US: u64 = 250_000;

/// The same while nothing is waited for, in microseconds: what begins meanwhile is not to be told
/// before [`WAIT_TOLD_AFTER_US`].
pub const WAIT_REST_LOOK_US: u64 = 1_000_000;

/// Shortest time between two lines about the same, where there is no terminal.
pub const WAIT_TOLD_PAUSE_US: u64 = 10_000_000;

/// Shortest time between two lines where host or reason has changed.
pub const WAIT_TOLD_CHANGED_US: u64 = 2_000_000;

/// Time for a connection to be made, in microseconds.
pub const CONNECT_TIMEOUT_US: u64 = 10_000_000;

/// Time from the request to the first byte of the answer, in microseconds.
pub const FIRST_BYTE_TIMEOUT_US: u64 = 30_000_000;

/// Time for one receive of at most a slot, in microseconds: slower is a stalled connection.
pub const STALL_TIMEOUT_US: u64 = 30_000_000;

/// An idle connection is closed after this time, in microseconds: S3 closes its side after about 5
/// s.
pub const IDLE_TIMEOUT_US: u64 = 4_000_000;

/// How far a server's time may move the clock that signs. A machine whose clock runs on local time
/// instead of UTC is off by up to 14 hours (UTC+14), and drifts; whoever is in between could have
/// signatures made for any other day, to use them then.
pub const CLOCK_CORRECTION_MAX: std::time::Duration = std::time::Duration::from_secs(15 * 3_600);

/// A worker that is away from its ring for longer pauses, in microseconds: what is beyond does not
/// count against its connections. Long enough for the work of a usual turn.
pub const LOOP_PAUSE_MIN_US: u64 = 10_000;

/// Longest time a worker sleeps without looking at the clock and the stop flag, in microseconds;
/// one that was told to wait for work asks for it again after as long.
pub const TURN_WAIT_MAX_US: u64 = 200_000;

/// The same of a feeder that has nothing to do before something comes, in microseconds: an event
/// wakes it, and a lost one costs so long.
pub const REST_WAIT_MAX_US: u64 = 1_000_000;

/// Folder handles that one worker keeps open, at most; fewer where descriptors are scarce.
pub const FOLDERS_OPEN_MAX: usize = 512;
/// Descriptors that `verify` leaves for its runtime, its signals, its report and its listing.
pub const VERIFY_DESCRIPTORS_BESIDES: u64 = 20;

/// Descriptors that a run has besides its connections and what it keeps for later: standard
/// streams, runtime, large objects with their journals; a worker has some of its own.
pub const DESCRIPTORS_OTHER: u64 = 48;

/// Descriptors of each worker: its event counter and its ring, which are two over epoll.
pub const DESCRIPTORS_PER_WORKER: u64 = 3;

/// Objects and folders whose paths `sync --delete` remembers, at 8 bytes each: a source with more
/// is an error.
pub const SYNC_DELETE_OBJECTS_MAX: usize = 1 << 25;

/// Folders within folders that `sync --delete` walks into; a key has fewer.
pub const SWEEP_DEPTH_MAX: usize = 600;

/// A process that was interrupted, or whose deadline has passed, ends after this time whatever a
/// call to the kernel waits for: what was in flight ends in a fraction of it on a file system that
/// answers.
pub const ENDING_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// After a signal, or when its input fails, the command of `train` is given so long to end before
/// it is killed, where no option says otherwise.
pub const COMMAND_GRACE: std::time::Duration = std::time::Duration::from_secs(30);

/// The longest that an option may say.
pub const COMMAND_GRACE_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Most characters of `output/failure`: those of `FailureReason` of Amazon's `DescribeTrainingJob`.
pub const FAILURE_TEXT_MAX: usize = 1024;

/// Most problems that are told of one channel before a training job begins.
pub const CHANNEL_PROBLEMS_TOLD_MAX: usize = 10;

/// So long it then waits until its last words are written.
pub const LAST_WORDS_TIME: std::time::Duration = std::time::Duration::from_millis(500);

/// Removed files that wait to be told, at most.
pub const REMOVED_UNTOLD_MAX: usize = 256;

/// For so long a run that was ended early waits for the file of its report: less than
/// [`ENDING_GRACE`], so that it can say what became of it.
pub const REPORT_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// Files that `verify` reads at the same time, at most; fewer where there are fewer cores.
pub const CHECK_READERS_MAX: usize = 16;

/// Unfinished files of earlier runs that are read at the same time, while workers are busy.
pub const RESUMED_READERS_MAX: usize = 2;

/// Bytes of a file that are read at a time to compute its checksum.
pub const CHECK_PIECE_BYTES: usize = 1 << 20;

/// Failed objects that are told one by one on the screen; the report has them all.
pub const FAILURES_TOLD_MAX: usize = 20;

/// Retries that each worker logs with `--verbose`.
pub const RETRIES_LOGGED_MAX: u64 = 100;

/// Bytes of the demo's large objects when nothing is said, where there is room for them.
pub const DEMO_LARGE_BYTES_DEFAULT: u64 = 2 << 30;

/// Least of them: several parts each.
pub const DEMO_LARGE_BYTES_MIN: u64 = 64 << 20;

/// Most of them.
pub const DEMO_LARGE_BYTES_MAX: u64 = 1 << 40;

/// Wanted size of a private pipe and of the reader's pipe, in bytes: the usual limit of an
/// unprivileged user (pipe(7), pipe-max-size).
pub const PIPE_BYTES: u64 = 1 << 20;

/// Pieces of one body that a worker moves into a pipe before it looks after its other connections.
/// A socket that is filled while it is emptied would else keep it for a whole range.
pub const STREAM_PIECES_PER_TURN_MAX: usize = 16;

/// Most bytes that one splice asks for.
pub const SPLICE_BYTES_MAX: u64 = 4 << 20;

/// Objects that wait in a channel's feed, at most.
pub const FEED_OBJECTS_MAX: usize = 2048;

/// Bytes of one piece of a stream that inrush itself writes, at most. Longer texts are several.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Such bytes that wait in a channel's feed, beside one batch more, and in its feeder's window,
/// beside one piece more.
pub const INLINE_AHEAD_BYTES_MAX: usize = 1 << 20;

/// Pieces of them in a feeder's window, at most: several for each range that is on its way.
pub const INLINE_AHEAD_PIECES_MAX: usize = 1024;

/// Attributes of an augmented manifest that a stream has, at most: as many as SageMaker takes.
pub const AUGMENTED_ATTRIBUTES_MAX: usize = 16;

/// Characters in the name of one.
pub const ATTRIBUTE_NAME_CHARS_MAX: usize = 256;

/// Longest line of an augmented manifest, in bytes.
pub const AUGMENTED_LINE_BYTES_MAX: usize = 1 << 20;

/// Longest augmented manifest in bytes, which is kept in memory with 8 bytes for each line and each
/// key; those that a job fetches are no longer together.
pub const AUGMENTED_BYTES_MAX: u64 = 4 << 30;

/// How many buckets its lines may name.
pub const AUGMENTED_BUCKETS_MAX: usize = 100;

/// By how many folders it is told where the keys of a bucket lie: each is listed by itself.
pub const NAMED_FOLDERS_MAX: usize = 32;

/// Markers of whole epochs that a channel keeps in its folder: the last ones.
pub const EPOCH_MARKERS_MAX: u64 = 1000;

/// How often a run asks again for the lock of a channel that another process has: what a process
/// held that was just killed may be free a little later.
pub const CHANNEL_LOCK_LOOKS_MAX: u32 = 20;

/// Longest time that a feeder does not look at an empty feed, in microseconds: its counter wakes it
/// long before, unless a wake-up is lost.
pub const FEED_LOOK_US: u64 = TURN_WAIT_MAX_US;

/// A listing that is put in order, shuffled or a directory bucket's, takes so many bytes of memory
/// for each channel, at most: 41 million objects with keys of 60 bytes. Streams in key order hold a
/// page or two.
pub const LISTING_BYTES_MAX: u64 = 4 << 30;

/// The next epoch is listed when one range is left to be fetched for so many objects of this one:
/// to list n objects takes n/1000 requests in turn, to fetch an eighth of them over 32 connections
/// n/256 rounds.
pub const LISTED_AHEAD_SHARE: u64 = 8;

/// It is listed when so many ranges are left, whatever the number of objects: two rounds of 32
/// connections, for the first page.
pub const LISTED_AHEAD_RANGES_MIN: u64 = 64;

/// Epochs of a channel that are told one by one at the end: the last ones.
pub const EPOCHS_TOLD_MAX: usize = 1000;

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
const _: () = assert!(REPORT_PATIENCE.as_millis() * 2 < ENDING_GRACE.as_millis());
const _: () = assert!(BACKOFF_BASE_US <= UNREACHABLE_BACKOFF_MAX_US);
const _: () = assert!(UNREACHABLE_BACKOFF_MAX_US <= BACKOFF_MAX_US);
const _: () = assert!(TLS_SLOT_BYTES_MIN >= TLS_OUT_BYTES + 2 * TLS_RECORD_BYTES_MAX);
const _: () = assert!(TLS_SLOT_BYTES_MIN.is_multiple_of(DIRECT_ALIGNMENT_BYTES));
const _: () = assert!(LOOP_PAUSE_MIN_US * 10 <= HEDGE_AFTER_MIN_US);
