//! Makes all workers of an engine use rings of one kind: each tries io_uring on its own thread,
//! because the kernel ties a ring to the thread that created it; if one is refused, all use epoll.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::no_ring;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::choice::{AnyRing, ChosenRing, RingChoice, RingKind};
use crate::sys::uring::SetupError;

/// Result of a worker's attempt.
type Attempt = std::result::Result<(), SetupError>;

/// The starter's side of the agreement.
pub(super) struct Agreement {
    choice: RingChoice,
    writers: usize,
    report: SyncSender<Attempt>,
    attempts: Receiver<Attempt>,
    verdicts: Vec<SyncSender<RingKind>>,
}

/// One worker's side.
pub(super) struct Seat {
    choice: RingChoice,
    writers: usize,
    report: SyncSender<Attempt>,
    verdict: Receiver<RingKind>,
}

impl Agreement {
    /// An agreement without workers. Each may have up to `writers` threads for writes to files.
    pub(super) fn new(choice: RingChoice, writers: usize) -> Self {
        let (report, attempts) = sync_channel(crate::limits::WORKERS_MAX);
        Self { choice, writers, report, attempts, verdicts: Vec::new() }
    }

    /// Adds a worker.
    pub(super) fn seat(&mut self) -> Seat {
        let (say, verdict) = sync_channel(1);
        self.verdicts.push(say);
        Seat { choice: self.choice, writers: self.writers, report: self.report.clone(), verdict }
    }

    /// Collects all attempts, and sends the kind of ring to each worker.
    ///
    /// # Errors
    /// If io_uring was requested and one worker could not have it.
    pub(super) fn settle(self) -> Result<ChosenRing> {
        // A worker that ends without an answer must not be awaited.
        drop(self.report);
        let mut refused = None;
        for _ in &self.verdicts {
            match self.attempts.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => refused = refused.or(Some(error)),
                Err(_) => {
                    return Err(Error::new(ErrorKind::Host, "a worker ended before it began"));
                }
            }
        }
        let chosen = ChosenRing::new(self.choice, refused).map_err(|error| no_ring(&error))?;
        for verdict in &self.verdicts {
            // A lost worker is noticed when it should be ready.
            let _ = verdict.send(chosen.kind);
        }
        Ok(chosen)
    }
}

impl Seat {
    /// A ring for the calling thread with room for `entries` operations; `None` if the worker
    /// should end.
    pub(super) fn ring(self, entries: u32) -> Option<std::result::Result<AnyRing, SetupError>> {
        let Self { choice, writers, report, verdict } = self;
        let tried = match choice {
            RingChoice::Epoll => Ok(None),
            RingChoice::Auto | RingChoice::IoUring => {
                AnyRing::new(RingKind::IoUring, entries, writers).map(Some)
            }
        };
        let _ = report.send(tried.as_ref().map(drop).map_err(Clone::clone));
        drop(report);
        let kind = verdict.recv().ok()?;
        match tried {
            Ok(Some(ring)) if kind == RingKind::IoUring => Some(Ok(ring)),
            // Free a ring that other workers could not have first, with its memory.
            tried => {
                drop(tried);
                Some(AnyRing::new(kind, entries, writers))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_the_same_kind() {
        for choice in [RingChoice::Auto, RingChoice::Epoll] {
            let mut agreement = Agreement::new(choice, 1);
            let seats = [agreement.seat(), agreement.seat()];
            let threads = seats.map(|seat| {
                std::thread::spawn(move || {
                    let ring = seat.ring(8).expect("it gets an answer").expect("a ring");
                    ring.features().kind
                })
            });
            let chosen = agreement.settle().expect("agreed");
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), chosen.kind);
            }
            assert!(choice == RingChoice::Auto || chosen.kind == RingKind::Epoll);
        }
    }

    #[test]
    fn one_that_is_refused_decides_for_all() {
        for (choice, agreed) in [(RingChoice::Auto, true), (RingChoice::IoUring, false)] {
            let mut agreement = Agreement::new(choice, 1);
            let (first, second) = (agreement.seat(), agreement.seat());
            let error = SetupError::missing("connect");
            first.report.send(Ok(())).expect("heard");
            second.report.send(Err(error.clone())).expect("heard");
            match agreement.settle() {
                Ok(chosen) => {
                    assert!(agreed && chosen.kind == RingKind::Epoll);
                    assert_eq!(chosen.refused, Some(error));
                    assert_eq!(first.verdict.recv(), Ok(RingKind::Epoll));
                    assert_eq!(second.verdict.recv(), Ok(RingKind::Epoll));
                }
                Err(_) => assert!(!agreed && first.verdict.recv().is_err()),
            }
        }
    }

    #[test]
    fn a_worker_that_ends_without_a_word_is_missed() {
        let mut agreement = Agreement::new(RingChoice::Auto, 1);
        drop(agreement.seat());
        assert!(agreement.settle().is_err());
    }
}
