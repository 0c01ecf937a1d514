//! `doctor`: what was typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;

use super::{OutputArgs, ServiceArgs, parse_destination, usage};
use crate::s3::uri::S3Uri;

/// What was typed after `doctor`.
#[derive(Debug, Clone)]
pub struct DoctorArgs {
    /// What shall be downloaded; the service is not looked at without it.
    pub source: Option<S3Uri>,
    /// Where to; no disk is looked at without it.
    pub destination: Option<PathBuf>,
    /// Which server, and as whom.
    pub service: ServiceArgs,
    /// What is told.
    pub output: OutputArgs,
}

/// `doctor` before its operands are told apart.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorTyped {
    /// the source, the destination, or both
    // The help has them apart: help::COMMANDS.
    #[arg(value_name = "SOURCE DEST", hide = true, value_hint = ValueHint::AnyPath, num_args = 0..)]
    operands: Vec<OsString>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl DoctorTyped {
    pub(super) fn settle(self) -> Result<DoctorArgs, clap::Error> {
        let (mut source, mut destination) = (None, None);
        for operand in self.operands {
            let text = operand.to_str().filter(|text| text.starts_with("s3://"));
            match (text, &source, &destination) {
                (Some(text), None, None) => {
                    let uri = S3Uri::parse(text).map_err(|error| usage(&error.to_string()))?;
                    source = Some(uri);
                }
                (None, _, None) => destination = Some(parse_destination(operand)?),
                _ => {
                    return Err(usage(
                        "doctor takes one source and one destination at most: inrush doctor \
                         s3://BUCKET/KEY DEST",
                    ));
                }
            }
        }
        self.service.with_version(source.iter_mut())?;
        Ok(DoctorArgs { source, destination, service: self.service, output: self.output })
    }
}
