//! The named pipes of a channel: `NAME_0`, `NAME_1`, ... in a folder.
//!
//! Only pipes that this run has created are removed; a pipe that another program created for it is
//! written to, and stays ([`Fifos::taking_others`]). Other pipes may take the names meanwhile, so
//! device and inode are compared; and each pipe is kept open (O_PATH, which makes neither a reader
//! nor a writer), so no other file gets its inode number.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno as Code;

use super::lock::ChannelLock;
use super::opener::Opener;
use crate::error::{Error, ErrorKind};
use crate::files::host::{FileError, WholeEpoch};
use crate::files::system_host::protection_in;
use crate::limits::EPOCH_MARKERS_MAX;
use crate::plan::path::OWN_PREFIX;
use crate::sys::Handle;

/// Permissions of named pipes and markers, before the umask.
const MODE: Mode = Mode::from_raw_mode(0o666);

/// Device and inode: identifies a file whatever its name.
pub(super) type Identity = (u64, u64);

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// Identity of an open file; `None` if the kernel does not report it.
pub(super) fn stat_identity(file: &OwnedFd) -> Option<Identity> {
    rustix::fs::fstat(file).ok().as_ref().map(identity)
}

/// True if exactly this file has the name.
pub(super) fn is_named(folder: &OwnedFd, name: &str, file: Option<Identity>) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    file.is_some() && found.ok().as_ref().map(identity) == file
}

/// A pipe that this run created, or that existed for it.
#[derive(Debug)]
struct Made {
    epoch: u64,
    name: String,
    pipe: Arc<OwnedFd>,
    identity: Identity,
    /// Another program created it: it keeps its name.
    is_others: bool,
}

impl Made {
    /// Opens exactly this pipe, whatever has its name now; `None` if that is impossible.
    fn open(&self, folder: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        let opened = rustix::fs::open(path, flags, Mode::empty()).ok();
        let same = |file: &OwnedFd| stat_identity(file) == Some(self.identity);
        opened.filter(same).or_else(|| {
            // Without /proc: by name, if that is still its name.
            let is_named = is_named(folder, &self.name, Some(self.identity));
            let flags = flags | OFlags::NOFOLLOW;
            let opened = || rustix::fs::openat(folder, &self.name, flags, Mode::empty()).ok();
            is_named.then(opened).flatten().filter(same)
        })
    }

    /// True if this process may open it for reading. It is not opened to find out: while another
    /// thread forks, the child has a copy of each descriptor until execve(2), and the pipe a reader
    /// that reads nothing.
    fn may_read(&self) -> bool {
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_ok()
    }

    /// Unlinks it, if it still has its name and this run created it.
    fn unlink(&self, folder: &OwnedFd) {
        if !self.is_others && is_named(folder, &self.name, Some(self.identity)) {
            let _ = rustix::fs::unlinkat(folder, &self.name, AtFlags::empty());
        }
    }
}

/// The named pipes of a channel.
#[derive(Debug)]
pub struct Fifos {
    folder: Arc<OwnedFd>,
    channel: String,
    /// The pipes that were created and not withdrawn.
    made: Vec<Made>,
    /// True if retired pipes keep their names until this is dropped; and those pipes.
    keeps_names: bool,
    retired: Vec<Made>,
    /// True if an existing pipe was created for this run.
    takes_others: bool,
    /// Waits for the reader of the awaited epoch; `None` before the first, and if it cannot wait.
    opener: Option<Opener>,
    awaited: Option<u64>,
    /// Readers of earlier epochs are not awaited, because that has failed.
    awaited_from: u64,
    /// Released when no pipe is left.
    lock: Option<ChannelLock>,
}

impl Fifos {
    /// The pipes of a channel, none of which exists yet. Without a lock another process may serve
    /// the same channel.
    #[must_use]
    pub fn new(folder: Arc<OwnedFd>, channel: String, lock: Option<ChannelLock>) -> Self {
        Self {
            folder,
            channel,
            made: Vec::new(),
            keeps_names: false,
            retired: Vec::new(),
            takes_others: false,
            opener: None,
            awaited: None,
            awaited_from: 0,
            lock,
        }
    }

    /// Uses an existing named pipe, and leaves it there: another program created it (mkfifo(1)),
    /// and its reader may be waiting in it. Not if an earlier run was killed, or may have been: the
    /// pipe may be that run's, and its reader may have part of the old stream.
    #[must_use]
    pub fn taking_others(mut self) -> Self {
        self.takes_others = self.lock.as_ref().is_some_and(|lock| !lock.was_left());
        self
    }

    /// Retired pipes keep their names until this is dropped: a reader that opens one then waits in
    /// it instead of finding it missing. For readers that will be ended anyway.
    #[must_use]
    pub fn keeping_names(mut self, keeps: bool) -> Self {
        self.keeps_names = keeps;
        self
    }

