//! Names whose objects differ from the listing: they are requested when a program looks the name up
//! again, and the kernel's entries of them are invalidated.
//!
//! The kernel looks a name up again if opening its file returned ESTALE (openat(2) then starts
//! over, without its caches), and if its entry was invalidated (`FUSE_NOTIFY_INVAL_ENTRY`).

use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{Errno, INodeNo, Notifier};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::attributes::Attributes;
use super::dir_lister::DirListing;
use super::names::Names;
use super::reply::NameReply;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MOUNT_LISTINGS_MAX, MOUNT_LOOKUPS_MAX, MOUNT_NAMES_TTL};
use crate::mount::tree::{Facts, Inode, Kind};
use crate::mount::versions::{Current, Versions};
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// A request to the control plane.
pub(super) enum VersionRequest {
    /// Look a name up again.
    Name { of: Arc<VersionCheck>, name: Inode, reply: NameReply },
    /// Invalidate the kernel's entry of a name.
    Forget { of: Arc<VersionCheck>, name: Inode },
    /// List a folder.
    Folder(DirListing),
}

/// The current versions of one mount's names.
pub(super) struct VersionCheck {
    /// The index of the mount among those that share the workers.
    number: usize,
    names: Arc<Names>,
    base: Attributes,
    versions: Mutex<Versions>,
    /// An object was replaced.
    has_any: AtomicBool,
    notifier: OnceLock<Notifier>,
    asks: mpsc::Sender<VersionRequest>,
}

impl std::fmt::Debug for VersionCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionCheck").field("number", &self.number).finish_non_exhaustive()
    }
}

impl VersionCheck {
    pub(super) fn new(
        number: usize,
        names: Arc<Names>,
        base: Attributes,
        asks: mpsc::Sender<VersionRequest>,
    ) -> Self {
        let versions = Versions::new(names.versions_from());
        Self {
            number,
            names,
            base,
            versions: Mutex::new(versions),
            has_any: AtomicBool::new(false),
            notifier: OnceLock::new(),
            asks,
        }
    }

    /// The index of its mount among those that share the workers.
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// The names by their listing.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// The channel for requests.
    pub(super) const fn asks(&self) -> &mpsc::Sender<VersionRequest> {
        &self.asks
    }

    /// Registers the notifier of the mounted file system.
    pub(super) fn mounted(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    fn lock(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes versions by a listing.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Versions) -> T) -> T {
        let mut versions = self.lock();
        self.has_any.store(true, Ordering::Release);
        change(&mut versions)
    }

