//! Redirects of ranges: a server leads to another one, which answers without a signature. Further
//! ranges of the object are requested there at once, until it refuses one or fails: then the next
//! attempt is at the object's own server again.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::Worker;
use super::connection::Connection;
use super::job::{AfterFailure, Job, JobState};
use crate::engine::endpoints::EndpointNumber;
use crate::engine::schedule::Assignment;
use crate::error::Error;
use crate::files::host::FileHost;
use crate::link::conn::{BufferRange, Manner};
use crate::link::failure::Failure;
use crate::link::http;
use crate::link::object::ObjectRef;
use crate::s3::answer::{ServerError, leads_elsewhere};
use crate::s3::redirect::{Elsewhere, LookUpNumber, RedirectChain, ServerLookUp, refuse};
use crate::s3::uri::encode_key;
use crate::s3::web::WebUrl;
use crate::s3::{ByteRange, Endpoint};
use crate::sys::{Handle, Ring, descriptor};

/// Raises the event counter of a worker that waits for the addresses of a server.
struct CounterWaker(Handle);

impl Wake for CounterWaker {
    fn wake(self: Arc<Self>) {
        descriptor::raise(&self.0);
    }
}

/// A waker that raises this event counter.
pub(super) fn waker_of(counter: &Handle) -> Waker {
    Waker::from(Arc::new(CounterWaker(counter.clone())))
}

/// The server that a new range is requested from.
#[derive(Debug)]
pub(super) struct RequestTarget {
    /// Where a redirect of an earlier range leads; `None`: its object's own server.
    pub(super) elsewhere: Option<Arc<Elsewhere>>,
    pub(super) endpoint: EndpointNumber,
}

