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

use super::cancel::{Cancel, until};
use super::checksums::Checksums;
use super::existing::ExistingFiles;
use super::failures::Failures;
use super::observer::{Observer, RunEvent, Subject};
use super::refetch::{Decision, Undecided};
use super::{mirror::Mirror, space::Space, spread::Spread, target::Target};
use crate::control::list::entries::Entries;
use crate::download::own_files::TakenPaths;
use crate::engine::config::Config;
use crate::engine::metrics::WorkerMetrics;
use crate::engine::schedule::Scheduler;
use crate::engine::threads::Workers;
use crate::error::{Error, ErrorKind};
use crate::files::file_download::{Again, FileDownload, Outcome};
use crate::limits::WAIT_REPORTED_AFTER_US;
use crate::link::failure::RetryCounts;
use crate::link::waiting::{Board, Wait};
use crate::report::document::{Course, CoursePoint, Earlier, PaceReport, SummaryInputs};
use crate::report::line::{ProgressState, UnderWay};
use crate::sys::pool::Pages;
use crate::sys::{tcp_memory, usage};
use crate::text::size::{Count, counted};
use intake::micros;
pub(crate) use intake::{first_file, settle};
pub(crate) use shares::Shares;

/// Interval at which outcomes are collected and progress is updated.
const TICK: Duration = Duration::from_millis(20);

/// Ticks between two redraws of progress.
const TICKS_PER_DRAW: u64 = 5;

/// Times of a run since the process began.
pub(crate) struct Milestones {
    pub(crate) resolved: Duration,
    /// The part of it for requests about the sources.
    pub(crate) asked: Duration,
    pub(crate) started: Duration,
}

/// The state of a run at its end, and lines for people.
#[derive(Debug)]
pub(crate) struct Remarks {
    pub(crate) known: ProgressState,
    /// About files that existed; the first one counts those that were skipped, if there are any.
    pub(crate) existing: Vec<String>,
    /// About objects that several sources name.
    pub(crate) repeated: Option<String>,
}

/// Why a run failed.
#[derive(Debug, Clone)]
pub(crate) enum RunFailure {
    /// A worker panicked, or the work after the last object failed.
    Run(Error),
    /// The run ended before its objects were complete; with the state that it leaves, in words.
    Stopped(Error, String),
    /// The listing failed: not all objects are known.
    Listing(Error),
    /// Objects failed, or a destination was left out; each was an event.
    Reported(Error),
}

impl RunFailure {
    /// The error.
    pub(crate) const fn error(&self) -> &Error {
        match self {
            Self::Run(error)
            | Self::Stopped(error, _)
            | Self::Listing(error)
            | Self::Reported(error) => error,
        }
    }
}

/// The run.
pub(crate) struct Run<'a> {
    pub(super) observer: &'a mut dyn Observer,
    walk: Entries,
    checksums: Checksums,
    pub(crate) target: Target,
    existing: ExistingFiles,
    pub(crate) config: Config,
    board: Arc<Board>,
    /// Time at which bytes were last seen to come.
    moved: tokio::time::Instant,
    begun: Instant,
    /// Objects that wait for space in the scheduler.
    pending: VecDeque<FileDownload>,
    listed: bool,
    /// The listing was read to its end without an error.
    listed_all: bool,
    listing_ended_us: u64,
    listing_error: Option<Error>,
    /// Objects that certainly cannot fit at the destination are refused.
    pub(crate) checks_space: bool,
    space: Space,
    /// Chooses among several destinations.
    spread: Option<Spread>,
    /// Why the first of them was left out: the error of the run if nothing is worse.
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
    pub(crate) deadline: Option<Duration>,
    /// The source's paths, if all others are to be removed.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// Paths below the destination that objects may not have.
    pub(crate) taken: TakenPaths,
    /// Objects that wait for the end of the listing: then their obstacles may be removed.
    blocked: Vec<(FileDownload, Error)>,
    /// Removed obstacles; none before the removal begins.
    removals: Option<Receiver<String>>,
    /// Number of sources given, of missing ones, and of those among them that do not exist.
    pub(crate) sources: u64,
    missing: u64,
    absent: u64,
    removed: u64,
    /// Its results per channel, if it fills several.
    pub(crate) shares: Option<Shares>,
    /// The largest object to come, in bytes, if known before the first page.
    pub(crate) largest_bytes: u64,
    course: Course,
}

