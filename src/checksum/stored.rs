//! Checksums from S3's headers, and mismatches.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Algorithm, DIGEST_BYTES_MAX, Digest, unverified};
use crate::error::{Error, ErrorKind, ErrorReason};

/// Most parts of an upload (S3, multipart upload limits).
pub(super) const PARTS_MAX: u32 = 10_000;

/// What a stored checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All bytes.
    FullObject,
    /// The digests of the parts of an upload.
    Composite {
        /// Number of parts.
        parts: u32,
    },
    /// All bytes, for an ETag that is used as a checksum.
    Etag,
}

/// A checksum that a server stores with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// How it was computed.
    pub algorithm: Algorithm,
    /// What it covers.
    pub form: Form,
    /// Its value.
    pub digest: Digest,
}

impl Stored {
    /// Parses a checksum header, `BASE64` or `BASE64-PARTS`, and the value of
    /// `x-amz-checksum-type`, which older servers do not send; `None` if they are invalid.
    #[must_use]
    pub fn parse(algorithm: Algorithm, value: &[u8], kind: Option<&[u8]>) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?.trim();
        let (text, parts) = match value.split_once('-') {
            Some((text, parts)) => {
                let digits = parts.bytes().all(|byte| byte.is_ascii_digit());
                (text, Some(parts.parse::<u32>().ok().filter(|_| digits)?))
            }
            None => (value, None),
        };
        let form = match (parts, kind.map(<[u8]>::trim_ascii)) {
            (None, None | Some(b"FULL_OBJECT")) => Form::FullObject,
            (Some(parts @ 1..=PARTS_MAX), None | Some(b"COMPOSITE")) => Form::Composite { parts },
            _ => return None,
        };
        let mut bytes = [0; DIGEST_BYTES_MAX];
        // Longer text does not fit, so it is no digest.
        let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
        let digest = Digest::new(&bytes[..length])?;
        (length == algorithm.length_bytes()).then_some(Self { algorithm, form, digest })
    }

    /// The checksum in an answer's headers: its algorithm and value, `x-amz-checksum-type`, and the
    /// object's ETag.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn of_headers(
        algorithm: Algorithm,
        value: &[u8],
        kind: Option<&[u8]>,
        etag: &[u8],
    ) -> Result<Self, &'static str> {
        let stored = Self::parse(algorithm, value, kind).ok_or(unverified::UNREADABLE)?;
        // Who knows checksums of all bytes of several parts sends a type. Others have those of the
        // parts' checksums, and some do not say of how many. CRC64NVME is never one of these.
        let is_untyped = kind.is_none() && stored.form == Form::FullObject;
        let may_be_of_parts = algorithm != Algorithm::Crc64Nvme && is_of_parts(etag);
        if is_untyped && may_be_of_parts { Err(unverified::UNTYPED) } else { Ok(stored) }
    }

    /// Compares it with the digest of all bytes; with one part, with the digest of that digest.
    ///
    /// # Errors
    /// If they differ.
    pub fn check(&self, whole: Digest) -> Result<(), Mismatch> {
        let computed = match self.form {
            Form::FullObject | Form::Etag => whole,
            Form::Composite { .. } => self.algorithm.digest(whole.bytes()),
        };
        self.compare(computed)
    }

    /// Compares it with a computed digest.
    pub(super) fn compare(&self, computed: Digest) -> Result<(), Mismatch> {
        if computed == self.digest { Ok(()) } else { Err(Mismatch { stored: *self, computed }) }
    }

    /// True if the digest of all bytes is enough to check it.
    #[must_use]
    pub fn is_of_one_piece(&self) -> bool {
        matches!(self.form, Form::FullObject | Form::Composite { parts: 1 } | Form::Etag)
    }
}

/// True if an ETag is that of an object that was uploaded in parts: an MD5 and their number.
fn is_of_parts(etag: &[u8]) -> bool {
    let text = etag.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(etag);
    let Some((md5, parts)) = text.split_at_checked(32) else { return false };
    let number = parts.strip_prefix(b"-").filter(|number| !number.is_empty());
    md5.iter().all(u8::is_ascii_hexdigit)
        && number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
}

