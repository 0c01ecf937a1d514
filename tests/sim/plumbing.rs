//! The simulated machine of Pipe mode: sockets whose bytes come in pieces, pipes that are full by
//! bytes or by slots, and a reader per epoch. One seed drives it all; time is virtual.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use inrush::error::{Error, ErrorKind};
use inrush::host::WholeEpoch;
use inrush::limits::TURN_WAIT_MAX_US;
use inrush::pipe::feed::Feed;
use inrush::sys::{Errno, Handle, POLL_ERROR, POLL_HANG_UP, POLL_IN, POLL_OUT};
use inrush::transfer::Transfer;

use super::chance::Chance;
use super::origin::{Fault, Rates, answer, object_bytes, size};
use super::secure::{Server, Sides};

/// Bytes that one slot of a pipe holds at most: a page.
pub(super) const PAGE: usize = 4096;

/// Numbers of simulated handles from here on are pipes; below are sockets.
const PIPES: u64 = 1 << 32;

/// How long the last epoch waits for a reader that never comes, before the channel is stopped.
pub(super) const NEVER_US: u64 = 1_000_000;

/// Cancels of one operation that are lost in a row, at most.
pub(super) const LOST_CANCELS_MAX: u32 = 3;

/// Longest time from a place's withdrawal to its reader's end of file: a turn for each lost cancel,
/// one for the cancel that is not lost, and as much again.
const END_US: u64 = 2 * (LOST_CANCELS_MAX as u64 + 2) * TURN_WAIT_MAX_US;

/// What a reader does with its epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// From the place's appearance to its opening; `u64::MAX` for never.
    pub(crate) late_us: u64,
    /// Bytes of one read, at most.
    pub(crate) gulp: u64,
    /// Time between two reads, at most.
    pub(crate) pace_us: u64,
    /// Reads of a thousand that are followed by a long pause.
    pub(crate) pause_per_mille: u64,
    /// Closes after so many bytes.
    pub(crate) leaves_at: Option<usize>,
}

/// Something that the control plane does.
#[derive(Debug)]
pub(crate) enum Act {
    Push(Vec<Arc<Transfer>>),
    EndEpoch,
    Complete,
    Stop,
}

/// One TCP connection as the feeder's side sees it.
#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) request: Vec<u8>,
    /// Bytes that were sent to the feeder, and not forgotten yet.
    answer: Vec<u8>,
    /// When the answer has come how far.
    arrivals: VecDeque<(u64, usize)>,
    arrived: usize,
    given: usize,
    /// What happens behind the last arrival, and when.
    pub(super) end: Option<(u64, Fault)>,
    /// It has happened.
    pub(super) ended: Option<Fault>,
    pub(super) answers: u32,
    /// Over TLS: the origin's side of it.
    pub(super) server: Option<Server>,
    /// A bit on its way to the feeder was wrong.
    pub(super) garbled: bool,
    /// No room to send before this time.
    clogged_us: u64,
    pub(super) nonblocking: bool,
}

impl Socket {
    pub(super) fn new(server: Option<Server>) -> Self {
        Self { server, ..Self::default() }
    }
}

/// A pipe: slots of at most a page each.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) slots: VecDeque<VecDeque<u8>>,
    slots_max: usize,
    pub(super) reader_gone: bool,
    /// All bytes that were ever put in.
    pub(super) taken: u64,
}

impl Pipe {
    pub(super) fn is_full(&self) -> bool {
        self.slots.len() >= self.slots_max
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.iter().map(VecDeque::len).sum()
    }
}

/// An epoch's place and its reader.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) withdrawn: bool,
    pub(super) withdrawn_us: u64,
    /// Withdrawn after a failure, while somebody waited for its first byte.
    pub(crate) retired: bool,
    /// Its reader got it whole.
    pub(crate) marked: Option<WholeEpoch>,
    /// Its reader is kept from seeing an end.
    pub(crate) kept: bool,
    /// The write end, once opened: a descriptor of the test's process, so that its drop is seen.
    pub(super) write_end: Option<Weak<OwnedFd>>,
    pub(super) pipe: usize,
    pub(super) manner: Manner,
    pub(super) opens_us: u64,
    pub(super) looked_us: Option<u64>,
    pub(super) next_us: u64,
    pub(crate) got: Vec<u8>,
    pub(crate) left: bool,
    pub(crate) saw_end: bool,
}

