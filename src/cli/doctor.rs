//! Arguments of `doctor`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;

use super::operands::parse_destination;
use super::{OutputArgs, RingName, ServiceArgs, usage};
use crate::s3::uri::{S3Uri, SCHEME};
use crate::s3::web::is_url;

/// Arguments of `doctor`.
#[derive(Debug, Clone)]
pub struct DoctorArgs {
    /// The source to check; without it the service is checked if it is configured.
    pub source: Option<S3Uri>,
    /// The destination; without it no disk is checked.
    pub destination: Option<PathBuf>,
    /// Server and credentials.
    pub service: ServiceArgs,
    /// The ring that runs will use.
    pub ring: Option<RingName>,
    /// Output options.
    pub output: OutputArgs,
}

/// `doctor` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorTyped {
    /// the source, the destination, or both
    // The help lists them separately: help::COMMANDS.
    #[arg(value_name = "SOURCE DEST", hide = true, value_hint = ValueHint::AnyPath, num_args = 0..)]
    operands: Vec<OsString>,
    #[command(flatten)]
    service: ServiceArgs,
    /// how to talk to the kernel [default: INRUSH_RING, or auto]
    #[arg(long, value_name = "RING", help_heading = "Resources")]
    ring: Option<RingName>,
    #[command(flatten)]
    output: OutputArgs,
}

impl DoctorTyped {
    pub(super) fn settle(self) -> Result<DoctorArgs, clap::Error> {
        let (mut source, mut destination) = (None, None);
        for operand in self.operands {
            let text = operand.to_str().filter(|text| text.starts_with(SCHEME) || is_url(text));
            match (text, &source, &destination) {
                (Some(text), None, None) => {
                    let uri = S3Uri::parse(text).map_err(|error| usage(&error.to_string()))?;
                    source = Some(uri);
                }
                (None, _, None) => destination = Some(parse_destination(operand, false)?),
                _ => {
                    return Err(usage(
                        "doctor takes one source and one destination at most: inrush doctor \
                         s3://BUCKET/KEY DEST",
                    ));
                }
            }
        }
        self.service.with_version(source.iter_mut())?;
        let Self { service, ring, output, .. } = self;
        Ok(DoctorArgs { source, destination, service, ring, output })
    }
}
