//! The engine for programs: reads ranges of objects into memory, leased slots or pipes, or discards
//! them.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::client::{Client, ControlThread, RemoteObject, Shared};
use super::options::{micros, timeouts};
use super::share;
use crate::engine::config::HostFacts;
use crate::engine::lease::Lease;
use crate::engine::pace::Bandwidth;
use crate::engine::request::{ClientRequest, Completion, Destination, Inbox, Priority, Ticket};
use crate::engine::schedule::Scheduler;
use crate::engine::threads::{RunSetup, Workers, event_counter};
use crate::engine::waited::Waited;
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::Persistence;
use crate::limits::PART_BYTES_DEFAULT;
use crate::link::attempt::RetryPolicy;
use crate::report::asked::Asked;
use crate::report::limit::{Asker, Limit};
use crate::s3::ByteRange;
use crate::sys::choice::{RingChoice, RingKind};
use crate::sys::{Handle, descriptor};

/// Resources that an engine may use. Options that are `None` are chosen to fit the machine.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Worker threads [default: one for each processor that the process may use].
    pub workers: Option<usize>,
    /// Exact number of requests in flight [default: adapt to the throughput].
    pub connections: Option<usize>,
    /// Maximum number of requests in flight.
    pub max_connections: Option<usize>,
    /// Memory for buffers, in bytes [default: a share of the control group's free memory].
    pub memory_bytes: Option<u64>,
    /// Maximum average throughput in bytes per second.
    pub bandwidth_limit_bytes_per_second: Option<NonZeroU64>,
    /// Kernel interface of the workers [default: io_uring, or epoll where that is unavailable].
    pub ring: RingChoice,
    /// How long to retry an endpoint that does not answer [default: one minute].
    pub retry_for: Option<Duration>,
    /// Timeout for connecting [default: 10 seconds].
    pub connect_timeout: Option<Duration>,
    /// Timeout for an attempt that receives no data [default: 30 seconds].
    pub read_timeout: Option<Duration>,
    /// Number of attempts in a row without new data after which a range fails; while the endpoint
    /// does not answer, `retry_for` must have passed as well [default: 8].
    pub max_attempts: Option<NonZeroU32>,
    /// This engine's number, from 0, and the number of engines that share the machine. Each takes
    /// its part of the workers, connections, memory and bandwidth of a single engine.
    pub share: Option<(usize, usize)>,
}

impl EngineOptions {
    /// Options with all defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of worker threads.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the kernel interface of the workers.
    #[must_use]
    pub fn ring(self, ring: RingChoice) -> Self {
        Self { ring, ..self }
    }

    /// Sets this engine's number, from 0, and the number of engines that share the machine.
    #[must_use]
    pub fn share(self, number: usize, engines: usize) -> Self {
        Self { share: Some((number, engines)), ..self }
    }

    /// Sets the exact number of requests in flight.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: Some(connections), ..self }
    }

    /// The retry policy and timeouts of a range.
    pub(super) fn retries(&self) -> Result<RetryPolicy> {
        let usual = RetryPolicy::default();
        Ok(RetryPolicy {
            attempts_max: self.max_attempts.map_or(usual.attempts_max, NonZeroU32::get),
            retry_for_us: self.retry_for.map_or(usual.retry_for_us, micros),
            timeouts: timeouts(self.connect_timeout, self.read_timeout)?,
        })
    }

    /// Checks now what [`Engine::start`] would reject on this machine later.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for invalid options.
    pub fn check(self) -> Result<()> {
        match share::resolve(self, None, HostFacts::read()) {
            Err(error) if error.kind() == ErrorKind::Usage => Err(error),
            // Other errors are about resources, which may be available when the engine starts.
            _ => Ok(()),
        }
    }
}

/// A request for one range of an object.
#[derive(Debug)]
pub struct Request {
    /// The object, in this version.
    pub object: RemoteObject,
    /// The range in bytes: start inclusive, end exclusive, not empty, within the object.
    pub range: Range<u64>,
    /// Where the bytes go; a buffer must have the length of the range.
    pub into: Destination,
    /// Its priority among the waiting requests.
    pub priority: Priority,
    /// A number that the completion returns. Unique among the caller's pending requests.
    pub token: u64,
}

