//! How a run ended, for programs: the fields that every document of `--json` has beside its own.

use serde::Serialize;

use super::json;
use crate::error::{Error, ErrorReason};

/// A summary, and why the run failed.
#[derive(Serialize)]
struct WithSummary<'a, S> {
    /// The kind of document: `summary`.
    kind: &'static str,
    #[serde(flatten)]
    summary: &'a S,
    /// The error, as on standard error; null if there was none.
    error: Option<String>,
    /// Its kind, from a closed set; null if there was none.
    error_kind: Option<ErrorReason>,
}

/// The document of a run that failed before it had a summary.
#[derive(Serialize)]
struct Failed {
    /// The kind of document: `error`.
    kind: &'static str,
    version: &'static str,
    exit_code: u8,
    error: String,
    error_kind: ErrorReason,
}

/// The document of a run with a summary.
#[must_use]
pub fn summary_json(summary: &impl Serialize, error: Option<&Error>) -> String {
    json(&WithSummary {
        kind: "summary",
        summary,
        error: error.map(ToString::to_string),
        error_kind: error.map(Error::reason),
    })
}

/// The document of a run that failed before it had a summary; also the last line of a failed
/// listing.
#[must_use]
pub fn failure_json(error: &Error) -> String {
    json(&Failed {
        kind: "error",
        version: env!("CARGO_PKG_VERSION"),
        exit_code: error.kind().exit_code(),
        error: error.to_string(),
        error_kind: error.reason(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_failure_says_why() {
        let full = Error::new(ErrorKind::Destination, "full").because(ErrorReason::NoSpace);
        let expected = format!(
            concat!(
                r#"{{"kind":"error","version":"{}","exit_code":5,"#,
                r#""error":"full; tidy up","error_kind":"no_space"}}"#
            ),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(failure_json(&full.clone().advise("tidy up")), expected);
        let summary = serde_json::json!({"exit_code": 5});
        assert_eq!(
            summary_json(&summary, Some(&full)),
            r#"{"kind":"summary","exit_code":5,"error":"full","error_kind":"no_space"}"#
        );
        assert_eq!(
            summary_json(&summary, None),
            r#"{"kind":"summary","exit_code":5,"error":null,"error_kind":null}"#
        );
    }
}
