//! Requests into leased slots beside others into memory, and beside files, with a client that keeps
//! what it has: each completes once with the right bytes, and who waits for a lease holds up
//! nothing else. Memory that has come back is the client's again: nobody writes there any more.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use inrush::engine::lease::{Lease, leases_alone_of, leases_of};
use inrush::engine::metrics::WorkerMetrics;
use inrush::engine::peers::SharedAddresses;
use inrush::engine::request::{ClientRequest, Completion, Destination, Inbox, Priority, Ticket};
use inrush::engine::schedule::Scheduler;
use inrush::error::{Error, ErrorKind};
use inrush::files::file_download::{Cut, FileDownload};
use inrush::files::sink::Sink;
use inrush::limits::{SLOT_BYTES_MIN, TURN_WAIT_MAX_US};
use inrush::link::object::ObjectRef;
use inrush::plan::ranges::PartSize;
use inrush::s3::ByteRange;
use inrush::sys::{Handle, Ring, descriptor};

use super::chance::Chance;
use super::crew::{Crew, Simulated};
use super::origin::Rates;
use super::world::{Shared, World};
use super::{CALM, TURNS_MAX, endpoint, note, object, pacer, secure, seeds, tally};

/// What a client writes into memory that has come back.
const POISON: u8 = 0x5a;

/// What is run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rates: Rates,
    tls: bool,
    workers: usize,
    requests: u64,
    files: u64,
    /// Thousandths of the requests that are for leases; the others are for memory.
    lease_per_mille: u64,
    /// Thousandths of the turns that cancel a request.
    cancel_per_mille: u64,
    /// The run is stopped in the middle.
    stop: bool,
    /// Thousandths of the cancels that are lost, at least.
    lost_per_mille: u64,
}

/// A request that has not completed.
struct Asked {
    key: String,
    range: ByteRange,
    ticket: Arc<Ticket>,
    for_lease: bool,
}

/// Who asks, and keeps what comes for as long as anything else is under way.
struct Client {
    chance: Chance,
    world: Shared,
    scheduler: Arc<Scheduler>,
    inbox: Arc<Inbox>,
    /// How many leases all workers may give.
    most: usize,
    left: u64,
    asked: BTreeMap<u64, Asked>,
    /// What was cancelled and had not completed.
    cancelled: Vec<u64>,
    leases: Vec<(Asked, Lease)>,
    /// Memory that has come back, and was filled with [`POISON`].
    given_back: Vec<Vec<u8>>,
    is_stopped: bool,
    /// Files that have not ended.
    files: u64,
    /// The longest time from a drop to the next lease, in microseconds.
    longest_us: u64,
    dropped_us: Option<u64>,
}

impl Client {
    fn range(&mut self, size: u64, for_lease: bool) -> ByteRange {
        let slot = u64::from(SLOT_BYTES_MIN);
        let most = if for_lease { slot.min(size) } else { size };
        let length = match self.chance.below(4) {
            0 => most,
            1 => 1 + self.chance.below(most.min(200)),
            _ => 1 + self.chance.below(most),
        };
        ByteRange { offset: self.chance.below(size - length + 1), length }
    }

    fn ask(&mut self, plan: Plan) {
        self.left -= 1;
        let token = self.left;
        let key = format!("r{}-{}", self.chance.below(5), 1 + self.chance.below(300_000));
        let for_lease = self.chance.hits(plan.lease_per_mille);
        let object = object(&key);
        let range = self.range(object.size_bytes, for_lease);
        let object = Arc::new(ObjectRef::new(object, endpoint(token % 2, plan.tls)));
        let ticket = Arc::new(Ticket::new(token, Arc::clone(&self.inbox)));
        let length = usize::try_from(range.length).expect("small");
        let into = match for_lease {
            true => Destination::Lease(Lease::new()),
            false if token.is_multiple_of(3) => Destination::Place(Box::new(vec![0u8; length])),
            false => Destination::Memory(vec![0; length]),
        };
        let request = ClientRequest::new(Arc::clone(&ticket), into);
        self.asked.insert(token, Asked { key, range, ticket, for_lease });
        let urgent = self.chance.hits(300);
        let priority = if urgent { Priority::High } else { Priority::Normal };
        self.scheduler.submit(object, range, request, priority);
    }

