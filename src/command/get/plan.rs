//! `--dry-run`: what would be downloaded, kept and deleted, and what would be in the way.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc::channel;

use super::Ended;
use crate::cli::GetArgs;
use crate::command::context::Context;
use crate::command::ending::exit_code;
use crate::command::failures::FailureMessages;
use crate::download::existing::{Clearing, Verdict};
use crate::download::failures::Failures;
use crate::download::job::{ReadyJob, Resolved};
use crate::download::mirror::Mirror;
use crate::download::run::{first_file, settle};
use crate::download::space::Space;
use crate::download::target::Target;
use crate::error::{Error, Result};
use crate::files::file_download::FileDownload;
use crate::files::system_host::{self, SystemHost};
use crate::limits::BLOCKED_OBJECTS_MAX;
use crate::report::document::{PlannedLine, PlannedTotal, RemovedLine, summary_json};
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::text::size::{Decimal, counted};

/// The findings of a `--dry-run`.
struct Plan<'a> {
    target: &'a Target,
    is_json: bool,
    lines: Lines,
    total: PlannedTotal,
    kept: (u64, u64),
    failures: Failures,
    messages: FailureMessages,
    progress: Progress,
    /// Objects that cannot be stored because something is in their way.
    blocked: Vec<(FileDownload, Error)>,
    /// The folder of the first file was checked.
    is_checked: bool,
    /// The space after all objects are stored.
    space: Space,
}

