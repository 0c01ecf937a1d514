//! Which range next: a bounded store of objects between the listing and the workers.
//!
//! The listing pushes while there is room; workers take batches of ranges. Any worker may take any
//! range. Large objects go first within what is known, a few at a time in turn, so that few files
//! are half done and the tail is short; small ones follow in the order of the listing.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::limits::{
    FAILED_ATTEMPTS_IN_A_ROW_MAX, FAILING_TIME_MIN_US, OBJECTS_OPEN_MAX, OBJECTS_QUEUED_MAX,
};
use crate::plan::ranges::Ranges;
use crate::s3::ByteRange;
use crate::sys::{Handle, descriptor};
use crate::transfer::{Outcome, Shape, Transfer};

/// One range of one object, handed to one worker.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The object.
    pub transfer: Arc<Transfer>,
    /// The bytes; of length 0 for folders and empty objects.
    pub range: ByteRange,
}

/// What a worker got when it asked for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// Some ranges.
    Given,
    /// Nothing now; the worker's event counter is raised when there is.
    Later,
    /// Nothing any more.
    Ended,
}

/// The store.
#[derive(Debug)]
pub struct Scheduler {
    state: Mutex<State>,
    stopped: AtomicBool,
    health: Health,
}

/// Whether the endpoint still answers: a range's retries are bounded by its tries, a run's here.
#[derive(Debug, Default)]
struct Health {
    failed_in_a_row: AtomicU32,
    /// When the first of them failed.
    since_us: AtomicU64,
}

