//! Files that earlier runs wrote below the base folder: how they are recognized, and removed.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::layout::{TEMPORARY_PREFIX, unusable};
use crate::error::Result;
use crate::files::whole_file;
use crate::limits::WRITTEN_BYTES_MAX;
use crate::train::files::WRITTEN;
use crate::train::written::{FileState, Written};

/// The records of runs in this folder of configuration files.
pub(super) fn read(config: &Path) -> Written {
    let text = whole_file::read(&config.join(WRITTEN), WRITTEN_BYTES_MAX);
    text.map(|text| Written::parse(&text)).unwrap_or_default()
}

/// Stores the records for later runs.
pub(super) fn write(config: &Path, written: &Written) -> Result<()> {
    let path = config.join(WRITTEN);
    let outcome = whole_file::write(&path, written.text().as_bytes(), TEMPORARY_PREFIX);
    outcome.map(drop).map_err(|error| unusable(&path, &error))
}

/// Removes the lists of earlier runs other than these, which are this run's. A list that was
/// changed since stays.
pub(super) fn remove_other_lists(data: &Path, written: &mut Written, lists: &[PathBuf]) {
    let names: BTreeSet<String> = lists.iter().filter_map(|path| name_of(path)).collect();
    for (name, state) in written.take_other_lists(&names) {
        let path = data.join(&name);
        // A name is of this folder, whatever the file says.
        if name_of(&path) == Some(name) && state_of(&path) == Some(state) {
            // A list that cannot be removed does not conflict.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Records the lists that this run has written.
pub(super) fn note_lists(config: &Path, lists: &[PathBuf]) -> Result<()> {
    let mut written = read(config);
    for path in lists {
        if let (Some(name), Some(state)) = (name_of(path), state_of(path)) {
            written.note_list(name, state);
        }
    }
    write(config, &written)
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The state of a regular file.
fn state_of(path: &Path) -> Option<FileState> {
    let found = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
    Some(FileState { bytes: found.len(), seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lists_of_earlier_runs_go_unless_they_were_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (data, config) = (folder.path().join("data"), folder.path().join("config"));
        for folder in [&data, &config] {
            fs::create_dir(folder).unwrap();
        }
        let lists = ["a", "b", "c", "d"].map(|name| data.join(format!("{name}-manifest")));
        lists.iter().for_each(|path| fs::write(path, "a list\n").unwrap());
        let outside = folder.path().join("outside");
        fs::write(&outside, "a list\n").unwrap();
        note_lists(&config, &lists).unwrap();
        let mut written = read(&config);
        let state = state_of(&outside).unwrap();
        written.note_list("../outside".to_owned(), state);
        fs::write(&lists[1], "another's\n").unwrap();
        fs::remove_file(&lists[2]).unwrap();
        remove_other_lists(&data, &mut written, &lists[3..]);
        let mut left: Vec<_> =
            fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        assert_eq!(left, [lists[1].clone(), lists[3].clone()]);
        assert!(outside.exists(), "it is not among the channels");
        let mut only = Written::default();
        only.note_list("d-manifest".to_owned(), state_of(&lists[3]).unwrap());
        assert_eq!(written, only, "what is gone or changed is forgotten");
    }
}
