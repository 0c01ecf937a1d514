//! How long this room retries, by which clock, and on which board it notes what it waits for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use crate::link::attempt::{RetryPolicy, Timeouts};
use crate::link::waiting::{Board, Ticket, Wait};

/// What every request of the control plane goes by.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    begun: Instant,
    retry_for_us: u64,
    timeouts: Timeouts,
    board: Arc<Board>,
}

impl Default for Patience {
    /// Bounded by tries alone, and told to nobody.
    fn default() -> Self {
        Self::new(0, Timeouts::default(), Arc::default())
    }
}

impl Patience {
    pub(crate) fn new(retry_for_us: u64, timeouts: Timeouts, board: Arc<Board>) -> Self {
        Self { begun: Instant::now(), retry_for_us, timeouts, board }
    }

    /// The time, in microseconds since this was made.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The same for something else that ends within this time.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.retry_for_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self
    }

    /// How long a connection may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.timeouts.connect_us.map_or(CONNECT_TIMEOUT, Duration::from_micros)
    }

    /// How long an answer may take.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.timeouts.read_us.map_or(ANSWER_TIMEOUT, Duration::from_micros)
    }

    /// The rule, with this number of tries.
    pub(crate) fn policy(&self, attempts_max: u32) -> RetryPolicy {
        RetryPolicy { attempts_max, retry_for_us: self.retry_for_us, timeouts: self.timeouts }
    }

    /// Notes what is waited for from now on.
    pub(crate) fn begin(&self, whom: &str, what: String) -> Ticket {
        let wait = Wait {
            whom: whom.to_owned(),
            what,
            tries: 1,
            elapsed_us: 0,
            retry_for_us: self.retry_for_us,
            why: String::new(),
        };
        self.board.begin(self.now_us(), wait)
    }

    /// Where it notes what it waits for.
    pub(crate) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }
}

/// The pause before the next try: a random share of the ceiling.
pub(crate) fn pause(ceiling_us: u64) -> Duration {
    Duration::from_micros(ceiling_us).mul_f64(fastrand::f64())
}
