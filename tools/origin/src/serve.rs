//! Threads, listeners and connections: one thread, one ring, its own listeners.
//!
//! The runtime is tokio-uring's, or tokio's where io_uring is missing. Its sockets are tokio's:
//! hyper polls for readiness, which tokio-uring's own sockets do not offer.
//!
//! Not here: what a request means (`handle.rs`).

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use crate::config::{Config, DeadAddress};
use crate::error::Error;
use crate::gate::Gate;
use crate::handle::{Shared, Worker};
use crate::link::Link;
use crate::tunnel::Tunnel;
use crate::wire::Wire;

/// Connections that wait to be accepted: a client may open hundreds at once.
const BACKLOG: i32 = 4096;
/// What it sends with: the kernel's default. BBR, which some machines have instead, discards what
/// it measures within less than its shortest round trip, over loopback nearly all, and then paces
/// by the acknowledgements that were delayed.
const CONGESTION_CONTROL: &[u8] = b"cubic";
/// hyper takes pieces of a body until it holds this number of bytes, then it writes.
const WRITE_BUFFER_BYTES: usize = 256 << 10;
/// Nothing of the data goes through the ring: only its wake-ups.
#[cfg(not(target_env = "musl"))]
const RING_ENTRIES: u32 = 64;
/// Time that answers on their way get to leave when the origin is stopped.
const DRAIN_TIME: Duration = Duration::from_millis(200);
const DRAIN_STEP: Duration = Duration::from_millis(5);
/// When accepting fails, mostly for want of descriptors, others need time to close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The running threads of an origin.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Listens and starts all workers, or nothing.
    pub(crate) fn start(config: &Config, shared: &Arc<Shared>) -> Result<Self, Error> {
        let (workers, io_uring) = (config.workers.get(), config.io_uring);
        let (addresses, mut listeners) = listen(config, workers)?;
        let (stop, stopped) = watch::channel(false);
        let (report, reports) = mpsc::channel();
        let mut threads = Self { addresses, stop, handles: Vec::new() };
        for index in (0..workers).rev() {
            let own = listeners.pop().expect("one set of listeners a worker");
            let (shared, stopped, report) = (Arc::clone(shared), stopped.clone(), report.clone());
            let run = move || run(shared, io_uring, own, stopped, &report);
            let thread = std::thread::Builder::new().name(format!("origin-{index}"));
            // An early return drops `threads`, which stops and joins those that run.
            threads.handles.push(thread.spawn(run).map_err(Error::Thread)?);
        }
        drop(report);
        for _ in 0..workers {
            match reports.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(Error::Thread(io::Error::other("a worker died at start"))),
            }
        }
        Ok(threads)
    }

    pub(crate) fn stop(&mut self) {
        self.stop.send_replace(true);
        for handle in self.handles.drain(..) {
            // A worker that panicked has said so; there is nothing left of it to stop.
            let _ = handle.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

type Listeners = (Vec<SocketAddr>, Vec<Vec<Listener>>);

/// One address of one worker. Sockets that refuse are only bound, to keep the port.
#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    dead: Option<DeadAddress>,
}

/// One listener for each worker and address; all addresses share the first one's port.
fn listen(config: &Config, workers: usize) -> Result<Listeners, Error> {
    let mut addresses = Vec::with_capacity(config.listen.len());
    let mut listeners: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let mut first_port = 0;
    for (index, asked) in config.listen.iter().enumerate() {
        let dead = config.dead.get(&index).copied();
        let fail = |source| Error::Listen { address: *asked, source };
        let mut address = *asked;
        if address.port() == 0 {
            address.set_port(first_port);
        }
        if workers > 1 && address.port() != 0 {
            // Shared ports are also shared with another origin: ask once without sharing.
            drop(bind(address, false).map_err(fail)?);
        }
        for own in &mut listeners {
            let socket = bind(address, workers > 1).map_err(fail)?;
            if dead != Some(DeadAddress::Refuses) {
                socket.listen(BACKLOG).map_err(fail)?;
            }
            let socket = TcpListener::from(socket);
            socket.set_nonblocking(true).map_err(fail)?;
            address = socket.local_addr().map_err(fail)?;
            own.push(Listener { socket, dead });
        }
        first_port = address.port();
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(Error::NoAddress);
    }
    Ok((addresses, listeners))
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A free port must be free of ended connections too, so only a chosen one is reused.
    socket.set_reuse_address(address.port() != 0)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    // Where it is not available the machine's own is used.
    let _ = socket.set_tcp_congestion(CONGESTION_CONTROL);
    Ok(socket)
}

/// What a worker's futures run on.
enum Runtime {
    /// It sleeps in a ring of io_uring.
    #[cfg(not(target_env = "musl"))]
    Ring(tokio_uring::Runtime),
    /// There is no io_uring, or tokio-uring does not compile.
    Plain(tokio::runtime::Runtime),
}

impl Runtime {
    /// Without io_uring where that is not wanted, or not available.
    fn new(io_uring: bool) -> io::Result<Self> {
        #[cfg(target_env = "musl")]
        let _ = io_uring;
        #[cfg(not(target_env = "musl"))]
        if io_uring {
            let mut builder = tokio_uring::builder();
            builder.entries(RING_ENTRIES);
            if let Ok(runtime) = tokio_uring::Runtime::new(&builder) {
                return Ok(Self::Ring(runtime));
            }
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build().map(Self::Plain)
    }

    fn block_on(&self, future: impl Future<Output = ()>) {
        match self {
            #[cfg(not(target_env = "musl"))]
            Self::Ring(runtime) => runtime.block_on(future),
            Self::Plain(runtime) => LocalSet::new().block_on(runtime, future),
        }
    }
}

/// A worker's whole life.
fn run(
    shared: Arc<Shared>,
    io_uring: bool,
    listeners: Vec<Listener>,
    mut stopped: watch::Receiver<bool>,
    report: &mpsc::Sender<Result<(), Error>>,
) {
    let runtime = match Runtime::new(io_uring) {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = report.send(Err(Error::Runtime(error)));
            return;
        }
    };
    // Whoever started this worker waits for exactly this.
    let _ = report.send(Ok(()));
    let worker = Rc::new(Worker::new(shared));
    runtime.block_on(async {
        let accepting: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(index, listener)| spawn_local(accept(Rc::clone(&worker), index, listener)))
            .collect();
        // An error means that the origin is gone without a word: stop as well.
        let _ = stopped.wait_for(|stop| *stop).await;
        for task in accepting {
            task.abort();
        }
        let steps = DRAIN_TIME.as_millis() / DRAIN_STEP.as_millis();
        for _ in 0..steps {
            if worker.in_flight.get() == 0 {
                break;
            }
            tokio::time::sleep(DRAIN_STEP).await;
        }
    });
    // Dropping the runtime drops every connection that is left, stalled or not.
}

