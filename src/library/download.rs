//! Downloads of objects to files, as `inrush get` does them, in the process of a program.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::client::{Answer, Client, ControlThread};
use super::engine::EngineOptions;
use super::feed::{DownloadEvent, DownloadObject, DownloadProgress, Ended, Feed};
use super::share;
use crate::cli::{Destination, Durability, KeepArgs, OnChange, Overwrite, VerifyMode};
use crate::control::Control;
use crate::download::cancel::{self, Cancel};
use crate::download::job::{DownloadJob, Fetched, Rules, WantedFiles};
use crate::download::observer::{Observer, RunEvent};
use crate::download::run::RunFailure;
use crate::download::target::Target;
use crate::engine::config::{Config, HostFacts};
use crate::error::{Error, ErrorKind, Result};
use crate::files::transfer::Transfer;
use crate::link::waiting::{Board, Pauses};
use crate::plan::epoch::Shard;
use crate::plan::filter::{Filter, Rule};
use crate::report::document::Summary;
use crate::report::limit::Limit;
use crate::report::line::ProgressState;
use crate::s3::uri::S3Uri;

/// Most failed objects that an error lists.
const FAILED_LISTED_MAX: usize = 1000;

/// Interval of the checks for waits.
const WAIT_LOOK: Duration = Duration::from_millis(500);

/// A download of objects into files: which objects, where to, and how. It does what `inrush get`
/// does: a file has its name once it is complete, files that exist are skipped, and what an earlier
/// download left is resumed.
///
/// ```no_run
/// # fn main() -> inrush::Result<()> {
/// use inrush::{Client, ClientOptions, Download, DownloadEvent};
///
/// let client = Client::connect(ClientOptions::new())?;
/// let download = Download::new("s3://bucket/train/", "/data/train").start(&client)?;
/// for event in download.events() {
///     match event {
///         DownloadEvent::Progress(progress) => println!("{} bytes", progress.bytes_done),
///         DownloadEvent::Failed(object, error) => eprintln!("{}: {error}", object.key),
///         _ => {}
///     }
/// }
/// let summary = download.wait()?;
/// println!("{} objects", summary.objects());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Download {
    /// Addresses of objects, folders (`s3://bucket/folder/`) and globs (`s3://bucket/*.tar`).
    pub sources: Vec<String>,
    /// The folder of the files. Of a single object, it may be the path of its file.
    pub destination: PathBuf,
    /// Which of the objects are downloaded, as by `--include` and `--exclude`: the last match
    /// decides.
    pub filters: Vec<Rule>,
    /// Which existing files are replaced.
    pub overwrite: Overwrite,
    /// Which objects are compared with their checksums.
    pub verify: VerifyMode,
    /// What happens to an object that changes during its download.
    pub on_change: OnChange,
    /// When data is synced to disk.
    pub durability: Durability,
    /// The resources of its workers, which are its own: downloads at the same time each have a
    /// share ([`EngineOptions::share`]).
    pub engine: EngineOptions,
}

impl Download {
    /// Downloads this source into this folder, with all defaults.
    pub fn new(source: impl Into<String>, destination: impl Into<PathBuf>) -> Self {
        Self {
            sources: vec![source.into()],
            destination: destination.into(),
            filters: Vec::new(),
            overwrite: Overwrite::default(),
            verify: VerifyMode::default(),
            on_change: OnChange::default(),
            durability: Durability::default(),
            engine: EngineOptions::default(),
        }
    }

    /// Downloads, and waits until all objects are complete or have failed. Blocks: do not call it
    /// from an asynchronous task.
    ///
    /// # Errors
    /// If an object failed, or nothing could be downloaded. Objects that did not fail are complete.
    pub fn run(self, client: &Client) -> Result<DownloadSummary, DownloadError> {
        self.begin(client, Feed::unheard())?.wait()
    }

    /// Starts the download.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address or option. All other errors are those of
    /// [`DownloadHandle::wait`].
    pub fn start(self, client: &Client) -> Result<DownloadHandle> {
        self.begin(client, Feed::new())
    }

    fn begin(self, client: &Client, feed: Feed) -> Result<DownloadHandle> {
        let (feed, cancel) = (Arc::new(feed), Arc::new(watch::Sender::new(false)));
        let order = self.order(Arc::clone(&feed), Arc::clone(&cancel))?;
        let ending = Arc::clone(&feed);
        let answer = Answer::new(move |ended: Result<Ended>| {
            ending.end(ended.unwrap_or_else(|gone| Err(gone.into())));
        });
        client.download(order, answer)?;
        Ok(DownloadHandle { feed, cancel, _thread: client.thread() })
    }

