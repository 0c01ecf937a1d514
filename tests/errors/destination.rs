//! Destinations that cannot take the bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

use inrush_origin::Operation::{GetObject, ListObjects};
use inrush_origin::{Fault, FaultPlan, Match, SyntheticSet};

use crate::matrix::{Objects, bytes_of};
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, BUCKET, SECRET, config, get, serve, start};
use crate::without::without;
use crate::{DESTINATION, Nowhere, USAGE, names, objects};

const MIB: usize = 1 << 20;

/// Fails unless every file below the folder is one of these objects, whole.
#[track_caller]
fn assert_all_whole(folder: &Path, objects: &Objects) -> usize {
    let names = names(folder);
    for name in &names {
        let bytes = fs::read(folder.join(name)).expect("a file");
        assert_eq!(Some(&bytes), objects.get(name), "{name} is not whole");
    }
    names.len()
}

/// Fails unless the run ended for want of `what`, with at most one error of each worker.
#[track_caller]
fn expect_full(run: Run, what: &str) -> Run {
    let run = run.expect(DESTINATION);
    let full = |line: &str| {
        line.starts_with("error: s3://lab/")
            && line.contains("o space left on device (os error 28); ")
            && line.contains(what)
    };
    let is_rest = |line: &&str| line.contains(" objects were not completed, because this ended");
    let rest = run.stderr.lines().filter(is_rest).count();
    let errors = run.stderr.lines().filter(|line| !is_rest(line));
    run.check(errors.clone().all(full), "only errors of a full disk were expected");
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    run.check((1..=workers).contains(&errors.count()) && rest <= 1, "one line for each worker");
    run
}

/// `count` objects of 100 bytes each.
fn small(count: usize) -> Objects {
    (0..count).map(|n| format!("{n:04}")).map(|key| (key.clone(), bytes_of(&key, 100))).collect()
}

#[test]
fn what_stands_in_the_way_of_a_file_is_reported_before_its_bytes_come() {
    let keys = [("p/file", 2 * MIB), ("p/folder/a", 2 * MIB), ("p/good", 3)];
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("file")).expect("a folder");
    fs::write(folder.path().join("folder"), "x").expect("a file");
    let path = folder.path().to_str().expect("UTF-8");
    let expected = format!("s3://lab/p/file: create {path}/file: ");
    let above = format!("s3://lab/p/folder/a: open folder {path}/folder: ");
    for options in [&[][..], &["--overwrite", "always"], &["--overwrite", "never"]] {
        let origin = serve(&objects(&keys));
        let run = get(&origin, ["s3://lab/p/", path]).with(options).run().expect(1);
        let run = run.expect_words(&[&expected, "a file and a folder"]);
        run.expect_words(&[&above, "exclude the key"]);
        assert!(origin.stop().gets <= 1, "the third alone was asked for");
        let origin = serve(&objects(&keys));
        let run = get(&origin, ["--dry-run", "s3://lab/p/", path]).with(options).run().expect(1);
        run.expect_words(&[&expected]);
        let run = get(&origin, ["s3://lab/p/file", path]).with(options).run().expect(DESTINATION);
        run.expect_words(&[&expected]);
        assert_eq!(origin.stop().gets, 0);
    }
    assert_eq!(names(folder.path()), ["file", "folder", "good"]);
}

/// Starts a program in this folder, and by way of another.
fn starting_in(folder: &Path, before: &[String]) -> Vec<String> {
    let shell = ["sh", "-c", "cd \"$0\" && exec \"$@\"", folder.to_str().expect("UTF-8")];
    shell.into_iter().map(str::to_owned).chain(before.iter().cloned()).collect()
}

