//! The output of a download: its events as lines for people, as a report and as metrics; and its
//! result.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::context::Context;
use super::ending::exit_code;
use super::failures::FailureMessages;
use super::log::{self, PaceLog};
use super::reporting::{finish, keep_up, open, print_lines};
use super::ring;
use super::session::Interrupts;
use crate::control::list::sources::Source;
use crate::download::job::Fetched;
use crate::download::observer::{Observer, RunEvent, Subject};
use crate::download::run::{Remarks, RunFailure};
use crate::error::{Error, Result};
use crate::files::file_download::Outcome;
use crate::report::document::Summary;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;

/// The output of a download.
pub(super) struct Output {
    context: Arc<Context>,
    progress: Progress,
    /// Prefix of the summary's lines, if other lines are printed, too.
    label: Option<String>,
    /// One line per object.
    report: Option<ReportWriter>,
    /// The report failed; printed, and the error of the run if nothing worse happens.
    report_error: Option<Error>,
    messages: FailureMessages,
    paces: PaceLog,
}

impl Output {
    /// Prints here, and adds lines to this report, which is shared with other downloads.
    pub(super) fn new(
        context: &Arc<Context>,
        progress: Progress,
        label: Option<String>,
        report: Option<ReportWriter>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            progress,
            label,
            report,
            report_error: None,
            messages: FailureMessages::default(),
            paces: PaceLog::default(),
        }
    }

    pub(super) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Opens the report if requested, unless it is shared.
    pub(super) async fn open_report(
        &mut self,
        path: Option<&Path>,
        interrupts: &mut Interrupts,
    ) -> Result<()> {
        if self.report.is_none() {
            self.report = open(path, interrupts).await?;
        }
        Ok(())
    }

    /// Where notes are printed.
    pub(super) const fn progress(&self) -> &Progress {
        &self.progress
    }

    fn sources(&self, sources: &[Source]) {
        log::sources(sources);
        for source in sources.iter().filter(|source| source.is_literal()) {
            let note = format!("{}: taken as a name that exists, not as a glob", source.uri);
            self.progress.note(note);
        }
    }

    /// Adds the event's line to the report, if both are there.
    fn report_event(&mut self, event: &RunEvent<'_>) {
        if let Some(report) = &mut self.report
            && let Some(line) = event.report_line()
            && let Err(error) = report.line(&line)
        {
            self.progress.error(&error);
            self.report_error = Some(error);
            self.report = None;
        }
    }

    /// Reports a failed object, whose `error` may have the name of its channel.
    fn fail(&mut self, subject: Subject<'_>, outcome: &Outcome, error: &Error, with_run: bool) {
        let own = outcome.result.as_ref().err().unwrap_or(error);
        let name = subject.download.object.name();
        if !with_run && self.messages.is_reported_of(&name, own) {
            self.progress.error(error);
        } else {
            log::failed(subject.download, (!with_run).then_some(error), subject.target);
        }
        if with_run {
            self.messages.fail_with_run();
        }
    }

    /// Ends the report of a run that ends before any data is transferred, if it has a line.
    pub(super) async fn ended_before(mut self, error: Error, interrupts: &mut Interrupts) -> Error {
        if let Some(report) = self.report.take().filter(|report| !report.is_empty())
            && let Err(unreported) = finish(report, Some(error.kind()), interrupts).await
        {
            self.progress.error(unreported);
        }
        error
    }

    /// Prints the cause of a run's end. Nothing is said about a run that was `halted`: the rest of
    /// it was not needed.
    fn print_failure(&self, failure: Option<&RunFailure>, is_halted: bool) {
        self.progress.finish();
        let cause = match failure {
            Some(RunFailure::Stopped(error, words)) => Some((error.kind(), words.clone())),
            _ => None,
        };
        let words = self.messages.last_words(cause.filter(|_| !is_halted));
        words.into_iter().flatten().for_each(|words| self.progress.error(words));
        if let Some(RunFailure::Run(error) | RunFailure::Listing(error)) = failure {
            self.progress.error(error);
        }
    }

    /// Prints the result, and ends the report; returns the summary and the error of the run.
    pub(super) async fn end(
        mut self,
        fetched: Fetched,
        (stats, explains): (bool, bool),
        interrupts: &mut Interrupts,
    ) -> (Summary, Option<Error>) {
        let Fetched { mut inputs, failure, remarks, stopped, .. } = fetched;
        self.print_failure(failure.as_ref(), interrupts.is_halted());
        let error = failure.as_ref().map(RunFailure::error).or(self.report_error.as_ref());
        let mut error = error.cloned();
        inputs.exit_code = exit_code(error.as_ref());
        let exported = &self.context.exported;
        exported.show_end(&remarks.known, inputs.failed_objects, &inputs.control_retries);
        let mut summary = Summary::new(&inputs);
        log::ended(&summary);
        self.print_summary(&summary, (stats, explains), remarks);
        if let Some(report) = self.report.take()
            && let Err(unreported) = finish(report, stopped, interrupts).await
        {
            self.progress.error(&unreported);
            error.get_or_insert(unreported);
            summary.exit_code = exit_code(error.as_ref());
        }
        (summary, error)
    }

    fn print_summary(&self, summary: &Summary, (stats, explains): (bool, bool), remarks: Remarks) {
        let (mut lines, mut usual) = (summary.lines(stats), summary.lines(false));
        lines.extend(explains.then(|| summary.limit.sentence.clone()));
        let mut notes = remarks.existing;
        if summary.is_all_present() {
            // The first line has it.
            notes.remove(0);
        }
        notes.extend(remarks.repeated);
        usual.extend(notes.iter().cloned());
        lines.splice(1..1, notes);
        match &self.label {
            // Part of a command whose own lines come at its end.
            Some(label) => {
                lines.iter().for_each(|line| self.progress.note(format!("{label}: {line}")));
            }
            None => print_lines(&self.progress, &lines, &usual),
        }
    }
}

