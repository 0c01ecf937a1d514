//! `inrush sync`: what is new comes, what is gone goes when that is asked for, and nothing else.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use inrush::control::limits::TRIES_MAX;
use inrush_origin::{
    Config, Fault, FaultPlan, Match, ObjectContent, ObjectSpec, Operation, Origin,
};

use crate::folded::{FREE_BYTES, Folded};
use crate::matrix::{Objects, assert_same};
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, start};
use crate::{BUCKET, computed, objects};

fn some() -> Objects {
    objects(&[("d/a", 10), ("d/b/c", 3 << 20), ("d/e", 0), ("other/x", 7)])
}

fn sync(origin: &Origin, folder: &Path) -> Program {
    let program = Program::new(["sync", "s3://lab/d/", "--json"]).with([folder]).asking(origin);
    program.with_keys(ACCESS_KEY, SECRET)
}

/// The objects below `d/` as files.
fn expected() -> Objects {
    let all = some();
    let below = |(key, bytes): (&String, &Vec<u8>)| {
        Some((key.strip_prefix("d/")?.to_owned(), bytes.clone()))
    };
    all.iter().filter_map(below).collect()
}

/// Files that the source does not have, and a link out of the destination.
fn plant(folder: &Path, outside: &Path) {
    fs::create_dir_all(folder.join("b/old/deep")).expect("made");
    for path in ["stale", "b/old/deep/stale", "b/note.txt"] {
        fs::write(folder.join(path), "stale").expect("written");
    }
    fs::write(outside.join("victim"), "as it was").expect("written");
    symlink(outside, folder.join("link")).expect("a link");
}

fn removed(run: &Run) -> u64 {
    run.json()["deleted_files"].as_u64().expect("a number")
}

#[test]
fn without_delete_nothing_goes() {
    let origin = start(computed(&some()));
    let (folder, outside) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    plant(folder.path(), outside.path());
    let run = sync(&origin, folder.path()).run().expect(0);
    assert_eq!(removed(&run), 0);
    assert!(folder.path().join("b/old/deep/stale").exists() && folder.path().join("a").exists());
    let run = sync(&origin, folder.path()).run().expect(0);
    assert_eq!(run.json()["kept_objects"], 3, "{run}");
}

