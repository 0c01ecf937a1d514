//! A folder of whole objects that are kept for later: what a mount has read once.
//!
//! An object is a file of the folder, named by where it is served and by its key, with the mark
//! that every complete file has ([`Mark`]): a file without the mark of the wanted version is none.
//! It is written without a name (`O_TMPFILE`) and gets its name when it is whole, so nothing is left
//! of a process that is killed. Several processes may share a folder. The time of a file's last
//! access is that of its last use; those used longest ago go first.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno as Code;

use super::mark::{Identity, MARK_BYTES, MOMENT_BYTES, Mark, Moment};
use super::system_host::marks::{ATTRIBUTE, ATTRIBUTE_SYNCED, boot, changed_ns, moment};
use super::transfer::identity_of;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{
    CACHE_FREE_BYTES_MIN, CACHE_ROOM_SHARE, CACHE_SCAN_SHARE, SYNCS_REMEMBERED_MAX,
};
use crate::s3::{Endpoint, Object};

/// Nobody else may read what was read with this user's rights.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// What tells programs that make backups that the folder is a cache.
const TAG: &str = "CACHEDIR.TAG";
/// See <https://bford.info/cachedir/>.
const TAG_TEXT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # Objects that inrush mount --cache has read. They are fetched again where they are missing.\n";
/// Length of a name: 128 bits in hexadecimal digits, the first two of which are a folder's.
const NAME_DIGITS: usize = 32;
const FOLDER_DIGITS: usize = 2;

/// Which object, in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    name: String,
    identity: Identity,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl Wanted {
    /// An object as it was listed; `None` for one whose version is not known.
    #[must_use]
    pub fn new(endpoint: &Endpoint, object: &Object) -> Option<Self> {
        let identity = identity_of(&endpoint.bucket, object)?;
        let scheme = if endpoint.tls { "https" } else { "http" };
        let Endpoint { host, bucket, .. } = endpoint;
        let place = Identity::of(&[scheme, host, bucket, &object.key, &object.version_id]);
        let name = place.0.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { name, identity, size_bytes: object.size_bytes })
    }

    /// Its folder and its name there.
    fn path(&self) -> (&str, &str) {
        self.name.split_at(FOLDER_DIGITS)
    }
}

/// What the folder holds, as far as this process knows.
#[derive(Debug, Default)]
struct Space {
    /// Bytes of whole objects.
    whole_bytes: u64,
    /// Bytes of objects that this process writes.
    unfinished_bytes: u64,
    /// What came since the folder was last looked through.
    added_bytes: u64,
    /// Objects that were removed to make room.
    evicted: u64,
}

/// The folder.
#[derive(Debug)]
pub struct Cache {
    root: OwnedFd,
    path: PathBuf,
    boot: u64,
    synced: Vec<Moment>,
    bytes_max: u64,
    space: Arc<Mutex<Space>>,
}

/// An object that is being written; it is gone with this.
#[derive(Debug)]
pub struct Unfinished {
    space: Arc<Mutex<Space>>,
    file: OwnedFd,
    wanted: Wanted,
}

/// A whole object.
#[derive(Debug)]
pub struct Found(OwnedFd);

