//! The simulated kernel's memory for bytes that have come and that the program has not taken: the
//! receive buffers of all sockets together, above whose bound the kernel drops packets, and the
//! private pipes of ranges.
//!
//! In every run, at every step, both stay within the bounds that the program promises.

use super::world::World;

/// The sender's first retransmission timer and its longest, in microseconds: each packet that is
/// dropped doubles it (RFC 6298; Linux begins with TCP_RTO_MIN).
const RETRANSMISSION_FIRST_US: u64 = 200_000;
const RETRANSMISSION_LAST_US: u64 = RETRANSMISSION_FIRST_US << 6;

/// Most bytes that a run which says nothing else has in receive buffers: twice what any had, with
/// 91 connections to a fast network.
const SOCKET_BYTES_MAX: u64 = 24 << 20;

/// Most bytes that such a run has in the private pipes of ranges.
const PIPE_BYTES_MAX: u64 = 1 << 20;

/// Bytes in the kernel, and their bounds.
#[derive(Debug)]
pub(crate) struct KernelMemory {
    /// Packets that would bring more than this into the receive buffers of all sockets are dropped,
    /// as Linux does above tcp_mem.
    pub(crate) drops_above_bytes: u64,
    /// What the program promises: it never leaves more than this in the receive buffers.
    pub(crate) socket_bytes_max: u64,
    /// Nor more than this in the private pipes of ranges.
    pub(crate) pipe_bytes_max: u64,
    /// In receive buffers now.
    socket_bytes: u64,
    pub(crate) socket_bytes_peak: u64,
    pub(crate) pipe_bytes_peak: u64,
    /// Packets that were dropped.
    pub(crate) drops: u64,
    /// Sockets and private pipes of which the program had an end when last counted.
    open_sockets: Vec<usize>,
    open_pipes: Vec<usize>,
}

impl Default for KernelMemory {
    fn default() -> Self {
        Self {
            drops_above_bytes: u64::MAX,
            socket_bytes_max: SOCKET_BYTES_MAX,
            pipe_bytes_max: PIPE_BYTES_MAX,
            socket_bytes: 0,
            socket_bytes_peak: 0,
            pipe_bytes_peak: 0,
            drops: 0,
            open_sockets: Vec::new(),
            open_pipes: Vec::new(),
        }
    }
}

impl KernelMemory {
    pub(super) fn open_socket(&mut self, socket: usize) {
        self.open_sockets.push(socket);
    }

    pub(super) fn open_pipe(&mut self, pipe: usize) {
        self.open_pipes.push(pipe);
    }

    /// A packet comes for a socket; false when it is dropped.
    pub(super) fn accepts(
        &mut self,
        bytes: u64,
        retransmission: &mut Retransmission,
        now_us: u64,
    ) -> bool {
        if self.socket_bytes + bytes > self.drops_above_bytes {
            self.drops += 1;
            retransmission.dropped(now_us);
            return false;
        }
        *retransmission = Retransmission::default();
        self.set_socket_bytes(self.socket_bytes + bytes);
        true
    }

    pub(super) fn set_socket_bytes(&mut self, bytes: u64) {
        self.socket_bytes = bytes;
        self.socket_bytes_peak = self.socket_bytes_peak.max(bytes);
        let (peak, most) = (self.socket_bytes_peak, self.socket_bytes_max);
        assert!(peak <= most, "{peak} bytes in receive buffers: at most {most} are promised");
    }

    fn set_pipe_bytes(&mut self, bytes: u64) {
        self.pipe_bytes_peak = self.pipe_bytes_peak.max(bytes);
        let (peak, most) = (self.pipe_bytes_peak, self.pipe_bytes_max);
        assert!(peak <= most, "{peak} bytes in pipes of ranges: at most {most} are promised");
    }
}

/// When a sender sends again what was dropped.
#[derive(Debug, Default)]
pub(super) struct Retransmission {
    pub(super) again_us: u64,
    /// Since a packet was accepted.
    drops: u32,
}

impl Retransmission {
    fn dropped(&mut self, now_us: u64) {
        let timer_us = RETRANSMISSION_FIRST_US << self.drops.min(6);
        self.again_us = now_us + timer_us.min(RETRANSMISSION_LAST_US);
        self.drops += 1;
    }
}

impl World {
    /// Counts what is in the kernel now.
    pub(super) fn count_memory(&mut self) {
        let mut open = std::mem::take(&mut self.memory.open_sockets);
        open.retain(|socket| self.sockets[*socket].is_open());
        let unread = |socket: &usize| {
            let found = &self.sockets[*socket];
            self.come(*socket, found.stop()).saturating_sub(found.given) as u64
        };
        let bytes = open.iter().map(unread).sum();
        self.memory.open_sockets = open;
        self.memory.set_socket_bytes(bytes);
        let pipes = &self.plumbing.pipes;
        self.memory.open_pipes.retain(|pipe| pipes[*pipe].is_open());
        let bytes = self.memory.open_pipes.iter().map(|pipe| pipes[*pipe].bytes() as u64).sum();
        self.memory.set_pipe_bytes(bytes);
    }
}

#[test]
fn what_is_dropped_comes_again_later_each_time() {
    let mut memory = KernelMemory { drops_above_bytes: 100, ..KernelMemory::default() };
    let mut retransmission = Retransmission::default();
    assert!(memory.accepts(100, &mut retransmission, 7));
    let mut now_us = 1_000;
    let timers_ms = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 12_800].map(|timer_ms| {
        assert!(!memory.accepts(1, &mut retransmission, now_us));
        assert_eq!(retransmission.again_us, now_us + timer_ms * 1_000);
        now_us = retransmission.again_us;
        timer_ms
    });
    assert_eq!(memory.drops, timers_ms.len() as u64);
    memory.set_socket_bytes(0);
    assert!(memory.accepts(1, &mut retransmission, now_us));
    assert!(memory.accepts(99, &mut retransmission, now_us));
    assert!(!memory.accepts(1, &mut retransmission, now_us));
    assert_eq!(retransmission.again_us, now_us + 200_000, "the first again");
    assert_eq!((memory.socket_bytes_peak, memory.drops), (100, 9));
}

#[test]
#[should_panic(expected = "101 bytes in receive buffers: at most 100 are promised")]
fn a_promise_that_is_broken_is_reported() {
    let mut memory = KernelMemory { socket_bytes_max: 100, ..KernelMemory::default() };
    memory.accepts(101, &mut Retransmission::default(), 0);
}
