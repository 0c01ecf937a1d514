//! The commands: each tells its story from arguments to exit code with the rooms below it.

mod again;
mod aside;
mod channel;
mod checksums;
mod demo;
mod failures;
mod get;
mod interrupts;
mod kept;
mod ls;
mod mirror;
mod ready;
mod reporting;
mod run;
mod runtime;
mod session;
mod sources;
mod space;
mod stream;
mod stream_report;
mod supply;
mod target;
mod verify;

use std::time::Instant;

use self::runtime::{on_runtime, require_io_uring};
use crate::cli::Args;
use crate::error::Result;
use crate::report::out;
use crate::report::progress::Progress;

/// Runs what was typed; returns the exit code. `begun` is when the process began.
#[must_use]
pub fn run(args: Args, begun: Instant) -> u8 {
    let outcome = match args {
        Args::Get(args) => {
            let credentials = session::credentials(&args.service);
            let ended = start(!args.dry_run, || get::run(*args, credentials, begun));
            ended.map(|ended| ended.code)
        }
        Args::Verify(args) => start(false, || verify::run(*args, begun)),
        Args::Ls(args) => start(false, || ls::run(*args)).map(|()| 0),
        Args::Pipe(args) => {
            let credentials = session::credentials(&args.service);
            start(true, || stream::pipe(*args, credentials, begun))
        }
        Args::Cat(args) => start(true, || stream::cat(*args, begun)),
        Args::Demo(args) => demo::run(&args),
        Args::Completions(shell) => out::print(&crate::cli::completions(shell)).map(|()| 0),
        Args::Man => out::print(&crate::cli::man()).map(|()| 0),
    };
    outcome.unwrap_or_else(|error| {
        Progress::new(false).error(&error);
        error.kind().exit_code()
    })
}

/// Runs a command on the control plane's runtime. One that moves bytes of objects has a data plane,
/// and that needs io_uring.
fn start<T, F: Future<Output = Result<T>>>(
    moves_bytes: bool,
    command: impl FnOnce() -> F,
) -> Result<T> {
    if moves_bytes {
        require_io_uring()?;
    }
    on_runtime(command)?
}
