//! The user's limit on a run's bytes per second, and its fair division among clients.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::{
    BANDWIDTH_AHEAD_US, BANDWIDTH_CLAIM_US, BANDWIDTH_CLIENTS_MAX, BANDWIDTH_PART_US,
    BANDWIDTH_YIELD_US, PART_BYTES_DEFAULT, PART_BYTES_MIN,
};

/// Part size under a limit, if the user gives none, in bytes. Each part arrives as fast as
/// possible, and then all clients pause until its time has passed; short parts make that even.
#[must_use]
pub fn part_bytes(bytes_per_second: NonZeroU64) -> u64 {
    let bytes = u128::from(bytes_per_second.get()) * u128::from(BANDWIDTH_PART_US) / 1_000_000;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).min(PART_BYTES_DEFAULT);
    (bytes - bytes % PART_BYTES_MIN).max(PART_BYTES_MIN)
}

/// Limits the average bytes per second of a run. A request is charged when it is sent, and no other
/// is sent until its time has passed.
///
/// Clients (a channel or a run of files each) get equal shares as far as they use them: a client
/// that is ahead of a waiting one lets it go first (start-time fair queueing of Goyal, Vin and
/// Cheng, 1996). A client that does not take its turn delays nobody.
#[derive(Debug)]
pub struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When the next bytes may be requested, in microseconds.
    next_us: AtomicU64,
    /// Number of clients.
    count: AtomicUsize,
    clients: [ClientShare; BANDWIDTH_CLIENTS_MAX],
    /// Lower bound of every client's position: idle time is not saved up.
    least: AtomicU64,
}

/// One client of a bandwidth.
#[derive(Debug, Default)]
struct ClientShare {
    /// Bytes charged to it, plus those that it let pass while idle.
    charged: AtomicU64,
    /// It waits for its turn until then, in microseconds; 0 if it does not wait.
    waits_until_us: AtomicU64,
}

