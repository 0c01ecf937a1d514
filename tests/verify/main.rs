//! Checksums, with the real program and the in-repo origin: every algorithm and form that S3 keeps,
//! what is reported of each object, and that wrong bytes never get a name.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

mod adopt;
mod check;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to another test")]
mod matrix;
#[path = "../common/mount.rs"]
mod mount;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
mod recorder;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "every origin here has checksums of its own")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::PathBuf;

use inrush::files::journal::{HEADER_BYTES, WHOLE, record};
use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Config, Fault, FaultPlan, Match, Origin};
use serde_json::Value;
use tempfile::TempDir;

use matrix::{Objects, bytes_of};
use program::{Program, Run};
use recorder::Recorder;

const MIB: usize = 1 << 20;
const SMALL: usize = 70_001;
/// One range, several slots.
const MEDIUM: usize = 3 * MIB + 5;
/// Three ranges.
const LARGE: usize = 20 * MIB + 3;
const PART: NonZeroU64 = NonZeroU64::new(5 << 20).expect("not 0");

const CRCS: [ChecksumAlgorithm; 3] =
    [ChecksumAlgorithm::Crc64Nvme, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc32];
const HASHES: [ChecksumAlgorithm; 7] = [
    ChecksumAlgorithm::Sha256,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha512,
    ChecksumAlgorithm::Md5,
    ChecksumAlgorithm::Xxhash64,
    ChecksumAlgorithm::Xxhash3,
    ChecksumAlgorithm::Xxhash128,
];

/// An origin of these objects, and a place for them.
struct Scene {
    objects: Objects,
    origin: Origin,
    folder: TempDir,
}

impl Scene {
    /// Objects of these sizes, stored with such checksums, under the names that go with them.
    fn new(objects: Vec<(String, usize, Option<ChecksumPolicy>)>, faults: FaultPlan) -> Self {
        let mut configuration =
            Config { faults, md5_etags: true, ..served::config(&Objects::new()) };
        let mut kept = Objects::new();
        for (key, size, policy) in objects {
            let bytes = bytes_of(&key, size);
            let mut object = served::object(&key, bytes.clone());
            if let Some(policy) = policy {
                object = object.with_checksum(policy);
            }
            configuration.objects.push(object);
            kept.insert(key, bytes);
        }
        let folder = tempfile::tempdir().expect("a folder");
        Self { objects: kept, origin: served::start(configuration), folder }
    }

    fn crc(keys: &[(&str, usize)], faults: FaultPlan) -> Self {
        let policy = Some(ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme));
        Self::new(
            keys.iter().map(|(key, size)| ((*key).to_owned(), *size, policy)).collect(),
            faults,
        )
    }

    /// Gets all with these options; the summary, and what is said of each object.
    fn get(&self, options: &[&str], code: i32) -> (Run, BTreeMap<String, Value>) {
        let report = self.folder.path().join("report");
        let run = served::get(&self.origin, ["s3://lab/", "--json"])
            .with([&self.folder.path().join("data")])
            .with(["--report".as_ref(), report.as_os_str()])
            .with(options)
            .run()
            .expect(code);
        let text = fs::read_to_string(report).expect("a report");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let lines = lines.map(|line| (line["key"].as_str().expect("a key").to_owned(), line));
        let lines = lines.collect();
        (run, lines)
    }

    #[track_caller]
    fn assert_whole(&self) {
        matrix::assert_same(&self.folder.path().join("data"), &self.objects);
    }

    /// Nothing has a name, and no temporary file is left.
    #[track_caller]
    fn assert_absent(&self, key: &str) {
        let data = self.folder.path().join("data");
        let left: Vec<_> = fs::read_dir(&data)
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name.to_string_lossy().contains(key))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The verdict of a line, with its algorithm or its reason.
fn verdict(line: &Value) -> String {
    let verified = &line["verified"];
    let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let why = if verified["algorithm"].is_null() { "reason" } else { "algorithm" };
    format!("{} ({})", word(&verified["verdict"]), word(&verified[why]))
}

fn flip(key: &str, attempts: Option<std::ops::RangeInclusive<u32>>) -> FaultPlan {
    let when = Match { key: Some(key.to_owned()), attempts, ..Match::default() };
    FaultPlan::none().with_rule(when, Fault::FlipByte { at: 1234 })
}

fn every_form() -> Vec<(String, usize, Option<ChecksumPolicy>)> {
    let mut objects = Vec::new();
    for algorithm in CRCS.into_iter().chain(HASHES) {
        for (size, name) in [(SMALL, "small"), (MEDIUM, "medium"), (LARGE, "large")] {
            let full = ChecksumPolicy::full_object(algorithm);
            objects.push((format!("{}-full-{name}", algorithm.name()), size, Some(full)));
            if algorithm != ChecksumAlgorithm::Crc64Nvme {
                let composite = ChecksumPolicy::composite(algorithm, PART);
                objects.push((format!("{}-parts-{name}", algorithm.name()), size, Some(composite)));
            }
        }
    }
    objects
}

