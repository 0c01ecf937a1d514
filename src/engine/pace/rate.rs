//! Finds the request rate of a server that asks for fewer requests (503 "Slow Down", 429).
//!
//! What a server served while it refused other requests is what it can take. The rate drops
//! slightly below that and grows back along a cubic (like RFC 9438): quickly to just below the
//! refused rate, slowly past it, then ever faster, because a limit that has gone must be noticed
//! within seconds.
//!
//! Below the served rate a limit refuses almost nothing. Refusals there are random faults,
//! independent of the rate: then there is no rate for a while. One slice has too few requests to
//! distinguish the two; all since the first refusals decide ([`Row`]).
//!
//! A server that serves less than [`RATE_FEW`] requests per second refuses most of what is sent at
//! that rate, unlike faults. Below it, slices end by their number of requests, because a fixed time
//! has too few. The rate is quartered while most requests are refused, or set to a rate at which
//! none was if known, and doubled if none is refused for a while. While nothing is served at all it
//! stays at half of [`RATE_FEW`]: the server may be down. If many requests are refused at a rate
//! below an earlier served one, a lower rate does not help, whatever the share: the rate is
//! [`RATE_FEW`] for [`RATE_FAULTS_US`].

use crate::limits::{
    RATE_CUT_PER_MILLE, RATE_FAULTS_PER_MILLE, RATE_FAULTS_SLICES, RATE_FAULTS_TOLERATED_PER_MILLE,
    RATE_FAULTS_US, RATE_FEW, RATE_FEW_IN_VAIN, RATE_FEW_PLATEAU_REQUESTS,
    RATE_FEW_REFUSED_PER_MILLE, RATE_FEW_REQUESTS, RATE_GRACE_US, RATE_LEAST_PER_1000_SECONDS,
    RATE_PLATEAU_MAX_US, RATE_PLATEAU_REQUESTS, RATE_PLATEAU_US, RATE_REFUSED_MIN, RATE_ROW_US,
    RATE_SLICE_MAX_US, RATE_SLICE_MIN_US, RATE_SLICE_REQUESTS, RATE_TOLERATED_PER_MILLE,
    RATE_USED_PER_MILLE,
};

/// Requests of a slice with too few refusals to judge: from here on that many are tolerated.
const UNCLEAR_REQUESTS: u64 = RATE_REFUSED_MIN * 1000 / RATE_TOLERATED_PER_MILLE;

/// Requests at few per second after which earlier ones count half.
const FEW_ROW_REQUESTS: u64 = RATE_SLICE_REQUESTS * 5;

/// The request rate, if limited.
#[derive(Debug, Default)]
pub(super) struct Rate {
    limit: Option<Limit>,
    slice: Slice,
    /// Time of the last call.
    called_us: u64,
    /// Served requests per 1,000 seconds of the last slice without refusals.
    clean: u64,
    /// Refusals that count as faults, in thousandths of the requests, and until when.
    tolerated: u64,
    tolerated_until_us: u64,
    /// Recent refusals.
    row: Option<Row>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Limit {
    /// Requests per 1,000 seconds that were served at the last cut.
    served: u64,
    cut_us: u64,
    /// Almost nothing was served, which gives no rate. It is found from below, by doubling.
    is_guess: bool,
    /// It was doubled since: refusals now give a rate.
    is_doubled: bool,
    /// The highest rate of few requests since the cut without refusals, in requests per 1,000
    /// seconds; 0 if there was none.
    clean: u64,
    /// At most [`RATE_FEW`], for a server that refused most requests.
    is_few: bool,
}

/// Counts since more was refused than tolerated: a single slice says little.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    all: Count,
    /// Counts since the last cut, if any.
    since_cut: Count,
    /// The most served between two cuts of few requests since many are refused, in requests per
    /// 1,000 seconds; and the cuts below it after which many were still refused.
    most_served: u64,
    in_vain: u32,
    is_cut: bool,
    /// Slices with more refusals than tolerated.
    slices: u32,
    /// Without a rate it ends then unless there is another such slice; with a rate it ends when the
    /// rate is back at what was served.
    until_us: u64,
}

impl Row {
    fn add(&mut self, new: Count) {
        self.all.add(new);
        self.since_cut.add(new);
    }

