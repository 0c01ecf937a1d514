//! Channels in FastFile mode: mounted before the command starts, and nothing is left of them.

use std::fs;
use std::path::{Path, PathBuf};

use inrush_origin::Operation::GetObject;
use inrush_origin::{Config, Fault, FaultPlan, Match, Origin};
use rustix::process::Signal;

use crate::fuse::{can_mount, in_table, unmount_lazily};
use crate::matrix::Objects;
use crate::program::Run;
use crate::served::{config, serve, start};
use crate::{INPUT_FAILED, INTERRUPTED, MIB, Stage, objects, runs, soon};

/// A mount of a test that fails.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        unmount_lazily(&self.0);
    }
}

fn stage() -> (Stage, Cleared) {
    let stage = Stage::new();
    let point = stage.data("t");
    (stage, Cleared(point))
}

const FAST: [&str; 2] = ["--channel", "t=s3://lab/t/,mode=FastFile"];
/// Options with which a read that does not come fails soon.
const SOON: [&str; 4] = ["--max-attempts", "2", "--retry-for", "0s"];

/// Serves objects of which `t/z` cannot be had.
fn broken(all: &Objects, fault: Fault) -> Origin {
    let (operation, key) = (Some(GetObject), Some("t/z".to_owned()));
    let when = Match { operation, key, ..Match::default() };
    start(Config { faults: FaultPlan::none().with_rule(when, fault), ..config(all) })
}

#[track_caller]
fn gone(run: &Run, point: &Path) {
    run.check(in_table(point).is_none(), "the mount is left");
    let left = fs::read_dir(point).map(Iterator::count);
    run.check(left.is_ok_and(|left| left == 0), "something is in the folder below the mount");
}

#[test]
fn files_are_there_before_the_command_and_gone_after_it() {
    if !can_mount() {
        return;
    }
    let all = objects(&[
        ("t/a", 3 * MIB + 5),
        ("t/b/c", 7),
        ("t/empty", 0),
        ("t/b/large", 9 * MIB + 1),
        ("f/x", 12),
        ("p/y", MIB),
    ]);
    let origin = serve(&all);
    let (stage, _cleared) = stage();
    let words = ["--channel", "f=s3://lab/f/", "--channel", "p=s3://lab/p/,mode=Pipe"];
    let words = [&FAST[..], &words].concat();
    let script = "cp -r $d/t $d/f $o && cat $d/p_0 > $o/p && cp /proc/mounts $o/mounts && \
                  cp $d/../config/inputdataconfig.json $d/t-manifest $o && \
                  ls -l /proc/self/fd > $o/descriptors && \
                  if echo x > $d/t/new; then exit 3; fi; true";
    let run = stage.end(stage.shell(&origin, &words, script).start(), 0);
    for (key, bytes) in &all {
        let path = stage.base().join("output/data").join(key.replace("p/y", "p"));
        run.check(fs::read(path).is_ok_and(|read| read == *bytes), key);
    }
    let point = stage.data("t");
    let line = format!("s3://lab/t/ {} fuse.inrush ro,", point.display());
    run.check(stage.output("mounts").lines().any(|mount| mount.starts_with(&line)), &line);
    // As SageMaker writes it: the channel is a folder all the same.
    let config: serde_json::Value =
        serde_json::from_str(&stage.output("inputdataconfig.json")).expect("JSON");
    assert_eq!(config["t"]["TrainingInputMode"], "File");
    assert_eq!(stage.output("t-manifest").lines().count(), 5);
    run.check(!stage.output("descriptors").contains("/dev/fuse"), "the command has the device");
    gone(&run, &point);
}

#[test]
fn hosts_see_their_parts_under_the_paths_of_file_mode() {
    if !can_mount() {
        return;
    }
    let names: Vec<String> = (0..9).map(|number| format!("t/part-{number}/x")).collect();
    let keys: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 10)).collect();
    let origin = serve(&objects(&keys));
    let seen = |mode: &str, host: &str| {
        let (stage, _cleared) = stage();
        // Not a whole name of a folder: so the paths begin with the rest of it.
        let channel = format!("t=s3://lab/t/part,mode={mode}");
        let words = ["--channel", &channel, "--shard", host, "--quiet"];
        let script = "cd $d/t && find . -type f | sort";
        stage.end(stage.shell(&origin, &words, script).start(), 0).stdout.clone()
    };
    let [first, second] = ["0/2", "1/2"].map(|host| {
        let fast = seen("FastFile", host);
        assert_eq!(fast, seen("File", host));
        fast
    });
    assert_eq!((first.lines().count(), second.lines().count()), (5, 4));
    assert!(first.lines().all(|line| !second.contains(line)), "{first}{second}");
}

