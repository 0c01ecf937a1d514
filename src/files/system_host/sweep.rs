//! Finds files that the source does not have by a walk of the destination, and removes them.
//!
//! The walk starts at the destination's open folder, follows no links, and stays on one file
//! system. It removes names in folders that it reached this way: a link itself, never its target.
//! Anything but files, links and folders stays, and so do names that no key can have.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno as Code;
use unicode_normalization::UnicodeNormalization as _;

use super::{Root, SystemHost, parts};
use crate::error::{Error, ErrorKind};
use crate::files::host::Protection;
use crate::limits::SWEEP_DEPTH_MAX;
use crate::plan::path::is_own;

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// Files and links that were removed, or would be.
    pub removed: u64,
    /// Unfinished files of earlier runs that were removed.
    pub unfinished: u64,
    /// Disk space of unfinished files, in a dry sweep.
    pub unfinished_bytes: u64,
    /// Names that stay although the source does not have them.
    pub left: u64,
    /// The first error while reading or removing.
    pub error: Option<Error>,
}

/// Options of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Nothing is removed.
    pub dry: bool,
    /// Unfinished files of earlier runs are removed, too.
    pub unfinished: bool,
    /// A folder is removed completely, with its empty folders, or not at all: own names in it stay.
    pub whole: bool,
    /// `is_extra` already knows which names the file system treats as equal.
    pub folds: bool,
}

impl SystemHost {
    /// Removes what is below the destination and which, according to `is_extra`, the source does
    /// not have; paths of folders end in a slash. `report` gets each removed path and returns false
    /// to end the sweep.
    pub fn sweep(
        &mut self,
        sweep: Sweep,
        is_extra: &dyn Fn(&str) -> bool,
        report: &mut dyn FnMut(&str) -> bool,
    ) -> Swept {
        let typed = self.folders().root.clone();
        sweep_below(self.open_root(), typed, sweep, is_extra, report)
    }

    /// Removes what blocks a file at this path, or a folder if the path ends in a slash: a file at
    /// the path of a folder, or a folder at the path of the file, if `is_extra` is true of all its
    /// content. Links stay; what stays is counted. With `dry` it only counts.
    pub fn clear_way(
        &mut self,
        path: &str,
        (folds, dry): (bool, bool),
        is_extra: &dyn Fn(&str) -> bool,
        report: &mut dyn FnMut(&str) -> bool,
    ) -> Swept {
        let typed = self.folders().root.clone();
        let opened = self.open_root().and_then(|root| Ok((rustix::fs::fstat(&root)?.st_dev, root)));
        let (device, mut folder) = match opened {
            Ok(opened) => opened,
            Err(errno) => return unread(&typed, errno),
        };
        let sweep = Sweep { dry, unfinished: false, whole: true, folds };
        let mut sweeper = Sweeper::new(sweep, typed, (is_extra, report), device);
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for (depth, end) in ends.enumerate() {
            let here = &path[..end];
            let name = here.rsplit_once('/').map_or(here, |(_, name)| name);
            let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
            let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
            match kind {
                // A key that ends in a slash.
                _ if name.is_empty() => break,
                Ok(FileType::Directory) if end < path.len() => match open_below(&folder, name) {
                    Ok((found, below)) if found == device => folder = below,
                    Ok(_) => {
                        sweeper.swept.left += 1;
                        break;
                    }
                    Err(errno) => {
                        sweeper.failed("open", here, errno);
                        break;
                    }
                },
                Ok(FileType::Directory) => {
                    match may_change(&folder) && sweeper.may_go(&folder, name, here, depth + 1) {
                        true if dry => {}
                        true => drop(sweeper.enter(&folder, name, here, depth + 1)),
                        false => sweeper.swept.left += 1,
                    }
                }
                Ok(FileType::RegularFile)
                    if end < path.len() && may_change(&folder) && is_extra(here) =>
                {
                    sweeper.remove(&folder, name, here);
                    break;
                }
                Ok(_) => {
                    sweeper.swept.left += u64::from(end < path.len());
                    break;
                }
                Err(errno) => {
                    sweeper.failed("look up", here, errno);
                    break;
                }
            }
        }
        sweeper.swept
    }
}

