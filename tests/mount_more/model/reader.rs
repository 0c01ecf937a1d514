//! One thread that does what programs do with files, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::symlink;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fastrand::Rng;
use rustix::fs::{
    Advice, MemfdFlags, OFlags, XattrFlags, fadvise, memfd_create, sendfile, setxattr,
};
use rustix::io::Errno;

use crate::mapper::Mapper;
use crate::matrix::Objects;

/// Most files that a thread has open.
const OPEN_MAX: usize = 8;
/// When all objects of the origin were written.
const WRITTEN: i64 = 1_704_067_200;

/// Nothing, or what was expected and what came instead.
type Checked = Result<(), String>;

/// The tree as it must be.
pub(super) struct Model<'a> {
    point: &'a Path,
    files: Vec<(&'a str, &'a [u8])>,
    /// The names in each folder, and whether they are folders, too. The root is the empty path.
    folders: BTreeMap<&'a str, BTreeMap<&'a str, bool>>,
    paths: BTreeSet<&'a str>,
}

impl<'a> Model<'a> {
    pub(super) fn new(point: &'a Path, objects: &'a Objects) -> Self {
        let below = |key: &'a str| key.strip_prefix("d/").expect("all are below it");
        let files: Vec<_> = objects.iter().map(|(key, bytes)| (below(key), &bytes[..])).collect();
        let mut folders: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
        let mut paths: BTreeSet<&str> = files.iter().map(|(path, _)| *path).collect();
        for (path, _) in &files {
            let (mut rest, mut is_folder) = (*path, false);
            while let Some((folder, name)) = rest.rsplit_once('/') {
                folders.entry(folder).or_default().insert(name, is_folder);
                paths.insert(folder);
                (rest, is_folder) = (folder, true);
            }
            folders.entry("").or_default().insert(rest, is_folder);
        }
        Self { point, files, folders, paths }
    }
}

/// Processes that map files for the threads: as many as threads want one at the same time.
#[derive(Default)]
pub(super) struct Mappers(Mutex<Vec<Mapper>>);

impl Mappers {
    fn read(
        &self,
        what: &str,
        path: &Path,
        at: usize,
        length: usize,
        touched: &[usize],
    ) -> io::Result<Vec<u8>> {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut mapper = taken.unwrap_or_else(Mapper::new);
        // One that fails is not used again.
        let bytes = mapper.read(what, path, at, length, touched)?;
        idle().push(mapper);
        Ok(bytes)
    }
}

/// An open file, and where its next read is.
struct Open<'a> {
    path: &'a str,
    bytes: &'a [u8],
    file: File,
    at: usize,
    direct: bool,
}

/// A thread.
pub(super) struct Reader<'a> {
    model: &'a Model<'a>,
    mappers: &'a Mappers,
    random: Rng,
    open: Vec<Open<'a>>,
    /// The operation.
    doing: String,
}

impl<'a> Reader<'a> {
    pub(super) fn new(model: &'a Model<'a>, mappers: &'a Mappers, seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        Self { model, mappers, random, open: Vec::new(), doing: String::new() }
    }

    /// Does something; the error says what it was.
    pub(super) fn step(&mut self) -> Checked {
        let checked = match self.random.u32(..100) {
            0..12 => self.open().map(drop),
            12..16 => self.close(),
            16..40 => self.read_anywhere(),
            40..52 => self.read_on(),
            52..59 => self.seek(),
            59..64 => self.list(),
            64..69 => self.look(),
            69..74 => self.look_for_nothing(),
            74..78 => self.write(),
            78..83 => self.advise(),
            83..89 => self.read_again(),
            89..92 => self.read_ahead(),
            92..96 => self.map(),
            96..98 => self.send(),
            _ => self.find_data(),
        };
        checked.map_err(|what| format!("{}: {what}", self.doing))
    }

    /// A file; most of the time one that takes several requests.
    fn file(&mut self) -> (&'a str, &'a [u8]) {
        loop {
            let (path, bytes) = self.model.files[self.random.usize(..self.model.files.len())];
            if bytes.len() > 200_000 || self.random.u32(..4) == 0 {
                return (path, bytes);
            }
        }
    }