#[test]
fn a_check_mounts_nothing() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects(&[("t/a", 1000), ("t/b", 500)]));
    let (stage, _cleared) = stage();
    let run = stage.train(&origin, &[&FAST[..], &["--check"]].concat()).run().expect(0);
    let line = "channel t: FastFile, 2 objects, 1.50 kB; mounted before COMMAND; s3://lab/t/";
    run.check(run.stdout.lines().next() == Some(line), line);
    // It needs no disk.
    run.check(run.stdout.contains("disk: 0 B needed"), "nothing is stored");
    assert!(!stage.base().exists(), "nothing was made");
    assert_eq!(origin.stats().gets, 0);
}

#[test]
fn a_read_that_fails_ends_the_command() {
    if !can_mount() {
        return;
    }
    let all = objects(&[("t/a", 10), ("t/z", MIB)]);
    let words = [&FAST[..], &SOON[..]].concat();
    // One goes on, others end at once with a code of their own.
    for after in ["while :; do sleep 0.02; done", "exit 0", "exit 3"] {
        let origin = broken(&all, Fault::ResetAfter { bytes: 0 });
        let (stage, _cleared) = stage();
        let script = format!("echo $$ > $o/pid; cat $d/t/a $d/t/z > $o/read; {after}");
        let run = stage.end(stage.shell(&origin, &words, &script).start(), INPUT_FAILED);
        let run = run.expect_words(&["error: channel t: read s3://lab/t/z"]);
        let failure = stage.failure().expect("it says why");
        run.check(failure.starts_with("channel t: read s3://lab/t/z"), &failure);
        let read = fs::read(stage.base().join("output/data/read"));
        run.check(read.is_ok_and(|read| read == all["t/a"]), "the other file");
        gone(&run, &stage.data("t"));
        soon("the command has ended", || !runs(&stage.output("pid")));
    }
}

#[test]
fn one_that_waits_for_a_read_can_be_killed() {
    if !can_mount() {
        return;
    }
    let origin = broken(&objects(&[("t/z", MIB)]), Fault::StallBeforeHead { duration: None });
    let (stage, _cleared) = stage();
    let words = [&FAST[..], &["--grace", "300ms", "--quiet"]].concat();
    // The kernel lets no signal end a read like this one.
    let script = "echo $$ > $o/pid; exec dd if=$d/t/z of=/dev/null bs=64k iflag=direct";
    let mut running = stage.shell(&origin, &words, script).start();
    let pid = stage.until_output(&mut running, "pid");
    assert!(running.until(|| origin.stats().gets > 0), "it reads");
    running.signal(Signal::TERM);
    // By the first of both signals, which it could not see before.
    let run = stage.end(running, 128 + Signal::TERM.as_raw());
    gone(&run, &stage.data("t"));
    soon("the command has ended", || !runs(&pid));
}

#[test]
fn without_a_command_it_serves_until_a_signal_comes() {
    if !can_mount() {
        return;
    }
    let all = objects(&[("t/a", MIB)]);
    let origin = serve(&all);
    let (stage, _cleared) = stage();
    let mut running = stage.train(&origin, &FAST).start();
    assert!(running.until(|| fs::read(stage.data("t/a")).is_ok_and(|read| read == all["t/a"])));
    running.signal(Signal::TERM);
    let run = stage.end(running, INTERRUPTED).expect_words(&["interrupted: all mounts are"]);
    gone(&run, &stage.data("t"));
}

#[test]
fn what_a_kill_leaves_is_removed_by_the_next_run() {
    if !can_mount() {
        return;
    }
    let all = objects(&[("t/a", MIB)]);
    let origin = serve(&all);
    let (stage, _cleared) = stage();
    for mode in ["FastFile", "File"] {
        let mut running = stage.train(&origin, &FAST).start();
        assert!(running.until(|| stage.data("t/a").exists()));
        running.signal(Signal::KILL);
        drop(running.wait().expect_killed(Signal::KILL));
        let error = fs::read_dir(stage.data("t")).expect_err("nobody answers");
        assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{error}");
        let channel = format!("t=s3://lab/t/,mode={mode}");
        let words = ["--channel", &channel, "--quiet"];
        let run = stage.end(stage.shell(&origin, &words, "cp $d/t/a $o/a").start(), 0);
        let read = fs::read(stage.base().join("output/data/a"));
        run.check(read.is_ok_and(|read| read == all["t/a"]), "its bytes");
        run.check(in_table(&stage.data("t")).is_none(), "a mount is left");
    }
}

