//! Where connections lead: spread over all addresses by what all workers have open, and away from
//! one that any of them found dead; and what becomes of a run that reaches nobody.

use std::net::SocketAddr;
use std::sync::PoisonError;

use inrush::limits::{ADDRESS_AVOID_BASE_US, FIRST_BYTE_TIMEOUT_US};

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
        note("two workers share addresses", u64::from(is_shared));
    });
}

#[test]
fn an_address_that_one_worker_found_dead_is_avoided_by_all() {
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
        let is_avoided = workers > 1 && later.next().is_some();
        note("dead address avoided by two workers", u64::from(is_avoided));
    });
}

#[test]
fn wrong_bytes_of_one_address_are_asked_of_another() {
    seeds("wrong_bytes_of_one_address_are_asked_of_another", 60, |seed| {
        let endpoints = [endpoint(0, false)];
        *endpoints[0].addresses.write().unwrap_or_else(PoisonError::into_inner) = four().to_vec();
        let scenario = Scenario { verify: true, ..SCENARIO };
        let mut chance = Chance(seed);
        let bench = set_up_at(&endpoints, seed, scenario, &mut chance, 1 << 16, &[5_000; 40]);
        bench.world.borrow_mut().wrong_at = Some(four()[usize::try_from(seed % 4).expect("small")]);
        let (world, outcomes) = checked(bench, seed, scenario);
        for Outcome { download, result, .. } in outcomes {
            assert!(result.is_ok(), "three of four have the right bytes: {result:?}");
            let retries = u64::from(download.object.retries());
            assert!(retries <= 1 || world.borrow().late != [0; 3], "{retries} retries");
        }
    });
}

/// Before anything came, nobody knows how long an answer takes; the other addresses are asked all
/// the same.
#[test]
fn a_silent_address_is_left_long_before_its_timeout() {
    seeds("a_silent_address_is_left_long_before_its_timeout", 400, |seed| {
        let endpoints = [endpoint(0, false)];
        let two = four()[..2].to_vec();
        *endpoints[0].addresses.write().unwrap_or_else(PoisonError::into_inner) = two.clone();
        let (count, mut chance) = (usize::try_from(1 + seed % 6).expect("small"), Chance(seed));
        let sizes = vec![5_000; count];
        let bench = set_up_at(&endpoints, seed, SCENARIO, &mut chance, 1 << 16, &sizes);
        let silent = two[usize::try_from(seed % 2).expect("small")];
        bench.world.borrow_mut().silent_at = Some(silent);
        let (world, outcomes) = checked(bench, seed, SCENARIO);
        for Outcome { download, result, .. } in outcomes {
            assert!(result.is_ok(), "the other address has it: {result:?}");
            assert_eq!(download.object.retries(), 0, "moves alone");
        }
        let world = world.borrow();
        assert!(world.now_us < sizes.len() as u64 * FIRST_BYTE_TIMEOUT_US, "{} us", world.now_us);
    });
}

/// Also where the range waits for its next try without a connection, as there are two endpoints.
#[test]
fn the_same_wrong_bytes_of_an_only_address_are_asked_for_twice() {
    seeds("the_same_wrong_bytes_of_an_only_address_are_asked_for_twice", 60, |seed| {
        let endpoints = [endpoint(0, false), endpoint(1, false)];
        *endpoints[1].addresses.write().unwrap_or_else(PoisonError::into_inner) = vec![four()[1]];
        let scenario = Scenario { verify: true, ..SCENARIO };
        let mut chance = Chance(seed);
        let bench = set_up_at(&endpoints, seed, scenario, &mut chance, 1 << 16, &[5_000; 40]);
        bench.world.borrow_mut().wrong_at = Some(four()[1]);
        let (world, outcomes) = checked(bench, seed, scenario);
        for Outcome { download, result, .. } in outcomes {
            let is_wrong = Arc::ptr_eq(&download.object.endpoint, &endpoints[1]);
            assert_eq!(result.is_err(), is_wrong, "{result:?}");
            let Err(error) = result else { continue };
            assert!(error.to_string().contains("two downloads gave the same bytes"), "{error}");
            let retries = download.object.retries();
            assert!(retries == 1 || world.borrow().late != [0; 3], "{retries} retries");
        }
    });
}

#[test]
fn an_endpoint_that_is_gone_is_not_asked_for_every_object() {
    seeds("an_endpoint_that_is_gone_is_not_asked_for_every_object", 5, |seed| {
        // No connection is ever made.
        let rates = Rates { network_per_mille: 1000, ..CALM };
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls: false, verify: false };
        let mut bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 20, &[1000; 4000]);
        let metrics = run(&mut bench, seed, false);
        let error = bench.scheduler.stop_reason().expect("the run is over");
        assert_eq!(error.kind(), ErrorKind::Endpoint, "{error}");
        // Few connections may spend a range's own time first.
        let is_over =
            ["attempts in a row", "tries in 60 s"].map(|end| error.to_string().contains(end));
        assert!(is_over.contains(&true), "{error}");
        let attempts: u64 = metrics.sent.retries.iter().sum();
        assert!(attempts < 3000, "{attempts} of 48,000");
    });
}

/// Half a minute in which nobody listens is survived, whatever the number of tries.
#[test]
fn an_outage_shorter_than_it_is_retried_for_loses_nothing() {
    seeds("an_outage_shorter_than_it_is_retried_for_loses_nothing", 60, |seed| {
        let tls = seed % 4 == 0;
        let scenario = Scenario { rates: CALM, stop: false, sink: Sink::File, tls, verify: false };
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 20, &[300_000; 20]);
        let begin_us = Chance(seed).below(3_000);
        bench.world.borrow_mut().outage_us = begin_us..begin_us + 30_000_000;
        let (world, outcomes) = checked(bench, seed, scenario);
        for outcome in outcomes {
            assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        }
        let refused = world.borrow().injected.get("refused").copied().unwrap_or(0);
        note("outage survived", u64::from(refused > 12));
    });
}
