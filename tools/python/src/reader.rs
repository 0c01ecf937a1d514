//! What reads for one caller: the engine of this process, or the one of the host.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use inrush::{Bucket, Completion, Destination, Priority, RemoteObject, Request, Requests};
use pyo3::prelude::*;

use crate::buffer::Piece;
use crate::errors::Failure;
use crate::host::link::Link;
use crate::info::ObjectInfo;
use crate::jobs::{Source, known};
use crate::session::{Detached, Engines, Home, Session, lock};

/// Bytes of one request, as of the command.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Bytes that are read ahead for one caller, at most; a single item may have more.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// An object whose size is known.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    /// With its endpoint.
    Remote(RemoteObject),
    /// With its name alone.
    Named(Arc<Named>),
}

/// An object as the questions to the engine of the host name it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) info: ObjectInfo,
    /// What its parts have in common; `None` if it is read at once.
    pub(crate) group: Option<u64>,
}

impl Object {
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Self::Remote(object) => object.size_bytes(),
            Self::Named(named) => named.info.size,
        }
    }

    pub(crate) fn info(&self) -> ObjectInfo {
        match self {
            Self::Remote(object) => ObjectInfo::of(object),
            Self::Named(named) => named.info.clone(),
        }
    }
}

/// What the control plane has found, on its thread.
#[derive(Debug)]
enum Answer {
    Object(Result<RemoteObject, inrush::Error>),
    Bucket(ObjectInfo, Result<Bucket, inrush::Error>),
}

/// Answers that have come, by the number of their question.
type Answers = Arc<Mutex<VecDeque<(u64, Answer)>>>;

/// The engine of this process, for one caller.
#[derive(Debug)]
pub(crate) struct Own {
    session: Weak<Session>,
    requests: Requests,
    answers: Answers,
    arrived: Vec<(u64, Result<(), inrush::Error>)>,
}

/// What has ended: a number, and how.
pub(crate) type Ends<T> = Vec<(u64, Result<T, Failure>)>;

/// Questions and reads of one caller. Dropping it cancels what is under way.
#[derive(Debug)]
pub(crate) enum Reader {
    Own(Own),
    /// There until it is dropped.
    Host(Option<Box<Link>>),
}

impl Reader {
    pub(crate) fn new(py: Python<'_>, home: &Home) -> PyResult<Self> {
        let session = match home.engines(py)? {
            Engines::Host(link) => return Ok(Self::Host(Some(link))),
            Engines::Own(session) => session,
        };
        let engine = py.detach(|| session.engine());
        let requests = engine.and_then(|engine: Arc<Detached<_>>| engine.requests());
        let requests = requests.map_err(|error| Failure::from(error).raised(py))?;
        let session = Arc::downgrade(&session);
        Ok(Self::Own(Own { session, requests, answers: Arc::default(), arrived: Vec::new() }))
    }

