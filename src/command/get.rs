//! `inrush get`: resolve the sources, run, report; or list what would move.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;

use super::again::Undecided;
use super::checksums::Checksums;
use super::interrupts;
use super::kept::{self, ExistingFiles, Verdict};
use super::mirror::Mirror;
use super::reporting::open;
use super::run::{Milestones, Run, RunOutputs};
use super::session::{self, Interrupts};
use super::sources;
use super::target::Target;
use crate::cli::{GetArgs, OutputArgs, SyncArgs, TuningArgs};
use crate::control::Control;
use crate::control::credentials::CredentialSource;
use crate::control::walk::Walk;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::transfer::Cut;
use crate::plan::filter::Filter;
use crate::report::document::{PaceTold, PlannedLine, RemovedLine, Summary};
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::text::size::{Decimal, counted};

/// What an interruption behind the last object leaves undone.
const CONCLUDING: &str = "after the last object: all downloads are complete, but files not in the \
                          source may be left, or data may not be synced to disk";

/// How a `get` ended.
pub(super) struct Ended {
    /// The exit code.
    pub(super) code: u8,
    /// What it came to; `None` when nothing was to move (`--dry-run`).
    pub(super) summary: Option<Summary>,
}

/// Fetches with these credentials, and tells what it came to.
pub(super) async fn run(
    mut args: GetArgs,
    credentials: CredentialSource,
    begun: Instant,
) -> Result<Ended> {
    let progress = Progress::new(!args.output.quiet);
    session::raise_descriptor_limit();
    let config = Config::resolve(options(&args.tuning), HostFacts::read())?;
    let filter = Filter::new(&args.selection.rules)?;
    let deadline = args.failures.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen_until(deadline)?;
    let report = open(args.report.as_deref(), &mut interrupts).await?;
    let found = interrupts.unless(find(&mut args, credentials, filter, &progress)).await?;
    let Intake { control, tls, target, present, walk, mirror } = found;
    let config = if tls.is_some() { config.secured() } else { config };
    let rules = (args.keep, args.verify);
    let mut keeper = ExistingFiles::new(present, rules, args.dry_run, begun, control.keys());
    if args.dry_run {
        let planned = plan_only(walk, &target, &mut keeper, mirror, config.cut(), args.output);
        let code = interrupts.unless(planned).await?;
        return Ok(Ended { code, summary: None });
    }
    let resolved = begun.elapsed();
    let undecided = Undecided::new(control.clone(), args.failures.on_change, args.verify);
    let questions = (Checksums::new(control.clone(), args.verify), undecided);
    let told = RunOutputs { progress, report, board: control.board() };
    let mut run = Run::new(walk, target, keeper, questions, config, told, begun);
    run.checks_space = !args.keep.no_space_check;
    run.deadline = args.failures.deadline;
    run.mirror = mirror;
    interrupts.unless(run.read_ahead()).await?;
    let order = RunSetup {
        config: run.config,
        destination: interrupts.unless(run.target.open()).await?,
        keeping: kept::keeping(&args.keep),
        tls,
        keys: control.keys(),
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth: session::bandwidth(args.tuning.bandwidth_limit),
        begun,
    };
    let engine = Workers::start(order)?;
    interrupts::leaves(engine.last_words(run.target.folder()));
    let started = begun.elapsed();
    let upkeep = session::upkeep(control.clone());
    tokio::select! {
        biased;
        done = run.drive(&engine, &mut interrupts) => done?,
        () = upkeep => unreachable!("upkeep has no end"),
    }
    let (pages, pacer) = (engine.pages(), Arc::clone(&engine.pacer));
    let stop = engine.scheduler.stop_reason();
    let stopped = stop.as_ref().map(Error::kind);
    let scheduler = Arc::clone(&engine.scheduler);
    let workers = engine.join();
    run.collect(&scheduler);
    run.give_up_undecided();
    let concluded = match stop {
        None if run.has_more_to_do(args.keep.durability) => {
            interrupts.unless_told(CONCLUDING, run.conclude(args.keep.durability)).await
        }
        _ => Ok(()),
    };
    let stopped = stopped.or(concluded.as_ref().err().map(Error::kind));
    let ended = begun.elapsed();
    let code = run.exit_code(stop, workers.as_ref().err().or(concluded.as_ref().err()));
    let (sink, workers) = (run.target.sink(), workers.unwrap_or_default());
    let times = Milestones { resolved, started, ended };
    let mut inputs = run.inputs(workers, sink, pages, &times, control.retries(), code);
    inputs.pace = PaceTold::new(run.config.pace.is_adaptive(), &pacer.timeline());
    inputs.clock_correction_seconds = control.clock_ahead_seconds();
    let summary = Summary::new(&inputs);
    run.tell((&summary, args.output, args.stats), stopped, &mut interrupts).await?;
    Ok(Ended { code, summary: Some(summary) })
}

