//! What a gzip file holds, while its bytes come in pieces of any length.
//!
//! A file is one member after the other and nothing else (RFC 1952): bytes behind the last member
//! are an error, and so are zeros, with which gzip(1) lets tapes be filled up. A file that was
//! allocated and not written to its end looks just like that.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

/// What every member begins with.
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Base-two logarithm of the longest window that deflate has (RFC 1951).
const WINDOW_BITS: u8 = 15;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// Its first bytes are not those of a member: this one.
    NotGzip(u8),
    /// Nor are the bytes behind a member: this one.
    Behind(u8),
    /// It ends before its last member does.
    Truncated,
    /// Another sum was stored (CRC32).
    Sum,
    /// Another length was stored (ISIZE).
    Length,
    /// Anything else, in the words of zlib.
    Damaged(String),
}

/// What is wrong, and where in the file that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Bytes of the file before that.
    pub offset: u64,
    /// What it is.
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

/// What became of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inflated {
    /// Bytes of the input that were taken.
    pub taken: usize,
    /// Bytes of the output that were written, before what is wrong.
    pub written: usize,
    /// What is wrong with the file.
    pub result: Result<(), Fault>,
}

/// A file that is inflated. After a [`Fault`] it is of no use.
#[derive(Debug, Default)]
pub struct Gunzip {
    /// The member that has begun.
    member: Option<Decompress>,
    /// Of that one, or of the next, in bytes.
    begins_at: u64,
    /// Bytes that were taken.
    offset: u64,
    members: u64,
    is_pending: bool,
}

impl Gunzip {
    /// Inflates bytes until there are no more, or the output is full.
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

    /// Looks at the first bytes of a member: zlib would say less of them.
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

    /// True when the output was full: there may be more without any further input.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// The file ends here. One without bytes holds nothing.
    ///
    /// # Errors
    /// When it ends within a member.
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

    /// Bytes that do not repeat soon, some of which deflate makes shorter.
    fn plain(length: usize) -> Vec<u8> {
        let mut state = 9u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(state >> 25).expect("seven bits")
        };
        (0..length).map(|at| if at % 64 < 40 { b'a' } else { next() }).collect()
    }

    /// Inflates pieces into an output of this length at a time; all that was written, and how it
    /// ended.
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

    /// Three members, the second of which holds nothing, and what they hold.
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
    fn a_file_that_is_cut_short_is_told() {
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
    fn a_wrong_bit_is_told_or_changes_nothing() {
        let (file, wanted, _) = members();
        let mut told = 0;
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut file = file.clone();
                file[at] ^= 1 << bit;
                let (got, end) = whole(&file);
                assert!(end.is_err() || got == wanted, "bit {bit} of byte {at}");
                assert_eq!(end.is_err(), pieces(file.chunks(1), 7).1.is_err(), "{bit} of {at}");
                let is_near = |fault: &Fault| fault.offset <= file.len() as u64;
                assert!(end.as_ref().err().is_none_or(is_near));
                told += u32::from(end.is_err());
            }
        }
        assert!(told as usize > file.len() * 6, "{told}");
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
        // Each member ends with a sum and a length of four bytes. zlib takes each whole.
        check(&changed(first - 8), &text(first - 4, "CRC-32"));
        check(&changed(first - 4), &text(first, "length"));
        for behind in [&[0u8; 3][..], b"\0", b"garbage"] {
            let byte = behind[0];
            let told =
                format!("bytes that are no gzip follow its last member: byte {end} is {byte:#04x}");
            check(&[&file, behind].concat(), &told);
        }
        let told = format!("it is truncated: after {} bytes it ends within a gzip member", end + 1);
        check(&[&file[..], &[0x1f]].concat(), &told);
        let told = "its data is corrupt near byte 4: unknown compression method";
        check(b"\x1f\x8b\x07\0", told);
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
