//! The cache of a mount (`--cache`): separate threads write bytes that come for readers to the
//! folder, and an object with all of its bytes gets its name there.
//!
//! A thread writes directly from the slot that received the bytes. While a slot waits to be written
//! nothing else is received into it, so a disk that is slower than the network slows down reads,
//! and `--memory` limits the waiting bytes. If the disk stalls, the waiting bytes are dropped, and
//! reads continue without it.

mod growing;

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno as Code;
use tokio::sync::mpsc;

pub(super) use self::growing::Growing;
use crate::engine::lease::Lease;
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::{Cache, CachedObject, Wanted};
use crate::limits::{CACHE_DESCRIPTORS_SHARE, CACHE_STALL_MAX, CACHE_SYNC_PERIOD, CACHE_WRITERS};
use crate::mount::tree::Inode;
use crate::report::document::CacheCounts;
use crate::s3::{Endpoint, Object};
use crate::sys::usage;
use crate::text::size::Decimal;

/// Most messages about objects that are not cached: one of each kind.
pub(super) const UNCACHED_REPORTS_MAX: usize = 2;

/// Objects that are not cached, and the reason.
#[derive(Debug)]
pub(crate) enum Uncached {
    /// All further objects.
    Rest(Error),
    /// An object without space, before any was cached.
    NoRoom(String),
}

/// The cache of a mount, or of several.
#[derive(Debug)]
pub(crate) struct CacheWriter {
    shared: Arc<CacheState>,
    writers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

/// The state that the threads share.
#[derive(Debug)]
pub(super) struct CacheState {
    cache: Cache,
    queue: Mutex<WriteQueue>,
    came: Condvar,
    /// Notified when the mount ends.
    ends: Condvar,
    /// An object was added or used since the last sync.
    is_touched: AtomicBool,
    /// Number of descriptors in use, and its limit.
    files: AtomicUsize,
    files_max: usize,
    /// Objects that are being read, by mount and inode.
    growing: Mutex<HashMap<(usize, Inode), Weak<Growing>>>,
    /// Nothing more is cached.
    is_full: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    kept_objects: AtomicU64,
    kept_bytes: AtomicU64,
    /// The lack of space was reported.
    has_reported_room: AtomicBool,
    uncached: mpsc::Sender<Uncached>,
}

#[derive(Debug, Default)]
struct WriteQueue {
    jobs: VecDeque<WriteJob>,
    /// Number of the last item taken from the queue.
    taken: u64,
    is_over: bool,
    /// All queued bytes are written.
    is_written: bool,
}

/// Bytes to write.
#[derive(Debug)]
struct WriteJob {
    growing: Arc<Growing>,
    offset: u64,
    lease: Arc<Lease>,
}

/// One of the descriptors available for the cache.
#[derive(Debug)]
pub(super) struct Descriptor(Arc<CacheState>);

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CacheWriter {
    /// Starts the threads. `uncached` gets the reasons for objects that are not cached, at most
    /// [`UNCACHED_REPORTS_MAX`].
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn start(cache: Cache, uncached: mpsc::Sender<Uncached>) -> Result<Self> {
        let zero = || AtomicU64::new(0);
        let descriptors = usage::descriptors_max() / CACHE_DESCRIPTORS_SHARE;
        let why_empty = cache.why_empty();
        let shared = Arc::new(CacheState {
            cache,
            queue: Mutex::default(),
            came: Condvar::new(),
            ends: Condvar::new(),
            is_touched: AtomicBool::new(false),
            files: AtomicUsize::new(0),
            files_max: usize::try_from(descriptors).unwrap_or(usize::MAX),
            growing: Mutex::default(),
            is_full: AtomicBool::new(false),
            hits: zero(),
            misses: zero(),
            kept_objects: zero(),
            kept_bytes: zero(),
            has_reported_room: AtomicBool::new(why_empty.is_some()),
            uncached,
        });
        if let Some(why) = why_empty {
            shared.report_uncached("nothing is", &why);
        }
        let mut cache_writer = Self { shared, writers: Vec::new(), others: Vec::new() };
        for _ in 0..CACHE_WRITERS {
            cache_writer.writers.push(cache_writer.spawn(|shared| shared.work())?);
        }
        cache_writer.others.push(cache_writer.spawn(|shared| shared.sync_at_times())?);
        cache_writer.others.push(cache_writer.spawn(|shared| shared.watch())?);
        Ok(cache_writer)
    }

    fn spawn(
        &self,
        work: impl FnOnce(&Arc<CacheState>) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("inrush-cache".to_owned());
        thread.spawn(move || work(&shared)).map_err(Error::no_thread)
    }

    pub(super) fn shared(&self) -> Arc<CacheState> {
        Arc::clone(&self.shared)
    }

    /// Writes the queued bytes; no more will come.
    pub(super) fn finish(&mut self) {
        lock(&self.shared.queue).is_over = true;
        self.shared.came.notify_all();
        join(&mut self.writers);
    }
}

/// Panics have already been reported.
fn join(threads: &mut Vec<JoinHandle<()>>) {
    threads.drain(..).for_each(|thread| drop(thread.join()));
}

impl Drop for CacheWriter {
    /// Syncs cached objects, too.
    fn drop(&mut self) {
        self.finish();
        lock(&self.shared.queue).is_written = true;
        self.shared.ends.notify_all();
        join(&mut self.others);
        self.shared.sync();
    }
}

impl CacheState {
    /// The file of a cached object.
    pub(super) fn find(&self, endpoint: &Endpoint, object: &Object) -> Option<CachedObject> {
        let found = Wanted::new(endpoint, object).and_then(|wanted| self.cache.find(&wanted));
        match found.is_some() {
            true => self.note_hit(),
            false => _ = self.misses.fetch_add(1, Ordering::Relaxed),
        }
        found
    }

