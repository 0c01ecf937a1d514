//! Reads the body of an error answer, as much of it as explains the error.

use super::{Action, BufferRange, Conn, Failure, State};
use crate::limits::REFUSAL_BYTES_MAX;
use crate::link::http::Head;
use crate::s3::answer::leads_elsewhere;

impl Conn {
    pub(super) fn refused(&mut self, head: &Head<'_>, filled: u32, buffer: &[u8]) {
        let is_bodiless = matches!(head.status, 204 | 304);
        let end = head
            .content_length
            .filter(|_| !head.transfer_encoded)
            // These never have a body, whatever their headers say (RFC 9112 section 6.3).
            .filter(|_| !is_bodiless)
            .or(is_bodiless.then_some(0))
            .map(|length| u64::from(head.length) + length)
            .and_then(|end| u32::try_from(end).ok());
        self.state = State::Refusal { status: head.status, at: head.length, filled, end };
        self.refusal_reached(buffer);
    }

    pub(super) fn refusal_bytes(&mut self, count: u32, buffer: &[u8]) {
        let State::Refusal { status, at, filled, end } = self.state else {
            unreachable!("only called in this state")
        };
        let filled = filled + count;
        // The stream's end ends a body without a length.
        let end = if count == 0 { Some(filled) } else { end };
        self.state = State::Refusal { status, at, filled, end };
        self.refusal_reached(buffer);
    }

    /// Continues reading until the error body is complete or long enough to explain the error.
    fn refusal_reached(&mut self, buffer: &[u8]) {
        let State::Refusal { status, at, filled, end } = self.state else {
            unreachable!("only called in this state")
        };
        let limit = self.head_limit().min(at + REFUSAL_BYTES_MAX);
        let stop = end.unwrap_or(limit).min(limit);
        let chunked_end = buffer[at as usize..filled as usize].ends_with(b"0\r\n\r\n");
        if filled < stop && !(end.is_none() && chunked_end) {
            let target = self.head_target();
            let length = stop - filled;
            return self.push(Action::Receive { target, at: filled, length, fill: false });
        }
        let length = filled.min(stop) - at;
        let piece = BufferRange { target: self.head_target(), at, length };
        let failure = Failure::Status(status);
        // A server that asks for fewer requests should not have to accept new connections, too; one
        // that leads elsewhere gets the request of the next range.
        let is_complete = end == Some(filled) && filled == stop;
        let is_usual = failure.is_overload() || leads_elsewhere(status);
        if is_usual && is_complete && self.keep_alive {
            self.state = State::Failed { is_reusable: true };
            return self.push(Action::Fail { failure, body: Some(piece) });
        }
        self.fail(failure, Some(piece));
    }
}
