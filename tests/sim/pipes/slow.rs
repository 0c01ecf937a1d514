//! Streams whose readers are slower than the network, for long or again and again: what waits for
//! its turn stays within the budget of the streams, so the kernel never drops a packet for want of
//! memory; the reader gets its rate, and all of the network as soon as it takes it.

use inrush::engine::pace::{Moment, Timeline};

use super::course;
use super::run::{Course, PATIENT, Ran, check};
use crate::network::Terms;
use crate::pace::{MILLION, SECOND_US};
use crate::places::{Manner, Phase, Place};
use crate::plumbing::PipeSlots;
use crate::{CALM, seeds};

/// Of the network, in bytes a second.
const CAPACITY: u64 = 8 * MILLION;
/// Of one connection.
const CONNECTION_RATE: u64 = MILLION;
const LATENCY_US: u64 = 30_000;
const RANGE_BYTES: u64 = 64 << 10;
const OBJECT_BYTES: u64 = 4 << 20;
/// A reader that takes all that there is.
const FAST: u64 = 8 * CAPACITY;
/// A quarter of the network's capacity.
const SLOW: u64 = CAPACITY / 4;
/// Requests that may be in flight.
const REQUESTS_MAX: usize = 64;
/// Bytes that the streams may have requested and not handed on: 32 ranges, half of those of the
/// requests, and twice what the network needs in flight.
const BUDGET_BYTES: u64 = 32 * RANGE_BYTES;
/// Bytes of an answer's head, at most.
const HEAD_BYTES: u64 = 512;
/// Ranges that are late, and asked for twice, at a time.
const RIVALS: u64 = 4;
/// What that budget leaves in receive buffers at most; a little above that the kernel drops.
const SOCKET_BYTES_MAX: u64 =
    BUDGET_BYTES + RIVALS * RANGE_BYTES + REQUESTS_MAX as u64 * HEAD_BYTES;
const DROPS_ABOVE_BYTES: u64 = BUDGET_BYTES * 5 / 4;

/// Requests in flight that bring this rate: an answer takes its latency, which is up to a quarter
/// more, and its bytes come as fast as a connection brings them.
const fn requests_for(bytes_per_second: u64) -> u64 {
    let range_us = LATENCY_US * 9 / 8 + RANGE_BYTES * SECOND_US / CONNECTION_RATE;
    (bytes_per_second * range_us).div_ceil(RANGE_BYTES * SECOND_US)
}

/// Epochs of as many objects as `objects` lists, each with a reader of these phases.
fn slow_course(seed: u64, phases: &'static [Phase], objects: &[usize]) -> Course {
    let manner = Manner { gulp: 32 << 10, phases, ..PATIENT };
    Course {
        inline_per_mille: 0,
        // Ranges are eight times their pipes, as those of 8 MiB are.
        slots: Some(PipeSlots { private: 2, reader: 16 }),
        connections: REQUESTS_MAX,
        workers: vec![REQUESTS_MAX / 2; 2],
        part: RANGE_BYTES,
        epochs: objects.iter().map(|count| vec![OBJECT_BYTES; *count]).collect(),
        manners: vec![vec![manner; objects.len()]],
        never: false,
        pace_us: 1,
        terms: Some(Terms::new(CAPACITY, CONNECTION_RATE, LATENCY_US)),
        start: Some(8),
        // What is compared passes through memory, of which each seed draws another amount.
        verified_per_mille: 0,
        budget_bytes: Some(BUDGET_BYTES),
        socket_bytes_max: Some(SOCKET_BYTES_MAX),
        drops_above_bytes: Some(DROPS_ABOVE_BYTES),
        ..course(seed, CALM, false)
    }
}

/// A course over a network of this rate, all of which one connection may have; 32 requests share it
/// from the start.
fn shared_course(
    seed: u64,
    phases: &'static [Phase],
    objects: &[usize],
    bytes_per_second: u64,
) -> Course {
    Course {
        terms: Some(Terms::new(bytes_per_second, bytes_per_second, LATENCY_US)),
        start: Some(32),
        drops_above_bytes: None,
        ..slow_course(seed, phases, objects)
    }
}

/// Runs it; nothing fails, hardly anything is late, and no packet is dropped.
fn undisturbed(seed: u64, course: &Course) -> Ran {
    let ran = check(seed, course);
    ran.assert_ok();
    let world = ran.world.borrow();
    assert_eq!(world.memory.drops, 0, "of {} bytes", world.memory.socket_bytes_peak);
    let network = world.network.as_ref().expect("a network");
    assert_eq!(ran.retries() - ran.moves(), 0, "no attempt failed");
    // What comes last of a burst may be asked for twice.
    let requests = network.requests;
    assert!(ran.moves() * 100 <= requests, "{} of {requests} were moved", ran.moves());
    drop(world);
    ran
}

