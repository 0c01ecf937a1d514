//! Channels in File mode together: one run, one listing each, and the lists beside their folders.

use std::fs;
use std::time::{Duration, Instant};

use inrush_origin::Operation::GetObject;
use inrush_origin::{Config, Fault, FaultPlan, Match};
use serde_json::{Value, json};

use crate::jobs::{channel, write_job};
use crate::served::{BUCKET, config, serve, start};
use crate::{INPUT_FAILED, MIB, Stage, objects};

/// As the job had them whose folders were captured; the dots are the capture's own.
const INPUT: &str = "tests/.../Task1/input";
const STATE: &str = "tests/.../Task1/state";

#[test]
fn lists_are_those_of_a_captured_job() {
    let origin = serve(&objects(&[(&format!("{INPUT}/test"), 12), (&format!("{INPUT}/test2"), 0)]));
    for (rank, mine) in [("0/2", "test"), ("1/2", "test2")] {
        let stage = Stage::new();
        let job = json!({
            "InputDataConfig": [
                channel("data", INPUT, &json!({"S3DataDistributionType": "ShardedByS3Key"})),
            ],
            "CheckpointConfig": {"S3Uri": format!("s3://{BUCKET}/{STATE}")},
        });
        let path = write_job(&stage, &job);
        let words = ["--job", &path, "--shard", rank];
        let script = "ls $d/data > $o/mine; ls $d > $o/names; ls -A $d/../../checkpoints | wc -l";
        let run = stage.end(stage.shell(&origin, &words, script).start(), 0);
        let read = |name: &str| fs::read_to_string(stage.data(name)).expect(name);
        assert_eq!(
            read("data-manifest"),
            "tests/.../Task1/input\n\
             s3://lab/tests/.../Task1/input/test\n\
             s3://lab/tests/.../Task1/input/test2\n"
        );
        assert_eq!(read("checkpoints-manifest"), "tests/.../Task1/state\n");
        assert_eq!(stage.output("mine"), format!("{mine}\n"));
        assert_eq!(stage.output("names"), "checkpoints-manifest\ndata\ndata-manifest\n");
        run.check(run.stdout.trim() == "0", "the first run of a job has no checkpoints");
    }
}

#[test]
fn hosts_of_instance_groups_get_their_own_channels() {
    let origin = serve(&objects(&[("all/a", 1), ("cpu/a", 2), ("gpu/a", 3), ("gpu/b", 4)]));
    let groups = ["cpu", "gpu"].map(|name| {
        let count = if name == "gpu" { 2 } else { 1 };
        json!({"InstanceGroupName": name, "InstanceType": "ml.c5.xlarge", "InstanceCount": count})
    });
    let of = |name: &str| json!({"InstanceGroupNames": [name]});
    let mut shared = of("gpu");
    shared["S3DataDistributionType"] = json!("ShardedByS3Key");
    let channels = json!([
        channel("all", "all/", &json!({})),
        channel("cpu", "cpu/", &of("cpu")),
        channel("gpu", "gpu/", &shared),
    ]);
    let job = json!({"InputDataConfig": channels, "ResourceConfig": {"InstanceGroups": groups}});
    for (rank, folders, group, others) in [
        ("0/3", "all:\na\ncpu:\na\n", "cpu", "gpu"),
        ("1/3", "all:\na\ngpu:\na\n", "gpu", "cpu"),
        ("2/3", "all:\na\ngpu:\nb\n", "gpu", "cpu"),
    ] {
        let stage = Stage::new();
        let words = ["--job", &write_job(&stage, &job), "--shard", rank];
        let script = "cd $d; for c in all cpu gpu; do [ ! -e $c ] || { echo $c:; ls $c; }; done \
                      > $o/files; cat ../config/inputdataconfig.json > $o/config; \
                      echo $SM_CHANNELS $SM_CURRENT_INSTANCE_GROUP > $o/variables";
        let run = stage.end(stage.shell(&origin, &words, script).start(), 0);
        assert_eq!(stage.output("files"), folders, "{rank}");
        let config: Value = serde_json::from_str(&stage.output("config")).expect("JSON");
        let names: Vec<_> = config.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(names, ["all", group]);
        assert_eq!(stage.output("variables"), format!("[\"all\",\"{group}\"] {group}\n"));
        run.expect_words(&[&format!("only hosts of other instance groups get: {others}")]);
    }
    // Whose host this is must be known.
    let stage = Stage::new();
    let path = write_job(&stage, &job);
    let run = stage.train(&origin, &["--job", &path]).run().expect(2);
    run.expect_error(&["3 instances", "nothing says which host this is"]);
}

