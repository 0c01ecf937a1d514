//! Where the client's connections come from: the engine of the host is found, or started.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, shutdown, socket_with,
};

use super::link::Link;
use super::message::{Answer, Outgoing, PACKET_BYTES_MAX, Question, VERSION, messages};
use super::peer::is_of_this_user;
use super::shared::Shared;
use crate::errors::Failure;
use crate::session::{Owned, SLICE, lock};

/// Connections that are kept for the next caller, at most: one for each thread that reads.
const KEPT_MAX: usize = 8;
/// How often an engine is started, or connected to, before that counts as failed: one may end just
/// when a client comes.
const TRIES_MAX: u32 = 4;
/// How long to wait for the first answer: an engine looks for credentials first.
const ATTACH_SLICES_MAX: u128 = ATTACH_SECONDS_MAX * 1000 / SLICE.as_millis();
const ATTACH_SECONDS_MAX: u128 = 300;
/// How often to look again for another process that is about to be the engine, or for room in the
/// queue of its socket, and after which time.
const BUSY_PAUSES_MAX: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The engine of the host, as one client sees it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What starts it, in JSON: the options of the client.
    options: String,
    /// The name of its socket, once it was needed.
    name: OnceLock<Vec<u8>>,
    /// How many clients are expected to share it.
    clients: u64,
    /// Connections that nobody uses now.
    kept: Mutex<Vec<Owned<Link>>>,
    /// The sockets of all connections.
    sockets: Mutex<Vec<Owned<Weak<Socket>>>>,
    is_closed: AtomicBool,
}

/// Why there is no connection.
pub(crate) enum Unattached {
    /// A signal, or an error of Python.
    Raised(PyErr),
    Failed(Failure),
    /// This machine allows no shared engine; the reason.
    Alone(String),
}

impl From<PyErr> for Unattached {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl Host {
    pub(crate) fn new(options: String, clients: u64) -> Self {
        let is_closed = AtomicBool::new(false);
        let name = OnceLock::new();
        Self {
            options,
            name,
            clients,
            kept: Mutex::default(),
            sockets: Mutex::default(),
            is_closed,
        }
    }

    /// A connection, for one caller.
    pub(crate) fn link(self: &Arc<Self>, py: Python<'_>) -> Result<Link, Unattached> {
        loop {
            if self.is_closed() {
                return Err(Unattached::Failed(Failure::closed()));
            }
            let kept = lock(&self.kept).pop();
            match kept.map(Owned::into_inner) {
                // Its engine may have ended since.
                Some(Some(mut link)) => {
                    link.wait(Duration::ZERO);
                    if !link.is_over() {
                        return Ok(link);
                    }
                }
                // One of the process that this one was forked from.
                Some(None) => {}
                None => return self.attach(py),
            }
        }
    }

    /// Connects to the engine, and starts it where there is none.
    fn attach(self: &Arc<Self>, py: Python<'_>) -> Result<Link, Unattached> {
        let module = py.import("inrush._host")?;
        if self.name.get().is_none() {
            let name = module.getattr("name")?.call1((&self.options,))?.extract()?;
            self.name.get_or_init(|| name);
        }
        let name = self.name.get().expect("it was found");
        let (mut tries, mut pauses) = (0, 0);
        loop {
            let why = match Socket::dial(name) {
                Ok(socket) => match self.greet(py, socket)? {
                    Ok(link) => return Ok(link),
                    // It has just ended.
                    Err(errno) => errno,
                },
                Err(Errno::CONNREFUSED) => {
                    let started = module.getattr("start")?.call1((&name[..], &self.options))?;
                    if let Ok(why) = started.extract::<String>() {
                        return Err(Unattached::Alone(why));
                    }
                    // Otherwise another process has the name, and does not listen yet.
                    if started.extract::<bool>()? { Errno::CONNREFUSED } else { Errno::AGAIN }
                }
                Err(errno) => errno,
            };
            match why {
                Errno::AGAIN | Errno::INTR if pauses < BUSY_PAUSES_MAX => pauses += 1,
                Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE if tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => {
                    return Err(Unattached::Failed(Failure::host(format!(
                        "the engine of this host ended {tries} times before it answered ({why})"
                    ))));
                }
                _ => return Err(Unattached::Alone(format!("connect: {why}"))),
            }
            py.detach(|| std::thread::sleep(BUSY_PAUSE));
            py.check_signals()?;
            if self.is_closed() {
                return Err(Unattached::Failed(Failure::closed()));
            }
        }
    }

