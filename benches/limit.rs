//! What this machine could do: the inner motion of a download and nothing else. Connections that
//! fetch ranges into aligned slots with one receive each, and direct writes into preallocated
//! files: no signing, no retries, no checks, no listing. Beside it a download's own figure is a
//! ratio.
//!
//! `cargo bench --bench limit` starts the in-repo origin in a process of its own and measures bare
//! receive, bare write, and both. `cargo bench --bench limit -- PORT PATH_PREFIX OUT_DIR CONNS
//! SLOT_KIB [OBJECTS]` measures both against a server that is already there; its objects
//! PATH_PREFIX0, PATH_PREFIX1, ... have 1 GiB each. OUT_DIR `-` writes nothing.
#![expect(clippy::print_stdout, reason = "the figure is the output")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use inrush::files::system_host::open_destination;
use inrush::link::http;
use inrush::sys::uring::Uring;
use inrush::sys::{Completion, Handle, Op, Pool, Region, Ring, Slot, descriptor, usage};
use inrush_origin::{Config, Origin, SyntheticSet};
use rustix::fs::{FallocateFlags, Mode, OFlags};

const GIB: u64 = 1 << 30;
const PART: u64 = 8 << 20;
/// Longest wait in one turn, in microseconds; a server that stops answering ends the run.
const WAIT_US: u64 = 10_000_000;
const CONNECTIONS: usize = 16;
const SLOT_KIB: u32 = 1024;
const OBJECTS: u64 = 4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.as_slice() {
        [] => canonical(),
        [port, prefix, folder, connections, slot_kib, rest @ ..] => {
            let course = Course {
                address: loopback(port.parse().expect("PORT is a number")),
                prefix: prefix.clone(),
                folder: (folder != "-").then(|| PathBuf::from(folder)),
                connections: connections.parse().expect("CONNS is a number"),
                slot: slot_kib.parse::<u32>().expect("SLOT_KIB is a number") << 10,
                objects: rest.first().map_or(OBJECTS, |n| n.parse().expect("OBJECTS is a number")),
            };
            println!("{}", course.run());
        }
        _ => eprintln!("usage: limit [PORT PATH_PREFIX OUT_DIR CONNS SLOT_KIB [OBJECTS]]"),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The run without arguments. The origin shares this process, so processor time is of both; for the
/// client's alone give a server's port.
fn canonical() {
    let mut set = SyntheticSet::new("limit", "object", OBJECTS, GIB);
    (set.width, set.suffix) = (1, String::new());
    let config = Config { synthetic: vec![set], ..Config::default() };
    let origin = Origin::start(config).expect("the origin starts");
    let folder = tempfile::tempdir_in(".").expect("a folder to write to");
    for folder in [None, Some(folder.path().to_path_buf())] {
        let course = Course {
            address: origin.address(),
            prefix: "/limit/object".to_owned(),
            folder,
            connections: CONNECTIONS,
            slot: SLOT_KIB << 10,
            objects: OBJECTS,
        };
        println!("{} (processor time with the origin's)", course.run());
    }
    println!("{}", write_only(folder.path()));
}

/// A figure, in the words that a bench program beside it reads.
fn figure(what: &str, connections: usize, slot: u32, bytes: u64, begun: (Instant, f64)) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
    let gigabytes = bytes as f64 / 1e9;
    let speed = gigabytes / begun.0.elapsed().as_secs_f64();
    let cpu = (usage::process_cpu_seconds() - begun.1) / gigabytes;
    let kib = slot >> 10;
    format!("limit {what} conns={connections} slot={kib}KiB: {speed:.2} GB/s cpu {cpu:.3} s/GB")
}

fn begin() -> (Instant, f64) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
    let now = Instant::now();
    (now, usage::process_cpu_seconds())
}

/// A preallocated file past the page cache.
fn create(folder: &Path, index: u64) -> Handle {
    let root = open_destination(folder).expect("OUT_DIR is a folder");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, format!("limit.{index}"), flags, Mode::from(0o644));
    let file = file.expect("a file past the page cache (O_DIRECT)");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, GIB).expect("room for the file");
    Handle::from(file)
}

