//! Bounds of a download that is spread over several destinations, or goes to one that takes several
//! names for one, or is to be as the source.

use super::SYNC_DELETE_OBJECTS_MAX;

/// Most destinations of a run.
pub const SPREAD_MAX: usize = 64;

/// A destination is handed as many bytes beforehand as it writes in a second, and at least so many:
/// before anything is known of it, and for fast ones in any case.
pub const SPREAD_WINDOW_BYTES_MIN: u64 = 512 << 20;

/// It is handed so many objects whatever their size: large ones are written beside each other.
pub const SPREAD_OBJECTS_MIN: u64 = 4;

/// Objects whose paths are compared where the destination takes several names for one, at 16 bytes
/// each or less: a source with more is an error.
pub const FOLDED_PATHS_MAX: usize = SYNC_DELETE_OBJECTS_MAX;

/// Objects of `sync --delete` that wait for the end of the listing because a file or a folder is in
/// their way. Those past it fail.
pub const BLOCKED_OBJECTS_MAX: usize = 1 << 16;
