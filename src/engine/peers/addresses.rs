//! The state of the endpoints' addresses, and the choice of where to connect. Pure.
//!
//! All workers of a run share it ([`SharedAddresses`]): connections are spread by how many are open
//! in total, and an address that one worker finds dead is avoided by all. Its mutex is taken when a
//! connection is opened, at a failure, and at the end of a range, and held while a short list is
//! searched. Each worker has its own counts of what came from each address.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::served::{OpenConnections, Served};
use crate::engine::endpoints::EndpointNumber;
use crate::engine::metrics::AddressCount;
use crate::limits::{ADDRESS_AVOID_BASE_US, ADDRESS_AVOID_MAX_US, ADDRESSES_KEPT_MAX};
use crate::link::failure::Failure;

/// A run's knowledge of all addresses it has used. All times are by one clock, in microseconds.
#[derive(Debug, Default)]
pub struct SharedAddresses {
    known: Mutex<Known>,
    /// Number of workers that share it.
    workers: AtomicUsize,
    /// Some address was found to serve fewer connections than were opened.
    has_limited: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    /// Number of connections begun, to break ties in turn.
    begun: usize,
    addresses: Vec<Health>,
}

#[derive(Debug)]
struct Health {
    address: SocketAddr,
    open: Arc<Counts>,
    served: Served,
    /// Ranges came from it since its last failure.
    is_good: bool,
    /// Failures since the last range from it; simultaneous ones count once.
    failed_in_a_row: u32,
    avoid_until_us: u64,
}

/// Connections to one address.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    /// Open connections that were answered at least once.
    answered: AtomicUsize,
    /// The fastest first answer, in microseconds; 0 while there was none. Slower ones may have
    /// waited for other connections to close.
    first_answer_us: AtomicU64,
}

impl Health {
    fn open(&self) -> usize {
        self.open.open.load(Ordering::Relaxed)
    }

    fn counts(&self) -> OpenConnections {
        let first_us = self.open.first_answer_us.load(Ordering::Relaxed);
        OpenConnections {
            all: self.open(),
            answered: self.open.answered.load(Ordering::Relaxed),
            first_answer_us: Some(first_us).filter(|us| *us > 0),
        }
    }

    /// True if as many are open as it serves.
    fn is_full(&self) -> bool {
        self.served.most().is_some_and(|most| self.open() >= most)
    }
}

/// A connection that counts as open at its address, until it is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    address: SocketAddr,
    open: Arc<Counts>,
    /// Answers of the address when it was opened, and its own.
    answers_before: u64,
    answers: u64,
}

impl OpenConnection {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records the head of an answer, `after_us` after it was connected.
    pub fn note_answer(&mut self, after_us: u64) {
        if self.answers == 0 {
            let least_us = |us: u64| (us == 0 || after_us < us).then_some(after_us.max(1));
            let first_answer_us = &self.open.first_answer_us;
            // An error means that another was as fast.
            let _ = first_answer_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, least_us);
            self.open.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.answers += 1;
    }

    /// Number of its answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.open.fetch_sub(1, Ordering::Relaxed);
        if self.answers > 0 {
            self.open.answered.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl SharedAddresses {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of open connections to this address.
    #[must_use]
    pub fn open(&self, address: SocketAddr) -> usize {
        self.lock().of(address).map_or(0, Health::open)
    }

    /// Opens a connection: not to an address that failed lately or is full, nor to `other_than`, if
    /// there is a choice; of the others to the one with the fewest open connections, in turn. A
    /// failed address is tried by one connection at a time until a range comes from it. `None` if
    /// there is no address.
    fn connect(
        &self,
        of: &[SocketAddr],
        other_than: Option<SocketAddr>,
        now_us: u64,
    ) -> Option<OpenConnection> {
        let mut known = self.lock();
        let turn = known.begun;
        let rotated = (0..of.len()).map(|index| of[(turn + index) % of.len()]);
        let address = rotated.min_by_key(|address| {
            let Some(health) = known.of(*address) else {
                return (0, false, false, Some(*address) == other_than, 0);
            };
            let avoided_us = Some(health.avoid_until_us).filter(|until_us| *until_us > now_us);
            let is_tried = health.failed_in_a_row > 0 && health.open() > 0;
            let is_other = Some(*address) == other_than;
            let is_full = health.is_full();
            (avoided_us.unwrap_or(0), is_full, is_tried, is_other, health.open())
        })?;
        known.begun = turn.wrapping_add(1);
        let health = known.find(address);
        let (open, answers_before) = (Arc::clone(&health.open), health.served.answers());
        open.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenConnection { address, open, answers_before, answers: 0 })
    }
}

impl Known {
    fn of(&self, address: SocketAddr) -> Option<&Health> {
        self.addresses.iter().find(|health| health.address == address)
    }

