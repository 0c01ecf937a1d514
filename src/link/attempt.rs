//! Decides what follows a failed attempt, in every mode: another try after a pause, or the end.
//! Pure.
//!
//! Ranges of File mode, ranges of Pipe mode and requests of the control plane share one policy. A
//! transient failure is retried a limited number of times in a row without progress. An endpoint
//! that refuses or does not answer is retried by number *and* by time, because it may be
//! restarting; so is an endpoint that asks for fewer requests (503, 429), which the request rate
//! gives it, and one that refuses expired keys, until newer ones come. Progress (bytes beyond those
//! that any earlier attempt reached) resets both limits.

use std::fmt;

use crate::limits::{
    ATTEMPTS_MAX, BACKOFF_BASE_US, BACKOFF_MAX_US, RATE_WAITS_FACTOR, RETRY_FOR_US,
    UNREACHABLE_BACKOFF_MAX_US,
};

/// Limits of the retries of a transient failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most tries in a row without progress, including the first.
    pub attempts_max: u32,
    /// Least time for which an endpoint that does not answer is retried, in microseconds.
    pub retry_for_us: u64,
    /// Timeouts of one attempt.
    pub timeouts: Timeouts,
}

/// Timeouts of one attempt, in microseconds. `None`: the caller's default; listings try the next
/// address sooner than ranges, which try several at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including TLS.
    pub connect_us: Option<u64>,
    /// For the first byte of an answer, and between further bytes.
    pub read_us: Option<u64>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let timeouts = Timeouts::default();
        Self { attempts_max: ATTEMPTS_MAX, retry_for_us: RETRY_FOR_US, timeouts }
    }
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The endpoint refuses connections, or does not answer.
    Unreachable,
    /// The endpoint asks for fewer requests (503, 429).
    Overloaded,
    /// The endpoint refuses keys that have expired, and newer ones may come.
    ExpiredKeys,
    /// The endpoint answers, but wrongly.
    Faulty,
}

impl Cause {
    /// The cause by what a failure says about the endpoint.
    #[must_use]
    pub const fn new(is_unreachable: bool, is_overloaded: bool) -> Self {
        match (is_unreachable, is_overloaded) {
            (true, _) => Self::Unreachable,
            (false, true) => Self::Overloaded,
            (false, false) => Self::Faulty,
        }
    }
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    /// Another try, after a random pause between 0 and this ceiling in microseconds (full jitter).
    Again {
        /// The ceiling, in microseconds.
        ceiling_us: u64,
    },
    /// No further try.
    GiveUp,
}

/// The tries of one range or request since it last made progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Tries in a row, including the current one.
    tries: u32,
    /// Tries that failed although the endpoint answered.
    faulty: u32,
    /// Most bytes that any attempt reached.
    reached: u64,
    /// Time of the first failure in a row.
    failing_since_us: Option<u64>,
    /// Time of the first failure in a row that found the endpoint unreachable or overloaded, or the
    /// keys expired.
    unreachable_since_us: Option<u64>,
    /// The last failure was an overload.
    is_overloaded: bool,
    /// Time for which the endpoint's request rate has made tries wait, as far as it is not counted.
    excused_us: u64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            tries: 1,
            faulty: 0,
            reached: 0,
            failing_since_us: None,
            unreachable_since_us: None,
            is_overloaded: false,
            excused_us: 0,
        }
    }
}

impl Attempts {
    /// Tries in a row without progress, including the current one.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Time of the first failure without progress since, in microseconds; `None` if there was none.
    #[must_use]
    pub fn failing_since_us(&self) -> Option<u64> {
        self.failing_since_us
    }

    /// Records that an attempt has reached this many bytes; true if that is progress, which resets
    /// the limits.
    pub fn reach(&mut self, bytes: u64) -> bool {
        let progress = bytes > self.reached;
        if progress {
            *self = Self { reached: bytes, ..Self::default() };
        }
        progress
    }

    /// The tries of the range without its first `bytes`, for another connection.
    #[must_use]
    pub fn without_first(mut self, bytes: u64) -> Self {
        self.reached = self.reached.saturating_sub(bytes);
        self
    }

    /// Records that the next try waits this long for the endpoint's request rate. After an overload
    /// such a wait says nothing about the endpoint and is not counted: of all tries together at
    /// most [`RATE_WAITS_FACTOR`] times the retry time, so that an endless overload ends.
    pub fn waits_for_turn(&mut self, time_us: u64, policy: RetryPolicy) {
        if self.is_overloaded {
            let excused_us = self.excused_us.saturating_add(time_us);
            let most_us = policy.retry_for_us.saturating_mul(RATE_WAITS_FACTOR);
            self.excused_us = excused_us.min(most_us);
        }
    }

