//! Arguments of `inrush bench`. Pure, like all of [`crate::cli`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};

use super::help::About;
use super::options::{
    ServiceArgs, TuningArgs, parse_connections, parse_memory, parse_part_size, parse_report,
    parse_workers,
};
use super::usage;
use crate::limits::{BENCH_BYTES_DEFAULT, BENCH_RUNS_MAX};
use crate::s3::uri::S3Uri;
use crate::s3::web::is_url;
use crate::text::size;

/// The description of the command.
pub(super) const ABOUT: About = About {
    name: "bench",
    operands: &[
        ("[SOURCE]", &["objects to download, s3://BUCKET/FOLDER/; without it", "generated ones"]),
        (
            "[DEST]",
            &["an existing folder on the disk to measure; without it", "nothing is written"],
        ),
    ],
    details: "Measures network, disk, pipe, TLS and checksums alone and together, prints a table, \
        and ends with the part that was the limit. All that it writes is removed.",
    examples: &[
        ("measure this machine", "inrush bench"),
        (
            "find the number of connections, with a page of plots",
            "inrush bench s3://my-bucket/data/ /mnt/nvme --sweep connections=8,16,32 --html b.html",
        ),
        ("a published workload", "inrush bench /mnt/nvme --workload download-30GiB-1x"),
    ],
    remote: true,
};

/// The usage line of `bench`.
pub(super) const USAGE: &str = "inrush bench [OPTIONS] [SOURCE] [DEST]";

/// A stage of the benchmark: one part of the machine, or several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// download and drop, without checksums
    Network,
    /// write to DEST past the page cache
    Disk,
    /// write to DEST through the page cache, and sync
    DiskBuffered,
    /// stream generated objects through a named pipe
    Pipe,
    /// encrypt in memory, on one core
    Tls,
    /// checksums in memory, on one core
    Verification,
    /// download to DEST
    Get,
    /// stream SOURCE through a named pipe
    Stream,
    /// read all files of a mount of SOURCE; only if named
    Mount,
}

/// Stages that `--sweep` can measure, by precedence.
const SWEPT_STAGES: [Stage; 5] =
    [Stage::Get, Stage::Network, Stage::Stream, Stage::Mount, Stage::Pipe];

impl Stage {
    /// The stage that is measured with each value of a sweep.
    #[must_use]
    pub fn swept(of: &[Self]) -> Option<Self> {
        SWEPT_STAGES.into_iter().find(|stage| of.contains(stage))
    }

    /// True if an option of this name affects the stage.
    #[must_use]
    pub fn takes(self, option: &str) -> bool {
        match self {
            // Streams start a worker for each core that they need.
            Self::Pipe | Self::Stream => option != "workers",
            // Programs determine the reads of a mount.
            Self::Mount => option != "part-size",
            _ => true,
        }
    }

    /// The stage's name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Disk => "disk",
            Self::DiskBuffered => "disk-buffered",
            Self::Pipe => "pipe",
            Self::Tls => "tls",
            Self::Verification => "verification",
            Self::Get => "get",
            Self::Stream => "stream",
            Self::Mount => "mount",
        }
    }
}

/// An option and the values that are measured in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The option's name, without dashes.
    pub name: &'static str,
    /// The values as typed.
    pub values: Vec<String>,
}

/// A workload: a number of objects of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The workload's name.
    pub name: String,
    /// The folder of its objects below the source.
    pub folder: String,
    /// Number of objects.
    pub count: u64,
    /// Size of each object, in bytes.
    pub bytes: u64,
    /// Nothing is written to disk.
    pub in_memory: bool,
}

/// Arguments of `bench`.
#[derive(Debug, Clone)]
pub struct BenchArgs {
    /// The source; `None` for generated objects.
    pub source: Option<S3Uri>,
    /// The destination folder.
    pub destination: Option<PathBuf>,
    /// Options of the measurement.
    pub how: BenchTyped,
}

