//! Gathers the facts for [`Limit`] where programs ask for what they read: mounts and the library.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::engine::config::Config;
use crate::engine::metrics::WorkerMetrics;
use crate::report::limit::{Asker, Limit, LimitFacts};
use crate::sys::{tcp_memory, usage};

/// What the workers do not know about the programs that ask.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Who requests the reads.
    pub asker: Asker,
    /// Time since the workers were started.
    pub elapsed: Duration,
    /// Part of `elapsed` in which a program waited for a read.
    pub waited: Duration,
    /// The number of requests in flight was given.
    pub is_fixed: bool,
    /// The user's bandwidth limit, in bytes per second.
    pub bandwidth_limit: Option<NonZeroU64>,
}

impl Asked {
    /// Judges from the workers' counts.
    #[must_use]
    pub fn limit(&self, config: &Config, workers: &[WorkerMetrics]) -> Limit {
        let sum = |count: fn(&WorkerMetrics) -> u64| workers.iter().map(count).sum();
        let connections = sum(|worker| worker.connections);
        let mut facts = LimitFacts {
            bytes: sum(|worker| worker.bytes),
            seconds: self.elapsed.as_secs_f64(),
            connections,
            is_fixed: self.is_fixed,
            is_memory_bound: config.memory_bounds().is_some_and(|most| connections >= most),
            bandwidth_limit: self.bandwidth_limit.map(NonZeroU64::get),
            ..of_machine(config)
        };
        if self.asker == Asker::Library {
            // Only the workers' processor time counts: no read waits for what the program itself
            // computes.
            facts.cpu_seconds = workers.iter().map(|worker| worker.processor.cpu_seconds).sum();
        }
        facts.take_workers(workers);
        facts.take_asker(self.asker, self.waited.as_secs_f64());
        Limit::of(&facts)
    }
}

/// What this process has used of its machine so far, and what its workers may use.
#[must_use]
pub fn of_machine(config: &Config) -> LimitFacts {
    LimitFacts {
        cpu_seconds: usage::process_cpu_seconds(),
        processors: usage::processors(),
        receive_buffer_bytes: usage::receive_buffer_bytes_max(),
        tcp_memory: tcp_memory::seen(),
        memory_bytes: config.memory_bytes,
        ..LimitFacts::default()
    }
}
