//! Bytes of a stream in user memory, between the workers that receive its ranges and the channel
//! that passes them to the reader in order: bytes that are decrypted, or compared with a checksum.
//!
//! Ranges arrive concurrently and take turns. The current range may always have a few buffers, so
//! the stream advances however much the others hold. The next ranges may be buffered whole, so that
//! several cores decrypt one stream; later ones are buffered only in part, and leave the rest in
//! their sockets until they come nearer. A worker that finds no room registers its waker, checks
//! again, and is woken when there is room. Buffers are reused, the last one first, because it is
//! still in the CPU cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::budget::RangeRoom;
use crate::limits::{BACKLOG_BUFFERS_AT_TURN, BACKLOG_BUFFERS_FAR, BACKLOG_RANGES_NEAR_MIN};
use crate::sys::{Handle, descriptor};

/// Memory limits of a stream's backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogBounds {
    /// Length of a buffer, in bytes.
    pub buffer_bytes: usize,
    /// Most bytes of all ranges before their turn.
    pub ahead_bytes: u64,
    /// Length of a whole range, in bytes.
    pub range_bytes: u64,
}

/// The bytes of one stream in memory. All atomics are sequentially consistent: a waiter and a
/// thread that frees room each write one value and then read the other's.
#[derive(Debug)]
pub struct Backlog {
    buffer_bytes: usize,
    /// Most buffers of all ranges except the current one.
    most: usize,
    /// Number of ranges after the current one that may use all of the room.
    near: u64,
    /// Number of the current range.
    turn: AtomicU64,
    /// Buffers in use.
    used: AtomicUsize,
    /// Ranges that wait for room.
    waiting: AtomicUsize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Backlog {
    /// An empty backlog; range 0 is current.
    #[must_use]
    pub fn new(room: BacklogBounds) -> Self {
        let most = usize::try_from(room.ahead_bytes).unwrap_or(usize::MAX) / room.buffer_bytes;
        let near = (room.ahead_bytes / 2 / room.range_bytes.max(1)).max(BACKLOG_RANGES_NEAR_MIN);
        Self {
            buffer_bytes: room.buffer_bytes,
            most,
            near,
            turn: AtomicU64::new(0),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            spare: Mutex::default(),
        }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Bytes of all buffers in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        (self.used() * self.buffer_bytes) as u64
    }

    /// Makes this range the current one.
    pub fn set_turn(&self, number: u64) {
        self.turn.store(number, Ordering::SeqCst);
    }

    /// True if a range waits for room; checked by threads that free some.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer to decrypt into; its content is arbitrary.
    #[must_use]
    pub fn take_buffer(&self) -> Vec<u8> {
        let spare = self.spare().pop();
        spare.unwrap_or_else(|| vec![0; self.buffer_bytes])
    }

    /// Takes back an unused buffer.
    pub fn put_back(&self, buffer: Vec<u8>) {
        self.spare().push(buffer);
    }
}

/// A buffer with bytes for the reader.
#[derive(Debug)]
pub struct Chunk {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Chunk {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// Wakes the worker that waits.
    waker: Option<Handle>,
}

/// The bytes of one range: its worker pushes, the channel pops.
#[derive(Debug)]
pub struct RangeBacklog {
    backlog: Arc<Backlog>,
    /// Its number in the stream.
    number: u64,
    queue: Mutex<Queue>,
    /// Buffers with its bytes.
    own: AtomicUsize,
    /// True if `waker` is set; lets readers skip the lock.
    is_waiting: AtomicBool,
    /// The range's share of the byte budget, held until its bytes are released.
    _room: Option<RangeRoom>,
}

impl RangeBacklog {
    /// An empty backlog for the range with this number and share of the byte budget.
    #[must_use]
    pub fn new(backlog: Arc<Backlog>, number: u64, room: Option<RangeRoom>) -> Self {
        Self {
            backlog,
            number,
            queue: Mutex::default(),
            own: AtomicUsize::new(0),
            is_waiting: AtomicBool::new(false),
            _room: room,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backlog of its stream.
    #[must_use]
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// True if one more buffer may be filled.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let own = self.own.load(Ordering::SeqCst);
        let turn = self.backlog.turn.load(Ordering::SeqCst);
        if self.number == turn && own < BACKLOG_BUFFERS_AT_TURN {
            return true;
        }
        // Its turn is over: the channel has dropped it, and its worker will soon notice.
        if self.number < turn {
            return false;
        }
        let (used, most) = (self.backlog.used(), self.backlog.most);
        let is_near = self.number - turn <= self.backlog.near;
        used < most && (is_near || used < most / 2 && own < BACKLOG_BUFFERS_FAR)
    }

    /// Registers a counter to be raised when there is room. Check [`Self::has_room`] again after
    /// this, before waiting.
    pub fn wait_for_room(&self, waker: &Handle) {
        if self.is_waiting.load(Ordering::SeqCst) {
            return;
        }
        let mut queue = self.queue();
        if queue.waker.replace(waker.clone()).is_none() {
            self.backlog.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    /// Removes the registered counter.
    pub fn stop_waiting(&self) {
        drop(self.take_waker());
    }

    fn take_waker(&self) -> Option<Handle> {
        if !self.is_waiting.load(Ordering::SeqCst) {
            return None;
        }
        let mut queue = self.queue();
        self.is_waiting.store(false, Ordering::SeqCst);
        let waker = queue.waker.take()?;
        self.backlog.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(waker)
    }

    /// Wakes the worker if it waits and there is room.
    pub fn wake(&self) {
        if self.is_waiting.load(Ordering::SeqCst)
            && self.has_room()
            && let Some(waker) = self.take_waker()
        {
            descriptor::raise(&waker);
        }
    }

    /// Appends the first `count` bytes of a buffer. A few bytes are copied into the last buffer
    /// instead.
    pub fn push(&self, buffer: Vec<u8>, count: usize) {
        let is_small = count <= buffer.len() / 4;
        let mut queue = self.queue();
        if let Some(last) = queue.chunks.back_mut().filter(|_| is_small)
            && last.buffer.len() - last.to >= count
        {
            last.buffer[last.to..last.to + count].copy_from_slice(&buffer[..count]);
            last.to += count;
            drop(queue);
            return self.backlog.put_back(buffer);
        }
        queue.chunks.push_back(Chunk { buffer, from: 0, to: count });
        self.own.fetch_add(1, Ordering::SeqCst);
        self.backlog.used.fetch_add(1, Ordering::SeqCst);
    }

    /// True if there are bytes for the reader.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        !self.queue().chunks.is_empty()
    }

    /// Takes the next bytes for the reader.
    #[must_use]
    pub fn pop(&self) -> Option<Chunk> {
        self.queue().chunks.pop_front()
    }

    /// Records that `count` bytes of a chunk were passed on; the rest of it comes next.
    ///
    /// # Panics
    /// If the chunk has fewer bytes.
    pub fn hand_on(&self, mut chunk: Chunk, count: usize) {
        chunk.from += count;
        assert!(chunk.from <= chunk.to, "no more than there are");
        if chunk.from < chunk.to {
            self.queue().chunks.push_front(chunk);
        } else {
            self.release(1);
            self.backlog.put_back(chunk.buffer);
        }
    }

    /// Returns all buffers: the bytes are no longer wanted.
    pub fn clear(&self) {
        let chunks = std::mem::take(&mut self.queue().chunks);
        self.release(chunks.len());
        chunks.into_iter().for_each(|chunk| self.backlog.put_back(chunk.buffer));
    }

    fn release(&self, count: usize) {
        self.own.fetch_sub(count, Ordering::SeqCst);
        self.backlog.used.fetch_sub(count, Ordering::SeqCst);
    }
}

impl Drop for RangeBacklog {
    fn drop(&mut self) {
        self.stop_waiting();
        self.clear();
        // For a chunk that was popped and not passed on completely.
        self.release(self.own.load(Ordering::SeqCst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for eight buffers ahead; two ranges are near.
    fn backlog() -> Arc<Backlog> {
        Arc::new(Backlog::new(BacklogBounds {
            buffer_bytes: 100,
            ahead_bytes: 800,
            range_bytes: 200,
        }))
    }

    fn range(backlog: &Arc<Backlog>, number: u64) -> RangeBacklog {
        RangeBacklog::new(Arc::clone(backlog), number, None)
    }

    /// Fills up to `most` buffers of a range while there is room; returns their number.
    fn fill(range: &RangeBacklog, most: usize) -> usize {
        let has_filled = |_: &usize| {
            let has_room = range.has_room();
            if has_room {
                range.push(range.backlog().take_buffer(), 100);
            }
            has_room
        };
        (0..most).take_while(has_filled).count()
    }

    fn is_raised(counter: &Handle) -> bool {
        let Handle::Descriptor(descriptor) = counter else { unreachable!("a counter") };
        let mut polls = [rustix::event::PollFd::new(descriptor, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_raised = rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0;
        descriptor::lower(counter);
        is_raised
    }

    #[test]
    fn the_range_whose_turn_it_is_has_room_whatever_the_others_hold() {
        let backlog = backlog();
        let [first, near, next, far] = [0, 1, 2, 3].map(|number| range(&backlog, number));
        assert_eq!(fill(&far, 9), BACKLOG_BUFFERS_FAR, "it has begun");
        assert_eq!(fill(&near, 9) + fill(&next, 9), 8 - BACKLOG_BUFFERS_FAR, "all there is");
        assert_eq!(fill(&first, 9), BACKLOG_BUFFERS_AT_TURN);
        backlog.set_turn(1);
        assert!(!near.has_room() && !first.has_room(), "each has more than its own");
        backlog.set_turn(3);
        assert_eq!(fill(&far, 9), BACKLOG_BUFFERS_AT_TURN - BACKLOG_BUFFERS_FAR);
        assert_eq!(backlog.used(), 8 + 2 * BACKLOG_BUFFERS_AT_TURN - BACKLOG_BUFFERS_FAR);
    }

    #[test]
    fn those_that_are_far_leave_half_to_those_that_are_near() {
        let backlog = backlog();
        let far: Vec<RangeBacklog> = (10..20).map(|number| range(&backlog, number)).collect();
        assert_eq!(far.iter().map(|range| fill(range, 9)).sum::<usize>(), 4);
        assert_eq!(fill(&range(&backlog, 2), 9), 4);
    }

    #[test]
    fn who_waits_is_woken_once_and_when_there_is_room() {
        let backlog = backlog();
        let [first, far] = [0, 9].map(|number| range(&backlog, number));
        let counter = descriptor::event_counter().expect("a descriptor");
        fill(&first, 9);
        first.wait_for_room(&counter);
        first.wake();
        assert!(backlog.is_awaited() && !is_raised(&counter), "there is no room");
        let chunk = first.pop().expect("a chunk");
        first.hand_on(chunk, 40);
        assert!(!is_raised(&counter), "its buffer is still in use");
        let chunk = first.pop().expect("the rest of it");
        assert_eq!(chunk.bytes().len(), 60);
        first.hand_on(chunk, 60);
        first.wake();
        assert!(is_raised(&counter) && !backlog.is_awaited());
        first.wake();
        assert!(!is_raised(&counter), "it was woken already");
        fill(&far, 9);
        far.wait_for_room(&counter);
        backlog.set_turn(9);
        far.wake();
        assert!(is_raised(&counter), "its turn has come");
    }

    #[test]
    fn bytes_come_out_in_order_however_they_came_in() {
        let backlog = backlog();
        for counts in [[1, 1, 1, 1], [100, 3, 25, 26], [25, 25, 25, 100], [90, 25, 10, 10]] {
            let range = range(&backlog, 0);
            let (mut wanted, mut got) = (Vec::new(), Vec::new());
            for (value, count) in (1..).zip(counts) {
                let mut buffer = backlog.take_buffer();
                buffer[..count].fill(value);
                wanted.extend(std::iter::repeat_n(value, count));
                range.push(buffer, count);
            }
            while let Some(chunk) = range.pop() {
                let count = chunk.bytes().len().min(7);
                got.extend_from_slice(&chunk.bytes()[..count]);
                range.hand_on(chunk, count);
            }
            assert_eq!(got, wanted, "{counts:?}");
            assert!(!range.has_bytes() && backlog.used() == 0);
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_gives_its_buffers_back() {
        let backlog = backlog();
        let range = range(&backlog, 0);
        assert_eq!(fill(&range, 3), 3);
        range.wait_for_room(&descriptor::event_counter().expect("a descriptor"));
        let chunk = range.pop();
        drop(range);
        assert!(backlog.used() == 0 && !backlog.is_awaited() && chunk.is_some());
        assert_eq!(backlog.spare().len(), 2);
    }
}
