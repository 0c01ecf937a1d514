//! What a run prints of its result, and its report.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::session::Interrupts;
use crate::download::reporting;
pub(super) use crate::download::reporting::{finish, keep_up};
use crate::error::Result;
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

/// Opens the report if requested, as [`crate::download::reporting::open`] does.
pub(super) async fn open(
    path: Option<&Path>,
    interrupts: &mut Interrupts,
) -> Result<Option<ReportWriter>> {
    let has_ring = interrupts.context().has_ring.load(Ordering::Relaxed);
    reporting::open(path, has_ring, interrupts).await
}
