//! Marks for files that inrush did not write and that were compared with their objects: the marks
//! that a download would have set.
//!
//! The file's status is taken before it is read and again before it is marked, through its
//! descriptor and through its name. Writes in between show in its times; later writes invalidate
//! the mark.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno as Code;
use rustix::time::{ClockId, clock_gettime};

use super::marks::{FoundMark, changed_ns, moment};
use super::{Persistence, Root, SystemHost, boot};
use crate::error::Error;
use crate::files::mark::{Identity, Mark};
use crate::limits::{ADOPT_LOOKS_MAX, ADOPT_REST, ADOPT_REST_COARSE};
use crate::s3::sign::PublishedKeys;
use crate::sys::descriptor::is_ours;

/// Status of a file. Equal values mean the same file, not written to in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    device: u64,
    inode: u64,
    length: i64,
    /// Modification time in nanoseconds.
    changed_ns: i64,
    /// Status change time (inode(7)): seconds and nanoseconds.
    status: (i64, u64),
}

impl Look {
    /// Length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.length.unsigned_abs()
    }

    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: stat.st_size,
            changed_ns: changed_ns(stat),
            status: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Takes the status of an open file before it is read. File times have a resolution: it waits
    /// until the last change is old enough that another one would get a different time. For a file
    /// that changes constantly it returns a status that equals no later one.
    ///
    /// # Errors
    /// The file system's error.
    pub fn before(file: &OwnedFd) -> Result<Self, Code> {
        for _ in 0..ADOPT_LOOKS_MAX {
            let look = Self::of(&rustix::fs::fstat(file)?);
            let Some(left) = look.rest_left() else { return Ok(look) };
            std::thread::sleep(left);
        }
        Ok(Self { device: 0, inode: 0, length: -1, changed_ns: 0, status: (0, 0) })
    }

    /// How long the last change is still too recent.
    fn rest_left(&self) -> Option<Duration> {
        // Times without fractions have a resolution of one or two seconds.
        let rest = if self.status.1 == 0 { ADOPT_REST_COARSE } else { ADOPT_REST };
        let since_epoch = |seconds: i64, nanoseconds: u64| {
            let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            seconds.saturating_add(Duration::from_nanos(nanoseconds))
        };
        let now = clock_gettime(ClockId::Realtime);
        let now = since_epoch(now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0));
        let changed = since_epoch(self.status.0, self.status.1);
        // A future time is from another clock and says nothing about now.
        let age = now.checked_sub(changed)?;
        rest.checked_sub(age).filter(|left| !left.is_zero())
    }
}

/// A file that was compared with its object.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The file that was read.
    pub file: &'a OwnedFd,
    /// Its path below the folder, `/`-separated.
    pub path: &'a str,
    /// Its status before it was read.
    pub before: Look,
    /// The object.
    pub identity: Identity,
    /// The result of the comparison, as stored in a mark.
    pub verdict: u8,
}

/// Outcome of an adoption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// It has a mark now.
    Marked,
    /// It had this mark before.
    Known,
    /// It was replaced or changed since it was read.
    Changed,
    /// It belongs to another user or has further names: a mark on it would not count.
    Foreign,
}

/// Marks files below a folder; may be shared by threads.
#[derive(Debug)]
pub struct Adopter {
    host: Mutex<SystemHost>,
}

impl Adopter {
    /// For the files below this folder.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(folder: &Path, begun: Instant) -> Result<Self, Error> {
        let root = Root::present(folder)?;
        let keeping = Persistence { resume: true, boot: boot(), ..Persistence::default() };
        let keys = Arc::new(PublishedKeys::new(None));
        let mut host = SystemHost::new(begun, 0, Some(root), keys, keeping);
        host.remember();
        Ok(Self { host: Mutex::new(host) })
    }

    /// Marks a file if it is unchanged since before it was read.
    ///
    /// # Errors
    /// The file system's error.
    pub fn adopt(&self, proven: &Proven<'_>) -> Result<Adoption, Code> {
        // A panic leaves no partial mark.
        self.host.lock().unwrap_or_else(PoisonError::into_inner).adopt(proven)
    }

    /// Syncs the file system, so that the marks stay valid after a reboot.
    ///
    /// # Errors
    /// If the device did not take the bytes.
    pub fn sync(&self) -> Result<(), Error> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).sync_all()
    }
}

