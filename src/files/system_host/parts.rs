//! Unfinished large files that a later run can find. Their name is derived from the final name
//! alone, a journal in the same folder records the ranges, and a lock says whether a process is
//! working on it.
//!
//! The holder of the lock (flock(2)) on the unfinished file owns it and its journal. A second
//! process fetches the object into a file of its own, which no other process finds.
//!
//! Other users may be able to write to the folder. Files that they put under these names are
//! neither read nor written nor removed: only files of the effective user count.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno as Code;

use super::marks::digest;
use super::{FILE_MODE, SystemHost, allocate, write_all};
use crate::files::file_download::{FileDownload, Shape};
use crate::files::host::FileError;
use crate::files::journal::{self, HEADER_BYTES, Header, RECORD_BYTES, Unfit};
use crate::files::sink::file::{Journal, OpenFile, allocation, journal_records_max};
use crate::limits::{
    CHECK_PIECE_BYTES, JOURNAL_OBJECT_BYTES_MIN, JOURNAL_RANGES_MAX, LOCK_PAUSE, PART_BYTES_MAX,
    PART_BYTES_MIN,
};
use crate::plan::path::OWN_PREFIX;
use crate::plan::ranges::{PartSize, RangeSet, Ranges};
use crate::sys::Handle;
use crate::sys::descriptor::is_ours;

/// Suffix of unfinished files.
const PART: &str = ".part";
/// Suffix of their journals.
const JOURNAL: &str = ".journal";

fn stem_of(name: &str) -> String {
    format!("{OWN_PREFIX}{:016x}", digest(name))
}

/// Name of the unfinished file of this final name.
fn part_name(name: &str) -> String {
    stem_of(name) + PART
}

/// Name of the journal of this final name.
fn journal_name(name: &str) -> String {
    stem_of(name) + JOURNAL
}

/// What an earlier run left of an object.
#[derive(Debug)]
pub enum Left {
    /// Nothing usable, or another process has it.
    Nothing(FileDownload),
    /// Some ranges: the download fetches the others.
    Some(FileDownload),
    /// All ranges; the file has its final name now.
    All(FileDownload),
    /// Bytes that cannot be relied on, and the space they take.
    Unfit(FileDownload, Unfit, u64),
}

/// What an unfinished file saves of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// There is none, or another process is working on it.
    Nothing,
    /// This many bytes.
    Fit(u64),
    /// Its bytes cannot be relied on.
    Unfit(Unfit),
}

/// What to do with an unfinished file that has all its ranges: its run ended after the last range
/// and before naming it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenAll {
    /// Give it its final name.
    Publish,
    /// Fetch one range again, and validate the object at its end like any other.
    LeaveOne,
}

/// An unfinished file that this process has locked.
struct LockedPart {
    file: OwnedFd,
    direct: bool,
    stat: Stat,
}

impl LockedPart {
    fn space_bytes(&self) -> u64 {
        self.stat.st_blocks.unsigned_abs().saturating_mul(512)
    }
}

/// What is at the path of an unfinished file.
enum FoundPart {
    /// A file of ours, locked by this process.
    Ours(LockedPart),
    /// Another process is working on it.
    Busy,
    /// Another user's file, or one that inrush did not create.
    Foreign,
}

/// Opens and locks an unfinished file; creates it if `create` is set and none exists. `looks`:
/// remaining retries for a lock that another process holds.
fn hold(folder: &OwnedFd, name: &str, create: bool, looks: &mut u32) -> Result<FoundPart, Code> {
    let made = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Not even opened: opening can block forever or trigger a device.
        Ok(stat) if !is_ours(&stat) => return Ok(FoundPart::Foreign),
        Ok(_) => false,
        Err(Code::NOENT) if create => true,
        Err(errno) => return Err(errno),
    };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let extra = if made { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
    let open = |flags| rustix::fs::openat(folder, name, flags, FILE_MODE);
    let (file, direct) = match open(flags | extra | OFlags::DIRECT) {
        // The file system refuses O_DIRECT, but only after it has created the file (open(2)).
        Err(Code::INVAL) => (open(flags | (extra & !OFlags::EXCL))?, false),
        // Another process was first.
        Err(Code::EXIST) => return Ok(FoundPart::Busy),
        outcome => (outcome?, true),
    };
    // The opened file counts: another one may have taken the name since.
    if !is_ours(&rustix::fs::fstat(&file)?) {
        // A server may assign new files to nobody.
        if made {
            unlink(folder, name);
        }
        return Ok(FoundPart::Foreign);
    }
    match lock(&file, looks) {
        Ok(()) => {}
        Err(Code::WOULDBLOCK) => return Ok(FoundPart::Busy),
        Err(_) => {
            // No locks here: processes could not see each other.
            if create {
                unlink(folder, name);
            }
            return Ok(FoundPart::Busy);
        }
    }
    // Between opening and locking it may have been renamed or removed.
    let stat = rustix::fs::fstat(&file)?;
    let named = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let same = (stat.st_ino, stat.st_dev) == (named.st_ino, named.st_dev);
    Ok(match is_ours(&stat) && same {
        true => FoundPart::Ours(LockedPart { file, direct, stat }),
        false => FoundPart::Foreign,
    })
}

