//! Connects programs' reads with the engine: requests the chunks that [`Demand`] selects, and
//! answers the kernel directly from the slots that received them.
//!
//! Threads of the kernel's requests call [`Reads::read`] and never wait for bytes; a separate
//! thread takes received chunks. Under the lock there are only decisions: answers are written
//! without it.
//!
//! [`Demand`]: crate::mount::demand::Demand

mod completion;
mod open_files;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Errno, FileHandle};
use tokio::sync::mpsc;

pub(super) use self::completion::Reader;
pub(crate) use self::open_files::Closed;
use self::open_files::{Open, ReadsState, RequestedChunk, Todo, WaitingRead, closed_kept};
use super::cache_writer::CacheState;
use super::reply::ReadReply;
use super::version_check::VersionCheck;
use crate::engine::lease::Lease;
use crate::engine::request::{ClientRequest, Destination, Inbox, Priority, Ticket};
use crate::engine::schedule::Scheduler;
use crate::engine::threads::event_counter;
use crate::engine::waited::Waited;
use crate::error::{Error, Result};
use crate::limits::REQUESTS_QUEUED_MAX;
use crate::link::object::ObjectRef;
use crate::mount::demand::{Action, Bounds, FileId, ReadId};
use crate::mount::tree::Inode;
use crate::report::document::{AllReads, ReadCounts};
use crate::s3::{ByteRange, Endpoint, Object};
use crate::sys::{Handle, descriptor};

/// The state that all threads of a mount share.
#[derive(Debug)]
pub(crate) struct Reads {
    state: Mutex<ReadsState>,
    scheduler: Arc<Scheduler>,
    inbox: Arc<Inbox>,
    counter: Handle,
    deadline: Option<Duration>,
    errors: mpsc::Sender<(usize, Error)>,
    /// Files that are read from the cache and reported when they are closed, by handle.
    kept: Mutex<HashMap<u64, (Arc<ObjectRef>, Instant)>>,
    /// Gets closed files.
    closed: OnceLock<mpsc::Sender<Closed>>,
    is_stopped: AtomicBool,
    /// Time that reads have waited.
    waited: Waited,
    /// The cache, if there is one.
    cache_writer: Option<Arc<CacheState>>,
}