#[test]
fn a_manifests_list_has_its_order_and_pipes_have_none() {
    let mut all = objects(&[("data/a", 3), ("data/b", 4), ("data/c", 5), ("data/d/", 0)]);
    let list = json!([{"prefix": format!("s3://{BUCKET}/data/")}, "c", "a", "b"]);
    all.insert("list.json".to_owned(), list.to_string().into_bytes());
    let origin = serve(&all);
    let stage = Stage::new();
    let words = [
        "--channel=list=s3://lab/list.json,type=ManifestFile,distribution=ShardedByS3Key",
        "--channel=pipe=s3://lab/data/,mode=Pipe",
        "--channel=data=s3://lab/data/",
        "--shard=1/2",
    ];
    let script = "ls $d > $o/names; ls -p $d/data $d/list > $o/files";
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    let read = |name: &str| fs::read_to_string(stage.data(name)).expect(name);
    let of_list = "list.json\ns3://lab/data/c\ns3://lab/data/a\ns3://lab/data/b\n";
    assert_eq!(read("list-manifest"), of_list, "all objects, in the order of the list");
    let of_data = "data/\ns3://lab/data/a\ns3://lab/data/b\ns3://lab/data/c\n";
    assert_eq!(read("data-manifest"), of_data, "marks of folders are no objects");
    assert_eq!(stage.output("names"), "data\ndata-manifest\nlist\nlist-manifest\npipe_0\n");
    let files = stage.output("files");
    assert!(files.ends_with("/list:\na\n") && files.contains("/data:\nb\nd/\n"), "{files}");
    assert_eq!(origin.stats().heads, 1, "the objects of a list are asked about once");
}

#[test]
fn an_object_that_a_manifest_lists_twice_is_downloaded_once() {
    let mut all = objects(&[("data/a", 3), ("data/b", 4), ("data/b/x", 5)]);
    let list = |names: &[&str]| {
        let prefix = json!({"prefix": format!("s3://{BUCKET}/data/")});
        let names = names.iter().map(|name| json!(name));
        Value::from_iter(std::iter::once(prefix).chain(names)).to_string().into_bytes()
    };
    all.insert("list.json".to_owned(), list(&["b", "a", "b"]));
    all.insert("clash.json".to_owned(), list(&["a", "b", "a", "b/x"]));
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel=list=s3://lab/list.json,type=ManifestFile", "--json"];
    let run = stage.train(&origin, &words).run().expect(0);
    let run = run.expect_words(&["channel list: 1 object is given more than once"]);
    assert_eq!(run.json()["files"][0]["objects"], 2);
    let of_list = "list.json\ns3://lab/data/b\ns3://lab/data/a\ns3://lab/data/b\n";
    let read = |name: &str| fs::read_to_string(stage.data(name)).expect(name);
    assert_eq!(read("list-manifest"), of_list, "its list is as it was given");
    let words = ["--channel=clash=s3://lab/clash.json,type=ManifestFile"];
    let expected =
        "entry 2 of s3://lab/clash.json has a file where this key of entry 4 needs a folder";
    stage.train(&origin, &words).run().expect(5).expect_words(&[expected]);
}

#[test]
fn a_key_that_is_not_there_is_reported_with_the_manifest_that_names_it() {
    let mut all = objects(&[("data/a", 3)]);
    let list = json!([{"prefix": format!("s3://{BUCKET}/data/")}, "a", "gone"]).to_string();
    all.insert("list.json".to_owned(), list.into_bytes());
    let (origin, stage) = (serve(&all), Stage::new());
    for mode in ["File", "Pipe"] {
        let channel = format!("--channel=list=s3://lab/list.json,type=ManifestFile,mode={mode}");
        let run = stage.train(&origin, &[&channel]).run().expect(4);
        run.expect_words(&["channel list: manifest s3://lab/list.json: ", "s3://lab/data/gone: "]);
    }
}

#[test]
fn a_key_with_a_line_break_is_refused_where_lists_are_written() {
    let origin = serve(&objects(&[("x/a\nb", 3)]));
    let stage = Stage::new();
    let expected = "the key contains a line break";
    let run = stage.train(&origin, &["--channel", "x=s3://lab/x/"]).run().expect(5);
    run.expect_words(&["channel x: ", expected]);
    assert_eq!(origin.stats().gets, 0);
}

