//! The on-disk cache of a mount: whole objects that were read before.
//!
//! Each object is one file. Its name is a digest of the server's address, the bucket, the key and
//! the version; its attribute holds the [`Mark`] that every complete file has. A file without the
//! mark of the wanted version is not used and never removed. An object is written to an unnamed
//! file (`O_TMPFILE`) and linked when it is whole, so a killed process leaves nothing behind.
//! Several processes of one user may share a folder; files that other users may write are not used.
//! A file's access time approximates its last use, and the least recently used files are evicted
//! first.

mod room;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno as Code;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use self::room::{Room, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_download::identity_of;
use crate::files::mark::{Identity, MARK_BYTES, Mark, Moment};
use crate::files::system_host::{
    ATTRIBUTE, boot, changed_ns, link_unnamed, moment, moment_of_sync, note_synced, synced,
};
use crate::limits::CACHE_USED_PERIOD;
use crate::s3::{Endpoint, Object};
use crate::sys::descriptor::is_ours;

/// Only the owner may read what was read with the owner's credentials.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Flags to open a file of any type for reading.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Mode bits that let other users write to a folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// File that marks the folder as a cache for backup programs.
const TAG: &str = "CACHEDIR.TAG";
/// See <https://bford.info/cachedir/>.
const TAG_TEXT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # Objects that inrush mount --cache has read. They are fetched again where they are missing.\n";
/// Length of a name: 128 bits in hexadecimal digits, the first two of which are a folder's.
const NAME_DIGITS: usize = 32;
const FOLDER_DIGITS: usize = 2;

/// An object in one version, and its place in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Path in the cache: folder (the first digits of the name), slash, rest of the name.
    path: String,
    identity: Identity,
    /// Size in bytes.
    pub size_bytes: u64,
}

impl Wanted {
    /// From a listed object. `None` if it is not cached: without an ETag versions cannot be
    /// distinguished, and an object encrypted with a customer's key must not be stored in the
    /// clear.
    #[must_use]
    pub fn new(endpoint: &Endpoint, object: &Object) -> Option<Self> {
        if object.etag.is_empty() || endpoint.headers.has_customer_key() {
            return None;
        }
        let identity = identity_of(&endpoint.bucket, object)?;
        let scheme = if endpoint.tls { "https" } else { "http" };
        let Endpoint { host, bucket, .. } = endpoint;
        let place = Identity::of(&[scheme, host, bucket, &object.key, &object.version_id]);
        let mut path = format!("{:0width$x}", u128::from_be_bytes(place.0), width = NAME_DIGITS);
        path.insert(FOLDER_DIGITS, '/');
        Some(Self { path, identity, size_bytes: object.size_bytes })
    }

    /// Folder, and name in it.
    fn path(&self) -> (&str, &str) {
        self.path.split_once('/').expect("it has a folder")
    }
}

/// The cache's folder.
#[derive(Debug)]
pub struct Cache {
    root: OwnedFd,
    path: PathBuf,
    boot: u64,
    synced: Mutex<Vec<Moment>>,
    room: Room,
}

/// An object that is being written; dropping it discards the file.
#[derive(Debug)]
pub struct Unfinished {
    file: OwnedFd,
    wanted: Wanted,
    /// Released after the file is closed.
    _taken: Taken,
}

/// A whole cached object, opened.
#[derive(Debug)]
pub struct CachedObject {
    file: OwnedFd,
    size_bytes: u64,
}

impl CachedObject {
    /// Reads until the buffer is full or the object ends; returns the number of bytes read.
    ///
    /// # Errors
    /// The file system's error; `EIO` if the file has become shorter.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Code> {
        let rest = self.size_bytes.saturating_sub(offset);
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes.len());
        let mut read = 0;
        while read < length {
            match rustix::io::pread(&self.file, &mut bytes[read..length], offset + read as u64) {
                Ok(0) => return Err(Code::IO),
                Ok(count) => read += count,
                Err(Code::INTR) => {}
                Err(code) => return Err(code),
            }
        }
        Ok(read)
    }
}

