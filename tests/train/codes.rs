//! Exit codes, and the JSON for programs.

use rustix::process::Signal;

use crate::served::serve;
use crate::{INPUT_FAILED, Stage, objects, runs};

const WORDS: [&str; 2] = ["--channel", "train=s3://lab/train/"];

#[test]
fn the_commands_code_is_ours() {
    let origin = serve(&objects(&[("train/a", 5)]));
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255)] {
        let stage = Stage::new();
        stage.end(stage.shell(&origin, &WORDS, script).start(), code);
        assert_eq!(stage.failure(), None, "its failure is the command's own matter");
    }
    for signal in [Signal::TERM, Signal::KILL, Signal::SEGV] {
        let stage = Stage::new();
        let script = format!("ulimit -c 0; kill -{} $$; sleep 60", signal.as_raw());
        stage.end(stage.shell(&origin, &WORDS, &script).start(), 128 + signal.as_raw());
    }
}

#[test]
fn a_command_that_cannot_be_started() {
    let origin = serve(&objects(&[("train/a", 5)]));
    let stage = Stage::new();
    let plain = stage.folder.path().join("plain");
    std::fs::write(&plain, "no program").expect("a file");
    for (command, code) in [("no-such-command", 127), (plain.to_str().expect("UTF-8"), 126)] {
        let program = stage.train(&origin, &WORDS).with(["--quiet", "--", command]);
        let run = stage.end(program.start(), code);
        let run = run.expect_error(&["cannot start", command]);
        let failure = stage.failure().expect("it says why");
        run.check(failure.contains("cannot start") && failure.contains(command), &failure);
    }
    assert_eq!(origin.stats().gets, 0, "it is looked up before anything is downloaded");
}

#[test]
fn input_that_is_not_there_starts_nothing() {
    let origin = serve(&objects(&[("train/a", 5)]));
    let stage = Stage::new();
    let words = ["--channel", "train=s3://lab/train/", "--channel", "no=s3://lab/nowhere/"];
    let words = [&words[..], &["--channel", "nor=s3://nobody/x/,mode=Pipe", "--quiet"]].concat();
    let run = stage.end(stage.shell(&origin, &words, "echo started").start(), INPUT_FAILED);
    run.check(run.stdout.is_empty(), "nothing was started");
    let run = run.expect_words(&["channel no: ", "channel nor: ", "2 problems of 3 channels"]);
    assert!(stage.failure().expect("it says why").contains("channel no: "), "{run}");
    assert!(!stage.data("train/a").exists(), "nothing was downloaded");
    // Without a command, the code says which failure it is.
    stage.train(&origin, &words).run().expect(4);
    stage.train(&origin, &["--channel", "train=s3:/lab/"]).run().expect(2);
    stage.train(&origin, &["--channel", "train=s3://lab/", "--start-early"]).run().expect(2);
}

#[test]
fn programs_get_their_document_on_standard_error() {
    let origin = serve(&objects(&[("train/a", 5)]));
    let stage = Stage::new();
    let words = [&WORDS[..], &["--json", "--quiet"]].concat();
    let run = stage.end(stage.shell(&origin, &words, "echo mine; exit 7").start(), 7);
    assert_eq!(run.stdout, "mine\n");
    let summary: serde_json::Value = serde_json::from_str(&run.stderr).expect("JSON");
    assert_eq!(
        (&summary["kind"], &summary["exit_code"]),
        (&"summary".into(), &7.into()),
        "{summary}"
    );
    assert_eq!(summary["command"]["exit_code"], 7, "{summary}");
    assert_eq!(summary["command"]["signal"], serde_json::Value::Null, "{summary}");
    assert_eq!(
        (&summary["files"][0]["name"], &summary["files"][0]["objects"]),
        (&"train".into(), &1.into())
    );
    assert_eq!(summary["error"], serde_json::Value::Null, "{summary}");
    let words = ["--channel", "train=s3://lab/nowhere/", "--json", "--quiet"];
    let run = stage.end(stage.shell(&origin, &words, "echo started").start(), INPUT_FAILED);
    let line = run.stderr.lines().last().expect("a document");
    let summary: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(summary["exit_code"], INPUT_FAILED, "{summary}");
    assert_eq!(summary["error_kind"], "not_found", "{summary}");
    assert_eq!(summary["command"], serde_json::Value::Null, "{summary}");
}

#[test]
fn nothing_of_the_command_is_left() {
    let origin = serve(&objects(&[("train/a", 5)]));
    let stage = Stage::new();
    let script = "sleep 600 & echo $! > $o/pid; exit 4";
    stage.end(stage.shell(&origin, &WORDS, script).start(), 4);
    let pid = stage.output("pid");
    crate::soon("what it left has ended", || !runs(&pid));
}
