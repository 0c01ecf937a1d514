//! A course: how workers and feeders are made for it, and what always holds of it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use inrush::checksum::{Algorithm, Form, InOrder, Stored};
use inrush::engine::backlog::BacklogBounds;
use inrush::engine::budget::StreamBudget;
use inrush::engine::metrics::{FeedCount, WorkerMetrics};
use inrush::engine::pace::{Bounds, Pacer};
use inrush::engine::peers::SharedAddresses;
use inrush::engine::schedule::Scheduler;
use inrush::engine::stream::feed::{FeedItem, StreamFeed};
use inrush::engine::stream::feeder::FeederParts;
use inrush::engine::stream::inline::InlineBytes;
use inrush::error::{Error, ErrorKind};
use inrush::files::sink::Sink;
use inrush::limits::INLINE_BYTES_MAX;
use inrush::link::failure::RetryReason;
use inrush::link::object::ObjectRef;
use inrush::plan::ranges::PartSize;
use inrush::s3::Endpoint;
use inrush::sys::{Handle, Ring, descriptor};

use crate::chance::Chance;
use crate::crew::{Crew, Simulated};
use crate::detours::gateway;
use crate::network::{Network, Terms};
use crate::origin::Rates;
use crate::places::{Act, Channel, Manner};
use crate::plumbing::{PipeSlots, small};
use crate::ring::Owner;
use crate::stage::{Fed, Stage};
use crate::world::{Shared, World};
use crate::{endpoint, object, secure, tally};

/// Most pieces of an epoch that has bytes of ours.
const PIECES_MAX: usize = 300;

/// A reader that comes at once and takes everything.
pub(super) const PATIENT: Manner = Manner {
    late_us: 0,
    idle_us: 5_000,
    gulp: 1 << 20,
    pace_us: 10,
    pause_per_mille: 0,
    leaves_at: None,
    phases: &[],
};

/// What is run.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) rates: Rates,
    pub(super) spurious_per_mille: u64,
    /// Cancels and wake-ups get lost.
    pub(super) lost_per_mille: u64,
    /// Some answers take far longer than others.
    pub(super) uneven: bool,
    pub(super) slots_max: u64,
    /// Of each pipe; `None` for drawn ones.
    pub(super) slots: Option<PipeSlots>,
    /// Places of a thousand before and behind objects where inrush writes bytes of its own.
    pub(super) inline_per_mille: u64,
    /// Of each feeder: ranges at once.
    pub(super) connections: usize,
    /// Of each worker.
    pub(super) workers: Vec<usize>,
    pub(super) part: u64,
    /// Sizes of the objects of each epoch.
    pub(super) epochs: Vec<Vec<u64>>,
    /// The readers of each feeder, one for each epoch.
    pub(super) manners: Vec<Vec<Manner>>,
    /// One more epoch is offered, for a reader that never comes.
    pub(super) never: bool,
    /// The channel is stopped at this time.
    pub(super) stop_us: Option<u64>,
    /// Readers of a stream that fails are held.
    pub(super) holds: bool,
    /// Epochs that were read whole are marked.
    pub(super) marks: bool,
    /// Time between two steps of the control plane, at most.
    pub(super) pace_us: u64,
    /// Objects of a thousand that are compared with a checksum.
    pub(super) verified_per_mille: u64,
    /// The origin speaks TLS.
    pub(super) tls: bool,
    /// When the origin goes down, for half a minute.
    pub(super) down_us: Option<u64>,
    /// The network; `None` for one that brings answers in pieces as drawn.
    pub(super) terms: Option<Terms>,
    /// Requests in flight that the pace begins with; `None` for a drawn number, or no choice.
    pub(super) start: Option<u32>,
    /// Bytes that the streams may have on their way; `None` for a drawn number.
    pub(super) budget_bytes: Option<u64>,
    /// Most bytes in receive buffers that the streams may come to: what their budget allows.
    pub(super) socket_bytes_max: Option<u64>,
    /// Bytes in receive buffers above which the kernel drops packets.
    pub(super) drops_above_bytes: Option<u64>,
}

