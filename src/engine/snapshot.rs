//! A worker's counts, published on request while it runs. Pure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shared by a worker and those who ask for its counts.
#[derive(Debug, Default)]
pub struct Snapshot<T> {
    asked: AtomicU64,
    published: Mutex<Published<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Published<T> {
    /// The last question that this answers.
    question: u64,
    counts: T,
}

impl<T: Clone> Snapshot<T> {
    fn lock(&self) -> MutexGuard<'_, Published<T>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks; the worker must be woken to notice. Returns the number of the question.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of the last question; 0 if there was none.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Answers all questions up to this one; [`u64::MAX`] answers later ones, too.
    pub fn publish(&self, question: u64, counts: T) {
        *self.lock() = Published { question, counts };
        self.changed.notify_all();
    }

    /// Waits for the answer to a question; after `at_most`, returns the previous counts.
    pub fn wait(&self, question: u64, at_most: Duration) -> T {
        let published = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(published, at_most, |published| published.question < question);
        waited.unwrap_or_else(PoisonError::into_inner).0.counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_of_its_question() {
        let snapshot = Snapshot::<u64>::default();
        assert_eq!(snapshot.asked(), 0);
        let question = snapshot.ask();
        assert_eq!(snapshot.wait(question, Duration::ZERO), 0);
        let counted = 7;
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.publish(snapshot.asked(), counted));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), counted);
        });
        // The next question is another one.
        let question = snapshot.ask();
        let later = 8;
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.publish(question, later));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), later);
        });
    }
}
