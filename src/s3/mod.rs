//! Types of S3: objects, byte ranges, endpoints; and requests as bytes. No I/O, no clock.

pub mod answer;
pub mod arn;
pub mod aws;
pub mod buckets;
pub mod cycle;
pub mod grants;
pub mod habit;
pub mod headers;
mod leaves;
pub mod list;
pub mod proxy;
pub mod redirect;
pub mod session;
pub mod sign;
pub mod uri;
pub mod web;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use grants::Grant;
use habit::{Habit, Habits};
use headers::ExtraHeaders;
use proxy::Proxy;
use redirect::Redirects;
use sign::PublishedKeys;
use tracing::info;
use web::WebTarget;

/// One object, from a listing or a HEAD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// The key, decoded, as S3 stores it (UTF-8, at most 1,024 bytes).
    pub key: String,
    /// The ETag with its quotes, as for `If-Match`; empty if the server sent none.
    pub etag: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Modification time in ISO 8601: the listing's, or a HEAD's converted by [`iso_date`]; empty
    /// if the server sent none.
    pub last_modified: String,
    /// The requested version ID; empty for the newest.
    pub version_id: String,
    /// What is known of its stored checksum.
    pub checksum: ListedChecksum,
    /// Where the object of a URL is; `None` for objects of buckets, which their keys name.
    pub web: Option<Arc<WebTarget>>,
}

/// What a listing says about an object's stored checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListedChecksum {
    /// The object does not come from a listing.
    #[default]
    NotListed,
    /// The listing names none.
    Unnamed,
    /// The listing names one.
    Named {
        /// It covers the digests of the parts, not the bytes.
        composite: bool,
        /// It is a CRC.
        crc: bool,
    },
}

/// Largest accepted object in bytes: 2^53, far above the 50 TB limit of S3. Sums of offsets and
/// lengths cannot overflow, and JSON numbers are exact (RFC 8259).
pub const OBJECT_BYTES_MAX: u64 = 1 << 53;

impl Object {
    /// Parses an object's size; the error says what is wrong with it.
    pub(crate) fn parse_size(text: &str) -> Result<u64, &'static str> {
        let size: u64 = text.trim().parse().map_err(|_| "is not a number")?;
        if size > OBJECT_BYTES_MAX { Err("is over 2^53 bytes") } else { Ok(size) }
    }

    /// True if its server sends the whole object whatever range is requested.
    #[must_use]
    pub fn is_whole_only(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.is_whole_only())
    }

    /// Modification time in seconds since the Epoch. A HEAD has whole seconds, so a listing's time
    /// is truncated to seconds, too. `None` if it is invalid, and for the Epoch itself, which some
    /// servers send instead of an unknown time.
    #[must_use]
    pub fn modified_seconds(&self) -> Option<i64> {
        let time = humantime::parse_rfc3339(&self.last_modified).ok()?;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        i64::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }
}

/// True if an object of this key and size only marks a folder, as consoles create them, and has no
/// bytes.
#[must_use]
pub fn is_folder_mark(key: &str, size_bytes: u64) -> bool {
    key.ends_with('/') && size_bytes == 0
}

/// The address of an object for users: `s3://bucket/key`, or its URL without a query.
#[must_use]
pub fn address(bucket: &str, key: &str) -> String {
    match web::is_url(bucket) {
        true => format!("{bucket}/{key}"),
        false => format!("{}{bucket}/{key}", uri::SCHEME),
    }
}

/// Converts the date of an HTTP header (RFC 9110 section 5.6.7) to the format of S3's listings, ISO
/// 8601 with milliseconds: `2024-01-01T00:00:00.000Z`. Invalid dates stay unchanged: they still
/// distinguish versions.
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
    /// Number of bytes; never 0.
    pub length: u64,
}

/// The server of one bucket, as the data plane needs it.
#[derive(Debug)]
pub struct Endpoint {
    /// The bucket's name, for messages; of a URL's server, scheme and host of the URL.
    pub bucket: String,
    /// True for https.
    pub tls: bool,
    /// The `Host` header: host name or address, with the port unless it is the scheme's default.
    pub host: String,
    /// Prefix of the encoded key in a request target: `/` (virtual-hosted style) or `/bucket/`
    /// (path style), percent-encoded.
    pub path_prefix: String,
    /// The region for signatures; [`sign::ALL_REGIONS`] for a multi-region access point.
    pub region: String,
    /// All resolved addresses, of the proxy if there is one; never empty. The control plane
    /// refreshes them.
    pub addresses: RwLock<Vec<SocketAddr>>,
    /// The service for signatures; [`sign::NO_SERVICE`] for a URL's server.
    pub service: &'static str,
    /// Headers from the user's options.
    pub headers: ExtraHeaders,
    /// The keys of a directory bucket's session or of an access grant, which sign here instead of
    /// the run's keys.
    pub session: Option<Arc<PublishedKeys>>,
    /// The access grant that these keys are from.
    pub grant: Option<Grant>,
    /// The proxy in front of it.
    pub proxy: Option<Arc<Proxy>>,
    /// Its known deviations from S3.
    pub habits: Habits,
    /// Where its redirects lead; `None` if they are not followed.
    pub redirects: Option<Redirects>,
    /// A redirect leads to it: the user has not named it.
    pub is_led_to: bool,
}

impl Endpoint {
    /// When its own keys expire, those of a session or of an access grant.
    #[must_use]
    pub fn keys_expire(&self) -> Option<SystemTime> {
        self.session.as_ref()?.get()?.expires()
    }

    /// An endpoint with these fields.
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
            grant: None,
            proxy: None,
            habits: Habits::default(),
            redirects: None,
            is_led_to: false,
        }
    }

    /// Records a deviation from S3, which later requests take into account.
    pub fn note_habit(&self, habit: Habit) {
        if self.habits.note(habit) {
            info!("{}: {}", self.host, habit.explain());
        }
    }

    /// True for a directory bucket, which lists by folder only, and unordered.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.service == sign::DIRECTORY_SERVICE
    }

    /// True for a multi-region access point, whose requests are signed for all regions.
    #[must_use]
    pub fn is_multi_region(&self) -> bool {
        self.region == sign::ALL_REGIONS
    }

    /// True for a server that is named by a URL: requests to it are never signed.
    #[must_use]
    pub fn is_web(&self) -> bool {
        self.service == sign::NO_SERVICE
    }

    /// The host name or address without the port: the name in its certificate.
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

    /// True if it has more than one address.
    #[must_use]
    pub fn has_several_addresses(&self) -> bool {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).len() > 1
    }

    /// The current addresses.
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
        // RFC 9110 section 5.6.7: the current format, and two obsolete ones.
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
    fn addresses_are_those_that_users_give() {
        assert_eq!(address("b", "k/x"), "s3://b/k/x");
        assert_eq!(address("https://h:1", "k/x"), "https://h:1/k/x");
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