    /// Readable when there may be something to take.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Own(own) => own.requests.as_fd().as_raw_fd(),
            Self::Host(link) => there(link).descriptor(),
        }
    }

    /// The object of a source, where it is known; otherwise it is looked up, and found later, under
    /// this number. With `always` it is looked up in any case.
    ///
    /// # Errors
    /// The address is wrong, or the client is closed.
    pub(crate) fn find(
        &mut self,
        number: u64,
        source: &Source,
        always: bool,
    ) -> Result<Option<Object>, Failure> {
        match (self, source) {
            (Self::Own(own), _) => own.find(number, source, always),
            (Self::Host(link), Source::Known(info)) if !always => {
                Ok(Some(there_mut(link).named(info.clone())))
            }
            (Self::Host(link), _) => there_mut(link).stat(number, &source.address()).map(|()| None),
        }
    }

    /// Objects that are known now, in the order in which they came to be.
    pub(crate) fn take_found(&mut self) -> Ends<Object> {
        match self {
            Self::Own(own) => own.take_found(),
            Self::Host(link) => {
                let link = there_mut(link);
                let found = link.take_found().into_iter();
                found.map(|(number, found)| (number, found.map(|info| link.named(info)))).collect()
            }
        }
    }

    /// Bytes of one read, at most.
    pub(crate) fn part_bytes_max(&self) -> u64 {
        match self {
            Self::Own(_) => PART_BYTES,
            Self::Host(link) => there(link).part_bytes_max(),
        }
    }

    /// Bytes to read ahead, at most.
    pub(crate) fn ahead_bytes_max(&self) -> u64 {
        match self {
            Self::Own(_) => AHEAD_BYTES_MAX,
            Self::Host(link) => AHEAD_BYTES_MAX.min(there(link).memory_bytes()),
        }
    }

    /// Reads a range as long as the piece, into it.
    ///
    /// # Errors
    /// The range is wrong, or the client is closed.
    pub(crate) fn read(
        &mut self,
        number: u64,
        object: &Object,
        range: Range<u64>,
        piece: Piece,
    ) -> Result<(), Failure> {
        match (self, object) {
            (Self::Own(own), Object::Remote(object)) => {
                let request = Request {
                    object: object.clone(),
                    range,
                    into: Destination::Place(Box::new(piece)),
                    priority: Priority::Normal,
                    token: number,
                };
                own.requests.submit(request).map_err(|error| own.explained(error))
            }
            (Self::Host(link), Object::Named(named)) => {
                there_mut(link).read(number, named, range.start, piece)
            }
            (Self::Own(_), Object::Named(_)) | (Self::Host(_), Object::Remote(_)) => {
                unreachable!("the reader has found it")
            }
        }
    }

    /// Cancels a read; it lands soon.
    pub(crate) fn cancel(&mut self, number: u64) {
        match self {
            Self::Own(own) => drop(own.requests.cancel(number)),
            Self::Host(link) => there_mut(link).cancel(number),
        }
    }

    /// Reads that have not landed.
    pub(crate) fn under_way(&self) -> usize {
        match self {
            Self::Own(own) => own.requests.under_way(),
            Self::Host(link) => there(link).under_way(),
        }
    }

    /// Hands on what was begun, before somebody waits for the descriptor.
    pub(crate) fn flush(&mut self) {
        if let Self::Host(link) = self {
            there_mut(link).flush();
        }
    }

    /// Hands on what was begun, if it is time for that.
    pub(crate) fn flush_some(&mut self) {
        if let Self::Host(link) = self {
            there_mut(link).flush_some();
        }
    }

    /// Hands on what was begun, and receives, if it is time for that; whether there may be
    /// something to take.
    pub(crate) fn nudge(&mut self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Host(link) => there_mut(link).nudge(),
        }
    }

    /// Whether it can read nothing any more.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Host(link) => there(link).is_over(),
        }
    }

    /// Waits for something to take, for `at_most`; without the interpreter.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        match self {
            Self::Own(own) => {
                let arrived = own.requests.wait(at_most).into_iter();
                own.arrived.extend(arrived.map(|Completion { token, into, result }| {
                    drop(into);
                    (token, result.map(|_| ()))
                }));
            }
            Self::Host(link) => there_mut(link).wait(at_most),
        }
    }

    /// Reads that have ended. Nothing is written to their pieces any more.
    pub(crate) fn take_landed(&mut self) -> Ends<()> {
        match self {
            Self::Own(own) => own.take_landed(),
            Self::Host(link) => there_mut(link).take_landed(),
        }
    }
}

fn there(link: &Option<Box<Link>>) -> &Link {
    link.as_ref().expect("it is not dropped")
}

fn there_mut(link: &mut Option<Box<Link>>) -> &mut Link {
    link.as_mut().expect("it is not dropped")
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Self::Host(link) = self
            && let Some(link) = link.take()
        {
            link.keep();
        }
    }
}

impl Own {
    fn find(&self, number: u64, source: &Source, always: bool) -> Result<Option<Object>, Failure> {
        let session = self.session.upgrade().ok_or_else(Failure::closed)?;
        let (answers, waker) = (Arc::clone(&self.answers), self.requests.waker());
        let answer = move |answer: Answer| {
            lock(&answers).push_back((number, answer));
            waker.wake();
        };
        let address = source.address();
        let asked = match source {
            Source::Known(info) if !always => {
                if let Some(bucket) = session.bucket(&info.bucket) {
                    return known(info, &bucket).map(|object| Some(Object::Remote(object)));
                }
                let info = info.clone();
                let then = move |bucket| answer(Answer::Bucket(info, bucket));
                session.client.bucket_then(&address, then)
            }
            Source::Known(_) | Source::Address(_) => {
                session.client.head_then(&address, move |found| answer(Answer::Object(found)))
            }
        };
        asked.map(|()| None).map_err(|error| self.explained(error))
    }

    /// An error of the library; those of a client that was closed say so.
    fn explained(&self, error: inrush::Error) -> Failure {
        match self.session.strong_count() {
            0 => Failure::closed(),
            _ => Failure::from(error),
        }
    }

    fn take_found(&self) -> Ends<Object> {
        let answers = std::mem::take(&mut *lock(&self.answers));
        let found = answers.into_iter().map(|(number, answer)| (number, self.object_of(answer)));
        found.collect()
    }

    fn object_of(&self, answer: Answer) -> Result<Object, Failure> {
        let object = match answer {
            Answer::Bucket(info, Ok(bucket)) => {
                if let Some(session) = self.session.upgrade() {
                    session.keep_bucket(&info.bucket, bucket.clone());
                }
                known(&info, &bucket)?
            }
            Answer::Object(Ok(object)) => object,
            Answer::Bucket(_, Err(error)) | Answer::Object(Err(error)) => {
                return Err(self.explained(error));
            }
        };
        Ok(Object::Remote(object))
    }

    fn take_landed(&mut self) -> Ends<()> {
        let arrived = std::mem::take(&mut self.arrived);
        let landed = arrived.into_iter();
        landed
            .map(|(token, result)| (token, result.map_err(|error| self.explained(error))))
            .collect()
    }
}
