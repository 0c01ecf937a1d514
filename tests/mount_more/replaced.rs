//! Objects that are replaced, deleted and put again while they are mounted.

use std::fs::{self, File};
use std::io::Error;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use inrush_origin::Origin;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::fuse::can_mount;
use crate::matrix::Objects;
use crate::mounted::Mounted;
use crate::served::{BUCKET, object, serve};

const SIZE: usize = 20_000_000;

/// An origin with one large object of ones, and one that stays.
fn origin() -> Origin {
    let large = ("d/a/changes".to_owned(), vec![1; SIZE]);
    serve(&Objects::from([large, ("d/a/stays".to_owned(), vec![9; 100])]))
}

fn put(origin: &Origin, byte: u8, length: usize) {
    let time = format!("Tue, 02 Jan 2024 00:00:{byte:02} GMT");
    let new = object("d/a/changes", vec![byte; length]).with_header("last-modified", &time);
    origin.put_object(&new).expect("room");
}

#[track_caller]
fn expect_errno(error: &Error, errno: Errno) {
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// Reads far behind what the kernel has, of an object that was replaced.
#[track_caller]
fn expect_stale(file: &File, at: u64) {
    let error = file.read_exact_at(&mut [0; 4096], at).expect_err("another version");
    expect_errno(&error, Errno::STALE);
}

fn names(mounted: &Mounted) -> Vec<String> {
    let entries = fs::read_dir(mounted.at("a")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn who_opens_a_replaced_object_again_reads_the_new_one() {
    if !can_mount() {
        return;
    }
    let origin = origin();
    let mounted = Mounted::new(&origin, &["--memory", "8M"]);
    let path = mounted.at("a/changes");
    let mut earlier = Vec::new();
    let mut inodes = vec![fs::metadata(&path).expect("it is listed").ino()];
    for (byte, length) in [(1, SIZE), (2, SIZE - 5_000), (3, SIZE + 7)] {
        if byte > 1 {
            put(&origin, byte, length);
            expect_stale(&earlier[earlier.len() - 1], SIZE as u64 - 10_000);
        }
        let file = File::open(&path).expect("there is one");
        let mut first = [0; 4096];
        file.read_exact_at(&mut first, 0).expect("its own bytes");
        // Nothing that the kernel has of the version before.
        assert!(first.iter().all(|read| *read == byte), "{byte}: {:?}", &first[..4]);
        let found = file.metadata().expect("attributes");
        let same = fs::metadata(&path).expect("attributes");
        assert_eq!((found.len(), found.ino()), (length as u64, same.ino()), "{byte}");
        if byte > 1 {
            assert_eq!(found.mtime() % 60, i64::from(byte));
            assert!(!inodes.contains(&found.ino()), "its number is new");
            inodes.push(found.ino());
        }
        earlier.push(file);
    }
    let last = fs::read(&path).expect("the newest");
    assert!(last.len() == SIZE + 7 && last.iter().all(|read| *read == 3));
    // Who has an older one open reads what the kernel has of that, or nothing.
    for (file, byte) in earlier.iter().zip([1, 2]) {
        expect_stale(file, 10_000_000);
        let mut first = [0; 4096];
        file.read_exact_at(&mut first, 0).expect("the kernel has it");
        assert!(first.iter().all(|read| *read == byte), "{byte}: {:?}", &first[..4]);
    }
    assert_eq!(fs::read(mounted.at("a/stays")).expect("another object"), vec![9; 100]);
    assert_eq!(names(&mounted), ["changes", "stays"]);
}

#[test]
fn a_name_has_its_new_size_without_being_opened() {
    if !can_mount() {
        return;
    }
    let origin = origin();
    let mut mounted = Mounted::new(&origin, &["--memory", "8M"]);
    let path = mounted.at("a/changes");
    let file = File::open(&path).expect("it is there");
    put(&origin, 2, 777);
    expect_stale(&file, 10_000_000);
    // The mount notifies the kernel to forget the old one, at some time.
    let mut running = mounted.running();
    let is_new = || fs::metadata(&path).is_ok_and(|found| found.len() == 777);
    assert!(running.until(is_new), "the mount has ended");
    assert_eq!(file.metadata().expect("of the open file").len(), SIZE as u64);
    assert_eq!(fs::read(&path).expect("the new one"), vec![2; 777]);
}

#[test]
fn a_deleted_object_is_not_there_until_it_is_put_again() {
    if !can_mount() {
        return;
    }
    let origin = origin();
    let mut mounted = Mounted::new(&origin, &["--memory", "8M"]);
    let path = mounted.at("a/changes");
    assert_eq!(names(&mounted), ["changes", "stays"]);
    let file = File::open(&path).expect("it is there");
    assert!(origin.remove_object(BUCKET, "d/a/changes"));
    expect_stale(&file, 10_000_000);
    for _ in 0..2 {
        expect_errno(&File::open(&path).expect_err("it is gone"), Errno::NOENT);
    }
    expect_errno(&fs::metadata(&path).expect_err("it is gone"), Errno::NOENT);
    let mut running = mounted.running();
    assert!(running.until(|| names(&mounted) == ["stays"]), "the mount has ended");
    put(&origin, 4, 5_000);
    assert_eq!(fs::read(&path).expect("it is back"), vec![4; 5_000]);
    assert!(running.until(|| names(&mounted) == ["changes", "stays"]), "the mount has ended");
    expect_stale(&file, 10_000_000);
    running.signal(Signal::INT);
    let run = running.wait().expect(130);
    let lines = run.stderr.lines().filter(|line| line.contains("read s3://lab/d/a/changes"));
    run.check(lines.count() == 1, "one line of the file that was open");
    run.expect_words(&["open the file again"]);
}

#[test]
fn a_name_that_cannot_be_looked_up_fails_in_time() {
    if !can_mount() {
        return;
    }
    let origin = origin();
    let mut mounted = Mounted::new(&origin, &["--memory", "8M", "--deadline", "2s"]);
    let path = mounted.at("a/changes");
    let file = File::open(&path).expect("it is there");
    put(&origin, 2, SIZE);
    expect_stale(&file, 10_000_000);
    origin.stop();
    expect_errno(&File::open(&path).expect_err("nobody answers"), Errno::IO);
    // A lookup that waits holds up no other name.
    assert_eq!(fs::metadata(mounted.at("a/stays")).expect("listed").len(), 100);
    let running = mounted.running();
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    run.expect_words(&["look up s3://lab/d/a/changes", "no answer within --deadline 2s"]);
}
