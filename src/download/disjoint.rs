//! Checks that several destinations are disjoint: no object in one of them may be in another, too,
//! under any name.

use std::io::{self, ErrorKind as Io};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::own_files::mounts;
use crate::error::{Error, ErrorKind, Result};
use crate::mount::table;

/// The location of a folder, existing or not.
struct Site {
    /// Device and inode of the nearest existing folder and of all folders above it, each with the
    /// path from it to this folder.
    above: Vec<((u64, u64), PathBuf)>,
    /// The path from the nearest existing folder.
    missing: PathBuf,
    /// Its device, and its path within that file system, as bytes.
    on_device: Option<(String, Vec<u8>)>,
}

impl Site {
    fn of(folder: &Path, mounts: &[u8]) -> io::Result<Self> {
        let (real, missing) = resolved(folder)?;
        let mut above = Vec::new();
        for one in real.ancestors() {
            let found = one.metadata()?;
            let way = real.strip_prefix(one).unwrap_or(&real).join(&missing);
            above.push(((found.dev(), found.ino()), way));
        }
        let on_device = table::place(mounts, &real.join(&missing));
        Ok(Self { above, missing, on_device })
    }

    /// True if it is `other`, or below it.
    fn is_within(&self, other: &Self) -> bool {
        let nearest = other.above[0].0;
        let is_it = |(folder, way): &((u64, u64), PathBuf)| {
            *folder == nearest && way.starts_with(&other.missing)
        };
        // A bind mount (mount --bind) has other folders above it in its file system.
        let is_below_there = match (&self.on_device, &other.on_device) {
            (Some((one, path)), Some((other, above))) => {
                one == other && table::below(path, above).is_some()
            }
            _ => false,
        };
        self.above.iter().any(is_it) || is_below_there
    }
}

/// The path of the nearest existing folder, without links, and the path from there to this one.
fn resolved(folder: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let absolute = std::path::absolute(folder)?;
    for above in absolute.ancestors() {
        let real = match above.canonicalize() {
            Ok(real) => real,
            Err(error) if matches!(error.kind(), Io::NotFound | Io::NotADirectory) => continue,
            Err(error) => return Err(error),
        };
        let missing = absolute.strip_prefix(above).unwrap_or(Path::new(""));
        if !missing.components().any(|part| part == Component::ParentDir) {
            return Ok((real, missing.to_owned()));
        }
        // Folders to be created have no links among them.
        let mut without = real;
        for part in missing.components() {
            match part {
                Component::ParentDir => {
                    without.pop();
                }
                part => without.push(part),
            }
        }
        return resolved(&without);
    }
    Err(Io::NotFound.into())
}

/// The path of a folder without links, existing or not.
///
/// # Errors
/// [`ErrorKind::Destination`] if the file system does not return it.
pub(super) fn real(folder: &Path) -> Result<PathBuf> {
    let (real, missing) = resolved(folder).map_err(|error| unknown(folder, &error))?;
    Ok(real.join(missing))
}

fn unknown(folder: &Path, error: &io::Error) -> Error {
    let message = format!("cannot look up {}: {error}", folder.display());
    Error::new(ErrorKind::Destination, message)
        .advise("check the folder and those above it")
        .of_call(error.raw_os_error())
}

/// Refuses folders of which one equals another or is below it, also through links and mounts.
/// Creates and changes nothing.
///
/// # Errors
/// [`ErrorKind::Destination`], also if the file system does not return the paths.
pub(super) fn require_disjoint(folders: &[PathBuf]) -> Result<()> {
    let mounts = mounts();
    let site =
        |folder: &PathBuf| Site::of(folder, &mounts).map_err(|error| unknown(folder, &error));
    let sites = folders.iter().map(site).collect::<Result<Vec<Site>>>()?;
    for (at, one) in sites.iter().enumerate() {
        let mut others = sites.iter().enumerate().filter(|(other, _)| *other != at);
        if let Some((other, _)) = others.find(|(_, other)| one.is_within(other)) {
            let (one, other) = (folders[at].display(), folders[other].display());
            let error =
                Error::new(ErrorKind::Destination, format!("{one} is {other}, or below it"));
            return Err(error.advise("give folders of which none is within another"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_are_compared_by_what_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("one/in")).expect("folders");
        std::fs::create_dir_all(at("two")).expect("a folder");
        symlink(at("one"), at("link")).expect("a link");
        let is_apart = |one: &str, other: &str| {
            let [ahead, back] = [[one, other], [other, one]]
                .map(|pair| require_disjoint(&pair.map(at)).map_err(|error| error.to_string()));
            assert_eq!(ahead.is_ok(), back.is_ok(), "{one}, {other}: {ahead:?} {back:?}");
            ahead.is_ok()
        };
        for (one, other) in [
            ("one", "two"),
            ("one/new", "two/new"),
            ("one/new", "one/newer"),
            ("one/in", "one/new/x"),
            ("new/../two", "one"),
        ] {
            assert!(is_apart(one, other), "{one}, {other}");
        }
        for (one, other) in [
            ("one", "one/."),
            ("one", "two/../one"),
            ("one", "link"),
            ("one", "link/in"),
            ("one", "link/new/x"),
            ("one/new", "link/new"),
            ("one/new/x", "link/new"),
            ("one", "new/../link/in"),
        ] {
            assert!(!is_apart(one, other), "{one}, {other}");
        }
    }
}
