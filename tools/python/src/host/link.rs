//! The client's end of a connection to the engine of the host.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::attach::{Host, Socket};
use super::message::{
    Answer, MESSAGE_BYTES_MAX, Outgoing, PACKET_BYTES_MAX, Question, UNANSWERED_MAX, messages,
    receive,
};
use super::room::Room;
use super::shared::Shared;
use crate::buffer::Piece;
use crate::errors::Failure;
use crate::info::ObjectInfo;
use crate::reader::{Named, Object, PART_BYTES};
use crate::session::SLICE;

/// Of the memory a read takes no more than this part: several are under way at the same time.
const PARTS_OF_MEMORY: u64 = 4;
/// Bytes of bucket, key and ETag of an object, at most: all of them may be escapes of JSON.
const NAMES_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 7;
/// After this many questions, or results that were handed out without a wait, what was begun is
/// sent; sooner if less than that is under way.
const NUDGES: usize = 8;
/// Packets that are taken in one wait, at most.
const PACKETS_MAX: usize = 64;

/// A read that the engine has not answered.
#[derive(Debug)]
struct Asked {
    /// `None` once it was cancelled: the engine may still write to the part.
    piece: Option<Piece>,
    part: Range<u64>,
}

/// A read that waits for room in the shared memory.
#[derive(Debug)]
struct Waiting {
    number: u64,
    object: Arc<Named>,
    offset: u64,
    piece: Piece,
}

/// One connection, used by one caller at a time.
#[derive(Debug)]
pub(crate) struct Link {
    /// Gone when the client is closed or dropped.
    host: Weak<Host>,
    socket: Arc<Socket>,
    /// The engine's.
    process: u32,
    memory: Arc<Shared>,
    room: Room,
    outgoing: Outgoing,
    packet: Vec<u8>,
    waiting: VecDeque<Waiting>,
    /// Questions for objects that are not sent yet.
    waiting_stats: VecDeque<(u64, String)>,
    next_group: u64,
    /// Questions and results since something was sent.
    nudges: usize,
    reads: HashMap<u64, Asked>,
    /// Questions for objects that are not answered.
    stats: BTreeSet<u64>,
    found: Vec<(u64, Result<ObjectInfo, Failure>)>,
    landed: Vec<(u64, Result<(), Failure>)>,
    limit: Option<String>,
    /// Why it is of no use any more.
    ended: Option<Failure>,
}

impl Link {
    pub(super) fn new(
        host: Weak<Host>,
        socket: Arc<Socket>,
        process: u32,
        memory: Arc<Shared>,
    ) -> Self {
        Self {
            host,
            socket,
            process,
            room: Room::new(memory.length_bytes()),
            memory,
            outgoing: Outgoing::default(),
            packet: vec![0; PACKET_BYTES_MAX],
            waiting: VecDeque::new(),
            waiting_stats: VecDeque::new(),
            next_group: 0,
            nudges: 0,
            reads: HashMap::new(),
            stats: BTreeSet::new(),
            found: Vec::new(),
            landed: Vec::new(),
            limit: None,
            ended: None,
        }
    }

