//! Leases: how many there are, and who is woken when one comes back.

use std::collections::VecDeque;

use super::{Client, ONE, RANGE, complete, counter, explore, object, work};
use crate::engine::endpoints::EndpointSet;
use crate::engine::lease::{Lease, Leases};
use crate::engine::request::{Destination, Priority};
use crate::engine::schedule::{Room, Scheduler, Supply};
use crate::sync::Arc;
use crate::sync::thread::spawn;
use crate::sys::{Pool, Region, descriptor};

#[test]
fn a_lease_given_back_while_it_is_awaited_wakes_its_waiter() {
    explore(|| {
        let (counter, client) = (counter(), Client::new());
        let scheduler = Arc::new(Scheduler::new(vec![counter.clone()]));
        scheduler.leases(0).set_most(1);
        let held = scheduler.leases(0).reserve().expect("room");
        let of_worker = Arc::clone(&scheduler);
        let worker = spawn(move || work(&of_worker, 0, &counter, &complete));
        let holder = spawn(move || drop(held));
        let (_, request) = client.request(1, Destination::Lease(Lease::new()));
        scheduler.submit(object(), RANGE, request, Priority::Normal);
        assert_eq!(client.wait().len(), 1);
        scheduler.complete();
        worker.join().expect("no panic");
        holder.join().expect("no panic");
    });
}

#[test]
fn leases_that_come_back_one_after_the_other_serve_all_requests() {
    explore(|| {
        let (counter, client) = (counter(), Client::new());
        let scheduler = Arc::new(Scheduler::new(vec![counter.clone()]));
        scheduler.leases(0).set_most(1);
        let of_worker = Arc::clone(&scheduler);
        let worker = spawn(move || work(&of_worker, 0, &counter, &complete));
        for token in 1..=2 {
            let (_, request) = client.request(token, Destination::Lease(Lease::new()));
            scheduler.submit(object(), RANGE, request, Priority::Normal);
        }
        let mut completed = 0;
        while completed < 2 {
            // Each is dropped at once.
            completed += client.wait().len();
        }
        scheduler.complete();
        worker.join().expect("no panic");
    });
}

#[test]
fn a_worker_that_the_pace_holds_back_wakes_one_that_can_grant_a_lease() {
    explore(|| {
        let (counters, client) = ([(); 3].map(|()| counter()), Client::new());
        let scheduler = Arc::new(Scheduler::new(counters.to_vec()));
        [0, 2].into_iter().for_each(|number| scheduler.leases(number).set_most(1));
        let take =
            |number, room| scheduler.take(number, room, EndpointSet::EMPTY, &mut VecDeque::new());
        assert_eq!([0, 1, 2].map(|number| take(number, ONE)), [Supply::Later; 3]);
        let workers = [1, 2].map(|number| {
            let (scheduler, counter) = (Arc::clone(&scheduler), counters[number].clone());
            spawn(move || {
                descriptor::wait(&counter);
                work(&scheduler, number, &counter, &complete);
            })
        });
        let (_, request) = client.request(1, Destination::Lease(Lease::new()));
        scheduler.submit(object(), RANGE, request, Priority::Normal);
        assert_eq!(take(0, Room { ranges: 0, all: 1 }), Supply::Paced);
        assert_eq!(client.wait().len(), 1);
        scheduler.complete();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
}

#[test]
fn a_slot_given_back_while_it_is_wanted_wakes_its_worker_which_finds_it() {
    explore(|| {
        let counter = counter();
        let leases = Arc::new(Leases::new(counter.clone(), Arc::default()));
        leases.set_most(1);
        let region = Region::new(1).expect("memory");
        let pool = Pool::new(region.carve(16).expect("room"), 16);
        let mut lease = leases.reserve().expect("room");
        lease.fill(pool.take().expect("free"), 0..1);
        let holder = spawn(move || drop(lease));
        loop {
            leases.want_slot(true);
            if pool.free() > 0 {
                break;
            }
            descriptor::wait(&counter);
            // Nothing else raises it.
            assert!(pool.take().is_some(), "it was woken for a slot");
        }
        holder.join().expect("no panic");
        assert!(leases.held() == 0 && leases.has_room() && pool.free() == 1);
    });
}

#[test]
fn no_more_leases_are_reserved_than_there_may_be() {
    explore(|| {
        let leases = Arc::new(Leases::new(counter(), Arc::default()));
        leases.set_most(2);
        let first = leases.reserve().expect("room");
        let reserving = [(); 2].map(|()| {
            let leases = Arc::clone(&leases);
            spawn(move || leases.reserve())
        });
        let reserved = reserving.map(|thread| thread.join().expect("no panic"));
        assert_eq!(reserved.iter().flatten().count(), 1);
        drop((first, reserved));
        assert!(leases.reserve().is_some());
    });
}
