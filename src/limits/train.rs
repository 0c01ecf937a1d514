//! The descriptions of training jobs: they are small, and are held in memory whole.

/// Longest description of a training job, in bytes. All that the API allows is about 1.3 MB.
pub const JOB_BYTES_MAX: usize = 2 << 20;

/// Deepest nesting of a description. The API's own goes to 6.
pub const JOB_DEPTH_MAX: usize = 64;

/// Most values of a description in YAML, with those that aliases repeat: a short text can name
/// billions.
pub const JOB_VALUES_MAX: usize = 100_000;

/// A value counts once more for so many bytes of its text.
pub const JOB_VALUE_BYTES: usize = 32;

/// Most problems of a description that are listed one by one.
pub const JOB_PROBLEMS_MAX: usize = 100;

/// Most hosts of a training job: each has a name in its configuration.
pub const JOB_HOSTS_MAX: u32 = 65_536;
