//! Small files as a whole: read up to a limit, and created atomically.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::NamedTempFile;

use crate::files::system_host::protection_at;
use crate::limits::LINKS_MAX;

/// Mode of a new file before the umask, as for a shell's redirection.
const MODE: u32 = 0o666;

/// Mode of a new file that only its user may read.
const PRIVATE_MODE: u32 = 0o600;

/// Smallest buffer of one read, in bytes.
const READ_BYTES_MIN: usize = 64 << 10;

/// The content of a file, with at most one byte more than allowed.
///
/// # Errors
/// Those of open(2), fstat(2) and read(2).
pub(crate) fn read(path: &Path, bytes_max: u64) -> rustix::io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = rustix::fs::fstat(&file)?.st_size;
    let size = u64::try_from(size).unwrap_or(0).min(bytes_max);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    while bytes.len() as u64 <= bytes_max {
        bytes.reserve(READ_BYTES_MIN);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

/// Creates or replaces a file atomically; returns its device and inode. Until then its name begins
/// with `temporary_prefix`.
///
/// # Errors
/// If it cannot be written; then nothing new is left.
pub(crate) fn write(path: &Path, text: &[u8], temporary_prefix: &str) -> io::Result<(u64, u64)> {
    let mut file = Unnamed::beside(path, temporary_prefix)?;
    file.write_all(text)?;
    file.name(path)
}

/// Like [`write()`], but only the user may read the file, and after a crash its name leads to all
/// of it.
///
/// # Errors
/// Those of [`write()`].
pub(crate) fn write_private(path: &Path, text: &[u8], temporary_prefix: &str) -> io::Result<()> {
    let mut file = Unnamed::with_mode(path, temporary_prefix, PRIVATE_MODE)?;
    file.write_all(text)?;
    file.sync()?;
    file.name(path).map(drop)
}

/// True if something other than a file has this name, such as a device or a FIFO: it is written to,
/// and is not replaced.
pub(crate) fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| !there.is_file())
}

/// Like [`write()`], for a user's path: a link stays, and its target is replaced; anything but a
/// file is written to directly. Links that another user may have planted are refused, like the
/// kernel does with `fs.protected_symlinks`.
///
/// # Errors
/// Those of [`write()`].
pub(crate) fn write_there(path: &Path, text: &[u8], temporary_prefix: &str) -> io::Result<()> {
    let target = led_to(path)?;
    if is_special(path) {
        // A FIFO without a reader is an error, not a wait.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&target, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // The target of /dev/stdout may have no name.
            Err(rustix::io::Errno::NOENT) => rustix::fs::open(path, flags, Mode::empty())?,
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&file)?;
        let is_fifo = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        let has_name = stat.st_nlink > 0 && target.symlink_metadata().is_ok();
        if is_fifo && has_name && is_planted(&stat, &rustix::fs::stat(folder_of(&target))?) {
            let message = format!(
                "{} is a FIFO of another user in a sticky folder that all may write, which is not \
                 written to",
                target.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        let mut rest = text;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        return Ok(());
    }
    write(&target, text, temporary_prefix).map(drop)
}

/// The target of a path whose last links are followed, existing or not. A link is read through its
/// descriptor: so its checked owner is that of the link that is read.
///
/// # Errors
/// For a link that is not followed ([`is_planted`]), and for a chain that does not end.
fn led_to(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(link) = rustix::fs::open(&at, flags, Mode::empty()) else { return Ok(at) };
        let stat = rustix::fs::fstat(&link)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(at);
        }
        let folder = folder_of(&at);
        if is_planted(&stat, &rustix::fs::stat(folder)?) {
            let message = format!(
                "{} is a symbolic link of another user in a sticky folder that all may write, \
                 which is not followed",
                at.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
        at = folder.join(OsStr::from_bytes(target.as_bytes()));
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// True if a link or a FIFO may be a trap: it is in a sticky world-writable folder, such as /tmp,
/// and belongs neither to the effective user nor to the folder's owner (fs.protected_symlinks and
/// fs.protected_fifos, see proc_sys_fs(5)).
fn is_planted(link: &Stat, folder: &Stat) -> bool {
    const STICKY_FOR_ALL: u32 = 0o1002;
    folder.st_mode & STICKY_FOR_ALL == STICKY_FOR_ALL
        && link.st_uid != geteuid().as_raw()
        && link.st_uid != folder.st_uid
}

/// The folder of a path, for opening.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file that has no name yet. Dropping it before leaves nothing.
#[derive(Debug)]
pub(crate) struct Unnamed(NamedTempFile);

impl Unnamed {
    /// An empty one in the folder of this path.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn beside(path: &Path, temporary_prefix: &str) -> io::Result<Self> {
        Self::with_mode(path, temporary_prefix, MODE)
    }

    fn with_mode(path: &Path, temporary_prefix: &str, mode: u32) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(temporary_prefix);
        let builder = builder.permissions(Permissions::from_mode(mode));
        builder.tempfile_in(folder_of(path)).map(Self).map_err(|error| with_cause(error, path))
    }

    /// Waits until its bytes are on disk: after a crash its name leads to all of them.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.as_file().sync_data()
    }

    /// Publishes it, replacing an existing file; returns its device and inode.
    ///
    /// # Errors
    /// If that fails; then nothing new is left.
    pub(crate) fn name(self, path: &Path) -> io::Result<(u64, u64)> {
        let made = self.0.as_file().metadata()?;
        self.0.persist(path).map_err(|failed| with_cause(failed.error, path))?;
        Ok((made.dev(), made.ino()))
    }
}

