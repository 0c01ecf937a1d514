//! What a reader that sleeps costs, and pipes that the kernel keeps small.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::reader::Reader;
use crate::served::serve;
use crate::{MIB, Stage, assert_read, objects, pipe, stream};

/// Most resident memory of a run, in KiB.
const RESIDENT_KIB_MAX: u64 = 300 * 1024;

/// How often it is looked whether a process is quiet.
const WINDOWS: usize = 3;

/// Processor time of a process, in clock ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).expect("a number");
    next() + next()
}

/// Fails unless some 3 s of the process take at most `most` ticks of 10 ms.
///
/// Connections still fill their pipes when it begins, how long depends on what else the machine
/// does; one that spins is never quiet.
#[track_caller]
fn assert_quiet(pid: u32, most: u64) {
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let before = ticks(pid);
        std::thread::sleep(Duration::from_secs(3));
        let spent = ticks(pid) - before;
        if spent <= most {
            return;
        }
        windows.push(spent);
    }
    panic!("{windows:?} ticks of 10 ms in 3 s each, none at most {most}");
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_reader_that_sleeps_costs_next_to_nothing() {
    let all = objects(&[("large", 100 * MIB), ("more", 20 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2"]);
    let pid = running.pid();
    let mut reader = Reader::start(&stage.channel("train"), &["sleep:1000000:10", "all"]);
    reader.until("asleep");
    // 1 % of a core, and a tick at each end.
    assert_quiet(pid, 5);
    let resident = resident_kib(pid);
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB resident");
    reader.finish().iter().for_each(|epoch| assert_read(epoch, &stream(&all)));
    stage.end(running, 0);
}

/// What deflate makes a thousand times longer takes no more memory than anything else.
#[test]
fn a_reader_that_sleeps_bounds_what_is_decompressed() {
    let zeros = crate::gzip::gzip(&vec![0; 64 * MIB]);
    assert!(zeros.len() < MIB);
    let all = (0..8).map(|number| (format!("{number}"), zeros.clone())).collect();
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--gunzip"]);
    let pid = running.pid();
    let mut reader = Reader::start(&stage.channel("train"), &["sleep:1000000:10"]);
    reader.until("asleep");
    assert_quiet(pid, 5);
    let resident = resident_kib(pid);
    assert!(resident < RESIDENT_KIB_MAX / 2, "{resident} KiB resident");
    reader.finish().iter().for_each(|epoch| assert_read(epoch, &vec![0; 8 * 64 * MIB]));
    let run = stage.end(running, 0);
    let backlog = run.json()["channels"][0]["backlog_bytes_max"].as_u64().expect("a number");
    run.check(backlog > 0 && backlog <= 36 << 20, "half of the stream's memory, and a few more");
}

#[test]
fn a_channel_that_nobody_opens_costs_next_to_nothing() {
    let all = objects(&[("large", 100 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "forever"]);
    let pid = running.pid();
    assert_quiet(pid, 8);
    running.signal(rustix::process::Signal::TERM);
    stage.end(running, crate::INTERRUPTED);
}

/// A user who owns nothing, and what to become that user by way of.
const USER: [&str; 4] = ["/usr/bin/setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];

/// Whether that user can run this. `setpriv` itself still has root's capabilities when it starts
/// something, so a shell does it.
fn can_run(words: &[&OsStr]) -> bool {
    let shell = ["/bin/sh", "-c", "exec \"$0\" \"$@\""];
    let tried = Command::new(USER[0]).args(&USER[1..]).args(shell).args(words).output();
    tried.is_ok_and(|output| output.status.success())
}

/// A folder with a copy of the program that everybody may run, and one that everybody may write
/// to: the clone and `TMPDIR` may lie where nobody else may look. `None` where that is nowhere.
fn places_for_everybody() -> Option<[TempDir; 2]> {
    let everybody = || <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    let bases = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
    bases.iter().find_map(|base| {
        let places = [tempfile::tempdir_in(base).ok()?, tempfile::tempdir_in(base).ok()?];
        let program = places[0].path().join("inrush");
        fs::copy(env!("CARGO_BIN_EXE_inrush"), &program).ok()?;
        for path in [places[0].path(), &program, places[1].path()] {
            fs::set_permissions(path, everybody()).ok()?;
        }
        can_run(&[program.as_os_str(), "--version".as_ref()]).then_some(places)
    })
}

/// A Python that the other user can run.
fn python_for_everybody() -> Option<String> {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let found = String::from_utf8(found.expect("python3").stdout).expect("UTF-8");
    let mut pythons = [found.trim(), "/usr/bin/python3"].into_iter();
    pythons.find(|python| can_run(&[*python, "-c", "pass"].map(OsStr::new))).map(str::to_owned)
}

#[test]
fn an_unprivileged_user_has_small_pipes() {
    // A user who has all the pages of pipes that one may have: the rest are of two pages.
    let hog = "import fcntl, os, sys, time\n\
               pipes = []\n\
               for _ in range(200):\n\
               \x20   pipes.append(os.pipe())\n\
               \x20   try: fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)\n\
               \x20   except OSError: pass\n\
               os.execv(sys.argv[1], [sys.argv[1]] + sys.argv[3:])\n";
    let (Some([programs, folder]), Some(python)) = (places_for_everybody(), python_for_everybody())
    else {
        crate::skip::skip("nothing can be run as another user here");
        return;
    };
    let all = objects(&[("large", 20 * MIB + 5), ("small", 99)]);
    let origin = serve(&all);
    let stage = Stage { folder };
    // The pipes stay open over the execv: they are inherited.
    let hog = hog.replace("os.pipe()", "tuple(os.dup(end) for end in os.pipe())");
    let inheritable = hog
        .replace("os.execv", "[os.set_inheritable(e, True) for p in pipes for e in p]; os.execv");
    // It gets the path of the program that nobody else may look at, too, and leaves that out.
    let copy = programs.path().join("inrush");
    let hog = [python.as_str(), "-c", &inheritable, copy.to_str().expect("UTF-8")];
    let before = [&USER[..], &hog].concat();
    let words = ["--epochs", "3", "--part-size", "1MiB"];
    let program = pipe(&origin, ["s3://lab/"]).with([stage.channel("train")]).with(words);
    let running = stage.start(program.by_way_of(before));
    let epochs = Reader::start(&stage.channel("train"), &["all", "leave:70000", "wait"]).finish();
    let whole = stream(&all);
    assert_read(&epochs[0], &whole);
    assert_read(&epochs[1], &whole[..70_000]);
    assert_read(&epochs[2], &whole);
    let run = stage.end(running, 0);
    let least = run.json()["channels"][0]["pipe_bytes_min"].as_u64().expect("private pipes");
    run.check(least < 1 << 20, "the pipes should have been small");
    run.check(
        run.stderr.contains("raise fs.pipe-user-pages-soft"),
        "and the summary should say so",
    );
}
