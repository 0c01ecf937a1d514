//! Signals: for the command, then for all of it; and the death of inrush.

use rustix::process::Signal;

use crate::served::serve;
use crate::{INTERRUPTED, MIB, Stage, objects, runs, soon};

const PIPE: [&str; 2] = ["--channel", "train=s3://lab/a,mode=Pipe"];

/// Waits for signals; says when it is ready, and which it got.
const WAITS: &str = "trap 'echo term >> $o/got; exit 9' TERM; trap 'echo int >> $o/got' INT; \
                     trap 'echo hup >> $o/got' HUP; trap 'echo usr1 >> $o/got' USR1; \
                     trap 'echo usr2 >> $o/got' USR2; \
                     echo $$ > $o/ready; while :; do sleep 0.02; done";

#[test]
fn a_signal_is_the_commands() {
    let origin = serve(&objects(&[("a", 9 * MIB)]));
    let stage = Stage::new();
    let words = [&PIPE[..], &["--grace", "10m"]].concat();
    let mut running = stage.shell(&origin, &words, WAITS).start();
    stage.until_output(&mut running, "ready");
    for (signal, name) in [(Signal::USR1, "usr1\n"), (Signal::USR2, "usr2\n")] {
        running.signal(signal);
        running.until(|| stage.has_output("got") && stage.output("got").ends_with(name));
    }
    running.signal(Signal::TERM);
    // It decides how it ends.
    stage.end(running, 9);
    assert_eq!(stage.output("got"), "usr1\nusr2\nterm\n");
    assert_eq!(stage.failure(), None);
}

#[test]
fn pipes_are_served_while_the_command_ends() {
    let all = objects(&[("a", 9 * MIB)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let script = "trap 'cat $d/train_0 > $o/late; exit 0' TERM; echo > $o/ready; \
                  while :; do sleep 0.02; done";
    let words = [&PIPE[..], &["--grace", "10m"]].concat();
    let mut running = stage.shell(&origin, &words, script).start();
    assert!(running.until(|| stage.has_output("ready")));
    running.signal(Signal::TERM);
    stage.end(running, 0);
    let read = std::fs::read(stage.base().join("output/data/late")).expect("an epoch");
    assert!(read == all["a"], "the whole epoch");
}

#[test]
fn one_that_does_not_end_is_killed_with_all_of_it() {
    let origin = serve(&objects(&[("a", 9 * MIB)]));
    let script = "trap '' TERM INT HUP; sleep 600 & echo $! > $o/other; echo $$ > $o/ready; \
                  while :; do sleep 0.02; done";
    // After its grace, or at once at the second signal.
    for (grace, signals) in [
        ("200ms", &[Signal::TERM][..]),
        // Two of a kind that come at once are one.
        ("10m", &[Signal::TERM, Signal::INT]),
        ("10m", &[Signal::HUP, Signal::INT]),
    ] {
        let stage = Stage::new();
        let words = [&PIPE[..], &["--grace", grace]].concat();
        let mut running = stage.shell(&origin, &words, script).start();
        let pid = stage.until_output(&mut running, "ready");
        for signal in signals {
            running.signal(*signal);
        }
        stage.end(running, 128 + Signal::KILL.as_raw());
        let other = stage.output("other");
        soon("both are gone", || !runs(&pid) && !runs(&other));
    }
}

#[test]
fn the_command_does_not_outlive_inrush() {
    let origin = serve(&objects(&[("a", 40 * MIB)]));
    let stage = Stage::new();
    let script = "echo $$ > $o/ready; exec sleep 600";
    let mut running = stage.shell(&origin, &PIPE, script).start();
    let pid = stage.until_output(&mut running, "ready");
    running.signal(Signal::KILL);
    running.wait().expect_killed(Signal::KILL);
    soon("the command is gone", || !runs(&pid));
}

#[test]
fn before_the_command_starts_a_signal_ends_the_run() {
    use inrush_origin::{Config, Fault, FaultPlan, Match, Operation};
    let all = objects(&[("t/a", MIB)]);
    let when = Match { operation: Some(Operation::GetObject), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::StallBeforeHead { duration: None });
    let origin = crate::served::start(Config { faults, ..crate::served::config(&all) });
    let stage = Stage::new();
    let words = ["--channel", "t=s3://lab/t/", "--channel", "p=s3://lab/t/,mode=Pipe"];
    let mut running = stage.shell(&origin, &words, "echo started").start();
    assert!(running.until(|| origin.stats().faults_total() > 0));
    running.signal(Signal::TERM);
    let run = stage.end(running, INTERRUPTED);
    assert_eq!((run.stdout.as_str(), stage.failure()), ("", None));
}

#[test]
fn what_is_ignored_stays_ignored() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    let words = ["--channel", "train=s3://lab/a"];
    let script = "echo $$ > $o/ready; while [ ! -e $o/go ]; do sleep 0.02; done; exit 5";
    let program = stage.shell(&origin, &words, script);
    let mut running = program.by_way_of(["/usr/bin/nohup"]).start();
    let pid = stage.until_output(&mut running, "ready");
    running.signal(Signal::HUP);
    let raw = pid.trim().parse().expect("a number");
    let command = rustix::process::Pid::from_raw(raw).expect("a process");
    rustix::process::kill_process(command, Signal::HUP).expect("it runs");
    std::fs::write(stage.base().join("output/data/go"), "").expect("a file");
    stage.end(running, 5);
}
