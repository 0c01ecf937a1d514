//! The state of one object's download to its file that all workers share, and how they agree on its
//! end.
//!
//! It does no I/O. Each range is settled exactly once, successfully or not; the caller that settles
//! the last one finishes the object.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::checksum::{Algorithm, Mismatch, Verification, unverified};
use crate::error::{Error, ErrorKind};
use crate::files::mark::Identity;
use crate::files::sink::file::OpenFile;
use crate::limits::{WHOLE_BYTES_MAX, fits_whole};
use crate::link::object::ObjectRef;
use crate::plan::ranges::{ALIGNMENT_BYTES, PartSize, RangeSet, Ranges};
use crate::s3::{ByteRange, Endpoint, ListedChecksum, Object, is_folder_mark};

/// What an object becomes at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A key that ends in `/`: a folder.
    Folder,
    /// An object of no bytes: an empty file, for which no request is made.
    Empty,
    /// A small object: one request, one slot, one write. As a file it is shorter than
    /// [`WHOLE_BYTES_MAX`].
    Whole,
    /// A large object, in ranges.
    Ranges,
}

/// One object of a run that fills destinations.
#[derive(Debug)]
pub struct FileDownload {
    /// The object.
    pub object: ObjectRef,
    /// Its path below the destination, `/`-separated and checked; empty for the null sink.
    pub path: String,
    /// Index of its destination among several; `None` if undecided or if there is only one.
    pub place: Option<u8>,
    /// It replaces a file at that destination, so it cannot move to another one.
    pub stays: bool,
    /// What it becomes.
    pub shape: Shape,
    /// Length of its ranges except the last one.
    pub part: PartSize,
    /// The checksum that its bytes are compared with.
    pub verification: Verification,
    /// Space that is freed when its file is named: that of the replaced file.
    pub replaced_bytes: u64,
    file: OnceLock<Option<OpenFile>>,
    /// What an earlier run had written.
    resumed: Option<Arc<RangeSet>>,
    unsettled: AtomicU64,
    failure: OnceLock<Error>,
    again: OnceLock<Again>,
    /// The checksum mismatch of this download, and of the one before it.
    mismatch: OnceLock<Mismatch>,
    mismatch_before: Option<Mismatch>,
    /// How many times it was fetched again from its first byte.
    pub restarts: u32,
    /// The reason, the last time.
    pub restarted: Option<Again>,
}

/// Why fetching a failed object again from its first byte may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It was replaced during the download.
    Changed,
    /// All bytes arrived, and their checksum is not the stored one.
    Checksum,
    /// Its destination, one of several, cannot be written to.
    Elsewhere,
}

/// How ranges are cut; the same for every object of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Length of a range; a multiple of the slot's length.
    pub part: PartSize,
    /// Length of a data slot in bytes.
    pub slot_length_bytes: u32,
}

impl Shape {
    /// What an object becomes that is fetched with slots of this length.
    #[must_use]
    pub fn of(object: &Object, slot_length_bytes: u32, has_file: bool) -> Self {
        let size = object.size_bytes;
        if is_folder_mark(&object.key, size) {
            Self::Folder
        } else if size == 0 {
            Self::Empty
        } else if fits_whole(size, slot_length_bytes) && (size < WHOLE_BYTES_MAX || !has_file) {
            Self::Whole
        } else {
            Self::Ranges
        }
    }
}

impl FileDownload {
    /// An object to be fetched to `path`.
    #[must_use]
    pub fn new(object: Object, endpoint: Arc<Endpoint>, path: String, cut: Cut) -> Self {
        Self::of(ObjectRef::new(object, endpoint), path, cut)
    }

    fn of(object: ObjectRef, path: String, cut: Cut) -> Self {
        let size = object.listed.size_bytes;
        let shape = Shape::of(&object.listed, cut.slot_length_bytes, !path.is_empty());
        let whole = PartSize::new(size.next_multiple_of(ALIGNMENT_BYTES));
        let part = whole.filter(|_| object.listed.is_whole_only()).unwrap_or(cut.part);
        let ranges = match shape {
            Shape::Ranges => Ranges::count_of(size, part),
            Shape::Folder | Shape::Empty | Shape::Whole => 1,
        };
        Self {
            object,
            path,
            place: None,
            stays: false,
            shape,
            part,
            verification: Verification::none(unverified::NOT_REQUESTED),
            replaced_bytes: 0,
            file: OnceLock::new(),
            resumed: None,
            unsettled: AtomicU64::new(ranges),
            failure: OnceLock::new(),
            again: OnceLock::new(),
            mismatch: OnceLock::new(),
            mismatch_before: None,
            restarts: 0,
            restarted: None,
        }
    }

