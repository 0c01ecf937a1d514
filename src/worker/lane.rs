//! A worker's side of one connection: its socket, its slots, what it fetches, and how the actions
//! of [`Conn`] are carried out.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Worker;
use super::secure::Secure;
use crate::attempt::Attempts;
use crate::conn::{Action, Ask, Conn, EtagDigest, Event, Manner, Piece, Target};
use crate::error::Error;
use crate::failure::Failure;
use crate::host::FileHost;
use crate::limits::CONNECT_TIMEOUT_US;
use crate::peers::{LateEnd, OpenConnection, Phase, Times};
use crate::s3::{ByteRange, Endpoint};
use crate::schedule::Assignment;
use crate::sink::Disposal;
use crate::sys::{Errno, Handle, Op, POLL_IN, Ring, Slot};
use crate::transfer::{Again, Shape, Transfer};

/// What a connection is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    /// It may be given a range.
    Free,
    /// It has a range.
    Busy,
    /// It has a range and waits before the next try.
    Backoff { until_us: u64 },
    /// Another connection brings its range; the end of its operation is waited for.
    Lost,
}

/// What follows a failed attempt, once its actions are carried out.
#[derive(Debug)]
pub(super) enum Verdict {
    Resume,
    Backoff {
        until_us: u64,
    },
    GiveUp(Error),
    /// Its rival goes on alone.
    Yield,
}

/// One connection of a worker.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) conn: Conn,
    pub(super) state: LaneState,
    /// The kernel has an operation of it.
    pub(super) in_flight: bool,
    /// When that operation is late, by the worker's clock; once that has been noticed,
    /// when its end is asked for again.
    pub(super) deadline_us: u64,
    /// It was late (or the run was stopped) and its end has been asked for.
    pub(super) expired: bool,
    pub(super) data: Option<Slot>,
    /// The action that waits for a data slot, or for bytes to put into one.
    pub(super) parked: Option<Action>,
    pub(super) parked_since_us: u64,
    /// Bytes of an answer are there: the slot is for them.
    pub(super) polled: bool,
    pub(super) idle_since_us: u64,
    pub(super) control: Option<Slot>,
    pub(super) socket: Option<Handle>,
    /// Where the socket leads.
    pub(super) endpoint: Option<Arc<Endpoint>>,
    /// The seat of TLS, in a run that uses it.
    pub(super) secure: Option<Secure>,
    /// The address that the socket leads to.
    pub(super) address: Option<SocketAddr>,
    /// Counts as open there, for all workers.
    open: Option<OpenConnection>,
    /// The next connect goes to another address than this, where there is one.
    pub(super) other_than: Option<SocketAddr>,
    /// The connection that was asked for the same range.
    pub(super) rival: Option<usize>,
    /// It is the second one of the two.
    pub(super) is_hedge: bool,
    /// How often its range was moved from a late connection to another.
    pub(super) moves: u32,
    /// Its operation is ended because it is late beside others, not after its timeout.
    pub(super) late_end: Option<LateEnd>,
    /// When the operation in flight was submitted, by the worker's clock.
    pub(super) submitted_us: u64,
    /// Number of the range among the worker's.
    pub(super) range: usize,
    transfer: Option<Arc<Transfer>>,
    pub(super) bytes: ByteRange,
    pub(super) attempts: Attempts,
    /// Why the last of its attempts failed.
    pub(super) last_failure: Option<Failure>,
    pub(super) verdict: Option<Verdict>,
    /// Version of the keys that signed its last request.
    pub(super) keys_version: u64,
    asked_us: u64,
    answered_us: u64,
    /// What the socket's low-water mark is now, in bytes.
    pub(super) low_water: u32,
    /// When the connection must have been made, handshake included, by the worker's
    /// clock.
    connected_by_us: u64,
}

