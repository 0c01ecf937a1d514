//! Writes of data slots to the files of large objects.

use std::sync::Arc;

use super::range::{WRITE_TRIES_MAX, WriteState};
use super::{TOKEN_WRITE, Worker};
use crate::error::Error;
use crate::host::{FileError, FileHost};
use crate::sys::{Errno, Handle, Op, Ring, Slot};
use crate::transfer::Transfer;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Starts a write of `slot[..length]` to a large object's file; counts it in its range.
    pub(super) fn write(&mut self, range: usize, slot: Slot, length: u32, offset: u64) {
        let transfer = self.ranges.transfer(range);
        let Some(file) = self.open_file(&transfer) else { return };
        let write_length = crate::sink::file::write_length(length, file.direct);
        let mut slot = slot;
        slot[length as usize..write_length as usize].fill(0);
        self.ranges.write_begins(range, offset + u64::from(length));
        let state = WriteState {
            range,
            done: 0,
            length: write_length,
            offset,
            begun_us: self.now_us,
            direct: file.direct,
            stuck: 0,
        };
        let index = self.writes.insert(state);
        self.submit_write(index, slot, file.handle);
    }

    /// The file of a large object, created by whoever comes first.
    fn open_file(&mut self, transfer: &Arc<Transfer>) -> Option<OpenHandle> {
        let (host, stages) = (&mut self.host, &mut self.metrics.stages);
        let (mut created, mut failure) = (false, None);
        let file = transfer.file(|| {
            let before = host.now_us();
            let file = host.create(transfer);
            stages.file_us += host.now_us() - before;
            created = file.is_ok();
            file.map_err(|error| {
                failure = Some(error.clone());
                Error::from(error).within(transfer.name())
            })
        });
        if let Some(error) = failure {
            self.file_failed(transfer, error);
        }
        let file = file?;
        if created && file.direct {
            self.metrics.files_direct += 1;
        } else if created {
            self.metrics.files_buffered += 1;
        }
        Some(OpenHandle { handle: file.handle.clone(), direct: file.direct })
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

    pub(super) fn write_done(&mut self, index: usize, op: Op, result: Result<u32, Errno>) {
        let Op::Write { file, slot, length, .. } = op else {
            unreachable!("write tokens belong to writes")
        };
        let state = self.writes.get_mut(index);
        let outcome = match result {
            Ok(count) if count == length => Ok(true),
            Ok(count) => {
                let counted = crate::sink::file::progress(count, state.direct);
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
        let transfer = self.ranges.transfer(state.range);
        if let Err(errno) = outcome {
            if let Some((_, prefix)) = self.ranges.find(state.range) {
                prefix.fail(state.offset);
            }
            let path = transfer.path.clone();
            self.file_failed(&transfer, FileError { step: "write", path, errno });
        }
        if self.ranges.write_ends(state.range) {
            self.end_range(state.range);
        }
    }
}

/// What a write needs of an open file.
struct OpenHandle {
    handle: Handle,
    direct: bool,
}
