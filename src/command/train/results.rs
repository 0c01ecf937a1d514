//! The results of a job: what its parts counted, for users and for programs.

use std::ops::ControlFlow;
use std::time::Instant;

use super::child::Exit;
use super::failure::Failure;
use super::layout::JobFolders;
use super::mounts::Mounts;
use super::streams::EndedStreams;
use crate::cli::TrainArgs;
use crate::command::context::Context;
use crate::command::ending::Done;
use crate::command::reporting::{finish, print_lines};
use crate::command::session::Interrupts;
use crate::command::stream::report::summary_of;
use crate::control::blocking::blocking;
use crate::error::{Error, Result};
use crate::link::failure::RetryCounts;
use crate::report::document::{
    AllFilesSummary, CacheCounts, CommandExit, TrainPlan, TrainSummary, summary_json,
};
use crate::report::out::{Lines, ReportWriter};
use crate::report::progress::Progress;

/// Writes the rest of the report to its file; returns why the run fails if that fails.
pub(super) async fn end_report(
    report: Option<ReportWriter>,
    failure: Option<&Failure>,
    interrupts: &mut Interrupts,
) -> Option<Failure> {
    // A run that failed before its first object leaves an older report unchanged.
    let report = report.filter(|report| failure.is_none() || !report.is_empty())?;
    let stopped = failure.map(|failure| failure.error.kind());
    let ended = finish(report, stopped, interrupts).await;
    ended.err().map(|error| Failure { error, is_reported: false, code: None })
}

/// The results of a job's parts.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) files: AllFilesSummary,
    pub(super) pipes: EndedStreams,
    pub(super) mounts: Option<Mounts>,
    pub(super) cache: Option<CacheCounts>,
    pub(super) exit: Option<(Exit, f64)>,
    pub(super) retries: RetryCounts,
    pub(super) report: Option<ReportWriter>,
}

/// Reports the result of a job to users and programs.
pub(super) fn conclude(
    args: &TrainArgs,
    job: Parts,
    failure: Option<Failure>,
    begun: Instant,
    context: &Context,
) -> Done {
    let progress = context.messages.progress(!args.output.messages.quiet);
    let has_command = !args.command.is_empty() && !args.check;
    if let Some(failure) = failure.as_ref().filter(|failure| !failure.is_reported) {
        progress.error(&failure.error);
    }
    let of_command = job.exit.map_or(0, |(exit, _)| exit.code());
    if let (Some((Exit::Signal(signal), _)), None) = (&job.exit, &failure) {
        progress.note(format!("COMMAND was killed by signal {signal}"));
    }
    let code = failure.as_ref().map_or(of_command, |failure| failure.code(has_command));
    let command = job.exit.map(|(exit, seconds)| match exit {
        Exit::Code(code) => CommandExit { exit_code: Some(code), signal: None, seconds },
        Exit::Signal(signal) => CommandExit { exit_code: None, signal: Some(signal), seconds },
    });
    let EndedStreams { counts, engine } = job.pipes;
    let named = counts.iter().map(|(name, count)| (name.as_str(), count));
    let mut pipes = summary_of(named, begun, &job.retries, code);
    if let Some(engine) = engine {
        engine.explain(&mut pipes, counts.iter().map(|(_, count)| count));
    }
    if !args.check {
        print_lines(&progress, &pipes.lines(args.stats), &pipes.lines(false));
        job.cache.iter().for_each(|cache| progress.note(cache.in_words()));
    }
    // The cache is synced only now: the result is reported earlier.
    job.mounts.into_iter().for_each(|mut mounts| mounts.close(&progress));
    let summary = TrainSummary::new(job.files, pipes, job.cache, command, begun.elapsed(), code);
    let error = failure.as_ref().map(|failure| &failure.error);
    let document = args.output.json.then(|| summary_json(&summary, error));
    Done { code, document }
}

/// Prints the plan.
pub(super) fn print_plan(plan: &TrainPlan, args: &TrainArgs) -> Result<Done> {
    let mut lines = Lines::stdout();
    if args.output.json {
        return Ok(Done { code: plan.exit_code, document: Some(summary_json(plan, None)) });
    }
    for line in plan.lines() {
        if lines.line(&line)? == ControlFlow::Break(()) {
            break;
        }
    }
    let _ = lines.flush()?;
    Ok(Done::default())
}

/// Writes the file with the failure that SageMaker shows.
pub(super) async fn write_failure(layout: &JobFolders, error: &Error, progress: &Progress) {
    let (layout, error) = (layout.clone(), error.clone());
    if let Err(unwritten) = blocking(move || layout.report_failure(&error)).await {
        progress.error(unwritten);
    }
}
