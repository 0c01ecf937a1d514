//! `inrush get`: resolves the sources, downloads and reports; or lists the downloads.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::sync::mpsc::channel;

use super::blocking::blocking;
use super::ending::exit_code;
use super::exporter;
use super::failures::Failures;
use super::folder_lock::FolderLock;
use super::interrupts;
use super::log;
use super::own_files::{OwnFiles, TakenPaths, written_by};
use super::reporting::open;
use super::ring;
use super::session::{self, Interrupts};
use super::sources::{self, Narrowed};
use crate::cli::{Durability, GetArgs, SyncArgs, TuningArgs};
use crate::command::download::checksums::Checksums;
use crate::command::download::existing::{self, Clearing, ExistingFiles, Present, Verdict};
use crate::command::download::mirror::Mirror;
use crate::command::download::refetch::Undecided;
use crate::command::download::run::{Milestones, Run, RunOutputs, Shares, first_file, settle};
use crate::command::download::space::Space;
use crate::command::download::target::Target;
use crate::control::Control;
use crate::control::auth::credentials::CredentialSource;
use crate::control::list::entries::Entries;
use crate::control::list::sources::Missing;
use crate::control::list::walk::Walk;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::engine::pace::Bandwidth;
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::{self, SystemHost};
use crate::files::transfer::{Cut, Transfer};
use crate::limits::BLOCKED_OBJECTS_MAX;
use crate::plan::filter::Filter;
use crate::report::document::{
    PaceReport, PlannedLine, PlannedTotal, RemovedLine, Summary, SummaryInputs, summary_json,
};
use crate::report::out::{Lines, ReportWriter};
use crate::report::progress::Progress;
use crate::sys::choice::ChosenRing;
use crate::sys::uring::SetupError;
use crate::text::size::{Decimal, counted};

/// The consequences of an interruption after the last object.
const CONCLUDING: &str = "after the last object: all downloads are complete, but files not in the \
                          source may be left, or data may not be synced to disk";

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

/// The output of a `get`.
pub(super) struct Shown {
    pub(super) progress: Progress,
    /// Prefix of the summary's lines, if other lines are printed, too.
    pub(super) label: Option<String>,
    /// A report that is shared with other runs; then none is opened.
    pub(super) report: Option<ReportWriter>,
}

/// Data of a run for several channels.
#[derive(Default)]
pub(super) struct OfChannels {
    pub(super) shares: Option<Shares>,
    /// The largest object of all channels, in bytes.
    pub(super) largest_bytes: u64,
    /// The bandwidth limit shared with other runs.
    pub(super) bandwidth: Option<Arc<Bandwidth>>,
}

/// Downloads with these credentials, and reports the result.
pub(super) async fn run(
    mut args: GetArgs,
    credentials: CredentialSource,
    begun: Instant,
) -> Result<Ended> {
    let progress = Progress::new(!args.output.messages.quiet);
    session::raise_descriptor_limit();
    let config = configure(&args)?;
    let filter = Filter::new(&args.selection.rules)?;
    let deadline = args.failures.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen_until(deadline)?;
    let found = interrupts.unless(find(&mut args, credentials, filter, (&progress, begun))).await?;
    let shown = Shown { progress, label: None, report: None };
    fetch(found, &args, config, shown, &mut interrupts, begun).await
}

