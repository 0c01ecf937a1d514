//! `sync --delete`: which paths the source has, and the removal of all others.
//!
//! A path is remembered by 64 bits of its digest. Two that share them are held for one: then a file
//! that should go stays, and none goes that should stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

use super::aside::GivenUp;
use crate::control::resolve::{Source, SourceKind};
use crate::error::{Error, ErrorKind, Result};
use crate::files::mark::Identity;
use crate::files::system_host::{Sweep, Swept, SystemHost};
use crate::limits::{REMOVED_UNTOLD_MAX, SYNC_DELETE_OBJECTS_MAX};
use crate::plan::filter::Filter;
use crate::plan::folding::Folding;

/// The paths that the source has.
#[derive(Debug)]
pub(super) struct Mirror {
    /// Of what it leaves out nothing is known.
    filter: Filter,
    /// Digests of files, and of folders that are objects or have files.
    listed: Vec<u64>,
    /// The folder of the last one.
    above: String,
    own: OwnFiles,
    /// Which paths are one at the destination: the file of one that the source has may have the
    /// name of another.
    folding: Folding,
}

/// Files that this run itself reads or writes: they may lie below the destination, and stay.
#[derive(Debug)]
pub(super) struct OwnFiles {
    /// The destination.
    pub(super) folder: PathBuf,
    /// As they were named.
    pub(super) files: Vec<PathBuf>,
}

impl OwnFiles {
    /// Their paths below the destination: of each its name, and what a link of that name leads to.
    fn below(&self) -> Vec<PathBuf> {
        let Ok(folder) = self.folder.canonicalize() else { return Vec::new() };
        let named = |file: &Path| {
            let above = file.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(above.join(file.file_name()?))
        };
        let both = self.files.iter().flat_map(|file| [named(file), file.canonicalize().ok()]);
        let below = |path: PathBuf| path.strip_prefix(&folder).map(Path::to_owned).ok();
        both.flatten().filter_map(below).collect()
    }
}

impl Mirror {
    /// None yet. Only of whole folders it is known what they do not have. What reads as a glob may
    /// have been meant as one: a folder of just this name would keep nothing else.
    pub(super) fn new(sources: &[Source], filter: Filter, own: OwnFiles) -> Result<Self> {
        if let Some(source) =
            sources.iter().find(|source| !matches!(source.found, SourceKind::Folder { .. }))
        {
            let message = format!("{} is not a folder; --delete requires folders", source.uri);
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("give s3://BUCKET/FOLDER/ with --include, or omit --delete"));
        }
        if let Some(source) = sources.iter().find(|source| source.is_literal()) {
            let message = format!("{} reads as a glob; --delete requires folders", source.uri);
            return Err(Error::new(ErrorKind::Usage, message).advise(
                "for the folder of exactly this name, write \\ before each of * ? [, or use --raw",
            ));
        }
        let (listed, above, folding) = (Vec::new(), String::new(), Folding::default());
        Ok(Self { filter, listed, above, own, folding })
    }

    /// The same, which takes these paths for one: where it is not known which are, all that any
    /// file system does, for that only keeps more.
    pub(super) fn folding(self, folding: Option<Folding>) -> Self {
        Self { folding: folding.unwrap_or(Folding::ALL).widened(), ..self }
    }

    fn digest(&self, path: &str) -> u64 {
        Identity::of(&[&self.folding.fold(path)]).short()
    }

    /// The source has a file, or a folder, of this path.
    ///
    /// # Errors
    /// When there are more, with their folders, than can be remembered.
    pub(super) fn note(&mut self, path: &str, is_folder: bool) -> Result<()> {
        if self.listed.len() >= SYNC_DELETE_OBJECTS_MAX {
            let message =
                format!("--delete supports at most {SYNC_DELETE_OBJECTS_MAX} objects and folders");
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("sync folder by folder, or omit --delete; nothing was removed"));
        }
        self.listed.push(match is_folder {
            true => self.digest(&format!("{}/", path.trim_end_matches('/'))),
            false => self.digest(path),
        });
        self.note_above(path.trim_end_matches('/'));
        Ok(())
    }

    /// The folders of a path are the source's, too, but for those that the last path was in.
    fn note_above(&mut self, path: &str) {
        let above = path.rfind('/').map_or("", |end| &path[..end]);
        if above == self.above {
            return;
        }
        let ends = path.match_indices('/').map(|(end, _)| &path[..end]);
        let is_noted = |folder: &str| {
            let rest = self.above.strip_prefix(folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let new: Vec<u64> = ends
            .filter(|folder| !is_noted(folder))
            .map(|folder| self.digest(&format!("{folder}/")))
            .collect();
        self.listed.extend(new);
        above.clone_into(&mut self.above);
    }

    /// The source has no more.
    pub(super) fn complete(&mut self) {
        self.listed.sort_unstable();
    }

    /// Removes all others on a helper thread; the paths come by the channel, and who drops that
    /// ends the sweep. Once it is complete.
    pub(super) fn sweep_aside(
        self: Arc<Self>,
        mut machine: SystemHost,
        dry: bool,
    ) -> (Receiver<String>, impl Future<Output = Swept>) {
        let (tell, told) = channel(REMOVED_UNTOLD_MAX);
        let sweep = move || {
            self.sweep(&mut machine, dry, |path| tell.blocking_send(path.to_owned()).is_ok())
        };
        // Begun now: the paths are received before its end is waited for.
        let sweeping = spawn_blocking(sweep);
        (told, async { sweeping.await.expect("a sweep does not panic") })
    }

    /// Removes all others; `tell` hears of each and may end it with false.
    fn sweep(
        &self,
        machine: &mut SystemHost,
        dry: bool,
        mut tell: impl FnMut(&str) -> bool,
    ) -> Swept {
        let (unfinished, folds) = (self.filter.is_empty(), !self.folding.is_none());
        let sweep = Sweep { dry, unfinished, whole: false, folds };
        machine.sweep(sweep, &self.is_extra(), &mut tell)
    }

    /// Removes what is in the way of an object's file, if the source does not have it, or looks
    /// whether that may be (`dry`); `tell` hears of each path. Once it is complete, and until
    /// nobody waits for it.
    pub(super) fn clear_way(
        &self,
        machine: &mut SystemHost,
        (path, dry): (&str, bool),
        given_up: &GivenUp,
        mut tell: impl FnMut(&str),
    ) -> Swept {
        let folds = !self.folding.is_none();
        let is_extra = self.is_extra();
        let is_extra = |path: &str| !given_up.get() && is_extra(path);
        let mut tell = |path: &str| {
            tell(path);
            !given_up.get()
        };
        machine.clear_way(path, (folds, dry), &is_extra, &mut tell)
    }

    /// Says of paths whether they are others; those of folders end in a slash.
    fn is_extra(&self) -> impl Fn(&str) -> bool {
        let fold = |path: &Path| path.to_str().map(|path| self.folding.fold(path).into_owned());
        let own: Vec<String> = self.own.below().iter().filter_map(|path| fold(path)).collect();
        move |path| {
            let name = path.trim_end_matches('/');
            self.listed.binary_search(&self.digest(path)).is_err()
                && self.filter.takes(name)
                && !own.iter().any(|own| *own == self.folding.fold(name))
        }
    }
}