impl Place {
    pub(crate) fn opened(&self) -> bool {
        self.write_end.is_some()
    }

    /// True while the feeder or an operation of its ring holds the write end.
    pub(crate) fn held(&self) -> bool {
        self.write_end.as_ref().is_some_and(|end| end.strong_count() > 0)
    }

    fn is_done(&self) -> bool {
        self.left || self.saw_end
    }
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Socket(usize),
    Pipe(usize),
    Counter,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) chance: Chance,
    pub(crate) rates: Rates,
    /// Polls of a thousand that complete for nothing, and calls that are interrupted.
    pub(crate) spurious_per_mille: u64,
    /// Cancels of a thousand that are lost, and waits for the feed's counter that never end.
    pub(crate) lost_per_mille: u64,
    /// Some answers take far longer than others.
    pub(crate) uneven: bool,
    pub(crate) now_us: u64,
    /// From the first to the second the origin refuses connections and resets those it has.
    pub(crate) outage_us: (u64, u64),
    pub(super) sockets: Vec<Socket>,
    pub(super) pipes: Vec<Pipe>,
    pub(crate) places: BTreeMap<u64, Place>,
    /// The reader of each epoch; beyond the last nobody comes.
    pub(crate) manners: Vec<Manner>,
    pub(crate) plan: VecDeque<(u64, Act)>,
    pub(crate) feed: Arc<Feed>,
    /// Slots of a pipe, at most.
    pub(crate) slots_max: u64,
    /// Epochs whose markers of earlier runs were removed.
    pub(crate) unmarked: Vec<u64>,
    pub(crate) injected: BTreeMap<&'static str, u64>,
    /// Things that happened: what may cause a turn.
    pub(crate) events: u64,
    pub(crate) models: BTreeMap<String, Rc<Vec<u8>>>,
    /// The origin speaks TLS.
    pub(crate) sides: Option<Sides>,
}

