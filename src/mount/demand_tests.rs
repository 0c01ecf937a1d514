//! Tests of the read-ahead: single cases, and a thousand seeded runs against a model.

#![expect(clippy::cast_possible_truncation, reason = "random numbers below small ones")]

use super::*;
use crate::plan::splitmix::SplitMix64;

const SLOT: u64 = 1 << 20;

/// The byte of a file at an offset.
fn byte(file: FileId, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(file.0 * 77) >> 56) as u8
}

/// A server, the memory, and all readers: what they expect, and what they got.
struct World {
    demand: Demand,
    bounds: Bounds,
    /// Requested and not landed, in the order of the requests.
    asked: Vec<(ChunkId, FileId, Range<u64>)>,
    here: HashMap<ChunkId, (FileId, Range<u64>)>,
    /// File and range of each read.
    expected: HashMap<ReadId, (FileId, Range<u64>)>,
    sizes: HashMap<FileId, u64>,
    answered: u64,
    failed: u64,
    /// Every requested range.
    fetched: Vec<(FileId, Range<u64>)>,
    cancelled: HashSet<ChunkId>,
    reads: u64,
}

impl World {
    fn new(leases: usize, chunk_bytes: u64) -> Self {
        let bounds = Bounds { leases, chunk_bytes };
        Self {
            demand: Demand::new(bounds),
            bounds,
            asked: Vec::new(),
            here: HashMap::new(),
            expected: HashMap::new(),
            sizes: HashMap::new(),
            answered: 0,
            failed: 0,
            fetched: Vec::new(),
            cancelled: HashSet::new(),
            reads: 0,
        }
    }

    fn open(&mut self, size: u64) -> FileId {
        let file = self.demand.open(size);
        self.sizes.insert(file, size);
        file
    }

    fn close(&mut self, file: FileId) {
        self.demand.close(file);
        self.sizes.remove(&file);
        self.act();
    }

    fn read(&mut self, file: FileId, offset: u64, length: u64) -> ReadId {
        self.reads += 1;
        let read = ReadId(self.reads);
        let end = (offset + length).min(self.sizes[&file]);
        self.expected.insert(read, (file, offset.min(end)..end));
        self.demand.read(file, offset, length, read);
        self.act();
        read
    }

    /// Carries the actions out, and checks each.
    fn act(&mut self) {
        while let Some(action) = self.demand.poll() {
            match action {
                Action::Fetch { chunk, file, range, .. } => {
                    assert!(range.start < range.end && range.end <= self.sizes[&file], "{range:?}");
                    assert!(range.end - range.start <= self.bounds.chunk_bytes, "{range:?}");
                    self.fetched.push((file, range.clone()));
                    self.asked.push((chunk, file, range));
                }
                Action::Cancel(chunk) => {
                    assert!(self.asked.iter().any(|(asked, ..)| *asked == chunk), "{chunk:?}");
                    assert!(self.cancelled.insert(chunk), "{chunk:?} was cancelled twice");
                }
                Action::Release(chunk) => {
                    assert!(self.here.remove(&chunk).is_some(), "{chunk:?} is not here");
                }
                Action::Answer(read, parts) => self.check(read, &parts),
                Action::Fail(read, _) => {
                    assert!(self.expected.remove(&read).is_some(), "{read:?} ended twice");
                    self.failed += 1;
                }
            }
            let taken = self.asked.len() + self.here.len();
            assert!(taken <= self.bounds.leases, "{taken} leases of {:?}", self.bounds);
        }
        assert_eq!(self.demand.leases_taken(), self.asked.len() + self.here.len());
        assert_eq!(self.demand.waiting(), self.expected.len());
    }

    /// A read's bytes must be exactly those of its file, each at its offset.
    fn check(&mut self, read: ReadId, parts: &[Part]) {
        let (file, range) = self.expected.remove(&read).expect("it ends once");
        let mut at = range.start;
        for Part { chunk, bytes } in parts {
            let (of, held) = &self.here[chunk];
            let first = held.start + bytes.start as u64;
            let length = (bytes.end - bytes.start) as u64;
            assert!(first + length <= held.end, "{bytes:?} of {held:?}");
            for step in [0, length / 2, length - 1] {
                assert_eq!(byte(*of, first + step), byte(file, at + step), "{read:?}");
            }
            assert_eq!((*of, first), (file, at), "{read:?} of {range:?}");
            at += length;
        }
        assert_eq!(at, range.end, "{read:?} of {range:?}: {parts:?}");
        self.answered += 1;
    }

