//! `inrush train`: lays out the input of a training job like SageMaker, serves it, and runs the
//! job's command.

pub(super) mod child;
mod failure;
mod fifos;
mod files;
mod input;
mod layout;
mod lists;
mod machine;
mod mounts;
mod results;
mod streams;
mod survey;
mod written;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use self::child::{Child, Exit};
use self::failure::{Failure, INPUT_FAILED};
use super::context::Context;
use super::ending::Done;
use super::reporting::open;
use super::session::{self, Interrupts};
use super::{mount, ring};
use crate::cli::TrainArgs;
use crate::control::Control;
use crate::control::auth::credentials::CredentialSource;
use crate::control::blocking::blocking;
use crate::download::cancel::{Cancel as _, until};
use crate::download::folder_lock::{FolderLock, TRAIN};
use crate::engine::pace::Bandwidth;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::kept::KeptListing;
use crate::report::document::{AllFilesSummary, TrainPlan};
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::sys::process;
use crate::text::size::counted;
use crate::train::TrainingInput;
use files::{AllFound, Downloads};
use input::{Described, Sources};
use layout::JobFolders;
use mounts::Mounts;
use results::{Parts, conclude, end_report, print_plan, write_failure};
use streams::{SharedResources, Streams, StreamsEvent};
use survey::Survey;

/// Prepares the input, and runs the command.
pub(super) async fn run(
    args: TrainArgs,
    credentials: CredentialSource,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    let mut layout = JobFolders::new(args.base_dir.as_deref())?;
    let Described { input, rank, of_others } = match input::of(&args, &mut layout, context) {
        Ok(described) => described,
        Err(refused) => {
            return Ok(conclude(&args, Parts::default(), Some(refused.into()), begun, context));
        }
    };
    let mut progress = context.messages.progress(!args.output.messages.quiet);
    if let Some(rank) = rank.filter(|rank| rank.hosts.count > 1) {
        progress.note(rank);
    }
    if !of_others.is_empty() {
        let channels = of_others.join(", ");
        progress.note(format_args!("only hosts of other instance groups get: {channels}"));
    }
    let deadline = args.deadline.map(|after| begun + after);
    let mut interrupts = Interrupts::listen_until(deadline, context)?;
    let data = layout.data();
    context.leaves(move || {
        let data = data.display();
        format!("a system call has not returned; named pipes and mounts may be left in {data}")
    });
    // The failure must not be written to the other run's files.
    let lock = match interrupts.unless(lock(&args, &layout)).await {
        Ok(lock) => lock,
        Err(refused) => {
            return Ok(conclude(&args, Parts::default(), Some(refused.into()), begun, context));
        }
    };
    process::raise_descriptor_limit();
    let mut job = Job::new((&args, &input, &layout), begun, (context, &mut progress));
    let outcome = job.run(credentials, &mut interrupts).await;
    let mut results = job.end();
    let (plan, failure) = match outcome {
        Ok(plan) => (plan, None),
        Err(failure) => (None, Some(failure)),
    };
    if let Some(plan) = plan {
        return print_plan(&plan, &args);
    }
    let unreported = end_report(results.report.take(), failure.as_ref(), &mut interrupts).await;
    let failure = failure.or(unreported);
    if let Some(failure) = failure.as_ref().filter(|failure| failure.is_of_the_job() && !args.check)
    {
        // The command may have written its own failure since, caused by this one.
        write_failure(&layout, &failure.error, &progress).await;
    }
    blocking(move || drop(lock)).await;
    Ok(conclude(&args, results, failure, begun, context))
}

/// Keeps other runs out of the base folder; a check does not conflict.
async fn lock(args: &TrainArgs, layout: &JobFolders) -> Result<FolderLock> {
    if args.check {
        return Ok(FolderLock::default());
    }
    let base = layout.base().to_owned();
    let lock = blocking(move || FolderLock::take(&base, &TRAIN)).await?;
    if let Some(why) = lock.refused() {
        let base = layout.base().display();
        tracing::info!("{base} has no lock: {why}; start no second run with this --base-dir");
    }
    Ok(lock)
}

/// A running job.
struct Job<'a> {
    args: &'a TrainArgs,
    input: &'a TrainingInput,
    layout: &'a JobFolders,
    begun: Instant,
    context: &'a Arc<Context>,
    progress: &'a mut Progress,
    control: Option<Rc<Control>>,
    streams: Option<Streams>,
    mounts: Option<Mounts>,
    child: Option<(Child, tokio::time::Instant)>,
    exit: Option<(Exit, f64)>,
    files: AllFilesSummary,
    report: Option<ReportWriter>,
}

/// An event of a running job.
enum Happened {
    /// All channels in File mode are complete, or one has failed.
    Files(Result<(), Failure>),
    /// A channel in Pipe mode has failed, or all epochs have ended.
    Streams(StreamsEvent),
    /// A channel in FastFile mode has failed.
    Mounts(Error),
    /// The command has ended.
    Exit(Exit),
    /// A signal ends a run without a command.
    Signal,
    /// The deadline has passed.
    Late,
}

