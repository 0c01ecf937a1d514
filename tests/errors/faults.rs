//! A server that refuses, breaks off, stalls and changes its objects.

use std::num::NonZeroU64;
use std::time::Duration;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Fault, FaultPlan, Match, Origin, Profile};

use crate::matrix::{Objects, bytes_of};
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, get, object, serve, start};
use crate::{ACCESS, DEADLINE, ENDPOINT, NOT_FOUND, Nowhere, OBJECTS, below, objects};

const MIB: usize = 1 << 20;

/// Small and large objects, enough for every kind of fault.
fn mixture() -> Objects {
    let mut all: Objects = (0..120)
        .map(|number| (format!("{}/{number:03}", number % 5), bytes_of("small", 100 * number)))
        .collect();
    all.extend(objects(&[("large/a", 3 * MIB + 1), ("large/b", 2 * MIB), ("large/c", MIB - 1)]));
    all
}

/// Gets all of `objects` although the faults happen, and returns retries.
#[track_caller]
fn survive(objects: &Objects, faults: FaultPlan) -> u64 {
    let mut configuration = config(objects);
    configuration.faults = faults;
    let origin = start(configuration);
    let nowhere = Nowhere::new();
    let options = ["s3://lab/", "--json", "--part-size", "1MiB"];
    let run = get(&origin, options).with([nowhere.path()]).run().expect(0);
    run.check(run.stderr.is_empty(), "nothing was expected on standard error");
    nowhere.assert_holds(objects);
    let retries = run.json()["retries"].clone();
    let counts = retries.as_object().expect("counts by reason");
    counts.values().map(|count| count.as_u64().expect("a count")).sum()
}

#[test]
fn every_byte_is_right_whatever_the_server_does() {
    let all = mixture();
    for seed in 1..=3 {
        for profile in [Profile::Mixed, Profile::Overloaded] {
            let retries = survive(&all, FaultPlan::seeded(seed, profile));
            assert!(retries > 0, "seed {seed} of {profile:?} has faults, and there was no retry");
        }
    }
    survive(&all, FaultPlan::seeded(1, Profile::Slow));
}

#[test]
fn the_last_range_of_all_is_asked_for_again_when_it_is_late() {
    // The others have long ended when it is late: it is the only one that is under way.
    let all = objects(&[("z", 40 * MIB)]);
    let mut configuration = config(&all);
    let last = Match {
        operation: Some(GetObject),
        attempts: Some(1..=1),
        offsets: Some(39 * MIB as u64..u64::MAX),
        ..Match::default()
    };
    // Far beyond what the run takes, and within what a stalled connection is given.
    let fault = Fault::StallAfter { bytes: 1000, duration: Some(Duration::from_secs(25)) };
    configuration.faults = FaultPlan::none().with_rule(last, fault);
    let nowhere = Nowhere::new();
    let options = ["s3://lab/", "--json", "--part-size", "1MiB", "--workers", "1"];
    let run = get(&start(configuration), options).with([nowhere.path()]).run().expect(0);
    nowhere.assert_holds(&all);
    run.check(run.json()["hedges_won"] == 1, "a second connection had it");
    run.check(run.seconds < 20.0, "nobody waited for the first one");
}

#[test]
fn each_fault_alone_is_survived() {
    let all = objects(&[("large", 2 * MIB + 77), ("small", 5000)]);
    // At the first byte of the object: a try that goes on elsewhere is another request.
    let first = Match {
        operation: Some(GetObject),
        offsets: Some(0..1),
        attempts: Some(1..=2),
        ..Match::default()
    };
    for fault in [
        Fault::SlowDown,
        Fault::InternalError,
        Fault::ResetBeforeHead,
        Fault::ResetAfter { bytes: 0 },
        Fault::ResetAfter { bytes: 4000 },
        Fault::Truncate { bytes: 0 },
        Fault::Truncate { bytes: 4999 },
        Fault::StallAfter { bytes: 100, duration: Some(Duration::from_millis(300)) },
        Fault::WrongContentRange,
    ] {
        let retries = survive(&all, FaultPlan::none().with_rule(first.clone(), fault));
        let expected = !matches!(fault, Fault::StallAfter { .. });
        assert!((retries > 0) == expected, "{fault:?}: {retries} retries");
    }
    let pause = Duration::from_millis(1);
    survive(&all, FaultPlan::none().with_rule(first.clone(), Fault::Drip { bytes: 65_536, pause }));
    survive(&all, FaultPlan::none().with_rule(first, Fault::CloseAfterResponse));
}

