//! What the kernel has of a connection: one operation at a time, how long it may take, and what its
//! end means.

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::JobState;
use crate::engine::peers::{LateEnd, Phase};
use crate::files::host::FileHost;
use crate::limits::{RECEIVE_LOOK_US, TURN_WAIT_MAX_US};
use crate::link::conn::{Action, Event, Target};
use crate::sys::{Errno, Op, Ring};

/// Whether an operation's end was asked for before it had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// It waits for many bytes, and few may have come: it goes on with those, or for fewer.
    Look,
    /// After its timeout, after a stop, or because another connection was first.
    Asked,
    /// It is late beside others.
    Late(LateEnd),
}

/// A connection's operation in flight. All times are by the worker's clock.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) submitted_us: u64,
    /// When something is to be done about it; once its end has been asked for, when that is asked
    /// for again.
    pub(super) deadline_us: u64,
    /// When its time is over.
    timeout_us: u64,
    ending: Ending,
    /// It takes what a poll has found: how long that takes tells nothing.
    follows_poll: bool,
    /// It receives into memory that a client has lent.
    fills_loan: bool,
}

impl Operation {
    /// Its end has been asked for.
    pub(super) fn is_ending(&self) -> bool {
        self.ending != Ending::No
    }

    /// The kernel writes into memory of a client until it is given back.
    pub(super) fn fills_loan(&self) -> bool {
        self.fills_loan
    }