/// Downloads the resolved sources, and reports the result.
pub(super) async fn fetch(
    found: Intake,
    args: &GetArgs,
    config: Config,
    shown: Shown,
    interrupts: &mut Interrupts,
    begun: Instant,
) -> Result<Ended> {
    let Intake { control, tls, target, present, walk, mirror, channels, asked, mut locks } = found;
    let Shown { progress, label, report } = shown;
    let config = if tls.is_some() { config.secured() } else { config };
    let (rules, how) = ((args.keep, args.verify), (args.dry_run, mirror.is_some()));
    let mut existing = ExistingFiles::new(present, rules, how, begun, control.keys());
    let (mirror, taken) = interrupts.unless(take_paths(&target, mirror, args)).await?;
    if args.dry_run {
        let planned = plan_only(walk, &target, &mut existing, (mirror, taken), config.cut(), args);
        return interrupts.unless(planned).await;
    }
    // Not earlier: a run that fails early leaves the report of an earlier one.
    let report =
        if report.is_some() { report } else { open(args.report.as_deref(), interrupts).await? };
    let resolved = begun.elapsed();
    let undecided = Undecided::new(control.clone(), args.failures.on_change, args.verify);
    let questions = (Checksums::new(control.clone(), args.verify), undecided);
    let outputs = RunOutputs { progress, report, board: control.board() };
    let mut run = Run::new(walk, target, existing, questions, config, outputs, begun);
    run.checks_space = !args.keep.no_space_check;
    run.deadline = args.failures.deadline;
    (run.mirror, run.taken) = (mirror.map(Arc::new), taken);
    run.label = label;
    (run.shares, run.largest_bytes) = (channels.shares, channels.largest_bytes);
    run.sources = args.sources.len() as u64;
    if let Err(error) = interrupts.unless(run.read_ahead()).await {
        return Err(run.ended_before(error, interrupts).await);
    }
    let destination = interrupts.unless(run.target.open_all()).await?;
    locks.iter_mut().for_each(FolderLock::keep_folders);
    log::config(&run.config);
    let bandwidth = channels.bandwidth.or_else(|| session::bandwidth(args.tuning.bandwidth_limit));
    let common = setup(args, run.config, tls, &control, begun);
    let engine = Workers::start(RunSetup { destination, bandwidth, ..common })?;
    exporter::watch(&engine);
    log::places(&engine.places_in_words());
    ring::report_fallback(engine.ring(), &run.progress);
    interrupts::leaves(engine.last_words(run.target.any_in_words()));
    let started = begun.elapsed();
    let refresh = session::refresh(control.clone());
    tokio::select! {
        biased;
        done = run.drive(&engine, interrupts) => done?,
        () = refresh => unreachable!("refresh has no end"),
    }
    let (pages, pacer, ring) = (engine.pages(), Arc::clone(&engine.pacer), engine.ring().clone());
    let stop = engine.scheduler.stop_reason();
    let stopped = stop.as_ref().map(Error::kind);
    let (scheduler, interfaces) = (Arc::clone(&engine.scheduler), engine.interfaces());
    let workers = engine.join();
    run.collect(&scheduler);
    run.give_up_undecided();
    let concluded = match stop {
        None => conclude(&mut run, args.keep.durability, interrupts).await,
        Some(_) => Ok(()),
    };
    let stopped = stopped.or(concluded.as_ref().err().map(Error::kind));
    let ended = begun.elapsed();
    let error = run.failure(stop, workers.as_ref().err().or(concluded.as_ref().err()));
    let code = exit_code(error.as_ref());
    let (sink, workers) = (run.target.sink(), workers.unwrap_or_default());
    let times = Milestones { resolved, asked, started, ended };
    let mut inputs = run.inputs(workers, sink, pages, &times, control.retries(), code);
    inputs.endpoints = scheduler.endpoints().names();
    (inputs.interfaces, inputs.destinations) = (interfaces, run.destination_lines());
    let is_adaptive = run.config.pace.is_adaptive();
    inputs.pace = PaceReport::new(is_adaptive, &pacer.timeline(), &inputs.endpoints);
    note_circumstances(&mut inputs, args, &control, &ring);
    let result = (Summary::new(&inputs), error);
    report_result(&mut run, result, args, stopped, interrupts).await
}

/// Determines which paths are equal at the destination, for its mirror and for its objects, and
/// which of them the run writes itself.
async fn take_paths(
    target: &Target,
    mirror: Option<Mirror>,
    args: &GetArgs,
) -> Result<(Option<Mirror>, TakenPaths)> {
    let folding = target.folding(args.dry_run).await;
    let (folders, written) = (target.owned_folders(), written_by(args));
    let taken = move || TakenPaths::new(folding.unwrap_or_default(), &folders, &written);
    Ok((mirror.map(|mirror| mirror.folding(folding)), blocking(taken).await))
}

/// Adds the run's circumstances and options to the summary.
fn note_circumstances(
    inputs: &mut SummaryInputs,
    args: &GetArgs,
    control: &Control,
    ring: &ChosenRing,
) {
    inputs.bandwidth_limit = args.tuning.bandwidth_limit.map(NonZeroU64::get);
    inputs.io_uring_unavailable = ring.refused.as_ref().map(SetupError::cause);
    inputs.clock_correction_seconds = control.clock_ahead_seconds();
}