impl RequestTarget {
    /// The server of this range.
    pub(super) fn server<'a>(&'a self, next: &'a Assignment) -> &'a Arc<Endpoint> {
        let own = &next.recipient.object().endpoint;
        self.elsewhere.as_ref().map_or(own, |elsewhere| &elsewhere.endpoint)
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Where the next range is requested. If it is to go where a redirect leads, and that server
    /// takes no requests now, its own server is asked: the range is then set aside, and holds up no
    /// other.
    pub(super) fn target_of(&self, next: &Assignment) -> RequestTarget {
        let own = RequestTarget { elsewhere: None, endpoint: next.endpoint };
        let Some(elsewhere) = next.recipient.object().elsewhere() else { return own };
        let endpoint = self.scheduler.endpoints().number_of(&elsewhere.endpoint);
        match self.is_full(endpoint) || self.now_us < self.share.next_again_us(endpoint) {
            true => own,
            false => RequestTarget { elsewhere: Some(elsewhere), endpoint },
        }
    }

    /// Follows the answer if it is a redirect; returns what another failure is. `None`: what
    /// follows is noted in the range's state.
    pub(super) fn redirected(
        &mut self,
        index: usize,
        failure: Failure,
        refusal: Option<&ServerError>,
        body: Option<BufferRange>,
    ) -> Option<Failure> {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let failure = match (refusal, failure) {
            // It got no keys.
            (Some(refusal), Failure::ExpiredToken | Failure::ClockSkew)
                if job.elsewhere.is_some() =>
            {
                Failure::Status(refusal.status)
            }
            (_, failure) => failure,
        };
        let location = body.and_then(|body| connection.location(body));
        let own = &job.object().endpoint;
        let names_region = |it: &ServerError| !it.region.is_empty() && it.region != own.region;
        let is_followed = matches!(failure, Failure::Status(status) if leads_elsewhere(status))
            && !refusal.is_none_or(names_region)
            && own.redirects.is_some()
            && job.rival().is_none();
        let Some(location) = location.filter(|_| is_followed) else { return Some(failure) };
        // Where an earlier range was led to, the object is no longer.
        let is_outdated = job.elsewhere.is_some() && !job.is_redirected;
        let next = if is_outdated { None } else { Some(job.led_to(location)) };
        if self.fails_with_object(index) {
            return None;
        }
        let job = self.connections[index].state.job_mut();
        job.late_end = None;
        if job.manner() == Manner::Whole {
            job.data = None;
        }
        // It took the request: it does not refuse all of them.
        let endpoint = job.endpoint;
        if let Some(ticket) = job.into.ticket() {
            ticket.inbox().note_redirect(endpoint);
        }
        if !job.into.is_paced_by_client() {
            self.share.said(endpoint).answers += 1;
        }
        match next {
            Some(Ok(chain)) => self.go(index, chain, None),
            Some(Err(error)) => self.end_redirects(index, error),
            None => {
                self.return_to_server(index);
                let job = self.connections[index].state.job_mut();
                job.state = JobState::Failed(AfterFailure::Elsewhere);
            }
        }
        None
    }

    /// Gives a range up because its redirect is not followed.
    fn end_redirects(&mut self, index: usize, error: Error) {
        let job = self.connections[index].state.job_mut();
        let what = format!("get {}", job.range_in_words());
        let error = error.within(what).attempted(job.attempts.tries());
        job.state = JobState::Failed(AfterFailure::GiveUp(error));
    }

    /// Makes the next attempt of a range, and further ranges of its object, go to the end of these
    /// redirects, once the addresses of its server are known; it may have waited for a look-up.
    fn go(&mut self, index: usize, chain: RedirectChain, awaited: Option<LookUpNumber>) {
        let job = self.connections[index].state.job_mut();
        let redirects = job.object().endpoint.redirects.as_ref().expect("they are followed");
        let endpoint = match redirects.find(chain.url(), awaited, &self.waker) {
            Ok(ServerLookUp::Found(endpoint)) => endpoint,
            Ok(ServerLookUp::Awaited(look_up)) => {
                job.state = JobState::Failed(AfterFailure::LookUp(Box::new(chain), look_up));
                return;
            }
            Err(error) => return self.end_redirects(index, error),
        };
        let number = self.scheduler.endpoints().number_of(&endpoint);
        let elsewhere = Arc::new(Elsewhere { chain, endpoint });
        job.object().lead_to(&elsewhere);
        (job.endpoint, job.is_redirected) = (number, true);
        job.elsewhere = Some(elsewhere);
        job.state = JobState::Failed(AfterFailure::Elsewhere);
    }

    /// Continues with a range whose next server is looked up, if that has ended; returns how long
    /// it waits otherwise, in microseconds. A look-up that takes longer than
    /// [`REDIRECT_LOOK_UP_US`](crate::limits::REDIRECT_LOOK_UP_US) counts as a failed attempt: the
    /// range may then wait without a connection. At its second one, if the look-up before has
    /// failed, the range fails as that did.
    pub(super) fn look_for_server(&mut self, index: usize) -> u64 {
        let job = self.connections[index].state.job_mut();
        let JobState::LookUp { chain, look_up, until_us } =
            std::mem::replace(&mut job.state, JobState::Active)
        else {
            unreachable!("its server is looked up")
        };
        let is_late = self.now_us >= until_us;
        let is_second = job.last_failure == Some(Failure::Redirected);
        let awaited = if is_late && is_second { look_up - 1 } else { look_up };
        self.go(index, *chain, Some(awaited));
        let job = self.connections[index].state.job_mut();
        match job.state.take_failure() {
            Some(AfterFailure::LookUp(chain, look_up)) if !is_late => {
                job.state = JobState::LookUp { chain, look_up, until_us };
                return until_us - self.now_us;
            }
            Some(AfterFailure::LookUp(..)) => self.retry_or_end(index, Failure::Redirected, None),
            Some(after) => job.state = JobState::Failed(after),
            None => {}
        }
        self.drive(index);
        0
    }

    /// Makes the next attempt of a range go to its object's own server.
    pub(super) fn return_to_server(&mut self, index: usize) {
        let job = self.connections[index].state.job_mut();
        let Some(elsewhere) = job.elsewhere.take() else { return };
        job.object().leave(&elsewhere);
        job.is_redirected = false;
        job.endpoint = self.scheduler.endpoints().number_of(&job.object().endpoint);
    }

    /// True if a connection leads to another server than the one that its range is requested from.
    fn is_astray(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let server = connection.state.job().server();
        connection.link.as_ref().is_some_and(|link| !link.leads_to(server))
    }

    /// Continues with a range at another server, in its turn there.
    pub(super) fn resume_elsewhere(&mut self, index: usize) {
        match self.resume_in_turn(index) {
            Ok(()) => self.change_server(index),
            Err(until_us) => self.park(index, until_us),
        }
    }

    /// Continues with a range after its pause.
    pub(super) fn resume_after_pause(&mut self, index: usize) {
        if self.is_astray(index) {
            return self.change_server(index);
        }
        let connection = &mut self.connections[index];
        connection.state.job_mut().state = JobState::Active;
        connection.conn.resume();
        self.drive(index);
    }

    /// Gives the range of a connection to one that leads to its server, or may be connected to it.
    fn change_server(&mut self, index: usize) {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let (delivered, bytes) = (self.delivered(index), job.bytes);
        let left = ByteRange { offset: bytes.offset + delivered, length: bytes.length - delivered };
        let rest = job.for_next_try(left, job.attempts.without_first(delivered));
        let etag = connection.conn.etag().or(job.object().etag);
        self.connections[index].conn.forget();
        self.end_moving(index);
        self.connections[index].let_go(self.now_us);
        self.free.push(index);
        let server = Arc::clone(rest.server());
        let taken = self.free_connection(rest.into.is_paced_by_client(), &server);
        let taken = taken.unwrap_or_else(|| {
            self.free.retain(|free| *free != index);
            index
        });
        self.begin_on(taken, rest, etag);
    }
}

impl Connection {
    /// The `Location` of the answer with this body.
    fn location(&self, body: BufferRange) -> Option<&str> {
        http::location(self.piece(BufferRange { at: 0, length: body.at, ..body }))
    }
}

impl Job {
    /// The redirects of its request so far.
    fn chain(&self) -> RedirectChain {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.chain.clone();
        }
        let ObjectRef { endpoint, listed, .. } = self.object();
        let target = format!("{}{}", endpoint.path_prefix, encode_key(&listed.key));
        RedirectChain::from(WebUrl::at(endpoint.tls, &endpoint.host, target))
    }

