//! Buckets with hosts of their own are endpoints of their own: what one refuses holds up no other,
//! and the report counts each by itself.

use std::collections::BTreeMap;
use std::fs;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation};
use serde_json::Value;

use crate::Place;
use crate::matrix::{Objects, bytes_of};
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, config, object, start};

/// How often the one object of the busy bucket is refused.
const REFUSALS: u32 = 8;

fn origin(objects: &Objects) -> inrush_origin::Origin {
    let objects = objects.iter().map(|(key, bytes)| {
        let mut spec = object(key, bytes.clone());
        spec.bucket = if key == "large" { "busy" } else { "free" }.to_owned();
        spec
    });
    let when = Match {
        bucket: Some("busy".to_owned()),
        operation: Some(Operation::GetObject),
        attempts: Some(1..=REFUSALS),
        ..Match::default()
    };
    let objects = objects.collect();
    let faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    start(Config { objects, faults, ..config(&Objects::new()) })
}

/// With one connection the large object would be first, and the others behind all its refusals.
#[test]
fn a_bucket_that_refuses_holds_up_no_other() {
    let mut all: Objects = (0..20).map(|n| (format!("o{n:02}"), bytes_of("o", 500 + n))).collect();
    all.insert("large".to_owned(), bytes_of("large", (2 << 20) + 3));
    let origin = origin(&all);
    let place = Place::new();
    let hosts = place.folder.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost busy.localhost free.localhost\n").expect("a file");
    let report = place.folder.path().join("report");
    let port = origin.address().port();
    // A mount of this run's own, gone with it.
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let hosts = hosts.to_str().expect("UTF-8");
    let run = Program::new(["get", "s3://busy/", "s3://free/", "--addressing-style", "virtual"])
        .with(["--endpoint-url", &format!("http://localhost:{port}"), "--json", "--stats"])
        .with(["--connections", "1", "--workers", "1"])
        .with(["--report", report.to_str().expect("UTF-8")])
        .with([place.path()])
        .with_keys(ACCESS_KEY, SECRET)
        .by_way_of(["unshare", "--mount", "sh", "-c", script, hosts])
        .run();
    if run.stderr.contains("unshare") || run.stderr.contains("mount:") {
        return crate::skip::skip(&format!("names cannot be added here\n{run}"));
    }
    let run = run.expect(0);
    place.assert_holds(&all);
    let text = fs::read_to_string(&report).expect("a report");
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["bucket"], "free", "it did not wait for the other: {run}");
    let summary = run.json();
    let names = ["busy", "free"].map(|bucket| format!("http://{bucket}.localhost:{port}"));
    let of = |what: &str, name: &str| -> Value {
        let lines = summary[what].as_array().expect("a list").iter();
        let mut of = lines.filter(|line| line["endpoint"] == *name);
        let one = of.next().expect("one of this endpoint").clone();
        assert!(of.next().is_none(), "{name} is there once");
        one
    };
    for what in ["endpoints", "addresses"] {
        let counts: BTreeMap<&str, [u64; 3]> = names
            .iter()
            .map(|name| {
                let line = of(what, name);
                assert!(line["first_byte_seconds"].is_number(), "{line}");
                assert!(line["goodput_bytes_per_second"].is_number(), "{line}");
                let number = |field: &str| line[field].as_u64().expect("a number");
                (name.as_str(), ["ranges", "bytes", "slow_downs"].map(number))
            })
            .collect();
        let small = all.values().map(|bytes| bytes.len() as u64).sum::<u64>() - (2 << 20) - 3;
        assert_eq!(counts[&*names[0]], [1, (2 << 20) + 3, REFUSALS.into()], "{summary}");
        assert_eq!(counts[&*names[1]], [20, small, 0], "{summary}");
    }
    for name in &names {
        assert!(run.stderr.contains(&format!("{name}: ")), "{run}");
    }
}