    /// Decides what follows a transient failure.
    pub fn failed(&mut self, now_us: u64, cause: Cause, policy: RetryPolicy) -> NextTry {
        self.failing_since_us.get_or_insert(now_us);
        self.is_overloaded = cause == Cause::Overloaded;
        let (is_over, backoff_max_us) = match cause {
            Cause::Unreachable | Cause::Overloaded | Cause::ExpiredKeys => {
                let since_us = *self.unreachable_since_us.get_or_insert(now_us);
                let retry_for_us = policy.retry_for_us.saturating_add(self.excused_us);
                let is_late = now_us.saturating_sub(since_us) >= retry_for_us;
                (is_late && self.tries >= policy.attempts_max, UNREACHABLE_BACKOFF_MAX_US)
            }
            Cause::Faulty => {
                self.unreachable_since_us = None;
                self.faulty += 1;
                (self.faulty >= policy.attempts_max, BACKOFF_MAX_US)
            }
        };
        if is_over {
            return NextTry::GiveUp;
        }
        // After an outage the pauses begin short again.
        let before = match cause {
            Cause::Unreachable | Cause::Overloaded | Cause::ExpiredKeys => self.tries,
            Cause::Faulty => self.faulty,
        };
        let ceiling_us = (BACKOFF_BASE_US << (before - 1).min(16)).min(backoff_max_us);
        self.tries = self.tries.saturating_add(1);
        NextTry::Again { ceiling_us }
    }

    /// The number of tries and their duration, for an error.
    #[must_use]
    pub fn tried(&self, now_us: u64) -> Tried {
        let elapsed_us = self.unreachable_since_us.map_or(0, |since| now_us.saturating_sub(since));
        Tried { tries: self.tries, seconds: elapsed_us / 1_000_000 }
    }
}

/// The number of tries and their duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    tries: u32,
    seconds: u64,
}

