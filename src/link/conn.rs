//! One connection as a state machine: events go in, the next actions come out.
//!
//! It performs no I/O, reads no clock and holds no bytes: it counts them. Its worker carries out
//! the [`Action`]s on a ring and reports [`Event`]s, one operation at a time. A range stays with
//! its connection through failures: after the next connect it continues from the first byte that
//! was not received.

mod comparison;
mod decoding;
mod head;
mod queries;
mod refusal;
mod tunnel;
mod words;

use crate::limits::{HEAD_BUFFER_BYTES, fits_whole};
use crate::link::failure::Failure;
use crate::link::http::{self, Head, HeadError};
use crate::s3::ByteRange;
use crate::s3::answer::leads_elsewhere;
use crate::sys::Errno;

pub use comparison::Comparison;
use decoding::Framing;
pub use words::{Action, Ask, BufferRange, EtagDigest, Event, Manner, Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Without a socket.
    Closed,
    Connecting,
    /// A proxy has been asked for a tunnel.
    Tunnel {
        sent: u32,
        length: u32,
    },
    /// Bytes of the head of the proxy's answer so far.
    TunnelHead {
        filled: u32,
    },
    /// With a socket and without a request.
    Idle,
    /// The worker writes the request.
    Asking,
    Sending {
        sent: u32,
        length: u32,
    },
    /// Bytes of the answer's head so far.
    Head {
        filled: u32,
    },
    /// Chunks that came with the head are being decoded.
    WithHead {
        /// Their offset in the head's buffer.
        at: u32,
        /// Bytes of the body that were received by earlier attempts.
        skipped: u64,
    },
    /// The start of a whole object that is sent again although a range was requested.
    Skip {
        /// Bytes still to come that were received by earlier attempts.
        left: u64,
    },
    Body {
        /// Body bytes of this answer still to come.
        left: u64,
    },
    /// A piece of a stream's body is in the control buffer and is being moved on.
    Piece {
        /// Bytes of the piece still to be moved.
        count: u32,
        /// Body bytes still to come after it.
        left: u64,
    },
    /// A small object's body, in the slot after its head.
    WholeBody {
        head: u32,
        filled: u32,
    },
    /// A body without a length must end before its last bytes count.
    End {
        /// Offset of the last bytes: in the data slot, or for a stream in the control buffer.
        at: u32,
        count: u32,
        /// Receives that brought only a part of the end.
        receives: u32,
    },
    /// The body of an error answer.
    Refusal {
        status: u16,
        at: u32,
        filled: u32,
        /// Offset of the body's end, if the head declares it.
        end: Option<u32>,
    },
    /// An attempt failed; waits for `resume` or `forget`.
    Failed {
        /// The answer was complete, and the server keeps the connection open.
        is_reusable: bool,
    },
}

/// Most actions that one event can cause: two copies and two deliveries at a slot's border, the
/// end, and a close.
const ACTIONS_MAX: usize = 6;

/// One connection to an origin.
#[derive(Debug)]
pub struct Conn {
    state: State,
    ask: Option<Ask>,
    /// Bytes of the ask that have been received.
    reached: u64,
    slot_length: u32,
    keep_alive: bool,
    /// ETag of the answers to this ask; if none was listed, the first answer's.
    etag: Option<EtagDigest>,
    /// `Last-Modified` of the answers to this ask that have no ETag.
    last_modified: Option<EtagDigest>,
    comparison: Comparison,
    /// What an answer without ETag is, because the server does not compare it.
    without_etag: Option<Failure>,
    /// The request said that gzip is accepted.
    accepts_gzip: bool,
    /// Framing of the current answer's body.
    framing: Framing,
    /// The current answer has a Content-Encoding and not the length of the stored bytes.
    is_encoded: bool,
    /// Bytes dropped from the current head.
    dropped: u32,
    /// Answers received over this socket.
    answers: u64,
    actions: [Option<Action>; ACTIONS_MAX],
    queued: usize,
    taken: usize,
}