    fn find(&mut self, address: SocketAddr) -> &mut Health {
        let at = self.addresses.iter().position(|health| health.address == address);
        let at = at.unwrap_or_else(|| {
            // Names that are resolved repeatedly yield new addresses: drop the oldest one,
            // preferably without connections.
            if self.addresses.len() == ADDRESSES_KEPT_MAX {
                let unused = self.addresses.iter().position(|health| health.open() == 0);
                self.addresses.remove(unused.unwrap_or(0));
            }
            self.addresses.push(Health {
                address,
                open: Arc::default(),
                served: Served::default(),
                is_good: false,
                failed_in_a_row: 0,
                avoid_until_us: 0,
            });
            self.addresses.len() - 1
        });
        &mut self.addresses[at]
    }
}

/// An address of one endpoint: what is known of the address is shared by its endpoints, and counts
/// are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointAddress {
    /// The endpoint.
    pub endpoint: EndpointNumber,
    /// The address.
    pub address: SocketAddr,
}

/// One worker's view: the shared knowledge, and its own counts.
#[derive(Debug)]
pub struct Addresses {
    shared: Arc<SharedAddresses>,
    /// Its number among the workers that share it.
    number: usize,
    counts: Vec<AddressCount>,
}

impl Addresses {
    /// A view of the shared knowledge.
    #[must_use]
    pub fn new(shared: Arc<SharedAddresses>) -> Self {
        let number = shared.workers.fetch_add(1, Ordering::Relaxed);
        Self { shared, number, counts: Vec::new() }
    }

    fn count(&mut self, at: EndpointAddress) -> &mut AddressCount {
        let new = AddressCount::new(at.endpoint, at.address);
        let at = self.counts.iter().position(|count| count.is_of_same(&new));
        let at = at.unwrap_or_else(|| {
            if self.counts.len() == ADDRESSES_KEPT_MAX {
                self.counts.remove(0);
            }
            self.counts.push(new);
            self.counts.len() - 1
        });
        &mut self.counts[at]
    }

    /// Opens a connection to one of these addresses of an endpoint: not to one that failed lately,
    /// nor to `other_than`, if there is a choice, and then to the one with the fewest open
    /// connections. It counts as open until the result is dropped. `None` if there is no address.
    pub fn connect(
        &mut self,
        endpoint: EndpointNumber,
        of: &[SocketAddr],
        other_than: Option<SocketAddr>,
        now_us: u64,
    ) -> Option<OpenConnection> {
        let open = self.shared.connect(of, other_than, now_us)?;
        self.count(EndpointAddress { endpoint, address: open.address }).connects += 1;
        Some(open)
    }

    /// Records that it failed, or was far slower than its peers: all avoid it for a while, longer
    /// each time.
    pub fn failed(&mut self, at: EndpointAddress, now_us: u64) {
        self.count(at).failures += 1;
        let mut known = self.shared.lock();
        let health = known.find(at.address);
        health.is_good = false;
        // A cause that breaks many connections at once, or those opened before it was known, is one
        // failure.
        if now_us >= health.avoid_until_us {
            let doubled = ADDRESS_AVOID_BASE_US << health.failed_in_a_row.min(16);
            health.failed_in_a_row = health.failed_in_a_row.saturating_add(1);
            health.avoid_until_us = now_us + doubled.min(ADDRESS_AVOID_MAX_US);
        }
    }

