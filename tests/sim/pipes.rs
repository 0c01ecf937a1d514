//! The real feeder of Pipe mode on the simulated machine, held against a model: each epoch's reader
//! gets the objects' bytes in order, all of them or exactly as far as it read; places come and go
//! in order; nothing spins, nothing is left.

mod ends;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use inrush::attempt::RetryPolicy;
use inrush::error::{Error, ErrorKind};
use inrush::failure::RetryReason;
use inrush::limits::{EPOCHS_TOLD_MAX, SLOT_BYTES_MIN};
use inrush::metrics::FeedCount;
use inrush::pace::Bounds;
use inrush::pipe::feed::Feed;
use inrush::pipe::feeder::{Feeder, FeederParts};
use inrush::plan::ranges::PartSize;
use inrush::sys::descriptor;
use inrush::transfer::{Cut, Transfer};

use super::chance::Chance;
use super::origin::Rates;
use super::plumbing::{Act, Lab, Manner, Place};
use super::shore::{LabHost, LabRing, SharedLab};
use super::{CALM, endpoint, object, secure, seeds};

/// Turns after which a run counts as hanging.
const TURNS_MAX: u64 = 200_000;

/// A reader that comes at once and takes everything.
const PATIENT: Manner =
    Manner { late_us: 0, gulp: 1 << 20, pace_us: 10, pause_per_mille: 0, leaves_at: None };

/// What is run.
#[derive(Debug)]
struct Course {
    rates: Rates,
    spurious_per_mille: u64,
    /// Cancels and wake-ups get lost.
    lost_per_mille: u64,
    /// Some answers take far longer than others.
    uneven: bool,
    slots_max: u64,
    connections: usize,
    part: u64,
    /// Sizes of the objects of each epoch.
    epochs: Vec<Vec<u64>>,
    manners: Vec<Manner>,
    /// One more epoch is offered, for a reader that never comes.
    never: bool,
    /// The channel is stopped at this time.
    stop_us: Option<u64>,
    /// Readers of a stream that fails are held.
    holds: bool,
    /// Epochs that were read whole are marked.
    marks: bool,
    /// Time between two steps of the control plane, at most.
    pace_us: u64,
    /// The origin speaks TLS.
    tls: bool,
    /// When the origin goes down, for half a minute.
    down_us: Option<u64>,
}

/// How it went.
struct Ran {
    lab: SharedLab,
    result: Result<(), Error>,
    count: FeedCount,
    /// Keys of each epoch.
    keys: Vec<Vec<String>>,
}

/// The control plane's steps, and the keys of each epoch.
fn plan(course: &Course, chance: &mut Chance) -> (VecDeque<(u64, Act)>, Vec<Vec<String>>) {
    let part = PartSize::new(course.part).expect("aligned");
    let cut = Cut { part, slot_length_bytes: SLOT_BYTES_MIN };
    let endpoints = [endpoint(0, course.tls), endpoint(1, course.tls)];
    let (mut acts, mut keys) = (VecDeque::new(), Vec::new());
    let mut at_us = 0;
    for sizes in &course.epochs {
        let mut own = Vec::new();
        let mut batch = Vec::new();
        for size in sizes {
            let key = format!("k{}-{size}", chance.below(1000));
            let which = usize::from(chance.hits(200));
            let target = Arc::clone(&endpoints[which]);
            batch.push(Arc::new(Transfer::new(object(&key), target, key.clone(), cut)));
            own.push(key);
            if chance.hits(500) {
                at_us += chance.below(course.pace_us);
                acts.push_back((at_us, Act::Push(std::mem::take(&mut batch))));
            }
        }
        acts.push_back((at_us, Act::Push(batch)));
        at_us += chance.below(course.pace_us);
        acts.push_back((at_us, Act::EndEpoch));
        keys.push(own);
    }
    if !course.never {
        acts.push_back((at_us + chance.below(course.pace_us), Act::Complete));
    }
    if let Some(stop_us) = course.stop_us {
        acts.push_back((stop_us, Act::Stop));
        acts.make_contiguous().sort_by_key(|(at_us, _)| *at_us);
    }
    (acts, keys)
}

