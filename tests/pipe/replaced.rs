//! Objects that are replaced while a channel goes on: each epoch has those of its own listing.

use std::fs::{self, File};
use std::io::Read;

use inrush::plan::epoch::permutation;

use crate::matrix::{Objects, bytes_of};
use crate::served::{object, serve};
use crate::{Stage, stream};

/// Enough that most are still to be fetched while the reader rests in the first one.
const COUNT: u32 = 120;
const OBJECT_BYTES: usize = 256 << 10;

fn shuffled(objects: &Objects, seed: u64, epoch: u64) -> Vec<u8> {
    let bodies: Vec<&Vec<u8>> = objects.values().collect();
    let order = permutation(seed, epoch, COUNT);
    order.iter().flat_map(|place| bodies[*place as usize]).copied().collect()
}

/// Replaces the object that an epoch begins with once it has been read, and fails unless the next
/// epoch has the new one.
fn replace_between(words: &[&str], first: u32, streams: impl Fn(&Objects, u64) -> Vec<u8>) {
    let mut all: Objects = (0..COUNT)
        .map(|number| format!("o{number:03}"))
        .map(|key| (key.clone(), bytes_of(&key, OBJECT_BYTES)))
        .collect();
    let origin = serve(&all);
    let stage = Stage::new();
    let words = [&["--epochs", "2", "--connections", "1"], words].concat();
    let running = stage.serve(&origin, &words);
    let mut reader = File::open(stage.channel("train_0")).expect("the first pipe");
    let mut read = vec![0; OBJECT_BYTES];
    reader.read_exact(&mut read).expect("the first object");
    let expected = streams(&all, 0);
    let key = format!("o{first:03}");
    assert_eq!(read, all[&key], "the first object of the first epoch");
    let new = bytes_of("new", OBJECT_BYTES + 1);
    origin.put_object(&object(&key, new.clone())).expect("it is replaced");
    all.insert(key, new);
    reader.read_to_end(&mut read).expect("the first epoch");
    assert!(read == expected, "the first epoch is as it was listed: {} bytes", read.len());
    drop(reader);
    let read = fs::read(stage.channel("train_1")).expect("the second epoch");
    assert!(read == streams(&all, 1), "the second epoch has the new object: {} bytes", read.len());
    stage.end(running, 0);
}

#[test]
fn the_next_shuffled_epoch_has_the_new_object() {
    let seed = 11;
    let first = permutation(seed, 0, COUNT)[0];
    replace_between(&["--shuffle-seed", "11"], first, |all, epoch| shuffled(all, seed, epoch));
}

#[test]
fn the_next_epoch_in_key_order_has_the_new_object() {
    replace_between(&[], 0, |all, _| stream(all));
}
