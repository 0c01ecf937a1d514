//! URLs of objects: `https://host/path?query` as users and redirects write them, shown without
//! their queries, which may be signatures.
//!
//! Pure. A request to such a URL is not signed: whoever published it has put into it what it needs.
//! Which server has the object, and that the request is answered, is [`crate::control`]'s matter.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::URL_RENEWALS_IN_ROW_MAX;
use crate::text::instant::{instant_text, parse_instant};
use crate::text::shown::shortened;

/// Longest URL, in bytes: with its headers a request fits its buffer.
pub const URL_BYTES_MAX: usize = 8 * 1024;

/// True if the text is a URL of HTTP, in whatever case.
#[must_use]
pub fn is_url(text: &str) -> bool {
    let begins = |scheme: &str| {
        text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    begins("http://") || begins("https://")
}

/// The URL that a text was meant as which has one slash or none after the scheme, without its user
/// and its query.
#[must_use]
pub fn meant_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.trim_start_matches(['/', '\\']));
    let is_meant = matches!(scheme.as_str(), "http" | "https") && !is_url(text);
    (is_meant && !rest.is_empty()).then(|| location_without_query(&format!("{scheme}://{rest}")))
}

/// A text that may be a URL, or else a path, without the user and the query of a URL.
#[must_use]
pub fn without_query(text: &str) -> String {
    if is_url(text) { location_without_query(text) } else { text.to_owned() }
}

/// The `Location` of a redirect, or a text that was meant as a URL, without its user and its query,
/// whatever its scheme, if it has one: it may be relative, too.
#[must_use]
pub fn location_without_query(text: &str) -> String {
    let end = text.find(['?', '#']);
    if let Some(end) = end
        && let Some((scheme, host)) = text[..end].split_once("//")
        && !host.contains(['/', '\\'])
        && text[end..].contains('@')
    {
        // What seems to be a host may be the first part of a password.
        return format!("{scheme}//...");
    }
    let (path, query) = end.map_or((text, ""), |end| (&text[..end], "?..."));
    // A user and a password stand before the last `@`; what else is there may be part of them.
    let Some((user, rest)) = path.rsplit_once('@') else { return format!("{path}{query}") };
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match user.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, user)) if !user.contains(['/', '\\']) => format!("{scheme}://{rest}{query}"),
        Some((scheme, _)) => format!("{scheme}://...{rest}{query}"),
        None => format!("...{rest}{query}"),
    }
}

/// One URL. Its query is never shown, and wiped from memory on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct WebUrl {
    is_tls: bool,
    /// With the port unless it is the scheme's default.
    host: String,
    /// Path and query as they are requested, encoded.
    target: Zeroizing<String>,
}

impl fmt::Display for WebUrl {
    /// Without the query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query().is_some() { "?..." } else { "" };
        write!(f, "{}{}{query}", self.origin(), shortened(self.path()))
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebUrl({self})")
    }
}

