//! What channels have of each other's connections, and how often they are listed.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Config, Fault, FaultPlan, Match};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use serde_json::json;

use crate::jobs::{channel, write_job};
use crate::matrix::Objects;
use crate::served::{BUCKET, config, serve, start};
use crate::{MIB, Stage, objects};

/// Objects of three channels, more than there are connections.
fn three() -> Objects {
    let names = ["a", "b", "f"];
    let keys = names.iter().flat_map(|name| (0..6).map(move |number| format!("{name}/{number}")));
    keys.flat_map(|key| objects(&[(&key, MIB / 2)])).collect()
}

#[test]
fn a_channel_that_gets_nothing_leaves_the_others_their_connections() {
    let all = three();
    // Each of them asks for all it may have, and none of that comes.
    for (stalled, others) in [("a", ["b", "f"]), ("b", ["a", "f"]), ("f", ["a", "b"])] {
        let key_prefix = Some(format!("{stalled}/"));
        let when = Match { operation: Some(GetObject), key_prefix, ..Match::default() };
        let faults = FaultPlan::none().with_rule(when, Fault::StallBeforeHead { duration: None });
        let origin = start(Config { faults, ..config(&all) });
        let stage = Stage::new();
        let words =
            ["--channel", "a=s3://lab/a/,mode=Pipe", "--channel", "b=s3://lab/b/,mode=Pipe"];
        let more = ["--channel", "f=s3://lab/f/", "--start-early", "--connections", "4"];
        // Not before it was asked for: then nothing would have had to be left.
        let asked = stage.base().join("asked");
        let script = format!(
            "if [ {stalled} != f ]; then exec 3< $d/{stalled}_0; fi; \
             while [ ! -f '{}' ]; do sleep 0.01; done; \
             for c in {}; do if [ $c = f ]; then \
             for i in 0 1 2 3 4 5; do while [ ! -f $d/f/$i ]; do sleep 0.01; done; done; \
             cat $d/f/* > $o/f; else cat $d/$c\\_0 > $o/$c; fi; done",
            asked.display(),
            others.join(" ")
        );
        let words = [&words[..], &more].concat();
        let mut running = stage.shell(&origin, &words, &script).start();
        assert!(running.until(|| origin.stats().faults_total() > 0), "{stalled} is asked for");
        fs::write(asked, "").expect("room");
        let run = stage.end(running, 0);
        for name in others {
            let read = fs::read(stage.base().join("output/data").join(name)).expect(name);
            let whole = crate::stream(&all, &format!("{name}/"));
            run.check(read == whole, &format!("{name} differs while {stalled} stalls"));
        }
    }
}

#[test]
fn the_first_epoch_is_what_was_listed_before() {
    let list = json!([{"prefix": format!("s3://{BUCKET}/p/")}, "2", "1"]);
    let mut all = objects(&[("p/1", 5), ("p/2", 7), ("p/3", 9)]);
    all.insert("list.json".to_owned(), list.to_string().into_bytes());
    for (epochs, count) in [("1", 1), ("3", 3)] {
        let (origin, stage) = (serve(&all), Stage::new());
        let piped = json!({"InputMode": "Pipe"});
        let listed = json!({"InputMode": "Pipe", "S3DataType": "ManifestFile"});
        let shuffled = json!({"InputMode": "Pipe", "ShuffleConfig": {"Seed": 7}});
        let channels = [
            channel("p", "p/", &piped),
            channel("m", "list.json", &listed),
            channel("s", "p/", &shuffled),
        ];
        let path = write_job(&stage, &json!({"InputDataConfig": channels}));
        let script = format!(
            "e=0; while [ $e -lt {epochs} ]; do for c in p m s; do \
             while [ ! -p $d/$c\\_$e ]; do sleep 0.01; done; cat $d/$c\\_$e > $o/$c$e; done; \
             e=$((e+1)); done"
        );
        let words = ["--job", &path, "--epochs", epochs];
        stage.end(stage.shell(&origin, &words, &script).start(), 0);
        let read = |name: &str| fs::read(stage.base().join("output/data").join(name)).expect(name);
        for epoch in 0..count {
            assert!(read(&format!("p{epoch}")) == crate::stream(&all, "p/"));
            assert!(read(&format!("m{epoch}")) == [&all["p/2"][..], &all["p/1"]].concat());
            assert_eq!(read(&format!("s{epoch}")).len(), 5 + 7 + 9);
        }
        // Each epoch of a prefix is a listing, each of a list a question for each object.
        let stats = origin.stats();
        assert_eq!((stats.lists, stats.heads), (2 * count, 2 * count), "{epochs} epochs");
    }
}

#[test]
fn a_pipe_may_have_no_objects_where_that_is_allowed() {
    let (origin, stage) = (serve(&objects(&[("t/a", 5)])), Stage::new());
    let words = ["--channel", "p=s3://lab/none/,mode=Pipe,allow-empty"];
    let script = "for e in 0 1 2; do while [ ! -p $d/p_$e ]; do sleep 0.01; done; \
                  cat $d/p_$e >> $o/p; done";
    stage.end(stage.shell(&origin, &words, script).start(), 0);
    assert_eq!(stage.output("p"), "");
}

#[test]
fn a_reader_without_a_command_finds_the_reason_behind_a_deadline() {
    let all = objects(&[("p/0", MIB)]);
    let when = Match { operation: Some(GetObject), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::StallBeforeHead { duration: None });
    let origin = start(Config { faults, ..config(&all) });
    // A machine that is busy may take longer to begin than the deadline is.
    for deadline in ["1s", "4s", "16s", "64s"] {
        let stage = Stage::new();
        let words = ["--channel", "p=s3://lab/p/,mode=Pipe", "--deadline", deadline];
        let mut running = stage.train(&origin, &words).start();
        if !running.until(|| origin.stats().faults_total() > 0 && stage.data("p_0").exists()) {
            continue;
        }
        // It does not wait for a writer: the run may be over.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
        let reader = fs::File::options().read(true).custom_flags(flags).open(stage.data("p_0"));
        let Ok(reader) = reader else { continue };
        let is_over = || {
            let mut polled = [PollFd::new(&reader, PollFlags::IN)];
            let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            poll(&mut polled, Some(&pause)).expect("a poll");
            polled[0].revents().contains(PollFlags::HUP)
        };
        let mut found = None;
        let is_read = running.until(|| {
            let is_over = is_over();
            found = stage.failure();
            is_over
        });
        if !is_read {
            // Nobody came in time.
            continue;
        }
        let run = stage.end(running, 8);
        let found = found.expect("it stands there before the end of the pipe");
        run.check(found.starts_with("the deadline has passed"), &found);
        return;
    }
    panic!("no run began before its deadline");
}