    /// Sends the first message, and waits for the first answer.
    fn greet(
        self: &Arc<Self>,
        py: Python<'_>,
        socket: Socket,
    ) -> Result<Result<Link, Errno>, Unattached> {
        let mut outgoing = Outgoing::default();
        outgoing.push(&Question::Attach { version: VERSION.into(), clients: self.clients });
        // An engine that refuses has closed its end, perhaps, and says why all the same.
        let _ = outgoing.flush(&socket.0);
        for _ in 0..ATTACH_SLICES_MAX {
            let first = py.detach(|| first_answer(&socket.0));
            py.check_signals()?;
            match first {
                Ok(Some(first)) => return self.attached(socket, first),
                Ok(None) if self.is_closed() => {
                    return Err(Unattached::Failed(Failure::closed()));
                }
                Ok(None) => {}
                Err(errno) => return Ok(Err(errno)),
            }
        }
        let message =
            format!("the engine of this host has not answered for {ATTACH_SECONDS_MAX} s");
        Err(Unattached::Failed(Failure::host(message)))
    }

    fn attached(
        self: &Arc<Self>,
        socket: Socket,
        (packet, memory): FirstAnswer,
    ) -> Result<Result<Link, Errno>, Unattached> {
        let first = messages::<Answer<'_>>(&packet).next();
        let process = match (first, &memory) {
            (Some(Ok(Answer::Attached { process })), Some(_)) => process,
            (Some(Ok(Answer::Refused { failure, alone: true })), _) => {
                return Err(Unattached::Alone(failure.message().to_owned()));
            }
            (Some(Ok(Answer::Refused { failure, .. })), _) => {
                return Err(Unattached::Failed(failure));
            }
            (Some(Ok(Answer::Attached { .. })), None) => {
                let message = "no descriptor is left for the memory of the host's engine: raise \
                               the limit of open files (ulimit -n)";
                return Err(Unattached::Failed(Failure::host(message.to_owned())));
            }
            _ => return Ok(Err(Errno::PROTO)),
        };
        let memory = memory.as_ref().map(Shared::open).unwrap_or(Err(Errno::BADF));
        let memory = memory.map_err(|errno| {
            Unattached::Alone(format!("cannot map the memory of the engine: {errno}"))
        })?;
        let socket = Arc::new(socket);
        let mut sockets = lock(&self.sockets);
        sockets.retain(|socket| socket.view().is_some_and(|socket| socket.strong_count() > 0));
        sockets.push(Owned::new(Arc::downgrade(&socket)));
        Ok(Ok(Link::new(Arc::downgrade(self), socket, process, memory)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Keeps a connection on which nothing is under way for the next caller.
    pub(super) fn keep(&self, link: Link) {
        let mut kept = lock(&self.kept);
        if !self.is_closed() && kept.len() < KEPT_MAX {
            kept.push(Owned::new(link));
        }
    }

    /// Ends all connections, those in use, too.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        lock(&self.kept).clear();
        let mut sockets = lock(&self.sockets);
        for socket in sockets.drain(..) {
            // Those of the process that this one was forked from are that one's.
            if let Some(socket) = socket.view().and_then(Weak::upgrade) {
                // One that is broken is no connection any more.
                let _ = shutdown(&socket.0, Shutdown::Both);
            }
        }
    }
}

/// A socket that a forked child closes: as long as a copy is open, the engine does not see that the
/// process has ended.
#[derive(Debug)]
pub(super) struct Socket(pub(super) OwnedFd);

/// The sockets of this process.
static SOCKETS: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// The sockets that this process has inherited from the one that it was forked from.
#[pyfunction]
pub(crate) fn inherited_sockets() -> Vec<RawFd> {
    // Another thread may have held the lock when the process was forked: it is never released then.
    let sockets = SOCKETS.try_lock().map(|mut sockets| std::mem::take(&mut *sockets));
    sockets.unwrap_or_default().into_iter().collect()
}

impl Socket {
    /// Connects to the socket of this name (unix(7), abstract), if a process of this user listens.
    /// It waits for nothing.
    fn dial(name: &[u8]) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        lock(&SOCKETS).insert(socket.as_raw_fd());
        let socket = Self(socket);
        connect(&socket.0, &SocketAddrUnix::new_abstract_name(name)?)?;
        // Anybody on the host may listen at a name.
        if is_of_this_user(&socket.0) { Ok(socket) } else { Err(Errno::ACCESS) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut sockets = lock(&SOCKETS);
        sockets.remove(&self.0.as_raw_fd());
    }
}

/// The first packet of an engine, and the descriptor that comes with it.
type FirstAnswer = (Vec<u8>, Option<OwnedFd>);

/// The first answer, if it comes within a slice.
fn first_answer(socket: &OwnedFd) -> Result<Option<FirstAnswer>, Errno> {
    let slice = SLICE.try_into().ok();
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], slice.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(errno) => return Err(errno),
    }
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut receive = || recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, flags);
    // An engine that refuses closes the socket with the first message unread: that is an error for
    // one call, and what it has sent is behind.
    let received = match receive() {
        Err(Errno::CONNRESET) => receive()?,
        received => received?,
    };
    if received.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    packet.truncate(received.bytes);
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(Some((packet, descriptors.last())))
}
