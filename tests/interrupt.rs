//! Ctrl-C, SIGTERM and SIGKILL in the middle: what has a name is whole, and after the first two
//! nothing else is left but what the next run goes on with.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "common/program.rs"]
#[expect(dead_code, reason = "JSON and plain runs belong to other tests")]
mod program;
#[path = "common/python.rs"]
mod python;
#[path = "common/served.rs"]
#[expect(dead_code, reason = "most tests have no use for a rate")]
mod served;
#[path = "common/skip.rs"]
mod skip;
#[path = "common/without.rs"]
mod without;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use inrush_origin::Operation::{GetObject, HeadObject, ListObjects};
use inrush_origin::{
    Config, Fault, FaultPlan, Match, ObjectContent, ObjectSpec, Origin, synthetic_bytes,
};
use rustix::process::Signal;

use matrix::Objects;
use program::{Program, Run, Running};
use served::{ACCESS_KEY, BUCKET, SECRET, config, get, start};
use without::without;

/// The documented exit code.
const INTERRUPTED: i32 = 130;
/// A stop takes well under a second. A busy machine gets more, but less than any wait for an answer
/// (30 s).
const STOP_SECONDS: f64 = 15.0;
const MIB: usize = 1 << 20;

/// Large objects, which come first, and small ones that take seconds at the origin's pace.
static OBJECTS: LazyLock<Objects> = LazyLock::new(|| {
    let small = (0..600).map(|number| (format!("small/{number:03}"), 2000));
    let large = [("a", 24 * MIB), ("b", 16 * MIB + 1), ("deep/er/c", 5 * MIB)];
    let large = large.map(|(name, length)| (format!("large/{name}"), length));
    let all = small.chain(large).chain([("mark/".to_owned(), 0)]);
    all.map(|(key, length)| {
        let mut bytes = vec![0; length];
        synthetic_bytes(&key, 0, &mut bytes);
        (key, bytes)
    })
    .collect()
});

/// An origin of these objects, which it computes.
fn quick() -> Config {
    let spec = |(key, bytes): (&String, &Vec<u8>)| {
        let length_bytes = bytes.len() as u64;
        ObjectSpec::new(BUCKET, key, ObjectContent::Synthetic { length_bytes })
    };
    Config { objects: OBJECTS.iter().map(spec).collect(), ..config(&Objects::new()) }
}

/// As `quick`, but all objects take some seconds over four connections.
fn slow() -> Config {
    let connection_rate = NonZeroU64::new(12 << 20);
    let first_byte_latency = Duration::from_millis(20);
    Config { connection_rate, first_byte_latency, ..quick() }
}

/// As `quick`, but requests that match are never answered.
fn silent(when: Match) -> Config {
    let fault = Fault::StallBeforeHead { duration: None };
    Config { faults: FaultPlan::none().with_rule(when, fault), ..quick() }
}

fn start_get(origin: &Origin, destination: &Path, before: &[String]) -> Running {
    let options = ["s3://lab/", "--part-size", "1MiB", "--connections", "4"];
    get(origin, options).with([destination]).by_way_of(before).start()
}

/// The files below a folder, by path; folders are looked into and left out.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below");
                found.insert(name.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found
}

/// The unfinished files below a folder.
fn unfinished(folder: &Path) -> usize {
    let files = if folder.exists() { files(folder) } else { BTreeSet::new() };
    files.iter().filter(|name| name.ends_with(".part")).count()
}

/// Fails unless every file is an object, whole, or an unfinished one or its journal; names that no
/// later run knows only where `leftovers` says so.
#[track_caller]
fn assert_whole(folder: &Path, leftovers: bool, run: &Run) -> usize {
    let mut whole = 0;
    if !folder.exists() {
        return whole;
    }
    for name in files(folder) {
        let last = name.rsplit('/').next().unwrap_or_default();
        if last.starts_with(".inrush") {
            let goes_on = name.ends_with(".part") || name.ends_with(".journal");
            run.check(leftovers || goes_on, &format!("{name} is left behind"));
            continue;
        }
        let bytes = fs::read(folder.join(&name)).expect("a file");
        run.check(OBJECTS.get(&name) == Some(&bytes), &format!("{name} is not whole"));
        whole += 1;
    }
    whole
}

