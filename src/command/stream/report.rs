//! The report of streams: the results of objects, from the feeders to the file of `--report`.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::channel::Running;
use crate::cli::{StreamArgs, VerifyMode};
use crate::command::ending::{Done, exit_code};
use crate::command::reporting::{finish, open, print_lines};
use crate::command::session::Interrupts;
use crate::control::Control;
use crate::engine::metrics::{FeedCount, WorkerMetrics};
use crate::engine::stream::feed::Streamed;
use crate::engine::threads::Workers;
use crate::error::{Error, Result};
use crate::limits::STREAM_LOOK_PAUSE;
use crate::link::failure::RetryCounts;
use crate::plan::ranges::PartSize;
use crate::report::asked::of_machine;
use crate::report::document::{ObjectLine, RingReport, StreamSummary, StreamedLine, summary_json};
use crate::report::limit::LimitFacts;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::sys::{tcp_memory, usage};

/// Pause between two checks for results, for a report.
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two updates of the progress line.
const SHOW_PAUSE: Duration = Duration::from_millis(200);

/// The report, if requested.
pub(in crate::command) struct StreamReport {
    is_wanted: bool,
    writer: Option<ReportWriter>,
    /// Why the file failed; printed, and the run's error if nothing worse happens.
    failed: Option<Error>,
}

impl StreamReport {
    /// Opens it if a path is given.
    pub(super) async fn open(path: Option<&Path>, interrupts: &mut Interrupts) -> Result<Self> {
        let writer = open(path, interrupts).await?;
        Ok(Self { is_wanted: writer.is_some(), writer, failed: None })
    }

    /// A report that is shared with other writers.
    pub(in crate::command) fn shared(writer: Option<ReportWriter>) -> Self {
        Self { is_wanted: writer.is_some(), writer, failed: None }
    }

    /// Waits until a channel has changed, or a worker has ended or waits for a server; at most as
    /// long as progress, report and such a wait may be stale. Results within [`REPORT_PAUSE`] are
    /// reported together. Cancel safe.
    pub(in crate::command) async fn wait(
        &self,
        events: &Notify,
        engine: &Workers,
        progress: &Progress,
    ) {
        if self.is_wanted {
            tokio::time::sleep(REPORT_PAUSE).await;
        }
        let is_shown = progress.has_bar() || tracing::enabled!(tracing::Level::INFO);
        let stale = async {
            if is_shown || self.is_behind() {
                tokio::time::sleep(SHOW_PAUSE).await;
            } else if engine.longest_wait().is_some() {
                tokio::time::sleep(STREAM_LOOK_PAUSE).await;
            } else {
                engine.stumbled().await;
            }
        };
        tokio::select! {
            () = events.notified() => {}
            () = stale => {}
        }
    }

    fn is_behind(&self) -> bool {
        self.writer.as_ref().is_some_and(ReportWriter::is_behind)
    }

    /// Takes the results since the last call. While the file is behind they stay in the feeds, and
    /// delay later ones.
    pub(in crate::command) fn take(&mut self, channels: &[Running], progress: &Progress) {
        if !self.is_behind() {
            self.write(channels, progress);
        }
    }

    /// Takes the remaining results, once all channels have ended.
    pub(in crate::command) fn take_rest(&mut self, channels: &[Running], progress: &Progress) {
        // Few: a feed's size limits them.
        self.write(channels, progress);
    }

    fn write(&mut self, channels: &[Running], progress: &Progress) {
        let mut ended = Vec::new();
        for channel in channels {
            channel.feed.collect(&mut ended);
            for streamed in ended.drain(..) {
                let Some(writer) = &mut self.writer else { continue };
                let Streamed { epoch, object, elapsed_us, result } = &streamed;
                let line = ObjectLine::streamed(object, *elapsed_us, result.as_ref().err());
                let line = StreamedLine::new(&channel.name, *epoch, line);
                if let Err(error) = writer.line(&line.to_json()) {
                    progress.error(&error);
                    self.failed = Some(error);
                    self.writer = None;
                }
            }
        }
    }

    /// Ends it; returns the error of a run that has `failed` for this reason, or not.
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

/// Facts of the workers of streams once they have ended.
pub(in crate::command) struct EndedEngine {
    ring: RingReport,
    known: LimitFacts,
    workers: Vec<WorkerMetrics>,
}

impl EndedEngine {
    /// Ends the workers, which were requested ranges of this size. The numbers of connections may
    /// have been given, and so may a bandwidth limit.
    pub(in crate::command) fn of(
        engine: Workers,
        part: Option<PartSize>,
        is_fixed: bool,
        bandwidth: Option<NonZeroU64>,
    ) -> Self {
        let known = LimitFacts {
            part_bytes: part.map_or(0, PartSize::bytes),
            // The control plane's thread began earlier, and transfers no data.
            cpu_seconds: usage::process_cpu_seconds() - usage::thread_cpu_seconds(),
            is_fixed,
            bandwidth_limit: bandwidth.map(NonZeroU64::get),
            ..of_machine(engine.config())
        };
        Self { ring: RingReport::new(engine.ring()), known, workers: engine.end() }
    }

    /// Adds the ring, and the limiting part.
    pub(in crate::command) fn explain<'a>(
        self,
        summary: &mut StreamSummary,
        feeds: impl Iterator<Item = &'a FeedCount> + Clone,
    ) {
        summary.ring = Some(self.ring);
        summary.explain(self.known, &self.workers, feeds);
    }
}

/// The summary of streams, with the usage of the process and of the machine's sockets.
pub(in crate::command) fn summary_of<'a>(
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

/// Prints the result of each epoch, and returns the summary for programs.
pub(super) fn conclude(
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
    if args.verify != VerifyMode::Off {
        lines.extend(summary.verified_lines());
    }
    if args.explain {
        lines.extend(summary.limit.as_ref().map(|limit| limit.sentence.clone()));
    }
    print_lines(progress, &lines, &summary.lines(false));
    Done { code, document: args.json.then(|| summary_json(&summary, failed)) }
}