    /// Records a failed attempt. An attempt that was ended early because it was late says little
    /// about an address from which ranges came.
    pub fn blame(&mut self, at: EndpointAddress, failure: Failure, was_late: bool, now_us: u64) {
        if !was_late || failure == Failure::ConnectTimeout || !self.is_good(at.address) {
            self.failed(at, now_us);
        }
    }

    /// True if ranges came from it since its last failure.
    #[must_use]
    pub fn is_good(&self, address: SocketAddr) -> bool {
        self.shared.lock().of(address).is_some_and(|health| health.is_good)
    }

    /// Records a range that came from it.
    pub fn brought(&mut self, at: EndpointAddress, bytes: u64, times: RangeTimes, now_us: u64) {
        let RangeTimes { first_byte_us, body_us, is_first } = times;
        self.count(at).brought(bytes, (first_byte_us, body_us), now_us);
        let mut known = self.shared.lock();
        let health = known.find(at.address);
        health.served.answered(first_byte_us, is_first);
        (health.is_good, health.failed_in_a_row, health.avoid_until_us) = (true, 0, 0);
    }

    /// Records that a connection has waited this long for an answer. If it is its first, and others
    /// of the address are answered meanwhile, the address serves no more than those.
    pub fn waits(&self, connection: &OpenConnection, waited_us: u64, now_us: u64) {
        let mut known = self.shared.lock();
        let health = known.find(connection.address);
        if connection.answers > 0 {
            return health.served.waits_again(waited_us, now_us);
        }
        let open = health.counts();
        if health.served.waits(waited_us, connection.answers_before, open, now_us) {
            self.shared.has_limited.store(true, Ordering::Relaxed);
        }
    }

    /// The slowest recent first byte of this address, or the fastest first answer of a connection
    /// if none was answered twice.
    #[must_use]
    pub fn slowest_us(&self, address: SocketAddr) -> Option<u64> {
        let known = self.shared.lock();
        let health = known.of(address)?;
        health.served.slowest_us().or(health.counts().first_answer_us)
    }

    /// True if some address was found to serve a limited number of connections.
    #[must_use]
    pub fn has_limited(&self) -> bool {
        self.shared.has_limited.load(Ordering::Relaxed)
    }

    /// Most connections that this worker may have to an endpoint with these addresses: its share of
    /// those that are served, at least one. `None` if no limit is known.
    #[must_use]
    pub fn served(&self, of: &[SocketAddr], now_us: u64) -> Option<usize> {
        let mut known = self.shared.lock();
        let mut sum = Some(0);
        for address in of {
            let health = known.find(*address);
            let open = health.counts();
            health.served.look(open, now_us);
            sum = sum.zip(health.served.most()).map(|(sum, most)| sum + most);
        }
        let all = sum?;
        let workers = self.shared.workers.load(Ordering::Relaxed).max(1);
        let rest = usize::from(self.number < all % workers);
        (!of.is_empty()).then_some((all / workers + rest).max(1))
    }

    /// True if connections to this address have waited long for their first answer, and only such
    /// connections.
    #[must_use]
    pub fn has_unanswered(&self, address: SocketAddr, now_us: u64) -> bool {
        let known = self.shared.lock();
        known.of(address).is_some_and(|health| health.served.has_unanswered(now_us))
    }

    /// Records that it asked for fewer requests.
    pub fn refused(&mut self, at: EndpointAddress) {
        self.count(at).refused += 1;
    }

    /// This worker's counts.
    #[must_use]
    pub fn counts(&self) -> Vec<AddressCount> {
        self.counts.clone()
    }
}

