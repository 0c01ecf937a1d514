//! The background process of a mount: this program started again with the same words, which reports
//! when it serves. A fork would not have this process's threads.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::stdio;

use crate::command::context::Context;
use crate::command::ending::Done;
use crate::control::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LAST_WORDS_TIME;
use crate::report::stderr;
use crate::sys::{orphans, process};

/// The child's message that it serves.
const READY: &[u8] = b"ready\n";

/// Starts the child and waits until it serves, or exits: then its exit code is ours, and it has
/// printed the cause.
pub(super) async fn start(context: &Arc<Context>) -> Result<Done> {
    let context = Arc::clone(context);
    blocking(move || {
        let trouble = |error: std::io::Error| {
            Error::new(
                ErrorKind::Host,
                format!("cannot start a process in the background: {error}"),
            )
            .advise("use --foreground")
            .caused_by(error)
        };
        let mut words = std::env::args_os();
        let called = words.next().unwrap_or_default();
        let (mut command, words) = match &context.hosted {
            None => {
                let program = std::env::current_exe().map_err(trouble)?;
                (Command::new(program), words.collect::<Vec<_>>())
            }
            Some(hosted) => {
                let mut command = Command::new(hosted.program.first().unwrap_or(&called));
                command.args(hosted.program.iter().skip(1));
                (command, hosted.words.iter().skip(1).cloned().collect())
            }
        };
        // mount(8) calls the program by another name, without a command: the child gets that name,
        // too.
        if Path::new(&called)
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."))
        {
            command.arg0(&called).arg("--background-child").args(words);
        } else {
            let mut words = words.into_iter();
            command.args(words.next()).arg("--background-child").args(words);
        }
        let (mut reader, writer) = std::io::pipe().map_err(trouble)?;
        process::as_started(command.stdout(Stdio::from(writer)));
        let _awaited = orphans::awaits_child();
        let mut child = command.spawn().map_err(trouble)?;
        // It holds the other end of the pipe.
        drop(command);
        let mut said = [0; READY.len()];
        if std::io::Read::read_exact(&mut reader, &mut said).is_ok() && said == READY {
            return Ok(Done::default());
        }
        let status = child.wait().map_err(trouble)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        match code {
            Some(code) if code != 0 => Ok(Done { code, document: None }),
            _ => Err(Error::new(
                ErrorKind::Host,
                format!("the process in the background ended before it served: {status}"),
            )),
        }
    })
    .await
}

/// Opens the file for messages in the background, if given.
pub(super) fn open_log(path: Option<&Path>) -> Result<Option<OwnedFd>> {
    let append = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    path.map(|path| open(path, append)).transpose()
}

/// Reports readiness to the parent, and detaches from the terminal.
pub(super) fn say_ready(log: Option<&OwnedFd>) -> Result<()> {
    let trouble = |what: String, error: std::io::Error| {
        Error::new(ErrorKind::Host, format!("{what}: {error}"))
            .advise("use --foreground")
            .caused_by(error)
    };
    let nothing = open(Path::new("/dev/null"), OFlags::RDWR)?;
    // Its last messages before are for the standard error that it was started with.
    stderr::flush(LAST_WORDS_TIME);
    // The parent has exited: the mount is not wanted any more.
    let written = std::io::Write::write_all(&mut std::io::stdout(), READY)
        .and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    written.map_err(|error| {
        Error::new(ErrorKind::Interrupted, format!("whoever started it has ended: {error}"))
            .caused_by(error)
    })?;
    // A process that leads its group already, like one started by a shell, cannot; then it stays.
    let _ = rustix::process::setsid();
    let errors = log.unwrap_or(&nothing);
    let redirected = stdio::dup2_stdin(nothing.as_fd())
        .and_then(|()| stdio::dup2_stdout(nothing.as_fd()))
        .and_then(|()| stdio::dup2_stderr(errors.as_fd()));
    redirected.map_err(|errno| trouble("cannot leave the terminal".to_owned(), errno.into()))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::open(path, flags | OFlags::CLOEXEC, mode).map_err(|errno| {
        Error::new(ErrorKind::Destination, format!("cannot open {}: {errno}", path.display()))
            .advise("give --log-file a writable file, or use --foreground")
            .of_call(Some(errno.raw_os_error()))
    })
}
