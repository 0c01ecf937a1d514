//! What the control plane and its listeners wait for.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{counter, explore, waker};
use crate::library::feed::{DownloadEvent, DownloadEvents, Feed};
use crate::link::waiting::{Board, Wait};
use crate::s3::Endpoint;
use crate::s3::redirect::{Redirects, ServerLookUp};
use crate::s3::web::WebUrl;
use crate::sync::Arc;
use crate::sync::thread::spawn;
use crate::sys::descriptor;

#[test]
fn a_wait_that_begins_while_its_task_looks_wakes_it() {
    explore(|| {
        let (counter, board) = (counter(), Arc::new(Board::default()));
        let worker = Arc::clone(&board);
        let worker = spawn(move || {
            let (whom, what, why) = (String::new(), String::new(), String::new());
            let (tries, elapsed_us, retry_for_us, may_prompt) = (1, 0, 0, false);
            let wait = Wait { whom, what, tries, elapsed_us, retry_for_us, why, may_prompt };
            worker.begin(0, wait)
        });
        let waker = waker(&counter);
        while board.poll_wait(&Context::from_waker(&waker)).is_pending() {
            descriptor::wait(&counter);
        }
        drop(worker.join().expect("no panic"));
        assert!(board.oldest().is_none());
    });
}

#[test]
fn a_server_that_is_wanted_while_its_finder_looks_is_found_for_all() {
    explore(|| {
        let (counter, redirects) = (counter(), Arc::new(Redirects::default()));
        let finder = Arc::clone(&redirects);
        let of_finder = counter.clone();
        let finder = spawn(move || {
            let waker = waker(&of_finder);
            while finder.poll_wanted(&Context::from_waker(&waker)).is_pending() {
                descriptor::wait(&of_finder);
            }
            for url in finder.take_wanted() {
                finder.settle(&url, Ok(Arc::new(Endpoint::default())));
            }
        });
        let worker = || {
            let (redirects, counter) = (Arc::clone(&redirects), super::counter());
            spawn(move || {
                let waker = waker(&counter);
                let mut awaited = None;
                while let ServerLookUp::Awaited(look_up) =
                    redirects.find(&WebUrl(1), awaited, &waker).expect("it is found")
                {
                    awaited = Some(look_up);
                    descriptor::wait(&counter);
                }
            })
        };
        for thread in [worker(), worker(), finder] {
            thread.join().expect("no panic");
        }
        assert!(redirects.take_wanted().is_empty());
    });
}

/// Waits until the listener is not behind: LINES_MAX is 1 here.
fn keep_up(feed: &Feed) {
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(pin!(feed.keep_up()).poll(&mut context), Poll::Ready(()));
}

#[test]
fn every_line_reaches_a_listener_and_the_result_follows() {
    explore(|| {
        let feed = Arc::new(Feed::new(DownloadEvents::Lines, || {}));
        let listener = Arc::clone(&feed);
        let listener = spawn(move || {
            let mut lines = 0;
            while let Some(event) = listener.next() {
                assert!(matches!(event, DownloadEvent::Line(_)));
                lines += 1;
            }
            assert!(listener.result().is_some(), "it has ended");
            lines
        });
        for _ in 0..2 {
            feed.push_line(String::new());
            keep_up(&feed);
        }
        feed.end(Ok(()));
        assert_eq!(listener.join().expect("no panic"), 2);
    });
}

#[test]
fn a_listener_that_leaves_while_a_download_waits_for_it_wakes_it() {
    explore(|| {
        let feed = Arc::new(Feed::new(DownloadEvents::Lines, || {}));
        let listener = Arc::clone(&feed);
        let listener = spawn(move || listener.hush());
        feed.push_line(String::new());
        keep_up(&feed);
        feed.push_line(String::new());
        feed.end(Ok(()));
        listener.join().expect("no panic");
        assert!(!feed.is_behind() || feed.result().is_some());
    });
}
