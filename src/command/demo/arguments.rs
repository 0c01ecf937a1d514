//! The arguments of the commands that the demo runs.

use std::num::NonZeroU64;
use std::path::Path;

use super::dataset::{BUCKET, Set};
use super::{Demo, REGION, stream};
use crate::cli::{
    AddressingStyle, Channel, Destination, FailureArgs, GetArgs, GetVerb, KeepArgs, LogFormat,
    MessageArgs, MetricsArgs, OnFailure, OutputArgs, PipeArgs, RecordWrapper, SelectionArgs,
    ServiceArgs, StreamArgs, VerifyMode,
};
use crate::plan::epoch::Shard;
use crate::s3::uri::S3Uri;

/// Only errors of its steps are printed.
const QUIET: MessageArgs =
    MessageArgs { quiet: true, no_progress: true, verbose: 0, log_format: LogFormat::Text };

impl Demo<'_> {
    /// The arguments that serve this set.
    pub(super) fn pipe_args(&self, set: &Set, folder: &Path) -> PipeArgs {
        let get = self.get_args(set, folder);
        PipeArgs {
            channels: vec![Channel { name: set.name.to_owned(), sources: get.sources }],
            folder: folder.to_path_buf(),
            epochs: NonZeroU64::new(stream::EPOCHS),
            shuffle_seed: None,
            shard: Shard::WHOLE,
            ready_file: None,
            on_failure: OnFailure::End,
            epoch_markers: false,
            record_wrapper: RecordWrapper::None,
            augmented: None,
            stream: StreamArgs {
                bandwidth_limit: self.args.tuning.bandwidth_limit,
                connections: None,
                max_connections: None,
                part_size: self.args.tuning.part_size,
                max_attempts: self.args.tuning.max_attempts,
                memory: self.args.tuning.memory,
                ring: self.args.tuning.ring,
                gunzip: false,
                verify: VerifyMode::Off,
                deadline: None,
                report: None,
                messages: QUIET,
                json: false,
                stats: false,
                metrics: MetricsArgs::default(),
                explain: false,
            },
            selection: SelectionArgs::default(),
            service: get.service,
        }
    }

    /// The arguments that download this set.
    pub(super) fn get_args(&self, set: &Set, destination: &Path) -> GetArgs {
        let source = format!("s3://{BUCKET}/{}/", set.name);
        GetArgs {
            metrics: MetricsArgs::default(),
            verify: VerifyMode::Auto,
            verb: GetVerb::Get,
            shard: Shard::WHOLE,
            sources: vec![S3Uri::parse(&source).expect("the sets have names that are keys")],
            destination: Destination::Local(destination.to_path_buf()),
            spread_to: Vec::new(),
            dry_run: false,
            report: None,
            stats: false,
            explain: false,
            keep: KeepArgs::default(),
            selection: SelectionArgs::default(),
            service: ServiceArgs {
                endpoint_url: Some(self.origin.url()),
                ca_bundle: self.bundle.as_ref().map(|file| file.path().to_path_buf()),
                region: Some(REGION.to_owned()),
                addressing_style: Some(AddressingStyle::Path),
                ..ServiceArgs::default()
            },
            tuning: self.args.tuning.clone(),
            failures: FailureArgs::default(),
            output: OutputArgs { messages: QUIET, ..OutputArgs::default() },
        }
    }
}
