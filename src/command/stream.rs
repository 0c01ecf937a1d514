//! `inrush pipe` and `inrush cat`: a feeder per channel, and workers that serve all feeders.

pub(super) mod channel;
mod checksums;
pub(super) mod framing;
pub(super) mod lines;
pub(super) mod report;
mod standard_output;
pub(super) mod supply;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use tokio::task::spawn_local;

use self::channel::{ChannelPlan, Running, inflaters, lock_channels};
use self::report::{StreamReport, conclude};
use self::supply::{EpochOrder, Opening, WantedObjects, supply};
use super::context::Context;
use super::ending::{Done, exit_code};
use super::session::{self, Interrupts};
use super::{ready, ring};
use crate::cli::{
    AugmentedArgs, CatArgs, Channel, OnFailure, PipeArgs, RecordWrapper, StreamArgs, VerifyMode,
};
use crate::control::{Control, auth::credentials::CredentialSource, blocking::blocking};
use crate::download::cancel::{Cancel as _, until};
use crate::download::sources::{self, Narrowed};
use crate::engine::backlog::BacklogBounds;
use crate::engine::budget::StreamBudget;
use crate::engine::config::{
    Config, HostFacts, ResourceOptions, check_descriptors, descriptors_besides,
};
use crate::engine::pace::{Bandwidth, Bounds};
use crate::engine::stream::{fifos::Fifos, place::Place};
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host;
use crate::limits::{
    BACKLOG_BYTES_MIN, BACKLOG_BYTES_PER_WORKER, CONNECTIONS_MAX, CONNECTIONS_PER_WORKER_MAX,
    DESCRIPTORS_PER_RANGE, MEMORY_CGROUP_SHARE, PART_BYTES_DEFAULT, PART_BYTES_MAX, PART_BYTES_MIN,
    SLOT_BYTES_MAX, STREAM_BYTES_MAX, TLS_PIECE_BYTES, WORKERS_MAX,
};
use crate::link::attempt::RetryPolicy;
use crate::plan::{epoch::Shard, filter::Filter, ranges::PartSize};
use crate::report::document::{STDOUT_NAME, not_verified_lines};
use crate::report::progress::Progress;
use crate::sys::{choice::RingChoice, process};

/// Connections with which a single channel begins, and all together if there are more.
const CONNECTIONS_START: usize = 32;
/// Most connections of all channels by default: with 20 ms to the first byte, 40,000 small objects
/// per second in order. Each has a pipe, too, short for small objects.
const CONNECTIONS_ALL: usize = 1024;
/// Most connections of all channels over TLS, where each has buffers.
const CONNECTIONS_ALL_TLS: usize = 256;
/// Cores per worker without TLS.
const PLAIN_WORKERS_SHARE: usize = 2;
/// Fewest connections of a channel.
const CONNECTIONS_LEAST: usize = 4;
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

/// Starts channels, or none of them: then returns the name of the failed one, and the error.
pub(super) fn start_channels(
    plans: impl Iterator<Item = ChannelPlan>,
    (context, engine): (&Arc<Context>, &Workers),
    begun: Instant,
) -> Result<Vec<Running>, (String, Error)> {
    let (mut channels, events) = (Vec::new(), Arc::default());
    for plan in plans {
        let name = plan.name.clone();
        match Running::start(plan, &events, (context, engine), begun) {
            Ok(running) => channels.push(running),
            Err(error) => {
                abandon(&mut channels);
                return Err((name, error));
            }
        }
    }
    Ok(channels)
}

/// The parts that serve the channels.
struct Served {
    control: Rc<Control>,
    engine: Workers,
    channels: Vec<Running>,
}

/// The resources of the streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resources {
    /// Connections of each channel.
    pub(super) connections: Option<usize>,
    /// Most connections of each channel.
    pub(super) max_connections: Option<usize>,
    /// Memory for buffers of all workers together, in bytes.
    pub(super) memory_bytes: Option<u64>,
    pub(super) ring: RingChoice,
}

impl Resources {
    fn of(args: &StreamArgs) -> Result<Self> {
        Ok(Self {
            connections: args.connections,
            max_connections: args.max_connections,
            memory_bytes: args.memory,
            ring: ring::choice(args.ring)?,
        })
    }
}

/// The workers of streams, and each channel's resources.
pub(super) struct StreamEngine {
    pub(super) engine: Workers,
    /// Bounds of the ranges in flight of each channel.
    pub(super) connections: Bounds,
    /// The budget of bytes in flight of all channels.
    pub(super) budget: Arc<StreamBudget>,
    /// Each channel's memory for bytes ahead of their turn.
    pub(super) room: BacklogBounds,
}

