//! What a run reports while it goes on. It prints nothing itself.

use futures_util::future::{LocalBoxFuture, ready};

use super::target::Target;
use crate::control::list::sources::Source;
use crate::engine::config::Config;
use crate::engine::threads::Workers;
use crate::error::Error;
use crate::files::file_download::{FileDownload, Outcome};
use crate::report::document::{KeptReason, ObjectLine, RemovedLine};
use crate::report::line::ProgressState;

/// An object of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) download: &'a FileDownload,
    pub(crate) target: &'a Target,
    /// Its channel, if the run fills several.
    pub(crate) channel: Option<&'a str>,
}

/// Something that has happened in a run.
#[derive(Debug)]
pub(crate) enum RunEvent<'a> {
    /// These sources exist.
    Found(&'a [Source]),
    /// The resources of its workers are chosen.
    Configured(&'a Config),
    /// Its workers have started.
    Started(&'a Workers, &'a Target),
    /// An object is to be downloaded.
    Admitted(&'a FileDownload, &'a Target),
    /// An object needs no download: its file exists.
    Existing(Subject<'a>, KeptReason),
    /// The state of the run, several times a second; and its failed objects.
    Progress(&'a ProgressState, u64, &'a Workers),
    /// An object is downloaded again from its first byte, for this reason.
    Retried(&'a FileDownload, &'a Target, &'static str),
    /// An object is complete.
    Done(Subject<'a>, &'a Outcome),
    /// An object has failed.
    Failed {
        /// The object.
        subject: Subject<'a>,
        /// Its result, with its own error.
        outcome: &'a Outcome,
        /// That error with the name of the object's channel, if there is one.
        error: &'a Error,
        /// It failed only because the run ended.
        with_run: bool,
    },
    /// One of several destinations is left out from now on.
    LeftOut(&'a Error),
    /// The file of this path was removed at the destination.
    Removed(&'a str, &'a Target),
    /// A remark for people.
    Note(String),
}

impl RunEvent<'_> {
    /// Its line of the report; `None` if it has none.
    pub(crate) fn report_line(&self) -> Option<String> {
        let (subject, line) = match self {
            Self::Existing(subject, kept) => (subject, ObjectLine::kept(subject.download, *kept)),
            Self::Done(subject, outcome) | Self::Failed { subject, outcome, .. } => {
                (subject, ObjectLine::new(outcome))
            }
            Self::Removed(path, _) => return Some(RemovedLine::new(path, false).to_json()),
            _ => return None,
        };
        let place = subject.target.one_of_several(subject.download);
        Some(line.of_channel(subject.channel).at(place.as_deref()).to_json())
    }
}

/// Receives the events of a run.
pub(crate) trait Observer {
    /// Takes an event. It must return soon: nothing else happens meanwhile.
    fn event(&mut self, event: RunEvent<'_>);

    /// True while the results of objects should wait; the workers go on meanwhile, as far as their
    /// results can be stored.
    fn is_behind(&self) -> bool {
        false
    }

    /// Waits until it is no longer behind. Cancel safe.
    fn keep_up(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}
