//! A worker's part in verification: the sum over an object's ranges, and the checksum of a range
//! that is a whole object.
//!
//! Bytes are counted when they are delivered, in the slot where they were received: each byte of a
//! range is delivered once, by whichever connection received it.

use super::Worker;
use crate::checksum::{InOrder, Sequence};
use crate::files::file_download::{FileDownload, Shape};
use crate::files::host::FileHost;
use crate::sys::Ring;

/// What the bytes of a whole object's range are compared with.
#[derive(Debug)]
pub(super) enum Check {
    /// No checksum was requested, or no byte has arrived.
    None,
    /// Nothing, for this reason.
    Unverified(&'static str),
    /// The stored checksum, and the computation so far.
    Against(Box<Sequence>),
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Counts a piece that was received and is about to be written.
    pub(super) fn count_in(
        &mut self,
        index: usize,
        transfer: &FileDownload,
        bytes: &[u8],
        at: u64,
    ) {
        if let Some(sum) = transfer.verification.sum() {
            let begun_us = self.host.now_us();
            sum.add(at, bytes);
            self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            return;
        }
        let connection = &self.connections[index];
        let check = self.ranges.check(connection.state.job().range);
        if at == 0 {
            let basis = connection.conn.comparison().basis();
            let of_answer = basis.map(|basis| basis.map(InOrder::of_one_piece));
            *check = match transfer.verification.known().map(Ok).or(of_answer) {
                None => Check::None,
                Some(Err(reason)) => Check::Unverified(reason),
                Some(Ok(goal)) => Check::Against(Box::new(Sequence::new(goal))),
            };
        }
        match check {
            // A small object's body was compared as it arrived.
            Check::Against(sequence) if transfer.shape == Shape::Ranges => {
                let begun_us = self.host.now_us();
                sequence.update(bytes);
                self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            }
            _ => {}
        }
    }

    /// Records the result of the checksum in a whole object's answer.
    pub(super) fn compare(&mut self, index: usize, transfer: &FileDownload) {
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
