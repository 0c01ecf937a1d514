//! TLS between a connection and the ring: what [`crate::conn`] asks for as plaintext is sent and
//! received as ciphertext through the connection's own buffer.

use std::sync::Arc;

use super::Worker;
use crate::conn::{Action, Event, Target};
use crate::host::FileHost;
use crate::limits::{RECEIVE_LOW_WATER_BYTES_MAX, RECEIVE_LOW_WATER_BYTES_MIN};
use crate::sys::{Errno, Op, Ring, Slot};
use crate::tls::session::{Fault, Need, Read, Session};

/// What the connection waits for, while TLS does its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Nothing,
    /// The session.
    Handshake,
    /// That its request of this length is on the wire.
    Send(u32),
    /// Plaintext.
    Receive { target: Target, at: u32, length: u32 },
}

/// A connection's session and the buffer under it.
#[derive(Debug)]
pub(super) struct Secure {
    session: Option<Session>,
    /// The buffer, when the kernel has it not.
    buffer: Option<Slot>,
    wish: Wish,
    /// What went wrong last, for the error.
    pub(super) fault: Option<Fault>,
}

impl Secure {
    /// A seat with its buffer.
    pub(super) fn new(buffer: Slot) -> Self {
        Self { session: None, buffer: Some(buffer), wish: Wish::Nothing, fault: None }
    }

    /// True while there is a session, or one is being made.
    pub(super) fn is_on(&self) -> bool {
        self.session.is_some()
    }

    /// Forgets the session, with the socket that it was on.
    pub(super) fn hang_up(&mut self) {
        self.session = None;
        self.wish = Wish::Nothing;
    }

