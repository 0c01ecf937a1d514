//! The engine's end: one thread answers all clients of the host.
//!
//! It waits for their sockets, for completions of their reads, and for answers of the control
//! plane, and for nothing else. It ends when nobody has been connected for a while.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use inrush::{Bucket, Destination, Engine, Priority, RemoteObject, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, listen};

use super::guest::{Guest, Read, attach, complete, refuse};
use super::message::{
    Answer, PACKET_BYTES_MAX, Question, UNANSWERED_MAX, VERSION, messages, receive,
};
use super::peer::is_of_this_user;
use super::shared::SharedPart;
use crate::errors::Failure;
use crate::info::ObjectInfo;
use crate::listing::Bell;
use crate::session::{Detached, Session, lock};

/// How long the engine stays when nobody is connected: the workers of a next epoch may come.
const UNUSED_SECONDS: u64 = 5;
/// How long an engine that could not start says why to its clients.
const REFUSING_SECONDS: u64 = 1;
/// Connections at a time, at most; who comes then reads by an engine of its own.
const GUESTS_MAX: usize = 1024;
/// Clients that are taken in one turn, at most, and clients that may wait to be taken.
const ACCEPTS_MAX: usize = 64;
const BACKLOG: i32 = 1024;
/// Bytes of shared memory for each processor, of all connections together, if they come at the same
/// time and say how many they are: what is under way while the first byte takes 20 ms, and as much
/// again.
const SHARED_BYTES_PER_PROCESSOR: u64 = 16 << 20;
/// The least and the most of it.
const SHARED_BYTES_SUM: Range<u64> = 64 << 20..1 << 30;
/// Bytes of the memory of one connection, at least: some reads at the same time.
const SHARED_BYTES_MIN: u64 = 4 << 20;
/// The memory is a multiple of this.
const SHARED_STEP_BYTES: u64 = 1 << 20;
/// How long an answer waits for others, at most.
const ROUND_MILLISECONDS: u64 = 2;
/// Packets of one client that are taken in one turn, at most: the others wait meanwhile.
const PACKETS_MAX: usize = 16;

/// What the control plane has found, on its thread.
enum Arrived {
    Object { guest: u64, number: u64, found: Result<RemoteObject, inrush::Error> },
    Bucket { name: String, found: Result<Bucket, inrush::Error> },
}

/// Answers of the control plane that are not taken yet; what rings for them.
#[derive(Clone)]
struct Arrivals {
    queue: Arc<Mutex<VecDeque<Arrived>>>,
    bell: Bell,
}

impl Arrivals {
    fn push(&self, arrived: Arrived) {
        lock(&self.queue).push_back(arrived);
        self.bell.ring();
    }

    fn take(&self) -> VecDeque<Arrived> {
        self.bell.silence();
        std::mem::take(&mut *lock(&self.queue))
    }
}

/// The engine and its clients.
pub(crate) struct Server {
    listener: OwnedFd,
    session: Arc<Session>,
    engine: Arc<Detached<Engine>>,
    arrivals: Arrivals,
    guests: BTreeMap<u64, Guest>,
    next_guest: u64,
    /// No descriptor was left for a client.
    is_full: bool,
    /// The engine does not work any more.
    is_broken: bool,
    /// Reads of each bucket whose endpoint is being looked up, and whose they are.
    looking: HashMap<String, Vec<(u64, Read)>>,
    /// Bytes of shared memory of all connections together.
    shared_bytes_sum: u64,
    packet: Vec<u8>,
    round: Round,
}

impl Server {
    /// For the clients that connect to this socket.
    pub(crate) fn new(
        listener: OwnedFd,
        session: Arc<Session>,
        engine: Arc<Detached<Engine>>,
        bell: Bell,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let shared_bytes = (processors * SHARED_BYTES_PER_PROCESSOR)
            .clamp(SHARED_BYTES_SUM.start, SHARED_BYTES_SUM.end);
        let memory_bytes = session.options().memory_bytes.unwrap_or(shared_bytes);
        Self {
            listener,
            session,
            engine,
            arrivals: Arrivals { queue: Arc::default(), bell },
            guests: BTreeMap::new(),
            next_guest: 0,
            is_full: false,
            is_broken: false,
            looking: HashMap::new(),
            shared_bytes_sum: memory_bytes.min(shared_bytes),
            round: Round::new(),
            packet: vec![0; PACKET_BYTES_MAX],
        }
    }

