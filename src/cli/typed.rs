//! What all commands have, or those that move bytes, whichever was typed.

use super::{Args, LogFormat, MetricsArgs};

impl Args {
    /// How much is logged: how often `--verbose` was given.
    #[must_use]
    pub fn verbose(&self) -> u8 {
        match self {
            Self::Get(args) => args.output.verbose,
            Self::Verify(args) => args.output.verbose,
            Self::Ls(args) => args.verbose,
            Self::Pipe(args) => args.stream.verbose,
            Self::Cat(args) => args.stream.verbose,
            Self::Train(args) => args.output.verbose,
            Self::Mount(args) => args.verbose,
            Self::Doctor(args) => args.output.verbose,
            Self::Bench(args) => args.how.verbose,
            Self::Demo(args) => args.output.verbose,
            Self::Unmount(_)
            | Self::Guide(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man => 0,
        }
    }

    /// How lines on standard error are written.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        match self {
            Self::Get(args) => args.output.log_format,
            Self::Verify(args) => args.output.log_format,
            Self::Ls(args) => args.log_format,
            Self::Pipe(args) => args.stream.log_format,
            Self::Cat(args) => args.stream.log_format,
            Self::Train(args) => args.output.log_format,
            Self::Mount(args) => args.log_format,
            Self::Doctor(args) => args.output.log_format,
            Self::Demo(args) => args.output.log_format,
            Self::Bench(_)
            | Self::Unmount(_)
            | Self::Guide(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man => LogFormat::Text,
        }
    }

    /// Which metrics are wanted, and the command's name; `None` where no object is moved.
    #[must_use]
    pub fn metrics(&self) -> Option<(&'static str, &MetricsArgs)> {
        match self {
            Self::Get(args) if args.dry_run => None,
            Self::Get(args) if args.sync.is_some() => Some(("sync", &args.metrics)),
            Self::Get(args) => Some(("get", &args.metrics)),
            Self::Pipe(args) => Some(("pipe", &args.stream.metrics)),
            Self::Cat(args) => Some(("cat", &args.stream.metrics)),
            Self::Train(args) if !args.check => Some(("train", &args.metrics)),
            // Of the two processes of a mount in the background the one that stays.
            Self::Mount(args) if !args.check && (args.foreground || args.child) => {
                Some(("mount", &args.metrics))
            }
            _ => None,
        }
    }

    /// Whether nothing but errors is printed, where metrics may be wanted.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Get(args) => args.output.quiet,
            Self::Pipe(args) => args.stream.quiet,
            Self::Cat(args) => args.stream.quiet,
            Self::Train(args) => args.output.quiet,
            Self::Mount(args) => args.quiet,
            _ => false,
        }
    }

    /// Whether no line of progress is drawn: `--no-progress` was given.
    #[must_use]
    pub fn no_progress(&self) -> bool {
        match self {
            Self::Get(args) => args.output.no_progress,
            Self::Verify(args) => args.output.no_progress,
            Self::Ls(args) => args.no_progress,
            Self::Pipe(args) => args.stream.no_progress,
            Self::Cat(args) => args.stream.no_progress,
            Self::Train(args) => args.output.no_progress,
            Self::Mount(args) => args.no_progress,
            Self::Doctor(args) => args.output.no_progress,
            Self::Bench(args) => args.how.quiet,
            Self::Demo(args) => args.output.no_progress,
            Self::Unmount(_)
            | Self::Guide(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man => false,
        }
    }
}
