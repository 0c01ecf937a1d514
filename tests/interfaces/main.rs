//! `--interface`: bytes come over the network interfaces that were named and over no other, and a
//! name that leads nowhere fails before anything moves. Two pairs of virtual interfaces (veth(4))
//! in network name spaces of their own stand for two networks.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "programs under test")]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
mod networks;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/served.rs"]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::num::NonZeroU64;
use std::path::Path;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};
use serde_json::Value;

use matrix::{Objects, assert_same, bytes_of};
use networks::{Networks, is_inside, run_inside};
use program::Run;
use served::{config, get, serve, start};

const MIB: usize = 1 << 20;
/// The exit code of a wrong command line.
const USAGE: i32 = 2;
/// The exit code of an endpoint that is not reached.
const ENDPOINT: i32 = 6;

fn objects() -> Objects {
    let large = (0..6).map(|number| (format!("large/{number}"), 4 * MIB + number));
    let small = (0..40).map(|number| (format!("small/{number}"), 39_000));
    large.chain(small).map(|(key, length)| (key.clone(), bytes_of(&key, length))).collect()
}

fn total(objects: &Objects) -> u64 {
    objects.values().map(|bytes| bytes.len() as u64).sum()
}

/// `get` of everything to `to`, with these words.
fn get_all(origin: &Origin, to: &Path, words: &[&str]) -> program::Program {
    let to = to.to_str().expect("UTF-8");
    get(origin, ["s3://lab/", to, "--json"]).with(words)
}

/// The summary's interfaces: names, workers, bytes.
fn interfaces_of(run: &Run) -> Vec<(String, usize, Option<u64>)> {
    let interfaces = run.json()["interfaces"].clone();
    let line = |line: &Value| {
        let name = line["interface"].as_str().expect("a name").to_owned();
        (name, line["workers"].as_array().expect("numbers").len(), line["bytes"].as_u64())
    };
    interfaces.as_array().expect("a list").iter().map(line).collect()
}

#[test]
fn over_the_loopback_interface() {
    let objects = objects();
    let origin = serve(&objects);
    let folder = tempfile::tempdir().expect("a folder");
    let all = total(&objects);
    for (words, interfaces) in [
        (&["--interface", "lo", "--workers", "2"][..], vec![("lo".to_owned(), 2, Some(all))]),
        (&["--workers", "2"], vec![]),
    ] {
        let to = folder.path().join(words.len().to_string());
        let run = get_all(&origin, &to, words).run().expect(0);
        assert_eq!(interfaces_of(&run), interfaces, "{run}");
        assert_same(&to, &objects);
    }
    let words = ["--interface", "lo", "--workers", "1"];
    let program = program::Program::new(["get", "-v", "s3://lab/", "--discard"]).asking(&origin);
    let run = program.with_keys(served::ACCESS_KEY, served::SECRET).with(words).run().expect(0);
    run.expect_words(&["interface lo (no NUMA node): 1 worker on "]);
}

#[test]
fn what_fails_over_an_interface_names_it() {
    let objects = objects();
    let failing = |operation| {
        let when = Match { operation: Some(operation), ..Match::default() };
        let faults = FaultPlan::none().with_rule(when, Fault::ResetBeforeHead);
        start(Config { faults, ..config(&objects) })
    };
    let discard = |origin: &Origin, words: &[&str]| {
        let options = ["s3://lab/", "--discard", "--retry-for", "0s", "--max-attempts", "1"];
        get(origin, options).with(words).run()
    };
    let origin = failing(Operation::GetObject);
    let run = discard(&origin, &["--interface", "lo"]);
    run.expect_words(&["failed after 1 try over the interface lo: "]);
    let run = discard(&origin, &[]);
    run.check(!run.stderr.contains("interface"), "none was named");
    drop(origin);
    let stopped = serve(&objects);
    let url = stopped.url();
    drop(stopped);
    let program = program::Program::new(["get", "s3://lab/", "--discard", "--retry-for", "0s"]);
    let program = program.with(["--endpoint-url", &url, "--region", "us-east-1"]);
    let program = program.with_keys(served::ACCESS_KEY, served::SECRET);
    let run = program.with(["--interface", "lo"]).run().expect(ENDPOINT);
    run.expect_words(&[" over the interface lo: Connection refused"]);
}

