//! Handles an unwritable destination of several: it is left out from then on, and its objects go to
//! the others.
//!
//! An object that would replace a file there fails: with a second file of its name elsewhere it
//! would be unknown which one is right.

use super::{Run, RunEvent};
use crate::engine::schedule::Scheduler;
use crate::error::{Error, ErrorKind};
use crate::files::file_download::{FileDownload, Outcome};

impl Run<'_> {
    /// Handles an object that failed because its destination is unwritable, and leaves that out. If
    /// it was the last one the run ends.
    pub(super) fn leave_out(&mut self, outcome: Outcome, scheduler: &Scheduler) {
        self.end_object(&outcome);
        let download = &outcome.download;
        let (Err(error), Some(place), Some(spread)) =
            (&outcome.result, download.place, &mut self.spread)
        else {
            unreachable!("it failed at one of several destinations");
        };
        let news = spread.leave_out(place, error.message()).map(str::to_owned);
        if spread.has_none() {
            scheduler.stop(error.clone());
            return self.note_outcome(outcome, scheduler.stop_reason().as_ref());
        }
        if let Some(path) = news {
            let message = format!(
                "{path} is left out from now on, and what was to go there goes to the other \
                 destinations: {}",
                error.message()
            );
            let reported = Error::new(ErrorKind::Destination, message).because(error.reason());
            self.observer.event(RunEvent::LeftOut(&reported));
            self.left_out.get_or_insert(reported);
            let waiting: Vec<_> = self.pending.drain(..).collect();
            waiting.into_iter().for_each(|download| self.admit(Ok(download)));
        }
        self.house(&outcome.download);
    }

    /// Admits a download for its destination or, if that is left out, for another.
    pub(super) fn admit_housed(&mut self, download: FileDownload) {
        let spread = self.spread.as_ref();
        let why = spread.zip(download.place).and_then(|(spread, place)| spread.left_out(place));
        match why {
            None => self.pending.push_back(download),
            Some(_) => self.house(&download),
        }
    }

    /// Chooses another destination for an object, unless it has to stay.
    fn house(&mut self, before: &FileDownload) {
        let (Some(spread), Some(place)) = (&mut self.spread, before.place) else {
            unreachable!("it was to go to one of several destinations");
        };
        let anew = before.elsewhere(self.config.cut());
        if before.stays {
            let path = self.target.one_of_several(before).unwrap_or_default();
            let message = format!(
                "a file of its name is in {path}, which was left out: {}",
                spread.left_out(place).unwrap_or_default()
            );
            let error = Error::new(ErrorKind::Destination, message)
                .advise("mend that disk, or remove the file, and run it again");
            return self.admit(Err(Box::new((anew, error.within(before.object.name())))));
        }
        spread.move_from(place);
        // Bytes that an earlier run had written come again.
        self.known.bytes_known = self.known.bytes_known.saturating_add(before.resumed_bytes());
        if let Some(settled) = self.checksums.admit(anew) {
            self.admit(settled);
        }
    }
}
