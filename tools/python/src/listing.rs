//! `list`: pages as they come.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use inrush::{Listed, Listing};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::errors::Failure;
use crate::info::{ObjectInfo, Prefix};
use crate::session::{Owned, SLICE, Session};

/// Rung by the client's thread, waited for by Python's.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    counter: Arc<OwnedFd>,
}

impl Bell {
    pub(crate) fn new() -> PyResult<Self> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let counter = counter
            .map_err(|errno| PyOSError::new_err((errno.raw_os_error(), errno.to_string())))?;
        Ok(Self { counter: Arc::new(counter) })
    }

    pub(crate) fn ring(&self) {
        // EAGAIN means that it rings already.
        let _ = rustix::io::write(&*self.counter, &1u64.to_ne_bytes());
    }

    /// Waits until it rings, for `at_most`; a signal ends it, too.
    pub(crate) fn wait(&self, at_most: Duration) {
        let timeout = at_most.try_into().ok();
        let _ = poll(&mut [PollFd::new(&*self.counter, PollFlags::IN)], timeout.as_ref());
        self.silence();
    }

    /// Readable while it rings.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// As [`Bell::descriptor`], for poll(2).
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    /// It does not ring any more.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&*self.counter, &mut [0u8; 8]);
    }
}

/// An iterator over `ObjectInfo` and `Prefix`.
#[pyclass(module = "inrush._native")]
#[derive(Debug)]
pub(crate) struct List {
    uri: String,
    bucket: String,
    /// Gone when the client is closed.
    session: Weak<Session>,
    listing: Owned<(Listing, Bell)>,
    page: VecDeque<Listed>,
    is_over: bool,
}

impl List {
    pub(crate) fn new(
        uri: String,
        bucket: String,
        session: &Arc<Session>,
        listing: (Listing, Bell),
    ) -> Self {
        let (session, listing) = (Arc::downgrade(session), Owned::new(listing));
        Self { uri, bucket, session, listing, page: VecDeque::new(), is_over: false }
    }

    fn parts(&mut self) -> PyResult<&mut (Listing, Bell)> {
        self.listing.mine("the iterator belongs to another process: list again")
    }

    /// Takes the next page, if it is there; false where it has not come.
    fn turn(&mut self, py: Python<'_>) -> PyResult<bool> {
        let next = self.parts()?.0.try_next();
        match next {
            Poll::Pending => return Ok(false),
            Poll::Ready(None) => self.is_over = true,
            Poll::Ready(Some(Ok(page))) => self.page = page.into(),
            Poll::Ready(Some(Err(error))) => {
                self.is_over = true;
                let failure = match self.session.strong_count() {
                    0 => Failure::closed(),
                    _ => Failure::from(error),
                };
                return Err(failure.of(&self.uri).raised(py));
            }
        }
        Ok(true)
    }

    fn entry(&self, py: Python<'_>, listed: Listed) -> PyResult<Py<PyAny>> {
        Ok(match listed {
            Listed::Object(object) => Py::new(py, ObjectInfo::of(&object))?.into_any(),
            Listed::Prefix(key) => {
                Py::new(py, Prefix { bucket: self.bucket.clone(), key })?.into_any()
            }
        })
    }
}

#[pymethods]
impl List {
    const fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(listed) = self.page.pop_front() {
                return self.entry(py, listed).map(Some);
            }
            if self.is_over {
                return Ok(None);
            }
            if !self.turn(py)? {
                let bell = self.parts()?.1.clone();
                py.detach(|| bell.wait(SLICE));
                py.check_signals()?;
            }
        }
    }

    /// Readable when a page may be there.
    fn fileno(&mut self) -> PyResult<RawFd> {
        Ok(self.parts()?.1.descriptor())
    }

    /// The next page as a list, an empty list at the end; None while it has not come.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        self.parts()?.1.silence();
        if !self.is_over && self.page.is_empty() && !self.turn(py)? {
            return Ok(None);
        }
        let page = std::mem::take(&mut self.page);
        let entries = page.into_iter().map(|listed| self.entry(py, listed));
        PyList::new(py, entries.collect::<PyResult<Vec<_>>>()?).map(Some)
    }
}
