//! Which seeds a test runs, and what happened in them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use inrush::engine::metrics::RequestCounts;
use inrush::link::failure::RetryReason;

thread_local! {
    /// How often each fault was injected, and each way of recovery was taken, in the seeds that
    /// this thread's test has run.
    static HAPPENED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Faults of a network, a server and a ring, and the ways of recovery from them.
pub(crate) const NETWORK: &[&str] = &[
    "bad_head",
    "broken",
    "cancel lost",
    "close after",
    "connect",
    "connect_timeout",
    "end",
    "first_byte_timeout",
    "garbage",
    "hang",
    "hedge",
    "move",
    "no socket",
    "refused",
    "reset",
    "ring full",
    "server error",
    "server_error",
    "short send",
    "slow down",
    "slow_down",
    "spurious",
    "stale",
    "stall",
    "truncated",
    "wake-up lost",
    "wrong length",
    "wrong range",
    "wrong_length",
    "wrong_range",
];
/// Those of TLS.
pub(crate) const TLS: &[&str] = &[
    "alert",
    "alert in a handshake",
    "cut handshake",
    "early close_notify",
    "garbled handshake",
    "tls",
    "wrong bit",
];
/// Those of a disk.
pub(crate) const DISK: &[&str] = &["short write", "write again", "write error"];
/// Those that end an object, or a stream.
pub(crate) const FATAL: &[&str] = &["denied", "other etag"];
/// Those of named pipes.
pub(crate) const PIPES: &[&str] = &["no pipe", "no place"];

/// Counts a fault, or a way of recovery.
pub(crate) fn note(what: &'static str, count: u64) {
    if count > 0 {
        HAPPENED.with_borrow_mut(|happened| *happened.entry(what).or_default() += count);
    }
}

/// Counts the ways of recovery of a run.
pub(crate) fn note_recovery(sent: &RequestCounts) {
    for (reason, count) in RetryReason::ALL.into_iter().zip(sent.retries) {
        note(reason.name(), count);
    }
    note("hedge", sent.hedges);
    note("move", sent.moves);
}

/// Fails unless each of these has happened in the seeds that this test has run: faults that are
/// never injected, and branches that are never taken, prove nothing.
#[track_caller]
pub(crate) fn assert_happened(all: &[&[&str]]) {
    if std::env::var_os("INRUSH_SIM_SEED").is_some() {
        return;
    }
    HAPPENED.with_borrow(|happened| {
        if std::env::var_os("INRUSH_SIM_COUNTS").is_some() {
            eprintln!("{happened:?}");
        }
        let all = all.iter().copied().flatten();
        let never: Vec<&&str> = all.filter(|what| !happened.contains_key(**what)).collect();
        assert!(never.is_empty(), "never happened: {never:?}; what did: {happened:?}");
    });
}

/// A debug build runs the first quarter of the seeds, where they are more than [`FEW_SEEDS`].
const SEEDS_PER_DEBUG_SEED: u64 = if cfg!(debug_assertions) { 4 } else { 1 };
/// Tests with no more seeds count what must happen in a part of them.
const FEW_SEEDS: u64 = 100;

/// Runs seeds from `INRUSH_SIM_FROM` on, `INRUSH_SIM_TIMES` times as many, or the one that
/// `INRUSH_SIM_SEED` names.
pub(crate) fn seeds(test: &str, count: u64, each: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = count * number("INRUSH_SIM_TIMES").unwrap_or(1);
    let count = count.div_ceil(SEEDS_PER_DEBUG_SEED).max(count.min(FEW_SEEDS));
    let from = number("INRUSH_SIM_FROM").unwrap_or(0);
    let range = number("INRUSH_SIM_SEED").map_or(from..from + count, |seed| seed..seed + 1);
    for seed in range {
        let outcome = std::panic::catch_unwind(|| each(seed));
        if let Err(panic) = outcome {
            eprintln!("repeat with: INRUSH_SIM_SEED={seed} cargo test --test sim {test}");
            std::panic::resume_unwind(panic);
        }
    }
}
