//! A download as the control plane sees it: feeds the scheduler from the listing, watches the
//! workers, reports the result of each object, and decides the exit code.

mod conclusion;
mod elsewhere;
mod intake;
mod shares;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::time::MissedTickBehavior;

use super::checksums::Checksums;
use super::existing::ExistingFiles;
use super::refetch::{Decision, Undecided};
use super::{mirror::Mirror, space::Space, spread::Spread, target::Target};
use crate::command::failures::Failures;
use crate::command::interrupts::{Interrupts, until};
use crate::command::log::{self, PaceLog};
use crate::command::own_files::TakenPaths;
use crate::command::reporting::{finish, keep_up, print_lines};
use crate::control::list::entries::Entries;
use crate::engine::config::Config;
use crate::engine::metrics::WorkerMetrics;
use crate::engine::schedule::Scheduler;
use crate::engine::threads::Workers;
use crate::error::{Error, ErrorKind, Result};
use crate::files::sink::Sink;
use crate::files::transfer::{Again, Outcome, Transfer};
use crate::limits::WAIT_TOLD_AFTER_US;
use crate::link::failure::RetryCounts;
use crate::link::waiting::{Board, Wait};
use crate::report::document::{
    Course, CoursePoint, Earlier, ObjectLine, PaceReport, Summary, SummaryInputs,
};
use crate::report::out::ReportWriter;
use crate::report::progress::{Progress, ProgressState, UnderWay};
use crate::sys::pool::Pages;
use crate::sys::{tcp_memory, usage};
use crate::text::size::{Count, counted};
use intake::micros;
pub(in crate::command) use intake::{first_file, settle};
pub(in crate::command) use shares::Shares;

/// Interval at which outcomes are collected and progress is updated.
const TICK: Duration = Duration::from_millis(20);

/// Ticks between two redraws of progress.
const TICKS_PER_DRAW: u64 = 5;

/// Times of a run since the process began.
pub(in crate::command) struct Milestones {
    pub(in crate::command) resolved: Duration,
    /// The part of it for requests about the sources.
    pub(in crate::command) asked: Duration,
    pub(in crate::command) started: Duration,
    pub(in crate::command) ended: Duration,
}

/// The outputs of a run.
pub(in crate::command) struct RunOutputs {
    pub(in crate::command) progress: Progress,
    /// One line per object.
    pub(in crate::command) report: Option<ReportWriter>,
    /// The board for reporting waits.
    pub(in crate::command) board: Arc<Board>,
}

/// The run.
pub(in crate::command) struct Run {
    walk: Entries,
    checksums: Checksums,
    pub(in crate::command) target: Target,
    existing: ExistingFiles,
    pub(in crate::command) config: Config,
    pub(in crate::command) progress: Progress,
    board: Arc<Board>,
    /// Time at which bytes were last seen to come.
    moved: tokio::time::Instant,
    report: Option<ReportWriter>,
    /// The report failed; printed, and the run's exit code if nothing worse happens.
    report_error: Option<Error>,
    begun: Instant,
    /// Objects that wait for space in the scheduler.
    pending: VecDeque<Transfer>,
    listed: bool,
    /// The listing was read to its end without an error.
    listed_all: bool,
    listing_ended_us: u64,
    listing_error: Option<Error>,
    /// Objects that certainly cannot fit at the destination are refused.
    pub(in crate::command) checks_space: bool,
    space: Space,
    /// Chooses among several destinations.
    spread: Option<Spread>,
    /// Why the first of them was left out; printed, and the exit code if nothing is worse.
    left_out: Option<Error>,
    /// Objects that had a place in the scheduler, and are not downloaded again.
    vacated: u64,
    known: ProgressState,
    objects_ok: u64,
    /// Complete objects with bytes: those verified by a checksum, and the reasons of the others.
    validated: u64,
    not_validated: BTreeMap<&'static str, u64>,
    /// Objects without bytes, or that represent a folder.
    empty: u64,
    failures: Failures,
    /// Failed objects that a later run can resume.
    unfinished: u64,
    /// Resumed objects that have ended.
    resumed_ended: u64,
    /// The large files of resumed objects: written past the page cache, and through it.
    resumed_files: (u64, u64),
    outcomes: Vec<Outcome>,
    /// Objects that failed for now.
    undecided: Undecided,
    /// Time after which the run ends, complete or not.
    pub(in crate::command) deadline: Option<Duration>,
    /// The source's paths, if all others are to be removed.
    pub(in crate::command) mirror: Option<Arc<Mirror>>,
    /// Paths below the destination that objects may not have.
    pub(in crate::command) taken: TakenPaths,
    /// Objects that wait for the end of the listing: then their obstacles may be removed.
    blocked: Vec<(Transfer, Error)>,
    /// Removed obstacles; none before the removal begins.
    removals: Option<Receiver<String>>,
    /// Number of sources given, and of missing ones.
    pub(in crate::command) sources: u64,
    missing: u64,
    removed: u64,
    /// Prefix of its summary's lines.
    pub(in crate::command) label: Option<String>,
    /// Its results per channel, if it fills several.
    pub(in crate::command) shares: Option<Shares>,
    /// The largest object to come, in bytes, if known before the first page.
    pub(in crate::command) largest_bytes: u64,
    /// The rest of the run is not needed, which is not reported.
    is_halted: bool,
    paces: PaceLog,
    course: Course,
}

