//! Tests of the scheduler.

use super::*;
use crate::engine::lease::Lease;
use crate::engine::pace::{Bounds, Pacer};
use crate::engine::request::{Destination, Inbox, Ticket};
use crate::files::file_download::{Again, Cut};
use crate::plan::ranges::PartSize;
use crate::s3::{Endpoint, Object};

fn downloads(sizes: &[u64]) -> Vec<FileDownload> {
    downloads_at(&sizes.iter().map(|size| (0, *size)).collect::<Vec<_>>())
}

/// Objects of these sizes, each at the endpoint with this number.
fn downloads_at(sizes: &[(usize, u64)]) -> Vec<FileDownload> {
    let new = |(index, (endpoint, size_bytes)): (usize, &(usize, u64))| {
        let key = format!("{index:06}");
        let path = key.clone();
        let object = Object { key, size_bytes: *size_bytes, ..Object::default() };
        let host = format!("h{endpoint}");
        let endpoint = Arc::new(Endpoint::new("b", false, &host, "/", "r", vec![]));
        let part = PartSize::new(1 << 20).expect("aligned");
        FileDownload::new(object, endpoint, path, Cut { part, slot_length_bytes: 1 << 16 })
    };
    sizes.iter().enumerate().map(new).collect()
}

/// Room for `count` ranges, and for as many requests.
fn room(count: usize) -> Room {
    Room { ranges: count, all: count }
}

/// The download of an assigned range.
fn download_of(assignment: Assignment) -> Arc<FileDownload> {
    let Recipient::File(download) = assignment.recipient else { unreachable!("it has a client") };
    download
}

fn scheduler() -> Scheduler {
    Scheduler::new(vec![Handle::Simulated(0), Handle::Simulated(1)])
}

#[test]
fn every_byte_of_every_object_exactly_once() {
    let sizes: Vec<u64> = (0..200u64).map(|n| n * n * n * 7 % 9_000_001).collect();
    let scheduler = scheduler();
    scheduler.push(downloads(&sizes));
    scheduler.complete();
    let mut ready = VecDeque::new();
    while scheduler.take(0, room(7), EndpointSet::EMPTY, &mut ready) == Supply::Given {}
    let mut seen: Vec<Vec<(u64, u64)>> = vec![Vec::new(); sizes.len()];
    for Assignment { recipient, range, .. } in &ready {
        let index: usize = recipient.object().listed.key.parse().expect("a number");
        seen[index].push((range.offset, range.length));
    }
    for (size, mut ranges) in sizes.into_iter().zip(seen) {
        ranges.sort_unstable();
        let end = ranges.iter().fold(0, |end, (offset, length)| {
            assert_eq!(*offset, end, "no gap and no overlap");
            end + length
        });
        assert_eq!(end, size);
    }
}

#[test]
fn large_first_a_few_at_a_time() {
    let scheduler = scheduler();
    scheduler.push(downloads(&[10, 2 << 20, 9 << 20, 3 << 20, 4 << 20, 5 << 20, 20]));
    let mut ready = VecDeque::new();
    assert_eq!(scheduler.take(0, room(4), EndpointSet::EMPTY, &mut ready), Supply::Given);
    let sizes: Vec<u64> =
        ready.iter().map(|a| a.recipient.object().listed.size_bytes >> 20).collect();
    assert_eq!(sizes, [9, 5, 4, 3], "2 MiB waits until one of the four is handed out");
}

#[test]
fn bounded_and_ended() {
    let scheduler = scheduler();
    let mut ready = VecDeque::new();
    assert_eq!(scheduler.take(1, room(5), EndpointSet::EMPTY, &mut ready), Supply::Later);
    scheduler.push(downloads(&vec![1; OBJECTS_QUEUED_MAX]));
    assert_eq!(scheduler.room(), 0);
    scheduler.complete();
    while scheduler.take(0, room(64), EndpointSet::EMPTY, &mut ready) == Supply::Given {}
    assert_eq!(scheduler.take(1, room(5), EndpointSet::EMPTY, &mut ready), Supply::Later);
    assert_eq!(scheduler.room(), 0, "room comes back with the outcome, not before");
    let download = download_of(ready.pop_front().expect("one"));
    scheduler.finish(Outcome { download, elapsed_us: 0, result: Ok(()) });
    scheduler.collect(&mut Vec::new());
    assert_eq!(scheduler.room(), 1);
    for download in ready.drain(..).map(download_of) {
        scheduler.finish(Outcome { download, elapsed_us: 0, result: Ok(()) });
    }
    assert_eq!(scheduler.take(1, room(5), EndpointSet::EMPTY, &mut ready), Supply::Ended);
}

