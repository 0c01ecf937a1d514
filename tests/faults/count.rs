//! What the server did, beside what the program counted.

use std::collections::BTreeMap;
use std::fmt;

use inrush_origin::Stats;

use crate::case::Case;

/// Kinds of faults, and the reasons by which the program may count an attempt that met one.
const REASONS: [(&[&str], &[&str]); 9] = [
    (&["service_unavailable", "slow_down"], &["slow_down"]),
    (&["html_error", "internal_error"], &["server_error"]),
    // On a kept connection a reset before the head looks like one that came before the request.
    (&["reset_after", "reset_before_head"], &["broken", "stale"]),
    (&["tls_close_notify", "tls_cut", "truncate"], &["truncated"]),
    (&["chunked", "interim", "large_head", "many_headers"], &["bad_head"]),
    (&["wrong_content_range"], &["wrong_range"]),
    (&["flip_byte"], &["checksum"]),
    (&["tls_alert", "tls_garbage"], &["tls"]),
    // Nothing that a server does to a range, but what the program does to one that is late.
    (&[], &["connect_timeout", "first_byte_timeout", "stall"]),
];

/// Kinds that cost no attempt: they cost time, or nothing, or the object.
const HARMLESS: [&str; 9] = [
    "changed_etag",
    "close_after_response",
    "drip",
    "slow_head",
    "stall_after",
    "stall_before_head",
    "tls_key_update",
    "tls_tiny_records",
    // A connection's fate and not a range's: the control plane's are among them.
    "tls_handshake_cut",
];

/// What one run counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) retries: BTreeMap<String, u64>,
    /// Ranges that were asked for twice or moved: their attempts may end unseen.
    pub(crate) hedges: u64,
    pub(crate) moves: u64,
    pub(crate) failed: bool,
}

impl Counted {
    fn of(&self, reasons: &[&str]) -> u64 {
        reasons.iter().filter_map(|reason| self.retries.get(*reason)).sum()
    }

    /// Fails unless the attempts that failed are those that met a fault.
    #[track_caller]
    pub(crate) fn check(&self, stats: &Stats, case: &Case) {
        let said = format!("{case}\n{self:?}\n{stats:?}");
        let injected = |kind: &str| stats.faults.get(kind).copied().unwrap_or(0);
        for kind in stats.faults.keys() {
            let known = REASONS.iter().any(|(kinds, _)| kinds.contains(kind));
            assert!(known || HARMLESS.contains(kind), "{kind} is in no list: {said}");
        }
        for (code, kind) in [
            ("InternalError", "internal_error"),
            ("ServiceUnavailable", "service_unavailable"),
            ("SlowDown", "slow_down"),
        ] {
            let answered = stats.codes.get(code).copied().unwrap_or(0);
            assert_eq!(answered, injected(kind), "answers of {code}: {said}");
        }
        let handshakes = injected("tls_handshake_cut");
        let mut seen = 0;
        for (kinds, reasons) in REASONS {
            let counted = self.of(reasons);
            seen += counted;
            let faults: u64 = kinds.iter().map(|kind| injected(kind)).sum();
            let mut more = self.hedges;
            let mut fewer = self.hedges + self.moves;
            if reasons.contains(&"stall") {
                more += self.moves;
            }
            if ["broken", "tls", "truncated"].iter().any(|reason| reasons.contains(reason)) {
                more += handshakes;
            }
            // What the control plane met is not among the retries; an object that failed takes
            // ranges with it that were under way.
            if case.everywhere || self.failed {
                fewer = faults;
            }
            let allowed = faults.saturating_sub(fewer)..=faults + more;
            assert!(
                allowed.contains(&counted),
                "{counted} attempts failed by {reasons:?}, {allowed:?} were expected: {said}"
            );
        }
        let all: u64 = self.retries.values().sum();
        assert_eq!(seen, all, "a reason is in no list: {said}");
    }
}

/// What many runs came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: u64,
    failed: u64,
    /// Runs of which every count was compared exactly.
    exact: u64,
    faults: BTreeMap<&'static str, u64>,
    retries: BTreeMap<String, u64>,
    hedges: u64,
    moves: u64,
    by_profile: BTreeMap<String, u64>,
}

impl Tally {
    /// Of one run.
    pub(crate) fn of(counted: Counted, stats: Stats, case: &Case) -> Self {
        let exact = !case.everywhere && !counted.failed && counted.hedges + counted.moves == 0;
        Self {
            runs: 1,
            failed: u64::from(counted.failed),
            exact: u64::from(exact),
            faults: stats.faults,
            retries: counted.retries,
            hedges: counted.hedges,
            moves: counted.moves,
            by_profile: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self, profile: String) {
        self.runs += other.runs;
        self.failed += other.failed;
        self.exact += other.exact;
        self.hedges += other.hedges;
        self.moves += other.moves;
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
            *self.by_profile.entry(profile.clone()).or_default() += count;
        }
        for (name, count) in &other.retries {
            *self.retries.entry(name.clone()).or_default() += count;
        }
    }

    /// Fails unless something went wrong in every profile, and most was compared exactly.
    #[track_caller]
    pub(crate) fn check_all_profiles(&self, alone: bool) {
        if alone {
            return;
        }
        assert_eq!(self.by_profile.len(), 9, "{self}");
        assert!(self.by_profile.values().all(|count| *count > 0), "{self}");
        assert!(self.exact * 4 > self.runs, "{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, failed, exact, hedges, moves, .. } = self;
        let faults: u64 = self.faults.values().sum();
        write!(f, "{runs} runs, {failed} ended with an error; {faults} faults {:?}", self.faults)?;
        write!(f, ", by profile {:?}; retries {:?}, ", self.by_profile, self.retries)?;
        write!(f, "{hedges} hedges, {moves} moves; counts compared exactly in {exact} runs")
    }
}
