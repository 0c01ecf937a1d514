//! The workers of streams: their number, and the connections and memory of each channel.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;

use crate::cli::StreamArgs;
use crate::command::context::Context;
use crate::command::{log, ring, session};
use crate::control::Control;
use crate::engine::backlog::BacklogBounds;
use crate::engine::budget::StreamBudget;
use crate::engine::config::{
    Config, HostFacts, ResourceOptions, check_descriptors, descriptors_besides,
};
use crate::engine::pace::Bounds;
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::Persistence;
use crate::limits::{
    BACKLOG_BYTES_MIN, BACKLOG_BYTES_PER_WORKER, CONNECTIONS_MAX, CONNECTIONS_PER_WORKER_MAX,
    DESCRIPTORS_PER_RANGE, MEMORY_CGROUP_SHARE, PART_BYTES_DEFAULT, PART_BYTES_MAX, PART_BYTES_MIN,
    SLOT_BYTES_MAX, STREAM_BYTES_MAX, TLS_PIECE_BYTES, WORKERS_MAX,
};
use crate::link::attempt::RetryPolicy;
use crate::plan::ranges::PartSize;
use crate::sys::choice::RingChoice;

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

/// The resources of the streams.
#[derive(Debug, Clone, Copy)]
pub(in crate::command) struct Resources {
    /// Connections of each channel.
    pub(in crate::command) connections: Option<usize>,
    /// Most connections of each channel.
    pub(in crate::command) max_connections: Option<usize>,
    /// Memory for buffers of all workers together, in bytes.
    pub(in crate::command) memory_bytes: Option<u64>,
    pub(in crate::command) ring: RingChoice,
}

impl Resources {
    /// Those that these options request.
    pub(super) fn of(args: &StreamArgs) -> Result<Self> {
        Ok(Self {
            connections: args.connections,
            max_connections: args.max_connections,
            memory_bytes: args.memory,
            ring: ring::choice(args.ring)?,
        })
    }
}

/// The workers of streams, and each channel's resources.
pub(in crate::command) struct StreamEngine {
    pub(in crate::command) engine: Workers,
    /// Bounds of the ranges in flight of each channel.
    pub(in crate::command) connections: Bounds,
    /// The budget of bytes in flight of all channels.
    pub(in crate::command) budget: Arc<StreamBudget>,
    /// Each channel's memory for bytes ahead of their turn.
    pub(in crate::command) room: BacklogBounds,
}

/// Starts the workers of this many channels.
pub(in crate::command) fn start_engine(
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
    // The memory that a download would use for slots is for bytes ahead of their turn.
    let ahead_bytes = memory_bytes.saturating_sub(config.memory_bytes) / channels as u64;
    let usual_bytes = (config.workers as u64 * BACKLOG_BYTES_PER_WORKER).max(BACKLOG_BYTES_MIN);
    let room = BacklogBounds {
        buffer_bytes: TLS_PIECE_BYTES as usize,
        ahead_bytes: ahead_bytes.min(usual_bytes),
        range_bytes: part.bytes(),
    };
    log::config(&config);
    let engine = Workers::start(RunSetup {
        config,
        destination: Vec::new(),
        keeping: Persistence::default(),
        tls,
        keys: control.keys(),
        retries,
        bandwidth: None,
        interfaces: control.interfaces(),
        begun,
    })?;
    // Other engines of this process may leave it fewer.
    let most = engine.config().connections();
    if most < channels {
        // A range that waits for its reader has a connection: another channel could wait for it
        // forever.
        let message = format!("{channels} channels, but at most {most} connections");
        return Err(Error::new(ErrorKind::Host, message)
            .advise("raise the limit of open files (ulimit -n) or of memory, or serve fewer"));
    }
    let connections = bounds(args, part, most / channels, channels);
    log::places(&engine.places_in_words());
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

/// The longest range: the given one, or a share of the bandwidth limit.
pub(in crate::command) fn part_size(
    given: Option<u64>,
    limit: Option<NonZeroU64>,
) -> Result<PartSize> {
    let bytes = session::part_size(given, limit).unwrap_or(PART_BYTES_DEFAULT);
    if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&bytes) {
        return Err(Error::new(ErrorKind::Usage, format!("--part-size {bytes} is out of bounds"))
            .advise(format!("give {PART_BYTES_MIN} to {PART_BYTES_MAX}")));
    }
    let whole = bytes.next_multiple_of(u64::from(SLOT_BYTES_MAX));
    Ok(PartSize::new(whole).expect("a multiple of the slot's length"))
}
