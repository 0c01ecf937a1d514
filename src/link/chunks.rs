//! Decodes bodies in chunks (`Transfer-Encoding: chunked`, RFC 9112 section 7.1) in place, from
//! pieces of any length.
//!
//! As lenient as the AWS CLI's Python: a line may end without CR; extensions and trailers are
//! skipped.

use crate::limits::{CHUNK_DIGITS_MAX, CHUNK_FRAMING_BYTES_MAX};

/// Position of the next byte within the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// In the digits of a chunk's length.
    Length { digits: u32, value: u64 },
    /// After the digits, in the same line.
    Extension { value: u64 },
    /// In a chunk's bytes, of which `left` are still to come.
    Bytes { left: u64 },
    /// In the line end after a chunk's bytes.
    LineEnd,
    /// In a line after the last chunk.
    Trailer { is_empty: bool },
    /// After the body.
    End,
    /// The bytes are not a valid chunked body.
    Damaged,
}

/// Decodes one body from pieces of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    place: Position,
    /// Consecutive bytes that were framing, not body.
    framing_bytes: u32,
}

impl Chunks {
    /// The state at the beginning of a body.
    pub const BEGIN: Self =
        Self { place: Position::Length { digits: 0, value: 0 }, framing_bytes: 0 };

    /// True when the body is complete.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.place == Position::End
    }

    /// True when the bytes are not a valid chunked body, or continue after its end.
    #[must_use]
    pub fn is_damaged(self) -> bool {
        self.place == Position::Damaged
    }

    /// Moves the body bytes to the front of `bytes`; returns their number.
    pub fn decode(&mut self, bytes: &mut [u8]) -> u32 {
        let (mut at, mut decoded) = (0, 0);
        while at < bytes.len() {
            if let Position::Bytes { left } = self.place {
                let length = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                bytes.copy_within(at..at + length, decoded);
                (at, decoded) = (at + length, decoded + length);
                let left = left - length as u64;
                self.place = if left == 0 { Position::LineEnd } else { Position::Bytes { left } };
                self.framing_bytes = 0;
                continue;
            }
            self.framing_bytes += 1;
            let is_endless = self.framing_bytes > CHUNK_FRAMING_BYTES_MAX;
            self.place = if is_endless { Position::Damaged } else { self.place.after(bytes[at]) };
            if self.place == Position::Damaged {
                break;
            }
            at += 1;
        }
        u32::try_from(decoded).expect("a buffer's length")
    }
}

impl Position {
    /// The position after a byte of framing.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Length { digits, value }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).expect("a hexadecimal digit");
                match digits < CHUNK_DIGITS_MAX {
                    true => {
                        Self::Length { digits: digits + 1, value: value << 4 | u64::from(digit) }
                    }
                    false => Self::Damaged,
                }
            }
            (Self::Length { digits: 1.., value: 0 } | Self::Extension { value: 0 }, b'\n') => {
                Self::Trailer { is_empty: true }
            }
            (
                Self::Length { digits: 1.., value: left } | Self::Extension { value: left },
                b'\n',
            ) => Self::Bytes { left },
            (Self::Length { digits: 1.., value }, b'\r' | b';' | b' ' | b'\t')
            | (Self::Extension { value }, _) => Self::Extension { value },
            (Self::LineEnd, b'\r') => Self::LineEnd,
            (Self::LineEnd, b'\n') => Self::Length { digits: 0, value: 0 },
            (Self::Trailer { is_empty: true }, b'\n') => Self::End,
            (Self::Trailer { is_empty }, b'\r') => Self::Trailer { is_empty },
            (Self::Trailer { .. }, byte) => Self::Trailer { is_empty: byte == b'\n' },
            _ => Self::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Body and decoder after pieces that end at these offsets.
    fn decoded(bytes: &[u8], ends: &[usize]) -> (Vec<u8>, Chunks) {
        let (mut chunks, mut body, mut begin) = (Chunks::BEGIN, Vec::new(), 0);
        for end in ends.iter().copied().chain([bytes.len()]) {
            let mut piece = bytes[begin..end].to_vec();
            let count = chunks.decode(&mut piece);
            body.extend_from_slice(&piece[..count as usize]);
            begin = end;
        }
        (body, chunks)
    }

    #[test]
    fn every_split_gives_the_same_body() {
        for text in [
            "5\r\nhello\r\n1\r\n \r\n005\r\nworld\r\n0\r\n\r\n",
            "B;name=\"a\r\"\r\nhello world\r\n0;last\r\nExpires: never\r\nX: y\r\n\r\n",
            "b \nhello world\n0\n\n",
        ] {
            let bytes = text.as_bytes();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let (body, chunks) = decoded(bytes, &[first, second]);
                    assert_eq!(body, b"hello world", "{text:?} {first} {second}");
                    assert!(chunks.is_complete() && !chunks.is_damaged(), "{text:?}");
                }
            }
            for end in 0..bytes.len() {
                let (_, chunks) = decoded(&bytes[..end], &[]);
                assert!(!chunks.is_complete() && !chunks.is_damaged(), "{text:?} to {end}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_damaged_for_good() {
        let long = format!("1;{}", "x".repeat(CHUNK_FRAMING_BYTES_MAX as usize));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(CHUNK_FRAMING_BYTES_MAX as usize / 5));
        for (text, body) in [
            ("\r\n", ""),
            (";\r\n", ""),
            ("-1\r\n", ""),
            ("0x5\r\nhello", ""),
            ("10000000000000000\r\n", ""),
            ("5\r\nhello5\r\nworld", "hello"),
            ("0\r\n\r\nmore", ""),
            (&long, ""),
            (&trailers, ""),
        ] {
            let (seen, mut chunks) = decoded(text.as_bytes(), &[]);
            assert!(chunks.is_damaged() && seen == body.as_bytes(), "{text:.20?}");
            assert_eq!(chunks.decode(&mut b"5\r\nhello\r\n0\r\n\r\n".to_vec()), 0, "{text:.20?}");
            assert!(chunks.is_damaged() && !chunks.is_complete(), "{text:.20?}");
        }
        let (_, chunks) = decoded(b"ffffffffffffffff\r\nx", &[]);
        assert!(!chunks.is_damaged(), "the longest there is");
    }
}
