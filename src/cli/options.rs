//! Groups of options that several commands share. Pure, like all of [`crate::cli`].

pub(super) mod cache;
pub(super) mod metrics;
pub(super) mod selection;
mod service;
pub(super) mod times;
mod typed;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::limits;
use crate::text::size::{self, Binary};
pub use service::{AccessGrantsMode, AddressingStyle, ServiceArgs};
use times::parse_deadline;

/// The data plane's interface to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RingName {
    /// io_uring; epoll where the kernel or the container does not allow it
    Auto,
    /// io_uring, or an error
    #[value(name = "io_uring")]
    IoUring,
    /// epoll and ordinary system calls
    Epoll,
}

/// The data that is compared with checksums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum VerifyMode {
    /// request no checksums and verify nothing
    Off,
    /// verify data against the stored checksum where that is cheap
    #[default]
    Auto,
    /// fail objects that cannot be verified; an ETag that is an MD5 counts as a checksum
    Strict,
}

/// Resources of the run; missing ones are chosen to fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Resources")]
pub struct TuningArgs {
    /// Worker threads, each with its own ring and core.
    #[arg(long, value_name = "N", value_parser = parse_workers, help = help_workers())]
    pub workers: Option<usize>,
    /// Connections of the whole run.
    #[arg(long, value_name = "N", value_parser = parse_connections, help = help_connections())]
    pub connections: Option<usize>,
    /// Most connections of the whole run.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_connections,
        conflicts_with = "connections",
        help = help_max_connections()
    )]
    pub max_connections: Option<usize>,
    /// Length of one request, in bytes.
    #[arg(long, value_name = "SIZE", value_parser = parse_part_size, help = help_part_size())]
    pub part_size: Option<u64>,
    /// Memory for buffers of all workers together, in bytes.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help = help_memory())]
    pub memory: Option<u64>,
    /// limit the run to this many bytes a second on average, such as 50MB or 1GiB
    #[arg(long, value_name = "RATE", value_parser = parse_rate, aliases = RATE_ALIASES)]
    pub bandwidth_limit: Option<NonZeroU64>,
    /// fail a range after N attempts in a row without new data; while the endpoint does not
    /// answer, only after --retry-for has passed as well
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_attempts,
        default_value_t = limits::ATTEMPTS_MAX
    )]
    pub max_attempts: u32,
    /// how to talk to the kernel [default: INRUSH_RING, or auto]
    #[arg(long, value_name = "RING")]
    pub ring: Option<RingName>,
}

impl TuningArgs {
    /// The given options, without dashes, and their values as they would be typed.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes.to_string());
        let attempts = (self.max_attempts != limits::ATTEMPTS_MAX).then_some(self.max_attempts);
        let ring = self.ring.and_then(|ring| ring.to_possible_value());
        let options = [
            ("workers", number(self.workers)),
            ("connections", number(self.connections)),
            ("max-connections", number(self.max_connections)),
            ("part-size", bytes(self.part_size)),
            ("memory", bytes(self.memory)),
            ("bandwidth-limit", bytes(self.bandwidth_limit.map(NonZeroU64::get))),
            ("max-attempts", attempts.map(|attempts| attempts.to_string())),
            ("ring", ring.map(|ring| ring.get_name().to_owned())),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl Default for TuningArgs {
    fn default() -> Self {
        Self {
            workers: None,
            connections: None,
            max_connections: None,
            part_size: None,
            memory: None,
            bandwidth_limit: None,
            max_attempts: limits::ATTEMPTS_MAX,
            ring: None,
        }
    }
}

/// The existing files that are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Overwrite {
    /// All files.
    #[value(help = "download every object again")]
    Always,
    /// skip a file if neither the local file nor the object has changed since its download, or if
    /// another program put it there with the object's size and time
    #[default]
    Changed,
    /// No files.
    #[value(help = "never replace an existing file, whatever its content")]
    Never,
}

/// The properties by which a file without a mark of a download is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Size, and modification time to the second.
    SizeAndTime,
    /// Size only.
    Size,
    /// None: the file is replaced.
    Nothing,
}