#[test]
fn workers_stay_until_it_is_decided_about_every_object() {
    let scheduler = scheduler();
    scheduler.push(downloads(&[5, 6]));
    scheduler.complete();
    let mut ready = VecDeque::new();
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Given);
    for download in ready.drain(..).map(download_of) {
        let error = Error::new(ErrorKind::Objects, "changed");
        download.fail_for_now(Again::Changed, error.clone());
        scheduler.finish(Outcome { download, elapsed_us: 0, result: Err(error) });
    }
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Later);
    scheduler.give_up();
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Later);
    scheduler.restart(downloads(&[7]).remove(0));
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Given);
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Later);
    let download = download_of(ready.pop_front().expect("the new one"));
    scheduler.finish(Outcome { download, elapsed_us: 0, result: Ok(()) });
    assert_eq!(scheduler.take(0, room(2), EndpointSet::EMPTY, &mut ready), Supply::Ended);
}

#[test]
fn an_endpoint_that_is_gone_ends_the_run_and_a_faulty_one_does_not() {
    let faulty = scheduler();
    for attempt in 0..100_000u64 {
        // 7 of 8 fail.
        match attempt % 8 {
            0 => faulty.answered(),
            _ => faulty.attempt_failed("busy", attempt * 1_000_000, 0),
        }
    }
    assert!(!faulty.is_stopped());
    let gone = scheduler();
    let most = u64::from(FAILED_ATTEMPTS_IN_A_ROW_MAX);
    for attempt in 1..most * 2 {
        gone.attempt_failed("stalled", attempt, 0);
    }
    assert!(!gone.is_stopped(), "many, but all at once");
    let retry_for_us = 6 * FAILING_TIME_MIN_US;
    gone.attempt_failed("stalled", FAILING_TIME_MIN_US + 1, retry_for_us);
    assert!(!gone.is_stopped(), "it may be retried for longer");
    gone.attempt_failed("stalled", FAILING_TIME_MIN_US + 1, 0);
    let error = gone.stop_reason().expect("stopped");
    assert_eq!(error.kind(), ErrorKind::Endpoint);
    assert!(error.to_string().contains("513 attempts in a row over 10 seconds"), "{error}");
    assert!(!gone.is_endpoint_gone(retry_for_us, retry_for_us));
    assert!(gone.is_endpoint_gone(retry_for_us + 1, retry_for_us));
    gone.answered();
    assert!(!gone.is_endpoint_gone(retry_for_us + 1, retry_for_us));
}

#[test]
fn what_was_never_handed_out_is_settled_at_the_end() {
    let scheduler = scheduler();
    scheduler.push(downloads(&[3 << 20, 5, 0]));
    let mut ready = VecDeque::new();
    assert_eq!(scheduler.take(0, room(1), EndpointSet::EMPTY, &mut ready), Supply::Given);
    let keys: Vec<String> =
        scheduler.abandon().iter().map(|download| download.object.listed.key.clone()).collect();
    assert_eq!(keys, ["000001", "000002"], "the first has a range in a worker's hands");
    let first = download_of(ready.pop_front().expect("one"));
    assert_eq!(first.unsettled(), 1);
}

/// An object that clients ask for.
fn object() -> Arc<ObjectRef> {
    Arc::new(downloads(&[100]).remove(0).object)
}

/// Submits a request for one byte of `object`, whose completion arrives in `inbox`.
fn submit(
    scheduler: &Scheduler,
    object: &Arc<ObjectRef>,
    (token, inbox): (u64, &Arc<Inbox>),
    priority: Priority,
) -> Arc<Ticket> {
    submit_into(scheduler, object, (token, inbox, Destination::Nothing), priority)
}

