//! `read_many`: a lazy iterable in, results out, with a bounded number of bytes ahead.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::RawFd;
use std::task::Poll;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyTuple};

use crate::errors::Failure;
use crate::info::ReadResult;
use crate::jobs::{Ended, Jobs, Outcome, Part, Source, Want};
use crate::session::{Owned, SLICE};

/// Items that are begun and not handed out, at most.
const ITEMS_MAX: usize = 2048;

/// An item as it was given.
#[derive(Debug)]
struct Item {
    source: Py<PyAny>,
    range: Py<PyAny>,
    index: u64,
    /// Counted as ahead.
    bytes: u64,
}

/// Why an item has no data.
#[derive(Debug)]
enum Fault {
    /// It could not be read.
    Read(Failure),
    /// It names nothing that could be.
    Item(PyErr),
}

impl Fault {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Read(failure) => failure.raised(py),
            Self::Item(error) => error,
        }
    }
}

/// An iterator over `ReadResult`.
#[pyclass(module = "inrush._native")]
#[derive(Debug)]
pub(crate) struct ReadMany {
    items: Option<Py<PyIterator>>,
    ordered: bool,
    return_exceptions: bool,
    jobs: Owned<Jobs>,
    /// By the number of the job.
    begun: HashMap<u64, Item>,
    /// Objects that are known, and wait for room.
    waiting: VecDeque<u64>,
    /// By index.
    done: BTreeMap<u64, (Item, Result<Outcome, Fault>)>,
    next_index: u64,
    next_out: u64,
    bytes_ahead: u64,
    /// Most bytes of items that are begun and not handed out; a single one may have more.
    bytes_ahead_max: u64,
    is_over: bool,
}

impl ReadMany {
    pub(crate) fn new(
        items: &Bound<'_, PyAny>,
        ordered: bool,
        return_exceptions: bool,
        jobs: Jobs,
    ) -> PyResult<Self> {
        let bytes_ahead_max = jobs.ahead_bytes_max();
        Ok(Self {
            items: Some(items.try_iter()?.unbind()),
            ordered,
            return_exceptions,
            jobs: Owned::new(jobs),
            begun: HashMap::new(),
            waiting: VecDeque::new(),
            done: BTreeMap::new(),
            next_index: 0,
            next_out: 0,
            bytes_ahead: 0,
            bytes_ahead_max,
            is_over: false,
        })
    }

    fn jobs(&mut self) -> PyResult<&mut Jobs> {
        self.jobs.mine("the iterator belongs to another process: read_many again")
    }

    /// Takes items while there is room for more.
    fn refill(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.begun.len() + self.done.len() < ITEMS_MAX
            && self.bytes_ahead < self.bytes_ahead_max
        {
            let Some(items) = &self.items else { return Ok(()) };
            let Some(item) = items.bind(py).clone().next() else {
                self.items = None;
                return Ok(());
            };
            let item = item?;
            let index = self.next_index;
            self.next_index += 1;
            let read = split(&item).and_then(|(source, range)| {
                let (what, part): (Source, Option<Part>) = (source.extract()?, part_of(&range)?);
                Ok((what, part, source, range))
            });
            let (what, part, source, range) = match read {
                Ok(read) => read,
                // At its turn, as all errors.
                Err(error) => {
                    let (source, range) = split(&item).unwrap_or_else(|_| (item, none(py)));
                    let (source, range) = (source.unbind(), range.unbind());
                    let item = Item { source, range, index, bytes: 0 };
                    self.done.insert(index, (item, Err(Fault::Item(error))));
                    continue;
                }
            };
            // A range may be longer than its object, which is an error at its turn.
            let bytes = what
                .size_bytes()
                .map_or(0, |size| part.map_or(size, |(_, length)| length.min(size)));
            let is_known = what.size_bytes().is_some();
            let number = self.jobs()?.begin(what, part, Want::Bytes);
            let item = Item { source: source.unbind(), range: range.unbind(), index, bytes };
            self.bytes_ahead += bytes;
            self.begun.insert(number, item);
            if is_known && self.jobs()?.bytes_of(number).is_some() {
                self.jobs()?.fetch(py, number);
            }
        }
        Ok(())
    }

    /// Fetches what is known, while there is room; what is waited for next in any case.
    fn fetch(&mut self, py: Python<'_>) -> PyResult<()> {
        let known = self.jobs()?.take_answers();
        self.waiting.extend(known);
        let mut left = VecDeque::new();
        while let Some(number) = self.waiting.pop_front() {
            let Some(bytes) = self.jobs()?.bytes_of(number) else { continue };
            let Some(item) = self.begun.get_mut(&number) else { continue };
            let counted = item.bytes;
            let is_next = item.index == self.next_out || !self.ordered && self.done.is_empty();
            if counted == 0 && self.bytes_ahead + bytes > self.bytes_ahead_max && !is_next {
                left.push_back(number);
                continue;
            }
            item.bytes = bytes;
            self.bytes_ahead = self.bytes_ahead - counted + bytes;
            self.jobs()?.fetch(py, number);
        }
        self.waiting = left;
        Ok(())
    }

