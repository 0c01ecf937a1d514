//! What an origin serves, to whom, and how badly: plain values, parsed and validated here.
//!
//! Not here: the arguments of the program (`main.rs`), and anything that touches a file or socket.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::checksum::{ChecksumPolicy, StoredChecksum};
use crate::pace::{Neighbor, RequestRate};
use crate::parse::{ParseError, parse_size};
use crate::plan::FaultPlan;
use crate::request::KEY_BYTES_MAX;
use crate::tls::TlsConfig;

/// Everything an [`Origin`](crate::Origin) is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on, all with one port; port 0 takes a free one. Loopback by default.
    pub listen: Vec<SocketAddr>,
    /// Those of them, counted from 0, at which nobody answers.
    pub dead: BTreeMap<usize, DeadAddress>,
    /// Threads, each with its own ring, listeners and connections.
    pub workers: NonZeroUsize,
    /// A folder whose first-level folders are buckets. It is read once at start, and nobody may
    /// change the files below it while the origin runs: they are mapped.
    pub root: Option<PathBuf>,
    /// Objects given one by one.
    pub objects: Vec<ObjectSpec>,
    /// Many objects of one size that cost no memory.
    pub synthetic: Vec<SyntheticSet>,
    /// Who may read. Empty: everybody, and signatures are not looked at.
    pub credentials: Vec<Credentials>,
    /// The region that signatures must name.
    pub region: String,
    /// Buckets that answer "moved permanently", and the region they live in.
    pub moved_buckets: BTreeMap<String, String>,
    /// `bucket.<domain>` in the Host header names a bucket; `bucket.localhost` always does.
    pub domain: Option<String>,
    /// Time from the whole request to the first byte of the answer.
    pub first_byte_latency: Duration,
    /// Largest difference from that, in both directions; each request draws its own, evenly. A
    /// request that is repeated in a run draws the same one.
    pub first_byte_jitter: Duration,
    /// Pace of body bytes on each connection, in bytes a second.
    pub connection_rate: Option<NonZeroU64>,
    /// Pace of body bytes of all connections together, in bytes a second, in equal shares.
    pub capacity: Option<NonZeroU64>,
    /// Requests of all connections together; those beyond are answered with 503 SlowDown on a
    /// connection that stays, and counted as [`Stats::throttled`](crate::Stats::throttled). Without
    /// `Retry-After`: S3 documents no such header of its answers.
    pub request_rate: Option<RequestRate>,
    /// Who takes a share of `capacity` and `request_rate` for a while.
    pub neighbor: Option<Neighbor>,
    /// How all objects were uploaded that do not say otherwise: their checksum, their parts.
    /// `None`: as if nobody had ever computed one, and in one piece.
    pub checksum: Option<ChecksumPolicy>,
    /// ETags are the MD5 of the content, or that of the MD5s of its parts, `-` and their number,
    /// as S3's mostly are. Otherwise they only look so, and cost nothing.
    pub md5_etags: bool,
    /// Requests that ask for checksums are refused: 501, as some servers do that know none.
    pub refuses_checksum_mode: bool,
    /// Objects that become others while they are read.
    pub changes: Vec<ObjectChange>,
    /// By how much the origin's clock is ahead of the machine's: in the Date of answers, and where
    /// signatures and tokens are judged. Below zero: behind.
    pub clock_offset_seconds: i64,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// How TLS is spoken; `None`: not at all.
    pub tls: Option<TlsConfig>,
    /// Workers use io_uring where that is available; otherwise it is not tried.
    pub io_uring: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            dead: BTreeMap::new(),
            workers: NonZeroUsize::MIN,
            root: None,
            objects: Vec::new(),
            synthetic: Vec::new(),
            credentials: Vec::new(),
            region: "us-east-1".to_owned(),
            moved_buckets: BTreeMap::new(),
            domain: None,
            first_byte_latency: Duration::ZERO,
            first_byte_jitter: Duration::ZERO,
            connection_rate: None,
            capacity: None,
            request_rate: None,
            neighbor: None,
            checksum: None,
            md5_etags: false,
            refuses_checksum_mode: false,
            changes: Vec::new(),
            clock_offset_seconds: 0,
            faults: FaultPlan::none(),
            tls: None,
            io_uring: true,
        }
    }
}

/// What is wrong with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadAddress {
    /// Connections are refused. The port stays taken.
    Refuses,
    /// Connections are accepted, and nothing is ever read or said.
    Silent,
}

