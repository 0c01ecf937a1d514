//! The words of S3: objects, byte ranges, endpoints; and requests as bytes. No I/O, no clock.

pub mod answer;
pub mod list;
pub mod sign;
pub mod uri;

use std::net::SocketAddr;
use std::sync::RwLock;

/// One object as a listing or a HEAD told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The key, decoded, as S3 keeps it (UTF-8, at most 1,024 bytes).
    pub key: String,
    /// The entity tag with its quotes, as it goes into `If-Match`; empty when the origin gave none.
    pub etag: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// When it was last written: ISO 8601 as the listing gives it; empty when the origin gave none.
    pub last_modified: String,
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
    /// All addresses that name resolution gave; never empty. The control plane refreshes them.
    pub addresses: RwLock<Vec<SocketAddr>>,
}
