//! One region of memory, cut into slots ([`super::slot`]), which any thread may return.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapMut, MmapOptions};

use super::Errno;
use super::slot::{Keeper, Slot};

/// Length of a huge page in bytes on every 64-bit Linux that runs io_uring at speed.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The kind of pages of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Ordinary pages that the kernel may merge into huge pages (MADV_HUGEPAGE).
    Transparent,
    /// Ordinary pages.
    Ordinary,
}

/// All slot memory of a run: one anonymous mapping, cut into chunks for the workers' pools.
pub struct Region {
    map: Mapping,
    length: usize,
    carved: AtomicUsize,
    pages: Pages,
}

/// Keeps the mapping alive; its bytes are accessed only through slots.
struct Mapping {
    base: NonNull<u8>,
    _map: MmapMut,
}

// SAFETY: `base` points into `_map`, which is owned and never remapped; moving or sharing the pair
// between threads moves no bytes. Access to the bytes goes through slots, which are disjoint.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared `Mapping` gives nobody access to bytes.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("length_bytes", &self.length)
            .field("carved_bytes", &self.carved)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Maps `length` bytes (rounded up to whole huge pages), zeroed, with MADV_HUGEPAGE. Reserved
    /// huge pages (MAP_HUGETLB) are not used: they are meant for other programs, and if a cgroup
    /// allows none the first access raises SIGBUS.
    ///
    /// # Errors
    /// The error of mmap(2), usually ENOMEM.
    pub fn new(length: usize) -> Result<Arc<Self>, Errno> {
        let length = length.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let mut map = MmapOptions::new().len(length).map_anon().map_err(Errno::from)?;
        let joined = map.advise(Advice::HugePage).is_ok();
        let pages = if joined { Pages::Transparent } else { Pages::Ordinary };
        let base = NonNull::new(map.as_mut_ptr()).expect("a mapping does not begin at null");
        let map = Mapping { base, _map: map };
        Ok(Arc::new(Self { map, length, carved: AtomicUsize::new(0), pages }))
    }

    /// Takes the next `length` bytes for one pool; `None` if the region is used up.
    #[must_use]
    pub fn carve(self: &Arc<Self>, length: usize) -> Option<RegionPart> {
        let start = self
            .carved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |carved| {
                carved.checked_add(length).filter(|end| *end <= self.length)
            })
            .ok()?;
        Some(RegionPart { region: Arc::clone(self), start, length })
    }

    /// Length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length
    }

    /// The kind of its pages.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }
}

/// A piece of a region for one pool: [`Region::carve`] never gives a byte twice.
#[derive(Debug)]
pub struct RegionPart {
    region: Arc<Region>,
    start: usize,
    length: usize,
}

/// The slots of one worker, all of one length.
#[derive(Clone)]
pub struct Pool {
    home: Arc<Home>,
}

struct Home {
    chunk: RegionPart,
    slot_length: u32,
    /// Free slots by index, last returned on top: its bytes are still in the cache.
    free: Mutex<Vec<u32>>,
    count: u32,
}

impl Home {
    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        // Each change is one push or one pop, so a panic leaves the list whole.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("slot_length_bytes", &self.home.slot_length)
            .field("slots", &self.home.count)
            .field("free", &self.free())
            .finish()
    }
}

impl Pool {
    /// Cuts a chunk into slots of `slot_length` bytes.
    ///
    /// # Panics
    /// If `slot_length` is 0.
    #[must_use]
    pub fn new(chunk: RegionPart, slot_length: u32) -> Self {
        assert!(slot_length > 0, "a slot has a length");
        let count = u32::try_from(chunk.length / slot_length as usize).unwrap_or(u32::MAX);
        let free = Mutex::new((0..count).rev().collect());
        Self { home: Arc::new(Home { chunk, slot_length, free, count }) }
    }

    /// Takes a free slot.
    #[must_use]
    pub fn take(&self) -> Option<Slot> {
        let index = self.home.free().pop()?;
        let at = self.home.chunk.start + index as usize * self.home.slot_length as usize;
        // SAFETY: `add` needs the result to stay within the mapping: index < count, so at +
        // slot_length <= start + length of the chunk, which `carve` checked against the region.
        let base = unsafe { self.home.chunk.region.map.base.add(at) };
        let keeper = Keeper::Pool(Piece { index, home: Arc::clone(&self.home) });
        // SAFETY: the bytes are within the mapping (above), which is zeroed at start and lives as
        // long as `home`, which the keeper holds. The index has left the free list until its keeper
        // is dropped, so no other slot covers them, and bytes are reached through slots alone.
        Some(unsafe { Slot::new(base, self.home.slot_length, keeper) })
    }

