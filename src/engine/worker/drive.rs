//! Carries out the actions of a connection ([`crate::link::conn`]), from the assignment of a range
//! until the connection has finished it.

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::{AfterFailure, JobState, Rivalry};
use crate::engine::metrics::AddressCount;
use crate::engine::peers::RangeTimes;
use crate::files::file_download::Again;
use crate::files::host::{FileHost, SlotBytes};
use crate::files::sink::Disposal;
use crate::limits::{REDIRECT_LOOK_UP_US, UNANSWERED_AFTER_US};
use crate::link::conn::{Action, Event, Target};
use crate::link::failure::Failure;
use crate::link::http;
use crate::s3::ByteRange;
use crate::sys::{Errno, Op, POLL_IN, Ring, Slot};

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Carries out a connection's actions until it waits for something.
    pub(super) fn drive(&mut self, index: usize) {
        loop {
            while !self.is_parked(index) {
                let Some(action) = self.connections[index].conn.poll() else { break };
                self.act(index, action);
            }
            let connection = &mut self.connections[index];
            // An action may have ended the range.
            let ConnectionState::Busy(job) = &mut connection.state else { return };
            match job.state.take_failure() {
                None => return,
                Some(AfterFailure::Elsewhere) => return self.resume_elsewhere(index),
                Some(AfterFailure::LookUp(chain, look_up)) => {
                    let until_us = self.now_us + REDIRECT_LOOK_UP_US;
                    job.state = JobState::LookUp { chain, look_up, until_us };
                    return;
                }
                Some(AfterFailure::Resume) => self.connections[index].conn.resume(),
                Some(AfterFailure::Park) => {
                    if !self.set_aside(index, self.now_us) {
                        let until_us = self.now_us + UNANSWERED_AFTER_US;
                        self.connections[index].state.job_mut().state =
                            JobState::Backoff { until_us };
                    }
                    return;
                }
                Some(AfterFailure::Backoff { until_us }) => {
                    self.connections[index].state.job_mut().state = JobState::Backoff { until_us };
                    return self.park(index, until_us);
                }
                Some(AfterFailure::GiveUp(error)) => return self.give_up(index, &error),
                Some(AfterFailure::Yield) => return self.release(index),
            }
        }
    }

    /// True if one of its actions waits, which holds back the later ones.
    fn is_parked(&self, index: usize) -> bool {
        let state = &self.connections[index].state;
        matches!(state, ConnectionState::Busy(job) if job.state.is_parked())
    }

    /// Carries out one action.
    pub(super) fn act(&mut self, index: usize, action: Action) {
        let is_secure = self.connections[index].is_secure();
        match action {
            Action::Connect => self.connect(index),
            Action::Secure => self.secure_begin(index),
            Action::Write(range) => self.write_request(index, range),
            Action::Send { at, length } if is_secure => self.secure_send(index, at, length),
            Action::Receive { .. } if is_secure => self.secure_receive(index, action),
            Action::Send { at, length } => {
                let connection = &mut self.connections[index];
                let (socket, slot) = (connection.link().socket.clone(), connection.control.lend());
                self.submit(index, Op::Send { socket, slot, at, length });
            }
            Action::Receive { target: Target::Data, .. } if self.polls_first(index) => {
                let connection = &mut self.connections[index];
                connection.state.job_mut().state = JobState::ForBytes(action);
                let handle = connection.link().socket.clone();
                self.submit(index, Op::Poll { handle, events: POLL_IN });
            }
            Action::Receive { target, at, length, fill } => {
                let Some(slot) = self.slot_for(index, target, action) else { return };
                let connection = &self.connections[index];
                let socket = connection.link().socket.clone();
                self.set_low_water(index, connection.conn.low_water(length, fill));
                self.submit(index, Op::Receive { socket, slot, at, length, fill });
            }
            Action::Copy { from, to, length } => {
                let Some(mut slot) = self.slot_for(index, Target::Data, action) else { return };
                let connection = &mut self.connections[index];
                let (from, to, length) = (from as usize, to as usize, length as usize);
                let bytes = &connection.control.bytes()[from..from + length];
                slot[to..to + length].copy_from_slice(bytes);
                connection.state.job_mut().data = Some(slot);
            }
            Action::DropHeaders { target, filled } => {
                let Connection { conn, state, control, .. } = &mut self.connections[index];
                let buffer = match target {
                    Target::Control => control.bytes_mut(),
                    Target::Data => state.job_mut().data.as_deref_mut().expect("just filled"),
                };
                let left = http::drop_headers(&mut buffer[..filled as usize]);
                let awaited = conn.awaits_head();
                conn.handle(Event::Dropped(u32::try_from(left).expect("at most as many"), buffer));
                self.head_came(index, awaited);
            }
            Action::Decode { target, at, length } => {
                let Connection { conn, state, control, .. } = &mut self.connections[index];
                let buffer = match target {
                    Target::Control => control.bytes_mut(),
                    Target::Data => state.job_mut().data.as_deref_mut().expect("just filled"),
                };
                let count = conn.decode(&mut buffer[at as usize..(at + length) as usize]);
                conn.handle(Event::Decoded(count, buffer));
            }
            Action::Move { from, length } => self.begin_moving(index, from, length),
            Action::Deliver { at, length, offset } => self.deliver(index, at, length, offset),
            Action::Finished => self.finished(index),
            Action::Fail { failure, body } => self.attempt_failed(index, failure, body),
            Action::Close => self.close(index),
        }
    }

    fn write_request(&mut self, index: usize, range: Option<ByteRange>) {
        let connection = &mut self.connections[index];
        let is_there = connection.link().leads_to(connection.state.job().server());
        assert!(is_there, "no server gets a request that is for another one");
        let job = connection.state.job_mut();
        let headers = job.headers(range);
        job.sent = headers;
        let without_etag = match (job.names_version(), headers.if_match) {
            // Where a redirect leads, nobody knows what `If-Match` means.
            (true, _) if job.elsewhere.is_some() => Some(Failure::Unversioned),
            // It was refused, so the object may have changed.
            (true, false) => Some(Failure::WrongEtag),
            _ => None,
        };
        connection.conn.set_without_etag(without_etag);
        connection.conn.set_accepts_gzip(headers.accept_gzip);
        let out = connection.control.bytes_mut();
        let elsewhere = job.elsewhere.as_deref();
        match self.host.write_request(out, job.object(), elsewhere, range, headers) {
            Ok(length) => {
                let keys_version = self.host.keys_version(job.object());
                job.asked(self.now_us, keys_version);
                let range = job.range;
                if !job.into.is_paced_by_client() {
                    self.share.asked(self.now_us, job.bytes.length);
                }
                connection.conn.handle(Event::Written { length });
                self.count_request(range);
            }
            Err(error) => {
                let error = error.within(job.object().name());
                self.fail_job(index, error);
                self.connections[index].conn.handle(Event::Failed(Errno::CANCELED));
            }
        }
    }

    /// The slot for an action. If none is free, the connection joins a queue and gets `None`.
    pub(super) fn slot_for(
        &mut self,
        index: usize,
        target: Target,
        action: Action,
    ) -> Option<Slot> {
        let connection = &mut self.connections[index];
        if target == Target::Control {
            return Some(connection.control.lend());
        }
        let job = connection.state.job_mut();
        if let Some(slot) = job.data.take() {
            return Some(slot);
        }
        let is_lent = match self.lent_piece(index) {
            Some(Some(piece)) => return Some(piece),
            Some(None) => true,
            None => false,
        };
        // Connections in the queue come first.
        if !is_lent
            && self.slot_queue.is_empty()
            && let Some(slot) = self.take_slot()
        {
            return Some(slot);
        }
        self.connections[index].state.job_mut().state.wait_for_slot(action, self.now_us);
        let queue = if is_lent { &mut self.loan_queue } else { &mut self.slot_queue };
        queue.push_back(index);
        None
    }

    /// Resumes a connection with the slot that it has waited for.
    pub(super) fn slot_came(&mut self, index: usize, slot: Slot) {
        let job = self.connections[index].state.job_mut();
        job.data = Some(slot);
        let (action, since_us) = job.state.slot_came();
        self.metrics.stages.slot_wait_us += self.now_us.saturating_sub(since_us);
        self.act(index, action);
        self.drive(index);
    }

    /// Removes a connection from the queues for slots.
    pub(super) fn leave_queues(&mut self, index: usize) {
        self.slot_queue.retain(|waiting| *waiting != index);
        self.loan_queue.retain(|waiting| *waiting != index);
    }

    /// Hands on a piece of the object that is in the data slot: to the client, or to the sink.
    fn deliver(&mut self, index: usize, at: u32, length: u32, offset: u64) {
        self.count_bytes(index, u64::from(length));
        let job = self.connections[index].state.job_mut();
        let slot = job.data.take().expect("it was just filled");
        job.piece_at = offset + u64::from(length);
        let range = job.range;
        let Some(download) = job.into.download().cloned() else {
            return self.deliver_to_client(range, SlotBytes { slot, at, length });
        };
        let bytes = &slot[at as usize..(at + length) as usize];
        self.host.delivered(&download, offset, length);
        self.count_in(index, bytes, offset);
        match self.sink.dispose(download.shape) {
            Disposal::Drop => drop(slot),
            Disposal::WriteAt => self.write(range, slot, length, offset),
            Disposal::WriteWhole => {
                // Compared before the write, because the file's mark records the verdict.
                self.compare(range);
                self.write_whole(range, &download, SlotBytes { slot, at, length });
            }
        }
    }

    /// Ends a range whose bytes have all been delivered, after checks of ETag and checksum.
    fn finished(&mut self, index: usize) {
        self.scheduler.answered();
        let connection = &self.connections[index];
        let job = connection.state.job();
        let range = job.range;
        if !job.object().agrees(connection.conn.etag(), connection.conn.last_modified()) {
            let error = connection.explain(Failure::WrongEtag, None, self.now_us);
            match job.into.download() {
                Some(download) => download.fail_for_now(Again::Changed, error),
                None => self.fail_job(index, error),
            }
        }
        let job = self.connections[index].state.job();
        job.note_habits();
        if job.elsewhere.is_none() {
            self.host.note_accepted(job.object(), job.keys_version());
        }
        self.end_moving(index);
        self.compare(range);
        self.count_range(index);
        self.fetched(index);
    }

    /// Records the address and the times of a completed range.
    fn count_range(&mut self, index: usize) {
        let connection = &self.connections[index];
        let job = connection.state.job();
        let (Some(link), Some(times)) = (&connection.link, job.times(self.now_us)) else { return };
        let at = link.place();
        let times = RangeTimes { is_first: link.open().answers() == 1, ..times };
        let bytes = job.bytes.length;
        self.metrics.ranges.note(times.first_byte_us + times.body_us);
        self.addresses.brought(at, bytes, times, self.now_us);
        let mut from = AddressCount::new(at.endpoint, at.address);
        from.brought(bytes, (times.first_byte_us, times.body_us), self.now_us);
        self.count_brought(job.range, from);
    }

    /// Frees a connection from its range.
    pub(super) fn fetched(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let job = connection.state.job();
        assert!(job.rivalry == Rivalry::Alone, "a range has one end");
        if let Some(times) = job.times(self.now_us) {
            self.metrics.stages.body_us += times.body_us;
            let elapsed_us = times.first_byte_us + times.body_us;
            match job.into.ticket().filter(|_| job.into.is_paced_by_client()) {
                Some(ticket) => ticket.inbox().note_end(elapsed_us, job.bytes.length),
                None => {
                    self.paced_ranges += 1;
                    self.paced_ranges_us += elapsed_us;
                    self.paced_ranges_bytes += job.bytes.length;
                }
            }
        }
        let (range, endpoint) = (job.range, job.endpoint);
        connection.let_go(self.now_us);
        self.free.push(index);
        self.give_way(index, endpoint);
        if self.ranges.fetched(range) {
            self.end_range(range);
        }
    }
}
