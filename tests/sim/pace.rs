//! The pace of real workers on a simulated network: how near they come to the best, how much more
//! than they need they ask for, and what they do when the network changes.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use inrush::engine::metrics::WorkerMetrics;
use inrush::engine::pace::{Bounds, Pacer};
use inrush::engine::peers::SharedAddresses;
use inrush::engine::schedule::Scheduler;
use inrush::error::{Error, ErrorKind};
use inrush::files::file_download::{Cut, FileDownload, Outcome};
use inrush::files::sink::Sink;
use inrush::limits::SLOT_BYTES_MIN;
use inrush::plan::ranges::PartSize;
use inrush::s3::Endpoint;
use inrush::sys::{Handle, Ring, descriptor};

use super::chance::Chance;
use super::network::{Network, Terms};
use super::origin::Rates;
use super::world::World;
use super::{
    Bench, CALM, Crew, Scenario, Simulated, checked, endpoint, object, seeds, set_up_with, tally,
};

pub(super) const SECOND_US: u64 = 1_000_000;
pub(super) const MILLION: u64 = 1_000_000;
const WORKERS: usize = 2;
const SLOTS_PER_WORKER: usize = 64;
const PART_BYTES: u64 = 4 * SLOT_BYTES_MIN as u64;
pub(super) const LARGE_BYTES: u64 = 4 << 20;
pub(super) const SMALL_BYTES: u64 = 16 << 10;
pub(super) const BOUNDS: Bounds = Bounds { least: 2, start: 8, ..Bounds::fixed(512) };

/// Objects of one endpoint, which has always more of them.
pub(super) struct Source {
    endpoint: Arc<Endpoint>,
    /// Their keys begin so.
    prefix: &'static str,
    size_bytes: u64,
    made: u64,
    fetched: u64,
}

impl Source {
    pub(super) fn new(endpoint: Arc<Endpoint>, prefix: &'static str, size_bytes: u64) -> Self {
        Self { endpoint, prefix, size_bytes, made: 0, fetched: 0 }
    }
}

/// A run that has always more to fetch.
pub(super) struct Course {
    bench: Bench,
    pub(super) pacer: Arc<Pacer>,
    sources: Vec<Source>,
}

impl Course {
    fn new(seed: u64, terms: &Terms, size_bytes: u64, bounds: Bounds) -> Self {
        Self::of(seed, terms, vec![Source::new(endpoint(0, false), "k", size_bytes)], bounds)
    }

    pub(super) fn of(seed: u64, terms: &Terms, sources: Vec<Source>, bounds: Bounds) -> Self {
        let world = World::new(seed, CALM);
        world.borrow_mut().network = Some(Network::new(Terms { alike: true, ..terms.clone() }));
        let counter = |_| descriptor::event_counter().expect("a descriptor");
        let counters: Vec<Handle> = (0..WORKERS).map(counter).collect();
        let scheduler = Arc::new(Scheduler::new(counters.clone()));
        let pacer = Arc::new(Pacer::new(bounds, WORKERS));
        let addresses = Arc::new(SharedAddresses::default());
        let crew = Crew {
            world: Rc::clone(&world),
            pacer: Arc::clone(&pacer),
            scheduler: Arc::clone(&scheduler),
            sink: if terms.disk_rate > 0 { Sink::File } else { Sink::Null },
            addresses: Arc::clone(&addresses),
        };
        let size = (BOUNDS.most as usize, SLOTS_PER_WORKER);
        let workers = counters.into_iter().enumerate();
        let workers = workers.map(|(number, counter)| crew.worker(number, counter, size, None));
        let part = PartSize::new(PART_BYTES).expect("aligned");
        let bench = Bench {
            world,
            workers: workers.collect(),
            scheduler,
            keys: Vec::new(),
            unlisted: VecDeque::new(),
            cut: Cut { part, slot_length_bytes: SLOT_BYTES_MIN },
            verify: false,
            outcomes: Vec::new(),
            addresses,
        };
        Self { bench, pacer, sources }
    }

