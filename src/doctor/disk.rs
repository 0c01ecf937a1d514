//! The destination: its file system, its space, its device.

use super::Finding;
use super::facts::{Block, Disk, Trouble};
use crate::limits::DIRECT_ALIGNMENT_BYTES;
use crate::text::size::Binary;

/// Least free bytes to download anything useful.
const FREE_BYTES_LEAST: u64 = 16 << 20;

/// A disk is nearly full if less than its size divided by this is free.
const FREE_SHARE: u64 = 20;

/// Least free inodes; each file uses one.
const INODES_LEAST: u64 = 10_000;

pub(super) fn judge(disk: &Disk) -> Vec<Finding> {
    let device = disk.device.as_ref().map(block);
    [writable(disk), direct(disk), space(disk), device].into_iter().flatten().collect()
}

fn file_system(disk: &Disk) -> &str {
    disk.file_system.as_deref().unwrap_or("a file system")
}

fn writable(disk: &Disk) -> Option<Finding> {
    let (path, kind) = (&disk.path, file_system(disk));
    if let Some(Trouble { why, advice }) = &disk.in_the_way {
        let advice = advice.as_deref().unwrap_or("choose another folder");
        return Some(Finding::bad("destination", why, advice));
    }
    Some(match disk.writable.as_ref()? {
        Ok(()) => Finding::ok("destination", format!("{path} on {kind}")),
        Err(why) => Finding::bad(
            "destination",
            format!("no file can be written in {path} on {kind}: {why}"),
            "check its owner and its mount options (findmnt -T DEST), or choose another folder",
        ),
    })
}

fn direct(disk: &Disk) -> Option<Finding> {
    const FIX: &str = "use a local ext4 or xfs; it works through the page cache, slower";
    let kind = file_system(disk);
    let outcome = disk.direct.as_ref()?;
    if let Err(why) = outcome {
        return Some(Finding::warn("direct-io", format!("{kind} has no O_DIRECT: {why}"), FIX));
    }
    if matches!(kind, "tmpfs" | "ramfs") {
        let found = format!("{kind}: its files are memory, which O_DIRECT does not pass by");
        return Some(Finding::warn("direct-io", found, FIX));
    }
    Some(match disk.direct_alignment {
        Some(bytes) if bytes > DIRECT_ALIGNMENT_BYTES => Finding::bad(
            "direct-io",
            format!("writes must be aligned to {bytes} bytes, and are to {DIRECT_ALIGNMENT_BYTES}"),
            "choose another destination",
        ),
        Some(bytes) if bytes > 0 => {
            Finding::ok("direct-io", format!("a write went well, aligned to {bytes} bytes"))
        }
        _ => Finding::ok("direct-io", "a write went well"),
    })
}

fn space(disk: &Disk) -> Option<Finding> {
    let (free, total) = (disk.free_bytes?, disk.total_bytes?);
    let mut found = format!("{} of {} free", Binary(free), Binary(total));
    if let Some((free, total @ 1..)) = disk.inodes {
        found += &format!(", {free} of {total} inodes");
    }
    let fix = "delete files below DEST, or choose a larger disk (df -h, df -i)";
    if let Some(needed) = disk.needed_bytes.filter(|needed| *needed > free) {
        let found = format!("{found}, and the object has {}", Binary(needed));
        return Some(Finding::bad("space", found, fix));
    }
    let inodes = disk.inodes.filter(|(_, total)| *total > 0).map(|(free, _)| free);
    Some(if free < FREE_BYTES_LEAST || inodes == Some(0) {
        Finding::bad("space", found, fix)
    } else if free < total / FREE_SHARE || inodes.is_some_and(|free| free < INODES_LEAST) {
        Finding::warn("space", found, fix)
    } else {
        Finding::ok("space", found)
    })
}

fn block(device: &Block) -> Finding {
    let name = &device.name;
    let mut words = vec![name.clone()];
    words.extend(device.scheduler.as_ref().map(|scheduler| format!("scheduler {scheduler}")));
    if let (Some(level), Some(disks)) = (&device.raid, device.raid_disks) {
        words.push(format!("{level} of {disks}"));
    }
    let found = words.join(", ");
    if device.degraded.is_some_and(|missing| missing > 0) {
        let fix = format!("replace the disk that failed: mdadm --detail /dev/{name}");
        return Finding::bad("block-device", format!("{found}: a disk is missing"), fix);
    }
    if device.rotational == Some(true) && !name.starts_with("vd") && !name.starts_with("md") {
        let found = format!("{found}: a disk that turns is slower than the network");
        return Finding::warn("block-device", found, "use the local NVMe disks (lsblk)");
    }
    match device.scheduler.as_deref() {
        Some("bfq" | "cfq") => Finding::warn(
            "block-device",
            format!("{found}: it takes CPU time for each request"),
            format!("echo none > /sys/block/{name}/queue/scheduler"),
        ),
        _ => Finding::ok("block-device", found),
    }
}