    fn cancel(&mut self) {
        let pick = usize::try_from(self.chance.below(self.asked.len() as u64)).expect("small");
        let (token, asked) = self.asked.iter().nth(pick).expect("one of them");
        asked.ticket.cancel();
        note("request cancelled", 1);
        self.cancelled.push(*token);
        self.scheduler.cancel();
    }

    /// Nothing but what waits for a lease that the client has.
    fn has_all_else(&self) -> bool {
        let others = self.asked.values().filter(|asked| !asked.for_lease).count();
        self.left == 0 && others == 0 && self.files == 0
    }

    fn take(&mut self) {
        let mut arrived = Vec::new();
        self.inbox.collect(&mut arrived);
        for Completion { token, into, result } in arrived {
            let asked = self.asked.remove(&token).expect("each completes once");
            let may_fail = self.cancelled.contains(&token) || self.is_stopped;
            if let Err(error) = &result {
                let was_ended = may_fail && error.kind() == ErrorKind::Interrupted;
                assert!(was_ended || self.world.borrow().has_refused(error), "{error}");
            }
            match into {
                Destination::Lease(lease) if result.is_ok() => {
                    note("lease", 1);
                    if let Some(since_us) = self.dropped_us.take() {
                        let now_us = self.world.borrow().now_us;
                        self.longest_us = self.longest_us.max(now_us - since_us);
                    }
                    self.check(&asked, &lease);
                    self.leases.push((asked, lease));
                }
                Destination::Lease(lease) => assert!(lease.is_empty() && asked.for_lease),
                into => {
                    let mut bytes = memory_of(into);
                    assert!(!asked.for_lease && bytes.len() as u64 == asked.range.length);
                    if result.is_ok() {
                        self.check(&asked, &bytes);
                    }
                    bytes.fill(POISON);
                    self.given_back.push(bytes);
                }
            }
        }
        assert!(self.leases.len() <= self.most, "no more leases than there may be");
    }

    fn check(&self, asked: &Asked, bytes: &[u8]) {
        let model = self.world.borrow_mut().model(&asked.key);
        let at = |place: u64| usize::try_from(place).expect("small");
        let range = at(asked.range.offset)..at(asked.range.offset + asked.range.length);
        assert!(bytes == &model[range], "{}: wrong bytes of {:?}", asked.key, asked.range);
    }

    /// Gives a lease back, as it was when it came.
    fn give_back(&mut self) {
        let pick = usize::try_from(self.chance.below(self.leases.len() as u64)).expect("small");
        let (asked, lease) = self.leases.swap_remove(pick);
        self.check(&asked, &lease);
        let is_awaited = self.asked.values().any(|asked| asked.for_lease);
        note("lease waited for", u64::from(is_awaited));
        self.dropped_us = is_awaited.then(|| self.world.borrow().now_us);
        match self.chance.hits(200) {
            true => std::thread::spawn(move || drop(lease)).join().expect("no panic"),
            false => drop(lease),
        }
    }

    /// What it does between two turns of workers; false when it wants nothing more.
    fn step(&mut self, plan: Plan) -> bool {
        self.take();
        if self.left > 0 && self.chance.hits(300) {
            self.ask(plan);
        }
        if !self.asked.is_empty() && self.chance.hits(plan.cancel_per_mille) {
            self.cancel();
        }
        let mut outcomes = Vec::new();
        self.scheduler.collect(&mut outcomes);
        for outcome in outcomes {
            self.files -= 1;
            if let Err(error) = outcome.result {
                assert!(self.is_stopped || self.world.borrow().has_refused(&error), "{error}");
            }
        }
        // One lease after the other, each when the one before has been given to somebody.
        let is_full = self.leases.len() == self.most || self.asked.is_empty();
        if is_full && !self.leases.is_empty() && self.has_all_else() && self.chance.hits(500) {
            self.give_back();
        }
        let keeps_some = self.leases.len() > 2;
        !self.has_all_else() || !self.asked.is_empty() || keeps_some
    }
}

