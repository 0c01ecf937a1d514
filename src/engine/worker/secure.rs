//! TLS between a connection and the ring: what [`crate::link::conn`] handles as plaintext is sent
//! and received as ciphertext through the connection's own buffer.

use std::sync::Arc;

use super::Worker;
use super::connection::Connection;
use super::link::Link;
use crate::files::host::FileHost;
use crate::limits::{
    RECEIVE_LOW_WATER_BYTES_MAX, RECEIVE_LOW_WATER_BYTES_MIN, STREAM_LOW_WATER_BYTES,
};
use crate::link::conn::{Action, Event, Target};
use crate::link::tls::session::{Fault, Need, Read, Session};
use crate::sys::{Errno, Op, Ring};

/// What the connection waits for while TLS works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Nothing,
    /// The session.
    Handshake,
    /// Its request of this length to be sent.
    Send(u32),
    /// Plaintext.
    Receive { target: Target, at: u32, length: u32 },
    /// More of a body that goes into a pipe.
    Move,
}

/// The security of a connection's socket.
#[derive(Debug)]
pub(super) enum Security {
    /// No TLS, or not yet.
    Plain,
    /// A session, or a handshake.
    On(Secure),
    /// TLS has failed for this reason: the socket is about to be closed.
    Failed(Fault),
}

/// A connection's session. Its buffer belongs to the connection.
#[derive(Debug)]
pub(super) struct Secure {
    session: Session,
    wish: Wish,
}

impl Secure {
    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// The socket is connected: opens a tunnel through the proxy, if there is one.
    pub(super) fn tunnel_or_secure(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(request) = connection.link().endpoint.tunnel_request() else {
            return self.secure_begin(index);
        };
        connection.control.bytes_mut()[..request.len()].copy_from_slice(&request);
        let length = u32::try_from(request.len()).expect("its parts are bounded");
        connection.conn.handle(Event::Tunnel { length });
    }

