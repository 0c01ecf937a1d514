//! Which seeds a test runs, and what happened in them.
//!
//! Each fault that is injected, and each branch of recovery that is taken, is counted under the
//! name of its row in [`EVENTS`]. A test whose seeds end without an event that its rows demand
//! fails and names it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::events::{EVENTS, Event};

/// What happened in the seeds that this thread's test has run.
#[derive(Debug, Default)]
struct Happened {
    seed: u64,
    counts: BTreeMap<&'static str, Count>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    times: u64,
    /// Seeds in which it happened, and the last of them.
    seeds: u64,
    last: Option<u64>,
}

thread_local! {
    static HAPPENED: RefCell<Happened> = RefCell::default();
}

impl Happened {
    fn note(&mut self, what: &str, times: u64) {
        if !self.counts.contains_key(what) {
            let row = EVENTS.iter().find(|event| event.name == what);
            let row = row.unwrap_or_else(|| panic!("{what:?} has no row in events.rs"));
            self.counts.insert(row.name, Count::default());
        }
        let count = self.counts.get_mut(what).expect("it has a row");
        count.times += times;
        if count.last.replace(self.seed) != Some(self.seed) {
            count.seeds += 1;
        }
    }

    /// Events that happened in too few of a test's seeds.
    fn missing(&self, test: &str, ran: u64) -> Vec<String> {
        let missing = |event: &Event| {
            let percent = event.percent_in(test)?;
            let seeds = self.counts.get(event.name).map_or(0, |count| count.seeds);
            let least = (ran * percent).div_ceil(100).max(1);
            let name = event.name;
            (seeds < least).then(|| format!("{name:?} in {seeds} of {ran} seeds, not in {least}"))
        };
        EVENTS.iter().filter_map(missing).collect()
    }
}

/// Counts a fault, or a branch of recovery; it has a row in [`EVENTS`].
pub(crate) fn note(what: &str, times: u64) {
    if times > 0 {
        HAPPENED.with_borrow_mut(|happened| happened.note(what, times));
    }
}

/// A debug build runs the first quarter of the seeds, where they are more than [`FEW_SEEDS`].
const SEEDS_PER_DEBUG_SEED: u64 = if cfg!(debug_assertions) { 4 } else { 1 };
/// Tests with no more seeds run all of them in every build.
const FEW_SEEDS: u64 = 100;

/// Runs seeds from `INRUSH_SIM_FROM` on, `INRUSH_SIM_TIMES` times as many, or the one that
/// `INRUSH_SIM_SEED` names. Fails if an event that must happen in them did not: faults that are
/// never injected, and branches that are never taken, prove nothing. `INRUSH_SIM_COUNTS` prints all
/// events.
pub(crate) fn seeds(test: &str, count: u64, each: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let one = number("INRUSH_SIM_SEED");
    let count = count * number("INRUSH_SIM_TIMES").unwrap_or(1);
    let count = count.div_ceil(SEEDS_PER_DEBUG_SEED).max(count.min(FEW_SEEDS));
    let from = number("INRUSH_SIM_FROM").unwrap_or(0);
    let range = one.map_or(from..from + count, |seed| seed..seed + 1);
    HAPPENED.take();
    for seed in range {
        HAPPENED.with_borrow_mut(|happened| happened.seed = seed);
        let outcome = std::panic::catch_unwind(|| each(seed));
        if let Err(panic) = outcome {
            let release = if cfg!(debug_assertions) { "" } else { " --release" };
            eprintln!("repeat with: INRUSH_SIM_SEED={seed} cargo test{release} --test sim {test}");
            std::panic::resume_unwind(panic);
        }
    }
    HAPPENED.with_borrow(|happened| {
        if std::env::var_os("INRUSH_SIM_COUNTS").is_some() {
            let counts = happened.counts.iter();
            let lines = counts.map(|(name, Count { times, seeds, .. })| {
                format!("\n{test}: {name}: {times} times in {seeds} of {count} seeds")
            });
            eprintln!("{}", lines.collect::<String>());
        }
        // A single seed, or none, need not have everything.
        let missing =
            if one.is_some() || count == 0 { vec![] } else { happened.missing(test, count) };
        let missing = missing.join("; ");
        assert!(missing.is_empty(), "{test}: too seldom, see events.rs: {missing}");
    });
}

#[test]
fn what_happens_in_too_few_seeds_is_missing() {
    let event = &EVENTS[0];
    let (name, test) = (event.name, event.tests().next().expect("a test"));
    let mut happened = Happened::default();
    let is_missing = |happened: &Happened, ran| {
        let missing = happened.missing(test, ran);
        missing.iter().any(|text| text.contains(&format!("{name:?} in ")))
    };
    assert!(is_missing(&happened, 1), "{name} never happened");
    for seed in 0..3 {
        happened.seed = seed;
        happened.note(name, 2);
        happened.note(name, 1);
    }
    let count = happened.counts[name];
    assert_eq!((count.times, count.seeds), (9, 3));
    assert!(!is_missing(&happened, 3));
    assert!(happened.missing("a test without rows", 3).is_empty());
}
