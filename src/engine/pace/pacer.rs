//! Shares a run's controller among its workers: they report counters and get their shares of the
//! limits. Never waits for a lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::{Bandwidth, Bounds, Controller, EndpointTotals, Limits, Timeline, Totals};
use crate::engine::endpoints::EndpointNumber;
use crate::limits::{ENDPOINTS_MAX, PACE_TICK_US, RATE_BURST_US};

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    bytes: AtomicU64,
    asked: AtomicU64,
    asked_bytes: AtomicU64,
    first_byte_us: AtomicU64,
    ended: AtomicU64,
    ended_us: AtomicU64,
    ended_bytes: AtomicU64,
    reader_waited_us: AtomicU64,
    reader_kept_us: AtomicU64,
    busy: AtomicU32,
    is_bound: AtomicBool,
    held_up: AtomicU32,
    endpoints: [EndpointCell; ENDPOINTS_MAX],
}

/// An endpoint's answers to one worker.
#[derive(Debug, Default)]
struct EndpointCell {
    answers: AtomicU64,
    refused: AtomicU64,
}

/// The request rate of one endpoint.
#[derive(Debug, Default)]
struct Turnstile {
    /// Nanoseconds between two requests; 0 if unlimited.
    interval_ns: AtomicU64,
    /// When the next request is due, in nanoseconds.
    due_ns: AtomicU64,
}

/// The state of a controller while its workers run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PaceSeen {
    /// Requests that may be in flight.
    pub wanted: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Successful answers.
    pub answers: u64,
    /// Answers that asked for fewer requests (503, 429).
    pub refused: u64,
}

/// The controller of a run.
#[derive(Debug)]
pub struct Pacer {
    controller: Mutex<Controller>,
    cells: Vec<Cell>,
    /// When the controller is called next, in microseconds.
    next_us: AtomicU64,
    requests_in_flight: AtomicU32,
    /// One for each endpoint.
    turnstiles: [Turnstile; ENDPOINTS_MAX],
    /// Number of endpoints that have answered.
    endpoints: AtomicUsize,
    /// The user's limit, shared by all pacers of a run, and our client number.
    bandwidth: Option<(Arc<Bandwidth>, usize)>,
}

impl Pacer {
    /// The current state.
    #[must_use]
    pub fn seen(&self) -> PaceSeen {
        let mut seen = PaceSeen {
            wanted: self.requests_in_flight.load(Ordering::Relaxed),
            ..PaceSeen::default()
        };
        for cell in &self.cells {
            seen.in_flight += cell.busy.load(Ordering::Relaxed);
            for endpoint in &cell.endpoints {
                seen.answers += endpoint.answers.load(Ordering::Relaxed);
                seen.refused += endpoint.refused.load(Ordering::Relaxed);
            }
        }
        seen
    }

    /// Reports that nothing more is requested; answer counts stay.
    pub fn rest(&self) {
        self.requests_in_flight.store(0, Ordering::Relaxed);
    }

    /// A controller for this many workers.
    #[must_use]
    pub fn new(bounds: Bounds, workers: usize) -> Self {
        let controller = Controller::new(bounds);
        let limits = controller.limits(0);
        Self {
            controller: Mutex::new(controller),
            cells: (0..workers).map(|_| Cell::default()).collect(),
            next_us: AtomicU64::new(0),
            requests_in_flight: AtomicU32::new(limits.requests_in_flight),
            turnstiles: std::array::from_fn(|_| Turnstile::default()),
            endpoints: AtomicUsize::new(1),
            bandwidth: None,
        }
    }

    /// Adds the user's bandwidth limit.
    #[must_use]
    pub fn within(mut self, bandwidth: Option<Arc<Bandwidth>>) -> Self {
        self.bandwidth = bandwidth.map(|bandwidth| {
            let number = bandwidth.join();
            (bandwidth, number)
        });
        self
    }

    /// Reports a worker's counts, and calls the controller if it is time. All counts are of the
    /// first endpoint.
    pub fn note(&self, worker: usize, now_us: u64, counts: Totals) {
        let Totals { answers, refused, .. } = counts;
        self.note_each(worker, now_us, counts, &[EndpointTotals { answers, refused }]);
    }