impl Observer for Output {
    fn event(&mut self, event: RunEvent<'_>) {
        self.report_event(&event);
        match event {
            RunEvent::Found(sources) => self.sources(sources),
            RunEvent::Configured(config) => log::config(config),
            RunEvent::Started(workers, target) => {
                self.context.exported.watch(workers);
                log::places(&workers.places_in_words());
                ring::report_fallback(workers.ring(), &self.context, &self.progress);
                self.context.leaves(workers.last_words(target.any_in_words()));
            }
            RunEvent::Existing(subject, kept) => {
                log::kept(subject.download, kept, subject.target);
            }
            RunEvent::Progress(state, failed_objects, workers) => {
                let names = || workers.scheduler.endpoints().names();
                self.paces.log("", || (workers.pacer.timeline(), names()));
                self.context.exported.show(state, failed_objects);
                self.progress.update(state);
            }
            RunEvent::Admitted(..) => {}
            RunEvent::Retried(download, _, why) => {
                self.progress
                    .note(format!("{} is downloaded again: {why}", download.object.name()));
            }
            RunEvent::Done(subject, _) => log::complete(subject.download, subject.target),
            RunEvent::Failed { subject, outcome, error, with_run } => {
                self.fail(subject, outcome, error, with_run);
            }
            RunEvent::LeftOut(error) => self.progress.error(error),
            RunEvent::Removed(path, target) => {
                let place = target.place(path).unwrap_or_default();
                self.progress.note(format!("delete: {place}"));
            }
            RunEvent::Note(line) => self.progress.note(line),
        }
    }

    fn is_behind(&self) -> bool {
        self.report.as_ref().is_some_and(ReportWriter::is_behind)
    }

    fn keep_up(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(keep_up(self.report.as_ref()))
    }
}
