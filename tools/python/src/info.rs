//! Descriptions of objects: plain values, which may be pickled, hashed and kept.

use std::time::UNIX_EPOCH;

use inrush::RemoteObject;
use inrush::s3::uri::{KeyPattern, S3Uri};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use serde::{Deserialize, Serialize};

use crate::errors::{Failure, class};

/// An object as a listing or a HEAD described it.
///
/// Attributes: `uri` ("s3://bucket/key", the key as it is), `bucket`, `key`, `size` (bytes), `etag`
/// (with its quotes, or None), `last_modified` (a datetime in UTC, or None).
#[pyclass(frozen, eq, hash, module = "inrush", name = "ObjectInfo", from_py_object)]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ObjectInfo {
    #[pyo3(get)]
    pub(crate) bucket: String,
    #[pyo3(get)]
    pub(crate) key: String,
    #[pyo3(get)]
    pub(crate) size: u64,
    #[pyo3(get)]
    pub(crate) etag: Option<String>,
    /// Microseconds since the Epoch.
    modified_us: Option<i64>,
}

impl ObjectInfo {
    pub(crate) fn of(object: &RemoteObject) -> Self {
        let since = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
        let modified = object.modified().and_then(since);
        Self {
            bucket: object.bucket().to_owned(),
            key: object.key().to_owned(),
            size: object.size_bytes(),
            etag: Some(object.etag().to_owned()).filter(|etag| !etag.is_empty()),
            modified_us: modified.and_then(|time| i64::try_from(time.as_micros()).ok()),
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key)
    }
}

/// Bucket and key of an address; every character of the key is meant as it is.
pub(crate) fn parse(py: Python<'_>, uri: &str) -> PyResult<(String, String)> {
    let parsed =
        S3Uri::parse_exact(uri, 0).map_err(|error| Failure::from(error).of(uri).raised(py))?;
    match parsed.key {
        KeyPattern::Exact { key, .. } => Ok((parsed.bucket, key)),
        _ => unreachable!("it was parsed so"),
    }
}

/// A `datetime` of `modified_us` microseconds since the Epoch.
fn datetime(py: Python<'_>, modified_us: i64) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DELTA: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || -> PyResult<_> {
        let module = py.import("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let epoch = module.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        Ok(epoch.unbind())
    })?;
    let delta = class(py, &DELTA, "datetime", "timedelta")?;
    let delta = delta.bind(py).call1((0, 0, modified_us))?;
    epoch.bind(py).add(delta)
}

/// Microseconds since the Epoch of a `datetime` with a time zone.
fn microseconds(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = time.py();
    let delta = time.sub(datetime(py, 0)?)?;
    let part = |name: &str| delta.getattr(name)?.extract::<i64>();
    let seconds = part("days")? * 86_400 + part("seconds")?;
    Ok(seconds * 1_000_000 + part("microseconds")?)
}

#[pymethods]
impl ObjectInfo {
    #[new]
    #[pyo3(signature = (uri, size, etag=None, last_modified=None))]
    fn new(
        py: Python<'_>,
        uri: &str,
        size: i64,
        etag: Option<String>,
        last_modified: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (bucket, key) = parse(py, uri)?;
        let size = u64::try_from(size)
            .map_err(|_| PyValueError::new_err(format!("an object has no size of {size} bytes")))?;
        let modified_us = last_modified.as_ref().map(microseconds).transpose()?;
        Ok(Self { bucket, key, size, etag, modified_us })
    }

    #[getter]
    fn uri(&self) -> String {
        self.address()
    }

    #[getter]
    fn last_modified<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.modified_us.map(|us| datetime(py, us)).transpose()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let uri = self.address().into_pyobject(py)?.repr()?.to_string();
        let etag = self.etag.clone().into_pyobject(py)?.repr()?.to_string();
        Ok(format!("ObjectInfo(uri={uri}, size={}, etag={etag})", self.size))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        let this = slf.get();
        let py = slf.py();
        let values = (this.address(), this.size, this.etag.clone(), this.last_modified(py)?);
        Ok((slf.get_type(), values.into_pyobject(py)?))
    }
}

/// A common prefix of a listing that is not recursive: what keys have in common up to a slash.
///
/// Attributes: `uri`, `bucket`, `key` (with the slash at its end).
#[pyclass(frozen, eq, hash, module = "inrush", name = "Prefix")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Prefix {
    #[pyo3(get)]
    pub(crate) bucket: String,
    #[pyo3(get)]
    pub(crate) key: String,
}

#[pymethods]
impl Prefix {
    #[new]
    fn new(py: Python<'_>, uri: &str) -> PyResult<Self> {
        let (bucket, key) = parse(py, uri)?;
        Ok(Self { bucket, key })
    }

    #[getter]
    fn uri(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Prefix(uri={})", self.uri().into_pyobject(py)?.repr()?))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        Ok((slf.get_type(), (slf.get().uri(),).into_pyobject(slf.py())?))
    }
}

/// What `read_many` yields: `source` and `range` as they were given, `data` (bytes), `index` (from
/// 0, in the order of the items), `error` (None, or with `return_exceptions` why there is no data).
#[pyclass(frozen, module = "inrush", name = "ReadResult", get_all)]
#[derive(Debug)]
pub(crate) struct ReadResult {
    pub(crate) source: Py<PyAny>,
    pub(crate) range: Py<PyAny>,
    pub(crate) data: Py<PyAny>,
    pub(crate) index: u64,
    pub(crate) error: Option<Py<PyAny>>,
}

#[pymethods]
impl ReadResult {
    #[new]
    #[pyo3(signature = (source, range, data, index, error=None))]
    const fn new(
        source: Py<PyAny>,
        range: Py<PyAny>,
        data: Py<PyAny>,
        index: u64,
        error: Option<Py<PyAny>>,
    ) -> Self {
        Self { source, range, data, index, error }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let source = self.source.bind(py).repr()?;
        let range = self.range.bind(py).repr()?;
        let what = match &self.error {
            Some(error) => format!("error={}", error.bind(py).repr()?),
            None => format!("{} bytes", self.data.bind(py).len()?),
        };
        Ok(format!("ReadResult(index={}, source={source}, range={range}, {what})", self.index))
    }
}
