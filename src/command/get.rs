//! `inrush get`: resolve the sources, feed the scheduler from the listing, watch, report.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::time::MissedTickBehavior;

use super::kept::{self, Keeper, Verdict};
use super::session::{self, Interrupts};
use crate::catalog::Control;
use crate::catalog::credentials::CredentialSource;
use crate::catalog::resolve::{Found, Source};
use crate::catalog::walk::{Entry, Walk};
use crate::cli::{Destination, Durability, GetArgs, OutputArgs, TuningArgs};
use crate::config::{Config, HostFacts, Wishes};
use crate::engine::{Engine, Order};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::FAILURES_TOLD_MAX;
use crate::machine;
use crate::metrics::WorkerMetrics;
use crate::out::{Lines, ReportWriter};
use crate::plan::filter::Filter;
use crate::progress::{Progress, ProgressState};
use crate::report::{Earlier, ObjectLine, PlannedLine, Summary, SummaryInputs};
use crate::s3::uri::shown;
use crate::sink::Sink;
use crate::size::Decimal;
use crate::sys::usage;
use crate::transfer::{Cut, Outcome, Transfer};

/// How often outcomes are collected and progress is shown.
const TICK: Duration = Duration::from_millis(20);

/// Progress is drawn once in so many ticks.
const TICKS_PER_DRAW: u64 = 5;

/// How a `get` ended.
pub(super) struct Ended {
    /// The exit code.
    pub(super) code: u8,
    /// What it came to; `None` when nothing was to move (`--dry-run`).
    pub(super) summary: Option<Summary>,
}

/// Fetches with these credentials, and tells what it came to.
pub(super) async fn run(
    args: GetArgs,
    credentials: CredentialSource,
    begun: Instant,
) -> Result<Ended> {
    let progress = Progress::new(!args.output.quiet);
    let config = Config::resolve(wishes(&args.tuning), HostFacts::read())?;
    let filter = Filter::new(&args.selection.include, &args.selection.exclude)?;
    let report = args.report.as_deref().map(ReportWriter::create).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    let found = interrupts.unless(find(&args, credentials, filter)).await?;
    let Plan { control, tls, target, walk } = found;
    let config = if tls.is_some() { config.secured() } else { config };
    let mut keeper = Keeper::new(target.present(), args.keep, begun, control.keys());
    if args.dry_run {
        let planned = plan_only(walk, &target, &mut keeper, config.cut(), args.output);
        let code = interrupts.unless(planned).await?;
        return Ok(Ended { code, summary: None });
    }
    let resolved = begun.elapsed();
    let mut run = Run::new(walk, target, keeper, config, progress, report, begun)?;
    interrupts.unless(run.read_ahead()).await?;
    let order = Order {
        config: run.config,
        destination: run.target.open()?,
        keeping: kept::keeping(&args.keep),
        tls,
        keys: control.keys(),
        attempts_max: args.tuning.max_attempts,
        begun,
    };
    raise_descriptor_limit();
    let engine = Engine::start(order)?;
    let started = begun.elapsed();
    let upkeep = session::upkeep(control.clone());
    tokio::select! {
        biased;
        done = run.drive(&engine, &mut interrupts) => done?,
        () = upkeep => unreachable!("upkeep has no end"),
    }
    let pages = engine.pages();
    let stop = engine.scheduler.stop_reason();
    let scheduler = Arc::clone(&engine.scheduler);
    let workers = engine.join();
    run.collect(&scheduler);
    let synced = match stop {
        None if args.keep.durability == Durability::End => interrupts.unless(run.sync()).await,
        _ => Ok(()),
    };
    let ended = begun.elapsed();
    let code = run.exit_code(stop, workers.as_ref().err().or(synced.as_ref().err()));
    let (sink, workers) = (run.target.sink(), workers.unwrap_or_default());
    let times = Times { resolved, started, ended };
    let inputs = run.inputs(workers, sink, pages, &times, code);
    let summary = Summary::new(&inputs);
    run.tell(&summary, args.output.json)?;
    Ok(Ended { code, summary: Some(summary) })
}

/// What is to move, where from and where to.
struct Plan {
    control: Rc<Control>,
    tls: Option<Arc<ClientConfig>>,
    target: Target,
    walk: Walk,
}

