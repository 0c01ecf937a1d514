//! A cgroup of a test's own, of version 1 or 2 (cgroups(7)).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::launch::{controller_folder, skip_on_this_machine};
use crate::skip::skip;

/// Longest wait until the last process of a cgroup is gone.
const EMPTY_SECONDS: u64 = 20;

/// Enters the cgroups of the folders before `--`, and becomes the command behind it.
const ENTER: &str = "while [ \"$1\" != -- ]; do \
                     echo $$ > \"$1/cgroup.procs\" || exit 1; shift; done; shift; exec \"$@\"";

/// The period of a processor's quota, in microseconds.
const PERIOD_US: u64 = 100_000;

/// A cgroup with a limit of memory and a share of a processor. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// Version 1 has one folder for each controller.
    memory: PathBuf,
    processor: PathBuf,
    is_second: bool,
}

impl Cgroup {
    /// Of these sizes; `None`, said on standard error, where none can be made.
    pub(crate) fn new(memory_bytes: u64, processor_percent: u64) -> Option<Self> {
        let name = format!("inrush-test-{}", std::process::id());
        let folder = |controller: &str| Some(controller_folder(controller)?.join(&name));
        let (Some(memory), Some(processor)) = (folder("memory"), folder("cpu")) else {
            // As in a container: no user may change that.
            skip_on_this_machine("the controllers memory and cpu are not given to cgroups here");
            return None;
        };
        let made = Self::make(memory, processor, memory_bytes, processor_percent);
        if made.is_none() {
            skip("no cgroup with memory and cpu can be made here");
        }
        made
    }

    fn make(
        memory: PathBuf,
        processor: PathBuf,
        memory_bytes: u64,
        processor_percent: u64,
    ) -> Option<Self> {
        let is_second = memory == processor;
        let cgroup = Self { memory, processor, is_second };
        let quota = PERIOD_US * processor_percent / 100;
        fs::create_dir(&cgroup.memory).ok()?;
        if is_second {
            fs::write(cgroup.memory.join("memory.max"), memory_bytes.to_string()).ok()?;
            fs::write(cgroup.memory.join("cpu.max"), format!("{quota} {PERIOD_US}")).ok()?;
        } else {
            fs::create_dir(&cgroup.processor).ok()?;
            let limit = cgroup.memory.join("memory.limit_in_bytes");
            fs::write(limit, memory_bytes.to_string()).ok()?;
            fs::write(cgroup.processor.join("cpu.cfs_period_us"), PERIOD_US.to_string()).ok()?;
            fs::write(cgroup.processor.join("cpu.cfs_quota_us"), quota.to_string()).ok()?;
        }
        Some(cgroup)
    }

    /// What a command begins with that enters it.
    pub(crate) fn enter(&self) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let mut words = ["sh", "-c", ENTER, "sh"].map(str::to_owned).to_vec();
        words.push(text(&self.memory));
        if !self.is_second {
            words.push(text(&self.processor));
        }
        words.push("--".to_owned());
        words
    }

    /// How many of its processes the kernel has killed because memory was short.
    pub(crate) fn killed(&self) -> u64 {
        let file = if self.is_second { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.memory.join(file)).expect("a file of the cgroup");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("a line").trim().parse().expect("a number")
    }

    /// The most that it has used, in bytes; `None` where the kernel has no such file: version 2 has
    /// had `memory.peak` since Linux 5.19.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let file = if self.is_second { "memory.peak" } else { "memory.max_usage_in_bytes" };
        match fs::read_to_string(self.memory.join(file)) {
            Ok(text) => Some(text.trim().parse().expect("a number")),
            Err(error) if self.is_second && error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{file}: {error}"),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may take a moment to let the last process go.
        let begun = Instant::now();
        while fs::remove_dir(&self.memory).is_err() && self.memory.exists() {
            if begun.elapsed() > Duration::from_secs(EMPTY_SECONDS) {
                break;
            }
            std::thread::sleep(crate::program::LOOK);
        }
        if !self.is_second {
            // It is as empty as the other one.
            let _ = fs::remove_dir(&self.processor);
        }
    }
}
