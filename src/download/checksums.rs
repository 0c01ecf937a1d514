//! The step between the listing and the workers: decides with which checksum each object is
//! compared, and requests it from the server if answers to ranges will not have it. Bytes that an
//! earlier run has written are read back, so that the checksum covers all bytes.

use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::checksum::unverified::{self, HASH};
use crate::checksum::{InOrder, Sum, Verification};
use crate::cli::VerifyMode;
use crate::control::Control;
use crate::control::checksum::{PartsAsked, StoredChecksums};
use crate::control::limits::CHECKSUMS_ASKED_MAX;
use crate::error::{Error, Result};
use crate::files::file_download::{FileDownload, Shape};
use crate::files::system_host;
use crate::limits::RESUMED_READERS_MAX;
use crate::s3::ListedChecksum;

const RESUMED: &str = "an earlier run downloaded part of it, and a hash needs all bytes in order: \
                       --no-resume downloads them again";

/// A download that may begin, or one that may not and the reason.
pub(super) type Settled = Result<FileDownload, Box<(FileDownload, Error)>>;

/// Objects whose checksum is being requested.
#[derive(Debug)]
pub(crate) struct Checksums {
    control: Rc<Control>,
    verify: VerifyMode,
    waiting: VecDeque<FileDownload>,
    asking: JoinSet<Settled>,
    /// Limits the number of files of earlier runs that are read at once.
    readers: Rc<Semaphore>,
}

impl Checksums {
    pub(crate) fn new(control: Rc<Control>, verify: VerifyMode) -> Self {
        let readers = Rc::new(Semaphore::new(RESUMED_READERS_MAX));
        Self { control, verify, waiting: VecDeque::new(), asking: JoinSet::new(), readers }
    }

    /// Adds a download; returns it at once if nothing must be requested.
    pub(super) fn admit(&mut self, download: FileDownload) -> Option<Settled> {
        match at_once(&self.control, download, self.verify) {
            Ok(settled) => Some(settled),
            Err(download) => {
                self.waiting.push_back(*download);
                self.ask();
                None
            }
        }
    }

    /// True if no request is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asking.is_empty()
    }

    /// True if the listing may continue.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Cancels all requests.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.asking = JoinSet::new();
    }

    /// The next download whose checksum is known; pending forever if there is none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Settled {
        match self.asking.join_next().await {
            Some(settled) => {
                self.ask();
                settled.expect("a question is not given up while it is waited for")
            }
            None => std::future::pending().await,
        }
    }

    /// Starts requests, up to the limit.
    fn ask(&mut self) {
        while self.asking.len() < CHECKSUMS_ASKED_MAX
            && let Some(download) = self.waiting.pop_front()
        {
            let (control, verify) = (Rc::clone(&self.control), self.verify);
            let readers = Rc::clone(&self.readers);
            self.asking.spawn_local(async move {
                let download = asked(&control, download, verify, PartsAsked::FirstAndLast).await?;
                with_earlier(download, &readers).await
            });
        }
    }
}

/// The download with the checksum to compare, which is requested if necessary.
pub(super) async fn verified(
    control: &Control,
    download: FileDownload,
    verify: VerifyMode,
    parts: PartsAsked,
) -> Settled {
    match at_once(control, download, verify) {
        Ok(settled) => settled,
        Err(download) => asked(control, *download, verify, parts).await,
    }
}

async fn asked(
    control: &Control,
    download: FileDownload,
    verify: VerifyMode,
    parts: PartsAsked,
) -> Settled {
    let answer =
        control.checksum(&download.object.endpoint.bucket, &download.object.listed, parts).await;
    settle(download, answer, verify)
}

