//! Slots leased to clients: how many of a worker's slots may be leased, and who is woken when one
//! returns.
//!
//! A lease is reserved when its request is given to a worker, filled when its bytes have arrived,
//! and released when its holder drops it, on any thread. A thread that needs a lease first
//! registers its demand and then checks again: a returned lease raises the worker's counter only if
//! there is demand.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits::{LEASED_SLOTS_SHARE, UNLEASED_SLOTS_SHARE};
use crate::sys::{Handle, Slot, descriptor};

/// Most data slots that may be leased at the same time of a worker with `slots` slots.
#[must_use]
pub fn leases_of(slots: usize) -> usize {
    slots / LEASED_SLOTS_SHARE
}

/// Like [`leases_of`], if nothing but leases uses slots.
#[must_use]
pub fn leases_alone_of(slots: usize) -> usize {
    slots - slots.div_ceil(UNLEASED_SLOTS_SHARE)
}

/// The leases of one worker. All atomics are sequentially consistent: a waiter and a thread that
/// returns a lease each write one value and then read the other's.
#[derive(Debug)]
pub struct Leases {
    /// Wakes the worker.
    counter: Handle,
    /// Most leases; 0 before the worker has its slots.
    most: AtomicUsize,
    /// Leases that are reserved or filled.
    out: AtomicUsize,
    /// Leases that hold a slot.
    held: AtomicUsize,
    /// The worker waits for a data slot.
    slot_wanted: AtomicBool,
    /// Requests for leases that no worker has begun.
    demand: Arc<AtomicUsize>,
}

impl Leases {
    /// For a worker that is woken by this counter. `demand`: requests that wait for a lease of any
    /// worker.
    #[must_use]
    pub fn new(counter: Handle, demand: Arc<AtomicUsize>) -> Self {
        let [most, out, held] = [0; 3].map(AtomicUsize::new);
        Self { counter, most, out, held, slot_wanted: AtomicBool::new(false), demand }
    }

    /// Sets the limit for a worker with this many data slots.
    pub fn set_slots(&self, slots: usize) {
        self.most.store(leases_of(slots), Ordering::SeqCst);
    }

    /// Sets the limit directly, for a worker whose slots only leases use.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::SeqCst);
    }

    /// Most leases.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// True if one more may be reserved.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.out.load(Ordering::SeqCst) < self.most.load(Ordering::SeqCst)
    }

    /// Reserves a lease, if there is room.
    #[must_use]
    pub fn reserve(self: &Arc<Self>) -> Option<Lease> {
        let most = self.most.load(Ordering::SeqCst);
        let more = |out| (out < most).then_some(out + 1);
        self.out.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        let place = LeaseRight { leases: Arc::clone(self), has_slot: false };
        Some(Lease { state: LeaseState::Reserved(place) })
    }

    /// Slots held by clients.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Sets whether the worker waits for a data slot, so that a returned slot wakes it. The worker
    /// must check for a slot after this call and before it waits.
    pub fn want_slot(&self, is_wanted: bool) {
        // It changes rarely.
        if self.slot_wanted.load(Ordering::SeqCst) != is_wanted {
            self.slot_wanted.store(is_wanted, Ordering::SeqCst);
        }
    }
}

/// One of the leases that a worker may grant.
#[derive(Debug)]
struct LeaseRight {
    leases: Arc<Leases>,
    has_slot: bool,
}

impl Drop for LeaseRight {
    fn drop(&mut self) {
        let leases = &self.leases;
        if self.has_slot {
            leases.held.fetch_sub(1, Ordering::SeqCst);
        }
        leases.out.fetch_sub(1, Ordering::SeqCst);
        let is_awaited = leases.demand.load(Ordering::SeqCst) > 0;
        let is_wanted = self.has_slot
            && leases.slot_wanted.load(Ordering::SeqCst)
            && leases.slot_wanted.swap(false, Ordering::SeqCst);
        if is_awaited || is_wanted {
            descriptor::raise(&leases.counter);
        }
    }
}

/// The data of a range, in the slot of the engine's memory that received it. Dereferences to
/// exactly these bytes; empty until its request has completed.
///
/// Dropping it returns the slot, on any thread, even after the engine has ended.
#[derive(Default)]
pub struct Lease {
    state: LeaseState,
}

