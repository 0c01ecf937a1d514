//! The loop that feeds one channel: many ranges at once on their way in, one stream out.
//!
//! Lines are kept in the order of the stream: the front one is handed on, the others fill their
//! sockets and private pipes. The reader's pace is the back-pressure: a full pipe is not polled,
//! and what waits costs nothing. Generic over ring and host, like the worker of File mode.

use std::collections::VecDeque;
use std::sync::Arc;

use super::feed::{Feed, Next, Step};
use super::line::{Line, LineState, Pending, Want};
use crate::conn::{Action, Ask, Event, Manner, Target};
use crate::error::{Error, ErrorKind};
use crate::failure::{Failure, Remedy, RetryReason};
use crate::host::PipeHost;
use crate::http;
use crate::limits::{
    BACKOFF_BASE_US, BACKOFF_MAX_US, HEAD_RECEIVE_BYTES, IDLE_TIMEOUT_US, TURN_WAIT_MAX_US,
};
use crate::s3::{ByteRange, answer};
use crate::sys::{Completion, Errno, Handle, Op, POLL_ERROR, POLL_IN, POLL_OUT, Ring, descriptor};
use crate::transfer::Transfer;

/// Token of the wait for the feed's counter.
const TOKEN_WAKE: u64 = 1 << 40;
/// Token of the poll for room at the reader's end.
const TOKEN_ROOM: u64 = 1 << 41;
/// Token of the poll for the reader's going.
const TOKEN_GONE: u64 = 1 << 42;
/// Wanted size of a private pipe and of the reader's pipe, in bytes: the usual limit of an
/// unprivileged user (pipe(7), pipe-max-size).
pub const PIPE_BYTES: u64 = 1 << 20;
/// Most bytes that one splice asks for.
const SPLICE_BYTES_MAX: u64 = 4 << 20;
/// First pause between two looks for a reader, in microseconds; doubled up to the last.
const READER_WAIT_FIRST_US: u64 = 1_000;
/// Longest pause between two looks for a reader, in microseconds.
const READER_WAIT_LAST_US: u64 = 20_000;

/// What an epoch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochCount {
    /// Its number, from 0.
    pub epoch: u64,
    /// Bytes handed to the reader.
    pub bytes: u64,
    /// The reader closed before the end.
    pub left_early: bool,
    /// When its reader came, in microseconds since the run began.
    pub opened_us: u64,
    /// From the reader's coming to the first byte, in microseconds; `None` when there was none.
    pub first_byte_us: Option<u64>,
    /// From the reader's coming to the end, in microseconds.
    pub elapsed_us: u64,
    /// The reader had taken all and waited for us, in microseconds.
    pub reader_waited_us: u64,
    /// The pipe was full and we waited for the reader, in microseconds.
    pub reader_kept_us: u64,
}

/// What a feeder counted over all epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeedCount {
    /// Epochs in order.
    pub epochs: Vec<EpochCount>,
    /// Failed attempts that were followed by another, by [`RetryReason`].
    pub retries: [u64; RetryReason::COUNT],
    /// Connections made.
    pub connects: u64,
    /// Requests sent.
    pub requests: u64,
    /// Size of the smallest private pipe that the kernel gave, in bytes.
    pub pipe_bytes_min: Option<u64>,
    /// Turns of the loop.
    pub turns: u64,
}

/// What a feeder is given.
#[derive(Debug)]
pub struct FeederParts<R, H> {
    /// Its ring.
    pub ring: R,
    /// Its machine.
    pub host: H,
    /// What comes next.
    pub feed: Arc<Feed>,
    /// Raised when there is something new in the feed.
    pub counter: Handle,
    /// How many connections.
    pub connections: usize,
    /// Tries of one range.
    pub attempts_max: u32,
    /// How many epochs there will be; `None` for ever.
    pub epochs: Option<u64>,
}

/// One piece of the stream, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Line(usize),
    EpochEnd,
}

/// The reader's end of the current epoch.
#[derive(Debug)]
enum Outlet {
    /// Nobody reads yet; looked for again at this time.
    Wanted { look_us: u64, pause_us: u64 },
    /// Open for writing.
    Open { handle: Handle, full: bool },
    /// The reader left before the end of its epoch was listed: waits for that.
    Skipping,
    /// All epochs are over.
    Closed,
}