impl Lane {
    /// A connection without a socket; with a buffer for ciphertext in a run over TLS.
    pub(super) fn new(control: Slot, cipher: Option<Slot>, slot_length: u32) -> Self {
        Self {
            conn: Conn::new(slot_length),
            state: LaneState::Free,
            in_flight: false,
            deadline_us: 0,
            expired: false,
            data: None,
            parked: None,
            parked_since_us: 0,
            polled: false,
            idle_since_us: 0,
            control: Some(control),
            socket: None,
            endpoint: None,
            secure: cipher.map(Secure::new),
            address: None,
            open: None,
            other_than: None,
            rival: None,
            is_hedge: false,
            moves: 0,
            late_end: None,
            submitted_us: 0,
            range: 0,
            transfer: None,
            bytes: ByteRange { offset: 0, length: 0 },
            attempts: Attempts::default(),
            last_failure: None,
            verdict: None,
            keys_version: 0,
            asked_us: 0,
            answered_us: 0,
            low_water: 1,
            connected_by_us: 0,
        }
    }

    /// Drops an idle socket.
    pub(super) fn hang_up(&mut self) {
        self.conn.reset();
        self.close();
    }

    /// Drops the socket and what was on it.
    fn close(&mut self) {
        self.socket = None;
        self.endpoint = None;
        self.address = None;
        self.open = None;
        if let Some(secure) = &mut self.secure {
            secure.hang_up();
        }
    }

    fn is_secure(&self) -> bool {
        self.secure.as_ref().is_some_and(Secure::is_on)
    }

    /// What its operation is about.
    pub(super) fn phase(&self) -> Phase {
        Phase::of(&self.conn)
    }

    /// Gives it a range.
    pub(super) fn take_over(
        &mut self,
        transfer: &Arc<Transfer>,
        bytes: ByteRange,
        range: usize,
        attempts: Attempts,
    ) {
        self.range = range;
        self.bytes = bytes;
        self.attempts = attempts;
        self.last_failure = None;
        self.moves = 0;
        self.state = LaneState::Busy;
        self.other_than = None;
        self.polled = false;
        self.transfer = Some(Arc::clone(transfer));
    }

    /// Asks for its bytes of this version of the object.
    pub(super) fn ask(&mut self, etag: Option<EtagDigest>) {
        let transfer = self.object();
        self.conn.ask(Ask {
            range: self.bytes,
            size: transfer.object.size_bytes,
            manner: match transfer.shape {
                Shape::Whole => Manner::Whole,
                _ => Manner::Slots,
            },
            etag,
            check: transfer.verification.of_answer(&transfer.object.etag),
        });
    }

    /// It has no range any more.
    pub(super) fn let_go(&mut self, now_us: u64) {
        self.state = LaneState::Free;
        self.idle_since_us = now_us;
        self.data = None;
        self.transfer = None;
    }

    /// What was to follow its last failure does not.
    pub(super) fn forget_verdict(&mut self) {
        self.verdict = None;
    }

