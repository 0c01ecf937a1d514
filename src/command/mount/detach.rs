//! Places of mounts, and how mounts are removed from them: lazily, so that nothing waits, also for
//! a mount whose process is gone.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
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
    let why = match table::at(&mounts()?, place) {
        Some(mounted) if mounted.kind == TYPE => return Ok(mounted),
        Some(mounted) => format!("a mount of type {}, not of inrush", mounted.kind),
        None => "not mounted".to_owned(),
    };
    Err(Error::new(ErrorKind::Destination, format!("{} is {why}", place.display()))
        .advise("list mounts with: findmnt -t fuse.inrush"))
}

fn mounts() -> Result<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo").map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot read /proc/self/mountinfo: {error}"))
    })
}

/// A mount of this program, by a descriptor of its root: what has its name by now is another one's.
struct Held {
    root: OwnedFd,
    mounted: Mounted,
}

impl Held {
    /// Opens what is mounted at this place, without asking its process anything (O_PATH). No link
    /// on the way is followed: `place` had none, so one was put there meanwhile. `None` where no
    /// mount of this program is there.
    ///
    /// # Errors
    /// What openat(2) says.
    fn open(place: &Path) -> rustix::io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut root = rustix::fs::open("/", flags, Mode::empty())?;
        for step in place.components() {
            if let Component::Normal(name) = step {
                root = rustix::fs::openat(&root, name, flags, Mode::empty())?;
            }
        }
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", root.as_raw_fd()));
        let about = about.unwrap_or_default();
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let mounted = id.and_then(|id| table::of_id(&mounts().ok()?, id));
        let ours = mounted.filter(|mounted| mounted.kind == TYPE);
        Ok(ours.map(|mounted| Self { root, mounted }))
    }

    /// Removes this mount, and no other.
    fn unmount(&self, flags: UnmountFlags) -> rustix::io::Result<()> {
        rustix::mount::unmount(format!("/proc/self/fd/{}", self.root.as_raw_fd()), flags)
    }
}

/// Removes the mount. Without the right to do so fusermount3, which has it, is asked.
pub(super) fn detach(place: &Path) -> Result<()> {
    let refused = match Held::open(place) {
        Ok(None) => "something else is mounted over it".to_owned(),
        Ok(Some(held)) => match held.unmount(UnmountFlags::DETACH) {
            Ok(()) => return Ok(()),
            Err(Errno::PERM) => by_helper(place),
            Err(errno) => errno.to_string(),
        },
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
        if let Ok(Some(held)) = Held::open(&self.point)
            && held.mounted.device == self.device
            && held.unmount(at_once).is_ok()
        {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::mount::{MountFlags, mount};

    use super::*;

    /// What takes the place of a folder above the mount, after that was looked at.
    #[test]
    fn a_link_in_the_place_of_a_folder_above_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().canonicalize().unwrap().join("elsewhere");
        let point = elsewhere.join("data");
        std::fs::create_dir_all(&point).unwrap();
        if mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).is_err() {
            eprintln!("skipped: only root may mount");
            return;
        }
        let swapped = elsewhere.with_file_name("swapped");
        symlink(&elsewhere, &swapped).unwrap();
        let outcomes = [detach(&swapped.join("data")), detach(&point)];
        let is_left = table::at(&mounts().unwrap(), &point).is_some();
        let removed = rustix::mount::unmount(&point, UnmountFlags::DETACH);
        assert!(is_left, "somebody else's: {outcomes:?}");
        removed.unwrap();
    }
}