pub(super) fn small(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

impl Lab {
    pub(super) fn is_down(&self) -> bool {
        (self.outage_us.0..self.outage_us.1).contains(&self.now_us)
    }

    pub(crate) fn inject(&mut self, what: &'static str) {
        *self.injected.entry(what).or_default() += 1;
        self.events += 1;
    }

    pub(crate) fn model(&mut self, key: &str) -> Rc<Vec<u8>> {
        if !self.models.contains_key(key) {
            self.models.insert(key.to_owned(), Rc::new(object_bytes(key, size(key))));
        }
        Rc::clone(&self.models[key])
    }

    pub(super) fn end(&self, handle: &Handle) -> End {
        match handle {
            Handle::Simulated(number) if *number >= PIPES => End::Pipe(small(*number - PIPES)),
            Handle::Simulated(number) => End::Socket(small(*number)),
            Handle::Descriptor(descriptor) => {
                let same = |place: &&Place| {
                    place
                        .write_end
                        .as_ref()
                        .is_some_and(|end| end.as_ptr() == Arc::as_ptr(descriptor))
                };
                self.places.values().find(same).map_or(End::Counter, |place| End::Pipe(place.pipe))
            }
        }
    }

    pub(super) fn socket(&mut self, handle: &Handle) -> &mut Socket {
        let End::Socket(index) = self.end(handle) else { unreachable!("a socket") };
        &mut self.sockets[index]
    }

    pub(super) fn make_pipe(&mut self) -> (Handle, u64) {
        let slots_max = 1 + small(self.chance.below(self.slots_max));
        let slots_max = if self.chance.hits(200) { slots_max.min(2) } else { slots_max };
        self.pipes.push(Pipe { slots: VecDeque::new(), slots_max, reader_gone: false, taken: 0 });
        let handle = Handle::Simulated(PIPES + self.pipes.len() as u64 - 1);
        (handle, (slots_max * PAGE) as u64)
    }

    /// Bytes that went into the pipe of an epoch.
    pub(crate) fn delivered(&self, epoch: u64) -> u64 {
        self.pipes[self.places[&epoch].pipe].taken
    }
}

/// Calls.
impl Lab {
    pub(super) fn interrupted(&mut self) -> bool {
        let rate = self.spurious_per_mille / 8;
        let hit = self.chance.hits(rate);
        if hit {
            self.events += 1;
        }
        hit
    }

    pub(super) fn send(&mut self, handle: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let now_us = self.now_us;
        let clogged = self.chance.hits(self.rates.network_per_mille);
        let clog_us = 1 + self.chance.below(10_000);
        let short = self.chance.hits(self.rates.network_per_mille * 3);
        let part = small(1 + self.chance.below(bytes.len() as u64));
        let socket = self.socket(handle);
        assert!(socket.nonblocking, "a call on it may not wait");
        if socket.clogged_us > now_us {
            return Err(Errno::AGAIN);
        }
        if clogged {
            socket.clogged_us = now_us + clog_us;
            return Err(Errno::AGAIN);
        }
        let count = if short { part } else { bytes.len() };
        self.events += 1;
        let End::Socket(index) = self.end(handle) else { unreachable!("a socket") };
        let socket = &mut self.sockets[index];
        if socket.server.is_some() {
            self.take_secure(index, &bytes[..count]);
            return Ok(count);
        }
        socket.request.extend_from_slice(&bytes[..count]);
        if socket.request.ends_with(b"\n") {
            assert!(socket.given == socket.answer.len(), "the last answer was taken whole");
            self.serve(index);
        }
        Ok(count)
    }

    /// The origin reads a request and answers.
    pub(super) fn serve(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        let request = std::mem::take(&mut socket.request);
        let kept = socket.answers > 0;
        let request = String::from_utf8(request).expect("text");
        let fault = self.rates.draw(&mut self.chance, kept);
        if let Some(fault) = fault {
            self.inject(fault.name());
        }
        let model = self.model(request.split(' ').next().expect("a key"));
        let (mut bytes, cut) = answer(&request, &model, fault, &mut self.chance);
        let closes = fault == Some(Fault::CloseAfter);
        let end = cut.map(|(_, fault)| fault).or(closes.then_some(Fault::End));
        self.sockets[index].answers += 1;
        if self.sockets[index].server.is_some() {
            return self.seal(index, &bytes, end, closes);
        }
        bytes.truncate(cut.map_or(bytes.len(), |(cut, _)| cut));
        self.arrive(index, &bytes, end);
    }

    /// Sends bytes to the feeder: they come in pieces, and `end` behind them.
    pub(super) fn arrive(&mut self, index: usize, bytes: &[u8], end: Option<Fault>) {
        let piece_max = [64, 3000, 20_000, 100_000][small(self.chance.below(4))];
        let (slowest_us, end_us) = if self.uneven { (20_000, 3_000_000) } else { (500, 100_000) };
        let pace_us = [10, 500, slowest_us][small(self.chance.below(3))];
        let mut at_us = self.now_us + self.chance.below(3_000);
        let socket = &mut self.sockets[index];
        // What was taken is forgotten; the rest comes before what is new.
        let given = std::mem::take(&mut socket.given);
        socket.answer.drain(..given);
        socket.arrived -= given;
        for (arrives_us, reached) in &mut socket.arrivals {
            *reached -= given;
            at_us = at_us.max(*arrives_us);
        }
        let mut reached = socket.answer.len();
        let stop = reached + bytes.len();
        while reached < stop {
            let piece = (bytes.len() / 40).max(small(1 + self.chance.below(piece_max)));
            reached = stop.min(reached + piece);
            socket.arrivals.push_back((at_us, reached));
            at_us += self.chance.below(pace_us);
        }
        socket.answer.extend_from_slice(bytes);
        // Whatever comes at the end may come long after, while nobody takes what was sent.
        at_us += if self.chance.hits(300) { self.chance.below(end_us) } else { 0 };
        socket.end = end.map(|fault| (at_us, fault));
    }

    /// Bytes that are there, the end of the stream as 0, or why there are none.
    fn available(&self, index: usize) -> Result<usize, Errno> {
        let socket = &self.sockets[index];
        match (socket.arrived - socket.given, socket.ended) {
            (0, Some(Fault::Reset)) => Err(Errno::RESET),
            (0, Some(Fault::Stall) | None) => Err(Errno::AGAIN),
            (count, _) => Ok(count),
        }
    }

    pub(super) fn receive(
        &mut self,
        handle: &Handle,
        into: &mut [u8],
        peek: bool,
    ) -> Result<usize, Errno> {
        let End::Socket(index) = self.end(handle) else { unreachable!("a socket") };
        assert!(self.sockets[index].nonblocking, "a call on it may not wait");
        let count = self.available(index)?.min(into.len());
        let socket = &mut self.sockets[index];
        into[..count].copy_from_slice(&socket.answer[socket.given..socket.given + count]);
        if !peek {
            socket.given += count;
            self.events += 1;
        }
        Ok(count)
    }

    pub(super) fn splice(&mut self, from: &Handle, to: &Handle, wish: u64) -> Result<u64, Errno> {
        let End::Pipe(target) = self.end(to) else { unreachable!("into a pipe") };
        assert!(wish > 0, "a splice of nothing");
        if self.interrupted() {
            return Err(if self.chance.hits(500) { Errno::INTERRUPTED } else { Errno::AGAIN });
        }
        if let End::Pipe(source) = self.end(from) {
            let bytes = self.pipes[source].bytes() as u64;
            assert_eq!(bytes, wish, "what the feeder believes to be in its pipe");
        }
        if self.pipes[target].reader_gone {
            return Err(Errno::PIPE);
        }
        if self.pipes[target].is_full() {
            return Err(Errno::AGAIN);
        }
        let mut left = small(wish);
        if let End::Socket(index) = self.end(from) {
            assert!(self.sockets[index].server.is_none(), "ciphertext is not handed on");
            left = left.min(self.available(index)?);
        }
        if left > 0 && self.chance.hits(300) {
            left = 1 + small(self.chance.below(left as u64));
        }
        let mut moved = 0;
        while left > 0 && !self.pipes[target].is_full() {
            let slot = self.take_slot(from, left);
            left -= slot.len();
            moved += slot.len() as u64;
            self.pipes[target].slots.push_back(slot);
        }
        self.pipes[target].taken += moved;
        self.events += 1;
        Ok(moved)
    }

    /// At most a page out of a socket, or out of a pipe's first slot.
    fn take_slot(&mut self, from: &Handle, length: usize) -> VecDeque<u8> {
        match self.end(from) {
            End::Socket(index) => {
                let socket = &mut self.sockets[index];
                let count = length.min(PAGE);
                let bytes = &socket.answer[socket.given..socket.given + count];
                socket.given += count;
                bytes.iter().copied().collect()
            }
            End::Pipe(index) => {
                let slots = &mut self.pipes[index].slots;
                let slot = slots.front_mut().expect("bytes");
                if slot.len() <= length {
                    return slots.pop_front().expect("bytes");
                }
                slot.drain(..length).collect()
            }
            End::Counter => unreachable!("nothing comes out of it"),
        }
    }

    /// The events of poll(2), those asked for and those that always count.
    pub(super) fn readiness(&self, handle: &Handle, events: u16) -> u16 {
        match self.end(handle) {
            End::Socket(index) => {
                let socket = &self.sockets[index];
                let readable = self.available(index) != Err(Errno::AGAIN);
                let gone = socket.ended == Some(Fault::Reset);
                let room = socket.clogged_us <= self.now_us;
                let asked = if readable { POLL_IN } else { 0 } | if room { POLL_OUT } else { 0 };
                (asked & events) | if gone { POLL_ERROR | POLL_HANG_UP } else { 0 }
            }
            End::Pipe(index) => {
                let pipe = &self.pipes[index];
                let room = if pipe.is_full() { 0 } else { POLL_OUT };
                (room & events) | if pipe.reader_gone { POLL_ERROR } else { 0 }
            }
            End::Counter => {
                let Handle::Descriptor(counter) = handle else { unreachable!("a counter") };
                let mut polls = [rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)];
                let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
                let raised = rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0;
                if raised { POLL_IN } else { 0 }
            }
        }
    }
}

