//! Random operations of several threads on a mount, by a seed, each compared with the objects.
//!
//! `INRUSH_TEST_SEEDS` sets the number of seeds, `INRUSH_TEST_SEED` the first. What the kernel
//! has of a file is dropped again and again, so that reads reach the mount.

mod reader;

use std::time::Duration;

use inrush_origin::{Config, FaultPlan, Profile, TlsConfig};

use self::reader::{Mappers, Model, Reader};
use crate::bounded::within;
use crate::fuse::can_mount;
use crate::matrix::bytes_of;
use crate::mounted::Mounted;
use crate::names;
use crate::served::{config, start};

/// Seeds that are run, of all setups together.
const SEEDS: u64 = 12;
/// Objects of a seed.
const OBJECTS: usize = 24;
/// One that is larger than all buffers of some mounts.
const LARGE: &str = "d/the large one";
/// Threads of a seed, and operations of each.
const THREADS: u64 = 4;
const OPERATIONS: u32 = 60;
/// Longest time for a seed; a machine that is not busy takes a hundredth of it.
const LIMIT: Duration = Duration::from_secs(600);

/// How a seed's objects are served and mounted; each setup has every sixth seed.
struct Setup {
    words: &'static [&'static str],
    cache: bool,
    tls: bool,
    /// Those of the seeds in turn.
    profiles: &'static [Profile],
}

const SETUPS: [Setup; 6] = [
    Setup { words: &[], cache: false, tls: false, profiles: &[Profile::None] },
    Setup {
        words: &["--memory", "4M", "--fuse", "device"],
        cache: false,
        tls: false,
        profiles: &[Profile::None],
    },
    Setup { words: &["--memory", "16M"], cache: true, tls: false, profiles: &[Profile::None] },
    Setup { words: &["--memory", "8M"], cache: false, tls: true, profiles: &[Profile::None] },
    Setup { words: &["--memory", "6M"], cache: false, tls: false, profiles: &FAULTS },
    Setup { words: &["--memory", "8M"], cache: true, tls: true, profiles: &FAULTS_OVER_TLS },
];
const FAULTS: [Profile; 7] = [
    Profile::Mixed,
    Profile::Rough,
    Profile::Mild,
    Profile::Bursts,
    Profile::Strange,
    Profile::Overloaded,
    Profile::Slow,
];
const FAULTS_OVER_TLS: [Profile; 4] =
    [Profile::Tls, Profile::Rough, Profile::Mild, Profile::Strange];

/// Runs the seeds of a setup.
fn run(number: usize) {
    if !can_mount() {
        return;
    }
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = variable("INRUSH_TEST_SEED").unwrap_or(0);
    let count = variable("INRUSH_TEST_SEEDS").unwrap_or(SEEDS);
    let mappers = Mappers::default();
    let every = SETUPS.len() as u64;
    for seed in (first..first + count).filter(|seed| seed % every == number as u64) {
        let setup = &SETUPS[number];
        let turn = usize::try_from(seed / every).expect("few") % setup.profiles.len();
        let profile = setup.profiles[turn];
        let failures = failures(seed, setup, profile, &mappers);
        assert!(
            failures.is_empty(),
            "{profile:?}; repeat with: INRUSH_TEST_SEED={seed} INRUSH_TEST_SEEDS=1 \
             cargo test --test mount_more model\n{}",
            failures.join("\n")
        );
    }
}

/// What the threads of a seed say that is wrong.
fn failures(seed: u64, setup: &Setup, profile: Profile, mappers: &Mappers) -> Vec<String> {
    let mut objects = names::objects(seed, OBJECTS);
    let large = 4_000_001 + 517_003 * usize::try_from(seed % 16).expect("small");
    objects.insert(LARGE.to_owned(), bytes_of(LARGE, large));
    let faults = FaultPlan::seeded(seed, profile);
    let tls = setup.tls.then(TlsConfig::default);
    let origin = start(Config { faults, tls, ..config(&objects) });
    let cache = tempfile::tempdir().expect("a folder");
    let mut words = setup.words.to_vec();
    if setup.cache {
        words.extend(["--cache", cache.path().to_str().expect("UTF-8")]);
    }
    within(Mounted::new(&origin, &words), LIMIT, |mounted| {
        let model = Model::new(&mounted.point, &objects);
        std::thread::scope(|scope| {
            let started = (0..THREADS).map(|thread| {
                let mut reader = Reader::new(&model, mappers, seed * THREADS + thread);
                scope.spawn(move || {
                    (0..OPERATIONS).find_map(|number| {
                        let said = reader.step().err()?;
                        Some(format!("seed {seed}, thread {thread}, operation {number}: {said}"))
                    })
                })
            });
            let started: Vec<_> = started.collect();
            let ended = started.into_iter().filter_map(|thread| thread.join().expect("no panic"));
            ended.collect()
        })
    })
}

#[test]
fn over_http_it_agrees_with_the_model() {
    run(0);
}

#[test]
fn with_the_least_memory_it_agrees_with_the_model() {
    run(1);
}

#[test]
fn with_a_cache_it_agrees_with_the_model() {
    run(2);
}

#[test]
fn over_tls_it_agrees_with_the_model() {
    run(3);
}

#[test]
fn with_faults_it_agrees_with_the_model() {
    run(4);
}

#[test]
fn with_faults_over_tls_and_a_cache_it_agrees_with_the_model() {
    run(5);
}
