//! What is fetched for the reads of programs: a state machine without clock and sockets.
//!
//! Bytes are fetched in *chunks*, each as long as one lease at most; a chunk takes one of the
//! leases that there are, and is given back when it has been read. A read that continues another of
//! its file is a *stream*: chunks ahead of it are asked for, twice as far as it has come, until
//! leases are short. Any other read is asked for as it is. Several files share the leases: what is
//! read ahead takes at most an even share, and gives way to what is waited for.
//!
//! Every read ends with one [`Action::Answer`] or [`Action::Fail`]. One that waits needs chunks
//! that are asked for or there, all of them, so those that wait for leases wait for reads that end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use super::file::{Chunk, File, Stream, overlapping};
use crate::limits::{MOUNT_IDLE_READS, MOUNT_LEASES_RESERVED_SHARE};

/// A file that a program has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// A chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub u64);

/// A read, by the number that its caller gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// Bytes of a chunk, counted from its first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The chunk.
    pub chunk: ChunkId,
    /// Which of its bytes.
    pub bytes: Range<usize>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask for a chunk; it ends with [`Demand::landed`].
    Fetch {
        /// Which.
        chunk: ChunkId,
        /// Of which file.
        file: FileId,
        /// Which of its bytes.
        range: Range<u64>,
        /// Somebody waits for it.
        urgent: bool,
    },
    /// A chunk that was asked for is not wanted; it ends as the others do.
    Cancel(ChunkId),
    /// A chunk that is there is given back.
    Release(ChunkId),
    /// A read ends with these bytes, one part after the other.
    Answer(ReadId, Vec<Part>),
    /// A read ends because this chunk did not come, or because its file is closed.
    Fail(ReadId, Option<ChunkId>),
}

/// What there is.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Leases of all files.
    pub leases: usize,
    /// Longest chunk, and longest read, in bytes.
    pub chunk_bytes: u64,
}

#[derive(Debug)]
struct Read {
    file: FileId,
    range: Range<u64>,
    /// Chunks of it that are not there.
    missing: usize,
    /// It has none yet: leases are short.
    is_hungry: bool,
    /// How many bytes more its chunks may have.
    more_bytes: u64,
}

/// The state of all files.
#[derive(Debug)]
pub struct Demand {
    bounds: Bounds,
    files: HashMap<FileId, File>,
    /// Where each chunk stands.
    chunks: HashMap<ChunkId, (FileId, u64)>,
    /// Chunks that are not wanted any more and have not ended.
    dying: HashSet<ChunkId>,
    reads: HashMap<ReadId, Read>,
    /// Reads that wait for leases.
    hungry: VecDeque<ReadId>,
    streaming: usize,
    numbers: u64,
    /// Reads so far.
    clock: u64,
    actions: VecDeque<Action>,
}

impl Demand {
    /// Nothing is open.
    ///
    /// # Panics
    /// Without a lease, or with chunks of no bytes.
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

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Leases that are taken, or about to come back.
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

    /// A program opens a file.
    pub fn open(&mut self, size_bytes: u64) -> FileId {
        let id = FileId(self.number());
        self.files.insert(id, File { size_bytes, ..File::default() });
        id
    }

    /// A file is closed: nothing of it is wanted any more.
    pub fn close(&mut self, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        self.streaming -= usize::from(file.is_streaming);
        // The kernel closes no file that is being read.
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

    /// A program reads. An empty range, or one beyond the end, is answered with nothing.
    ///
    /// # Panics
    /// For a file that is not open, or a read that has not ended.
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
        // Who came first is served first.
        if !is_known && !self.hungry.is_empty() || !self.place(read) {
            self.hungry.push_back(read);
        }
        self.read_ahead(id);
    }

    /// A chunk has come, or has not.
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
            owner.stumble(start);
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

    /// Nobody waits for a read any more; false when it has ended.
    pub fn give_up(&mut self, read: ReadId) -> bool {
        let known = self.reads.contains_key(&read);
        if known {
            self.leave(read);
            self.feed();
        }
        known
    }

    /// Ends a read whose chunk did not come.
    fn fail(&mut self, read: ReadId, chunk: ChunkId) {
        self.leave(read);
        self.actions.push_back(Action::Fail(read, Some(chunk)));
    }

    /// Takes a read from all chunks that it needs; those that nobody needs then go.
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

    /// Ends a read with its bytes, which are all there.
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

    /// Gives a chunk up.
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

    /// Gives reads that wait for leases what there is, in their order.
    fn feed(&mut self) {
        while let Some(read) = self.hungry.front().copied() {
            if !self.place(read) {
                return;
            }
            self.hungry.pop_front();
        }
    }

    /// Asks for what a read needs, all of it or nothing; false when leases are short.
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
            // What comes back soon is not taken from others, too.
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

    /// The chunk that is missed least: nobody waits for it, and it was used before the others. What
    /// this read needs itself goes last.
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

    /// Leases that one file may take to read ahead.
    fn share(&self) -> usize {
        (self.ahead_max() / self.streaming.max(1)).max(1)
    }

    /// Leases that may be taken to read ahead: some are left for what is waited for.
    fn ahead_max(&self) -> usize {
        let leases = self.bounds.leases;
        leases - leases.div_ceil(MOUNT_LEASES_RESERVED_SHARE).min(leases - 1)
    }

    /// Asks for what the streams of a file will need next.
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
                if self.leases_taken() >= most {
                    // Of a file that nobody has read for long.
                    let Some((victim, start)) = self.victim(None) else { return };
                    let rest = MOUNT_IDLE_READS * (self.streaming as u64 + 1);
                    let idle = self.clock - self.files[&victim].chunks[&start].used_at;
                    if idle < rest || victim == id {
                        return;
                    }
                    self.drop_chunk(victim, start);
                    if self.leases_taken() >= most {
                        return;
                    }
                }
                self.files.get_mut(&id).expect("it is open").streams[place].front = range.end;
                self.ask(id, range, false);
            }
        }
    }

    /// Ends streams that were not read for some reads, and what was asked for them; notes whether
    /// any is left.
    fn forget_streams(&mut self, id: FileId, reading: &Range<u64>) {
        let chunk_bytes = self.bounds.chunk_bytes;
        let file = self.files.get_mut(&id).expect("it is open");
        let ended = file.end_streams(reading, chunk_bytes);
        let size_bytes = file.size_bytes;
        let goes_on = |stream: &Stream| stream.run > 0 && stream.next < size_bytes;
        let is_streaming = file.streams.iter().any(goes_on);
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
