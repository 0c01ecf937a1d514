//! What a test needs and this machine lacks.

/// Says on standard error that a test, or a part of it, cannot run here. It fails instead where
/// `INRUSH_TESTS_MUST_RUN` is 1, as in CI: nothing is left out there without being seen.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let must_run = std::env::var_os("INRUSH_TESTS_MUST_RUN").is_some_and(|value| value == "1");
    assert!(!must_run, "skipped although INRUSH_TESTS_MUST_RUN is 1: {reason}");
    eprintln!("skipped: {reason}");
}