/// Feeds one channel.
#[derive(Debug)]
pub struct Feeder<R, H> {
    ring: R,
    host: H,
    feed: Arc<Feed>,
    counter: Handle,
    attempts_max: u32,
    epochs: Option<u64>,
    lines: Vec<Line>,
    free: Vec<usize>,
    /// The stream from its head on: what is fetched and not handed on.
    window: VecDeque<Piece>,
    outlet: Outlet,
    /// Epoch of the outlet, and of what is taken from the feed.
    epoch: u64,
    taking: u64,
    room_polled: bool,
    gone_polled: bool,
    awaiting: bool,
    fed: bool,
    ended: bool,
    connects: usize,
    now_us: u64,
    current: EpochCount,
    count: FeedCount,
    failure: Option<Error>,
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// A feeder, ready to run; the first epoch's place is made.
    ///
    /// # Errors
    /// When that place cannot be made.
    pub fn new(parts: FeederParts<R, H>) -> Result<Self, Error> {
        let FeederParts { ring, mut host, feed, counter, connections, attempts_max, epochs } =
            parts;
        assert!(connections > 0, "a channel has a connection");
        if epochs != Some(0) {
            host.offer(0)?;
        }
        Ok(Self {
            ring,
            host,
            feed,
            counter,
            attempts_max,
            epochs,
            lines: (0..connections).map(|_| Line::new()).collect(),
            free: (0..connections).rev().collect(),
            window: VecDeque::with_capacity(connections + 1),
            outlet: Outlet::Wanted { look_us: 0, pause_us: READER_WAIT_FIRST_US },
            epoch: 0,
            taking: 0,
            room_polled: false,
            gone_polled: false,
            awaiting: false,
            fed: true,
            ended: false,
            connects: 0,
            now_us: 0,
            current: EpochCount::default(),
            count: FeedCount::default(),
            failure: None,
        })
    }