/// What is to move, where from and where to.
struct Intake {
    control: Rc<Control>,
    tls: Option<Arc<ClientConfig>>,
    target: Target,
    /// Its folder, if it is there already.
    present: Option<OwnedFd>,
    walk: Walk,
    mirror: Option<Mirror>,
}

/// Finds the sources out.
async fn find(
    args: &mut GetArgs,
    credentials: CredentialSource,
    filter: Filter,
    progress: &Progress,
) -> Result<Intake> {
    sources::add(&mut args.sources, &args.selection).await?;
    let control = session::control(&args.service, credentials, progress).await?;
    let sources = control.resolve_all(&args.sources).await?;
    let target = Target::choose(&args.destination, &sources, args.sync.is_some()).await?;
    let present = target.present().await;
    let mirror = match args.sync {
        Some(SyncArgs { delete: true }) => Some(Mirror::new(&sources, filter.clone())?),
        _ => None,
    };
    let walk = Walk::new(control.clone(), sources, filter)?.sharded(args.shard)?;
    let tls = session::tls(&control, &args.sources).await?;
    Ok(Intake { control, tls, target, present, walk, mirror })
}

/// What the options ask for.
pub(super) fn options(tuning: &TuningArgs) -> ResourceOptions {
    ResourceOptions {
        workers: tuning.workers,
        connections: tuning.connections,
        max_connections: tuning.max_connections,
        part_size_bytes: tuning.part_size,
        memory_bytes: tuning.memory,
    }
}

/// `--dry-run`: lists what would move.
async fn plan_only(
    mut walk: Walk,
    target: &Target,
    keeper: &mut ExistingFiles,
    mut mirror: Option<Mirror>,
    cut: Cut,
    output: OutputArgs,
) -> Result<u8> {
    let mut lines = Lines::stdout();
    let (mut objects, mut bytes, mut problems) = (0u64, 0u64, 0u64);
    let progress = Progress::new(!output.quiet);
    while let Some(batch) = walk.next_batch().await? {
        let mut page = Vec::with_capacity(batch.len());
        for entry in batch {
            if let (Some(mirror), Ok(path)) = (&mut mirror, &entry.path) {
                mirror.note(path.as_str())?;
            }
            page.push(target.transfer(entry, cut));
        }
        keeper.begin(page);
        for verdict in keeper.next().await {
            let transfer = match verdict {
                Verdict::Fetch(transfer, _) => transfer,
                Verdict::Keep(..) => continue,
                Verdict::Fail(failed) => {
                    problems += 1;
                    progress.error(&failed.1);
                    continue;
                }
            };
            objects += 1;
            bytes = bytes.saturating_add(transfer.object.size_bytes);
            let line = PlannedLine::new(&transfer);
            let line = if output.json { line.to_json() } else { line.to_text() };
            if lines.line(&line)? == ControlFlow::Break(()) {
                return Ok(0);
            }
        }
    }
    if problems == 0
        && let (Some(mirror), Some(folder)) = (mirror, target.present().await)
    {
        let (mut told, swept) = mirror.sweep_aside(keeper.machine_at(folder), true);
        while let Some(path) = told.recv().await {
            let line = RemovedLine::new(&path, true);
            let line = if output.json { line.to_json() } else { line.to_text() };
            if lines.line(&line)? == ControlFlow::Break(()) {
                return Ok(0);
            }
        }
        let swept = swept.await;
        progress.note(format!("{} would be deleted", counted(swept.removed, "file", "files")));
        swept.error.map_or(Ok(()), Err)?;
    }
    let _ = lines.flush()?;
    progress.note(format!(
        "{}, {} would be downloaded",
        counted(objects, "object", "objects"),
        Decimal(bytes)
    ));
    Ok(if problems > 0 { ErrorKind::Objects.exit_code() } else { 0 })
}
