//! Arguments of `train`.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;

use super::options;
use super::options::selection::layouts;
use super::pipe::{Epochs, parse_epochs};
use super::{
    CacheArgs, KeepArgs, MetricsArgs, OutputArgs, ServiceArgs, TuningArgs, VerifyMode, usage,
};
use crate::limits;
use crate::plan::epoch::Shard;
use crate::plan::manifest::Layout;

/// The description of a job's input.
#[derive(Debug, Clone)]
pub enum JobSource {
    /// Channels as typed, `NAME=SOURCE[,KEY=VALUE...]`; never empty.
    Channels(Vec<String>),
    /// A file with the request of `CreateTrainingJob`, or that of a Processing or Transform job.
    Job(PathBuf),
    /// An `init-config.json`.
    InitConfig(PathBuf),
}

/// Arguments of `train`.
#[derive(Debug, Clone)]
pub struct TrainArgs {
    /// The folder that replaces `/opt/ml`, the default.
    pub base_dir: Option<PathBuf>,
    /// The description of the job's input.
    pub source: JobSource,
    /// This host's index and the number of hosts; `None` to detect them.
    pub shard: Option<Shard>,
    /// Number of epochs of the channels in Pipe mode; `None` for infinitely many.
    pub epochs: Option<NonZeroU64>,
    /// The part of a manifest's keys that becomes the path.
    pub manifest_layout: Layout,
    /// The command starts before the files are complete.
    pub start_early: bool,
    /// Time for the command to end after SIGTERM.
    pub grace: Duration,
    /// Print the plan, and do nothing.
    pub check: bool,
    /// The command and its arguments; empty to start none.
    pub command: Vec<OsString>,
    /// Strictness of verification.
    pub verify: VerifyMode,
    /// Add the run's costs to the summary.
    pub stats: bool,
    /// Time after which the run ends, complete or not.
    pub deadline: Option<Duration>,
    /// The file for a line per object.
    pub report: Option<PathBuf>,
    /// The cache of objects read from channels in FastFile mode.
    pub cache: CacheArgs,
    /// Handling of existing files.
    pub keep: KeepArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
    /// Resources of the run.
    pub tuning: TuningArgs,
    /// Output options.
    pub output: OutputArgs,
    /// Metrics while it runs.
    pub metrics: MetricsArgs,
}

/// `train` before it is checked.
#[derive(Debug, clap::Args)]
pub(super) struct TrainTyped {
    /// the command to run, with its arguments
    // The help has it: help::COMMANDS.
    #[arg(
        value_name = "COMMAND",
        hide = true,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
    /// a channel: its name, s3://BUCKET/PREFIX/ or a local folder, and options such as ',mode=Pipe'
    /// (see 'inrush guide training'); repeatable
    #[arg(long, value_name = "NAME=SOURCE", conflicts_with_all = ["job", "init_config"])]
    channel: Vec<String>,
    /// read the job from this file, or '-' for standard input: the request of CreateTrainingJob,
    /// CreateProcessingJob or CreateTransformJob, as JSON or YAML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    job: Option<PathBuf>,
    /// read the job from this init-config.json of a SageMaker instance
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "job"
    )]
    init_config: Option<PathBuf>,
    /// folder that is laid out as /opt/ml of a SageMaker training container, for one run at a time
    /// [default: /opt/ml, where it exists]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    base_dir: Option<PathBuf>,
    /// this is host I of N, from 0; every channel of --channel is then sharded, unless it names its
    /// distribution [default: by resourceconfig.json or the launcher's variables]
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// number of epochs, or 'forever'
    #[arg(long, value_name = "N", default_value = "forever", value_parser = parse_epochs)]
    epochs: Epochs,
    /// path of an object of a manifest below the destination
    #[arg(long, value_name = "LAYOUT", value_parser = layouts(), default_value = "relative")]
    manifest_layout: Layout,
    /// start COMMAND at once, not when all channels in File mode are complete
    #[arg(long)]
    start_early: bool,
    /// time for COMMAND to end after SIGTERM, before SIGKILL [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_grace)]
    grace: Option<Duration>,
    /// list the channels and print what would be done, then exit
    #[arg(long)]
    check: bool,
    /// whether downloaded data is verified before the file gets its name
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    verify: VerifyMode,
    /// stop the run after this time, such as 90s or 1h30m; COMMAND then has its --grace to end
    #[arg(
        long,
        help_heading = "Failures",
        value_name = "TIME",
        value_parser = super::options::times::parse_deadline
    )]
    deadline: Option<Duration>,
    /// write one JSON line per object to this file
    #[arg(
        long,
        help_heading = "Output",
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = options::parse_report
    )]
    report: Option<PathBuf>,
    /// print CPU time, memory, connections and I/O modes after the summary
    #[arg(long, help_heading = "Output")]
    stats: bool,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl TrainTyped {
    pub(super) fn settle(self) -> Result<TrainArgs, clap::Error> {
        let source = match (self.job, self.init_config) {
            (Some(path), _) => JobSource::Job(path),
            (None, Some(path)) => JobSource::InitConfig(path),
            (None, None) if self.channel.is_empty() => {
                return Err(usage(
                    "the input is missing: add --channel NAME=s3://BUCKET/PREFIX/ or --job FILE",
                ));
            }
            (None, None) => JobSource::Channels(self.channel),
        };
        if self.start_early && self.command.is_empty() {
            return Err(usage("--start-early needs a COMMAND to start"));
        }
        if self.service.version_id.is_some() {
            return Err(usage("--version-id is for a single object: channels have many"));
        }
        if self.base_dir.as_ref().is_some_and(|base| base.as_os_str().is_empty()) {
            return Err(usage("--base-dir is empty: give a folder"));
        }
        Ok(TrainArgs {
            base_dir: self.base_dir,
            source,
            shard: self.shard,
            epochs: self.epochs.0,
            manifest_layout: self.manifest_layout,
            start_early: self.start_early,
            grace: self.grace.unwrap_or(limits::COMMAND_GRACE),
            check: self.check,
            command: self.command,
            verify: self.verify,
            stats: self.stats,
            deadline: self.deadline,
            report: self.report,
            cache: self.cache,
            keep: self.keep,
            service: self.service,
            tuning: self.tuning,
            output: self.output,
            metrics: self.metrics,
        })
    }
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let most = limits::COMMAND_GRACE_MAX;
    let fits = time <= most;
    if fits { Ok(time) } else { Err(format!("expected at most {}h", most.as_secs() / 3600)) }
}
