//! Decompresses a gzip file whose bytes arrive in pieces of any length.
//!
//! A file consists of members and nothing else (RFC 1952): bytes after the last member are an
//! error. So are zeros, which gzip(1) allows as tape padding, because a file that was allocated and
//! not written to its end looks the same.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

/// First bytes of every member.
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Base-two logarithm of deflate's longest window (RFC 1951).
const WINDOW_BITS: u8 = 15;

/// A defect of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin with a member but with this byte.
    NotGzip(u8),
    /// This byte, which is no member, follows a member.
    Behind(u8),
    /// It ends within a member.
    Truncated,
    /// The stored CRC-32 differs.
    Sum,
    /// The stored length (ISIZE) differs.
    Length,
    /// Any other defect, in zlib's words.
    Damaged(String),
}

/// A defect and its position in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Bytes of the file before it.
    pub offset: u64,
    /// The defect.
    pub wrong: Wrong,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match &self.wrong {
            Wrong::NotGzip(byte) => write!(f, "it is not gzip: byte {offset} is {byte:#04x}"),
            Wrong::Behind(byte) => write!(
                f,
                "bytes that are no gzip follow its last member: byte {offset} is {byte:#04x}"
            ),
            Wrong::Truncated => {
                write!(f, "it is truncated: after {offset} bytes it ends within a gzip member")
            }
            Wrong::Sum => {
                write!(f, "its data is corrupt: the CRC-32 of the member before byte {offset}")?;
                f.write_str(" does not match")
            }
            Wrong::Length => {
                write!(f, "its data is corrupt: the length of the member before byte {offset}")?;
                f.write_str(" does not match")
            }
            Wrong::Damaged(why) => write!(f, "its data is corrupt near byte {offset}: {why}"),
        }
    }
}

/// Result of inflating a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inflated {
    /// Bytes of the input consumed.
    pub taken: usize,
    /// Bytes of the output written, before the defect.
    pub written: usize,
    /// The defect, if any.
    pub result: Result<(), Fault>,
}

/// A file being inflated. Unusable after a [`Fault`].
#[derive(Debug, Default)]
pub struct Gunzip {
    /// The current member.
    member: Option<Decompress>,
    /// Offset of the current member, or of the next one, in bytes.
    begins_at: u64,
    /// Bytes consumed.
    offset: u64,
    members: u64,
    is_pending: bool,
}

impl Gunzip {
    /// Inflates until the input is used up or the output is full.
    pub fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Inflated {
        let (mut taken, mut written) = (0, 0);
        let result = loop {
            if self.member.is_none() && taken == input.len() {
                break Ok(());
            }
            if let Err(fault) = self.check_magic(&input[taken..]) {
                break Err(fault);
            }
            let member = self.member.get_or_insert_with(|| Decompress::new_gzip(WINDOW_BITS));
            let (before_in, before_out) = (member.total_in(), member.total_out());
            let (given, room) = (&input[taken..], &mut output[written..]);
            let outcome = member.decompress(given, room, FlushDecompress::None);
            let took = member.total_in() - before_in;
            let wrote = member.total_out() - before_out;
            self.offset += took;
            taken += usize::try_from(took).expect("of a slice");
            written += usize::try_from(wrote).expect("of a slice");
            let wrong = match outcome {
                Ok(Status::StreamEnd) => {
                    self.member = None;
                    self.begins_at = self.offset;
                    self.members += 1;
                    continue;
                }
                Ok(_) if written == output.len() || taken == input.len() => break Ok(()),
                Ok(_) if took + wrote > 0 => continue,
                Ok(_) => Wrong::Damaged("zlib does not go on".to_owned()),
                Err(error) => match error.message() {
                    Some("incorrect data check") => Wrong::Sum,
                    Some("incorrect length check") => Wrong::Length,
                    Some(why) => Wrong::Damaged(why.to_owned()),
                    None => Wrong::Damaged(error.to_string()),
                },
            };
            break Err(Fault { offset: self.offset, wrong });
        };
        self.is_pending = written == output.len() && self.member.is_some();
        Inflated { taken, written, result }
    }

    /// Checks the first bytes of a member: zlib's error would say less.
    fn check_magic(&self, input: &[u8]) -> Result<(), Fault> {
        let seen = self.offset - self.begins_at;
        let rest = MAGIC.iter().skip(usize::try_from(seen).unwrap_or(usize::MAX));
        for ((expected, found), offset) in rest.zip(input).zip(self.offset..) {
            if expected != found {
                let wrong = match self.members {
                    0 => Wrong::NotGzip(*found),
                    _ => Wrong::Behind(*found),
                };
                return Err(Fault { offset, wrong });
            }
        }
        Ok(())
    }

