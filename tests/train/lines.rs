//! Channels with an augmented manifest.

use std::fs;

use inrush::plan::epoch::permutation;
use serde_json::{Value, json};

use crate::jobs::{channel, write_job};
use crate::matrix::Objects;
use crate::served::{BUCKET, serve};
use crate::{INPUT_FAILED, Stage, objects, record};

const KEY: &str = "lists/labels.jsonl";

/// Objects, and a list with a line for each of them.
fn labelled(count: usize) -> Objects {
    let keys: Vec<String> = (0..count).map(|number| format!("images/{number:02}")).collect();
    let mut all = objects(&keys.iter().map(|key| (key.as_str(), 1000)).collect::<Vec<_>>());
    let line = |(number, key)| {
        format!("{{\"class\": {number}, \"source-ref\": \"s3://{BUCKET}/{key}\"}}\n")
    };
    let lines: String = keys.iter().enumerate().map(line).collect();
    all.insert(KEY.to_owned(), lines.into_bytes());
    all
}

/// What a line is in a stream of records.
fn line_of(all: &Objects, number: u32) -> Vec<u8> {
    let image = &all[&format!("images/{number:02}")];
    [record(image), record(number.to_string().as_bytes())].concat()
}

fn augmented(more: &Value) -> Value {
    let mut fields = json!({
        "S3DataType": "AugmentedManifestFile",
        "AttributeNames": ["source-ref", "class"],
        "InputMode": "Pipe",
    });
    for (name, value) in more.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    channel("labels", KEY, &fields)
}

#[test]
fn lines_are_shuffled_over_all_hosts_and_each_attribute_is_a_record() {
    let all = labelled(20);
    let origin = serve(&all);
    let more = json!({
        "RecordWrapperType": "RecordIO",
        "ShuffleConfig": {"Seed": 42},
        "S3DataDistributionType": "ShardedByS3Key",
    });
    let mut seen = [Vec::new(), Vec::new()];
    for index in 0..3 {
        let stage = Stage::new();
        let path = write_job(&stage, &json!({"InputDataConfig": [augmented(&more)]}));
        let script = "for e in 0 1; do while [ ! -p $d/labels_$e ]; do sleep 0.01; done; \
                      cat $d/labels_$e > $o/labels_$e; done";
        let words = ["--job", &path, "--shard", &format!("{index}/3")];
        stage.end(stage.shell(&origin, &words, script).start(), 0);
        for (epoch, seen) in seen.iter_mut().enumerate() {
            let order = permutation(42, epoch as u64, 20);
            let mine: Vec<u32> = order.into_iter().skip(index).step_by(3).collect();
            let expected: Vec<u8> = mine.iter().flat_map(|line| line_of(&all, *line)).collect();
            let read = stage.base().join(format!("output/data/labels_{epoch}"));
            assert!(fs::read(read).expect("an epoch") == expected, "{index}/3, epoch {epoch}");
            seen.extend(mine);
        }
    }
    assert_ne!(seen[0], seen[1], "another order each epoch");
    for mut seen in seen {
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<u32>>(), "each line once");
    }
}

#[test]
fn lines_are_typed_as_well_and_stay_in_order() {
    let all = labelled(5);
    let origin = serve(&all);
    let stage = Stage::new();
    let source = format!("labels=s3://{BUCKET}/{KEY},mode=Pipe,type=AugmentedManifestFile");
    let channel = format!("{source},attributes=class+source-ref,distribution=ShardedByS3Key");
    let words = ["--channel", &channel, "--shard", "1/2"];
    stage.end(stage.shell(&origin, &words, "cat $d/labels_0 > $o/read").start(), 0);
    let expected = [b"1", &all["images/01"][..], b"3", &all["images/03"]].concat();
    assert!(fs::read(stage.base().join("output/data/read")).expect("a stream") == expected);
    // A host without lines has a pipe that ends at once.
    let words = ["--channel", &channel, "--shard", "6/7"];
    let stage = Stage::new();
    stage.end(stage.shell(&origin, &words, "cat $d/labels_0 | wc -c").start(), 0);
}

