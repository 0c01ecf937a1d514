//! The file that signals that the first pipes exist.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::cli::PipeArgs;
use crate::control::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::files::whole_file;
use crate::report::progress::Progress;

/// The ready file of a run; dropping this removes it, unless it existed before.
#[derive(Debug)]
pub(super) struct ReadyFile {
    path: PathBuf,
    /// Device and inode of a file that this run created.
    made: Option<(u64, u64)>,
}

impl Drop for ReadyFile {
    /// Another file in its place is not ours. If it cannot be removed it stays, as after a run that
    /// was killed.
    fn drop(&mut self) {
        let Ok(found) = self.path.symlink_metadata() else { return };
        if self.made == Some((found.dev(), found.ino())) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Writes a line for each of `names`, so that a process that waits for the file sees all of it.
///
/// An existing file, FIFO or link is written to directly: no process waits for it to appear, and it
/// stays when the run ends.
///
/// # Errors
/// [`ErrorKind::Destination`] if it cannot be written; then nothing new is left.
pub(super) fn announce(path: &Path, names: &[String]) -> Result<ReadyFile> {
    let text = names.join("\n") + "\n";
    let is_there = path.symlink_metadata().is_ok();
    let written = if is_there {
        std::fs::write(path, text).map(|()| None)
    } else {
        whole_file::write(path, text.as_bytes(), ".inrush-ready-").map(Some)
    };
    let made = written.map_err(|error| {
        Error::new(ErrorKind::Destination, format!("cannot write {}: {error}", path.display()))
            .advise("give a writable file")
            .of_call(error.raw_os_error())
    })?;
    Ok(ReadyFile { path: path.to_owned(), made })
}

/// Warns of named pipes that have the channels' own names: inrush does not write to them, because a
/// channel's pipes have the numbers of their epochs.
pub(super) async fn warn_of_unused(args: &PipeArgs, progress: &Progress) -> Result<()> {
    let names = args.channels.iter().map(|channel| args.folder.join(&channel.name));
    let mut names: Vec<PathBuf> = names.collect();
    let is_pipe = |path: &PathBuf| {
        let found = rustix::fs::stat(path);
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo)
    };
    let unused = blocking(move || {
        names.retain(is_pipe);
        names
    });
    for path in unused.await {
        progress.warn(format!(
            "{0} is a named pipe that is not used: the epochs have {0}_0, {0}_1, and so on; pipes \
             of these names are used if they are there",
            path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::fs::symlink;
    use std::{fs, io};

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_appears_complete() {
        let folder = tempfile::tempdir().unwrap();
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, folder.path(), what).unwrap();
        let path = folder.path().join("ready");
        let ready = announce(&path, &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(names(folder.path()), ["ready"]);
        // Its name came by a rename, not with an empty file.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        let mut came = Vec::new();
        while let Ok(event) = events.next() {
            if event.file_name() == Some(c"ready") {
                came.push(event.events());
            }
        }
        assert_eq!(came, [inotify::ReadFlags::MOVED_TO]);
        drop(ready);
        assert_eq!(names(folder.path()), Vec::<String>::new(), "it goes with its run");
    }

    #[test]
    fn only_the_file_that_was_made_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        let ready = announce(&path, &["a".to_owned()]).unwrap();
        // Another file takes the name, as a second run's would.
        fs::write(folder.path().join("new"), "another").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        drop(ready);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        let ready = announce(&path, &["b".to_owned()]).unwrap();
        drop(ready);
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n", "it was there before");
        fs::remove_file(&path).unwrap();
        drop(announce(&path, &[]).unwrap());
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn what_is_there_is_written_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("ready"), folder.path().join("old"));
        fs::write(&path, "longer than what comes").unwrap();
        fs::hard_link(&path, &old).unwrap();
        announce(&path, &["a".to_owned()]).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "a\n", "it is still the same file");
    }

    #[test]
    fn a_link_is_followed_and_a_pipe_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        symlink("file", &link).unwrap();
        fs::write(&file, "old").unwrap();
        announce(&link, &["a".to_owned()]).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "a\n");

        let (reader, writer) = io::pipe().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&writer);
        announce(Path::new(&format!("/dev/fd/{descriptor}")), &["b".to_owned()]).unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), "b\n");
    }

    #[test]
    fn where_nothing_can_be_written_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = announce(&folder.path().join("no/such"), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destination);
        assert!(error.to_string().contains("no/such"), "{error}");
        let error = announce(folder.path(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destination);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