/// All of a course's connections, or as many as bring the most.
fn bounds(course: &Course, chance: &mut Chance) -> Bounds {
    let most = u32::try_from(course.connections).expect("few");
    let fixed = Bounds { piece_bytes: course.part, ..Bounds::fixed(most) };
    let start = 1 + u32::try_from(chance.below(u64::from(most))).expect("few");
    if chance.hits(500) { Bounds { least: 1, start, ..fixed } } else { fixed }
}

/// Runs a course to its end.
fn run(seed: u64, course: &Course) -> Ran {
    let mut chance = Chance(seed ^ 0x919e);
    let (plan, keys) = plan(course, &mut chance);
    let counter = descriptor::event_counter().expect("a descriptor");
    let part = PartSize::new(course.part).expect("aligned");
    let feed = Arc::new(Feed::new(counter.clone(), part));
    let sides = course.tls.then(|| secure::sides(seed));
    let lab = Rc::new(RefCell::new(Lab {
        chance: Chance(seed),
        rates: course.rates,
        spurious_per_mille: course.spurious_per_mille,
        lost_per_mille: course.lost_per_mille,
        uneven: course.uneven,
        now_us: 0,
        outage_us: course.down_us.map_or((0, 0), |at_us| (at_us, at_us + 30_000_000)),
        sockets: Vec::new(),
        pipes: Vec::new(),
        places: BTreeMap::new(),
        manners: course.manners.clone(),
        plan,
        feed: Arc::clone(&feed),
        slots_max: course.slots_max,
        unmarked: Vec::new(),
        injected: BTreeMap::new(),
        events: 0,
        models: BTreeMap::new(),
        sides: sides.clone(),
    }));
    let feeder = Feeder::new(FeederParts {
        ring: LabRing::new(Rc::clone(&lab)),
        host: LabHost(Rc::clone(&lab)),
        feed,
        counter,
        tls: sides.map(|sides| sides.client),
        connections: bounds(course, &mut Chance(seed ^ 0xb0d5)),
        retries: RetryPolicy { attempts_max: 20, ..RetryPolicy::default() },
        epochs: (!course.never).then_some(course.epochs.len() as u64),
        holds: course.holds,
        marks: course.marks,
        addresses: Arc::default(),
    });
    let (result, count) = match feeder {
        Ok(mut feeder) => {
            while feeder.turn().expect("a simulated ring does not fail") {
                assert!(feeder.count().turns < TURNS_MAX, "the run hangs");
            }
            let result = feeder.run();
            assert_eq!(feeder.in_flight(), 0, "the kernel owns nothing");
            assert_eq!(lab.borrow().feed.wait(), None, "it waits for nobody any more");
            (result, feeder.count().clone())
        }
        Err(error) => (Err(error), FeedCount::default()),
    };
    Ran { lab, result, count, keys }
}

/// Runs a course and checks what always holds.
fn check(seed: u64, course: &Course) -> Ran {
    let ran = run(seed, course);
    let mut lab = ran.lab.borrow_mut();
    let seconds = 1 + lab.now_us / 1_000_000;
    let turns = ran.count.turns;
    assert!(
        turns <= 4 * lab.events + 60 * seconds,
        "{turns} turns for {} events in {seconds} s: it spins",
        lab.events
    );
    for (epoch, place) in &lab.places {
        assert!(place.withdrawn, "{epoch}: still offered");
        assert!(!place.held(), "{epoch}: its write end is still open");
    }
    lab.drain();
    let whole = ran.result.is_ok() && !lab.feed.is_stopped();
    let is_told = |place: &&Place| place.opened() && !place.retired;
    let opened = lab.places.values().filter(is_told).count();
    let earlier = usize::try_from(ran.count.earlier_epochs).expect("few");
    assert_eq!(earlier + ran.count.epochs.len(), opened, "each epoch that was read is told");
    assert!(!whole || opened == course.epochs.len(), "every epoch was read");
    for (number, told) in (earlier..).zip(&ran.count.epochs) {
        let epoch = number as u64;
        let keys = ran.keys.get(number).map_or(&[] as &[String], Vec::as_slice);
        let models: Vec<Rc<Vec<u8>>> = keys.iter().map(|key| lab.model(key)).collect();
        let model: Vec<u8> = models.iter().flat_map(|bytes| bytes.iter().copied()).collect();
        let place = &lab.places[&epoch];
        let length = place.got.len();
        assert!(model.get(..length) == Some(place.got.as_slice()), "{epoch}: wrong bytes");
        assert_eq!((told.epoch, told.bytes), (epoch, lab.delivered(epoch)), "{epoch}: told");
        assert!(!told.left_early || place.left, "{epoch}: its reader did not leave");
        // The last one opened may have been broken off.
        let complete = whole || number + 1 < opened;
        if place.left {
            assert_eq!(Some(length), course.manners[number].leaves_at, "{epoch}");
        } else if complete {
            assert_eq!(length, model.len(), "{epoch}: lost bytes");
        }
        if let Some(marked) = place.marked {
            let objects = keys.len() as u64;
            assert!(!told.left_early && length == model.len(), "{epoch}: marked, not read");
            assert_eq!((marked.objects, marked.bytes), (objects, model.len() as u64), "{epoch}");
        }
        let may_miss = !course.marks || !complete || told.left_early;
        assert!(place.marked.is_some() || may_miss, "{epoch}: not marked");
        if complete && !told.left_early {
            assert_eq!(told.bytes, model.len() as u64, "{epoch}: delivered");
        }
    }
    drop(lab);
    ran
}