    /// Answers, until nobody has been connected for a while.
    #[expect(clippy::disallowed_methods, reason = "the edge: it decides when the process ends")]
    pub(crate) fn run(mut self) {
        let mut unused_since = Instant::now();
        loop {
            if !self.guests.is_empty() {
                unused_since = Instant::now();
            }
            let unused = Duration::from_secs(UNUSED_SECONDS).checked_sub(unused_since.elapsed());
            let Some(left) = unused.filter(|_| !self.is_broken) else { return };
            let at_most = if self.guests.is_empty() { Some(left) } else { None };
            self.turn(at_most);
        }
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self, at_most: Option<Duration>) {
        let is_unhurried = self.guests.values().any(Guest::is_unhurried);
        let at_most = if is_unhurried { Some(self.round.left()) } else { at_most };
        let mut ready = self.poll(at_most);
        if is_unhurried && self.round.is_over() {
            ready.guests = self.guests.keys().copied().collect();
        }
        if ready.is_called {
            self.accept();
        }
        for arrived in self.arrivals.take() {
            self.arrive(arrived);
        }
        for number in ready.guests {
            self.serve(number);
        }
        for guest in self.guests.values_mut().filter(|guest| !guest.outgoing.is_empty()) {
            guest.is_over |= guest.outgoing.flush(&guest.socket).is_err();
        }
        let before = self.guests.len();
        self.guests.retain(|_, guest| !guest.is_over);
        if self.guests.len() < before {
            self.is_full = false;
            for waiting in self.looking.values_mut() {
                waiting.retain(|(of, _)| self.guests.contains_key(of));
            }
        }
    }

