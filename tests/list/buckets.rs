//! `ls` without a source: the buckets.

use inrush_origin::{
    Config, Fault, FaultPlan, Match, ObjectContent, ObjectSpec, Operation, Origin,
};

use crate::config;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, start};

/// What an origin of these buckets is started with.
fn of_buckets(buckets: &[String]) -> Config {
    let content = ObjectContent::Synthetic { length_bytes: 1 };
    let objects = buckets.iter().map(|bucket| ObjectSpec::new(bucket, "key", content.clone()));
    Config { objects: objects.collect(), ..config(&[]) }
}

fn ls(origin: &Origin, words: &[&str]) -> Program {
    Program::new(["ls"]).with(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn buckets_are_listed_where_no_source_is_given() {
    let origin = start(of_buckets(&["logs".to_owned(), "train.set".to_owned()]));
    for words in [&[][..], &["s3://"]] {
        let run = ls(&origin, words).run().expect(0);
        let expected = "2024-01-01T00:00:00.000Z logs\n2024-01-01T00:00:00.000Z train.set\n";
        run.check(run.stdout == expected && run.stderr.is_empty(), expected);
    }
    let run = ls(&origin, &["--json"]).run().expect(0);
    let expected = concat!(
        r#"{"kind":"bucket","bucket":"logs","creation_date":"2024-01-01T00:00:00.000Z","#,
        r#""region":"us-east-1"}"#
    );
    run.check(run.stdout.lines().next() == Some(expected), expected);
    let stranger = Program::new(["ls"]).asking(&origin).with_keys(ACCESS_KEY, "another");
    stranger.run().expect(3).expect_error(&["list buckets: ", "SignatureDoesNotMatch"]);
}

#[test]
fn all_pages_of_buckets_are_listed_though_the_server_fails() {
    let buckets: Vec<String> = (0..2_500).map(|number| format!("b{number:05}")).collect();
    let requests = Some(2..=3);
    let operation = Some(Operation::ListBuckets);
    let when = Match { operation, requests, ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    let origin = start(Config { faults, ..of_buckets(&buckets) });
    let run = ls(&origin, &[]).run().expect(0);
    let found: Vec<&str> =
        run.stdout.lines().filter_map(|line| Some(line.rsplit_once(' ')?.1)).collect();
    run.check(found == buckets, "every bucket once and in order");
    let stats = origin.stats();
    assert_eq!((stats.requests, stats.faults_total()), (3 + 2, 2), "three pages");
}