/// An object that becomes another: as if somebody had overwritten it in the middle of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange {
    /// From this GET of the object on, counted from 1, it is the new one.
    pub from_get: u64,
    /// The new one; bucket and key say which was meant.
    pub object: ObjectSpec,
}

/// One object by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSpec {
    /// The bucket; it exists from now on.
    pub bucket: String,
    /// The key, 1 to 1,024 bytes.
    pub key: String,
    /// Where its bytes come from.
    pub content: ObjectContent,
    /// Further headers of its answers, such as `x-amz-meta-*`. Those that begin with
    /// `x-amz-checksum-` are sent as S3 does: to HEAD, and to GET of the whole object, when the
    /// request has `x-amz-checksum-mode: ENABLED`. Nobody checks that they are right.
    pub headers: Vec<(String, String)>,
    /// Its checksum and its parts.
    pub checksum: StoredChecksum,
}

impl ObjectSpec {
    /// An object without further headers.
    pub fn new(
        bucket: impl Into<String>,
        key: impl Into<String>,
        content: impl Into<ObjectContent>,
    ) -> Self {
        let (bucket, key, content) = (bucket.into(), key.into(), content.into());
        let (headers, checksum) = (Vec::new(), StoredChecksum::default());
        Self { bucket, key, content, headers, checksum }
    }

    /// How it was uploaded, whatever the configuration says of others.
    #[must_use]
    pub fn with_checksum(mut self, checksum: ChecksumPolicy) -> Self {
        self.checksum = StoredChecksum::Of(checksum);
        self
    }

    /// Without checksum and parts, whatever the configuration says of others.
    #[must_use]
    pub fn without_checksum(mut self) -> Self {
        self.checksum = StoredChecksum::Nothing;
        self
    }

    /// Adds a header to its answers.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

impl From<Bytes> for ObjectContent {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&'static [u8]> for ObjectContent {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

/// Where the bytes of an [`ObjectSpec`] come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectContent {
    /// These.
    Bytes(Bytes),
    /// [`synthetic_bytes`](crate::synthetic_bytes) of the key.
    Synthetic {
        /// The object's size.
        length_bytes: u64,
    },
}

/// Who may read: one access key and what belongs to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) session_token: Option<String>,
    pub(crate) expires_at: Option<SystemTime>,
    pub(crate) expires_after_requests: Option<u64>,
}

impl Credentials {
    /// An access key and its secret, without session token, valid for ever.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            session_token: None,
            expires_at: None,
            expires_after_requests: None,
        }
    }

    /// Requests must carry this token too.
    #[must_use]
    pub fn with_session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// From then on requests are answered with `ExpiredToken`.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: SystemTime) -> Self {
        self.expires_at = Some(expires_at);
        self
    }
}

impl Credentials {
    /// After `requests` requests that were signed well, all others are answered with
    /// `ExpiredToken`. Others of the same access key, with another token, do not expire with them.
    #[must_use]
    pub fn with_request_limit(mut self, requests: u64) -> Self {
        self.expires_after_requests = Some(requests);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .field("secret_key", &"<hidden>")
            .field("session_token", &self.session_token.as_ref().map(|_| "<hidden>"))
            .field("expires_at", &self.expires_at)
            .field("expires_after_requests", &self.expires_after_requests)
            .finish()
    }
}

/// `count` objects of one size with sorted, zero-padded keys: `prefix[folder/]index suffix`.
///
/// Written as `bucket/prefix:COUNT:SIZE`, then options `:folders=N` (spread over N numbered
/// folders), `:width=N` (digits of the index, at least six by default), `:suffix=TEXT` (`.bin` by
/// default).
///
/// ```
/// let set: inrush_origin::SyntheticSet = "train/shard-:3:39KiB".parse()?;
/// assert_eq!(set.key(2), "shard-000002.bin");
/// let set: inrush_origin::SyntheticSet = "train/p/:100:1MB:folders=10".parse()?;
/// assert_eq!(set.key(99), "p/09/000099.bin");
/// # Ok::<(), inrush_origin::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticSet {
    /// The bucket; it exists from now on.
    pub bucket: String,
    /// What every key begins with; may be empty.
    pub prefix: String,
    /// How many objects.
    pub count: u64,
    /// The size of each.
    pub length_bytes: u64,
    /// Over how many numbered folders they are spread; 0: none.
    pub folders: u64,
    /// Digits of the index; never fewer than the last index needs.
    pub width: usize,
    /// What every key ends with.
    pub suffix: String,
}