impl WebUrl {
    /// Parses a URL of an object (RFC 3986, as browsers read it). A fragment is left out.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it is none, has a user, is too long, or its path names no file. The
    /// message has no part of the query.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            let named = shortened(&without_query(text));
            Error::new(ErrorKind::Usage, format!("'{named}' cannot be downloaded: {why}"))
        };
        let url = Self::read(text, None).map_err(|why| {
            refuse(&why).advise("expected a URL such as https://example.com/data/train.tar")
        })?;
        url.name().map_err(|why| refuse(&why).advise("give the URL of a file"))?;
        Ok(url)
    }

    /// A URL, or a reference to one from `base`.
    fn read(text: &str, base: Option<&Url>) -> Result<Self, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("it has more than {URL_BYTES_MAX} bytes"));
        }
        let parsed = Url::options().base_url(base).parse(text);
        let url = parsed.map_err(|error| error.to_string())?;
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err("it does not begin with http:// or https://".to_owned()),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it has a user, to whom inrush does not log in: omit it".to_owned());
        }
        let name = url.host_str().ok_or("it has no host")?;
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let query = url.query().map(|query| format!("?{query}")).map(Zeroizing::new);
        let query = query.as_ref().map_or("", |query| query.as_str());
        let target = Zeroizing::new(format!("{}{query}", url.path()));
        if target.len() > URL_BYTES_MAX {
            return Err(format!("encoded it has more than {URL_BYTES_MAX} bytes"));
        }
        Ok(Self { is_tls, host, target })
    }

    /// The URL of this path and query at a server.
    #[must_use]
    pub fn at(is_tls: bool, host: &str, target: String) -> Self {
        Self { is_tls, host: host.to_owned(), target: Zeroizing::new(target) }
    }

    /// The URL of its server.
    #[must_use]
    pub fn server(&self) -> Self {
        Self::at(self.is_tls, &self.host, "/".to_owned())
    }

    /// True if both are of one server.
    #[must_use]
    pub fn is_of_server_of(&self, other: &Self) -> bool {
        (self.is_tls, &self.host) == (other.is_tls, &other.host)
    }

    /// The URL that a redirect leads to by its `Location` (RFC 9110 section 10.2.2).
    ///
    /// # Errors
    /// Why it is not followed, without a part of its query.
    pub fn follow(&self, location: &str) -> Result<Self, String> {
        let base = Zeroizing::new(format!("{}{}", self.origin(), self.target.as_str()));
        let base = Url::parse(&base).map_err(|error| error.to_string())?;
        let named = || shortened(&location_without_query(location));
        let next = Self::read(location, Some(&base))
            .map_err(|why| format!("it leads to '{}': {why}", named()))?;
        if self.is_tls && !next.is_tls {
            return Err(format!("it leads from https to {next}, which is not encrypted"));
        }
        Ok(next)
    }

    /// True for https.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Host name or address, with the port unless it is the scheme's default.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Scheme and host: `https://host:port`.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.host)
    }

    /// Path and query as they are requested; a secret.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The path, encoded; it begins with a slash.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The path without its first slash, decoded once; and the offset of its last segment there,
    /// which is the name of its file.
    ///
    /// # Errors
    /// Why it names no file.
    pub fn name(&self) -> Result<(String, usize), String> {
        let path = self.path().trim_start_matches('/');
        let (folder, last) = path
            .rsplit_once('/')
            .map_or(("", path), |(folder, _)| (&path[..=folder.len()], &path[folder.len() + 1..]));
        let last = percent_decode_str(last).decode_utf8();
        let last = last.map_err(|_| "the last part of its path is not UTF-8".to_owned())?;
        if last.is_empty() {
            return Err("its path names no file".to_owned());
        }
        if last.contains('/') || last.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("the last part of its path has a slash or a control character".to_owned());
        }
        let folder = percent_decode_str(folder).decode_utf8_lossy();
        Ok((format!("{folder}{last}"), folder.len()))
    }

    /// When the signature in its query ends; `None` if it has none that is known: of S3 and Google
    /// Cloud Storage (the date and the seconds that it is valid for), of CloudFront and of version
    /// 2 of S3 (`Expires`, in seconds since the Epoch), and of Azure (`se`, a date).
    #[must_use]
    pub fn ends(&self) -> Option<SystemTime> {
        let value = |wanted: &str| {
            let mut pairs = self.query()?.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
            percent_decode_str(value).decode_utf8().ok()
        };
        let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
        for provider in ["Amz", "Goog"] {
            let date = value(&format!("X-{provider}-Date"));
            let valid_for = value(&format!("X-{provider}-Expires"));
            if let (Some(date), Some(valid_for)) = (date, valid_for) {
                return parse_instant(&date)?.checked_add(seconds(&valid_for)?);
            }
        }
        match (value("Expires"), value("se")) {
            (Some(at), _) => UNIX_EPOCH.checked_add(seconds(&at)?),
            (None, Some(at)) => parse_instant(&at),
            (None, None) => None,
        }
    }

    /// Gives an error of a request to it the advice for a URL: what is said of keys and settings of
    /// S3 does not help. `now`: the time, if it is known.
    #[must_use]
    pub fn advise(&self, error: Error, now: Option<SystemTime>) -> Error {
        let ends = self.ends().and_then(|ends| Some((ends, instant_text(ends)?)));
        let advice = match (error.kind(), ends) {
            (ErrorKind::Access, Some((ends, at))) if now.is_some_and(|now| ends <= now) => {
                format!("it has expired, it was valid until {at}: get a new URL")
            }
            (ErrorKind::Access, Some((_, at))) => {
                format!("get a new URL: this one is made to be valid until {at}")
            }
            (ErrorKind::Access, None) if self.query().is_some() => {
                "the URL may have expired: get a new one; no credentials are sent to URLs"
                    .to_owned()
            }
            (ErrorKind::Access, None) => {
                "no credentials are sent to URLs: give one that is public or presigned, or \
                 s3://BUCKET/KEY"
                    .to_owned()
            }
            (ErrorKind::NotFound, _) => "check the URL".to_owned(),
            (ErrorKind::Endpoint, _)
                if error.advice().is_none_or(|advice| advice.contains("--endpoint-url")) =>
            {
                "check the URL and the network".to_owned()
            }
            _ => return error,
        };
        error.advise(advice)
    }
}

