//! Where connections lead: spread over all addresses by what all workers have open, and away from
//! one that any of them found dead.

use std::net::SocketAddr;
use std::sync::PoisonError;

use inrush::limits::ADDRESS_AVOID_BASE_US;

use super::*;

const SCENARIO: Scenario =
    Scenario { rates: CALM, stop: false, sink: Sink::File, tls: false, verify: false };

fn four() -> [SocketAddr; 4] {
    [1, 2, 3, 4].map(|last| SocketAddr::from(([127, 0, 0, last], 80)))
}

/// A run over one bucket with four addresses; how many workers it has.
fn bench(seed: u64) -> (Bench, usize) {
    let endpoints = [endpoint(0, false)];
    *endpoints[0].addresses.write().unwrap_or_else(PoisonError::into_inner) = four().to_vec();
    let sizes: Vec<u64> = (0..40).map(|number| number * 5_000).collect();
    let bench = set_up_at(&endpoints, seed, SCENARIO, &mut Chance(seed), 1 << 16, &sizes);
    let workers = bench.workers.len();
    (bench, workers)
}

/// On a calm network no connection ends before the run, so all that were begun are open.
#[test]
fn connections_are_spread_over_all_workers() {
    let shared = AtomicU64::new(0);
    seeds("connections_are_spread_over_all_workers", 100, |seed| {
        let (bench, workers) = bench(seed);
        let (world, outcomes) = checked(bench, seed, SCENARIO);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        let mut open = [0; 4];
        for (address, _) in &world.borrow().connects {
            let at = four().iter().position(|known| known == address).expect("one of four");
            assert_eq!(Some(&open[at]), open.iter().min(), "the fewest of {open:?}");
            open[at] += 1;
        }
        let is_shared = workers > 1 && open.iter().sum::<u64>() > 4;
        shared.fetch_add(u64::from(is_shared), Ordering::Relaxed);
    });
    let is_one = std::env::var_os("INRUSH_SIM_SEED").is_some();
    assert!(is_one || shared.into_inner() > 10, "two workers, and more connections than addresses");
}

#[test]
fn an_address_that_one_worker_found_dead_is_avoided_by_all() {
    let met = AtomicU64::new(0);
    seeds("an_address_that_one_worker_found_dead_is_avoided_by_all", 100, |seed| {
        let (bench, workers) = bench(seed);
        let dead = four()[usize::try_from(seed % 4).expect("small")];
        bench.world.borrow_mut().dead = Some(dead);
        let (world, outcomes) = checked(bench, seed, SCENARIO);
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
        let world = world.borrow();
        let Some(found_us) = world.dead_found_us else { return };
        let avoided_us = found_us + 1..found_us + ADDRESS_AVOID_BASE_US;
        let mut later = world.connects.iter().filter(|(_, at_us)| avoided_us.contains(at_us));
        assert!(later.clone().all(|(address, _)| *address != dead), "it was known to be dead");
        met.fetch_add(u64::from(workers > 1 && later.next().is_some()), Ordering::Relaxed);
    });
    let is_one = std::env::var_os("INRUSH_SIM_SEED").is_some();
    assert!(is_one || met.into_inner() > 20, "two workers that connect after it was found");
}