/// Direct writes of [`OBJECTS`] GiB, [`CONNECTIONS`] in flight.
fn write_only(folder: &Path) -> String {
    let slot_length = SLOT_KIB << 10;
    let (mut ring, pool, _) = machine(CONNECTIONS, CONNECTIONS, slot_length);
    let files: Vec<Handle> = (0..OBJECTS).map(|index| create(folder, index)).collect();
    let (total, mut next, mut done) = (OBJECTS * GIB, 0, 0);
    let begun = begin();
    while done < total {
        while let Some(slot) = pool.take().filter(|_| next < total) {
            let file = files[usize::try_from(next / GIB).expect("few files")].clone();
            let op = Op::Write { file, slot, at: 0, length: slot_length, offset: next % GIB };
            ring.submit(next, op).expect("room in the ring");
            next += u64::from(slot_length);
        }
        ring.enter(WAIT_US).expect("a usable ring");
        while let Some(completion) = ring.reap() {
            assert_eq!(completion.result, Ok(slot_length), "a whole write");
            done += u64::from(slot_length);
        }
    }
    figure("write", CONNECTIONS, slot_length, total, begun)
}

fn machine(connections: usize, slots: usize, slot_length: u32) -> (Uring, Pool, Pool) {
    let length = slots * slot_length as usize + connections * HEAD as usize;
    let region = Region::new(length).expect("memory");
    let data = Pool::new(region.carve(slots * slot_length as usize).expect("room"), slot_length);
    let heads = Pool::new(region.carve(connections * HEAD as usize).expect("room"), HEAD);
    let mut ring = Uring::new(1024).expect("io_uring");
    ring.register(&data);
    (ring, data, heads)
}

/// Length of a connection's buffer for requests and heads, in bytes.
const HEAD: u32 = 4096;
/// How much is received when a head is expected.
const HEAD_RECEIVE: u32 = 1024;
/// Tokens from here on are writes.
const WRITE: u64 = 1 << 32;

/// Download as bare as it can be.
struct Course {
    address: SocketAddr,
    prefix: String,
    folder: Option<PathBuf>,
    connections: usize,
    slot: u32,
    objects: u64,
}

/// One connection of a course.
struct Line {
    socket: Handle,
    head: Option<Slot>,
    data: Option<Slot>,
    /// The range in work begins here, over all objects.
    base: u64,
    got: u64,
    fill: u32,
    /// Body bytes that came with the head and are not in a data slot yet: from here to there.
    beyond: (usize, usize),
}

/// A course on its way.
struct Motion<'a> {
    course: &'a Course,
    ring: Uring,
    data: Pool,
    files: Vec<Handle>,
    lines: Vec<Line>,
    /// Lines that wait for a slot.
    waiting: Vec<usize>,
    next: u64,
    done: u64,
}

impl Course {
    fn run(&self) -> String {
        let (mut ring, data, heads) = machine(self.connections, self.connections * 2, self.slot);
        let files = self.folder.as_deref().map_or_else(Vec::new, |folder| {
            (0..self.objects).map(|index| create(folder, index)).collect()
        });
        let mut lines = Vec::new();
        for _ in 0..self.connections {
            let socket = descriptor::tcp_socket(&self.address).expect("a socket");
            let op = Op::Connect { socket: socket.clone(), address: self.address };
            ring.submit(0, op).expect("room in the ring");
            ring.enter(WAIT_US).expect("a usable ring");
            let connected = ring.reap().expect("connected in time");
            connected.result.expect("a server at PORT");
            let (head, data) = (heads.take(), None);
            lines.push(Line { socket, head, data, base: 0, got: 0, fill: 0, beyond: (0, 0) });
        }
        let waiting = Vec::new();
        let mut motion =
            Motion { course: self, ring, data, files, lines, waiting, next: 0, done: 0 };
        let begun = begin();
        for line in 0..self.connections {
            motion.ask(line);
        }
        let total = self.objects * GIB;
        while motion.done < total {
            motion.ring.enter(WAIT_US).expect("a usable ring");
            while let Some(completion) = motion.ring.reap() {
                motion.apply(completion);
            }
        }
        let what = if self.folder.is_some() { "file" } else { "receive" };
        figure(what, self.connections, self.slot, total, begun)
    }
}

