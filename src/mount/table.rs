//! Lines of `/proc/self/mountinfo` (proc_pid_mountinfo(5)): what is mounted where.

use std::path::Path;

/// What the type of a mount of this program is called.
pub const TYPE: &str = "fuse.inrush";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Its device's number, as `MAJOR:MINOR`.
    pub device: String,
    /// Where it is, as a path's bytes.
    pub point: Vec<u8>,
    /// The type of its file system, with its subtype.
    pub kind: String,
}

/// The mount at this place that hides all others there; `None` where nothing is mounted.
#[must_use]
pub fn at(table: &[u8], point: &Path) -> Option<Mounted> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    mounts.rev().find(|mounted| mounted.point == point.as_os_str().as_encoded_bytes())
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let point = unescaped(fields.nth(1)?);
    // Behind any number of optional fields stands a hyphen.
    let kind = text(fields.skip_while(|field| *field != b"-").nth(1)?);
    Some(Mounted { device, point, kind })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Blanks and backslashes are written as three octal digits.
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
    }

    #[test]
    fn names_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(br"a\040b\134c\011"), b"a b\\c\t");
        assert_eq!(unescaped(br"\9\04"), br"\9\04");
        assert_eq!(unescaped("ü".as_bytes()), "ü".as_bytes());
    }
}
