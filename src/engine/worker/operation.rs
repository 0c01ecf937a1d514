//! A connection's operation in the kernel: one at a time, its time limit, and the meaning of its
//! end.

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::JobState;
use crate::engine::peers::{LateEnd, Phase};
use crate::files::host::FileHost;
use crate::limits::{RECEIVE_LOOK_US, TURN_WAIT_MAX_US};
use crate::link::conn::{Action, Event, Target};
use crate::sys::{Errno, Op, Ring};

/// Whether an operation's early end was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// It waits for many bytes, and few may have arrived: it continues with those, or for fewer.
    Look,
    /// After its timeout, after a stop, or because another connection was first.
    Asked,
    /// It is late compared with others.
    Late(LateEnd),
}

/// A connection's operation in flight. All times are by the worker's clock.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) submitted_us: u64,
    /// When to act on it; once its end was requested, when to repeat the request.
    pub(super) deadline_us: u64,
    /// Its timeout.
    timeout_us: u64,
    ending: Ending,
    /// It takes what a poll has found, so its duration says nothing.
    follows_poll: bool,
    /// It receives into memory lent by a client.
    fills_loan: bool,
}

impl Operation {
    /// True if its end was requested.
    pub(super) fn is_ending(&self) -> bool {
        self.ending != Ending::No
    }

    /// True if it receives into a client's memory, which the kernel writes until the operation
    /// ends.
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
            // The reader of a pipe may take any time.
            false if connection.state.job().awaits_room() => u64::MAX,
            false => clock_us + connection.conn.timeout_us(self.retries.timeouts),
        };
        // A receive that waits for many bytes is not woken by a few, even if they are the last,
        // such as a close_notify. A receive with `fill` is checked only if its cancellation returns
        // what had arrived.
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
            // The ring has room for every connection and slot, but a kernel short of memory has
            // not.
            self.connection_done(index, op, Err(Errno::AGAIN));
        }
    }

    /// Requests the end of an operation whose time is over, or which should be checked.
    pub(super) fn end_overdue(&mut self, index: usize) {
        let operation = self.connections[index].operation.as_ref().expect("it has an operation");
        let is_look = operation.deadline_us < operation.timeout_us;
        self.end_operation(index, if is_look { Ending::Look } else { Ending::Asked });
    }

    /// Nothing had arrived: from now on the first byte ends the operation.
    fn wait_for_first_byte(&mut self, index: usize, mut op: Op, operation: Operation) {
        self.set_low_water(index, 1);
        if let Op::Receive { fill, .. } = &mut op {
            *fill = false;
        }
        let deadline_us = operation.timeout_us;
        self.launch(index, op, Operation { deadline_us, ending: Ending::No, ..operation });
    }

    /// Requests the end of a connection's operation, and repeats that later if needed: the kernel
    /// may have had no room for the request.
    pub(super) fn end_early(&mut self, index: usize) {
        self.end_operation(index, Ending::Asked);
    }

    /// Requests the end of a late operation before its timeout. It may still succeed: then nothing
    /// was moved, and nothing has failed.
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

    /// A connection's operation has ended.
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
        // An operation that was ended because it was stuck takes at least this long: if a slow
        // server has mostly such, none would ever be awaited long enough otherwise.
        let is_stuck = operation.ending == Ending::Late(LateEnd::Stuck);
        // A request is sent at once, however long its answer takes.
        let is_over = result.is_ok() && !is_ended && !matches!(op, Op::Send { .. });
        let is_partial = is_ended && is_partly_filled(&op, result);
        let is_measured = is_over || is_stuck && !is_partial;
        // Bytes after a poll had arrived before.
        if is_measured
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
        // A cancelled receive with `fill` returns success with the bytes that it had, which arrived
        // before it was late. The rest is as late, and a rival continues alone.
        let has_rival = job.rival().is_some();
        let failed = match result {
            Ok(_) if is_partial && has_rival => Some(Event::Expired),
            Ok(_) if !self.scheduler.is_stopped() => None,
            // The received bytes are kept for a later run.
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
            // It has waited since the previous one began.
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
                // Slow, but not silent.
                (_, None) => return self.move_on(index),
                (_, Some(_)) => {}
            }
        }
        let connection = &mut self.connections[index];
        connection.take_back(op);
        let job = connection.state.job_mut();
        job.late_end = late_end.filter(|_| is_ended);
        // After a poll, the next attempt requests its bytes again.
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

    /// There are bytes, or an end, for a request that waited without a slot.
    fn polled(&mut self, index: usize) {
        let job = self.connections[index].state.job_mut();
        let had_no_room = job.awaits_room();
        match job.state.poll_ended() {
            Action::Move { .. } if had_no_room => self.room_came(index),
            Action::Move { .. } => self.move_on(index),
            action => self.act(index, action),
        }
    }

    /// Bytes are in a buffer.
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

    /// Counts an answer whose head has arrived, if it was awaited; it may be the first of two.
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

/// True for a receive with `fill` that was filled in part.
fn is_partly_filled(op: &Op, result: Result<u32, Errno>) -> bool {
    matches!((op, result), (Op::Receive { length, fill: true, .. }, Ok(n)) if 0 < n && n < *length)
}
