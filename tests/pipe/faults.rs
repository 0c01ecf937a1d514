//! A server that breaks off, stalls and refuses.

use std::time::{Duration, Instant};

use inrush_origin::Operation::GetObject;
use inrush_origin::{Config, Fault, FaultPlan, Match, Profile};

use crate::matrix::Objects;
use crate::program::Program;
use crate::reader::Reader;
use crate::refuser::Refuser;
use crate::served::{config, start};
use crate::{
    ACCESS, ENDPOINT, MIB, NOT_FOUND, OBJECTS, Stage, assert_read, mixture, objects, stream,
};

/// Reads two epochs and a part of one although the faults happen; returns the retries.
#[track_caller]
fn survive(all: &Objects, faults: FaultPlan, words: &[&str]) -> u64 {
    let mut configuration = config(all);
    configuration.faults = faults;
    let origin = start(configuration);
    let stage = Stage::new();
    let options = [&["--epochs", "3", "--part-size", "1MiB", "--max-attempts", "30"], words];
    let running = stage.serve(&origin, &options.concat());
    let epochs = Reader::start(&stage.channel("train"), &["all", "leave:100000", "wait"]).finish();
    let whole = stream(all);
    assert_read(&epochs[0], &whole);
    assert_read(&epochs[1], &whole[..100_000]);
    assert_read(&epochs[2], &whole);
    let run = stage.end(running, 0);
    let channel = run.json()["channels"][0].clone();
    let (retries, moves) = (&channel["retries"], channel["moves"].as_u64().expect("a count"));
    let counts = retries.as_object().expect("counts by reason");
    moves + counts.values().map(|count| count.as_u64().expect("a count")).sum::<u64>()
}

#[test]
fn every_byte_is_right_whatever_the_server_does() {
    let all = mixture();
    for seed in 1..=2 {
        for profile in [Profile::Mixed, Profile::Overloaded] {
            let retries = survive(&all, FaultPlan::seeded(seed, profile), &[]);
            assert!(retries > 0, "seed {seed} of {profile:?} has faults, and there was no retry");
        }
    }
    survive(&all, FaultPlan::seeded(1, Profile::Slow), &["--connections", "32"]);
}

#[test]
fn each_fault_alone_is_survived() {
    let all = objects(&[("large", 5 * MIB + 77), ("small", 5000)]);
    let pause = Duration::from_millis(400);
    let faults = [
        Fault::CloseAfterResponse,
        Fault::InternalError,
        Fault::ResetAfter { bytes: 0 },
        Fault::ResetAfter { bytes: 300_001 },
        Fault::ResetBeforeHead,
        Fault::SlowDown,
        Fault::StallAfter { bytes: 0, duration: Some(pause) },
        Fault::StallAfter { bytes: 123_457, duration: Some(pause) },
        Fault::StallBeforeHead { duration: Some(pause) },
        Fault::Truncate { bytes: 0 },
        Fault::Truncate { bytes: 200_003 },
        Fault::Drip { bytes: 70_001, pause: Duration::from_millis(5) },
        Fault::WrongContentRange,
    ];
    for fault in faults {
        for connections in ["1", "8"] {
            // At the first byte of each part: a try that goes on elsewhere is another request.
            let plan = (0..6).map(|part| part << 20).fold(FaultPlan::none(), |plan, at| {
                let (operation, attempts) = (Some(GetObject), Some(1..=1));
                let offsets = Some(at..at + 1);
                plan.with_rule(Match { operation, attempts, offsets, ..Match::default() }, fault)
            });
            let retries = survive(&all, plan, &["--connections", connections]);
            eprintln!("{fault:?}, {connections} connections: {retries} retries");
        }
    }
}