impl Health {
    fn answered(&self) {
        // Nearly always zero already: then the line stays shared between the cores.
        if self.failed_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failed_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// How many attempts failed in a row and for how long.
    fn failed(&self, now_us: u64) -> (u32, u64) {
        let before = self.failed_in_a_row.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
        let failed = before.saturating_add(1);
        (failed, now_us.saturating_sub(self.since_us.load(Ordering::Relaxed)))
    }

    /// True when all attempts have failed for at least so long.
    fn has_failed_for(&self, now_us: u64, time_us: u64) -> bool {
        let elapsed_us = now_us.saturating_sub(self.since_us.load(Ordering::Relaxed));
        self.failed_in_a_row.load(Ordering::Relaxed) > 0 && elapsed_us >= time_us
    }
}

/// For how long all must fail before a run ends.
fn failing_time_us(retry_for_us: u64) -> u64 {
    retry_for_us.max(FAILING_TIME_MIN_US)
}

#[derive(Debug, Default)]
struct State {
    large: BinaryHeap<BySize>,
    open: VecDeque<Open>,
    small: VecDeque<Arc<Transfer>>,
    /// Objects pushed whose outcome has not been collected.
    held: usize,
    /// Objects pushed that have not ended; one that may be fetched anew ends when that is decided.
    unfinished: usize,
    complete: bool,
    outcomes: Vec<Outcome>,
    sleepers: Vec<Sleeper>,
    stop: Option<Error>,
}

#[derive(Debug)]
struct Sleeper {
    counter: Handle,
    asleep: bool,
}

/// A large object with ranges left to hand out.
#[derive(Debug)]
struct Open {
    transfer: Arc<Transfer>,
    ranges: Peekable<Ranges>,
}

#[derive(Debug)]
struct BySize(Arc<Transfer>);

impl Ord for BySize {
    fn cmp(&self, other: &Self) -> Order {
        let (mine, theirs) = (&self.0.object, &other.0.object);
        mine.size_bytes.cmp(&theirs.size_bytes).then_with(|| theirs.key.cmp(&mine.key))
    }
}

impl PartialOrd for BySize {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BySize {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for BySize {}

impl Scheduler {
    /// An empty store for as many workers as there are event counters.
    #[must_use]
    pub fn new(counters: Vec<Handle>) -> Self {
        let sleepers = counters.into_iter().map(|counter| Sleeper { counter, asleep: false });
        let state = State { sleepers: sleepers.collect(), ..State::default() };
        Self {
            state: Mutex::new(state),
            stopped: AtomicBool::new(false),
            health: Health::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panicked ends the run; what it left here is still consistent, for every
        // change below is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more objects it takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        OBJECTS_QUEUED_MAX.saturating_sub(self.lock().held)
    }

    /// Takes objects from the listing.
    ///
    /// # Panics
    /// When there are more than [`Self::room`] said.
    pub fn push(&self, transfers: impl IntoIterator<Item = Transfer>) {
        let mut state = self.lock();
        for transfer in transfers {
            assert!(state.held < OBJECTS_QUEUED_MAX, "the listing keeps to the room there is");
            state.unfinished += 1;
            state.queue(transfer);
        }
        state.wake();
    }

    /// Says that the listing is complete.
    pub fn complete(&self) {
        let mut state = self.lock();
        state.complete = true;
        state.wake();
    }

    /// Ends the run early: workers give up what they have. The first reason stays.
    pub fn stop(&self, reason: Error) {
        let mut state = self.lock();
        state.stop.get_or_insert(reason);
        self.stopped.store(true, Ordering::Release);
        state.sleepers.iter_mut().for_each(|sleeper| sleeper.asleep = true);
        state.wake();
    }

    /// True when the run was ended early. Cheap: asked every turn.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Why the run was ended early.
    #[must_use]
    pub fn stop_reason(&self) -> Option<Error> {
        self.lock().stop.clone()
    }

    /// Notes that the endpoint answered rightly: bytes of an object came, or a clear refusal.
    pub fn answered(&self) {
        self.health.answered();
    }

    /// Notes a failed attempt that brought nothing; too many of them in a row, over at least the
    /// time that an endpoint is retried for, end the run.
    pub fn attempt_failed(&self, why: impl std::fmt::Display, now_us: u64, retry_for_us: u64) {
        let (failed, elapsed_us) = self.health.failed(now_us);
        let is_long = elapsed_us >= failing_time_us(retry_for_us);
        if failed < FAILED_ATTEMPTS_IN_A_ROW_MAX || !is_long || self.is_stopped() {
            return;
        }
        let message = format!(
            "the endpoint has not answered rightly for {failed} attempts in a row over {} seconds; \
             the last time: {why}",
            elapsed_us / 1_000_000
        );
        self.stop(
            Error::new(ErrorKind::Endpoint, message)
                .advise("check the network and the endpoint, and run it again"),
        );
    }

    /// After a range was given up because its endpoint did not answer for all the time that it is
    /// retried: true when no attempt at any other brought anything meanwhile, so that none can fare
    /// better.
    #[must_use]
    pub fn is_endpoint_gone(&self, now_us: u64, retry_for_us: u64) -> bool {
        self.health.has_failed_for(now_us, failing_time_us(retry_for_us))
    }

    /// Hands up to `count` ranges to a worker, behind what `ready` holds.
    pub fn take(&self, worker: usize, count: usize, ready: &mut VecDeque<Assignment>) -> Supply {
        let mut state = self.lock();
        let mut given = 0;
        while given < count {
            let Some(assignment) = state.next() else { break };
            ready.push_back(assignment);
            given += 1;
        }
        if given > 0 {
            Supply::Given
        } else if state.complete && state.unfinished == 0 {
            Supply::Ended
        } else {
            state.sleepers[worker].asleep = true;
            Supply::Later
        }
    }

    /// Takes the outcome of an object from the worker that finished it.
    pub fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        let ended = outcome.result.is_ok() || outcome.transfer.again().is_none();
        state.outcomes.push(outcome);
        if ended {
            state.end_one();
        }
    }

    /// Takes an object to be fetched anew, instead of the one whose outcome said that it may be.
    /// There is room for it: that one had its place here.
    pub fn restart(&self, transfer: Transfer) {
        let mut state = self.lock();
        state.queue(transfer);
        state.wake();
    }

    /// Says that an object which might have been fetched anew is not.
    pub fn give_up(&self) {
        self.lock().end_one();
    }

    /// Moves the outcomes since the last call into `outcomes` and makes room for as many objects.
    pub fn collect(&self, outcomes: &mut Vec<Outcome>) {
        let mut state = self.lock();
        state.held -= state.outcomes.len();
        outcomes.append(&mut state.outcomes);
    }

