//! `inrush train`: lays out the input of a training job like SageMaker, serves it, and runs the
//! job's command.

pub(super) mod child;
mod course;
mod failure;
mod fifos;
mod files;
mod input;
mod job;
mod layout;
mod lists;
mod machine;
mod mounts;
mod results;
mod streams;
mod survey;
mod written;

use std::sync::Arc;
use std::time::Instant;

use super::context::Context;
use super::ending::Done;
use super::session::Interrupts;
use crate::cli::TrainArgs;
use crate::control::auth::credentials::CredentialSource;
use crate::control::blocking::blocking;
use crate::download::cancel::Cancel as _;
use crate::download::folder_lock::{FolderLock, TRAIN};
use crate::error::Result;
use crate::sys::process;
use input::Described;
use job::Job;
use layout::JobFolders;
use results::{Parts, conclude, end_report, print_plan, write_failure};

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
