//! `--verify` of streams: each object is compared with its stored checksum before its last bytes
//! are passed on.

use std::num::NonZeroU64;
use std::process::Stdio;

use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Config, Fault, FaultPlan, Match, Origin};
use serde_json::Value;

use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::reader::Reader;
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};
use crate::{MIB, OBJECTS, Stage, assert_read, mixture, objects, sha256, stream};

/// What of each checksum S3 can store: of the whole object, and of its parts.
fn policies() -> Vec<ChecksumPolicy> {
    let part = NonZeroU64::new(5 << 20).expect("not 0");
    vec![
        ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme),
        ChecksumPolicy::full_object(ChecksumAlgorithm::Xxhash128),
        ChecksumPolicy::composite(ChecksumAlgorithm::Crc32c, part),
        ChecksumPolicy::composite(ChecksumAlgorithm::Sha256, part),
    ]
}

fn with_checksums(all: &Objects, policy: ChecksumPolicy) -> Config {
    let mut configuration = config(all);
    for object in &mut configuration.objects {
        *object = object.clone().with_checksum(policy);
    }
    configuration
}

/// `inrush cat` of everything; what it wrote, and its summary.
fn cat(origin: &Origin, words: &[&str], code: i32) -> (Vec<u8>, Value, Run) {
    let program = Program::new(["cat", "--json", "s3://lab/"]).with(words).asking(origin);
    let folder = tempfile::tempdir().expect("a folder");
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    let open = |path: &std::path::Path| Stdio::from(std::fs::File::create(path).expect("a file"));
    let running = program.with_keys(ACCESS_KEY, SECRET).start_with(open(&out), open(&err));
    let run = running.wait().expect(code);
    let said = std::fs::read_to_string(err).expect("UTF-8");
    let summary = said.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let summary = summary.unwrap_or_else(|| panic!("no summary in {said}"));
    (std::fs::read(out).expect("a file"), summary, run)
}

fn count(summary: &Value, name: &str) -> u64 {
    summary["channels"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"))
}

#[test]
fn every_algorithm_and_form_over_both_rings() {
    let all = mixture();
    let with_bytes = all.values().filter(|bytes| !bytes.is_empty()).count() as u64;
    for policy in policies() {
        let origin = start(with_checksums(&all, policy));
        for words in [&["--verify", "strict"][..], &["--verify", "auto", "--ring", "epoll"]] {
            let (bytes, summary, _) = cat(&origin, words, 0);
            assert_eq!(sha256(&bytes), sha256(&stream(&all)), "{words:?} {policy:?}");
            assert_eq!(count(&summary, "validated_objects"), with_bytes, "{summary}");
            assert_eq!(count(&summary, "not_validated_objects"), 0, "{summary}");
        }
    }
}

#[test]
fn the_end_of_an_object_that_differs_is_not_passed_on() {
    let all = objects(&[("a", MIB), ("b", 20 * MIB), ("c", 9)]);
    for policy in policies() {
        for at in [0, 7 << 20, (20 << 20) - 1] {
            let mut configuration = with_checksums(&all, policy);
            let when = Match { key: Some("b".to_owned()), ..Match::default() };
            let flip = Fault::FlipObjectByte { at };
            configuration.faults = FaultPlan::none().with_rule(when, flip);
            let origin = start(configuration);
            for mode in ["auto", "strict"] {
                let (bytes, summary, _) = cat(&origin, &["--verify", mode], OBJECTS);
                let error = summary["error"].as_str().expect("an error");
                let named = "get s3://lab/b: the bytes have another checksum: the ";
                assert!(error.contains(named), "{error}");
                assert!(bytes.len() >= MIB && bytes.len() < 21 * MIB, "{}", bytes.len());
                assert_eq!(count(&summary, "validated_objects"), 1, "{summary}");
            }
            let (bytes, summary, _) = cat(&origin, &[], 0);
            assert_eq!(bytes.len(), 21 * MIB + 9, "nobody looks");
            assert_eq!(count(&summary, "not_validated_objects"), 3, "{summary}");
        }
    }
}

#[test]
fn every_epoch_of_a_pipe() {
    let all = objects(&[("a", 5), ("b", 9 * MIB + 1), ("c", 70_000)]);
    let policy = ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme);
    let origin = start(with_checksums(&all, policy));
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--verify", "strict", "--epochs", "3"]);
    // One reader leaves in the middle of an object.
    let manners = ["all", "leave:7000000", "all"];
    let epochs = Reader::start(&stage.channel("train"), &manners).finish();
    for epoch in [&epochs[0], &epochs[2]] {
        assert_read(epoch, &stream(&all));
    }
    let run = stage.end(running, 0);
    assert_eq!(count(&run.json(), "validated_objects"), 7, "{run}");
    run.expect_words(&["7 objects verified"]);
}

