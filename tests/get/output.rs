//! Output: `--json`, `--report`, `--dry-run`, notes and quiet, `ls`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use inrush_origin::{Fault, FaultPlan, Match, SyntheticSet};
use serde_json::Value;

use crate::matrix::Objects;
use crate::program::{Program, Running};
use crate::served::{ACCESS_KEY, BUCKET, SECRET, config, get, serve, start};
use crate::{Place, objects};

const MIB: usize = 1 << 20;

fn some() -> Objects {
    objects(&[("p/a", 700), ("p/deep/b", 2 * MIB + 3), ("p/deep/c", 0), ("p/mark/", 0), ("q", 1)])
}

/// Lines of JSON.
#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}"));
    text.lines().map(parse).collect()
}

#[test]
fn a_dry_run_lists_what_is_there_already() {
    let origin = serve(&some());
    let place = Place::new();
    let run = |words: &[&str]| {
        let program = Program::new(["get", "s3://lab/p/deep/"]).with(words).with([place.path()]);
        program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0)
    };
    run(&["-n"]).expect_words(&["2 objects, 2.10 MB would be downloaded"]);
    run(&[]);
    let again = run(&["-n"]);
    again.check(again.stdout.is_empty(), "there is nothing to do");
    let expected = "2 objects (2.10 MB) already present, skipped\nnothing would be downloaded\n";
    again.check(again.stderr == expected, "what is there");
}

