//! A download on the client's thread: it is found, runs, ends, and sends its events to the program.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use super::download::{Download, DownloadError, DownloadSummary, Failed};
use super::feed::{DownloadEvent, DownloadEvents, DownloadObject, DownloadProgress, Ended, Feed};
use crate::cli::{Destination, SelectionArgs};
use crate::control::{Control, Settings};
use crate::download::cancel::{self, Cancel};
use crate::download::job::{DownloadJob, Fetched, Rules, WantedFiles};
use crate::download::observer::{Observer, RunEvent};
use crate::download::own_files::own_files;
use crate::download::reporting;
use crate::download::run::RunFailure;
use crate::download::sources::{self, Narrowed};
use crate::download::target::Target;
use crate::engine::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_download::FileDownload;
use crate::link::waiting::{Board, Pauses};
use crate::plan::filter::Filter;
use crate::report::document::Summary;
use crate::report::line::ProgressState;
use crate::report::out::ReportWriter;
use crate::s3::uri::S3Uri;

/// Most failed objects that an error lists.
const FAILED_LISTED_MAX: usize = 1000;

/// Interval of the checks for waits.
const WAIT_LOOK: Duration = Duration::from_millis(500);

/// A download for the client's thread.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) download: Download,
    /// Its sources.
    pub(super) uris: Vec<S3Uri>,
    pub(super) filter: Filter,
    pub(super) rules: Rules,
    pub(super) config: Config,
    pub(super) feed: Arc<Feed>,
    pub(super) cancel: Arc<watch::Sender<bool>>,
    pub(super) begun: Instant,
}

impl Order {
    /// Downloads.
    pub(super) async fn run(self, control: Rc<Control>, own: &NamedFiles) -> Ended {
        let Self { config, begun, .. } = self;
        let (feed, cancel) = (Arc::clone(&self.feed), Arc::clone(&self.cancel));
        // The control plane's own board is shared with other downloads.
        let board = Arc::<Board>::default();
        let (waits, asked) = (Arc::clone(&board), Rc::clone(&control));
        let deadline = self.rules.deadline.map(|deadline| begun + deadline);
        let mut until = Until { cancel, is_known: false, deadline, board: waits, control: asked };
        let report = self.download.report.clone();
        let mut listener = Listener::new(Arc::clone(&feed));
        let fetching = async {
            let found = self.find(Rc::clone(&control), own, &board, &mut listener);
            let job = until.unless(found).await?;
            let ready = job.ready(config, begun, &mut until).await?;
            // Not earlier: a run that fails early leaves the report of an earlier one.
            listener.report = reporting::open(report.as_deref(), false, &mut until).await?;
            ready.fetch(&mut listener, &mut until).await
        };
        let fetched = tokio::select! {
            biased;
            fetched = fetching => fetched,
            () = report_waits(&control, &board, &feed) => unreachable!("it has no end"),
        };
        listener.end_report(&fetched, &mut until).await;
        listener.end(fetched)
    }

    /// Finds the sources, with those that lists name, and looks at the destination.
    async fn find(
        self,
        control: Rc<Control>,
        own: &NamedFiles,
        board: &Arc<Board>,
        listener: &mut Listener,
    ) -> Result<DownloadJob> {
        let Self { download, mut uris, filter, rules, begun, .. } = self;
        let selection = &download.selection;
        if download.delete {
            sources::require_whole(selection)?;
        }
        sources::add(&mut uris, selection, board).await?;
        let narrowed = Narrowed { filter, shard: download.shard };
        let narrowed =
            sources::add_manifest(&control, &mut uris, selection, narrowed, board).await?;
        let mirrored_except = match download.delete {
            true => Some(own.with(selection, &rules, board).await),
            false => None,
        };
        let is_spread = !download.spread_to.is_empty();
        let are_many = download.into_folder || download.delete || selection.has_more();
        let wanted = WantedFiles {
            are_many: are_many || is_spread || uris.len() > 1,
            uris,
            filter: narrowed.filter,
            shard: narrowed.shard,
            destination: Destination::Local(download.destination),
            spread_to: download.spread_to,
            mirrored_except,
        };
        let mut job = DownloadJob::find(control, wanted, rules, listener, begun).await?;
        job.resolved.board = Arc::clone(board);
        Ok(job)
    }
}