impl SystemHost {
    fn adopt(&mut self, proven: &Proven<'_>) -> Result<Adoption, Code> {
        let Proven { file, path, before, identity, verdict } = *proven;
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Ok(Some(folder)) = self.folders().find(above) else { return Ok(Adoption::Changed) };
        let stat = rustix::fs::fstat(file)?;
        let named = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_named = named.is_ok_and(|named| Look::of(&named) == before);
        if !is_named || Look::of(&stat) != before {
            return Ok(Adoption::Changed);
        }
        if !is_ours(&stat) {
            return Ok(Adoption::Foreign);
        }
        if let FoundMark::Mark(mark) = self.find_mark(Ok(file), path)
            && self.is_of(&mark, identity, &stat)
        {
            return Ok(Adoption::Known);
        }
        let mark = Mark {
            size_bytes: stat.st_size.unsigned_abs(),
            identity,
            changed_ns: before.changed_ns,
            moment: moment(self.keeping.boot),
            durable: false,
            verdict,
        };
        self.put_mark(file, path, &mark)?;
        Ok(Adoption::Marked)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{machine, object};
    use super::super::{FileState, Reader, There};
    use super::*;
    use crate::files::file_download::identity_of;

    #[expect(clippy::disallowed_methods, reason = "a machine of a test begins now")]
    fn adopter(folder: &Path) -> Adopter {
        Adopter::open(folder, Instant::now()).expect("a folder")
    }

    fn opened(folder: &Path, path: &str) -> OwnedFd {
        match Reader::open(folder).expect("a folder").look(path).expect("it can be looked at") {
            There::File(file, _) => file,
            other => panic!("{other:?}"),
        }
    }

    /// Adopts `a/b` of three bytes, with something done between the two looks.
    fn adopt(folder: &Path, between: impl FnOnce()) -> Adoption {
        let file = opened(folder, "a/b");
        let before = Look::before(&file).expect("it rests");
        let download = object("a/b", 3);
        let identity = identity_of("b", &download.object.listed).expect("it has a tag");
        between();
        let proven = Proven { file: &file, path: "a/b", before, identity, verdict: 0 };
        adopter(folder).adopt(&proven).expect("it can be marked")
    }

    fn state(folder: &Path) -> FileState {
        let mut machine = machine(folder);
        machine.keeping.boot = boot();
        machine.remember();
        machine.look(&object("a/b", 3)).expect("it says").0
    }

    #[test]
    fn what_is_adopted_is_known_and_what_changed_meanwhile_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b");
        let write = |bytes: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, bytes).expect("written");
        };
        write("abc");
        let time = fs::metadata(&path).expect("there").modified().expect("a time");
        let back = || {
            let open = fs::OpenOptions::new().write(true).open(&path).expect("opened");
            open.set_modified(time).expect("set");
        };
        let unmarked = FileState::Unmarked { same_time: false };
        // Each directly after the look: the status change time has moved on nevertheless.
        let changes: [&dyn Fn(); 4] = [
            &|| write("xyz"),
            &|| {
                write("xyz");
                back();
            },
            &|| {
                fs::write(folder.path().join("other"), "xyz").expect("written");
                fs::rename(folder.path().join("other"), &path).expect("renamed");
            },
            &|| {
                fs::remove_file(&path).expect("removed");
                write("abc");
                back();
            },
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_eq!(adopt(folder.path(), change), Adoption::Changed, "{index}");
            assert_eq!(state(folder.path()), unmarked, "{index}");
        }
        assert_eq!(adopt(folder.path(), || {}), Adoption::Marked);
        assert_eq!(state(folder.path()), FileState::Same);
        assert_eq!(adopt(folder.path(), || {}), Adoption::Known);
        write("xyz");
        assert_eq!(state(folder.path()), FileState::Other, "the mark has another time");
    }

    #[test]
    fn marks_that_were_synced_count_after_a_start_of_the_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("a")).expect("made");
        fs::write(folder.path().join("a/b"), "abc").expect("written");
        assert_eq!(adopt(folder.path(), || {}), Adoption::Marked);
        let later = || {
            let mut machine = machine(folder.path());
            machine.keeping.boot = boot() ^ 1;
            machine.remember();
            machine.look(&object("a/b", 3)).expect("it says").0
        };
        assert_eq!(later(), FileState::Other);
        adopter(folder.path()).sync().expect("synced");
        assert_eq!(later(), FileState::Same);
    }
}
