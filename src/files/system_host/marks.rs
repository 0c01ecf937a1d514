//! Marks of complete files: set before a file is named, read before an object is fetched again.
//!
//! A mark is an extended attribute. It is stored in the file's inode, so it costs one system call
//! and no block, and it lives as long as the file. If the file system refuses attributes, marks go
//! into one index file at the destination.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags};
use rustix::fs::{UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno as Code;
use rustix::process::geteuid;

use super::{FILE_MODE, SystemHost, is_nothing, write_all};
use crate::error::{Error, ErrorKind};
use crate::files::file_download::FileDownload;
use crate::files::host::FileError;
use crate::files::mark::{self, Identity, MARK_BYTES, MOMENT_BYTES, Mark, Moment};
use crate::limits::{INDEX_BYTES_MAX, SYNCS_REMEMBERED_MAX};
use crate::sys::descriptor::is_ours;

/// Attribute of a complete file.
pub const ATTRIBUTE: &str = "user.inrush";
/// Attribute of a destination: the moments when everything in it was synced.
const ATTRIBUTE_SYNCED: &str = "user.inrush.synced";
/// Replaces both attributes if the file system refuses them.
const INDEX: &str = ".inrush-index";

/// What is at an object's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// Nothing, or a folder.
    Absent,
    /// Not this object in this version, as far as is known.
    Other,
    /// A file of the object's size that never had a mark: inrush did not write it in this form.
    Unmarked {
        /// Its modification time is the object's, to the second.
        same_time: bool,
    },
    /// This object, whole.
    Same,
    /// A file of the object's size whose mark or times match this object, but which another user
    /// may have written, so they do not count ([`is_ours`]).
    Foreign,
}

/// What earlier runs stored about the destination as a whole.
#[derive(Debug, Default)]
pub(super) struct Memory {
    synced: Vec<Moment>,
    index: HashMap<Identity, Mark>,
    /// The index belongs to another user: it is neither read nor written.
    index_is_foreign: bool,
    /// Files without a mark never had one. A power failure may lose records of the index, and the
    /// bytes of their files, too.
    lacks_no_mark: bool,
}

/// The mark of a file, from its attribute or the index.
pub(super) enum FoundMark {
    Mark(Mark),
    /// None, and none was lost.
    None,
    /// An unreadable mark, or perhaps a lost one.
    Unknown,
}

/// Digest of the kernel's boot ID; a random value if it cannot be read.
#[must_use]
pub fn boot() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map_or_else(|_| RandomState::new().hash_one(0), |text| digest(text.trim()))
}

/// 64-bit digest of a text.
pub(super) fn digest(text: &str) -> u64 {
    Identity::of(&[text]).short()
}

/// The current time of a clock that restarts at boot.
pub fn moment(boot: u64) -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    Moment { boot, since_ms: u64::try_from(ms).unwrap_or(0) }
}

/// A moment for a sync that begins now, later than that of every mark so far. It waits for the next
/// millisecond: a mark in the millisecond of a sync may be later than the sync.
pub fn moment_of_sync(boot: u64) -> Moment {
    std::thread::sleep(Duration::from_millis(1));
    moment(boot)
}

/// Space that replacing a file frees: its allocated blocks, or its length if the file system
/// compresses it, since new files are counted by length. Hard links share it.
fn space_bytes(stat: &Stat) -> u64 {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return 0;
    }
    let allocated = stat.st_blocks.unsigned_abs().saturating_mul(512);
    let names = i64::try_from(stat.st_nlink).unwrap_or(1).max(1).unsigned_abs();
    stat.st_size.unsigned_abs().max(allocated).div_ceil(names)
}

/// Modification time of a file, in nanoseconds, to be compared for equality. Beyond the year 2262
/// it wraps around: two times far in the future differ, too.
pub fn changed_ns(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Sets a file's modification time but not its access time (futimens(3)).
fn set_modified(file: &OwnedFd, seconds: i64, nanoseconds: i64) -> Result<(), Code> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    rustix::fs::futimens(file, &Timestamps { last_access, last_modification })
}

/// The moments when everything in a folder was synced.
#[must_use]
pub fn synced(folder: &OwnedFd) -> Vec<Moment> {
    let mut bytes = [0; SYNCS_REMEMBERED_MAX * MOMENT_BYTES];
    let read = rustix::fs::fgetxattr(folder, ATTRIBUTE_SYNCED, &mut bytes[..]).unwrap_or(0);
    bytes[..read].chunks_exact(MOMENT_BYTES).filter_map(Moment::decode).collect()
}

