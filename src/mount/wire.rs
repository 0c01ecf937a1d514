//! Encodes and decodes FUSE requests (include/uapi/linux/fuse.h, protocol 7.40) that a read-only
//! file system has.

use std::time::Duration;

use crate::mount::tree::Inode;

/// Offset of the name in `struct fuse_dirent`.
const DIRENT_BYTES: usize = 24;
/// FUSE_READ_LOCKOWNER: `lock_owner` of `struct fuse_read_in` is set.
const READ_LOCK_OWNER: u32 = 1 << 1;
/// Length of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// FUSE_LOOKUP.
    LookUp {
        /// The folder; the name follows the arguments: [`name`].
        parent: Inode,
    },
    /// FUSE_GETATTR.
    Attributes {
        /// The inode.
        inode: Inode,
    },
    /// FUSE_OPEN.
    Open {
        /// The inode.
        inode: Inode,
        /// Flags of open(2).
        flags: i32,
    },
    /// FUSE_READ.
    Read {
        /// Handle that opening it returned.
        handle: u64,
        /// Offset.
        offset: u64,
        /// Most bytes to return.
        length: u32,
        /// A program's read past the page cache, which alone names a lock owner.
        has_owner: bool,
    },
    /// FUSE_RELEASE.
    Release {
        /// The inode.
        inode: Inode,
        /// Its handle.
        handle: u64,
    },
    /// FUSE_OPENDIR.
    OpenFolder {
        /// The inode.
        inode: Inode,
    },
    /// FUSE_READDIR or FUSE_READDIRPLUS.
    ReadFolder {
        /// The inode.
        inode: Inode,
        /// Offset of the first entry.
        offset: u64,
        /// Longest answer in bytes.
        length: u32,
        /// With each entry's attributes (readdirplus).
        has_attributes: bool,
    },
    /// FUSE_RELEASEDIR.
    ReleaseFolder,
    /// FUSE_STATFS.
    FileSystem,
    /// An operation that a read-only file system without links and attributes does not need.
    Other,
}

/// Parses a request from its header and its operation's arguments; `None` if they are too short.
#[must_use]
pub fn parse(head: &[u8], arguments: &[u8]) -> Option<Call> {
    let operation = u32_at(head, 4)?;
    let inode = u64_at(head, 16)?;
    let call = match operation {
        1 => Call::LookUp { parent: inode },
        3 => Call::Attributes { inode },
        14 => Call::Open { inode, flags: u32_at(arguments, 0)?.cast_signed() },
        15 => Call::Read {
            handle: u64_at(arguments, 0)?,
            offset: u64_at(arguments, 8)?,
            length: u32_at(arguments, 16)?,
            has_owner: u32_at(arguments, 20)? & READ_LOCK_OWNER != 0,
        },
        17 => Call::FileSystem,
        18 => Call::Release { inode, handle: u64_at(arguments, 0)? },
        27 => Call::OpenFolder { inode },
        28 | 44 => Call::ReadFolder {
            inode,
            offset: u64_at(arguments, 8)?,
            length: u32_at(arguments, 16)?,
            has_attributes: operation == 44,
        },
        29 => Call::ReleaseFolder,
        _ => Call::Other,
    };
    Some(call)
}

/// The NUL-terminated name after a request's arguments.
#[must_use]
pub fn name(payload: &[u8]) -> &[u8] {
    let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
    &payload[..end]
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Attributes of an inode, as in stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: Inode,
    /// Length.
    pub size_bytes: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// Modification time in seconds since the Epoch.
    pub seconds: i64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred length of reads.
    pub piece_bytes: u32,
}