impl SyntheticSet {
    /// A set with the default layout: no folders, six digits, `.bin`.
    pub fn new(
        bucket: impl Into<String>,
        prefix: impl Into<String>,
        count: u64,
        length_bytes: u64,
    ) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: prefix.into(),
            count,
            length_bytes,
            folders: 0,
            width: 6,
            suffix: ".bin".to_owned(),
        }
    }

    /// The key of object `index`; sorted as the indices are.
    pub fn key(&self, index: u64) -> String {
        use fmt::Write as _;
        let mut key = String::with_capacity(self.prefix.len() + 32);
        key.push_str(&self.prefix);
        let width = self.width.max(digits(self.count.saturating_sub(1)));
        // Writing to a String cannot fail.
        if self.folders > 0 {
            let folder = u128::from(index) * u128::from(self.folders) / u128::from(self.count);
            let folder_width = digits(self.folders - 1).max(2);
            let _ = write!(key, "{folder:0folder_width$}/");
        }
        let _ = write!(key, "{index:0width$}{}", self.suffix);
        key
    }

    /// The index of the first key that is not below `bound`; `count` when there is none.
    pub(crate) fn lower_bound(&self, bound: &str) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle).as_str() < bound { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Whether this set has that key.
    pub(crate) fn contains(&self, key: &str) -> bool {
        if !key.starts_with(&self.prefix) || !key.ends_with(&self.suffix) {
            return false;
        }
        let index = self.lower_bound(key);
        index < self.count && self.key(index) == key
    }
}

impl FromStr for SyntheticSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |why: String| ParseError(format!("synthetic set '{text}': {why}"));
        let (bucket, rest) = text
            .split_once('/')
            .filter(|(bucket, _)| !bucket.is_empty())
            .ok_or_else(|| refuse("expected BUCKET/PREFIX:COUNT:SIZE".to_owned()))?;
        let mut fields = rest.split(':');
        let prefix = fields.next().unwrap_or_default();
        let (Some(count), Some(size)) = (fields.next(), fields.next()) else {
            return Err(refuse("expected BUCKET/PREFIX:COUNT:SIZE".to_owned()));
        };
        let number = |name: &str, value: &str| {
            value.parse::<u64>().map_err(|_| refuse(format!("{name} '{value}' is not a number")))
        };
        let length_bytes = parse_size(size).map_err(|error| refuse(error.0))?;
        let mut set = Self::new(bucket, prefix, number("COUNT", count)?, length_bytes);
        for option in fields {
            match option.split_once('=') {
                Some(("folders", value)) => set.folders = number("folders", value)?,
                Some(("width", value)) => {
                    let width = usize::try_from(number("width", value)?).unwrap_or(usize::MAX);
                    set.width = width;
                }
                Some(("suffix", value)) => set.suffix = value.to_owned(),
                _ => {
                    let known = "folders=N, width=N, suffix=TEXT";
                    return Err(refuse(format!("unknown option '{option}', known: {known}")));
                }
            }
        }
        if set.width > 20 {
            return Err(refuse("width is at most 20 digits".to_owned()));
        }
        if set.count > 0 && set.key(set.count - 1).len() > KEY_BYTES_MAX {
            return Err(refuse(format!("keys would be longer than {KEY_BYTES_MAX} bytes")));
        }
        Ok(set)
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_found_again() {
        let mut set: SyntheticSet = "b/p/:2500:1KiB:folders=7:suffix=.rec".parse().unwrap();
        for folders in [7, 0] {
            set.folders = folders;
            let keys: Vec<String> = (0..set.count).map(|index| set.key(index)).collect();
            assert!(keys.is_sorted());
            for (index, key) in keys.iter().enumerate() {
                assert_eq!(set.lower_bound(key), index as u64);
                assert!(set.contains(key));
            }
        }
        assert!(!set.contains("p/0.rec") && !set.contains("p/") && !set.contains("q"));
    }

    #[test]
    fn a_bad_set_says_what_was_expected() {
        for text in ["b", "/p:1:1", "b/p:1", "b/p:x:1", "b/p:1:1:folder=2", "b/p:1:1:width=99"] {
            let error = text.parse::<SyntheticSet>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn credentials_never_show_a_secret() {
        let credentials = Credentials::new("AKID", "s3cret").with_session_token("t0ken");
        let shown = format!("{credentials:?} {credentials:#?}");
        assert!(shown.contains("AKID"));
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
    }
}