/// How it went.
pub(super) struct Ran {
    pub(super) world: Shared,
    /// How the feeder of each channel ended.
    pub(super) fed: Vec<Fed>,
    /// Of each channel what each epoch is made of, and how many bytes may stand in memory.
    made: Vec<(Vec<Made>, u64)>,
    /// What the workers counted.
    pub(super) metrics: WorkerMetrics,
}

impl Ran {
    /// Why feeders failed.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Error> {
        self.fed.iter().filter_map(|fed| fed.result.as_ref().err())
    }

    /// Looks that none failed.
    pub(super) fn assert_ok(&self) {
        self.fed.iter().for_each(|fed| assert!(fed.result.is_ok(), "{:?}", fed.result));
    }

    /// Attempts that another followed: those that failed, and those that were late and moved.
    pub(super) fn retries(&self) -> u64 {
        self.fed.iter().flat_map(|fed| fed.count.sent.retries).sum::<u64>() + self.moves()
    }

    pub(super) fn moves(&self) -> u64 {
        self.fed.iter().map(|fed| fed.count.sent.moves).sum()
    }

    /// Those because something took too long, or took far longer than its like.
    pub(super) fn late(&self) -> u64 {
        let late = [RetryReason::ConnectTimeout, RetryReason::FirstByteTimeout, RetryReason::Stall];
        let counts = |fed: &Fed| {
            late.into_iter().map(|reason| fed.count.sent.retries[reason as usize]).sum::<u64>()
        };
        self.fed.iter().map(counts).sum::<u64>() + self.moves()
    }

    /// How often one of these was injected.
    pub(super) fn injected(&self, names: &[&str]) -> u64 {
        let world = self.world.borrow();
        names.iter().filter_map(|name| world.injected.get(name)).sum()
    }
}

/// What an epoch is made of, in order.
type Made = Vec<Piece>;

/// A piece of an epoch.
enum Piece {
    /// The object of this key.
    Object(String),
    /// Bytes that inrush writes itself.
    Inline(InlineBytes),
}

/// Bytes of some length, where the course has some.
fn inline(course: &Course, chance: &mut Chance) -> Option<InlineBytes> {
    let lengths = [1, 8, 11, 23, 4095, 4096, 4097, 9000, INLINE_BYTES_MAX as u64];
    chance.hits(course.inline_per_mille).then(|| {
        let length = lengths[small(chance.below(lengths.len() as u64))];
        let first = chance.below(256);
        let byte = |at| u8::try_from((first + at * 7) % 251).expect("below 251");
        InlineBytes::new(&(0..length).map(byte).collect::<Vec<u8>>())
    })
}

/// The checksum of an object: a CRC, or a hash, which needs its bytes in order.
fn checksum(bytes: &[u8]) -> InOrder {
    let is_even = bytes.len().is_multiple_of(2);
    let algorithm = if is_even { Algorithm::Crc64Nvme } else { Algorithm::Sha1 };
    let digest = algorithm.digest(bytes);
    InOrder::of_one_piece(Stored { algorithm, form: Form::FullObject, digest })
}

