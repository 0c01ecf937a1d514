//! Counts the branches of recovery that the engine's own counters show, under the names of
//! [`super::events::EVENTS`].

use inrush::engine::metrics::{FeedCount, RequestCounts, WaitFor, WorkerMetrics};
use inrush::engine::pace::Timeline;
use inrush::error::Error;
use inrush::link::failure::RetryReason;

use super::seeds::note;

/// Requests of workers or of a feeder, and what became of them.
pub(crate) fn note_sent(sent: &RequestCounts) {
    for (reason, count) in RetryReason::ALL.into_iter().zip(sent.retries) {
        note(&format!("retry after {}", reason.name()), count);
    }
    note("move", sent.moves);
    for address in &sent.addresses {
        note("address blamed", address.failures);
        note("address asks for less", address.refused);
    }
}

/// What workers did besides.
pub(crate) fn note_workers(metrics: &WorkerMetrics) {
    note("hedge", metrics.sent.hedges);
    note("second won", metrics.hedges_won);
    note("hedge in vain", metrics.sent.hedges.saturating_sub(metrics.hedges_won));
    note("write continued", metrics.short_writes);
    note("wait for a slot", u64::from(metrics.stages.slot_wait_us > 0));
    let waits = [
        (WaitFor::Refused, "wait for an endpoint's rate"),
        (WaitFor::Retry, "wait for a retry"),
        (WaitFor::Memory, "wait for memory"),
        (WaitFor::Writes, "wait for writes"),
        (WaitFor::Files, "wait for file calls"),
    ];
    for (cause, name) in waits {
        note(name, u64::from(metrics.waits.of(cause) > 0));
    }
}

/// Why the number of requests in flight was changed.
pub(crate) fn note_pace(timeline: &Timeline) {
    for moment in timeline.moments() {
        note(&format!("pace: {}", moment.change.in_words()), 1);
    }
}

/// What a feeder did.
pub(crate) fn note_feed(count: &FeedCount) {
    note_sent(&count.sent);
    note_pace(&count.pace);
    note("verified object", count.validated_objects);
    for epoch in &count.epochs {
        note("epoch left early", u64::from(epoch.left_early));
        note("epoch complete", u64::from(epoch.complete));
        note("epoch failed", u64::from(!epoch.complete && !epoch.left_early));
        note("reader kept the feeder", u64::from(epoch.reader_kept_us > 0));
    }
}

/// Why an object or a stream failed for good.
pub(crate) fn note_error(error: &Error) {
    note(&format!("failed: {}", error.reason().name()), 1);
}
