//! The names of one mount: all listed before it serves, or each folder when it is used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::Errno;

use super::reply::{NameReply, OpenReply};
use super::whole::WholeNames;
use crate::control::blocking::blocking;
use crate::control::list::entries::Entries;
use crate::error::{Error, Result};
use crate::mount::lazy::{Lazy, Level, Turn, Unlisted, VERSIONS_FROM};
use crate::mount::tree::{Builder, Facts, Inode, ROOT, Totals, Tree};
use crate::plan::path::PathProblem;
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// A request of the kernel that waits until a folder is listed.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A lookup of a name in it.
    Name { name: Box<[u8]>, reply: NameReply },
    /// An open of it.
    Folder(OpenReply),
}

impl Waiting {
    pub(super) fn error(self, errno: Errno) {
        match self {
            Self::Name { reply, .. } => reply.error(errno),
            Self::Folder(reply) => reply.error(errno),
        }
    }
}

/// The visible names, by inodes.
#[derive(Debug)]
pub(crate) enum Names {
    /// Everything was listed.
    Whole(Box<WholeNames>),
    /// Folders of this bucket are listed when they are used.
    Lazy(LazyNames),
}

/// Names of which more are added.
#[derive(Debug)]
pub(crate) struct LazyNames {
    pub(super) bucket: String,
    known: Mutex<Lazy<Waiting>>,
}

impl LazyNames {
    /// No names yet, for the folder of this prefix.
    pub(crate) fn new(bucket: String, prefix: String) -> Self {
        Self { bucket, known: Mutex::new(Lazy::new(prefix, now_seconds())) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Lazy<Waiting>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The children of a listed folder.
pub(super) enum Children<'a> {
    Whole(&'a Tree, std::ops::Range<Inode>),
    Level(Level),
}

impl Children<'_> {
    pub(super) fn numbers(&self) -> std::ops::Range<Inode> {
        match self {
            Self::Whole(_, children) => children.clone(),
            Self::Level(level) => level.children(),
        }
    }

    pub(super) fn name(&self, child: Inode) -> &str {
        match self {
            Self::Whole(tree, _) => tree.name(child),
            Self::Level(level) => level.name(child),
        }
    }
}

impl Names {
    /// The names of all these entries.
    ///
    /// # Errors
    /// If the listing fails.
    pub(crate) async fn listed(mut entries: Entries) -> Result<Self> {
        let mut builder = Builder::default();
        while let Some(batch) = entries.next_batch().await? {
            for entry in batch {
                let key = &entry.object.key;
                match &entry.path {
                    Err(problem) => builder.hide(key, *problem),
                    Ok(path) => {
                        let length = path.as_str().len() + usize::from(entry.folder);
                        let start = key.len().checked_sub(length).ok_or_else(|| {
                            Error::bug(format!("the path of {} is longer", shown(key)))
                        })?;
                        builder.add(&entry.object, &entry.endpoint, start)?;
                    }
                }
            }
        }
        let (tree, hidden) = blocking(move || builder.finish(now_seconds())).await;
        Ok(Self::Whole(Box::new(WholeNames::new(tree, hidden))))
    }

    /// The first inode of versions that replace objects.
    pub(super) fn versions_from(&self) -> Inode {
        match self {
            Self::Whole(names) => ROOT + names.tree.count(),
            Self::Lazy(_) => VERSIONS_FROM,
        }
    }

    /// Totals of the known names.
    pub(crate) fn totals(&self) -> Totals {
        match self {
            Self::Whole(names) => names.totals(),
            Self::Lazy(names) => names.lock().totals(),
        }
    }

    /// Number of known keys that cannot be names.
    pub(crate) fn hidden_count(&self) -> u64 {
        match self {
            Self::Whole(names) => names.hidden.count(),
            Self::Lazy(names) => names.lock().hidden(),
        }
    }

    /// Number of hidden keys whose name another source has, too.
    pub(crate) fn repeated_count(&self) -> u64 {
        match self {
            Self::Whole(names) => names.hidden.repeated(),
            // There is one source.
            Self::Lazy(_) => 0,
        }
    }

    /// The first hidden keys, if everything was listed.
    pub(crate) fn hidden_keys(&self) -> &[(String, PathProblem)] {
        match self {
            Self::Whole(names) => names.hidden.keys(),
            Self::Lazy(_) => &[],
        }
    }

    /// The attributes of an inode by its listing.
    pub(super) fn facts(&self, inode: Inode) -> Option<Facts> {
        match self {
            Self::Whole(names) => names.facts(inode),
            Self::Lazy(names) => names.lock().facts(inode),
        }
    }

    /// The child of this name.
    ///
    /// # Errors
    /// If the folder is not listed.
    pub(super) fn lookup(&self, parent: Inode, name: &[u8]) -> Result<Option<Inode>, Unlisted> {
        match self {
            Self::Whole(names) => Ok(names.lookup(parent, name)),
            Self::Lazy(names) => names.lock().lookup(parent, name),
        }
    }

    /// The children of a folder; `None` for anything else.
    ///
    /// # Errors
    /// If it is not listed.
    pub(super) fn children(&self, folder: Inode) -> Result<Option<Children<'_>>, Unlisted> {
        match self {
            Self::Whole(names) => {
                Ok(names.children(folder).map(|listed| Children::Whole(&names.tree, listed)))
            }
            Self::Lazy(names) => Ok(names.lock().level(folder)?.map(Children::Level)),
        }
    }

    /// Children of a folder that later listings added, from this position on: at most this many.
    /// They follow the listed ones.
    pub(super) fn added(&self, folder: Inode, from: usize, most: usize) -> Vec<(Inode, Arc<str>)> {
        match self {
            Self::Whole(names) => names.added(folder, from, most),
            Self::Lazy(_) => Vec::new(),
        }
    }

    /// True for a folder that is gone, by a later listing.
    pub(super) fn is_gone(&self, inode: Inode) -> bool {
        match self {
            Self::Whole(names) => names.is_gone(inode),
            Self::Lazy(_) => false,
        }
    }

    /// The name of a known inode.
    pub(super) fn name(&self, inode: Inode) -> String {
        match self {
            Self::Whole(names) => names.name(inode),
            Self::Lazy(names) => names.lock().name(inode).to_owned(),
        }
    }

    /// The parent folder of a known inode.
    pub(super) fn parent(&self, inode: Inode) -> Inode {
        match self {
            Self::Whole(names) => names.parent(inode),
            Self::Lazy(names) => names.lock().parent(inode),
        }
    }

    /// The object of a file by its listing, and its endpoint.
    pub(super) fn object(&self, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        match self {
            Self::Whole(names) => names.object(inode),
            Self::Lazy(names) => names.lock().object(inode),
        }
    }

    /// Queues a request until a folder is listed.
    pub(super) fn wait(&self, folder: Inode, waiting: Waiting) -> Turn<Waiting> {
        match self {
            Self::Whole(_) => Turn::Listed(waiting),
            Self::Lazy(names) => names.lock().wait(folder, waiting),
        }
    }
}

/// The time for what has none, in seconds since the Epoch.
pub(super) fn now_seconds() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "what has no time has that of the mount")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}