/// Like [`submit`], into a destination.
fn submit_into(
    scheduler: &Scheduler,
    object: &Arc<ObjectRef>,
    (token, inbox, into): (u64, &Arc<Inbox>, Destination),
    priority: Priority,
) -> Arc<Ticket> {
    let ticket = Arc::new(Ticket::new(token, Arc::clone(inbox)));
    let request = ClientRequest::new(Arc::clone(&ticket), into);
    let range = ByteRange { offset: token, length: 1 };
    scheduler.submit(Arc::clone(object), range, request, priority);
    ticket
}

/// The inbox of a client that controls its requests in flight.
fn paced_by_client() -> Arc<Inbox> {
    let pacer = Arc::new(Pacer::new(Bounds::fixed(1), 1));
    Arc::new(Inbox::new(Handle::Simulated(2), Some(pacer)))
}

/// Tokens of the requests and offsets of the ranges that a worker is given.
fn given(scheduler: &Scheduler, worker: usize, room: Room) -> Vec<(bool, u64)> {
    let mut ready = VecDeque::new();
    scheduler.take(worker, room, EndpointSet::EMPTY, &mut ready);
    ready.iter().map(|one| (one.recipient.request().is_some(), one.range.offset)).collect()
}

#[test]
fn requests_come_first_by_priority_and_in_order() {
    let scheduler = scheduler();
    let inbox = paced_by_client();
    let object = object();
    scheduler.push(downloads(&[3 << 20]));
    for token in 1..=4 {
        submit(&scheduler, &object, (token, &inbox), Priority::Normal);
    }
    submit(&scheduler, &object, (9, &inbox), Priority::High);
    // Five wait, and there are two workers: three are this one's part.
    let all = given(&scheduler, 0, Room { ranges: 1, all: 9 });
    assert_eq!(all, [(true, 9), (true, 1), (true, 2), (false, 0)]);
    assert_eq!(given(&scheduler, 1, Room { ranges: 0, all: 1 }), [(true, 3)], "no more room");
    assert_eq!(given(&scheduler, 1, Room { ranges: 9, all: 9 })[0], (true, 4));
    scheduler.complete();
    assert_eq!(scheduler.take(0, room(1), EndpointSet::EMPTY, &mut VecDeque::new()), Supply::Later);
}

#[test]
fn who_has_no_room_for_ranges_learns_that_some_wait() {
    let scheduler = scheduler();
    let mut ready = VecDeque::new();
    let requests_alone = Room { ranges: 0, all: 4 };
    assert_eq!(
        scheduler.take(0, requests_alone, EndpointSet::EMPTY, &mut ready),
        Supply::Later,
        "nothing waits"
    );
    scheduler.push(downloads(&[10, 9 << 20]));
    assert_eq!(scheduler.take(0, requests_alone, EndpointSet::EMPTY, &mut ready), Supply::Paced);
    assert!(ready.is_empty());
    assert_eq!(scheduler.take(0, room(64), EndpointSet::EMPTY, &mut ready), Supply::Given);
    assert_eq!(
        scheduler.take(0, requests_alone, EndpointSet::EMPTY, &mut ready),
        Supply::Later,
        "all is handed out"
    );
}

#[test]
fn what_is_paced_here_waits_for_the_pace_and_for_nobody_else() {
    let scheduler = scheduler();
    let (mine, others) = (Arc::new(Inbox::new(Handle::Simulated(2), None)), paced_by_client());
    let object = object();
    for token in 1..=4 {
        submit(&scheduler, &object, (token, &mine), Priority::High);
    }
    submit(&scheduler, &object, (7, &others), Priority::Normal);
    assert_eq!(given(&scheduler, 0, Room { ranges: 0, all: 9 }), [(true, 7)]);
    let full = Room { ranges: 0, all: 9 };
    assert_eq!(scheduler.take(0, full, EndpointSet::EMPTY, &mut VecDeque::new()), Supply::Paced);
    assert_eq!(given(&scheduler, 0, Room { ranges: 1, all: 9 }), [(true, 1)]);
    assert_eq!(
        given(&scheduler, 0, Room { ranges: 9, all: 9 }),
        [(true, 2), (true, 3)],
        "its part"
    );
}

/// True if a worker was not woken since it got nothing.
fn sleeps(scheduler: &Scheduler, worker: usize) -> bool {
    scheduler.lock().sleepers[worker].sleep != Sleep::Awake
}

