//! The real workers as the simulations make them.

use std::rc::Rc;
use std::sync::Arc;

use inrush::engine::metrics::Gauge;
use inrush::engine::pace::Pacer;
use inrush::engine::peers::SharedAddresses;
use inrush::engine::schedule::Scheduler;
use inrush::engine::worker::{Parts, Worker};
use inrush::files::sink::Sink;
use inrush::limits::{CONTROL_SLOT_BYTES, SLOT_BYTES_MIN, TLS_SLOT_BYTES_MIN};
use inrush::link::attempt::RetryPolicy;
use inrush::sys::{Handle, Pool, Region};

use super::host::SimHost;
use super::ring::{Flights, Owner, SimRing};
use super::secure::Sides;
use super::world::Shared;

/// A worker, the pools that must be whole at its end, and what it was given.
pub(crate) struct Simulated {
    pub(crate) worker: Worker<SimRing, SimHost>,
    pub(crate) data: Pool,
    pub(crate) control: Pool,
    pub(crate) cipher: Option<Pool>,
    pub(crate) slots: usize,
    pub(crate) connections: usize,
    /// What the kernel owns of its ring.
    pub(super) flights: Flights,
}

/// What all workers of a run share.
pub(crate) struct Crew {
    pub(crate) world: Shared,
    pub(crate) pacer: Arc<Pacer>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) sink: Sink,
    pub(crate) addresses: Arc<SharedAddresses>,
}

impl Crew {
    /// Adds a worker that is called in turns; `size` is its connections and slots.
    pub(crate) fn worker(
        &self,
        number: usize,
        counter: Handle,
        size: (usize, usize),
        sides: Option<&Sides>,
    ) -> Simulated {
        self.worker_of(Owner::Lone(number), number, counter, size, sides)
    }

    /// Adds a worker whose ring belongs to `owner`.
    pub(super) fn worker_of(
        &self,
        owner: Owner,
        number: usize,
        counter: Handle,
        (connections, slots): (usize, usize),
        sides: Option<&Sides>,
    ) -> Simulated {
        let lengths = connections * (CONTROL_SLOT_BYTES + TLS_SLOT_BYTES_MIN) as usize;
        let region = Region::new(lengths + slots * SLOT_BYTES_MIN as usize).expect("memory");
        let data = region.carve(slots * SLOT_BYTES_MIN as usize).expect("room");
        let control = region.carve(connections * CONTROL_SLOT_BYTES as usize).expect("room");
        let data = Pool::new(data, SLOT_BYTES_MIN);
        let control = Pool::new(control, CONTROL_SLOT_BYTES);
        let cipher = sides.map(|_| {
            let length = connections * TLS_SLOT_BYTES_MIN as usize;
            Pool::new(region.carve(length).expect("room"), TLS_SLOT_BYTES_MIN)
        });
        let ring = SimRing::new(Rc::clone(&self.world), owner);
        let flights = ring.flights();
        let worker = Worker::new(Parts {
            ring,
            host: SimHost::new(Rc::clone(&self.world), number),
            data: data.clone(),
            control: control.clone(),
            tls: sides.map(|sides| Arc::clone(&sides.client)).zip(cipher.clone()),
            connections,
            pacer: Arc::clone(&self.pacer),
            retries: RetryPolicy { attempts_max: 12, ..RetryPolicy::default() },
            sink: self.sink,
            scheduler: Arc::clone(&self.scheduler),
            number,
            counter,
            gauge: Arc::new(Gauge::default()),
            addresses: Arc::clone(&self.addresses),
        });
        Simulated { worker, data, control, cipher, slots, connections, flights }
    }
}

/// True when somebody has raised an event counter, and nobody has lowered it.
pub(super) fn is_raised(handle: &Handle) -> bool {
    let Handle::Descriptor(counter) = handle else { unreachable!("a counter") };
    let mut polls = [rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0
}
