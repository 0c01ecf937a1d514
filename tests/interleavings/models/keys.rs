//! Published keys.

use super::{counter, explore, waker};
use crate::s3::sign::keys::{KeptKeys, PublishedKeys, SigningKeys};
use crate::sync::Arc;
use crate::sync::thread::spawn;
use crate::sys::descriptor;

/// Keys that are named after their version.
fn keys(version: u64) -> SigningKeys {
    SigningKeys::new(&version.to_string(), "S", None, None).expect("good keys")
}

fn version_of(keys: &SigningKeys) -> u64 {
    keys.access_key().parse().expect("a version")
}

#[test]
fn keys_are_never_older_than_their_version() {
    explore(|| {
        let published = Arc::new(PublishedKeys::new(Some(keys(1))));
        let publisher = Arc::clone(&published);
        let publisher = spawn(move || publisher.publish(Some(keys(2))));
        let version = published.version();
        let got = version_of(&published.get().expect("there are keys"));
        assert!(got >= version, "{got} for version {version}");
        publisher.join().expect("no panic");
    });
}

#[test]
fn a_reader_keeps_no_keys_that_were_replaced_while_it_read_them() {
    explore(|| {
        let published = Arc::new(PublishedKeys::new(Some(keys(1))));
        let publisher = Arc::clone(&published);
        let publisher = spawn(move || publisher.publish(Some(keys(2))));
        let mut kept = KeptKeys::default();
        let first = version_of(kept.get(&published).expect("there are keys"));
        let second = version_of(kept.get(&published).expect("there are keys"));
        assert!(first <= second);
        publisher.join().expect("no panic");
        assert_eq!(version_of(kept.get(&published).expect("there are keys")), 2);
    });
}

#[test]
fn keys_that_are_refused_while_a_task_looks_wake_it() {
    explore(|| {
        let (counter, published) = (counter(), Arc::new(PublishedKeys::new(Some(keys(1)))));
        let reader = Arc::clone(&published);
        let reader = spawn(move || assert!(reader.refuse(1), "newer ones may come"));
        let waker = waker(&counter);
        loop {
            published.wake_when_refused(&waker);
            if published.are_refused() {
                break;
            }
            descriptor::wait(&counter);
        }
        published.publish(Some(keys(2)));
        assert!(!published.are_refused());
        reader.join().expect("no panic");
    });
}

#[test]
fn what_several_servers_say_of_keys_is_of_the_newest() {
    explore(|| {
        let published = Arc::new(PublishedKeys::new(Some(keys(1))));
        let servers = [1, 2].map(|version| {
            let published = Arc::clone(&published);
            spawn(move || {
                published.note_accepted(version);
                let _ = published.refuse(version);
            })
        });
        servers.into_iter().for_each(|server| server.join().expect("no panic"));
        assert_eq!(published.accepted(), 2);
        published.publish(Some(keys(2)));
        assert!(published.are_refused());
    });
}