/// The control plane's steps, and what each epoch is made of.
fn plan(
    course: &Course,
    endpoints: &[Arc<Endpoint>; 2],
    world: &Shared,
    chance: &mut Chance,
) -> (VecDeque<(u64, Act)>, Vec<Made>) {
    let (mut acts, mut made) = (VecDeque::new(), Vec::new());
    let mut at_us = 0;
    for sizes in &course.epochs {
        let mut own = Vec::new();
        let mut batch = Vec::new();
        let add = |chance: &mut Chance, own: &mut Made, batch: &mut Vec<FeedItem>| {
            while let Some(bytes) = inline(course, chance).filter(|_| own.len() < PIECES_MAX) {
                batch.push(FeedItem::Inline(bytes.clone()));
                own.push(Piece::Inline(bytes));
            }
        };
        for size in sizes {
            add(chance, &mut own, &mut batch);
            let key = format!("k{}-{size}", chance.below(1000));
            let which = usize::from(chance.hits(200));
            let target = Arc::clone(&endpoints[which]);
            let object = Arc::new(ObjectRef::new(object(&key), target));
            if chance.hits(course.verified_per_mille) {
                object.compare_with(Ok(checksum(&world.borrow_mut().model(&key))));
            }
            batch.push(object.into());
            own.push(Piece::Object(key));
            if chance.hits(500) {
                at_us += chance.below(course.pace_us);
                acts.push_back((at_us, Act::Push(std::mem::take(&mut batch))));
            }
        }
        add(chance, &mut own, &mut batch);
        acts.push_back((at_us, Act::Push(batch)));
        at_us += chance.below(course.pace_us);
        acts.push_back((at_us, Act::EndEpoch));
        made.push(own);
    }
    if !course.never {
        acts.push_back((at_us + chance.below(course.pace_us), Act::Complete));
    }
    if let Some(stop_us) = course.stop_us {
        acts.push_back((stop_us, Act::Stop));
        acts.make_contiguous().sort_by_key(|(at_us, _)| *at_us);
    }
    (acts, made)
}

/// All of a course's ranges at once, or as many as bring the most.
fn bounds(course: &Course, chance: &mut Chance) -> Bounds {
    let most = u32::try_from(course.connections).expect("few");
    let fixed = Bounds { piece_bytes: course.part, is_ordered: true, ..Bounds::fixed(most) };
    let start = 1 + u32::try_from(chance.below(u64::from(most))).expect("few");
    match course.start {
        Some(start) => Bounds { least: 1, start, ..fixed },
        None if chance.hits(500) => Bounds { least: 1, start, ..fixed },
        None => fixed,
    }
}

/// The world of a course, without its streams.
fn world(seed: u64, course: &Course) -> Shared {
    let world = World::new(seed, course.rates);
    let mut set = world.borrow_mut();
    set.outage_us = course.down_us.map_or(0..0, |at_us| at_us..at_us + 30_000_000);
    set.sides = course.tls.then(|| secure::sides(seed));
    let terms = course.terms.clone().map(|terms| Terms { alike: true, ..terms });
    set.network = terms.map(Network::new);
    let memory = &mut set.memory;
    memory.socket_bytes_max = course.socket_bytes_max.unwrap_or(memory.socket_bytes_max);
    memory.drops_above_bytes = course.drops_above_bytes.unwrap_or(memory.drops_above_bytes);
    let plumbing = &mut set.plumbing;
    (plumbing.slots_max, plumbing.slots) = (course.slots_max, course.slots);
    plumbing.spurious_per_mille = course.spurious_per_mille;
    plumbing.lost_per_mille = course.lost_per_mille;
    (plumbing.arrives, plumbing.uneven) = (true, course.uneven);
    drop(set);
    world
}

/// A feeder for each list of readers; returns what its streams are made of, and how many bytes may
/// stand in memory.
fn add_feeders(
    seed: u64,
    course: &Course,
    stage: &Rc<Stage>,
    scheduler: &Arc<Scheduler>,
    world: &Shared,
) -> Vec<(Vec<Made>, u64)> {
    let mut chance = Chance(seed ^ 0x919e);
    let endpoints = match course.rates.redirect_per_mille {
        0 => [endpoint(0, course.tls), endpoint(1, course.tls)],
        _ => [gateway(0, course.tls), gateway(1, course.tls)],
    };
    if course.rates.redirect_per_mille > 0 {
        world.borrow_mut().gateways = endpoints.to_vec();
    }
    let part = PartSize::new(course.part).expect("aligned");
    let drawn_bytes = course.part * (1 + chance.below(60));
    let budget = Arc::new(StreamBudget::new(course.budget_bytes.unwrap_or(drawn_bytes)));
    let mut all = Vec::new();
    for manners in &course.manners {
        let (plan, made) = plan(course, &endpoints, world, &mut chance);
        let counter = descriptor::event_counter().expect("a descriptor");
        let feed = Arc::new(StreamFeed::new(counter.clone(), part));
        let places = Default::default();
        let (manners, unmarked) = (manners.clone(), Vec::new());
        let channel = Channel { feed: Arc::clone(&feed), places, manners, plan, unmarked };
        world.borrow_mut().plumbing.channels.push(channel);
        let bounds = bounds(course, &mut chance);
        let buffer_bytes = 512 << chance.below(6);
        let ahead_bytes = chance.below(20) * buffer_bytes as u64;
        let room = BacklogBounds { buffer_bytes, ahead_bytes, range_bytes: course.part };
        stage.add_feeder(|ring, host| FeederParts {
            ring,
            host,
            feed,
            counter,
            scheduler: Arc::clone(scheduler),
            connections: bounds,
            part,
            budget: Arc::clone(&budget),
            room,
            inflaters: None,
            bandwidth: None,
            epochs: (!course.never).then_some(course.epochs.len() as u64),
            holds: course.holds,
            marks: course.marks,
        });
        // At its turn a range may have four buffers, whatever there is ahead of it.
        let most = ahead_bytes + 4 * buffer_bytes as u64;
        all.push((made, most));
    }
    all
}

