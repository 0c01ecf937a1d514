//! Measures how long clients of an engine have waited.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::request::Waits;

/// Total time in which at least one client waits.
#[derive(Debug, Default)]
pub struct Waited(Mutex<WaitingClients>);

#[derive(Debug, Default)]
struct WaitingClients {
    count: usize,
    /// Since when.
    since: Option<Instant>,
    total: Duration,
}

impl Waited {
    fn lock(&self) -> MutexGuard<'_, WaitingClients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The total until now.
    #[must_use]
    pub fn total(&self) -> Duration {
        let waiting = self.lock();
        waiting.total + waiting.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Waits for Waited {
    #[expect(clippy::disallowed_methods, reason = "it is a clock")]
    fn begin(&self) {
        let mut waiting = self.lock();
        waiting.count += 1;
        waiting.since.get_or_insert_with(Instant::now);
    }

    fn end(&self) {
        let mut waiting = self.lock();
        waiting.count -= 1;
        if waiting.count == 0
            && let Some(since) = waiting.since.take()
        {
            waiting.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_of_waiting_counts_and_once() {
        let waited = Waited::default();
        let step = Duration::from_millis(2);
        assert_eq!(waited.total(), Duration::ZERO);
        waited.begin();
        waited.begin();
        std::thread::sleep(step);
        waited.end();
        let before = waited.total();
        assert!(before >= step, "the other waits, and that counts already");
        std::thread::sleep(step);
        waited.end();
        let total = waited.total();
        assert!(total >= before + step);
        std::thread::sleep(step);
        assert_eq!(waited.total(), total, "nobody waits");
    }
}
