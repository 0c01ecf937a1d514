//! Texts that a user gives: what is said of a bad one, and sizes. Pure.

/// A text that was given by a user and could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub(crate) String);

/// Bytes from a number with an optional unit: `17`, `39KiB`, `1GiB`, `5MB`, `1.5TB`.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    let refuse = || {
        let expected = "digits and an optional B, kB, KB, KiB, MB, MiB, GB, GiB, TB or TiB";
        ParseError(format!("invalid size '{text}', expected {expected}"))
    };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" => 1 << 40,
        _ => return Err(refuse()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| refuse())?;
    let mut bytes = u128::from(whole) * u128::from(unit);
    if !fraction.is_empty() && fraction.len() <= 9 {
        let parts: u64 = fraction.parse().map_err(|_| refuse())?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| refuse())?);
        bytes += u128::from(parts) * u128::from(unit) / scale;
    } else if !fraction.is_empty() {
        return Err(refuse());
    }
    u64::try_from(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", 0),
            ("17", 17),
            ("39KiB", 39 << 10),
            ("1GiB", 1 << 30),
            ("1.5 MB", 1_500_000),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "MiB", "1XB", "-1", "1.2.3", "99999999999TiB", "1.", ".5"] {
            assert_eq!(parse_size(text).is_err(), text != "1.", "{text}");
        }
    }
}
