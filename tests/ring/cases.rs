//! What the rings are asked to do.

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use inrush::sys::{Errno, Handle, Op, POLL_ERROR, POLL_IN, POLL_OUT, descriptor};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::{PipeFlags, pipe_with};

use super::bench::{Bench, ENTRIES, SLOT};

/// The other side has hung up (poll(2)).
const POLL_HANG_UP: u32 = 16;

pub(crate) type Case = fn(&mut Bench);

/// All cases, by name.
pub(crate) const CASES: [(&str, Case); 20] = [
    ("a stream over TCP, received in pieces", received_in_pieces),
    ("a stream that is reset", reset),
    ("a place that is filled", filled),
    ("a place that is filled in part, and cancelled", cancelled_in_part),
    ("a place that is filled in part, and the end", ended_in_part),
    ("receives that are cancelled", receive_cancelled),
    ("a stream that is sent", sent),
    ("a send that waits for room, and is cancelled", send_cancelled),
    ("a send to who is gone", sent_to_nobody),
    ("connections", connects),
    ("a connection that is cancelled", connect_cancelled),
    ("calls that cannot succeed", misused),
    ("polls of a socket", socket_polled),
    ("polls of a pipe", pipe_polled),
    ("polls of an event counter", counter_polled),
    ("polls of a file", file_polled),
    ("several operations on one socket", shared),
    ("writes to a file", written),
    ("writes that fail", write_failed),
    ("more operations than there is room for", crowded),
];

/// Operations that nothing ends while others run.
pub(crate) fn bystanders(bench: &mut Bench) -> Vec<(u64, OwnedFd)> {
    let count = bench.below(4);
    let start = |_| {
        let (peer, socket) = bench.pair();
        let op = match bench.below(3) {
            0 => Op::Poll { handle: socket, events: POLL_IN },
            1 => Op::Poll { handle: socket, events: 0 },
            _ => bench.receive(&socket, 100, true),
        };
        (bench.submit(op), peer)
    };
    (0..count).map(start).collect()
}

pub(crate) fn bystanders_end(bench: &mut Bench, bystanders: Vec<(u64, OwnedFd)>) {
    for (token, peer) in bystanders {
        assert!(bench.is_pending(token), "nothing has ended it");
        bench.cancel(token);
        let (_, result) = bench.end(token);
        bench.record(format!("bystander: {result:?}"));
        drop(peer);
    }
}

fn put(peer: &OwnedFd, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::net::send(peer, &bytes[done..], SendFlags::NOSIGNAL).expect("sent");
    }
}

/// Reads `length` bytes, or to the end.
fn get(peer: &OwnedFd, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match rustix::net::recv(peer, &mut bytes[done..], RecvFlags::empty()).expect("received").1 {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    bytes
}

/// A connected socket, and its other end.
fn connected(bench: &mut Bench) -> (OwnedFd, Handle) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let socket = descriptor::tcp_socket(&address).expect("a socket");
    let (_, result) = bench.run(Op::Connect { socket: socket.clone(), address });
    assert_eq!(result, Ok(0));
    let (peer, _) = listener.accept().expect("a client");
    (peer.into(), socket)
}

/// Receives to the end of the stream; how it ended.
fn receive_all(bench: &mut Bench, socket: &Handle, into: &mut Vec<u8>) -> Result<u32, Errno> {
    loop {
        let (length, fill) = (bench.length(SLOT), bench.flips());
        let op = bench.receive(socket, length, fill);
        let (op, result) = bench.run(op);
        match result {
            Ok(count) if count > 0 => {
                assert!(count <= length);
                let slot = op.into_slot().expect("it comes back");
                into.extend_from_slice(&slot[..count as usize]);
            }
            end => return end,
        }
    }
}

fn received_in_pieces(bench: &mut Bench) {
    let (peer, socket) = connected(bench);
    let length = bench.length(300_000);
    let bytes = bench.bytes(length);
    if bench.flips() {
        descriptor::set_low_water(&socket, 16 << 10);
    }
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || {
        for piece in sent.chunks(7_777) {
            put(&peer, piece);
        }
    });
    let mut received = Vec::new();
    let end = receive_all(bench, &socket, &mut received);
    sender.join().expect("no panic");
    assert!(received == bytes, "{} of {} bytes, or others", received.len(), bytes.len());
    bench.record(format!("{length} bytes, then {end:?}"));
}

