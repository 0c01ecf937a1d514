//! Decides which bytes a mount fetches: a state machine without clock or sockets.
//!
//! Bytes are fetched in *chunks* of at most one lease's length; a chunk holds one lease until it
//! has been read. A read that continues an earlier one of its file forms a *stream*: chunks ahead
//! of it are requested, up to twice the length read so far, until leases are short. Reads at equal
//! distances form a *stride*: as many of the next ones are requested as there were. Any other read
//! is fetched exactly. The files share the leases: read-ahead takes at most an even share, and
//! gives way to chunks that reads wait for.
//!
//! Every read ends with one [`Action::Answer`] or [`Action::Fail`]. All chunks of a read that waits
//! for data are requested or present, so reads that wait for leases wait only for reads that end.

mod file;
mod stride;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use self::file::{Chunk, File, Stream, overlapping};
use crate::limits::{MOUNT_IDLE_READS, MOUNT_LEASES_RESERVED_SHARE};

/// Handle of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Number of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub u64);

/// A read, by its caller's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// A byte range within a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The chunk.
    pub chunk: ChunkId,
    /// Offsets in it.
    pub bytes: Range<usize>,
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Request a chunk; the result goes to [`Demand::landed`].
    Fetch {
        /// Its number.
        chunk: ChunkId,
        /// Its file.
        file: FileId,
        /// Its bytes in the file.
        range: Range<u64>,
        /// A read waits for it.
        urgent: bool,
    },
    /// Cancel the request for a chunk; its end is reported to [`Demand::landed`], too.
    Cancel(ChunkId),
    /// Release the memory of a fetched chunk.
    Release(ChunkId),
    /// Answer a read with these parts, in this order.
    Answer(ReadId, Vec<Part>),
    /// Fail a read: this chunk could not be fetched, or its file was closed.
    Fail(ReadId, Option<ChunkId>),
}

/// Memory limits.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Leases shared by all files.
    pub leases: usize,
    /// Longest chunk and longest read, in bytes.
    pub chunk_bytes: u64,
}

#[derive(Debug)]
struct Read {
    file: FileId,
    range: Range<u64>,
    /// Chunks of it that have not arrived.
    missing: usize,
    /// It waits for leases and has no chunks yet.
    is_hungry: bool,
    /// Read-ahead bytes that its chunks may include.
    more_bytes: u64,
}

/// The state of all open files.
#[derive(Debug)]
pub struct Demand {
    bounds: Bounds,
    files: HashMap<FileId, File>,
    /// File and offset of each chunk.
    chunks: HashMap<ChunkId, (FileId, u64)>,
    /// Cancelled chunks whose requests have not ended.
    dying: HashSet<ChunkId>,
    reads: HashMap<ReadId, Read>,
    /// Reads that wait for leases, in order.
    hungry: VecDeque<ReadId>,
    streaming: usize,
    numbers: u64,
    /// Reads so far.
    clock: u64,
    actions: VecDeque<Action>,
}

