//! `inrush mount` against the in-repo origin: what programs see through the kernel is what the
//! objects are, whatever happens to the server, the object or the process.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and threads of its own"
)]

#[path = "common/fuse.rs"]
mod fuse;
#[path = "common/mapper.rs"]
mod mapper;
#[path = "common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "common/names.rs"]
mod names;
#[path = "common/program.rs"]
#[expect(dead_code, reason = "JSON belongs to other tests")]
mod program;
#[path = "common/served.rs"]
#[expect(dead_code, reason = "get belongs to other tests")]
mod served;
#[path = "common/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fuse::{can_mount, in_table};
use inrush_origin::{Config, FaultPlan, Profile, TlsConfig};
use mapper::Mapper;
use matrix::{Objects, bytes_of};
use mounted::{Mounted, program, talking};
use program::Program;
use rustix::io::Errno;
use rustix::process::Signal;
use served::{ACCESS_KEY, BUCKET, SECRET, config, object, serve, start};

/// Objects of a tree.
const OBJECTS: usize = 300;

/// All files below a folder, by their paths.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, below: &str, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{below}{}", entry.file_name().to_str().expect("UTF-8"));
            let found = entry.metadata().expect("attributes");
            match found.is_dir() {
                true => walk(&entry.path(), &format!("{path}/"), into),
                false => {
                    let bytes = fs::read(entry.path()).expect("the bytes");
                    assert_eq!(found.len(), bytes.len() as u64, "{path}");
                    assert!(into.insert(path.clone(), bytes).is_none(), "{path} is there twice");
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(folder, "", &mut all);
    all
}

#[track_caller]
fn check_files(point: &Path, objects: &Objects) {
    let found = files(point);
    let names = |map: &BTreeMap<String, Vec<u8>>| map.keys().cloned().collect::<Vec<_>>();
    let expected: BTreeMap<String, Vec<u8>> =
        objects.iter().map(|(key, bytes)| (key[2..].to_owned(), bytes.clone())).collect();
    assert_eq!(names(&found), names(&expected));
    for (path, bytes) in &expected {
        assert!(found[path] == *bytes, "{path} has other bytes");
    }
}

/// Reads of all kinds, from several threads, at places that a seed says.
fn check_reads(mounted: &Mounted, objects: &Objects, seed: u64) {
    let large: Vec<_> = objects.iter().filter(|(_, bytes)| bytes.len() > 5_000).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (large, mounted) = (&large, &mounted);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 4 + thread);
                for _ in 0..100 {
                    let (key, bytes) = large[random.usize(..large.len())];
                    let file = File::open(mounted.at(&key[2..])).expect("it opens");
                    for _ in 0..random.u32(..6) {
                        let at = random.usize(..bytes.len() + 10);
                        let mut buffer = vec![0; random.usize(1..=70_000)];
                        let count = file.read_at(&mut buffer, at as u64).expect("bytes");
                        let rest = bytes.get(at..).unwrap_or_default();
                        assert_eq!(count, rest.len().min(buffer.len()), "{key} at {at}");
                        assert!(buffer[..count] == rest[..count], "{key} at {at}");
                    }
                }
            });
        }
    });
}

#[test]
fn what_is_seen_is_what_is_there() {
    if !can_mount() {
        return;
    }
    let objects = names::objects(1, OBJECTS);
    let origin = serve(&objects);
    let mut mounted = Mounted::new(&origin, &["--mode", "440", "--uid", "12", "--gid", "34"]);
    check_files(&mounted.point, &objects);
    check_reads(&mounted, &objects, 1);
    let (source, kind) = in_table(&mounted.point).expect("mounted");
    assert_eq!((source.as_str(), kind.as_str()), ("s3://lab/d/", "fuse.inrush"));
    let (key, bytes) = objects.iter().max_by_key(|(_, bytes)| bytes.len()).expect("some");
    let found = fs::metadata(mounted.at(&key[2..])).expect("attributes");
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (12, 34, 0o440));
    assert_eq!(found.blocks(), (bytes.len() as u64).div_ceil(512));
    let folder = fs::metadata(mounted.at("deep")).expect("attributes");
    assert_eq!((folder.mode() & 0o777, folder.uid()), (0o550, 12));
    // The origin's objects all have one time, and folders that of the newest object.
    assert!(found.mtime() > 0 && found.mtime() == folder.mtime(), "{found:?}");
    let space = rustix::fs::statvfs(&mounted.point).expect("a file system");
    let blocks: u64 = objects.values().map(|bytes| (bytes.len() as u64).div_ceil(512)).sum();
    assert_eq!((space.f_blocks, space.f_bfree, space.f_frsize), (blocks, 0, 512));
    assert!(space.f_files > objects.len() as u64);
    for refused in [
        fs::write(mounted.at("new"), b"x"),
        fs::create_dir(mounted.at("new")),
        fs::remove_file(mounted.at(&key[2..])),
        fs::rename(mounted.at(&key[2..]), mounted.at("new")),
        File::options().write(true).open(mounted.at(&key[2..])).map(drop),
    ] {
        assert_eq!(refused.expect_err("read-only").kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let missing = fs::metadata(mounted.at("nothing")).expect_err("nothing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let running = mounted.running();
    running.signal(Signal::TERM);
    let run = running.wait().expect(130);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "nothing was to be said");
    assert_eq!(in_table(&mounted.point), None);
    assert!(!mounted.folder.path().join("ready").exists(), "its ready file is left");
}

#[test]
fn mapped_files_have_their_bytes() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/mapped".to_owned(), bytes_of("d/mapped", 3_000_001))]);
    let origin = serve(&objects);
    let mounted = Mounted::new(&origin, &[]);
    let touched = [2_999_999, 5, 1_500_000];
    let read = Mapper::new().read("normal", &mounted.at("mapped"), 0, 3_000_001, &touched);
    assert!(read.expect("its bytes") == objects["d/mapped"], "other bytes");
}