    /// One requested chunk lands.
    fn land(&mut self, place: usize, is_right: bool) {
        let (chunk, file, range) = self.asked.remove(place);
        let was_cancelled = self.cancelled.remove(&chunk);
        // A cancelled chunk may arrive nevertheless.
        if is_right {
            self.here.insert(chunk, (file, range));
        }
        self.demand.landed(chunk, is_right);
        self.act();
        if was_cancelled {
            assert!(!self.here.contains_key(&chunk), "{chunk:?} was not wanted");
        }
    }

    fn land_all(&mut self) {
        while !self.asked.is_empty() {
            self.land(0, true);
        }
    }

    fn fetched_bytes(&self) -> u64 {
        self.fetched.iter().map(|(_, range)| range.end - range.start).sum()
    }
}

#[test]
fn what_is_read_in_order_is_fetched_once_and_ahead() {
    for (size, step) in [(100 * SLOT + 17, SLOT), (40 * SLOT, 128 << 10), (SLOT / 2, 4096)] {
        let mut world = World::new(48, SLOT);
        let file = world.open(size);
        let mut deepest = 0;
        for offset in (0..size).step_by(usize::try_from(step).expect("short")) {
            world.read(file, offset, step);
            deepest = deepest.max(world.asked.len());
            while !world.expected.is_empty() {
                world.land(0, true);
            }
        }
        assert_eq!(world.fetched_bytes(), size, "no byte twice");
        assert_eq!(world.answered, size.div_ceil(step));
        if size > 90 * SLOT {
            assert!(deepest >= 30, "only {deepest} ahead");
            let whole = world.fetched.iter().filter(|(_, range)| range.end - range.start == SLOT);
            assert!(whole.count() >= 95, "{:?}", world.fetched);
        }
        world.close(file);
        world.land_all();
        assert_eq!(world.demand.leases_taken(), 0);
    }
}

#[test]
fn small_reads_anywhere_bring_little_more_than_they_ask_for() {
    let mut world = World::new(48, SLOT);
    let size = 1 << 30;
    let file = world.open(size);
    let mut random = SplitMix64(7);
    let mut wanted = 0;
    for _ in 0..2_000 {
        let offset = (random.next_word() % (size - 65_536)) / 4096 * 4096;
        world.read(file, offset, 40 << 10);
        wanted += 40 << 10;
        world.land_all();
    }
    let fetched = world.fetched_bytes();
    assert!(fetched * 100 <= wanted * 102, "{fetched} for {wanted}");
}

/// Reads records of 39,000 bytes at equal distances, of whole pages or not; how many of the last 50
/// of 60 reads waited, and the bytes that were fetched for each read one.
fn read_records(distance: u64, are_pages: bool) -> (usize, f64) {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    let (mut waited, mut wanted) = (0, 0);
    for step in 0..60 {
        let record = 4_711 + step * distance..4_711 + step * distance + 39_000;
        let (start, end) = match are_pages {
            true => (record.start / 4096 * 4096, record.end.next_multiple_of(4096)),
            false => (record.start, record.end),
        };
        world.read(file, start, end - start);
        wanted += end - start;
        waited += usize::from(step >= 10 && !world.expected.is_empty());
        world.land_all();
    }
    let ahead = world.here.values().map(|(_, range)| range.end - range.start).sum::<u64>();
    let fetched = (world.fetched_bytes() - ahead) as f64 / wanted as f64;
    world.close(file);
    assert_eq!(world.demand.leases_taken(), 0);
    (waited, fetched)
}

#[test]
fn reads_at_equal_distances_are_fetched_ahead() {
    for distance in [39_001, 100_000, 1_000_000, 17 * SLOT] {
        assert_eq!(read_records(distance, false), (0, 1.0), "{distance}");
    }
    // The page cache requests whole pages, so the distances differ.
    for distance in [100_000, 777_777, 1_000_001, 17 * SLOT + 17] {
        let (waited, fetched) = read_records(distance, true);
        assert!(waited <= 5 && fetched <= 1.2, "{waited} {fetched} of {distance}");
    }
}

#[test]
fn files_that_are_read_at_equal_distances_share_what_is_ahead() {
    let mut world = World::new(48, SLOT);
    let (often, rarely) = (world.open(1 << 40), world.open(1 << 40));
    for step in 0..160 {
        world.read(often, step * 10 * SLOT, 40_960);
        if step % 4 == 0 {
            world.read(rarely, step * 10 * SLOT, 40_960);
        }
        world.land_all();
    }
    for file in [often, rarely] {
        let held = world.here.values().filter(|(of, _)| *of == file).count();
        assert!((15..=19).contains(&held), "{held}");
    }
}

