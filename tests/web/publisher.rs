//! A server of HTTP that publishes files as web servers do, over TLS when it has a certificate. It
//! keeps the heads of all requests.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::certified::{Wire, certify, wrap};

/// Longest wait for a request on a kept connection: the test is over by then.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The head of one request.
#[derive(Debug, Clone)]
pub(crate) struct Head(pub(crate) String);

impl Head {
    /// Path and query, or the whole URL where a proxy is asked.
    pub(crate) fn target(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// First and last byte.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    /// True for the question how long the object is.
    pub(crate) fn is_first_byte(&self) -> bool {
        self.range() == Some((0, 0))
    }
}

/// An answer.
pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
    /// The connection ends in the middle of the body.
    is_cut: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: String::new(), body: body.into(), is_cut: false }
    }

    /// Only half of it: the connection ends.
    pub(crate) fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// None: the connection ends.
    pub(crate) fn none() -> Self {
        Self::new(0, "")
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn leading_to(status: u16, location: &str) -> Self {
        Self::new(status, "").header("Location", location)
    }
}

/// When all files were written.
pub(crate) const WRITTEN: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

/// What nginx answers to a request of a file with this ETag; none if it is empty.
pub(crate) fn file(head: &Head, bytes: &[u8], etag: &str) -> Reply {
    if head.header("if-match").is_some_and(|wanted| wanted != etag) {
        return Reply::new(412, "");
    }
    let length = bytes.len();
    let reply = match head.range() {
        Some((first, _)) if first >= length => {
            Reply::new(416, "").header("Content-Range", &format!("bytes */{length}"))
        }
        Some((first, last)) => {
            let last = last.min(length - 1);
            let range = format!("bytes {first}-{last}/{length}");
            Reply::new(206, &bytes[first..=last]).header("Content-Range", &range)
        }
        None => Reply::new(200, bytes),
    };
    let reply = reply.header("Last-Modified", WRITTEN);
    if etag.is_empty() { reply } else { reply.header("ETag", etag) }
}

/// A running server. Its threads end with the connections, and with the tests.
pub(crate) struct Publisher {
    address: SocketAddr,
    tls: bool,
    heads: Arc<Mutex<Vec<Head>>>,
}

impl Publisher {
    pub(crate) fn start(answer: impl Fn(&Head) -> Reply + Send + Sync + 'static) -> Self {
        Self::over(None, answer)
    }

    /// Over TLS; its certificate goes to `bundle`.
    pub(crate) fn over(
        bundle: Option<&Path>,
        answer: impl Fn(&Head) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let config = bundle.map(certify);
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&heads), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
                let (config, kept, answer) =
                    (config.clone(), Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || talk(wrap(stream, config), &kept, &*answer));
            }
        });
        Self { address, tls: bundle.is_some(), heads }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of this path and query.
    pub(crate) fn url(&self, target: &str) -> String {
        format!("{}://{}{target}", if self.tls { "https" } else { "http" }, self.address)
    }

    /// All requests so far.
    pub(crate) fn all_heads(&self) -> Vec<Head> {
        self.heads.lock().expect("no thread panics").clone()
    }

    /// The requests so far, each of which must be one that anybody may send: a GET without keys.
    #[track_caller]
    pub(crate) fn heads(&self) -> Vec<Head> {
        let heads = self.all_heads();
        for Head(head) in &heads {
            let lower = head.to_ascii_lowercase();
            assert!(head.starts_with("GET "), "{head}");
            for none in ["\r\nauthorization", "\r\nx-amz-", "\r\nreferer", "\r\ncookie"] {
                assert!(!lower.contains(none), "{head}");
            }
        }
        heads
    }

    /// Requests for more than the first byte.
    #[track_caller]
    pub(crate) fn ranges(&self) -> Vec<Head> {
        self.heads().into_iter().filter(|head| !head.is_first_byte()).collect()
    }
}

/// Serves one connection until the client goes.
fn talk(mut wire: Box<dyn Wire>, heads: &Mutex<Vec<Head>>, answer: &dyn Fn(&Head) -> Reply) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while let Ok(1) = wire.read(&mut byte) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let asked = Head(String::from_utf8(std::mem::take(&mut head)).expect("text"));
        let Reply { status, headers, mut body, is_cut } = answer(&asked);
        let is_head = asked.0.starts_with("HEAD ");
        heads.lock().expect("no thread panics").push(asked);
        if status == 0 {
            return;
        }
        let length = body.len();
        let start = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n");
        if is_head {
            body.clear();
        }
        if is_cut {
            body.truncate(length / 2);
        }
        let sent = wire.write_all(start.as_bytes()).and_then(|()| wire.write_all(&body));
        if sent.and_then(|()| wire.flush()).is_err() || is_cut {
            return;
        }
    }
}