    fn late_end(&self) -> Option<LateEnd> {
        match self.ending {
            Ending::Late(why) => Some(why),
            Ending::No | Ending::Look | Ending::Asked => None,
        }
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    pub(super) fn submit(&mut self, index: usize, op: Op) {
        let clock_us = self.clock.now_us();
        let connection = &mut self.connections[index];
        // A handshake has several operations, and one deadline.
        let timeout_us = match connection.conn.is_connecting() {
            true => connection.link().connected_by_us,
            // Whoever reads a pipe may take any time.
            false if connection.state.job().awaits_room() => u64::MAX,
            false => clock_us + connection.conn.timeout_us(self.retries.timeouts),
        };
        // What waits for many bytes is not woken by few, be they the last: a close_notify, say.
        // A receive that is to fill its place is looked at where its end tells what had come.
        let is_patient = match op {
            Op::Receive { fill: true, .. } => self.ring.keeps_what_came(),
            _ => connection.link().is_patient(),
        };
        let look_us = if is_patient { clock_us + RECEIVE_LOOK_US } else { u64::MAX };
        let follows_poll = connection.state.job_mut().state.operation_begins();
        let operation = Operation {
            submitted_us: clock_us,
            deadline_us: timeout_us.min(look_us),
            timeout_us,
            ending: Ending::No,
            follows_poll,
            fills_loan: matches!(&op, Op::Receive { slot, .. } if slot.is_lent()),
        };
        self.launch(index, op, operation);
    }

    fn launch(&mut self, index: usize, op: Op, operation: Operation) {
        self.connections[index].operation = Some(operation);
        if let Err(op) = self.ring.submit(index as u64, op) {
            // The ring has room for every connection and slot; a kernel short of memory has not.
            self.connection_done(index, op, Err(Errno::AGAIN));
        }
    }

    /// Asks for the end of an operation whose time is over, or which is to be looked at.
    pub(super) fn end_overdue(&mut self, index: usize) {
        let operation = self.connections[index].operation.as_ref().expect("it has an operation");
        let is_look = operation.deadline_us < operation.timeout_us;
        self.end_operation(index, if is_look { Ending::Look } else { Ending::Asked });
    }

    /// Nothing had come: from now on the first byte ends the operation.
    fn wait_for_first_byte(&mut self, index: usize, mut op: Op, operation: Operation) {
        self.set_low_water(index, 1);
        if let Op::Receive { fill, .. } = &mut op {
            *fill = false;
        }
        let deadline_us = operation.timeout_us;
        self.launch(index, op, Operation { deadline_us, ending: Ending::No, ..operation });
    }

    /// Asks for a connection's operation to be ended, and again later if it is not: the kernel may
    /// have had no room for the request.
    pub(super) fn end_early(&mut self, index: usize) {
        self.end_operation(index, Ending::Asked);
    }

    /// Asks for the end of a late operation before its timeout. It may still succeed: then nothing
    /// has been moved, and nothing has failed.
    pub(super) fn end_late(&mut self, index: usize, why: LateEnd) {
        self.end_operation(index, Ending::Late(why));
    }

    fn end_operation(&mut self, index: usize, why: Ending) {
        let again_us = self.clock.now_us() + TURN_WAIT_MAX_US;
        let operation = self.connections[index].operation.as_mut().expect("it has an operation");
        operation.deadline_us = again_us;
        // The first reason stays.
        if !operation.is_ending() {
            operation.ending = why;
        }
        self.ring.cancel(index as u64);
    }

    /// A connection's operation is over.
    pub(super) fn connection_done(&mut self, index: usize, op: Op, result: Result<u32, Errno>) {
        let connection = &mut self.connections[index];
        let operation = connection.operation.take().expect("it had an operation");
        let ConnectionState::Busy(job) = &mut connection.state else {
            connection.take_back(op);
            return self.released(index);
        };
        let is_wanted = !self.scheduler.is_stopped();
        if operation.ending == Ending::Look && result == Err(Errno::CANCELED) && is_wanted {
            return self.wait_for_first_byte(index, op, operation);
        }
        let is_ended = operation.is_ending() && (operation.ending != Ending::Look || !is_wanted);
        // What was ended because it was stuck takes at least so long: where a slow server has most
        // of them so, none would ever be waited for long enough.
        let is_stuck = operation.ending == Ending::Late(LateEnd::Stuck);
        // A request is sent at once, however long its answer takes.
        let is_over = result.is_ok() && !is_ended && !matches!(op, Op::Send { .. });
        let is_partial = is_ended && is_partly_filled(&op, result);
        let is_told = is_over || is_stuck && !is_partial;
        // What comes after a poll had come before.
        if is_told
            && !operation.follows_poll
            && !job.awaits_room()
            && !connection.conn.is_beside_body()
        {
            let elapsed_us = self.clock.now_us() - operation.submitted_us;
            self.paces.note(Phase::of(&connection.conn), elapsed_us, is_stuck);
            if is_over && matches!(op, Op::Connect { .. }) {
                let least_us = &mut self.metrics.connect_us_min;
                *least_us = Some(least_us.map_or(elapsed_us, |least_us| least_us.min(elapsed_us)));
            }
        }
        // What was to be filled and was ended comes back as a success with what it had: that came
        // before it was late. What follows is as late, and a rival goes on alone.
        let has_rival = job.rival().is_some();
        let failed = match result {
            Ok(_) if is_partial && has_rival => Some(Event::Expired),
            Ok(_) if !self.scheduler.is_stopped() => None,
            // What had come is kept for a later run.
            Ok(count) if !has_rival && connection.fills_data(&op) => Some(Event::Cut(count)),
            Err(errno) if !(is_ended && errno == Errno::CANCELED) => Some(Event::Failed(errno)),
            _ => Some(Event::Expired),
        };
        let late_end = operation.late_end();
        match failed {
            Some(event) => self.operation_failed(index, op, event, late_end),
            None if matches!(op, Op::Poll { .. }) => self.polled(index),
            None if connection.is_secure() => self.secure_done(index, op, result.unwrap_or(0)),
            None => self.plain_done(index, op, result.unwrap_or(0)),
        }
        self.drive(index);
        let still_late =
            late_end.filter(|_| is_partial && self.connections[index].operation.is_some());
        if let Some(late_end) = still_late {
            // It has waited since the one before it began.
            let next = self.connections[index].operation.as_mut().expect("it is under way");
            next.submitted_us = operation.submitted_us;
            self.end_late(index, late_end);
        }
    }

    /// An operation failed, or was ended.
    fn operation_failed(
        &mut self,
        index: usize,
        op: Op,
        event: Event<'_>,
        late_end: Option<LateEnd>,
    ) {
        let is_ended = matches!(event, Event::Expired | Event::Cut(_));
        if is_ended && self.move_what_came(index) {
            match (self.connections[index].conn.body_left(), late_end) {
                (0, _) => return,
                // Slow, and not silent.
                (_, None) => return self.move_on(index),
                (_, Some(_)) => {}
            }
        }
        let connection = &mut self.connections[index];
        connection.take_back(op);
        let job = connection.state.job_mut();
        job.late_end = late_end.filter(|_| is_ended);
        // Had it been a poll, the next attempt asks again for what it was for.
        job.state = JobState::Active;
        connection.conn.handle(event);
    }

    /// An operation without TLS succeeded.
    fn plain_done(&mut self, index: usize, op: Op, count: u32) {
        let connection = &mut self.connections[index];
        let is_send = matches!(op, Op::Send { .. });
        let is_connect = matches!(op, Op::Connect { .. });
        let target = connection.take_back(op);
        if is_connect {
            connection.link_mut().connected_us = Some(self.clock.now_us());
        }
        if is_connect && connection.link().endpoint.tls {
            self.tunnel_or_secure(index);
        } else if is_connect {
            connection.conn.handle(Event::Connected);
        } else if is_send {
            connection.conn.handle(Event::Sent(count));
        } else {
            self.received(index, count, target);
        }
    }

    /// There are bytes for a request that waited without a slot, or an end of it.
    fn polled(&mut self, index: usize) {
        let job = self.connections[index].state.job_mut();
        let had_no_room = job.awaits_room();
        match job.state.poll_ended() {
            Action::Move { .. } if had_no_room => self.room_came(index),
            Action::Move { .. } => self.move_on(index),
            action => self.act(index, action),
        }
    }

    /// Bytes stand in a buffer.
    pub(super) fn received(&mut self, index: usize, count: u32, target: Target) {
        let Connection { conn, state, control, .. } = &mut self.connections[index];
        let awaited = conn.awaits_head();
        let buffer = match target {
            Target::Control => control.bytes(),
            Target::Data => state.job().data.as_deref().expect("just put back"),
        };
        conn.handle(Event::Received(count, buffer));
        self.head_came(index, awaited);
    }

    /// Counts an answer whose head has come, where it was waited for; it may be the first of two.
    pub(super) fn head_came(&mut self, index: usize, awaited: bool) {
        let Connection { conn, state, link, .. } = &mut self.connections[index];
        let job = state.job_mut();
        if awaited && !conn.awaits_head() {
            if let Some(link) = link {
                link.note_answer(self.clock.now_us());
            }
            let first_byte_us = job.answered(self.now_us);
            if conn.has_answer() {
                self.metrics.answers += 1;
                self.metrics.stages.first_byte_us += first_byte_us;
                self.metrics.first_bytes.note(first_byte_us);
                let endpoint = job.endpoint;
                if let Some(ticket) = job.into.ticket() {
                    ticket.inbox().note_answer(endpoint, first_byte_us);
                }
                if job.into.is_paced_by_client() {
                    self.unpaced_first_byte_us += first_byte_us;
                } else {
                    self.share.said(endpoint).answers += 1;
                }
            }
        }
        if job.rival().is_some() && conn.has_answer() {
            self.won(index);
        }
    }
}

/// True for a receive that was to fill its place and did so in part.
fn is_partly_filled(op: &Op, result: Result<u32, Errno>) -> bool {
    matches!((op, result), (Op::Receive { length, fill: true, .. }, Ok(n)) if 0 < n && n < *length)
}
