//! A worker's jobs at the destination's file system: begun here, run by its host at once or on a
//! helper thread, and handled when they have ended.
//!
//! Nothing here waits. A range is settled when its record in the journal is written, an object when
//! its file is named; both by events.

pub(super) mod prefix;
mod write;

use std::sync::Arc;

use super::Worker;
use super::client::Purpose;
use crate::error::Error;
use crate::files::file_download::{FileDownload, Outcome, Shape};
use crate::files::host::{FileDone, FileError, FileHost, FileJob, FileTask, SlotBytes};
use crate::files::sink::Sink;
use crate::sys::Ring;

/// Token of a job that holds no range's bytes and settles none; other tokens are range numbers.
pub(super) const NO_RANGE: u64 = u64::MAX;
/// Token of the journal record that ends a range.
const RANGE_ENDS: u64 = u64::MAX - 1;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Begins a job.
    pub(super) fn begin_file(&mut self, token: u64, transfer: &Arc<FileDownload>, job: FileJob) {
        self.file_jobs += 1;
        self.host.begin(FileTask { token, download: Arc::clone(transfer), job });
    }

    /// Creates folders and empty files: nothing is fetched.
    pub(super) fn make_empty(&mut self, transfer: &Arc<FileDownload>) {
        match (self.sink, transfer.shape) {
            (Sink::Null, _) => self.settle(transfer),
            (Sink::File, Shape::Folder) => {
                self.begin_file(NO_RANGE, transfer, FileJob::MakeFolder);
            }
            (Sink::File, _) => self.begin_file(NO_RANGE, transfer, FileJob::WriteWhole(None)),
        }
    }

    /// Writes a small object's file; its range ends with it.
    pub(super) fn write_whole(
        &mut self,
        range: usize,
        transfer: &Arc<FileDownload>,
        piece: SlotBytes,
    ) {
        self.ranges.job_begins(range);
        self.begin_file(range as u64, transfer, FileJob::WriteWhole(Some(piece)));
    }

    /// Every byte of a range is written, or the range was given up.
    pub(super) fn end_range(&mut self, range: usize) {
        let transfer = self.ranges.transfer(range);
        let has_failed = transfer.failure().is_some();
        // What was written before its object failed, for example because the run was stopped,
        // counts.
        let is_all = !has_failed || transfer.keeps_prefixes() && self.ranges.is_written(range);
        let left = if is_all { None } else { self.prefix_to_note(range, true) };
        let (transfer, offset, purpose) = self.ranges.remove(range);
        if let Purpose::Client { request, failure, brought } = purpose {
            self.unpaced -= usize::from(request.is_paced_by_client());
            return request.complete(failure.map_or(Ok(()), Err), brought);
        }
        let index = offset / transfer.part.bytes();
        let all = FileJob::Note { index, prefix_bytes: None };
        let note = transfer.created_file().and(if is_all { Some(all) } else { left });
        match note {
            Some(note) => self.begin_file(RANGE_ENDS, &transfer, note),
            None => self.settle(&transfer),
        }
    }

    /// Settles one range; the last one finishes the object.
    pub(super) fn settle(&mut self, transfer: &Arc<FileDownload>) {
        if transfer.settle() {
            self.finish(transfer);
        }
    }

    fn finish(&mut self, transfer: &Arc<FileDownload>) {
        if let (None, Some(sum)) = (transfer.failure(), transfer.verification.sum()) {
            transfer.take_verdict(sum.check().map(|()| sum.stored().algorithm));
        }
        match (transfer.created_file(), transfer.failure()) {
            (None, _) => self.conclude(transfer),
            (Some(_), None) => self.begin_file(NO_RANGE, transfer, FileJob::Publish),
            (Some(_), Some(_)) => self.begin_file(NO_RANGE, transfer, FileJob::Abandon),
        }
    }

    /// Reports the outcome of an object.
    fn conclude(&mut self, transfer: &Arc<FileDownload>) {
        let result = match transfer.failure() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        };
        self.metrics.objects += u64::from(result.is_ok());
        let elapsed_us =
            self.now_us.saturating_sub(transfer.object.begun_us().unwrap_or(self.now_us));
        self.scheduler.finish(Outcome { download: Arc::clone(transfer), elapsed_us, result });
    }

    /// Handles jobs that have ended; true if there were any.
    pub(super) fn take_files(&mut self) -> bool {
        let before = self.file_jobs_ended;
        while let Some(done) = self.host.finished() {
            self.file_jobs -= 1;
            self.file_jobs_ended += 1;
            self.file_ended(done);
        }
        self.file_jobs_ended > before
    }

    fn file_ended(&mut self, done: FileDone) {
        let FileDone { task: FileTask { token, download: transfer, job }, outcome, took_us } = done;
        self.metrics.stages.file_us += took_us;
        let made = outcome.unwrap_or_else(|error| {
            self.file_failed(&transfer, error);
            false
        });
        match job {
            FileJob::MakeFolder | FileJob::WriteWhole(None) => self.settle(&transfer),
            FileJob::WriteWhole(Some(piece)) => {
                drop(piece);
                self.write_ended(usize::try_from(token).expect("a range"));
            }
            FileJob::Create => self.file_created(&transfer, made),
            FileJob::Note { .. } if token == RANGE_ENDS => self.settle(&transfer),
            FileJob::Note { .. } => {}
            FileJob::Publish | FileJob::Abandon => self.conclude(&transfer),
        }
    }

    /// After a stop: takes back small objects whose jobs have not begun.
    pub(super) fn recall_files(&mut self, reason: &Error) {
        while let Some(FileTask { token, download: transfer, job }) = self.host.recall() {
            self.file_jobs -= 1;
            transfer.fail(reason.clone());
            match job {
                FileJob::WriteWhole(Some(piece)) => {
                    drop(piece);
                    self.write_ended(usize::try_from(token).expect("a range"));
                }
                _ => self.settle(&transfer),
            }
        }
    }

    pub(super) fn file_failed(&mut self, transfer: &FileDownload, error: FileError) {
        let ends_run = error.ends_run();
        let error = Error::from(error).within(transfer.object.name());
        // Other destinations may work: the run continues with them.
        if ends_run && !transfer.fail_at_place(&error) {
            self.scheduler.stop(error.clone());
            // Many jobs may find the same error: report the first one for all.
            return transfer.fail(self.scheduler.stop_reason().unwrap_or(error));
        }
        transfer.fail(error);
    }
}
