//! Implements [`Ring`] with io_uring: the newest set-up mode of the kernel, one system call per
//! turn.
//!
//! Every operation in flight is in a slab with all memory that the kernel may access: its slot, its
//! descriptor, its address. It leaves the slab only with its completion.

use std::fmt;
use std::os::fd::AsRawFd;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::net::SocketAddrAny;

use super::choice::{Features, RingKind};
use super::registered::Registered;
use super::shorter::set_up_shorter;
use super::{Completion, Errno, Handle, Op, Pool, Ring, Slot};

/// User data of cancel requests, whose completions are ignored.
const CANCEL_DATA: u64 = u64::MAX;

/// Most turns that dropping a ring waits for the kernel to give its operations back.
const DRAIN_TURNS_MAX: usize = 50;

/// Wait of one such turn, in microseconds.
const DRAIN_WAIT_US: u64 = 100_000;

/// The oldest kernel whose io_uring has the required features, above all timed waits.
pub const KERNEL_MIN: &str = "Linux 5.11";

/// How the ring was set up: the newest mode that the kernel accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SetupMode {
    /// SINGLE_ISSUER | DEFER_TASKRUN | SUBMIT_ALL (Linux 6.1).
    DeferTaskrun,
    /// COOP_TASKRUN | SUBMIT_ALL (Linux 5.19).
    CoopTaskrun,
    /// No flags: [`KERNEL_MIN`].
    Plain,
}

/// Why there is no ring, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupError {
    errno: Errno,
    kind: RingKind,
    missing: Option<&'static str>,
    /// Value of kernel.io_uring_disabled, if readable.
    disabled: Option<u8>,
}

impl SetupError {
    fn from_errno(errno: Errno) -> Self {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Self { errno, kind: RingKind::IoUring, missing: None, disabled }
    }

    pub(crate) fn missing(operation: &'static str) -> Self {
        Self { missing: Some(operation), disabled: None, ..Self::from_errno(Errno::INVALID) }
    }

    /// epoll failed, too, because descriptors ran out.
    pub(super) fn of_epoll(errno: Errno) -> Self {
        Self { errno, kind: RingKind::Epoll, missing: None, disabled: None }
    }

    /// Why there is no io_uring, without advice.
    #[must_use]
    pub fn cause(&self) -> String {
        match self.missing {
            Some(operation) => format!("this kernel's lacks {operation}"),
            None => {
                let text = self.errno.to_string();
                // Users need the text, not the number.
                text.split(" (os error").next().unwrap_or(&text).to_owned()
            }
        }
    }

    /// True if locked memory is short.
    fn is_of_memory(&self) -> bool {
        self.errno.named() == rustix::io::Errno::NOMEM
    }

    /// What failed.
    #[must_use]
    pub fn reason(&self) -> String {
        match self.missing {
            Some(operation) => format!("this kernel's io_uring lacks {operation}"),
            None => format!("{} is not available: {}", self.kind, self.errno),
        }
    }

    /// What to do.
    #[must_use]
    pub fn advice(&self) -> String {
        use rustix::io::Errno as Named;
        if self.kind == RingKind::Epoll {
            return "raise the limit of open files (ulimit -n)".to_owned();
        }
        match (self.errno.named(), self.disabled) {
            (Named::PERM, Some(value @ 1..)) => format!(
                "kernel.io_uring_disabled is {value}; run \
                 'sysctl -w kernel.io_uring_disabled=0' as root"
            ),
            (Named::PERM, _) => "a seccomp profile may forbid it (Docker's default one does): \
                 allow io_uring_setup, io_uring_enter and io_uring_register; see inrush guide \
                 containers"
                .to_owned(),
            (Named::NOSYS, _) => format!(
                "the kernel is older than {KERNEL_MIN} or built without it, or a sandbox or a \
                 seccomp profile (Podman's default one) forbids it; see inrush guide containers"
            ),
            (Named::NFILE | Named::MFILE, _) => {
                "raise the limit of open files (ulimit -n)".to_owned()
            }
            (Named::NOMEM, _) => "raise the locked-memory limit (ulimit -l)".to_owned(),
            _ => format!("{KERNEL_MIN} or newer is needed, 6.1 or newer is best"),
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason(), self.advice())
    }
}

impl std::error::Error for SetupError {}

