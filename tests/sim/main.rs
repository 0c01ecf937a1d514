//! The real workers on a seeded simulated machine, beside a model: every byte of every object
//! exactly once at the right place, or a named error and nothing under a final name; and every
//! gauge at zero at the end.
//!
//! A failing seed prints the command that repeats it.

mod addresses;
mod arrivals;
mod chance;
mod cipher;
mod crew;
mod detours;
mod endpoints;
mod events;
mod files;
mod host;
mod jobs;
mod leases;
mod memory;
mod network;
mod origin;
mod pace;
mod pieces;
mod pipes;
mod places;
mod plumbing;
mod ring;
mod secure;
mod seeds;
mod shore;
mod stage;
mod tally;
mod world;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use inrush::checksum::Verification;
use inrush::engine::metrics::WorkerMetrics;
use inrush::engine::pace::{Bounds, Pacer};
use inrush::engine::peers::SharedAddresses;
use inrush::engine::schedule::Scheduler;
use inrush::error::{Error, ErrorKind};
use inrush::files::file_download::{Again, Cut, FileDownload, Outcome, Shape};
use inrush::files::sink::Sink;
use inrush::limits::SLOT_BYTES_MIN;
use inrush::plan::ranges::PartSize;
use inrush::s3::{Endpoint, Object};
use inrush::sys::{Handle, Ring, descriptor};

use chance::Chance;
use crew::{Crew, Simulated};
use origin::Rates;
use pieces::Pieces;
use seeds::{note, seeds};
use world::{Shared, World};

/// Turns after which a run counts as hanging: virtual time makes a sane run take a few thousand.
const TURNS_MAX: usize = 200_000;

/// What a seed makes of a run.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    rates: Rates,
    /// The run is stopped in the middle, as by Ctrl-C.
    stop: bool,
    sink: Sink,
    /// The origin speaks TLS.
    tls: bool,
    /// Bytes are compared with checksums.
    verify: bool,
}

struct Bench {
    world: Shared,
    scheduler: Arc<Scheduler>,
    workers: Vec<Simulated>,
    keys: Vec<String>,
    /// What the listing has not brought yet.
    unlisted: VecDeque<FileDownload>,
    cut: Cut,
    verify: bool,
    outcomes: Vec<Outcome>,
    addresses: Arc<SharedAddresses>,
}

fn object(key: &str) -> Object {
    let size_bytes = origin::size(key);
    let etag = origin::etag(key);
    Object { key: key.to_owned(), etag, size_bytes, ..Object::default() }
}

/// Each has a host of its own, but for those over TLS: the certificate is for one.
fn endpoint(number: u64, tls: bool) -> Arc<Endpoint> {
    let own = format!("{number}.{}", secure::NAME);
    Arc::new(Endpoint::new(
        &format!("bucket{number}"),
        tls,
        if tls { secure::NAME } else { &own },
        "/",
        "us-east-1",
        vec!["127.0.0.1:80".parse().expect("an address")],
    ))
}

/// Sizes on both sides of every border, and some that are drawn.
fn sizes(chance: &mut Chance, part: u64) -> Vec<u64> {
    let slot = u64::from(SLOT_BYTES_MIN);
    let room = slot - u64::from(inrush::limits::HEAD_ROOM_BYTES);
    let borders = [0, 1, 4095, 4096, 4097, room, room + 1, slot - 1, slot, slot + 1];
    let mut sizes: Vec<u64> = borders.into_iter().filter(|_| chance.hits(300)).collect();
    sizes.extend([part - 1, part, part + 1].into_iter().filter(|_| chance.hits(300)));
    sizes.extend((0..1 + chance.below(6)).map(|_| chance.below(500_000)));
    sizes
}

fn set_up(seed: u64, scenario: Scenario) -> Bench {
    let mut chance = Chance(seed ^ 0x5eed);
    let part = u64::from(SLOT_BYTES_MIN) * (1 + chance.below(4));
    let sizes = sizes(&mut chance, part);
    set_up_with(seed, scenario, &mut chance, part, &sizes)
}

