//! The waits of a run: the server, the duration and the cause, for progress lines and errors. Pure.
//!
//! Requests of the control plane and ranges of the data plane are recorded on one board per run,
//! and each worker has a board of its own; the longest wait is reported once it has lasted
//! [`WAIT_REPORTED_AFTER_US`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::limits::{WAIT_REPORTED_AFTER_US, WAIT_REPORTED_CHANGED_US, WAIT_REPORTED_PAUSE_US};

/// A wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The endpoint's host.
    pub whom: String,
    /// The awaited action: `to answer LIST s3://bucket/`.
    pub what: String,
    /// Tries in a row, including the current one.
    pub tries: u32,
    /// Duration in microseconds.
    pub elapsed_us: u64,
    /// Time for which an endpoint that does not answer is retried, in microseconds.
    pub retry_for_us: u64,
    /// Why the last try failed; empty during the first.
    pub why: String,
    /// True if it is a program that may ask its user on the terminal: nothing is drawn over that.
    pub may_prompt: bool,
}

impl Wait {
    /// The text for an error that ends the wait: the server, and why the wait was in vain.
    #[must_use]
    pub fn blame(&self) -> String {
        let Self { whom, what, why, .. } = self;
        match why.is_empty() {
            true => format!("waiting for {whom} {what}"),
            false => format!("waiting for {whom} {what}: {why}"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whom, what, tries, .. } = self;
        let (elapsed, limit) = (self.elapsed_us / 1_000_000, self.retry_for_us / 1_000_000);
        write!(f, "waiting for {whom} {what}: try {tries}, {elapsed} s")?;
        if elapsed <= limit {
            write!(f, " of {limit} s")?;
        }
        f.write_str(", ")?;
        f.write_str(if self.why.is_empty() { "no answer yet" } else { &self.why })
    }
}

/// The current waits of a run, or of one of its workers.
#[derive(Debug, Default)]
pub struct Board(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    /// Waits of the control plane, oldest first.
    requests: Vec<RunningRequest>,
    number: u64,
    /// The data plane's wait.
    range: Option<Wait>,
    /// The task to wake when something is waited for.
    waker: Option<Waker>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.range.is_none()
    }
}

#[derive(Debug)]
struct RunningRequest {
    number: u64,
    begun_us: u64,
    wait: Wait,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request that begins now, until the ticket is dropped.
    pub fn begin(self: &Arc<Self>, now_us: u64, wait: Wait) -> Ticket {
        let mut notes = self.lock();
        notes.number += 1;
        let number = notes.number;
        notes.requests.push(RunningRequest { number, begun_us: now_us, wait });
        Self::wake(notes);
        Ticket { board: Arc::clone(self), number }
    }

    /// Records the read of a file since the clock began: it may be a pipe without a writer.
    pub fn begin_file(self: &Arc<Self>, name: String) -> Ticket {
        let (what, why) = ("to be readable".to_owned(), String::new());
        let (elapsed_us, retry_for_us, may_prompt) = (0, 0, false);
        let wait = Wait { whom: name, what, tries: 1, elapsed_us, retry_for_us, why, may_prompt };
        self.begin(0, wait)
    }

    /// Sets the data plane's wait; `None` while bytes come.
    pub fn set_range(&self, wait: Option<Wait>) {
        let mut notes = self.lock();
        notes.range = wait;
        Self::wake(notes);
    }

    /// The data plane's wait, as it was set.
    #[must_use]
    pub fn range(&self) -> Option<Wait> {
        self.lock().range.clone()
    }

    /// True if the data plane waits.
    #[must_use]
    pub fn has_range(&self) -> bool {
        self.lock().range.is_some()
    }

