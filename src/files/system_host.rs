//! The real operating system behind [`crate::files::host::FileHost`]: clock, random numbers,
//! sockets, and the destination's file system.
//!
//! Every path is walked from the destination's folder one segment at a time without following links
//! (openat(2), O_NOFOLLOW), so that neither a key nor a planted link leads out of it. Files are
//! created unnamed (O_TMPFILE) if the file system can, so that a crash leaves nothing behind. The
//! unfinished files of large objects have names (`parts`), so that a later run can resume them.

mod adopt;
mod disk;
mod helpers;
mod marks;
mod names;
mod naming;
mod network;
mod obstacle;
mod parts;
mod protection;
mod reader;
mod sweep;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno as Code;

use crate::error::{Error, ErrorKind};
use crate::files::file_download::FileDownload;
use crate::files::host::{FOLDER_REFUSES, FileError, Host, NO_INODE};
use crate::files::sink::file::{OpenFile, allocation};
use crate::limits::{FOLDERS_OPEN_MAX, LOCK_LOOKS_MAX};
use crate::plan::splitmix::SplitMix64;
use crate::s3::sign::{KeptKeys, PublishedKeys, RequestWriter};
use crate::sys::Handle;

pub use adopt::{Adopter, Adoption, Look, Proven};
pub use disk::{
    DiskSpace, MadeFolders, disk_space, disk_spaces, make_folder_of, make_folders, nearest_folder,
    together,
};
pub use marks::{
    ATTRIBUTE, FileState, boot, changed_ns, moment, moment_of_sync, note_synced, synced,
};
pub use names::{folding, folding_seen};
pub use naming::link_unnamed;
use naming::temporary_name;
pub use parts::{Left, Unfinished, WhenAll, read_resumed};
pub use protection::{protection_at, protection_in};
pub use reader::{Reader, There};
pub use sweep::{Sweep, Swept, look_through};

/// What a run stores for later runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Complete files are marked, and unfinished ones are kept with a journal.
    pub resume: bool,
    /// Files get their objects' modification times and a mark that identifies the object.
    pub times: bool,
    /// Each file and its folder are synced before the file counts.
    pub sync_files: bool,
    /// Digest of the kernel's boot ID: see [`boot`].
    pub boot: u64,
}

/// Permissions of new files, before the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
/// Permissions of new folders, before the umask.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// The operating system of one worker.
#[derive(Debug)]
pub struct SystemHost {
    begun: Instant,
    chance: SplitMix64,
    folders: Option<Folders>,
    keeping: Persistence,
    /// The file system refuses our attributes: known after the first attempt.
    attributes_refused: bool,
    /// The index has a synced record of this worker, which a power failure does not lose.
    index_begun: bool,
    memory: marks::Memory,
    writer: RequestWriter,
    published: Arc<PublishedKeys>,
    keys: KeptKeys,
    /// Interfaces to bind sockets to, in turn; empty: the kernel's routes decide.
    interfaces: Vec<Arc<str>>,
    /// Remaining retries for locks that other processes hold.
    lock_looks: u32,
    /// File jobs of the worker.
    desk: helpers::Desk,
    /// Hosts of further destinations, by number from 1.
    others: Vec<SystemHost>,
}

impl SystemHost {
    /// A host whose files go below `destination`; `None` for a run that writes none.
    #[must_use]
    pub fn new(
        begun: Instant,
        seed: u64,
        destination: Option<Root>,
        published: Arc<PublishedKeys>,
        keeping: Persistence,
    ) -> Self {
        Self {
            begun,
            chance: SplitMix64(seed),
            folders: destination.map(|root| Folders::new(root, keeping.sync_files)),
            keeping,
            attributes_refused: false,
            index_begun: false,
            memory: marks::Memory::default(),
            writer: RequestWriter::new(),
            published,
            keys: KeptKeys::default(),
            interfaces: Vec::new(),
            lock_looks: LOCK_LOOKS_MAX,
            desk: helpers::Desk::default(),
            others: Vec::new(),
        }
    }

