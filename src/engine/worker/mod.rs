//! One thread, one ring, one loop: turns the connections' actions into operations, and completions
//! into events.
//!
//! A turn reads the clock, assigns work to free connections, ends late operations, submits and
//! waits in one system call, reaps all completions, then applies them. Lateness is judged after
//! everything that had arrived was reaped, and by a clock that stands still while the worker itself
//! is busy ([`crate::engine::peers::NetworkClock`]). No memory is allocated per range, and no lock
//! is taken except to get work. Generic over ring and host: tests run the same code in a seeded
//! simulation.

mod account;
mod client;
mod connection;
mod drive;
mod failed;
mod files;
mod hedge;
mod job;
mod link;
mod operation;
mod pace;
mod parked;
mod range;
mod redirects;
mod secure;
mod stream;
mod unserved;
mod verify;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::engine::endpoints::EndpointSet;
use crate::engine::lease::Leases;
use crate::engine::metrics::{Gauge, WaitFor, WorkerMetrics};
use crate::engine::pace::{Pacer, Share};
use crate::engine::peers::{Addresses, NetworkClock, Paces, SharedAddresses};
use crate::engine::request::ClientRequest;
use crate::engine::schedule::{Assignment, Recipient, Scheduler, Supply};
use crate::error::Error;
use crate::files::host::FileHost;
use crate::files::sink::Sink;
use crate::limits::{
    CONTROL_SLOT_BYTES, EMPTY_OBJECTS_PER_TURN_MAX, FILE_JOBS_MAX, IDLE_TIMEOUT_US,
    RANGES_PER_HANDOUT_MAX, TURN_WAIT_MAX_US,
};
use crate::link::attempt::RetryPolicy;
use crate::sys::{Completion, Errno, Handle, Op, POLL_IN, Pool, Ring};
use client::{is_cancelled, refuse};
use connection::{Connection, ConnectionState};
use job::JobState;
use pace::Wait;
use parked::{Parked, parked_max};
use range::{Ranges, Writes};
use unserved::ServedShare;

/// Token of the operation that waits for the event counter.
const TOKEN_WAKE: u64 = 1 << 40;
/// Tokens from here on belong to writes; lower ones are connection numbers.
const TOKEN_WRITE: u64 = 1 << 32;

/// The parts of a worker.
#[derive(Debug)]
pub struct Parts<R, H> {
    /// Its ring.
    pub ring: R,
    /// Its host.
    pub host: H,
    /// Data slots, for connections that receive bytes.
    pub data: Pool,
    /// Control slots of [`CONTROL_SLOT_BYTES`]; one per connection.
    pub control: Pool,
    /// Over TLS: its configuration, and slots for ciphertext, one per connection.
    pub tls: Option<(Arc<ClientConfig>, Pool)>,
    /// Most connections.
    pub connections: usize,
    /// Limits the connections in use.
    pub pacer: Arc<Pacer>,
    /// How long a range is retried.
    pub retries: RetryPolicy,
    /// Where the bytes go.
    pub sink: Sink,
    /// Assigns ranges.
    pub scheduler: Arc<Scheduler>,
    /// Its number among the workers.
    pub number: usize,
    /// Raised when there is work again.
    pub counter: Handle,
    /// Its state for observers.
    pub gauge: Arc<Gauge>,
    /// The workers' shared knowledge of addresses.
    pub addresses: Arc<SharedAddresses>,
}

