//! The verification of one object: what its bytes are compared with, and the result.

use std::sync::OnceLock;

use super::{Algorithm, InOrder, Stored, Sum, etag_md5, unverified};

/// How to use the checksum in the answer to a whole object's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerCheck {
    /// An answer without a checksum is an error.
    pub strict: bool,
    /// The ETag as an MD5, as a fallback.
    pub etag: Option<Stored>,
}

impl AnswerCheck {
    /// The checksum to compare the body with: the answer's, or else the ETag unless the server
    /// encrypts with keys that make it no MD5.
    ///
    /// # Errors
    /// Why there is none.
    pub fn basis(
        &self,
        answered: Result<Stored, &'static str>,
        opaque_etag: bool,
    ) -> Result<Stored, &'static str> {
        let answered = answered.and_then(|stored| match stored.is_of_one_piece() {
            true => Ok(stored),
            false => Err(unverified::PARTS_UNKNOWN),
        });
        answered.or_else(|why| self.etag.filter(|_| !opaque_etag).ok_or(why))
    }
}

/// What an object's bytes are compared with.
#[derive(Debug)]
enum Basis {
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// The checksum in the answer to its only request.
    Answer,
    /// A checksum known in advance; pieces are summed in any order.
    Sum(Sum),
    /// A checksum known in advance; bytes arrive in order.
    InOrder(InOrder),
}

/// The verification of one object, shared by the workers that fetch its ranges.
#[derive(Debug)]
pub struct Verification {
    strict: bool,
    basis: Basis,
    validated: OnceLock<Algorithm>,
    /// Why it could not be verified, if that became known during the download.
    reason: OnceLock<&'static str>,
    /// Code of the verdict of an earlier run, if that run fetched the bytes.
    earlier: OnceLock<u8>,
}

impl Verification {
    fn new(strict: bool, basis: Basis) -> Self {
        Self {
            strict,
            basis,
            validated: OnceLock::new(),
            reason: OnceLock::new(),
            earlier: OnceLock::new(),
        }
    }

    /// No verification, for this reason.
    #[must_use]
    pub fn none(reason: &'static str) -> Self {
        Self::new(false, Basis::Nothing(reason))
    }

    /// By the checksum in the answer to the object's only request.
    #[must_use]
    pub fn by_answer(strict: bool) -> Self {
        Self::new(strict, Basis::Answer)
    }

    /// By the sum of all pieces.
    #[must_use]
    pub fn by_sum(sum: Sum) -> Self {
        Self::new(false, Basis::Sum(sum))
    }

    /// By a checksum known in advance, for bytes that arrive in order.
    #[must_use]
    pub fn in_order(goal: InOrder) -> Self {
        Self::new(true, Basis::InOrder(goal))
    }

    /// True if the request for the whole object asks for its checksum.
    #[must_use]
    pub fn asks(&self) -> bool {
        matches!(self.basis, Basis::Answer)
    }

    /// How to use the answer's checksum; `None` if it was not requested.
    #[must_use]
    pub fn of_answer(&self, etag: &str) -> Option<AnswerCheck> {
        let etag = self.strict.then(|| etag_md5(etag)).flatten();
        self.asks().then_some(AnswerCheck { strict: self.strict, etag })
    }

    /// The sum to add the object's pieces to.
    #[must_use]
    pub fn sum(&self) -> Option<&Sum> {
        match &self.basis {
            Basis::Sum(sum) => Some(sum),
            Basis::Nothing(_) | Basis::Answer | Basis::InOrder(_) => None,
        }
    }

    /// The checksum known in advance, for bytes that arrive in order.
    #[must_use]
    pub fn known(&self) -> Option<InOrder> {
        match self.basis {
            Basis::InOrder(goal) => Some(goal),
            Basis::Nothing(_) | Basis::Answer | Basis::Sum(_) => None,
        }
    }

    /// True if an object that is not verified fails.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Records that all bytes match the stored checksum.
    pub fn validated(&self, algorithm: Algorithm) {
        let _ = self.validated.set(algorithm);
    }

    /// Records why the bytes cannot be verified; the first reason stays.
    pub fn not_validated(&self, reason: &'static str) {
        let _ = self.reason.set(reason);
    }

    /// The verdict as the code for a mark.
    #[must_use]
    pub fn code(&self) -> u8 {
        unverified::encode(self.verdict())
    }

    /// Records the verdict code of the earlier run that fetched the bytes.
    pub fn was(&self, code: u8) {
        let _ = self.earlier.set(code);
    }

    /// The verdict of the earlier run that fetched the bytes; `None` if unknown.
    #[must_use]
    pub fn earlier(&self) -> Option<Result<Algorithm, &'static str>> {
        self.earlier.get().and_then(|code| unverified::decode(*code))
    }

    /// The algorithm by which the bytes were verified.
    ///
    /// # Errors
    /// Why they were not verified.
    pub fn verdict(&self) -> Result<Algorithm, &'static str> {
        if let Some(algorithm) = self.validated.get() {
            return Ok(*algorithm);
        }
        Err(match (&self.basis, self.reason.get()) {
            (_, Some(reason)) | (Basis::Nothing(reason), None) => reason,
            (Basis::Answer | Basis::Sum(_) | Basis::InOrder(_), None) => {
                "it was not downloaded in one piece"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(header: &[u8]) -> Result<Stored, &'static str> {
        Stored::parse(Algorithm::Crc32, header, None).ok_or("none")
    }

    #[test]
    fn an_etag_counts_only_where_all_is_to_be_validated() {
        let etag = "\"25f9e794323b453885f5181f1b624d0b\"";
        let check = |strict| Verification::by_answer(strict).of_answer(etag).expect("it asks");
        assert_eq!(check(false).basis(Err("none"), false), Err("none"));
        let basis = check(true).basis(Err("none"), false).expect("the ETag");
        assert_eq!(basis.algorithm, Algorithm::Md5);
        assert_eq!(check(true).basis(Err("none"), true), Err("none"));
        let basis = check(true).basis(stored(b"y/Q5Jg=="), false).expect("the checksum");
        assert_eq!(basis.algorithm, Algorithm::Crc32);
        assert!(check(false).basis(stored(b"y/Q5Jg==-1"), false).is_ok());
        let why = check(false).basis(stored(b"y/Q5Jg==-2"), false).expect_err("of two parts");
        assert!(why.contains("parts"), "{why}");
        assert_eq!(Verification::none("off").of_answer(etag), None);
    }

    #[test]
    fn verdicts() {
        let verification = Verification::by_answer(true);
        assert_eq!(verification.verdict(), Err("it was not downloaded in one piece"));
        verification.not_validated("none");
        verification.not_validated("other");
        assert_eq!(verification.verdict(), Err("none"));
        verification.validated(Algorithm::Crc32c);
        assert_eq!(verification.verdict(), Ok(Algorithm::Crc32c));
        assert_eq!(Verification::none("off").verdict(), Err("off"));
    }
}
