//! What was the limit of a run: the real program in twelve machines that have one narrow place
//! each, ten times as narrow as any other. A seed chooses their numbers (`INRUSH_TEST_SEED`), so
//! that none of them is special.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and processes of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrices belong to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "this test serves computed objects")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::io::Read;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inrush_origin::{
    ChecksumAlgorithm, ChecksumPolicy, Config, Credentials, Fault, FaultPlan, Match, Operation,
    Origin, RequestRate, SyntheticSet, TlsConfig,
};
use serde_json::Value;
use tempfile::TempDir;

use program::{Program, Run};
use served::{ACCESS_KEY, BUCKET, SECRET, get, start};
use skip::skip;

const MIB: u64 = 1 << 20;
/// What a case takes at least: short beside it are all other parts, and the start.
const LEAST_MS: u64 = 1200;
/// A program that ran for less of the time than this was not what kept the processors busy.
const CROWDED_SHARE: f64 = 0.35;
/// With less than this its clock hardly shows what it does when it runs.
const STARVED_SHARE: f64 = 0.02;

/// Numbers of a case, from a seed.
struct Numbers(u64);

impl Numbers {
    /// Those of a case of this name.
    fn of(case: &str) -> Self {
        let seed = std::env::var("INRUSH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let mut state: u64 = seed.unwrap_or(1);
        for byte in case.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        Self(state)
    }

    /// One from `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        least + (self.0 >> 33) % (most - least + 1)
    }
}

/// An origin of `count` objects of `bytes` bytes each.
fn origin_of(count: u64, bytes: u64) -> Config {
    Config {
        synthetic: vec![SyntheticSet::new(BUCKET, "p/", count, bytes)],
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        ..Config::default()
    }
}

/// `get` of all of them, which writes nothing.
fn discard(origin: &Origin) -> Program {
    get(origin, ["s3://lab/p/", "--discard", "--json"])
}

/// True if the program had a processor for less than this share of its time.
fn ran_less_than(summary: &Value, share: f64) -> bool {
    let seconds = |name: &str| summary[name].as_f64().expect("seconds");
    seconds("cpu_seconds") < seconds("seconds") * share
}

/// The verdict is the processors, and others had them: the program hardly ran.
fn is_crowded(summary: &Value) -> bool {
    summary["limit"]["part"] == "cpu" && ran_less_than(summary, CROWDED_SHARE)
}

/// Fails unless this part was the limit, and standard error has its sentence.
#[track_caller]
fn assert_limit(run: &Run, summary: &Value, part: &str) {
    let limit = &summary["limit"];
    if is_crowded(summary) && part != "cpu" {
        // Workers were ready and had no processor: cpu is the limit, and `part` the next share.
        let shares = limit["shares"].as_object().expect("shares");
        let others = shares.iter().filter(|(name, _)| *name != "cpu");
        let largest = others.max_by(|(_, one), (_, other)| {
            let [one, other] = [one, other].map(|share| share.as_f64().expect("a share"));
            one.total_cmp(&other)
        });
        let largest = largest.map(|(name, _)| name.as_str());
        return run.check(largest == Some(part), &format!("{part} was expected: {limit}"));
    }
    run.check(limit["part"] == part, &format!("{part} was expected: {limit}"));
    let share = limit["share"].as_f64().expect("a share");
    run.check((0.2..=1.0).contains(&share), &format!("a share of the time: {limit}"));
    let sentence = limit["sentence"].as_str().expect("a sentence");
    run.check(sentence.starts_with("the limit: "), sentence);
    let speed = |name: &str| limit[name].as_u64().expect("bytes a second");
    run.check(speed("ceiling_bytes_per_second") >= speed("bytes_per_second"), sentence);
}

#[track_caller]
fn check(program: Program, part: &str) -> Run {
    let run = program.run().expect(0);
    assert_limit(&run, &run.json(), part);
    run
}

