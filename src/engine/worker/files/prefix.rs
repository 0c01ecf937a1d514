//! Records the written prefix of a range in progress, from time to time and at the end of its run,
//! so that a later run continues after it.
//!
//! A range is delivered in order and its writes end in any order: the prefix ends where the first
//! write in flight begins.

use std::sync::Arc;

use super::NO_RANGE;
use crate::engine::worker::Worker;
use crate::engine::worker::range::FileRange;
use crate::error::ErrorKind;
use crate::files::host::{FileHost, FileJob};
use crate::files::sink::Disposal;
use crate::limits::{DIRECT_ALIGNMENT_BYTES, PREFIX_PAUSE_US};
use crate::sys::Ring;

/// Which bytes of a range are written, as offsets in its object.
#[derive(Debug)]
pub(in crate::engine::worker) struct Prefix {
    /// End of the last write that was begun.
    pub(in crate::engine::worker) reached: u64,
    /// Beginning of the first write that failed.
    failed: u64,
    /// End of the last recorded prefix.
    noted: u64,
    noted_us: u64,
}

impl Prefix {
    /// Nothing of a range that begins there.
    pub(in crate::engine::worker) fn new(offset: u64, now_us: u64) -> Self {
        Self { reached: offset, failed: u64::MAX, noted: offset, noted_us: now_us }
    }

    /// Records a failed write that begins there.
    pub(in crate::engine::worker) fn fail(&mut self, offset: u64) {
        self.failed = self.failed.min(offset);
    }

    /// End of the prefix, if no write is in flight.
    pub(in crate::engine::worker) fn stands(&self) -> u64 {
        self.reached.min(self.failed)
    }

    /// End of the prefix, if that is further than recorded; then it counts as recorded. `first`:
    /// where the first write in flight begins.
    fn advance(&mut self, first: Option<u64>, now_us: u64) -> Option<u64> {
        self.noted_us = now_us;
        let end = first.unwrap_or(self.reached).min(self.stands());
        let end = end - end % u64::from(DIRECT_ALIGNMENT_BYTES);
        (end > self.noted).then(|| {
            self.noted = end;
            end
        })
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Records the prefixes of slow ranges.
    pub(in crate::engine::worker) fn note_slow(&mut self) {
        if self.now_us < self.prefix_look_us {
            return;
        }
        self.prefix_look_us = self.now_us + PREFIX_PAUSE_US / 4;
        for range in self.ranges.numbers() {
            let file = self.ranges.file(range);
            if file.is_some_and(|file| file.prefix.noted_us + PREFIX_PAUSE_US <= self.now_us) {
                self.note_prefix(range);
            }
        }
    }

    /// Writes the received part of a slot at the end of a run that can be resumed: on a slow
    /// connection that is everything it received in seconds.
    pub(in crate::engine::worker) fn keep_undelivered(&mut self, index: usize, why: ErrorKind) {
        let connection = &mut self.connections[index];
        let job = connection.state.job_mut();
        let Some(download) = job.into.download() else { return };
        let length = connection.conn.undelivered();
        let kept = length - length % DIRECT_ALIGNMENT_BYTES;
        let is_end =
            matches!(why, ErrorKind::Interrupted | ErrorKind::Deadline | ErrorKind::Endpoint);
        let is_kept = is_end && kept > 0 && !job.state.is_parked();
        let to_file = self.sink.dispose(download.shape) == Disposal::WriteAt;
        if !(is_kept && to_file && download.keeps_prefixes()) {
            return;
        }
        let Some(slot) = job.data.take() else { return };
        let end = job.bytes.offset + connection.conn.reached();
        let (range, offset) = (job.range, end - u64::from(length));
        self.write(range, slot, kept, offset);
    }

    /// Records the prefix of an incomplete range.
    fn note_prefix(&mut self, range: usize) {
        if let Some(note) = self.prefix_to_note(range, false) {
            let download = Arc::clone(self.ranges.download(range));
            self.begin_file(NO_RANGE, &download, note);
        }
    }

    /// The job that records the prefix of an incomplete range, if it has grown.
    pub(in crate::engine::worker) fn prefix_to_note(
        &mut self,
        range: usize,
        run_ends: bool,
    ) -> Option<FileJob> {
        let first = self.writes.first_of(range);
        let FileRange { download, prefix, .. } = self.ranges.file(range)?;
        let file = download.created_file().filter(|_| download.keeps_prefixes())?;
        // A prefix without room now may have it when the run ends.
        if !file.journal.as_ref().is_none_or(|journal| journal.has_room(run_ends)) {
            return None;
        }
        let end = prefix.advance(first, self.now_us)?;
        let part = download.part.bytes();
        let index = (end - 1) / part;
        let (begins, ends) =
            (index * part, download.object.listed.size_bytes.min((index + 1) * part));
        (end < ends).then(|| FileJob::Note { index, prefix_bytes: Some(end - begins) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_ends_where_the_first_write_that_has_not_ended_begins() {
        let mut prefix = Prefix::new(8192, 0);
        assert_eq!(prefix.advance(None, 1), None, "nothing was written");
        prefix.reached = 32_768;
        assert_eq!(prefix.advance(Some(8192), 2), None, "the first write is in flight");
        assert_eq!(prefix.advance(Some(16_384), 3), Some(16_384));
        assert_eq!(prefix.advance(Some(16_384), 4), None, "noted already");
        prefix.fail(20_480);
        assert_eq!(prefix.advance(None, 5), Some(20_480), "behind it is a hole");
        prefix.reached = 40_000;
        assert_eq!(prefix.advance(None, 6), None);
        let mut ragged = Prefix::new(0, 0);
        ragged.reached = 5000;
        assert_eq!(ragged.advance(None, 1), Some(4096), "a range begins at whole blocks");
    }
}
