//! Which seeds a test runs.

/// A debug build runs the first quarter of the seeds, where they are more than [`FEW_SEEDS`].
const SEEDS_PER_DEBUG_SEED: u64 = if cfg!(debug_assertions) { 4 } else { 1 };
/// Tests with no more seeds count what must happen in a part of them.
const FEW_SEEDS: u64 = 100;

/// Runs seeds, `INRUSH_SIM_TIMES` times as many, or the one that `INRUSH_SIM_SEED` names.
pub(crate) fn seeds(test: &str, count: u64, each: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = count * number("INRUSH_SIM_TIMES").unwrap_or(1);
    let count = count.div_ceil(SEEDS_PER_DEBUG_SEED).max(count.min(FEW_SEEDS));
    let range = number("INRUSH_SIM_SEED").map_or(0..count, |seed| seed..seed + 1);
    for seed in range {
        let outcome = std::panic::catch_unwind(|| each(seed));
        if let Err(panic) = outcome {
            eprintln!("repeat with: INRUSH_SIM_SEED={seed} cargo test --test sim {test}");
            std::panic::resume_unwind(panic);
        }
    }
}
