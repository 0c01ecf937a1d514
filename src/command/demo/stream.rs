//! The demo's reader: opens each epoch's named pipe like a training program, and compares its bytes
//! with the served objects, in key order.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use inrush_origin::synthetic_bytes;

use super::dataset::{Item, Set};

/// Epochs that the demo serves.
pub(super) const EPOCHS: u64 = 2;

/// Bytes read and compared at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Most checks for a pipe that does not exist yet: 20 s, with the pause.
const LOOKS_MAX: u32 = 10_000;

/// Pause between two checks.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Reads all epochs below `channel`; returns their bytes, or the first difference.
pub(super) fn read_epochs(channel: &Path, set: &Set) -> Result<u64, String> {
    let mut items: Vec<&Item> = set.items.iter().filter(|item| item.size_bytes > 0).collect();
    items.sort_by(|one, other| one.key.cmp(&other.key));
    let mut total = 0;
    for epoch in 0..EPOCHS {
        let path = PathBuf::from(format!("{}_{epoch}", channel.display()));
        let describe = |error: io::Error| format!("{}: {error}", path.display());
        total += read_epoch(&path, &items).map_err(describe)??;
    }
    Ok(total)
}

fn read_epoch(path: &Path, items: &[&Item]) -> io::Result<Result<u64, String>> {
    let mut looks = 0;
    while !path.exists() && looks < LOOKS_MAX {
        looks += 1;
        std::thread::sleep(LOOK_PAUSE);
    }
    let mut pipe = OpenOptions::new().read(true).open(path)?;
    let (mut read, mut wanted) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut total = 0;
    for item in items {
        let mut offset = 0;
        while offset < item.size_bytes {
            let rest = usize::try_from(item.size_bytes - offset).unwrap_or(usize::MAX);
            let length = rest.min(BUFFER_BYTES);
            pipe.read_exact(&mut read[..length])?;
            synthetic_bytes(&item.key, offset, &mut wanted[..length]);
            if read[..length] != wanted[..length] {
                return Ok(Err(format!("{}: wrong bytes of {}", path.display(), item.key)));
            }
            offset += length as u64;
        }
        total += item.size_bytes;
    }
    match pipe.read(&mut read)? {
        0 => Ok(Ok(total)),
        more => Ok(Err(format!("{}: {more} bytes too many", path.display()))),
    }
}
