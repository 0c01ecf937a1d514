//! Names whose objects are others than the listing says: they are asked for when a program looks
//! the name up again, and the kernel is told to forget what it knows of them.
//!
//! The kernel looks a name up again when it opens a file and is told ESTALE (openat(2) then begins
//! anew, and trusts nothing that it has), and when it was told that its entry is not valid any more
//! (`FUSE_NOTIFY_INVAL_ENTRY`).

use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{Errno, INodeNo, Notifier};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::lazily::Listing;
use super::names::Names;
use super::reply::NameReply;
use super::view::Looks;
use crate::command::aside::aside;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MOUNT_LISTINGS_MAX, MOUNT_LOOKUPS_MAX, MOUNT_NAMES_TTL};
use crate::mount::tree::{Facts, Inode, Kind};
use crate::mount::versions::{Current, Versions};
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// What is asked of the control plane.
pub(super) enum Ask {
    /// To look a name up again.
    Name { of: Arc<Replaced>, name: Inode, reply: NameReply },
    /// To tell the kernel that a name leads elsewhere.
    Forget { of: Arc<Replaced>, name: Inode },
    /// To list a folder.
    Folder(Listing),
}

/// What names of one mount lead to.
pub(super) struct Replaced {
    /// Which of the mounts that share the workers.
    number: usize,
    names: Arc<Names>,
    looks: Looks,
    versions: Mutex<Versions>,
    /// Any object was replaced.
    has_any: AtomicBool,
    notifier: OnceLock<Notifier>,
    asks: mpsc::Sender<Ask>,
}

impl std::fmt::Debug for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replaced").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Replaced {
    pub(super) fn new(
        number: usize,
        names: Arc<Names>,
        looks: Looks,
        asks: mpsc::Sender<Ask>,
    ) -> Self {
        let versions = Versions::new(names.versions_from());
        Self {
            number,
            names,
            looks,
            versions: Mutex::new(versions),
            has_any: AtomicBool::new(false),
            notifier: OnceLock::new(),
            asks,
        }
    }

    /// Which of the mounts that share the workers it is of.
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// The names as they were listed.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// To where is asked.
    pub(super) const fn asks(&self) -> &mpsc::Sender<Ask> {
        &self.asks
    }

    /// From now on the kernel can be told.
    pub(super) fn mounted(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    fn lock(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The versions, where there are any.
    fn any(&self) -> Option<MutexGuard<'_, Versions>> {
        self.has_any.load(Ordering::Acquire).then(|| self.lock())
    }

    /// What programs are told of a name of the tree, and how long that holds; `None` for one that
    /// is gone.
    pub(super) fn listed(&self, name: Inode) -> Option<(Facts, Duration)> {
        let listed = || self.names.facts(name);
        let Some(versions) = self.any() else { return Some((listed()?, MOUNT_NAMES_TTL)) };
        match versions.of_name(name) {
            Current::Listed => Some((listed()?, MOUNT_NAMES_TTL)),
            // It is looked up before it is used.
            Current::Unknown => Some((listed()?, Duration::ZERO)),
            Current::Gone => None,
            Current::Version(inode, object) => {
                Some((self.facts_of(name, inode, object)?, MOUNT_NAMES_TTL))
            }
        }
    }

    /// Answers what a name leads to, now or once that is known.
    pub(super) fn look_up(self: &Arc<Self>, name: Inode, reply: NameReply) {
        let known = match self.any() {
            None => self.names.facts(name),
            Some(versions) => self.known(name, &versions),
        };
        if let Some(facts) = known {
            return self.tell(&facts, reply);
        }
        let ask = Ask::Name { of: Arc::clone(self), name, reply };
        if let Err(error) = self.asks.try_send(ask) {
            let (mpsc::error::TrySendError::Full(ask) | mpsc::error::TrySendError::Closed(ask)) =
                error;
            if let Ask::Name { reply, .. } = ask {
                reply.error(Errno::EAGAIN);
            }
        }
    }

    /// What programs are told of an inode; `None` where its object was replaced or is gone.
    pub(super) fn facts(&self, inode: Inode) -> Option<Facts> {
        // Who has a file open asks for it as it was, even where it is not any more.
        if let Some(listed) = self.names.facts(inode) {
            return Some(listed);
        }
        let versions = self.any()?;
        let name = versions.name_of(inode)?;
        match versions.of_name(name) {
            Current::Version(_, object) => self.facts_of(name, inode, object),
            _ => None,
        }
    }

    /// The object of a file, and where it is served.
    ///
    /// # Errors
    /// ESTALE where it was replaced or is gone, EISDIR for a folder.
    pub(super) fn object(&self, inode: Inode) -> Result<(Object, Arc<Endpoint>), Errno> {
        let Some(versions) = self.any() else {
            return self.names.object(inode).ok_or(Errno::EISDIR);
        };
        let name = versions.name_of(inode).ok_or(Errno::ESTALE)?;
        match versions.of_name(name) {
            Current::Version(_, object) => {
                let endpoint = self.names.object(name).map(|(_, endpoint)| endpoint);
                Ok((object.clone(), endpoint.ok_or(Errno::ESTALE)?))
            }
            _ => self.names.object(name).ok_or(Errno::EISDIR),
        }
    }

    /// The object of this inode was replaced, or is gone.
    pub(super) fn note_changed(self: &Arc<Self>, inode: Inode) {
        let name = {
            let mut versions = self.lock();
            let name = versions.note_changed(inode);
            self.has_any.store(true, Ordering::Release);
            name
        };
        if let Some(name) = name {
            self.forget(name);
        }
    }

    /// Has the kernel forget what it knows of a name. Where too much is asked it does not: then
    /// only who opens the file looks it up.
    fn forget(self: &Arc<Self>, name: Inode) {
        let _ = self.asks.try_send(Ask::Forget { of: Arc::clone(self), name });
    }

    /// What is known of a name.
    fn known(&self, name: Inode, versions: &Versions) -> Option<Facts> {
        match versions.of_name(name) {
            Current::Listed => self.names.facts(name),
            Current::Unknown | Current::Gone => None,
            Current::Version(inode, object) => self.facts_of(name, inode, object),
        }
    }

    fn facts_of(&self, name: Inode, inode: Inode, object: &Object) -> Option<Facts> {
        let listed = self.names.facts(name)?;
        let seconds = object.modified_seconds().unwrap_or(listed.seconds);
        let kind = Kind::File { size_bytes: object.size_bytes };
        Some(Facts { inode, kind, seconds })
    }

    fn tell(&self, facts: &Facts, reply: NameReply) {
        reply.name(MOUNT_NAMES_TTL, &self.looks.attributes(*facts));
    }

    /// Asks the server what a name leads to, and answers; what failed is told first, for who gets
    /// the answer may end all of this.
    async fn ask(
        self: Arc<Self>,
        control: &Control,
        name: Inode,
        deadline: Option<Duration>,
        errors: &mpsc::Sender<(usize, Error)>,
        reply: NameReply,
    ) {
        let Some((listed, endpoint)) = self.names.object(name) else {
            return reply.error(Errno::ENOENT);
        };
        let (bucket, key) = (&endpoint.bucket, &listed.key);
        let asked = control.head(bucket, key, &listed.version_id);
        let object = match in_time(deadline, asked).await {
            Ok(object) => object,
            Err(error) => {
                let error = error.within(format!("look up s3://{bucket}/{}", shown(key)));
                // Beyond those that can be told at once they are too many to be read.
                let _ = errors.try_send((self.number, error));
                return reply.error(Errno::EIO);
            }
        };
        let (known, is_other) = {
            let mut versions = self.lock();
            let is_other = versions.found(name, object);
            (self.known(name, &versions), is_other)
        };
        match known {
            Some(facts) => self.tell(&facts, reply),
            None => reply.error(Errno::ENOENT),
        }
        if is_other {
            self.forget(name);
        }
    }

    /// Tells the kernel that its entry of a name, and its list of the folder, are not valid. It may
    /// wait for lookups in the folder, which must go on meanwhile.
    fn tell_kernel(&self, name: Inode) {
        let Some(notifier) = self.notifier.get() else { return };
        let parent = INodeNo(self.names.parent(name));
        let told = notifier
            .inval_inode(parent, 0, 0)
            .and_then(|()| notifier.inval_entry(parent, OsStr::new(&self.names.name(name))));
        if let Err(error) = told {
            tracing::info!("the kernel keeps an entry of a replaced object: {error}");
        }
    }
}

