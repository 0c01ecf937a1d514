//! `--metrics-listen`, `--metrics-file` and `--log-format` with the real program: what is scraped
//! is well-formed, only grows where it says so, and comes to what `--json` says. The dashboard
//! names nothing else.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and sockets of its own"
)]

mod commands;
#[path = "../common/fuse.rs"]
#[expect(dead_code, reason = "the kernel's table belongs to other tests")]
mod fuse;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "launchers belong to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
mod served;
#[path = "../common/skip.rs"]
mod skip;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use inrush::report::exposition::{INFO, METRICS, MetricKind};
use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};

use matrix::{Objects, bytes_of};
use program::{Program, Run, Running};
use rustix::process::Signal;
use served::{ACCESS_KEY, SECRET, config, get, start};
use text::Scrape;

const MIB: usize = 1 << 20;
/// The exit codes of a machine that lacks something, and of a destination.
const HOST: i32 = 7;
const DESTINATION: i32 = 5;

fn objects() -> Objects {
    (0..12).map(|number| (format!("a/{number}"), bytes_of("some", 2 * MIB + number))).collect()
}

/// What a server answers to a request for this path.
fn asked(at: SocketAddr, request: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

fn scraped(at: SocketAddr) -> Option<Scrape> {
    let (head, body) = asked(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"),
        "{head}"
    );
    Some(Scrape::read(&body))
}

/// Where the program says that it serves.
fn address(running: &mut Running, log: &Path) -> SocketAddr {
    let mut found = None;
    running.until(|| {
        let text = fs::read_to_string(log).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("metrics: http://"));
        found = line.and_then(|line| line.strip_suffix("/metrics")?.parse().ok());
        found.is_some()
    });
    found.expect("an address")
}

/// Answers are slow, some ask for less, some are cut, a listing is refused once, and one object
/// always fails.
fn troubled() -> Origin {
    let at = |key: &str| Match { key: Some(key.to_owned()), ..Match::default() };
    let slow = FaultPlan::none()
        .with_rule(
            Match {
                operation: Some(Operation::ListObjects),
                attempts: Some(1..=1),
                ..Match::default()
            },
            Fault::SlowDown,
        )
        .with_rule(Match { attempts: Some(1..=2), ..at("a/1") }, Fault::SlowDown)
        .with_rule(Match { attempts: Some(1..=3), ..at("a/2") }, Fault::ResetBeforeHead)
        .with_rule(at("a/3"), Fault::InternalError);
    start(Config {
        faults: slow,
        capacity: std::num::NonZeroU64::new(16 << 20),
        ..config(&objects())
    })
}

