//! Limits of downloads to several destinations, to destinations that treat different names as
//! equal, and of `sync`; and of the links in a path.

use super::SYNC_DELETE_OBJECTS_MAX;

/// Most destinations of a run.
pub const SPREAD_MAX: usize = 64;

/// A destination is assigned the bytes that it writes in one second, and at least this many bytes:
/// before its rate is known, and for fast ones.
pub const SPREAD_WINDOW_BYTES_MIN: u64 = 512 << 20;

/// It is assigned at least this many objects whatever their size: large ones are written in
/// parallel.
pub const SPREAD_OBJECTS_MIN: u64 = 4;

/// Most objects whose paths are compared if the destination treats different names as equal, at up
/// to 16 bytes each: a source with more is an error.
pub const FOLDED_PATHS_MAX: usize = SYNC_DELETE_OBJECTS_MAX;

/// Most objects of `sync --delete` that wait for the end of the listing because a file or a folder
/// is in their way. Further ones fail.
pub const BLOCKED_OBJECTS_MAX: usize = 1 << 16;

/// Longest chain of links that is followed, as in the kernel (path_resolution(7)).
pub const LINKS_MAX: usize = 40;
