//! Real workers and feeders of Pipe mode on the simulated machine, compared with a model: each
//! epoch's reader gets the objects' bytes in order, all of them or exactly as far as it read;
//! places come and go in order; every request completes; nothing spins, nothing is left.

mod ends;
mod run;
mod slow;

use std::collections::BTreeMap;

use inrush::error::{Error, ErrorKind, ErrorReason};
use inrush::limits::{ALIKE_TRIES_MAX, ATTEMPTS_MAX, EPOCHS_REPORTED_MAX};

use super::CALM;
use super::chance::Chance;
use super::detours::is_refused_twice;
use super::origin::Rates;
use super::places::Manner;
use super::plumbing::small;
use super::seeds::{note, seeds};
use run::{Course, PATIENT, check};

/// A reader as the seed draws it, for an epoch of `bytes` bytes.
fn manner(chance: &mut Chance, bytes: u64, leaves: bool) -> Manner {
    let pick = |chance: &mut Chance, from: &[u64]| {
        from[usize::try_from(chance.below(from.len() as u64)).expect("small")]
    };
    let leaves_at = (leaves && chance.hits(400))
        .then(|| if chance.hits(200) { 0 } else { chance.below(bytes + 1) });
    Manner {
        late_us: pick(chance, &[0, 0, 2_000, 500_000, 5_000_000]),
        gulp: pick(chance, &[100, 3_000, 10_000, 1 << 20]) + bytes / 200,
        idle_us: 5_000,
        pace_us: pick(chance, &[1, 100, 5_000, 50_000]),
        pause_per_mille: pick(chance, &[0, 0, 50]),
        leaves_at: leaves_at.map(|bytes| usize::try_from(bytes).expect("small")),
        phases: &[],
    }
}

/// A course as the seed draws it.
fn course(seed: u64, rates: Rates, leaves: bool) -> Course {
    let mut chance = Chance(seed ^ 0xc0de);
    let count = 1 + chance.below(4);
    let borders = [0, 1, 4095, 4096, 4097, 8192];
    let epochs: Vec<Vec<u64>> = (0..count)
        .map(|_| {
            let mut sizes: Vec<u64> = borders.into_iter().filter(|_| chance.hits(150)).collect();
            sizes.extend((0..chance.below(5)).map(|_| chance.below(60_000)));
            sizes
        })
        .collect();
    let bytes = |sizes: &Vec<u64>| sizes.iter().sum();
    // Now and then two feeders share the workers.
    let feeders = if chance.hits(150) { 2 } else { 1 };
    let mut manners =
        |_| epochs.iter().map(|sizes| manner(&mut chance, bytes(sizes), leaves)).collect();
    let manners = (0..feeders).map(&mut manners).collect();
    let workers = 1 + chance.below(3);
    let workers = (0..workers).map(|_| 1 + small(chance.below(4))).collect();
    Course {
        rates,
        spurious_per_mille: 0,
        lost_per_mille: 0,
        uneven: true,
        inline_per_mille: if Chance(seed ^ 0x1d1e).hits(400) { 500 } else { 0 },
        slots_max: [2, 4, 16, 64][small(chance.below(4))],
        slots: None,
        connections: 1 + small(chance.below(6)),
        workers,
        part: 4096 * (1 + chance.below(6)),
        epochs,
        manners,
        never: chance.hits(100),
        stop_us: None,
        holds: false,
        marks: false,
        verified_per_mille: if Chance(seed ^ 0xcec5).hits(300) { 500 } else { 0 },
        pace_us: [1, 5_000, 1_000_000][small(chance.below(3))],
        tls: false,
        down_us: None,
        terms: None,
        start: None,
        budget_bytes: None,
        socket_bytes_max: None,
        drops_above_bytes: None,
    }
}

/// Faults that each cause one retry, when no reader leaves and nothing is stopped.
fn to_retry(injected: &BTreeMap<&'static str, u64>) -> u64 {
    let harmless = [
        "cancel lost",
        "close after",
        "lost cancel",
        "ring full for a watch",
        "short send",
        "spurious",
        "wake-up lost",
    ];
    injected.iter().filter(|(name, _)| !harmless.contains(name)).map(|(_, count)| count).sum()
}

