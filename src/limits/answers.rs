//! Limits of answers: the length of heads, and tries after wrong ones.

use super::CONTROL_SLOT_BYTES;

/// Longest response head that is accepted, in bytes. S3 allows 2 KiB of metadata; other servers
/// send more.
pub const HEAD_BYTES_MAX: u32 = 64 << 10;

/// Most bytes of a head held at a time: of a longer one the irrelevant headers are dropped.
pub const HEAD_BUFFER_BYTES: u32 = CONTROL_SLOT_BYTES;

/// Bytes requested when only a head is expected: body bytes that come with it are copied once, so
/// this is small compared with a range of megabytes.
pub const HEAD_RECEIVE_BYTES: u32 = 4 << 10;

/// Bytes reserved before the body when a small object is received together with its head.
pub const HEAD_ROOM_BYTES: u32 = HEAD_BUFFER_BYTES;

/// Most digits of a chunk's length: 64 bits.
pub const CHUNK_DIGITS_MAX: u32 = 16;

/// Most consecutive bytes of a chunked body that are framing, including trailers.
pub const CHUNK_FRAMING_BYTES_MAX: u32 = HEAD_BYTES_MAX;

/// Most receives for the end of a chunked body, after its last byte. A server that sends it byte by
/// byte needs 7, each with the timeout of a receive.
pub const CHUNK_END_RECEIVES_MAX: u32 = 32;

/// A line of a head without a colon in this many bytes is not a relevant header.
pub const HEADER_NAME_BYTES_MAX: usize = 256;

/// Tries that may fail alike in a row because of a wrong answer: an answer that violates HTTP or S3
/// usually comes again.
pub const ALIKE_TRIES_MAX: u32 = 3;

/// Pause before the last of those tries, in microseconds: a proxy that is being replaced may answer
/// wrongly for a moment.
pub const ALIKE_PAUSE_US: u64 = 2_000_000;
