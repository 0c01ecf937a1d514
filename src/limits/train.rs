//! Limits of the descriptions of training jobs: they are small, and are held in memory completely.

/// Longest description of a training job, in bytes. The API's own limits allow about 1.3 MB.
pub const JOB_BYTES_MAX: usize = 2 << 20;

/// Deepest nesting of a description. The API's own goes to 6.
pub const JOB_DEPTH_MAX: usize = 64;

/// Most values of a YAML description, including those repeated by aliases: a short text can refer
/// to billions.
pub const JOB_VALUES_MAX: usize = 100_000;

/// A value counts once more per this many bytes of its text.
pub const JOB_VALUE_BYTES: usize = 32;

/// Most problems of a description that are listed one by one.
pub const JOB_PROBLEMS_MAX: usize = 100;

/// Most hosts of a training job: each has a name in its configuration.
pub const JOB_HOSTS_MAX: u32 = 65_536;

/// Longest record of files that earlier runs wrote, in bytes: it has the names of all hosts up to
/// four times. A longer one is ignored.
pub const WRITTEN_BYTES_MAX: u64 = 8 << 20;

/// Most bytes of listings of File mode channels retained until their download, all channels
/// together: 8 million objects with keys of 60 bytes. The rest is listed again.
pub const KEPT_LISTINGS_BYTES_MAX: u64 = 1 << 30;

/// They take at most one part in this many of the memory of the machine, or of its cgroup.
pub const KEPT_LISTINGS_MEMORY_SHARE: u64 = 8;

/// Most files in the folder of a File mode channel that are not the channel's: this many are
/// counted.
pub const OTHER_FILES_MAX: u64 = 10_000;

/// This many of them are named.
pub const OTHER_FILES_NAMED_MAX: usize = 3;

/// Most files of a channel that are checked before its download to compute the needed space: each
/// takes a few microseconds.
pub const PRESENT_FILES_MAX: u64 = 1_000_000;
