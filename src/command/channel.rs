//! One channel that is served: what it is to be, its feeder's thread, and how it ends.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::Notify;

use super::exporter;
use super::log::PaceLog;
use super::supply::{Opening, Wanted};
use crate::engine::backlog::Room;
use crate::engine::budget::StreamBudget;
use crate::engine::config::HostFacts;
use crate::engine::metrics::FeedCount;
use crate::engine::pace::{Bandwidth, Bounds, Pacer};
use crate::engine::stream::feed::StreamFeed;
use crate::engine::stream::feeder::{Feeder, FeederParts};
use crate::engine::stream::inflate::Inflaters;
use crate::engine::stream::lock::ChannelLock;
use crate::engine::stream::place::{Place, SystemPipeHost};
use crate::engine::threads::{Workers, event_counter, no_ring};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::INFLATERS_MAX;
use crate::plan::ranges::PartSize;
use crate::report::document::STDOUT_NAME;
use crate::report::progress::{ChannelState, Progress};

/// Entries of a feeder's ring: its polls and their cancels.
const RING_ENTRIES: u32 = 16;

/// Threads that inflate objects of gzip, where there are any: one for each core. Users are advised
/// so about what cannot be inflated.
pub(super) fn inflaters(are_wanted: bool, advice: &'static str) -> Result<Option<Arc<Inflaters>>> {
    let start = || Inflaters::start(HostFacts::read().processors.min(INFLATERS_MAX), advice);
    are_wanted.then(|| start().map(Arc::new)).transpose()
}

/// Takes the locks of all channels before any of them begins.
pub(super) fn lock_channels<'a>(
    names: impl Iterator<Item = &'a str>,
    (path, folder): (&Path, &Arc<OwnedFd>),
    progress: &Progress,
) -> Result<Vec<Option<ChannelLock>>> {
    let mut locks = Vec::new();
    for name in names {
        let place = path.join(name);
        let lock =
            ChannelLock::take(folder, name).map_err(|error| error.within(place.display()))?;
        if lock.is_none() {
            progress.note(format!(
                "{}: the file system does not support flock; start no second run for this channel",
                place.display()
            ));
        }
        locks.push(lock);
    }
    Ok(locks)
}

/// What a channel is to be.
pub(super) struct ChannelPlan {
    pub(super) name: String,
    pub(super) wanted: Wanted,
    /// The first epoch's listing, where it was begun before the channel is.
    pub(super) opening: Option<Opening>,
    pub(super) place: Place,
    pub(super) part: PartSize,
    pub(super) connections: Bounds,
    /// What all channels may have on their way.
    pub(super) budget: Arc<StreamBudget>,
    /// How much of what comes over TLS may stand in memory.
    pub(super) room: Room,
    /// What inflates its objects, if they are gzip.
    pub(super) inflaters: Option<Arc<Inflaters>>,
    /// What all channels share.
    pub(super) bandwidth: Option<Arc<Bandwidth>>,
    pub(super) epochs: Option<NonZeroU64>,
    /// Whether a reader whose stream fails is kept waiting.
    pub(super) holds: bool,
    /// Whether each epoch that its reader got whole is marked.
    pub(super) marks: bool,
    /// Whether it is told how each object ended.
    pub(super) logs: bool,
}

/// A channel that is being served.
pub(super) struct Running {
    pub(super) name: String,
    pub(super) wanted: Wanted,
    pub(super) opening: Option<Opening>,
    pub(super) part: PartSize,
    pub(super) feed: Arc<StreamFeed>,
    /// Raised when something has become of a channel: of all that are served together.
    pub(super) events: Arc<Notify>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<(FeedCount, Result<()>)>>,
    pacer: Arc<Pacer>,
    paces: PaceLog,
    pub(super) count: FeedCount,
    /// The failure that is on standard error.
    told: Option<Error>,
}

/// Shows which epochs channels are in, which have received so many bytes together. Between the
/// lines of `cat` nothing is shown. Logs what the pace of each has chosen.
pub(super) fn show(channels: &mut [Running], received_bytes: u64, progress: &Progress) {
    channels.iter_mut().for_each(Running::log_pace);
    if channels.iter().all(|channel| !channel.is_stdout()) {
        let running = channels.iter().filter(|channel| !channel.has_ended());
        progress.update_stream(received_bytes, running.map(Running::state));
    }
}