    #[expect(clippy::disallowed_methods, reason = "a download begins when it is started")]
    fn order(self, feed: Arc<Feed>, cancel: Arc<watch::Sender<bool>>) -> Result<Order> {
        if self.sources.is_empty() {
            let error = Error::new(ErrorKind::Usage, "a download has no source");
            return Err(error.advise("give an address, such as s3://BUCKET/FOLDER/"));
        }
        let parse = |source: &String| S3Uri::parse(source);
        let uris = self.sources.iter().map(parse).collect::<Result<Vec<S3Uri>>>()?;
        let (config, bandwidth_limit) = share::resolve(self.engine, HostFacts::read())?;
        let wanted = WantedFiles {
            are_many: uris.len() > 1,
            uris,
            filter: Filter::new(&self.filters)?,
            shard: Shard::WHOLE,
            destination: Destination::Local(self.destination),
            spread_to: Vec::new(),
            mirrored_except: None,
        };
        let keep = KeepArgs {
            overwrite: self.overwrite,
            durability: self.durability,
            ..KeepArgs::default()
        };
        let rules = Rules {
            keep,
            verify: self.verify,
            on_change: self.on_change,
            retries: self.engine.retries()?,
            bandwidth_limit,
            deadline: None,
            dry_run: false,
            written: Vec::new(),
        };
        Ok(Order { wanted, rules, config, feed, cancel, begun: Instant::now() })
    }
}

/// A download that has been started. Dropping it cancels the download, and waits for its end.
#[derive(Debug)]
pub struct DownloadHandle {
    feed: Arc<Feed>,
    cancel: Arc<watch::Sender<bool>>,
    /// Does the work of the control plane.
    _thread: Arc<ControlThread>,
}

impl DownloadHandle {
    /// The events, each once, until the download has ended; the iterator waits for them. Who reads
    /// them late holds up no download: at most 4,096 are stored, further ones are counted
    /// ([`DownloadEvent::Missed`]).
    pub fn events(&self) -> impl Iterator<Item = DownloadEvent> + use<'_> {
        std::iter::from_fn(|| self.feed.next())
    }

    /// Ends the download soon, unless its file system does not answer. Complete objects stay, and
    /// the next download resumes the others.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Waits until all objects are complete or have failed. Blocks: do not call it from an
    /// asynchronous task.
    ///
    /// # Errors
    /// If an object failed, or nothing could be downloaded; [`ErrorKind::Interrupted`] if it was
    /// cancelled. Objects that did not fail are complete.
    pub fn wait(self) -> Result<DownloadSummary, DownloadError> {
        self.feed.result().expect("only this call takes it")
    }
}

impl Drop for DownloadHandle {
    fn drop(&mut self) {
        self.cancel();
        let _ = self.feed.result();
    }
}

/// The result of a download.
#[derive(Debug)]
pub struct DownloadSummary {
    summary: Box<Summary>,
    error: Option<Error>,
}

impl DownloadSummary {
    /// Objects that were downloaded.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.summary.objects
    }

    /// Bytes that were downloaded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.summary.bytes
    }

    /// Objects whose files existed, and which were skipped.
    #[must_use]
    pub fn existing_objects(&self) -> u64 {
        self.summary.earlier.kept_objects
    }

    /// Objects that were resumed where an earlier download ended.
    #[must_use]
    pub fn resumed_objects(&self) -> u64 {
        self.summary.earlier.resumed_objects
    }

    /// Objects that failed.
    #[must_use]
    pub fn failed_objects(&self) -> u64 {
        self.summary.failed_objects
    }

    /// Objects whose bytes agree with the checksum that S3 stores.
    #[must_use]
    pub fn verified_objects(&self) -> u64 {
        self.summary.validated_objects
    }

    /// Time from the start to the end.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.summary.seconds)
    }

    /// What limited the download, as `--explain` reports it.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.summary.limit
    }

    /// All that is known of it: the document of `inrush get --json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.summary.to_json(self.error.as_ref())
    }
}

/// Why a download failed.
#[derive(Debug)]
pub struct DownloadError(Box<Failed>);

#[derive(Debug)]
struct Failed {
    error: Error,
    objects: Vec<(DownloadObject, Error)>,
    summary: Option<DownloadSummary>,
}