#[test]
fn what_is_there_needs_no_space_and_what_is_of_others_is_reported() {
    let origin = serve(&objects(&[("x/a", 3000), ("x/b/c", 500), ("x/d", 70)]));
    let stage = Stage::new();
    let words = ["--channel", "x=s3://lab/x/"];
    let check = || {
        let words = [&words[..], &["--check", "--json"]].concat();
        stage.train(&origin, &words).run().expect(0).json()
    };
    let plan = check();
    assert_eq!(
        (&plan["needed_bytes"], &plan["needed_bytes_at_most"]),
        (&3570.into(), &false.into())
    );
    assert_eq!(plan["channels"][0]["other_files"], 0, "{plan}");
    let run = stage.train(&origin, &words).run().expect(0);
    run.check(!run.stderr.contains("not of this channel"), "nothing else is there");
    fs::remove_file(stage.data("x/a")).expect("a file");
    fs::write(stage.data("x/d"), "short").expect("a file");
    fs::write(stage.data("x/b/old"), "of an earlier shard").expect("a file");
    let plan = check();
    // The shorter file goes when the new one has its name.
    assert_eq!(plan["needed_bytes"], 3065, "{plan}");
    assert_eq!(plan["channels"][0]["other_files"], 1, "{plan}");
    let run = stage.train(&origin, &[&words[..], &["--json"]].concat()).run().expect(0);
    let run = run.expect_words(&["channel x: 1 file in its folder is not of this channel (b/old)"]);
    assert_eq!(run.json()["files"][0]["other_files"], 1);
    assert_eq!(fs::read_to_string(stage.data("x/b/old")).expect("it stays"), "of an earlier shard");
    assert_eq!(check()["needed_bytes"], 0);
}

#[test]
fn names_of_lists_do_not_clash() {
    let origin = serve(&objects(&[("x/a", 3)]));
    let stage = Stage::new();
    let words = ["--channel", "x=s3://lab/x/", "--channel", "x-manifest=s3://lab/x/"];
    let expected = "the folder, x-manifest, has the name of the list of the objects of";
    stage.train(&origin, &words).run().expect(2).expect_words(&[expected]);
    fs::create_dir_all(stage.data("x-manifest")).expect("a folder");
    let run = stage.train(&origin, &words[..2]).run().expect(5);
    run.expect_words(&["channel x: ", "x-manifest is a folder"]);
    assert_eq!(origin.stats().gets, 0);
}

#[test]
fn channels_are_listed_once_and_reported_one_by_one() {
    let mut all = objects(&[("b/1", 2000)]);
    for number in 0..30 {
        all.extend(objects(&[(&format!("a/{number:02}"), 1000)]));
    }
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "a=s3://lab/a/", "--channel", "b=s3://lab/b/"];
    let run = stage.train(&origin, &words).run().expect(0);
    run.expect_words(&["channel a: 30 objects, 30 kB, complete", "channel b: 1 object, 2 kB"]);
    assert_eq!(origin.stats().lists, 2, "one page each");
    for (key, bytes) in &all {
        assert!(&fs::read(stage.data(key)).expect("a file") == bytes, "{key}");
    }
    // Nothing has changed, but for one file; and the lists are made again.
    fs::remove_file(stage.data("a/07")).expect("a file");
    fs::write(stage.data("a-manifest"), "of an earlier job").expect("a list");
    let summary = stage.train(&origin, &[&words[..], &["--json"]].concat()).run().expect(0).json();
    let files = &summary["files"];
    assert_eq!((&files[0]["name"], &files[1]["name"]), (&"b".into(), &"a".into()), "{summary}");
    assert_eq!(
        (&files[0]["objects"], &files[0]["kept_objects"]),
        (&0.into(), &1.into()),
        "{summary}"
    );
    assert_eq!(
        (&files[1]["objects"], &files[1]["kept_objects"]),
        (&1.into(), &29.into()),
        "{summary}"
    );
    assert_eq!((&files[1]["bytes"], &files[1]["kept_bytes"]), (&1000.into(), &29000.into()));
    assert_eq!(
        (&summary["downloads"][0]["kept_objects"], &summary["error"]),
        (&30.into(), &Value::Null)
    );
    assert_eq!(origin.stats().lists, 4);
    let list = fs::read_to_string(stage.data("a-manifest")).expect("a list");
    assert!(list.starts_with("a/\ns3://lab/a/00\n") && list.lines().count() == 31, "{list}");
}

/// Serves objects of which `large/0` does not come.
fn stalled() -> inrush_origin::Origin {
    let all = objects(&[("large/0", 3 * MIB), ("large/1", 3 * MIB), ("small/a", 5)]);
    let when =
        Match { operation: Some(GetObject), key: Some("large/0".to_owned()), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::StallBeforeHead { duration: None });
    start(Config { faults, ..config(&all) })
}

