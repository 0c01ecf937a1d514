//! What a mount reports of reads, at its end and of each file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::fuse::can_mount;
use crate::matrix::Objects;
use crate::mounted::{Mounted, program};
use crate::program::Program;
use crate::served::{object, serve};

const LARGE: usize = 3_000_000;
const CHANGES: usize = 20_000_000;

fn objects() -> Objects {
    let hidden = ("d/large/x".to_owned(), Vec::new());
    let large = ("d/large".to_owned(), vec![1; LARGE]);
    let small = ("d/small".to_owned(), vec![2; 100]);
    Objects::from([large, small, hidden, ("d/changes".to_owned(), vec![3; CHANGES])])
}

/// The lines of a report: of the files, and the last.
fn lines(path: &Path) -> (Vec<Value>, Value) {
    let text = fs::read_to_string(path).expect("a report");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let mut lines: Vec<Value> = lines.collect();
    let last = lines.pop().expect("a summary");
    (lines, last)
}

#[track_caller]
fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} in {of}"))
}

#[test]
fn what_was_read_is_reported_at_the_end() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let reports = tempfile::tempdir().expect("a folder");
    let report = reports.path().join("report");
    let words =
        ["--json", "--explain", "--memory", "8M", "--report", report.to_str().expect("UTF-8")];
    let mut mounted = Mounted::new(&origin, &words);
    assert_eq!(fs::read(mounted.at("large")).expect("its bytes").len(), LARGE);
    for _ in 0..2 {
        assert_eq!(fs::read(mounted.at("small")).expect("its bytes").len(), 100);
    }
    let changes = File::open(mounted.at("changes")).expect("it is there");
    origin.put_object(&object("d/changes", vec![4; CHANGES])).expect("room");
    changes.read_exact_at(&mut [0; 100], 10_000_000).expect_err("another version");
    let running = mounted.running();
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    let summary = run.json();
    for (name, expected) in [
        ("exit_code", 130),
        ("files", 3),
        ("bytes", (LARGE + 100 + CHANGES) as u64),
        ("hidden_keys", 1),
        ("opens", 4),
        // The kernel asks once for each page, and what was read again it had.
        ("served_bytes", (LARGE + 100) as u64),
        ("changed_files", 1),
        ("unreported_files", 0),
    ] {
        run.check(number(&summary, name) == expected, &format!("{name} of {expected}"));
    }
    run.check(summary["kind"] == "summary" && summary["error_kind"] == "interrupted", "an end");
    run.check(number(&summary, "failed_reads") > 0, "the read of a replaced object");
    run.check(number(&summary, "reads") > number(&summary, "failed_reads"), "reads");
    let (asked, served) = (number(&summary, "asked_bytes"), number(&summary, "served_bytes"));
    run.check(asked > served, "failed reads were asked for, too");
    let received = number(&summary, "received_bytes");
    run.check(received >= served && number(&summary, "requests") >= 3, "requests");
    let limit = &summary["limit"];
    let sentence = limit["sentence"].as_str().expect("a sentence");
    run.check(sentence.starts_with("the limit: ") && run.stderr.contains(sentence), "a limit");
    run.check(limit["bytes_per_second"].as_u64() > Some(0), "bytes came");
    let amplification = summary["read_amplification"].as_f64().expect("a ratio");
    run.check((amplification - received as f64 / served as f64).abs() < 1e-9, "a ratio");
    let (files, summary) = lines(&report);
    run.check(summary["kind"] == "summary" && summary["opens"] == 4, "the same at the end");
    let of = |key: &str| files.iter().filter(|line| line["key"] == key).collect::<Vec<_>>();
    run.check(files.len() == 4 && of("d/small").len() == 2, &format!("a line each: {files:?}"));
    let large = of("d/large")[0];
    assert_eq!((&large["kind"], &large["bucket"]), (&"file".into(), &"lab".into()));
    for name in ["bytes", "asked_bytes", "served_bytes"] {
        assert_eq!(number(large, name), LARGE as u64, "{name}");
    }
    assert!(number(large, "received_bytes") >= LARGE as u64 && large["error"].is_null());
    let small: u64 = of("d/small").iter().map(|line| number(line, "served_bytes")).sum();
    assert_eq!(small, 100, "once by us, once by the kernel");
    // It was open to the end.
    let changed = of("d/changes")[0];
    assert!(number(changed, "failed_reads") > 0 && changed["error"].is_string(), "{changed}");
}

#[test]
fn a_mount_that_is_unmounted_ends_well_and_says_so() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let mut mounted = Mounted::new(&origin, &["--json"]);
    Program::new(["unmount"]).with([&mounted.point]).run().expect(0);
    let run = mounted.running().wait().expect(0);
    let summary = run.json();
    run.check(summary["error"].is_null() && number(&summary, "exit_code") == 0, "a good end");
    run.check(!run.stderr.contains("the limit"), "it is not asked for");
    run.check(
        number(&summary, "opens") == 0 && summary["read_amplification"].is_null(),
        "no reads",
    );
    // Without somebody who waits for it nobody would read it.
    let background = program(&origin, &["--json"]).with([&mounted.point]).run().expect(2);
    background.expect_error(&["--foreground"]);
}

#[test]
fn in_the_background_the_report_has_the_summary() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let folder = tempfile::tempdir().expect("a folder");
    let (point, report) = (folder.path().join("m"), folder.path().join("report"));
    fs::create_dir(&point).expect("a folder");
    let words = ["--report", report.to_str().expect("UTF-8")];
    program(&origin, &words).with([&point]).run().expect(0);
    assert_eq!(fs::read(point.join("small")).expect("its bytes"), [2; 100]);
    Program::new(["unmount"]).with([&point]).run().expect(0);
    // It ends by itself some time after that.
    let is_written = || fs::read_to_string(&report).is_ok_and(|text| text.contains("\"summary\""));
    for _ in 0..6000 {
        if is_written() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (files, summary) = lines(&report);
    assert_eq!((files.len(), number(&summary, "served_bytes")), (1, 100));
}