    /// Takes a descriptor; `None` if all are in use.
    pub(super) fn descriptor(self: &Arc<Self>) -> Option<Descriptor> {
        let before = self.files.fetch_add(1, Ordering::Relaxed);
        let taken = Descriptor(Arc::clone(self));
        (before < self.files_max).then_some(taken)
    }

    /// Counts an open of a cached object.
    pub(super) fn note_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.is_touched.store(true, Ordering::Relaxed);
    }

    /// Registers an object that is opened and not cached; returns the destination of its bytes, or
    /// `None`.
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
        let new = Arc::new(Growing::new(Wanted::new(endpoint, object)?));
        // Objects without open files.
        growing.retain(|_, weak| weak.strong_count() > 0);
        growing.insert((mount, inode), Arc::downgrade(&new));
        Some(new)
    }

    /// Queues received bytes of an object.
    pub(super) fn take(&self, growing: Arc<Growing>, offset: u64, lease: Arc<Lease>) {
        if self.is_full.load(Ordering::Relaxed) || growing.is_over() {
            return;
        }
        lock(&self.queue).jobs.push_back(WriteJob { growing, offset, lease });
        self.came.notify_one();
    }

    /// The counters.
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

    /// Writes until the mount ends and the queue is empty.
    fn work(self: &Arc<Self>) {
        while let Some(WriteJob { growing, offset, lease }) = self.next() {
            if let Err(code) = self.write(&growing, offset, &lease) {
                growing.drop_part();
                // After these errors another object may still be cached.
                let is_of_one = matches!(
                    code,
                    Code::NOSPC | Code::DQUOT | Code::MFILE | Code::NFILE | Code::NOENT
                );
                // The error of a call on a removed folder is less informative.
                match self.cache.is_gone() {
                    true => self.stop(&"the folder was removed"),
                    false if is_of_one => {}
                    false => self.stop(&code),
                }
            }
        }
    }

    fn next(&self) -> Option<WriteJob> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.taken += 1;
                return Some(job);
            }
            if queue.is_over {
                return None;
            }
            queue = self.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes these bytes of an object; the last ones are followed by its publication.
    fn write(self: &Arc<Self>, growing: &Growing, offset: u64, bytes: &[u8]) -> Result<(), Code> {
        let begin = |wanted: &Wanted| {
            let descriptor = self.descriptor().ok_or(Code::MFILE)?;
            let Some(file) = self.cache.begin(wanted)? else {
                self.report_no_room(wanted.size_bytes);
                return Err(Code::NOSPC);
            };
            Ok((file, descriptor))
        };
        if growing.write(&self.cache, offset, bytes, begin)? {
            self.kept_objects.fetch_add(1, Ordering::Relaxed);
            self.kept_bytes.fetch_add(growing.size_bytes(), Ordering::Relaxed);
            self.is_touched.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs cached objects periodically, until the mount ends.
    fn sync_at_times(&self) {
        while !self.ends_within(CACHE_SYNC_PERIOD) {
            self.sync();
        }
    }

    fn sync(&self) {
        if self.is_touched.swap(false, Ordering::Relaxed)
            && let Err(code) = self.cache.sync()
        {
            self.stop(&format!("it cannot be synced: {code}"));
        }
    }

    /// Abandons a stalled disk: reads need the memory that waits for it.
    fn watch(&self) {
        let mut before = 0;
        while !self.ends_within(CACHE_STALL_MAX) {
            let mut queue = lock(&self.queue);
            let is_stuck = queue.taken == before && !queue.jobs.is_empty();
            before = queue.taken;
            let jobs = if is_stuck { std::mem::take(&mut queue.jobs) } else { VecDeque::new() };
            drop(queue);
            for job in jobs {
                job.growing.give_up();
            }
            if is_stuck {
                self.stop(&"the disk does not answer");
            }
        }
    }

    /// Waits until the mount ends, at most for this time; true if it does.
    fn ends_within(&self, time: Duration) -> bool {
        let queue = lock(&self.queue);
        let waited = self.ends.wait_timeout_while(queue, time, |queue| !queue.is_written);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_written
    }

    /// Stops caching; cached objects are still read.
    fn stop(&self, why: &dyn Display) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            let path = self.cache.path().display();
            let message = format!("--cache {path}: nothing more is kept there: {why}");
            let error = Error::new(ErrorKind::Destination, message);
            let _ = self.uncached.try_send(Uncached::Rest(error));
        }
    }

    /// Reports once why an object is not cached if no other was cached before: otherwise the cause
    /// would be invisible.
    fn report_no_room(&self, size_bytes: u64) {
        let is_first = self.kept_objects.load(Ordering::Relaxed) == 0;
        if is_first && !self.has_reported_room.swap(true, Ordering::Relaxed) {
            let what = format!("an object of {} is not", Decimal(size_bytes));
            self.report_uncached(&what, &self.cache.why_no_room(size_bytes));
        }
    }

    fn report_uncached(&self, what: &str, why: &str) {
        let path = self.cache.path().display();
        let message = format!("--cache {path}: {what} kept: {why}");
        let _ = self.uncached.try_send(Uncached::NoRoom(message));
    }
}