/// An operation in flight and everything that the kernel may access for it.
struct Entry {
    token: u64,
    op: Op,
    /// The address of a connect, boxed so that it does not move.
    _address: Option<Box<SocketAddrAny>>,
}

/// An io_uring.
pub struct Uring {
    // First, so that the ring is closed before the memory of its operations is freed.
    ring: IoUring,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    features: Features,
    /// Keeps the pool of the registered slots alive.
    registered: Option<Registered>,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("features", &self.features)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// Creates a ring for the calling thread with room for `entries` operations in flight, in the
    /// newest mode that the kernel accepts (io_uring_setup(2)). Its queues are shorter if memory is
    /// short.
    ///
    /// # Errors
    /// If io_uring is absent, forbidden, or lacks an operation.
    pub fn new(entries: u32) -> Result<Self, SetupError> {
        let (ring, mode) = set_up_shorter(entries, Self::set_up, SetupError::is_of_memory)?;
        Self::check_operations(&ring)?;
        // An empty submission: a filter may forbid only io_uring_enter(2).
        ring.submit().map_err(|error| SetupError::from_errno(error.into()))?;
        let slab = (0..entries).map(|_| None).collect();
        let features = Features {
            kind: RingKind::IoUring,
            mode: Some(mode),
            registered_slots: true,
            registered_ring: false,
        };
        let free = (0..entries).rev().collect();
        Ok(Self { ring, entries: slab, free, features, registered: None })
    }

    fn set_up(entries: u32, completions: u32) -> Result<(IoUring, SetupMode), SetupError> {
        const INVALID: i32 = 22;
        for mode in [SetupMode::DeferTaskrun, SetupMode::CoopTaskrun, SetupMode::Plain] {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(completions).dontfork();
            match mode {
                SetupMode::DeferTaskrun => {
                    builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
                }
                SetupMode::CoopTaskrun => {
                    builder.setup_coop_taskrun().setup_submit_all();
                }
                SetupMode::Plain => {}
            }
            match builder.build(entries) {
                Ok(ring) if ring.params().is_feature_ext_arg() => return Ok((ring, mode)),
                Ok(_) => return Err(SetupError::missing("timed waits (IORING_FEAT_EXT_ARG)")),
                Err(error) if error.raw_os_error() == Some(INVALID) => {}
                Err(error) => return Err(SetupError::from_errno(error.into())),
            }
        }
        Err(SetupError::from_errno(Errno::INVALID))
    }

    fn check_operations(ring: &IoUring) -> Result<(), SetupError> {
        let mut probe = Probe::new();
        let registered = ring.submitter().register_probe(&mut probe);
        registered.map_err(|error| SetupError::from_errno(error.into()))?;
        for (code, name) in [
            (opcode::Connect::CODE, "connect"),
            (opcode::Send::CODE, "send"),
            (opcode::Recv::CODE, "recv"),
            (opcode::Write::CODE, "write"),
            (opcode::WriteFixed::CODE, "write_fixed"),
            (opcode::PollAdd::CODE, "poll_add"),
            (opcode::AsyncCancel::CODE, "async_cancel"),
        ] {
            if !probe.is_supported(code) {
                return Err(SetupError::missing(name));
            }
        }
        Ok(())
    }

    /// Registers the slots of this pool that are written from, so that later writes need no page
    /// pinning. If RLIMIT_MEMLOCK forbids it the ring works without.
    ///
    /// # Panics
    /// If a pool is registered already, or operations are in flight.
    pub fn register(&mut self, pool: &Pool) {
        assert!(self.registered.is_none() && self.in_flight() == 0, "once, at the start");
        self.registered = Some(Registered::new(pool.clone(), &self.ring));
    }

    /// The kernel features in use.
    #[must_use]
    pub fn features(&self) -> Features {
        let registered_slots = self.registered.as_ref().is_some_and(Registered::is_granted);
        Features { registered_slots, ..self.features }
    }

