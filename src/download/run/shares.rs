//! The results of several channels, if one run fills their folders together.

use crate::error::Error;
use crate::files::file_download::{FileDownload, Outcome, Shape};
use crate::report::document::FilesSummary;
use crate::text::size::{Decimal, counted};

/// One channel of a run.
#[derive(Debug)]
struct Share {
    result: FilesSummary,
    /// Entries that have not ended; `None` if their number is unknown.
    left: Option<u64>,
}

/// The channels of a run.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    of: Vec<Share>,
    /// The destination is the folder of the only channel; else each has a folder of its name.
    is_one: bool,
}

impl Shares {
    /// For channels that each have a folder of their name.
    pub(crate) const fn by_folder() -> Self {
        Self { of: Vec::new(), is_one: false }
    }

    /// For one channel, whose folder is the destination itself.
    pub(crate) const fn whole() -> Self {
        Self { of: Vec::new(), is_one: true }
    }

    /// Adds a channel, with its number of entries.
    pub(crate) fn push(&mut self, result: FilesSummary, entries: Option<u64>) {
        self.of.push(Share { result, left: entries });
    }

    /// The results.
    pub(crate) fn into_results(self) -> Vec<FilesSummary> {
        self.of.into_iter().map(|share| share.result).collect()
    }

    fn index(&self, download: &FileDownload) -> Option<usize> {
        if self.is_one {
            return Some(0);
        }
        let (name, _) = download.path.split_once('/')?;
        self.of.iter().position(|share| share.result.name == name)
    }

    fn of(&mut self, download: &FileDownload) -> Option<&mut Share> {
        let index = self.index(download)?;
        self.of.get_mut(index)
    }

    /// The name of an object's channel.
    pub(crate) fn name(&self, download: &FileDownload) -> Option<&str> {
        let share = self.of.get(self.index(download)?)?;
        Some(&share.result.name)
    }

    /// Adds the channel's name to the error of a failed object.
    pub(crate) fn label(&self, download: &FileDownload, error: Error) -> Error {
        match self.name(download) {
            Some(name) => error.within(format!("channel {name}")),
            None => error,
        }
    }

    /// Counts an object that has ended; returns a message if its channel, one of several, is
    /// complete.
    pub(crate) fn count(&mut self, outcome: &Outcome) -> Option<String> {
        let is_reported = self.of.len() > 1;
        let share = self.of(&outcome.download)?;
        let is_object = outcome.download.shape != Shape::Folder;
        match &outcome.result {
            Ok(()) if is_object => {
                share.result.objects += 1;
                share.result.bytes += outcome.download.object.listed.size_bytes;
            }
            Ok(()) => {}
            Err(_) => share.result.failed_objects += 1,
        }
        share.end_one().filter(|_| is_reported)
    }

    /// Counts an object that existed already; like [`Self::count`].
    pub(super) fn count_kept(&mut self, download: &FileDownload) -> Option<String> {
        let is_reported = self.of.len() > 1;
        let share = self.of(download)?;
        share.result.kept_objects += 1;
        share.result.kept_bytes += download.object.listed.size_bytes;
        share.end_one().filter(|_| is_reported)
    }
}

impl Share {
    fn end_one(&mut self) -> Option<String> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        let is_whole = self.left == Some(0) && self.result.failed_objects == 0;
        is_whole.then(|| self.in_words())
    }

    fn in_words(&self) -> String {
        let FilesSummary { name, objects, bytes, kept_objects, kept_bytes, .. } = &self.result;
        let all = counted(objects + kept_objects, "object", "objects");
        let mut line = format!("channel {name}: {all}, {}, complete", Decimal(bytes + kept_bytes));
        if *kept_objects > 0 {
            line += &format!(" ({} already present)", counted(*kept_objects, "object", "objects"));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::ErrorKind;
    use crate::files::file_download::Cut;
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};

    fn download(path: &str, size_bytes: u64) -> FileDownload {
        let key = path.to_owned();
        let object = Object { key, size_bytes, ..Object::default() };
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let part = PartSize::new(1 << 20).expect("aligned");
        FileDownload::new(
            object,
            endpoint,
            path.to_owned(),
            Cut { part, slot_length_bytes: 64 << 10 },
        )
    }

    fn ended(path: &str, size_bytes: u64, error: Option<Error>) -> Outcome {
        let result = error.map_or(Ok(()), Err);
        Outcome { download: Arc::new(download(path, size_bytes)), elapsed_us: 0, result }
    }

    #[test]
    fn each_channel_is_reported_when_its_last_object_has_ended() {
        let mut shares = Shares::by_folder();
        shares.push(FilesSummary::new("a"), Some(2));
        shares.push(FilesSummary::new("ab"), Some(2));
        shares.push(FilesSummary::new("c"), None);
        assert_eq!(shares.count(&ended("a/x", 1000, None)), None);
        assert_eq!(shares.count(&ended("ab/x", 1, None)), None);
        assert_eq!(shares.count(&ended("c/x", 1, None)), None, "nobody knows how many");
        let line = "channel a: 2 objects, 1.00 kB, complete (1 object already present)";
        assert_eq!(shares.count_kept(&download("a/y/z", 5)).as_deref(), Some(line));
        let error = Error::new(ErrorKind::Objects, "why");
        assert_eq!(shares.count(&ended("ab/y", 1, Some(error.clone()))), None, "it failed");
        let labelled = shares.label(&download("ab/y", 1), error.clone());
        assert_eq!(labelled.to_string(), "channel ab: why");
        assert_eq!(shares.label(&download("", 1), error.clone()), error);
        let results = shares.into_results();
        let counts =
            |at: usize| (results[at].objects, results[at].kept_objects, results[at].failed_objects);
        assert_eq!([counts(0), counts(1), counts(2)], [(1, 1, 0), (1, 0, 1), (1, 0, 0)]);
    }

    #[test]
    fn the_only_one_has_whatever_is_there() {
        let mut shares = Shares::whole();
        shares.push(FilesSummary::new("checkpoints"), Some(1));
        assert_eq!(shares.count(&ended("deep/x", 7, None)), None, "the summary says it");
        let labelled = shares.label(&download("x", 1), Error::new(ErrorKind::Objects, "why"));
        assert_eq!(labelled.to_string(), "channel checkpoints: why");
        assert_eq!(shares.into_results()[0].objects, 1);
    }
}