/// Files that the options of a client name.
#[derive(Debug)]
pub(super) struct NamedFiles {
    /// The profile, whose settings name others.
    pub(super) profile: Option<String>,
    pub(super) files: Vec<PathBuf>,
}

impl NamedFiles {
    /// All files that a download with this selection reads and writes itself, and those of the
    /// user's keys.
    async fn with(
        &self,
        selection: &SelectionArgs,
        rules: &Rules,
        board: &Arc<Board>,
    ) -> Vec<PathBuf> {
        let settings = Settings::load(self.profile.clone(), Arc::clone(board)).await.ok();
        own_files(selection, self.files.clone(), &rules.written, settings.as_ref())
    }
}

/// Reports waits, of which some are of all that the client does.
async fn report_waits(control: &Control, board: &Board, feed: &Feed) {
    let (begun, mut pauses) = (tokio::time::Instant::now(), Pauses::default());
    loop {
        tokio::time::sleep(WAIT_LOOK).await;
        let Some(wait) = control.longest_wait().or_else(|| board.oldest()) else { continue };
        let now_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        if pauses.is_due(now_us, &wait) {
            feed.push(|| DownloadEvent::Waiting(wait.to_string()));
        }
    }
}

/// Cancels a download.
struct Until {
    cancel: Arc<watch::Sender<bool>>,
    /// The run knows that it is cancelled.
    is_known: bool,
    deadline: Option<Instant>,
    board: Arc<Board>,
    control: Rc<Control>,
}

impl Cancel for Until {
    async fn cancelled(&mut self) {
        if self.is_known {
            return std::future::pending().await;
        }
        // It cannot fail: the sender exists.
        let _ = self.cancel.subscribe().wait_for(|is_cancelled| *is_cancelled).await;
        self.is_known = true;
    }

    async fn unless_reported<T>(
        &mut self,
        when: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (board, control) = (Arc::clone(&self.board), Rc::clone(&self.control));
        let wait = move || board.oldest().or_else(|| control.board().oldest());
        let blame = move || wait().map(|wait| format!(": {}", wait.blame())).unwrap_or_default();
        let deadline = self.deadline;
        cancel::unless((self.cancelled(), deadline), (when, blame), work).await
    }
}

/// Makes the events of a run those of the program.
struct Listener {
    feed: Arc<Feed>,
    failed: Vec<(DownloadObject, Error)>,
    /// One line per object.
    report: Option<ReportWriter>,
    /// The report failed: the error of the run if nothing worse happens.
    report_error: Option<Error>,
}

impl Listener {
    fn new(feed: Arc<Feed>) -> Self {
        Self { feed, failed: Vec::new(), report: None, report_error: None }
    }

    /// Adds the event's line to the report, and sends it, if either is wanted.
    fn note_line(&mut self, event: &RunEvent<'_>) {
        let is_sent = self.feed.sends(DownloadEvents::Lines);
        if !is_sent && self.report.is_none() {
            return;
        }
        let Some(line) = event.report_line() else { return };
        if let Some(report) = &mut self.report
            && let Err(error) = report.line(&line)
        {
            self.report_error = Some(error);
            self.report = None;
        }
        self.feed.push_line(line);
    }

    /// Writes the rest of the report; that of a run that ended before any data was transferred only
    /// if it has a line.
    async fn end_report(&mut self, fetched: &Result<Fetched>, until: &mut Until) {
        let Some(report) = self.report.take() else { return };
        let stopped = match fetched {
            Ok(fetched) => fetched.stopped,
            Err(_) if report.is_empty() => return,
            Err(error) => Some(error.kind()),
        };
        if let Err(error) = reporting::finish(report, stopped, until).await {
            self.report_error = Some(error);
        }
    }