    fn poll(&self, at_most: Option<Duration>) -> Ready {
        let mut polled = Vec::with_capacity(2 + 2 * self.guests.len());
        let wanted = if self.is_full { PollFlags::empty() } else { PollFlags::IN };
        polled.push(PollFd::new(&self.listener, wanted));
        polled.push(PollFd::from_borrowed_fd(self.arrivals.bell.as_fd(), PollFlags::IN));
        for guest in self.guests.values() {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, !guest.outgoing.is_full());
            wanted.set(PollFlags::OUT, !guest.outgoing.is_empty());
            polled.push(PollFd::new(&guest.socket, wanted));
            let wanted = if guest.is_unhurried() { PollFlags::empty() } else { PollFlags::IN };
            polled.push(PollFd::from_borrowed_fd(guest.requests.as_fd(), wanted));
        }
        let timeout = at_most.and_then(|at_most| at_most.try_into().ok());
        // An interrupted wait counts as a timeout.
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Ready { is_called: false, guests: Vec::new() };
        }
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let guests = self.guests.keys().zip(polled[2..].chunks(2));
        Ready {
            is_called: is_ready(&polled[0]),
            guests: guests
                .filter(|(_, both)| both.iter().any(is_ready))
                .map(|(number, _)| *number)
                .collect(),
        }
    }

    /// Takes the clients that have come.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.is_full = true;
                    return;
                }
                Err(_) => return,
            };
            if !is_of_this_user(&socket) {
                continue;
            }
            let requests = match self.engine.requests() {
                Ok(requests) if self.guests.len() < GUESTS_MAX => requests,
                _ => {
                    let why = "the engine of this host has as many clients as it can have";
                    refuse(&socket, Failure::host(why.to_owned()), true);
                    continue;
                }
            };
            let guest = Guest::new(socket, requests);
            self.guests.insert(self.next_guest, guest);
            self.next_guest += 1;
        }
    }

    /// What a client has sent, and what has been read for it.
    fn serve(&mut self, number: u64) {
        let mut packet = std::mem::take(&mut self.packet);
        if let Some(guest) = self.guests.get_mut(&number) {
            for completion in guest.requests.wait(Duration::ZERO) {
                self.is_broken |= !complete(guest, completion);
            }
        }
        for _ in 0..PACKETS_MAX {
            let guest = self.guests.get_mut(&number);
            let Some(guest) = guest.filter(|guest| !guest.is_over && !guest.outgoing.is_full())
            else {
                break;
            };
            match receive(&guest.socket, &mut packet) {
                Ok(None) => break,
                Ok(Some(text)) => self.take_in(number, text),
                Err(_) => guest.is_over = true,
            }
        }
        self.packet = packet;
    }

    fn take_in(&mut self, number: u64, packet: &[u8]) {
        for question in messages::<Question<'_>>(packet) {
            let understood = question.is_ok_and(|question| self.question(number, question));
            if !understood && let Some(guest) = self.guests.get_mut(&number) {
                guest.is_over = true;
            }
        }
    }

    /// Does what a client asks; false where it may not ask that.
    fn question(&mut self, of: u64, question: Question<'_>) -> bool {
        let count = self.guests.len() as u64;
        let Some(guest) = self.guests.get_mut(&of) else { return false };
        match question {
            Question::Attach { version, clients } => {
                let shared_bytes = shared_bytes(self.shared_bytes_sum, clients.max(count));
                guest.memory.is_none() && version == VERSION && attach(guest, shared_bytes)
            }
            Question::Stat { number, uri } => {
                guest.stats += 1;
                if guest.reads.len() + guest.stats > UNANSWERED_MAX {
                    return false;
                }
                let arrivals = self.arrivals.clone();
                let asked = self.session.client.head_then(&uri, move |found| {
                    arrivals.push(Arrived::Object { guest: of, number, found });
                });
                if let Err(error) = asked {
                    guest.unfound(number, error.into());
                }
                true
            }
            Question::Read { number, object, group, offset, length, place } => {
                let ends = (place.checked_add(length), offset.checked_add(length));
                let (Some(place_end), Some(end)) = ends else { return false };
                let (range, part) = (offset..end, place..place_end);
                if !guest.reserve(number, &part) {
                    return false;
                }
                self.read(of, Read { number, object: object.into_owned(), group, range, part });
                true
            }
            Question::Cancel { number } => {
                if !guest.requests.cancel(number) {
                    self.cancel(of, number);
                }
                true
            }
            Question::Limit => {
                let limit = self.engine.limit().to_json();
                guest.answer(&Answer::Limit { limit: limit.into() });
                true
            }
        }
    }

    /// Requests a range, once the endpoint of its bucket is known.
    fn read(&mut self, of: u64, read: Read) {
        if let Some(bucket) = self.session.bucket(&read.object.bucket) {
            return self.request(of, &bucket, &read);
        }
        let name = read.object.bucket.clone();
        let address = read.object.address();
        if let Some(waiting) = self.looking.get_mut(&name) {
            return waiting.push((of, read));
        }
        self.looking.insert(name.clone(), vec![(of, read)]);
        let (arrivals, asked) = (self.arrivals.clone(), name.clone());
        let asked = self.session.client.bucket_then(&address, move |found| {
            arrivals.push(Arrived::Bucket { name: asked, found });
        });
        if let Err(error) = asked {
            self.arrive(Arrived::Bucket { name, found: Err(error) });
        }
    }

    /// Answers a read that waits for the endpoint of its bucket.
    fn cancel(&mut self, of: u64, number: u64) {
        let is_it = |(guest, read): &mut (u64, Read)| *guest == of && read.number == number;
        let cancelled = self.looking.values_mut().flat_map(|waiting| waiting.extract_if(.., is_it));
        for (of, read) in cancelled.collect::<Vec<_>>() {
            self.fail(of, &read, Failure::cancelled());
        }
    }

    fn fail(&mut self, of: u64, read: &Read, failure: Failure) {
        if let Some(guest) = self.guests.get_mut(&of) {
            guest.release(read.number);
            guest.fail(read.number, failure);
        }
    }

    fn request(&mut self, of: u64, bucket: &Bucket, read: &Read) {
        let Some(guest) = self.guests.get_mut(&of) else { return };
        let Some(memory) = guest.memory.clone() else { return };
        let requested = guest.object(read, bucket).and_then(|object| {
            let into = Destination::Place(Box::new(SharedPart { memory, part: read.part.clone() }));
            let request = Request {
                object,
                range: read.range.clone(),
                into,
                priority: Priority::Normal,
                token: read.number,
            };
            guest.requests.submit(request).map_err(Failure::from)
        });
        if let Err(failure) = requested {
            self.fail(of, read, failure);
        }
    }

    /// Takes an answer of the control plane.
    fn arrive(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Object { guest, number, found } => {
                let Some(guest) = self.guests.get_mut(&guest) else { return };
                match found {
                    Ok(object) => {
                        guest.stats -= 1;
                        let object = Cow::Owned(ObjectInfo::of(&object));
                        guest.answer(&Answer::Found { number, object });
                    }
                    Err(error) => guest.unfound(number, error.into()),
                }
            }
            Arrived::Bucket { name, found } => {
                let waiting = self.looking.remove(&name).unwrap_or_default();
                self.arrive_at(&name, found.map_err(Failure::from), waiting);
            }
        }
    }

    /// The endpoint of a bucket is known, or why it is not: reads have waited for that.
    fn arrive_at(&mut self, name: &str, found: Result<Bucket, Failure>, waiting: Vec<(u64, Read)>) {
        match found {
            Ok(bucket) => {
                self.session.keep_bucket(name, bucket.clone());
                for (of, read) in waiting {
                    self.request(of, &bucket, &read);
                }
            }
            // It was the key of the first that may not be read.
            Err(failure) if failure.is_of_one_key() => {
                let mut waiting = waiting.into_iter();
                if let Some((of, read)) = waiting.next() {
                    self.fail(of, &read, failure);
                }
                waiting.for_each(|(of, read)| self.read(of, read));
            }
            Err(failure) => {
                for (of, read) in waiting {
                    self.fail(of, &read, failure.clone());
                }
            }
        }
    }
}

