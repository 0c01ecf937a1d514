//! The thread that takes received chunks for the reads that wait for them, and ends those that wait
//! too long.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use tokio::sync::mpsc;

use super::super::cache_writer::CacheState;
use super::Reads;
use super::open_files::RequestedChunk;
use crate::engine::request::{Completion, Destination};
use crate::engine::threads::Workers;
use crate::error::{Error, ErrorKind, Result};
use crate::mount::demand::{Bounds, ChunkId};
use crate::sys::{Handle, descriptor};

/// The thread that takes received chunks.
#[derive(Debug)]
pub(in crate::mount::serving) struct Reader {
    pub(in crate::mount::serving) shared: Arc<Reads>,
    thread: Option<JoinHandle<()>>,
    chunk_bytes: u64,
}

impl Reader {
    /// Starts serving reads with these workers.
    pub(in crate::mount::serving) fn start(
        workers: &Workers,
        deadline: Option<Duration>,
        errors: mpsc::Sender<(usize, Error)>,
        cache_writer: Option<Arc<CacheState>>,
    ) -> Result<Self> {
        let config = workers.config();
        let chunk_bytes = u64::from(config.slot_length_bytes);
        let bounds = Bounds { leases: config.leases_max(), chunk_bytes };
        let scheduler = Arc::clone(&workers.scheduler);
        let shared = Arc::new(Reads::new(bounds, scheduler, deadline, errors, cache_writer)?);
        let works = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("inrush-reads".to_owned());
        let thread = thread.spawn(move || works.complete()).map_err(Error::no_thread)?;
        Ok(Self { shared, thread: Some(thread), chunk_bytes })
    }

    /// Longest read that can be answered, in bytes.
    pub(in crate::mount::serving) const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Ends it; waiting reads fail.
    pub(in crate::mount::serving) fn stop(mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl Reads {
    /// Takes received chunks until the mount ends.
    #[expect(clippy::disallowed_methods, reason = "reads are due at some time")]
    fn complete(&self) {
        let mut arrived = Vec::new();
        while !self.is_stopped.load(Ordering::Acquire) {
            self.inbox.collect(&mut arrived);
            if arrived.is_empty() {
                self.wait();
                descriptor::lower(&self.counter);
                self.inbox.collect(&mut arrived);
            }
            let now = Instant::now();
            for Completion { token, into, result } in arrived.drain(..) {
                let chunk = ChunkId(token);
                let mut state = self.lock();
                let asked = state.under_way.remove(&chunk);
                let is_right = result.is_ok();
                let mut kept = None;
                match (result, into) {
                    (Ok(()), Destination::Lease(lease)) => {
                        let lease = Arc::new(lease);
                        if let Some(RequestedChunk { file, offset, .. }) = asked {
                            state.count(file, |of| of.received_bytes += lease.len() as u64);
                            let growing = state.files.get(&file).and_then(|of| of.growing.clone());
                            kept = growing.map(|growing| (growing, offset, Arc::clone(&lease)));
                        }
                        state.here.insert(chunk, lease);
                    }
                    (Ok(()), _) => unreachable!("it was asked for so"),
                    (Err(error), _) => drop(state.lost.insert(chunk, error)),
                }
                state.demand.landed(chunk, is_right);
                let todo = self.act(&mut state);
                drop(state);
                if let (Some(cache_writer), Some((growing, offset, lease))) =
                    (&self.cache_writer, kept)
                {
                    cache_writer.take(growing, offset, lease);
                }
                self.finish(todo);
            }
            self.end_late(now);
        }
    }

    /// Fails reads that have waited too long.
    fn end_late(&self, now: Instant) {
        let Some(time) = self.deadline else { return };
        let mut late = Vec::new();
        let mut state = self.lock();
        while let Some((due, read)) = state.due.front().copied()
            && (due <= now || !state.waiting.contains_key(&read))
        {
            state.due.pop_front();
            if let Some(waiting) = state.waiting.remove(&read) {
                state.demand.give_up(read);
                late.push(waiting);
            }
        }
        let mut todo = self.act(&mut state);
        for waiting in late {
            let message = format!("no data within --deadline {}", humantime::format_duration(time));
            let error = Error::new(ErrorKind::Deadline, message);
            let errno = state.note_failure(waiting.file, Some(error), &mut todo);
            todo.failures.push((waiting.reply, errno));
        }
        drop(state);
        self.finish(todo);
    }

    /// Waits until a chunk comes, or a read is due.
    #[expect(clippy::disallowed_methods, reason = "reads are due at some time")]
    fn wait(&self) {
        let Handle::Descriptor(counter) = &self.counter else { return };
        let due = self.lock().due.front().map(|(due, _)| *due);
        let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
        // An interrupted wait is like one that has ended.
        let _ = rustix::event::poll(&mut [PollFd::new(counter, PollFlags::IN)], timeout.as_ref());
    }
}
