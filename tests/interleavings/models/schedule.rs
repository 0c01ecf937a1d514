//! Ranges of objects: each is handed out once, and workers end after the last one.

use super::{ONE, counter, explore, work};
use crate::engine::endpoints::{EndpointNumber, EndpointSet, Endpoints};
use crate::engine::schedule::{Assignment, Recipient, Scheduler, Supply};
use crate::error::{Error, ErrorKind};
use crate::files::file_download::{FileDownload, Outcome};
use crate::s3::Endpoint;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::spawn;
use crate::sync::{Arc, Mutex};

/// Settles a range, and its object with the last one.
fn settle(scheduler: &Scheduler, offsets: &Mutex<Vec<u64>>, assignment: Assignment) {
    let Recipient::File(download) = assignment.recipient else { panic!("a file") };
    offsets.lock().expect("no panic").push(assignment.range.offset);
    if download.settle() {
        scheduler.finish(Outcome { download, result: Ok(()) });
    }
}

#[test]
fn every_range_is_handed_out_once_and_all_workers_end() {
    explore(|| {
        let counters = [counter(), counter()];
        let scheduler = Arc::new(Scheduler::new(counters.to_vec()));
        let offsets = Arc::new(Mutex::new(Vec::new()));
        let workers = [0, 1].map(|number| {
            let (scheduler, offsets) = (Arc::clone(&scheduler), Arc::clone(&offsets));
            let counter = counters[number].clone();
            spawn(move || {
                let does = |assignment| settle(&scheduler, &offsets, assignment);
                work(&scheduler, number, &counter, &does);
            })
        });
        scheduler.push([FileDownload::of_ranges(2)]);
        scheduler.complete();
        workers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mut offsets = offsets.lock().expect("no panic");
        offsets.sort_unstable();
        assert_eq!(*offsets, [0, 4096]);
        let mut outcomes = Vec::new();
        scheduler.collect(&mut outcomes);
        assert_eq!(outcomes.len(), 1);
        let mut ready = std::collections::VecDeque::new();
        assert_eq!(scheduler.take(0, ONE, EndpointSet::EMPTY, &mut ready), Supply::Ended);
    });
}

#[test]
fn who_settles_the_last_range_sees_what_all_have_done() {
    explore(|| {
        let download = Arc::new(FileDownload::of_ranges(2));
        let done = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let workers = [0, 1].map(|number| {
            let (download, done) = (Arc::clone(&download), Arc::clone(&done));
            spawn(move || {
                done[number].store(true, Ordering::Relaxed);
                let is_last = download.settle();
                assert!(!is_last || done.iter().all(|done| done.load(Ordering::Relaxed)));
                is_last
            })
        });
        let last = workers.map(|worker| worker.join().expect("no panic"));
        assert_eq!(last.iter().filter(|is_last| **is_last).count(), 1);
    });
}

#[test]
fn a_run_that_is_stopped_wakes_every_worker_and_has_the_first_reason() {
    explore(|| {
        let counters = [counter(), counter()];
        let scheduler = Arc::new(Scheduler::new(counters.to_vec()));
        let workers = [0, 1].map(|number| {
            let (scheduler, counter) = (Arc::clone(&scheduler), counters[number].clone());
            spawn(move || {
                work(&scheduler, number, &counter, &|_| panic!("there is nothing"));
                assert!(scheduler.stop_reason().is_some(), "it has ended for a reason");
            })
        });
        scheduler.stop(Error::new(ErrorKind::Endpoint, "gone"));
        scheduler.stop(Error::new(ErrorKind::Interrupted, "over"));
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        let reason = scheduler.stop_reason().expect("it was stopped");
        assert_eq!(reason.kind(), ErrorKind::Endpoint);
    });
}

#[test]
fn an_endpoint_has_one_number_whoever_uses_it_first() {
    explore(|| {
        let all = Arc::new(Endpoints::default());
        let number = |host: &str| {
            let (all, endpoint) = (Arc::clone(&all), Endpoint { host: host.into(), tls: true });
            spawn(move || all.number_of(&endpoint))
        };
        let threads = [number("a"), number("A")];
        let numbers = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(numbers, [EndpointNumber::FIRST; 2]);
        assert_eq!(all.count(), 1);
    });
}
