//! `inrush demo`.

use std::time::Instant;

use crate::cli::DemoArgs;
use crate::error::Result;

/// Runs the demo; returns the exit code.
pub(super) fn run(_args: &DemoArgs, _begun: Instant) -> Result<u8> {
    Ok(0)
}