/// Finds the sources out.
async fn find(args: &GetArgs, credentials: CredentialSource, filter: Filter) -> Result<Plan> {
    let control = session::control(&args.service, credentials).await?;
    let mut sources = Vec::new();
    for uri in &args.sources {
        sources.push(control.resolve(uri).await?);
    }
    let target = Target::choose(&args.destination, &sources)?;
    let walk = Walk::new(control.clone(), sources, filter)?;
    let tls = session::tls(&control, &args.sources).await?;
    Ok(Plan { control, tls, target, walk })
}

/// What the options ask for.
pub(super) fn wishes(tuning: &TuningArgs) -> Wishes {
    Wishes {
        workers: tuning.workers,
        connections: tuning.connections,
        part_size_bytes: tuning.part_size,
        memory_bytes: tuning.memory,
    }
}

/// As many descriptors as this process may have: small ones suffice, many small files need more.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the limit stays; running out of descriptors is a named error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Moments of a run since the process began.
struct Times {
    resolved: Duration,
    started: Duration,
    ended: Duration,
}

/// Where the bytes go.
#[derive(Debug)]
enum Target {
    /// Below this folder, each object at its relative path.
    Folder(PathBuf),
    /// One object to one file.
    File { folder: PathBuf, name: String },
    /// Nowhere.
    Discard,
}

impl Target {
    /// One object goes into DEST if that is a folder or ends in `/`, else to that name; everything
    /// else needs a folder.
    fn choose(destination: &Destination, sources: &[Source]) -> Result<Self> {
        let Destination::Local(path) = destination else { return Ok(Self::Discard) };
        let one = matches!(sources, [Source { found: Found::Object(_), .. }]);
        let as_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Ok(Self::Folder(path.clone())),
            Ok(_) if !one || as_folder => {
                let message = format!("{} is a file, not a folder", path.display());
                return Err(Error::new(ErrorKind::Destination, message)
                    .advise("name a folder, or move the file away"));
            }
            // A device or a pipe would be replaced by a file of its name.
            Ok(found) if !found.is_file() => {
                let message = format!("{} is not an ordinary file", path.display());
                return Err(Error::new(ErrorKind::Destination, message)
                    .advise("name a file or a folder; to write nothing give --discard"));
            }
            _ => {}
        }
        if !one || as_folder {
            return Ok(Self::Folder(path.clone()));
        }
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::new(ErrorKind::Destination, format!("{} is no file name", path.display()))
                .advise("name a folder, or a file in UTF-8")
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self::File { folder, name: name.to_owned() })
    }

    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) | Self::File { folder, .. } => Some(folder),
            Self::Discard => None,
        }
    }

    fn open(&self) -> Result<Option<OwnedFd>> {
        self.folder().map(machine::open_destination).transpose()
    }

    /// The folder, if it is there already.
    fn present(&self) -> Option<OwnedFd> {
        let folder = self.folder()?;
        folder.is_dir().then(|| machine::open_destination(folder).ok()).flatten()
    }

    fn sink(&self) -> Sink {
        if self.folder().is_some() { Sink::File } else { Sink::Null }
    }

    /// The transfer of an entry, or why it cannot be.
    fn transfer(&self, entry: Entry, cut: Cut) -> Result<Transfer, Box<(Transfer, Error)>> {
        let Entry { endpoint, object, path, .. } = entry;
        let problem = match (self, path) {
            (Self::File { name, .. }, _) => {
                return Ok(Transfer::new(object, endpoint, name.clone(), cut));
            }
            (Self::Folder(_) | Self::Discard, Ok(path)) => {
                return Ok(Transfer::new(object, endpoint, path.as_str().to_owned(), cut));
            }
            // What is dropped needs no path.
            (Self::Discard, Err(_)) => {
                return Ok(Transfer::new(object, endpoint, String::new(), cut));
            }
            (Self::Folder(_), Err(problem)) => problem,
        };
        let transfer = Transfer::new(object, endpoint, String::new(), cut);
        let what = format!("s3://{}/{}", transfer.endpoint.bucket, shown(&transfer.object.key));
        let error = Error::new(ErrorKind::Destination, problem.explain()).within(what);
        Err(Box::new((transfer, error)))
    }
}