    /// Creates the pipe of an epoch.
    pub(super) fn offer(&mut self, epoch: u64) -> Result<(), Error> {
        let (folder, name) = (&*self.folder, format!("{}_{epoch}", self.channel));
        let at = |step, errno: Code| error_at(folder, step, &name, errno);
        let made = rustix::fs::mkfifoat(folder, &name, MODE);
        let is_others = made == Err(Code::EXIST) && self.takes_others;
        match made {
            Err(Code::EXIST) if is_others => {}
            Err(Code::EXIST) => {
                remove_left(folder, &name).map_err(|errno| match errno {
                    Code::EXIST => no_pipe(&name),
                    _ => at("replace pipe", errno).into(),
                })?;
                rustix::fs::mkfifoat(folder, &name, MODE)
                    .map_err(|errno| at("make pipe", errno))?;
            }
            outcome => outcome.map_err(|errno| at("make pipe", errno))?,
        }
        let (pipe, identity) = look(folder, &name).map_err(|errno| match errno {
            Code::EXIST => no_pipe(&name),
            _ => at("look at", errno).into(),
        })?;
        self.made.push(Made { epoch, name, pipe: Arc::new(pipe), identity, is_others });
        Ok(())
    }

    /// Opens the pipe of an epoch for writing; `None` while it has no reader.
    pub(super) fn open(&mut self, epoch: u64) -> Result<Option<OwnedFd>, Error> {
        let folder = &*self.folder;
        let Some(made) = self.made.iter().find(|made| made.epoch == epoch) else {
            unreachable!("only what was offered is opened")
        };
        let is_named = || is_named(folder, &made.name, Some(made.identity));
        if self.awaited == Some(epoch)
            && let Some(opened) = self.opener.as_mut().and_then(Opener::take)
        {
            self.awaited = None;
            match opened {
                // Whatever has its name now, its reader opened it by that name. A reader that has
                // left has had its epoch, but must not hide that the pipe was replaced.
                Ok(file) if has_reader(&file) || is_named() => return Ok(Some(file)),
                Ok(_) => {}
                // Without /proc it fails each time; a lack of descriptors may be temporary.
                Err(errno) => {
                    self.opener = None;
                    self.awaited_from = if errno == Code::NOENT { u64::MAX } else { epoch + 1 };
                }
            }
        }
        if !is_named() {
            return Err(replaced(made));
        }
        if self.awaited == Some(epoch) {
            return Ok(None);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(folder, &made.name, flags, Mode::empty()) {
            Ok(file) if stat_identity(&file) == Some(made.identity) => Ok(Some(file)),
            Ok(_) | Err(Code::NOENT) => Err(replaced(made)),
            // It has no reader (fifo(7)).
            Err(Code::NXIO) => Ok(None),
            Err(errno) => Err(error_at(folder, "open pipe", &made.name, errno).into()),
        }
    }

    /// Waits for the reader of an epoch, after [`Self::open`] found none. Returns a counter that is
    /// raised when one has opened it; `None` if it cannot be awaited.
    pub(super) fn await_reader(&mut self, epoch: u64) -> Option<Handle> {
        if epoch < self.awaited_from {
            return None;
        }
        let made = self.made.iter().find(|made| made.epoch == epoch)?;
        // Only a reader ends the wait, so do not start one if this process cannot become a reader.
        if self.awaited != Some(epoch) && !made.may_read() {
            return None;
        }
        if self.opener.is_none() {
            self.opener = Opener::start();
            if self.opener.is_none() {
                self.awaited_from = epoch + 1;
            }
        }
        let event = self.opener.as_mut()?.ask(&made.pipe)?;
        self.awaited = Some(epoch);
        Some(event)
    }

    /// Ends the wait for the reader of this pipe.
    fn stop_waiting(&mut self, made: &Made) {
        if self.awaited != Some(made.epoch) {
            return;
        }
        self.awaited = None;
        // A reader ends it, however short.
        match (made.open(&self.folder, OFlags::RDONLY), &mut self.opener) {
            (Some(_reader), Some(opener)) => opener.finish(),
            // Otherwise the thread stays until this pipe has a reader or the process ends.
            _ => self.opener = None,
        }
    }

    /// Removes the pipe of an epoch. A reader that waits in open(2) for a writer is released: it
    /// opens and sees the end.
    pub(super) fn withdraw(&mut self, epoch: u64) {
        if let Some(made) = self.forget(epoch) {
            let release = made.open(&self.folder, OFlags::RDWR);
            made.unlink(&self.folder);
            self.stop_waiting(&made);
            drop(release);
        }
    }

    /// Removes the pipe of an epoch, and keeps its readers waiting: they see no end while the
    /// returned file is open. `None` if there are none, and the pipe does not keep its name.
    pub(super) fn retire(&mut self, epoch: u64) -> Option<OwnedFd> {
        let made = self.forget(epoch)?;
        if self.keeps_names {
            // Opened for reading, too, so that it stays open until the last reader leaves.
            let held = made.open(&self.folder, OFlags::RDWR);
            self.stop_waiting(&made);
            self.retired.push(made);
            return held;
        }
        let before = made.open(&self.folder, OFlags::WRONLY);
        made.unlink(&self.folder);
        // A reader that came since; from here on there can be no other.
        let held = before.or_else(|| made.open(&self.folder, OFlags::WRONLY));
        self.stop_waiting(&made);
        held
    }

    /// Creates the completion marker `CHANNEL_N.ok` with a line of JSON in it.
    pub(super) fn mark(&self, whole: WholeEpoch) -> Result<(), Error> {
        let WholeEpoch { epoch, objects, bytes } = whole;
        let (folder, name) = (&*self.folder, self.marker(epoch));
        let text = format!("{{\"epoch\":{epoch},\"objects\":{objects},\"bytes\":{bytes}}}\n");
        // The lock keeps other processes from creating this one. A killed run may have left it.
        let unfinished = format!("{OWN_PREFIX}{}.ok", self.channel);
        let at = |errno: Code| error_at(folder, "make", &name, errno);
        remove(folder, &unfinished).map_err(at)?;
        let made = write(folder, &unfinished, text.as_bytes())
            .and_then(|()| rustix::fs::renameat(folder, &unfinished, folder, &name));
        if let Err(errno) = made {
            // The first error is returned.
            let _ = remove(folder, &unfinished);
            return Err(at(errno).into());
        }
        match epoch.checked_sub(EPOCH_MARKERS_MAX) {
            Some(old) => self.unmark(old),
            None => Ok(()),
        }
    }

    /// Removes `CHANNEL_N.ok`.
    pub(super) fn unmark(&self, epoch: u64) -> Result<(), Error> {
        let path = self.marker(epoch);
        remove(&self.folder, &path)
            .map_err(|errno| error_at(&self.folder, "remove", &path, errno).into())
    }

    fn marker(&self, epoch: u64) -> String {
        format!("{}_{epoch}.ok", self.channel)
    }

    fn forget(&mut self, epoch: u64) -> Option<Made> {
        let index = self.made.iter().position(|made| made.epoch == epoch)?;
        Some(self.made.swap_remove(index))
    }
}

impl Drop for Fifos {
    fn drop(&mut self) {
        while let Some(made) = self.made.pop() {
            self.stop_waiting(&made);
        }
        self.retired.iter().for_each(|made| made.unlink(&self.folder));
    }
}

/// True if the pipe of this write end has a reader.
fn has_reader(writer: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(writer, PollFlags::empty())];
    // Does not block; the next write reports what this misses.
    let _ = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// The error at a name in the channel's folder.
fn error_at(folder: &OwnedFd, step: &'static str, name: &str, errno: Code) -> FileError {
    let protection = protection_in(folder, name, errno);
    FileError { protection, ..FileError::new(step, name.to_owned(), errno) }
}

/// Removes a file; succeeds if there is none.
fn remove(folder: &OwnedFd, name: &str) -> Result<(), Code> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(Code::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Writes a small new file.
fn write(folder: &OwnedFd, name: &str, text: &[u8]) -> Result<(), Code> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, MODE)?;
    match rustix::io::write(&file, text)? {
        count if count == text.len() => Ok(()),
        _ => Err(Code::NOSPC),
    }
}

