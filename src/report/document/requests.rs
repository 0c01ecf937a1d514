//! What was requested, and what was requested again: for `--json` and for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::metrics::RequestCounts;
use crate::link::failure::{RetryCounts, RetryReason};
use crate::text::size::{Count, counted};

/// The requests for ranges of a run, a channel or a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestLine {
    /// Requests sent.
    pub requests: u64,
    /// Connections made.
    pub connects: u64,
    /// Failed attempts that were retried, by reason, without zeros.
    pub retries: BTreeMap<&'static str, u64>,
    /// Late ranges that were requested a second time while the first request went on.
    pub hedges: u64,
    /// Late ranges that were requested again on another connection because none was free.
    pub moves: u64,
}

impl RequestLine {
    pub(super) fn new(counts: &RequestCounts) -> Self {
        Self {
            requests: counts.requests,
            connects: counts.connects,
            retries: by_name(&counts.retries),
            hedges: counts.hedges,
            moves: counts.moves,
        }
    }

    /// The moved ranges in words; `None` if there were none.
    pub(super) fn moved(&self) -> Option<String> {
        let slow = counted(self.moves, "slow request", "slow requests");
        (self.moves > 0).then(|| format!("{slow} moved to another connection"))
    }
}

/// Retries by name of their reason, without zeros.
pub(super) fn by_name(counts: &RetryCounts) -> BTreeMap<&'static str, u64> {
    let counts = RetryReason::ALL.into_iter().zip(counts);
    counts.filter(|(_, count)| **count > 0).map(|(reason, count)| (reason.name(), *count)).collect()
}

/// The retries in words, after the noun for what was retried; `None` if there were none.
pub(super) fn tried_again(
    one: &str,
    many: &str,
    reasons: &BTreeMap<&'static str, u64>,
) -> Option<String> {
    let all: u64 = reasons.values().sum();
    let counted_reasons = reasons
        .iter()
        .map(|(name, count)| format!("{} {}", Count(*count), RetryReason::words(name)))
        .collect::<Vec<_>>();
    (all > 0).then(|| format!("{}: {}", counted(all, one, many), counted_reasons.join(", ")))
}

/// Retried control-plane requests, in words.
pub(super) fn asked_again(reasons: &BTreeMap<&'static str, u64>) -> Option<String> {
    tried_again(
        "listing or metadata request was retried",
        "listing or metadata requests were retried",
        reasons,
    )
}
