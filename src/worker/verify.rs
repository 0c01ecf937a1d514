//! A lane's part in verification: the checksum of a range that is a whole object.

use super::lane::Lane;
use crate::checksum::Hasher;
use crate::transfer::{Shape, Transfer};

impl Lane {
    /// Adds bytes that were delivered to the checksum of a whole object, where there is one.
    pub(super) fn hash(&mut self, bytes: &[u8], offset: u64) {
        let Some(Ok(stored)) = self.conn.comparison().basis() else { return };
        if offset == 0 {
            self.hasher = Some(Hasher::new(stored.algorithm));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }

    /// Tells what became of the checksum that came with a whole object's answer.
    pub(super) fn verify(&mut self, transfer: &Transfer) {
        match self.conn.comparison().basis() {
            None => {}
            Some(Err(reason)) => transfer.take_unverified(reason),
            // A small object's body was held against it as it came.
            Some(Ok(stored)) if transfer.shape == Shape::Whole => {
                transfer.take_verdict(Ok(stored.algorithm));
            }
            Some(Ok(stored)) => {
                let hasher = self.hasher.take().expect("the first bytes made it");
                let held = stored.check(hasher.finish());
                transfer.take_verdict(held.map(|()| stored.algorithm));
            }
        }
    }
}
