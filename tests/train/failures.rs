//! Input that fails while the command runs, and before.

use std::fs;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Config, Fault, FaultPlan, Match, Origin};

use crate::matrix::Objects;
use crate::served::{config, serve, start};
use crate::{INPUT_FAILED, MIB, Stage, objects, runs, soon};

/// Serves objects of which `t/z` cannot be had from its `from`th request on.
fn broken(all: &Objects, from: u32) -> Origin {
    let (operation, key) = (Some(GetObject), Some("t/z".to_owned()));
    let attempts = Some(from..=u32::MAX);
    let when = Match { operation, key, attempts, ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ResetAfter { bytes: 0 });
    start(Config { faults, ..config(all) })
}

/// Options with which an object that does not come fails soon.
const SOON: [&str; 4] = ["--max-attempts", "2", "--retry-for", "0s"];

#[test]
fn an_epoch_that_breaks_has_no_end_and_ends_the_command() {
    let all = objects(&[("t/a", 3 * MIB), ("t/z", MIB)]);
    let origin = broken(&all, 3);
    let stage = Stage::new();
    let words = [&["--channel", "t=s3://lab/t/,mode=Pipe"], &SOON[..]].concat();
    // What a command does that relies on ends of files.
    let script = "echo $$ > $o/pid; for e in 0 1 2; do \
                  while [ ! -p $d/t_$e ]; do sleep 0.01; done; \
                  cat $d/t_$e > $o/t_$e; echo $e >> $o/whole; done";
    let running = stage.shell(&origin, &words, script).start();
    let run = stage.end(running, INPUT_FAILED);
    run.check(stage.output("whole") == "0\n1\n", "the third epoch seemed to end");
    let whole = [&all["t/a"][..], &all["t/z"]].concat();
    for epoch in 0..2 {
        let read = fs::read(stage.base().join(format!("output/data/t_{epoch}")));
        run.check(read.expect("an epoch") == whole, "those before are whole");
    }
    let run = run.expect_words(&["error: channel t: ", "s3://lab/t/z"]);
    let failure = stage.failure().expect("it says why");
    run.check(failure.starts_with("channel t: ") && failure.contains("s3://lab/t/z"), &failure);
    soon("the command has ended", || !runs(&stage.output("pid")));
}

#[test]
fn a_command_that_ignores_it_is_killed_and_its_own_words_do_not_hide_why() {
    let all = objects(&[("t/a", 3 * MIB), ("t/z", MIB)]);
    let origin = broken(&all, 1);
    let stage = Stage::new();
    let words = [&["--channel", "t=s3://lab/t/,mode=Pipe", "--grace", "300ms"], &SOON[..]].concat();
    let script = "trap 'echo mine > $d/../../output/failure' TERM; echo $$ > $o/pid; \
                  exec 3< $d/t_0; while :; do sleep 0.02; done";
    let run = stage.end(stage.shell(&origin, &words, script).start(), INPUT_FAILED);
    let failure = stage.failure().expect("it says why");
    run.check(failure.contains("s3://lab/t/z"), &failure);
    soon("the command has ended", || !runs(&stage.output("pid")));
}

#[test]
fn a_command_that_ends_as_soon_as_its_pipe_is_gone_has_failed() {
    let origin = broken(&objects(&[("t/z", MIB)]), 1);
    let words = [&["--channel", "t=s3://lab/t/,mode=Pipe"], &SOON[..]].concat();
    for own_code in [0, 1] {
        let stage = Stage::new();
        let script = format!("while [ -e $d/t_0 ]; do :; done; exit {own_code}");
        let run = stage.end(stage.shell(&origin, &words, &script).start(), INPUT_FAILED);
        run.expect_words(&["error: channel t: ", "s3://lab/t/z"]);
        assert!(stage.failure().expect("it says why").contains("s3://lab/t/z"));
    }
}

#[test]
fn without_a_command_a_pipe_that_fails_ends_files_that_still_come() {
    let all = objects(&[("t/z", MIB), ("large/0", 3 * MIB)]);
    let stalls =
        Match { operation: Some(GetObject), key: Some("large/0".to_owned()), ..Match::default() };
    let breaks = Match { key: Some("t/z".to_owned()), ..stalls.clone() };
    let faults = FaultPlan::none()
        .with_rule(stalls, Fault::StallBeforeHead { duration: None })
        .with_rule(breaks, Fault::ResetAfter { bytes: 0 });
    let origin = start(Config { faults, ..config(&all) });
    let stage = Stage::new();
    let report = stage.folder.path().join("report");
    let report = report.to_str().expect("UTF-8");
    let words = ["--channel", "f=s3://lab/large/", "--channel", "t=s3://lab/t/,mode=Pipe"];
    let words = [&words[..], &SOON[..], &["--report", report]].concat();
    for words in [&words[..words.len() - 2], &words] {
        let run = stage.train(&origin, words).start().wait().expect(6);
        run.expect_words(&["error: channel t: ", "s3://lab/t/z"]);
    }
}

#[test]
fn an_epoch_that_nobody_wants_may_fail() {
    let all = objects(&[("t/a", MIB), ("t/z", MIB)]);
    let origin = broken(&all, 2);
    let stage = Stage::new();
    let words = [&["--channel", "t=s3://lab/t/,mode=Pipe"], &SOON[..]].concat();
    // It waits until the second epoch cannot be had any more, as one that saves its model does.
    let script = "cat $d/t_0 > $o/t_0; while [ ! -e $o/go ]; do sleep 0.01; done; exit 0";
    let mut running = stage.shell(&origin, &words, script).start();
    assert!(running.until(|| origin.stats().faults_total() >= 2), "it was not tried again");
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(stage.base().join("output/data/go"), "").expect("a file");
    stage.end(running, 0);
    assert_eq!(stage.failure(), None);
}

#[test]
fn files_that_cannot_be_had_start_nothing() {
    let all = objects(&[("t/a", 3), ("t/z", MIB), ("p/a", 5)]);
    let origin = broken(&all, 1);
    let stage = Stage::new();
    let words = ["--channel", "t=s3://lab/t/", "--channel", "p=s3://lab/p/,mode=Pipe"];
    let words = [&words[..], &SOON[..]].concat();
    let run = stage.end(stage.shell(&origin, &words, "echo started").start(), INPUT_FAILED);
    run.check(run.stdout.is_empty(), "nothing was started");
    let failure = stage.failure().expect("it says why");
    run.check(failure.starts_with("channel t: ") && failure.contains("s3://lab/t/z"), &failure);
    // Those of an early command end it.
    let words = [&words[..], &["--start-early"]].concat();
    let script = "echo $$ > $o/pid; sleep 600";
    stage.end(stage.shell(&origin, &words, script).start(), INPUT_FAILED);
    soon("the command has ended", || !runs(&stage.output("pid")));
    assert!(stage.failure().expect("it says why").contains("s3://lab/t/z"));
}

#[test]
fn a_base_that_cannot_be_made_is_reported() {
    let origin = serve(&objects(&[("t/a", 5)]));
    let stage = Stage::new();
    fs::write(stage.base(), "in the way").expect("a file");
    let words = ["--channel", "t=s3://lab/t/", "--quiet"];
    let run = stage.shell(&origin, &words, "echo started").run().expect(INPUT_FAILED);
    let run = run.expect_words(&["ml is not a folder"]);
    assert_eq!(run.stdout, "");
    stage.train(&origin, &words).run().expect(5);
}
