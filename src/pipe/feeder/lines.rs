//! The lines' side of a feeder: connections to requests, heads and bodies, as far as each goes
//! without waiting.

use std::sync::Arc;

use super::Feeder;
use super::line::{LineState, Pending, Want};
use crate::attempt::{Cause, Next};
use crate::conn::{Action, Event, Target};
use crate::error::{Error, ErrorKind};
use crate::failure::{Failure, Remedy};
use crate::host::{Objection, PipeHost};
use crate::http;
use crate::limits::{CONNECT_TIMEOUT_US, HEAD_RECEIVE_BYTES, PIPE_BYTES, SPLICE_BYTES_MAX};
use crate::peers::LateEnd;
use crate::s3::ByteRange;
use crate::s3::answer::{self, ServerError};
use crate::sys::{Errno, Handle, Op, POLL_IN, POLL_OUT, Ring};
use crate::tls::session::explain_failure;

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Carries out a connection's actions, and goes on as far as its socket lets it.
    pub(super) fn drive(&mut self, index: usize) {
        loop {
            self.carry_out(index);
            if self.lines[index].pending != Pending::None || !self.proceed(index) {
                return;
            }
        }
    }

    pub(super) fn carry_out(&mut self, index: usize) {
        while let Some(action) = self.lines[index].conn.poll() {
            self.act(index, action);
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        let line = &mut self.lines[index];
        match action {
            Action::Connect => self.connect(index),
            Action::Secure => self.secure_begin(index),
            Action::Write(range) => self.write_request(index, range),
            Action::Send { at, length } => line.want = Want::Send { at, length },
            Action::Receive { target: Target::Control, at, length, .. } => {
                line.want = Want::Receive { at, length };
            }
            Action::Move => line.want = Want::Move,
            Action::Finished => {
                line.want = Want::Nothing;
                line.state = LineState::Received;
                let transfer = line.object();
                let agrees = transfer.agrees(line.conn.etag());
                self.note_range(index);
                if !agrees {
                    self.give_up(index, Failure::WrongEtag, None);
                }
            }
            Action::Fail { failure, body } => {
                let body = body.map_or_else(Vec::new, |piece| {
                    let (at, end) = (piece.at as usize, (piece.at + piece.length) as usize);
                    line.control[at..end].to_vec()
                });
                self.attempt_failed(index, failure, &body);
            }
            Action::Close => line.close(),
            Action::Receive { .. } | Action::Copy { .. } | Action::Deliver { .. } => {
                unreachable!("a streamed body does not enter user memory")
            }
        }
    }

    fn connect(&mut self, index: usize) {
        let endpoint = Arc::clone(&self.lines[index].object().endpoint);
        let other_than = self.lines[index].other_than.take();
        // What all feeders know goes by the clock that they share.
        let now_us = self.host.now_us();
        let open = self.addresses.connect(&endpoint.addresses(), other_than, now_us);
        let socket = open.ok_or(Errno::INVALID).and_then(|open| {
            let socket = self.host.socket(&open.address())?;
            Ok((socket, open))
        });
        let line = &mut self.lines[index];
        match socket {
            Ok((socket, open)) => {
                let address = open.address();
                line.socket = Some(socket.clone());
                line.address = Some(address);
                line.open = Some(open);
                line.endpoint = Some(endpoint);
                line.connected_by_us = self.now_us + CONNECT_TIMEOUT_US;
                line.want = Want::Nothing;
                self.count.connects += 1;
                self.submit(index, Pending::Connect, Op::Connect { socket, address });
            }
            Err(errno) => line.conn.handle(Event::Failed(errno)),
        }
    }

    fn write_request(&mut self, index: usize, range: Option<ByteRange>) {
        let line = &mut self.lines[index];
        let transfer = line.object();
        match self.host.write_request(&mut line.control, &transfer, range) {
            Ok(length) => {
                self.count.requests += 1;
                line.keys_version = self.host.keys_version(&transfer);
                line.conn.handle(Event::Written { length });
            }
            Err(error) => {
                self.failure.get_or_insert(error.within(transfer.name()));
                line.conn.handle(Event::Failed(Errno::CANCELED));
            }
        }
    }

    fn submit(&mut self, index: usize, pending: Pending, op: Op) {
        let line = &mut self.lines[index];
        // A handshake has several operations, and one deadline.
        line.deadline_us = match line.conn.is_connecting() {
            true => line.connected_by_us,
            false => self.now_us + line.conn.timeout_us(),
        };
        line.submitted_us = self.now_us;
        line.expired = false;
        line.pending = pending;
        if self.ring.submit(index as u64, op).is_err() {
            line.pending = Pending::None;
            line.conn.handle(Event::Failed(Errno::AGAIN));
        }
        self.begin_wait(index);
    }

    /// Has the ring wait for a socket; true when it does not take that, which fails the connection.
    pub(super) fn wait_for(&mut self, index: usize, pending: Pending) -> bool {
        let events = if pending == Pending::Writable { POLL_OUT } else { POLL_IN };
        let handle = self.lines[index].socket.clone().expect("connected");
        self.submit(index, pending, Op::Poll { handle, events });
        self.lines[index].pending == Pending::None
    }

    /// Does what the line wants next; true when something happened, false when it has to wait.
    fn proceed(&mut self, index: usize) -> bool {
        let secure = self.lines[index].session.is_some();
        match self.lines[index].want {
            Want::Nothing => false,
            Want::Handshake => self.secure_handshake(index),
            Want::Flush { length } => self.secure_flush(index, length),
            Want::Send { at, length } if secure => self.secure_send(index, at, length),
            Want::Receive { at, length } if secure => self.secure_head(index, at, length),
            Want::Send { at, length } => self.send(index, at, length),
            Want::Receive { at, length } => self.receive_head(index, at, length),
            Want::Move => self.move_body(index),
        }
    }

    fn send(&mut self, index: usize, at: u32, length: u32) -> bool {
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let bytes = &line.control[at as usize..(at + length) as usize];
        let event = match self.host.send(socket, bytes) {
            Ok(count) => Event::Sent(u32::try_from(count).expect("at most what was given")),
            Err(errno) if errno.is_transient() => return self.wait_for(index, Pending::Writable),
            Err(errno) => Event::Failed(errno),
        };
        line.want = Want::Nothing;
        line.conn.handle(event);
        true
    }

    /// Receives head bytes and not one byte beyond the head: the body must stay in the socket.
    fn receive_head(&mut self, index: usize, at: u32, length: u32) -> bool {
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let start = at as usize;
        let end = start + length.min(HEAD_RECEIVE_BYTES) as usize;
        let seen = self.host.receive(socket, &mut line.control[start..end], true);
        let outcome = seen.and_then(|seen| {
            let take = match http::parse(&line.control[..start + seen]) {
                Ok(Some(head)) if line.conn.awaits_head() => head.length as usize - start,
                _ => seen,
            };
            self.host.receive(socket, &mut line.control[start..start + take], false)
        });
        let event = match outcome {
            Ok(count) => {
                let count = u32::try_from(count).expect("at most what was asked for");
                Event::Received(count, &line.control)
            }
            Err(errno) if errno.is_transient() => return self.wait_for(index, Pending::Readable),
            Err(errno) => Event::Failed(errno),
        };
        line.want = Want::Nothing;
        line.conn.handle(event);
        true
    }

    /// Moves body bytes out of the socket into the line's own pipe; true when some were moved or
    /// the connection failed.
    pub(super) fn move_body(&mut self, index: usize) -> bool {
        let line = &self.lines[index];
        if line.want != Want::Move || line.pending != Pending::None || line.full {
            return false;
        }
        if line.session.is_some() {
            return self.secure_body(index);
        }
        let Some(target) = self.own_pipe(index) else { return false };
        let line = &mut self.lines[index];
        let socket = line.socket.as_ref().expect("connected");
        let length = line.conn.body_left().min(SPLICE_BYTES_MAX);
        let event = match self.host.splice(socket, &target, length) {
            Ok(count) => {
                line.readable = false;
                line.in_pipe += count;
                Event::Moved(count)
            }
            Err(errno) if errno.is_transient() => return self.move_blocked(index),
            Err(errno) => Event::Failed(errno),
        };
        line.conn.handle(event);
        true
    }

    /// A splice from a socket said EAGAIN: the socket is empty, or the pipe is full. When the
    /// socket has just said that it is readable, it is the pipe. That counts once: a poll may
    /// complete for nothing, and an empty pipe is never full.
    fn move_blocked(&mut self, index: usize) -> bool {
        let line = &mut self.lines[index];
        let said = std::mem::take(&mut line.readable);
        if !said || line.in_pipe == 0 {
            return self.wait_for(index, Pending::Readable);
        }
        line.full = true;
        false
    }

    /// The line's own pipe, made when it is first needed.
    pub(super) fn own_pipe(&mut self, index: usize) -> Option<Handle> {
        if self.lines[index].pipe.is_none() {
            match self.host.private_pipe(PIPE_BYTES) {
                Ok(pipe) => {
                    let least = self.count.pipe_bytes_min.get_or_insert(pipe.capacity_bytes);
                    *least = pipe.capacity_bytes.min(*least);
                    self.lines[index].pipe = Some(pipe);
                }
                Err(errno) => {
                    self.failure = Some(
                        Error::new(ErrorKind::Host, format!("cannot make a pipe: {errno}"))
                            .advise("raise the limit of open files (ulimit -n)"),
                    );
                    return None;
                }
            }
        }
        self.lines[index].pipe.as_ref().map(|pipe| pipe.writer.clone())
    }

    /// Tells the connection what happened and carries out what follows.
    fn happened(&mut self, index: usize, event: Event<'_>) {
        self.lines[index].conn.handle(event);
        self.drive(index);
    }

    fn attempt_failed(&mut self, index: usize, failure: Failure, body: &[u8]) {
        let line = &mut self.lines[index];
        line.want = Want::Nothing;
        let late_end = line.late_end.take();
        line.last_step = None;
        if line.transfer.is_none() || self.feed.is_stopped() {
            return;
        }
        let transfer = line.object();
        // A slow reader leaves connections idle until the server ends them: what moves on is not
        // failing, however often that happens.
        line.attempts.reach(line.conn.reached());
        let told = match failure {
            Failure::Status(status) => Some(answer::explain(status, body, "")),
            _ => None,
        };
        let failure = told.as_ref().map_or(failure, ServerError::failure);
        line.last_failure = Some(failure);
        if let Some(address) = line.address.filter(|_| failure.is_of_address()) {
            line.other_than = Some(address);
            let now_us = self.host.now_us();
            self.addresses.blame(address, failure, late_end.is_some(), now_us);
        }
        let objection = Objection::of(failure, told.as_ref(), line.keys_version);
        let hopeful = objection.is_none_or(|objection| self.host.heed(&transfer, objection));
        let is_moving = late_end == Some(LateEnd::Move) && failure.is_of_address();
        let repeat = failure.remedy() == Remedy::Repeat || is_moving;
        let next = match failure.remedy() {
            _ if !hopeful => Next::GiveUp,
            _ if repeat => Next::Again { ceiling_us: 0 },
            Remedy::Backoff => {
                let is_unreachable = transfer.endpoint.is_unreachable(failure, told.as_ref());
                let cause = Cause::new(is_unreachable, failure.is_overload());
                line.attempts.failed(self.now_us, cause, self.retries)
            }
            Remedy::Repeat | Remedy::GiveUp => Next::GiveUp,
        };
        let Next::Again { ceiling_us } = next else {
            return self.give_up(index, failure, told);
        };
        if is_moving {
            line.moves += 1;
            self.count.moves += 1;
        }
        self.count.retries[failure.reason() as usize] += 1;
        transfer.count_retry();
        let wait_us = if repeat { 0 } else { self.host.backoff_us(ceiling_us) };
        line.state = LineState::Backoff { until_us: self.now_us + wait_us };
    }

    /// A range that cannot be had ends the channel: a stream with a hole is no stream.
    fn give_up(&mut self, index: usize, failure: Failure, told: Option<ServerError>) {
        let line = &self.lines[index];
        let name = line.object().name();
        let told_tries = line.attempts.told(self.now_us);
        let context = format!("stream {name} failed after {told_tries}");
        let endpoint = &line.object().endpoint;
        if let Some(error) = endpoint.refusal_on_the_way(failure, told.as_ref()) {
            self.failure.get_or_insert(error.within(context));
            return;
        }
        let error = match (failure, told) {
            (_, Some(told)) => told.into_error(&context),
            (Failure::WrongEtag, _) => Error::new(ErrorKind::Objects, failure.to_string())
                .within(context)
                .advise("start again: what changed is listed anew"),
            (Failure::TlsBroken | Failure::TlsRefused, _) => {
                explain_failure(failure, line.fault.as_ref(), &endpoint.host).within(context)
            }
            (failure, _) => {
                let otherwise = failure.advice().unwrap_or("check the network and the endpoint");
                Error::new(ErrorKind::Endpoint, failure.to_string())
                    .within(context)
                    .advise(endpoint.advice(otherwise))
            }
        };
        self.failure.get_or_insert(error);
    }

    pub(super) fn line_done(&mut self, index: usize, result: Result<u32, Errno>) {
        let line = &mut self.lines[index];
        let pending = std::mem::replace(&mut line.pending, Pending::None);
        let expired = std::mem::take(&mut line.expired);
        if line.transfer.is_none() {
            // Its range was dropped while the kernel had its socket.
            line.discard();
            line.idle_since_us = self.now_us;
            self.free.push(index);
            return;
        }
        if result.is_ok() {
            // What came while it was about to be ended is in time.
            line.late_end = None;
            self.count_wait(index);
        }
        let line = &mut self.lines[index];
        match result {
            Err(errno) if !(expired && errno == Errno::CANCELED) => {
                self.happened(index, Event::Failed(errno));
            }
            Err(_) => self.happened(index, Event::Expired),
            Ok(_) if pending == Pending::Connect => {
                let socket = line.socket.clone().expect("connected");
                match self.host.set_nonblocking(&socket) {
                    Ok(()) if line.endpoint.as_ref().is_some_and(|endpoint| endpoint.tls) => {
                        self.tunnel_or_secure(index);
                        self.drive(index);
                    }
                    Ok(()) => self.happened(index, Event::Connected),
                    Err(errno) => self.happened(index, Event::Failed(errno)),
                }
            }
            Ok(_) => {
                line.readable = pending == Pending::Readable;
                self.drive(index);
            }
        }
        self.note_step(index);
    }
}