/// What is left of a run of these channels that ends early.
pub(super) fn left(channels: &[Running]) -> String {
    if channels.iter().any(Running::is_stdout) {
        return "the output is incomplete".to_owned();
    }
    let unread = channels.iter().filter(|channel| channel.feed.opened() == 0);
    let unread: Vec<String> = unread.map(|channel| format!("{}_0", channel.name)).collect();
    let left = "all named pipes that this run made are removed";
    match unread.is_empty() {
        true => left.to_owned(),
        false => format!("{left}; no reader opened {}", unread.join(", ")),
    }
}

/// Says that a channel's thread has ended, be it by a panic.
struct EndGuard {
    ended: Arc<AtomicBool>,
    events: Arc<Notify>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.events.notify_one();
    }
}

impl Running {
    /// Starts a channel's thread, whose ranges these workers fetch, and waits until its first pipe
    /// is there. Whoever serves it is notified by `events`.
    pub(super) fn start(
        plan: ChannelPlan,
        events: &Arc<Notify>,
        engine: &Workers,
        begun: Instant,
    ) -> Result<Self> {
        let ChannelPlan { name, wanted, opening, place, part, connections, .. } = plan;
        let ChannelPlan { budget, room, inflaters, bandwidth, .. } = plan;
        let ChannelPlan { epochs, holds, marks, logs, .. } = plan;
        let counter = event_counter()?;
        let events = Arc::clone(events);
        let feed = StreamFeed::new(counter.clone(), part).notifying(Arc::clone(&events));
        let feed = Arc::new(if logs { feed.logged() } else { feed });
        let ended = Arc::<AtomicBool>::default();
        let (ready, readiness) = std::sync::mpsc::sync_channel(1);
        let their_feed = Arc::clone(&feed);
        let guard = EndGuard { ended: Arc::clone(&ended), events: Arc::clone(&events) };
        let (scheduler, ring) = (Arc::clone(&engine.scheduler), engine.ring().clone());
        let work = move || {
            let _guard = guard;
            let made =
                ring.another(RING_ENTRIES).map_err(|error| no_ring(&error)).and_then(|ring| {
                    Feeder::new(FeederParts {
                        ring,
                        host: SystemPipeHost::new(begun, place),
                        feed: their_feed,
                        counter,
                        scheduler,
                        connections,
                        part,
                        budget,
                        room,
                        inflaters,
                        bandwidth,
                        epochs: epochs.map(NonZeroU64::get),
                        holds,
                        marks,
                    })
                });
            match made {
                Ok(mut feeder) => {
                    exporter::watch_pace(feeder.pacer());
                    let _ = ready.send(Ok(feeder.pacer()));
                    let outcome = feeder.run();
                    (feeder.count().clone(), outcome)
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    (FeedCount::default(), Ok(()))
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("inrush-{name}")).spawn(work);
        let thread = thread.map_err(Error::no_thread)?;
        let lost = || Err(Error::new(ErrorKind::Host, "a channel ended before it began"));
        let pacer = readiness.recv().unwrap_or_else(|_| lost())?;
        let (thread, count, told) = (Some(thread), FeedCount::default(), None);
        let paces = PaceLog::default();
        Ok(Self {
            name,
            wanted,
            opening,
            part,
            feed,
            events,
            ended,
            thread,
            pacer,
            paces,
            count,
            told,
        })
    }

    /// Logs what its pace has chosen lately.
    pub(super) fn log_pace(&mut self) {
        let of = if self.is_stdout() { String::new() } else { format!("{}: ", self.name) };
        self.paces.tell(&of, || (self.pacer.timeline(), Vec::new()));
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Why it was stopped, if that was not the user.
    pub(super) fn failure(&self) -> Option<Error> {
        self.feed.stop_reason().filter(|error| error.kind() != ErrorKind::Interrupted)
    }

    /// True for the one that writes to standard output: people know no channel of `cat`.
    pub(super) fn is_stdout(&self) -> bool {
        self.name == STDOUT_NAME
    }

    /// Which epoch it is in.
    fn state(&self) -> ChannelState {
        let epoch = self.feed.reading();
        ChannelState { name: self.name.clone(), epoch, has_reader: self.feed.opened() > epoch }
    }

    /// True when this failure is on standard error.
    pub(super) fn has_told(&self, error: &Error) -> bool {
        self.told.as_ref() == Some(error)
    }

    /// Prints a failure, once.
    pub(super) fn tell(&mut self, error: Error, progress: &Progress) {
        if !self.has_told(&error) {
            let named = error.clone().within(format!("channel {}", self.name));
            progress.error(if self.is_stdout() { &error } else { &named });
            self.told = Some(error);
        }
    }

    pub(super) fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join().map_err(|_| Error::bug("a channel panicked"));
        let (count, outcome) = ended?;
        self.count = count;
        outcome
    }
}
