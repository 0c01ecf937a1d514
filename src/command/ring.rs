//! The ring of a run: the requested one, and messages about the one in use.

use std::sync::atomic::Ordering;

use super::context::Context;
use super::runtime;
use crate::cli::RingName;
use crate::engine::threads::no_ring;
use crate::error::{Error, ErrorKind, Result};
use crate::report::progress::Progress;
use crate::sys::choice::{ChosenRing, RingChoice};

/// The variable that selects the ring without an option.
const RING_VARIABLE: &str = "INRUSH_RING";

/// The ring of the option, else of the environment.
pub(super) fn choice(typed: Option<RingName>) -> Result<RingChoice> {
    match typed {
        Some(RingName::Auto) => Ok(RingChoice::Auto),
        Some(RingName::IoUring) => Ok(RingChoice::IoUring),
        Some(RingName::Epoll) => Ok(RingChoice::Epoll),
        None => named(std::env::var_os(RING_VARIABLE).as_deref()),
    }
}

/// The ring of a command that transfers no objects, which has no invalid choice: then nothing is
/// tried that may be forbidden. Commands that transfer objects report the error earlier.
pub(super) fn of_control_plane(typed: Option<RingName>) -> RingChoice {
    choice(typed).unwrap_or(RingChoice::Epoll)
}

fn named(value: Option<&std::ffi::OsStr>) -> Result<RingChoice> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(RingChoice::default());
    };
    let text = value.to_string_lossy();
    text.parse().map_err(|expected: &str| {
        let message = format!("{RING_VARIABLE}: '{text}' is not a ring");
        Error::new(ErrorKind::Usage, message).advise(expected)
    })
}

/// Reports missing requirements if io_uring is requested, before any request is sent.
pub(super) fn require(choice: RingChoice) -> Result<()> {
    match choice {
        RingChoice::IoUring => runtime::probe_io_uring().map_err(|error| no_ring(&error)),
        RingChoice::Auto | RingChoice::Epoll => Ok(()),
    }
}

/// The ring that a run would get now.
pub(super) fn probed(choice: RingChoice) -> Result<ChosenRing> {
    let refused = match choice {
        RingChoice::Epoll => None,
        RingChoice::Auto | RingChoice::IoUring => runtime::probe_io_uring().err(),
    };
    ChosenRing::new(choice, refused).map_err(|error| no_ring(&error))
}

/// Reports once that this command continues without io_uring, however many runs it has: those of
/// the pipes and the files of a training job are two.
pub(super) fn report_fallback(ring: &ChosenRing, context: &Context, progress: &Progress) {
    if let Some(line) = ring.fallback()
        && !context.is_fallback_reported.swap(true, Ordering::Relaxed)
    {
        progress.note(format!("inrush: {line}"));
    }
    tracing::info!("ring: {}", ring.kind);
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_variable_is_read_where_no_option_is_given() {
        let of = |text: &str| named(Some(OsStr::new(text)));
        assert_eq!(named(None), Ok(RingChoice::Auto));
        assert_eq!(of(""), Ok(RingChoice::Auto));
        assert_eq!(of("epoll"), Ok(RingChoice::Epoll));
        let error = of("uring").expect_err("no ring").to_string();
        assert!(error.contains("INRUSH_RING: 'uring'") && error.contains("io_uring"), "{error}");
        assert_eq!(choice(Some(RingName::IoUring)), Ok(RingChoice::IoUring));
    }
}
