//! The work after the last object of a run: removes files that the source does not have, and syncs
//! data to disk.

use super::{Run, RunEvent};
use crate::cli::Durability;
use crate::control::blocking::blocking;
use crate::error::Result;
use crate::text::size::counted;

impl Run<'_> {
    /// True if there is work after the last object.
    pub(crate) fn has_more_to_do(&self, durability: Durability) -> bool {
        self.mirror.is_some() || durability == Durability::End
    }

    /// Does the work after the last object of a run that was not ended early.
    pub(crate) async fn conclude(&mut self, durability: Durability) -> Result<()> {
        self.remove_extra().await?;
        if durability == Durability::End { self.sync().await } else { Ok(()) }
    }

    /// Removes files that the source does not have, if all of the source's files exist.
    async fn remove_extra(&mut self) -> Result<()> {
        let Some(mirror) = self.mirror.take() else { return Ok(()) };
        if self.failures.count() > 0 || !self.listed_all {
            let files = if self.removed == 0 { "no file was" } else { "no other file was" };
            let line = format!("{files} deleted because the run did not succeed");
            self.observer.event(RunEvent::Note(line));
            return Ok(());
        }
        let Some(folder) = self.target.open().await? else { return Ok(()) };
        let (mut paths, swept) = mirror.sweep_blocking(self.existing.machine_at(folder), false);
        while let Some(path) = paths.recv().await {
            self.report_removed(&path);
            self.observer.keep_up().await;
        }
        let swept = swept.await;
        if swept.unfinished > 0 {
            let files = counted(swept.unfinished, "unfinished file", "unfinished files");
            self.observer.event(RunEvent::Note(format!("deleted {files} of earlier runs")));
        }
        if self.removed > 0 || swept.left > 0 {
            let (files, left) = (counted(self.removed, "file", "files"), swept.left);
            self.observer.event(RunEvent::Note(match left {
                0 => format!("deleted {files} not in the source"),
                _ => format!(
                    "deleted {files} not in the source; skipped {} (special files, names that are \
                     not UTF-8, other file systems)",
                    counted(left, "entry", "entries")
                ),
            }));
        }
        swept.error.map_or(Ok(()), Err)
    }

    /// Reports all files that were removed as obstacles, also in a run that was cancelled: then its
    /// removal ends at its next step.
    pub(super) async fn report_removals(&mut self) {
        let Some(mut removals) = self.removals.take() else { return };
        while let Some(path) = removals.recv().await {
            self.report_removed(&path);
            self.observer.keep_up().await;
        }
    }

    /// Counts and reports a removed file.
    pub(super) fn report_removed(&mut self, path: &str) {
        self.removed += 1;
        self.observer.event(RunEvent::Removed(path, &self.target));
    }

    /// Syncs the destination, so that downloaded files survive a power failure.
    async fn sync(&self) -> Result<()> {
        for folder in self.target.open_all().await? {
            let mut machine = self.existing.machine_at(folder);
            blocking(move || machine.sync_all()).await?;
        }
        Ok(())
    }
}
