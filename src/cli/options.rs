//! Options that several commands share, in groups. Pure, like all of [`crate::cli`].

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};

use super::usage;
use crate::limits;
use crate::s3::uri::S3Uri;
use crate::text::size::{self, Binary};

/// Most tries of one range that may be asked for: with the longest backoff about three hours.
const ATTEMPTS_TYPED_MAX: u32 = 1000;

/// Which objects of the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// take only what matches; repeatable, one match is enough; without a slash the pattern is
    /// held against file names, with one against the path below the source
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// leave out what matches; repeatable, and stronger than --include
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// Where the bucket's name stands in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum AddressingStyle {
    /// path style for addresses, own endpoints and names with dots; else virtual
    #[default]
    Auto,
    /// In the path.
    #[value(help = "in the path: https://host/bucket/key")]
    Path,
    /// In the name of the host.
    #[value(help = "in the host's name: https://bucket.host/key")]
    Virtual,
}

/// What is held against checksums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum VerifyMode {
    /// ask for no checksum
    Off,
    /// hold bytes against the checksum that is stored with them, where that is cheap
    #[default]
    Auto,
    /// an object whose bytes cannot be held against a checksum fails; ETags that are MD5s count
    Strict,
}

/// Which server, and as whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Server")]
pub struct ServiceArgs {
    /// S3-compatible server, as http://HOST:PORT or https://HOST
    /// [default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, the profile's, or AWS]
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub endpoint_url: Option<String>,
    /// region of the buckets
    /// [default: $AWS_REGION, $AWS_DEFAULT_REGION, the profile's, or us-east-1]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub region: Option<String>,
    /// profile of the AWS configuration files
    /// [default: $AWS_PROFILE, or default]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
    /// send requests without credentials, for public buckets
    #[arg(long, conflicts_with = "profile")]
    pub no_sign_request: bool,
    /// file of PEM certificates that are believed instead of the system's
    /// [default: $AWS_CA_BUNDLE, the profile's ca_bundle, or the system's certificates]
    #[arg(long, value_name = "FILE", conflicts_with = "no_verify_ssl")]
    pub ca_bundle: Option<PathBuf>,
    /// believe any certificate, with a warning: whoever is in between reads and changes all bytes
    #[arg(long)]
    pub no_verify_ssl: bool,
    /// where the bucket's name stands in a request
    #[arg(long, value_name = "STYLE", value_enum, default_value_t)]
    pub addressing_style: AddressingStyle,
    /// endpoints of AWS that have IPv6 addresses too
    #[arg(long)]
    pub use_dualstack_endpoint: bool,
    /// endpoints of AWS with validated cryptography
    #[arg(long)]
    pub use_fips_endpoint: bool,
    /// pay for requests to buckets whose owner does not; WHO is requester
    #[arg(
        long,
        value_name = "WHO",
        value_parser = ["requester"],
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "requester",
        hide_possible_values = true
    )]
    pub request_payer: Option<String>,
    /// file with the key of SSE-C: 32 bytes or their base64; for https alone
    /// [default: $INRUSH_SSE_C_KEY as base64]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub sse_c_key_file: Option<PathBuf>,
    /// An endpoint that does not answer is retried for so long; `None` for the default.
    #[arg(long, value_name = "TIME", value_parser = parse_retry_for, help = help_retry_for())]
    pub retry_for: Option<Duration>,
    /// Requests that list at once.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_list_requests,
        help = help_list_requests()
    )]
    pub list_requests: Option<usize>,
    /// version of the object; for a single source that is one object
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    pub version_id: Option<String>,
}

impl ServiceArgs {
    /// The sources in the version that is asked for, which must then be one object.
    pub(super) fn with_version<'a>(
        &self,
        mut sources: impl Iterator<Item = &'a mut S3Uri>,
    ) -> Result<(), clap::Error> {
        let Some(version) = &self.version_id else { return Ok(()) };
        let (Some(source), None) = (sources.next(), sources.next()) else {
            return Err(usage("--version-id is the version of one object: give one source"));
        };
        *source =
            source.clone().with_version(version).map_err(|error| usage(&error.to_string()))?;
        Ok(())
    }
}

/// How much of the machine; what is not given is chosen to fit it.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Resources")]
pub struct TuningArgs {
    /// Threads, each with a ring and a core of its own.
    #[arg(long, value_name = "N", value_parser = parse_workers, help = help_workers())]
    pub workers: Option<usize>,
    /// Connections of the whole run.
    #[arg(long, value_name = "N", value_parser = parse_connections, help = help_connections())]
    pub connections: Option<usize>,
    /// Connections of the whole run at most.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_connections,
        conflicts_with = "connections",
        help = help_max_connections()
    )]
    pub max_connections: Option<usize>,
    /// Bytes of one request.
    #[arg(long, value_name = "SIZE", value_parser = parse_part_size, help = help_part_size())]
    pub part_size: Option<u64>,
    /// Bytes of buffers, for all workers together.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help = help_memory())]
    pub memory: Option<u64>,
    /// tries in a row of one range that bring no new byte before it is given up; while the endpoint
    /// does not answer, --retry-for must have passed, too
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_attempts,
        default_value_t = limits::ATTEMPTS_MAX
    )]
    pub max_attempts: u32,
}

impl Default for TuningArgs {
    fn default() -> Self {
        Self {
            workers: None,
            connections: None,
            max_connections: None,
            part_size: None,
            memory: None,
            max_attempts: limits::ATTEMPTS_MAX,
        }
    }
}

/// Whether files that are there are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Overwrite {
    /// All of them.
    #[value(help = "fetch every object")]
    Always,
    /// all but those that an earlier run completed and that have not changed since, here and there
    #[default]
    Changed,
    /// None of them.
    #[value(help = "leave every file that is there, whatever is in it")]
    Never,
}

