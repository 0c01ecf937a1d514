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
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "`get` begins with a launcher here")]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use inrush_origin::{Config, Origin};

use cgroup::Cgroup;
use launch::{Launch, open_to_all};
use matrix::{Objects, bytes_of};
use program::{Program, Run};
use served::{ACCESS_KEY, SECRET, config, start};

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
}

impl Place {
    fn new() -> Self {
        let objects = objects();
        let origin = start(Config { md5_etags: true, ..config(&objects) });
        let folder = tempfile::tempdir().expect("a folder");
        open_to_all(folder.path());
        Self { origin, objects, folder }
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
        launch.start(program)
    }

    /// `get` has every byte right, with these words in its `--stats`.
    fn gets(&self, launch: &Launch, told: &[&str]) -> Run {
        let to = self.path().join("to");
        let words = ["get", "s3://lab/", to.to_str().expect("UTF-8"), "--stats"];
        let run = self.program(launch, &words).run().expect(0);
        matrix::assert_same(&to, &self.objects);
        for words in told {
            run.check(run.stderr.contains(words), &format!("{words:?} was expected"));
        }
        run
    }

    /// `cat` has every byte right.
    fn cats(&self, launch: &Launch, told: &[&str]) {
        let path = self.path().join("stderr");
        let stderr = File::create(&path).expect("a file");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let program = self.program(launch, &["cat", "s3://lab/b/", "--stats"]);
        let running = program.start_with(Stdio::from(writer), Stdio::from(stderr));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("a stream");
        let said = || fs::read_to_string(&path).expect("UTF-8");
        let code = running.wait().status.code();
        assert_eq!(code, Some(0), "{}", said());
        let wanted = [&self.objects["b/c"][..], &self.objects["b/d"]].concat();
        assert!(bytes == wanted, "{} of {} bytes, or others", bytes.len(), wanted.len());
        for words in told {
            assert!(said().contains(words), "{words:?} was expected: {}", said());
        }
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
    fn works(&self, launch: &Launch, told: &[&str]) {
        self.gets(launch, told);
        self.cats(launch, &[]);
        self.starts(launch);
    }
}

/// Whether the program can do without io_uring.
fn has_another_ring() -> bool {
    Program::new(["get", "--help"]).run().expect(0).stdout.contains("--ring")
}

#[test]
fn under_the_default_seccomp_profile_of_docker() {
    let Some(launch) = Launch::python("docker.py", &[]) else { return };
    let place = Place::new();
    if has_another_ring() {
        let run = place.gets(&launch, &[]);
        run.check(run.stderr.contains("io_uring"), "what is missing is named");
        place.cats(&launch, &["io_uring"]);
    } else {
        let to = place.path().join("to");
        for words in
            [&["get", "s3://lab/", to.to_str().expect("UTF-8")][..], &["cat", "s3://lab/a"]]
        {
            let run = place.program(&launch, words).run().expect(HOST);
            run.expect_error(&["io_uring is not available", "seccomp profile"]);
        }
        // What is verified below.
        place.gets(&Launch::plain(), &[]);
    }
    place.starts(&launch);
}

#[test]
fn with_little_locked_memory() {
    // Room for the rings, not for the buffers.
    let enough = ["prlimit", "--memlock=1048576:1048576"];
    let user = [&USER[..], &["--reuid=65531"]].concat();
    let Some(launch) = Launch::of_tools(&[&enough, &user]) else { return };
    Place::new().works(&launch, &["buffers not registered: raise the locked-memory limit"]);
    // Docker's default on some machines: newer kernels count the rings, too.
    let user = [&USER[..], &["--reuid=65530"]].concat();
    let launch = Launch::of_tools(&[&["prlimit", "--memlock=65536:65536"], &user]);
    let (place, launch) = (Place::new(), launch.expect("as above"));
    let to = place.path().join("to");
    let words = ["get", "s3://lab/", to.to_str().expect("UTF-8"), "--stats"];
    let run = place.program(&launch, &words).run();
    if has_another_ring() || run.status.code() == Some(0) {
        place.gets(&launch, &["locked-memory limit"]);
        place.cats(&launch, &[]);
    } else {
        run.expect(HOST).expect_error(&["io_uring is not available", "ulimit -l"]);
        place.gets(&Launch::plain(), &[]);
    }
    place.starts(&launch);
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
    let Some(launch) = Launch::read_only_root(place.path()) else { return };
    // It is, for this launch.
    let elsewhere = tempfile::tempdir().expect("a folder");
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
    let peak = cgroup.peak_bytes();
    assert!((1 << 20..=128 << 20).contains(&peak), "a peak of {peak} bytes: it was outside");
}

#[test]
fn with_few_processes() {
    let user = [&USER[..], &["--reuid=65533"]].concat();
    let limited = |limit| Launch::of_tools(&[&["prlimit", limit], &user]);
    let Some(launch) = limited("--nproc=24:24") else { return };
    Place::new().works(&launch, &[]);
    let launch = limited("--nproc=1:1").expect("as above");
    let place = Place::new();
    let to = place.path().join("to");
    let words = ["get", "s3://lab/", to.to_str().expect("UTF-8")];
    let run = place.program(&launch, &words).run();
    run.check(run.status.code().is_some_and(|code| code != 0), "it cannot");
    run.check(!run.stderr.contains("panicked"), "it says why");
    run.expect_words(&["error: ", "ulimit -u"]);
}

#[test]
fn when_the_pages_of_pipes_are_used_up() {
    let Some(launch) = Launch::python("pipes.py", &["65532"]) else { return };
    let place = Place::new();
    place.gets(&launch, &[]);
    place.cats(&launch, &["raise fs.pipe-user-pages-soft"]);
    place.starts(&launch);
}
