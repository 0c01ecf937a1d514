//! Downloads of objects to files, as `inrush get` does them, in the process of a program.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::client::{Answer, Client, ControlThread};
use super::engine::EngineOptions;
use super::feed::{DownloadEvent, DownloadEvents, DownloadObject, Ended, Feed};
use super::order::Order;
use super::share;
use crate::cli::{KeepArgs, OnChange, SelectionArgs, VerifyMode};
use crate::download::job::Rules;
use crate::download::own_files::streams;
use crate::engine::config::HostFacts;
use crate::engine::pace::part_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::report::document::{Summary, failure_json};
use crate::report::limit::Limit;
use crate::s3::uri::S3Uri;

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
    /// Addresses of objects, folders (`s3://bucket/folder/`) and globs (`s3://bucket/*.tar`); none
    /// if `selection` names a list.
    pub sources: Vec<String>,
    /// The version to download, of a single source that is one object.
    pub version_id: Option<String>,
    /// Which of the objects are downloaded (of its rules the last one that matches decides), how
    /// sources are read, and lists of further ones.
    pub selection: SelectionArgs,
    /// The part of the objects that is downloaded.
    pub shard: Shard,
    /// The folder of the files. Of a single object, it may be the path of its file.
    pub destination: PathBuf,
    /// Further folders, among which and the destination the objects are divided.
    pub spread_to: Vec<PathBuf>,
    /// The destination is a folder, also of a single object, as that of `inrush sync`.
    pub into_folder: bool,
    /// Remove files below the destination that are not in the source, after all downloads
    /// succeeded, as `inrush sync --delete` does.
    pub delete: bool,
    /// Which existing files are replaced, how they are compared, and when data is synced to disk.
    pub keep: KeepArgs,
    /// Which objects are compared with their checksums.
    pub verify: VerifyMode,
    /// What happens to an object that changes during its download.
    pub on_change: OnChange,
    /// Time after which it ends; objects that are not complete by then have failed.
    pub deadline: Option<Duration>,
    /// Length of one request in bytes [default: chosen to fit].
    pub part_size_bytes: Option<u64>,
    /// File for a line about each object, as that of `inrush get --report`.
    pub report: Option<PathBuf>,
    /// Which events it sends.
    pub events: DownloadEvents,
    /// The resources of its workers, which are its own: downloads at the same time each have a
    /// share ([`EngineOptions::share`]).
    pub engine: EngineOptions,
}

impl Download {
    /// Downloads this source into this folder, with all defaults.
    pub fn new(source: impl Into<String>, destination: impl Into<PathBuf>) -> Self {
        Self {
            sources: vec![source.into()],
            version_id: None,
            selection: SelectionArgs::default(),
            shard: Shard::WHOLE,
            destination: destination.into(),
            spread_to: Vec::new(),
            into_folder: false,
            delete: false,
            keep: KeepArgs::default(),
            verify: VerifyMode::default(),
            on_change: OnChange::default(),
            deadline: None,
            part_size_bytes: None,
            report: None,
            events: DownloadEvents::default(),
            engine: EngineOptions::default(),
        }
    }

    /// Downloads, and waits until all objects are complete or have failed. Blocks: do not call it
    /// from an asynchronous task.
    ///
    /// # Errors
    /// If an object failed, or nothing could be downloaded. Objects that did not fail are complete.
    pub fn run(self, client: &Client) -> Result<DownloadSummary, DownloadError> {
        Self { events: DownloadEvents::Nothing, ..self }.start(client)?.wait()
    }

    /// Starts the download.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address or option. All other errors are those of
    /// [`DownloadHandle::wait`].
    pub fn start(self, client: &Client) -> Result<DownloadHandle> {
        self.start_with(client, || {})
    }

    /// Starts the download, for a caller that must not block. `notify` is called, on any thread,
    /// whenever [`DownloadHandle::try_next`] has something to return; it must return at once.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        self,
        client: &Client,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<DownloadHandle> {
        let feed = Arc::new(Feed::new(self.events, notify));
        let cancel = Arc::new(watch::Sender::new(false));
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
        if self.sources.is_empty() && !self.selection.has_more() {
            let error = Error::new(ErrorKind::Usage, "a download has no source");
            return Err(error.advise("give an address, such as s3://BUCKET/FOLDER/"));
        }
        let reads = self.selection.read_source();
        let mut uris =
            self.sources.iter().map(|source| reads(source)).collect::<Result<Vec<S3Uri>>>()?;
        if let Some(version) = &self.version_id {
            let [uri] = &mut uris[..] else {
                let error = "a version is of a single source that is one object";
                return Err(Error::new(ErrorKind::Usage, error));
            };
            *uri = uri.clone().with_version(version)?;
        }
        let filter = Filter::new(&self.selection.rules)?;
        let limit = self.engine.bandwidth_limit_bytes_per_second;
        let part = self.part_size_bytes.or(limit.map(part_bytes));
        let (config, bandwidth_limit) = share::resolve(self.engine, part, HostFacts::read())?;
        let report = self.report.iter().map(|path| ("--report", path.clone()));
        let rules = Rules {
            keep: self.keep,
            verify: self.verify,
            on_change: self.on_change,
            retries: self.engine.retries()?,
            bandwidth_limit,
            deadline: self.deadline,
            dry_run: false,
            written: report.chain(streams()).collect(),
        };
        let begun = Instant::now();
        Ok(Order { download: self, uris, filter, rules, config, feed, cancel, begun })
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

    /// The next event if there is one; `None` at the end.
    pub fn try_next(&self) -> Poll<Option<DownloadEvent>> {
        self.feed.try_next()
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
        self.feed.hush();
        self.feed.result().expect("only this call takes it")
    }
}

impl Drop for DownloadHandle {
    fn drop(&mut self) {
        self.cancel();
        self.feed.hush();
        let _ = self.feed.result();
    }
}

/// The result of a download.
#[derive(Debug)]
pub struct DownloadSummary {
    pub(super) summary: Box<Summary>,
    pub(super) error: Option<Error>,
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

    /// Files that were removed because the source does not have them.
    #[must_use]
    pub fn deleted_files(&self) -> u64 {
        self.summary.earlier.deleted_files
    }

    /// All that is known of it: the document of `inrush get --json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.summary.to_json(self.error.as_ref())
    }
}

/// Why a download failed.
#[derive(Debug)]
pub struct DownloadError(pub(super) Box<Failed>);

#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) objects: Vec<(DownloadObject, Error)>,
    pub(super) summary: Option<DownloadSummary>,
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

    /// All that is known of it: the document of `inrush get --json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        match &self.0.summary {
            Some(summary) => summary.to_json(),
            None => failure_json(&self.0.error),
        }
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