    /// Opens a file, often one that is open already; its place.
    fn open(&mut self) -> Result<usize, String> {
        if self.open.len() == OPEN_MAX {
            self.close()?;
        }
        let (mut path, mut bytes) = self.file();
        if self.random.u32(..3) == 0 && !self.open.is_empty() {
            let other = &self.open[self.random.usize(..self.open.len())];
            (path, bytes) = (other.path, other.bytes);
        }
        let direct = self.random.u32(..8) == 0;
        self.doing = format!("open {path:?}, past the page cache: {direct}");
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = i32::try_from(flags.bits()).map_err(|error| error.to_string())?;
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(flags);
        let file = how.open(self.model.point.join(path)).map_err(message_of)?;
        self.open.push(Open { path, bytes, file, at: 0, direct });
        Ok(self.open.len() - 1)
    }

    /// The place of an open file; sometimes one of which the kernel has nothing any more.
    fn any(&mut self) -> Result<usize, String> {
        let place = match self.open.len() {
            0 => self.open()?,
            count => self.random.usize(..count),
        };
        if self.random.u32(..4) == 0 {
            self.forget(place)?;
        }
        Ok(place)
    }

    /// Has the kernel drop all pages that it has of a file.
    fn forget(&mut self, place: usize) -> Checked {
        let open = &self.open[place];
        self.doing = format!("advise DontNeed for all of {open}");
        fadvise(&open.file, 0, None, Advice::DontNeed).map_err(|errno| message_of(errno.into()))
    }

    fn close(&mut self) -> Checked {
        if !self.open.is_empty() {
            let place = self.random.usize(..self.open.len());
            drop(self.open.swap_remove(place));
        }
        Ok(())
    }

    /// A place in a file of this length, on an edge, or behind its end.
    fn at(&mut self, length: usize) -> usize {
        match self.random.u32(..20) {
            0 => 0,
            1 => length,
            2 => length + 1,
            3 => length.saturating_sub(1),
            4 => length + (1 << self.random.u32(..40)),
            5..=8 => {
                let page = self.random.usize(..=length / 4096) * 4096;
                (page + self.random.usize(..3)).saturating_sub(1)
            }
            _ => self.random.usize(..length + 5_000),
        }
    }

    fn length(&mut self) -> usize {
        match self.random.u32(..20) {
            0 => 0,
            1 => 1,
            2 => 4096,
            3..=6 => self.random.usize(..100),
            7..=13 => self.random.usize(..70_000),
            14..=18 => self.random.usize(..400_000),
            _ => self.random.usize(..4_000_000),
        }
    }

    fn read_anywhere(&mut self) -> Checked {
        let place = self.any()?;
        let (at, length) = (self.at(self.open[place].bytes.len()), self.length());
        self.read_at(place, at, length)
    }

    fn read_at(&mut self, place: usize, at: usize, length: usize) -> Checked {
        let open = &self.open[place];
        self.doing = format!("read {length} bytes at {at} of {open}");
        let mut buffer = vec![0xEE; length];
        let count = open.file.read_at(&mut buffer, at as u64).map_err(message_of)?;
        open.compare(at, length, &buffer[..count])
    }

    /// Several reads, each where the one before ended.
    fn read_on(&mut self) -> Checked {
        let place = self.any()?;
        let length = self.length();
        for number in 0..self.random.u32(1..12) {
            let open = &mut self.open[place];
            self.doing = format!("read {length} bytes more (the {number}th time) of {open}");
            open.read(length)?;
        }
        Ok(())
    }