/// Opens a folder to read its names, without following a link.
pub(super) fn open_folder_to_read(above: &OwnedFd, name: &str) -> Result<OwnedFd, Code> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

/// Opens a folder to read its names, and returns the device of its file system, too.
fn open_below(above: &OwnedFd, name: &str) -> Result<(u64, OwnedFd), Code> {
    let folder = open_folder_to_read(above, name)?;
    Ok((rustix::fs::fstat(&folder)?.st_dev, folder))
}

/// True if the folder's mode lets names in it be removed.
fn may_change(folder: &OwnedFd) -> bool {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(folder, ".", access, AtFlags::EACCESS).is_ok()
}

/// True if a file can be found by its name in another case or Unicode form, or with a dot or a
/// space appended, too: then the name may be the source's, whatever the file system does in other
/// folders (ext4's casefold is per folder). Inode numbers are no evidence: some file systems make
/// one up per name.
pub(super) fn folds_names(folder: &OwnedFd, name: &str) -> bool {
    let swap = |letter: char| match letter.is_lowercase() {
        true => letter.to_uppercase().to_string(),
        false => letter.to_lowercase().to_string(),
    };
    let swapped: String = name.chars().map(swap).collect();
    let behind = [".", " "].map(|more| format!("{name}{more}"));
    let others = [swapped, name.nfc().collect(), name.nfd().collect()].into_iter().chain(behind);
    others.filter(|other| other != name).any(|other| {
        match rustix::fs::statat(folder, other.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Code::NOENT | Code::NAMETOOLONG | Code::INVAL | Code::ILSEQ) => false,
            // An error also shows that the name is not free.
            Ok(_) | Err(_) => !lists(folder, &other),
        }
    })
}

/// True if a folder lists exactly this name.
fn lists(folder: &OwnedFd, name: &str) -> bool {
    let Ok(entries) = Dir::read_from(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_bytes() == name.as_bytes())
}

fn sweep_below(
    root: Result<OwnedFd, Code>,
    typed: Root,
    sweep: Sweep,
    is_extra: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(&str) -> bool,
) -> Swept {
    let root = root.and_then(|root| Ok((rustix::fs::fstat(&root)?.st_dev, root)));
    match root {
        Ok((device, root)) => {
            let mut sweeper = Sweeper::new(sweep, typed, (is_extra, report), device);
            sweeper.folder(&root, "", 0);
            sweeper.swept
        }
        Err(errno) => unread(&typed, errno),
    }
}

/// Result for a destination that cannot be read.
fn unread(typed: &Root, errno: Code) -> Swept {
    let error = Some(refused(&format!("read {}", typed.place("")), errno, None));
    Swept { error, ..Swept::default() }
}

/// A sweep that removes nothing.
const LOOK: Sweep = Sweep { dry: true, unfinished: true, whole: false, folds: false };

/// Walks a folder like a sweep that removes nothing: `is_extra` gets each file and link; `report`
/// gets those for which it is true, and returns false to end the walk.
///
/// # Errors
/// If the folder cannot be opened.
pub fn look_through(
    folder: &Path,
    is_extra: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(&str) -> bool,
) -> Result<Swept, Error> {
    let typed = Root::present(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(&typed.folder, ".", flags, Mode::empty());
    Ok(sweep_below(root, typed, LOOK, is_extra, report))
}

/// Gets each path, and returns false to end the sweep.
type Report<'a> = &'a mut dyn FnMut(&str) -> bool;

struct Sweeper<'a> {
    sweep: Sweep,
    typed: Root,
    is_extra: &'a dyn Fn(&str) -> bool,
    report: Report<'a>,
    device: u64,
    swept: Swept,
    stopped: bool,
}