#[test]
fn names_are_looked_up_before_anything_moves() {
    let origin = serve(&objects());
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("to");
    for (words, expected) in [
        (
            &["--interface", "lo,nowhere0"][..],
            &["--interface nowhere0: there is no such network interface; there are", "lo"][..],
        ),
        (&["--interface", "lo", "--interface", "lo"], &["--interface lo is given twice"]),
    ] {
        get_all(&origin, &to, words).run().expect(USAGE).expect_error(expected);
    }
    get_all(&origin, &to, &["--interface", "a/b"]).run().expect(USAGE);
    assert!(!to.exists(), "nothing was made");
    assert_eq!(origin.stats().requests, 0, "nothing was asked");
}

/// Runs in name spaces of its own: the process that the test starts once more, by its name.
#[test]
fn bytes_come_over_the_interfaces_that_were_named() {
    if !is_inside() {
        return run_inside("bytes_come_over_the_interfaces_that_were_named");
    }
    let networks = Networks::new();
    let objects = objects();
    let all = total(&objects);
    // Slow enough that every worker gets a part, however late it is given a core.
    let origin = start(Config {
        listen: vec![networks.server()],
        connection_rate: NonZeroU64::new(2_000_000),
        ..config(&objects)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let gets = |words: &[&str], code: i32| {
        let before = [networks.received("a0"), networks.received("a1")];
        let to = folder.path().join(words.join("_").replace('/', "_"));
        let program = get_all(&origin, &to, words).with(["--connections", "8"]);
        let run = program.by_way_of(networks.client()).run().expect(code);
        if code == 0 {
            assert_same(&to, &objects);
        } else {
            assert!(!to.exists(), "nothing was made");
        }
        let after = [networks.received("a0"), networks.received("a1")];
        (run, [after[0] - before[0], after[1] - before[1]])
    };
    // By the routes alone: over the first.
    let (_, [first, second]) = gets(&["--workers", "2"], 0);
    assert!(first >= all && second < all / 100, "{first} and {second} of {all}");
    // The other one, though its route is worse.
    let (run, [first, second]) = gets(&["--interface", "a1", "--workers", "2"], 0);
    assert!(first < all / 100 && second >= all, "{first} and {second} of {all}");
    assert_eq!(interfaces_of(&run), [("a1".to_owned(), 2, Some(all))]);
    // Both: what each worker counted came over its own.
    let (run, [first, second]) = gets(&["--interface", "a0,a1", "--workers", "2"], 0);
    let lines = interfaces_of(&run);
    let [(_, 1, Some(one)), (_, 1, Some(other))] = lines[..] else { panic!("{lines:?}\n{run}") };
    assert_eq!(one + other, all, "{run}");
    assert!(one > 0 && other > 0, "one worker had it all: {lines:?}");
    assert!(first >= one && second >= other, "{first} and {second}: {lines:?}");
    // One worker takes both in turn.
    let (run, [first, second]) = gets(&["--interface", "a1,a0", "--workers", "1"], 0);
    assert_eq!(interfaces_of(&run), [("a1".to_owned(), 1, None), ("a0".to_owned(), 1, None)]);
    assert!(first > all / 100 && second > all / 100, "{first} and {second} of {all}");
    assert!(first + second >= all, "{first} and {second} of {all}");
    // One that is down fails before anything moves.
    let (run, _) = gets(&["--interface", "a0,a2"], ENDPOINT);
    run.expect_error(&["is not reached over the interface a2: 10.99.0.1:", "leave it out"]);
}