impl Found {
    /// Reads until the buffer is full or the object ends; returns how many bytes that are.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Code> {
        let mut read = 0;
        while read < bytes.len() {
            match rustix::io::pread(&self.0, &mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(Code::INTR) => {}
                Err(code) => return Err(code),
            }
        }
        Ok(read)
    }
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Cache {
    /// Opens the folder, and makes it where it is missing.
    ///
    /// `bytes_max` bounds what is kept [default: what leaves a tenth of the free space].
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if its file system cannot have what a cache needs.
    pub fn open(path: &Path, bytes_max: Option<u64>) -> Result<Self> {
        let failed = |what: &str, code: Code, advice: &str| {
            let message = format!("--cache {}: {what}: {code}", path.display());
            Error::new(ErrorKind::Destination, message).advise(advice.to_owned())
        };
        std::fs::create_dir_all(path).map_err(|error| {
            let message = format!("--cache {}: cannot create it: {error}", path.display());
            Error::new(ErrorKind::Destination, message).advise("name a folder that you may write")
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let writable = "name a folder that you may write";
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|code| failed("cannot open it", code, writable))?;
        let probe = unnamed(&root).map_err(|code| {
            let advice = "name a folder of ext4, XFS, Btrfs or tmpfs that you may write";
            failed("its file system has no unnamed files (O_TMPFILE)", code, advice)
        })?;
        rustix::fs::fsetxattr(&probe, ATTRIBUTE, &[0], XattrFlags::empty()).map_err(|code| {
            let advice = "name a folder of another file system: ext4, XFS and Btrfs have them";
            failed("its file system has no extended attributes", code, advice)
        })?;
        tag(&root);
        let mut cache = Self {
            synced: synced(&root),
            root,
            path: path.to_owned(),
            boot: boot(),
            bytes_max: 0,
            space: Arc::default(),
        };
        let used = cache.look_through().iter().map(|found| found.size_bytes).sum();
        cache.space().whole_bytes = used;
        let free = cache.free_bytes().unwrap_or(u64::MAX);
        cache.bytes_max = bytes_max.unwrap_or_else(|| used.saturating_add(free - free / 10));
        Ok(cache)
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        lock(&self.space)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Objects that this process has removed to make room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.space().evicted
    }

    /// The object, whole and in this version, where it is kept.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Option<Found> {
        let (folder, name) = wanted.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let place = format!("{folder}/{name}");
        let file = rustix::fs::openat(&self.root, place, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let mut bytes = [0; MARK_BYTES];
        let length = rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut bytes[..]).ok()?;
        let mark = Mark::decode(&bytes[..length])?;
        let is_same = is_file(&stat)
            && stat.st_size.unsigned_abs() == wanted.size_bytes
            && mark.size_bytes == wanted.size_bytes
            && mark.identity == wanted.identity
            && mark.changed_ns == changed_ns(&stat)
            && mark.is_believed(self.boot, &self.synced);
        if !is_same {
            return None;
        }
        // Where that is refused it goes sooner than it might.
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let _ = rustix::fs::futimens(&file, &Timestamps { last_access, last_modification });
        Some(Found(file))
    }

    /// Begins to write an object; `None` where there is no room for it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(&self, wanted: &Wanted) -> Result<Option<Unfinished>, Code> {
        if !self.make_room(wanted.size_bytes) {
            return Ok(None);
        }
        let file = unnamed(&self.root)?;
        self.space().unfinished_bytes += wanted.size_bytes;
        let space = Arc::clone(&self.space);
        let unfinished = Unfinished { space, file, wanted: wanted.clone() };
        // In one piece, and then no write fails for want of space.
        let size_bytes = wanted.size_bytes;
        let none = FallocateFlags::empty();
        match rustix::fs::fallocate(&unfinished.file, none, 0, size_bytes) {
            Err(Code::NOSPC | Code::DQUOT) => Ok(None),
            // A file system without it allocates when it is written.
            _ => Ok(Some(unfinished)),
        }
    }

    /// Sees that there is room for so many bytes more, within the bound and on the disk: what was
    /// used longest ago goes. False where there is none.
    fn make_room(&self, wanted_bytes: u64) -> bool {
        if wanted_bytes > self.bytes_max {
            return false;
        }
        let mut space = self.space();
        let is_recent = space.added_bytes <= self.bytes_max / CACHE_SCAN_SHARE;
        if is_recent && self.lacking_bytes(&space, wanted_bytes) == 0 {
            return true;
        }
        // Others may share it, and may have removed or added much.
        let found = self.look_through();
        space.whole_bytes = found.iter().map(|found| found.size_bytes).sum();
        space.added_bytes = 0;
        let lacking = self.lacking_bytes(&space, wanted_bytes);
        if lacking > 0 {
            // More than that, so that not every object looks through all.
            let mut left = lacking + self.bytes_max / CACHE_ROOM_SHARE;
            for oldest in &found {
                if left == 0 {
                    break;
                }
                if rustix::fs::unlinkat(&self.root, &oldest.path, AtFlags::empty()).is_ok() {
                    left = left.saturating_sub(oldest.size_bytes);
                    space.whole_bytes -= oldest.size_bytes;
                    space.evicted += 1;
                }
            }
        }
        self.lacking_bytes(&space, wanted_bytes) == 0
    }

    /// How many bytes have to go so that there is room for so many.
    fn lacking_bytes(&self, space: &Space, wanted_bytes: u64) -> u64 {
        let used = space.whole_bytes + space.unfinished_bytes + wanted_bytes;
        let free = self.free_bytes().unwrap_or(u64::MAX);
        let on_disk = wanted_bytes.saturating_add(CACHE_FREE_BYTES_MIN).saturating_sub(free);
        used.saturating_sub(self.bytes_max).max(on_disk)
    }

    /// Bytes that this user may still write to the file system; `None` where it does not say.
    fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.root).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// All whole objects, those used longest ago first. What cannot be read is passed over.
    fn look_through(&self) -> BTreeSet<Kept> {
        let mut kept = BTreeSet::new();
        for folder in names(&self.root, FOLDER_DIGITS) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&self.root, &folder, flags, Mode::empty());
            let Ok(opened) = opened else { continue };
            for name in names(&opened, NAME_DIGITS - FOLDER_DIGITS) {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let Ok(stat) = rustix::fs::statat(&opened, &name, flags) else { continue };
                if is_file(&stat) {
                    let used_at = (stat.st_atime, stat.st_atime_nsec);
                    let size_bytes = stat.st_size.unsigned_abs();
                    kept.insert(Kept { used_at, size_bytes, path: format!("{folder}/{name}") });
                }
            }
        }
        kept
    }

    /// Has the disk take all that was kept until now, so that a power failure does not take it.
    ///
    /// # Errors
    /// When the device did not take the bytes.
    pub fn sync(&self) -> Result<(), Code> {
        let now = moment(self.boot);
        rustix::fs::syncfs(&self.root)?;
        let mut moments = synced(&self.root);
        moments.retain(|sync| sync.boot != now.boot);
        moments.truncate(SYNCS_REMEMBERED_MAX - 1);
        moments.insert(0, now);
        let bytes: Vec<u8> = moments.iter().flat_map(|sync| sync.encode()).collect();
        rustix::fs::fsetxattr(&self.root, ATTRIBUTE_SYNCED, &bytes, XattrFlags::empty())?;
        rustix::fs::fsync(&self.root)
    }
}