/// Writes an answer.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// For this buffer, which is long enough for any answer except a [`DirEntries`].
    #[must_use]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// `struct fuse_attr`.
    fn attributes(&mut self, of: &Attributes) {
        for value in [of.inode, of.size_bytes, of.blocks] {
            self.u64(value);
        }
        // atime, mtime and ctime.
        for _ in 0..3 {
            self.u64(of.seconds.cast_unsigned());
        }
        for value in [0, 0, 0, of.mode, of.links, of.uid, of.gid, 0, of.piece_bytes, 0] {
            self.u32(value);
        }
    }

    /// `struct fuse_entry_out`; with inode 0 the kernel ignores it.
    fn entry(&mut self, of: &Attributes, valid: Duration) {
        self.u64(of.inode);
        // The generation: numbers are never reused.
        self.u64(0);
        self.u64(valid.as_secs());
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(valid.subsec_nanos());
        self.attributes(of);
    }

    /// The result of a lookup. Returns the answer's length, like the other methods.
    #[must_use]
    pub fn name(mut self, of: &Attributes, valid: Duration) -> usize {
        self.entry(of, valid);
        self.at
    }

    /// Attributes of an inode (`struct fuse_attr_out`).
    #[must_use]
    pub fn known(mut self, of: &Attributes, valid: Duration) -> usize {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.attributes(of);
        self.at
    }

    /// An open file (`struct fuse_open_out`).
    #[must_use]
    pub fn opened(mut self, handle: u64, flags: u32, backing: u32) -> usize {
        self.u64(handle);
        self.u32(flags);
        self.u32(backing);
        self.at
    }

    /// The answer to statfs(2) (`struct fuse_statfs_out`): no space is free.
    #[must_use]
    pub fn file_system(mut self, of: &FileSystem) -> usize {
        for value in [of.blocks, 0, 0, of.inodes, 0] {
            self.u64(value);
        }
        for value in [of.piece_bytes, of.name_bytes_max, of.block_bytes] {
            self.u32(value);
        }
        for _ in 0..7 {
            self.u32(0);
        }
        self.at
    }
}

/// Attributes of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Blocks of all files.
    pub blocks: u64,
    /// Files and folders.
    pub inodes: u64,
    /// Preferred length of reads.
    pub piece_bytes: u32,
    /// Longest name.
    pub name_bytes_max: u32,
    /// Block length.
    pub block_bytes: u32,
}

/// Entries of a folder, as many as fit.
#[derive(Debug)]
pub struct DirEntries<'a> {
    writer: Writer<'a>,
}

