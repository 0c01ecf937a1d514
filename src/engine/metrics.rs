//! Plain counters: one set per worker, added up at the end; and the few that are watched on the
//! way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::endpoints::EndpointNumber;
use crate::engine::pace::Timeline;
use crate::engine::snapshot::Snapshot;
use crate::link::failure::{RetryCounts, RetryReason};
use crate::link::waiting::Wait;
use crate::sys::choice::Features;
use crate::sys::usage::ProcessorTime;

/// What one worker counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerMetrics {
    /// Body bytes received and delivered.
    pub bytes: u64,
    /// Objects that it finished.
    pub objects: u64,
    /// Requests sent.
    pub requests: u64,
    /// Answers that were what was asked for.
    pub answers: u64,
    /// Connections that it had at once, at most.
    pub connections: u64,
    /// Connections made.
    pub connects: u64,
    /// Turns of its loop: one system call each.
    pub turns: u64,
    /// Failed attempts that were followed by another, by [`RetryReason`].
    pub retries: RetryCounts,
    /// Why the last of them was tried again.
    pub last_retry: Option<RetryReason>,
    /// Connections that wait before their next try now.
    pub waiting: u32,
    /// Ranges that were asked for a second time because they were late.
    pub hedges: u64,
    /// Those where the second answer came first.
    pub hedges_won: u64,
    /// Ranges that were moved from a late connection to another; they are no retries.
    pub moves: u64,
    /// Packets that came out of order over connections that were closed: others before them were
    /// lost on the way, or dropped by this machine.
    pub out_of_order_packets: u64,
    /// What came from where.
    pub addresses: Vec<AddressCount>,
    /// Short writes that were continued.
    pub short_writes: u64,
    /// Large files written past the page cache.
    pub files_direct: u64,
    /// Large files whose file system refused that.
    pub files_buffered: u64,
    /// Time in stages, summed over connections or operations.
    pub stages: Stages,
    /// How long requests took to the first byte.
    pub first_bytes: Durations,
    /// How long ranges took, from their last requests to their last bytes.
    pub ranges: Durations,
    /// For what it waited.
    pub waits: Waits,
    /// Its time outside the ring, in microseconds.
    pub loop_us: u64,
    /// The shortest time in which a connection was made, in microseconds: a round trip.
    pub connect_us_min: Option<u64>,
    /// When its last work was done, in microseconds since the run began.
    pub done_us: u64,
    /// Of its thread.
    pub processor: ProcessorTime,
    /// What its ring used of the kernel; `None` for a simulated one.
    pub features: Option<Features>,
}

/// Where the time went, in microseconds; sums over all connections or operations of a worker, so a
/// sum can exceed the run's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// From a request's start to the complete head of its answer.
    pub first_byte_us: u64,
    /// From the head to the last body byte.
    pub body_us: u64,
    /// Writes through the ring, from submission to completion.
    pub write_us: u64,
    /// Connections waited for a free slot.
    pub slot_wait_us: u64,
    /// Calls of the file system besides those: create, small writes, rename. Those that helper
    /// threads make count, too.
    pub file_us: u64,
    /// Connections waited before a retry.
    pub backoff_us: u64,
    /// Checksums of what has come.
    pub verify_us: u64,
    /// TLS: handshakes, and what is decrypted and encrypted.
    pub tls_us: u64,
}

/// How often something took how long, by powers of two of microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations([u32; 32]);

impl Durations {
    /// Something took so long.
    pub fn note(&mut self, us: u64) {
        let bits = (u64::BITS - us.leading_zeros()) as usize;
        let count = &mut self.0[bits.min(31)];
        *count = count.saturating_add(1);
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// What there was: the time in microseconds that it stayed below, and how often.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let counts = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bits, count)| (1 << bits, *count))
    }
}

/// For what a worker or a feeder waits while its ring sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// The answers to all the requests that may be in flight, or that there are left to send.
    Requests,
    /// An endpoint that asked for less.
    Refused,
    /// The next try after a failure.
    Retry,
    /// What the user bounds of the bytes a second.
    Bandwidth,
    /// A free slot, which other connections have.
    Memory,
    /// Writes to files.
    Writes,
    /// Other calls of the file system.
    Files,
    /// Objects, or requests of a client: there is nothing to do until they come.
    Work,
    /// More of them, beside what is under way.
    MoreWork,
    /// The other workers, which have all that is left.
    Nothing,
}

impl WaitFor {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Requests,
        Self::Refused,
        Self::Retry,
        Self::Bandwidth,
        Self::Memory,
        Self::Writes,
        Self::Files,
        Self::Work,
        Self::MoreWork,
        Self::Nothing,
    ];
}

/// How long somebody waited for what, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits([u64; WaitFor::ALL.len()]);

impl Waits {
    /// So long for this.
    pub const fn note(&mut self, what: WaitFor, us: u64) {
        self.0[what as usize] += us;
    }

    /// How long for this.
    #[must_use]
    pub const fn of(&self, what: WaitFor) -> u64 {
        self.0[what as usize]
    }