#[test]
fn every_algorithm_and_form_is_compared() {
    let scene = Scene::new(every_form(), FaultPlan::none());
    let (run, lines) = scene.get(&[], 0);
    scene.assert_whole();
    assert_eq!(lines.len(), 57);
    for (key, line) in &lines {
        let algorithm = key.split('-').next().expect("a name").to_uppercase();
        let found = verdict(line);
        // Hashes of ranges cannot be put together.
        if !algorithm.starts_with("CRC") && key.ends_with("large") {
            assert!(found.starts_with("not validated (a hash"), "{key}: {found}");
        } else {
            assert_eq!(found, format!("validated ({algorithm})"), "{key}");
        }
    }
    let summary = run.json();
    assert_eq!(summary["validated_objects"], 43, "{run}");
    assert_eq!(summary["not_validated_objects"], 14, "{run}");
}

#[test]
fn the_counts_add_up_where_an_object_is_empty() {
    let scene = Scene::crc(&[("a", 5), ("b", SMALL), ("empty", 0)], FaultPlan::none());
    let (run, lines) = scene.get(&[], 0);
    scene.assert_whole();
    assert_eq!(verdict(&lines["empty"]), "empty (it is empty)", "{run}");
    let summary = run.json();
    let names = ["validated_objects", "not_validated_objects", "empty_objects", "objects"];
    assert_eq!(names.map(|name| summary[name].as_u64()), [2, 0, 1, 3].map(Some), "{run}");
}

#[test]
fn a_flipped_byte_is_fetched_again() {
    for (key, size) in [("small", SMALL), ("medium", MEDIUM), ("large", LARGE)] {
        let scene = Scene::crc(&[(key, size), ("other", 5)], flip(key, Some(1..=1)));
        let (run, lines) = scene.get(&[], 0);
        scene.assert_whole();
        assert_eq!(verdict(&lines[key]), "validated (CRC64NVME)", "{run}");
        assert!(scene.origin.stats().faults_total() > 0, "a byte was wrong: {run}");
        if size == SMALL {
            assert_eq!(run.json()["retries"]["checksum"], 1, "{run}");
        }
    }
}

#[test]
fn bytes_that_stay_wrong_get_no_name() {
    for (key, size) in [("small", SMALL), ("medium", MEDIUM), ("large", LARGE)] {
        let scene = Scene::crc(&[(key, size), ("other", 5)], flip(key, None));
        let (run, lines) = scene.get(&["--max-attempts", "3"], 1);
        let error = lines[key]["error"].as_str().expect("an error");
        assert!(error.contains("another checksum") && error.contains("CRC64NVME"), "{error}");
        assert!(error.contains(&format!("s3://lab/{key}")), "{error}");
        assert_eq!(verdict(&lines[key]), "not validated (the object failed)");
        assert_eq!(verdict(&lines["other"]), "validated (CRC64NVME)", "{run}");
        scene.assert_absent(key);
    }
}

#[test]
fn bytes_that_are_wrong_twice_alike_are_not_downloaded_a_third_time() {
    for (key, size) in [("small", SMALL), ("medium", MEDIUM), ("large", LARGE)] {
        let right = Scene::crc(&[(key, size)], FaultPlan::none());
        right.get(&[], 0);
        // One byte is wrong in every answer, as if it was stored wrong.
        let scene = Scene::crc(&[(key, size)], flip(key, None));
        let (run, lines) = scene.get(&[], 1);
        let error = lines[key]["error"].as_str().expect("an error");
        for words in ["another checksum", "two downloads gave the same bytes", "a cache"] {
            assert!(error.contains(words), "{error}");
        }
        run.check(!run.stderr.contains("waiting for"), "nothing is waited for");
        scene.assert_absent(key);
        let (once, all) = (right.origin.stats().gets, scene.origin.stats().gets);
        assert!(all < 3 * once, "{all} requests, {once} for all of it once\n{run}");
    }
}