#[test]
fn a_faulty_server_over_tls_changes_no_byte() {
    if !can_mount() {
        return;
    }
    for (seed, tls) in [(3, true), (4, false)] {
        let objects = names::objects(seed, OBJECTS);
        let faults = FaultPlan::seeded(seed, Profile::Mild);
        let tls = tls.then(TlsConfig::default);
        let origin = start(Config { faults, tls, ..config(&objects) });
        let mounted = Mounted::new(&origin, &["--memory", "8M"]);
        check_files(&mounted.point, &objects);
        check_reads(&mounted, &objects, seed);
    }
}

#[test]
fn keys_without_a_name_are_hidden_and_listed() {
    if !can_mount() {
        return;
    }
    let keys = ["d/a", "d/a/b", "d/c//x", "d/./y", "d/../z", "d/nul\0", "d/fine", "d/e/"];
    let objects: Objects = keys.iter().map(|key| ((*key).to_owned(), Vec::new())).collect();
    let origin = serve(&objects);
    let checked = Program::new(["mount", "--check", &format!("s3://{BUCKET}/d/")])
        .asking(&origin)
        .with_keys(ACCESS_KEY, SECRET)
        .run()
        .expect(0);
    for hidden in ["a/b", "c//x", "./y", "../z", "nul"] {
        let is_reported =
            checked.stdout.lines().any(|line| line.starts_with(&format!("hidden: d/{hidden}")));
        checked.check(is_reported, hidden);
    }
    checked.check(checked.stdout.ends_with("2 files, 0 B, 5 keys hidden\n"), "a summary");
    let point = checked.stdout.contains("another folder below the mount point");
    checked.check(point && !checked.stdout.contains("destination"), "there is none");
    let mounted = Mounted::new(&origin, &[]);
    let names: Vec<String> = files(&mounted.point).into_keys().collect();
    assert_eq!(names, ["a", "fine"]);
    let marked = fs::read_dir(mounted.at("e")).expect("a folder of its own").count();
    assert_eq!(marked, 0);
}

#[test]
fn an_object_that_changes_is_stale_and_never_mixed() {
    if !can_mount() {
        return;
    }
    let mut objects = Objects::new();
    objects.insert("d/changes".to_owned(), vec![1; 30_000_000]);
    objects.insert("d/stays".to_owned(), vec![2; 10_000]);
    let origin = serve(&objects);
    let mounted = Mounted::new(&origin, &["--memory", "8M"]);
    let file = File::open(mounted.at("changes")).expect("it opens");
    let mut first = vec![0; 4096];
    file.read_exact_at(&mut first, 0).expect("the old bytes");
    assert!(first.iter().all(|byte| *byte == 1));
    origin.put_object(&object("d/changes", vec![3; 30_000_000])).expect("room");
    let mut last = vec![0; 4096];
    let error = file.read_exact_at(&mut last, 29_990_000).expect_err("another version");
    assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()), "{error}");
    // What the kernel has is of the old version, as before.
    file.read_exact_at(&mut first, 0).expect("the old bytes");
    assert!(first.iter().all(|byte| *byte == 1));
    assert_eq!(fs::read(mounted.at("stays")).expect("another object"), vec![2; 10_000]);
}