#[test]
fn a_distance_that_changes_ends_what_is_ahead() {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    for step in 0..8 {
        world.read(file, step * 10 * SLOT, 40_960);
        while !world.expected.is_empty() {
            world.land(0, true);
        }
    }
    let ahead: Vec<ChunkId> = world.asked.iter().map(|(chunk, ..)| *chunk).collect();
    assert!(!ahead.is_empty());
    world.read(file, 500 * SLOT, 40_960);
    assert!(ahead.iter().all(|chunk| world.cancelled.contains(chunk)), "{ahead:?}");
    world.land_all();
    assert_eq!(world.here.len(), 0, "nothing of it is kept");
}

#[test]
fn a_window_grows_with_what_was_read() {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    // Starts in the middle: the first read counts as a random one.
    let start = 100 * SLOT + 4096;
    let mut ahead = Vec::new();
    for step in 0..6 {
        world.read(file, start + step * 65_536, 65_536);
        let front = world.fetched.iter().map(|(_, range)| range.end).max().expect("some");
        ahead.push(front - (start + (step + 1) * 65_536));
        world.land_all();
    }
    assert_eq!(ahead[0], 0);
    assert!(ahead[1] <= 4 * 65_536 && ahead.is_sorted(), "{ahead:?}");
    assert!(ahead[5] >= 8 * 65_536, "{ahead:?}");
}

#[test]
fn several_streams_of_one_file_go_on_side_by_side() {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    let starts = [0, 300 * SLOT, 600 * SLOT];
    for step in 0..64 {
        for start in starts {
            world.read(file, start + step * 262_144, 262_144);
        }
        world.land_all();
    }
    let read = 3 * 64 * 262_144;
    assert!(world.fetched_bytes() <= read + 48 * SLOT, "{}", world.fetched_bytes());
    let mut ranges: Vec<_> = world.fetched.iter().map(|(_, range)| range.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "no byte twice");
    // Most reads found bytes ahead, so there were far fewer requests than reads.
    assert!(ranges.len() < 3 * 40, "{}", ranges.len());
}

#[test]
fn who_reads_elsewhere_does_not_wait_for_what_was_ahead() {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    for step in 0..8 {
        world.read(file, step * SLOT, SLOT);
        world.land_all();
    }
    world.read(file, 8 * SLOT, SLOT);
    while !world.expected.is_empty() {
        world.land(0, true);
    }
    let asked: Vec<ChunkId> = world.asked.iter().map(|(chunk, ..)| *chunk).collect();
    let ahead = world.here.len() + asked.len();
    assert!(ahead > 8 && !asked.is_empty(), "{ahead}");
    for step in 0..20 {
        world.read(file, 500 * SLOT + step * step * SLOT, 4096);
    }
    assert!(asked.iter().all(|chunk| world.cancelled.contains(chunk)), "{asked:?}");
    world.land_all();
    assert!(world.expected.is_empty());
    assert_eq!(world.here.len(), 0, "nothing of it is kept");
}

#[test]
fn files_share_what_is_read_ahead_and_the_waiting_comes_first() {
    let mut world = World::new(48, SLOT);
    let greedy = world.open(1 << 30);
    for step in 0..40 {
        world.read(greedy, step * SLOT, SLOT);
        world.land_all();
    }
    let others: Vec<FileId> = (0..8).map(|_| world.open(1 << 30)).collect();
    for step in 0..40 {
        for file in &others {
            world.read(*file, step * SLOT, SLOT);
            let urgent = world.expected.len();
            assert!(urgent <= 1, "it waits for others");
            while !world.expected.is_empty() {
                let last = world.asked.len() - 1;
                world.land(last, true);
            }
        }
    }
    for file in &others {
        let held = world.here.values().filter(|(of, _)| of == file).count();
        assert!(held <= 36, "{held}");
    }
    let read: u64 = 8 * 40 + 40;
    assert!(world.fetched_bytes() / SLOT <= read + 3 * 48, "{}", world.fetched_bytes() / SLOT);
}

#[test]
fn one_lease_is_enough_for_every_read() {
    let mut world = World::new(1, 65_536);
    let files: Vec<FileId> = (0..3).map(|_| world.open(1 << 20)).collect();
    for step in 0..16 {
        for file in &files {
            world.read(*file, step * 65_536 + 4096, 65_536);
            world.read(*file, step * 65_536, 4096);
        }
    }
    while !world.asked.is_empty() {
        world.land(0, true);
    }
    assert!(world.expected.is_empty(), "{} wait for ever", world.expected.len());
}

