//! The intake of a run: batches of the listing are checked at the destination, and become downloads
//! that may begin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::channel;

use super::{Run, RunEvent, Subject};
use crate::control::list::sources::Missing;
use crate::control::list::walk::Entry;
use crate::download::checksums::Settled;
use crate::download::existing::{Before, Clearing, Verdict};
use crate::download::mirror::Mirror;
use crate::download::own_files::TakenPaths;
use crate::download::space::Space;
use crate::download::spread::Spread;
use crate::download::target::Target;
use crate::engine::schedule::Scheduler;
use crate::engine::threads::Workers;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::files::file_download::{Again, Cut, FileDownload, Outcome, Shape};
use crate::files::system_host;
use crate::limits::{
    BLOCKED_OBJECTS_MAX, FOLDED_PATHS_MAX, OBJECTS_QUEUED_MAX, REMOVED_QUEUED_MAX,
};
use crate::plan::folding::FoldedPaths;
use crate::report::document::DestinationLine;
use crate::s3::Object;
use crate::text::size::Decimal;

/// The path of an object's file that is to be created, and true if an untrusted one exists.
pub(crate) fn first_file(verdict: &Verdict) -> Option<(&str, bool)> {
    match verdict {
        Verdict::Fetch(download, before) if download.shape != Shape::Folder => {
            Some((&download.path, before.foreign))
        }
        _ => None,
    }
}

/// Refuses an object whose file equals another object's at this destination.
fn refuse_repeated(download: FileDownload) -> Settled {
    let message = "another key is the same file at the destination, whose file system does not \
                   keep names apart by case or Unicode form";
    let error = Error::new(ErrorKind::Destination, message)
        .advise("use --exclude for one of them, or give a destination that keeps them apart")
        .within(download.object.name());
    Err(Box::new((download, error)))
}

/// The download of an entry of the listing, or why it cannot be stored; the mirror records its
/// path. Of paths that are one file at the destination only the first is downloaded.
pub(crate) fn settle(
    entry: Entry,
    target: &Target,
    cut: Cut,
    mirror: Option<&mut Mirror>,
    taken: &mut TakenPaths,
) -> Result<Settled> {
    let mut is_repeated = false;
    if let Ok(path) = &entry.path {
        if let Some(mirror) = mirror {
            mirror.note(path.as_str(), entry.folder)?;
        }
        if let Some(folded) = taken.folded.as_mut().filter(|_| !entry.folder) {
            is_repeated = !folded.take(path.as_str());
            require_few(folded)?;
        }
    }
    let settled =
        target.download(entry, cut).and_then(|download| match taken.require_free(&download.path) {
            Ok(()) => Ok(download),
            Err(error) => {
                let error = error.within(download.object.name());
                Err(Box::new((download, error)))
            }
        });
    Ok(if is_repeated { settled.and_then(refuse_repeated) } else { settled })
}

/// Refuses objects that certainly cannot fit at this destination.
fn require_fit(space: &Space, listed_all: bool, target: &Target) -> Result<()> {
    let Some(free) = space.free_bytes().filter(|_| space.cannot_fit(listed_all)) else {
        return Ok(());
    };
    let has = if target.folders().len() > 1 { "have together" } else { "has" };
    let message = format!(
        "{} {has} {} free, but the download needs at least {}",
        target.folders_in_words(),
        Decimal(free),
        Decimal(space.needed_bytes())
    );
    Err(Error::new(ErrorKind::Destination, message)
        .because(ErrorReason::NoSpace)
        .advise("free space, choose another destination, or use --no-space-check"))
}