/// The workers that read ranges: one thread for each processor, each with its own io_uring, or
/// epoll where that is unavailable. They run until the engine is dropped. Credentials and addresses
/// are renewed until both the engine and its client are dropped.
///
/// ```no_run
/// # fn main() -> inrush::Result<()> {
/// use std::time::Duration;
/// use inrush::{
///     Client, ClientOptions, Destination, Engine, EngineOptions, Lease, Priority, Request,
/// };
///
/// let client = Client::connect(ClientOptions::new())?;
/// let engine = Engine::start(&client, EngineOptions::new())?;
/// let object = client.head("s3://bucket/train/part-0.parquet")?;
///
/// // One range, and wait for it.
/// let footer = engine.read(&object, object.size_bytes() - 8..object.size_bytes())?;
/// assert_eq!(&footer[4..], b"PAR1");
///
/// // Many at once, in any order.
/// let requests = engine.requests()?;
/// for token in 0..16 {
///     let range = token << 20..(token + 1) << 20;
///     let into = Destination::Memory(vec![0; 1 << 20]);
///     let object = object.clone();
///     requests.submit(Request { object, range, into, priority: Priority::Normal, token })?;
/// }
/// while requests.under_way() > 0 {
///     for completion in requests.wait(Duration::from_secs(1)) {
///         completion.result?;
///     }
/// }
///
/// // Without a copy: the slot that the bytes were received into, for as long as they are kept.
/// let requests = engine.requests()?;
/// let range = 0..engine.lease_bytes_max().min(object.size_bytes());
/// let into = Destination::Lease(Lease::new());
/// requests.submit(Request { object, range, into, priority: Priority::High, token: 0 })?;
/// while requests.under_way() > 0 {
///     for completion in requests.wait(Duration::from_secs(1)) {
///         completion.result?;
///         let Destination::Lease(lease) = completion.into else { unreachable!() };
///         // Another thread may read it; dropping it gives the slot back.
///         std::thread::spawn(move || println!("{} bytes", lease.len()));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Engine {
    workers: Workers,
    /// Renews the workers' credentials and addresses.
    _thread: Arc<ControlThread>,
    shared: Arc<Shared>,
    slot_length_bytes: u32,
    leases_max: usize,
    /// How long callers have waited for completions.
    waited: Arc<Waited>,
    begun: Instant,
    is_fixed: bool,
    bandwidth_limit: Option<NonZeroU64>,
}

impl Engine {
    /// Starts the workers, for objects of this client.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for invalid options; [`ErrorKind::Host`] if memory, descriptors or the
    /// chosen ring are unavailable.
    #[expect(clippy::disallowed_methods, reason = "a run begins when it is started")]
    pub fn start(client: &Client, options: EngineOptions) -> Result<Self> {
        let (config, bandwidth_limit) = share::resolve(options, None, HostFacts::read())?;
        let retries = options.retries()?;
        let begun = Instant::now();
        let tls = client.shared.tls.clone();
        let config = if tls.is_some() { config.secured() } else { config };
        let workers = Workers::start(RunSetup {
            config,
            destination: Vec::new(),
            keeping: Persistence::default(),
            tls,
            keys: Arc::clone(&client.shared.keys),
            retries,
            bandwidth: Bandwidth::of(bandwidth_limit),
            interfaces: client.shared.interfaces.clone(),
            begun,
        })?;
        if let Some(line) = workers.ring().fallback() {
            tracing::warn!("{line}");
        }
        Ok(Self {
            workers,
            _thread: client.thread(),
            shared: Arc::clone(&client.shared),
            slot_length_bytes: config.slot_length_bytes,
            leases_max: config.leases_max(),
            waited: Arc::default(),
            begun,
            is_fixed: options.connections.is_some(),
            bandwidth_limit,
        })
    }

    /// The kernel interface of the workers.
    #[must_use]
    pub fn ring(&self) -> RingKind {
        self.workers.ring().kind
    }

    /// If io_uring was wanted and is unavailable: why, and how to fix it. The engine logs this text
    /// as a warning when it starts (`tracing`).
    #[must_use]
    pub fn ring_fallback(&self) -> Option<String> {
        self.workers.ring().fallback()
    }

    /// Maximum length in bytes of a range for a [`Destination::Lease`]: one data slot.
    #[must_use]
    pub fn lease_bytes_max(&self) -> u64 {
        self.slot_length_bytes.into()
    }

    /// Maximum number of leases at a time; further requests wait until leases are dropped.
    #[must_use]
    pub fn leases_max(&self) -> usize {
        self.leases_max
    }

