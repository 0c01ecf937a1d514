//! The real program against a server that fails as a seed says: 200 runs of every profile, in all
//! three modes, with TLS and without. However it goes, a run ends in time, with every byte right or
//! with a named error and a documented exit code; no name stands for a file that is not whole; no
//! reader gets a wrong byte; and what it counted is what was done to it.
//!
//! `INRUSH_FAULTS_SEED` runs one seed alone, `INRUSH_FAULTS_TIMES` multiplies the number of seeds.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and threads of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "what is served depends on the seed")]
mod served;

mod case;
mod count;
mod files;
mod streams;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use case::{Case, Mode};
use count::Tally;
use program::Run;

/// Runs of all modes together.
const RUNS: u64 = 200;
/// Runs of one mode that are under way at once: most of their time is waiting.
const AT_ONCE: usize = 3;

/// Runs all seeds of a mode, and prints at the end how to repeat those that failed.
fn run_all(mode: Mode, each: fn(&Case) -> Tally) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("INRUSH_FAULTS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS * number("INRUSH_FAULTS_TIMES").unwrap_or(1),
    };
    let alone = seeds.end - seeds.start == 1;
    let (next, last) = (AtomicU64::new(seeds.start), seeds.end);
    let done = Mutex::new((Tally::default(), Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return;
            }
            let case = Case::new(seed);
            if case.mode != mode {
                continue;
            }
            let tally = catch_unwind(AssertUnwindSafe(|| each(&case)));
            let mut done = done.lock().expect("no panic inside");
            match tally {
                Ok(tally) => done.0.add(&tally, case.profile_name()),
                Err(_) => done.1.push(case.to_string()),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(work)));
    });
    let (tally, failed) = done.into_inner().expect("no panic inside");
    println!("{mode:?}: {tally}");
    assert!(failed.is_empty(), "{} runs failed:\n{}", failed.len(), failed.join("\n"));
    tally.check_all_profiles(alone);
}

#[test]
fn files_are_whole_or_not_there() {
    run_all(Mode::Files, files::run);
}

#[test]
fn a_reader_of_pipes_gets_no_wrong_byte() {
    run_all(Mode::Pipe, streams::pipe);
}

#[test]
fn standard_output_gets_no_wrong_byte() {
    run_all(Mode::Cat, streams::cat);
}

/// Fails unless a run that did not succeed said so as documented: the exit code of a failure of
/// the server's, and its name on standard error.
#[track_caller]
fn expect_named(run: &Run, stderr: &str, case: &Case) {
    const OBJECTS: i32 = 1;
    const ENDPOINT: i32 = 6;
    let code = run.status.code();
    run.check(case.may_fail(), &format!("{case}: this can be survived"));
    run.check(matches!(code, Some(OBJECTS | ENDPOINT)), &format!("{case}: the exit code"));
    let named = stderr.lines().any(|line| line.starts_with("error: ") && line.len() > 20);
    run.check(named, &format!("{case}: a named error was expected"));
    run.check(!stderr.contains("panicked"), &format!("{case}: it panicked"));
}

/// Counts by name, of a JSON object.
fn counts(value: &serde_json::Value) -> BTreeMap<String, u64> {
    let entries = value.as_object().expect("counts by name");
    let count = |value: &serde_json::Value| value.as_u64().expect("a count");
    entries.iter().map(|(name, value)| (name.clone(), count(value))).collect()
}
