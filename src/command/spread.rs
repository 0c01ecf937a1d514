//! Which of several destinations takes an object. Pure.
//!
//! An object goes where it will be written soonest: to the destination that would have the least to
//! write, by the rate at which it has written so far. That is decided when the object is handed to
//! the workers, and only so much is handed out beforehand as each destination writes in about a
//! second: so one that is slow or full takes less, and none waits while another has work. What an
//! earlier run left of an object decides before: it stays where it is. A destination that cannot be
//! written to any more is left out from then on.

use super::space::Space;
use crate::files::system_host::DiskSpace;
use crate::limits::{SPREAD_OBJECTS_MIN, SPREAD_WINDOW_BYTES_MIN};
use crate::report::document::DestinationLine;

/// A destination's rate is that of its last seconds: so many microseconds at work.
const REMEMBERED_US: u64 = 4_000_000;

/// One destination.
#[derive(Debug)]
struct Load {
    space: Space,
    /// What the workers have of its objects.
    outstanding_bytes: u64,
    objects: u64,
    /// What it has written lately, and how long it was at work for that.
    written_bytes: u64,
    busy_us: u64,
    /// Since when it is at work and was not looked at.
    busy_since_us: u64,
    /// All that it has taken.
    told: DestinationLine,
}

impl Load {
    /// Notes how long it was at work.
    fn pass(&mut self, now_us: u64) {
        if self.objects > 0 {
            self.busy_us += now_us.saturating_sub(self.busy_since_us);
        }
        self.busy_since_us = now_us;
        if self.busy_us > REMEMBERED_US {
            (self.busy_us, self.written_bytes) = (self.busy_us / 2, self.written_bytes / 2);
        }
    }

    fn is_left_out(&self) -> bool {
        self.told.left_out.is_some()
    }

    /// Bytes a second; `None` while nothing is known.
    fn rate(&self) -> Option<f64> {
        let is_known = self.written_bytes > 0 && self.busy_us > 0;
        is_known.then(|| self.written_bytes as f64 / self.busy_us as f64 * 1e6)
    }

    /// Whether it may be handed more: what it writes in a second, and a few objects in any case.
    fn is_open(&self) -> bool {
        if self.is_left_out() {
            return false;
        }
        let window = self.rate().unwrap_or(0.0).max(SPREAD_WINDOW_BYTES_MIN as f64);
        self.objects < SPREAD_OBJECTS_MIN || (self.outstanding_bytes as f64) < window
    }
}

/// All destinations of a run, by their numbers.
#[derive(Debug)]
pub struct Spread {
    loads: Vec<Load>,
}

impl Spread {
    /// Destinations at these paths, each with the space that it may use, where that is checked.
    pub fn new(places: Vec<(String, Option<DiskSpace>)>, may_replace: bool) -> Self {
        let load = |(path, disk)| Load {
            space: Space::new(disk, may_replace),
            outstanding_bytes: 0,
            objects: 0,
            written_bytes: 0,
            busy_us: 0,
            busy_since_us: 0,
            told: DestinationLine { path, objects: 0, bytes: 0, left_out: None, moved_objects: 0 },
        };
        Self { loads: places.into_iter().map(load).collect() }
    }

    /// So many bytes of an unfinished file at this destination are used again, or are free now.
    pub fn reclaim(&mut self, place: u8, bytes: u64) {
        self.loads[usize::from(place)].space.reclaim(bytes);
    }

    /// This destination gets no more objects, for this reason; its path where it got some until
    /// now.
    pub fn leave_out(&mut self, place: u8, why: &str) -> Option<&str> {
        let told = &mut self.loads[usize::from(place)].told;
        let is_news = told.left_out.is_none();
        told.left_out.get_or_insert_with(|| why.to_owned());
        is_news.then_some(&told.path)
    }

    /// Why a destination gets no more objects; `None` where it gets some.
    pub fn left_out(&self, place: u8) -> Option<&str> {
        self.loads[usize::from(place)].told.left_out.as_deref()
    }

    /// Whether no destination is left.
    pub fn has_none(&self) -> bool {
        self.loads.iter().all(Load::is_left_out)
    }

    /// An object that was to go to this destination goes to another.
    pub fn move_from(&mut self, place: u8) {
        self.loads[usize::from(place)].told.moved_objects += 1;
    }

    /// The destination of an object that is handed to the workers now: its own, where an earlier
    /// run decided that. `None` while it has to wait.
    pub fn hand_out(&mut self, own: Option<u8>, size_bytes: u64, now_us: u64) -> Option<u8> {
        self.loads.iter_mut().for_each(|load| load.pass(now_us));
        let place = match own {
            Some(own) => Some(usize::from(own)).filter(|at| {
                let load = &self.loads[*at];
                let has_room = load.is_open() && load.space.has_room(size_bytes);
                has_room || load.objects == 0 && !load.is_left_out()
            }),
            None => self.soonest(size_bytes),
        }?;
        let load = &mut self.loads[place];
        load.space.hand_out(size_bytes).then(|| {
            load.outstanding_bytes = load.outstanding_bytes.saturating_add(size_bytes);
            load.objects += 1;
            u8::try_from(place).expect("bounded by SPREAD_MAX")
        })
    }