/// The resources of a run on this machine.
fn configure(args: &GetArgs) -> Result<Config> {
    let resources = options(&args.tuning)?;
    if !args.dry_run {
        ring::require(resources.ring)?;
    }
    Config::resolve(resources, HostFacts::read())
}

/// The parameters of the workers of a run without a destination.
fn setup(
    args: &GetArgs,
    config: Config,
    tls: Option<Arc<ClientConfig>>,
    control: &Control,
    begun: Instant,
) -> RunSetup {
    RunSetup {
        config,
        destination: Vec::new(),
        keeping: existing::persistence(&args.keep),
        tls,
        keys: control.keys(),
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth: None,
        interfaces: control.interfaces(),
        begun,
    }
}

/// The work after the last object.
async fn conclude(
    run: &mut Run,
    durability: Durability,
    interrupts: &mut Interrupts,
) -> Result<()> {
    if !run.has_more_to_do(durability) {
        return Ok(());
    }
    interrupts.unless_reported(CONCLUDING, run.conclude(durability)).await
}

/// Reports the result of a run to users and programs.
async fn report_result(
    run: &mut Run,
    (mut summary, mut error): (Summary, Option<Error>),
    args: &GetArgs,
    stopped: Option<ErrorKind>,
    interrupts: &mut Interrupts,
) -> Result<Ended> {
    log::ended(&summary);
    if let Err(unreported) =
        run.print_summary((&summary, args.stats, args.explain), stopped, interrupts).await
    {
        error.get_or_insert(unreported);
        summary.exit_code = exit_code(error.as_ref());
    }
    let document = args.output.json.then(|| summary.to_json(error.as_ref()));
    let shares = run.shares.take();
    Ok(Ended { code: summary.exit_code, summary: Some(summary), document, error, shares })
}

/// The sources and the destination of a run.
pub(super) struct Intake {
    pub(super) control: Rc<Control>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) target: Target,
    /// Keep other runs out of several folders.
    pub(super) locks: Vec<FolderLock>,
    /// Its existing folders.
    pub(super) present: Present,
    pub(super) walk: Entries,
    pub(super) mirror: Option<Mirror>,
    pub(super) channels: OfChannels,
    /// Duration of the requests for the sources.
    pub(super) asked: Duration,
}

/// Resolves the sources.
async fn find(
    args: &mut GetArgs,
    credentials: CredentialSource,
    filter: Filter,
    (progress, begun): (&Progress, Instant),
) -> Result<Intake> {
    let deletes = args.sync.is_some_and(|sync| sync.delete);
    if deletes {
        sources::require_whole(&args.selection)?;
    }
    sources::add(&mut args.sources, &args.selection).await?;
    let settings = match deletes {
        true => Some(session::settings(&args.service, progress).await),
        false => None,
    };
    let control =
        session::control_with(&args.service, credentials, progress, settings.clone()).await?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let narrowed =
        sources::add_manifest(&control, &mut args.sources, &args.selection, narrowed).await?;
    let Narrowed { filter, shard } = narrowed;
    let before = begun.elapsed();
    let (sources, missing) = control.resolve_there(&args.sources).await?;
    let asked = begun.elapsed() - before;
    if !missing.is_empty() && sources.is_empty() {
        return Err(none_is_there(missing));
    }
    log::sources(&sources);
    for source in sources.iter().filter(|source| source.is_literal()) {
        progress.note(format!("{}: taken as a name that exists, not as a glob", source.uri));
    }
    let is_list = args.selection.has_more();
    let is_spread = !args.spread_to.is_empty();
    let many = args.sync.is_some() || is_list || args.sources.len() > 1 || is_spread;
    let target = Target::choose(&args.destination, &sources, many).await?;
    let target = target.spread(&args.spread_to).await?;
    // Before existing files are checked.
    let locks = if args.dry_run { Vec::new() } else { target.lock().await? };
    let present = target.present().await?;
    let mirror = match args.sync {
        Some(SyncArgs { delete: true }) => {
            let folder = target.folder().expect("sync has a destination").to_owned();
            let settings = settings.as_ref().and_then(|settings| settings.as_deref().ok());
            let own = OwnFiles { folder, files: sources::own_files(args, settings) };
            Some(Mirror::new(&sources, filter.clone(), own)?)
        }
        _ => None,
    };
    let walk = Walk::new(control.clone(), sources, filter)?.sharded(shard)?.without_repeated();
    // Of several sources the existing ones are downloaded.
    let walk = if args.sources.len() > 1 { walk.passing_over(missing) } else { walk };
    let tls = session::tls(&control, &args.sources).await?;
    let (walk, channels) = (walk.into(), OfChannels::default());
    Ok(Intake { control, tls, target, locks, present, walk, mirror, channels, asked })
}

