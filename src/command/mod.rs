//! The commands: each runs from arguments to exit code, using the other modules.

mod bench;
pub mod context;
mod demo;
mod doctor;
mod ending;
mod exporter;
mod failures;
mod get;
pub mod interrupts;
pub mod log;
mod ls;
mod model;
mod mount;
mod output;
mod own_files;
mod ready;
mod reporting;
mod ring;
mod runtime;
mod session;
pub mod stream;
mod train;
mod verify;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use self::runtime::on_runtime;
use context::Context;
pub use ending::refuse;
use ending::{Done, OutputReader};
use exporter::Exporter;

use crate::cli::{self, Args, LogFormat};
use crate::error::Result;
use crate::guide;
use crate::report::out;
use crate::report::progress::Messages;
use crate::report::stderr;
use crate::sys::choice::RingChoice;
use crate::sys::process;

/// Stack of the thread that runs a command: what Linux gives a main thread by default.
const STACK_BYTES: usize = 8 << 20;

/// The program: parses these words, of which the first is its name, and runs them; returns the exit
/// code. It takes over the process: signals, limits and standard streams.
///
/// Its thread has a stack of its own: that of the caller is as small as the user's limit allows
/// (`ulimit -s`), and an overflow ends the process without a message of ours.
#[must_use]
pub fn main(words: &[OsString], begun: Instant) -> u8 {
    within(None, words, begun)
}

fn within(hosted: Option<&Hosted>, words: &[OsString], begun: Instant) -> u8 {
    let ended = thread::scope(|scope| {
        let named = thread::Builder::new().name("inrush-command".to_owned());
        match named
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || on_this_thread(hosted, words, begun))
        {
            Ok(command) => command.join(),
            // No thread can be started, which a command that needs one reports.
            Err(_) => Ok(on_this_thread(hosted, words, begun)),
        }
    });
    stderr::finish();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

fn on_this_thread(hosted: Option<&Hosted>, words: &[OsString], begun: Instant) -> u8 {
    process::unblock_signals();
    match cli::parse(words.iter()) {
        Ok(args) => run(args, hosted, begun),
        // Help and version, or a usage error.
        Err(refusal) => refuse(&refusal, words),
    }
}

/// The program within another: an interpreter that has it as a module.
#[derive(Debug, Clone)]
struct Hosted {
    /// The program and arguments that start it, to which its words are appended.
    program: Vec<OsString>,
    /// Its current words.
    words: Vec<OsString>,
}

/// Like [`main`], in the process of another program. `program` starts it: for commands that start
/// themselves in the background.
#[must_use]
pub fn main_within(program: Vec<OsString>, words: Vec<OsString>, begun: Instant) -> u8 {
    let hosted = Hosted { program, words };
    within(Some(&hosted), &hosted.words, begun)
}

/// Runs the arguments; returns the exit code. `begun`: the process's start.
fn run(args: Args, hosted: Option<&Hosted>, begun: Instant) -> u8 {
    crate::sys::threads::hide_refusals();
    let typed = args.messages();
    let mut messages = Messages::new(!typed.no_progress, typed.verbose > 0);
    if typed.log_format == LogFormat::Json {
        messages.use_json_lines();
    }
    crate::report::log::start(typed.verbose, &messages);
    let reader = OutputReader::of(&args);
    if let Err(error) = ending::require_stdout(&args, reader) {
        let context = Context::new(messages, OutputReader::Nobody, None);
        return ending::end(&context, Err(error));
    }
    let context = Arc::new(Context::new(messages, reader, hosted.cloned()));
    let done = run_exported(args, begun, &context);
    ending::end(&context, done)
}

/// Runs the arguments, and exports its numbers meanwhile.
fn run_exported(args: Args, begun: Instant, context: &Arc<Context>) -> Result<Done> {
    own_files::require_distinct(&args)?;
    own_files::make_folder_of_metrics(&args);
    let is_quiet = args.messages().quiet;
    let exporter = args.metrics().map(|wanted| Exporter::start(wanted, is_quiet, context));
    let exporter = exporter.transpose()?.flatten();
    let done = run_alone(args, begun, context);
    if let Some(exporter) = exporter {
        exporter.end(match &done {
            Ok(done) => done.code,
            Err(error) => ending::exit_code(Some(error)),
        });
    }
    done
}

fn run_alone(args: Args, begun: Instant, context: &Arc<Context>) -> Result<Done> {
    match args {
        Args::Get(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.tuning.ring);
            let ended = start(ring, context, || get::run(*args, credentials, begun, context));
            ended.map(|ended| Done { code: ended.code, document: ended.document })
        }
        Args::Verify(args) => {
            start(ring::of_control_plane(None), context, || verify::run(*args, begun, context))
        }
        Args::Ls(args) => {
            let ring = ring::of_control_plane(None);
            nothing_more(start(ring, context, || ls::run(*args, context)))
        }
        Args::Pipe(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.stream.ring);
            start(ring, context, || stream::pipe(*args, credentials, begun, context))
        }
        Args::Cat(args) => {
            let ring = ring::of_control_plane(args.stream.ring);
            start(ring, context, || stream::cat(*args, begun, context))
        }
        Args::Train(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.tuning.ring);
            start(ring, context, || train::run(*args, credentials, begun, context))
        }
        Args::Mount(args) => {
            let ring = ring::of_control_plane(args.tuning.ring);
            start(ring, context, || mount::run(*args, begun, context))
        }
        Args::Unmount(args) => mount::unmount(&args),
        Args::Doctor(args) => start(RingChoice::Epoll, context, || doctor::run(*args, context)),
        Args::Demo(args) => demo::run(&args, context),
        Args::Bench(args) => bench::run(*args, context),
        Args::Guide(topic) => {
            let text = topic.map_or_else(guide::list, |topic| topic.text.to_owned());
            nothing_more(out::print(text.as_bytes()))
        }
        Args::Completions(shell) => nothing_more(out::print(&crate::cli::completions(shell))),
        Args::Complete(args) => nothing_more(ls::complete::run(*args, context)),
        Args::Man => nothing_more(out::print(&crate::cli::man())),
    }
}

/// The end of a command that has reported everything.
fn nothing_more(ended: Result<()>) -> Result<Done> {
    ended.map(|()| Done::default())
}

/// Runs a command on the control plane's runtime.
fn start<T, F>(ring: RingChoice, context: &Context, command: impl FnOnce() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    on_runtime(ring, context, command)?
}
