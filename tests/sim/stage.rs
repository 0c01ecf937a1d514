//! Workers and feeders that share one time: it passes while all of them wait, and whoever has
//! something to do then is called, in any order.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use inrush::engine::metrics::FeedCount;
use inrush::engine::schedule::Scheduler;
use inrush::engine::stream::feeder::{Feeder, FeederParts};
use inrush::engine::worker::Worker;
use inrush::error::Error;
use inrush::sys::Handle;

use super::chance::Chance;
use super::host::SimHost;
use super::ring::{Flights, Owner, SimRing};
use super::shore::FeedHost;
use super::world::{Shared, World};

/// How long a feeder's end is put off while another takes everything back.
const END_PUT_OFF_US: u64 = 1_000;

/// Turns of all after which a run counts as hanging.
const TURNS_MAX: u64 = 800_000;

type SimWorker = Worker<SimRing, SimHost>;
type SimFeeder = Feeder<SimRing, FeedHost>;

#[derive(Debug)]
enum Actor {
    Worker(Box<SimWorker>),
    /// Of this channel.
    Feeder(usize, Box<SimFeeder>),
}

/// Where an actor waits.
#[derive(Debug)]
struct Seat {
    /// `None` while it acts, and after its end.
    actor: Option<Actor>,
    flights: Flights,
    counter: Handle,
    /// For how long it waits.
    until_us: u64,
    /// It is in the middle of a turn.
    waits: bool,
    /// A feeder waits by itself at its end.
    is_closing: Rc<Cell<bool>>,
}

/// How a feeder ended.
#[derive(Debug)]
pub(super) struct Fed {
    pub(super) result: Result<(), Error>,
    pub(super) count: FeedCount,
    pub(super) over_us: u64,
}

/// All workers and feeders of a run.
#[derive(Debug)]
pub(crate) struct Stage {
    world: Shared,
    scheduler: Arc<Scheduler>,
    seats: RefCell<Vec<Seat>>,
    chance: RefCell<Chance>,
    turns: Cell<u64>,
    /// How the feeder of each channel ended.
    fed: RefCell<Vec<Option<Fed>>>,
    /// Workers that have nothing more to do.
    done: RefCell<Vec<SimWorker>>,
    /// A feeder takes everything back. It does so in one call, so one that ended meanwhile and
    /// held its readers for long would keep it from its work.
    settles: Cell<bool>,
}