impl Reads {
    /// No file is open.
    ///
    /// # Errors
    /// If there is no descriptor for wake-ups.
    fn new(
        bounds: Bounds,
        scheduler: Arc<Scheduler>,
        deadline: Option<Duration>,
        errors: mpsc::Sender<(usize, Error)>,
        cache_writer: Option<Arc<CacheState>>,
    ) -> Result<Self> {
        let counter = event_counter()?;
        Ok(Self {
            state: Mutex::new(ReadsState::new(bounds)),
            scheduler,
            inbox: Arc::new(Inbox::new(counter.clone(), None)),
            counter,
            deadline,
            errors,
            kept: Mutex::default(),
            closed: OnceLock::new(),
            is_stopped: AtomicBool::new(false),
            waited: Waited::default(),
            cache_writer,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReadsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all waiting and future reads.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        // The next holder of the lock sees it.
        self.is_stopped.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut state.waiting);
        state.note_waiting(&self.waited);
        waiting.values().for_each(|waiting| state.count(waiting.file, |of| of.failed_reads += 1));
        drop(state);
        descriptor::raise(&self.counter);
        waiting.into_values().for_each(|waiting| waiting.reply.error(Errno::EIO));
    }

    /// Sends closed files to this channel from now on.
    pub(crate) fn report_closed(&self, to: mpsc::Sender<Closed>) {
        let _ = self.closed.set(to);
    }

    /// Files that are still open, as if they were closed now.
    pub(crate) fn still_open(&self) -> Vec<Closed> {
        let mut all: Vec<Closed> = self.lock().files.values().map(Open::closed).collect();
        let kept = self.kept().drain().collect::<Vec<_>>();
        all.extend(kept.into_iter().map(|(_, (object, opened))| closed_kept(object, opened)));
        all
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, (Arc<ObjectRef>, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the open of a file that is read from the cache. Only a command with one mount
    /// reports them, so the handles are of that mount.
    #[expect(clippy::disallowed_methods, reason = "how long it is open is reported")]
    pub(super) fn open_kept(&self, handle: FileHandle, object: &Object, endpoint: &Arc<Endpoint>) {
        if self.closed.get().is_some() {
            let endpoint = Arc::clone(endpoint);
            let object = ObjectRef::new(object.clone(), endpoint);
            self.kept().insert(handle.0, (Arc::new(object), Instant::now()));
        }
    }

    /// Records its close.
    pub(super) fn close_kept(&self, handle: FileHandle) {
        let Some(sender) = self.closed.get() else { return };
        let Some((object, opened)) = self.kept().remove(&handle.0) else { return };
        if sender.try_send(closed_kept(object, opened)).is_err() {
            self.lock().all.unreported_files += 1;
        }
    }

    /// Time that reads have waited.
    pub(super) fn waited(&self) -> Duration {
        self.waited.total()
    }

    /// The counters of all files.
    pub(crate) fn all(&self) -> AllReads {
        let cache = self.cache_writer.as_ref().map(|cache_writer| cache_writer.counts());
        let mut all = AllReads { client: self.inbox.counts(), cache, ..self.lock().all.clone() };
        all.opens += cache.map_or(0, |cache| cache.hits);
        all
    }

    /// Opens a file of a mount.
    #[expect(clippy::disallowed_methods, reason = "how long it is open is reported")]
    pub(super) fn open(
        &self,
        of: &Arc<VersionCheck>,
        inode: Inode,
        object: Object,
        endpoint: Arc<Endpoint>,
    ) -> FileId {
        let size_bytes = object.size_bytes;
        let cache_writer = self.cache_writer.as_ref();
        let growing = cache_writer.and_then(|to| to.grow((of.number(), inode), &endpoint, &object));
        let object = Arc::new(ObjectRef::new(object, endpoint));
        let of = Arc::clone(of);
        let opened = Open {
            of,
            inode,
            object,
            is_reported: false,
            is_changed: false,
            opened: Instant::now(),
            counts: ReadCounts::default(),
            error: None,
            growing,
        };
        let mut state = self.lock();
        state.all.opens += 1;
        let id = state.demand.open(size_bytes);
        state.files.insert(id, opened);
        id
    }

    /// Counts a file that was opened past the page cache.
    pub(super) fn note_direct_open(&self) {
        self.lock().all.direct_opens += 1;
    }

    /// Closes a file.
    pub(super) fn close(&self, id: FileId) {
        let mut state = self.lock();
        state.demand.close(id);
        let todo = self.act(&mut state);
        let closed = state.files.remove(&id);
        if let (Some(sender), Some(open)) = (self.closed.get(), &closed)
            && sender.try_send(open.closed()).is_err()
        {
            state.all.unreported_files += 1;
        }
        drop(state);
        self.finish(todo);
    }

    /// A program's read, which is answered now or later.
    #[expect(clippy::disallowed_methods, reason = "a read is due some time after it came")]
    pub(super) fn read(&self, file: FileId, offset: u64, length: u32, reply: ReadReply) {
        let mut state = self.lock();
        let Some(open) = state.files.get(&file) else {
            drop(state);
            return reply.error(Errno::EBADF);
        };
        let is_changed = open.is_changed;
        let rest = open.object.listed.size_bytes.saturating_sub(offset);
        state.count(file, |of| {
            of.reads += 1;
            of.asked_bytes += rest.min(u64::from(length));
        });
        if is_changed || self.is_stopped.load(Ordering::Acquire) {
            state.count(file, |of| of.failed_reads += 1);
            drop(state);
            return reply.error(if is_changed { Errno::ESTALE } else { Errno::EIO });
        }
        if state.waiting.len() >= REQUESTS_QUEUED_MAX {
            state.count(file, |of| of.failed_reads += 1);
            drop(state);
            return reply.error(Errno::EAGAIN);
        }
        state.reads += 1;
        let read = ReadId(state.reads);
        state.waiting.insert(read, WaitingRead { reply, file });
        state.demand.read(file, offset, u64::from(length), read);
        let todo = self.act(&mut state);
        if let Some(time) = self.deadline.filter(|_| state.waiting.contains_key(&read)) {
            let is_first = state.due.is_empty();
            state.due.push_back((Instant::now() + time, read));
            if is_first {
                // The thread wakes then at the latest.
                descriptor::raise(&self.counter);
            }
        }
        drop(state);
        self.finish(todo);
    }

    /// Decides what to do, and sends requests.
    fn act(&self, state: &mut ReadsState) -> Todo {
        let mut todo = Todo::default();
        while let Some(action) = state.demand.poll() {
            match action {
                Action::Fetch { chunk, file, range, urgent } => {
                    let object = Arc::clone(&state.files[&file].object);
                    let ticket = Arc::new(Ticket::new(chunk.0, Arc::clone(&self.inbox)));
                    let asked =
                        RequestedChunk { ticket: Arc::clone(&ticket), file, offset: range.start };
                    state.under_way.insert(chunk, asked);
                    let into = Destination::Lease(Lease::new());
                    let request = ClientRequest::new(ticket, into);
                    let range = ByteRange { offset: range.start, length: range.end - range.start };
                    let priority = if urgent { Priority::High } else { Priority::Normal };
                    self.scheduler.submit(object, range, request, priority);
                }
                Action::Cancel(chunk) => {
                    if let Some(RequestedChunk { ticket, .. }) = state.under_way.get(&chunk) {
                        ticket.cancel();
                        self.scheduler.cancel_one(ticket);
                    }
                }
                Action::Release(chunk) => todo.released.extend(state.here.remove(&chunk)),
                Action::Answer(read, parts) => {
                    let Some(waiting) = state.waiting.remove(&read) else { continue };
                    if let Some(open) = state.files.get_mut(&waiting.file) {
                        open.is_reported &= parts.is_empty();
                    }
                    let served: usize = parts.iter().map(|part| part.bytes.len()).sum();
                    state.count(waiting.file, |of| of.served_bytes += served as u64);
                    let parts = parts.into_iter();
                    let parts = parts.map(|part| (Arc::clone(&state.here[&part.chunk]), part));
                    todo.answers.push((waiting.reply, parts.collect()));
                }
                Action::Fail(read, chunk) => {
                    let Some(waiting) = state.waiting.remove(&read) else { continue };
                    let error = chunk.and_then(|chunk| state.lost.get(&chunk).cloned());
                    let errno = state.note_failure(waiting.file, error, &mut todo);
                    todo.failures.push((waiting.reply, errno));
                }
            }
        }
        state.lost.clear();
        state.note_waiting(&self.waited);
        todo
    }

    /// Writes the answers.
    fn finish(&self, todo: Todo) {
        for (reply, parts) in todo.answers {
            reply.pieces(&parts);
        }
        // Before the program gets its error: it may end because of it, and its user then looks for
        // the cause.
        for error in todo.errors {
            // More than the queue holds are too many to read.
            let _ = self.errors.try_send(error);
        }
        for (reply, errno) in todo.failures {
            reply.error(errno);
        }
        drop(todo.released);
    }
}
