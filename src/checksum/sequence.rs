//! Computes the checksum of an object whose bytes arrive in order, for any algorithm and form.

use super::{Algorithm, Digest, Form, Hasher, Mismatch, Stored};

/// How to compute a stored checksum from bytes in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InOrder {
    stored: Stored,
    /// Length of each part but the last; 0 if all bytes are one part.
    part_bytes: u64,
}

impl InOrder {
    /// For an object whose bytes are all one part.
    #[must_use]
    pub fn of_one_piece(stored: Stored) -> Self {
        Self { stored, part_bytes: 0 }
    }

    /// `None` if the object was uploaded in parts of unknown lengths.
    #[must_use]
    pub fn new(stored: Stored, part_bytes: u64) -> Option<Self> {
        match stored.form {
            Form::Composite { parts: 2.. } if part_bytes == 0 => None,
            Form::Composite { parts: 2.. } => Some(Self { stored, part_bytes }),
            Form::Composite { .. } | Form::FullObject | Form::Etag => {
                Some(Self::of_one_piece(stored))
            }
        }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.stored.algorithm
    }

    /// True if it covers several parts.
    #[must_use]
    pub fn is_of_parts(&self) -> bool {
        self.part_bytes > 0
    }

    /// True if it is an ETag, which need not be a checksum.
    #[must_use]
    pub fn is_etag(&self) -> bool {
        self.stored.form == Form::Etag
    }
}

/// Computes a checksum, and compares it with the stored one.
#[derive(Debug)]
pub struct Sequence {
    goal: InOrder,
    hasher: Hasher,
    /// Bytes of the current part so far.
    in_part: u64,
    /// Digests of the complete parts.
    digests: Vec<u8>,
}

impl Sequence {
    /// A sequence that has seen no bytes.
    #[must_use]
    pub fn new(goal: InOrder) -> Self {
        let hasher = Hasher::new(goal.algorithm());
        Self { goal, hasher, in_part: 0, digests: Vec::new() }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.goal.algorithm()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let part_bytes = self.goal.part_bytes;
        if part_bytes == 0 {
            return self.hasher.update(bytes);
        }
        while !bytes.is_empty() {
            // A part ends when the next one begins, since the last one ends with the object.
            if self.in_part == part_bytes {
                self.end_part();
            }
            let room = usize::try_from(part_bytes - self.in_part).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(room.min(bytes.len()));
            self.hasher.update(piece);
            self.in_part += piece.len() as u64;
            bytes = rest;
        }
    }

    fn end_part(&mut self) {
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(self.goal.algorithm()));
        self.digests.extend_from_slice(hasher.finish().bytes());
        self.in_part = 0;
    }

    /// Compares the checksum with the stored one.
    ///
    /// # Errors
    /// If they differ.
    pub fn finish(mut self) -> Result<(), Mismatch> {
        let stored = self.goal.stored;
        if self.goal.part_bytes == 0 {
            return stored.check(self.hasher.finish());
        }
        self.end_part();
        let computed: Digest = stored.algorithm.digest(&self.digests);
        stored.compare(computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_pieces() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * 7 % 251) as u8).collect();
        for algorithm in Algorithm::ALL {
            for part in [1, 100, 300, 500, 999] {
                let digests: Vec<u8> = bytes
                    .chunks(part)
                    .flat_map(|part| algorithm.digest(part).bytes().to_vec())
                    .collect();
                let parts = u32::try_from(bytes.len().div_ceil(part)).expect("few");
                let (form, digest) = (Form::Composite { parts }, algorithm.digest(&digests));
                let composite = Stored { algorithm, form, digest };
                let digest = algorithm.digest(&bytes);
                let full = Stored { algorithm, form: Form::FullObject, digest };
                for (stored, part) in [(composite, part as u64), (full, part as u64), (full, 0)] {
                    let goal = InOrder::new(stored, part).expect("its parts are known");
                    for piece in [1, 7, 100, 1000] {
                        let fed = |wrong: bool| {
                            let mut bytes = bytes.clone();
                            bytes[667] ^= u8::from(wrong);
                            let mut sequence = Sequence::new(goal);
                            bytes.chunks(piece).for_each(|piece| sequence.update(piece));
                            sequence.finish()
                        };
                        assert_eq!(fed(false), Ok(()), "{stored:?} {part} {piece}");
                        assert!(fed(true).is_err(), "{stored:?} {part} {piece}");
                    }
                }
                assert_eq!(InOrder::new(composite, 0), None);
            }
        }
    }
}