#[test]
fn the_origins_bandwidth() {
    let mut numbers = Numbers::of("bandwidth");
    let rate = numbers.between(3, 8) * 1_000_000;
    let bytes = rate * numbers.between(LEAST_MS, 2000) / 1000 / 4;
    let origin = start(Config { capacity: NonZeroU64::new(rate), ..origin_of(4, bytes) });
    let connections = numbers.between(2, 16).to_string();
    let run = discard(&origin).with(["--connections", &connections]).run().expect(0);
    assert_limit(&run, &run.json(), "origin_bandwidth");
}

#[test]
fn the_origins_request_rate() {
    let mut numbers = Numbers::of("requests");
    let rate = numbers.between(15, 30);
    let per_second = NonZeroU32::new(u32::try_from(rate).expect("few")).expect("some");
    let config = Config {
        request_rate: Some(RequestRate::new(per_second)),
        ..origin_of(rate * numbers.between(3, 4), 4096)
    };
    check(discard(&start(config)), "request_rate");
}

#[test]
fn latency_with_few_connections() {
    let mut numbers = Numbers::of("latency");
    let latency = numbers.between(100, 200);
    let connections = numbers.between(1, 2);
    let count = 2 * LEAST_MS / latency * connections;
    let config = Config {
        first_byte_latency: Duration::from_millis(latency),
        ..origin_of(count, numbers.between(1, 64) * 1024)
    };
    let words = ["--connections", &connections.to_string()];
    check(discard(&start(config)).with(words), "latency");
}

/// The words before a command that make one system call of it slow; `None`, said on standard error,
/// where there is no strace that may.
fn slowed(call: &str, microseconds: u64) -> Option<Vec<String>> {
    let inject = format!("inject={call}:delay_enter={microseconds}");
    let trace = format!("trace={call}");
    let words = ["strace", "-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-e", &trace, "-e"];
    let words: Vec<String> = words.into_iter().map(str::to_owned).chain([inject]).collect();
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(words);
    }
    skip("there is no strace to make calls of the file system slow");
    None
}

#[test]
fn a_slow_disk() {
    let mut numbers = Numbers::of("disk");
    let Some(slowed) = slowed("pwrite64", numbers.between(300_000, 500_000)) else { return };
    let origin = start(origin_of(numbers.between(2, 5), 16 * MIB));
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["s3://lab/p/", "--json", "--ring", "epoll", "--memory", "16MiB"];
    check(get(&origin, words).with([folder.path()]).by_way_of(slowed), "disk");
}

#[test]
fn creation_of_files() {
    let mut numbers = Numbers::of("files");
    let Some(slowed) = slowed("renameat,renameat2,linkat", numbers.between(100_000, 150_000))
    else {
        return;
    };
    let origin = start(origin_of(numbers.between(900, 1000), 100));
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["s3://lab/p/", "--json"];
    check(get(&origin, words).with([folder.path()]).by_way_of(slowed), "files");
}

#[test]
fn a_slow_reader() {
    let mut numbers = Numbers::of("reader");
    let origin = start(origin_of(2, 4 * MIB));
    let pause = Duration::from_millis(numbers.between(15, 30));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let program = Program::new(["cat", "s3://lab/p/", "--json", "--quiet"]).asking(&origin);
    let program = program.with_keys(ACCESS_KEY, SECRET);
    let report = tempfile::NamedTempFile::new().expect("a file");
    let stderr = report.reopen().expect("a file");
    let running = program.start_with(writer.into(), stderr.into());
    let mut buffer = vec![0; 64 << 10];
    while reader.read(&mut buffer).expect("bytes") > 0 {
        std::thread::sleep(pause);
    }
    let run = running.wait().expect(0);
    let report = std::fs::read_to_string(report.path()).expect("a document");
    assert_limit(&run, &serde_json::from_str(&report).expect("JSON"), "reader");
}

/// Held by the case that keeps a core busy: two of them would leave each other nothing.
static BUSY: Mutex<()> = Mutex::new(());

/// Processes that keep one core busy; they go when it is dropped.
struct Burners {
    children: Vec<Child>,
    _alone: MutexGuard<'static, ()>,
}

