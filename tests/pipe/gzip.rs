//! Objects of gzip that are decompressed on their way: `--gunzip`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;

use flate2::Compression;
use flate2::write::GzEncoder;
use inrush::plan::epoch::permutation;
use inrush_origin::{FaultPlan, Profile};
use rustix::process::Signal;

use crate::matrix::{Objects, bytes_of, many};
use crate::program::Program;
use crate::reader::{Reader, soon};
use crate::records::{origin_of, read_epoch, trusting};
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{
    INTERRUPTED, MIB, OBJECTS, Stage, assert_read, epochs_of, objects, pipe, sha256, stream,
};

/// A gzip file of one member.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Compresses each object as a gzip file. Those from 100 kB on are of three members, as files are
/// that were compressed piece by piece; one without bytes stays empty.
fn packed(all: &Objects) -> Objects {
    let packed = |bytes: &Vec<u8>| match bytes.len() {
        0 => Vec::new(),
        100_000.. => {
            let (head, tail) = bytes.split_at(bytes.len() / 3);
            [gzip(head), gzip(&[]), gzip(tail)].concat()
        }
        _ => gzip(bytes),
    };
    all.iter().map(|(key, bytes)| (key.clone(), packed(bytes))).collect()
}

/// Bytes that deflate makes shorter, and some that it does not.
fn texts() -> Objects {
    let mut all = many(700);
    all.extend(objects(&[("folder/", 0), ("m-random", 9 * MIB + 1), ("n", 1), ("z-last", 70_001)]));
    for (key, length) in [("l-text", 30 * MIB + 5), ("o-text", 12 * MIB)] {
        let word = bytes_of(key, 1 << 16);
        // Half of each page repeats.
        let page = |at: usize| {
            if (at / 2048).is_multiple_of(2) { word[at % 512] } else { word[at % 65_521] }
        };
        all.insert(key.to_owned(), (0..length).map(page).collect());
    }
    all
}

#[test]
fn objects_are_decompressed_in_order() {
    let plain = texts();
    let all = packed(&plain);
    let wanted = stream(&plain);
    for (is_secure, words) in [
        (false, &["--part-size", "1MiB"][..]),
        (true, &["--part-size", "1MiB"]),
        (false, &["--connections", "1"]),
        (true, &["--connections", "2", "--memory", "32MiB"]),
        (false, &["--ring", "epoll"]),
    ] {
        let origin = origin_of(&all, is_secure, FaultPlan::none());
        let stage = Stage::new();
        let words =
            [&["s3://lab/", "--epochs", "2", "--gunzip", "--epoch-markers"], words].concat();
        let running = stage.start(trusting(&stage, &origin, &words));
        for epoch in 0..2 {
            let got = read_epoch(&stage.channel("train"), epoch);
            assert_eq!((got.len(), sha256(&got)), (wanted.len(), sha256(&wanted)), "{words:?}");
        }
        let run = running.wait().expect(0);
        for epoch in epochs_of(&run, 0) {
            run.check(epoch["bytes"] == wanted.len(), "what was read is counted");
            run.check(epoch["left_early"] == false, "nobody left early");
        }
        let marker = std::fs::read(stage.path().join("train_1.ok")).expect("a marker");
        let marker: serde_json::Value = serde_json::from_slice(&marker).expect("JSON");
        run.check(marker["bytes"] == wanted.len(), "the marker counts what was read");
        run.check(marker["objects"] == all.len(), "and all objects");
    }
}

#[test]
fn readers_leave_wait_and_go_on_whatever_the_server_does() {
    let plain = texts();
    let (all, wanted) = (packed(&plain), stream(&plain));
    for (seed, is_secure) in [(3, false), (4, true)] {
        let origin = origin_of(&all, is_secure, FaultPlan::seeded(seed, Profile::Mixed));
        let stage = Stage::new();
        let words = ["s3://lab/", "--gunzip", "--part-size", "1MiB", "--max-attempts", "30"];
        let program = trusting(&stage, &origin, &words).with(["--epochs", "5"]);
        let running = stage.start(program);
        let manners = ["leave:5000000", "all", "leave:1", "wait", "leave:0"];
        let epochs = Reader::start(&stage.channel("train"), &manners).finish();
        let lengths = [5_000_000, wanted.len(), 1, wanted.len(), 0];
        for (epoch, length) in epochs.iter().zip(lengths) {
            assert_read(epoch, &wanted[..length]);
        }
        stage.end(running, 0);
    }
}