    /// True if the output was full: there may be more without further input.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Ends the file. An empty file holds nothing.
    ///
    /// # Errors
    /// If it ends within a member.
    pub fn finish(&self) -> Result<(), Fault> {
        match self.member {
            None => Ok(()),
            Some(_) => Err(Fault { offset: self.offset, wrong: Wrong::Truncated }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, GzBuilder};

    use super::*;

    /// A member with every part that a header may have.
    fn member(plain: &[u8], level: u32) -> Vec<u8> {
        let header = GzBuilder::new().filename("name").comment("words").extra([7; 5]).mtime(9);
        let mut encoder = header.write(Vec::new(), Compression::new(level));
        encoder.write_all(plain).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Bytes that do not repeat soon, some of which deflate shortens.
    fn plain(length: usize) -> Vec<u8> {
        let mut state = 9u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(state >> 25).expect("seven bits")
        };
        (0..length).map(|at| if at % 64 < 40 { b'a' } else { next() }).collect()
    }

    /// Inflates pieces into an output of this length at a time; returns everything written, and the
    /// result.
    fn pieces<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        room: usize,
    ) -> (Vec<u8>, Result<(), Fault>) {
        let (mut gunzip, mut all, mut output) = (Gunzip::default(), Vec::new(), vec![0; room]);
        for mut piece in pieces {
            while !piece.is_empty() || gunzip.is_pending() {
                let Inflated { taken, written, result } = gunzip.inflate(piece, &mut output);
                all.extend_from_slice(&output[..written]);
                if result.is_err() {
                    return (all, result);
                }
                assert!(taken + written > 0 || !gunzip.is_pending(), "it goes on");
                piece = &piece[taken..];
            }
        }
        (all, gunzip.finish())
    }

    fn whole(file: &[u8]) -> (Vec<u8>, Result<(), Fault>) {
        pieces([file], 1 << 16)
    }

    /// Three members, the second of them empty, and their content.
    fn members() -> (Vec<u8>, Vec<u8>, [usize; 3]) {
        let (first, last) = (plain(700), plain(300));
        let members = [member(&first, 6), member(&[], 6), member(&last, 0)];
        let ends = [0, 1, 2].map(|last| members[..=last].iter().map(Vec::len).sum());
        (members.concat(), [first, last].concat(), ends)
    }

    #[test]
    fn a_file_is_the_same_however_it_is_cut() {
        let (file, wanted, _) = members();
        for at in 0..=file.len() {
            let (head, tail) = file.split_at(at);
            for room in [1, 3, 1000, 4096] {
                let (got, end) = pieces([head, tail], room);
                assert!(got == wanted && end == Ok(()), "cut at {at}, {room} at a time: {end:?}");
            }
        }
        for length in [1, 2, 7] {
            assert_eq!(pieces(file.chunks(length), 5), (wanted.clone(), Ok(())), "{length}");
        }
        assert_eq!(whole(&[]), (Vec::new(), Ok(())), "nothing holds nothing");
    }

    #[test]
    fn a_file_that_is_cut_short_is_reported() {
        let (file, wanted, ends) = members();
        for length in 1..file.len() {
            for pieces in [pieces([&file[..length]], 4096), pieces(file[..length].chunks(1), 9)] {
                let (got, end) = pieces;
                assert!(wanted.starts_with(&got), "cut at {length}");
                let offset = length as u64;
                let expected = match ends.contains(&length) {
                    // A file of fewer members.
                    true => Ok(()),
                    false => Err(Fault { offset, wrong: Wrong::Truncated }),
                };
                assert_eq!(end, expected, "cut at {length}");
            }
        }
    }

    #[test]
    fn a_wrong_bit_is_reported_or_changes_nothing() {
        let (file, wanted, _) = members();
        let mut errors = 0;
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut file = file.clone();
                file[at] ^= 1 << bit;
                let (got, end) = whole(&file);
                assert!(end.is_err() || got == wanted, "bit {bit} of byte {at}");
                assert_eq!(end.is_err(), pieces(file.chunks(1), 7).1.is_err(), "{bit} of {at}");
                let is_near = |fault: &Fault| fault.offset <= file.len() as u64;
                assert!(end.as_ref().err().is_none_or(is_near));
                errors += u32::from(end.is_err());
            }
        }
        assert!(errors as usize > file.len() * 6, "{errors}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let (file, _, ends) = members();
        let check = |file: &[u8], expected: &str| {
            for (_, end) in [whole(file), pieces(file.chunks(1), 7)] {
                assert_eq!(end.expect_err("a fault").to_string(), expected);
            }
        };
        let changed = |at: usize| {
            let mut file = file.clone();
            file[at] ^= 0x40;
            file
        };
        check(b"PK", "it is not gzip: byte 0 is 0x50");
        check(b"\x1f\x9d", "it is not gzip: byte 1 is 0x9d");
        let [first, .., end] = ends;
        let text = |end: usize, what: &str| {
            format!(
                "its data is corrupt: the {what} of the member before byte {end} does not match"
            )
        };
        // Each member ends with a CRC and a length of four bytes. zlib reads each whole.
        check(&changed(first - 8), &text(first - 4, "CRC-32"));
        check(&changed(first - 4), &text(first, "length"));
        for behind in [&[0u8; 3][..], b"\0", b"garbage"] {
            let byte = behind[0];
            let expected =
                format!("bytes that are no gzip follow its last member: byte {end} is {byte:#04x}");
            check(&[&file, behind].concat(), &expected);
        }
        let expected =
            format!("it is truncated: after {} bytes it ends within a gzip member", end + 1);
        check(&[&file[..], &[0x1f]].concat(), &expected);
        let expected = "its data is corrupt near byte 4: unknown compression method";
        check(b"\x1f\x8b\x07\0", expected);
    }

    #[test]
    fn a_file_of_zeros_is_inflated_piece_by_piece() {
        let file = member(&vec![0; 3 << 20], 9);
        assert!(file.len() < 4096);
        let mut gunzip = Gunzip::default();
        let mut output = vec![1; 1 << 16];
        let Inflated { mut taken, written, result } = gunzip.inflate(&file, &mut output);
        assert!(written == output.len() && result == Ok(()) && gunzip.is_pending());
        let mut all = written;
        while taken < file.len() || gunzip.is_pending() {
            let step = gunzip.inflate(&file[taken..], &mut output);
            assert!(output[..step.written].iter().all(|byte| *byte == 0) && step.result == Ok(()));
            (taken, all) = (taken + step.taken, all + step.written);
        }
        assert_eq!((all, gunzip.finish()), (3 << 20, Ok(())));
    }
}
