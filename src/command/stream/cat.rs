//! `inrush cat`: one channel, whose reader is standard output.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use super::channel::{ChannelPlan, Running, inflaters};
use super::report::{StreamReport, conclude};
use super::serve::serve;
use super::supply::{EpochOrder, WantedObjects};
use super::workers::{Resources, StreamEngine, part_size, start_engine};
use super::{ADVICE_ON_GZIP, standard_output};
use crate::cli::{CatArgs, VerifyMode};
use crate::command::context::Context;
use crate::command::ending::{Done, exit_code};
use crate::command::ring;
use crate::command::session::{self, Interrupts};
use crate::download::cancel::Cancel as _;
use crate::download::sources::{self, Narrowed};
use crate::engine::pace::Bandwidth;
use crate::error::Result;
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::report::document::{STDOUT_NAME, not_verified_lines};
use crate::sys::process;

/// Writes to standard output.
pub(in crate::command) async fn cat(
    mut args: CatArgs,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    let progress = context.messages.progress(!args.stream.messages.quiet);
    let deadline = args.stream.deadline.map(|after| begun + after);
    let mut interrupts = Interrupts::listen_until(deadline, context)?;
    let part = part_size(args.stream.part_size, args.stream.bandwidth_limit)?;
    let resources = Resources::of(&args.stream)?;
    ring::require(resources.ring)?;
    let filter = Filter::new(&args.selection.rules)?;
    let board = &context.board;
    interrupts.unless(sources::add(&mut args.sources, &args.selection, board)).await?;
    let credentials = session::credentials(&args.service);
    let credentials = session::credentials_for(&args.sources, &mut args.service, credentials);
    let control = session::control(&args.service, credentials, (context, &progress));
    let control = interrupts.unless(control).await?;
    let narrowed = Narrowed { filter, shard: Shard::WHOLE };
    let uris = &mut args.sources;
    let added = sources::add_manifest(&control, uris, &args.selection, narrowed, board);
    let Narrowed { filter, .. } = interrupts.unless(added).await?;
    let tls = interrupts.unless(control.tls_for(&args.sources)).await?;
    let mut report = StreamReport::open(args.stream.report.as_deref(), &mut interrupts).await?;
    let (place, pump) = standard_output::place()?;
    process::raise_descriptor_limit();
    let retries = session::retries(&args.service, args.stream.max_attempts);
    let StreamEngine { engine, connections, budget, room } =
        start_engine(&resources, part, 1, (context, &control), (tls, retries), begun)?;
    ring::report_fallback(engine.ring(), context, &progress);
    let epochs = NonZeroU64::new(1);
    let order = EpochOrder { epochs, shuffle_seed: None, shard: Shard::WHOLE };
    let plan = ChannelPlan {
        name: STDOUT_NAME.to_owned(),
        wanted: WantedObjects {
            sources: args.sources.clone(),
            manifest: None,
            wraps: None,
            allows_none: false,
            filter,
            range: args.range,
            verify: args.stream.verify,
        },
        opening: None,
        place,
        part,
        connections,
        budget,
        room,
        inflaters: inflaters(args.stream.gunzip, ADVICE_ON_GZIP)?,
        bandwidth: Bandwidth::of(args.stream.bandwidth_limit),
        epochs,
        holds: false,
        marks: false,
        logs: args.stream.report.is_some(),
    };
    let mut channels = vec![Running::start(plan, &Arc::default(), (context, &engine), begun)?];
    let outputs = (&progress, &mut report);
    let failed = serve(&control, &engine, &mut channels, order, &mut interrupts, outputs).await;
    let failed = report.finish(failed, &progress, &mut interrupts).await;
    let failed = standard_output::end(pump, failed, &progress);
    if args.stream.json || args.stream.stats || args.stream.explain {
        let used = (&*control, engine);
        return Ok(conclude(used, &channels, &args.stream, begun, failed.as_ref(), &progress));
    }
    if args.stream.verify != VerifyMode::Off {
        not_verified_lines(&channels[0].count.not_validated).for_each(|line| progress.note(line));
    }
    Ok(Done { code: exit_code(failed.as_ref()), document: None })
}
