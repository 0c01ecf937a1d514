//! Plain counters: one set per worker, added up at the end; and a few that are watched during the
//! run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::engine::endpoints::EndpointNumber;
use crate::engine::pace::Timeline;
use crate::engine::snapshot::Snapshot;
use crate::limits::ADDRESSES_KEPT_MAX;
use crate::link::failure::{RetryCounts, RetryReason};
use crate::link::waiting::Board;
use crate::sys::choice::Features;
use crate::sys::usage::ProcessorTime;

/// What adds up: over the workers of a run, or over the ranges of a client.
trait Total {
    fn add(&mut self, other: &Self);
}

impl Total for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl Total for u32 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl<const N: usize> Total for [u64; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Declares counters once: each with its meaning and, if it is no sum, how two of it are joined.
macro_rules! counters {
    ($(#[$attribute:meta])* pub struct $name:ident {
        $($(#[$meaning:meta])* pub $field:ident: $type:ty $(= $join:expr)?,)*
    }) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$meaning])* pub $field: $type,)*
        }

        impl $name {
            /// Adds another's counts.
            pub fn add(&mut self, other: &Self) {
                $(counters!(@join self.$field, other.$field $(, $join)?);)*
            }
        }
    };
    (@join $mine:expr, $theirs:expr) => { $mine.add(&$theirs) };
    (@join $mine:expr, $theirs:expr, $join:expr) => { $mine = $join($mine, $theirs) };
}

counters! {
    /// Counters of one worker.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct WorkerMetrics {
        /// Body bytes received and delivered.
        pub bytes: u64,
        /// Objects finished.
        pub objects: u64,
        /// Their bytes, without those of an earlier run.
        pub complete_bytes: u64,
        /// Requests and what became of them.
        pub sent: RequestCounts,
        /// Successful answers.
        pub answers: u64,
        /// Most connections at once.
        pub connections: u64,
        /// Turns of its loop: one system call each.
        pub turns: u64,
        /// Reason of the last retry.
        pub last_retry: Option<RetryReason> = later,
        /// Connections that currently wait for a retry.
        pub waiting: u32,
        /// Hedges in which the second answer came first.
        pub hedges_won: u64,
        /// Packets received out of order on closed connections: others before them were lost on the
        /// way, or dropped by this machine.
        pub out_of_order_packets: u64,
        /// Short writes that were continued.
        pub short_writes: u64,
        /// Large files written past the page cache.
        pub files_direct: u64,
        /// Large files whose file system refused direct I/O.
        pub files_buffered: u64,
        /// Time in stages, summed over connections or operations.
        pub stages: Stages,
        /// Times of requests to the first byte.
        pub first_bytes: Durations,
        /// Times of ranges from the last request to the last byte.
        pub ranges: Durations,
        /// Waiting times by cause.
        pub waits: Waits,
        /// Time outside the ring, in microseconds.
        pub loop_us: u64,
        /// Shortest time to connect, in microseconds: one round trip.
        pub connect_us_min: Option<u64> = least,
        /// When it last finished work, in microseconds since the run began.
        pub done_us: u64 = u64::max,
        /// Processor time of its thread.
        pub processor: ProcessorTime,
        /// Kernel features of its ring; `None` if simulated.
        pub features: Option<Features> = Option::or,
    }
}

fn later<T>(mine: Option<T>, theirs: Option<T>) -> Option<T> {
    theirs.or(mine)
}

fn least(mine: Option<u64>, theirs: Option<u64>) -> Option<u64> {
    mine.into_iter().chain(theirs).min()
}

counters! {
    /// Time per stage in microseconds, summed over all connections or operations of a worker, so a
    /// sum can exceed the run's time.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Stages {
        /// From a request's start to the complete head of its answer.
        pub first_byte_us: u64,
        /// From the head to the last body byte.
        pub body_us: u64,
        /// Writes through the ring, from submission to completion.
        pub write_us: u64,
        /// Connections waiting for a free slot.
        pub slot_wait_us: u64,
        /// Other file system calls: create, small writes, rename; also those on helper threads.
        pub file_us: u64,
        /// Connections waiting before a retry.
        pub backoff_us: u64,
        /// Computing checksums.
        pub verify_us: u64,
        /// TLS: handshakes, encryption and decryption.
        pub tls_us: u64,
    }
}