#[test]
fn the_summary_has_what_it_promises() {
    let origin = serve(&some());
    let place = Place::new();
    let options = ["s3://lab/p/", "--json", "--workers", "2", "--connections", "6"];
    let run = get(&origin, options).with([place.path()]).run().expect(0);
    run.check(run.stdout.lines().count() == 1, "one line was expected");
    let summary = run.json();
    assert_eq!(summary["exit_code"], 0, "{run}");
    assert_eq!((&summary["objects"], &summary["failed_objects"]), (&4.into(), &0.into()), "{run}");
    assert_eq!(summary["bytes"], 700 + 2 * MIB + 3, "{run}");
    assert_eq!((&summary["workers"], &summary["connections"]), (&2.into(), &6.into()), "{run}");
    assert_eq!(summary["sink"], "files", "{run}");
    assert_eq!(summary["retries"], serde_json::json!({}), "{run}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {run}"));
    let seconds = number(&summary["seconds"]);
    run.check(seconds > 0.0 && seconds <= run.seconds, "seconds are within the process's life");
    let rate = number(&summary["bytes"]) / 1e9 / seconds;
    run.check((number(&summary["gigabytes_per_second"]) - rate).abs() < 1e-9, "bytes over seconds");
    let cost = number(&summary["cpu_seconds"]) / (number(&summary["bytes"]) / 1e12);
    let reported = number(&summary["cpu_seconds_per_terabyte"]);
    run.check(reported > 0.0 && (reported / cost - 1.0).abs() < 1e-6, "processor time over bytes");
    run.check(number(&summary["peak_rss_bytes"]) > 1e6, "peak RSS");
    let (first, last) = ("first_worker_done_seconds", "last_worker_done_seconds");
    let (first, last) = (number(&summary[first]), number(&summary[last]));
    run.check(0.0 < first && first <= last && last <= seconds, "first, last and all");
    for name in ["resolve", "list", "transfer", "first_byte", "body", "write", "file"] {
        run.check(number(&summary["stages"][name]) >= 0.0, name);
    }
    run.check(number(&summary["stages"]["transfer"]) <= seconds, "a stage is no longer than all");
    let ring = &summary["ring"];
    let is_io_uring = ring["kind"] == "io_uring";
    run.check(is_io_uring || ring["kind"] == "epoll", "the ring");
    run.check(ring["mode"].is_string() == is_io_uring, "set-up flags");
    run.check(ring["registered_slots"].is_boolean(), "registered slots");
    run.check(ring["registered_ring"].is_boolean() && summary["pages"].is_string(), "pages");
    run.check(summary["direct_io"]["used"].is_boolean(), "direct_io");
    assert_eq!(summary["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_summary_counts_failures_too() {
    let mut configuration = config(&some());
    let when = Match { key: Some("p/a".to_owned()), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::InternalError);
    let origin = start(configuration);
    let place = Place::new();
    let options = ["s3://lab/p/", "--json", "--max-attempts", "3"];
    let run = get(&origin, options).with([place.path()]).run().expect(1);
    let summary = run.json();
    assert_eq!((&summary["exit_code"], &summary["failed_objects"]), (&1.into(), &1.into()));
    assert_eq!(summary["retries"], serde_json::json!({"server_error": 2}), "{run}");
    assert_eq!(summary["objects"], 3, "{run}");
}

#[test]
fn a_server_that_asks_for_less_costs_no_object_its_tries() {
    let mut configuration = config(&some());
    let when = Match { key: Some("p/a".to_owned()), attempts: Some(1..=4), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    let origin = start(configuration);
    let place = Place::new();
    let options = ["s3://lab/p/", "--json", "--max-attempts", "2"];
    let run = get(&origin, options).with([place.path()]).run().expect(0);
    let summary = run.json();
    assert_eq!(summary["retries"], serde_json::json!({"slow_down": 4}), "{run}");
    assert_eq!(summary["failed_objects"], 0, "{run}");
}

#[test]
fn a_report_has_a_line_for_each_object() {
    let all = some();
    let mut configuration = config(&all);
    configuration.objects.push(crate::served::object("p/../bad", vec![1]));
    let when = Match { key: Some("p/a".to_owned()), attempts: Some(1..=2), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::InternalError);
    let origin = start(configuration);
    let place = Place::new();
    let report = place.folder.path().join("report");
    fs::write(&report, "of another run").expect("a file");
    let words = ["s3://lab/p/", "--report", report.to_str().expect("UTF-8")];
    let run = get(&origin, words).with([place.path()]).run().expect(1);
    let reported = lines(&fs::read_to_string(&report).expect("a report"));
    let reported: BTreeMap<&str, &Value> =
        reported.iter().map(|line| (line["key"].as_str().expect("a key"), line)).collect();
    let keys: Vec<_> = reported.keys().copied().collect();
    assert_eq!(keys, ["p/../bad", "p/a", "p/deep/b", "p/deep/c", "p/mark/"], "{run}");
    for (key, line) in &reported {
        assert_eq!(line["bucket"], BUCKET, "{line}");
        assert!(line["seconds"].is_number() && line["verified"]["verdict"].is_string(), "{line}");
        if *key == "p/../bad" {
            assert_eq!(
                (&line["status"], &line["path"]),
                (&"failed".into(), &Value::Null),
                "{line}"
            );
            assert!(line["error"].as_str().is_some_and(|words| words.contains("'..'")), "{line}");
            continue;
        }
        assert_eq!((&line["status"], &line["error"]), (&"ok".into(), &Value::Null), "{line}");
        assert_eq!(line["bytes"], all[*key].len(), "{line}");
        assert_eq!(line["retries"], if *key == "p/a" { 2 } else { 0 }, "{line}");
        let path = key.trim_start_matches("p/");
        assert_eq!(
            line["path"].as_str().map(|path| path.trim_end_matches('/')),
            Some(path.trim_end_matches('/')),
            "{line}"
        );
    }
}

#[test]
fn reports_may_be_below_a_destination_that_is_not_there() {
    let all = some();
    let origin = serve(&all);
    let place = Place::new();
    let new = place.folder.path().join("new");
    let inside = |name: &str| new.join("logs").join(name);
    let program = get(&origin, ["s3://lab/p/deep/"]).with([&new]);
    let program = program.with(["--metrics-file"]).with([inside("metrics")]);
    program.with(["--report"]).with([inside("report")]).run().expect(0);
    assert_eq!(fs::read(new.join("b")).expect("a file"), all["p/deep/b"]);
    let reported = fs::read_to_string(inside("report")).expect("a report");
    assert_eq!(lines(&reported).len(), 2, "{reported}");
    assert!(inside("metrics").is_file());
    // Elsewhere no folder is created for it.
    let other = place.folder.path().join("other/report");
    let program = get(&origin, ["s3://lab/p/deep/"]).with([&new]);
    program
        .with(["--report"])
        .with([&other])
        .run()
        .expect(5)
        .expect_error(&["create the report", "No such file or directory"]);
}

#[test]
fn a_dry_run_lists_what_would_move() {
    let all = some();
    let origin = serve(&all);
    let place = Place::new();
    let run = get(&origin, ["s3://lab/p/", "--dry-run", "--json"]).with([place.path()]).run();
    let run = run.expect(0);
    let reported = lines(&run.stdout);
    let expected: Vec<_> = all.iter().filter(|(key, _)| key.starts_with("p/")).collect();
    assert_eq!(reported.len(), expected.len() + 1, "{run}");
    let summary = reported.last().expect("a summary");
    assert_eq!((&summary["kind"], &summary["objects"]), (&"summary".into(), &4.into()), "{run}");
    assert_eq!((&summary["exit_code"], &summary["error"]), (&0.into(), &Value::Null), "{run}");
    for (line, (key, bytes)) in reported.iter().zip(&expected) {
        assert_eq!((&line["key"], &line["bytes"]), (&key.as_str().into(), &bytes.len().into()));
        assert_eq!((&line["bucket"], &line["kind"]), (&BUCKET.into(), &"object".into()));
    }
    for option in ["--dry-run", "-n", "--dryrun"] {
        let run = get(&origin, ["s3://lab/p/", option]).with([place.path()]).run().expect(0);
        let lines: Vec<_> = run.stdout.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{run}");
        let data = place.path().display().to_string();
        let line = format!("(dry run) get: s3://lab/p/a -> {data}/a (700 B)");
        run.check(lines[0] == line, "address, path and size");
        let line = format!("(dry run) get: s3://lab/p/deep/b -> {data}/deep/b (2.10 MB)");
        run.check(lines[1] == line, "address, path and size");
        run.check(run.stderr.is_empty(), "quiet");
    }
    assert!(!place.path().exists());
    assert_eq!(origin.stop().gets, 0);
}

#[test]
fn notes_are_for_people_and_quiet_has_none() {
    let origin = serve(&some());
    let place = Place::new();
    let loud = Program::new(["get", "s3://lab/p/"]).with([place.path()]).asking(&origin);
    let run = loud.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.stdout.is_empty(), "data is printed for --json only");
    let start = format!("4 objects, 2.10 MB -> {} in ", place.path().display());
    run.check(run.stderr.starts_with(&start), "a summary was expected");
    run.check(
        run.stderr.contains("B/s), not verified, 2 empty\n"),
        "the origin stores no checksums",
    );
    run.check(
        run.stderr.contains("\n2 objects not verified: the server stores no checksum for them\n"),
        "a reason",
    );
    run.check(run.stderr.lines().count() == 2, "nothing else happened");
    run.check(!run.stderr.contains('\u{1b}'), "no colours, no bar without a terminal");
    let again = Program::new(["get", "s3://lab/p/", "--stats"]).with([place.path()]);
    let run = again.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0);
    let kept = "4 objects (2.10 MB) already present, skipped -> ";
    run.check(run.stderr.starts_with(kept), "a folder that exists is kept, too");
    run.check(run.stderr.contains("\nCPU time ") && run.stderr.contains("peak memory"), "stats");
    run.check(!run.stderr.contains("O_DIRECT"), "nothing was written");
    let run = get(&origin, ["s3://lab/p/"]).with([place.path()]).run().expect(0);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "quiet success says nothing");
    // Where nothing was left to do, that comes first.
    let all = Program::new(["get", "s3://lab/p/deep/"]).with([place.path().join("deep")]);
    let run = all.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.stderr.starts_with("2 objects (2.10 MB) already present, skipped -> "), "first");
    run.check(run.stderr.matches("already present").count() == 1, "said once");
}