/// Where the object of a URL is at present: the end of its redirects, which a server may have
/// signed for a short time.
pub struct WebTarget {
    /// The URL as it was given.
    source: WebUrl,
    /// Path and query at the object's endpoint.
    current: RwLock<Zeroizing<String>>,
    /// The server sends the whole object whatever range is requested.
    is_whole_only: bool,
    /// The endpoint refuses the current target.
    is_refused: AtomicBool,
    /// Renewals since the endpoint has last accepted one.
    renewals: AtomicU32,
    /// Why there is no newer target; empty while there may be one.
    failure: Mutex<String>,
}

impl fmt::Debug for WebTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebTarget({})", self.source)
    }
}

impl PartialEq for WebTarget {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for WebTarget {}

impl WebTarget {
    /// The object of this URL, at `current`.
    #[must_use]
    pub fn new(source: WebUrl, current: &WebUrl, is_whole_only: bool) -> Self {
        Self {
            source,
            current: RwLock::new(current.target.clone()),
            is_whole_only,
            is_refused: AtomicBool::new(false),
            renewals: AtomicU32::new(0),
            failure: Mutex::default(),
        }
    }

    /// The URL as it was given.
    #[must_use]
    pub const fn source(&self) -> &WebUrl {
        &self.source
    }

    /// True if the server sends the whole object whatever range is requested.
    #[must_use]
    pub const fn is_whole_only(&self) -> bool {
        self.is_whole_only
    }

    /// Path and query of a request, while no newer ones are published; a secret.
    pub fn current(&self) -> impl Deref<Target = Zeroizing<String>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a newer target of its endpoint.
    pub fn publish(&self, current: &WebUrl) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current.target.clone();
        self.is_refused.store(false, Ordering::Release);
    }

    /// Records that the endpoint refuses the current target; false if there will be no newer one.
    pub fn refuse(&self) -> bool {
        self.is_refused.store(true, Ordering::Release);
        self.failure().is_empty()
    }

    /// Takes note of a refusal: true if a newer target is wanted since the last call.
    pub fn take_refusal(&self) -> bool {
        self.is_refused.swap(false, Ordering::AcqRel) && self.failure().is_empty()
    }

    /// Counts a renewal; false if too many have followed one another, none of which the endpoint
    /// has accepted.
    pub fn renew(&self) -> bool {
        self.renewals.fetch_add(1, Ordering::Relaxed) < URL_RENEWALS_IN_ROW_MAX
    }

    /// Records that the endpoint has accepted the current target.
    pub fn note_accepted(&self) {
        // Mostly so already: no write to memory that all workers read.
        if self.renewals.load(Ordering::Relaxed) > 0 {
            self.renewals.store(0, Ordering::Relaxed);
        }
    }