impl Conn {
    /// A connection without a socket, whose data slots have `slot_length` bytes.
    #[must_use]
    pub fn new(slot_length: u32) -> Self {
        Self {
            state: State::Closed,
            ask: None,
            reached: 0,
            slot_length,
            keep_alive: false,
            etag: None,
            last_modified: None,
            comparison: Comparison::default(),
            without_etag: None,
            accepts_gzip: false,
            is_encoded: false,
            framing: Framing::Length,
            dropped: 0,
            answers: 0,
            actions: [None; ACTIONS_MAX],
            queued: 0,
            taken: 0,
        }
    }

    /// Starts a request for `ask`.
    ///
    /// # Panics
    /// If there is an ask already, or the range is empty.
    pub fn ask(&mut self, ask: Ask) {
        assert!(self.ask.is_none() && self.is_drained(), "one ask at a time");
        assert!(ask.range.length > 0, "a range has bytes");
        let fits = fits_whole(ask.size, self.slot_length);
        assert!(fits || ask.manner != Manner::Whole, "it fits");
        self.etag = ask.etag;
        self.last_modified = ask.last_modified;
        self.comparison = Comparison::default();
        self.ask = Some(ask);
        self.reached = 0;
        self.start();
    }

    /// Continues with the ask after a failure.
    pub fn resume(&mut self) {
        assert!(self.ask.is_some(), "after a failure");
        self.state = self.after_failure();
        self.start();
    }

    /// Abandons the ask after a failure; the connection can take another.
    pub fn forget(&mut self) {
        self.ask = None;
        self.state = self.after_failure();
    }

    fn after_failure(&self) -> State {
        match self.state {
            State::Failed { is_reusable: true } => State::Idle,
            State::Failed { is_reusable: false } => State::Closed,
            state => unreachable!("{state:?} is no failure"),
        }
    }

    fn start(&mut self) {
        if self.state == State::Closed {
            self.answers = 0;
            self.state = State::Connecting;
            self.push(Action::Connect);
        } else {
            assert!(self.state == State::Idle, "a free connection is closed or idle");
            self.request();
        }
    }