impl Unfinished {
    /// Writes these bytes at this offset.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        write_all_at(&self.file, bytes, offset)
    }

    /// Gives it its name, now that all of its bytes are written. One that is there in this version
    /// stays.
    ///
    /// # Errors
    /// What the file system says.
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
        let place = format!("{folder}/{name}");
        if self.link(cache, &place) == Err(Code::EXIST) {
            if cache.find(&self.wanted).is_some() {
                return Ok(());
            }
            // Another version. Whoever has it open goes on to read it.
            match rustix::fs::unlinkat(&cache.root, &place, AtFlags::empty()) {
                Ok(()) | Err(Code::NOENT) => {}
                Err(code) => return Err(code),
            }
            match self.link(cache, &place) {
                // Somebody else was faster.
                Ok(()) | Err(Code::EXIST) => {}
                Err(code) => return Err(code),
            }
        }
        let mut space = cache.space();
        space.whole_bytes += size_bytes;
        space.added_bytes += size_bytes;
        Ok(())
    }

    fn link(&self, cache: &Cache, place: &str) -> Result<(), Code> {
        use std::os::fd::AsRawFd as _;
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, unnamed, &cache.root, place, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        lock(&self.space).unfinished_bytes -= self.wanted.size_bytes;
    }
}

fn lock(space: &Mutex<Space>) -> MutexGuard<'_, Space> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A whole object that is kept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// Seconds and nanoseconds of the epoch.
    used_at: (i64, u64),
    path: String,
    size_bytes: u64,
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// A file without a name in this folder.
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

