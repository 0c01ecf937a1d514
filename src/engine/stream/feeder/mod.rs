//! The loop that feeds one channel: many ranges in flight, one stream out.
//!
//! Each range is a request to the workers ([`crate::engine::request`]), which fill a pipe of its
//! own, or over TLS its share of the channel's memory ([`crate::engine::backlog`]). The window
//! keeps ranges in stream order: the front one is passed to the reader while the others fill. With
//! pipes, the worker of the front range is offered the reader's pipe, into which it moves the rest
//! ([`crate::engine::handover`]). The reader's rate is the back-pressure: a full pipe is not
//! polled, and waiting ranges cost nothing. Generic over ring and host, like the workers.

mod broken;
mod close;
mod comparison;
mod offer;
mod outlet;
mod range_length;
mod staging;
mod window;

use std::sync::Arc;

use super::feed::{NextStep, StreamFeed, StreamStep};
use super::inflate::Inflaters;
use crate::checksum::Mismatch;
use crate::engine::backlog::BacklogBounds;
use crate::engine::budget::{ChannelBudget, StreamBudget};
use crate::engine::metrics::{EpochCount, FeedCount, WaitFor};
use crate::engine::pace::{Bandwidth, Bounds, Pacer, Share, Totals};
use crate::engine::request::Inbox;
use crate::engine::schedule::Scheduler;
use crate::error::{Error, ErrorKind};
use crate::files::host::PipeHost;
use crate::limits::{
    FEED_LOOK_US, PAUSE_SHARE, PAUSE_SHORT_US, REST_WAIT_MAX_US, TURN_WAIT_MAX_US,
};
use crate::link::object::ObjectRef;
use crate::plan::ranges::PartSize;
use crate::s3::ByteRange;
use crate::sys::{Completion, Errno, Handle, Ring, descriptor};
use broken::Broken;
use comparison::Comparison;
use offer::offer;
use outlet::Outlet;
use range_length::RangeLength;
use staging::Staging;
use window::{Lost, Window};

/// Token of the wait for the channel's counter.
const TOKEN_WAKE: u64 = 1 << 40;
/// Token of the poll for room in the reader's pipe.
const TOKEN_ROOM: u64 = 1 << 41;
/// Token of the poll for the reader's hang-up.
const TOKEN_GONE: u64 = 1 << 42;
/// Token of the wait for a reader.
const TOKEN_READER: u64 = 1 << 43;

/// The parts of a feeder.
#[derive(Debug)]
pub struct FeederParts<R, H> {
    /// Its ring.
    pub ring: R,
    /// Its host.
    pub host: H,
    /// The content of the stream.
    pub feed: Arc<StreamFeed>,
    /// Raised when the feed has something, or a range has arrived.
    pub counter: Handle,
    /// Assigns its requests to workers.
    pub scheduler: Arc<Scheduler>,
    /// Bounds on the ranges in flight.
    pub connections: Bounds,
    /// The longest range.
    pub part: PartSize,
    /// The byte budget of all streams of the process.
    pub budget: Arc<StreamBudget>,
    /// Memory for bytes decrypted from TLS, or compared with a checksum.
    pub room: BacklogBounds,
    /// Threads that inflate the objects, if they are to be inflated.
    pub inflaters: Option<Arc<Inflaters>>,
    /// The user's limit.
    pub bandwidth: Option<Arc<Bandwidth>>,
    /// Number of epochs; `None`: no end.
    pub epochs: Option<u64>,
    /// True if the readers of a failed stream are held, and see no end of file.
    pub holds: bool,
    /// True if each epoch that its reader got whole gets a completion marker.
    pub marks: bool,
}

