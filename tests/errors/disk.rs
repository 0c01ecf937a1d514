//! Disks and limits that give way in the middle of a run: what is whole stays, nothing else has a
//! name, and the error gives the reason.
//!
//! Not here: a disk that is too small from the start (`destination.rs`).

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;

use inrush_origin::Origin;

use crate::matrix::{Objects, bytes_of};
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, get, serve, start};
use crate::without::without;
use crate::{DESTINATION, Nowhere, OBJECTS, assert_whole, names, objects};

const MIB: usize = 1 << 20;

/// Files that a later run goes on with, which a disk that is full leaves on purpose.
fn is_unfinished(name: &str) -> bool {
    name.starts_with(".inrush-") && (name.ends_with(".part") || name.ends_with(".journal"))
}

/// Fails unless every file of the folder is whole or unfinished by its name; returns how many are
/// whole.
#[track_caller]
fn assert_whole_or_unfinished(folder: &Path, objects: &Objects) -> usize {
    for name in names(folder).iter().filter(|name| is_unfinished(name)) {
        fs::remove_file(folder.join(name)).expect("an unfinished file");
    }
    assert_whole(folder, objects)
}

/// An origin that sends `rate` bytes a second on each connection.
fn serve_slowly(all: &Objects, rate: u64) -> Origin {
    let mut configuration = config(all);
    configuration.connection_rate = NonZeroU64::new(rate);
    start(configuration)
}

/// Large objects, more than one of them.
fn large() -> Objects {
    objects(&[("a", MIB + 5), ("b", 2 * MIB), ("c", 2 * MIB + 1), ("d", 3 * MIB), ("e", 5)])
}

#[test]
fn a_disk_that_others_fill_keeps_what_is_whole() {
    let Some(mount) = Mount::tmpfs("size=16m") else { return };
    let destination = mount.path().join("destination");
    let all = large();
    let origin = serve_slowly(&all, 2 << 20);
    let words = ["s3://lab/", "--connections", "1", "--workers", "1", "--part-size", "1MiB"];
    let mut running = get(&origin, words).with([&destination]).start();
    assert!(running.until(|| destination.join("e").exists() || origin.stats().gets > 1));
    let mut other = File::create(mount.path().join("other")).expect("a file");
    while other.write_all(&[7; 4096]).is_ok() {}
    let run = running.wait().expect(DESTINATION);
    let run = run.expect_words(&["o space left on device", "free space at the destination"]);
    let whole = assert_whole_or_unfinished(&destination, &all);
    run.check(whole < all.len(), "the disk is full");
}

/// Gets objects of which some are longer than a file may be.
#[track_caller]
fn too_long(before: &[String], longest: &str) -> Run {
    let all = large();
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    // In units of 512 bytes or 1,024: the shell decides.
    let limited = ["sh", "-c", "ulimit -f $0 && exec \"$@\"", longest].map(str::to_owned);
    let words: Vec<String> = limited.iter().chain(before).cloned().collect();
    let run = get(&origin, ["s3://lab/"]).with([nowhere.path()]).by_way_of(words).run();
    let run = run.expect(OBJECTS).expect_words(&["File too large (os error 27); raise the limit"]);
    let whole = assert_whole(&nowhere.path(), &all);
    run.check(whole > 0 && whole < all.len(), &format!("{whole} are whole"));
    for line in run.stderr.lines() {
        run.check(line.starts_with("error: s3://lab/"), "an error of an object was expected");
    }
    run.check(run.stderr.lines().count() == all.len() - whole, "a line for each that failed");
    run
}

