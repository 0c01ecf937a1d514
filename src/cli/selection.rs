//! `--include` and `--exclude`: filters in the order typed, which clap's derive does not keep; and
//! what else there is to say of sources.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, ValueHint, value_parser};

use crate::plan::filter::Rule;

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const RAW: &str = "raw";
const FILES_FROM: &str = "files_from";

/// Which objects of the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionArgs {
    /// The filters, in the order typed.
    pub rules: Vec<Rule>,
    /// No character of a source is a wildcard.
    pub raw: bool,
    /// Further sources, one a line of this file; `-` is standard input.
    pub files_from: Option<PathBuf>,
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
        command
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
                Arg::new(FILES_FROM)
                    .long("files-from")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .value_hint(ValueHint::FilePath)
                    .conflicts_with("version_id")
                    .help_heading("Selection")
                    .help(
                        "read sources from this file, one per line, besides those given; '-' is \
                         standard input; empty lines and lines that start with # are skipped",
                    ),
            )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
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
            files_from: matches.get_one::<PathBuf>(FILES_FROM).cloned(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
