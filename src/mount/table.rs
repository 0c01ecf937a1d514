//! Parses `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::path::Path;

/// File system type of inrush mounts.
pub const TYPE: &str = "fuse.inrush";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Mount ID, unique among current mounts.
    pub id: String,
    /// Device number, as `MAJOR:MINOR`.
    pub device: String,
    /// Mounted folder of its file system, as a path's bytes.
    pub root: Vec<u8>,
    /// Mount point, as a path's bytes.
    pub point: Vec<u8>,
    /// File system type and subtype.
    pub kind: String,
}

/// The topmost mount at this path; `None` if nothing is mounted there.
#[must_use]
pub fn at(table: &[u8], point: &Path) -> Option<Mounted> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    mounts.rev().find(|mounted| mounted.point == point.as_os_str().as_encoded_bytes())
}

/// The mount with this ID; `None` if there is none.
#[must_use]
pub fn of_id(table: &[u8], id: &str) -> Option<Mounted> {
    table.split(|byte| *byte == b'\n').filter_map(parse).find(|mounted| mounted.id == id)
}

/// Device of a path without links, and the path within that file system, as bytes. For a folder
/// mounted at several places (mount --bind) they are equal at each. `None` if the table has no
/// entry.
#[must_use]
pub fn place(table: &[u8], path: &Path) -> Option<(String, Vec<u8>)> {
    let path = path.as_os_str().as_encoded_bytes();
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    let above = mounts.filter(|mounted| below(path, &mounted.point).is_some());
    // The last of equally deep mounts hides the others.
    let mounted = above.max_by_key(|mounted| mounted.point.len())?;
    let root = mounted.root.strip_suffix(b"/").unwrap_or(&mounted.root);
    Some((mounted.device, [root, below(path, &mounted.point)?].concat()))
}

/// The rest of a path below a folder, both absolute and as bytes; `None` if the path is elsewhere.
#[must_use]
pub fn below<'p>(path: &'p [u8], folder: &[u8]) -> Option<&'p [u8]> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    let way = path.strip_prefix(folder)?;
    (way.is_empty() || way.starts_with(b"/")).then_some(way)
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (id, device) = (text(fields.next()?), text(fields.nth(1)?));
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    // A hyphen ends any number of optional fields.
    let kind = text(fields.skip_while(|field| *field != b"-").nth(1)?);
    Some(Mounted { id, device, root, point, kind })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes blanks and backslashes, which are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(meant) => {
                bytes.push(meant);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"24 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n\
        31 24 0:27 / /mnt/a\\040b ro,nosuid shared:7 master:2 - fuse.inrush s3://b/k ro,user_id=0\n\
        32 24 0:28 / /mnt/c rw - tmpfs tmpfs rw\n\
        33 32 0:29 / /mnt/c rw - fuse.inrush s3://b rw\n\
        broken\n";

    #[test]
    fn the_topmost_mount_of_a_place_is_found() {
        let found = |point: &str| at(TABLE, Path::new(point));
        let mounted = found("/mnt/a b").expect("it is there");
        assert_eq!((mounted.device.as_str(), mounted.kind.as_str()), ("0:27", TYPE));
        assert_eq!(found("/mnt/c").map(|mounted| mounted.device), Some("0:29".to_owned()));
        assert_eq!(found("/").map(|mounted| mounted.kind), Some("ext4".to_owned()));
        assert_eq!(found("/mnt"), None);
        assert_eq!(of_id(TABLE, "31").as_ref(), Some(&mounted));
        assert_eq!(of_id(TABLE, "1"), None);
    }

    #[test]
    fn a_folder_is_found_wherever_it_is_mounted() {
        let table = b"24 1 254:1 / / rw - ext4 /dev/vda rw\n\
            31 24 254:1 /data/sub /mnt/bound rw - ext4 /dev/vda rw\n";
        let found = |path: &str| place(table, Path::new(path)).expect("it is somewhere");
        assert_eq!(found("/mnt/bound/x"), found("/data/sub/x"));
        assert_eq!(found("/data"), ("254:1".to_owned(), b"/data".to_vec()));
        assert_eq!(place(TABLE, Path::new("/mnt/c/d")).expect("there").0, "0:29", "the topmost");
        assert_eq!(place(b"", Path::new("/")), None);
    }

    #[test]
    fn names_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(br"a\040b\134c\011"), b"a b\\c\t");
        assert_eq!(unescaped(br"\9\04"), br"\9\04");
        assert_eq!(unescaped("ü".as_bytes()), "ü".as_bytes());
    }
}