/// One worker.
#[derive(Debug)]
pub struct Worker<R, H> {
    ring: R,
    host: H,
    data: Pool,
    control: Pool,
    tls: Option<(Arc<ClientConfig>, Pool)>,
    retries: RetryPolicy,
    /// Retries because the endpoint did not answer, or asked for fewer requests: bounded by time,
    /// not by the run's retry budget.
    retries_excused: u64,
    retries_logged: u64,
    sink: Sink,
    scheduler: Arc<Scheduler>,
    number: usize,
    counter: Handle,
    waker: std::task::Waker,
    gauge: Arc<Gauge>,
    share: Share,
    /// Data slots leased to clients, or reserved.
    leases: Arc<Leases>,
    /// Ranges on connections whose clients control the requests in flight.
    unpaced: usize,
    /// Counts of those.
    unpaced_bytes: u64,
    unpaced_first_byte_us: u64,
    /// Ended ranges of the others, the sum of their times from request to last byte, and their
    /// bytes.
    paced_ranges: u64,
    paced_ranges_us: u64,
    paced_ranges_bytes: u64,
    /// The scheduler's cancellations handled so far.
    cancels_seen: u64,
    /// Buffers for plaintext on its way into pipes.
    spare: Vec<Vec<u8>>,
    /// Connections, created on first use.
    connections: Vec<Connection>,
    connections_max: usize,
    /// Free connections, the last used on top, because it is the one most likely still open.
    free: Vec<usize>,
    /// Connections that wait for a data slot, in order.
    slot_queue: VecDeque<usize>,
    /// Connections that wait for a piece of their client's memory, which is in another's operation.
    loan_queue: VecDeque<usize>,
    ready: VecDeque<Assignment>,
    /// Ranges that wait for a retry without a connection, at most [`parked_max`].
    parked: VecDeque<Parked>,
    supply: Supply,
    /// When it asks for work again although it should wait for its counter: a wake-up may be lost.
    ask_again_us: u64,
    ranges: Ranges,
    writes: Writes,
    /// File jobs in progress.
    file_jobs: usize,
    file_jobs_ended: u64,
    completions: Vec<Completion>,
    awaiting: bool,
    now_us: u64,
    /// The clock by which connections are judged.
    clock: NetworkClock,
    addresses: Addresses,
    /// Usual durations of each phase of a request.
    paces: Paces,
    /// When late ranges are looked for next.
    hedge_look_us: u64,
    /// When slow ranges are looked for next.
    prefix_look_us: u64,
    /// Endpoints that serve a limited number of connections.
    served: Vec<ServedShare>,
    unserved_look_us: u64,
    /// When long waits are looked for next.
    wait_look_us: u64,
    /// What keeps an otherwise possible range from being requested, since the last look.
    held: Option<WaitFor>,
    /// When the ring was last entered, and what it has slept for since.
    entered: (u64, WaitFor),
    /// When it was last left.
    left_us: u64,
    /// The last request for its counts that it has answered.
    answered: u64,
    /// Length of a data slot in bytes.
    slot_length: u64,
    metrics: WorkerMetrics,
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// A worker, ready to run.
    ///
    /// # Panics
    /// If there is no data slot, or control slots are too short.
    #[must_use]
    pub fn new(parts: Parts<R, H>) -> Self {
        let Parts { ring, host, data, control, connections, .. } = parts;
        assert!(connections > 0 && data.count() > 0, "a connection and a data slot");
        assert!(control.slot_length_bytes() >= CONTROL_SLOT_BYTES, "room for a head");
        let slot_length = data.slot_length_bytes();
        let slots = data.count();
        let leases = parts.scheduler.leases(parts.number);
        leases.set_slots(slots);
        Self {
            ring,
            host,
            data,
            control,
            tls: parts.tls,
            retries: parts.retries,
            retries_excused: 0,
            retries_logged: 0,
            sink: parts.sink,
            scheduler: parts.scheduler,
            number: parts.number,
            waker: redirects::waker_of(&parts.counter),
            counter: parts.counter,
            gauge: parts.gauge,
            share: Share::new(parts.pacer, parts.number),
            leases,
            unpaced: 0,
            unpaced_bytes: 0,
            unpaced_first_byte_us: 0,
            paced_ranges: 0,
            paced_ranges_us: 0,
            paced_ranges_bytes: 0,
            cancels_seen: 0,
            spare: Vec::new(),
            connections: Vec::new(),
            connections_max: connections,
            free: Vec::with_capacity(connections),
            slot_queue: VecDeque::with_capacity(connections),
            loan_queue: VecDeque::new(),
            ready: VecDeque::with_capacity(RANGES_PER_HANDOUT_MAX + connections),
            parked: VecDeque::new(),
            supply: Supply::Given,
            ask_again_us: 0,
            ranges: Ranges::new(connections + parked_max(connections) + slots),
            writes: Writes::new(slots),
            file_jobs: 0,
            file_jobs_ended: 0,
            completions: Vec::with_capacity(connections + slots + 1),
            awaiting: false,
            now_us: 0,
            clock: NetworkClock::default(),
            addresses: Addresses::new(parts.addresses),
            paces: Paces::default(),
            hedge_look_us: 0,
            prefix_look_us: 0,
            served: Vec::new(),
            unserved_look_us: 0,
            wait_look_us: 0,
            held: None,
            entered: (0, WaitFor::Work),
            left_us: 0,
            answered: 0,
            slot_length: u64::from(slot_length),
            metrics: WorkerMetrics::default(),
        }
    }

