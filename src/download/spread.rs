//! Chooses one of several destinations for an object. Pure.
//!
//! An object goes to the destination that will write it soonest: the one with the least time left
//! to write, by its recent rate. This is decided when the object is handed to the workers, and each
//! destination is assigned only about one second of its writes beforehand: so a slow or full one
//! gets fewer objects, and none is idle while another has work. Unfinished files of earlier runs
//! have precedence: their objects stay there. A destination that becomes unwritable is left out
//! from then on.

use super::space::Space;
use crate::files::system_host::DiskSpace;
use crate::limits::{SPREAD_OBJECTS_MIN, SPREAD_WINDOW_BYTES_MIN};
use crate::report::document::DestinationLine;

/// Recent time at work over which a destination's rate is measured, in microseconds.
const REMEMBERED_US: u64 = 4_000_000;

/// One destination.
#[derive(Debug)]
struct Load {
    space: Space,
    /// Bytes of its objects at the workers.
    outstanding_bytes: u64,
    objects: u64,
    /// Its recently written bytes, and the time at work for them.
    written_bytes: u64,
    busy_us: u64,
    /// Begin of its work that is not counted yet.
    busy_since_us: u64,
    /// All that it has stored.
    line: DestinationLine,
}

impl Load {
    /// Counts its time at work.
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
        self.line.left_out.is_some()
    }

    /// Bytes per second; `None` while unknown.
    fn rate(&self) -> Option<f64> {
        let is_known = self.written_bytes > 0 && self.busy_us > 0;
        is_known.then(|| self.written_bytes as f64 / self.busy_us as f64 * 1e6)
    }

    /// True if it may be assigned more: about one second of its writes, and always a few objects.
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
    /// Destinations at these paths, each with its usable space, if checked.
    pub fn new(places: Vec<(String, Option<DiskSpace>)>, may_replace: bool) -> Self {
        let load = |(path, disk)| Load {
            space: Space::new(disk, may_replace),
            outstanding_bytes: 0,
            objects: 0,
            written_bytes: 0,
            busy_us: 0,
            busy_since_us: 0,
            line: DestinationLine { path, objects: 0, bytes: 0, left_out: None, moved_objects: 0 },
        };
        Self { loads: places.into_iter().map(load).collect() }
    }

    /// Adds space of an unfinished file at this destination that is reused, or free now.
    pub fn reclaim(&mut self, place: u8, bytes: u64) {
        self.loads[usize::from(place)].space.reclaim(bytes);
    }

    /// Leaves this destination out from now on, for this reason; returns its path if it was in use
    /// until now.
    pub fn leave_out(&mut self, place: u8, why: &str) -> Option<&str> {
        let line = &mut self.loads[usize::from(place)].line;
        let is_news = line.left_out.is_none();
        line.left_out.get_or_insert_with(|| why.to_owned());
        is_news.then_some(&line.path)
    }

    /// Why a destination is left out; `None` if it is not.
    pub fn left_out(&self, place: u8) -> Option<&str> {
        self.loads[usize::from(place)].line.left_out.as_deref()
    }

    /// True if all destinations are left out.
    pub fn has_none(&self) -> bool {
        self.loads.iter().all(Load::is_left_out)
    }

    /// Counts an object that goes to another destination instead.
    pub fn move_from(&mut self, place: u8) {
        self.loads[usize::from(place)].line.moved_objects += 1;
    }

    /// The destination of an object that is handed to the workers now: its own, if an earlier run
    /// decided that. `None` while it must wait.
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

    /// The destination that would write an object soonest.
    fn soonest(&self, size_bytes: u64) -> Option<usize> {
        // A destination that has not written yet is assumed to be as fast as the fastest: so its
        // rate is measured.
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
        // It fits nowhere, and no more space will be freed: the disk returns its own error.
        let is_at_rest = self.loads.iter().all(|load| load.objects == 0);
        let left = self.loads.iter().enumerate().filter(|(_, load)| !load.is_left_out());
        let all = left.filter(|_| is_at_rest);
        all.max_by_key(|(place, load)| (free(load), usize::MAX - place)).map(|(place, _)| place)
    }

    /// Records that an object has ended, with a file of this many written bytes (`whole`), or
    /// without; the replaced or remaining bytes as for `Space::end`.
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
            load.line.objects += 1;
            load.line.bytes = load.line.bytes.saturating_add(bytes);
        }
    }

    /// The totals of each destination.
    pub fn lines(&self) -> Vec<DestinationLine> {
        self.loads.iter().map(|load| load.line.clone()).collect()
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

    /// Disks of these rates in MiB/s take objects of one size until all are written: returns each
    /// one's number of objects, and the time of its end.
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
        assert_eq!(spread.lines().iter().map(|line| line.objects).collect::<Vec<_>>(), counts);
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
            // A disk ends later than others by at most its assigned bytes.
            let difference_us = done_us[0].abs_diff(done_us[1]);
            let least_us = (SPREAD_OBJECTS_MIN + 1) * size_bytes / MIB * 1000;
            assert!(difference_us <= least_us.max(1_100_000), "{size_bytes}: {done_us:?}");
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
        // There is no space anywhere, but objects are in progress: it waits for their space.
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
        assert_eq!(spread.leave_out(0, "again"), None, "it is reported once");
        spread.move_from(0);
        spread.end(0, MIB, (None, None), 1);
        assert_eq!(spread.hand_out(Some(0), MIB, 1), None);
        assert_eq!(spread.hand_out(None, MIB, 1), Some(1));
        spread.end(1, MIB, (Some(MIB), Some(0)), 2);
        // An object that fits nowhere goes to the remaining destination with most free space.
        assert_eq!(spread.hand_out(None, 900 * MIB, 2), Some(1));
        assert!(!spread.has_none());
        assert!(spread.leave_out(1, "x").is_some() && spread.leave_out(2, "y").is_some());
        assert!(spread.has_none());
        let lines = spread.lines();
        assert_eq!((lines[0].left_out.as_deref(), lines[0].moved_objects), (Some("full"), 1));
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
        assert_eq!(spread.lines()[1].bytes, 10 * MIB, "the others were there before");
        assert_eq!(spread.loads[1].written_bytes, 10 * MIB);
        assert_eq!(spread.hand_out(Some(1), 50 * MIB, 1), Some(1), "one alone is always taken");
    }
}
