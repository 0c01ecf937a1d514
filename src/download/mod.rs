//! File mode: from the objects of a listing to files at their destinations.
//!
//! An object passes `disjoint` and `target` (where it goes), `existing` (what is there of it),
//! `space` (whether it fits), `checksums` (what its bytes are compared with) and `spread` (which
//! of several destinations takes it); `run` feeds the workers with it, `refetch` looks at it once
//! more where it failed, and `mirror` removes what the source does not have.

pub(super) mod cancel;
pub(super) mod checksums;
pub(super) mod devices;
pub(super) mod disjoint;
pub(super) mod existing;
pub(super) mod failures;
pub(super) mod job;
pub(super) mod mirror;
pub(super) mod observer;
pub(super) mod own_files;
pub(super) mod refetch;
pub(super) mod run;
pub(super) mod space;
pub mod spread;
pub(super) mod target;