    /// Adds destinations, selected by [`FileDownload::place`].
    #[must_use]
    pub fn with_others(mut self, roots: &[Root]) -> Self {
        for root in roots {
            let (seed, published) = (self.random(), Arc::clone(&self.published));
            self.others.push(Self::new(
                self.begun,
                seed,
                Some(root.clone()),
                published,
                self.keeping,
            ));
        }
        self
    }

    /// Bounds the number of folders kept open, over all destinations.
    #[must_use]
    pub fn with_folders_kept(mut self, most: usize) -> Self {
        let most = (most / (self.others.len() + 1)).max(1);
        let others = std::mem::take(&mut self.others);
        self.others = others.into_iter().map(|other| other.with_folders_kept(most)).collect();
        if let Some(folders) = &mut self.folders {
            folders.kept_max = most.min(FOLDERS_OPEN_MAX);
        }
        self
    }

    fn folders(&mut self) -> &mut Folders {
        self.folders.as_mut().expect("a run that writes files has a destination")
    }
}

impl SystemHost {
    /// An error at a path below the destination.
    fn error(&mut self, step: &'static str, path: &str, errno: Code) -> FileError {
        self.folders().root.error(step, path, errno)
    }

    fn make_folder(&mut self, path: &str) -> Result<(), FileError> {
        self.folders().open(path.trim_end_matches('/')).map(drop)
    }

    fn write_whole(&mut self, download: &FileDownload, bytes: &[u8]) -> Result<(), FileError> {
        let random = self.random();
        let folders = self.folders();
        let path = download.path.as_str();
        let (folder, name) = folders.parent(path)?;
        let new = folders.create(&folder, random, OFlags::empty());
        let new = new.map_err(|errno| self.error("create", path, errno))?;
        let written = write_all(&new.file, bytes).map_err(|errno| self.error("write", path, errno));
        let marked = written.and_then(|()| {
            self.mark(&new.file, download).map_err(|errno| self.error("sync", path, errno))
        });
        let named = marked.and_then(|()| {
            let file = new.file.as_fd();
            let named = self.folders().rename(&folder, file, &new.temporary, name, random);
            named.map_err(|errno| self.error("name", path, errno))
        });
        named.inspect_err(|_| new.remove(&folder))?;
        self.sync_folder(&folder).map_err(|errno| self.error("sync", path, errno))
    }

    fn create(&mut self, download: &FileDownload) -> Result<OpenFile, FileError> {
        let random = self.random();
        let path = download.path.as_str();
        let (folder, name) = self.folders().parent(path)?;
        if let Some(file) = self.begin_part(download, &folder, name)? {
            return Ok(file);
        }
        let folders = self.folders();
        let (new, direct) = match folders.create(&folder, random, OFlags::DIRECT) {
            Ok(new) => (new, true),
            // The file system refuses O_DIRECT (open(2)).
            Err(Code::INVAL) => {
                let new = folders.create(&folder, random, OFlags::empty());
                (new.map_err(|errno| self.error("create", path, errno))?, false)
            }
            Err(errno) => return Err(self.error("create", path, errno)),
        };
        if let Err(errno) = allocate(&new.file, allocation(download.object.listed.size_bytes)) {
            new.remove(&folder);
            return Err(self.error("allocate", path, errno));
        }
        Ok(OpenFile {
            handle: Handle::from(new.file),
            direct,
            folder: Handle::Descriptor(folder),
            temporary: new.temporary,
            name: name.to_owned(),
            place: self.folders().root.place(path),
            journal: None,
        })
    }