impl Stage {
    pub(super) fn new(world: &Shared, scheduler: &Arc<Scheduler>, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            world: Rc::clone(world),
            scheduler: Arc::clone(scheduler),
            seats: RefCell::default(),
            chance: RefCell::new(Chance(seed ^ 0x57a6e)),
            turns: Cell::new(0),
            fed: RefCell::default(),
            done: RefCell::default(),
            settles: Cell::new(false),
        })
    }

    /// The feeder that ends has taken everything back, and holds its readers.
    pub(super) fn has_settled(&self) {
        self.settles.set(false);
    }

    fn sit(&self, actor: Actor, flights: Flights, counter: Handle, is_closing: Rc<Cell<bool>>) {
        let actor = Some(actor);
        let seat = Seat { actor, flights, counter, until_us: 0, waits: false, is_closing };
        self.seats.borrow_mut().push(seat);
    }

    pub(super) fn add_worker(&self, worker: SimWorker, flights: Flights, counter: Handle) {
        self.sit(Actor::Worker(Box::new(worker)), flights, counter, Rc::default());
    }

    /// Adds the feeder of the next channel.
    pub(super) fn add_feeder(
        self: &Rc<Self>,
        parts: impl FnOnce(SimRing, FeedHost) -> FeederParts<SimRing, FeedHost>,
    ) {
        let channel = self.fed.borrow().len();
        let (world, stage) = (Rc::clone(&self.world), Rc::downgrade(self));
        let is_closing = Rc::new(Cell::new(false));
        let owner =
            Owner::Feeder { stage: Weak::clone(&stage), is_closing: Rc::clone(&is_closing) };
        let ring = SimRing::new(Rc::clone(&world), owner);
        let flights = ring.flights();
        let parts = parts(ring, FeedHost { world, stage, channel });
        let counter = parts.counter.clone();
        let fed = match Feeder::new(parts) {
            Ok(feeder) => {
                self.sit(Actor::Feeder(channel, Box::new(feeder)), flights, counter, is_closing);
                None
            }
            Err(result) => {
                Some(Fed { result: Err(result), count: FeedCount::default(), over_us: 0 })
            }
        };
        self.fed.borrow_mut().push(fed);
    }

    /// Goes on until all feeders have ended; how they did.
    pub(super) fn feed(&self) -> Vec<Fed> {
        let is_over = || self.fed.borrow().iter().all(Option::is_some);
        self.play(|_| if is_over() { 0 } else { u64::MAX }, u64::MAX);
        self.fed.take().into_iter().flatten().collect()
    }

    /// Goes on until all workers have ended; returns them.
    pub(super) fn finish(&self) -> Vec<SimWorker> {
        let is_over = || self.seats.borrow().iter().all(|seat| seat.actor.is_none());
        self.play(|_| if is_over() { 0 } else { u64::MAX }, u64::MAX);
        self.done.take()
    }

    /// Goes on until something of its own is to be done (`next_us`), but not longer than to
    /// `until_us`.
    pub(super) fn play(&self, next_us: impl Fn(&World) -> u64, until_us: u64) {
        loop {
            self.world.borrow_mut().step();
            self.listen();
            let due = self.due();
            let mut world = self.world.borrow_mut();
            let own_us = next_us(&world).min(until_us);
            if own_us <= world.now_us {
                return;
            }
            if due.is_empty() {
                let next_us = self.next_us(&world).min(world.next_us()).min(own_us);
                assert!(next_us < u64::MAX, "nobody ever does anything more");
                world.now_us = world.now_us.max(next_us);
                world.advance_network();
                continue;
            }
            drop(world);
            let pick = self.chance.borrow_mut().below(due.len() as u64);
            self.call(due[usize::try_from(pick).expect("small")]);
        }
    }

    /// Wakes those whose counters are raised.
    fn listen(&self) {
        let seats = self.seats.borrow();
        let counters = seats.iter().map(|seat| {
            let Handle::Descriptor(counter) = &seat.counter else { unreachable!("a counter") };
            rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)
        });
        let mut polls: Vec<_> = counters.collect();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut polls, Some(&now)).expect("a poll") == 0 {
            return;
        }
        let raised = polls.iter().zip(seats.iter()).filter(|(poll, _)| !poll.revents().is_empty());
        let mut world = self.world.borrow_mut();
        raised.for_each(|(_, seat)| seat.flights.wake(&mut world));
    }

    /// When the next of them has something to do.
    fn next_us(&self, world: &World) -> u64 {
        let seats = self.seats.borrow();
        let here = seats.iter().filter(|seat| seat.actor.is_some());
        let next = here.map(|seat| seat.flights.next_us(world).min(seat.until_us));
        next.min().unwrap_or(u64::MAX)
    }

    /// Those who have something to do now.
    fn due(&self) -> Vec<usize> {
        let (seats, world) = (self.seats.borrow(), self.world.borrow());
        let is_due = |seat: &Seat| {
            let is_time = || seat.until_us <= world.now_us;
            seat.actor.is_some() && (is_time() || seat.flights.next_us(&world) <= world.now_us)
        };
        let due = seats.iter().enumerate().filter(|(_, seat)| is_due(seat));
        due.map(|(index, _)| index).collect()
    }

    /// Lets one of them finish its turn and begin the next.
    fn call(&self, index: usize) {
        self.turns.set(self.turns.get() + 1);
        assert!(self.turns.get() < TURNS_MAX, "the run hangs");
        let (mut actor, waits) = {
            let seat = &mut self.seats.borrow_mut()[index];
            (seat.actor.take().expect("it is here"), seat.waits)
        };
        if waits {
            let waited = match &mut actor {
                Actor::Worker(worker) => worker.wait(0),
                Actor::Feeder(_, feeder) => feeder.wait(0),
            };
            waited.expect("a simulated ring does not fail");
        }
        let wait_us = match &mut actor {
            Actor::Worker(worker) => worker.prepare(),
            Actor::Feeder(_, feeder) => feeder.prepare(),
        };
        let now_us = self.world.borrow().now_us;
        let wait_us = match wait_us {
            Some(wait_us) => wait_us,
            None if matches!(actor, Actor::Feeder(..)) && self.settles.get() => {
                let seat = &mut self.seats.borrow_mut()[index];
                (seat.actor, seat.until_us) = (Some(actor), now_us + END_PUT_OFF_US);
                seat.waits = false;
                return;
            }
            None => return self.end(index, actor),
        };
        let seat = &mut self.seats.borrow_mut()[index];
        (seat.actor, seat.until_us, seat.waits) = (Some(actor), now_us + wait_us, true);
    }

    fn end(&self, index: usize, actor: Actor) {
        match actor {
            Actor::Worker(mut worker) => {
                worker.run().expect("nothing is left to do");
                self.done.borrow_mut().push(*worker);
                let is_worker = |seat: &Seat| matches!(seat.actor, Some(Actor::Worker(_)));
                if !self.seats.borrow().iter().any(is_worker) {
                    // Requests that nobody has begun complete, too.
                    assert!(self.scheduler.abandon().is_empty(), "there are no objects");
                }
            }
            Actor::Feeder(channel, mut feeder) => {
                let is_closing = Rc::clone(&self.seats.borrow()[index].is_closing);
                is_closing.set(true);
                self.settles.set(true);
                let result = feeder.run();
                self.settles.set(false);
                assert_eq!(feeder.in_flight(), 0, "nothing is under way any more");
                let (count, over_us) = (feeder.count().clone(), self.world.borrow().now_us);
                self.fed.borrow_mut()[channel] = Some(Fed { result, count, over_us });
            }
        }
    }
}
