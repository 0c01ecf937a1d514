//! The workers' state for observers, while they run.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use super::Workers;
use crate::engine::metrics::WorkerMetrics;
use crate::engine::pace::PaceSeen;
use crate::limits::metrics::SNAPSHOT_WAIT_MAX;
use crate::link::failure::RetryReason;
use crate::link::waiting::Wait;

/// Progress of the workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunProgress {
    /// Body bytes delivered.
    pub bytes: u64,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// Connections that wait for a retry, and the reason of the last one.
    pub waiting: Option<(u32, RetryReason)>,
    /// The pace.
    pub pace: PaceSeen,
    /// Writes to files in progress, and other file system calls.
    pub file_work: (u64, u64),
}

/// Counts of all workers for observers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watched {
    /// Body bytes delivered.
    pub bytes: u64,
    /// Finished objects.
    pub objects: u64,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// Connections that wait for a retry.
    pub waiting: u32,
    /// The pace.
    pub pace: PaceSeen,
}

impl Workers {
    /// Progress of all workers.
    #[must_use]
    pub fn progress(&self) -> RunProgress {
        let mut all = RunProgress { pace: self.pacer.seen(), ..RunProgress::default() };
        for gauge in &self.gauges {
            let (_, writes, jobs) = gauge.objects_and_file_work();
            all.file_work.0 += writes;
            all.file_work.1 += jobs;
            all.bytes += gauge.bytes();
            all.retries += gauge.retries();
            if let Some((count, why)) = gauge.waiting() {
                let before = all.waiting.map_or(0, |(count, _)| count);
                all.waiting = Some((before + count, why));
            }
        }
        all
    }

    /// A function that returns the counts of all workers, even after they have ended.
    pub fn watch(&self) -> impl Fn() -> Watched + Send + use<> {
        let (gauges, pacer) = (self.gauges.clone(), Arc::clone(&self.pacer));
        move || {
            let mut watched = Watched { pace: pacer.seen(), ..Watched::default() };
            for gauge in &gauges {
                watched.bytes += gauge.bytes();
                watched.objects += gauge.objects_and_file_work().0;
                watched.retries += gauge.retries();
                watched.waiting += gauge.waiting().map_or(0, |(count, _)| count);
            }
            watched
        }
    }

    /// A function that describes what is stuck and what is left, for a process that must end
    /// without its workers. `folder`: the destination, for messages.
    pub fn last_words(&self, folder: Option<String>) -> impl Fn() -> String + Send + use<> {
        let gauges = self.gauges.clone();
        move || {
            let (mut objects, mut writes, mut jobs) = (0, 0, 0);
            for gauge in &gauges {
                let work = gauge.objects_and_file_work();
                objects += work.0;
                writes += work.1;
                jobs += work.2;
            }
            let Some(folder) = &folder else {
                return "a system call has not returned; nothing is left".to_owned();
            };
            let stuck = match (writes, jobs) {
                (0, 0) => format!(
                    "a call to the file system of {folder}, or to the reader of the output, has \
                     not returned"
                ),
                (0, _) => format!(
                    "calls to the file system of {folder} for {jobs} objects or ranges have not \
                     returned: it does not answer"
                ),
                _ => format!(
                    "{writes} writes to {folder} have not returned: its file system does not \
                     answer"
                ),
            };
            format!(
                "{stuck}; {objects} objects are complete, and temporary files (.inrush-*) of \
                 others may be left; run it again to resume"
            )
        }
    }

    /// The counts of all workers so far; the previous counts for a worker that does not answer in
    /// time.
    #[must_use]
    pub fn counted(&self) -> Vec<WorkerMetrics> {
        let asked: Vec<u64> = self.gauges.iter().map(|gauge| gauge.snapshot.ask()).collect();
        self.scheduler.wake_workers();
        let until = now() + SNAPSHOT_WAIT_MAX;
        let asked = self.gauges.iter().zip(asked);
        asked
            .map(|(gauge, question)| {
                let left = until.saturating_duration_since(now());
                gauge.snapshot.wait(question, left)
            })
            .collect()
    }

    /// Waits until a worker has waited for something long enough to be reported, or a worker ends;
    /// may wake early. For one task.
    pub async fn stumbled(&self) {
        let waits = poll_fn(|context| {
            // Each is asked, so that each wakes this task.
            let asked = self.gauges.iter().map(|gauge| gauge.board.poll_wait(context));
            asked.fold(Poll::Pending, |all, one| if one.is_ready() { one } else { all })
        });
        tokio::select! {
            () = waits => {}
            () = self.worker_ended() => {}
        }
    }

    /// The longest wait of any worker, if it is long enough to be reported.
    #[must_use]
    pub fn longest_wait(&self) -> Option<Wait> {
        let waits = self.gauges.iter().filter_map(|gauge| gauge.board.range());
        waits.max_by_key(|wait| wait.elapsed_us)
    }
}

#[expect(clippy::disallowed_methods, reason = "who asks waits for a bounded time")]
fn now() -> Instant {
    Instant::now()
}