    fn publish(&mut self, file: &OpenFile, download: &FileDownload) -> Result<(), FileError> {
        let random = self.random();
        let size_bytes = download.object.listed.size_bytes;
        let (Handle::Descriptor(handle), Handle::Descriptor(folder)) = (&file.handle, &file.folder)
        else {
            unreachable!("this machine makes real files")
        };
        let path = download.path.as_str();
        let cut = match allocation(size_bytes) == size_bytes {
            true => Ok(()),
            false => rustix::fs::ftruncate(handle, size_bytes)
                .map_err(|errno| self.error("truncate", path, errno)),
        };
        let marked = cut.and_then(|()| {
            self.mark(handle, download).map_err(|errno| self.error("sync", path, errno))
        });
        let named = marked.and_then(|()| {
            self.folders()
                .rename(folder, handle.as_fd(), &file.temporary, &file.name, random)
                .map_err(|errno| self.error("name", path, errno))
        });
        if let Err(error) = named {
            // With several destinations, another one takes the object.
            self.abandon(file, error.ends_run() && download.place.is_none());
            return Err(error);
        }
        if let Some(journal) = &file.journal {
            let _ = rustix::fs::unlinkat(folder, &journal.name, AtFlags::empty());
        }
        self.sync_folder(folder).map_err(|errno| self.error("sync", path, errno))
    }

    /// Closes a file; removes it unless `keep` is set and a later run can resume it.
    pub fn abandon(&self, file: &OpenFile, keep: bool) {
        // An unnamed file disappears when it is closed.
        if !(keep && file.can_go_on()) {
            parts::remove(file);
        }
    }
}

/// The destination's folder, and its path for messages.
#[derive(Debug, Clone)]
pub struct Root {
    folder: Arc<OwnedFd>,
    typed: Arc<Path>,
}

impl Root {
    /// Opens the destination's folder with [`open_destination`]. Messages name it as it was
    /// `typed`, which may be empty for the current folder.
    ///
    /// # Errors
    /// The errors of [`open_destination`].
    pub fn open(path: &Path, typed: PathBuf) -> Result<Self, Error> {
        open_destination(path).map(|folder| Self { folder: Arc::new(folder), typed: typed.into() })
    }

    /// Opens an existing folder.
    fn present(path: &Path) -> Result<Self, Error> {
        open_folder_at(path).map(|folder| Self { folder: Arc::new(folder), typed: path.into() })
    }

    /// A path below it for messages; the folder itself for an empty path.
    fn place(&self, path: &str) -> String {
        if path.is_empty() {
            let typed = self.typed.display().to_string();
            return if typed.is_empty() { ".".to_owned() } else { typed };
        }
        self.typed.join(path).display().to_string()
    }

    /// An error at a path below it. Permission to create, open or look up a name is a property of
    /// its folder: the error names the folder, and is the same for all names in it.
    fn error(&self, step: &'static str, path: &str, errno: Code) -> FileError {
        let (step, path) = match (step, errno) {
            ("create" | "open folder" | "look up", Code::ACCESS | Code::PERM) => {
                (FOLDER_REFUSES, path.rsplit_once('/').map_or("", |(above, _)| above))
            }
            ("create" | "open folder", Code::NOSPC) if disk::has_no_inode(&self.folder) => {
                (NO_INODE, path)
            }
            _ => (step, path),
        };
        let protection = self.protection(step, path, errno);
        FileError { step, path: self.place(path), errno: errno.into(), protection }
    }
}

/// A file without its final name.
struct NewFile {
    file: OwnedFd,
    /// Its temporary name; empty if it is unnamed.
    temporary: String,
}

