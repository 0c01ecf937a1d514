//! `inrush train`: lays the input of a training job out as SageMaker does, serves it, and runs the
//! job's command.

mod files;
mod input;
mod layout;
mod lists;
mod machine;
mod mounts;
mod streams;
mod survey;
mod written;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Instant;

use super::aside::aside;
use super::child::{self, Child, Exit, NotStarted};
use super::ending::Done;
use super::folder_lock::{FolderLock, TRAIN};
use super::interrupts;
use super::mount;
use super::reporting::{finish, open, tell_lines};
use super::ring;
use super::session::{self, Interrupts};
use super::stream_report::summary_of;
use crate::cli::TrainArgs;
use crate::control::Control;
use crate::control::credentials::CredentialSource;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::kept::KeptListing;
use crate::report::document::{
    AllFilesTold, CacheCounts, CommandTold, TrainPlan, TrainSummary, summary_json,
};
use crate::report::out::{Lines, ReportWriter};
use crate::report::progress::Progress;
use crate::text::size::counted;
use crate::train::TrainingInput;
use files::{AllFound, Downloads};
use input::{Described, Sources};
use layout::Layout;
use mounts::Mounts;
use streams::{EndedStreams, Event, Shared, Streams};
use survey::Survey;

/// The exit code of a run with a command whose input failed, as env(1) and timeout(1) have it for
/// failures of their own.
const INPUT_FAILED: u8 = 125;

/// Why a run failed.
struct Failure {
    error: Error,
    /// It is on standard error.
    is_told: bool,
    /// The exit code that says so, where the kind of the error does not.
    code: Option<u8>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_told: false, code: None }
    }
}

impl From<NotStarted> for Failure {
    fn from(NotStarted { code, error }: NotStarted) -> Self {
        Self { error, is_told: false, code: Some(code) }
    }
}

impl Failure {
    /// What the process exits with.
    fn code(&self, has_command: bool) -> u8 {
        let own = self.error.kind().exit_code();
        let is_plain = matches!(self.error.kind(), ErrorKind::Usage | ErrorKind::Interrupted);
        self.code.unwrap_or(if has_command && !is_plain { INPUT_FAILED } else { own })
    }

    /// Whether the files of the job say so, too: a command line that is wrong begins no job.
    fn is_of_the_job(&self) -> bool {
        let is_plain = matches!(self.error.kind(), ErrorKind::Usage | ErrorKind::Interrupted);
        self.code.is_some() || !is_plain
    }
}

/// Prepares the input, and runs the command.
pub(super) async fn run(
    args: TrainArgs,
    credentials: CredentialSource,
    begun: Instant,
) -> Result<Done> {
    let layout = Layout::new(args.base_dir.as_deref())?;
    let Described { input, rank } = input::of(&args, &layout)?;
    layout.require(args.base_dir.is_some())?;
    let mut progress = Progress::new(!args.output.messages.quiet);
    if let Some(rank) = rank.filter(|rank| rank.hosts.count > 1) {
        progress.note(rank);
    }
    let deadline = args.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen_until(deadline)?;
    let data = layout.data();
    interrupts::leaves(move || {
        let data = data.display();
        format!("a system call has not returned; named pipes and mounts may be left in {data}")
    });
    let lock = match interrupts.unless(lock(&args, &layout)).await {
        Ok(lock) => lock,
        // Why it fails stays out of the other run's files.
        Err(refused) => return Ok(conclude(&args, Told::default(), Some(refused.into()), begun)),
    };
    session::raise_descriptor_limit();
    let mut job = Job::new((&args, &input, &layout), begun, &mut progress);
    let outcome = job.run(credentials, &mut interrupts).await;
    let mut told = job.end();
    let (plan, failure) = match outcome {
        Ok(plan) => (plan, None),
        Err(failure) => (None, Some(failure)),
    };
    if let Some(plan) = plan {
        return tell_plan(&plan, &args);
    }
    let unreported = end_report(told.report.take(), failure.as_ref(), &mut interrupts).await;
    let failure = failure.or(unreported);
    if let Some(failure) = failure.as_ref().filter(|failure| failure.is_of_the_job() && !args.check)
    {
        // The command may have said something else since, of what it saw.
        write_failure(&layout, &failure.error, &progress).await;
    }
    aside(move || drop(lock)).await;
    Ok(conclude(&args, told, failure, begun))
}

