//! Facts about the destination, some of them by trying.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use memmap2::MmapMut;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::tree::Tree;
use crate::doctor::facts::{Block, Disk, Trouble};
use crate::doctor::parse;
use crate::files::system_host::nearest_folder;
use crate::limits::DIRECT_ALIGNMENT_BYTES;

/// Types of file systems by their number in statfs(2).
const FILE_SYSTEMS: [(u64, &str); 12] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x0bd0_0bd0, "lustre"),
];

pub(super) fn look(tree: &Tree, destination: &Path) -> Disk {
    let folder = nearest_folder(destination);
    let stat = rustix::fs::statvfs(folder).ok();
    let tried = tempfile::Builder::new().prefix(".inrush-").suffix(".tmp").tempfile_in(folder);
    let direct = tried.as_ref().ok().map(|file| write_direct(file.path()));
    let dio = rustix::fs::statx(
        CWD,
        tried.as_ref().map_or(folder, |file| file.path()),
        AtFlags::empty(),
        StatxFlags::DIOALIGN,
    );
    let dio = dio.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    Disk {
        path: destination.display().to_string(),
        file_system: rustix::fs::statfs(folder).ok().map(|stat| name(stat.f_type.cast_unsigned())),
        in_the_way: broken_link(destination),
        writable: Some(tried.as_ref().map(drop).map_err(plain)),
        direct: direct.map(|outcome| outcome.map_err(|error| plain(&error))),
        direct_alignment: dio.map(|stat| stat.stx_dio_offset_align),
        free_bytes: stat.as_ref().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
        total_bytes: stat.as_ref().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize)),
        inodes: stat.map(|stat| (stat.f_favail, stat.f_files)),
        needed_bytes: None,
        device: std::fs::metadata(folder).ok().and_then(|about| block(tree, about.dev())),
    }
}

/// A broken link in the path of the destination: it prevents creating the folder or file.
fn broken_link(destination: &Path) -> Option<Trouble> {
    // Without a trailing slash, which would refer to the link's target.
    let all = destination.components().as_path().ancestors();
    let mut missing = all.take_while(|path| std::fs::metadata(path).is_err());
    let link = missing.find(|path| path.is_symlink())?;
    let why = format!("{} is a symbolic link to nothing", link.display());
    Some(Trouble { why, advice: Some("remove the link, or make what it leads to".to_owned()) })
}

fn name(number: u64) -> String {
    let known = FILE_SYSTEMS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("a file system of type {number:#x}"), |(_, name)| (*name).into())
}

/// An error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Writes one aligned piece past the page cache, into a temporary file.
fn write_direct(path: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let piece = MmapMut::map_anon(DIRECT_ALIGNMENT_BYTES as usize)?;
    match rustix::io::write(&file, &piece)? {
        count if count == piece.len() => Ok(()),
        count => Err(io::Error::other(format!("{count} of {} bytes were written", piece.len()))),
    }
}

/// The device of this number, and its disk's queue settings.
fn block(tree: &Tree, device: u64) -> Option<Block> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let below = format!("sys/dev/block/{major}:{minor}");
    tree.text(format!("{below}/uevent"))?;
    // A partition shares its disk's queue.
    let is_partition = tree.text(format!("{below}/partition")).is_some();
    let disk = if is_partition { format!("{below}/..") } else { below };
    let text = |file: &str| tree.text(format!("{disk}/{file}"));
    let about = text("uevent")?;
    let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Block {
        name: name.to_owned(),
        scheduler: text("queue/scheduler").and_then(|text| parse::chosen(&text)),
        rotational: text("queue/rotational")
            .and_then(|text| parse::number(&text))
            .map(|is| is == 1),
        raid: text("md/level").map(|level| level.trim().to_owned()),
        raid_disks: text("md/raid_disks").and_then(|text| parse::number(&text)),
        degraded: text("md/degraded").and_then(|text| parse::number(&text)),
    })
}
