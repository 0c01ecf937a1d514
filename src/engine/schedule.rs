//! Assigns ranges to workers: a bounded store of objects and requests.
//!
//! A listing pushes objects while there is room; workers take batches of ranges. Any worker may
//! take any range. Large objects go first among those known, a few at a time in turn, so that few
//! files are incomplete and the tail is short; small ones follow in listing order. Requests
//! ([`ClientRequest`]) go before objects, by priority and in order of arrival: their clients
//! control how many are in flight, and the workers' connections bound them. A request for a lease
//! waits until a worker can grant one, and does not block others.
//!
//! A worker that may not send to some endpoints now ([`EndpointSet`]) gets the next work of the
//! others, so that one slow endpoint delays no other.

mod objects;
mod requests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::endpoints::{EndpointNumber, EndpointSet, Endpoints};
use crate::engine::lease::Leases;
use crate::engine::request::{ClientRequest, Priority, Ticket};
use crate::error::{Error, ErrorKind};
use crate::files::file_download::{FileDownload, Outcome};
use crate::limits::{
    FAILED_ATTEMPTS_IN_A_ROW_MAX, FAILING_TIME_MIN_US, OBJECTS_QUEUED_MAX, RANGES_PER_HANDOUT_MAX,
    REQUESTS_QUEUED_MAX,
};
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;
use crate::sys::{Handle, descriptor};
use objects::Objects;
use requests::{QueuedRequest, RequestQueues};

/// One range of one object, assigned to one worker.
#[derive(Debug)]
pub struct Assignment {
    /// Whom it is for.
    pub recipient: Recipient,
    /// The bytes; of length 0 for folders and empty objects.
    pub range: ByteRange,
    /// Its endpoint.
    pub endpoint: EndpointNumber,
}

/// Whom a range is fetched for.
#[derive(Debug)]
pub enum Recipient {
    /// Its object's file, or nothing, depending on the run's sink.
    File(Arc<FileDownload>),
    /// A client, which asked for this range by itself.
    Client {
        /// The object.
        object: Arc<ObjectRef>,
        /// The request.
        request: ClientRequest,
    },
}

impl Recipient {
    /// The object of the range.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        match self {
            Self::File(download) => &download.object,
            Self::Client { object, .. } => object,
        }
    }

    /// The client's request, if there is a client.
    #[must_use]
    pub fn request(&self) -> Option<&ClientRequest> {
        match self {
            Self::File(_) => None,
            Self::Client { request, .. } => Some(request),
        }
    }
}

/// How much work a worker can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Ranges of files, and requests that clients do not pace: limited by the pace.
    pub ranges: usize,
    /// All work, including other requests: limited by connections.
    pub all: usize,
}

/// The answer to a worker's request for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// Some ranges.
    Given,
    /// Nothing now; the worker's event counter is raised when there is work.
    Later,
    /// Nothing now: the pace or an endpoint's rate holds the remaining work back.
    Paced,
    /// Nothing any more.
    Ended,
}

/// The store of work.
#[derive(Debug)]
pub struct Scheduler {
    state: Mutex<SchedulerState>,
    endpoints: Arc<Endpoints>,
    stopped: AtomicBool,
    /// No more objects will come, except those that are fetched again.
    complete: AtomicBool,
    /// Number of cancellations.
    cancels: AtomicU64,
    health: Health,
}

/// Whether the endpoint still answers. A range's retries are bounded by its attempts, a run's by
/// this.
#[derive(Debug, Default)]
struct Health {
    failed_in_a_row: AtomicU32,
    /// When the first of them failed.
    since_us: AtomicU64,
}

