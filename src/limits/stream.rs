//! Limits of streams: the bytes in flight.

/// Default of the bytes that all streams of a process may have requested and not handed on: they
/// are in pipes, in memory and in receive buffers of sockets. At 4 GB/s, the rate of one pipe, a
/// request may take 64 ms. The kernel's pressure mark of TCP memory (tcp_mem) is 1.5 GiB with 24
/// GiB of memory, for all programs together.
pub const STREAM_BYTES_MAX: u64 = 256 << 20;

/// Fewest ranges that a channel should have within its share of that: one is handed on, one is
/// received, one is late, one is requested. If many channels share it, parts are shorter.
pub const STREAM_PARTS_MIN: u64 = 4;

/// Ranges should take half of that together, so they are shorter if there are more, but at least
/// this long, in bytes, while the share allows it: each costs a request. 32 ranges of 8 MiB reached
/// 2.7 GB/s from loopback at 92 CPU-seconds a TB with 245 MiB of TCP memory, of 4 MiB 3.8 at 94
/// with 140, of 2 MiB 4.2 at 82 with 50 (two cores, nginx, a reader that only reads).
pub const STREAM_PART_BYTES_SHORT: u64 = 2 << 20;

/// Shortest range in any case, in bytes.
pub const STREAM_PART_BYTES_LEAST: u64 = 64 << 10;

/// The body of a stream's request is to take at most this long, in microseconds. While bodies take
/// longer and the reader waits, parts become shorter, but not shorter than
/// [`PART_BYTES_MIN`](super::PART_BYTES_MIN). 32 requests of 4 MiB share a network of 10 MB/s: each
/// would take 13 seconds.
pub const STREAM_REQUEST_US: u64 = 1_000_000;

/// Number of requests whose mean duration is compared with that.
pub const STREAM_REQUESTS_JUDGED: u64 = 4;

/// Under pressure of the machine's TCP memory [`STREAM_BYTES_MAX`] is halved at most this often.
pub const STREAM_PRESSURE_HALVINGS_MAX: u32 = 3;

/// Time without pressure after which one halving ends, in microseconds.
pub const STREAM_PRESSURE_REST_US: u64 = 5_000_000;

/// Interval at which the machine's TCP memory is read, in microseconds.
pub const STREAM_PRESSURE_LOOK_US: u64 = 250_000;

/// Longest time between two checks of the served channels without a progress line, while a worker
/// waits for a server; events report all else.
pub const STREAM_LOOK_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// First pause between two checks for a reader, in microseconds, if no event reports one; doubled
/// up to [`PAUSE_SHORT_US`].
pub const READER_WAIT_FIRST_US: u64 = 1_000;

/// First pause between two checks if a reader has read all of its epoch, in microseconds; doubled
/// up to [`PAUSE_SHORT_US`].
pub const UNREAD_PAUSE_FIRST_US: u64 = 500;

/// Longest pause of a feeder that polls, in microseconds, until that is less than one in
/// [`PAUSE_SHARE`] parts of the time waited; the longest is
/// [`REST_WAIT_MAX_US`](super::REST_WAIT_MAX_US).
pub const PAUSE_SHORT_US: u64 = 20_000;

/// A long wait's end is noticed late by at most 1.6 % of its duration.
pub const PAUSE_SHARE: u64 = 64;