#[derive(Default)]
enum LeaseState {
    #[default]
    Empty,
    Reserved(LeaseRight),
    Held {
        /// Declared before its place, so that it returns first: the woken worker finds it.
        slot: Slot,
        range: Range<usize>,
        /// Only for its drop.
        _place: LeaseRight,
    },
}

impl Lease {
    /// An empty lease, for a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the slot with the bytes, and their range in it.
    ///
    /// # Panics
    /// If it was not reserved, or already has a slot.
    pub(crate) fn fill(&mut self, slot: Slot, range: Range<usize>) {
        let LeaseState::Reserved(mut place) = std::mem::take(&mut self.state) else {
            unreachable!("a lease is reserved once and filled once")
        };
        place.has_slot = true;
        place.leases.held.fetch_add(1, Ordering::SeqCst);
        self.state = LeaseState::Held { slot, range, _place: place };
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.state {
            LeaseState::Empty | LeaseState::Reserved(_) => &[],
            LeaseState::Held { slot, range, .. } => &slot[range.clone()],
        }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Lease {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("length_bytes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Pool, Region};

    struct Bench {
        leases: Arc<Leases>,
        demand: Arc<AtomicUsize>,
        pool: Pool,
    }

    fn bench() -> Bench {
        let demand = Arc::new(AtomicUsize::new(0));
        let counter = descriptor::event_counter().expect("a descriptor");
        let leases = Arc::new(Leases::new(counter, Arc::clone(&demand)));
        let region = Region::new(1 << 20).expect("memory");
        let pool = Pool::new(region.carve(64 << 10).expect("room"), 16 << 10);
        Bench { leases, demand, pool }
    }

    impl Bench {
        fn lease(&self) -> Lease {
            let mut lease = self.leases.reserve().expect("room");
            let mut slot = self.pool.take().expect("free");
            slot[3..8].copy_from_slice(b"bytes");
            lease.fill(slot, 3..8);
            lease
        }

        /// True if the worker was woken since the last call.
        fn is_woken(&self) -> bool {
            let Handle::Descriptor(counter) = &self.leases.counter else { unreachable!() };
            let mut polls = [rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let is_woken = rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0;
            descriptor::lower(&self.leases.counter);
            is_woken
        }
    }

    #[test]
    fn no_more_are_reserved_than_half_of_the_slots() {
        let bench = bench();
        assert!(bench.leases.reserve().is_none(), "it has no slots yet");
        bench.leases.set_slots(bench.pool.count());
        let (reserved, held) = (bench.leases.reserve().expect("room"), bench.lease());
        assert!(!bench.leases.has_room() && bench.leases.reserve().is_none());
        assert_eq!((&reserved[..], &held[..]), (&b""[..], &b"bytes"[..]));
        assert_eq!((bench.leases.held(), bench.pool.free()), (1, 3));
        drop(reserved);
        assert!(bench.leases.has_room());
        std::thread::spawn(move || drop(held)).join().expect("no panic");
        assert_eq!((bench.leases.held(), bench.pool.free()), (0, 4));
        let both = [bench.lease(), bench.lease()];
        assert!(!bench.leases.has_room() && both.len() == 2);
    }

    #[test]
    fn one_that_comes_back_wakes_only_who_waits() {
        let bench = bench();
        bench.leases.set_slots(4);
        drop(bench.lease());
        assert!(!bench.is_woken(), "nobody waits");
        bench.leases.want_slot(true);
        drop(bench.leases.reserve());
        assert!(!bench.is_woken(), "it had no slot");
        drop(bench.lease());
        assert!(bench.is_woken(), "a connection waits for a slot");
        drop(bench.lease());
        assert!(!bench.is_woken(), "it was woken already");
        bench.leases.want_slot(true);
        bench.leases.want_slot(false);
        drop(bench.lease());
        assert!(!bench.is_woken(), "it does not wait any more");
        bench.demand.store(1, Ordering::SeqCst);
        drop(bench.leases.reserve());
        assert!(bench.is_woken(), "a request waits for a lease");
    }

    #[test]
    fn its_bytes_outlive_the_pool() {
        let Bench { leases, pool, .. } = { bench() };
        leases.set_slots(4);
        let mut lease = leases.reserve().expect("room");
        let mut slot = pool.take().expect("free");
        slot.fill(7);
        lease.fill(slot, 0..9);
        drop((leases, pool));
        let bytes = std::thread::spawn(move || lease.to_vec()).join().expect("no panic");
        assert_eq!(bytes, [7; 9]);
    }
}