/// `--dry-run`: lists what would move.
async fn plan_only(
    mut walk: Walk,
    target: &Target,
    keeper: &mut Keeper,
    cut: Cut,
    output: OutputArgs,
) -> Result<u8> {
    let mut lines = Lines::stdout();
    let (mut objects, mut bytes, mut problems) = (0u64, 0u64, 0u64);
    let progress = Progress::new(!output.quiet);
    while let Some(batch) = walk.next_batch().await? {
        for entry in batch {
            let transfer = match target.transfer(entry, cut) {
                Ok(transfer) => transfer,
                Err(failed) => {
                    problems += 1;
                    progress.error(&failed.1);
                    continue;
                }
            };
            if keeper.would_keep(&transfer) {
                continue;
            }
            objects += 1;
            bytes = bytes.saturating_add(transfer.object.size_bytes);
            let line = PlannedLine::new(&transfer);
            let line = if output.json { line.to_json() } else { line.to_text() };
            if lines.line(&line)? == ControlFlow::Break(()) {
                return Ok(0);
            }
        }
    }
    let _ = lines.flush()?;
    progress.note(format!("{objects} objects, {} would move", Decimal(bytes)));
    Ok(if problems > 0 { ErrorKind::Objects.exit_code() } else { 0 })
}

/// A run of the data plane, as the control plane sees it.
struct Run {
    walk: Walk,
    target: Target,
    keeper: Keeper,
    config: Config,
    progress: Progress,
    report: Option<ReportWriter>,
    /// The report took no more; told, and the run's exit code if nothing worse happens.
    report_error: Option<ErrorKind>,
    begun: Instant,
    /// Objects that wait for room in the scheduler.
    pending: VecDeque<Transfer>,
    listed: bool,
    listing_ended_us: u64,
    listing_error: Option<Error>,
    free_bytes: Option<u64>,
    known: ProgressState,
    objects_ok: u64,
    failures: u64,
    /// Of these: a later run can go on with some of their bytes.
    unfinished: u64,
    /// Failures that were not told: [`FAILURES_TOLD_MAX`] were.
    untold: u64,
    /// The kind of all failures, while they are of one kind.
    failure_kind: Option<ErrorKind>,
    outcomes: Vec<Outcome>,
}

impl Run {
    fn new(
        walk: Walk,
        target: Target,
        keeper: Keeper,
        config: Config,
        progress: Progress,
        report: Option<ReportWriter>,
        begun: Instant,
    ) -> Result<Self> {
        let free_bytes = match target.folder() {
            Some(folder) => {
                // Checked before anything is made: a destination that cannot be is an early error.
                let existing = folder.ancestors().find(|path| path.exists());
                let existing = existing.filter(|path| !path.as_os_str().is_empty());
                machine::free_bytes(existing.unwrap_or(Path::new(".")))
            }
            None => None,
        };
        Ok(Self {
            walk,
            target,
            keeper,
            config,
            progress,
            report,
            report_error: None,
            begun,
            pending: VecDeque::new(),
            listed: false,
            listing_ended_us: 0,
            listing_error: None,
            free_bytes,
            known: ProgressState::default(),
            objects_ok: 0,
            failures: 0,
            unfinished: 0,
            untold: 0,
            failure_kind: None,
            outcomes: Vec::new(),
        })
    }

    /// Takes the first page with anything to move, so that what is wrong with it shows before any
    /// byte moves.
    async fn read_ahead(&mut self) -> Result<()> {
        while self.pending.is_empty() && !self.listed {
            let batch = self.walk.next_batch().await?;
            if let Some(entries) = &batch {
                let largest = entries.iter().map(|entry| entry.object.size_bytes).max();
                self.config = self.config.fitted(largest.unwrap_or(0));
            }
            self.take(batch)?;
        }
        if self.pending.is_empty() && self.failures > 0 {
            let kind = self.failure_kind.unwrap_or(ErrorKind::Objects);
            return Err(Error::new(kind, "no object can be stored"));
        }
        Ok(())
    }

