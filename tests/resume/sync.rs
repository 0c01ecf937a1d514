//! `inrush sync`: what is new comes, what is gone goes when that is asked for, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use inrush::control::limits::TRIES_MAX;
use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};

use crate::matrix::{Objects, assert_same};
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, start};
use crate::{computed, objects};

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
    let told: BTreeSet<&str> =
        run.stdout.lines().filter(|line| line.contains("would_be_deleted")).collect();
    assert_eq!(told.len(), 4, "{run}");
    assert!(folder.path().join("stale").exists(), "nothing happened");
    let report = outside.path().join("report");
    let run = sync(&origin, folder.path()).with(["--delete", "--report"]).with([&report]);
    let run = run.run().expect(0);
    assert_eq!(removed(&run), 4, "{run}");
    assert_same(folder.path(), &expected());
    assert!(!folder.path().join("b/old").exists(), "what was emptied goes");
    assert_eq!(fs::read_to_string(outside.path().join("victim")).expect("there"), "as it was");
    let lines = fs::read_to_string(&report).expect("a report");
    let told = lines.lines().filter(|line| line.contains(r#""status":"deleted""#)).count();
    assert_eq!(told, 4, "{lines}");
    let told = |run: &Run| -> BTreeSet<String> {
        let lines = run.stderr.lines().filter_map(|line| line.strip_prefix("delete: "));
        lines.map(str::to_owned).collect()
    };
    let at = |path: &str| folder.path().join(path).display().to_string();
    let expected_paths = ["b/note.txt", "b/old/deep/stale", "link", "stale"].map(at);
    assert_eq!(told(&run), expected_paths.into(), "{run}");
    fs::write(folder.path().join("a\u{1b}b"), "stale").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete", "--dry-run"]).run().expect(0);
    assert_eq!((told(&run).len(), run.stdout.contains("would_be_deleted")), (0, true), "{run}");
    let run = sync(&origin, folder.path()).with(["--delete"]).run().expect(0);
    assert_eq!(told(&run), [at("a\\u{1b}b")].into(), "control characters are shown\n{run}");
    fs::write(folder.path().join("quiet"), "stale").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete", "--quiet"]).run().expect(0);
    assert_eq!((removed(&run), run.stderr.as_str()), (1, ""), "{run}");
    let part = folder.path().join(".inrush-0123456789abcdef.part");
    fs::write(&part, "of an object that is gone").expect("written");
    let run = sync(&origin, folder.path()).with(["--delete"]).run().expect(0);
    assert_eq!((removed(&run), &run.json()["kept_objects"]), (0, &3.into()), "{run}");
    run.check(run.stderr.contains("deleted 1 unfinished file of earlier runs"), "it is told");
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
fn sources_that_cannot_tell_what_is_gone_are_refused() {
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