fn reset(bench: &mut Bench) {
    let (peer, socket) = connected(bench);
    put(&peer, b"what nobody will read");
    let (socket, other) = match bench.flips() {
        true => (socket, peer),
        false => (Handle::from(peer), sole(socket)),
    };
    // What is closed with unread bytes, or with SO_LINGER 0, is reset.
    rustix::net::sockopt::set_socket_linger(&other, Some(std::time::Duration::ZERO)).expect("set");
    let token = {
        let op = bench.receive(&socket, 100, true);
        bench.submit(op)
    };
    bench.turn();
    drop(other);
    let (_, result) = bench.end(token);
    bench.record(format!("{}", matches!(result, Ok(_) | Err(Errno::RESET))));
}

/// The descriptor of a handle that nobody else has.
fn sole(socket: Handle) -> OwnedFd {
    let Handle::Descriptor(socket) = socket else { unreachable!("a real one") };
    std::sync::Arc::into_inner(socket).expect("nobody else has it")
}

fn filled(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    let length = 2 + bench.length(20_000);
    let bytes = bench.bytes(length);
    let op = bench.receive(&socket, length, true);
    let token = bench.submit(op);
    let mut rest = &bytes[..];
    while rest.len() > 1 {
        let piece = bench.length(u32::try_from(rest.len() - 1).expect("short")) as usize;
        put(&peer, &rest[..piece]);
        rest = &rest[piece..];
        assert!(bench.is_pending(token), "not all has come");
    }
    put(&peer, rest);
    let (op, result) = bench.end(token);
    let slot = op.into_slot().expect("it comes back");
    assert!(slot[..length as usize] == bytes[..]);
    bench.record(format!("{result:?}"));
}

/// Has a receive that is to fill its place get a part of that; its number, and the part.
fn partly(bench: &mut Bench, peer: &OwnedFd, socket: &Handle) -> (u64, Vec<u8>) {
    let length = 2 + bench.length(20_000);
    let part = bench.length(length - 1);
    let bytes = bench.bytes(part);
    let op = bench.receive(socket, length, true);
    let token = bench.submit(op);
    if bench.flips() {
        bench.turn();
    }
    put(peer, &bytes);
    bench.until(|| descriptor::unread(socket) == Ok(0));
    (token, bytes)
}

fn cancelled_in_part(bench: &mut Bench) {
    if !bench.keeps_what_came() {
        return bench.record("an older kernel");
    }
    let (peer, socket) = bench.pair();
    let (token, part) = partly(bench, &peer, &socket);
    bench.cancel(token);
    let (op, result) = bench.end(token);
    let slot = op.into_slot().expect("it comes back");
    assert!(slot[..part.len()] == part[..]);
    bench.record(format!("{result:?} of {}", part.len()));
}

fn ended_in_part(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    let (token, part) = partly(bench, &peer, &socket);
    rustix::net::shutdown(&peer, Shutdown::Write).expect("shut down");
    let (op, result) = bench.end(token);
    assert!(op.into_slot().expect("it comes back")[..part.len()] == part[..]);
    bench.record(format!("{result:?} of {}", part.len()));
    let op = bench.receive(&socket, 100, true);
    bench.run_and_record("and then", op);
}

fn receive_cancelled(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    // Before it is tried, and when it waits.
    for turns in 0..3 {
        let fill = bench.flips();
        let op = bench.receive(&socket, 100, fill);
        let token = bench.submit(op);
        for _ in 0..turns {
            assert!(bench.is_pending(token), "nothing has come");
        }
        bench.cancel(token);
        bench.cancel(token);
        bench.cancel(token + 1_000_000);
        let (_, result) = bench.end(token);
        bench.record(format!("{result:?}"));
    }
    // What is there is received, be it cancelled before it is tried.
    put(&peer, b"there");
    let op = bench.receive(&socket, 100, false);
    let token = bench.submit(op);
    bench.cancel(token);
    let (_, result) = bench.end(token);
    bench.record(format!("{result:?}"));
}