impl Bandwidth {
    /// A limit in bytes per second.
    #[must_use]
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self {
            bytes_per_second,
            next_us: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            clients: std::array::from_fn(|_| ClientShare::default()),
            least: AtomicU64::new(0),
        }
    }

    /// The limit of these bytes per second that clients share, if there is one.
    #[must_use]
    pub fn of(limit: Option<NonZeroU64>) -> Option<Arc<Self>> {
        limit.map(|bytes_per_second| Arc::new(Self::new(bytes_per_second)))
    }

    /// Adds a client; returns its number. Clients beyond the limit share the last number.
    pub fn join(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed).min(BANDWIDTH_CLIENTS_MAX - 1)
    }

    /// How long a client must wait before its next request, in microseconds; 0 if it need not.
    #[must_use]
    pub fn wait_us(&self, client: usize, now_us: u64) -> u64 {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let wait_us = match next_us.saturating_sub(now_us) {
            0 if self.is_ahead(client, now_us) => BANDWIDTH_YIELD_US,
            wait_us => wait_us,
        };
        if wait_us > 0 {
            let until_us = next_us.max(now_us).saturating_add(BANDWIDTH_CLAIM_US);
            self.clients[client].waits_until_us.store(until_us, Ordering::Relaxed);
        }
        wait_us
    }

    /// A client's position: the lowest one has had the least.
    fn place(&self, client: &ClientShare) -> u64 {
        client.charged.load(Ordering::Relaxed).max(self.least.load(Ordering::Relaxed))
    }

    /// True if it is so far ahead of a waiting client that it lets that one go first.
    fn is_ahead(&self, client: usize, now_us: u64) -> bool {
        let own = self.place(&self.clients[client]);
        let count = self.count.load(Ordering::Relaxed).min(BANDWIDTH_CLIENTS_MAX);
        let mut others = self.clients[..count].iter().enumerate();
        others.any(|(number, other)| {
            number != client
                && now_us < other.waits_until_us.load(Ordering::Relaxed)
                && self.place(other).saturating_add(self.tolerance()) < own
        })
    }

    /// How many bytes a client may be ahead of another. With short requests, waking the next client
    /// each time would waste time.
    fn tolerance(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_second.get()) * u128::from(BANDWIDTH_AHEAD_US);
        u64::try_from(bytes / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Charges a client for a request of `bytes` bytes.
    pub fn charge(&self, client: usize, now_us: u64, bytes: u64) {
        let own = &self.clients[client];
        let place = self.place(own);
        self.least.fetch_max(place.saturating_sub(self.tolerance()), Ordering::Relaxed);
        // The closures always return a value.
        let _ = own.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |charged| {
            Some(charged.max(place).saturating_add(bytes))
        });
        own.waits_until_us.store(0, Ordering::Relaxed);
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_second.get());
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        let charged = |next_us: u64| Some(next_us.max(now_us).saturating_add(micros));
        let _ = self.next_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bandwidth(rate: u64) -> Bandwidth {
        Bandwidth::new(NonZeroU64::new(rate).expect("not 0"))
    }

    #[test]
    fn what_is_asked_for_in_a_while_is_what_the_rate_allows() {
        for (rate, bytes) in [(1_000_000, 8 << 20), (100_000_000, 39_000), (3, 1), (7, 0)] {
            let bandwidth = bandwidth(rate);
            let only = bandwidth.join();
            let (mut now_us, mut asked) = (0, 0u64);
            for _ in 0..200 {
                assert!(bytes > 0 || bandwidth.wait_us(only, now_us) == 0, "nothing is charged");
                now_us += bandwidth.wait_us(only, now_us);
                bandwidth.charge(only, now_us, bytes);
                asked += bytes;
            }
            let allowed = rate as f64 * now_us as f64 / 1e6 + bytes as f64;
            assert!((asked as f64) <= allowed * 1.001 + 1.0, "{asked} of {allowed}");
            assert!(asked as f64 >= allowed * 0.999 - 1.0, "{asked} of {allowed}");
        }
    }

    #[test]
    fn the_first_second_has_what_a_second_may_have() {
        for rate in [1_000_000, 4_000_000, 20_000_000, 100_000_000, 10_000_000_000, u64::MAX] {
            let bandwidth = bandwidth(rate);
            let (only, part) = (bandwidth.join(), part_bytes(bandwidth.bytes_per_second));
            assert!((PART_BYTES_MIN..=PART_BYTES_DEFAULT).contains(&part), "{rate}: {part}");
            assert!(part.is_multiple_of(PART_BYTES_MIN), "{rate}: {part}");
            let (mut now_us, mut asked) = (0, 0u64);
            while now_us < 1_000_000 && asked < rate.saturating_mul(2) {
                asked = asked.saturating_add(part);
                bandwidth.charge(only, now_us, part);
                // At this rate a part takes no time that is counted.
                now_us += bandwidth.wait_us(only, now_us).max(1);
            }
            let most = (rate / 4).saturating_mul(5).max(2 * PART_BYTES_MIN);
            assert!(asked <= most, "{rate}: {asked} of {most} in the first second");
        }
    }

    #[test]
    fn time_in_which_nothing_was_asked_for_is_not_saved_up() {
        let bandwidth = bandwidth(1_000);
        let only = bandwidth.join();
        bandwidth.charge(only, 3_600_000_000, 1_000);
        assert_eq!(bandwidth.wait_us(only, 3_600_000_000), 1_000_000);
        bandwidth.charge(only, 3_600_000_000, u64::MAX);
        assert!(bandwidth.wait_us(only, 3_600_000_000) > u64::MAX / 2, "no overflow");
    }

    const RATE: u64 = 50_000_000;
    /// Pause between two checks of a client that does not sleep.
    const LOOK_US: u64 = 100;

    /// A client that wants all it can get during a period.
    struct Greedy {
        client: usize,
        bytes: u64,
        wants: std::ops::Range<u64>,
        /// When it checks again.
        look_us: u64,
        got: u64,
    }

    /// Lets the clients request, the first one without any pause; the others sleep until their turn
    /// may have come. Returns what each got.
    fn ask(lengths: &[(u64, std::ops::Range<u64>)], seconds: u64) -> Vec<u64> {
        let bandwidth = bandwidth(RATE);
        let begin = |(bytes, wants): &(u64, std::ops::Range<u64>)| {
            let (client, wants) = (bandwidth.join(), wants.clone());
            Greedy { client, bytes: *bytes, wants, look_us: 0, got: 0 }
        };
        let mut all: Vec<Greedy> = lengths.iter().map(begin).collect();
        for now_us in (0..seconds * 1_000_000).step_by(usize::try_from(LOOK_US).expect("few")) {
            for (number, one) in all.iter_mut().enumerate() {
                if !one.wants.contains(&now_us) || now_us < one.look_us {
                    continue;
                }
                let wait_us = bandwidth.wait_us(one.client, now_us);
                if wait_us == 0 {
                    bandwidth.charge(one.client, now_us, one.bytes);
                    one.got += one.bytes;
                }
                one.look_us = if number == 0 { 0 } else { now_us + wait_us };
            }
        }
        all.into_iter().map(|one| one.got).collect()
    }

    const LARGE: u64 = 8 << 20;
    const SMALL: u64 = 39_000;

    #[test]
    fn who_asks_first_and_most_gets_no_more_than_others() {
        let always = || 0..u64::MAX;
        for [first, second] in [[LARGE, LARGE], [SMALL, LARGE], [LARGE, SMALL], [SMALL, SMALL]] {
            let got = ask(&[(first, always()), (second, always())], 20);
            let sum = got.iter().sum::<u64>();
            assert!(sum > 20 * RATE / 100 * 90, "{first}, {second}: {got:?} is less than allowed");
            // Except for a request of each, and the lead that is allowed.
            let apart = 2 * LARGE + 2 * RATE * BANDWIDTH_AHEAD_US / 1_000_000;
            assert!(got[0].abs_diff(got[1]) <= apart, "{first}, {second}: {got:?}");
        }
        let many = vec![(LARGE, always()); 21];
        let got = ask(&many, 60);
        let (least, most) = (got.iter().min(), got.iter().max());
        assert!(most.expect("some") - least.expect("some") <= 3 * LARGE, "{got:?}");
    }

    #[test]
    fn who_does_not_come_holds_nobody_up_and_who_comes_late_has_nothing_saved_up() {
        let always = || 0..u64::MAX;
        // The second one leaves after a second, while it waits.
        let got = ask(&[(SMALL, always()), (LARGE, 0..1_000_000)], 10);
        assert!(got[0] > 9 * RATE / 100 * 90 && got[0] + got[1] <= 10 * RATE + LARGE, "{got:?}");
        // The third joins after nine seconds and gets a third of the last one.
        let got = ask(&[(LARGE, always()), (LARGE, always()), (LARGE, 9_000_000..u64::MAX)], 10);
        assert!(got[2] <= RATE / 3 + 2 * LARGE, "{got:?}");
        assert!(got[2] > 0, "{got:?}");
    }
}