impl Bench {
    /// The listing goes on: it brings some more, or all that is left.
    fn list(&mut self, count: usize) {
        if self.unlisted.is_empty() {
            return;
        }
        let count = count.min(self.unlisted.len());
        self.scheduler.push(self.unlisted.drain(..count).collect::<Vec<_>>());
        if self.unlisted.is_empty() {
            self.scheduler.complete();
        }
    }

    /// What the control plane does: takes outcomes in, and has some objects that failed for now
    /// fetched again.
    fn decide(&mut self, chance: &mut Chance) {
        self.world.borrow_mut().look_up_nodes();
        let mut outcomes = Vec::new();
        self.scheduler.collect(&mut outcomes);
        for outcome in outcomes {
            let download = &outcome.download;
            let for_now = outcome.result.is_err() && download.again().is_some();
            if for_now && !self.scheduler.is_stopped() && chance.hits(900) {
                self.world.borrow_mut().count("begun anew");
                let anew = download.anew(download.object.listed.clone(), self.cut);
                let anew = if self.verify { verified(anew, &self.world, chance) } else { anew };
                self.scheduler.restart(anew);
                continue;
            }
            if for_now {
                self.scheduler.give_up();
            }
            self.outcomes.push(outcome);
        }
    }
}

/// The download with what its bytes are compared with, as the control plane would find out.
fn verified(download: FileDownload, world: &Shared, chance: &mut Chance) -> FileDownload {
    if download.unsettled() == 1 {
        return download.verified_by(Verification::by_answer(chance.hits(500)));
    }
    let model = world.borrow_mut().model(&download.object.listed.key);
    download.verified_by(Verification::by_sum(origin::sum(&model, chance)))
}

/// One that leaves no choice, or one that looks for the best.
fn pacer(chance: &mut Chance, workers: usize) -> Arc<Pacer> {
    let most = 1 + u32::try_from(chance.below(10)).expect("small");
    let start = 1 + u32::try_from(chance.below(u64::from(most))).expect("small");
    let bounds = match chance.hits(500) {
        true => Bounds::fixed(most),
        false => Bounds { least: 1, start, ..Bounds::fixed(most) },
    };
    Arc::new(Pacer::new(bounds, workers))
}

fn set_up_with(
    seed: u64,
    scenario: Scenario,
    chance: &mut Chance,
    part: u64,
    sizes: &[u64],
) -> Bench {
    let endpoints = [endpoint(0, scenario.tls), endpoint(1, scenario.tls)];
    set_up_at(&endpoints, seed, scenario, chance, part, sizes)
}

fn set_up_at(
    endpoints: &[Arc<Endpoint>],
    seed: u64,
    scenario: Scenario,
    chance: &mut Chance,
    part: u64,
    sizes: &[u64],
) -> Bench {
    let world = World::new(seed, scenario.rates);
    let cut =
        Cut { part: PartSize::new(part).expect("aligned"), slot_length_bytes: SLOT_BYTES_MIN };
    let count = 1 + usize::try_from(chance.below(2)).expect("small");
    let counter = |_| descriptor::event_counter().expect("a descriptor");
    let counters: Vec<Handle> = (0..count).map(counter).collect();
    let scheduler = Arc::new(Scheduler::new(counters.clone()));
    let sides = scenario.tls.then(|| secure::sides(seed));
    world.borrow_mut().sides = sides.clone();
    // Some empty objects are folders.
    let key = |(index, size): (usize, &u64)| match *size == 0 && index.is_multiple_of(2) {
        true => format!("k{index}-0/"),
        false => format!("k{index}-{size}"),
    };
    let keys: Vec<String> = sizes.iter().enumerate().map(key).collect();
    let downloads = keys.iter().map(|key| {
        let to = &endpoints[usize::from(chance.hits(200)) % endpoints.len()];
        let download = FileDownload::new(object(key), Arc::clone(to), key.clone(), cut);
        if scenario.verify { verified(download, &world, chance) } else { download }
    });
    let unlisted = downloads.collect();
    let mut workers = Vec::new();
    let shared = Arc::new(SharedAddresses::default());
    let crew = Crew {
        world: Rc::clone(&world),
        pacer: pacer(chance, count),
        addresses: Arc::clone(&shared),
        scheduler: Arc::clone(&scheduler),
        sink: scenario.sink,
    };
    for (number, counter) in counters.into_iter().enumerate() {
        let connections = 1 + usize::try_from(chance.below(5)).expect("small");
        // Fewer than connections, too: those that wait have none.
        let slots = 1 + usize::try_from(chance.below(8)).expect("small");
        let size = (connections, slots);
        workers.push(crew.worker(number, counter, size, sides.as_ref()));
    }
    let verify = scenario.verify;
    let outcomes = Vec::new();
    let mut bench = Bench {
        world,
        scheduler,
        workers,
        keys,
        unlisted,
        cut,
        verify,
        outcomes,
        addresses: shared,
    };
    if chance.hits(500) {
        bench.list(usize::MAX);
    }
    bench
}