    pub(super) fn object(&self) -> Arc<Transfer> {
        Arc::clone(self.transfer.as_ref().expect("a busy connection has an object"))
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Starts a range on a free connection.
    pub(super) fn begin(&mut self, index: usize, assignment: Assignment) {
        let Assignment { transfer, range } = assignment;
        let number = self.ranges.insert(Arc::clone(&transfer), range.offset, self.now_us);
        let lane = &mut self.lanes[index];
        let same = lane.endpoint.as_ref().is_some_and(|now| Arc::ptr_eq(now, &transfer.endpoint));
        if lane.conn.is_idle() && !same {
            lane.hang_up();
        }
        lane.take_over(&transfer, range, number, Attempts::default());
        lane.ask(transfer.etag);
        self.drive(index);
    }

    /// Carries out a connection's actions until it waits for something.
    pub(super) fn drive(&mut self, index: usize) {
        loop {
            while self.lanes[index].parked.is_none() {
                let Some(action) = self.lanes[index].conn.poll() else { break };
                self.act(index, action);
            }
            let lane = &mut self.lanes[index];
            if lane.parked.is_some() {
                return;
            }
            match lane.verdict.take() {
                None => return,
                Some(Verdict::Resume) => lane.conn.resume(),
                Some(Verdict::Backoff { until_us }) => {
                    lane.state = LaneState::Backoff { until_us };
                    return;
                }
                Some(Verdict::GiveUp(error)) => return self.give_up(index, &error),
                Some(Verdict::Yield) => return self.release(index),
            }
        }
    }

    /// Carries out one action.
    pub(super) fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Connect => self.connect(index),
            Action::Secure => self.secure_begin(index),
            Action::Write(range) => self.write_request(index, range),
            Action::Send { at, length } if self.lanes[index].is_secure() => {
                self.secure_send(index, at, length);
            }
            Action::Receive { .. } if self.lanes[index].is_secure() => {
                self.secure_receive(index, action);
            }
            Action::Send { at, length } => {
                let lane = &mut self.lanes[index];
                let slot = lane.control.take().expect("not in flight");
                let socket = lane.socket.clone().expect("connected");
                self.submit(index, Op::Send { socket, slot, at, length });
            }
            Action::Receive { target: Target::Data, .. } if self.polls_first(index) => {
                let lane = &mut self.lanes[index];
                lane.parked = Some(action);
                let handle = lane.socket.clone().expect("connected");
                self.submit(index, Op::Poll { handle, events: POLL_IN });
            }
            Action::Receive { target, at, length, fill } => {
                let Some(slot) = self.slot_for(index, target, action) else { return };
                let lane = &mut self.lanes[index];
                let socket = lane.socket.clone().expect("connected");
                let low_water = lane.conn.low_water(length, fill);
                if lane.low_water != low_water {
                    lane.low_water = low_water;
                    self.host.set_low_water(&socket, low_water);
                }
                self.submit(index, Op::Receive { socket, slot, at, length, fill });
            }
            Action::Copy { from, to, length } => {
                let Some(mut slot) = self.slot_for(index, Target::Data, action) else { return };
                let lane = &mut self.lanes[index];
                let control = lane.control.as_ref().expect("not in flight");
                let (from, to, length) = (from as usize, to as usize, length as usize);
                slot[to..to + length].copy_from_slice(&control[from..from + length]);
                lane.data = Some(slot);
            }
            Action::Move => unreachable!("nothing is streamed here"),
            Action::Deliver { at, length, offset } => self.deliver(index, at, length, offset),
            Action::Finished => {
                self.scheduler.answered();
                let lane = &self.lanes[index];
                let transfer = lane.object();
                if !transfer.agrees(lane.conn.etag()) {
                    let error = lane.explain(Failure::WrongEtag, None, self.now_us);
                    transfer.fail_for_now(Again::Changed, error);
                }
                self.compare(index, &transfer);
                self.count_range(index);
                self.fetched(index);
            }
            Action::Fail { failure, body } => self.attempt_failed(index, failure, body),
            Action::Close => self.lanes[index].close(),
        }
    }

    fn connect(&mut self, index: usize) {
        let endpoint = Arc::clone(&self.lanes[index].object().endpoint);
        let other_than = self.lanes[index].other_than.take();
        let open = {
            let all = endpoint.addresses.read().unwrap_or_else(|poison| poison.into_inner());
            self.addresses.connect(&all, other_than, self.now_us)
        };
        let Some(open) = open else {
            return self.lanes[index].conn.handle(Event::Failed(Errno::INVALID));
        };
        let address = open.address();
        match self.host.socket(&address) {
            Ok(socket) => {
                let lane = &mut self.lanes[index];
                lane.low_water = 1;
                lane.connected_by_us = self.clock.now_us() + CONNECT_TIMEOUT_US;
                lane.socket = Some(socket.clone());
                lane.endpoint = Some(endpoint);
                lane.address = Some(address);
                lane.open = Some(open);
                self.metrics.connects += 1;
                self.submit(index, Op::Connect { socket, address });
            }
            Err(errno) => self.lanes[index].conn.handle(Event::Failed(errno)),
        }
    }

    fn write_request(&mut self, index: usize, range: Option<ByteRange>) {
        let lane = &mut self.lanes[index];
        let transfer = lane.object();
        let slot = lane.control.as_mut().expect("not in flight");
        match self.host.write_request(slot, &transfer, range) {
            Ok(length) => {
                self.metrics.requests += 1;
                lane.keys_version = self.host.keys_version(&transfer);
                lane.asked_us = self.now_us;
                lane.conn.handle(Event::Written { length });
            }
            Err(error) => {
                transfer.fail(error.within(transfer.name()));
                lane.conn.handle(Event::Failed(Errno::CANCELED));
            }
        }
    }

    /// The slot that an action needs; without one the connection waits its turn.
    pub(super) fn slot_for(
        &mut self,
        index: usize,
        target: Target,
        action: Action,
    ) -> Option<Slot> {
        let lane = &mut self.lanes[index];
        if target == Target::Control {
            return Some(lane.control.take().expect("not in flight"));
        }
        if let Some(slot) = lane.data.take() {
            return Some(slot);
        }
        // Those who wait come first.
        if self.slot_queue.is_empty()
            && let Some(slot) = self.data.take()
        {
            return Some(slot);
        }
        lane.parked = Some(action);
        lane.parked_since_us = self.now_us;
        self.slot_queue.push_back(index);
        None
    }

    pub(super) fn submit(&mut self, index: usize, op: Op) {
        let clock_us = self.clock.now_us();
        let lane = &mut self.lanes[index];
        // A handshake has several operations, and one deadline.
        lane.deadline_us = match lane.conn.is_connecting() {
            true => lane.connected_by_us,
            false => clock_us + lane.conn.timeout_us(),
        };
        lane.expired = false;
        lane.late_end = None;
        lane.in_flight = true;
        lane.submitted_us = clock_us;
        if let Err(op) = self.ring.submit(index as u64, op) {
            // The ring has room for every connection and slot; a kernel short of memory has not.
            self.lane_done(index, op, Err(Errno::AGAIN));
        }
    }

    /// A connection's operation is over.
    pub(super) fn lane_done(&mut self, index: usize, op: Op, result: Result<u32, Errno>) {
        let lane = &mut self.lanes[index];
        lane.in_flight = false;
        let expired = std::mem::take(&mut lane.expired);
        let is_poll = matches!(op, Op::Poll { .. });
        if lane.state == LaneState::Lost {
            lane.take_back(op);
            return self.released(index);
        }
        // What comes after a poll had come before.
        if result.is_ok() && !expired && !std::mem::take(&mut lane.polled) {
            self.paces.note(lane.phase(), self.clock.now_us() - lane.submitted_us);
        }
        // What was to be filled and was ended comes back as a success with what it had: that came
        // before it was late. What follows is as late, and a rival goes on alone.
        let is_partial = expired && is_partly_filled(&op, result);
        let late_end = lane.late_end.take();
        let failed = match result {
            Ok(_) if is_partial && lane.rival.is_some() => Some(Event::Expired),
            Ok(_) if !self.scheduler.is_stopped() => None,
            // What had come is kept for a later run.
            Ok(count) if lane.rival.is_none() && lane.fills_data(&op) => Some(Event::Cut(count)),
            Err(errno) if !(expired && errno == Errno::CANCELED) => Some(Event::Failed(errno)),
            _ => Some(Event::Expired),
        };
        match failed {
            Some(event) => {
                lane.take_back(op);
                lane.parked = None;
                let is_ended = matches!(event, Event::Expired | Event::Cut(_));
                lane.late_end = late_end.filter(|_| is_ended);
                lane.conn.handle(event);
            }
            None if is_poll => self.polled(index),
            None if lane.is_secure() => self.secure_done(index, op, result.unwrap_or(0)),
            None => self.plain_done(index, op, result.unwrap_or(0)),
        }
        self.drive(index);
        let still_late = late_end.filter(|_| is_partial && self.lanes[index].in_flight);
        if let Some(late_end) = still_late {
            self.end_late(index, late_end);
        }
    }

    /// An operation without TLS succeeded.
    fn plain_done(&mut self, index: usize, op: Op, count: u32) {
        let lane = &mut self.lanes[index];
        let is_send = matches!(op, Op::Send { .. });
        let is_connect = matches!(op, Op::Connect { .. });
        let target = lane.take_back(op);
        if is_connect && lane.endpoint.as_ref().is_some_and(|endpoint| endpoint.tls) {
            self.tunnel_or_secure(index);
        } else if is_connect {
            lane.conn.handle(Event::Connected);
        } else if is_send {
            lane.conn.handle(Event::Sent(count));
        } else {
            self.received(index, count, target);
        }
    }

    /// Bytes stand in a buffer.
    pub(super) fn received(&mut self, index: usize, count: u32, target: Target) {
        let lane = &mut self.lanes[index];
        let awaited = lane.conn.awaits_head();
        let buffer = match target {
            Target::Control => &lane.control,
            Target::Data => &lane.data,
        };
        lane.conn.handle(Event::Received(count, buffer.as_deref().expect("just put back")));
        if awaited && !lane.conn.awaits_head() {
            lane.answered_us = self.now_us;
            if lane.conn.has_answer() {
                self.metrics.answers += 1;
                self.metrics.stages.first_byte_us += self.now_us - lane.asked_us;
            }
        }
        if lane.rival.is_some() && lane.conn.has_answer() {
            self.won(index);
        }
    }

    /// A piece of the object stands in the data slot.
    fn deliver(&mut self, index: usize, at: u32, length: u32, offset: u64) {
        let lane = &mut self.lanes[index];
        let slot = lane.data.take().expect("it was just filled");
        let (range, transfer) = (lane.range, lane.object());
        self.metrics.bytes += u64::from(length);
        self.host.delivered(&transfer, offset, length);
        let bytes = &slot[at as usize..(at + length) as usize];
        self.count_in(index, &transfer, bytes, offset);
        match self.sink.dispose(transfer.shape) {
            Disposal::Drop => drop(slot),
            Disposal::WriteAt => self.write(range, slot, length, offset),
            Disposal::WriteWhole => {
                let before = self.host.now_us();
                if let Err(error) = self.host.write_whole(&transfer, bytes) {
                    self.file_failed(&transfer, error);
                }
                self.metrics.stages.file_us += self.host.now_us() - before;
            }
        }
    }

    /// Notes where a range came from and how quickly.
    fn count_range(&mut self, index: usize) {
        let lane = &self.lanes[index];
        let Some(address) = lane.address else { return };
        let times = Times {
            first_byte_us: lane.answered_us.saturating_sub(lane.asked_us),
            body_us: self.now_us.saturating_sub(lane.answered_us),
        };
        self.addresses.brought(address, lane.bytes.length, times);
    }

    /// The connection is done with its range.
    pub(super) fn fetched(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        assert!(lane.rival.is_none(), "a range has one end");
        if lane.answered_us >= lane.asked_us {
            self.metrics.stages.body_us += self.now_us - lane.answered_us;
        }
        let range = lane.range;
        lane.let_go(self.now_us);
        self.free.push(index);
        if self.ranges.fetched(range) {
            self.end_range(range);
        }
    }
}

