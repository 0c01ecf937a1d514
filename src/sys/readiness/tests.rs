//! Tests of what only a ring over epoll can get wrong; `tests/ring` has those of all rings.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::super::{POLL_ERROR, POLL_IN, POLL_OUT, Pool, Region};
use super::*;

const SLOT: u32 = 64 << 10;

fn ring_and_pool(writers: usize) -> (Readiness, Pool) {
    let region = Region::new(2 << 20).expect("memory");
    let pool = Pool::new(region.carve(24 * SLOT as usize).expect("room"), SLOT);
    (Readiness::new(64, writers).expect("epoll"), pool)
}

fn pair() -> (OwnedFd, Handle) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("sockets");
    (one, other.into())
}

fn complete(ring: &mut Readiness) -> Completion {
    for _ in 0..200 {
        ring.enter(100_000).expect("a usable ring");
        if let Some(completion) = ring.reap() {
            return completion;
        }
    }
    panic!("no completion in 20 s");
}

fn poll(handle: &Handle, events: u16) -> Op {
    Op::Poll { handle: handle.clone(), events }
}

/// Number of armed descriptors.
fn armed(ring: &Readiness) -> usize {
    ring.watches.armed()
}

/// A duplicate of `descriptor` with the number `from`, which only one test uses.
fn numbered(descriptor: &OwnedFd, from: i32) -> Handle {
    let same = rustix::io::fcntl_dupfd_cloexec(descriptor, from).expect("a number");
    assert_eq!(same.as_raw_fd(), from, "the number is free");
    same.into()
}

#[test]
fn a_registration_of_a_duplicate_answers_for_no_other_descriptor() {
    const NUMBER: i32 = 1000;
    let (mut ring, _pool) = ring_and_pool(1);
    // The pipe and its registration stay when the number is free again.
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let named = numbered(&reader, NUMBER);
    ring.submit(1, poll(&named, POLL_IN)).expect("room");
    ring.enter(0).expect("a usable ring");
    assert_eq!(armed(&ring), 1);
    ring.cancel(1);
    assert_eq!(complete(&mut ring).result, Err(Errno::CANCELED));
    assert_eq!(armed(&ring), 0);
    drop(named);
    let counter = eventfd(0, EventfdFlags::CLOEXEC).expect("a counter");
    let other = numbered(&counter, NUMBER);
    ring.submit(2, poll(&other, POLL_IN)).expect("room");
    ring.enter(0).expect("a usable ring");
    rustix::io::write(&writer, b"for the other").expect("written");
    ring.enter(10_000).expect("a usable ring");
    assert!(ring.reap().is_none(), "nothing has raised the counter");
    super::super::descriptor::raise(&other);
    assert_eq!((complete(&mut ring).token, ring.in_flight()), (2, 0));
}

#[test]
fn a_number_that_is_used_again_is_registered_again() {
    let (mut ring, pool) = ring_and_pool(1);
    for token in 0..20u64 {
        let (peer, socket) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        let named = numbered(&socket, 1010);
        drop(socket);
        let slot = pool.take().expect("free");
        let op = Op::Receive { socket: named, slot, at: 0, length: 4, fill: true };
        ring.submit(token, op).expect("room");
        ring.enter(0).expect("a usable ring");
        assert!(ring.reap().is_none());
        rustix::io::write(&peer, b"four").expect("written");
        let ended = complete(&mut ring);
        assert_eq!((ended.token, ended.result), (token, Ok(4)));
    }
}

#[test]
fn each_of_those_that_share_a_descriptor_gets_what_it_waits_for() {
    let (mut ring, pool) = ring_and_pool(1);
    let (peer, socket) = pair();
    let slot = pool.take().expect("free");
    let op = Op::Receive { socket: socket.clone(), slot, at: 0, length: 4, fill: false };
    ring.submit(1, op).expect("room");
    ring.submit(2, poll(&socket, 0)).expect("room");
    ring.submit(3, poll(&socket, POLL_IN)).expect("room");
    ring.enter(0).expect("a usable ring");
    assert!(ring.reap().is_none() && armed(&ring) == 1);
    ring.submit(4, poll(&socket, POLL_OUT)).expect("room");
    assert_eq!(complete(&mut ring).token, 4, "there is room to write");
    rustix::io::write(&peer, b"four").expect("written");
    let mut ended = vec![complete(&mut ring).token];
    while ended.len() < 2 {
        ended.extend(ring.reap().map(|completion| completion.token));
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 3]);
    // The operation that waits for a hang-up is still watched.
    assert_eq!((ring.in_flight(), armed(&ring)), (1, 1));
    drop(peer);
    let ended = complete(&mut ring);
    assert_eq!(ended.token, 2);
    assert!(ended.result.expect("events") & u32::from(POLL_ERROR | 16) != 0);
    assert_eq!((ring.in_flight(), armed(&ring)), (0, 0));
}

