//! Bounds the bytes in flight of all streams of a process: requested, and not yet passed on. Pure.
//!
//! A range that waits for its turn fills its pipe, then its socket's receive buffer, which the
//! kernel lets grow to `tcp_rmem`'s maximum (tcp(7)). All sockets of a machine share one limit
//! (`tcp_mem`): above it the kernel drops received packets of every program. So a request is sent
//! only if its bytes have room here, and the room is freed when neither the stream nor a connection
//! holds the bytes any more. A connection that takes over the rest of a late range uses that
//! range's room.
//!
//! Half of the room is divided: each channel has its own part, whatever the others hold. The other
//! half goes to the first channel that needs it and has a reader. A channel that holds none of its
//! own part may always request one range.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::{
    PART_BYTES_MIN, STREAM_PART_BYTES_LEAST, STREAM_PART_BYTES_SHORT, STREAM_PARTS_MIN,
    STREAM_PRESSURE_HALVINGS_MAX, STREAM_PRESSURE_LOOK_US, STREAM_PRESSURE_REST_US,
};
use crate::plan::ranges::PartSize;
use crate::sys::tcp_memory::TcpMemory;

/// The byte budget of all streams of a process.
#[derive(Debug)]
pub struct StreamBudget {
    limit_bytes: u64,
    channels: AtomicU64,
    /// Bytes that channels hold beyond their own parts, and the total.
    common_bytes: AtomicU64,
    used_bytes: AtomicU64,
    /// How many times the limit is halved, because the machine's TCP memory was under pressure.
    halvings: AtomicU32,
    /// When the last halving ends, in microseconds.
    relief_us: AtomicU64,
    /// When the machine's TCP memory is sampled next, in microseconds, and the last sample.
    look_us: AtomicU64,
    tcp_memory: Mutex<Option<TcpMemory>>,
}

impl StreamBudget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let [common_bytes, used_bytes] = [0; 2].map(AtomicU64::new);
        Self {
            limit_bytes,
            channels: AtomicU64::new(0),
            common_bytes,
            used_bytes,
            halvings: AtomicU32::new(0),
            relief_us: AtomicU64::new(0),
            look_us: AtomicU64::new(0),
            tcp_memory: Mutex::default(),
        }
    }

    /// Adds a channel.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> ChannelBudget {
        self.channels.fetch_add(1, Ordering::Relaxed);
        ChannelBudget { budget: Arc::clone(self), own_bytes: Arc::default() }
    }

    /// Bytes in flight.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// True for the one channel that should sample the machine's TCP memory now and call
    /// [`Self::note_memory`].
    #[must_use]
    pub fn is_time_to_look(&self, now_us: u64) -> bool {
        let due_us = self.look_us.load(Ordering::Relaxed);
        let next_us = now_us + STREAM_PRESSURE_LOOK_US;
        now_us >= due_us
            && self
                .look_us
                .compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes a sample of the machine's TCP memory. Under pressure, now or since the last sample,
    /// the limit is halved at once, each time; it is doubled after [`STREAM_PRESSURE_REST_US`]
    /// without pressure.
    pub fn note_memory(&self, now_us: u64, memory: Option<TcpMemory>) {
        let mut last = self.tcp_memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, memory);
        self.note_pressure(
            now_us,
            memory.is_some_and(|now| now.is_under_pressure(&before.unwrap_or(now))),
        );
    }

    fn note_pressure(&self, now_us: u64, is_under_pressure: bool) {
        let halvings = self.halvings.load(Ordering::Relaxed);
        if is_under_pressure {
            self.halvings
                .store((halvings + 1).min(STREAM_PRESSURE_HALVINGS_MAX), Ordering::Relaxed);
        } else if halvings == 0 || now_us < self.relief_us.load(Ordering::Relaxed) {
            return;
        } else {
            self.halvings.store(halvings - 1, Ordering::Relaxed);
        }
        self.relief_us.store(now_us + STREAM_PRESSURE_REST_US, Ordering::Relaxed);
    }

    fn limit_now(&self) -> u64 {
        self.limit_bytes >> self.halvings.load(Ordering::Relaxed)
    }

    fn channels(&self) -> u64 {
        self.channels.load(Ordering::Relaxed).max(1)
    }
}

/// A channel's view of the budget.
#[derive(Debug)]
pub struct ChannelBudget {
    budget: Arc<StreamBudget>,
    /// Bytes that it holds of its own part.
    own_bytes: Arc<AtomicU64>,
}