/// When unhurried clients are answered next.
struct Round {
    begun: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the edge: it decides how long the engine waits")]
impl Round {
    const LENGTH: Duration = Duration::from_millis(ROUND_MILLISECONDS);

    fn new() -> Self {
        Self { begun: Instant::now() }
    }

    fn left(&self) -> Duration {
        Self::LENGTH.saturating_sub(self.begun.elapsed())
    }

    /// Whether it is over; then the next one begins.
    fn is_over(&mut self) -> bool {
        let is_over = self.left().is_zero();
        if is_over {
            *self = Self::new();
        }
        is_over
    }
}

/// What can be done without waiting.
struct Ready {
    /// A client has come.
    is_called: bool,
    guests: Vec<u64>,
}

/// Bytes of the memory of one of this many connections.
fn shared_bytes(sum: u64, connections: u64) -> u64 {
    let share = (sum / connections.max(1)).next_multiple_of(SHARED_STEP_BYTES);
    share.max(SHARED_BYTES_MIN)
}

/// Says to all clients for a while why there is no engine. Those that come later start another one.
#[expect(clippy::disallowed_methods, reason = "the edge: it decides when the process ends")]
pub(crate) fn refuse_all(listener: &OwnedFd, failure: &Failure) {
    let begun = Instant::now();
    let all = Duration::from_secs(REFUSING_SECONDS);
    while let Some(left) = all.checked_sub(begun.elapsed()) {
        let timeout = left.try_into().ok();
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], timeout.as_ref());
        while let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
            if is_of_this_user(&socket) {
                refuse(&socket, failure.clone(), false);
            }
        }
    }
}

/// The socket that this process was started with, as its standard input.
///
/// # Errors
/// There is none, or it cannot be used.
pub(crate) fn listener() -> Result<OwnedFd, Errno> {
    let listener = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    rustix::io::ioctl_fionbio(&listener, true)?;
    // Once more: from now on it is this process that clients see at the other end.
    listen(&listener, BACKLOG)?;
    Ok(listener)
}