/// Tells programs that make backups what the folder is, where that is not told yet.
fn tag(root: &OwnedFd) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(root, TAG, flags, FILE_MODE) {
        // Nothing depends on it.
        let _ = write_all_at(&file, TAG_TEXT, 0);
    }
}

/// When everything in the folder had been synced.
fn synced(root: &OwnedFd) -> Vec<Moment> {
    let mut bytes = [0; SYNCS_REMEMBERED_MAX * MOMENT_BYTES];
    let read = rustix::fs::fgetxattr(root, ATTRIBUTE_SYNCED, &mut bytes[..]).unwrap_or(0);
    bytes[..read].chunks_exact(MOMENT_BYTES).filter_map(Moment::decode).collect()
}

/// The names in a folder that are so many hexadecimal digits.
fn names(folder: &impl AsFd, digits: usize) -> Vec<String> {
    let Ok(entries) = Dir::read_from(folder) else { return Vec::new() };
    let names = entries.filter_map(std::result::Result::ok);
    let names = names.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
    names
        .filter(|name| name.len() == digits && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(cache.space().unfinished_bytes, 0);
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
        assert_eq!(cache.look_through().len(), 0, "nothing is left");
        assert!(keep(&cache, &whole, 1));
        let file = folder.path().join(&cache.look_through().first().expect("one").path);
        // Bytes that somebody else has written.
        let opened = rustix::fs::open(&file, OFlags::WRONLY, Mode::empty()).expect("it is there");
        write_all_at(&opened, &[9], 3).expect("room");
        assert_eq!(read(&cache, &whole), None);
        // Where it is not sure that a power failure has left the bytes.
        assert!(keep(&cache, &whole, 1));
        let mut later = open(folder.path(), 1 << 20);
        later.boot += 1;
        assert_eq!(read(&later, &whole), None);
        std::thread::sleep(std::time::Duration::from_millis(3));
        cache.sync().expect("a sync");
        later.synced = synced(&later.root);
        assert_eq!(read(&later, &whole), Some(vec![1; 100]), "it was synced after it was kept");
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = open(folder.path(), 1000);
        let objects: Vec<Wanted> = (0..3).map(|n| wanted(&n.to_string(), "1", 300)).collect();
        for (byte, object) in (0..).zip(&objects) {
            assert!(keep(&cache, object, byte));
        }
        // Used in this order, whatever the clock's steps are.
        for (object, seconds) in objects.iter().zip([200, 100, 300]) {
            let file = cache.find(object).expect("it is kept");
            let last_access = Timespec { tv_sec: seconds, tv_nsec: 0 };
            let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access, last_modification };
            rustix::fs::futimens(&file, &times).expect("its owner may");
        }
        let next = wanted("next", "1", 300);
        assert!(keep(&cache, &next, 7));
        assert_eq!(cache.find(&objects[1]).map(drop), None, "the oldest");
        assert!(cache.find(&objects[0]).is_some() && cache.find(&objects[2]).is_some());
        assert_eq!((read(&cache, &next), cache.evicted()), (Some(vec![7; 300]), 1));
        assert!(!keep(&cache, &wanted("large", "1", 1001), 1), "larger than all");
        assert_eq!(cache.look_through().len(), 3);
        // What another process has added counts.
        let other = open(folder.path(), 5000);
        for number in 0..4 {
            assert!(keep(&other, &wanted(&format!("other{number}"), "1", 900), 3));
        }
        assert!(keep(&cache, &wanted("last", "1", 300), 4));
        assert!(keep(&cache, &wanted("last2", "1", 300), 4));
        let bytes: u64 = cache.look_through().iter().map(|kept| kept.size_bytes).sum();
        assert!(bytes <= 1000, "{bytes}");
    }
}