impl ChannelBudget {
    /// Length of the next range if `requests` are to be in flight and `requested` were requested
    /// since the stream began: at most `longest`, shorter if that many would have no room.
    ///
    /// The first ranges are requested at the same time and share the network's rate. Each is longer
    /// than the one before, so they end one after the other: the reader gets its first bytes after
    /// `1 / requests` of the time that all of them take.
    #[must_use]
    pub fn part(&self, requested: u64, requests: u32, longest: PartSize) -> PartSize {
        let share = self.budget.limit_now() / self.budget.channels();
        let least = (share / STREAM_PARTS_MIN).clamp(STREAM_PART_BYTES_LEAST, PART_BYTES_MIN);
        let each = share / u64::from(requests.max(1));
        let wanted = (each / 2).max(STREAM_PART_BYTES_SHORT.min(each)).max(least);
        let part = PartSize::new(1 << wanted.ilog2()).map_or(longest, |part| part.min(longest));
        let growing = (part.bytes() / u64::from(requests.max(1))).saturating_mul(requested + 1);
        let growing = growing.max(1).next_multiple_of(STREAM_PART_BYTES_LEAST);
        PartSize::new(growing).map_or(part, |growing| part.min(growing))
    }

    /// Reserves room for a range, if there is any. The common half is only for channels with a
    /// reader, because it is freed only as bytes are passed on.
    #[must_use]
    pub fn take(&self, length_bytes: u64, is_read: bool) -> Option<RangeRoom> {
        let budget = &self.budget;
        let divided = budget.limit_now() / 2;
        let own = self.own_bytes.load(Ordering::Relaxed);
        let fits_own = own + length_bytes <= divided / budget.channels();
        let is_common = !fits_own
            && is_read
            && budget
                .common_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |common| {
                    (common + length_bytes <= divided).then_some(common + length_bytes)
                })
                .is_ok();
        if !fits_own && !is_common && own > 0 {
            return None;
        }
        if !is_common {
            self.own_bytes.fetch_add(length_bytes, Ordering::Relaxed);
        }
        budget.used_bytes.fetch_add(length_bytes, Ordering::Relaxed);
        Some(RangeRoom {
            budget: Arc::clone(budget),
            own_bytes: (!is_common).then(|| Arc::clone(&self.own_bytes)),
            length_bytes,
        })
    }

    /// The budget of all channels.
    #[must_use]
    pub fn all(&self) -> &StreamBudget {
        &self.budget
    }
}

