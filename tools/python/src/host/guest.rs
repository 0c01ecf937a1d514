//! One client of the engine, as the engine sees it.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use inrush::{Bucket, Completion, Destination, ErrorReason, RemoteObject, Requests};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::message::{Answer, Outgoing, UNANSWERED_MAX};
use super::shared::Shared;
use crate::errors::Failure;
use crate::info::ObjectInfo;
use crate::jobs::known;

/// Objects whose parts one client reads at the same time, and must be of one version, at most: more
/// than there are parts in its memory.
const GROUPS_MAX: usize = 4096;
/// A client with at least this many reads under way is in no hurry: it is answered together with
/// others, in rounds. Each answer by itself would wake two processes.
const UNHURRIED_READS_MIN: usize = 16;
/// Characters of an error's message, at most.
const MESSAGE_CHARACTERS_MAX: usize = 2048;

/// A range that a client wants.
pub(super) struct Read {
    pub(super) number: u64,
    pub(super) object: ObjectInfo,
    pub(super) group: Option<u64>,
    pub(super) range: Range<u64>,
    pub(super) part: Range<u64>,
}

/// One client.
pub(super) struct Guest {
    pub(super) socket: OwnedFd,
    pub(super) requests: Requests,
    /// There once it is attached.
    pub(super) memory: Option<Arc<Shared>>,
    /// The parts of the memory that reads have, by their first byte.
    parts: BTreeMap<u64, u64>,
    /// The objects that several reads are of, by their group.
    groups: BTreeMap<u64, RemoteObject>,
    /// The part of each read that is not answered.
    pub(super) reads: HashMap<u64, u64>,
    /// Questions for objects that are not answered.
    pub(super) stats: usize,
    pub(super) outgoing: Outgoing,
    /// It does not keep to the messages, or is gone.
    pub(super) is_over: bool,
}

impl Guest {
    pub(super) fn new(socket: OwnedFd, requests: Requests) -> Self {
        Self {
            socket,
            requests,
            memory: None,
            parts: BTreeMap::new(),
            groups: BTreeMap::new(),
            reads: HashMap::new(),
            stats: 0,
            outgoing: Outgoing::default(),
            is_over: false,
        }
    }

    /// Whether its reads are answered in rounds.
    pub(super) fn is_unhurried(&self) -> bool {
        self.reads.len() >= UNHURRIED_READS_MIN
    }

    pub(super) fn answer(&mut self, answer: &Answer<'_>) {
        self.outgoing.push(answer);
    }

    pub(super) fn fail(&mut self, number: u64, failure: Failure) {
        self.answer(&Answer::Failed { number, failure: failure.cut(MESSAGE_CHARACTERS_MAX) });
    }

    /// Answers a question for an object that has no answer.
    pub(super) fn unfound(&mut self, number: u64, failure: Failure) {
        self.stats -= 1;
        self.answer(&Answer::Unfound { number, failure: failure.cut(MESSAGE_CHARACTERS_MAX) });
    }

    /// Takes a part of the memory for a read; false where the client may not have it.
    pub(super) fn reserve(&mut self, number: u64, part: &Range<u64>) -> bool {
        let Some(memory) = &self.memory else { return false };
        let is_free = part.start < part.end
            && part.end <= memory.length_bytes()
            && self.parts.range(..part.end).next_back().is_none_or(|(_, end)| *end <= part.start)
            && self.reads.len() + self.stats < UNANSWERED_MAX
            && !self.reads.contains_key(&number);
        if is_free {
            self.parts.insert(part.start, part.end);
            self.reads.insert(number, part.start);
        }
        is_free
    }

    /// The object of a read; that of the other reads of its group.
    pub(super) fn object(&mut self, read: &Read, bucket: &Bucket) -> Result<RemoteObject, Failure> {
        let Some(group) = read.group else { return known(&read.object, bucket) };
        if let Some(object) = self.groups.get(&group) {
            return Ok(object.clone());
        }
        let object = known(&read.object, bucket)?;
        if self.groups.len() == GROUPS_MAX {
            // Groups are numbered in the order in which they begin.
            self.groups.pop_first();
        }
        self.groups.insert(group, object.clone());
        Ok(object)
    }

    pub(super) fn release(&mut self, number: u64) {
        if let Some(start) = self.reads.remove(&number) {
            self.parts.remove(&start);
        }
    }
}

/// Gives a client its memory.
pub(super) fn attach(guest: &mut Guest, shared_bytes: u64) -> bool {
    let created = Shared::create(shared_bytes);
    let (memory, file) = match created {
        Ok(created) => created,
        Err(errno) => {
            let why = format!("this machine allows no shared memory (memfd_create): {errno}");
            refuse(&guest.socket, Failure::host(why), true);
            return false;
        }
    };
    let attached = Answer::Attached { process: std::process::id() };
    let text = serde_json::to_vec(&attached).expect("a message is JSON");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    guest.memory = Some(memory);
    // It is the first packet: there is room for it.
    sendmsg(&guest.socket, &[IoSlice::new(&text)], &mut control, flags).is_ok()
}

/// Answers a read that has ended; false if the engine does not work any more.
pub(super) fn complete(guest: &mut Guest, completion: Completion) -> bool {
    let Completion { token, into, result } = completion;
    if !matches!(into, Destination::Place(_)) {
        // The kernel may still write to the part, which nobody may have again.
        return false;
    }
    // Before the client may ask for the same part again.
    drop(into);
    guest.release(token);
    let is_broken = result.as_ref().is_err_and(|error| error.reason() == ErrorReason::Internal);
    match result {
        Ok(_) => guest.answer(&Answer::Done { number: token }),
        Err(error) => guest.fail(token, error.into()),
    }
    !is_broken
}

/// Says to a client that there is no engine for it. The client may be gone.
pub(super) fn refuse(socket: &OwnedFd, failure: Failure, alone: bool) {
    let mut outgoing = Outgoing::default();
    outgoing.push(&Answer::Refused { failure: failure.cut(MESSAGE_CHARACTERS_MAX), alone });
    let _ = outgoing.flush(socket);
}