#[test]
fn a_server_that_is_gone_fails_reads_in_time_and_is_reported_once() {
    if !can_mount() {
        return;
    }
    let mut objects = Objects::new();
    objects.insert("d/a".to_owned(), vec![1; 30_000_000]);
    let origin = serve(&objects);
    let words = ["--deadline", "2s", "--memory", "8M"];
    let mut mounted = Mounted::new(&origin, &words);
    origin.stop();
    let file = File::open(mounted.at("a")).expect("no request");
    let mut bytes = [0; 100];
    let (sender, receiver) = std::sync::mpsc::channel();
    let reads = std::thread::spawn(move || {
        for at in [0, 20_000_000] {
            sender.send(file.read_exact_at(&mut bytes, at)).expect("somebody waits");
        }
    });
    for _ in 0..2 {
        let read = receiver.recv_timeout(Duration::from_secs(50)).expect("an end");
        let error = read.expect_err("nobody answers");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
    }
    reads.join().expect("no panic");
    let running = mounted.running();
    running.signal(Signal::INT);
    let run = running.wait().expect(130);
    let lines = run.stderr.lines().filter(|line| line.contains("read s3://lab/d/a"));
    run.check(lines.count() == 1, "one line of the file");
}

#[test]
fn it_ends_when_somebody_unmounts() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![1; 10])]);
    let origin = serve(&objects);
    for by_program in [false, true] {
        let mut mounted = Mounted::new(&origin, &[]);
        match by_program {
            true => drop(Program::new(["unmount"]).with([&mounted.point]).run().expect(0)),
            false => {
                let done = Command::new("umount").arg(&mounted.point).status().expect("umount");
                assert!(done.success());
            }
        }
        let run = mounted.running().wait().expect(0);
        run.check(run.stderr.is_empty(), "nothing was to be said");
        assert_eq!(in_table(&mounted.point), None);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["is not mounted", "findmnt"];
    Program::new(["unmount"]).with([folder.path()]).run().expect(5).expect_error(&words);
}

#[test]
fn a_later_mount_at_the_same_place_stays() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![1; 10])]);
    let origin = serve(&objects);
    for transport in ["device", "auto"] {
        let mut first = Mounted::new(&origin, &["--fuse", transport]);
        let open = fs::File::open(first.at("a")).expect("it is there");
        Program::new(["unmount"]).with([&first.point]).run().expect(0);
        let ready = first.folder.path().join("later");
        let later = program(&origin, &["--foreground"]).with([&first.point]);
        let mut later = later.with(["--ready-file".as_ref(), ready.as_os_str()]).start();
        if !later.until(|| ready.exists()) {
            panic!("{}", later.wait());
        }
        // With its last file the first one ends.
        drop(open);
        drop(first.running().wait().expect(0));
        check_files(&first.point, &objects);
        Program::new(["unmount"]).with([&first.point]).run().expect(0);
        drop(later.wait().expect(0));
    }
}

#[test]
fn what_a_kill_leaves_is_unmounted() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![1; 10])]);
    let origin = serve(&objects);
    let mut mounted = Mounted::new(&origin, &[]);
    let running = mounted.running();
    running.signal(Signal::KILL);
    drop(running.wait().expect_killed(Signal::KILL));
    let error = fs::read_dir(&mounted.point).expect_err("nobody answers");
    // The second is of a request that the end of the process met on the way.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    assert!(error.raw_os_error().is_some_and(|number| gone.contains(&number)), "{error}");
    let again = program(&origin, &[]).with([&mounted.point]);
    again.run().expect(5).expect_words(&["whose process is gone", "inrush unmount"]);
    Program::new(["unmount"]).with([&mounted.point]).run().expect(0);
    assert_eq!(fs::read_dir(&mounted.point).expect("the folder below").count(), 0);
}

#[test]
fn in_the_background_it_serves_when_the_command_has_ended() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![7; 100_000])]);
    let origin = serve(&objects);
    let folder = tempfile::tempdir().expect("a folder");
    let point = folder.path().join("m");
    fs::create_dir(&point).expect("a folder");
    let run = program(&origin, &[]).with([&point]).run().expect(0);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "nothing was to be said");
    assert_eq!(fs::read(point.join("a")).expect("it serves"), vec![7; 100_000]);
    program(&origin, &[])
        .with([&point])
        .run()
        .expect(5)
        .expect_words(&["mounted by inrush already"]);
    Program::new(["unmount"]).with([&point]).run().expect(0);
    assert_eq!(in_table(&point), None);
    // What is wrong is said by the command itself.
    let missing = Program::new(["mount", "s3://lab/nothing/"]).with([&point]);
    let missing = missing.asking(&origin).with_keys(ACCESS_KEY, SECRET).run();
    missing.check(missing.status.code() == Some(4), "not found");
    missing.check(missing.stderr.starts_with("error: "), "and why");
    assert_eq!(in_table(&point), None);
}

