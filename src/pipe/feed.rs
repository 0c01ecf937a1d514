//! What comes next in a channel's stream: objects and the ends of epochs, in order, bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::limits::FEED_OBJECTS_MAX;
use crate::plan::ranges::{PartSize, Ranges};
use crate::s3::ByteRange;
use crate::sys::{Handle, descriptor};
use crate::transfer::Transfer;

/// One step of the stream.
#[derive(Debug, Clone)]
pub enum Step {
    /// Bytes of an object.
    Range(Arc<Transfer>, ByteRange),
    /// The end of an epoch.
    EpochEnd,
}

/// What the feed has now.
#[derive(Debug)]
pub enum Next {
    /// This.
    Step(Step),
    /// Nothing yet; the counter is raised when there is.
    Later,
    /// Nothing any more.
    Ended,
}

/// A channel's stream, from the control plane to its feeder.
#[derive(Debug)]
pub struct Feed {
    state: Mutex<State>,
    stopped: AtomicBool,
    /// The epoch that is being read, or waits for its reader.
    reading: AtomicU64,
    counter: Handle,
    part: PartSize,
}

#[derive(Debug, Default)]
struct State {
    objects: VecDeque<Entry>,
    /// The object in front, cut into ranges.
    open: Option<(Arc<Transfer>, Ranges)>,
    complete: bool,
    asleep: bool,
    /// Epochs before this one are not wanted any more.
    wanted: u64,
    /// The epoch of what comes next.
    epoch: u64,
    stop: Option<Error>,
}

#[derive(Debug)]
enum Entry {
    Object(Arc<Transfer>),
    EpochEnd,
}

impl Feed {
    /// An empty feed whose reader sleeps on `counter`.
    #[must_use]
    pub fn new(counter: Handle, part: PartSize) -> Self {
        Self {
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            reading: AtomicU64::new(0),
            counter,
            part,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.asleep) {
            descriptor::raise(&self.counter);
        }
    }

    /// How many more objects it takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        FEED_OBJECTS_MAX.saturating_sub(self.lock().objects.len())
    }

    /// Takes the next objects; those without bytes add nothing to the stream.
    pub fn push(&self, objects: impl IntoIterator<Item = Arc<Transfer>>) {
        let mut state = self.lock();
        let some = objects.into_iter().filter(|transfer| transfer.object.size_bytes > 0);
        state.objects.extend(some.map(Entry::Object));
        self.wake(&mut state);
    }

    /// Ends the epoch.
    pub fn end_epoch(&self) {
        let mut state = self.lock();
        state.objects.push_back(Entry::EpochEnd);
        self.wake(&mut state);
    }

    /// Says that no epoch follows.
    pub fn complete(&self) {
        let mut state = self.lock();
        state.complete = true;
        self.wake(&mut state);
    }

    /// Ends the channel early. The first reason stays.
    pub fn stop(&self, reason: Error) {
        let mut state = self.lock();
        state.stop.get_or_insert(reason);
        self.stopped.store(true, Ordering::Release);
        state.asleep = true;
        self.wake(&mut state);
    }

    /// True when the channel was ended early.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The epoch that is being read, or waits for its reader.
    #[must_use]
    pub fn reading(&self) -> u64 {
        self.reading.load(Ordering::Acquire)
    }

    /// Says which epoch that is.
    pub fn set_reading(&self, epoch: u64) {
        self.reading.store(epoch, Ordering::Release);
    }

    /// Why it was ended early.
    #[must_use]
    pub fn stop_reason(&self) -> Option<Error> {
        self.lock().stop.clone()
    }

    /// The epoch that a reader has closed early is not wanted any more: its rest is passed over.
    pub fn skip_epoch(&self, epoch: u64) {
        let mut state = self.lock();
        state.wanted = state.wanted.max(epoch + 1);
        if state.epoch <= epoch {
            state.open = None;
        }
    }

    /// The next step of the stream.
    pub fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            if let Some((transfer, ranges)) = &mut state.open {
                if let Some(range) = ranges.next() {
                    return Next::Step(Step::Range(Arc::clone(transfer), range));
                }
                state.open = None;
            }
            match state.objects.pop_front() {
                Some(Entry::Object(transfer)) => {
                    if state.epoch >= state.wanted {
                        let ranges = Ranges::new(transfer.object.size_bytes, self.part);
                        state.open = Some((transfer, ranges));
                    }
                }
                Some(Entry::EpochEnd) => {
                    state.epoch += 1;
                    return Next::Step(Step::EpochEnd);
                }
                None if state.complete => return Next::Ended,
                None => {
                    state.asleep = true;
                    return Next::Later;
                }
            }
        }
    }
}
