//! A worker's jobs at the destination's file system: begun here, run by its host at once or on a
//! helper thread, and handled when they have ended.
//!
//! Nothing here waits. A range is settled when its record in the journal is written, an object when
//! its file is named; both by events.

pub(super) mod prefix;
mod write;

use std::sync::Arc;

use super::Worker;
use super::range::{FileRange, RangeKind};
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
    pub(super) fn begin_file(&mut self, token: u64, download: &Arc<FileDownload>, job: FileJob) {
        self.file_jobs += 1;
        self.host.begin(FileTask { token, download: Arc::clone(download), job });
    }

    /// Creates folders and empty files: nothing is fetched.
    pub(super) fn make_empty(&mut self, download: &Arc<FileDownload>) {
        match (self.sink, download.shape) {
            (Sink::Null, _) => self.settle(download),
            (Sink::File, Shape::Folder) => {
                self.begin_file(NO_RANGE, download, FileJob::MakeFolder);
            }
            (Sink::File, _) => self.begin_file(NO_RANGE, download, FileJob::WriteWhole(None)),
        }
    }

    /// Writes a small object's file; its range ends with it.
    pub(super) fn write_whole(
        &mut self,
        range: usize,
        download: &Arc<FileDownload>,
        piece: SlotBytes,
    ) {
        self.ranges.job_begins(range);
        self.begin_file(range as u64, download, FileJob::WriteWhole(Some(piece)));
    }

    /// Every byte of a range is written, or the range was given up.
    pub(super) fn end_range(&mut self, range: usize) {
        let note = self.last_note(range);
        match self.ranges.remove(range) {
            RangeKind::File(FileRange { download, .. }) => match note {
                Some(note) => self.begin_file(RANGE_ENDS, &download, note),
                None => self.settle(&download),
            },
            RangeKind::Client(client) => {
                self.unpaced -= usize::from(client.request.is_paced_by_client());
                client.complete();
            }
        }
    }

    /// What to record of a file's range at its end.
    fn last_note(&mut self, range: usize) -> Option<FileJob> {
        let download = Arc::clone(&self.ranges.file(range)?.download);
        let has_failed = download.failure().is_some();
        // What was written before its object failed, for example because the run was stopped,
        // counts.
        let is_all = !has_failed || download.keeps_prefixes() && self.ranges.is_written(range);
        if !is_all {
            return self.prefix_to_note(range, true);
        }
        let index = self.ranges.offset(range) / download.part.bytes();
        download.created_file().map(|_| FileJob::Note { index, prefix_bytes: None })
    }

    /// Settles one range; the last one finishes the object.
    pub(super) fn settle(&mut self, download: &Arc<FileDownload>) {
        if download.settle() {
            self.finish(download);
        }
    }

    fn finish(&mut self, download: &Arc<FileDownload>) {
        if let (None, Some(sum)) = (download.failure(), download.verification.sum()) {
            download.take_verdict(sum.check().map(|()| sum.stored().algorithm));
        }
        match (download.created_file(), download.failure()) {
            (None, _) => self.conclude(download),
            (Some(_), None) => self.begin_file(NO_RANGE, download, FileJob::Publish),
            (Some(_), Some(_)) => self.begin_file(NO_RANGE, download, FileJob::Abandon),
        }
    }

    /// Reports the outcome of an object.
    fn conclude(&mut self, download: &Arc<FileDownload>) {
        let result = match download.failure() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        };
        if result.is_ok() {
            self.metrics.objects += 1;
            self.metrics.complete_bytes +=
                download.object.listed.size_bytes - download.resumed_bytes();
        }
        let elapsed_us =
            self.now_us.saturating_sub(download.object.begun_us().unwrap_or(self.now_us));
        self.scheduler.finish(Outcome { download: Arc::clone(download), elapsed_us, result });
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
        let FileDone { task: FileTask { token, download, job }, outcome, took_us } = done;
        self.metrics.stages.file_us += took_us;
        let made = outcome.unwrap_or_else(|error| {
            self.file_failed(&download, error);
            false
        });
        match job {
            FileJob::MakeFolder | FileJob::WriteWhole(None) => self.settle(&download),
            FileJob::WriteWhole(Some(piece)) => {
                drop(piece);
                self.write_ended(usize::try_from(token).expect("a range"));
            }
            FileJob::Create => self.file_created(&download, made),
            FileJob::Note { .. } if token == RANGE_ENDS => self.settle(&download),
            FileJob::Note { .. } => {}
            FileJob::Publish | FileJob::Abandon => self.conclude(&download),
        }
    }

    /// After a stop: takes back small objects whose jobs have not begun.
    pub(super) fn recall_files(&mut self, reason: &Error) {
        while let Some(FileTask { token, download, job }) = self.host.recall() {
            self.file_jobs -= 1;
            download.fail(reason.clone());
            match job {
                FileJob::WriteWhole(Some(piece)) => {
                    drop(piece);
                    self.write_ended(usize::try_from(token).expect("a range"));
                }
                _ => self.settle(&download),
            }
        }
    }

    pub(super) fn file_failed(&mut self, download: &FileDownload, error: FileError) {
        let ends_run = error.ends_run();
        let error = Error::from(error).within(download.object.name());
        // Other destinations may work: the run continues with them.
        if ends_run && !download.fail_at_place(&error) {
            self.scheduler.stop(error.clone());
            // Many jobs may find the same error: report the first one for all.
            return download.fail(self.scheduler.stop_reason().unwrap_or(error));
        }
        download.fail(error);
    }
}