/// Starts the workers of this many channels.
pub(super) fn start_engine(
    args: &Resources,
    part: PartSize,
    channels: usize,
    (context, control): (&Context, &Control),
    (tls, retries): (Option<Arc<ClientConfig>>, RetryPolicy),
    begun: Instant,
) -> Result<StreamEngine> {
    let facts = HostFacts::read();
    // Splicing takes a few per cent of a core for each GB/s: feeders, readers and the training job
    // need the others. Decryption uses all cores.
    let workers = facts.processors.min(WORKERS_MAX);
    let workers = if tls.is_some() { workers } else { workers.div_ceil(PLAIN_WORKERS_SHARE) };
    let usual = if tls.is_some() { CONNECTIONS_ALL_TLS } else { CONNECTIONS_ALL };
    let wanted = match (args.connections, args.max_connections) {
        (Some(each), _) => {
            let ranges = each * channels;
            check_descriptors(ranges, DESCRIPTORS_PER_RANGE, workers, facts.descriptors)?;
            each.saturating_mul(channels)
        }
        (None, Some(each)) => each.saturating_mul(channels),
        (None, None) => usual.max(channels * CONNECTIONS_LEAST),
    };
    let left = facts.descriptors.saturating_sub(descriptors_besides(workers));
    let affordable = left / DESCRIPTORS_PER_RANGE;
    let affordable = usize::try_from(affordable).unwrap_or(usize::MAX).max(1);
    let most = wanted.min(affordable).min(CONNECTIONS_MAX);
    let most = most.min(workers * CONNECTIONS_PER_WORKER_MAX);
    let config = Config::resolve(
        ResourceOptions {
            workers: Some(workers),
            max_connections: Some(most),
            memory_bytes: args.memory_bytes,
            ring: args.ring,
            ..ResourceOptions::default()
        },
        facts,
    )?;
    let config = if tls.is_some() { config.secured() } else { config };
    let memory_bytes = config.memory_bytes;
    let config = config.of_streams();
    let budget_bytes = budget_bytes(args.memory_bytes, config.memory_bytes, facts.memory_bytes);
    if config.connections() < channels {
        // A range that waits for its reader has a connection: another channel could wait for it
        // forever.
        let message =
            format!("{channels} channels, but at most {} connections", config.connections());
        return Err(Error::new(ErrorKind::Host, message)
            .advise("raise the limit of open files (ulimit -n) or of memory, or serve fewer"));
    }
    let connections = bounds(args, part, config.connections() / channels, channels);
    // The memory that a download would use for slots is for bytes ahead of their turn.
    let ahead_bytes = memory_bytes.saturating_sub(config.memory_bytes) / channels as u64;
    let usual_bytes = (config.workers as u64 * BACKLOG_BYTES_PER_WORKER).max(BACKLOG_BYTES_MIN);
    let room = BacklogBounds {
        buffer_bytes: TLS_PIECE_BYTES as usize,
        ahead_bytes: ahead_bytes.min(usual_bytes),
        range_bytes: part.bytes(),
    };
    super::log::config(&config);
    let engine = Workers::start(RunSetup {
        config,
        destination: Vec::new(),
        keeping: system_host::Persistence::default(),
        tls,
        keys: control.keys(),
        retries,
        bandwidth: None,
        interfaces: control.interfaces(),
        begun,
    })?;
    super::log::places(&engine.places_in_words());
    context.exported.watch_streams(&engine);
    Ok(StreamEngine {
        engine,
        connections,
        budget: Arc::new(StreamBudget::new(budget_bytes)),
        room,
    })
}

/// Most bytes of the streams in flight: the rest of `--memory` beside these buffers, or the
/// default, which is a share of the memory on a small machine.
fn budget_bytes(wished: Option<u64>, buffers_bytes: u64, machine_bytes: u64) -> u64 {
    let usual = STREAM_BYTES_MAX.min(machine_bytes / MEMORY_CGROUP_SHARE);
    let bytes = wished.map_or(usual, |wished| wished.saturating_sub(buffers_bytes));
    bytes.max(PART_BYTES_MIN)
}

/// Bounds of a channel's ranges in flight, if each may have this many connections.
fn bounds(args: &Resources, part: PartSize, most: usize, channels: usize) -> Bounds {
    let short = |count: usize| u32::try_from(count.max(1)).expect("below CONNECTIONS_MAX");
    // A range is handed on after all before it: an effect shows after a whole one.
    let piece_bytes = part.bytes();
    if args.connections.is_some() {
        return Bounds { piece_bytes, is_ordered: true, ..Bounds::fixed(short(most)) };
    }
    let most = short(most);
    let start = short(CONNECTIONS_START / channels).min(most);
    let least = short(CONNECTIONS_LEAST).min(start);
    Bounds { least, start, most, piece_bytes, is_ordered: true }
}