    /// How long for anything.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl WorkerMetrics {
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.objects += other.objects;
        self.requests += other.requests;
        self.answers += other.answers;
        self.connections += other.connections;
        self.connects += other.connects;
        self.turns += other.turns;
        for (mine, theirs) in self.retries.iter_mut().zip(other.retries) {
            *mine += theirs;
        }
        self.last_retry = other.last_retry.or(self.last_retry);
        self.waiting += other.waiting;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.moves += other.moves;
        self.out_of_order_packets += other.out_of_order_packets;
        for theirs in &other.addresses {
            match self.addresses.iter_mut().find(|mine| mine.is_of_same(theirs)) {
                Some(mine) => mine.add(theirs),
                None => self.addresses.push(*theirs),
            }
        }
        self.short_writes += other.short_writes;
        self.files_direct += other.files_direct;
        self.files_buffered += other.files_buffered;
        self.stages.add(&other.stages);
        self.first_bytes.add(&other.first_bytes);
        self.ranges.add(&other.ranges);
        self.waits.add(&other.waits);
        self.loop_us += other.loop_us;
        self.connect_us_min = self.connect_us_min.into_iter().chain(other.connect_us_min).min();
        self.done_us = self.done_us.max(other.done_us);
        self.processor.add(&other.processor);
        self.features = self.features.or(other.features);
    }
}

impl Stages {
    fn add(&mut self, other: &Self) {
        self.first_byte_us += other.first_byte_us;
        self.body_us += other.body_us;
        self.write_us += other.write_us;
        self.slot_wait_us += other.slot_wait_us;
        self.file_us += other.file_us;
        self.backoff_us += other.backoff_us;
        self.verify_us += other.verify_us;
        self.tls_us += other.tls_us;
    }
}

/// What came from one address of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressCount {
    /// The endpoint: several may have one address, a proxy's for instance.
    pub endpoint: EndpointNumber,
    /// The address.
    pub address: SocketAddr,
    /// Connections begun to it.
    pub connects: u64,
    /// Ranges that came from it.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often it did not answer, or was far slower than the others.
    pub failures: u64,
    /// From the requests to the heads of their answers, in microseconds together.
    pub first_byte_us: u64,
    /// From there to the last bytes, in microseconds together.
    pub body_us: u64,
    /// Answers that asked for fewer requests (503, 429).
    pub refused: u64,
    /// From the first request to the last byte, in microseconds since the run began; `None` where
    /// nothing came.
    pub busy_us: Option<(u64, u64)>,
}

impl AddressCount {
    /// Nothing came yet.
    #[must_use]
    pub const fn new(endpoint: EndpointNumber, address: SocketAddr) -> Self {
        Self {
            endpoint,
            address,
            connects: 0,
            ranges: 0,
            bytes: 0,
            failures: 0,
            first_byte_us: 0,
            body_us: 0,
            refused: 0,
            busy_us: None,
        }
    }

    /// They are of the same address of the same endpoint.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        (self.endpoint, self.address) == (other.endpoint, other.address)
    }

    /// A range of so many bytes came, in so much time, the last of it now.
    pub(crate) fn brought(
        &mut self,
        bytes: u64,
        (first_byte_us, body_us): (u64, u64),
        now_us: u64,
    ) {
        let begun_us = now_us.saturating_sub(first_byte_us + body_us);
        self.add(&Self {
            ranges: 1,
            bytes,
            first_byte_us,
            body_us,
            busy_us: Some((begun_us, now_us)),
            ..Self::new(self.endpoint, self.address)
        });
    }

    /// Adds what came from the same address.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connects += other.connects;
        self.ranges += other.ranges;
        self.bytes += other.bytes;
        self.failures += other.failures;
        self.first_byte_us += other.first_byte_us;
        self.body_us += other.body_us;
        self.refused += other.refused;
        let mine = self.busy_us.or(other.busy_us);
        self.busy_us = mine
            .zip(other.busy_us.or(mine))
            .map(|((begun, ended), theirs)| (begun.min(theirs.0), ended.max(theirs.1)));
    }
}

/// What came from whom, for one client.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientCounts {
    /// Failed attempts that were followed by another, by [`RetryReason`].
    pub retries: RetryCounts,
    /// Late ranges that were asked for a second time, while the first request went on.
    pub hedges: u64,
    /// Late ranges that were asked for again on another connection; they are no retries.
    pub moves: u64,
    /// What came from where.
    pub addresses: Vec<AddressCount>,
    /// Connections made.
    pub connects: u64,
    /// HTTP requests sent.
    pub requests: u64,
}

impl ClientCounts {
    /// Those of an address of an endpoint.
    pub(crate) fn address(
        &mut self,
        endpoint: EndpointNumber,
        address: SocketAddr,
    ) -> &mut AddressCount {
        let new = AddressCount::new(endpoint, address);
        let known = self.addresses.iter().position(|count| count.is_of_same(&new));
        let index = known.unwrap_or_else(|| {
            self.addresses.push(new);
            self.addresses.len() - 1
        });
        &mut self.addresses[index]
    }
}