#[test]
fn with_delete_the_folder_is_as_the_source() {
    let origin = start(computed(&some()));
    let (folder, outside) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    plant(folder.path(), outside.path());
    let run = sync(&origin, folder.path()).with(["--delete", "--dry-run"]).run().expect(0);
    let announced: BTreeSet<&str> =
        run.stdout.lines().filter(|line| line.contains("would_be_deleted")).collect();
    assert_eq!(announced.len(), 4, "{run}");
    assert!(folder.path().join("stale").exists(), "nothing happened");
    let report = outside.path().join("report");
    let run = sync(&origin, folder.path()).with(["--delete", "--report"]).with([&report]);
    let run = run.run().expect(0);
    assert_eq!(removed(&run), 4, "{run}");
    assert_same(folder.path(), &expected());
    assert!(!folder.path().join("b/old").exists(), "what was emptied goes");
    assert_eq!(fs::read_to_string(outside.path().join("victim")).expect("there"), "as it was");
    let lines = fs::read_to_string(&report).expect("a report");
    let reported = lines.lines().filter(|line| line.contains(r#""status":"deleted""#)).count();
    assert_eq!(reported, 4, "{lines}");
    let deleted = |run: &Run| -> BTreeSet<String> {
        let lines = run.stderr.lines().filter_map(|line| Some(line.split_once("delete: ")?.1));
        let all: Vec<_> = lines.map(str::to_owned).collect();
        let paths: BTreeSet<_> = all.iter().cloned().collect();
        run.check(all.len() == paths.len(), "each once");
        paths
    };
    let at = |path: &str| folder.path().join(path).display().to_string();
    let expected_paths = ["b/note.txt", "b/old/deep/stale", "link", "stale"].map(at);
    assert_eq!(deleted(&run), expected_paths.into(), "{run}");
    fs::write(folder.path().join("a\u{1b}b"), "stale").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete", "--dry-run"]).run().expect(0);
    assert_eq!((deleted(&run).len(), run.stdout.contains("would_be_deleted")), (0, true), "{run}");
    let run = sync(&origin, folder.path()).with(["--delete"]).run().expect(0);
    assert_eq!(deleted(&run), [at("a\\u{1b}b")].into(), "control characters are shown\n{run}");
    fs::write(folder.path().join("quiet"), "stale").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete", "--quiet"]).run().expect(0);
    assert_eq!((removed(&run), run.stderr.as_str()), (1, ""), "{run}");
    let part = folder.path().join(".inrush-0123456789abcdef.part");
    fs::write(&part, "of an object that is gone").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete"]).run().expect(0);
    assert_eq!((removed(&run), &run.json()["kept_objects"]), (0, &3.into()), "{run}");
    run.check(run.stderr.contains("deleted 1 unfinished file of earlier runs"), "it is reported");
    assert!(!part.exists());
    let run = sync(&origin, folder.path()).with(["--delete"]).run().expect(0);
    run.check(!run.stderr.contains("unfinished"), "there is none any more");
}

#[test]
fn what_a_filter_leaves_out_stays() {
    let origin = start(computed(&some()));
    let (folder, outside) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    plant(folder.path(), outside.path());
    let options = ["--delete", "--exclude", "*.txt", "--exclude", "link"];
    let run = sync(&origin, folder.path()).with(options).run().expect(0);
    assert_eq!(removed(&run), 2, "{run}");
    assert!(folder.path().join("b/note.txt").exists() && folder.path().join("link").is_symlink());
    assert!(!folder.path().join("stale").exists());
}

#[test]
fn files_of_the_run_itself_stay() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("lists")).expect("made");
    fs::write(at("lists/sources"), "s3://lab/d/\n").expect("written");
    fs::write(at("aws"), "[default]\n").expect("written");
    symlink("aws", at("config")).expect("a link");
    fs::write(at("stale"), "stale").expect("written");
    for dry in [true, false] {
        let program = Program::new(["sync", "--delete", "--json"]).asking(&origin);
        let program = program.with_keys(ACCESS_KEY, SECRET).set("AWS_CONFIG_FILE", at("config"));
        // By another name of the same folder.
        let list = at("lists/../lists/sources");
        let program = program.with(["--files-from".as_ref(), list.as_os_str()]);
        let report = at("report").display().to_string();
        let metrics = at("metrics.prom").display().to_string();
        let more = if dry { vec!["--dry-run"] } else { vec!["--report", &report] };
        let program = program.with(["--metrics-file", &metrics]);
        let program = program.with(more);
        let run = program.with([folder.path()]).run().expect(0);
        if !dry {
            assert_eq!(removed(&run), 1, "{run}");
        }
        run.check(!dry || run.stdout.matches("would_be_deleted").count() == 1, "one file");
    }
    assert!(!at("stale").exists());
    for name in ["report", "metrics.prom", "lists/sources", "aws", "config", "a"] {
        assert!(at(name).exists(), "{name}");
    }
}

