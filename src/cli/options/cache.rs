//! Arguments of the cache of mounts.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::text::size;

/// A folder that caches objects read from mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct CacheArgs {
    /// keep objects that were read whole in this folder, and read them from there afterwards, also
    /// in later mounts and others that share it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,
    /// keep at most SIZE in the folder of --cache; what was used longest ago is removed
    /// [default: 90% of the free space]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "cache")]
    pub cache_size: Option<u64>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("expected a size above 0".to_owned()),
        bytes => Ok(bytes),
    }
}