#[test]
fn every_name_moves_in_a_run_and_the_sum_is_that_of_the_report() {
    let origin = troubled();
    let folder = tempfile::tempdir().expect("a folder");
    let (destination, file) = (folder.path().join("d"), folder.path().join("inrush.prom"));
    // One is there already.
    get(&origin, ["s3://lab/a/0".as_ref(), destination.join("").as_os_str()]).run().expect(0);
    let log = folder.path().join("log");
    let program = Program::new(["get", "s3://lab/a/", "--json", "--max-attempts", "7"])
        .with(["--retry-for", "0", "--metrics-listen", "127.0.0.1:0"])
        .with(["--metrics-file".as_ref(), file.as_os_str(), destination.as_os_str()])
        .asking(&origin)
        .with_keys(ACCESS_KEY, SECRET);
    let (out, stderr) = (folder.path().join("out"), fs::File::create(&log).expect("a file"));
    let out_file = fs::File::create(&out).expect("a file");
    let mut running = program.start_with(out_file.into(), stderr.into());
    let at = address(&mut running, &log);
    let (mut moved, mut last) = (BTreeSet::new(), None::<Scrape>);
    while !running.has_ended() {
        let Some(now) = scraped(at) else { continue };
        for metric in METRICS {
            let value = now.value(metric.name);
            if value > 0.0 {
                moved.insert(metric.name);
            }
            if let Some(before) = last.as_ref().filter(|_| metric.kind == MetricKind::Counter) {
                assert!(value >= before.value(metric.name), "{} went back", metric.name);
            }
        }
        last = Some(now);
    }
    let run = running.wait();
    assert_eq!(
        run.status.code(),
        Some(1),
        "one object fails: {}",
        fs::read_to_string(&log).unwrap_or_default()
    );
    let last = last.expect("it was scraped during the run");
    let end = Scrape::read(&fs::read_to_string(&file).expect("the file"));
    moved.extend(METRICS.iter().map(|metric| metric.name).filter(|name| end.value(name) > 0.0));
    let all = METRICS.iter().map(|metric| metric.name);
    // What the machine's sockets hold, and whether it drops packets, is no matter of the run.
    // And it reads no mount.
    let others = ["inrush_tcp_", "inrush_opened_", "inrush_cache_"];
    let is_read = |name: &str| name.contains("reads_total") || name == "inrush_read_bytes_total";
    let is_of_run =
        |name: &&str| !others.iter().any(|others| name.starts_with(others)) && !is_read(name);
    let own: BTreeSet<&str> = all.filter(is_of_run).collect();
    moved.retain(is_of_run);
    assert_eq!(moved, own, "each moved");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&out).expect("a document")).expect("JSON");
    for (name, field) in [
        ("inrush_received_bytes_total", "bytes"),
        ("inrush_objects_total", "objects"),
        ("inrush_failed_objects_total", "failed_objects"),
        ("inrush_kept_objects_total", "kept_objects"),
    ] {
        assert_eq!(Some(end.value(name)), report[field].as_f64(), "{name} and {field}: {report}");
        assert!(last.value(name) <= end.value(name), "{name}");
    }
    let sum = |counts: &serde_json::Value| -> f64 {
        counts.as_object().expect("by reason").values().filter_map(serde_json::Value::as_f64).sum()
    };
    let retries = end.value("inrush_retries_total") + end.value("inrush_control_retries_total");
    assert_eq!(retries, sum(&report["retries"]) + sum(&report["control_retries"]), "{report}");
    assert_eq!(end.value("inrush_known_objects"), 11.0);
    for name in
        ["inrush_requests_in_flight", "inrush_wanted_requests", "inrush_waiting_connections"]
    {
        assert_eq!(end.value(name), 0.0, "{name} at the end");
    }
    names_nothing(&end, &file);
    drop(run);
}

#[test]
fn streams_report_their_pace_and_what_was_answered() {
    let origin =
        start(Config { capacity: std::num::NonZeroU64::new(8 << 20), ..config(&objects()) });
    let folder = tempfile::tempdir().expect("a folder");
    let (file, log) = (folder.path().join("inrush.prom"), folder.path().join("log"));
    let stderr = fs::File::create(&log).expect("a file");
    let program = Program::new(["cat", "s3://lab/a/", "--json", "--connections", "5"])
        .with(["--metrics-listen", "127.0.0.1:0"])
        .with(["--metrics-file".as_ref(), file.as_os_str()])
        .asking(&origin)
        .with_keys(ACCESS_KEY, SECRET);
    let mut running = program.start_with(std::process::Stdio::null(), stderr.into());
    let at = address(&mut running, &log);
    let (mut in_flight, mut answers) = (0.0, 0.0);
    while !running.has_ended() {
        let Some(now) = scraped(at) else { continue };
        in_flight = now.value("inrush_requests_in_flight");
        assert!(in_flight == 0.0 || now.value("inrush_wanted_requests") == 5.0, "as many as asked");
        let before = std::mem::replace(&mut answers, now.value("inrush_answers_total"));
        assert!(answers >= before, "it went back from {before} to {answers}");
        if in_flight > 0.0 && answers > 0.0 {
            break;
        }
    }
    let run = running.wait().expect(0);
    run.check(in_flight > 0.0 && in_flight <= 5.0, &format!("{in_flight} requests in flight"));
    run.check(answers > 0.0, "answers while it runs");
    let end = Scrape::read(&fs::read_to_string(&file).expect("the file"));
    let text = fs::read_to_string(&log).expect("UTF-8");
    let report: serde_json::Value =
        serde_json::from_str(text.lines().last().expect("a line")).expect("a document");
    let addresses = report["channels"][0]["addresses"].as_array().expect("addresses");
    let ranges: f64 = addresses.iter().filter_map(|address| address["ranges"].as_f64()).sum();
    assert_eq!((end.value("inrush_answers_total"), ranges), (13.0, 13.0), "{report}");
    assert_eq!(Some(end.value("inrush_received_bytes_total")), report["bytes"].as_f64());
    run.check(end.value("inrush_exit_code") == 0.0, "it succeeded");
    run.check(end.value("inrush_end_time_seconds") > 0.0, "it ended");
}