    /// Goes to a place in one of the three ways, and reads there.
    fn seek(&mut self) -> Checked {
        let place = self.any()?;
        let (length, to) = (self.length(), self.at(self.open[place].bytes.len()));
        let way = self.random.u32(..3);
        let open = &mut self.open[place];
        let from = |from: usize| to as i64 - from as i64;
        let seek = match way {
            0 => SeekFrom::Start(to as u64),
            1 => SeekFrom::Current(from(open.at)),
            _ => SeekFrom::End(from(open.bytes.len())),
        };
        self.doing = format!("{seek:?}, which is {to}, and read {length} bytes of {open}");
        let found = open.file.seek(seek).map_err(message_of)?;
        same(&found, &(to as u64))?;
        open.at = to;
        open.read(length)?;
        // Before the beginning there is nothing, and the place stays.
        let before = open.file.seek(SeekFrom::Current(-1 - open.at as i64));
        expect_errno(before, Errno::INVAL)?;
        same(&open.file.stream_position().map_err(message_of)?, &(open.at as u64))
    }

    fn folder(&mut self) -> (&'a str, &'a BTreeMap<&'a str, bool>) {
        let place = self.random.usize(..self.model.folders.len());
        let (path, names) = self.model.folders.iter().nth(place).expect("a folder");
        (path, names)
    }

    fn list(&mut self) -> Checked {
        let (path, expected) = self.folder();
        self.doing = format!("list {path:?}");
        let mut found = Vec::new();
        for entry in fs::read_dir(self.model.point.join(path)).map_err(message_of)? {
            let entry = entry.map_err(message_of)?;
            found.push((entry.file_name(), entry.file_type().map_err(message_of)?.is_dir()));
        }
        found.sort();
        let expected = expected.iter().map(|(name, is_folder)| (OsString::from(name), *is_folder));
        same(&found, &expected.collect())
    }

    /// Attributes of a file, of one that is open, and of a folder.
    fn look(&mut self) -> Checked {
        let (path, bytes) = self.file();
        self.doing = format!("attributes of {path:?}");
        let found = fs::symlink_metadata(self.model.point.join(path)).map_err(message_of)?;
        let length = bytes.len() as u64;
        let shown = |found: &fs::Metadata| (found.len(), found.blocks(), found.mtime());
        same(&shown(&found), &(length, length.div_ceil(512), WRITTEN))?;
        same(&(found.is_file(), found.mode() & 0o7777), &(true, 0o444))?;
        let place = self.any()?;
        let open = &self.open[place];
        self.doing = format!("attributes of the open file {open}");
        let found = open.file.metadata().map_err(message_of)?;
        let length = open.bytes.len() as u64;
        same(&shown(&found), &(length, length.div_ceil(512), WRITTEN))?;
        let (path, _) = self.folder();
        self.doing = format!("attributes of the folder {path:?}");
        let found = fs::metadata(self.model.point.join(path)).map_err(message_of)?;
        same(&(found.is_dir(), found.mode() & 0o7777, found.mtime()), &(true, 0o555, WRITTEN))
    }

    /// A path that is nearly one of the tree.
    fn near_miss(&mut self) -> String {
        loop {
            let (path, _) = self.file();
            let (folder, _) = self.folder();
            let nearly = match self.random.u32(..6) {
                0 => path[..path.len() - path.chars().last().map_or(0, char::len_utf8)].to_owned(),
                1 => path.to_uppercase(),
                2 => path.to_lowercase(),
                3 => format!("{folder}/{}", self.random.alphabetic()),
                4 => path.replace('%', "%25"),
                _ => format!("{folder}/ {}", self.random.u32(..)),
            };
            let nearly = nearly.trim_matches('/').to_owned();
            let name = nearly.rsplit('/').next().unwrap_or_default();
            let above = nearly.rsplit_once('/').map_or("", |(folder, _)| folder);
            let is_name = !["", ".", ".."].contains(&name) && name.len() <= 255;
            // Otherwise the folder would be missing already: that is another error below a file.
            let has_folder = self.model.folders.contains_key(above);
            if is_name && has_folder && !self.model.paths.contains(&nearly[..]) {
                return nearly;
            }
        }
    }

