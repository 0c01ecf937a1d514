//! The numbers of requests in flight that a controller chooses from, and the goodput measured with
//! each.

use super::Bounds;
use crate::limits::{PACE_CHANGED_PER_MILLE, PACE_KNOWN_FOR_US, PACE_NEARLY_BEST_PER_MILLE};

/// Levels on each side of the start: 2^20 times as many requests exceed any bound.
const LEVELS_BESIDE_MAX: i32 = 40;

/// The result of one level.
#[derive(Debug, Clone, Copy)]
struct MeasuredLevel {
    /// Work per second, the mean of the last windows.
    work: u64,
    at_us: u64,
}

/// All levels between the bounds: every second one doubles.
#[derive(Debug)]
pub(super) struct Levels {
    requests: Vec<u32>,
    known: Vec<Option<MeasuredLevel>>,
}

impl Levels {
    pub(super) fn new(bounds: Bounds) -> Self {
        let start = f64::from(bounds.start.max(1));
        let beside = (-LEVELS_BESIDE_MAX..=LEVELS_BESIDE_MAX)
            .map(|step| round(start * std::f64::consts::SQRT_2.powi(step)));
        let between = beside.filter(|requests| (bounds.least..bounds.most).contains(requests));
        let mut requests: Vec<u32> =
            between.chain([bounds.least.max(1), bounds.most.max(1)]).collect();
        requests.sort_unstable();
        requests.dedup();
        Self { known: vec![None; requests.len()], requests }
    }

    /// The level of exactly this number of requests, or the next above.
    pub(super) fn of(&self, requests: u32) -> usize {
        self.requests.partition_point(|known| *known < requests).min(self.last())
    }

    pub(super) fn requests(&self, level: usize) -> u32 {
        self.requests[level]
    }

    pub(super) fn last(&self) -> usize {
        self.requests.len() - 1
    }

    /// Records the work per second of a window at this level.
    pub(super) fn note(&mut self, level: usize, work: u64, now_us: u64) {
        let mean = match self.known(level, now_us) {
            Some(before) if before.abs_diff(work) <= per_mille(before, PACE_CHANGED_PER_MILLE) => {
                before - before / 3 + work / 3
            }
            // A value from before the network changed must not be averaged.
            _ => work,
        };
        self.known[level] = Some(MeasuredLevel { work: mean, at_us: now_us });
    }

    /// Its recent result.
    pub(super) fn known(&self, level: usize, now_us: u64) -> Option<u64> {
        let known = self.known[level]?;
        (now_us.saturating_sub(known.at_us) < PACE_KNOWN_FOR_US).then_some(known.work)
    }

    /// True if no level above this one was measured recently.
    pub(super) fn is_new_above(&self, level: usize, now_us: u64) -> bool {
        (level + 1..self.requests.len()).all(|above| self.known(above, now_us).is_none())
    }

    /// The best recent result of any level.
    pub(super) fn best(&self, now_us: u64) -> u64 {
        (0..self.requests.len()).filter_map(|level| self.known(level, now_us)).max().unwrap_or(0)
    }

    /// The lowest level whose result is nearly the best.
    pub(super) fn choose(&self, now_us: u64) -> Option<usize> {
        let enough = per_mille(self.best(now_us), PACE_NEARLY_BEST_PER_MILLE);
        (0..self.requests.len())
            .find(|level| self.known(*level, now_us).is_some_and(|work| work >= enough))
    }

    /// Forgets all results: the network has changed.
    pub(super) fn forget(&mut self) {
        self.known.fill(None);
    }
}

/// `share` thousandths of a value.
pub(super) fn per_mille(value: u64, share: u64) -> u64 {
    let product = u128::from(value) * u128::from(share) / 1000;
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The nearest number of requests; saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn round(requests: f64) -> u32 {
    requests.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_step_above_the_last_and_the_bounds_are_levels() {
        let levels = Levels::new(Bounds { least: 4, start: 32, ..Bounds::fixed(1000) });
        let all = &levels.requests;
        assert_eq!((all[0], all[levels.last()]), (4, 1000));
        assert!(all.contains(&32) && all.contains(&64) && all.contains(&512), "{all:?}");
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        assert_eq!(levels.requests(levels.of(33)), 45);
        assert_eq!(levels.requests(levels.of(5000)), 1000);
        assert_eq!(Levels::new(Bounds::fixed(7)).requests, [7]);
    }

    #[test]
    fn the_lowest_that_is_nearly_best() {
        let mut levels = Levels::new(Bounds { least: 16, start: 16, ..Bounds::fixed(64) });
        assert_eq!(levels.choose(0), None);
        for (level, work) in [(0, 500), (1, 985), (2, 990), (3, 1000)] {
            levels.note(level, work, 0);
        }
        assert_eq!(levels.choose(0), Some(1));
        assert_eq!(levels.choose(PACE_KNOWN_FOR_US), None, "the past is forgotten");
    }
}