impl Tried {
    /// The text, such as "tried 6 times in 60 s".
    #[must_use]
    pub fn times(self) -> String {
        let times =
            if self.tries == 1 { "once".to_owned() } else { format!("{} times", self.tries) };
        match self.seconds {
            0 => format!("tried {times}"),
            seconds => format!("tried {times} in {seconds} s"),
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.tries == 1 { "try" } else { "tries" };
        write!(f, "{} {word}", self.tries)?;
        if self.seconds > 0 { write!(f, " in {} s", self.seconds) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;
    const POLICY: RetryPolicy = RetryPolicy {
        attempts_max: 3,
        retry_for_us: 60 * SECOND_US,
        timeouts: Timeouts { connect_us: None, read_us: None },
    };

    fn gives_up(attempts: &mut Attempts, now_us: u64, cause: Cause) -> bool {
        attempts.failed(now_us, cause, POLICY) == NextTry::GiveUp
    }

    #[test]
    fn a_fault_is_retried_by_number_whatever_the_time() {
        let mut attempts = Attempts::default();
        assert!(!gives_up(&mut attempts, 0, Cause::Faulty));
        assert!(!gives_up(&mut attempts, 0, Cause::Faulty));
        assert!(gives_up(&mut attempts, 0, Cause::Faulty));
        assert_eq!(attempts.tried(0).to_string(), "3 tries");
    }

    #[test]
    fn an_endpoint_that_is_gone_is_retried_until_tries_and_time_are_used_up() {
        let mut attempts = Attempts::default();
        let mut expired = Attempts::default();
        for second in 0..60 {
            assert!(!gives_up(&mut attempts, second * SECOND_US, Cause::Unreachable), "{second}");
            assert!(!gives_up(&mut expired, second * SECOND_US, Cause::ExpiredKeys), "{second}");
        }
        for (attempts, cause) in
            [(&mut attempts, Cause::Unreachable), (&mut expired, Cause::ExpiredKeys)]
        {
            assert!(gives_up(attempts, 60 * SECOND_US, cause));
            assert_eq!(attempts.tried(60 * SECOND_US).to_string(), "61 tries in 60 s");
        }
        let mut slow = Attempts::default();
        assert!(!gives_up(&mut slow, 0, Cause::Unreachable));
        assert!(!gives_up(&mut slow, 100 * SECOND_US, Cause::Unreachable), "two tries of three");
        assert!(gives_up(&mut slow, 200 * SECOND_US, Cause::Unreachable));
    }

    #[test]
    fn an_outage_uses_up_no_tries_of_what_follows() {
        let mut attempts = Attempts::default();
        for second in 0..50 {
            assert!(!gives_up(&mut attempts, second * SECOND_US, Cause::Unreachable));
        }
        assert!(!gives_up(&mut attempts, 50 * SECOND_US, Cause::Faulty));
        assert!(!gives_up(&mut attempts, 51 * SECOND_US, Cause::Faulty));
        let again = 61 * SECOND_US;
        assert!(!gives_up(&mut attempts, again, Cause::Unreachable), "an outage of its own");
        assert!(gives_up(&mut attempts, again, Cause::Faulty), "the third of three");
    }

    #[test]
    fn the_time_for_which_a_rate_makes_a_try_wait_is_not_counted() {
        let mut attempts = Attempts::default();
        for second in [0, 25, 50, 75] {
            assert!(!gives_up(&mut attempts, second * SECOND_US, Cause::Overloaded), "{second}");
            attempts.waits_for_turn(10 * SECOND_US, POLICY);
        }
        // 40 s of these are not counted.
        assert!(!gives_up(&mut attempts, 100 * SECOND_US - 1, Cause::Overloaded));
        assert!(gives_up(&mut attempts, 100 * SECOND_US, Cause::Overloaded));
        assert_eq!(attempts.tried(100 * SECOND_US).to_string(), "6 tries in 100 s");
    }

    #[test]
    fn an_endless_overload_ends_though_the_waits_for_its_rate_are_not_counted() {
        let mut attempts = Attempts::default();
        // The retry time of a minute, and ten times as long.
        for second in (0..660).step_by(32) {
            assert!(!gives_up(&mut attempts, second * SECOND_US, Cause::Overloaded), "{second}");
            attempts.waits_for_turn(31 * SECOND_US, POLICY);
        }
        assert!(!gives_up(&mut attempts, 660 * SECOND_US - 1, Cause::Overloaded));
        attempts.waits_for_turn(u64::MAX, POLICY);
        assert!(gives_up(&mut attempts, 660 * SECOND_US, Cause::Overloaded));
    }

    #[test]
    fn only_after_an_overload_is_a_wait_for_the_rate_not_counted() {
        for cause in [Cause::Unreachable, Cause::Faulty] {
            let mut attempts = Attempts::default();
            attempts.waits_for_turn(9 * SECOND_US, POLICY);
            assert!(!gives_up(&mut attempts, 0, Cause::Overloaded));
            assert!(!gives_up(&mut attempts, SECOND_US, cause));
            attempts.waits_for_turn(9 * SECOND_US, POLICY);
            let since = if cause == Cause::Faulty { 2 } else { 0 };
            assert!(!gives_up(&mut attempts, 2 * SECOND_US, Cause::Overloaded));
            let over_us = (since + 60) * SECOND_US;
            assert!(!gives_up(&mut attempts, over_us - 1, Cause::Overloaded), "{cause:?}");
            assert!(gives_up(&mut attempts, over_us, Cause::Overloaded), "{cause:?}");
        }
    }

    #[test]
    fn progress_forgives_and_nothing_else_does() {
        let mut attempts = Attempts::default();
        for bytes in 1..100 {
            assert!(attempts.reach(bytes) && !attempts.reach(bytes), "the same is no progress");
            assert!(!gives_up(&mut attempts, 0, Cause::Faulty));
            assert!(!gives_up(&mut attempts, 0, Cause::Faulty));
        }
        assert!(!attempts.reach(98), "less than before is none");
        assert!(gives_up(&mut attempts, 0, Cause::Faulty));
    }

    #[test]
    fn what_another_connection_takes_over_must_go_further_too() {
        let mut attempts = Attempts::default();
        assert!(attempts.reach(1000));
        let mut rest = attempts.without_first(600);
        assert!(!rest.reach(400) && rest.reach(401));
    }

    #[test]
    fn pauses_grow_and_a_server_that_is_back_is_noticed_soon() {
        let ceilings = |cause| {
            let policy = RetryPolicy { attempts_max: 100, ..POLICY };
            let mut attempts = Attempts::default();
            let mut next = || match attempts.failed(0, cause, policy) {
                NextTry::Again { ceiling_us } => ceiling_us,
                NextTry::GiveUp => unreachable!("there are tries left"),
            };
            (0..20).map(|_| next()).collect::<Vec<_>>()
        };
        let faulty = ceilings(Cause::Faulty);
        assert_eq!(faulty[..3], [BACKOFF_BASE_US, 2 * BACKOFF_BASE_US, 4 * BACKOFF_BASE_US]);
        assert_eq!(faulty[19], BACKOFF_MAX_US);
        let gone = ceilings(Cause::Unreachable);
        assert_eq!((gone[0], gone[19]), (BACKOFF_BASE_US, UNREACHABLE_BACKOFF_MAX_US));
    }
}
