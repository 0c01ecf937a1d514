//! A worker's part in verification: the sum over an object's ranges, and the checksum of a range
//! that is a whole object.
//!
//! Bytes are counted when they are delivered, in the slot where they were received: each byte of a
//! range is delivered once, by whichever connection received it.

use super::Worker;
use super::range::FileRange;
use crate::checksum::{InOrder, Sequence};
use crate::files::file_download::Shape;
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
    /// Counts a piece of a file's range that was received and is about to be written.
    pub(super) fn count_in(&mut self, index: usize, bytes: &[u8], at: u64) {
        let connection = &self.connections[index];
        let range = connection.state.job().range;
        let Some(FileRange { download, check, .. }) = self.ranges.file(range) else { return };
        if let Some(sum) = download.verification.sum() {
            let begun_us = self.host.now_us();
            sum.add(at, bytes);
            self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            return;
        }
        if at == 0 {
            let basis = connection.conn.comparison().basis();
            let of_answer = basis.map(|basis| basis.map(InOrder::of_one_piece));
            *check = match download.verification.known().map(Ok).or(of_answer) {
                None => Check::None,
                Some(Err(reason)) => Check::Unverified(reason),
                Some(Ok(goal)) => Check::Against(Box::new(Sequence::new(goal))),
            };
        }
        match check {
            // A small object's body was compared as it arrived.
            Check::Against(sequence) if download.shape == Shape::Ranges => {
                let begun_us = self.host.now_us();
                sequence.update(bytes);
                self.metrics.stages.verify_us += self.host.now_us().saturating_sub(begun_us);
            }
            _ => {}
        }
    }

    /// Records the result of the checksum in a whole object's answer, if the range is of its file.
    pub(super) fn compare(&mut self, range: usize) {
        let Some(FileRange { download, check, .. }) = self.ranges.file(range) else { return };
        match std::mem::replace(check, Check::None) {
            Check::None => {}
            Check::Unverified(reason) => download.take_unverified(reason),
            Check::Against(sequence) => {
                let algorithm = sequence.algorithm();
                let held = match download.shape {
                    Shape::Ranges => sequence.finish(),
                    _ => Ok(()),
                };
                download.take_verdict(held.map(|()| algorithm));
            }
        }
    }
}
