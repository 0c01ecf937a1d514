//! `inrush mount --lazy`: each folder is listed when a program first uses it, once, and no other.

use std::fs::{self, File};
use std::io::Error;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin, Profile};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::awkward::expect_the_same;
use crate::bounded::bounded;
use crate::fuse::{can_mount, in_table};
use crate::matrix::Objects;
use crate::mounted::{Mounted, program};
use crate::served::{config, object, serve, start};

/// Names of a level of three pages.
const MANY: usize = 2_500;
const THREADS: usize = 16;
/// Longest time for what waits for listings, on any machine.
const LIMIT: Duration = Duration::from_secs(120);

fn objects() -> Objects {
    let mut keys: Vec<String> = (0..MANY).map(|number| format!("d/many/{number:05}")).collect();
    let more = [
        "d/a",
        "d/a/hidden",
        "d/a/hidden, too",
        "d/deep/er/file",
        "d/deep//x",
        "d/deep/./x",
        "d/empty/",
        "d/only//hidden",
        "d/other/x",
        "d/top",
    ];
    keys.extend(more.map(str::to_owned));
    let bytes = |key: &String| if key.ends_with('/') { Vec::new() } else { vec![7; 10] };
    keys.into_iter().map(|key| (key.clone(), bytes(&key))).collect()
}

#[track_caller]
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[track_caller]
fn expect_errno<T>(result: Result<T, Error>, errno: Errno) {
    let error = result.err().expect("it fails");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// What goes wrong with these listings, counted from 1.
fn of_listings(requests: RangeInclusive<u64>, fault: Fault) -> FaultPlan {
    let (operation, requests) = (Some(Operation::ListObjects), Some(requests));
    FaultPlan::none().with_rule(Match { operation, requests, ..Match::default() }, fault)
}

/// Counts listings that something took.
struct Lists<'a> {
    origin: &'a Origin,
    seen: u64,
}

impl Lists<'_> {
    #[track_caller]
    fn expect(&mut self, count: u64) {
        let now = self.origin.stats().lists;
        assert_eq!(now - std::mem::replace(&mut self.seen, now), count, "listings");
    }
}

#[test]
fn only_folders_that_are_used_are_listed_and_each_once() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let mut lists = Lists { origin: &origin, seen: 0 };
    let mut mounted = Mounted::new(&origin, &["--lazy", "--json"]);
    // That shows that there is something, and no more of it.
    lists.expect(1);
    assert!(origin.stats().body_bytes < 2_000, "{}", origin.stats().body_bytes);
    let top = fs::metadata(&mounted.point).expect("a folder");
    assert!(top.is_dir() && top.mtime() > 0);
    assert_eq!(in_table(&mounted.point).expect("mounted").0, "s3://lab/d/");
    lists.expect(0);
    assert_eq!(fs::read(mounted.at("top")).expect("its bytes"), [7; 10]);
    lists.expect(1);
    assert_eq!(names(&mounted.point), ["a", "deep", "empty", "many", "only", "other", "top"]);
    for name in ["a", "deep", "top"] {
        fs::metadata(mounted.at(name)).expect("it is there");
    }
    expect_errno(fs::metadata(mounted.at("nothing")), Errno::NOENT);
    lists.expect(0);
    // The folder is listed whole for one name in it.
    expect_errno(fs::metadata(mounted.at("many/nothing")), Errno::NOENT);
    lists.expect(3);
    assert_eq!(names(&mounted.at("many")).len(), MANY);
    assert_eq!(fs::metadata(mounted.at("many/02499")).expect("it is there").len(), 10);
    lists.expect(0);
    assert_eq!(fs::read(mounted.at("deep/er/file")).expect("its bytes"), [7; 10]);
    lists.expect(2);
    assert_eq!(names(&mounted.at("deep")), ["er"]);
    lists.expect(0);
    // The file is shown, not the folder of its name.
    assert_eq!(fs::read(mounted.at("a")).expect("its bytes"), [7; 10]);
    expect_errno(fs::metadata(mounted.at("a/hidden")), Errno::NOTDIR);
    lists.expect(0);
    assert_eq!(names(&mounted.at("empty")), [""; 0]);
    // That all in it is hidden shows when it is listed.
    assert_eq!(names(&mounted.at("only")), [""; 0]);
    lists.expect(2);
    // Times of folders are not those of what is in them.
    let time = |path: &str| fs::metadata(mounted.at(path)).expect("it is there").mtime();
    assert_eq!((time("deep"), time("deep/er")), (top.mtime(), top.mtime()));
    let space = rustix::fs::statvfs(&mounted.point).expect("a file system");
    let files = MANY + 3;
    assert_eq!((space.f_blocks, space.f_files), (files as u64, files as u64 + 7));
    let running = mounted.running();
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    let summary = run.json();
    for (name, expected) in [("files", files), ("bytes", files * 10), ("hidden_keys", 4)] {
        run.check(summary[name] == expected, &format!("{name} of {expected}"));
    }
    run.check(summary["lazy"] == true, "not everything was listed");
}

