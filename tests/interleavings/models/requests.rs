//! Requests of clients: their completions, and their end whatever else happens.

use super::{Client, ONE, RANGE, complete, counter, explore, object, work, work_in};
use crate::engine::lease::Lease;
use crate::engine::request::{Brought, Destination, Inbox, Priority, Ticket, Waits};
use crate::engine::schedule::{Assignment, Recipient, Room, Scheduler};
use crate::error::{Error, ErrorKind};
use crate::sync::thread::spawn;
use crate::sync::{Arc, Mutex};
use crate::sys::{Handle, descriptor};

#[test]
fn a_completion_that_arrives_while_its_client_looks_wakes_it() {
    explore(|| {
        let client = Client::new();
        let workers = [1, 2].map(|token| {
            let (_, request) = client.request(token, Destination::Memory(vec![7]));
            spawn(move || request.complete(Ok(()), Brought::default()))
        });
        let mut tokens = Vec::new();
        while tokens.len() < 2 {
            tokens.extend(client.wait().iter().map(|completion| completion.token));
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2]);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
}

#[test]
fn bytes_that_arrive_while_their_client_looks_wake_it() {
    explore(|| {
        let (client, pipe) = (Client::new(), Arc::new(Mutex::new(0)));
        let ticket = Arc::new(Ticket::new(1, Arc::clone(&client.inbox)));
        let (to, of_worker) = (Arc::clone(&pipe), Arc::clone(&ticket));
        let worker = spawn(move || {
            for _ in 0..2 {
                *to.lock().expect("no panic") += 1;
                of_worker.moved_on();
            }
        });
        let mut came = 0;
        while came < 2 {
            ticket.watch();
            let now = *pipe.lock().expect("no panic");
            if now == came {
                descriptor::wait(&client.counter);
            }
            came = now;
        }
        worker.join().expect("no panic");
    });
}

/// How many wait, as [`Waits`] reports it.
#[derive(Debug, Default)]
struct Waiting(Mutex<i32>);

impl Waits for Waiting {
    fn begin(&self) {
        *self.0.lock().expect("no panic") += 1;
    }

    fn end(&self) {
        *self.0.lock().expect("no panic") -= 1;
    }
}

#[test]
fn a_client_does_not_wait_while_there_is_a_completion() {
    explore(|| {
        let waiting = Arc::new(Waiting::default());
        let inbox = Inbox::new(Handle::Simulated(0), None).with_waited(waiting.clone());
        let client = Client { counter: counter(), inbox: Arc::new(inbox) };
        let (_, request) = client.request(1, Destination::Nothing);
        let worker = spawn(move || request.complete(Ok(()), Brought::default()));
        client.inbox.note_waiting(true);
        worker.join().expect("no panic");
        assert_eq!(*waiting.0.lock().expect("no panic"), 0);
        assert_eq!(client.collect().len(), 1);
    });
}

/// What a worker does with a request: one that is cancelled is refused.
fn begin(assignment: Assignment) {
    let Recipient::Client { request, .. } = assignment.recipient else { panic!("a request") };
    match request.ticket.is_cancelled() {
        true => request.refuse(None),
        false => request.complete(Ok(()), Brought::default()),
    }
}

#[test]
fn a_request_completes_once_whatever_ends_it() {
    explore(|| {
        let (counter, client) = (counter(), Client::new());
        let scheduler = Arc::new(Scheduler::new(vec![counter.clone()]));
        let of_worker = Arc::clone(&scheduler);
        let worker = spawn(move || work(&of_worker, 0, &counter, &begin));
        let of_other = Arc::clone(&scheduler);
        let other = spawn(move || of_other.stop(Error::new(ErrorKind::Interrupted, "over")));
        let (ticket, request) = client.request(1, Destination::Nothing);
        scheduler.submit(object(), RANGE, request, Priority::Normal);
        ticket.cancel();
        scheduler.cancel_one(&ticket);
        for thread in [worker, other] {
            thread.join().expect("no panic");
        }
        assert_eq!(client.collect().len(), 1);
    });
}

#[test]
fn a_request_that_comes_while_a_run_is_stopped_completes() {
    explore(|| {
        let client = Client::new();
        // Its worker has ended, or will.
        let scheduler = Arc::new(Scheduler::new(vec![counter()]));
        let of_other = Arc::clone(&scheduler);
        let other = spawn(move || of_other.stop(Error::new(ErrorKind::Interrupted, "over")));
        let (_, request) = client.request(1, Destination::Nothing);
        scheduler.submit(object(), RANGE, request, Priority::Normal);
        assert_eq!(client.wait().len(), 1);
        other.join().expect("no panic");
    });
}

#[test]
fn a_request_that_is_cancelled_while_it_is_submitted_needs_no_lease_to_complete() {
    explore(|| {
        let client = Client::new();
        // Its worker can grant none.
        let scheduler = Arc::new(Scheduler::new(vec![counter()]));
        let (ticket, request) = client.request(1, Destination::Lease(Lease::new()));
        let of_other = Arc::clone(&scheduler);
        let other = spawn(move || of_other.submit(object(), RANGE, request, Priority::Normal));
        ticket.cancel();
        scheduler.cancel_one(&ticket);
        assert_eq!(client.wait().len(), 1);
        other.join().expect("no panic");
        assert!(client.collect().is_empty());
    });
}

/// A worker that has begun a request and looks for cancelled ones when there are new ones, as
/// `Worker::give_up_cancelled` does.
fn looks_for_cancelled(all: bool) {
    explore(move || {
        let (counter, client) = (counter(), Client::new());
        let scheduler = Arc::new(Scheduler::new(vec![counter.clone()]));
        let (ticket, request) = client.request(1, Destination::Nothing);
        let of_worker = Arc::clone(&scheduler);
        let worker = spawn(move || {
            let mut seen = 0;
            loop {
                let cancels = of_worker.cancels();
                if cancels != seen && request.ticket.is_cancelled() {
                    return request.refuse(None);
                }
                seen = cancels;
                descriptor::wait(&counter);
            }
        });
        // For another one.
        scheduler.wake_workers();
        ticket.cancel();
        match all {
            true => scheduler.cancel(),
            false => scheduler.cancel_one(&ticket),
        }
        worker.join().expect("no panic");
        assert_eq!(client.collect().len(), 1);
    });
}

#[test]
fn a_worker_learns_that_one_of_its_requests_is_cancelled() {
    looks_for_cancelled(false);
}

#[test]
fn a_worker_learns_that_all_of_a_client_are_cancelled() {
    looks_for_cancelled(true);
}

#[test]
fn a_request_wakes_another_worker_where_the_pace_holds_the_first_one_back() {
    explore(|| {
        let (counters, client) = ([counter(), counter()], Client::new());
        let scheduler = Arc::new(Scheduler::new(counters.to_vec()));
        let rooms = [Room { ranges: 0, all: 1 }, ONE];
        let workers = [0, 1].map(|number| {
            let (scheduler, counter) = (Arc::clone(&scheduler), counters[number].clone());
            spawn(move || work_in(rooms[number], &scheduler, number, &counter, &complete))
        });
        let (_, request) = client.request(1, Destination::Nothing);
        scheduler.submit(object(), RANGE, request, Priority::Normal);
        assert_eq!(client.wait().len(), 1);
        scheduler.complete();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
}
