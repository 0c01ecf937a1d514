//! `inrush mount --cache`: what was read once is read from the disk, and is never wrong.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use inrush_origin::Origin;
use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::fuse::can_mount;
use crate::matrix::Objects;
use crate::mounted::{Mounted, program, talking};
use crate::program::Program;
use crate::served::{object, serve};

const LARGE: usize = 5_000_003;
/// Kills of [`no_kill_leaves_a_wrong_byte`]; more of them with `INRUSH_TEST_KILLS`.
const KILLS: u64 = 6;
/// Threads that open a file, each so often.
const THREADS: u64 = 3;
const OPENS: u64 = 5_000;

/// Bytes that differ from place to place and from file to file.
fn pattern(length: usize, salt: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(salt);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// A large object, small ones, and an empty one.
fn objects() -> Objects {
    let mut objects = Objects::from([
        ("d/large".to_owned(), pattern(LARGE, 1)),
        ("d/empty".to_owned(), Vec::new()),
    ]);
    for number in 0..20 {
        objects.insert(format!("d/s/{number}"), pattern(1000 + 517 * number, number as u64 + 2));
    }
    objects
}

/// A folder, and objects with a server that has them; `None` where nothing can be mounted.
fn ground() -> Option<(TempDir, Objects, Origin)> {
    can_mount().then(|| {
        let (folder, objects) = (tempfile::tempdir().expect("a folder"), objects());
        let origin = serve(&objects);
        (folder, objects, origin)
    })
}

fn mount(origin: &Origin, cache: &Path, words: &[&str]) -> Mounted {
    let cache = ["--json", "--memory", "8M", "--cache", cache.to_str().expect("UTF-8")];
    Mounted::new(origin, &[&cache, words].concat())
}

#[track_caller]
fn expect_all(mounted: &Mounted, objects: &Objects) {
    for (key, bytes) in objects {
        let path = mounted.at(key.strip_prefix("d/").expect("all are below it"));
        assert!(fs::read(&path).expect("its bytes") == *bytes, "{key}");
    }
}

/// Ends a mount; what its cache came to.
fn end(mut mounted: Mounted) -> Value {
    let running = mounted.running();
    running.signal(Signal::TERM);
    running.wait().expect(130).json()["cache"].clone()
}

/// Reads all with this cache, so that it is kept; nothing has it open then.
fn fill(origin: &Origin, cache: &Path, objects: &Objects) {
    let mounted = mount(origin, cache, &[]);
    expect_all(&mounted, objects);
    end(mounted);
}

#[track_caller]
fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} in {of}"))
}

fn answers(origin: &Origin) -> u64 {
    origin.stats().requests
}

#[test]
fn what_was_read_whole_is_read_from_the_cache_by_later_mounts() {
    let Some((folder, objects, origin)) = ground() else { return };
    let cache = folder.path().join("cache");
    let first = mount(&origin, &cache, &[]);
    expect_all(&first, &objects);
    // Of this one not all is read.
    let summary = end(first);
    assert_eq!((number(&summary, "hits"), number(&summary, "kept_objects")), (0, 21), "{summary}");
    let second = mount(&origin, &cache, &[]);
    let before = answers(&origin);
    expect_all(&second, &objects);
    expect_all(&second, &objects);
    // By several at the same time, in any way of reading.
    let open: Vec<File> =
        (0..3).map(|_| File::open(second.at("large")).expect("it is there")).collect();
    for (number, file) in open.iter().enumerate() {
        let (mut bytes, at) = (vec![0; 70_000], 1_000_001 * number);
        file.read_exact_at(&mut bytes, at as u64).expect("its bytes");
        assert!(bytes == objects["d/large"][at..at + bytes.len()]);
    }
    assert_eq!(answers(&origin), before, "nothing is requested");
    drop(open);
    let summary = end(second);
    assert_eq!((number(&summary, "hits"), number(&summary, "kept_objects")), (45, 0), "{summary}");
}

