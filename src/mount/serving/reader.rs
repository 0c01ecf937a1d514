//! Connects programs' reads with the engine: requests the chunks that [`Demand`] selects, and
//! answers the kernel directly from the slots that received them.
//!
//! Threads of the kernel's requests call [`Reads::read`] and never wait for bytes; a separate
//! thread takes received chunks. Under the lock there are only decisions: answers are written
//! without it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Errno, FileHandle};
use rustix::event::{PollFd, PollFlags};
use tokio::sync::mpsc;

use super::cache_writer::{self, Growing};
use super::reply::ReadReply;
use super::version_check::VersionCheck;
use crate::engine::lease::Lease;
use crate::engine::request::{
    ClientRequest, Completion, Destination, Inbox, Priority, Ticket, Waits as _,
};
use crate::engine::schedule::Scheduler;
use crate::engine::threads::{Workers, event_counter};
use crate::engine::waited::Waited;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::limits::REQUESTS_QUEUED_MAX;
use crate::link::object::ObjectRef;
use crate::mount::demand::{Action, Bounds, ChunkId, Demand, FileId, Part, ReadId};
use crate::mount::tree::Inode;
use crate::report::document::{AllReads, ReadCounts};
use crate::s3::uri::shown;
use crate::s3::{ByteRange, Endpoint, Object};
use crate::sys::{Handle, descriptor};

/// A closed file.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) object: Arc<ObjectRef>,
    /// Its reads; `None` if they were from the cache, because the kernel may read directly.
    pub(crate) counts: Option<ReadCounts>,
    /// Duration from open to close.
    pub(crate) open: Duration,
    /// The error of its first failed read.
    pub(crate) error: Option<Error>,
}

/// An open file.
#[derive(Debug)]
struct Open {
    /// The current versions of its mount.
    of: Arc<VersionCheck>,
    inode: Inode,
    object: Arc<ObjectRef>,
    /// Its last error was reported.
    is_reported: bool,
    /// Its object was replaced or deleted.
    is_changed: bool,
    opened: Instant,
    counts: ReadCounts,
    /// The error of its first failed read.
    error: Option<Error>,
    /// The cached object that its bytes are added to.
    growing: Option<Arc<Growing>>,
}

/// A requested chunk.
#[derive(Debug)]
struct RequestedChunk {
    ticket: Arc<Ticket>,
    file: FileId,
    offset: u64,
}

/// A waiting read.
#[derive(Debug)]
struct WaitingRead {
    reply: ReadReply,
    file: FileId,
}

#[derive(Debug)]
struct ReadsState {
    demand: Demand,
    files: HashMap<FileId, Open>,
    waiting: HashMap<ReadId, WaitingRead>,
    /// Reads by the time at which they fail; all have an equal timeout.
    due: VecDeque<(Instant, ReadId)>,
    under_way: HashMap<ChunkId, RequestedChunk>,
    here: HashMap<ChunkId, Arc<Lease>>,
    /// Why chunks failed, until their reads have failed.
    lost: HashMap<ChunkId, Error>,
    reads: u64,
    /// The counters of all files.
    all: AllReads,
    /// True while a read waits.
    has_waiting: bool,
}

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
    cache_writer: Option<Arc<cache_writer::CacheState>>,
}

/// The thread that takes received chunks.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) shared: Arc<Reads>,
    thread: Option<JoinHandle<()>>,
    chunk_bytes: u64,
}

/// The bytes of an answer, in consecutive pieces.
type Pieces = Vec<(Arc<Lease>, Part)>;

/// Work to be done without the lock.
#[derive(Default)]
struct Todo {
    answers: Vec<(ReadReply, Pieces)>,
    failures: Vec<(ReadReply, Errno)>,
    released: Vec<Arc<Lease>>,
    /// Each with the number of its mount.
    errors: Vec<(usize, Error)>,
}