/// The other worker has nothing else to be woken by, for as long as it rests.
#[test]
fn a_request_that_the_woken_worker_cannot_take_wakes_another() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    assert!(given(&scheduler, 0, room(4)).is_empty() && given(&scheduler, 1, room(4)).is_empty());
    submit(&scheduler, &object(), (1, &inbox), Priority::Normal);
    assert!(!sleeps(&scheduler, 0) && sleeps(&scheduler, 1), "one is enough");
    // Its pace leaves no room meanwhile.
    let mut ready = VecDeque::new();
    let full = Room { ranges: 0, all: 4 };
    assert_eq!(scheduler.take(0, full, EndpointSet::EMPTY, &mut ready), Supply::Paced);
    assert!(!sleeps(&scheduler, 1));
    // Neither can take it: they do not wake one another without end.
    assert_eq!(scheduler.take(1, full, EndpointSet::EMPTY, &mut ready), Supply::Paced);
    assert!(sleeps(&scheduler, 0) && sleeps(&scheduler, 1));
    // Who asks again by itself was not woken for anything: as while the other has no free lease.
    scheduler.lock().sleepers[1].sleep = Sleep::ForWork;
    assert_eq!(scheduler.take(0, full, EndpointSet::EMPTY, &mut ready), Supply::Paced);
    assert!(sleeps(&scheduler, 1));
    // One that waits for work is preferred.
    assert_eq!(given(&scheduler, 1, room(4)), [(true, 1)]);
    assert!(given(&scheduler, 1, room(4)).is_empty());
    submit(&scheduler, &object(), (2, &inbox), Priority::Normal);
    assert!(sleeps(&scheduler, 0) && !sleeps(&scheduler, 1));
}

#[test]
fn a_request_for_a_lease_that_the_woken_worker_cannot_take_wakes_one_that_has_a_lease() {
    let scheduler = Scheduler::new([0, 1, 2].map(Handle::Simulated).to_vec());
    [0, 2].into_iter().for_each(|worker| scheduler.leases(worker).set_most(1));
    let inbox = Arc::new(Inbox::new(Handle::Simulated(3), None));
    assert!((0..3).all(|worker| given(&scheduler, worker, room(4)).is_empty()));
    let into = Destination::Lease(Lease::new());
    submit_into(&scheduler, &object(), (1, &inbox, into), Priority::Normal);
    let sleep = || [0, 1, 2].map(|worker| sleeps(&scheduler, worker));
    assert_eq!(sleep(), [false, true, true]);
    let full = Room { ranges: 0, all: 4 };
    let supply = scheduler.take(0, full, EndpointSet::EMPTY, &mut VecDeque::new());
    assert_eq!((supply, sleep()), (Supply::Paced, [true, true, false]));
    assert_eq!(given(&scheduler, 2, room(4)), [(true, 1)]);
}

#[test]
fn whoever_takes_the_last_request_wakes_those_that_wait_for_the_end() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    submit(&scheduler, &object(), (1, &inbox), Priority::Normal);
    scheduler.complete();
    let mut ready = VecDeque::new();
    let full = Room { ranges: 0, all: 4 };
    assert_eq!(scheduler.take(1, full, EndpointSet::EMPTY, &mut ready), Supply::Paced);
    assert!(sleeps(&scheduler, 1));
    assert_eq!(given(&scheduler, 0, room(4)), [(true, 1)]);
    assert!(!sleeps(&scheduler, 1));
    assert_eq!(scheduler.take(1, room(4), EndpointSet::EMPTY, &mut ready), Supply::Ended);
}

#[test]
fn requests_that_nobody_begins_complete_all_the_same() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let object = object();
    let ended = || {
        let mut arrived = Vec::new();
        inbox.collect(&mut arrived);
        let kind = |result: Result<(), Error>| result.expect_err("it was not begun").kind();
        arrived.into_iter().map(|one| (one.token, kind(one.result))).collect::<Vec<_>>()
    };
    let ticket = submit(&scheduler, &object, (1, &inbox), Priority::Normal);
    submit(&scheduler, &object, (2, &inbox), Priority::Normal);
    ticket.cancel();
    let before = scheduler.cancels();
    scheduler.cancel();
    assert_ne!(scheduler.cancels(), before, "workers notice");
    assert_eq!(ended(), [(1, ErrorKind::Interrupted)]);
    scheduler.stop(Error::new(ErrorKind::Endpoint, "gone"));
    assert_eq!(ended(), [(2, ErrorKind::Endpoint)]);
    submit(&scheduler, &object, (3, &inbox), Priority::Normal);
    assert_eq!(ended(), [(3, ErrorKind::Endpoint)], "the run was stopped before");
    assert!(scheduler.abandon().is_empty() && ended().is_empty());
}