#[test]
fn a_run_that_failed_says_so_in_its_file() {
    let origin = start(config(&objects()));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("inrush.prom");
    let run = get(&origin, ["s3://lab/nothing/".as_ref(), folder.path().join("d").as_os_str()]);
    let run = run.with(["--metrics-file".as_ref(), file.as_os_str()]).run().expect(4);
    let end = Scrape::read(&fs::read_to_string(&file).expect("the file"));
    run.check(end.value("inrush_exit_code") == 4.0, "the exit code");
    let [began, ended] =
        ["inrush_start_time_seconds", "inrush_end_time_seconds"].map(|name| end.value(name));
    run.check(ended >= began && began > 0.0, "when it ended");
}

/// Labels have no secret and no name of the world, and nothing is left beside the file.
fn names_nothing(end: &Scrape, file: &Path) {
    let labels = &end.labels[INFO];
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["command", "version"]);
    assert_eq!(labels["command"], "get");
    let text = fs::read_to_string(file).expect("the file");
    for secret in [ACCESS_KEY, SECRET, "lab", "a/3", "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let left =
        fs::read_dir(file.parent().expect("a folder")).expect("a folder").filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok().filter(|name| name.starts_with(".inrush"))
        });
    assert_eq!(left.count(), 0, "no temporary file is left");
}

#[test]
fn only_one_page_is_served_and_clients_that_are_silent_hold_nothing_up() {
    let origin =
        start(Config { capacity: std::num::NonZeroU64::new(4 << 20), ..config(&objects()) });
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let stderr = fs::File::create(&log).expect("a file");
    let program = Program::new(["cat", "s3://lab/a/", "--metrics-listen", "[::1]:0"]);
    let program = match TcpListener::bind("[::1]:0") {
        Ok(_) => program,
        Err(_) => Program::new(["cat", "s3://lab/a/", "--metrics-listen", "127.0.0.1:0"]),
    };
    let program = program.asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let mut running = program.start_with(std::process::Stdio::null(), stderr.into());
    let at = address(&mut running, &log);
    let silent: Vec<_> = (0..48).filter_map(|_| TcpStream::connect(at).ok()).collect();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
    ] {
        let (head, _) = asked(at, request).expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
    }
    let scrape = scraped(at).expect("a scrape");
    assert_eq!(scrape.labels[INFO]["command"], "cat");
    running.signal(Signal::INT);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(130), "{run}");
    drop(silent);
}

#[test]
fn what_cannot_be_had_ends_a_run_before_it_begins() {
    let origin = start(config(&objects()));
    let folder = tempfile::tempdir().expect("a folder");
    let destination = folder.path().join("d");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|at| (taken, at.to_string())).expect("an address");
    let expect_message = |option: &str, value: &str, code: i32, words: &[&str]| {
        let run = get(&origin, ["s3://lab/a/".as_ref(), destination.as_os_str()]);
        run.with([option, value]).run().expect(code).expect_error(words);
        assert!(!destination.exists(), "nothing is made");
    };
    let words = ["cannot listen on 127.0.0.1:", "Address already in use", "another port"];
    expect_message("--metrics-listen", &taken.1, HOST, &words);
    let nowhere = folder.path().join("none/x.prom").display().to_string();
    expect_message(
        "--metrics-file",
        &nowhere,
        DESTINATION,
        &["cannot write the metrics", "x.prom"],
    );
    assert_eq!(origin.stats().requests, 0, "nobody was asked");
    Program::new(["get", "s3://lab/a", "d", "--metrics-listen", "9400"]).run().expect(2);
}

