//! Finds the end of bodies without a length, and decodes chunked ones.

use super::{Action, Conn, Failure, Manner, State, Target};
use crate::limits::{CHUNK_END_RECEIVES_MAX, HEAD_BUFFER_BYTES};
use crate::link::chunks::Chunks;
use crate::link::http::Head;

/// Bytes of the control buffer reserved after a piece of a stream, for the end of the last chunk.
const END_BYTES: u32 = 64;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length.
    Length,
    /// At the connection's end.
    Connection,
    /// After its last chunk; the decoder's state.
    Chunks(Chunks),
}

impl Conn {
    /// The framing of a body of `length` bytes, as far as the head can be trusted.
    pub(super) fn framing_of(&self, head: &Head<'_>, length: u64) -> Result<Framing, Failure> {
        let manner = self.current().manner;
        let is_whole_answer = head.content_range.is_none();
        if head.transfer_encoded {
            // A body that is compressed or decompressed on the way has another length, which shows
            // only at its end. A small object is held until then, and a file is not published; a
            // stream's reader would already have the bytes.
            let is_sure = match manner {
                Manner::Whole => true,
                Manner::Slots => !is_whole_answer || self.accepts_gzip && !head.content_encoded,
                Manner::Stream => !is_whole_answer,
            };
            let is_decoded = head.is_chunked && is_sure;
            return is_decoded.then_some(Framing::Chunks(Chunks::BEGIN)).ok_or(Failure::Chunked);
        }
        // A range without a length is as long as Content-Range declares. A whole object may be
        // longer than listed, which must be known before the end.
        match head.content_length {
            Some(is) if is == length => Ok(Framing::Length),
            None if !is_whole_answer => Ok(Framing::Length),
            None if manner != Manner::Stream => Ok(Framing::Connection),
            _ => Err(Failure::WrongLength),
        }
    }

    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.framing, Framing::Chunks(_))
    }

    fn is_chunked_stream(&self) -> bool {
        self.is_chunked() && self.ask.is_some_and(|ask| ask.manner == Manner::Stream)
    }

    /// True if the bytes received in this state are chunked.
    pub(super) fn is_in_chunks(&self, state: State) -> bool {
        let is_body = matches!(
            state,
            State::Skip { .. } | State::Body { .. } | State::WholeBody { .. } | State::End { .. }
        );
        is_body && self.is_chunked()
    }

    /// True when the last chunk has come.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.framing, Framing::Chunks(chunks) if chunks.is_complete())
    }

    /// True if no byte of the ask was delivered.
    pub(super) fn is_unused(&self) -> bool {
        match self.current().manner {
            Manner::Whole => true,
            Manner::Slots => self.reached < u64::from(self.slot_length),
            Manner::Stream => self.reached == 0,
        }
    }

    /// The failure of an answer whose encoding may have caused it.
    pub(super) fn of_encoding(&mut self, failure: Failure) -> Failure {
        match failure {
            _ if !self.is_encoded => failure,
            Failure::WrongLength | Failure::WholeAnswer | Failure::Chunked => Failure::Encoded,
            // Nothing shows whether such a body is cut off or compressed: none of it may count.
            Failure::Truncated if !self.is_chunked() && self.is_unused() => {
                self.reached = 0;
                Failure::Encoded
            }
            Failure::Truncated if !self.is_chunked() => Failure::OtherLength,
            failure => failure,
        }
    }

    /// Fails because the body's length is not the requested one. If none of its bytes are used yet,
    /// all are discarded, and another try may bring the right ones.
    pub(super) fn fail_length(&mut self, otherwise: Failure) {
        let is_unused = self.is_unused();
        let failure = match self.framing {
            Framing::Length => otherwise,
            _ if !is_unused => Failure::OtherLength,
            Framing::Connection => Failure::WrongLength,
            Framing::Chunks(_) => Failure::Chunked,
        };
        if is_unused && self.framing != Framing::Length {
            self.reached = 0;
        }
        self.fail(failure, None);
    }

    /// True if these are the last bytes of a body whose end has not come.
    pub(super) fn is_last(&self, count: u32) -> bool {
        let reached = self.reached + u64::from(count);
        let awaits_end = self.framing != Framing::Length && !self.has_ended();
        awaits_end && reached == self.current().range.length
    }

    /// Waits for the end after the last bytes, which are in the data slot, or for a stream in the
    /// control buffer.
    pub(super) fn await_end(&mut self, at: u32, count: u32) {
        let receives = match self.state {
            State::End { receives, .. } => receives + 1,
            _ => 0,
        };
        if receives > CHUNK_END_RECEIVES_MAX {
            return self.fail(Failure::BadChunks, None);
        }
        self.state = State::End { at, count, receives };
        let at = if self.current().manner == Manner::Stream { at + count } else { 0 };
        let length = if self.is_chunked() { HEAD_BUFFER_BYTES - at } else { 1 };
        self.push(Action::Receive { target: Target::Control, at, length, fill: false });
    }

    pub(super) fn ended(&mut self, at: u32, count: u32, more: u32) {
        if more > 0 {
            return self.fail_length(Failure::WrongLength);
        }
        if self.current().manner == Manner::Stream {
            return self.piece(at, count, u64::from(count));
        }
        self.reached += u64::from(count);
        match self.is_whole() {
            true => self.push(Action::Deliver { at, length: count, offset: 0 }),
            false => self.deliver_if_full(),
        }
        self.finish();
    }

    /// Moves the body bytes of received chunks to the front; returns their number.
    ///
    /// # Panics
    /// Unless [`Action::Decode`] requested it.
    pub fn decode(&mut self, bytes: &mut [u8]) -> u32 {
        let Framing::Chunks(chunks) = &mut self.framing else { unreachable!("it comes in chunks") };
        chunks.decode(bytes)
    }

    /// Chunked bytes were received where this state receives them.
    pub(super) fn decode_came(&mut self, length: u32) {
        if length == 0 {
            return self.fail(Failure::Truncated, None);
        }
        let is_stream = self.is_chunked_stream();
        let (target, at) = match self.state {
            State::Body { .. } if is_stream => (Target::Control, 0),
            State::Body { .. } => (Target::Data, self.slot_position()),
            State::WholeBody { filled, .. } => (Target::Data, filled),
            State::End { at, count, .. } if is_stream => (Target::Control, at + count),
            _ => (Target::Control, 0),
        };
        self.push(Action::Decode { target, at, length });
    }

    /// Continues after a decode that found `count` body bytes.
    pub(super) fn decoded(&mut self, state: State, count: u32, buffer: &[u8]) {
        if matches!(self.framing, Framing::Chunks(chunks) if chunks.is_damaged()) {
            return self.fail(Failure::BadChunks, None);
        }
        let is_stream = self.is_chunked_stream();
        match state {
            State::WithHead { at, skipped } => self.body(at, skipped, at + count, buffer),
            State::Skip { left } if count == 0 => self.skip(left),
            State::Skip { left } => self.skip_bytes(left, count),
            State::Body { left } if is_stream => self.piece(0, count, left),
            State::Body { left } if count == 0 => self.go_on(left),
            State::Body { left } => self.body_bytes(left, count),
            State::WholeBody { head, filled } => {
                self.whole_bytes_reached(head, filled + count, buffer);
            }
            State::End { at, count: last, .. } if count == 0 && !self.has_ended() => {
                self.await_end(at, last);
            }
            State::End { at, count: last, .. } => self.ended(at, last, count),
            state => unreachable!("nothing is decoded in {state:?}"),
        }
    }

    /// Moves on a piece of a stream from the control buffer, with `left` bytes of the body still to
    /// come; the last piece only once the body's end has come.
    pub(super) fn piece(&mut self, from: u32, count: u32, left: u64) {
        if u64::from(count) > left || u64::from(count) < left && self.has_ended() {
            self.fail_length(Failure::WrongLength);
        } else if count == 0 {
            self.state = State::Body { left };
            let length = HEAD_BUFFER_BYTES - END_BYTES;
            self.push(Action::Receive { target: Target::Control, at: 0, length, fill: false });
        } else if self.is_last(count) {
            self.await_end(from, count);
        } else {
            self.state = State::Piece { count, left: left - u64::from(count) };
            self.push(Action::Move { from, length: count });
        }
    }

    pub(super) fn piece_moved(&mut self, count: u32, left: u64, moved: u64) {
        let moved = u32::try_from(moved).ok().filter(|moved| *moved <= count);
        let moved = moved.expect("no more is moved than the piece has");
        self.reached += u64::from(moved);
        match count - moved {
            0 if left == 0 => self.finish(),
            0 => self.piece(0, 0, left),
            count => self.state = State::Piece { count, left },
        }
    }
}