impl<'a> Run<'a> {
    /// A run of these entries.
    pub(crate) fn new(
        walk: Entries,
        target: Target,
        existing: ExistingFiles,
        (checksums, undecided): (Checksums, Undecided),
        config: Config,
        (observer, board): (&'a mut dyn Observer, Arc<Board>),
        begun: Instant,
    ) -> Self {
        Self {
            observer,
            walk,
            checksums,
            target,
            existing,
            config,
            board,
            moved: tokio::time::Instant::now(),
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
            absent: 0,
            removed: 0,
            shares: None,
            largest_bytes: 0,
            course: Course::default(),
        }
    }

    /// Feeds the workers and watches them to their end.
    pub(crate) async fn drive(&mut self, engine: &Workers, cancel: &mut impl Cancel) {
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
            let behind = self.observer.is_behind();
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
                () = self.observer.keep_up(), if behind => {}
                () = engine.worker_ended() => {}
                () = until(deadline) => {
                    deadline = None;
                    self.end(engine, self.deadline_error(engine.longest_wait()));
                }
                () = cancel.cancelled() => {
                    self.end(engine, Error::new(ErrorKind::Interrupted, "interrupted"));
                }
            }
        }
        self.report_removals().await;
        self.board.set_range(None);
    }

    /// Time since the run began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
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
            Decision::Anew(download) => {
                let why = match download.restarted {
                    Some(Again::Checksum) => "its data did not match the stored checksum",
                    _ => "it changed during the download",
                };
                self.observer.event(RunEvent::Retried(&download, &self.target, why));
                scheduler.restart(*download);
            }
            Decision::Failed(outcome) => {
                self.end_object(&outcome);
                self.note_outcome(outcome, None);
                scheduler.give_up();
            }
        }
    }

    /// Undecided objects have failed when the run ends.
    pub(crate) fn give_up_undecided(&mut self) {
        for outcome in self.undecided.give_up().collect::<Vec<_>>() {
            self.note_outcome(outcome, None);
        }
    }

    /// True if no byte has come for long. One late connection among many does not count.
    fn stands(&self) -> bool {
        self.moved.elapsed() >= Duration::from_micros(WAIT_REPORTED_AFTER_US)
    }

    fn draw(&mut self, engine: &Workers) {
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
        self.observer.event(RunEvent::Progress(&self.known, self.failures.count(), engine));
    }

    /// Takes the outcomes since the last call.
    pub(crate) fn collect(&mut self, scheduler: &Scheduler) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        scheduler.collect(&mut outcomes);
        let mut stop = scheduler.stop_reason();
        for mut outcome in outcomes.drain(..) {
            let again = outcome.download.again().filter(|_| outcome.result.is_err());
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
        let download = &*outcome.download;
        self.unfinished += u64::from(download.can_go_on());
        self.resumed_ended += u64::from(download.resumed_bytes() > 0);
        let complete = self.shares.as_mut().and_then(|shares| shares.count(&outcome));
        complete.into_iter().for_each(|line| self.observer.event(RunEvent::Note(line)));
        let channel = self.shares.as_ref().and_then(|shares| shares.name(download));
        let subject = Subject { download, target: &self.target, channel };
        let Err(error) = &outcome.result else {
            self.objects_ok += 1;
            match download.verification.verdict() {
                Ok(_) => self.validated += 1,
                Err(_) if download.object.listed.size_bytes == 0 => self.empty += 1,
                Err(reason) => *self.not_validated.entry(reason).or_default() += 1,
            }
            return self.observer.event(RunEvent::Done(subject, &outcome));
        };
        let with_run = stop == Some(error);
        let error = match &self.shares {
            Some(shares) => shares.label(download, error.clone()),
            None => error.clone(),
        };
        self.failures.add(&error);
        let (outcome, error) = (&outcome, &error);
        self.observer.event(RunEvent::Failed { subject, outcome, error, with_run });
    }

    /// Why the run failed; `None` for success. `stop`: it was ended early; `bug`: a worker, or the
    /// work after the last object, failed.
    pub(crate) fn failure(
        &mut self,
        stop: Option<Error>,
        bug: Option<&Error>,
    ) -> Option<RunFailure> {
        if let Some(bug) = bug {
            return Some(RunFailure::Run(bug.clone()));
        }
        if let Some(stop) = stop {
            let words = match stop.kind() {
                ErrorKind::Interrupted => self.interrupted(),
                _ => stop.to_string(),
            };
            return Some(RunFailure::Stopped(stop, words));
        }
        if let Some(error) = self.listing_error.take() {
            return Some(RunFailure::Listing(error));
        }
        let passed = self.objects_ok + self.existing.kept.0;
        let error = self.failures.error(passed).or_else(|| self.left_out.take());
        error.map(RunFailure::Reported)
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

    pub(crate) fn inputs(
        &self,
        workers: Vec<WorkerMetrics>,
        pages: Pages,
        (times, ended): (&Milestones, Duration),
        control_retries: RetryCounts,
    ) -> SummaryInputs {
        SummaryInputs {
            workers,
            sink: self.target.sink(),
            destination: self.target.in_words(),
            failed_objects: self.failures.count(),
            validated_objects: self.validated,
            not_validated_objects: self.not_validated.values().sum(),
            not_validated: self.not_validated.clone(),
            empty_objects: self.empty,
            resumed_files: self.resumed_files,
            earlier: self.earlier(),
            elapsed_us: micros(ended),
            resolve_us: micros(times.resolved),
            asked_us: micros(times.asked),
            list_us: self.listing_ended_us.saturating_sub(micros(times.resolved)),
            transfer_us: micros(ended - times.started),
            cpu_seconds: usage::process_cpu_seconds(),
            peak_rss_bytes: usage::peak_rss_bytes(),
            pages: Some(pages),
            pace: PaceReport::default(),
            endpoints: Vec::new(),
            interfaces: Vec::new(),
            destinations: self.destination_lines(),
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
            exit_code: 0,
            untried_objects: self.untried(),
            missing_sources: (self.missing, self.sources),
            absent_sources: self.absent,
        }
    }

    /// The state at the end, and the lines about it for people.
    pub(crate) fn remarks(&mut self) -> Remarks {
        Remarks {
            known: self.known,
            existing: self.existing.notes(),
            repeated: self.walk.repeated(),
        }
    }
}