/// What a power failure may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// what the kernel had not written yet; the next run notices and fetches it again
    #[default]
    None,
    /// Nothing, once the run has succeeded.
    #[value(help = "nothing once the run has succeeded: the file system is synced at its end")]
    End,
    /// No file that has its name.
    #[value(help = "no file that has its name: each is synced before, and its folder after")]
    File,
}

/// What of earlier runs counts, and what of this one shall last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Running again")]
pub struct KeepArgs {
    /// which files that are there are replaced
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    pub overwrite: Overwrite,
    /// fetch everything from its start, and leave nothing that a later run could go on with
    #[arg(long)]
    pub no_resume: bool,
    /// what a power failure may take
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub durability: Durability,
    /// try even what does not fit into the free space at the destination
    #[arg(long, help_heading = "Failures")]
    pub no_space_check: bool,
}

impl KeepArgs {
    /// Earlier runs count, and this one shall for later ones.
    #[must_use]
    pub fn resume(self) -> bool {
        !self.no_resume
    }

    /// Each file is synced.
    #[must_use]
    pub fn syncs_files(self) -> bool {
        self.durability == Durability::File
    }
}

/// What to do about an object that changes while it is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OnChange {
    /// the object fails, with both ETags
    #[default]
    Fail,
    /// it is fetched anew from its first byte, a few times at most
    Restart,
}

/// What happens when something goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Failures")]
pub struct FailureArgs {
    /// end the run after this time, such as 90s or 1h30m, whatever it waits for; what is not whole
    /// then has failed
    #[arg(long, value_name = "TIME", value_parser = parse_deadline)]
    pub deadline: Option<Duration>,
    /// what to do about an object that changes while it is fetched
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_change: OnChange,
}

/// What is told, and where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// print the summary as one JSON object to standard output
    #[arg(long)]
    pub json: bool,
    /// print no progress, notes or summary; errors are always printed
    #[arg(long)]
    pub quiet: bool,
}

fn help_workers() -> String {
    let most = limits::WORKERS_MAX;
    format!("threads, each with a core and a ring of its own, 1 to {most} [default: one per core]")
}

fn help_connections() -> String {
    format!(
        "use so many connections, 1 to {}, instead of as many as bring the most",
        limits::CONNECTIONS_MAX
    )
}

fn help_max_connections() -> String {
    format!(
        "use at most so many connections, 1 to {} [default: {}, or {} a worker where that is more; \
         fewer where memory or open files are scarce]",
        limits::CONNECTIONS_MAX,
        limits::CONNECTIONS_DEFAULT_MAX,
        limits::CONNECTIONS_DEFAULT_PER_WORKER
    )
}

pub(super) fn help_part_size() -> String {
    format!(
        "bytes of one request, {} to {} [default: {}]",
        typed(limits::PART_BYTES_MIN),
        typed(limits::PART_BYTES_MAX),
        typed(limits::PART_BYTES_DEFAULT)
    )
}

fn help_memory() -> String {
    format!(
        "bytes of buffers for all workers together, {} or more [default: {}, at most 1/{} of the \
         free memory]",
        typed(limits::MEMORY_BYTES_MIN),
        typed(limits::MEMORY_BYTES_DEFAULT_MAX),
        limits::MEMORY_CGROUP_SHARE
    )
}

pub(super) fn help_demo_size() -> String {
    format!(
        "bytes of the large objects together, {} to {} [default: {}, less where there is no room]",
        typed(limits::DEMO_LARGE_BYTES_MIN),
        typed(limits::DEMO_LARGE_BYTES_MAX),
        typed(limits::DEMO_LARGE_BYTES_DEFAULT)
    )
}

/// A size as one would type it.
fn typed(bytes: u64) -> String {
    Binary(bytes).to_string().replace(' ', "")
}

fn help_list_requests() -> String {
    format!(
        "requests that list the sources at once, 1 to {}; 1 lists page after page [default: {}]",
        limits::LIST_REQUESTS_MAX,
        limits::LIST_REQUESTS_DEFAULT
    )
}

fn parse_list_requests(text: &str) -> Result<usize, String> {
    parse_number(text, limits::LIST_REQUESTS_MAX)
}

fn parse_workers(text: &str) -> Result<usize, String> {
    parse_number(text, limits::WORKERS_MAX)
}

fn parse_connections(text: &str) -> Result<usize, String> {
    parse_number(text, limits::CONNECTIONS_MAX)
}

pub(super) fn parse_attempts(text: &str) -> Result<u32, String> {
    parse_number(text, ATTEMPTS_TYPED_MAX)
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

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes >= limits::MEMORY_BYTES_MIN {
        return Ok(bytes);
    }
    Err(format!("expected a size of {} or more", typed(limits::MEMORY_BYTES_MIN)))
}

fn help_retry_for() -> String {
    format!(
        "retry an endpoint that refuses or does not answer for at least this time, such as 5m; \
         with 0s tries alone count [default: {}s]",
        limits::RETRY_FOR_US / 1_000_000
    )
}

fn parse_retry_for(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let most = limits::RETRY_FOR_MAX;
    let fits = time <= most;
    if fits { Ok(time) } else { Err(format!("expected at most {}h", most.as_secs() / 3600)) }
}

fn parse_deadline(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("expected more than no time".to_owned()) } else { Ok(time) }
}

/// The name of a file to be written.
pub(super) fn parse_report(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("expected the name of a file".to_owned()),
        "-" => Err("expected the name of a file; /dev/stdout is standard output".to_owned()),
        name => Ok(PathBuf::from(name)),
    }
}
