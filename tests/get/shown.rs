//! Names that a terminal would obey, or that turn the text round them, wherever the program shows
//! them; JSON has them as they are. And the clock that a server corrects.

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation};

use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, get, serve, start};
use crate::{Place, objects};

/// Turns `gpj.exe` round, and clears a terminal.
const KEY: &str = "d/\u{202e}gpj\u{2066}.exe\u{1b}[2J";
const SHOWN: &str = "d/\\u{202e}gpj\\u{2066}.exe\\u{1b}[2J";

/// Fails unless the name is in the text as it is to be shown, and nowhere as it is.
#[track_caller]
fn check(run: &Run, text: &str) {
    run.check(text.contains(SHOWN), "the key was expected, escaped");
    let raw = |found: char| matches!(found, '\u{1b}' | '\u{202e}' | '\u{2066}');
    run.check(!text.contains(raw), "nothing of it may be as it is");
}

#[test]
fn odd_keys_are_shown_escaped_everywhere() {
    let all = objects(&[(KEY, 100)]);
    let origin = serve(&all);
    let ls = || {
        Program::new(["ls", "--recursive", "s3://lab/d/"])
            .asking(&origin)
            .with_keys(ACCESS_KEY, SECRET)
    };
    let run = ls().run().expect(0);
    check(&run, &run.stdout);
    let run = ls().with(["--json"]).run().expect(0);
    let line: serde_json::Value = serde_json::from_str(run.stdout.trim()).expect("JSON");
    run.check(line["key"] == KEY, "scripts get the key itself");
    let place = Place::new();
    let destination = place.path();
    let words = ["s3://lab/".as_ref(), destination.as_os_str(), "--dry-run".as_ref()];
    let run = get(&origin, words).run().expect(0);
    check(&run, &run.stdout);
    // An address that is not there: in an error, before anything is fetched.
    let missing = "s3://lab/d/\u{202e}gpj\u{2066}.exe\u{1b}/";
    let run = get(&origin, [missing.as_ref(), destination.as_os_str()]).run().expect(4);
    run.expect_error(&["s3://lab/d/\\u{202e}gpj\\u{2066}.exe\\u{1b}/: there is nothing in"]);
}

#[test]
fn odd_keys_of_failed_objects_are_shown_escaped() {
    let all = objects(&[(KEY, 100)]);
    let when = Match { operation: Some(Operation::GetObject), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ChangedEtag);
    let origin = start(Config { faults, ..config(&all) });
    let place = Place::new();
    let report = tempfile::NamedTempFile::new().expect("a file");
    let destination = place.path();
    let words = ["s3://lab/".as_ref(), destination.as_os_str()];
    let program = get(&origin, words).with(["--report".as_ref(), report.path().as_os_str()]);
    let run = program.run().expect(1);
    check(&run, &run.stderr);
    let lines = std::fs::read_to_string(report.path()).expect("UTF-8");
    let line: serde_json::Value = serde_json::from_str(lines.trim()).expect("a line of JSON");
    run.check(line["key"] == KEY, "scripts get the key itself");
}

#[test]
fn a_servers_clock_is_followed_so_far() {
    let all = objects(&[("a", 100)]);
    let hour = 3_600;
    for offset in [-14 * hour, 14 * hour] {
        let origin = start(Config { clock_offset_seconds: offset, ..config(&all) });
        let place = Place::new();
        let destination = place.path();
        let words = ["get", "--json", "s3://lab/"];
        let program = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
        let run = program.with([destination]).run().expect(0);
        let correction = run.json()["clock_correction_seconds"].as_i64().expect("a number");
        run.check((correction - offset).abs() < 120, "the correction is in the summary");
        let side = if offset < 0 { " s behind this machine's" } else { " s ahead of this" };
        run.check(run.stderr.contains(side), "and is reported");
        place.assert_holds(&all);
    }
    for offset in [-16 * hour, 16 * hour, 400 * 24 * hour] {
        let origin = start(Config { clock_offset_seconds: offset, ..config(&all) });
        let place = Place::new();
        let destination = place.path();
        let run = get(&origin, ["s3://lab/".as_ref(), destination.as_os_str()]).run().expect(3);
        run.expect_error(&["RequestTimeTooSkewed", "set this machine's clock"]);
    }
    let origin = serve(&all);
    let run = Program::new(["get", "--json", "--discard", "s3://lab/"]).asking(&origin);
    let run = run.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.json()["clock_correction_seconds"] == 0, "no correction was needed");
    run.check(!run.stderr.contains("clock"), "and none is reported");
}