    /// Runs until every epoch has been read, or the channel is stopped.
    ///
    /// # Errors
    /// What made the stream impossible to go on with: then the reader saw an early end.
    pub fn run(&mut self) -> Result<(), Error> {
        let outcome = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(errno) => {
                    break Err(Error::new(ErrorKind::Host, format!("the ring failed: {errno}"))
                        .advise("see the kernel's log"));
                }
            }
        };
        self.close_up();
        match (outcome, self.failure.take()) {
            (_, Some(error)) | (Err(error), None) => Err(error),
            (Ok(()), None) => Ok(()),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn count(&self) -> &FeedCount {
        &self.count
    }

    /// Operations that the kernel owns; 0 after [`Self::run`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    /// One turn; false when all is done.
    ///
    /// # Errors
    /// When the ring fails.
    pub fn turn(&mut self) -> Result<bool, Errno> {
        self.now_us = self.host.now_us();
        if self.feed.is_stopped() || self.failure.is_some() {
            return Ok(false);
        }
        self.look_for_reader();
        self.assign();
        self.deliver();
        if matches!(self.outlet, Outlet::Closed) || self.failure.is_some() {
            return Ok(false);
        }
        let wait_us = self.tend();
        self.watch();
        let before = self.now_us;
        self.ring.enter(wait_us)?;
        self.count.turns += 1;
        self.now_us = self.host.now_us();
        self.account(self.now_us - before);
        while let Some(completion) = self.ring.reap() {
            self.apply(completion);
        }
        Ok(true)
    }

    /// Says who waited for whom while the ring slept.
    fn account(&mut self, slept_us: u64) {
        if let Outlet::Open { full, .. } = &self.outlet {
            if *full {
                self.current.reader_kept_us += slept_us;
            } else {
                self.current.reader_waited_us += slept_us;
            }
        }
    }

    /// Takes every place away and everything back from the kernel.
    fn close_up(&mut self) {
        if !matches!(self.outlet, Outlet::Closed) {
            self.host.withdraw(self.epoch);
            self.host.withdraw(self.epoch + 1);
            if matches!(self.outlet, Outlet::Open { .. }) {
                self.end_count();
            }
            self.outlet = Outlet::Closed;
        }
        for turn in 0..100 {
            if self.ring.in_flight() == 0 {
                break;
            }
            for index in 0..self.lines.len() {
                self.ring.cancel(index as u64);
            }
            self.ring.cancel(TOKEN_WAKE);
            self.ring.cancel(TOKEN_ROOM);
            self.ring.cancel(TOKEN_GONE);
            if self.ring.enter(if turn == 0 { 0 } else { 10_000 }).is_err() {
                break;
            }
            while self.ring.reap().is_some() {}
        }
        for line in &mut self.lines {
            line.pending = Pending::None;
            line.discard();
        }
    }

    /// Opens the epoch's place when somebody reads there; then the next epoch's place appears.
    fn look_for_reader(&mut self) {
        let Outlet::Wanted { look_us, pause_us } = self.outlet else { return };
        if look_us > self.now_us {
            return;
        }
        match self.host.open(self.epoch) {
            Ok(Some(handle)) => {
                let epoch = self.epoch;
                self.current =
                    EpochCount { epoch, opened_us: self.now_us, ..EpochCount::default() };
                self.outlet = Outlet::Open { handle, full: false };
                if self.epochs.is_none_or(|epochs| epoch + 1 < epochs)
                    && let Err(error) = self.host.offer(epoch + 1)
                {
                    self.failure = Some(error.into());
                }
            }
            Ok(None) => {
                let pause_us = (pause_us * 2).min(READER_WAIT_LAST_US);
                self.outlet = Outlet::Wanted { look_us: self.now_us + pause_us, pause_us };
            }
            Err(error) => self.failure = Some(error.into()),
        }
    }

    /// Gives free lines the next ranges of the stream.
    fn assign(&mut self) {
        while self.fed && !self.ended && self.window.len() <= self.lines.len() {
            if self.free.is_empty() {
                return;
            }
            match self.feed.next() {
                Next::Step(Step::Range(transfer, range)) => {
                    let Some(index) = self.free.pop() else { unreachable!("checked above") };
                    self.window.push_back(Piece::Line(index));
                    self.begin(index, transfer, range);
                }
                Next::Step(Step::EpochEnd) => {
                    self.taking += 1;
                    self.window.push_back(Piece::EpochEnd);
                }
                Next::Later => self.fed = false,
                Next::Ended => self.ended = true,
            }
        }
    }

    fn begin(&mut self, index: usize, transfer: Arc<Transfer>, range: ByteRange) {
        let line = &mut self.lines[index];
        let same = line.endpoint.as_ref().is_some_and(|now| Arc::ptr_eq(now, &transfer.endpoint));
        if line.conn.is_idle() && !same {
            line.hang_up();
        }
        line.state = LineState::Busy;
        line.attempts = 1;
        line.epoch = self.taking;
        (line.full, line.readable) = (false, false);
        let ask = Ask {
            range,
            size: transfer.object.size_bytes,
            manner: Manner::Stream,
            etag: transfer.etag,
        };
        line.transfer = Some(transfer);
        line.conn.ask(ask);
        self.drive(index);
    }

    /// Hands on what is at the head of the stream, until the reader's pipe is full or nothing is
    /// there.
    fn deliver(&mut self) {
        while let Some(piece) = self.window.front().copied() {
            let out = match &self.outlet {
                Outlet::Open { handle, full: false } => handle.clone(),
                Outlet::Skipping if piece == Piece::EpochEnd => {
                    self.window.pop_front();
                    self.finish_epoch();
                    continue;
                }
                _ => return,
            };
            match piece {
                Piece::EpochEnd => {
                    self.window.pop_front();
                    self.finish_epoch();
                }
                Piece::Line(index) => {
                    if !self.deliver_line(index, &out) {
                        return;
                    }
                }
            }
        }
        if self.ended && self.window.is_empty() {
            self.outlet = Outlet::Closed;
        }
    }

    /// Hands on what a line has; true when it has been handed on to its end.
    fn deliver_line(&mut self, index: usize, out: &Handle) -> bool {
        while self.lines[index].in_pipe > 0 {
            let line = &mut self.lines[index];
            let pipe = line.pipe.as_ref().expect("bytes are in it");
            match self.host.splice(&pipe.reader, out, line.in_pipe) {
                Ok(count) if count > 0 => {
                    line.in_pipe -= count;
                    line.full = false;
                    self.delivered(count);
                }
                outcome => return self.refused_by_reader(outcome),
            }
        }
        if self.lines[index].state == LineState::Received {
            self.window.pop_front();
            let line = &mut self.lines[index];
            line.state = LineState::Free;
            line.transfer = None;
            line.idle_since_us = self.now_us;
            self.free.push(index);
            self.assign();
            return true;
        }
        while self.move_body(index, Some(out)) {
            self.carry_out(index);
        }
        self.lines[index].state == LineState::Received
    }

    fn delivered(&mut self, count: u64) {
        let since = self.now_us.saturating_sub(self.current.opened_us);
        self.current.first_byte_us.get_or_insert(since);
        self.current.bytes += count;
    }

    /// The reader's end took nothing: full, or left. Always false, for the caller's sake.
    fn refused_by_reader(&mut self, outcome: Result<u64, Errno>) -> bool {
        match outcome {
            Err(errno) if errno.is_transient() => {
                if let Outlet::Open { full, .. } = &mut self.outlet {
                    *full = true;
                }
            }
            Err(Errno::PIPE) => self.reader_left(),
            Err(errno) => {
                self.failure = Some(
                    Error::new(ErrorKind::Destination, format!("cannot write: {errno}"))
                        .advise("see the reader's end"),
                );
            }
            // Nothing moved out of a pipe that holds bytes: the kernel contradicts itself.
            Ok(_) => self.failure = Some(Error::new(ErrorKind::Host, "a splice moved nothing")),
        }
        false
    }

    /// The reader has closed early: what is left of the epoch is not wanted.
    fn reader_left(&mut self) {
        self.current.left_early = true;
        self.feed.skip_epoch(self.epoch);
        let mut kept = VecDeque::with_capacity(self.window.len());
        let mut over = false;
        for piece in std::mem::take(&mut self.window) {
            match piece {
                Piece::Line(index) if !over => self.drop_line(index),
                Piece::EpochEnd if !over => over = true,
                piece => kept.push_back(piece),
            }
        }
        self.window = kept;
        if over {
            self.finish_epoch();
        } else {
            // Its end is still in the feed, and comes next, for the rest is passed over.
            self.leave_outlet();
            self.fed = true;
        }
    }

    fn drop_line(&mut self, index: usize) {
        let line = &mut self.lines[index];
        if line.pending == Pending::None {
            line.discard();
            line.idle_since_us = self.now_us;
            self.free.push(index);
        } else {
            // The kernel still has its socket: it is free when that comes back.
            line.transfer = None;
            line.expired = true;
            self.ring.cancel(index as u64);
        }
    }

    fn end_count(&mut self) {
        self.current.elapsed_us = self.now_us.saturating_sub(self.current.opened_us);
        self.count.epochs.push(std::mem::take(&mut self.current));
    }

    /// Unlinks the place, then closes it: nobody can open it between the two and wait for bytes.
    fn leave_outlet(&mut self) {
        self.host.withdraw(self.epoch);
        self.end_count();
        self.outlet = Outlet::Skipping;
        self.ring.cancel(TOKEN_ROOM);
        self.ring.cancel(TOKEN_GONE);
    }

    fn finish_epoch(&mut self) {
        if matches!(self.outlet, Outlet::Open { .. }) {
            self.leave_outlet();
        }
        self.epoch += 1;
        self.feed.set_reading(self.epoch);
        self.outlet = if self.epochs == Some(self.epoch) {
            Outlet::Closed
        } else {
            Outlet::Wanted { look_us: self.now_us, pause_us: READER_WAIT_FIRST_US }
        };
        self.look_for_reader();
    }
}