#[test]
fn somebody_who_unmounts_it_ends_the_command() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects(&[("t/a", 10)]));
    let (stage, _cleared) = stage();
    let script = "umount $d/t; while :; do sleep 0.02; done";
    let run = stage.end(stage.shell(&origin, &FAST, script).start(), INPUT_FAILED);
    run.expect_words(&["error: channel t: somebody has unmounted it"]);
}

#[test]
fn where_nothing_can_be_mounted_no_byte_moves() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects(&[("t/a", MIB), ("f/a", MIB)]));
    // As in a container without the device: a mount of this run's own, gone with it.
    let hide = "mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse && \
                exec \"$@\"";
    let words = [&FAST[..], &["--channel", "f=s3://lab/f/"]].concat();
    for (more, code) in [(&["--check"][..], 7), (&["--", "echo", "started"], INPUT_FAILED)] {
        let (stage, _cleared) = stage();
        let run = stage.train(&origin, &words).with(more);
        let run = run.by_way_of(["unshare", "--mount", "sh", "-c", hide, "sh"]).run().expect(code);
        let run = run.expect_words(&[
            "error: FUSE file systems cannot be mounted here: open /dev/fuse: Permission denied",
            "--device /dev/fuse",
        ]);
        run.check(run.stdout.is_empty(), "nothing is started");
    }
    assert_eq!(origin.stats().gets, 0);
}

#[test]
fn what_a_run_has_read_whole_is_not_requested_by_the_next_one() {
    if !can_mount() {
        return;
    }
    let all = objects(&[("t/a", 3 * MIB + 5), ("t/b/c", 7), ("t/empty", 0), ("u/x", MIB)]);
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let words =
        ["--channel", "u=s3://lab/u/,mode=FastFile", "--cache", cache.to_str().expect("UTF-8")];
    let words = [&FAST[..], &words, &["--cache-size", "1GB"]].concat();
    // Of both channels, and of folders of their own.
    let counts = |more: &[&str]| {
        let (stage, _cleared) = stage();
        let _other = Cleared(stage.data("u"));
        let words = [&words[..], more].concat();
        let run = stage.end(stage.shell(&origin, &words, "cp -r $d/t $d/u $o").start(), 0);
        for (key, bytes) in &all {
            let read = fs::read(stage.base().join("output/data").join(key));
            run.check(read.is_ok_and(|read| read == *bytes), key);
        }
        run
    };
    counts(&[]).expect_words(&["cache: 0 of 4 open files read from it; 3 objects kept, 4.19 MB"]);
    let before = origin.stats().gets;
    assert!(before > 0, "the first run has requested all");
    let run = counts(&["--json", "--quiet"]);
    assert_eq!(origin.stats().gets, before, "nothing is requested");
    let summary: serde_json::Value = serde_json::from_str(&run.stderr).expect("JSON");
    assert_eq!(
        (&summary["cache"]["hits"], &summary["cache"]["misses"]),
        (&3.into(), &1.into()),
        "{summary}"
    );
}

#[test]
fn a_cache_that_takes_nothing_more_ends_no_command() {
    if !can_mount() {
        return;
    }
    let all = objects(&[("t/a", MIB), ("t/b", 10)]);
    let origin = serve(&all);
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().to_str().expect("UTF-8");
    let (stage, _cleared) = stage();
    // A mount of this run's own, which becomes read-only.
    let bind = format!("mount --bind '{cache}' '{cache}' && exec \"$@\"");
    let script = format!("mount -o remount,bind,ro '{cache}' && cp $d/t/a $d/t/b $o");
    let run = stage.shell(&origin, &[&FAST[..], &["--cache", cache]].concat(), &script);
    let run = run.by_way_of(["unshare", "--mount", "sh", "-c", &bind, "sh"]).start();
    let line = format!("error: --cache {cache}: nothing more is kept there: Read-only file system");
    let run = stage.end(run, 0).expect_words(&[&line, "0 objects kept"]);
    for (key, bytes) in &all {
        let read = fs::read(stage.base().join("output/data").join(&key[2..]));
        run.check(read.is_ok_and(|read| read == *bytes), key);
    }
}

#[test]
fn a_folder_that_cannot_be_a_cache_is_refused_before_the_command() {
    if !can_mount() {
        return;
    }
    let origin = serve(&objects(&[("t/a", MIB)]));
    let (stage, _cleared) = stage();
    let words = [&FAST[..], &["--cache", "/proc/inrush"]].concat();
    let run = stage.end(stage.shell(&origin, &words, "echo started").start(), INPUT_FAILED);
    let run = run.expect_words(&["error: --cache /proc/inrush: cannot open it"]);
    run.check(run.stdout.is_empty(), "it was started");
    assert!(stage.failure().is_some_and(|failure| failure.starts_with("--cache /proc/inrush")));
    assert_eq!(origin.stats().gets, 0);
}