    /// Like [`Self::note`], with the answers of each endpoint by number.
    ///
    /// # Panics
    /// With more endpoints than [`ENDPOINTS_MAX`].
    pub fn note_each(
        &self,
        worker: usize,
        now_us: u64,
        counts: Totals,
        endpoints: &[EndpointTotals],
    ) {
        let cell = &self.cells[worker];
        cell.bytes.store(counts.bytes, Ordering::Relaxed);
        cell.asked.store(counts.asked, Ordering::Relaxed);
        cell.asked_bytes.store(counts.asked_bytes, Ordering::Relaxed);
        cell.first_byte_us.store(counts.first_byte_us, Ordering::Relaxed);
        cell.ended.store(counts.ended, Ordering::Relaxed);
        cell.ended_us.store(counts.ended_us, Ordering::Relaxed);
        cell.ended_bytes.store(counts.ended_bytes, Ordering::Relaxed);
        cell.reader_waited_us.store(counts.reader_waited_us, Ordering::Relaxed);
        cell.reader_kept_us.store(counts.reader_kept_us, Ordering::Relaxed);
        cell.busy.store(counts.busy, Ordering::Relaxed);
        cell.is_bound.store(counts.is_bound, Ordering::Relaxed);
        cell.held_up.store(counts.held_up, Ordering::Relaxed);
        for (cell, count) in cell.endpoints.iter().zip(endpoints) {
            cell.answers.store(count.answers, Ordering::Relaxed);
            cell.refused.store(count.refused, Ordering::Relaxed);
        }
        if endpoints.len() > self.endpoints.load(Ordering::Relaxed) {
            self.endpoints.fetch_max(endpoints.len(), Ordering::Relaxed);
        }
        if now_us < self.next_us.load(Ordering::Relaxed) {
            return;
        }
        // One worker is enough.
        let mut controller = match self.controller.try_lock() {
            Ok(controller) => controller,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.next_us.store(now_us + PACE_TICK_US, Ordering::Relaxed);
        let count = self.endpoints.load(Ordering::Relaxed);
        let said: [EndpointTotals; ENDPOINTS_MAX] = std::array::from_fn(|index| {
            if index < count { self.totals_of(index) } else { EndpointTotals::default() }
        });
        controller.handle_each(now_us, self.totals(&said[..count]), &said[..count]);
        let Limits { requests_in_flight, .. } = controller.limits(now_us);
        self.requests_in_flight.store(requests_in_flight, Ordering::Relaxed);
        for (index, turnstile) in self.turnstiles[..count].iter().enumerate() {
            let interval_ns = controller.interval_ns(EndpointNumber::at(index), now_us);
            turnstile.interval_ns.store(interval_ns.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// For a single worker, with a known request rate.
    #[cfg(test)]
    pub(super) fn slowed(bounds: Bounds, requests_per_second: u64) -> Self {
        let pacer = Self::new(bounds, 1);
        let interval_ns = 1_000_000_000 / requests_per_second;
        pacer.turnstiles[0].interval_ns.store(interval_ns, Ordering::Relaxed);
        pacer
    }

    /// An endpoint's answers to all workers.
    fn totals_of(&self, endpoint: usize) -> EndpointTotals {
        let cells = self.cells.iter().map(|cell| &cell.endpoints[endpoint]);
        cells.fold(EndpointTotals::default(), |all, cell| EndpointTotals {
            answers: all.answers + cell.answers.load(Ordering::Relaxed),
            refused: all.refused + cell.refused.load(Ordering::Relaxed),
        })
    }

    /// The counts of all workers, with the endpoints' answers.
    fn totals(&self, said: &[EndpointTotals]) -> Totals {
        let answers = said.iter().map(|said| said.answers).sum();
        let refused = said.iter().map(|said| said.refused).sum();
        let begin = Totals { answers, refused, ..Totals::default() };
        self.cells.iter().fold(begin, |all, cell| Totals {
            bytes: all.bytes + cell.bytes.load(Ordering::Relaxed),
            asked: all.asked + cell.asked.load(Ordering::Relaxed),
            asked_bytes: all.asked_bytes + cell.asked_bytes.load(Ordering::Relaxed),
            first_byte_us: all.first_byte_us + cell.first_byte_us.load(Ordering::Relaxed),
            ended: all.ended + cell.ended.load(Ordering::Relaxed),
            ended_us: all.ended_us + cell.ended_us.load(Ordering::Relaxed),
            ended_bytes: all.ended_bytes + cell.ended_bytes.load(Ordering::Relaxed),
            reader_waited_us: all.reader_waited_us + cell.reader_waited_us.load(Ordering::Relaxed),
            reader_kept_us: all.reader_kept_us + cell.reader_kept_us.load(Ordering::Relaxed),
            busy: all.busy + cell.busy.load(Ordering::Relaxed),
            is_bound: all.is_bound || cell.is_bound.load(Ordering::Relaxed),
            held_up: all.held_up + cell.held_up.load(Ordering::Relaxed),
            ..all
        })
    }

    /// Requests that a worker may have in flight: an even share, at least one; the first workers
    /// take the rest.
    #[must_use]
    pub fn share(&self, worker: usize) -> usize {
        let all = self.requests_in_flight.load(Ordering::Relaxed) as usize;
        let workers = self.cells.len();
        (all / workers + usize::from(worker < all % workers)).max(1)
    }

    /// Takes the right to send one request to an endpoint; if the endpoint asked for fewer, it may
    /// have to wait.
    ///
    /// # Errors
    /// How long to wait before asking again, in microseconds.
    pub fn take_request(&self, endpoint: EndpointNumber, now_us: u64) -> Result<(), u64> {
        let Turnstile { interval_ns, due_ns } = &self.turnstiles[endpoint.index()];
        let interval_ns = interval_ns.load(Ordering::Relaxed);
        if interval_ns == 0 {
            return Ok(());
        }
        let now_ns = now_us.saturating_mul(1000);
        let earliest_ns = now_ns.saturating_sub(RATE_BURST_US * 1000);
        let taken = due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due_ns| {
            (due_ns <= now_ns).then(|| due_ns.max(earliest_ns) + interval_ns)
        });
        taken.map(|_| ()).map_err(|due_ns| (due_ns - now_ns) / 1000 + 1)
    }

    /// How long the user's limit delays a request, in microseconds.
    #[must_use]
    pub fn bandwidth_wait_us(&self, now_us: u64) -> u64 {
        let bandwidth = self.bandwidth.as_ref();
        bandwidth.map_or(0, |(bandwidth, number)| bandwidth.wait_us(*number, now_us))
    }

    /// Charges a request of `bytes` bytes.
    pub fn charge(&self, now_us: u64, bytes: u64) {
        if let Some((bandwidth, number)) = &self.bandwidth {
            bandwidth.charge(*number, now_us, bytes);
        }
    }

    /// The choices so far, and the most requests allowed in flight.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).timeline().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: EndpointNumber = EndpointNumber::FIRST;

    #[test]
    fn shares_add_up() {
        let pacer = Pacer::new(Bounds::fixed(7), 3);
        assert_eq!([0, 1, 2].map(|worker| pacer.share(worker)), [3, 2, 2]);
        let pacer = Pacer::new(Bounds::fixed(1), 3);
        assert_eq!([0, 1, 2].map(|worker| pacer.share(worker)), [1, 1, 1], "nobody starves");
    }

    #[test]
    fn a_limited_rate_is_kept_by_all_together() {
        let pacer = Pacer::new(Bounds::fixed(64), 2);
        assert!(
            (0..10_000).all(|_| pacer.take_request(FIRST, 0) == Ok(())),
            "nobody asked for less"
        );
        let pacer = Pacer::slowed(Bounds::fixed(64), 1_000);
        let mut sent = 0;
        let mut now_us = 5_000_000;
        while now_us < 6_000_000 {
            match pacer.take_request(FIRST, now_us) {
                Ok(()) => sent += 1,
                Err(wait_us) => now_us += wait_us,
            }
        }
        // After a pause, additionally those of 10 ms at once.
        assert!((1_008..=1_012).contains(&sent), "{sent}");
    }

    #[test]
    fn what_workers_counted_reaches_the_controller() {
        let pacer = Pacer::new(Bounds { least: 1, start: 8, ..Bounds::fixed(64) }, 2);
        let mut now_us = 0;
        for tick in 0..200u64 {
            now_us += PACE_TICK_US;
            for worker in 0..2 {
                let busy = u32::try_from(pacer.share(worker)).expect("few");
                let counts = Totals {
                    bytes: tick * 1_000_000,
                    answers: tick,
                    busy,
                    is_bound: true,
                    ..Totals::default()
                };
                pacer.note(worker, now_us, counts);
            }
        }
        assert!(pacer.timeline().moments().len() > 2, "it has tried something");
    }
}
