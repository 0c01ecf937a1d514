//! The words of S3: objects, byte ranges, endpoints; and requests as bytes. No I/O, no clock.

pub mod answer;
pub mod arn;
pub mod aws;
pub mod buckets;
pub mod cycle;
pub mod habit;
pub mod headers;
pub mod list;
pub mod proxy;
pub mod session;
pub mod sign;
pub mod uri;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::UNIX_EPOCH;

use habit::{Habit, Habits};
use headers::ExtraHeaders;
use proxy::Proxy;
use sign::PublishedKeys;
use tracing::info;

/// One object as a listing or a HEAD told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// The key, decoded, as S3 keeps it (UTF-8, at most 1,024 bytes).
    pub key: String,
    /// The entity tag with its quotes, as it goes into `If-Match`; empty when the origin gave none.
    pub etag: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// When it was last written, in ISO 8601: as the listing has it, or as [`iso_date`] writes what
    /// a HEAD said; empty when the origin gave none.
    pub last_modified: String,
    /// The version that was asked for by its identifier; empty for the newest.
    pub version_id: String,
    /// What is known of the checksum that is stored with it.
    pub checksum: ListedChecksum,
}

/// What a listing says of the checksum that is stored with an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListedChecksum {
    /// The object does not come from a listing.
    #[default]
    NotListed,
    /// The listing names none.
    Unnamed,
    /// There is one.
    Named {
        /// Of the digests of its parts, not of its bytes.
        composite: bool,
        /// It is a CRC.
        crc: bool,
    },
}

/// Longest object that is trusted, in bytes: 2^53, far beyond the 50 TB that S3 stores. Sums of
/// offsets and lengths stay far from overflow, and a number in JSON keeps every byte (RFC 8259).
pub const OBJECT_BYTES_MAX: u64 = 1 << 53;

impl Object {
    /// An object's size as a server writes it; an error says what is wrong with it.
    pub(crate) fn parse_size(text: &str) -> Result<u64, &'static str> {
        let size: u64 = text.trim().parse().map_err(|_| "is not a number")?;
        if size > OBJECT_BYTES_MAX { Err("is over 2^53 bytes") } else { Ok(size) }
    }

    /// When it was last written, in seconds since the Epoch. A HEAD tells whole seconds, so a
    /// listing of the same object is read as whole seconds, too. `None` for what is no time, and
    /// for the Epoch itself, which servers write that know none.
    #[must_use]
    pub fn modified_seconds(&self) -> Option<i64> {
        let time = humantime::parse_rfc3339(&self.last_modified).ok()?;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        i64::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }
}

/// Whether an object of this key and length only marks a folder, as consoles make them, and has no
/// bytes.
#[must_use]
pub fn is_folder_mark(key: &str, size_bytes: u64) -> bool {
    key.ends_with('/') && size_bytes == 0
}

/// The date of an HTTP header (RFC 9110 section 5.6.7) as S3's listings write it, in ISO 8601 with
/// milliseconds: `2024-01-01T00:00:00.000Z`. What is no such date stays as it is: it still tells
/// one version from another.
#[must_use]
pub fn iso_date(text: &str) -> String {
    httpdate::parse_http_date(text.trim())
        .map_or_else(|_| text.to_owned(), |date| humantime::format_rfc3339_millis(date).to_string())
}

/// Contiguous bytes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte, from 0.
    pub offset: u64,
    /// How many bytes; never 0.
    pub length: u64,
}

/// Where one bucket is served, as the data plane needs it.
#[derive(Debug)]
pub struct Endpoint {
    /// The bucket's name, for messages.
    pub bucket: String,
    /// True for https.
    pub tls: bool,
    /// The `Host` header: host name or address, with the port where it is not the scheme's own.
    pub host: String,
    /// What stands before the encoded key in a request target: `/` (virtual-hosted style) or
    /// `/bucket/` (path style), already percent-encoded.
    pub path_prefix: String,
    /// The region that signatures name.
    pub region: String,
    /// All addresses that name resolution gave, the proxy's where there is one; never empty. The
    /// control plane refreshes them.
    pub addresses: RwLock<Vec<SocketAddr>>,
    /// The service that signatures name.
    pub service: &'static str,
    /// What the user's options add to requests.
    pub headers: ExtraHeaders,
    /// The keys of a directory bucket's session, which sign here instead of the run's.
    pub session: Option<Arc<PublishedKeys>>,
    /// What stands between us and it.
    pub proxy: Option<Arc<Proxy>>,
    /// What it does otherwise than S3.
    pub habits: Habits,
}

