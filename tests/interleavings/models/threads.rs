//! Threads that others give work, or ask: counts, writes to files, answers to the kernel.

use std::time::Duration;

use super::{counter, explore};
use crate::engine::snapshot::Snapshot;
use crate::mount::serving::mailbox::{Mailbox, RingReply};
use crate::sync::Arc;
use crate::sync::thread::spawn;
use crate::sys::fuse_ring::FuseRequest;
use crate::sys::readiness::writers::Writers;
use crate::sys::{Op, descriptor};

#[test]
fn a_question_that_is_asked_while_its_worker_looks_is_answered() {
    explore(|| {
        let (counter, snapshot) = (counter(), Arc::new(Snapshot::<u64>::default()));
        let (of_worker, wakes) = (Arc::clone(&snapshot), counter.clone());
        let worker = spawn(move || {
            let mut answered = 0;
            while answered < 2 {
                let asked = of_worker.asked();
                if asked == answered {
                    descriptor::wait(&wakes);
                } else {
                    of_worker.publish(asked, asked);
                    answered = asked;
                }
            }
        });
        let ask = move |snapshot: &Snapshot<u64>| {
            let question = snapshot.ask();
            descriptor::raise(&counter);
            assert!(snapshot.wait(question, Duration::ZERO) >= question, "an older answer");
        };
        let (other, of_other) = (ask.clone(), Arc::clone(&snapshot));
        let other = spawn(move || other(&of_other));
        ask(&snapshot);
        other.join().expect("no panic");
        worker.join().expect("no panic");
    });
}

#[test]
fn every_write_ends_once_and_its_ring_is_woken() {
    explore(|| {
        let mut writers = Writers::new(2).expect("a counter");
        for index in 0..2 {
            let op = Op::Write { file: (), slot: vec![7], at: 0, length: 1, offset: 0 };
            assert!(writers.give(index, op).is_ok());
        }
        let mut ended = Vec::new();
        while ended.len() < 2 {
            writers.counter().wait();
            let mut written = Vec::new();
            writers.take(&mut written);
            ended.extend(written.iter().map(|written| written.index));
        }
        ended.sort_unstable();
        assert_eq!(ended, [0, 1]);
        writers.close(Duration::ZERO);
    });
}

#[test]
fn a_ring_that_is_closed_waits_for_its_writes_and_its_threads_end() {
    explore(|| {
        let mut writers = Writers::new(1).expect("a counter");
        let op = Op::Write { file: (), slot: vec![7], at: 0, length: 1, offset: 0 };
        assert!(writers.give(0, op).is_ok());
        // It is recalled, or written.
        let recalled = writers.recall(0).is_some();
        writers.close(Duration::ZERO);
        let mut written = Vec::new();
        writers.take(&mut written);
        assert!(!recalled || written.is_empty());
    });
}

#[test]
fn an_answer_that_is_put_while_its_thread_falls_asleep_wakes_it() {
    explore(|| {
        let counter = counter();
        let mailbox = Arc::new(Mailbox::new(counter.clone(), Arc::default()));
        let repliers = [1, 2].map(|number| {
            let reply = RingReply::new(&mailbox, FuseRequest(number));
            spawn(move || if number == 1 { reply.write(|_| 0) } else { drop(reply) })
        });
        let (mut answers, mut numbers) = (Vec::new(), Vec::new());
        loop {
            mailbox.take(&mut answers);
            numbers.extend(answers.drain(..).map(|answer| answer.0));
            if numbers.len() == 2 {
                break;
            }
            descriptor::wait(&counter);
            mailbox.wake();
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2]);
        repliers.into_iter().for_each(|replier| replier.join().expect("no panic"));
    });
}
