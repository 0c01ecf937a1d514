//! Arguments of `verify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;

use super::operands::sources;
use super::{OutputArgs, SelectionArgs, ServiceArgs, options, usage};
use crate::plan::epoch::Shard;
use crate::s3::uri::S3Uri;
use crate::text::shown::shown;

/// Arguments of `verify`.
#[derive(Debug, Clone)]
pub struct VerifyArgs {
    /// Expected objects; empty only if a file lists them.
    pub sources: Vec<S3Uri>,
    /// The local folder.
    pub folder: PathBuf,
    /// Unverified files count as failures.
    pub strict: bool,
    /// Mark verified files as downloaded.
    pub adopt: bool,
    /// The part of the objects.
    pub shard: Shard,
    /// The file for a report of every object.
    pub report: Option<PathBuf>,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
    /// Output options.
    pub output: OutputArgs,
}

/// `verify` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyTyped {
    /// sources, then the folder
    // The help lists them separately: help::COMMANDS.
    #[arg(value_name = "SOURCE... DIR", hide = true, value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,
    /// fail objects that cannot be verified
    #[arg(long)]
    strict: bool,
    /// mark files that are verified, so that get and sync skip them like files they downloaded
    #[arg(long)]
    adopt: bool,
    /// take only part I of N of the objects; I starts at 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// write one JSON line per object to this file
    #[arg(
        long,
        help_heading = "Output",
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = options::parse_report
    )]
    report: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl VerifyTyped {
    pub(super) fn settle(mut self) -> Result<VerifyArgs, clap::Error> {
        let folder = self.operands.pop().ok_or_else(|| match self.selection.has_more() {
            true => usage("the folder is missing: add the local folder at the end"),
            false => usage("source and folder are missing: inrush verify s3://BUCKET/FOLDER/ DIR"),
        })?;
        if folder.as_encoded_bytes().starts_with(b"s3://") {
            return Err(usage("the folder is missing: add the local folder at the end"));
        }
        if folder.is_empty() {
            return Err(usage(&format!(
                "'{}' is not a folder: the last argument is the local folder",
                shown(&folder.display().to_string())
            )));
        }
        let mut sources = sources("verify", self.operands, false, &self.selection)?;
        self.service.with_version(sources.iter_mut())?;
        Ok(VerifyArgs {
            sources,
            folder: PathBuf::from(folder),
            strict: self.strict,
            adopt: self.adopt,
            shard: self.shard,
            report: self.report,
            selection: self.selection,
            service: self.service,
            output: self.output,
        })
    }
}
