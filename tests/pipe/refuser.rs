//! A server in front of the origin that refuses one object.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use inrush_origin::Origin;

/// Passes everything on to the origin, GETs of one key aside. It stops when dropped.
pub(crate) struct Refuser {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Refuser {
    /// Answers `status` with `code` for this key of the bucket `lab`.
    pub(crate) fn start(origin: &Origin, key: &str, status: &str, code: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let stopped = Arc::new(AtomicBool::new(false));
        let body = format!("<Error><Code>{code}</Code><Message>refused</Message></Error>");
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let refused = format!("GET /lab/{key} ");
        let (behind, their_stopped) = (origin.address(), Arc::clone(&stopped));
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if their_stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(client) = client else { return };
                let (refused, answer) = (refused.clone(), answer.clone());
                // It ends with either of its two connections.
                std::thread::spawn(move || relay(client, behind, &refused, &answer));
            }
        });
        Self { address, stopped, thread: Some(thread) }
    }

    /// Its endpoint in path style.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Refuser {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // It looks when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

/// One connection; requests come one at a time and each in one piece.
fn relay(mut client: TcpStream, behind: SocketAddr, refused: &str, answer: &str) {
    let mut origin = TcpStream::connect(behind).expect("the origin listens");
    let mut back = (origin.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
    let copier = std::thread::spawn(move || {
        // An end on either side ends both.
        let _ = std::io::copy(&mut back.0, &mut back.1);
        let _ = back.1.shutdown(Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = client.read(&mut buffer) {
        let request = &buffer[..count];
        if count == 0 {
            break;
        }
        if request.starts_with(refused.as_bytes()) {
            let _ = client.write_all(answer.as_bytes());
            break;
        }
        if origin.write_all(request).is_err() {
            break;
        }
    }
    let _ = origin.shutdown(Shutdown::Both);
    copier.join().expect("it ends well");
}
