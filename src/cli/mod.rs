//! `Args`: the parsed command line, checked as far as possible without the environment.
//!
//! It reads no environment, file or clock, so help and usage errors do not depend on the machine.
//! [`crate::engine::config`] adds the environment and computes the defaults.
//!
//! `help.rs` has the texts around the options; `man.rs` makes a page of both.

mod bench;
mod demo;
mod doctor;
mod elsewhere;
mod get;
mod help;
mod ls;
mod mount;
mod operands;
mod options;
mod pipe;
mod train;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::guide::{self, Topic};
use crate::plan::epoch::Shard;
use crate::s3::uri::S3Uri;
use crate::s3::web::{is_url, without_query};
use crate::text::shown::shown;
use bench::BenchTyped;
use doctor::DoctorTyped;
use get::{GetTyped, LoadTyped, SyncTyped};
use ls::LsTyped;
use mount::MountTyped;
use pipe::{CatTyped, PipeTyped};
use train::TrainTyped;
use verify::VerifyTyped;

pub use bench::{BenchArgs, Stage, Sweep, Workload};
pub use demo::DemoArgs;
pub use doctor::DoctorArgs;
pub use help::completion::{CompleteArgs, completions};
pub use help::man::man;
pub use ls::LsArgs;
pub use mount::{FuseName, MountArgs, PageCacheName, UnmountArgs};
pub use options::cache::CacheArgs;
pub use options::metrics::MetricsArgs;
pub use options::selection::{ManifestPlace, SelectionArgs};
pub use options::{
    AccessGrantsMode, AddressingStyle, Compare, Durability, FailureArgs, KeepArgs, LogFormat,
    MessageArgs, OnChange, OutputArgs, Overwrite, RingName, ServiceArgs, TuningArgs, VerifyMode,
};
pub use pipe::{AugmentedArgs, CatArgs, Channel, OnFailure, PipeArgs, RecordWrapper, StreamArgs};
pub use train::{JobSource, TrainArgs};
pub use verify::VerifyArgs;

/// The parsed command line.
#[derive(Debug, Clone)]
pub enum Args {
    /// `inrush get`, `inrush sync` and `inrush load`
    Get(Box<GetArgs>),
    /// `inrush verify`
    Verify(Box<VerifyArgs>),
    /// `inrush ls`
    Ls(Box<LsArgs>),
    /// `inrush pipe`
    Pipe(Box<PipeArgs>),
    /// `inrush cat`
    Cat(Box<CatArgs>),
    /// `inrush train`
    Train(Box<TrainArgs>),
    /// `inrush mount`
    Mount(Box<MountArgs>),
    /// `inrush unmount`
    Unmount(UnmountArgs),
    /// `inrush doctor`
    Doctor(Box<DoctorArgs>),
    /// `inrush demo`
    Demo(Box<DemoArgs>),
    /// `inrush bench`
    Bench(Box<BenchArgs>),
    /// `inrush guide`: this page; without one the list of topics.
    Guide(Option<&'static Topic>),
    /// `inrush completions`: for this shell.
    Completions(Shell),
    /// `inrush complete`: for the scripts of `inrush completions`.
    Complete(Box<CompleteArgs>),
    /// `inrush man`
    Man,
}

/// The destination of `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// This file or folder.
    Local(PathBuf),
    /// None: data is verified and dropped.
    Discard,
}

/// The command, of those that download files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetVerb {
    /// `get`
    Get,
    /// `load`: the files of a model that a loader reads.
    Load,
    /// `sync`
    Sync {
        /// Remove files that are not in the source.
        delete: bool,
    },
}

impl GetVerb {
    /// The name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Load => "load",
            Self::Sync { .. } => "sync",
        }
    }
}

/// Arguments of `get`, `sync` or `load`.
#[derive(Debug, Clone)]
pub struct GetArgs {
    /// The command.
    pub verb: GetVerb,
    /// The part of the objects.
    pub shard: Shard,
    /// Sources to download; empty only if a file lists them.
    pub sources: Vec<S3Uri>,
    /// The destination.
    pub destination: Destination,
    /// Further destinations; objects are divided among all of them.
    pub spread_to: Vec<PathBuf>,
    /// List the downloads without doing them.
    pub dry_run: bool,
    /// Strictness of verification.
    pub verify: VerifyMode,
    /// The file for a report of every object.
    pub report: Option<PathBuf>,
    /// Add the run's costs to the summary.
    pub stats: bool,
    /// Add the limiting part to the summary.
    pub explain: bool,
    /// Handling of existing files.
    pub keep: KeepArgs,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
    /// Resources of the run.
    pub tuning: TuningArgs,
    /// Handling of failures.
    pub failures: FailureArgs,
    /// Output options.
    pub output: OutputArgs,
    /// Metrics while it runs.
    pub metrics: MetricsArgs,
}