/// Runs a course to its end.
fn run(seed: u64, course: &Course) -> Ran {
    let world = world(seed, course);
    let mut chance = Chance(seed ^ 0xc4e3);
    let counter = |_: &usize| descriptor::event_counter().expect("a descriptor");
    let counters: Vec<Handle> = course.workers.iter().map(counter).collect();
    let scheduler = Arc::new(Scheduler::new(counters.clone()));
    let stage = Stage::new(&world, &scheduler, seed);
    let crew = Crew {
        world: Rc::clone(&world),
        pacer: Arc::new(Pacer::new(Bounds::fixed(8), course.workers.len())),
        scheduler: Arc::clone(&scheduler),
        sink: Sink::Null,
        addresses: Arc::new(SharedAddresses::default()),
    };
    let sides = world.borrow().sides.clone();
    let mut pools = Vec::new();
    for (number, counter) in counters.into_iter().enumerate() {
        let slots = 1 + usize::try_from(chance.below(3)).expect("small");
        let (size, woken_by) = ((course.workers[number], slots), counter.clone());
        let made = crew.worker_of(Owner::Worker, number, counter, size, sides.as_ref());
        let Simulated { worker, data, control, cipher, slots, connections, flights } = made;
        stage.add_worker(worker, flights, woken_by);
        pools.push((data, control, cipher, slots, connections));
    }
    let made = add_feeders(seed, course, &stage, &scheduler, &world);
    let fed = stage.feed();
    if scheduler.is_stopped() || seed.is_multiple_of(2) {
        scheduler.stop(Error::new(ErrorKind::Interrupted, "stopped"));
    } else {
        scheduler.complete();
    }
    let mut metrics = WorkerMetrics::default();
    for worker in stage.finish() {
        let (counted, ring, _host) = worker.into_parts();
        assert_eq!(ring.in_flight(), 0, "the kernel owns nothing");
        metrics.add(&counted);
    }
    for (data, control, cipher, slots, connections) in pools {
        assert_eq!((data.free(), control.free()), (slots, connections), "every slot is back");
        assert!(cipher.is_none_or(|cipher| cipher.free() == connections), "every buffer is back");
    }
    for (address, _) in &world.borrow().connects {
        assert_eq!(crew.addresses.open(*address), 0, "no connection is left at {address}");
    }
    Ran { world, fed, made, metrics }
}