/// A stream that breaks at the object `c`; returns what the program said.
#[track_caller]
fn fail(faults: FaultPlan, refusal: Option<(&str, &str)>, code: i32) -> String {
    let all = objects(&[("a", 3 * MIB), ("b", 12 * MIB), ("c", 3 * MIB)]);
    let mut configuration = config(&all);
    configuration.faults = faults;
    let origin = start(configuration);
    let refuser = refusal.map(|(status, text)| Refuser::start(&origin, "c", status, text));
    let endpoint = refuser.as_ref().map_or_else(|| crate::program::url(&origin), Refuser::url);
    let stage = Stage::new();
    let program = Program::new(["pipe", "--json", "s3://lab/"]).with([stage.channel("train")]);
    let words = ["--epochs", "2", "--connections", "1", "--max-attempts", "2"];
    let program = program.with(words).with(["--retry-for", "0s"]);
    let program = program.with(["--region", "us-east-1", "--endpoint-url", &endpoint]);
    let running = stage.start(program.with_keys(crate::ACCESS_KEY, crate::SECRET));
    let epochs = Reader::start(&stage.channel("train"), &["all"]).finish();
    let run = stage.end(running, code);
    let whole = stream(&all);
    // With one connection the objects before it have been handed on.
    let before = (15 * MIB) as u64;
    let some = (before..whole.len() as u64).contains(&epochs[0].bytes);
    run.check(some, &format!("an end in the third object was expected: {epochs:?}"));
    let read = &whole[..usize::try_from(epochs[0].bytes).expect("a length")];
    assert_eq!(epochs[0].sha256, crate::sha256(read), "what came before is right");
    run.check(run.json()["exit_code"] == code, "the summary has the exit code");
    run.check(run.stderr.contains("error: "), "an error was expected");
    run.check(run.stderr.contains("s3://lab/c"), "the object is named");
    run.stderr
}

#[test]
fn an_object_that_is_refused_ends_the_stream() {
    for (status, text, code) in [
        ("403 Forbidden", "AccessDenied", ACCESS),
        ("404 Not Found", "NoSuchKey", NOT_FOUND),
        ("412 Precondition Failed", "PreconditionFailed", OBJECTS),
    ] {
        eprintln!("{status}: {}", fail(FaultPlan::none(), Some((status, text)), code));
    }
}

#[test]
fn an_object_that_changes_or_never_comes_ends_the_stream() {
    let key = Some("c".to_owned());
    let when = Match { operation: Some(GetObject), key, ..Match::default() };
    for (fault, code) in [
        (Fault::ResetAfter { bytes: 0 }, ENDPOINT),
        (Fault::SlowDown, ENDPOINT),
        (Fault::ChangedEtag, OBJECTS),
    ] {
        let said = fail(FaultPlan::none().with_rule(when.clone(), fault), None, code);
        eprintln!("{fault:?}: {said}");
    }
}

#[test]
fn wrong_keys_and_missing_sources_are_reported_without_a_pipe_left() {
    let all = objects(&[("a", 5)]);
    let origin = start(config(&all));
    for (source, secret, code) in [
        ("s3://lab/", "wrong", ACCESS),
        ("s3://lab/not-there", crate::SECRET, NOT_FOUND),
        ("s3://lab/no/such/folder/", crate::SECRET, NOT_FOUND),
    ] {
        let stage = Stage::new();
        let program = crate::pipe(&origin, [source]).with([stage.channel("train")]);
        let begun = Instant::now();
        let run = program.with_keys(crate::ACCESS_KEY, secret).start();
        let run = stage.end(run, code);
        run.check(run.stderr.contains("error: "), "an error was expected");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn one_channel_that_fails_does_not_take_the_others_with_it() {
    let all = objects(&[("good/a", 4 * MIB), ("bad/not", 5)]);
    // It is listed well, and fails while it is fetched.
    let key = Some("bad/not".to_owned());
    let when = Match { operation: Some(GetObject), key, ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ChangedEtag);
    let origin = start(Config { faults, ..config(&all) });
    let stage = Stage::new();
    let words = ["--epochs", "2", "--channel", "good=s3://lab/good/"];
    let program = crate::pipe(&origin, words).with(["--channel", "bad=s3://lab/bad/"]);
    let running = stage.start(program.with([stage.path()]));
    let epochs = Reader::start(&stage.channel("good"), &["all", "all"]).finish();
    epochs.iter().for_each(|epoch| assert_read(epoch, &all["good/a"]));
    let run = stage.end(running, OBJECTS);
    run.check(run.stderr.contains("channel bad"), "the channel is named");
}