    fn look_for_nothing(&mut self) -> Checked {
        let missing = self.near_miss();
        self.doing = format!("look for {missing:?}, which is not there");
        let path = self.model.point.join(&missing);
        expect_errno(fs::symlink_metadata(&path), Errno::NOENT)?;
        expect_errno(File::open(&path), Errno::NOENT)?;
        expect_errno(fs::read_dir(&path), Errno::NOENT)?;
        expect_errno(fs::metadata(path.join("below")), Errno::NOENT)?;
        let (file, _) = self.file();
        self.doing = format!("look below the file {file:?}");
        let path = self.model.point.join(file);
        expect_errno(fs::metadata(path.join("below")), Errno::NOTDIR)?;
        expect_errno(fs::read_dir(path), Errno::NOTDIR)
    }

    /// Tries to change something.
    fn write(&mut self) -> Checked {
        let (path, _) = self.file();
        let (folder, _) = self.folder();
        let new = self.model.point.join(self.near_miss());
        let [path, folder] = [path, folder].map(|path| self.model.point.join(path));
        let (name, changed) = match self.random.u32(..14) {
            0 => ("write", fs::write(&path, b"x")),
            1 => ("create", fs::write(&new, b"x")),
            2 => ("open to write", File::options().write(true).open(&path).map(drop)),
            3 => ("append", File::options().append(true).open(&path).map(drop)),
            4 => ("open for both", File::options().read(true).write(true).open(&path).map(drop)),
            5 => ("unlink", fs::remove_file(&path)),
            6 => ("rename", fs::rename(&path, &new)),
            7 => ("make a folder", fs::create_dir(&new)),
            8 => ("remove a folder", fs::remove_dir(&folder)),
            9 => ("link", fs::hard_link(&path, &new)),
            10 => ("symlink", symlink("x", &new)),
            11 => ("chmod", fs::set_permissions(&path, Permissions::from_mode(0o644))),
            12 => ("set a time", times(&path)),
            _ => {
                let set = setxattr(&path, "user.x", b"x", XattrFlags::empty());
                ("set an attribute", set.map_err(io::Error::from))
            }
        };
        self.doing = format!("{name}: {path:?}, {new:?} or {folder:?}");
        // Where something is mounted nobody asks the file system.
        let is_root = name == "remove a folder" && folder == self.model.point;
        expect_errno(changed, if is_root { Errno::BUSY } else { Errno::ROFS })
    }

    fn advise(&mut self) -> Checked {
        let place = self.any()?;
        let (at, length) = (self.at(self.open[place].bytes.len()), self.length());
        let all = [
            Advice::DontNeed,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::Normal,
        ];
        let advice = all[self.random.usize(..all.len())];
        let open = &self.open[place];
        self.doing = format!("advise {advice:?} for {length} bytes at {at} of {open}");
        let length = NonZeroU64::new(length as u64);
        fadvise(&open.file, at as u64, length, advice).map_err(|errno| message_of(errno.into()))
    }

    /// Reads what the kernel does not have, at several places.
    fn read_again(&mut self) -> Checked {
        let place = self.any()?;
        for _ in 0..self.random.u32(1..4) {
            self.forget(place)?;
            let (at, length) = (self.at(self.open[place].bytes.len()), self.length());
            self.read_at(place, at, length)?;
        }
        Ok(())
    }

    fn read_ahead(&mut self) -> Checked {
        let (path, bytes) = self.file();
        let (at, length) = (self.at(bytes.len()), self.length());
        self.doing = format!("readahead of {length} bytes at {at} of {path:?}");
        let path = self.model.point.join(path);
        same(
            &self.mappers.read("readahead", &path, at, length, &[]).map_err(message_of)?,
            &Vec::new(),
        )
    }

    fn map(&mut self) -> Checked {
        let (path, bytes) = self.file();
        if bytes.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(..bytes.len());
        let length = self.length().clamp(1, bytes.len() - at);
        let touched: Vec<usize> = (0..3).map(|_| self.random.usize(..length)).collect();
        let ways = ["normal", "random", "sequential", "willneed"];
        let what = ways[self.random.usize(..ways.len())];
        self.doing = format!(
            "map {length} bytes at {at} of {path:?} ({} bytes), {what}, {touched:?} first",
            bytes.len()
        );
        let found = self.mappers.read(what, &self.model.point.join(path), at, length, &touched);
        compare(&bytes[at..at + length], &found.map_err(message_of)?)
    }