    /// Runs until there is no more work, or the run is stopped.
    ///
    /// # Errors
    /// Only if the ring itself fails; then the run cannot continue.
    pub fn run(&mut self) -> Result<(), Errno> {
        self.left_us = self.host.now_us();
        while self.turn()? {}
        self.quiesce()
    }

    /// Its counts, the ring and the host.
    #[must_use]
    pub fn into_parts(self) -> (WorkerMetrics, R, H) {
        assert!(self.ranges.is_empty() && self.writes.is_empty(), "nothing is left in flight");
        (self.metrics, self.ring, self.host)
    }

    /// One turn of the loop; false when the worker's work is done.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn turn(&mut self) -> Result<bool, Errno> {
        let Some(wait_us) = self.prepare() else { return Ok(false) };
        self.wait(wait_us)?;
        Ok(true)
    }

    /// The first half of a turn: does what can be done now. Returns how long the ring may wait, in
    /// microseconds; `None` when the worker's work is done.
    pub fn prepare(&mut self) -> Option<u64> {
        self.now_us = self.host.now_us();
        let mut has_more = false;
        if self.scheduler.is_stopped() {
            self.give_up_all();
        } else {
            self.give_up_cancelled();
            self.paces.set_busy(self.busy());
            self.hedge();
            self.resume_parked();
            self.look_for_unserved();
            has_more = self.assign();
        }
        if self.is_done() {
            return None;
        }
        self.note_slow();
        self.watch_counter();
        let longest_us = self.tend();
        // Ended jobs may make room for more.
        let goes_on = self.take_files() || has_more || self.finds_slot();
        let wait_us = if goes_on { 0 } else { longest_us };
        self.gauge.show_file_work(self.writes.count(), self.file_jobs);
        let entered_us = self.host.now_us();
        self.clock.ring_entered(entered_us, wait_us);
        self.metrics.loop_us += entered_us.saturating_sub(self.left_us);
        self.entered = (entered_us, self.sleeps_for());
        Some(wait_us)
    }

    /// The second half: waits at most `wait_us` for completions, and handles them.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn wait(&mut self, wait_us: u64) -> Result<(), Errno> {
        self.ring.enter(wait_us)?;
        self.metrics.turns += 1;
        self.now_us = self.host.now_us();
        self.clock.ring_left(self.now_us);
        let (entered_us, what) = self.entered;
        self.metrics.waits.note(what, self.now_us.saturating_sub(entered_us));
        self.left_us = self.now_us;
        self.collect();
        self.take_files();
        self.serve_loan_queue();
        self.serve_slot_queue();
        self.gauge.show(&self.metrics);
        self.publish_counts();
        self.show_waiting();
        self.note_pace();
        Ok(())
    }

    fn is_done(&self) -> bool {
        let supplied = self.supply == Supply::Ended || self.scheduler.is_stopped();
        let is_idle = self.ranges.is_empty() && self.file_jobs == 0 && self.connections_at_rest();
        supplied && self.ready.is_empty() && is_idle
    }

    fn connections_at_rest(&self) -> bool {
        let mut all = self.connections.iter();
        all.all(|connection| connection.operation.is_none() && connection.is_free())
    }

    /// Closes all connections and ends the wait for the counter, after the last turn.
    fn quiesce(&mut self) -> Result<(), Errno> {
        (0..self.connections.len()).for_each(|index| self.close(index));
        self.metrics.sent.addresses = self.addresses.counts();
        self.metrics.done_us = self.now_us;
        self.metrics.connections = self.connections.len() as u64;
        self.gauge.board.set_range(None);
        while self.ring.in_flight() > 0 {
            self.ring.cancel(TOKEN_WAKE);
            self.ring.enter(TURN_WAIT_MAX_US)?;
            while self.ring.reap().is_some() {}
        }
        self.gauge.show(&self.metrics);
        Ok(())
    }

    /// Reaps all completions, then applies them.
    fn collect(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        while let Some(completion) = self.ring.reap() {
            completions.push(completion);
        }
        for completion in completions.drain(..) {
            self.apply(completion);
        }
        self.completions = completions;
    }

    fn apply(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        match token {
            TOKEN_WAKE => {
                self.awaiting = false;
                crate::sys::descriptor::lower(&self.counter);
                if self.must_wait_for_work() {
                    self.supply = Supply::Given;
                }
            }
            token if token >= TOKEN_WRITE => {
                let index = usize::try_from(token - TOKEN_WRITE).expect("an index");
                self.write_done(index, op, result);
            }
            token => {
                let connection = usize::try_from(token).expect("an index");
                self.connection_done(connection, op, result);
            }
        }
    }

    /// Keeps an operation on the event counter in flight, so that new work ends the wait.
    fn watch_counter(&mut self) {
        if !self.awaiting {
            let op = Op::Poll { handle: self.counter.clone(), events: POLL_IN };
            self.awaiting = self.ring.submit(TOKEN_WAKE, op).is_ok();
        }
    }

    /// Assigns work to free connections; true if the next turn has more to do at once.
    fn assign(&mut self) -> bool {
        if self.must_wait_for_work() && self.ask_again_us <= self.now_us {
            self.supply = Supply::Given;
        }
        self.held = None;
        // Objects that need no connection. There may be thousands, and a file system may be slow.
        let mut settled = 0;
        let mut held = self.held_endpoints();
        while settled < EMPTY_OBJECTS_PER_TURN_MAX {
            if self.file_jobs >= FILE_JOBS_MAX {
                return false;
            }
            let Some(at) = self.next_ready(held) else { return false };
            let Some(assignment) = self.ready.remove(at) else { return false };
            if is_cancelled(&assignment) {
                refuse(assignment, None);
                continue;
            }
            assignment.recipient.object().begin(self.now_us);
            match &assignment.recipient {
                Recipient::File(download) if download.failure().is_some() => {
                    self.settle(download);
                    settled += 1;
                }
                Recipient::File(download) if assignment.range.length == 0 => {
                    self.make_empty(download);
                    settled += 1;
                    if self.scheduler.is_stopped() {
                        return true;
                    }
                }
                _ => {
                    let (endpoint, target) = (assignment.endpoint, self.target_of(&assignment));
                    match self.connection_to_ask(&assignment, &target) {
                        Ok(connection) => self.begin(connection, assignment, target),
                        Err(wait) => {
                            self.ready.insert(at, assignment);
                            // Requests of other endpoints continue.
                            if wait == Wait::ForRoom || !self.scheduler.endpoints().are_several() {
                                return false;
                            }
                            held.insert(endpoint);
                        }
                    }
                }
            }
        }
        true
    }

    /// The next range that may be begun, among those here and those still to be taken; skips `held`
    /// endpoints.
    fn next_ready(&mut self, held: EndpointSet) -> Option<usize> {
        let may_begin = |next: &Assignment| {
            let request = next.recipient.request();
            let by_client = request.is_some_and(ClientRequest::is_paced_by_client);
            by_client || next.range.length == 0 || !held.has(next.endpoint)
        };
        let here = self.ready.len();
        if let Some(at) = self.ready.iter().position(may_begin) {
            return Some(at);
        }
        self.take_ranges(held).then_some(here)
    }

    /// Takes ranges from the scheduler if a connection is free; false if there are none now.
    fn take_ranges(&mut self, held: EndpointSet) -> bool {
        let room = self.room();
        let may_get = match self.supply {
            Supply::Given => room.all > 0,
            Supply::Paced => room.ranges > 0,
            Supply::Later | Supply::Ended => false,
        };
        if !may_get {
            return false;
        }
        self.supply = self.scheduler.take(self.number, room, held, &mut self.ready);
        if self.must_wait_for_work() {
            self.ask_again_us = self.now_us + TURN_WAIT_MAX_US;
        }
        self.supply == Supply::Given
    }

    /// True if it should wait for its counter.
    fn must_wait_for_work(&self) -> bool {
        matches!(self.supply, Supply::Later | Supply::Paced)
    }

    /// Ends late operations, resumes waiting connections, closes idle ones; returns how long the
    /// ring may wait, in microseconds.
    fn tend(&mut self) -> u64 {
        let clock_us = self.clock.now_us();
        let mut wait_us = self.slowed_wait_us().unwrap_or(u64::MAX);
        wait_us = wait_us.min(self.parked_wait_us().unwrap_or(u64::MAX));
        wait_us = wait_us.min(self.share.sleep_max_us(self.now_us));
        self.metrics.waiting = u32::try_from(self.parked.len()).unwrap_or(u32::MAX);
        for index in 0..self.connections.len() {
            wait_us = wait_us.min(self.tend_connection(index, clock_us));
        }
        if let Some(rest_us) = self.rest_us() {
            return wait_us.min(rest_us);
        }
        if self.must_wait_for_work() && self.ask_again_us > self.now_us {
            wait_us = wait_us.min(self.ask_again_us - self.now_us);
        }
        wait_us.min(TURN_WAIT_MAX_US)
    }

    /// Like [`Self::tend`], for one connection.
    fn tend_connection(&mut self, index: usize, clock_us: u64) -> u64 {
        let connection = &mut self.connections[index];
        if let Some(operation) = &connection.operation {
            if operation.deadline_us <= clock_us {
                self.end_overdue(index);
                return u64::MAX;
            }
            return operation.deadline_us - clock_us;
        }
        match &mut connection.state {
            // A busy one may be idle on the wire while its last bytes wait for a slot.
            ConnectionState::Free { since_us } => {
                if connection.conn.is_idle() && *since_us + IDLE_TIMEOUT_US <= self.now_us {
                    self.hang_up(index);
                }
            }
            ConnectionState::Busy(job) => {
                let until_us = match job.state {
                    JobState::Backoff { until_us } => until_us,
                    JobState::LookUp { .. } => return self.look_for_server(index),
                    JobState::ForRoom => {
                        // What it did may have made room for more.
                        let has_moved = self.look_for_room(index);
                        return if has_moved { 0 } else { u64::MAX };
                    }
                    _ => return u64::MAX,
                };
                let until_us = match until_us > self.now_us {
                    true => Err(until_us),
                    false => self.resume_in_turn(index),
                };
                if let Err(until_us) = until_us {
                    self.metrics.waiting += 1;
                    return until_us.saturating_sub(self.now_us);
                }
                if self.is_over_full(index) && self.set_aside(index, self.now_us) {
                    return 0;
                }
                self.resume_after_pause(index);
            }
            ConnectionState::Lost { .. } => {}
        }
        u64::MAX
    }

    /// After a stop: ends every operation and gives up every range.
    fn give_up_all(&mut self) {
        let reason = self.scheduler.stop_reason().unwrap_or_else(|| {
            Error::new(crate::error::ErrorKind::Interrupted, "the run was stopped")
        });
        while let Some(Assignment { recipient, .. }) = self.ready.pop_front() {
            match recipient {
                Recipient::Client { request, .. } => request.refuse(Some(reason.clone())),
                Recipient::File(download) => {
                    download.fail(reason.clone());
                    self.settle(&download);
                }
            }
        }
        self.give_up_all_parked(&reason);
        self.recall_files(&reason);
        self.slot_queue.clear();
        self.loan_queue.clear();
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if let Some(operation) = &connection.operation {
                if !operation.is_ending() {
                    self.end_early(index);
                }
            } else if !connection.is_free() {
                // A hedge's two connections share a range, which the last of them settles.
                self.give_up(index, &reason);
            }
        }
    }

    /// Assigns data slots to connections that wait for one.
    fn serve_slot_queue(&mut self) {
        while !self.slot_queue.is_empty() {
            let Some(slot) = self.take_slot() else { return };
            let Some(index) = self.slot_queue.pop_front() else { return };
            self.slot_came(index, slot);
        }
    }
}
