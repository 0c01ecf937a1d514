//! The loop that feeds one channel: many ranges at once on their way in, one stream out.
//!
//! Lines are kept in the order of the stream: the front one is handed on, the others fill their
//! sockets and private pipes. The reader's pace is the back-pressure: a full pipe is not polled,
//! and what waits costs nothing. Generic over ring and host, like the worker of File mode.

mod late;
mod line;
mod lines;
mod outlet;
mod secure;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::ClientConfig;

use super::feed::{Feed, Next, Step};
use crate::attempt::{Attempts, RetryPolicy};
use crate::conn::{Ask, Manner};
use crate::error::{Error, ErrorKind};
use crate::failure::RetryReason;
use crate::host::PipeHost;
use crate::limits::{FEED_LOOK_US, IDLE_TIMEOUT_US, READER_WAIT_FIRST_US, TURN_WAIT_MAX_US};
use crate::metrics::{EpochCount, FeedCount};
use crate::pace::{Bounds, Pacer, Share, Totals};
use crate::peers::{Addresses, NetworkClock, Paces, SharedAddresses, Times};
use crate::s3::ByteRange;
use crate::sys::{Completion, Errno, Handle, Ring, descriptor};
use crate::transfer::Transfer;
use line::{Line, LineState, Pending};
use outlet::{Outlet, offer};

/// Token of the wait for the feed's counter.
const TOKEN_WAKE: u64 = 1 << 40;
/// Token of the poll for room at the reader's end.
const TOKEN_ROOM: u64 = 1 << 41;
/// Token of the poll for the reader's going.
const TOKEN_GONE: u64 = 1 << 42;

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
    /// The configuration of TLS, where an endpoint uses it.
    pub tls: Option<Arc<ClientConfig>>,
    /// How many connections.
    pub connections: Bounds,
    /// How long a range is tried again.
    pub retries: RetryPolicy,
    /// How many epochs there will be; `None` for ever.
    pub epochs: Option<u64>,
    /// Whether a reader whose stream fails is kept waiting, and sees no end of file.
    pub holds: bool,
    /// Whether each epoch that its reader got whole is marked.
    pub marks: bool,
    /// What all feeders know of the endpoints' addresses.
    pub addresses: Arc<SharedAddresses>,
}

/// One piece of the stream, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Line(usize),
    EpochEnd { objects: u64 },
}