    /// Takes the buffer back from an operation.
    pub(super) fn put_back(&mut self, slot: Slot) {
        self.buffer = Some(slot);
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// The socket is connected: a proxy must lead on first, where there is one.
    pub(super) fn tunnel_or_secure(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let endpoint = lane.endpoint.as_ref().expect("connected");
        let Some(request) = endpoint.tunnel_request() else {
            return self.secure_begin(index);
        };
        let control = lane.control.as_mut().expect("not in flight");
        control[..request.len()].copy_from_slice(&request);
        let length = u32::try_from(request.len()).expect("its parts are bounded");
        lane.conn.handle(Event::Tunnel { length });
    }

    /// The socket leads to the server: the session comes next.
    pub(super) fn secure_begin(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let endpoint = lane.endpoint.clone().expect("connected");
        let secure = lane.secure.as_mut().expect("a run over TLS has a seat for it");
        let buffer = secure.buffer.as_ref().expect("not in flight");
        let length = u32::try_from(buffer.len()).expect("a slot's length");
        let config = self.tls.as_ref().map(|(config, _)| Arc::clone(config));
        let config = config.expect("a run over TLS has its configuration");
        match Session::new(config, endpoint.server_name(), length) {
            Ok(session) => {
                secure.session = Some(session);
                secure.wish = Wish::Handshake;
                self.secure_go_on(index);
            }
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    /// Sends a request: the control buffer's bytes, encrypted.
    pub(super) fn secure_send(&mut self, index: usize, at: u32, length: u32) {
        let lane = &mut self.lanes[index];
        let control = lane.control.as_ref().expect("not in flight");
        let secure = lane.secure.as_mut().expect("it has a session");
        let buffer = secure.buffer.as_mut().expect("not in flight");
        let session = secure.session.as_mut().expect("it has a session");
        let bytes = &control[at as usize..(at + length) as usize];
        match session.write(buffer, bytes) {
            Ok(()) => {
                secure.wish = Wish::Send(length);
                self.secure_go_on(index);
            }
            // It was closed before the request: the connection knows what that means.
            Err(Fault::Ended) => lane.conn.handle(Event::Failed(Errno::RESET)),
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    /// Receives plaintext into the connection's own buffer.
    pub(super) fn secure_receive(&mut self, index: usize, action: Action) {
        let Action::Receive { target, at, length, .. } = action else {
            unreachable!("only called for a receive")
        };
        let lane = &mut self.lanes[index];
        let secure = lane.secure.as_mut().expect("it has a session");
        secure.wish = Wish::Receive { target, at, length };
        self.secure_go_on(index);
    }

    /// Takes the slot that plaintext goes to, once there is some; false when none is free.
    fn takes_slot(&mut self, index: usize) -> bool {
        let lane = &mut self.lanes[index];
        let secure = lane.secure.as_mut().expect("it has a session");
        let has_input = secure.session.as_ref().is_some_and(Session::has_input);
        let Wish::Receive { target: Target::Data, at, length } = secure.wish else { return true };
        if !has_input || lane.data.is_some() {
            return true;
        }
        let wish = std::mem::replace(&mut secure.wish, Wish::Nothing);
        let action = Action::Receive { target: Target::Data, at, length, fill: false };
        let Some(slot) = self.slot_for(index, Target::Data, action) else { return false };
        let lane = &mut self.lanes[index];
        lane.data = Some(slot);
        lane.secure.as_mut().expect("it has a session").wish = wish;
        true
    }

    /// The ring gave the buffer back.
    pub(super) fn secure_done(&mut self, index: usize, op: Op, count: u32) {
        let lane = &mut self.lanes[index];
        let secure = lane.secure.as_mut().expect("it has a session");
        let is_send = matches!(op, Op::Send { .. });
        if let Some(slot) = op.into_slot() {
            secure.put_back(slot);
        }
        let session = secure.session.as_mut().expect("it has a session");
        if is_send {
            session.sent(count)
        } else {
            session.received(count)
        }
        self.secure_go_on(index);
    }

    /// Goes on until the connection has what it waits for, or the ring has something to do.
    fn secure_go_on(&mut self, index: usize) {
        if !self.takes_slot(index) {
            return;
        }
        let lane = &mut self.lanes[index];
        let secure = lane.secure.as_mut().expect("it has a session");
        let buffer = secure.buffer.as_mut().expect("not in flight");
        let session = secure.session.as_mut().expect("it has a session");
        let wish = secure.wish;
        let event = match wish {
            Wish::Nothing => return,
            Wish::Handshake => session.handshake(buffer).map(|done| done.then_some(Ready::Open)),
            Wish::Send(length) => Ok(session.is_flushed().then_some(Ready::Sent(length))),
            Wish::Receive { target, at, length } => {
                let slot = match target {
                    Target::Control => &mut lane.control,
                    Target::Data => &mut lane.data,
                };
                let into = slot.as_mut().map(|slot| &mut slot[at as usize..(at + length) as usize]);
                // Without a slot nothing has come yet.
                let read = into.map_or(Ok(Read::More), |into| session.read(buffer, into));
                if at == 0 && read == Ok(Read::More) && target == Target::Data {
                    // Part of a record: others may use the slot until the rest of it is there.
                    lane.data = None;
                }
                read.map(|read| match read {
                    Read::Bytes(count) => Some(Ready::Received(count)),
                    Read::End => Some(Ready::Received(0)),
                    Read::More => None,
                })
            }
        };
        match event {
            Ok(Some(ready)) => {
                secure.wish = Wish::Nothing;
                self.secure_tell(index, wish, ready);
            }
            Ok(None) => match session.need(buffer) {
                Ok(need) => self.secure_submit(index, need),
                Err(fault) => self.secure_failed(index, fault),
            },
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    fn secure_tell(&mut self, index: usize, wish: Wish, ready: Ready) {
        let lane = &mut self.lanes[index];
        match (ready, wish) {
            (Ready::Open, _) => lane.conn.handle(Event::Connected),
            (Ready::Sent(length), _) => lane.conn.handle(Event::Sent(length)),
            (Ready::Received(count), Wish::Receive { target, .. }) => {
                let count = u32::try_from(count).expect("at most a slot");
                self.received(index, count, target);
            }
            (Ready::Received(_), _) => unreachable!("only a receive is received"),
        }
    }

    fn secure_submit(&mut self, index: usize, need: Need) {
        let lane = &mut self.lanes[index];
        let socket = lane.socket.clone().expect("connected");
        let secure = lane.secure.as_mut().expect("it has a session");
        let slot = secure.buffer.take().expect("not in flight");
        match need {
            Need::Send { at, length } => {
                self.submit(index, Op::Send { socket, slot, at, length });
            }
            Need::Receive { at, length } => {
                // So much will surely come: a body's ciphertext is longer than the body.
                let held = secure.session.as_ref().map_or(0, Session::held_bytes);
                let surely = lane.conn.body_left().saturating_sub(held as u64);
                let Fill { length, low_water, fill } = Fill::of(length, surely);
                if lane.low_water != low_water {
                    lane.low_water = low_water;
                    self.host.set_low_water(&socket, low_water);
                }
                self.submit(index, Op::Receive { socket, slot, at, length, fill });
            }
        }
    }

    fn secure_failed(&mut self, index: usize, fault: Fault) {
        let lane = &mut self.lanes[index];
        let failure = fault.failure();
        let secure = lane.secure.as_mut().expect("a run over TLS has a seat for it");
        secure.wish = Wish::Nothing;
        secure.fault = Some(fault);
        lane.conn.handle(Event::Fault(failure));
    }
}

/// How ciphertext is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fill {
    /// At most so many bytes,
    length: u32,
    /// whenever so many are there (SO_RCVLOWAT),
    low_water: u32,
    /// and not before it is full.
    fill: bool,
}

impl Fill {
    /// The receive into this much room, when so many bytes will surely come.
    ///
    /// The mark asks for as much again beyond the receive: a tail shorter than the mark would never
    /// wake it. So towards its end a body comes in halves of what is left.
    fn of(room: u32, surely: u64) -> Self {
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
                let Fill { length, low_water, fill } = Fill::of(room, surely);
                assert!((1..=room).contains(&length) && (1..=length).contains(&low_water));
                assert!(!fill || surely >= u64::from(length), "{surely} in {room}");
                let waits = low_water > 1;
                assert!(!waits || surely >= u64::from(length) + u64::from(low_water));
            }
            let (mut left, mut receives) = (8u64 << 20, 0);
            while left >= u64::from(2 * RECEIVE_LOW_WATER_BYTES_MIN) {
                left -= u64::from(Fill::of(room, left).length);
                receives += 1;
            }
            assert!(receives <= (8 << 20) / room + 8, "{receives} of {room}");
        }
    }
}
