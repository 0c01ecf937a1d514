//! Small files as one piece: read up to a bound, and made such that nobody sees a part of them.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

/// Mode of a new file before the umask, as a shell's redirection has it.
const MODE: u32 = 0o666;

/// Least room for one read, in bytes.
const READ_BYTES_MIN: usize = 64 << 10;

/// A file, or a byte more than it may have.
///
/// # Errors
/// Those of open(2), fstat(2) and read(2).
pub(super) fn read(path: &Path, bytes_max: u64) -> rustix::io::Result<Vec<u8>> {
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

/// Makes a file appear with all of its text, in the place of one that is there; its device and
/// inode. Until then its name begins with `temporary_prefix`.
///
/// # Errors
/// When it cannot be written; nothing new is left then.
pub(super) fn write(path: &Path, text: &[u8], temporary_prefix: &str) -> io::Result<(u64, u64)> {
    let mut file = Unnamed::beside(path, temporary_prefix)?;
    file.write_all(text)?;
    file.name(path)
}

/// A file on its way to its name. Dropped before, nothing of it is left.
#[derive(Debug)]
pub(super) struct Unnamed(NamedTempFile);

impl Unnamed {
    /// An empty one in the folder of this path.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn beside(path: &Path, temporary_prefix: &str) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(temporary_prefix);
        let builder = builder.permissions(Permissions::from_mode(MODE));
        builder.tempfile_in(folder).map(Self)
    }

    /// Waits until its bytes are on the disk: after a crash its name leads to all of them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.as_file().sync_data()
    }

    /// Makes it appear in the place of one that is there; its device and inode.
    ///
    /// # Errors
    /// When it cannot be; nothing new is left then.
    pub(super) fn name(self, path: &Path) -> io::Result<(u64, u64)> {
        let made = self.0.as_file().metadata()?;
        self.0.persist(path)?;
        Ok((made.dev(), made.ino()))
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
