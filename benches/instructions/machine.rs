//! A machine that costs nearly nothing: its network and its disk answer at once, with prepared
//! heads and without bodies' bytes, so that what is counted is the worker.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::SystemTime;

use inrush::error::Error;
use inrush::files::host::{FileDone, FileHost, FileJob, FileTask, Host, OptionalHeaders};
use inrush::files::sink::file::OpenFile;
use inrush::link::object::ObjectRef;
use inrush::s3::ByteRange;
use inrush::s3::redirect::Elsewhere;
use inrush::s3::sign::{Get, RequestWriter, SigningKeys};
use inrush::sys::{Completion, Errno, Handle, Op, Ring};

use super::cases;

/// What ring and host share.
#[derive(Debug)]
pub(crate) struct Network {
    /// The head of the answer for each range of an object: all objects are alike.
    heads: Vec<Vec<u8>>,
    part_bytes: u64,
    now_us: u64,
    /// The range of the request that was written last: it is sent next.
    written: Option<ByteRange>,
    sockets: Vec<Socket>,
}

/// What a server has sent and nobody has received yet.
#[derive(Debug, Default, Clone, Copy)]
struct Socket {
    /// Which head, and from where on.
    head: Option<(usize, usize)>,
    body_bytes: u64,
}

pub(crate) type Shared = Rc<RefCell<Network>>;

/// The network between a worker and objects that have `ranges` ranges in all.
pub(crate) fn network(ranges: u64, part_bytes: u64) -> Shared {
    let heads = (0..ranges).map(|index| {
        let (first, size) = (index * part_bytes, ranges * part_bytes);
        cases::answer_head(first, part_bytes, size).into_bytes()
    });
    let heads = heads.collect();
    let network = Network { heads, part_bytes, now_us: 1, written: None, sockets: Vec::new() };
    Rc::new(RefCell::new(network))
}

fn number(handle: &Handle) -> usize {
    let Handle::Simulated(number) = handle else { unreachable!("simulated") };
    usize::try_from(*number).expect("few")
}

impl Network {
    /// What the kernel answers at once; `None` when there is nothing to receive.
    fn complete(&mut self, op: &mut Op) -> Option<u32> {
        match op {
            Op::Connect { .. } => Some(0),
            Op::Write { length, .. } => Some(*length),
            Op::Poll { .. } => None,
            Op::Send { socket, length, .. } => {
                let range = self.written.take().expect("a request goes whole");
                let head = usize::try_from(range.offset / self.part_bytes).expect("few");
                self.sockets[number(socket)] =
                    Socket { head: Some((head, 0)), body_bytes: range.length };
                Some(*length)
            }
            Op::Receive { socket, slot, at, length, .. } => {
                let socket = &mut self.sockets[number(socket)];
                let mut room = *length;
                if let Some((head, from)) = socket.head {
                    let head = &self.heads[head][from..];
                    let into = &mut slot[*at as usize..][..head.len()];
                    into.copy_from_slice(head);
                    socket.head = None;
                    room -= u32::try_from(head.len()).expect("short");
                }
                let body = room.min(u32::try_from(socket.body_bytes).unwrap_or(u32::MAX));
                socket.body_bytes -= u64::from(body);
                Some(*length - room + body).filter(|count| *count > 0)
            }
        }
    }
}

/// A ring that has completed everything when it is entered, but for what waits for an event.
#[derive(Debug)]
pub(crate) struct InstantRing {
    network: Shared,
    done: VecDeque<Completion>,
    waiting: Vec<(u64, Op)>,
}

impl InstantRing {
    pub(crate) fn new(network: Shared) -> Self {
        Self { network, done: VecDeque::new(), waiting: Vec::new() }
    }
}

impl Ring for InstantRing {
    fn submit(&mut self, token: u64, mut op: Op) -> Result<(), Op> {
        match self.network.borrow_mut().complete(&mut op) {
            Some(count) => self.done.push_back(Completion { token, op, result: Ok(count) }),
            None => self.waiting.push((token, op)),
        }
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        let found = self.waiting.iter().position(|(waiting, _)| *waiting == token);
        if let Some(index) = found {
            let (token, op) = self.waiting.swap_remove(index);
            self.done.push_back(Completion { token, op, result: Err(Errno::CANCELED) });
        }
    }

    fn enter(&mut self, _wait_us: u64) -> Result<(), Errno> {
        self.network.borrow_mut().now_us += 100;
        Ok(())
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len() + self.waiting.len()
    }
}

/// A host whose file system answers at once. It signs as the real one does.
#[derive(Debug)]
pub(crate) struct InstantHost {
    network: Shared,
    ended: Vec<FileDone>,
    random: u64,
    writer: RequestWriter,
    keys: SigningKeys,
    signed_at: SystemTime,
}

impl InstantHost {
    pub(crate) fn new(network: Shared) -> Self {
        let (keys, signed_at) = cases::keys();
        let writer = RequestWriter::new();
        Self { network, ended: Vec::new(), random: 1, writer, keys, signed_at }
    }
}

impl Host for InstantHost {
    fn now_us(&mut self) -> u64 {
        self.network.borrow().now_us
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 16
    }

    fn socket(&mut self, _address: &SocketAddr) -> Result<Handle, Errno> {
        let mut network = self.network.borrow_mut();
        network.sockets.push(Socket::default());
        Ok(Handle::Simulated(network.sockets.len() as u64 - 1))
    }

    fn set_low_water(&mut self, _socket: &Handle, _bytes: u32) {}

    fn write_request(
        &mut self,
        out: &mut [u8],
        object: &ObjectRef,
        _elsewhere: Option<&Elsewhere>,
        range: Option<ByteRange>,
        headers: OptionalHeaders,
    ) -> Result<u32, Error> {
        self.network.borrow_mut().written = range;
        let get = Get {
            endpoint: &object.endpoint,
            key: &object.listed.key,
            target: None,
            version_id: "",
            range,
            if_match: if headers.if_match { &object.listed.etag } else { "" },
            with_checksum: false,
            accepts_gzip: headers.accept_gzip,
        };
        let length = self.writer.write_get(out, &get, Some(&self.keys), self.signed_at);
        Ok(u32::try_from(length.expect("it fits")).expect("short"))
    }
}

impl FileHost for InstantHost {
    fn begin(&mut self, task: FileTask) {
        let mut is_made = true;
        if matches!(task.job, FileJob::Create) {
            is_made = false;
            let download = &task.download;
            download.file(|| {
                is_made = true;
                Ok(OpenFile {
                    handle: Handle::Simulated(0),
                    direct: true,
                    folder: Handle::Simulated(0),
                    temporary: String::new(),
                    name: String::new(),
                    place: String::new(),
                    journal: None,
                })
            });
        }
        self.ended.push(FileDone { task, outcome: Ok(is_made), took_us: 1 });
    }

    fn finished(&mut self) -> Option<FileDone> {
        self.ended.pop()
    }
}
