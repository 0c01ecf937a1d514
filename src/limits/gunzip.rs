//! Limits of gzip objects that are decompressed for a stream.

/// Most threads that decompress; one per core if there are fewer.
pub const INFLATERS_MAX: usize = 64;

/// Pieces of an object that wait for decompression, each as long as a buffer of the stream
/// ([`super::TLS_PIECE_BYTES`]): one is received while another is decompressed.
pub const INFLATE_PIECES_MAX: usize = 2;

/// Most objects of a channel in decompression per thread: some of them wait for input, others for
/// output space.
pub const INFLATE_OBJECTS_PER_THREAD: usize = 2;

/// At most one in this many of a stream's buffers in memory has decompressed bytes or input for
/// decompression; the others are for TLS.
pub const INFLATE_MEMORY_SHARE: u64 = 2;

/// Of these at most one in this many has input for decompression: with fewer free buffers fewer
/// objects begin, but always one.
pub const INFLATE_INPUT_SHARE: u64 = 2;
