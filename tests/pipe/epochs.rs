//! Epochs in SageMaker's own manner of reading: key order, shuffled, sharded, merged.

use inrush::plan::epoch::permutation;

use crate::matrix::{LARGE, Objects, bytes_of, many, names, sizes};
use crate::program::Run;
use crate::reader::Reader;
use crate::served::serve;
use crate::{MIB, Stage, assert_read, epochs_of, mixture, objects, pipe, stream};

/// Serves `objects` with these words, and fails unless the epochs are these streams.
#[track_caller]
fn read_epochs(objects: &Objects, words: &[&str], streams: &[Vec<u8>]) -> Run {
    let origin = serve(objects);
    let stage = Stage::new();
    let epochs = streams.len().to_string();
    let running = stage.serve(&origin, &[&["--epochs", &epochs], words].concat());
    let epochs = Reader::start(&stage.channel("train"), &vec!["all"; streams.len()]).finish();
    for (epoch, bytes) in epochs.iter().zip(streams) {
        assert_read(epoch, bytes);
    }
    let run = stage.end(running, 0);
    for (epoch, bytes) in epochs_of(&run, 0).iter().zip(streams) {
        run.check(epoch["bytes"] == bytes.len() as u64, "the summary counts other bytes");
        run.check(epoch["left_early"] == false, "nobody left early");
    }
    run.check(epochs_of(&run, 0).len() == streams.len(), "the summary has every epoch");
    run
}

/// The stream of an epoch: the documented permutation, then every `count`-th from `index`.
fn shuffled(objects: &Objects, seed: u64, epoch: u64, index: usize, count: usize) -> Vec<u8> {
    let bodies: Vec<&Vec<u8>> = objects.values().collect();
    let order = permutation(seed, epoch, u32::try_from(bodies.len()).expect("a few"));
    let mine = order.iter().skip(index).step_by(count);
    mine.flat_map(|place| bodies[*place as usize]).copied().collect()
}

#[test]
fn three_epochs_in_key_order() {
    let all = mixture();
    let run = read_epochs(&all, &[], &vec![stream(&all); 3]);
    assert!(run.stderr.contains("train_2: "), "a line for each epoch was expected\n{run}");
}

#[test]
fn awkward_sizes_names_and_numbers() {
    let mut all = sizes();
    all.extend(names());
    all.extend(many(2500));
    read_epochs(&all, &[], &vec![stream(&all); 2]);
    let one = objects(&[("large", LARGE)]);
    read_epochs(&one, &["--connections", "3"], &[stream(&one)]);
    read_epochs(&one, &["--connections", "1"], &[stream(&one)]);
    read_epochs(&one, &["--part-size", "32MiB"], &[stream(&one)]);
}

#[test]
fn three_epochs_shuffled() {
    let all = mixture();
    for seed in [0, 42, u64::MAX] {
        let streams: Vec<_> = (0..3).map(|epoch| shuffled(&all, seed, epoch, 0, 1)).collect();
        assert_ne!(streams[0], streams[1], "epochs have orders of their own");
        read_epochs(&all, &["--shuffle-seed", &seed.to_string()], &streams);
    }
}

#[test]
fn more_objects_than_a_page_lists_or_a_feed_holds() {
    let all = many(5000);
    let streams: Vec<_> = (0..3).map(|epoch| shuffled(&all, 5, epoch, 1, 2)).collect();
    read_epochs(&all, &["--shuffle-seed", "5", "--shard", "1/2"], &streams);
    read_epochs(&all, &[], &vec![stream(&all); 3]);
}

#[test]
fn shards_of_key_order_and_of_a_shuffle() {
    let all = mixture();
    for index in 0..3 {
        let shard = format!("{index}/3");
        let plain: Vec<u8> =
            all.values().skip(index).step_by(3).flat_map(|bytes| bytes.iter()).copied().collect();
        read_epochs(&all, &["--shard", &shard], &vec![plain; 2]);
        let streams: Vec<_> = (0..2).map(|epoch| shuffled(&all, 9, epoch, index, 3)).collect();
        read_epochs(&all, &["--shard", &shard, "--shuffle-seed", "9"], &streams);
    }
}

#[test]
fn a_shard_without_objects_is_an_empty_stream() {
    let all = objects(&[("a", 5000), ("b", 6000)]);
    read_epochs(&all, &["--shard", "2/3"], &vec![Vec::new(); 3]);
}

#[test]
fn several_sources_are_merged_by_what_follows_them() {
    let all = objects(&[("a/1", 3 * MIB), ("b/2", 100), ("a/3", 9000), ("c/not", 7), ("b/4", MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let program = pipe(&origin, ["s3://lab/b/", "s3://lab/a/"]).with([stage.channel("train")]);
    let running = stage.start(program);
    let epochs = Reader::start(&stage.channel("train"), &["all"]).finish();
    let wanted = ["a/1", "b/2", "a/3", "b/4"].map(|key| all[key].clone()).concat();
    assert_read(&epochs[0], &wanted);
    stage.end(running, 0);
}

#[test]
fn epochs_go_on_forever_until_a_signal() {
    let all = objects(&[("a", 2 * MIB), ("b", 3)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "forever"]);
    // The last one read is followed by another, too.
    let epochs = Reader::start(&stage.channel("train"), &["all"; 40]).finish();
    for epoch in &epochs {
        assert_read(epoch, &stream(&all));
    }
    running.signal(rustix::process::Signal::TERM);
    let run = stage.end(running, crate::INTERRUPTED);
    run.check(epochs_of(&run, 0).len() == 40, "40 epochs were read");
}

#[test]
fn an_object_of_one_byte_each() {
    let all: Objects =
        (0..3000).map(|n| format!("o{n:04}")).map(|k| (k.clone(), bytes_of(&k, 1))).collect();
    read_epochs(&all, &[], &vec![stream(&all); 2]);
}
