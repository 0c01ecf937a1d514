//! The simulated pipes, full by bytes or by slots, and what goes through them; and the time of the
//! streams: what the control plane does, and what the readers do.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use inrush::error::{Error, ErrorKind};
use inrush::sys::{Errno, Handle, POLL_ERROR, POLL_OUT, descriptor};

use super::origin::Fault;
use super::places::{Act, Channel};
use super::seeds;
use super::world::World;

/// Bytes that one slot of a pipe holds at most: a page.
const PAGE: usize = 4096;

pub(super) fn small(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// A pipe: slots of at most a page each. Its ends are descriptors of the test's process, so that
/// their drop is seen.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) slots: VecDeque<VecDeque<u8>>,
    slots_max: usize,
    writer: Weak<OwnedFd>,
    /// `None` for the pipe of a place: its reader is simulated.
    reader: Option<Weak<OwnedFd>>,
    /// That reader has closed.
    pub(super) reader_gone: bool,
    /// All bytes that were ever put in.
    pub(super) taken: u64,
    /// All that were ever taken out.
    pub(super) given: u64,
}

impl Pipe {
    fn is_full(&self) -> bool {
        self.slots.len() >= self.slots_max
    }

    /// Bytes that stand in it.
    pub(super) fn bytes(&self) -> usize {
        small(self.taken - self.given)
    }

    /// True while somebody holds an end of it.
    pub(super) fn is_open(&self) -> bool {
        self.is_written() || self.reader.is_some() && self.is_read()
    }

    /// True while somebody holds the end that bytes go into.
    pub(super) fn is_written(&self) -> bool {
        self.writer.strong_count() > 0
    }

    fn is_read(&self) -> bool {
        match &self.reader {
            None => !self.reader_gone,
            Some(reader) => reader.strong_count() > 0,
        }
    }
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Socket(usize),
    /// Where bytes go into a pipe.
    Writer(usize),
    /// Where they come out.
    Reader(usize),
    Counter,
}

/// Slots of all pipes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipeSlots {
    /// Of a range's own.
    pub(crate) private: usize,
    /// Of a reader's.
    pub(crate) reader: usize,
}

/// The pipes of a machine, and the streams that end in them.
#[derive(Debug, Default)]
pub(crate) struct Plumbing {
    pub(super) pipes: Vec<Pipe>,
    /// The pipes' ends, by where their descriptors are.
    ends: BTreeMap<usize, End>,
    pub(crate) channels: Vec<Channel>,
    /// Slots of a pipe, at most; drawn below that where `slots` says nothing.
    pub(crate) slots_max: u64,
    pub(crate) slots: Option<PipeSlots>,
    /// Polls of a thousand that complete for nothing, and calls that are interrupted.
    pub(crate) spurious_per_mille: u64,
    /// Cancels of a thousand that are lost, and waits for a feeder's counter that never end.
    pub(crate) lost_per_mille: u64,
    /// Answers come over time.
    pub(crate) arrives: bool,
    /// Some of them take far longer than others.
    pub(crate) uneven: bool,
    /// Sockets with something on its way.
    pub(super) moving: Vec<usize>,
    /// Things that happened: what may cause a turn.
    pub(crate) events: u64,
    /// For how long the process was stopped, all in all.
    pub(super) stopped_us: u64,
}

fn place_of(descriptor: *const OwnedFd) -> usize {
    descriptor.addr()
}

impl World {
    /// What a handle stands for.
    pub(super) fn end(&self, handle: &Handle) -> End {
        let Handle::Descriptor(descriptor) = handle else { unreachable!("a file") };
        let known = self.plumbing.ends.get(&place_of(Arc::as_ptr(descriptor)));
        known.copied().unwrap_or(End::Counter)
    }

    /// The number of a socket.
    pub(super) fn socket(&self, handle: &Handle) -> usize {
        let End::Socket(socket) = self.end(handle) else { unreachable!("a socket") };
        socket
    }

    /// True for what wakes a worker or a feeder.
    pub(super) fn is_counter(&self, handle: &Handle) -> bool {
        matches!(self.end(handle), End::Counter)
    }

    /// Makes a socket, or an end of the pipe that is made next.
    pub(super) fn make_end(&mut self, end: End) -> (Handle, Weak<OwnedFd>) {
        let handle = descriptor::event_counter().expect("a descriptor");
        let Handle::Descriptor(descriptor) = &handle else { unreachable!("a descriptor") };
        self.plumbing.ends.insert(place_of(Arc::as_ptr(descriptor)), end);
        let weak = Arc::downgrade(descriptor);
        (handle, weak)
    }

