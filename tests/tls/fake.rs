//! A server that answers whatever its test says, and keeps the requests that it got; over TLS when
//! it has a certificate.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::certified::{Wire, certify, wrap};

/// Longest wait for a request on a kept connection: the test is over by then.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A running one. Its threads end with the connections, and with the test.
pub(crate) struct Fake {
    address: SocketAddr,
    tls: bool,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Answers each request, its head and its body, with the answer to it, whole; its certificate
    /// goes to `bundle`.
    pub(crate) fn start(
        bundle: Option<&Path>,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let config = bundle.map(certify);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
                let (config, kept, answer) =
                    (config.clone(), Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || talk(wrap(stream, config), &kept, &*answer));
            }
        });
        Self { address, tls: bundle.is_some(), seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no thread panics").clone()
    }
}

/// Serves one connection until the client goes.
fn talk(mut wire: Box<dyn Wire>, seen: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> String) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while let Ok(1) = wire.read(&mut byte) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            let mut body = vec![0; body_length(&head)];
            if wire.read_exact(&mut body).is_err() {
                return;
            }
            head.extend(body);
            let text = String::from_utf8(std::mem::take(&mut head)).expect("text");
            let reply = answer(&text);
            seen.lock().expect("no thread panics").push(text);
            if wire.write_all(reply.as_bytes()).and_then(|()| wire.flush()).is_err() {
                return;
            }
        }
    }
}

/// How many bytes come after this head.
fn body_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let written = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    written.map_or(0, |length| length.trim().parse().expect("a length"))
}

/// An answer with a body.
pub(crate) fn page(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A listing of these objects, in this order.
pub(crate) fn listing(objects: &[(&str, &str)]) -> String {
    let entries = objects.iter().map(|(key, body)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;e&quot;</ETag><Size>{}</Size></Contents>",
            body.len()
        )
    });
    let entries: String = entries.collect();
    page(&format!("<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"))
}

/// The answer to a HEAD or a GET of an object, whole or in one range from its first byte.
pub(crate) fn object(head: &str, body: &str) -> String {
    let length = body.len();
    let common = format!(
        "Content-Length: {length}\r\nETag: \"e\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT"
    );
    let lower = head.to_ascii_lowercase();
    if head.starts_with("HEAD ") {
        return format!("HTTP/1.1 200 OK\r\n{common}\r\n\r\n");
    }
    if lower.contains("\r\nrange: bytes=0-") {
        let last = length - 1;
        return format!(
            "HTTP/1.1 206 Partial Content\r\n{common}\r\n\
             Content-Range: bytes 0-{last}/{length}\r\n\r\n{body}"
        );
    }
    format!("HTTP/1.1 200 OK\r\n{common}\r\n\r\n{body}")
}
