//! A client's engine in this process: started when it is first used, left alone by forked children.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inrush::{Bucket, Client, ClientOptions, Engine, EngineOptions};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::host::attach::{Host, Unattached};
use crate::host::link::Link;

/// How long a wait may take before signals are looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// A `RuntimeError` of a process that was forked from the one that has something.
pub(crate) fn forked(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{what} after a fork"))
}

/// What belongs to the process that made it. A forked child has a copy, of threads and descriptors
/// that are its parent's: there it is never dropped.
pub(crate) struct Owned<T> {
    process: u32,
    /// There until it is dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// Whether it is of this process.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// It, where it is of this process.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        if self.is_own() { self.value.as_mut() } else { None }
    }

    /// It, where it is of this process.
    ///
    /// # Errors
    /// `RuntimeError`: this process was forked from the one that has it. It says what to do.
    pub(crate) fn mine(&mut self, what: &str) -> PyResult<&mut T> {
        self.get().ok_or_else(|| forked(what))
    }

    /// It alone, where it is of this process.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        if self.is_own() { self.value.take() } else { None }
    }

    /// It, where it is of this process.
    pub(crate) fn view(&self) -> Option<&T> {
        if self.is_own() { self.value.as_ref() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("process", &self.process).finish_non_exhaustive()
    }
}

/// What has threads of its own. Whoever drops it last waits for them without the interpreter: they
/// may wait for it, to give memory back that Python has lent.
#[derive(Debug)]
pub(crate) struct Detached<T: Send> {
    /// There until it is dropped.
    value: Option<T>,
}

impl<T: Send> Detached<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Some(value) }
    }

    /// It alone: who has it must detach the interpreter before it is dropped.
    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect("it is not dropped")
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is not dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if value.is_none() {
            return;
        }
        let ended = Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
        if ended.is_none() {
            // The interpreter is going: so will the process.
            std::mem::forget(value);
        }
    }
}

/// A connection to a server, and the workers that read from it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Detached<Client>,
    options: EngineOptions,
    /// Started when something is first read.
    engine: Mutex<Option<Arc<Detached<Engine>>>>,
    /// By name.
    buckets: Mutex<HashMap<String, Bucket>>,
}

/// The content of a mutex, also where a thread has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn start(client: ClientOptions, options: EngineOptions) -> Result<Self, inrush::Error> {
        let client = Detached::new(Client::connect(client)?);
        Ok(Self { client, options, engine: Mutex::default(), buckets: Mutex::default() })
    }

    /// The workers; they are started at the first call.
    pub(crate) fn engine(&self) -> Result<Arc<Detached<Engine>>, inrush::Error> {
        let mut engine = lock(&self.engine);
        if let Some(engine) = &*engine {
            return Ok(Arc::clone(engine));
        }
        let started = Arc::new(Detached::new(Engine::start(&self.client, self.options)?));
        *engine = Some(Arc::clone(&started));
        Ok(started)
    }

    /// The resources of its workers.
    pub(crate) const fn options(&self) -> EngineOptions {
        self.options
    }

    fn started(&self) -> Option<Arc<Detached<Engine>>> {
        lock(&self.engine).clone()
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<Bucket> {
        lock(&self.buckets).get(name).cloned()
    }

    pub(crate) fn keep_bucket(&self, name: &str, bucket: Bucket) {
        lock(&self.buckets).insert(name.to_owned(), bucket);
    }
}

/// A session that is being started, by a thread: credentials may take long to find.
#[derive(Debug, Default)]
struct Starting {
    done: Mutex<Option<Result<Arc<Session>, inrush::Error>>>,
    rings: Condvar,
}

impl Starting {
    fn begin(client: ClientOptions, options: EngineOptions) -> Result<Arc<Self>, inrush::Error> {
        let starting = Arc::new(Self::default());
        let begun = Arc::clone(&starting);
        let work = move || {
            let started = Session::start(client, options).map(Arc::new);
            *lock(&begun.done) = Some(started);
            begun.rings.notify_all();
        };
        let thread = std::thread::Builder::new().name("inrush-connect".to_owned()).spawn(work);
        thread.map_err(inrush::Error::no_thread)?;
        Ok(starting)
    }