/// Options of the measurement, as parsed by clap.
#[derive(Debug, Clone, Args)]
pub struct BenchTyped {
    /// the source, then the destination
    // The help lists them separately.
    #[arg(value_name = "SOURCE DEST", hide = true, value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,
    /// run with each of these values; repeatable; OPTION is connections, workers, part-size or
    /// memory
    #[arg(long, value_name = "OPTION=VALUE,...", value_parser = parse_sweep)]
    pub sweep: Vec<Sweep>,
    /// measure these stages only, comma-separated
    #[arg(long, value_name = "STAGE,...", value_enum, value_delimiter = ',')]
    pub stages: Vec<Stage>,
    /// objects of a published benchmark of the AWS CRT: download-30GiB-1x, download-256KiB-10_000x,
    /// max-throughput; in general download-SIZE-COUNTx
    #[arg(long, value_name = "NAME", value_parser = parse_workload)]
    pub workload: Option<Workload>,
    /// total size of generated objects and of files in DEST [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size,
        default_value_t = BENCH_BYTES_DEFAULT,
        hide_default_value = true, conflicts_with = "workload")]
    pub size: u64,
    /// measured runs of each step; the table has their median
    #[arg(long, value_name = "N", value_parser = parse_runs, default_value_t = 3)]
    pub runs: u32,
    /// runs of each step that are not counted
    #[arg(long, value_name = "N", value_parser = parse_warm_up, default_value_t = 1)]
    pub warm_up: u32,
    /// write the results as JSON, again after every step
    #[arg(long, value_name = "FILE", value_parser = parse_report, value_hint = ValueHint::FilePath,
        help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// write a row for each run, again after every step
    #[arg(long, value_name = "FILE", value_parser = parse_report, value_hint = ValueHint::FilePath,
        help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// write a page with plots, again after every step
    #[arg(long, value_name = "FILE", value_parser = parse_report, value_hint = ValueHint::FilePath,
        help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// print the results as JSON instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// print no progress; errors are always printed
    #[arg(long, short = 'q', overrides_with = "quiet", help_heading = "Output")]
    pub quiet: bool,
    /// log decisions and retries to standard error
    #[arg(long, short = 'v', action = ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
    /// Server and credentials.
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Resources of all steps, except for the swept option.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

impl BenchTyped {
    pub(super) fn settle(mut self) -> Result<BenchArgs, clap::Error> {
        let (mut source, mut destination) = (None, None);
        for operand in std::mem::take(&mut self.operands) {
            let is_remote = operand.as_encoded_bytes().starts_with(b"s3://")
                || is_url(&operand.to_string_lossy());
            if is_remote && source.is_none() && destination.is_none() {
                let text = operand.to_str().ok_or_else(|| usage("the source is not UTF-8"))?;
                source = Some(S3Uri::parse(text).map_err(|error| usage(&error.to_string()))?);
            } else if !is_remote && destination.is_none() && !operand.is_empty() {
                destination = Some(PathBuf::from(operand));
            } else {
                return Err(usage("bench takes at most one source, then one folder"));
            }
        }
        if source.is_none() && self.service.endpoint_url.is_some() {
            return Err(usage("--endpoint-url needs a SOURCE: s3://BUCKET/FOLDER/"));
        }
        let disks = [Stage::Disk, Stage::DiskBuffered, Stage::Get];
        if destination.is_none() && self.stages.iter().any(|stage| disks.contains(stage)) {
            return Err(usage("the stages disk, disk-buffered and get need a DEST: a folder"));
        }
        if has_twice(self.stages.iter().map(|stage| stage.name())) {
            return Err(usage("--stages names a stage twice"));
        }
        if has_twice(self.sweep.iter().map(|sweep| sweep.name)) {
            return Err(usage("--sweep names an option twice: give all its values at once"));
        }
        let is_swept = self.stages.is_empty() || Stage::swept(&self.stages).is_some();
        if !self.sweep.is_empty() && !is_swept {
            return Err(usage("--sweep needs one of the stages get, network, stream, mount, pipe"));
        }
        // The first of these stages that is measured is swept.
        if let Some(stage) = Stage::swept(&self.stages)
            && let Some(sweep) = self.sweep.iter().find(|sweep| !stage.takes(sweep.name))
        {
            let message = format!("the stage {} has no --{} to sweep", stage.name(), sweep.name);
            return Err(usage(&message));
        }
        let is_more = |value: &String, most| {
            parse_connections(value).is_ok_and(|connections| connections > most)
        };
        if let Some(most) = self.tuning.max_connections
            && let Some(sweep) = self.sweep.iter().find(|sweep| sweep.name == "connections")
            && let Some(value) = sweep.values.iter().find(|value| is_more(value, most))
        {
            return Err(usage(&format!(
                "--sweep connections={value} is more than --max-connections {most}"
            )));
        }
        if has_twice([&self.report, &self.csv, &self.html].into_iter().flatten()) {
            return Err(usage("--report, --csv and --html need a file each"));
        }
        Ok(BenchArgs { source, destination, how: self })
    }
}