#[test]
fn what_is_new_is_not_seen_in_a_folder_that_is_listed() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let mounted = Mounted::new(&origin, &["--lazy"]);
    let before = names(&mounted.point);
    for key in ["d/new", "d/other/new"] {
        origin.put_object(&object(key, vec![1; 20])).expect("room");
    }
    assert_eq!(names(&mounted.point), before);
    expect_errno(fs::metadata(mounted.at("new")), Errno::NOENT);
    assert_eq!(names(&mounted.at("other")), ["new", "x"]);
    assert_eq!(fs::read(mounted.at("other/new")).expect("its bytes"), [1; 20]);
}

#[test]
fn many_threads_in_a_folder_that_is_not_listed_cause_one_listing() {
    if !can_mount() {
        return;
    }
    // So they meet, where the machine lets them.
    let first_byte_latency = Duration::from_millis(200);
    let origin = start(Config { first_byte_latency, ..config(&objects()) });
    let mounted = Mounted::new(&origin, &["--lazy"]);
    let mut lists = Lists { origin: &origin, seen: 1 };
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, mounted) = (&barrier, &mounted);
            scope.spawn(move || {
                barrier.wait();
                match thread % 3 {
                    0 => {
                        let name = format!("many/{thread:05}");
                        let found = fs::metadata(mounted.at(&name)).expect("it is there");
                        assert_eq!(found.len(), 10);
                    }
                    1 => {
                        let name = format!("many/no {thread}");
                        expect_errno(fs::metadata(mounted.at(&name)), Errno::NOENT);
                    }
                    _ => assert_eq!(names(&mounted.at("many")).len(), MANY),
                }
            });
        }
    });
    // The top, and three pages.
    lists.expect(4);
}

#[test]
fn a_folder_that_cannot_be_listed_fails_in_time_and_is_listed_later() {
    if !can_mount() {
        return;
    }
    let faults = of_listings(2..=2, Fault::HtmlError { status: 403 });
    let origin = start(Config { faults, ..config(&objects()) });
    let mut mounted = Mounted::new(&origin, &["--lazy", "--deadline", "3s"]);
    let running = mounted.running();
    bounded(&running, LIMIT, || {
        expect_errno(fs::metadata(mounted.at("top")), Errno::IO);
        assert_eq!(fs::read(mounted.at("top")).expect("its bytes"), [7; 10]);
        assert_eq!(names(&mounted.at("other")), ["x"]);
        origin.stop();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mounted = &mounted;
                // The kernel looks one name up for one program after the other.
                let name = format!("deep/{thread}");
                scope.spawn(move || match thread % 2 {
                    0 => expect_errno(fs::metadata(mounted.at(&name)), Errno::IO),
                    _ => expect_errno(fs::read_dir(mounted.at("deep")), Errno::IO),
                });
            }
            // Those that wait hold up no folder that is listed.
            assert_eq!(names(&mounted.at("other")), ["x"]);
        });
    });
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    run.expect_words(&[
        "error: list s3://lab/d/: the server answered 403",
        "error: list s3://lab/d/deep/: no answer within --deadline 3s",
    ]);
}