/// Parses a command line; its first word is the program's name.
///
/// # Errors
/// A usage error, or the text of `--help` or `--version`: [`crate::report::out::leave`] prints
/// either to its stream and knows the exit code.
pub fn parse<I, T>(words: I) -> Result<Args, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    // Refusals by our own code use clap's colours, too.
    parse_words(words.into_iter().map(Into::into).collect())
        .map_err(|refusal| refusal.with_cmd(&Typed::command()))
}

/// What a refusal of [`parse`] says, in one line.
#[must_use]
pub fn refusal_in_words(refusal: &clap::Error) -> String {
    let text = refusal.render().to_string();
    // After an empty line come the usage and a hint.
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.trim_start_matches("error: ").split_whitespace();
    what.collect::<Vec<_>>().join(" ")
}

fn parse_words(words: Vec<OsString>) -> Result<Args, clap::Error> {
    // Not a command for users: it is in no help and no completion script.
    if words.get(1).is_some_and(|word| word == "complete") {
        let typed = words.into_iter().skip(2).skip_while(|word| word == "--");
        return Ok(Args::Complete(Box::new(CompleteArgs::new(typed.collect()))));
    }
    let words = familiar(words)?;
    let matches = command().try_get_matches_from(&words);
    let matches = matches.map_err(|refusal| elsewhere::named(refusal, &words))?;
    match Typed::from_arg_matches(&matches)?.command {
        TypedCommand::Get(typed) => typed.settle().map(Box::new).map(Args::Get),
        TypedCommand::Sync(typed) => typed.settle().map(Box::new).map(Args::Get),
        TypedCommand::Load(typed) => typed.settle().map(Box::new).map(Args::Get),
        TypedCommand::Verify(typed) => typed.settle().map(Box::new).map(Args::Verify),
        TypedCommand::Ls(typed) => typed.settle().map(Box::new).map(Args::Ls),
        TypedCommand::Pipe(typed) => typed.settle().map(Box::new).map(Args::Pipe),
        TypedCommand::Cat(typed) => typed.settle().map(Box::new).map(Args::Cat),
        TypedCommand::Train(typed) => typed.settle().map(Box::new).map(Args::Train),
        TypedCommand::Mount(typed) => typed.settle().map(Box::new).map(Args::Mount),
        TypedCommand::Unmount(args) => Ok(Args::Unmount(args)),
        TypedCommand::Doctor(typed) => typed.settle().map(Box::new).map(Args::Doctor),
        TypedCommand::Demo(args) => Ok(Args::Demo(Box::new(args))),
        TypedCommand::Bench(typed) => typed.settle().map(Box::new).map(Args::Bench),
        TypedCommand::Guide { topic } => Ok(Args::Guide(topic)),
        TypedCommand::Completions { shell } => Ok(Args::Completions(shell)),
        TypedCommand::Man => Ok(Args::Man),
    }
}

/// Normalizes the words: `help get` becomes `get --help`. Commands of other programs are refused
/// with advice.
fn familiar(mut words: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    // Called by mount(8) for the types `inrush` and `fuse.inrush`.
    let called = words.first().map(PathBuf::from);
    let called = called.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    if matches!(called, Some("mount.inrush" | "mount.fuse.inrush")) {
        words = mount::fstab::of_helper(words)?;
    }
    if words.get(1).is_some_and(|word| word == "mount") {
        words = mount::fstab::without_lists(words)?;
    }
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some(url) if is_url(url) => {
            let message =
                format!("the command is missing: inrush get {} DEST\n", shown(&without_query(url)));
            return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, message));
        }
        Some(other) => {
            if let Some(instead) = elsewhere::guess::of_command(other) {
                let message = format!("unrecognized subcommand '{other}': {instead}\n");
                return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, message));
            }
        }
        None => {}
    }
    // The AWS CLI's syntax, with a space.
    let payer =
        words.windows(2).position(|pair| pair[0] == "--request-payer" && pair[1] == "requester");
    if let Some(at) = payer {
        words.remove(at + 1);
    }
    Ok(words)
}