/// Duration of a range.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeTimes {
    /// From the request to the head of its answer, in microseconds.
    pub first_byte_us: u64,
    /// From the head to the last byte, in microseconds.
    pub body_us: u64,
    /// It was the first one of its connection.
    pub is_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{SERVED_PAUSE_MIN_US, UNANSWERED_AFTER_US};

    fn place(last: u8) -> EndpointAddress {
        EndpointAddress { endpoint: EndpointNumber::FIRST, address: address(last) }
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 80))
    }

    const QUICK: RangeTimes = RangeTimes { first_byte_us: 1, body_us: 2, is_first: false };

    /// Two workers of one run.
    fn two() -> [Addresses; 2] {
        let shared = Arc::new(SharedAddresses::default());
        [Addresses::new(Arc::clone(&shared)), Addresses::new(shared)]
    }

    /// The address of a connection that ends at once.
    fn chosen(addresses: &mut Addresses, all: &[SocketAddr], now_us: u64) -> SocketAddr {
        addresses.connect(EndpointNumber::FIRST, all, None, now_us).expect("one of them").address()
    }

    #[test]
    fn connections_are_spread_over_what_all_have_open() {
        let mut workers = two();
        let shared = Arc::clone(&workers[0].shared);
        let all = [address(1), address(2), address(3)];
        let mut open: Vec<_> = Vec::new();
        for turn in 0..9 {
            open.push(
                workers[turn % 2].connect(EndpointNumber::FIRST, &all, None, 0).expect("one"),
            );
            let counts = all.map(|at| shared.open(at));
            let (most, least) = (counts.iter().max(), counts.iter().min());
            assert!(most.expect("three") - least.expect("three") <= 1, "{counts:?}");
        }
        assert_eq!(all.map(|at| shared.open(at)), [3; 3]);
        // Connections that end make room, whoever had them.
        open.retain(|open| open.address() != address(2));
        for turn in 0..3 {
            open.push(
                workers[turn % 2].connect(EndpointNumber::FIRST, &all, None, 0).expect("one"),
            );
        }
        assert_eq!(all.map(|at| shared.open(at)), [3; 3]);
        assert!(workers[0].connect(EndpointNumber::FIRST, &[], None, 0).is_none());
        let connects: u64 =
            workers.iter().flat_map(Addresses::counts).map(|count| count.connects).sum();
        assert_eq!(connects, 12, "each counts its own");
    }

    #[test]
    fn workers_share_the_connections_that_are_served() {
        let [mut one, mut other] = two();
        let all = [address(1)];
        let mut open: Vec<_> = (0..8)
            .map(|_| one.connect(EndpointNumber::FIRST, &all, None, 0).expect("one"))
            .collect();
        open[..3].iter_mut().for_each(|open| open.note_answer(1));
        one.waits(&open[7], UNANSWERED_AFTER_US, 0);
        assert!(!one.has_limited(), "no answers came");
        (0..9).for_each(|_| other.brought(place(1), 5, QUICK, 0));
        one.waits(&open[7], UNANSWERED_AFTER_US, 0);
        assert!(other.has_limited() && other.has_unanswered(address(1), 0));
        assert_eq!((one.served(&all, 0), other.served(&all, 0)), (Some(2), Some(1)));
        assert_eq!(one.served(&[address(1), address(2)], 0), None, "the other one may serve all");
        let elsewhere = one.connect(EndpointNumber::FIRST, &[address(1), address(2)], None, 0);
        assert_eq!(elsewhere.expect("one").address(), address(2));
        assert!(!other.has_unanswered(address(1), UNANSWERED_AFTER_US), "that was before");
        // More are tried later, also if another address has no known limit.
        assert_eq!(one.served(&[address(2), address(1)], SERVED_PAUSE_MIN_US), None);
        let most = one.shared.lock().of(address(1)).and_then(|health| health.served.most());
        assert_eq!(most, Some(6));
    }

    #[test]
    fn ties_are_broken_in_turn() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2), address(3)];
        let turns = [0; 2].map(|_| [chosen(&mut one, &all, 0), chosen(&mut other, &all, 0)]);
        assert_eq!(turns.concat(), [address(1), address(2), address(3), address(1)]);
    }

    #[test]
    fn what_fails_for_one_is_avoided_by_all_for_a_while() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2)];
        one.failed(place(1), 0);
        for _ in 0..4 {
            assert_eq!(chosen(&mut one, &all, ADDRESS_AVOID_BASE_US - 1), address(2));
            assert_eq!(chosen(&mut other, &all, ADDRESS_AVOID_BASE_US - 1), address(2));
        }
        let later = [0; 2].map(|_| chosen(&mut other, &all, ADDRESS_AVOID_BASE_US));
        assert!(later.contains(&address(1)), "{later:?}");
        // Longer each time, up to a limit.
        let mut now_us = 0;
        for _ in 0..40 {
            now_us += ADDRESS_AVOID_MAX_US;
            other.failed(place(1), now_us);
        }
        for _ in 0..2 {
            assert_eq!(chosen(&mut one, &all, now_us + ADDRESS_AVOID_MAX_US - 1), address(2));
        }
        now_us += ADDRESS_AVOID_MAX_US;
        let later = [0; 2].map(|_| chosen(&mut one, &all, now_us));
        assert!(later.contains(&address(1)), "{later:?}");
        assert!(!one.is_good(address(1)));
        other.brought(place(1), 5, QUICK, 9);
        assert!(one.is_good(address(1)) && !one.is_good(address(2)));
        let counts = [one.counts(), other.counts()].map(|counts| {
            let of = |at| counts.iter().find(move |count| count.address == at);
            of(address(1)).map(|count| (count.failures, count.ranges, count.bytes))
        });
        assert_eq!(counts, [Some((1, 0, 0)), Some((40, 1, 5))]);
    }

    #[test]
    fn connections_that_break_together_are_one_failure() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2)];
        for _ in 0..20 {
            one.failed(place(1), 0);
            other.failed(place(1), 7);
        }
        let later = [0; 2].map(|_| chosen(&mut other, &all, ADDRESS_AVOID_BASE_US));
        assert!(later.contains(&address(1)), "{later:?}");
    }

    #[test]
    fn one_that_failed_is_tried_by_one_connection_until_it_brings_a_range() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2)];
        one.failed(place(1), 0);
        let busy: Vec<_> = (0..5)
            .map(|_| one.connect(EndpointNumber::FIRST, &all[1..], None, 0).expect("address 2"))
            .collect();
        let trial =
            other.connect(EndpointNumber::FIRST, &all, None, ADDRESS_AVOID_BASE_US).expect("one");
        assert_eq!(trial.address(), address(1));
        for _ in 0..3 {
            assert_eq!(chosen(&mut one, &all, ADDRESS_AVOID_BASE_US), address(2));
        }
        other.brought(place(1), 5, QUICK, 9);
        assert_eq!(chosen(&mut one, &all, ADDRESS_AVOID_BASE_US), address(1));
        drop((busy, trial));
    }

    #[test]
    fn where_all_fail_the_one_that_is_free_first_is_taken() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2)];
        one.failed(place(1), 5);
        one.failed(place(2), 0);
        for _ in 0..2 {
            assert_eq!(chosen(&mut other, &all, 6), address(2));
        }
    }

    #[test]
    fn another_one_is_taken_where_there_is_a_choice() {
        let [mut one, mut other] = two();
        let all = [address(1), address(2)];
        let busy: Vec<_> = (0..9)
            .map(|_| one.connect(EndpointNumber::FIRST, &all[1..], None, 0).expect("address 2"))
            .collect();
        let to = |open: Option<OpenConnection>| open.expect("one").address();
        assert_eq!(to(other.connect(EndpointNumber::FIRST, &all, Some(address(1)), 0)), address(2));
        assert_eq!(
            to(other.connect(EndpointNumber::FIRST, &all[..1], Some(address(1)), 0)),
            address(1)
        );
        assert_eq!(busy.len(), 9);
    }

    #[test]
    fn few_addresses_are_kept_and_those_in_use_stay() {
        let mut workers = two();
        let shared = Arc::clone(&workers[0].shared);
        let at = |port: usize| SocketAddr::from(([127, 0, 0, 1], port.try_into().expect("a port")));
        let held = workers[1].connect(EndpointNumber::FIRST, &[at(1)], None, 0);
        for port in 2..2 * ADDRESSES_KEPT_MAX {
            drop(workers[0].connect(EndpointNumber::FIRST, &[at(port)], None, 0));
        }
        assert_eq!(workers[0].counts().len(), ADDRESSES_KEPT_MAX);
        assert_eq!(shared.lock().addresses.len(), ADDRESSES_KEPT_MAX);
        assert_eq!(shared.open(at(1)), 1);
        drop(held);
        assert_eq!(shared.open(at(1)), 0);
    }
}
