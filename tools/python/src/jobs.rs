//! What is read for one caller: any number of jobs, each a HEAD, a range, or both one after the
//! other. Long ranges are parts that are fetched in parallel.
//!
//! Everything is called with the interpreter attached, and returns at once, but for
//! [`Jobs::wait`].

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::time::Duration;

use inrush::{Bucket, RemoteObject};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::buffer::Memory;
use crate::errors::Failure;
use crate::info::{ObjectInfo, parse};
use crate::reader::{Object, Reader};
use crate::session::Home;

/// What is read: an address, or an object that is known.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Address(String),
    Known(ObjectInfo),
}

impl Source {
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Address(uri) => uri.clone(),
            Self::Known(info) => info.address(),
        }
    }

    /// Its size in bytes, where it is known.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Address(_) => None,
            Self::Known(info) => Some(info.size),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Source {
    type Error = PyErr;

    fn extract(object: pyo3::Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(info) = object.cast::<ObjectInfo>() {
            return Ok(Self::Known(info.get().clone()));
        }
        let Ok(uri) = object.extract::<String>() else {
            let name = object.get_type().name()?;
            let message =
                format!("a source is a str (\"s3://bucket/key\") or an ObjectInfo, not {name}");
            return Err(PyTypeError::new_err(message));
        };
        parse(object.py(), &uri)?;
        Ok(Self::Address(uri))
    }
}

/// Offset and length in bytes.
pub(crate) type Part = (u64, u64);

/// What comes of a job.
#[derive(Debug)]
pub(crate) enum Want {
    /// What a HEAD says.
    Info,
    /// A new `bytes` object.
    Bytes,
    /// The bytes in this memory, which must have room for them.
    Into(Memory),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Info(ObjectInfo),
    Bytes(Py<PyAny>),
    /// Number of bytes that were written.
    Written(u64),
}

/// How a job stands.
#[derive(Debug)]
enum Step {
    /// A question is under way.
    Asked,
    /// The object is known; its range is not asked for yet.
    Known(Object),
    /// Parts are under way.
    Parts { memory: Memory, under_way: u64 },
}

#[derive(Debug)]
struct Job {
    source: Source,
    part: Option<Part>,
    want: Want,
    step: Step,
    /// Why it fails; the first reason stays.
    failure: Option<Failure>,
}

/// A job that is over, by its number.
pub(crate) type Ended = (u64, Result<Outcome, Failure>);

/// The jobs of one caller. Dropping it cancels what is under way.
#[derive(Debug)]
pub(crate) struct Jobs {
    reader: Reader,
    jobs: HashMap<u64, Job>,
    /// The job of each request.
    of_token: HashMap<u64, u64>,
    next_job: u64,
    next_token: u64,
    ended: Vec<Ended>,
}

impl Jobs {
    pub(crate) fn new(py: Python<'_>, home: &Home) -> PyResult<Self> {
        Ok(Self {
            reader: Reader::new(py, home)?,
            jobs: HashMap::new(),
            of_token: HashMap::new(),
            next_job: 0,
            next_token: 0,
            ended: Vec::new(),
        })
    }

