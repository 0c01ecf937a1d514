//! Limits of metrics that are exported while a command runs.

use std::time::Duration;

/// Most simultaneous connections for metrics: one more closes the oldest.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// Longest duration of one of them, from its first byte to its last.
pub const METRICS_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Most bytes of the head of a request for metrics: hyper's minimum.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;

/// Interval at which the file of metrics is written.
pub const METRICS_FILE_PERIOD: Duration = Duration::from_secs(5);

/// Longest time for workers to return their counters.
pub const SNAPSHOT_WAIT_MAX: Duration = Duration::from_secs(1);