impl Burners {
    /// Keeps a core busy, when no other case does.
    fn start(core: u64) -> Self {
        let alone = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        let burn = || {
            Command::new("taskset")
                .args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .expect("taskset")
        };
        Self { children: (0..2).map(|_| burn()).collect(), _alone: alone }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a program on a core that others keep busy, and who is asked before it.
fn crowded(program: Program, core: u64) -> (Burners, Program) {
    let core = core % std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    // The origin has a share of the processors that is many times as large, on a busy machine, too.
    let words = ["nice", "-n", "10", "taskset", "-c", &core.to_string()].map(str::to_owned);
    (Burners::start(core), program.by_way_of(words))
}

/// False, said on standard error, where processes cannot be put on a core.
fn has_taskset() -> bool {
    let tried = Command::new("taskset").args(["-c", "0", "true"]).status();
    let has = tried.is_ok_and(|status| status.success());
    if !has {
        skip("there is no taskset to put a process on a core");
    }
    has
}

#[test]
fn one_core() {
    if !has_taskset() {
        return;
    }
    let mut numbers = Numbers::of("core");
    let origin = start(origin_of(numbers.between(12, 20), 64 * MIB));
    let (_burners, program) = crowded(discard(&origin), numbers.between(0, 63));
    check(program, "cpu");
}

#[test]
fn verification() {
    if !has_taskset() {
        return;
    }
    let mut numbers = Numbers::of("verification");
    // Processors have instructions for SHA-1 and SHA-256: the kernel's work is more than theirs.
    let algorithm =
        if numbers.between(0, 1) == 0 { ChecksumAlgorithm::Sha512 } else { ChecksumAlgorithm::Md5 };
    let policy = ChecksumPolicy::full_object(algorithm);
    let config = Config { checksum: Some(policy), ..origin_of(numbers.between(40, 60), 7 * MIB) };
    let origin = start(config);
    let (_burners, program) = crowded(discard(&origin), numbers.between(0, 63));
    let run = check(program.with(["--verify", "strict"]), "cpu");
    let summary = run.json();
    let work = &summary["limit"]["work"];
    let is_unknown = work.is_null() && ran_less_than(&summary, STARVED_SHARE);
    run.check(work == "verification" || is_unknown, &format!("{work}"));
}

#[test]
fn encryption() {
    if !has_taskset() {
        return;
    }
    let mut numbers = Numbers::of("tls");
    let config =
        Config { tls: Some(TlsConfig::default()), ..origin_of(numbers.between(9, 14), 32 * MIB) };
    let origin = start(config);
    let folder = tempfile::tempdir().expect("a folder");
    let bundle = folder.path().join("ca.pem");
    std::fs::write(&bundle, origin.ca_pem().expect("TLS")).expect("a file");
    let (_burners, program) = crowded(discard(&origin), numbers.between(0, 63));
    check(program.with(["--ca-bundle".as_ref(), bundle.as_os_str()]), "cpu");
}

#[test]
fn small_socket_buffers() {
    let mut numbers = Numbers::of("buffers");
    let Some(python) = python::interpreter("to delay packets with") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain/far.py");
    let (delay, buffer) = (numbers.between(15, 25), numbers.between(2, 4) * 8192);
    let far =
        [python, script.to_str().expect("UTF-8").to_owned(), delay.to_string(), buffer.to_string()];
    let listen = vec!["0.0.0.0:0".parse().expect("an address")];
    let origin = start(Config { listen, ..origin_of(4, numbers.between(3, 5) * MIB / 4) });
    let endpoint = format!("http://10.77.0.2:{}", origin.address().port());
    let program = Program::new(["get", "--quiet", "s3://lab/p/", "--discard", "--json"]);
    let program = program.with(["--endpoint-url", &endpoint, "--region", "us-east-1"]);
    let program = program.with(["--connections", "4"]).with_keys(ACCESS_KEY, SECRET);
    let run = program.by_way_of(far).run();
    if run.status.code() == Some(77) {
        return skip("no tunnels can be made here to delay packets with");
    }
    let run = run.expect(0);
    assert_limit(&run, &run.json(), "socket_buffers");
}

#[test]
fn little_memory() {
    let mut numbers = Numbers::of("memory");
    let rate = numbers.between(1000, 1500) * 1000;
    // Of some dozen connections that there is room for; a hundred times as many would be found.
    let config =
        Config { connection_rate: NonZeroU64::new(rate), ..origin_of(2, rate * 64 * 3 / 2) };
    check(discard(&start(config)).with(["--memory", "4MiB", "--part-size", "1MiB"]), "memory");
}

#[test]
fn slow_listing() {
    let mut numbers = Numbers::of("listing");
    // Much more than all requests need, which take a second where the processors are busy.
    let stall = Duration::from_millis(numbers.between(LEAST_MS, 1500) * 3);
    let when = Match { operation: Some(Operation::ListObjects), ..Match::default() };
    let fault = Fault::StallBeforeHead { duration: Some(stall) };
    let faults = FaultPlan::none().with_rule(when, fault);
    let config = Config { faults, ..origin_of(numbers.between(1, 500), 100) };
    check(discard(&start(config)), "listing");
}

#[test]
fn the_users_bound() {
    let mut numbers = Numbers::of("bound");
    let rate = numbers.between(2, 4);
    let origin = start(origin_of(rate, 3 * MIB));
    let program = discard(&origin).with(["--bandwidth-limit", &format!("{rate}MiB")]);
    let run = check(program, "bandwidth_limit");
    if is_crowded(&run.json()) {
        return;
    }
    let limit = run.json()["limit"].clone();
    let speed = limit["bytes_per_second"].as_u64().expect("a speed");
    let ceiling = (rate * MIB).max(speed);
    assert_eq!(limit["ceiling_bytes_per_second"], ceiling, "{run}");
}

#[test]
fn the_sentence_is_printed_where_it_is_asked_for() {
    let config = Config { first_byte_latency: Duration::from_millis(300), ..origin_of(4, 1000) };
    let origin = start(config);
    let place: TempDir = tempfile::tempdir().expect("a folder");
    let words = ["s3://lab/p/", "--connections", "1", "--explain"];
    let program = Program::new(["get"]).with(words).with([place.path()]).asking(&origin);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    let lines = run.stderr.lines().filter(|line| line.starts_with("the limit: "));
    run.check(lines.count() == 1, "a sentence was expected");
    let program = Program::new(["cat", "s3://lab/p/", "--connections", "1", "--explain"]);
    let run = program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.stderr.contains("the limit: "), "a sentence was expected");
}

/// What an option of its own asks for, and nothing else.
#[test]
fn what_is_asked_for_is_printed_when_all_else_is_not() {
    let config = Config { first_byte_latency: Duration::from_millis(300), ..origin_of(4, 1000) };
    let origin = start(config);
    let run = |words: &[&str]| {
        let program = Program::new(words).with(["s3://lab/p/", "--quiet"]).asking(&origin);
        program.with_keys(ACCESS_KEY, SECRET).run().expect(0)
    };
    for command in [&["get", "--discard"][..], &["cat"]] {
        let stderr_of =
            |words: &[&str]| run(&[command, &["--connections", "1"], words].concat()).stderr;
        assert_eq!(stderr_of(&[]), "");
        let explained = stderr_of(&["--explain"]);
        assert!(explained.starts_with("the limit: "), "{explained}");
        assert_eq!(explained.lines().count(), 1, "{explained}");
        assert!(explained.ends_with("or use larger objects\n"), "ranges are as short: {explained}");
        let stats = stderr_of(&["--stats"]);
        assert!(stats.contains("CPU time ") && !stats.contains("the limit"), "{stats}");
    }
    let stats = run(&["get", "--discard", "--stats"]).stderr;
    assert!(!stats.contains("downloaded"), "the summary was not asked for: {stats}");
}

#[test]
fn a_pipe_that_nobody_opens_waits_for_its_reader() {
    let origin = start(origin_of(2, 1000));
    let place: TempDir = tempfile::tempdir().expect("a folder");
    let channel = place.path().join("train").display().to_string();
    let words = ["pipe", "s3://lab/p/", &channel, "--epochs", "1", "--json", "--deadline", "3s"];
    let run = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(8);
    run.check(run.json()["limit"]["part"] == "reader", "who was waited for");
}