    /// sendfile(2): the kernel moves pages without a buffer of the program's.
    fn send(&mut self) -> Checked {
        let place = self.any()?;
        let (at, length) = (self.at(self.open[place].bytes.len()), self.length());
        let open = &self.open[place];
        self.doing = format!("send {length} bytes at {at} of {open}");
        let memory =
            memfd_create("sent", MemfdFlags::CLOEXEC).map_err(|errno| message_of(errno.into()))?;
        let (mut next, mut left) = (at as u64, length);
        while left > 0 {
            let sent = sendfile(&memory, &open.file, Some(&mut next), left);
            match sent.map_err(|errno| message_of(errno.into()))? {
                0 => break,
                count => left -= count,
            }
        }
        let (mut memory, mut found) = (File::from(memory), Vec::new());
        memory.seek(SeekFrom::Start(0)).map_err(message_of)?;
        memory.read_to_end(&mut found).map_err(message_of)?;
        open.compare(at, length, &found)
    }

    /// Where data and the next hole are: nowhere is one but at the end.
    fn find_data(&mut self) -> Checked {
        let place = self.any()?;
        let at = self.at(self.open[place].bytes.len());
        let open = &mut self.open[place];
        self.doing = format!("find data and the hole behind {at} of {open}");
        let length = open.bytes.len();
        for (seek, expected) in [
            (rustix::fs::SeekFrom::Data(at as u64), at),
            (rustix::fs::SeekFrom::Hole(at as u64), length),
        ] {
            let found = rustix::fs::seek(&open.file, seek).map_err(io::Error::from);
            if at >= length {
                expect_errno(found, Errno::NXIO)?;
            } else {
                same(&found.map_err(message_of)?, &(expected as u64))?;
                open.at = expected;
            }
        }
        Ok(())
    }
}

impl Open<'_> {
    /// Reads on.
    fn read(&mut self, length: usize) -> Checked {
        let mut buffer = vec![0xEE; length];
        let count = self.file.read(&mut buffer).map_err(message_of)?;
        self.compare(self.at, length, &buffer[..count])?;
        self.at += count;
        Ok(())
    }

    fn compare(&self, at: usize, length: usize, found: &[u8]) -> Checked {
        let rest = self.bytes.get(at..).unwrap_or_default();
        compare(&rest[..rest.len().min(length)], found)
    }
}

impl std::fmt::Display for Open<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, bytes, at, direct, .. } = self;
        write!(f, "{path:?} ({} bytes, next read at {at}", bytes.len())?;
        write!(f, ", past the page cache: {direct})")
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn message_of(error: io::Error) -> String {
    error.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Checked {
    let wrong = || format!("got {found:?} instead of {expected:?}");
    if found == expected { Ok(()) } else { Err(wrong()) }
}

fn expect_errno<T>(found: io::Result<T>, expected: Errno) -> Checked {
    let found = found.err().map(|error| error.raw_os_error());
    same(&found, &Some(Some(expected.raw_os_error())))
}

fn compare(expected: &[u8], found: &[u8]) -> Checked {
    if expected == found {
        return Ok(());
    }
    let differs = expected.iter().zip(found).position(|(one, other)| one != other);
    let place = differs.unwrap_or(expected.len().min(found.len()));
    let some = |bytes: &[u8]| format!("{:?}", &bytes[place..bytes.len().min(place + 8)]);
    let (lengths, bytes) = ((found.len(), expected.len()), (some(found), some(expected)));
    Err(format!(
        "got {} bytes instead of {}; from byte {place} of the read on {} instead of {}",
        lengths.0, lengths.1, bytes.0, bytes.1
    ))
}

/// Tries to set the times of a file.
fn times(path: &Path) -> io::Result<()> {
    File::open(path)?.set_modified(std::time::UNIX_EPOCH)
}