    /// The submission for `op`; its slot and address stay in the slab until completion.
    fn describe(
        &mut self,
        op: &mut Op,
        address: &mut Option<Box<SocketAddrAny>>,
    ) -> Option<squeue::Entry> {
        let entry = match op {
            Op::Connect { socket, address: target } => {
                let boxed = address.insert(Box::new(SocketAddrAny::from(*target)));
                opcode::Connect::new(descriptor(socket)?, boxed.as_ptr().cast(), boxed.addr_len())
                    .build()
            }
            Op::Send { socket, slot, at, length } => {
                let from = piece(slot, *at, *length)?;
                opcode::Send::new(descriptor(socket)?, from, *length)
                    .flags(libc::MSG_NOSIGNAL)
                    .build()
            }
            Op::Receive { socket, slot, at, length, fill } => {
                let into = piece(slot, *at, *length)?;
                let flags = if *fill { libc::MSG_WAITALL } else { 0 };
                opcode::Recv::new(descriptor(socket)?, into, *length).flags(flags).build()
            }
            Op::Write { file, slot, at, length, offset } => {
                let from = piece(slot, *at, *length)?;
                let file = descriptor(file)?;
                let registered = self.registered.as_mut();
                match registered.and_then(|registered| registered.index(&self.ring, from)) {
                    Some(index) => {
                        opcode::WriteFixed::new(file, from, *length, index).offset(*offset).build()
                    }
                    None => opcode::Write::new(file, from, *length).offset(*offset).build(),
                }
            }
            Op::Poll { handle, events } => {
                opcode::PollAdd::new(descriptor(handle)?, u32::from(*events)).build()
            }
        };
        Some(entry)
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        for _ in 0..2 {
            // SAFETY: push needs everything that the entry names to stay valid until completion:
            // the caller has put operation, slot and address into the slab (or, for a cancel,
            // names no memory), and the slab gives them back only when the completion is read.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit().map_err(Errno::from)?;
        }
        Err(Errno::AGAIN)
    }

    /// Takes back a slab entry whose submission failed.
    fn retract(&mut self, index: u32) -> Op {
        self.free.push(index);
        self.entries[index as usize].take().expect("just put there").op
    }
}

fn descriptor(handle: &Handle) -> Option<Fd> {
    match handle {
        Handle::Descriptor(descriptor) => Some(Fd(descriptor.as_raw_fd())),
        Handle::Simulated(_) => None,
    }
}

/// Address of `length` bytes at `at` within a slot; `None` if they are not all inside it.
fn piece(slot: &mut Slot, at: u32, length: u32) -> Option<*mut u8> {
    let end = at.checked_add(length)?;
    let inside = end as usize <= slot.len() && length > 0;
    inside.then(|| slot.base().wrapping_add(at as usize))
}

impl Ring for Uring {
    fn submit(&mut self, token: u64, mut op: Op) -> Result<(), Op> {
        let mut address = None;
        let Some(entry) = self.describe(&mut op, &mut address) else {
            unreachable!("an operation names bytes inside its slot and a real descriptor: {op:?}")
        };
        let Some(index) = self.free.pop() else { return Err(op) };
        self.entries[index as usize] = Some(Entry { token, op, _address: address });
        match self.push(&entry.user_data(u64::from(index))) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.retract(index)),
        }
    }

    fn cancel(&mut self, token: u64) {
        let found = self
            .entries
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.token == token));
        if let Some(index) = found {
            let entry = opcode::AsyncCancel::new(index as u64).build().user_data(CANCEL_DATA);
            // A request that finds no room is lost: the caller repeats it.
            let _ = self.push(&entry);
        }
    }

    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        let micros = u32::try_from(wait_us % 1_000_000).unwrap_or(0);
        let wait = Timespec::new().sec(wait_us / 1_000_000).nsec(micros * 1000);
        let args = SubmitArgs::new().timespec(&wait);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // A timeout, a signal, or a full completion queue: reap and come back.
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        loop {
            let (data, result) = {
                let entry = self.ring.completion().next()?;
                (entry.user_data(), entry.result())
            };
            if data == CANCEL_DATA {
                continue;
            }
            let index = u32::try_from(data).expect("user data is a slab index");
            let entry = self.entries[index as usize].take().expect("one completion per operation");
            self.free.push(index);
            let result = u32::try_from(result).map_err(|_| Errno::new(-result));
            return Some(Completion { token: entry.token, op: entry.op, result });
        }
    }

    fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn keeps_what_came(&self) -> bool {
        // This mode came with the same release.
        self.features.mode == Some(SetupMode::DeferTaskrun)
    }
}