/// Keeps other runs out of the base folder; a check is in nobody's way.
async fn lock(args: &TrainArgs, layout: &Layout) -> Result<FolderLock> {
    if args.check {
        return Ok(FolderLock::default());
    }
    let base = layout.base().to_owned();
    let lock = aside(move || FolderLock::take(&base, &TRAIN)).await?;
    if let Some(why) = lock.refused() {
        let base = layout.base().display();
        tracing::info!("{base} has no lock: {why}; start no second run with this --base-dir");
    }
    Ok(lock)
}

/// Hands the rest of the report over to its file; why the run fails where that cannot be.
async fn end_report(
    report: Option<ReportWriter>,
    failure: Option<&Failure>,
    interrupts: &mut Interrupts,
) -> Option<Failure> {
    // A run that failed before its first object leaves an older report as it was.
    let report = report.filter(|report| failure.is_none() || !report.is_empty())?;
    let stopped = failure.map(|failure| failure.error.kind());
    let ended = finish(report, stopped, interrupts).await;
    ended.err().map(|error| Failure { error, is_told: false, code: None })
}

/// What the parts of a job came to.
#[derive(Default)]
struct Told {
    files: AllFilesTold,
    pipes: EndedStreams,
    mounts: Option<Mounts>,
    cache: Option<CacheCounts>,
    exit: Option<(Exit, f64)>,
    retries: crate::link::failure::RetryCounts,
    report: Option<ReportWriter>,
}

/// Tells people and programs how a job ended.
fn conclude(args: &TrainArgs, job: Told, failure: Option<Failure>, begun: Instant) -> Done {
    let progress = Progress::new(!args.output.messages.quiet);
    let has_command = !args.command.is_empty() && !args.check;
    if let Some(failure) = failure.as_ref().filter(|failure| !failure.is_told) {
        progress.error(&failure.error);
    }
    let of_command = job.exit.map_or(0, |(exit, _)| exit.code());
    if let (Some((Exit::Signal(signal), _)), None) = (&job.exit, &failure) {
        progress.note(format!("COMMAND was killed by signal {signal}"));
    }
    let code = failure.as_ref().map_or(of_command, |failure| failure.code(has_command));
    let command = job.exit.map(|(exit, seconds)| match exit {
        Exit::Code(code) => CommandTold { exit_code: Some(code), signal: None, seconds },
        Exit::Signal(signal) => CommandTold { exit_code: None, signal: Some(signal), seconds },
    });
    let EndedStreams { counts, engine } = job.pipes;
    let named = counts.iter().map(|(name, count)| (name.as_str(), count));
    let mut pipes = summary_of(named, begun, &job.retries, code);
    if let Some(engine) = engine {
        engine.explain(&mut pipes, counts.iter().map(|(_, count)| count));
    }
    if !args.check {
        tell_lines(&progress, &pipes.lines(args.stats), &pipes.lines(false));
        job.cache.iter().for_each(|cache| progress.note(cache.in_words()));
    }
    // Only now is the cache synced: what the job came to is told before.
    job.mounts.into_iter().for_each(|mut mounts| mounts.close(&progress));
    let summary = TrainSummary::new(job.files, pipes, job.cache, command, begun.elapsed(), code);
    let error = failure.as_ref().map(|failure| &failure.error);
    let document = args.output.json.then(|| summary_json(&summary, error));
    Done { code, document }
}

/// Prints what would be done.
fn tell_plan(plan: &TrainPlan, args: &TrainArgs) -> Result<Done> {
    let mut lines = Lines::stdout();
    if args.output.json {
        return Ok(Done { code: plan.exit_code, document: Some(summary_json(plan, None)) });
    }
    for line in plan.lines() {
        if lines.line(&line)? == ControlFlow::Break(()) {
            break;
        }
    }
    let _ = lines.flush()?;
    Ok(Done::default())
}

async fn write_failure(layout: &Layout, error: &Error, progress: &Progress) {
    let (layout, error) = (layout.clone(), error.clone());
    if let Err(unwritten) = aside(move || layout.tell_failure(&error)).await {
        progress.error(unwritten);
    }
}

/// A job on its way.
struct Job<'a> {
    args: &'a TrainArgs,
    input: &'a TrainingInput,
    layout: &'a Layout,
    begun: Instant,
    progress: &'a mut Progress,
    control: Option<Rc<Control>>,
    streams: Option<Streams>,
    mounts: Option<Mounts>,
    child: Option<(Child, tokio::time::Instant)>,
    exit: Option<(Exit, f64)>,
    files: AllFilesTold,
    report: Option<ReportWriter>,
}

