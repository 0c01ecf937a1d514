//! `--include` and `--exclude`: filters in the order typed, which clap's derive does not keep.

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};

use crate::plan::filter::Rule;

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const RAW: &str = "raw";

/// Which objects of the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionArgs {
    /// The filters, in the order typed.
    pub rules: Vec<Rule>,
    /// No character of a source is a wildcard.
    pub raw: bool,
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
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
