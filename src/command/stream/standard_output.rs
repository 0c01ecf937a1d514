//! Standard output as the reader of `cat`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use rustix::fs::FileType;

use crate::engine::stream::place::Place;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::limits::PIPE_BYTES;
use crate::report::progress::Progress;
use crate::sys::Handle;
use crate::sys::descriptor::write_all;

/// Copies a private pipe to an output that is not a pipe.
pub(super) type Pump = JoinHandle<std::io::Result<u64>>;

/// The place for standard output: itself if it is a pipe, else a pipe that a thread copies to it.
pub(super) fn place() -> Result<(Place, Option<Pump>)> {
    let trouble = |what: &str, errno: rustix::io::Errno| {
        Error::new(ErrorKind::Destination, format!("{what}: {errno}"))
            .advise("redirect standard output to a pipe or a file")
            .of_call(Some(errno.raw_os_error()))
    };
    let stdout = rustix::io::dup(std::io::stdout())
        .map_err(|errno| trouble("cannot use standard output", errno))?;
    let found = rustix::fs::fstat(&stdout)
        .map_err(|errno| trouble("cannot inspect standard output", errno))?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Fifo {
        // If the kernel refuses a larger pipe the given one suffices.
        let size = usize::try_from(PIPE_BYTES).unwrap_or(usize::MAX);
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, size);
        return Ok((Place::Output(Handle::from(stdout)), None));
    }
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| trouble("cannot create a pipe", errno))?;
    let thread = std::thread::Builder::new().name("inrush-output".to_owned());
    let pump = thread.spawn(move || pump(&reader, &stdout)).map_err(Error::no_thread)?;
    Ok((Place::Output(Handle::from(writer)), Some(pump)))
}

/// Copies until the end.
fn pump(reader: &OwnedFd, writer: &OwnedFd) -> std::io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        let count = match rustix::io::read(reader, &mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        write_all(writer.as_fd(), &buffer[..count])?;
        total += count as u64;
    }
}

/// Waits until all is copied; returns the error of a run that has `failed` for this reason, or not.
pub(super) fn end(pump: Option<Pump>, failed: Option<Error>, progress: &Progress) -> Option<Error> {
    // After an interruption, an output without a reader is not waited for.
    let kind = failed.as_ref().map(Error::kind);
    let is_awaited = !matches!(kind, Some(ErrorKind::Interrupted | ErrorKind::Deadline));
    let Some(pump) = pump.filter(|_| is_awaited) else { return failed };
    match pump.join() {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe && failed.is_none() => {
            let error = output_error(&error);
            progress.error(&error);
            Some(error)
        }
        _ => failed,
    }
}

fn output_error(error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorReason::NoSpace,
        _ => ErrorReason::LocalIo,
    };
    let message = format!("cannot write to standard output: {error}");
    Error::new(ErrorKind::Destination, message).because(reason).caused_by_io(error)
}
