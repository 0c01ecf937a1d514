//! Sizes in bytes, as typed (`64MiB`) and as shown (`4.29 GB`, `61 MiB`).
//!
//! Pure. Each option documents the sizes that it accepts.

use std::fmt;

/// Suffixes and their values; case-insensitive.
const SUFFIXES: [(&str, u64); 13] = [
    ("", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Parses a typed size: digits, then an optional suffix.
///
/// # Errors
/// One line with the expected format.
pub fn parse(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a size is digits followed by nothing (bytes), K, M, G or T, KiB, MiB, \
        GiB or TiB (powers of 1024), or kB, MB, GB or TB (powers of 1000), such as 8MiB";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(EXPECTED.to_owned());
    }
    let suffix = suffix.to_ascii_lowercase();
    let Some((_, unit)) = SUFFIXES.into_iter().find(|(name, _)| *name == suffix) else {
        return Err(EXPECTED.to_owned());
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "it is larger than any memory or object".to_owned())
}

/// Bytes in powers of 1000, as networks and disks are sold: `4.29 GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal(pub u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
    }
}

/// Bytes in powers of 1024, as memory is counted: `61 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binary(pub u64);

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
    }
}

/// At least three significant digits, without trailing zeros for whole numbers.
fn scaled(f: &mut fmt::Formatter<'_>, bytes: u64, step: f64, units: &[&str]) -> fmt::Result {
    let mut value = bytes as f64;
    let mut unit = 0;
    // A value that would be rounded up to a whole step belongs to the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        _ if value.fract() == 0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    write!(f, "{value:.digits$} {}", units[unit])
}

/// A count with commas between its thousands: `1,234`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.char_indices() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A count with its noun: `1 object`, `1,234 objects`.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", Count(count), if count == 1 { one } else { many })
}

/// A time in seconds to the digits that matter: `12 ms`, `0.62 s`, `8.5 s`, `2 min 5 s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0.max(0.0);
        let whole = rounded(value);
        match value {
            0.0 => f.write_str("0 s"),
            ..0.0995 => write!(f, "{:.0} ms", (value * 1e3).max(1.0)),
            ..0.995 => write!(f, "{value:.2} s"),
            ..59.5 => match value < 9.95 {
                true => write!(f, "{value:.1} s"),
                false => write!(f, "{whole} s"),
            },
            _ if whole < 3600 => write!(f, "{} min {} s", whole / 60, whole % 60),
            _ => write!(f, "{} h {} min", whole / 3600, whole % 3600 / 60),
        }
    }
}

/// Like [`Seconds`], for a duration that is not zero: shows at least `less than 1 ms`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Short(pub f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ..0.001 => f.write_str("less than 1 ms"),
            seconds => Seconds(seconds).fmt(f),
        }
    }
}

/// Bytes over a time, in a suitable unit: `16.2 MB/s`; `None` for no bytes or no time.
#[must_use]
pub fn rate(bytes: u64, seconds: f64) -> Option<String> {
    let is_some = bytes > 0 && seconds > 0.0;
    is_some.then(|| PerSecond(bytes as f64 / seconds).to_string())
}

/// Bytes per second: `16.2 MB/s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerSecond(pub f64);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Decimal(rounded(self.0)))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range becomes the nearest that is not"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_some_time_did_not_take_none() {
        for (seconds, expected) in
            [(0.0, "less than 1 ms"), (0.0009, "less than 1 ms"), (0.012, "12 ms")]
        {
            assert_eq!(Short(seconds).to_string(), expected);
        }
    }

    #[test]
    fn sizes_as_typed() {
        let check = |text: &str, expected: u64| assert_eq!(parse(text), Ok(expected), "{text}");
        check("0", 0);
        check("4096", 4096);
        check("1K", 1024);
        check("64M", 67_108_864);
        check("2G", 2_147_483_648);
        check("64m", 67_108_864);
        check("1KiB", 1024);
        check("8MiB", 8_388_608);
        check("1GiB", 1_073_741_824);
        check("1kB", 1000);
        check("1KB", 1000);
        check("8MB", 8_000_000);
        check("1GB", 1_000_000_000);
        check("2TB", 2_000_000_000_000);
        check("1T", 1 << 40);
        check("1TiB", 1 << 40);
        check("18446744073709551615", u64::MAX);
    }

    #[test]
    fn what_is_not_a_size() {
        for text in ["", "M", "-1", "+1", "1.5G", "8 MiB", " 8", "8MiBs", "0x10", "8P", "٣"] {
            let why = parse(text).expect_err(text);
            assert!(why.contains("such as 8MiB") && !why.contains('\n'), "{text}: {why}");
        }
        for text in ["18446744073709551616", "17179869184G"] {
            assert!(parse(text).expect_err(text).contains("larger"), "{text}");
        }
    }

    #[test]
    fn sizes_as_shown() {
        let check = |bytes: u64, decimal: &str, binary: &str| {
            assert_eq!(Decimal(bytes).to_string(), decimal);
            assert_eq!(Binary(bytes).to_string(), binary);
        };
        check(0, "0 B", "0 B");
        check(999, "999 B", "999 B");
        check(1_000, "1 kB", "1000 B");
        check(4_290_000_000, "4.29 GB", "4.00 GiB");
        check(61 << 20, "64.0 MB", "61 MiB");
        check(999_999, "1.00 MB", "977 KiB");
        check(999_499, "999 kB", "976 KiB");
        check(12_345_678, "12.3 MB", "11.8 MiB");
        check(u64::MAX, "18.4 EB", "16 EiB");
    }

    #[test]
    fn times_and_rates_have_the_digits_that_matter() {
        let shown = |seconds| Seconds(seconds).to_string();
        let times = [0.0, 0.000_01, 0.0123, 0.099_6, 0.62, 0.996, 8.54, 9.96, 59.6, 125.0, 3725.0];
        let expected = [
            "0 s",
            "1 ms",
            "12 ms",
            "0.10 s",
            "0.62 s",
            "1.0 s",
            "8.5 s",
            "10 s",
            "1 min 0 s",
            "2 min 5 s",
            "1 h 2 min",
        ];
        assert_eq!(times.map(shown), expected);
        assert_eq!(rate(136_000_000, 8.5).as_deref(), Some("16 MB/s"));
        assert_eq!(rate(20, 2.0).as_deref(), Some("10 B/s"));
        assert_eq!((rate(0, 1.0), rate(1, 0.0)), (None, None));
    }

    #[test]
    fn counts() {
        let shown = [0, 1, 1_234].map(|count| counted(count, "object", "objects"));
        assert_eq!(shown, ["0 objects", "1 object", "1,234 objects"]);
        let shown = [0, 999, 1_000, 1_234_567].map(|count| Count(count).to_string());
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
