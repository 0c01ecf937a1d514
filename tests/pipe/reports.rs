//! `--report` of `pipe` and `cat`: a line for each object that was handed on whole, or that failed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};
use serde_json::Value;

use crate::matrix::Objects;
use crate::program::Program;
use crate::reader::Reader;
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};
use crate::{MIB, OBJECTS, Stage, mixture, objects};

/// The lines of a report.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a report");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn key(line: &Value) -> String {
    line["key"].as_str().expect("a key").to_owned()
}

/// Fails unless the lines are those of all these objects, each once and whole.
#[track_caller]
fn assert_reported(lines: &[Value], all: &Objects) {
    let keys: BTreeSet<String> = lines.iter().map(key).collect();
    assert_eq!((lines.len(), keys), (all.len(), all.keys().cloned().collect()));
    for line in lines {
        assert_eq!(line["status"], "ok", "{line}");
        assert_eq!((&line["bytes"], &line["path"]), (&all[&key(line)].len().into(), &Value::Null));
        let verdict = if line["bytes"] == 0 { "empty" } else { "not validated" };
        assert_eq!(line["verified"]["verdict"], verdict, "{line}");
    }
}

#[test]
fn every_object_of_every_epoch_has_a_line() {
    let mut all = mixture();
    all.extend(objects(&[("empty/1", 0), ("empty/2", 0), ("zz-empty", 0)]));
    // More than a feed holds.
    all.extend((0..3_000).map(|number| (format!("t/{number:04}"), vec![7; 3])));
    let origin = serve(&all);
    let stage = Stage::new();
    let report = tempfile::tempdir().expect("a folder");
    let path = report.path().join("report");
    let words = ["--epochs", "2", "--shuffle-seed", "7", "--report", path.to_str().expect("UTF-8")];
    let running = stage.serve(&origin, &words);
    Reader::start(&stage.channel("train"), &["all", "all"]).finish();
    stage.end(running, 0);
    let lines = lines(&path);
    for epoch in [0, 1] {
        let of_epoch: Vec<Value> =
            lines.iter().filter(|line| line["epoch"] == epoch).cloned().collect();
        assert!(of_epoch.iter().all(|line| line["channel"] == "train"));
        assert_reported(&of_epoch, &all);
    }
    assert_eq!(lines.len(), 2 * all.len());
}

#[test]
fn an_epoch_that_its_reader_leaves_has_lines_of_what_it_got() {
    let all = objects(&[("a", 10), ("b", 50 * MIB), ("c", 10)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let report = tempfile::tempdir().expect("a folder");
    let path = report.path().join("report");
    let running = stage.serve(&origin, &["--report", path.to_str().expect("UTF-8")]);
    let read =
        std::io::Read::take(fs::File::open(stage.channel("train_0")).expect("a pipe"), 1_000);
    assert_eq!(std::io::Read::bytes(read).count(), 1_000);
    stage.end(running, 0);
    let keys: Vec<String> = lines(&path).iter().map(key).collect();
    assert_eq!(keys, ["a"]);
}

#[test]
fn cat_reports_what_it_wrote_and_what_failed() {
    let all = objects(&[("a", 10), ("b", 0), ("c", 3 * MIB), ("d", 10)]);
    let report = tempfile::tempdir().expect("a folder");
    let path = report.path().join("report");
    let cat = |origin: &Origin| {
        let program = Program::new(["cat", "s3://lab/", "--report"]).with([&path]).asking(origin);
        program.with_keys(ACCESS_KEY, SECRET)
    };
    cat(&serve(&all)).run().expect(0);
    let reported = lines(&path);
    assert_eq!(reported.iter().map(key).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(
        reported.iter().all(|line| line.get("epoch").is_none() && line.get("channel").is_none())
    );
    assert_reported(&reported, &all);

    let operation = Some(Operation::GetObject);
    let when = Match { operation, key: Some("c".to_owned()), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::PreconditionFailed);
    let run = cat(&start(Config { faults, ..config(&all) })).run().expect(OBJECTS);
    let reported = lines(&path);
    let failed: Vec<&Value> = reported.iter().filter(|line| line["status"] == "failed").collect();
    assert_eq!(failed.iter().map(|line| key(line)).collect::<Vec<_>>(), ["c"], "{run}");
    let error = failed[0]["error"].as_str().expect("an error");
    run.check(run.stderr.contains(error), "the error of the report");
    assert!(reported.iter().all(|line| line["key"] != "d"), "what was not written has no line");
}

#[test]
fn a_report_that_cannot_be_written_is_reported_before_any_byte_moves() {
    let origin = serve(&objects(&[("a", 10)]));
    let words = ["cat", "s3://lab/a", "--report", "/nowhere/report"];
    let run = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(5);
    run.expect_error(&["create the report /nowhere/report"]);
    assert_eq!(origin.stats().gets, 0);
}