#[test]
fn a_limit_of_file_size_costs_the_objects_above_it_and_no_other() {
    // The kernel sends a signal before it says so, which by itself would end the program.
    too_long(&[], "2100");
    for calls in ["fallocate:95", "tmpfile"] {
        if let Some(before) = without(calls) {
            too_long(&before, "2100");
        }
    }
    // Not one small object fits; the large one's error is the same.
    let all = objects(&[("a", 9000), ("b", 9000), ("c", 10)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let before = ["sh", "-c", "ulimit -f $0 && exec \"$@\"", "4"];
    let run = get(&origin, ["s3://lab/"]).with([nowhere.path()]).by_way_of(before).run();
    run.expect(OBJECTS).expect_words(&["s3://lab/a: ", "s3://lab/b: ", "File too large"]);
    assert_eq!(assert_whole(&nowhere.path(), &all), 1);
}

#[test]
fn standard_output_has_a_limit_of_file_size_too() {
    let all = objects(&[("a", 3 * MIB)]);
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name| File::create(folder.path().join(name)).expect("a file");
    let before = ["sh", "-c", "ulimit -f $0 && exec \"$@\"", "1000"];
    let program = Program::new(["cat", "s3://lab/"]).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let run = program.by_way_of(before).start_with(open("out").into(), open("err").into());
    run.wait().expect(DESTINATION);
    let said = fs::read_to_string(folder.path().join("err")).expect("UTF-8");
    assert!(said.starts_with("error: ") && said.contains("File too large"), "{said}");
    let bytes = fs::read(folder.path().join("out")).expect("a file");
    assert!(!bytes.is_empty() && all["a"].starts_with(&bytes), "{} bytes", bytes.len());
}

/// Fails unless each error line names an object, each object has one line at most, and the count of
/// the others comes last. How many were under way when the disk gave way depends on the machine.
#[track_caller]
fn assert_object_errors(run: &Run) {
    let mut lines: Vec<_> = run.stderr.lines().collect();
    lines.pop_if(|line| line.ends_with(" more objects failed; use --report FILE to list all"));
    lines.pop_if(|line| line.ends_with(" objects were not completed, because this ended the run"));
    for line in &lines {
        run.check(line.starts_with("error: s3://lab/"), "an error of an object was expected");
    }
    run.check(!lines.is_empty(), "why the run ended was expected");
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    run.check(lines.len() == count, "each object was expected once");
}

/// Gets small and large objects where a call fails; the run ends with this errno's words.
#[track_caller]
fn call_fails(call: &str, code: i32, words: &[&str], options: &[&str]) {
    let Some(before) = without(call) else { return };
    let mut all = large();
    all.extend((0..40).map(|n| (format!("small/{n}"), bytes_of("small", 1000 * n))));
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let program = get(&origin, ["s3://lab/"]).with([nowhere.path()]).with(options);
    let run = program.by_way_of(&before).run().expect(code).expect_words(words);
    assert_object_errors(&run);
    assert_whole_or_unfinished(&nowhere.path(), &all);
}

#[test]
fn a_disk_that_is_broken_ends_the_run() {
    for call in ["fallocate:5", "pwrite64:5", "ftruncate:5", "linkat:5", "renameat:5"] {
        call_fails(
            call,
            DESTINATION,
            &["os error 5", "check the file system of the destination"],
            &[],
        );
    }
    let options = ["--durability", "file"];
    call_fails("fsync:5", DESTINATION, &["os error 5"], &options);
}

#[test]
fn a_quota_that_is_used_up_ends_the_run() {
    // Whether the file system keeps quotas: the errno is all that the program sees of them.
    for call in ["fallocate:122", "pwrite64:122", "linkat:122"] {
        call_fails(call, DESTINATION, &["os error 122", "free space at the destination"], &[]);
    }
}

/// A file system on a loop device, whose end can be cut off under it. Gone when dropped.
struct Shrinking {
    folder: tempfile::TempDir,
    device: String,
}

impl Shrinking {
    /// `None`, said on standard error, where there are no loop devices.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("room");
        let features = ["-q", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"];
        let made = said(Command::new("mkfs.ext4").args(features).arg(&image));
        let device =
            made.and_then(|_| said(Command::new("losetup").args(["-f", "--show"]).arg(&image)));
        let Some(device) = device.map(|device| device.trim().to_owned()) else {
            crate::skip::skip("there is no loop device with an ext4 here");
            return None;
        };
        let shrinking = Self { folder, device };
        fs::create_dir(shrinking.path()).expect("a folder");
        let mounted = said(Command::new("mount").arg(&shrinking.device).arg(shrinking.path()));
        mounted.map(|_| shrinking)
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("mount")
    }

    /// The device ends here: what is written behind is an error of input or output.
    fn cut(&self, length: u64) {
        let image = File::options().write(true).open(self.folder.path().join("image"));
        image.and_then(|file| file.set_len(length)).expect("an image");
        said(Command::new("losetup").arg("-c").arg(&self.device)).expect("its size is read again");
    }
}

impl Drop for Shrinking {
    fn drop(&mut self) {
        // What stands in the way of one does not stand in the other's.
        let _ = said(Command::new("umount").arg("-l").arg(self.path()));
        let _ = said(Command::new("losetup").arg("-d").arg(&self.device));
    }
}

/// What a command said on standard output, if it ended well.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[test]
fn a_device_that_fails_writes_ends_the_run() {
    let Some(disk) = Shrinking::new() else { return };
    let destination = disk.path().join("destination");
    fs::create_dir(&destination).expect("a folder");
    disk.cut(5 << 20);
    let all = objects(&[("a", 9 * MIB), ("b", 9 * MIB), ("c", 9 * MIB)]);
    let origin = serve(&all);
    let run = get(&origin, ["s3://lab/"]).with([&destination]).run().expect(DESTINATION);
    run.expect_words(&["error: s3://lab/", "nput/output error (os error 5)"]);
    let left = names(&destination);
    assert!(left.iter().all(|name| is_unfinished(name)), "{left:?}");
}

#[test]
fn a_destination_that_is_removed_is_reported() {
    for way in ["removed", "renamed"] {
        let mut all = large();
        all.extend((0..40).map(|n| (format!("small/{n}"), bytes_of("small", 1000 * n))));
        let origin = serve_slowly(&all, 4 << 20);
        let nowhere = Nowhere::new();
        let destination = nowhere.path();
        let words = ["s3://lab/", "--connections", "2", "--workers", "1", "--part-size", "1MiB"];
        let mut running = get(&origin, words).with([&destination]).start();
        assert!(running.until(|| origin.stats().gets > 3));
        let elsewhere = nowhere.folder.path().join("elsewhere");
        if way == "removed" {
            // It may grow while it is taken away.
            while running.until(|| true) && fs::remove_dir_all(&destination).is_err() {}
            let run = running.wait();
            run.check(matches!(run.status.code(), Some(OBJECTS | DESTINATION)), "the exit code");
            let run = run.expect_words(&["error: s3://lab/", "No such file or directory"]);
            run.check(!run.stderr.contains("panicked"), "it panicked");
            assert!(!destination.exists(), "nobody makes it anew");
        } else {
            // The folder is open: it is the same one by another name.
            fs::rename(&destination, &elsewhere).expect("a folder");
            running.wait().expect(0);
            assert_eq!(assert_whole(&elsewhere, &all), all.len());
        }
        assert!(names(nowhere.folder.path()).iter().all(|name| name == "elsewhere"));
    }
}
