//! Records around objects: `--record-wrapper`, read by a reader that was written from the
//! description of RecordIO (dmlc-core, `include/dmlc/recordio.h`).

use std::io::Read;
use std::path::Path;

use inrush_origin::{
    Config, FaultPlan, ObjectContent, ObjectSpec, Origin, Profile, TlsConfig, TlsVersions,
};

use crate::matrix::{Objects, bytes_of, many};
use crate::program::Program;
use crate::reader::Reader;
use crate::served::{BUCKET, config, serve, start};
use crate::{MIB, OBJECTS, Stage, assert_read, epochs_of, mixture, objects, pipe, sha256, stream};

/// Reads the records of a stream, each in one piece; whatever is not as described fails.
#[track_caller]
pub(crate) fn records(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !stream.is_empty() {
        let (head, rest) = stream.split_at_checked(8).expect("a whole header");
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        assert_eq!(word(0), 0xced7_230a, "the magic number before record {}", records.len());
        let (pieces, length) = (word(4) >> 29, word(4) & ((1 << 29) - 1));
        assert_eq!(pieces, 0, "record {} is in one piece", records.len());
        let length = usize::try_from(length).expect("a length");
        let (record, rest) = rest.split_at_checked(length).expect("a whole record");
        let (zeros, rest) = rest.split_at_checked((4 - length % 4) % 4).expect("all zeros");
        assert!(zeros.iter().all(|byte| *byte == 0), "what fills up record {}", records.len());
        records.push(record);
        stream = rest;
    }
    records
}

/// An epoch's bytes, read from its pipe, which must be there.
pub(crate) fn read_epoch(channel: &Path, epoch: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pipe = channel.with_file_name(format!("train_{epoch}"));
    crate::reader::soon("the next pipe", || pipe.exists());
    std::fs::File::open(pipe).expect("a pipe").read_to_end(&mut bytes).expect("an epoch");
    bytes
}

/// `pipe` of these words over TLS or not, the certificates of this origin trusted.
pub(crate) fn trusting(stage: &Stage, origin: &Origin, words: &[&str]) -> Program {
    let program = pipe(origin, words).with([stage.channel("train")]);
    let Some(pem) = origin.ca_pem() else { return program };
    let bundle = program.home().join("ca.pem");
    std::fs::write(&bundle, pem).expect("room");
    program.with(["--ca-bundle".as_ref(), bundle.as_os_str()])
}

/// An origin of these objects, over TLS or not.
pub(crate) fn origin_of(all: &Objects, is_secure: bool, faults: FaultPlan) -> Origin {
    let tls =
        is_secure.then(|| TlsConfig { versions: TlsVersions::Only13, ..TlsConfig::default() });
    start(Config { tls, faults, ..config(all) })
}

/// The objects that become records, in key order.
fn recorded(all: &Objects) -> Vec<&[u8]> {
    let is_record = |(key, bytes): &(&String, &Vec<u8>)| !key.ends_with('/') || !bytes.is_empty();
    all.iter().filter(is_record).map(|(_, bytes)| bytes.as_slice()).collect()
}

/// Of all lengths modulo four, empty ones and folders among them.
fn lengths() -> Objects {
    let lengths = [0, 1, 2, 3, 4, 5, 4091, 4096, 70_001, 3 * MIB + 1];
    let keys = lengths.iter().map(|length| (format!("o{length:08}"), *length));
    let mut all: Objects =
        keys.map(|(key, length)| (key.clone(), bytes_of(&key, length))).collect();
    all.extend(objects(&[("folder/", 0), ("folder/in", 7), ("last", 2)]));
    all
}

#[test]
fn each_object_is_a_record() {
    for (is_secure, wrapper) in [(false, "recordio"), (true, "RecordIO")] {
        let mut all = lengths();
        all.extend(many(700));
        let origin = origin_of(&all, is_secure, FaultPlan::none());
        let stage = Stage::new();
        let words = ["s3://lab/", "--epochs", "2", "--record-wrapper", wrapper];
        let running = stage.start(trusting(&stage, &origin, &words));
        let mut bytes = 0;
        for epoch in 0..2 {
            let stream = read_epoch(&stage.channel("train"), epoch);
            assert!(records(&stream) == recorded(&all), "epoch {epoch}, TLS {is_secure}");
            bytes = stream.len();
        }
        let run = stage.end(running, 0);
        for epoch in epochs_of(&run, 0) {
            run.check(epoch["bytes"] == bytes, "all bytes that were read are counted");
            run.check(epoch["left_early"] == false, "nobody left early");
        }
    }
}

