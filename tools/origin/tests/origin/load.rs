//! Limits that all connections share: requests and bytes a second, on any worker.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::{Duration, Instant};

use inrush_origin::{Config, Neighbor, Origin, RequestRate};

use crate::client::{connect, receive, send};
use crate::{BIG_BYTES, config, expected};

fn workers() -> NonZeroUsize {
    NonZeroUsize::new(2).unwrap()
}

#[test]
fn requests_beyond_the_rate_are_answered_with_slow_down() {
    let burst = NonZeroU32::new(5).unwrap();
    let request_rate = Some(RequestRate { burst, ..RequestRate::new(NonZeroU32::MIN) });
    let started = Instant::now();
    let origin = Origin::start(Config { request_rate, workers: workers(), ..config() }).unwrap();
    let lines = ["GET /b/small", "GET /b?list-type=2", "GET /b/big/000000.bin"];
    let mut served = 0;
    // Several connections, so that both workers have some, and several requests on each.
    for _ in 0..8 {
        let mut stream = connect(origin.address());
        for line in lines {
            send(&mut stream, line, "");
            let answer = receive(&mut stream, true).unwrap();
            if answer.status() == 200 {
                served += 1;
                continue;
            }
            assert_eq!(answer.status(), 503);
            assert!(answer.text().contains("<Code>SlowDown</Code>"), "{}", answer.text());
            assert_eq!(answer.header("retry-after"), None);
            assert_eq!(answer.header("connection"), None);
        }
    }
    let most = 5 + started.elapsed().as_secs() + 1;
    assert!((5..=most).contains(&served), "{served} of at most {most}");
    let stats = origin.stop();
    assert_eq!((stats.requests, stats.connections), (24, 8));
    assert_eq!(stats.throttled, 24 - served);
    assert_eq!(stats.codes["SlowDown"], stats.throttled);
    assert_eq!((stats.lists, stats.faults_total()), (8, 0));
}

/// How long it takes until each of two connections has an object.
fn time_of_two(config: Config) -> Duration {
    let origin = Origin::start(Config { workers: workers(), ..config }).unwrap();
    let address = origin.address();
    let start = Instant::now();
    let fetch = |number: u32| {
        std::thread::spawn(move || {
            let mut stream = connect(address);
            send(&mut stream, &format!("GET /b/big/00000{number}.bin"), "");
            receive(&mut stream, true).unwrap().body
        })
    };
    for (number, body) in [fetch(0), fetch(1)].into_iter().enumerate() {
        let key = format!("big/00000{number}.bin");
        let length = usize::try_from(BIG_BYTES).unwrap();
        assert!(body.join().unwrap() == expected(&key, 0, length), "{key}");
    }
    start.elapsed()
}

#[test]
fn capacity_is_that_of_all_connections_together() {
    let capacity = NonZeroU64::new(20_000_000);
    // 300 ms, but for what the line makes up for.
    let elapsed = time_of_two(Config { capacity, ..config() });
    assert!(elapsed >= Duration::from_millis(280), "{elapsed:?}");
    // No connection may have more than its own rate of it, and a neighbor has half.
    let neighbor = Neighbor { start: Duration::ZERO, length: Duration::from_hours(1), percent: 50 };
    let elapsed = time_of_two(Config { capacity, neighbor: Some(neighbor), ..config() });
    assert!(elapsed >= Duration::from_millis(560), "{elapsed:?}");
    let connection_rate = NonZeroU64::new(6_000_000);
    let elapsed = time_of_two(Config { capacity, connection_rate, ..config() });
    assert!(elapsed >= Duration::from_millis(480), "{elapsed:?}");
}