    /// After the workers have ended: settles every range that was never handed out and returns the
    /// objects whose last range that was.
    #[must_use]
    pub fn abandon(&self) -> Vec<Arc<Transfer>> {
        let mut state = self.lock();
        let mut last = Vec::new();
        while let Some(assignment) = state.next() {
            if assignment.transfer.settle() {
                last.push(assignment.transfer);
            }
        }
        last
    }

    /// Objects pushed whose outcome has not been collected.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lock().held
    }
}

impl State {
    fn queue(&mut self, transfer: Transfer) {
        self.held += 1;
        let transfer = Arc::new(transfer);
        if transfer.shape == Shape::Ranges {
            self.large.push(BySize(transfer));
        } else {
            self.small.push_back(transfer);
        }
    }

    /// One object less; the last one of a complete run sends all workers home.
    fn end_one(&mut self) {
        self.unfinished -= 1;
        if self.complete && self.unfinished == 0 {
            self.wake();
        }
    }

    fn wake(&mut self) {
        for sleeper in &mut self.sleepers {
            if std::mem::take(&mut sleeper.asleep) {
                descriptor::raise(&sleeper.counter);
            }
        }
    }

    fn next(&mut self) -> Option<Assignment> {
        while self.open.len() < OBJECTS_OPEN_MAX {
            let Some(BySize(transfer)) = self.large.pop() else { break };
            let ranges = transfer.ranges().peekable();
            self.open.push_back(Open { transfer, ranges });
        }
        let Some(mut open) = self.open.pop_front() else {
            let transfer = self.small.pop_front()?;
            let range = transfer.whole_range();
            return Some(Assignment { transfer, range });
        };
        let range = open.ranges.next().expect("an open object has ranges left");
        let transfer = Arc::clone(&open.transfer);
        if open.ranges.peek().is_some() {
            self.open.push_back(open);
        }
        Some(Assignment { transfer, range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};
    use crate::transfer::{Again, Cut};

    fn transfers(sizes: &[u64]) -> Vec<Transfer> {
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let object = |(index, size_bytes): (usize, &u64)| Object {
            key: format!("{index:06}"),
            size_bytes: *size_bytes,
            ..Object::default()
        };
        let new = |object: Object| {
            let path = object.key.clone();
            let part = PartSize::new(1 << 20).expect("aligned");
            let cut = Cut { part, slot_length_bytes: 1 << 16 };
            Transfer::new(object, Arc::clone(&endpoint), path, cut)
        };
        sizes.iter().enumerate().map(object).map(new).collect()
    }

    fn scheduler() -> Scheduler {
        Scheduler::new(vec![Handle::Simulated(0), Handle::Simulated(1)])
    }

    #[test]
    fn every_byte_of_every_object_exactly_once() {
        let sizes: Vec<u64> = (0..200u64).map(|n| n * n * n * 7 % 9_000_001).collect();
        let scheduler = scheduler();
        scheduler.push(transfers(&sizes));
        scheduler.complete();
        let mut ready = VecDeque::new();
        while scheduler.take(0, 7, &mut ready) == Supply::Given {}
        let mut seen: Vec<Vec<(u64, u64)>> = vec![Vec::new(); sizes.len()];
        for Assignment { transfer, range } in &ready {
            let index: usize = transfer.object.key.parse().expect("a number");
            seen[index].push((range.offset, range.length));
        }
        for (size, mut ranges) in sizes.into_iter().zip(seen) {
            ranges.sort_unstable();
            let end = ranges.iter().fold(0, |end, (offset, length)| {
                assert_eq!(*offset, end, "no gap and no overlap");
                end + length
            });
            assert_eq!(end, size);
        }
    }

    #[test]
    fn large_first_a_few_at_a_time() {
        let scheduler = scheduler();
        scheduler.push(transfers(&[10, 2 << 20, 9 << 20, 3 << 20, 4 << 20, 5 << 20, 20]));
        let mut ready = VecDeque::new();
        assert_eq!(scheduler.take(0, 4, &mut ready), Supply::Given);
        let sizes: Vec<u64> = ready.iter().map(|a| a.transfer.object.size_bytes >> 20).collect();
        assert_eq!(sizes, [9, 5, 4, 3], "2 MiB waits until one of the four is handed out");
    }

    #[test]
    fn bounded_and_ended() {
        let scheduler = scheduler();
        let mut ready = VecDeque::new();
        assert_eq!(scheduler.take(1, 5, &mut ready), Supply::Later);
        scheduler.push(transfers(&vec![1; OBJECTS_QUEUED_MAX]));
        assert_eq!(scheduler.room(), 0);
        scheduler.complete();
        while scheduler.take(0, 64, &mut ready) == Supply::Given {}
        assert_eq!(scheduler.take(1, 5, &mut ready), Supply::Later);
        assert_eq!(scheduler.room(), 0, "room comes back with the outcome, not before");
        let transfer = ready.pop_front().expect("one").transfer;
        scheduler.finish(Outcome { transfer, elapsed_us: 0, result: Ok(()) });
        scheduler.collect(&mut Vec::new());
        assert_eq!(scheduler.room(), 1);
        for Assignment { transfer, .. } in ready.drain(..) {
            scheduler.finish(Outcome { transfer, elapsed_us: 0, result: Ok(()) });
        }
        assert_eq!(scheduler.take(1, 5, &mut ready), Supply::Ended);
    }

    #[test]
    fn workers_stay_until_it_is_decided_about_every_object() {
        let scheduler = scheduler();
        scheduler.push(transfers(&[5, 6]));
        scheduler.complete();
        let mut ready = VecDeque::new();
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Given);
        for Assignment { transfer, .. } in ready.drain(..) {
            let error = Error::new(ErrorKind::Objects, "changed");
            transfer.fail_for_now(Again::Changed, error.clone());
            scheduler.finish(Outcome { transfer, elapsed_us: 0, result: Err(error) });
        }
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Later);
        scheduler.give_up();
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Later);
        scheduler.restart(transfers(&[7]).remove(0));
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Given);
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Later);
        let transfer = ready.pop_front().expect("the new one").transfer;
        scheduler.finish(Outcome { transfer, elapsed_us: 0, result: Ok(()) });
        assert_eq!(scheduler.take(0, 2, &mut ready), Supply::Ended);
    }

    #[test]
    fn an_endpoint_that_is_gone_ends_the_run_and_a_faulty_one_does_not() {
        let faulty = scheduler();
        for attempt in 0..100_000u64 {
            // 7 of 8 fail.
            match attempt % 8 {
                0 => faulty.answered(),
                _ => faulty.attempt_failed("busy", attempt * 1_000_000, 0),
            }
        }
        assert!(!faulty.is_stopped());
        let gone = scheduler();
        let most = u64::from(FAILED_ATTEMPTS_IN_A_ROW_MAX);
        for attempt in 1..most * 2 {
            gone.attempt_failed("stalled", attempt, 0);
        }
        assert!(!gone.is_stopped(), "many, but all at once");
        let retry_for_us = 6 * FAILING_TIME_MIN_US;
        gone.attempt_failed("stalled", FAILING_TIME_MIN_US + 1, retry_for_us);
        assert!(!gone.is_stopped(), "it may be retried for longer");
        gone.attempt_failed("stalled", FAILING_TIME_MIN_US + 1, 0);
        let error = gone.stop_reason().expect("stopped");
        assert_eq!(error.kind(), ErrorKind::Endpoint);
        assert!(error.to_string().contains("513 attempts in a row over 10 seconds"), "{error}");
        assert!(!gone.is_endpoint_gone(retry_for_us, retry_for_us));
        assert!(gone.is_endpoint_gone(retry_for_us + 1, retry_for_us));
        gone.answered();
        assert!(!gone.is_endpoint_gone(retry_for_us + 1, retry_for_us));
    }

    #[test]
    fn what_was_never_handed_out_is_settled_at_the_end() {
        let scheduler = scheduler();
        scheduler.push(transfers(&[3 << 20, 5, 0]));
        let mut ready = VecDeque::new();
        assert_eq!(scheduler.take(0, 1, &mut ready), Supply::Given);
        let keys: Vec<String> =
            scheduler.abandon().iter().map(|transfer| transfer.object.key.clone()).collect();
        assert_eq!(keys, ["000001", "000002"], "the first has a range in a worker's hands");
        assert_eq!(ready[0].transfer.unsettled(), 1);
    }
}
