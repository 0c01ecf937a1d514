//! Waits for the report's file, for a limited time.

use std::path::Path;

use super::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::REPORT_WAIT_MAX;
use crate::report::out::ReportWriter;

/// Opens the report if requested; a pipe without a reader is waited for until the run is
/// cancelled or its deadline passes. `ring`: the runtime has one.
pub(crate) async fn open(
    path: Option<&Path>,
    ring: bool,
    cancel: &mut impl Cancel,
) -> Result<Option<ReportWriter>> {
    let Some(path) = path else { return Ok(None) };
    let when = format!("before the report {} was opened", path.display());
    cancel.unless_reported(&when, ReportWriter::create(path, ring)).await.map(Some)
}

/// Waits until lines may be added to the report. Cancel safe.
pub(crate) async fn keep_up(report: Option<&ReportWriter>) {
    if let Some(report) = report {
        report.keep_up().await;
    }
}

/// Ends the report. A run that was ended early, for a reason of this kind, waits for a limited
/// time; otherwise a cancellation ends the wait.
pub(crate) async fn finish(
    report: ReportWriter,
    stopped: Option<ErrorKind>,
    cancel: &mut impl Cancel,
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
        () = cancel.cancelled() => {}
        () = limit => {}
    }
    let kind = stopped.unwrap_or(ErrorKind::Interrupted);
    Err(Error::new(kind, format!("the report {path} is incomplete: it cannot be written")))
}
