//! File mode: from the objects of a listing to files at their destinations.
//!
//! `sources` reads what lists name. An object passes `disjoint` and `target` (where it goes),
//! `existing` (what is there of it), `space` (whether it fits), `checksums` (what its bytes are
//! compared with) and `spread` (which of several destinations takes it); `run` feeds the workers
//! with it, `refetch` looks at it once more where it failed, `reporting` notes how it ended, and
//! `mirror` removes what the source does not have.

pub(crate) mod cancel;
pub(crate) mod checksums;
pub(crate) mod devices;
pub(crate) mod disjoint;
pub(crate) mod existing;
pub(crate) mod failures;
pub(crate) mod folder_lock;
pub(crate) mod job;
pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod own_files;
pub(crate) mod refetch;
pub(crate) mod reporting;
pub(crate) mod run;
pub(crate) mod sources;
pub(crate) mod space;
pub mod spread;
pub(crate) mod target;
