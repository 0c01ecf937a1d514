//! Which ring a run has: io_uring, epoll where there is none, or what was asked for.

use std::process::Command;

use inrush_origin::Origin;

use crate::matrix::Objects;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::without::without;
use crate::{HOST, Nowhere, objects};

/// Refused (EPERM), not there (ENOSYS), without room in locked memory (ENOMEM), and set up but of
/// no use; the words of the note.
const REFUSALS: [(&str, [&str; 2]); 4] = [
    ("io_uring:1", ["not permitted", "seccomp"]),
    ("io_uring:38", ["not implemented", "seccomp"]),
    ("io_uring:12", ["annot allocate", "ulimit -l"]),
    ("io_uring_enter:1", ["not permitted", "seccomp"]),
];

fn mixture() -> Objects {
    objects(&[("a", 3), ("b/c", 12 << 20), ("b/d", 300_000), ("empty", 0)])
}

/// `inrush get` of all, which says what it has to say.
fn get(origin: &Origin, words: &[&str]) -> Program {
    Program::new(["get", "s3://lab/"]).with(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

fn cat(origin: &Origin) -> Program {
    Program::new(["cat", "s3://lab/b/c"]).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn without_io_uring_epoll_is_used_and_that_is_reported_once() {
    let all = mixture();
    let origin = serve(&all);
    for (what, [reason, advice]) in REFUSALS {
        let Some(before) = without(what) else { return };
        let nowhere = Nowhere::new();
        let words = ["--json", "--stats", "--ring", "auto"];
        let run = get(&origin, &words).with([nowhere.path()]).by_way_of(&before).run().expect(0);
        nowhere.assert_holds(&all);
        let notes =
            run.stderr.lines().filter(|line| line.contains("using epoll")).collect::<Vec<_>>();
        run.check(notes.len() == 1, "one line");
        run.check(notes[0].starts_with("inrush: io_uring is not available ("), "it is a note");
        run.check(notes[0].contains(reason) && notes[0].contains(advice), "the reason, and advice");
        run.check(run.stderr.contains("ring: epoll (io_uring is not available: "), "statistics");
        let ring = &run.json()["ring"];
        run.check(ring["kind"] == "epoll" && ring["mode"].is_null(), "the ring");
        let why = ring["io_uring_unavailable"].as_str().unwrap_or_default();
        run.check(why.contains(reason), "why not");

        let run = cat(&origin).with(["--ring", "auto", "-q"]).by_way_of(&before).run().expect(0);
        run.check(run.stderr.is_empty(), "there is no note");
        let run = cat(&origin).with(["--ring", "auto", "--json"]).by_way_of(&before).run();
        let run = run.expect(0).expect_words(&["using epoll", "\"kind\":\"epoll\""]);
        run.check(run.stderr.contains(reason), "why not");
    }
}

/// The files and the pipes of a training job are two runs.
#[test]
fn a_training_job_reports_it_once() {
    let origin = serve(&objects(&[("b/c", 3), ("b/d", 300_000)]));
    let Some(before) = without("io_uring:1") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path().to_str().expect("UTF-8");
    let script = format!("cat {base}/input/data/pipe_0 > {base}/copied");
    let channels = ["--channel=file=s3://lab/b/", "--channel=pipe=s3://lab/b/,mode=Pipe"];
    let train = Program::new(["train", "--ring", "auto", "--base-dir", base]).with(channels);
    let train = train.asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let run = train.with(["--", "sh", "-c", &script]).by_way_of(&before).run().expect(0);
    let notes = run.stderr.lines().filter(|line| line.contains("using epoll")).count();
    run.check(notes == 1, "one line");
    assert_eq!(std::fs::metadata(folder.path().join("copied")).expect("a file").len(), 300_003);
}

#[test]
fn what_is_asked_for_is_used_and_the_option_wins() {
    let all = mixture();
    let origin = serve(&all);
    for (option, variable, kind) in [
        (Some("epoll"), "io_uring", "epoll"),
        (Some("io_uring"), "epoll", "io_uring"),
        (None, "epoll", "epoll"),
    ] {
        let nowhere = Nowhere::new();
        let run = get(&origin, &["--json"]).with([nowhere.path()]);
        let run = run.with(option.map(|name| format!("--ring={name}")));
        let run = run.set("INRUSH_RING", variable).run().expect(0);
        nowhere.assert_holds(&all);
        run.check(run.json()["ring"]["kind"] == kind, "the ring");
        run.check(run.json()["ring"]["io_uring_unavailable"].is_null(), "nothing is missing");
        run.check(!run.stderr.contains("epoll"), "what was asked for is no news");
    }
    let nowhere = Nowhere::new();
    for words in [&["get", "s3://lab/"][..], &["sync", "s3://lab/"]] {
        let run = Program::new(words).with([nowhere.path()]).set("INRUSH_RING", "uring");
        run.run().expect(2).expect_error(&["INRUSH_RING", "'uring'", "io_uring or epoll"]);
    }
    nowhere.assert_untouched();
}

#[test]
fn what_is_not_asked_for_is_not_tried() {
    let all = mixture();
    let origin = serve(&all);
    let Some(before) = without("io_uring:kill") else { return };
    let run = get(&origin, &["--ring=auto", "--discard"]).by_way_of(&before).run();
    run.check(run.status.code().is_none(), "who tries is killed");
    let nowhere = Nowhere::new();
    let run = get(&origin, &["--ring=epoll"]).with([nowhere.path()]).set("INRUSH_RING", "io_uring");
    run.by_way_of(&before).run().expect(0);
    nowhere.assert_holds(&all);
    cat(&origin).with(["--ring=epoll"]).by_way_of(&before).run().expect(0);
    let path = nowhere.path();
    let path = path.to_str().expect("UTF-8");
    for variable in ["epoll", "uring"] {
        for words in [&["ls", "s3://lab/"][..], &["verify", "s3://lab/", path]] {
            let run = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
            run.set("INRUSH_RING", variable).by_way_of(&before).run().expect(0);
        }
        let run = Program::new(["complete", "--", "inrush", "ls", "s3://la"]);
        run.set("INRUSH_RING", variable).by_way_of(&before).run().expect(0);
    }
    demo(&before, "epoll");
}

#[test]
fn where_io_uring_is_asked_for_the_setting_is_named() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    for (what, [reason, advice]) in REFUSALS {
        let Some(before) = without(what) else { return };
        let words = ["io_uring is not available", reason, advice];
        let run = get(&origin, &["--ring", "io_uring"]).with([nowhere.path()]);
        run.by_way_of(&before).run().expect(HOST).expect_error(&words);
        for command in [&["cat", "s3://lab/a"][..], &["pipe", "s3://lab/", "channel"]] {
            let run = Program::new(command).asking(&origin).with_keys(ACCESS_KEY, SECRET);
            let run = run.set("INRUSH_RING", "io_uring");
            run.by_way_of(&before).run().expect(HOST).expect_error(&words);
        }
        // What needs no ring works.
        for words in [&["--help"][..], &["man"], &["completions", "bash"]] {
            Program::new(words).by_way_of(&before).run().expect(0);
        }
    }
    nowhere.assert_untouched();
    assert_eq!(origin.stop().requests, 0);
}

#[test]
fn where_memory_for_a_ring_is_short_it_is_smaller() {
    // Four connections would have one of 128 entries or more.
    let Some(before) = without("io_uring_above_64:12") else { return };
    let all = mixture();
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let words = ["--json", "--ring=io_uring", "--workers=1", "--connections=64"];
    let run = get(&origin, &words).with([nowhere.path()]).by_way_of(&before).run().expect(0);
    nowhere.assert_holds(&all);
    run.check(run.json()["ring"]["kind"] == "io_uring", "it is one all the same");
    let Some(before) = without("io_uring_above_32:12") else { return };
    let nowhere = Nowhere::new();
    let words = ["--json", "--ring=auto", "--workers=2", "--connections=64"];
    let run = get(&origin, &words).with([nowhere.path()]).by_way_of(&before).run().expect(0);
    nowhere.assert_holds(&all);
    run.check(run.json()["ring"]["kind"] == "epoll", "it would be too small");
}

#[test]
fn the_demo_runs_without_io_uring() {
    let Some(before) = without("io_uring:1") else { return };
    let notes = demo(&before, "auto");
    assert_eq!(notes.matches("using epoll").count(), 1, "{notes}");
}

/// Runs the demo; what it says.
fn demo(before: &[String], ring: &str) -> String {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = Command::new(&before[0])
        .args(&before[1..])
        .arg(env!("CARGO_BIN_EXE_inrush"))
        .args(["demo", "--size", "64MiB", "--json", "--ring", ring])
        .env_clear()
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcome["verified"], true, "{stderr}");
    stderr
}
