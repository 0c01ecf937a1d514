//! Folders that are listed when a program first uses them. Requests that need one meanwhile wait
//! for that listing; if it fails all of them fail, and the next one lists it again.

use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileHandle};
use tokio::sync::{Semaphore, mpsc};

use super::names::{LazyNames, Names, Waiting};
use super::version_check::{VersionCheck, VersionRequest, in_time};
use super::view::FOLDER_FLAGS;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::level::LevelPages;
use crate::error::{Error, Result};
use crate::mount::lazy::{Content, Turn};
use crate::mount::tree::{Hidden, Inode, Tree};
use crate::s3::grants::GrantTarget;
use crate::s3::uri::shown;

/// The listing of a folder. Dropping it unfinished fails its waiting requests.
#[derive(Debug)]
pub(super) struct DirListing {
    of: Arc<VersionCheck>,
    folder: Inode,
    errno: Errno,
}

impl VersionCheck {
    /// Answers a request once this folder is listed.
    pub(super) fn when_listed(self: &Arc<Self>, folder: Inode, waiting: Waiting) {
        match self.names().wait(folder, waiting) {
            Turn::Listed(waiting) => self.answer_listed(folder, waiting),
            Turn::Later => {}
            Turn::First => {
                let of = Arc::clone(self);
                let listing = DirListing { of, folder, errno: Errno::EIO };
                // If too many requests are queued it fails, like lookups.
                if let Err(error) = self.asks().try_send(VersionRequest::Folder(listing))
                    && let VersionRequest::Folder(mut listing) = error.into_inner()
                {
                    listing.errno = Errno::EAGAIN;
                }
            }
        }
    }

    /// Answers a request that needs a listed folder.
    fn answer_listed(self: &Arc<Self>, folder: Inode, waiting: Waiting) {
        match waiting {
            Waiting::Folder(reply) => reply.opened(FileHandle(0), FOLDER_FLAGS),
            Waiting::Name { name, reply } => match self.names().lookup(folder, &name) {
                Ok(Some(name)) => self.look_up(name, reply),
                Ok(None) => reply.error(Errno::ENOENT),
                Err(_) => reply.error(Errno::EIO),
            },
        }
    }
}

impl DirListing {
    /// Lists the folder when there is a permit, and answers its waiting requests; a failure is
    /// reported first, because a program may end everything when it gets the answer.
    pub(super) async fn run(
        self,
        control: &Control,
        room: &Semaphore,
        deadline: Option<Duration>,
        errors: &mpsc::Sender<(usize, Error)>,
    ) {
        let of = Arc::clone(&self.of);
        let Names::Lazy(names) = of.names() else { return };
        let key = names.lock().folder_key(self.folder).map(str::to_owned);
        let Some(key) = key else { return };
        // The server's error is reported with the request.
        let listed = in_time(deadline, async {
            let _permit = room.acquire().await;
            Ok(content(control, names, &key).await)
        });
        let listed = listed.await.map_err(|late| late.within(what(names, &key)));
        match listed.and_then(|listed| listed) {
            Ok(content) => {
                let waiting = names.lock().listed(self.folder, content);
                for waiting in waiting {
                    of.answer_listed(self.folder, waiting);
                }
            }
            Err(error) => {
                // More than the queue holds are too many to read.
                let _ = errors.try_send((of.number(), error));
            }
        }
    }
}

impl Drop for DirListing {
    fn drop(&mut self) {
        let Names::Lazy(names) = self.of.names() else { return };
        let waiting = names.lock().failed(self.folder);
        waiting.into_iter().for_each(|waiting| waiting.error(self.errno));
    }
}

fn what(names: &LazyNames, key: &str) -> String {
    format!("list s3://{}/{}", names.bucket, shown(key))
}

/// Lists the folder of this prefix.
async fn content(control: &Control, names: &LazyNames, key: &str) -> Result<(Tree, Hidden)> {
    let endpoint = control.endpoint(&names.bucket, GrantTarget::Prefix(key)).await?;
    let mut content = Content::new(key.to_owned(), endpoint);
    let mut pages = LevelPages::new(control, &names.bucket, key);
    while let Some(page) = pages.next().await? {
        content.add(page).map_err(|error| error.within(what(names, key)))?;
    }
    let seconds = names.lock().seconds();
    Ok(blocking(move || content.finish(seconds)).await)
}
