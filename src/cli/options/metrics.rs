//! Arguments for metrics that are exported while a command runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::parse_report;

/// Metrics of a running command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// serve metrics for Prometheus at http://ADDR:PORT/metrics while the command runs
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    pub metrics_listen: Option<SocketAddr>,
    /// write the same to this file every few seconds and at the end, for the textfile collector of
    /// node_exporter
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = parse_report
    )]
    pub metrics_file: Option<PathBuf>,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an IP address and a port, such as 127.0.0.1:9400 or [::1]:9400".to_owned()
    })
}
