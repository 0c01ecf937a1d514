//! Explains a TLS failure to the user: the server, the cause, and the advice.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError as Certificate};
use time::OffsetDateTime;

use crate::error::{Error, ErrorKind};
use crate::s3::uri::shown;

/// Most names of a certificate that an error lists.
const NAMES_LISTED_MAX: usize = 5;

const ADVICE_TRUST: &str =
    "name its authority, or itself, with --ca-bundle FILE; --no-verify-ssl disables the check";
const ADVICE_NAME: &str = "check --endpoint-url; --no-verify-ssl disables the check";
const ADVICE_FORGED: &str = "check who answers at --endpoint-url, and give the authority's present \
                             certificate with --ca-bundle FILE";
const ADVICE_SERVER: &str = "give the server a new certificate; --no-verify-ssl disables the check";
const ADVICE_CLOCK: &str =
    "check this machine's clock or renew the certificate; --no-verify-ssl disables the check";

/// The error for a session with `host` that failed or broke.
#[must_use]
pub fn explain(host: &str, error: &rustls::Error) -> Error {
    let (why, advice) = reason(error);
    Error::new(ErrorKind::Endpoint, format!("TLS with {}: {why}", shown(host)))
        .advise(advice)
        .caused_by(error.clone())
}

fn reason(error: &rustls::Error) -> (String, &'static str) {
    match error {
        rustls::Error::InvalidCertificate(certificate) => certificate_reason(certificate),
        rustls::Error::PeerIncompatible(why) => (
            format!("no version and cipher suite in common ({})", words(&format!("{why:?}"))),
            "the server must offer TLS 1.2 or 1.3 with an AEAD cipher suite",
        ),
        rustls::Error::AlertReceived(alert) => (
            format!("the server refused it: {}", alert_reason(*alert)),
            "check --endpoint-url, and which versions and names the server has",
        ),
        rustls::Error::InvalidMessage(_) => (
            "the server does not speak TLS on this port, or its records are damaged".to_owned(),
            "for a server without TLS give --endpoint-url http://HOST",
        ),
        rustls::Error::UnsupportedNameType => {
            ("a certificate cannot be for this name".to_owned(), "check --endpoint-url")
        }
        other => (shown(&other.to_string()), "check the network and the endpoint"),
    }
}

fn certificate_reason(certificate: &Certificate) -> (String, &'static str) {
    match certificate {
        Certificate::UnknownIssuer => (
            "its certificate is self-signed, or its authority is not trusted".to_owned(),
            ADVICE_TRUST,
        ),
        Certificate::ExpiredContext { not_after, .. } => {
            (format!("its certificate expired on {}", date(*not_after)), ADVICE_CLOCK)
        }
        Certificate::Expired => ("its certificate has expired".to_owned(), ADVICE_CLOCK),
        Certificate::NotValidYetContext { not_before, .. } => {
            (format!("its certificate is valid from {} on", date(*not_before)), ADVICE_CLOCK)
        }
        Certificate::NotValidYet => ("its certificate is not valid yet".to_owned(), ADVICE_CLOCK),
        Certificate::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> =
                presented.iter().take(NAMES_LISTED_MAX).map(|name| shown(name)).collect();
            let more = if presented.len() > NAMES_LISTED_MAX { ", ..." } else { "" };
            (format!("its certificate is for {}{more}", names.join(", ")), ADVICE_NAME)
        }
        Certificate::NotValidForName => {
            ("its certificate is for another name".to_owned(), ADVICE_NAME)
        }
        Certificate::BadSignature => (
            "its certificate is not signed by the authority that it names: it was replaced or \
             altered, or that authority has another key by now"
                .to_owned(),
            ADVICE_FORGED,
        ),
        Certificate::BadEncoding => ("its certificate is damaged".to_owned(), ADVICE_SERVER),
        Certificate::Revoked => ("its certificate was revoked".to_owned(), ADVICE_SERVER),
        Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => {
            ("its certificate is not one for servers".to_owned(), ADVICE_SERVER)
        }
        Certificate::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => (
                "its certificate is that of an authority, which cannot be a server's, too"
                    .to_owned(),
                ADVICE_TRUST,
            ),
            other => (format!("its certificate is refused: {}", words(other)), ADVICE_TRUST),
        },
        other => {
            (format!("its certificate is refused: {}", words(&format!("{other:?}"))), ADVICE_TRUST)
        }
    }
}

/// The meaning of an alert (RFC 8446, section 6.2).
fn alert_reason(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::ProtocolVersion => "it speaks neither TLS 1.2 nor TLS 1.3".to_owned(),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it accepts none of the cipher suites offered".to_owned()
        }
        AlertDescription::UnrecognisedName => "it has no such name".to_owned(),
        AlertDescription::CertificateRequired => {
            "it requires a certificate from its clients, which inrush does not have".to_owned()
        }
        other => words(&format!("{other:?}")),
    }
}

/// A variant's name as words: `UnhandledCriticalExtension` is `unhandled critical extension`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            words.push(' ');
        }
        words.push(if before.is_ascii_uppercase() { letter } else { letter.to_ascii_lowercase() });
        before = letter;
    }
    shown(&words)
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| "a day beyond the calendar".to_owned(), |time| time.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_host_reason_and_flag() {
        let check = |error: rustls::Error, why: &str, flag: &str| {
            let line = explain("s3.lab:9000", &error).to_string();
            assert!(line.contains("s3.lab:9000") && line.contains(why), "{line}");
            assert!(line.contains(flag), "{line}");
        };
        let day = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        check(Certificate::UnknownIssuer.into(), "authority", "--ca-bundle");
        let expired = Certificate::ExpiredContext { time: day(2), not_after: day(86_400) };
        check(expired.into(), "expired on 1970-01-02", "--no-verify-ssl");
        let early = Certificate::NotValidYetContext { time: day(2), not_before: day(u64::MAX) };
        check(early.into(), "beyond the calendar", "clock");
        let expected = rustls::pki_types::ServerName::try_from("a").expect("a name");
        let presented = (0..9).map(|number| format!("n{number}\x1b[31m")).collect();
        let named = Certificate::NotValidForNameContext { expected, presented };
        let line = explain("h", &named.clone().into()).to_string();
        assert!(line.contains("n4") && !line.contains("n5") && !line.contains('\x1b'), "{line}");
        check(named.into(), "is for", "--endpoint-url");
        let message = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        check(message, "does not speak TLS", "http://");
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion);
        check(alert, "neither TLS 1.2 nor", "versions");
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
        check(alert, "refused it: internal error", "versions");
        check(Certificate::BadSignature.into(), "not signed by the authority", "--ca-bundle");
        let authority =
            rustls::OtherError(std::sync::Arc::new(std::io::Error::other("CaUsedAsEndEntity")));
        check(Certificate::Other(authority).into(), "that of an authority", "--ca-bundle");
        check(Certificate::UnhandledCriticalExtension.into(), "unhandled critical ext", "--ca-b");
    }
}