    /// Sets the checksum that its bytes are compared with.
    #[must_use]
    pub fn verified_by(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// Makes it one range, for bytes that must arrive in order.
    #[must_use]
    pub fn in_one_range(self) -> Self {
        let bytes = self.object.listed.size_bytes.next_multiple_of(ALIGNMENT_BYTES);
        self.cut_into(PartSize::new(bytes).expect("it has bytes"))
    }

    /// Cuts it into ranges of another length.
    #[must_use]
    pub fn cut_into(self, part: PartSize) -> Self {
        let ranges = Ranges::count_of(self.object.listed.size_bytes, part);
        Self { part, unsettled: AtomicU64::new(ranges), ..self }
    }

    /// A new download of the object as it is now.
    #[must_use]
    pub fn anew(&self, object: Object, cut: Cut) -> Self {
        let fresh = Self::of(self.object.anew(object), self.path.clone(), cut);
        let (restarts, restarted) = (self.restarts + 1, self.again());
        let mismatch_before = self.mismatch.get().copied();
        let (place, stays, replaced_bytes) = (self.place, self.stays, self.replaced_bytes);
        Self { place, stays, restarts, restarted, replaced_bytes, mismatch_before, ..fresh }
    }

    /// A new download, for another destination.
    #[must_use]
    pub fn elsewhere(&self, cut: Cut) -> Self {
        let (restarts, anew) = (self.restarts, self.anew(self.object.listed.clone(), cut));
        Self { place: None, restarts, mismatch_before: self.mismatch_before, ..anew }
    }

    /// True if its bytes are wrong in the same way as in the previous download.
    #[must_use]
    pub fn is_wrong_alike(&self) -> bool {
        self.mismatch_before.is_some() && self.mismatch.get() == self.mismatch_before.as_ref()
    }

    /// True if they are and no other server can be asked. With several addresses one may have sent
    /// the wrong bytes both times, as the address of a range is chosen at random.
    #[must_use]
    pub fn is_wrong_for_good(&self) -> bool {
        self.is_wrong_alike() && !self.object.endpoint.has_several_addresses()
    }

    /// Records a failure that fetching the object again may fix. An earlier failure stays.
    pub fn fail_for_now(&self, again: Again, error: Error) {
        if self.failure.set(error).is_ok() {
            let _ = self.again.set(again);
        }
    }

    /// Records that its destination cannot be written to; true if there are several, so that
    /// another one can take it.
    pub fn fail_at_place(&self, error: &Error) -> bool {
        if self.place.is_some() {
            self.fail_for_now(Again::Elsewhere, error.clone());
        }
        self.place.is_some()
    }

    /// Why fetching it again may help, if it failed for now.
    #[must_use]
    pub fn again(&self) -> Option<Again> {
        self.again.get().copied()
    }

    /// Identifies it in this version; `None` if the server sent neither an ETag nor a time. Times
    /// count to the second: HEAD has no fractions, and a listing of the same object must give the
    /// same identity.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        identity_of(&self.object.endpoint.bucket, &self.object.listed)
    }

    /// Resumes the file of an earlier run in which `done` ranges are complete or begun, but not all
    /// complete. If `done` is empty only the file is reused and all bytes are fetched.
    ///
    /// # Panics
    /// If no range is left, or the object is not in ranges.
    #[must_use]
    pub fn resume(mut self, file: OpenFile, done: RangeSet) -> Self {
        let ranges = Ranges::count_of(self.object.listed.size_bytes, self.part);
        assert!(self.shape == Shape::Ranges && done.count() < ranges, "there is something to do");
        self.file = OnceLock::from(Some(file));
        self.unsettled = AtomicU64::new(ranges - done.count());
        self.resumed = (!done.is_empty()).then(|| Arc::new(done));
        self
    }

    /// The ranges of a large object that are to be fetched.
    #[must_use]
    pub fn ranges(&self) -> Ranges {
        Ranges::new(self.object.listed.size_bytes, self.part).without(self.resumed.clone())
    }

    /// What an earlier run had written; these bytes are not fetched.
    #[must_use]
    pub fn resumed(&self) -> Option<&RangeSet> {
        self.resumed.as_deref()
    }

    /// Number of those bytes.
    #[must_use]
    pub fn resumed_bytes(&self) -> u64 {
        let left: u64 = self.ranges().map(|range| range.length).sum();
        self.resumed().map_or(0, |_| self.object.listed.size_bytes - left)
    }

