//! Bounds of what is exported while a command runs.

use std::time::Duration;

/// Connections that are served metrics at once: one more ends the oldest.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// Longest time for one of them, from its first byte to its last.
pub const METRICS_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Most bytes of the head of a request for metrics: the least that hyper takes.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;

/// How often the file of metrics is written.
pub const METRICS_FILE_PERIOD: Duration = Duration::from_secs(5);

/// How often the machine's TCP memory is looked at: three small files of /proc.
pub const TCP_MEMORY_PERIOD: Duration = Duration::from_secs(1);

/// How long workers may take to say what it has counted so far.
pub const SNAPSHOT_WAIT_MAX: Duration = Duration::from_secs(1);