#[test]
fn only_a_run_that_succeeds_removes() {
    let many: Vec<(String, usize)> = (0..1500).map(|index| (format!("d/{index:04}"), 3)).collect();
    let many: Vec<(&str, usize)> = many.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let many = objects(&many);
    let rule =
        |operation, attempts| Match { operation: Some(operation), attempts, ..Match::default() };
    let one = Match { key: Some("d/0700".to_owned()), ..rule(Operation::GetObject, None) };
    // Each page fails so often: the first one does for who listed before. A connection that waited
    // costs no try when it is reset.
    let times = |more| Some(1..=TRIES_MAX + more);
    for (when, fault, failures) in [
        // The second page never comes.
        (rule(Operation::ListObjects, times(0)), Fault::InternalError, 1),
        (rule(Operation::ListObjects, times(1)), Fault::ResetAfter { bytes: 5000 }, 1),
        // An object does not.
        (one, Fault::InternalError, 0),
    ] {
        let faults = FaultPlan::none().with_rule(when, fault);
        let origin = start(Config { faults, ..computed(&many) });
        for _ in 0..failures {
            let list = Program::new(["ls", "--recursive", "s3://lab/d/"]).asking(&origin);
            let run = list.with_keys(ACCESS_KEY, SECRET).run();
            run.check(!run.status.success(), "the first page fails");
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("stale"), "stale").expect("written");
        fs::write(folder.path().join("1400"), "not listed").expect("written");
        let options = ["--delete", "--max-attempts", "2"];
        let run = sync(&origin, folder.path()).with(options).run();
        run.check(!run.status.success(), "it failed");
        run.check(run.stderr.contains("no file was deleted"), "it says so");
        assert_eq!(removed(&run), 0, "{run}");
        assert!(folder.path().join("stale").exists() && folder.path().join("1400").exists());
    }
}

#[test]
fn sources_that_cannot_show_what_is_gone_are_refused() {
    let mut all = some();
    all.extend([("run*/x".to_owned(), vec![1]), ("run1/y".to_owned(), vec![1])]);
    let origin = start(computed(&all));
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("stale"), "stale").expect("written");
    for (source, words) in [
        ("s3://lab/d/a", "is not a folder"),
        ("s3://lab/d/*", "is not a folder"),
        ("s3://lab/nothing/", "nothing"),
        // There is a folder of just this name; as a glob it is more.
        ("s3://lab/run*/", "reads as a glob"),
        ("s3://lab/run*/x", "is not a folder"),
    ] {
        let program = Program::new(["sync", source, "--delete"]).with([folder.path()]);
        let run = program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run();
        run.check(!run.status.success() && run.stderr.contains(words), "it is refused");
        assert!(folder.path().join("stale").exists(), "{run}");
    }
    for words in [&[r"s3://lab/run\*/"][..], &["--raw", "s3://lab/run*/"]] {
        let program = Program::new(["sync", "--delete", "--dry-run"]).with(words);
        let run = program.with([folder.path()]).asking(&origin).with_keys(ACCESS_KEY, SECRET).run();
        let run = run.expect(0);
        run.check(run.stdout.contains("/stale\n"), "it would be deleted");
    }
    // A key that has no path: the listing is whole, the run is not.
    let mut odd = some();
    odd.insert("d/../up".to_owned(), vec![1]);
    let run = sync(&start(computed(&odd)), folder.path()).with(["--delete"]).run().expect(1);
    assert!(folder.path().join("stale").exists(), "{run}");
}

/// `sync --delete` from an origin of these keys, whose objects have 5 bytes, or none where they are
/// folders.
fn delete(folder: &Path, keys: &[&str], options: &[&str]) -> Run {
    let keys: Vec<_> =
        keys.iter().map(|key| (*key, if key.ends_with('/') { 0 } else { 5 })).collect();
    let origin = start(computed(&objects(&keys)));
    sync(&origin, folder).with(["--delete"]).with(options).run()
}

/// The paths of all files below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match path.is_dir() {
            true => found.extend(files(&path).iter().map(|below| format!("{name}/{below}"))),
            false => drop(found.insert(name)),
        }
    }
    found
}

