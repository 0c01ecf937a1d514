//! One client, as `inrush._client` has it: options, and what waits.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use inrush::text::size;
use inrush::{ClientOptions, EngineOptions, RemoteObject, RingChoice};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::aio::{Reactor, value};
use crate::buffer::Memory;
use crate::download::Download;
use crate::errors::Failure;
use crate::host::attach::Host;
use crate::host::server::{self, Server};
use crate::info::ObjectInfo;
use crate::jobs::{Jobs, Outcome, Source, Want};
use crate::listing::{Bell, List};
use crate::many::{ReadMany, part_of};
use crate::session::{Engines, Home, Owned, SLICE};

/// The error of a child that was forked while its parent waited here.
const FORKED: &str = "the read belongs to another process: read again";

/// A client without Python's conveniences.
#[pyclass(frozen, module = "inrush._native")]
#[derive(Debug)]
pub(crate) struct Core {
    home: Home,
}

/// The option of this name, where it is given.
fn option<'py, T>(options: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    match options.get_item(name)? {
        Some(value) if !value.is_none() => {
            let value = value.extract::<T>().map_err(|error| {
                let error: PyErr = error.into();
                PyTypeError::new_err(format!("{name}: {}", error.value(options.py())))
            })?;
            Ok(Some(value))
        }
        _ => Ok(None),
    }
}