#[test]
fn an_object_that_is_kept_while_it_is_open_is_read_from_both() {
    let Some((folder, objects, origin)) = ground() else { return };
    let mounted = mount(&origin, folder.path(), &[]);
    let large = &objects["d/large"];
    // Read whole, and still open: the kernel asks for it as before.
    let mut open = Vec::new();
    for _ in 0..40 {
        let file = File::open(mounted.at("large")).expect("it is there");
        let mut bytes = vec![0; LARGE];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        assert!(bytes == *large);
        open.push(file);
    }
    for file in &open {
        let mut bytes = vec![0; 5000];
        file.read_exact_at(&mut bytes, 4_000_000).expect("its bytes");
        assert!(bytes == large[4_000_000..4_005_000]);
    }
    drop(open);
    // It is kept soon, by another thread.
    let kept = || {
        let folders =
            fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one"));
        folders.filter(|entry| entry.path().is_dir()).count() > 0
    };
    for _ in 0..6000 {
        if kept() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(fs::read(mounted.at("large")).expect("its bytes") == *large);
    let summary = end(mounted);
    assert_eq!(
        (number(&summary, "kept_objects"), number(&summary, "kept_bytes")),
        (1, LARGE as u64)
    );
    assert!(number(&summary, "hits") > 0, "{summary}");
}

#[test]
fn past_the_page_cache_any_bytes_are_read_in_any_order_of_opens() {
    let Some((folder, objects, origin)) = ground() else { return };
    // All is kept; the next mounts have nothing open.
    fill(&origin, folder.path(), &objects);
    let large = &objects["d/large"];
    let open = |mounted: &Mounted, is_direct: bool| {
        let flags = if is_direct { OFlags::DIRECT.bits() } else { 0 };
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(flags.cast_signed());
        how.open(mounted.at("large")).expect("it is there")
    };
    let read = |file: &File| {
        let mut bytes = vec![0; 1000];
        // No block of a disk begins there.
        file.read_exact_at(&mut bytes, 1_000_001).expect("its bytes");
        assert!(bytes == large[1_000_001..1_001_001]);
    };
    for order in [[true, false, true], [false, true, false], [true, true, false]] {
        let mounted = mount(&origin, folder.path(), &[]);
        let mut files: Vec<File> = Vec::new();
        for is_direct in order {
            files.push(open(&mounted, is_direct));
            files.iter().for_each(read);
        }
        while !files.is_empty() {
            drop(files.remove(0));
            // Who opens it now reads as well as those that have it open still.
            read(&open(&mounted, false));
            files.iter().for_each(read);
        }
        read(&open(&mounted, true));
        assert!(fs::read(mounted.at("large")).expect("its bytes") == *large);
        let summary = end(mounted);
        assert_eq!((number(&summary, "hits"), number(&summary, "misses")), (8, 0), "{summary}");
    }
}

#[test]
fn files_that_are_read_from_the_cache_have_lines_in_the_report() {
    let Some((folder, objects, origin)) = ground() else { return };
    let cache = folder.path().join("cache");
    for is_kept in [false, true] {
        let report = folder.path().join("report");
        let mounted = mount(&origin, &cache, &["--report", report.to_str().expect("UTF-8")]);
        let path = mounted.at("large");
        assert!(fs::read(&path).expect("its bytes") == objects["d/large"]);
        // To the end, by us or by the kernel.
        let open = File::open(mounted.at("s/3")).expect("it is there");
        let mut bytes = vec![0; objects["d/s/3"].len()];
        open.read_exact_at(&mut bytes, 0).expect("its bytes");
        end(mounted);
        drop(open);
        let text = fs::read_to_string(&report).expect("a report");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 3, "two files and the summary: {text}");
        for key in ["d/large", "d/s/3"] {
            let line = lines.iter().find(|line| line["key"] == key).expect("a line");
            assert_eq!((&line["cached"], &line["bucket"]), (&is_kept.into(), &"lab".into()));
            assert_eq!(number(line, "bytes"), objects[key].len() as u64);
            assert_eq!(line["served_bytes"].is_null(), is_kept, "{line}");
            assert!(line["seconds"].as_f64() > Some(0.0) && line["error"].is_null(), "{line}");
        }
        assert_eq!(number(&lines[2], "opens"), 2);
    }
}

#[test]
fn a_cache_without_room_says_why_nothing_is_kept() {
    let Some((folder, objects, origin)) = ground() else { return };
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("room");
    let tmpfs = ["-t", "tmpfs", "-o", "size=16m", "none"];
    let done = std::process::Command::new("mount").args(tmpfs).arg(&disk).status().expect("mount");
    assert!(done.success());
    let _unmounts = Unmounts(&disk);
    let (small, large) = (folder.path().join("small"), disk.join("cache"));
    for (place, size, expected) in [
        (
            &large,
            "1GB",
            ["nothing is kept: ", " MiB of the file system are free, and 256 MiB stay"],
        ),
        (&small, "10", [": an object of ", "the cache is bounded to 10 B"]),
    ] {
        let place = place.to_str().expect("UTF-8");
        let words = ["--cache", place, "--cache-size", size];
        let mut mounted = Mounted::of(&origin, talking(&origin, &words));
        expect_all(&mounted, &objects);
        let running = mounted.running();
        running.signal(Signal::TERM);
        let run = running.wait().expect(130).expect_words(&expected);
        let lines = run.stderr.lines().filter(|line| line.contains(" kept: ")).count();
        run.check(lines == 1, "it is reported once");
    }
}