    /// Where an object would be written first.
    fn soonest(&self, size_bytes: u64) -> Option<usize> {
        // Who has not written yet is thought as fast as the fastest: so it is found out.
        let fastest = self.loads.iter().filter_map(Load::rate).fold(1.0, f64::max);
        let has_room = |load: &Load| load.is_open() && load.space.has_room(size_bytes);
        let fits = self.loads.iter().enumerate().filter(|(_, load)| has_room(load));
        let ends = |load: &Load| {
            let bytes = load.outstanding_bytes.saturating_add(size_bytes);
            bytes as f64 / load.rate().unwrap_or(fastest)
        };
        let free = |load: &Load| load.space.left_bytes();
        let first = fits.min_by(|(_, one), (_, other)| {
            let by_end = ends(one).total_cmp(&ends(other));
            by_end.then_with(|| free(other).cmp(&free(one)))
        });
        if let Some((place, _)) = first {
            return Some(place);
        }
        // It fits nowhere, and no more will come free: the disk says so itself.
        let is_at_rest = self.loads.iter().all(|load| load.objects == 0);
        let left = self.loads.iter().enumerate().filter(|(_, load)| !load.is_left_out());
        let all = left.filter(|_| is_at_rest);
        all.max_by_key(|(place, load)| (free(load), usize::MAX - place)).map(|(place, _)| place)
    }

    /// An object that was handed out has ended, with a file for which so many bytes were written
    /// (`whole`), or without; of what it replaced or leaves, so many bytes count as `Space::end`
    /// has it.
    pub fn end(
        &mut self,
        place: u8,
        size_bytes: u64,
        (whole, replaced_bytes): (Option<u64>, Option<u64>),
        now_us: u64,
    ) {
        let load = &mut self.loads[usize::from(place)];
        load.pass(now_us);
        load.space.end(size_bytes, replaced_bytes);
        load.outstanding_bytes = load.outstanding_bytes.saturating_sub(size_bytes);
        load.objects = load.objects.saturating_sub(1);
        if let Some(bytes) = whole {
            load.written_bytes = load.written_bytes.saturating_add(bytes);
            load.told.objects += 1;
            load.told.bytes = load.told.bytes.saturating_add(bytes);
        }
    }

