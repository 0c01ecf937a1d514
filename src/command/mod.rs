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
mod session;
mod space;
mod stream;
mod supply;
mod target;
mod verify;

use std::time::Instant;

use crate::cli::Args;
use crate::error::{Error, ErrorKind, Result};
use crate::report::out;
use crate::report::progress::Progress;
use crate::sys::uring::Uring;

/// Runs what was typed; returns the exit code. `begun` is when the process began.
#[must_use]
pub fn run(args: Args, begun: Instant) -> u8 {
    let outcome = match args {
        Args::Get(args) => {
            let credentials = session::credentials(&args.service);
            let ended = on_runtime(|| get::run(*args, credentials, begun)).and_then(|ended| ended);
            ended.map(|ended| ended.code)
        }
        Args::Verify(args) => on_runtime(|| verify::run(*args, begun)).and_then(|code| code),
        Args::Ls(args) => on_runtime(|| ls::run(*args)).and_then(|done| done.map(|()| 0)),
        Args::Pipe(args) => {
            let credentials = session::credentials(&args.service);
            on_runtime(|| stream::pipe(*args, credentials, begun)).and_then(|code| code)
        }
        Args::Cat(args) => on_runtime(|| stream::cat(*args, begun)).and_then(|code| code),
        Args::Demo(args) => demo::run(&args),
        Args::Completions(shell) => out::print(&crate::cli::completions(shell)).map(|()| 0),
        Args::Man => out::print(&crate::cli::man()).map(|()| 0),
    };
    outcome.unwrap_or_else(|error| {
        Progress::new(false).error(&error);
        error.kind().exit_code()
    })
}

/// Says what is missing where there is no io_uring: a runtime that finds out itself panics.
fn require_io_uring() -> Result<()> {
    let probe = Uring::new(2);
    probe
        .map(drop)
        .map_err(|error| Error::new(ErrorKind::Host, error.reason()).advise(error.advice()))
}

/// Runs the control plane on a tokio-uring runtime.
fn on_runtime<F: Future>(future: impl FnOnce() -> F) -> Result<F::Output> {
    require_io_uring()?;
    let runtime = tokio_uring::Runtime::new(&tokio_uring::builder()).map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot start the control plane: {error}"))
            .advise("raise the limits of open files (ulimit -n) and locked memory (ulimit -l)")
    })?;
    let output = runtime.block_on(future());
    // Dropping it would wait for a name lookup under way, which nothing can cut short; the process
    // ends next.
    std::mem::forget(runtime);
    Ok(output)
}