    /// The socket leads to the server: begins the session.
    pub(super) fn secure_begin(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let length = u32::try_from(connection.cipher.bytes().len()).expect("a slot's length");
        let config = self.tls.as_ref().map(|(config, _)| Arc::clone(config));
        let config = config.expect("a run over TLS has its configuration");
        let link = connection.link_mut();
        match Session::new(config, link.endpoint.server_name(), length) {
            Ok(session) => {
                link.security = Security::On(Secure { session, wish: Wish::Handshake });
                self.secure_go_on(index);
            }
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    /// Sends a request: the control buffer's bytes, encrypted.
    pub(super) fn secure_send(&mut self, index: usize, at: u32, length: u32) {
        let Connection { conn, link, control, cipher, .. } = &mut self.connections[index];
        let secure = Link::secure_mut(link);
        let bytes = &control.bytes()[at as usize..(at + length) as usize];
        match secure.session.write(cipher.bytes_mut(), bytes) {
            Ok(()) => {
                secure.wish = Wish::Send(length);
                self.secure_go_on(index);
            }
            // It was closed before the request: the connection handles that.
            Err(Fault::Ended) => conn.handle(Event::Failed(Errno::RESET)),
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    /// Receives plaintext into the connection's own buffer.
    pub(super) fn secure_receive(&mut self, index: usize, action: Action) {
        let Action::Receive { target, at, length, .. } = action else {
            unreachable!("only called for a receive")
        };
        self.secure(index).wish = Wish::Receive { target, at, length };
        self.secure_go_on(index);
    }

    /// Takes the slot for plaintext, once there is some; false if none is free.
    fn takes_slot(&mut self, index: usize) -> bool {
        let Connection { link, state, .. } = &mut self.connections[index];
        let secure = Link::secure_mut(link);
        let Wish::Receive { target: Target::Data, at, length } = secure.wish else { return true };
        if !secure.session.has_input() || state.job().data.is_some() {
            return true;
        }
        let wish = std::mem::replace(&mut secure.wish, Wish::Nothing);
        let action = Action::Receive { target: Target::Data, at, length, fill: false };
        let Some(slot) = self.slot_for(index, Target::Data, action) else { return false };
        self.connections[index].state.job_mut().data = Some(slot);
        self.secure(index).wish = wish;
        true
    }

    fn secure(&mut self, index: usize) -> &mut Secure {
        Link::secure_mut(&mut self.connections[index].link)
    }

    /// The ring gave the buffer back.
    pub(super) fn secure_done(&mut self, index: usize, op: Op, count: u32) {
        let is_send = matches!(op, Op::Send { .. });
        self.connections[index].take_back(op);
        let session = &mut self.secure(index).session;
        if is_send {
            session.sent(count)
        } else {
            session.received(count)
        }
        self.secure_go_on(index);
    }

    /// Continues until the connection has what it waits for, or the ring has something to do.
    fn secure_go_on(&mut self, index: usize) {
        if matches!(self.secure(index).wish, Wish::Move) {
            self.secure(index).wish = Wish::Nothing;
            return self.move_on(index);
        }
        if !self.takes_slot(index) {
            return;
        }
        let begun_us = self.host.now_us();
        let Connection { link, state, control, cipher, .. } = &mut self.connections[index];
        let Secure { session, wish } = Link::secure_mut(link);
        let (buffer, goal) = (cipher.bytes_mut(), *wish);
        let event = match goal {
            Wish::Nothing | Wish::Move => return,
            Wish::Handshake => session.handshake(buffer).map(|done| done.then_some(Ready::Open)),
            Wish::Send(length) => Ok(session.is_flushed().then_some(Ready::Sent(length))),
            Wish::Receive { target, at, length } => {
                let job = state.job_mut();
                let slot = match target {
                    Target::Control => Some(control.bytes_mut()),
                    Target::Data => job.data.as_deref_mut(),
                };
                let into = slot.map(|slot| &mut slot[at as usize..(at + length) as usize]);
                // Without a slot nothing has arrived yet.
                let read = into.map_or(Ok(Read::More), |into| session.read(buffer, into));
                if at == 0 && read == Ok(Read::More) && target == Target::Data {
                    // Part of a record: others may use the slot until the rest arrives.
                    job.data = None;
                }
                read.map(|read| match read {
                    Read::Bytes(count) => Some(Ready::Received(count)),
                    Read::End => Some(Ready::Received(0)),
                    Read::More => None,
                })
            }
        };
        self.metrics.stages.tls_us += self.host.now_us().saturating_sub(begun_us);
        match event {
            Ok(Some(ready)) => {
                *wish = Wish::Nothing;
                self.secure_report(index, goal, ready);
            }
            Ok(None) => match session.need(buffer) {
                Ok(need) => self.secure_submit(index, need),
                Err(fault) => self.secure_failed(index, fault),
            },
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    fn secure_report(&mut self, index: usize, wish: Wish, ready: Ready) {
        let connection = &mut self.connections[index];
        match (ready, wish) {
            (Ready::Open, _) => connection.conn.handle(Event::Connected),
            (Ready::Sent(length), _) => connection.conn.handle(Event::Sent(length)),
            (Ready::Received(count), Wish::Receive { target, .. }) => {
                let count = u32::try_from(count).expect("at most a slot");
                self.received(index, count, target);
            }
            (Ready::Received(_), _) => unreachable!("only a receive is received"),
        }
    }

    /// Waits for more ciphertext of a body that goes into a pipe.
    pub(super) fn secure_await(&mut self, index: usize) {
        let Connection { link, cipher, .. } = &mut self.connections[index];
        let Secure { session, wish } = Link::secure_mut(link);
        *wish = Wish::Move;
        match session.need(cipher.bytes_mut()) {
            Ok(need) => self.secure_submit(index, need),
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    fn secure_submit(&mut self, index: usize, need: Need) {
        let connection = &mut self.connections[index];
        let (socket, slot) = (connection.link().socket.clone(), connection.cipher.lend());
        match need {
            Need::Send { at, length } => {
                self.submit(index, Op::Send { socket, slot, at, length });
            }
            Need::Receive { at, length } => {
                // This much will surely arrive: a body's ciphertext is longer than the body.
                let held = Link::secure_mut(&mut connection.link).session.held_bytes();
                let surely = connection.conn.body_left().saturating_sub(held as u64);
                let Fill { length, low_water, fill } =
                    Fill::of(length, surely, self.soon_bytes(index));
                self.set_low_water(index, low_water);
                self.submit(index, Op::Receive { socket, slot, at, length, fill });
            }
        }
    }

    pub(super) fn secure_failed(&mut self, index: usize, fault: Fault) {
        let connection = &mut self.connections[index];
        let failure = fault.failure();
        connection.link_mut().security = Security::Failed(fault);
        connection.conn.handle(Event::Fault(failure));
    }
}

/// How ciphertext is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fill {
    /// Most bytes,
    length: u32,
    /// wake-up threshold (SO_RCVLOWAT),
    low_water: u32,
    /// and whether to wait until it is full.
    fill: bool,
}

impl Fill {
    /// The receive into this much room, when `surely` bytes will surely arrive.
    ///
    /// The mark requires as much again beyond the receive, because a tail shorter than the mark
    /// would never wake it. So towards its end a body is received in halves of the rest. The reader
    /// of a stream gets the next `soon` bytes without waiting for more.
    fn of(room: u32, surely: u64, soon: u32) -> Self {
        if soon < RECEIVE_LOW_WATER_BYTES_MIN {
            return Self { length: room, low_water: 1, fill: false };
        }
        let room = if soon < STREAM_LOW_WATER_BYTES { room.min(soon) } else { room };
        let mark = room.min(RECEIVE_LOW_WATER_BYTES_MAX);
        if surely >= u64::from(room) + u64::from(mark) {
            return Self { length: room, low_water: mark, fill: true };
        }
        match u32::try_from(surely / 2) {
            Ok(half) if half >= RECEIVE_LOW_WATER_BYTES_MIN => {
                let length = half.min(room);
                Self { length, low_water: length.min(mark), fill: true }
            }
            _ => Self { length: room, low_water: 1, fill: surely >= u64::from(room) },
        }
    }
}

/// What TLS has done for the connection.
#[derive(Debug, Clone, Copy)]
enum Ready {
    Open,
    Sent(u32),
    Received(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_will_come() {
        let rooms = [20_000, 100_000, 500_000, 1 << 20];
        for room in rooms {
            for surely in (0..3_000_000u64).step_by(997) {
                let soon = [16 << 10, 64 << 10, u32::MAX][(surely % 3) as usize];
                let Fill { length, low_water, fill } = Fill::of(room, surely, soon);
                assert!((1..=room).contains(&length) && (1..=length).contains(&low_water));
                assert!(!fill || surely >= u64::from(length), "{surely} in {room}");
                let waits = low_water > 1;
                assert!(!waits || surely >= u64::from(length) + u64::from(low_water));
            }
            let (mut left, mut receives) = (8u64 << 20, 0);
            while left >= u64::from(2 * RECEIVE_LOW_WATER_BYTES_MIN) {
                left -= u64::from(Fill::of(room, left, u32::MAX).length);
                receives += 1;
            }
            assert!(receives <= (8 << 20) / room + 8, "{receives} of {room}");
        }
    }
}