/// Runs all workers in turns to their end; returns what they counted.
fn run(bench: &mut Bench, seed: u64, stop: bool) -> WorkerMetrics {
    let mut chance = Chance(seed ^ 0x0bad);
    let stop_at = stop.then(|| chance.below(400));
    let mut running: Vec<usize> = (0..bench.workers.len()).collect();
    let mut turns = 0;
    while !running.is_empty() {
        turns += 1;
        assert!(turns < TURNS_MAX, "the run hangs");
        if stop_at == Some(turns as u64) {
            bench.scheduler.stop(Error::new(ErrorKind::Interrupted, "stopped"));
            note("run stopped", 1);
        }
        let pick = usize::try_from(chance.below(running.len() as u64)).expect("small");
        let worker = &mut bench.workers[running[pick]].worker;
        if !worker.turn().expect("a simulated ring does not fail") {
            running.swap_remove(pick);
        }
        bench.decide(&mut chance);
        if chance.hits(100) {
            let most = bench.keys.len() as u64 / 4;
            bench.list(1 + usize::try_from(chance.below(most)).expect("small"));
        }
    }
    bench.list(usize::MAX);
    let mut total = WorkerMetrics::default();
    for Simulated { mut worker, data, control, cipher, slots, connections, .. } in
        bench.workers.drain(..)
    {
        worker.run().expect("nothing is left to do");
        let (metrics, ring, _host) = worker.into_parts();
        assert_eq!(ring.in_flight(), 0, "the kernel owns nothing");
        assert_eq!((data.free(), control.free()), (slots, connections), "every slot is back");
        assert!(cipher.is_none_or(|cipher| cipher.free() == connections), "every buffer is back");
        total.add(&metrics);
    }
    let packets = bench.world.borrow().connects.len() as u64 * u64::from(host::OUT_OF_ORDER);
    assert_eq!(total.out_of_order_packets, packets, "of each socket, once");
    for (address, _) in &bench.world.borrow().connects {
        assert_eq!(bench.addresses.open(*address), 0, "no connection is left at {address}");
    }
    total
}

fn check(seed: u64, scenario: Scenario) -> (Shared, Vec<Outcome>) {
    checked(set_up(seed, scenario), seed, scenario)
}

