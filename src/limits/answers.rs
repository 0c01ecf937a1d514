//! Limits of answers: how long their heads are.

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

/// A line of a head without a colon in so many bytes is no header that counts.
pub const HEADER_NAME_BYTES_MAX: usize = 256;