#[test]
fn one_call_moves_a_bounded_number_of_bytes() {
    const LONG: u32 = 1 << 20;
    const COUNT: u32 = 24;
    let region = Region::new(32 << 20).expect("memory");
    let pool = Pool::new(region.carve(COUNT as usize * LONG as usize).expect("room"), LONG);
    let mut ring = Readiness::new(64, 1).expect("epoll");
    // No sender can fill a socket that takes a whole slot, so each operation has its own.
    let mut ends = Vec::new();
    for token in 0..u64::from(COUNT) {
        let (peer, socket) = pair();
        rustix::net::sockopt::set_socket_send_buffer_size(&peer, 4 << 20).expect("room");
        let slot = pool.take().expect("free");
        let op = Op::Send { socket: socket.clone(), slot, at: 0, length: LONG };
        ring.submit(token, op).expect("room");
        ends.push((peer, socket));
    }
    let mut calls = 0;
    let mut ended = 0;
    while ended < COUNT {
        ring.enter(100_000).expect("a usable ring");
        let mut bytes = 0;
        while let Some(completion) = ring.reap() {
            bytes += completion.result.expect("sent") as usize;
            ended += 1;
        }
        assert!(bytes <= BYTES_PER_ENTER + LONG as usize, "{bytes} in one call");
        calls += 1;
        assert!(calls < 1000, "{ended} have ended");
    }
    // Short operations are bounded by their number.
    let limit = BYTES_PER_ENTER / BYTES_PER_OPERATION;
    let mut ring = Readiness::new(2 * u32::try_from(limit).expect("small"), 1).expect("epoll");
    let (_peer, socket) = pair();
    for token in 0..2 * limit as u64 {
        ring.submit(token, poll(&socket, POLL_OUT)).expect("room");
    }
    ring.enter(0).expect("a usable ring");
    assert!(!ring.queue.is_empty(), "some are left for the next call");
    let mut ended = 0;
    while ended < 2 * limit {
        ring.enter(100_000).expect("a usable ring");
        ended += std::iter::from_fn(|| ring.reap()).count();
    }
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn writes_come_back_from_their_threads_and_those_are_few() {
    let (mut ring, pool) = ring_and_pool(3);
    let file = tempfile::tempfile().expect("a temporary file");
    let file = Handle::from(OwnedFd::from(file));
    for round in 0..4u64 {
        for token in 0..20 {
            let mut slot = pool.take().expect("free");
            slot.fill(7);
            let offset = (20 * round + token) * u64::from(SLOT);
            let op = Op::Write { file: file.clone(), slot, at: 0, length: SLOT, offset };
            ring.submit(token, op).expect("room");
        }
        for _ in 0..20 {
            let written = ring.reap().unwrap_or_else(|| complete(&mut ring));
            assert_eq!(written.result, Ok(SLOT));
        }
    }
    assert!(ring.writers.threads() <= 3, "{}", ring.writers.threads());
    assert_eq!(pool.free(), pool.count());
}

#[test]
fn without_threads_writes_are_made_at_once() {
    let (mut ring, pool) = ring_and_pool(0);
    let file = Handle::from(OwnedFd::from(tempfile::tempfile().expect("a temporary file")));
    let slot = pool.take().expect("free");
    ring.submit(1, Op::Write { file, slot, at: 0, length: 10, offset: 0 }).expect("room");
    assert_eq!(complete(&mut ring).result, Ok(10));
}

#[test]
fn a_dropped_ring_has_all_slots_back_whatever_they_wait_for() {
    let (mut ring, pool) = ring_and_pool(2);
    let (_peer, socket) = pair();
    let file = Handle::from(OwnedFd::from(tempfile::tempfile().expect("a temporary file")));
    for token in 0..16 {
        let (slot, offset) = (pool.take().expect("free"), token * u64::from(SLOT));
        let op = match token % 2 {
            0 => Op::Write { file: file.clone(), slot, at: 0, length: SLOT, offset },
            _ => Op::Receive { socket: socket.clone(), slot, at: 0, length: SLOT, fill: true },
        };
        ring.submit(token, op).expect("room");
    }
    ring.enter(0).expect("a usable ring");
    drop(ring);
    assert_eq!(pool.free(), pool.count());
}

#[test]
fn nothing_ready_is_waited_for_and_not_asked_again() {
    let (mut ring, _pool) = ring_and_pool(1);
    let (_peer, socket) = pair();
    ring.submit(1, poll(&socket, POLL_IN)).expect("room");
    for wait_us in [0, 300, 2_500, 20_000] {
        let before = ring.watches.looks();
        ring.enter(wait_us).expect("a usable ring");
        assert!(ring.reap().is_none());
        assert!(ring.watches.looks() - before <= 2, "one look, or one more after a signal");
    }
}

#[test]
fn where_nothing_more_can_be_watched_the_ring_fails() {
    use rustix::io::Errno as Named;
    for reason in [Named::NOSPC, Named::NOMEM] {
        let (mut ring, _pool) = ring_and_pool(1);
        let (_peer, handle) = pair();
        ring.watches.full = Some(reason);
        ring.submit(1, poll(&handle, POLL_IN)).expect("room");
        // Completions are taken first, and the error is not that of a full disk.
        let ended = complete(&mut ring).result.expect_err("it cannot wait");
        assert_eq!(ended.named(), Named::NOBUFS);
        ring.submit(2, poll(&handle, POLL_IN)).expect("room");
        assert_eq!(ring.enter(0), Err(Errno::from(reason)));
        assert_eq!(ring.enter(0), Err(Errno::from(reason)), "for good");
    }
}
