//! Complete objects: kept when nothing has changed, fetched again when anything has.

use std::fs;
use std::os::unix::fs::symlink;

use crate::matrix::Objects;
use crate::program::Run;
use crate::served::{get, serve, start};
use crate::{MIB, assert_complete, computed, fetch, objects, temporaries};

/// Something of each shape.
fn some() -> Objects {
    objects(&[
        ("a/empty", 0),
        ("a/small", 700),
        ("b/large", 3 * MIB + 5),
        ("mark/", 0),
        ("z", 20_000),
    ])
}

/// How many objects were fetched, kept, and how many bytes came.
#[track_caller]
fn counts(run: &Run) -> (u64, u64, u64) {
    let json = run.json();
    let number = |name: &str| json[name].as_u64().expect("a number");
    (number("objects"), number("kept_objects"), number("bytes"))
}

#[test]
fn what_is_complete_is_not_fetched_again() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let run = fetch(&origin, folder.path()).run().expect(0);
    assert_eq!((counts(&run).0, counts(&run).1), (5, 0), "{run}");
    let gets = origin.stats().gets;
    let report = folder.path().with_extension("jsonl");
    let run = fetch(&origin, folder.path()).with(["--report"]).with([&report]).run().expect(0);
    assert_eq!(counts(&run), (0, 5, 0), "a folder is there, too\n{run}");
    assert_eq!(origin.stats().gets, gets, "nothing was asked for");
    assert_complete(folder.path(), &some());
    let lines = fs::read_to_string(&report).expect("a report");
    fs::remove_file(&report).expect("removed");
    let kept = lines.lines().filter(|line| line.contains(r#""status":"kept""#)).count();
    assert_eq!((kept, lines.lines().count()), (5, 5), "{lines}");
}

#[test]
fn what_has_changed_is_fetched_again() {
    let before = some();
    let folder = tempfile::tempdir().expect("a folder");
    fetch(&serve(&before), folder.path()).run().expect(0);
    let mut after = before.clone();
    // The length stays: only the ETag differs.
    after.insert("a/small".to_owned(), vec![7; 700]);
    after.insert("b/large".to_owned(), vec![9; 3 * MIB + 5]);
    let run = fetch(&serve(&after), folder.path()).run().expect(0);
    assert_eq!(counts(&run).1, 3, "{run}");
    assert_complete(folder.path(), &after);
    // Changed here: longer, of another time, and gone.
    fs::write(folder.path().join("a/small"), "short").expect("written");
    fs::write(folder.path().join("z"), vec![1; 20_000]).expect("written");
    fs::remove_file(folder.path().join("b/large")).expect("removed");
    let run = fetch(&serve(&after), folder.path()).run().expect(0);
    assert_eq!(counts(&run).1, 2, "{run}");
    assert_complete(folder.path(), &after);
}

#[test]
fn what_to_replace_is_the_users_choice() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("b")).expect("made");
    fs::write(folder.path().join("b/large"), "mine").expect("written");
    symlink("nowhere", folder.path().join("z")).expect("a link");
    let run = fetch(&origin, folder.path()).with(["--overwrite", "never"]).run().expect(0);
    assert_eq!(counts(&run).1, 2, "{run}");
    assert_eq!(fs::read_to_string(folder.path().join("b/large")).expect("there"), "mine");
    assert!(folder.path().join("z").is_symlink());
    for (options, kept) in [
        (&["--overwrite", "changed"][..], 3),
        (&["--overwrite", "always"], 0),
        (&["--no-resume"], 0),
        // What is complete is marked all the same.
        (&[], 5),
        (&["--no-resume", "--no-times"], 0),
        (&["--overwrite", "changed"], 5),
    ] {
        let run = fetch(&origin, folder.path()).with(options).run().expect(0);
        assert_eq!(counts(&run).1, kept, "{options:?}\n{run}");
        assert_complete(folder.path(), &some());
    }
}

#[test]
fn a_dry_run_lists_what_would_move() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    fetch(&origin, folder.path()).run().expect(0);
    fs::remove_file(folder.path().join("z")).expect("removed");
    let run = get(&origin, ["s3://lab/", "--dry-run"]).with([folder.path()]).run().expect(0);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "{run}");
    assert!(lines[0].starts_with("(dry run) get: s3://lab/z -> "), "{run}");
}

#[test]
fn durable_files_are_whole_and_known_again() {
    let origin = start(computed(&some()));
    for how in ["end", "file"] {
        let folder = tempfile::tempdir().expect("a folder");
        let run = || fetch(&origin, folder.path()).with(["--durability", how]).run().expect(0);
        run();
        assert_complete(folder.path(), &some());
        assert_eq!(counts(&run()).1, 5, "{how}");
        assert!(temporaries(folder.path()).is_empty());
    }
}

#[test]
fn one_object_to_a_file_is_kept_too() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other name");
    for kept in [0, 1] {
        let run = get(&origin, ["s3://lab/b/large", "--json"]).with([&file]).run().expect(0);
        assert_eq!(counts(&run).1, kept, "{run}");
        assert_eq!(fs::read(&file).expect("a file"), some()["b/large"]);
    }
}
