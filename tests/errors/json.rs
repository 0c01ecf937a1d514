//! `--json`: one document on standard output however a run ends, which says what the line on
//! standard error says, and why out of a closed set.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use inrush_origin::{Fault, FaultPlan, Match, Origin};
use serde_json::Value;

use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};
use crate::{ACCESS, DEADLINE, DESTINATION, ENDPOINT, NOT_FOUND, Nowhere, OBJECTS, USAGE, objects};

const COMMANDS: [&str; 6] = ["get", "sync", "verify", "ls", "pipe", "cat"];

fn some() -> Objects {
    objects(&[("p/a", 700), ("p/b", 3 << 20)])
}

/// A command with its source, and where the command has one the place that its bytes are at.
fn command(name: &str, source: &str, place: &Path) -> Program {
    let words = [name, "--json", source].map(OsString::from);
    match name {
        "get" | "sync" | "verify" => Program::new(words).with([place]),
        "pipe" => Program::new(words).with([place.join("train")]),
        _ => Program::new(words),
    }
}

/// Fails unless the run failed with this exit code, and printed one JSON document with the error.
#[track_caller]
fn check(name: &str, run: Run, code: i32, error_kind: &str) -> Value {
    let run = run.expect(code);
    // Standard output of cat is the stream's.
    let (document, lines) = match name {
        "cat" => {
            let (lines, document) = run.stderr.trim_end().rsplit_once('\n').expect("two lines");
            run.check(run.stdout.is_empty(), "nothing was expected on standard output");
            (document, lines)
        }
        _ => (run.stdout.as_str(), run.stderr.as_str()),
    };
    run.check(document.lines().count() == 1, "one document was expected");
    let document: Value = serde_json::from_str(document).unwrap_or_else(|_| panic!("JSON: {run}"));
    assert_eq!(
        (&document["exit_code"], &document["error_kind"]),
        (&code.into(), &error_kind.into()),
        "{run}"
    );
    let error = document["error"].as_str().unwrap_or_else(|| panic!("an error: {run}"));
    run.check(lines.contains("error: "), "there is a line for people, too");
    // clap says it in several lines.
    if error_kind != "usage" {
        run.check(lines.contains(&format!("error: {error}")), "line and document have one error");
    }
    document
}

/// Runs every command so and fails unless all fail in this way; nothing is written.
#[track_caller]
fn check_all(source: &str, code: i32, error_kind: &str, alter: impl Fn(Program) -> Program) {
    for name in COMMANDS {
        let nowhere = Nowhere::new();
        let document =
            check(name, alter(command(name, source, &nowhere.path())).run(), code, error_kind);
        // That of cat is asked for when its output is there already.
        let kind = if name == "cat" { document["kind"].clone() } else { "error".into() };
        assert_eq!(document["kind"], kind, "{name}: {document}");
        assert!(document["version"].is_string(), "{document}");
        // The folder of pipes is made before they are.
        if name != "pipe" {
            nowhere.assert_untouched();
        }
    }
}