    /// What limited all reads so far, as `--explain` reports it. Time in which the program waited
    /// for no read counts as the program's own ([`LimitPart::Reader`]).
    ///
    /// [`LimitPart::Reader`]: crate::LimitPart::Reader
    #[must_use]
    pub fn limit(&self) -> Limit {
        let asked = Asked {
            asker: Asker::Library,
            elapsed: self.begun.elapsed(),
            waited: self.waited.total(),
            is_fixed: self.is_fixed,
            bandwidth_limit: self.bandwidth_limit,
        };
        asked.limit(self.workers.config(), &self.workers.counted())
    }

    /// Makes a queue of requests and their completions. An engine may have several.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] if no descriptor is available.
    pub fn requests(&self) -> Result<Requests> {
        let counter = event_counter()?;
        Ok(Requests {
            scheduler: Arc::clone(&self.workers.scheduler),
            shared: Arc::clone(&self.shared),
            slot_length_bytes: self.slot_length_bytes,
            inbox: Arc::new(
                Inbox::new(counter.clone(), None).with_waited(Arc::<Waited>::clone(&self.waited)),
            ),
            counter,
            tickets: Mutex::default(),
        })
    }

    /// Reads one range and blocks until it is complete; a long range is split into parallel
    /// requests.
    ///
    /// # Errors
    /// The error of the first request that failed.
    pub fn read(&self, object: &RemoteObject, range: Range<u64>) -> Result<Vec<u8>> {
        check(object, &range)?;
        let length = length_of(range.end - range.start)?;
        let requests = self.requests()?;
        let starts = (range.start..range.end).step_by(length_of(PART_BYTES_DEFAULT)?);
        let parts: Vec<Range<u64>> =
            starts.map(|start| start..range.end.min(start + PART_BYTES_DEFAULT)).collect();
        let mut whole = vec![0; if parts.len() > 1 { length } else { 0 }];
        for (token, part) in (0..).zip(&parts) {
            let into = Destination::Memory(vec![0; length_of(part.end - part.start)?]);
            let (object, range, priority) = (object.clone(), part.clone(), Priority::High);
            requests.submit(Request { object, range, into, priority, token })?;
        }
        while requests.under_way() > 0 {
            for Completion { token, into, result } in requests.wait(Duration::from_secs(1)) {
                result?;
                let Destination::Memory(bytes) = into else { unreachable!("it was asked for so") };
                if parts.len() == 1 {
                    return Ok(bytes);
                }
                let at = length_of(parts[length_of(token)?].start - range.start)?;
                whole[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(whole)
    }
}

/// The requests of one caller. Dropping it cancels those that have not completed.
#[derive(Debug)]
pub struct Requests {
    scheduler: Arc<Scheduler>,
    shared: Arc<Shared>,
    slot_length_bytes: u32,
    inbox: Arc<Inbox>,
    counter: Handle,
    tickets: Mutex<HashMap<u64, Arc<Ticket>>>,
}

impl Requests {
    fn tickets(&self) -> MutexGuard<'_, HashMap<u64, Arc<Ticket>>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request. Errors of the network, the server or the destination come with its
    /// completion.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a range outside the object, an object of another client, a buffer
    /// whose length is not the range's, a range too long for a lease, or a token in use; the
    /// request is then not submitted.
    pub fn submit(&self, request: Request) -> Result<()> {
        let Request { object, range, into, priority, token } = request;
        check(&object, &range)?;
        if !Arc::ptr_eq(&object.shared, &self.shared) {
            return Err(Error::new(ErrorKind::Usage, "the object belongs to another client")
                .advise("request it from the engine's own client"));
        }
        let range = ByteRange { offset: range.start, length: range.end - range.start };
        let into = self.fit(into, range.length)?;
        let ticket = Arc::new(Ticket::new(token, Arc::clone(&self.inbox)));
        let mut tickets = self.tickets();
        if tickets.contains_key(&token) {
            let message = format!("a request with token {token} is under way");
            return Err(Error::new(ErrorKind::Usage, message));
        }
        if tickets.is_empty() {
            self.inbox.note_waiting(true);
        }
        tickets.insert(token, Arc::clone(&ticket));
        drop(tickets);
        let request = ClientRequest::new(ticket, into);
        self.scheduler.submit(object.object, range, request, priority);
        Ok(())
    }

    /// Checks that the destination takes a range of `length_bytes`, and returns it ready for use.
    fn fit(&self, into: Destination, length_bytes: u64) -> Result<Destination> {
        let most = u64::from(self.slot_length_bytes);
        match into {
            Destination::Memory(buffer) if buffer.len() as u64 != length_bytes => {
                let message = format!("a buffer of {} bytes for {length_bytes}", buffer.len());
                Err(Error::new(ErrorKind::Usage, message))
            }
            Destination::Place(mut place) => match place.span().len() as u64 {
                length if length == length_bytes => Ok(Destination::Place(place)),
                length => {
                    let message = format!("a place of {length} bytes for {length_bytes}");
                    Err(Error::new(ErrorKind::Usage, message))
                }
            },
            Destination::Lease(_) if length_bytes > most => {
                let message = format!("{length_bytes} bytes do not fit a lease of at most {most}");
                Err(Error::new(ErrorKind::Usage, message)
                    .advise("ask for several shorter ranges, or for a buffer"))
            }
            // A fresh lease: a slot held by a used one would stay taken while the request waits for
            // a slot.
            Destination::Lease(_) => Ok(Destination::Lease(Lease::new())),
            // The loan's maker may hold a part of its memory, or have lent less than the range.
            Destination::Loan(_) => {
                Err(Error::new(ErrorKind::Usage, "memory is lent as a buffer or a place"))
            }
            into => Ok(into),
        }
    }

    /// Makes a handle that wakes [`Requests::wait`] from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { counter: self.counter.clone() }
    }

    /// Cancels a request. It completes soon, as cancelled or with its result. Returns false if no
    /// request with this token is pending.
    pub fn cancel(&self, token: u64) -> bool {
        let ticket = self.tickets().get(&token).cloned();
        if let Some(ticket) = &ticket {
            ticket.cancel();
            self.scheduler.cancel_one(ticket);
        }
        ticket.is_some()
    }

    /// The number of requests whose completions have not been taken.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.tickets().len()
    }

    /// Takes all completions; if there are none, waits for the first, at most `at_most`.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> Vec<Completion> {
        let mut arrived = Vec::new();
        self.inbox.collect(&mut arrived);
        if arrived.is_empty()
            && let Handle::Descriptor(counter) = &self.counter
        {
            let timeout = at_most.try_into().ok();
            // An interrupted wait counts as a timeout.
            let _ =
                rustix::event::poll(&mut [PollFd::new(counter, PollFlags::IN)], timeout.as_ref());
            descriptor::lower(&self.counter);
            self.inbox.collect(&mut arrived);
        }
        let mut tickets = self.tickets();
        for completion in &arrived {
            tickets.remove(&completion.token);
        }
        if !arrived.is_empty() {
            self.inbox.note_waiting(!tickets.is_empty());
        }
        arrived
    }
}