/// The ETag as an MD5; `None` if it cannot be one. S3's ETag is the MD5 of the bytes if they were
/// uploaded in one piece and are not encrypted with other keys than S3's own. Other servers' ETags
/// may only look like an MD5.
#[must_use]
pub fn etag_md5(etag: &str) -> Option<Stored> {
    let text = etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(etag);
    let mut bytes = [0; 16];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    let digest = Digest::of(&bytes);
    Some(Stored { algorithm: Algorithm::Md5, form: Form::Etag, digest })
}

/// Bytes whose checksum is not the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The stored checksum.
    pub stored: Stored,
    /// The computed one.
    pub computed: Digest,
}

impl Mismatch {
    /// The error of an object with such bytes; `alike` if two downloads gave the same bytes.
    #[must_use]
    pub fn error(&self, alike: bool) -> Error {
        let message = format!("the bytes have another checksum: {self}");
        let error = Error::new(ErrorKind::Objects, message).because(ErrorReason::Integrity);
        error.advise(match self.stored.form {
            Form::Etag => {
                "run it again; if it stays so, the server's ETags may not be MD5s, and --verify \
                 auto takes such objects"
            }
            _ if alike => {
                "two downloads gave the same bytes: the object, or what serves it (a cache, a \
                 proxy, or a node of the server), differs from the stored checksum; upload it \
                 again, or download it as it is with --verify off"
            }
            _ => "run it again; if it stays so, the object is damaged where it is stored",
        })
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stored { algorithm, form, digest } = self.stored;
        let computed = self.computed;
        // As S3 shows them: checksums in base64, composite ones with the number of parts, ETags
        // quoted.
        match form {
            Form::FullObject => write!(f, "the {algorithm} is {computed}, but {digest} is stored"),
            Form::Composite { parts } => {
                write!(f, "the {algorithm} is {computed}-{parts}, but {digest}-{parts} is stored")
            }
            Form::Etag => {
                let [computed, etag] = [computed, digest].map(|digest| hex::encode(digest.bytes()));
                write!(f, "the {algorithm} is \"{computed}\", but the ETag is \"{etag}\"")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_not_believed() {
        let check = |algorithm, value: &str, kind: Option<&str>, expected: Option<Form>| {
            let stored = Stored::parse(algorithm, value.as_bytes(), kind.map(str::as_bytes));
            assert_eq!(stored.map(|stored| stored.form), expected, "{value} {kind:?}");
        };
        let (full, composite) = (Some("FULL_OBJECT"), Some("COMPOSITE"));
        let parts = |parts| Some(Form::Composite { parts });
        check(Algorithm::Crc32, "y/Q5Jg==", None, Some(Form::FullObject));
        check(Algorithm::Crc32, " y/Q5Jg== ", full, Some(Form::FullObject));
        check(Algorithm::Crc32, "y/Q5Jg==-3", None, parts(3));
        check(Algorithm::Crc32, "y/Q5Jg==-10000", composite, parts(10_000));
        for (value, kind) in [
            ("y/Q5Jg==-10001", composite),
            ("y/Q5Jg==-0", composite),
            ("y/Q5Jg==-+3", composite),
            ("y/Q5Jg==-", None),
            ("y/Q5Jg==-3", full),
            ("y/Q5Jg==", composite),
            ("y/Q5Jg==", Some("OTHER")),
            ("y/Q5Jg", None),
            ("y/Q5JgAA", None),
            ("", None),
            ("=", None),
        ] {
            check(Algorithm::Crc32, value, kind, None);
        }
        check(Algorithm::Crc64Nvme, "y/Q5Jg==", None, None);
        check(Algorithm::Sha256, &"A".repeat(44), None, None);
        check(Algorithm::Sha256, &format!("{}=", "A".repeat(43)), None, Some(Form::FullObject));
        check(Algorithm::Sha256, &"A".repeat(400), None, None);
        check(Algorithm::Sha512, &format!("{}==", "A".repeat(86)), None, Some(Form::FullObject));
        check(Algorithm::Sha512, &"A".repeat(88), None, None);
        assert_eq!(Stored::parse(Algorithm::Crc32, b"\xff\xfe", None), None);
    }

    #[test]
    fn what_the_checksum_of_an_upload_in_parts_is_of_has_to_be_said() {
        let md5 = "25f9e794323b453885f5181f1b624d0b";
        let check = |algorithm, value: &str, kind: Option<&str>, etag: &str| {
            let kind = kind.map(str::as_bytes);
            let stored = Stored::of_headers(algorithm, value.as_bytes(), kind, etag.as_bytes());
            stored.map(|stored| stored.form)
        };
        let (one, many) = (format!("\"{md5}\""), format!("\"{md5}-3\""));
        let crc32 = |value: &str, kind: Option<&str>, etag: &str| {
            check(Algorithm::Crc32, value, kind, etag)
        };
        assert_eq!(crc32("y/Q5Jg==", None, &many), Err(unverified::UNTYPED));
        assert_eq!(crc32("y/Q5Jg==", None, &format!("{md5}-12")), Err(unverified::UNTYPED));
        assert_eq!(crc32("y/Q5Jg==", Some("FULL_OBJECT"), &many), Ok(Form::FullObject));
        assert_eq!(crc32("y/Q5Jg==-3", None, &many), Ok(Form::Composite { parts: 3 }));
        let whole = check(Algorithm::Crc64Nvme, "AAAAAAAAAAA=", None, &many);
        assert_eq!(whole, Ok(Form::FullObject));
        assert_eq!(crc32("y/Q5Jg", None, &many), Err(unverified::UNREADABLE));
        for etag in [&one, "", "\"", "\"e-3\"", &format!("{md5}-"), &format!("{md5}-x"), "65b-3"] {
            assert_eq!(crc32("y/Q5Jg==", None, etag), Ok(Form::FullObject), "{etag}");
        }
    }

    #[test]
    fn bytes_are_held_against_what_is_stored() {
        let stored = Stored::parse(Algorithm::Crc32, b"y/Q5Jg==", None).expect("a good header");
        assert_eq!(stored.check(Algorithm::Crc32.digest(b"123456789")), Ok(()));
        let error = stored.check(Algorithm::Crc32.digest(b"12345678")).expect_err("others");
        assert_eq!(error.to_string(), "the CRC32 is muDarw==, but y/Q5Jg== is stored");
        // One part: the digest of its digest.
        let digest = Algorithm::Sha256.digest(Algorithm::Sha256.digest(b"x").bytes());
        let value = format!("{digest}-1");
        let stored = Stored::parse(Algorithm::Sha256, value.as_bytes(), None).expect("a header");
        assert!(stored.is_of_one_piece());
        assert_eq!(stored.check(Algorithm::Sha256.digest(b"x")), Ok(()));
        let error = stored.check(Algorithm::Sha256.digest(b"y")).expect_err("others").to_string();
        assert!(error.ends_with(&format!("-1, but {value} is stored")), "{error}");
    }

    #[test]
    fn an_etag_may_be_an_md5() {
        let stored = etag_md5("\"25f9e794323b453885f5181f1b624d0b\"").expect("an MD5");
        assert_eq!(stored.check(Algorithm::Md5.digest(b"123456789")), Ok(()));
        let error = stored.check(Algorithm::Md5.digest(b"")).expect_err("others");
        assert_eq!(
            error.to_string(),
            "the MD5 is \"d41d8cd98f00b204e9800998ecf8427e\", but the ETag is \
             \"25f9e794323b453885f5181f1b624d0b\""
        );
        for other in ["", "\"\"", "\"25f9e794323b453885f5181f1b624d0b-2\"", "\"abc\"", "\"é\""] {
            assert_eq!(etag_md5(other), None, "{other}");
        }
    }
}
