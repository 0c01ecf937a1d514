//! Creates the FIFOs of epochs, each one epoch ahead of its reader.

use super::Feeder;
use super::outlet::Outlet;
use crate::error::Error;
use crate::files::host::PipeHost;
use crate::limits::REST_WAIT_MAX_US;
use crate::sys::Ring;

/// Creates an epoch's FIFO; removes an earlier run's completion marker first.
pub(super) fn offer(host: &mut impl PipeHost, marks: bool, epoch: u64) -> Result<(), Error> {
    if marks {
        host.unmark(epoch)?;
    }
    host.offer(epoch)
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Creates the FIFO of the next epoch while this one is read, for readers that look for it. A
    /// failure counts when the turn of that epoch comes: the cause may be gone by then.
    pub(super) fn offer_ahead(&mut self) {
        let next = self.epoch + 1;
        if matches!(self.outlet, Outlet::Open { .. })
            && self.offered == next
            && self.now_us >= self.offer_look_us
            && self.epochs.is_none_or(|epochs| next < epochs)
            && self.offer_next().is_err()
        {
            self.offer_look_us = self.now_us + REST_WAIT_MAX_US;
        }
    }

    /// Creates the FIFO of the first epoch that has none.
    pub(super) fn offer_next(&mut self) -> Result<(), Error> {
        offer(&mut self.host, self.marks, self.offered)?;
        self.offered += 1;
        Ok(())
    }
}