impl Run {
    /// A run of these entries.
    pub(in crate::command) fn new(
        walk: Entries,
        target: Target,
        existing: ExistingFiles,
        (checksums, undecided): (Checksums, Undecided),
        config: Config,
        outputs: RunOutputs,
        begun: Instant,
    ) -> Self {
        Self {
            walk,
            checksums,
            target,
            existing,
            config,
            progress: outputs.progress,
            board: outputs.board,
            moved: tokio::time::Instant::now(),
            report: outputs.report,
            report_error: None,
            begun,
            pending: VecDeque::new(),
            listed: false,
            listed_all: false,
            listing_ended_us: 0,
            listing_error: None,
            checks_space: true,
            space: Space::default(),
            spread: None,
            left_out: None,
            vacated: 0,
            known: ProgressState::default(),
            objects_ok: 0,
            validated: 0,
            not_validated: BTreeMap::new(),
            empty: 0,
            failures: Failures::default(),
            unfinished: 0,
            resumed_ended: 0,
            resumed_files: (0, 0),
            outcomes: Vec::new(),
            undecided,
            deadline: None,
            mirror: None,
            taken: TakenPaths::default(),
            blocked: Vec::new(),
            removals: None,
            sources: 1,
            missing: 0,
            removed: 0,
            label: None,
            shares: None,
            largest_bytes: 0,
            is_halted: false,
            paces: PaceLog::default(),
            course: Course::default(),
        }
    }

    fn report_line(&mut self, line: impl FnOnce() -> String) {
        if let Some(report) = &mut self.report
            && let Err(error) = report.line(&line())
        {
            self.progress.error(&error);
            self.report_error = Some(error);
            self.report = None;
        }
    }

    /// The channel of an object, for the report, if there are channels.
    fn channel(&self, transfer: &Transfer) -> Option<String> {
        let shares = self.shares.as_ref().filter(|_| self.report.is_some())?;
        shares.name(transfer).map(str::to_owned)
    }

    /// Feeds the workers and watches them to their end.
    pub(in crate::command) async fn drive(
        &mut self,
        engine: &Workers,
        interrupts: &mut Interrupts,
    ) -> Result<()> {
        let scheduler = &engine.scheduler;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticks = 0u64;
        let mut has_completed = false;
        let cut = self.config.cut();
        let mut deadline = self.deadline.map(|deadline| self.begun + deadline);
        while !engine.has_ended() {
            self.unblock(scheduler);
            self.feed(scheduler);
            if self.is_fed() && !has_completed {
                has_completed = true;
                scheduler.complete();
            }
            let wants_listing = self.wants_listing();
            let behind = self.report.as_ref().is_some_and(ReportWriter::is_behind);
            tokio::select! {
                settled = self.checksums.next(), if !self.checksums.is_empty() => {
                    self.admit(settled);
                }
                batch = self.walk.next_batch(), if wants_listing => {
                    if let Err(error) = batch.and_then(|batch| self.take(batch)) {
                        self.end_listing(error, engine);
                    }
                }
                verdicts = self.existing.next(), if self.existing.is_busy() && !behind => {
                    if let Err(error) = self.take_verdicts(verdicts) {
                        self.end_listing(error, engine);
                    }
                }
                Some(path) = async { self.removals.as_mut()?.recv().await }, if !behind => {
                    self.report_removed(&path);
                }
                _ = tick.tick() => {
                    ticks += 1;
                    if !behind {
                        self.collect(scheduler);
                    }
                    if ticks.is_multiple_of(TICKS_PER_DRAW) {
                        self.draw(engine);
                    }
                }
                decision = self.undecided.next(cut), if !self.undecided.is_empty() => {
                    self.decided(decision, scheduler);
                }
                () = keep_up(self.report.as_ref()), if behind => {}
                () = engine.worker_ended() => {}
                () = until(deadline) => {
                    deadline = None;
                    self.end(engine, self.deadline_error(engine.longest_wait()));
                }
                () = interrupts.next() => {
                    self.is_halted = interrupts.is_halted();
                    self.end(engine, Error::new(ErrorKind::Interrupted, "interrupted"));
                }
            }
        }
        self.report_removals().await;
        self.board.set_range(None);
        Ok(())
    }

