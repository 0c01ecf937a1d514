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

/// Longest note of what earlier runs wrote, in bytes: it has the names of all hosts up to four
/// times. A longer one is none.
pub const WRITTEN_BYTES_MAX: u64 = 8 << 20;

/// Listings of the channels in File mode of a training job that are kept until they are downloaded,
/// in bytes, all channels together: 8 million objects with keys of 60 bytes. What does not fit is
/// listed again.
pub const KEPT_LISTINGS_BYTES_MAX: u64 = 1 << 30;

/// They take at most one part in so many of the memory of the machine, or of its control group.
pub const KEPT_LISTINGS_MEMORY_SHARE: u64 = 8;

/// Files in the folder of a channel in File mode that are not of the channel: so many are counted.
pub const OTHER_FILES_MAX: u64 = 10_000;

/// So many of them are named.
pub const OTHER_FILES_NAMED_MAX: usize = 3;

/// Files of a channel that are looked at before its download, to say what space it needs: a look
/// takes a few microseconds.
pub const PRESENT_FILES_MAX: u64 = 1_000_000;
