//! What a mount does with `--cache`: bytes that come for readers are written to the folder by
//! threads of their own, and an object all of whose bytes have come gets its name there.
//!
//! A thread has what it writes from the slot that it was received into. As long as a slot waits to
//! be written nothing new comes into it, so a disk that is slower than the network holds reads up,
//! and what waits is bounded by `--memory`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::io::Errno as Code;
use tokio::sync::mpsc;

use crate::engine::lease::Lease;
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::{Cache, Found, Unfinished, Wanted};
use crate::limits::CACHE_WRITERS;
use crate::mount::tree::Inode;
use crate::report::document::CacheCounts;
use crate::s3::{Endpoint, Object};

/// The cache of a mount, or of several.
#[derive(Debug)]
pub(in crate::command) struct Keeper {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    cache: Cache,
    queue: Mutex<Queue>,
    came: Condvar,
    /// Objects that are being read, by mount and inode.
    growing: Mutex<HashMap<(usize, Inode), Weak<Growing>>>,
    /// Nothing more is kept.
    is_full: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    kept_objects: AtomicU64,
    kept_bytes: AtomicU64,
    errors: mpsc::Sender<(usize, Error)>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_over: bool,
}

/// Bytes to write.
#[derive(Debug)]
struct Job {
    growing: Arc<Growing>,
    offset: u64,
    lease: Arc<Lease>,
}

/// An object of which bytes come; it is given up with the last file that has it open.
#[derive(Debug)]
pub(super) struct Growing {
    mount: usize,
    wanted: Wanted,
    /// It is kept, or will not be.
    is_over: AtomicBool,
    /// What is written of it. Whoever writes has the lock, so nobody does once it is whole.
    part: Mutex<Option<Part>>,
}

#[derive(Debug)]
struct Part {
    file: Unfinished,
    covered: Covered,
}

