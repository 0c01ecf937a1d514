//! The simulated ring of a worker or a feeder: what the kernel owns, when it completes, and what
//! gets lost.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use inrush::limits::{EMPTY_OBJECTS_PER_TURN_MAX, TURN_WAIT_MAX_US};
use inrush::sys::{Completion, Errno, Handle, Op, Ring, descriptor};

use super::crew::is_raised;
use super::seeds;
use super::stage::Stage;
use super::world::{Shared, World};

/// A poll that completes for nothing does so after this time at the earliest, in microseconds.
const POLL_US: u64 = 10_000;

/// A process is stopped for this time at least, in microseconds.
pub(super) const STOP_US: u64 = 500_000;

/// Cancels of a feeder's operation that are lost in a row, at most.
pub(super) const LOST_CANCELS_MAX: u32 = 3;

/// An operation that the simulated kernel owns.
#[derive(Debug)]
pub(super) struct Flight {
    token: u64,
    op: Op,
    /// When it completes; `u64::MAX` when only a cancel ends it.
    ready_us: u64,
    /// When it completes for nothing.
    spurious_us: u64,
    cancelled: bool,
    /// Cancels of it that were lost.
    lost: u32,
    /// It misses every wake-up.
    deaf: bool,
}

impl Flight {
    /// When it completes, as far as that is known now.
    fn next_us(&self, world: &World) -> u64 {
        match self.cancelled {
            true => 0,
            false if world.is_due(&self.op) => self.ready_us.min(self.spurious_us),
            false => self.spurious_us,
        }
    }

    fn waits_for_counter(&self, world: &World) -> bool {
        matches!(&self.op, Op::Poll { handle, .. } if world.is_counter(handle))
    }
}

/// What the kernel owns of one ring, for those who let time pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flights(Rc<RefCell<Vec<Flight>>>);

impl Flights {
    /// When the first of them completes; 0 for at once.
    pub(super) fn next_us(&self, world: &World) -> u64 {
        self.0.borrow().iter().map(|flight| flight.next_us(world)).min().unwrap_or(u64::MAX)
    }

    /// Ends the wait for a counter that is raised. The wake-up may be lost.
    pub(super) fn wake(&self, world: &mut World) {
        let mut flights = self.0.borrow_mut();
        let waits = flights.iter_mut().find(|flight| flight.waits_for_counter(world));
        let Some(flight) = waits.filter(|flight| !flight.cancelled && !flight.deaf) else { return };
        let Op::Poll { handle, .. } = &flight.op else { unreachable!("a poll") };
        let rate = (world.rates.network_per_mille * 4).min(500);
        if flight.ready_us > world.now_us && world.chance.hits(rate) {
            descriptor::lower(handle);
            world.count("wake-up lost");
        } else {
            flight.ready_us = flight.ready_us.min(world.now_us);
        }
    }
}

/// Whose ring it is.
#[derive(Debug, Clone)]
pub(super) enum Owner {
    /// A worker of this number that is called in turns: time passes when it waits.
    Lone(usize),
    /// A worker on a stage: time passes for all.
    Worker,
    /// A feeder on a stage. At its end it waits by itself: then the others go on.
    Feeder { stage: Weak<Stage>, is_closing: Rc<Cell<bool>> },
}

/// A ring over the world.
#[derive(Debug)]
pub(crate) struct SimRing {
    world: Shared,
    owner: Owner,
    flights: Flights,
    done: Vec<Completion>,
    /// The last three calls of a turn.
    calls: [Call; 3],
    /// When they were made: each look at the clock moves it.
    called_us: u64,
    /// The first completion that was taken after the last entry.
    first: Option<u64>,
}

/// A call of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Enter,
    Submit(u64),
    Cancel(u64),
}

impl SimRing {
    pub(super) fn new(world: Shared, owner: Owner) -> Self {
        let (flights, calls) = (Flights::default(), [Call::Enter; 3]);
        Self { world, owner, flights, done: Vec::new(), calls, called_us: 0, first: None }
    }

    /// What the kernel owns of it.
    pub(super) fn flights(&self) -> Flights {
        self.flights.clone()
    }

    fn is_feeder(&self) -> bool {
        matches!(self.owner, Owner::Feeder { .. })
    }