/// What happens to a job that runs.
enum Happened {
    /// All channels in File mode are complete, or one has failed.
    Files(Result<(), Failure>),
    /// A channel in Pipe mode has failed, or all epochs are over.
    Streams(Event),
    /// A channel in FastFile mode has failed.
    Mounts(Error),
    /// The command has ended.
    Exit(Exit),
    /// The user ends what has no command.
    Signal,
    /// The deadline has passed.
    Late,
}

impl<'a> Job<'a> {
    fn new(
        (args, input, layout): (&'a TrainArgs, &'a TrainingInput, &'a Layout),
        begun: Instant,
        progress: &'a mut Progress,
    ) -> Self {
        Self {
            args,
            input,
            layout,
            begun,
            progress,
            control: None,
            streams: None,
            mounts: None,
            child: None,
            exit: None,
            files: AllFilesTold::default(),
            report: None,
        }
    }

    /// From the listings to the end of the command; a plan where only that was wanted.
    async fn run(
        &mut self,
        credentials: CredentialSource,
        interrupts: &mut Interrupts,
    ) -> Result<Option<TrainPlan>, Failure> {
        let (args, input, layout) = (self.args, self.input, self.layout);
        // Before any byte moves.
        child::look_up(&args.command, &input.environment)?;
        let (points, is_check) = (layout.folders(input), args.check);
        let prepared = async {
            if !is_check {
                aside(move || points.iter().try_for_each(|point| mount::remove_dead(point)))
                    .await?;
            }
            ring::require(ring::choice(args.tuning.ring)?)?;
            let control = session::control(&args.service, credentials, self.progress).await?;
            let sources = input::sources(&control, input, args.manifest_layout).await;
            let parts = (args, input, layout);
            let survey = survey::survey(&control, parts, &sources).await?;
            Ok((control, sources, survey))
        };
        let (control, sources, survey) = interrupts.unless(prepared).await?;
        let Survey { plan, files: mut found, streams: kept, problems } = survey;
        self.control = Some(Rc::clone(&control));
        if let Some(failure) = self.problem(&plan, problems) {
            return Err(failure);
        }
        if args.check {
            return Ok(Some(plan));
        }
        let shared = self.serve(&sources, (&mut found, kept), interrupts).await?;
        if args.start_early {
            self.start_command()?;
        }
        let downloads = Downloads {
            args,
            input,
            layout,
            sources: &sources,
            control,
            begun: self.begun,
            is_quiet: self.child.is_some(),
            shared,
        };
        self.drive(&downloads, found, interrupts).await.map(|()| None)
    }

    /// Makes what the channels need, and begins to serve those that are served.
    async fn serve(
        &mut self,
        sources: &Sources,
        (found, kept): (&mut AllFound, Vec<Option<KeptListing>>),
        interrupts: &mut Interrupts,
    ) -> Result<Shared> {
        let (args, input, layout) = (self.args, self.input, self.layout);
        let control = self.control.as_ref().expect("it is there before");
        let report = open(args.report.as_deref(), interrupts).await?;
        self.report.clone_from(&report);
        // Files, mounts and pipes share it.
        let bandwidth = session::bandwidth(args.tuning.bandwidth_limit);
        let (place, wanted) = (layout.clone(), input.clone());
        let parts = (args, input, layout, sources);
        let prepared = async {
            aside(move || place.make(&wanted)).await?;
            lists::write(control, (input, layout), sources, found).await?;
            let tls = session::tls(control, input::buckets(sources)).await?;
            let shared = Shared { tls, bandwidth, report };
            let mounts = Mounts::prepare(parts, control, found, &shared, self.begun).await?;
            Ok((shared, mounts))
        };
        let (shared, mounts) = interrupts.unless(prepared).await?;
        self.mounts = mounts;
        if let Some(mounts) = &mut self.mounts {
            mounts.mount(self.progress).await?;
        }
        let streams = (shared.clone(), kept);
        let streams = Streams::start(parts, control, streams, self.begun, self.progress);
        self.streams = interrupts.unless(streams).await?;
        Ok(shared)
    }

    /// Everything that is wrong before the job begins, as one failure. What is told of a plan that
    /// failed stays out.
    fn problem(&self, plan: &TrainPlan, mut problems: Vec<Error>) -> Option<Failure> {
        // A list with a wrong line is no wrong command line.
        let code = (self.has_command() && !self.args.check).then_some(INPUT_FAILED);
        if problems.len() == 1 {
            return problems.pop().map(|error| Failure { error, is_told: false, code });
        }
        let first = problems.first()?.clone();
        problems.iter().for_each(|problem| self.progress.error(problem));
        let channels = counted(plan.channels.len() as u64, "channel", "channels");
        let count = counted(problems.len() as u64, "problem", "problems");
        let message = format!("{count} of {channels}, the first: {first}");
        let error = Error::new(first.kind(), message).because(first.reason());
        Some(Failure { error, is_told: false, code })
    }

    fn start_command(&mut self) -> Result<(), Failure> {
        let (args, variables) = (self.args, self.layout.variables(self.input));
        self.progress.hush();
        let mut child = Child::start(&args.command, &variables, args.grace)?;
        if let Some(reads) = self.mounts.as_ref().map(Mounts::reads) {
            child.at_kill(move || reads.stop());
        }
        self.child = Some((child, tokio::time::Instant::now()));
        Ok(())
    }

    /// Downloads, serves, and waits for the command.
    async fn drive(
        &mut self,
        downloads: &Downloads<'_>,
        found: AllFound,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        let mut theirs = Interrupts::listen()?;
        let halt = theirs.halt();
        let mut told = AllFilesTold::default();
        let outcome = {
            let downloaded = async {
                let ended = downloads.run(found, &mut theirs, &mut told).await;
                ended.map_err(|(error, is_told)| Failure { error, is_told, code: None })
            };
            let mut downloaded = std::pin::pin!(downloaded);
            let (mut is_downloaded, mut is_last, mut failure) = (false, false, None);
            let mut deadline = interrupts.deadline();
            while !(is_last && is_downloaded && self.child.is_none()) {
                let is_free = self.child.is_none() && is_downloaded;
                let happened = tokio::select! {
                    done = &mut downloaded, if !is_downloaded => Happened::Files(done),
                    event = next(&mut self.streams, self.progress) => Happened::Streams(event),
                    error = lost(&mut self.mounts, self.progress) => Happened::Mounts(error),
                    exit = ended(&mut self.child) => Happened::Exit(exit),
                    () = interrupts.next(), if is_free => Happened::Signal,
                    () = interrupts::until(deadline) => Happened::Late,
                };
                is_downloaded |= matches!(happened, Happened::Files(_));
                deadline = deadline.filter(|_| !matches!(happened, Happened::Late));
                is_last |= self.take(happened, is_downloaded, &mut failure).await;
                if is_last || failure.is_some() {
                    // Where they are complete that is for nobody.
                    halt.notify_one();
                }
            }
            failure.map_or(Ok(()), Err)
        };
        self.files = told;
        outcome
    }

    /// Takes what happened; true when it is the last thing to wait for.
    async fn take(
        &mut self,
        happened: Happened,
        is_downloaded: bool,
        failure: &mut Option<Failure>,
    ) -> bool {
        // Nobody wants more of what fails then.
        let is_ending = self.child.as_ref().is_some_and(|(child, _)| child.is_ending());
        let is_wanted = self.exit.is_none() && failure.is_none() && !is_ending;
        match happened {
            Happened::Files(Ok(())) => match (self.has_command(), is_wanted) {
                (true, true) if self.child.is_none() => {
                    *failure = self.start_command().err();
                    failure.is_some()
                }
                (true, _) => false,
                // Mounts are there until somebody ends them.
                (false, _) => self.mounts.is_none() && self.are_streams_over(),
            },
            Happened::Files(Err(error)) if is_wanted => self.fail(error, failure).await,
            Happened::Streams(Event::Failed(error)) if is_wanted => {
                self.fail(Failure { error, is_told: true, code: None }, failure).await
            }
            // The streams may have ended before what was halted for them.
            Happened::Files(Err(_)) => !self.has_command() && self.are_streams_over(),
            Happened::Mounts(error) if is_wanted => self.fail(error.into(), failure).await,
            Happened::Streams(Event::Failed(_)) | Happened::Mounts(_) => false,
            Happened::Streams(Event::Over) => {
                !self.has_command() && is_downloaded && (self.mounts.is_none() || !is_wanted)
            }
            Happened::Exit(exit) => {
                let started = self.child.take().map(|(_, started)| started);
                let seconds = started.map_or(0.0, |started| started.elapsed().as_secs_f64());
                self.exit = Some((exit, seconds));
                if is_wanted && !is_downloaded {
                    let early = "COMMAND ended before its channels in File mode were complete";
                    self.progress.note(early);
                }
                if let Some(missed) = self.missed().filter(|_| is_wanted) {
                    return self.fail(missed, failure).await;
                }
                true
            }
            Happened::Late if is_wanted => self.end_late(is_downloaded, failure).await,
            // A reader that is held after a failure is not waited for any longer.
            Happened::Late => self.child.is_none(),
            Happened::Signal => {
                let left = format!("interrupted: {}", self.left_in_words());
                let error = || Error::new(ErrorKind::Interrupted, left).into();
                failure.get_or_insert_with(error);
                true
            }
        }
    }

    /// The deadline has passed: as a failure of the input, but what has no command ends at once.
    async fn end_late(&mut self, is_downloaded: bool, failure: &mut Option<Failure>) -> bool {
        let left = match (&self.child, is_downloaded) {
            (Some(_), _) => "the command has not ended",
            (None, false) => "the channels in File mode are not complete",
            (None, true) => self.left_in_words(),
        };
        self.streams.iter().for_each(Streams::note_waits);
        let message = format!("the deadline has passed: {left}{}", interrupts::blame());
        let error = Error::new(ErrorKind::Deadline, message);
        let error = error.advise("run it again with a longer --deadline");
        if self.child.is_some() {
            return self.fail(error.into(), failure).await;
        }
        // Somebody may read a pipe, and cannot be ended: whoever sees its end may look there.
        write_failure(self.layout, &error, self.progress).await;
        *failure = Some(error.into());
        true
    }

    /// Why the input has failed before the command ended: one that ends at once where its pipe is
    /// gone, or where a read fails, is faster than the next look.
    fn missed(&mut self) -> Option<Failure> {
        let error = self.streams.as_mut().and_then(|streams| streams.take_failure(self.progress));
        if let Some(error) = error {
            return Some(Failure { error, is_told: true, code: None });
        }
        self.mounts.as_mut().and_then(Mounts::take_failure).map(Failure::from)
    }

    fn are_streams_over(&self) -> bool {
        self.streams.as_ref().is_none_or(Streams::are_over)
    }

    /// What of this run is there for others, and goes with it.
    fn left_in_words(&self) -> &'static str {
        match (&self.mounts, &self.streams) {
            (None, _) => "all named pipes that this run made are removed",
            (Some(_), None) => "all mounts are removed",
            (Some(_), Some(_)) => "all mounts and named pipes that this run made are removed",
        }
    }