/// Gets three objects of which one fails for good; the others arrive.
#[track_caller]
fn one_fails(fault: Fault, words: &[&str]) {
    let all = objects(&[("a", 500), ("bad", 500), ("c", 2 * MIB)]);
    let mut configuration = config(&all);
    let when =
        Match { operation: Some(GetObject), key: Some("bad".to_owned()), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, fault);
    let origin = start(configuration);
    let nowhere = Nowhere::new();
    let options = ["s3://lab/", "--max-attempts", "2", "--retry-for", "0s"];
    let run = get(&origin, options).with([nowhere.path()]).run();
    run.expect(OBJECTS).expect_error(&["get s3://lab/bad"]).expect_words(words);
    let wanted: Objects = all.into_iter().filter(|(key, _)| key != "bad").collect();
    nowhere.assert_holds(&wanted);
}

#[test]
fn an_object_that_fails_for_good_is_reported_and_the_others_arrive() {
    one_fails(Fault::SlowDown, &["after 2 tries", "SlowDown", "lower --connections"]);
    one_fails(Fault::InternalError, &["after 2 tries", "InternalError", "run it again later"]);
    one_fails(Fault::ResetBeforeHead, &["after 2 tries", "onnection"]);
    one_fails(Fault::Truncate { bytes: 10 }, &["after 2 tries", "in the middle of its body"]);
}

/// The bytes of an object that failed are not those of the others.
#[test]
fn the_summary_counts_the_bytes_of_complete_objects() {
    let mut configuration = config(&objects(&[("a", MIB), ("bad", MIB)]));
    let when =
        Match { operation: Some(GetObject), key: Some("bad".to_owned()), ..Match::default() };
    let bytes = 700_000;
    configuration.faults = FaultPlan::none().with_rule(when, Fault::Truncate { bytes });
    let origin = start(configuration);
    let nowhere = Nowhere::new();
    let program = Program::new(["get", "s3://lab/", "--max-attempts", "1", "--no-resume"]);
    let program = program.with(["--memory", "4MiB"]).with([nowhere.path()]).asking(&origin);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(OBJECTS);
    let end = format!(" of incomplete ones -> {}", nowhere.path().display());
    run.expect_words(&["1 object, 1.05 MB, and ", &end]);
}

#[test]
fn a_changed_object_is_reported_and_not_kept() {
    one_fails(Fault::ChangedEtag, &["other ETag", "run it again"]);
    // Alone as well, with the code that says the same.
    let mut configuration = config(&objects(&[("bad", 2 * MIB)]));
    let when = Match { operation: Some(GetObject), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::ChangedEtag);
    let nowhere = Nowhere::new();
    let run = get(&start(configuration), ["s3://lab/"]).with([nowhere.path()]).run();
    run.expect(OBJECTS).expect_error(&["s3://lab/bad", "other ETag"]);
    nowhere.assert_holds(&Objects::new());
}