    /// Takes a batch of the listing in; `None` is its end.
    fn take(&mut self, batch: Option<Vec<Entry>>) -> Result<()> {
        let Some(batch) = batch else {
            self.listed = true;
            self.listing_ended_us = micros(self.begun.elapsed());
            return Ok(());
        };
        for entry in batch {
            match self.target.transfer(entry, self.config.cut()) {
                Ok(transfer) => self.take_object(transfer),
                Err(failed) => {
                    self.known.objects_known += 1;
                    let (transfer, error) = *failed;
                    let transfer = Arc::new(transfer);
                    let outcome = Outcome { transfer, elapsed_us: 0, result: Err(error) };
                    self.note_outcome(outcome, None);
                }
            }
        }
        let free_bytes = self.free_bytes.map(|free| free.saturating_add(self.keeper.space_bytes));
        match free_bytes {
            Some(free) if self.known.bytes_known > free => Err(Error::new(
                ErrorKind::Destination,
                format!(
                    "{} has {} free, and at least {} are to be written",
                    self.target.folder().unwrap_or(Path::new(".")).display(),
                    Decimal(free),
                    Decimal(self.known.bytes_known)
                ),
            )
            .advise("free space, or choose another destination")),
            _ => Ok(()),
        }
    }

    /// Takes an object in, unless it is there already.
    fn take_object(&mut self, transfer: Transfer) {
        match self.keeper.judge(transfer) {
            Verdict::Fetch(transfer, done) => {
                self.known.objects_known += 1;
                let bytes = self.known.bytes_known.saturating_add(transfer.object.size_bytes);
                self.known.bytes_known = bytes - done;
                self.pending.push_back(transfer);
            }
            Verdict::Keep(transfer, kept) => {
                self.known.objects_kept += 1;
                self.report_line(&ObjectLine::kept(&transfer, kept));
            }
        }
    }

    fn report_line(&mut self, line: &ObjectLine<'_>) {
        if let Some(report) = &mut self.report
            && let Err(error) = report.line(&line.to_json())
        {
            self.progress.error(&error);
            self.report_error = Some(error.kind());
            self.report = None;
        }
    }

    /// Feeds the workers and watches them to their end.
    async fn drive(&mut self, engine: &Engine, interrupts: &mut Interrupts) -> Result<()> {
        let scheduler = &engine.scheduler;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticks = 0u64;
        let mut told_complete = false;
        while !engine.has_ended() {
            let room = scheduler.room().min(self.pending.len());
            if room > 0 {
                scheduler.push(self.pending.drain(..room));
            }
            if self.listed && self.pending.is_empty() && !told_complete {
                told_complete = true;
                scheduler.complete();
            }
            tokio::select! {
                batch = self.walk.next_batch(), if !self.listed && self.pending.is_empty() => {
                    if let Err(error) = batch.and_then(|batch| self.take(batch)) {
                        self.end_listing(error, engine);
                    }
                }
                _ = tick.tick() => {
                    ticks += 1;
                    self.collect(scheduler);
                    if ticks.is_multiple_of(TICKS_PER_DRAW) {
                        self.draw(engine);
                    }
                }
                () = engine.worker_ended() => {}
                () = interrupts.next() => self.interrupt(engine),
            }
        }
        Ok(())
    }

    /// The listing failed. A destination that is too small ends the run; what was listed of a
    /// server that stopped answering is still fetched.
    fn end_listing(&mut self, error: Error, engine: &Engine) {
        self.listed = true;
        self.listing_ended_us = micros(self.begun.elapsed());
        if error.kind() == ErrorKind::Destination {
            self.pending.clear();
            engine.scheduler.stop(error);
        } else {
            self.listing_error = Some(error);
        }
    }

    fn interrupt(&mut self, engine: &Engine) {
        self.listed = true;
        self.pending.clear();
        let reason = Error::new(ErrorKind::Interrupted, "interrupted");
        engine.scheduler.stop(reason);
    }

    fn draw(&mut self, engine: &Engine) {
        let (bytes_done, retries) = engine.progress();
        self.known.bytes_done = bytes_done;
        self.known.retries = retries;
        self.known.objects_done = self.objects_ok + self.failures;
        self.known.listing_complete = self.listed;
        self.progress.update(&self.known);
    }

