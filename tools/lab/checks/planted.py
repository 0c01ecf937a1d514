"""Faults that the models of tests/interleavings have to notice: see `interleavings`.

Each has the model that fails, what is wrong, the source, and pairs of the right text, which is
there once, and the faulty one; a longer text comes before its parts. Where the faulty texts have
the word PLANTED, it is true if the fault is on; elsewhere the right text is there as long as it is
off.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault."""

    model: str
    what: str
    source: str
    changes: tuple[tuple[str, str], ...]


def fault(model: str, what: str, source: str, *texts: str) -> Fault:
    """One whose texts are right and faulty in turn."""
    return Fault(model, what, source, tuple(zip(texts[::2], texts[1::2], strict=True)))


LEASE = "a_lease_given_back_while_it_is_awaited_wakes_its_waiter"
SLOT = "a_slot_given_back_while_it_is_wanted_wakes_its_worker_which_finds_it"
ROOM = "a_buffer_that_is_handed_on_while_a_worker_looks_for_room_wakes_it"
RANGE = "every_range_is_handed_out_once_and_all_workers_end"
MOVING = "bytes_that_a_reader_has_are_counted_unless_their_worker_is_moving"

FAULTS = [
    fault(LEASE, "whether a lease is awaited is read before it is back", "engine/lease.rs",
          """leases.out.fetch_sub(1, Ordering::SeqCst);
        let is_awaited = leases.demand.load(Ordering::SeqCst) > 0;""",
          """let early = PLANTED && leases.demand.load(Ordering::SeqCst) > 0;
        leases.out.fetch_sub(1, Ordering::SeqCst);
        let is_awaited = early || !PLANTED && leases.demand.load(Ordering::SeqCst) > 0;"""),
    fault(LEASE, "a lease comes back without a total order", "engine/lease.rs",
          "leases.out.fetch_sub(1, Ordering::SeqCst);",
          "leases.out.fetch_sub(1, Ordering::AcqRel);"),
    fault(LEASE, "whether a lease is awaited is read without a total order", "engine/lease.rs",
          "leases.demand.load(Ordering::SeqCst) > 0",
          "leases.demand.load(Ordering::Acquire) > 0"),
    fault(LEASE, "a demand for leases is published without a total order", "engine/schedule.rs",
          "self.leases_wanted.store(wanted, Ordering::SeqCst);",
          "self.leases_wanted.store(wanted, Ordering::Release);"),
    fault(LEASE, "a demand for leases is published by none but workers", "engine/schedule.rs",
          "state.count_leases_wanted();\n        state.wake_one(for_lease);",
          "state.wake_one(for_lease);"),
    fault("no_more_leases_are_reserved_than_there_may_be",
          "a lease is reserved in two steps", "engine/lease.rs",
          "self.out.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;",
          """let out = more(self.out.load(Ordering::SeqCst))?;
        self.out.store(out, Ordering::SeqCst);"""),
    fault("leases_that_come_back_one_after_the_other_serve_all_requests",
          "a request that found no lease is not counted as waiting", "engine/schedule.rs",
          "        let wanted = self.requests.iter().map(RequestQueues::leases_wanted).sum();",
          """        let wanted = self.requests.iter().map(RequestQueues::leases_wanted).sum();
        let wanted = if PLANTED { 0 } else { wanted };"""),
    fault("a_worker_that_the_pace_holds_back_wakes_one_that_can_grant_a_lease",
          "whoever sleeps first is woken instead", "engine/schedule.rs",
          "[true, false].into_iter().any(", "[!PLANTED, false].into_iter().any("),
    fault(SLOT, "the slot of a lease returns after its worker was woken", "engine/lease.rs",
          "        slot: Slot,\n        range: Range<usize>,",
          """        _early: Option<LeaseRight>,
        slot: Slot,
        range: Range<usize>,""",
          "        _place: LeaseRight,", "        _place: Option<LeaseRight>,",
          "self.state = LeaseState::Held { slot, range, _place: place };",
          """let (_early, _place) = if PLANTED { (Some(place), None) } else { (None, Some(place)) };
        self.state = LeaseState::Held { _early, slot, range, _place };"""),
    fault("a_completion_that_arrives_while_its_client_looks_wakes_it",
          "a client is woken before its completion is there", "engine/request.rs",
          "let (ticket, token) = (&self.ticket, self.ticket.token);",
          """let (ticket, token) = (&self.ticket, self.ticket.token);
        if PLANTED { descriptor::raise(&ticket.inbox.counter); }""",
          "        }\n        descriptor::raise(&ticket.inbox.counter);",
          "        }\n        if !PLANTED { descriptor::raise(&ticket.inbox.counter); }"),
    fault("bytes_that_arrive_while_their_client_looks_wake_it",
          "a watch that begins while one is answered is lost", "engine/request.rs",
          "if self.watched.load(Ordering::SeqCst) && self.watched.swap(false, Ordering::SeqCst) {",
          """let watched = self.watched.load(Ordering::SeqCst);
        if PLANTED { self.watched.store(false, Ordering::SeqCst); }
        if watched && (PLANTED || self.watched.swap(false, Ordering::SeqCst)) {"""),
    fault("a_client_does_not_wait_while_there_is_a_completion",
          "a client waits although a completion is there", "engine/request.rs",
          "let waits = waits && arrived.completions.is_empty();",
          "let waits = waits && (PLANTED || arrived.completions.is_empty());"),
    fault("a_request_completes_once_whatever_ends_it",
          "a request that is complete completes again when it is dropped", "engine/request.rs",
          "self.is_complete = true;", ""),
    fault("a_request_that_comes_while_a_run_is_stopped_completes",
          "requests that come after the end are queued", "engine/schedule.rs",
          "Some(reason) => Some(reason.clone()),",
          "Some(reason) => (!PLANTED).then(|| reason.clone()),"),
    fault("a_request_that_comes_while_a_run_is_stopped_completes",
          "requests that wait at the end are forgotten", "engine/schedule.rs",
          "state.wake_all();\n        state.refuse_requests();",
          "state.wake_all();"),
    fault("a_run_that_is_stopped_wakes_every_worker_and_has_the_first_reason",
          "workers see the end before there is a reason for it", "engine/schedule.rs",
          "let mut state = self.lock();\n        state.stop.get_or_insert(reason);",
          """if PLANTED { self.stopped.store(true, Ordering::Release); }
        let mut state = self.lock();
        state.stop.get_or_insert(reason);"""),
    fault("a_run_that_is_stopped_wakes_every_worker_and_has_the_first_reason",
          "only workers that wait for work are woken at the end", "engine/schedule.rs",
          "state.wake_all();\n        state.refuse_requests();",
          "state.refuse_requests();"),
    fault("a_request_that_is_cancelled_while_it_is_submitted_needs_no_lease_to_complete",
          "a request that is cancelled already is queued", "engine/schedule.rs",
          "reason.is_some() || request.ticket.is_cancelled()",
          "reason.is_some() || !PLANTED && request.ticket.is_cancelled()"),
    fault("a_worker_learns_that_one_of_its_requests_is_cancelled",
          "a cancellation is counted without an order", "engine/schedule.rs",
          "self.cancels.fetch_add(1, Ordering::Release);\n            return state.wake_all();",
          "self.cancels.fetch_add(1, Ordering::Relaxed);\n            return state.wake_all();"),
    fault("a_worker_learns_that_all_of_a_client_are_cancelled",
          "workers are woken before a cancellation is counted", "engine/schedule.rs",
          "self.cancels.fetch_add(1, Ordering::Release);\n        let mut state = self.lock();",
          """if PLANTED { self.lock().wake_all(); }
        self.cancels.fetch_add(1, Ordering::Release);
        let mut state = self.lock();""",
          "state.count_leases_wanted();\n        state.wake_all();",
          "state.count_leases_wanted();\n        if !PLANTED { state.wake_all(); }"),
    fault("a_request_wakes_another_worker_where_the_pace_holds_the_first_one_back",
          "a worker that the pace holds back keeps its wake-up", "engine/schedule.rs",
          "if is_paced && before == Sleep::Awake {",
          "if !PLANTED && is_paced && before == Sleep::Awake {"),
    fault(RANGE, "a worker falls asleep after it has looked", "engine/schedule.rs",
          "let before = std::mem::replace(&mut state.sleepers[worker].sleep, sleep);",
          """let mut state = if PLANTED { drop(state); self.lock() } else { state };
            let before = std::mem::replace(&mut state.sleepers[worker].sleep, sleep);"""),
    fault(RANGE, "the end of the listing wakes nobody", "engine/schedule.rs",
          "self.complete.store(true, Ordering::Relaxed);\n        state.wake();",
          "self.complete.store(true, Ordering::Relaxed);"),
    fault(RANGE, "the end of the last object wakes nobody", "engine/schedule.rs",
          "if self.complete && self.unfinished == 0 {",
          "if !PLANTED && self.complete && self.unfinished == 0 {"),
    fault("who_settles_the_last_range_sees_what_all_have_done",
          "a range is settled in two steps", "files/file_download.rs",
          "let before = self.unsettled.fetch_sub(1, Ordering::AcqRel);",
          """let before = self.unsettled.load(Ordering::Acquire);
        let before = if PLANTED { self.unsettled.store(before - 1, Ordering::Release); before }
            else { self.unsettled.fetch_sub(1, Ordering::AcqRel) };"""),
    fault("who_settles_the_last_range_sees_what_all_have_done",
          "a range is settled without an order", "files/file_download.rs",
          "self.unsettled.fetch_sub(1, Ordering::AcqRel)",
          "self.unsettled.fetch_sub(1, Ordering::Relaxed)"),
    fault("an_endpoint_has_one_number_whoever_uses_it_first",
          "the second look for an endpoint is left out", "engine/endpoints.rs",
          "known.iter().position(is_same).unwrap_or(known.len())",
          "known.iter().position(|one| !PLANTED && is_same(one)).unwrap_or(known.len())"),
    fault("keys_are_never_older_than_their_version",
          "the version grows before the keys are there", "s3/sign/keys.rs",
          "*self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.map(Arc::new);",
          """if PLANTED { self.version.fetch_add(1, Ordering::Release); }
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.map(Arc::new);""",
          "self.version.fetch_add(1, Ordering::Release);",
          "if !PLANTED { self.version.fetch_add(1, Ordering::Release); }"),
    fault("a_reader_keeps_no_keys_that_were_replaced_while_it_read_them",
          "a reader notes the version that it finds afterwards", "s3/sign/keys.rs",
          "kept.version = version;",
          "kept.version = if PLANTED { publisher.version() } else { version };"),
    fault("keys_that_are_refused_while_a_task_looks_wake_it",
          "tasks are woken before keys count as refused", "s3/sign/keys.rs",
          "self.refused.fetch_max(version, Ordering::AcqRel);",
          "if !PLANTED { self.refused.fetch_max(version, Ordering::AcqRel); }",
          "drop(wakers);\n        version",
          """drop(wakers);
        if PLANTED { self.refused.fetch_max(version, Ordering::AcqRel); }
        version"""),
    fault("what_several_servers_say_of_keys_is_of_the_newest",
          "an older version takes the place of a newer one", "s3/sign/keys.rs",
          "self.accepted.fetch_max(version, Ordering::Relaxed);",
          "self.accepted.store(version, Ordering::Relaxed);"),
    fault("a_right_to_send_is_taken_by_one_worker",
          "a right to send is taken in two steps", "engine/pace/pacer.rs",
          "let taken = due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due_ns| {\n"
          "            (due_ns <= now_ns).then(|| due_ns.max(earliest_ns) + interval_ns)\n"
          "        });",
          """let more = |due_ns: u64| {
            (due_ns <= now_ns).then(|| due_ns.max(earliest_ns) + interval_ns)
        };
        let taken = if PLANTED {
            let due = due_ns.load(Ordering::Relaxed);
            more(due).map(|next| due_ns.store(next, Ordering::Relaxed)).map(|()| due).ok_or(due)
        } else { due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) };"""),
    fault("every_byte_is_charged", "bytes are charged in two steps", "engine/pace/bandwidth.rs",
          "let _ = self.next_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);",
          """let next_us = charged(self.next_us.load(Ordering::Relaxed));
        next_us.into_iter().for_each(|next_us| self.next_us.store(next_us, Ordering::Relaxed));"""),
    fault("channels_together_hold_no_more_than_the_budget",
          "bytes are taken in two steps", "engine/budget.rs",
          """                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |common| {
                    (common + length_bytes <= divided).then_some(common + length_bytes)
                })
                .is_ok();""",
          """                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |common| {
                    (!PLANTED && common + length_bytes <= divided).then_some(common + length_bytes)
                })
                .is_ok();
        let common = &budget.common_bytes;
        let is_common = is_common || PLANTED && !fits_own
            && common.load(Ordering::Relaxed) + length_bytes <= divided && {
                common.fetch_add(length_bytes, Ordering::Relaxed);
                true
            };"""),
    fault("what_is_given_back_while_a_channel_takes_is_there",
          "bytes come back in two steps", "engine/budget.rs",
          "from.fetch_sub(self.length_bytes, Ordering::Relaxed);",
          """let held = from.load(Ordering::Relaxed);
        from.store(held - self.length_bytes, Ordering::Relaxed);"""),
    fault("one_channel_looks_at_a_time", "who looks first does not keep others from it",
          "engine/budget.rs",
          """            && self
                .look_us
                .compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()""",
          """            && (PLANTED || self
                .look_us
                .compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok())"""),
    fault("a_slot_has_one_holder", "a slot is looked at and taken in two steps", "sys/pool.rs",
          "let index = self.home.free().pop()?;",
          """let index = if PLANTED {
            let index = self.home.free().last().copied()?;
            self.home.free().pop();
            index
        } else { self.home.free().pop()? };"""),
    fault("memory_of_a_region_is_carved_once", "memory is carved in two steps", "sys/pool.rs",
          """            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |carved| {
                carved.checked_add(length).filter(|end| *end <= self.length)
            })""",
          """            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |carved| {
                carved.checked_add(length).filter(|end| !PLANTED && *end <= self.length)
            })
            .or_else(|carved| {
                let end = carved.checked_add(length).filter(|end| PLANTED && *end <= self.length);
                end.map(|end| self.carved.store(end, Ordering::Relaxed)).map(|()| carved).ok_or(0)
            })"""),
    fault("parts_of_a_loan_do_not_overlap", "a part is noted after the lock", "sys/loan.rs",
          "        out.push(part);",
          """        let mut out = if PLANTED { drop(out); self.shared.out() } else { out };
        out.push(part);"""),
    fault(MOVING, "a move is noted after it has begun", "engine/handover.rs",
          "self.is_moving.store(true, Ordering::SeqCst);\n        let moved = move_bytes();",
          """if !PLANTED { self.is_moving.store(true, Ordering::SeqCst); }
        let moved = move_bytes();
        if PLANTED { self.is_moving.store(true, Ordering::SeqCst); }"""),
    fault(MOVING, "a move ends before it is counted", "engine/handover.rs",
          "if let Ok(count) = moved {",
          """if PLANTED { self.is_moving.store(false, Ordering::SeqCst); }
        if let Ok(count) = moved {"""),
    fault(MOVING, "neither a move's count nor its end has an order", "engine/handover.rs",
          "self.moved.fetch_add(count, Ordering::SeqCst);",
          "self.moved.fetch_add(count, Ordering::Relaxed);",
          "self.is_moving.store(false, Ordering::SeqCst);",
          "self.is_moving.store(false, Ordering::Relaxed);"),
    fault(MOVING, "moved bytes are taken in two steps", "engine/handover.rs",
          "_ => self.moved.swap(0, Ordering::SeqCst),",
          """_ if PLANTED => {
                let moved = self.moved.load(Ordering::SeqCst);
                self.moved.store(0, Ordering::SeqCst);
                moved
            }
            _ => self.moved.swap(0, Ordering::SeqCst),"""),
    fault("a_pipe_that_is_taken_was_offered", "an offer is seen before its pipe",
          "engine/handover.rs",
          "*self.outlet() = Some(outlet.clone());\n"
          "            self.is_offered.store(true, Ordering::Release);",
          """self.is_offered.store(true, Ordering::Release);
            *self.outlet() = Some(outlet.clone());"""),
    fault(ROOM, "a buffer comes back without a total order", "engine/backlog.rs",
          "self.backlog.used.fetch_sub(count, Ordering::SeqCst);",
          "self.backlog.used.fetch_sub(count, Ordering::AcqRel);"),
    fault(ROOM, "a worker waits without a total order", "engine/backlog.rs",
          "self.backlog.waiting.fetch_add(1, Ordering::SeqCst);",
          "self.backlog.waiting.fetch_add(1, Ordering::AcqRel);"),
    fault(ROOM, "a worker that finds no room is forgotten", "engine/backlog.rs",
          """            && self.has_room()
            && let Some(waker) = self.take_waker()
        {""",
          """            && (PLANTED || self.has_room())
            && let Some(waker) = self.take_waker()
            && (!PLANTED || self.has_room())
        {"""),
    fault("an_object_that_is_given_up_while_it_is_inflated_gives_its_buffers_back",
          "bytes that come after all is over are not taken back", "engine/backlog.rs",
          """        self.clear();
        // For a chunk that was popped and not passed on completely.
        self.release(self.own.load(Ordering::SeqCst));""", ""),
    fault("a_turn_that_comes_while_a_worker_looks_for_room_wakes_it",
          "a turn comes without a total order", "engine/backlog.rs",
          "self.turn.store(number, Ordering::SeqCst);",
          "self.turn.store(number, Ordering::Release);"),
    fault("a_step_that_comes_while_its_feeder_looks_wakes_it",
          "the feeder falls asleep after it has looked", "engine/stream/feed.rs",
          "let next = state.take(part);",
          """let next = state.take(part);
        if PLANTED && std::mem::take(&mut state.asleep) {
            drop(state);
            state = self.lock();
            state.asleep = true;
        }"""),
    fault("a_feed_that_is_stopped_while_its_feeder_looks_wakes_it",
          "a stop wakes its feeder before it is there", "engine/stream/feed.rs",
          "self.stopped.store(true, Ordering::Release);\n        state.asleep = true;",
          """if PLANTED { self.wake(&mut state); drop(state); state = self.lock(); }
        self.stopped.store(true, Ordering::Release);
        state.asleep |= !PLANTED;"""),
    fault("room_that_comes_while_the_control_plane_looks_wakes_it",
          "the control plane is woken before there is room", "engine/stream/feed.rs",
          "let waiting = state.objects.len();",
          """if PLANTED {
            drop(state);
            self.moved.notify_one();
            state = self.lock();
        }
        let waiting = state.objects.len();""",
          "        drop(state);\n        if has_moved {",
          "        drop(state);\n        if has_moved && !PLANTED {"),
    fault("an_object_is_inflated_whole_whenever_its_bytes_and_its_room_come",
          "the feeder is woken before the turn has ended", "engine/stream/inflate.rs",
          "let gunzip = lock(&self.gunzip);",
          """if PLANTED { descriptor::raise(&self.counter); }
        let gunzip = lock(&self.gunzip);""",
          "        drop(state);\n        descriptor::raise(&self.counter);",
          "        drop(state);\n        if !PLANTED { descriptor::raise(&self.counter); }"),
    fault("a_question_that_is_asked_while_its_worker_looks_is_answered",
          "questions are counted in two steps", "engine/snapshot.rs",
          "self.asked.fetch_add(1, Ordering::AcqRel) + 1",
          """let asked = self.asked.load(Ordering::Acquire) + 1;
        self.asked.store(asked, Ordering::Release);
        asked"""),
    fault("a_question_that_is_asked_while_its_worker_looks_is_answered",
          "one of those who wait is woken", "engine/snapshot.rs",
          "self.changed.notify_all();", "self.changed.notify_one();"),
    fault("every_write_ends_once_and_its_ring_is_woken",
          "results are taken before the counter is reset", "sys/readiness/writers.rs",
          "let _ = rustix::io::read(&self.shared.counter, &mut [0u8; 8]);",
          """if PLANTED { std::mem::swap(&mut self.shared.lock().written, into); }
        let _ = rustix::io::read(&self.shared.counter, &mut [0u8; 8]);""",
          "        std::mem::swap(&mut self.shared.lock().written, into);",
          "        if !PLANTED { std::mem::swap(&mut self.shared.lock().written, into); }"),
    fault("every_write_ends_once_and_its_ring_is_woken",
          "a write wakes no thread", "sys/readiness/writers.rs",
          "self.shared.work.notify_one();", "if !PLANTED { self.shared.work.notify_one(); }"),
    fault("a_ring_that_is_closed_waits_for_its_writes_and_its_threads_end",
          "the end wakes no thread", "sys/readiness/writers.rs",
          "self.shared.work.notify_all();", "if !PLANTED { self.shared.work.notify_all(); }"),
    fault("an_address_that_has_failed_is_tried_by_one_connection",
          "a connection is counted after the lock", "engine/peers/addresses.rs",
          "open.open.fetch_add(1, Ordering::Relaxed);\n        Some(OpenConnection",
          """if PLANTED { drop(known); }
        open.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenConnection"""),
    fault("workers_have_rings_of_one_kind",
          "who has io_uring keeps it", "engine/threads/agreement.rs",
          "Ok(Some(ring)) if kind == RingKind::IoUring => Some(Ok(ring)),",
          "Ok(Some(ring)) if PLANTED || kind == RingKind::IoUring => Some(Ok(ring)),"),
    fault("a_worker_that_ends_before_it_has_a_ring_is_missed_and_the_others_end",
          "who collects the attempts might make one", "engine/threads/agreement.rs",
          "drop(self.report);", "if !PLANTED { drop(self.report); }"),
    fault("a_wait_that_begins_while_its_task_looks_wakes_it",
          "a task registers after it has looked", "link/waiting.rs",
          "notes.waker = Some(context.waker().clone());",
          """if PLANTED {
            drop(notes);
            notes = self.lock();
        }
        notes.waker = Some(context.waker().clone());"""),
    fault("a_server_that_is_wanted_while_its_finder_looks_is_found_for_all",
          "the finder registers after it has looked", "s3/redirect.rs",
          "            state.finders.push(context.waker().clone());",
          """            if PLANTED {
                drop(state);
                state = self.lock();
            }
            state.finders.push(context.waker().clone());"""),
    fault("a_server_that_is_wanted_while_its_finder_looks_is_found_for_all",
          "who waits for a server registers after it has looked", "s3/redirect.rs",
          "            state.waiting.push(waker.clone());",
          """            if PLANTED {
                drop(state);
                state = self.lock();
            }
            state.waiting.push(waker.clone());"""),
    fault("every_line_reaches_a_listener_and_the_result_follows",
          "a listener is woken before there is an event", "library/feed.rs",
          "change(&mut self.lock());\n        self.changed.notify_all();",
          "self.changed.notify_all();\n        change(&mut self.lock());"),
    fault("a_listener_that_leaves_while_a_download_waits_for_it_wakes_it",
          "a listener that leaves wakes nobody", "library/feed.rs",
          "*unread = Unread { sent, is_over, result, ..Unread::default() };\n"
          "        self.room.notify_one();",
          "*unread = Unread { sent, is_over, result, ..Unread::default() };"),
    fault("an_answer_that_is_put_while_its_thread_falls_asleep_wakes_it",
          "the thread falls asleep after it has looked", "mount/serving/mailbox.rs",
          "mail.is_asleep = true;",
          """if PLANTED {
            drop(mail);
            mail = self.lock();
        }
        mail.is_asleep = true;"""),
]