    /// A pipe: its write end, its read end unless its reader is simulated, and its size in bytes.
    pub(super) fn make_pipe(&mut self, has_reader: bool) -> (Handle, Option<Handle>, u64) {
        let slots_max = match &self.plumbing.slots {
            Some(slots) if has_reader => slots.private,
            Some(slots) => slots.reader,
            None => {
                let slots_max = 1 + small(self.chance.below(self.plumbing.slots_max));
                if self.chance.hits(200) { slots_max.min(2) } else { slots_max }
            }
        };
        let index = self.plumbing.pipes.len();
        let (write_end, writer) = self.make_end(End::Writer(index));
        let (read_end, reader) = match has_reader.then(|| self.make_end(End::Reader(index))) {
            Some((handle, weak)) => (Some(handle), Some(weak)),
            None => (None, None),
        };
        let (slots, reader_gone) = (VecDeque::new(), false);
        let pipe = Pipe { slots, slots_max, writer, reader, reader_gone, taken: 0, given: 0 };
        self.plumbing.pipes.push(pipe);
        if has_reader {
            self.memory.open_pipe(index);
        }
        (write_end, read_end, (slots_max * PAGE) as u64)
    }

    /// Pipes of which somebody holds an end.
    pub(crate) fn pipes_open(&self) -> usize {
        self.plumbing.pipes.iter().filter(|pipe| pipe.is_open()).count()
    }
}

/// Calls.
impl World {
    fn interrupted(&mut self) -> bool {
        let rate = self.plumbing.spurious_per_mille / 8;
        let hit = rate > 0 && self.chance.hits(rate);
        if hit {
            self.plumbing.events += 1;
            seeds::note("interrupted call", 1);
        }
        hit
    }

    /// How many of these bytes a call moves: now and then not all.
    fn some_of(&mut self, bytes: usize) -> usize {
        if bytes == 0 || !self.chance.hits(300) {
            return bytes;
        }
        seeds::note("short call", 1);
        1 + small(self.chance.below(bytes as u64))
    }