    /// Number of free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        self.home.free().len()
    }

    /// Number of slots.
    #[must_use]
    pub fn count(&self) -> usize {
        self.home.count as usize
    }

    /// Length of each slot in bytes.
    #[must_use]
    pub fn slot_length_bytes(&self) -> u32 {
        self.home.slot_length
    }

    /// Address and length of the pool's memory, for registration with a ring.
    pub(super) fn span(&self) -> (usize, usize) {
        let base = self.home.chunk.region.map.base.as_ptr() as usize;
        (base + self.home.chunk.start, self.home.chunk.length)
    }
}

/// The pool's share of a slot in use.
pub(super) struct Piece {
    index: u32,
    home: Arc<Home>,
}

impl Piece {
    /// Its index in the pool.
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.home.free().push(self.index);
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("index", &self.index).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_disjoint_and_come_back() {
        let region = Region::new(1 << 20).expect("memory");
        let pool = Pool::new(region.carve(64 << 10).expect("room"), 16 << 10);
        let mut slots: Vec<Slot> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((slots.len(), pool.free()), (4, 0));
        for (value, slot) in (1u8..).zip(&mut slots) {
            slot.fill(value);
        }
        for (value, slot) in (1u8..).zip(&slots) {
            assert!(slot.iter().all(|byte| *byte == value));
        }
        drop(slots);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn a_slot_goes_to_another_thread_and_comes_back() {
        let region = Region::new(1 << 20).expect("memory");
        let pool = Pool::new(region.carve(32 << 10).expect("room"), 16 << 10);
        let mut slot = pool.take().expect("free");
        slot.fill(7);
        let other = std::thread::spawn(move || {
            let is_right = slot.iter().all(|byte| *byte == 7);
            slot.fill(8);
            (is_right, slot)
        });
        let (is_right, slot) = other.join().expect("no panic");
        assert!(is_right && slot.iter().all(|byte| *byte == 8));
        assert_eq!(pool.free(), 1);
        std::thread::spawn(move || drop(slot)).join().expect("no panic");
        assert_eq!(pool.free(), 2);
    }

    /// Which pages of a pool's memory are present (proc_pid_pagemap(5)).
    fn pages_there(pool: &Pool) -> Vec<bool> {
        use std::os::unix::fs::FileExt;
        const PAGE_BYTES: usize = 4096;
        let (base, length) = pool.span();
        let mut words = vec![0; length / PAGE_BYTES * 8];
        let table = std::fs::OpenOptions::new().read(true).open("/proc/self/pagemap");
        let table = table.expect("the kernel shows this process's memory");
        table.read_exact_at(&mut words, (base / PAGE_BYTES * 8) as u64).expect("all pages");
        // Bit 63 of each word.
        words.chunks_exact(8).map(|word| word[7] & 0x80 != 0).collect()
    }

    #[test]
    fn pages_come_to_be_with_the_first_touch_of_whoever_has_the_slot() {
        let region = Region::new(3 * HUGE_PAGE_BYTES).expect("memory");
        // Use a separate huge page, which the kernel may allocate at once.
        let _before = region.carve(HUGE_PAGE_BYTES).expect("room");
        let pool = Pool::new(region.carve(HUGE_PAGE_BYTES).expect("room"), 64 << 10);
        assert!(pages_there(&pool).iter().all(|page| !page), "nobody has touched it");
        let mut slot = pool.take().expect("free");
        assert!(pages_there(&pool).iter().all(|page| !page), "taking one touches nothing");
        // A worker is pinned to its core by then, so its node provides the page.
        let slot = std::thread::spawn(move || {
            slot[0] = 1;
            slot
        });
        let _slot = slot.join().expect("no panic");
        assert!(pages_there(&pool)[0], "now there is one");
    }

    #[test]
    fn several_threads_read_one_slot() {
        let region = Region::new(1 << 20).expect("memory");
        let pool = Pool::new(region.carve(32 << 10).expect("room"), 16 << 10);
        let mut slot = pool.take().expect("free");
        slot.fill(7);
        let slot = std::sync::Arc::new(slot);
        let threads = [(); 3].map(|()| {
            let slot = std::sync::Arc::clone(&slot);
            std::thread::spawn(move || slot.iter().all(|byte| *byte == 7))
        });
        assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
        drop(slot);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_region_is_never_given_twice() {
        let region = Region::new(HUGE_PAGE_BYTES).expect("memory");
        let first = region.carve(HUGE_PAGE_BYTES - 4096).expect("room");
        let second = region.carve(4096).expect("room");
        assert_eq!(first.start + first.length, second.start);
        assert!(region.carve(1).is_none());
    }
}
