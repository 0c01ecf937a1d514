//! `inrush pipe` and `inrush cat`: a feeder per channel, and workers that serve all feeders.

mod cat;
pub(super) mod channel;
mod checksums;
pub(super) mod framing;
pub(super) mod lines;
pub(super) mod report;
pub(super) mod serve;
mod standard_output;
pub(super) mod supply;
pub(super) mod workers;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

pub(super) use self::cat::cat;
use self::channel::{ChannelPlan, Running, inflaters, lock_channels};
use self::report::{StreamReport, conclude};
use self::serve::{abandon, serve, start_channels};
use self::supply::{EpochOrder, Opening, WantedObjects};
use self::workers::{Resources, StreamEngine, part_size, start_engine};
use super::context::Context;
use super::ending::Done;
use super::session::{self, Interrupts};
use super::{ready, ring};
use crate::cli::{AugmentedArgs, Channel, OnFailure, PipeArgs, RecordWrapper};
use crate::control::{Control, auth::credentials::CredentialSource, blocking::blocking};
use crate::download::cancel::Cancel as _;
use crate::download::sources::{self, Narrowed};
use crate::engine::pace::Bandwidth;
use crate::engine::stream::{fifos::Fifos, place::Place};
use crate::engine::threads::Workers;
use crate::error::Result;
use crate::files::system_host;
use crate::plan::{epoch::Shard, filter::Filter};
use crate::report::progress::Progress;
use crate::sys::process;

/// Advice for objects that cannot be decompressed, and for objects too long for a record.
const ADVICE_ON_GZIP: &str = "exclude it, or store it again as gzip";
const ADVICE_ON_RECORDS: &str = "exclude it, store it as smaller objects, or omit --record-wrapper";

/// Serves channels.
pub(super) async fn pipe(
    mut args: PipeArgs,
    credentials: CredentialSource,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    let progress = context.messages.progress(!args.stream.messages.quiet);
    ring::require(ring::choice(args.stream.ring)?)?;
    let deadline = args.stream.deadline.map(|after| begun + after);
    let mut interrupts = Interrupts::listen_until(deadline, context)?;
    let folder = args.folder.clone();
    context.leaves(move || {
        format!("a system call has not returned; named pipes may be left in {}", folder.display())
    });
    if let [Channel { sources, .. }] = args.channels.as_mut_slice()
        && args.augmented.is_none()
    {
        interrupts.unless(sources::add(sources, &args.selection, &context.board)).await?;
    }
    interrupts.unless(ready::warn_of_unused(&args, &progress)).await?;
    // Dropped after all others, which have pipes, locks and a report in these folders.
    let _made = system_host::MadeFolders::default().with(&args.folder);
    let mut report = StreamReport::open(args.stream.report.as_deref(), &mut interrupts).await?;
    let started = start_pipes(&mut args, credentials, begun, (context, &progress));
    let Served { control, engine, mut channels } = interrupts.unless(started).await?;
    let names: Vec<String> = args
        .channels
        .iter()
        .map(|channel| args.folder.join(format!("{}_0", channel.name)).display().to_string())
        .collect();
    progress.note(format!("ready: {}", names.join(" ")));
    // Removed at the end of this run, for whatever reason.
    let _ready = match args.ready_file.clone() {
        Some(path) => {
            // Writing to a FIFO waits for its reader.
            let announced = blocking(move || ready::announce(&path, &names));
            let announced =
                interrupts.unless_reported("before the ready file was written", announced).await;
            Some(announced.inspect_err(|_| abandon(&mut channels))?)
        }
        None => None,
    };
    let (outputs, order) = ((&progress, &mut report), order_of(&args));
    let failed = serve(&control, &engine, &mut channels, order, &mut interrupts, outputs).await;
    let failed = report.finish(failed, &progress, &mut interrupts).await;
    Ok(conclude((&control, engine), &channels, &args.stream, begun, failed.as_ref(), &progress))
}

/// The order of the epochs.
fn order_of(args: &PipeArgs) -> EpochOrder {
    EpochOrder { epochs: args.epochs, shuffle_seed: args.shuffle_seed, shard: args.shard }
}

