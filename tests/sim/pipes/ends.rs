//! How an epoch ends: what its marker says, and what a reader sees of a stream that failed.

use super::course;
use super::run::{Course, PATIENT, check};
use crate::origin::Rates;
use crate::places::{Channel, Manner};
use crate::{CALM, note, seeds};

/// Whatever happens, an epoch is marked if its reader got all of it, and else never.
#[test]
fn an_epoch_is_marked_when_its_reader_has_all_of_it() {
    seeds("an_epoch_is_marked_when_its_reader_has_all_of_it", 1500, |seed| {
        let fatal_per_mille = if seed % 3 == 0 { 20 } else { 0 };
        let disk_per_mille = if seed % 4 == 0 { 100 } else { 0 };
        let rates = Rates { network_per_mille: 20, fatal_per_mille, disk_per_mille, ..CALM };
        let ran = check(seed, &Course { marks: true, ..course(seed, rates, seed % 2 == 0) });
        let world = ran.world.borrow();
        for Channel { places, unmarked, .. } in &world.plumbing.channels {
            // A place that could not be made is tried again, with what comes before it.
            let mut once = unmarked.clone();
            once.dedup();
            assert!(once.iter().copied().eq(0..once.len() as u64), "{unmarked:?}");
            assert!(places.keys().all(|epoch| unmarked.contains(epoch)), "none is stale");
        }
        let places = world.plumbing.channels.iter().flat_map(|channel| channel.places.values());
        for place in places.filter(|place| place.opened()) {
            let is_marked = place.marked.is_some();
            note(if is_marked { "epoch marked" } else { "epoch not marked" }, 1);
        }
    });
}

/// A reader that takes all bytes and closes, without having seen the end of file, has the epoch;
/// one that leaves a byte in the pipe does not.
#[test]
fn an_epoch_is_marked_though_its_reader_closes_after_the_last_byte() {
    seeds("an_epoch_is_marked_though_its_reader_closes_after_the_last_byte", 300, |seed| {
        let bytes = 1 + seed % 9_000;
        let unread = seed / 2 % 2;
        // It comes when the feeder knows where the epoch ends.
        let leaves_at = usize::try_from(bytes - unread).ok();
        let leaver = Manner { late_us: 5_000_000, leaves_at, ..PATIENT };
        let course = Course {
            inline_per_mille: 0,
            epochs: vec![vec![bytes], vec![5]],
            manners: vec![vec![leaver, PATIENT]],
            never: false,
            marks: true,
            pace_us: 1,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        ran.assert_ok();
        let place = &ran.world.borrow().plumbing.channels[0].places[&0];
        assert!(place.left, "it closes");
        assert_eq!(place.marked.is_some(), unread == 0, "{unread} of {bytes} bytes are left");
        assert_eq!(ran.fed[0].count.epochs[0].left_early, unread > 0);
    });
}

/// The reader of a stream that fails sees no end before it leaves or the user ends the run; who
/// waits for the next epoch neither.
#[test]
fn a_failed_stream_that_is_held_does_not_end() {
    seeds("a_failed_stream_that_is_held_does_not_end", 800, |seed| {
        let rates = Rates { network_per_mille: 20, fatal_per_mille: 30, ..CALM };
        let rates = Rates { disk_per_mille: if seed % 3 == 0 { 50 } else { 0 }, ..rates };
        let leaves = seed % 2 == 0;
        let course = course(seed, rates, leaves);
        let ran = check(seed, &Course { stop_us: Some(300_000_000), holds: true, ..course });
        let world = ran.world.borrow();
        for (channel, fed) in world.plumbing.channels.iter().zip(&ran.fed) {
            for place in channel.places.values().filter(|place| place.kept) {
                note("reader held", 1);
                note("reader held to the end", u64::from(!place.left));
                assert!(fed.result.is_err(), "only a failure holds");
                assert!(place.left || world.now_us >= 300_000_000, "it was let go too early");
            }
        }
    });
}
