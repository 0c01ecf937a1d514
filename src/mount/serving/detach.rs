//! Mount points, and their lazy unmounting, which does not block, even if the mount's process has
//! died.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, ErrorKind, Result};
use crate::mount::table::{self, Mounted, TYPE};
use crate::sys::{orphans, process};

/// The path of a folder in the form of the kernel's mount table. The folder itself is not accessed:
/// if its mount's process has died that fails.
pub(crate) fn place(typed: &Path) -> Result<PathBuf> {
    let trouble = |error: std::io::Error| {
        Error::new(ErrorKind::Destination, format!("{}: {error}", typed.display()))
            .advise("give the folder that it is mounted on")
            .caused_by(error)
    };
    // Without a last name it is a folder by definition: `.`, `..`, `/`.
    let typed = typed.components().as_path();
    let Some(name) = typed.file_name() else { return typed.canonicalize().map_err(trouble) };
    let above = typed.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize().map_err(trouble)?;
    let place = above.join(name);
    // A link to it is followed unless it leads into a mount without a process.
    match std::fs::read_link(&place) {
        Ok(_) => place.canonicalize().map_err(trouble),
        Err(_) => Ok(place),
    }
}

/// The place of a new mount: a folder without a mount of ours.
pub(crate) fn empty_place(typed: &Path) -> Result<PathBuf> {
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
            .caused_by(error)
    })?;
    if !found.is_dir() {
        let message = format!("{} is not a folder", place.display());
        return Err(Error::new(ErrorKind::Destination, message).advise("give a folder"));
    }
    Ok(place)
}

/// Removes mounts of this program at this place whose processes have died.
pub(crate) fn remove_dead(place: &Path) -> Result<()> {
    while ours(place).is_ok() && is_dead(place) {
        detach(place)?;
    }
    Ok(())
}

/// True if the process of the mount there has died.
fn is_dead(place: &Path) -> bool {
    // The kernel may still cache attributes of the folder itself.
    let opened = place.read_dir();
    // The second one is of a request that was in progress when the process died.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED];
    opened.is_err_and(|error| Errno::from_io_error(&error).is_some_and(|is| gone.contains(&is)))
}

/// The mount of this program at this place; an error if there is none.
pub(crate) fn ours(place: &Path) -> Result<Mounted> {
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
            .caused_by(error)
    })
}

/// A mount of this program, by a descriptor of its root: the path may belong to another mount by
/// now.
struct Held {
    root: OwnedFd,
    mounted: Mounted,
}

impl Held {
    /// Opens the mount at this place, without a request to its process (O_PATH). Links in the path
    /// are not followed: `place` had none, so one was created meanwhile. `None` if no mount of this
    /// program is there.
    ///
    /// # Errors
    /// Those of openat(2).
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

    /// Removes this mount only.
    fn unmount(&self, flags: UnmountFlags) -> rustix::io::Result<()> {
        rustix::mount::unmount(format!("/proc/self/fd/{}", self.root.as_raw_fd()), flags)
    }
}

/// Removes the mount. Without permission it asks fusermount3, which has it.
pub(crate) fn detach(place: &Path) -> Result<()> {
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

/// A mount of this process. If it was unmounted since, or covered, it is left alone, and so is
/// another process's mount that is there now.
#[derive(Debug, Clone)]
pub(super) struct Own {
    point: PathBuf,
    /// Its device number, as `MAJOR:MINOR`.
    pub(super) device: String,
}

impl Own {
    /// The mount that was just created there.
    pub(super) fn at(point: &Path) -> Option<Self> {
        let Mounted { device, .. } = ours(point).ok()?;
        Some(Self { point: point.to_owned(), device })
    }

    fn is_there(&self) -> bool {
        ours(&self.point).is_ok_and(|there| there.device == self.device)
    }

    /// Removes it from its place; false if that failed.
    pub(super) fn remove(&self) -> bool {
        !self.is_there() || detach(&self.point).is_ok() || !self.is_there()
    }

    /// Aborts its connection, since it cannot be read any more: waiting requests end, too, if the
    /// kernel permits it.
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
        // The user that has mounted it may write there, if that is mounted itself.
        let minor = self.device.rsplit(':').next().unwrap_or_default();
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        by_helper(&self.point);
    }
}

/// Asks fusermount; returns its message.
fn by_helper(place: &Path) -> String {
    let mut said = Errno::PERM.to_string();
    for name in ["fusermount3", "fusermount"] {
        let _awaited = orphans::awaits_child();
        let mut command = Command::new(name);
        command.args(["-u", "-z", "--"]).arg(place);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        process::as_started(&mut command);
        let helper = command.spawn();
        let Ok(mut helper) = helper else { continue };
        let mut text = String::new();
        if let Some(mut stderr) = helper.stderr.take() {
            // Its message is only reported.
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

    /// Replaces a folder above the mount by a link after the folder was checked.
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