#[test]
fn errors_name_a_file_below_the_destination_as_it_was_typed() {
    let (small, large) = (objects(&[("p/a", 3)]), objects(&[("p/a", 20 * MIB)]));
    let each = ["--durability", "file"];
    for (call, all, options, expected) in [
        ("pwrite64:5", &small, &[][..], "write"),
        ("linkat:5", &small, &[], "name"),
        ("fsync:5", &small, &each, "sync"),
        ("fallocate:5", &large, &[], "allocate"),
        ("pwrite64:5", &large, &["--ring", "epoll", "--no-resume"], "write"),
        ("linkat:5", &large, &["--no-resume"], "name"),
        ("renameat:5", &large, &[], "name"),
        ("fsync:5", &large, &each, "sync"),
    ] {
        let Some(before) = without(call) else { return };
        let origin = serve(all);
        for (source, typed, place) in [
            ("s3://lab/p/", "out/deep", "out/deep/a"),
            ("s3://lab/p/", "./out/", "./out/a"),
            ("s3://lab/p/", ".", "./a"),
            ("s3://lab/p/a", "b", "b"),
            ("s3://lab/p/a", "../b", "../b"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let from = folder.path().join("from");
            fs::create_dir(&from).expect("a folder");
            let program = get(&origin, [source, typed]).with(options);
            let run = program.by_way_of(starting_in(&from, &before)).run().expect(DESTINATION);
            let words = format!("error: s3://lab/p/a: {expected} {place}: ");
            run.expect_words(&[&words, "os error 5"]);
        }
    }
}

#[test]
fn what_cannot_be_removed_or_synced_is_named_as_it_was_typed() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = serve(&objects(&[("p/a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("out/kept");
    fs::create_dir_all(&kept).expect("a folder");
    fs::write(kept.join("extra"), "x").expect("a file");
    let permit = |mode| fs::set_permissions(&kept, fs::Permissions::from_mode(mode));
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &UNPRIVILEGED[..] } else { &["env"] };
    let before: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
    let before = starting_in(folder.path(), &before);
    for (mode, expected) in
        [(0o555, "cannot remove out/kept/extra: "), (0o000, "cannot open out/kept: ")]
    {
        permit(mode).expect("it is ours");
        let sync = crate::program::Program::new(["sync", "--quiet", "--delete", "s3://lab/p/"]);
        let sync = sync.with(["out"]).asking(&origin);
        let sync = sync.with_keys(crate::served::ACCESS_KEY, crate::served::SECRET);
        let run = sync.by_way_of(&before).run().expect(DESTINATION);
        run.expect_words(&[expected, "Permission denied"]);
    }
    permit(0o755).expect("it is ours");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn a_file_is_no_place_for_a_folder() {
    let origin = serve(&objects(&[("folder/a", 3), ("folder/b", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "as it was").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let into = format!("{file}/");
    let below = format!("{file}/below");
    for words in [
        &["s3://lab/folder/", file][..],
        &["s3://lab/folder", file],
        &["s3://lab/**", file],
        &["s3://lab/folder/a", "s3://lab/folder/b", file],
    ] {
        let run = get(&origin, words).run();
        run.expect(DESTINATION).expect_error(&[file, "is a file, not a folder; give a folder"]);
    }
    for words in
        [["s3://lab/folder/a", &into], ["s3://lab/folder/", &below], ["s3://lab/folder/a", &below]]
    {
        get(&origin, words)
            .run()
            .expect(DESTINATION)
            .expect_error(&[file, "file is a file, not a folder; give a folder"]);
    }
    assert_eq!(fs::read(file).expect("a file"), b"as it was");
    assert_eq!(names(folder.path()), ["file"]);
    assert_eq!(origin.stop().gets, 0);
}

#[test]
fn what_is_no_ordinary_file_is_not_replaced() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
    for path in [&pipe, &link] {
        let run = get(&origin, ["s3://lab/a"]).with([path]).run();
        run.expect(DESTINATION).expect_error(&["not a regular file", "--discard"]);
    }
    // So in a folder; the other objects have their files.
    let all = serve(&objects(&[("d/pipe", 3), ("d/x", 3)]));
    for verb in [&["get"][..], &["get", "--overwrite", "always"], &["sync", "--delete"]] {
        let run = Program::new(verb).asking(&all).with_keys(ACCESS_KEY, SECRET);
        let run = run.with(["s3://lab/d/"]).with([folder.path()]).run();
        run.expect(1).expect_words(&["s3://lab/d/pipe", "pipe is not a regular file"]);
    }
    use std::os::unix::fs::FileTypeExt as _;
    assert!(fs::symlink_metadata(&pipe).expect("it is there").file_type().is_fifo());
    assert!(link.is_symlink());
    assert_eq!(names(folder.path()), ["link", "pipe", "x"]);
}

/// Standard output of these runs is a regular file. No path of the test is one that a program
/// which replaced it would really take from the machine.
#[test]
fn the_names_of_standard_output_are_not_replaced() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/stdout", &link).expect("a link");
    let second = folder.path().join("second");
    std::os::unix::fs::symlink("link", &second).expect("a link");
    for path in [&link, &second, Path::new("/proc/self/fd/1"), Path::new("/dev/fd/1")] {
        for options in [&[][..], &["--overwrite", "always"]] {
            let run = get(&origin, ["s3://lab/a"]).with([path]).with(options).run();
            let words = ["is standard output; use inrush cat SOURCE"];
            run.expect(DESTINATION).expect_error(&words);
        }
    }
    let error = folder.path().join("error");
    std::os::unix::fs::symlink("/dev/fd/2", &error).expect("a link");
    let run = get(&origin, ["s3://lab/a"]).with([&error]).run();
    run.expect(DESTINATION).expect_error(&["error is in /proc; choose another destination"]);
    let run = get(&origin, ["s3://lab/a", "/dev/inrush/deep/"]).run();
    run.expect(DESTINATION).expect_error(&["is in /dev; choose another destination"]);
    assert_eq!(origin.stop().gets, 0);
    assert!(link.is_symlink() && second.is_symlink() && error.is_symlink());
}

#[test]
fn a_link_to_a_file_is_replaced_and_its_target_stays() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("target");
    fs::write(&target, "as it was").expect("a file");
    for (name, leads_to) in [("link", "target"), ("dangling", "nowhere")] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(leads_to, &link).expect("a link");
        get(&origin, ["s3://lab/a"]).with([&link]).run().expect(0);
        assert!(!link.is_symlink());
        assert_eq!(fs::read(&link).expect("a file"), bytes_of("a", 3));
    }
    assert_eq!(fs::read(&target).expect("a file"), b"as it was");
    assert_eq!(names(folder.path()), ["dangling", "link", "target"]);
}

/// A process that permissions bind, as they bind all users but root.
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

#[test]
fn a_folder_without_permission_is_reported_before_any_byte() {
    use std::os::unix::fs::PermissionsExt as _;
    let all = objects(&[("p/a", 3), ("p/b", 2 * MIB), ("p/sub/c", 3), ("q/sub/d", 3)]);
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ro");
    fs::create_dir_all(path.join("sub")).expect("a folder");
    let permit = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    permit(0o555).expect("it is ours");
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &UNPRIVILEGED[..] } else { &["env"] };
    let run =
        |words: &[&str], place: &Path| get(&origin, words).with([place]).by_way_of(before).run();
    for place in [path.clone(), path.join("new"), path.join("b")] {
        let source = if place.ends_with("b") { "s3://lab/p/b" } else { "s3://lab/p/" };
        let words = format!("cannot write to {}: Permission denied", path.display());
        let words = [words.as_str(), "; choose a writable destination"];
        run(&[source], &place).expect(DESTINATION).expect_error(&words);
        // A plan writes nothing.
        let planned = run(&["--dry-run", source], &place).expect(0).expect_words(&words);
        planned.check(planned.stderr.starts_with("warning: "), "a warning was expected");
        planned.check(planned.stdout.contains("(dry run) get: s3://lab/p/b"), "a plan");
    }
    assert_eq!(origin.stats().gets, 0, "no object is asked for");
    // What goes to another folder is none of its business, and what is there needs no writing.
    run(&["s3://lab/q/"], &path).expect(0);
    run(&["s3://lab/q/"], &path).expect(0);
    run(&["--dry-run", "s3://lab/q/"], &path).expect(0);
    permit(0o755).expect("it is ours");
    assert_eq!(names(&path), ["sub"]);
}

#[test]
fn files_that_are_not_trusted_are_named_where_they_cannot_be_replaced() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = serve(&objects(&[("p/a", 3), ("p/b", 9)]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ro");
    let run = |words: &[&str], before: &[&str]| {
        let words = [words, &["s3://lab/p/"]].concat();
        get(&origin, words).with([&path]).by_way_of(before).run()
    };
    run(&[], &["env"]).expect(0);
    // It is complete, but another name of a file may be another user's.
    fs::hard_link(path.join("a"), folder.path().join("other")).expect("a second name");
    let permit = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    permit(0o555).expect("it is ours");
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &UNPRIVILEGED[..] } else { &["env"] };
    let expected = ["cannot write to ", "have several names (hard links)", "with --size-only"];
    run(&[], before).expect(DESTINATION).expect_error(&expected);
    run(&["--dry-run"], before).expect(0).expect_words(&expected);
    // What is kept needs no writing.
    run(&["--size-only"], before).expect(0);
    permit(0o755).expect("it is ours");
    assert_eq!(names(&path), ["a", "b"]);
}

#[test]
fn a_folder_that_refuses_all_objects_is_reported_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let below: Vec<(String, usize)> = (0..30).map(|n| (format!("p/ro/{n:02}/x"), 3)).collect();
    let keys = below.iter().map(|(key, size)| (key.as_str(), *size));
    let keys: Vec<_> = [("p/a", 3)].into_iter().chain(keys).collect();
    let origin = serve(&objects(&keys));
    let folder = tempfile::tempdir().expect("a folder");
    let closed = folder.path().join("ro");
    fs::create_dir(&closed).expect("a folder");
    let permit = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode));
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &UNPRIVILEGED[..] } else { &["env"] };
    let expected = format!(": use folder {}: Permission denied (os error 13)", closed.display());
    // It cannot be written to, or nothing in it can be looked up.
    for mode in [0o555, 0o000] {
        permit(mode).expect("it is ours");
        // Where all that is to be fetched lies in that folder, that ends the run.
        let _ = fs::remove_file(folder.path().join("a"));
        let run = get(&origin, ["s3://lab/p/"]).with([folder.path()]).by_way_of(before).run();
        let verify = Program::new(["verify", "s3://lab/p/"]).with([folder.path()]).asking(&origin);
        let verify = verify.with_keys(ACCESS_KEY, SECRET).by_way_of(before);
        let verified = (mode == 0).then(|| verify.run());
        permit(0o755).expect("it is ours");
        if let Some(run) = verified {
            run.expect(1)
                .expect_words(&[&format!("29 more objects failed for the same{expected}")]);
        }
        let run = run.expect(1);
        run.check(
            run.stderr.matches("error: ").count() == 2,
            "an object, and the count of the rest",
        );
        let words = ["error: s3://lab/p/ro/", &expected, "choose a writable destination"];
        let run = run.expect_words(&words);
        run.expect_words(&[&format!("error: 29 more objects failed for the same{expected}")]);
        assert_eq!(names(folder.path()), ["a", "ro"]);
    }
}