/// Removes a file of ours that no process has locked; false if it is not removed.
pub(super) fn remove_left(folder: &OwnedFd, name: &str) -> bool {
    match hold(folder, name, false, &mut 0) {
        Ok(FoundPart::Ours(_held)) => rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok(),
        _ => false,
    }
}

/// True if another user's file, or something that is no file, has this name.
fn is_foreign(folder: &OwnedFd, name: &str) -> bool {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| !is_ours(&stat))
}

/// Takes the lock. The kernel tears down a killed process's rings after its end, and operations in
/// flight keep the file and its lock for some milliseconds.
fn lock(file: &OwnedFd, looks: &mut u32) -> Result<(), Code> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Code::WOULDBLOCK) if *looks > 0 => {
                *looks -= 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn unlink(folder: &OwnedFd, name: &str) {
    // It may already be gone.
    let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
}

impl SystemHost {
    /// The journal header of an object that is cut into parts of this length. None without an ETag:
    /// nothing would show that the object was replaced between its listing and the ranges that are
    /// still to be fetched. And none from a server that sends no ranges.
    fn header(&self, download: &FileDownload, part: PartSize) -> Option<Header> {
        let is_of_a_version =
            download.object.etag.is_some() || !download.object.listed.version_id.is_empty();
        let ranges = Ranges::count_of(download.object.listed.size_bytes, part);
        let is_ranged = !download.object.listed.is_whole_only();
        let can_resume = is_of_a_version && is_ranged && ranges <= JOURNAL_RANGES_MAX;
        let identity = download.identity().filter(|_| can_resume)?;
        Some(Header {
            boot: self.keeping.boot,
            identity,
            size_bytes: download.object.listed.size_bytes,
            part_bytes: part.bytes(),
        })
    }

    /// The part size in an object's journal, which counts whatever the part size is now. Not if its
    /// checksum requires all bytes in order or in one answer.
    fn cut_before(&mut self, download: &FileDownload, above: &str, name: &str) -> PartSize {
        let size_bytes = download.object.listed.size_bytes;
        let is_free = Ranges::count_of(size_bytes, download.part) > 1
            && download.verification.known().is_none();
        let journal = journal_name(name);
        let before = is_free.then(|| self.read_start_below(above, &journal, HEADER_BYTES as u64));
        let before =
            before.flatten().and_then(|bytes| journal::part_bytes(&bytes)).filter(|part| {
                (PART_BYTES_MIN..=PART_BYTES_MAX).contains(part)
                    && part.is_multiple_of(PART_BYTES_MIN)
            });
        before.and_then(PartSize::new).unwrap_or(download.part)
    }

    /// How much of an object's download an unfinished file would save, as judged by
    /// [`Self::go_on`]. Changes nothing.
    ///
    /// # Errors
    /// If the file system does not say whether there is one.
    pub fn unfinished(&mut self, download: &FileDownload) -> Result<Unfinished, FileError> {
        if !self.keeping.resume || download.shape != Shape::Ranges {
            return Ok(Unfinished::Nothing);
        }
        let (above, name) = split(&download.path);
        let Some(folder) = self.folders().find(above)? else { return Ok(Unfinished::Nothing) };
        let part = match hold(&folder, &part_name(name), false, &mut self.lock_looks) {
            Ok(FoundPart::Ours(part)) if !is_foreign(&folder, &journal_name(name)) => part,
            Ok(FoundPart::Ours(_) | FoundPart::Foreign) => {
                return Ok(Unfinished::Unfit(Unfit::Foreign));
            }
            Ok(FoundPart::Busy) | Err(_) => return Ok(Unfinished::Nothing),
        };
        let cut = self.cut_before(download, above, name);
        let Some(header) = self.header(download, cut) else { return Ok(Unfinished::Nothing) };
        let done = self.replayed(&part, above, name, &header);
        Ok(done.map_or_else(Unfinished::Unfit, |(done, _)| {
            let size_bytes = download.object.listed.size_bytes;
            let left = Ranges::new(size_bytes, cut).without(Some(Arc::new(done)));
            let left_bytes: u64 = left.map(|range| range.length).sum();
            Unfinished::Fit(size_bytes - left_bytes)
        }))
    }

    /// Resumes what an earlier run left of a large object, if possible.
    pub fn go_on(&mut self, download: FileDownload, when_all: WhenAll) -> Left {
        let header = self.header(&download, download.part);
        let (true, Shape::Ranges, Some(_)) = (self.keeping.resume, download.shape, header) else {
            return Left::Nothing(download);
        };
        let (above, name) = split(&download.path);
        let Ok(Some(folder)) = self.folders().find(above) else { return Left::Nothing(download) };
        let part = match hold(&folder, &part_name(name), false, &mut self.lock_looks) {
            Ok(FoundPart::Ours(_)) | Err(Code::NOENT)
                if is_foreign(&folder, &journal_name(name)) =>
            {
                return Left::Unfit(download, Unfit::Foreign, 0);
            }
            Ok(FoundPart::Ours(part)) => part,
            Ok(FoundPart::Foreign) => return Left::Unfit(download, Unfit::Foreign, 0),
            Ok(FoundPart::Busy) | Err(_) => return Left::Nothing(download),
        };
        let (above, name) = (above.to_owned(), name.to_owned());
        let space_bytes = part.space_bytes();
        let cut = self.cut_before(&download, &above, &name);
        let download = download.cut_into(cut);
        let Some(header) = self.header(&download, cut) else { return Left::Nothing(download) };
        let size_bytes = download.object.listed.size_bytes;
        let (file, mut done) = match self.continued(folder, part, &above, &name, &header) {
            Ok(continued) => continued,
            Err(unfit) => return Left::Unfit(download, unfit, space_bytes),
        };
        let has_all = done.count() == Ranges::count_of(size_bytes, download.part);
        if has_all && when_all == WhenAll::LeaveOne {
            done.remove(0);
        }
        if !has_all || when_all == WhenAll::LeaveOne {
            return Left::Some(download.resume(file, done));
        }
        match self.publish(&file, &download) {
            Ok(()) => Left::All(download),
            Err(_) => Left::Unfit(download, Unfit::Damaged, 0),
        }
    }

    /// The ranges in an unfinished file, and the number of records in its journal.
    fn replayed(
        &mut self,
        part: &LockedPart,
        above: &str,
        name: &str,
        header: &Header,
    ) -> Result<(RangeSet, usize), Unfit> {
        // It is truncated to its size before it is named.
        let lengths = [allocation(header.size_bytes), header.size_bytes];
        if !lengths.contains(&part.stat.st_size.unsigned_abs()) {
            return Err(if part.stat.st_size == 0 { Unfit::Damaged } else { Unfit::Changed });
        }
        let journal = journal_name(name);
        let ranges = header.size_bytes.div_ceil(header.part_bytes);
        let most = (HEADER_BYTES as u64) + journal_records_max(ranges) * RECORD_BYTES as u64;
        let bytes = self.read_below(above, &journal, most).ok_or(Unfit::Damaged)?;
        let done = journal::replay(&bytes, header)?;
        Ok((done, (bytes.len() - HEADER_BYTES) / RECORD_BYTES))
    }

    fn continued(
        &mut self,
        folder: Arc<OwnedFd>,
        part: LockedPart,
        above: &str,
        name: &str,
        header: &Header,
    ) -> Result<(OpenFile, RangeSet), Unfit> {
        let (done, records) = self.replayed(&part, above, name, header)?;
        let (journal, ranges) = (journal_name(name), header.size_bytes.div_ceil(header.part_bytes));
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(&folder, &journal, flags, Mode::empty());
        let opened = opened.and_then(|file| {
            if !is_ours(&rustix::fs::fstat(&file)?) {
                return Err(Code::PERM);
            }
            // Cut off a torn record, so that the next one is aligned.
            rustix::fs::ftruncate(&file, (HEADER_BYTES + records * RECORD_BYTES) as u64)?;
            Ok(file)
        });
        let handle = Handle::from(opened.map_err(|_| Unfit::Damaged)?);
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        let file = OpenFile {
            handle: Handle::from(part.file),
            direct: part.direct,
            folder: Handle::Descriptor(folder),
            temporary: part_name(name),
            name: name.to_owned(),
            place: self.folders().root.place(&path),
            journal: Some(Journal::new(handle, journal, header.encode(), (records as u64, ranges))),
        };
        Ok((file, done))
    }

    /// Creates an unfinished file and its journal in place of what an earlier run left. `None` if
    /// it should not be resumable: another process or user has the name, or the object is so small
    /// that fetching it again is as fast.
    pub(super) fn begin_part(
        &mut self,
        download: &FileDownload,
        folder: &Arc<OwnedFd>,
        name: &str,
    ) -> Result<Option<OpenFile>, FileError> {
        let is_worth_it = download.object.listed.size_bytes > JOURNAL_OBJECT_BYTES_MIN;
        let keeps = self.keeping.resume && is_worth_it;
        let Some(header) = self.header(download, download.part).filter(|_| keeps) else {
            return Ok(None);
        };
        let (part, journal) = (part_name(name), journal_name(name));
        if is_foreign(folder, &journal) {
            return Ok(None);
        }
        let Ok(FoundPart::Ours(held)) = hold(folder, &part, true, &mut 0) else { return Ok(None) };
        // The journal goes first: it must never describe bytes of another file.
        unlink(folder, &journal);
        let length = allocation(download.object.listed.size_bytes);
        let cleared = rustix::fs::ftruncate(&held.file, 0);
        if let Err(errno) = cleared.and_then(|()| allocate(&held.file, length)) {
            unlink(folder, &part);
            return Err(self.error("allocate", &download.path, errno));
        }
        let ranges = header.size_bytes.div_ceil(header.part_bytes);
        let header = header.encode();
        let opened = begin_journal(folder, &journal, &header).inspect_err(|_| {
            unlink(folder, &journal);
        });
        let opened =
            opened.ok().map(|file| Journal::new(Handle::from(file), journal, header, (0, ranges)));
        Ok(Some(OpenFile {
            handle: Handle::from(held.file),
            direct: held.direct,
            folder: Handle::Descriptor(Arc::clone(folder)),
            temporary: part,
            name: name.to_owned(),
            place: self.folders().root.place(&download.path),
            journal: opened,
        }))
    }

    /// Removes what an earlier run left of an object, unless a process is working on it. Returns
    /// the space that it took.
    pub fn clear(&mut self, download: &FileDownload) -> u64 {
        let (above, name) = split(&download.path);
        if download.shape != Shape::Ranges {
            return 0;
        }
        let folder = self.folders().find(above).ok().flatten();
        folder.map_or(0, |folder| clear(&folder, name))
    }
}

/// Removes an unfinished file and its journal, unless a process is working on them or another user
/// owns them. Returns the bytes freed.
pub(super) fn clear(folder: &OwnedFd, name: &str) -> u64 {
    clear_stem(folder, &stem_of(name))
}

fn clear_stem(folder: &OwnedFd, stem: &str) -> u64 {
    let (part, journal) = (format!("{stem}{PART}"), format!("{stem}{JOURNAL}"));
    let held = hold(folder, &part, false, &mut 0);
    if matches!(held, Ok(FoundPart::Ours(_)) | Err(Code::NOENT)) && !is_foreign(folder, &journal) {
        unlink(folder, &journal);
    }
    match held {
        Ok(FoundPart::Ours(held)) => {
            unlink(folder, &part);
            held.space_bytes()
        }
        _ => 0,
    }
}

/// Removes an unfinished file or journal of this name and its counterpart, unless a process is
/// working on them. True if an unfinished file was removed.
pub(super) fn clear_left(folder: &OwnedFd, name: &str) -> bool {
    let is_there = |name: &str| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let stem = name.strip_suffix(PART).or_else(|| name.strip_suffix(JOURNAL));
    let Some(stem) = stem else { return false };
    let part = format!("{stem}{PART}");
    let was_there = is_there(&part);
    clear_stem(folder, stem);
    was_there && !is_there(&part)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn begin_journal(
    folder: &OwnedFd,
    name: &str,
    header: &[u8; HEADER_BYTES],
) -> Result<OwnedFd, Code> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, FILE_MODE)?;
    write_all(&file, header)?;
    Ok(file)
}