impl NewFile {
    fn remove(&self, folder: &OwnedFd) {
        if !self.temporary.is_empty() {
            let _ = rustix::fs::unlinkat(folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// Open folders below the destination, a bounded number of them.
#[derive(Debug, Clone)]
struct Folders {
    root: Root,
    /// Shared with a worker's helpers.
    open: Arc<Mutex<HashMap<String, Arc<OwnedFd>>>>,
    kept_max: usize,
    /// Unnamed files may work here; cleared at the first refusal.
    nameless: bool,
    /// Unnamed files are linked through their descriptors (AT_EMPTY_PATH), not through /proc.
    by_descriptor: bool,
    /// New folders are synced at once.
    sync: bool,
}

impl Folders {
    fn new(root: Root, sync: bool) -> Self {
        let (open, kept_max) = (Arc::default(), FOLDERS_OPEN_MAX);
        Self { root, open, kept_max, nameless: true, by_descriptor: true, sync }
    }

    /// Opens the folder at `path`; `None` if it is missing or behind a link, which is not followed.
    ///
    /// # Errors
    /// If the file system does not say.
    fn find(&mut self, path: &str) -> Result<Option<Arc<OwnedFd>>, FileError> {
        match self.walk(path, open_folder) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if is_nothing(error.errno.named()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the folder at `path`, creating it if needed; the destination itself for an empty path.
    fn open(&mut self, path: &str) -> Result<Arc<OwnedFd>, FileError> {
        let sync = self.sync;
        self.walk(path, |above, name| open_or_make(above, name, sync))
    }

    fn walk(
        &mut self,
        path: &str,
        step: impl Fn(&OwnedFd, &str) -> Result<OwnedFd, Code> + Copy,
    ) -> Result<Arc<OwnedFd>, FileError> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root.folder));
        }
        if let Some(folder) = self.kept().get(path) {
            return Ok(Arc::clone(folder));
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.walk(above, step)?;
        let opened = match step(&above, name) {
            // Out of descriptors: close the cached folders.
            Err(Code::MFILE | Code::NFILE) if !self.kept().is_empty() => {
                self.kept().clear();
                step(&above, name)
            }
            opened => opened,
        };
        let folder = opened.map_err(|errno| {
            let errno = if is_link(&above, name, errno) { Code::LOOP } else { errno };
            self.root.error("open folder", path, errno)
        })?;
        let folder = Arc::new(folder);
        let mut kept = self.kept();
        if kept.len() >= self.kept_max {
            kept.clear();
        }
        kept.insert(path.to_owned(), Arc::clone(&folder));
        drop(kept);
        Ok(folder)
    }

    /// Cached open folders; no call is made while this lock is held.
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Arc<OwnedFd>>> {
        // Each change is one call, so a panic leaves the map whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of `path`, created if needed, and the name in it.
    fn parent<'a>(&mut self, path: &'a str) -> Result<(Arc<OwnedFd>, &'a str), FileError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.open(above)?, name))
    }

    /// Creates a file without its final name.
    fn create(&mut self, folder: &OwnedFd, random: u64, extra: OFlags) -> Result<NewFile, Code> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | extra;
        if self.nameless {
            match rustix::fs::openat(folder, ".", flags | OFlags::TMPFILE, FILE_MODE) {
                Ok(file) => return Ok(NewFile { file, temporary: String::new() }),
                // The file system, or a kernel layer above it, has no unnamed files (open(2)).
                Err(Code::OPNOTSUPP | Code::ISDIR | Code::NOENT | Code::NOSYS) => {
                    self.nameless = false;
                }
                Err(errno) => return Err(errno),
            }
        }
        let temporary = temporary_name(random);
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file =
            rustix::fs::openat(folder, &temporary, flags, FILE_MODE).inspect_err(|errno| {
                // The kernel refuses O_DIRECT only after it has created the file.
                if *errno == Code::INVAL {
                    let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
                }
            })?;
        Ok(NewFile { file, temporary })
    }
}

/// Opens an existing folder by its path as typed.
fn open_folder_at(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        let message = format!("cannot open {}: {errno}", path.display());
        Error::new(ErrorKind::Destination, message)
            .advise("give the local folder")
            .of_call(Some(errno.raw_os_error()))
    })
}

/// True if the error of a look-up means that nothing exists at the path, or can.
fn is_nothing(errno: Code) -> bool {
    matches!(errno, Code::NOENT | Code::NOTDIR | Code::LOOP | Code::NAMETOOLONG)
}

