//! The report of streams: how each object ended, from the feeders to the file of `--report`.

use std::path::Path;
use std::time::Duration;

use super::channel::Running;
use super::reporting::{finish, open};
use super::session::Interrupts;
use crate::error::{ErrorKind, Result};
use crate::report::document::StreamedLine;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;

/// Pause between two looks at what ended.
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// The report, where one is wanted.
pub(super) struct StreamReport {
    is_wanted: bool,
    writer: Option<ReportWriter>,
    /// The file took no more; told, and the run's exit code if nothing worse happens.
    failed: Option<ErrorKind>,
}

impl StreamReport {
    /// Opens it where a path is given.
    pub(super) async fn open(path: Option<&Path>, interrupts: &mut Interrupts) -> Result<Self> {
        let writer = open(path, interrupts).await?;
        Ok(Self { is_wanted: writer.is_some(), writer, failed: None })
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
                    self.failed = Some(error.kind());
                    self.writer = None;
                }
            }
        }
    }

    /// Ends it; returns the exit code of a run that would exit with `code`.
    pub(super) async fn finish(
        &mut self,
        code: u8,
        progress: &Progress,
        interrupts: &mut Interrupts,
    ) -> u8 {
        if let Some(writer) = self.writer.take() {
            let is_early = |kind: &ErrorKind| kind.exit_code() == code;
            let stopped = ErrorKind::ALL.into_iter().find(is_early);
            if let Err(error) = finish(writer, stopped, interrupts).await {
                progress.error(&error);
                self.failed = Some(error.kind());
            }
        }
        match code {
            0 => self.failed.map_or(0, ErrorKind::exit_code),
            code => code,
        }
    }
}
