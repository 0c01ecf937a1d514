//! `inrush mount --refresh`: what is new, replaced or gone is seen in the running mount, and the
//! rest stays as it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};
use rustix::fs::Dir;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::fuse::{can_mount, in_table};
use crate::matrix::Objects;
use crate::mounted::Mounted;
use crate::program::Running;
use crate::served::{BUCKET, config, object, serve, start};

const SIZE: usize = 20_000_000;
/// So that only signals refresh.
const NEVER: [&str; 4] = ["--refresh", "1000h", "--memory", "8M"];

fn put(origin: &Origin, key: &str, byte: u8, length: usize) {
    let time = format!("Tue, 02 Jan 2024 00:00:{byte:02} GMT");
    let new = object(key, vec![byte; length]).with_header("last-modified", &time);
    origin.put_object(&new).expect("room");
}

fn remove(origin: &Origin, key: &str) {
    assert!(origin.remove_object(BUCKET, key), "{key} was there");
}

/// The names of a folder; none if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[track_caller]
fn expect_errno<T>(result: std::io::Result<T>, errno: Errno) {
    let error = result.err().expect("it fails");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("attributes").ino()
}

#[track_caller]
fn until(running: &mut Running, condition: impl FnMut() -> bool) {
    assert!(running.until(condition), "the mount has ended");
}

#[test]
fn at_a_signal_it_shows_what_is_new_and_not_what_is_gone() {
    if !can_mount() {
        return;
    }
    let few = |byte| vec![byte; 100];
    let keys = ["d/a/goes", "d/a/stays", "d/old/deep/x", "d/old/y"];
    let origin = serve(&keys.map(|key| (key.to_owned(), few(3))).into());
    let mut mounted = Mounted::new(&origin, &NEVER);
    let mut running = mounted.running();
    let [a, goes, stays, old] = ["a", "a/goes", "a/stays", "old"].map(|path| mounted.at(path));
    // The kernel has all of it.
    for _ in 0..2 {
        assert_eq!(names(&mounted.point), ["a", "old"]);
        assert_eq!(names(&a), ["goes", "stays"]);
        assert_eq!(names(&old), ["deep", "y"]);
    }
    let inodes = [&a, &stays, &old].map(|path| inode(path));
    assert_eq!(fs::read(&stays).expect("its bytes"), few(3));
    let gone = File::open(&goes).expect("it is there");
    gone.read_exact_at(&mut [0; 100], 0).expect("its bytes");

    put(&origin, "d/a/new", 7, 70);
    put(&origin, "d/fresh/deep/file", 9, 90);
    for key in ["d/a/goes", "d/old/deep/x", "d/old/y"] {
        remove(&origin, key);
    }
    assert_eq!(names(&a), ["goes", "stays"], "nobody has listed it again");
    expect_errno(fs::metadata(mounted.at("a/new")), Errno::NOENT);
    running.signal(Signal::HUP);
    until(&mut running, || names(&a) == ["new", "stays"]);
    until(&mut running, || names(&mounted.point) == ["a", "fresh"]);
    until(&mut running, || fs::metadata(&goes).is_err() && fs::metadata(&old).is_err());
    expect_errno(fs::metadata(&goes), Errno::NOENT);
    expect_errno(File::open(&goes), Errno::NOENT);
    expect_errno(fs::metadata(&old), Errno::NOENT);
    expect_errno(fs::metadata(old.join("y")), Errno::NOENT);
    assert_eq!(fs::read(mounted.at("a/new")).expect("its bytes"), [7; 70]);
    assert_eq!(fs::read(mounted.at("fresh/deep/file")).expect("its bytes"), [9; 90]);
    assert_eq!(names(&mounted.at("fresh")), ["deep"]);
    let [folder, file] = ["fresh/deep", "fresh/deep/file"]
        .map(|path| fs::metadata(mounted.at(path)).expect("attributes"));
    assert!(folder.is_dir() && folder.mtime() == file.mtime(), "{folder:?}");
    let space = rustix::fs::statvfs(&mounted.point).expect("a file system");
    assert_eq!(space.f_files, 3 + 4);
    gone.read_exact_at(&mut [0; 100], 0).expect("the kernel has it");
    // What has not changed is what it was, and its pages are still there.
    assert_eq!([&a, &stays].map(|path| inode(path)), inodes[..2]);
    let gets = origin.stats().gets;
    assert_eq!(fs::read(&stays).expect("its bytes"), few(3));
    assert_eq!(origin.stats().gets, gets, "nothing was requested again");

    put(&origin, "d/old/y", 3, 100);
    running.signal(Signal::HUP);
    until(&mut running, || names(&mounted.point) == ["a", "fresh", "old"]);
    assert_eq!((names(&old), inode(&old)), (vec!["y".to_owned()], inodes[2]));
    assert_eq!(fs::read(old.join("y")).expect("its bytes"), few(3));
}

