//! Exceptions: the classes are those of `inrush._errors`.

use std::borrow::Cow;

use inrush::{Error, ErrorReason};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use serde::{Deserialize, Serialize};

/// A failure, and what it is about, until it is raised.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// One of [`ErrorReason`], or a name of Python's side alone.
    reason: Cow<'static, str>,
    message: String,
    uri: Option<String>,
    attempts: Option<u32>,
    request_id: Option<String>,
}

impl Failure {
    const fn new(reason: &'static str, message: String) -> Self {
        let reason = Cow::Borrowed(reason);
        Self { reason, message, uri: None, attempts: None, request_id: None }
    }

    /// The client was closed, or has ended.
    pub(crate) fn closed() -> Self {
        Self::new("closed", "the client is closed".to_owned())
    }

    /// An option that is wrong.
    pub(crate) const fn usage(message: String) -> Self {
        Self::new(ErrorReason::Usage.name(), message)
    }

    /// A range that an object does not have.
    pub(crate) const fn range(message: String) -> Self {
        Self::new("invalid_range", message)
    }

    /// What was cancelled.
    pub(crate) fn cancelled() -> Self {
        let message = "the request was cancelled".to_owned();
        Self::new(ErrorReason::Interrupted.name(), message)
    }

    /// What this machine lacks.
    pub(crate) const fn host(message: String) -> Self {
        Self::new(ErrorReason::Host.name(), message)
    }

    /// What an exception of this package, or another one, says.
    pub(crate) fn of_exception(py: Python<'_>, error: &PyErr) -> Self {
        let value = error.value(py);
        let kind = value.getattr("kind").and_then(|kind| kind.extract::<String>());
        let mut failure = Self::new(ErrorReason::Internal.name(), value.to_string());
        if let Ok(kind) = kind {
            failure.reason = Cow::Owned(kind);
        }
        failure
    }

    /// Whether it may be another one for another key of the same bucket.
    pub(crate) fn is_of_one_key(&self) -> bool {
        self.reason == ErrorReason::PermissionDenied.name()
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// With texts of at most this many characters.
    pub(crate) fn cut(mut self, characters_max: usize) -> Self {
        for text in [&mut self.message].into_iter().chain(&mut self.request_id) {
            if let Some((end, _)) = text.char_indices().nth(characters_max) {
                text.truncate(end);
                text.push_str("...");
            }
        }
        self
    }

    /// Adds this object to the failure, unless it names one.
    pub(crate) fn of(mut self, uri: &str) -> Self {
        self.uri.get_or_insert_with(|| uri.to_owned());
        self
    }

    /// As an exception.
    pub(crate) fn raised(&self, py: Python<'_>) -> PyErr {
        match self.exception(py) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }

    /// The exception itself, for who hands it on.
    pub(crate) fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let make = MAKE.get_or_try_init(py, || -> PyResult<_> {
            Ok(py.import("inrush._errors")?.getattr("from_native")?.unbind())
        })?;
        let Self { reason, message, uri, attempts, request_id } = self;
        make.bind(py).call1((&**reason, message, uri.as_deref(), *attempts, request_id.as_deref()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            attempts: error.attempts(),
            request_id: error.request_id().map(str::to_owned),
            ..Self::new(error.reason().name(), error.to_string())
        }
    }
}

/// The class of `datetime.datetime` and the like, imported once.
pub(crate) fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<&'static Py<PyType>> {
    cell.get_or_try_init(py, || {
        Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind())
    })
}