    /// True if it failed and a later run can resume its file: the reason may pass.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.again().is_none()
            && self.failure().is_some_and(may_pass)
            && self.created_file().is_some_and(OpenFile::can_go_on)
    }

    /// True if a later run may resume it within a range. Without a listed ETag only a whole answer
    /// is known to be of one version with the others; and an object whose checksum only comes with
    /// an answer of all its bytes could not be validated any more.
    #[must_use]
    pub fn keeps_prefixes(&self) -> bool {
        let by_sum = matches!(self.object.listed.checksum, ListedChecksum::Named { crc: true, .. });
        let one_range = Ranges::count_of(self.object.listed.size_bytes, self.part) == 1;
        self.shape == Shape::Ranges
            && self.object.etag.is_some()
            && self.again().is_none()
            && self.failure().is_none_or(may_pass)
            && self.verification.known().is_none()
            && (!one_range || by_sum || !self.verification.asks())
    }

    /// The only range of an object that is not cut; of length 0 for folders and empty objects.
    #[must_use]
    pub fn whole_range(&self) -> ByteRange {
        ByteRange { offset: 0, length: self.object.listed.size_bytes }
    }

    /// The file for its ranges, created by the first caller; `None` if that failed, with the
    /// failure recorded.
    pub fn file(&self, create: impl FnOnce() -> Result<OpenFile, Error>) -> Option<&OpenFile> {
        let file = self.file.get_or_init(|| match create() {
            Ok(file) => Some(file),
            Err(error) => {
                self.fail(error);
                None
            }
        });
        file.as_ref()
    }

    /// True if its file was created, or could not be.
    #[must_use]
    pub fn has_file_or_none(&self) -> bool {
        self.file.get().is_some()
    }

    /// The file, if it was created.
    #[must_use]
    pub fn created_file(&self) -> Option<&OpenFile> {
        self.file.get().and_then(Option::as_ref)
    }

    /// Records why the object fails; the first reason stays.
    pub fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Records the result of comparing all its bytes with its checksum. On a mismatch it fails for
    /// now: another download may be right.
    pub fn take_verdict(&self, verdict: Result<Algorithm, Mismatch>) {
        match verdict {
            Ok(algorithm) => self.verification.validated(algorithm),
            Err(mismatch) => {
                let _ = self.mismatch.set(mismatch);
                let alike = self.is_wrong_alike();
                let error = mismatch.error(alike).within(format!("get {}", self.object.name()));
                self.fail_for_now(Again::Checksum, error);
            }
        }
    }

    /// Records why its bytes cannot be verified; it fails if they must be.
    pub fn take_unverified(&self, reason: &'static str) {
        self.verification.not_validated(reason);
        if self.verification.is_strict() {
            self.fail(unverified::error(reason).within(format!("get {}", self.object.name())));
        }
    }

    /// Settles one range; true for the caller that settled the last one and must finish the object.
    #[must_use]
    pub fn settle(&self) -> bool {
        let before = self.unsettled.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a range is settled once");
        before == 1
    }

    /// Ranges that are not settled yet.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        self.unsettled.load(Ordering::Acquire)
    }
}

/// True if a later run may succeed with an object that failed like this.
fn may_pass(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Objects | ErrorKind::NotFound | ErrorKind::Usage)
}

/// How one object ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its download.
    pub download: Arc<FileDownload>,
    /// From its first request until its file was named, in microseconds.
    pub elapsed_us: u64,
    /// Success, or the error.
    pub result: Result<(), Error>,
}

/// See [`FileDownload::identity`].
#[must_use]
pub fn identity_of(bucket: &str, object: &Object) -> Option<Identity> {
    let Object { key, etag, last_modified, version_id, web, .. } = object;
    let version = if etag.is_empty() { to_the_second(last_modified) } else { etag };
    // Without an ETag, a query may be all that distinguishes two objects.
    let target = web.as_ref().filter(|_| etag.is_empty()).map(|web| web.source().target());
    let version_id = target.unwrap_or(version_id);
    (!version.is_empty()).then(|| Identity::of(&[bucket, key, version, version_id]))
}