#[test]
fn a_program_that_waits_for_a_listing_does_not_hold_up_the_end() {
    if !can_mount() {
        return;
    }
    // Also those that are sent in place of the first.
    let faults = of_listings(2..=u64::MAX, Fault::StallBeforeHead { duration: None });
    let origin = start(Config { faults, ..config(&objects()) });
    let mut mounted = Mounted::new(&origin, &["--lazy"]);
    let mut running = mounted.running();
    std::thread::scope(|scope| {
        let mounted = &mounted;
        let waits = scope.spawn(move || fs::metadata(mounted.at("top")).err());
        assert!(running.until(|| origin.stats().lists >= 2), "the mount has ended");
        running.signal(Signal::TERM);
        assert!(waits.join().expect("no panic").is_some(), "nobody has listed it");
    });
    running.wait().expect(130);
    assert_eq!(in_table(&mounted.point), None);
}

#[test]
fn a_replaced_object_is_found_in_a_folder_that_was_listed_lazily() {
    if !can_mount() {
        return;
    }
    const SIZE: usize = 20_000_000;
    let changes = |byte: u8, length: usize| {
        let time = format!("Tue, 02 Jan 2024 00:00:{byte:02} GMT");
        object("d/a/changes", vec![byte; length]).with_header("last-modified", &time)
    };
    let origin = serve(&Objects::from([
        ("d/a/changes".to_owned(), vec![1; SIZE]),
        ("d/a/stays".to_owned(), vec![9; 100]),
        ("d/later/x".to_owned(), vec![8; 10]),
    ]));
    let mut mounted = Mounted::new(&origin, &["--lazy", "--memory", "8M"]);
    let path = mounted.at("a/changes");
    let first = File::open(&path).expect("it is there");
    let inode = first.metadata().expect("attributes").ino();
    origin.put_object(&changes(2, 777)).expect("room");
    expect_errno(first.read_exact_at(&mut [0; 4096], 10_000_000), Errno::STALE);
    let second = File::open(&path).expect("the new one");
    let found = second.metadata().expect("attributes");
    assert_eq!((found.len(), found.mtime() % 60), (777, 2));
    assert!(found.ino() != inode, "its number is new");
    assert_eq!(fs::read(&path).expect("the new one"), vec![2; 777]);
    // Folders that are listed later have other numbers still.
    let later = fs::metadata(mounted.at("later/x")).expect("it is there");
    assert!(![inode, found.ino()].contains(&later.ino()));
    assert_eq!(fs::read(mounted.at("later/x")).expect("its bytes"), [8; 10]);
    assert_eq!(fs::metadata(&path).expect("attributes").ino(), found.ino());
    let mut running = mounted.running();
    let sized = || fs::metadata(&path).is_ok_and(|found| found.len() == 777);
    assert!(running.until(sized), "the mount has ended");
    assert_eq!(names(&mounted.at("a")), ["changes", "stays"]);
    assert_eq!(first.metadata().expect("of the open file").len(), SIZE as u64);
}

#[test]
fn over_http_all_are_the_same() {
    expect_the_same(5, false, Profile::None, &["--lazy"]);
}

#[test]
fn over_tls_with_faults_all_are_the_same() {
    expect_the_same(6, true, Profile::Mild, &["--lazy"]);
}

#[test]
fn what_is_no_folder_is_refused_before_anything_is_mounted() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects());
    let folder = tempfile::tempdir().expect("a folder");
    let run = |source: &str, secret: &str| {
        crate::program::Program::new(["mount", "--lazy", "--foreground", source])
            .with([folder.path()])
            .asking(&origin)
            .with_keys(crate::served::ACCESS_KEY, secret)
            .run()
    };
    let secret = crate::served::SECRET;
    run("s3://lab/d/top", secret).expect(2).expect_error(&["is an object", "omit --lazy"]);
    run("s3://lab/nothing/", secret).expect(4).expect_error(&["there is nothing in this folder"]);
    run("s3://elsewhere/", secret).expect(4).expect_error(&["NoSuchBucket"]);
    run("s3://lab/d/", "wrong").expect(3).expect_error(&["SignatureDoesNotMatch"]);
    assert_eq!(in_table(folder.path()), None);
    // As with --foreground, a start in the background reports its failure to the caller.
    let background = program(&origin, &["--lazy"]).with([folder.path()]).run().expect(0);
    background.check(background.stderr.is_empty(), "nothing was to be said");
    let lists = origin.stats().lists;
    let (read, now) = (fs::read(folder.path().join("top")), origin.stats().lists);
    // Before anything fails: else it would stay.
    crate::fuse::unmount_lazily(folder.path());
    assert_eq!((read.expect("its bytes"), now), (vec![7; 10], lists + 1));
}