    fn wake(mut notes: MutexGuard<'_, Notes>) {
        let waker = if notes.is_empty() { None } else { notes.waker.take() };
        drop(notes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready if something is waited for; if not, wakes this task once that is so. For one task.
    pub fn poll_wait(&self, context: &Context<'_>) -> Poll<()> {
        let mut notes = self.lock();
        if !notes.is_empty() {
            return Poll::Ready(());
        }
        notes.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The longest wait, whatever its duration.
    #[must_use]
    pub fn oldest(&self) -> Option<Wait> {
        self.longest(u64::MAX)
    }

    /// The longest wait, if it is long enough to report. `now_us`: the clock of the requests.
    #[must_use]
    pub fn longest(&self, now_us: u64) -> Option<Wait> {
        let notes = self.lock();
        let request = notes.requests.iter().min_by_key(|request| request.begun_us);
        let request = request.map(|request| Wait {
            elapsed_us: now_us.saturating_sub(request.begun_us),
            ..request.wait.clone()
        });
        let all = request.into_iter().chain(notes.range.clone());
        all.filter(|wait| wait.elapsed_us >= WAIT_REPORTED_AFTER_US)
            .max_by_key(|wait| wait.elapsed_us)
    }
}

/// A request on the board.
#[derive(Debug)]
pub struct Ticket {
    board: Arc<Board>,
    number: u64,
}

impl Ticket {
    /// Records that a try has failed and another follows.
    pub fn try_again(&self, tries: u32, why: &str) {
        let mut notes = self.board.lock();
        if let Some(request) = notes.requests.iter_mut().find(|one| one.number == self.number) {
            request.wait.tries = tries;
            why.clone_into(&mut request.wait.why);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.board.lock().requests.retain(|one| one.number != self.number);
    }
}

/// Limits the lines about waits without a terminal: a few, and not repeatedly the same.
#[derive(Debug, Default)]
pub struct Pauses {
    /// The last line: its time, its host and its cause.
    last: Option<(u64, String, String)>,
}

impl Pauses {
    /// True if this wait is to be reported now; records it as reported.
    pub fn is_due(&mut self, now_us: u64, wait: &Wait) -> bool {
        let due = self.last.as_ref().is_none_or(|(at_us, whom, why)| {
            let is_same = (whom, why) == (&wait.whom, &wait.why);
            let pause_us = if is_same { WAIT_REPORTED_PAUSE_US } else { WAIT_REPORTED_CHANGED_US };
            now_us.saturating_sub(*at_us) >= pause_us
        });
        if due {
            self.last = Some((now_us, wait.whom.clone(), wait.why.clone()));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn wait(whom: &str, why: &str) -> Wait {
        Wait {
            whom: whom.to_owned(),
            what: "to answer LIST s3://b/".to_owned(),
            tries: 1,
            elapsed_us: 0,
            retry_for_us: 60 * SECOND_US,
            why: why.to_owned(),
            may_prompt: false,
        }
    }

    #[test]
    fn what_a_line_says() {
        let check = |wait: Wait, expected: &str| assert_eq!(wait.to_string(), expected);
        let first = Wait { elapsed_us: 2 * SECOND_US, ..wait("h:9000", "") };
        let line = "waiting for h:9000 to answer LIST s3://b/: try 1, 2 s of 60 s, no answer yet";
        check(first.clone(), line);
        let later = Wait {
            tries: 9,
            elapsed_us: 70 * SECOND_US,
            why: "refused".to_owned(),
            ..first.clone()
        };
        assert_eq!(later.blame(), "waiting for h:9000 to answer LIST s3://b/: refused");
        assert_eq!(first.blame(), "waiting for h:9000 to answer LIST s3://b/");
        check(later, "waiting for h:9000 to answer LIST s3://b/: try 9, 70 s, refused");
    }

    #[test]
    fn the_longest_wait_is_reported_and_a_short_one_is_not() {
        let board = Arc::new(Board::default());
        assert_eq!(board.longest(0), None);
        let first = board.begin(0, wait("one", ""));
        let second = board.begin(SECOND_US, wait("two", ""));
        assert_eq!(board.longest(WAIT_REPORTED_AFTER_US - 1), None);
        let whom = |now_us| board.longest(now_us).map(|wait| wait.whom);
        assert_eq!(whom(WAIT_REPORTED_AFTER_US), Some("one".to_owned()));
        second.try_again(3, "refused");
        drop(first);
        assert_eq!(whom(WAIT_REPORTED_AFTER_US), None);
        let longest = board.longest(9 * SECOND_US).expect("long enough");
        let known = (longest.tries, longest.elapsed_us, longest.why.as_str());
        assert_eq!(known, (3, 8 * SECOND_US, "refused"));
        board.set_range(Some(Wait { elapsed_us: 9 * SECOND_US, ..wait("three", "") }));
        assert_eq!(whom(9 * SECOND_US), Some("three".to_owned()));
        board.set_range(None);
        drop(second);
        assert_eq!(board.longest(u64::MAX), None);
    }

    #[test]
    fn the_first_wait_of_an_empty_board_wakes_its_task() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (count, board) = (Arc::new(Count(AtomicUsize::new(0))), Arc::new(Board::default()));
        let waker = Waker::from(Arc::clone(&count));
        let poll = || board.poll_wait(&Context::from_waker(&waker)).is_ready();
        let wakes = || count.0.load(Ordering::Relaxed);
        assert!(!poll());
        board.set_range(None);
        assert_eq!(wakes(), 0, "nothing is waited for");
        let first = board.begin(0, wait("one", ""));
        let second = board.begin(0, wait("two", ""));
        assert_eq!(wakes(), 1, "once");
        assert!(poll());
        drop((first, second));
        assert!(!poll());
        board.set_range(Some(wait("three", "")));
        assert_eq!(wakes(), 2);
        assert!(poll());
    }

    #[test]
    fn lines_are_few_and_a_new_reason_is_reported_sooner() {
        let mut pauses = Pauses::default();
        let seconds = |why: &dyn Fn(u64) -> &'static str, pauses: &mut Pauses| {
            let due = |second: &u64| pauses.is_due(second * SECOND_US, &wait("h", why(*second)));
            (0..30).filter(due).collect::<Vec<u64>>()
        };
        assert_eq!(seconds(&|_| "refused", &mut pauses), [0, 10, 20]);
        let flapping = |second| if second % 2 == 0 { "refused" } else { "no answer" };
        let often = seconds(&flapping, &mut Pauses::default());
        assert!(often.len() <= 30 / 2 && often.len() > 3, "{often:?}");
    }
}
