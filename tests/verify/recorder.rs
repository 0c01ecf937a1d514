//! A relay before an origin, which keeps what the client says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// It relays until the test's process ends.
pub(crate) struct Recorder {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// Relays to this server.
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heard);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (from, to) = pair(&client, &server);
                let (answers, back) = pair(&server, &client);
                let keep = Arc::clone(&keep);
                thread::spawn(move || relay(from, to, Some(&keep)));
                thread::spawn(move || relay(answers, back, None));
            }
        });
        Self { address, heard }
    }

    /// Where to ask.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> String {
        let heard = self.heard.lock().expect("no relay panics");
        String::from_utf8_lossy(&heard).into_owned()
    }
}

fn pair(from: &TcpStream, to: &TcpStream) -> (TcpStream, TcpStream) {
    (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"))
}

fn relay(mut from: TcpStream, mut to: TcpStream, keep: Option<&Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(keep) = keep {
            keep.lock().expect("no relay panics").extend_from_slice(&buffer[..count]);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
