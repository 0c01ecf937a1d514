//! A mount by a process of this program, whose files are read through the kernel.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::task::JoinHandle;

use super::super::session::Interrupts;
use super::child::{Child, RunResult, Source, failed, not_started};
use super::{interrupted, now};
use crate::error::{Error, ErrorKind, Result};
use crate::report::bench::Measured;
use crate::sys::{orphans, process, usage};

/// Files that are read at once.
const READERS: usize = 8;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Pause between two checks for the mount.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// A process that serves a mount; dropping this ends it.
struct Serving {
    process: std::os::fd::OwnedFd,
    ended: JoinHandle<io::Result<Output>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // A process that has ended needs no signal.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
    }
}

/// Mounts below a folder, reads all files, and unmounts. The time is that of the reads.
pub(super) async fn run(
    source: &Source,
    options: Vec<String>,
    folder: &Path,
    signals: &mut Interrupts,
) -> Result<RunResult> {
    let [point, ready] = ["mount", "ready"].map(|name| folder.join(name));
    std::fs::create_dir(&point).map_err(|error| {
        let message = format!("cannot make {}: {error}", point.display());
        Error::new(ErrorKind::Host, message).advise("give TMPDIR a writable folder")
    })?;
    let words = [point.display().to_string(), "--foreground".into(), "--ready-file".into()];
    let words = words.into_iter().chain([ready.display().to_string()]).chain(options);
    let mut command = Child::new("mount", source).with(words).into_command();
    process::as_started(&mut command);
    let _awaited = orphans::awaits_child();
    let mut child = command.spawn().map_err(not_started)?;
    let pid = child.id();
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(|errno| {
        // Nothing could end it later.
        let _ = child.kill().and_then(|()| child.wait());
        not_started(errno.into())
    })?;
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let mut serving = Serving { process, ended };
    let result = read_when_ready(&mut serving, (&point, &ready), pid, signals).await;
    let _ = pidfd_send_signal(&serving.process, Signal::TERM);
    if !serving.ended.is_finished() {
        // The mount's folder is removed next.
        let _ = (&mut serving.ended).await;
    }
    result
}

async fn read_when_ready(
    serving: &mut Serving,
    (point, ready): (&Path, &Path),
    pid: u32,
    signals: &mut Interrupts,
) -> Result<RunResult> {
    while !ready.exists() {
        tokio::select! {
            biased;
            output = &mut serving.ended => {
                let output = output.expect("it does not panic").map_err(not_started)?;
                return Err(failed(&output));
            }
            () = signals.next() => return Err(interrupted()),
            () = tokio::time::sleep(LOOK_PAUSE) => {}
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, point) = (Arc::clone(&stop), point.to_owned());
    let (begun, before) = (now(), usage::cpu_seconds_of(pid));
    let mut read = tokio::task::spawn_blocking(move || read_all(&point, &stopped));
    let bytes = tokio::select! {
        biased;
        bytes = &mut read => bytes.expect("it does not panic"),
        () = signals.next() => {
            stop.store(true, Ordering::Relaxed);
            // Processes that wait for the mount are released by its end.
            let _ = pidfd_send_signal(&serving.process, Signal::TERM);
            let _ = read.await;
            return Err(interrupted());
        }
    };
    let bytes = bytes.map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot read the mount: {error}"))
            .advise("run inrush mount alone, with -v")
            .caused_by(error)
    })?;
    let cpu = usage::cpu_seconds_of(pid).zip(before).map_or(0.0, |(now, then)| now - then);
    let measured = Measured::new(bytes, begun.elapsed().as_secs_f64(), cpu);
    Ok(RunResult { measured: Some(measured), ..RunResult::default() })
}

/// Reads all files below a folder, several at once; returns their bytes.
fn read_all(folder: &Path, stopped: &AtomicBool) -> io::Result<u64> {
    let mut files = Vec::new();
    find_files(folder, &mut files)?;
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS.min(files.len()))
            .map(|_| {
                scope.spawn(|| -> io::Result<()> {
                    let mut buffer = vec![0; READ_BYTES];
                    while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        bytes.fetch_add(read_one(file, &mut buffer, stopped)?, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("it does not panic"))
    })
    .map(|()| bytes.into_inner())
}

fn find_files(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => find_files(&entry.path(), into)?,
            false => into.push(entry.path()),
        }
    }
    Ok(())
}

fn read_one(path: &Path, buffer: &mut [u8], stopped: &AtomicBool) -> io::Result<u64> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = 0;
    while !stopped.load(Ordering::Relaxed) {
        match rustix::io::read(&file, &mut *buffer) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("folders");
        for (name, length) in [("1", 3), ("a/2", 0), ("a/b/3", READ_BYTES + 1)] {
            std::fs::write(folder.path().join(name), vec![0; length]).expect("a file");
        }
        let goes_on = AtomicBool::new(false);
        let read = read_all(folder.path(), &goes_on).expect("files");
        assert_eq!(read, READ_BYTES as u64 + 4);
        assert!(read_all(&folder.path().join("none"), &goes_on).is_err());
    }
}