    /// Ends the run before its objects are complete.
    fn end(&mut self, engine: &Workers, reason: Error) {
        self.listed = true;
        self.clear();
        engine.scheduler.stop(reason);
    }

    /// The error of a passed deadline, with the current wait of the data plane or of the listing.
    fn deadline_error(&self, range: Option<Wait>) -> Error {
        let (ok, known) = (self.objects_ok, self.known.objects_known);
        let wait = range.filter(|_| self.stands()).or_else(|| self.board.oldest());
        let blame = wait.map(|wait| format!(", {}", wait.blame())).unwrap_or_default();
        let message =
            format!("the deadline has passed: {ok} of {known} objects are complete{blame}");
        Error::new(ErrorKind::Deadline, message).advise("run it again with a longer --deadline")
    }

    /// Downloads an object again, or reports its failure.
    fn decided(&mut self, decision: Decision, scheduler: &Scheduler) {
        match decision {
            Decision::Anew(transfer) => {
                let why = match transfer.restarted {
                    Some(Again::Checksum) => "its data did not match the stored checksum",
                    _ => "it changed during the download",
                };
                self.progress.note(format!("{} is downloaded again: {why}", transfer.name()));
                scheduler.restart(*transfer);
            }
            Decision::Failed(outcome) => {
                self.end_object(&outcome);
                self.note_outcome(outcome, None);
                scheduler.give_up();
            }
        }
    }

    /// Undecided objects have failed when the run ends.
    pub(in crate::command) fn give_up_undecided(&mut self) {
        for outcome in self.undecided.give_up().collect::<Vec<_>>() {
            self.note_outcome(outcome, None);
        }
    }

    /// True if no byte has come for long. One late connection among many does not count.
    fn stands(&self) -> bool {
        self.moved.elapsed() >= Duration::from_micros(WAIT_TOLD_AFTER_US)
    }

    fn draw(&mut self, engine: &Workers) {
        let names = || engine.scheduler.endpoints().names();
        self.paces.log("", || (engine.pacer.timeline(), names()));
        let state = engine.progress();
        self.course.note(CoursePoint::new(self.begun.elapsed(), state.bytes, state.retries));
        if state.bytes != self.known.bytes_done {
            self.moved = tokio::time::Instant::now();
        }
        self.board.set_range(engine.longest_wait().filter(|_| self.stands()));
        self.known.bytes_done = state.bytes;
        self.known.retries = state.retries;
        self.known.waiting = state.waiting;
        self.known.under_way = UnderWay {
            requests_in_flight: state.pace.in_flight,
            requests_wanted: state.pace.wanted,
            writes: state.file_work.0,
            file_jobs: state.file_work.1,
        };
        self.known.objects_done = self.objects_ok + self.failures.count();
        self.known.listing_complete = self.listed;
        crate::command::exporter::show(&self.known, self.failures.count());
        self.progress.update(&self.known);
    }

