//! Handling of a failed attempt: retry after a pause, leave the range to the connection that also
//! has it, or fail the range with an error that says what to do.

use tracing::{Level, enabled, info};

use super::Worker;
use super::connection::Connection;
use super::job::{AfterFailure, JobState, Rivalry};
use super::link::Link;
use crate::checksum::unverified;
use crate::engine::peers::LateEnd;
use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::file_download::Again;
use crate::files::host::{FileHost, Objection};
use crate::limits::{
    ALIKE_PAUSE_US, ALIKE_TRIES_MAX, RETRIES_BASE_MAX, RETRIES_LOGGED_MAX,
    RETRIES_PER_100_REQUESTS_MAX,
};
use crate::link::attempt::{Cause, NextTry};
use crate::link::conn::{BufferRange, Manner};
use crate::link::failure::{Failure, Remedy, RetryReason};
use crate::link::http;
use crate::link::tls::session::explain_failure;
use crate::s3::answer::{self, ServerError, leads_elsewhere};
use crate::sys::Ring;
use crate::sys::topology::Over;

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Reports a failed attempt of a file's range to the scheduler, which stops the run when all
    /// attempts fail for too long. An attempt that received new bytes counts as an answer.
    fn count_failure(&mut self, index: usize, failure: Failure, is_moving: bool) {
        let connection = &mut self.connections[index];
        let reached = connection.conn.reached();
        let brought = connection.state.job_mut().attempts.reach(reached);
        if connection.state.job().into.ticket().is_some() {
            // A client's request fails alone, and does not stop the run.
            return;
        }
        match failure.remedy() {
            // The range moves because it is late; the server may have been about to answer.
            _ if is_moving => {}
            Remedy::Backoff if !brought && !is_awaited(failure) => {
                let retry_for_us = self.retries.retry_for_us;
                let why =
                    format_args!("{failure}{}{}", connection.at_in_words(), connection.over());
                self.scheduler.attempt_failed(why, self.now_us, retry_for_us);
            }
            Remedy::Backoff | Remedy::GiveUp => self.scheduler.answered(),
            Remedy::Repeat => {}
        }
    }

    /// Decides what follows a failed attempt.
    pub(super) fn attempt_failed(
        &mut self,
        index: usize,
        failure: Failure,
        body: Option<BufferRange>,
    ) {
        let refusal = body.map(|piece| self.connections[index].refusal(failure, piece));
        let failure = refusal.as_ref().map_or(failure, ServerError::failure);
        let redirected = self.redirected(index, failure, refusal.as_ref(), body);
        if let Some(failure) = redirected {
            self.retry_or_end(index, failure, refusal);
        }
    }

    /// Decides what follows a failed attempt that no redirect continues.
    pub(super) fn retry_or_end(
        &mut self,
        index: usize,
        failure: Failure,
        refusal: Option<ServerError>,
    ) {
        let failure = self.judge(index, failure, refusal.as_ref());
        // A cancelled request counts as nobody's failure.
        let is_of_client = self.connections[index].state.job().into.ticket().is_some();
        if is_of_client && self.fails_with_object(index) {
            return;
        }
        let late_end = self.connections[index].state.job_mut().late_end.take();
        let is_unserved = late_end == Some(LateEnd::Unserved);
        if is_unserved && self.waits_for_served(index, failure) {
            return;
        }
        let is_moving = late_end == Some(LateEnd::Move) || is_unserved;
        let is_wrong_for_good = failure == Failure::Checksum && self.note_mismatch(index);
        self.count_failure(index, failure, is_moving);
        self.blame_address(index, failure, late_end);
        let job = self.connections[index].state.job_mut();
        let is_lasting = job.note_failure(failure);
        let is_unreachable = job.server().is_unreachable(failure, refusal.as_ref());
        if let Some(rival) = job.rival() {
            // The other connection has the range, and continues without a pause.
            job.state = JobState::Failed(AfterFailure::Yield);
            job.rivalry = Rivalry::Alone;
            self.connections[rival].state.job_mut().rivalry = Rivalry::Alone;
            self.count_retry(index, failure, false);
            self.log_retry(index, failure, 0);
            self.retries_excused += u64::from(is_unreachable || failure.is_overload());
            return;
        }
        if self.fails_with_object(index) {
            return;
        }
        let job = self.connections[index].state.job_mut();
        let objection = Objection::of(failure, refusal.as_ref(), job.keys_version());
        let hopeful =
            objection.is_none_or(|objection| self.host.on_objection(job.object(), objection));
        let repeat = failure.remedy() == Remedy::Repeat || is_moving && failure.is_of_address();
        let cause = cause_of(failure, is_unreachable);
        let next = match failure.remedy() {
            _ if !hopeful || self.scheduler.is_stopped() => NextTry::GiveUp,
            _ if is_wrong_for_good || is_lasting => NextTry::GiveUp,
            _ if repeat => NextTry::Again { ceiling_us: 0 },
            Remedy::Backoff => job.attempts.failed(self.now_us, cause, self.retries),
            // Its own server may lead to another one by now.
            _ if job.is_refused_elsewhere(failure) => {
                job.attempts.failed(self.now_us, cause, self.retries)
            }
            Remedy::Repeat | Remedy::GiveUp => NextTry::GiveUp,
        };
        match next {
            NextTry::Again { ceiling_us } => {
                if is_moving {
                    job.moves += 1;
                    self.metrics.sent.moves += 1;
                }
                self.try_again(index, (failure, cause), ceiling_us, is_moving);
            }
            NextTry::GiveUp => {
                let is_away = is_unreachable || failure.is_overload();
                let is_gone = is_away && self.is_endpoint_gone();
                let is_keyless = !hopeful || cause == Cause::ExpiredKeys;
                // A URL that has expired, or a redirect, says nothing of others.
                let is_of_all = failure != Failure::Redirected
                    && self.connections[index].state.job().object().listed.web.is_none();
                self.fail_range(index, failure, refusal, is_gone || is_keyless && is_of_all);
            }
        }
    }

    /// Makes the next attempt avoid the address of a failed one, and blames it if it may be the
    /// cause.
    fn blame_address(&mut self, index: usize, failure: Failure, late_end: Option<LateEnd>) {
        let connection = &mut self.connections[index];
        let (place, job) = (connection.place(), connection.state.job_mut());
        let (is_of_address, is_of_server) = (failure.is_of_address(), failure.is_of_server());
        let Some(at) = place.filter(|_| is_of_address || is_of_server) else { return };
        job.other_than = Some(at.address);
        // If the server itself is at fault, another of its addresses would not help.
        if is_of_address && late_end != Some(LateEnd::Unserved) {
            self.addresses.blame(at, failure, late_end.is_some(), self.now_us);
            if let Some(ticket) = job.into.ticket() {
                ticket.inbox().note_blame(at.endpoint, at.address);
            }
        }
    }

    /// Parks a range until the server answers one of its other connections. False if the attempt
    /// failed otherwise, another connection has the range, or its object has failed.
    fn waits_for_served(&mut self, index: usize, failure: Failure) -> bool {
        let is_alone = self.connections[index].state.job().rival().is_none();
        if !failure.is_of_address() || !is_alone || self.fails_with_object(index) {
            return false;
        }
        let job = self.connections[index].state.job_mut();
        job.state = JobState::Failed(AfterFailure::Park);
        true
    }

    /// The failure by what is known of the server and of the keys. Changes the headers of the next
    /// attempt if the last ones may have caused it.
    ///
    /// A 412 from a server that has never answered `If-Match` correctly does not prove that the
    /// object changed: the next request omits the header, and compares the ETag of its answer. A
    /// 400 or 501 may mean that the server does not know an optional header. A chunked body may
    /// mean that the server compresses or decompresses the object for this request: the next one
    /// reverses `Accept-Encoding`.
    fn judge(&mut self, index: usize, failure: Failure, refusal: Option<&ServerError>) -> Failure {
        let job = self.connections[index].state.job_mut();
        let (object, version) = (job.object(), job.keys_version());
        match failure {
            _ if job.elsewhere.is_none()
                && refusal.is_some_and(|refusal| {
                    self.host.wants_newer_keys(object, refusal, version)
                }) =>
            {
                Failure::ExpiredToken
            }
            Failure::Status(status) if job.leave_out(status) => Failure::OptionalHeader,
            Failure::Chunked | Failure::Encoded => {
                job.accept_gzip = Some(!job.sent.accept_gzip);
                failure
            }
            _ => failure,
        }
    }

    /// Gives up the range if its object has failed or its client has cancelled it.
    pub(super) fn fails_with_object(&mut self, index: usize) -> bool {
        let Some(error) = self.failure_of(index) else { return false };
        self.connections[index].state.job_mut().state =
            JobState::Failed(AfterFailure::GiveUp(error));
        true
    }

    /// Records a checksum mismatch; true if another attempt cannot help, because another address
    /// sent the same wrong bytes, or there is no other address.
    fn note_mismatch(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let (mismatch, place) = (connection.conn.comparison().mismatch(), connection.place());
        let (Some(mismatch), Some(place)) = (mismatch, place) else { return false };
        connection.state.job_mut().note_mismatch(mismatch, place.address)
    }

    fn is_endpoint_gone(&self) -> bool {
        self.scheduler.is_endpoint_gone(self.now_us, self.retries.retry_for_us)
    }

    /// Fails a range without another attempt. Stops the run if it is `hopeless` for all ranges.
    fn fail_range(
        &mut self,
        index: usize,
        failure: Failure,
        mut refusal: Option<ServerError>,
        hopeless: bool,
    ) {
        let connection = &self.connections[index];
        if let Some(refusal) = refusal.as_mut().filter(|_| failure == Failure::ExpiredToken) {
            refusal.keys_outlook = self.host.keys_outlook(connection.state.job().object());
        }
        let error = connection.explain(failure, refusal, self.now_us);
        // A client's request fails alone.
        if let Some(download) = connection.state.job().into.download() {
            let is_elsewhere = connection.state.job().elsewhere.is_some();
            if failure.ends_run() && !is_elsewhere || hopeless {
                // All other objects would fail alike.
                self.scheduler.stop(error.clone());
            } else if failure.is_change() {
                download.fail_for_now(Again::Changed, error.clone());
            }
        }
        let error = self.scheduler.stop_reason().unwrap_or(error);
        let job = self.connections[index].state.job_mut();
        job.state = JobState::Failed(AfterFailure::GiveUp(error));
    }

    /// Counts a retry and schedules it: at once if `ceiling_us` is 0, otherwise after a random
    /// pause of at most `ceiling_us`.
    fn try_again(
        &mut self,
        index: usize,
        (failure, cause): (Failure, Cause),
        ceiling_us: u64,
        is_moving: bool,
    ) {
        self.metrics.last_retry = Some(failure.reason());
        self.count_retry(index, failure, is_moving);
        let job = self.connections[index].state.job_mut();
        if job.manner() == Manner::Whole {
            job.data = None;
        }
        let is_of_client = job.into.ticket().is_some();
        if ceiling_us == 0 {
            job.state = JobState::Failed(AfterFailure::Resume);
            if is_moving {
                self.return_to_server(index);
            }
            self.retries_excused += u64::from(failure == Failure::OptionalHeader);
            return self.log_retry(index, failure, 0);
        }
        let is_last = failure.is_of_server() && job.alike() + 1 >= ALIKE_TRIES_MAX;
        let least_us = if is_last { ALIKE_PAUSE_US } else { 0 };
        let wait_us = self.host.backoff_us(ceiling_us).max(least_us);
        self.metrics.stages.backoff_us += wait_us;
        let until_us = self.now_us + wait_us;
        self.return_to_server(index);
        let job = self.connections[index].state.job_mut();
        job.state = JobState::Failed(AfterFailure::Backoff { until_us });
        // A client's request has its own limit of attempts.
        let is_excused = is_of_client || cause != Cause::Faulty;
        self.retries_excused += u64::from(is_excused && !is_moving);
        self.log_retry(index, failure, wait_us);
        self.spend_retry(index, failure);
    }

    /// Logs a retry with `--verbose`: the first [`RETRIES_LOGGED_MAX`] of each worker.
    fn log_retry(&mut self, index: usize, failure: Failure, wait_us: u64) {
        if self.retries_logged > RETRIES_LOGGED_MAX || !enabled!(Level::INFO) {
            return;
        }
        self.retries_logged += 1;
        if self.retries_logged > RETRIES_LOGGED_MAX {
            return info!("a worker logs no more of its retries; the summary counts them");
        }
        let job = self.connections[index].state.job();
        let (range, at) = (job.range_in_words(), job.failed_at_in_words());
        match wait_us {
            0 => info!("retry {range}: {failure}{at}"),
            _ => info!("retry {range} in {} ms: {failure}{at}", wait_us.div_ceil(1000)),
        }
    }

    /// Counts a failed attempt that another one follows: for the run, the object and the client. A
    /// `SlowDown` also counts for the pace and for the address.
    fn count_retry(&mut self, index: usize, failure: Failure, is_moving: bool) {
        let reason = failure.reason();
        let connection = &self.connections[index];
        let (job, place) = (connection.state.job(), connection.place());
        // Moves are counted apart from retries.
        if !is_moving {
            self.metrics.sent.retries[reason as usize] += 1;
            job.object().count_retry();
        }
        let (endpoint, ticket) = (job.endpoint, job.into.ticket());
        if let Some(ticket) = ticket {
            ticket.inbox().note_retry(endpoint, reason, is_moving);
        }
        if reason != RetryReason::SlowDown {
            return;
        }
        if let Some(at) = place {
            self.addresses.refused(at);
            if let Some(ticket) = ticket {
                ticket.inbox().note_refused(at.endpoint, at.address);
            }
        }
        if !job.into.is_paced_by_client() {
            self.share.said(endpoint).refused += 1;
        }
    }

    /// Spends one retry of the run's budget: [`RETRIES_BASE_MAX`], and
    /// [`RETRIES_PER_100_REQUESTS_MAX`] per 100 requests. Stops the run if none is left.
    fn spend_retry(&mut self, index: usize, failure: Failure) {
        let all: u64 = self.metrics.sent.retries.iter().sum();
        let spent = all - self.retries_excused;
        let budget =
            RETRIES_BASE_MAX + self.metrics.sent.requests * RETRIES_PER_100_REQUESTS_MAX / 100;
        if spent > budget {
            let connection = &self.connections[index];
            let message = format!(
                "{spent} of {} requests had to be retried, the last time because: {failure}{}{}",
                self.metrics.sent.requests,
                connection.state.job().failed_at_in_words(),
                connection.over()
            );
            let reason = match failure.is_overload() {
                true => ErrorReason::Throttled,
                false => ErrorReason::Network,
            };
            self.scheduler.stop(
                Error::new(ErrorKind::Endpoint, message)
                    .because(reason)
                    .advise("check the network and the endpoint, and run it again"),
            );
        }
    }

    /// Gives up a connection's range. No operation of the connection may be in flight.
    pub(super) fn give_up(&mut self, index: usize, error: &Error) {
        self.fail_job(index, error.clone());
        let job = self.connections[index].state.job_mut();
        if let Some(rival) = job.rival() {
            self.connections[rival].state.job_mut().rivalry = Rivalry::Alone;
            return self.release(index);
        }
        self.keep_undelivered(index, error.kind());
        self.end_moving(index);
        self.hang_up(index);
        self.fetched(index);
    }
}