fn checked(mut bench: Bench, seed: u64, scenario: Scenario) -> (Shared, Vec<Outcome>) {
    let metrics = run(&mut bench, seed, scenario.stop);
    tally::note_sent(&metrics.sent);
    tally::note_workers(&metrics);
    bench.world.borrow_mut().late = [metrics.sent.hedges, metrics.hedges_won, metrics.sent.moves];
    for download in bench.scheduler.abandon() {
        if let Some(file) = download.created_file() {
            bench.world.borrow_mut().abandon(file);
        }
        let reason = download.failure().cloned().or_else(|| bench.scheduler.stop_reason());
        let result = Err(reason.expect("a run that was not stopped hands everything out"));
        bench.scheduler.finish(Outcome { download, elapsed_us: 0, result });
    }
    let mut outcomes = std::mem::take(&mut bench.outcomes);
    bench.scheduler.collect(&mut outcomes);
    assert_eq!(bench.scheduler.held(), 0, "every object has an outcome");
    let mut world = bench.world.borrow_mut();
    assert_eq!(world.jobs_left(), 0, "every file job has ended");
    assert_eq!(world.leftovers(), 0, "no file is left under a temporary name");
    let mut ended: Vec<&str> = Vec::new();
    for outcome in &outcomes {
        let key = outcome.download.object.listed.key.as_str();
        ended.push(key);
        outcome.result.as_ref().err().into_iter().for_each(tally::note_error);
        assert_eq!(outcome.download.unsettled(), 0, "{key}");
        if outcome.result.is_ok() {
            let pieces = world.delivered.get(&(key.to_owned(), outcome.download.restarts));
            let delivered = pieces.map_or(0, Pieces::total);
            assert_eq!(delivered, outcome.download.object.listed.size_bytes, "{key}: delivered");
        }
        match (&outcome.result, scenario.sink) {
            (Ok(()), Sink::File) if outcome.download.shape == Shape::Folder => {
                assert!(world.folders.iter().any(|folder| folder == key), "{key}: not made");
            }
            (Ok(()), Sink::File) => {
                let model = world.model(key);
                let found = world.published.get(key).expect("published");
                assert!(*found == *model, "{key}: wrong bytes");
            }
            (Ok(()), Sink::Null) => assert!(world.published.is_empty()),
            (Err(error), _) => {
                assert!(!world.published.contains_key(key), "{key} failed: {error}");
            }
        }
    }
    ended.sort_unstable();
    let mut expected: Vec<&str> = bench.keys.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(ended, expected, "each object ends exactly once");
    let retried = metrics.sent.retries.iter().sum::<u64>();
    let retries: u64 = outcomes.iter().map(|one| u64::from(one.download.object.retries())).sum();
    assert_eq!(
        retried, retries,
        "each is counted once per object and once per worker, and a move is none"
    );
    drop(world);
    (bench.world, outcomes)
}

const CALM: Rates = Rates {
    network_per_mille: 0,
    hang_per_mille: 0,
    fatal_per_mille: 0,
    disk_per_mille: 0,
    flip_per_mille: 0,
    pause_per_mille: 0,
    redirect_per_mille: 0,
    keys_per_mille: 0,
};

#[test]
fn a_calm_network_brings_everything_once() {
    seeds("a_calm_network_brings_everything_once", 500, |seed| {
        let scenario =
            Scenario { rates: CALM, stop: false, sink: Sink::File, tls: false, verify: false };
        let (world, outcomes) = check(seed, scenario);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        let world = world.borrow();
        assert!(world.injected.is_empty());
        for outcome in outcomes.iter().filter(|outcome| outcome.download.shape != Shape::Folder) {
            let object = &outcome.download.object.listed;
            let served = world.served.get(&object.key).copied().unwrap_or(0);
            let heads = 200 * (1 + object.size_bytes / u64::from(SLOT_BYTES_MIN));
            assert!(served <= object.size_bytes + heads, "{}: fetched once", object.key);
        }
        assert_eq!(world.late, [0; 3], "nothing was late");
    });
}

#[test]
fn a_worker_that_pauses_does_not_blame_the_network() {
    seeds("a_worker_that_pauses_does_not_blame_the_network", 60, |seed| {
        let rates = Rates { pause_per_mille: 20, ..CALM };
        let tls = seed % 4 == 0;
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls, verify: false };
        // 60 objects are enough ranges for the usual time of an answer to be known.
        let sizes: Vec<u64> = (0..60).map(|number| number * 5_000).collect();
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 16, &sizes);
        let (world, outcomes) = checked(bench, seed, scenario);
        assert_eq!(world.borrow().late, [0; 3], "no connection is late");
        for Outcome { download, result, .. } in &outcomes {
            assert!(result.is_ok() && download.object.retries() == 0, "no attempt is ended");
        }
    });
}

