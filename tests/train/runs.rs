//! Several runs with one base folder: at the same time, and one after the other.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::served::serve;
use crate::{INPUT_FAILED, Stage, objects};

const LOCK: &str = ".inrush-train.lock";
/// The exit code where there is no command.
const DESTINATION: i32 = 5;
const USAGE: i32 = 2;

/// Says that it runs, and waits until it may end.
const WAITS: &str = "echo $$ > $o/ready; while [ ! -e $o/go ]; do sleep 0.02; done";

/// Every file and folder below: its path, and its text if it is a file.
fn tree(folder: &Path) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = if path.is_dir() {
                folders.push(path.clone());
                None
            } else {
                Some(String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned())
            };
            found.push((path.display().to_string(), text));
        }
    }
    found.sort();
    found
}

#[test]
fn a_second_run_is_refused_before_anything_is_written() {
    let origin = serve(&objects(&[("t/a", 5), ("u/a", 7)]));
    let stage = Stage::new();
    let mut running = stage.shell(&origin, &["--channel", "t=s3://lab/t/"], WAITS).start();
    stage.until_output(&mut running, "ready");
    let (before, asked) = (tree(&stage.base()), origin.stats().requests);
    let pid = fs::read_to_string(stage.base().join(LOCK)).expect("the lock file");
    let who = format!("another process (pid {}) runs a training job in", pid.trim());
    let (base, report) = (stage.base(), stage.folder.path().join("report"));
    let path = report.to_str().expect("UTF-8");
    let words = ["--channel", "u=s3://lab/u/", "--quiet", "--report", path];
    for (command, code) in [(&["--", "echo", "started"][..], INPUT_FAILED), (&[], DESTINATION)] {
        let program = stage.train(&origin, &words).with(command);
        let run = program.run().expect(code);
        let place = base.display().to_string();
        run.expect_error(&[&who, &place, LOCK, "wait for it, end it, or give --base-dir another"]);
        assert_eq!(tree(&base), before, "the first run's files");
        assert!(!report.exists() && origin.stats().requests == asked, "something was begun");
    }
    // A check is in nobody's way, and nobody in its.
    stage.train(&origin, &["--channel", "u=s3://lab/u/", "--check"]).run().expect(0);
    assert_eq!(tree(&base), before);
    // Another folder is another job's.
    let other = Stage::new();
    other.end(other.shell(&origin, &["--channel", "u=s3://lab/u/"], "exit 3").start(), 3);
    fs::write(base.join("output/data/go"), "").expect("a file");
    stage.end(running, 0);
    assert!(!base.join(LOCK).exists(), "it is removed at the end");
    stage.train(&origin, &["--channel", "u=s3://lab/u/"]).run().expect(0);
}

#[test]
fn a_killed_run_keeps_nobody_out() {
    let origin = serve(&objects(&[("t/a", 5)]));
    let stage = Stage::new();
    let words = ["--channel", "t=s3://lab/t/"];
    let mut running = stage.shell(&origin, &words, WAITS).start();
    stage.until_output(&mut running, "ready");
    running.signal(Signal::KILL);
    running.wait().expect_killed(Signal::KILL);
    assert!(stage.base().join(LOCK).exists(), "nobody could remove it");
    stage.end(stage.shell(&origin, &words, "exit 4").start(), 4);
    assert!(!stage.base().join(LOCK).exists());
}

#[test]
fn a_folder_that_cannot_be_locked_is_no_obstacle() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = serve(&objects(&[("t/a", 5)]));
    let stage = Stage::new();
    let base = stage.base();
    for folder in ["input", "output/data", "model"] {
        fs::create_dir_all(base.join(folder)).expect("a folder");
    }
    fs::set_permissions(&base, fs::Permissions::from_mode(0o555)).expect("it is ours");
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &crate::refusals::UNPRIVILEGED[..] } else { &["env"] };
    let words = ["--channel", "t=s3://lab/t/", "-v"];
    let run = stage.train(&origin, &words).by_way_of(before).run();
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let expected = format!("{} has no lock: cannot open {LOCK}: ", base.display());
    run.expect(0).expect_words(&[&expected, "start no second run with this --base-dir"]);
}

/// What runs print of hosts and objects, of a channel in parts.
const PRINTS: &str = "(ls $d/t; echo $SM_CURRENT_HOST $SM_HOSTS) > $o/printed";
const IN_PARTS: [&str; 2] = ["--channel", "t=s3://lab/t/,distribution=ShardedByS3Key"];

/// Writes the `resourceconfig.json` of a platform, which says more than ours.
fn prepare(stage: &Stage, current: &str, hosts: &[&str]) -> String {
    let config = json!({
        "current_host": current, "hosts": hosts, "network_interface_name": "eth9",
        "topology": null,
    });
    let path = stage.base().join("input/config/resourceconfig.json");
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, config.to_string()).expect("a file");
    path.display().to_string()
}

