//! Lines about single objects: downloaded (`--report`), listed (`ls`) or planned (`--dry-run`).

use serde::Serialize;

use super::{json, seconds};
use crate::checksum::Algorithm;
use crate::checksum::unverified::{NO_BYTES, NOT_REQUESTED, OFF};
use crate::error::Error;
use crate::files::file_download::{FileDownload, Outcome, Shape};
use crate::limits::SLOT_BYTES_MAX;
use crate::link::object::ObjectRef;
use crate::s3::{Object, address};
use crate::text::shown::shown;
use crate::text::size::{Binary, Decimal};

/// The result of one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectLine<'a> {
    /// The kind of line: `object`.
    pub kind: &'static str,
    /// The training job's channel that has the object; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<&'a str>,
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key, as S3 stores it.
    pub key: &'a str,
    /// Its destination, as typed; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<&'a str>,
    /// Its path relative to the destination, `/`-separated; null if nothing is written.
    pub path: Option<&'a str>,
    /// Its size, as listed.
    pub bytes: u64,
    /// From its first request until its file has its final name.
    pub seconds: f64,
    /// Failed attempts that were retried, over all its ranges.
    pub retries: u32,
    /// How it ended.
    pub status: Status,
    /// Why it failed; null if it did not.
    pub error: Option<String>,
    /// Whether its bytes were compared with a checksum.
    pub verified: Verified,
}

/// How an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is complete.
    Ok,
    /// It is not at the destination.
    Failed,
    /// Its existing file, of an earlier run or another program, was kept.
    Kept,
}

/// Why an existing file was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptReason {
    /// An earlier run completed it, and it has not changed since.
    Same,
    /// An earlier run had downloaded all of it; this run gave it its final name.
    Finished,
    /// A file exists, and no file is to be replaced.
    Present,
    /// A file of another program has the object's size and time.
    SizeAndTime,
    /// The object represents a folder, which exists.
    Folder,
    /// A file of another program has the object's size, and only sizes are compared.
    Size,
}

impl KeptReason {
    /// The reason in words.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        self.unverified()
    }

    const fn unverified(self) -> &'static str {
        match self {
            Self::Same => {
                "it was kept: size, time and ETag have not changed since it was downloaded"
            }
            Self::Finished => "an earlier run had downloaded all of it",
            Self::Present => "a file was there, and --overwrite never leaves it",
            Self::SizeAndTime => "a file was there: size and time are those of the object",
            Self::Folder => "the folder was there",
            Self::Size => "a file was there: its size is that of the object, as --size-only wants",
        }
    }
}

/// Whether bytes were compared with a checksum, and if not, why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// `validated`, `not validated`, or `empty`: there is nothing to verify.
    pub verdict: &'static str,
    /// The checksum's algorithm; null if the object was not validated.
    pub algorithm: Option<&'static str>,
    /// Why it was not validated, and what was checked instead; null if it was.
    pub reason: Option<String>,
}

impl<'a> ObjectLine<'a> {
    /// Makes the line of an outcome.
    #[must_use]
    pub fn new(outcome: &'a Outcome) -> Self {
        let FileDownload { object, shape, verification, path, .. } = &*outcome.download;
        let error = outcome.result.as_ref().err();
        let verified = Verified::of(object, *shape, verification.verdict(), error.is_some());
        let path = Some(path.as_str()).filter(|path| !path.is_empty());
        Self { path, ..Self::ended(object, outcome.elapsed_us, error, verified) }
    }

    /// Makes the line of an object of a stream.
    #[must_use]
    pub fn streamed(object: &'a ObjectRef, elapsed_us: u64, error: Option<&Error>) -> Self {
        let shape = Shape::of(&object.listed, SLOT_BYTES_MAX, false);
        let verdict = match object.checksum() {
            Ok(checksum) => Ok(checksum.algorithm()),
            Err(OFF) => Err(NOT_REQUESTED),
            Err(reason) => Err(reason),
        };
        let verified = Verified::of(object, shape, verdict, error.is_some());
        Self::ended(object, elapsed_us, error, verified)
    }

