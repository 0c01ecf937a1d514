//! `inrush demo` as it is typed. Pure, like all of [`crate::cli`].

use super::options::{self, OutputArgs, TuningArgs};

/// What was typed after `demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// keep the folder with the downloaded files, and print its name
    #[arg(long)]
    pub keep: bool,
    /// use HTTPS with a certificate authority created for this run
    #[arg(long)]
    pub tls: bool,
    /// Bytes of the large objects together.
    #[arg(long, value_name = "SIZE", value_parser = options::parse_demo_size,
        help = options::help_demo_size())]
    pub size: Option<u64>,
    /// How much of the machine.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// What is told.
    #[command(flatten)]
    pub output: OutputArgs,
}