/// Time.
impl Lab {
    /// Lets everything happen whose time has come.
    pub(super) fn step(&mut self) {
        while self.plan.front().is_some_and(|(at_us, _)| *at_us <= self.now_us) {
            let (_, act) = self.plan.pop_front().expect("just seen");
            self.events += 1;
            match act {
                Act::Push(objects) => self.feed.push(objects),
                Act::EndEpoch => self.feed.end_epoch(),
                Act::Complete => self.feed.complete(),
                Act::Stop => self.feed.stop(Error::new(ErrorKind::Interrupted, "stopped")),
            }
        }
        for index in 0..self.sockets.len() {
            self.step_socket(index);
        }
        let mut places = std::mem::take(&mut self.places);
        for (epoch, place) in &mut places {
            assert!(!place.opened() || place.held() || place.withdrawn, "{epoch}: not withdrawn");
            let late = place.withdrawn && self.now_us > place.withdrawn_us + END_US;
            assert!(!(late && place.held()) || place.kept, "{epoch}: its reader sees no end");
            let may_end = !place.kept || place.left || self.feed.is_interrupted();
            assert!(place.held() || may_end, "{epoch}: a failed stream ends");
            self.step_reader(place);
        }
        self.places = places;
    }

    fn step_socket(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        while socket.arrivals.front().is_some_and(|(at_us, _)| *at_us <= self.now_us) {
            socket.arrived = socket.arrivals.pop_front().expect("just seen").1;
            self.events += 1;
        }
        if socket.arrivals.is_empty() && socket.end.is_some_and(|(at_us, _)| at_us <= self.now_us) {
            socket.ended = socket.end.take().map(|(_, fault)| fault);
            self.events += 1;
            // What was not read may be lost with a reset.
            if socket.ended == Some(Fault::Reset) && self.chance.hits(300) {
                socket.arrived = socket.given;
            }
        }
    }