    /// The listing is ahead by a few rounds.
    fn list(&mut self) {
        for source in &mut self.sources {
            let ahead = if source.size_bytes > PART_BYTES { 24 } else { 512 };
            while source.made - source.fetched < ahead {
                let key = format!("{}{}-{}", source.prefix, source.made, source.size_bytes);
                let endpoint = Arc::clone(&source.endpoint);
                let new = FileDownload::new(object(&key), endpoint, key, self.bench.cut);
                self.bench.scheduler.push([new]);
                source.made += 1;
            }
        }
    }

    /// Runs for `time_us` more; returns the mean goodput in bytes a second.
    pub(super) fn go_on(&mut self, time_us: u64) -> u64 {
        let (from_us, before) = self.come();
        loop {
            let (now_us, bytes) = self.come();
            if now_us >= from_us + time_us {
                return (bytes - before) * 1000 / ((now_us - from_us) / 1000);
            }
            self.list();
            for Simulated { worker, .. } in &mut self.bench.workers {
                assert!(worker.turn().expect("a simulated ring does not fail"), "it goes on");
            }
            let mut outcomes = Vec::new();
            self.bench.scheduler.collect(&mut outcomes);
            for outcome in outcomes {
                let key = &outcome.download.object.listed.key;
                assert!(outcome.result.is_ok(), "{key}: {:?}", outcome.result);
                let world = &mut self.bench.world.borrow_mut();
                let pieces = world.delivered.remove(&(key.clone(), 0)).expect("delivered");
                let mut sources = self.sources.iter_mut();
                let source = sources.find(|source| key.starts_with(source.prefix));
                let source = source.expect("somebody's");
                let size = key.rsplit('-').next().expect("its length");
                assert_eq!(pieces.total().to_string(), size, "{key}: every byte once");
                source.fetched += 1;
                world.published.remove(key);
            }
        }
    }

    /// Bytes of the whole objects that have come from one of the sources.
    pub(super) fn fetched_bytes(&self, source: usize) -> u64 {
        self.sources[source].fetched * self.sources[source].size_bytes
    }

    /// The time, and the bytes of all objects that have come.
    fn come(&self) -> (u64, u64) {
        let world = self.bench.world.borrow();
        (world.now_us, world.bytes)
    }

    /// Requests in flight that it has settled for.
    fn requests(&self) -> u32 {
        let timeline = self.pacer.timeline();
        timeline.moments().last().expect("the beginning").requests_in_flight
    }

    /// Requests that were refused, and all of them.
    pub(super) fn refused(&self) -> (u64, u64) {
        let world = self.bench.world.borrow();
        let network = world.network.as_ref().expect("a network");
        (network.refused, network.requests)
    }

    /// Ends it; returns what each worker counted.
    pub(super) fn end(self) -> Vec<WorkerMetrics> {
        let Bench { workers, scheduler, .. } = self.bench;
        scheduler.stop(Error::new(ErrorKind::Interrupted, "stopped"));
        let end = |simulated: Simulated| {
            let Simulated { mut worker, data, control, slots, connections, .. } = simulated;
            worker.run().expect("it ends");
            let (metrics, ring, _host) = worker.into_parts();
            assert_eq!(ring.in_flight(), 0, "the kernel owns nothing");
            assert_eq!((data.free(), control.free()), (slots, connections), "every slot is back");
            metrics
        };
        let all: Vec<WorkerMetrics> = workers.into_iter().map(end).collect();
        for metrics in &all {
            tally::note_sent(&metrics.sent);
            tally::note_workers(metrics);
        }
        tally::note_pace(&self.pacer.timeline());
        all
    }
}

