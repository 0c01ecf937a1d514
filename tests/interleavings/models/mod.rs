//! The models, each a test whose name says what must hold in every order.
//!
//! A lost wake-up is a deadlock here: nothing has a timeout.

mod keys;
mod leases;
mod pace;
mod peers;
mod pools;
mod requests;
mod schedule;
mod signals;
mod streams;
mod threads;

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use crate::engine::endpoints::EndpointSet;
use crate::engine::request::{Brought, ClientRequest, Completion, Destination, Inbox, Ticket};
use crate::engine::schedule::{Assignment, Recipient, Room, Scheduler, Supply};
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;
use crate::sync::Arc;
use crate::sys::{Handle, descriptor};

/// How often threads may be interrupted where they could run on. Faults in programs like these
/// have needed at most two (Musuvathi and Qadeer, 2007).
const PREEMPTIONS_MAX: usize = 3;
/// Most steps of one order.
const STEPS_MAX: usize = 20_000;

/// Explores all orders, and prints their number. `LOOM_MAX_PREEMPTIONS` changes the bound.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS_MAX));
    builder.max_branches = STEPS_MAX;
    let orders = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("explored {name} {}", orders.load(Ordering::Relaxed));
}

fn counter() -> Handle {
    descriptor::event_counter().expect("a counter")
}

/// A task whose wake-up raises a counter.
struct Task(Handle);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        descriptor::raise(&self.0);
    }
}

fn waker(counter: &Handle) -> Waker {
    Waker::from(Arc::new(Task(counter.clone())))
}

/// A client with its counter, as the callers of an engine have it.
struct Client {
    counter: Handle,
    inbox: Arc<Inbox>,
}

impl Client {
    fn new() -> Self {
        let counter = counter();
        Self { inbox: Arc::new(Inbox::new(counter.clone(), None)), counter }
    }

    fn request(&self, token: u64, into: Destination) -> (Arc<Ticket>, ClientRequest) {
        let ticket = Arc::new(Ticket::new(token, Arc::clone(&self.inbox)));
        (Arc::clone(&ticket), ClientRequest::new(ticket, into))
    }

    /// The completions that are there.
    fn collect(&self) -> Vec<Completion> {
        let mut arrived = Vec::new();
        self.inbox.collect(&mut arrived);
        arrived
    }

    /// Waits for the next completions.
    fn wait(&self) -> Vec<Completion> {
        loop {
            let arrived = self.collect();
            if !arrived.is_empty() {
                return arrived;
            }
            descriptor::wait(&self.counter);
        }
    }
}

fn object() -> Arc<ObjectRef> {
    Arc::new(ObjectRef::of_bytes(1))
}

const RANGE: ByteRange = ByteRange { offset: 0, length: 1 };
const ONE: Room = Room { ranges: 1, all: 1 };

/// A worker as the scheduler knows it: takes ranges, and sleeps on its counter while there are
/// none, until nothing is left, the run is stopped or the pace holds it back.
fn work(scheduler: &Scheduler, number: usize, counter: &Handle, does: &dyn Fn(Assignment)) {
    work_in(ONE, scheduler, number, counter, does);
}

fn work_in(
    room: Room,
    scheduler: &Scheduler,
    number: usize,
    counter: &Handle,
    does: &dyn Fn(Assignment),
) {
    let mut ready = std::collections::VecDeque::new();
    while !scheduler.is_stopped() {
        match scheduler.take(number, room, EndpointSet::EMPTY, &mut ready) {
            Supply::Given => ready.drain(..).for_each(does),
            Supply::Later => descriptor::wait(counter),
            Supply::Paced | Supply::Ended => return,
        }
    }
}

/// Completes a client's request.
fn complete(assignment: Assignment) {
    let Recipient::Client { request, .. } = assignment.recipient else { panic!("a request") };
    request.complete(Ok(()), Brought::default());
}