/// Begins a `get` of an object of three ranges, one after the other, and replaces it in the middle
/// by this one.
fn replaced(on_change: &str, after: &Objects, nowhere: &Nowhere) -> Run {
    let all = objects(&[("p/changes", 3 * MIB)]);
    let mut configuration = config(&all);
    configuration.connection_rate = NonZeroU64::new(2 << 20);
    let origin = start(configuration);
    let options = ["s3://lab/p/", "--part-size", "1MiB", "--connections", "1"];
    let program = get(&origin, options).with(["--on-change", on_change]).with([nowhere.path()]);
    let mut running = program.start();
    assert!(running.until(|| origin.stats().gets > 0), "the first range is asked for");
    // It takes half a second; the next range is another version's.
    for (key, bytes) in after {
        origin.put_object(&object(key, bytes.clone())).expect("a key");
    }
    running.wait()
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_refused() {
    let nowhere = Nowhere::new();
    let after = Objects::from([("p/changes".to_owned(), bytes_of("another", 3 * MIB))]);
    let run = replaced("fail", &after, &nowhere).expect(OBJECTS);
    let words = ["s3://lab/p/changes", "changed during the download: \"", "\" is now \"", "again"];
    run.expect_error(&words);
    nowhere.assert_holds(&Objects::new());
}

#[test]
fn answers_may_have_many_headers_but_not_any_number() {
    let all = objects(&[("large", 2 * MIB + 77), ("small", 5000)]);
    let many = |count| {
        let mut configuration = config(&all);
        let rule = FaultPlan::none().with_rule(Match::default(), Fault::ManyHeaders { count });
        configuration.faults = rule;
        let origin = start(configuration);
        let nowhere = Nowhere::new();
        let options = ["s3://lab/", "--json", "--part-size", "1MiB"];
        let run = get(&origin, options).with([nowhere.path()]).run();
        (run, origin.stop(), nowhere)
    };
    let (run, _, nowhere) = many(200);
    let run = run.expect(0);
    let none = serde_json::json!({});
    run.check(run.json()["retries"] == none && run.json()["control_retries"] == none, "no retry");
    nowhere.assert_holds(&all);
    // It does not get better, so nothing is tried again.
    let (run, stats, nowhere) = many(300);
    let run = run.expect(ENDPOINT).expect_words(&["more than 256 headers", "send fewer headers"]);
    assert_eq!(run.json()["exit_code"], ENDPOINT, "{run}");
    assert_eq!((stats.lists, stats.gets), (1, 0));
    nowhere.assert_untouched();
    let words = ["after 1 try", "more than 256 headers", "send fewer headers"];
    one_fails(Fault::ManyHeaders { count: 300 }, &words);
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_may_begin_anew() {
    for length in [3 * MIB, MIB / 2, 5 * MIB + 1, 0] {
        let nowhere = Nowhere::new();
        let after = Objects::from([("p/changes".to_owned(), bytes_of("another", length))]);
        replaced("restart", &after, &nowhere).expect(0);
        let expected = Objects::from([("changes".to_owned(), bytes_of("another", length))]);
        nowhere.assert_holds(&expected);
    }
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let mut configuration = config(&objects(&[("p/slow", 3 * MIB), ("p/quick", 3)]));
    let slow = Match { key: Some("p/slow".to_owned()), ..Match::default() };
    let stall = Fault::StallBeforeHead { duration: None };
    configuration.faults = FaultPlan::none().with_rule(slow, stall);
    let nowhere = Nowhere::new();
    let options = ["s3://lab/p/", "--deadline", "4s"];
    let run = get(&start(configuration), options).with([nowhere.path()]).run().expect(DEADLINE);
    run.expect_error(&["the deadline has passed", "1 of 2"]);
    nowhere.assert_holds(&Objects::from([("quick".to_owned(), bytes_of("p/quick", 3))]));
}

#[test]
fn a_deadline_names_what_was_waited_for_in_vain() {
    let rule = |fault: Fault, key: Option<&str>| {
        let mut configuration = config(&objects(&[("p/a", 3 * MIB)]));
        let which = Match { key: key.map(str::to_owned), ..Match::default() };
        configuration.faults = FaultPlan::none().with_rule(which, fault);
        start(configuration)
    };
    let expect_message = |origin: &Origin, seconds: &str, words: &[&str]| {
        let nowhere = Nowhere::new();
        let run = get(origin, ["s3://lab/p/", "--deadline", seconds]).with([nowhere.path()]).run();
        run.expect(DEADLINE).expect_error(words);
    };
    // Nothing is listed: by requests that fail, and by one that is never answered.
    let before = "passed before anything was downloaded: waiting for 127.0.0.1:";
    let list = "to answer LIST s3://lab/p/";
    expect_message(&rule(Fault::ResetBeforeHead, None), "3s", &[before, list, "reset"]);
    expect_message(&rule(Fault::StallBeforeHead { duration: None }, None), "3s", &[before, list]);
    // Nothing comes of an object.
    let range = rule(Fault::StallBeforeHead { duration: None }, Some("p/a"));
    expect_message(
        &range,
        "6s",
        &["0 of 1 objects are complete, waiting for 127.0.0.1:", "s3://lab/p/a"],
    );
}

#[test]
fn faults_of_the_listing_are_reported_when_they_last() {
    for (fault, words) in
        [(Fault::SlowDown, "SlowDown"), (Fault::ResetBeforeHead, "list s3://lab/")]
    {
        let mut configuration = config(&objects(&[("p/a", 3)]));
        configuration.faults = FaultPlan::none().with_rule(Match::default(), fault);
        let nowhere = Nowhere::new();
        let options = ["s3://lab/p/", "--retry-for", "0s"];
        let run = get(&start(configuration), options).with([nowhere.path()]).run();
        run.expect(ENDPOINT).expect_error(&[words]);
        nowhere.assert_untouched();
    }
}

#[test]
fn an_object_that_is_gone_or_forbidden_is_reported() {
    // Keys that end during a run: nothing newer is to be had, and the server says why.
    let all = objects(&[("p/a", 3)]);
    let mut configuration = config(&all);
    let expired = std::time::SystemTime::now() - Duration::from_secs(1);
    configuration.credentials =
        configuration.credentials.into_iter().map(|keys| keys.with_expiry(expired)).collect();
    let nowhere = Nowhere::new();
    let run = get(&start(configuration), ["s3://lab/p/"]).with([nowhere.path()]).run();
    run.expect(ACCESS).expect_error(&["ExpiredToken", "get new temporary credentials"]);
    let origin = serve(&all);
    let run = get(&origin, ["s3://lab/p/b"]).with([nowhere.path()]).run();
    run.expect(NOT_FOUND).expect_error(&["did you mean s3://lab/p/a?"]);
    assert!(below("p/", &all).contains_key("a"));
    nowhere.assert_untouched();
}