    /// The result.
    fn end(self, fetched: Result<Fetched>) -> Ended {
        let (objects, summary, error) = match fetched {
            Err(error) => (self.failed, None, error),
            Ok(mut fetched) => {
                let error = fetched.failure.as_ref().map(error_of).or(self.report_error);
                fetched.inputs.exit_code =
                    error.as_ref().map_or(0, |error| error.kind().exit_code());
                // Only the workers' processor time counts: the rest may be the program's own.
                let workers = fetched.inputs.workers.iter();
                fetched.inputs.cpu_seconds = workers.map(|of| of.processor.cpu_seconds).sum();
                let summary = Box::new(Summary::new(&fetched.inputs));
                self.feed.set_progress(DownloadProgress {
                    bytes_done: summary.bytes,
                    objects_done: summary.objects + summary.failed_objects,
                    listing_complete: summary.untried_objects.is_some(),
                    ..progress(&fetched.remarks.known, summary.failed_objects)
                });
                let summary = DownloadSummary { summary, error: error.clone() };
                let Some(error) = error else { return Ok(summary) };
                (self.failed, Some(summary), error)
            }
        };
        Err(DownloadError(Box::new(Failed { error, objects, summary })))
    }
}

/// The error of a run. Of a cancelled one, it says what is complete.
fn error_of(failure: &RunFailure) -> Error {
    match failure {
        RunFailure::Stopped(error, words) if error.kind() == ErrorKind::Interrupted => {
            Error::new(error.kind(), words)
        }
        failure => failure.error().clone(),
    }
}

/// The state of a run for the program.
fn progress(state: &ProgressState, failed_objects: u64) -> DownloadProgress {
    DownloadProgress {
        bytes_done: state.bytes_done,
        bytes_known: state.bytes_known,
        objects_done: state.objects_done,
        objects_known: state.objects_known,
        existing_objects: state.objects_kept,
        failed_objects,
        retries: state.retries,
        listing_complete: state.listing_complete,
    }
}

/// An object for the program.
fn object(download: &FileDownload, target: &Target) -> DownloadObject {
    let has_path = !download.path.is_empty();
    DownloadObject {
        bucket: download.object.endpoint.bucket.clone(),
        key: download.object.listed.key.clone(),
        size_bytes: download.object.listed.size_bytes,
        file: target.folder().filter(|_| has_path).map(|folder| folder.join(&download.path)),
    }
}

impl Observer for Listener {
    fn event(&mut self, event: RunEvent<'_>) {
        self.note_line(&event);
        let feed = &self.feed;
        match event {
            RunEvent::Started(workers, _) => {
                if let Some(line) = workers.ring().fallback() {
                    tracing::warn!("{line}");
                }
            }
            RunEvent::Admitted(download, target) => {
                feed.push(|| DownloadEvent::Admitted(object(download, target)));
            }
            RunEvent::Existing(subject, _) => {
                feed.push(|| DownloadEvent::Existing(object(subject.download, subject.target)));
            }
            RunEvent::Progress(state, failed_objects, _) => {
                feed.set_progress(progress(state, failed_objects));
            }
            RunEvent::Retried(download, target, why) => {
                feed.push(|| DownloadEvent::Retried(object(download, target), why));
            }
            RunEvent::Done(subject, _) => {
                feed.push(|| DownloadEvent::Done(object(subject.download, subject.target)));
            }
            RunEvent::Failed { subject, error, .. } => {
                let failed = || object(subject.download, subject.target);
                if self.failed.len() < FAILED_LISTED_MAX {
                    self.failed.push((failed(), error.clone()));
                }
                feed.push(|| DownloadEvent::Failed(failed(), error.clone()));
            }
            // Lines have what is of one object, and the result has the rest.
            RunEvent::LeftOut(_) | RunEvent::Removed(..) | RunEvent::Note(_) => {}
            RunEvent::Found(_) | RunEvent::Configured(_) => {}
        }
    }
    fn is_behind(&self) -> bool {
        self.feed.is_behind() || self.report.as_ref().is_some_and(ReportWriter::is_behind)
    }

    fn keep_up(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {
            self.feed.keep_up().await;
            reporting::keep_up(self.report.as_ref()).await;
        })
    }
}
