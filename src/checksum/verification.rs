//! The verification of one object: what its bytes are compared with, and what came of it.

use std::sync::OnceLock;

use super::{Algorithm, InOrder, Stored, Sum, etag_md5, unverified};

/// What is done with the checksum that the answer to a whole object's request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerCheck {
    /// An answer without one fails.
    pub strict: bool,
    /// The ETag as an MD5, to fall back on.
    pub etag: Option<Stored>,
}

impl AnswerCheck {
    /// What the body is compared with: what the answer says, or else the ETag where the origin does
    /// not encrypt with keys that make it something else.
    ///
    /// # Errors
    /// Why there is nothing to compare it with.
    pub fn basis(
        &self,
        told: Result<Stored, &'static str>,
        opaque_etag: bool,
    ) -> Result<Stored, &'static str> {
        let told = told.and_then(|stored| match stored.is_of_one_piece() {
            true => Ok(stored),
            false => Err(unverified::PARTS_UNKNOWN),
        });
        told.or_else(|why| self.etag.filter(|_| !opaque_etag).ok_or(why))
    }
}

/// What an object's bytes are compared with.
#[derive(Debug)]
enum Basis {
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// What the answer to its only request says.
    Answer,
    /// What the origin said before; the pieces are summed as they come.
    Sum(Sum),
    /// What the origin said before; the bytes come in order.
    InOrder(InOrder),
}

/// The verification of one object, shared by those who fetch its ranges.
#[derive(Debug)]
pub struct Verification {
    strict: bool,
    basis: Basis,
    validated: OnceLock<Algorithm>,
    /// Why it could not be validated, as far as that shows only on the way.
    reason: OnceLock<&'static str>,
    /// The code of the verdict of the run that fetched it, where this one did not.
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

    /// None, for this reason.
    #[must_use]
    pub fn none(reason: &'static str) -> Self {
        Self::new(false, Basis::Nothing(reason))
    }

    /// By what the answer to the object's only request says.
    #[must_use]
    pub fn by_answer(strict: bool) -> Self {
        Self::new(strict, Basis::Answer)
    }

    /// By the sum of all pieces.
    #[must_use]
    pub fn by_sum(sum: Sum) -> Self {
        Self::new(false, Basis::Sum(sum))
    }

    /// By what the origin said, of bytes that come in order.
    #[must_use]
    pub fn in_order(goal: InOrder) -> Self {
        Self::new(true, Basis::InOrder(goal))
    }

    /// Whether the request for the whole object asks for its checksum.
    #[must_use]
    pub fn asks(&self) -> bool {
        matches!(self.basis, Basis::Answer)
    }

    /// What is done with the answer's checksum; `None` when it was not asked for.
    #[must_use]
    pub fn of_answer(&self, etag: &str) -> Option<AnswerCheck> {
        let etag = self.strict.then(|| etag_md5(etag)).flatten();
        self.asks().then_some(AnswerCheck { strict: self.strict, etag })
    }

    /// The sum that the object's pieces are added to.
    #[must_use]
    pub fn sum(&self) -> Option<&Sum> {
        match &self.basis {
            Basis::Sum(sum) => Some(sum),
            Basis::Nothing(_) | Basis::Answer | Basis::InOrder(_) => None,
        }
    }

    /// What the bytes are compared with as they come in order, where that was known before.
    #[must_use]
    pub fn known(&self) -> Option<InOrder> {
        match self.basis {
            Basis::InOrder(goal) => Some(goal),
            Basis::Nothing(_) | Basis::Answer | Basis::Sum(_) => None,
        }
    }

    /// Whether an object that is not validated fails.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Notes that all bytes have the stored checksum.
    pub fn validated(&self, algorithm: Algorithm) {
        let _ = self.validated.set(algorithm);
    }

    /// Notes why there is nothing to compare the bytes with; the first reason stays.
    pub fn not_validated(&self, reason: &'static str) {
        let _ = self.reason.set(reason);
    }

    /// The verdict as the code that a mark keeps.
    #[must_use]
    pub fn code(&self) -> u8 {
        unverified::encode(self.verdict())
    }

    /// Notes the code of the verdict of an earlier run, which fetched the bytes.
    pub fn was(&self, code: u8) {
        let _ = self.earlier.set(code);
    }

    /// The verdict of the earlier run that fetched the bytes; `None` where it is not known.
    #[must_use]
    pub fn earlier(&self) -> Option<Result<Algorithm, &'static str>> {
        self.earlier.get().and_then(|code| unverified::decode(*code))
    }

    /// The algorithm of the checksum that the bytes have, or why that is not known.
    ///
    /// # Errors
    /// Why they were not validated.
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