/// A run of one object that is killed between the last range and the file's name, with one of its
/// bytes wrong or none.
fn killed_before_its_verdict(size: usize, stored: ChecksumAlgorithm, wrong: bool) -> Scene {
    let first = Match { attempts: Some(1..=1), ..Match::default() };
    let stall = Fault::StallAfter { bytes: 2 * MIB as u64, duration: None };
    let policy = Some(ChecksumPolicy::full_object(stored));
    let objects = vec![("object".to_owned(), size, policy)];
    let scene = Scene::new(objects, FaultPlan::none().with_rule(first, stall));
    let data = scene.folder.path().join("data");
    let ours = |ending: &str| {
        let entries = fs::read_dir(&data).into_iter().flatten();
        let mut paths = entries.map(|entry| entry.expect("an entry").path());
        paths.find(|path| path.to_string_lossy().ends_with(ending))
    };
    let mut running = served::get(&scene.origin, ["s3://lab/"]).with([&data]).start();
    let long = |path: PathBuf| fs::metadata(path).is_ok_and(|there| there.len() > 0);
    let begun = running.until(|| ours(".part").is_some() && ours(".journal").is_some_and(long));
    assert!(begun, "it ended before it was killed");
    running.signal(rustix::process::Signal::KILL);
    drop(running.wait());
    // The rest of what it would have done, but the name.
    let mut bytes = scene.objects["object"].clone();
    bytes[size / 4 * 3] ^= u8::from(wrong);
    fs::write(ours(".part").expect("there"), bytes).expect("written");
    let journal = ours(".journal").expect("there");
    let mut records = fs::read(&journal).expect("there");
    let header: [u8; HEADER_BYTES] = records[..HEADER_BYTES].try_into().expect("a header");
    records.truncate(HEADER_BYTES);
    let ranges = size.div_ceil(8 * MIB);
    (0..u32::try_from(ranges).expect("few"))
        .for_each(|index| records.extend(record(&header, index, WHOLE)));
    fs::write(&journal, records).expect("written");
    scene
}

#[test]
fn what_was_killed_before_its_verdict_is_validated_all_the_same() {
    let crc = ChecksumAlgorithm::Crc64Nvme;
    let scene = killed_before_its_verdict(LARGE, crc, false);
    let before = scene.origin.stats().body_bytes;
    let (run, lines) = scene.get(&[], 0);
    scene.assert_whole();
    assert_eq!(verdict(&lines["object"]), "validated (CRC64NVME)", "{run}");
    let fetched = scene.origin.stats().body_bytes - before;
    assert!(fetched <= 9 * MIB as u64, "{fetched} bytes, where a range would do: {run}");

    let scene = killed_before_its_verdict(LARGE, crc, true);
    let (run, lines) = scene.get(&[], 0);
    scene.assert_whole();
    assert_eq!(verdict(&lines["object"]), "validated (CRC64NVME)", "{run}");

    let scene = killed_before_its_verdict(LARGE, crc, false);
    let (run, lines) = scene.get(&["--verify", "off"], 0);
    scene.assert_whole();
    let found = verdict(&lines["object"]);
    assert_eq!(found, "not validated (an earlier run had downloaded all of it)", "{run}");
}

#[test]
fn what_was_killed_in_its_only_range_is_as_if_it_were_new() {
    for mode in ["auto", "strict"] {
        let scene = killed_before_its_verdict(MEDIUM, ChecksumAlgorithm::Sha256, true);
        let (run, lines) = scene.get(&["--verify", mode], 0);
        scene.assert_whole();
        assert_eq!(verdict(&lines["object"]), "validated (SHA256)", "{run}");
    }
}

