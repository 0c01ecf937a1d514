//! What workers share of the pace, and channels of the budget.

use std::num::NonZeroU64;

use super::explore;
use crate::engine::budget::StreamBudget;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::pace::{Bandwidth, Bounds, Pacer, Share};
use crate::sync::Arc;
use crate::sync::thread::spawn;

const FIRST: EndpointNumber = EndpointNumber::FIRST;

#[test]
fn a_right_to_send_is_taken_by_one_worker() {
    explore(|| {
        // Ten a second, which is less than what may be sent after a pause.
        let pacer = Arc::new(Pacer::slowed(Bounds::fixed(2), 10));
        let workers = [0, 1].map(|_| {
            let mut share = Share::new(Arc::clone(&pacer), 0);
            spawn(move || share.may_send(FIRST, 5_000_000))
        });
        let rights = workers.map(|worker| worker.join().expect("no panic"));
        assert_eq!(rights.iter().filter(|right| **right).count(), 1);
    });
}

#[test]
fn every_byte_is_charged() {
    explore(|| {
        let bandwidth = Arc::new(Bandwidth::new(NonZeroU64::new(1_000).expect("not 0")));
        let clients = [(); 2].map(|()| {
            let bandwidth = Arc::clone(&bandwidth);
            spawn(move || {
                let client = bandwidth.join();
                bandwidth.charge(client, 0, 1_000);
                client
            })
        });
        let mut numbers = clients.map(|client| client.join().expect("no panic"));
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
        assert_eq!(bandwidth.wait_us(0, 0), 2_000_000);
    });
}

#[test]
fn channels_together_hold_no_more_than_the_budget() {
    explore(|| {
        // A quarter for each, and half for both.
        let budget = Arc::new(StreamBudget::new(400));
        let channels = [budget.join(), budget.join()];
        let threads = channels.map(|channel| {
            spawn(move || {
                let own = channel.take(100, true).expect("its own part");
                let common = channel.take(200, true);
                (channel, own, common)
            })
        });
        let held = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(held.iter().filter(|(.., common)| common.is_some()).count(), 1);
        assert_eq!(budget.used_bytes(), 400);
        let returning = held.map(|(channel, own, common)| {
            spawn(move || drop((own, common)));
            channel
        });
        drop(returning);
    });
}

#[test]
fn what_is_given_back_while_a_channel_takes_is_there() {
    explore(|| {
        let budget = Arc::new(StreamBudget::new(400));
        let channel = budget.join();
        let held = channel.take(100, true);
        let worker = spawn(move || drop(held));
        let early = channel.take(100, true);
        worker.join().expect("no panic");
        assert!(early.is_some() && budget.used_bytes() == 100);
        drop(early);
        let all = [channel.take(200, true), channel.take(200, true)];
        assert!(all.iter().all(Option::is_some) && channel.take(1, true).is_none());
    });
}

#[test]
fn one_channel_looks_at_a_time() {
    explore(|| {
        let budget = Arc::new(StreamBudget::new(400));
        let threads = [(); 2].map(|()| {
            let budget = Arc::clone(&budget);
            spawn(move || budget.is_time_to_look(7))
        });
        let looks = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(looks.iter().filter(|looks| **looks).count(), 1);
    });
}