    fn has_command(&self) -> bool {
        !self.args.command.is_empty()
    }

    /// The input has failed: a command that runs is asked to end. Why stands in the job's files
    /// before: whoever sees its end may look there. True when there is nothing to wait for.
    async fn fail(&mut self, of: Failure, failure: &mut Option<Failure>) -> bool {
        let (error, has_command) = (of.error.clone(), self.has_command());
        if self.child.is_none() && (has_command || self.streams.is_none()) {
            *failure = Some(of);
            return true;
        }
        if !of.is_told {
            self.progress.error(&error);
        }
        *failure = Some(Failure { is_told: true, ..of });
        write_failure(self.layout, &error, self.progress).await;
        if let Some((child, _)) = &mut self.child {
            child.end();
            return false;
        }
        // Somebody may read: who does sees no end, and the run waits until nobody does.
        self.streams.as_ref().is_none_or(|streams| {
            streams.fail(&error);
            streams.are_over()
        })
    }

    /// Ends what still runs: the command first, then the mounts and the pipes that it reads.
    fn end(self) -> Told {
        drop(self.child);
        let (mut mounts, progress) = (self.mounts, self.progress);
        let cache = mounts.as_mut().and_then(|mounts| mounts.end(progress));
        let pipes = self.streams.map(|streams| streams.end(progress)).unwrap_or_default();
        let retries = self.control.map(|control| control.retries()).unwrap_or_default();
        let Self { files, exit, report, .. } = self;
        Told { files, pipes, mounts, cache, exit, retries, report }
    }
}

/// What happens to the streams next; nothing where there are none.
async fn next(streams: &mut Option<Streams>, progress: &Progress) -> Event {
    match streams {
        Some(streams) => streams.next(progress).await,
        None => std::future::pending().await,
    }
}

/// Why a mount fails; never where there is none.
async fn lost(mounts: &mut Option<Mounts>, progress: &Progress) -> Error {
    match mounts {
        Some(mounts) => mounts.failure(progress).await,
        None => std::future::pending().await,
    }
}

/// How the command ended; never where none runs.
async fn ended(child: &mut Option<(Child, tokio::time::Instant)>) -> Exit {
    match child {
        Some((child, _)) => child.ended().await,
        None => std::future::pending().await,
    }
}