    /// Refusals below a rate that was served before are not caused by the rate, nor are refusals of
    /// the lowest rate.
    fn judge_few(&mut self, rate: u64) {
        let share = self.since_cut.refused_per_mille();
        let served = rate * (1000 - share) / 1000;
        if share > RATE_FAULTS_PER_MILLE / 2 {
            let is_least = rate <= RATE_LEAST_PER_1000_SECONDS;
            self.in_vain += u32::from(is_least || rate <= self.most_served);
            self.most_served = self.most_served.max(served);
        } else {
            (self.in_vain, self.most_served) = (0, 0);
        }
    }

    /// The row of few requests has no end: old counts are halved.
    fn forget(&mut self) {
        if self.all.requests > FEW_ROW_REQUESTS {
            let Count { requests, refused } = self.all;
            self.all = Count { requests: requests / 2, refused: refused / 2 };
            self.slices /= 2;
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    requests: u64,
    refused: u64,
}

impl Count {
    fn add(&mut self, new: Self) {
        self.requests += new.requests;
        self.refused += new.refused;
    }

    fn answers(self) -> u64 {
        self.requests - self.refused
    }

    fn refused_per_mille(self) -> u64 {
        self.refused * 1000 / self.requests.max(1)
    }
}

/// Counts since the last decision.
#[derive(Debug, Default, Clone, Copy)]
struct Slice {
    begun_us: u64,
    answers: u64,
    refused: u64,
}

impl Rate {
    /// For a server that has not answered before this time.
    pub(super) fn begun(now_us: u64) -> Self {
        Self { called_us: now_us, ..Self::default() }
    }

    /// Takes the counts since the last call. True if the server asked for fewer and the rate is
    /// cut.
    pub(super) fn handle(&mut self, now_us: u64, answers: u64, refused: u64) -> bool {
        if self.slice.answers + self.slice.refused == 0 {
            // Nothing came before that, which says nothing about the server.
            self.slice.begun_us = self.called_us;
        }
        self.called_us = now_us;
        let few = self.limit.filter(|limit| limit.is_few);
        if few.is_some_and(|limit| limit.is_in_grace(now_us)) {
            // They would be a large part of the next slice.
            self.slice = Slice { begun_us: now_us, ..Slice::default() };
            return false;
        }
        self.slice.answers += answers;
        self.slice.refused += refused;
        let Slice { begun_us, answers, refused } = self.slice;
        let elapsed_us = now_us.saturating_sub(begun_us);
        let requests = answers + refused;
        // A single refusal may be the first of several: the next ones must not fall into another
        // slice, alone again.
        let is_unclear = (1..RATE_REFUSED_MIN).contains(&refused);
        let enough = if is_unclear { UNCLEAR_REQUESTS } else { RATE_SLICE_REQUESTS };
        let is_full = match few {
            Some(limit) => limit.is_conclusive(now_us, self.slice),
            None => requests >= enough || elapsed_us >= RATE_SLICE_MAX_US,
        };
        if elapsed_us < RATE_SLICE_MIN_US || !is_full {
            return false;
        }
        self.slice = Slice { begun_us: now_us, ..Slice::default() };
        if self.limit.is_some_and(|limit| limit.is_gone(now_us)) {
            self.limit = None;
        }
        self.row = self.row.filter(|row| match self.limit {
            Some(limit) if limit.is_few => true,
            Some(limit) => now_us < limit.cut_us + limit.plateau_us(),
            None => now_us < row.until_us,
        });
        let in_grace = self.limit.is_some_and(|limit| limit.is_in_grace(now_us));
        // Refusals above the served rate say nothing about faults.
        let is_tried = few.is_some_and(|limit| limit.is_tried(begun_us));
        let new = Count { requests, refused };
        if let Some(row) = &mut self.row
            && !in_grace
            && !is_tried
        {
            row.add(new);
            if few.is_some() {
                row.forget();
            }
        }
        let is_tolerated = new.refused_per_mille() <= self.tolerated(now_us);
        let are_faults = is_tolerated && now_us < self.tolerated_until_us;
        if refused == 0 || are_faults && few.is_some() {
            self.served_all(now_us, answers, elapsed_us);
            return false;
        }
        if in_grace || refused < RATE_REFUSED_MIN || is_tolerated {
            // Most is refused whatever the rate: do not grow.
            let are_most = is_tolerated && new.refused_per_mille() > RATE_FAULTS_PER_MILLE;
            if let Some(limit) = self.limit.as_mut().filter(|_| are_most) {
                limit.stay(now_us, elapsed_us);
            }
            return false;
        }
        let slice = Slice { begun_us, answers, refused };
        match few {
            Some(limit) if is_tried => self.refused_above(now_us, slice, limit),
            _ => self.refused(now_us, slice),
        }
    }

    /// A slice above the served rate with refusals. True: the rate is cut.
    fn refused_above(&mut self, now_us: u64, slice: Slice, limit: Limit) -> bool {
        let elapsed_us = now_us.saturating_sub(slice.begun_us);
        let served = rate_of(slice.answers, elapsed_us).max(limit.served / 2);
        let served = if limit.clean > 0 { limit.clean } else { served };
        let served = served.min(limit.served).max(RATE_LEAST_PER_1000_SECONDS);
        self.limit = Some(Limit { served, cut_us: now_us, is_few: true, ..Limit::default() });
        true
    }

    /// Nothing was served since the last cut of few requests: the server may be down, which gives
    /// no rate.
    fn refused_all(&mut self, now_us: u64, row: Row, limit: Limit) {
        let refused = row.since_cut.refused;
        if refused >= RATE_FEW_REQUESTS * 2 && limit.served <= row.most_served {
            // A server with a limit would have served some.
            self.lift_few(now_us);
        } else if refused >= RATE_SLICE_REQUESTS {
            self.row = None;
            self.limit = Some(Limit::few(RATE_FEW * 500, now_us));
        }
    }

    /// A rate of few requests does not help: uses [`RATE_FEW`] for a while.
    fn lift_few(&mut self, now_us: u64) {
        let served = RATE_FEW * 1000;
        self.row = None;
        (self.tolerated, self.tolerated_until_us) = (1000, now_us + RATE_FAULTS_US);
        self.limit = Some(Limit { served, cut_us: now_us, ..Limit::default() });
    }

    /// A slice with more refusals than tolerated. True if the rate is cut.
    fn refused(&mut self, now_us: u64, slice: Slice) -> bool {
        let Slice { begun_us, answers, refused } = slice;
        let (requests, elapsed_us) = (answers + refused, now_us.saturating_sub(begun_us));
        let (served, sent) = (rate_of(answers, elapsed_us), rate_of(requests, elapsed_us));
        let few = self.limit.filter(|limit| limit.is_few);
        let rate = self.limit.map(|limit| limit.rate(now_us));
        let known = rate.unwrap_or(self.clean);
        let new = Count { requests, refused };
        let mut row = self.row.unwrap_or(Row { all: new, since_cut: new, ..Row::default() });
        if few.is_some() && answers > 0 && row.since_cut.answers() == answers && !row.is_cut {
            // Nothing was served before: it may have been down.
            (row.all, row.since_cut) = (new, new);
        }
        row.slices += 1;
        row.until_us = now_us + RATE_ROW_US;
        self.row = Some(row);
        let (of_row, share) = (row.all.refused_per_mille(), row.since_cut.refused_per_mille());
        let may_be_faults = of_row <= RATE_FAULTS_PER_MILLE;
        if let Some(limit) = few {
            if row.since_cut.answers() == 0 {
                self.refused_all(now_us, row, limit);
                return false;
            }
            row.judge_few(limit.served);
            // Many more than in the whole row may be a limit that fell.
            let are_faults = may_be_faults && share <= of_row * 2 && row.is_cut;
            let are_faults = are_faults && row.slices >= RATE_FAULTS_SLICES;
            if row.in_vain >= RATE_FEW_IN_VAIN || are_faults {
                self.lift_few(now_us);
                return false;
            }
        }
        if may_be_faults {
            // A limit refuses far less after a cut, even one that let a burst through at first.
            let is_in_vain = share > RATE_TOLERATED_PER_MILLE && share * 2 > of_row;
            if row.is_cut && row.slices >= RATE_FAULTS_SLICES && is_in_vain {
                self.tolerated =
                    (of_row * 3).clamp(RATE_FAULTS_TOLERATED_PER_MILLE, RATE_FAULTS_PER_MILLE);
                self.tolerated_until_us = now_us + RATE_FAULTS_US;
                (self.limit, self.row) = (None, None);
                return false;
            }
            // Far less was sent than allowed: a lower rate would change nothing.
            if rate.is_some_and(|rate| sent * 2 < rate) {
                return false;
            }
        }
        // A few refusals occur by chance: without a rate, more than one slice is needed.
        let is_settled = rate.is_some() && now_us >= self.tolerated_until_us;
        if !is_settled && (row.slices == 1 || share <= self.tolerated(now_us)) {
            return false;
        }
        self.row = Some(Row { since_cut: Count::default(), is_cut: true, ..row });
        // If less was sent than allowed, the served rate is less exact than the share.
        let by_share = rate.unwrap_or(sent) * (1000 - share) / 1000;
        let served = if may_be_faults { served.max(by_share) } else { served };
        // A server that is briefly down serves nothing, and takes everything again afterwards.
        let was_guess = self.limit.is_some_and(|limit| limit.is_guess && !limit.is_doubled);
        let is_guess = served < known / 4 || was_guess;
        let cut = if few.is_some() { known / 4 } else { known / 2 };
        let served = served.max(cut).min(rate.unwrap_or(u64::MAX));
        let served = match few {
            Some(Limit { clean: clean @ 1.., .. }) => clean,
            Some(_) => served,
            None if rate.is_some() => served.max(RATE_FEW * 500),
            None => served.max(RATE_FEW * 1000),
        };
        let served = served.max(RATE_LEAST_PER_1000_SECONDS);
        let are_most = requests >= RATE_SLICE_REQUESTS
            && new.refused_per_mille() >= RATE_FEW_REFUSED_PER_MILLE;
        let is_few = few.is_some() || are_most && served <= RATE_FEW * 1000;
        if is_few && few.is_none() {
            // This many are no faults.
            (self.row, self.tolerated_until_us) = (None, now_us);
        }
        self.limit = Some(Limit { served, cut_us: now_us, is_guess, is_few, ..Limit::default() });
        true
    }

    /// Refusals tolerated now, in thousandths of the requests.
    fn tolerated(&self, now_us: u64) -> u64 {
        let faults = if now_us < self.tolerated_until_us { self.tolerated } else { 0 };
        faults.max(RATE_TOLERATED_PER_MILLE)
    }

    /// A slice without refusals, or, for few requests, with no more than faults.
    fn served_all(&mut self, now_us: u64, answers: u64, elapsed_us: u64) {
        let served = rate_of(answers, elapsed_us);
        let Some(limit) = &mut self.limit else {
            self.clean = served;
            return;
        };
        if limit.is_few {
            if limit.is_unused(now_us, answers, elapsed_us) {
                return limit.stay(now_us, elapsed_us);
            }
            let sent = limit.rate(now_us.saturating_sub(elapsed_us));
            limit.clean = limit.clean.max(sent);
        }
        if answers > 0 && (limit.is_guess || limit.may_double(now_us)) {
            *limit = limit.doubled(now_us);
            if limit.served >= self.clean.max(RATE_FEW * 2000) {
                self.limit = None;
            }
            return;
        }
        if served * 1000 < limit.rate(now_us) * RATE_USED_PER_MILLE {
            limit.stay(now_us, elapsed_us);
        }
    }

    /// Requests per second that may be sent, at least one; `None` if unlimited.
    #[must_use]
    pub(super) fn per_second(&self, now_us: u64) -> Option<u64> {
        self.limit.map(|limit| (limit.rate(now_us) / 1000).max(1))
    }

    /// Time between two requests, in nanoseconds; `None` if unlimited.
    #[must_use]
    pub(super) fn interval_ns(&self, now_us: u64) -> Option<u64> {
        self.limit.map(|limit| 1_000_000_000_000 / limit.rate(now_us))
    }
}

/// A rate that has grown to this many thousandths of the served one is no limit any more.
const RATE_GONE_PER_MILLE: u64 = 8000;

/// A count within a time, in requests per 1,000 seconds.
fn rate_of(count: u64, elapsed_us: u64) -> u64 {
    count * 1_000_000_000 / elapsed_us.max(1)
}

impl Limit {
    /// Tries few requests per second from now on.
    fn few(served: u64, now_us: u64) -> Self {
        let cut_us = now_us.saturating_sub(RATE_GRACE_US);
        Self { served, cut_us, is_guess: true, is_few: true, ..Self::default() }
    }

    /// Requests sent before the last cut may still be refused.
    fn is_in_grace(&self, now_us: u64) -> bool {
        let is_cut = !(self.is_few && self.is_doubled);
        is_cut && now_us < self.cut_us + RATE_GRACE_US
    }

    /// The rate is above what was served.
    fn is_tried(&self, now_us: u64) -> bool {
        self.is_doubled || self.per_mille(now_us) > 1000
    }

    /// Nothing was refused slightly above the served rate: far more may be possible.
    fn may_double(&self, now_us: u64) -> bool {
        self.is_few
            && self.served * 2 <= RATE_FEW * 1000
            && self.per_mille(now_us) >= 1000 + RATE_CUT_PER_MILLE
    }

    /// True if a slice of few requests is meaningful.
    fn is_conclusive(&self, now_us: u64, slice: Slice) -> bool {
        let Slice { begun_us, answers, refused } = slice;
        let (requests, elapsed_us) = (answers + refused, now_us.saturating_sub(begun_us));
        let is_tried = self.is_tried(now_us);
        // The rate is far too high.
        let is_far = refused >= RATE_FEW_REQUESTS && refused * 2 > requests;
        // Refusals above the served rate mean too much; they must not become part of another slice.
        let is_too_much = is_tried && refused >= RATE_REFUSED_MIN;
        let is_below = is_tried && !self.is_tried(begun_us) && requests > 0;
        let is_clean =
            refused == 0 && requests >= RATE_FEW_REQUESTS && elapsed_us >= RATE_SLICE_MAX_US;
        requests >= RATE_SLICE_REQUESTS || is_far || is_too_much || is_below || is_clean
    }

    /// Twice as many requests, to be judged again.
    fn doubled(self, now_us: u64) -> Self {
        let served = self.served * 2;
        let is_few = self.is_few && served <= RATE_FEW * 1000;
        let (is_guess, is_doubled) = (true, true);
        Self { served, cut_us: now_us, is_guess, is_doubled, is_few, ..self }
    }

    /// A rate that is not used says nothing about the server, so it does not grow meanwhile (like a
    /// congestion window, RFC 7661); otherwise its first use would be far too much.
    fn stay(&mut self, now_us: u64, elapsed_us: u64) {
        let grows_since_us = self.cut_us + self.plateau_us() + elapsed_us;
        if now_us > grows_since_us {
            self.cut_us += elapsed_us;
        }
    }

    /// True if fewer requests were sent than the rate at the slice's start allowed; one may fall
    /// into the next slice.
    fn is_unused(&self, now_us: u64, answers: u64, elapsed_us: u64) -> bool {
        rate_of(answers + 1, elapsed_us) * 1000
            < self.rate(now_us.saturating_sub(elapsed_us)) * RATE_USED_PER_MILLE
    }

    /// Requests per 1,000 seconds that may be sent.
    fn rate(&self, now_us: u64) -> u64 {
        (self.per_mille(now_us) * self.served / 1000).max(1)
    }

    /// True if it has grown so far that it limits nothing.
    fn is_gone(&self, now_us: u64) -> bool {
        self.per_mille(now_us) > RATE_GONE_PER_MILLE
    }

    /// Time until the rate is back at what was served; few requests need longer to be meaningful.
    fn plateau_us(&self) -> u64 {
        let requests_us = |requests: u64| requests * 1_000_000_000 / self.served;
        let us = requests_us(RATE_PLATEAU_REQUESTS).clamp(RATE_PLATEAU_US, RATE_PLATEAU_MAX_US);
        us.max(requests_us(RATE_FEW_PLATEAU_REQUESTS))
    }

    /// The rate in thousandths of what was served: [`RATE_CUT_PER_MILLE`] below it at first, equal
    /// after [`Self::plateau_us`].
    fn per_mille(&self, now_us: u64) -> u64 {
        let elapsed_us = i128::from(now_us.saturating_sub(self.cut_us));
        let plateau_us = i128::from(self.plateau_us());
        let from_plateau = elapsed_us - plateau_us;
        let cut = i128::from(RATE_CUT_PER_MILLE);
        let growth = cut * from_plateau.pow(3) / plateau_us.pow(3);
        u64::try_from(1000 + growth).unwrap_or(u64::MAX).min(RATE_GONE_PER_MILLE + 1)
    }
}

#[cfg(test)]
#[path = "rate_exact_tests.rs"]
mod exact_tests;

#[cfg(test)]
#[path = "rate_few_tests.rs"]
mod few_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of `limit` requests per second, and a client that sends all it may, or `wanted`;
    /// returns served and refused requests per second.
    fn seconds(
        rate: &mut Rate,
        from_us: u64,
        seconds: u64,
        limit: u64,
        wanted: u64,
    ) -> Vec<(u64, u64)> {
        const TICK_US: u64 = 10_000;
        let mut seen = Vec::new();
        let (mut owed, mut room) = (0, 0);
        for second in 0..seconds {
            let (mut served, mut refused) = (0, 0);
            for tick in 0..1_000_000 / TICK_US {
                let now_us = from_us + second * 1_000_000 + tick * TICK_US;
                owed += rate.per_second(now_us).unwrap_or(wanted).min(wanted) * TICK_US;
                room = (room + limit * TICK_US).min((limit * 20_000).max(1_000_000));
                let (asked, may) = (owed / 1_000_000, room / 1_000_000);
                let answers = asked.min(may);
                owed -= asked * 1_000_000;
                room -= answers * 1_000_000;
                served += answers;
                refused += asked - answers;
                rate.handle(now_us, answers, asked - answers);
            }
            seen.push((served, refused));
        }
        seen
    }

    #[test]
    fn nothing_is_limited_that_is_not_refused() {
        let mut rate = Rate::default();
        seconds(&mut rate, 0, 5, 10_000, 5_000);
        assert_eq!(rate.per_second(5_000_000), None);
    }

    #[test]
    fn what_is_refused_is_found_and_nearly_used_up() {
        let limits = [100, 200, 2_000, 50_000].into_iter();
        let cases = limits.flat_map(|limit| [11, 13, 16, 20, 70].map(|tenths| (limit, tenths)));
        for (limit, tenths) in cases {
            let mut rate = Rate::default();
            let seen = seconds(&mut rate, 0, 20, limit, limit * tenths / 10);
            let settled = &seen[4..];
            let served: u64 = settled.iter().map(|(served, _)| served).sum();
            let refused: u64 = settled.iter().map(|(_, refused)| refused).sum();
            let all = limit * settled.len() as u64;
            assert!(served * 100 >= all * 93, "{limit}, {tenths}: {seen:?}");
            assert!(refused * 100 <= all * 2, "{limit}, {tenths}: {seen:?}");
        }
    }

    #[test]
    fn a_limit_that_rises_is_won_back_within_three_seconds() {
        let mut rate = Rate::default();
        seconds(&mut rate, 0, 10, 1_000, 20_000);
        let seen = seconds(&mut rate, 10_000_000, 8, 2_000, 20_000);
        assert!(seen[3..].iter().all(|(served, _)| *served >= 1_850), "{seen:?}");
    }

    #[test]
    fn a_rate_that_nobody_uses_does_not_grow() {
        let mut rate = Rate::default();
        seconds(&mut rate, 0, 10, 1_000, 20_000);
        seconds(&mut rate, 10_000_000, 20, 1_000, 500);
        let unused = rate.per_second(30_000_000).expect("a rate");
        assert!((900..1_200).contains(&unused), "{unused}");
        let seen = seconds(&mut rate, 30_000_000, 10, 1_000, 20_000);
        let refused: u64 = seen.iter().map(|(_, refused)| refused).sum();
        assert!(refused <= 200, "{seen:?}");
    }

    #[test]
    fn a_server_that_is_away_for_a_moment_is_asked_as_before() {
        for away_ms in [100, 300, 1_000, 5_000] {
            let mut rate = Rate::default();
            seconds(&mut rate, 0, 3, 10_000, 1_600);
            for tick in 0..away_ms / 10 {
                let now_us = 3_000_000 + tick * 10_000;
                let asked = rate.per_second(now_us).unwrap_or(1_600) / 100;
                rate.handle(now_us, 0, asked.max(1));
            }
            let from_us = 3_000_000 + away_ms * 1_000;
            let seen = seconds(&mut rate, from_us, 8, 10_000, 1_600);
            assert!(seen[5..].iter().all(|(served, _)| *served >= 1_500), "{away_ms}: {seen:?}");
        }
    }

    #[test]
    fn a_limit_that_goes_is_forgotten() {
        let mut rate = Rate::default();
        seconds(&mut rate, 0, 5, 1_000, 20_000);
        assert!(rate.per_second(5_000_000).is_some());
        seconds(&mut rate, 5_000_000, 8, 1_000_000, 20_000);
        assert_eq!(rate.per_second(13_000_000), None);
    }

    #[test]
    fn what_is_refused_whatever_the_rate_does_not_bring_it_down() {
        let mut rate = Rate::default();
        let mut served = 0;
        for tick in 0..3_000u64 {
            let now_us = tick * 10_000;
            let asked = rate.per_second(now_us).unwrap_or(10_000).min(10_000) / 100;
            let refused = asked / 10;
            served = asked - refused;
            rate.handle(now_us, served, refused);
        }
        assert!(served >= 60, "{served} of 100 a tick");
    }

    /// A linear congruential generator.
    pub(super) struct Random(pub(super) u64);

    impl Random {
        pub(super) fn next_below(&mut self, bound: u64) -> u64 {
            let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = next.wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }

        /// How many of `requests` are refused at random.
        pub(super) fn refused(&mut self, requests: u64, per_mille: u64) -> u64 {
            (0..requests).filter(|_| self.next_below(1000) < per_mille).count() as u64
        }
    }

    /// A server that refuses at random, and a client that wants a number of requests per second in
    /// bursts: returns the lowest rate, and the one after `seconds`.
    fn refused_at_random(
        seed: u64,
        per_mille: u64,
        (wanted, burst_us): (u64, u64),
        seconds: u64,
    ) -> (u64, u64) {
        const TICK_US: u64 = 10_000;
        let mut random = Random(seed);
        let mut rate = Rate::default();
        let (mut waiting, mut owed, mut least) = (0, 0, u64::MAX);
        for tick in 0..seconds * 1_000_000 / TICK_US {
            let now_us = tick * TICK_US;
            if now_us.is_multiple_of(burst_us) {
                waiting += wanted * burst_us / 1_000_000;
            }
            let allowed = rate.per_second(now_us);
            least = least.min(allowed.unwrap_or(u64::MAX));
            // Requests not sent may be sent later only within a tick.
            let new = allowed.unwrap_or(1_000_000) * TICK_US;
            owed = (owed + new).min(new.max(1_000_000));
            let asked = waiting.min(owed / 1_000_000);
            waiting -= asked;
            owed -= asked * 1_000_000;
            let refused = random.refused(asked, per_mille);
            rate.handle(now_us, asked - refused, refused);
        }
        (least, rate.per_second(seconds * 1_000_000).unwrap_or(u64::MAX))
    }

    #[test]
    fn what_is_refused_at_random_does_not_bring_the_rate_down() {
        let even = [(60, 50_000), (200, 100_000), (1_000, 10_000), (10_000, 10_000)];
        let bursts = [(60, 250_000), (100, 250_000), (200, 250_000)];
        for (wanted, burst_us) in even.into_iter().chain(bursts) {
            for (seed, per_mille) in (0..60).flat_map(|seed| [50, 150, 250].map(|p| (seed, p))) {
                let (least, _) = refused_at_random(seed, per_mille, (wanted, burst_us), 40);
                let (_, later) = refused_at_random(seed, per_mille, (wanted, burst_us), 3);
                let case = format!("{wanted} each {burst_us} us, {per_mille}, seed {seed}");
                // Two cuts by a quarter of the requests, each judged by a few of them.
                let is_few = wanted < RATE_FEW * 2;
                let bound = if per_mille < 250 && !is_few { wanted / 2 } else { wanted / 4 };
                assert!(least >= bound, "{case}: {least}");
                let bound = if is_few { wanted / 3 } else { wanted / 2 };
                assert!(later >= bound, "{case}: {later} after 3 s");
            }
        }
    }
}