impl<'a> DirEntries<'a> {
    /// For this buffer, all of which may be used.
    #[must_use]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { writer: Writer::new(bytes) }
    }

    /// Adds an entry; `next` is the offset of the entry after it. `with_attributes`: validity of
    /// its attributes. Returns false, and adds nothing, if it does not fit.
    #[must_use]
    pub fn add(
        &mut self,
        of: &Attributes,
        next: u64,
        name: &[u8],
        with_attributes: Option<Duration>,
    ) -> bool {
        let entry = if with_attributes.is_some() { ENTRY_BYTES } else { 0 };
        let length = (entry + DIRENT_BYTES + name.len()).next_multiple_of(8);
        if self.writer.bytes.len() - self.writer.at < length {
            return false;
        }
        let end = self.writer.at + length;
        if let Some(valid) = with_attributes {
            self.writer.entry(of, valid);
        }
        self.writer.u64(of.inode);
        self.writer.u64(next);
        self.writer.u32(u32::try_from(name.len()).expect("names are short"));
        // d_type of readdir(3) is the file type of st_mode.
        self.writer.u32(of.mode >> 12 & 0o17);
        self.writer.put(name);
        let padding = end - self.writer.at;
        self.writer.put(&[0; 8][..padding]);
        true
    }

    /// The answer's length.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.writer.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        Attributes {
            inode: 7,
            size_bytes: 39_000,
            blocks: 77,
            seconds: -5,
            mode: 0o100_444,
            links: 1,
            uid: 1000,
            gid: 100,
            piece_bytes: 4096,
        }
    }

    fn head(operation: u32, inode: u64) -> Vec<u8> {
        let mut head = vec![0; 40];
        head[4..8].copy_from_slice(&operation.to_ne_bytes());
        head[16..24].copy_from_slice(&inode.to_ne_bytes());
        head
    }

    #[test]
    fn requests_are_what_their_bytes_say() {
        assert_eq!(parse(&head(1, 1), &[0; 64]), Some(Call::LookUp { parent: 1 }));
        assert_eq!((name(b"a name\0rest"), name(b"whole")), (&b"a name"[..], &b"whole"[..]));
        let mut arguments = [0u8; 64];
        arguments[..8].copy_from_slice(&5u64.to_ne_bytes());
        arguments[8..16].copy_from_slice(&4096u64.to_ne_bytes());
        arguments[16..20].copy_from_slice(&1000u32.to_ne_bytes());
        let read = |has_owner| Call::Read { handle: 5, offset: 4096, length: 1000, has_owner };
        assert_eq!(parse(&head(15, 7), &arguments), Some(read(false)));
        arguments[20..24].copy_from_slice(&2u32.to_ne_bytes());
        assert_eq!(parse(&head(15, 7), &arguments), Some(read(true)));
        let release = Call::Release { inode: 7, handle: 5 };
        assert_eq!(parse(&head(18, 7), &arguments), Some(release));
        for (operation, has_attributes) in [(28, false), (44, true)] {
            let expected =
                Call::ReadFolder { inode: 7, offset: 4096, length: 1000, has_attributes };
            assert_eq!(parse(&head(operation, 7), &arguments), Some(expected));
        }
        assert_eq!(parse(&head(14, 7), &arguments), Some(Call::Open { inode: 7, flags: 5 }));
        assert_eq!(parse(&head(27, 7), &arguments), Some(Call::OpenFolder { inode: 7 }));
        assert_eq!(parse(&head(29, 7), &arguments), Some(Call::ReleaseFolder));
        assert_eq!(parse(&head(3, 7), &arguments), Some(Call::Attributes { inode: 7 }));
        assert_eq!(parse(&head(17, 1), &[]), Some(Call::FileSystem));
        assert_eq!(parse(&head(22, 7), &arguments), Some(Call::Other));
        // Too short to be a request.
        assert_eq!(parse(&head(15, 7)[..20], &arguments), None);
        assert_eq!(parse(&head(15, 7), &arguments[..23]), None);
    }

    #[test]
    fn answers_have_the_kernels_lengths_and_places() {
        let mut bytes = [0xffu8; 4096];
        let valid = Duration::new(3, 5);
        assert_eq!(Writer::new(&mut bytes).name(&attributes(), valid), 128);
        let time = (-5i64).cast_unsigned();
        // Names and attributes have the same validity; struct fuse_attr begins at 40.
        let long = [(0, 7), (8, 0), (16, 3), (24, 3), (40, 7), (48, 39_000), (56, 77)];
        for (at, expected) in long.into_iter().chain([(64, time), (72, time), (80, time)]) {
            assert_eq!(u64_at(&bytes, at), Some(expected), "at {at}");
        }
        let attributes_at = [(100, 0o100_444), (104, 1), (108, 1000), (112, 100), (120, 4096)];
        for (at, expected) in [(32, 5), (36, 5)].into_iter().chain(attributes_at) {
            assert_eq!(u32_at(&bytes, at), Some(expected), "at {at}");
        }
        assert_eq!(Writer::new(&mut bytes).known(&attributes(), valid), 104);
        assert_eq!((u64_at(&bytes, 0), u32_at(&bytes, 8)), (Some(3), Some(5)));
        assert_eq!(u64_at(&bytes, 16), Some(7));
        assert_eq!(Writer::new(&mut bytes).opened(5, 2, 9), 16);
        assert_eq!((u64_at(&bytes, 0), u32_at(&bytes, 8)), (Some(5), Some(2)));
        assert_eq!(u32_at(&bytes, 12), Some(9));
        let all = FileSystem {
            blocks: 8,
            inodes: 9,
            piece_bytes: 4096,
            name_bytes_max: 255,
            block_bytes: 512,
        };
        assert_eq!(Writer::new(&mut bytes).file_system(&all), 80);
        // Nothing is free.
        for (at, expected) in [(0, 8), (8, 0), (16, 0), (24, 9), (32, 0)] {
            assert_eq!(u64_at(&bytes, at), Some(expected), "at {at}");
        }
        for (at, expected) in [(40, 4096), (44, 255), (48, 512)] {
            assert_eq!(u32_at(&bytes, at), Some(expected), "at {at}");
        }
    }

    #[test]
    fn names_that_have_no_room_are_left_for_the_next_request() {
        let mut bytes = [0u8; 100];
        let mut listing = DirEntries::new(&mut bytes);
        assert!(listing.add(&attributes(), 1, b"a", None));
        assert!(listing.add(&attributes(), 2, b"12345678", None));
        assert_eq!(listing.length(), 64);
        // With attributes there is no room for a name; without them there is for 12 bytes.
        assert!(!listing.add(&attributes(), 3, b"b", Some(Duration::ZERO)));
        assert!(!listing.add(&attributes(), 3, b"1234567890123", None));
        assert!(listing.add(&attributes(), 3, b"12345678", None));
        assert_eq!(listing.length(), 96);
        assert_eq!((u64_at(&bytes, 40), u32_at(&bytes, 48)), (Some(2), Some(8)));
        assert_eq!((u32_at(&bytes, 52), &bytes[56..64]), (Some(8), &b"12345678"[..]));
        let mut plus = [0u8; 160];
        let mut listing = DirEntries::new(&mut plus);
        assert!(listing.add(&attributes(), 1, b"a", Some(Duration::from_secs(1))));
        assert_eq!(listing.length(), 160);
        assert_eq!((u64_at(&plus, 128), plus[152]), (Some(7), b'a'));
    }
}