#[test]
fn what_stands_where_the_destination_is_to_be_is_named() {
    let origin = serve(&objects(&[("p/a", 3), ("p/b", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    std::os::unix::fs::symlink("nowhere", &link).expect("a link");
    fs::write(&file, "as it was").expect("a file");
    let dangling =
        format!("{} is a symbolic link to nowhere, which does not exist", link.display());
    for (place, expected) in [
        (link.clone(), dangling.clone()),
        (link.join(""), dangling.clone()),
        (link.join("below"), dangling),
        (file.join("below"), format!("{} is a file, not a folder", file.display())),
        (
            folder.path().join("n".repeat(300)),
            "a name, or all of it, is too long for a path; choose".to_owned(),
        ),
    ] {
        for words in [&["s3://lab/p/"][..], &["--dry-run", "s3://lab/p/"]] {
            let run = get(&origin, words).with([&place]).run().expect(DESTINATION);
            let run = run.expect_words(&[&expected]);
            run.check(!run.stderr.contains("os error"), "it is said what it is");
        }
    }
}

#[test]
fn a_name_of_a_pipe_that_something_else_has_is_reported() {
    let origin = serve(&objects(&[("p/a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("train_0"), "as it was").expect("a file");
    let pipe = |place: &Path| {
        let program = Program::new(["pipe", "--quiet", "s3://lab/p/"]).with([place]);
        program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run()
    };
    let run = pipe(&folder.path().join("train")).expect(DESTINATION);
    run.expect_words(&[
        "train_0 exists and is not a named pipe; remove it or choose another channel name",
    ]);
    assert_eq!(fs::read(folder.path().join("train_0")).expect("a file"), b"as it was");
    pipe(Path::new("-")).expect(USAGE).expect_words(&["use inrush cat SOURCE"]);
}

#[test]
fn nobody_can_write_to_proc() {
    let origin = serve(&objects(&[("folder/a", 3)]));
    for (source, destination, named) in [
        ("s3://lab/folder/", "/proc/inrush", "/proc/inrush is in /proc"),
        ("s3://lab/folder/a", "/proc/inrush", "/proc/inrush is in /proc"),
        ("s3://lab/folder/a", "/proc/inrush/", "/proc/inrush/ is in /proc"),
        ("s3://lab/folder/", "/proc", "/proc is in /proc"),
    ] {
        let run = get(&origin, [source, destination]).run();
        run.expect(DESTINATION).expect_error(&[named]);
    }
}

#[test]
fn a_read_only_destination_is_reported() {
    let Some(mount) = Mount::tmpfs("size=8m") else { return };
    let there = mount.path().join("there");
    fs::create_dir(&there).expect("a folder");
    mount.make_read_only();
    let origin = serve(&objects(&[("folder/a", 3), ("folder/b", 2 * MIB), ("folder/c", 0)]));
    let missing = mount.path().join("missing");
    for (source, destination) in [
        ("s3://lab/folder/", &missing),
        ("s3://lab/folder/", &there),
        ("s3://lab/folder/a", &there),
        ("s3://lab/folder/b", &missing),
    ] {
        let run = get(&origin, [source]).with([destination]).run();
        run.expect(DESTINATION).expect_error(&["ead-only file system", "writable"]);
    }
    assert_eq!(names(mount.path()), ["there"]);
    // Nor can a pipe be made; the file that would have locked it is no matter of the user.
    let run = Program::new(["pipe", "--quiet", "s3://lab/folder/"]).with([there.join("train")]);
    let run = run.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(DESTINATION);
    let words = ["train: the folder is on a read-only file system", "remount it read-write"];
    let run = run.expect_words(&words);
    run.check(!run.stderr.contains(".lock"), "no lock file is named");
}

#[test]
fn what_cannot_fit_is_refused_before_the_first_byte() {
    let Some(mount) = Mount::tmpfs("size=4m") else { return };
    let origin = serve(&objects(&[("folder/a", 3), ("folder/b", 5 * MIB), ("folder/c", 0)]));
    let destination = mount.path().join("destination");
    for source in ["s3://lab/folder/", "s3://lab/folder/b"] {
        let run = get(&origin, [source]).with([&destination]).run();
        run.expect(DESTINATION).expect_error(&["free", "but the download needs at least"]);
    }
    assert!(names(mount.path()).is_empty());
    assert_eq!(origin.stop().gets, 0);
}

#[test]
fn a_disk_that_fills_up_keeps_what_is_whole() {
    // Small files take a page each, more than their sizes; large ones come last.
    let ways = [Some(Vec::new()), without("tmpfile").map(Vec::from)];
    for before in ways.into_iter().flatten() {
        fills_up(&before);
    }
}

/// Fills a disk, with files that begin without a name or, where that is forbidden, with one.
#[track_caller]
fn fills_up(before: &[String]) {
    let Some(mount) = Mount::tmpfs("size=2m") else { return };
    let mut all: Objects = small(700);
    all.extend(objects(&[("large", MIB + 5)]));
    let origin = serve(&all);
    let program = get(&origin, ["s3://lab/"]).with([mount.path()]);
    let run = expect_full(program.by_way_of(before).run(), "free space");
    let whole = assert_all_whole(mount.path(), &all);
    run.check(whole > 0 && whole < all.len(), &format!("{whole} objects are whole"));
}

#[test]
fn a_disk_without_room_for_names_keeps_what_is_whole() {
    let Some(mount) = Mount::tmpfs("size=8m,nr_inodes=50") else { return };
    let all: Objects = small(200);
    let origin = serve(&all);
    expect_full(get(&origin, ["s3://lab/"]).with([mount.path()]).run(), "free inodes (df -i)");
    assert!(assert_all_whole(mount.path(), &all) > 0);
}

#[test]
fn a_total_that_grows_beyond_the_disk_ends_the_run() {
    // The first page fits; the second, which comes late, does not.
    let Some(mount) = Mount::tmpfs("size=16m") else { return };
    let mut configuration = config(&Objects::new());
    let mut large = SyntheticSet::new(BUCKET, "z/", 1, 32 << 20);
    large.suffix = String::new();
    configuration.synthetic = vec![SyntheticSet::new(BUCKET, "a/", 1000, 1), large];
    let duration = Some(std::time::Duration::from_millis(300));
    let late = Match { operation: Some(ListObjects), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(late, Fault::StallBeforeHead { duration });
    let origin = start(configuration);
    let run = get(&origin, ["s3://lab/"]).with([mount.path()]).run();
    let run = run.expect(DESTINATION).expect_words(&["free, but the download needs at least"]);
    let rest = " objects were not completed, because this ended the run";
    run.check(run.stderr.lines().skip(1).all(|line| line.ends_with(rest)), "one error");
    assert!(!mount.path().join("z").join("000000").exists());
}

#[test]
fn a_report_that_cannot_be_written_is_reported_before_anything_moves() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    for report in ["/proc/inrush/report", "/proc"] {
        let words = ["s3://lab/", "--report", report];
        let run = get(&origin, words).with([nowhere.path()]).run();
        run.expect(DESTINATION).expect_error(&[report, "--report"]);
    }
    nowhere.assert_untouched();
    assert_eq!(origin.stop().gets, 0);
}

#[test]
fn a_report_on_a_full_disk_costs_no_objects() {
    let all = objects(&[("a", 3), ("b", 2 * MIB)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let run = get(&origin, ["s3://lab/", "--report", "/dev/full"]).with([nowhere.path()]).run();
    run.expect(DESTINATION).expect_error(&["write the report /dev/full"]);
    nowhere.assert_holds(&all);
}

#[test]
fn room_is_not_asked_for_when_nothing_is_written() {
    let origin = serve(&objects(&[("a", 3)]));
    get(&origin, ["s3://lab/", "--discard"]).run().expect(0);
    let when = Match { operation: Some(GetObject), ..Match::default() };
    let mut configuration = config(&Objects::new());
    configuration.faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    configuration.synthetic = vec![SyntheticSet::new(BUCKET, "huge/", 9, 1 << 53)];
    let nowhere = Nowhere::new();
    let run = get(&start(configuration), ["s3://lab/", "--dry-run"]).with([nowhere.path()]).run();
    let run = run.expect(0);
    run.check(run.stdout.lines().count() == 9, "nine lines were expected");
    nowhere.assert_untouched();
}

#[test]
fn a_report_that_breaks_in_the_middle_is_reported_once_and_by_the_exit_code() {
    let keys: Vec<String> = (0..3000).map(|number| format!("key-{number:0100}")).collect();
    let sizes: Vec<(&str, usize)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    let all = objects(&sizes);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let run = get(&origin, ["s3://lab/", "--report", "/dev/full"]).with([nowhere.path()]).run();
    let run = run.expect(DESTINATION).expect_error(&["write the report /dev/full"]);
    run.check(run.stderr.matches("write the report").count() == 1, "one error");
    nowhere.assert_holds(&all);
}