    /// What came of it, if it is over within a slice.
    fn wait(&self) -> Option<Result<Arc<Session>, inrush::Error>> {
        let done = lock(&self.done);
        let waited = self.rings.wait_timeout_while(done, SLICE, |done| done.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

#[derive(Debug)]
enum State {
    Idle,
    Starting(Owned<Arc<Starting>>),
    Open(Owned<Arc<Session>>),
    Closed,
}

/// What a look at the state finds.
enum Found {
    Open(Arc<Session>),
    Starting(Arc<Starting>),
}

/// What reads for a caller.
pub(crate) enum Engines {
    /// The engine of this process.
    Own(Arc<Session>),
    /// The engine of the host.
    Host(Box<Link>),
}

/// The state of one client. Its lock is held with the interpreter attached, and for no wait: so no
/// other thread has it while Python forks.
#[derive(Debug)]
pub(crate) struct Home {
    client: ClientOptions,
    engine: EngineOptions,
    state: Mutex<State>,
    /// The engine that processes of this host share, where this client shares it.
    host: Option<Arc<Host>>,
    /// This machine does not allow that.
    is_alone: AtomicBool,
}

impl Home {
    pub(crate) fn new(
        client: ClientOptions,
        engine: EngineOptions,
        host: Option<Arc<Host>>,
    ) -> Self {
        let (state, is_alone) = (Mutex::new(State::Idle), AtomicBool::new(false));
        Self { client, engine, state, host, is_alone }
    }

    /// Whether the engine of the host reads for this client.
    pub(crate) fn is_shared(&self) -> bool {
        self.host.is_some() && !self.is_alone.load(Ordering::Relaxed)
    }

    /// What reads for one caller.
    pub(crate) fn engines(&self, py: Python<'_>) -> PyResult<Engines> {
        if let Some(host) = self.host.as_ref().filter(|_| self.is_shared()) {
            match host.link(py) {
                Ok(link) => return Ok(Engines::Host(Box::new(link))),
                Err(Unattached::Raised(error)) => return Err(error),
                Err(Unattached::Failed(failure)) => return Err(failure.raised(py)),
                Err(Unattached::Alone(why)) => {
                    self.is_alone.store(true, Ordering::Relaxed);
                    py.import("inrush._host")?.getattr("warn_alone")?.call1((why,))?;
                }
            }
        }
        self.session(py).map(Engines::Own)
    }

    /// This client's share of the option `memory`, in bytes, where the option is given.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let engines = self.engine.share.map_or(1, |(_, engines)| engines as u64);
        Some(self.engine.memory_bytes? / engines)
    }

    /// The session of this process; started where there is none.
    pub(crate) fn session(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        loop {
            // Nothing of Python runs while the lock is held: another thread might take over.
            let starting = match self.look() {
                Ok(Found::Open(session)) => return Ok(session),
                Ok(Found::Starting(starting)) => starting,
                Err(failure) => return Err(failure.raised(py)),
            };
            let done = py.detach(|| starting.wait());
            py.check_signals()?;
            let Some(done) = done else { continue };
            self.settle(&starting, &done);
            if let Err(error) = done {
                return Err(Failure::from(error).raised(py));
            }
        }
    }

    /// What there is in this process; a start where there is nothing.
    fn look(&self) -> Result<Found, Failure> {
        let mut state = lock(&self.state);
        match &*state {
            State::Closed => return Err(Failure::closed()),
            State::Open(session) => {
                if let Some(session) = session.view() {
                    return Ok(Found::Open(Arc::clone(session)));
                }
            }
            State::Starting(starting) => {
                if let Some(starting) = starting.view() {
                    return Ok(Found::Starting(Arc::clone(starting)));
                }
            }
            State::Idle => {}
        }
        let begun = Starting::begin(self.client.clone(), self.engine)?;
        *state = State::Starting(Owned::new(Arc::clone(&begun)));
        Ok(Found::Starting(begun))
    }

    /// Keeps what came of a start, unless the client was closed meanwhile.
    fn settle(&self, starting: &Arc<Starting>, done: &Result<Arc<Session>, inrush::Error>) {
        let mut state = lock(&self.state);
        let is_this = match &*state {
            State::Starting(of) => of.view().is_some_and(|of| Arc::ptr_eq(of, starting)),
            _ => false,
        };
        if is_this {
            *state = match done {
                Ok(session) => State::Open(Owned::new(Arc::clone(session))),
                Err(_) => State::Idle,
            };
            // The session stays with the state alone.
            *lock(&starting.done) = None;
        }
    }

    /// The workers, where this process has started them.
    pub(crate) fn started(&self) -> Result<Option<Arc<Detached<Engine>>>, Failure> {
        let state = lock(&self.state);
        match &*state {
            State::Closed => Err(Failure::closed()),
            State::Open(session) => Ok(session.view().and_then(|session| session.started())),
            State::Idle | State::Starting(_) => Ok(None),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(&*lock(&self.state), State::Closed)
    }

    /// Ends it: what is under way fails, and no thread and no descriptor is left.
    pub(crate) fn close(&self, py: Python<'_>) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Closed);
        if let Some(host) = &self.host {
            host.close();
        }
        py.detach(|| end(state));
    }

    /// Ends a session whose owner is dropped.
    fn abandon(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let state = std::mem::replace(state, State::Closed);
        if matches!(state, State::Idle | State::Closed) {
            return;
        }
        // A worker may wait for the interpreter, which this thread has.
        let mut state = Some(state);
        let ended = Python::try_attach(|py| {
            let state = state.take();
            py.detach(|| state.map(end));
        });
        if ended.is_none() {
            // The interpreter is going: so will the process.
            std::mem::forget(state);
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Waits for a start that is under way, and for all threads.
fn end(state: State) {
    if let State::Starting(starting) = &state
        && let Some(starting) = starting.view()
    {
        while starting.wait().is_none() {}
        drop(lock(&starting.done).take());
    }
    drop(state);
}
