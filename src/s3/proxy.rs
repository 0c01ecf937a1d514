//! HTTP proxies: which one the environment selects for an endpoint, and the requests to it.
//!
//! Pure: the environment is an argument. For a server over TLS the proxy opens a tunnel (`CONNECT`,
//! RFC 9110 section 9.3.6); without TLS it gets the whole URL and sends the request itself (RFC
//! 9112 section 3.2.2). Its user and password are never shown.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::percent_decode_str;
use url::{Host, Url};
use zeroize::Zeroizing;

use super::answer::ServerError;
use super::{Endpoint, sign};
use crate::error::{Error, ErrorKind, Result};

/// Longest user and password of a proxy, in bytes: request heads have a limited length.
const CREDENTIALS_BYTES_MAX: usize = 512;
/// Longest host name in a request to a proxy, in bytes: DNS's limit (RFC 1035).
const HOST_BYTES_MAX: usize = 255;
/// Schemes of proxies that other programs support; only these are repeated in a message.
const SCHEMES_KNOWN: [&str; 5] = ["https", "socks4", "socks4a", "socks5", "socks5h"];

/// One proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The environment variable that named it, for messages.
    variable: &'static str,
    /// Its name or address, without brackets.
    name: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<Zeroizing<String>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Display for Proxy {
    /// Host and port, without the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl Proxy {
    /// Parses the value of an environment variable.
    fn parse(variable: &'static str, value: Option<&str>) -> Result<Self> {
        // Messages repeat no part of the value: it may contain a password.
        let refuse = |why: &str| {
            Error::new(ErrorKind::Usage, format!("{variable} cannot be used: {why}")).advise(
                "expected a proxy such as http://proxy.example.com:3128; list hosts to reach \
                 directly in NO_PROXY",
            )
        };
        let text = value.ok_or_else(|| refuse("it is not UTF-8"))?.trim();
        let text: Zeroizing<String> = match text.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => text.to_owned().into(),
            Some((scheme, _)) => {
                let known = SCHEMES_KNOWN.iter().find(|known| scheme.eq_ignore_ascii_case(known));
                let what = known.map_or("another scheme".to_owned(), |known| format!("{known}://"));
                return Err(refuse(&format!("a proxy must use http://, not {what}")));
            }
            None => format!("http://{text}").into(),
        };
        let url = Url::parse(&text).map_err(|error| refuse(&error.to_string()))?;
        let (user, password) = (url.username(), url.password());
        let has_user = !user.is_empty() || password.is_some();
        let has_more = url.query().is_some() || url.fragment().is_some();
        if has_more || (text.contains('@') && !has_user) {
            return Err(refuse("write '#', '/', '?' and '@' of a password as %23, %2F, %3F, %40"));
        }
        let name = match url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err(refuse("it has no host")),
        };
        let mut credentials: Zeroizing<Vec<u8>> =
            Zeroizing::new(percent_decode_str(user).collect());
        credentials.push(b':');
        credentials.extend(percent_decode_str(password.unwrap_or_default()));
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(refuse(&format!("its user has over {CREDENTIALS_BYTES_MAX} bytes")));
        }
        let encoded = Zeroizing::new(STANDARD.encode(&*credentials));
        let authorization = has_user.then(|| Zeroizing::new(format!("Basic {}", *encoded)));
        Ok(Self { variable, name, port: url.port().unwrap_or(80), authorization })
    }

    /// Its name or address.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The value of `Proxy-Authorization`, if it needs one.
    #[must_use]
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_ref().map(|value| value.as_str())
    }

    /// Advice if it does not reach the server.
    #[must_use]
    pub fn advice(&self) -> String {
        format!("check the network and the proxy {self} of {}", self.variable)
    }

    /// The error for its answer in place of the server's.
    #[must_use]
    pub fn refusal(&self, status: u16, host: &str) -> Error {
        let variable = self.variable;
        let message = format!("the proxy {self} answered {status} to the request for {host}");
        Error::new(ErrorKind::Endpoint, message).advise(match status {
            407 if self.authorization.is_some() => {
                format!("check the user and the password in {variable}")
            }
            407 => format!("it requires a user: {variable}=http://USER:PASSWORD@{self}"),
            500.. => format!("it does not reach the server: check {variable} and the endpoint"),
            _ => format!("ask its operator to allow {host}, or add the host to NO_PROXY"),
        })
    }
}

/// An environment variable, whose value is not shown, and wiped on drop.
#[derive(Clone)]
struct Variable {
    name: &'static str,
    /// `None` if it is not UTF-8.
    value: Option<Zeroizing<String>>,
}

impl Variable {
    fn value(&self) -> Option<&str> {
        self.value.as_ref().map(|value| value.as_str())
    }