#[test]
fn a_folder_becomes_an_object_and_an_object_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    delete(folder.path(), &["d/item", "d/dir/x", "d/dir/y/z", "d/same", "d/mark"], &[]).expect(0);
    let after = ["d/dir", "d/item/x", "d/item/y", "d/mark/", "d/same"];
    let run = delete(folder.path(), &after, &["--dry-run"]).expect(0);
    assert_eq!(run.stdout.matches("would_be_deleted").count(), 4, "{run}");
    let run = delete(folder.path(), &after, &[]).expect(0);
    assert_eq!(removed(&run), 4, "{run}");
    run.expect_words(&["delete: ", "/dir/y/z\n", "/item\n"]);
    let expected = ["dir", "item/x", "item/y", "same"];
    assert_eq!(files(folder.path()), expected.map(String::from).into());
    assert!(folder.path().join("mark").is_dir());
    let run = delete(folder.path(), &after, &[]).expect(0);
    assert_eq!(removed(&run), 0, "{run}");
}

#[test]
fn what_must_stay_is_not_removed_to_make_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = ["d/item", "d/dir/x", "d/dir/note.txt", "d/same"];
    delete(folder.path(), &before, &[]).expect(0);
    let left: BTreeSet<_> = ["dir/note.txt", "dir/x", "item", "same"].map(String::from).into();
    // A filter leaves some of it out: nothing is known of that.
    let after = ["d/dir", "d/item/x", "d/same"];
    let run = delete(folder.path(), &after, &["--exclude", "*.txt", "--exclude", "item"]);
    run.check(!run.status.success(), "it cannot be as the source");
    run.expect_words(&["need the same name"]);
    assert_eq!(files(folder.path()), left);
    // Nor for another object while one cannot have its way, and a dry run says so.
    for options in [&["--exclude", "*.txt", "--dry-run"][..], &["--exclude", "*.txt"]] {
        let run = delete(folder.path(), &after, options);
        run.check(!run.status.success(), "one cannot");
        run.check(!run.stdout.contains("would_be_deleted"), "nothing would go");
        run.expect_words(&["need the same name"]);
        assert_eq!(files(folder.path()), left);
    }
    // Nor where the source itself has a file and a folder of one name.
    let run = delete(folder.path(), &["d/dir", "d/dir/y", "d/same"], &[]);
    run.check(!run.status.success(), "both cannot be");
    let others = files(folder.path()).into_iter().filter(|path| path != "dir/y");
    assert_eq!(others.collect::<BTreeSet<_>>(), left);
    // Nor when something else has failed.
    let run = delete(folder.path(), &["d/dir", "d/a/../up", "d/same"], &[]);
    run.check(!run.status.success(), "a key has no path");
    run.expect_words(&["need the same name"]);
    assert_eq!(files(folder.path()), left);
    // Without --delete both stay.
    let origin = start(computed(&objects(&[("d/item/x", 5), ("d/same", 5)])));
    let run = sync(&origin, folder.path()).run();
    run.check(!run.status.success(), "nothing makes way");
    run.expect_words(&["need the same name"]);
    assert_eq!(files(folder.path()), left);
}

#[test]
fn nothing_makes_way_without_room_beside_it() {
    let Some(folded) = Folded::mount() else { return };
    let data = folded.path().join("data");
    fs::create_dir_all(data.join("large")).expect("made");
    fs::write(data.join("large/x"), "of before").expect("written");
    let spec = |(key, length_bytes)| {
        ObjectSpec::new(BUCKET, key, ObjectContent::Synthetic { length_bytes })
    };
    let specs = [("d/large", FREE_BYTES + 1), ("d/same", 5)].map(spec);
    let origin = start(Config { objects: specs.into(), ..computed(&Objects::new()) });
    for options in [&["--delete", "--dry-run"][..], &["--delete"]] {
        let run = sync(&origin, &data).with(options).run();
        run.check(!run.status.success(), "there is no room");
        let expected = "s3://lab/d/large: what is in its way was not deleted";
        run.expect_words(&[expected, "--no-space-check"]);
        assert_eq!(fs::read(data.join("large/x")).expect("it is there"), b"of before");
    }
}