/// A network, and the size of the objects that come over it.
fn networks() -> [(&'static str, Terms, u64); 5] {
    let terms = |capacity: u64, rate: u64, latency_ms: u64, knee| Terms {
        knee,
        ..Terms::new(capacity * MILLION, rate * MILLION, latency_ms * 1000)
    };
    [
        ("like S3", terms(64, 4, 30, 64), LARGE_BYTES),
        ("slow connections", terms(64, 2, 30, 64), LARGE_BYTES),
        ("far away", terms(64, 40, 100, 64), LARGE_BYTES),
        ("near", terms(64, 64, 1, 8), LARGE_BYTES),
        ("small objects", terms(24, 40, 20, 64), SMALL_BYTES),
    ]
}

/// The best static number of requests: what it brings, and the fewest that bring 97 % of it.
fn best_static(seed: u64, terms: &Terms, size_bytes: u64) -> (u64, u32) {
    let counts = [4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128];
    let goodputs = counts.map(|count| {
        let mut course = Course::new(seed, terms, size_bytes, Bounds::fixed(count));
        course.go_on(SECOND_US / 2);
        let goodput = course.go_on(SECOND_US);
        course.end();
        goodput
    });
    let best = goodputs.into_iter().max().expect("some");
    let enough = goodputs.iter().position(|goodput| goodput * 100 >= best * 97);
    (best, counts[enough.expect("the best is one of them")])
}

#[test]
fn the_pace_comes_near_the_best_and_asks_for_little_more() {
    seeds("the_pace_comes_near_the_best_and_asks_for_little_more", 2, |seed| {
        for (name, terms, size_bytes) in networks() {
            let (best, needed) = best_static(seed, &terms, size_bytes);
            let mut course = Course::new(seed, &terms, size_bytes, BOUNDS);
            course.go_on(2 * SECOND_US);
            let reached = course.go_on(3 * SECOND_US);
            course.go_on(5 * SECOND_US);
            let used = course.requests();
            let (all, timeline) = (best / MILLION, course.pacer.timeline());
            println!("{name}: {reached} of {all} MB/s, {used} requests, needed {needed}");
            assert!(reached * 10 >= best * 9, "{name}: {reached} of {best}: {timeline:?}");
            assert!(used <= needed * 3, "{name}: {used} requests of {needed}: {timeline:?}");
            course.end();
        }
    });
}

#[test]
fn a_rate_of_requests_is_found_and_nearly_used_up() {
    seeds("a_rate_of_requests_is_found_and_nearly_used_up", 4, |seed| {
        for rate in [300, 1000] {
            let terms = Terms {
                requests_per_second: rate,
                ..Terms::new(64 * MILLION, 40 * MILLION, 20_000)
            };
            let mut course = Course::new(seed, &terms, SMALL_BYTES, BOUNDS);
            course.go_on(4 * SECOND_US);
            let (refused_before, before) = course.refused();
            let served = course.go_on(10 * SECOND_US) / SMALL_BYTES;
            let (refused, requests) = course.refused();
            let (refused, requests) = (refused - refused_before, requests - before);
            println!("{rate} a second: {served} served, {refused} of {requests} refused");
            assert!(refused_before > 0, "it asked for more at first");
            assert!(served * 10 >= rate * 9, "{served} of {rate} a second");
            assert!(refused * 100 < requests * 2, "{refused} of {requests} refused");
            course.end();
        }
    });
}

/// A server of a few requests a second serves what it can and refuses little, and no request fails;
/// once it allows more it is soon asked for that.
#[test]
fn few_requests_a_second_are_refused_seldom_and_become_many_again() {
    seeds("few_requests_a_second_are_refused_seldom_and_become_many_again", 3, |seed| {
        // At one a second a higher rate may be tried in vain for half a minute.
        for rate in [5, 10, 25] {
            let terms = Terms {
                requests_per_second: rate,
                ..Terms::new(64 * MILLION, 40 * MILLION, 20_000)
            };
            let mut course = Course::new(seed, &terms, SMALL_BYTES, BOUNDS);
            course.go_on(60 * SECOND_US);
            let (refused_before, _) = course.refused();
            let served = course.go_on(300 / rate * SECOND_US) * 300 / rate / SMALL_BYTES;
            let (refused, _) = course.refused();
            let refused = refused - refused_before;
            if let Some(network) = &mut course.bench.world.borrow_mut().network {
                network.terms.requests_per_second = 500;
            }
            course.go_on(30 * SECOND_US);
            let after = course.go_on(5 * SECOND_US) / SMALL_BYTES;
            println!("{rate}: {refused_before} in a minute, {refused} of {served}, then {after}");
            assert!(served >= 270, "{rate}: {served} of 300");
            assert!(refused * 100 <= served * 25, "{rate}: {refused} of {served}");
            assert!(after >= 450, "{rate}: {after} of 500 a second");
            course.end();
        }
    });
}

#[test]
fn a_neighbour_is_given_way_and_what_it_leaves_is_won_back() {
    seeds("a_neighbour_is_given_way_and_what_it_leaves_is_won_back", 1, |seed| {
        for (name, terms, size_bytes) in networks() {
            let terms = Terms {
                neighbour_us: 6 * SECOND_US..16 * SECOND_US,
                neighbour_per_mille: 600,
                ..terms
            };
            let mut course = Course::new(seed, &terms, size_bytes, BOUNDS);
            course.go_on(2 * SECOND_US);
            let alone = course.go_on(4 * SECOND_US);
            course.go_on(3 * SECOND_US);
            let beside = course.go_on(7 * SECOND_US);
            let used = course.requests();
            course.go_on(3 * SECOND_US);
            let after = course.go_on(3 * SECOND_US);
            println!("{name}: {alone}, {beside} beside it ({used} requests), {after} after it");
            let timeline = course.pacer.timeline();
            assert!(beside * 10 >= terms.capacity * 4 / 10 * 9, "{name}: {beside}: {timeline:?}");
            assert!(after * 10 >= alone * 9, "{name}: {after} of {alone}: {timeline:?}");
            course.end();
        }
    });
}

#[test]
fn workers_share_what_there_is() {
    seeds("workers_share_what_there_is", 3, |seed| {
        for (name, terms, size_bytes) in networks() {
            let mut course = Course::new(seed, &terms, size_bytes, BOUNDS);
            course.go_on(4 * SECOND_US);
            let bytes: Vec<u64> = course.end().iter().map(|metrics| metrics.bytes).collect();
            println!("{name}: {bytes:?}");
            assert!(bytes[0].abs_diff(bytes[1]) * 5 < bytes[0] + bytes[1], "{name}: {bytes:?}");
        }
    });
}

/// Small objects are answered soon, large ones only when all that were asked for before them have
/// been read: they are waited for. A server that goes on with what nobody waits for any more would
/// never be done with those that are asked for again and again.
#[test]
fn a_server_that_becomes_slow_is_given_the_time_that_it_takes() {
    seeds("a_server_that_becomes_slow_is_given_the_time_that_it_takes", 4, |seed| {
        // 64 ms for a range, so that 128 of them wait for eight seconds.
        let terms = Terms { read_ns: 244, ..Terms::new(64 * MILLION, 64 * MILLION, 1_000) };
        let sources = vec![Source::new(endpoint(0, false), "k", 100)];
        let mut course = Course::of(seed, &terms, sources, Bounds::fixed(128));
        course.go_on(SECOND_US);
        course.sources[0].size_bytes = LARGE_BYTES;
        course.go_on(10 * SECOND_US);
        let reached = course.go_on(10 * SECOND_US);
        let best = 1000 * MILLION / terms.read_ns;
        let retries: u64 = course.end().iter().flat_map(|metrics| metrics.sent.retries).sum();
        println!("{reached} of {best}, {retries} retries");
        assert!(reached * 10 >= best * 9, "{reached} of {best}, {retries} retries");
    });
}

/// One of five requests is never answered: the others show how long an answer takes, and those that
/// hang are ended soon.
#[test]
fn requests_that_hang_do_not_pass_for_a_slow_server() {
    seeds("requests_that_hang_do_not_pass_for_a_slow_server", 4, |seed| {
        let terms = Terms::new(64 * MILLION, 64 * MILLION, 20_000);
        let sources = vec![Source::new(endpoint(0, false), "k", SMALL_BYTES)];
        let mut course = Course::of(seed, &terms, sources, Bounds::fixed(32));
        course.go_on(SECOND_US);
        course.bench.world.borrow_mut().silent_per_mille = 200;
        course.go_on(5 * SECOND_US);
        let served = course.go_on(20 * SECOND_US) / SMALL_BYTES;
        course.bench.world.borrow_mut().silent_per_mille = 0;
        course.end();
        // Each takes 20 ms, and one of five 0.6 s more.
        let best = 32 * 1000 / (20 + 600 / 5);
        println!("{served} of {best} a second");
        assert!(served * 4 >= best, "{served} of {best} a second");
    });
}

/// Seconds to each first byte are a server's pace, not a fault of single requests.
#[test]
fn a_slow_first_byte_is_waited_for() {
    seeds("a_slow_first_byte_is_waited_for", 1, |seed| {
        for (seconds, size_bytes) in [(2, SMALL_BYTES), (20, LARGE_BYTES)] {
            let terms = Terms::new(64 * MILLION, 4 * MILLION, seconds * SECOND_US);
            let mut course = Course::new(seed, &terms, size_bytes, BOUNDS);
            course.go_on(3 * seconds * SECOND_US);
            for metrics in course.end() {
                let retries: u64 = metrics.sent.retries.iter().sum();
                let asked_again = metrics.sent.hedges + metrics.sent.moves;
                assert!(metrics.sent.requests > 0, "{seconds} s");
                assert_eq!(
                    (retries, asked_again),
                    (0, 0),
                    "{seconds} s: {:?}",
                    metrics.sent.retries
                );
            }
        }
    });
}

/// A disk that takes half of what the network could bring is the limit: more requests bring
/// nothing, and are not kept.
#[test]
fn a_slow_disk_is_a_limit_like_another() {
    seeds("a_slow_disk_is_a_limit_like_another", 2, |seed| {
        let network = Terms::new(64 * MILLION, 4 * MILLION, 30_000);
        let terms = Terms { disk_rate: 32 * MILLION, file_call_us: 2_000, ..network };
        let mut course = Course::new(seed, &terms, LARGE_BYTES, BOUNDS);
        course.go_on(2 * SECOND_US);
        let reached = course.go_on(6 * SECOND_US);
        let used = course.requests();
        println!("{reached} with {used} requests");
        assert!(reached * 10 >= terms.disk_rate * 9, "{reached}");
        // 12 bring it, on a quiet network.
        assert!(used <= 64, "{used} requests: {:?}", course.pacer.timeline());
        course.end();
    });
}

/// A destination whose calls take 50 ms: each worker makes one of them itself, and those that
/// others make overlap. Once they are quick the workers make them again.
#[test]
fn slow_file_calls_keep_no_worker_waiting() {
    seeds("slow_file_calls_keep_no_worker_waiting", 3, |seed| {
        let network = Terms::new(256 * MILLION, 16 * MILLION, 10_000);
        let terms = Terms { disk_rate: 1000 * MILLION, file_call_us: 50_000, ..network };
        let bounds = Bounds { start: 64, ..BOUNDS };
        let mut course = Course::new(seed, &terms, SMALL_BYTES, bounds);
        let world = Rc::clone(&course.bench.world);
        world.borrow_mut().jobs.blocking_per_mille = 0;
        course.go_on(SECOND_US / 2);
        let files_per_second = course.go_on(2 * SECOND_US) / SMALL_BYTES;
        println!("{files_per_second} files/s");
        // Each worker by itself would come to 20.
        assert!(files_per_second > 400, "{files_per_second} files/s");
        let blocked_us = world.borrow().jobs.blocked_us;
        assert_eq!(blocked_us, WORKERS as u64 * 50_000, "one call of each worker");
        let set = |file_call_us| {
            let network = &mut world.borrow_mut().network;
            network.as_mut().expect("a network").terms.file_call_us = file_call_us;
        };
        set(20);
        course.go_on(SECOND_US / 2);
        let before = world.borrow().jobs.done;
        course.go_on(SECOND_US / 2);
        let after = world.borrow().jobs.done;
        assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
        set(0);
        course.end();
    });
}

/// A server that serves a fixed number of connections leaves the others without an answer until one
/// closes. One of two workers may have none that is answered.
#[test]
fn no_more_connections_are_opened_than_are_served() {
    seeds("no_more_connections_are_opened_than_are_served", 1, |seed| {
        for (served_at_once, size_bytes) in [(2, SMALL_BYTES), (4, LARGE_BYTES), (7, LARGE_BYTES)] {
            let network = Terms::new(64 * MILLION, 8 * MILLION, 5_000);
            let few = Terms { served_at_once, ..network.clone() };
            let best = best_of(seed, &network, size_bytes, served_at_once);
            let mut course = Course::new(seed, &few, size_bytes, Bounds::fixed(32));
            course.go_on(2 * SECOND_US);
            let reached = course.go_on(8 * SECOND_US);
            let world = Rc::clone(&course.bench.world);
            world.borrow_mut().network.as_mut().expect("a network").terms.served_at_once = 0;
            course.go_on(30 * SECOND_US);
            let after = course.go_on(SECOND_US);
            let all = course.end();
            let retries: u64 = all.iter().flat_map(|metrics| metrics.sent.retries).sum();
            let bytes: Vec<u64> = all.iter().map(|metrics| metrics.bytes).collect();
            let case = format!("{served_at_once} at once, {size_bytes} bytes each");
            println!("{case}: {reached} of {best}, {retries} retries, then {after}; {bytes:?}");
            assert!(reached * 2 >= best, "{case}: {reached} of {best}");
            assert!(retries <= 32, "{case}: {retries} retries");
            let most = (best * 2).min(network.capacity * 8 / 10);
            assert!(after >= most, "{case}: {after} when it serves all");
        }
    });
}

/// Goodput of `connections` connections, in bytes a second.
fn best_of(seed: u64, terms: &Terms, size_bytes: u64, connections: usize) -> u64 {
    let bounds = Bounds::fixed(u32::try_from(connections).expect("few"));
    let mut course = Course::new(seed, terms, size_bytes, bounds);
    course.go_on(SECOND_US / 2);
    let reached = course.go_on(2 * SECOND_US);
    course.end();
    reached
}

/// Whatever else goes wrong, over a network too each byte is written once.
#[test]
fn a_network_with_faults_and_pauses_brings_every_byte_once() {
    seeds("a_network_with_faults_and_pauses_brings_every_byte_once", 60, |seed| {
        let rates = Rates { network_per_mille: 15, hang_per_mille: 5, pause_per_mille: 1, ..CALM };
        let rates = if seed % 3 == 0 { CALM } else { rates };
        let (sink, stop) = (Sink::File, seed % 5 == 1);
        let scenario = Scenario { rates, stop, sink, tls: false, verify: true };
        let sizes: Vec<u64> = (0..80).map(|number| number * 5_000).collect();
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << (16 + seed % 2), &sizes);
        let network = Terms::new((4 + seed % 20) * MILLION, MILLION, 20_000);
        let requests_per_second = if seed % 4 == 0 { 40 } else { 0 };
        let (file_call_us, disk_rate) = (seed % 7 * 1_000, seed % 2 * 4 * MILLION);
        let terms = Terms { requests_per_second, file_call_us, disk_rate, ..network };
        bench.world.borrow_mut().network = Some(Network::new(terms));
        let (_, outcomes) = checked(bench, seed, scenario);
        for Outcome { result, .. } in &outcomes {
            let is_stopped =
                stop && result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Interrupted);
            assert!(result.is_ok() || is_stopped, "{result:?}");
        }
    });
}
