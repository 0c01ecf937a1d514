//! A byte range as users type it, in the syntax of HTTP (RFC 9110 section 14.1.2) and curl.
//!
//! Pure. The object's size is known later, from a request.

use std::fmt;
use std::str::FromStr;

use crate::s3::ByteRange;

/// The value of `--range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypedRange {
    /// `START-` and `START-END`; the end is included.
    From {
        /// First byte, from 0.
        first: u64,
        /// Last byte, not below the first; `None`: the end of the object.
        last: Option<u64>,
    },
    /// `-SUFFIX`: the last bytes, at least one.
    Last(u64),
}

impl TypedRange {
    /// The bytes of an object of this size; an end beyond the object is cut.
    ///
    /// # Errors
    /// If no byte of the object is in it: HTTP answers 416 (Range Not Satisfiable).
    pub fn within(self, size_bytes: u64) -> Result<ByteRange, String> {
        let (first, end) = match self {
            Self::From { first, last } => {
                (first, last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes)))
            }
            Self::Last(bytes) => (size_bytes.saturating_sub(bytes), size_bytes),
        };
        if first >= size_bytes {
            return Err(format!(
                "the range {self} is not satisfiable (HTTP 416): the object has {size_bytes} bytes"
            ));
        }
        Ok(ByteRange { offset: first, length: end - first })
    }
}

impl fmt::Display for TypedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From { first, last: Some(last) } => write!(f, "{first}-{last}"),
            Self::From { first, last: None } => write!(f, "{first}-"),
            Self::Last(bytes) => write!(f, "-{bytes}"),
        }
    }
}

impl FromStr for TypedRange {
    type Err = String;

    /// Parses one range, with or without the unit of a Range header.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            "expected START-END, START- or -SUFFIX in bytes, such as 0-99; END is included"
                .to_owned()
        };
        let range = text.strip_prefix("bytes=").unwrap_or(text);
        let (first, last) = range.split_once('-').ok_or_else(expected)?;
        let number = |digits: &str| {
            let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| are_digits).ok_or_else(expected)
        };
        match (first, last) {
            ("", suffix) => match number(suffix)? {
                0 => Err("a suffix of 0 bytes is no range".to_owned()),
                bytes => Ok(Self::Last(bytes)),
            },
            (first, "") => Ok(Self::From { first: number(first)?, last: None }),
            (first, last) => match (number(first)?, number(last)?) {
                (first, last) if first <= last => Ok(Self::From { first, last: Some(last) }),
                _ => Err("the range ends before it starts".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offset and length of a range of an object.
    fn within(text: &str, size_bytes: u64) -> Result<(u64, u64), String> {
        let range: TypedRange = text.parse().expect("a good range");
        assert_eq!(range.to_string(), text.trim_start_matches("bytes="));
        range.within(size_bytes).map(|range| (range.offset, range.length))
    }

    #[test]
    fn ranges_are_those_of_http() {
        // The examples of RFC 9110 section 14.1.2, for 10,000 bytes.
        for (text, expected) in [
            ("0-499", (0, 500)),
            ("500-999", (500, 500)),
            ("-500", (9_500, 500)),
            ("9500-", (9_500, 500)),
            ("0-0", (0, 1)),
            ("bytes=0-499", (0, 500)),
            // An end beyond the object.
            ("9999-20000", (9_999, 1)),
            ("0-18446744073709551615", (0, 10_000)),
            ("-20000", (0, 10_000)),
        ] {
            assert_eq!(within(text, 10_000), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_lies_beyond_the_end_is_not_satisfiable() {
        for (text, size_bytes) in [("100-", 100), ("100-200", 100), ("0-", 0), ("-1", 0)] {
            let why = within(text, size_bytes).expect_err(text);
            let expected =
                format!("{text} is not satisfiable (HTTP 416): the object has {size_bytes}");
            assert!(why.contains(&expected), "{why}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "-", "5", "a-b", "1-2-3", "0-1,5-6", "+1-2", "0x1-2", "bits=0-1", "--1"] {
            let why = text.parse::<TypedRange>().expect_err(text);
            assert!(why.starts_with("expected START-END"), "{text}: {why}");
        }
        assert!("9-1".parse::<TypedRange>().is_err_and(|why| why.contains("ends before")));
        assert!("-0".parse::<TypedRange>().is_err_and(|why| why.contains("0 bytes")));
        assert!("18446744073709551616-".parse::<TypedRange>().is_err());
    }
}