/// Ranges of an object, none of which touches another: ends by starts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a range.
    fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((other, other_end)) =
            self.0.range(..=end).next_back().map(|(start, end)| (*start, *end))
            && other_end >= start
        {
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    /// Whether it has all of a range.
    fn has(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// Whether it has all of so many bytes.
    fn is_all(&self, size_bytes: u64) -> bool {
        self.has(&(0..size_bytes))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Starts the threads. `errors`: why nothing more is kept, with the number of a mount.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub(super) fn start(cache: Cache, errors: mpsc::Sender<(usize, Error)>) -> Result<Self> {
        let zero = || AtomicU64::new(0);
        let shared = Arc::new(Shared {
            cache,
            queue: Mutex::default(),
            came: Condvar::new(),
            growing: Mutex::default(),
            is_full: AtomicBool::new(false),
            hits: zero(),
            misses: zero(),
            kept_objects: zero(),
            kept_bytes: zero(),
            errors,
        });
        let mut keeper = Self { shared, threads: Vec::new() };
        for _ in 0..CACHE_WRITERS {
            let shared = Arc::clone(&keeper.shared);
            let thread = std::thread::Builder::new().name("inrush-cache".to_owned());
            keeper.threads.push(thread.spawn(move || shared.work()).map_err(Error::no_thread)?);
        }
        Ok(keeper)
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Writes what has come, and has the disk take it.
    fn finish(&mut self) {
        lock(&self.shared.queue).is_over = true;
        self.shared.came.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
        if self.shared.kept_objects.load(Ordering::Relaxed) > 0
            && let Err(code) = self.shared.cache.sync()
        {
            tracing::warn!("the cache is not synced: {code}; a power failure may empty it");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// The file of an object that is kept whole.
    pub(super) fn find(&self, endpoint: &Endpoint, object: &Object) -> Option<Found> {
        let found = Wanted::new(endpoint, object).and_then(|wanted| self.cache.find(&wanted));
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// One that is kept is opened once more.
    pub(super) fn note_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// An object is opened that is not kept: where its bytes go; `None` where they go nowhere.
    pub(super) fn grow(
        &self,
        (mount, inode): (usize, Inode),
        endpoint: &Endpoint,
        object: &Object,
    ) -> Option<Arc<Growing>> {
        if self.is_full.load(Ordering::Relaxed) || object.size_bytes == 0 {
            return None;
        }
        let mut growing = lock(&self.growing);
        let known = growing.get(&(mount, inode)).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Some(known);
        }
        let wanted = Wanted::new(endpoint, object)?;
        let (is_over, part) = (AtomicBool::new(false), Mutex::new(None));
        let new = Arc::new(Growing { mount, wanted, is_over, part });
        // Those that nobody has open any more.
        growing.retain(|_, weak| weak.strong_count() > 0);
        growing.insert((mount, inode), Arc::downgrade(&new));
        Some(new)
    }

    /// Bytes of an object have come.
    pub(super) fn take(&self, growing: Arc<Growing>, offset: u64, lease: Arc<Lease>) {
        if self.is_full.load(Ordering::Relaxed) || growing.is_over.load(Ordering::Relaxed) {
            return;
        }
        lock(&self.queue).jobs.push_back(Job { growing, offset, lease });
        self.came.notify_one();
    }

    /// What it came to.
    pub(super) fn counts(&self) -> CacheCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheCounts {
            hits: of(&self.hits),
            misses: of(&self.misses),
            kept_objects: of(&self.kept_objects),
            kept_bytes: of(&self.kept_bytes),
            evicted_objects: self.cache.evicted(),
        }
    }

    /// Writes until the mount ends and nothing is left.
    fn work(&self) {
        while let Some(Job { growing, offset, lease }) = self.next() {
            if let Err(code) = self.write(&growing, offset, &lease) {
                growing.is_over.store(true, Ordering::Relaxed);
                self.stop(growing.mount, code);
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_over {
                return None;
            }
            queue = self.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes these bytes of an object; the last of them are followed by its name.
    fn write(&self, growing: &Growing, offset: u64, bytes: &[u8]) -> Result<(), Code> {
        let Growing { wanted, is_over, .. } = growing;
        let mut part = lock(&growing.part);
        if is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        if part.is_none() {
            *part = match self.cache.begin(wanted)? {
                Some(file) => Some(Part { file, covered: Covered::default() }),
                None => {
                    is_over.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            };
        }
        let Some(Part { file, covered }) = part.as_mut() else { return Ok(()) };
        let range = offset..offset + bytes.len() as u64;
        if covered.has(&range) {
            return Ok(());
        }
        file.write(bytes, offset)?;
        covered.add(&range);
        if covered.is_all(wanted.size_bytes) {
            is_over.store(true, Ordering::Relaxed);
            file.keep(&self.cache)?;
            *part = None;
            self.kept_objects.fetch_add(1, Ordering::Relaxed);
            self.kept_bytes.fetch_add(wanted.size_bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Nothing more is kept; what is kept goes on to be read.
    fn stop(&self, mount: usize, code: Code) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            let path = self.cache.path().display();
            let message = format!("--cache {path}: nothing more is kept there: {code}");
            let error = Error::new(ErrorKind::Destination, message);
            // Where too many errors wait already it is not the worst of them.
            let _ = self.errors.try_send((mount, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_any_order_are_all_of_an_object_at_the_last() {
        let pieces = [0..10, 10..15, 15..40, 40..41, 41..100];
        let mut chance = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            let mut order: Vec<Range<u64>> = pieces.to_vec();
            chance.shuffle(&mut order);
            let mut covered = Covered::default();
            for (number, range) in order.iter().enumerate() {
                assert!(!covered.is_all(100), "{round}: {order:?} after {number}");
                covered.add(range);
                // Some come twice, or overlap.
                covered.add(&(range.start.saturating_sub(chance.u64(..2))..range.end));
                let again = chance.choice(&order[..=number]).expect("one").clone();
                covered.add(&again);
            }
            assert!(covered.is_all(100), "{round}: {covered:?}");
            assert_eq!(covered.0.len(), 1, "{covered:?}");
        }
        let mut apart = Covered::default();
        apart.add(&(0..10));
        apart.add(&(20..30));
        apart.add(&(11..20));
        assert_eq!(apart.0, BTreeMap::from([(0, 10), (11, 30)]), "a byte is missing");
        assert!(!apart.is_all(30));
    }
}
