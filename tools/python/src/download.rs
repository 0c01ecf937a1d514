//! `get` and `sync`: downloads in this process, with the options of the command.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use inrush::cli::{Args, Destination, GetArgs, GetVerb, parse, refusal_in_words};
use inrush::{DownloadEvent, DownloadEvents, DownloadHandle, EngineOptions};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors::Failure;
use crate::listing::Bell;
use crate::session::{Detached, Home, Owned, SLICE, forked};

/// A download that has been started, and what rings when it has something new.
#[pyclass(frozen, weakref, module = "inrush._native")]
#[derive(Debug)]
pub(crate) struct Download {
    /// There until it has ended. The lock is held with the interpreter attached, and for no wait.
    handle: Mutex<Option<Owned<Detached<DownloadHandle>>>>,
    bell: Owned<Bell>,
    /// Its only source.
    source: Option<String>,
}

/// The document of a result, why it failed, and the errors of the failed objects.
type Ended<'py> = (String, Option<Bound<'py, PyAny>>, Bound<'py, PyList>);

impl Download {
    /// Starts what these words of the command's say. With `lines`, `take` has those of its report.
    pub(crate) fn start(
        py: Python<'_>,
        home: &Home,
        words: Vec<OsString>,
        sources: Vec<String>,
        lines: bool,
    ) -> PyResult<Self> {
        let source = if let [source] = &sources[..] { Some(source.clone()) } else { None };
        let failed = |failure: Failure| match &source {
            Some(source) => failure.of(source).raised(py),
            None => failure.raised(py),
        };
        let args = typed(words).map_err(&failed)?;
        let session = home.session(py)?;
        let mut download = download_of(args, sources, session.options()).map_err(&failed)?;
        download.events = if lines { DownloadEvents::Lines } else { DownloadEvents::Nothing };
        let bell = Bell::new()?;
        let rung = bell.clone();
        let started = download.start_with(&session.client, move || rung.ring());
        let handle = started.map_err(|error| failed(error.into()))?;
        let handle = Mutex::new(Some(Owned::new(Detached::new(handle))));
        Ok(Self { handle, bell: Owned::new(bell), source })
    }

    fn handle(&self) -> MutexGuard<'_, Option<Owned<Detached<DownloadHandle>>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bell(&self) -> PyResult<&Bell> {
        let bell = self.bell.view();
        bell.ok_or_else(|| forked("the download belongs to another process: start one"))
    }

    /// The failure of the download, or of an object: of one that it names, or of the only source.
    fn exception<'py>(
        &self,
        py: Python<'py>,
        error: &inrush::Error,
        uri: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let failure = Failure::from(error.clone());
        match uri.or_else(|| self.source.clone()) {
            Some(uri) => failure.of(&uri).exception(py),
            None => failure.exception(py),
        }
    }
}

#[pymethods]
impl Download {
    /// Readable when there may be something to take.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.bell()?.descriptor())
    }

    /// Waits until there may be something to take, or for a while.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let bell = self.bell()?;
        py.detach(|| bell.wait(SLICE));
        py.check_signals()
    }

    /// The lines of the report that have come; `None` at the end. Never waits.
    fn take(&self) -> PyResult<Option<Vec<String>>> {
        self.bell()?.silence();
        let handle = self.handle();
        let Some(handle) = handle.as_ref().and_then(Owned::view) else { return Ok(None) };
        let mut lines = Vec::new();
        loop {
            match handle.try_next() {
                Poll::Ready(Some(DownloadEvent::Line(line))) => lines.push(line),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) if lines.is_empty() => return Ok(None),
                Poll::Ready(None) | Poll::Pending => return Ok(Some(lines)),
            }
        }
    }

    /// The result of a download that has ended, once.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Ended<'py>> {
        self.bell()?;
        let handle = self.handle().take().and_then(Owned::into_inner);
        let handle = handle.ok_or_else(|| Failure::closed().raised(py))?.into_inner();
        let failed = PyList::empty(py);
        let error = match py.detach(|| handle.wait()) {
            Ok(summary) => return Ok((summary.to_json(), None, failed)),
            Err(error) => error,
        };
        let address = |at: usize| {
            let (object, _) = error.failed().get(at)?;
            Some(format!("s3://{}/{}", object.bucket, object.key))
        };
        for (at, (_, of_object)) in error.failed().iter().enumerate() {
            failed.append(self.exception(py, of_object, address(at))?)?;
        }
        let uri = if failed.len() == 1 { address(0) } else { None };
        let whole = self.exception(py, error.error(), uri)?;
        Ok((error.to_json(), Some(whole), failed))
    }

    /// Ends it soon; what is complete stays.
    fn cancel(&self) {
        if let Some(handle) = self.handle().as_ref().and_then(Owned::view) {
            handle.cancel();
        }
    }

    /// Ends it, and waits for its end.
    fn close(&self) {
        let handle = self.handle().take();
        drop(handle);
    }
}

/// The options of these words.
fn typed(words: Vec<OsString>) -> Result<GetArgs, Failure> {
    match parse(words) {
        Ok(Args::Get(args)) => Ok(*args),
        Ok(_) => unreachable!("the words begin with get or sync"),
        Err(refusal) => Err(Failure::usage(refusal_in_words(&refusal))),
    }
}

/// The download that these options describe.
fn download_of(
    args: GetArgs,
    sources: Vec<String>,
    engine: EngineOptions,
) -> Result<inrush::Download, Failure> {
    let only = |option: &str| {
        let message = format!("{option} is of the program alone: python -m inrush get --help");
        Err(Failure::usage(message))
    };
    let Destination::Local(folder) = args.destination else { return only("discard") };
    if args.dry_run {
        return only("dry_run");
    }
    if args.selection.files_from.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "files_from: the program's own standard input is not read".into(),
        ));
    }
    if args.metrics.metrics_listen.is_some() || args.metrics.metrics_file.is_some() {
        return only("an option for metrics");
    }
    let mut download = inrush::Download::new("", folder);
    download.sources = sources;
    download.version_id = args.service.version_id;
    download.selection = args.selection;
    download.shard = args.shard;
    download.spread_to = args.spread_to;
    download.into_folder = args.verb != GetVerb::Get;
    download.delete = args.verb == GetVerb::Sync { delete: true };
    download.keep = args.keep;
    download.verify = args.verify;
    download.on_change = args.failures.on_change;
    download.deadline = args.failures.deadline;
    download.part_size_bytes = args.tuning.part_size;
    download.report = args.report;
    download.engine = engine;
    Ok(download)
}