impl Endpoint {
    /// An endpoint, as its fields say.
    #[must_use]
    pub fn new(
        bucket: &str,
        tls: bool,
        host: &str,
        path_prefix: &str,
        region: &str,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Self {
            bucket: bucket.to_owned(),
            tls,
            host: host.to_owned(),
            path_prefix: path_prefix.to_owned(),
            region: region.to_owned(),
            addresses: RwLock::new(addresses),
            service: sign::SERVICE,
            headers: ExtraHeaders::default(),
            session: None,
            proxy: None,
            habits: Habits::default(),
        }
    }

    /// Asks with regard to this from now on.
    pub fn note_habit(&self, habit: Habit) {
        if self.habits.note(habit) {
            info!("{}: {}", self.host, habit.explain());
        }
    }

    /// A directory bucket: it lists by folder alone, and in no order.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.service == sign::DIRECTORY_SERVICE
    }

    /// The host's name or address alone: what a certificate must be for.
    #[must_use]
    pub fn server_name(&self) -> &str {
        let name = match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => &self.host,
        };
        name.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        let written = self.host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        written.unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// True when name resolution gave more than one address.
    #[must_use]
    pub fn has_several_addresses(&self) -> bool {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).len() > 1
    }

    /// The addresses known now.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_are_written_as_listings_do() {
        // RFC 9110 section 5.6.7: the one to send, and two that are obsolete.
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(iso_date(date), "1994-11-06T08:49:37.000Z", "{date}");
        }
        assert_eq!(iso_date("Fri, 31 Dec 9999 23:59:59 GMT"), "9999-12-31T23:59:59.000Z");
        assert_eq!(iso_date("Thu, 01 Jan 1970 00:00:00 GMT"), "1970-01-01T00:00:00.000Z");
        let others = [
            "",
            "yesterday",
            "2024-01-01T00:00:00.000Z",
            "Thu, 01 Jan 1960 00:00:00 GMT",
            "Mon, 32 Jan 2024 00:00:00 GMT",
            "Fri, 31 Dec 99999 23:59:59 GMT",
        ];
        assert_eq!(others.map(iso_date), others);
    }

    #[test]
    fn times_of_objects_count_to_the_second() {
        let seconds = |time: &str| {
            let last_modified = time.to_owned();
            Object { last_modified, ..Object::default() }.modified_seconds()
        };
        for time in ["2024-01-01T00:00:01Z", "2024-01-01T00:00:01.000Z", "2024-01-01T00:00:01.999Z"]
        {
            assert_eq!(seconds(time), Some(1_704_067_201), "{time}");
        }
        assert_eq!(seconds("9999-12-31T23:59:59.999Z"), Some(253_402_300_799));
        for other in [
            "",
            "yesterday",
            "0001-01-01T00:00:00Z",
            "1970-01-01T00:00:00.000Z",
            "1969-12-31T23:59:59Z",
            "2024-13-01T00:00:00Z",
        ] {
            assert_eq!(seconds(other), None, "{other}");
        }
    }

    #[test]
    fn hosts_are_taken_apart() {
        let check = |host: &str, tls: bool, name: &str, port: u16| {
            let endpoint = Endpoint::new("", tls, host, "/", "", vec![]);
            assert_eq!((endpoint.server_name(), endpoint.port()), (name, port), "{host}");
        };
        check("s3.eu-west-1.amazonaws.com", true, "s3.eu-west-1.amazonaws.com", 443);
        check("localhost:9000", false, "localhost", 9000);
        check("127.0.0.1", false, "127.0.0.1", 80);
        check("[::1]:9000", false, "::1", 9000);
        check("[::1]", true, "::1", 443);
    }
}