    fn sort_in(&mut self, ended: Vec<Ended>) {
        for (number, outcome) in ended {
            if let Some(item) = self.begun.remove(&number) {
                self.done.insert(item.index, (item, outcome.map_err(Fault::Read)));
            }
        }
    }

    /// What may be handed out.
    fn pop(&mut self) -> Option<(Item, Result<Outcome, Fault>)> {
        let first = match self.ordered {
            true => self.done.remove(&self.next_out),
            false => self.done.pop_first().map(|(_, done)| done),
        };
        if let Some((item, _)) = &first {
            self.next_out += 1;
            self.bytes_ahead = self.bytes_ahead.saturating_sub(item.bytes);
        }
        first
    }

    fn result(
        &mut self,
        py: Python<'_>,
        item: Item,
        outcome: Result<Outcome, Fault>,
    ) -> PyResult<ReadResult> {
        let Item { source, range, index, .. } = item;
        let (data, error) = match outcome {
            Ok(Outcome::Bytes(bytes)) => (bytes, None),
            Ok(_) => unreachable!("bytes were asked for"),
            Err(fault) => {
                let error = fault.raised(py);
                // A TypeError is a mistake in the program, not in what it reads.
                if !self.return_exceptions || !error.is_instance_of::<PyOSError>(py) {
                    return Err(error);
                }
                let exception = error.into_value(py).into_any();
                (PyBytes::new(py, b"").into_any().unbind(), Some(exception))
            }
        };
        Ok(ReadResult { source, range, data, index, error })
    }

    /// What is there now of the next result: `Ready(None)` at the end.
    fn look(&mut self, py: Python<'_>) -> PyResult<Poll<Option<ReadResult>>> {
        self.refill(py)?;
        self.fetch(py)?;
        let ended = self.jobs()?.take_ended();
        self.sort_in(ended);
        if let Some((item, outcome)) = self.pop() {
            return self.result(py, item, outcome).map(|result| Poll::Ready(Some(result)));
        }
        if self.items.is_none() && self.begun.is_empty() && self.done.is_empty() {
            self.is_over = true;
            return Ok(Poll::Ready(None));
        }
        Ok(Poll::Pending)
    }

    fn step(&mut self, py: Python<'_>) -> PyResult<Option<ReadResult>> {
        loop {
            if let Poll::Ready(result) = self.look(py)? {
                self.jobs()?.nudge();
                return Ok(result);
            }
            let jobs = self.jobs()?;
            py.detach(|| jobs.wait(SLICE));
            self.jobs()?.take();
            py.check_signals()?;
        }
    }

    fn finish(&mut self, py: Python<'_>) {
        self.is_over = true;
        self.items = None;
        if let Some(jobs) = self.jobs.get() {
            jobs.give_up(py);
        }
        self.begun.clear();
        self.done.clear();
        self.waiting.clear();
    }
}

/// Source and range of an item.
fn split<'py>(item: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let Ok(pair) = item.cast::<PyTuple>() else { return Ok((item.clone(), none(item.py()))) };
    if pair.len() != 2 {
        let message = "an item is a source, or a tuple (source, range)";
        return Err(PyTypeError::new_err(message));
    }
    Ok((pair.get_item(0)?, pair.get_item(1)?))
}

fn none(py: Python<'_>) -> Bound<'_, PyAny> {
    py.None().into_bound(py)
}

/// Offset and length, where a range is given.
pub(crate) fn part_of(range: &Bound<'_, PyAny>) -> PyResult<Option<Part>> {
    if range.is_none() {
        return Ok(None);
    }
    let (offset, length): (i64, i64) = range.extract().map_err(|_| {
        PyTypeError::new_err("a range is a tuple (offset, length) of two int, in bytes")
    })?;
    match (u64::try_from(offset), u64::try_from(length)) {
        (Ok(offset), Ok(length)) => Ok(Some((offset, length))),
        _ => {
            let message = format!("a range of {length} bytes from {offset} is none");
            Err(Failure::range(message).raised(range.py()))
        }
    }
}

#[pymethods]
impl ReadMany {
    const fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ReadResult>> {
        if self.is_over {
            return Ok(None);
        }
        let result = self.step(py);
        if result.is_err() {
            self.finish(py);
        }
        result
    }

    /// Readable when a result may be there.
    fn fileno(&mut self) -> PyResult<RawFd> {
        Ok(self.jobs()?.descriptor())
    }

    /// The next result in a list, an empty list at the end; None while it has not come.
    fn take(&mut self, py: Python<'_>) -> PyResult<Option<Vec<ReadResult>>> {
        if self.is_over {
            return Ok(Some(Vec::new()));
        }
        let jobs = self.jobs()?;
        jobs.wait(Duration::ZERO);
        jobs.take();
        match self.look(py) {
            Ok(Poll::Pending) => {
                self.jobs()?.flush();
                Ok(None)
            }
            Ok(Poll::Ready(result)) => {
                self.jobs()?.nudge();
                Ok(Some(result.into_iter().collect()))
            }
            Err(error) => {
                self.finish(py);
                Err(error)
            }
        }
    }

    /// Cancels what is under way; then the iterator is over.
    fn close(&mut self, py: Python<'_>) {
        self.finish(py);
    }
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        // Only new objects are written to, which their pieces keep: nobody need wait.
        self.items = None;
    }
}
