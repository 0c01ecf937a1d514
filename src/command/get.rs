//! `inrush get`, `sync` and `load`: resolves the sources, downloads and reports; or lists the
//! downloads.

mod plan;

use std::sync::Arc;
use std::time::Instant;

use self::plan::plan_only;
use super::context::Context;
use super::model;
use super::output::Output;
use super::own_files::written_by;
use super::ring;
use super::session::{self, Interrupts};
use crate::cli::{GetArgs, GetVerb, TuningArgs};
use crate::control::auth::credentials::CredentialSource;
use crate::download::cancel::Cancel as _;
use crate::download::job::{DownloadJob, Rules, WantedFiles};
use crate::download::own_files::own_files;
use crate::download::run::Shares;
use crate::download::sources::{self, Narrowed, require_names_apart, require_whole};
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::error::{Error, Result};
use crate::plan::filter::Filter;
use crate::report::document::Summary;
use crate::sys::process;

/// The result of a `get`.
#[derive(Default)]
pub(super) struct Ended {
    /// The exit code.
    pub(super) code: u8,
    /// The summary; `None` if there was nothing to download (`--dry-run`).
    pub(super) summary: Option<Summary>,
    /// The document for programs, if requested.
    pub(super) document: Option<String>,
    /// Why it failed; already printed.
    pub(super) error: Option<Error>,
    /// The results per channel.
    pub(super) shares: Option<Shares>,
}

/// Downloads with these credentials, and reports the result.
pub(super) async fn run(
    mut args: GetArgs,
    credentials: CredentialSource,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Ended> {
    let progress = context.messages.progress(!args.output.messages.quiet);
    process::raise_descriptor_limit();
    let config = configure(&args)?;
    let filter = Filter::new(&args.selection.rules)?;
    let deadline = args.failures.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen_until(deadline, context)?;
    let mut output = Output::new(context, progress, None, None);
    let found = find(&mut args, credentials, filter, (&mut output, begun));
    let job = interrupts.unless(found).await?;
    fetch(job, &args, config, output, &mut interrupts, begun).await
}

/// Downloads the resolved sources, and reports the result.
pub(super) async fn fetch(
    job: DownloadJob,
    args: &GetArgs,
    config: Config,
    mut output: Output,
    interrupts: &mut Interrupts,
    begun: Instant,
) -> Result<Ended> {
    let control = job.resolved.control.clone();
    let ready = job.ready(config, begun, interrupts).await?;
    if args.dry_run {
        return interrupts.unless(plan_only(ready, args, &interrupts.context())).await;
    }
    // Not earlier: a run that fails early leaves the report of an earlier one.
    if let Some(report) = &args.report {
        ready.resolved.target.make_folder_of(report).await;
    }
    output.open_report(args.report.as_deref(), interrupts).await?;
    let fetched = tokio::select! {
        biased;
        fetched = ready.fetch(&mut output, interrupts) => fetched,
        () = session::refresh(control) => unreachable!("refresh has no end"),
    };
    let mut fetched = match fetched {
        Ok(fetched) => fetched,
        Err(error) => return Err(output.ended_before(error, interrupts).await),
    };
    let shares = fetched.shares.take();
    let (summary, error) = output.end(fetched, (args.stats, args.explain), interrupts).await;
    let document = args.output.json.then(|| summary.to_json(error.as_ref()));
    Ok(Ended { code: summary.exit_code, summary: Some(summary), document, error, shares })
}

/// How these options want objects to be downloaded.
pub(super) fn rules(args: &GetArgs) -> Rules {
    Rules {
        keep: args.keep,
        verify: args.verify,
        on_change: args.failures.on_change,
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth_limit: args.tuning.bandwidth_limit,
        deadline: args.failures.deadline,
        dry_run: args.dry_run,
        written: written_by(args),
    }
}

/// The resources of a run on this machine.
fn configure(args: &GetArgs) -> Result<Config> {
    let resources = options(&args.tuning)?;
    if !args.dry_run {
        ring::require(resources.ring)?;
    }
    Config::resolve(resources, HostFacts::read())
}

/// Resolves the sources.
async fn find(
    args: &mut GetArgs,
    credentials: CredentialSource,
    filter: Filter,
    (output, begun): (&mut Output, Instant),
) -> Result<DownloadJob> {
    let deletes = args.verb == GetVerb::Sync { delete: true };
    if deletes {
        require_whole(&args.selection)?;
    }
    let context = Arc::clone(output.context());
    sources::add(&mut args.sources, &args.selection, &context.board).await?;
    require_names_apart(&args.sources)?;
    let credentials = session::credentials_for(&args.sources, &mut args.service, credentials);
    let settings = match deletes {
        true => Some(session::settings(&args.service, (&context, output.progress())).await),
        false => None,
    };
    let outputs = (&context, output.progress());
    let control =
        session::control_with(&args.service, credentials, outputs, settings.clone()).await?;
    let filter = match args.verb {
        GetVerb::Load => model::narrow(&control, &args.sources, filter, output.progress()).await?,
        GetVerb::Get | GetVerb::Sync { .. } => filter,
    };
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let settings = settings.as_ref().and_then(|settings| settings.as_deref().ok());
    let (is_list, is_spread) = (args.selection.has_more(), !args.spread_to.is_empty());
    let rules = rules(args);
    let mirrored_except = deletes.then(|| {
        let named = [&args.service.ca_bundle, &args.service.sse_c_key_file];
        let named = named.into_iter().flatten().cloned();
        own_files(&args.selection, named, &rules.written, settings)
    });
    let wanted = WantedFiles {
        uris: args.sources.clone(),
        filter: narrowed.filter,
        shard: narrowed.shard,
        destination: args.destination.clone(),
        spread_to: args.spread_to.clone(),
        are_many: args.verb != GetVerb::Get || is_list || args.sources.len() > 1 || is_spread,
        mirrored_except,
    };
    DownloadJob::find(control, wanted, rules, output, begun).await
}

/// The resources that the options request.
///
/// # Errors
/// [`crate::error::ErrorKind::Usage`] if the environment names an unknown ring.
pub(super) fn options(tuning: &TuningArgs) -> Result<ResourceOptions> {
    Ok(ResourceOptions {
        workers: tuning.workers,
        connections: tuning.connections,
        max_connections: tuning.max_connections,
        part_size_bytes: session::part_size(tuning.part_size, tuning.bandwidth_limit),
        memory_bytes: tuning.memory,
        ring: ring::choice(tuning.ring)?,
    })
}
