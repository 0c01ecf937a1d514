//! The simulated channels of Pipe mode: what the control plane does for each, and its places: how
//! they come and go, are read and marked, and are held after a failure.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use inrush::engine::stream::feed::{FeedItem, StreamFeed};
use inrush::error::{Error, ErrorKind};
use inrush::files::host::WholeEpoch;
use inrush::limits::TURN_WAIT_MAX_US;
use inrush::sys::Handle;

use super::plumbing::{End, Pipe, small};
use super::ring::LOST_CANCELS_MAX;
use super::seeds;
use super::world::World;

/// How long the last epoch waits for a reader that never comes, before the channel is stopped.
const NEVER_US: u64 = 1_000_000;

/// Longest time from a place's withdrawal to its reader's end of file: a turn for each lost cancel,
/// one for the cancel that is not lost, and as much again.
const END_US: u64 = 2 * (LOST_CANCELS_MAX as u64 + 2) * TURN_WAIT_MAX_US;

/// A part of an epoch in which its reader does one thing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    /// Time that it rests first, in microseconds.
    pub(crate) rest_us: u64,
    /// Bytes a second that it takes then: the time of what it has read passes before it reads on.
    pub(crate) bytes_per_second: u64,
    /// Bytes after which the next phase begins; the first follows the last.
    pub(crate) bytes: usize,
}

/// What a reader does with its epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// From the place's appearance to its opening; `u64::MAX` for never.
    pub(crate) late_us: u64,
    /// From its opening to the first read, at most.
    pub(crate) idle_us: u64,
    /// Bytes of one read, at most.
    pub(crate) gulp: u64,
    /// Time between two reads, at most.
    pub(crate) pace_us: u64,
    /// Reads of a thousand that are followed by a long pause.
    pub(crate) pause_per_mille: u64,
    /// Bytes after which it closes.
    pub(crate) leaves_at: Option<usize>,
    /// Reads by these, not by what is drawn; none: as drawn.
    pub(crate) phases: &'static [Phase],
}

/// Something that the control plane does.
#[derive(Debug)]
pub(crate) enum Act {
    Push(Vec<FeedItem>),
    EndEpoch,
    Complete,
    Stop,
}

/// An epoch's place and its reader.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) withdrawn: bool,
    /// Without the time for which the process was stopped.
    withdrawn_us: u64,
    /// Withdrawn after a failure, while somebody waited for its first byte.
    pub(crate) retired: bool,
    /// Its reader got it whole.
    pub(crate) marked: Option<WholeEpoch>,
    /// Its reader is kept from seeing an end.
    pub(crate) kept: bool,
    /// The write end, once opened.
    write_end: Option<Weak<OwnedFd>>,
    pipe: usize,
    pub(crate) manner: Manner,
    opens_us: u64,
    looked_us: Option<u64>,
    next_us: u64,
    pub(crate) got: Vec<u8>,
    /// When each of its phases began, and how many bytes it had then.
    pub(crate) begun: Vec<(u64, usize)>,
    pub(crate) left: bool,
    pub(crate) saw_end: bool,
    /// When its reader read first.
    pub(crate) first_us: u64,
}

impl Place {
    fn new(manner: Manner, now_us: u64) -> Self {
        Self {
            withdrawn: false,
            withdrawn_us: 0,
            retired: false,
            kept: false,
            marked: None,
            write_end: None,
            pipe: 0,
            manner,
            opens_us: now_us.saturating_add(manner.late_us),
            looked_us: None,
            next_us: 0,
            got: Vec::new(),
            begun: Vec::new(),
            left: false,
            saw_end: false,
            first_us: 0,
        }
    }

    pub(crate) fn opened(&self) -> bool {
        self.write_end.is_some()
    }

    /// True while the feeder or an operation of its ring holds the write end.
    pub(crate) fn held(&self) -> bool {
        self.write_end.as_ref().is_some_and(|end| end.strong_count() > 0)
    }

    /// When it had done what it does with the last bytes that it read.
    pub(crate) fn read_until_us(&self) -> u64 {
        self.next_us
    }

    /// The phase that it reads in, once its rest is over; begins the next where it has come to it.
    fn phase(&mut self, now_us: u64) -> Option<&'static Phase> {
        let phases = self.manner.phases;
        let of = |number: usize| &phases[number % phases.len()];
        let ends_at =
            self.begun.last().map_or(0, |(_, from)| from + of(self.begun.len() - 1).bytes);
        if self.got.len() == ends_at {
            let rest_us = of(self.begun.len()).rest_us;
            self.begun.push((now_us + rest_us, ends_at));
            self.next_us = now_us + rest_us;
            if rest_us > 0 {
                return None;
            }
        }
        Some(of(self.begun.len() - 1))
    }

    pub(super) fn is_done(&self) -> bool {
        self.left || self.saw_end
    }
}