fn replaced(made: &Made) -> Error {
    let which = if made.is_others { "that this run found" } else { "that this run made" };
    let name = &made.name;
    let message = format!("{name} is not the named pipe {which}: it was removed or replaced");
    Error::new(ErrorKind::Destination, message)
        .advise("let nothing else make or remove pipes of this channel, and start again")
}

/// Opens a pipe without becoming a reader or a writer of it.
fn look(folder: &OwnedFd, name: &str) -> Result<(OwnedFd, Identity), Code> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&pipe)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Fifo => Ok((pipe, identity(&found))),
        _ => Err(Code::EXIST),
    }
}

/// The error for a file with a pipe's name that is no pipe.
fn no_pipe(name: &str) -> Error {
    let message = format!("{name} exists and is not a named pipe");
    Error::new(ErrorKind::Destination, message).advise("remove it or choose another channel name")
}

/// Removes a pipe that an earlier run left; refuses other files. It is not reused, because its
/// reader may have part of the old stream. A reader that waits in open(2) for its writer sees the
/// end.
fn remove_left(folder: &OwnedFd, name: &str) -> Result<(), Code> {
    let (pipe, identity) = look(folder, name)?;
    let (name, pipe) = (name.to_owned(), Arc::new(pipe));
    let left = Made { epoch: 0, name, pipe, identity, is_others: false };
    let release = left.open(folder, OFlags::RDWR);
    left.unlink(folder);
    drop(release);
    Ok(())
}
