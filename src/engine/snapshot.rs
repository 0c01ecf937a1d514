//! What a worker has counted so far, told while it runs to who asks for it. Pure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where a worker and who asks meet.
#[derive(Debug, Default)]
pub struct Snapshot<T> {
    asked: AtomicU64,
    told: Mutex<Told<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Told<T> {
    /// The last question that this answers.
    question: u64,
    counts: T,
}

impl<T: Clone> Snapshot<T> {
    fn lock(&self) -> MutexGuard<'_, Told<T>> {
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

    /// Answers all questions up to this one; [`u64::MAX`] those that come, too.
    pub fn tell(&self, question: u64, counts: T) {
        *self.lock() = Told { question, counts };
        self.changed.notify_all();
    }

    /// The answer to a question; after so long, what was told before.
    pub fn wait(&self, question: u64, at_most: Duration) -> T {
        let told = self.lock();
        let waited =
            self.changed.wait_timeout_while(told, at_most, |told| told.question < question);
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
            scope.spawn(|| snapshot.tell(snapshot.asked(), counted));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), counted);
        });
        // The next question is another one.
        let question = snapshot.ask();
        let later = 8;
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.tell(question, later));
            assert_eq!(snapshot.wait(question, Duration::from_secs(60)), later);
        });
    }
}
