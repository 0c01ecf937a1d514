//! The commands: each runs from arguments to exit code, using the other modules.

mod bench;
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
mod sources;
pub mod stream;
mod train;
mod verify;
mod whole_file;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use self::runtime::on_runtime;
pub use ending::refuse;
use ending::{Done, OutputReader};
use exporter::Exporter;

use crate::cli::{self, Args, LogFormat};
use crate::error::Result;
use crate::guide;
use crate::report::out;
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
    let ended = thread::scope(|scope| {
        let named = thread::Builder::new().name("inrush-command".to_owned());
        match named.stack_size(STACK_BYTES).spawn_scoped(scope, || on_this_thread(words, begun)) {
            Ok(command) => command.join(),
            // No thread can be started, which a command that needs one reports.
            Err(_) => Ok(on_this_thread(words, begun)),
        }
    });
    stderr::finish();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

fn on_this_thread(words: &[OsString], begun: Instant) -> u8 {
    process::unblock_signals();
    match cli::parse(words.iter()) {
        Ok(args) => run(args, begun),
        // Help and version, or a usage error.
        Err(refusal) => refuse(&refusal, words),
    }
}

/// The program within another: an interpreter that has it as a module.
#[derive(Debug)]
struct Hosted {
    /// The program and arguments that start it, to which its words are appended.
    program: Vec<OsString>,
    /// Its current words.
    words: Vec<OsString>,
}

static HOSTED: OnceLock<Hosted> = OnceLock::new();

fn hosted() -> Option<&'static Hosted> {
    HOSTED.get()
}

/// Like [`main`], in the process of another program. `program` starts it: for commands that start
/// themselves in the background.
#[must_use]
pub fn main_within(program: Vec<OsString>, words: Vec<OsString>, begun: Instant) -> u8 {
    let hosted = HOSTED.get_or_init(|| Hosted { program, words });
    main(&hosted.words, begun)
}

/// Runs the arguments; returns the exit code. `begun`: the process's start.
#[must_use]
pub fn run(args: Args, begun: Instant) -> u8 {
    crate::sys::threads::hide_refusals();
    let messages = args.messages();
    if messages.log_format == LogFormat::Json {
        crate::report::progress::use_json_lines();
    }
    crate::report::log::start(messages.verbose);
    if messages.no_progress {
        crate::report::progress::draw_no_bar();
    }
    let reader = OutputReader::of(&args);
    interrupts::set_reader(reader);
    if let Err(error) = ending::require_stdout(&args, reader) {
        return OutputReader::Nobody.end(Err(error));
    }
    if let Err(error) = own_files::require_distinct(&args) {
        return reader.end(Err(error));
    }
    own_files::make_folder_of_metrics(&args);
    let exporter = args.metrics().map(|wanted| Exporter::start(wanted, messages.quiet));
    let exporter = match exporter.transpose() {
        Ok(exporter) => exporter.flatten(),
        Err(error) => return reader.end(Err(error)),
    };
    let done = match args {
        Args::Get(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.tuning.ring);
            let ended = start(ring, || get::run(*args, credentials, begun));
            ended.map(|ended| Done { code: ended.code, document: ended.document })
        }
        Args::Verify(args) => start(ring::of_control_plane(None), || verify::run(*args, begun)),
        Args::Ls(args) => nothing_more(start(ring::of_control_plane(None), || ls::run(*args))),
        Args::Pipe(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.stream.ring);
            start(ring, || stream::pipe(*args, credentials, begun))
        }
        Args::Cat(args) => {
            let ring = ring::of_control_plane(args.stream.ring);
            start(ring, || stream::cat(*args, begun))
        }
        Args::Train(args) => {
            let credentials = session::credentials(&args.service);
            let ring = ring::of_control_plane(args.tuning.ring);
            start(ring, || train::run(*args, credentials, begun))
        }
        Args::Mount(args) => {
            let ring = ring::of_control_plane(args.tuning.ring);
            start(ring, || mount::run(*args, begun))
        }
        Args::Unmount(args) => mount::unmount(&args),
        Args::Doctor(args) => start(RingChoice::Epoll, || doctor::run(*args)),
        Args::Demo(args) => demo::run(&args),
        Args::Bench(args) => bench::run(*args),
        Args::Guide(topic) => {
            let text = topic.map_or_else(guide::list, |topic| topic.text.to_owned());
            nothing_more(out::print(text.as_bytes()))
        }
        Args::Completions(shell) => nothing_more(out::print(&crate::cli::completions(shell))),
        Args::Complete(args) => nothing_more(ls::complete::run(*args)),
        Args::Man => nothing_more(out::print(&crate::cli::man())),
    };
    if let Some(exporter) = exporter {
        exporter.end(match &done {
            Ok(done) => done.code,
            Err(error) => ending::exit_code(Some(error)),
        });
    }
    reader.end(done)
}

/// The end of a command that has reported everything.
fn nothing_more(ended: Result<()>) -> Result<Done> {
    ended.map(|()| Done::default())
}

/// Runs a command on the control plane's runtime.
fn start<T, F>(ring: RingChoice, command: impl FnOnce() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    on_runtime(ring, command)?
}