/// Opens a folder without following a link.
fn open_folder(above: &OwnedFd, name: &str) -> Result<OwnedFd, Code> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

/// True if a folder was not opened because it is a link: the kernel only returns ENOTDIR.
fn is_link(above: &OwnedFd, name: &str, errno: Code) -> bool {
    let stat = || rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW);
    errno == Code::NOTDIR
        && stat().is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Opens a folder without following a link; creates it if it is missing.
fn open_or_make(above: &OwnedFd, name: &str, sync: bool) -> Result<OwnedFd, Code> {
    match open_folder(above, name) {
        Err(Code::NOENT) => {}
        outcome => return outcome,
    }
    match rustix::fs::mkdirat(above, name, FOLDER_MODE) {
        Ok(()) if sync => sync_folder(above)?,
        // Another worker created it first.
        Ok(()) | Err(Code::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    open_folder(above, name)
}

/// Syncs the names in a folder.
fn sync_folder(folder: &OwnedFd) -> Result<(), Code> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, ".", flags, Mode::empty())?;
    rustix::fs::fsync(folder)
}

fn write_all(file: &OwnedFd, bytes: &[u8]) -> Result<(), Code> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], done as u64) {
            Ok(0) => return Err(Code::IO),
            Ok(count) => done += count,
            Err(Code::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Allocates a file's blocks; if the file system cannot, only sets its length.
fn allocate(file: &OwnedFd, length: u64) -> Result<(), Code> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
            Err(Code::INTR) => {}
            Err(Code::OPNOTSUPP | Code::NOSYS) => return rustix::fs::ftruncate(file, length),
            outcome => return outcome,
        }
    }
}

/// Opens the destination's folder, creating it and its parents.
///
/// # Errors
/// If it is not a folder, or cannot be created or opened.
pub fn open_destination(path: &Path) -> Result<OwnedFd, Error> {
    make_folders(path).map_err(|error| unusable(path, &error).of_call(error.raw_os_error()))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |errno: Code| unusable(path, &errno).of_call(Some(errno.raw_os_error()));
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    // The current folder may be one that nothing can be created in any more. Some FUSE file systems
    // count no links at all.
    let is_unlinked = rustix::fs::fstat(&folder).map_err(failed)?.st_nlink == 0;
    if is_unlinked && is_deleted(&folder) {
        return Err(unusable(path, &"it was removed"));
    }
    Ok(folder)
}

/// True if the kernel shows an open folder as deleted (proc_pid_fd(5)).
fn is_deleted(folder: &OwnedFd) -> bool {
    let shown = format!("/proc/self/fd/{}", folder.as_raw_fd());
    std::fs::read_link(shown).is_ok_and(|path| path.as_os_str().as_bytes().ends_with(b" (deleted)"))
}

