//! Where the bytes of a body, or of a checksum, come from.
//!
//! Not here: which objects have them (`store.rs`).

use bytes::Bytes;

use crate::synthetic::index;

/// Synthetic bytes are made in pieces that are still in the cache when the kernel copies them.
pub(crate) const MADE_FRAME_BYTES: usize = 128 << 10;

/// Where the bytes of a body come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Bytes(Bytes),
    Synthetic { seed: u64 },
}

/// The part of bytes that are held that a range means.
pub(crate) fn slice(bytes: &Bytes, offset: u64, length_bytes: u64) -> Bytes {
    bytes.slice(index(offset)..index(offset + length_bytes))
}