/// One that closes behind the last byte has the whole epoch, though what follows that byte, its
/// sum, was perhaps not looked at when it did.
#[test]
fn a_reader_that_takes_all_and_sees_no_end_has_all() {
    let plain = objects(&[("a", 3 * MIB), ("b", 100_001)]);
    let origin = serve(&packed(&plain));
    let stage = Stage::new();
    let wanted = stream(&plain);
    let exactly = format!("leave:{}", wanted.len());
    let running = stage.serve(&origin, &["--gunzip", "--epochs", "8", "--epoch-markers"]);
    let epochs = Reader::start(&stage.channel("train"), &[exactly.as_str(); 8]).finish();
    epochs.iter().for_each(|epoch| assert_read(epoch, &wanted));
    let run = running.wait().expect(0);
    for epoch in epochs_of(&run, 0) {
        run.check(epoch["left_early"] == false, "it took every byte");
    }
}

fn cat(origin: &inrush_origin::Origin, words: &[&str]) -> Program {
    let program = Program::new(["cat", "--gunzip"]).with(words).asking(origin);
    program.with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn standard_output_has_what_objects_hold() {
    let plain = texts();
    let origin = serve(&packed(&plain));
    let folder = tempfile::tempdir().expect("a folder");
    let stderr = || Stdio::from(File::create(folder.path().join("stderr")).expect("a file"));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let running = cat(&origin, &["s3://lab/"]).start_with(Stdio::from(writer), stderr());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the stream");
    running.wait().expect(0);
    assert_eq!(sha256(&bytes), sha256(&stream(&plain)), "to a pipe");

    let path = folder.path().join("file");
    let file = Stdio::from(File::create(&path).expect("a file"));
    cat(&origin, &["s3://lab/l-text"]).start_with(file, stderr()).wait().expect(0);
    assert!(std::fs::read(&path).expect("the file") == plain["l-text"], "to a file");
    assert_eq!(std::fs::read_to_string(folder.path().join("stderr")).expect("UTF-8"), "");
    cat(&origin, &["s3://lab/n", "--range", "0-3"]).run().expect(2).expect_words(&["--range"]);
}

/// A file that something is wrong with, and what is said of it.
fn faulty() -> Vec<(Vec<u8>, String)> {
    let good = gzip(&bytes_of("good", 200_000));
    let length = good.len();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let behind = "bytes that are no gzip follow its last member: byte";
    vec![
        (good[..150_000].to_vec(), "it is truncated: after 150000 bytes it ends".to_owned()),
        (good[..length - 1].to_vec(), format!("it is truncated: after {} bytes", length - 1)),
        (changed(length - 5), format!("CRC-32 of the member before byte {}", length - 4)),
        (changed(length - 1), format!("length of the member before byte {length}")),
        (changed(100_000), "its data is corrupt".to_owned()),
        ([&good[..], &[0; 9]].concat(), format!("{behind} {length} is 0x00")),
        ([&good[..], b"PK"].concat(), format!("{behind} {length} is 0x50")),
        (b"key,value\n".to_vec(), "it is not gzip: byte 0 is 0x6b".to_owned()),
    ]
}

#[test]
fn a_faulty_object_is_named_and_no_epoch_is_short_in_silence() {
    let before = bytes_of("a", 3 * MIB);
    for (file, expected) in faulty() {
        let mut all = Objects::new();
        all.insert("a".to_owned(), gzip(&before));
        all.insert("b/it em".to_owned(), file);
        all.insert("c".to_owned(), gzip(&bytes_of("c", MIB)));
        let origin = serve(&all);
        let whole = [&before[..], &bytes_of("good", 200_000)].concat();

        // The end of a stream that failed is no end where that is asked for.
        let stage = Stage::new();
        let words = ["--gunzip", "--epoch-markers", "--on-failure", "hold"];
        let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]).with(words);
        let (mut running, _) = stage.start_or_end(program);
        let name = stage.channel("train_0");
        let (sender, receiver) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            // On a busy machine it comes when the pipe is gone: the first epoch fails at once.
            let Ok(mut reader) = File::open(name) else { return Vec::new() };
            let mut got = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = reader.read(&mut buffer).expect("a pipe");
                got.extend_from_slice(&buffer[..count]);
                if count == 0 {
                    sender.send(()).expect("it is waited for");
                    return got;
                }
            }
        });
        let is_gone = || stage.pipes().is_empty();
        assert!(running.until(is_gone) || is_gone(), "{expected}: it fails");
        match receiver.recv_timeout(std::time::Duration::from_millis(200)) {
            Ok(()) => panic!("{expected}: the reader sees an end"),
            Err(RecvTimeoutError::Timeout) => {
                assert!(!running.has_ended(), "{expected}: it holds its reader");
                running.signal(Signal::TERM);
            }
            // Nobody is held.
            Err(RecvTimeoutError::Disconnected) => {}
        }
        let run = stage.end(running, OBJECTS);
        let run = run.expect_words(&["error: channel train: s3://lab/b/it em: ", &expected]);
        let got = reading.join().expect("no panic");
        run.check(whole.starts_with(&got), "what came before is right");

        let run = cat(&origin, &["s3://lab/", "--json"]).run().expect(OBJECTS);
        let run = run.expect_words(&["error: s3://lab/b/it em: ", &expected, "\"error_kind\""]);
        run.check(!run.stderr.contains("s3://lab/c"), "the others are right");
    }
}

