//! Chooses the ring: io_uring if available, otherwise epoll. Chosen once per engine.

use std::fmt;
use std::str::FromStr;

use super::readiness::Readiness;
use super::uring::{SetupError, SetupMode, Uring};
use super::{Completion, Errno, Op, Pool, Ring};

/// Kernel interface of the data plane.
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

/// The requested ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RingChoice {
    /// io_uring; epoll if it is not available.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll, always.
    Epoll,
}

impl RingChoice {
    /// All choices, in the order of help and errors.
    pub const ALL: [Self; 3] = [Self::Auto, Self::IoUring, Self::Epoll];

    /// The name for users: `auto`, `io_uring` or `epoll`.
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

/// The ring that all workers of an engine use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenRing {
    /// The requested ring.
    pub choice: RingChoice,
    /// The ring in use.
    pub kind: RingKind,
    /// Why io_uring failed, if it was tried first.
    pub refused: Option<SetupError>,
}

impl ChosenRing {
    /// Decides from the request and the error of io_uring, if it was tried.
    ///
    /// # Errors
    /// If io_uring was requested and is not available.
    pub fn new(choice: RingChoice, refused: Option<SetupError>) -> Result<Self, SetupError> {
        let (kind, refused) = match (choice, refused) {
            (RingChoice::IoUring, Some(error)) => return Err(error),
            (RingChoice::Auto, Some(error)) => (RingKind::Epoll, Some(error)),
            (RingChoice::Epoll, _) => (RingKind::Epoll, None),
            (_, None) => (RingKind::IoUring, None),
        };
        Ok(Self { choice, kind, refused })
    }

    /// Creates another ring of this kind for the calling thread, which writes to no files. With
    /// `auto`, epoll is used if that fails.
    ///
    /// # Errors
    /// The errors of [`AnyRing::new`].
    pub fn another(&self, entries: u32) -> Result<AnyRing, SetupError> {
        let made = AnyRing::new(self.kind, entries, 0);
        match self.choice {
            RingChoice::Auto => made.or_else(|_| AnyRing::new(RingKind::Epoll, entries, 0)),
            RingChoice::IoUring | RingChoice::Epoll => made,
        }
    }

    /// Why epoll is used instead of io_uring, and what to do, in one line.
    #[must_use]
    pub fn fallback(&self) -> Option<String> {
        let error = self.refused.as_ref()?;
        let (cause, advice) = (error.cause(), error.advice());
        Some(format!("io_uring is not available ({cause}): using {}; {advice}", self.kind))
    }
}

/// Kernel features that a ring uses, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Features {
    /// The kind of ring.
    pub kind: RingKind,
    /// Set-up flags in force; `None` without io_uring.
    pub mode: Option<SetupMode>,
    /// Slots are registered when they are first written from, so that writes need no page pinning;
    /// false without io_uring, or once the kernel has refused it.
    pub registered_slots: bool,
    /// The ring's own descriptor is registered (Linux 5.18): always false, because the `io-uring`
    /// crate does not keep the registration for later calls.
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
    /// A ring for the calling thread with room for `entries` operations in flight; with epoll, up
    /// to `writers` threads write to files.
    ///
    /// # Errors
    /// The errors of [`Uring::new`] and [`Readiness::new`].
    pub fn new(kind: RingKind, entries: u32, writers: usize) -> Result<Self, SetupError> {
        match kind {
            RingKind::IoUring => Uring::new(entries).map(Self::IoUring),
            RingKind::Epoll => {
                let ring = Readiness::new(entries, writers);
                ring.map(Self::Epoll).map_err(SetupError::of_epoll)
            }
        }
    }

    /// Lets io_uring register the pool's slots when they are written from.
    ///
    /// # Panics
    /// If a pool is registered already, or operations are in flight.
    pub fn register(&mut self, pool: &Pool) {
        match self {
            Self::IoUring(ring) => ring.register(pool),
            Self::Epoll(_) => {}
        }
    }

    /// The kernel features in use.
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