impl Drop for Uring {
    /// Cancels operations in flight and waits for them. Those that the kernel does not give back in
    /// bounded time are leaked with their memory, because a late completion may still write to it.
    fn drop(&mut self) {
        for _ in 0..DRAIN_TURNS_MAX {
            if self.in_flight() == 0 {
                return;
            }
            let tokens: Vec<u64> = self.entries.iter().flatten().map(|entry| entry.token).collect();
            for token in tokens {
                self.cancel(token);
            }
            if self.enter(DRAIN_WAIT_US).is_err() {
                break;
            }
            while self.reap().is_some() {}
        }
        for entry in self.entries.drain(..).flatten() {
            std::mem::forget(entry);
        }
        std::mem::forget(self.registered.take().map(Registered::into_pool));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::FileExt;

    use super::super::Region;
    use super::super::descriptor;
    use super::*;

    const SLOT: u32 = 64 << 10;

    fn ring_and_pool() -> (Uring, Pool) {
        let region = Region::new(1 << 20).expect("memory");
        let pool = Pool::new(region.carve(16 * SLOT as usize).expect("room"), SLOT);
        let mut ring = Uring::new(64).expect("io_uring");
        ring.register(&pool);
        (ring, pool)
    }

    fn complete(ring: &mut Uring) -> Completion {
        for _ in 0..100 {
            ring.enter(100_000).expect("a usable ring");
            if let Some(completion) = ring.reap() {
                return completion;
            }
        }
        panic!("no completion in 10 s");
    }

    #[test]
    fn a_round_trip_over_loopback_and_to_a_file() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("a client");
            let mut question = [0; 4];
            peer.read_exact(&mut question).expect("four bytes");
            peer.write_all(&[7; SLOT as usize]).expect("an answer");
            question
        });
        let (mut ring, pool) = ring_and_pool();
        let socket = descriptor::tcp_socket(&address).expect("a socket");
        ring.submit(1, Op::Connect { socket: socket.clone(), address }).expect("room");
        assert_eq!(complete(&mut ring).result, Ok(0));
        let mut slot = pool.take().expect("a slot");
        slot[..4].copy_from_slice(b"ping");
        ring.submit(2, Op::Send { socket: socket.clone(), slot, at: 0, length: 4 }).expect("room");
        let sent = complete(&mut ring);
        assert_eq!((sent.token, sent.result), (2, Ok(4)));
        let slot = sent.op.into_slot().expect("the slot comes back");
        ring.submit(3, Op::Receive { socket, slot, at: 0, length: SLOT, fill: true })
            .expect("room");
        let received = complete(&mut ring);
        assert_eq!(received.result, Ok(SLOT));
        assert_eq!(&server.join().expect("no panic"), b"ping");
        let slot = received.op.into_slot().expect("the slot comes back");
        assert!(slot.iter().all(|byte| *byte == 7));
        let file = tempfile::tempfile().expect("a temporary file");
        let handle = Handle::from(std::os::fd::OwnedFd::from(file.try_clone().expect("a copy")));
        let op = Op::Write { file: handle, slot, at: 4096, length: 8192, offset: 4096 };
        ring.submit(4, op).expect("room");
        assert_eq!(complete(&mut ring).result, Ok(8192));
        let mut read = [0; 8192];
        file.read_exact_at(&mut read, 4096).expect("written");
        assert!(read.iter().all(|byte| *byte == 7));
        assert_eq!((ring.in_flight(), pool.free()), (0, pool.count()));
    }

    #[test]
    fn every_slot_is_written_from_its_registered_block() {
        const LONG: u32 = 768 << 10;
        let region = Region::new(16 << 20).expect("memory");
        let pool = Pool::new(region.carve(9 * LONG as usize).expect("room"), LONG);
        let mut ring = Uring::new(64).expect("io_uring");
        ring.register(&pool);
        let file = tempfile::tempfile().expect("a temporary file");
        // Twice: in the second round the blocks are registered.
        for round in 0..2u8 {
            let slots: Vec<Slot> = std::iter::from_fn(|| pool.take()).collect();
            for (number, mut slot) in (0u8..).zip(slots) {
                slot.fill(number + 10 * round);
                let handle =
                    Handle::from(std::os::fd::OwnedFd::from(file.try_clone().expect("a copy")));
                let offset = u64::from(number) * u64::from(LONG);
                ring.submit(1, Op::Write { file: handle, slot, at: 0, length: LONG, offset })
                    .expect("room");
                assert_eq!(complete(&mut ring).result, Ok(LONG));
            }
            let mut read = vec![0; 9 * LONG as usize];
            file.read_exact_at(&mut read, 0).expect("written");
            for (number, bytes) in (0u8..).zip(read.chunks(LONG as usize)) {
                assert!(bytes.iter().all(|byte| *byte == number + 10 * round), "slot {number}");
            }
        }
    }

    #[test]
    fn a_cancelled_receive_gives_its_slot_back() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (mut ring, pool) = ring_and_pool();
        let socket = descriptor::tcp_socket(&address).expect("a socket");
        ring.submit(1, Op::Connect { socket: socket.clone(), address }).expect("room");
        assert_eq!(complete(&mut ring).result, Ok(0));
        let slot = pool.take().expect("a slot");
        let receive = Op::Receive { socket, slot, at: 0, length: 100, fill: true };
        ring.submit(9, receive).expect("room");
        ring.enter(1000).expect("a usable ring");
        assert!(ring.reap().is_none(), "nobody sends");
        ring.cancel(9);
        let ended = complete(&mut ring);
        assert_eq!((ended.token, ended.result), (9, Err(Errno::CANCELED)));
        drop(ended);
        assert_eq!(pool.free(), pool.count());
    }

    #[test]
    fn a_cancelled_receive_returns_what_had_come() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (mut ring, pool) = ring_and_pool();
        let socket = descriptor::tcp_socket(&address).expect("a socket");
        ring.submit(1, Op::Connect { socket: socket.clone(), address }).expect("room");
        assert_eq!(complete(&mut ring).result, Ok(0));
        let (mut peer, _) = listener.accept().expect("a client");
        let slot = pool.take().expect("a slot");
        let receive = Op::Receive { socket, slot, at: 0, length: 100, fill: true };
        ring.submit(9, receive).expect("room");
        ring.enter(1000).expect("a usable ring");
        peer.write_all(b"ten bytes.").expect("sent");
        ring.enter(50_000).expect("a usable ring");
        assert!(ring.reap().is_none(), "not all has come");
        ring.cancel(9);
        assert_eq!(complete(&mut ring).result, Ok(10));
    }

    #[test]
    fn a_dropped_ring_takes_its_slots_from_the_kernel_first() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (mut ring, pool) = ring_and_pool();
        let socket = descriptor::tcp_socket(&address).expect("a socket");
        ring.submit(1, Op::Connect { socket: socket.clone(), address }).expect("room");
        assert_eq!(complete(&mut ring).result, Ok(0));
        let slot = pool.take().expect("a slot");
        let receive = Op::Receive { socket, slot, at: 0, length: 100, fill: true };
        ring.submit(2, receive).expect("room");
        ring.enter(1000).expect("a usable ring");
        drop(ring);
        assert_eq!(pool.free(), pool.count());
    }

    #[test]
    fn a_refused_connect_returns_its_errno() {
        let unused =
            TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound");
        let (mut ring, _pool) = ring_and_pool();
        let socket = descriptor::tcp_socket(&unused).expect("a socket");
        ring.submit(1, Op::Connect { socket, address: unused }).expect("room");
        assert_eq!(complete(&mut ring).result, Err(Errno::REFUSED));
    }

    #[test]
    fn setup_errors_say_what_to_do() {
        let error = SetupError { disabled: Some(2), ..SetupError::from_errno(Errno::new(1)) };
        assert!(error.to_string().contains("sysctl -w kernel.io_uring_disabled=0"), "{error}");
        let error = SetupError { disabled: Some(0), ..SetupError::from_errno(Errno::new(1)) };
        assert!(error.to_string().contains("allow io_uring_setup"), "{error}");
        assert!(!error.to_string().contains("older than"), "{error}");
        let error = SetupError { disabled: None, ..SetupError::from_errno(Errno::new(38)) };
        assert!(error.to_string().contains(&format!("older than {KERNEL_MIN}")), "{error}");
        assert!(error.to_string().contains("seccomp"), "{error}");
        let error = SetupError::missing("connect");
        assert!(error.to_string().contains("6.1"), "{error}");
        for errno in [Errno::new(24), Errno::new(12), Errno::NOT_PERMITTED] {
            let text = SetupError::of_epoll(errno).to_string();
            assert!(text.starts_with("epoll is not") && text.ends_with("(ulimit -n)"), "{text}");
        }
    }
}