    fn ended(
        object: &'a ObjectRef,
        elapsed_us: u64,
        error: Option<&Error>,
        verified: Verified,
    ) -> Self {
        Self {
            kind: "object",
            channel: None,
            destination: None,
            bucket: &object.endpoint.bucket,
            key: &object.listed.key,
            path: None,
            bytes: object.listed.size_bytes,
            seconds: seconds(elapsed_us),
            retries: object.retries(),
            status: if error.is_some() { Status::Failed } else { Status::Ok },
            error: error.map(ToString::to_string),
            verified,
        }
    }

    /// Makes the line of an object whose file was kept.
    #[must_use]
    pub fn kept(download: &'a FileDownload, kept: KeptReason) -> Self {
        Self {
            kind: "object",
            channel: None,
            destination: None,
            bucket: &download.object.endpoint.bucket,
            key: &download.object.listed.key,
            path: Some(download.path.as_str()),
            bytes: download.object.listed.size_bytes,
            seconds: 0.0,
            retries: 0,
            status: Status::Kept,
            error: None,
            verified: Verified::not(match (kept, download.verification.earlier()) {
                (KeptReason::Same, Some(earlier)) => kept_after(earlier),
                _ => kept.unverified().to_owned(),
            }),
        }
    }

    /// Sets the channel.
    #[must_use]
    pub fn of_channel(self, channel: Option<&'a str>) -> Self {
        Self { channel, ..self }
    }

    /// Sets the destination.
    #[must_use]
    pub fn at(self, destination: Option<&'a str>) -> Self {
        Self { destination, ..self }
    }

    /// The line of the report.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

impl Verified {
    fn of(
        object: &ObjectRef,
        shape: Shape,
        verdict: Result<Algorithm, &'static str>,
        failed: bool,
    ) -> Self {
        let verdict = match verdict {
            _ if failed => Err("the object failed".to_owned()),
            Ok(algorithm) => Ok(algorithm.name()),
            Err(_) if object.listed.size_bytes == 0 => return Self::empty(),
            Err(reason) => Err(unverified(object, shape, reason)),
        };
        match verdict {
            Ok(algorithm) => Self::by(algorithm),
            Err(reason) => Self::not(reason),
        }
    }

    pub(super) fn by(algorithm: &'static str) -> Self {
        Self { verdict: "validated", algorithm: Some(algorithm), reason: None }
    }

    /// The verdict for an object without bytes.
    pub(super) fn empty() -> Self {
        Self { verdict: "empty", algorithm: None, reason: Some(NO_BYTES.to_owned()) }
    }

    fn not(reason: String) -> Self {
        Self { verdict: "not validated", algorithm: None, reason: Some(reason) }
    }
}

/// How a kept object was verified when it was downloaded.
fn kept_after(earlier: Result<Algorithm, &'static str>) -> String {
    let kept = KeptReason::Same.unverified();
    match earlier {
        Ok(algorithm) => format!("{kept}, and it was verified by {} then", algorithm.name()),
        Err(reason) => format!("{reason}; {kept}, and it was not verified then"),
    }
}

/// Why an object was not validated, and what was checked nevertheless.
fn unverified(object: &ObjectRef, shape: Shape, reason: &str) -> String {
    let checked = match (shape, object.etag.is_some()) {
        (Shape::Folder | Shape::Empty, _) => return reason.to_owned(),
        (Shape::Whole, true) => "length and ETag were checked",
        (Shape::Whole, false) => "the length was checked, and the server sent no ETag",
        (Shape::Ranges, true) => "length, ETag and range of each answer were checked",
        (Shape::Ranges, false) => {
            "length and range of each answer were checked, and the server sent no ETag"
        }
    };
    format!("{reason}; {checked}")
}

/// A listed object, for `ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedLine<'a> {
    /// The kind of line: `object`.
    pub kind: &'static str,
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key, as S3 stores it.
    pub key: &'a str,
    /// Its size.
    pub bytes: u64,
    /// Its ETag, with quotes; empty if the server sent none.
    pub etag: &'a str,
    /// When it was last modified, in ISO 8601; empty if the server sent no time.
    pub last_modified: &'a str,
}

