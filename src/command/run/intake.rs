//! What a run takes in: batches of the listing, looked up at the destination, into transfers that
//! may begin.

use std::path::Path;
use std::sync::Arc;

use super::super::checksums::Settled;
use super::super::kept::Verdict;
use super::{Run, micros};
use crate::catalog::walk::Entry;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::report::ObjectLine;
use crate::size::Decimal;
use crate::transfer::{Outcome, Transfer};

impl Run {
    /// Takes the first page with anything to move, so that what is wrong with it shows before any
    /// byte moves.
    pub(in crate::command) async fn read_ahead(&mut self) -> Result<()> {
        while self.pending.is_empty() && self.checksums.is_empty() && !self.listed {
            let batch = self.walk.next_batch().await?;
            if let Some(entries) = &batch {
                let largest = entries.iter().map(|entry| entry.object.size_bytes).max();
                self.config = self.config.fitted(largest.unwrap_or(0));
            }
            self.take(batch)?;
        }
        if self.pending.is_empty() && self.checksums.is_empty() && self.failures.count() > 0 {
            return Err(Error::new(self.failures.kind(), "no object can be stored"));
        }
        Ok(())
    }

    /// Takes a batch of the listing in; `None` is its end.
    pub(super) fn take(&mut self, batch: Option<Vec<Entry>>) -> Result<()> {
        let Some(batch) = batch else {
            self.listed = true;
            self.listed_all = true;
            self.listing_ended_us = micros(self.begun.elapsed());
            return Ok(());
        };
        for entry in batch {
            if let (Some(mirror), Ok(path)) = (&mut self.mirror, &entry.path) {
                mirror.note(path.as_str())?;
            }
            match self.target.transfer(entry, self.config.cut()) {
                Ok(transfer) => self.take_object(transfer),
                failed => {
                    self.known.objects_known += 1;
                    self.admit(failed);
                }
            }
        }
        let free_bytes = self.free_bytes.map(|free| free.saturating_add(self.keeper.space_bytes));
        match free_bytes {
            Some(free) if self.known.bytes_known > free => Err(Error::new(
                ErrorKind::Destination,
                format!(
                    "{} has {} free, and at least {} are to be written",
                    self.target.folder().unwrap_or(Path::new(".")).display(),
                    Decimal(free),
                    Decimal(self.known.bytes_known)
                ),
            )
            .advise("free space, or choose another destination")),
            _ => Ok(()),
        }
    }

    /// Takes an object in, unless it is there already.
    fn take_object(&mut self, transfer: Transfer) {
        match self.keeper.judge(transfer) {
            Verdict::Fetch(transfer, done) => {
                self.known.objects_known += 1;
                let bytes = self.known.bytes_known.saturating_add(transfer.object.size_bytes);
                self.known.bytes_known = bytes - done;
                if let Some(settled) = self.checksums.admit(transfer) {
                    self.admit(settled);
                }
            }
            Verdict::Keep(transfer, kept) => {
                self.known.objects_kept += 1;
                self.report_line(|| ObjectLine::kept(&transfer, kept).to_json());
            }
        }
    }

    /// Takes a transfer that may begin, or the failure of one that may not.
    pub(super) fn admit(&mut self, settled: Settled) {
        match settled {
            Ok(transfer) => self.pending.push_back(transfer),
            Err(failed) => {
                let (transfer, error) = *failed;
                let transfer = Arc::new(transfer);
                let outcome = Outcome { transfer, elapsed_us: 0, result: Err(error) };
                self.note_outcome(outcome, None);
            }
        }
    }

    /// Whether every object has been handed to the scheduler, or has failed.
    pub(super) fn is_fed(&self) -> bool {
        self.listed && self.pending.is_empty() && self.checksums.is_empty()
    }

    /// Whether more of the listing is wanted.
    pub(super) fn is_hungry(&self) -> bool {
        !self.listed && self.pending.is_empty() && self.checksums.has_room()
    }

    /// The listing failed. A destination that is too small ends the run; what was listed of a
    /// server that stopped answering is still fetched.
    pub(super) fn end_listing(&mut self, error: Error, engine: &Engine) {
        self.listed = true;
        self.listing_ended_us = micros(self.begun.elapsed());
        if error.kind() == ErrorKind::Destination {
            self.pending.clear();
            self.checksums.clear();
            engine.scheduler.stop(error);
        } else {
            self.listing_error = Some(error);
        }
    }
}
