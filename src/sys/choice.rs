//! Which ring: io_uring where it can be had, or epoll. The choice is made once for an engine.

use std::fmt;
use std::str::FromStr;

use super::readiness::Readiness;
use super::uring::{SetupError, SetupMode, Uring};
use super::{Completion, Errno, Op, Pool, Ring};

/// How the data plane talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingKind {
    /// io_uring(7).
    IoUring,
    /// epoll(7), non-blocking calls, and threads for writes to files.
    Epoll,
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// Which kind is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RingChoice {
    /// io_uring; epoll where that is not available.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll, always.
    Epoll,
}

impl RingChoice {
    /// All of them, in the order of [`RingChoice::name`]s in help and errors.
    pub const ALL: [Self; 3] = [Self::Auto, Self::IoUring, Self::Epoll];

    /// What users call it: `auto`, `io_uring` or `epoll`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

impl FromStr for RingChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == text);
        found.ok_or("expected auto, io_uring or epoll")
    }
}

/// The kind that all workers of an engine have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenRing {
    /// What was asked for.
    pub choice: RingChoice,
    /// What it is.
    pub kind: RingKind,
    /// Why it is not io_uring, where that was tried first.
    pub refused: Option<SetupError>,
}

impl ChosenRing {
    /// What became of a choice, when io_uring has been tried or not.
    ///
    /// # Errors
    /// When io_uring was asked for, and is not available.
    pub fn new(choice: RingChoice, refused: Option<SetupError>) -> Result<Self, SetupError> {
        let (kind, refused) = match (choice, refused) {
            (RingChoice::IoUring, Some(error)) => return Err(error),
            (RingChoice::Auto, Some(error)) => (RingKind::Epoll, Some(error)),
            (RingChoice::Epoll, _) => (RingKind::Epoll, None),
            (_, None) => (RingKind::IoUring, None),
        };
        Ok(Self { choice, kind, refused })
    }

    /// One more ring for the calling thread, which writes to no files: of this kind, where there
    /// may be one more.
    ///
    /// # Errors
    /// As of [`AnyRing::new`].
    pub fn another(&self, entries: u32) -> Result<AnyRing, SetupError> {
        let made = AnyRing::new(self.kind, entries, 0);
        match self.choice {
            RingChoice::Auto => made.or_else(|_| AnyRing::new(RingKind::Epoll, entries, 0)),
            RingChoice::IoUring | RingChoice::Epoll => made,
        }
    }

    /// Why epoll is used where io_uring was wanted, and what to do, in one line.
    #[must_use]
    pub fn fallback(&self) -> Option<String> {
        let error = self.refused.as_ref()?;
        let (cause, advice) = (error.cause(), error.advice());
        Some(format!("io_uring is not available ({cause}): using {}; {advice}", self.kind))
    }
}

/// What a ring uses of the kernel, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Features {
    /// Which kind it is.
    pub kind: RingKind,
    /// Set-up flags in force; `None` without io_uring.
    pub mode: Option<SetupMode>,
    /// Slots are registered when they are first written from, so that writes need no page pinning;
    /// false once the kernel has refused that, and without io_uring.
    pub registered_slots: bool,
    /// The ring's own descriptor is registered (Linux 5.18): never, for the `io-uring` crate does
    /// not keep the registration for later calls.
    pub registered_ring: bool,
}

/// A ring of either kind.
#[derive(Debug)]
pub enum AnyRing {
    /// Over io_uring.
    IoUring(Uring),
    /// Over epoll.
    Epoll(Readiness),
}

impl AnyRing {
    /// A ring for the calling thread with room for `entries` operations in flight, and over epoll
    /// with at most so many threads for writes to files.
    ///
    /// # Errors
    /// Where there is no such ring: see [`Uring::new`] and [`Readiness::new`].
    pub fn new(kind: RingKind, entries: u32, writers: usize) -> Result<Self, SetupError> {
        match kind {
            RingKind::IoUring => Uring::new(entries).map(Self::IoUring),
            RingKind::Epoll => {
                let ring = Readiness::new(entries, writers);
                ring.map(Self::Epoll).map_err(SetupError::of_epoll)
            }
        }
    }

    /// Where registered memory saves work, the pool's slots are registered when they are written
    /// from.
    ///
    /// # Panics
    /// When a pool is registered already, or operations are in flight.
    pub fn register(&mut self, pool: &Pool) {
        match self {
            Self::IoUring(ring) => ring.register(pool),
            Self::Epoll(_) => {}
        }
    }

    /// What the ring uses of the kernel.
    #[must_use]
    pub fn features(&self) -> Features {
        match self {
            Self::IoUring(ring) => ring.features(),
            Self::Epoll(_) => Features {
                kind: RingKind::Epoll,
                mode: None,
                registered_slots: false,
                registered_ring: false,
            },
        }
    }
}

impl Ring for AnyRing {
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op> {
        match self {
            Self::IoUring(ring) => ring.submit(token, op),
            Self::Epoll(ring) => ring.submit(token, op),
        }
    }

    fn cancel(&mut self, token: u64) {
        match self {
            Self::IoUring(ring) => ring.cancel(token),
            Self::Epoll(ring) => ring.cancel(token),
        }
    }

    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        match self {
            Self::IoUring(ring) => ring.enter(wait_us),
            Self::Epoll(ring) => ring.enter(wait_us),
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        match self {
            Self::IoUring(ring) => ring.reap(),
            Self::Epoll(ring) => ring.reap(),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Self::IoUring(ring) => ring.in_flight(),
            Self::Epoll(ring) => ring.in_flight(),
        }
    }

    fn keeps_what_came(&self) -> bool {
        match self {
            Self::IoUring(ring) => ring.keeps_what_came(),
            Self::Epoll(ring) => ring.keeps_what_came(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_is_named() {
        for choice in RingChoice::ALL {
            assert_eq!(choice.name().parse(), Ok(choice));
        }
        let refused: Result<RingChoice, _> = "uring".parse();
        assert!(refused.is_err_and(|error| error.contains("io_uring")));
    }
}
