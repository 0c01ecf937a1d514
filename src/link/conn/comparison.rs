//! What the body of a whole object's answer is compared with.

#[cfg(doc)]
use super::Conn;
use crate::checksum::{AnswerCheck, Mismatch, Stored};
use crate::link::failure::Failure;
use crate::link::http::Head;

/// What an answer says of its checksum, and how its body compares.
#[derive(Debug, Default)]
pub struct Comparison {
    strict: bool,
    basis: Option<Result<Stored, &'static str>>,
    mismatch: Option<Mismatch>,
}

impl Comparison {
    /// Hears what an answer's head says.
    pub(super) fn hear(&mut self, check: AnswerCheck, head: &Head<'_>) {
        self.strict = check.strict;
        self.basis = Some(check.basis(head.stored(), head.opaque_etag));
    }

    /// Holds the body of a small object against it, before anyone sees it.
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

    /// What the body is compared with, or why there is nothing; `None` where no checksum was asked
    /// for, or no answer has come.
    #[must_use]
    pub fn basis(&self) -> Option<Result<Stored, &'static str>> {
        self.basis
    }

    /// How the bytes of a [`Failure::Checksum`] differed from what is stored.
    #[must_use]
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatch
    }
}
