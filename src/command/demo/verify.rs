//! Checks that a folder holds exactly the objects of a set, byte for byte.
//!
//! Streamed: two buffers, whatever the size of a file. Shares no code with the data plane, and
//! reads with plain system calls.

#![expect(clippy::disallowed_types, reason = "what the data plane wrote is read another way")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use inrush_origin::synthetic_bytes;

use super::dataset::{Item, Set};

/// Length of each of the two buffers, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Problems that are printed one by one.
const PROBLEMS_SHOWN_MAX: usize = 5;

/// The result of a comparison.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Bytes that were compared.
    pub(super) bytes: u64,
    /// The first few of the problems.
    pub(super) problems: Vec<String>,
    /// Number of all problems.
    pub(super) problem_count: u64,
}

impl Findings {
    fn problem(&mut self, path: &Path, what: &str) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_SHOWN_MAX {
            self.problems.push(format!("{}: {what}", path.display()));
        }
    }
}

/// Compares the folder `root` with the set that was downloaded into it, until `stop` is set.
pub(super) fn compare(root: &Path, set: &Set, stop: &AtomicBool) -> Findings {
    let mut findings = Findings::default();
    let mut buffers = [vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]];
    let mut expected = BTreeSet::new();
    for item in &set.items {
        if stop.load(Ordering::Relaxed) {
            return findings;
        }
        let below = item.key.strip_prefix(set.name).expect("keys begin with the set's name");
        let path = root.join(below.trim_matches('/'));
        match compare_file(&path, item, &mut buffers, stop) {
            Ok(None) => findings.bytes += item.size_bytes,
            Ok(Some(what)) => findings.problem(&path, &what),
            Err(error) => findings.problem(&path, &error.to_string()),
        }
        expected.insert(path);
    }
    if let Err(error) = find_others(root, &expected, &mut findings) {
        findings.problem(root, &error.to_string());
    }
    findings
}

/// Other entries of a folder than these names; an unreadable folder counts, too.
pub(super) fn strangers(folder: &Path, names: &[&str]) -> Vec<String> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return vec![format!("{}: {error}", folder.display())],
    };
    let found = entries.map(|entry| match entry {
        Ok(entry) => entry.file_name().to_string_lossy().into_owned(),
        Err(error) => error.to_string(),
    });
    found.filter(|name| !names.contains(&name.as_str())).collect()
}

/// The problem of one file; `None` if there is none.
fn compare_file(
    path: &Path,
    item: &Item,
    buffers: &mut [Vec<u8>; 2],
    stop: &AtomicBool,
) -> io::Result<Option<String>> {
    let metadata = std::fs::symlink_metadata(path)?;
    if item.key.ends_with('/') {
        return Ok((!metadata.is_dir()).then(|| "it is not a folder".to_owned()));
    }
    if !metadata.is_file() {
        return Ok(Some("it is not a file".to_owned()));
    }
    if metadata.len() != item.size_bytes {
        let (got, wanted) = (metadata.len(), item.size_bytes);
        return Ok(Some(format!("it has {got} bytes instead of {wanted}")));
    }
    let mut file = File::open(path)?;
    let [read, wanted] = buffers;
    let mut offset = 0;
    while offset < item.size_bytes && !stop.load(Ordering::Relaxed) {
        let rest = usize::try_from(item.size_bytes - offset).unwrap_or(usize::MAX);
        let length = rest.min(BUFFER_BYTES);
        let (read, wanted) = (&mut read[..length], &mut wanted[..length]);
        file.read_exact(read)?;
        synthetic_bytes(&item.key, offset, wanted);
        if read != wanted {
            let at = read.iter().zip(&*wanted).position(|(one, other)| one != other);
            let at = offset + at.map_or(0, |at| at as u64);
            return Ok(Some(format!("its bytes differ from byte {at} on")));
        }
        offset += length as u64;
    }
    Ok(None)
}

/// Everything that is neither expected nor a folder is one file too many: for example a temporary
/// one.
fn find_others(
    folder: &Path,
    expected: &BTreeSet<PathBuf>,
    findings: &mut Findings,
) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find_others(&path, expected, findings)?;
        } else if !expected.contains(&path) {
            findings.problem(&path, "unexpected file");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Set {
        let item = |key: &str, size_bytes| Item { key: key.to_owned(), size_bytes };
        let large = BUFFER_BYTES as u64 + 7;
        Set { name: "s", items: vec![item("s/a/large", large), item("s/0", 0), item("s/f/", 0)] }
    }

    /// A folder that has the set, then is changed.
    fn check(change: impl FnOnce(&Path), expected: &[&str]) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir_all(root.join("a")).expect("made");
        std::fs::create_dir_all(root.join("f")).expect("made");
        let mut bytes = vec![0; BUFFER_BYTES + 7];
        synthetic_bytes("s/a/large", 0, &mut bytes);
        std::fs::write(root.join("a/large"), bytes).expect("written");
        std::fs::write(root.join("0"), "").expect("written");
        change(root);
        let findings = compare(root, &set(), &AtomicBool::new(false));
        assert_eq!(findings.problem_count, expected.len() as u64, "{findings:?}");
        for (problem, expected) in findings.problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem}: {expected}");
        }
    }

    #[test]
    fn what_is_whole_is_found_whole() {
        check(|_| {}, &[]);
    }

    #[test]
    fn a_stranger_beside_the_sets_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("set")).expect("made");
        assert!(strangers(folder.path(), &["set"]).is_empty());
        std::fs::write(folder.path().join("other"), "").expect("written");
        assert_eq!(strangers(folder.path(), &["set"]), ["other"]);
    }

    #[test]
    fn one_byte_is_enough_to_be_found() {
        let flip = |root: &Path, at: usize| {
            let mut bytes = std::fs::read(root.join("a/large")).expect("there");
            bytes[at] ^= 1;
            std::fs::write(root.join("a/large"), bytes).expect("written");
        };
        check(|root| flip(root, 0), &["large: its bytes differ from byte 0 on"]);
        check(|root| flip(root, BUFFER_BYTES + 6), &["differ from byte 1048582 on"]);
    }

    #[test]
    fn what_is_missing_cut_or_too_many_is_found() {
        let write = |path: PathBuf| std::fs::write(path, "x").expect("written");
        check(|root| write(root.join("a/large")), &["it has 1 bytes instead of 1048583"]);
        check(|root| std::fs::remove_file(root.join("0")).expect("gone"), &["/0: "]);
        check(|root| std::fs::remove_dir(root.join("f")).expect("gone"), &["/f: "]);
        check(|root| write(root.join("a/.inrush-1.part")), &["unexpected file"]);
    }
}
