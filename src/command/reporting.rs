//! Waits for the report's file, for a limited time.

use std::path::Path;

use super::runtime::has_ring;
use super::session::Interrupts;
use crate::download::cancel::Cancel as _;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::REPORT_WAIT_MAX;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;

/// Prints the lines of a summary; of a quiet command only those that options request, which are not
/// among the `usual` ones.
pub(super) fn print_lines(progress: &Progress, lines: &[String], usual: &[String]) {
    for line in lines {
        match usual.contains(line) {
            true => progress.note(line),
            false => progress.report(line),
        }
    }
}

/// Opens the report if requested; a pipe without a reader is waited for until a signal or the
/// deadline.
pub(super) async fn open(
    path: Option<&Path>,
    interrupts: &mut Interrupts,
) -> Result<Option<ReportWriter>> {
    let Some(path) = path else { return Ok(None) };
    let when = format!("before the report {} was opened", path.display());
    interrupts.unless_reported(&when, ReportWriter::create(path, has_ring())).await.map(Some)
}

/// Waits until lines may be added to the report. Cancel safe.
pub(super) async fn keep_up(report: Option<&ReportWriter>) {
    if let Some(report) = report {
        report.keep_up().await;
    }
}

/// Ends the report. A run that was ended early, for a reason of this kind, waits for a limited
/// time; otherwise a signal ends the wait.
pub(super) async fn finish(
    report: ReportWriter,
    stopped: Option<ErrorKind>,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let path = report.path().display().to_string();
    let limit = async {
        match stopped {
            Some(_) => tokio::time::sleep(REPORT_WAIT_MAX).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        finished = report.finish() => return finished,
        () = interrupts.next() => {}
        () = limit => {}
    }
    let kind = stopped.unwrap_or(ErrorKind::Interrupted);
    Err(Error::new(kind, format!("the report {path} is incomplete: it cannot be written")))
}