#[test]
fn without_a_checksum_the_report_says_so_and_strict_takes_the_etag() {
    let objects = || vec![("small".to_owned(), SMALL, None), ("large".to_owned(), LARGE, None)];
    let scene = Scene::new(objects(), FaultPlan::none());
    let (run, lines) = scene.get(&[], 0);
    scene.assert_whole();
    for line in lines.values() {
        let found = verdict(line);
        assert!(
            found.starts_with("not validated (the ") && found.contains("checksum"),
            "{run}{found}"
        );
    }
    let (_, lines) = scene.get(&["--verify", "strict", "--overwrite", "always"], 0);
    for (key, line) in &lines {
        assert_eq!(verdict(line), "validated (MD5)", "{key}");
    }
    // ETags that only look like MD5s make every such object fail, with both values.
    let scene = Scene::new(objects(), flip("small", None));
    let (_, lines) = scene.get(&["--verify", "strict", "--max-attempts", "2"], 1);
    let error = lines["small"]["error"].as_str().expect("an error");
    let parts =
        ["the MD5 is \"", "\", but the ETag is \"", "ETags may not be MD5s", "--verify auto"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(verdict(&lines["large"]), "validated (MD5)");
}

#[test]
fn what_cannot_be_validated_fails_where_it_must_be() {
    let mut configuration = Config { md5_etags: true, ..served::config(&Objects::new()) };
    for (key, size) in [("small", SMALL), ("medium", MEDIUM), ("large", LARGE)] {
        let mut object = served::object(key, bytes_of(key, size));
        // The ETag of what is encrypted with keys of one's own is no MD5.
        object.headers.push(("x-amz-server-side-encryption".into(), "aws:kms".into()));
        configuration.objects.push(object);
    }
    let origin = served::start(configuration);
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene { objects: Objects::new(), origin, folder };
    let (run, lines) = scene.get(&["--verify", "strict"], 1);
    for (key, line) in &lines {
        let error = line["error"].as_str().expect("an error");
        assert!(error.contains("cannot be verified") && error.contains("--verify auto"), "{run}");
        scene.assert_absent(key);
    }
    let (run, _) = scene.get(&[], 0);
    assert_eq!(run.json()["not_validated_objects"], 3, "{run}");
}

#[test]
fn strict_validates_every_algorithm_and_form() {
    let scene = Scene::new(every_form(), FaultPlan::none());
    let (run, lines) = scene.get(&["--verify", "strict"], 0);
    scene.assert_whole();
    for (key, line) in &lines {
        let algorithm = key.split('-').next().expect("a name").to_uppercase();
        assert_eq!(verdict(line), format!("validated ({algorithm})"), "{key}");
    }
    assert_eq!(run.json()["not_validated_objects"], 0, "{run}");
}

#[test]
fn strict_catches_a_wrong_byte_of_a_hashed_object() {
    let policy = Some(ChecksumPolicy::composite(ChecksumAlgorithm::Sha256, PART));
    let objects = || vec![("large".to_owned(), LARGE, policy)];
    let scene = Scene::new(objects(), flip("large", Some(1..=1)));
    let (run, lines) = scene.get(&["--verify", "strict"], 0);
    scene.assert_whole();
    assert_eq!(verdict(&lines["large"]), "validated (SHA256)", "{run}");
    let scene = Scene::new(objects(), flip("large", None));
    let (_, lines) = scene.get(&["--verify", "strict"], 1);
    assert!(lines["large"]["error"].as_str().is_some_and(|why| why.contains("SHA256")));
    scene.assert_absent("large");
}

/// A server that knows no checksums and says so: objects come without them, after one refusal of
/// each request that was on its way.
#[test]
fn who_refuses_to_be_asked_for_checksums_is_not_asked_again() {
    let sizes = [("small", SMALL), ("medium", MEDIUM), ("large", LARGE)];
    let objects: Objects =
        sizes.iter().map(|(key, size)| ((*key).to_owned(), bytes_of(key, *size))).collect();
    let config = Config { refuses_checksum_mode: true, ..served::config(&objects) };
    let (origin, folder) = (served::start(config), tempfile::tempdir().expect("a folder"));
    let scene = Scene { objects, origin, folder };
    let (run, lines) = scene.get(&["--retry-for", "20s"], 0);
    scene.assert_whole();
    for line in lines.values() {
        let verdict = &line["verified"]["verdict"];
        assert!(verdict == "not validated" || verdict == "validated", "{run}: {line}");
    }
    let asked = scene.origin.stats();
    assert!(asked.requests <= 12, "{} requests", asked.requests);
    fs::remove_dir_all(scene.folder.path().join("data")).expect("it is there");
    let (_, lines) = scene.get(&["--verify", "strict"], 1);
    assert!(lines.values().all(|line| line["status"] == "failed"), "{lines:?}");
}

#[test]
fn off_asks_for_no_checksum() {
    let scene =
        Scene::crc(&[("small", SMALL), ("medium", MEDIUM), ("large", LARGE)], FaultPlan::none());
    // As `response_checksum_validation` of the AWS tools; what is strict needs them.
    for (mode, when, asked) in [
        ("off", "when_supported", false),
        ("auto", "when_supported", true),
        ("auto", "when_required", false),
        ("strict", "When_Required", true),
    ] {
        let recorder = Recorder::before(scene.origin.address());
        let data = scene.folder.path().join(format!("{mode}-{when}"));
        let run = Program::new(["get", "--quiet", "s3://lab/", "--json", "--verify", mode])
            .set("AWS_RESPONSE_CHECKSUM_VALIDATION", when)
            .with([&data])
            .with(["--region", "us-east-1", "--endpoint-url", &recorder.url()])
            .with_keys(served::ACCESS_KEY, served::SECRET)
            .run()
            .expect(0);
        matrix::assert_same(&data, &scene.objects);
        let requests = recorder.requests().to_lowercase();
        assert_eq!(requests.contains("x-amz-checksum-mode"), asked, "{mode} {when}: {requests}");
        let validated = if asked { 3 } else { 0 };
        assert_eq!(run.json()["validated_objects"], validated, "{run}");
    }
}