#[test]
fn records_are_whole_whatever_the_server_does() {
    let all = mixture();
    let mut wanted = Vec::new();
    for bytes in all.values() {
        wanted.extend(0xced7_230a_u32.to_le_bytes());
        wanted.extend(u32::try_from(bytes.len()).expect("short").to_le_bytes());
        wanted.extend(bytes);
        wanted.resize(wanted.len().next_multiple_of(4), 0);
    }
    for (seed, is_secure) in [(1, false), (2, true)] {
        let origin = origin_of(&all, is_secure, FaultPlan::seeded(seed, Profile::Mixed));
        let stage = Stage::new();
        let words = ["s3://lab/", "--epochs", "3", "--part-size", "1MiB", "--max-attempts", "30"];
        let program = trusting(&stage, &origin, &words).with(["--record-wrapper", "recordio"]);
        let running = stage.start(program);
        // One leaves in the middle, and one after the other waits before it reads.
        let manners = ["all", "leave:100003", "wait"];
        let epochs = Reader::start(&stage.channel("train"), &manners).finish();
        for (epoch, length) in epochs.iter().zip([wanted.len(), 100_003, wanted.len()]) {
            assert_read(epoch, &wanted[..length]);
        }
        stage.end(running, 0);
    }
}

#[test]
fn without_a_wrapper_nothing_stands_between_objects() {
    let all = lengths();
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--record-wrapper", "None"]);
    assert_eq!(sha256(&read_epoch(&stage.channel("train"), 0)), sha256(&stream(&all)));
    stage.end(running, 0);
}

#[test]
fn records_are_shuffled_sharded_and_reported() {
    let all = lengths();
    let origin = serve(&all);
    let mut seen = Vec::new();
    for shard in ["0/2", "1/2"] {
        let stage = Stage::new();
        let report = stage.path().with_extension("report");
        let words = ["--record-wrapper", "recordio", "--shuffle-seed", "7", "--epoch-markers"];
        let words = [&words[..], &["--shard", shard, "--report"]].concat();
        let words: Vec<_> = words.into_iter().chain([report.to_str().expect("UTF-8")]).collect();
        let running = stage.serve(&origin, &words);
        let stream = read_epoch(&stage.channel("train"), 0);
        seen.extend(records(&stream).into_iter().map(<[u8]>::to_vec));
        let run = running.wait().expect(0);
        let marker = stage.path().join("train_0.ok");
        let marker: serde_json::Value =
            serde_json::from_slice(&std::fs::read(marker).expect("a marker")).expect("JSON");
        run.check(marker["bytes"] == stream.len(), "the marker counts what was read");
        let lines = std::fs::read_to_string(&report).expect("a report");
        std::fs::remove_file(report).expect("it is there");
        run.check(marker["objects"] == lines.lines().count(), "one line for each object");
    }
    let mut wanted = recorded(&all);
    seen.sort();
    wanted.sort();
    assert!(seen == wanted, "each record once");
}

#[test]
fn an_object_that_fits_no_record_is_refused_by_its_name() {
    let long = ObjectContent::Synthetic { length_bytes: 1 << 29 };
    let long = |key: &str| ObjectSpec::new(BUCKET, key, long.clone());
    let serve = |key: &str, count: usize| {
        let mut configuration = config(&many(count));
        configuration.objects.push(long(key));
        start(configuration)
    };
    let expected = "it has 536870912 bytes, and a RecordIO record at most 536870911";
    // On the first page of the listing: no pipe appears.
    let origin = serve("long", 10);
    let stage = Stage::new();
    let words = ["s3://lab/", "--record-wrapper", "recordio"];
    let run = pipe(&origin, words).with([stage.channel("train")]).run().expect(OBJECTS);
    run.check(run.stderr.contains(&format!("s3://lab/long: {expected}")), "its name and why");
    run.check(stage.names().is_empty() && origin.stats().gets == 0, "nothing was begun");
    // Without records it is one object like others, and a filter may leave it out.
    let running = stage.serve(&origin, &["--record-wrapper", "recordio", "--exclude", "long"]);
    assert_eq!(records(&read_epoch(&stage.channel("train"), 0)).len(), 10);
    stage.end(running, 0);
    // On a later page: the stream fails before it.
    let origin = serve("zz-long", 1500);
    let running = stage.serve(&origin, &["--record-wrapper", "recordio"]);
    let bytes = read_epoch(&stage.channel("train"), 0);
    let run = stage.end(running, OBJECTS);
    run.check(run.stderr.contains(&format!("s3://lab/zz-long: {expected}")), "its name and why");
    run.check(bytes.len() < 40 * MIB, "it was not streamed");
}