#[test]
fn a_check_counts_lines_and_asks_for_no_object() {
    let origin = serve(&labelled(5));
    let stage = Stage::new();
    let sharded = augmented(&json!({"S3DataDistributionType": "ShardedByS3Key"}));
    let path = write_job(&stage, &json!({"InputDataConfig": [sharded]}));
    let words = ["--job", &path, "--check", "--shard", "1/2"];
    let run = stage.train(&origin, &words).run().expect(0);
    let expected = "channel labels: Pipe, 5 lines, 5 objects; this host: 2 lines; \
                epochs without end; s3://lab/lists/labels.jsonl\n";
    run.check(run.stdout.starts_with(expected), expected);
    let texts = augmented(&json!({"AttributeNames": ["class"]}));
    let path = write_job(&stage, &json!({"InputDataConfig": [texts]}));
    let plan = stage.train(&origin, &["--job", &path, "--check", "--json"]).run().expect(0).json();
    let labels = &plan["channels"][0];
    assert_eq!((&labels["lines"], &labels["objects"]), (&5.into(), &0.into()), "{plan}");
    assert_eq!((&labels["bytes"], &labels["host_lines"]), (&5.into(), &5.into()), "{plan}");
    assert_eq!((origin.stats().heads, origin.stats().gets), (0, 2), "the list, twice");
}

#[test]
fn what_is_wrong_with_lists_is_reported_at_once() {
    let mut all = labelled(2);
    all.insert("lists/bad".to_owned(), b"{\"class\": 1}\n".to_vec());
    let origin = serve(&all);
    let stage = Stage::new();
    let of = |name: &str, key: &str| {
        let mut one = augmented(&json!({}));
        one["ChannelName"] = name.into();
        one["DataSource"]["S3DataSource"]["S3Uri"] = format!("s3://{BUCKET}/{key}").into();
        one
    };
    let job = json!({"InputDataConfig": [of("a", "lists/bad"), of("b", "lists/no"), of("c", KEY)]});
    let path = write_job(&stage, &job);
    let run = stage.shell(&origin, &["--job", &path], "echo started").run().expect(INPUT_FAILED);
    let run = run.expect_words(&[
        "channel a: s3://lab/lists/bad, line 1: it has no attribute 'source-ref'",
        "channel b: s3://lab/lists/no: there is no such manifest",
        "2 problems of 3 channels",
    ]);
    run.check(run.stdout.is_empty(), "nothing is begun");
    // What the description itself says is refused before any request.
    let asked = origin.stats().gets;
    let job = json!({"InputDataConfig": [
        augmented(&json!({"InputMode": "File"})),
        channel("x", "data/", &json!({"S3DataType": "S3Prefx"})),
    ]});
    let path = write_job(&stage, &job);
    let words = [
        "InputDataConfig[0]: AugmentedManifestFile can only be used if the channel's input mode is \
         Pipe",
        "InputDataConfig[1].DataSource.S3DataSource.S3DataType: invalid value 'S3Prefx'",
    ];
    stage.train(&origin, &["--job", &path]).run().expect(2).expect_words(&words);
    assert_eq!(origin.stats().gets, asked);
}

#[test]
fn an_object_that_is_missing_is_reported_with_its_line() {
    let mut all = labelled(3);
    all.remove("images/00");
    let origin = serve(&all);
    let stage = Stage::new();
    let path = write_job(&stage, &json!({"InputDataConfig": [augmented(&json!({}))]}));
    let run = stage.shell(&origin, &["--job", &path], "echo started").run().expect(INPUT_FAILED);
    let expected = "channel labels: s3://lab/lists/labels.jsonl, line 1, attribute 'source-ref': ";
    let run = run.expect_words(&[expected]);
    run.check(run.stdout.is_empty(), "nothing is begun");
}

#[test]
fn a_command_finds_its_pipe_until_it_is_ended() {
    let mut all = labelled(3);
    all.remove("images/01");
    let origin = serve(&all);
    let stage = Stage::new();
    let path = write_job(&stage, &json!({"InputDataConfig": [augmented(&json!({}))]}));
    // It reads nothing, and looks at its pipe long after the channel has failed.
    let script = "echo begun; trap '' TERM; while [ ! -e $o/../failure ]; do sleep 0.01; done; \
                  sleep 0.5; [ -p $d/labels_0 ] && echo there";
    let run = stage.shell(&origin, &["--job", &path], script).run().expect(INPUT_FAILED);
    let run = run.expect_words(&["line 2, attribute 'source-ref'"]);
    // On a busy machine the channel may fail before the command begins.
    let is_right = ["", "begun\nthere\n"].contains(&run.stdout.as_str());
    run.check(is_right, "the pipe keeps its name");
    let left = fs::read_dir(stage.base().join("input/data")).expect("a folder");
    let left: Vec<_> = left.map(|entry| entry.expect("a name").file_name()).collect();
    assert!(left.iter().all(|name| name != "labels_0"), "{left:?}");
}
