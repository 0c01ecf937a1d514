//! File mode: what stands under a name is whole, and what is not whole has no name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::case::{Case, OBJECTS};
use crate::count::{Counted, Tally};
use crate::program::Run;
use crate::{counts, expect_named};

/// Gets all objects.
pub(crate) fn run(case: &Case) -> Tally {
    let origin = case.serve();
    let folder = tempfile::tempdir().expect("a folder");
    let (destination, report) = (folder.path().join("destination"), folder.path().join("report"));
    let program = case.program(&origin, folder.path());
    let program = program.with(["--report".as_ref(), report.as_os_str(), destination.as_os_str()]);
    let run = program.run();
    let stats = origin.stop();
    let failed = run.status.code() != Some(0);
    if failed {
        expect_named(&run, &run.stderr, case);
    } else {
        run.check(run.stderr.is_empty(), &format!("{case}: nothing was to be said"));
    }
    let whole = check_whole(&destination, &run, case, failed);
    if failed && run.stdout.is_empty() {
        // It ended before it had begun: the listing failed.
        run.check(whole == 0, &format!("{case}: nothing could be there"));
        return Tally::of(Counted { failed, ..Counted::default() }, stats);
    }
    let summary = run.json();
    let number = |name: &str| summary[name].as_u64().expect("a count");
    run.check(number("objects") == whole, &format!("{case}: {whole} objects are whole"));
    let all = OBJECTS.len() as u64;
    run.check(number("failed_objects") == all - whole, &format!("{case}: {all} in all"));
    let retries = counts(&summary["retries"]);
    check_report(&report, &run, case, retries.values().sum());
    let (hedges, moves) = (number("hedges"), number("moves"));
    let control = counts(&summary["control_retries"]);
    let counted = Counted { retries, control, hedges, moves, failed };
    counted.check(&stats, case);
    Tally::of(counted, stats)
}

/// Fails unless every file below the destination is an object, whole; returns how many there are.
#[track_caller]
fn check_whole(destination: &Path, run: &Run, case: &Case, failed: bool) -> u64 {
    let objects: BTreeMap<&str, &[u8]> =
        OBJECTS.iter().map(|(key, bytes)| (key.as_str(), bytes.as_ref())).collect();
    let mut whole = 0;
    for path in walk(destination) {
        let key = path.strip_prefix(destination).expect("below it").to_str().expect("UTF-8");
        let bytes = fs::read(&path).expect("a file");
        let Some(expected) = objects.get(key) else {
            panic!("{case}: {key} is left, of {} bytes\n{run}", bytes.len());
        };
        run.check(bytes == *expected, &format!("{case}: {key} is not whole, or wrong"));
        whole += 1;
    }
    run.check(failed || whole == objects.len() as u64, &format!("{case}: {whole} files"));
    whole
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Fails unless the report has a line for each object, and its retries add up to the summary's.
#[track_caller]
fn check_report(report: &Path, run: &Run, case: &Case, retries: u64) {
    let text = fs::read_to_string(report).expect("the report");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    run.check(lines.len() == OBJECTS.len(), &format!("{case}: a line for each object\n{text}"));
    for line in &lines {
        let failed = line["status"] == "failed";
        run.check(failed == line["error"].is_string(), &format!("{case}: {line}"));
    }
    let reported: u64 = lines.iter().map(|line| line["retries"].as_u64().expect("a count")).sum();
    run.check(
        reported == retries,
        &format!("{case}: {reported} retries are reported, {retries} counted"),
    );
}
