//! Bounds of the network interfaces and timeouts that a user names, and of connections that a
//! server leaves unanswered.

use std::time::Duration;

/// Longest name of a network interface, in bytes (IFNAMSIZ without its end, netdevice(7)).
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Most network interfaces of a run: the largest instances have 32.
pub const INTERFACES_MAX: usize = 64;

/// A new connection that waits for its first answer is compared with those of its address that
/// were answered, after so long, in microseconds.
pub const UNANSWERED_AFTER_US: u64 = 400_000;

/// And after so many answers of those, since it was opened.
pub const UNANSWERED_ANSWERS_MIN: u64 = 4;

/// And after so many times what the slowest of them took lately.
pub const UNANSWERED_FACTOR: u64 = 4;

/// So many such connections at least, and one of [`UNANSWERED_SHARE`] that are open, mean that the
/// server takes no more than those that were answered; fewer are late for reasons of their own.
pub const UNANSWERED_MIN: usize = 2;

/// See [`UNANSWERED_MIN`].
pub const UNANSWERED_SHARE: usize = 2;

/// Pause between two looks for connections that nothing answers, in microseconds.
pub const UNANSWERED_LOOK_US: u64 = 50_000;

/// After so long twice as many connections are tried again, in microseconds; doubled each time that
/// they are not answered.
pub const SERVED_PAUSE_MIN_US: u64 = 5_000_000;

/// The longest of these times.
pub const SERVED_PAUSE_MAX_US: u64 = 60_000_000;

/// Twice as many that were not found unanswered for so long, in microseconds, are served.
pub const SERVED_TRIAL_US: u64 = 2_000_000;

/// Where other connections wait for an answer, one that is answered is closed after the range that
/// ends so long after its first answer, in microseconds.
pub const SERVED_TURN_US: u64 = 1_000_000;

/// Shortest time that an attempt may be given to connect, or to receive something.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Longest such time: `inrush` notices within it that nothing comes any more.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The time for which the rate of an endpoint makes the tries of a range wait is not counted, up to
/// so many times the one for which it is retried. With 32 requests in turn at one a second, one was
/// refused 26 times in 328 s.
pub const RATE_WAITS_FACTOR: u64 = 10;