/// Reads what an earlier run had written of a download, whole ranges and prefixes, each byte once:
/// calls `take` with an offset in the object and bytes.
///
/// # Errors
/// The file system's error.
pub fn read_resumed(
    download: &FileDownload,
    mut take: impl FnMut(u64, &[u8]),
) -> Result<(), FileError> {
    let (Some(done), Some(file)) = (download.resumed(), download.created_file()) else {
        return Ok(());
    };
    let at = |errno: Code| FileError::new("read", file.place.clone(), errno);
    let reader = reopened(file).map_err(at)?;
    let size_bytes = download.object.listed.size_bytes;
    let mut piece = vec![0; CHECK_PIECE_BYTES];
    let ranges = 0..Ranges::count_of(size_bytes, download.part);
    for index in ranges {
        let range = Ranges::at(size_bytes, download.part, index).expect("it is one of them");
        let there = if done.contains(index) { range.length } else { done.reached(index) };
        let (mut offset, end) = (range.offset, range.offset + there);
        while offset < end {
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(piece.len());
            match rustix::io::pread(&reader, &mut piece[..room], offset) {
                Ok(0) => return Err(at(Code::IO)),
                Ok(count) => {
                    take(offset, &piece[..count]);
                    offset += count as u64;
                }
                Err(Code::INTR) => {}
                Err(errno) => return Err(at(errno)),
            }
        }
    }
    Ok(())
}