impl Health {
    fn answered(&self) {
        // Usually zero already: avoid a write, so that the cache line stays shared.
        if self.failed_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failed_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed attempt; returns how many failed in a row, and for how long.
    fn failed(&self, now_us: u64) -> (u32, u64) {
        let before = self.failed_in_a_row.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
        let failed = before.saturating_add(1);
        (failed, now_us.saturating_sub(self.since_us.load(Ordering::Relaxed)))
    }

    /// True if all attempts have failed for at least this long.
    fn has_failed_for(&self, now_us: u64, time_us: u64) -> bool {
        let elapsed_us = now_us.saturating_sub(self.since_us.load(Ordering::Relaxed));
        self.failed_in_a_row.load(Ordering::Relaxed) > 0 && elapsed_us >= time_us
    }
}

/// For how long all attempts must fail before a run ends.
fn failing_time_us(retry_for_us: u64) -> u64 {
    retry_for_us.max(FAILING_TIME_MIN_US)
}

#[derive(Debug, Default)]
struct SchedulerState {
    objects: Objects,
    /// Objects pushed whose outcome has not been collected.
    held: usize,
    /// Objects pushed that have not ended; one that may be fetched again ends when that is decided.
    unfinished: usize,
    complete: bool,
    outcomes: Vec<Outcome>,
    /// Requests that no worker has begun, by priority.
    requests: [RequestQueues; Priority::COUNT],
    /// Requests received.
    requests_came: u64,
    sleepers: Vec<Sleeper>,
    /// The next worker to wake for a request.
    next_sleeper: usize,
    /// Requests that wait for a lease, for threads that return one.
    leases_wanted: Arc<AtomicUsize>,
    stop: Option<Error>,
}

#[derive(Debug)]
struct Sleeper {
    counter: Handle,
    sleep: Sleep,
    leases: Arc<Leases>,
}

/// What a worker that got nothing waits for, until its counter is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    ForWork,
    /// Its pace lets it take only some of the work; it asks again by itself.
    ForPace,
}