/// Feeds one channel.
#[derive(Debug)]
pub struct Feeder<R, H> {
    ring: R,
    host: H,
    feed: Arc<StreamFeed>,
    counter: Handle,
    epochs: Option<u64>,
    holds: bool,
    marks: bool,
    /// The whole epoch was passed on: when to check again whether its reader has taken it, and
    /// since when.
    unread: Option<(u64, u64)>,
    /// How long the front range's worker has waited for the reader, as counted so far.
    kept_us: u64,
    pieces_max: usize,
    range_length: RangeLength,
    budget: ChannelBudget,
    /// A range waits for room in the budget.
    lacks_room: bool,
    share: Share,
    /// Totals for the pacer.
    came: Totals,
    /// Requested ranges that were not passed on yet, in stream order.
    window: Window,
    outlet: Outlet,
    staging: Staging,
    comparison: Comparison,
    epoch: u64,
    /// Epochs whose FIFO was created: at most one after the current one.
    offered: u64,
    /// When creating the next epoch's FIFO, which failed, is tried again.
    offer_look_us: u64,
    /// The epoch whose outlet the ring polls for room, and for the reader's hang-up.
    room_polled: Option<u64>,
    gone_polled: Option<u64>,
    awaiting: bool,
    /// Nothing has happened since it went to rest.
    is_at_rest: bool,
    /// Raised when the awaited reader has opened the FIFO; `None` if nothing reports that.
    reader_event: Option<Handle>,
    reader_polled: bool,
    /// The feed may have something; it is checked again at this time whatever its counter says.
    fed: bool,
    feed_look_us: u64,
    /// The next range of the stream, which may not be requested yet.
    pending: Option<(Arc<ObjectRef>, ByteRange)>,
    /// Epochs that cannot be delivered whole; reported when a reader opens them, if ever.
    broken: Broken,
    ended: bool,
    now_us: u64,
    current: EpochCount,
    count: FeedCount,
    failure: Option<Error>,
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// A feeder, ready to run; creates the first epoch's FIFO.
    ///
    /// # Errors
    /// If that FIFO cannot be created.
    pub fn new(parts: FeederParts<R, H>) -> Result<Self, Error> {
        let FeederParts { ring, mut host, feed, counter, scheduler, connections, .. } = parts;
        let (epochs, holds, marks) = (parts.epochs, parts.holds, parts.marks);
        let pieces_max = connections.most as usize;
        assert!(pieces_max > 0, "a channel has a connection");
        if epochs != Some(0) {
            offer(&mut host, marks, 0)?;
        }
        let pacer = Arc::new(Pacer::new(connections, 1).within(parts.bandwidth));
        let inbox = Arc::new(Inbox::new(counter.clone(), Some(Arc::clone(&pacer))));
        let window = Window::new(scheduler, inbox, parts.room);
        let window = window.inflated(parts.inflaters, parts.room, &counter);
        Ok(Self {
            ring,
            host,
            feed,
            counter,
            epochs,
            holds,
            marks,
            unread: None,
            kept_us: 0,
            pieces_max,
            range_length: RangeLength::new(parts.part),
            budget: parts.budget.join(),
            lacks_room: false,
            share: Share::new(pacer, 0),
            came: Totals::default(),
            window,
            outlet: Outlet::Wanted { since_us: 0, look_us: 0 },
            staging: Staging::default(),
            comparison: Comparison::default(),
            epoch: 0,
            offered: u64::from(epochs != Some(0)),
            offer_look_us: 0,
            room_polled: None,
            gone_polled: None,
            awaiting: false,
            is_at_rest: false,
            reader_event: None,
            reader_polled: false,
            fed: true,
            feed_look_us: 0,
            pending: None,
            broken: Broken::default(),
            ended: false,
            now_us: 0,
            current: EpochCount::default(),
            count: FeedCount::default(),
            failure: None,
        })
    }