    fn step_reader(&mut self, place: &mut Place) {
        if !place.opened() || place.is_done() || place.next_us > self.now_us {
            return;
        }
        let pipe = &mut self.pipes[place.pipe];
        if place.manner.leaves_at == Some(place.got.len()) {
            // What it has not read stays in the pipe (FIONREAD tells it) while a writer has it.
            place.left = true;
            pipe.reader_gone = true;
            self.events += 1;
            return;
        }
        if pipe.slots.is_empty() {
            place.saw_end = !place.held();
            return;
        }
        let mut left = 1 + small(self.chance.below(place.manner.gulp));
        if let Some(leaves_at) = place.manner.leaves_at {
            left = left.min(leaves_at - place.got.len());
        }
        while left > 0
            && let Some(slot) = pipe.slots.front_mut()
        {
            let count = left.min(slot.len());
            place.got.extend(slot.drain(..count));
            left -= count;
            if slot.is_empty() {
                pipe.slots.pop_front();
            }
        }
        let pause = self.chance.hits(place.manner.pause_per_mille);
        let rest_us = if pause { 10_000_000 } else { place.manner.pace_us };
        place.next_us = self.now_us + 1 + self.chance.below(rest_us);
        self.events += 1;
    }

    /// When the next thing happens by itself.
    pub(super) fn next_us(&self) -> u64 {
        let plan = self.plan.front().map(|(at_us, _)| *at_us);
        let sockets = self.sockets.iter().filter_map(|socket| {
            let arrival = socket.arrivals.front().map(|(at_us, _)| *at_us);
            let clogged = Some(socket.clogged_us).filter(|at_us| *at_us > self.now_us);
            let next = arrival.or(socket.end.map(|(at_us, _)| at_us));
            next.into_iter().chain(clogged).min()
        });
        let readers = self.places.values().filter_map(|place| {
            let acts = || {
                let leaves = place.manner.leaves_at == Some(place.got.len());
                leaves || !place.held() || !self.pipes[place.pipe].slots.is_empty()
            };
            (place.opened() && !place.is_done() && acts()).then_some(place.next_us)
        });
        plan.into_iter().chain(sockets).chain(readers).min().unwrap_or(u64::MAX)
    }

    /// Lets the readers read what is left, after the run.
    pub(crate) fn drain(&mut self) {
        self.plan.clear();
        loop {
            self.step();
            let next_us = self.next_us();
            if next_us == u64::MAX {
                break;
            }
            self.now_us = self.now_us.max(next_us);
        }
        let over = |place: &Place| !place.opened() || place.is_done();
        assert!(self.places.values().all(over), "every reader sees the end");
    }
}
