//! A job from its listings to its end: what it prepares, starts and ends, in which order.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::child::{self, Child, Exit};
use super::failure::{Failure, INPUT_FAILED};
use super::files::{AllFound, Downloads};
use super::input::{self, Sources};
use super::layout::JobFolders;
use super::lists;
use super::mounts::Mounts;
use super::results::Parts;
use super::streams::{SharedResources, Streams};
use super::survey::{self, Survey};
use crate::cli::TrainArgs;
use crate::command::context::Context;
use crate::command::reporting::open;
use crate::command::ring;
use crate::command::session::{self, Interrupts};
use crate::control::Control;
use crate::control::auth::credentials::CredentialSource;
use crate::control::blocking::blocking;
use crate::download::cancel::Cancel as _;
use crate::engine::pace::Bandwidth;
use crate::error::{Error, Result};
use crate::mount::serving::detach::remove_dead;
use crate::plan::kept::KeptListing;
use crate::report::document::{AllFilesSummary, TrainPlan};
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::text::size::counted;
use crate::train::TrainingInput;

/// A running job.
pub(super) struct Job<'a> {
    args: &'a TrainArgs,
    input: &'a TrainingInput,
    pub(super) layout: &'a JobFolders,
    begun: Instant,
    pub(super) context: &'a Arc<Context>,
    pub(super) progress: &'a mut Progress,
    control: Option<Rc<Control>>,
    pub(super) streams: Option<Streams>,
    pub(super) mounts: Option<Mounts>,
    pub(super) child: Option<(Child, tokio::time::Instant)>,
    pub(super) exit: Option<(Exit, f64)>,
    pub(super) files: AllFilesSummary,
    report: Option<ReportWriter>,
}

impl<'a> Job<'a> {
    /// A job of which nothing has begun.
    pub(super) fn new(
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
    pub(super) async fn run(
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
                blocking(move || points.iter().try_for_each(|point| remove_dead(point))).await?;
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

    pub(super) fn has_command(&self) -> bool {
        !self.args.command.is_empty()
    }

    /// Starts the command, whose standard error this run then leaves alone.
    pub(super) fn start_command(&mut self) -> Result<(), Failure> {
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

    /// Ends the rest: the command first, then the mounts and the pipes that it reads.
    pub(super) fn end(self) -> Parts {
        drop(self.child);
        let (mut mounts, progress) = (self.mounts, self.progress);
        let cache = mounts.as_mut().and_then(|mounts| mounts.end(progress));
        let pipes = self.streams.map(|streams| streams.end(progress)).unwrap_or_default();
        let retries = self.control.map(|control| control.retries()).unwrap_or_default();
        let Self { files, exit, report, .. } = self;
        Parts { files, pipes, mounts, cache, exit, retries, report }
    }
}