/// Stops runs with a signal once `moment` has come: one whose files begin without a name, and one
/// whose files have temporary names.
#[track_caller]
fn stop_when(signal: Signal, moment: impl Fn(&Origin, &Path) -> bool) {
    stop_one(signal, &moment, &[]);
    if let Some(before) = without("tmpfile") {
        stop_one(signal, &moment, &before);
    }
}

#[track_caller]
fn stop_one(signal: Signal, moment: impl Fn(&Origin, &Path) -> bool, before: &[String]) {
    let origin = start(slow());
    let folder = tempfile::tempdir().expect("a folder");
    let destination = folder.path().join("destination");
    let mut running = start_get(&origin, &destination, before);
    assert!(running.until(|| moment(&origin, &destination)), "it ended before its moment");
    let sent = Instant::now();
    running.signal(signal);
    let run = running.wait();
    let seconds = sent.elapsed().as_secs_f64();
    if signal == Signal::KILL {
        let run = run.expect_killed(signal);
        assert_whole(&destination, !before.is_empty(), &run);
        return;
    }
    let run = run.expect(INTERRUPTED).expect_error(&["interrupted: ", " complete"]);
    run.check(seconds < STOP_SECONDS, &format!("it took {seconds:.2} s to stop"));
    let whole = assert_whole(&destination, false, &run);
    let left = match unfinished(&destination) {
        0 => "partial data was discarded".to_owned(),
        parts => format!("{parts} partly downloaded"),
    };
    run.check(run.stderr.contains(&left), &format!("{left} was expected"));
    let folders = usize::from(destination.join("mark").is_dir());
    run.check(whole < OBJECTS.len() - 1, "it was too fast to be interrupted");
    let expected = format!("interrupted: {} o", whole + folders);
    run.check(run.stderr.contains(&expected), &format!("{expected} was expected"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "beside it\n{run}");
    eprintln!("{signal:?} with {whole} objects whole: stopped after {seconds:.3} s");
}

/// Bytes that the origin has sent.
fn sent(bytes: u64) -> impl Fn(&Origin, &Path) -> bool {
    move |origin, _| origin.stats().body_bytes >= bytes
}

#[test]
fn interrupted_at_the_first_request() {
    for signal in [Signal::INT, Signal::TERM] {
        stop_when(signal, |origin, _| origin.stats().gets > 0);
    }
}

#[test]
fn a_session_that_ends_interrupts_unless_that_is_ignored() {
    stop_when(Signal::HUP, sent(4 << 20));
    let origin = start(slow());
    let folder = tempfile::tempdir().expect("a folder");
    let before = ["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""].map(str::to_owned);
    let mut running = start_get(&origin, folder.path(), &before);
    assert!(running.until(|| origin.stats().body_bytes > 1 << 20));
    running.signal(Signal::HUP);
    let stop = origin.stats().body_bytes + (2 << 20);
    assert!(running.until(|| origin.stats().body_bytes > stop), "it goes on");
    running.signal(Signal::TERM);
    running.wait().expect(INTERRUPTED);
}

#[test]
fn interrupted_in_the_middle() {
    stop_when(Signal::INT, sent(1 << 20));
    stop_when(Signal::TERM, sent(4 << 20));
    stop_when(Signal::INT, sent(9 << 20));
}

#[test]
fn interrupted_when_files_are_there() {
    for signal in [Signal::INT, Signal::TERM] {
        stop_when(signal, |_, destination| destination.join("large/deep/er/c").exists());
    }
    stop_when(Signal::INT, |_, destination| destination.join("small/003").exists());
    stop_when(Signal::TERM, |_, destination| destination.join("small/200").exists());
}

#[test]
fn an_object_that_the_user_interrupts_has_not_failed() {
    let origin = start(slow());
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["get", "-v", "s3://lab/large/", "--connections", "4"];
    let program = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let mut running = program.with([folder.path()]).start();
    assert!(running.until(|| origin.stats().body_bytes > 1 << 20));
    running.signal(Signal::INT);
    let run = running.wait().expect(INTERRUPTED);
    run.check(!run.stderr.contains("failed"), "it was interrupted");
    // "0 of 3 objects", or "0 objects" if the last page of the listing had not come.
    run.expect_words(&["\nnot complete: get: s3://lab/large/", "interrupted: 0 "]);
}

#[test]
fn killed_at_several_moments() {
    stop_when(Signal::KILL, |origin, _| origin.stats().gets > 0);
    for megabytes in [1, 3, 7, 20] {
        stop_when(Signal::KILL, sent(megabytes << 20));
    }
    stop_when(Signal::KILL, |_, destination| destination.join("small/100").exists());
}

#[test]
fn what_was_interrupted_can_be_run_again() {
    let origin = start(slow());
    let folder = tempfile::tempdir().expect("a folder");
    for signal in [Signal::KILL, Signal::INT] {
        let before = origin.stats().body_bytes;
        let mut running = start_get(&origin, folder.path(), &[]);
        assert!(running.until(|| origin.stats().body_bytes > before + (2 << 20)));
        running.signal(signal);
        running.wait();
    }
    get(&start(quick()), ["s3://lab/"]).with([folder.path()]).run().expect(0);
    let mut files = OBJECTS.clone();
    files.remove("mark/");
    matrix::assert_same(folder.path(), &files);
}

/// Interrupts a run that waits for ever for the answer to some request.
#[track_caller]
fn stop_waiting(signal: Signal, words: &[&str], when: Match) {
    let operation = when.operation;
    let origin = start(silent(when));
    let folder = tempfile::tempdir().expect("a folder");
    let destination = folder.path().join("destination");
    let mut running = get(&origin, words).with([&destination]).start();
    assert!(running.until(|| origin.stats().faults_total() > 0), "it waits for nothing");
    // It may still be on its way to the wait.
    std::thread::sleep(Duration::from_millis(50));
    let sent = Instant::now();
    running.signal(signal);
    let run = running.wait();
    let seconds = sent.elapsed().as_secs_f64();
    let run = run.expect(INTERRUPTED).expect_error(&["interrupted"]);
    run.check(seconds < STOP_SECONDS, &format!("it took {seconds:.2} s to stop"));
    assert_whole(&destination, false, &run);
    run.check(unfinished(&destination) == 0, "no byte came to go on with");
    if operation != Some(GetObject) {
        run.check(!destination.exists(), "nothing should have been made");
    }
}

#[test]
fn interrupted_while_the_server_says_nothing() {
    let on = |operation| Match { operation: Some(operation), ..Match::default() };
    for signal in [Signal::INT, Signal::TERM] {
        stop_waiting(signal, &["s3://lab/"], on(GetObject));
        stop_waiting(signal, &["s3://lab/"], on(ListObjects));
        stop_waiting(signal, &["s3://lab/small/000"], on(HeadObject));
    }
}

/// A FIFO that nobody writes to.
fn empty_pipe(folder: &Path) -> PathBuf {
    let pipe = folder.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    pipe
}

/// Interrupts a command that waits for this pipe, which it is to name.
#[track_caller]
fn stop_reading(program: Program, pipe: &Path) {
    use rustix::fs::{Mode, OFlags, open};
    let mut running = program.start();
    let mut writer = None;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // It is there once somebody reads.
    let is_read = || {
        writer = open(pipe, flags, Mode::empty()).ok();
        writer.is_some()
    };
    assert!(running.until(is_read), "it reads nothing\n{}", running.wait());
    running.signal(Signal::INT);
    let expected = format!("waiting for {} to be readable", pipe.display());
    running.wait().expect(INTERRUPTED).expect_error(&["interrupted before", &expected]);
}

#[test]
fn a_file_that_never_comes_is_named_and_holds_no_end_up() {
    let origin = start(quick());
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, data) = (empty_pipe(folder.path()), folder.path().join("data"));
    let path = || pipe.to_str().expect("UTF-8");
    let to = |words: &[&str]| get(&origin, words).with([&data]);
    stop_reading(to(&["s3://lab/"]).set("AWS_CONFIG_FILE", &pipe), &pipe);
    stop_reading(to(&["s3://lab/"]).set("AWS_SHARED_CREDENTIALS_FILE", &pipe), &pipe);
    stop_reading(to(&["s3://lab/", "--sse-c-key-file", path()]), &pipe);
    stop_reading(to(&["--files-from", path()]), &pipe);
    stop_reading(to(&["--manifest", path()]), &pipe);
    fs::create_dir(&data).expect("a folder");
    for command in ["verify", "sync", "pipe", "cat"] {
        let words = [command, "--quiet", "s3://lab/"];
        let program = Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
        let program = if command == "cat" { program } else { program.with([data.join("x")]) };
        stop_reading(program.set("AWS_CONFIG_FILE", &pipe), &pipe);
    }
    let late = to(&["s3://lab/", "--deadline", "1s"]).set("AWS_CONFIG_FILE", &pipe).run();
    let expected = format!("downloaded: waiting for {} to be readable", path());
    late.expect(8).expect_error(&["the deadline has passed before anything was", &expected]);
}

#[test]
fn a_report_that_nobody_reads_holds_nothing_up() {
    for read in [false, true] {
        let origin = start(quick());
        let folder = tempfile::tempdir().expect("a folder");
        let (destination, pipe) = (folder.path().join("destination"), folder.path().join("pipe"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
        let reader = fs::File::options().read(true).write(true).open(&pipe).expect("a pipe");
        let words = ["s3://lab/", "--report", pipe.to_str().expect("UTF-8")];
        let mut running = get(&origin, words).with([&destination]).start();
        let all = OBJECTS.len() - 1;
        let done = || destination.exists() && files(&destination).len() == all;
        assert!(running.until(done), "it waits for nobody");
        if read {
            let lines = BufReader::new(reader).lines().take(OBJECTS.len());
            assert!(lines.map(|line| line.expect("a line")).all(|line| line.contains("\"ok\"")));
            running.wait().expect(0);
        } else {
            // It is more than the pipe holds.
            running.signal(Signal::INT);
            running.wait().expect(INTERRUPTED).expect_words(&["is incomplete"]);
        }
    }
}

#[test]
fn signals_that_were_blocked_at_the_start_end_it() {
    // What a parent blocks in itself, its children have blocked.
    let before = ["env", "--block-signal=HUP,INT,TERM,CHLD"].map(str::to_owned);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        stop_one(signal, sent(1 << 20), &before);
    }
}

#[test]
fn messages_that_nobody_reads_hold_nothing_up() {
    let origin = start(quick());
    let folder = tempfile::tempdir().expect("a folder");
    let destination = folder.path().join("destination");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // A line for each object is more than that.
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("the smallest pipe");
    let program = Program::new(["get", "-vv", "s3://lab/"]).with([&destination]).asking(&origin);
    let program = program.with_keys(ACCESS_KEY, SECRET);
    program.start_with(Stdio::null(), Stdio::from(writer)).wait().expect(0);
    assert_eq!(files(&destination).len(), OBJECTS.len() - 1);
    drop(reader);
}

#[test]
fn a_listing_and_a_diagnosis_are_ended_by_the_signal_itself() {
    let when = Match { operation: Some(ListObjects), ..Match::default() };
    let origin = start(silent(when));
    let commands = [&["ls", "--recursive", "s3://lab/"][..], &["doctor", "s3://lab/large/"]];
    let signals = [Signal::INT, Signal::TERM];
    for (signal, words) in signals.into_iter().flat_map(|signal| commands.map(|it| (signal, it))) {
        let program = Program::new(words).asking(&origin);
        let before = origin.stats().faults_total();
        let mut running = program.with_keys(ACCESS_KEY, SECRET).start();
        assert!(running.until(|| origin.stats().faults_total() > before), "it waits for nothing");
        running.signal(signal);
        running.wait().expect_killed(signal);
    }
}
