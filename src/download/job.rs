//! A download from its sources to its result: it looks at the destination, starts the workers,
//! feeds them, and does the work after the last object.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::cancel::Cancel;
use super::checksums::Checksums;
use super::existing::{self, ExistingFiles, Present};
use super::failures::Failures;
use super::mirror::Mirror;
use super::observer::{Observer, RunEvent};
use super::refetch::Undecided;
use super::run::{Milestones, Remarks, Run, RunFailure, Shares};
use super::target::Target;
use crate::cli::{Destination, KeepArgs, OnChange, VerifyMode};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::entries::Entries;
use crate::control::list::sources::{Missing, Source, SourceKind};
use crate::control::list::walk::Walk;
use crate::download::folder_lock::FolderLock;
use crate::download::own_files::{OwnFiles, TakenPaths, Written};
use crate::engine::config::Config;
use crate::engine::pace::Bandwidth;
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::NAMED_SOURCES_MAX;
use crate::link::attempt::RetryPolicy;
use crate::link::waiting::Board;
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::report::document::{PaceReport, SummaryInputs};
use crate::s3::uri::S3Uri;
use crate::sys::uring::SetupError;

/// The consequences of an interruption after the last object.
const CONCLUDING: &str = "after the last object: all downloads are complete, but files not in the \
                          source may be left, or data may not be synced to disk";

/// How a job downloads.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) keep: KeepArgs,
    pub(crate) verify: VerifyMode,
    pub(crate) on_change: OnChange,
    pub(crate) retries: RetryPolicy,
    pub(crate) bandwidth_limit: Option<NonZeroU64>,
    /// Time after which it ends, complete or not.
    pub(crate) deadline: Option<Duration>,
    /// Nothing is changed at the destination.
    pub(crate) dry_run: bool,
    /// The files that the run writes besides its objects.
    pub(crate) written: Vec<Written>,
}

impl Rules {
    /// The note that a bandwidth limit does not hold within a request for a whole file.
    fn note_unlimited(&self, found: &[Source]) -> Option<String> {
        self.bandwidth_limit?;
        let is_unlimited = |source: &&Source| match &source.found {
            SourceKind::Object(object) => object.is_whole_only() && object.size_bytes > 0,
            _ => false,
        };
        let first = &found.iter().find(is_unlimited)?.uri;
        let more = match found.iter().filter(is_unlimited).count() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{first}{more}: downloaded by one request each, because the server ignores Range; \
             --bandwidth-limit slows only what is requested afterwards"
        ))
    }
}

/// What is to be downloaded, and where to.
#[derive(Debug)]
pub(crate) struct WantedFiles {
    pub(crate) uris: Vec<S3Uri>,
    pub(crate) filter: Filter,
    pub(crate) shard: Shard,
    pub(crate) destination: Destination,
    /// Further folders among which objects are spread.
    pub(crate) spread_to: Vec<PathBuf>,
    /// The destination is a folder, also of one object.
    pub(crate) are_many: bool,
    /// All files that the sources do not have are to be removed, except these.
    pub(crate) mirrored_except: Option<Vec<PathBuf>>,
}

/// A download whose sources are resolved.
pub(crate) struct DownloadJob {
    pub(crate) resolved: Resolved,
    /// The existing folders of its destination.
    pub(crate) present: Present,
}

/// The sources and the destination of a download.
pub(crate) struct Resolved {
    pub(crate) control: Rc<Control>,
    pub(crate) rules: Rules,
    /// Where the download reports what it waits for.
    pub(crate) board: Arc<Board>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) target: Target,
    /// Keep other runs out of several folders.
    pub(crate) locks: Vec<FolderLock>,
    pub(crate) walk: Entries,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) channels: OfChannels,
    /// The number of sources that were given.
    pub(crate) sources: u64,
    /// Duration of the requests for the sources.
    pub(crate) asked: Duration,
}

/// Data of a run for several channels.
#[derive(Default)]
pub(crate) struct OfChannels {
    pub(crate) shares: Option<Shares>,
    /// The largest object of all channels, in bytes.
    pub(crate) largest_bytes: u64,
    /// The bandwidth limit shared with other runs.
    pub(crate) bandwidth: Option<Arc<Bandwidth>>,
}