/// The table of commands and options, with the help around it.
#[must_use]
pub fn command() -> clap::Command {
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    let mut command = with_help(Typed::command(), help::after_all())
        .disable_version_flag(true)
        .arg(version.help("print the version"));
    for about in &help::COMMANDS {
        command = command.mut_subcommand(about.name, |child| {
            let child = match help::template(about) {
                Some(template) => child.help_template(template),
                None => child,
            };
            let child =
                with_help(child, help::after(about)).mut_args(help::completion::without_files);
            match about.name {
                // It is accepted to explain the refusal: channels have many objects.
                "train" => child.mut_arg("version_id", |arg| arg.hide(true)),
                "mount" => child.mut_arg("part_size", |arg| arg.hide(true)),
                // A model is one folder.
                "load" => ["files_from", "manifest", "manifest_layout"]
                    .into_iter()
                    .fold(child, |child, list| child.mut_arg(list, |arg| arg.hide(true))),
                _ => child,
            }
        });
    }
    command
}

fn with_help(command: clap::Command, after: String) -> clap::Command {
    let flag = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    // Otherwise it would get the last group's heading.
    let flag = flag.help_heading(None::<&'static str>);
    command
        .disable_help_flag(true)
        .arg(flag.help("print help with examples (--help) or the options alone (-h)"))
        .after_long_help(after)
}

#[derive(Debug, Parser)]
#[command(
    name = help::NAME,
    version,
    about = help::ABOUT,
    long_about = help::LONG_ABOUT,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Typed {
    #[command(subcommand)]
    command: TypedCommand,
}

#[derive(Debug, Subcommand)]
enum TypedCommand {
    /// download objects
    #[command(override_usage = help::GET_USAGE)]
    Get(GetTyped),
    /// download new and changed objects
    #[command(override_usage = help::SYNC_USAGE)]
    Sync(SyncTyped),
    /// download the files of a model that a loader of safetensors reads
    #[command(override_usage = help::LOAD_USAGE)]
    Load(LoadTyped),
    /// verify local files against the bucket
    #[command(override_usage = help::VERIFY_USAGE)]
    Verify(VerifyTyped),
    /// list objects
    Ls(LsTyped),
    /// stream objects into named pipes
    #[command(override_usage = help::PIPE_USAGE)]
    Pipe(PipeTyped),
    /// write objects to standard output
    #[command(override_usage = help::CAT_USAGE)]
    Cat(CatTyped),
    /// prepare the input of a job as SageMaker does, and run the job's command
    #[command(override_usage = help::TRAIN_USAGE)]
    Train(TrainTyped),
    /// mount objects as a read-only file system
    #[command(override_usage = mount::USAGE)]
    Mount(MountTyped),
    /// unmount what mount has mounted, also after it was killed
    Unmount(UnmountArgs),
    /// check this machine, the destination and the service, and say how to mend faults
    #[command(override_usage = help::DOCTOR_USAGE)]
    Doctor(DoctorTyped),
    /// download from a local test server and report the speed of this machine
    Demo(DemoArgs),
    /// measure network, disk, pipe, TLS and checksums, and say which is the limit
    #[command(override_usage = bench::USAGE)]
    Bench(BenchTyped),
    /// print a page of the user guide, or the list of its topics
    Guide {
        /// the page to print
        #[arg(value_name = "TOPIC", value_parser = topics(), ignore_case = true)]
        topic: Option<&'static Topic>,
    },
    /// print a completion script to standard output
    Completions {
        /// the shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// print the manual page to standard output
    Man,
}

/// The names of the guide's pages, case-insensitive; clap suggests similar ones.
fn topics() -> impl TypedValueParser<Value = &'static Topic> {
    let topics = guide::TOPICS.iter();
    let names = topics.map(|topic| {
        let name = PossibleValue::new(topic.name).help(topic.summary);
        name.aliases(guide::aliases(topic.name))
    });
    PossibleValuesParser::new(names)
        .map(|name| guide::topic(&name.to_ascii_lowercase()).expect("one of the names"))
}

/// A usage error of one line.
fn usage(message: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
}

#[cfg(test)]
mod tests;
