//! Places of mounts, and how mounts are removed from them: lazily, so that nothing waits, also for
//! a mount whose process is gone.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, ErrorKind, Result};
use crate::mount::table::{self, Mounted, TYPE};

/// A folder as the kernel's table of mounts has it. The folder itself is not looked at: one whose
/// process is gone cannot be.
pub(super) fn place(typed: &Path) -> Result<PathBuf> {
    let trouble = |error: std::io::Error| {
        Error::new(ErrorKind::Destination, format!("{}: {error}", typed.display()))
            .advise("give the folder that it is mounted on")
    };
    // Without a last name it is a folder by its meaning: `.`, `..`, `/`.
    let typed = typed.components().as_path();
    let Some(name) = typed.file_name() else { return typed.canonicalize().map_err(trouble) };
    let above = typed.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize().map_err(trouble)?;
    let place = above.join(name);
    // A link to it is followed where that does not lead into a mount without a process.
    match std::fs::read_link(&place) {
        Ok(_) => place.canonicalize().map_err(trouble),
        Err(_) => Ok(place),
    }
}

/// The same for a new mount: a folder on which none of ours is.
pub(in crate::command) fn empty_place(typed: &Path) -> Result<PathBuf> {
    let place = place(typed)?;
    if ours(&place).is_ok() {
        let message = match is_dead(&place) {
            true => format!("{} has a mount of inrush whose process is gone", place.display()),
            false => format!("{} is mounted by inrush already", place.display()),
        };
        return Err(Error::new(ErrorKind::Destination, message)
            .advise(format!("unmount it with: inrush unmount {}", place.display())));
    }
    let found = place.metadata().map_err(|error| {
        Error::new(ErrorKind::Destination, format!("{}: {error}", place.display()))
            .advise("create the folder to mount on first")
    })?;
    if !found.is_dir() {
        let message = format!("{} is not a folder", place.display());
        return Err(Error::new(ErrorKind::Destination, message).advise("give a folder"));
    }
    Ok(place)
}

/// Removes mounts of this program there whose processes are gone.
pub(in crate::command) fn remove_dead(place: &Path) -> Result<()> {
    while ours(place).is_ok() && is_dead(place) {
        detach(place)?;
    }
    Ok(())
}

/// Whether the process of the mount there is gone.
fn is_dead(place: &Path) -> bool {
    // What is known of the folder itself the kernel may still remember.
    let opened = place.read_dir();
    // The second is of a request that its end met on the way.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED];
    opened.is_err_and(|error| Errno::from_io_error(&error).is_some_and(|is| gone.contains(&is)))
}

/// The mount of this program that is there; an error where there is none.
pub(super) fn ours(place: &Path) -> Result<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot read /proc/self/mountinfo: {error}"))
    })?;
    let why = match table::at(&table, place) {
        Some(mounted) if mounted.kind == TYPE => return Ok(mounted),
        Some(mounted) => format!("a mount of type {}, not of inrush", mounted.kind),
        None => "not mounted".to_owned(),
    };
    Err(Error::new(ErrorKind::Destination, format!("{} is {why}", place.display()))
        .advise("list mounts with: findmnt -t fuse.inrush"))
}

/// Removes the mount. Without the right to do so fusermount3, which has it, is asked.
pub(super) fn detach(place: &Path) -> Result<()> {
    let refused = match rustix::mount::unmount(place, UnmountFlags::DETACH) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => by_helper(place),
        Err(errno) => errno.to_string(),
    };
    if ours(place).is_err() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Destination,
        format!("cannot unmount {}: {refused}", place.display()),
    )
    .advise("unmount it as the user that mounted it, or as root"))
}

/// A mount of this process. One that somebody has unmounted since, or covered, is left alone, and
/// so is one of another process that is there now.
#[derive(Debug, Clone)]
pub(super) struct Own {
    point: PathBuf,
    /// Its device's number, as `MAJOR:MINOR`.
    pub(super) device: String,
}

impl Own {
    /// What was mounted there just now.
    pub(super) fn at(point: &Path) -> Option<Self> {
        let Mounted { device, .. } = ours(point).ok()?;
        Some(Self { point: point.to_owned(), device })
    }

    fn is_there(&self) -> bool {
        ours(&self.point).is_ok_and(|there| there.device == self.device)
    }

    /// Removes it where it is; false if it could not be removed.
    pub(super) fn remove(&self) -> bool {
        !self.is_there() || detach(&self.point).is_ok() || !self.is_there()
    }

    /// Ends it, since nothing can be read from it any more: requests that wait end, too, where the
    /// kernel lets this process do that.
    pub(super) fn abort(&self) {
        if !self.is_there() {
            return;
        }
        let at_once = UnmountFlags::FORCE | UnmountFlags::DETACH;
        if rustix::mount::unmount(&self.point, at_once).is_ok() {
            return;
        }
        // The user that has mounted it may write there, where it is mounted itself.
        let minor = self.device.rsplit(':').next().unwrap_or_default();
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        by_helper(&self.point);
    }
}

/// Asks fusermount; says what it said.
fn by_helper(place: &Path) -> String {
    let mut said = Errno::PERM.to_string();
    for name in ["fusermount3", "fusermount"] {
        let helper = Command::new(name)
            .args(["-u", "-z", "--"])
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut helper) = helper else { continue };
        let mut text = String::new();
        if let Some(mut stderr) = helper.stderr.take() {
            // What it says is only told.
            let _ = stderr.read_to_string(&mut text);
        }
        if helper.wait().is_ok_and(|status| status.success()) {
            return String::new();
        }
        said = text.trim().to_owned();
    }
    said
}