impl AsFd for CachedObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Cache {
    /// Opens the folder, creating it if needed. `bytes_max` bounds the size of the cache [default:
    /// nine tenths of the bytes cached now plus the free space].
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if the folder has other files, if other users may write it, or if
    /// its file system lacks unnamed files or extended attributes.
    pub fn open(path: &Path, bytes_max: Option<u64>) -> Result<Self> {
        let refused = |why: &str, advice: &str| {
            let message = format!("--cache {}: {why}", path.display());
            Error::new(ErrorKind::Destination, message).advise(advice.to_owned())
        };
        let failed = |what: &str, code: Code, advice: &str| {
            refused(&format!("{what}: {code}"), advice).of_call(Some(code.raw_os_error()))
        };
        let writable = "name a folder that you may write";
        let root = open_root(path).map_err(|code| failed("cannot open it", code, writable))?;
        let stat = rustix::fs::fstat(&root).map_err(|code| failed("stat", code, writable))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            let advice = "name a folder of yours, and let nobody else write it (chmod go-w)";
            return Err(refused("other users may write it", advice));
        }
        if !is_tagged(&root) && !is_empty(&root) {
            return Err(refused("it has other files", "name an empty folder, or a new one"));
        }
        let probe = unnamed(&root).map_err(|code| match code {
            Code::OPNOTSUPP | Code::ISDIR | Code::INVAL | Code::NOENT => {
                let advice = "name a folder of ext4, XFS, Btrfs or tmpfs";
                failed("its file system has no unnamed files (O_TMPFILE)", code, advice)
            }
            code => failed("cannot write to it", code, writable),
        })?;
        let put = rustix::fs::fsetxattr(&probe, ATTRIBUTE, &[0], XattrFlags::empty());
        put.map_err(|code| {
            let advice = "name a folder of another file system: ext4, XFS and Btrfs have them";
            failed("its file system has no extended attributes", code, advice)
        })?;
        tag(&root);
        let room = Room::new(&root, bytes_max);
        let synced = Mutex::new(synced(&root));
        Ok(Self { root, path: path.to_owned(), boot: boot(), synced, room })
    }

    fn synced(&self) -> MutexGuard<'_, Vec<Moment>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the folder was removed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.root).is_ok_and(|ours| ours.st_nlink == 0)
    }

    /// Why nothing can be cached at all, in words; `None` if something is or may be.
    #[must_use]
    pub fn why_empty(&self) -> Option<String> {
        self.room.why_empty(&self.root)
    }

    /// Why there is no room for an object of `size_bytes`, in words.
    #[must_use]
    pub fn why_no_room(&self, size_bytes: u64) -> String {
        self.room.why_none(&self.root, size_bytes)
    }

    /// Objects that this process has evicted.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.room.evicted()
    }

    /// Opens the object if it is cached whole and in this version.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Option<CachedObject> {
        let (file, stat, mark) = marked(&self.root, &wanted.path)?;
        let is_same = stat.st_size.unsigned_abs() == wanted.size_bytes
            && mark.size_bytes == wanted.size_bytes
            && mark.identity == wanted.identity
            && mark.changed_ns == changed_ns(&stat)
            && mark.is_believed(self.boot, &self.synced());
        if !is_same {
            return None;
        }
        if !was_used_lately(&stat) {
            // A refusal is harmless: the file is evicted sooner.
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let _ = rustix::fs::futimens(&file, &Timestamps { last_access, last_modification });
        }
        Some(CachedObject { file, size_bytes: wanted.size_bytes })
    }

    /// Begins to write an object; `None` if there is no room for it.
    ///
    /// # Errors
    /// The file system's error.
    pub fn begin(&self, wanted: &Wanted) -> Result<Option<Unfinished>, Code> {
        let Some(taken) = self.room.take(&self.root, wanted.size_bytes) else { return Ok(None) };
        let file = unnamed(&self.root)?;
        Ok(Some(Unfinished { file, wanted: wanted.clone(), _taken: taken }))
    }

    /// Syncs the file system, so that cached objects survive a power failure.
    ///
    /// # Errors
    /// If the device did not take the bytes; then unsynced objects are removed.
    pub fn sync(&self) -> Result<(), Code> {
        let now = moment_of_sync(self.boot);
        if let Err(code) = rustix::fs::syncfs(&self.root) {
            self.forget_unsynced();
            return Err(code);
        }
        *self.synced() = note_synced(&self.root, now)?;
        rustix::fs::fsync(&self.root)
    }

    /// Removes the objects that no sync has covered: their bytes may be missing at the next read.
    fn forget_unsynced(&self) {
        let synced = self.synced().clone();
        room::each(&self.root, |_, folder, name| {
            let no_boot = self.boot.wrapping_add(1);
            if marked(folder, name).is_some_and(|(_, _, mark)| !mark.is_believed(no_boot, &synced))
            {
                let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            }
        });
    }
}

