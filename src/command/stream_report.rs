//! The report of streams: how each object ended, from the feeders to the file of `--report`.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::channel::Running;
use super::ending::{Done, exit_code};
use super::reporting::{finish, open, tell_lines};
use super::session::Interrupts;
use crate::cli::StreamArgs;
use crate::control::Control;
use crate::engine::metrics::{FeedCount, WorkerMetrics};
use crate::engine::threads::Workers;
use crate::error::{Error, Result};
use crate::limits::STREAM_LOOK_PAUSE;
use crate::link::failure::RetryCounts;
use crate::plan::ranges::PartSize;
use crate::report::asked::of_machine;
use crate::report::document::{RingTold, StreamSummary, StreamedLine, summary_json};
use crate::report::limit::LimitFacts;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::sys::{tcp_memory, usage};

/// Pause between two looks at what ended, for a report.
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two looks at channels while they are shown.
const SHOW_PAUSE: Duration = Duration::from_millis(200);

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

    /// Waits until something has become of a channel, at most as long as what is shown and
    /// reported may be old. What ends within [`REPORT_PAUSE`] is reported together. The future may
    /// be dropped and made again.
    pub(super) async fn wait(&self, events: &Notify, progress: &Progress) {
        if self.is_wanted {
            tokio::time::sleep(REPORT_PAUSE).await;
        }
        let is_shown = progress.has_bar() || tracing::enabled!(tracing::Level::INFO);
        let longest = match is_shown || self.is_behind() {
            true => SHOW_PAUSE,
            false => STREAM_LOOK_PAUSE,
        };
        let _ = tokio::time::timeout(longest, events.notified()).await;
    }

    fn is_behind(&self) -> bool {
        self.writer.as_ref().is_some_and(ReportWriter::is_behind)
    }

    /// Takes what ended since the last time. While the file is behind it stays where it is, and
    /// holds up what comes after it.
    pub(super) fn take(&mut self, channels: &[Running], progress: &Progress) {
        if !self.is_behind() {
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

/// What is known of the workers of streams once they have ended.
pub(super) struct EndedEngine {
    ring: RingTold,
    known: LimitFacts,
    workers: Vec<WorkerMetrics>,
}

impl EndedEngine {
    /// Ends them, who were asked for ranges of this size. The numbers of connections were given, or
    /// not; and so was a bandwidth.
    pub(super) fn of(
        engine: Workers,
        part: Option<PartSize>,
        is_fixed: bool,
        bandwidth: Option<NonZeroU64>,
    ) -> Self {
        let known = LimitFacts {
            part_bytes: part.map_or(0, PartSize::bytes),
            // The control plane's thread began before, and moves no bytes.
            cpu_seconds: usage::process_cpu_seconds() - usage::thread_cpu_seconds(),
            is_fixed,
            bandwidth_limit: bandwidth.map(NonZeroU64::get),
            ..of_machine(engine.config())
        };
        Self { ring: RingTold::new(engine.ring()), known, workers: engine.end() }
    }

    /// Adds which ring they had, and what their limit was.
    pub(super) fn explain<'a>(
        self,
        summary: &mut StreamSummary,
        feeds: impl Iterator<Item = &'a FeedCount> + Clone,
    ) {
        summary.ring = Some(self.ring);
        summary.explain(self.known, &self.workers, feeds);
    }
}

/// What streams came to, and what the process and the machine's sockets had meanwhile.
pub(super) fn summary_of<'a>(
    counts: impl Iterator<Item = (&'a str, &'a FeedCount)>,
    begun: Instant,
    retries: &RetryCounts,
    code: u8,
) -> StreamSummary {
    let cpu_seconds = usage::process_cpu_seconds();
    let rss_bytes = usage::peak_rss_bytes();
    let elapsed = begun.elapsed();
    let mut all = StreamSummary::new(counts, elapsed, cpu_seconds, rss_bytes, retries, code);
    all.tcp_memory = tcp_memory::seen();
    all
}

/// Tells people what each epoch came to, and returns it for programs.
pub(super) fn tell(
    (control, engine): (&Control, Workers),
    channels: &[Running],
    args: &StreamArgs,
    begun: Instant,
    failed: Option<&Error>,
    progress: &Progress,
) -> Done {
    let code = exit_code(failed);
    let counts = channels.iter().map(|channel| (channel.name.as_str(), &channel.count));
    let mut summary = summary_of(counts, begun, &control.retries(), code);
    summary.clock_correction_seconds = control.clock_ahead_seconds();
    let part = channels.first().map(|channel| channel.part);
    let ended = EndedEngine::of(engine, part, args.connections.is_some(), args.bandwidth_limit);
    ended.explain(&mut summary, channels.iter().map(|channel| &channel.count));
    let mut lines = summary.lines(args.stats);
    if args.explain {
        lines.extend(summary.limit.as_ref().map(|limit| limit.sentence.clone()));
    }
    tell_lines(progress, &lines, &summary.lines(false));
    Done { code, document: args.json.then(|| summary_json(&summary, failed)) }
}