/// The download with the bytes of an earlier run added to its checksum.
async fn with_earlier(download: FileDownload, readers: &Semaphore) -> Settled {
    if download.resumed().is_none() || download.verification.sum().is_none() {
        return Ok(download);
    }
    let _turn = readers.acquire().await.expect("it is never closed");
    let reading = tokio::task::spawn_blocking(move || {
        let sum = download.verification.sum().expect("it was there before");
        let read = system_host::read_resumed(&download, |at, bytes| sum.add(at, bytes));
        (download, read)
    });
    let (download, read) = reading.await.expect("reading does not panic");
    match read {
        Ok(()) => Ok(download),
        Err(error) => {
            let error = Error::from(error).within(format!("get {}", download.object.name()));
            let error = error.advise("use --no-resume to download it from its first byte");
            Err(Box::new((download, error)))
        }
    }
}

/// The download with the checksum to compare; unchanged if it must be requested.
fn at_once(
    control: &Control,
    download: FileDownload,
    verify: VerifyMode,
) -> Result<Settled, Box<FileDownload>> {
    let strict = verify == VerifyMode::Strict;
    let is_needed = strict || !control.checksums_only_when_required();
    Ok(match plan(&download, verify) {
        VerifyStep::Nothing(reason) if strict && download.object.listed.size_bytes > 0 => {
            refused(download, reason)
        }
        VerifyStep::Nothing(reason) => Ok(download.verified_by(Verification::none(reason))),
        _ if !is_needed => Ok(download.verified_by(Verification::none(unverified::NOT_REQUESTED))),
        VerifyStep::Answer => Ok(download.verified_by(Verification::by_answer(strict))),
        VerifyStep::Ask => return Err(Box::new(download)),
    })
}

/// The next step for one object.
#[derive(Debug, PartialEq, Eq)]
enum VerifyStep {
    Nothing(&'static str),
    Answer,
    Ask,
}

fn plan(download: &FileDownload, verify: VerifyMode) -> VerifyStep {
    // The last range of a resumed object does not cover all of it.
    let one_range = download.resumed().is_none() && download.unsettled() == 1;
    let single = download.shape == Shape::Whole || one_range;
    match (download.shape, verify, download.object.listed.checksum) {
        (Shape::Folder | Shape::Empty, ..) => VerifyStep::Nothing(unverified::NO_BYTES),
        (_, VerifyMode::Off, _) => VerifyStep::Nothing(unverified::OFF),
        _ if download.object.listed.web.is_some() => VerifyStep::Nothing(unverified::OF_URL),
        (Shape::Ranges, _, ListedChecksum::Named { composite: true, crc: true }) => VerifyStep::Ask,
        // The answer has no part lengths.
        (Shape::Ranges, VerifyMode::Strict, ListedChecksum::Named { composite: true, .. })
        | (Shape::Ranges, VerifyMode::Strict, ListedChecksum::NotListed) => VerifyStep::Ask,
        _ if single => VerifyStep::Answer,
        (_, VerifyMode::Strict, _) => VerifyStep::Ask,
        (_, _, ListedChecksum::Unnamed) => VerifyStep::Nothing(unverified::NOT_LISTED),
        (_, _, ListedChecksum::Named { crc: false, .. }) => VerifyStep::Nothing(HASH),
        (_, _, ListedChecksum::Named { .. } | ListedChecksum::NotListed) => VerifyStep::Ask,
    }
}

/// Derives the checksum to compare from the server's answer.
fn settle(download: FileDownload, answer: Result<StoredChecksums>, verify: VerifyMode) -> Settled {
    let size = download.object.listed.size_bytes;
    let strict = verify == VerifyMode::Strict;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if strict => return Err(Box::new((download, error))),
        Err(_) => {
            let reason = unverified::NOT_ANSWERED;
            return Ok(download.verified_by(Verification::none(reason)));
        }
    };
    let stored = match (answer.stored, answer.etag) {
        (Err(_), Some(etag)) if strict => Ok(etag),
        (stored, _) => stored,
    };
    let reason = match stored {
        Ok(stored) => {
            if let Some(sum) = Sum::new(stored, size, answer.part_bytes) {
                return Ok(download.verified_by(Verification::by_sum(sum)));
            }
            match InOrder::new(stored, answer.part_bytes) {
                Some(_) if strict && download.resumed().is_some() => RESUMED,
                // Slower, and the only way.
                Some(goal) if strict => {
                    let verification = Verification::in_order(goal);
                    return Ok(download.in_one_range().verified_by(verification));
                }
                Some(_) => HASH,
                None => unverified::PARTS_DIFFER,
            }
        }
        Err(reason) => reason,
    };
    match strict {
        true => refused(download, reason),
        false => Ok(download.verified_by(Verification::none(reason))),
    }
}