fn keyed(program: Program, origin: &Origin) -> Program {
    program.asking(origin).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn what_fails_early_is_reported_by_every_command() {
    let origin = serve(&some());
    check_all("s3://lab/p/", ACCESS, "credentials", |program| program.asking(&origin));
    check_all("s3://lab/p/", ACCESS, "credentials", |program| {
        program.asking(&origin).with_keys(ACCESS_KEY, "another secret")
    });
    check_all("s3://other/p/", NOT_FOUND, "not_found", |program| keyed(program, &origin));
    check_all("s3://lab/none", NOT_FOUND, "not_found", |program| keyed(program, &origin));
    let nobody = "http://127.0.0.1:9";
    check_all("s3://lab/p/", ENDPOINT, "network", |program| {
        let program = program.with(["--endpoint-url", nobody, "--retry-for", "0s"]);
        program.with(["--region", "us-east-1"]).with_keys(ACCESS_KEY, SECRET)
    });
}

#[test]
fn usage_errors_are_reported_whoever_finds_them() {
    let origin = serve(&some());
    // By the table of options, by the words around it, and by what they lead to.
    check_all("s3://lab/p/", USAGE, "usage", |program| program.with(["--frobnicate"]));
    check_all("s3://lab/p/", USAGE, "usage", |program| program.with(["--retry-for", "soon"]));
    check_all("p/", USAGE, "usage", |program| program);
    check_all("s3://lab/p/", USAGE, "usage", |program| {
        keyed(program, &origin).with(["--sse-c-key-file", "/nonexistent/key"])
    });
    check("copy", Program::new(["copy", "--json"]).run(), USAGE, "usage");
    let run = Program::new(["ls", "--frobnicate", "--", "--json"]).run().expect(USAGE);
    run.check(run.stdout.is_empty(), "behind -- it is no option");
    let run = Program::new(["ls", "--json", "--help"]).run().expect(0);
    run.check(run.stdout.starts_with("list objects"), "help is no failure");
}

#[test]
fn destinations_deadlines_and_servers_have_names_of_their_own() {
    let origin = serve(&some());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    for name in ["get", "sync", "pipe"] {
        let run = keyed(command(name, "s3://lab/p/", &file.join("below")), &origin).run();
        check(name, run, DESTINATION, "local_io");
    }
    let run = keyed(command("verify", "s3://lab/p/", &folder.path().join("none")), &origin).run();
    check("verify", run, DESTINATION, "local_io");
    for name in ["get", "pipe", "cat"] {
        let run = command(name, "s3://lab/p/", &folder.path().join("data"));
        let run = keyed(run.with(["--deadline", "1ns"]), &origin).run();
        check(name, run, DEADLINE, "deadline");
    }
    let mut configuration = config(&some());
    let when = Match { key: Some("p/a".to_owned()), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::InternalError);
    let failing = start(configuration);
    let run = command("get", "s3://lab/p/", &folder.path().join("data"));
    let run = keyed(run.with(["--max-attempts", "1"]), &failing).run();
    let document = check("get", run, OBJECTS, "server");
    assert_eq!((&document["kind"], &document["failed_objects"]), (&"summary".into(), &1.into()));
}

#[test]
fn damage_is_reported_and_success_has_no_error() {
    let origin = serve(&some());
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("data");
    for name in ["get", "sync", "verify"] {
        let run = keyed(command(name, "s3://lab/p/", &place), &origin).run().expect(0);
        let document = run.json();
        assert_eq!(
            (&document["kind"], &document["exit_code"]),
            (&"summary".into(), &0.into()),
            "{run}"
        );
        assert_eq!(
            (&document["error"], &document["error_kind"]),
            (&Value::Null, &Value::Null),
            "{run}"
        );
    }
    fs::write(place.join("a"), "damaged").expect("written");
    let run = keyed(command("verify", "s3://lab/p/", &place), &origin).run();
    let document = check("verify", run, OBJECTS, "integrity");
    assert_eq!(document["mismatched_objects"], 1, "{document}");
}

#[test]
fn a_report_that_cannot_be_written_fails_the_document_too() {
    let origin = serve(&some());
    let nowhere = Nowhere::new();
    let run = command("get", "s3://lab/p/", &nowhere.path()).with(["--report", "/dev/full"]);
    let document = check("get", keyed(run, &origin).run(), DESTINATION, "no_space");
    assert_eq!(
        (&document["kind"], &document["objects"]),
        (&"summary".into(), &2.into()),
        "{document}"
    );
}

#[test]
fn the_report_of_an_earlier_run_stays_until_there_is_another() {
    let origin = serve(&some());
    let folder = tempfile::tempdir().expect("a folder");
    let (place, report) = (folder.path().join("data"), folder.path().join("report"));
    let read = || fs::read_to_string(&report).expect("a report");
    fs::write(&report, "of another run\n").expect("written");
    for name in ["get", "sync", "verify"] {
        for (source, code) in [("s3://other/p/", NOT_FOUND), ("s3://lab/none", NOT_FOUND)] {
            let run = command(name, source, &place).with(["--report".as_ref(), report.as_os_str()]);
            keyed(run, &origin).run().expect(code);
            assert_eq!(read(), "of another run\n", "{name}");
        }
    }
    let run = command("get", "s3://lab/p/", &place).with(["--report".as_ref(), report.as_os_str()]);
    keyed(run, &origin).run().expect(0);
    let lines: Vec<Value> =
        read().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["kind"] == "object"), "{lines:?}");
}

#[test]
fn what_is_kept_keeps_why_it_was_not_verified() {
    let origin = serve(&some());
    let folder = tempfile::tempdir().expect("a folder");
    let (place, report) = (folder.path().join("data"), folder.path().join("report"));
    let reasons = |options: &[&str]| -> Vec<String> {
        let run = command("get", "s3://lab/p/", &place).with(options);
        let run = run.with(["--report".as_ref(), report.as_os_str()]);
        keyed(run, &origin).run().expect(0);
        let report = fs::read_to_string(&report).expect("a report");
        let reason = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let reason = line["verified"]["reason"].as_str().unwrap_or_default();
            format!("{}: {reason}", line["status"].as_str().expect("a status"))
        };
        report.lines().map(reason).collect()
    };
    for line in reasons(&["--verify", "off"]) {
        assert!(line.starts_with("ok: --verify off; "), "{line}");
    }
    for line in reasons(&[]) {
        assert!(line.starts_with("kept: --verify off; it was kept: size, time"), "{line}");
    }
    reasons(&["--overwrite", "always"]);
    for line in reasons(&[]) {
        assert!(line.starts_with("kept: the server stores no checksum for it; "), "{line}");
    }
}