fn sent(bench: &mut Bench) {
    let (peer, socket) = connected(bench);
    let length = bench.length(400_000);
    let bytes = bench.bytes(length);
    let reader = std::thread::spawn(move || get(&peer, length as usize));
    let mut done = 0;
    while done < bytes.len() {
        let piece = (bytes.len() - done).min(bench.length(SLOT) as usize);
        let op = bench.send(&socket, &bytes[done..done + piece]);
        let (_, result) = bench.run(op);
        let count = result.expect("sent") as usize;
        assert!(0 < count && count <= piece);
        done += count;
    }
    assert!(reader.join().expect("no panic") == bytes);
    bench.record(format!("{length} bytes"));
}

/// Sends until there is no room; the number of the one that waits for it.
fn send_until_full(bench: &mut Bench, socket: &Handle) -> (u64, usize) {
    let mut total = 0;
    for _ in 0..1000 {
        let bytes = vec![7; SLOT as usize];
        let op = bench.send(socket, &bytes);
        let token = bench.submit(op);
        bench.turn();
        if bench.is_pending(token) {
            return (token, total);
        }
        total += bench.end(token).1.expect("sent") as usize;
    }
    panic!("there is always room");
}

fn send_cancelled(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    let (token, total) = send_until_full(bench, &socket);
    if bench.flips() {
        bench.cancel(token);
        let (_, result) = bench.end(token);
        bench.record(format!("{result:?}"));
    } else {
        assert_eq!(get(&peer, total).len(), total);
        let (_, result) = bench.end(token);
        bench.record(format!("{}", result.is_ok_and(|count| count > 0)));
    }
}

fn sent_to_nobody(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    drop(peer);
    let op = bench.send(&socket, b"is anybody there?");
    bench.run_and_record("send", op);
    let op = bench.receive(&socket, 100, true);
    bench.run_and_record("receive", op);
    // One that waits for room learns of it.
    let (peer, socket) = bench.pair();
    let (token, _) = send_until_full(bench, &socket);
    drop(peer);
    let (_, result) = bench.end(token);
    bench.record(format!("a send that waits: {:?}", result.map(|_| "sent")));
}

fn connects(bench: &mut Bench) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let sockets: Vec<Handle> =
        (0..4).map(|_| descriptor::tcp_socket(&address).expect("a socket")).collect();
    let connect = |socket: &Handle| Op::Connect { socket: socket.clone(), address };
    let tokens: Vec<u64> = sockets.iter().map(|socket| bench.submit(connect(socket))).collect();
    for token in tokens {
        let (_, result) = bench.end(token);
        bench.record(format!("{result:?}"));
    }
    bench.run_and_record("again", connect(&sockets[0]));
    // It blocks as it did: calls that others make on it rely on that.
    let Handle::Descriptor(socket) = &sockets[1] else { unreachable!("a real one") };
    let flags = rustix::fs::fcntl_getfl(socket).expect("flags");
    bench.record(format!("waits: {}", !flags.contains(OFlags::NONBLOCK)));
    drop(listener);
    let nobody = descriptor::tcp_socket(&address).expect("a socket");
    bench.run_and_record("nobody listens", connect(&nobody));
}

fn connect_cancelled(bench: &mut Bench) {
    // The queue of those to be accepted is full: the next ones wait.
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    rustix::net::bind(&listener, &any).expect("bound");
    rustix::net::listen(&listener, 0).expect("listening");
    let address = rustix::net::getsockname(&listener).expect("a name");
    let address = std::net::SocketAddr::try_from(address).expect("an address");
    let mut kept = Vec::new();
    for _ in 0..8 {
        let socket = descriptor::tcp_socket(&address).expect("a socket");
        let token = bench.submit(Op::Connect { socket: socket.clone(), address });
        kept.push((token, socket));
    }
    bench.turn();
    let (token, _) = *kept.last().as_ref().expect("eight");
    bench.cancel(*token);
    let (_, result) = bench.end(*token);
    bench.record(format!("{}", matches!(result, Err(Errno::CANCELED))));
    for (token, _) in &kept[..kept.len() - 1] {
        bench.cancel(*token);
        let (_, result) = bench.end(*token);
        assert!(matches!(result, Ok(0) | Err(Errno::CANCELED)), "{result:?}");
    }
}

