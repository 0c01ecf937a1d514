//! Times as HTTP, listings and signatures write them. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999, which is the last that any of them can write.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The time `seconds` after 1970; one out of range becomes the nearest that can be written.
fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX))
}

/// Whole seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// As headers have it (RFC 9110 section 5.6.7).
pub(crate) fn http_date(seconds: i64) -> String {
    httpdate::fmt_http_date(at(seconds))
}

/// In ISO 8601: `2024-01-01T00:00:00Z`.
pub(crate) fn iso(seconds: i64) -> String {
    humantime::format_rfc3339_seconds(at(seconds)).to_string()
}

/// In ISO 8601 with milliseconds, as listings have it.
pub(crate) fn iso_millis(seconds: i64) -> String {
    humantime::format_rfc3339_millis(at(seconds)).to_string()
}

/// A header's date as a signature has it.
pub(crate) fn basic_of_http(text: &str) -> Option<String> {
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    Some(humantime::format_rfc3339_seconds(time).to_string().replace(['-', ':'], ""))
}

/// Seconds since 1970 of what signatures have: `20240101T000000Z`.
pub(crate) fn parse_basic(text: &str) -> Option<i64> {
    let shape = |(index, byte): (usize, &u8)| match index {
        8 => *byte == b'T',
        15 => *byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    if text.len() != 16 || !text.bytes().enumerate().all(|(index, byte)| shape((index, &byte))) {
        return None;
    }
    let (date, time) = text.split_at(8);
    let [year, month, day] = [&date[..4], &date[4..6], &date[6..]];
    let [hour, minute, second] = [&time[1..3], &time[3..5], &time[5..7]];
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let since = humantime::parse_rfc3339(&text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        let second = 1_456_790_399;
        assert_eq!(http_date(second), "Mon, 29 Feb 2016 23:59:59 GMT");
        assert_eq!(iso(second), "2016-02-29T23:59:59Z");
        assert_eq!(iso_millis(second), "2016-02-29T23:59:59.000Z");
        assert_eq!(parse_basic("20160229T235959Z"), Some(second));
        let basic = basic_of_http("Mon, 29 Feb 2016 23:59:59 GMT");
        assert_eq!(basic.as_deref(), Some("20160229T235959Z"));
        assert_eq!((iso(-1), iso(i64::MAX)), (iso(0), "9999-12-31T23:59:59Z".to_owned()));
        assert_eq!(http_date(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        for wrong in
            ["", "20160230T000000Z", "2016-02-29T23:59", "20160229 235959Z", "2016022éT235Z"]
        {
            assert_eq!(parse_basic(wrong), None, "{wrong}");
        }
    }
}
