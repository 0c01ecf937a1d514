//! How the kernel's requests come: from the device, or over io_uring where root allows it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;

use crate::fuse::can_mount;
use crate::matrix::Objects;
use crate::mounted::{Mounted, program};
use crate::program::{Program, Run};
use crate::served::serve;

/// Whether the kernel lets mounts use io_uring. Few do so by themselves, so a run in which nothing
/// may be left out goes on without it.
pub(crate) fn is_allowed() -> bool {
    let setting = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let is_allowed = setting.is_ok_and(|setting| setting.starts_with('Y'));
    if !is_allowed {
        eprintln!("left out: the kernel does not allow FUSE over io_uring");
    }
    is_allowed
}

/// Small objects, and as many bytes of one as are asked for.
fn objects(large: usize) -> Objects {
    let small = (0..20u8).map(|number| (format!("d/{number}"), vec![number; 1000]));
    let mut objects: Objects = small.collect();
    objects.insert("d/large".to_owned(), vec![7; large]);
    objects
}

/// Mounts these with these words, reads all, and ends; the summary.
fn read_all(objects: &Objects, words: &[&str]) -> Run {
    let origin = serve(objects);
    let mut mounted = Mounted::new(&origin, &[&["--json"], words].concat());
    for (key, bytes) in objects {
        let name = key.strip_prefix("d/").expect("all are below it");
        assert!(fs::read(mounted.at(name)).expect("its bytes") == *bytes, "{key}");
    }
    let open = File::open(mounted.at("large")).expect("it is there");
    let names = fs::read_dir(&mounted.point).expect("its names").count();
    assert_eq!(names, objects.len());
    let running = mounted.running();
    Program::new(["unmount"]).with([&mounted.point]).run().expect(0);
    // Who has a file open reads on, by the same way: what the kernel has of it is dropped.
    fadvise(&open, 0, None, Advice::DontNeed).expect("it is advice");
    let mut byte = [0];
    open.read_exact_at(&mut byte, 1).expect("it is open");
    assert_eq!(byte, [7]);
    drop(open);
    running.wait().expect(0)
}

#[test]
fn the_summary_says_how_requests_came() {
    if !can_mount() {
        return;
    }
    let run = read_all(&objects(5_000_000), &["--fuse", "device"]);
    let fuse = &run.json()["fuse"];
    run.check(fuse["transport"] == "device", "the device");
    run.check(fuse["io_uring_unavailable"] == "--fuse device", "why");
    // Of files that are large on average the device has the copy less.
    let run = read_all(&objects(30_000_000), &["--fuse", "auto"]);
    run.check(run.json()["fuse"]["transport"] == "device", "large files");
    if !is_allowed() {
        return;
    }
    for (large, words) in [
        (100_000, &["--fuse", "auto"][..]),
        (5_000_000, &["--fuse", "io_uring"]),
        (5_000_000, &["--fuse", "io_uring", "--memory", "6M"]),
    ] {
        let run = read_all(&objects(large), words);
        let fuse = &run.json()["fuse"];
        run.check(fuse["transport"] == "io_uring", "io_uring");
        run.check(fuse["io_uring_unavailable"].is_null(), "nothing is in its way");
    }
}

#[test]
fn what_cannot_be_is_an_error_before_anything_is_mounted() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects(1));
    let folder = tempfile::tempdir().expect("a folder");
    let mount =
        |words: &[&str]| program(&origin, words).with([folder.path()]).with(["--foreground"]);
    let refused = mount(&[]).set("INRUSH_FUSE", "ring").run().expect(2);
    refused.check(refused.stderr.contains("INRUSH_FUSE: 'ring' is not a transport"), "a name");
    refused.check(refused.stderr.contains("expected auto, io_uring or device"), "advice");
    let words = ["--fuse", "io_uring", "--memory", "4M"];
    let refused = mount(&words).run().expect(7);
    let why = match is_allowed() {
        true => "FUSE over io_uring is not available: there is not enough memory for its queues",
        false => "FUSE over io_uring is not available: the kernel does not allow it",
    };
    refused.check(refused.stderr.contains(why), why);
    assert!(is_unused(folder.path()));
}

#[test]
fn no_name_is_taken_for_another_that_it_begins_with() {
    if !can_mount() {
        return;
    }
    let longest = "n".repeat(255);
    let origin = serve(&Objects::from([(format!("d/{longest}"), vec![1; 10])]));
    for transport in ["device", "io_uring"] {
        if transport == "io_uring" && !is_allowed() {
            return;
        }
        let mounted = Mounted::new(&origin, &["--fuse", transport]);
        assert_eq!(fs::read(mounted.at(&longest)).expect("its bytes"), [1; 10]);
        fs::read(mounted.at(&format!("{longest}n"))).expect_err("there is no such name");
    }
}

#[test]
fn a_file_that_is_closed_is_forgotten() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let objects = objects(100_000);
    let origin = serve(&objects);
    for transport in ["device", "io_uring"] {
        if transport == "io_uring" && !is_allowed() {
            return;
        }
        let cache = folder.path().join(transport);
        let words = ["--fuse", transport, "--cache", cache.to_str().expect("UTF-8")];
        let read = |mounted: &Mounted| fs::read(mounted.at("large")).expect("its bytes").len();
        let mut first = Mounted::new(&origin, &words);
        assert_eq!(read(&first), 100_000);
        let running = first.running();
        running.signal(Signal::TERM);
        running.wait().expect(130);
        let mut second = Mounted::new(&origin, &words);
        let before = origin.stats().requests;
        assert_eq!(read(&second), 100_000);
        assert_eq!(origin.stats().requests, before, "it is kept");
        for entry in fs::read_dir(&cache).expect("a folder").map(|entry| entry.expect("one")) {
            if entry.path().is_dir() {
                fs::remove_dir_all(entry.path()).expect("it goes");
            }
        }
        // As long as it is open it is read from what was kept. That it is closed comes later.
        let mut running = second.running();
        let is_anew = || read(&second) == 100_000 && origin.stats().requests > before;
        assert!(running.until(is_anew), "the mount has ended");
    }
}

/// Whether nothing is mounted there.
fn is_unused(folder: &Path) -> bool {
    crate::fuse::in_table(folder).is_none()
}
