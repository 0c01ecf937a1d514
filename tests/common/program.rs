//! The real program in an environment of its own: every run is bounded, and one that ends otherwise
//! than expected fails with its command, how it ended, and its output.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use inrush_origin::Origin;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest time for one run.
const RUN_SECONDS: u64 = 180;
/// Pause between two looks at a run.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// A command line and its environment.
pub(crate) struct Program {
    before: Vec<OsString>,
    words: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    home: TempDir,
}

impl Program {
    /// The program with these words; of its environment only an empty home is there.
    pub(crate) fn new<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Self {
        let home = tempfile::tempdir().expect("an empty home");
        let nothing = home.path().join("nothing").into_os_string();
        let variables = vec![
            ("HOME".to_owned(), home.path().as_os_str().to_owned()),
            ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".into()),
            ("AWS_CONFIG_FILE".to_owned(), nothing.clone()),
            ("AWS_SHARED_CREDENTIALS_FILE".to_owned(), nothing),
        ];
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Self { before: Vec::new(), words, variables, home }
    }

    /// Adds words.
    pub(crate) fn with<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub(crate) fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Asks this server, in its region.
    pub(crate) fn asking(self, origin: &Origin) -> Self {
        self.with(["--endpoint-url", &url(origin), "--region", "us-east-1"])
    }

    /// Sets an access key and its secret.
    pub(crate) fn with_keys(self, access_key: &str, secret: &str) -> Self {
        self.set("AWS_ACCESS_KEY_ID", access_key).set("AWS_SECRET_ACCESS_KEY", secret)
    }

    /// Starts it by way of another command, which gets the program and its words as arguments.
    pub(crate) fn by_way_of<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.before = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Its home: empty, and gone with it.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts it.
    pub(crate) fn start(self) -> Running {
        let output = |name| File::create(self.home.path().join(name)).expect("an output file");
        let streams = (Stdio::from(output("stdout")), Stdio::from(output("stderr")));
        self.start_with(streams.0, streams.1)
    }

    /// Starts it with streams of the caller's, which a failure does not print.
    pub(crate) fn start_with(self, stdout: Stdio, stderr: Stdio) -> Running {
        let program = OsString::from(env!("CARGO_BIN_EXE_inrush"));
        let own_signals = own_signals();
        let before = own_signals.iter().chain(&self.before);
        let words: Vec<&OsString> = before.chain([&program]).chain(&self.words).collect();
        // Before the program's own clock starts: it may be on its way before `spawn` returns.
        let started = Instant::now();
        let child = Command::new(words[0])
            .args(&words[1..])
            .env_clear()
            // Suites are run on either ring, and on either transport of mounts.
            .envs(
                std::env::vars_os()
                    .filter(|(name, _)| name == "INRUSH_RING" || name == "INRUSH_FUSE"),
            )
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("the program starts");
        let command = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Running { child, command, home: self.home, started }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Run {
        self.start().wait()
    }
}

/// What gives a program its signals back where whoever started the tests ignores some: nohup(1)
/// ignores SIGHUP, a shell SIGINT and SIGQUIT of what it runs in the background.
fn own_signals() -> Vec<OsString> {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc(5)");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("a mask").trim(), 16).expect("a mask");
    let ended_by = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
    match ended_by.iter().any(|signal| ignored >> (signal.as_raw() - 1) & 1 == 1) {
        true => ["env", "--default-signal=HUP,INT,QUIT,TERM"].map(OsString::from).to_vec(),
        false => Vec::new(),
    }
}

/// The endpoint of a server, in path style.
pub(crate) fn url(origin: &Origin) -> String {
    origin.url()
}

/// A run that has not ended; it is killed when dropped.
pub(crate) struct Running {
    child: Child,
    command: String,
    home: TempDir,
    started: Instant,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child can be signalled");
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits until something is so, as long as the program runs; true when it is.
    pub(crate) fn until(&mut self, mut condition: impl FnMut() -> bool) -> bool {
        loop {
            if condition() {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            self.check_time();
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Run {
        while !self.has_ended() {
            self.check_time();
            std::thread::sleep(LOOK);
        }
        let status = self.child.wait().expect("it has ended");
        let seconds = self.started.elapsed().as_secs_f64();
        Run {
            command: self.command.clone(),
            status,
            seconds,
            stdout: self.said("stdout"),
            stderr: self.said("stderr"),
        }
    }

    fn said(&self, name: &str) -> String {
        let bytes = std::fs::read(self.home.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn check_time(&mut self) {
        if self.started.elapsed() > Duration::from_secs(RUN_SECONDS) {
            let (stdout, stderr) = (self.said("stdout"), self.said("stderr"));
            panic!(
                "{}: not done after {RUN_SECONDS} s\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
                self.command
            );
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a run ended.
pub(crate) struct Run {
    command: String,
    pub(crate) status: ExitStatus,
    pub(crate) seconds: f64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, status, seconds, stdout, stderr } = self;
        write!(f, "{command}\n{status} after {seconds:.2} s\n")?;
        write!(f, "--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

impl Run {
    /// Fails unless it ended with this exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "exit code {code} was expected\n{self}");
        self
    }

    /// Fails, with all the run said, unless `condition` holds.
    #[track_caller]
    pub(crate) fn check(&self, condition: bool, what: &str) {
        assert!(condition, "{what}\n{self}");
    }

    /// Fails unless it said one line on standard error and nothing else: an error with all of
    /// these words.
    #[track_caller]
    pub(crate) fn expect_error(self, words: &[&str]) -> Self {
        let mut lines = self.stderr.lines();
        let line = lines.next().unwrap_or_default();
        self.check(line.starts_with("error: "), "an error was expected on standard error");
        self.check(lines.next().is_none(), "one line was expected on standard error");
        if self.command.split(' ').any(|word| word == "--json") {
            let kind = &self.json()["error_kind"];
            self.check(kind.is_string(), "a reason was expected on standard output");
        } else {
            self.check(self.stdout.is_empty(), "nothing was expected on standard output");
        }
        self.expect_words(words)
    }

    /// Fails unless standard error has all of these words.
    #[track_caller]
    pub(crate) fn expect_words(self, words: &[&str]) -> Self {
        for words in words {
            self.check(self.stderr.contains(words), &format!("{words:?} was expected"));
        }
        self
    }

    /// Fails unless the signal ended it.
    #[track_caller]
    pub(crate) fn expect_killed(self, signal: Signal) -> Self {
        self.check(
            self.status.signal() == Some(signal.as_raw()),
            "the signal should have ended it",
        );
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("JSON was expected: {error}\n{self}"))
    }
}
