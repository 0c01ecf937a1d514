//! The end of a command for users and programs: an error is printed on standard error, and with
//! `--json` exactly one document describes the result, however early it failed. `ls` and
//! `--dry-run` print it as their last line if they fail.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::Context;
use crate::cli::{Args, refusal_in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::report::document::failure_json;
use crate::report::out;
use crate::report::stderr;
use crate::sys::process_state::is_stdout_closed;

/// The result of a command.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The exit code.
    pub(super) code: u8,
    /// The document for programs, if requested.
    pub(super) document: Option<String>,
}

/// The exit code for this result.
pub(super) fn exit_code(error: Option<&Error>) -> u8 {
    error.map_or(0, |error| error.kind().exit_code())
}

/// The destination of the document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OutputReader {
    /// None was requested.
    #[default]
    Nobody,
    Stdout,
    /// Standard output has the stream.
    Stderr,
}

impl OutputReader {
    /// The destination of this command's document.
    pub(super) fn of(args: &Args) -> Self {
        let json = match args {
            Args::Get(args) => args.output.json,
            Args::Verify(args) => args.output.json,
            Args::Ls(args) => args.json,
            Args::Pipe(args) => args.stream.json,
            Args::Cat(args) if args.stream.json => return Self::Stderr,
            // Standard output belongs to the command.
            Args::Train(args) if args.output.json && !args.check && !args.command.is_empty() => {
                return Self::Stderr;
            }
            Args::Train(args) => args.output.json,
            Args::Doctor(args) => args.output.json,
            Args::Demo(args) => args.output.json,
            Args::Bench(args) => args.how.json,
            Args::Cat(_) | Args::Guide(_) => false,
            Args::Mount(args) => args.json,
            Args::Unmount(_) => false,
            Args::Completions(_) | Args::Complete(_) | Args::Man => false,
        };
        if json { Self::Stdout } else { Self::Nobody }
    }

    /// The destination for invalid words: only their text is known.
    fn of_words(words: &[OsString]) -> Self {
        let options = || words.iter().take_while(|word| *word != "--");
        match words.get(1) {
            _ if !options().any(|word| word == "--json") => Self::Nobody,
            Some(command) if command == "cat" || command == "train" => Self::Stderr,
            _ => Self::Stdout,
        }
    }

    fn print(self, document: &str) -> Result<()> {
        match self {
            Self::Nobody => Ok(()),
            Self::Stdout => out::print(format!("{document}\n").as_bytes()),
            Self::Stderr => {
                stderr::line(document);
                Ok(())
            }
        }
    }
}

/// The document of a command, which has only one: a run that is ended by force may end by itself at
/// the same time.
#[derive(Debug, Default)]
pub(super) struct DocumentOutput {
    reader: OutputReader,
    is_printed: AtomicBool,
}

impl DocumentOutput {
    pub(super) fn new(reader: OutputReader) -> Self {
        Self { reader, is_printed: AtomicBool::new(false) }
    }

    /// Prints a document, unless one was printed.
    pub(super) fn print(&self, document: &str) -> Result<()> {
        match self.is_printed.swap(true, Ordering::SeqCst) {
            true => Ok(()),
            false => self.reader.print(document),
        }
    }
}

/// Reports the result of a command; returns the exit code.
pub(super) fn end(context: &Context, outcome: Result<Done>) -> u8 {
    let progress = context.messages.progress(false);
    let (code, document) = match outcome {
        Ok(Done { code, document }) => (code, document),
        Err(error) => {
            progress.error(&error);
            (error.kind().exit_code(), Some(failure_json(&error)))
        }
    };
    match document.map_or(Ok(()), |document| context.document.print(&document)) {
        Err(error) if code == 0 => {
            progress.error(&error);
            error.kind().exit_code()
        }
        // The failure was already printed.
        _ => code,
    }
}

/// Refuses commands that print to a standard output that was closed at the start.
///
/// # Errors
/// [`ErrorKind::Destination`].
pub(super) fn require_stdout(args: &Args, reader: OutputReader) -> Result<()> {
    let prints = match args {
        Args::Get(args) => args.dry_run,
        Args::Train(args) => args.check,
        Args::Mount(args) => args.check,
        Args::Verify(_) | Args::Pipe(_) | Args::Demo(_) | Args::Unmount(_) => false,
        Args::Doctor(args) => !args.output.json,
        Args::Ls(_) | Args::Cat(_) | Args::Guide(_) | Args::Bench(_) => true,
        Args::Completions(_) | Args::Complete(_) | Args::Man => true,
    };
    if (prints || reader == OutputReader::Stdout) && is_stdout_closed() {
        return Err(Error::new(ErrorKind::Destination, "standard output is closed")
            .advise("redirect it to a file, a pipe or /dev/null"));
    }
    Ok(())
}

/// Prints help or a usage error to its stream; returns the exit code.
#[must_use]
pub fn refuse(refusal: &clap::Error, words: &[OsString]) -> u8 {
    let code = out::leave(refusal);
    if code != 0 {
        let error = Error::new(ErrorKind::Usage, refusal_in_words(refusal));
        // As above.
        let _ = OutputReader::of_words(words).print(&failure_json(&error));
    }
    code
}
