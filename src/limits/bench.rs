//! Bounds of `bench`.

/// Generated objects, and files on the disk, of `bench` together.
pub const BENCH_BYTES_DEFAULT: u64 = 1 << 30;

/// Most runs of a step of `bench`.
pub const BENCH_RUNS_MAX: u32 = 1000;
