//! The state of a range on a connection: its bytes, what it waits for, and its attempts.

use std::net::SocketAddr;
use std::sync::Arc;

use super::stream::Flow;
use crate::checksum::Mismatch;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::peers::{LateEnd, RangeTimes};
use crate::engine::request::Ticket;
use crate::error::Error;
use crate::files::file_download::FileDownload;
use crate::files::host::OptionalHeaders;
use crate::limits::ALIKE_TRIES_MAX;
use crate::link::attempt::Attempts;
use crate::link::conn::{Action, EtagDigest, Manner};
use crate::link::failure::Failure;
use crate::link::object::ObjectRef;
use crate::s3::answer::may_refuse_header;
use crate::s3::habit::Habit;
use crate::s3::redirect::{Elsewhere, LookUpNumber, RedirectChain};
use crate::s3::{ByteRange, Endpoint};
use crate::sys::Slot;

/// What a range waits for.
#[derive(Debug)]
pub(super) enum JobState {
    /// Only its connection's actions and operations.
    Active,
    /// Like `Active`, and a poll has found bytes for the next operation.
    Readable,
    /// This action waits for bytes, without a data slot: the operation in flight is a poll.
    ForBytes(Action),
    /// This action is queued for a data slot, or for a piece of its client's memory.
    ForSlot {
        action: Action,
        since_us: u64,
        /// A poll has found bytes for it.
        is_readable: bool,
    },
    /// Its pipe is full: the operation in flight polls it. Or the memory of its stream is: then
    /// nothing is in flight.
    ForRoom,
    /// An attempt failed: this follows once its actions are carried out.
    Failed(AfterFailure),
    /// It waits until its next attempt.
    Backoff { until_us: u64 },
    /// The addresses of the server that its redirects lead to are looked up.
    LookUp { chain: Box<RedirectChain>, look_up: LookUpNumber, until_us: u64 },
}

impl JobState {
    /// True if an action waits: the connection must not be asked for another.
    pub(super) fn is_parked(&self) -> bool {
        matches!(self, Self::ForBytes(_) | Self::ForSlot { .. } | Self::ForRoom)
    }

    /// Makes this action wait for a data slot.
    pub(super) fn wait_for_slot(&mut self, action: Action, since_us: u64) {
        let is_readable = matches!(self, Self::Readable);
        *self = Self::ForSlot { action, since_us, is_readable };
    }

    /// A data slot is available: returns its action, and since when that has waited.
    pub(super) fn slot_came(&mut self) -> (Action, u64) {
        let Self::ForSlot { action, since_us, is_readable } = *self else {
            unreachable!("who waits for a slot has an action for it")
        };
        *self = if is_readable { Self::Readable } else { Self::Active };
        (action, since_us)
    }

    /// A poll has found bytes, the end of the stream, or room: returns the action for it.
    pub(super) fn poll_ended(&mut self) -> Action {
        let (action, next) = match *self {
            Self::ForBytes(action) => (action, Self::Readable),
            Self::ForRoom => (Action::Move { from: 0, length: 0 }, Self::Active),
            _ => unreachable!("who polls has an action for what comes"),
        };
        *self = next;
        action
    }

    /// An operation begins; true if it takes what a poll has found.
    pub(super) fn operation_begins(&mut self) -> bool {
        let follows_poll = matches!(self, Self::Readable);
        if follows_poll {
            *self = Self::Active;
        }
        follows_poll
    }

    /// Takes what follows a failed attempt, once.
    pub(super) fn take_failure(&mut self) -> Option<AfterFailure> {
        if !matches!(self, Self::Failed(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Active) {
            Self::Failed(after) => Some(after),
            _ => None,
        }
    }
}

/// What follows a failed attempt.
#[derive(Debug)]
pub(super) enum AfterFailure {
    Resume,
    /// At another server, over a connection that leads there.
    Elsewhere,
    /// There, too, once its addresses are known.
    LookUp(Box<RedirectChain>, LookUpNumber),
    /// It waits without a connection until another one is free.
    Park,
    Backoff {
        until_us: u64,
    },
    GiveUp(Error),
    /// Its rival continues alone.
    Yield,
}

/// Whether two connections requested the same range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rivalry {
    /// Only this one.
    Alone,
    /// It is late, and this one has requested the same range.
    HedgedBy(usize),
    /// It is the second one; this one is late.
    HedgeOf(usize),
}