/// Histogram of durations, by powers of two of microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations([u32; 32]);

impl Total for Durations {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

impl Durations {
    /// Adds one duration.
    pub fn note(&mut self, us: u64) {
        let bits = (u64::BITS - us.leading_zeros()) as usize;
        let count = &mut self.0[bits.min(31)];
        *count = count.saturating_add(1);
    }

    /// Non-empty buckets: upper bound in microseconds, and count.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let counts = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bits, count)| (1 << bits, *count))
    }
}

/// What a worker or a feeder waits for while its ring sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Answers: all allowed requests are in flight, or there are none left to send.
    Requests,
    /// An endpoint that asked for fewer requests.
    Refused,
    /// The time before a retry.
    Retry,
    /// The user's limit of bandwidth.
    Bandwidth,
    /// A free slot.
    Memory,
    /// Writes to files.
    Writes,
    /// Other file system calls.
    Files,
    /// Objects, or requests of a client: there is no work.
    Work,
    /// More work in addition to what is in flight.
    MoreWork,
    /// The other workers, which have all remaining work.
    Nothing,
}

impl WaitFor {
    /// All causes.
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

/// Waiting time by cause, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits([u64; WaitFor::ALL.len()]);

impl Waits {
    /// Adds waiting time.
    pub const fn note(&mut self, what: WaitFor, us: u64) {
        self.0[what as usize] += us;
    }

    /// Waiting time for this cause.
    #[must_use]
    pub const fn of(&self, what: WaitFor) -> u64 {
        self.0[what as usize]
    }

    /// Total waiting time.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Total for Waits {
    fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }
}

counters! {
    /// Counts of one address of one endpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AddressCount {
        /// The endpoint: several may share an address, such as a proxy's.
        pub endpoint: EndpointNumber = same,
        /// The address.
        pub address: SocketAddr = same,
        /// Connections begun.
        pub connects: u64,
        /// Ranges received.
        pub ranges: u64,
        /// Bytes received.
        pub bytes: u64,
        /// How many times it did not answer, or was far slower than the others.
        pub failures: u64,
        /// From requests to the heads of their answers, in microseconds, summed.
        pub first_byte_us: u64,
        /// From the heads to the last bytes, in microseconds, summed.
        pub body_us: u64,
        /// Answers that asked for fewer requests (503, 429).
        pub refused: u64,
        /// From the first request to the last byte, in microseconds since the run began; `None` if
        /// nothing was received.
        pub busy_us: Option<(u64, u64)> = whole,
    }
}

/// Only counts of the same address of the same endpoint are added.
fn same<T>(mine: T, _theirs: T) -> T {
    mine
}

/// From the first beginning to the last end.
fn whole(mine: Option<(u64, u64)>, theirs: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let (mine, theirs) = (mine.or(theirs), theirs.or(mine));
    mine.zip(theirs).map(|(mine, theirs)| (mine.0.min(theirs.0), mine.1.max(theirs.1)))
}

impl Total for Vec<AddressCount> {
    fn add(&mut self, other: &Self) {
        for theirs in other {
            match self.iter_mut().find(|mine| mine.is_of_same(theirs)) {
                Some(mine) => mine.add(theirs),
                None => self.push(*theirs),
            }
        }
    }
}

impl AddressCount {
    /// Zero counts.
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

    /// True if both are of one address of one endpoint.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        (self.endpoint, self.address) == (other.endpoint, other.address)
    }

    /// Counts a range of `bytes` bytes that took these times and ended now.
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
}

counters! {
    /// Requests of a worker, a client or a channel, and what became of them.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct RequestCounts {
        /// Failed attempts that were retried, by [`RetryReason`].
        pub retries: RetryCounts,
        /// Late ranges that were requested a second time while the first request continued.
        pub hedges: u64,
        /// Late ranges that were moved to another connection; they are no retries.
        pub moves: u64,
        /// Counts by address, of the last [`ADDRESSES_KEPT_MAX`].
        pub addresses: Vec<AddressCount>,
        /// Connections opened.
        pub connects: u64,
        /// HTTP requests sent.
        pub requests: u64,
    }
}

