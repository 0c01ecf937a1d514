//! What an earlier run had written counts in the checksum of an object: it is read back, and wrong
//! bytes of it are noticed.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Origin};
use rustix::process::Signal;
use serde_json::Value;

use crate::matrix::Objects;
use crate::program::Run;
use crate::served::start;
use crate::{MIB, assert_complete, fetch, objects, slow};

const LENGTH: usize = 24 * MIB + 1;

fn large() -> Objects {
    objects(&[("a", LENGTH)])
}

/// An origin of one large object with such a checksum, and a folder where half of it is.
fn interrupted(policy: ChecksumPolicy) -> (Origin, tempfile::TempDir) {
    let mut configuration = slow(&large(), 20);
    for object in &mut configuration.objects {
        *object = object.clone().with_checksum(policy);
    }
    let origin = start(configuration);
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = fetch(&origin, &folder.path().join("data")).start();
    let until = 12 * MIB as u64;
    assert!(running.until(|| origin.stats().body_bytes >= until), "it was too fast");
    // Not KILL: the kernel may hold a killed ring's file, and its lock, a little longer.
    running.signal(Signal::INT);
    running.wait().expect(130);
    (origin, folder)
}

/// Inverts a byte of every range that is there; what is not is written again in any case.
fn spoil(folder: &Path) {
    let path = unfinished(folder);
    let mut bytes = fs::read(&path).expect("it is there");
    for at in (MIB / 2..LENGTH).step_by(MIB) {
        bytes[at] ^= 0x10;
    }
    fs::write(path, bytes).expect("written");
}

fn unfinished(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder.join("data")).expect("a folder");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let part = paths.find(|path| path.extension().is_some_and(|end| end == "part"));
    part.expect("an unfinished file")
}

/// Gets it with these options; the run, its summary, and the line of the object.
fn again(origin: &Origin, folder: &Path, options: &[&str], code: i32) -> (Run, Value, Value) {
    let report = folder.join("report");
    let program = fetch(origin, &folder.join("data")).with(options);
    let run = program.with(["--report".as_ref(), report.as_os_str()]).run().expect(code);
    let line = fs::read_to_string(report).expect("a report");
    let line = serde_json::from_str(&line).expect("one line of JSON");
    let summary = run.json();
    (run, summary, line)
}

fn policies() -> [(ChecksumPolicy, &'static str); 2] {
    let part = NonZeroU64::new(5 << 20).expect("not 0");
    [
        (ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme), "CRC64NVME"),
        (ChecksumPolicy::composite(ChecksumAlgorithm::Crc32c, part), "CRC32C"),
    ]
}

#[test]
fn what_goes_on_is_validated_and_fetched_once() {
    for (policy, name) in policies() {
        for mode in ["auto", "strict"] {
            let (origin, folder) = interrupted(policy);
            let (run, summary, line) = again(&origin, folder.path(), &["--verify", mode], 0);
            assert_complete(&folder.path().join("data"), &large());
            assert_eq!(line["verified"]["verdict"], "validated", "{line} {run}");
            assert_eq!(line["verified"]["algorithm"], name, "{line}");
            let resumed = summary["resumed_bytes"].as_u64().expect("a number");
            assert!(resumed > 0, "{run}");
            assert_eq!(resumed + summary["bytes"].as_u64().expect("a number"), LENGTH as u64);
        }
    }
}

#[test]
fn wrong_bytes_of_an_earlier_run_are_noticed_and_fetched_anew() {
    for (policy, name) in policies() {
        let (origin, folder) = interrupted(policy);
        spoil(folder.path());
        let (run, summary, line) = again(&origin, folder.path(), &[], 0);
        assert_complete(&folder.path().join("data"), &large());
        assert_eq!(line["verified"]["algorithm"], name, "{line} {run}");
        assert!(summary["resumed_bytes"].as_u64() > Some(0), "{run}");
        assert!(summary["bytes"].as_u64() > Some(LENGTH as u64), "it began anew: {run}");
    }
}

#[test]
fn a_hash_needs_all_bytes_in_order() {
    let (origin, folder) = interrupted(ChecksumPolicy::full_object(ChecksumAlgorithm::Sha256));
    let (run, _, line) = again(&origin, folder.path(), &["--verify", "strict"], 1);
    let error = line["error"].as_str().expect("an error");
    assert!(error.contains("cannot be verified: an earlier run downloaded part of it"), "{run}");
    let options = ["--verify", "strict", "--no-resume"];
    let (_, _, line) = again(&origin, folder.path(), &options, 0);
    assert_eq!(line["verified"]["algorithm"], "SHA256");
    assert_complete(&folder.path().join("data"), &large());
}
