//! The results of `verify`: a line for each object, and a summary.

use std::collections::BTreeMap;

use serde::Serialize;

use super::object::{Status, Verified};
use super::{asked_again, by_name, clock_corrected, gigabytes, json, seconds, summary_json};
use crate::checksum::unverified::of_many;
use crate::error::Error;
use crate::link::failure::RetryCounts;
use crate::s3::Object;
use crate::text::size::{Count, Decimal, Seconds, counted, rate};

/// Why a file whose MD5 is not the ETag is not validated.
const ETAG_NOT_MD5: &str = "no checksum is stored, and the ETag is not the MD5 of the file";

/// The result for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Its file matches the stored checksum, computed by this algorithm.
    Validated(&'static str),
    /// It has no bytes, and its file is empty; or it stands for a folder, which exists.
    Empty,
    /// The size of its file is right; this is why its contents could not be verified.
    NotValidated(&'static str),
    /// As [`Self::Validated`], or without an algorithm [`Self::Empty`]; the file has now been
    /// marked as downloaded.
    Adopted(Option<&'static str>),
    /// As [`Self::Adopted`], but its file could not be marked, for this reason.
    NotAdopted(Option<&'static str>, String),
    /// It has no file, for this reason.
    Missing(String),
    /// Its file has another size or checksum: both values.
    Mismatch(String),
    /// The size of its file is right, no checksum is stored, and the ETag is not the file's MD5,
    /// which it need not be: both values.
    OtherEtag(String),
    /// Why it could not be checked.
    Unknown(String),
}

impl Finding {
    /// Why this counts as a failure; `None` if it does not.
    #[must_use]
    pub fn failure(&self, strict: bool) -> Option<String> {
        match self {
            Self::Validated(_) | Self::Empty | Self::Adopted(_) => None,
            Self::NotAdopted(_, why) => Some(format!("not adopted: {why}")),
            Self::NotValidated(reason) => strict.then(|| format!("cannot be verified: {reason}")),
            Self::Missing(why) => Some(format!("missing: {why}")),
            Self::Mismatch(what) => Some(format!("mismatch: {what}")),
            Self::OtherEtag(what) => strict.then(|| format!("mismatch: {what}")),
            Self::Unknown(error) => Some(error.clone()),
        }
    }

    fn verified(&self, strict: bool) -> Verified {
        let not_md5 = |what| format!("{ETAG_NOT_MD5} ({what})");
        let (verdict, reason) = match self {
            Self::Validated(algorithm)
            | Self::Adopted(Some(algorithm))
            | Self::NotAdopted(Some(algorithm), _) => return Verified::by(algorithm),
            Self::Empty | Self::Adopted(None) | Self::NotAdopted(None, _) => {
                return Verified::empty();
            }
            Self::NotValidated(reason) => ("not validated", (*reason).to_owned()),
            Self::Missing(why) => ("missing", why.clone()),
            Self::OtherEtag(what) if !strict => ("not validated", not_md5(what)),
            Self::Mismatch(what) | Self::OtherEtag(what) => ("mismatch", what.clone()),
            Self::Unknown(_) => ("not validated", "it could not be checked".to_owned()),
        };
        Verified { verdict, algorithm: None, reason: Some(reason) }
    }
}

/// The line of one object; it shares field names with the lines of `get`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedLine<'a> {
    /// The kind of line: `object`.
    pub kind: &'static str,
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key, as S3 stores it.
    pub key: &'a str,
    /// The path of its file relative to the folder, `/`-separated; null if no file may have that
    /// name.
    pub path: Option<&'a str>,
    /// Its size, as listed.
    pub bytes: u64,
    /// Whether its file is as it should be.
    pub status: Status,
    /// Why it is not; null if it is.
    pub error: Option<String>,
    /// Whether the file was compared with a checksum.
    pub verified: Verified,
    /// Whether the file was marked as downloaded.
    pub adopted: bool,
}

impl<'a> CheckedLine<'a> {
    /// Makes the line of a finding.
    #[must_use]
    pub fn new(
        bucket: &'a str,
        object: &'a Object,
        path: &'a str,
        finding: &Finding,
        strict: bool,
    ) -> Self {
        let error = finding.failure(strict);
        Self {
            kind: "object",
            bucket,
            key: &object.key,
            path: Some(path).filter(|path| !path.is_empty()),
            bytes: object.size_bytes,
            status: if error.is_some() { Status::Failed } else { Status::Ok },
            error,
            verified: finding.verified(strict),
            adopted: matches!(finding, Finding::Adopted(_)),
        }
    }

    /// The line of the report.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

/// The summary of all findings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CheckSummary {
    /// Objects of the source.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects whose file matches the stored checksum.
    pub validated_objects: u64,
    /// Objects whose file has the right size and could not be verified further.
    pub not_validated_objects: u64,
    /// Objects without bytes, whose files are empty, too.
    pub empty_objects: u64,
    /// Objects without a file.
    pub missing_objects: u64,
    /// Objects whose file has another size or checksum.
    pub mismatched_objects: u64,
    /// Objects that could not be checked.
    pub unknown_objects: u64,
    /// How many of all these are failures.
    pub failed_objects: u64,
    /// Files that were marked as downloaded; null if that was not wanted.
    pub adopted_objects: Option<u64>,
    /// Number of objects that were not validated, by reason.
    pub not_validated: BTreeMap<&'static str, u64>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// From the start of the process.
    pub seconds: f64,
    /// 10^9 bytes of files per second.
    pub gigabytes_per_second: f64,
    /// Retried control-plane requests (LIST, HEAD and the like), by reason.
    pub control_retries: BTreeMap<&'static str, u64>,
    /// Seconds by which the signing time was ahead of this machine's clock, according to a server;
    /// 0 if no correction was in use.
    pub clock_correction_seconds: i64,
    /// The exit code.
    pub exit_code: u8,
}

impl CheckSummary {
    /// Counts a finding for an object of `bytes` bytes.
    pub fn count(&mut self, finding: &Finding, bytes: u64, strict: bool) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.failed_objects += u64::from(finding.failure(strict).is_some());
        if let (Some(adopted), Finding::Adopted(_)) = (&mut self.adopted_objects, finding) {
            *adopted += 1;
        }
        *match finding {
            Finding::Validated(_) | Finding::Adopted(Some(_)) | Finding::NotAdopted(Some(_), _) => {
                &mut self.validated_objects
            }
            Finding::Empty | Finding::Adopted(None) | Finding::NotAdopted(None, _) => {
                &mut self.empty_objects
            }
            Finding::NotValidated(reason) => {
                *self.not_validated.entry(reason).or_default() += 1;
                &mut self.not_validated_objects
            }
            Finding::Missing(_) => &mut self.missing_objects,
            Finding::OtherEtag(_) if !strict => {
                *self.not_validated.entry(ETAG_NOT_MD5).or_default() += 1;
                &mut self.not_validated_objects
            }
            Finding::Mismatch(_) | Finding::OtherEtag(_) => &mut self.mismatched_objects,
            Finding::Unknown(_) => &mut self.unknown_objects,
        } += 1;
    }

    /// Records what is known at the end.
    pub fn end(
        &mut self,
        bytes_read: u64,
        elapsed_us: u64,
        control_retries: &RetryCounts,
        exit_code: u8,
    ) {
        self.control_retries = by_name(control_retries);
        self.bytes_read = bytes_read;
        self.seconds = seconds(elapsed_us);
        self.gigabytes_per_second = gigabytes(bytes_read) / self.seconds.max(1e-6);
        self.exit_code = exit_code;
    }

    /// The summary for scripts, and why the run failed.
    #[must_use]
    pub fn to_json(&self, error: Option<&Error>) -> String {
        summary_json(self, error)
    }

    /// The summary for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut headline = format!(
            "{}, {}: {} verified",
            counted(self.objects, "object", "objects"),
            Decimal(self.bytes),
            Count(self.validated_objects)
        );
        let others = [
            (self.not_validated_objects, "not verified"),
            (self.empty_objects, "empty"),
            (self.missing_objects, "missing"),
            (self.mismatched_objects, "mismatched"),
            (self.unknown_objects, "could not be checked"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            headline += &format!(", {} {what}", Count(count));
        }
        let mut lines = vec![headline];
        for (reason, objects) in &self.not_validated {
            let reason = of_many(reason, *objects);
            lines.push(format!("{} not verified: {reason}", Count(*objects)));
        }
        if let Some(adopted) = self.adopted_objects {
            let adopted = counted(adopted, "file", "files");
            lines.push(format!("{adopted} newly adopted: get and sync skip what is marked"));
        }
        let speed = rate(self.bytes_read, self.seconds).map(|rate| format!(" ({rate})"));
        let (read, took) = (Decimal(self.bytes_read), Seconds(self.seconds));
        lines.push(format!("{read} read in {took}{}", speed.unwrap_or_default()));
        lines.extend(asked_again(&self.control_retries));
        lines.extend(clock_corrected(self.clock_correction_seconds));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> [Finding; 6] {
        [
            Finding::Validated("CRC32"),
            Finding::Empty,
            Finding::NotValidated("there is none"),
            Finding::Missing("it does not exist".to_owned()),
            Finding::Mismatch("5 is not 6".to_owned()),
            Finding::Unknown("refused".to_owned()),
        ]
    }

    #[test]
    fn lines_of_objects() {
        let object = Object { key: "a/b".to_owned(), size_bytes: 7, ..Object::default() };
        let line_of = |finding: &Finding, strict| {
            CheckedLine::new("bucket", &object, "b", finding, strict).to_json()
        };
        let not = r#""not validated","algorithm":null,"reason":"#;
        let expected = [
            concat!(
                r#"ok","error":null,"verified":{"verdict":"validated","#,
                r#""algorithm":"CRC32","reason":null"#
            )
            .to_owned(),
            concat!(
                r#"ok","error":null,"verified":{"verdict":"empty","#,
                r#""algorithm":null,"reason":"it is empty""#
            )
            .to_owned(),
            format!(r#"ok","error":null,"verified":{{"verdict":{not}"there is none""#),
            concat!(
                r#"failed","error":"missing: it does not exist","verified":{"#,
                r#""verdict":"missing","algorithm":null,"reason":"it does not exist""#
            )
            .to_owned(),
            concat!(
                r#"failed","error":"mismatch: 5 is not 6","verified":{"#,
                r#""verdict":"mismatch","algorithm":null,"reason":"5 is not 6""#
            )
            .to_owned(),
            format!(
                r#"failed","error":"refused","verified":{{"verdict":{not}"it could not be checked""#
            ),
        ];
        let start =
            r#"{"kind":"object","bucket":"bucket","key":"a/b","path":"b","bytes":7,"status":""#;
        for (finding, expected) in findings().iter().zip(expected) {
            let expected = format!("{start}{expected}}},\"adopted\":false}}");
            assert_eq!(line_of(finding, false), expected);
        }
        assert!(
            line_of(&findings()[2], true).contains(r#""failed","error":"cannot be verified: "#)
        );
        assert!(line_of(&findings()[1], true).contains(r#""ok""#));
        let other = Finding::OtherEtag("7 is not 8".to_owned());
        for (strict, parts) in [
            (false, [r#""ok","error":null"#, r#""not validated""#, "of the file (7 is not 8)\""]),
            (true, [r#""failed","error":"mismatch: 7 is"#, r#""mismatch""#, r#":"7 is not 8""#]),
        ] {
            let line = line_of(&other, strict);
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
    }

    #[test]
    fn what_is_adopted_is_validated_too() {
        let mut summary = CheckSummary { adopted_objects: Some(0), ..CheckSummary::default() };
        let why = || "it changed".to_owned();
        for finding in [
            Finding::Validated("CRC32"),
            Finding::Adopted(Some("CRC32")),
            Finding::Adopted(None),
            Finding::NotAdopted(Some("MD5"), why()),
            Finding::NotAdopted(None, why()),
        ] {
            summary.count(&finding, 1, false);
            let object = Object { key: "a".to_owned(), ..Object::default() };
            let line = CheckedLine::new("b", &object, "a", &finding, true);
            assert_eq!(line.adopted, matches!(finding, Finding::Adopted(_)));
            let failed = matches!(finding, Finding::NotAdopted(..));
            assert_eq!(line.error.as_deref(), failed.then_some("not adopted: it changed"));
        }
        let CheckSummary { validated_objects, empty_objects, failed_objects, .. } = summary;
        assert_eq!((validated_objects, empty_objects, failed_objects), (3, 2, 2));
        assert_eq!(summary.lines()[1], "2 files newly adopted: get and sync skip what is marked");
    }

    #[test]
    fn an_etag_that_is_no_md5_is_a_mismatch_only_where_all_must_be_proved() {
        let other = Finding::OtherEtag("7 is not 8".to_owned());
        for (strict, counts) in [(false, [1, 0, 0]), (true, [0, 1, 1])] {
            let mut summary = CheckSummary::default();
            summary.count(&other, 10, strict);
            let CheckSummary { not_validated_objects: not, mismatched_objects, .. } = summary;
            assert_eq!([not, mismatched_objects, summary.failed_objects], counts);
            assert_eq!(summary.not_validated.get(ETAG_NOT_MD5).copied(), (!strict).then_some(1));
        }
    }

    #[test]
    fn all_are_counted_once() {
        for (strict, failed) in [(false, 3), (true, 4)] {
            let mut summary = CheckSummary::default();
            findings().iter().for_each(|finding| summary.count(finding, 10, strict));
            summary.end(20, 2_000_000, &RetryCounts::default(), 1);
            assert_eq!((summary.objects, summary.bytes), (6, 60));
            assert_eq!(summary.failed_objects, failed);
            let counts = [
                summary.validated_objects,
                summary.not_validated_objects,
                summary.empty_objects,
                summary.missing_objects,
                summary.mismatched_objects,
                summary.unknown_objects,
            ];
            assert_eq!(counts, [1; 6]);
            assert_eq!(
                summary.lines(),
                [
                    "6 objects, 60 B: 1 verified, 1 not verified, 1 empty, 1 missing, \
                     1 mismatched, 1 could not be checked",
                    "1 not verified: there is none",
                    "20 B read in 2.0 s (10 B/s)",
                ]
            );
            assert!(summary.to_json(None).contains(r#""not_validated":{"there is none":1}"#));
        }
    }
}
