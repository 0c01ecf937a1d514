//! `inrush verify`: files that are there against what the origin stores; nothing is fetched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use inrush::checksum::Algorithm;
use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Config, Fault, FaultPlan, Match};
use inrush_origin::{ObjectSpec, Operation, Origin};
use serde_json::Value;
use tempfile::TempDir;

use super::matrix::{self, Objects, bytes_of};
use super::program::{Program, Run};
use super::{LARGE, MEDIUM, PART, SMALL, every_form, served, verdict};

pub(crate) const CRC: Option<ChecksumPolicy> = Some(ChecksumPolicy {
    algorithm: ChecksumAlgorithm::Crc64Nvme,
    kind: inrush_origin::ChecksumKind::FullObject,
    part_bytes: None,
});

/// An origin, and a folder that has all of its objects.
pub(crate) struct Filled {
    pub(crate) origin: Origin,
    pub(crate) folder: TempDir,
}

impl Filled {
    fn new(objects: Vec<(String, usize, Option<ChecksumPolicy>)>) -> Self {
        Self::with(objects, FaultPlan::none(), |object| object)
    }

    pub(crate) fn with(
        objects: Vec<(String, usize, Option<ChecksumPolicy>)>,
        faults: FaultPlan,
        change: impl Fn(ObjectSpec) -> ObjectSpec,
    ) -> Self {
        let mut configuration =
            Config { faults, md5_etags: true, ..served::config(&Objects::new()) };
        let folder = tempfile::tempdir().expect("a folder");
        for (key, size, policy) in objects {
            let bytes = bytes_of(&key, size);
            let path = folder.path().join("data").join(&key);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            match key.ends_with('/') {
                true => fs::create_dir_all(&path).expect("made"),
                false => fs::write(&path, &bytes).expect("written"),
            }
            let object = served::object(&key, bytes);
            let object = match policy {
                Some(policy) => object.with_checksum(policy),
                None => object,
            };
            configuration.objects.push(change(object));
        }
        Self { origin: served::start(configuration), folder }
    }