    /// Readable when there may be something to take.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.reader.descriptor()
    }

    /// Bytes to read ahead, at most.
    pub(crate) fn ahead_bytes_max(&self) -> u64 {
        self.reader.ahead_bytes_max()
    }

    /// Hands on what was begun, before somebody waits for the descriptor.
    pub(crate) fn flush(&mut self) {
        self.reader.flush();
    }

    /// As [`Jobs::flush`], if it is time for that: whoever waits for the descriptor takes before,
    /// which flushes.
    pub(crate) fn flush_some(&mut self) {
        self.reader.flush_some();
    }

    /// Before a result is handed out: hands on what was begun, and takes what has come, often
    /// enough that reads go on while the caller works.
    pub(crate) fn nudge(&mut self) {
        if self.reader.nudge() {
            self.take();
        }
    }

    /// Whether nothing can be read any more, and nothing is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.count() == 0 && self.reader.is_over()
    }

    /// Jobs that are not over, or have not been taken.
    pub(crate) fn count(&self) -> usize {
        self.jobs.len() + self.ended.len()
    }

    /// Begins a job: what is not known of its object is asked for. Failures are its outcome.
    pub(crate) fn begin(&mut self, source: Source, part: Option<Part>, want: Want) -> u64 {
        let number = self.next_job;
        self.next_job += 1;
        let job = Job { source, part, want, step: Step::Asked, failure: None };
        if let Err(failure) = self.ask(number, job) {
            self.ended.push((number, Err(failure)));
        }
        number
    }

    fn ask(&mut self, number: u64, mut job: Job) -> Result<(), Failure> {
        let always = matches!(job.want, Want::Info);
        let known = self.reader.find(number, &job.source, always);
        if let Some(known) = known.map_err(|failure| failure.of(&job.source.address()))? {
            job.step = Step::Known(known);
        }
        self.jobs.insert(number, job);
        Ok(())
    }

    /// Takes answers; the numbers of the jobs whose object is known now, in the order in which they
    /// came to be.
    pub(crate) fn take_answers(&mut self) -> Vec<u64> {
        let mut known_now = Vec::new();
        for (number, found) in self.reader.take_found() {
            // One that was cancelled is gone.
            let Some(mut job) = self.jobs.remove(&number) else { continue };
            match found {
                Ok(object) if matches!(job.want, Want::Info) => {
                    self.ended.push((number, Ok(Outcome::Info(object.info()))));
                }
                Ok(object) => {
                    job.step = Step::Known(object);
                    self.jobs.insert(number, job);
                    known_now.push(number);
                }
                Err(failure) => {
                    self.ended.push((number, Err(failure.of(&job.source.address()))));
                }
            }
        }
        known_now
    }

    /// How many bytes a job takes, once its object is known.
    pub(crate) fn bytes_of(&self, number: u64) -> Option<u64> {
        let job = self.jobs.get(&number)?;
        let Step::Known(object) = &job.step else { return None };
        let size_bytes = object.size_bytes();
        Some(job.part.map_or(size_bytes, |(_, length)| length.min(size_bytes)))
    }

    /// Begins a job, and asks for its range at once where its object is known.
    pub(crate) fn start(
        &mut self,
        py: Python<'_>,
        source: Source,
        part: Option<Part>,
        want: Want,
    ) -> u64 {
        let number = self.begin(source, part, want);
        if self.bytes_of(number).is_some() {
            self.fetch(py, number);
        }
        number
    }

    /// Asks for the range of a job whose object is known.
    pub(crate) fn fetch(&mut self, py: Python<'_>, number: u64) {
        let Some(job) = self.jobs.remove(&number) else { return };
        let address = job.source.address();
        match self.submit(py, number, job) {
            Ok(()) => {}
            Err(failure) => self.ended.push((number, Err(failure.of(&address)))),
        }
    }

    fn submit(&mut self, py: Python<'_>, number: u64, mut job: Job) -> Result<(), Failure> {
        let Step::Known(object) = &job.step else { unreachable!("it has no object") };
        let object = object.clone();
        let (offset, length) = part_of(&object, &job)?;
        let want = std::mem::replace(&mut job.want, Want::Info);
        let memory = memory_of(py, want, length)?;
        let mut under_way = 0;
        let mut begin = 0;
        let most = self.reader.part_bytes_max();
        while begin < length {
            let take = (length - begin).min(most);
            let at = |bytes: u64| usize::try_from(bytes).expect("it is in memory");
            let token = self.next_token;
            self.next_token += 1;
            let range = offset + begin..offset + begin + take;
            let piece = memory.piece(at(begin), at(take));
            if let Err(failure) = self.reader.read(token, &object, range, piece) {
                job.failure = Some(failure.of(&job.source.address()));
                break;
            }
            self.of_token.insert(token, number);
            under_way += 1;
            begin += take;
        }
        job.step = Step::Parts { memory, under_way };
        // Of a failure the parts that are under way are still to end.
        if under_way == 0 {
            self.end(number, job, length);
        } else {
            job.part = Some((offset, length));
            self.jobs.insert(number, job);
        }
        Ok(())
    }

    fn end(&mut self, number: u64, job: Job, length: u64) {
        let Step::Parts { memory, .. } = job.step else { unreachable!("it was fetched") };
        let bytes = memory.finish();
        let outcome = match (job.failure, bytes) {
            (Some(failure), _) => Err(failure),
            (None, Some(bytes)) => Ok(Outcome::Bytes(bytes.into_any())),
            (None, None) => Ok(Outcome::Written(length)),
        };
        self.ended.push((number, outcome));
    }

    /// Waits for something to take, for `at_most`; without the interpreter.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        self.reader.wait(at_most);
    }

    /// Takes what was waited for.
    pub(crate) fn take(&mut self) {
        for (token, result) in self.reader.take_landed() {
            let Some(number) = self.of_token.remove(&token) else { continue };
            let Some(mut job) = self.jobs.remove(&number) else { continue };
            if let Err(failure) = result
                && job.failure.is_none()
            {
                job.failure = Some(failure.of(&job.source.address()));
                self.cancel_parts(number);
            }
            let Step::Parts { under_way, .. } = &mut job.step else { unreachable!("it has parts") };
            *under_way -= 1;
            if *under_way == 0 {
                let length = job.part.map_or(0, |(_, length)| length);
                self.end(number, job, length);
            } else {
                self.jobs.insert(number, job);
            }
        }
    }

    fn cancel_parts(&mut self, number: u64) {
        for (token, of) in &self.of_token {
            if *of == number {
                self.reader.cancel(*token);
            }
        }
        self.reader.flush();
    }

    /// Cancels a job; it ends soon.
    pub(crate) fn cancel(&mut self, number: u64) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.failure.get_or_insert_with(Failure::cancelled);
        match job.step {
            Step::Parts { .. } => self.cancel_parts(number),
            Step::Asked | Step::Known(_) => {
                self.jobs.remove(&number);
                self.ended.push((number, Err(Failure::cancelled())));
            }
        }
    }

    /// What has ended since the last time.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Cancels everything, and waits until no worker writes into lent memory any more.
    pub(crate) fn give_up(&mut self, py: Python<'_>) {
        let numbers: Vec<u64> = self.jobs.keys().copied().collect();
        for number in numbers {
            self.cancel(number);
        }
        while self.reader.under_way() > 0 {
            py.detach(|| self.wait(crate::session::SLICE));
            self.take();
        }
        self.take();
        self.ended.clear();
    }
}