fn hosts_of(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

#[test]
fn a_prepared_resourceconfig_says_which_host_this_is() {
    let origin = serve(&objects(&[("t/a", 5), ("t/b", 6), ("t/c", 7)]));
    let stage = Stage::new();
    let path = prepare(&stage, "algo-2", &["algo-1", "algo-2"]);
    let theirs = fs::read_to_string(&path).expect("a file");
    let expected = format!("host 2 of 2 (shard 1/2), by {path}");
    // It stays as it is, so that the next run has it, too.
    for _ in 0..2 {
        let run = stage.end(stage.shell(&origin, &IN_PARTS, PRINTS).start(), 0);
        run.expect_words(&[&expected]);
        assert_eq!(stage.output("printed"), "b\nalgo-2 [\"algo-1\",\"algo-2\"]\n");
        assert_eq!(fs::read_to_string(&path).expect("a file"), theirs);
    }
    // As the request of CreateTrainingJob has it; and what it contradicts is an error.
    let job = |count: u32| {
        let source = json!({"S3DataType": "S3Prefix", "S3Uri": "s3://lab/t/"});
        let job = json!({
            "InputDataConfig": [{"ChannelName": "t", "DataSource": {"S3DataSource": source}}],
            "ResourceConfig": {"InstanceCount": count},
        });
        crate::jobs::write_job(&stage, &job)
    };
    let run = stage.train(&origin, &["--job", &job(2), "--check"]).run().expect(0);
    run.expect_words(&[&expected]);
    let refused = format!("3 instances (InstanceCount), but {path} says 2 hosts");
    stage.train(&origin, &["--job", &job(3)]).run().expect(USAGE).expect_words(&[&refused]);
    let slurm = |count: &str, words: &[&str]| {
        let program = stage.shell(&origin, &[&IN_PARTS[..], words].concat(), PRINTS);
        program.set("SLURM_NODEID", "0").set("SLURM_NNODES", count)
    };
    let refused = format!("{path} says 2 hosts, but SLURM_NODEID and SLURM_NNODES says 3; remove");
    slurm("3", &[]).run().expect(USAGE).expect_words(&[&refused]);
    slurm("2", &[]).run().expect(0).expect_words(&[&expected]);
    // What is typed decides, and the file then says it.
    let run = slurm("3", &["--shard", "2/3"]).run().expect(0);
    run.expect_words(&["host 3 of 3 (shard 2/3), by --shard"]);
    assert_eq!(hosts_of(&path)["current_host"], "algo-3");
}

#[test]
fn what_a_run_wrote_itself_says_nothing_to_the_next() {
    let origin = serve(&objects(&[("t/a", 5), ("t/b", 6)]));
    let stage = Stage::new();
    let path = stage.base().join("input/config/resourceconfig.json").display().to_string();
    let run = |words: &[&str]| stage.shell(&origin, &[&IN_PARTS[..], words].concat(), PRINTS);
    run(&["--shard", "1/2"]).run().expect(0);
    assert_eq!(stage.output("printed"), "b\nalgo-2 [\"algo-1\",\"algo-2\"]\n");
    let refused = "ShardedByS3Key";
    run(&[]).run().expect(USAGE).expect_words(&[refused]);
    let launched = run(&[]).set("SLURM_NODEID", "2").set("SLURM_NNODES", "4").run().expect(0);
    launched.expect_words(&["host 3 of 4 (shard 2/4), by SLURM_NODEID and SLURM_NNODES"]);
    assert_eq!(hosts_of(&path)["current_host"], "algo-3");
    // What somebody has written since does.
    prepare(&stage, "algo-1", &["algo-1", "algo-2"]);
    run(&[]).run().expect(0).expect_words(&["host 1 of 2 (shard 0/2), by "]);
    assert_eq!(stage.output("printed").lines().last(), Some("algo-1 [\"algo-1\",\"algo-2\"]"));
}

#[test]
fn a_resourceconfig_that_is_none_is_named() {
    let origin = serve(&objects(&[("t/a", 5)]));
    let stage = Stage::new();
    let path = prepare(&stage, "algo-9", &["algo-1"]);
    let expected =
        format!("{path}: current_host 'algo-9' is not one of hosts; remove the file, or give");
    let words = ["--channel", "t=s3://lab/t/"];
    stage.train(&origin, &words).run().expect(USAGE).expect_words(&[&expected]);
    stage.train(&origin, &[&words[..], &["--shard", "0/1"]].concat()).run().expect(0);
    assert_eq!(hosts_of(&path)["hosts"], json!(["algo-1"]));
    stage.train(&origin, &words).run().expect(0);
}

#[test]
fn lists_of_channels_that_are_gone_are_removed() {
    let origin = serve(&objects(&[("a/1", 5), ("b/1", 6), ("c/1", 7)]));
    let stage = Stage::new();
    let run = |channels: &[&str]| {
        let channels = channels.iter().flat_map(|channel| ["--channel", channel]);
        let words: Vec<&str> = channels.collect();
        stage.end(stage.shell(&origin, &words, "ls $d > $o/names").start(), 0);
        stage.output("names")
    };
    let names = run(&["a=s3://lab/a/", "b=s3://lab/b/", "c=s3://lab/c/"]);
    assert_eq!(names, "a\na-manifest\nb\nb-manifest\nc\nc-manifest\n");
    fs::write(stage.data("c-manifest"), "of somebody else\n").expect("a list");
    // The files stay: they may be wanted again.
    let names = run(&["b=s3://lab/b/"]);
    assert_eq!(names, "a\nb\nb-manifest\nc\nc-manifest\n");
    // A channel in Pipe mode has no list.
    let names = run(&["b=s3://lab/b/,mode=Pipe"]);
    assert_eq!(names, "a\nb\nb_0\nc\nc-manifest\n");
}
