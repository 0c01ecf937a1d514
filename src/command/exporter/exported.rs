//! What the parts of a command publish of themselves for its exports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::pace::{PaceSeen, Pacer};
use crate::engine::threads::{Watched, Workers};
use crate::link::failure::RetryCounts;
use crate::report::document::AllReads;
use crate::report::exposition::Numbers;
use crate::report::progress::ProgressState;

/// Returns the counters of some workers.
type Watch = Box<dyn Fn() -> Watched + Send>;

/// Returns the reads of mounts; `None` once they have ended.
type ReadsWatch = Box<dyn Fn() -> Option<AllReads> + Send>;

/// The counters of a command's parts.
#[derive(Default)]
pub(in crate::command) struct Exported {
    /// The workers, and the channels. A command starts few: workers for its files and for its
    /// streams.
    watches: Mutex<Vec<Watch>>,
    /// The reads of mounts, and their last result.
    reads: Mutex<Option<(ReadsWatch, AllReads)>>,
    known_objects: AtomicU64,
    known_bytes: AtomicU64,
    kept_objects: AtomicU64,
    failed_objects: AtomicU64,
    control_retries: AtomicU64,
}

impl Exported {
    /// Adds these workers.
    pub(in crate::command) fn watch(&self, workers: &Workers) {
        self.add(workers.watch());
    }

    /// Adds workers whose channels have their own pace.
    pub(in crate::command) fn watch_streams(&self, workers: &Workers) {
        let watch = workers.watch();
        self.add(move || Watched { pace: PaceSeen::default(), ..watch() });
    }

    /// Adds the counters of this pacer.
    pub(in crate::command) fn watch_pace(&self, pacer: Arc<Pacer>) {
        self.add(move || Watched { pace: pacer.seen(), ..Watched::default() });
    }

    fn add(&self, watch: impl Fn() -> Watched + Send + 'static) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(watch));
    }

    /// Adds the reads of mounts.
    pub(in crate::command) fn watch_reads(
        &self,
        reads: impl Fn() -> Option<AllReads> + Send + 'static,
    ) {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = Some((Box::new(reads), AllReads::default()));
    }

    /// Publishes the final reads of mounts that have ended.
    pub(in crate::command) fn show_reads(&self, reads: AllReads) {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = Some((Box::new(|| None), reads));
    }

    /// The reads of mounts so far.
    fn reads(&self) -> AllReads {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((watch, last)) = watched.as_mut() else { return AllReads::default() };
        if let Some(now) = watch() {
            *last = now;
        }
        last.clone()
    }

    /// Publishes the progress of a download.
    pub(in crate::command) fn show(&self, known: &ProgressState, failed_objects: u64) {
        self.known_objects.store(known.objects_known, Ordering::Relaxed);
        self.known_bytes.store(known.bytes_known, Ordering::Relaxed);
        self.kept_objects.store(known.objects_kept, Ordering::Relaxed);
        self.failed_objects.store(failed_objects, Ordering::Relaxed);
    }

    /// Publishes the final counters of a download, and the control plane's retries.
    pub(in crate::command) fn show_end(
        &self,
        known: &ProgressState,
        failed_objects: u64,
        retries: &RetryCounts,
    ) {
        self.show(known, failed_objects);
        self.show_control_retries(retries.iter().sum());
    }

    /// Publishes the control plane's retries.
    pub(in crate::command) fn show_control_retries(&self, count: u64) {
        self.control_retries.store(count, Ordering::Relaxed);
    }

    /// What was published so far, as numbers of a command that has no others.
    pub(super) fn numbers(&self) -> Numbers {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reads = self.reads();
        let cache = reads.cache.unwrap_or_default();
        let mut numbers = Numbers {
            failed_objects: load(&self.failed_objects),
            kept_objects: load(&self.kept_objects),
            known_objects: load(&self.known_objects),
            known_bytes: load(&self.known_bytes),
            control_retries: load(&self.control_retries),
            opened_files: reads.opens,
            reads: reads.counts.reads,
            failed_reads: reads.counts.failed_reads,
            read_bytes: reads.counts.served_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            ..Numbers::default()
        };
        for watch in self.watches.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let Watched { bytes, objects, retries, waiting, pace } = watch();
            numbers.bytes += bytes;
            numbers.objects += objects;
            numbers.retries += retries;
            numbers.answers += pace.answers;
            numbers.refused += pace.refused;
            numbers.waiting += waiting;
            numbers.wanted += pace.wanted;
            numbers.in_flight += pace.in_flight;
        }
        numbers
    }
}
