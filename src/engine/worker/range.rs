//! A worker's slabs: ranges that are not settled, and writes in flight. Allocated at the start for
//! all slots and connections, and never grown.

use std::sync::Arc;

use super::client::ClientRange;
use super::files::prefix::Prefix;
use super::verify::Check;
use crate::engine::schedule::Recipient;
use crate::error::Error;
use crate::files::file_download::FileDownload;
use crate::sys::Slot;

/// How many times a write may make no progress before it is an error.
pub(super) const WRITE_TRIES_MAX: u32 = 16;

/// A range from its hand-out until its last byte is written.
#[derive(Debug)]
struct RangeState {
    /// Its offset in the object.
    offset: u64,
    /// Its connection has received all of it, or given it up.
    fetched: bool,
    /// Writes in flight, file jobs that hold its bytes, and operations that still fill its client's
    /// memory for a connection that lost it.
    writes: u32,
    kind: RangeKind,
}

/// What only a range for this recipient has.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it stays with its range, and is not allocated")]
pub(super) enum RangeKind {
    File(FileRange),
    Client(ClientRange),
}

/// The state of a range of an object's file.
#[derive(Debug)]
pub(super) struct FileRange {
    pub(super) download: Arc<FileDownload>,
    /// Which of its bytes are written.
    pub(super) prefix: Prefix,
    /// The checksum that its bytes are compared with, if they are a whole object. It belongs to the
    /// range, because another connection may continue it.
    pub(super) check: Check,
}

impl RangeKind {
    fn new(recipient: Recipient, offset: u64, now_us: u64) -> Self {
        match recipient {
            Recipient::File(download) => {
                let (prefix, check) = (Prefix::new(offset, now_us), Check::None);
                Self::File(FileRange { download, prefix, check })
            }
            Recipient::Client { request, .. } => Self::Client(ClientRange::new(request)),
        }
    }
}

/// All ranges of a worker that are not settled.
#[derive(Debug)]
pub(super) struct Ranges {
    entries: Vec<Option<RangeState>>,
    free: Vec<usize>,
}

impl Ranges {
    /// Room for `count` ranges.
    pub(super) fn new(count: usize) -> Self {
        Self { entries: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, recipient: Recipient, offset: u64, now_us: u64) -> usize {
        // One per connection, and one per write in flight for ranges whose connection has moved on.
        let index = self.free.pop().expect("as many as connections and slots");
        let kind = RangeKind::new(recipient, offset, now_us);
        self.entries[index] = Some(RangeState { offset, fetched: false, writes: 0, kind });
        index
    }

    /// All numbers; see [`Self::file`].
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.entries.len()
    }

    /// A range of a file, if it is not settled.
    pub(super) fn file(&mut self, index: usize) -> Option<&mut FileRange> {
        match &mut self.entries[index].as_mut()?.kind {
            RangeKind::File(file) => Some(file),
            RangeKind::Client(_) => None,
        }
    }

    fn get_mut(&mut self, index: usize) -> &mut RangeState {
        self.entries[index].as_mut().expect("a range that is not settled")
    }

    fn get(&self, index: usize) -> &RangeState {
        self.entries[index].as_ref().expect("a range that is not settled")
    }

    /// The state of a client's range; `None` for a file's.
    pub(super) fn client(&self, index: usize) -> Option<&ClientRange> {
        match &self.get(index).kind {
            RangeKind::File(_) => None,
            RangeKind::Client(client) => Some(client),
        }
    }

    /// The state of a client's range, mutable; `None` for a file's.
    pub(super) fn client_mut(&mut self, index: usize) -> Option<&mut ClientRange> {
        match &mut self.get_mut(index).kind {
            RangeKind::File(_) => None,
            RangeKind::Client(client) => Some(client),
        }
    }

    /// Records why it fails, and its file's object with it; the first reason stays.
    pub(super) fn fail(&mut self, index: usize, error: Error) {
        match &mut self.get_mut(index).kind {
            RangeKind::File(file) => file.download.fail(error),
            RangeKind::Client(client) => client.fail(error),
        }
    }

    /// Why it, or its file's object, fails, if it does.
    pub(super) fn failure(&self, index: usize) -> Option<&Error> {
        match &self.get(index).kind {
            RangeKind::File(file) => file.download.failure(),
            RangeKind::Client(client) => client.failure(),
        }
    }

