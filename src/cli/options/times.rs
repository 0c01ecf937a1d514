//! Times as users type them.

use std::time::Duration;

use crate::limits;

pub(in crate::cli) fn help_retry_for() -> String {
    format!(
        "retry an endpoint that does not answer for at least this time, such as 5m; with 0s only \
         the number of attempts counts [default: {}s]",
        limits::RETRY_FOR_US / 1_000_000
    )
}

/// Parses a time such as `1m30s`; a plain number is in seconds, as in timeout(1).
fn parse_time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

pub(in crate::cli) fn parse_retry_for(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let most = limits::RETRY_FOR_MAX;
    let fits = time <= most;
    if fits { Ok(time) } else { Err(format!("expected at most {}h", most.as_secs() / 3600)) }
}

pub(in crate::cli) fn help_timeout(what: &str, usual_us: u64) -> String {
    let usual = usual_us / 1_000_000;
    format!("end an attempt {what} this time, such as 500ms or 1m [default: {usual}s]")
}

/// A time as it would be typed.
pub(in crate::cli) fn typed_time(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

pub(in crate::cli) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let (time, range) = (parse_time(text)?, limits::TIMEOUT_MIN..=limits::TIMEOUT_MAX);
    let (least_ms, most_s) = (range.start().as_millis(), range.end().as_secs());
    let is_in = range.contains(&time).then_some(time);
    is_in.ok_or_else(|| format!("expected a time from {least_ms}ms to {most_s}s"))
}

pub(in crate::cli) fn parse_refresh(text: &str) -> Result<Duration, String> {
    let (time, least) = (parse_time(text)?, limits::MOUNT_REFRESH_MIN);
    if time < least {
        return Err(format!("expected at least {}s", least.as_secs()));
    }
    Ok(time)
}

pub(in crate::cli) fn parse_deadline(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time.is_zero() { Err("expected a time above zero".to_owned()) } else { Ok(time) }
}