#[test]
fn where_names_are_one_no_file_of_the_source_is_deleted() {
    let Some(folded) = Folded::mount() else { return };
    let all = objects(&[("d/Readme", 5), ("d/Dir/a", 5), ("d/caf\u{e9}", 5), ("d/new", 5)]);
    let origin = start(computed(&all));
    let data = folded.path().join("data");
    fs::create_dir_all(data.join("dir")).expect("made");
    for name in ["readme", "dir/A", "cafe\u{301}", "Stale", "dir/stale"] {
        fs::write(data.join(name), "of before").expect("written");
    }
    let run = sync(&origin, &data).with(["--delete", "--dry-run"]).run().expect(0);
    assert_eq!(run.stdout.matches("would_be_deleted").count(), 2, "{run}");
    assert_eq!(files(&data).len(), 5, "nothing is written: {run}");
    for expected in [2, 0] {
        let run = sync(&origin, &data).with(["--delete"]).run().expect(0);
        assert_eq!(removed(&run), expected, "{run}");
        for (key, bytes) in &all {
            let path = data.join(key.strip_prefix("d/").expect("it is below"));
            assert!(fs::read(path).expect("there") == *bytes, "{key}: {run}");
        }
        assert_eq!(files(&data).len(), 5, "with the index: {run}");
    }
}

#[test]
fn two_keys_that_are_one_file_fail_by_name() {
    let Some(folded) = Folded::mount() else { return };
    let keys =
        ["d/Readme", "d/X/a", "d/caf\u{e9}", "d/cafe\u{301}", "d/readme", "d/x/a", "d/y", "d/y."];
    let all = objects(&keys.map(|key| (key, 5)));
    let origin = start(computed(&all));
    let data = folded.path().join("data");
    for is_first in [true, false] {
        let run = sync(&origin, &data).with(["--delete"]).run();
        run.check(!run.status.success(), "not all have a file");
        assert_eq!(run.json()["failed_objects"], 4, "{run}");
        assert_eq!(run.json()["kept_objects"], if is_first { 0 } else { 4 }, "{run}");
        let run = run.expect_words(&["s3://lab/d/readme: another key is the same file"]);
        for key in ["d/Readme", "d/X/a", "d/y"] {
            let path = data.join(key.strip_prefix("d/").expect("it is below"));
            assert!(fs::read(path).expect("there") == all[key], "{key}: {run}");
        }
    }
    // A dry run knows it by the files that are there.
    fs::remove_file(data.join("y")).expect("removed");
    let run = sync(&origin, &data).with(["--delete", "--dry-run"]).run().expect(1);
    let count = run.stderr.matches(": another key is the same file").count();
    run.check(count == 4, "each second one fails");
}

#[test]
fn a_mount_below_the_destination_keeps_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = start(computed(&some()));
    let data = folder.path().join("data");
    for below in ["gone", "other/disk", "b"] {
        fs::create_dir_all(data.join(below)).expect("made");
    }
    let words = ["-t", "tmpfs", "tmpfs"].map(OsStr::new);
    let Some(_disk) = Mount::at(&words, &data.join("other/disk"), None) else { return };
    let Some(_below) = Mount::at(&words, &data.join("b"), None) else { return };
    for path in ["gone/stale", "other/stale", "other/disk/its", "b/its"] {
        fs::write(data.join(path), "as it was").expect("written");
    }
    for (options, expected) in [(&["--dry-run"][..], 2), (&[], 2), (&[], 0)] {
        let run = sync(&origin, &data).with(["--delete"]).with(options).run().expect(0);
        let count = format!("\"deleted_files\":{expected},");
        run.check(run.stdout.contains(&count), "what is on other file systems stays");
        for path in ["other/disk/its", "b/its"] {
            let found = fs::read(data.join(path)).expect("it is there");
            assert_eq!(found, b"as it was", "{path}: {run}");
        }
    }
    assert!(!data.join("gone").exists() && data.join("b/c").exists());
}