/// The object of an earlier listing.
pub(crate) fn known(info: &ObjectInfo, bucket: &Bucket) -> Result<RemoteObject, Failure> {
    let etag = info.etag.as_deref().unwrap_or_default();
    bucket.object(&info.key, info.size, etag).map_err(Failure::from)
}

/// Offset and length that are meant, within the object.
fn part_of(object: &Object, job: &Job) -> Result<Part, Failure> {
    let size_bytes = object.size_bytes();
    let Some((offset, length)) = job.part else { return Ok((0, size_bytes)) };
    match offset.checked_add(length) {
        Some(end) if end <= size_bytes => Ok((offset, length)),
        _ => Err(Failure::range(format!(
            "{length} bytes from {offset} are beyond the end of {}, which has {size_bytes}",
            job.source.address()
        ))),
    }
}

/// Memory for `length` bytes.
fn memory_of(py: Python<'_>, want: Want, length: u64) -> Result<Memory, Failure> {
    let too_many = || Failure::range(format!("{length} bytes are more than memory has"));
    let bytes = usize::try_from(length).map_err(|_| too_many())?;
    match want {
        Want::Into(memory) if memory.length_bytes() < bytes => {
            let room = memory.length_bytes();
            Err(Failure::range(format!("a buffer of {room} bytes is too small for {length}")))
        }
        Want::Into(memory) => Ok(memory),
        Want::Info | Want::Bytes => Memory::bytes(py, bytes).map_err(|_| too_many()),
    }
}