    /// Records why there is no newer target.
    pub fn fail(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why there is no newer target; empty while there may be one.
    #[must_use]
    pub fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WebUrl {
        WebUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn urls_are_taken_apart() {
        let check = |text: &str, origin: &str, target: &str, name: &str, shown: &str| {
            let url = url(text);
            assert_eq!((url.origin().as_str(), url.target()), (origin, target), "{text}");
            let (path, start) = url.name().expect("a name");
            assert_eq!(&path[start..], name, "{text}");
            assert_eq!(url.to_string(), shown, "{text}");
            assert_eq!(format!("{url:?}"), format!("WebUrl({shown})"));
        };
        check("https://h.test/f", "https://h.test", "/f", "f", "https://h.test/f");
        check("HTTPS://H.Test:443/a/f", "https://h.test", "/a/f", "f", "https://h.test/a/f");
        check("http://[::1]:80/a/f#x", "http://[::1]", "/a/f", "f", "http://[::1]/a/f");
        check(
            "http://h:81/a%20b/f%2b1.bin?X-Amz-Signature=secret&b=%2F",
            "http://h:81",
            "/a%20b/f%2b1.bin?X-Amz-Signature=secret&b=%2F",
            "f+1.bin",
            "http://h:81/a%20b/f%2b1.bin?...",
        );
        // Decoded once.
        check("http://h/a%252Fb", "http://h", "/a%252Fb", "a%2Fb", "http://h/a%252Fb");
        check("http://h/a/../b", "http://h", "/b", "b", "http://h/b");
        check("http://h//x", "http://h", "//x", "x", "http://h//x");
        assert_eq!(url("https://h/ü/é").name().expect("a name"), ("ü/é".to_owned(), 3));
    }

    #[test]
    fn what_is_no_file_is_refused_without_secrets() {
        let long = format!("https://h/{}", "a".repeat(URL_BYTES_MAX));
        let encoded = format!("https://h/{}", "ü".repeat(URL_BYTES_MAX / 3));
        for (text, why) in [
            ("https://me:hunter2@h/f?sig=hunter2", "it has a user"),
            ("https://me:hun/ter2@h/f?sig=hunter2", "cannot be downloaded"),
            ("https://hunter2@h/f", "it has a user"),
            ("https:///?sig=hunter2", "cannot be downloaded"),
            ("https://h?sig=hunter2", "names no file"),
            ("https://h/?sig=hunter2", "names no file"),
            ("https://h/a/?sig=hunter2", "names no file"),
            ("https://h/a%2Fb?sig=hunter2", "has a slash"),
            ("https://h/a%00b?sig=hunter2", "a control character"),
            ("https://h/a%0Ab?sig=hunter2", "a control character"),
            ("https://h/%ff?sig=hunter2", "is not UTF-8"),
            ("https://h:99999/f?sig=hunter2", "port"),
            ("ftp://h/f", "does not begin with http"),
            (&long, "more than 8192 bytes"),
            (&encoded, "encoded it has more than 8192 bytes"),
        ] {
            let error = WebUrl::parse(text).expect_err(why);
            assert_eq!(error.kind(), ErrorKind::Usage);
            let line = error.to_string();
            assert!(line.contains(why), "{text}: {line}");
            assert!(!line.contains("hun"), "{line}");
        }
    }

    #[test]
    fn users_and_queries_are_not_shown() {
        let check = |text: &str, expected: &str| assert_eq!(location_without_query(text), expected);
        check("https://h/f?sig=hunter2", "https://h/f?...");
        check("https://h/f#hunter2?", "https://h/f?...");
        check("https://me:hunter2@h/f?sig=hunter2", "https://h/f?...");
        check("https://me:hun/ter2@h/f", "https://...h/f");
        check("https://h/of@me/f", "https://...me/f");
        check("//me:hunter2@h/f?", "...h/f?...");
        check("https://me:hun?ter2@h/f", "https://...");
        check("//me:hun#ter2@h/f?x", "//...");
        check("//me:hun://ter2@h/f", "...h/f");
        check("/f?sig=hunter2&to=https://h@h/f", "/f?...");
        check("ftp://me:hunter2@h/f", "ftp://h/f");
        check("a/b", "a/b");
        assert_eq!(without_query("HTTP://hunter2@h/f?x"), "HTTP://h/f?...");
        assert_eq!(without_query("a@b?c"), "a@b?c", "a path is as it was typed");
    }

    #[test]
    fn redirects_keep_to_encrypted_hosts_and_pass_on_no_query() {
        let from = url("https://h.test/a/b?sig=hunter2");
        let check = |location: &str, expected: Result<&str, &str>| match (
            from.follow(location),
            expected,
        ) {
            (Ok(next), Ok(expected)) => {
                assert_eq!(format!("{}{}", next.origin(), next.target()), expected);
            }
            (Err(why), Err(expected)) => {
                assert!(why.contains(expected), "{location}: {why}");
                assert!(!why.contains("hunter2") && !why.contains("other2"), "{why}");
            }
            (found, _) => panic!("{location}: {found:?}"),
        };
        check("https://cdn.test/x?sig=other2", Ok("https://cdn.test/x?sig=other2"));
        check("//cdn.test/x", Ok("https://cdn.test/x"));
        check("//me:other2@cdn.test/x?sig=other2", Err("'...cdn.test/x?...': it has a user"));
        check("ftp://h/x?sig=other2", Err("'ftp://h/x?...': it does not begin with http"));
        check("//h:99999/x?sig=other2", Err("port"));
        let long = format!("/x?{}&sig=other2", "y".repeat(URL_BYTES_MAX));
        check(&long, Err("'/x?...': it has more than 8192 bytes"));
        check("/x?y", Ok("https://h.test/x?y"));
        check("c", Ok("https://h.test/a/c"));
        check("../c", Ok("https://h.test/c"));
        check("?z", Ok("https://h.test/a/b?z"));
        check("http://cdn.test/x?sig=other2", Err("which is not encrypted"));
        check("https://u:other2@cdn.test/x", Err("it has a user"));
        check("file:///etc/passwd", Err("does not begin with http"));
        check("https://", Err("it leads to"));
        assert!(url("http://h/a").follow("https://h/a").expect("better").is_tls());
    }

    #[test]
    fn signatures_say_when_they_end() {
        let check = |query: &str, expected: Option<&str>| {
            let ends = url(&format!("https://h/f?{query}")).ends();
            assert_eq!(ends.and_then(instant_text).as_deref(), expected, "{query}");
        };
        check(
            "X-Amz-Date=20240102T030405Z&X-Amz-Expires=60&X-Amz-Signature=x",
            Some("2024-01-02T03:05:05Z"),
        );
        check("x-goog-date=20240102T030405Z&X-Goog-Expires=1", Some("2024-01-02T03:04:06Z"));
        check("Expires=1704164645&Signature=x&Key-Pair-Id=K", Some("2024-01-02T03:04:05Z"));
        check("se=2024-01-02T03%3A04%3A05Z&sig=x", Some("2024-01-02T03:04:05Z"));
        for none in [
            "",
            "sig=x",
            "X-Amz-Date=20240102T030405Z",
            "X-Amz-Date=then&X-Amz-Expires=60",
            "X-Amz-Date=20240102T030405Z&X-Amz-Expires=18446744073709551615",
            "Expires=soon",
            "Expires=18446744073709551615",
            "se=%ff",
        ] {
            check(none, None);
        }
    }

    #[test]
    fn advice_is_about_the_url() {
        let refused = || Error::new(ErrorKind::Access, "refused").advise("check the credentials");
        let signed = url("https://h/f?X-Amz-Date=20240102T030405Z&X-Amz-Expires=60");
        let advice = |url: &WebUrl, error: Error, now| {
            url.advise(error, now).advice().expect("advice").to_owned()
        };
        let late = Some(UNIX_EPOCH + Duration::from_secs(1_704_164_800));
        let early = Some(UNIX_EPOCH + Duration::from_secs(1_704_164_650));
        let expired = advice(&signed, refused(), late);
        assert_eq!(
            expired,
            "it has expired, it was valid until 2024-01-02T03:05:05Z: get a new URL"
        );
        for now in [early, None] {
            assert!(advice(&signed, refused(), now).contains("made to be valid until 2024"));
        }
        assert!(advice(&url("https://h/f?token=x"), refused(), None).contains("may have expired"));
        assert!(advice(&url("https://h/f"), refused(), None).contains("s3://BUCKET/KEY"));
        let away = |advice: &str| Error::new(ErrorKind::Endpoint, "away").advise(advice);
        assert!(advice(&signed, away("check --endpoint-url"), None).contains("check the URL"));
        assert_eq!(advice(&signed, away("use --ca-bundle"), None), "use --ca-bundle");
    }

    #[test]
    fn a_target_is_renewed_while_that_helps() {
        let source = url("https://h/f?sig=hunter2");
        let target = WebTarget::new(source.clone(), &url("https://cdn/f?sig=one"), false);
        assert_eq!(target.current().as_str(), "/f?sig=one");
        assert!(!target.take_refusal());
        assert!(target.refuse() && target.take_refusal() && !target.take_refusal());
        for _ in 0..2 {
            assert!((0..URL_RENEWALS_IN_ROW_MAX).all(|_| target.renew()));
            assert!(!target.renew());
            target.note_accepted();
        }
        target.publish(&url("https://cdn/f?sig=two"));
        assert_eq!(target.current().as_str(), "/f?sig=two");
        target.fail("it is gone".to_owned());
        assert!(!target.refuse() && !target.take_refusal());
        assert_eq!(format!("{target:?}"), "WebTarget(https://h/f?...)");
    }
}