impl DownloadError {
    /// The error: that of the failed objects if they all failed for the same reason.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// The failed objects, each with its own error: the first 1,000.
    #[must_use]
    pub fn failed(&self) -> &[(DownloadObject, Error)] {
        &self.0.objects
    }

    /// The result; `None` if it failed before anything was downloaded.
    #[must_use]
    pub fn summary(&self) -> Option<&DownloadSummary> {
        self.0.summary.as_ref()
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

impl std::error::Error for DownloadError {}

impl From<Error> for DownloadError {
    fn from(error: Error) -> Self {
        Self(Box::new(Failed { error, objects: Vec::new(), summary: None }))
    }
}

impl From<DownloadError> for Error {
    fn from(failed: DownloadError) -> Self {
        failed.0.error
    }
}

/// A download for the client's thread.
#[derive(Debug)]
pub(super) struct Order {
    wanted: WantedFiles,
    rules: Rules,
    config: Config,
    feed: Arc<Feed>,
    cancel: Arc<watch::Sender<bool>>,
    begun: Instant,
}

impl Order {
    /// Downloads.
    pub(super) async fn run(self, control: Rc<Control>) -> Ended {
        let Self { wanted, rules, config, feed, cancel, begun } = self;
        // The control plane's own board is shared with other downloads.
        let board = Arc::<Board>::default();
        let (waits, asked) = (Arc::clone(&board), Rc::clone(&control));
        let mut until = Until { cancel, is_known: false, board: waits, control: asked };
        let mut listener = Listener { feed: Arc::clone(&feed), failed: Vec::new() };
        let fetching = async {
            let found = DownloadJob::find(Rc::clone(&control), wanted, rules, &mut listener, begun);
            let job = DownloadJob { board: Arc::clone(&board), ..until.unless(found).await? };
            let ready = job.ready(config, begun, &mut until).await?;
            ready.fetch(&mut listener, &mut until).await
        };
        let fetched = tokio::select! {
            biased;
            fetched = fetching => fetched,
            () = report_waits(&control, &board, &feed) => unreachable!("it has no end"),
        };
        listener.end(fetched)
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
        cancel::unless((self.cancelled(), None), (when, blame), work).await
    }
}

/// Makes the events of a run those of the program.
struct Listener {
    feed: Arc<Feed>,
    failed: Vec<(DownloadObject, Error)>,
}

impl Listener {
    /// The result.
    fn end(self, fetched: Result<Fetched>) -> Ended {
        let (objects, summary, error) = match fetched {
            Err(error) => (self.failed, None, error),
            Ok(mut fetched) => {
                let error = fetched.failure.as_ref().map(error_of);
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
fn object(transfer: &Transfer, target: &Target) -> DownloadObject {
    let has_path = !transfer.path.is_empty();
    DownloadObject {
        bucket: transfer.endpoint.bucket.clone(),
        key: transfer.object.key.clone(),
        size_bytes: transfer.object.size_bytes,
        file: target.folder().filter(|_| has_path).map(|folder| folder.join(&transfer.path)),
    }
}

impl Observer for Listener {
    fn event(&mut self, event: RunEvent<'_>) {
        let feed = &self.feed;
        match event {
            RunEvent::Started(workers, _) => {
                if let Some(line) = workers.ring().fallback() {
                    tracing::warn!("{line}");
                }
            }
            RunEvent::Admitted(transfer, target) => {
                feed.push(|| DownloadEvent::Admitted(object(transfer, target)));
            }
            RunEvent::Existing(subject, _) => {
                feed.push(|| DownloadEvent::Existing(object(subject.transfer, subject.target)));
            }
            RunEvent::Progress(state, failed_objects, _) => {
                feed.set_progress(progress(state, failed_objects));
            }
            RunEvent::Retried(transfer, target, why) => {
                feed.push(|| DownloadEvent::Retried(object(transfer, target), why));
            }
            RunEvent::Done(subject, _) => {
                feed.push(|| DownloadEvent::Done(object(subject.transfer, subject.target)));
            }
            RunEvent::Failed { subject, error, .. } => {
                let failed = || object(subject.transfer, subject.target);
                if self.failed.len() < FAILED_LISTED_MAX {
                    self.failed.push((failed(), error.clone()));
                }
                feed.push(|| DownloadEvent::Failed(failed(), error.clone()));
            }
            // Not without several destinations, channels, or files to be removed.
            RunEvent::LeftOut(_) | RunEvent::Removed(..) | RunEvent::Note(_) => {}
            RunEvent::Found(_) | RunEvent::Configured(_) => {}
        }
    }
}