    /// Notes a call, and that no connection takes a range from its rival only to be ended itself.
    fn note(&mut self, call: Call) {
        if self.is_feeder() {
            return;
        }
        let now_us = self.world.borrow().now_us;
        if std::mem::replace(&mut self.called_us, now_us) != now_us {
            // Another turn has begun: the run may have been stopped meanwhile.
            self.calls = [Call::Enter; 3];
        }
        // Of the first completion of a turn alone it is known which calls follow from it.
        if let [Call::Enter, Call::Cancel(_), Call::Submit(begun)] = self.calls
            && self.first == Some(begun)
        {
            assert!(call != Call::Cancel(begun), "a rival was ended for nothing");
        }
        self.calls = [self.calls[1], self.calls[2], call];
    }

    /// Lets a raised counter end the wait for it.
    fn look_at_counters(&mut self) {
        let mut world = self.world.borrow_mut();
        let is_woken = |flight: &Flight| match &flight.op {
            Op::Poll { handle, .. } if world.is_counter(handle) => is_raised(handle),
            _ => false,
        };
        if self.flights.0.borrow().iter().any(is_woken) {
            self.flights.wake(&mut world);
        }
    }

    /// How long a poll waits: until it is ready, and when it completes for nothing; and whether it
    /// misses its wake-up.
    fn poll_times(&self, world: &mut World, handle: &Handle, delay: u64) -> (u64, u64, bool) {
        let now_us = world.now_us;
        if world.is_counter(handle) {
            let lost_per_mille = world.plumbing.lost_per_mille;
            let is_lost = self.is_feeder() && world.chance.hits(lost_per_mille);
            if is_lost {
                world.count("lost wake-up");
            }
            // A counter ends it, see `look_at_counters`; or it completes for nothing.
            let rate = 4 * world.rates.network_per_mille;
            let is_spurious = !self.is_feeder() && world.chance.hits(rate);
            return (
                u64::MAX,
                if is_spurious { now_us + POLL_US + delay } else { u64::MAX },
                is_lost,
            );
        }
        let rate = world.plumbing.spurious_per_mille;
        let is_spurious = rate > 0 && world.chance.hits(rate);
        let spurious_us = if is_spurious { now_us + POLL_US + delay } else { u64::MAX };
        (now_us + delay, spurious_us, false)
    }

    /// Gives back what is done now.
    fn complete_all(&mut self) {
        let mut world = self.world.borrow_mut();
        let mut flights = self.flights.0.borrow_mut();
        let mut index = 0;
        while index < flights.len() {
            if flights[index].next_us(&world) > world.now_us {
                index += 1;
                continue;
            }
            let mut flight = flights.swap_remove(index);
            let is_due = flight.ready_us <= world.now_us && world.is_due(&flight.op);
            let result = if is_due || flight.cancelled {
                world.complete(&mut flight.op, flight.cancelled)
            } else {
                world.count("spurious");
                let Op::Poll { events, .. } = &flight.op else { unreachable!("a poll") };
                Some(Ok(u32::from(*events)))
            };
            if let Some(result) = result {
                let Flight { token, op, cancelled, .. } = flight;
                if cancelled {
                    let is_late = result != Err(Errno::CANCELED);
                    seeds::note(if is_late { "cancel too late" } else { "cancelled" }, 1);
                }
                // What polls again and again for nothing spins.
                let is_event = cancelled || !matches!(op, Op::Poll { .. });
                world.plumbing.events += u64::from(is_event);
                self.done.push(Completion { token, op, result });
            } else {
                // It hangs: only a cancel ends it.
                flights.push(Flight { ready_us: u64::MAX, ..flight });
                index += 1;
            }
        }
    }
}

