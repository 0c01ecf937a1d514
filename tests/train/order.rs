//! What is there when: files before the command, pipes epoch by epoch.

use std::fs::{self, File};
use std::process::Stdio;

use rustix::process::Signal;

use crate::served::serve;
use crate::{INTERRUPTED, MIB, Stage, objects, soon, stream};

/// Waits for a pipe and copies it: `take CHANNEL EPOCH`.
const TAKE: &str = "take() { while [ ! -p $d/$1_$2 ]; do sleep 0.01; done; \
                    cat $d/$1_$2 > $o/$1_$2; };";

#[test]
fn files_are_complete_and_pipes_are_there_before_the_command_starts() {
    let all = objects(&[("train/a", 9 * MIB), ("train/deep/b", 5), ("test/c", MIB), ("x/d", 0)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words =
        ["--channel", "train=s3://lab/train/", "--channel", "test=s3://lab/test/,mode=Pipe"];
    let more = ["--channel", "x=s3://lab/x/,mode=File", "--quiet"];
    let script = "cp -r $d/train $o/train; ls $d > $o/names; \
                  cp $d/../config/inputdataconfig.json $o; echo $SM_CHANNEL_TRAIN > $o/variable; \
                  ls -d $d/../../model; cat $d/test_0 > $o/test";
    let run = stage.shell(&origin, &[&words[..], &more].concat(), script).start();
    let run = stage.end(run, 0);
    assert!(run.stdout.ends_with("/model\n"), "standard output is the command's\n{run}");
    run.check(run.stderr.is_empty(), "nothing is said");
    let copied = |name: &str| fs::read(stage.base().join("output/data").join(name)).expect(name);
    assert!(copied("train/a") == all["train/a"] && copied("train/deep/b") == all["train/deep/b"]);
    assert_eq!(fs::metadata(stage.data("x/d")).expect("an empty file").len(), 0);
    assert_eq!(stage.output("names"), "test_0\ntrain\ntrain-manifest\nx\nx-manifest\n");
    assert!(copied("test") == all["test/c"]);
    let config: serde_json::Value =
        serde_json::from_str(&stage.output("inputdataconfig.json")).expect("JSON");
    assert_eq!(config["train"]["TrainingInputMode"], "File");
    assert_eq!(config["test"]["TrainingInputMode"], "Pipe");
    assert_eq!(stage.output("variable").trim(), stage.data("train").display().to_string());
    assert_eq!(stage.failure(), None);
}

#[test]
fn two_channels_are_read_epoch_by_epoch() {
    let all = objects(&[("a/1", 3 * MIB), ("a/2", 70_000), ("b/1", 2 * MIB), ("b/2", 1)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "a=s3://lab/a/,mode=Pipe", "--channel", "b=s3://lab/b/,mode=Pipe"];
    let script = format!("{TAKE} for e in 0 1 2; do take a $e; take b $e; done; ls $d > $o/names");
    let run = stage.end(stage.shell(&origin, &words, &script).start(), 0);
    for channel in ["a", "b"] {
        for epoch in 0..3 {
            let read = fs::read(stage.base().join(format!("output/data/{channel}_{epoch}")));
            let whole = stream(&all, &format!("{channel}/"));
            run.check(read.expect("an epoch") == whole, &format!("{channel}_{epoch} differs"));
        }
    }
    // The fourth epoch waits for a reader, and costs nothing; the others have gone.
    let names = stage.output("names");
    run.check(!names.contains("_0") && !names.contains("_1"), &names);
    run.check(run.stderr.contains("a_2: "), "the last epoch is in the summary");
}

#[test]
fn a_reader_that_leaves_early_gets_the_next_epoch() {
    let all = objects(&[("a", 40 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "train=s3://lab/a,mode=Pipe"];
    let script =
        format!("{TAKE} head -c 1000 $d/train_0 > $o/some; : < $d/train_1; take train 2; exit 0");
    // The second one is opened as soon as it is there.
    let script = script.replace(": <", "while [ ! -p $d/train_1 ]; do sleep 0.01; done; : <");
    let run = stage.end(stage.shell(&origin, &words, &script).start(), 0);
    let read = |name: &str| fs::read(stage.base().join("output/data").join(name)).expect(name);
    run.check(read("some") == all["a"][..1000], "the start of the first epoch");
    run.check(read("train_2") == all["a"], "the third epoch is whole");
}

#[test]
fn the_command_may_start_before_its_files() {
    let all = objects(&[("train/a", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "train=s3://lab/train/", "--start-early"];
    let script = "while [ ! -f $d/train/a ]; do sleep 0.01; done; cp $d/train/a $o/a";
    let run = stage.end(stage.shell(&origin, &words, script).start(), 0);
    let read = fs::read(stage.base().join("output/data/a")).expect("a copy");
    run.check(read == all["train/a"], "what appears is whole");
    run.check(run.stderr.is_empty(), "nothing is said while the command runs");
}

#[test]
fn a_shard_is_every_nth_object() {
    let all = objects(&[("t/a", 10), ("t/b", 20), ("t/c", 30), ("t/d/e", 40)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "f=s3://lab/t/", "--channel", "p=s3://lab/t/,mode=Pipe"];
    let words = [&words[..], &["--shard", "1/2"]].concat();
    let script = "cat $d/p_0 > $o/p; (cd $d/f; find . -type f | sort) > $o/f; \
                  cat $d/../config/resourceconfig.json > $o/hosts";
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    assert_eq!(stage.output("f"), "./b\n./d/e\n");
    let read = fs::read(stage.base().join("output/data/p")).expect("a stream");
    assert!(read == [&all["t/b"][..], &all["t/d/e"]].concat());
    let hosts: serde_json::Value = serde_json::from_str(&stage.output("hosts")).expect("JSON");
    assert_eq!(hosts["current_host"], "algo-2");
}

#[test]
fn a_local_folder_is_linked() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    let local = stage.folder.path().join("fsx");
    fs::create_dir(&local).expect("a folder");
    fs::write(local.join("file"), "of a file system").expect("a file");
    let channel = format!("local={}", local.display());
    for _ in 0..2 {
        let program = stage.shell(&origin, &["--channel", &channel], "cat $d/local/file");
        let run = stage.end(program.start(), 0);
        assert_eq!(run.stdout, "of a file system");
    }
    fs::remove_file(stage.data("local")).expect("a link");
    fs::create_dir(stage.data("local")).expect("a folder");
    let run = stage.shell(&origin, &["--channel", &channel], "echo started").run();
    let run = run.expect(crate::INPUT_FAILED).expect_words(&["channel local", "is there already"]);
    assert_eq!(run.stdout, "");
}

#[test]
fn without_a_command_pipes_are_served_until_a_signal() {
    let all = objects(&[("a/1", 5), ("b/1", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "a=s3://lab/a/", "--channel", "b=s3://lab/b/,mode=Pipe"];
    let log = stage.folder.path().join("stderr");
    let stderr = Stdio::from(File::create(&log).expect("a file"));
    let running = stage.train(&origin, &words).start_with(Stdio::null(), stderr);
    let said = |what: &str| fs::read_to_string(&log).expect("UTF-8").contains(what);
    soon("the file", || stage.data("a/1").exists());
    for epoch in 0..2 {
        let path = stage.data(&format!("b_{epoch}"));
        soon("the pipe", || path.exists());
        assert!(fs::read(path).expect("a stream") == all["b/1"], "epoch {epoch}");
    }
    soon("which epoch it is at", || said("channel b: epoch 2\n"));
    running.signal(Signal::TERM);
    stage.end(running, INTERRUPTED);
    assert!(said("channel a: 1 object"), "what a channel came to");
}

#[test]
fn without_a_command_files_alone_end_the_run_and_so_does_the_last_epoch() {
    let all = objects(&[("a/1", 5), ("b/1", 3 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let summary = stage.train(&origin, &["--channel", "a=s3://lab/a/", "--json"]).run().expect(0);
    let summary = summary.json();
    assert_eq!(summary["limit"], serde_json::Value::Null, "there is no stream: {summary}");
    assert!(summary["downloads"][0]["limit"]["part"].is_string(), "{summary}");
    let words = ["--channel", "a=s3://lab/a/", "--channel", "b=s3://lab/b/,mode=Pipe"];
    let words = [&words[..], &["--epochs", "1", "--json"]].concat();
    let running = stage.train(&origin, &words).start();
    soon("the pipe", || stage.data("b_0").exists());
    assert!(fs::read(stage.data("b_0")).expect("a stream") == all["b/1"]);
    let summary = stage.end(running, 0).json();
    assert_eq!(summary["files"][0]["kept_objects"], 1, "{summary}");
    assert_eq!(summary["pipes"][0]["epochs"][0]["bytes"], 3 * MIB, "{summary}");
    let sentence = summary["limit"]["sentence"].as_str().expect("the limit of the stream");
    assert!(sentence.starts_with("the limit: "), "{sentence}");
    assert_eq!(summary["command"], serde_json::Value::Null, "{summary}");
}

#[test]
fn pipes_of_a_killed_run_are_gone_before_the_command_starts() {
    let all = objects(&[("a", MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    fs::create_dir_all(stage.base().join("input/data")).expect("a folder");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    for name in ["train_0", "train_7", "train_x", "other_7"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, stage.data(name), mode).expect("a pipe");
    }
    let words = ["--channel", "train=s3://lab/a,mode=Pipe"];
    let script = "ls $d > $o/names; cat $d/train_0 > $o/read";
    stage.shell(&origin, &words, script).run().expect(0);
    assert_eq!(stage.output("names"), "other_7\ntrain_0\ntrain_x\n");
    assert!(fs::read(stage.base().join("output/data/read")).expect("a stream") == all["a"]);
}
