//! Folders that are listed when a program first uses them. Whoever needs one meanwhile waits for
//! the same listing; where it fails all of them are told, and the next one has it listed again.

use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileHandle};
use tokio::sync::{Semaphore, mpsc};

use super::names::{LazyNames, Names, Waiting};
use super::replaced::{Ask, Replaced, in_time};
use super::view::FOLDER_FLAGS;
use crate::command::aside::aside;
use crate::control::Control;
use crate::control::level::LevelPages;
use crate::error::{Error, Result};
use crate::mount::lazy::{Content, Turn};
use crate::mount::tree::{Hidden, Inode, Tree};
use crate::s3::uri::shown;

/// The listing of a folder. One that is dropped has failed: who waits for it is told.
#[derive(Debug)]
pub(super) struct Listing {
    of: Arc<Replaced>,
    folder: Inode,
    errno: Errno,
}

impl Replaced {
    /// Answers a request once this folder is listed.
    pub(super) fn when_listed(self: &Arc<Self>, folder: Inode, waiting: Waiting) {
        match self.names().wait(folder, waiting) {
            Turn::Listed(waiting) => self.answer_listed(folder, waiting),
            Turn::Later => {}
            Turn::First => {
                let of = Arc::clone(self);
                let listing = Listing { of, folder, errno: Errno::EIO };
                // Where too much is asked it fails, as names do that are looked up.
                if let Err(error) = self.asks().try_send(Ask::Folder(listing))
                    && let Ask::Folder(mut listing) = error.into_inner()
                {
                    listing.errno = Errno::EAGAIN;
                }
            }
        }
    }

    /// Answers a request that needs a folder which is listed.
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

impl Listing {
    /// Lists the folder, once there is room, and answers who waits for it; what failed is told
    /// first, for who gets the answer may end all of this.
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
        // What the server says is told with what was asked of it.
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
                // Beyond those that can be told at once they are too many to be read.
                let _ = errors.try_send((of.number(), error));
            }
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let Names::Lazy(names) = self.of.names() else { return };
        let waiting = names.lock().failed(self.folder);
        waiting.into_iter().for_each(|waiting| waiting.error(self.errno));
    }
}

fn what(names: &LazyNames, key: &str) -> String {
    format!("list s3://{}/{}", names.bucket, shown(key))
}

/// Lists the folder whose keys begin so.
async fn content(control: &Control, names: &LazyNames, key: &str) -> Result<(Tree, Hidden)> {
    let endpoint = control.endpoint(&names.bucket).await?;
    let mut content = Content::new(key.to_owned(), endpoint);
    let mut pages = LevelPages::new(control, &names.bucket, key);
    while let Some(page) = pages.next().await? {
        content.add(page).map_err(|error| error.within(what(names, key)))?;
    }
    let seconds = names.lock().seconds();
    Ok(aside(move || content.finish(seconds)).await)
}
