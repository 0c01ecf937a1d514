//! Objects of gzip that are inflated on their way into a stream.

/// Threads that inflate, at most; one for each core where there are fewer.
pub const INFLATERS_MAX: usize = 64;

/// Pieces of an object that wait for its inflater, each as long as a buffer of the stream
/// ([`super::TLS_PIECE_BYTES`]): one comes in while another is inflated.
pub const INFLATE_PIECES_MAX: usize = 2;

/// Objects of a channel that have begun to be inflated, at most, for each thread: some of them wait
/// for bytes, and others for room.
pub const INFLATE_OBJECTS_PER_THREAD: usize = 2;

/// At most one in so many of the buffers that a stream may have in memory has inflated bytes, or
/// bytes that wait for their inflater; the others are for what comes over TLS.
pub const INFLATE_MEMORY_SHARE: u64 = 2;

/// Of these again at most one in so many waits for its inflater: fewer objects begin where there is
/// no more room. One always may.
pub const INFLATE_INPUT_SHARE: u64 = 2;