/// The last request for a range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    asked_us: u64,
    /// When the head of its answer had arrived.
    answered_us: Option<u64>,
    /// Version of the keys that signed it.
    keys_version: u64,
}

/// Where the bytes of a range go.
#[derive(Debug)]
pub(super) enum Route {
    /// Its object's file, or nothing, depending on the run's sink; small objects are received
    /// whole.
    File(Arc<FileDownload>),
    /// A client's memory, a slot leased to it, or nothing.
    Client(Arc<ObjectRef>, Arc<Ticket>),
    /// A client's pipe, or the memory of a stream.
    Stream(Arc<ObjectRef>, Flow),
}

/// A range that a connection has.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) state: JobState,
    /// The endpoint that it is requested from.
    pub(super) endpoint: EndpointNumber,
    /// Where a redirect leads, if it is requested there.
    pub(super) elsewhere: Option<Arc<Elsewhere>>,
    /// This attempt was redirected there; otherwise an earlier range of its object.
    pub(super) is_redirected: bool,
    pub(super) into: Route,
    /// The requested bytes: the range, or the rest that another connection had not delivered.
    pub(super) bytes: ByteRange,
    /// Number of the range among the worker's.
    pub(super) range: usize,
    /// The slot that is filled next, unless it is in an operation.
    pub(super) data: Option<Slot>,
    /// Offset of its bytes in the object.
    pub(super) piece_at: u64,
    pub(super) rivalry: Rivalry,
    /// How many times it was moved from a late connection to another.
    pub(super) moves: u32,
    pub(super) attempts: Attempts,
    /// Why its last attempt failed, and how many in a row have failed for this reason.
    pub(super) last_failure: Option<Failure>,
    alike: u32,
    /// Where that was, if a redirect had led there.
    pub(super) failed_at: Option<Arc<Elsewhere>>,
    /// Its own server has led there again, where it has failed in the same way.
    pub(super) has_failed_there_again: bool,
    /// Checksum mismatch of the last whole body, if any, and its sender.
    pub(super) mismatch: Option<(Mismatch, SocketAddr)>,
    /// The one before was wrong in the same way.
    pub(super) is_wrong_alike: bool,
    /// The failing attempt was ended early for this reason, not by its timeout.
    pub(super) late_end: Option<LateEnd>,
    /// The optional headers of its last request.
    pub(super) sent: OptionalHeaders,
    /// The server refused a request with `If-Match`, and has not shown that it supports it.
    without_if_match: bool,
    /// As above, for `x-amz-checksum-mode`.
    without_checksum: bool,
    /// The optional headers of the request that was refused last.
    refused: Option<OptionalHeaders>,
    /// The last answer was chunked: the value of accept-encoding for the next request.
    pub(super) accept_gzip: Option<bool>,
    /// The next connect avoids this address, if there is another one.
    pub(super) other_than: Option<SocketAddr>,
    /// `Last-Modified` of the answers that other connections had to it, if these had no ETag.
    pub(super) last_modified: Option<EtagDigest>,
    request: Option<Request>,
}

impl Job {
    pub(super) fn new(
        (into, endpoint): (Route, EndpointNumber),
        bytes: ByteRange,
        range: usize,
        attempts: Attempts,
    ) -> Self {
        Self {
            state: JobState::Active,
            endpoint,
            elsewhere: None,
            is_redirected: false,
            into,
            bytes,
            range,
            data: None,
            piece_at: bytes.offset,
            rivalry: Rivalry::Alone,
            moves: 0,
            attempts,
            last_failure: None,
            alike: 0,
            failed_at: None,
            has_failed_there_again: false,
            mismatch: None,
            is_wrong_alike: false,
            late_end: None,
            sent: OptionalHeaders { if_match: true, accept_gzip: false, with_checksum: false },
            without_if_match: false,
            without_checksum: false,
            refused: None,
            accept_gzip: None,
            other_than: None,
            last_modified: None,
            request: None,
        }
    }

    /// The server that it is requested from: its object's, or where a redirect of that leads.
    pub(super) fn server(&self) -> &Arc<Endpoint> {
        self.elsewhere.as_ref().map_or(&self.object().endpoint, |elsewhere| &elsewhere.endpoint)
    }

