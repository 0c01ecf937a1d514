//! `--include` and `--exclude`: filters in the order typed, which clap's derive loses; and further
//! options of sources.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, ValueHint, value_parser};

use crate::error::Error;
use crate::plan::filter::Rule;
use crate::plan::manifest::Layout;
use crate::s3::uri::{KeyPattern, S3Uri};

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const RAW: &str = "raw";
const PREFIX: &str = "prefix";
const FILES_FROM: &str = "files_from";
const MANIFEST: &str = "manifest";
const LAYOUT: &str = "manifest_layout";

/// Filters and interpretation of sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionArgs {
    /// The filters, in the order typed.
    pub rules: Vec<Rule>,
    /// Sources have no wildcards.
    pub raw: bool,
    /// Sources are literal prefixes: they include every key that begins with them.
    pub prefix: bool,
    /// A file with further sources, one per line; `-` is standard input.
    pub files_from: Option<PathBuf>,
    /// The list of objects that replaces sources.
    pub manifest: Option<ManifestPlace>,
    /// The part of that list's keys that becomes the path.
    pub manifest_layout: Layout,
    /// Sources may be URLs, too: by the command.
    pub urls: bool,
}

/// The location of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestPlace {
    /// A file.
    File(PathBuf),
    /// An object: its bucket and key.
    S3(String, String),
}

impl SelectionArgs {
    /// The parser of addresses for these options.
    ///
    /// # Errors
    /// Those of [`S3Uri::parse_or_url`].
    pub fn read_source(&self) -> fn(&str) -> Result<S3Uri, Error> {
        match (self.prefix, self.raw, self.urls) {
            (true, ..) => S3Uri::parse_prefix,
            (false, true, false) => S3Uri::parse_raw,
            (false, false, false) => S3Uri::parse,
            (false, true, true) => S3Uri::parse_raw_or_url,
            (false, false, true) => S3Uri::parse_or_url,
        }
    }

    /// True if a list gives sources.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.files_from.is_some() || self.manifest.is_some()
    }
}

pub(in crate::cli) fn parse_manifest(text: &str) -> Result<ManifestPlace, String> {
    if !text.starts_with("s3://") {
        return Ok(ManifestPlace::File(PathBuf::from(text)));
    }
    let uri = S3Uri::parse_raw(text).map_err(|error| error.to_string())?;
    match uri.key {
        KeyPattern::Key(key) => Ok(ManifestPlace::S3(uri.bucket, key)),
        _ => Err("expected a file or s3://BUCKET/KEY".to_owned()),
    }
}

impl Args for SelectionArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let filter = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("GLOB")
                .action(ArgAction::Append)
                .help_heading("Selection")
                .help(help)
        };
        let command = command
            .arg(filter(
                INCLUDE,
                "take what matches; of all filters the last one typed that matches decides, and \
                 when the first is an --include everything else is left out",
            ))
            .arg(filter(
                EXCLUDE,
                "leave out what matches, a folder with all below it; repeatable, as --include is",
            ))
            .arg(
                Arg::new(RAW)
                    .long(RAW)
                    .action(ArgAction::SetTrue)
                    .help_heading("Selection")
                    .help("take sources as they are written: no character is a wildcard"),
            )
            .arg(
                Arg::new(PREFIX)
                    .long(PREFIX)
                    .action(ArgAction::SetTrue)
                    .help_heading("Selection")
                    .help(
                        "take every key that begins with the source, as S3Prefix of SageMaker \
                         does: s3://BUCKET/train takes train2/a, too; no character is a wildcard",
                    ),
            )
            .arg(
                Arg::new(FILES_FROM)
                    .long("files-from")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .value_hint(ValueHint::FilePath)
                    .conflicts_with("version_id")
                    .help_heading("Selection")
                    .help(
                        "read sources from this file, one per line, besides those given: addresses \
                         or lines of ls --json; '-' is standard input; empty lines and lines that \
                         start with # are skipped",
                    ),
            );
        with_manifest(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// The options of lists of objects.
fn with_manifest(command: clap::Command) -> clap::Command {
    command
        .arg(
            Arg::new(MANIFEST)
                .long(MANIFEST)
                .value_name("FILE")
                .value_parser(parse_manifest)
                .value_hint(ValueHint::FilePath)
                .conflicts_with_all(["version_id", FILES_FROM, PREFIX])
                .help_heading("Selection")
                .help(
                    "take the objects that this file or s3://BUCKET/KEY lists, as ManifestFile \
                     of SageMaker does; there are no other sources",
                ),
        )
        .arg(
            Arg::new(LAYOUT)
                .long("manifest-layout")
                .value_name("LAYOUT")
                .value_parser(layouts())
                .default_value("relative")
                .requires(MANIFEST)
                .help_heading("Selection")
                .help("path of an object of a manifest below the destination"),
        )
}

pub(in crate::cli) fn layouts() -> impl TypedValueParser<Value = Layout> {
    let relative = PossibleValue::new("relative").help("what follows the prefix of the manifest");
    let full = PossibleValue::new("full").help("the whole key");
    PossibleValuesParser::new([relative, full]).map(|name| match name.as_str() {
        "full" => Layout::Full,
        _ => Layout::Relative,
    })
}

impl FromArgMatches for SelectionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for (name, rule) in
            [(INCLUDE, Rule::Include as fn(String) -> Rule), (EXCLUDE, Rule::Exclude)]
        {
            let places = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<String>(name).into_iter().flatten();
            rules.extend(places.zip(patterns.cloned().map(rule)));
        }
        rules.sort_by_key(|(place, _)| *place);
        Ok(Self {
            rules: rules.into_iter().map(|(_, rule)| rule).collect(),
            raw: matches.get_flag(RAW),
            prefix: matches.get_flag(PREFIX),
            files_from: matches.get_one::<PathBuf>(FILES_FROM).cloned(),
            manifest: matches.get_one::<ManifestPlace>(MANIFEST).cloned(),
            manifest_layout: matches.get_one::<Layout>(LAYOUT).copied().unwrap_or_default(),
            urls: false,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
