//! A range that a client requests: who requests it, where its bytes go, and how it ends.
//!
//! A client has an [`Inbox`]; each of its requests has a [`Ticket`]. The scheduler assigns requests
//! to workers like ranges of files; the worker puts the completion into the inbox, with errors as
//! values. A cancelled request completes, too.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::backlog::RangeBacklog;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::handover::Handover;
use crate::engine::lease::Lease;
use crate::engine::metrics::{AddressCount, RequestCounts};
use crate::engine::pace::{EndpointTotals, Pacer, Totals};
use crate::error::{Error, ErrorKind};
use crate::limits::ENDPOINTS_MAX;
use crate::link::failure::RetryReason;
use crate::sys::{Handle, Lender, Loan, Place, descriptor};

/// Where the bytes of a request go.
#[derive(Debug)]
pub enum Destination {
    /// Nowhere: the data is counted and dropped.
    Nothing,
    /// A buffer of the caller, as long as the range; the completion returns it. Bytes are received
    /// directly into it; only those that arrive together with the head of an answer are copied.
    Memory(Vec<u8>),
    /// Other memory of the caller, as long as the range; the completion returns it. Bytes are
    /// received as into [`Destination::Memory`].
    Place(Box<dyn Place>),
    /// A data slot of the worker, which is leased to the caller: nothing is copied. Pass an empty
    /// lease ([`Lease::new`]); the completion returns it with the data, or empty if the request
    /// failed.
    ///
    /// A range is at most one slot long ([`Engine::lease_bytes_max`]). At most half of the slots
    /// are leased at the same time ([`Engine::leases_max`]): a further request waits until a lease
    /// is dropped, on any thread, and delays no other request. A caller that keeps all leases must
    /// drop some before it waits for more.
    ///
    /// [`Engine::lease_bytes_max`]: crate::Engine::lease_bytes_max
    /// [`Engine::leases_max`]: crate::Engine::leases_max
    Lease(Lease),
    /// The write end of a pipe, in order. A full pipe blocks a connection until it is read: submit
    /// fewer such requests than there are connections. The request fails if the pipe has no reader.
    Pipe(Handle),
    /// Memory of either kind above, while its request is in flight.
    #[doc(hidden)]
    Loan(Loan),
    /// The memory of a stream, in order. Only over TLS: otherwise nothing need be copied.
    #[doc(hidden)]
    Backlog(Arc<RangeBacklog>),
    /// The range's own pipe of a stream, and in its turn the reader's. Not over TLS.
    #[doc(hidden)]
    Handover(Arc<Handover>),
}

impl Destination {
    /// Takes ownership of a caller's memory.
    fn lend(self) -> Self {
        match self {
            Self::Memory(buffer) => Self::Loan(Loan::new(Lender::Buffer(buffer))),
            Self::Place(place) => Self::Loan(Loan::new(Lender::Place(place))),
            other => other,
        }
    }

    /// Returns it to the caller; `None` if the kernel still has it.
    fn give_back(self) -> Option<Self> {
        Some(match self {
            Self::Loan(loan) => match loan.give_back()? {
                Lender::Buffer(buffer) => Self::Memory(buffer),
                Lender::Place(place) => Self::Place(place),
            },
            other => other,
        })
    }
}

/// Which requests are started first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Before all others.
    High,
    /// In the order of submission.
    #[default]
    Normal,
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 2;
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// The destination of the request, with its buffer or lease. [`Destination::Nothing`] if an
    /// error kept the kernel from returning the buffer, which is then lost because it may still be
    /// written to.
    pub into: Destination,
    /// `Ok` if all data arrived.
    pub result: Result<(), Error>,
}

#[derive(Debug, Default)]
struct Arrived {
    completions: Vec<Completion>,
    counts: RequestCounts,
    /// The client has taken all completions and waits for more.
    is_waited_for: bool,
}

/// Is notified when clients wait.
pub trait Waits: std::fmt::Debug + Send + Sync {
    /// One more client waits.
    fn begin(&self);

    /// A waiting client has stopped waiting.
    fn end(&self);

