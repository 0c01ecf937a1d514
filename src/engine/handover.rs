//! The pipes of a range of a stream: its own pipe, and during its turn the reader's.
//!
//! Before its turn a range is spliced into its own pipe. During its turn the channel offers the
//! reader's pipe and starts to drain the range's own pipe into it. The range's worker accepts the
//! offer, moves the rest of the own pipe, and from then on splices from the socket directly into
//! the reader's pipe: one splice and one thread less for all bytes after the first pipe full.
//!
//! Both may drain the range's own pipe at the same time: splice(2) moves bytes between pipes under
//! the locks of both, so their order stays. Once the worker has the reader's pipe, the own pipe
//! gets only bytes that arrived together with a head, and those are moved on at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::budget::RangeRoom;
use crate::sys::Handle;

/// Marks that the worker does not wait.
const NEVER_US: u64 = u64::MAX;

/// The pipes of one range, shared by its worker and its channel.
#[derive(Debug)]
pub struct Handover {
    writer: Handle,
    reader: Handle,
    outlet: Mutex<Option<Handle>>,
    /// True if there is an outlet; lets readers skip the lock.
    is_offered: AtomicBool,
    is_taken: AtomicBool,
    /// Bytes that the worker has moved into the outlet and that were not counted yet.
    moved: AtomicU64,
    /// The worker is between a move and its count.
    is_moving: AtomicBool,
    /// Since when the worker waits for room in the outlet, and its total of earlier waits, in
    /// microseconds.
    waits_since_us: AtomicU64,
    waited_us: AtomicU64,
    has_no_reader: AtomicBool,
    /// The range's share of the byte budget, held until its bytes are released.
    _room: Option<RangeRoom>,
}

impl Handover {
    /// For a range whose own pipe has these ends, with its share of the byte budget.
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

    /// Write end of the range's own pipe.
    #[must_use]
    pub fn writer(&self) -> &Handle {
        &self.writer
    }

    /// Read end of the range's own pipe.
    #[must_use]
    pub fn reader(&self) -> &Handle {
        &self.reader
    }

    /// Offers the reader's pipe: it is the range's turn.
    pub fn offer(&self, outlet: &Handle) {
        if !self.is_offered.load(Ordering::Relaxed) {
            *self.outlet() = Some(outlet.clone());
            self.is_offered.store(true, Ordering::Release);
        }
    }

    /// Accepts the reader's pipe, if it was offered. The content of the own pipe must be moved
    /// first.
    #[must_use]
    pub fn take(&self) -> Option<Handle> {
        if !self.is_offered.load(Ordering::Acquire) {
            return None;
        }
        let outlet = self.outlet().clone();
        self.is_taken.store(true, Ordering::Release);
        outlet
    }

    /// True if the worker has accepted the reader's pipe.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Moves bytes into the reader's pipe, and counts them.
    ///
    /// # Errors
    /// The error of `move_bytes`.
    pub fn count_moved<E>(&self, move_bytes: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        self.is_moving.store(true, Ordering::SeqCst);
        let moved = move_bytes();
        if let Ok(count) = moved {
            self.moved.fetch_add(count, Ordering::SeqCst);
        }
        self.is_moving.store(false, Ordering::SeqCst);
        moved
    }

    /// True while the reader may have bytes that are not counted yet. Check this before
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

    /// Records that the worker starts to wait for room in the reader's pipe.
    pub fn wait_begins(&self, now_us: u64) {
        self.waits_since_us.store(now_us, Ordering::Release);
    }

    /// Records that the wait is over.
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

    /// Records that the reader has closed its pipe.
    pub fn lose_reader(&self) {
        self.has_no_reader.store(true, Ordering::Release);
    }

    /// True if the range failed because the reader closed its pipe.
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
            // A second connection for the same range accepts the pipe, too.
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
