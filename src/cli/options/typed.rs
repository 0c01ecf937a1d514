//! Options common to all commands, or to all that transfer data.

use crate::cli::{Args, MessageArgs, MetricsArgs};

impl Args {
    /// Output on standard error, and its format.
    #[must_use]
    pub fn messages(&self) -> MessageArgs {
        match self {
            Self::Get(args) => args.output.messages,
            Self::Verify(args) => args.output.messages,
            Self::Ls(args) => args.messages,
            Self::Pipe(args) => args.stream.messages,
            Self::Cat(args) => args.stream.messages,
            Self::Train(args) => args.output.messages,
            Self::Mount(args) => args.messages,
            Self::Doctor(args) => args.output.messages,
            Self::Bench(args) => {
                let (quiet, verbose) = (args.how.quiet, args.how.verbose);
                MessageArgs { quiet, no_progress: quiet, verbose, ..MessageArgs::default() }
            }
            Self::Demo(args) => args.output.messages,
            Self::Unmount(_)
            | Self::Guide(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man => MessageArgs::default(),
        }
    }

    /// The metrics options, and the command's name; `None` if no object is transferred.
    #[must_use]
    pub fn metrics(&self) -> Option<(&'static str, &MetricsArgs)> {
        match self {
            Self::Get(args) if args.dry_run => None,
            Self::Get(args) => Some((args.verb.name(), &args.metrics)),
            Self::Pipe(args) => Some(("pipe", &args.stream.metrics)),
            Self::Cat(args) => Some(("cat", &args.stream.metrics)),
            Self::Train(args) if !args.check => Some(("train", &args.metrics)),
            // Of the two processes of a mount in the background, the one that stays.
            Self::Mount(args) if !args.check && (args.foreground || args.child) => {
                Some(("mount", &args.metrics))
            }
            _ => None,
        }
    }
}