/// True if the control plane is to find what the next attempt needs: keys, or a server.
fn is_awaited(failure: Failure) -> bool {
    matches!(failure, Failure::ExpiredToken | Failure::Redirected)
}

fn cause_of(failure: Failure, is_unreachable: bool) -> Cause {
    match failure {
        failure if is_awaited(failure) => Cause::ExpiredKeys,
        _ => Cause::new(is_unreachable, failure.is_overload()),
    }
}

impl Connection {
    /// Parses the server's error answer: its body, which follows the head in the buffer.
    fn refusal(&self, failure: Failure, body: BufferRange) -> ServerError {
        let Failure::Status(status) = failure else { unreachable!("answers have bodies") };
        let mut refusal = answer::explain(status, self.piece(body), "");
        let head = BufferRange { at: 0, length: body.at, ..body };
        refusal.note_location(http::location(self.piece(head)).unwrap_or(""));
        let job = self.state.job();
        let object = job.object();
        let is_redirect = object.endpoint.redirects.is_some() && leads_elsewhere(status);
        match object.listed.web.is_some() || job.elsewhere.is_some() || is_redirect {
            true => refusal.of_url(),
            false => refusal,
        }
    }

    /// The error of a range that has failed finally.
    pub(super) fn explain(
        &self,
        failure: Failure,
        refusal: Option<ServerError>,
        now_us: u64,
    ) -> Error {
        let job = self.state.job();
        let tries = job.attempts.tries();
        let error = self.explained(failure, refusal, now_us).attempted(tries);
        let error = match &job.object().listed.web {
            Some(web) => web.source().advise(error, None),
            None => error,
        };
        let error = match &job.elsewhere {
            Some(elsewhere) => elsewhere.advise(error),
            None => error,
        };
        match failure.errno() {
            Some(errno) => error.caused_by(std::io::Error::from(errno)),
            None => error,
        }
    }