#[test]
fn a_calm_network_feeds_every_reader() {
    seeds("a_calm_network_feeds_every_reader", 1500, |seed| {
        let uneven = seed % 2 == 0;
        let ran = check(seed, &Course { uneven, ..course(seed, CALM, false) });
        ran.assert_ok();
        assert!(ran.world.borrow().injected.is_empty());
        let late = if uneven { ran.late() } else { 0 };
        assert_eq!(ran.retries(), late);
    });
}

/// A feeder that is stopped for up to a minute, again and again, blames no connection for it.
#[test]
fn a_feeder_that_pauses_does_not_blame_the_network() {
    seeds("a_feeder_that_pauses_does_not_blame_the_network", 400, |seed| {
        let rates = Rates { pause_per_mille: 20, ..CALM };
        let course = Course { uneven: false, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        ran.assert_ok();
        let retries = ran.retries();
        assert_eq!((ran.late(), retries), (0, 0), "no connection was late");
    });
}

#[test]
fn readers_that_leave_get_what_they_read() {
    seeds("readers_that_leave_get_what_they_read", 1500, |seed| {
        let ran = check(seed, &course(seed, CALM, true));
        ran.assert_ok();
    });
}

#[test]
fn each_fault_of_a_stream_is_one_retry() {
    seeds("each_fault_of_a_stream_is_one_retry", 1500, |seed| {
        let rates = Rates { network_per_mille: 30, hang_per_mille: 10, ..CALM };
        let spurious_per_mille = if seed % 2 == 0 { 0 } else { 100 };
        let uneven = seed % 3 == 0;
        let course = Course { spurious_per_mille, uneven, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        ran.assert_ok();
        let injected = &ran.world.borrow().injected;
        let (retries, faults, late) = (ran.retries(), to_retry(injected), ran.late());
        assert!(retries <= faults + late, "{retries} after {injected:?}");
        // A full ring fails a connection whose answer may have had a fault still to come, and so
        // does the end of one that is late.
        let unseen =
            injected.get("ring full").copied().unwrap_or(0) + late + ran.metrics.sent.hedges;
        if unseen == 0 {
            assert_eq!(retries, faults, "each fault is seen once: {injected:?}");
            note("one retry for each fault", u64::from(faults > 0));
        }
    });
}

/// A range that stalls among many goes on elsewhere long before its timeout.
#[test]
fn what_is_late_beside_its_peers_is_not_waited_for() {
    seeds("what_is_late_beside_its_peers_is_not_waited_for", 200, |seed| {
        let rates = Rates { hang_per_mille: 10, ..CALM };
        let many = Course {
            epochs: vec![vec![9_000; 200]],
            manners: vec![vec![PATIENT]],
            connections: 8,
            never: false,
            uneven: false,
            pace_us: 1,
            ..course(seed, rates, false)
        };
        let ran = check(seed, &many);
        ran.assert_ok();
        let world = ran.world.borrow();
        // The first few are waited for: nobody knows yet what is usual.
        let again = ran.metrics.sent.moves + ran.metrics.sent.hedges;
        let is_soon = world.now_us < 10_000_000 && again > 0;
        note("late range left soon", u64::from(is_soon));
        note("late range waited for", u64::from(!world.injected.is_empty() && !is_soon));
    });
}

#[test]
fn a_hostile_network_gives_a_right_stream_or_a_named_error() {
    seeds("a_hostile_network_gives_a_right_stream_or_a_named_error", 3000, |seed| {
        let rates = Rates {
            network_per_mille: 60,
            hang_per_mille: 30,
            fatal_per_mille: 10,
            disk_per_mille: if seed % 3 == 0 { 20 } else { 0 },
            ..CALM
        };
        let leaves = seed % 2 == 0;
        let stop_us = (seed % 5 == 0).then(|| Chance(seed).below(10_000_000));
        let ran =
            check(seed, &Course { spurious_per_mille: 50, stop_us, ..course(seed, rates, leaves) });
        let fatal = ["denied", "other etag", "no place", "no pipe"];
        let hit = ran.injected(&fatal) > 0;
        let injected = &ran.world.borrow().injected;
        for error in ran.errors() {
            let kinds = [
                ErrorKind::Access,
                ErrorKind::Destination,
                ErrorKind::Endpoint,
                ErrorKind::Host,
                // A changed object, as in File mode.
                ErrorKind::Objects,
            ];
            let ends = hit && kinds.contains(&error.kind()) || is_wrong_alike(error);
            assert!(ends, "{error} after {injected:?}");
        }
        let channels = &ran.world.borrow().plumbing.channels;
        let is_stopped = channels.iter().any(|channel| channel.feed.is_stopped());
        if ran.errors().next().is_none() && !leaves && stop_us.is_none() && !is_stopped {
            // What a second connection fetched is not looked at by the first; a full ring may fail
            // a connection before its refusal is read.
            let unseen = injected.contains_key("ring full") || ran.metrics.sent.hedges > 0;
            // A place ahead of its reader is tried again.
            let is_final = ran.injected(&["denied", "other etag"]) > 0;
            assert!(!is_final || unseen, "no error after {injected:?}");
        }
    });
}

#[test]
fn a_verified_stream_has_no_whole_object_that_differs() {
    seeds("a_verified_stream_has_no_whole_object_that_differs", 600, |seed| {
        let rates = Rates { flip_per_mille: 100, ..CALM };
        let tls = seed % 4 == 0;
        let course = course(seed, rates, seed % 3 == 0);
        let ran = check(seed, &Course { verified_per_mille: 1000, tls, ..course });
        let is_flipped = !ran.world.borrow().flipped.is_empty();
        for error in ran.errors() {
            let is_named = error.to_string().contains("the bytes have another checksum: the ");
            assert!(is_flipped && is_named && error.reason() == ErrorReason::Integrity, "{error}");
        }
        for fed in &ran.fed {
            assert!(fed.count.not_validated.is_empty(), "each is compared");
        }
    });
}

/// Gateways lead each range to a node, which may have lost the object meanwhile.
#[test]
fn redirects_and_keys_that_expire_end_no_stream() {
    seeds("redirects_and_keys_that_expire_end_no_stream", 400, |seed| {
        let network_per_mille = if seed % 3 == 0 { 20 } else { 0 };
        let (redirect_per_mille, keys_per_mille) = (400, 40);
        let rates = Rates { network_per_mille, redirect_per_mille, keys_per_mille, ..CALM };
        let tls = seed % 4 == 0;
        let ran = check(seed, &Course { tls, ..course(seed, rates, seed % 2 == 0) });
        for error in ran.errors() {
            let is_refused = ran.world.borrow().has_refused(error) || is_refused_twice(error);
            assert!(is_refused, "{error}");
        }
    });
}

/// Half a minute in which nobody listens is survived, whatever the number of tries.
#[test]
fn an_outage_shorter_than_it_is_retried_for_ends_no_stream() {
    seeds("an_outage_shorter_than_it_is_retried_for_ends_no_stream", 60, |seed| {
        let course = Course {
            epochs: vec![vec![50_000; 20]],
            manners: vec![vec![PATIENT]],
            never: false,
            tls: seed % 4 == 0,
            down_us: Some(Chance(seed).below(20_000)),
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        note("outage survived", u64::from(ran.injected(&["refused"]) > 20));
    });
}

#[test]
fn a_stopped_channel_leaves_no_place() {
    seeds("a_stopped_channel_leaves_no_place", 500, |seed| {
        let rates = Rates { network_per_mille: 20, hang_per_mille: 20, ..CALM };
        let stop_us = Some(Chance(seed).below([10_000, 1_000_000][usize::from(seed % 2 == 0)]));
        let ran = check(seed, &Course { stop_us, ..course(seed, rates, true) });
        ran.assert_ok();
    });
}

#[test]
fn a_calm_network_feeds_every_reader_over_tls() {
    seeds("a_calm_network_feeds_every_reader_over_tls", 300, |seed| {
        let uneven = seed % 3 == 0;
        let course = Course { tls: true, uneven, ..course(seed, CALM, seed % 4 == 0) };
        let ran = check(seed, &course);
        ran.assert_ok();
        assert!(ran.world.borrow().injected.is_empty());
        let late = if uneven { ran.late() } else { 0 };
        assert_eq!(ran.retries(), late);
    });
}

/// Tries of the range that this error is about.
fn tries(error: &Error) -> u32 {
    let text = error.to_string();
    let tries = text.split_once("failed after ").and_then(|(_, rest)| rest.split_once(" tries"));
    tries.and_then(|(tries, _)| tries.parse().ok()).unwrap_or(0)
}

/// Where most connections fail, a range may use up its tries and its time without one answer.
fn was_retried_to_the_end(error: &Error) -> bool {
    error.kind() == ErrorKind::Endpoint && tries(error) >= ATTEMPTS_MAX
}

/// Faults are drawn for each request alone: now and then a range meets the same one each time.
fn is_wrong_alike(error: &Error) -> bool {
    error.reason() == ErrorReason::Server && tries(error) >= ALIKE_TRIES_MAX
}

#[test]
fn faults_of_a_stream_under_tls_lose_nothing() {
    seeds("faults_of_a_stream_under_tls_lose_nothing", 800, |seed| {
        let rates = Rates { network_per_mille: 40, hang_per_mille: 10, ..CALM };
        let spurious_per_mille = if seed % 2 == 0 { 0 } else { 100 };
        let course = Course { spurious_per_mille, tls: true, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        let injected = &ran.world.borrow().injected;
        for error in ran.errors() {
            assert!(ran.world.borrow().has_refused(error), "{error} after {injected:?}");
        }
    });
}

#[test]
fn a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error() {
    let test = "a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error";
    seeds(test, 800, |seed| {
        let rates = Rates {
            network_per_mille: 100,
            hang_per_mille: 30,
            fatal_per_mille: 10,
            disk_per_mille: if seed % 3 == 0 { 20 } else { 0 },
            ..CALM
        };
        let stop_us = (seed % 5 == 0).then(|| Chance(seed).below(10_000_000));
        let leaves = seed % 2 == 0;
        let course =
            Course { spurious_per_mille: 50, stop_us, tls: true, ..course(seed, rates, leaves) };
        let ran = check(seed, &course);
        for error in ran.errors() {
            let kinds = [ErrorKind::Access, ErrorKind::Destination, ErrorKind::Host];
            let known = kinds.contains(&error.kind()) || error.kind() == ErrorKind::Objects;
            let injected = &ran.world.borrow().injected;
            let ends =
                known || ran.world.borrow().has_refused(error) || was_retried_to_the_end(error);
            assert!(ends || is_wrong_alike(error), "{error} after {injected:?}");
        }
    });
}

/// At every byte of a small stream the reader leaves; the next epoch's reader gets all the same.
#[test]
fn a_reader_may_leave_at_every_byte() {
    seeds("a_reader_may_leave_at_every_byte", 30, |seed| {
        let mut chance = Chance(seed);
        let sizes: Vec<u64> = (0..3).map(|_| 1 + chance.below(40)).collect();
        for leaves_at in 0..=usize::try_from(sizes.iter().sum::<u64>()).expect("small") {
            let late_us = chance.below(5_000);
            let leaver = Manner {
                gulp: 1 + chance.below(20),
                late_us,
                leaves_at: Some(leaves_at),
                ..PATIENT
            };
            let course = Course {
                epochs: vec![sizes.clone(), sizes.clone()],
                manners: vec![vec![leaver, PATIENT]],
                connections: 1 + small(chance.below(4)),
                never: false,
                ..course(seed, CALM, false)
            };
            let ran = check(seed, &course);
            ran.assert_ok();
            assert!(ran.world.borrow().plumbing.channels[0].places[&0].left, "{leaves_at}");
        }
    });
}

/// Cancels are lost again and again, and so is every wake-up of the feed: each reader still sees
/// its end of file soon, and the stream goes on.
#[test]
fn lost_cancels_and_wake_ups_keep_nobody_waiting() {
    seeds("lost_cancels_and_wake_ups_keep_nobody_waiting", 1000, |seed| {
        let rates = Rates { hang_per_mille: 10, ..CALM };
        let lost_per_mille = 300;
        let ran = check(seed, &Course { lost_per_mille, ..course(seed, rates, seed % 2 == 0) });
        ran.assert_ok();
    });
}

/// A channel that runs for ever remembers the last epochs alone.
#[test]
fn very_many_epochs_are_counted_and_forgotten() {
    seeds("very_many_epochs_are_counted_and_forgotten", 2, |seed| {
        let course = Course {
            inline_per_mille: 0,
            epochs: vec![vec![10]; EPOCHS_REPORTED_MAX + 7],
            manners: vec![vec![PATIENT; EPOCHS_REPORTED_MAX + 7]],
            never: false,
            pace_us: 1,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        assert_eq!(
            (ran.fed[0].count.epochs.len(), ran.fed[0].count.earlier_epochs),
            (EPOCHS_REPORTED_MAX, 7)
        );
        assert_eq!(ran.fed[0].count.earlier_bytes, 70);
    });
}

/// A reader that reads little by little, with pauses of seconds: whoever waits for it sleeps.
#[test]
fn a_paused_reader_costs_no_turns() {
    seeds("a_paused_reader_costs_no_turns", 200, |seed| {
        let pauses = Manner { gulp: 9_000, pace_us: 10_000_000, ..PATIENT };
        let course = Course {
            epochs: vec![vec![100_000]],
            manners: vec![vec![pauses]],
            never: false,
            pace_us: 1,
            slots_max: 2,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        let seconds = 1 + ran.world.borrow().now_us / 1_000_000;
        // Five looks a second at the clock, and what the bytes themselves cost.
        assert!(
            ran.fed[0].count.turns < 10 * seconds + 500,
            "{} in {seconds} s",
            ran.fed[0].count.turns
        );
        assert!(
            ran.fed[0].count.epochs[0].reader_kept_us > 1_000_000,
            "it kept the feeder waiting"
        );
    });
}

/// Two streams share the workers, and the reader of one does nothing for a long time: the other one
/// goes on all the while.
#[test]
fn a_reader_that_sleeps_holds_up_no_other_stream() {
    seeds("a_reader_that_sleeps_holds_up_no_other_stream", 100, |seed| {
        let idle_us = 500_000_000;
        let sleeper = Manner { idle_us, ..PATIENT };
        let connections = 1 + small(Chance(seed).below(4));
        let workers = vec![connections; 1 + small(seed % 3)];
        let course = Course {
            epochs: vec![vec![60_000; 30]],
            manners: vec![vec![sleeper], vec![PATIENT]],
            connections,
            // Each stream has its part of the workers' connections.
            workers: workers.into_iter().map(|all| 2 * all).collect(),
            never: false,
            uneven: false,
            pace_us: 1,
            // Through little memory a range takes longer.
            verified_per_mille: 0,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        let [asleep, awake] = &ran.fed[..] else { unreachable!("two feeders") };
        // Ranges come within some tens of milliseconds, and nobody waits for a look at the clock.
        let ranges = 30 * 60_000u64.div_ceil(course.part);
        let most_us = 100_000 * (ranges.div_ceil(course.connections as u64) + 5);
        assert!(awake.over_us < most_us, "{} us of {most_us}", awake.over_us);
        let first_us = ran.world.borrow().plumbing.channels[0].places[&0].first_us;
        note("reader slept while another read", u64::from(first_us > most_us));
        assert!(asleep.over_us > first_us, "all of it came when it was read");
    });
}