/// Records that everything in a folder was synced at this moment; returns all recorded moments.
///
/// # Errors
/// If its file system refuses attributes.
pub fn note_synced(folder: &OwnedFd, now: Moment) -> Result<Vec<Moment>, Code> {
    let mut moments = synced(folder);
    moments.retain(|sync| sync.boot != now.boot);
    moments.truncate(SYNCS_REMEMBERED_MAX - 1);
    moments.insert(0, now);
    let bytes: Vec<u8> = moments.iter().flat_map(|sync| sync.encode()).collect();
    rustix::fs::fsetxattr(folder, ATTRIBUTE_SYNCED, &bytes, XattrFlags::empty())?;
    Ok(moments)
}

impl SystemHost {
    /// Sets the object's time and a mark on a complete file before it is named, and syncs it if
    /// each file is synced.
    pub(super) fn mark(&mut self, file: &OwnedFd, download: &FileDownload) -> Result<(), Code> {
        let keeping = self.keeping;
        let modified = download.object.listed.modified_seconds().filter(|_| keeping.times);
        // Before the mark, which contains this time. If the file system refuses it, the file keeps
        // the time of its last write.
        let is_timed = modified.is_some_and(|seconds| set_modified(file, seconds, 0).is_ok());
        if let Some(identity) = download.identity() {
            let mut mark = Mark {
                size_bytes: download.object.listed.size_bytes,
                identity,
                changed_ns: changed_ns(&rustix::fs::fstat(file)?),
                moment: moment(keeping.boot),
                durable: keeping.sync_files,
                verdict: download.verification.code(),
            };
            let is_marked = self.put_attribute(file, &mark).is_ok() || {
                mark.changed_ns = Self::own_time(file, modified.filter(|_| is_timed))?;
                self.append_to_index(&mark::index_record(Some(&download.path), &mark)).is_ok()
            };
            if !is_marked && is_timed {
                // Without a mark the object is fetched again, which is slow but correct. Size and
                // time alone would make a later run keep it even if a power failure has lost its
                // bytes.
                set_modified(file, 0, UTIME_NOW)?;
            }
        }
        if keeping.sync_files { rustix::fs::fsync(file) } else { Ok(()) }
    }

    /// Puts a mark on the file at this path, or into the index.
    pub(super) fn put_mark(&mut self, file: &OwnedFd, path: &str, mark: &Mark) -> Result<(), Code> {
        self.put_attribute(file, mark)
            .or_else(|_| self.append_to_index(&mark::index_record(Some(path), mark)))
    }

    fn put_attribute(&mut self, file: &OwnedFd, mark: &Mark) -> Result<(), Code> {
        if self.attributes_refused {
            return Err(Code::OPNOTSUPP);
        }
        let put = rustix::fs::fsetxattr(file, ATTRIBUTE, &mark.encode(), XattrFlags::empty());
        put.inspect_err(|errno| self.attributes_refused = *errno == Code::OPNOTSUPP)
    }

    /// Gives a file whose mark goes into the index a unique time within the object's second. The
    /// index is written before the file is named: with equal times, the record of a run that ended
    /// in between would vouch for the previous file.
    fn own_time(file: &OwnedFd, seconds: Option<i64>) -> Result<i64, Code> {
        if let Some(seconds) = seconds {
            let nanoseconds = fastrand::i64(1..1_000_000_000);
            let is_own = set_modified(file, seconds, nanoseconds).is_ok()
                && rustix::fs::fstat(file)?.st_mtime_nsec != 0;
            if !is_own {
                // The file system stores whole seconds only: use the time of the write.
                set_modified(file, 0, UTIME_NOW)?;
            }
        }
        Ok(changed_ns(&rustix::fs::fstat(file)?))
    }

    /// Syncs a folder in which a file was named, if each file is synced.
    pub(super) fn sync_folder(&self, folder: &OwnedFd) -> Result<(), Code> {
        if !self.keeping.sync_files {
            return Ok(());
        }
        super::sync_folder(folder)
    }

