//! The output of a mount: a line for each closed file, and the summary at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::command::ending::{Done, exit_code};
use crate::command::reporting::{finish, open};
use crate::command::session::Interrupts;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MOUNT_CLOSED_QUEUED_MAX;
use crate::mount::serving::reads::{Closed, Reads};
use crate::report::document::{
    FuseReport, MountSummary, MountedCounts, ReadFileLine, RefreshReport, RingReport, summary_json,
};
use crate::report::limit::Limit;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::sys::{tcp_memory, usage};

/// The file of `--report`, if requested.
pub(super) struct FileReport {
    writer: Option<ReportWriter>,
    closed: mpsc::Receiver<Closed>,
    /// Gets closed files; until a server takes it.
    sender: Option<mpsc::Sender<Closed>>,
    /// Why the file failed; printed, and the run's error if nothing worse happens.
    failed: Option<Error>,
}

impl FileReport {
    /// Opens it if a path is given.
    pub(super) async fn open(path: Option<&Path>, interrupts: &mut Interrupts) -> Result<Self> {
        let writer = open(path, interrupts).await?;
        let (sender, closed) = mpsc::channel(MOUNT_CLOSED_QUEUED_MAX);
        let sender = writer.is_some().then_some(sender);
        Ok(Self { writer, closed, sender, failed: None })
    }

    /// The sender for closed files; `None` without a report.
    pub(super) fn take_sender(&mut self) -> Option<mpsc::Sender<Closed>> {
        self.sender.take()
    }

    /// Writes the lines of closed files, endlessly. Cancel safe.
    pub(super) async fn keep_up(&mut self, progress: &Progress) -> std::convert::Infallible {
        loop {
            match &self.writer {
                Some(writer) => writer.keep_up().await,
                None => std::future::pending().await,
            }
            match self.closed.recv().await {
                Some(closed) => self.write(&closed, progress),
                None => std::future::pending().await,
            }
        }
    }

    fn write(&mut self, closed: &Closed, progress: &Progress) {
        let Closed { object, counts, open, error } = closed;
        let bucket = &object.endpoint.bucket;
        let line = ReadFileLine::new(bucket, &object.listed, *counts, *open, error.as_ref());
        self.line(&line.to_json(), progress);
    }

    fn line(&mut self, line: &str, progress: &Progress) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.line(line) {
            progress.error(&error);
            self.failed = Some(error);
            self.writer = None;
        }
    }

    /// Writes the lines of all other files, and of those that are still open.
    fn write_rest(&mut self, reads: &Reads, progress: &Progress) {
        while let Ok(closed) = self.closed.try_recv() {
            self.write(&closed, progress);
        }
        if self.writer.is_some() {
            for closed in reads.still_open() {
                self.write(&closed, progress);
            }
        }
    }
}

/// The facts for the output at the end.
pub(super) struct MountResults<'a> {
    pub(super) control: &'a Control,
    pub(super) mounted: MountedCounts,
    pub(super) ring: RingReport,
    pub(super) fuse: FuseReport,
    pub(super) limit: Limit,
    /// Print the limiting part, too (`--explain`).
    pub(super) explains: bool,
    pub(super) reads: Arc<Reads>,
    /// What `--refresh` came to.
    pub(super) refresh: Option<RefreshReport>,
    pub(super) begun: Instant,
    /// Print the summary on standard output for programs.
    pub(super) json: bool,
    /// Why it ended, unless it was unmounted.
    pub(super) failed: Option<Error>,
    /// It is still mounted.
    pub(super) is_left: bool,
}

impl MountResults<'_> {
    /// Prints the summary, and returns it for programs.
    pub(super) async fn conclude(
        self,
        mut report: FileReport,
        progress: &Progress,
        interrupts: &mut Interrupts,
    ) -> Done {
        match &self.failed {
            // A signal is a usual end of a mount in the foreground.
            Some(error) if error.kind() == ErrorKind::Interrupted && !self.is_left => {
                progress.note(error);
            }
            Some(error) => progress.error(error),
            None => {}
        }
        report.write_rest(&self.reads, progress);
        let code = exit_code(self.failed.as_ref().or(report.failed.as_ref()));
        let retries = self.control.retries();
        let mut summary =
            MountSummary::new(self.mounted, &self.reads.all(), &retries, self.ring, self.limit);
        summary.exit_code = code;
        summary.fuse = self.fuse;
        summary.refresh = self.refresh;
        summary.seconds = self.begun.elapsed().as_secs_f64();
        summary.cpu_seconds = usage::process_cpu_seconds();
        summary.peak_rss_bytes = usage::peak_rss_bytes();
        summary.tcp_memory = tcp_memory::seen();
        for line in summary.lines() {
            progress.note(line);
        }
        if self.explains {
            progress.report(&summary.limit.sentence);
        }
        let document = summary_json(&summary, self.failed.as_ref().or(report.failed.as_ref()));
        report.line(&document, progress);
        if let Some(writer) = report.writer.take() {
            let stopped = self.failed.as_ref().map(Error::kind);
            if let Err(error) = finish(writer, stopped, interrupts).await {
                progress.error(&error);
                report.failed = Some(error);
            }
        }
        let failed = self.failed.or(report.failed);
        summary.exit_code = exit_code(failed.as_ref());
        let document = self.json.then(|| summary_json(&summary, failed.as_ref()));
        Done { code: summary.exit_code, document }
    }
}