    fn is_empty(&self) -> bool {
        self.value().is_some_and(|value| value.trim().is_empty())
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The proxies from the environment, and the hosts that bypass them.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Variable>,
    https: Option<Variable>,
    all: Option<Variable>,
    /// Host names, not secret.
    no: Option<String>,
}

impl Proxies {
    /// Reads the variables: of two names the first one that is set counts, lower case before upper
    /// case. Empty it says that there is no proxy, and no other variable is asked.
    pub fn from_variables(read: impl Fn(&str) -> Option<OsString>) -> Self {
        let find = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = read(name)?;
                Some(Variable { name, value: value.into_string().ok().map(Zeroizing::new) })
            })
        };
        let find_text = |names: [&'static str; 2]| {
            let found = names.into_iter().filter_map(&read).find(|value| !value.is_empty())?;
            Some(found.to_string_lossy().into_owned())
        };
        Self {
            http: find(["http_proxy", "HTTP_PROXY"]),
            https: find(["https_proxy", "HTTPS_PROXY"]),
            all: find(["all_proxy", "ALL_PROXY"]),
            no: find_text(["no_proxy", "NO_PROXY"]),
        }
    }

    /// The endpoint's proxy. An unusable one is an error; one that is not needed is not parsed.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> Result<Option<Arc<Proxy>>> {
        let own = if endpoint.tls { &self.https } else { &self.http };
        let found = own.as_ref().or(self.all.as_ref());
        let Some(variable) = found.filter(|found| !found.is_empty()) else { return Ok(None) };
        if self.spares(endpoint.server_name(), endpoint.port()) {
            return Ok(None);
        }
        let proxy = Proxy::parse(variable.name, variable.value())?;
        if endpoint.server_name().len() > HOST_BYTES_MAX {
            let message = format!("the endpoint's host has over {HOST_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::Usage, message).advise("check --endpoint-url"));
        }
        Ok(Some(Arc::new(proxy)))
    }

    /// True if `NO_PROXY` contains the host.
    fn spares(&self, name: &str, port: u16) -> bool {
        let Some(no) = &self.no else { return false };
        let entries = no.split(|found: char| found == ',' || found.is_whitespace());
        let entries: Vec<&str> = entries.filter_map(|entry| entry_for(entry, port)).collect();
        // The matcher supports `*` for names only.
        if entries.contains(&"*") {
            return true;
        }
        let name = name.trim_end_matches('.');
        let host = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        let Ok(uri) = format!("http://{host}/").parse() else { return false };
        // Any proxy will do: the question is whether there is one.
        let matcher = Matcher::builder().all("http://proxy").no(entries.join(",")).build();
        matcher.intercept(&uri).is_none()
    }
}

/// The host pattern of an entry of `NO_PROXY`; `None` if it is for another port. `::1` and
/// `fd00::/8` contain colons: an address with a port is in brackets.
fn entry_for(entry: &str, port: u16) -> Option<&str> {
    let (name, written) = match entry.rsplit_once(':') {
        Some((name, digits))
            if digits.parse::<u64>().is_ok() && (!name.contains(':') || name.ends_with(']')) =>
        {
            (name, Some(digits))
        }
        _ => (entry, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    // Some write `*.name` for `.name`.
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    let right = written.is_none_or(|written| written.parse() == Ok(port));
    (right && !name.is_empty()).then_some(name)
}

impl Endpoint {
    /// The name to look up and the port to connect to: the proxy's, if there is one.
    #[must_use]
    pub fn next_hop(&self) -> (&str, u16) {
        match &self.proxy {
            Some(proxy) => (proxy.name(), proxy.port()),
            None => (self.server_name(), self.port()),
        }
    }

    /// The host and its proxy, for messages about what a request waits for.
    #[must_use]
    pub fn host_in_words(&self) -> String {
        let host = match &self.proxy {
            Some(proxy) => format!("{} by the proxy {proxy}", self.host),
            None => self.host.clone(),
        };
        if self.is_led_to { format!("{host}, where a redirect leads,") } else { host }
    }

    /// The proxy that gets whole URLs: one in front of a server without TLS.
    #[must_use]
    pub fn relay(&self) -> Option<&Proxy> {
        self.proxy.as_deref().filter(|_| !self.tls)
    }

    /// The request to a proxy before TLS, which it must answer before the handshake; `None` if the
    /// socket leads to the server.
    #[must_use]
    pub fn tunnel_request(&self) -> Option<Vec<u8>> {
        let proxy = self.proxy.as_deref().filter(|_| self.tls)?;
        let (name, port) = (self.server_name(), self.port());
        let server = match name.contains(':') {
            true => format!("[{name}]:{port}"),
            false => format!("{name}:{port}"),
        };
        let agent = sign::USER_AGENT;
        let mut head =
            format!("CONNECT {server} HTTP/1.1\r\nhost: {server}\r\nuser-agent: {agent}\r\n");
        if let Some(authorization) = proxy.authorization() {
            head += &format!("proxy-authorization: {authorization}\r\n");
        }
        head += "\r\n";
        Some(head.into_bytes())
    }

    /// The error for a proxy's own answer without TLS; `None` if it may be S3's: S3's errors are
    /// XML with a code, and its answers about one object have statuses of their own.
    #[must_use]
    pub fn relay_refusal(&self, answer: &ServerError) -> Option<Error> {
        let relay = self.relay()?;
        let of_relay = match answer.status {
            407 => true,
            404 | 412 | 416 => false,
            // The errors of servers of URLs are pages, too.
            _ if self.is_web() => false,
            status => status >= 400 && answer.is_foreign,
        };
        of_relay.then(|| relay.refusal(answer.status, &self.host))
    }

    /// The error for a proxy's refusal to connect to the server.
    #[must_use]
    pub fn proxy_refusal(&self, status: u16) -> Option<Error> {
        self.proxy.as_ref().map(|proxy| proxy.refusal(status, &self.host))
    }

    /// Advice if the server is not reached: about the proxy, if there is one.
    #[must_use]
    pub fn advice(&self, otherwise: &str) -> String {
        self.proxy.as_ref().map_or_else(|| otherwise.to_owned(), |proxy| proxy.advice())
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