impl Unfinished {
    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        write_all_at(&self.file, bytes, offset)
    }

    /// Links the file under its name once all bytes are written. An existing file of this version
    /// stays.
    ///
    /// # Errors
    /// The file system's error.
    pub fn keep(&self, cache: &Cache) -> Result<(), Code> {
        let Wanted { identity, size_bytes, .. } = self.wanted;
        let stat = rustix::fs::fstat(&self.file)?;
        if stat.st_size.unsigned_abs() != size_bytes {
            return Err(Code::IO);
        }
        let mark = Mark {
            size_bytes,
            identity,
            changed_ns: changed_ns(&stat),
            moment: moment(cache.boot),
            durable: false,
            verdict: 0,
        };
        rustix::fs::fsetxattr(&self.file, ATTRIBUTE, &mark.encode(), XattrFlags::empty())?;
        let (folder, name) = self.wanted.path();
        match rustix::fs::mkdirat(&cache.root, folder, FOLDER_MODE) {
            Ok(()) | Err(Code::EXIST) => {}
            Err(code) => return Err(code),
        }
        let folder = folder_of(&cache.root, folder)?;
        if link_unnamed(self.file.as_fd(), &folder, name) == Err(Code::EXIST) {
            if cache.find(&self.wanted).is_some() {
                return Ok(());
            }
            // A file of another version. Readers that have it open can continue.
            match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Code::NOENT) => {}
                Err(code) => return Err(code),
            }
            match link_unnamed(self.file.as_fd(), &folder, name) {
                // Another process linked its file first.
                Ok(()) | Err(Code::EXIST) => {}
                Err(code) => return Err(code),
            }
        }
        cache.room.add(&cache.root, size_bytes);
        Ok(())
    }
}

/// Opens the cache's folder; creates it for its owner only.
fn open_root(path: &Path) -> Result<OwnedFd, Code> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(FOLDER_MODE.bits()).create(path);
    made.map_err(|error| Code::from_io_error(&error).unwrap_or(Code::IO))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Opens a subfolder without following links.
fn folder_of(root: &OwnedFd, name: &str) -> Result<OwnedFd, Code> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, name, flags, Mode::empty())
}

/// Opens a file without following links.
fn opened(root: &OwnedFd, path: &str) -> Result<OwnedFd, Code> {
    let no_links = ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(root, path, FILE_FLAGS, Mode::empty(), no_links) {
        // Some sandboxes refuse unknown system calls.
        Err(Code::NOSYS | Code::PERM) => opened_in_steps(root, path),
        opened => opened,
    }
}

fn opened_in_steps(root: &OwnedFd, path: &str) -> Result<OwnedFd, Code> {
    let Some((folder, name)) = path.split_once('/') else {
        return rustix::fs::openat(root, path, FILE_FLAGS, Mode::empty());
    };
    rustix::fs::openat(folder_of(root, folder)?, name, FILE_FLAGS, Mode::empty())
}

/// Opens a file of this user that has a mark; `None` if there is none.
fn marked(root: &OwnedFd, path: &str) -> Option<(OwnedFd, Stat, Mark)> {
    let file = opened(root, path).ok()?;
    let stat = rustix::fs::fstat(&file).ok().filter(is_ours)?;
    let mut bytes = [0; MARK_BYTES];
    let length = rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut bytes[..]).ok()?;
    Some((file, stat, Mark::decode(&bytes[..length])?))
}

/// True if the access time is recent enough not to be updated.
fn was_used_lately(stat: &Stat) -> bool {
    let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let lately = 0..i64::try_from(CACHE_USED_PERIOD.as_secs()).expect("short");
    lately.contains(&now.saturating_sub(stat.st_atime))
}

