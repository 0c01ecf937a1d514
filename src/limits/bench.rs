//! Limits of `bench`.

/// Default total size of generated objects, and of files on disk, in bytes.
pub const BENCH_BYTES_DEFAULT: u64 = 1 << 30;

/// Most runs of each step.
pub const BENCH_RUNS_MAX: u32 = 1000;
