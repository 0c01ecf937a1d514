//! A file system in memory that takes names for one that differ in case, in the Unicode form of
//! `é`, or by dots and spaces behind them: FUSE, in the test's own process. An entry keeps the name
//! that it was made with, as casefold of ext4 has it. A file that is looked up by several names has
//! an inode number for each, as some file systems make them up.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

/// Names are asked for each time.
const NO_TIME: Duration = Duration::ZERO;
const BLOCK_BYTES: u32 = 4096;
const BLOCKS: u64 = 1 << 20;
/// Free bytes that `statfs` always reports there.
pub(crate) const FREE_BYTES: u64 = BLOCKS * BLOCK_BYTES as u64;

/// The file system, mounted; unmounted when it goes.
pub(crate) struct Folded {
    _session: BackgroundSession,
    folder: TempDir,
}

impl Folded {
    /// `None`, said on standard error, where FUSE file systems cannot be mounted.
    pub(crate) fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("folded".to_owned())];
        match fuser::spawn_mount(Names::new(), folder.path(), &config) {
            Ok(session) => Some(Self { _session: session, folder }),
            Err(error) => {
                crate::skip::skip(&format!(
                    "a file system that folds case cannot be made: {error}"
                ));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// By folded name, the name and the node.
type Entries = BTreeMap<String, (String, u64)>;

/// A file or a folder.
struct Node {
    bytes: Vec<u8>,
    modified: SystemTime,
    /// Of a folder.
    entries: Option<Entries>,
}

struct Names(Mutex<BTreeMap<u64, Node>>);

/// Of all names that are one the same.
fn folded(name: &OsStr) -> String {
    let name = name.to_string_lossy().to_lowercase().replace('\u{e9}', "e\u{301}");
    name.trim_end_matches(['.', ' ']).to_owned()
}

/// The inode number of a node by one of its names.
fn made_up(number: u64, name: &OsStr) -> u64 {
    let sum = name.as_bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>();
    number | sum << 32
}

/// The number of the node of an inode.
fn node_of(number: INodeNo) -> u64 {
    number.0 & u64::from(u32::MAX)
}

fn attributes(number: u64, node: &Node) -> FileAttr {
    let is_folder = node.entries.is_some();
    FileAttr {
        ino: INodeNo(number),
        size: node.bytes.len() as u64,
        blocks: (node.bytes.len() as u64).div_ceil(512),
        atime: node.modified,
        mtime: node.modified,
        ctime: node.modified,
        crtime: node.modified,
        kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
        perm: 0o755,
        nlink: if is_folder { 2 } else { 1 },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

impl Names {
    fn new() -> Self {
        let root = Node { bytes: Vec::new(), modified: UNIX_EPOCH, entries: Some(BTreeMap::new()) };
        Self(Mutex::new([(1, root)].into()))
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u64, Node>> {
        self.0.lock().expect("nobody panics")
    }

    fn find(&self, folder: INodeNo, name: &OsStr) -> Option<u64> {
        let nodes = self.nodes();
        let entries = nodes.get(&node_of(folder))?.entries.as_ref()?;
        entries.get(&folded(name)).map(|(_, number)| *number)
    }

    fn make(&self, folder: INodeNo, name: &OsStr, is_folder: bool) -> Result<FileAttr, Errno> {
        if self.find(folder, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let mut nodes = self.nodes();
        let number = nodes.keys().last().map_or(2, |last| last + 1);
        let entries = is_folder.then(BTreeMap::new);
        let node = Node { bytes: Vec::new(), modified: UNIX_EPOCH, entries };
        let about = attributes(made_up(number, name), &node);
        nodes.insert(number, node);
        let above = nodes.get_mut(&node_of(folder)).and_then(|node| node.entries.as_mut());
        let entry = (name.to_string_lossy().into_owned(), number);
        above.ok_or(Errno::ENOTDIR)?.insert(folded(name), entry);
        Ok(about)
    }

    fn remove(&self, folder: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let number = self.find(folder, name).ok_or(Errno::ENOENT)?;
        let mut nodes = self.nodes();
        if nodes[&number].entries.as_ref().is_some_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        let above = nodes.get_mut(&node_of(folder)).and_then(|node| node.entries.as_mut());
        above.ok_or(Errno::ENOTDIR)?.remove(&folded(name));
        Ok(())
    }
}

fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Names {
    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(folder, name) {
            Some(number) => {
                let about = attributes(made_up(number, name), &self.nodes()[&number]);
                reply.entry(&NO_TIME, &about, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.nodes().get(&node_of(number)) {
            Some(node) => reply.attr(&NO_TIME, &attributes(number.0, node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(&node_of(number)) else { return reply.error(Errno::ENOENT) };
        if let Some(size) = size {
            node.bytes.resize(usize::try_from(size).expect("small"), 0);
        }
        match modified {
            Some(TimeOrNow::SpecificTime(time)) => node.modified = time,
            Some(TimeOrNow::Now) => node.modified = SystemTime::now(),
            None => {}
        }
        reply.attr(&NO_TIME, &attributes(number.0, node));
    }

    fn mkdir(&self, _: &Request, folder: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.make(folder, name, true) {
            Ok(about) => reply.entry(&NO_TIME, &about, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(folder, name, false) {
            Ok(about) => {
                let (handle, none) = (FileHandle(0), FopenFlags::empty());
                reply.created(&NO_TIME, &about, Generation(0), handle, none);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove(folder, name));
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove(folder, name));
    }

    fn rename(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        to_folder: INodeNo,
        to_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(number) = self.find(folder, name) else { return reply.error(Errno::ENOENT) };
        let mut nodes = self.nodes();
        let mut entries = |folder: INodeNo, change: &dyn Fn(&mut Entries)| {
            nodes
                .get_mut(&node_of(folder))
                .and_then(|node| node.entries.as_mut())
                .into_iter()
                .for_each(change);
        };
        entries(folder, &|entries| drop(entries.remove(&folded(name))));
        entries(to_folder, &|entries| {
            let own = (to_name.to_string_lossy().into_owned(), number);
            entries.entry(folded(to_name)).or_insert(own).1 = number;
        });
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let nodes = self.nodes();
        let Some(node) = nodes.get(&node_of(number)) else { return reply.error(Errno::ENOENT) };
        let start = usize::try_from(offset).expect("small").min(node.bytes.len());
        let end = (start + size as usize).min(node.bytes.len());
        reply.data(&node.bytes[start..end]);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(&node_of(number)) else { return reply.error(Errno::ENOENT) };
        let start = usize::try_from(offset).expect("small");
        let end = start + bytes.len();
        node.bytes.resize(node.bytes.len().max(end), 0);
        node.bytes[start..end].copy_from_slice(bytes);
        node.modified = SystemTime::now();
        reply.written(u32::try_from(bytes.len()).expect("short"));
    }

    fn readdir(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let nodes = self.nodes();
        let entries = nodes.get(&node_of(folder)).and_then(|node| node.entries.as_ref());
        let Some(entries) = entries else { return reply.error(Errno::ENOTDIR) };
        for (place, (name, number)) in (1..).zip(entries.values()).filter(|(at, _)| *at > offset) {
            let kind = attributes(*number, &nodes[number]).kind;
            if reply.add(INodeNo(*number), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