/// Feeds one channel.
#[derive(Debug)]
pub struct Feeder<R, H> {
    ring: R,
    host: H,
    feed: Arc<Feed>,
    counter: Handle,
    tls: Option<Arc<ClientConfig>>,
    retries: RetryPolicy,
    epochs: Option<u64>,
    holds: bool,
    marks: bool,
    /// All of the epoch is handed on: when to look whether its reader has taken it, and the pause
    /// after that.
    unread: Option<(u64, u64)>,
    /// Connections, made when they are needed first.
    lines: Vec<Line>,
    free: Vec<usize>,
    lines_max: usize,
    share: Share,
    /// What the pacer is told.
    came: Totals,
    /// The stream from its head on: what is fetched and not handed on.
    window: VecDeque<Piece>,
    outlet: Outlet,
    /// Epoch of the outlet, and of what is taken from the feed.
    epoch: u64,
    taking: u64,
    /// The epoch whose outlet the ring polls for room, and for the reader's going.
    room_polled: Option<u64>,
    gone_polled: Option<u64>,
    awaiting: bool,
    /// The feed may have something; looked at again at this time whatever its counter says.
    fed: bool,
    feed_look_us: u64,
    ended: bool,
    addresses: Addresses,
    paces: Paces,
    late_look_us: u64,
    wait_look_us: u64,
    clock: NetworkClock,
    /// The time by that clock: while the feeder is stopped or busy nothing is late.
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
        let FeederParts { ring, mut host, feed, counter, tls, connections, .. } = parts;
        let (retries, epochs) = (parts.retries, parts.epochs);
        let (holds, marks) = (parts.holds, parts.marks);
        let lines_max = connections.most as usize;
        assert!(lines_max > 0, "a channel has a connection");
        if epochs != Some(0) {
            offer(&mut host, marks, 0)?;
        }
        Ok(Self {
            ring,
            host,
            feed,
            counter,
            tls,
            retries,
            epochs,
            holds,
            marks,
            unread: None,
            lines: Vec::new(),
            free: Vec::new(),
            lines_max,
            share: Share::new(Arc::new(Pacer::new(connections, 1)), 0),
            came: Totals::default(),
            window: VecDeque::with_capacity(lines_max + 1),
            outlet: Outlet::Wanted { look_us: 0, pause_us: READER_WAIT_FIRST_US },
            epoch: 0,
            taking: 0,
            room_polled: None,
            gone_polled: None,
            awaiting: false,
            fed: true,
            feed_look_us: 0,
            ended: false,
            addresses: Addresses::new(parts.addresses),
            paces: Paces::default(),
            late_look_us: 0,
            wait_look_us: 0,
            clock: NetworkClock::default(),
            now_us: 0,
            current: EpochCount::default(),
            count: FeedCount::default(),
            failure: None,
        })
    }

    /// Runs until every epoch has been read, or the channel is stopped.
    ///
    /// # Errors
    /// What made the stream impossible to go on with: then the reader saw an early end, or it has
    /// left. The feed knows at once.
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
        self.count.pace = self.share.timeline();
        let outcome = self.failure.take().map_or(outcome, Err);
        if let Err(error) = &outcome {
            self.feed.stop(error.clone());
        }
        self.close_up();
        outcome
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
        self.now_us = self.clock.now_us();
        if self.feed.is_stopped() || self.failure.is_some() {
            return Ok(false);
        }
        self.paces.set_busy(self.busy());
        self.look_for_reader();
        self.assign();
        self.deliver();
        if matches!(self.outlet, Outlet::Closed) || self.failure.is_some() {
            return Ok(false);
        }
        let wait_us = self.tend();
        self.watch();
        let before = self.now_us;
        self.clock.ring_entered(self.host.now_us(), wait_us);
        self.ring.enter(wait_us)?;
        self.clock.ring_left(self.host.now_us());
        self.count.turns += 1;
        self.now_us = self.clock.now_us();
        self.account(self.now_us - before);
        while let Some(completion) = self.ring.reap() {
            self.apply(completion);
        }
        self.show_waiting();
        self.note_pace();
        Ok(true)
    }

    /// Tells the pacer what the reader got. A reader that is slower than the network binds nothing.
    fn note_pace(&mut self) {
        let is_full = matches!(self.outlet, Outlet::Open { full: true, .. });
        self.came.busy = u32::try_from(self.busy()).unwrap_or(u32::MAX);
        self.came.is_bound = self.room() == 0 && !is_full && !self.ended;
        self.came.refused = self.count.retries[RetryReason::SlowDown as usize];
        self.share.note(self.now_us, self.came);
    }

    /// Lines that have something to bring or to hand on.
    fn busy(&self) -> usize {
        self.lines.len() - self.free.len()
    }

    /// How many more may have.
    fn room(&self) -> usize {
        // Its bounds are the pacer's.
        self.share.room(self.busy())
    }

    /// Says who waited for whom while the ring slept.
    fn account(&mut self, slept_us: u64) {
        if let Outlet::Open { full, .. } = &self.outlet {
            if *full || self.unread.is_some() {
                self.current.reader_kept_us += slept_us;
            } else {
                self.current.reader_waited_us += slept_us;
            }
        }
    }

    /// Gives free lines the next ranges of the stream.
    fn assign(&mut self) {
        // A wake-up that was lost costs a pause, not the stream.
        self.fed |= self.feed_look_us <= self.now_us;
        while self.fed && !self.ended && self.window.len() <= self.lines_max {
            if self.room() == 0 || !self.share.may_send(self.now_us) {
                return;
            }
            match self.feed.next() {
                Next::Step(Step::Range(transfer, range)) => {
                    let index = self.free.pop().unwrap_or_else(|| {
                        self.lines.push(Line::new());
                        self.lines.len() - 1
                    });
                    self.share.sent();
                    self.window.push_back(Piece::Line(index));
                    self.begin(index, transfer, range);
                }
                Next::Step(Step::EpochEnd { objects }) => {
                    self.taking += 1;
                    self.window.push_back(Piece::EpochEnd { objects });
                }
                Next::Later => {
                    self.fed = false;
                    self.feed_look_us = self.now_us + FEED_LOOK_US;
                }
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
        (line.attempts, line.last_failure) = (Attempts::default(), None);
        line.moves = 0;
        (line.late_end, line.last_step, line.times) = (None, None, Times::default());
        line.epoch = self.taking;
        (line.full, line.readable) = (false, false);
        let ask = Ask {
            range,
            size: transfer.object.size_bytes,
            manner: Manner::Stream,
            etag: transfer.etag,
            check: None,
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
                Outlet::Skipping if matches!(piece, Piece::EpochEnd { .. }) => {
                    self.window.pop_front();
                    self.finish_epoch();
                    continue;
                }
                _ => return,
            };
            match piece {
                Piece::EpochEnd { objects } => {
                    if self.marks && !self.is_marked(&out, objects) {
                        return;
                    }
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
        // What its pipe had no room for may go in now.
        let moved = self.move_body(index);
        self.carry_out(index);
        moved
    }

    fn delivered(&mut self, count: u64) {
        let since = self.now_us.saturating_sub(self.current.opened_us);
        self.current.first_byte_us.get_or_insert(since);
        self.current.bytes += count;
        self.came.bytes += count;
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
            self.end_early(index);
        }
    }

    /// Has the ring give a line's operation back; asked for again while it does not, for a cancel
    /// may be lost.
    fn end_early(&mut self, index: usize) {
        let line = &mut self.lines[index];
        line.expired = true;
        line.deadline_us = self.now_us + TURN_WAIT_MAX_US;
        self.ring.cancel(index as u64);
    }

    /// Ends late waits, wakes sleeping lines, closes idle ones; returns how long the ring may wait.
    fn tend(&mut self) -> u64 {
        let mut next_us = self.end_latest().min(self.now_us + TURN_WAIT_MAX_US);
        if let Outlet::Wanted { look_us, .. } = self.outlet {
            next_us = next_us.min(look_us);
        }
        if let Some((look_us, _)) = self.unread {
            next_us = next_us.min(look_us);
        }
        if self.share.is_slowed(self.now_us) {
            next_us = next_us.min(self.share.next_us());
        }
        for index in 0..self.lines.len() {
            let line = &mut self.lines[index];
            if line.pending != Pending::None {
                if line.deadline_us <= self.now_us {
                    self.end_early(index);
                }
                next_us = next_us.min(self.lines[index].deadline_us);
            } else if let LineState::Backoff { until_us } = line.state {
                if until_us <= self.now_us && self.share.may_send(self.now_us) {
                    self.share.sent();
                    let line = &mut self.lines[index];
                    line.state = LineState::Busy;
                    line.conn.resume();
                    self.drive(index);
                } else {
                    next_us = next_us.min(until_us.max(self.share.next_us()));
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

    fn apply(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        match token {
            TOKEN_WAKE => {
                self.awaiting = false;
                descriptor::lower(&self.counter);
                self.fed = true;
            }
            TOKEN_ROOM => {
                self.room_polled = None;
                self.reader_stirred(&op, result);
            }
            TOKEN_GONE => {
                self.gone_polled = None;
                self.reader_stirred(&op, result);
            }
            token => self.line_done(usize::try_from(token).expect("an index"), result),
        }
    }
}
