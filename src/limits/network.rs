//! Limits of network interfaces and timeouts, and of connections that a server leaves unanswered.

use std::time::Duration;

/// Longest name of a network interface, in bytes (IFNAMSIZ without the final NUL, netdevice(7)).
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Most network interfaces of a run: the largest instances have 32.
pub const INTERFACES_MAX: usize = 64;

/// Time after which a new connection without an answer is compared with answered ones of its
/// address, in microseconds.
pub const UNANSWERED_AFTER_US: u64 = 400_000;

/// And after this many answers of those, since it was opened.
pub const UNANSWERED_ANSWERS_MIN: u64 = 4;

/// And after this many times the slowest recent first byte of those.
pub const UNANSWERED_FACTOR: u64 = 4;

/// At least this many such connections, and one in [`UNANSWERED_SHARE`] of the open ones, mean that
/// the server serves no more than those that were answered; fewer are late for other reasons.
pub const UNANSWERED_MIN: usize = 2;

/// See [`UNANSWERED_MIN`].
pub const UNANSWERED_SHARE: usize = 2;

/// Pause between two checks for unanswered connections, in microseconds.
pub const UNANSWERED_LOOK_US: u64 = 50_000;

/// Time after which twice as many connections are tried again, in microseconds; doubled each time
/// that they are not answered.
pub const SERVED_PAUSE_MIN_US: u64 = 5_000_000;

/// Longest of these times, in microseconds.
pub const SERVED_PAUSE_MAX_US: u64 = 60_000_000;

/// Twice as many connections are served if none was found unanswered for this time, in
/// microseconds.
pub const SERVED_TRIAL_US: u64 = 2_000_000;

/// While other connections wait for an answer, an answered one is closed after the range that ends
/// this long after its first answer, in microseconds.
pub const SERVED_TURN_US: u64 = 1_000_000;

/// Shortest timeout for connecting or receiving.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Longest timeout for connecting or receiving.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Waits for an endpoint's request rate are not counted, up to this many times the retry time. With
/// 32 requests in turn at one per second, one was refused 26 times in 328 s.
pub const RATE_WAITS_FACTOR: u64 = 10;

/// Most times in a row that the redirects of a URL are followed again because a server refuses
/// their last target, without an accepted request between.
pub const URL_RENEWALS_IN_ROW_MAX: u32 = 5;

/// Most redirects of one request that are followed (RFC 9110 section 15.4); publishers of data need
/// one or two.
pub const URL_REDIRECTS_MAX: usize = 10;

/// Most servers to which the redirects of one endpoint lead: the nodes of a cluster behind it.
pub const REDIRECT_SERVERS_MAX: usize = 256;

/// Longest time for which a range keeps its connection while the addresses of the server that a
/// redirect leads to are looked up, in microseconds: as long as one answer of a name server may
/// take.
pub const REDIRECT_LOOK_UP_US: u64 = 2_000_000;