/// Writes to standard output.
pub(super) async fn cat(mut args: CatArgs, begun: Instant, context: &Arc<Context>) -> Result<Done> {
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

pub(super) fn part_size(given: Option<u64>, limit: Option<NonZeroU64>) -> Result<PartSize> {
    let bytes = session::part_size(given, limit).unwrap_or(PART_BYTES_DEFAULT);
    if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&bytes) {
        return Err(Error::new(ErrorKind::Usage, format!("--part-size {bytes} is out of bounds"))
            .advise(format!("give {PART_BYTES_MIN} to {PART_BYTES_MAX}")));
    }
    let whole = bytes.next_multiple_of(u64::from(SLOT_BYTES_MAX));
    Ok(PartSize::new(whole).expect("a multiple of the slot's length"))
}

fn stop_all(channels: &[Running]) {
    for channel in channels {
        channel.feed.stop(Error::new(ErrorKind::Interrupted, "stopped"));
    }
}

/// Stops all channels and waits until all their pipes are removed.
fn abandon(channels: &mut [Running]) {
    stop_all(channels);
    for channel in channels {
        // The cause was already printed.
        let _ = channel.join();
    }
}

/// Feeds all channels until each has ended, or a signal comes. The last failure is printed and
/// returned.
async fn serve(
    control: &Rc<Control>,
    engine: &Workers,
    channels: &mut [Running],
    order: EpochOrder,
    interrupts: &mut Interrupts,
    (progress, report): (&Progress, &mut StreamReport),
) -> Option<Error> {
    let mut supplies = Vec::new();
    for channel in channels.iter_mut() {
        let (control, feed) = (Rc::clone(control), Arc::clone(&channel.feed));
        let (wanted, opening) = (channel.wanted.clone(), channel.opening.take());
        supplies.push(spawn_local(async move {
            if let Err(error) = supply(&control, &wanted, &feed, order, opening).await {
                feed.stop(error);
            }
        }));
    }
    let refresh = spawn_local(session::refresh(Rc::clone(control)));
    let (deadline, mut interrupted, mut late) = (interrupts.deadline(), false, None);
    while let Some(channel) = channels.iter().find(|channel| !channel.has_ended()) {
        if engine.has_ended() {
            // Requests are not served any more.
            let lost = || Error::new(ErrorKind::Host, "all workers have ended");
            let reason = engine.scheduler.stop_reason().unwrap_or_else(lost);
            channels.iter().for_each(|channel| channel.feed.stop(reason.clone()));
        }
        control.board().set_range(engine.longest_wait());
        let events = Arc::clone(&channel.events);
        tokio::select! {
            () = interrupts.next() => {
                // A channel that has already failed at most holds its reader: its own exit code
                // counts.
                let mut running = channels.iter().filter(|channel| !channel.has_ended());
                interrupted |= running.any(|channel| !channel.feed.is_stopped());
                stop_all(channels);
            }
            () = until(deadline), if late.is_none() => {
                control.board().set_range(engine.longest_wait());
                late = Some(interrupts.context().blame());
                stop_all(channels);
            }
            () = report.wait(&events, engine, progress) => {}
        }
        report.take(channels, progress);
        channel::show(channels, engine.progress().bytes, progress);
        for (channel, supply) in channels.iter_mut().zip(&supplies) {
            if let Some(error) = channel.failure() {
                supply.abort();
                channel.print(error, progress);
            }
        }
    }
    progress.finish();
    control.board().set_range(None);
    refresh.abort();
    supplies.iter().for_each(tokio::task::JoinHandle::abort);
    let mut failed = None;
    for channel in channels.iter_mut() {
        let outcome = channel.join().and_then(|()| channel.failure().map_or(Ok(()), Err));
        if let Err(error) = outcome {
            channel.print(error.clone(), progress);
            failed = Some(error);
        }
    }
    report.take_rest(channels, progress);
    let ended_by = early_end(channels, (interrupted, late));
    ended_by.inspect(|error| progress.error(error)).or(failed)
}

/// The cause of an end before the streams were complete, if any.
fn early_end(channels: &[Running], (interrupted, late): (bool, Option<String>)) -> Option<Error> {
    let left = channel::left(channels);
    match (interrupted, late) {
        (true, _) => Some(Error::new(ErrorKind::Interrupted, format!("interrupted: {left}"))),
        (false, Some(blame)) => {
            let passed = format!("the deadline has passed: {left}{blame}");
            Some(Error::new(ErrorKind::Deadline, passed))
        }
        (false, None) => None,
    }
}