    /// Takes the outcomes since the last time.
    fn collect(&mut self, scheduler: &crate::schedule::Scheduler) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        scheduler.collect(&mut outcomes);
        let stop = scheduler.stop_reason();
        for outcome in outcomes.drain(..) {
            self.note_outcome(outcome, stop.as_ref());
        }
        self.outcomes = outcomes;
    }

    /// Counts and tells how an object ended. What ended the whole run is told once, at its end.
    fn note_outcome(&mut self, outcome: Outcome, stop: Option<&Error>) {
        self.report_line(&ObjectLine::new(&outcome));
        self.unfinished += u64::from(outcome.transfer.can_go_on());
        let Err(error) = outcome.result else {
            self.objects_ok += 1;
            return;
        };
        let first = self.failures == 0;
        self.failures += 1;
        self.failure_kind = self.failure_kind.filter(|kind| *kind == error.kind());
        if first {
            self.failure_kind = Some(error.kind());
        }
        if stop == Some(&error) {
            return;
        }
        if self.failures <= FAILURES_TOLD_MAX as u64 {
            self.progress.error(&error);
        } else {
            self.untold += 1;
        }
    }

    /// Syncs the destination, so that what was fetched outlives a power failure.
    async fn sync(&self) -> Result<()> {
        let Some(folder) = self.target.open()? else { return Ok(()) };
        let mut machine = self.keeper.machine_at(folder);
        let synced = tokio::task::spawn_blocking(move || machine.sync_all()).await;
        synced.expect("a sync does not panic")
    }

    /// Prints what ended the run, and decides its exit code.
    fn exit_code(&mut self, stop: Option<Error>, bug: Option<&Error>) -> u8 {
        self.progress.finish();
        if self.untold > 0 {
            let untold = self.untold;
            self.progress.error(format!("{untold} more objects failed; --report lists them all"));
        }
        if let Some(bug) = bug {
            self.progress.error(bug);
            return bug.kind().exit_code();
        }
        if let Some(stop) = stop {
            match stop.kind() {
                ErrorKind::Interrupted => self.progress.error(self.interrupted()),
                _ => self.progress.error(&stop),
            }
            return stop.kind().exit_code();
        }
        if let Some(error) = &self.listing_error {
            self.progress.error(error);
            return error.kind().exit_code();
        }
        match (self.failures, self.objects_ok, self.failure_kind) {
            (0, _, _) => self.report_error.map_or(0, ErrorKind::exit_code),
            (_, 0, Some(kind)) => kind.exit_code(),
            _ => ErrorKind::Objects.exit_code(),
        }
    }

    fn interrupted(&self) -> String {
        let whole = self.objects_ok + self.keeper.kept.0;
        match self.unfinished {
            0 => format!(
                "interrupted: {whole} objects are whole; of the others nothing is left, neither \
                 under their names nor in temporary files"
            ),
            unfinished => format!(
                "interrupted: {whole} objects are whole, {unfinished} are unfinished in temporary \
                 files; run it again to go on"
            ),
        }
    }

    fn earlier(&self) -> Earlier {
        Earlier {
            kept_objects: self.keeper.kept.0,
            kept_bytes: self.keeper.kept.1,
            resumed_objects: self.keeper.resumed.0,
            resumed_bytes: self.keeper.resumed.1,
            anew_objects: self.keeper.anew(),
            unfinished_objects: self.unfinished,
            deleted_files: 0,
        }
    }

    fn inputs(
        &self,
        workers: Vec<WorkerMetrics>,
        sink: Sink,
        pages: crate::sys::pool::Pages,
        times: &Times,
        exit_code: u8,
    ) -> SummaryInputs {
        SummaryInputs {
            workers,
            sink,
            failed_objects: self.failures,
            earlier: self.earlier(),
            elapsed_us: micros(times.ended),
            resolve_us: micros(times.resolved),
            list_us: self.listing_ended_us.saturating_sub(micros(times.resolved)),
            transfer_us: micros(times.ended - times.started),
            cpu_seconds: usage::process_cpu_seconds(),
            peak_rss_bytes: usage::peak_rss_bytes(),
            pages: Some(pages),
            connections: self.config.connections as u64,
            part_size_bytes: self.config.part.bytes(),
            slot_length_bytes: u64::from(self.config.slot_length_bytes),
            memory_bytes: self.config.memory_bytes,
            exit_code,
        }
    }

    fn tell(&mut self, summary: &Summary, json: bool) -> Result<()> {
        for line in summary.lines().into_iter().chain(self.keeper.notes()) {
            self.progress.note(line);
        }
        if let Some(report) = self.report.take() {
            report.finish()?;
        }
        if json {
            crate::out::print(format!("{}\n", summary.to_json()).as_bytes())?;
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