impl Motion<'_> {
    fn ask(&mut self, index: usize) {
        if self.next >= self.course.objects * GIB {
            return;
        }
        let line = &mut self.lines[index];
        (line.base, line.got, line.fill) = (self.next, 0, 0);
        self.next += PART;
        let (object, first) = (line.base / GIB, line.base % GIB);
        let request = format!(
            "GET {}{object} HTTP/1.1\r\nHost: x\r\nRange: bytes={first}-{}\r\n\r\n",
            self.course.prefix,
            first + PART - 1
        );
        let mut slot = line.head.take().expect("not in flight");
        slot[..request.len()].copy_from_slice(request.as_bytes());
        let length = u32::try_from(request.len()).expect("a short request");
        let op = Op::Send { socket: line.socket.clone(), slot, at: 0, length };
        self.ring.submit(index as u64, op).expect("room in the ring");
    }

    fn receive(&mut self, index: usize) {
        let line = &mut self.lines[index];
        let Some(mut slot) = line.data.take().or_else(|| self.data.take()) else {
            return self.waiting.push(index);
        };
        let (start, end) = std::mem::take(&mut line.beyond);
        if start < end {
            let head = line.head.as_ref().expect("not in flight");
            slot[..end - start].copy_from_slice(&head[start..end]);
            line.fill = u32::try_from(end - start).expect("a short head");
            line.got = u64::from(line.fill);
        }
        let room = u64::from(self.course.slot - line.fill).min(PART - line.got);
        let length = u32::try_from(room).expect("at most a slot");
        let socket = line.socket.clone();
        let op = Op::Receive { socket, slot, at: line.fill, length, fill: true };
        self.ring.submit(index as u64, op).expect("room in the ring");
    }

    fn apply(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        let count = result.expect("no operation fails here");
        assert!(count > 0, "the server keeps its connections");
        let index = usize::try_from(token % WRITE).expect("an index");
        match op {
            Op::Send { slot, socket, .. } => {
                let op = Op::Receive { socket, slot, at: 0, length: HEAD_RECEIVE, fill: false };
                self.ring.submit(token, op).expect("room in the ring");
            }
            Op::Receive { slot, fill: false, .. } => self.head(index, slot, count),
            Op::Receive { slot, .. } => {
                let line = &mut self.lines[index];
                line.got += u64::from(count);
                line.fill += count;
                line.data = Some(slot);
                self.go_on(index);
            }
            Op::Write { slot, length, .. } => {
                assert_eq!(count, length, "a whole write");
                self.done += u64::from(length);
                drop(slot);
                if let Some(waiting) = self.waiting.pop() {
                    self.receive(waiting);
                }
            }
            Op::Connect { .. } | Op::Poll { .. } => unreachable!("not asked for here"),
        }
    }

    fn head(&mut self, index: usize, slot: Slot, count: u32) {
        let head = http::parse(&slot[..count as usize]).expect("HTTP/1").expect("a short head");
        assert_eq!(head.status, 206, "the server knows the objects and ranges");
        let line = &mut self.lines[index];
        line.beyond = (head.length as usize, count as usize);
        line.head = Some(slot);
        self.receive(index);
    }

    fn go_on(&mut self, index: usize) {
        let line = &mut self.lines[index];
        if line.fill < self.course.slot && line.got < PART {
            return self.receive(index);
        }
        let slot = line.data.take().expect("just filled");
        let length = std::mem::take(&mut line.fill);
        let position = line.base + line.got - u64::from(length);
        if let Some(file) = self.files.get(usize::try_from(position / GIB).expect("few files")) {
            let op = Op::Write { file: file.clone(), slot, at: 0, length, offset: position % GIB };
            let token = WRITE + position / u64::from(self.course.slot) * WRITE;
            self.ring.submit(token, op).expect("room in the ring");
        } else {
            self.done += u64::from(length);
        }
        if self.lines[index].got < PART { self.receive(index) } else { self.ask(index) }
    }
}