/// Bytes a second that each of a reader's phases brought, without its rest.
fn rates(place: &Place) -> Vec<u64> {
    let ends = place.begun[1..].iter().map(|(begun_us, from)| (*begun_us, *from));
    let ends = ends.chain([(place.read_until_us(), place.got.len())]);
    let phases = place.manner.phases.iter().cycle().skip(1);
    place
        .begun
        .iter()
        .zip(ends)
        .zip(phases)
        .map(|(((begun_us, from), (end_us, to)), next)| {
            let is_last = to == place.got.len();
            let end_us = if is_last { end_us } else { end_us - next.rest_us };
            (to - from) as u64 * SECOND_US / (end_us - begun_us)
        })
        .collect()
}

/// What the pace had chosen by then.
fn requests_at(timeline: &Timeline, at_us: u64) -> u32 {
    let earlier = |moment: &&Moment| moment.at_us <= at_us;
    timeline.moments().iter().rev().find(earlier).expect("the beginning").requests_in_flight
}

/// Of a slow reader's rate, in hundredths: it costs a step too many now and then.
const OF_READER: u64 = 97;
/// Of the network's rate: a look at fewer requests costs what is missing there for a second.
const OF_NETWORK: u64 = 92;
/// Of the network's rate in bursts of a few seconds: each begins with what stood ready, and a look
/// goes on in the next one.
const OF_NETWORK_IN_BURSTS: u64 = 75;

/// Fails unless a rate is at least `hundredths` hundredths of the wished one.
fn assert_rate(rate: u64, (wished, hundredths): (u64, u64), timeline: &Timeline) {
    assert!(rate * 100 >= wished * hundredths, "{rate} of {wished} bytes/s: {timeline:?}");
}

/// A reader that takes all there is, with as many requests as that needs: the network's rate is
/// what it gets.
#[test]
fn a_fast_reader_gets_the_rate_of_the_network() {
    const PHASES: &[Phase] = &[Phase { rest_us: 0, bytes_per_second: FAST, bytes: 24 << 20 }];
    seeds("a_fast_reader_gets_the_rate_of_the_network", 2, |seed| {
        let few = usize::try_from(requests_for(CAPACITY) * 3 / 2).expect("few");
        let course =
            Course { connections: few, start: Some(8), ..slow_course(seed, PHASES, &[24]) };
        let ran = undisturbed(seed, &course);
        let rates = rates(&ran.world.borrow().plumbing.channels[0].places[&0]);
        // While the first are read the pace is looked for.
        rates[1..]
            .iter()
            .for_each(|rate| assert_rate(*rate, (CAPACITY, OF_NETWORK), &ran.fed[0].count.pace));
    });
}

