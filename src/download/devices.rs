//! Destinations in /dev and /proc: links to open files of processes, and devices. A file that
//! replaced one of them would take it from every program.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::limits::LINKS_MAX;

/// The location of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// A place for files, including memory (/dev/shm).
    Ordinary,
    /// Standard output, by one of its names.
    StandardOutput,
    /// Below this folder.
    Kernel(&'static str),
}

impl Spot {
    /// The location of this destination, or of the target of a link of that name. Blocking.
    pub(crate) fn of(path: &Path) -> Self {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            let Some(place) = resolved(&at) else { return Self::Ordinary };
            let is_descriptor = place.parent().is_some_and(|folder| folder.ends_with("fd"));
            let is_process = place.starts_with("/proc");
            if place == Path::new("/dev/stdout")
                || is_process && is_descriptor && place.ends_with("1")
            {
                return Self::StandardOutput;
            }
            if is_process {
                return Self::Kernel("/proc");
            }
            if place.starts_with("/dev") && !place.starts_with("/dev/shm") {
                return Self::Kernel("/dev");
            }
            let Ok(target) = place.read_link() else { return Self::Ordinary };
            at = place.parent().map_or(target.clone(), |folder| folder.join(&target));
        }
        Self::Ordinary
    }

    /// Refuses locations that are not for files.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`].
    pub(super) fn require_ordinary(self, path: &Path) -> Result<()> {
        let name = path.display();
        let refuse =
            |message, advice: &str| Err(Error::new(ErrorKind::Destination, message).advise(advice));
        match self {
            Self::Ordinary => Ok(()),
            Self::StandardOutput => {
                refuse(format!("{name} is standard output"), "use inrush cat SOURCE")
            }
            Self::Kernel(folder) => {
                refuse(format!("{name} is in {folder}"), "choose another destination")
            }
        }
    }
}

/// The path with every link resolved but the last name; missing parts stay as typed.
fn resolved(path: &Path) -> Option<PathBuf> {
    let Some(name) = path.file_name() else { return path.canonicalize().ok() };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let there = above.ancestors().find_map(|folder| {
        let folder_or_here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let rest = above.strip_prefix(folder).unwrap_or(Path::new(""));
        Some(folder_or_here.canonicalize().ok()?.join(rest))
    })?;
    Some(there.join(name))
}