impl<'a> Job<'a> {
    fn new(
        (args, input, layout): (&'a TrainArgs, &'a TrainingInput, &'a JobFolders),
        begun: Instant,
        (context, progress): (&'a Arc<Context>, &'a mut Progress),
    ) -> Self {
        Self {
            args,
            input,
            layout,
            begun,
            context,
            progress,
            control: None,
            streams: None,
            mounts: None,
            child: None,
            exit: None,
            files: AllFilesSummary::default(),
            report: None,
        }
    }

    /// From the listings to the end of the command; a plan if only that was requested.
    async fn run(
        &mut self,
        credentials: CredentialSource,
        interrupts: &mut Interrupts,
    ) -> Result<Option<TrainPlan>, Failure> {
        let (args, input, layout) = (self.args, self.input, self.layout);
        // Before any data is transferred.
        child::look_up(&args.command, &input.environment)?;
        let (points, is_check) = (layout.folders(input), args.check);
        let prepared = async {
            if !is_check {
                blocking(move || points.iter().try_for_each(|point| mount::remove_dead(point)))
                    .await?;
            }
            ring::require(ring::choice(args.tuning.ring)?)?;
            let outputs = (self.context, &*self.progress);
            let control = session::control(&args.service, credentials, outputs).await?;
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

    /// Creates the files that the channels need, and starts serving.
    async fn serve(
        &mut self,
        sources: &Sources,
        (found, kept): (&mut AllFound, Vec<Option<KeptListing>>),
        interrupts: &mut Interrupts,
    ) -> Result<SharedResources> {
        let (args, input, layout) = (self.args, self.input, self.layout);
        let control = self.control.as_ref().expect("it is there before");
        let (place, wanted) = (layout.clone(), input.clone());
        interrupts.unless(blocking(move || place.make(&wanted))).await?;
        // It may be in one of these folders.
        let report = open(args.report.as_deref(), interrupts).await?;
        self.report.clone_from(&report);
        // Files, mounts and pipes share it.
        let bandwidth = Bandwidth::of(args.tuning.bandwidth_limit);
        let parts = (args, input, layout, sources);
        let prepared = async {
            lists::write(control, (input, layout), sources, found).await?;
            let tls = control.tls_for(input::buckets(sources)).await?;
            let context = Arc::clone(self.context);
            let shared = SharedResources { context, tls, bandwidth, report };
            let mounts = Mounts::prepare(parts, control, found, &shared, self.begun).await?;
            Ok((shared, mounts))
        };
        let (shared, mounts) = interrupts.unless(prepared).await?;
        self.mounts = mounts;
        if let Some(mounts) = &mut self.mounts {
            mounts.mount(self.context, self.progress).await?;
        }
        let streams = (shared.clone(), kept);
        let streams = Streams::start(parts, control, streams, self.begun, self.progress);
        self.streams = interrupts.unless(streams).await?;
        Ok(shared)
    }

    /// All problems before the job begins, as one failure. The lines of a failed plan are not
    /// printed.
    fn problem(&self, plan: &TrainPlan, mut problems: Vec<Error>) -> Option<Failure> {
        // A list with an invalid line is not an invalid command line.
        let code = (self.has_command() && !self.args.check).then_some(INPUT_FAILED);
        if problems.len() == 1 {
            return problems.pop().map(|error| Failure { error, is_reported: false, code });
        }
        let first = problems.first()?.clone();
        problems.iter().for_each(|problem| self.progress.error(problem));
        let channels = counted(plan.channels.len() as u64, "channel", "channels");
        let count = counted(problems.len() as u64, "problem", "problems");
        let message = format!("{count} of {channels}, the first: {first}");
        let error = Error::new(first.kind(), message).because(first.reason());
        Some(Failure { error, is_reported: false, code })
    }

    fn start_command(&mut self) -> Result<(), Failure> {
        let (args, variables) = (self.args, self.layout.variables(self.input));
        self.progress.hush();
        let mut child =
            Child::start(&args.command, &variables, args.grace, Arc::clone(self.context))?;
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
        let mut theirs = Interrupts::listen(self.context)?;
        let halt = theirs.halt();
        let mut results = AllFilesSummary::default();
        let outcome = {
            let downloaded = async {
                let ended = downloads.run(found, &mut theirs, &mut results).await;
                ended.map_err(|(error, is_reported)| Failure { error, is_reported, code: None })
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
                    () = until(deadline) => Happened::Late,
                };
                is_downloaded |= matches!(happened, Happened::Files(_));
                deadline = deadline.filter(|_| !matches!(happened, Happened::Late));
                is_last |= self.take(happened, is_downloaded, &mut failure).await;
                if is_last || failure.is_some() {
                    // If they are complete this has no effect.
                    halt.notify_one();
                }
            }
            failure.map_or(Ok(()), Err)
        };
        self.files = results;
        outcome
    }

    /// Handles an event; true if nothing else is to be awaited.
    async fn take(
        &mut self,
        happened: Happened,
        is_downloaded: bool,
        failure: &mut Option<Failure>,
    ) -> bool {
        // Further failures are then irrelevant.
        let is_ending = self.child.as_ref().is_some_and(|(child, _)| child.is_ending());
        let is_wanted = self.exit.is_none() && failure.is_none() && !is_ending;
        match happened {
            Happened::Files(Ok(())) => match (self.has_command(), is_wanted) {
                (true, true) if self.child.is_none() => {
                    *failure = self.start_command().err();
                    failure.is_some()
                }
                (true, _) => false,
                // Mounts exist until they are ended.
                (false, _) => self.mounts.is_none() && self.are_streams_over(),
            },
            Happened::Files(Err(error)) if is_wanted => self.fail(error, failure).await,
            Happened::Streams(StreamsEvent::Failed(error)) if is_wanted => {
                self.fail(Failure { error, is_reported: true, code: None }, failure).await
            }
            // The streams may have ended before the halted downloads.
            Happened::Files(Err(_)) => !self.has_command() && self.are_streams_over(),
            Happened::Mounts(error) if is_wanted => self.fail(error.into(), failure).await,
            Happened::Streams(StreamsEvent::Failed(_)) | Happened::Mounts(_) => false,
            Happened::Streams(StreamsEvent::Over) => {
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
            // A reader that is blocked after a failure is not waited for any longer.
            Happened::Late => self.child.is_none(),
            Happened::Signal => {
                let left = format!("interrupted: {}", self.left_in_words());
                let error = || Error::new(ErrorKind::Interrupted, left).into();
                failure.get_or_insert_with(error);
                true
            }
        }
    }

    /// Handles a passed deadline: as failed input, but a run without a command ends at once.
    async fn end_late(&mut self, is_downloaded: bool, failure: &mut Option<Failure>) -> bool {
        let left = match (&self.child, is_downloaded) {
            (Some(_), _) => "the command has not ended",
            (None, false) => "the channels in File mode are not complete",
            (None, true) => self.left_in_words(),
        };
        self.streams.iter().for_each(Streams::note_waits);
        let message = format!("the deadline has passed: {left}{}", self.context.blame());
        let error = Error::new(ErrorKind::Deadline, message);
        let error = error.advise("run it again with a longer --deadline");
        if self.child.is_some() {
            return self.fail(error.into(), failure).await;
        }
        // A reader of a pipe cannot be ended: it may look for the cause here when its stream ends.
        write_failure(self.layout, &error, self.progress).await;
        *failure = Some(error.into());
        true
    }

    /// The failure of the input before the command ended: a command that ends at once when its pipe
    /// is removed, or when a read fails, is faster than the next check.
    fn missed(&mut self) -> Option<Failure> {
        let error = self.streams.as_mut().and_then(|streams| streams.take_failure(self.progress));
        if let Some(error) = error {
            return Some(Failure { error, is_reported: true, code: None });
        }
        self.mounts.as_mut().and_then(Mounts::take_failure).map(Failure::from)
    }

    fn are_streams_over(&self) -> bool {
        self.streams.as_ref().is_none_or(Streams::are_over)
    }

    /// The parts of this run that others may use, and that end with it.
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

    /// Handles failed input: a running command is asked to end. The cause is written to the job's
    /// files before: whoever notices the end may look there. True if nothing else is to be awaited.
    async fn fail(&mut self, of: Failure, failure: &mut Option<Failure>) -> bool {
        let (error, has_command) = (of.error.clone(), self.has_command());
        if self.child.is_none() && (has_command || self.streams.is_none()) {
            *failure = Some(of);
            return true;
        }
        if !of.is_reported {
            self.progress.error(&error);
        }
        *failure = Some(Failure { is_reported: true, ..of });
        write_failure(self.layout, &error, self.progress).await;
        if let Some((child, _)) = &mut self.child {
            child.end();
            return false;
        }
        // Readers get no end of file, and the run waits until they have closed their pipes.
        self.streams.as_ref().is_none_or(|streams| {
            streams.fail(&error);
            streams.are_over()
        })
    }

    /// Ends the rest: the command first, then the mounts and the pipes that it reads.
    fn end(self) -> Parts {
        drop(self.child);
        let (mut mounts, progress) = (self.mounts, self.progress);
        let cache = mounts.as_mut().and_then(|mounts| mounts.end(progress));
        let pipes = self.streams.map(|streams| streams.end(progress)).unwrap_or_default();
        let retries = self.control.map(|control| control.retries()).unwrap_or_default();
        let Self { files, exit, report, .. } = self;
        Parts { files, pipes, mounts, cache, exit, retries, report }
    }
}

/// The next event of the streams; pending forever without streams.
async fn next(streams: &mut Option<Streams>, progress: &Progress) -> StreamsEvent {
    match streams {
        Some(streams) => streams.next(progress).await,
        None => std::future::pending().await,
    }
}

/// The failure of a mount; pending forever without mounts.
async fn lost(mounts: &mut Option<Mounts>, progress: &Progress) -> Error {
    match mounts {
        Some(mounts) => mounts.failure(progress).await,
        None => std::future::pending().await,
    }
}

/// The end of the command; pending forever without one.
async fn ended(child: &mut Option<(Child, tokio::time::Instant)>) -> Exit {
    match child {
        Some((child, _)) => child.ended().await,
        None => std::future::pending().await,
    }
}