impl AsFd for Requests {
    /// Readable (poll(2), epoll(7)) when there may be completions; [`Requests::wait`] takes them.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.counter {
            Handle::Descriptor(counter) => counter.as_fd(),
            Handle::Simulated(_) => unreachable!("an engine of programs is a real one"),
        }
    }
}

/// Makes [`Requests::wait`] return, with or without completions.
#[derive(Debug, Clone)]
pub struct Waker {
    counter: Handle,
}

impl Waker {
    /// Wakes a waiting [`Requests::wait`]; if none waits, the next one returns at once.
    pub fn wake(&self) {
        descriptor::raise(&self.counter);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let tickets = std::mem::take(&mut *self.tickets());
        if tickets.is_empty() {
            return;
        }
        tickets.values().for_each(|ticket| ticket.cancel());
        self.scheduler.cancel();
    }
}

fn check(object: &RemoteObject, range: &Range<u64>) -> Result<()> {
    if range.start < range.end && range.end <= object.size_bytes() {
        return Ok(());
    }
    let size = object.size_bytes();
    let message = format!("bytes {}..{} of an object of {size}", range.start, range.end);
    Err(Error::new(ErrorKind::Usage, message).advise("request bytes within the object"))
}

fn length_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::new(ErrorKind::Usage, "more bytes than memory has"))
}

impl Destination {
    /// A pipe, given the descriptor of its write end. Sets O_NONBLOCK, which affects all processes
    /// that share the pipe's open file description.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if it is no pipe.
    pub fn pipe(writer: OwnedFd) -> Result<Self, Error> {
        let handle = Handle::from(writer);
        let outcome = descriptor::unread(&handle)
            .and_then(|_| descriptor::write_pipe(&handle, &[]))
            .and_then(|_| descriptor::set_nonblocking(&handle, true));
        outcome.map_err(|errno| {
            Error::new(ErrorKind::Destination, format!("cannot use the pipe: {errno}"))
                .advise("give the write end of a pipe")
        })?;
        Ok(Self::Pipe(handle))
    }
}