/// A folder's names of interest. They are collected first, because removing names while a folder is
/// read may hide others.
#[derive(Default)]
struct FolderNames {
    extra: Vec<String>,
    folders: Vec<String>,
    own: Vec<String>,
}

impl<'a> Sweeper<'a> {
    fn new(
        sweep: Sweep,
        typed: Root,
        (is_extra, report): (&'a dyn Fn(&str) -> bool, Report<'a>),
        device: u64,
    ) -> Self {
        Self { sweep, typed, is_extra, report, device, swept: Swept::default(), stopped: false }
    }

    /// Sweeps a folder; true if anything was removed.
    fn folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) -> bool {
        let found = match self.read(folder, path) {
            Ok(found) => found,
            Err(errno) => {
                self.failed("read", path, errno);
                return false;
            }
        };
        // The folder may have changed since it was checked.
        if self.sweep.whole && !(found.own.is_empty() && may_change(folder)) {
            self.swept.left += 1;
            return false;
        }
        if self.sweep.unfinished && !self.sweep.dry {
            let cleared = found.own.iter().filter(|name| parts::clear_left(folder, name)).count();
            self.swept.unfinished += cleared as u64;
        }
        if self.sweep.unfinished && self.sweep.dry {
            for name in &found.own {
                let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                let blocks = stat.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0));
                self.swept.unfinished_bytes += blocks * 512;
            }
        }
        let mut changed = false;
        for name in found.extra {
            if self.stopped {
                return changed;
            }
            changed |= self.remove(folder, &name, &below(path, &name));
        }
        for name in found.folders {
            if self.stopped {
                return changed;
            }
            changed |= self.enter(folder, &name, &below(path, &name), depth + 1);
        }
        changed
    }

    fn read(&mut self, folder: &OwnedFd, path: &str) -> Result<FolderNames, Code> {
        let mut found = FolderNames::default();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                self.swept.left += 1;
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            match kind {
                _ if is_own(name) => found.own.push(name.to_owned()),
                FileType::Directory => found.folders.push(name.to_owned()),
                _ if !(self.is_extra)(&below(path, name)) => {
                    self.swept.left += u64::from(self.sweep.whole);
                }
                FileType::RegularFile | FileType::Symlink => found.extra.push(name.to_owned()),
                _ => self.swept.left += 1,
            }
        }
        Ok(found)
    }

    fn remove(&mut self, folder: &OwnedFd, name: &str, path: &str) -> bool {
        if !self.sweep.folds && folds_names(folder, name) {
            self.swept.left += 1;
            return false;
        }
        if !self.sweep.dry
            && let Err(errno) = rustix::fs::unlinkat(folder, name, AtFlags::empty())
        {
            self.failed("remove", path, errno);
            return false;
        }
        self.swept.removed += 1;
        self.stopped |= !(self.report)(path);
        true
    }

    /// True if a sweep of a subfolder would leave nothing of it. Removes nothing.
    fn may_go(&self, above: &OwnedFd, name: &str, path: &str, depth: usize) -> bool {
        let dry = Sweep { dry: true, ..self.sweep };
        let (typed, mut ignore) = (self.typed.clone(), |_: &str| true);
        let mut look = Sweeper::new(dry, typed, (self.is_extra, &mut ignore), self.device);
        look.enter(above, name, path, depth);
        let Swept { left, error, .. } = look.swept;
        left == 0 && error.is_none()
    }

    /// Sweeps a subfolder, and removes it if that has emptied it.
    fn enter(&mut self, above: &OwnedFd, name: &str, path: &str, depth: usize) -> bool {
        let folder = match open_below(above, name) {
            Ok((device, folder)) if device == self.device && depth <= SWEEP_DEPTH_MAX => folder,
            Ok(_) => {
                self.swept.left += 1;
                return false;
            }
            Err(errno) => {
                self.failed("open", path, errno);
                return false;
            }
        };
        let is_extra = self.is_extra;
        let is_extra = || is_extra(&format!("{path}/"));
        if self.sweep.whole && !is_extra() {
            self.swept.left += 1;
            return false;
        }
        let changed = self.folder(&folder, path, depth);
        // A folder that is not empty stays, and so does one that was empty before.
        let is_emptied = changed || self.sweep.whole;
        if !is_emptied || self.sweep.dry || self.stopped || !is_extra() {
            return false;
        }
        let removed = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
        if let Err(errno) = removed
            && self.sweep.whole
        {
            self.failed("remove", path, errno);
        }
        removed.is_ok()
    }

    fn failed(&mut self, step: &'static str, path: &str, errno: Code) {
        // Another process removed it first.
        if errno != Code::NOENT {
            let what = format!("{step} {}", self.typed.place(path));
            let protection = self.typed.protection(step, path, errno);
            self.swept.error.get_or_insert_with(|| refused(&what, errno, protection));
            self.stopped |= self.sweep.whole;
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn refused(what: &str, errno: Code, protection: Option<Protection>) -> Error {
    let advice =
        "some files that are not in the source may be left; check permissions and run it again";
    let why = protection.map(Protection::suffix).unwrap_or_default();
    Error::new(ErrorKind::Destination, format!("cannot {what}: {errno}{why}"))
        .advise(advice)
        .of_call(Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::tests::{machine, names};
    use super::*;

    const ALL: Sweep = Sweep { dry: false, unfinished: true, whole: false, folds: false };

    fn sweep(folder: &Path, sweep: Sweep, listed: &[&str]) -> (Vec<String>, Swept) {
        let mut removed = Vec::new();
        let swept = machine(folder).sweep(sweep, &|path| !listed.contains(&path), &mut |path| {
            removed.push(path.to_owned());
            true
        });
        removed.sort();
        (removed, swept)
    }

    fn file(folder: &Path, path: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, "something").expect("written");
    }

    #[test]
    fn what_the_source_does_not_have_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["a", "b/c", "b/d", "old", "gone/far/e", "half/f", "half/g"] {
            file(folder.path(), path);
        }
        fs::create_dir(folder.path().join("empty")).expect("made");
        let listed = ["a", "b/c", "b/d", "half/f", "missing"];
        let dry = Sweep { dry: true, ..ALL };
        let expected = ["gone/far/e", "half/g", "old"];
        let (removed, swept) = sweep(folder.path(), dry, &listed);
        assert_eq!((&removed[..], swept.removed), (&expected.map(String::from)[..], 3));
        assert!(folder.path().join("old").exists());
        let (removed, swept) = sweep(folder.path(), ALL, &listed);
        assert_eq!((&removed[..], swept.removed), (&expected.map(String::from)[..], 3));
        assert!(swept.error.is_none() && swept.left == 0);
        assert_eq!(names(folder.path()), ["a", "b", "empty", "half"], "emptied folders go");
        assert_eq!(names(&folder.path().join("half")), ["f"]);
        file(folder.path(), "kept/x");
        sweep(folder.path(), ALL, &["a", "b/c", "b/d", "half/f", "kept/"]);
        assert!(folder.path().join("kept").is_dir(), "the source has that folder");
    }

    #[test]
    fn what_is_in_the_way_goes_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let unfinished = "part/.inrush-0123456789abcdef.part";
        for path in ["item", "dir/x", "dir/deep/y", "half/own", "half/z", "other", "part/x"] {
            file(folder.path(), path);
        }
        for path in ["a/x", "a/mark/y", "part/.inrush-index", unfinished, "tmp/x"] {
            file(folder.path(), path);
        }
        fs::create_dir_all(folder.path().join("tmp/deep/.inrush-0123456789abcdef.tmp"))
            .expect("made");
        fs::create_dir(folder.path().join("dir/empty")).expect("made");
        symlink("dir", folder.path().join("link")).expect("a link");
        let is_extra = |path: &str| path != "half/own" && path != "a/mark/";
        let mut removed = Vec::new();
        for dry in [true, false] {
            for (path, left) in [
                ("item/x", 0),
                ("dir", 0),
                ("half", 1),
                ("link/x", 1),
                ("new/x", 0),
                ("other", 0),
                ("part", 1),
                ("a", 1),
                ("tmp", 1),
            ] {
                let mut report = |path: &str| {
                    removed.push(path.to_owned());
                    true
                };
                let mut machine = machine(folder.path());
                let swept = machine.clear_way(path, (false, dry), &is_extra, &mut report);
                assert_eq!((swept.left, swept.error.is_none()), (left, true), "{path} {dry}");
            }
            if dry {
                assert_eq!(names(folder.path()).len(), 8, "nothing is removed");
                removed.clear();
            }
        }
        removed.sort();
        assert_eq!(removed, ["dir/deep/y", "dir/x", "item"]);
        assert_eq!(names(folder.path()), ["a", "half", "link", "other", "part", "tmp"]);
        for (whole, below) in [("half", vec!["own", "z"]), ("a", vec!["mark", "x"])] {
            assert_eq!(names(&folder.path().join(whole)), below, "it cannot go as a whole");
        }
        assert_eq!(names(&folder.path().join("part")).len(), 3, "own names stay");
        assert_eq!(names(&folder.path().join("tmp")), ["deep", "x"]);
    }

    #[test]
    fn links_go_and_what_they_lead_to_stays() {
        let outside = tempfile::tempdir().expect("a folder");
        file(outside.path(), "deep/victim");
        let folder = tempfile::tempdir().expect("a folder");
        file(folder.path(), "a/x");
        symlink(outside.path(), folder.path().join("a/folder")).expect("a link");
        symlink(outside.path().join("deep/victim"), folder.path().join("file")).expect("a link");
        symlink("nowhere", folder.path().join("listed")).expect("a link");
        let (removed, swept) = sweep(folder.path(), ALL, &["a/x", "listed", "a/folder/deep"]);
        assert_eq!((removed, swept.removed), (vec!["a/folder".to_owned(), "file".to_owned()], 2));
        assert_eq!(names(&outside.path().join("deep")), ["victim"]);
        assert_eq!(names(folder.path()), ["a", "listed"]);
    }

    #[test]
    fn what_is_not_of_a_source_is_left_alone() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().expect("a folder");
        let odd = folder.path().join(OsStr::from_bytes(b"\xff"));
        fs::write(&odd, "not a key").expect("written");
        let socket = UnixListener::bind(folder.path().join("socket")).expect("a socket");
        file(folder.path(), ".inrush-index");
        let (removed, swept) = sweep(folder.path(), ALL, &[]);
        assert_eq!((removed.len(), swept.left), (0, 2));
        assert!(odd.exists() && folder.path().join(".inrush-index").exists());
        drop(socket);
    }

    #[test]
    fn it_ends_when_nobody_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["a/1", "a/2", "b/1", "c"] {
            file(folder.path(), path);
        }
        let swept = machine(folder.path()).sweep(ALL, &|_| true, &mut |_| false);
        assert_eq!(swept.removed, 1);
    }

    #[test]
    fn unfinished_files_that_nobody_works_on_go() {
        use super::super::tests::object;
        let folder = tempfile::tempdir().expect("a folder");
        let begin = |path: &str| {
            let mut machine = machine(folder.path());
            let file = machine.create(&object(path, 5 << 20)).expect("created");
            parts::note(&file, 0, None);
            file
        };
        drop(begin("d/left"));
        let held = begin("d/held");
        assert_eq!(names(&folder.path().join("d")).len(), 4);
        sweep(folder.path(), Sweep { unfinished: false, ..ALL }, &[]);
        assert_eq!(names(&folder.path().join("d")).len(), 4);
        sweep(folder.path(), ALL, &[]);
        assert_eq!(names(&folder.path().join("d")).len(), 2, "the other one is in our hands");
        drop(held);
    }
}