impl Plan<'_> {
    /// As in a run, the first file shows if files can be created. A plan creates none, so it only
    /// warns.
    async fn check_writable(&mut self, verdicts: &[Verdict]) -> Result<()> {
        if let Some(file) = verdicts.iter().find_map(first_file).filter(|_| !self.is_checked) {
            self.is_checked = true;
            self.target.require_possible().await?;
            if let Err(error) = self.target.require_permitted(file).await {
                self.progress.warn(error);
            }
        }
        Ok(())
    }

    /// Lists the objects that would be downloaded; breaks if the output's reader is gone.
    fn take(&mut self, verdicts: Vec<Verdict>) -> Result<ControlFlow<()>> {
        for verdict in verdicts {
            match verdict {
                Verdict::Fetch(download, before) => {
                    self.total.objects += 1;
                    let size_bytes = download.object.listed.size_bytes;
                    self.space.add(size_bytes, before.replaced_bytes);
                    self.space.reclaim(before.reclaimed_bytes);
                    let _ = self.space.hand_out(size_bytes);
                    self.space.end(size_bytes, Some(before.replaced_bytes));
                    self.total.bytes = self.total.bytes.saturating_add(size_bytes);
                    let line = PlannedLine::new(&download);
                    let place = self.target.place_of(&download);
                    let text = || line.to_text(place.as_deref());
                    if self.print(|| line.to_json(), text)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Verdict::Freed(_, bytes) => self.space.reclaim(bytes),
                Verdict::Keep(there, _, reclaimed_bytes) => {
                    self.space.reclaim(reclaimed_bytes);
                    self.kept.0 += 1;
                    self.kept.1 = self.kept.1.saturating_add(there.object.listed.size_bytes);
                }
                Verdict::Blocked(blocked) if self.blocked.len() < BLOCKED_OBJECTS_MAX => {
                    self.blocked.push(*blocked);
                }
                Verdict::Fail(failed) | Verdict::Blocked(failed) => self.fail(&failed.1),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints a line in the requested format; breaks if the output's reader is gone.
    fn print(
        &mut self,
        json: impl FnOnce() -> String,
        text: impl FnOnce() -> String,
    ) -> Result<ControlFlow<()>> {
        let line = if self.is_json { json() } else { text() };
        self.lines.line(&line)
    }

    fn fail(&mut self, error: &Error) {
        self.failures.add(error);
        self.progress.error(error);
    }

    /// Lists the files that would be deleted; breaks if the output's reader is gone.
    async fn sweep(&mut self, mirror: Arc<Mirror>, machine: SystemHost) -> Result<ControlFlow<()>> {
        let (mut paths, swept) = mirror.sweep_blocking(machine, true);
        while let Some(path) = paths.recv().await {
            let line = RemovedLine::new(&path, true);
            let place = self.target.place(&path);
            if self.print(|| line.to_json(), || line.to_text(place.as_deref()))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let swept = swept.await;
        self.total.deleted_files = swept.removed;
        let files = counted(swept.removed, "file", "files");
        self.progress.note(format!("{files} would be deleted"));
        swept.error.map_or(Ok(ControlFlow::Continue(())), Err)
    }
}

/// Lists the downloads.
pub(super) async fn plan_only(ready: ReadyJob, args: &GetArgs, context: &Context) -> Result<Ended> {
    let ReadyJob { resolved, mut existing, mut taken, config, .. } = ready;
    let Resolved { target, mut walk, mut mirror, .. } = resolved;
    let (target, cut) = (&target, config.cut());
    let (output, checks_space) = (args.output, !args.keep.no_space_check);
    let disks = target.disks(checks_space).await;
    let mut plan = Plan {
        target,
        is_json: output.json,
        lines: Lines::stdout(),
        total: PlannedTotal::default(),
        kept: (0, 0),
        failures: Failures::default(),
        messages: FailureMessages::default(),
        progress: context.messages.progress(!output.messages.quiet),
        blocked: Vec::new(),
        is_checked: false,
        space: Space::new(system_host::together(&disks), existing.may_replace),
    };
    while let Some(batch) = walk.next_batch().await? {
        let mut page = Vec::with_capacity(batch.len());
        for entry in batch {
            page.push(settle(entry, target, cut, mirror.as_mut(), &mut taken)?);
        }
        existing.begin(page);
        let verdicts = existing.next().await;
        plan.check_writable(&verdicts).await?;
        if plan.take(verdicts)?.is_break() {
            return Ok(Ended::default());
        }
    }
    walk.repeated().into_iter().for_each(|repeated| plan.progress.note(repeated));
    for missing in walk.take_missing() {
        plan.failures.add(&missing.error);
        if plan.messages.is_reported() {
            plan.progress.error(&missing.error);
        }
    }
    let mirror = mirror.map(|mut mirror| {
        mirror.complete();
        Arc::new(mirror)
    });
    let blocked = std::mem::take(&mut plan.blocked);
    match &mirror {
        Some(mirror) if plan.failures.count() == 0 && !blocked.is_empty() => {
            let (mirror, removed) = (Arc::clone(mirror), channel(1).0);
            let folder = target.folder().filter(|_| checks_space);
            let room = folder.map(|folder| (folder.to_owned(), plan.space.left_bytes()));
            existing.begin_cleared(blocked, Clearing { mirror, removed, room });
            if plan.take(existing.next().await)?.is_break() {
                return Ok(Ended::default());
            }
        }
        _ => blocked.iter().for_each(|(_, error)| plan.fail(error)),
    }
    if plan.failures.count() == 0
        && let (Some(mirror), Some(folder)) = (mirror, target.present().await?.first())
        && plan.sweep(mirror, existing.machine_at(folder)).await?.is_break()
    {
        return Ok(Ended::default());
    }
    let Plan { mut lines, mut total, kept, failures, progress, .. } = plan;
    let _ = lines.flush()?;
    print_plan(&total, kept, &progress);
    // The other objects would succeed.
    let error = failures.error(1);
    total.exit_code = exit_code(error.as_ref());
    let document = output.json.then(|| summary_json(&total, error.as_ref()));
    Ok(Ended { code: total.exit_code, document, ..Ended::default() })
}

/// Prints the total of a plan.
fn print_plan(total: &PlannedTotal, (kept, kept_bytes): (u64, u64), progress: &Progress) {
    let objects = |count| counted(count, "object", "objects");
    if kept > 0 {
        let (kept, bytes) = (objects(kept), Decimal(kept_bytes));
        progress.note(format!("{kept} ({bytes}) already present, skipped"));
    }
    progress.note(match total.objects {
        0 => "nothing would be downloaded".to_owned(),
        count => format!("{}, {} would be downloaded", objects(count), Decimal(total.bytes)),
    });
}
