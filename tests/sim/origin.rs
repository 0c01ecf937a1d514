//! The simulated origin: answers that are right, and answers that are wrong in every known way.

use inrush::checksum::{Algorithm, Form, Stored, Sum};

use super::chance::Chance;
use super::seeds;

/// What goes wrong with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is reset after some bytes.
    Reset,
    /// The connection ends after some bytes.
    End,
    /// No more bytes come, and no end.
    Stall,
    /// 500 with a body.
    ServerError,
    /// 503 with a body in chunks.
    SlowDown,
    /// Content-Range of another range.
    WrongRange,
    /// A length that does not fit.
    WrongLength,
    /// Something that is not HTTP.
    Garbage,
    /// The answer is right and the connection is closed after it.
    CloseAfter,
    /// A kept connection turns out to be closed.
    Stale,
    /// 403, which does not get better.
    Denied,
    /// Another ETag: another version.
    OtherEtag,
    /// One bit of the body is wrong.
    WrongBit,
    /// 503 because of the rate of requests; the connection is kept.
    TooMany,
    /// 307 to a node that has the object.
    Redirect,
    /// 404 of a node that has it no longer.
    Gone,
    /// 400: the session token has expired.
    ExpiredKeys,
    /// 403: the clocks differ.
    ClockSkew,
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::End => "end",
            Self::Stall => "stall",
            Self::ServerError => "server error",
            Self::SlowDown => "slow down",
            Self::WrongRange => "wrong range",
            Self::WrongLength => "wrong length",
            Self::Garbage => "garbage",
            Self::CloseAfter => "close after",
            Self::Stale => "stale",
            Self::Denied => "denied",
            Self::OtherEtag => "other etag",
            Self::WrongBit => "wrong bit in a body",
            Self::TooMany => "too many requests",
            Self::Redirect => "redirect",
            Self::Gone => "node without the object",
            Self::ExpiredKeys => "expired keys",
            Self::ClockSkew => "clock skew",
        }
    }
}

/// How often things go wrong, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    /// Network faults that a retry heals.
    pub(crate) network_per_mille: u64,
    /// Connects that never complete.
    pub(crate) hang_per_mille: u64,
    /// Answers that no retry heals.
    pub(crate) fatal_per_mille: u64,
    /// File system errors.
    pub(crate) disk_per_mille: u64,
    /// Wrong bits, which only a checksum detects.
    pub(crate) flip_per_mille: u64,
    /// Calls of the file system that take long, and times when the process is stopped.
    pub(crate) pause_per_mille: u64,
    /// Requests that a gateway redirects to a node.
    pub(crate) redirect_per_mille: u64,
    /// Answers that object to the keys or the clock.
    pub(crate) keys_per_mille: u64,
}

impl Rates {
    /// Draws what goes wrong with one answer.
    pub(crate) fn draw(&self, chance: &mut Chance, kept: bool, is_node: bool) -> Option<Fault> {
        if chance.hits(self.fatal_per_mille) {
            return Some(if chance.hits(500) { Fault::Denied } else { Fault::OtherEtag });
        }
        // Drawn only where it can be: the seeds of the other runs stay what they are.
        if self.flip_per_mille > 0 && chance.hits(self.flip_per_mille) {
            return Some(Fault::WrongBit);
        }
        if self.keys_per_mille > 0 && chance.hits(self.keys_per_mille) {
            return Some(if chance.hits(500) { Fault::ExpiredKeys } else { Fault::ClockSkew });
        }
        let detour_per_mille = self.redirect_per_mille / if is_node { 8 } else { 1 };
        if detour_per_mille > 0 && chance.hits(detour_per_mille) {
            return Some(if is_node { Fault::Gone } else { Fault::Redirect });
        }
        if !chance.hits(self.network_per_mille * 4) {
            return None;
        }
        let faults = [
            Fault::Reset,
            Fault::End,
            Fault::Stall,
            Fault::ServerError,
            Fault::SlowDown,
            Fault::WrongRange,
            Fault::WrongLength,
            Fault::Garbage,
            Fault::CloseAfter,
            if kept { Fault::Stale } else { Fault::CloseAfter },
        ];
        let index = usize::try_from(chance.below(faults.len() as u64)).expect("small");
        Some(faults[index])
    }
}