    /// Readable when there may be something to take.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.0.as_raw_fd()
    }

    /// Bytes of the memory, which bounds what is read ahead.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.length_bytes()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.host.upgrade().is_none_or(|host| host.is_closed())
    }

    /// Bytes of one read, at most.
    pub(crate) fn part_bytes_max(&self) -> u64 {
        PART_BYTES.min(self.memory_bytes() / PARTS_OF_MEMORY)
    }

    /// An object that is read by this connection.
    pub(crate) fn named(&mut self, info: ObjectInfo) -> Object {
        let group = (info.size > self.part_bytes_max()).then_some(self.next_group);
        self.next_group += u64::from(group.is_some());
        Object::Named(Arc::new(Named { info, group }))
    }

    /// Reads that have not landed.
    pub(crate) fn under_way(&self) -> usize {
        self.reads.values().filter(|asked| asked.piece.is_some()).count() + self.waiting.len()
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Asks what a HEAD says.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn stat(&mut self, number: u64, uri: &str) -> Result<(), Failure> {
        self.usable()?;
        self.waiting_stats.push_back((number, uri.to_owned()));
        self.ask();
        Ok(())
    }

    /// Reads a range as long as the piece, into it.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn read(
        &mut self,
        number: u64,
        object: &Arc<Named>,
        offset: u64,
        piece: Piece,
    ) -> Result<(), Failure> {
        self.usable()?;
        let info = &object.info;
        let names = [info.bucket.len(), info.key.len(), info.etag.as_ref().map_or(0, String::len)];
        if names.iter().sum::<usize>() > NAMES_BYTES_MAX {
            let message = format!("an address and ETag of more than {NAMES_BYTES_MAX} bytes");
            return Err(Failure::usage(message));
        }
        self.waiting.push_back(Waiting { number, object: Arc::clone(object), offset, piece });
        self.ask();
        Ok(())
    }

    fn usable(&self) -> Result<(), Failure> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Asks for what waits, while there is room.
    fn ask(&mut self) {
        while self.reads.len() + self.stats.len() < UNANSWERED_MAX
            && let Some((number, uri)) = self.waiting_stats.pop_front()
        {
            self.outgoing.push(&Question::Stat { number, uri: uri.into() });
            self.stats.insert(number);
        }
        while self.reads.len() + self.stats.len() < UNANSWERED_MAX
            && let Some(first) = self.waiting.front()
            && let Some(part) = self.room.take(first.piece.length_bytes())
        {
            let Waiting { number, object, offset, piece } =
                self.waiting.pop_front().expect("it is the front");
            let (length, place) = (piece.length_bytes(), part.start);
            let (object, group) = (Cow::Borrowed(&object.info), object.group);
            self.outgoing.push(&Question::Read { number, object, group, offset, length, place });
            self.reads.insert(number, Asked { piece: Some(piece), part });
        }
    }

    /// Cancels a read, which lands at once: only this process writes to its piece. Its part of the
    /// memory stays taken until the engine has answered.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(asked) = self.reads.get_mut(&number) {
            if asked.piece.take().is_some() {
                self.outgoing.push(&Question::Cancel { number });
                self.landed.push((number, Err(Failure::cancelled())));
            }
        } else if let Some(at) = self.waiting.iter().position(|waiting| waiting.number == number) {
            self.waiting.remove(at);
            self.landed.push((number, Err(Failure::cancelled())));
        }
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) {
        if self.ended.is_none()
            && let Err(errno) = self.outgoing.flush(&self.socket.0)
        {
            self.end(errno);
        }
    }

    /// Sends, if many questions were added since the last time, or little is under way.
    pub(crate) fn flush_some(&mut self) {
        self.nudges += 1;
        if self.nudges >= NUDGES || self.reads.len() <= NUDGES {
            self.nudges = 0;
            self.flush();
        }
    }

    /// Sends and receives, if many results were handed out since the last time, or little is under
    /// way; whether there may be something to take.
    pub(crate) fn nudge(&mut self) -> bool {
        self.nudges += 1;
        if self.nudges < NUDGES && self.reads.len() >= NUDGES {
            return false;
        }
        self.wait(Duration::ZERO);
        true
    }

    /// Sends, and waits for an answer, for `at_most`; without the interpreter.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        self.nudges = 0;
        self.flush();
        let has_news = !self.landed.is_empty() || !self.found.is_empty() || self.limit.is_some();
        let timeout = if has_news || self.ended.is_some() { Duration::ZERO } else { at_most };
        if !timeout.is_zero() && !self.receive() {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, !self.outgoing.is_empty());
            let timeout = timeout.try_into().ok();
            // An interrupted wait counts as a timeout.
            let _ = poll(&mut [PollFd::new(&self.socket.0, wanted)], timeout.as_ref());
        }
        while self.receive() {}
        self.ask();
        self.flush();
        if self.is_closed() {
            self.fail_all(&Failure::closed());
        }
    }

    /// Takes the packets that are there, up to a bound; whether there were any.
    fn receive(&mut self) -> bool {
        let mut packet = std::mem::take(&mut self.packet);
        let mut count = 0;
        while self.ended.is_none() && count < PACKETS_MAX {
            match receive(&self.socket.0, &mut packet) {
                Ok(None) => break,
                Ok(Some(text)) => self.take_in(text),
                Err(errno) => self.end(errno),
            }
            count += 1;
        }
        self.packet = packet;
        count > 0 && self.ended.is_none()
    }

    fn take_in(&mut self, packet: &[u8]) {
        for message in messages::<Answer<'_>>(packet) {
            match message {
                Ok(Answer::Done { number }) => self.land(number, Ok(())),
                Ok(Answer::Unfound { number, failure }) => {
                    if self.stats.remove(&number) {
                        self.found.push((number, Err(failure)));
                    }
                }
                Ok(Answer::Failed { number, failure }) => self.land(number, Err(failure)),
                Ok(Answer::Found { number, object }) => {
                    if self.stats.remove(&number) {
                        self.found.push((number, Ok(object.into_owned())));
                    }
                }
                Ok(Answer::Limit { limit }) => self.limit = Some(limit.into_owned()),
                Ok(Answer::Attached { .. } | Answer::Refused { .. }) | Err(_) => {
                    self.end(Errno::PROTO);
                }
            }
        }
    }

    fn land(&mut self, number: u64, result: Result<(), Failure>) {
        let Some(Asked { piece, part }) = self.reads.remove(&number) else { return };
        if let Some(piece) = piece {
            if result.is_ok() {
                self.memory.copy_to(&part, piece);
            }
            self.landed.push((number, result));
        }
        self.room.give_back(&part);
    }

    /// The engine is gone: all that is under way fails.
    fn end(&mut self, errno: Errno) {
        if self.is_closed() {
            return self.fail_all(&Failure::closed());
        }
        let failure = Failure::host(format!(
            "the engine of this host (process {}) has ended ({errno}): read again, which starts \
             another one",
            self.process
        ));
        self.fail_all(&failure);
        self.ended = Some(failure);
    }

    fn fail_all(&mut self, failure: &Failure) {
        // The engine may still write to parts of the memory, which are not used again.
        let asked = self.reads.drain().filter(|(_, asked)| asked.piece.is_some());
        let numbers = asked.map(|(number, _)| number);
        let numbers = numbers.chain(self.waiting.drain(..).map(|waiting| waiting.number));
        self.landed.extend(numbers.map(|number| (number, Err(failure.clone()))));
        let stats = std::mem::take(&mut self.stats).into_iter();
        let stats = stats.chain(self.waiting_stats.drain(..).map(|(number, _)| number));
        self.found.extend(stats.map(|number| (number, Err(failure.clone()))));
        self.ended.get_or_insert_with(|| failure.clone());
    }

    /// The answers to [`Link::stat`] that have come.
    pub(crate) fn take_found(&mut self) -> Vec<(u64, Result<ObjectInfo, Failure>)> {
        std::mem::take(&mut self.found)
    }

    /// Reads that have ended.
    pub(crate) fn take_landed(&mut self) -> Vec<(u64, Result<(), Failure>)> {
        std::mem::take(&mut self.landed)
    }

    /// What limited all reads of the host so far, as JSON.
    pub(crate) fn limit(&mut self, py: Python<'_>) -> PyResult<String> {
        self.outgoing.push(&Question::Limit);
        loop {
            py.detach(|| self.wait(SLICE));
            py.check_signals()?;
            if let Some(limit) = self.limit.take() {
                return Ok(limit);
            }
            self.usable().map_err(|failure| failure.raised(py))?;
        }
    }

    /// Keeps the connection for the next caller, if nothing is under way on it.
    pub(crate) fn keep(mut self) {
        let is_idle = self.reads.is_empty()
            && self.waiting.is_empty()
            && self.stats.is_empty()
            && self.waiting_stats.is_empty()
            && self.outgoing.is_empty();
        if !is_idle || self.ended.is_some() || self.is_closed() {
            return;
        }
        self.landed.clear();
        self.found.clear();
        if let Some(host) = self.host.upgrade() {
            host.keep(self);
        }
    }
}