fn misused(bench: &mut Bench) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let (reader, writer) = (Handle::from(reader), Handle::from(writer));
    let fills = bench.flips();
    let op = bench.receive(&reader, 10, fills);
    bench.run_and_record("receive from a pipe", op);
    let op = bench.send(&writer, b"bytes");
    bench.run_and_record("send into a pipe", op);
    let address = ([127, 0, 0, 1], 9).into();
    bench.run_and_record("connect a pipe", Op::Connect { socket: reader, address });
    let socket = descriptor::tcp_socket(&address).expect("a socket");
    let fills = bench.flips();
    let op = bench.receive(&socket, 10, fills);
    bench.run_and_record("receive unconnected", op);
    let op = bench.send(&socket, b"bytes");
    bench.run_and_record("send unconnected", op);
    let six = "[::1]:9".parse().expect("an address");
    bench.run_and_record("another family", Op::Connect { socket, address: six });
}

fn poll(handle: &Handle, events: u16) -> Op {
    Op::Poll { handle: handle.clone(), events }
}

fn socket_polled(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    bench.run_and_record("room", poll(&socket, POLL_OUT));
    bench.run_and_record("either", poll(&socket, POLL_IN | POLL_OUT));
    let token = bench.submit(poll(&socket, POLL_IN));
    assert!(bench.is_pending(token));
    if bench.flips() {
        bench.cancel(token);
        let (_, result) = bench.end(token);
        bench.record(format!("cancelled: {result:?}"));
    } else {
        put(&peer, b"bytes");
        let (_, result) = bench.end(token);
        bench.record(format!("bytes: {result:?}"));
        bench.run_and_record("still there", poll(&socket, POLL_IN));
        // It is tried once, cancelled or not.
        let token = bench.submit(poll(&socket, POLL_IN));
        bench.cancel(token);
        let (_, result) = bench.end(token);
        bench.record(format!("cancelled too late: {result:?}"));
    }
    let token = bench.submit(poll(&socket, 0));
    assert!(bench.is_pending(token));
    drop(peer);
    let (_, result) = bench.end(token);
    bench.record(format!("gone: {result:?}"));
    bench.run_and_record("and to read", poll(&socket, POLL_IN));
}

fn pipe_polled(bench: &mut Bench) {
    let (writer, reader, capacity_bytes) = descriptor::pipe(64 << 10).expect("a pipe");
    bench.run_and_record("room", poll(&writer, POLL_OUT));
    let bytes = vec![7; usize::try_from(capacity_bytes).expect("small")];
    assert_eq!(descriptor::write_pipe(&writer, &bytes), Ok(bytes.len()));
    let (room, gone) = (bench.submit(poll(&writer, POLL_OUT)), bench.submit(poll(&writer, 0)));
    assert!(bench.is_pending(room) && bench.is_pending(gone));
    bench.run_and_record("bytes", poll(&reader, POLL_IN));
    if bench.flips() {
        let Handle::Descriptor(pipe) = &reader else { unreachable!("a real one") };
        rustix::io::read(pipe, &mut vec![0; bytes.len()][..]).expect("read");
        let (_, result) = bench.end(room);
        bench.record(format!("room again: {result:?}"));
        drop(reader);
    } else {
        drop(reader);
        let (_, result) = bench.end(room);
        bench.record(format!("no reader: {:?}", result.map(|found| found & u32::from(POLL_ERROR))));
    }
    let (_, result) = bench.end(gone);
    bench.record(format!("gone: {result:?}"));
    bench.run_and_record("still", poll(&writer, 0));
    // And a reader whose writer has gone.
    let (writer, reader, _) = descriptor::pipe(4096).expect("a pipe");
    let token = bench.submit(poll(&reader, POLL_IN));
    assert!(bench.is_pending(token));
    drop(writer);
    let (_, result) = bench.end(token);
    bench.record(format!("end of file: {:?}", result.map(|found| found & POLL_HANG_UP)));
}

fn counter_polled(bench: &mut Bench) {
    let counter = descriptor::event_counter().expect("a counter");
    for _ in 0..3 {
        let token = bench.submit(poll(&counter, POLL_IN));
        if bench.flips() {
            assert!(bench.is_pending(token));
        }
        let theirs = counter.clone();
        let raiser = std::thread::spawn(move || descriptor::raise(&theirs));
        let (_, result) = bench.end(token);
        raiser.join().expect("no panic");
        bench.record(format!("raised: {result:?}"));
        descriptor::lower(&counter);
    }
    let token = bench.submit(poll(&counter, POLL_IN));
    assert!(bench.is_pending(token));
    bench.cancel(token);
    let (_, result) = bench.end(token);
    bench.record(format!("lowered: {result:?}"));
}