/// The option of this name in bytes, where it is given.
fn bytes(options: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<u64>> {
    let given = options.get_item(name)?.filter(|given| !given.is_none());
    given.map(|given| size_bytes(name, &given)).transpose()
}

/// A size in bytes: a number, or text such as "1GiB". Errors begin with the name of the option.
#[pyfunction]
pub(crate) fn size_bytes(name: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = given.extract::<String>() {
        let parsed = size::parse(&text).map_err(|why| format!("{name}: {why}"));
        return parsed.map_err(PyValueError::new_err);
    }
    given.extract().map_err(|_| {
        PyTypeError::new_err(format!("{name}: give a number of bytes, or a str such as \"1GiB\""))
    })
}

fn seconds(options: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<Duration>> {
    let Some(seconds) = option::<f64>(options, name)? else { return Ok(None) };
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| PyValueError::new_err(format!("{name}: {seconds} is no number of seconds")))
}

fn ring(options: &Bound<'_, PyDict>) -> PyResult<RingChoice> {
    let given = option::<String>(options, "ring")?;
    let given = given.or_else(|| std::env::var("INRUSH_RING").ok());
    match given.as_deref() {
        None | Some("" | "auto") => Ok(RingChoice::Auto),
        Some("io_uring") => Ok(RingChoice::IoUring),
        Some("epoll") => Ok(RingChoice::Epoll),
        Some(other) => {
            Err(PyValueError::new_err(format!("ring: '{other}' is not auto, io_uring or epoll")))
        }
    }
}

fn engine_options(options: &Bound<'_, PyDict>) -> PyResult<EngineOptions> {
    let mut engine = EngineOptions::new().ring(ring(options)?);
    engine.workers = option(options, "workers")?;
    engine.connections = option(options, "connections")?;
    engine.max_connections = option(options, "max_connections")?;
    engine.memory_bytes = bytes(options, "memory")?;
    engine.bandwidth_limit_bytes_per_second =
        bytes(options, "bandwidth_limit")?.and_then(NonZeroU64::new);
    engine.retry_for = seconds(options, "retry_for")?;
    engine.connect_timeout = seconds(options, "connect_timeout")?;
    engine.read_timeout = seconds(options, "read_timeout")?;
    engine.max_attempts = option::<NonZeroU32>(options, "max_attempts")?;
    engine.share = option(options, "share")?;
    if let Some((number, engines)) = engine.share
        && number >= engines
    {
        let message = format!("share: there is no part {number} of {engines}; the first is 0");
        return Err(PyValueError::new_err(message));
    }
    engine.check().map_err(|error| Failure::from(error).raised(options.py()))?;
    Ok(engine)
}

fn addressing_style(options: &Bound<'_, PyDict>) -> PyResult<Option<inrush::AddressingStyle>> {
    match option::<String>(options, "addressing_style")?.as_deref() {
        None => Ok(None),
        Some("auto") => Ok(Some(inrush::AddressingStyle::Auto)),
        Some("path") => Ok(Some(inrush::AddressingStyle::Path)),
        Some("virtual") => Ok(Some(inrush::AddressingStyle::Virtual)),
        Some(other) => {
            let message = format!("addressing_style: '{other}' is not auto, path or virtual");
            Err(PyValueError::new_err(message))
        }
    }
}

fn client_options(options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let mut client = ClientOptions::new();
    client.endpoint_url = option(options, "endpoint_url")?;
    client.region = option(options, "region")?;
    client.profile = option(options, "profile")?;
    client.anonymous = option(options, "no_sign_request")?.unwrap_or(false);
    client.ca_bundle = option::<PathBuf>(options, "ca_bundle")?;
    client.no_verify_ssl = option(options, "no_verify_ssl")?.unwrap_or(false);
    client.addressing_style = addressing_style(options)?;
    client.use_dualstack_endpoint = option(options, "use_dualstack_endpoint")?.unwrap_or(false);
    client.use_fips_endpoint = option(options, "use_fips_endpoint")?.unwrap_or(false);
    client.requester_pays = match option::<String>(options, "request_payer")?.as_deref() {
        None => false,
        Some("requester") => true,
        Some(other) => {
            let message = format!("request_payer: '{other}' is not requester");
            return Err(PyValueError::new_err(message));
        }
    };
    client.sse_c_key_file = option::<PathBuf>(options, "sse_c_key_file")?;
    client.interfaces = option(options, "interface")?.unwrap_or_default();
    client.list_requests = option(options, "list_requests")?;
    client.retry_for = seconds(options, "retry_for")?;
    client.connect_timeout = seconds(options, "connect_timeout")?;
    client.read_timeout = seconds(options, "read_timeout")?;
    Ok(client)
}

impl Core {
    /// Runs one job to its end.
    fn run(
        &self,
        py: Python<'_>,
        source: Source,
        range: &Bound<'_, PyAny>,
        want: Want,
    ) -> PyResult<Outcome> {
        let part = part_of(range)?;
        // A signal's handler may fork: its child comes back here, too.
        let mut owned = Owned::new(Jobs::new(py, &self.home)?);
        owned.mine(FORKED)?.start(py, source, part, want);
        loop {
            let jobs = owned.mine(FORKED)?;
            for number in jobs.take_answers() {
                jobs.fetch(py, number);
            }
            if let Some((_, outcome)) = jobs.take_ended().pop() {
                return outcome.map_err(|failure| failure.raised(py));
            }
            py.detach(|| jobs.wait(SLICE));
            jobs.take();
            if let Err(interrupted) = py.check_signals() {
                if let Some(jobs) = owned.get() {
                    jobs.give_up(py);
                }
                return Err(interrupted);
            }
        }
    }

    fn head(&self, py: Python<'_>, address: &str) -> PyResult<RemoteObject> {
        let session = self.home.session(py)?;
        let (answer, answered) = channel();
        let asked = session.client.head_then(address, move |found| drop(answer.send(found)));
        drop(session);
        asked.map_err(|error| Failure::from(error).of(address).raised(py))?;
        let mut answered = Owned::new(Answered(answered));
        loop {
            let waited = answered.mine(FORKED)?;
            let found = py.detach(move || waited.wait());
            py.check_signals()?;
            match found {
                None => {}
                Some(Ok(object)) => return Ok(object),
                Some(Err(error)) if !self.home.is_closed() => {
                    return Err(Failure::from(error).of(address).raised(py));
                }
                Some(Err(_)) => return Err(Failure::closed().raised(py)),
            }
        }
    }
}

/// A HEAD that is under way.
struct Answered(Receiver<Result<RemoteObject, inrush::Error>>);

impl Answered {
    /// The answer, if it comes within a slice.
    fn wait(&mut self) -> Option<Result<RemoteObject, inrush::Error>> {
        self.0.recv_timeout(SLICE).ok().or_else(|| match self.0.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(inrush::Error::bug("a question was not answered")))
            }
        })
    }
}