/// Opens our unfinished file again, for reading.
fn reopened(file: &OpenFile) -> Result<OwnedFd, Code> {
    let (Handle::Descriptor(ours), Handle::Descriptor(folder)) = (&file.handle, &file.folder)
    else {
        unreachable!("this machine makes real files")
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let reader = rustix::fs::openat(folder, &file.temporary, flags, Mode::empty())?;
    let (one, other) = (rustix::fs::fstat(ours)?, rustix::fs::fstat(&reader)?);
    let same = (one.st_ino, one.st_dev) == (other.st_ino, other.st_dev);
    if same { Ok(reader) } else { Err(Code::STALE) }
}

/// Records that `prefix_bytes` at the start of a range are written; `None`: all of it.
pub(super) fn note(file: &OpenFile, index: u64, prefix_bytes: Option<u64>) {
    let Some(journal) = &file.journal else { return };
    // Concurrent notes may have used up the room.
    if prefix_bytes.is_none() || journal.has_room(true) {
        record(journal, index, prefix_bytes.unwrap_or(journal::WHOLE));
    }
}

/// Appends the record of a range in one write: its prefix, or [`journal::WHOLE`].
fn record(journal: &Journal, index: u64, prefix_bytes: u64) {
    let (Handle::Descriptor(file), Ok(index)) = (&journal.handle, u32::try_from(index)) else {
        return;
    };
    if journal.has_ended() {
        return;
    }
    let record = journal::record(&journal.header, index, prefix_bytes);
    journal.note(rustix::io::write(file, &record) == Ok(RECORD_BYTES));
}

/// Removes an unfinished file and its journal.
pub(super) fn remove(file: &OpenFile) {
    let Handle::Descriptor(folder) = &file.folder else { return };
    // The journal goes first: it must never describe bytes of another file.
    if let Some(journal) = &file.journal {
        unlink(folder, &journal.name);
    }
    if !file.temporary.is_empty() {
        unlink(folder, &file.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::tests::{machine, names, object};
    use super::super::{FileState, Persistence};
    use super::*;
    use crate::files::file_download::Cut;
    use crate::link::object::ObjectRef;
    use crate::s3::Object;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 5 * MIB + 3;

    /// Begins an object, completes these ranges of it, and ends without closing it properly.
    fn begin(folder: &Path, indexes: &[u64]) {
        let mut machine = machine(folder);
        let file = machine.create(&object("d/large", SIZE)).expect("created");
        indexes.iter().for_each(|index| note(&file, *index, None));
    }

    fn left(folder: &Path) -> Left {
        machine(folder).go_on(object("d/large", SIZE), WhenAll::Publish)
    }

    fn unfit(folder: &Path) -> Option<Unfit> {
        match left(folder) {
            Left::Unfit(_, unfit, _) => Some(unfit),
            _ => None,
        }
    }

    fn file(folder: &Path, ending: &str) -> std::path::PathBuf {
        let names = names(&folder.join("d"));
        folder.join("d").join(names.iter().find(|name| name.ends_with(ending)).expect("there"))
    }

    #[test]
    fn an_unfinished_object_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(matches!(left(folder.path()), Left::Nothing(_)));
        begin(folder.path(), &[4, 1]);
        let Left::Some(download) = left(folder.path()) else { panic!("there are two ranges") };
        assert_eq!((download.unsettled(), download.resumed_bytes()), (4, 2 * MIB));
        let offsets: Vec<u64> = download.ranges().map(|range| range.offset / MIB).collect();
        assert_eq!(offsets, [0, 2, 3, 5]);
        assert!(matches!(left(folder.path()), Left::Nothing(_)), "it is in other hands");
        let mut second = machine(folder.path());
        let file = download.created_file().expect("open");
        note(file, 0, None);
        drop(download);
        let Left::Some(download) = left(folder.path()) else { panic!("there are three") };
        assert_eq!(download.unsettled(), 3);
        let file = download.created_file().expect("open");
        second.publish(file, &download).expect("published");
        drop(download);
        assert_eq!(names(&folder.path().join("d")), ["large"]);
        assert_eq!(second.look(&object("d/large", SIZE)).expect("it says").0, FileState::Same);
    }

    /// The object may have been replaced between its listing and what is still to be fetched.
    #[test]
    fn without_an_etag_or_a_version_nothing_is_resumed() {
        let of_version = |etag: &str, version_id: &str| {
            let FileDownload { object, path, part, .. } = object("d/large", SIZE);
            let (etag, version_id) = (etag.to_owned(), version_id.to_owned());
            let last_modified = "2024-01-02T03:04:05Z".to_owned();
            let ObjectRef { listed, endpoint, .. } = object;
            let object = Object { etag, version_id, last_modified, ..listed };
            FileDownload::new(object, endpoint, path, Cut { part, slot_length_bytes: 1 << 16 })
        };
        for (etag, version_id, resumes) in [("\"1\"", "", true), ("", "v", true), ("", "", false)] {
            let folder = tempfile::tempdir().expect("a folder");
            let object = || of_version(etag, version_id);
            let file = machine(folder.path()).create(&object()).expect("created");
            note(&file, 1, None);
            drop(file);
            let found = machine(folder.path()).unfinished(&object()).expect("it says");
            assert_eq!(matches!(found, Unfinished::Fit(MIB)), resumes, "{etag}{version_id}");
            let left = machine(folder.path()).go_on(object(), WhenAll::Publish);
            assert_eq!(matches!(left, Left::Some(_)), resumes, "{etag}{version_id}");
        }
    }

    #[test]
    fn a_range_goes_on_behind_what_is_written_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = machine(folder.path());
        let file = first.create(&object("d/large", SIZE)).expect("created");
        note(&file, 2, Some(8192));
        note(&file, 0, Some(4096));
        note(&file, 0, None);
        note(&file, 2, Some(4096));
        first.abandon(&file, true);
        drop(file);
        let Left::Some(download) = left(folder.path()) else { panic!("something is there") };
        assert_eq!((download.unsettled(), download.resumed_bytes()), (5, MIB + 8192));
        let next: Vec<_> = download.ranges().map(|range| (range.offset, range.length)).collect();
        assert_eq!(next[..2], [(MIB, MIB), (2 * MIB + 8192, MIB - 8192)]);
    }

    #[test]
    fn beginnings_of_ranges_do_not_fill_a_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = machine(folder.path());
        let file = first.create(&object("d/large", SIZE)).expect("created");
        let journal = file.journal.as_ref().expect("a journal");
        for run_ends in [false, true] {
            let before = journal.records();
            while journal.has_room(run_ends) {
                note(&file, 2, Some(8192));
            }
            assert!(journal.records() > before + 1000, "a run that ends has room of its own");
        }
        assert!(journal.records() < journal_records_max(6), "{}", journal.records());
        (0..6).for_each(|index| note(&file, index, None));
        first.abandon(&file, true);
        drop(file);
        assert!(matches!(left(folder.path()), Left::All(_)), "the whole ranges still had room");
    }

    #[test]
    fn what_an_earlier_run_had_written_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        begin(folder.path(), &[5, 1]);
        let Left::Some(download) = left(folder.path()) else { panic!("there are two ranges") };
        note(download.created_file().expect("open"), 3, Some(12_288));
        drop(download);
        let path = file(folder.path(), "part");
        let mut bytes = std::fs::read(&path).expect("there");
        for (at, byte) in (0_u64..).zip(&mut bytes) {
            *byte = u8::try_from(at / MIB + 1).expect("few");
        }
        std::fs::write(&path, &bytes).expect("written");
        let Left::Some(download) = left(folder.path()) else { panic!("there are two ranges") };
        let mut read = Vec::new();
        read_resumed(&download, |at, piece| {
            assert!(piece.iter().all(|byte| u64::from(*byte) == at / MIB + 1), "at {at}");
            read.push((at, piece.len() as u64));
        })
        .expect("read");
        assert_eq!(read, [(MIB, MIB), (3 * MIB, 12_288), (5 * MIB, 3)]);
        read_resumed(&object("d/other", SIZE), |_, _| panic!("nothing is there")).expect("done");
        // A file that has its final name by now is not ours.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, &bytes).expect("written");
        let error = read_resumed(&download, |_, _| ()).expect_err("another file");
        let path = folder.path().join("d/large");
        assert_eq!((error.step, Path::new(&error.path)), ("read", path.as_path()));
    }

    #[test]
    fn one_that_had_all_its_ranges_gets_its_name_or_one_range_more() {
        let folder = tempfile::tempdir().expect("a folder");
        begin(folder.path(), &[0, 1, 2, 3, 4, 5]);
        let open = std::fs::OpenOptions::new().write(true).open(file(folder.path(), "part"));
        open.expect("opened").set_len(SIZE).expect("cut, and then killed");
        let again = || machine(folder.path()).go_on(object("d/large", SIZE), WhenAll::LeaveOne);
        for _ in 0..2 {
            let Left::Some(download) = again() else { panic!("one is left") };
            assert_eq!((download.unsettled(), download.resumed_bytes()), (1, SIZE - MIB));
            assert_eq!(download.ranges().map(|range| range.offset).collect::<Vec<_>>(), [0]);
        }
        assert!(matches!(left(folder.path()), Left::All(_)));
        assert_eq!(names(&folder.path().join("d")), ["large"]);
    }

    #[test]
    fn what_cannot_be_relied_on_begins_anew() {
        let check = |spoil: &dyn Fn(&Path), expected: Unfit| {
            let folder = tempfile::tempdir().expect("a folder");
            begin(folder.path(), &[1, 2]);
            spoil(folder.path());
            assert_eq!(unfit(folder.path()), Some(expected));
            // The only journal beside the new file's bytes is its own.
            begin(folder.path(), &[]);
            let Left::Some(download) = left(folder.path()) else { panic!("a good journal") };
            assert_eq!(download.unsettled(), 6);
        };
        check(
            &|folder| std::fs::remove_file(file(folder, "journal")).expect("removed"),
            Unfit::Damaged,
        );
        check(
            &|folder| std::fs::write(file(folder, "journal"), [7; 500]).expect("written"),
            Unfit::Damaged,
        );
        check(
            &|folder| std::fs::write(file(folder, "part"), "short").expect("written"),
            Unfit::Changed,
        );
        check(
            &|folder| {
                let path = file(folder, "journal");
                let mut bytes = std::fs::read(&path).expect("there");
                bytes[HEADER_BYTES] ^= 1;
                std::fs::write(path, bytes).expect("written");
            },
            Unfit::Damaged,
        );
        let folder = tempfile::tempdir().expect("a folder");
        begin(folder.path(), &[1]);
        let mut later = machine(folder.path());
        later.keeping = Persistence { boot: 2, ..later.keeping };
        let left = later.go_on(object("d/large", SIZE), WhenAll::Publish);
        assert!(matches!(left, Left::Unfit(_, Unfit::Rebooted, space) if space >= SIZE));
        let mut changed = object("d/large", SIZE);
        changed.object.listed.etag = "\"2\"".to_owned();
        assert!(matches!(
            machine(folder.path()).go_on(changed, WhenAll::Publish),
            Left::Unfit(_, Unfit::Changed, _)
        ));
    }

    #[test]
    fn a_torn_record_is_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        begin(folder.path(), &[1, 2]);
        let path = file(folder.path(), "journal");
        let bytes = std::fs::read(&path).expect("there");
        std::fs::write(&path, &bytes[..bytes.len() - 3]).expect("written");
        let Left::Some(download) = left(folder.path()) else { panic!("a range is there") };
        assert_eq!(download.unsettled(), 5);
        note(download.created_file().expect("open"), 5, None);
        drop(download);
        let Left::Some(download) = left(folder.path()) else { panic!("two ranges are there") };
        assert_eq!(download.unsettled(), 4);
    }

    #[test]
    fn a_second_process_fetches_on_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut one, mut other) = (machine(folder.path()), machine(folder.path()));
        let object = object("d/large", SIZE);
        let first = one.create(&object).expect("created");
        let second = other.create(&object).expect("created");
        assert!(first.journal.is_some() && second.journal.is_none());
        other.clear(&object);
        note(&first, 0, None);
        other.publish(&second, &object).expect("published");
        one.publish(&first, &object).expect("published");
        assert_eq!(names(&folder.path().join("d")), ["large"]);
    }

    #[test]
    fn planted_names_are_not_written_through() {
        let outside = tempfile::tempdir().expect("a folder");
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "as it was").expect("written");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("made");
        let part = folder.path().join("d").join(part_name("large"));
        let journal = folder.path().join("d").join(journal_name("large"));
        for soft in [true, false] {
            for place in [&part, &journal] {
                match soft {
                    true => symlink(&victim, place).expect("a link"),
                    false => std::fs::hard_link(&victim, place).expect("a link"),
                }
            }
            let object = object("d/large", SIZE);
            assert!(!matches!(left(folder.path()), Left::Some(_) | Left::All(_)));
            let mut machine = machine(folder.path());
            let file = machine.create(&object).expect("created");
            note(&file, 0, None);
            machine.publish(&file, &object).expect("published");
            assert_eq!(std::fs::read_to_string(&victim).expect("there"), "as it was", "{soft}");
            for place in [&part, &journal] {
                let _ = std::fs::remove_file(place);
            }
        }
    }

    /// Gives a file to another user; returns false and says so on standard error if that is not
    /// allowed.
    fn give_away(path: &Path) -> bool {
        let given = std::os::unix::fs::chown(path, Some(12_345), None).is_ok();
        if !given {
            eprintln!("skipped: only root may give files away");
        }
        given
    }

    #[test]
    fn another_users_files_are_left_alone() {
        for endings in [&["part", "journal"][..], &["part"], &["journal"]] {
            let folder = tempfile::tempdir().expect("a folder");
            begin(folder.path(), &[1, 2]);
            let foreign: Vec<_> =
                endings.iter().map(|ending| file(folder.path(), ending)).collect();
            if !foreign.iter().all(|path| give_away(path)) {
                return;
            }
            let look = || -> Vec<_> {
                let read = |path: &std::path::PathBuf| std::fs::read(path).expect("there");
                foreign.iter().map(read).collect()
            };
            let before = look();
            assert_eq!(unfit(folder.path()), Some(Unfit::Foreign), "{endings:?}");
            // The run has a file of its own, which no other finds.
            let object = object("d/large", SIZE);
            let mut machine = machine(folder.path());
            let file = machine.create(&object).expect("created");
            assert!(file.journal.is_none() && file.temporary.is_empty(), "{endings:?}");
            note(&file, 0, None);
            machine.publish(&file, &object).expect("published");
            machine.clear(&object);
            assert_eq!(machine.look(&object).expect("it says").0, FileState::Same);
            assert!(look() == before, "{endings:?}: written to");
        }
    }

    #[test]
    fn what_is_left_of_a_complete_object_is_cleared() {
        let folder = tempfile::tempdir().expect("a folder");
        begin(folder.path(), &[1]);
        let object = object("d/large", SIZE);
        machine(folder.path()).clear(&object);
        assert_eq!(names(&folder.path().join("d")), [""; 0]);
        begin(folder.path(), &[1]);
        std::fs::remove_file(file(folder.path(), "part")).expect("removed");
        machine(folder.path()).clear(&object);
        assert_eq!(names(&folder.path().join("d")), [""; 0]);
    }

    #[test]
    fn only_what_may_pass_leaves_something() {
        let folder = tempfile::tempdir().expect("a folder");
        for (recorded, keep, files) in [(0, true, 0), (1, true, 2), (1, false, 0)] {
            let mut machine = machine(folder.path());
            let file = machine.create(&object("d/large", SIZE)).expect("created");
            (0..recorded).for_each(|index| note(&file, index, None));
            machine.abandon(&file, keep);
            assert_eq!(names(&folder.path().join("d")).len(), files, "{recorded} {keep}");
        }
    }
}