fn file_polled(bench: &mut Bench) {
    let file = file();
    for events in [POLL_IN, POLL_OUT, POLL_IN | POLL_OUT] {
        bench.run_and_record("a file", poll(&file, events));
    }
}

fn file() -> Handle {
    OwnedFd::from(tempfile::tempfile().expect("a temporary file")).into()
}

fn shared(bench: &mut Bench) {
    let (peer, socket) = bench.pair();
    let fill = bench.flips();
    let op = bench.receive(&socket, 5, fill);
    let receive = bench.submit(op);
    let gone = bench.submit(poll(&socket, 0));
    assert!(bench.is_pending(receive) && bench.is_pending(gone));
    let op = bench.send(&socket, b"to the peer");
    bench.run_and_record("send", op);
    assert_eq!(get(&peer, 11), b"to the peer");
    assert!(bench.is_pending(receive) && bench.is_pending(gone));
    put(&peer, b"fives");
    let (op, result) = bench.end(receive);
    assert_eq!(&op.into_slot().expect("it comes back")[..5], b"fives");
    bench.record(format!("receive: {result:?}"));
    assert!(bench.is_pending(gone));
    if bench.flips() {
        drop(peer);
    } else {
        bench.cancel(gone);
    }
    let (_, result) = bench.end(gone);
    bench.record(format!("gone: {result:?}"));
}

fn written(bench: &mut Bench) {
    let file = file();
    let mut expected = vec![0; 8 * SLOT as usize];
    let mut tokens = Vec::new();
    for place in 0..8usize {
        let (at, length) = (bench.length(1000), bench.length(SLOT - 1000));
        let bytes = bench.bytes(length);
        let mut slot = bench.slot();
        slot[at as usize..(at + length) as usize].copy_from_slice(&bytes);
        let start = place * SLOT as usize;
        expected[start..start + bytes.len()].copy_from_slice(&bytes);
        let op = Op::Write { file: file.clone(), slot, at, length, offset: start as u64 };
        tokens.push(bench.submit(op));
    }
    for token in tokens {
        let (_, result) = bench.end(token);
        bench.record(format!("{result:?}"));
    }
    let Handle::Descriptor(file) = &file else { unreachable!("a real one") };
    let mut read = vec![0; expected.len()];
    let mut done = 0;
    loop {
        match rustix::io::pread(file, &mut read[done..], done as u64).expect("read") {
            0 => break,
            count => done += count,
        }
    }
    assert!(read == expected);
    bench.record(format!("{done} bytes"));
}

fn write_failed(bench: &mut Bench) {
    let open = |path: &str, flags| {
        let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        Handle::from(opened.expect("it is there"))
    };
    let cases = [
        ("full", open("/dev/full", OFlags::WRONLY)),
        ("read only", open("/dev/null", OFlags::RDONLY)),
    ];
    for (what, file) in cases {
        let slot = bench.slot();
        let op = Op::Write { file, slot, at: 0, length: 4096, offset: 0 };
        bench.run_and_record(what, op);
    }
    // It ends, one way or the other.
    let slot = bench.slot();
    let op = Op::Write { file: file(), slot, at: 0, length: SLOT, offset: 0 };
    let token = bench.submit(op);
    bench.cancel(token);
    let (_, result) = bench.end(token);
    assert!(matches!(result, Ok(SLOT) | Err(Errno::CANCELED)), "{result:?}");
}

fn crowded(bench: &mut Bench) {
    let (_peer, socket) = bench.pair();
    let mut tokens = Vec::new();
    while let Some(token) = bench.may_submit(poll(&socket, POLL_IN)) {
        tokens.push(token);
        assert!(tokens.len() <= ENTRIES as usize, "more than there is room for");
    }
    bench.turn();
    for token in &tokens {
        bench.cancel(*token);
        let (_, result) = bench.end(*token);
        assert_eq!(result, Err(Errno::CANCELED));
    }
    bench.record(format!("{}", tokens.len() > 20));
}
