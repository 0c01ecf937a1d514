//! `--prefix` and `--manifest`: sources as SageMaker's channels have them, in its order.

use std::fs;

use inrush::plan::epoch::permutation;
use inrush_origin::Origin;

use crate::matrix::Objects;
use crate::reader::Reader;
use crate::served::serve;
use crate::{MIB, NOT_FOUND, Stage, assert_read, objects, pipe};

fn some() -> Objects {
    objects(&[
        ("t/a", 100),
        ("t/b/c", 3 * MIB),
        ("t/b/", 0),
        ("t/t2", 50),
        ("t-1", 200),
        ("t2", 300),
        ("t3/d", 400),
        ("u", 500),
    ])
}

/// Serves with these words, and fails unless the epochs are these objects.
#[track_caller]
fn assert_served(origin: &Origin, words: &[&str], epochs: &[Vec<&str>]) {
    let (all, stage) = (some(), Stage::new());
    let count = epochs.len().to_string();
    let program = pipe(origin, words).with(["--epochs", &count]).with([stage.channel("train")]);
    let running = stage.start(program);
    let read = Reader::start(&stage.channel("train"), &vec!["all"; epochs.len()]).finish();
    for (epoch, keys) in read.iter().zip(epochs) {
        assert_read(epoch, &keys.iter().flat_map(|key| all[*key].clone()).collect::<Vec<u8>>());
    }
    stage.end(running, 0);
}

/// Writes a manifest of these keys.
fn manifest(stage: &Stage, keys: &[&str]) -> String {
    let path = stage.path().join("list");
    let keys: String = keys.iter().map(|key| format!(",\"{key}\"")).collect();
    fs::write(&path, format!("[{{\"prefix\":\"s3://lab/\"}}{keys}]")).expect("a manifest");
    path.display().to_string()
}

#[test]
fn a_prefix_is_streamed_in_key_order_without_marks_of_folders() {
    let origin = serve(&some());
    let prefix = ["--prefix", "s3://lab/t"];
    let keys = ["t-1", "t/a", "t/b/c", "t/t2", "t2", "t3/d"];
    assert_served(&origin, &prefix, &[keys.to_vec(), keys.to_vec()]);
    let part = |index: usize| keys.iter().skip(index).step_by(3).copied().collect::<Vec<_>>();
    for index in 0..3 {
        let shard = format!("{index}/3");
        assert_served(&origin, &[prefix[0], prefix[1], "--shard", &shard], &[part(index)]);
        // A shuffle is one of all objects; every epoch has other objects for each.
        let shuffled = |epoch: u64| {
            let order = permutation(7, epoch, 6).into_iter().skip(index).step_by(3);
            order.map(|place| keys[place as usize]).collect::<Vec<_>>()
        };
        let words = [prefix[0], prefix[1], "--shuffle-seed", "7", "--shard", &shard];
        assert_served(&origin, &words, &[shuffled(0), shuffled(1)]);
    }
}

#[test]
fn a_manifest_is_streamed_in_its_order() {
    let origin = serve(&some());
    let stage = Stage::new();
    // Neither sorted nor each once.
    let keys = ["u", "t3/d", "t/a", "t/b/c", "t/a"];
    let list = manifest(&stage, &keys);
    let words = ["--manifest", list.as_str()];
    assert_served(&origin, &words, &[keys.to_vec(), keys.to_vec()]);
    for index in 0..2 {
        let shard = format!("{index}/2");
        let mine = keys.iter().skip(index).step_by(2).copied().collect();
        assert_served(&origin, &[words[0], words[1], "--shard", &shard], &[mine]);
        let order = permutation(3, 0, 5).into_iter().skip(index).step_by(2);
        let mine = order.map(|place| keys[place as usize]).collect();
        let shuffled = [words[0], words[1], "--shuffle-seed", "3", "--shard", &shard];
        assert_served(&origin, &shuffled, &[mine]);
    }
    assert_served(&origin, &[words[0], words[1], "--shard", "6/7"], &[vec![], vec![]]);
    let filtered = [words[0], words[1], "--exclude", "t", "--shard", "1/2"];
    assert_served(&origin, &filtered, &[vec!["t3/d"]]);
}

#[test]
fn an_object_of_a_manifest_that_is_missing_is_reported_before_any_pipe_is_there() {
    let mut all = some();
    let listed = br#"[{"prefix":"s3://lab/t"},"/a","-1","/b"]"#;
    all.insert("list".to_owned(), listed.to_vec());
    let (origin, stage) = (serve(&all), Stage::new());
    let run = pipe(&origin, ["--manifest", "s3://lab/list"]).with([stage.channel("train")]).run();
    // It is a folder, and a manifest lists objects.
    run.expect(NOT_FOUND)
        .expect_error(&["channel train: s3://lab/t/b: there is no object with this key"]);
    assert_eq!(stage.names(), Vec::<String>::new());
    let run = pipe(&origin, ["--manifest", "s3://lab/none"]).with([stage.channel("train")]).run();
    run.expect(NOT_FOUND).expect_error(&["s3://lab/none: there is no such manifest"]);
    let words = ["--channel", "c=s3://lab/t/", "--manifest", "list"];
    let run = pipe(&origin, words).with([stage.path()]).run().expect(2);
    run.expect_words(&["--channel and --manifest do not go together"]);
}