    pub(crate) fn crc(keys: &[(&str, usize)]) -> Self {
        Self::new(keys.iter().map(|(key, size)| ((*key).to_owned(), *size, CRC)).collect())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Changes a file.
    pub(crate) fn edit(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.data().join(key);
        let mut bytes = fs::read(&path).expect("a file");
        change(&mut bytes);
        fs::write(path, bytes).expect("written");
    }

    /// Verifies all with these options; the run, and what is said of each object. Nothing is
    /// fetched and nothing in the folder changes.
    pub(crate) fn verify(&self, options: &[&str], code: i32) -> (Run, BTreeMap<String, Value>) {
        let report = self.folder.path().join("report");
        let (before, gets) = (state(&self.data()), self.origin.stats().gets);
        let run = Program::new(["verify", "--quiet", "s3://lab/", "--json"])
            .with([self.data()])
            .with(["--report".as_ref(), report.as_os_str()])
            .with(options)
            .asking(&self.origin)
            .with_keys(served::ACCESS_KEY, served::SECRET)
            .run()
            .expect(code);
        assert_eq!(self.origin.stats().gets, gets, "{run}");
        assert_eq!(state(&self.data()), before, "{run}");
        let text = fs::read_to_string(report).expect("a report");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let lines = lines.map(|line| (line["key"].as_str().expect("a key").to_owned(), line));
        (run, lines.collect())
    }

    /// Verifies objects of which one is wrong: its verdict, what the error says, and the counts.
    fn expect_wrong(&self, key: &str, word: &str, why: &str) {
        let (run, lines) = self.verify(&[], 1);
        let found = verdict(&lines[key]);
        assert!(found.starts_with(&format!("{word} (")) && found.contains(why), "{found}");
        assert_eq!(lines[key]["status"], "failed");
        let error = lines[key]["error"].as_str().expect("an error");
        assert!(run.stderr.contains(&format!("error: verify s3://lab/{key}: {error}; ")), "{run}");
        for (other, line) in lines.iter().filter(|(other, _)| *other != key) {
            assert_eq!(verdict(line), "validated (CRC64NVME)", "{other}");
            assert!(line["status"] == "ok" && line["error"].is_null(), "{line}");
        }
        let summary = run.json();
        let field = if word == "missing" { "missing_objects" } else { "mismatched_objects" };
        assert_eq!((&summary[field], &summary["failed_objects"]), (&1.into(), &1.into()), "{run}");
        assert_eq!(summary["validated_objects"], lines.len() - 1, "{run}");
    }
}

/// Every name below a folder, with its length and the time of its last change.
fn state(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let about = fs::symlink_metadata(&path).expect("it is there");
        found.push((path.clone(), about.len(), about.modified().expect("a time")));
        if about.is_dir() {
            found.extend(state(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn every_algorithm_and_form_is_validated_without_a_get() {
    let mut objects = every_form();
    objects.extend([("etag".to_owned(), SMALL, None), ("etag-large".to_owned(), LARGE, None)]);
    objects.extend([("empty".to_owned(), 0, CRC), ("folder/".to_owned(), 0, None)]);
    let filled = Filled::new(objects);
    fs::write(filled.data().join("extra"), "of somebody else").expect("written");
    let (run, lines) = filled.verify(&["--strict"], 0);
    assert_eq!(lines.len(), 61);
    for (key, line) in &lines {
        let expected = match key.split(['-', '/']).next().expect("a name") {
            "empty" | "folder" => "empty (it is empty)".to_owned(),
            "etag" => "validated (MD5)".to_owned(),
            algorithm => format!("validated ({})", algorithm.to_uppercase()),
        };
        assert_eq!(verdict(line), expected, "{key}");
        assert_eq!(line["status"], "ok", "{key}");
    }
    let summary = run.json();
    assert_eq!((&summary["objects"], &summary["validated_objects"]), (&61.into(), &59.into()));
    assert_eq!((&summary["empty_objects"], &summary["exit_code"]), (&2.into(), &0.into()));
    assert_eq!(summary["bytes_read"], summary["bytes"], "{run}");
}

#[test]
fn every_algorithm_and_form_notices_a_wrong_byte() {
    let filled = Filled::new(every_form());
    for (key, size, _) in every_form() {
        filled.edit(&key, |bytes| bytes[size - 2] ^= 4);
    }
    let (run, lines) = filled.verify(&[], 1);
    for (key, line) in &lines {
        let algorithm = key.split('-').next().expect("a name").to_uppercase();
        let found = verdict(line);
        assert!(found.starts_with(&format!("mismatch (the {algorithm}")), "{key}: {found}");
        assert!(found.ends_with("is stored)"), "{key}: {found}");
    }
    assert_eq!(run.json()["mismatched_objects"], 57, "{run}");
    let last = run.stderr.lines().last();
    assert_eq!(last, Some("error: 37 more objects failed; use --report FILE to list all"), "{run}");
}

#[test]
fn what_is_wrong_is_reported_with_both_values() {
    let keys = [("a/small", SMALL), ("b/medium", MEDIUM), ("c/large", LARGE)];
    let filled = Filled::crc(&keys);
    for (key, size) in keys {
        filled.edit(key, |bytes| bytes[size / 2] ^= 1);
        filled.expect_wrong(key, "mismatch", "is stored");
        filled.edit(key, |bytes| bytes.truncate(size - 1));
        let why = format!("the file has {} bytes, the object {size}", size - 1);
        filled.expect_wrong(key, "mismatch", &why);
        filled.edit(key, |bytes| bytes.extend([0; 2]));
        filled.expect_wrong(key, "mismatch", &format!("the file has {} bytes", size + 1));
        fs::remove_file(filled.data().join(key)).expect("removed");
        filled.expect_wrong(key, "missing", "it does not exist");
        fs::create_dir(filled.data().join(key)).expect("made");
        filled.expect_wrong(key, "missing", "it is a folder");
        fs::remove_dir(filled.data().join(key)).expect("removed");
        fs::write(filled.data().join(key), bytes_of(key, size)).expect("written");
    }
}

#[test]
fn links_are_not_followed() {
    let filled = Filled::crc(&[("a/x", SMALL), ("b/y", SMALL)]);
    let aside = filled.folder.path().join("aside");
    fs::rename(filled.data().join("a"), &aside).expect("moved");
    symlink(&aside, filled.data().join("a")).expect("a link");
    let place = filled.data().join("a");
    let why = format!("'{}' is not a folder (links are not followed)", place.display());
    filled.expect_wrong("a/x", "missing", &why);
    fs::remove_file(filled.data().join("a")).expect("removed");
    fs::create_dir(filled.data().join("a")).expect("made");
    symlink(aside.join("x"), filled.data().join("a/x")).expect("a link");
    filled.expect_wrong("a/x", "missing", "it is a symbolic link");
}

#[test]
fn what_cannot_be_validated_fails_where_it_must() {
    let objects = || {
        let some = ["kms", "parts", "plain"].map(|key| (key.to_owned(), SMALL, None));
        some.into_iter().chain([("crc".to_owned(), SMALL, CRC)]).collect()
    };
    let filled = Filled::with(objects(), FaultPlan::none(), |mut object| {
        let headers: &[(&str, &str)] = match object.key.as_str() {
            // The ETag of what is encrypted with keys of one's own is no MD5.
            "kms" => &[("x-amz-server-side-encryption", "aws:kms")],
            // Its headers do not list parts, so parts may have any length.
            "parts" => &[("x-amz-checksum-crc32", "y/Q5Jg==-3")],
            _ => &[],
        };
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        object.headers.extend(headers);
        object
    });
    let unproved = [
        ("kms", "not validated (the server stores no checksum for it)"),
        ("parts", "not validated (the parts that its checksum covers differ in size)"),
    ];
    for (strict, code) in [(&[][..], 0), (&["--strict"][..], 1)] {
        let (run, lines) = filled.verify(strict, code);
        assert_eq!(verdict(&lines["plain"]), "validated (MD5)");
        assert_eq!(verdict(&lines["crc"]), "validated (CRC64NVME)");
        for (key, expected) in unproved {
            assert_eq!(verdict(&lines[key]), expected);
            assert_eq!(lines[key]["status"], if code == 0 { "ok" } else { "failed" });
        }
        let summary = run.json();
        assert_eq!(summary["not_validated_objects"], 2, "{run}");
        assert_eq!(summary["failed_objects"], 2 * code, "{run}");
        let count = run.stderr.matches("cannot be verified: ").count();
        assert_eq!(count, if code == 0 { 0 } else { 2 }, "{run}");
    }
    // Its size is wrong, which needs no checksum.
    filled.edit("kms", |bytes| bytes.truncate(7));
    let (_, lines) = filled.verify(&[], 1);
    assert!(verdict(&lines["kms"]).starts_with("mismatch (the file has 7 bytes"));
}

#[test]
fn an_etag_that_is_not_the_md5_is_a_mismatch_only_where_all_must_be_proved() {
    let sizes = [("right", SMALL), ("large", LARGE), ("other", SMALL), ("other-large", LARGE)];
    let objects = sizes.map(|(key, size)| (key.to_owned(), size, None)).to_vec();
    let filled = Filled::new(objects);
    // Nothing shows whether the file or the ETag is another.
    let mut texts = BTreeMap::new();
    for key in ["other", "other-large"] {
        let hex = |filled: &Filled| {
            let bytes = fs::read(filled.data().join(key)).expect("a file");
            hex::encode(Algorithm::Md5.digest(&bytes).bytes())
        };
        let etag = hex(&filled);
        filled.edit(key, |bytes| bytes[5] ^= 1);
        let md5 = hex(&filled);
        texts.insert(key, format!("the MD5 is \"{md5}\", but the ETag is \"{etag}\""));
    }
    let reason = "no checksum is stored, and the ETag is not the MD5 of the file";
    for (strict, code) in [(&[][..], 0), (&["--strict"][..], 1)] {
        let (run, lines) = filled.verify(strict, code);
        for key in ["right", "large"] {
            assert_eq!(verdict(&lines[key]), "validated (MD5)", "{run}");
        }
        for (key, values) in &texts {
            let expected = match code {
                0 => format!("not validated ({reason} ({values}))"),
                _ => format!("mismatch ({values})"),
            };
            assert_eq!(verdict(&lines[*key]), expected, "{run}");
            let expected =
                format!("error: verify s3://lab/{key}: mismatch: {values}; omit --strict");
            assert_eq!(run.stderr.contains(&expected), code == 1, "{run}");
        }
        let summary = run.json();
        let counts = ["not_validated_objects", "mismatched_objects", "failed_objects"];
        let expected = if code == 0 { [2, 0, 0] } else { [0, 2, 2] };
        assert_eq!(counts.map(|name| summary[name].as_u64()), expected.map(Some), "{run}");
        assert_eq!(summary["not_validated"][reason].as_u64(), (code == 0).then_some(2), "{run}");
    }
}

#[test]
fn a_question_that_is_refused_is_a_failure() {
    let refuse = |key: Option<&str>| {
        let when = Match {
            key: key.map(str::to_owned),
            operation: Some(Operation::HeadObject),
            ..Match::default()
        };
        let fault = Fault::HtmlError { status: 403 };
        let objects = ["a", "b"].map(|key| (key.to_owned(), SMALL, CRC)).to_vec();
        Filled::with(objects, FaultPlan::none().with_rule(when, fault), |object| object)
    };
    let (run, lines) = refuse(Some("a")).verify(&[], 1);
    assert_eq!(verdict(&lines["a"]), "not validated (it could not be checked)");
    assert_eq!(verdict(&lines["b"]), "validated (CRC64NVME)");
    assert_eq!(run.json()["unknown_objects"], 1, "{run}");
    refuse(None).verify(&[], 3);
}

#[test]
fn keys_that_need_one_path_are_named_once() {
    let filled = Filled::new(Vec::new());
    let mut configuration = served::config(&Objects::new());
    for key in ["a", "a/b"] {
        configuration.objects.push(served::object(key, bytes_of(key, SMALL)));
    }
    fs::create_dir(filled.data()).expect("made");
    let filled = Filled { origin: served::start(configuration), ..filled };
    fs::write(filled.data().join("a"), bytes_of("a", SMALL)).expect("written");
    let (run, lines) = filled.verify(&[], 1);
    let why = "another key is a file where this key needs a folder";
    let expected = format!("error: verify s3://lab/a/b: {why}");
    assert!(run.stderr.contains(&expected), "{run}");
    let error = lines["a/b"]["error"].as_str().expect("an error");
    assert!(error.starts_with(why), "{error}");
}

#[test]
fn few_descriptors_are_enough() {
    let keys: Vec<String> = (0..240).map(|number| format!("{}/{number}", number % 40)).collect();
    let keys: Vec<(&str, usize)> = keys.iter().map(|key| (key.as_str(), 100)).collect();
    let filled = Filled::crc(&keys);
    let close = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -S -n $0 && exec \"$@\"";
    let hard = close.replace("-S ", "");
    for (limit, how) in [("32", close), ("48", &hard), ("32", &hard)] {
        let program = Program::new(["verify", "--json", "s3://lab/"]).with([filled.data()]);
        let program = program.asking(&filled.origin).with_keys(served::ACCESS_KEY, served::SECRET);
        let run = program.by_way_of(["sh", "-c", how, limit]).run().expect(0);
        assert_eq!(run.json()["objects"], keys.len(), "{run}");
    }
}

#[test]
fn the_selection_counts_and_a_folder_that_is_not_there_is_not_made() {
    let filled = Filled::crc(&[("a/x.tar", SMALL), ("a/y.txt", SMALL)]);
    filled.edit("a/y.txt", Vec::clear);
    let (_, lines) = filled.verify(&["--include", "*.tar"], 0);
    assert_eq!(lines.keys().collect::<Vec<_>>(), ["a/x.tar"]);
    let (_, lines) = filled.verify(&["--exclude", "*.tar"], 1);
    assert_eq!(lines.keys().collect::<Vec<_>>(), ["a/y.txt"]);
    let verify = |source: &str, folder: &Path| {
        let program = Program::new(["verify", "--quiet", source]).with([folder]);
        program.asking(&filled.origin).with_keys(served::ACCESS_KEY, served::SECRET).run()
    };
    let absent = filled.folder.path().join("absent");
    verify("s3://lab/", &absent).expect(5).expect_error(&["cannot open", "absent"]);
    assert!(!absent.exists());
    verify("s3://lab/none/", &filled.data()).expect(4);
    verify("s3://lab/a/x.tar", &filled.data().join("a")).expect(0);
    // One object may have another name, as with get.
    verify("s3://lab/a/x.tar", &filled.data().join("a/x.tar")).expect(0);
    matrix::assert_same(
        &filled.data(),
        &Objects::from([
            ("a/x.tar".to_owned(), bytes_of("a/x.tar", SMALL)),
            ("a/y.txt".to_owned(), Vec::new()),
        ]),
    );
}

#[test]
fn parts_of_another_length_than_the_readers_pieces_are_put_together() {
    let policy = ChecksumPolicy::composite(ChecksumAlgorithm::Sha256, PART);
    let filled = Filled::new(vec![("x".to_owned(), LARGE, Some(policy))]);
    let (run, lines) = filled.verify(&[], 0);
    assert_eq!(verdict(&lines["x"]), "validated (SHA256)", "{run}");
}

#[test]
fn a_mismatch_stays_one_where_its_parts_cannot_be_asked_for() {
    // Three questions come before the file is read: of the object, its first and its last part.
    for number in [4, 5] {
        let when = Match {
            operation: Some(Operation::HeadObject),
            requests: Some(number..=number),
            ..Match::default()
        };
        let faults = FaultPlan::none().with_rule(when, Fault::HtmlError { status: 403 });
        let policy = ChecksumPolicy::composite(ChecksumAlgorithm::Sha256, PART);
        let filled =
            Filled::with(vec![("x".to_owned(), LARGE, Some(policy))], faults, |object| object);
        filled.edit("x", |bytes| bytes[5] ^= 1);
        let (run, lines) = filled.verify(&[], 1);
        let found = verdict(&lines["x"]);
        run.check(found.starts_with("mismatch (the SHA256 "), &found);
        run.check(
            found.contains("the sizes of its parts, which may differ, are not known"),
            &found,
        );
    }
}

#[test]
fn an_interrupt_ends_it_at_once() {
    let when = Match {
        key: Some("b".to_owned()),
        operation: Some(Operation::HeadObject),
        ..Match::default()
    };
    let faults = FaultPlan::none().with_rule(when, Fault::StallBeforeHead { duration: None });
    let objects = ["a", "b"].map(|key| (key.to_owned(), SMALL, CRC)).to_vec();
    let filled = Filled::with(objects, faults, |object| object);
    let report = filled.folder.path().join("report");
    let program = Program::new(["verify", "s3://lab/", "--json"]).with([filled.data()]);
    let program = program.with(["--report".as_ref(), report.as_os_str()]);
    let program = program.asking(&filled.origin).with_keys(served::ACCESS_KEY, served::SECRET);
    let mut running = program.start();
    assert!(running.until(|| filled.origin.stats().faults_total() > 0), "it ended by itself");
    running.signal(rustix::process::Signal::INT);
    let run = running.wait().expect(130).expect_words(&["error: interrupted: "]);
    assert_eq!(run.json()["exit_code"], 130, "{run}");
    let text = fs::read_to_string(report).expect("a report");
    assert!(text.lines().count() < 2, "{text}");
}
