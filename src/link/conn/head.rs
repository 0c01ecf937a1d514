//! Receives an answer's head. If it is longer than its buffer, irrelevant headers are dropped.

use super::{Action, Conn, Failure, HeadError, State, http};
use crate::limits::{HEAD_BUFFER_BYTES, HEAD_BYTES_MAX, HEAD_RECEIVE_BYTES, HEAD_ROOM_BYTES};

impl Conn {
    /// Length of the buffer for the head (and, for a small object, the body).
    pub(super) fn head_limit(&self) -> u32 {
        let ask = self.current();
        if self.is_whole() {
            HEAD_ROOM_BYTES + u32::try_from(ask.size).expect("a small object fits a slot")
        } else {
            HEAD_BUFFER_BYTES
        }
    }

    pub(super) fn receive_head(&mut self, filled: u32) {
        let room = self.head_limit() - filled;
        let length = if self.is_whole() { room } else { room.min(HEAD_RECEIVE_BYTES) };
        self.push(Action::Receive { target: self.head_target(), at: filled, length, fill: false });
    }

    pub(super) fn head_bytes(&mut self, filled: u32, count: u32, buffer: &[u8]) {
        if count == 0 {
            let failure = match (filled, self.answers) {
                (0, 0) => Failure::ClosedUnanswered,
                (0, _) => Failure::Stale,
                _ => Failure::Truncated,
            };
            return self.fail(failure, None);
        }
        self.head_reached(filled + count, buffer);
    }

    fn head_reached(&mut self, filled: u32, buffer: &[u8]) {
        let head = match http::parse(&buffer[..filled as usize]) {
            Ok(head) => head,
            Err(HeadError::TooManyHeaders) => return self.fail(Failure::TooManyHeaders, None),
            Err(HeadError::TooLong) => return self.fail(Failure::HeadTooLong, None),
            Err(_) => return self.fail(Failure::BadHead, None),
        };
        let length_min = head.map_or(filled + 1, |head| head.length);
        if self.dropped + length_min > HEAD_BYTES_MAX {
            return self.fail(Failure::HeadTooLong, None);
        }
        // The body of a small object needs the space after that buffer.
        let Some(head) = head.filter(|head| head.length <= HEAD_BUFFER_BYTES) else {
            self.state = State::Head { filled };
            if head.is_none() && filled < self.head_limit() {
                return self.receive_head(filled);
            }
            return self.push(Action::DropHeaders { target: self.head_target(), filled });
        };
        if head.status == 101 {
            // No protocol upgrade was requested; other interim answers are skipped.
            return self.fail(Failure::Interim, None);
        }
        // A body with neither length nor chunks ends with its connection (RFC 9112 section 6.3).
        // With both, a proxy may have found another end.
        self.keep_alive = head.keep_alive && head.content_length.is_some() != head.transfer_encoded;
        self.answers += 1;
        if head.status != 200 && head.status != 206 {
            return self.refused(&head, filled, buffer);
        }
        match self.accept(&head) {
            Ok(skipped) if self.is_chunked() && filled > head.length => {
                let (target, at) = (self.head_target(), head.length);
                self.state = State::WithHead { at, skipped };
                self.push(Action::Decode { target, at, length: filled - at });
            }
            Ok(skipped) => self.body(head.length, skipped, filled, buffer),
            Err(failure) => self.fail(failure, None),
        }
    }

    /// Headers were dropped; `left` bytes remain.
    pub(super) fn head_dropped(&mut self, filled: u32, left: u32, buffer: &[u8]) {
        self.dropped += filled - left;
        match filled == left {
            true => self.fail(Failure::HeadTooLong, None),
            false => self.head_reached(left, buffer),
        }
    }
}
