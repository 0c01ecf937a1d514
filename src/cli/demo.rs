//! Arguments of `inrush demo`. Pure, like all of [`crate::cli`].

use super::options::{self, OutputArgs, TuningArgs};

/// Arguments of `demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// keep the folder with the downloaded files, and print its name
    #[arg(long)]
    pub keep: bool,
    /// use HTTPS with a certificate authority created for this run
    #[arg(long)]
    pub tls: bool,
    /// Size of the large objects together, in bytes.
    #[arg(long, value_name = "SIZE", value_parser = options::parse_demo_size,
        help = options::help_demo_size())]
    pub size: Option<u64>,
    /// Resources of the run.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// Output options.
    #[command(flatten)]
    pub output: OutputArgs,
}