/// True if the folder has the tag of an inrush cache.
fn is_tagged(root: &OwnedFd) -> bool {
    let Ok(file) = opened(root, TAG) else { return false };
    let mut text = [0; TAG_TEXT.len() + 1];
    let read = rustix::io::pread(&file, &mut text, 0);
    read.is_ok_and(|length| &text[..length] == TAG_TEXT)
}

/// True if the folder has no entries but those that a file system creates.
fn is_empty(root: &OwnedFd) -> bool {
    Dir::read_from(root).is_ok_and(|entries| {
        let names = entries.filter_map(std::result::Result::ok);
        names
            .into_iter()
            .all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".." | b"lost+found"))
    })
}

/// Creates an unnamed file in this folder.
fn unnamed(folder: &OwnedFd) -> Result<OwnedFd, Code> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(folder, ".", flags, FILE_MODE)
}

fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Code> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Code::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Code::INTR) => {}
            Err(code) => return Err(code),
        }
    }
    Ok(())
}

/// Creates the tag that backup programs look for, unless a file of its name exists. It is synced
/// before it has its name, and before any other file has one: a folder with files and without the
/// whole tag is no cache to the next mount, which would refuse it after a power failure.
fn tag(root: &OwnedFd) {
    if is_tagged(root) {
        return;
    }
    let made = unnamed(root).and_then(|file| {
        write_all_at(&file, TAG_TEXT, 0)?;
        rustix::fs::fsync(&file)?;
        link_unnamed(file.as_fd(), root, TAG)?;
        rustix::fs::fsync(root)
    });
    // Without it this mount can work.
    let _ = made;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disk space of the smallest file.
    const BLOCK: u64 = 4096;

    fn object(key: &str, etag: &str, size_bytes: u64) -> Object {
        Object { key: key.to_owned(), etag: etag.to_owned(), size_bytes, ..Object::default() }
    }

    fn wanted(key: &str, etag: &str, size_bytes: u64) -> Wanted {
        let endpoint = Endpoint::new("bucket", false, "host", "/", "us-east-1", vec![]);
        Wanted::new(&endpoint, &object(key, etag, size_bytes)).expect("a version")
    }

    fn keep(cache: &Cache, wanted: &Wanted, byte: u8) -> bool {
        let Some(unfinished) = cache.begin(wanted).expect("it can be written") else {
            return false;
        };
        let bytes = vec![byte; usize::try_from(wanted.size_bytes).expect("short")];
        unfinished.write(&bytes, 0).expect("room");
        unfinished.keep(cache).expect("a name");
        true
    }

    fn read(cache: &Cache, wanted: &Wanted) -> Option<Vec<u8>> {
        let file = cache.find(wanted)?;
        let mut bytes = vec![0; usize::try_from(wanted.size_bytes).expect("short") + 1];
        let read = file.read(&mut bytes, 0).expect("all of it");
        bytes.truncate(read);
        Some(bytes)
    }

    fn open(folder: &Path, bytes_max: u64) -> Cache {
        Cache::open(folder, Some(bytes_max)).expect("a cache")
    }

    #[test]
    fn what_is_kept_is_found_in_its_version_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new");
        let cache = open(&path, 1 << 20);
        let first = wanted("a", "1", 100);
        assert_eq!(read(&cache, &first), None);
        assert!(keep(&cache, &first, 1));
        assert_eq!(read(&cache, &first), Some(vec![1; 100]));
        for other in [wanted("a", "2", 100), wanted("b", "1", 100), wanted("a", "1", 99)] {
            assert_eq!(read(&cache, &other), None, "{other:?}");
        }
        // Another process, and the next version.
        let cache = open(&path, 1 << 20);
        assert_eq!(read(&cache, &first), Some(vec![1; 100]));
        let second = wanted("a", "2", 100);
        assert!(keep(&cache, &second, 2));
        assert_eq!((read(&cache, &first), read(&cache, &second)), (None, Some(vec![2; 100])));
        assert!(keep(&cache, &second, 2), "once more");
        assert_eq!(cache.room.unfinished_bytes(), 0);
        assert!(path.join(TAG).exists());
    }

    #[test]
    fn what_is_not_whole_or_was_changed_is_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 1 << 20);
        let whole = wanted("a", "1", 100);
        let unfinished = cache.begin(&whole).expect("it can be written").expect("room");
        unfinished.write(&[1; 50], 0).expect("room");
        drop(unfinished);
        assert_eq!(read(&cache, &whole), None);
        assert_eq!(room::look_through(&cache.root, 9).1.len(), 0, "nothing is left");
        assert!(keep(&cache, &whole, 1));
        let (place, name) = whole.path();
        let file = folder.path().join(place).join(name);
        // The clock must have ticked since the object was cached.
        std::thread::sleep(std::time::Duration::from_millis(30));
        // Bytes that another process has written.
        let opened = rustix::fs::open(&file, OFlags::WRONLY, Mode::empty()).expect("it is there");
        write_all_at(&opened, &[9], 3).expect("room");
        assert_eq!(read(&cache, &whole), None);
        // After a reboot, unsynced bytes may be lost.
        assert!(keep(&cache, &whole, 1));
        let mut later = open(folder.path(), 1 << 20);
        later.boot += 1;
        assert_eq!(read(&later, &whole), None);
        cache.sync().expect("a sync");
        later.synced = Mutex::new(synced(&later.root));
        assert_eq!(read(&later, &whole), Some(vec![1; 100]), "it was synced after it was kept");
    }

    /// Access time in seconds since the Epoch.
    fn used_at(file: &CachedObject) -> i64 {
        rustix::fs::fstat(file).expect("it is open").st_atime
    }

    fn set_used_at(file: &CachedObject, seconds: i64) {
        let last_access = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification };
        rustix::fs::futimens(file, &times).expect("its owner may");
    }

    #[test]
    fn a_use_is_noted_once_in_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 1 << 20);
        let object = wanted("a", "1", 100);
        assert!(keep(&cache, &object, 1));
        let find = || cache.find(&object).expect("it is kept");
        let (period, now) = (CACHE_USED_PERIOD.as_secs().cast_signed(), used_at(&find()));
        // The clock may have been set back, too.
        for (ago, is_noted) in [(period / 2, false), (period + 1, true), (-period, true)] {
            set_used_at(&find(), now - ago);
            let noted = used_at(&find());
            assert_eq!(noted != now - ago, is_noted, "{ago}");
            assert!(!is_noted || noted >= now, "{ago}");
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 100 * BLOCK);
        let objects: Vec<Wanted> =
            (0..3).map(|n| wanted(&n.to_string(), "1", 30 * BLOCK)).collect();
        for (byte, object) in (0..).zip(&objects) {
            assert!(keep(&cache, object, byte));
        }
        // Sets the order of use, whatever the clock's resolution.
        for (object, seconds) in objects.iter().zip([200, 100, 300]) {
            set_used_at(&cache.find(object).expect("it is kept"), seconds);
        }
        let next = wanted("next", "1", 30 * BLOCK);
        assert!(keep(&cache, &next, 7));
        assert_eq!(cache.find(&objects[1]).map(drop), None, "the oldest");
        assert!(cache.find(&objects[0]).is_some() && cache.find(&objects[2]).is_some());
        assert_eq!((read(&cache, &next), cache.evicted()), (Some(vec![7; 30 * 4096]), 1));
        assert!(!keep(&cache, &wanted("large", "1", 101 * BLOCK), 1), "larger than all");
        assert_eq!(room::look_through(&cache.root, 9).1.len(), 3);
        // Objects that another process has added count.
        let other = open(folder.path(), 500 * BLOCK);
        for number in 0..4 {
            assert!(keep(&other, &wanted(&format!("other{number}"), "1", 90 * BLOCK), 3));
        }
        assert!(keep(&cache, &wanted("last", "1", 30 * BLOCK), 4));
        assert!(keep(&cache, &wanted("last2", "1", 30 * BLOCK), 4));
        let bytes = room::look_through(&cache.root, 0).0;
        assert!(bytes <= 100 * BLOCK, "{bytes}");
    }

    #[test]
    fn files_that_are_not_its_own_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        // Named like files of other programs.
        let other = folder.path().join("ab").join("0123456789abcdef0123456789abcd");
        std::fs::create_dir(folder.path().join("ab")).expect("a folder");
        std::fs::write(&other, [1; 100_000]).expect("room");
        let error = Cache::open(folder.path(), None).expect_err("not a cache");
        assert!(error.to_string().contains("it has other files"), "{error}");
        assert!(!folder.path().join(TAG).exists(), "it is not marked as one");
        std::fs::remove_dir_all(folder.path().join("ab")).expect("it goes");
        let cache = open(folder.path(), 10 * BLOCK);
        std::fs::create_dir(folder.path().join("ab")).expect("a folder");
        std::fs::write(&other, [1; 100_000]).expect("room");
        for number in 0..20 {
            assert!(keep(&cache, &wanted(&number.to_string(), "1", BLOCK), 1));
        }
        assert!(other.exists() && cache.evicted() > 0);
        // Anyone who can write to it could replace what is served.
        let mode = Mode::from_raw_mode(0o777);
        rustix::fs::fchmod(&cache.root, mode).expect("its owner may");
        let error = Cache::open(folder.path(), None).expect_err("anybody's");
        assert!(error.to_string().contains("other users may write it"), "{error}");
    }

    #[test]
    fn a_link_leads_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let elsewhere = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 1 << 20);
        let object = wanted("a", "1", 100);
        let place = folder.path().join(object.path().0);
        std::os::unix::fs::symlink(elsewhere.path(), &place).expect("a link");
        let unfinished = cache.begin(&object).expect("it can be written").expect("room");
        unfinished.write(&[1; 100], 0).expect("room");
        assert_eq!(unfinished.keep(&cache), Err(Code::NOTDIR));
        assert_eq!(std::fs::read_dir(elsewhere.path()).expect("a folder").count(), 0);
        assert_eq!(read(&cache, &object), None);
        // Links that the kernel could follow, and a file that is itself a link.
        let other = wanted("b", "1", 100);
        assert!(keep(&cache, &other, 1));
        let file = folder.path().join(&other.path);
        let (there, name) = (elsewhere.path().join("file"), object.path().1);
        std::fs::rename(&file, &there).expect("the same disk");
        std::os::unix::fs::symlink(&there, &file).expect("a link");
        std::fs::hard_link(&there, elsewhere.path().join(name)).expect("the same disk");
        for path in [&object.path, &other.path] {
            assert!(folder.path().join(path).exists());
            for open in [opened, opened_in_steps] {
                let found = open(&cache.root, path).map(drop);
                assert!(matches!(found, Err(Code::LOOP | Code::NOTDIR)), "{path}: {found:?}");
            }
        }
        // A file that has a second name outside does not count either.
        std::fs::remove_file(&file).expect("the link");
        std::fs::hard_link(&there, &file).expect("the same disk");
        assert_eq!(read(&cache, &other), None);
    }

    #[test]
    fn what_a_failed_sync_may_have_lost_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 1 << 20);
        let [first, second] = ["a", "b"].map(|key| wanted(key, "1", 100));
        assert!(keep(&cache, &first, 1));
        cache.sync().expect("a sync");
        assert!(keep(&cache, &second, 2));
        cache.forget_unsynced();
        assert_eq!((read(&cache, &first), read(&cache, &second)), (Some(vec![1; 100]), None));
    }

    #[test]
    fn versions_that_cannot_be_distinguished_are_not_kept() {
        let endpoint = Endpoint::new("bucket", false, "host", "/", "us-east-1", vec![]);
        let nameless =
            Object { last_modified: "2026-01-01T00:00:00Z".to_owned(), ..object("a", "", 1) };
        assert_eq!(Wanted::new(&endpoint, &nameless), None);
        let key = crate::s3::headers::CustomerKey::from_file(b"0123456789abcdef0123456789ABCDEF");
        let key = key.expect("32 bytes");
        let headers = crate::s3::headers::ExtraHeaders::new(false, Some(&key));
        let secret = Endpoint { headers, ..endpoint };
        assert_eq!(Wanted::new(&secret, &object("a", "1", 1)), None);
    }
}
