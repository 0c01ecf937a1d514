//! `sync --delete`: records the source's paths, and removes all others.
//!
//! A path is stored as 64 bits of its digest. Two paths with equal digests are taken for one: then
//! a file that should be removed stays, but none is removed that should stay.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

use crate::control::blocking::GivenUp;
use crate::control::list::sources::{Source, SourceKind};
use crate::download::own_files::{OwnFiles, is_at};
use crate::error::{Error, ErrorKind, Result};
use crate::files::mark::Identity;
use crate::files::system_host::{Sweep, Swept, SystemHost};
use crate::limits::{REMOVED_QUEUED_MAX, SYNC_DELETE_OBJECTS_MAX};
use crate::plan::filter::Filter;
use crate::plan::folding::Folding;

/// The source's paths.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// Excluded paths are left alone.
    filter: Filter,
    /// Digests of files, and of folders that are objects or have files.
    listed: Vec<u64>,
    /// The folder of the last path.
    above: String,
    /// Files that this run itself reads or writes: they may lie below the destination, and stay.
    own: OwnFiles,
    /// Which paths are equal at the destination: a file of the source may have another spelling
    /// there.
    folding: Folding,
}

impl Mirror {
    /// Empty. Only whole folders show which files they do not have. A source that reads as a glob
    /// may be meant as one: a folder of exactly this name would leave nothing else.
    pub(crate) fn new(sources: &[Source], filter: Filter, own: OwnFiles) -> Result<Self> {
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

    /// Treats these paths as equal; if that is unknown, like any file system, because that only
    /// leaves more files.
    pub(crate) fn folding(self, folding: Option<Folding>) -> Self {
        Self { folding: folding.unwrap_or(Folding::ALL).widened(), ..self }
    }

    fn digest(&self, path: &str) -> u64 {
        Identity::of(&[&self.folding.fold(path)]).short()
    }

    /// Records a file, or a folder, of the source.
    ///
    /// # Errors
    /// If there are more paths, with their folders, than can be stored.
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

    /// Records the folders of a path, except those of the last path.
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

    /// The source has no more paths.
    pub(crate) fn complete(&mut self) {
        self.listed.sort_unstable();
    }

    /// Removes all other files on a helper thread, and sends their paths over the channel; dropping
    /// the receiver ends the sweep. Only once the source is complete.
    pub(crate) fn sweep_blocking(
        self: Arc<Self>,
        mut machine: SystemHost,
        dry: bool,
    ) -> (Receiver<String>, impl Future<Output = Swept>) {
        let (sender, paths) = channel(REMOVED_QUEUED_MAX);
        let sweep = move || {
            self.sweep(&mut machine, dry, |path| sender.blocking_send(path.to_owned()).is_ok())
        };
        // Started now: the paths are received before its end is awaited.
        let sweeping = spawn_blocking(sweep);
        (paths, async { sweeping.await.expect("a sweep does not panic") })
    }

    /// Removes all other files; `report` gets each path and may end the sweep with false.
    fn sweep(
        &self,
        machine: &mut SystemHost,
        dry: bool,
        mut report: impl FnMut(&str) -> bool,
    ) -> Swept {
        let (unfinished, folds) = (self.filter.is_empty(), !self.folding.is_none());
        let sweep = Sweep { dry, unfinished, whole: false, folds };
        machine.sweep(sweep, &self.is_extra(), &mut report)
    }

    /// Removes the obstacles of an object's file, if the source does not have them, or checks if
    /// that is allowed (`dry`); `report` gets each path. Only once the source is complete, and
    /// until the result is no longer awaited.
    pub(super) fn clear_way(
        &self,
        machine: &mut SystemHost,
        (path, dry): (&str, bool),
        given_up: &GivenUp,
        mut report: impl FnMut(&str),
    ) -> Swept {
        let folds = !self.folding.is_none();
        let is_extra = self.is_extra();
        let is_extra = |path: &str| !given_up.get() && is_extra(path);
        let mut report = |path: &str| {
            report(path);
            !given_up.get()
        };
        machine.clear_way(path, (folds, dry), &is_extra, &mut report)
    }

    /// A predicate for paths that the source does not have; those of folders end in a slash.
    fn is_extra(&self) -> impl Fn(&str) -> bool {
        let fold = |path: &Path| path.to_str().map(|path| self.folding.fold(path).into_owned());
        let own: Vec<String> = self.own.below().iter().filter_map(|path| fold(path)).collect();
        move |path| {
            let name = path.trim_end_matches('/');
            self.listed.binary_search(&self.digest(path)).is_err()
                && self.filter.takes(name)
                && !own.iter().any(|own| is_at(&self.folding.fold(name), own))
        }
    }
}
