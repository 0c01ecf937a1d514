//! The retry policy of the control plane, its clock, and the board where it reports waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use crate::link::attempt::{RetryPolicy, Timeouts};
use crate::link::waiting::{Board, Ticket, Wait};

/// Retry policy and clock of every request of the control plane.
#[derive(Debug, Clone)]
pub(crate) struct RetryBudget {
    begun: Instant,
    retry_for_us: u64,
    timeouts: Timeouts,
    board: Arc<Board>,
    /// See [`Wait::may_prompt`].
    may_prompt: bool,
}

impl Default for RetryBudget {
    /// Limited by tries alone, and not reported.
    fn default() -> Self {
        Self::new(0, Timeouts::default(), Arc::default())
    }
}

impl RetryBudget {
    pub(crate) fn new(retry_for_us: u64, timeouts: Timeouts, board: Arc<Board>) -> Self {
        Self { begun: Instant::now(), retry_for_us, timeouts, board, may_prompt: false }
    }

    /// Time since creation, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The policy for an action that ends within this time.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.retry_for_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self
    }

    /// For a program that may ask its user on the terminal.
    pub(crate) fn of_prompt(mut self, may_prompt: bool) -> Self {
        self.may_prompt = may_prompt;
        self
    }

    /// Timeout of a connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.timeouts.connect_us.map_or(CONNECT_TIMEOUT, Duration::from_micros)
    }

    /// Timeout of an answer.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.timeouts.read_us.map_or(ANSWER_TIMEOUT, Duration::from_micros)
    }

    /// The policy with this number of tries.
    pub(crate) fn policy(&self, attempts_max: u32) -> RetryPolicy {
        RetryPolicy { attempts_max, retry_for_us: self.retry_for_us, timeouts: self.timeouts }
    }

    /// Reports a wait on the board until the ticket is dropped.
    pub(crate) fn begin(&self, whom: &str, what: String) -> Ticket {
        let wait = Wait {
            whom: whom.to_owned(),
            what,
            tries: 1,
            elapsed_us: 0,
            retry_for_us: self.retry_for_us,
            why: String::new(),
            may_prompt: self.may_prompt,
        };
        self.board.begin(self.now_us(), wait)
    }

    /// The longest wait on the board, if it is long enough to report.
    pub(crate) fn longest_wait(&self) -> Option<Wait> {
        self.board.longest(self.now_us())
    }

    /// The board.
    pub(crate) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }
}

/// The pause before the next try: a random part of the ceiling.
pub(crate) fn pause(ceiling_us: u64) -> Duration {
    Duration::from_micros(ceiling_us).mul_f64(fastrand::f64())
}