/// The bytes of an object: a pure function of its key, different for neighbours and keys.
pub(crate) fn object_bytes(key: &str, size: u64) -> Vec<u8> {
    let salt = key.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    let word = |index: u64| (index ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let length = usize::try_from(size).expect("small");
    let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(length);
    bytes
}

/// The ETag of an object.
pub(crate) fn etag(key: &str) -> String {
    format!("\"{key}\"")
}

/// Size of an object: the number in its key, behind the last dash.
pub(crate) fn size(key: &str) -> u64 {
    let size = key.trim_end_matches('/').rsplit('-').next().expect("a size");
    size.parse().expect("a number")
}

/// What the origin stores of an object in parts or in one piece, to sum its pieces for.
pub(crate) fn sum(model: &[u8], chance: &mut Chance) -> Sum {
    let algorithm = Algorithm::Crc64Nvme;
    let size = model.len() as u64;
    let part = 1 + chance.below(size + 1);
    let length = usize::try_from(part).expect("small");
    let digests = model.chunks(length).flat_map(|part| algorithm.digest(part).bytes().to_vec());
    let digests: Vec<u8> = digests.collect();
    let parts = u32::try_from(size.div_ceil(part)).expect("few");
    let (form, digest) = match parts <= 10_000 && chance.hits(500) {
        true => (Form::Composite { parts }, algorithm.digest(&digests)),
        false => (Form::FullObject, algorithm.digest(model)),
    };
    Sum::new(Stored { algorithm, form, digest }, size, part).expect("a CRC")
}

/// An answer of S3 that refuses; its connection is kept.
fn refusal(status: u16, code: &str) -> Vec<u8> {
    let xml = format!("<Error><Code>{code}</Code></Error>");
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{xml}", xml.len()).into_bytes()
}

/// Appends a body: as it is, or in chunks of lengths that are as odd as that number.
fn extend(bytes: &mut Vec<u8>, mut body: &[u8], odd: Option<usize>) {
    let Some(odd) = odd else { return bytes.extend_from_slice(body) };
    for at in 0.. {
        let length = 1 + (odd + at * 997) % 9_000;
        let (chunk, rest) = body.split_at(length.min(body.len()));
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        if chunk.is_empty() {
            return;
        }
        body = rest;
    }
}

/// The answer to `key first-last\n` or `key \n`, and where it breaks off.
pub(crate) fn answer(
    request: &str,
    model: &[u8],
    fault: Option<Fault>,
    chance: &mut Chance,
) -> (Vec<u8>, Option<(usize, Fault)>) {
    let (key, range) = request.trim_end_matches('\n').split_once(' ').expect("a request");
    let size = size(key);
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (first.parse().expect("first"), last.parse().expect("last")),
        None => (0, size - 1),
    };
    let (first, last): (u64, u64) = (first, last);
    match fault {
        Some(Fault::ServerError) => {
            return (b"HTTP/1.1 500 E\r\nContent-Length: 4\r\n\r\noops".to_vec(), None);
        }
        Some(Fault::TooMany) => return (refusal(503, "SlowDown"), None),
        Some(Fault::SlowDown) if chance.hits(500) => {
            // The connection is kept.
            return (refusal(503, "SlowDown"), None);
        }
        Some(Fault::SlowDown) => {
            seeds::note("slow down in chunks", 1);
            let body = "HTTP/1.1 503 S\r\nTransfer-Encoding: chunked\r\n\r\n\
                29\r\n<Error><Code>SlowDown</Code></Error>     \r\n0\r\n\r\n";
            return (body.as_bytes().to_vec(), None);
        }
        Some(Fault::Denied) => return (refusal(403, "AccessDenied"), None),
        Some(Fault::Gone) => return (refusal(404, "NoSuchKey"), None),
        Some(Fault::ExpiredKeys) => return (refusal(400, "ExpiredToken"), None),
        Some(Fault::ClockSkew) => return (refusal(403, "RequestTimeTooSkewed"), None),
        Some(Fault::Garbage) => return (b"220 smtp.example.org ESMTP\r\n\r\n".to_vec(), None),
        Some(Fault::Stale) => return (Vec::new(), Some((0, Fault::End))),
        _ => {}
    }
    let shift = u64::from(fault == Some(Fault::WrongRange));
    let longer = u64::from(fault == Some(Fault::WrongLength));
    let tag = if fault == Some(Fault::OtherEtag) { "\"other\"".to_owned() } else { etag(key) };
    let close = if fault == Some(Fault::CloseAfter) { "Connection: close\r\n" } else { "" };
    let status = if range.is_empty() { "200 OK" } else { "206 Partial Content" };
    let mut head = format!("HTTP/1.1 {status}\r\nETag: {tag}\r\n{close}");
    if !range.is_empty() {
        let (first, last) = (first + shift, last + shift);
        head += &format!("Content-Range: bytes {first}-{last}/{}\r\n", size + shift * 2);
    }
    // Some of those that are right as far as they go.
    let is_right = matches!(fault, Some(Fault::Reset | Fault::End | Fault::CloseAfter));
    let is_chunked = is_right && (first + size) % 2 == 1;
    let length = last - first + 1 + longer + if range.is_empty() { shift } else { 0 };
    seeds::note("answer in chunks", u64::from(is_chunked));
    head += &match is_chunked {
        true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        false => format!("Content-Length: {length}\r\n\r\n"),
    };
    if range.is_empty() {
        let digest = Algorithm::Crc64Nvme.digest(model);
        head = head.replace("\r\n\r\n", &format!("\r\nx-amz-checksum-crc64nvme: {digest}\r\n\r\n"));
    }
    let mut bytes = head.into_bytes();
    let body = bytes.len();
    let index = |offset: u64| usize::try_from(offset).expect("small");
    let odd = is_chunked.then(|| index(first));
    extend(&mut bytes, &model[index(first)..=index(last)], odd);
    if fault == Some(Fault::WrongBit) {
        let length = (bytes.len() - body) as u64;
        let at = body + usize::try_from(chance.below(length)).expect("small");
        bytes[at] ^= 1 << chance.below(8);
    }
    let end = match fault {
        Some(broken @ (Fault::Reset | Fault::End | Fault::Stall)) => {
            let cut = chance.below(bytes.len() as u64);
            Some((usize::try_from(cut).expect("small"), broken))
        }
        _ => None,
    };
    (bytes, end)
}