fn files(plan: Plan) -> impl Iterator<Item = FileDownload> {
    let part = PartSize::new(u64::from(SLOT_BYTES_MIN) * 2).expect("aligned");
    let cut = Cut { part, slot_length_bytes: SLOT_BYTES_MIN };
    (0..plan.files).map(move |number| {
        let key = format!("f{number}-{}", number * 40_000);
        FileDownload::new(object(&key), endpoint(0, plan.tls), key, cut)
    })
}

/// Runs a plan to its end; returns the client.
fn run(seed: u64, plan: Plan) -> Client {
    let mut chance = Chance(seed ^ 0x1ea5e);
    let world = World::new(seed, plan.rates);
    let sides = plan.tls.then(|| secure::sides(seed));
    world.borrow_mut().sides.clone_from(&sides);
    world.borrow_mut().plumbing.lost_per_mille = plan.lost_per_mille;
    let counter = |_| descriptor::event_counter().expect("a descriptor");
    let counters: Vec<Handle> = (0..plan.workers).map(counter).collect();
    let scheduler = Arc::new(Scheduler::new(counters.clone()));
    let crew = Crew {
        world: Rc::clone(&world),
        pacer: pacer(&mut chance, plan.workers),
        addresses: Arc::new(SharedAddresses::default()),
        scheduler: Arc::clone(&scheduler),
        sink: Sink::File,
    };
    let (mut workers, mut most) = (Vec::new(), 0);
    for (number, counter) in counters.into_iter().enumerate() {
        let connections = 1 + usize::try_from(chance.below(5)).expect("small");
        let slots = 2 + usize::try_from(chance.below(7)).expect("small");
        workers.push(crew.worker(number, counter, (connections, slots), sides.as_ref()));
        if plan.files == 0 {
            scheduler.leases(number).set_most(leases_alone_of(slots));
            most += leases_alone_of(slots);
        } else {
            most += leases_of(slots);
        }
    }
    scheduler.push(files(plan));
    let inbox = Arc::new(Inbox::new(descriptor::event_counter().expect("a descriptor"), None));
    let mut client = Client {
        chance: Chance(seed ^ 0xc11e),
        world: Rc::clone(&world),
        scheduler: Arc::clone(&scheduler),
        inbox,
        most,
        left: plan.requests,
        asked: BTreeMap::new(),
        cancelled: Vec::new(),
        leases: Vec::new(),
        given_back: Vec::new(),
        is_stopped: false,
        files: plan.files,
        longest_us: 0,
        dropped_us: None,
    };
    let stop_at = if plan.stop { chance.below(300) } else { u64::MAX };
    let mut running: Vec<usize> = (0..workers.len()).collect();
    let (mut turns, mut is_complete) = (0u64, false);
    while !running.is_empty() {
        turns += 1;
        assert!(turns < TURNS_MAX as u64, "the run hangs with {} asked", client.asked.len());
        if turns == stop_at {
            client.is_stopped = true;
            note("run stopped", 1);
            scheduler.stop(Error::new(ErrorKind::Interrupted, "stopped"));
        }
        let pick = usize::try_from(chance.below(running.len() as u64)).expect("small");
        if !workers[running[pick]].worker.turn().expect("a simulated ring does not fail") {
            running.swap_remove(pick);
        }
        if !client.is_stopped && !client.step(plan) && !is_complete {
            is_complete = true;
            scheduler.complete();
        }
    }
    end(&mut client, workers);
    client
}

/// Looks at what is left when the workers have ended.
fn end(client: &mut Client, workers: Vec<Simulated>) {
    // Files whose ranges were never handed out, after a stop.
    let _ = client.scheduler.abandon();
    client.take();
    assert!(client.asked.is_empty(), "every request has completed");
    let mut total = WorkerMetrics::default();
    let (mut free, mut count) = (0, 0);
    let mut pools = Vec::new();
    for Simulated { mut worker, data, slots, .. } in workers {
        worker.run().expect("nothing is left to do");
        let (metrics, ring, _host) = worker.into_parts();
        assert_eq!(ring.in_flight(), 0, "the kernel owns nothing");
        total.add(&metrics);
        free += data.free();
        count += slots;
        pools.push(data);
    }
    assert_eq!(free + client.leases.len(), count, "every slot is back, or leased");
    for (asked, lease) in std::mem::take(&mut client.leases) {
        client.check(&asked, &lease);
    }
    tally::note_sent(&total.sent);
    tally::note_workers(&total);
    assert!(pools.iter().all(|pool| pool.free() == pool.count()), "every slot is back");
    for bytes in &client.given_back {
        assert!(bytes.iter().all(|byte| *byte == POISON), "somebody has written to it since");
    }
}