impl Reader {
    /// Starts serving reads with these workers.
    pub(super) fn start(
        workers: &Workers,
        deadline: Option<Duration>,
        errors: mpsc::Sender<(usize, Error)>,
        cache_writer: Option<Arc<cache_writer::CacheState>>,
    ) -> Result<Self> {
        let counter = event_counter()?;
        let config = workers.config();
        let chunk_bytes = u64::from(config.slot_length_bytes);
        let bounds = Bounds { leases: config.leases_max(), chunk_bytes };
        let state = ReadsState {
            demand: Demand::new(bounds),
            files: HashMap::new(),
            waiting: HashMap::new(),
            due: VecDeque::new(),
            under_way: HashMap::new(),
            here: HashMap::new(),
            lost: HashMap::new(),
            reads: 0,
            all: AllReads::default(),
            has_waiting: false,
        };
        let shared = Arc::new(Reads {
            state: Mutex::new(state),
            scheduler: Arc::clone(&workers.scheduler),
            inbox: Arc::new(Inbox::new(counter.clone(), None)),
            counter,
            deadline,
            errors,
            kept: Mutex::default(),
            closed: OnceLock::new(),
            is_stopped: AtomicBool::new(false),
            waited: Waited::default(),
            cache_writer,
        });
        let works = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("inrush-reads".to_owned());
        let thread = thread.spawn(move || works.complete()).map_err(Error::no_thread)?;
        Ok(Self { shared, thread: Some(thread), chunk_bytes })
    }

    /// Longest read that can be answered, in bytes.
    pub(super) const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Ends it; waiting reads fail.
    pub(super) fn stop(mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl Reads {
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

/// A file that was read from the cache, as if it were closed now.
#[expect(clippy::disallowed_methods, reason = "how long it was open is reported")]
fn closed_kept(object: Arc<ObjectRef>, opened: Instant) -> Closed {
    let open = Instant::now().saturating_duration_since(opened);
    Closed { object, counts: None, open, error: None }
}

impl Open {
    #[expect(clippy::disallowed_methods, reason = "how long it was open is reported")]
    fn closed(&self) -> Closed {
        Closed {
            object: Arc::clone(&self.object),
            counts: Some(self.counts),
            open: Instant::now().saturating_duration_since(self.opened),
            error: self.error.clone(),
        }
    }
}

impl ReadsState {
    /// Updates the time that reads have waited.
    fn note_waiting(&mut self, waited: &Waited) {
        let waits = !self.waiting.is_empty();
        waited.change(&mut self.has_waiting, waits);
    }

    /// Updates the counters of a file, and of all.
    fn count(&mut self, file: FileId, note: impl Fn(&mut ReadCounts)) {
        note(&mut self.all.counts);
        if let Some(open) = self.files.get_mut(&file) {
            note(&mut open.counts);
        }
    }

    /// The errno of a failed read; the first error of a file is reported.
    fn note_failure(&mut self, file: FileId, error: Option<Error>, todo: &mut Todo) -> Errno {
        self.count(file, |of| of.failed_reads += 1);
        let (Some(open), Some(error)) = (self.files.get_mut(&file), error) else {
            return Errno::EIO;
        };
        let is_gone = error.reason() == ErrorReason::NotFound;
        let is_changed = is_gone || error.reason() == ErrorReason::Changed;
        open.error.get_or_insert_with(|| error.clone());
        if !std::mem::replace(&mut open.is_reported, true) {
            let object = &open.object.listed.key;
            let bucket = &open.object.endpoint.bucket;
            let error = error.within(format!("read s3://{bucket}/{}", shown(object)));
            let error = match is_changed {
                true => error.advise("open the file again: that looks the object up"),
                false => error,
            };
            todo.errors.push((open.of.number(), error));
        }
        if is_changed {
            let (of, inode) = (Arc::clone(&open.of), open.inode);
            of.note_changed(inode);
            let alike = |open: &&mut Open| open.inode == inode && Arc::ptr_eq(&open.of, &of);
            for open in self.files.values_mut().filter(alike) {
                self.all.changed_files += u64::from(!open.is_changed);
                open.is_changed = true;
            }
            return Errno::ESTALE;
        }
        Errno::EIO
    }
}