/// `inrush ls` with the origin's keys.
fn ls(origin: &inrush_origin::Origin, words: &[&str]) -> Program {
    Program::new(["ls"]).with(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn ls_in_text_and_json() {
    let all = some();
    let origin = serve(&all);
    let run = ls(&origin, &["s3://lab/", "--recursive"]).run().expect(0);
    let reported: Vec<_> = run.stdout.lines().collect();
    assert_eq!(reported.len(), all.len(), "{run}");
    for (line, (key, bytes)) in reported.iter().zip(&all) {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1..], [bytes.len().to_string(), format!("s3://lab/{key}")], "{run}");
        run.check(words[0].starts_with("2024-01-01T00:00:00"), "a date");
    }
    let run = ls(&origin, &["s3://lab/p/deep", "--json"]).run().expect(0);
    let reported = lines(&run.stdout);
    let keys: Vec<_> = reported.iter().map(|line| line["key"].as_str().expect("a key")).collect();
    assert_eq!(keys, ["p/deep/b", "p/deep/c"], "{run}");
    assert_eq!(reported[0]["bytes"], 2 * MIB + 3);
    run.check(
        reported[0]["etag"].as_str().is_some_and(|etag| etag.len() == 34),
        "an ETag in quotes",
    );
    assert_eq!(reported[0]["last_modified"], "2024-01-01T00:00:00.000Z", "{run}");
    // A HEAD finds one object, and its answer has these fields too.
    let run = ls(&origin, &["s3://lab/p/deep/b", "--json"]).run().expect(0);
    assert_eq!(lines(&run.stdout), reported[..1], "{run}");
    for (source, keys) in [("s3://lab/q", 1), ("s3://lab/p/**/b", 1), ("s3://lab/p/*", 1)] {
        let run = ls(&origin, &[source]).run().expect(0);
        assert_eq!(run.stdout.lines().count(), keys, "{run}");
    }
}

