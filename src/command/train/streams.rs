//! The channels in Pipe mode: served until the command has ended. If an epoch fails its reader gets
//! no end of file, so that it is not taken for the whole epoch.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

use super::super::ring;
use super::super::session;
use super::fifos;
use super::input::{self, InputSource, Sources};
use super::layout::JobFolders;
use crate::cli::{TrainArgs, VerifyMode};
use crate::command::context::Context;
use crate::command::stream::channel::{ChannelPlan, Running, inflaters};
use crate::command::stream::report::{EndedEngine, StreamReport};
use crate::command::stream::serve::{spawn_supply, start_channels, stop_all};
use crate::command::stream::supply::{EpochOrder, Opening, WantedObjects};
use crate::command::stream::workers::{Resources, StreamEngine, part_size, start_engine};
use crate::control::Control;
use crate::control::list::channel::ChannelObjects;
use crate::engine::metrics::FeedCount;
use crate::engine::pace::Bandwidth;
use crate::engine::stream::place::Place;
use crate::engine::threads::Workers;
use crate::error::{Error, Result};
use crate::plan::filter::Filter;
use crate::plan::kept::KeptListing;
use crate::report::out::ReportWriter;
use crate::report::progress::Progress;
use crate::train::{Channel, Compression, RecordWrapper, TrainingInput};

/// Advice for objects that cannot be decompressed, and for objects too long for a record: a channel
/// has all objects that its description names.
const ADVICE_ON_GZIP: &str =
    "store it again as gzip, or move it out of the channel's prefix or manifest";
const ADVICE_ON_RECORDS: &str =
    "store it as smaller objects, or give the channel no RecordWrapperType (record-wrapper=)";

/// An event of the running streams.
#[derive(Debug)]
pub(super) enum StreamsEvent {
    /// A channel has failed; that was printed.
    Failed(Error),
    /// All epochs of all channels have ended.
    Over,
}

/// The resources shared with channels in File mode.
#[derive(Clone)]
pub(super) struct SharedResources {
    pub(super) context: Arc<Context>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) bandwidth: Option<Arc<Bandwidth>>,
    pub(super) report: Option<ReportWriter>,
}

/// Channels that are served.
pub(super) struct Streams {
    control: Rc<Control>,
    engine: Workers,
    channels: Vec<Running>,
    supplies: Vec<JoinHandle<()>>,
    refresh: JoinHandle<()>,
    /// The last reported epoch of each channel.
    epochs: Vec<u64>,
    /// The end was reported.
    is_over: bool,
    report: StreamReport,
    events: Arc<Notify>,
    /// The number of connections was set by the user.
    is_fixed: bool,
    bandwidth_limit: Option<NonZeroU64>,
}

/// The results of streams.
#[derive(Default)]
pub(super) struct EndedStreams {
    /// The counters of each channel.
    pub(super) counts: Vec<(String, FeedCount)>,
    /// Their workers; `None` if there were none.
    pub(super) engine: Option<EndedEngine>,
}