/// A feeder's side of the world: its stream, and the places where readers look.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) feed: Arc<StreamFeed>,
    pub(crate) places: BTreeMap<u64, Place>,
    /// The reader of each epoch; beyond the last nobody comes.
    pub(crate) manners: Vec<Manner>,
    pub(crate) plan: VecDeque<(u64, Act)>,
    /// Epochs whose markers of earlier runs were removed.
    pub(crate) unmarked: Vec<u64>,
}

impl Channel {
    fn place(&mut self, epoch: u64) -> &mut Place {
        self.places.get_mut(&epoch).expect("a place")
    }

    /// When the next thing happens by itself.
    pub(super) fn next_us(&self, pipes: &[Pipe]) -> u64 {
        let plan = self.plan.front().map(|(at_us, _)| *at_us);
        let readers = self.places.values().filter_map(|place| {
            let acts = || {
                let leaves = place.manner.leaves_at == Some(place.got.len());
                leaves || !place.held() || !pipes[place.pipe].slots.is_empty()
            };
            (place.opened() && !place.is_done() && acts()).then_some(place.next_us)
        });
        plan.into_iter().chain(readers).min().unwrap_or(u64::MAX)
    }
}

/// Readers.
impl World {
    /// Lets the readers of a channel read, and looks that none waits in vain.
    pub(super) fn step_places(&mut self, channel: usize) {
        let mut places = std::mem::take(&mut self.plumbing.channels[channel].places);
        let is_interrupted = self.plumbing.channels[channel].feed.is_interrupted();
        for (epoch, place) in places.iter_mut().filter(|(_, place)| !place.is_done()) {
            assert!(!place.opened() || place.held() || place.withdrawn, "{epoch}: not withdrawn");
            let since_us = place.withdrawn_us + self.plumbing.stopped_us;
            let late = place.withdrawn && self.now_us > since_us + END_US;
            assert!(!(late && place.held()) || place.kept, "{epoch}: its reader sees no end");
            let may_end = !place.kept || place.left || is_interrupted;
            assert!(place.held() || may_end, "{epoch}: a failed stream ends");
            self.step_reader(place);
        }
        self.plumbing.channels[channel].places = places;
    }

    fn step_reader(&mut self, place: &mut Place) {
        if !place.opened() || place.next_us > self.now_us {
            return;
        }
        let pipe = &mut self.plumbing.pipes[place.pipe];
        if place.manner.leaves_at == Some(place.got.len()) {
            // What it has not read stays in the pipe (FIONREAD counts it) while a writer has it.
            place.left = true;
            pipe.reader_gone = true;
            let is_early = place.got.is_empty();
            let when = if is_early { "reader left before a byte" } else { "reader left" };
            seeds::note(when, 1);
            self.plumbing.events += 1;
            return;
        }
        if pipe.slots.is_empty() {
            place.saw_end = !place.held();
            return;
        }
        if place.got.is_empty() {
            place.first_us = self.now_us;
        }
        let mut left = 1 + small(self.chance.below(place.manner.gulp));
        let phase = if place.manner.phases.is_empty() { None } else { place.phase(self.now_us) };
        if place.next_us > self.now_us {
            // It rests.
            return;
        }
        if let Some(Phase { bytes, .. }) = phase {
            let (_, from) = place.begun.last().expect("just begun");
            left = left.min(from + bytes - place.got.len());
        }
        if let Some(leaves_at) = place.manner.leaves_at {
            left = left.min(leaves_at - place.got.len());
        }
        let had = place.got.len();
        while left > 0
            && let Some(slot) = pipe.slots.front_mut()
        {
            let count = left.min(slot.len());
            place.got.extend(slot.drain(..count));
            left -= count;
            if slot.is_empty() {
                pipe.slots.pop_front();
            }
        }
        let count = (place.got.len() - had) as u64;
        pipe.given += count;
        self.plumbing.events += 1;
        if let Some(Phase { bytes_per_second, .. }) = phase {
            place.next_us = self.now_us + (count * 1_000_000).div_ceil(*bytes_per_second);
            return;
        }
        let pause = self.chance.hits(place.manner.pause_per_mille);
        seeds::note("reader paused", u64::from(pause));
        let rest_us = if pause { 10_000_000 } else { place.manner.pace_us };
        place.next_us = self.now_us + 1 + self.chance.below(rest_us);
    }

    /// Bytes that went into the pipe of an epoch.
    pub(crate) fn put_in(&self, place: &Place) -> u64 {
        self.plumbing.pipes[place.pipe].taken
    }
}

