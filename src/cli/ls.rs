//! Arguments of `ls`.

use std::ffi::OsString;

use super::operands::sources;
use super::{MessageArgs, SelectionArgs, ServiceArgs, usage};
use crate::plan::epoch::Shard;
use crate::s3::uri::S3Uri;

/// Arguments of `ls`.
#[derive(Debug, Clone)]
pub struct LsArgs {
    /// Sources to list.
    pub sources: Vec<S3Uri>,
    /// List the buckets; then there are no sources.
    pub buckets: bool,
    /// List all levels below folders, not only the first.
    pub recursive: bool,
    /// The part of all objects below the sources.
    pub shard: Shard,
    /// Print the total at the end.
    pub summarize: bool,
    /// Print sizes in powers of 1024.
    pub human_readable: bool,
    /// Print JSON lines.
    pub json: bool,
    /// Output on standard error.
    pub messages: MessageArgs,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
}

/// `ls` before its sources are parsed.
#[derive(Debug, clap::Args)]
pub(super) struct LsTyped {
    /// what to list: s3://BUCKET/FOLDER/, s3://BUCKET/KEY or a glob such as s3://BUCKET/a/*.tar;
    /// without a source, or with s3://, the buckets
    #[arg(value_name = "SOURCE")]
    sources: Vec<OsString>,
    /// list all below a folder, not its own level alone
    #[arg(long)]
    recursive: bool,
    /// list only part I of N of all objects below the sources, as get --shard takes them; I starts
    /// at 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// print how many objects and bytes were listed at the end
    #[arg(long)]
    summarize: bool,
    /// print sizes as KiB, MiB, GiB
    #[arg(long, short = 'H')]
    human_readable: bool,
    /// print one JSON line per object and folder, or bucket; a failure is the last line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    messages: MessageArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

impl LsTyped {
    /// Refuses options about objects.
    fn check_no_source(&self) -> Result<(), clap::Error> {
        let typed = [
            (self.recursive, "--recursive"),
            (self.shard != Shard::WHOLE, "--shard"),
            (self.summarize, "--summarize"),
            (self.human_readable, "--human-readable"),
            (!self.selection.rules.is_empty(), "--include or --exclude"),
            (self.selection.raw, "--raw"),
            (self.selection.files_from.is_some(), "--files-from"),
            (self.selection.prefix, "--prefix"),
            (self.selection.manifest.is_some(), "--manifest"),
            (self.service.version_id.is_some(), "--version-id"),
        ];
        match typed.iter().find(|(typed, _)| *typed) {
            None => Ok(()),
            Some((_, option)) => Err(usage(&format!(
                "{option} needs a source such as s3://BUCKET/: without one ls lists the buckets"
            ))),
        }
    }

    pub(super) fn settle(self) -> Result<LsArgs, clap::Error> {
        let none_given = self.sources.is_empty() && !self.selection.has_more();
        let buckets = none_given || self.sources.as_slice() == ["s3://"];
        let mut sources = if buckets {
            self.check_no_source()?;
            Vec::new()
        } else {
            sources("ls", self.sources, false, &self.selection)?
        };
        if !buckets {
            self.service.with_version(sources.iter_mut())?;
        }
        Ok(LsArgs {
            sources,
            buckets,
            recursive: self.recursive,
            shard: self.shard,
            summarize: self.summarize,
            human_readable: self.human_readable,
            json: self.json,
            messages: self.messages,
            selection: self.selection,
            service: self.service,
        })
    }
}
