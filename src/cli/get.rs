//! `get`, `sync` and `load`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, ValueHint};

use super::operands::{check_direction, parse_destination, sources};
use super::options::{
    self, FailureArgs, KeepArgs, OutputArgs, ServiceArgs, TuningArgs, VerifyMode,
};
use super::{Destination, GetArgs, GetVerb, MetricsArgs, SelectionArgs, usage};
use crate::limits::SPREAD_MAX;
use crate::plan::epoch::Shard;

/// `get` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct GetTyped {
    /// download and verify, but write nothing
    #[arg(long)]
    discard: bool,
    /// take only part I of N of the objects; I starts at 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// spread the objects over DEST and this folder, each object in one of them, by free space and
    /// write rate; repeatable
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        conflicts_with = "discard"
    )]
    spread_to: Vec<OsString>,
    /// not an option of get: see cat
    #[arg(long = "range", value_name = "RANGE", hide = true, allow_hyphen_values = true)]
    part: Option<String>,
    #[command(flatten)]
    fetch: FetchTyped,
}

/// `sync` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct SyncTyped {
    /// delete files below DEST that are not in the source, after all downloads succeeded
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    fetch: FetchTyped,
}

/// `load` before its operand is read.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("whereto").args(["to", "discard"]).required(true))]
pub(super) struct LoadTyped {
    /// local folder that gets the files
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: Option<OsString>,
    /// download and verify, but write nothing
    #[arg(long)]
    discard: bool,
    #[command(flatten)]
    fetch: FetchTyped,
}

/// The common options of these. The last operand is the destination, unless there is none.
#[derive(Debug, clap::Args)]
struct FetchTyped {
    /// sources, then the destination
    // The help lists them separately: help::COMMANDS.
    #[arg(value_name = "SOURCE... DEST", hide = true, value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,
    /// list what would be downloaded, and download nothing
    #[arg(long, short = 'n', alias = "dryrun")]
    dry_run: bool,
    /// download everything below a folder; this is the default
    #[arg(long, hide = true)]
    recursive: bool,
    /// compare times exactly; this is the default
    #[arg(long, hide = true, conflicts_with_all = ["size_only", "ignore_times"])]
    exact_timestamps: bool,
    /// whether downloaded data is verified before the file gets its name
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    verify: VerifyMode,
    /// write one JSON line per object to this file
    #[arg(
        long,
        help_heading = "Output",
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = options::parse_report,
        conflicts_with = "dry_run"
    )]
    report: Option<PathBuf>,
    /// print CPU time, memory, connections and I/O modes after the summary
    #[arg(long, help_heading = "Output")]
    stats: bool,
    /// print which part of the machine, the network or the server was the limit
    #[arg(long, help_heading = "Output")]
    explain: bool,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl GetTyped {
    pub(super) fn settle(self) -> Result<GetArgs, clap::Error> {
        if let Some(range) = self.part {
            return Err(usage(&format!(
                "get downloads whole objects: use 'inrush cat --range={range} s3://BUCKET/KEY > \
                 FILE' for part of one"
            )));
        }
        let args = self.fetch.settle(GetVerb::Get, self.discard)?;
        let others = self.spread_to.into_iter().map(|folder| parse_destination(folder, false));
        let spread_to = others.collect::<Result<Vec<PathBuf>, clap::Error>>()?;
        if spread_to.len() >= SPREAD_MAX {
            return Err(usage(&format!("--spread-to: at most {SPREAD_MAX} folders with DEST")));
        }
        Ok(GetArgs { shard: self.shard, spread_to, ..args })
    }
}

impl SyncTyped {
    pub(super) fn settle(self) -> Result<GetArgs, clap::Error> {
        self.fetch.settle(GetVerb::Sync { delete: self.delete }, false)
    }
}

impl LoadTyped {
    pub(super) fn settle(mut self) -> Result<GetArgs, clap::Error> {
        if self.fetch.selection.has_more() {
            return Err(usage("load takes one model: get has --files-from and --manifest"));
        }
        if self.fetch.operands.len() != 1 {
            return Err(usage("load takes one model: inrush load s3://BUCKET/MODEL/ --to DIR"));
        }
        self.fetch.operands.extend(self.to);
        let discard = self.discard;
        self.fetch.settle(GetVerb::Load, discard)
    }
}

impl FetchTyped {
    fn settle(mut self, verb: GetVerb, discard: bool) -> Result<GetArgs, clap::Error> {
        self.selection.urls = verb == GetVerb::Get;
        // Everything below a folder is downloaded anyway.
        let _ = (self.recursive, self.exact_timestamps);
        let name = verb.name();
        let mut operands = self.operands;
        let destination = if discard {
            Destination::Discard
        } else {
            let last = operands.pop().ok_or_else(|| match self.selection.has_more() {
                true => usage("the destination is missing: add a folder or a file"),
                false => usage(&format!(
                    "source and destination are missing: inrush {name} s3://BUCKET/KEY DEST"
                )),
            })?;
            check_direction(name, &operands, &last)?;
            Destination::Local(parse_destination(last, verb == GetVerb::Get)?)
        };
        let mut sources = sources(name, operands, discard, &self.selection)?;
        self.service.with_version(sources.iter_mut())?;
        Ok(GetArgs {
            verb,
            shard: Shard::WHOLE,
            sources,
            destination,
            spread_to: Vec::new(),
            dry_run: self.dry_run,
            verify: self.verify,
            report: self.report,
            stats: self.stats,
            explain: self.explain,
            keep: self.keep,
            selection: self.selection,
            service: self.service,
            tuning: self.tuning,
            failures: self.failures,
            output: self.output,
            metrics: self.metrics,
        })
    }
}
