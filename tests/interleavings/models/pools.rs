//! Slots and lent memory: each byte has one holder.

use super::explore;
use crate::sync::thread::spawn;
use crate::sync::{Arc, Mutex};
use crate::sys::{Lender, Loan, Pool, Region};

#[test]
fn a_slot_has_one_holder() {
    explore(|| {
        let region = Region::new(1).expect("memory");
        let pool = Pool::new(region.carve(16).expect("room"), 16);
        let holders = Arc::new(Mutex::new(0));
        let threads = [(); 2].map(|()| {
            let (pool, holders) = (pool.clone(), Arc::clone(&holders));
            spawn(move || {
                let Some(slot) = pool.take() else { return };
                let count = |by: i32| {
                    let mut holders = holders.lock().expect("no panic");
                    *holders += by;
                    assert!(*holders < 2, "two have it");
                };
                count(1);
                count(-1);
                drop(slot);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(pool.take().is_some() && pool.free() == 1);
    });
}

#[test]
fn memory_of_a_region_is_carved_once() {
    explore(|| {
        let region = Region::new(1).expect("memory");
        let length = region.length_bytes() / 2 + 1;
        let threads = [(); 2].map(|()| {
            let region = Arc::clone(&region);
            spawn(move || region.carve(length).is_some())
        });
        let carved = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(carved.iter().filter(|carved| **carved).count(), 1);
    });
}

#[test]
fn parts_of_a_loan_do_not_overlap() {
    explore(|| {
        let loan = Arc::new(Loan::new(Lender::Buffer(vec![0; 8])));
        let threads = [0, 2].map(|offset| {
            let loan = Arc::clone(&loan);
            spawn(move || loan.part(offset, 4))
        });
        let parts = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(parts.iter().flatten().count(), 1);
        drop(parts);
        let loan = Arc::into_inner(loan).expect("nobody else has it");
        assert!(loan.give_back().is_some());
    });
}