async fn start_pipes(
    args: &mut PipeArgs,
    credentials: CredentialSource,
    begun: Instant,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Served> {
    let part = part_size(args.stream.part_size, args.stream.bandwidth_limit)?;
    let filter = Filter::new(&args.selection.rules)?;
    let control = session::control(&args.service, credentials, (context, progress)).await?;
    let manifest = match &args.augmented {
        Some(AugmentedArgs { manifest, attributes }) => {
            Some(lines::read(&control, manifest, attributes).await?)
        }
        None => None,
    };
    let filter = narrow(args, filter, (context, &control)).await?;
    let sources = args.channels.iter().flat_map(|channel| &channel.sources);
    let sources = sources.chain(manifest.iter().flat_map(|manifest| manifest.buckets()));
    let tls = control.tls_for(sources).await?;
    let folder = Arc::new(system_host::open_destination(&args.folder)?);
    process::raise_descriptor_limit();
    let retries = session::retries(&args.service, args.stream.max_attempts);
    // All listings begin before the first pipe exists: a source that cannot be read is an error
    // before any reader waits.
    let mut openings = Vec::with_capacity(args.channels.len());
    for Channel { name, sources } in &args.channels {
        let wanted = WantedObjects {
            sources: sources.clone(),
            manifest: manifest.clone(),
            wraps: (args.record_wrapper == RecordWrapper::Recordio).then_some(ADVICE_ON_RECORDS),
            allows_none: false,
            filter: filter.clone(),
            range: None,
            verify: args.stream.verify,
        };
        let opening = Opening::of(&control, &wanted, order_of(args), 0).await;
        let opening = opening.map_err(|error| error.within(format!("channel {name}")))?;
        openings.push((wanted, opening));
    }
    let names = args.channels.iter().map(|channel| channel.name.as_str());
    let locks = lock_channels(names, (&args.folder, &folder), progress)?;
    let resources = Resources::of(&args.stream)?;
    let StreamEngine { engine, connections, budget, room } = start_engine(
        &resources,
        part,
        args.channels.len(),
        (context, &control),
        (tls, retries),
        begun,
    )?;
    ring::report_fallback(engine.ring(), context, progress);
    let inflaters = inflaters(args.stream.gunzip, ADVICE_ON_GZIP)?;
    let bandwidth = Bandwidth::of(args.stream.bandwidth_limit);
    let parts = args.channels.iter().zip(openings).zip(locks);
    let plans = parts.map(|((Channel { name, .. }, (wanted, opening)), lock)| ChannelPlan {
        name: name.clone(),
        wanted,
        opening: Some(opening),
        place: Place::Fifos(Fifos::new(Arc::clone(&folder), name.clone(), lock).taking_others()),
        part,
        connections,
        budget: Arc::clone(&budget),
        room,
        inflaters: inflaters.clone(),
        bandwidth: bandwidth.clone(),
        epochs: args.epochs,
        holds: args.on_failure == OnFailure::Hold,
        marks: args.epoch_markers,
        logs: args.stream.report.is_some(),
    });
    let channels = start_channels(plans, (context, &engine), begun).map_err(|(_, error)| error)?;
    Ok(Served { control, engine, channels })
}

/// Adds a manifest's objects to the only channel, if there is one; returns the filter that is left.
async fn narrow(
    args: &mut PipeArgs,
    filter: Filter,
    (context, control): (&Context, &Control),
) -> Result<Filter> {
    let [channel] = args.channels.as_mut_slice() else { return Ok(filter) };
    // A shuffle covers all objects.
    let is_late = args.shuffle_seed.is_some() && args.selection.manifest.is_some();
    let shard = if is_late { Shard::WHOLE } else { args.shard };
    let narrowed = Narrowed { filter, shard };
    let (uris, board) = (&mut channel.sources, &context.board);
    let narrowed = sources::add_manifest(control, uris, &args.selection, narrowed, board).await?;
    args.shard = if is_late { args.shard } else { narrowed.shard };
    Ok(narrowed.filter)
}

/// The parts that serve the channels.
struct Served {
    control: Rc<Control>,
    engine: Workers,
    channels: Vec<Running>,
}