#[test]
fn empty_objects_do_not_keep_a_worker_from_its_connections() {
    seeds("empty_objects_do_not_keep_a_worker_from_its_connections", 30, |seed| {
        let rates = Rates { pause_per_mille: if seed % 2 == 0 { 0 } else { 5 }, ..CALM };
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls: false, verify: false };
        let mut sizes = vec![0; 600];
        sizes.extend([400_000; 20]);
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 16, &sizes);
        let (world, outcomes) = checked(bench, seed, scenario);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        assert_eq!(world.borrow().late, [0; 3], "no connection is late");
    });
}

#[test]
fn faults_that_a_retry_heals_lose_nothing() {
    seeds("faults_that_a_retry_heals_lose_nothing", 1500, |seed| {
        let rates = Rates { network_per_mille: 30, hang_per_mille: 10, ..CALM };
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls: false, verify: false };
        let (_, outcomes) = check(seed, scenario);
        for outcome in outcomes {
            assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        }
    });
}

#[test]
fn a_hostile_network_gives_right_bytes_or_a_named_error() {
    seeds("a_hostile_network_gives_right_bytes_or_a_named_error", 1500, |seed| {
        let rates = Rates {
            network_per_mille: 150,
            hang_per_mille: 50,
            fatal_per_mille: 20,
            disk_per_mille: if seed % 3 == 0 { 5 } else { 0 },
            ..CALM
        };
        let sink = if seed % 5 == 0 { Sink::Null } else { Sink::File };
        check(seed, Scenario { rates, stop: seed % 4 == 1, sink, tls: false, verify: false });
    });
}

#[test]
fn late_ranges_are_asked_for_twice_and_written_once() {
    seeds("late_ranges_are_asked_for_twice_and_written_once", 230, |seed| {
        // Now and then a connection or an answer hangs for ever.
        let rates = Rates { network_per_mille: 15, hang_per_mille: 30, ..CALM };
        let tls = seed % 8 == 0;
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls, verify: true };
        // 60 objects are enough ranges, of one to four slots, for the usual time to be known.
        let sizes: Vec<u64> = (0..60).map(|number| number * 5_000).collect();
        let part = 1 << (16 + seed % 3);
        let bench = set_up_with(seed, scenario, &mut Chance(seed), part, &sizes);
        let (_, outcomes) = checked(bench, seed, scenario);
        for Outcome { download, result, .. } in &outcomes {
            let is_known = result.is_ok() && download.object.listed.size_bytes > 0;
            assert_eq!(download.verification.verdict().is_ok(), is_known, "{result:?}");
        }
    });
}

#[test]
fn a_calm_network_brings_everything_over_tls() {
    seeds("a_calm_network_brings_everything_over_tls", 150, |seed| {
        let scenario =
            Scenario { rates: CALM, stop: false, sink: Sink::File, tls: true, verify: false };
        let (world, outcomes) = check(seed, scenario);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        assert!(world.borrow().injected.is_empty());
    });
}

#[test]
fn faults_of_tls_lose_nothing() {
    seeds("faults_of_tls_lose_nothing", 600, |seed| {
        let rates = Rates { network_per_mille: 40, hang_per_mille: 10, ..CALM };
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls: true, verify: false };
        let (world, outcomes) = check(seed, scenario);
        for error in outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
            // The run ends with it: the others say so.
            assert!(world.borrow().has_refused(error), "{error}");
        }
    });
}