    /// Runs until every epoch has been read, or the channel is stopped.
    ///
    /// # Errors
    /// Why the stream could not continue: the reader saw an early end, or has left. The feed is
    /// stopped at once.
    pub fn run(&mut self) -> Result<(), Error> {
        let outcome = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(errno) => {
                    break Err(Error::new(ErrorKind::Host, format!("the ring failed: {errno}"))
                        .advise(errno.advice_for_ring())
                        .caused_by(std::io::Error::from(errno)));
                }
            }
        };
        let outcome = self.failure.take().map_or(outcome, Err);
        if let Err(error) = &outcome {
            self.feed.stop(error.clone());
        }
        self.close_up();
        self.count.pace = self.share.timeline();
        // Include answers that arrived after the last turn.
        self.note_pace();
        self.share.pacer().rest();
        self.count.endpoints = self.window.endpoint_names();
        self.count.validated_objects = self.comparison.validated();
        (self.count.sent, self.count.pipe_bytes_min) = self.window.counts();
        self.count.pipe_bytes_min =
            self.count.pipe_bytes_min.into_iter().chain(self.staging.capacity_bytes()).min();
        outcome
    }

    /// The pacer, for observers: requests wanted and in flight.
    #[must_use]
    pub fn pacer(&self) -> Arc<Pacer> {
        self.share.pacer()
    }

    /// The counts.
    #[must_use]
    pub fn count(&self) -> &FeedCount {
        &self.count
    }

    /// Operations that the kernel owns, and requests that have not completed; 0 after
    /// [`Self::run`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight() + self.window.requests()
    }

    /// One turn; false when all is done.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn turn(&mut self) -> Result<bool, Errno> {
        let Some(wait_us) = self.prepare() else { return Ok(false) };
        self.wait(wait_us)?;
        Ok(true)
    }

    /// The first half of a turn: does what can be done now. Returns how long the ring may wait, in
    /// microseconds; `None` when all is done.
    pub fn prepare(&mut self) -> Option<u64> {
        self.now_us = self.host.now_us();
        if self.feed.is_stopped() || self.failure.is_some() {
            return None;
        }
        self.look_for_reader();
        self.offer_ahead();
        self.take_completions();
        let budget = self.budget.all();
        if !self.is_at_rest && budget.is_time_to_look(self.now_us) {
            budget.note_memory(self.now_us, self.host.tcp_memory());
        }
        self.assign();
        self.inflate();
        self.deliver();
        // There may be room for more now.
        self.inflate();
        self.meet_broken();
        self.window.wake();
        if matches!(self.outlet, Outlet::Closed) || self.failure.is_some() {
            return None;
        }
        self.note_pace();
        self.watch();
        self.is_at_rest = self.rests();
        Some(self.longest_wait_us())
    }

    /// The second half: waits for completions, at most `wait_us`, and handles them.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn wait(&mut self, wait_us: u64) -> Result<(), Errno> {
        let before = self.now_us;
        self.ring.enter(wait_us)?;
        self.count.turns += 1;
        let backlog_bytes = self.window.backlog_bytes();
        self.count.backlog_bytes_max = self.count.backlog_bytes_max.max(backlog_bytes);
        self.now_us = self.host.now_us();
        self.account(before, self.now_us - before);
        while let Some(completion) = self.ring.reap() {
            self.is_at_rest = false;
            self.apply(completion);
        }
        Ok(())
    }

    /// Reports the reader's progress to the pacer. A reader slower than the network does not count
    /// as a bound.
    fn note_pace(&mut self) {
        self.take_moved();
        self.came.bytes += self.window.take_inflated();
        let is_full = matches!(self.outlet, Outlet::Open { full: true, .. })
            || self.window.handover().is_some_and(|pipes| pipes.is_waiting())
            || self.window.is_inflating();
        self.came.busy = u32::try_from(self.window.requests()).unwrap_or(u32::MAX);
        self.came.is_bound = self.room() == 0 && !is_full && !self.ended;
        // Ranges that have completed and wait for their turn use the budget, too.
        let ranges = u32::try_from(self.window.ranges()).unwrap_or(u32::MAX);
        self.came.held_up = if self.lacks_room { ranges } else { 0 };
        self.came.first_byte_us = self.window.inbox().first_byte_us();
        self.window.inbox().copy_ended_to(&mut self.came);
        self.range_length.note(&self.came);
        let share = &mut self.share;
        self.window.inbox().for_each_said(|endpoint, said| *share.said(endpoint) = said);
        self.share.note(self.now_us, self.came);
    }

    /// Longest length of the next range.
    fn part_now(&self) -> PartSize {
        let requests = u32::try_from(self.share.room(0)).unwrap_or(u32::MAX);
        self.budget.part(self.window.requested(), requests, self.range_length.longest())
    }

    /// How many more ranges may be in flight or wait for their turn.
    fn room(&self) -> usize {
        self.share.room(self.window.ranges())
    }

    /// Attributes the time that the ring slept to the reader or the network.
    fn account(&mut self, before_us: u64, slept_us: u64) {
        let what = self.waits_for(before_us);
        let kept_us = self.window.handover().map_or(0, |pipes| pipes.waited_us(self.now_us));
        let by_worker_us = kept_us.saturating_sub(std::mem::replace(&mut self.kept_us, kept_us));
        if let Outlet::Open { full, .. } = &self.outlet {
            let kept_us = match *full || self.unread.is_some() {
                true => slept_us,
                false => by_worker_us.min(slept_us),
            };
            self.current.reader_kept_us += kept_us;
            self.current.reader_waited_us += slept_us - kept_us;
            // Bytes that wait to be inflated do not wait for the network.
            let is_inflating = self.window.is_inflating();
            let behind_us = if is_inflating { slept_us } else { kept_us };
            self.came.reader_kept_us += behind_us;
            self.came.reader_waited_us += slept_us - behind_us;
            if is_inflating {
                self.current.inflating_us += slept_us - kept_us;
            } else {
                self.count.waits.note(what, slept_us - kept_us);
            }
        }
    }

    /// What it waits for, while its reader waits for bytes.
    fn waits_for(&self, now_us: u64) -> WaitFor {
        match &self.pending {
            Some(_) if self.lacks_room => WaitFor::Memory,
            Some((object, _)) if self.room() > 0 => {
                let endpoint = self.window.endpoint_of(object);
                match now_us < self.share.next_again_us(endpoint) {
                    true => WaitFor::Refused,
                    false if self.share.is_slowed(endpoint, now_us) => WaitFor::Bandwidth,
                    false => WaitFor::Requests,
                }
            }
            None if !self.fed && !self.ended => WaitFor::Work,
            _ => WaitFor::Requests,
        }
    }

    /// A range that cannot be fetched ends the channel, because a stream must have no gap; but only
    /// once a reader opens its epoch, unless it is the first.
    fn take_completions(&mut self) {
        let is_open = matches!(self.outlet, Outlet::Open { .. });
        let mut has_left = false;
        for lost in self.window.take_completions() {
            if lost.has_no_reader && is_open {
                has_left = true;
            } else {
                self.note_broken(lost);
            }
        }
        if has_left {
            self.reader_left();
        }
        self.meet_broken();
    }

    fn note_broken(&mut self, lost: Lost) {
        self.broken.note(self.epoch + lost.epochs, lost.object, lost.error);
    }

    /// The front object differs from its checksum: its last bytes are not passed on, and the
    /// stream fails.
    fn note_difference(&mut self, object: Arc<ObjectRef>, mismatch: &Mismatch) {
        let error = mismatch.error(false).within(format!("get {}", object.name()));
        self.note_broken(Lost { error, has_no_reader: false, object, epochs: 0 });
        self.meet_broken();
    }

    /// Passes received bytes to the inflaters. An object that cannot be inflated counts as failed.
    fn inflate(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match self.window.inflate(&mut self.host) {
            Ok(lost) => lost.into_iter().for_each(|lost| self.note_broken(lost)),
            Err(errno) => {
                let message = format!("cannot read a pipe: {errno}");
                self.failure = Some(Error::new(ErrorKind::Host, message));
            }
        }
    }

    /// Fails if the current epoch cannot be delivered whole.
    fn meet_broken(&mut self) {
        let has_reader = match self.outlet {
            Outlet::Open { .. } | Outlet::Left { .. } => true,
            // The first epoch fails at once.
            Outlet::Wanted { .. } => self.epoch == 0,
            Outlet::Skipping | Outlet::Closed => false,
        };
        let epoch = self.epoch;
        if !has_reader {
            return self.broken.forget_before(epoch);
        }
        if let Some((object, error)) = self.broken.take(epoch) {
            self.feed.note_end(epoch, object, self.now_us, Err(error.clone()));
            self.failure.get_or_insert(error);
        }
    }

    /// Requests the next ranges of the stream.
    fn assign(&mut self) {
        // A range that could not be requested is a gap: nothing may follow it, above all no end of
        // file.
        if self.failure.is_some() {
            return;
        }
        // A lost wake-up costs a pause, not the stream.
        self.fed |= self.feed_look_us <= self.now_us;
        while self.fed && !self.ended && self.window.takes_more(self.pieces_max) {
            let step = match self.pending.take() {
                Some((object, range)) => NextStep::StreamStep(StreamStep::Range(object, range)),
                None => self.feed.next(self.part_now()),
            };
            match step {
                NextStep::StreamStep(StreamStep::Range(object, range)) => {
                    // Steps without a request wait for nothing, above all the end of an epoch.
                    let asks = range.length > 0;
                    let endpoint = self.window.endpoint_of(&object);
                    let may_ask = self.room() > 0 && self.share.may_send(endpoint, self.now_us);
                    let is_read = matches!(self.outlet, Outlet::Open { .. });
                    let room = match may_ask {
                        true => self.budget.take(range.length, is_read),
                        false => None,
                    };
                    self.lacks_room = asks && may_ask && is_read && room.is_none();
                    if asks && room.is_none() {
                        self.pending = Some((object, range));
                        return;
                    }
                    if asks {
                        self.share.sent(endpoint, self.now_us, range.length);
                    }
                    if let Err(error) = self.window.ask(&mut self.host, object, range, room) {
                        self.failure.get_or_insert(error);
                        return;
                    }
                }
                NextStep::StreamStep(StreamStep::Inline(bytes)) => self.window.push_inline(bytes),
                NextStep::StreamStep(StreamStep::EpochEnd { objects }) => {
                    self.window.end_epoch(objects)
                }
                NextStep::Later => {
                    self.fed = false;
                    self.feed_look_us = self.now_us + FEED_LOOK_US;
                }
                NextStep::Ended => self.ended = true,
            }
        }
    }

    /// Longest wait of the ring, in microseconds.
    fn longest_wait_us(&self) -> u64 {
        let longest_us = if self.is_at_rest { REST_WAIT_MAX_US } else { TURN_WAIT_MAX_US };
        let mut next_us = self.now_us + longest_us;
        if let Outlet::Wanted { look_us, .. } = self.outlet {
            next_us = next_us.min(look_us);
        }
        if let Some((look_us, _)) = self.unread {
            next_us = next_us.min(look_us);
        }
        if let Some((object, _)) = &self.pending {
            let endpoint = self.window.endpoint_of(object);
            if self.share.is_slowed(endpoint, self.now_us) {
                next_us = next_us.min(self.share.next_us(endpoint));
            }
        }
        next_us.saturating_sub(self.now_us)
    }

    /// True if only the ring can change something: there is no reader, or it takes nothing.
    fn rests(&self) -> bool {
        let (open, is_watched) = match self.outlet {
            Outlet::Wanted { .. } => (None, self.reader_event.is_none() || self.reader_polled),
            Outlet::Open { full, .. } => {
                let takes_nothing =
                    full || self.window.handover().is_some_and(|pipes| pipes.is_waiting());
                let is_polled = self.room_polled.or(self.gone_polled) == Some(self.epoch);
                (Some(self.epoch), takes_nothing && is_polled)
            }
            _ => return false,
        };
        let is_stale = |polled: Option<u64>| polled.is_some() && polled != open;
        let has_stale = is_stale(self.room_polled) || is_stale(self.gone_polled);
        self.awaiting && is_watched && !has_stale
    }

    fn apply(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        match token {
            TOKEN_WAKE => {
                self.awaiting = false;
                descriptor::lower(&self.counter);
                self.fed = true;
            }
            TOKEN_READER => {
                self.reader_polled = false;
                self.reader_event.iter().for_each(descriptor::lower);
                if let Outlet::Wanted { look_us, .. } = &mut self.outlet {
                    *look_us = self.now_us;
                }
            }
            TOKEN_ROOM => {
                self.room_polled = None;
                self.on_reader_event(&op, result);
            }
            TOKEN_GONE => {
                self.gone_polled = None;
                self.on_reader_event(&op, result);
            }
            token => unreachable!("{token} is no token of a feeder"),
        }
    }
}

/// Pause until the next check of something awaited this long.
fn pause_us(first_us: u64, waited_us: u64) -> u64 {
    let longest_us = (waited_us / PAUSE_SHARE).clamp(PAUSE_SHORT_US, REST_WAIT_MAX_US);
    (first_us + waited_us).min(longest_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_stay_a_small_part_of_the_wait() {
        let (mut waited_us, mut looks) = (0, Vec::new());
        while waited_us < 100_000_000 {
            looks.push(pause_us(1_000, waited_us));
            waited_us += looks[looks.len() - 1];
        }
        assert_eq!(looks[..6], [1_000, 2_000, 4_000, 8_000, 16_000, PAUSE_SHORT_US]);
        assert_eq!(looks.last(), Some(&REST_WAIT_MAX_US));
        assert!(looks.len() < 400, "{} looks in 100 s", looks.len());
    }
}