/// A client's memory, as it came back.
fn memory_of(into: Destination) -> Vec<u8> {
    match into {
        Destination::Memory(bytes) => bytes,
        Destination::Place(place) => {
            let place: Box<dyn Any> = place;
            *place.downcast().expect("a vector was lent")
        }
        into => panic!("{into:?} was not asked for"),
    }
}

const PLAN: Plan = Plan {
    rates: CALM,
    tls: false,
    workers: 2,
    requests: 30,
    files: 8,
    lease_per_mille: 600,
    cancel_per_mille: 0,
    stop: false,
    lost_per_mille: 0,
};

#[test]
fn who_keeps_all_leases_holds_up_nothing_else() {
    seeds("who_keeps_all_leases_holds_up_nothing_else", 200, |seed| {
        run(seed, Plan { tls: seed % 4 == 0, ..PLAN });
    });
}

/// A worker that sleeps because all leases are out is woken by the one that comes back; without
/// that it would look again only after its longest sleep.
#[test]
fn a_lease_that_comes_back_wakes_its_worker() {
    seeds("a_lease_that_comes_back_wakes_its_worker", 100, |seed| {
        let longest_us = run(seed, Plan { workers: 1, files: 0, ..PLAN }).longest_us;
        assert!(longest_us < TURN_WAIT_MAX_US / 2, "the next one came after {longest_us} us");
    });
}

#[test]
fn leases_have_the_right_bytes_whatever_the_network_does() {
    seeds("leases_have_the_right_bytes_whatever_the_network_does", 300, |seed| {
        let rates = Rates { network_per_mille: 20, hang_per_mille: 30, ..CALM };
        let requests = if seed % 3 == 0 { 120 } else { 30 };
        let files = if seed % 5 < 2 { 0 } else { PLAN.files };
        run(seed, Plan { rates, tls: seed % 4 == 0, requests, files, ..PLAN });
    });
}

#[test]
fn leases_that_are_cancelled_or_stopped_complete_once() {
    seeds("leases_that_are_cancelled_or_stopped_complete_once", 300, |seed| {
        let rates = Rates { network_per_mille: 15, hang_per_mille: 15, ..CALM };
        let rates = if seed % 2 == 0 { rates } else { CALM };
        let (stop, cancel_per_mille) = (seed % 3 == 1, 40);
        let files = if seed % 5 < 2 { 0 } else { PLAN.files };
        run(seed, Plan { rates, tls: seed % 4 == 0, stop, cancel_per_mille, files, ..PLAN });
    });
}

/// Without leases and files no slot is waited for: what waits for one is a connection that took a
/// range over, and whose rival's receive into the same memory the kernel had not given back. That
/// takes long here, and what waits may be cancelled or stopped meanwhile.
#[test]
fn memory_is_filled_by_one_at_a_time_and_by_none_after_its_end() {
    seeds("memory_is_filled_by_one_at_a_time_and_by_none_after_its_end", 200, |seed| {
        let rates = Rates { network_per_mille: 15, hang_per_mille: 150, ..CALM };
        let (stop, cancel_per_mille) = (seed % 8 == 1, if seed % 2 == 1 { 60 } else { 0 });
        let plan = Plan { rates, tls: seed % 4 == 0, requests: 60, files: 0, ..PLAN };
        let lost_per_mille = 500;
        let plan = Plan { lease_per_mille: 0, stop, cancel_per_mille, lost_per_mille, ..plan };
        let client = run(seed, plan);
        assert_eq!(client.given_back.len(), 60 - usize::try_from(client.left).expect("small"));
    });
}
