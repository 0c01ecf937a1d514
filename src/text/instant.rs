//! Parses and formats points in time, as servers and tools write them. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::format_description::well_known::{Iso8601, Rfc3339};
use time::{OffsetDateTime, PrimitiveDateTime};

/// From 1970 to the first year of five digits.
const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);

/// Parses a time of RFC 3339 or ISO 8601 with an offset, `Z` or `UTC`; without any of them it is
/// UTC. `None` if it is not a time from 1970 to 9999.
#[must_use]
pub fn parse_instant(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let text = text.strip_suffix("UTC").map_or(text, str::trim_end);
    let at = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(text, &Iso8601::DEFAULT))
        .or_else(|_| {
            let text = text.replacen(' ', "T", 1);
            PrimitiveDateTime::parse(&text, &Iso8601::DEFAULT).map(PrimitiveDateTime::assume_utc)
        });
    at.ok().map(SystemTime::from).filter(|at| is_writable(*at))
}

/// Formats a time as RFC 3339, in UTC and to the second; `None` before 1970 and after 9999.
#[must_use]
pub fn instant_text(at: SystemTime) -> Option<String> {
    is_writable(at).then(|| humantime::format_rfc3339_seconds(at).to_string())
}

/// True if its year has four digits.
fn is_writable(at: SystemTime) -> bool {
    at.duration_since(UNIX_EPOCH).is_ok_and(|since| since < YEAR_10000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_notations_are_one_time() {
        let at = UNIX_EPOCH + Duration::from_secs(1_704_164_645);
        for text in [
            "2024-01-02T03:04:05Z",
            " 2024-01-02T03:04:05Z\n",
            "2024-01-02t03:04:05z",
            "2024-01-02T03:04:05+00:00",
            "2024-01-02T04:34:05+01:30",
            "2024-01-01T22:04:05-05:00",
            "2024-01-01T22:04:05-05",
            "20240102T030405Z",
            "2024-01-02T03:04:05",
            "2024-01-02 03:04:05",
            "2024-01-02T03:04:05UTC",
            "2024-01-02 03:04:05 UTC",
        ] {
            assert_eq!(parse_instant(text), Some(at), "{text}");
        }
        let fraction = parse_instant("2024-01-02T03:04:05.250+00:00");
        assert_eq!(fraction, Some(at + Duration::from_millis(250)));
        assert_eq!(instant_text(at).as_deref(), Some("2024-01-02T03:04:05Z"));
        let last = parse_instant("9999-12-31T23:59:59Z").expect("a time");
        assert_eq!(instant_text(last).as_deref(), Some("9999-12-31T23:59:59Z"));
        assert_eq!(instant_text(last + Duration::from_secs(1)), None);
        assert_eq!(instant_text(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(parse_instant("0001-01-01T00:00:00Z"), None);
        for text in ["", "UTC", "soon", "1704164645", "2024-01-02", "2024-13-02T03:04:05Z"] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }
}
