//! The names of one mount: all of them listed before it serves, or each folder when it is used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::Errno;

use super::reply::{NameReply, OpenReply};
use crate::mount::lazy::{Lazy, Level, Turn, Unlisted, VERSIONS_FROM};
use crate::mount::tree::{Facts, Hidden, Inode, ROOT, Totals, Tree};
use crate::plan::path::PathProblem;
use crate::s3::{Endpoint, Object};

/// A request of the kernel that waits until a folder is listed.
#[derive(Debug)]
pub(super) enum Waiting {
    /// What a name in it leads to.
    Name { name: Box<[u8]>, reply: NameReply },
    /// To open it.
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

/// What programs see, by inodes.
#[derive(Debug)]
pub(in crate::command) enum Names {
    /// Everything was listed.
    Whole(Tree, Hidden),
    /// Folders of this bucket are listed when they are used.
    Lazy(LazyNames),
}

/// Names that grow.
#[derive(Debug)]
pub(in crate::command) struct LazyNames {
    pub(super) bucket: String,
    known: Mutex<Lazy<Waiting>>,
}

impl LazyNames {
    /// None yet, of the folder whose keys begin so.
    pub(super) fn new(bucket: String, prefix: String, seconds: i64) -> Self {
        Self { bucket, known: Mutex::new(Lazy::new(prefix, seconds)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Lazy<Waiting>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is in a folder that is listed.
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
    /// The number from which on versions that replace objects have theirs.
    pub(super) fn versions_from(&self) -> Inode {
        match self {
            Self::Whole(tree, _) => ROOT + tree.count(),
            Self::Lazy(_) => VERSIONS_FROM,
        }
    }

    /// What is known altogether.
    pub(in crate::command) fn totals(&self) -> Totals {
        match self {
            Self::Whole(tree, _) => tree.totals(),
            Self::Lazy(names) => names.lock().totals(),
        }
    }

    /// How many keys are known that cannot be names.
    pub(super) fn hidden_count(&self) -> u64 {
        match self {
            Self::Whole(_, hidden) => hidden.count(),
            Self::Lazy(names) => names.lock().hidden(),
        }
    }

    /// How many of them have a name that another source has, too.
    pub(super) const fn repeated_count(&self) -> u64 {
        match self {
            Self::Whole(_, hidden) => hidden.repeated(),
            // There is one source.
            Self::Lazy(_) => 0,
        }
    }

    /// The first of them, where everything was listed.
    pub(super) fn hidden_keys(&self) -> &[(String, PathProblem)] {
        match self {
            Self::Whole(_, hidden) => hidden.keys(),
            Self::Lazy(_) => &[],
        }
    }

    /// What programs are told of an inode, as it was listed.
    pub(super) fn facts(&self, inode: Inode) -> Option<Facts> {
        match self {
            Self::Whole(tree, _) => tree.facts(inode),
            Self::Lazy(names) => names.lock().facts(inode),
        }
    }

    /// The child of this name.
    ///
    /// # Errors
    /// Where the folder is not listed.
    pub(super) fn lookup(&self, parent: Inode, name: &[u8]) -> Result<Option<Inode>, Unlisted> {
        match self {
            Self::Whole(tree, _) => Ok(tree.lookup(parent, name)),
            Self::Lazy(names) => names.lock().lookup(parent, name),
        }
    }

    /// What is in a folder; `None` for what is no folder.
    ///
    /// # Errors
    /// Where it is not listed.
    pub(super) fn children(&self, folder: Inode) -> Result<Option<Children<'_>>, Unlisted> {
        match self {
            Self::Whole(tree, _) => {
                Ok(tree.children(folder).map(|children| Children::Whole(tree, children)))
            }
            Self::Lazy(names) => Ok(names.lock().level(folder)?.map(Children::Level)),
        }
    }

    /// The name of an inode that is known.
    pub(super) fn name(&self, inode: Inode) -> String {
        match self {
            Self::Whole(tree, _) => tree.name(inode).to_owned(),
            Self::Lazy(names) => names.lock().name(inode).to_owned(),
        }
    }

    /// The folder that an inode is in which is known.
    pub(super) fn parent(&self, inode: Inode) -> Inode {
        match self {
            Self::Whole(tree, _) => tree.parent(inode),
            Self::Lazy(names) => names.lock().parent(inode),
        }
    }

    /// The object of a file as it was listed, and where it is served.
    pub(super) fn object(&self, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        match self {
            Self::Whole(tree, _) => tree.object(inode),
            Self::Lazy(names) => names.lock().object(inode),
        }
    }

    /// Has a request wait until a folder is listed.
    pub(super) fn wait(&self, folder: Inode, waiting: Waiting) -> Turn<Waiting> {
        match self {
            Self::Whole(..) => Turn::Listed(waiting),
            Self::Lazy(names) => names.lock().wait(folder, waiting),
        }
    }
}