    /// Its offset in its object.
    pub(super) fn offset(&self, index: usize) -> u64 {
        self.get(index).offset
    }

    /// The download of a file's range.
    pub(super) fn download(&self, index: usize) -> &Arc<FileDownload> {
        let RangeKind::File(file) = &self.get(index).kind else {
            unreachable!("only a file's range is written")
        };
        &file.download
    }

    /// A file job has all its bytes; it ends like a write.
    pub(super) fn job_begins(&mut self, index: usize) {
        self.get_mut(index).writes += 1;
    }

    /// Counts a write that ends at this offset in the object.
    pub(super) fn write_begins(&mut self, index: usize, end: u64) {
        let range = self.get_mut(index);
        range.writes += 1;
        if let RangeKind::File(file) = &mut range.kind {
            file.prefix.reached = end;
        }
    }

    /// A write ended; true if the range is complete.
    pub(super) fn write_ends(&mut self, index: usize) -> bool {
        let range = self.get_mut(index);
        range.writes -= 1;
        range.fetched && range.writes == 0
    }

    /// Its connection is done with it; true if the range is complete.
    pub(super) fn fetched(&mut self, index: usize) -> bool {
        let range = self.get_mut(index);
        range.fetched = true;
        range.writes == 0
    }

    /// True if all bytes up to the end of a file's range are written, whoever wrote its beginning.
    pub(super) fn is_written(&self, index: usize) -> bool {
        let Some(RangeState { offset, kind: RangeKind::File(file), .. }) = &self.entries[index]
        else {
            return false;
        };
        let size_bytes = file.download.object.listed.size_bytes;
        let part = file.download.part.bytes();
        file.prefix.stands() == size_bytes.min((offset / part + 1) * part)
    }

    /// Removes a complete range.
    pub(super) fn remove(&mut self, index: usize) -> RangeKind {
        self.free.push(index);
        self.entries[index].take().expect("a range that is not settled").kind
    }

    /// True if every range is settled.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}

/// A write in flight, or one that waits for its file.
#[derive(Debug)]
pub(super) struct WriteState {
    /// Its range.
    pub(super) range: usize,
    /// Bytes written.
    pub(super) done: u32,
    /// Bytes to write.
    pub(super) length: u32,
    /// Offset in the file of the first byte.
    pub(super) offset: u64,
    /// When it began.
    pub(super) begun_us: u64,
    /// It must stay aligned.
    pub(super) direct: bool,
    /// Consecutive tries without progress.
    pub(super) stuck: u32,
    /// Its bytes, while the file is not created yet.
    pub(super) waiting: Option<Slot>,
}

/// All writes of a worker in progress.
#[derive(Debug)]
pub(super) struct Writes {
    entries: Vec<Option<WriteState>>,
    free: Vec<usize>,
}

impl Writes {
    /// Room for `count` writes: each holds a slot.
    pub(super) fn new(count: usize) -> Self {
        Self { entries: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Adds a write.
    pub(super) fn insert(&mut self, state: WriteState) -> usize {
        let index = self.free.pop().expect("a write holds a slot");
        self.entries[index] = Some(state);
        index
    }

    /// Writes that wait for their file: their numbers, and their ranges.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, usize)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let write = entry.as_ref().filter(|write| write.waiting.is_some())?;
            Some((index, write.range))
        })
    }

    /// Where the first write in flight of a range begins.
    pub(super) fn first_of(&self, range: usize) -> Option<u64> {
        let writes = self.entries.iter().flatten();
        writes.filter(|write| write.range == range).map(|write| write.offset).min()
    }

    /// The write.
    pub(super) fn get(&self, index: usize) -> &WriteState {
        self.entries[index].as_ref().expect("a write in flight")
    }

    /// The write, mutable.
    pub(super) fn get_mut(&mut self, index: usize) -> &mut WriteState {
        self.entries[index].as_mut().expect("a write in flight")
    }

    /// Removes an ended write.
    pub(super) fn remove(&mut self, index: usize) -> WriteState {
        self.free.push(index);
        self.entries[index].take().expect("a write in flight")
    }

    /// Number of writes in progress.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// True if all have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}
