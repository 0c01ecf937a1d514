//! Bounds of a download that is spread over several destinations.

/// Most destinations of a run.
pub const SPREAD_MAX: usize = 64;

/// A destination is handed as many bytes beforehand as it writes in a second, and at least so many:
/// before anything is known of it, and for fast ones in any case.
pub const SPREAD_WINDOW_BYTES_MIN: u64 = 512 << 20;

/// It is handed so many objects whatever their size: large ones are written beside each other.
pub const SPREAD_OBJECTS_MIN: u64 = 4;