impl Streams {
    /// Creates the first pipe of each channel and starts serving it; `None` if there are none in
    /// Pipe mode.
    pub(super) async fn start(
        (args, input, layout, sources): (&TrainArgs, &TrainingInput, &JobFolders, &Sources),
        control: &Rc<Control>,
        (SharedResources { context, tls, bandwidth, report }, kept): (
            SharedResources,
            Vec<Option<KeptListing>>,
        ),
        begun: Instant,
        progress: &Progress,
    ) -> Result<Option<Self>> {
        let pipes: Vec<_> = input::streams(input, sources).collect();
        let names: Vec<&str> = pipes.iter().map(|(channel, _)| channel.name.as_str()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let resources = resources(args, names.len())?;
        let part = part_size(args.tuning.part_size, args.tuning.bandwidth_limit)?;
        let (openings, orders) = begin(args, pipes.iter().zip(kept), control).await?;
        let mut places = Vec::new();
        for (channel, _) in &pipes {
            places.push(fifos::lock(layout.pipes(channel), progress).await?);
        }
        let retries = session::retries(&args.service, args.tuning.max_attempts);
        let StreamEngine { engine, connections, budget, room } = start_engine(
            &resources,
            part,
            names.len(),
            (&context, control),
            (tls, retries),
            begun,
        )?;
        ring::report_fallback(engine.ring(), &context, progress);
        let is_gzip = |channel: &Channel| channel.compression == Compression::Gzip;
        let are_gzip = pipes.iter().any(|(channel, _)| is_gzip(channel));
        let inflaters = inflaters(are_gzip, ADVICE_ON_GZIP)?;
        let gzip = pipes.iter().map(|(channel, _)| is_gzip(channel));
        let parts = names.iter().zip(openings).zip(places).zip(gzip);
        let plans = parts.map(|(((name, (wanted, opening)), fifos), is_gzip)| ChannelPlan {
            name: (*name).to_owned(),
            wanted,
            opening: Some(opening),
            // COMMAND is ended when a channel fails; until then it finds its pipes.
            place: Place::Fifos(fifos.keeping_names(!args.command.is_empty())),
            part,
            connections,
            budget: Arc::clone(&budget),
            room,
            inflaters: inflaters.clone().filter(|_| is_gzip),
            bandwidth: bandwidth.clone(),
            epochs: args.epochs,
            holds: true,
            marks: false,
            logs: report.is_some(),
        });
        let started = start_channels(plans, (&context, &engine), begun);
        let mut channels =
            started.map_err(|(name, error)| error.within(format!("channel {name}")))?;
        let supplies = channels
            .iter_mut()
            .zip(orders)
            .map(|(channel, order)| spawn_supply(control, channel, order))
            .collect();
        Ok(Some(Self {
            control: Rc::clone(control),
            engine,
            epochs: vec![0; channels.len()],
            events: channels.first().map_or_else(Arc::default, |it| Arc::clone(&it.events)),
            channels,
            supplies,
            refresh: spawn_local(session::refresh(Rc::clone(control))),
            is_over: false,
            report: StreamReport::shared(report),
            is_fixed: args.tuning.connections.is_some(),
            bandwidth_limit: args.tuning.bandwidth_limit,
        }))
    }

    /// Waits for the next event; pending forever if there can be none. Cancel safe.
    pub(super) async fn next(&mut self, progress: &Progress) -> StreamsEvent {
        loop {
            if let Some(reason) = self.engine.lost() {
                self.fail(&reason);
            }
            self.note_waits();
            self.report_epochs(progress);
            self.report.take(&self.channels, progress);
            if let Some(error) = self.take_failure(progress) {
                return StreamsEvent::Failed(error);
            }
            if !self.is_over && self.channels.iter().all(Running::has_ended) {
                self.is_over = true;
                return StreamsEvent::Over;
            }
            self.report.wait(&self.events, &self.engine, progress).await;
        }
    }

    /// Reports the channels' current waits on the board.
    pub(super) fn note_waits(&self) {
        self.control.board().set_range(self.engine.longest_wait());
    }

    /// The unreported failure of a channel; it is printed now.
    pub(super) fn take_failure(&mut self, progress: &Progress) -> Option<Error> {
        for (channel, supply) in self.channels.iter_mut().zip(&self.supplies) {
            if let Some(error) = channel.failure().filter(|error| !channel.has_printed(error)) {
                supply.abort();
                channel.print(error.clone(), progress);
                return Some(error.within(format!("channel {}", channel.name)));
            }
        }
        None
    }

    /// True if [`StreamsEvent::Over`] was returned.
    pub(super) fn are_over(&self) -> bool {
        self.is_over
    }

    /// Ends all channels for this reason. Readers get no end of file, unless the user ends them.
    pub(super) fn fail(&self, reason: &Error) {
        self.channels.iter().for_each(|channel| channel.feed.stop(reason.clone()));
    }

    /// Reports epochs that have begun.
    fn report_epochs(&mut self, progress: &Progress) {
        for (channel, reported) in self.channels.iter().zip(&mut self.epochs) {
            let epoch = channel.feed.reading();
            if epoch > *reported && !channel.has_ended() {
                *reported = epoch;
                progress.note(format!("channel {}: epoch {epoch}", channel.name));
                tracing::info!("channel {}: epoch {epoch}", channel.name);
            }
        }
    }

    /// Removes all pipes; returns the counters of each channel, and the workers of all.
    pub(super) fn end(mut self, progress: &Progress) -> EndedStreams {
        self.control.board().set_range(None);
        self.refresh.abort();
        self.supplies.iter().for_each(JoinHandle::abort);
        stop_all(&self.channels);
        for channel in &mut self.channels {
            if let Err(error) = channel.join() {
                channel.print(error, progress);
            }
        }
        self.report.take_rest(&self.channels, progress);
        let part = self.channels.first().map(|channel| channel.part);
        let engine = EndedEngine::of(self.engine, part, self.is_fixed, self.bandwidth_limit);
        let counts = self.channels.into_iter().map(|channel| (channel.name, channel.count));
        EndedStreams { counts: counts.collect(), engine: Some(engine) }
    }
}

/// Begins the first epoch of each channel, from the listings of the survey. A failed listing is an
/// error before any reader waits.
async fn begin<'a>(
    args: &TrainArgs,
    pipes: impl Iterator<Item = (&'a (&'a Channel, &'a InputSource), Option<KeptListing>)>,
    control: &Rc<Control>,
) -> Result<(Vec<(WantedObjects, Opening)>, Vec<EpochOrder>)> {
    let (mut openings, mut orders) = (Vec::new(), Vec::new());
    for ((channel, source), kept) in pipes {
        let is_shuffled = channel.shuffle_seed.is_some();
        let (mut listed, mut allows_none) = (None, false);
        let (sources, manifest, shard) = match source {
            InputSource::Objects(objects) => {
                listed = kept.and_then(|kept| objects.kept_stream(kept, is_shuffled));
                // A missing object of a list is an error, however many objects there are.
                let is_prefix = matches!(objects.objects, ChannelObjects::Prefix(_));
                allows_none = objects.allow_empty && is_prefix;
                let (sources, shard) = objects.stream_sources(is_shuffled);
                (sources, None, shard)
            }
            InputSource::Lines(manifest, shard) => (Vec::new(), Some(Arc::clone(manifest)), *shard),
            InputSource::Folder | InputSource::Unknown(_) => continue,
        };
        let is_wrapped = channel.record_wrapper == RecordWrapper::RecordIo;
        let wanted = WantedObjects {
            sources,
            manifest,
            wraps: is_wrapped.then_some(ADVICE_ON_RECORDS),
            allows_none,
            filter: Filter::default(),
            range: None,
            verify: VerifyMode::Off,
        };
        let order = EpochOrder { epochs: args.epochs, shuffle_seed: channel.shuffle_seed, shard };
        orders.push(order);
        let opening = match listed {
            Some(entries) => Opening::listed(entries, &wanted).await,
            None => Opening::of(control, &wanted, order, 0).await,
        };
        let opening = opening.map_err(|error| error.within(format!("channel {}", channel.name)));
        openings.push((wanted, opening?));
    }
    Ok((openings, orders))
}

/// The resources of each channel: connections are those of all channels together.
fn resources(args: &TrainArgs, channels: usize) -> Result<Resources> {
    let each = |all: usize| (all / channels).max(1);
    Ok(Resources {
        connections: args.tuning.connections.map(each),
        max_connections: args.tuning.max_connections.map(each),
        memory_bytes: args.tuning.memory,
        ring: ring::choice(args.tuning.ring)?,
    })
}

/// The number of epochs, for users.
pub(super) fn epochs_in_words(epochs: Option<NonZeroU64>) -> String {
    match epochs.map(NonZeroU64::get) {
        None => "epochs without end".to_owned(),
        Some(1) => "1 epoch".to_owned(),
        Some(count) => format!("{count} epochs"),
    }
}
