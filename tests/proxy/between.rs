//! A proxy between the program and an origin: it leads to the origin whatever it is asked for, and
//! writes down what that was.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many connections one proxy takes before it ends.
const CONNECTIONS_MAX: usize = 4_000;
/// How many requests one connection carries.
const REQUESTS_MAX: usize = 10_000;
/// Longest wait for a byte.
const WAIT: Duration = Duration::from_secs(30);
/// What it says of itself when it refuses: a page, as proxies do.
const PAGE: &str = "<html><head><title>Proxy</title></head><body><Error>No.</Error></body></html>";

/// What it does with the request of a number, from 0: leads on, or answers with a status.
pub(crate) type Manner = dyn Fn(u64) -> Option<u16> + Send + Sync;

struct Shared {
    origin: SocketAddr,
    /// What `Proxy-Authorization` must be; empty for anyone.
    authorization: String,
    manner: Box<Manner>,
    requests: AtomicU64,
    seen: Mutex<Vec<String>>,
    ends: AtomicBool,
}

/// The proxy; it ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start(
        origin: SocketAddr,
        authorization: &str,
        manner: impl Fn(u64) -> Option<u16> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            origin,
            authorization: authorization.to_owned(),
            manner: Box::new(manner),
            requests: AtomicU64::new(0),
            seen: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let all = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS_MAX) {
                if all.ends.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&all);
                if let Ok(stream) = stream {
                    std::thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// The request lines so far, in the order in which they came.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().expect("no panic under the lock").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Wakes the listener up; if that fails, it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// One connection of the program; what breaks ends it.
    fn serve(&self, stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(WAIT)).ok()?;
        let mut writer = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        let mut onward: Option<TcpStream> = None;
        for _ in 0..REQUESTS_MAX {
            let head = read_head(&mut reader)?;
            let line = head.lines().next()?.to_owned();
            self.seen.lock().expect("no panic under the lock").push(line.clone());
            let number = self.requests.fetch_add(1, Ordering::SeqCst);
            if let Some(status) = self.refusal(number, &head) {
                let length = PAGE.len();
                let head = format!(
                    "HTTP/1.1 {status} No\r\nContent-Type: text/html\r\nContent-Length: \
                     {length}\r\n\r\n"
                );
                let body = if line.starts_with("HEAD") { "" } else { PAGE };
                writer.write_all(format!("{head}{body}").as_bytes()).ok()?;
                continue;
            }
            if line.starts_with("CONNECT ") {
                let target = TcpStream::connect(self.origin).ok()?;
                // Every second answer comes byte by byte.
                let piece = if number % 2 == 1 { 1 } else { 4_096 };
                for bytes in b"HTTP/1.1 200 Open\r\nVia: proxy\r\n\r\n".chunks(piece) {
                    writer.write_all(bytes).ok()?;
                }
                carry_back(&target, &writer)?;
                return carry(&mut reader, target);
            }
            if onward.is_none() {
                let target = TcpStream::connect(self.origin).ok()?;
                carry_back(&target, &writer)?;
                onward = Some(target);
            }
            onward.as_mut()?.write_all(to_origin(&head)?.as_bytes()).ok()?;
        }
        None
    }

    fn refusal(&self, number: u64, head: &str) -> Option<u16> {
        let named = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned())
        };
        let given = head.lines().find_map(named).unwrap_or_default();
        if given != self.authorization {
            return Some(407);
        }
        (self.manner)(number)
    }
}

fn read_head(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// A request as the origin wants it: a path in place of the URL, and nothing for the proxy.
fn to_origin(head: &str) -> Option<String> {
    let (line, rest) = head.split_once("\r\n")?;
    let (method, url) = line.split_once(" http://")?;
    let mut forwarded = format!("{method} {}\r\n", &url[url.find('/')?..]);
    for line in rest.split_inclusive("\r\n") {
        if !line.to_ascii_lowercase().starts_with("proxy-") {
            forwarded.push_str(line);
        }
    }
    Some(forwarded)
}

/// Carries the origin's bytes to the program, in a thread that ends with either.
fn carry_back(from: &TcpStream, to: &TcpStream) -> Option<()> {
    from.set_read_timeout(Some(WAIT)).ok()?;
    let (mut from, to) = (from.try_clone().ok()?, to.try_clone().ok()?);
    std::thread::spawn(move || carry(&mut from, to));
    Some(())
}

fn carry(from: &mut impl Read, mut to: TcpStream) -> Option<()> {
    let outcome = std::io::copy(from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    outcome.ok().map(drop)
}