    /// Appends to the index in one write; readers skip a torn record.
    fn append_to_index(&mut self, record: &[u8]) -> Result<(), Code> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let root = &self.folders().root.folder;
        let index = rustix::fs::openat(root, INDEX, flags, FILE_MODE)?;
        let stat = rustix::fs::fstat(&index)?;
        if !is_ours(&stat) {
            return Err(Code::PERM);
        }
        if stat.st_size.unsigned_abs() >= INDEX_BYTES_MAX {
            return Err(Code::FBIG);
        }
        write_all(&index, record)?;
        if !self.index_begun {
            // Sync the first record, so that after a power failure the next run knows that marks
            // may have been lost.
            rustix::fs::fsync(&index)?;
            super::sync_folder(&self.folders().root.folder)?;
            self.index_begun = true;
        }
        if self.keeping.sync_files { rustix::fs::fdatasync(&index) } else { Ok(()) }
    }

    /// Reads what earlier runs stored about the destination; once, before [`Self::look`].
    pub fn remember(&mut self) {
        let named =
            rustix::fs::statat(&self.folders().root.folder, INDEX, AtFlags::SYMLINK_NOFOLLOW);
        let is_absent = matches!(named, Err(Code::NOENT));
        let index_is_foreign = named.is_ok_and(|stat| !is_ours(&stat));
        let synced = self.synced();
        let mut memory = Memory { synced, index_is_foreign, ..Memory::default() };
        let read = self.read_below("", INDEX, INDEX_BYTES_MAX);
        // The last mark of each boot: a sync after it covers all earlier ones.
        let mut latest = HashMap::new();
        mark::replay_index(read.as_deref().unwrap_or_default(), |path, mark| match path {
            Some(path) => {
                memory.index.insert(path, mark);
                if !mark.durable {
                    latest.insert(mark.moment.boot, mark);
                }
            }
            None => memory.synced.push(mark.moment),
        });
        let is_there = |mark: &Mark| mark.is_believed(self.keeping.boot, &memory.synced);
        memory.lacks_no_mark = (is_absent || read.is_some()) && latest.values().all(is_there);
        self.memory = memory;
    }

    /// A file that [`Self::remember`] ignored because another user owns it.
    #[must_use]
    pub fn ignored(&self) -> Option<&'static str> {
        self.memory.index_is_foreign.then_some(INDEX)
    }

    /// The destination, opened for its attributes.
    pub(super) fn open_root(&mut self) -> Result<OwnedFd, Code> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folders().root.folder, ".", flags, Mode::empty())
    }

    fn synced(&mut self) -> Vec<Moment> {
        self.open_root().map(|root| synced(&root)).unwrap_or_default()
    }

    /// Syncs the destination's file system and records that all marks so far are durable.
    ///
    /// # Errors
    /// If the device did not take the bytes.
    pub fn sync_all(&mut self) -> Result<(), Error> {
        let now = moment_of_sync(self.keeping.boot);
        let root = self.open_root();
        root.and_then(|root| {
            rustix::fs::syncfs(&root)?;
            if note_synced(&root, now).is_err() {
                let _ = self.append_to_index(&mark::sync_record(now));
            }
            // If the next power failure lost this record, all files would be fetched again.
            rustix::fs::fsync(&root)
        })
        .map_err(|errno| {
            let place = self.folders().root.place("");
            let message = format!("cannot sync {place}: {errno}");
            Error::new(ErrorKind::Destination, message)
                .advise("check the kernel log; a power failure may destroy downloaded data")
                .of_call(Some(errno.raw_os_error()))
        })
    }

    /// What is at an object's path, and how much space its replacement frees. Links are not
    /// followed.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn look(&mut self, download: &FileDownload) -> Result<(FileState, u64), FileError> {
        Ok(match self.stat(download)? {
            Some((folder, stat)) => (self.compare(download, &folder, &stat), space_bytes(&stat)),
            None => (FileState::Absent, 0),
        })
    }

    /// How much space replacing the file at an object's path frees.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn replaced_bytes(&mut self, download: &FileDownload) -> Result<u64, FileError> {
        Ok(self.stat(download)?.map_or(0, |(_, stat)| space_bytes(&stat)))
    }

    /// Folder and status of the file at an object's path; `None` if there is none.
    fn stat(&mut self, download: &FileDownload) -> Result<Option<(Arc<OwnedFd>, Stat)>, FileError> {
        let path = download.path.as_str();
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(folder) = self.folders().find(above)? else { return Ok(None) };
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((folder, stat))),
            Err(errno) if is_nothing(errno) => Ok(None),
            Err(errno) => Err(self.error("look up", path, errno)),
        }
    }

    /// Compares the file of this status, at an object's path in this folder, with the object.
    fn compare(&mut self, download: &FileDownload, folder: &OwnedFd, stat: &Stat) -> FileState {
        let path = download.path.as_str();
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let size_bytes = download.object.listed.size_bytes;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return FileState::Absent,
            FileType::RegularFile if stat.st_size.unsigned_abs() == size_bytes => {}
            _ => return FileState::Other,
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty());
        // The opened file counts: another one may have taken the name since.
        let opened = file.as_ref().map_err(|errno| *errno);
        let opened = opened.and_then(|file| Ok((file, rustix::fs::fstat(file)?)));
        let stat = opened.map_or(*stat, |(_, stat)| stat);
        let mark = match self.find_mark(opened.map(|(file, _)| file), path) {
            FoundMark::Mark(mark) => mark,
            FoundMark::None => {
                let same_time = download.object.listed.modified_seconds() == Some(stat.st_mtime);
                let is_foreign = stat.st_uid != geteuid().as_raw();
                return match same_time && is_foreign {
                    true => FileState::Foreign,
                    false => FileState::Unmarked { same_time },
                };
            }
            FoundMark::Unknown => return FileState::Other,
        };
        let identity = download.identity();
        let is_same = identity.is_some_and(|identity| self.is_of(&mark, identity, &stat));
        if is_same && !is_ours(&stat) {
            FileState::Foreign
        } else if is_same {
            download.verification.was(mark.verdict);
            FileState::Same
        } else {
            FileState::Other
        }
    }

    /// True if the mark says that a file of this status is this object, whole.
    pub(super) fn is_of(&self, mark: &Mark, identity: Identity, stat: &Stat) -> bool {
        mark.size_bytes == stat.st_size.unsigned_abs()
            && mark.identity == identity
            && mark.changed_ns == changed_ns(stat)
            && mark.is_believed(self.keeping.boot, &self.memory.synced)
    }

    /// The mark of the file at this path, from its attribute or the index.
    pub(super) fn find_mark(&self, file: Result<&OwnedFd, Code>, path: &str) -> FoundMark {
        let mut bytes = [0; MARK_BYTES];
        let read = file.and_then(|file| rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes[..]));
        let errno = match read {
            Ok(length) => {
                let mark = Mark::decode(&bytes[..length]);
                return mark.map_or(FoundMark::Unknown, FoundMark::Mark);
            }
            Err(errno) => errno,
        };
        match (self.memory.index.get(&Identity::of(&[path])), errno) {
            (Some(mark), _) => FoundMark::Mark(*mark),
            (None, Code::NODATA | Code::OPNOTSUPP) if self.memory.lacks_no_mark => FoundMark::None,
            (None, _) => FoundMark::Unknown,
        }
    }

    /// The whole content of a file of ours below the destination, if it has at most `most` bytes.
    pub(super) fn read_below(&mut self, above: &str, name: &str, most: u64) -> Option<Vec<u8>> {
        self.read_start_below(above, name, most.saturating_add(1))
            .filter(|bytes| bytes.len() as u64 <= most)
    }

    /// Up to `most` bytes from the start of a file of ours.
    pub(super) fn read_start_below(
        &mut self,
        above: &str,
        name: &str,
        most: u64,
    ) -> Option<Vec<u8>> {
        let folder = self.folders().find(above).ok()??;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let length = stat.st_size.unsigned_abs().min(most);
        if !is_ours(&stat) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[done..], done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Code::INTR) => {}
                Err(_) => return None,
            }
        }
        bytes.truncate(done);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::{machine, object};
    use super::*;

    #[test]
    fn what_was_completed_is_known_again() {
        let folder = tempfile::tempdir().expect("a folder");
        machine(folder.path()).write_whole(&object("a/b", 3), b"abc").expect("written");
        let mut later = machine(folder.path());
        assert_eq!(later.look(&object("a/b", 3)).expect("it says").0, FileState::Same);
        assert_eq!(
            later.look(&object("a/b", 4)).expect("it says").0,
            FileState::Other,
            "another size"
        );
        let mut changed = object("a/b", 3);
        changed.object.listed.etag = "\"2\"".to_owned();
        assert_eq!(later.look(&changed).expect("it says").0, FileState::Other, "another version");
        for absent in ["a/c", "c/d", "a/b/c", "a"] {
            assert_eq!(
                later.look(&object(absent, 3)).expect("it says").0,
                FileState::Absent,
                "{absent}"
            );
        }
        assert!(!folder.path().join("c").exists(), "looking makes nothing");
        let file = folder.path().join("a/b");
        let when = std::fs::metadata(&file).expect("there").modified().expect("a time");
        std::fs::write(&file, "xyz").expect("written");
        assert_eq!(
            later.look(&object("a/b", 3)).expect("it says").0,
            FileState::Other,
            "somebody wrote to it"
        );
        let open = std::fs::OpenOptions::new().write(true).open(&file).expect("opened");
        open.set_modified(when).expect("set");
        assert_eq!(
            later.look(&object("a/b", 3)).expect("it says").0,
            FileState::Same,
            "the time is all there is"
        );
    }

    #[test]
    fn after_a_power_loss_only_what_was_synced_is_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let look = |path: &str, boot: u64| {
            let mut later = machine(folder.path());
            later.keeping.boot = boot;
            later.remember();
            later.look(&object(path, 3)).expect("it says").0
        };
        let mut first = machine(folder.path());
        first.write_whole(&object("synced", 3), b"abc").expect("written");
        first.keeping.sync_files = false;
        first.write_whole(&object("before", 3), b"abc").expect("written");
        assert_eq!([look("synced", 1), look("before", 1)], [FileState::Same; 2]);
        assert_eq!([look("synced", 2), look("before", 2)], [FileState::Same, FileState::Other]);
        first.sync_all().expect("synced");
        first.write_whole(&object("after", 3), b"abc").expect("written");
        assert_eq!([look("before", 2), look("after", 2)], [FileState::Same, FileState::Other]);
        let mut second = machine(folder.path());
        second.keeping.boot = 2;
        second.sync_all().expect("synced");
        assert_eq!(look("before", 3), FileState::Same, "the sync of an earlier boot still counts");
    }

    #[test]
    fn an_index_stands_in_for_attributes() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = machine(folder.path());
        first.attributes_refused = true;
        first.write_whole(&object("a", 3), b"abc").expect("written");
        first.write_whole(&object("d/b", 3), b"abc").expect("written");
        assert!(folder.path().join(INDEX).exists());
        let mut later = machine(folder.path());
        assert_eq!(
            later.look(&object("a", 3)).expect("it says").0,
            FileState::Other,
            "nothing was remembered"
        );
        later.remember();
        let looks = ["a", "d/b", "b"].map(|path| later.look(&object(path, 3)).expect("it says").0);
        assert_eq!(looks, [FileState::Same, FileState::Same, FileState::Absent]);
        std::fs::write(folder.path().join("a"), "xyz").expect("written");
        assert_eq!(later.look(&object("a", 3)).expect("it says").0, FileState::Other);
    }

    /// ext4 keeps no time after 2446. The mark has the time that was kept.
    #[test]
    fn a_time_far_in_the_future_is_the_one_that_was_kept() {
        for attributes_refused in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut dated = object("a", 3);
            dated.object.listed.last_modified = "9999-12-31T23:59:59.000Z".to_owned();
            let mut first = machine(folder.path());
            first.attributes_refused = attributes_refused;
            first.write_whole(&dated, b"abc").expect("written");
            let mut later = machine(folder.path());
            later.remember();
            let mut look = || later.look(&dated).expect("it says").0;
            assert_eq!(look(), FileState::Same, "{attributes_refused}");
            // Another time, at which another program wrote it.
            let file = rustix::fs::open(folder.path().join("a"), OFlags::WRONLY, Mode::empty());
            set_modified(&file.expect("a file"), 13_569_465_600, 0).expect("the year 2400");
            assert_eq!(look(), FileState::Other, "{attributes_refused}");
        }
    }

    /// The index has a record before its file has a name. A run that ends in between vouches for
    /// its own bytes, and not for those that an earlier run left under that name.
    #[test]
    fn a_record_without_its_file_vouches_for_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut dated = object("a", 3);
        dated.object.listed.last_modified = "2024-01-01T00:00:00.000Z".to_owned();
        let mut lost = machine(folder.path());
        (lost.attributes_refused, lost.keeping.boot) = (true, 1);
        lost.write_whole(&dated, b"\0\0\0").expect("written, and lost by a power failure");
        let mut cut = machine(folder.path());
        (cut.attributes_refused, cut.keeping.boot) = (true, 2);
        std::fs::write(folder.path().join("unnamed"), b"abc").expect("written");
        let unnamed =
            rustix::fs::open(folder.path().join("unnamed"), OFlags::WRONLY, Mode::empty());
        cut.mark(&unnamed.expect("a file"), &dated).expect("marked");
        let mut later = machine(folder.path());
        (later.attributes_refused, later.keeping.boot) = (true, 2);
        later.remember();
        assert_eq!(later.look(&dated).expect("it says").0, FileState::Other);
    }

    /// A file of another program, with the time of its object, where marks stand in an index of
    /// which a power failure may have taken records.
    #[test]
    fn where_marks_may_be_lost_times_do_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let dated = |path: &str| {
            let mut object = object(path, 3);
            object.object.listed.last_modified = "2024-01-01T00:00:00.000Z".to_owned();
            object
        };
        let look = |boot: u64| {
            let mut later = machine(folder.path());
            later.keeping.boot = boot;
            later.remember();
            later.look(&dated("theirs")).expect("it says").0
        };
        fs_write(folder.path(), "theirs");
        assert_eq!(look(1), FileState::Unmarked { same_time: true }, "no index is there");
        let mut first = machine(folder.path());
        (first.attributes_refused, first.keeping.sync_files) = (true, false);
        first.write_whole(&dated("ours"), b"abc").expect("written");
        assert!(folder.path().join(INDEX).exists());
        assert_eq!(look(1), FileState::Unmarked { same_time: true }, "nothing was lost since");
        assert_eq!(look(2), FileState::Other, "records may be lost");
        let mut second = machine(folder.path());
        (second.attributes_refused, second.keeping.boot) = (true, 2);
        second.write_whole(&dated("ours"), b"abc").expect("written");
        assert_eq!(look(2), FileState::Other, "writing it again proves nothing of others");
        first.sync_all().expect("synced");
        assert_eq!(look(2), FileState::Unmarked { same_time: true }, "all was synced");
        assert_eq!(look(3), FileState::Unmarked { same_time: true }, "each file was synced");
        std::fs::write(folder.path().join(INDEX), "").expect("written");
        std::fs::remove_file(folder.path().join(INDEX)).expect("removed");
        std::fs::create_dir(folder.path().join(INDEX)).expect("made");
        assert_eq!(look(1), FileState::Other, "an index that cannot be read");
    }

    fn fs_write(folder: &std::path::Path, name: &str) {
        std::fs::write(folder.join(name), "abc").expect("written");
        let open = std::fs::OpenOptions::new().write(true).open(folder.join(name)).expect("there");
        let time = Duration::from_secs(1_704_067_200);
        open.set_modified(std::time::UNIX_EPOCH + time).expect("set");
    }

    #[test]
    fn a_file_that_can_have_no_mark_has_no_time_of_its_object() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut dated = object("a", 3);
        dated.object.listed.last_modified = "2024-01-01T00:00:00.000Z".to_owned();
        let seconds = || {
            let modified = std::fs::metadata(folder.path().join("a")).expect("there").modified();
            let since = modified.expect("a time").duration_since(std::time::UNIX_EPOCH);
            since.expect("after 1970").as_secs()
        };
        for (index_is_taken, expected) in [(false, true), (true, false)] {
            if index_is_taken {
                std::fs::remove_file(folder.path().join(INDEX)).expect("removed");
                std::fs::create_dir(folder.path().join(INDEX)).expect("made");
            }
            let mut machine = machine(folder.path());
            machine.attributes_refused = true;
            machine.write_whole(&dated, b"abc").expect("written");
            assert_eq!(seconds() == 1_704_067_200, expected, "{}", seconds());
        }
    }

    #[test]
    fn another_users_index_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = machine(folder.path());
        first.attributes_refused = true;
        first.write_whole(&object("a", 3), b"abc").expect("written");
        let index = folder.path().join(INDEX);
        if std::os::unix::fs::chown(&index, Some(12_345), None).is_err() {
            eprintln!("skipped: only root may give files away");
            return;
        }
        let before = std::fs::read(&index).expect("there");
        let mut later = machine(folder.path());
        later.attributes_refused = true;
        later.remember();
        assert_eq!(later.ignored(), Some(INDEX));
        assert_eq!(
            later.look(&object("a", 3)).expect("it says").0,
            FileState::Other,
            "its marks do not count"
        );
        later.write_whole(&object("b", 3), b"abc").expect("written");
        assert_eq!(std::fs::read(&index).expect("there"), before, "nothing is added");
    }

    #[test]
    fn no_link_is_looked_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        machine(outside.path()).write_whole(&object("a", 3), b"abc").expect("written");
        symlink(outside.path(), folder.path().join("d")).expect("a link");
        symlink(outside.path().join("a"), folder.path().join("a")).expect("a link");
        let mut machine = machine(folder.path());
        assert_eq!(machine.look(&object("a", 3)).expect("it says").0, FileState::Other);
        assert_eq!(machine.look(&object("d/a", 3)).expect("it says").0, FileState::Absent);
    }
}