/// Refuses a destination's folder that cannot be created, as far as that is known without creating
/// it.
///
/// # Errors
/// The errors of [`open_destination`].
pub fn require_possible(path: &Path) -> Result<(), Error> {
    disk::what_is_there(path).map_or(Ok(()), |words| Err(unusable(path, &words)))
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    let message = format!("cannot use {}: {why}", path.display());
    Error::new(ErrorKind::Destination, message).advise("give a writable folder")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::file_download::Cut;
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};

    #[expect(clippy::disallowed_methods, reason = "a machine of a test begins now")]
    pub(super) fn machine(folder: &Path) -> SystemHost {
        let root = Root::open(folder, folder.to_owned()).expect("a folder");
        let keys = Arc::new(PublishedKeys::new(None));
        let keeping = Persistence { resume: true, times: true, sync_files: true, boot: 1 };
        SystemHost::new(Instant::now(), 1, Some(root), keys, keeping)
    }

    /// An object at this path, in ranges of 1 MiB unless it is small.
    pub(super) fn object(path: &str, size_bytes: u64) -> FileDownload {
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let part = PartSize::new(1 << 20).expect("aligned");
        let cut = Cut { part, slot_length_bytes: 1 << 16 };
        let (key, etag) = (path.to_owned(), "\"1\"".to_owned());
        let object = Object { key, etag, size_bytes, ..Object::default() };
        FileDownload::new(object, endpoint, path.to_owned(), cut)
    }

    pub(super) fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn small_files_appear_whole_and_replace_older_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        for nameless in [true, false] {
            let mut machine = machine(folder.path());
            machine.folders().nameless = nameless;
            for bytes in [&b"one"[..], b"another", b""] {
                machine.write_whole(&object("a/b/c", 3), bytes).expect("written");
                assert_eq!(std::fs::read(folder.path().join("a/b/c")).expect("there"), bytes);
                assert_eq!(names(&folder.path().join("a/b")), ["c"]);
            }
        }
    }

    #[test]
    fn a_large_file_has_no_name_until_it_is_published() {
        let folder = tempfile::tempdir().expect("a folder");
        for (nameless, resume) in [(true, false), (false, false), (true, true)] {
            let mut machine = machine(folder.path());
            machine.folders().nameless = nameless;
            machine.keeping.resume = resume;
            let file = machine.create(&object("x/large", 10_000)).expect("created");
            assert!(!folder.path().join("x/large").exists());
            machine.publish(&file, &object("x/large", 10_000)).expect("published");
            let length = std::fs::metadata(folder.path().join("x/large")).expect("there").len();
            assert_eq!(length, 10_000);
            let second = machine.create(&object("x/other", 5000)).expect("created");
            machine.abandon(&second, true);
            drop(second);
            assert_eq!(names(&folder.path().join("x")), ["large"]);
            std::fs::remove_file(folder.path().join("x/large")).expect("removed");
        }
    }

    #[test]
    fn links_in_the_destination_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        symlink(outside.path(), folder.path().join("link")).expect("a link");
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "as it was").expect("written");
        symlink(&victim, folder.path().join("file")).expect("a link");
        let mut machine = machine(folder.path());
        let error = machine.write_whole(&object("link/x", 3), b"!").expect_err("refused");
        assert!(Error::from(error).to_string().contains("link"), "names the path");
        assert!(
            machine.create(&object("link/deep/x", 9)).is_err()
                && machine.make_folder("link/y").is_err()
        );
        machine.write_whole(&object("file", 3), b"new").expect("the link itself is replaced");
        assert_eq!(std::fs::read_to_string(&victim).expect("there"), "as it was");
        assert_eq!(names(outside.path()), ["victim"]);
    }

    #[test]
    fn a_replacement_is_not_stopped_by_what_an_earlier_process_left() {
        // In containers every run has the same process ID, and descriptors repeat.
        let folder = tempfile::tempdir().expect("a folder");
        for descriptor in 0..300 {
            let left = format!(".inrush-{:x}-{descriptor}.part", std::process::id());
            std::fs::write(folder.path().join(left), "killed before its rename").expect("written");
        }
        let mut machine = machine(folder.path());
        for bytes in [&b"one"[..], b"two"] {
            machine.write_whole(&object("a", 3), bytes).expect("written");
            assert_eq!(std::fs::read(folder.path().join("a")).expect("there"), bytes);
        }
    }

    #[test]
    fn a_file_and_a_folder_of_one_name_do_not_mix() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut machine = machine(folder.path());
        machine.write_whole(&object("a", 3), b"file").expect("written");
        assert!(machine.write_whole(&object("a/b", 3), b"below").is_err());
        machine.make_folder("c/").expect("made");
        assert!(machine.write_whole(&object("c", 3), b"file").is_err());
        let file = machine.create(&object("c", 5000)).expect("created without a name");
        assert!(machine.publish(&file, &object("x/large", 5000)).is_err());
        assert_eq!(names(folder.path()), ["a", "c"]);
    }
}