impl RequestCounts {
    /// The counts of an address of an endpoint.
    pub(crate) fn address(
        &mut self,
        endpoint: EndpointNumber,
        address: SocketAddr,
    ) -> &mut AddressCount {
        let new = AddressCount::new(endpoint, address);
        let known = self.addresses.iter().position(|count| count.is_of_same(&new));
        let index = known.unwrap_or_else(|| {
            // As of a worker: names that are resolved repeatedly yield new addresses.
            if self.addresses.len() == ADDRESSES_KEPT_MAX {
                self.addresses.remove(0);
            }
            self.addresses.push(new);
            self.addresses.len() - 1
        });
        &mut self.addresses[index]
    }
}

/// Counts of one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochCount {
    /// Its number, from 0.
    pub epoch: u64,
    /// Bytes passed to the reader.
    pub bytes: u64,
    /// The reader closed before the end.
    pub left_early: bool,
    /// The reader got every byte: it did not leave early, and the stream did not fail.
    pub complete: bool,
    /// When its reader opened it, in microseconds since the run began.
    pub opened_us: u64,
    /// From the reader's opening to the first byte, in microseconds; `None` if there was none.
    pub first_byte_us: Option<u64>,
    /// From the reader's opening to the end, in microseconds.
    pub elapsed_us: u64,
    /// How long the reader waited for bytes, in microseconds.
    pub reader_waited_us: u64,
    /// The part of it in which received bytes were not inflated yet, in microseconds.
    pub inflating_us: u64,
    /// How long the pipe was full because of the reader, in microseconds.
    pub reader_kept_us: u64,
}

/// Counts of a feeder over all epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeedCount {
    /// The last epochs in order.
    pub epochs: Vec<EpochCount>,
    /// Number of earlier epochs.
    pub earlier_epochs: u64,
    /// Bytes of earlier epochs.
    pub earlier_bytes: u64,
    /// Objects that match their stored checksums.
    pub validated_objects: u64,
    /// Objects with bytes that were compared with no checksum, by reason.
    pub not_validated: BTreeMap<&'static str, u64>,
    /// Its requests and what became of them.
    pub sent: RequestCounts,
    /// What was waited for while a reader waited for bytes.
    pub waits: Waits,
    /// Size of the smallest private pipe, in bytes.
    pub pipe_bytes_min: Option<u64>,
    /// Most bytes in memory: decrypted, inflated, or to be compared with a checksum.
    pub backlog_bytes_max: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// The requests in flight over time, and why they changed.
    pub pace: Timeline,
    /// The endpoints' addresses, by number.
    pub endpoints: Vec<String>,
}

/// State of a running worker for others to watch. Each worker's is on its own cache lines and
/// written once per turn.
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
    /// What the worker has been waiting for too long.
    pub board: Board,
    /// All counts, on request.
    pub snapshot: Snapshot<WorkerMetrics>,
}

impl Gauge {
    /// Publishes the numbers of writes and of other file jobs in progress.
    pub fn show_file_work(&self, writes: usize, jobs: usize) {
        self.writes.store(writes as u64, Ordering::Relaxed);
        self.file_jobs.store(jobs as u64, Ordering::Relaxed);
    }

    /// Finished objects, and the numbers of [`Self::show_file_work`].
    #[must_use]
    pub fn objects_and_file_work(&self) -> (u64, u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.objects), count(&self.writes), count(&self.file_jobs))
    }

    /// Publishes the worker's counts.
    pub fn show(&self, metrics: &WorkerMetrics) {
        self.bytes.store(metrics.bytes, Ordering::Relaxed);
        self.objects.store(metrics.objects, Ordering::Relaxed);
        self.retries.store(metrics.sent.retries.iter().sum(), Ordering::Relaxed);
        self.waiting.store(metrics.waiting, Ordering::Relaxed);
        let reason = metrics.last_retry.map_or(0, |reason| reason as u32 + 1);
        self.last_retry.store(reason, Ordering::Relaxed);
    }

    /// How many connections wait for a retry, and the reason of the last one.
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