#[test]
fn lines_are_json_where_that_is_wanted() {
    let origin = troubled();
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::new(["get", "s3://lab/a/", "-vv", "--log-format", "json"])
        .with(["--max-attempts", "4", "--retry-for", "0"])
        .with([folder.path()])
        .asking(&origin)
        .with_keys(ACCESS_KEY, SECRET);
    let run = program.run().expect(1);
    let mut levels = BTreeSet::new();
    for line in run.stderr.lines() {
        let document: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}\n{run}"));
        let fields: Vec<&str> =
            document.as_object().expect("fields").keys().map(String::as_str).collect();
        assert_eq!(fields, ["level", "message", "time"], "{line}");
        let time = document["time"].as_str().expect("a time");
        assert!(humantime::parse_rfc3339(time).is_ok(), "{line}");
        assert!(
            document["message"].as_str().is_some_and(|text| !text.starts_with("error")),
            "{line}"
        );
        levels.insert(document["level"].as_str().expect("a level").to_owned());
    }
    assert_eq!(levels.iter().map(String::as_str).collect::<Vec<_>>(), ["debug", "error", "info"]);
    run.check(!run.stderr.contains(SECRET), "no secret");
    let missing = Program::new(["ls", "s3://absent/", "--log-format", "json"]).asking(&origin);
    let run = missing.with_keys(ACCESS_KEY, SECRET).run().expect(4);
    let document: serde_json::Value = serde_json::from_str(&run.stderr).expect("one line of JSON");
    assert_eq!(document["level"], "error", "{run}");
}

/// The names of metrics in an expression.
fn names_in(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("inrush_")).collect()
}

#[test]
fn the_dashboard_names_what_is_exported() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/grafana/inrush.json");
    let text = fs::read_to_string(path).expect("a dashboard");
    let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for field in ["title", "uid", "schemaVersion", "time", "templating", "panels"] {
        assert!(!board[field].is_null(), "{field}");
    }
    let exported: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).chain([INFO]).collect();
    let variables: Vec<&str> = board["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    let (mut named, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let mut cells = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id");
        assert!(
            ["timeseries", "stat"].contains(&panel["type"].as_str().expect("a type")),
            "{title}"
        );
        let at = |side: &str| panel["gridPos"][side].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for cell in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(cells.insert(cell), "{title} lies on another");
        }
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title}");
        let ids: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str()).collect();
        assert_eq!(ids.len(), targets.len(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().expect("an expression");
            let names = names_in(expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(exported.contains(name), "{name} is not exported");
                let is_counter = name.ends_with("_total");
                let is_rate = expression.contains("rate(");
                assert!(is_counter || !is_rate, "{expression}: rate() is for counters");
                named.insert(name);
            }
            let open = expression.matches(['(', '{', '[']).count();
            assert_eq!(open, expression.matches([')', '}', ']']).count(), "{expression}");
        }
    }
    assert_eq!(named, exported, "each has a place");
    for variable in ["datasource", "instance"] {
        assert!(
            variables.contains(&variable) && text.contains(&format!("${variable}"))
                || text.contains(&format!("${{{variable}}}")),
            "{variable}"
        );
    }
}

/// Prometheus's own parser reads a file, where Python has it.
#[test]
fn the_client_of_prometheus_reads_it() {
    let Some(python) = python::interpreter("to read metrics with") else { return };
    let script = "import sys\n\
                  from prometheus_client.parser import text_string_to_metric_families as read\n\
                  print(sum(len(family.samples) for family in read(open(sys.argv[1]).read())))";
    let has = Command::new(&python).args(["-c", "import prometheus_client"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        // The strict parser above reads the same.
        eprintln!("skipped: this Python has no prometheus_client");
        return;
    }
    let origin = start(config(&objects()));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.prom");
    let program = get(&origin, ["s3://lab/a/", "--discard"]);
    let run: Run = program.with(["--metrics-file".as_ref(), file.as_os_str()]).run();
    run.expect(0);
    let read = Command::new(python).args(["-c", script]).arg(&file).output().expect("Python");
    assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), (METRICS.len() + 1).to_string());
}
