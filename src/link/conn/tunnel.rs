//! Opens a tunnel through a proxy: sends CONNECT, checks its answer, then starts TLS on this
//! socket.
//!
//! This is part of connecting: it shares the deadline, and its failures are the connection's.

use super::{Action, Conn, Errno, Failure, HeadError, State, Target, http};
use crate::limits::{HEAD_BUFFER_BYTES, HEAD_BYTES_MAX, HEAD_RECEIVE_BYTES};

impl Conn {
    /// Sends the CONNECT, which is in the control buffer.
    pub(super) fn tunnel(&mut self, sent: u32, length: u32) {
        if sent < length {
            self.state = State::Tunnel { sent, length };
            self.push(Action::Send { at: sent, length: length - sent });
        } else {
            self.dropped = 0;
            self.tunnel_receive(0);
        }
    }

    fn tunnel_receive(&mut self, filled: u32) {
        self.state = State::TunnelHead { filled };
        let length = (HEAD_BUFFER_BYTES - filled).min(HEAD_RECEIVE_BYTES);
        self.push(Action::Receive { target: Target::Control, at: filled, length, fill: false });
    }

    /// Bytes of the proxy's answer. Whatever length a 2xx answer declares, it has no body (RFC 9110
    /// section 9.3.6); and a server over TLS does not speak first, so nothing may follow it.
    pub(super) fn tunnel_bytes(&mut self, filled: u32, count: u32, buffer: &[u8]) {
        if count == 0 {
            return self.fail(Failure::Connect(Errno::RESET), None);
        }
        self.tunnel_reached(filled + count, buffer);
    }

    /// If the head is longer than its buffer, irrelevant headers are dropped.
    fn tunnel_reached(&mut self, filled: u32, buffer: &[u8]) {
        match http::parse(&buffer[..filled as usize]) {
            _ if self.dropped + filled > HEAD_BYTES_MAX => self.fail(Failure::HeadTooLong, None),
            Ok(None) if filled < HEAD_BUFFER_BYTES => self.tunnel_receive(filled),
            Ok(None) => {
                self.state = State::TunnelHead { filled };
                self.push(Action::DropHeaders { target: Target::Control, filled });
            }
            Ok(Some(head)) if (200..300).contains(&head.status) && head.length == filled => {
                self.state = State::Connecting;
                self.push(Action::Secure);
            }
            Ok(Some(head)) if head.status >= 300 => self.fail(Failure::Proxy(head.status), None),
            Err(HeadError::TooManyHeaders) => self.fail(Failure::TooManyHeaders, None),
            Err(HeadError::TooLong) => self.fail(Failure::HeadTooLong, None),
            _ => self.fail(Failure::BadHead, None),
        }
    }

    /// Headers were dropped; `left` bytes remain.
    pub(super) fn tunnel_dropped(&mut self, filled: u32, left: u32, buffer: &[u8]) {
        self.dropped += filled - left;
        match filled == left {
            true => self.fail(Failure::HeadTooLong, None),
            false => self.tunnel_reached(left, buffer),
        }
    }
}