/// Unmounts what is there when it goes.
struct Unmounts<'a>(&'a Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        crate::fuse::unmount_lazily(self.0);
    }
}

#[test]
fn a_cache_whose_folder_was_removed_says_so() {
    let Some((folder, objects, origin)) = ground() else { return };
    let cache = folder.path().join("cache");
    let mut mounted = mount(&origin, &cache, &[]);
    fs::remove_dir_all(&cache).expect("it goes");
    expect_all(&mounted, &objects);
    let running = mounted.running();
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    run.expect_words(&["nothing more is kept there: the folder was removed"]);
}

#[test]
fn past_the_page_cache_what_is_kept_no_more_is_read_too() {
    let Some((folder, objects, origin)) = ground() else { return };
    fill(&origin, folder.path(), &objects);
    let large = &objects["d/large"];
    let mounted = mount(&origin, folder.path(), &[]);
    let kept = File::open(mounted.at("large")).expect("it is there");
    remove_kept(folder.path());
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    let direct = how.open(mounted.at("large")).expect("it is there");
    for file in [&direct, &kept, &direct] {
        let mut bytes = vec![0; 1000];
        // No block of a disk begins there.
        file.read_exact_at(&mut bytes, 1_000_001).expect("its bytes");
        assert!(bytes == large[1_000_001..1_001_001]);
    }
    drop(kept);
    assert!(fs::read(mounted.at("large")).expect("its bytes") == *large);
    let summary = end(mounted);
    assert!(number(&summary, "misses") > 0, "{summary}");
}

#[test]
fn what_is_kept_is_not_fetched_by_who_opens_it_while_others_close_it() {
    let Some((folder, _, origin)) = ground() else { return };
    let filling = mount(&origin, folder.path(), &[]);
    fs::read(filling.at("s/1")).expect("its bytes");
    end(filling);
    let mut mounted = mount(&origin, folder.path(), &[]);
    let path = mounted.at("s/1");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..OPENS {
                    File::open(&path).expect("it is there");
                }
            });
        }
    });
    let running = mounted.running();
    running.signal(Signal::TERM);
    let summary = running.wait().expect(130).json();
    assert_eq!(number(&summary["cache"], "hits"), THREADS * OPENS, "{summary}");
    // Those that are fetched are counted beside the hits.
    assert_eq!(number(&summary, "opens"), THREADS * OPENS, "{summary}");
}

/// Removes all that is in a cache.
fn remove_kept(cache: &Path) {
    for entry in fs::read_dir(cache).expect("a folder").map(|entry| entry.expect("one")) {
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).expect("it goes");
        }
    }
}

#[test]
fn another_version_is_not_read_from_the_cache() {
    let Some((folder, mut objects, origin)) = ground() else { return };
    fill(&origin, folder.path(), &objects);
    let new = pattern(LARGE, 77);
    origin.put_object(&object("d/large", new.clone())).expect("room");
    objects.insert("d/large".to_owned(), new);
    for hits in [20, 21] {
        let later = mount(&origin, folder.path(), &[]);
        expect_all(&later, &objects);
        assert_eq!(number(&end(later), "hits"), hits);
    }
}

#[test]
fn a_small_cache_keeps_what_was_used_last_and_all_is_right() {
    let Some((folder, objects, origin)) = ground() else { return };
    let small = mount(&origin, folder.path(), &["--cache-size", "50KB"]);
    expect_all(&small, &objects);
    expect_all(&small, &objects);
    let summary = end(small);
    assert!(number(&summary, "evicted_objects") > 0, "{summary}");
    let bytes = |folder: &Path| -> u64 {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.metadata().expect("its length").len()).sum()
    };
    let folders = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one"));
    let folders = folders.filter(|entry| entry.path().is_dir());
    let kept: u64 = folders.map(|entry| bytes(&entry.path())).sum();
    assert!(kept > 0 && kept <= 50_000, "{kept}");
}