#[pymethods]
impl Core {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let engine = engine_options(options)?;
        let clients = engine.share.map_or(1, |(_, clients)| clients as u64);
        let host = option::<String>(options, "host")?;
        let host = host.map(|started_by| Arc::new(Host::new(started_by, clients)));
        Ok(Self { home: Home::new(client_options(options)?, engine, host) })
    }

    fn stat(&self, py: Python<'_>, source: Source) -> PyResult<ObjectInfo> {
        if self.home.is_shared() {
            let none = py.None().into_bound(py);
            return match self.run(py, source, &none, Want::Info)? {
                Outcome::Info(info) => Ok(info),
                Outcome::Bytes(_) | Outcome::Written(_) => unreachable!("nothing was read"),
            };
        }
        Ok(ObjectInfo::of(&self.head(py, &source.address())?))
    }

    fn list(&self, py: Python<'_>, uri: String, recursive: bool) -> PyResult<List> {
        let bell = Bell::new()?;
        let session = self.home.session(py)?;
        let rung = bell.clone();
        let listing = session.client.pages(&uri, recursive, move || rung.ring());
        let listing = listing.map_err(|error| Failure::from(error).of(&uri).raised(py))?;
        let parsed = inrush::s3::uri::S3Uri::parse_prefix(&uri).expect("it was listed");
        Ok(List::new(uri, parsed.bucket, &session, (listing, bell)))
    }

    fn read(
        &self,
        py: Python<'_>,
        source: Source,
        range: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let outcome = self.run(py, source, range, Want::Bytes)?;
        value(py, outcome)
    }

    fn read_into(
        &self,
        py: Python<'_>,
        source: Source,
        buffer: &Bound<'_, PyAny>,
        range: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let memory = Memory::lend(buffer)?;
        let outcome = self.run(py, source, range, Want::Into(memory))?;
        value(py, outcome)
    }

    fn read_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyAny>,
        ordered: bool,
        return_exceptions: bool,
    ) -> PyResult<ReadMany> {
        ReadMany::new(items, ordered, return_exceptions, Jobs::new(py, &self.home)?)
    }

    /// Starts a download: the words of the command, its sources, and whether lines are wanted.
    fn download(
        &self,
        py: Python<'_>,
        words: Vec<OsString>,
        sources: Vec<String>,
        lines: bool,
    ) -> PyResult<Download> {
        Download::start(py, &self.home, words, sources, lines)
    }

    fn reactor(&self, py: Python<'_>) -> PyResult<Reactor> {
        Ok(Reactor::new(Jobs::new(py, &self.home)?))
    }

    /// What the limit of all reads so far was, as JSON; `None` where nothing was read.
    fn limit(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.home.is_shared()
            && let Engines::Host(mut link) = self.home.engines(py)?
        {
            let limit = link.limit(py)?;
            link.keep();
            return Ok(Some(limit));
        }
        let started = self.home.started().map_err(|failure| failure.raised(py))?;
        let Some(engine) = started else { return Ok(None) };
        Ok(Some(py.detach(move || engine.limit().to_json())))
    }

    fn close(&self, py: Python<'_>) {
        self.home.close(py);
    }

    /// Is the engine of the host, for who connects to the socket on standard input, until nobody
    /// has been connected for a while. Otherwise they learn why there is none.
    fn serve(&self, py: Python<'_>) -> PyResult<()> {
        let listener = server::listener()
            .map_err(|errno| PyOSError::new_err((errno.raw_os_error(), errno.to_string())))?;
        let started = self.home.session(py).and_then(|session| {
            let engine = py.detach(|| session.engine());
            Ok((session, engine.map_err(|error| Failure::from(error).raised(py))?))
        });
        match started {
            Ok((session, engine)) => {
                let server = Server::new(listener, session, engine, Bell::new()?);
                py.detach(|| server.run());
            }
            Err(error) => {
                let failure = Failure::of_exception(py, &error);
                py.detach(|| server::refuse_all(&listener, &failure));
            }
        }
        Ok(())
    }

    /// This client's share of the option `memory`, in bytes, where the option is given.
    #[getter]
    fn memory_bytes(&self) -> Option<u64> {
        self.home.memory_bytes()
    }

    /// Whether the engine of the host reads.
    #[getter]
    fn shared(&self) -> bool {
        self.home.is_shared()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.home.is_closed()
    }
}