/// A job whose destination is known.
pub(crate) struct ReadyJob {
    pub(crate) resolved: Resolved,
    pub(crate) existing: ExistingFiles,
    pub(crate) taken: TakenPaths,
    pub(crate) config: Config,
    begun: Instant,
}

/// The result of a download.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// What a summary is made of; its exit code is that of the failure.
    pub(crate) inputs: SummaryInputs,
    pub(crate) failure: Option<RunFailure>,
    pub(crate) remarks: Remarks,
    /// The results per channel.
    pub(crate) shares: Option<Shares>,
    /// Why the run ended before its work was complete.
    pub(crate) stopped: Option<ErrorKind>,
}

impl DownloadJob {
    /// Resolves the sources, and looks at the destination.
    pub(crate) async fn find(
        control: Rc<Control>,
        wanted: WantedFiles,
        rules: Rules,
        observer: &mut dyn Observer,
        begun: Instant,
    ) -> Result<Self> {
        let WantedFiles { uris, filter, shard, destination, spread_to, are_many, mirrored_except } =
            wanted;
        let before = begun.elapsed();
        if rules.verify == VerifyMode::Strict {
            control.check_heads();
        }
        let (found, missing) = control.resolve_there(&uris).await?;
        let asked = begun.elapsed() - before;
        if !missing.is_empty() && found.is_empty() {
            return Err(none_is_there(&missing));
        }
        observer.event(RunEvent::Found(&found));
        rules.note_unlimited(&found).into_iter().for_each(|note| {
            observer.event(RunEvent::Note(note));
        });
        let target = Target::choose(&destination, &found, are_many).await?;
        let target = target.spread(&spread_to).await?;
        // Before existing files are checked.
        let locks = if rules.dry_run { Vec::new() } else { target.lock().await? };
        let present = target.present().await?;
        let own = mirrored_except.zip(target.folder());
        let own = own.map(|(files, folder)| OwnFiles { folder: folder.to_owned(), files });
        let mirror = own.map(|own| Mirror::new(&found, filter.clone(), own)).transpose()?;
        let walk = Walk::new(control.clone(), found, filter)?.sharded(shard)?.without_repeated();
        // Of several sources the existing ones are downloaded.
        let walk = if uris.len() > 1 { walk.passing_over(missing) } else { walk };
        let tls = control.tls_for(&uris).await?;
        let (walk, channels, board) = (walk.into(), OfChannels::default(), control.board());
        let sources = uris.len() as u64;
        let resolved = Resolved {
            control,
            rules,
            board,
            tls,
            target,
            locks,
            walk,
            mirror,
            channels,
            sources,
            asked,
        };
        Ok(Self { resolved, present })
    }

    /// Determines which paths are equal at the destination, for its mirror and for its objects, and
    /// which of them the run writes itself.
    pub(crate) async fn ready(
        self,
        config: Config,
        begun: Instant,
        cancel: &mut impl Cancel,
    ) -> Result<ReadyJob> {
        let Self { resolved, present } = self;
        let Resolved { control, rules, tls, target, mirror, .. } = &resolved;
        let config = if tls.is_some() { config.secured() } else { config };
        let how = (rules.dry_run, mirror.is_some());
        let checks = (rules.keep, rules.verify);
        let existing = ExistingFiles::new(present, checks, how, begun, control.keys());
        let (folders, written) = (target.owned_folders(), rules.written.clone());
        let paths = async {
            let folding = target.folding(rules.dry_run).await;
            let taken = move || TakenPaths::new(folding.unwrap_or_default(), &folders, &written);
            Ok((folding, blocking(taken).await))
        };
        let (folding, taken) = cancel.unless(paths).await?;
        let mirror = resolved.mirror.map(|mirror| mirror.folding(folding));
        let resolved = Resolved { mirror, ..resolved };
        Ok(ReadyJob { resolved, existing, taken, config, begun })
    }
}