/// 32 ranges of 1 MiB share the network from the start: the reader has the first bytes long before
/// all of them are there.
#[test]
fn the_first_bytes_come_early_where_many_ranges_share_the_network() {
    const PHASES: &[Phase] = &[
        Phase { rest_us: 0, bytes_per_second: FAST, bytes: 1 << 20 },
        Phase { rest_us: 0, bytes_per_second: FAST, bytes: 1 << 40 },
    ];
    seeds("the_first_bytes_come_early_where_many_ranges_share_the_network", 2, |seed| {
        let course = Course {
            part: 1 << 20,
            connections: 32,
            workers: vec![16; 2],
            budget_bytes: Some(64 << 20),
            socket_bytes_max: None,
            ..shared_course(seed, PHASES, &[8], CAPACITY)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        let world = ran.world.borrow();
        let place = &world.plumbing.channels[0].places[&0];
        let (early_us, all_us) = (place.begun[1].0, place.read_until_us());
        assert!(early_us * 3 < all_us, "1 MiB of 32 after {early_us} of {all_us} us");
    });
}

/// More requests than a slow network needs share it from the start, and each takes the longer: the
/// reader goes on getting bytes all the time.
#[test]
fn a_reader_of_a_slow_network_is_never_without_bytes_for_long() {
    const SLOW_NETWORK: u64 = 2 * MILLION;
    const PHASES: &[Phase] = &[Phase { rest_us: 0, bytes_per_second: FAST, bytes: 1 << 20 }];
    seeds("a_reader_of_a_slow_network_is_never_without_bytes_for_long", 2, |seed| {
        let course = Course {
            part: 4 << 20,
            connections: 256,
            workers: vec![128; 2],
            budget_bytes: Some(256 << 20),
            socket_bytes_max: Some(512 << 20),
            ..shared_course(seed, PHASES, &[24], SLOW_NETWORK)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        let world = ran.world.borrow();
        let place = &world.plumbing.channels[0].places[&0];
        let begun: Vec<u64> = place.begun.iter().map(|(at_us, _)| *at_us).collect();
        let longest_us = begun.windows(2).map(|pair| pair[1] - pair[0]).max().expect("many");
        let timeline = &ran.fed[0].count.pace;
        let figures = || format!("{longest_us} us for 1 MiB: {begun:?} {timeline:?}");
        assert!(longest_us < 10 * SECOND_US, "{}", figures());
        assert!(place.read_until_us() < 60 * SECOND_US, "{}", figures());
    });
}

/// A quarter of the capacity for half a minute, over several epochs.
#[test]
fn a_slow_reader_gets_its_rate_with_few_requests() {
    const PHASES: &[Phase] = &[Phase { rest_us: 0, bytes_per_second: SLOW, bytes: 1 << 40 }];
    seeds("a_slow_reader_gets_its_rate_with_few_requests", 1, |seed| {
        let ran = undisturbed(seed, &slow_course(seed, PHASES, &[5, 5, 5]));
        let timeline = &ran.fed[0].count.pace;
        let world = ran.world.borrow();
        for place in world.plumbing.channels[0].places.values().filter(|place| place.opened()) {
            assert_rate(rates(place)[0], (SLOW, OF_READER), timeline);
        }
        let (used, needed) = (requests_at(timeline, u64::MAX), requests_for(SLOW));
        assert!(u64::from(used) <= 3 * needed, "{used} requests of {needed}: {timeline:?}");
    });
}

/// A rest of two seconds, then 8 MiB as fast as they come, again and again.
#[test]
fn a_reader_with_bursts_gets_each_at_the_rate_of_the_network() {
    const PHASES: &[Phase] =
        &[Phase { rest_us: 2 * SECOND_US, bytes_per_second: FAST, bytes: 8 << 20 }];
    seeds("a_reader_with_bursts_gets_each_at_the_rate_of_the_network", 2, |seed| {
        let ran = undisturbed(seed, &slow_course(seed, PHASES, &[8, 8]));
        let timeline = &ran.fed[0].count.pace;
        for place in ran.world.borrow().plumbing.channels[0].places.values() {
            // While the first are read the pace is looked for.
            for rate in rates(place).into_iter().skip(1) {
                assert_rate(rate, (CAPACITY, OF_NETWORK_IN_BURSTS), timeline);
            }
        }
    });
}

/// Nobody reads for 150 s: nothing is late, and then all comes as before.
#[test]
fn a_reader_that_rests_for_long_goes_on_at_the_rate_of_the_network() {
    const PHASES: &[Phase] = &[
        Phase { rest_us: 0, bytes_per_second: FAST, bytes: 24 << 20 },
        Phase { rest_us: 150 * SECOND_US, bytes_per_second: FAST, bytes: 24 << 20 },
    ];
    seeds("a_reader_that_rests_for_long_goes_on_at_the_rate_of_the_network", 2, |seed| {
        let ran = undisturbed(seed, &slow_course(seed, PHASES, &[12]));
        let rates = rates(&ran.world.borrow().plumbing.channels[0].places[&0]);
        assert_rate(rates[1], (CAPACITY, OF_NETWORK), &ran.fed[0].count.pace);
    });
}

/// A reader that becomes fast after 20 s has more requests in flight within two seconds, and from
/// then on all of the network.
#[test]
fn a_reader_that_becomes_fast_has_the_network_soon() {
    const PHASES: &[Phase] = &[
        Phase { rest_us: 0, bytes_per_second: SLOW, bytes: 40 << 20 },
        // Two seconds at the rate of the network.
        Phase { rest_us: 0, bytes_per_second: FAST, bytes: 16_000_000 },
        Phase { rest_us: 0, bytes_per_second: FAST, bytes: 1 << 40 },
    ];
    seeds("a_reader_that_becomes_fast_has_the_network_soon", 1, |seed| {
        let ran = undisturbed(seed, &slow_course(seed, PHASES, &[20]));
        let timeline = &ran.fed[0].count.pace;
        let place = &ran.world.borrow().plumbing.channels[0].places[&0];
        let (slow, fast) = (requests_for(SLOW), requests_for(CAPACITY));
        let (fast_us, _) = place.begun[1];
        let before = u64::from(requests_at(timeline, fast_us));
        assert!(before <= 3 * slow, "{before} requests of {slow}: {timeline:?}");
        let after = u64::from(requests_at(timeline, fast_us + 2 * SECOND_US));
        assert!(after * 4 >= fast * 3, "{after} requests of {fast}: {timeline:?}");
        assert_rate(rates(place)[2], (CAPACITY, OF_NETWORK), timeline);
    });
}