/// The lines' side.
impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Carries out a connection's actions, and goes on as far as its socket lets it.
    fn drive(&mut self, index: usize) {
        loop {
            self.carry_out(index);
            if self.lines[index].pending != Pending::None || !self.proceed(index) {
                return;
            }
        }
    }

    fn carry_out(&mut self, index: usize) {
        while let Some(action) = self.lines[index].conn.poll() {
            self.act(index, action);
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        let line = &mut self.lines[index];
        match action {
            Action::Connect => self.connect(index),
            Action::Write(range) => self.write_request(index, range),
            Action::Send { at, length } => line.want = Want::Send { at, length },
            Action::Receive { target: Target::Control, at, length, .. } => {
                line.want = Want::Receive { at, length };
            }
            Action::Move => line.want = Want::Move,
            Action::Finished => {
                line.want = Want::Nothing;
                line.state = LineState::Received;
                let transfer = line.object();
                if !transfer.agrees(line.conn.etag()) {
                    self.give_up(index, Failure::WrongEtag, &[]);
                }
            }
            Action::Fail { failure, body } => {
                let body = body.map_or_else(Vec::new, |piece| {
                    let (at, end) = (piece.at as usize, (piece.at + piece.length) as usize);
                    line.control[at..end].to_vec()
                });
                self.attempt_failed(index, failure, &body);
            }
            Action::Close => {
                line.socket = None;
                line.endpoint = None;
                line.readable = false;
            }
            Action::Receive { .. } | Action::Copy { .. } | Action::Deliver { .. } => {
                unreachable!("a streamed body does not enter user memory")
            }
        }
    }

    fn connect(&mut self, index: usize) {
        let endpoint = Arc::clone(&self.lines[index].object().endpoint);
        let addresses = endpoint.addresses();
        let address = addresses.get(self.connects % addresses.len().max(1)).copied();
        self.connects += 1;
        let socket = address.ok_or(Errno::INVALID).and_then(|address| {
            let socket = self.host.socket(&address)?;
            Ok((socket, address))
        });
        let line = &mut self.lines[index];
        match socket {
            Ok((socket, address)) => {
                line.socket = Some(socket.clone());
                line.endpoint = Some(endpoint);
                line.want = Want::Nothing;
                self.count.connects += 1;
                self.submit(index, Pending::Connect, Op::Connect { socket, address });
            }
            Err(errno) => line.conn.handle(Event::Failed(errno)),
        }
    }

    fn write_request(&mut self, index: usize, range: Option<ByteRange>) {
        let line = &mut self.lines[index];
        let transfer = line.object();
        match self.host.write_request(&mut line.control, &transfer, range) {
            Ok(length) => {
                self.count.requests += 1;
                line.conn.handle(Event::Written { length });
            }
            Err(error) => {
                self.failure.get_or_insert(error.within(transfer.name()));
                line.conn.handle(Event::Failed(Errno::CANCELED));
            }
        }
    }

    fn submit(&mut self, index: usize, pending: Pending, op: Op) {
        let line = &mut self.lines[index];
        line.deadline_us = self.now_us + line.conn.timeout_us();
        line.expired = false;
        line.pending = pending;
        if self.ring.submit(index as u64, op).is_err() {
            line.pending = Pending::None;
            line.conn.handle(Event::Failed(Errno::AGAIN));
        }
    }

    /// Has the ring wait for a socket; false, for the caller's sake.
    fn wait_for(&mut self, index: usize, pending: Pending) -> bool {
        let events = if pending == Pending::Writable { POLL_OUT } else { POLL_IN };
        let handle = self.lines[index].socket.clone().expect("connected");
        self.submit(index, pending, Op::Poll { handle, events });
        false
    }

    /// Does what the line wants next; true when something happened, false when it has to wait.
    fn proceed(&mut self, index: usize) -> bool {
        match self.lines[index].want {
            Want::Nothing => false,
            Want::Send { at, length } => self.send(index, at, length),
            Want::Receive { at, length } => self.receive_head(index, at, length),
            Want::Move => {
                // The head of the stream goes straight to the reader, in `deliver`.
                let open = matches!(self.outlet, Outlet::Open { .. });
                let first = self.window.front() == Some(&Piece::Line(index));
                !(open && first) && self.move_body(index, None)
            }
        }
    }

    fn send(&mut self, index: usize, at: u32, length: u32) -> bool {
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let bytes = &line.control[at as usize..(at + length) as usize];
        let event = match self.host.send(socket, bytes) {
            Ok(count) => Event::Sent(u32::try_from(count).expect("at most what was given")),
            Err(errno) if errno.is_transient() => return self.wait_for(index, Pending::Writable),
            Err(errno) => Event::Failed(errno),
        };
        line.want = Want::Nothing;
        line.conn.handle(event);
        true
    }

    /// Receives head bytes and not one byte beyond the head: the body must stay in the socket.
    fn receive_head(&mut self, index: usize, at: u32, length: u32) -> bool {
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let start = at as usize;
        let end = start + length.min(HEAD_RECEIVE_BYTES) as usize;
        let seen = self.host.receive(socket, &mut line.control[start..end], true);
        let outcome = seen.and_then(|seen| {
            let take = match http::parse(&line.control[..start + seen]) {
                Ok(Some(head)) if line.conn.awaits_head() => head.length as usize - start,
                _ => seen,
            };
            self.host.receive(socket, &mut line.control[start..start + take], false)
        });
        let event = match outcome {
            Ok(count) => {
                let count = u32::try_from(count).expect("at most what was asked for");
                Event::Received(count, &line.control)
            }
            Err(errno) if errno.is_transient() => return self.wait_for(index, Pending::Readable),
            Err(errno) => Event::Failed(errno),
        };
        line.want = Want::Nothing;
        line.conn.handle(event);
        true
    }

    /// Moves body bytes out of the socket, to the reader or into the line's own pipe; true when
    /// some were moved or the connection failed.
    fn move_body(&mut self, index: usize, out: Option<&Handle>) -> bool {
        let line = &self.lines[index];
        if line.want != Want::Move || line.pending != Pending::None || (out.is_none() && line.full)
        {
            return false;
        }
        let Some(target) = out.cloned().or_else(|| self.own_pipe(index)) else { return false };
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let length = line.conn.body_left().min(SPLICE_BYTES_MAX);
        let event = match self.host.splice(socket, &target, length) {
            Ok(count) => {
                line.readable = false;
                line.in_pipe += if out.is_none() { count } else { 0 };
                Event::Moved(count)
            }
            Err(errno) if errno.is_transient() => return self.move_blocked(index, out.is_some()),
            Err(Errno::PIPE) if out.is_some() => {
                return self.refused_by_reader(Err(Errno::PIPE));
            }
            Err(errno) => Event::Failed(errno),
        };
        let moved = if let Event::Moved(count) = event { count } else { 0 };
        line.conn.handle(event);
        if out.is_some() && moved > 0 {
            self.delivered(moved);
        }
        true
    }

    /// A splice from a socket said EAGAIN: the socket is empty, or the target is full. When the
    /// socket has just said that it is readable, it is the target.
    fn move_blocked(&mut self, index: usize, to_reader: bool) -> bool {
        let line = &mut self.lines[index];
        if !line.readable {
            return self.wait_for(index, Pending::Readable);
        }
        if to_reader {
            if let Outlet::Open { full, .. } = &mut self.outlet {
                *full = true;
            }
        } else {
            line.full = true;
        }
        false
    }

    /// The line's own pipe, made when it is first needed.
    fn own_pipe(&mut self, index: usize) -> Option<Handle> {
        if self.lines[index].pipe.is_none() {
            match self.host.private_pipe(PIPE_BYTES) {
                Ok(pipe) => {
                    let least = self.count.pipe_bytes_min.get_or_insert(pipe.capacity_bytes);
                    *least = pipe.capacity_bytes.min(*least);
                    self.lines[index].pipe = Some(pipe);
                }
                Err(errno) => {
                    self.failure = Some(
                        Error::new(ErrorKind::Host, format!("cannot make a pipe: {errno}"))
                            .advise("raise the limit of open files (ulimit -n)"),
                    );
                    return None;
                }
            }
        }
        self.lines[index].pipe.as_ref().map(|pipe| pipe.writer.clone())
    }

    /// Tells the connection what happened and carries out what follows.
    fn happened(&mut self, index: usize, event: Event<'_>) {
        self.lines[index].conn.handle(event);
        self.drive(index);
    }

    fn attempt_failed(&mut self, index: usize, failure: Failure, body: &[u8]) {
        let line = &mut self.lines[index];
        line.want = Want::Nothing;
        if line.transfer.is_none() || self.feed.is_stopped() {
            return;
        }
        let transfer = line.object();
        let repeat = failure.remedy() == Remedy::Repeat;
        let retry = failure.remedy() == Remedy::Backoff && line.attempts < self.attempts_max;
        if !(repeat || retry) {
            return self.give_up(index, failure, body);
        }
        self.count.retries[failure.reason() as usize] += 1;
        transfer.count_retry();
        let mut wait_us = 0;
        if !repeat {
            let ceiling = BACKOFF_BASE_US << (line.attempts - 1).min(16);
            wait_us = self.host.random() % ceiling.min(BACKOFF_MAX_US);
            line.attempts += 1;
        }
        line.state = LineState::Backoff { until_us: self.now_us + wait_us };
    }

    /// A range that cannot be had ends the channel: a stream with a hole is no stream.
    fn give_up(&mut self, index: usize, failure: Failure, body: &[u8]) {
        let line = &self.lines[index];
        let name = line.object().name();
        let context = format!("stream {name} failed after {} tries", line.attempts);
        let error = match failure {
            Failure::Status(status) => answer::explain(status, body, "").into_error(&context),
            failure => Error::new(ErrorKind::Endpoint, failure.to_string())
                .within(context)
                .advise("check the network and the endpoint"),
        };
        self.failure.get_or_insert(error);
    }

    /// Ends late waits, wakes sleeping lines, closes idle ones; returns how long the ring may wait.
    fn tend(&mut self) -> u64 {
        let mut next_us = self.now_us + TURN_WAIT_MAX_US;
        if let Outlet::Wanted { look_us, .. } = self.outlet {
            next_us = next_us.min(look_us);
        }
        for index in 0..self.lines.len() {
            let line = &mut self.lines[index];
            if line.pending != Pending::None {
                if line.deadline_us <= self.now_us && !line.expired {
                    line.expired = true;
                    self.ring.cancel(index as u64);
                } else if !line.expired {
                    next_us = next_us.min(line.deadline_us);
                }
            } else if let LineState::Backoff { until_us } = line.state {
                if until_us <= self.now_us {
                    line.state = LineState::Busy;
                    line.conn.resume();
                    self.drive(index);
                } else {
                    next_us = next_us.min(until_us);
                }
            } else if line.state == LineState::Free
                && line.conn.is_idle()
                && line.idle_since_us + IDLE_TIMEOUT_US <= self.now_us
            {
                line.hang_up();
            }
        }
        next_us.saturating_sub(self.now_us)
    }

    /// Keeps the counter and the reader's end watched.
    fn watch(&mut self) {
        if !self.awaiting {
            let op = Op::Poll { handle: self.counter.clone(), events: POLL_IN };
            self.awaiting = self.ring.submit(TOKEN_WAKE, op).is_ok();
        }
        let Outlet::Open { handle, full } = &self.outlet else { return };
        if *full && !self.room_polled {
            let op = Op::Poll { handle: handle.clone(), events: POLL_OUT };
            self.room_polled = self.ring.submit(TOKEN_ROOM, op).is_ok();
        }
        // While it is full the other poll tells of the reader's going, too.
        if !*full && !self.gone_polled {
            let op = Op::Poll { handle: handle.clone(), events: 0 };
            self.gone_polled = self.ring.submit(TOKEN_GONE, op).is_ok();
        }
    }

    fn apply(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        match token {
            TOKEN_WAKE => {
                self.awaiting = false;
                descriptor::lower(&self.counter);
                self.fed = true;
            }
            TOKEN_ROOM => {
                self.room_polled = false;
                self.reader_stirred(&op, result);
            }
            TOKEN_GONE => {
                self.gone_polled = false;
                self.reader_stirred(&op, result);
            }
            token => self.line_done(usize::try_from(token).expect("an index"), result),
        }
    }

    fn reader_stirred(&mut self, op: &Op, result: Result<u32, Errno>) {
        let Outlet::Open { handle, full } = &mut self.outlet else { return };
        let Op::Poll { handle: polled, .. } = op else { unreachable!("a poll") };
        let same = match (&*handle, polled) {
            (Handle::Descriptor(now), Handle::Descriptor(then)) => Arc::ptr_eq(now, then),
            (Handle::Simulated(now), Handle::Simulated(then)) => now == then,
            _ => false,
        };
        match result {
            Ok(events) if same => {
                *full = false;
                if events & u32::from(POLL_ERROR) != 0 {
                    self.reader_left();
                }
            }
            _ => {}
        }
    }

    fn line_done(&mut self, index: usize, result: Result<u32, Errno>) {
        let line = &mut self.lines[index];
        let pending = std::mem::replace(&mut line.pending, Pending::None);
        let expired = std::mem::take(&mut line.expired);
        if line.transfer.is_none() {
            // Its range was dropped while the kernel had its socket.
            line.discard();
            line.idle_since_us = self.now_us;
            self.free.push(index);
            return;
        }
        match result {
            Err(errno) if !(expired && errno == Errno::CANCELED) => {
                self.happened(index, Event::Failed(errno));
            }
            Err(_) => self.happened(index, Event::Expired),
            Ok(_) if pending == Pending::Connect => {
                let socket = line.socket.clone().expect("connected");
                match self.host.set_nonblocking(&socket) {
                    Ok(()) => self.happened(index, Event::Connected),
                    Err(errno) => self.happened(index, Event::Failed(errno)),
                }
            }
            Ok(_) => {
                line.readable = pending == Pending::Readable;
                self.drive(index);
            }
        }
    }
}
