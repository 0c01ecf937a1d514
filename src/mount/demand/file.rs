//! One open file: its chunks, requested or fetched, and the streams of reads.

use std::collections::BTreeMap;
use std::ops::Range;

use super::stride::Stride;
use super::{ChunkId, ReadId};
use crate::limits::{MOUNT_AHEAD_BYTES_MIN, MOUNT_IDLE_READS, MOUNT_STREAMS_MAX};

/// A chunk of the file, requested or fetched.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) id: ChunkId,
    pub(super) end: u64,
    pub(super) is_here: bool,
    /// Bytes of it that were read.
    pub(super) taken: u64,
    /// Reads that wait for it.
    pub(super) waiters: Vec<ReadId>,
    /// When it was requested or last read, counted in reads of all files.
    pub(super) used_at: u64,
}

/// A run of consecutive reads.
#[derive(Debug)]
pub(super) struct Stream {
    /// Offset where the next read is expected.
    pub(super) next: u64,
    /// Offset up to which chunks were requested.
    pub(super) front: u64,
    /// Length of the run in bytes.
    pub(super) run: u64,
    /// When it last advanced, counted in reads of the file.
    pub(super) used_at: u64,
}

/// An open file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) size_bytes: u64,
    /// By offset; they do not overlap.
    pub(super) chunks: BTreeMap<u64, Chunk>,
    pub(super) streams: Vec<Stream>,
    pub(super) stride: Stride,
    pub(super) reads: u64,
    /// It has a stream with read-ahead.
    pub(super) is_streaming: bool,
}

/// The chunks that overlap this range, by offset.
pub(super) fn overlapping<'a>(
    chunks: &'a mut BTreeMap<u64, Chunk>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, &'a mut Chunk)> {
    let before = chunks.range(..=range.start).next_back();
    let first = before.filter(|(_, chunk)| chunk.end > range.start);
    let first = first.map_or(range.start, |(start, _)| *start);
    chunks.range_mut(first..range.end).map(|(start, chunk)| (*start, chunk))
}

impl File {
    /// Records a read; returns how many bytes after it will probably be read next.
    pub(super) fn note(&mut self, offset: u64, end: u64, chunk_bytes: u64) -> u64 {
        self.reads += 1;
        self.stride.note(offset, end - offset);
        let found = self.streams.iter().position(|stream| {
            // The kernel may split a read into pieces and send them in any order.
            let behind = if stream.run >= chunk_bytes { chunk_bytes } else { 0 };
            (stream.next.saturating_sub(behind)..=stream.front.max(stream.next)).contains(&offset)
        });
        let length = end - offset;
        let Some(place) = found else {
            // A read from offset 0 usually continues.
            let run = if offset == 0 { length } else { 0 };
            let used_at = self.reads;
            self.streams.push(Stream { next: end, front: end, run, used_at });
            return if offset == 0 { chunk_bytes } else { 0 };
        };
        let stream = &mut self.streams[place];
        stream.run = if stream.run == 0 { 2 * length } else { stream.run + length };
        stream.next = stream.next.max(end);
        stream.front = stream.front.max(stream.next);
        stream.used_at = self.reads;
        stream.run.saturating_mul(2)
    }

    /// The next range that a stream should request; `None` if it is far enough ahead.
    pub(super) fn ahead(&mut self, place: usize, chunk_bytes: u64) -> Option<Range<u64>> {
        let stream = &mut self.streams[place];
        if stream.run == 0 {
            return None;
        }
        let goal = stream.next.saturating_add(stream.run.saturating_mul(2)).min(self.size_bytes);
        // Skip chunks that exist already.
        while let Some((_, chunk)) = self.chunks.range(..=stream.front).next_back()
            && chunk.end > stream.front
        {
            stream.front = chunk.end;
        }
        let start = stream.front;
        let is_worth_it = goal > start
            && (goal - start >= MOUNT_AHEAD_BYTES_MIN.min(chunk_bytes) || goal == self.size_bytes);
        if !is_worth_it {
            return None;
        }
        let grid = (start / chunk_bytes + 1) * chunk_bytes;
        let next = self.chunks.range(start..).next().map_or(u64::MAX, |(next, _)| *next);
        // A whole chunk if the goal reaches its end.
        let end = if goal >= grid { grid } else { goal };
        Some(start..end.min(next).min(self.size_bytes))
    }

    /// The next range of the stride to request; what is requested already is passed over.
    pub(super) fn next_of_stride(&mut self, chunk_bytes: u64) -> Option<Range<u64>> {
        loop {
            let range = self.stride.next(self.size_bytes, chunk_bytes)?;
            if let Some(gap) = self.gaps(&range, 0, chunk_bytes).into_iter().next() {
                return Some(gap);
            }
            self.stride.advance();
        }
    }

    /// The parts of a range that are not requested, in pieces of at most a chunk; the last one may
    /// be extended by up to `more_bytes` to the end of a stream's chunk.
    pub(super) fn gaps(
        &self,
        range: &Range<u64>,
        more_bytes: u64,
        chunk_bytes: u64,
    ) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let before = self.chunks.range(..=range.start).next_back();
        let mut at = before.map_or(range.start, |(_, chunk)| chunk.end.max(range.start));
        while at < range.end {
            let next = self.chunks.range(at..).next();
            let (start, end) = next.map_or((u64::MAX, 0), |(start, chunk)| (*start, chunk.end));
            let until = start.min(range.end);
            while at < until {
                let mut end = until.min(at + chunk_bytes);
                if more_bytes > 0 && end == range.end {
                    let grid = end.next_multiple_of(chunk_bytes).min(end + more_bytes);
                    end = grid.min(at + chunk_bytes).min(start).min(self.size_bytes);
                }
                gaps.push(at..end);
                at = end;
            }
            if at >= range.end {
                break;
            }
            at = end;
        }
        gaps
    }

    /// A chunk failed: the streams ahead of it request it again when they get there.
    pub(super) fn on_fetch_failed(&mut self, start: u64) {
        for stream in &mut self.streams {
            if stream.front > start && stream.next <= start {
                stream.front = stream.next;
                stream.run = 0;
            }
        }
    }

    /// Ends idle streams; returns the chunks to drop: theirs, and those that other streams have
    /// passed. Chunks being read stay.
    pub(super) fn end_streams(&mut self, reading: &Range<u64>, chunk_bytes: u64) -> Vec<u64> {
        let reads = self.reads;
        let oldest = self.streams.iter().map(|stream| stream.used_at).min().unwrap_or(0);
        let is_full = self.streams.len() > MOUNT_STREAMS_MAX;
        self.streams.retain(|stream| {
            let is_idle = reads - stream.used_at > MOUNT_IDLE_READS;
            !(is_idle || is_full && stream.used_at == oldest)
        });
        let is_wanted = |start: u64, chunk: &Chunk| {
            !chunk.waiters.is_empty()
                || start < reading.end && reading.start < chunk.end
                || self.stride.covers(&(start..chunk.end))
                || self.streams.iter().any(|stream| {
                    let behind = stream.next.saturating_sub(2 * chunk_bytes);
                    chunk.end > behind && start < stream.front
                })
        };
        let unwanted = self.chunks.iter().filter(|(start, chunk)| !is_wanted(**start, chunk));
        unwanted.map(|(start, _)| *start).collect()
    }
}