impl<'a> ListedLine<'a> {
    /// Makes the line of a listed object.
    #[must_use]
    pub fn new(bucket: &'a str, object: &'a Object) -> Self {
        Self {
            kind: "object",
            bucket,
            key: &object.key,
            bytes: object.size_bytes,
            etag: &object.etag,
            last_modified: &object.last_modified,
        }
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The line for people: time, size, address.
    #[must_use]
    pub fn to_text(&self, sizes: Sizes) -> String {
        let time = if self.last_modified.is_empty() { "-" } else { self.last_modified };
        let (bucket, key) = (self.bucket, shown(self.key));
        format!("{:24} {:>15} s3://{bucket}/{key}", shown(time), sizes.text(self.bytes))
    }
}

/// How `ls` writes sizes for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// The number of bytes.
    Bytes,
    /// In powers of 1024, with their unit.
    Human,
}

impl Sizes {
    fn text(self, bytes: u64) -> String {
        match self {
            Self::Bytes => bytes.to_string(),
            Self::Human => Binary(bytes).to_string(),
        }
    }
}

/// A folder on the level that `ls` lists: a common prefix of keys up to a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedFolder<'a> {
    /// The kind of line: `folder`.
    pub kind: &'static str,
    /// Its bucket.
    pub bucket: &'a str,
    /// The common prefix; it ends in a slash.
    pub key: &'a str,
}

impl<'a> ListedFolder<'a> {
    /// Makes the line of a folder.
    #[must_use]
    pub const fn new(bucket: &'a str, key: &'a str) -> Self {
        Self { kind: "folder", bucket, key }
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The line for people, with `PRE` instead of a size.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{:24} {:>15} s3://{}/{}", "", "PRE", self.bucket, shown(self.key))
    }
}

/// The totals of a listing, for `--summarize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListedTotal {
    /// The kind of line: `summary`.
    pub kind: &'static str,
    /// Number of objects.
    pub objects: u64,
    /// Their total bytes.
    pub bytes: u64,
}

impl Default for ListedTotal {
    fn default() -> Self {
        Self { kind: "summary", objects: 0, bytes: 0 }
    }
}

impl ListedTotal {
    /// Counts an object.
    pub fn add(&mut self, object: &Object) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(object.size_bytes);
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The lines for people, as `aws s3 ls --summarize` prints them.
    #[must_use]
    pub fn to_text(&self, sizes: Sizes) -> String {
        format!("\nTotal Objects: {}\n   Total Size: {}", self.objects, sizes.text(self.bytes))
    }
}

/// An object that would be downloaded, for `--dry-run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedLine<'a> {
    /// The kind of line: `object`.
    pub kind: &'static str,
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key, as S3 stores it.
    pub key: &'a str,
    /// Its path relative to the destination; null if nothing is written.
    pub path: Option<&'a str>,
    /// Its size.
    pub bytes: u64,
}

impl<'a> PlannedLine<'a> {
    /// Makes the line of a planned download.
    #[must_use]
    pub fn new(download: &'a FileDownload) -> Self {
        Self {
            kind: "object",
            bucket: &download.object.endpoint.bucket,
            key: &download.object.listed.key,
            path: Some(download.path.as_str()).filter(|path| !path.is_empty()),
            bytes: download.object.listed.size_bytes,
        }
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The line for people; `place` is the full path of its file.
    #[must_use]
    pub fn to_text(&self, place: Option<&str>) -> String {
        format!("(dry run) {}", moved(self.bucket, self.key, place, self.bytes))
    }
}

/// A download in words; `place` is the full path of the file.
#[must_use]
pub fn moved(bucket: &str, key: &str, place: Option<&str>, bytes: u64) -> String {
    let (name, bytes) = (address(bucket, &shown(key)), Decimal(bytes));
    match place {
        Some(place) => format!("get: {name} -> {} ({bytes})", shown(place)),
        None => format!("get: {name} ({bytes})"),
    }
}

/// The totals of a `--dry-run`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PlannedTotal {
    /// The exit code.
    pub exit_code: u8,
    /// Objects that would be downloaded.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that would be removed.
    pub deleted_files: u64,
}