    /// Takes the outcomes since the last call.
    pub(in crate::command) fn collect(&mut self, scheduler: &Scheduler) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        scheduler.collect(&mut outcomes);
        let mut stop = scheduler.stop_reason();
        for mut outcome in outcomes.drain(..) {
            let again = outcome.transfer.again().filter(|_| outcome.result.is_err());
            match (again, &stop) {
                (Some(Again::Elsewhere), None) => {
                    self.leave_out(outcome, scheduler);
                    stop = scheduler.stop_reason();
                    continue;
                }
                (Some(_), None) => {
                    self.undecided.push(outcome);
                    continue;
                }
                // The first failure stands for all.
                (Some(Again::Elsewhere), Some(stop)) => outcome.result = Err(stop.clone()),
                _ => {}
            }
            self.end_object(&outcome);
            self.note_outcome(outcome, stop.as_ref());
        }
        self.outcomes = outcomes;
    }

    /// Counts and reports the result of an object. The cause of a run's end is reported once only.
    fn note_outcome(&mut self, outcome: Outcome, stop: Option<&Error>) {
        let channel = self.channel(&outcome.transfer);
        let place = self.target.one_of_several(&outcome.transfer);
        self.report_line(|| {
            let line = ObjectLine::new(&outcome).of_channel(channel.as_deref());
            line.at(place.as_deref()).to_json()
        });
        self.unfinished += u64::from(outcome.transfer.can_go_on());
        self.resumed_ended += u64::from(outcome.transfer.resumed_bytes() > 0);
        let whole = self.shares.as_mut().and_then(|shares| shares.count(&outcome));
        whole.iter().for_each(|line| self.progress.note(line));
        let Err(error) = outcome.result else {
            self.objects_ok += 1;
            log::complete(&outcome.transfer, &self.target);
            match outcome.transfer.verification.verdict() {
                Ok(_) => self.validated += 1,
                Err(_) if outcome.transfer.object.size_bytes == 0 => self.empty += 1,
                Err(reason) => *self.not_validated.entry(reason).or_default() += 1,
            }
            return;
        };
        let is_the_stop = stop == Some(&error);
        let prints = !is_the_stop && self.failures.is_reported_of(&outcome.transfer.name(), &error);
        let error = match &self.shares {
            Some(shares) => shares.label(&outcome.transfer, error),
            None => error,
        };
        self.failures.add(&error);
        if prints {
            self.progress.error(&error);
        } else {
            log::failed(&outcome.transfer, (!is_the_stop).then_some(&error), &self.target);
        }
        if is_the_stop {
            self.failures.fail_with_run();
        }
    }

    /// Prints the cause of the run's end, and returns its error; `None` for success.
    pub(in crate::command) fn failure(
        &mut self,
        stop: Option<Error>,
        bug: Option<&Error>,
    ) -> Option<Error> {
        self.progress.finish();
        let cause = stop.as_ref().filter(|_| bug.is_none()).map(|stop| match stop.kind() {
            ErrorKind::Interrupted => (stop.kind(), self.interrupted()),
            kind => (kind, stop.to_string()),
        });
        let words = self.failures.last_words(cause.filter(|_| !self.is_halted));
        words.into_iter().flatten().for_each(|words| self.progress.error(words));
        if let Some(bug) = bug {
            self.progress.error(bug);
            return Some(bug.clone());
        }
        if stop.is_some() {
            return stop;
        }
        if let Some(error) = &self.listing_error {
            self.progress.error(error);
            return Some(error.clone());
        }
        self.failures
            .error(self.objects_ok + self.existing.kept.0)
            .or_else(|| self.left_out.take())
            .or_else(|| self.report_error.clone())
    }

    /// Objects that a later run can resume, including those resumed here that were not begun.
    fn unfinished(&self) -> u64 {
        let resumed = self.existing.resumed.0.saturating_sub(self.resumed_ended);
        let ended = self.objects_ok + self.failures.count();
        self.unfinished + resumed.min(self.known.objects_known.saturating_sub(ended))
    }

    /// Objects that neither failed nor are complete; `None` if not all are known.
    fn untried(&self) -> Option<u64> {
        let ended = self.objects_ok + self.failures.count();
        self.listed_all.then(|| self.known.objects_known.saturating_sub(ended))
    }

    fn interrupted(&self) -> String {
        let whole = self.objects_ok + self.existing.kept.0;
        let whole = match self.known.listing_complete {
            true => {
                let all = self.known.objects_known + self.existing.kept.0;
                format!("{} of {}", Count(whole), counted(all.max(whole), "object", "objects"))
            }
            false => counted(whole, "object", "objects"),
        };
        match self.unfinished() {
            0 if self.target.in_words().is_none() => format!("interrupted: {whole} complete"),
            0 => format!("interrupted: {whole} complete; partial data was discarded"),
            unfinished => format!(
                "interrupted: {whole} complete, {} partly downloaded in temporary files; run it \
                 again to resume",
                Count(unfinished)
            ),
        }
    }

    fn earlier(&self) -> Earlier {
        Earlier {
            kept_objects: self.existing.kept.0,
            kept_bytes: self.existing.kept.1,
            kept_unmarked_objects: self.existing.unmarked,
            resumed_objects: self.existing.resumed.0,
            resumed_bytes: self.existing.resumed.1,
            anew_objects: self.existing.anew(),
            unfinished_objects: self.unfinished(),
            deleted_files: self.removed,
        }
    }

    pub(in crate::command) fn inputs(
        &self,
        workers: Vec<WorkerMetrics>,
        sink: Sink,
        pages: Pages,
        times: &Milestones,
        control_retries: RetryCounts,
        exit_code: u8,
    ) -> SummaryInputs {
        crate::command::exporter::show_end(&self.known, self.failures.count(), &control_retries);
        SummaryInputs {
            workers,
            sink,
            destination: self.target.in_words(),
            failed_objects: self.failures.count(),
            validated_objects: self.validated,
            not_validated_objects: self.not_validated.values().sum(),
            not_validated: self.not_validated.clone(),
            empty_objects: self.empty,
            resumed_files: self.resumed_files,
            earlier: self.earlier(),
            elapsed_us: micros(times.ended),
            resolve_us: micros(times.resolved),
            asked_us: micros(times.asked),
            list_us: self.listing_ended_us.saturating_sub(micros(times.resolved)),
            transfer_us: micros(times.ended - times.started),
            cpu_seconds: usage::process_cpu_seconds(),
            peak_rss_bytes: usage::peak_rss_bytes(),
            pages: Some(pages),
            pace: PaceReport::default(),
            endpoints: Vec::new(),
            interfaces: Vec::new(),
            destinations: Vec::new(),
            course: self.course.points().to_vec(),
            processors: usage::processors(),
            receive_buffer_bytes: usage::receive_buffer_bytes_max(),
            tcp_memory: tcp_memory::seen(),
            bandwidth_limit: None,
            part_size_bytes: self.config.part.bytes(),
            slot_length_bytes: u64::from(self.config.slot_length_bytes),
            memory_bytes: self.config.memory_bytes,
            memory_bounds: self.config.memory_bounds(),
            control_retries,
            clock_correction_seconds: 0,
            io_uring_unavailable: None,
            exit_code,
            untried_objects: self.untried(),
            missing_sources: (self.missing, self.sources),
        }
    }

    /// Ends the report of a run that ends before any data is transferred, if it has a line.
    pub(in crate::command) async fn ended_before(
        &mut self,
        error: Error,
        interrupts: &mut Interrupts,
    ) -> Error {
        if let Some(report) = self.report.take().filter(|report| !report.is_empty())
            && let Err(unreported) = finish(report, Some(error.kind()), interrupts).await
        {
            self.progress.error(unreported);
        }
        error
    }

    /// Prints the summary, and ends the report. `stopped`: the run was ended early.
    pub(in crate::command) async fn print_summary(
        &mut self,
        (summary, stats, explains): (&Summary, bool, bool),
        stopped: Option<ErrorKind>,
        interrupts: &mut Interrupts,
    ) -> Result<()> {
        let (mut lines, mut usual) = (summary.lines(stats), summary.lines(false));
        lines.extend(explains.then(|| summary.limit.sentence.clone()));
        let mut notes = self.existing.notes();
        if summary.is_all_present() {
            // The first line has it.
            notes.remove(0);
        }
        if let Some(repeated) = self.walk.repeated() {
            notes.push(repeated);
        }
        usual.extend(notes.iter().cloned());
        lines.splice(1..1, notes);
        match &self.label {
            // Part of a command whose own lines come at its end.
            Some(label) => {
                lines.iter().for_each(|line| self.progress.note(format!("{label}: {line}")));
            }
            None => print_lines(&self.progress, &lines, &usual),
        }
        let Some(report) = self.report.take() else { return Ok(()) };
        let finished = finish(report, stopped, interrupts).await;
        finished.inspect_err(|error| self.progress.error(error))
    }
}
