//! Writes of data slots to the files of large objects.

use std::sync::Arc;

use super::NO_RANGE;
use crate::engine::worker::range::{WRITE_TRIES_MAX, WriteState};
use crate::engine::worker::{TOKEN_WRITE, Worker};
use crate::files::file_download::FileDownload;
use crate::files::host::{FileError, FileHost, FileJob};
use crate::sys::{Errno, Handle, Op, Ring, Slot};

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Writes `slot[..length]` to a large object's file once that exists, and counts it in its
    /// range.
    pub(in crate::engine::worker) fn write(
        &mut self,
        range: usize,
        slot: Slot,
        length: u32,
        offset: u64,
    ) {
        let download = Arc::clone(self.ranges.download(range));
        let is_there = download.has_file_or_none();
        let is_awaited = !is_there && self.waits_for(&download).next().is_some();
        self.ranges.write_begins(range, offset + u64::from(length));
        let index = self.writes.insert(WriteState {
            range,
            done: 0,
            length,
            offset,
            begun_us: self.now_us,
            direct: false,
            stuck: 0,
            waiting: Some(slot),
        });
        if is_there {
            self.start_write(index, &download);
        } else if !is_awaited {
            self.begin_file(NO_RANGE, &download, FileJob::Create);
        }
    }

    /// Writes that wait for an object's file.
    fn waits_for(&self, download: &Arc<FileDownload>) -> impl Iterator<Item = usize> {
        let waiting = self.writes.waiting();
        let is_its = |range| Arc::ptr_eq(self.ranges.download(range), download);
        waiting.filter_map(move |(index, range)| is_its(range).then_some(index))
    }

    /// A large object's file was created, or could not be.
    pub(in crate::engine::worker) fn file_created(
        &mut self,
        download: &Arc<FileDownload>,
        is_ours: bool,
    ) {
        if let Some(file) = download.created_file().filter(|_| is_ours) {
            self.metrics.files_direct += u64::from(file.direct);
            self.metrics.files_buffered += u64::from(!file.direct);
        }
        for index in self.waits_for(download).collect::<Vec<_>>() {
            self.start_write(index, download);
        }
    }

    /// Starts a write that had to wait for its file; ends it if there is none.
    fn start_write(&mut self, index: usize, download: &FileDownload) {
        let state = self.writes.get_mut(index);
        let mut slot = state.waiting.take().expect("it has its bytes until it begins");
        let Some(file) = download.created_file() else {
            drop(slot);
            let state = self.writes.remove(index);
            return self.write_ended(state.range);
        };
        let length = crate::files::sink::file::write_length(state.length, file.direct);
        slot[state.length as usize..length as usize].fill(0);
        (state.length, state.direct, state.begun_us) = (length, file.direct, self.now_us);
        self.submit_write(index, slot, file.handle.clone());
    }

    fn submit_write(&mut self, index: usize, slot: Slot, file: Handle) {
        let state = self.writes.get(index);
        let op = Op::Write {
            file,
            slot,
            at: state.done,
            length: state.length - state.done,
            offset: state.offset + u64::from(state.done),
        };
        if let Err(op) = self.ring.submit(TOKEN_WRITE + index as u64, op) {
            self.write_done(index, op, Err(Errno::AGAIN));
        }
    }

    pub(in crate::engine::worker) fn write_done(
        &mut self,
        index: usize,
        op: Op,
        result: Result<u32, Errno>,
    ) {
        let Op::Write { file, slot, length, .. } = op else {
            unreachable!("write tokens belong to writes")
        };
        let state = self.writes.get_mut(index);
        let outcome = match result {
            Ok(count) if count == length => Ok(true),
            Ok(count) => {
                let counted = crate::files::sink::file::progress(count, state.direct);
                state.done += counted;
                state.stuck = if counted == 0 { state.stuck + 1 } else { 0 };
                if state.stuck < WRITE_TRIES_MAX { Ok(false) } else { Err(Errno::IO) }
            }
            Err(errno) if errno.is_transient() && state.stuck < WRITE_TRIES_MAX => {
                state.stuck += 1;
                Ok(false)
            }
            Err(errno) => Err(errno),
        };
        if outcome == Ok(false) {
            self.metrics.short_writes += 1;
            return self.submit_write(index, slot, file);
        }
        drop(slot);
        let state = self.writes.remove(index);
        self.metrics.stages.write_us += self.now_us.saturating_sub(state.begun_us);
        let download = Arc::clone(self.ranges.download(state.range));
        if let Err(errno) = outcome {
            if let Some(file) = self.ranges.file(state.range) {
                file.prefix.fail(state.offset);
            }
            let path = download.created_file().map_or(&download.path, |file| &file.place).clone();
            self.file_failed(&download, FileError::new("write", path, errno));
        }
        self.write_ended(state.range);
    }

    /// A write of a range, or a job with its bytes, has ended.
    pub(in crate::engine::worker) fn write_ended(&mut self, range: usize) {
        if self.ranges.write_ends(range) {
            self.end_range(range);
        }
    }
}
