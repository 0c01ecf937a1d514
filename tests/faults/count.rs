//! What the server did, beside what the program counted.

use std::collections::BTreeMap;
use std::fmt;

use inrush_origin::Stats;

use crate::case::Case;

/// Kinds of faults that end an attempt, and what the program may take each for.
const REASONS: [(&str, &[&str]); 14] = [
    ("chunked", &["bad_head"]),
    ("html_error", &["server_error"]),
    ("internal_error", &["server_error"]),
    // Behind the last bytes that came a reset looks like any other end; and the control plane takes
    // an end before an answer's head for that of a kept connection.
    ("reset_after", &["broken", "stale", "truncated"]),
    // On a kept connection it may have been on its way before the request was.
    ("reset_before_head", &["broken", "stale"]),
    ("service_unavailable", &["slow_down"]),
    ("slow_down", &["slow_down"]),
    ("tls_alert", &["tls"]),
    // Nobody closes the connection: it may end by being late instead.
    ("tls_close_notify", &["broken", "stale", "truncated"]),
    ("tls_cut", &["broken", "stale", "truncated"]),
    ("tls_garbage", &["tls"]),
    ("truncate", &["truncated"]),
    // One byte further on is at some ranges beyond the object: no range at all.
    ("wrong_content_range", &["bad_head", "wrong_range"]),
    // Of an object in several ranges no attempt has failed: it is fetched again.
    ("flip_byte", &["checksum"]),
];

/// Kinds that end no attempt: they cost time, or nothing, or the object.
const HARMLESS: [&str; 12] = [
    "changed_etag",
    "close_after_response",
    "drip",
    "interim",
    "large_head",
    "many_headers",
    "slow_head",
    "stall_after",
    "stall_before_head",
    "tls_key_update",
    "tls_tiny_records",
    // A connection's fate and no range's; the control plane's are among them.
    HANDSHAKE_CUT,
];

/// What is taken as it is, but for whole objects that are not sure to be what is stored.
const TAKEN: &str = "chunked";

const HANDSHAKE_CUT: &str = "tls_handshake_cut";
/// What an attempt whose handshake was cut may be counted as.
const CUT: [&str; 4] = ["broken", "connect", "tls", "truncated"];
/// What an attempt is counted as that was late and was ended, or went on elsewhere: the program's
/// own judgement of time, and on a busy machine no fault's.
const LATE: [&str; 3] = ["connect_timeout", "first_byte_timeout", "stall"];

/// What one run counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) retries: BTreeMap<String, u64>,
    /// Those of the control plane.
    pub(crate) control: BTreeMap<String, u64>,
    /// Ranges that were asked for twice or moved: their attempts may end unseen.
    pub(crate) hedges: u64,
    pub(crate) moves: u64,
    pub(crate) failed: bool,
}

impl Counted {
    fn of(&self, reasons: &[&str]) -> u64 {
        let both = [&self.retries, &self.control];
        let count = |reason: &&str| both.map(|counts| counts.get(*reason).unwrap_or(&0));
        reasons.iter().flat_map(count).sum()
    }

    /// How many faults may have ended nothing that is counted as theirs.
    fn unseen(&self, stats: &Stats) -> u64 {
        let taken = stats.faults.get(TAKEN).copied().unwrap_or(0);
        self.hedges + self.moves + self.of(&LATE) + taken
    }

    /// Fails unless the attempts that failed are those that met a fault: no more of any reason, no
    /// fewer of any kind, and as many in all.
    #[track_caller]
    pub(crate) fn check(&self, stats: &Stats, case: &Case) {
        let said = format!("{case}\n{self:?}\n{stats:?}");
        let injected = |kind: &str| stats.faults.get(kind).copied().unwrap_or(0);
        check_known(stats, &said);
        let cuts = injected(HANDSHAKE_CUT);
        for reason in self.retries.keys().chain(self.control.keys()) {
            let (reason, counted) = (reason.as_str(), self.of(&[reason]));
            let kinds = REASONS.iter().filter(|(_, reasons)| reasons.contains(&reason));
            let mut most = self.hedges + kinds.map(|(kind, _)| injected(kind)).sum::<u64>();
            most += if CUT.contains(&reason) { cuts } else { 0 };
            let is_late = LATE.contains(&reason);
            assert!(
                is_late || counted <= most,
                "{counted} of {reason}, at most {most} can be: {said}"
            );
        }
        // An object that failed takes ranges with it that were under way.
        if self.failed {
            return;
        }
        let unseen = self.unseen(stats);
        let ending = REASONS.iter().filter(|(kind, _)| *kind != "flip_byte");
        let mut all = 0;
        for (kind, reasons) in ending {
            let (faults, counted) = (injected(kind), self.of(reasons));
            all += faults;
            assert!(faults <= counted + unseen, "{faults} of {kind}, {counted} counted: {said}");
        }
        let both = self.retries.values().chain(self.control.values());
        let counted = both.sum::<u64>() - self.of(&LATE) - self.of(&["checksum"]);
        let allowed = all.saturating_sub(unseen)..=all + cuts + self.hedges;
        assert!(allowed.contains(&counted), "{counted} in all, {allowed:?} were injected: {said}");
    }
}

/// Fails unless the server's own counts agree, and nothing happened that is in no table here.
#[track_caller]
fn check_known(stats: &Stats, said: &str) {
    for kind in stats.faults.keys() {
        let ends = REASONS.iter().any(|(known, _)| known == kind);
        assert!(ends || HARMLESS.contains(kind), "{kind} is in no table: {said}");
    }
    for (code, kind) in [
        ("InternalError", "internal_error"),
        ("ServiceUnavailable", "service_unavailable"),
        ("SlowDown", "slow_down"),
    ] {
        assert_eq!(stats.codes.get(code), stats.faults.get(kind), "answers of {code}: {said}");
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
    pub(crate) fn of(counted: Counted, stats: Stats) -> Self {
        let exact = !counted.failed && counted.unseen(&stats) == 0;
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