#[test]
fn two_mounts_share_a_cache_and_what_is_open_outlives_its_removal() {
    let Some((folder, objects, origin)) = ground() else { return };
    fill(&origin, folder.path(), &objects);
    let mounts = [(); 2].map(|()| mount(&origin, folder.path(), &[]));
    let before = answers(&origin);
    let open = mounts.each_ref().map(|mounted| {
        expect_all(mounted, &objects);
        File::open(mounted.at("large")).expect("it is there")
    });
    assert_eq!(answers(&origin), before, "nothing is requested");
    remove_kept(folder.path());
    for file in &open {
        let mut bytes = vec![0; LARGE];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        assert!(bytes == objects["d/large"]);
    }
    drop(open);
    // Nothing is left of files that were closed, so the first has to bring them anew.
    for (mounted, misses) in mounts.into_iter().zip([20, 0]) {
        expect_all(&mounted, &objects);
        let summary = end(mounted);
        assert!(
            number(&summary, "hits") >= 22 && number(&summary, "misses") >= misses,
            "{summary}"
        );
    }
}

#[test]
fn the_kernel_reads_without_the_mount_where_it_can() {
    let Some((folder, objects, origin)) = ground().filter(|_| passes_through()) else { return };
    for reads in [true, false] {
        let mut mounted = mount(&origin, folder.path(), &[]);
        expect_all(&mounted, &objects);
        let running = mounted.running();
        running.signal(Signal::TERM);
        let summary = running.wait().expect(130).json();
        assert_eq!(number(&summary, "reads") > 0, reads, "{summary}");
    }
}

/// Linux 6.9 and newer have it where it is configured, and let root alone use it.
fn passes_through() -> bool {
    let config = std::process::Command::new("zcat").arg("/proc/config.gz").output();
    let config = config.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_there = config.is_ok_and(|config| config.contains("CONFIG_FUSE_PASSTHROUGH=y"));
    is_there && rustix::process::geteuid().is_root()
}

#[test]
fn no_kill_leaves_a_wrong_byte() {
    let Some((folder, objects, origin)) = ground() else { return };
    let kills = std::env::var("INRUSH_TEST_KILLS").ok().and_then(|kills| kills.parse().ok());
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..kills.unwrap_or(KILLS) {
        let mut mounted = mount(&origin, folder.path(), &[]);
        let mut paths: Vec<&String> = objects.keys().collect();
        random.shuffle(&mut paths);
        paths.truncate(random.usize(1..paths.len()));
        let running = mounted.running();
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                for key in paths {
                    let path = mounted.at(key.strip_prefix("d/").expect("all are below it"));
                    // What comes before the kill is right.
                    if let Ok(bytes) = fs::read(path) {
                        assert!(bytes == objects[key], "{round}: {key}");
                    }
                }
            });
            std::thread::sleep(std::time::Duration::from_micros(random.u64(..40_000)));
            running.signal(Signal::KILL);
            reads.join().expect("right bytes");
        });
        let _ = running.wait();
        Program::new(["unmount"]).with([&mounted.point]).run().expect(0);
    }
    let after = mount(&origin, folder.path(), &[]);
    expect_all(&after, &objects);
    expect_all(&after, &objects);
    let summary = end(after);
    assert!(number(&summary, "hits") > 0, "{summary}");
}

#[test]
fn a_folder_that_cannot_be_a_cache_is_refused() {
    let Some((folder, _, origin)) = ground() else { return };
    let file = folder.path().join("file");
    fs::write(&file, "").expect("room");
    let point = folder.path().join("mount point");
    fs::create_dir(&point).expect("room");
    let covered = [point.clone(), point.join("new/cache")];
    let covered = covered.iter().map(|place| (place.as_path(), 2));
    for (place, code) in
        [(file.as_path(), 5), (Path::new("/proc/inrush"), 5)].into_iter().chain(covered)
    {
        let words = ["--foreground", "--cache", place.to_str().expect("UTF-8")];
        let run = program(&origin, &words).with([&point]).run().expect(code);
        run.expect_error(&["--cache", place.to_str().expect("UTF-8")]);
    }
    assert_eq!(fs::read_dir(&point).expect("a folder").count(), 0, "nothing is left in it");
    let run = program(&origin, &["--cache-size", "1G"]).with([&point]).run().expect(2);
    run.expect_words(&["required", "--cache <DIR>"]);
}