/// Runs a course and checks what always holds.
pub(super) fn check(seed: u64, course: &Course) -> Ran {
    let ran = run(seed, course);
    let mut world = ran.world.borrow_mut();
    assert_eq!(world.pipes_open(), 0, "every pipe is closed");
    let seconds = 1 + world.now_us / 1_000_000;
    let events = world.plumbing.events;
    for fed in &ran.fed {
        let turns = fed.count.turns;
        assert!(
            turns <= 2 * events + 60 * seconds,
            "{turns} for {events} in {seconds} s: it spins"
        );
    }
    let (turns, workers) = (ran.metrics.turns, course.workers.len() as u64);
    let most = 4 * events + 60 * seconds * workers;
    assert!(turns <= most, "{turns} of workers for {events} in {seconds} s: they spin");
    for channel in &world.plumbing.channels {
        for (epoch, place) in &channel.places {
            assert!(place.withdrawn, "{epoch}: still offered");
            assert!(!place.held(), "{epoch}: its write end is still open");
        }
    }
    world.drain();
    drop(world);
    tally::note_workers(&ran.metrics);
    for (channel, fed) in ran.fed.iter().enumerate() {
        tally::note_feed(&fed.count);
        fed.result.as_ref().err().into_iter().for_each(tally::note_error);
        check_channel(&ran, course, channel, fed);
    }
    ran
}

/// What always holds of a channel.
fn check_channel(ran: &Ran, course: &Course, channel: usize, fed: &Fed) {
    let (count, (made, most)): (&FeedCount, _) = (&fed.count, &ran.made[channel]);
    assert!(count.backlog_bytes_max <= *most, "{} in memory", count.backlog_bytes_max);
    let is_in_memory = course.tls || course.verified_per_mille > 0;
    assert!(is_in_memory || count.backlog_bytes_max == 0, "what is spliced is never in memory");
    let manners = &course.manners[channel];
    let world = &mut *ran.world.borrow_mut();
    let Channel { places, feed, .. } = &mut world.plumbing.channels[channel];
    let whole = fed.result.is_ok() && !feed.is_stopped();
    let places = std::mem::take(places);
    let opened = places.values().filter(|place| place.opened() && !place.retired).count();
    let earlier = usize::try_from(count.earlier_epochs).expect("few");
    assert_eq!(earlier + count.epochs.len(), opened, "each epoch that was read is reported");
    assert!(!whole || opened == course.epochs.len(), "every epoch was read");
    for (number, reported) in (earlier..).zip(&count.epochs) {
        let epoch = number as u64;
        let made = made.get(number).map_or(&[] as &[Piece], Vec::as_slice);
        let (mut model, mut ends): (Vec<u8>, Vec<usize>) = (Vec::new(), Vec::new());
        for piece in made {
            match piece {
                Piece::Object(key) => model.extend_from_slice(&world.model(key)),
                Piece::Inline(bytes) => model.extend_from_slice(bytes.bytes()),
            }
            ends.push(model.len());
        }
        let place = &places[&epoch];
        let length = place.got.len();
        // Where bytes are wrong on their way, the objects that are there as a whole are right.
        let sure = match course.rates.flip_per_mille {
            0 => length,
            _ => ends.into_iter().rev().find(|end| *end <= length).unwrap_or(0),
        };
        assert!(model.get(..sure) == Some(&place.got[..sure]), "{epoch}: wrong bytes");
        let taken = if reported.left_early { length as u64 } else { world.put_in(place) };
        assert_eq!((reported.epoch, reported.bytes), (epoch, taken), "{epoch}: reported");
        assert!(!reported.left_early || place.left, "{epoch}: its reader did not leave");
        // The last one opened may have been broken off.
        let complete = whole || number + 1 < opened;
        if place.left {
            assert_eq!(Some(length), manners[number].leaves_at, "{epoch}");
        } else if complete {
            assert_eq!(length, model.len(), "{epoch}: lost bytes");
        }
        if let Some(marked) = place.marked {
            let is_object = |piece: &&Piece| matches!(piece, Piece::Object(_));
            let objects = made.iter().filter(is_object).count() as u64;
            assert!(!reported.left_early && length == model.len(), "{epoch}: marked, not read");
            assert_eq!((marked.objects, marked.bytes), (objects, model.len() as u64), "{epoch}");
        }
        let may_miss = !course.marks || !complete || reported.left_early;
        assert!(place.marked.is_some() || may_miss, "{epoch}: not marked");
        if complete && !reported.left_early {
            assert_eq!(reported.bytes, model.len() as u64, "{epoch}: delivered");
        }
    }
    world.plumbing.channels[channel].places = places;
}
