//! The simulated origin: answers that are right, and answers that are wrong in every known way.

use super::world::Chance;

/// What goes wrong with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
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
}

impl Fault {
    pub fn name(self) -> &'static str {
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
        }
    }
}

/// How often things go wrong, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// Network faults that a retry heals.
    pub network_per_mille: u64,
    /// Connects that never complete.
    pub hang_per_mille: u64,
    /// Answers that no retry heals.
    pub fatal_per_mille: u64,
    /// File system errors.
    pub disk_per_mille: u64,
}

impl Rates {
    /// Draws what goes wrong with one answer.
    pub fn draw(&self, chance: &mut Chance, kept: bool) -> Option<Fault> {
        if chance.hits(self.fatal_per_mille) {
            return Some(if chance.hits(500) { Fault::Denied } else { Fault::OtherEtag });
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

/// Byte `offset` of an object: a pure function, different for neighbours and keys.
pub fn object_byte(key: &str, offset: u64) -> u8 {
    let salt = key.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    let mixed = (offset ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u8::try_from(mixed >> 56).expect("eight bits")
}

/// The ETag of an object.
pub fn etag(key: &str) -> String {
    format!("\"{key}\"")
}

/// Size of an object: it stands in its key, behind the last dash.
pub fn size(key: &str) -> u64 {
    key.rsplit('-').next().expect("a size").parse().expect("a number")
}

/// The answer to `key first-last\n` or `key \n`, and where it breaks off.
pub fn answer(
    request: &str,
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
        Some(Fault::ServerError) => return (b"HTTP/1.1 500 E\r\nContent-Length: 4\r\n\r\noops".to_vec(), None),
        Some(Fault::SlowDown) => {
            let body = "HTTP/1.1 503 S\r\nTransfer-Encoding: chunked\r\n\r\n\
                29\r\n<Error><Code>SlowDown</Code></Error>     \r\n0\r\n\r\n";
            return (body.as_bytes().to_vec(), None);
        }
        Some(Fault::Denied) => {
            let xml = "<Error><Code>AccessDenied</Code></Error>";
            let text = format!("HTTP/1.1 403 F\r\nContent-Length: {}\r\n\r\n{xml}", xml.len());
            return (text.into_bytes(), None);
        }
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
    head += &format!("Content-Length: {}\r\n\r\n", last - first + 1 + longer + if range.is_empty() { shift } else { 0 });
    let mut bytes = head.into_bytes();
    bytes.extend((first..=last).map(|offset| object_byte(key, offset)));
    let end = match fault {
        Some(broken @ (Fault::Reset | Fault::End | Fault::Stall)) => {
            let cut = chance.below(bytes.len() as u64);
            Some((usize::try_from(cut).expect("small"), broken))
        }
        _ => None,
    };
    (bytes, end)
}