/// Adds what an EPERM is due to, if that is known.
fn with_cause(error: io::Error, path: &Path) -> io::Error {
    let name = path.file_name().and_then(OsStr::to_str);
    // Errors of tempfile have the kind alone, which is that of EACCES, too.
    let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
    let found = name.filter(|_| is_refused);
    let found = found.and_then(|name| protection_at(folder_of(path), name, Errno::PERM));
    match found {
        Some(found) => io::Error::new(error.kind(), format!("{error}{}", found.suffix())),
        None => error,
    }
}

impl io::Write for Unnamed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn what_people_name_stays_what_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| write_there(&at(name), text.as_bytes(), ".test-");
        write("file", "one").expect("room");
        write("file", "two").expect("room");
        assert_eq!(fs::read_to_string(at("file")).expect("it is there"), "two");
        for (link, target) in [("link", "file"), ("dangling", "new")] {
            symlink(target, at(link)).expect("a link");
            write(link, "three").expect("room");
            assert!(at(link).symlink_metadata().expect("it is there").is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(target)).expect("it is there"), "three");
        }
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a FIFO");
        write("fifo", "nobody").expect_err("nobody reads it");
        let path = at("fifo");
        let reader = std::thread::spawn(move || fs::read_to_string(path));
        while write("fifo", "four").is_err() {
            std::thread::yield_now();
        }
        assert_eq!(reader.join().expect("it reads").expect("text"), "four");
        let kind = at("fifo").symlink_metadata().expect("it is there").file_type();
        assert!(kind.is_fifo() && is_special(&at("fifo")) && !is_special(&at("link")));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 5, "nothing else");
    }

    #[test]
    fn a_private_file_is_for_its_user_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "old").expect("room");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
        write_private(&file, b"new", ".test-").expect("room");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        assert_eq!(file.metadata().expect("it is there").mode() & 0o777, PRIVATE_MODE);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else");
    }

    #[test]
    fn a_link_that_another_user_planted_is_not_followed() {
        let (shared, own) = (tempfile::tempdir(), tempfile::tempdir());
        let (shared, own) = (shared.expect("a folder"), own.expect("a folder"));
        let (precious, new) = (own.path().join("precious"), own.path().join("new"));
        let (link, dangling) = (shared.path().join("link"), shared.path().join("dangling"));
        fs::write(&precious, "as it was").expect("written");
        symlink(&precious, &link).expect("a link");
        symlink(&new, &dangling).expect("a link");
        // A link of one's own to such a link is refused, too.
        let own_link = own.path().join("link");
        symlink(&link, &own_link).expect("a link");
        let write = |path: &Path| write_there(path, b"new", ".test-");
        for link in [&link, &dangling] {
            if std::os::unix::fs::lchown(link, Some(12_345), None).is_err() {
                eprintln!("skipped: only root may give files away");
                return;
            }
        }
        let mode = |bits| {
            rustix::fs::chmod(shared.path(), Mode::from_raw_mode(bits)).expect("its owner may");
        };
        mode(0o1777);
        for path in [&link, &dangling, &own_link] {
            let error = write(path).expect_err("refused").to_string();
            assert!(error.contains("is a symbolic link of another user"), "{error}");
        }
        assert_eq!(fs::read_to_string(&precious).expect("there"), "as it was");
        assert!(!new.exists());
        mode(0o755);
        write(&link).expect("the folder's owner lets nobody else write there");
        assert_eq!(fs::read_to_string(&precious).expect("there"), "new");
    }
}
