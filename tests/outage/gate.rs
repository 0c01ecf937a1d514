//! A proxy before the origin that goes down for a while: it closes what is open, and lets nobody
//! through until a given number of attempts has failed, or until a test opens it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use inrush_origin::Origin;

/// Pause between two looks for a connection.
const LOOK: Duration = Duration::from_millis(1);
/// How often the same port is asked for again, with this pause.
const BINDS_MAX: u32 = 5_000;

/// How it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Down {
    /// It closes each connection at once, and is up again after this number of them.
    Closes(u32),
    /// Nobody listens until [`Gate::open`].
    Refuses,
}

/// What its threads share.
#[derive(Debug)]
struct State {
    stopped: AtomicBool,
    is_down: AtomicBool,
    closed: AtomicU32,
    /// Bytes that may still pass before it goes down.
    left: AtomicI64,
    /// Sockets of both sides, to be shut down.
    open: Mutex<Vec<TcpStream>>,
}

impl State {
    fn go_down(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        for socket in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A gate; it stops when dropped.
pub(crate) struct Gate {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Gate {
    /// Goes down once after `after_bytes` bytes of answers; at once for 0.
    pub(crate) fn start(origin: &Origin, after_bytes: i64, down: Down) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            stopped: AtomicBool::new(false),
            is_down: AtomicBool::new(after_bytes == 0),
            closed: AtomicU32::new(0),
            left: AtomicI64::new(if after_bytes == 0 { i64::MAX } else { after_bytes }),
            open: Mutex::default(),
        });
        let (behind, theirs) = (origin.address(), Arc::clone(&state));
        let thread = std::thread::spawn(move || serve(listener, behind, down, &theirs));
        Self { address, state, thread: Some(thread) }
    }

    /// Its endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// How many connections it has closed at once.
    pub(crate) fn closed(&self) -> u32 {
        self.state.closed.load(Ordering::SeqCst)
    }

    /// Whether it is down.
    pub(crate) fn is_down(&self) -> bool {
        self.state.is_down.load(Ordering::SeqCst)
    }

    /// Is up again.
    pub(crate) fn open(&self) {
        self.state.is_down.store(false, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.state.go_down();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

fn serve(listener: TcpListener, behind: SocketAddr, down: Down, state: &Arc<State>) {
    let address = listener.local_addr().expect("an address");
    let mut listener = Some(listener);
    while !state.stopped.load(Ordering::SeqCst) {
        let is_down = state.is_down.load(Ordering::SeqCst);
        if is_down && down == Down::Refuses {
            listener = None;
            std::thread::sleep(LOOK);
            continue;
        }
        let listener = listener.get_or_insert_with(|| bind(address));
        listener.set_nonblocking(true).expect("a listener that does not block");
        match listener.accept() {
            Ok((client, _)) => {
                if let (true, Down::Closes(count)) = (is_down, down) {
                    drop(client);
                    if state.closed.fetch_add(1, Ordering::SeqCst) + 1 == count {
                        state.is_down.store(false, Ordering::SeqCst);
                    }
                    continue;
                }
                client.set_nonblocking(false).expect("a socket that blocks");
                relay(client, behind, state);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) => panic!("no connection is taken: {error}"),
        }
    }
}

/// Listens on the port that it had before.
fn bind(address: SocketAddr) -> TcpListener {
    for _ in 0..BINDS_MAX {
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
        std::thread::sleep(LOOK);
    }
    panic!("{address} is taken")
}

/// Two threads for a connection; they end with either side.
fn relay(client: TcpStream, behind: SocketAddr, state: &Arc<State>) {
    let origin = TcpStream::connect(behind).expect("the origin listens");
    let clone = |socket: &TcpStream| socket.try_clone().expect("a handle");
    let mut open = state.open.lock().unwrap_or_else(PoisonError::into_inner);
    open.extend([clone(&client), clone(&origin)]);
    drop(open);
    let (requests, answers) = ((clone(&client), clone(&origin)), (origin, client));
    let (one, two) = (Arc::clone(state), Arc::clone(state));
    std::thread::spawn(move || copy(requests.0, requests.1, &one, false));
    std::thread::spawn(move || copy(answers.0, answers.1, &two, true));
}

fn copy(mut from: TcpStream, mut to: TcpStream, state: &State, counts: bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer) {
        let is_down = state.is_down.load(Ordering::SeqCst);
        if count == 0 || is_down || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        let bytes = i64::try_from(count).expect("small");
        let left = if counts { state.left.fetch_sub(bytes, Ordering::SeqCst) } else { i64::MAX };
        // Once: afterwards it is below 0 for ever.
        if (1..=bytes).contains(&left) {
            state.go_down();
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
