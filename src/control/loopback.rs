//! A tiny S3 server on the loopback interface, for this module's tests.
//!
//! A function maps each request's head to an answer. Threads and connections are bounded; the port
//! is a free one. Benchmarks use another server, the origin.

#![expect(clippy::disallowed_types, reason = "a server for tests, with blocking sockets")]

use std::fmt::Write as _;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Control, ControlOptions};
use crate::control::auth::credentials::CredentialSource;
use crate::s3::sign::SigningKeys;

/// Connections that one server accepts before it ends.
const CONNECTIONS_MAX: usize = 1_000;
/// Requests that one connection serves.
const REQUESTS_MAX: usize = 1_000;

/// Runs a test on a runtime like the program's.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// A URL without a listener.
pub(crate) fn closed_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

/// Counts the requests that a server answers at the same time.
#[derive(Debug)]
pub(crate) struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtOnce {
    pub(crate) const fn new() -> Self {
        Self { now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// Answers a request slowly enough for the other requests to arrive.
    pub(crate) fn take_a_moment(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// A control plane for this server.
pub(crate) async fn control(server: &Server) -> Control {
    control_at(format!("http://{}", server.address)).await
}

/// A control plane for this URL.
pub(crate) async fn control_at(endpoint_url: String) -> Control {
    let keys = SigningKeys::new("KEY", "SECRET", None, None).expect("good keys");
    let options = ControlOptions {
        endpoint_url: Some(endpoint_url),
        region: Some("us-east-1".to_owned()),
        credentials: CredentialSource::Fixed(keys),
        dualstack: Some(false),
        fips: Some(false),
        sessions: Some(true),
        ..ControlOptions::default()
    };
    Control::new(options).await.expect("a control")
}

/// One answer.
pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: String,
    has_length: bool,
    closes: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        let (headers, body) = (String::new(), body.into());
        Self { status, headers, body, has_length: false, closes: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.has_length |= name == "Content-Length";
        write!(self.headers, "{name}: {value}\r\n").expect("a String takes all");
        self
    }

    /// Closes the connection afterwards, without announcing it.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

type Answering = dyn Fn(&str) -> Reply + Send + Sync;

/// The server; dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let answer: Arc<Answering> = Arc::new(answer);
        let (all_seen, ended) = (seen.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS_MAX) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, seen) = (answer.clone(), all_seen.clone());
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(stream, &*answer, &seen));
                }
            }
        });
        Self { address, seen, ends, thread: Some(thread) }
    }

    /// The heads of all requests so far, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic under the lock").clone()
    }

    /// A page with these keys and sizes.
    pub(crate) fn page(objects: &[(&str, u64)], next: Option<&str>) -> String {
        let mut page = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", next.is_some());
        if let Some(next) = next {
            write!(page, "<NextContinuationToken>{next}</NextContinuationToken>").expect("room");
        }
        for (key, size) in objects {
            let key = key.replace('&', "&amp;");
            write!(
                page,
                "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag></Contents>"
            )
            .expect("room");
        }
        page + "</ListBucketResult>"
    }

    /// A page with these folders.
    pub(crate) fn folders(folders: &[&str]) -> String {
        let inner: String = folders
            .iter()
            .map(|folder| format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"))
            .collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{inner}</ListBucketResult>")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the listener; if that fails, it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, answer: &Answering, seen: &Mutex<Vec<String>>) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    for _ in 0..REQUESTS_MAX {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let reply = answer(&head);
        let is_head = head.starts_with("HEAD");
        seen.lock().expect("no panic under the lock").push(head);
        let Reply { status, headers, body, has_length, closes } = reply;
        let mut text = format!("HTTP/1.1 {status} Said\r\n{headers}");
        if !has_length {
            write!(text, "Content-Length: {}\r\n", body.len()).expect("room");
        }
        text.push_str("\r\n");
        if !is_head {
            text.push_str(&body);
        }
        if writer.write_all(text.as_bytes()).is_err() || closes {
            return;
        }
    }
}
