//! `inrush ls`: a listing on standard output, page by page.

use std::ops::ControlFlow;

use super::session;
use crate::cli::LsArgs;
use crate::control::walk::Walk;
use crate::error::Result;
use crate::plan::filter::Filter;
use crate::report::document::ListedLine;
use crate::report::out::Lines;
use crate::report::progress::Progress;

/// Lists a source. A reader that goes away ends it, as success.
pub(super) async fn run(args: LsArgs) -> Result<()> {
    let progress = Progress::new(!args.quiet);
    let filter = Filter::new(&args.selection.rules)?;
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, &progress).await?;
    let sources = control.resolve_all(&args.sources).await?;
    let mut walk = Walk::new(control, sources, filter)?;
    let mut lines = Lines::stdout();
    while let Some(batch) = walk.next_batch().await? {
        for entry in batch {
            let line = ListedLine::new(&entry.endpoint.bucket, &entry.object);
            let line = if args.json { line.to_json() } else { line.to_text() };
            if lines.line(&line)? == ControlFlow::Break(()) {
                return Ok(());
            }
        }
        if lines.flush()? == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    lines.flush().map(|_| ())
}