    /// Looks whether bytes can go into a pipe.
    fn check_pipe(&self, target: usize) -> Result<(), Errno> {
        if !self.plumbing.pipes[target].is_read() {
            seeds::note("pipe that nobody reads", 1);
            return Err(Errno::PIPE);
        }
        if self.plumbing.pipes[target].is_full() {
            seeds::note("full pipe", 1);
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    /// Bytes that are there, 0 for the end of the stream, or why there are none.
    fn available(&self, from: End) -> Result<usize, Errno> {
        match from {
            End::Reader(pipe) => {
                let pipe = &self.plumbing.pipes[pipe];
                match pipe.bytes() {
                    0 if pipe.is_written() => Err(Errno::AGAIN),
                    count => Ok(count),
                }
            }
            End::Socket(socket) => {
                let found = &self.sockets[socket];
                assert!(found.server.is_none(), "ciphertext is not handed on");
                let stop = found.stop();
                let come = self.come(socket, stop) - found.given;
                let is_over = found.given == stop && self.has_ended(socket);
                match found.end.filter(|_| is_over) {
                    None if come == 0 => Err(Errno::AGAIN),
                    None => Ok(come),
                    Some((_, Fault::Reset)) => Err(Errno::RESET),
                    Some((_, Fault::Stall)) => Err(Errno::AGAIN),
                    Some(_) => Ok(0),
                }
            }
            End::Writer(_) | End::Counter => unreachable!("nothing comes out of it"),
        }
    }

    /// Moves bytes into a pipe, as splice(2) does.
    pub(super) fn splice(&mut self, from: End, to: &Handle, wish: u64) -> Result<u64, Errno> {
        let End::Writer(target) = self.end(to) else { unreachable!("into a pipe") };
        assert!(wish > 0, "a splice of nothing");
        if self.interrupted() {
            return Err(if self.chance.hits(500) { Errno::INTERRUPTED } else { Errno::AGAIN });
        }
        // The error of an empty source precedes that of a target that nobody reads.
        let is_pipe = matches!(from, End::Reader(_));
        let early = if is_pipe { Some(self.available(from)?) } else { None };
        self.check_pipe(target)?;
        let available = early.map_or_else(|| self.available(from), Ok)?;
        let mut left = self.some_of(usize::try_from(wish).unwrap_or(usize::MAX).min(available));
        let mut moved = 0;
        while left > 0 && !self.plumbing.pipes[target].is_full() {
            let slot = self.take_slot(from, left);
            left -= slot.len();
            moved += slot.len() as u64;
            self.plumbing.pipes[target].slots.push_back(slot);
        }
        self.plumbing.pipes[target].taken += moved;
        if let End::Reader(pipe) = from {
            self.plumbing.pipes[pipe].given += moved;
        }
        self.plumbing.events += 1;
        Ok(moved)
    }

    /// Reads from a socket, as read(2) does.
    pub(super) fn read_socket(&mut self, from: End, into: &mut [u8]) -> Result<usize, Errno> {
        assert!(!into.is_empty(), "a read of nothing");
        if self.interrupted() {
            return Err(if self.chance.hits(500) { Errno::INTERRUPTED } else { Errno::AGAIN });
        }
        let mut left = self.some_of(into.len().min(self.available(from)?));
        let mut received = 0;
        while left > 0 {
            let piece = self.take_slot(from, left);
            left -= piece.len();
            for byte in piece {
                into[received] = byte;
                received += 1;
            }
        }
        self.plumbing.events += 1;
        Ok(received)
    }

    /// At most a page out of a socket, or out of a pipe's first slot.
    fn take_slot(&mut self, from: End, length: usize) -> VecDeque<u8> {
        match from {
            End::Socket(socket) => {
                let found = &mut self.sockets[socket];
                let count = length.min(PAGE);
                let bytes = &found.answer[found.given..found.given + count];
                found.given += count;
                bytes.iter().copied().collect()
            }
            End::Reader(pipe) => {
                let slots = &mut self.plumbing.pipes[pipe].slots;
                let slot = slots.front_mut().expect("bytes");
                if slot.len() <= length {
                    return slots.pop_front().expect("bytes");
                }
                slot.drain(..length).collect()
            }
            End::Writer(_) | End::Counter => unreachable!("nothing comes out of it"),
        }
    }

    /// Writes into a pipe, as write(2) does where it may not wait: a page or less whole or not at
    /// all.
    pub(super) fn write_pipe(&mut self, to: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let End::Writer(target) = self.end(to) else { unreachable!("into a pipe") };
        assert!(!bytes.is_empty(), "a write of nothing");
        self.check_pipe(target)?;
        if self.interrupted() {
            return Err(Errno::AGAIN);
        }
        let most = if bytes.len() > PAGE { self.some_of(bytes.len()) } else { bytes.len() };
        let pipe = &mut self.plumbing.pipes[target];
        let mut moved = 0;
        for slot in bytes[..most].chunks(PAGE) {
            if pipe.is_full() {
                break;
            }
            pipe.slots.push_back(slot.iter().copied().collect());
            moved += slot.len();
        }
        pipe.taken += moved as u64;
        self.plumbing.events += 1;
        Ok(moved)
    }

    /// The events of poll(2) at a pipe's write end, those asked for and those that always count.
    pub(super) fn pipe_readiness(&self, pipe: usize, events: u16) -> u16 {
        let pipe = &self.plumbing.pipes[pipe];
        let room = if pipe.is_full() { 0 } else { POLL_OUT };
        (room & events) | if pipe.is_read() { 0 } else { POLL_ERROR }
    }

    /// Bytes that stand in a pipe.
    pub(super) fn unread(&self, handle: &Handle) -> u64 {
        match self.end(handle) {
            End::Writer(pipe) | End::Reader(pipe) => self.plumbing.pipes[pipe].bytes() as u64,
            End::Socket(_) | End::Counter => unreachable!("a pipe"),
        }
    }
}

/// Time.
impl World {
    /// Lets everything happen whose time has come.
    pub(super) fn step(&mut self) {
        self.look_up_nodes();
        for channel in 0..self.plumbing.channels.len() {
            self.act(channel);
        }
        self.step_sockets();
        for channel in 0..self.plumbing.channels.len() {
            self.step_places(channel);
        }
    }

    /// What the control plane does.
    fn act(&mut self, channel: usize) {
        let now_us = self.now_us;
        let Channel { plan, feed, .. } = &mut self.plumbing.channels[channel];
        while plan.front().is_some_and(|(at_us, _)| *at_us <= now_us) {
            let (_, act) = plan.pop_front().expect("just seen");
            self.plumbing.events += 1;
            match act {
                Act::Push(items) => feed.push(items),
                Act::EndEpoch => feed.end_epoch(),
                Act::Complete => feed.complete(),
                Act::Stop => {
                    seeds::note("run stopped", 1);
                    feed.stop(Error::new(ErrorKind::Interrupted, "stopped"));
                }
            }
        }
    }

    /// When the next thing happens by itself.
    pub(super) fn next_us(&self) -> u64 {
        let channels = self.plumbing.channels.iter();
        let channels = channels.map(|channel| channel.next_us(&self.plumbing.pipes));
        channels.chain([self.next_arrival_us(), self.next_look_us()]).min().unwrap_or(u64::MAX)
    }

    /// Lets the readers read what is left, after the run.
    pub(crate) fn drain(&mut self) {
        self.plumbing.channels.iter_mut().for_each(|channel| channel.plan.clear());
        self.plumbing.moving.clear();
        if let Some(network) = &mut self.network {
            network.end();
        }
        loop {
            self.step();
            let next_us = self.next_us();
            if next_us == u64::MAX {
                break;
            }
            self.now_us = self.now_us.max(next_us);
        }
        for channel in &self.plumbing.channels {
            let mut places = channel.places.values();
            assert!(places.all(|place| !place.opened() || place.is_done()), "it sees the end");
        }
    }
}