/// An ISO 8601 time without fractions of a second; other text unchanged.
fn to_the_second(time: &str) -> &str {
    let whole = time.get(..19).filter(|whole| whole.as_bytes()[10] == b'T' && time.ends_with('Z'));
    whole.unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{Form, Stored};
    use crate::sys::Handle;

    fn download(key: &str, size_bytes: u64) -> FileDownload {
        let object = Object { key: key.to_owned(), size_bytes, ..Object::default() };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![]);
        let part = PartSize::new(8 << 20).expect("aligned");
        let cut = Cut { part, slot_length_bytes: 1 << 20 };
        FileDownload::new(object, Arc::new(endpoint), key.to_owned(), cut)
    }

    #[test]
    fn shapes() {
        for (key, size, shape, ranges) in [
            ("a/", 0, Shape::Folder, 1),
            ("a", 0, Shape::Empty, 1),
            ("a", 1, Shape::Whole, 1),
            ("a", WHOLE_BYTES_MAX - 1, Shape::Whole, 1),
            ("a", WHOLE_BYTES_MAX, Shape::Ranges, 1),
            ("a", 8 << 20, Shape::Ranges, 1),
            ("a", (8 << 20) + 1, Shape::Ranges, 2),
        ] {
            let download = download(key, size);
            assert_eq!((download.shape, download.unsettled()), (shape, ranges), "{key} {size}");
        }
    }

    #[test]
    fn the_same_wrong_bytes_are_final_where_nobody_else_can_be_asked() {
        let part = PartSize::new(8 << 20).expect("aligned");
        let cut = Cut { part, slot_length_bytes: 1 << 20 };
        let (algorithm, form) = (Algorithm::Crc32c, Form::FullObject);
        let stored = Stored { algorithm, form, digest: algorithm.digest(b"right") };
        let wrong = |bytes: &[u8]| stored.check(algorithm.digest(bytes)).map(|()| algorithm);
        for (addresses, is_final) in [(1, true), (2, false)] {
            let of = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
            let first = download("a", 9 << 20);
            *first.object.endpoint.addresses.write().expect("no other thread") =
                (0..addresses).map(of).collect();
            first.take_verdict(wrong(b"wrong"));
            assert!(!first.is_wrong_alike() && !first.is_wrong_for_good());
            let second = first.anew(first.object.listed.clone(), cut);
            second.take_verdict(wrong(b"wrong"));
            assert_eq!((second.is_wrong_alike(), second.is_wrong_for_good()), (true, is_final));
            let third = second.anew(first.object.listed.clone(), cut);
            third.take_verdict(wrong(b"wrong in another way"));
            assert!(!third.is_wrong_alike() && !third.is_wrong_for_good());
        }
    }

    #[test]
    fn versions_have_identities_of_their_own() {
        let with = |etag: &str, last_modified: &str, version_id: &str| {
            let mut download = download("a", 1);
            download.object.listed.etag = etag.to_owned();
            download.object.listed.last_modified = last_modified.to_owned();
            download.object.listed.version_id = version_id.to_owned();
            download.identity()
        };
        assert_eq!(with("", "", ""), None, "nothing distinguishes versions");
        assert_eq!(with("\"1\"", "now", ""), with("\"1\"", "then", ""), "the tag decides");
        assert_ne!(with("\"1\"", "", ""), with("\"2\"", "", ""));
        assert_ne!(with("\"1\"", "", ""), with("\"1\"", "", "v"));
        assert_ne!(with("", "now", ""), with("", "then", ""));
        // A listing with milliseconds, one without, and a HEAD.
        let head = with("", "2024-01-01T00:00:01.000Z", "");
        for listed in ["2024-01-01T00:00:01.234Z", "2024-01-01T00:00:01Z"] {
            assert_eq!(with("", listed, ""), head, "{listed}");
        }
        for other in ["2024-01-01T00:00:02.000Z", "2024-01-01T00:00:01+02:00"] {
            assert_ne!(with("", other, ""), head, "{other}");
        }
    }

    #[test]
    fn a_file_without_a_complete_range_is_taken_over_and_nothing_else() {
        let file = || OpenFile {
            handle: Handle::Simulated(1),
            direct: false,
            folder: Handle::Simulated(2),
            temporary: String::new(),
            name: "a".to_owned(),
            place: "a".to_owned(),
            journal: None,
        };
        let resumed = download("a", 20 << 20).resume(file(), RangeSet::none(3));
        assert!(resumed.resumed().is_none() && resumed.created_file().is_some());
        assert_eq!((resumed.unsettled(), resumed.resumed_bytes()), (3, 0));
        let mut done = RangeSet::none(3);
        done.insert(1);
        let resumed = download("a", 20 << 20).resume(file(), done);
        assert_eq!((resumed.unsettled(), resumed.resumed_bytes()), (2, 8 << 20));
        let mut done = RangeSet::none(3);
        done.reach(1, 4096);
        let resumed = download("a", 20 << 20).resume(file(), done);
        assert!(resumed.resumed().is_some(), "the beginning of a range counts, too");
        assert_eq!((resumed.unsettled(), resumed.resumed_bytes()), (3, 4096));
    }

    #[test]
    fn the_last_settler_is_known_and_the_first_failure_stays() {
        let download = download("a", 20 << 20);
        download.fail(Error::new(ErrorKind::Endpoint, "first"));
        download.fail(Error::new(ErrorKind::Endpoint, "second"));
        assert_eq!([download.settle(), download.settle(), download.settle()], [false, false, true]);
        assert_eq!(download.failure().map(Error::message), Some("first"));
    }
}