#[test]
fn a_hostile_network_under_tls_gives_right_bytes_or_a_named_error() {
    seeds("a_hostile_network_under_tls_gives_right_bytes_or_a_named_error", 400, |seed| {
        let rates = Rates {
            network_per_mille: 150,
            hang_per_mille: 50,
            fatal_per_mille: 20,
            disk_per_mille: if seed % 3 == 0 { 5 } else { 0 },
            ..CALM
        };
        check(
            seed,
            Scenario { rates, stop: seed % 4 == 1, sink: Sink::File, tls: true, verify: false },
        );
    });
}

#[test]
fn a_stopped_run_leaves_only_whole_files() {
    seeds("a_stopped_run_leaves_only_whole_files", 500, |seed| {
        let rates = Rates { network_per_mille: 20, hang_per_mille: 20, ..CALM };
        let tls = seed % 4 == 0;
        let scenario = Scenario { rates, stop: true, sink: Sink::File, tls, verify: false };
        let (world, outcomes) = check(seed, scenario);
        assert_eq!(world.borrow().unnoted(), 0, "what was written is noted for a later run");
        for outcome in outcomes {
            if let Err(error) = outcome.result {
                let is_stopped = error.kind() == ErrorKind::Interrupted;
                assert!(is_stopped || world.borrow().has_refused(&error), "{error}");
            }
        }
    });
}

#[test]
fn wrong_bytes_are_never_taken_for_right_ones() {
    seeds("wrong_bytes_are_never_taken_for_right_ones", 600, |seed| {
        let rates = Rates { flip_per_mille: 100, ..CALM };
        let tls = seed % 4 == 0;
        let sink = if seed % 5 == 0 { Sink::Null } else { Sink::File };
        let (world, outcomes) =
            check(seed, Scenario { rates, stop: false, sink, tls, verify: true });
        let world = world.borrow();
        for Outcome { download, result, .. } in &outcomes {
            let key = &download.object.listed.key;
            let flipped = world.flipped.contains_key(key);
            match result {
                // A small object is fetched again at once, a large one later; and what a late
                // connection brings after another one took its range over is looked at by nobody.
                Ok(()) => {
                    let again = download.shape == Shape::Whole || download.restarts > 0;
                    assert!(!flipped || again || world.late != [0; 3], "{key}");
                }
                Err(error) => {
                    assert!(flipped && error.to_string().contains("CRC64NVME"), "{key}: {error}");
                    let anew = download.again() == Some(Again::Checksum);
                    assert_eq!(anew, download.shape == Shape::Ranges);
                }
            }
            let validated = result.is_ok() && download.object.listed.size_bytes > 0;
            assert_eq!(download.verification.verdict().is_ok(), validated, "{key}");
        }
    });
}

#[test]
fn sums_are_right_whatever_the_network_does() {
    seeds("sums_are_right_whatever_the_network_does", 600, |seed| {
        let rates = Rates { network_per_mille: 40, hang_per_mille: 10, ..CALM };
        let (sink, tls) = (Sink::File, false);
        let outcomes = check(seed, Scenario { rates, stop: false, sink, tls, verify: true }).1;
        for Outcome { download, result, .. } in &outcomes {
            assert!(result.is_ok(), "{result:?}");
            let Object { key, size_bytes, .. } = &download.object.listed;
            assert_eq!(download.verification.verdict().is_ok(), *size_bytes > 0, "{key}");
        }
    });
}

/// A range that breaks off again and again is fetched to its end, as long as each try brings bytes.
#[test]
fn a_range_whose_every_answer_is_cut_is_fetched_to_its_end() {
    seeds("a_range_whose_every_answer_is_cut_is_fetched_to_its_end", 20, |seed| {
        let scenario =
            Scenario { rates: CALM, stop: false, sink: Sink::File, tls: false, verify: false };
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 20, &[1_000_000]);
        bench.world.borrow_mut().cut_bytes = 40_000;
        let (_, outcomes) = checked(bench, seed, scenario);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()), "{outcomes:?}");
        assert!(outcomes[0].download.object.retries() > 12, "more cuts than tries");
    });
}