/// A file that was or would be removed because the source no longer has its object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedLine<'a> {
    /// The kind of line: `deleted`.
    pub kind: &'static str,
    /// Its path relative to the destination.
    pub path: &'a str,
    /// `deleted`, or `would_be_deleted`.
    pub status: &'static str,
}

impl<'a> RemovedLine<'a> {
    /// Makes the line of a file; with `dry` it has not been removed.
    #[must_use]
    pub fn new(path: &'a str, dry: bool) -> Self {
        let status = if dry { "would_be_deleted" } else { "deleted" };
        Self { kind: "deleted", path, status }
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The line for people, of a file that would be removed; `place` is its full path.
    #[must_use]
    pub fn to_text(&self, place: Option<&str>) -> String {
        format!("(dry run) delete: {}", shown(place.unwrap_or(self.path)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::checksum::{Algorithm, Verification};
    use crate::error::ErrorKind;
    use crate::files::file_download::Cut;
    use crate::plan::ranges::PartSize;
    use crate::s3::Endpoint;

    fn object(key: &str, etag: &str, size_bytes: u64) -> Object {
        let last_modified = "2026-01-02T03:04:05.000Z".to_owned();
        let (key, etag) = (key.to_owned(), etag.to_owned());
        Object { key, etag, size_bytes, last_modified, ..Object::default() }
    }

    fn download(key: &str, etag: &str, size_bytes: u64, path: &str) -> FileDownload {
        let endpoint = Endpoint::new("bucket", false, "h", "/", "r", vec![]);
        let part = PartSize::new(8 << 20).expect("aligned");
        let cut = Cut { part, slot_length_bytes: 1 << 20 };
        FileDownload::new(object(key, etag, size_bytes), Arc::new(endpoint), path.to_owned(), cut)
    }

    #[test]
    fn an_object_that_is_whole() {
        let download = download("a/\"b\"", "\"e\"", 20 << 20, "b");
        download.object.count_retry();
        let outcome =
            Outcome { download: Arc::new(download), elapsed_us: 1_500_000, result: Ok(()) };
        let expected = concat!(
            r#"{"kind":"object","bucket":"bucket","key":"a/\"b\"","path":"b","#,
            r#""bytes":20971520,"seconds":1.5,"#,
            r#""retries":1,"status":"ok","error":null,"verified":{"verdict":"not validated","#,
            r#""algorithm":null,"reason":"no checksum was requested; length, ETag and range of "#,
            r#"each answer were checked"}}"#
        );
        assert_eq!(ObjectLine::new(&outcome).to_json(), expected);
    }

    #[test]
    fn an_object_that_was_validated() {
        let download = download("a", "", 5, "a").verified_by(Verification::by_answer(false));
        download.verification.validated(Algorithm::Crc64Nvme);
        let outcome = Outcome { download: Arc::new(download), elapsed_us: 0, result: Ok(()) };
        let line = ObjectLine::new(&outcome).to_json();
        let verified =
            r#""verified":{"verdict":"validated","algorithm":"CRC64NVME","reason":null}}"#;
        assert!(line.ends_with(verified), "{line}");
    }

    #[test]
    fn an_object_that_failed() {
        let error = Error::new(ErrorKind::Access, "refused").advise("ask");
        let download = Arc::new(download("a", "", 1, ""));
        let outcome = Outcome { download, elapsed_us: 0, result: Err(error) };
        let line = ObjectLine::new(&outcome);
        assert_eq!((line.status, line.error.as_deref()), (Status::Failed, Some("refused; ask")));
        assert_eq!((line.path, line.verified.reason.as_deref()), (None, Some("the object failed")));
    }

    #[test]
    fn an_object_that_was_kept() {
        let download = download("d/a", "\"e\"", 7, "a");
        let expected = concat!(
            r#"{"kind":"object","bucket":"bucket","key":"d/a","path":"a","#,
            r#""bytes":7,"seconds":0.0,"retries":0,"#,
            r#""status":"kept","error":null,"verified":{"verdict":"not validated","#,
            r#""algorithm":null,"reason":"a file was there, and --overwrite never leaves it"}}"#
        );
        assert_eq!(ObjectLine::kept(&download, KeptReason::Present).to_json(), expected);
    }

    #[test]
    fn nothing_is_said_to_be_checked_that_was_not() {
        let check = |etag: &str, size: u64, expected: &[&str], absent: &str| {
            let FileDownload { object, shape, .. } = download("a", etag, size, "a");
            let reason = unverified(&object, shape, "it is empty");
            assert!(expected.iter().all(|word| reason.contains(word)), "{reason}");
            assert!(!reason.contains(absent), "{reason}");
        };
        check("\"e\"", 20 << 20, &["length", "ETag", "range"], "no ETag");
        check("", 20 << 20, &["length", "range", "no ETag"], "ETag and");
        check("\"e\"", 5, &["length", "ETag"], "range");
        check("", 5, &["length", "no ETag"], "range");
        check("\"e\"", 0, &["is empty"], "checked");
        let empty = download("a", "\"e\"", 0, "a");
        let verified = |failed| {
            let verdict = empty.verification.verdict();
            Verified::of(&empty.object, empty.shape, verdict, failed)
        };
        assert_eq!(verified(false), Verified::empty());
        assert_eq!(verified(true).verdict, "not validated", "it failed");
    }

    #[test]
    fn listed() {
        let object = object("a\u{1b}\u{202e}b", "\"e\"", 7);
        let line = ListedLine::new("bucket", &object);
        assert_eq!(
            line.to_text(Sizes::Bytes),
            "2026-01-02T03:04:05.000Z               7 s3://bucket/a\\u{1b}\\u{202e}b"
        );
        assert_eq!(
            line.to_json(),
            concat!(
                r#"{"kind":"object","bucket":"bucket","key":"a\u001b"#,
                "\u{202e}",
                r#"b","bytes":7,"etag":"\"e\"","#,
                r#""last_modified":"2026-01-02T03:04:05.000Z"}"#
            )
        );
    }

    #[test]
    fn folders_and_totals_are_listed_too() {
        let folder = ListedFolder::new("bucket", "a/\u{1b}/");
        let expected = format!("{:36} PRE s3://bucket/a/\\u{{1b}}/", "");
        assert_eq!(folder.to_text(), expected);
        assert_eq!(folder.to_json(), r#"{"kind":"folder","bucket":"bucket","key":"a/\u001b/"}"#);
        let mut total = ListedTotal::default();
        for size in [1 << 20, 1 << 19] {
            total.add(&object("a", "", size));
        }
        assert_eq!(total.to_json(), r#"{"kind":"summary","objects":2,"bytes":1572864}"#);
        let text = total.to_text(Sizes::Bytes);
        assert_eq!(text, "\nTotal Objects: 2\n   Total Size: 1572864");
        assert!(total.to_text(Sizes::Human).ends_with(": 1.50 MiB"), "{text}");
    }

    #[test]
    fn planned() {
        let to_file = download("a/b", "", 7, "b");
        let line = PlannedLine::new(&to_file);
        let expected = "(dry run) get: s3://bucket/a/b -> /d/b (7 B)";
        assert_eq!(line.to_text(Some("/d/b")), expected);
        let expected = r#"{"kind":"object","bucket":"bucket","key":"a/b","path":"b","bytes":7}"#;
        assert_eq!(line.to_json(), expected);
        let dropped = download("a/b", "", 7, "");
        let expected = "(dry run) get: s3://bucket/a/b (7 B)";
        assert_eq!(PlannedLine::new(&dropped).to_text(None), expected);
        let odd = download("d/\u{202e}a", "", 7, "\u{202e}a");
        let expected = "(dry run) get: s3://bucket/d/\\u{202e}a -> \\u{202e}a (7 B)";
        assert_eq!(PlannedLine::new(&odd).to_text(Some("\u{202e}a")), expected);
        let removed = RemovedLine::new("\u{2067}a\n", true);
        assert_eq!(removed.to_text(None), "(dry run) delete: \\u{2067}a\\n");
        let expected = r#"{"kind":"deleted","path":"a","status":"deleted"}"#;
        assert_eq!(RemovedLine::new("a", false).to_json(), expected);
    }
}