#[test]
fn a_faulty_object_of_a_later_epoch_fails_when_that_is_read() {
    let good = objects(&[("a", 300_000)]);
    let mut all = packed(&good);
    all.insert("b".to_owned(), b"no gzip".to_vec());
    let origin = serve(&all);
    // A seed whose first object is `a` in the first epoch, and `b` in the second.
    let first = |seed: u64, epoch: u64| permutation(seed, epoch, 2)[0];
    let seed = (0..100).find(|seed| (first(*seed, 0), first(*seed, 1)) == (0, 1)).expect("a seed");
    let stage = Stage::new();
    let words = ["--gunzip", "--epochs", "2", "--shard", "0/2", "--shuffle-seed"];
    let running = stage.serve(&origin, &[&words[..], &[&seed.to_string()]].concat());
    assert!(read_epoch(&stage.channel("train"), 0) == good["a"], "the epoch before is whole");
    assert!(read_epoch(&stage.channel("train"), 1).is_empty(), "nothing of the other");
    stage.end(running, OBJECTS).expect_words(&["s3://lab/b: it is not gzip: byte 0 is 0x6e"]);
}

#[test]
fn a_signal_and_a_deadline_end_what_is_decompressed() {
    let origin = serve(&packed(&objects(&[("a", 20 * MIB), ("b", 20 * MIB)])));
    for (words, code) in [(&[][..], INTERRUPTED), (&["--deadline", "2s"], crate::DEADLINE)] {
        let stage = Stage::new();
        let running = stage.serve(&origin, &[&["--gunzip"], words].concat());
        let mut reader = File::open(stage.channel("train_0")).expect("a pipe");
        reader.read_exact(&mut [0; 1000]).expect("the first bytes");
        if code == INTERRUPTED {
            running.signal(Signal::INT);
        }
        stage.end(running, code);
        soon("the end", || reader.read(&mut vec![0; 1 << 20]).expect("a pipe") == 0);
    }
}

#[test]
fn records_and_manifests_are_refused() {
    let origin = serve(&objects(&[]));
    let run = pipe(&origin, ["s3://lab/", "d/c", "--gunzip", "--record-wrapper", "recordio"]).run();
    run.expect(2).expect_words(&["that of an object is not known before it is decompressed"]);
    let words = ["d/c", "--gunzip", "--augmented-manifest", "m", "--attribute", "a"];
    pipe(&origin, words).run().expect(2).expect_words(&["--gunzip"]);
}
