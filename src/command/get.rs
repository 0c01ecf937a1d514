//! `inrush get`: resolve the sources, feed the scheduler from the listing, watch, report.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::time::MissedTickBehavior;

use super::again::{Decision, Undecided};
use super::checksums::{Checksums, Settled, wanted};
use super::session::{self, Interrupts};
use super::target::Target;
use crate::catalog::Control;
use crate::catalog::credentials::CredentialSource;
use crate::catalog::walk::{Entry, Walk};
use crate::cli::{GetArgs, OutputArgs, TuningArgs};
use crate::config::{Config, HostFacts, Wishes};
use crate::engine::{Engine, Order};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::FAILURES_TOLD_MAX;
use crate::machine;
use crate::metrics::WorkerMetrics;
use crate::out::{Lines, ReportWriter};
use crate::plan::filter::Filter;
use crate::progress::{Progress, ProgressState};
use crate::report::{ObjectLine, PlannedLine, Summary, SummaryInputs};
use crate::schedule::Scheduler;
use crate::sink::Sink;
use crate::size::Decimal;
use crate::sys::usage;
use crate::transfer::{Again, Cut, Outcome, Transfer};

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
    let (control, tls) = (found.control.clone(), found.tls.clone());
    let config = if tls.is_some() { config.secured() } else { config };
    if args.dry_run {
        let planned = plan_only(found, config.cut(), args.output);
        let code = interrupts.unless(planned).await?;
        return Ok(Ended { code, summary: None });
    }
    let resolved = begun.elapsed();
    let mut run = Run::new(found, config, progress, report, begun, &args)?;
    interrupts.unless(run.read_ahead()).await?;
    let order = Order {
        config: run.config,
        destination: run.target.open()?,
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
    run.give_up_undecided();
    let ended = begun.elapsed();
    let code = run.exit_code(stop, workers.as_ref().err());
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

/// `--dry-run`: lists what would move.
async fn plan_only(plan: Plan, cut: Cut, output: OutputArgs) -> Result<u8> {
    let Plan { target, mut walk, .. } = plan;
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
    checksums: Checksums,
    target: Target,
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
    /// Of those: held against a checksum, and not (though they have bytes).
    validated: u64,
    not_validated: u64,
    failures: u64,
    /// Failures that were not told: [`FAILURES_TOLD_MAX`] were.
    untold: u64,
    /// The kind of all failures, while they are of one kind.
    failure_kind: Option<ErrorKind>,
    outcomes: Vec<Outcome>,
    /// Objects that failed for now.
    undecided: Undecided,
    /// The run ends then, done or not.
    deadline: Option<Duration>,
}

impl Run {
    fn new(
        plan: Plan,
        config: Config,
        progress: Progress,
        report: Option<ReportWriter>,
        begun: Instant,
        args: &GetArgs,
    ) -> Result<Self> {
        let Plan { control, target, walk, .. } = plan;
        let verify = wanted(args.verify);
        let checksums = Checksums::new(control.clone(), verify);
        let undecided = Undecided::new(control, args.failures.on_change, verify);
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
            checksums,
            target,
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
            validated: 0,
            not_validated: 0,
            failures: 0,
            untold: 0,
            failure_kind: None,
            outcomes: Vec::new(),
            undecided,
            deadline: args.failures.deadline,
        })
    }

    /// Takes the first page with anything to move, so that what is wrong with it shows before any
    /// byte moves.
    async fn read_ahead(&mut self) -> Result<()> {
        while self.pending.is_empty() && self.checksums.is_empty() && !self.listed {
            let batch = self.walk.next_batch().await?;
            if let Some(entries) = &batch {
                let largest = entries.iter().map(|entry| entry.object.size_bytes).max();
                self.config = self.config.fitted(largest.unwrap_or(0));
            }
            self.take(batch)?;
        }
        if self.pending.is_empty() && self.checksums.is_empty() && self.failures > 0 {
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
            self.known.objects_known += 1;
            match self.target.transfer(entry, self.config.cut()) {
                Ok(transfer) => {
                    let size = transfer.object.size_bytes;
                    self.known.bytes_known = self.known.bytes_known.saturating_add(size);
                    if let Some(settled) = self.checksums.admit(transfer) {
                        self.admit(settled);
                    }
                }
                failed => self.admit(failed),
            }
        }
        match self.free_bytes {
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

    /// Takes a transfer that may begin, or the failure of one that may not.
    fn admit(&mut self, settled: Settled) {
        match settled {
            Ok(transfer) => self.pending.push_back(transfer),
            Err(failed) => {
                let (transfer, error) = *failed;
                let transfer = Arc::new(transfer);
                let outcome = Outcome { transfer, elapsed_us: 0, result: Err(error) };
                self.note_outcome(outcome, None);
            }
        }
    }

    /// Whether every object has been handed to the scheduler, or has failed.
    fn is_fed(&self) -> bool {
        self.listed && self.pending.is_empty() && self.checksums.is_empty()
    }

    /// Whether more of the listing is wanted.
    fn is_hungry(&self) -> bool {
        !self.listed && self.pending.is_empty() && self.checksums.has_room()
    }

    /// Feeds the workers and watches them to their end.
    async fn drive(&mut self, engine: &Engine, interrupts: &mut Interrupts) -> Result<()> {
        let scheduler = &engine.scheduler;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticks = 0u64;
        let mut told_complete = false;
        let cut = self.config.cut();
        let mut deadline = self.deadline.map(|deadline| self.begun + deadline);
        while !engine.has_ended() {
            let room = scheduler.room().min(self.pending.len());
            if room > 0 {
                scheduler.push(self.pending.drain(..room));
            }
            if self.is_fed() && !told_complete {
                told_complete = true;
                scheduler.complete();
            }
            let hungry = self.is_hungry();
            tokio::select! {
                settled = self.checksums.next(), if !self.checksums.is_empty() => {
                    self.admit(settled);
                }
                batch = self.walk.next_batch(), if hungry => {
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
                decision = self.undecided.next(cut), if !self.undecided.is_empty() => {
                    self.decided(decision, scheduler);
                }
                () = engine.worker_ended() => {}
                () = until(deadline) => {
                    deadline = None;
                    self.end(engine, self.deadline_error());
                }
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
            self.checksums.clear();
            engine.scheduler.stop(error);
        } else {
            self.listing_error = Some(error);
        }
    }

    fn interrupt(&mut self, engine: &Engine) {
        self.end(engine, Error::new(ErrorKind::Interrupted, "interrupted"));
    }

    /// Ends the run before its objects are done.
    fn end(&mut self, engine: &Engine, reason: Error) {
        self.listed = true;
        self.pending.clear();
        self.checksums.clear();
        engine.scheduler.stop(reason);
    }

    fn deadline_error(&self) -> Error {
        let (ok, known) = (self.objects_ok, self.known.objects_known);
        let message = format!("the deadline has passed: {ok} of {known} known objects are whole");
        Error::new(ErrorKind::Deadline, message).advise("run it again with a longer --deadline")
    }

    /// Fetches an object anew, or tells that it failed.
    fn decided(&mut self, decision: Decision, scheduler: &Scheduler) {
        match decision {
            Decision::Anew(transfer) => {
                let why = match transfer.restarted {
                    Some(Again::Checksum) => "its bytes did not have the stored checksum",
                    _ => "it changed while it was fetched",
                };
                self.progress.note(format!("{} begins anew: {why}", transfer.name()));
                scheduler.restart(*transfer);
            }
            Decision::Failed(outcome) => {
                self.note_outcome(outcome, None);
                scheduler.give_up();
            }
        }
    }

    /// What is undecided when the run ends has failed.
    fn give_up_undecided(&mut self) {
        for outcome in self.undecided.give_up().collect::<Vec<_>>() {
            self.note_outcome(outcome, None);
        }
    }

    fn draw(&mut self, engine: &Engine) {
        let state = engine.progress();
        self.known.bytes_done = state.bytes;
        self.known.retries = state.retries;
        self.known.waiting = state.waiting;
        self.known.objects_done = self.objects_ok + self.failures;
        self.known.listing_complete = self.listed;
        self.progress.update(&self.known);
    }

    /// Takes the outcomes since the last time.
    fn collect(&mut self, scheduler: &Scheduler) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        scheduler.collect(&mut outcomes);
        let stop = scheduler.stop_reason();
        for outcome in outcomes.drain(..) {
            let for_now = outcome.result.is_err() && outcome.transfer.again().is_some();
            if for_now && stop.is_none() {
                self.undecided.push(outcome);
            } else {
                self.note_outcome(outcome, stop.as_ref());
            }
        }
        self.outcomes = outcomes;
    }

    /// Counts and tells how an object ended. What ended the whole run is told once, at its end.
    fn note_outcome(&mut self, outcome: Outcome, stop: Option<&Error>) {
        if let Some(report) = &mut self.report
            && let Err(error) = report.line(&ObjectLine::new(&outcome).to_json())
        {
            self.progress.error(&error);
            self.report_error = Some(error.kind());
            self.report = None;
        }
        let Err(error) = outcome.result else {
            self.objects_ok += 1;
            match outcome.transfer.verification.verdict() {
                Ok(_) => self.validated += 1,
                Err(_) if outcome.transfer.object.size_bytes == 0 => {}
                Err(_) => self.not_validated += 1,
            }
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
                ErrorKind::Interrupted => self.progress.error(format!(
                    "interrupted: {} objects are whole; of the others nothing is left, neither \
                     under their names nor in temporary files",
                    self.objects_ok
                )),
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
            validated_objects: self.validated,
            not_validated_objects: self.not_validated,
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
        for line in summary.lines() {
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

/// Waits for this moment; without one for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
