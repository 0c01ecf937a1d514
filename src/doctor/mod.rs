//! `doctor`: facts of a machine, a destination and a service, each judged, with the command that
//! mends it. Pure: [`crate::command`] gathers the facts.
//!
//! A fact that cannot be read makes no finding: of what is not known nothing is said.

mod disk;
pub mod facts;
mod machine;
mod network;
pub mod parse;
mod service;
#[cfg(test)]
mod tests;

use facts::Facts;

/// All checks by their names in `--json`, which stay: what each looks at.
pub const CHECKS: [(&str, &str); 30] = [
    ("kernel", "the release of Linux"),
    ("io_uring", "io_uring or epoll, as --ring or INRUSH_RING asks, and why"),
    ("seccomp", "a filter of system calls"),
    ("locked-memory", "RLIMIT_MEMLOCK: whether buffers can be registered"),
    ("open-files", "RLIMIT_NOFILE: how many connections and files are possible"),
    ("address-space", "RLIMIT_AS: whether buffers fit"),
    ("file-size", "RLIMIT_FSIZE: how large a file may be"),
    ("pipes", "pipe-max-size and pipe-user-pages-soft"),
    ("huge-pages", "transparent huge pages for buffers"),
    ("memory", "the memory that the machine and the cgroup leave"),
    ("cores", "cores that this process may run on, of those that are online"),
    ("cpu-quota", "the CPU quota of the cgroup"),
    ("numa", "whether the cores are on the node of the network interface"),
    ("interface", "that of --interface, or else of the default route: state, speed, MTU"),
    ("queues", "its receive queues"),
    ("interrupts", "which cores handle its interrupts"),
    ("socket-buffers", "rmem_max and tcp_rmem"),
    ("tcp-memory", "tcp_mem: what all TCP sockets hold, and room for what a run may add"),
    ("congestion-control", "the algorithm of TCP"),
    ("destination", "whether DEST can be written, what is in the way of it, and its file system"),
    ("direct-io", "O_DIRECT at DEST, by a write"),
    ("space", "free bytes and inodes at DEST"),
    ("block-device", "the scheduler and the RAID below DEST"),
    ("credentials", "which provider gave credentials, until when, and if it renews them"),
    ("access-grant", "with --access-grants: the grant for SOURCE, its account, until when"),
    ("endpoint", "its addresses, and whether one answers"),
    ("tls", "whether its certificate is trusted; with --no-verify-ssl nobody knows"),
    ("clock", "this machine's clock against the server's Date"),
    ("region", "the region of the bucket"),
    ("object", "a signed request for a byte of an object of SOURCE"),
];

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is in the way.
    Ok,
    /// It works, but slower or not for long.
    Warn,
    /// A run fails for it.
    Bad,
}

impl Verdict {
    /// Its name, as in `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Which check: a name of [`CHECKS`].
    pub check: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub found: String,
    /// What to do, with the command where there is one; `None` where nothing is to be done.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Bad, found: found.into(), fix: Some(fix.into()) }
    }

    /// The lines that a person reads: the finding, and below it what to do.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let name = self.verdict.name();
        let mut lines = vec![format!("{name:4}  {:18}  {}", self.check, self.found)];
        lines.extend(self.fix.iter().map(|fix| format!("{:26}-> {fix}", "")));
        lines
    }
}

/// What all checks found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnosis {
    /// The worst verdict.
    pub verdict: Verdict,
    /// How many checks are ok.
    pub ok: usize,
    /// How many warn.
    pub warn: usize,
    /// How many are bad.
    pub bad: usize,
    /// Each, in the order of [`CHECKS`].
    pub checks: Vec<Finding>,
    /// The exit code of the program.
    pub exit_code: u8,
}

impl Diagnosis {
    /// Judges.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let needed_bytes = facts.disk.as_ref().and_then(|disk| disk.needed_bytes);
        let mut checks = machine::judge(&facts.machine, needed_bytes);
        checks.extend(network::judge(&facts.network, &facts.machine));
        checks.extend(facts.disk.iter().flat_map(disk::judge));
        checks.extend(facts.service.iter().flat_map(service::judge));
        let count = |verdict| checks.iter().filter(|found| found.verdict == verdict).count();
        let [ok, warn, bad] = [Verdict::Ok, Verdict::Warn, Verdict::Bad].map(count);
        let verdict = checks.iter().map(|found| found.verdict).max().unwrap_or(Verdict::Ok);
        Self { verdict, ok, warn, bad, checks, exit_code: u8::from(bad > 0) }
    }

    /// The line below all others.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{} ok, {} warn, {} bad", self.ok, self.warn, self.bad)
    }
}