impl ReadyJob {
    /// Downloads.
    ///
    /// # Errors
    /// Those before any data is transferred; later ones are in [`Fetched::failure`].
    pub(crate) async fn fetch(
        self,
        observer: &mut dyn Observer,
        cancel: &mut impl Cancel,
    ) -> Result<Fetched> {
        let Self { resolved: job, existing, taken, config, begun } = self;
        let Resolved { control, rules, tls, target, mut locks, channels, .. } = job;
        let resolved = begun.elapsed();
        let undecided = Undecided::new(control.clone(), rules.on_change, rules.verify);
        let questions = (Checksums::new(control.clone(), rules.verify), undecided);
        let outputs = (observer, job.board);
        let mut run = Run::new(job.walk, target, existing, questions, config, outputs, begun);
        run.checks_space = !rules.keep.no_space_check;
        run.deadline = rules.deadline;
        (run.mirror, run.taken) = (job.mirror.map(Arc::new), taken);
        (run.shares, run.largest_bytes) = (channels.shares, channels.largest_bytes);
        run.sources = job.sources;
        cancel.unless(run.read_ahead()).await?;
        let destination = cancel.unless(run.target.open_all()).await?;
        locks.iter_mut().for_each(FolderLock::keep_folders);
        run.observer.event(RunEvent::Configured(&run.config));
        let engine = Workers::start(RunSetup {
            config: run.config,
            destination,
            keeping: existing::persistence(&rules.keep),
            tls,
            keys: control.keys(),
            retries: rules.retries,
            bandwidth: channels.bandwidth.or_else(|| Bandwidth::of(rules.bandwidth_limit)),
            interfaces: control.interfaces(),
            begun,
        })?;
        run.observer.event(RunEvent::Started(&engine, &run.target));
        let (asked, started) = (job.asked, begun.elapsed());
        run.drive(&engine, cancel).await;
        let times = Milestones { resolved, asked, started };
        conclude(run, engine, times, (&rules, &control), cancel).await
    }
}

/// The error if no source exists, or none can be read: of their kind if they have one.
fn none_is_there(missing: &[Missing]) -> Error {
    let [first, others @ ..] = missing else { unreachable!("one is missing") };
    let (count, first) = (missing.len(), &first.error);
    if others.is_empty() {
        return first.clone();
    }
    let mut failures = Failures::default();
    missing.iter().for_each(|missing| failures.add(&missing.error));
    let can = match failures.kind() {
        ErrorKind::NotFound => "was found",
        _ => "can be read",
    };
    let named = missing.iter().take(NAMED_SOURCES_MAX).map(|missing| missing.uri.to_string());
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match count.saturating_sub(NAMED_SOURCES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("none of {count} sources {can} ({named}{more}), the first: {first}");
    let error = Error::new(failures.kind(), message);
    match failures.reason() {
        Some(reason) => error.because(reason),
        None => error,
    }
}

/// Joins the workers, does the work after the last object, and gathers the results.
async fn conclude(
    mut run: Run<'_>,
    engine: Workers,
    times: Milestones,
    (rules, control): (&Rules, &Control),
    cancel: &mut impl Cancel,
) -> Result<Fetched> {
    let (pages, pacer, ring) = (engine.pages(), Arc::clone(&engine.pacer), engine.ring().clone());
    let (scheduler, interfaces) = (Arc::clone(&engine.scheduler), engine.interfaces());
    let stop = scheduler.stop_reason();
    let workers = engine.join();
    run.collect(&scheduler);
    run.give_up_undecided();
    let durability = rules.keep.durability;
    let concluded = match stop {
        None if run.has_more_to_do(durability) => {
            cancel.unless_reported(CONCLUDING, run.conclude(durability)).await
        }
        _ => Ok(()),
    };
    let stopped = stop.as_ref().or(concluded.as_ref().err()).map(Error::kind);
    let ended = run.elapsed();
    let failure = run.failure(stop, workers.as_ref().err().or(concluded.as_ref().err()));
    let exit_code = failure.as_ref().map_or(0, |failure| failure.error().kind().exit_code());
    let endpoints = scheduler.endpoints().names();
    let workers = workers.unwrap_or_default();
    let inputs = SummaryInputs {
        pace: PaceReport::new(run.config.pace.is_adaptive(), &pacer.timeline(), &endpoints),
        endpoints,
        interfaces,
        bandwidth_limit: rules.bandwidth_limit.map(NonZeroU64::get),
        io_uring_unavailable: ring.refused.as_ref().map(SetupError::cause),
        clock_correction_seconds: control.clock_ahead_seconds(),
        exit_code,
        ..run.inputs(workers, pages, (&times, ended), control.retries())
    };
    Ok(Fetched { inputs, failure, remarks: run.remarks(), shares: run.shares.take(), stopped })
}