#[test]
fn a_small_channel_does_not_wait_for_a_large_one() {
    let origin = stalled();
    let stage = Stage::new();
    let words = ["--channel", "large=s3://lab/large/", "--channel", "small=s3://lab/small/"];
    let words = [&words[..], &["--start-early", "--json", "--quiet"]].concat();
    let script = "while [ ! -f $d/small/a -o ! -f $d/large/1 ]; do sleep 0.01; done; \
                  [ ! -e $d/large/0 ]";
    let run = stage.end(stage.shell(&origin, &words, script).start(), 0);
    let summary: Value = serde_json::from_str(&run.stderr).expect("JSON");
    assert_eq!(summary["files"][0]["name"], "small", "{summary}");
    assert_eq!(summary["files"][0]["objects"], 1, "{summary}");
}

#[test]
fn a_deadline_ends_files_and_pipes_and_the_command() {
    let origin = stalled();
    let stage = Stage::new();
    let words = ["--channel", "large=s3://lab/large/", "--deadline", "1s"];
    let run = stage.end(stage.shell(&origin, &words, "echo started").start(), INPUT_FAILED);
    let expected = "the deadline has passed: the channels in File mode are not complete";
    let run = run.expect_words(&[expected]);
    run.check(run.stdout.is_empty(), "nothing was started");
    assert!(stage.failure().expect("it says why").starts_with(expected));
    assert!(!stage.data("large/0").exists(), "no half file has a name");
    let program = stage.train(&origin, &words);
    program.run().expect(8).expect_words(&[expected]);
    // A command that runs gets SIGTERM, and then its grace.
    let stage = Stage::new();
    let words = ["--channel", "p=s3://lab/small/,mode=Pipe", "--deadline", "1s"];
    let script = "trap 'echo term > $o/got; exit 0' TERM; while :; do sleep 0.02; done";
    let run = stage.end(stage.shell(&origin, &words, script).start(), INPUT_FAILED);
    run.expect_words(&["the deadline has passed: the command has not ended"]);
    assert_eq!(stage.output("got"), "term\n");
    let stage = Stage::new();
    let program = stage.train(&origin, &words);
    let run = stage.end(program.start(), 8);
    run.expect_words(&["the deadline has passed: all named pipes that this run made are removed"]);
}