    /// Resets the connection at once: its ask, its actions, its socket. Only without an operation
    /// in flight.
    pub fn reset(&mut self) {
        *self = Self::new(self.slot_length);
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<Action> {
        if self.is_drained() {
            self.queued = 0;
            self.taken = 0;
            return None;
        }
        let action = self.actions[self.taken].take();
        self.taken += 1;
        action
    }

    fn push(&mut self, action: Action) {
        self.actions[self.queued] = Some(action);
        self.queued += 1;
    }

    fn is_whole(&self) -> bool {
        self.current().manner == Manner::Whole
    }

    fn current(&self) -> Ask {
        self.ask.expect("this state has an ask")
    }

    /// Processes an event.
    ///
    /// # Panics
    /// If the event does not belong to the state: no such operation was requested.
    pub fn handle(&mut self, event: Event<'_>) {
        assert!(self.is_drained(), "all actions are taken before the next event");
        self.queued = 0;
        self.taken = 0;
        match (self.state, event) {
            (_, Event::Expired) => self.expired(),
            (State::Body { left }, Event::Cut(count)) if !self.is_chunked() => {
                self.cut(left, count);
            }
            (_, Event::Cut(_)) => self.expired(),
            (_, Event::Fault(failure)) => self.fail(failure, None),
            (state, Event::Failed(errno)) => self.broken(state, errno),
            (State::Connecting, Event::Connected) => self.request(),
            (State::Connecting, Event::Tunnel { length }) => self.tunnel(0, length),
            (State::Tunnel { sent, length }, Event::Sent(count)) => {
                self.tunnel(sent + count, length);
            }
            (State::TunnelHead { filled }, Event::Received(count, buffer)) => {
                self.tunnel_bytes(filled, count, buffer);
            }
            (State::TunnelHead { filled }, Event::Dropped(left, buffer)) => {
                self.tunnel_dropped(filled, left, buffer);
            }
            (State::Asking, Event::Written { length }) => {
                self.state = State::Sending { sent: 0, length };
                self.push(Action::Send { at: 0, length });
            }
            (State::Sending { sent, length }, Event::Sent(count)) => {
                self.sent(sent + count, length);
            }
            (State::Head { filled }, Event::Received(count, buffer)) => {
                self.head_bytes(filled, count, buffer);
            }
            (State::Head { filled }, Event::Dropped(left, buffer)) => {
                self.head_dropped(filled, left, buffer);
            }
            (state, Event::Received(count, _)) if self.is_in_chunks(state) => {
                self.decode_came(count)
            }
            (state, Event::Decoded(count, buffer)) => self.decoded(state, count, buffer),
            (State::Skip { left }, Event::Received(count, _)) => self.skip_bytes(left, count),
            (State::Body { left }, Event::Received(count, _)) => self.body_bytes(left, count),
            (State::Body { left }, Event::Moved(count)) => self.moved(left, count),
            (State::Piece { count, left }, Event::Moved(moved)) => {
                self.piece_moved(count, left, moved);
            }
            (State::End { at, count, .. }, Event::Received(more, _)) => self.ended(at, count, more),
            (State::WholeBody { head, filled }, Event::Received(count, buffer)) => {
                self.whole_bytes(head, filled, count, buffer);
            }
            (State::Refusal { .. }, Event::Received(count, buffer)) => {
                self.refusal_bytes(count, buffer);
            }
            (state, event) => unreachable!("{event:?} in {state:?}"),
        }
    }

    fn cut(&mut self, left: u64, count: u32) {
        if u64::from(count) == left {
            return self.body_bytes(left, count);
        }
        self.reached += u64::from(count);
        if count > 0 {
            self.deliver_if_full();
        }
        self.expired();
    }

    fn expired(&mut self) {
        let failure = match self.state {
            _ if self.is_connecting() => Failure::ConnectTimeout,
            State::Sending { .. } | State::Head { .. } => Failure::FirstByteTimeout,
            State::Refusal { status, .. } if !leads_elsewhere(status) => Failure::Status(status),
            _ => Failure::Stall,
        };
        self.fail(failure, None);
    }

    fn broken(&mut self, state: State, errno: Errno) {
        let failure = match state {
            _ if self.is_connecting() => Failure::Connect(errno),
            State::Sending { .. } | State::Head { filled: 0 } if self.answers > 0 => Failure::Stale,
            State::Sending { .. } | State::Head { filled: 0 } => Failure::BrokenUnanswered(errno),
            State::Refusal { status, .. } if !leads_elsewhere(status) => Failure::Status(status),
            _ => Failure::Broken(errno),
        };
        self.fail(failure, None);
    }

    fn fail(&mut self, failure: Failure, body: Option<BufferRange>) {
        let failure = self.of_encoding(failure);
        if self.is_whole() {
            self.reached = 0;
        }
        self.state = State::Failed { is_reusable: false };
        self.push(Action::Fail { failure, body });
        self.push(Action::Close);
    }

    fn request(&mut self) {
        let ask = self.current();
        self.state = State::Asking;
        let whole = ask.check.is_some() && self.reached == 0 && ask.range.length == ask.size;
        let ranged = ask.manner != Manner::Whole && !whole;
        self.push(Action::Write(ranged.then(|| ByteRange {
            offset: ask.range.offset + self.reached,
            length: ask.range.length - self.reached,
        })));
    }

    fn sent(&mut self, sent: u32, length: u32) {
        if sent < length {
            self.state = State::Sending { sent, length };
            self.push(Action::Send { at: sent, length: length - sent });
        } else {
            self.state = State::Head { filled: 0 };
            self.dropped = 0;
            self.receive_head(0);
        }
    }

    pub(super) fn head_target(&self) -> Target {
        if self.is_whole() { Target::Data } else { Target::Control }
    }

    /// Checks that an answer matches the request; returns the bytes of its body that were received
    /// before, over whichever connection. If the server ignores ranges, the rest of the whole
    /// object follows them.
    fn accept(&mut self, head: &Head<'_>) -> Result<u64, Failure> {
        let ask = self.current();
        let first = ask.range.offset + self.reached;
        let expected = ask.range.length - self.reached;
        let is_right = |range: http::ContentRange| {
            range.first == first
                && range.last == first + expected - 1
                && range.size.is_none_or(|size| size == ask.size)
        };
        // An object that is stored compressed is sent as it is, with this header and its length.
        let stored = [Some(expected), Some(ask.size)];
        self.is_encoded = head.content_encoded && !stored.contains(&head.content_length);
        let skipped = match (head.content_range, head.status) {
            (None, 200) if ask.range.length == ask.size || ask.is_whole_only => first,
            (Some(range), 206) if is_right(range) => 0,
            // The object was replaced, and its listing has no ETag.
            (Some(http::ContentRange { first: begin, size: Some(size), .. }), 206)
                if begin == first && size != ask.size =>
            {
                return Err(Failure::OtherLength);
            }
            (None, 200) => return Err(Failure::WholeAnswer),
            _ => return Err(Failure::WrongRange),
        };
        self.framing = self.framing_of(head, skipped + expected)?;
        let seen = head.etag.map(EtagDigest::of);
        let modified = head.last_modified.map(EtagDigest::of);
        let is_comparable = match (self.etag, seen) {
            (None, None) => self.last_modified.is_some() && modified.is_some(),
            (known, seen) => known.is_some() && seen.is_some(),
        };
        if skipped > 0 && !is_comparable {
            return Err(Failure::Unversioned);
        }
        if let (Some(check), true) = (ask.check, expected == ask.size) {
            self.comparison.hear(check, head);
        }
        if seen.is_none() {
            if self.last_modified.zip(modified).is_some_and(|(known, seen)| known != seen) {
                return Err(Failure::WrongEtag);
            }
            self.last_modified = self.last_modified.or(modified);
        }
        match (self.etag, seen, self.without_etag) {
            (Some(known), Some(seen), _) if known != seen => Err(Failure::WrongEtag),
            (Some(_), None, Some(failure)) => Err(failure),
            (known, seen, _) => {
                self.etag = known.or(seen);
                Ok(skipped)
            }
        }
    }

    /// Begins the body, which starts at this byte of the head's buffer.
    fn body(&mut self, begin: u32, skipped: u64, filled: u32, buffer: &[u8]) {
        let ask = self.current();
        let came = u64::from(filled - begin);
        let left = ask.range.length - self.reached;
        if came > skipped + left {
            return self.fail_length(Failure::WrongLength);
        }
        if came < skipped {
            return self.skip(skipped - came);
        }
        let mut from = begin + u32::try_from(skipped).expect("at most what came");
        let beyond = came - skipped;
        match ask.manner {
            Manner::Slots => {}
            // A repeated request starts at the first byte: nothing is skipped.
            Manner::Whole => return self.whole_bytes_reached(begin, filled, buffer),
            Manner::Stream if self.is_chunked() => return self.piece(from, filled - from, left),
            Manner::Stream => {
                self.state = State::Body { left };
                return self.push(Action::Move { from, length: filled - from });
            }
        }
        while from < filled {
            let to = self.slot_position();
            let length = (filled - from).min(self.slot_length - to);
            self.push(Action::Copy { from, to, length });
            if self.is_last(length) {
                return self.await_end(to, length);
            }
            self.reached += u64::from(length);
            from += length;
            self.deliver_if_full();
        }
        self.go_on(left - beyond);
    }

    /// Receives bytes that were received before into the control buffer, and discards them.
    fn skip(&mut self, left: u64) {
        if self.has_ended() {
            return self.fail_length(Failure::Truncated);
        }
        self.state = State::Skip { left };
        let length = u32::try_from(left).unwrap_or(u32::MAX).min(HEAD_BUFFER_BYTES);
        self.push(Action::Receive { target: Target::Control, at: 0, length, fill: false });
    }

    fn skip_bytes(&mut self, left: u64, count: u32) {
        match left - u64::from(count) {
            _ if count == 0 => self.fail(Failure::Truncated, None),
            0 if self.current().manner == Manner::Stream => {
                let left = self.current().range.length - self.reached;
                if self.is_chunked() {
                    return self.piece(0, 0, left);
                }
                self.state = State::Body { left };
                self.push(Action::Move { from: 0, length: 0 });
            }
            0 => self.go_on(self.current().range.length - self.reached),
            left => self.skip(left),
        }
    }

    /// Position of the next body byte within the data slot.
    fn slot_position(&self) -> u32 {
        u32::try_from(self.reached % u64::from(self.slot_length)).expect("below a slot's length")
    }

    /// Delivers the slot when it is full or the ask is complete.
    fn deliver_if_full(&mut self) {
        let ask = self.current();
        let position = self.slot_position();
        let length = match (position, self.reached == ask.range.length) {
            (0, _) => self.slot_length,
            (position, true) => position,
            _ => return,
        };
        let offset = ask.range.offset + self.reached - u64::from(length);
        self.push(Action::Deliver { at: 0, length, offset });
    }

    fn go_on(&mut self, left: u64) {
        if left == 0 {
            return self.finish();
        }
        if self.has_ended() {
            return self.fail_length(Failure::Truncated);
        }
        self.state = State::Body { left };
        let at = self.slot_position();
        let room = u64::from(self.slot_length - at);
        let length = u32::try_from(left.min(room)).expect("at most a slot");
        // The last chunk may come before that many bytes.
        let fill = !self.is_chunked();
        self.push(Action::Receive { target: Target::Data, at, length, fill });
    }

    fn body_bytes(&mut self, left: u64, count: u32) {
        if count == 0 {
            return self.fail(Failure::Truncated, None);
        }
        if self.is_last(count) {
            return self.await_end(self.slot_position(), count);
        }
        self.reached += u64::from(count);
        self.deliver_if_full();
        self.go_on(left - u64::from(count));
    }

    fn moved(&mut self, left: u64, count: u64) {
        assert!(count <= left, "no more is moved than the answer has");
        self.reached += count;
        self.state = State::Body { left: left - count };
        match (count, left - count) {
            (0, _) => self.fail(Failure::Truncated, None),
            (_, 0) => self.finish(),
            _ => {}
        }
    }

    fn whole_bytes(&mut self, head: u32, filled: u32, count: u32, buffer: &[u8]) {
        if count == 0 {
            return self.fail(Failure::Truncated, None);
        }
        self.whole_bytes_reached(head, filled + count, buffer);
    }

    fn whole_bytes_reached(&mut self, head: u32, filled: u32, buffer: &[u8]) {
        let size = u32::try_from(self.current().size).expect("a small object fits a slot");
        let end = head + size;
        if filled < end && self.has_ended() {
            self.fail_length(Failure::Truncated);
        } else if filled < end {
            self.state = State::WholeBody { head, filled };
            let (length, fill) = (end - filled, !self.is_chunked());
            self.push(Action::Receive { target: Target::Data, at: filled, length, fill });
        } else if let Err(failure) = self.comparison.compare(&buffer[head as usize..end as usize]) {
            self.fail(failure, None);
        } else if self.is_last(size) {
            self.await_end(head, size);
        } else {
            self.reached = u64::from(size);
            self.push(Action::Deliver { at: head, length: size, offset: 0 });
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.ask = None;
        self.push(Action::Finished);
        self.rest();
    }

    /// After a complete answer: idle if the server keeps the connection open, else closed.
    fn rest(&mut self) {
        if self.keep_alive {
            self.state = State::Idle;
        } else {
            self.state = State::Closed;
            self.push(Action::Close);
        }
    }
}

#[cfg(test)]
#[path = "conn_tests.rs"]
mod tests;