#[test]
fn what_a_terminal_would_obey_is_escaped() {
    let origin = serve(&objects(&[("p/\u{1b}[2Jred", 1), ("p/two\nlines", 1)]));
    let run = ls(&origin, &["s3://lab/p/"]).run().expect(0);
    run.check(run.stdout.lines().count() == 2, "a line for each object");
    run.check(!run.stdout.contains('\u{1b}'), "an escape would reach the terminal");
    let place = Place::new();
    let run = get(&origin, ["s3://lab/p/", "--dry-run"]).with([place.path()]).run().expect(0);
    run.check(run.stdout.lines().count() == 2 && !run.stdout.contains('\u{1b}'), "the same");
}

/// Reads one line of a program that has many more, and goes away.
#[track_caller]
fn one_line_is_enough(program: Program) {
    use std::io::{BufRead as _, BufReader};
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let errors = tempfile::NamedTempFile::new().expect("a file");
    let stderr = Stdio::from(errors.reopen().expect("a file"));
    let running: Running = program.start_with(Stdio::from(writer), stderr);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).expect("a line");
    assert!(line.contains("s/000000.bin"), "{line}");
    let run = running.wait().expect(0);
    let said = fs::read_to_string(errors.path()).expect("text");
    assert!(said.is_empty(), "nothing was expected on standard error: {said}\n{run}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut configuration = config(&Objects::new());
    configuration.synthetic = vec![SyntheticSet::new(BUCKET, "s/", 20_000, 1)];
    let origin = start(configuration);
    one_line_is_enough(ls(&origin, &["s3://lab/s/"]));
    one_line_is_enough(ls(&origin, &["s3://lab/s/", "--json"]));
    one_line_is_enough(get(&origin, ["s3://lab/s/", "--dry-run", "nowhere"]));
    assert!(origin.stop().lists < 60, "it went on listing for nobody");
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let origin = serve(&some());
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").expect("there"));
    let errors = tempfile::NamedTempFile::new().expect("a file");
    let stderr = Stdio::from(errors.reopen().expect("a file"));
    ls(&origin, &["s3://lab/"]).start_with(full(), stderr).wait().expect(5);
    let said = fs::read_to_string(errors.path()).expect("text");
    assert!(said.starts_with("error: cannot write to standard output: "), "{said}");
}
