//! Requests of the kernel and their answers, as bytes (include/uapi/linux/fuse.h, protocol 7.40):
//! those that a file system has which is only read.

use std::time::Duration;

use crate::mount::tree::Inode;

/// Where names begin in `struct fuse_dirent`.
const DIRENT_BYTES: usize = 24;
/// Length of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

/// What a program wants to know, or to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A name in a folder.
    LookUp {
        /// The folder; the name is behind the arguments: [`name`].
        parent: Inode,
    },
    /// What is known of an inode.
    Attributes {
        /// Which.
        inode: Inode,
    },
    /// To open a file.
    Open {
        /// Which.
        inode: Inode,
        /// As open(2) has them.
        flags: i32,
    },
    /// To read an open file.
    Read {
        /// Which, as opening it has told.
        handle: u64,
        /// From where.
        offset: u64,
        /// How many bytes at most.
        length: u32,
    },
    /// A file is closed.
    Release {
        /// Which.
        inode: Inode,
        /// Its handle.
        handle: u64,
    },
    /// To open a folder.
    OpenFolder {
        /// Which.
        inode: Inode,
    },
    /// Names in a folder.
    ReadFolder {
        /// Which.
        inode: Inode,
        /// From which place on.
        offset: u64,
        /// Bytes of the answer at most.
        length: u32,
        /// With what is known of each (readdirplus).
        has_attributes: bool,
    },
    /// A folder is closed.
    ReleaseFolder,
    /// What statfs(2) tells.
    FileSystem,
    /// Something that a read-only file system without links and attributes need not know.
    Other,
}

/// What is asked, by the head of a request and the arguments of its operation; `None` for bytes
/// that are no request.
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

/// The name that is behind the arguments of a request, which ends with NUL.
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

/// What stat(2) tells of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub inode: Inode,
    /// Its length.
    pub size_bytes: u64,
    /// Blocks that it takes.
    pub blocks: u64,
    /// When it was changed, in seconds since the Epoch.
    pub seconds: i64,
    /// What it is, and who may do what with it, as `st_mode` has it.
    pub mode: u32,
    /// Names of it.
    pub links: u32,
    /// Whose it is.
    pub uid: u32,
    /// Of which group.
    pub gid: u32,
    /// The length in which it should be read.
    pub piece_bytes: u32,
}

/// Writes an answer from its beginning on.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Over this memory, which is long enough for any answer but those of [`Listing`].
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
        // Read, changed, and changed in any way.
        for _ in 0..3 {
            self.u64(of.seconds.cast_unsigned());
        }
        for value in [0, 0, 0, of.mode, of.links, of.uid, of.gid, 0, of.piece_bytes, 0] {
            self.u32(value);
        }
    }

    /// `struct fuse_entry_out`; 0 as its inode leaves the kernel without it.
    fn entry(&mut self, of: &Attributes, valid: Duration) {
        self.u64(of.inode);
        // All numbers are of one generation.
        self.u64(0);
        self.u64(valid.as_secs());
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(valid.subsec_nanos());
        self.attributes(of);
    }

    /// What a name leads to. Returns the length of the answer, as the others do.
    #[must_use]
    pub fn name(mut self, of: &Attributes, valid: Duration) -> usize {
        self.entry(of, valid);
        self.at
    }

    /// What is known of an inode (`struct fuse_attr_out`).
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

    /// What statfs(2) tells (`struct fuse_statfs_out`): all is taken.
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

/// What is known of all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Blocks of all files.
    pub blocks: u64,
    /// Files and folders.
    pub inodes: u64,
    /// The length in which files should be read.
    pub piece_bytes: u32,
    /// Longest name.
    pub name_bytes_max: u32,
    /// Length of a block.
    pub block_bytes: u32,
}

/// Names of a folder, as many as there is room for.
#[derive(Debug)]
pub struct Listing<'a> {
    writer: Writer<'a>,
}

impl<'a> Listing<'a> {
    /// Over this memory, all of which may be used.
    #[must_use]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { writer: Writer::new(bytes) }
    }

    /// Adds a name, behind which the place `next` is; with what is known of it where that is
    /// wanted. Returns false, and adds nothing, when there is no room.
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
        // The type of readdir(3) is that of st_mode.
        self.writer.u32(of.mode >> 12 & 0o17);
        self.writer.put(name);
        let padding = end - self.writer.at;
        self.writer.put(&[0; 8][..padding]);
        true
    }

    /// The length of the answer.
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
        let read = Call::Read { handle: 5, offset: 4096, length: 1000 };
        assert_eq!(parse(&head(15, 7), &arguments), Some(read));
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
        // Short of bytes it is no request.
        assert_eq!(parse(&head(15, 7)[..20], &arguments), None);
        assert_eq!(parse(&head(15, 7), &arguments[..19]), None);
    }

    #[test]
    fn answers_have_the_kernels_lengths_and_places() {
        let mut bytes = [0xffu8; 4096];
        let valid = Duration::new(3, 5);
        assert_eq!(Writer::new(&mut bytes).name(&attributes(), valid), 128);
        let time = (-5i64).cast_unsigned();
        // Names and attributes are valid as long; struct fuse_attr begins at 40.
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
        let mut listing = Listing::new(&mut bytes);
        assert!(listing.add(&attributes(), 1, b"a", None));
        assert!(listing.add(&attributes(), 2, b"12345678", None));
        assert_eq!(listing.length(), 64);
        // Beside its attributes there is none for a name, without them for one of 12 bytes.
        assert!(!listing.add(&attributes(), 3, b"b", Some(Duration::ZERO)));
        assert!(!listing.add(&attributes(), 3, b"1234567890123", None));
        assert!(listing.add(&attributes(), 3, b"12345678", None));
        assert_eq!(listing.length(), 96);
        assert_eq!((u64_at(&bytes, 40), u32_at(&bytes, 48)), (Some(2), Some(8)));
        assert_eq!((u32_at(&bytes, 52), &bytes[56..64]), (Some(8), &b"12345678"[..]));
        let mut plus = [0u8; 160];
        let mut listing = Listing::new(&mut plus);
        assert!(listing.add(&attributes(), 1, b"a", Some(Duration::from_secs(1))));
        assert_eq!(listing.length(), 160);
        assert_eq!((u64_at(&plus, 128), plus[152]), (Some(7), b'a'));
    }
}