impl Drop for ChannelBudget {
    fn drop(&mut self) {
        self.budget.channels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The room of one range, freed on drop.
#[derive(Debug)]
pub struct RangeRoom {
    budget: Arc<StreamBudget>,
    /// The channel's own part, if the room was taken from there; `None`: the common half.
    own_bytes: Option<Arc<AtomicU64>>,
    length_bytes: u64,
}

impl Drop for RangeRoom {
    fn drop(&mut self) {
        let from = self.own_bytes.as_deref().unwrap_or(&self.budget.common_bytes);
        from.fetch_sub(self.length_bytes, Ordering::Relaxed);
        self.budget.used_bytes.fetch_sub(self.length_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget(limit_mib: u64) -> Arc<StreamBudget> {
        Arc::new(StreamBudget::new(limit_mib * MIB))
    }

    /// Reserves ranges of this length while there is room.
    fn fill(channel: &ChannelBudget, length_bytes: u64) -> Vec<RangeRoom> {
        std::iter::from_fn(|| channel.take(length_bytes, true)).take(1000).collect()
    }

    #[test]
    fn one_channel_has_all_of_it_and_gets_back_what_it_drops() {
        let budget = budget(256);
        let channel = budget.join();
        let mut rooms = fill(&channel, 8 * MIB);
        assert_eq!((rooms.len(), budget.used_bytes()), (32, 256 * MIB));
        assert!(channel.take(1, true).is_none());
        rooms.truncate(30);
        assert_eq!(fill(&channel, 8 * MIB).len(), 2, "dropped at once");
        drop(rooms);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_channel_keeps_its_part_whatever_the_others_hold() {
        let budget = budget(256);
        let [greedy, late] = [0; 2].map(|_| budget.join());
        let held = fill(&greedy, 8 * MIB);
        assert_eq!(held.len(), 24, "its own quarter, and the half that is common");
        let rooms = fill(&late, 8 * MIB);
        assert_eq!(rooms.len(), 8, "its own quarter");
        assert_eq!(budget.used_bytes(), 256 * MIB);
        drop((held, greedy));
        assert_eq!(fill(&late, 8 * MIB).len(), 24, "the other has left");
    }

    #[test]
    fn a_channel_without_a_reader_has_its_part_alone() {
        let budget = budget(256);
        let [early, read] = [0; 2].map(|_| budget.join());
        let held: Vec<_> = (0..100).map_while(|_| early.take(8 * MIB, false)).collect();
        assert_eq!(held.len(), 8, "its own quarter");
        assert_eq!(fill(&read, 8 * MIB).len(), 24, "the half that is common, too");
    }

    #[test]
    fn one_pressure_halves_it_once_however_many_channels_look() {
        let budget = budget(256);
        let memory = |dropped| Some(TcpMemory { dropped: Some(dropped), ..TcpMemory::default() });
        (0..4).for_each(|_| budget.note_memory(0, memory(7)));
        assert_eq!(budget.limit_now(), 256 * MIB, "it was so before");
        (0..4).for_each(|_| budget.note_memory(0, memory(8)));
        assert_eq!(budget.limit_now(), 128 * MIB);
    }

    #[test]
    fn a_channel_that_holds_nothing_requests_one_range_however_long() {
        let budget = budget(4);
        let [first, second] = [0; 2].map(|_| budget.join());
        let held = [&first, &second].map(|channel| channel.take(8 * MIB, true));
        assert!(held.iter().all(Option::is_some));
        assert!(first.take(8 * MIB, true).is_none() && second.take(8 * MIB, true).is_none());
    }

    #[test]
    fn parts_are_short_where_many_are_wanted_or_many_channels_share() {
        let budget = budget(256);
        let longest = PartSize::new(8 * MIB).expect("aligned");
        let mut channels = vec![budget.join()];
        let part = |channels: &[ChannelBudget], requests| {
            channels[0].part(1024, requests, longest).bytes()
        };
        assert_eq!(part(&channels, 4), 8 * MIB);
        assert_eq!(part(&channels, 16), 8 * MIB);
        assert_eq!(part(&channels, 17), 4 * MIB);
        assert_eq!(part(&channels, 32), 4 * MIB);
        assert_eq!(part(&channels, 64), 2 * MIB);
        assert_eq!(part(&channels, 128), 2 * MIB, "there is room for as many");
        assert_eq!(part(&channels, 129), MIB);
        assert_eq!(part(&channels, 1024), MIB, "no shorter: requests cost");
        channels.extend((1..20).map(|_| budget.join()));
        assert_eq!(part(&channels, 4), 2 * MIB);
        assert_eq!(part(&channels, 8), MIB);
        channels.extend((20..1000).map(|_| budget.join()));
        assert_eq!(part(&channels, 8), STREAM_PART_BYTES_LEAST);
        let odd = PartSize::new(3 * MIB).expect("aligned");
        channels.truncate(1);
        assert_eq!(channels[0].part(1024, 1, odd), odd);
    }

    #[test]
    fn the_first_ranges_are_each_longer_than_the_one_before() {
        let budget = budget(256);
        let (channel, longest) = (budget.join(), PartSize::new(8 * MIB).expect("aligned"));
        let lengths = |requests, requested: std::ops::Range<u64>| -> Vec<u64> {
            requested.map(|at| channel.part(at, requests, longest).bytes() >> 10).collect()
        };
        assert_eq!(lengths(32, 0..4), [128, 256, 384, 512]);
        assert_eq!(lengths(32, 30..34), [3968, 4096, 4096, 4096]);
        assert_eq!(lengths(1, 0..2), [8192, 8192], "one alone shares the network with none");
        assert_eq!(lengths(128, 0..5), [64, 64, 64, 64, 128], "no shorter: requests cost");
        assert_eq!(lengths(0, 0..1), [8192]);
        let odd = PartSize::new(4096).expect("aligned");
        assert_eq!(channel.part(0, 32, odd), odd);
    }

    #[test]
    fn one_channel_alone_looks_at_a_time() {
        let budget = budget(256);
        assert!(budget.is_time_to_look(7) && !budget.is_time_to_look(7));
        assert!(!budget.is_time_to_look(7 + STREAM_PRESSURE_LOOK_US - 1));
        assert!(budget.is_time_to_look(7 + STREAM_PRESSURE_LOOK_US));
    }

    #[test]
    fn pressure_halves_it_at_once_and_rest_doubles_it() {
        let budget = budget(256);
        let channel = budget.join();
        let room_mib = || {
            let rooms = fill(&channel, MIB);
            rooms.len()
        };
        budget.note_pressure(0, true);
        assert_eq!(room_mib(), 128);
        (1..20).for_each(|now_us| budget.note_pressure(now_us, true));
        assert_eq!(room_mib(), 256 >> STREAM_PRESSURE_HALVINGS_MAX);
        budget.note_pressure(STREAM_PRESSURE_REST_US, false);
        assert_eq!(room_mib(), 256 >> STREAM_PRESSURE_HALVINGS_MAX, "not rested yet");
        (1..20).for_each(|times| budget.note_pressure(times * 2 * STREAM_PRESSURE_REST_US, false));
        assert_eq!(room_mib(), 256);
    }
}