/// What is asked of the server, or that it took too long.
pub(super) async fn in_time<T>(
    deadline: Option<Duration>,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    match deadline {
        None => asked.await,
        Some(time) => tokio::time::timeout(time, asked).await.unwrap_or_else(|_| {
            let time = humantime::format_duration(time);
            Err(Error::new(ErrorKind::Deadline, format!("no answer within --deadline {time}")))
        }),
    }
}

/// Answers what is asked until nobody asks any more.
pub(super) async fn answer(
    control: Rc<Control>,
    mut asks: mpsc::Receiver<Ask>,
    deadline: Option<Duration>,
    errors: mpsc::Sender<(usize, Error)>,
) {
    let room = Arc::new(Semaphore::new(MOUNT_LOOKUPS_MAX));
    let listings = Rc::new(Semaphore::new(MOUNT_LISTINGS_MAX));
    // They end with this one.
    let mut under_way = JoinSet::new();
    while let Some(ask) = asks.recv().await {
        while under_way.try_join_next().is_some() {}
        match ask {
            Ask::Forget { of, name } => {
                under_way.spawn_local(aside(move || of.tell_kernel(name)));
            }
            Ask::Folder(listing) => {
                let (control, errors) = (Rc::clone(&control), errors.clone());
                let room = Rc::clone(&listings);
                // A folder may have very many pages: names are looked up meanwhile. For each that
                // waits for its turn a program waits, which bounds them.
                under_way.spawn_local(async move {
                    listing.run(&control, &room, deadline, &errors).await;
                });
            }
            Ask::Name { of, name, reply } => {
                let permit = Arc::clone(&room).acquire_owned().await;
                let (control, errors) = (Rc::clone(&control), errors.clone());
                under_way.spawn_local(async move {
                    of.ask(&control, name, deadline, &errors, reply).await;
                    drop(permit);
                });
            }
        }
    }
}