    /// The optional headers of its next request, for this range or the whole object.
    pub(super) fn headers(&self, range: Option<ByteRange>) -> OptionalHeaders {
        let habits = &self.server().habits;
        let asks = self.into.download().is_some_and(|download| download.verification.asks());
        let without_checksum = self.without_checksum || habits.omits_checksum_mode();
        let without_if_match = self.without_if_match
            || habits.has(Habit::MisreadsIfMatch)
            || self.object().has_weak_etag();
        OptionalHeaders {
            if_match: self.names_version() && !without_if_match,
            accept_gzip: self.accept_gzip.unwrap_or(habits.has(Habit::UnpacksGzip)),
            with_checksum: range.is_none() && asks && !without_checksum,
        }
    }

    /// Leaves out of the next request an optional header that may have caused an answer with this
    /// status, which rarely names it: `If-Match` after 412, else the request for a checksum, then
    /// `If-Match` in its place, then both. False if the server is known to understand those that
    /// were sent.
    pub(super) fn leave_out(&mut self, status: u16) -> bool {
        let habits = &self.server().habits;
        let if_match = self.sent.if_match && !habits.has(Habit::ReadsIfMatch);
        let checksum = self.sent.with_checksum && !habits.has(Habit::AcceptsChecksumMode);
        match status {
            412 if if_match => self.without_if_match = true,
            status if !may_refuse_header(status) => return false,
            _ if checksum => self.without_checksum = true,
            _ if if_match => (self.without_if_match, self.without_checksum) = (true, false),
            _ => return false,
        }
        self.refused = Some(self.sent);
        true
    }

    /// True if the ETag of its object is known.
    pub(super) fn names_version(&self) -> bool {
        !self.object().listed.etag.is_empty()
    }

    /// Records what a correct answer to it has shown about its server.
    pub(super) fn note_habits(&self) {
        let endpoint = self.server();
        if self.sent.if_match {
            endpoint.habits.note(Habit::ReadsIfMatch);
        } else if self.without_if_match {
            endpoint.note_habit(Habit::MisreadsIfMatch);
        }
        if self.sent.with_checksum {
            endpoint.habits.note(Habit::AcceptsChecksumMode);
        } else if self.shows_refused_checksum()
            && !endpoint.habits.note(Habit::MayRefuseChecksumMode)
        {
            endpoint.note_habit(Habit::RefusesChecksumMode);
        }
        if self.sent.accept_gzip && self.accept_gzip.is_some() {
            endpoint.note_habit(Habit::UnpacksGzip);
        }
    }

    /// True if nothing but the request for a checksum distinguishes the request that was answered
    /// from the one that was refused.
    fn shows_refused_checksum(&self) -> bool {
        let without =
            |refused: OptionalHeaders| OptionalHeaders { with_checksum: false, ..refused };
        self.refused.is_some_and(|it| it.with_checksum && without(it) == self.sent)
    }

    /// A job for this range on another connection, which requests these bytes.
    pub(super) fn for_rest(&self, bytes: ByteRange, attempts: Attempts) -> Self {
        Self {
            elsewhere: self.elsewhere.clone(),
            is_redirected: self.is_redirected,
            without_if_match: self.without_if_match,
            without_checksum: self.without_checksum,
            refused: self.refused,
            accept_gzip: self.accept_gzip,
            ..Self::new((self.into.of_rival(), self.endpoint), bytes, self.range, attempts)
        }
    }

    /// Like [`Self::for_rest`], for a retry, with what earlier attempts have shown.
    pub(super) fn for_next_try(&self, bytes: ByteRange, attempts: Attempts) -> Self {
        Self {
            moves: self.moves,
            last_failure: self.last_failure,
            alike: self.alike,
            failed_at: self.failed_at.clone(),
            mismatch: self.mismatch,
            other_than: self.other_than,
            ..self.for_rest(bytes, attempts)
        }
    }

    /// Records why an attempt failed; true if the server keeps sending the same wrong answer.
    pub(super) fn note_failure(&mut self, failure: Failure) -> bool {
        let is_alike = self.last_failure.replace(failure) == Some(failure);
        let before = std::mem::replace(&mut self.failed_at, self.elsewhere.clone());
        let is_there_again = self.elsewhere.as_ref().zip(before).is_some_and(|(now, before)| {
            self.is_redirected && Arc::ptr_eq(&now.endpoint, &before.endpoint)
        });
        self.has_failed_there_again = is_alike && is_there_again;
        self.alike = if is_alike { self.alike + 1 } else { 1 };
        failure.is_of_server() && self.alike >= ALIKE_TRIES_MAX
    }

    /// How many attempts in a row have failed in the same way.
    pub(super) const fn alike(&self) -> u32 {
        self.alike
    }

