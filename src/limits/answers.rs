//! Limits of answers: how long their heads are, and how often they may be wrong.

use super::CONTROL_SLOT_BYTES;

/// Longest response head that is accepted, in bytes. S3 has 2 KiB of metadata; others send more.
pub const HEAD_BYTES_MAX: u32 = 64 << 10;

/// As much of a head is kept at a time, in bytes: of a longer one the headers go that do not count.
pub const HEAD_BUFFER_BYTES: u32 = CONTROL_SLOT_BYTES;

/// How much is asked for when only a head is expected: what comes with it is copied once, so it is
/// kept small beside a range of megabytes.
pub const HEAD_RECEIVE_BYTES: u32 = 4 << 10;

/// Room kept before the body when a small object is received together with its head.
pub const HEAD_ROOM_BYTES: u32 = HEAD_BUFFER_BYTES;

/// Most digits of a chunk's length: of 64 bits.
pub const CHUNK_DIGITS_MAX: u32 = 16;

/// Most bytes in a row of a body in chunks that are none of the body, its trailers included.
pub const CHUNK_FRAMING_BYTES_MAX: u32 = HEAD_BYTES_MAX;

/// Most receives that may bring the end of a body in chunks, behind its last byte. Whoever sends it
/// byte by byte has 7 of them, and each has the time of a receive.
pub const CHUNK_END_RECEIVES_MAX: u32 = 32;

/// A line of a head without a colon in so many bytes is no header that counts.
pub const HEADER_NAME_BYTES_MAX: usize = 256;

/// Tries that one answer may fail in the same way in a row: what a server sends that is not what
/// HTTP and S3 say comes again as a rule.
pub const ALIKE_TRIES_MAX: u32 = 3;

/// Pause before the last of those tries, in microseconds: a proxy that is replaced answers wrongly
/// for a moment.
pub const ALIKE_PAUSE_US: u64 = 2_000_000;