#[test]
fn a_replaced_object_and_one_that_becomes_a_folder_are_seen() {
    if !can_mount() {
        return;
    }
    let origin = serve(&Objects::from([
        ("d/changes".to_owned(), vec![1; SIZE]),
        ("d/file".to_owned(), vec![2; 20]),
        ("d/folder/deep/x".to_owned(), vec![3; 30]),
    ]));
    let mut mounted = Mounted::new(&origin, &[&NEVER[..], &["--json"]].concat());
    let mut running = mounted.running();
    let [changes, file, folder] = ["changes", "file", "folder"].map(|path| mounted.at(path));
    assert_eq!(names(&mounted.point), ["changes", "file", "folder"]);
    assert_eq!(names(&folder), ["deep"]);
    fs::read(&file).expect("its bytes");
    let earlier = inode(&changes);
    let open = File::open(&changes).expect("it is there");
    open.read_exact_at(&mut [0; 4096], 0).expect("its bytes");

    put(&origin, "d/changes", 8, SIZE - 5_000);
    remove(&origin, "d/file");
    put(&origin, "d/file/below", 10, 10);
    remove(&origin, "d/folder/deep/x");
    put(&origin, "d/folder", 11, 11);
    running.signal(Signal::HUP);
    until(&mut running, || inode(&changes) != earlier);
    until(&mut running, || fs::read(&folder).is_ok_and(|read| read == [11; 11]));
    until(&mut running, || names(&file) == ["below"]);
    assert_eq!(fs::read(file.join("below")).expect("its bytes"), [10; 10]);
    assert_eq!(names(&mounted.point), ["changes", "file", "folder"]);
    // Who has the old version open reads what the kernel has of it, or nothing.
    let mut first = [0; 4096];
    open.read_exact_at(&mut first, 0).expect("the kernel has it");
    assert!(first == [1; 4096], "{:?}", &first[..4]);
    expect_errno(open.read_exact_at(&mut first, SIZE as u64 - 10_000), Errno::STALE);
    assert_eq!(open.metadata().expect("attributes").len(), SIZE as u64);
    let new = fs::read(&changes).expect("the new version");
    assert!(new.len() == SIZE - 5_000 && new.iter().all(|byte| *byte == 8), "{}", new.len());

    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    let summary = run.json();
    run.check(summary["files"] == 3, "those of the last listing");
    let refresh = &summary["refresh"];
    for (name, expected) in [
        ("refreshes", 1),
        ("failed_refreshes", 0),
        ("new_files", 2),
        ("replaced_files", 1),
        ("gone_files", 2),
    ] {
        run.check(refresh[name] == expected, &format!("{name} of {expected}: {refresh}"));
    }
}

#[test]
fn it_refreshes_by_itself_and_survives_a_listing_that_fails() {
    if !can_mount() {
        return;
    }
    // The first is the one before it is mounted.
    let when = Match {
        operation: Some(Operation::ListObjects),
        requests: Some(2..=2),
        ..Match::default()
    };
    let faults = FaultPlan::none().with_rule(when, Fault::HtmlError { status: 403 });
    let objects = Objects::from([("d/a".to_owned(), vec![1; 10]), ("d/b".to_owned(), vec![2; 10])]);
    let origin = start(Config { faults, ..config(&objects) });
    let mut mounted = Mounted::new(&origin, &["--refresh", "1s", "--json"]);
    let mut running = mounted.running();
    remove(&origin, "d/b");
    put(&origin, "d/c", 3, 30);
    let mut seen = Vec::new();
    until(&mut running, || {
        let now = names(&mounted.point);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        seen.last().is_some_and(|last| last == &["a", "c"])
    });
    for names in &seen {
        // Never without what is in the bucket, and `b` goes with or after the coming of `c`.
        let is_shown = [vec!["a", "b"], vec!["a", "b", "c"], vec!["a", "c"]]
            .contains(&names.iter().map(String::as_str).collect());
        assert!(is_shown, "{seen:?}");
    }
    // An empty folder is no error.
    for key in ["d/a", "d/c"] {
        remove(&origin, key);
    }
    until(&mut running, || names(&mounted.point).is_empty());
    assert!(in_table(&mounted.point).is_some(), "it is still mounted");
    put(&origin, "d/a", 1, 10);
    until(&mut running, || names(&mounted.point) == ["a"]);
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    run.check(run.json()["refresh"]["failed_refreshes"] == 1, "one of them failed");
    run.expect_words(&["error: refresh: list s3://lab/d/: the server answered 403"]);
}

#[test]
fn a_program_that_lists_a_folder_meanwhile_sees_every_name_that_stays_once() {
    if !can_mount() {
        return;
    }
    const STAY: usize = 2_500;
    let keys =
        (0..STAY).flat_map(|number| [format!("d/{number:05}"), format!("d/{number:05} goes")]);
    let origin = serve(&keys.map(|key| (key, vec![1; 10])).collect());
    let mut mounted = Mounted::new(&origin, &NEVER);
    let mut running = mounted.running();
    let folder = File::open(&mounted.point).expect("a folder");
    let mut listing = Dir::read_from(&folder).expect("its names");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut see = |listing: &mut Dir, most: usize| {
        for entry in listing.by_ref().take(most) {
            let name = entry.expect("an entry").file_name().to_str().expect("UTF-8").to_owned();
            *seen.entry(name).or_default() += 1;
        }
    };
    see(&mut listing, 1_000);
    for number in 0..STAY {
        remove(&origin, &format!("d/{number:05} goes"));
        if number % 5 == 0 {
            put(&origin, &format!("d/{number:05} new"), 2, 10);
        }
    }
    running.signal(Signal::HUP);
    until(&mut running, || fs::metadata(mounted.at("00005 new")).is_ok());
    until(&mut running, || fs::metadata(mounted.at("02499 goes")).is_err());
    see(&mut listing, usize::MAX);
    for number in 0..STAY {
        assert_eq!(seen.get(&format!("{number:05}")), Some(&1), "{number}");
    }
    assert!(seen.values().all(|count| *count == 1), "none twice");
    let now = names(&mounted.point);
    let new = |name: &&String| name.ends_with("new");
    assert_eq!((now.len(), now.iter().filter(new).count()), (STAY + STAY / 5, STAY / 5));
}
