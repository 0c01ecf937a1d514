//! What workers know together of addresses, and their agreement on a ring.

use std::net::SocketAddr;

use super::explore;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::peers::addresses::{Addresses, EndpointAddress, SharedAddresses};
use crate::engine::threads::agreement::Agreement;
use crate::limits::ADDRESS_AVOID_MAX_US;
use crate::sync::Arc;
use crate::sync::thread::spawn;
use crate::sys::choice::{RingChoice, RingKind};

const FIRST: EndpointNumber = EndpointNumber::FIRST;

#[test]
fn an_address_that_has_failed_is_tried_by_one_connection() {
    explore(|| {
        let [failed, good] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let shared = Arc::new(SharedAddresses::default());
        let mut first = Addresses::new(Arc::clone(&shared));
        first.failed(EndpointAddress { endpoint: FIRST, address: failed }, 0);
        let _open = first.connect(FIRST, &[good], None, 0).expect("an address");
        let workers = [(); 2].map(|()| {
            let mut addresses = Addresses::new(Arc::clone(&shared));
            spawn(move || {
                let all = [failed, good];
                addresses.connect(FIRST, &all, None, ADDRESS_AVOID_MAX_US).expect("an address")
            })
        });
        let open = workers.map(|worker| worker.join().expect("no panic"));
        let tried = open.iter().filter(|open| open.address() == failed).count();
        assert_eq!((tried, shared.open(failed), shared.open(good)), (1, 1, 2));
        drop(open);
        assert_eq!((shared.open(failed), shared.open(good)), (0, 1));
    });
}

#[test]
fn workers_have_rings_of_one_kind() {
    explore(|| {
        let mut agreement = Agreement::new(RingChoice::Auto, 1);
        // The first one is refused.
        let workers = [0, 1].map(|entries| {
            let seat = agreement.seat();
            spawn(move || seat.ring(entries).expect("it is answered").expect("a ring").kind)
        });
        assert_eq!(agreement.settle().ok().map(|chosen| chosen.kind), Some(RingKind::Epoll));
        for worker in workers {
            assert_eq!(worker.join().expect("no panic"), RingKind::Epoll);
        }
    });
}

#[test]
fn a_worker_that_ends_before_it_has_a_ring_is_missed_and_the_others_end() {
    explore(|| {
        let mut agreement = Agreement::new(RingChoice::Auto, 1);
        let (lost, other) = (agreement.seat(), agreement.seat());
        let lost = spawn(move || drop(lost));
        let other = spawn(move || assert!(other.ring(1).is_none(), "there is no verdict"));
        assert!(agreement.settle().is_err());
        for worker in [lost, other] {
            worker.join().expect("no panic");
        }
    });
}
