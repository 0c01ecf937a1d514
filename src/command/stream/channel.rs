//! A channel being served: its plan, its feeder's thread, and its end.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::Notify;

use super::supply::{Opening, WantedObjects};
use crate::command::context::Context;
use crate::command::log::PaceLog;
use crate::engine::backlog::BacklogBounds;
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

/// Starts the threads that decompress gzip objects, if wanted: one per core. `advice`: for objects
/// that cannot be decompressed.
pub(in crate::command) fn inflaters(
    are_wanted: bool,
    advice: &'static str,
) -> Result<Option<Arc<Inflaters>>> {
    let start = || Inflaters::start(HostFacts::read().processors.min(INFLATERS_MAX), advice);
    are_wanted.then(|| start().map(Arc::new)).transpose()
}

/// Takes the locks of all channels before any of them begins.
pub(in crate::command) fn lock_channels<'a>(
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

/// The plan of a channel.
pub(in crate::command) struct ChannelPlan {
    pub(in crate::command) name: String,
    pub(in crate::command) wanted: WantedObjects,
    /// The first epoch's listing, if it was begun earlier.
    pub(in crate::command) opening: Option<Opening>,
    pub(in crate::command) place: Place,
    pub(in crate::command) part: PartSize,
    pub(in crate::command) connections: Bounds,
    /// The budget of bytes in flight of all channels.
    pub(in crate::command) budget: Arc<StreamBudget>,
    /// The memory for decrypted bytes ahead of their turn.
    pub(in crate::command) room: BacklogBounds,
    /// Decompresses its objects, if they are gzip.
    pub(in crate::command) inflaters: Option<Arc<Inflaters>>,
    /// The bandwidth limit of all channels.
    pub(in crate::command) bandwidth: Option<Arc<Bandwidth>>,
    pub(in crate::command) epochs: Option<NonZeroU64>,
    /// If true, the reader of a failed stream is blocked without end of file.
    pub(in crate::command) holds: bool,
    /// If true, each epoch that was read completely is marked.
    pub(in crate::command) marks: bool,
    /// If true, the result of each object is logged.
    pub(in crate::command) logs: bool,
}

/// A channel that is being served.
pub(in crate::command) struct Running {
    pub(in crate::command) name: String,
    pub(in crate::command) wanted: WantedObjects,
    pub(in crate::command) opening: Option<Opening>,
    pub(in crate::command) part: PartSize,
    pub(in crate::command) feed: Arc<StreamFeed>,
    /// Notified at each change of a channel; shared by all channels of the run.
    pub(in crate::command) events: Arc<Notify>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<(FeedCount, Result<()>)>>,
    pacer: Arc<Pacer>,
    paces: PaceLog,
    pub(in crate::command) count: FeedCount,
    /// The failure that was printed on standard error.
    printed: Option<Error>,
}

/// Shows the channels' epochs, and the bytes that they have received together. Nothing is shown
/// between the lines of `cat`. Logs the decisions of each pace.
pub(super) fn show(channels: &mut [Running], received_bytes: u64, progress: &Progress) {
    channels.iter_mut().for_each(Running::log_pace);
    if channels.iter().all(|channel| !channel.is_stdout()) {
        let running = channels.iter().filter(|channel| !channel.has_ended());
        progress.update_stream(received_bytes, running.map(Running::state));
    }
}

/// The state of these channels for the message of a run that ends early.
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

/// Marks a channel's thread as ended, also after a panic.
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
    /// Starts a channel's thread, with ranges downloaded by these workers, and waits until its
    /// first pipe exists. `events` is notified of its changes.
    pub(super) fn start(
        plan: ChannelPlan,
        events: &Arc<Notify>,
        (context, engine): (&Arc<Context>, &Workers),
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
        let context = Arc::clone(context);
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
                    context.exported.watch_pace(feeder.pacer());
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
        let (thread, count, printed) = (Some(thread), FeedCount::default(), None);
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
            printed,
        })
    }

    /// Logs the recent decisions of its pace.
    pub(super) fn log_pace(&mut self) {
        let of = if self.is_stdout() { String::new() } else { format!("{}: ", self.name) };
        self.paces.log(&of, || (self.pacer.timeline(), Vec::new()));
    }

    pub(in crate::command) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Why it was stopped, unless by the user.
    pub(in crate::command) fn failure(&self) -> Option<Error> {
        self.feed.stop_reason().filter(|error| error.kind() != ErrorKind::Interrupted)
    }

    /// True for the channel that writes to standard output: users of `cat` know no channels.
    pub(super) fn is_stdout(&self) -> bool {
        self.name == STDOUT_NAME
    }

    /// Its current epoch.
    fn state(&self) -> ChannelState {
        let epoch = self.feed.reading();
        ChannelState { name: self.name.clone(), epoch, has_reader: self.feed.opened() > epoch }
    }

    /// True if this failure was printed.
    pub(in crate::command) fn has_printed(&self, error: &Error) -> bool {
        self.printed.as_ref() == Some(error)
    }

    /// Prints a failure, once.
    pub(in crate::command) fn print(&mut self, error: Error, progress: &Progress) {
        if !self.has_printed(&error) {
            let named = error.clone().within(format!("channel {}", self.name));
            progress.error(if self.is_stdout() { &error } else { &named });
            self.printed = Some(error);
        }
    }

    pub(in crate::command) fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join().map_err(|_| Error::bug("a channel panicked"));
        let (count, outcome) = ended?;
        self.count = count;
        outcome
    }
}