async fn accept(worker: Rc<Worker>, address_index: usize, listener: Listener) {
    if listener.dead == Some(DeadAddress::Refuses) {
        return std::future::pending().await;
    }
    let Ok(socket) = tokio::net::TcpListener::from_std(listener.socket) else { return };
    let mut unanswered = Vec::new();
    loop {
        match socket.accept().await {
            Ok((stream, _)) if listener.dead == Some(DeadAddress::Silent) => {
                worker.shared.counters.count_connection(address_index);
                unanswered.push(stream);
            }
            Ok((stream, _)) => {
                spawn_local(converse(Rc::clone(&worker), address_index, stream));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Answers one connection's requests until it ends.
async fn converse(worker: Rc<Worker>, address_index: usize, stream: TcpStream) {
    // Without it the end of an answer waits for an acknowledgement; it only costs time to fail.
    let _ = stream.set_nodelay(true);
    let link = Rc::new(Link::new(address_index));
    let counters = Arc::clone(&worker.shared.counters);
    let wire = Wire::new(stream, Rc::clone(&link), Arc::clone(&counters));
    if let Some(tls) = &worker.shared.tls {
        // The client knows by the end of its connection, whatever it was.
        if let Ok(tunnel) = Tunnel::new(&tls.server, wire, Rc::clone(&link), counters) {
            converse_secured(Rc::clone(&worker), link, tunnel).await;
        }
        return;
    }
    let link_of_gate = Rc::clone(&link);
    let service = service_fn(move |request| {
        let (worker, link) = (Rc::clone(&worker), Rc::clone(&link));
        async move { worker.handle(link, request).await }
    });
    let gate = Gate::new(wire, link_of_gate);
    // How a connection ends is the client's affair, or was planned.
    let _ = http().serve_connection(TokioIo::new(gate), service).await;
}

/// Serves a connection through TLS, whose end is ours: a session ends before its connection.
async fn converse_secured(worker: Rc<Worker>, link: Rc<Link>, mut tunnel: Tunnel) {
    if let Some(fault) = worker.shared.injector.decide_handshake(link.address_index) {
        worker.shared.counters.count_fault(&fault);
        return tunnel.refuse(fault).await;
    }
    if tunnel.shake_hands().await.is_err() {
        return;
    }
    let gate = Gate::new(tunnel, Rc::clone(&link));
    let service = service_fn(move |request| {
        let (worker, link) = (Rc::clone(&worker), Rc::clone(&link));
        Box::pin(async move { worker.handle(link, request).await })
    });
    let mut connection = http().serve_connection(TokioIo::new(gate), service);
    let _ = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    connection.into_parts().io.into_inner().into_inner().end().await;
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.writev(true).max_buf_size(WRITE_BUFFER_BYTES).header_read_timeout(None);
    builder
}