#[test]
fn no_more_requests_wait_than_there_is_room_for() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let object = object();
    for token in 0..=REQUESTS_QUEUED_MAX as u64 {
        submit(&scheduler, &object, (token, &inbox), Priority::Normal);
    }
    let mut arrived = Vec::new();
    inbox.collect(&mut arrived);
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].token, REQUESTS_QUEUED_MAX as u64);
}

#[test]
fn what_waits_for_a_lease_goes_to_who_has_one_and_lets_the_others_pass() {
    let counter = |_| descriptor::event_counter().expect("a descriptor");
    let counters: Vec<Handle> = (0..2).map(counter).collect();
    let is_raised = |worker: usize| {
        let Handle::Descriptor(counter) = &counters[worker] else { unreachable!("a counter") };
        let mut polls = [rustix::event::PollFd::new(counter, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polls, Some(&now)).expect("a poll") > 0
    };
    let scheduler = Scheduler::new(counters.clone());
    scheduler.leases(1).set_slots(2);
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let object = object();
    let for_lease = |token, priority| {
        let into = Destination::Lease(Lease::new());
        submit_into(&scheduler, &object, (token, &inbox, into), priority);
    };
    for worker in [0, 1] {
        assert_eq!(
            scheduler.take(worker, room(9), EndpointSet::EMPTY, &mut VecDeque::new()),
            Supply::Later
        );
    }
    for_lease(1, Priority::Normal);
    assert!(!is_raised(0) && is_raised(1), "the first has no lease to give");
    descriptor::lower(&counters[1]);
    assert!(given(&scheduler, 0, room(9)).is_empty());
    let mut ready = VecDeque::new();
    assert_eq!(scheduler.take(1, room(9), EndpointSet::EMPTY, &mut ready), Supply::Given);
    assert_eq!(ready.len(), 1);
    for_lease(2, Priority::High);
    submit(&scheduler, &object, (3, &inbox), Priority::High);
    assert_eq!(given(&scheduler, 1, room(9)), [(true, 3)], "its lease is out");
    let paced = Room { ranges: 0, all: 9 };
    assert_eq!(
        scheduler.take(1, paced, EndpointSet::EMPTY, &mut VecDeque::new()),
        Supply::Later,
        "no pace helps"
    );
    descriptor::lower(&counters[1]);
    drop(ready);
    assert!(is_raised(1), "one has come back");
    submit(&scheduler, &object, (4, &inbox), Priority::High);
    submit(&scheduler, &object, (5, &inbox), Priority::High);
    assert_eq!(given(&scheduler, 1, room(9)), [(true, 2), (true, 4)], "as they came");
    for_lease(6, Priority::Normal);
    scheduler.stop(Error::new(ErrorKind::Interrupted, "stopped"));
    let mut arrived = Vec::new();
    inbox.collect(&mut arrived);
    let is_last = |one: &crate::engine::request::Completion| one.token == 6;
    assert!(arrived.iter().any(is_last), "{arrived:?}");
}

fn set(endpoints: &[usize]) -> EndpointSet {
    let mut set = EndpointSet::EMPTY;
    endpoints.iter().for_each(|endpoint| set.insert(EndpointNumber::at(*endpoint)));
    set
}

#[test]
fn what_one_endpoint_holds_back_holds_up_no_other_and_its_order_stays() {
    const MIB: u64 = 1 << 20;
    let sizes = [(0, 9 * MIB), (1, 2 * MIB), (0, 5), (1, 6), (0, 8 * MIB), (2, 7)];
    let pushed = || {
        let scheduler = scheduler();
        scheduler.push(downloads_at(&sizes));
        scheduler
    };
    let keys = |scheduler: &Scheduler, held: &[usize], count: usize| {
        let mut ready = VecDeque::new();
        scheduler.take(0, room(count), set(held), &mut ready);
        let given = ready
            .iter()
            .map(|one| (one.endpoint.index(), one.recipient.object().listed.size_bytes));
        given.collect::<Vec<_>>()
    };
    let scheduler = pushed();
    assert_eq!(keys(&scheduler, &[0], 9), [(1, 2 * MIB), (1, 2 * MIB), (1, 6), (2, 7)]);
    let held = set(&[0]);
    assert_eq!(scheduler.take(0, room(9), held, &mut VecDeque::new()), Supply::Paced);
    assert_eq!(keys(&scheduler, &[], 3), [(0, 9 * MIB), (0, 8 * MIB), (0, 9 * MIB)], "in turn");
    assert_eq!(keys(&scheduler, &[1, 2], 64).last(), Some(&(0, 5)));
    assert_eq!(scheduler.take(0, room(9), held, &mut VecDeque::new()), Supply::Later);
    // Without skipping they have one order.
    let all = keys(&pushed(), &[], 64);
    assert_eq!(all[..3], [(0, 9 * MIB), (0, 8 * MIB), (1, 2 * MIB)]);
    assert_eq!(all[all.len() - 3..], [(0, 5), (1, 6), (2, 7)]);
    assert_eq!(pushed().abandon().len(), sizes.len());
}

#[test]
fn a_request_to_an_endpoint_that_holds_it_back_lets_the_others_pass() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let objects = downloads_at(&[(0, 100), (1, 100)]).into_iter();
    let objects: Vec<_> = objects.map(|download| Arc::new(download.object)).collect();
    for (token, object) in [(1, 0), (2, 0), (3, 1), (4, 0), (5, 1)] {
        submit(&scheduler, &objects[object], (token, &inbox), Priority::Normal);
    }
    submit(&scheduler, &objects[0], (6, &inbox), Priority::High);
    let tokens = |held: &[usize]| {
        let mut ready = VecDeque::new();
        let supply = scheduler.take(0, room(3), set(held), &mut ready);
        let tokens = ready.iter().map(|one| one.range.offset).collect::<Vec<_>>();
        (supply, tokens)
    };
    assert_eq!(tokens(&[0]), (Supply::Given, vec![3, 5]));
    assert_eq!(tokens(&[0]), (Supply::Paced, vec![]));
    assert_eq!(tokens(&[]), (Supply::Given, vec![6, 1]), "its part of them, in order");
    assert_eq!(tokens(&[]), (Supply::Given, vec![2]));
}

