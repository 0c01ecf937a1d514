//! One ring, its slots, and what a seed came to.

use std::os::fd::OwnedFd;

use inrush::sys::choice::{AnyRing, RingKind};
use inrush::sys::{Completion, Errno, Handle, Lender, Loan, Op, Pool, Region, Ring, Slot};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Length of a slot in bytes.
pub(crate) const SLOT: u32 = 64 << 10;

/// Operations that a ring has room for.
pub(crate) const ENTRIES: u32 = 32;

/// Wait of one turn, in microseconds, and the most turns: only against hanging for ever.
const TURN_US: u64 = 100_000;
const TURNS_MAX: u32 = 300;

/// A ring under test.
pub(crate) struct Bench {
    ring: AnyRing,
    pool: Pool,
    chance: fastrand::Rng,
    tokens: u64,
    ended: Vec<Completion>,
    log: Vec<String>,
}

impl Bench {
    pub(crate) fn new(kind: RingKind, seed: u64) -> Self {
        let region = Region::new(2 << 20).expect("memory");
        let pool = Pool::new(region.carve(24 * SLOT as usize).expect("room"), SLOT);
        let mut ring = AnyRing::new(kind, ENTRIES, 2).expect("a ring");
        ring.register(&pool);
        let chance = fastrand::Rng::with_seed(seed);
        Self { ring, pool, chance, tokens: 0, ended: Vec::new(), log: Vec::new() }
    }

    /// Begins chance again.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.chance.seed(seed);
    }

    /// A number below this one, the same for both rings.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.chance.u64(0..bound)
    }

    /// One of two, the same for both rings.
    pub(crate) fn flips(&mut self) -> bool {
        self.chance.bool()
    }

    /// A length from 1 to this one.
    pub(crate) fn length(&mut self, most: u32) -> u32 {
        self.chance.u32(1..=most)
    }

    /// Bytes by chance.
    pub(crate) fn bytes(&mut self, length: u32) -> Vec<u8> {
        (0..length).map(|_| self.chance.u8(..)).collect()
    }

    /// Adds to what both rings must agree on.
    pub(crate) fn record(&mut self, line: impl Into<String>) {
        self.log.push(line.into());
    }

    pub(crate) fn slot(&mut self) -> Slot {
        self.pool.take().expect("slots come back")
    }

    /// True when a cancelled receive surely reports what had come.
    pub(crate) fn keeps_what_came(&self) -> bool {
        self.ring.keeps_what_came()
    }

    /// Submits an operation, under a number of its own.
    pub(crate) fn submit(&mut self, op: Op) -> u64 {
        self.tokens += 1;
        self.ring.submit(self.tokens, op).expect("there is room");
        self.tokens
    }

    /// Submits one that may find no room.
    pub(crate) fn may_submit(&mut self, op: Op) -> Option<u64> {
        self.tokens += 1;
        self.ring.submit(self.tokens, op).ok().map(|()| self.tokens)
    }

    pub(crate) fn cancel(&mut self, token: u64) {
        self.ring.cancel(token);
    }

    /// One turn that does not wait.
    pub(crate) fn turn(&mut self) {
        self.enter(0);
    }

    fn enter(&mut self, wait_us: u64) {
        self.ring.enter(wait_us).expect("a usable ring");
        while let Some(completion) = self.ring.reap() {
            let again = self.ended.iter().any(|other| other.token == completion.token);
            assert!(!again, "{completion:?} ended twice");
            self.ended.push(completion);
        }
    }

    /// The end of an operation; waits for it.
    pub(crate) fn end(&mut self, token: u64) -> (Op, Result<u32, Errno>) {
        for _ in 0..TURNS_MAX {
            if let Some(place) = self.ended.iter().position(|other| other.token == token) {
                let Completion { op, result, .. } = self.ended.swap_remove(place);
                return (op, result);
            }
            self.enter(TURN_US);
        }
        panic!("operation {token} has not ended; its log so far: {:?}", self.log);
    }

    /// Submits an operation, and waits for its end.
    pub(crate) fn run(&mut self, op: Op) -> (Op, Result<u32, Errno>) {
        let token = self.submit(op);
        self.end(token)
    }

    /// Runs an operation, and records its result.
    pub(crate) fn run_and_record(&mut self, what: &str, op: Op) {
        let (_, result) = self.run(op);
        self.record(format!("{what}: {result:?}"));
    }

    /// True when this one has not ended; there has been a turn to do so.
    pub(crate) fn is_pending(&mut self, token: u64) -> bool {
        self.turn();
        !self.ended.iter().any(|other| other.token == token)
    }

    /// Turns until something is so.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut() -> bool) {
        for _ in 0..TURNS_MAX * 100 {
            if is_so() {
                return;
            }
            self.enter(1000);
        }
        panic!("it does not come to be; its log so far: {:?}", self.log);
    }

    /// Two ends of a stream. What one writes the other has at once.
    pub(crate) fn pair(&mut self) -> (OwnedFd, Handle) {
        let flags = SocketFlags::CLOEXEC;
        let made = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (peer, socket) = made.expect("sockets");
        (peer, socket.into())
    }

    pub(crate) fn send(&mut self, socket: &Handle, bytes: &[u8]) -> Op {
        let mut slot = self.slot();
        slot[..bytes.len()].copy_from_slice(bytes);
        let length = u32::try_from(bytes.len()).expect("at most a slot");
        Op::Send { socket: socket.clone(), slot, at: 0, length }
    }

    /// Into a slot of the pool, or into lent memory, which the operation alone keeps.
    pub(crate) fn receive(&mut self, socket: &Handle, length: u32, fill: bool) -> Op {
        let slot = match self.flips() {
            true => self.slot(),
            false => {
                let loan = Loan::new(Lender::Buffer(vec![0; 3 + SLOT as usize]));
                loan.part(3, SLOT).expect("nobody has it")
            }
        };
        Op::Receive { socket: socket.clone(), slot, at: 0, length, fill }
    }

    /// What both rings must agree on: nothing is left, and every slot is back.
    pub(crate) fn finish(mut self) -> Vec<String> {
        assert!(self.ended.is_empty(), "nobody waits for {:?}", self.ended);
        self.turn();
        assert_eq!((self.ring.in_flight(), self.ended.len()), (0, 0));
        drop(self.ring);
        assert_eq!(self.pool.free(), self.pool.count(), "every slot is back");
        self.log
    }
}