impl Ring for SimRing {
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op> {
        let is_new = |flight: &Flight| flight.token != token;
        assert!(self.flights.0.borrow().iter().all(is_new), "tokens are unique");
        self.note(Call::Submit(token));
        let mut world = self.world.borrow_mut();
        world.check_submit(&op);
        let rates = world.rates;
        if world.chance.hits(rates.network_per_mille / 8) {
            let what = if self.is_feeder() { "ring full for a watch" } else { "ring full" };
            world.count(what);
            return Err(op);
        }
        // Some take far longer than others, and come all the same.
        let is_slow = rates.hang_per_mille > 0 && world.chance.hits(rates.hang_per_mille / 2);
        let is_slow = is_slow && !self.is_feeder();
        let delay =
            if is_slow { 50_000 << world.chance.below(6) } else { world.chance.below(2000) };
        let never = matches!(op, Op::Connect { .. }) && world.chance.hits(rates.hang_per_mille);
        let (ready_us, spurious_us, deaf) = match &op {
            _ if never => {
                world.count("hang");
                (u64::MAX, u64::MAX, false)
            }
            Op::Poll { handle, .. } => self.poll_times(&mut world, handle, delay),
            _ => (world.now_us + delay, u64::MAX, false),
        };
        seeds::note("slow operation", u64::from(is_slow && ready_us < u64::MAX));
        let ready_us = world.done_us(&op, ready_us);
        let flight = Flight { token, op, ready_us, spurious_us, cancelled: false, lost: 0, deaf };
        self.flights.0.borrow_mut().push(flight);
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        self.note(Call::Cancel(token));
        let mut world = self.world.borrow_mut();
        let mut flights = self.flights.0.borrow_mut();
        let found = flights.iter_mut().find(|flight| flight.token == token);
        if self.is_feeder() {
            let Some(flight) = found else { return };
            let rate = world.plumbing.lost_per_mille;
            if flight.lost < LOST_CANCELS_MAX && world.chance.hits(rate) {
                flight.lost += 1;
                return world.count("lost cancel");
            }
            flight.cancelled = true;
            return;
        }
        let rate = (world.rates.network_per_mille * 4).max(world.plumbing.lost_per_mille).min(500);
        if world.chance.hits(rate) {
            return world.count("cancel lost");
        }
        if let Some(flight) = found {
            flight.cancelled = true;
        }
    }

    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        self.note(Call::Enter);
        self.first = None;
        match &self.owner {
            Owner::Lone(_) => self.look_at_counters(),
            Owner::Feeder { stage, is_closing } if is_closing.get() => {
                let until_us = self.world.borrow().now_us + wait_us;
                let stage = stage.upgrade().expect("it is played on a stage");
                stage.play(|world| self.flights.next_us(world), until_us);
            }
            Owner::Worker | Owner::Feeder { .. } => {}
        }
        let mut world = self.world.borrow_mut();
        world.serve_waiting();
        let at_work = std::mem::take(&mut world.made_empty) == EMPTY_OBJECTS_PER_TURN_MAX;
        assert!(!at_work || wait_us == 0, "a worker that left work for its next turn sleeps");
        if !matches!(self.owner, Owner::Feeder { .. }) {
            // On a stage the time has come already, and nothing is waited for. Elsewhere a worker
            // that waits for long returns for nothing now and then, because the others act only
            // between its turns.
            let until_us = world.now_us + wait_us.min(TURN_WAIT_MAX_US);
            let next_job_us = match &self.owner {
                Owner::Lone(worker) => world.next_job_us(*worker),
                _ => u64::MAX,
            };
            let next_us = self.flights.next_us(&world).min(world.next_look_us()).min(next_job_us);
            world.now_us = world.now_us.max(next_us.min(until_us));
        }
        let before_us = world.now_us;
        world.pause("stopped in the ring", STOP_US);
        if world.now_us > before_us {
            // What was on its way needed the worker, too, and goes on now.
            let mut flights = self.flights.0.borrow_mut();
            for flight in flights.iter_mut().filter(|flight| flight.ready_us != u64::MAX) {
                flight.ready_us = world.now_us + world.chance.below(2000);
            }
        }
        world.advance_network();
        drop(world);
        self.complete_all();
        // Completions come in any order.
        let mut world = self.world.borrow_mut();
        for last in (1..self.done.len()).rev() {
            let other = usize::try_from(world.chance.below(last as u64 + 1)).expect("small");
            self.done.swap(last, other);
        }
        Ok(())
    }

    fn reap(&mut self) -> Option<Completion> {
        let completion = self.done.pop()?;
        self.first.get_or_insert(completion.token);
        Some(completion)
    }

    fn in_flight(&self) -> usize {
        self.flights.0.borrow().len() + self.done.len()
    }
}