impl Demand {
    /// A state without open files.
    ///
    /// # Panics
    /// If there are no leases, or chunks have no bytes.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        assert!(bounds.leases > 0 && bounds.chunk_bytes > 0, "{bounds:?}");
        Self {
            bounds,
            files: HashMap::new(),
            chunks: HashMap::new(),
            dying: HashSet::new(),
            reads: HashMap::new(),
            hungry: VecDeque::new(),
            streaming: 0,
            numbers: 0,
            clock: 0,
            actions: VecDeque::new(),
        }
    }

    /// Takes the next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Leases in use, including those of cancelled requests.
    #[must_use]
    pub fn leases_taken(&self) -> usize {
        self.chunks.len() + self.dying.len()
    }

    /// Reads that have not ended.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.reads.len()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Opens a file.
    pub fn open(&mut self, size_bytes: u64) -> FileId {
        let id = FileId(self.number());
        self.files.insert(id, File { size_bytes, ..File::default() });
        id
    }

    /// Closes a file and cancels everything requested for it.
    pub fn close(&mut self, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        self.streaming -= usize::from(file.is_streaming);
        // The kernel does not close a file that is being read.
        let reads = self.reads.iter().filter(|(_, read)| read.file == id);
        let reads: Vec<ReadId> = reads.map(|(read, _)| *read).collect();
        for read in reads {
            self.leave(read);
            self.actions.push_back(Action::Fail(read, None));
        }
        for chunk in file.chunks.into_values() {
            self.let_go(&chunk);
        }
        self.feed();
    }

    /// Starts a read. An empty range, or one beyond the end, is answered with no bytes.
    ///
    /// # Panics
    /// If the file is not open, or the read's number is in use.
    pub fn read(&mut self, id: FileId, offset: u64, length: u64, read: ReadId) {
        self.clock += 1;
        let file = self.files.get_mut(&id).expect("an open file");
        let end = offset.saturating_add(length).min(file.size_bytes);
        if offset >= end {
            self.actions.push_back(Action::Answer(read, Vec::new()));
            return;
        }
        let more_bytes = file.note(offset, end, self.bounds.chunk_bytes);
        let range = offset..end;
        self.forget_streams(id, &range);
        let is_known = self.files[&id].gaps(&range, 0, self.bounds.chunk_bytes).is_empty();
        let new = Read { file: id, range, missing: 0, is_hungry: true, more_bytes };
        let before = self.reads.insert(read, new);
        assert!(before.is_none(), "a read has a number of its own");
        // First come, first served.
        if !is_known && !self.hungry.is_empty() || !self.place(read) {
            self.hungry.push_back(read);
        }
        self.read_ahead(id);
    }

    /// Takes the end of a chunk's request: fetched or failed.
    pub fn landed(&mut self, id: ChunkId, is_right: bool) {
        if self.dying.remove(&id) {
            if is_right {
                self.actions.push_back(Action::Release(id));
            }
            return self.feed();
        }
        let Some((file, start)) = self.chunks.get(&id).copied() else { return };
        let owner = self.files.get_mut(&file).expect("chunks go with their file");
        if !is_right {
            let chunk = owner.chunks.remove(&start).expect("it is known");
            self.chunks.remove(&id);
            owner.on_fetch_failed(start);
            for read in chunk.waiters {
                self.fail(read, id);
            }
            return self.feed();
        }
        let chunk = owner.chunks.get_mut(&start).expect("it is known");
        chunk.is_here = true;
        for read in chunk.waiters.clone() {
            let waiting = self.reads.get_mut(&read).expect("it waits");
            waiting.missing -= 1;
            if waiting.missing == 0 {
                self.answer(read);
            }
        }
        self.feed();
    }

    /// Abandons a read; false if it has already ended.
    pub fn give_up(&mut self, read: ReadId) -> bool {
        let known = self.reads.contains_key(&read);
        if known {
            self.leave(read);
            self.feed();
        }
        known
    }

    /// Fails a read whose chunk could not be fetched.
    fn fail(&mut self, read: ReadId, chunk: ChunkId) {
        self.leave(read);
        self.actions.push_back(Action::Fail(read, Some(chunk)));
    }

    /// Removes a read from the chunks that it waits for, and drops those that no other read waits
    /// for.
    fn leave(&mut self, read: ReadId) {
        let Some(gone) = self.reads.remove(&read) else { return };
        if gone.is_hungry {
            self.hungry.retain(|waiting| *waiting != read);
            return;
        }
        let Some(file) = self.files.get_mut(&gone.file) else { return };
        let mut idle = Vec::new();
        for (start, chunk) in overlapping(&mut file.chunks, &gone.range) {
            chunk.waiters.retain(|waiting| *waiting != read);
            if chunk.waiters.is_empty() {
                idle.push(start);
            }
        }
        for start in idle {
            self.drop_chunk(gone.file, start);
        }
    }

    /// Answers a read whose bytes are all present.
    fn answer(&mut self, read: ReadId) {
        let done = self.reads.remove(&read).expect("it waits");
        let file = self.files.get_mut(&done.file).expect("it is open");
        let mut parts = Vec::new();
        let mut read_up = Vec::new();
        for (start, chunk) in overlapping(&mut file.chunks, &done.range) {
            let bytes = done.range.start.max(start)..done.range.end.min(chunk.end);
            let place = |at: u64| usize::try_from(at - start).expect("a chunk is in memory");
            parts.push(Part { chunk: chunk.id, bytes: place(bytes.start)..place(bytes.end) });
            chunk.waiters.retain(|waiting| *waiting != read);
            chunk.taken += bytes.end - bytes.start;
            chunk.used_at = self.clock;
            if chunk.taken >= chunk.end - start && chunk.waiters.is_empty() {
                read_up.push(start);
            }
        }
        self.actions.push_back(Action::Answer(read, parts));
        for start in read_up {
            self.drop_chunk(done.file, start);
        }
    }

    /// Drops a chunk.
    fn drop_chunk(&mut self, file: FileId, start: u64) {
        let file = self.files.get_mut(&file).expect("it is open");
        let chunk = file.chunks.remove(&start).expect("it is known");
        self.let_go(&chunk);
    }

    fn let_go(&mut self, chunk: &Chunk) {
        self.chunks.remove(&chunk.id);
        if chunk.is_here {
            self.actions.push_back(Action::Release(chunk.id));
        } else {
            self.dying.insert(chunk.id);
            self.actions.push_back(Action::Cancel(chunk.id));
        }
    }

    /// Assigns free leases to waiting reads, in their order.
    fn feed(&mut self) {
        while let Some(read) = self.hungry.front().copied() {
            if !self.place(read) {
                return;
            }
            self.hungry.pop_front();
        }
    }

    /// Requests everything that a read needs, or nothing; false if leases are short.
    fn place(&mut self, read: ReadId) -> bool {
        let Read { file: id, range, more_bytes, .. } = &self.reads[&read];
        let (id, range, more_bytes) = (*id, range.clone(), *more_bytes);
        loop {
            let file = &self.files[&id];
            let gaps = file.gaps(&range, more_bytes, self.bounds.chunk_bytes);
            let spare = self.bounds.leases.saturating_sub(self.leases_taken());
            if gaps.len() <= spare {
                for gap in gaps {
                    self.ask(id, gap, true);
                }
                break;
            }
            // Wait for leases of cancelled requests rather than drop more chunks.
            if gaps.len() <= spare + self.dying.len() {
                return false;
            }
            let Some((victim, start)) = self.victim(Some((id, &range))) else { return false };
            self.drop_chunk(victim, start);
        }
        let file = self.files.get_mut(&id).expect("it is open");
        let mut missing = 0;
        for (_, chunk) in overlapping(&mut file.chunks, &range) {
            chunk.waiters.push(read);
            missing += usize::from(!chunk.is_here);
        }
        let waiting = self.reads.get_mut(&read).expect("it waits");
        (waiting.missing, waiting.is_hungry) = (missing, false);
        if missing == 0 {
            self.answer(read);
        }
        true
    }

    fn ask(&mut self, file: FileId, range: Range<u64>, urgent: bool) {
        let chunk = ChunkId(self.number());
        self.chunks.insert(chunk, (file, range.start));
        let owner = self.files.get_mut(&file).expect("it is open");
        let asked = Chunk {
            id: chunk,
            end: range.end,
            is_here: false,
            taken: 0,
            waiters: Vec::new(),
            used_at: self.clock,
        };
        owner.chunks.insert(range.start, asked);
        self.actions.push_back(Action::Fetch { chunk, file, range, urgent });
    }

    /// The least recently used chunk that no read waits for; chunks that this read needs come last.
    fn victim(&self, but: Option<(FileId, &Range<u64>)>) -> Option<(FileId, u64)> {
        let idle = self.chunks.values().filter_map(|(id, start)| {
            let chunk = &self.files[id].chunks[start];
            let is_own = but.is_some_and(|(file, range)| {
                file == *id && *start < range.end && range.start < chunk.end
            });
            chunk.waiters.is_empty().then_some((is_own, chunk.used_at, *id, *start))
        });
        idle.min().map(|(_, _, id, start)| (id, start))
    }

    /// Leases that one file may use for read-ahead.
    fn share(&self) -> usize {
        (self.ahead_max() / self.streaming.max(1)).max(1)
    }

    /// Leases that all files may use for read-ahead; the rest is reserved for waiting reads.
    fn ahead_max(&self) -> usize {
        let leases = self.bounds.leases;
        leases - leases.div_ceil(MOUNT_LEASES_RESERVED_SHARE).min(leases - 1)
    }

    /// Requests the next chunks of a file's streams, and of its stride.
    fn read_ahead(&mut self, id: FileId) {
        if !self.hungry.is_empty() {
            return;
        }
        let (chunk_bytes, share) = (self.bounds.chunk_bytes, self.share());
        let most = self.ahead_max();
        for place in 0..self.files[&id].streams.len() {
            loop {
                let file = self.files.get_mut(&id).expect("it is open");
                if file.chunks.len() >= share {
                    return;
                }
                let Some(range) = file.ahead(place, chunk_bytes) else { break };
                if !self.has_room_ahead(id, most) {
                    return;
                }
                self.files.get_mut(&id).expect("it is open").streams[place].front = range.end;
                self.ask(id, range, false);
            }
        }
        loop {
            let file = self.files.get_mut(&id).expect("it is open");
            let Some(range) = file.next_of_stride(chunk_bytes) else { return };
            if file.chunks.len() >= share || !self.has_room_ahead(id, most) {
                return;
            }
            self.ask(id, range, false);
        }
    }

    /// True if one of `most` leases is free for read-ahead of this file, or was taken from a file
    /// that was not read for a long time.
    fn has_room_ahead(&mut self, id: FileId, most: usize) -> bool {
        if self.leases_taken() >= most {
            let Some((victim, start)) = self.victim(None) else { return false };
            let rest = MOUNT_IDLE_READS * (self.streaming as u64 + 1);
            let idle = self.clock - self.files[&victim].chunks[&start].used_at;
            if idle < rest || victim == id {
                return false;
            }
            self.drop_chunk(victim, start);
        }
        self.leases_taken() < most
    }

    /// Ends idle streams and strides, drops their chunks, and updates whether the file still has a
    /// stream.
    fn forget_streams(&mut self, id: FileId, reading: &Range<u64>) {
        let chunk_bytes = self.bounds.chunk_bytes;
        let file = self.files.get_mut(&id).expect("it is open");
        let ended = file.end_streams(reading, chunk_bytes);
        let size_bytes = file.size_bytes;
        let goes_on = |stream: &Stream| stream.run > 0 && stream.next < size_bytes;
        let is_streaming = file.streams.iter().any(goes_on) || file.stride.goes_on(size_bytes);
        self.streaming -= usize::from(file.is_streaming);
        self.streaming += usize::from(is_streaming);
        file.is_streaming = is_streaming;
        for start in ended {
            self.drop_chunk(id, start);
        }
    }
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