/// A reader as the seed draws it, for an epoch of so many bytes.
fn manner(chance: &mut Chance, bytes: u64, leaves: bool) -> Manner {
    let pick = |chance: &mut Chance, from: &[u64]| {
        from[usize::try_from(chance.below(from.len() as u64)).expect("small")]
    };
    let leaves_at = (leaves && chance.hits(400))
        .then(|| if chance.hits(200) { 0 } else { chance.below(bytes + 1) });
    Manner {
        late_us: pick(chance, &[0, 0, 2_000, 500_000, 5_000_000]),
        gulp: pick(chance, &[100, 3_000, 10_000, 1 << 20]) + bytes / 200,
        pace_us: pick(chance, &[1, 100, 5_000, 50_000]),
        pause_per_mille: pick(chance, &[0, 0, 50]),
        leaves_at: leaves_at.map(|bytes| usize::try_from(bytes).expect("small")),
    }
}

/// A course as the seed draws it.
fn course(seed: u64, rates: Rates, leaves: bool) -> Course {
    let mut chance = Chance(seed ^ 0xc0de);
    let count = 1 + chance.below(4);
    let borders = [0, 1, 4095, 4096, 4097, 8192];
    let epochs: Vec<Vec<u64>> = (0..count)
        .map(|_| {
            let mut sizes: Vec<u64> = borders.into_iter().filter(|_| chance.hits(150)).collect();
            sizes.extend((0..chance.below(5)).map(|_| chance.below(60_000)));
            sizes
        })
        .collect();
    let bytes = |sizes: &Vec<u64>| sizes.iter().sum();
    let manners = epochs.iter().map(|sizes| manner(&mut chance, bytes(sizes), leaves)).collect();
    Course {
        rates,
        spurious_per_mille: 0,
        lost_per_mille: 0,
        uneven: true,
        slots_max: [2, 4, 16, 64][usize::try_from(chance.below(4)).expect("small")],
        connections: 1 + usize::try_from(chance.below(6)).expect("small"),
        part: 4096 * (1 + chance.below(6)),
        epochs,
        manners,
        never: chance.hits(100),
        stop_us: None,
        holds: false,
        marks: false,
        pace_us: [1, 5_000, 1_000_000][usize::try_from(chance.below(3)).expect("small")],
        tls: false,
        down_us: None,
    }
}

/// Faults that each cause one retry, when no reader leaves and nothing is stopped.
fn to_retry(injected: &BTreeMap<&'static str, u64>) -> u64 {
    let harmless = ["close after", "ring full for a watch", "spurious"];
    injected.iter().filter(|(name, _)| !harmless.contains(name)).map(|(_, count)| count).sum()
}

/// Retries because something took too long, or took far longer than its like.
fn late(count: &FeedCount) -> u64 {
    let late = [RetryReason::ConnectTimeout, RetryReason::FirstByteTimeout, RetryReason::Stall];
    late.into_iter().map(|reason| count.retries[reason as usize]).sum()
}

#[test]
fn a_calm_network_feeds_every_reader() {
    seeds("a_calm_network_feeds_every_reader", 1500, |seed| {
        let uneven = seed % 2 == 0;
        let ran = check(seed, &Course { uneven, ..course(seed, CALM, false) });
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        assert!(ran.lab.borrow().injected.is_empty());
        let late = if uneven { late(&ran.count) } else { 0 };
        assert_eq!(ran.count.retries.iter().sum::<u64>(), late);
    });
}