    /// Records that a whole body from this address was wrong; true if a retry cannot help: another
    /// address sent the same bytes, or there is none. Otherwise the retry uses another address,
    /// because one node, or a cache in front of it, may send the same wrong bytes each time.
    pub(super) fn note_mismatch(&mut self, mismatch: Mismatch, from: SocketAddr) -> bool {
        let before = self.mismatch.replace((mismatch, from));
        let alike = before.filter(|(before, _)| *before == mismatch);
        self.is_wrong_alike = alike.is_some();
        let has_others = self.server().has_several_addresses();
        self.other_than = Some(from).filter(|_| has_others);
        alike.is_some_and(|(_, sender)| sender != from || !has_others)
    }

    pub(super) fn object(&self) -> &ObjectRef {
        self.into.object()
    }

    /// How its body is received.
    pub(super) fn manner(&self) -> Manner {
        self.into.manner()
    }

    /// The stream that it goes into.
    pub(super) fn flow_mut(&mut self) -> &mut Flow {
        let Route::Stream(_, flow) = &mut self.into else {
            unreachable!("only what goes into a stream is moved")
        };
        flow
    }

    /// True if it waits for the reader of the stream, not for the network.
    pub(super) fn awaits_room(&self) -> bool {
        matches!(self.state, JobState::ForRoom)
    }

    /// The other connection that requested the same range.
    pub(super) fn rival(&self) -> Option<usize> {
        match self.rivalry {
            Rivalry::Alone => None,
            Rivalry::HedgedBy(rival) | Rivalry::HedgeOf(rival) => Some(rival),
        }
    }

    /// A request for it was written.
    pub(super) fn asked(&mut self, now_us: u64, keys_version: u64) {
        self.request = Some(Request { asked_us: now_us, answered_us: None, keys_version });
    }

    /// The head of the answer has arrived; returns how long it took, in microseconds.
    pub(super) fn answered(&mut self, now_us: u64) -> u64 {
        let request = self.request.as_mut().expect("an answer has a request");
        request.answered_us = Some(now_us);
        now_us - request.asked_us
    }

    /// How long its last request has waited for an answer, in microseconds.
    pub(super) fn waited_us(&self, now_us: u64) -> Option<u64> {
        let request = self.request.filter(|request| request.answered_us.is_none())?;
        Some(now_us.saturating_sub(request.asked_us))
    }

    /// Version of the keys that signed its last request.
    pub(super) fn keys_version(&self) -> u64 {
        self.request.map_or(0, |request| request.keys_version)
    }

    /// Times of its last request; `None` if it was not answered.
    pub(super) fn times(&self, now_us: u64) -> Option<RangeTimes> {
        let Request { asked_us, answered_us, .. } = self.request?;
        let answered_us = answered_us?;
        Some(RangeTimes {
            first_byte_us: answered_us.saturating_sub(asked_us),
            body_us: now_us.saturating_sub(answered_us),
            is_first: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::conn::Target;

    const RECEIVE: Action = Action::Receive { target: Target::Data, at: 0, length: 9, fill: false };

    #[test]
    fn what_a_poll_found_is_known_until_an_operation_takes_it() {
        let mut state = JobState::ForBytes(RECEIVE);
        assert!(!state.operation_begins(), "this is the poll");
        assert!(state.is_parked() && state.poll_ended() == RECEIVE && !state.is_parked());
        state.wait_for_slot(RECEIVE, 7);
        assert!(state.is_parked() && state.slot_came() == (RECEIVE, 7) && !state.is_parked());
        assert!(state.operation_begins() && !state.operation_begins());
        state.wait_for_slot(RECEIVE, 8);
        assert_eq!(state.slot_came(), (RECEIVE, 8));
        assert!(!state.operation_begins(), "nobody has looked whether bytes are there");
    }

    #[test]
    fn room_in_a_pipe_says_nothing_of_its_socket() {
        let mut state = JobState::ForRoom;
        assert!(state.is_parked() && matches!(state.poll_ended(), Action::Move { .. }));
        assert!(!state.is_parked() && !state.operation_begins());
    }

    #[test]
    fn a_failure_is_followed_up_once() {
        let mut state = JobState::Failed(AfterFailure::Resume);
        assert!(matches!(state.take_failure(), Some(AfterFailure::Resume)));
        assert!(state.take_failure().is_none());
        let mut waits = JobState::ForBytes(RECEIVE);
        assert!(waits.take_failure().is_none() && waits.is_parked(), "it goes on waiting");
    }
}
