//! A server that goes away and comes back: every kind of request lives through it, and the program
//! says what it waits for. No test measures time: an outage ends once enough attempts have failed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and processes of its own"
)]

mod gate;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "sizes and names belong to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "usage errors belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` is quiet there")]
mod served;

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Fault, FaultPlan, Match, Origin};
use rustix::process::Signal;

use gate::{Down, Gate};
use matrix::{Objects, bytes_of};
use program::{Program, Running};
use served::{ACCESS_KEY, SECRET, config, serve, start};

const MIB: usize = 1 << 20;
/// Attempts that fail in an outage: more than any number of tries that is the default.
const FAILED: u32 = 12;
/// Bytes of answers after which an outage begins.
const AFTER_BYTES: i64 = 3 << 20;

fn objects() -> Objects {
    let sizes = [("a", 9 * MIB), ("b", 5), ("c", 2 * MIB)];
    sizes.iter().map(|(key, size)| ((*key).to_owned(), bytes_of(key, *size))).collect()
}

/// A command that asks this server.
fn asking(url: &str, words: &[&str]) -> Program {
    let program = Program::new(words).with(["--endpoint-url", url, "--region", "us-east-1"]);
    program.with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn a_listing_waits_for_a_server_that_is_not_up_yet() {
    let origin = serve(&objects());
    for source in ["s3://lab/", "s3://lab/a"] {
        let gate = Gate::start(&origin, 0, Down::Closes(FAILED));
        let run = asking(&gate.url(), &["ls", "--recursive", source]).run().expect(0);
        run.check(run.stdout.contains("s3://lab/a"), "it is listed");
        assert!(gate.closed() >= FAILED, "{}", gate.closed());
    }
}

#[test]
fn a_get_lives_through_an_outage() {
    let all = objects();
    let origin = serve(&all);
    let gate = Gate::start(&origin, AFTER_BYTES, Down::Closes(FAILED));
    let folder = tempfile::tempdir().expect("a folder");
    let destination = format!("{}/", folder.path().display());
    let words = ["get", "--quiet", "--connections", "1", "s3://lab/", &destination];
    asking(&gate.url(), &words).run().expect(0);
    assert!(gate.closed() >= FAILED, "{}", gate.closed());
    for (key, bytes) in &all {
        assert!(fs::read(folder.path().join(key)).expect("a file") == *bytes, "{key}");
    }
}

#[test]
fn cat_lives_through_an_outage() {
    let all = objects();
    let origin = serve(&all);
    let gate = Gate::start(&origin, AFTER_BYTES, Down::Closes(FAILED));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all");
    let (out, log) = (fs::File::create(&path), fs::File::create(folder.path().join("log")));
    let words = ["cat", "--connections", "1", "s3://lab/"];
    let program = asking(&gate.url(), &words);
    let running = program.start_with(out.expect("a file").into(), log.expect("a file").into());
    running.wait().expect(0);
    assert!(gate.closed() >= FAILED, "{}", gate.closed());
    let whole: Vec<u8> = all.values().flatten().copied().collect();
    assert!(fs::read(&path).expect("the stream") == whole);
}

/// The server is killed, and started again once the program's line about it has been read.
#[test]
fn a_pipe_whose_server_is_killed_and_started_again_gives_all_bytes() {
    let all = objects();
    let origin = serve(&all);
    let gate = Gate::start(&origin, AFTER_BYTES, Down::Refuses);
    let folder = tempfile::tempdir().expect("a folder");
    let channel = folder.path().join("train");
    let words = ["pipe", "--connections", "2", "s3://lab/", &channel.display().to_string()];
    let (mut running, log) = begin(asking(&gate.url(), &words));
    let pipe = folder.path().join("train_0");
    assert!(running.until(|| pipe.exists()), "{}", said(&log));
    let reader = std::thread::spawn(move || fs::read(pipe).expect("the stream"));
    let line = format!("waiting for {} to answer GET s3://lab/a", gate.host());
    running.until(|| gate.is_down());
    assert!(running.until(|| said(&log).contains(&line)), "{}", said(&log));
    assert!(said(&log).contains("refused"), "{}", said(&log));
    gate.open();
    let run = running.wait().expect(0);
    let whole: Vec<u8> = all.values().flatten().copied().collect();
    run.check(reader.join().expect("it ends well") == whole, "every byte was expected");
}

#[test]
fn an_outage_is_given_up_when_it_is_to_be_and_ends_with_an_interrupt() {
    let origin = serve(&objects());
    let gate = Gate::start(&origin, 0, Down::Refuses);
    let words = ["get", "--retry-for", "0s", "--discard", "s3://lab/"];
    let run = asking(&gate.url(), &words).run().expect(6);
    run.check(run.stderr.contains("tried 6 times"), "tries alone count");
    let (mut running, log) = begin(asking(&gate.url(), &["get", "--discard", "s3://lab/"]));
    assert!(running.until(|| said(&log).contains("waiting for ")), "{}", said(&log));
    running.signal(Signal::INT);
    running.wait().expect(130);
}

/// Starts it; what it says stands in the file.
fn begin(program: Program) -> (Running, std::path::PathBuf) {
    let log = program.home().join("stderr");
    (program.start(), log)
}

fn said(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

/// Runs it until it has said this.
#[track_caller]
fn expect_line(program: Program, line: &str) {
    let (mut running, log) = begin(program);
    assert!(running.until(|| said(&log).contains(line)), "{line}\n{}", said(&log));
}

#[test]
fn who_never_answers_a_list_or_a_head_is_named() {
    // The kernel takes connections for it, and nobody ever answers.
    let mute = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let host = mute.local_addr().expect("an address").to_string();
    let url = format!("http://{host}");
    let line = |what| format!("waiting for {host} to answer {what}: try 1, ");
    expect_line(asking(&url, &["ls", "--recursive", "s3://lab/x/"]), &line("LIST s3://lab/x/"));
    expect_line(asking(&url, &["ls", "--recursive", "s3://lab/x"]), &line("HEAD s3://lab/x"));
    expect_line(asking(&url, &["get", "--discard", "s3://lab/x/"]), &line("LIST s3://lab/x/"));
    let folder = tempfile::tempdir().expect("a folder");
    let channel = folder.path().join("train").display().to_string();
    expect_line(asking(&url, &["pipe", "s3://lab/x/", &channel]), &line("LIST s3://lab/x/"));
}

/// An origin that lists and never answers a GET.
fn half_mute(all: &Objects) -> Origin {
    let when = Match { operation: Some(GetObject), ..Match::default() };
    let fault = Fault::StallBeforeHead { duration: None };
    let mut configuration = config(all);
    configuration.faults = FaultPlan::none().with_rule(when, fault);
    start(configuration)
}

#[test]
fn who_never_answers_a_get_is_named() {
    let all = objects();
    let origin = half_mute(&all);
    let line = format!("waiting for {} to answer GET s3://lab/", origin.address());
    expect_line(asking(&origin.url(), &["get", "--discard", "s3://lab/"]), &line);
    let folder = tempfile::tempdir().expect("a folder");
    let channel = folder.path().join("train");
    let words = ["pipe", "s3://lab/", &channel.display().to_string()];
    let (mut running, log) = begin(asking(&origin.url(), &words));
    assert!(running.until(|| said(&log).contains(&line)), "{line}\n{}", said(&log));
}