    /// Updates whether a client waits, and reports a change.
    fn change(&self, waited: &mut bool, waits: bool) {
        match (std::mem::replace(waited, waits), waits) {
            (false, true) => self.begin(),
            (true, false) => self.end(),
            _ => {}
        }
    }
}

/// An endpoint's answers to a client.
#[derive(Debug, Default)]
struct Said {
    answers: AtomicU64,
    refused: AtomicU64,
}

/// The completions and counts of one client.
#[derive(Debug)]
pub struct Inbox {
    /// Raised when a completion has arrived.
    counter: Handle,
    arrived: Mutex<Arrived>,
    /// The request rate of its server.
    pacer: Option<Arc<Pacer>>,
    first_byte_us: AtomicU64,
    ended: AtomicU64,
    ended_us: AtomicU64,
    ended_bytes: AtomicU64,
    /// By the endpoint's number.
    said: [Said; ENDPOINTS_MAX],
    /// Is notified when the client waits.
    waited: Option<Arc<dyn Waits>>,
}

impl Inbox {
    /// An empty inbox; `counter` is raised when something arrives. With a pacer the client controls
    /// the requests in flight, and retries keep to the pacer's rate; without one, the engine's pace
    /// includes them.
    #[must_use]
    pub fn new(counter: Handle, pacer: Option<Arc<Pacer>>) -> Self {
        Self {
            counter,
            arrived: Mutex::default(),
            pacer,
            first_byte_us: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ended_us: AtomicU64::new(0),
            ended_bytes: AtomicU64::new(0),
            said: std::array::from_fn(|_| Said::default()),
            waited: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the completions since the last call into `into`.
    pub fn collect(&self, into: &mut Vec<Completion>) {
        into.append(&mut self.lock().completions);
    }

    /// Notifies `waited` when the client waits.
    #[must_use]
    pub fn with_waited(self, waited: Arc<dyn Waits>) -> Self {
        Self { waited: Some(waited), ..self }
    }

    /// Records that the client waits for requests in flight. The wait ends when a completion
    /// arrives that it has not taken, or with `false`.
    pub fn note_waiting(&self, waits: bool) {
        let mut arrived = self.lock();
        let waits = waits && arrived.completions.is_empty();
        self.set_waiting(&mut arrived, waits);
    }

    fn set_waiting(&self, arrived: &mut Arrived, waits: bool) {
        if let Some(waited) = &self.waited {
            waited.change(&mut arrived.is_waited_for, waits);
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        self.lock().counts.clone()
    }

    /// Sum of the times to the first bytes of all answers, in microseconds.
    #[must_use]
    pub fn first_byte_us(&self) -> u64 {
        self.first_byte_us.load(Ordering::Relaxed)
    }

    /// Copies the number, durations and bytes of ended answers into `totals`.
    pub fn copy_ended_to(&self, totals: &mut Totals) {
        totals.ended = self.ended.load(Ordering::Relaxed);
        totals.ended_us = self.ended_us.load(Ordering::Relaxed);
        totals.ended_bytes = self.ended_bytes.load(Ordering::Relaxed);
    }

    /// Calls `report` with the answer counts of each endpoint.
    pub fn for_each_said(&self, mut report: impl FnMut(EndpointNumber, EndpointTotals)) {
        for (index, said) in self.said.iter().enumerate() {
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let said =
                EndpointTotals { answers: load(&said.answers), refused: load(&said.refused) };
            if said != EndpointTotals::default() {
                report(EndpointNumber::at(index), said);
            }
        }
    }

    /// Records that an endpoint's answer began, after this time.
    pub(crate) fn note_answer(&self, endpoint: EndpointNumber, first_byte_us: u64) {
        self.first_byte_us.fetch_add(first_byte_us, Ordering::Relaxed);
        self.said[endpoint.index()].answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that an endpoint's answer leads to another server.
    pub(crate) fn note_redirect(&self, endpoint: EndpointNumber) {
        self.said[endpoint.index()].answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of an answer: its duration and bytes.
    pub(crate) fn note_end(&self, elapsed_us: u64, bytes: u64) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.ended_us.fetch_add(elapsed_us, Ordering::Relaxed);
        self.ended_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records a failed attempt that is retried.
    pub(crate) fn note_retry(&self, endpoint: EndpointNumber, reason: RetryReason, is_move: bool) {
        if reason == RetryReason::SlowDown {
            self.said[endpoint.index()].refused.fetch_add(1, Ordering::Relaxed);
        }
        let counts = &mut self.lock().counts;
        match is_move {
            true => counts.moves += 1,
            false => counts.retries[reason as usize] += 1,
        }
    }

    /// Records that an address asked for fewer requests.
    pub(crate) fn note_refused(&self, endpoint: EndpointNumber, address: SocketAddr) {
        self.lock().counts.address(endpoint, address).refused += 1;
    }

    /// Records that a late range is requested a second time.
    pub(crate) fn note_hedge(&self) {
        self.lock().counts.hedges += 1;
    }

    /// Records a new connection.
    pub(crate) fn note_connect(&self, endpoint: EndpointNumber, address: SocketAddr) {
        let counts = &mut self.lock().counts;
        counts.connects += 1;
        counts.address(endpoint, address).connects += 1;
    }

    /// Records that an address did not answer, or was far slower than the others.
    pub(crate) fn note_blame(&self, endpoint: EndpointNumber, address: SocketAddr) {
        self.lock().counts.address(endpoint, address).failures += 1;
    }

    /// True if the client controls the requests in flight; otherwise the engine's pace does.
    #[must_use]
    pub fn is_paced_by_client(&self) -> bool {
        self.pacer.is_some()
    }

    /// Takes the right to retry a request to an endpoint.
    ///
    /// # Errors
    /// How long to wait before asking again, in microseconds.
    pub(crate) fn take_request(&self, endpoint: EndpointNumber, now_us: u64) -> Result<(), u64> {
        self.pacer.as_ref().map_or(Ok(()), |pacer| pacer.take_request(endpoint, now_us))
    }
}

/// One request, shared by its client and its worker.
#[derive(Debug)]
pub struct Ticket {
    /// The client's number for it, unique among its requests in flight.
    pub token: u64,
    inbox: Arc<Inbox>,
    /// Its place among the requests that wait for a worker.
    place: AtomicU64,
    cancelled: AtomicBool,
    watched: AtomicBool,
}

impl Ticket {
    /// A request of this client.
    #[must_use]
    pub fn new(token: u64, inbox: Arc<Inbox>) -> Self {
        let [cancelled, watched] = [false, false].map(AtomicBool::new);
        Self { token, inbox, place: AtomicU64::new(0), cancelled, watched }
    }

    /// Cancels it. Workers notice when they are woken
    /// ([`crate::engine::schedule::Scheduler::cancel`]).
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Sets its place in the queue; called by the scheduler, under its lock.
    pub(crate) fn set_place(&self, place: u64) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Its place in the queue, now or earlier; 0 before that.
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// True if it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Raises the client's counter once when more bytes are in the pipe. Check the pipe after this
    /// call and before waiting: bytes that arrived earlier are not reported.
    pub fn watch(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    /// Records that more bytes are in the pipe.
    pub(crate) fn moved_on(&self) {
        if self.watched.load(Ordering::SeqCst) && self.watched.swap(false, Ordering::SeqCst) {
            descriptor::raise(&self.inbox.counter);
        }
    }

    /// The inbox for its completion.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

/// A worker's side of a request.
#[derive(Debug)]
pub struct ClientRequest {
    /// Its ticket.
    pub ticket: Arc<Ticket>,
    /// Where its bytes go.
    pub into: Destination,
    is_complete: bool,
}

/// Counts of a completed request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Brought {
    /// Address and duration; `None` if nothing was received.
    pub from: Option<AddressCount>,
    /// HTTP requests sent for it.
    pub requests: u64,
}

impl ClientRequest {
    /// A request with this destination.
    #[must_use]
    pub fn new(ticket: Arc<Ticket>, into: Destination) -> Self {
        Self { ticket, into: into.lend(), is_complete: false }
    }

    /// True if it can begin only with a worker that may lease a slot.
    #[must_use]
    pub fn wants_lease(&self) -> bool {
        matches!(self.into, Destination::Lease(_))
    }

    /// Stores the lease that a worker has reserved for it.
    pub(crate) fn grant(&mut self, reserved: Lease) {
        self.into = Destination::Lease(reserved);
    }

    /// Completes it.
    pub(crate) fn complete(mut self, result: Result<(), Error>, brought: Brought) {
        self.deliver(result, brought);
    }

    fn deliver(&mut self, result: Result<(), Error>, brought: Brought) {
        self.is_complete = true;
        let into = std::mem::replace(&mut self.into, Destination::Nothing);
        let (mut into, result) = match into.give_back() {
            Some(into) => (into, result),
            None => {
                let lost = || Err(Error::bug("the kernel has not given a buffer back"));
                (Destination::Nothing, result.and_then(|()| lost()))
            }
        };
        if result.is_err()
            && let Destination::Lease(lease) = &mut into
        {
            // Frees its slot or reservation for others.
            *lease = Lease::new();
        }
        let (ticket, token) = (&self.ticket, self.ticket.token);
        {
            let mut arrived = ticket.inbox.lock();
            arrived.counts.requests += brought.requests;
            if let Some(from) = brought.from {
                arrived.counts.address(from.endpoint, from.address).add(&from);
            }
            ticket.inbox.set_waiting(&mut arrived, false);
            arrived.completions.push(Completion { token, into, result });
        }
        descriptor::raise(&ticket.inbox.counter);
    }

    /// True if the client controls the requests in flight.
    #[must_use]
    pub fn is_paced_by_client(&self) -> bool {
        self.ticket.inbox.is_paced_by_client()
    }

    /// Completes a request that no worker has begun.
    pub fn refuse(self, reason: Option<Error>) {
        self.complete(Err(reason.unwrap_or_else(cancelled)), Brought::default());
    }
}

/// The error of a cancelled request.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Interrupted, "the request was cancelled")
}

impl Drop for ClientRequest {
    /// Every request completes, even if its worker is gone.
    fn drop(&mut self) {
        if !self.is_complete {
            let lost = Error::bug("a worker has ended");
            self.deliver(Err(lost), Brought::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lease::Leases;
    use crate::limits::ADDRESSES_KEPT_MAX;
    use crate::sys::{Pool, Region};

    fn inbox() -> Arc<Inbox> {
        Arc::new(Inbox::new(descriptor::event_counter().expect("a descriptor"), None))
    }

    fn is_raised(inbox: &Inbox) -> bool {
        let Handle::Descriptor(counter) = &inbox.counter else { unreachable!("a counter") };
        let mut polls = [rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0
    }

    #[test]
    fn what_completes_arrives_once_and_is_counted() {
        let inbox = inbox();
        let ticket = Arc::new(Ticket::new(7, Arc::clone(&inbox)));
        let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let endpoint = EndpointNumber::at(1);
        inbox.note_connect(endpoint, address);
        inbox.note_retry(endpoint, RetryReason::SlowDown, false);
        inbox.note_retry(endpoint, RetryReason::Stall, true);
        inbox.note_answer(endpoint, 30);
        assert!(!is_raised(&inbox), "nothing has arrived");
        let from = AddressCount { ranges: 1, bytes: 3, ..AddressCount::new(endpoint, address) };
        let request = ClientRequest::new(ticket, Destination::Memory(vec![1, 2, 3]));
        request.complete(Ok(()), Brought { from: Some(from), requests: 2 });
        assert!(is_raised(&inbox));
        let mut arrived = Vec::new();
        inbox.collect(&mut arrived);
        inbox.collect(&mut arrived);
        let [Completion { token: 7, into: Destination::Memory(bytes), result: Ok(()) }] =
            &arrived[..]
        else {
            panic!("{arrived:?}")
        };
        assert_eq!(bytes, &[1, 2, 3], "the buffer comes back");
        let counts = inbox.counts();
        assert_eq!((counts.requests, counts.connects, counts.moves), (2, 1, 1));
        assert_eq!((counts.addresses[0].connects, counts.addresses[0].bytes), (1, 3));
        assert_eq!(counts.retries.iter().sum::<u64>(), 1, "what moved is counted as that");
        assert_eq!(inbox.first_byte_us(), 30);
        inbox.note_end(40, 1000);
        inbox.note_end(2, 10);
        let mut totals = Totals::default();
        inbox.copy_ended_to(&mut totals);
        assert_eq!((totals.ended, totals.ended_us, totals.ended_bytes), (2, 42, 1010));
        let mut said = Vec::new();
        inbox.for_each_said(|endpoint, said_by_it| said.push((endpoint.index(), said_by_it)));
        assert_eq!(said, [(1, EndpointTotals { answers: 1, refused: 1 })]);
    }

    /// Names that are resolved for weeks yield new addresses all the time.
    #[test]
    fn counts_of_addresses_are_bounded() {
        let inbox = inbox();
        for port in 1..=u16::try_from(2 * ADDRESSES_KEPT_MAX).expect("few") {
            inbox.note_connect(EndpointNumber::at(0), ([127, 0, 0, 1], port).into());
        }
        let counts = inbox.counts();
        assert_eq!(counts.connects, 2 * ADDRESSES_KEPT_MAX as u64);
        assert_eq!(counts.addresses.len(), ADDRESSES_KEPT_MAX);
        let last = counts.addresses.last().expect("some").address.port();
        assert_eq!(usize::from(last), 2 * ADDRESSES_KEPT_MAX, "the newest stay");
    }

    #[test]
    fn one_who_watches_is_notified_once() {
        let inbox = inbox();
        let ticket = Ticket::new(1, Arc::clone(&inbox));
        ticket.moved_on();
        assert!(!is_raised(&inbox), "nobody watches");
        ticket.watch();
        ticket.moved_on();
        assert!(is_raised(&inbox));
        descriptor::lower(&inbox.counter);
        ticket.moved_on();
        assert!(!is_raised(&inbox), "it was raised already");
    }

    #[test]
    fn a_lease_comes_back_with_its_bytes_or_empty() {
        let leases = Arc::new(Leases::new(Handle::Simulated(0), Arc::default()));
        let region = Region::new(64 << 10).expect("memory");
        let pool = Pool::new(region.carve(64 << 10).expect("room"), 16 << 10);
        leases.set_slots(pool.count());
        for is_right in [true, false] {
            let inbox = inbox();
            let into = Destination::Lease(Lease::new());
            let mut request =
                ClientRequest::new(Arc::new(Ticket::new(1, Arc::clone(&inbox))), into);
            assert!(request.wants_lease());
            let mut lease = leases.reserve().expect("room");
            lease.fill(pool.take().expect("free"), 0..5);
            request.grant(lease);
            let wrong = Error::new(ErrorKind::Objects, "another version");
            request.complete(if is_right { Ok(()) } else { Err(wrong) }, Brought::default());
            let mut arrived = Vec::new();
            inbox.collect(&mut arrived);
            let Destination::Lease(lease) = &arrived[0].into else { panic!("{arrived:?}") };
            assert_eq!(lease.len(), if is_right { 5 } else { 0 });
            assert_eq!(leases.held(), usize::from(is_right));
        }
    }

    #[test]
    fn one_that_is_lost_completes_all_the_same() {
        let inbox = inbox();
        drop(ClientRequest::new(
            Arc::new(Ticket::new(4, Arc::clone(&inbox))),
            Destination::Nothing,
        ));
        let mut arrived = Vec::new();
        inbox.collect(&mut arrived);
        assert_eq!(arrived[0].result.as_ref().map_err(Error::kind), Err(ErrorKind::Host));
        assert!(arrived.len() == 1 && is_raised(&inbox));
    }

    #[test]
    fn one_that_is_refused_says_why() {
        for (reason, kind) in [
            (None, ErrorKind::Interrupted),
            (Some(Error::new(ErrorKind::Endpoint, "gone")), ErrorKind::Endpoint),
        ] {
            let inbox = inbox();
            let ticket = Arc::new(Ticket::new(1, Arc::clone(&inbox)));
            ticket.cancel();
            assert!(ticket.is_cancelled());
            ClientRequest::new(ticket, Destination::Nothing).refuse(reason);
            let mut arrived = Vec::new();
            inbox.collect(&mut arrived);
            assert_eq!(arrived[0].result.as_ref().map_err(Error::kind), Err(kind));
        }
    }
}