impl Scheduler {
    /// An empty store for as many workers as there are event counters.
    #[must_use]
    pub fn new(counters: Vec<Handle>) -> Self {
        let leases_wanted = Arc::<AtomicUsize>::default();
        let sleepers = counters.into_iter().map(|counter| {
            let leases = Arc::new(Leases::new(counter.clone(), Arc::clone(&leases_wanted)));
            Sleeper { counter, sleep: Sleep::Awake, leases }
        });
        let sleepers = sleepers.collect();
        let state = SchedulerState { sleepers, leases_wanted, ..SchedulerState::default() };
        Self {
            state: Mutex::new(state),
            endpoints: Arc::default(),
            stopped: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            cancels: AtomicU64::new(0),
            health: Health::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        // A worker that panicked ends the run; the state is still consistent, because every change
        // below is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoints of all work taken.
    #[must_use]
    pub fn endpoints(&self) -> &Arc<Endpoints> {
        &self.endpoints
    }

    /// The leases of a worker.
    #[must_use]
    pub fn leases(&self, worker: usize) -> Arc<Leases> {
        Arc::clone(&self.lock().sleepers[worker].leases)
    }

    /// How many more objects may be pushed now.
    #[must_use]
    pub fn room(&self) -> usize {
        OBJECTS_QUEUED_MAX.saturating_sub(self.lock().held)
    }

    /// Takes objects from the listing.
    ///
    /// # Panics
    /// If there are more than [`Self::room`].
    pub fn push(&self, downloads: impl IntoIterator<Item = FileDownload>) {
        let mut state = self.lock();
        for download in downloads {
            assert!(state.held < OBJECTS_QUEUED_MAX, "the listing keeps to the room there is");
            state.unfinished += 1;
            let endpoint = self.endpoints.number_of(&download.object.endpoint);
            state.queue(endpoint, download);
        }
        state.wake();
    }

    /// Takes a request. It completes at once if it was cancelled, after a stop or if too many wait.
    ///
    /// # Panics
    /// If it is for no bytes.
    pub fn submit(
        &self,
        object: Arc<ObjectRef>,
        range: ByteRange,
        request: ClientRequest,
        priority: Priority,
    ) {
        let endpoint = self.endpoints.number_of(&object.endpoint);
        let mut state = self.lock();
        let waiting = state.requests_waiting();
        let reason = match &state.stop {
            Some(reason) => Some(reason.clone()),
            None if waiting >= REQUESTS_QUEUED_MAX => {
                let message = format!("{waiting} requests are already waiting");
                Some(Error::new(ErrorKind::Usage, message).advise("wait until some completed"))
            }
            None => None,
        };
        if reason.is_some() || request.ticket.is_cancelled() {
            drop(state);
            return request.refuse(reason);
        }
        assert!(range.length > 0, "a request of some bytes");
        let for_lease = request.wants_lease();
        state.requests_came += 1;
        let number = state.requests_came;
        let request = QueuedRequest { object, range, request, endpoint };
        state.requests[priority as usize].push(number, request);
        state.count_leases_wanted();
        state.wake_one(for_lease);
    }

    /// Wakes all workers.
    pub fn wake_workers(&self) {
        self.lock().wake_all();
    }

    /// Cancels one request: it completes if no worker has begun it; otherwise the worker looks for
    /// it. Takes the same time however many wait.
    pub fn cancel_one(&self, ticket: &Ticket) {
        let mut state = self.lock();
        let place = ticket.place();
        let found = state.requests.iter_mut().find_map(|waiting| waiting.take(place));
        let Some(QueuedRequest { request, .. }) = found else {
            self.cancels.fetch_add(1, Ordering::Release);
            return state.wake_all();
        };
        state.count_leases_wanted();
        if state.complete {
            // It may have been the last one.
            state.wake();
        }
        drop(state);
        request.refuse(None);
    }

    /// Wakes the workers to look for cancelled requests; those that no worker has begun complete.
    /// For many at once: it scans the queue.
    pub fn cancel(&self) {
        self.cancels.fetch_add(1, Ordering::Release);
        let mut state = self.lock();
        let mut cancelled = Vec::new();
        state.requests.iter_mut().for_each(|waiting| waiting.take_cancelled(&mut cancelled));
        state.count_leases_wanted();
        state.wake_all();
        drop(state);
        cancelled.into_iter().for_each(|request| request.refuse(None));
    }

    /// Number of cancellations: a worker that sees a new number looks for its own. Cheap.
    #[must_use]
    pub fn cancels(&self) -> u64 {
        self.cancels.load(Ordering::Acquire)
    }

    /// True if the listing is complete.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Records that the listing is complete.
    pub fn complete(&self) {
        let mut state = self.lock();
        state.complete = true;
        self.complete.store(true, Ordering::Relaxed);
        state.wake();
    }

    /// Ends the run early: workers abandon their work. The first reason stays.
    pub fn stop(&self, reason: Error) {
        let mut state = self.lock();
        state.stop.get_or_insert(reason);
        self.stopped.store(true, Ordering::Release);
        state.wake_all();
        state.refuse_requests();
    }

    /// True if the run was ended early. Cheap: checked every turn.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Why the run was ended early.
    #[must_use]
    pub fn stop_reason(&self) -> Option<Error> {
        self.lock().stop.clone()
    }

    /// Records a valid answer of the endpoint: bytes of an object, or a clear refusal.
    pub fn answered(&self) {
        self.health.answered();
    }

    /// Records a failed attempt without bytes; too many in a row, over at least the endpoint's
    /// retry time, end the run.
    pub fn attempt_failed(&self, why: impl std::fmt::Display, now_us: u64, retry_for_us: u64) {
        let (failed, elapsed_us) = self.health.failed(now_us);
        let is_long = elapsed_us >= failing_time_us(retry_for_us);
        if failed < FAILED_ATTEMPTS_IN_A_ROW_MAX || !is_long || self.is_stopped() {
            return;
        }
        let message = format!(
            "the endpoint has not answered correctly for {failed} attempts in a row over {} \
             seconds; the last time: {why}",
            elapsed_us / 1_000_000
        );
        self.stop(
            Error::new(ErrorKind::Endpoint, message)
                .advise("check the network and the endpoint, and run it again"),
        );
    }

    /// Called after a range was given up because its endpoint did not answer during its whole retry
    /// time: true if no other attempt brought anything meanwhile, so that no other range can do
    /// better.
    #[must_use]
    pub fn is_endpoint_gone(&self, now_us: u64, retry_for_us: u64) -> bool {
        self.health.has_failed_for(now_us, failing_time_us(retry_for_us))
    }

    /// Appends ranges for a worker to `ready`: as many as it has room for, but at most
    /// [`RANGES_PER_HANDOUT_MAX`], and of the requests at most its share. Skips endpoints in
    /// `passed_over`.
    pub fn take(
        &self,
        worker: usize,
        room: Room,
        passed_over: EndpointSet,
        ready: &mut VecDeque<Assignment>,
    ) -> Supply {
        let mut state = self.lock();
        let waiting = state.requests_waiting();
        let part = waiting.div_ceil(state.sleepers.len().max(1));
        let leases = Arc::clone(&state.sleepers[worker].leases);
        let (mut given, mut paced) = (0, 0);
        while given < room.all.min(RANGES_PER_HANDOUT_MAX).min(part) {
            let next = state.next_request(paced < room.ranges, &leases, passed_over);
            let Some((request, is_paced)) = next else { break };
            ready.push_back(request.into());
            given += 1;
            paced += usize::from(is_paced);
        }
        state.count_leases_wanted();
        let ranges = (room.ranges - paced).min(room.all - given).min(RANGES_PER_HANDOUT_MAX);
        for _ in 0..ranges {
            let Some((endpoint, download, range)) = state.objects.next(passed_over) else { break };
            let recipient = Recipient::File(download);
            ready.push_back(Assignment { recipient, range, endpoint });
            given += 1;
        }
        if given > 0 {
            state.sleepers[worker].sleep = Sleep::Awake;
            if state.is_over() {
                // It was the last request: the others wait for nothing any more.
                state.wake();
            }
            Supply::Given
        } else if state.is_over() {
            Supply::Ended
        } else {
            let holds_back = room.ranges == 0 || !passed_over.is_empty();
            let is_paced = holds_back && state.has_ranges(&leases);
            let sleep = if is_paced { Sleep::ForPace } else { Sleep::ForWork };
            let before = std::mem::replace(&mut state.sleepers[worker].sleep, sleep);
            if is_paced && before == Sleep::Awake {
                // It may have been woken for what another can take: one with a lease, if there is.
                [true, false].into_iter().any(|lease| state.wake_one_of(Sleep::ForWork, lease));
            }
            if is_paced { Supply::Paced } else { Supply::Later }
        }
    }

    /// Takes the outcome of an object from the worker that finished it.
    pub fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        let ended = outcome.result.is_ok() || outcome.download.again().is_none();
        state.outcomes.push(outcome);
        if ended {
            state.end_one();
        }
    }

    /// Takes an object to be fetched again, in place of the one whose outcome allowed it, so there
    /// is room for it.
    pub fn restart(&self, download: FileDownload) {
        let mut state = self.lock();
        let endpoint = self.endpoints.number_of(&download.object.endpoint);
        state.queue(endpoint, download);
        state.wake();
    }

    /// Records that an object which might have been fetched again is not.
    pub fn give_up(&self) {
        self.lock().end_one();
    }

    /// Moves the outcomes since the last call into `outcomes` and makes room for as many objects.
    pub fn collect(&self, outcomes: &mut Vec<Outcome>) {
        let mut state = self.lock();
        state.held -= state.outcomes.len();
        outcomes.append(&mut state.outcomes);
    }

    /// After the workers have ended: completes requests that no worker has begun, settles every
    /// range that was never handed out, and returns the objects whose last range that was.
    #[must_use]
    pub fn abandon(&self) -> Vec<Arc<FileDownload>> {
        let mut state = self.lock();
        state.refuse_requests();
        let mut last = Vec::new();
        while let Some((_, download, _)) = state.objects.next(EndpointSet::EMPTY) {
            if download.settle() {
                last.push(download);
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

impl SchedulerState {
    fn queue(&mut self, endpoint: EndpointNumber, download: FileDownload) {
        self.held += 1;
        self.objects.push(endpoint, Arc::new(download));
    }

    /// Records that an object has ended; the last one of a complete run ends all workers.
    fn end_one(&mut self) {
        self.unfinished -= 1;
        if self.complete && self.unfinished == 0 {
            self.wake();
        }
    }

    /// True if nothing is left, and nothing more will come.
    fn is_over(&self) -> bool {
        self.complete && self.unfinished == 0 && self.requests_waiting() == 0
    }

    fn requests_waiting(&self) -> usize {
        self.requests.iter().map(RequestQueues::count).sum()
    }

    /// The next request for a worker with these leases, and whether the engine paces it; not one
    /// that is paced unless `may_be_paced`.
    fn next_request(
        &mut self,
        may_be_paced: bool,
        leases: &Arc<Leases>,
        passed_over: EndpointSet,
    ) -> Option<(QueuedRequest, bool)> {
        let mut requests = self.requests.iter_mut();
        requests.find_map(|waiting| waiting.next(may_be_paced, leases, passed_over))
    }

    /// Publishes how many requests wait for a lease, before anyone checks for a free one.
    fn count_leases_wanted(&self) {
        let wanted = self.requests.iter().map(RequestQueues::leases_wanted).sum();
        // Usually zero already: avoid a write, so that the cache line stays shared.
        if self.leases_wanted.load(Ordering::SeqCst) != wanted {
            self.leases_wanted.store(wanted, Ordering::SeqCst);
        }
    }

    /// Completes the requests that no worker has begun.
    fn refuse_requests(&mut self) {
        let reason = self.stop.clone();
        while let Some(queued) = self.requests.iter_mut().find_map(RequestQueues::pop) {
            queued.request.refuse(reason.clone());
        }
        self.count_leases_wanted();
    }

    /// Wakes one sleeping worker, in turn, for a request. For a lease it must be one that can grant
    /// it; if none can, the thread that returns a lease wakes its worker.
    fn wake_one(&mut self, for_lease: bool) {
        if !self.wake_one_of(Sleep::ForWork, for_lease) {
            self.wake_one_of(Sleep::ForPace, for_lease);
        }
    }

    /// Like [`Self::wake_one`], of those that wait for this; false if there is none.
    fn wake_one_of(&mut self, sleep: Sleep, for_lease: bool) -> bool {
        let count = self.sleepers.len();
        for step in 0..count {
            let index = (self.next_sleeper + step) % count;
            let sleeper = &mut self.sleepers[index];
            if sleeper.sleep == sleep && (!for_lease || sleeper.leases.has_room()) {
                sleeper.sleep = Sleep::Awake;
                descriptor::raise(&sleeper.counter);
                self.next_sleeper = index + 1;
                return true;
            }
        }
        false
    }

    /// Wakes every worker, asleep or not.
    fn wake_all(&mut self) {
        self.sleepers.iter_mut().for_each(|sleeper| sleeper.sleep = Sleep::ForWork);
        self.wake();
    }

    fn wake(&mut self) {
        for sleeper in &mut self.sleepers {
            if std::mem::replace(&mut sleeper.sleep, Sleep::Awake) != Sleep::Awake {
                descriptor::raise(&sleeper.counter);
            }
        }
    }

    fn has_ranges(&self, leases: &Leases) -> bool {
        let asked_for = self.requests.iter().any(|waiting| waiting.has_paced(leases));
        asked_for || !self.objects.is_empty()
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