/// The error if no source exists.
fn none_is_there(mut missing: Vec<Missing>) -> Error {
    let count = missing.len();
    let first = missing.swap_remove(0).error;
    match count {
        1 => first,
        _ => Error::new(
            ErrorKind::NotFound,
            format!("none of {count} sources was found, the first: {first}"),
        ),
    }
}

/// The resources that the options request.
///
/// # Errors
/// [`ErrorKind::Usage`] if the environment names an unknown ring.
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
    progress: Progress,
    /// Objects that cannot be stored because something is in their way.
    blocked: Vec<(Transfer, Error)>,
    /// The folder of the first file was checked.
    is_writable: bool,
    /// The space after all objects are stored.
    space: Space,
}

impl Plan<'_> {
    /// As in a run: the first file shows if files can be created.
    async fn require_writable(&mut self, verdicts: &[Verdict]) -> Result<()> {
        if let Some(file) = verdicts.iter().find_map(first_file).filter(|_| !self.is_writable) {
            self.target.require_writable(file).await?;
            self.is_writable = true;
        }
        Ok(())
    }

    /// Lists the objects that would be downloaded; breaks if the output's reader is gone.
    fn take(&mut self, verdicts: Vec<Verdict>) -> Result<ControlFlow<()>> {
        for verdict in verdicts {
            match verdict {
                Verdict::Fetch(transfer, before) => {
                    self.total.objects += 1;
                    let size_bytes = transfer.object.size_bytes;
                    self.space.add(size_bytes, before.replaced_bytes);
                    self.space.reclaim(before.reclaimed_bytes);
                    let _ = self.space.hand_out(size_bytes);
                    self.space.end(size_bytes, Some(before.replaced_bytes));
                    self.total.bytes = self.total.bytes.saturating_add(size_bytes);
                    let line = PlannedLine::new(&transfer);
                    let place = self.target.place_of(&transfer);
                    let text = || line.to_text(place.as_deref());
                    if self.print(|| line.to_json(), text)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Verdict::Freed(_, bytes) => self.space.reclaim(bytes),
                Verdict::Keep(there, _, reclaimed_bytes) => {
                    self.space.reclaim(reclaimed_bytes);
                    self.kept.0 += 1;
                    self.kept.1 = self.kept.1.saturating_add(there.object.size_bytes);
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
async fn plan_only(
    mut walk: Entries,
    target: &Target,
    existing: &mut ExistingFiles,
    (mut mirror, mut taken): (Option<Mirror>, TakenPaths),
    cut: Cut,
    args: &GetArgs,
) -> Result<Ended> {
    let (output, checks_space) = (args.output, !args.keep.no_space_check);
    let folders: Vec<_> = target.folders().into_iter().map(Path::to_owned).collect();
    let disks = match checks_space {
        true => blocking(move || system_host::disk_spaces(&folders)).await,
        false => vec![None],
    };
    let mut plan = Plan {
        target,
        is_json: output.json,
        lines: Lines::stdout(),
        total: PlannedTotal::default(),
        kept: (0, 0),
        failures: Failures::default(),
        progress: Progress::new(!output.messages.quiet),
        blocked: Vec::new(),
        is_writable: false,
        space: Space::new(system_host::together(&disks), existing.may_replace),
    };
    while let Some(batch) = walk.next_batch().await? {
        let mut page = Vec::with_capacity(batch.len());
        for entry in batch {
            page.push(settle(entry, target, cut, mirror.as_mut(), &mut taken)?);
        }
        existing.begin(page);
        let verdicts = existing.next().await;
        plan.require_writable(&verdicts).await?;
        if plan.take(verdicts)?.is_break() {
            return Ok(Ended::default());
        }
    }
    walk.repeated().into_iter().for_each(|repeated| plan.progress.note(repeated));
    for missing in walk.take_missing() {
        plan.failures.add(&missing.error);
        if plan.failures.is_reported() {
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