    /// What each has taken.
    pub fn told(&self) -> Vec<DestinationLine> {
        self.loads.iter().map(|load| load.told.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn spread(free: &[u64]) -> Spread {
        let disk = |(number, free): (usize, &u64)| {
            let disk = DiskSpace { free_bytes: *free, total_bytes: u64::MAX };
            (format!("/disk{number}"), Some(disk))
        };
        Spread::new(free.iter().enumerate().map(disk).collect(), true)
    }

    /// Disks of these rates in MiB a second take objects of one size until all are written: how
    /// many each took, and when it was done.
    fn course(rates: &[u64], size_bytes: u64, mut left: u64) -> (Vec<u64>, Vec<u64>) {
        let mut spread = spread(&vec![u64::MAX; rates.len()]);
        let mut queues: Vec<std::collections::VecDeque<u64>> =
            vec![Default::default(); rates.len()];
        let (mut counts, mut done_us) = (vec![0; rates.len()], vec![0; rates.len()]);
        let mut now_us = 0;
        loop {
            while left > 0
                && let Some(place) = spread.hand_out(None, size_bytes, now_us)
            {
                left -= 1;
                let place = usize::from(place);
                let takes_us = size_bytes * 1_000_000 / (rates[place] * MIB);
                let from_us = queues[place].back().copied().unwrap_or(now_us).max(now_us);
                queues[place].push_back(from_us + takes_us);
                counts[place] += 1;
            }
            let next = (0..rates.len()).filter_map(|place| Some((*queues[place].front()?, place)));
            let Some((ends_us, place)) = next.min() else { break };
            queues[place].pop_front();
            (now_us, done_us[place]) = (ends_us, ends_us);
            let number = u8::try_from(place).expect("few");
            spread.end(number, size_bytes, (Some(size_bytes), Some(0)), now_us);
        }
        assert_eq!(left, 0, "all are written");
        assert_eq!(spread.told().iter().map(|line| line.objects).collect::<Vec<_>>(), counts);
        (counts, done_us)
    }

    #[test]
    fn objects_go_by_the_rate_of_each() {
        let (counts, done_us) = course(&[1000, 1000], 64 * MIB, 200);
        assert_eq!(counts, [100, 100]);
        assert_eq!(done_us[0], done_us[1]);
        for (size_bytes, objects) in [(64 * MIB, 600), (MIB, 30_000), (1024 * MIB, 100)] {
            let (counts, done_us) = course(&[3000, 1000], size_bytes, objects);
            let share = counts[0] as f64 / objects as f64;
            assert!((0.70..0.80).contains(&share), "{size_bytes}: {counts:?}");
            // One disk alone ends as far behind as what it may be handed beforehand takes.
            let apart_us = done_us[0].abs_diff(done_us[1]);
            let least_us = (SPREAD_OBJECTS_MIN + 1) * size_bytes / MIB * 1000;
            assert!(apart_us <= least_us.max(1_100_000), "{size_bytes}: {done_us:?}");
        }
    }

    #[test]
    fn none_waits_while_another_has_work() {
        // The slowest of eight is a hundredth as fast.
        let rates = [1000, 1000, 1000, 1000, 1000, 1000, 1000, 10];
        let (counts, _) = course(&rates, 16 * MIB, 4000);
        assert!(counts[7] < 100, "{counts:?}");
        assert!(counts[..7].iter().all(|count| (500..600).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_is_full_takes_nothing() {
        let mut spread = spread(&[10 * MIB, 100 * MIB]);
        let places: Vec<_> = (0..9).filter_map(|_| spread.hand_out(None, 9 * MIB, 0)).collect();
        assert_eq!(places.iter().filter(|place| **place == 0).count(), 1, "{places:?}");
        assert_eq!(places.len(), 9);
        // Nowhere is room, and somebody is at work: it waits for what comes free.
        for _ in 0..3 {
            spread.hand_out(None, 9 * MIB, 0);
        }
        assert_eq!(spread.hand_out(None, 9 * MIB, 0), None);
        spread.end(1, 9 * MIB, (None, None), 1);
        assert_eq!(spread.hand_out(None, 9 * MIB, 1), Some(1));
    }

    #[test]
    fn what_is_left_out_gets_nothing_more() {
        let mut spread = spread(&[1000 * MIB, 10 * MIB, MIB]);
        assert_eq!(spread.hand_out(None, MIB, 0), Some(0));
        assert_eq!(spread.leave_out(0, "full"), Some("/disk0"));
        assert_eq!((spread.left_out(0), spread.left_out(1)), (Some("full"), None));
        assert_eq!(spread.leave_out(0, "again"), None, "it is told once");
        spread.move_from(0);
        spread.end(0, MIB, (None, None), 1);
        assert_eq!(spread.hand_out(Some(0), MIB, 1), None);
        assert_eq!(spread.hand_out(None, MIB, 1), Some(1));
        spread.end(1, MIB, (Some(MIB), Some(0)), 2);
        // What fits nowhere goes where most is free, of those that are left.
        assert_eq!(spread.hand_out(None, 900 * MIB, 2), Some(1));
        assert!(!spread.has_none());
        assert!(spread.leave_out(1, "x").is_some() && spread.leave_out(2, "y").is_some());
        assert!(spread.has_none());
        let told = spread.told();
        assert_eq!((told[0].left_out.as_deref(), told[0].moved_objects), (Some("full"), 1));
    }

    #[test]
    fn what_fits_nowhere_is_for_the_disk_to_say() {
        let mut spread = spread(&[MIB, 2 * MIB, MIB]);
        assert_eq!(spread.hand_out(None, 9 * MIB, 0), Some(1), "where most is free");
        assert_eq!(spread.hand_out(None, 9 * MIB, 0), None, "not beside another");
        let mut unchecked = Spread::new(vec![(String::new(), None), (String::new(), None)], true);
        let places = [0, 1].map(|_| unchecked.hand_out(None, 1 << 60, 0));
        assert_eq!(places, [Some(0), Some(1)]);
    }

    #[test]
    fn an_object_stays_where_some_of_it_is() {
        let mut spread = spread(&[1000 * MIB, 10 * MIB]);
        spread.reclaim(1, 50 * MIB);
        assert_eq!(spread.hand_out(Some(1), 50 * MIB, 0), Some(1));
        assert_eq!(spread.hand_out(Some(1), 50 * MIB, 0), None, "no room beside it");
        assert_eq!(spread.hand_out(None, 50 * MIB, 0), Some(0), "others go on");
        spread.end(1, 50 * MIB, (Some(10 * MIB), Some(0)), 1);
        assert_eq!(spread.told()[1].bytes, 10 * MIB, "the others were there before");
        assert_eq!(spread.loads[1].written_bytes, 10 * MIB);
        assert_eq!(spread.hand_out(Some(1), 50 * MIB, 1), Some(1), "one alone is always taken");
    }
}