    /// Where a redirect of its range leads, for messages; empty if none does.
    fn at_in_words(&self) -> String {
        let elsewhere = self.state.job().elsewhere.as_ref();
        elsewhere.map_or_else(String::new, |elsewhere| elsewhere.in_words())
    }

    /// The network interface, for messages; empty unless the user named some.
    fn over(&self) -> Over<'_> {
        Over(self.interface.as_deref())
    }

    fn explained(&self, failure: Failure, refusal: Option<ServerError>, now_us: u64) -> Error {
        let job = self.state.job();
        let endpoint = job.server();
        let (what, tries) = (job.range_in_words(), job.attempts.tried(now_us));
        let at = self.at_in_words();
        let comma = if at.is_empty() { "" } else { "," };
        let context = format!("get {what}{at}{comma} failed after {tries}{}", self.over());
        if let Some(error) = endpoint.refusal_on_the_way(failure, refusal.as_ref()) {
            return error.within(context);
        }
        match (failure, refusal) {
            (_, Some(mut refusal)) => {
                // A request that was signed for all regions is in no wrong one.
                if endpoint.is_multi_region() {
                    refusal.region.clear();
                }
                refusal.into_error(&context)
            }
            (Failure::Status(status), None) => {
                answer::explain(status, &[], "").into_error(&context)
            }
            (Failure::Checksum, _) => {
                let mismatch = self.conn.comparison().mismatch().expect("it was compared");
                mismatch.error(job.is_wrong_alike).within(context)
            }
            (Failure::NoChecksum, _) => {
                let reason = self.conn.comparison().basis().and_then(Result::err);
                unverified::error(reason.unwrap_or("it has none")).within(context)
            }
            // Like a 412: the object has changed.
            (Failure::WrongEtag | Failure::OtherLength, _) => {
                Error::new(ErrorKind::Objects, failure.to_string())
                    .because(ErrorReason::Changed)
                    .within(context)
                    .advise(failure.advice().unwrap_or("run it again to download the new version"))
            }
            (Failure::TlsBroken | Failure::TlsRefused, _) => {
                let fault = self.link.as_ref().and_then(Link::fault);
                explain_failure(failure, fault, &endpoint.host).within(context)
            }
            (failure, _) if failure.is_of_descriptors() => {
                Error::new(ErrorKind::Host, failure.to_string())
                    .within(context)
                    .advise(failure.advice().unwrap_or_default())
            }
            (failure, _) => {
                let network = "check the network and the endpoint, or lower --connections";
                let otherwise = failure.advice().unwrap_or(network);
                let reason = match failure.is_of_server() {
                    true => ErrorReason::Server,
                    false => ErrorReason::Network,
                };
                Error::new(ErrorKind::Endpoint, failure.to_string())
                    .because(reason)
                    .within(context)
                    .advise(endpoint.advice(otherwise))
            }
        }
    }
}