#[test]
fn one_that_is_cancelled_completes_alone_and_at_once() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let object = object();
    let mut tickets = Vec::new();
    for token in 0..3 {
        let priority = if token == 1 { Priority::High } else { Priority::Normal };
        tickets.push(submit(&scheduler, &object, (token, &inbox), priority));
    }
    let before = scheduler.cancels();
    let arrived = || {
        let mut arrived = Vec::new();
        inbox.collect(&mut arrived);
        arrived.iter().map(|one| one.token).collect::<Vec<_>>()
    };
    for token in [2, 1] {
        tickets[token].cancel();
        scheduler.cancel_one(&tickets[token]);
        assert_eq!(arrived(), [token as u64]);
        assert_eq!(scheduler.cancels(), before, "no worker need look for it");
    }
    let mut ready = VecDeque::new();
    scheduler.take(0, room(9), EndpointSet::EMPTY, &mut ready);
    tickets[0].cancel();
    scheduler.cancel_one(&tickets[0]);
    assert!(ready.len() == 1 && arrived().is_empty(), "a worker has it");
    assert_ne!(scheduler.cancels(), before, "and looks for it");
}

#[test]
fn one_that_is_cancelled_before_it_comes_waits_for_no_lease() {
    let scheduler = scheduler();
    let inbox = Arc::new(Inbox::new(Handle::Simulated(2), None));
    let ticket = Arc::new(Ticket::new(7, Arc::clone(&inbox)));
    ticket.cancel();
    scheduler.cancel_one(&ticket);
    let request = ClientRequest::new(ticket, Destination::Lease(Lease::new()));
    scheduler.submit(object(), ByteRange { offset: 0, length: 1 }, request, Priority::Normal);
    let mut arrived = Vec::new();
    inbox.collect(&mut arrived);
    let errors = arrived.iter().map(|one| one.result.as_ref().map_err(Error::kind));
    assert_eq!(errors.collect::<Vec<_>>(), [Err(ErrorKind::Interrupted)]);
}