/// A feeder that is stopped for up to a minute, again and again, blames no connection for it.
#[test]
fn a_feeder_that_pauses_does_not_blame_the_network() {
    seeds("a_feeder_that_pauses_does_not_blame_the_network", 400, |seed| {
        let rates = Rates { pause_per_mille: 20, ..CALM };
        let course = Course { uneven: false, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        let retries: u64 = ran.count.retries.iter().sum();
        assert_eq!((late(&ran.count), retries), (0, 0), "no connection was late");
    });
}

#[test]
fn readers_that_leave_get_what_they_read() {
    seeds("readers_that_leave_get_what_they_read", 1500, |seed| {
        let ran = check(seed, &course(seed, CALM, true));
        assert!(ran.result.is_ok(), "{:?}", ran.result);
    });
}

#[test]
fn each_fault_of_a_stream_is_one_retry() {
    seeds("each_fault_of_a_stream_is_one_retry", 1500, |seed| {
        let rates = Rates { network_per_mille: 30, hang_per_mille: 10, ..CALM };
        let spurious_per_mille = if seed % 2 == 0 { 0 } else { 100 };
        let uneven = seed % 3 == 0;
        let course = Course { spurious_per_mille, uneven, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        let injected = &ran.lab.borrow().injected;
        let retries: u64 = ran.count.retries.iter().sum();
        let most = to_retry(injected);
        // A full ring fails a connection whose answer may have had a fault still to come.
        let unseen = injected.get("ring full").copied().unwrap_or(0);
        // So does the end of one that is late, where only some are.
        let late = if uneven { late(&ran.count) } else { 0 };
        let told = most.saturating_sub(unseen + late)..=most + late;
        assert!(told.contains(&retries), "{retries} after {injected:?}");
    });
}

/// A range that stalls among many goes on elsewhere long before its timeout.
#[test]
fn what_is_late_beside_its_peers_is_not_waited_for() {
    let [runs, stalled, soon] = [const { AtomicU32::new(0) }; 3];
    seeds("what_is_late_beside_its_peers_is_not_waited_for", 100, |seed| {
        let rates = Rates { hang_per_mille: 10, ..CALM };
        let many = Course {
            epochs: vec![vec![9_000; 200]],
            manners: vec![PATIENT],
            connections: 8,
            never: false,
            uneven: false,
            pace_us: 1,
            ..course(seed, rates, false)
        };
        let ran = check(seed, &many);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        let lab = ran.lab.borrow();
        runs.fetch_add(1, Ordering::Relaxed);
        stalled.fetch_add(u32::from(!lab.injected.is_empty()), Ordering::Relaxed);
        // The first few are waited for: nobody knows yet what is usual.
        let is_soon = lab.now_us < 10_000_000 && ran.count.moves > 0;
        soon.fetch_add(u32::from(is_soon), Ordering::Relaxed);
    });
    let [runs, stalled, soon] = [runs, stalled, soon].map(AtomicU32::into_inner);
    assert!(stalled * 5 > runs || runs < 100, "{stalled} of {runs} had a stall");
    assert!(soon * 3 >= stalled * 2 || runs < 100, "{soon} of {stalled} ended soon");
}

#[test]
fn a_hostile_network_gives_a_right_stream_or_a_named_error() {
    seeds("a_hostile_network_gives_a_right_stream_or_a_named_error", 3000, |seed| {
        let rates = Rates {
            network_per_mille: 60,
            hang_per_mille: 30,
            fatal_per_mille: 10,
            disk_per_mille: if seed % 3 == 0 { 20 } else { 0 },
            ..CALM
        };
        let leaves = seed % 2 == 0;
        let stop_us = (seed % 5 == 0).then(|| Chance(seed).below(10_000_000));
        let ran =
            check(seed, &Course { spurious_per_mille: 50, stop_us, ..course(seed, rates, leaves) });
        let injected = &ran.lab.borrow().injected;
        let fatal = ["denied", "other etag", "no place", "no pipe"];
        let hit = fatal.iter().any(|name| injected.contains_key(name));
        if let Err(error) = &ran.result {
            let kinds = [
                ErrorKind::Access,
                ErrorKind::Destination,
                ErrorKind::Endpoint,
                ErrorKind::Host,
                // A changed object, as in File mode.
                ErrorKind::Objects,
            ];
            assert!(hit && kinds.contains(&error.kind()), "{error} after {injected:?}");
        } else if !leaves && stop_us.is_none() && !ran.lab.borrow().feed.is_stopped() {
            // A full ring may fail a connection before its refusal is read.
            assert!(!hit || injected.contains_key("ring full"), "no error after {injected:?}");
        }
    });
}

/// Half a minute in which nobody listens is survived, whatever the number of tries.
#[test]
fn an_outage_shorter_than_it_is_retried_for_ends_no_stream() {
    let [runs, met] = [const { AtomicU32::new(0) }; 2];
    seeds("an_outage_shorter_than_it_is_retried_for_ends_no_stream", 60, |seed| {
        let course = Course {
            epochs: vec![vec![50_000; 20]],
            manners: vec![PATIENT],
            never: false,
            tls: seed % 4 == 0,
            down_us: Some(Chance(seed).below(20_000)),
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        let down = ran.lab.borrow().injected.get("down").copied().unwrap_or(0);
        runs.fetch_add(1, Ordering::Relaxed);
        met.fetch_add(u32::from(down > 20), Ordering::Relaxed);
    });
    let [runs, met] = [runs, met].map(AtomicU32::into_inner);
    assert!(met * 3 > runs * 2 || runs < 60, "{met} of {runs} met the outage");
}

#[test]
fn a_stopped_channel_leaves_no_place() {
    seeds("a_stopped_channel_leaves_no_place", 500, |seed| {
        let rates = Rates { network_per_mille: 20, hang_per_mille: 20, ..CALM };
        let stop_us = Some(Chance(seed).below([10_000, 1_000_000][usize::from(seed % 2 == 0)]));
        let ran = check(seed, &Course { stop_us, ..course(seed, rates, true) });
        assert!(ran.result.is_ok(), "{:?}", ran.result);
    });
}

#[test]
fn a_calm_network_feeds_every_reader_over_tls() {
    seeds("a_calm_network_feeds_every_reader_over_tls", 300, |seed| {
        let uneven = seed % 3 == 0;
        let course = Course { tls: true, uneven, ..course(seed, CALM, seed % 4 == 0) };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        assert!(ran.lab.borrow().injected.is_empty());
        let late = if uneven { late(&ran.count) } else { 0 };
        assert_eq!(ran.count.retries.iter().sum::<u64>(), late);
    });
}

/// What may end a stream over TLS although a retry heals most of it: a certificate with a wrong
/// bit, and alerts that say that there will never be a session.
fn is_refusal_of_tls(error: &Error) -> bool {
    error.kind() == ErrorKind::Endpoint && error.to_string().contains("TLS with origin")
}

#[test]
fn faults_of_a_stream_under_tls_lose_nothing() {
    seeds("faults_of_a_stream_under_tls_lose_nothing", 800, |seed| {
        let rates = Rates { network_per_mille: 40, hang_per_mille: 10, ..CALM };
        let spurious_per_mille = if seed % 2 == 0 { 0 } else { 100 };
        let course = Course { spurious_per_mille, tls: true, ..course(seed, rates, false) };
        let ran = check(seed, &course);
        let injected = &ran.lab.borrow().injected;
        if let Err(error) = &ran.result {
            let why = ["alert in a handshake", "garbled handshake"];
            let hit = why.iter().any(|name| injected.contains_key(name));
            assert!(hit && is_refusal_of_tls(error), "{error} after {injected:?}");
        }
    });
}

#[test]
fn a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error() {
    let test = "a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error";
    seeds(test, 800, |seed| {
        let rates = Rates {
            network_per_mille: 100,
            hang_per_mille: 30,
            fatal_per_mille: 10,
            disk_per_mille: if seed % 3 == 0 { 20 } else { 0 },
            ..CALM
        };
        let stop_us = (seed % 5 == 0).then(|| Chance(seed).below(10_000_000));
        let leaves = seed % 2 == 0;
        let course =
            Course { spurious_per_mille: 50, stop_us, tls: true, ..course(seed, rates, leaves) };
        let ran = check(seed, &course);
        if let Err(error) = &ran.result {
            let kinds = [ErrorKind::Access, ErrorKind::Destination, ErrorKind::Host];
            let known = kinds.contains(&error.kind()) || error.kind() == ErrorKind::Objects;
            let injected = &ran.lab.borrow().injected;
            assert!(known || is_refusal_of_tls(error), "{error} after {injected:?}");
        }
    });
}

/// At every byte of a small stream the reader leaves; the next epoch's reader gets all the same.
#[test]
fn a_reader_may_leave_at_every_byte() {
    seeds("a_reader_may_leave_at_every_byte", 30, |seed| {
        let mut chance = Chance(seed);
        let sizes: Vec<u64> = (0..3).map(|_| 1 + chance.below(40)).collect();
        for leaves_at in 0..=usize::try_from(sizes.iter().sum::<u64>()).expect("small") {
            let late_us = chance.below(5_000);
            let leaver = Manner {
                gulp: 1 + chance.below(20),
                late_us,
                leaves_at: Some(leaves_at),
                ..PATIENT
            };
            let course = Course {
                epochs: vec![sizes.clone(), sizes.clone()],
                manners: vec![leaver, PATIENT],
                connections: 1 + usize::try_from(chance.below(4)).expect("small"),
                never: false,
                ..course(seed, CALM, false)
            };
            let ran = check(seed, &course);
            assert!(ran.result.is_ok(), "{:?}", ran.result);
            assert!(ran.lab.borrow().places[&0].left, "{leaves_at}");
        }
    });
}

/// Cancels are lost again and again, and so is every wake-up of the feed: each reader still sees
/// its end of file soon, and the stream goes on.
#[test]
fn lost_cancels_and_wake_ups_keep_nobody_waiting() {
    let [runs, cancels, wake_ups] = [const { AtomicU32::new(0) }; 3];
    seeds("lost_cancels_and_wake_ups_keep_nobody_waiting", 1000, |seed| {
        let rates = Rates { hang_per_mille: 10, ..CALM };
        let lost_per_mille = 300;
        let ran = check(seed, &Course { lost_per_mille, ..course(seed, rates, seed % 2 == 0) });
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        runs.fetch_add(1, Ordering::Relaxed);
        for (count, what) in [(&cancels, "lost cancel"), (&wake_ups, "lost wake-up")] {
            let is_hit = ran.lab.borrow().injected.contains_key(what);
            count.fetch_add(u32::from(is_hit), Ordering::Relaxed);
        }
    });
    let [runs, cancels, wake_ups] = [runs, cancels, wake_ups].map(AtomicU32::into_inner);
    let many = |count: u32| count * 10 > runs || runs < 100;
    assert!(many(cancels) && many(wake_ups), "{cancels} and {wake_ups} of {runs}");
}

/// A channel that runs for ever remembers the last epochs alone.
#[test]
fn very_many_epochs_are_counted_and_forgotten() {
    seeds("very_many_epochs_are_counted_and_forgotten", 2, |seed| {
        let course = Course {
            epochs: vec![vec![10]; EPOCHS_TOLD_MAX + 7],
            manners: vec![PATIENT; EPOCHS_TOLD_MAX + 7],
            never: false,
            pace_us: 1,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        assert_eq!((ran.count.epochs.len(), ran.count.earlier_epochs), (EPOCHS_TOLD_MAX, 7));
        assert_eq!(ran.count.earlier_bytes, 70);
    });
}

/// A reader that reads little by little, with pauses of seconds: whoever waits for it sleeps.
#[test]
fn a_paused_reader_costs_no_turns() {
    seeds("a_paused_reader_costs_no_turns", 200, |seed| {
        let pauses = Manner { gulp: 9_000, pace_us: 10_000_000, ..PATIENT };
        let course = Course {
            epochs: vec![vec![100_000]],
            manners: vec![pauses],
            never: false,
            pace_us: 1,
            slots_max: 2,
            ..course(seed, CALM, false)
        };
        let ran = check(seed, &course);
        assert!(ran.result.is_ok(), "{:?}", ran.result);
        let seconds = 1 + ran.lab.borrow().now_us / 1_000_000;
        // Five looks a second at the clock, and what the bytes themselves cost.
        assert!(ran.count.turns < 10 * seconds + 500, "{} in {seconds} s", ran.count.turns);
        assert!(ran.count.epochs[0].reader_kept_us > 1_000_000, "it kept the feeder waiting");
    });
}
