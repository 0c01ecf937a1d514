//! The open files of programs, their reads that wait for bytes, and what is reported of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::Errno;

use super::super::cache_writer::Growing;
use super::super::reply::ReadReply;
use super::super::version_check::VersionCheck;
use crate::engine::lease::Lease;
use crate::engine::request::{Ticket, Waits as _};
use crate::engine::waited::Waited;
use crate::error::{Error, ErrorReason};
use crate::link::object::ObjectRef;
use crate::mount::demand::{Bounds, ChunkId, Demand, FileId, Part, ReadId};
use crate::mount::tree::Inode;
use crate::report::document::{AllReads, ReadCounts};
use crate::s3::uri::shown;

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

/// A file that was read from the cache, as if it were closed now.
#[expect(clippy::disallowed_methods, reason = "how long it was open is reported")]
pub(super) fn closed_kept(object: Arc<ObjectRef>, opened: Instant) -> Closed {
    let open = Instant::now().saturating_duration_since(opened);
    Closed { object, counts: None, open, error: None }
}

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    /// The current versions of its mount.
    pub(super) of: Arc<VersionCheck>,
    pub(super) inode: Inode,
    pub(super) object: Arc<ObjectRef>,
    /// Its last error was reported.
    pub(super) is_reported: bool,
    /// Its object was replaced or deleted.
    pub(super) is_changed: bool,
    pub(super) opened: Instant,
    pub(super) counts: ReadCounts,
    /// The error of its first failed read.
    pub(super) error: Option<Error>,
    /// The cached object that its bytes are added to.
    pub(super) growing: Option<Arc<Growing>>,
}

impl Open {
    /// What is reported of it if it is closed now.
    #[expect(clippy::disallowed_methods, reason = "how long it was open is reported")]
    pub(super) fn closed(&self) -> Closed {
        Closed {
            object: Arc::clone(&self.object),
            counts: Some(self.counts),
            open: Instant::now().saturating_duration_since(self.opened),
            error: self.error.clone(),
        }
    }
}

/// A requested chunk.
#[derive(Debug)]
pub(super) struct RequestedChunk {
    pub(super) ticket: Arc<Ticket>,
    pub(super) file: FileId,
    pub(super) offset: u64,
}

/// A waiting read.
#[derive(Debug)]
pub(super) struct WaitingRead {
    pub(super) reply: ReadReply,
    pub(super) file: FileId,
}

/// What the lock of the reads protects.
#[derive(Debug)]
pub(super) struct ReadsState {
    pub(super) demand: Demand,
    pub(super) files: HashMap<FileId, Open>,
    pub(super) waiting: HashMap<ReadId, WaitingRead>,
    /// Reads by the time at which they fail; all have an equal timeout.
    pub(super) due: VecDeque<(Instant, ReadId)>,
    pub(super) under_way: HashMap<ChunkId, RequestedChunk>,
    pub(super) here: HashMap<ChunkId, Arc<Lease>>,
    /// Why chunks failed, until their reads have failed.
    pub(super) lost: HashMap<ChunkId, Error>,
    pub(super) reads: u64,
    /// The counters of all files.
    pub(super) all: AllReads,
    /// True while a read waits.
    pub(super) has_waiting: bool,
}

/// The bytes of an answer, in consecutive pieces.
pub(super) type Pieces = Vec<(Arc<Lease>, Part)>;

/// Work to be done without the lock.
#[derive(Default)]
pub(super) struct Todo {
    pub(super) answers: Vec<(ReadReply, Pieces)>,
    pub(super) failures: Vec<(ReadReply, Errno)>,
    pub(super) released: Vec<Arc<Lease>>,
    /// Each with the number of its mount.
    pub(super) errors: Vec<(usize, Error)>,
}

impl ReadsState {
    /// No file is open.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
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
        }
    }

    /// Updates the time that reads have waited.
    pub(super) fn note_waiting(&mut self, waited: &Waited) {
        let waits = !self.waiting.is_empty();
        waited.change(&mut self.has_waiting, waits);
    }

    /// Updates the counters of a file, and of all.
    pub(super) fn count(&mut self, file: FileId, note: impl Fn(&mut ReadCounts)) {
        note(&mut self.all.counts);
        if let Some(open) = self.files.get_mut(&file) {
            note(&mut open.counts);
        }
    }

    /// The errno of a failed read; the first error of a file is reported.
    pub(super) fn note_failure(
        &mut self,
        file: FileId,
        error: Option<Error>,
        todo: &mut Todo,
    ) -> Errno {
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
