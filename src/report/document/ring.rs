//! The kernel interface of the workers, for reports.

use serde::Serialize;

use crate::engine::metrics::WorkerMetrics;
use crate::sys::choice::{ChosenRing, RingKind};
use crate::sys::uring::{SetupError, SetupMode};

/// The ring of the workers and of the feeders of streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RingReport {
    /// `io_uring` or `epoll`.
    pub kind: RingKind,
    /// If io_uring was wanted and is unavailable: why; otherwise null.
    pub io_uring_unavailable: Option<String>,
}

impl RingReport {
    /// Makes the report of a choice.
    #[must_use]
    pub fn new(ring: &ChosenRing) -> Self {
        let io_uring_unavailable = ring.refused.as_ref().map(SetupError::cause);
        Self { kind: ring.kind, io_uring_unavailable }
    }

    /// The choice for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        in_words(self.kind, self.io_uring_unavailable.as_deref())
    }
}

/// The kernel features that all rings used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RingUse {
    /// `io_uring` or `epoll`.
    pub kind: RingKind,
    /// Setup flags of io_uring; null without io_uring.
    pub mode: Option<SetupMode>,
    /// The slots are registered with every ring.
    pub registered_slots: bool,
    /// Every ring's own descriptor is registered; never so far.
    pub registered_ring: bool,
    /// If io_uring was wanted and is unavailable: why; otherwise null.
    pub io_uring_unavailable: Option<String>,
}

impl RingUse {
    /// The features common to these workers' rings; `None` if no worker had a ring.
    #[must_use]
    pub fn of(workers: &[WorkerMetrics], io_uring_unavailable: Option<&str>) -> Option<Self> {
        let rank = |mode| match mode {
            None => 0,
            Some(SetupMode::Plain) => 1,
            Some(SetupMode::CoopTaskrun) => 2,
            Some(SetupMode::DeferTaskrun) => 3,
        };
        let uses = workers.iter().filter_map(|worker| worker.features);
        let least = uses.reduce(|mut one, other| {
            if rank(other.mode) < rank(one.mode) {
                (one.kind, one.mode) = (other.kind, other.mode);
            }
            one.registered_slots &= other.registered_slots;
            one.registered_ring &= other.registered_ring;
            one
        })?;
        Some(Self {
            kind: least.kind,
            mode: least.mode,
            registered_slots: least.registered_slots,
            registered_ring: least.registered_ring,
            io_uring_unavailable: io_uring_unavailable.map(str::to_owned),
        })
    }

    /// The features for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let flags = match self.mode {
            Some(SetupMode::DeferTaskrun) => "DEFER_TASKRUN",
            Some(SetupMode::CoopTaskrun) => "COOP_TASKRUN",
            Some(SetupMode::Plain) => "no flags",
            None => return in_words(self.kind, self.io_uring_unavailable.as_deref()),
        };
        match self.registered_slots {
            true => format!("{}: {flags}, registered buffers", self.kind),
            false => format!(
                "{}: {flags}, buffers not registered: raise the locked-memory limit (ulimit -l) \
                 to save CPU time",
                self.kind
            ),
        }
    }
}

fn in_words(kind: RingKind, io_uring_unavailable: Option<&str>) -> String {
    match io_uring_unavailable {
        None => format!("ring: {kind}"),
        Some(why) => format!("ring: {kind} (io_uring is not available: {why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::choice::Features;

    #[test]
    fn epoll_says_why_it_is_not_io_uring() {
        let features = Features {
            kind: RingKind::Epoll,
            mode: None,
            registered_slots: false,
            registered_ring: false,
        };
        let worker = WorkerMetrics { features: Some(features), ..WorkerMetrics::default() };
        let used = RingUse::of(&[worker.clone(), worker.clone()], Some("no")).expect("a ring");
        assert_eq!(used.in_words(), "ring: epoll (io_uring is not available: no)");
        assert_eq!(
            serde_json::to_value(&used).expect("JSON"),
            serde_json::json!({
                "kind": "epoll", "mode": null, "registered_slots": false,
                "registered_ring": false, "io_uring_unavailable": "no"
            })
        );
        let used = RingUse::of(&[worker], None).expect("a ring");
        assert_eq!(used.in_words(), "ring: epoll");
        assert_eq!(RingUse::of(&[WorkerMetrics::default()], None), None);
    }
}