/// The time at which data is synced to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// leave it to the kernel; after a power failure the next run downloads lost data again
    #[default]
    None,
    /// At the end of a successful run.
    #[value(help = "sync the file system once, at the end of the run")]
    End,
    /// Before a file gets its name.
    #[value(help = "sync each file before it gets its name, and its folder after")]
    File,
}

/// Handling of existing files, and durability of new ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Running again")]
pub struct KeepArgs {
    /// which existing files are replaced
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    pub overwrite: Overwrite,
    /// download everything from the start, and leave nothing to resume later
    #[arg(long)]
    pub no_resume: bool,
    /// compare files that inrush did not download by their size alone, not by size and time
    #[arg(long, conflicts_with = "ignore_times")]
    pub size_only: bool,
    /// do not skip a file because its size and time match: only what inrush downloaded is skipped
    #[arg(long)]
    pub ignore_times: bool,
    /// keep the download time as the modification time, not the object's Last-Modified
    #[arg(long)]
    pub no_times: bool,
    /// when data is synced to disk
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub durability: Durability,
    /// start even if the free space at the destination is too small
    #[arg(long, help_heading = "Failures")]
    pub no_space_check: bool,
}

impl KeepArgs {
    /// True if unfinished files are resumed, and this run's can be resumed later.
    #[must_use]
    pub fn resume(self) -> bool {
        !self.no_resume
    }

    /// The comparison of files that this program did not download.
    #[must_use]
    pub fn compare(self) -> Compare {
        match (self.size_only, self.ignore_times) {
            (true, _) => Compare::Size,
            (false, true) => Compare::Nothing,
            (false, false) => Compare::SizeAndTime,
        }
    }

    /// True if each file is synced.
    #[must_use]
    pub fn syncs_files(self) -> bool {
        self.durability == Durability::File
    }
}

/// The handling of an object that changes during its download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OnChange {
    /// fail the object and report both ETags
    #[default]
    Fail,
    /// download it again from the first byte, a few times at most
    Restart,
}

/// Handling of failures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Failures")]
pub struct FailureArgs {
    /// stop the run after this time, such as 90s or 1h30m; objects that are not complete by then
    /// have failed
    #[arg(long, value_name = "TIME", value_parser = parse_deadline)]
    pub deadline: Option<Duration>,
    /// what to do with an object that changes during its download
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_change: OnChange,
}

/// The format of lines on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    #[value(help = "words, as people read them")]
    Text,
    /// JSON for programs.
    #[value(help = "one JSON object per line: time, level, message")]
    Json,
}

/// Output on standard error, and its format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct MessageArgs {
    /// print no progress, notes or summary; errors are always printed
    #[arg(
        long,
        short = 'q',
        conflicts_with = "verbose",
        overrides_with = "quiet",
        alias = QUIET_ALIAS
    )]
    pub quiet: bool,
    /// print no progress line on a terminal; notes and the summary are printed
    #[arg(long, overrides_with = "no_progress")]
    pub no_progress: bool,
    /// log decisions and retries to standard error; -vv: also every listing and metadata request
    #[arg(long, short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// how notes, errors and log lines on standard error are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// All output options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// print one JSON object with the summary to standard output; after a failure, however early,
    /// it has 'error' and 'error_kind'
    #[arg(long)]
    pub json: bool,
    /// Output on standard error.
    #[command(flatten)]
    pub messages: MessageArgs,
}

fn help_workers() -> String {
    let most = limits::WORKERS_MAX;
    format!("worker threads, each on its own core, 1 to {most} [default: one per core]")
}

fn help_connections() -> String {
    format!(
        "use exactly N connections, 1 to {} [default: adapt to the throughput]",
        limits::CONNECTIONS_MAX
    )
}

