//! The orders that the guide promises, as the program serves them.

use std::fs;

use crate::matrix::Objects;
use crate::served::serve;
use crate::{Stage, objects};

/// The page of the guide.
const GUIDE: &str = include_str!("../../src/guide/training.md");

/// Words behind this start of a line of the guide.
fn words_after(start: &str) -> Vec<&'static str> {
    let line = GUIDE.lines().find_map(|line| line.strip_prefix(start));
    line.unwrap_or_else(|| panic!("no line {start}")).split_whitespace().collect()
}

#[test]
fn shards_are_those_of_the_guide() {
    let ranks = [words_after("rank 0: "), words_after("rank 1: ")];
    let keys: Vec<String> = ranks.concat().iter().map(|name| format!("t/{name}")).collect();
    assert_eq!(keys.len(), 12);
    let all = objects(&keys.iter().map(|key| (key.as_str(), 9)).collect::<Vec<_>>());
    let origin = serve(&all);
    for (index, expected) in ranks.iter().enumerate() {
        let stage = Stage::new();
        let shard = format!("{index}/2");
        let channels = ["--channel=f=s3://lab/t/", "--channel=p=s3://lab/t/,mode=Pipe"];
        let words = [&channels[..], &["--shard", &shard]].concat();
        let script = "ls $d/f > $o/f; cat $d/p_0 > $o/p";
        stage.end(stage.shell(&origin, &words, script).start(), 0);
        let mut sorted = expected.clone();
        sorted.sort_unstable();
        assert_eq!(stage.output("f").lines().collect::<Vec<_>>(), sorted, "rank {index}");
        let stream: Vec<u8> =
            expected.iter().flat_map(|name| &all[&format!("t/{name}")]).copied().collect();
        let read = fs::read(stage.base().join("output/data/p")).expect("a stream");
        assert!(read == stream, "rank {index}");
    }
}

/// The numbers of the objects that begin at each hundredth byte; `?` for none of them.
fn numbers_of(bytes: &[u8], all: &Objects) -> String {
    let number = |piece: &[u8]| {
        let found = all.iter().find(|(_, object)| object.as_slice() == piece);
        found.map_or("?", |(key, _)| &key[2..])
    };
    bytes.chunks(100).map(number).collect::<Vec<_>>().join(" ")
}

#[test]
fn epochs_are_shuffled_as_the_guide_says() {
    let keys: Vec<String> = (0..8).map(|number| format!("t/{number}")).collect();
    let all = objects(&keys.iter().map(|key| (key.as_str(), 100)).collect::<Vec<_>>());
    let origin = serve(&all);
    let table = GUIDE.split_once("| seed | epoch |").expect("a table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 3);
    // The shuffle of one host, and of two.
    for (column, shard) in [(2, "0/1"), (3, "0/2"), (4, "1/2")] {
        for seed in ["42", "-1"] {
            let stage = Stage::new();
            let channel = format!("p=s3://lab/t/,mode=Pipe,shuffle-seed={seed}");
            let words = ["--channel", &channel, "--shard", shard];
            let script = "for e in 0 1; do while [ ! -p $d/p_$e ]; do sleep 0.01; done; \
                          cat $d/p_$e > $o/p_$e; done";
            stage.end(stage.shell(&origin, &words, script).start(), 0);
            for row in rows.iter().filter(|row| row[0] == seed) {
                let expected = row[column].split_whitespace();
                let expected: Vec<u8> =
                    expected.flat_map(|number| &all[&format!("t/{number}")]).copied().collect();
                let read = stage.base().join(format!("output/data/p_{}", row[1]));
                let read = fs::read(read).expect("an epoch");
                let found = numbers_of(&read, &all);
                assert!(read == expected, "{shard}: {row:?}, but {} bytes: {found}", read.len());
            }
        }
    }
}
