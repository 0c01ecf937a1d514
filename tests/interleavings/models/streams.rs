//! Streams: the pipes of a range, its bytes in memory, the feed, and what is inflated.

use std::task::{Context, Poll, Waker};

use super::{counter, explore, object};
use crate::engine::backlog::{Backlog, BacklogBounds, RangeBacklog};
use crate::engine::handover::Handover;
use crate::engine::stream::feed::{NextStep, StreamFeed, StreamStep};
use crate::engine::stream::inflate::{Inflaters, Inflation};
use crate::plan::ranges::PartSize;
use crate::sync::thread::spawn;
use crate::sync::{Arc, Mutex};
use crate::sys::{Handle, descriptor};

fn handover() -> Arc<Handover> {
    Arc::new(Handover::new(Handle::Simulated(1), Handle::Simulated(2), None))
}

#[test]
fn bytes_that_a_reader_has_are_counted_unless_their_worker_is_moving() {
    explore(|| {
        let (handover, read) = (handover(), Arc::new(Mutex::new(0)));
        let (of_worker, reader) = (Arc::clone(&handover), Arc::clone(&read));
        let worker = spawn(move || {
            for _ in 0..2 {
                let moved = of_worker.count_moved(|| {
                    *reader.lock().expect("no panic") += 1;
                    Ok::<u64, ()>(1)
                });
                assert_eq!(moved, Ok(1));
            }
        });
        let mut counted = 0;
        for _ in 0..2 {
            let known = *read.lock().expect("no panic");
            let is_moving = handover.is_moving();
            counted += handover.take_moved();
            assert!(is_moving || counted >= known, "{counted} of {known}");
        }
        worker.join().expect("no panic");
        counted += handover.take_moved();
        assert_eq!((counted, handover.take_moved()), (2, 0));
    });
}

#[test]
fn a_pipe_that_is_taken_was_offered() {
    explore(|| {
        let handover = handover();
        let workers = [(); 2].map(|()| {
            let handover = Arc::clone(&handover);
            spawn(move || {
                let taken = handover.take();
                assert!(matches!(taken, None | Some(Handle::Simulated(3))));
                assert!(taken.is_none() || handover.is_taken());
                taken.is_some()
            })
        });
        handover.offer(&Handle::Simulated(3));
        let taken = workers.map(|worker| worker.join().expect("no panic"));
        assert_eq!(taken.contains(&true), handover.is_taken());
        assert!(handover.take().is_some());
    });
}

/// The backlog of a stream with room for one buffer ahead of the current range.
fn backlog() -> Arc<Backlog> {
    Arc::new(Backlog::new(BacklogBounds { buffer_bytes: 1, ahead_bytes: 1, range_bytes: 1 }))
}

/// Waits as `Worker::await_room` does, until there is room for one more buffer.
fn await_room(range: &RangeBacklog, counter: &Handle) {
    loop {
        range.wait_for_room(counter);
        if range.has_room() {
            return range.stop_waiting();
        }
        descriptor::wait(counter);
    }
}

/// Wakes as `Window::wake` does.
fn wake(backlog: &Backlog, range: &RangeBacklog) {
    if backlog.is_awaited() {
        range.wake();
    }
}

/// A range waits behind the first one, which has all the room, until that is changed.
fn is_woken(room_comes: fn(&Backlog, first: &RangeBacklog)) {
    explore(move || {
        let (backlog, counter) = (backlog(), counter());
        let [first, range] =
            [0, 1].map(|number| RangeBacklog::new(Arc::clone(&backlog), number, None));
        let range = Arc::new(range);
        first.push(backlog.take_buffer(), 1);
        let of_worker = Arc::clone(&range);
        let worker = spawn(move || await_room(&of_worker, &counter));
        // It may wait already: there is no room yet.
        wake(&backlog, &range);
        room_comes(&backlog, &first);
        wake(&backlog, &range);
        worker.join().expect("no panic");
        assert!(!backlog.is_awaited());
        first.clear();
        assert_eq!(backlog.used_bytes(), 0);
    });
}

