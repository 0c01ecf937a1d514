//! Mounts, as a test sees them and cleans up after them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// False, said on standard error, where this machine lets nobody mount.
pub(crate) fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    let folder = tempfile::tempdir().expect("a folder");
    // A container may have the device and not the right.
    let tried = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder.path()).output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if may {
        let _ = Command::new("umount").arg(folder.path()).output();
    }
    if !(can && may) {
        crate::skip::skip("FUSE file systems cannot be mounted here");
    }
    can && may
}

/// Removes a mount, if there is one.
pub(crate) fn unmount_lazily(point: &Path) {
    let _ = Command::new("umount").arg("-l").arg(point).output();
}

/// Whether the kernel's table has this mount, and of what type and source.
pub(crate) fn in_table(point: &Path) -> Option<(String, String)> {
    let named = point.to_str().expect("UTF-8").replace(' ', "\\040");
    let table = fs::read_to_string("/proc/mounts").expect("the table");
    let line = table.lines().rev().find(|line| line.split(' ').nth(1) == Some(&named))?;
    let mut fields = line.split(' ');
    let source = fields.next().expect("a source").to_owned();
    Some((source, fields.nth(1).expect("a type").to_owned()))
}
