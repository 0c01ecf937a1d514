//! A worker's part in verification: the sum over an object's ranges, and the checksum of a range
//! that is a whole object.
//!
//! Bytes are counted when they are delivered, in the slot where they were just received: each of a
//! range's bytes is delivered once, by whichever connection brought it.

use super::Worker;
use crate::checksum::{InOrder, Sequence};
use crate::files::host::FileHost;
use crate::files::transfer::{Shape, Transfer};
use crate::sys::Ring;

/// What the bytes of a range that is a whole object are compared with.
#[derive(Debug)]
pub(super) enum Check {
    /// No checksum was asked for, or no byte has come.
    None,
    /// There is nothing to compare them with, for this reason.
    Unverified(&'static str),
    /// What is stored, and what has come.
    Against(Box<Sequence>),
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Takes a piece in that was received and is about to be written.
    pub(super) fn count_in(&mut self, index: usize, transfer: &Transfer, bytes: &[u8], at: u64) {
        if let Some(sum) = transfer.verification.sum() {
            let begun_us = self.host.now_us();
            sum.add(at, bytes);
            self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            return;
        }
        let connection = &self.connections[index];
        let check = self.ranges.check(connection.state.job().range);
        if at == 0 {
            let told = connection.conn.comparison().basis();
            let of_answer = told.map(|told| told.map(InOrder::of_one_piece));
            *check = match transfer.verification.known().map(Ok).or(of_answer) {
                None => Check::None,
                Some(Err(reason)) => Check::Unverified(reason),
                Some(Ok(goal)) => Check::Against(Box::new(Sequence::new(goal))),
            };
        }
        match check {
            // A small object's body was compared with it as it came.
            Check::Against(sequence) if transfer.shape == Shape::Ranges => {
                let begun_us = self.host.now_us();
                sequence.update(bytes);
                self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            }
            _ => {}
        }
    }

    /// Tells what became of the checksum that came with a whole object's answer.
    pub(super) fn compare(&mut self, index: usize, transfer: &Transfer) {
        let check = self.ranges.check(self.connections[index].state.job().range);
        match std::mem::replace(check, Check::None) {
            Check::None => {}
            Check::Unverified(reason) => transfer.take_unverified(reason),
            Check::Against(sequence) => {
                let algorithm = sequence.algorithm();
                let held = match transfer.shape {
                    Shape::Ranges => sequence.finish(),
                    _ => Ok(()),
                };
                transfer.take_verdict(held.map(|()| algorithm));
            }
        }
    }
}