fn has_twice<T: Ord>(mut all: impl Iterator<Item = T>) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    all.any(|one| !seen.insert(one))
}

fn parse_runs(text: &str) -> Result<u32, String> {
    parse_warm_up(text).and_then(|runs| match runs {
        0 => Err("expected at least 1".to_owned()),
        runs => Ok(runs),
    })
}

fn parse_warm_up(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= BENCH_RUNS_MAX);
    number.ok_or_else(|| format!("expected a whole number up to {BENCH_RUNS_MAX}"))
}

fn parse_size(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes >= 1 << 20 => Ok(bytes),
        _ => Err("expected a size of 1MiB or more".to_owned()),
    }
}

/// Validates a value of an option.
type Check = fn(&str) -> Result<(), String>;

fn parse_sweep(text: &str) -> Result<Sweep, String> {
    let expected = "expected OPTION=VALUE,... with connections, workers, part-size or memory";
    let (name, values) = text.split_once('=').ok_or(expected)?;
    let (name, check): (&'static str, Check) = match name {
        "connections" => ("connections", |value| parse_connections(value).map(drop)),
        "workers" => ("workers", |value| parse_workers(value).map(drop)),
        "part-size" => ("part-size", |value| parse_part_size(value).map(drop)),
        "memory" => ("memory", |value| parse_memory(value).map(drop)),
        _ => return Err(expected.to_owned()),
    };
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    values.iter().try_for_each(|value| check(value))?;
    if has_twice(values.iter()) {
        return Err("a value is named twice".to_owned());
    }
    Ok(Sweep { name, values })
}

fn parse_workload(text: &str) -> Result<Workload, String> {
    let expected = || format!("'{text}' is no workload: expected download-SIZE-COUNTx");
    let name = text.strip_prefix("download-").unwrap_or(text);
    let in_memory = name == "max-throughput" || name.ends_with("-ram");
    // Each connection requests one object repeatedly. Workloads in memory share the objects of
    // their counterpart on disk.
    let folder = if name == "max-throughput" { "5GiB-1x" } else { name };
    let folder = folder.strip_suffix("-ram").unwrap_or(folder);
    let (bytes, count) = folder.split_once('-').ok_or_else(expected)?;
    let count = count.strip_suffix('x').ok_or_else(expected)?.replace('_', "");
    let count: u64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(expected)?;
    let bytes = size::parse(bytes).map_err(|_| expected())?;
    let folder = format!("download/{folder}/");
    Ok(Workload { name: format!("download-{name}"), folder, count, bytes, in_memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_workloads() {
        let parsed = |name: &str| {
            let workload = parse_workload(name).expect("a workload");
            (workload.folder, workload.count, workload.bytes, workload.in_memory)
        };
        let folder = |name: &str| format!("download/{name}/");
        assert_eq!(parsed("download-30GiB-1x"), (folder("30GiB-1x"), 1, 30 << 30, false));
        assert_eq!(parsed("256KiB-10_000x"), (folder("256KiB-10_000x"), 10_000, 256 << 10, false));
        assert_eq!(parsed("max-throughput"), (folder("5GiB-1x"), 1, 5 << 30, true));
        assert_eq!(parsed("download-30GiB-1x-ram"), (folder("30GiB-1x"), 1, 30 << 30, true));
        assert_eq!(parsed("256MiB-1_000x"), (folder("256MiB-1_000x"), 1000, 256 << 20, false));
        assert_eq!(parse_workload("5GiB-10x-ram").expect("one").name, "download-5GiB-10x-ram");
        for wrong in ["", "30GiB", "upload-30GiB-1x", "30GiB-0x", "GiB-1x"] {
            assert!(parse_workload(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sweeps() {
        let sweep = parse_sweep("part-size=8MiB,16MiB").expect("a sweep");
        assert_eq!((sweep.name, sweep.values.len()), ("part-size", 2));
        for wrong in [
            "connections",
            "connections=",
            "connections=0",
            "connections=99999",
            "connections=1,1",
            "workers=99999",
            "size=1",
            "memory=1",
        ] {
            assert!(parse_sweep(wrong).is_err(), "{wrong}");
        }
    }
}
