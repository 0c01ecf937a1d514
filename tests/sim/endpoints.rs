//! Several endpoints in one run: what one of them refuses slows no other.

use inrush::engine::pace::{Bounds, Change};

use super::network::Terms;
use super::pace::{BOUNDS, Course, LARGE_BYTES, MILLION, SECOND_US, SMALL_BYTES, Source};
use super::{endpoint, seeds};

/// Keys of the endpoint that refuses, and of the other one.
const BUSY: &str = "b";
const FREE: &str = "f";

/// What the busy endpoint answers, in requests a second: more than the lowest rate there is.
const BUSY_RATE: u64 = 40;

fn free(size_bytes: u64) -> Source {
    Source::new(endpoint(1, false), FREE, size_bytes)
}

/// Bytes a second of the free endpoint, alone or beside a busy one, and of that one; and how often
/// that one refused while its rate was found, and later.
fn goodput(seed: u64, bounds: Bounds, size_bytes: u64, is_alone: bool) -> ([u64; 2], [u64; 2]) {
    let terms = Terms {
        requests_per_second: BUSY_RATE,
        throttled: BUSY,
        knee: 64,
        ..Terms::new(64 * MILLION, 4 * MILLION, 20_000)
    };
    // The busy one's objects are large: they are first in the order, and always more.
    let busy = || Source::new(endpoint(0, false), BUSY, LARGE_BYTES);
    let mut sources = vec![free(size_bytes)];
    sources.extend((!is_alone).then(busy));
    let mut course = Course::of(seed, &terms, sources, bounds);
    course.go_on(4 * SECOND_US);
    let fetched = |course: &Course| {
        [0, 1].map(|source| if is_alone && source == 1 { 0 } else { course.fetched_bytes(source) })
    };
    let (before, (refused_before, _)) = (fetched(&course), course.refused());
    course.go_on(8 * SECOND_US);
    let after = fetched(&course);
    let goodputs = [0, 1].map(|source| (after[source] - before[source]) / 8);
    let refused = course.refused().0;
    let timeline = course.pacer.timeline();
    for moment in timeline.moments() {
        let is_refused = moment.change == Change::Refused;
        // It is the second one that was met.
        let endpoint = moment.endpoint.map(|endpoint| endpoint.index());
        assert_eq!(endpoint, is_refused.then_some(1), "{moment:?}");
    }
    let metrics = course.end();
    let refusals: u64 = metrics
        .iter()
        .flat_map(|metrics| &metrics.sent.addresses)
        .map(|count| {
            assert!(count.refused == 0 || count.endpoint.index() == 1, "{count:?}");
            count.refused
        })
        .sum();
    assert_eq!(refusals > 0, refused > 0, "{refusals} of {refused} are reported");
    (goodputs, [refused_before, refused - refused_before])
}

/// It has at least nine tenths of what it has alone, less what the answers of the other one take,
/// whether the number of requests in flight is found or given.
#[test]
fn one_that_refuses_slows_no_other() {
    seeds("one_that_refuses_slows_no_other", 2, |seed| {
        for bounds in [BOUNDS, Bounds::fixed(64)] {
            for size_bytes in [SMALL_BYTES, LARGE_BYTES] {
                let ([alone, _], none) = goodput(seed, bounds, size_bytes, true);
                assert_eq!(none, [0, 0], "nobody was refused");
                let ([beside, busy], [at_first, later]) = goodput(seed, bounds, size_bytes, false);
                let case = format!("{} of {size_bytes} bytes", bounds.is_adaptive());
                println!(
                    "{case}: {alone} alone, {beside} beside {busy}; {at_first}, {later} refused"
                );
                assert!(at_first > 0, "{case}: it was asked for more than it takes");
                assert!(
                    beside * 10 >= (alone - busy) * 9,
                    "{case}: {beside} beside {busy} of {alone}"
                );
                // In eight seconds it answers 320.
                assert!(later < 80, "{case}: it is slowed: {at_first}, {later}");
            }
        }
    });
}
