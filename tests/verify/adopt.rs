//! `inrush verify --adopt`: files that are right get the mark of a download, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use inrush_origin::FaultPlan;
use serde_json::Value;

use super::check::{CRC, Filled};
use super::mount::Mount;
use super::program::{Program, Run};
use super::{LARGE, MEDIUM, SMALL, bytes_of, served, verdict};

/// Gets all into this folder, where only a mark counts.
fn get(filled: &Filled, folder: &Path) -> Run {
    let words = ["s3://lab/", "--ignore-times", "--json"];
    served::get(&filled.origin, words).with([folder]).run().expect(0)
}

fn number(run: &Run, name: &str) -> u64 {
    run.json()[name].as_u64().unwrap_or_else(|| panic!("{name} is no number\n{run}"))
}

/// Files of every kind that is right, and of every kind that is not or not surely.
fn mixed() -> Filled {
    let mut objects = Vec::new();
    for (key, size) in [("crc", SMALL), ("d/large", LARGE), ("empty", 0), ("folder/", 0)] {
        objects.push((key.to_owned(), size, CRC));
    }
    for key in ["etag", "kms", "missing", "short"] {
        objects.push((key.to_owned(), SMALL, None));
    }
    objects.push(("wrong".to_owned(), MEDIUM, CRC));
    let filled = Filled::with(objects, FaultPlan::none(), |mut object| {
        if object.key == "kms" {
            // The ETag of what is encrypted with keys of one's own is no MD5.
            let name = "x-amz-server-side-encryption".into();
            object.headers.push((name, "aws:kms".into()));
        }
        object
    });
    filled.edit("wrong", |bytes| bytes[5] ^= 1);
    filled.edit("short", |bytes| bytes.truncate(9));
    fs::remove_file(filled.data().join("missing")).expect("removed");
    filled
}

#[test]
fn what_is_validated_is_not_downloaded_again() {
    let filled = mixed();
    let (run, lines) = filled.verify(&["--adopt"], 1);
    assert_eq!(number(&run, "adopted_objects"), 4, "{run}");
    let adopted = lines.iter().filter(|(_, line)| line["adopted"] == true);
    let adopted: BTreeSet<&str> = adopted.map(|(key, _)| key.as_str()).collect();
    let right: BTreeSet<&str> = ["crc", "d/large", "empty", "etag"].into();
    assert_eq!(adopted, right, "{run}");
    for (key, expected) in [("crc", "validated (CRC64NVME)"), ("etag", "validated (MD5)")] {
        assert_eq!((verdict(&lines[key]), &lines[key]["status"]), (expected.into(), &"ok".into()));
    }
    let (again, _) = filled.verify(&["--adopt"], 1);
    assert_eq!(number(&again, "adopted_objects"), 0, "they have their marks\n{again}");
    let run = get(&filled, &filled.data());
    assert_eq!(number(&run, "kept_objects"), 5, "with the folder\n{run}");
    assert_eq!(number(&run, "kept_unmarked_objects"), 0, "{run}");
    for key in lines.keys().filter(|key| !key.ends_with('/')) {
        let bytes = fs::read(filled.data().join(key)).expect("a file");
        let size = lines[key]["bytes"].as_u64().expect("a number");
        assert!(bytes == bytes_of(key, usize::try_from(size).expect("small")), "{key}");
    }
}

#[test]
fn what_changes_after_it_was_adopted_is_downloaded_again() {
    let filled = Filled::crc(&[("a", SMALL), ("b", SMALL), ("c", SMALL)]);
    let (run, _) = filled.verify(&["--adopt"], 0);
    assert_eq!(number(&run, "adopted_objects"), 3, "{run}");
    filled.edit("a", |bytes| bytes[5] ^= 1);
    let file = fs::OpenOptions::new().write(true).open(filled.data().join("b")).expect("there");
    file.set_modified(std::time::UNIX_EPOCH).expect("set");
    let run = get(&filled, &filled.data());
    assert_eq!((number(&run, "objects"), number(&run, "kept_objects")), (2, 1), "{run}");
    assert!(fs::read(filled.data().join("a")).expect("there") == bytes_of("a", SMALL));
    // Other objects of the same keys and sizes.
    let other = Filled::with(
        ["a", "b", "c"].map(|key| (key.to_owned(), SMALL, CRC)).to_vec(),
        FaultPlan::none(),
        |object| {
            let bytes = bytes_of("another", SMALL).into();
            inrush_origin::ObjectSpec {
                content: inrush_origin::ObjectContent::Bytes(bytes),
                ..object
            }
        },
    );
    let run = get(&other, &filled.data());
    assert_eq!((number(&run, "objects"), number(&run, "kept_objects")), (3, 0), "{run}");
}