fn refused(download: FileDownload, reason: &'static str) -> Settled {
    let error = unverified::error(reason).within(format!("get {}", download.object.name()));
    Err(Box::new((download, error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::checksum::{Algorithm, Form, Stored, etag_md5};
    use crate::error::ErrorKind;
    use crate::files::file_download::Cut;
    use crate::files::sink::file::OpenFile;
    use crate::plan::ranges::PartSize;
    use crate::plan::ranges::RangeSet;
    use crate::s3::{Endpoint, Object};
    use crate::sys::Handle;

    const NAMED_CRC: ListedChecksum = ListedChecksum::Named { composite: false, crc: true };
    const NAMED_HASH: ListedChecksum = ListedChecksum::Named { composite: false, crc: false };
    const PARTS_CRC: ListedChecksum = ListedChecksum::Named { composite: true, crc: true };
    const PARTS_HASH: ListedChecksum = ListedChecksum::Named { composite: true, crc: false };

    fn download(size_bytes: u64, checksum: ListedChecksum) -> FileDownload {
        let object = Object { key: "k".to_owned(), size_bytes, checksum, ..Object::default() };
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let part = PartSize::new(8 << 20).expect("aligned");
        FileDownload::new(
            object,
            endpoint,
            "k".to_owned(),
            Cut { part, slot_length_bytes: 1 << 20 },
        )
    }

    #[test]
    fn who_is_asked() {
        let nothing = |word: &'static str| Err(word);
        let check = |size, listed, verify, expected: Result<VerifyStep, &str>| match (
            plan(&download(size, listed), verify),
            expected,
        ) {
            (VerifyStep::Nothing(reason), Err(word)) => assert!(reason.contains(word), "{reason}"),
            (found, expected) => assert_eq!(Ok(found), expected, "{size} {listed:?} {verify:?}"),
        };
        let (small, medium, large) = (5, 3 << 20, 20 << 20);
        for size in [small, medium, large] {
            check(size, NAMED_CRC, VerifyMode::Off, nothing("off"));
        }
        for verify in [VerifyMode::Auto, VerifyMode::Strict] {
            check(0, NAMED_CRC, verify, nothing("is empty"));
            check(small, PARTS_CRC, verify, Ok(VerifyStep::Answer));
            check(medium, NAMED_HASH, verify, Ok(VerifyStep::Answer));
            check(medium, PARTS_CRC, verify, Ok(VerifyStep::Ask));
            check(large, NAMED_CRC, verify, Ok(VerifyStep::Ask));
            check(large, ListedChecksum::NotListed, verify, Ok(VerifyStep::Ask));
        }
        check(medium, PARTS_HASH, VerifyMode::Auto, Ok(VerifyStep::Answer));
        check(medium, PARTS_HASH, VerifyMode::Strict, Ok(VerifyStep::Ask));
        check(large, NAMED_HASH, VerifyMode::Auto, nothing("hash"));
        check(large, NAMED_HASH, VerifyMode::Strict, Ok(VerifyStep::Ask));
        check(large, ListedChecksum::Unnamed, VerifyMode::Auto, nothing("names no checksum"));
        check(large, ListedChecksum::Unnamed, VerifyMode::Strict, Ok(VerifyStep::Ask));
    }

    /// All ranges but the last exist.
    fn resumed(checksum: ListedChecksum) -> FileDownload {
        let file = OpenFile {
            handle: Handle::Simulated(1),
            direct: false,
            folder: Handle::Simulated(2),
            temporary: "t".to_owned(),
            name: "k".to_owned(),
            place: "k".to_owned(),
            journal: None,
        };
        let mut done = RangeSet::none(3);
        done.insert(0);
        done.insert(1);
        download(20 << 20, checksum).resume(file, done)
    }

    #[test]
    fn of_what_goes_on_the_whole_is_asked_for() {
        assert_eq!(resumed(NAMED_CRC).unsettled(), 1);
        for verify in [VerifyMode::Auto, VerifyMode::Strict] {
            assert_eq!(plan(&resumed(NAMED_CRC), verify), VerifyStep::Ask);
            assert_eq!(plan(&resumed(ListedChecksum::NotListed), verify), VerifyStep::Ask);
        }
        assert_eq!(plan(&resumed(NAMED_HASH), VerifyMode::Auto), VerifyStep::Nothing(HASH));
        let settled = |algorithm, verify| {
            let answer =
                StoredChecksums { stored: Ok(stored(algorithm, 0)), part_bytes: 0, etag: None };
            settle(resumed(NAMED_CRC), Ok(answer), verify)
        };
        for verify in [VerifyMode::Auto, VerifyMode::Strict] {
            let download = settled(Algorithm::Crc32, verify).expect("it begins");
            assert!(download.verification.sum().is_some());
        }
        let download = settled(Algorithm::Sha256, VerifyMode::Auto).expect("it begins");
        assert_eq!(download.verification.verdict(), Err(HASH));
        let failed = settled(Algorithm::Sha256, VerifyMode::Strict).expect_err("it is refused");
        assert!(failed.1.to_string().contains(RESUMED), "{}", failed.1);
    }

    fn stored(algorithm: Algorithm, parts: u32) -> Stored {
        let form = if parts == 0 { Form::FullObject } else { Form::Composite { parts } };
        Stored { algorithm, form, digest: algorithm.digest(b"") }
    }

    #[test]
    fn what_follows_from_the_answer() {
        let check = |answer: Result<StoredChecksums>, verify, expected: &str| {
            let found = match settle(download(20 << 20, NAMED_CRC), answer, verify) {
                Err(failed) => format!("failed: {}", failed.1),
                Ok(download) => match (&download.verification, download.unsettled()) {
                    (how, 3) if how.sum().is_some() => "summed".to_owned(),
                    (how, 1) if how.known().is_some() => "in order".to_owned(),
                    (how, 3) => how.verdict().expect_err("nothing came").to_owned(),
                    (how, ranges) => panic!("{how:?} in {ranges} ranges"),
                },
            };
            assert!(found.contains(expected), "{found}, not {expected}");
        };
        let answer = |stored, part_bytes, etag| Ok(StoredChecksums { stored, part_bytes, etag });
        for verify in [VerifyMode::Auto, VerifyMode::Strict] {
            check(answer(Ok(stored(Algorithm::Crc32c, 0)), 0, None), verify, "summed");
            check(answer(Ok(stored(Algorithm::Crc32c, 4)), 5 << 20, None), verify, "summed");
            check(answer(Ok(stored(Algorithm::Crc32c, 4)), 0, None), verify, "differ in size");
            check(answer(Err("there is none"), 0, None), verify, "there is none");
        }
        for parts in [0, 4] {
            let sha = || answer(Ok(stored(Algorithm::Sha256, parts)), 5 << 20, None);
            check(sha(), VerifyMode::Auto, HASH);
            check(sha(), VerifyMode::Strict, "in order");
        }
        let etag = etag_md5("\"25f9e794323b453885f5181f1b624d0b\"");
        check(answer(Err("there is none"), 0, etag), VerifyMode::Auto, "there is none");
        check(answer(Err("there is none"), 0, etag), VerifyMode::Strict, "in order");
        let refused = || Err(Error::new(ErrorKind::Access, "refused"));
        check(refused(), VerifyMode::Auto, "the request for its checksum failed");
        check(refused(), VerifyMode::Strict, "failed: refused");
    }
}
