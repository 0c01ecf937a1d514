//! The program as containers, services and careful administrators start it: without capabilities,
//! under a seccomp filter, with little memory, on a root that is read-only, without a home. Bytes
//! are right under each, what is missing is named in one line, and what needs little starts.

#![expect(clippy::disallowed_types, reason = "a test has files of its own")]
#![expect(clippy::disallowed_methods, reason = "a test waits for a while, not for ever")]

mod cgroup;
mod launch;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` begins with a launcher here")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use inrush_origin::{Config, Origin};

use cgroup::Cgroup;
use launch::{Copied, Launch, open_to_all};
use matrix::{Objects, bytes_of};
use program::{Program, Run};
use served::{ACCESS_KEY, SECRET, config, start};
use skip::skip;

const MIB: usize = 1 << 20;
/// The exit code of a machine that cannot run it.
const HOST: i32 = 7;
/// Becomes a user without capabilities. Each test has one of its own: the kernel counts locked
/// memory, processes and pages of pipes by users, and tests run beside each other.
const USER: [&str; 4] = ["setpriv", "--regid=65534", "--clear-groups", "--no-new-privs"];

fn objects() -> Objects {
    [("a", 3), ("b/c", 20 * MIB + 7), ("b/d", 39_000), ("empty", 0)]
        .map(|(key, length)| (key.to_owned(), bytes_of(key, length)))
        .into()
}

/// An origin, its objects, and a folder that everybody may write to.
struct Place {
    origin: Origin,
    objects: Objects,
    folder: tempfile::TempDir,
    copied: Arc<Copied>,
    /// How many workers it has; as many as processors unless some are named.
    workers: &'static [&'static str],
}

impl Place {
    fn new() -> Self {
        let objects = objects();
        let origin = start(Config { md5_etags: true, ..config(&objects) });
        let folder = tempfile::tempdir().expect("a folder");
        open_to_all(folder.path());
        Self { origin, objects, folder, copied: Copied::shared(), workers: &[] }
    }

    /// A scene with two workers, on a machine of any number of processors: limits are for all.
    fn with_two_workers() -> Self {
        Self { workers: &["--workers", "2"], ..Self::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with these words, as `launch` starts it.
    fn program(&self, launch: &Launch, words: &[&str]) -> Program {
        let program = Program::new(words).with_keys(ACCESS_KEY, SECRET);
        let program = match words[0] {
            "get" | "cat" | "ls" | "verify" => program.asking(&self.origin),
            _ => program,
        };
        launch.start(&self.copied, program)
    }

    /// `get` has every byte right, with these words in its `--stats`.
    fn gets(&self, launch: &Launch, expected: &[&str]) -> Run {
        let run = self.gets_with(launch, &["--stats"]);
        for words in expected {
            run.check(run.stderr.contains(words), &format!("{words:?} was expected"));
        }
        run
    }

    /// `get` with these words has every byte right.
    fn gets_with(&self, launch: &Launch, words: &[&str]) -> Run {
        let to = self.path().join("to");
        let program = self.program(launch, &["get", "s3://lab/", to.to_str().expect("UTF-8")]);
        let run = program.with(self.workers).with(words).run().expect(0);
        matrix::assert_same(&to, &self.objects);
        run
    }

    /// `get` has every byte right by epoll, and says in one line of standard error what is missing
    /// and how to allow it; else it only sums up.
    fn gets_by_epoll(&self, launch: &Launch, expected: &[&str]) {
        // What is there already need not be fetched.
        let _ = fs::remove_dir_all(self.path().join("to"));
        let run = self.gets_with(launch, &["--json"]);
        run.check(run.json()["ring"]["kind"] == "epoll", "epoll was expected");
        let is_summary =
            |line: &&str| line.starts_with("4 objects, ") || line.contains(" verified");
        let lines: Vec<&str> = run.stderr.lines().filter(|line| !is_summary(line)).collect();
        run.check(lines.len() == 1, "one line was expected besides the summary");
        for words in
            ["inrush: io_uring is not available (", "): using epoll; "].iter().chain(expected)
        {
            run.check(lines[0].contains(words), &format!("{words:?} was expected"));
        }
    }

    /// `cat` has every byte right, and these words in its `--stats`.
    fn cats(&self, launch: &Launch, expected: &[&str]) {
        let said = self.cats_with(launch, &["--stats"]);
        for words in expected {
            assert!(said.contains(words), "{words:?} was expected: {said}");
        }
    }

    /// `cat` with these words has every byte right; what it said.
    fn cats_with(&self, launch: &Launch, words: &[&str]) -> String {
        let path = self.path().join("stderr");
        let stderr = File::create(&path).expect("a file");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let program = self.program(launch, &["cat", "s3://lab/b/"]);
        let program = program.with(words);
        let running = program.start_with(Stdio::from(writer), Stdio::from(stderr));
        // Beside the wait, which is bounded: the stream of a program that hangs has no end.
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        let code = running.wait().status.code();
        let bytes = reading.join().expect("reading does not panic").expect("a stream");
        let said = fs::read_to_string(&path).expect("UTF-8");
        assert_eq!(code, Some(0), "{said}");
        let wanted = [&self.objects["b/c"][..], &self.objects["b/d"]].concat();
        assert!(bytes == wanted, "{} of {} bytes, or others", bytes.len(), wanted.len());
        said
    }

    /// What needs no ring works: it lists, verifies what `get` left, and helps.
    fn starts(&self, launch: &Launch) {
        let run = self.program(launch, &["ls", "--recursive", "s3://lab/"]).run().expect(0);
        run.check(run.stdout.contains("b/c"), "it lists");
        let to = self.path().join("to");
        let words = ["verify", "--strict", "s3://lab/", to.to_str().expect("UTF-8")];
        self.program(launch, &words).run().expect(0);
        for words in [&["--help"][..], &["get", "--help"], &["completions", "bash"], &["guide"]] {
            let run = self.program(launch, words).run().expect(0);
            run.check(!run.stdout.is_empty(), "it prints");
        }
    }

    /// All of it.
    fn works(&self, launch: &Launch, expected: &[&str]) {
        self.gets(launch, expected);
        self.cats(launch, &[]);
        self.starts(launch);
    }
}

#[test]
fn under_the_default_seccomp_profile_of_docker() {
    let Some(launch) = Launch::python("docker.py", &[]) else { return };
    let place = Place::new();
    let allowed = "a seccomp profile may forbid it (Docker's default one does): allow \
                   io_uring_setup, io_uring_enter and io_uring_register; see inrush guide";
    place.gets_by_epoll(&launch, &[allowed]);
    let said = place.cats_with(&launch, &["--quiet"]);
    assert_eq!(said, "", "it prints nothing about what it can do without");
    place.cats(&launch, &["io_uring is not available", allowed]);
    place.starts(&launch);
}

#[test]
fn with_little_locked_memory() {
    // Room for the rings, not for the buffers.
    let enough = ["prlimit", "--memlock=1048576:1048576"];
    let user = [&USER[..], &["--reuid=65531"]].concat();
    let Some(launch) = Launch::of_tools(&[&enough, &user]) else { return };
    let place = Place::with_two_workers();
    place.works(&launch, &["buffers not registered: raise the locked-memory limit"]);
    // Docker's default on some machines, and none at all: newer kernels count the rings, too.
    for limit in ["--memlock=65536:65536", "--memlock=0:0"] {
        let user = [&USER[..], &["--reuid=65530"]].concat();
        let Some(launch) = Launch::of_tools(&[&["prlimit", limit], &user]) else { return };
        let place = Place::with_two_workers();
        let run = place.gets(&launch, &["locked-memory limit"]);
        if run.stderr.contains("io_uring is not available") {
            place.gets_by_epoll(&launch, &["; raise the locked-memory limit (ulimit -l)"]);
        }
        place.cats(&launch, &[]);
        place.starts(&launch);
    }
}

#[test]
fn as_a_user_without_a_home() {
    let user = [&USER[..], &["--reuid=65534"]].concat();
    let Some(launch) = Launch::of_tools(&[&user]) else { return };
    let place = Place::new();
    place.works(&launch.clone().without_home(), &[]);
    // One that is named, but is not there.
    fs::remove_dir_all(place.path().join("to")).expect("a folder");
    place.works(&launch.with_home("/nonexistent"), &[]);
}

#[test]
fn on_a_root_that_is_read_only() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let Some(launch) = Launch::read_only_root(place.path(), elsewhere.path()) else { return };
    // It is, for this launch.
    let to = elsewhere.path().join("to");
    let words = ["get", "s3://lab/", to.to_str().expect("UTF-8")];
    let run = place.program(&launch, &words).run().expect(5);
    run.expect_error(&["Read-only file system"]);
    place.works(&launch, &[]);
}

#[test]
fn in_a_cgroup_with_little_memory_and_half_a_processor() {
    let Some(cgroup) = Cgroup::new(128 << 20, 50) else { return };
    let place = Place::new();
    let launch = Launch::plain().within(&cgroup);
    let run = place.gets(&launch, &["1 worker, "]);
    place.cats(&launch, &[]);
    place.starts(&launch);
    assert_eq!(cgroup.killed(), 0, "memory was short\n{run}");
    if let Some(peak) = cgroup.peak_bytes() {
        assert!((1 << 20..=128 << 20).contains(&peak), "a peak of {peak} bytes: it was outside");
    }
}

/// A launch whose user may have `processes` processes and threads in all.
fn limited(processes: usize, user: u32) -> Option<Launch> {
    let limit = format!("--nproc={processes}:{processes}");
    let user = format!("--reuid={user}");
    Launch::of_tools(&[&["prlimit", &limit], &USER, &[&user]])
}

#[test]
fn with_few_processes() {
    let place = Place::with_two_workers();
    let Some(launch) = limited(24, 65533) else { return };
    place.gets(&launch, &[]);
    place.starts(&launch);
    // `cat` decides by itself how many workers it has: at most one for each processor.
    let processors = std::thread::available_parallelism().expect("a number").get();
    let Some(launch) = limited(24 + processors, 65533) else { return };
    place.cats(&launch, &[]);
}

#[test]
fn with_no_process_more() {
    let Some(launch) = limited(1, 65529) else { return };
    let place = Place::with_two_workers();
    let to = place.path().join("to");
    let words = ["get", "s3://lab/", to.to_str().expect("UTF-8")];
    let run = place.program(&launch, &words).with(place.workers).run().expect(HOST);
    run.expect_error(&["cannot start a", "ulimit -u"]);
}

/// With every number of threads up to as many as are enough, each command does its work or says in
/// one line what it lacks: none panics, in a library or of its own.
#[test]
fn with_any_number_of_processes() {
    let place = Place::with_two_workers();
    let to = place.path().join("to");
    let to = to.to_str().expect("UTF-8");
    let report = place.path().join("report");
    let report = report.to_str().expect("UTF-8");
    let commands = [
        &["get", "s3://lab/", to, "--workers", "2", "--report", report][..],
        &["verify", "s3://lab/", to],
        &["cat", "s3://lab/a"],
        &["ls", "--recursive", "s3://lab/"],
    ];
    // `cat` decides by itself how many workers it has: at most one for each processor.
    let processors = std::thread::available_parallelism().expect("a number").get();
    for words in commands {
        let mut is_enough = false;
        for processes in (1..=24).chain([24 + processors]) {
            let Some(launch) = limited(processes, 65528) else { return };
            let run = place.program(&launch, words).run();
            run.check(!run.stderr.contains("panicked"), "it panicked");
            is_enough = run.status.code() == Some(0);
            if !is_enough {
                let run = run.expect(HOST);
                run.expect_error(&["cannot start a", "ulimit -u"]);
            }
        }
        assert!(is_enough, "{words:?}: these are enough");
    }
    matrix::assert_same(to.as_ref(), &place.objects);
}

#[test]
fn when_the_pages_of_pipes_are_used_up() {
    if !rustix::process::geteuid().is_root() {
        skip("only root uses up the pages of another user's pipes, and not its own");
        return;
    }
    let Some(launch) = Launch::python("pipes.py", &["65532"]) else { return };
    let place = Place::new();
    place.gets(&launch, &[]);
    place.cats(&launch, &["raise fs.pipe-user-pages-soft"]);
    place.starts(&launch);
}