/// Places.
impl World {
    pub(super) fn offer(&mut self, channel: usize, epoch: u64) {
        let now_us = self.now_us;
        let found = &mut self.plumbing.channels[channel];
        assert!(!found.places.contains_key(&epoch), "{epoch}: a place is offered once");
        if epoch > 0 {
            let before = &found.places[&(epoch - 1)];
            assert!(before.opened(), "{epoch}: offered before the one before it was opened");
        }
        let never = Manner { late_us: u64::MAX, ..found.manners[0] };
        let manner = found.manners.get(small(epoch)).copied().unwrap_or(never);
        found.places.insert(epoch, Place::new(manner, now_us));
    }

    pub(super) fn open_place(&mut self, channel: usize, epoch: u64) -> Option<Handle> {
        let now_us = self.now_us;
        let found = &mut self.plumbing.channels[channel];
        // Those before the one before this were looked at when that one was opened.
        let before = epoch.checked_sub(1).and_then(|before| found.places.get(&before));
        assert!(before.is_none_or(|place| place.withdrawn), "{epoch}: opened before it was over");
        let place = found.place(epoch);
        assert!(!place.withdrawn && !place.opened(), "{epoch}: a place is opened once");
        if now_us < place.opens_us {
            let waited_us = now_us - *place.looked_us.get_or_insert(now_us);
            if place.opens_us == u64::MAX && waited_us > NEVER_US {
                seeds::note("reader never came", 1);
                found.feed.stop(Error::new(ErrorKind::Interrupted, "stopped"));
            }
            return None;
        }
        let idle_us = place.manner.idle_us;
        let (handle, _, _) = self.make_pipe(false);
        let Handle::Descriptor(writer) = &handle else { unreachable!("a descriptor") };
        let (pipe, idle_us) = (self.plumbing.pipes.len() - 1, self.chance.below(idle_us));
        let place = self.plumbing.channels[channel].place(epoch);
        place.write_end = Some(Arc::downgrade(writer));
        place.pipe = pipe;
        place.next_us = now_us + idle_us;
        self.plumbing.events += 1;
        Some(handle)
    }

    pub(super) fn withdraw(&mut self, channel: usize, epoch: u64) {
        let now_us = self.now_us - self.plumbing.stopped_us;
        let Some(place) = self.plumbing.channels[channel].places.get_mut(&epoch) else { return };
        if !place.withdrawn && place.opened() {
            assert!(place.held(), "{epoch}: withdrawn after its write end was dropped");
        }
        if !place.withdrawn {
            place.withdrawn_us = now_us;
        }
        place.withdrawn = true;
    }
}

/// Markers.
impl World {
    pub(super) fn mark(&mut self, channel: usize, whole: WholeEpoch) {
        let place = self.plumbing.channels[channel].place(whole.epoch);
        assert!(place.held() && !place.withdrawn, "{whole:?}: after its end of file");
        assert!(place.marked.is_none(), "{whole:?}: twice");
        assert_eq!(place.got.len() as u64, whole.bytes, "{whole:?}: its reader has not got it");
        place.marked = Some(whole);
    }

    pub(super) fn unmark(&mut self, channel: usize, epoch: u64) {
        let found = &mut self.plumbing.channels[channel];
        assert!(!found.places.contains_key(&epoch), "{epoch}: an old marker beside its place");
        found.unmarked.push(epoch);
    }
}

/// After a failure.
impl World {
    pub(super) fn retire(&mut self, channel: usize, epoch: u64) -> Option<Handle> {
        let places = &self.plumbing.channels[channel].places;
        let is_offered = places.get(&epoch).is_some_and(|place| !place.withdrawn);
        let handle = if is_offered { self.open_place(channel, epoch) } else { None };
        self.withdraw(channel, epoch);
        if let Some(place) = self.plumbing.channels[channel].places.get_mut(&epoch) {
            (place.retired, place.kept) = (handle.is_some(), handle.is_some());
            seeds::note("place retired", u64::from(place.retired));
        }
        handle
    }

    /// Its reader is kept from seeing an end from now on.
    pub(super) fn keep(&mut self, channel: usize, handle: &Handle) {
        let End::Writer(pipe) = self.end(handle) else { unreachable!("a pipe") };
        let places = self.plumbing.channels[channel].places.values_mut();
        for place in places.filter(|place| place.opened()) {
            place.kept |= place.pipe == pipe;
        }
    }

    /// True when nobody reads there any more.
    pub(super) fn has_left(&self, handle: &Handle) -> bool {
        let End::Writer(pipe) = self.end(handle) else { unreachable!("a pipe") };
        self.plumbing.pipes[pipe].reader_gone
    }
}