    /// The redirects of its request so far, and this `Location`.
    fn led_to(&self, location: &str) -> Result<RedirectChain, Error> {
        let mut chain = self.chain();
        chain.follow(location).map_err(|(why, _)| refuse(&why))?;
        let own = &self.object().endpoint;
        // The buffers of a stream, and of a worker, are chosen by the endpoint of its objects.
        if chain.url().is_tls() && !own.tls {
            let why = format!("it leads from http to {}", chain.url().origin());
            return Err(refuse(&why).advise("give an https:// server with --endpoint-url"));
        }
        Ok(chain)
    }

    /// True if the server that a redirect leads to refuses it, and its own server may lead to
    /// another one: not if it has led there again since the last refusal.
    pub(super) fn is_refused_elsewhere(&self, failure: Failure) -> bool {
        let is_refusal = matches!(failure, Failure::Status(300..=499)) && !failure.is_change();
        let is_refusal = is_refusal || failure.ends_run();
        self.elsewhere.is_some() && is_refusal && !self.has_failed_there_again
    }

    /// Where its last attempt failed, if a redirect had led there.
    pub(super) fn failed_at_in_words(&self) -> String {
        self.failed_at.as_ref().map_or_else(String::new, |elsewhere| elsewhere.in_words())
    }

    /// The host that it waits for: the one where a redirect led to, if that has failed.
    pub(super) fn awaited_host(&self) -> String {
        let elsewhere = self.elsewhere.as_ref().or(self.failed_at.as_ref());
        elsewhere.map_or(&self.object().endpoint, |elsewhere| &elsewhere.endpoint).host_in_words()
    }
}
