//! The pipes of a range that goes into a stream: its own, and in its turn the reader's.
//!
//! Ahead of its turn a range is spliced into a pipe of its own. When its turn has come the channel
//! offers the reader's pipe and begins to empty the range's own pipe into it. The worker that
//! brings the range takes the offer, moves what is left in the range's own pipe, and splices out of
//! the socket into the reader's pipe from there: one splice and one thread less for all bytes
//! behind the first pipe full.
//!
//! Both may empty the range's own pipe at the same time: splice(2) moves bytes from pipe to pipe
//! under the locks of both, so their order stays. Once its worker has taken the reader's pipe,
//! nothing goes into the range's own but what came with a head, and that is moved on at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::budget::RangeRoom;
use crate::sys::Handle;

/// No time: nobody waits.
const NEVER_US: u64 = u64::MAX;

/// The pipes of one range, between its worker and its channel.
#[derive(Debug)]
pub struct Handover {
    writer: Handle,
    reader: Handle,
    outlet: Mutex<Option<Handle>>,
    /// Whether there is an outlet, for those who need not lock to see that there is none.
    is_offered: AtomicBool,
    is_taken: AtomicBool,
    /// Bytes that the worker has moved into the outlet, and that were not counted yet.
    moved: AtomicU64,
    /// The worker is between a move and its count.
    is_moving: AtomicBool,
    /// Since when the worker waits for room in the outlet, and how long it did before, in
    /// microseconds.
    waits_since_us: AtomicU64,
    waited_us: AtomicU64,
    has_no_reader: AtomicBool,
    /// The room of its bytes, until nobody holds them any more.
    _room: Option<RangeRoom>,
}

impl Handover {
    /// A range whose own pipe has these ends, and whose bytes have this room.
    #[must_use]
    pub fn new(writer: Handle, reader: Handle, room: Option<RangeRoom>) -> Self {
        Self {
            writer,
            reader,
            outlet: Mutex::default(),
            is_offered: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            is_moving: AtomicBool::new(false),
            waits_since_us: AtomicU64::new(NEVER_US),
            waited_us: AtomicU64::new(0),
            has_no_reader: AtomicBool::new(false),
            _room: room,
        }
    }

    fn outlet(&self) -> MutexGuard<'_, Option<Handle>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where bytes go into the range's own pipe.
    #[must_use]
    pub fn writer(&self) -> &Handle {
        &self.writer
    }

    /// Where they come out.
    #[must_use]
    pub fn reader(&self) -> &Handle {
        &self.reader
    }

    /// It is the range's turn: its worker may take the reader's pipe.
    pub fn offer(&self, outlet: &Handle) {
        if !self.is_offered.load(Ordering::Relaxed) {
            *self.outlet() = Some(outlet.clone());
            self.is_offered.store(true, Ordering::Release);
        }
    }

    /// Takes the reader's pipe, if it was offered. What stands in the range's own pipe goes first.
    #[must_use]
    pub fn take(&self) -> Option<Handle> {
        if !self.is_offered.load(Ordering::Acquire) {
            return None;
        }
        let outlet = self.outlet().clone();
        self.is_taken.store(true, Ordering::Release);
        outlet
    }

    /// True when the worker has taken the reader's pipe.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Moves bytes into the reader's pipe, and counts them.
    ///
    /// # Errors
    /// Those of the move.
    pub fn count_moved<E>(&self, move_bytes: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        self.is_moving.store(true, Ordering::SeqCst);
        let moved = move_bytes();
        if let Ok(count) = moved {
            self.moved.fetch_add(count, Ordering::SeqCst);
        }
        self.is_moving.store(false, Ordering::SeqCst);
        moved
    }

    /// True while the reader may have bytes that are not counted yet. Look at this before
    /// [`Self::take_moved`].
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::SeqCst)
    }

    /// Bytes that the worker has moved since the last call.
    pub fn take_moved(&self) -> u64 {
        match self.moved.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.moved.swap(0, Ordering::SeqCst),
        }
    }

    /// The worker waits for room in the reader's pipe from now on.
    pub fn wait_begins(&self, now_us: u64) {
        self.waits_since_us.store(now_us, Ordering::Release);
    }

    /// It waits no more.
    pub fn wait_ends(&self, now_us: u64) {
        let since_us = self.waits_since_us.swap(NEVER_US, Ordering::AcqRel);
        if since_us != NEVER_US {
            self.waited_us.fetch_add(now_us.saturating_sub(since_us), Ordering::AcqRel);
        }
    }

    /// True while the reader's pipe is full.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits_since_us.load(Ordering::Acquire) != NEVER_US
    }

    /// How long the worker has waited for the reader, in microseconds.
    #[must_use]
    pub fn waited_us(&self, now_us: u64) -> u64 {
        let since_us = self.waits_since_us.load(Ordering::Acquire);
        self.waited_us.load(Ordering::Acquire) + now_us.saturating_sub(since_us)
    }

    /// Nobody reads the reader's pipe any more.
    pub fn lose_reader(&self) {
        self.has_no_reader.store(true, Ordering::Release);
    }

    /// True when that is why the range has failed.
    #[must_use]
    pub fn has_no_reader(&self) -> bool {
        self.has_no_reader.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> Handover {
        Handover::new(Handle::Simulated(1), Handle::Simulated(2), None)
    }

    #[test]
    fn the_readers_pipe_is_taken_once_it_is_offered() {
        let handover = handover();
        assert!(handover.take().is_none() && !handover.is_taken());
        handover.offer(&Handle::Simulated(3));
        assert!(!handover.is_taken(), "nobody has looked");
        for _ in 0..2 {
            // A second connection that is asked for the same takes it, too.
            assert!(matches!(handover.take(), Some(Handle::Simulated(3))));
        }
        assert!(handover.is_taken());
    }

    #[test]
    fn what_was_moved_is_counted_once() {
        let handover = handover();
        for count in [5, 6] {
            let moved = handover.count_moved(|| {
                assert!(handover.is_moving(), "the reader may have them, and nobody knows");
                Ok::<u64, ()>(count)
            });
            assert_eq!((moved, handover.is_moving()), (Ok(count), false));
        }
        assert_eq!(handover.count_moved(|| Err(())), Err(()));
        assert_eq!((handover.take_moved(), handover.take_moved()), (11, 0));
    }

    #[test]
    fn waits_add_up_with_the_one_under_way() {
        let handover = handover();
        assert!(!handover.is_waiting() && handover.waited_us(50) == 0);
        handover.wait_ends(60);
        handover.wait_begins(100);
        assert!(handover.is_waiting());
        assert_eq!(handover.waited_us(130), 30);
        handover.wait_ends(150);
        assert!(!handover.is_waiting());
        handover.wait_begins(200);
        assert_eq!(handover.waited_us(210), 60);
    }
}