fn help_max_connections() -> String {
    format!(
        "use at most N connections, 1 to {} [default: {}, or {} a worker where that is more; \
         fewer if memory or open files are short]",
        limits::CONNECTIONS_MAX,
        limits::CONNECTIONS_DEFAULT_MAX,
        limits::CONNECTIONS_DEFAULT_PER_WORKER
    )
}

pub(super) fn help_part_size() -> String {
    format!(
        "size of one ranged request, {} to {} [default: {}]",
        typed(limits::PART_BYTES_MIN),
        typed(limits::PART_BYTES_MAX),
        typed(limits::PART_BYTES_DEFAULT)
    )
}

pub(super) fn help_memory() -> String {
    format!(
        "memory for buffers, all workers together, {} or more [default: {}, at most 1/{} of the \
         free memory]",
        typed(limits::MEMORY_BYTES_MIN),
        typed(limits::MEMORY_BYTES_DEFAULT_MAX),
        limits::MEMORY_CGROUP_SHARE
    )
}

pub(super) fn help_demo_size() -> String {
    format!(
        "total size of the large objects, {} to {} [default: {}, less if the disk is full]",
        typed(limits::DEMO_LARGE_BYTES_MIN),
        typed(limits::DEMO_LARGE_BYTES_MAX),
        typed(limits::DEMO_LARGE_BYTES_DEFAULT)
    )
}

/// A size as one would type it.
pub(super) fn typed(bytes: u64) -> String {
    Binary(bytes).to_string().replace(' ', "")
}

pub(super) fn parse_workers(text: &str) -> Result<usize, String> {
    parse_number(text, limits::WORKERS_MAX)
}

/// The AWS CLI's name for it.
pub(super) const QUIET_ALIAS: &str = "only-show-errors";

/// curl's and rclone's names for it.
pub(super) const RATE_ALIASES: [&str; 2] = ["limit-rate", "bwlimit"];

pub(super) fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    let rate = NonZeroU64::new(size::parse(size)?);
    rate.filter(|rate| rate.get() >= limits::BANDWIDTH_MIN).ok_or_else(|| {
        format!(
            "expected {} bytes a second or more; 10MB is 10,000,000 bytes a second",
            limits::BANDWIDTH_MIN
        )
    })
}

pub(super) fn parse_connections(text: &str) -> Result<usize, String> {
    parse_number(text, limits::CONNECTIONS_MAX)
}

pub(super) fn parse_attempts(text: &str) -> Result<u32, String> {
    parse_number(text, limits::ATTEMPTS_WISHED_MAX)
}

fn parse_number<N>(text: &str, most: N) -> Result<N, String>
where
    N: std::str::FromStr + PartialOrd + From<u8> + std::fmt::Display,
{
    let number = text.parse().ok().filter(|number| *number >= N::from(1) && *number <= most);
    number.ok_or_else(|| format!("expected a whole number from 1 to {most}"))
}

pub(super) fn parse_part_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if (limits::PART_BYTES_MIN..=limits::PART_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (typed(limits::PART_BYTES_MIN), typed(limits::PART_BYTES_MAX));
    Err(format!("expected a size from {least} to {most}"))
}

pub(super) fn parse_demo_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    let (least, most) = (limits::DEMO_LARGE_BYTES_MIN, limits::DEMO_LARGE_BYTES_MAX);
    if (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("expected a size from {} to {}", typed(least), typed(most)))
}

pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes >= limits::MEMORY_BYTES_MIN {
        return Ok(bytes);
    }
    Err(format!("expected a size of {} or more", typed(limits::MEMORY_BYTES_MIN)))
}

/// Parses the name of an output file.
pub(super) fn parse_report(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("expected the name of a file".to_owned()),
        "-" => Err("expected the name of a file; /dev/stdout is standard output".to_owned()),
        name => Ok(PathBuf::from(name)),
    }
}