#[test]
fn a_buffer_that_is_handed_on_while_a_worker_looks_for_room_wakes_it() {
    is_woken(|_, first| {
        let chunk = first.pop().expect("a buffer");
        first.hand_on(chunk, 1);
    });
}

#[test]
fn a_turn_that_comes_while_a_worker_looks_for_room_wakes_it() {
    is_woken(|backlog, _| backlog.set_turn(1));
}

const PART: PartSize = PartSize::new(4096).expect("aligned");

#[test]
fn a_step_that_comes_while_its_feeder_looks_wakes_it() {
    explore(|| {
        let counter = counter();
        let feed = Arc::new(StreamFeed::new(counter.clone(), PART));
        let control = Arc::clone(&feed);
        let control = spawn(move || {
            control.push([object()]);
            control.end_epoch();
            control.complete();
        });
        let mut steps = Vec::new();
        loop {
            match feed.next(PART) {
                NextStep::StreamStep(step) => steps.push(step),
                NextStep::Later => descriptor::wait(&counter),
                NextStep::Ended => break,
            }
        }
        assert!(
            matches!(steps[..], [StreamStep::Range(..), StreamStep::EpochEnd { objects: 1 }]),
            "{steps:?}"
        );
        control.join().expect("no panic");
    });
}

#[test]
fn a_feed_that_is_stopped_while_its_feeder_looks_wakes_it() {
    explore(|| {
        let counter = counter();
        let feed = Arc::new(StreamFeed::new(counter.clone(), PART));
        let control = Arc::clone(&feed);
        let control = spawn(move || {
            control.stop(crate::error::Error::new(crate::error::ErrorKind::Endpoint, "gone"));
        });
        while !feed.is_stopped() {
            assert!(matches!(feed.next(PART), NextStep::Later));
            descriptor::wait(&counter);
        }
        assert!(feed.stop_reason().is_some());
        control.join().expect("no panic");
    });
}

#[test]
fn room_that_comes_while_the_control_plane_looks_wakes_it() {
    explore(|| {
        let feed = Arc::new(StreamFeed::new(Handle::Simulated(0), PART));
        feed.push([object()]);
        let feeder = Arc::clone(&feed);
        let feeder = spawn(move || {
            assert!(matches!(feeder.next(PART), NextStep::StreamStep(_)));
        });
        // FEED_OBJECTS_MAX is 1 here.
        while feed.room() == 0 {
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(std::pin::pin!(feed.moved()).poll(&mut context), Poll::Ready(()));
        }
        feeder.join().expect("no panic");
    });
}

#[test]
fn an_object_is_inflated_whole_whenever_its_bytes_and_its_room_come() {
    explore(|| {
        let (backlog, counter) = (backlog(), counter());
        let inflaters = Inflaters::start(1, "").expect("a thread");
        let inflation = Arc::new(Inflation::new(Arc::clone(&backlog), 0, counter.clone()));
        let (mut given, mut got) = (0, 0);
        while !inflation.is_handed_on() {
            // As the feeder's turn: input, a thread, output, and a thread for the room.
            while given < 2 && inflation.takes_input() {
                inflation.push(backlog.take_buffer(), 1);
                given += 1;
                if given == 2 {
                    inflation.complete();
                }
            }
            inflaters.hand_over(&inflation);
            let before = got;
            while let Some(chunk) = inflation.output().pop() {
                inflation.output().hand_on(chunk, 1);
                got += 1;
            }
            inflaters.hand_over(&inflation);
            if got == before && !inflation.is_handed_on() {
                descriptor::wait(&counter);
            }
        }
        assert_eq!(got, 2);
    });
}

#[test]
fn an_object_that_is_given_up_while_it_is_inflated_gives_its_buffers_back() {
    explore(|| {
        let backlog = backlog();
        let inflaters = Inflaters::start(1, "").expect("a thread");
        let inflation = Inflation::new(Arc::clone(&backlog), 0, Handle::Simulated(0));
        let inflation = Arc::new(inflation);
        inflation.push(backlog.take_buffer(), 1);
        inflaters.hand_over(&inflation);
        inflation.give_up();
        drop((inflaters, inflation));
        assert_eq!(backlog.used_bytes(), 0);
    });
}