/// True for a receive that was to fill its place and did so in part.
fn is_partly_filled(op: &Op, result: Result<u32, Errno>) -> bool {
    matches!((op, result), (Op::Receive { length, fill: true, .. }, Ok(n)) if 0 < n && n < *length)
}

impl Lane {
    /// True for a receive of body bytes, straight into the data slot.
    fn fills_data(&self, op: &Op) -> bool {
        matches!(op, Op::Receive { .. }) && self.control.is_some() && !self.is_secure()
    }

    /// Takes an operation's slot back, to where it is missing.
    fn take_back(&mut self, op: Op) -> Target {
        let secure = self.secure.as_mut().filter(|secure| secure.is_on());
        match (op.into_slot(), secure) {
            (None, _) => Target::Control,
            (Some(slot), Some(secure)) => {
                secure.put_back(slot);
                Target::Control
            }
            (Some(slot), None) if self.control.is_none() => {
                self.control = Some(slot);
                Target::Control
            }
            (Some(slot), None) => {
                self.data = Some(slot);
                Target::Data
            }
        }
    }

    pub(super) fn piece(&self, piece: Piece) -> &[u8] {
        let buffer = match piece.target {
            Target::Control => &self.control,
            Target::Data => &self.data,
        };
        let (at, end) = (piece.at as usize, (piece.at + piece.length) as usize);
        buffer.as_deref().map_or(&[], |bytes| &bytes[at..end])
    }
}