#[test]
fn a_report_has_the_objects_of_all_channels() {
    let all = objects(&[("f/a", 3 * MIB), ("f/b", 7), ("g/a", 9), ("p/x", MIB), ("state/s", 5)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let job = json!({
        "InputDataConfig": [
            channel("f", "f/", &json!({})),
            channel("g", "g/", &json!({})),
            channel("p", "p/", &json!({"InputMode": "Pipe"})),
        ],
        "CheckpointConfig": {"S3Uri": format!("s3://{BUCKET}/state/")},
    });
    let path = write_job(&stage, &job);
    let report = stage.folder.path().join("report.jsonl");
    fs::write(&report, "of an earlier run\n").expect("a file");
    let words = ["--job", &path, "--report", report.to_str().expect("UTF-8")];
    let script = "for e in 0 1; do while [ ! -p $d/p_$e ]; do sleep 0.01; done; \
                  cat $d/p_$e > $o/p_$e; done";
    for status in ["ok", "kept"] {
        stage.end(stage.shell(&origin, &words, script).start(), 0);
        let text = fs::read_to_string(&report).expect("a report");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let mut reported: Vec<String> = lines
            .map(|line: Value| {
                let [channel, key, epoch] = ["channel", "key", "epoch"].map(|name| &line[name]);
                format!("{channel} {key} {epoch} {}", line["status"])
            })
            .collect();
        reported.sort();
        let of_files = |channel: &str, key: &str| format!("{channel:?} {key:?} null {status:?}");
        let of_pipes = |epoch: u64| format!("\"p\" \"p/x\" {epoch} \"ok\"");
        let expected = [
            of_files("checkpoints", "state/s"),
            of_files("f", "f/a"),
            of_files("f", "f/b"),
            of_files("g", "g/a"),
            of_pipes(0),
            of_pipes(1),
        ];
        assert_eq!(reported, expected);
    }
    // What fails before the first object leaves it as it was.
    let before = fs::read(&report).expect("a report");
    let words = ["--channel", "no=s3://lab/nowhere/", words[2], words[3]];
    stage.train(&origin, &words).run().expect(4);
    assert!(fs::read(&report).expect("a report") == before);
    let words = ["--channel", "f=s3://lab/f/", "--report", "/proc/nowhere/report"];
    stage.train(&origin, &words).run().expect(5).expect_error(&["create the report"]);
}

#[test]
fn files_and_pipes_share_one_bandwidth() {
    let all = objects(&[("f/a", 4 * MIB), ("p/x", 4 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--channel", "f=s3://lab/f/", "--channel", "p=s3://lab/p/,mode=Pipe"];
    let words =
        [&words[..], &["--bandwidth-limit", "2MiB", "--part-size", "1MiB", "--start-early"]]
            .concat();
    let script = "cat $d/p_0 > $o/p; while [ ! -f $d/f/a ]; do sleep 0.01; done";
    let begun = Instant::now();
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    // At least 3.5 s less a range that both ask for at once; each by itself would take 1.5 s.
    assert!(begun.elapsed() > Duration::from_millis(2_600), "{:?}", begun.elapsed());
}

#[test]
fn checkpoints_are_there_before_the_command_starts() {
    let all = objects(&[("data/a", 3), ("state/step-7", 2 * MIB), ("state/deep/x", 5)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let data = json!([channel("data", "data/", &json!({}))]);
    let place = format!("s3://{BUCKET}/state");
    let job = json!({"InputDataConfig": data, "CheckpointConfig": {"S3Uri": place}});
    let path = write_job(&stage, &job);
    let script = "cp -r $d/../../checkpoints $o/copy; cp $d/../config/*.json $o; ls $d > $o/names; \
                  echo $SM_CHANNELS > $o/channels";
    let words = ["--job", &path];
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    let output = stage.base().join("output/data");
    for (key, path) in [("state/step-7", "copy/step-7"), ("state/deep/x", "copy/deep/x")] {
        assert!(fs::read(output.join(path)).expect(path) == all[key], "{path}");
    }
    let place_here = stage.base().join("checkpoints");
    let config = json!({"LocalPath": place_here}).to_string();
    assert_eq!(stage.output("checkpointconfig.json"), config);
    assert_eq!(stage.output("channels"), "[\"data\"]\n", "checkpoints are no input");
    assert!(!stage.output("inputdataconfig.json").contains("checkpoints"));
    assert_eq!(stage.output("names"), "checkpoints-manifest\ndata\ndata-manifest\n");
    // A path of its own; and the next job has none.
    let local = stage.folder.path().join("state");
    let other = json!({"S3Uri": place, "LocalPath": local});
    let job = json!({"InputDataConfig": data, "CheckpointConfig": other});
    let path = write_job(&stage, &job);
    stage.train(&origin, &["--job", &path]).run().expect(0);
    assert!(fs::read(local.join("step-7")).expect("a checkpoint") == all["state/step-7"]);
    let file = stage.base().join("input/config/checkpointconfig.json");
    assert_eq!(fs::read_to_string(&file).expect("a file"), json!({"LocalPath": local}).to_string());
    stage.train(&origin, &["--channel", "data=s3://lab/data/"]).run().expect(0);
    assert!(!file.exists(), "that was of an earlier job");
}

#[test]
fn an_init_config_says_all_that_is_needed() {
    let all = objects(&[("input/test", 12), ("input/test2", 3), ("state/s", 5)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let source = |key: &str, distribution: Value| {
        json!({
            "s3DataSource": {
                "s3DataType": "S3_PREFIX", "s3Uri": format!("s3://{BUCKET}/{key}"),
                "s3DataDistributionType": distribution, "attributeNames": null,
            },
            "fileSystemDataSource": null, "compressionType": null, "recordWrapper": null,
            "shuffleConfig": null, "inputMode": "FILE",
        })
    };
    let init = json!({
        "inputMode": "FILE",
        "channels": {"data": source("input", "SHARDED_BY_S3_KEY".into())},
        "checkpointChannel": {
            "name": "checkpoints", "channel": source("state", Value::Null),
            "outputPath": "/opt/ml/checkpoints", "allowEmpty": true,
        },
        "hostConfig": {"clusterSize": 2, "hostNumber": 2},
    });
    let path = stage.folder.path().join("init-config.json");
    fs::write(&path, init.to_string()).expect("a file");
    let words = ["--init-config", path.to_str().expect("UTF-8")];
    let script = "ls $d/data > $o/mine; cat $d/../../checkpoints/s > $o/state";
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    assert_eq!(stage.output("mine"), "test2\n");
    let state = fs::read(stage.base().join("output/data/state")).expect("a copy");
    assert!(state == all["state/s"]);
    let list = fs::read_to_string(stage.data("data-manifest")).expect("a list");
    assert_eq!(list, "input\ns3://lab/input/test\ns3://lab/input/test2\n");
}
