//! What event loops wait for: jobs whose descriptor is readable when some have ended.

use std::os::fd::RawFd;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::buffer::Memory;
use crate::jobs::{Jobs, Outcome, Source, Want};
use crate::many::part_of;
use crate::session::Owned;

/// The jobs of one event loop.
#[pyclass(module = "inrush._native")]
#[derive(Debug)]
pub(crate) struct Reactor {
    jobs: Owned<Jobs>,
}

impl Reactor {
    pub(crate) fn new(jobs: Jobs) -> Self {
        Self { jobs: Owned::new(jobs) }
    }

    fn jobs(&mut self) -> PyResult<&mut Jobs> {
        self.jobs.mine("the jobs belong to another process: use an event loop made")
    }

    fn begin(
        &mut self,
        py: Python<'_>,
        source: Source,
        range: &Bound<'_, PyAny>,
        want: Want,
    ) -> PyResult<u64> {
        let part = part_of(range)?;
        let jobs = self.jobs()?;
        let number = jobs.start(py, source, part, want);
        jobs.flush_some();
        Ok(number)
    }
}

#[pymethods]
impl Reactor {
    fn fileno(&mut self) -> PyResult<RawFd> {
        Ok(self.jobs()?.descriptor())
    }

    /// Whether it can read nothing any more, since the engine of the host has ended, and has
    /// nothing to take.
    #[getter]
    fn ended(&mut self) -> PyResult<bool> {
        Ok(self.jobs()?.is_over())
    }

    /// Jobs that have not been taken.
    fn __len__(&mut self) -> PyResult<usize> {
        Ok(self.jobs()?.count())
    }

    fn stat(&mut self, source: Source) -> PyResult<u64> {
        let address = Source::Address(source.address());
        let jobs = self.jobs()?;
        let number = jobs.begin(address, None, Want::Info);
        jobs.flush_some();
        Ok(number)
    }

    fn read(&mut self, py: Python<'_>, source: Source, range: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.begin(py, source, range, Want::Bytes)
    }

    fn read_into(
        &mut self,
        py: Python<'_>,
        source: Source,
        buffer: &Bound<'_, PyAny>,
        range: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let memory = Memory::lend(buffer)?;
        self.begin(py, source, range, Want::Into(memory))
    }

    fn cancel(&mut self, number: u64) -> PyResult<()> {
        self.jobs()?.cancel(number);
        Ok(())
    }

    /// What has ended: (number, value, exception). Never waits.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let jobs = self.jobs()?;
        jobs.wait(Duration::ZERO);
        jobs.take();
        for number in jobs.take_answers() {
            jobs.fetch(py, number);
        }
        jobs.flush();
        let list = PyList::empty(py);
        for (number, outcome) in jobs.take_ended() {
            let none = py.None();
            let ended = match outcome {
                Ok(outcome) => (number, value(py, outcome)?, none),
                Err(failure) => (number, none, failure.exception(py)?.unbind()),
            };
            list.append(ended)?;
        }
        Ok(list)
    }

    /// Cancels everything.
    fn close(&mut self, py: Python<'_>) {
        if let Some(jobs) = self.jobs.get() {
            jobs.give_up(py);
        }
    }
}

/// An outcome as Python has it.
pub(crate) fn value(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    Ok(match outcome {
        Outcome::Info(info) => Py::new(py, info)?.into_any(),
        Outcome::Bytes(bytes) => bytes,
        Outcome::Written(bytes) => bytes.into_pyobject(py)?.into_any().unbind(),
    })
}