/// What an epoch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochCount {
    /// Its number, from 0.
    pub epoch: u64,
    /// Bytes handed to the reader.
    pub bytes: u64,
    /// The reader closed before the end.
    pub left_early: bool,
    /// Every byte was handed to the reader: it did not leave early, and the stream did not fail.
    pub complete: bool,
    /// When its reader came, in microseconds since the run began.
    pub opened_us: u64,
    /// From the reader's coming to the first byte, in microseconds; `None` when there was none.
    pub first_byte_us: Option<u64>,
    /// From the reader's coming to the end, in microseconds.
    pub elapsed_us: u64,
    /// The reader had taken all and waited for us, in microseconds.
    pub reader_waited_us: u64,
    /// Of that time: bytes had come and were not inflated yet, in microseconds.
    pub inflating_us: u64,
    /// The pipe was full and we waited for the reader, in microseconds.
    pub reader_kept_us: u64,
}

/// What a feeder counted over all epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeedCount {
    /// The last epochs in order.
    pub epochs: Vec<EpochCount>,
    /// How many there were before those.
    pub earlier_epochs: u64,
    /// Bytes of those before.
    pub earlier_bytes: u64,
    /// Failed attempts that were followed by another, by [`RetryReason`].
    pub retries: RetryCounts,
    /// Late ranges that were asked for a second time, while the first request went on.
    pub hedges: u64,
    /// Late ranges that were asked for again on another connection; they are no retries.
    pub moves: u64,
    /// What came from where.
    pub addresses: Vec<AddressCount>,
    /// Connections made.
    pub connects: u64,
    /// Requests sent.
    pub requests: u64,
    /// For what was waited while a reader had taken all that there was.
    pub waits: Waits,
    /// Size of the smallest private pipe that the kernel gave, in bytes.
    pub pipe_bytes_min: Option<u64>,
    /// Most bytes that stood in memory, that were decrypted or inflated.
    pub backlog_bytes_max: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// How many requests were in flight, and why.
    pub pace: Timeline,
    /// How the endpoints are addressed, by number.
    pub endpoints: Vec<String>,
}

impl FeedCount {
    /// Takes in what workers counted for the channel, and the size of its smallest pipe.
    pub(crate) fn of_client(&mut self, (client, pipe_bytes_min): (ClientCounts, Option<u64>)) {
        let ClientCounts { retries, hedges, moves, addresses, connects, requests } = client;
        (self.retries, self.moves, self.addresses) = (retries, moves, addresses);
        self.hedges = hedges;
        (self.connects, self.requests) = (connects, requests);
        self.pipe_bytes_min = pipe_bytes_min;
    }
}

/// What others may watch while a worker runs. Each worker has its own, on cache lines of its own,
/// and writes it once a turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge {
    bytes: AtomicU64,
    retries: AtomicU64,
    waiting: AtomicU32,
    /// Number of the [`RetryReason`] of the last retry, plus 1.
    last_retry: AtomicU32,
    objects: AtomicU64,
    writes: AtomicU64,
    file_jobs: AtomicU64,
    /// What has been waited for so long that it is to be told.
    wait: Mutex<Option<Wait>>,
    /// All that it has counted, for who asks.
    pub snapshot: Snapshot<WorkerMetrics>,
}

impl Gauge {
    /// Shows how many writes, and how many other jobs at the file system, have not ended.
    pub fn show_file_work(&self, writes: usize, jobs: usize) {
        self.writes.store(writes as u64, Ordering::Relaxed);
        self.file_jobs.store(jobs as u64, Ordering::Relaxed);
    }

    /// Objects that are whole, and what [`Self::show_file_work`] showed.
    #[must_use]
    pub fn objects_and_file_work(&self) -> (u64, u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.objects), count(&self.writes), count(&self.file_jobs))
    }

    /// Shows what has been waited for too long, or that nothing has.
    pub fn show_wait(&self, wait: Option<Wait>) {
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }

    /// What has been waited for too long.
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows the worker's counts.
    pub fn show(&self, metrics: &WorkerMetrics) {
        self.bytes.store(metrics.bytes, Ordering::Relaxed);
        self.objects.store(metrics.objects, Ordering::Relaxed);
        self.retries.store(metrics.retries.iter().sum(), Ordering::Relaxed);
        self.waiting.store(metrics.waiting, Ordering::Relaxed);
        let reason = metrics.last_retry.map_or(0, |reason| reason as u32 + 1);
        self.last_retry.store(reason, Ordering::Relaxed);
    }

    /// How many connections wait before their next try, and why the last one does.
    #[must_use]
    pub fn waiting(&self) -> Option<(u32, RetryReason)> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let number = self.last_retry.load(Ordering::Relaxed).checked_sub(1)?;
        let reason = RetryReason::ALL.get(usize::try_from(number).ok()?)?;
        (waiting > 0).then_some((waiting, *reason))
    }

    /// Body bytes delivered so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Retries so far.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}