/// Refuses more paths than can be compared.
fn require_few(paths: &FoldedPaths) -> Result<()> {
    if paths.count() < FOLDED_PATHS_MAX {
        return Ok(());
    }
    let message = format!(
        "the destination does not keep names apart by case or Unicode form: at most \
         {FOLDED_PATHS_MAX} objects are supported there"
    );
    Err(Error::new(ErrorKind::Destination, message)
        .advise("download folder by folder, or give a destination that keeps them apart"))
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Run<'_> {
    /// Reads to the first page with anything to download, so that its errors show before any data
    /// is transferred. If that page would not fit, later pages may free space: so reading
    /// continues, as far as memory allows.
    pub(crate) async fn read_ahead(&mut self) -> Result<()> {
        self.measure_space().await;
        while !self.listed {
            let nothing_yet = self.pending.is_empty() && self.checksums.is_empty();
            let doubtful = self.space.is_in_doubt() && self.pending.len() < OBJECTS_QUEUED_MAX;
            if !nothing_yet && !doubtful {
                break;
            }
            let batch = self.walk.next_batch().await?;
            if let Some(entries) = batch.as_ref().filter(|_| nothing_yet) {
                let largest = entries.iter().map(|entry| entry.object.size_bytes).max();
                self.config = self.config.fitted(largest.unwrap_or(0).max(self.largest_bytes));
            }
            self.take(batch)?;
            if self.existing.is_busy() {
                let verdicts = self.existing.next().await;
                // The first file shows if files can be created.
                if let Some(file) = verdicts.iter().find_map(first_file).filter(|_| nothing_yet) {
                    self.target.require_writable(file).await?;
                }
                self.take_verdicts(verdicts)?;
            }
        }
        let has_none = self.pending.is_empty() && self.checksums.is_empty();
        if has_none && self.failures.count() > 0 && self.existing.kept.0 == 0 {
            let why = match self.failures.kind() {
                ErrorKind::NotFound => "nothing was found to download",
                _ => "no object can be downloaded",
            };
            return Err(Error::new(self.failures.kind(), why));
        }
        Ok(())
    }

    /// Measures the space at the destinations, before anything is created.
    async fn measure_space(&mut self) {
        let names = self.target.folders().into_iter().map(|folder| folder.display().to_string());
        let names: Vec<_> = names.collect();
        let disks = self.target.disks(self.checks_space).await;
        let may_replace = self.existing.may_replace;
        self.space = Space::new(system_host::together(&disks), may_replace);
        if names.len() > 1 {
            let places = names.into_iter().zip(disks).collect();
            self.spread = Some(Spread::new(places, may_replace));
        }
    }

    /// The totals of several destinations.
    pub(super) fn destination_lines(&self) -> Vec<DestinationLine> {
        self.spread.as_ref().map(Spread::lines).unwrap_or_default()
    }

    /// Takes a batch of the listing, whose objects are checked at the destination next; `None` is
    /// its end.
    pub(crate) fn take(&mut self, batch: Option<Vec<Entry>>) -> Result<()> {
        for missing in self.walk.take_missing() {
            self.fail_missing(missing);
        }
        let Some(batch) = batch else {
            self.listed = true;
            self.listed_all = true;
            self.mirror.as_mut().and_then(Arc::get_mut).into_iter().for_each(Mirror::complete);
            self.listing_ended_us = micros(self.begun.elapsed());
            return self.check_space();
        };
        let mut page = Vec::with_capacity(batch.len());
        for entry in batch {
            // No other holder exists before everything is listed.
            let mirror = self.mirror.as_mut().and_then(Arc::get_mut);
            let (cut, taken) = (self.config.cut(), &mut self.taken);
            page.push(settle(entry, &self.target, cut, mirror, taken)?);
        }
        self.existing.begin(page);
        Ok(())
    }

    /// Takes the objects of a batch, except those that exist already.
    pub(super) fn take_verdicts(&mut self, verdicts: Vec<Verdict>) -> Result<()> {
        for verdict in verdicts {
            match verdict {
                Verdict::Fetch(download, before) => self.take_object(download, &before),
                Verdict::Keep(download, kept, reclaimed_bytes) => {
                    self.existing.count_kept(&download, kept);
                    let shares = self.shares.as_mut();
                    let complete = shares.and_then(|shares| shares.count_kept(&download));
                    complete.into_iter().for_each(|line| self.observer.event(RunEvent::Note(line)));
                    self.space.reclaim(reclaimed_bytes);
                    self.known.objects_kept += 1;
                    let channel = self.shares.as_ref().and_then(|shares| shares.name(&download));
                    let subject = Subject { download: &download, target: &self.target, channel };
                    self.observer.event(RunEvent::Existing(subject, kept));
                }
                Verdict::Freed(place, bytes) => {
                    self.space.reclaim(bytes);
                    self.spread.iter_mut().for_each(|spread| spread.reclaim(place, bytes));
                }
                Verdict::Blocked(blocked) if self.blocked.len() < BLOCKED_OBJECTS_MAX => {
                    self.blocked.push(*blocked);
                }
                Verdict::Fail(failed) | Verdict::Blocked(failed) => {
                    self.known.objects_known += 1;
                    self.admit(Err(failed));
                }
            }
        }
        self.check_space()
    }

    /// Takes blocked objects once all others are complete. After a failure nothing is removed: they
    /// fail.
    pub(super) fn unblock(&mut self, scheduler: &Scheduler) {
        if !self.listed || self.existing.is_busy() || self.blocked.is_empty() {
            return;
        }
        let others_wait = !self.pending.is_empty() || !self.checksums.is_empty();
        let succeeds = self.listed_all && self.failures.count() == 0;
        match self.mirror.clone() {
            Some(_) if succeeds && (others_wait || self.space.is_busy()) => {}
            Some(mirror) if succeeds && scheduler.stop_reason().is_none() => {
                let (removed, removals) = channel(REMOVED_QUEUED_MAX);
                self.removals = Some(removals);
                let folder = self.target.folder().filter(|_| self.checks_space);
                let room = folder.map(|folder| (folder.to_owned(), self.space.left_bytes()));
                let blocked = std::mem::take(&mut self.blocked);
                self.existing.begin_cleared(blocked, Clearing { mirror, removed, room });
            }
            _ => {
                let blocked = std::mem::take(&mut self.blocked);
                self.known.objects_known += blocked.len() as u64;
                blocked.into_iter().for_each(|failed| self.admit(Err(Box::new(failed))));
            }
        }
    }

    /// A missing source counts as a failed object of its name.
    fn fail_missing(&mut self, missing: Missing) {
        let object = Object { key: missing.key().to_owned(), ..Object::default() };
        let download =
            FileDownload::new(object, missing.endpoint, String::new(), self.config.cut());
        self.known.objects_known += 1;
        self.missing += 1;
        self.absent += u64::from(missing.error.kind() == ErrorKind::NotFound);
        self.admit(Err(Box::new((download, missing.error))));
    }

    fn take_object(&mut self, mut download: FileDownload, before: &Before) {
        download.replaced_bytes = before.replaced_bytes;
        self.existing.count_before(before);
        if let Some(file) = download.created_file().filter(|_| before.resumed) {
            self.resumed_files.0 += u64::from(file.direct);
            self.resumed_files.1 += u64::from(!file.direct);
        }
        let size_bytes = download.object.listed.size_bytes;
        self.space.add(size_bytes, before.replaced_bytes);
        self.space.reclaim(before.reclaimed_bytes);
        if let (Some(spread), Some(place)) = (&mut self.spread, download.place) {
            spread.reclaim(place, before.reclaimed_bytes);
        }
        self.known.objects_known += 1;
        self.known.bytes_known = self.known.bytes_known.saturating_add(size_bytes);
        self.known.bytes_known -= before.done_bytes;
        self.observer.event(RunEvent::Admitted(&download, &self.target));
        if let Some(settled) = self.checksums.admit(download) {
            self.admit(settled);
        }
    }

    /// Refuses objects that certainly cannot fit.
    fn check_space(&self) -> Result<()> {
        require_fit(&self.space, self.listed_all, &self.target)
    }

    /// Admits a download that may begin, or the failure of one that may not.
    pub(super) fn admit(&mut self, settled: Settled) {
        match settled {
            Ok(download) => self.admit_housed(download),
            Err(failed) => {
                let (download, error) = *failed;
                self.vacated += u64::from(download.restarted == Some(Again::Elsewhere));
                let download = Arc::new(download);
                let outcome = Outcome { download, elapsed_us: 0, result: Err(error) };
                self.note_outcome(outcome, None);
            }
        }
    }

    /// Hands objects to the scheduler, as far as there is space in it and on the disk.
    pub(crate) fn feed(&mut self, scheduler: &Scheduler) {
        if self.spread.is_some() {
            (0..std::mem::take(&mut self.vacated)).for_each(|_| scheduler.give_up());
            return self.feed_several(scheduler);
        }
        let (room, space) = (scheduler.room(), &mut self.space);
        let fits = |download: &&FileDownload| space.hand_out(download.object.listed.size_bytes);
        let count = self.pending.iter().take(room).take_while(fits).count();
        if count > 0 {
            scheduler.push(self.pending.drain(..count));
        }
    }

    /// Hands out objects for several destinations, each when a destination accepts it.
    fn feed_several(&mut self, scheduler: &Scheduler) {
        let Some(spread) = &mut self.spread else { return };
        let (room, now_us) = (scheduler.room(), micros(self.begun.elapsed()));
        let (mut chosen, mut waiting) = (Vec::new(), VecDeque::new());
        // If one object finds no destination now, later ones do not either, except those with a
        // fixed one.
        let mut is_full = false;
        while chosen.len() < room
            && let Some(mut download) = self.pending.pop_front()
        {
            let own = download.place;
            let place = match own {
                None if is_full => None,
                _ => spread.hand_out(own, download.object.listed.size_bytes, now_us),
            };
            match place {
                Some(_) => {
                    download.place = place;
                    match download.restarted {
                        // It already has its space there.
                        Some(Again::Elsewhere) => scheduler.restart(download),
                        _ => chosen.push(download),
                    }
                }
                None => {
                    is_full |= own.is_none();
                    waiting.push_back(download);
                }
            }
        }
        waiting.append(&mut self.pending);
        self.pending = waiting;
        if !chosen.is_empty() {
            scheduler.push(chosen);
        }
    }

    /// Records that an object handed to the scheduler has ended.
    pub(super) fn end_object(&mut self, outcome: &Outcome) {
        let download = &outcome.download;
        let replaced_bytes = match outcome.result {
            Ok(()) => Some(download.replaced_bytes),
            // Bytes that a later run can resume stay.
            Err(_) => download.can_go_on().then_some(0),
        };
        let size_bytes = download.object.listed.size_bytes;
        match (&mut self.spread, download.place) {
            (Some(spread), Some(place)) => {
                let now_us = micros(self.begun.elapsed());
                // Bytes that existed before were not written now.
                let written_bytes = size_bytes - download.resumed_bytes();
                let whole = outcome.result.is_ok().then_some(written_bytes);
                spread.end(place, size_bytes, (whole, replaced_bytes), now_us);
            }
            _ => self.space.end(size_bytes, replaced_bytes),
        }
    }

    /// Drops objects that were not handed to the scheduler.
    pub(super) fn clear(&mut self) {
        self.listed_all &= !self.existing.is_busy();
        self.existing.give_up();
        self.pending.clear();
        self.blocked.clear();
        self.checksums.clear();
    }

    /// True if every object has been handed to the scheduler, or has failed.
    pub(super) fn is_fed(&self) -> bool {
        let all_taken = self.listed && !self.existing.is_busy();
        let none_waits = self.pending.is_empty() && self.blocked.is_empty();
        all_taken && none_waits && self.checksums.is_empty()
    }

    /// True if more of the listing is needed.
    pub(super) fn wants_listing(&self) -> bool {
        let all_taken = self.pending.is_empty() && !self.existing.is_busy();
        !self.listed && all_taken && self.checksums.has_room()
    }

    /// Handles a failed listing. A destination that is too small ends the run; objects listed
    /// before a server stopped answering are still downloaded.
    pub(super) fn end_listing(&mut self, error: Error, engine: &Workers) {
        self.listed = true;
        self.listing_ended_us = micros(self.begun.elapsed());
        if error.kind() == ErrorKind::Destination {
            self.clear();
            engine.scheduler.stop(error);
        } else {
            self.listing_error = Some(error);
        }
    }
}
