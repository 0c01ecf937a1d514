//! The report of streams: how each object ended, from the feeders to the file of `--report`.

use std::path::Path;
use std::time::Duration;

use super::channel::Running;
use super::reporting::{finish, open};
use super::session::Interrupts;
use crate::error::{Error, Result};
use crate::report::document::StreamedLine;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;

/// Pause between two looks at what ended.
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// The report, where one is wanted.
pub(super) struct StreamReport {
    is_wanted: bool,
    writer: Option<ReportWriter>,
    /// Why the file took no more; reported, and how the run ends if nothing worse happens.
    failed: Option<Error>,
}

impl StreamReport {
    /// Opens it where a path is given.
    pub(super) async fn open(path: Option<&Path>, interrupts: &mut Interrupts) -> Result<Self> {
        let writer = open(path, interrupts).await?;
        Ok(Self { is_wanted: writer.is_some(), writer, failed: None })
    }

    /// One that others write to as well.
    pub(super) fn shared(writer: Option<ReportWriter>) -> Self {
        Self { is_wanted: writer.is_some(), writer, failed: None }
    }

    /// How soon to look again; `None` where nothing is reported.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.is_wanted.then_some(REPORT_PAUSE)
    }

    /// Takes what ended since the last time. While the file is behind it stays where it is, and
    /// holds up what comes after it.
    pub(super) fn take(&mut self, channels: &[Running], progress: &Progress) {
        if !self.writer.as_ref().is_some_and(ReportWriter::is_behind) {
            self.write(channels, progress);
        }
    }

    /// Takes what is left, once all channels have ended.
    pub(super) fn take_rest(&mut self, channels: &[Running], progress: &Progress) {
        // Not much: a feed's room bounds it.
        self.write(channels, progress);
    }

    fn write(&mut self, channels: &[Running], progress: &Progress) {
        let mut ended = Vec::new();
        for channel in channels {
            channel.feed.collect(&mut ended);
            for streamed in ended.drain(..) {
                let Some(writer) = &mut self.writer else { continue };
                let line = StreamedLine::new(&channel.name, streamed.epoch, &streamed.outcome);
                if let Err(error) = writer.line(&line.to_json()) {
                    progress.error(&error);
                    self.failed = Some(error);
                    self.writer = None;
                }
            }
        }
    }

    /// Ends it; returns why a run fails that has `failed` for this reason, or not.
    pub(super) async fn finish(
        &mut self,
        failed: Option<Error>,
        progress: &Progress,
        interrupts: &mut Interrupts,
    ) -> Option<Error> {
        if let Some(writer) = self.writer.take() {
            let stopped = failed.as_ref().map(Error::kind);
            if let Err(error) = finish(writer, stopped, interrupts).await {
                progress.error(&error);
                self.failed = Some(error);
            }
        }
        failed.or(self.failed.take())
    }
}