#[test]
fn an_object_without_a_checksum_is_refused_by_strict_alone() {
    let mut configuration = config(&objects(&[("a", MIB), ("b", 12 * MIB)]));
    // Encrypted so that its ETag is no MD5.
    let header = "x-amz-server-side-encryption";
    for object in &mut configuration.objects {
        *object = object.clone().with_header(header, "aws:kms");
    }
    let origin = start(configuration);
    let (bytes, summary, _) = cat(&origin, &["--verify", "auto"], 0);
    assert_eq!(bytes.len(), 13 * MIB);
    assert_eq!(count(&summary, "not_validated_objects"), 2, "{summary}");
    let (bytes, summary, _) = cat(&origin, &["--verify", "strict"], OBJECTS);
    let error = summary["error"].as_str().expect("an error");
    assert!(error.contains("s3://lab/a: it cannot be verified: "), "{error}");
    assert_eq!(bytes.len(), 0);
}

#[test]
fn the_report_has_the_verdict_of_each_object() {
    let all = objects(&[("a", MIB), ("b", 5)]);
    let mut configuration =
        with_checksums(&all, ChecksumPolicy::full_object(ChecksumAlgorithm::Sha256));
    configuration.objects[1] = configuration.objects[1].clone().without_checksum();
    let origin = start(configuration);
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let words = ["--verify", "auto", "--report", report.to_str().expect("UTF-8")];
    cat(&origin, &words, 0);
    let lines = std::fs::read_to_string(report).expect("a report");
    let verdict = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let verified = &line["verified"];
        [&verified["verdict"], &verified["algorithm"], &verified["reason"]].map(Value::to_string)
    };
    let verdicts: Vec<_> = lines.lines().map(verdict).collect();
    assert_eq!(verdicts[0][..2], ["\"validated\"", "\"SHA256\""], "{lines}");
    assert_eq!(verdicts[1][0], "\"not validated\"", "{lines}");
    assert!(!verdicts[1][2].contains("requested"), "{lines}");
}

#[test]
fn an_etag_that_only_looks_like_an_md5_fails_strict_and_says_so() {
    let origin = serve(&objects(&[("a", MIB)]));
    let (bytes, summary, _) = cat(&origin, &["--verify", "strict"], OBJECTS);
    let error = summary["error"].as_str().expect("an error");
    assert!(error.contains("the server's ETags may not be MD5s, and --verify auto"), "{error}");
    assert!(bytes.len() < MIB, "its end is not passed on");
}

#[test]
fn an_etag_that_is_an_md5_counts_for_strict() {
    let all = objects(&[("a", MIB)]);
    let origin = start(Config { md5_etags: true, ..config(&all) });
    for (mode, verified) in [("auto", 0), ("strict", 1)] {
        let (_, summary, _) = cat(&origin, &["--verify", mode], 0);
        assert_eq!(count(&summary, "validated_objects"), verified, "{mode}: {summary}");
    }
}

#[test]
fn without_verify_nothing_is_requested_besides_the_objects() {
    let all = objects(&[("a", MIB), ("b", 5)]);
    let policy = ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme);
    let origin = start(with_checksums(&all, policy));
    cat(&origin, &[], 0);
    assert_eq!(origin.stats().heads, 0);
}
