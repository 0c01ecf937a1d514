//! `inrush get`, `sync` and `load`: resolves the sources, downloads and reports; or lists the
//! downloads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::channel;

use super::context::Context;
use super::ending::exit_code;
use super::failures::FailureMessages;
use super::model;
use super::output::Output;
use super::own_files::written_by;
use super::ring;
use super::session::{self, Interrupts};
use crate::cli::{GetArgs, GetVerb, TuningArgs};
use crate::control::auth::credentials::CredentialSource;
use crate::download::cancel::Cancel as _;
use crate::download::existing::{Clearing, Verdict};
use crate::download::failures::Failures;
use crate::download::job::{DownloadJob, ReadyJob, Resolved, Rules, WantedFiles};
use crate::download::mirror::Mirror;
use crate::download::own_files::own_files;
use crate::download::run::{Shares, first_file, settle};
use crate::download::sources::{self, Narrowed, require_names_apart, require_whole};
use crate::download::space::Space;
use crate::download::target::Target;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::error::{Error, Result};
use crate::files::file_download::FileDownload;
use crate::files::system_host::{self, SystemHost};
use crate::limits::BLOCKED_OBJECTS_MAX;
use crate::plan::filter::Filter;
use crate::report::document::{PlannedLine, PlannedTotal, RemovedLine, Summary, summary_json};
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::sys::process;
use crate::text::size::{Decimal, counted};

/// The result of a `get`.
#[derive(Default)]
pub(super) struct Ended {
    /// The exit code.
    pub(super) code: u8,
    /// The summary; `None` if there was nothing to download (`--dry-run`).
    pub(super) summary: Option<Summary>,
    /// The document for programs, if requested.
    pub(super) document: Option<String>,
    /// Why it failed; already printed.
    pub(super) error: Option<Error>,
    /// The results per channel.
    pub(super) shares: Option<Shares>,
}

/// Downloads with these credentials, and reports the result.
pub(super) async fn run(
    mut args: GetArgs,
    credentials: CredentialSource,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Ended> {
    let progress = context.messages.progress(!args.output.messages.quiet);
    process::raise_descriptor_limit();
    let config = configure(&args)?;
    let filter = Filter::new(&args.selection.rules)?;
    let deadline = args.failures.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen_until(deadline, context)?;
    let mut output = Output::new(context, progress, None, None);
    let found = find(&mut args, credentials, filter, (&mut output, begun));
    let job = interrupts.unless(found).await?;
    fetch(job, &args, config, output, &mut interrupts, begun).await
}

/// Downloads the resolved sources, and reports the result.
pub(super) async fn fetch(
    job: DownloadJob,
    args: &GetArgs,
    config: Config,
    mut output: Output,
    interrupts: &mut Interrupts,
    begun: Instant,
) -> Result<Ended> {
    let control = job.resolved.control.clone();
    let ready = job.ready(config, begun, interrupts).await?;
    if args.dry_run {
        return interrupts.unless(plan_only(ready, args, &interrupts.context())).await;
    }
    // Not earlier: a run that fails early leaves the report of an earlier one.
    if let Some(report) = &args.report {
        ready.resolved.target.make_folder_of(report).await;
    }
    output.open_report(args.report.as_deref(), interrupts).await?;
    let fetched = tokio::select! {
        biased;
        fetched = ready.fetch(&mut output, interrupts) => fetched,
        () = session::refresh(control) => unreachable!("refresh has no end"),
    };
    let mut fetched = match fetched {
        Ok(fetched) => fetched,
        Err(error) => return Err(output.ended_before(error, interrupts).await),
    };
    let shares = fetched.shares.take();
    let (summary, error) = output.end(fetched, (args.stats, args.explain), interrupts).await;
    let document = args.output.json.then(|| summary.to_json(error.as_ref()));
    Ok(Ended { code: summary.exit_code, summary: Some(summary), document, error, shares })
}

/// How these options want objects to be downloaded.
pub(super) fn rules(args: &GetArgs) -> Rules {
    Rules {
        keep: args.keep,
        verify: args.verify,
        on_change: args.failures.on_change,
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth_limit: args.tuning.bandwidth_limit,
        deadline: args.failures.deadline,
        dry_run: args.dry_run,
        written: written_by(args),
    }
}

/// The resources of a run on this machine.
fn configure(args: &GetArgs) -> Result<Config> {
    let resources = options(&args.tuning)?;
    if !args.dry_run {
        ring::require(resources.ring)?;
    }
    Config::resolve(resources, HostFacts::read())
}

/// Resolves the sources.
async fn find(
    args: &mut GetArgs,
    credentials: CredentialSource,
    filter: Filter,
    (output, begun): (&mut Output, Instant),
) -> Result<DownloadJob> {
    let deletes = args.verb == GetVerb::Sync { delete: true };
    if deletes {
        require_whole(&args.selection)?;
    }
    let context = Arc::clone(output.context());
    sources::add(&mut args.sources, &args.selection, &context.board).await?;
    require_names_apart(&args.sources)?;
    let credentials = session::credentials_for(&args.sources, &mut args.service, credentials);
    let settings = match deletes {
        true => Some(session::settings(&args.service, (&context, output.progress())).await),
        false => None,
    };
    let outputs = (&context, output.progress());
    let control =
        session::control_with(&args.service, credentials, outputs, settings.clone()).await?;
    let filter = match args.verb {
        GetVerb::Load => model::narrow(&control, &args.sources, filter, output.progress()).await?,
        GetVerb::Get | GetVerb::Sync { .. } => filter,
    };
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let settings = settings.as_ref().and_then(|settings| settings.as_deref().ok());
    let (is_list, is_spread) = (args.selection.has_more(), !args.spread_to.is_empty());
    let rules = rules(args);
    let mirrored_except = deletes.then(|| {
        let named = [&args.service.ca_bundle, &args.service.sse_c_key_file];
        let named = named.into_iter().flatten().cloned();
        own_files(&args.selection, named, &rules.written, settings)
    });
    let wanted = WantedFiles {
        uris: args.sources.clone(),
        filter: narrowed.filter,
        shard: narrowed.shard,
        destination: args.destination.clone(),
        spread_to: args.spread_to.clone(),
        are_many: args.verb != GetVerb::Get || is_list || args.sources.len() > 1 || is_spread,
        mirrored_except,
    };
    DownloadJob::find(control, wanted, rules, output, begun).await
}

/// The resources that the options request.
///
/// # Errors
/// [`crate::error::ErrorKind::Usage`] if the environment names an unknown ring.
pub(super) fn options(tuning: &TuningArgs) -> Result<ResourceOptions> {
    Ok(ResourceOptions {
        workers: tuning.workers,
        connections: tuning.connections,
        max_connections: tuning.max_connections,
        part_size_bytes: session::part_size(tuning.part_size, tuning.bandwidth_limit),
        memory_bytes: tuning.memory,
        ring: ring::choice(tuning.ring)?,
    })
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

/// `--dry-run`: lists the downloads.
async fn plan_only(ready: ReadyJob, args: &GetArgs, context: &Context) -> Result<Ended> {
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
