//! The checksum with which the body of a whole object's answer is compared.

#[cfg(doc)]
use super::Conn;
use crate::checksum::{AnswerCheck, Mismatch, Stored};
use crate::link::failure::Failure;
use crate::link::http::Head;

/// The checksum that an answer declares, and the result of comparing its body.
#[derive(Debug, Default)]
pub struct Comparison {
    strict: bool,
    basis: Option<Result<Stored, &'static str>>,
    mismatch: Option<Mismatch>,
}

impl Comparison {
    /// Takes the checksum from an answer's head.
    pub(super) fn hear(&mut self, check: AnswerCheck, head: &Head<'_>) {
        self.strict = check.strict;
        self.basis = Some(check.basis(head.stored(), head.opaque_etag));
    }

    /// Compares the body of a small object before it is delivered.
    pub(super) fn compare(&mut self, body: &[u8]) -> Result<(), Failure> {
        match self.basis {
            Some(Ok(stored)) => {
                let held = stored.check(stored.algorithm.digest(body));
                self.mismatch = held.err();
                held.map_err(|_| Failure::Checksum)
            }
            Some(Err(_)) if self.strict => Err(Failure::NoChecksum),
            _ => Ok(()),
        }
    }

    /// The checksum that the body is compared with, or why there is none; `None` if none was
    /// requested or no answer has come.
    #[must_use]
    pub fn basis(&self) -> Option<Result<Stored, &'static str>> {
        self.basis
    }

    /// How the bytes of a [`Failure::Checksum`] differ from the stored checksum.
    #[must_use]
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatch
    }
}