#[test]
fn keys_of_two_sources_are_distinguished_from_those_without_a_name() {
    if !can_mount() {
        return;
    }
    let keys = ["d/a", "d/b", "e/a", "e/c"];
    let objects: Objects = keys.iter().map(|key| ((*key).to_owned(), Vec::new())).collect();
    let origin = serve(&objects);
    let checked = talking(&origin, &["--check", "s3://lab/e/"]).run().expect(0);
    let is_reported = checked.stdout.contains("/a: another source has the same name");
    checked.check(is_reported && checked.stdout.ends_with("3 files, 0 B, 1 key hidden\n"), "which");
    let mut mounted = Mounted::of(&origin, talking(&origin, &["s3://lab/e/"]));
    assert_eq!(files(&mounted.point).len(), 3);
    let running = mounted.running();
    running.signal(Signal::INT);
    let run = running.wait().expect(130);
    run.check(!run.stderr.contains("cannot be names"), "all are names");
    run.check(!run.stderr.contains("error"), "a signal is a usual end");
    run.expect_words(&[
        "1 key is hidden because another source has the same name: see inrush mount --check",
        "interrupted\n",
    ]);
}

#[test]
fn what_cannot_be_written_is_reported_instead_of_the_mount() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![1; 10])]);
    let origin = serve(&objects);
    let folder = tempfile::tempdir().expect("a folder");
    for words in [
        ["--foreground", "--ready-file", "/nowhere/ready"],
        ["--explain", "--log-file", "/nowhere/log"],
    ] {
        let run = talking(&origin, &words).with([folder.path()]).run().expect(5);
        run.expect_error(&[words[2]]);
        assert_eq!(in_table(folder.path()), None);
    }
}

#[test]
fn it_mounts_as_mount_calls_it() {
    if !can_mount() {
        return;
    }
    let objects = Objects::from([("d/a".to_owned(), vec![7; 1000])]);
    let origin = serve(&objects);
    let folder = tempfile::tempdir().expect("a folder");
    let (point, helper) = (folder.path().join("m"), folder.path().join("mount.inrush"));
    fs::create_dir(&point).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_inrush"), &helper).expect("a link");
    let options =
        format!("rw,noexec,nodev,mode=555,endpoint_url={},region=us-east-1", origin.url());
    let mount = |words: &[&str]| {
        Program::new(["s3://lab/d/"])
            .with([&point])
            .with(words)
            .with(["-o", &options, "-t", "fuse.inrush"])
            .with_keys(ACCESS_KEY, SECRET)
            .set("HELPER", &helper)
            .by_way_of(["sh", "-c", "exec \"$HELPER\" \"$@\""])
            .run()
    };
    mount(&["-f", "-s"]).expect(0);
    assert_eq!(in_table(&point), None, "nothing is mounted");
    mount(&["-N", "/proc/1/ns/mnt"]).expect(2).expect_error(&["-N /proc/1/ns/mnt", "nsenter"]);
    // In the background, by another process that is called the same.
    mount(&["-n", "-s"]).expect(0);
    assert_eq!(fs::read(point.join("a")).expect("it serves"), vec![7; 1000]);
    assert!(is_noexec(&point));
    Program::new(["unmount"]).with([&point]).run().expect(0);
}

#[test]
fn nothing_is_executed_where_that_is_said() {
    if !can_mount() {
        return;
    }
    let script = b"#!/bin/sh\nexit 7\n".to_vec();
    let origin = serve(&Objects::from([("d/a".to_owned(), script)]));
    // Over io_uring, where the kernel has it, as from the device.
    for transport in ["auto", "device"] {
        for noexec in [false, true] {
            let mut words = vec!["--mode", "555", "--fuse", transport];
            words.extend(noexec.then_some("--noexec"));
            let mounted = Mounted::new(&origin, &words);
            assert_eq!(is_noexec(&mounted.point), noexec);
            let ran = Command::new(mounted.at("a")).status();
            match noexec {
                false => assert_eq!(ran.expect("it starts").code(), Some(7)),
                true => {
                    let refused = ran.expect_err("it may not").kind();
                    assert_eq!(refused, ErrorKind::PermissionDenied);
                }
            }
        }
    }
}

/// Whether the kernel lets nothing be executed there.
fn is_noexec(point: &Path) -> bool {
    let space = rustix::fs::statvfs(point).expect("a file system");
    space.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
}