#[test]
fn without_adopt_nothing_is_marked() {
    let filled = Filled::crc(&[("a", SMALL), ("b", 0)]);
    let (run, lines) = filled.verify(&[], 0);
    assert_eq!(run.json()["adopted_objects"], Value::Null, "{run}");
    assert!(lines.values().all(|line| line["adopted"] == false), "{run}");
    assert_eq!(number(&get(&filled, &filled.data()), "kept_objects"), 0);
}

#[test]
fn the_summary_says_how_many_were_adopted() {
    let filled = Filled::crc(&[("a", SMALL), ("b", SMALL)]);
    let words = ["verify", "s3://lab/", "--adopt"];
    let program = Program::new(words).with([filled.data()]).asking(&filled.origin);
    let run = program.with_keys(served::ACCESS_KEY, served::SECRET).run().expect(0);
    run.expect_words(&["2 files newly adopted"]);
}

#[test]
fn where_nothing_can_be_marked_it_fails() {
    let Some(mount) = Mount::tmpfs("size=16m") else { return };
    let filled = Filled::crc(&[("a", SMALL), ("b", 0)]);
    let data = mount.path().join("data");
    fs::create_dir(&data).expect("made");
    for key in ["a", "b"] {
        fs::copy(filled.data().join(key), data.join(key)).expect("copied");
    }
    mount.make_read_only();
    let words = ["verify", "s3://lab/", "--adopt", "--json"];
    let program = Program::new(words).with([&data]).asking(&filled.origin);
    let run = program.with_keys(served::ACCESS_KEY, served::SECRET).run().expect(1);
    let counts = ["adopted_objects", "validated_objects", "empty_objects", "failed_objects"];
    assert_eq!(counts.map(|name| number(&run, name)), [0, 1, 1, 2], "{run}");
    run.expect_words(&["s3://lab/a: not adopted: its file cannot be marked: Read-only"]);
}

#[test]
fn without_attributes_the_index_has_the_marks() {
    let Some(mount) = Mount::of("ramfs", "mode=777") else { return };
    let filled = Filled::crc(&[("a", SMALL), ("d/b", MEDIUM)]);
    let data = mount.path().join("data");
    fs::create_dir_all(data.join("d")).expect("made");
    for key in ["a", "d/b"] {
        fs::copy(filled.data().join(key), data.join(key)).expect("copied");
    }
    let words = ["verify", "s3://lab/", "--adopt", "--json"];
    let program = Program::new(words).with([&data]).asking(&filled.origin);
    let run = program.with_keys(served::ACCESS_KEY, served::SECRET).run().expect(0);
    assert_eq!(number(&run, "adopted_objects"), 2, "{run}");
    assert_eq!(number(&get(&filled, &data), "kept_objects"), 2);
    fs::write(data.join("a"), vec![0; SMALL]).expect("written");
    assert_eq!(number(&get(&filled, &data), "kept_objects"), 1);
}

#[test]
fn files_that_others_may_have_written_get_no_mark() {
    let filled = Filled::crc(&[("a", SMALL), ("b", SMALL), ("c", SMALL)]);
    fs::hard_link(filled.data().join("b"), filled.folder.path().join("other")).expect("linked");
    if std::os::unix::fs::chown(filled.data().join("a"), Some(12_345), None).is_err() {
        super::skip::skip("only root may give files away");
        return;
    }
    let (run, lines) = filled.verify(&["--adopt"], 1);
    assert_eq!(number(&run, "adopted_objects"), 1, "{run}");
    for key in ["a", "b"] {
        assert_eq!(lines[key]["adopted"], false, "{key}: {run}");
    }
    run.expect_words(&["s3://lab/a: not adopted: its file belongs to another user or has several"]);
}
