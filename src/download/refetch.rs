//! Decides on objects that failed for now: requests each by HEAD, and downloads it again if that
//! may help.
//!
//! One at a time, because they are few; each at most [`RESTARTS_MAX`] times.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::checksums::verified;
use crate::cli::{OnChange, VerifyMode};
use crate::control::Control;
use crate::control::checksum::PartsAsked;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::files::file_download::{Again, Cut, FileDownload, Outcome};
use crate::limits::RESTARTS_MAX;
use crate::s3::Object;

/// The decision on an object that failed for now.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Download it again.
    Anew(Box<FileDownload>),
    /// It has failed permanently.
    Failed(Outcome),
}

type Asked = Pin<Box<dyn Future<Output = Result<Box<FileDownload>>>>>;

/// Objects without a decision.
pub(crate) struct Undecided {
    control: Rc<Control>,
    on_change: OnChange,
    verify: VerifyMode,
    waiting: VecDeque<Outcome>,
    /// The HEAD request for the first of them.
    asked: Option<Asked>,
}

impl Undecided {
    /// Empty.
    pub(crate) fn new(control: Rc<Control>, on_change: OnChange, verify: VerifyMode) -> Self {
        Self { control, on_change, verify, waiting: VecDeque::new(), asked: None }
    }

    /// Adds an outcome whose download may be downloaded again.
    pub(super) fn push(&mut self, outcome: Outcome) {
        self.waiting.push_back(outcome);
    }

    /// True if there is nothing to decide.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns all undecided outcomes, for a run that ends.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Outcome> {
        self.asked = None;
        std::mem::take(&mut self.waiting).into_iter()
    }

    /// Decides on the first one. Cancel safe: the request continues.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) async fn next(&mut self, cut: Cut) -> Decision {
        let first = self.waiting.front().expect("there is one");
        let asked = self.asked.get_or_insert_with(|| {
            let (control, download) = (Rc::clone(&self.control), first.download.clone());
            let (on_change, verify) = (self.on_change, self.verify);
            Box::pin(async move {
                let (endpoint, object) = (&download.object.endpoint, &download.object.listed);
                let found = control.object_now(endpoint, object).await;
                let anew = decide(&download, found, on_change, cut)?;
                // Its parts may not have the assumed length.
                let parts = match download.again() {
                    Some(Again::Checksum) => PartsAsked::All,
                    _ => PartsAsked::FirstAndLast,
                };
                let settled = verified(&control, anew, verify, parts).await;
                settled.map(Box::new).map_err(|failed| failed.1)
            })
        });
        let decided = asked.await;
        self.asked = None;
        let outcome = self.waiting.pop_front().expect("it was there before");
        match decided {
            Ok(download) => Decision::Anew(download),
            Err(error) => Decision::Failed(Outcome { result: Err(error), ..outcome }),
        }
    }
}

/// The decision by the result of a HEAD: download it again, or it has failed permanently.
fn decide(
    download: &FileDownload,
    found: Result<Option<Object>>,
    on_change: OnChange,
    cut: Cut,
) -> Result<FileDownload> {
    let restarts = download.restarts;
    let error = download.failure().expect("it failed for now");
    let object = match found {
        Ok(Some(object)) => object,
        Ok(None) => {
            let gone = Error::new(ErrorKind::NotFound, "the object was deleted during the run");
            return Err(gone.within(download.object.name()));
        }
        // The failure of the HEAD is less informative than the object's own.
        Err(_) => return Err(error.clone()),
    };
    let wanted = match download.again() {
        Some(Again::Changed) => on_change == OnChange::Restart,
        Some(Again::Checksum) => !download.is_wrong_for_good(),
        Some(Again::Elsewhere) | None => false,
    };
    if wanted && restarts < RESTARTS_MAX {
        return Ok(download.anew(object, cut));
    }
    let (before, now) = (&download.object.listed.etag, &object.etag);
    match download.again() {
        // Without an ETag the object's time has shown it.
        Some(Again::Changed) if before != now || before.is_empty() => {
            let versions = match before.is_empty() || now.is_empty() {
                true => String::new(),
                false => format!(": {before} is now {now}"),
            };
            let message = format!("the object changed during the download{versions}");
            let changed = Error::new(ErrorKind::Objects, message).because(ErrorReason::Changed);
            let changed = changed.within(download.object.name());
            Err(match (on_change, restarts) {
                (OnChange::Fail, _) => {
                    changed.advise("run it again to get the new one, or give --on-change restart")
                }
                (OnChange::Restart, _) => changed.advise(format!(
                    "it was restarted {restarts} times; run again when the object no longer changes"
                )),
            })
        }
        _ => Err(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::ranges::PartSize;
    use crate::s3::Endpoint;

    fn cut() -> Cut {
        let part = PartSize::new(8 << 20).expect("aligned");
        Cut { part, slot_length_bytes: 1 << 20 }
    }

    fn object(etag: &str) -> Object {
        let (key, etag) = ("k".to_owned(), etag.to_owned());
        Object { key, etag, size_bytes: 9, ..Object::default() }
    }

    fn failed(again: Again, restarts: u32) -> FileDownload {
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let mut download = FileDownload::new(object("\"1\""), endpoint, "k".to_owned(), cut());
        download.restarts = restarts;
        download.fail_for_now(again, Error::new(ErrorKind::Objects, "because"));
        download
    }

    fn decided(again: Again, restarts: u32, found: Option<&str>, on_change: OnChange) -> String {
        let found = Ok(found.map(object));
        match decide(&failed(again, restarts), found, on_change, cut()) {
            Ok(download) => {
                assert_eq!(download.restarts, restarts + 1);
                assert!(download.failure().is_none() && download.again().is_none());
                format!("anew {}", download.object.listed.etag)
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_changed_object_fails_with_both_tags_or_begins_anew() {
        let message = decided(Again::Changed, 0, Some("\"2\""), OnChange::Fail);
        assert!(
            message.contains("\"1\" is now \"2\"") && message.contains("--on-change"),
            "{message}"
        );
        assert_eq!(decided(Again::Changed, 0, Some("\"2\""), OnChange::Restart), "anew \"2\"");
        let message = decided(Again::Changed, RESTARTS_MAX, Some("\"2\""), OnChange::Restart);
        assert!(message.contains("restarted 3 times"), "{message}");
        let message = decided(Again::Changed, 0, None, OnChange::Restart);
        assert!(message.contains("was deleted"), "{message}");
        assert_eq!(decided(Again::Changed, 0, Some("\"1\""), OnChange::Fail), "because");
    }

    #[test]
    fn wrong_bytes_are_fetched_anew_a_few_times() {
        for restarts in 0..RESTARTS_MAX {
            let decision = decided(Again::Checksum, restarts, Some("\"1\""), OnChange::Fail);
            assert_eq!(decision, "anew \"1\"");
        }
        let last = decided(Again::Checksum, RESTARTS_MAX, Some("\"1\""), OnChange::Fail);
        assert_eq!(last, "because");
    }

    #[test]
    fn who_cannot_be_asked_fails_as_before() {
        let nobody = Err(Error::new(ErrorKind::Endpoint, "no answer"));
        let decided = decide(&failed(Again::Changed, 0), nobody, OnChange::Restart, cut());
        assert_eq!(decided.expect_err("nothing to fetch").to_string(), "because");
    }
}
