//! What a worker has counted so far, told while it runs to who asks for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::metrics::WorkerMetrics;

/// Where a worker and who asks meet.
#[derive(Debug, Default)]
pub struct Snapshot {
    asked: AtomicU64,
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    /// The last question that this answers.
    question: u64,
    metrics: WorkerMetrics,
}

impl Snapshot {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks; the worker has to be woken to notice. Returns the number of the question.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last question; 0 as long as nobody has asked.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Answers all questions up to this one.
    pub fn tell(&self, question: u64, metrics: WorkerMetrics) {
        *self.lock() = Told { question, metrics };
        self.changed.notify_all();
    }

    /// The answer to a question; after so long, what was told before.
    #[expect(clippy::disallowed_methods, reason = "who asks waits for a bounded time")]
    pub fn wait(&self, question: u64, at_most: Duration) -> WorkerMetrics {
        let until = Instant::now() + at_most;
        let mut told = self.lock();
        while told.question < question {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(told, left);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        told.metrics.clone()
    }
}

/// Since when somebody waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waited(Option<Instant>);

impl Waited {
    /// From now on somebody waits, or nobody does. Returns how long somebody has waited who does no
    /// more.
    #[expect(clippy::disallowed_methods, reason = "it is a clock")]
    pub fn set(&mut self, waits: bool) -> Duration {
        match self.0 {
            None if waits => self.0 = Some(Instant::now()),
            Some(since) if !waits => {
                self.0 = None;
                return since.elapsed();
            }
            _ => {}
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_of_its_question() {
        let snapshot = Snapshot::default();
        assert_eq!(snapshot.asked(), 0);
        let question = snapshot.ask();
        assert_eq!(snapshot.wait(question, Duration::ZERO), WorkerMetrics::default());
        let counted = WorkerMetrics { bytes: 7, ..WorkerMetrics::default() };
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.tell(snapshot.asked(), counted.clone()));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), counted);
        });
        // The next question is another one.
        let question = snapshot.ask();
        let later = WorkerMetrics { bytes: 8, ..WorkerMetrics::default() };
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.tell(question, later.clone()));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), later);
        });
    }

    #[test]
    fn only_time_of_waiting_counts() {
        let mut waited = Waited::default();
        assert_eq!(waited.set(false), Duration::ZERO);
        assert_eq!(waited.set(true), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(waited.set(true), Duration::ZERO, "it still waits");
        assert!(waited.set(false) >= Duration::from_millis(1));
        assert_eq!(waited.set(false), Duration::ZERO, "it waits no more");
    }
}