    /// The versions, if there are any.
    fn any(&self) -> Option<MutexGuard<'_, Versions>> {
        self.has_any.load(Ordering::Acquire).then(|| self.lock())
    }

    /// The attributes of a name of the tree, and their lifetime; `None` if it was deleted.
    pub(super) fn listed(&self, name: Inode) -> Option<(Facts, Duration)> {
        if self.names.is_gone(name) {
            return None;
        }
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

    /// Answers a lookup, now or once its result is known.
    pub(super) fn look_up(self: &Arc<Self>, name: Inode, reply: NameReply) {
        let known = match self.any() {
            None => self.names.facts(name),
            Some(versions) => self.known(name, &versions),
        };
        if let Some(facts) = known {
            return self.answer_name(&facts, reply);
        }
        let ask = VersionRequest::Name { of: Arc::clone(self), name, reply };
        if let Err(error) = self.asks.try_send(ask) {
            let (mpsc::error::TrySendError::Full(ask) | mpsc::error::TrySendError::Closed(ask)) =
                error;
            if let VersionRequest::Name { reply, .. } = ask {
                reply.error(Errno::EAGAIN);
            }
        }
    }

    /// The attributes of an inode; `None` if its object was replaced or deleted.
    pub(super) fn facts(&self, inode: Inode) -> Option<Facts> {
        // An open file keeps its attributes, even if it has been replaced.
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

    /// The object of a file, and its endpoint.
    ///
    /// # Errors
    /// ESTALE if it was replaced or deleted, EISDIR for a folder.
    pub(super) fn object(&self, inode: Inode) -> Result<(Object, Arc<Endpoint>), Errno> {
        let Some(versions) = self.any() else {
            return self.names.object(inode).ok_or(Errno::EISDIR);
        };
        let name = versions.name_of(inode).ok_or(Errno::ESTALE)?;
        match versions.of_name(name) {
            Current::Version(_, object) => {
                let endpoint = match versions.endpoint(name) {
                    Some(endpoint) => Arc::clone(endpoint),
                    None => self.names.object(name).ok_or(Errno::ESTALE)?.1,
                };
                Ok((object.clone(), endpoint))
            }
            _ => self.names.object(name).ok_or(Errno::EISDIR),
        }
    }

    /// Records that the object of this inode was replaced or deleted.
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

    /// Invalidates the kernel's entry of a name. If too many requests are queued it does not: then
    /// only the next open of the file looks it up.
    fn forget(self: &Arc<Self>, name: Inode) {
        let _ = self.asks.try_send(VersionRequest::Forget { of: Arc::clone(self), name });
    }

    /// The known attributes of a name.
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

    fn answer_name(&self, facts: &Facts, reply: NameReply) {
        reply.name(MOUNT_NAMES_TTL, &self.base.attributes(*facts));
    }

    /// Requests the current object of a name, and answers; a failure is reported first, because a
    /// program may end everything when it gets the answer.
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
                // More than the queue holds are too many to read.
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
            Some(facts) => self.answer_name(&facts, reply),
            None => reply.error(Errno::ENOENT),
        }
        if is_other {
            self.forget(name);
        }
    }

    /// Invalidates the kernel's entry of a name, and the folder's listing.
    fn invalidate(&self, name: Inode) {
        self.invalidate_all([self.names.parent(name)], [name]);
    }

    /// Invalidates what the kernel has of these folders' listings and times, and of these names. It
    /// may wait for lookups in the folders, which must continue meanwhile.
    pub(super) fn invalidate_all(
        &self,
        folders: impl IntoIterator<Item = Inode>,
        names: impl IntoIterator<Item = Inode>,
    ) {
        let Some(notifier) = self.notifier.get() else { return };
        let of_folders = folders.into_iter().map(|folder| (INodeNo(folder), None));
        let of_names = names
            .into_iter()
            .map(|name| (INodeNo(self.names.parent(name)), Some(self.names.name(name))));
        let failed = of_folders.chain(of_names).filter_map(|(folder, name)| {
            let invalidated = match name {
                None => notifier.inval_inode(folder, 0, 0),
                Some(name) => notifier.inval_entry(folder, OsStr::new(&name)),
            };
            invalidated.err()
        });
        // All are tried.
        if let Some(error) = failed.last() {
            tracing::info!("the kernel keeps an entry of a replaced object: {error}");
        }
    }
}

/// The result of the request, or the error of a timeout.
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

/// Serves requests until all senders are gone.
pub(super) async fn answer(
    control: Rc<Control>,
    mut asks: mpsc::Receiver<VersionRequest>,
    deadline: Option<Duration>,
    errors: mpsc::Sender<(usize, Error)>,
) {
    let room = Arc::new(Semaphore::new(MOUNT_LOOKUPS_MAX));
    let listings = Rc::new(Semaphore::new(MOUNT_LISTINGS_MAX));
    // They end with this task.
    let mut under_way = JoinSet::new();
    while let Some(ask) = asks.recv().await {
        while under_way.try_join_next().is_some() {}
        match ask {
            VersionRequest::Forget { of, name } => {
                under_way.spawn_local(blocking(move || of.invalidate(name)));
            }
            VersionRequest::Folder(listing) => {
                let (control, errors) = (Rc::clone(&control), errors.clone());
                let room = Rc::clone(&listings);
                // A folder may have very many pages: names are looked up meanwhile. A program waits
                // for each request, which limits them.
                under_way.spawn_local(async move {
                    listing.run(&control, &room, deadline, &errors).await;
                });
            }
            VersionRequest::Name { of, name, reply } => {
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