#[test]
fn what_does_not_come_fails_those_who_wait_for_it_alone() {
    let mut world = World::new(48, SLOT);
    let file = world.open(1 << 30);
    world.read(file, 0, 65_536);
    world.read(file, 500 * SLOT, 65_536);
    assert_eq!(world.expected.len(), 2);
    let first = world.asked.iter().position(|(_, _, range)| range.start == 0).expect("asked");
    world.land(first, false);
    assert_eq!((world.failed, world.answered), (1, 0));
    world.land_all();
    assert_eq!((world.failed, world.answered), (1, 1));
    // It is requested again.
    let again = world.read(file, 0, 65_536);
    assert!(world.expected.contains_key(&again) && !world.asked.is_empty());
    world.land_all();
    assert_eq!((world.failed, world.answered), (1, 2));
}

#[test]
fn who_gives_up_is_not_waited_for_and_nothing_is_read_beyond_the_end() {
    let mut world = World::new(4, SLOT);
    let file = world.open(10_000);
    for (offset, length) in [(10_000, 4096), (20_000, 1), (0, 0)] {
        world.read(file, offset, length);
    }
    assert_eq!((world.answered, world.asked.len()), (3, 0));
    let read = world.read(file, 9_000, 4096);
    assert_eq!(world.asked[0].2, 9_000..10_000);
    assert!(world.demand.give_up(read) && !world.demand.give_up(read));
    world.expected.remove(&read);
    world.act();
    assert_eq!(world.cancelled.len(), 1);
    world.land(0, true);
    assert_eq!(world.here.len(), 0);
}

/// Random reads, failures and few leases: every read ends once, with its bytes or with an error,
/// and at the end no lease is held.
#[test]
fn whatever_is_read_ends_rightly() {
    let times: u64 = std::env::var("INRUSH_SIM_TIMES").map_or(1, |text| text.parse().expect("n"));
    for seed in 0..1_000 * times {
        let mut random = SplitMix64(seed);
        let mut below = |most: u64| random.next_word() % most;
        let chunk_bytes = [65_536, 262_144, SLOT][below(3) as usize];
        let leases = [1, 2, 3, 7, 48][below(5) as usize];
        let mut world = World::new(leases, chunk_bytes);
        // With the place and the distance of the next read.
        let mut files: Vec<(FileId, u64, u64)> = Vec::new();
        let failing = [0, 0, 10][below(3) as usize];
        for _ in 0..300 {
            match below(20) {
                0 | 1 if files.len() < 6 => {
                    let size = [0, 1, 4096, 70_000, 3 * SLOT + 5, 20 * SLOT][below(6) as usize];
                    let gap = [0, 0, 50_000, 262_144][below(4) as usize];
                    files.push((world.open(size), below(size + 1), gap));
                }
                2 if !files.is_empty() && below(4) == 0 => {
                    let place = below(files.len() as u64) as usize;
                    // Its reads have ended: the kernel guarantees it.
                    while !world.expected.is_empty() {
                        world.land(0, true);
                    }
                    world.close(files.swap_remove(place).0);
                }
                3..=11 if !files.is_empty() => {
                    let place = below(files.len() as u64) as usize;
                    let (file, at, gap) = &mut files[place];
                    let length = [4096, 40_960, 65_536, chunk_bytes][below(4) as usize];
                    let length = length.min(chunk_bytes);
                    if below(6) == 0 {
                        *at = below(world.sizes[file] + 10_000);
                    }
                    let offset = *at;
                    *at += length + *gap;
                    let file = *file;
                    let read = world.read(file, offset, length);
                    if below(30) == 0 && world.demand.give_up(read) {
                        world.expected.remove(&read);
                        world.act();
                    }
                }
                _ if !world.asked.is_empty() => {
                    let place = below(world.asked.len() as u64) as usize;
                    let is_right = below(100) >= failing;
                    world.land(place, is_right);
                }
                _ => {}
            }
        }
        world.land_all();
        assert!(world.expected.is_empty(), "seed {seed}: {:?}", world.expected);
        for (file, ..) in files {
            world.close(file);
        }
        world.land_all();
        assert_eq!((world.here.len(), world.demand.leases_taken()), (0, 0), "seed {seed}");
    }
}
