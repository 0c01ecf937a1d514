//! What the command starts with, and what inrush does as the parent of orphans.

use std::path::Path;

use rustix::process::Signal;

use crate::program::Program;
use crate::served::serve;
use crate::{Stage, objects, python, soon};

const FILES: [&str; 2] = ["--channel", "train=s3://lab/a"];

/// A limit of open files below the one that this process may have.
const LIMITED: [&str; 3] = ["sh", "-c", "ulimit -Sn 300; exec \"$0\" \"$@\""];

#[test]
fn programs_have_the_limit_of_open_files_that_inrush_was_started_with() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    let program = stage.shell(&origin, &FILES, "ulimit -Sn > $o/limit");
    stage.end(program.by_way_of(LIMITED).start(), 0);
    assert_eq!(stage.output("limit"), "300\n");

    let folder = tempfile::tempdir().expect("a folder");
    let [keys, config, to] = ["keys", "config", "to"].map(|name| folder.path().join(name));
    let limit = folder.path().join("limit");
    let script = format!(
        "ulimit -Sn > '{}'; echo '{{\"Version\": 1, \"AccessKeyId\": \"{}\", \
         \"SecretAccessKey\": \"{}\"}}'",
        limit.display(),
        crate::ACCESS_KEY,
        crate::SECRET
    );
    std::fs::write(&keys, script).expect("a script");
    let profile = format!("[default]\ncredential_process = /bin/sh {}\n", keys.display());
    std::fs::write(&config, profile).expect("a profile");
    let get = Program::new(["get", "--quiet", "s3://lab/a"]).with([&to]).asking(&origin);
    get.set("AWS_CONFIG_FILE", &config).by_way_of(LIMITED).run().expect(0);
    assert_eq!(std::fs::read_to_string(&limit).expect("it was run"), "300\n");
}

#[test]
fn the_command_has_the_signals_blocked_that_were_blocked_for_inrush() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    let before = ["env", "--block-signal=TERM,CHLD"];
    let program = stage.train(&origin, &FILES).with(["--", "grep", "SigBlk", "/proc/self/status"]);
    let run = stage.end(program.by_way_of(before).start(), 0);
    let blocked = run.stdout.split_whitespace().last().expect("a mask");
    let blocked = u64::from_str_radix(blocked, 16).expect("a mask");
    for (signal, is_blocked) in [(Signal::TERM, true), (Signal::CHILD, true), (Signal::HUP, false)]
    {
        assert_eq!(blocked >> (signal.as_raw() - 1) & 1 == 1, is_blocked, "{signal:?}");
    }
    // They reach inrush all the same. Some shells unblock all when they start.
    let script = "trap 'exit 9' TERM; echo > $o/ready; while :; do sleep 0.02; done";
    let words = [&FILES[..], &["--grace", "1s"]].concat();
    let mut running = stage.shell(&origin, &words, script).by_way_of(before).start();
    stage.until_output(&mut running, "ready");
    running.signal(Signal::TERM);
    let code = running.wait().status.code();
    assert!([Some(9), Some(128 + Signal::KILL.as_raw())].contains(&code), "{code:?}");
}

/// Makes a process the reaper of its orphans (PR_SET_CHILD_SUBREAPER), and becomes the program.
const SUBREAPER: &str = "import ctypes, os, sys\n\
                         if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0): sys.exit('prctl')\n\
                         os.execvp(sys.argv[1], sys.argv[1:])";

#[test]
fn orphans_are_reaped_and_the_command_keeps_its_exit_code() {
    let Some(python) = python::interpreter("to reap orphans without being process 1") else {
        return;
    };
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    // An orphan of another session, which no signal to the command's group reaches.
    let script = "export o; setsid sh -c 'sleep 0.1 & echo $! > $o/orphan'; \
                  while [ ! -e $o/go ]; do sleep 0.02; done; exit 5";
    let program = stage.shell(&origin, &FILES, script);
    let mut running = program.by_way_of([&python, "-c", SUBREAPER]).start();
    let orphan = stage.until_output(&mut running, "orphan");
    let orphan = Path::new("/proc").join(orphan.trim());
    soon("it is reaped", || !orphan.exists());
    std::fs::write(stage.base().join("output/data/go"), "").expect("a file");
    stage.end(running, 5);
}
