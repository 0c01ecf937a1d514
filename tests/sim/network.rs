//! The simulated network between origin and machine, where a scenario asks for one: bytes come over
//! virtual time.
//!
//! All sockets that have bytes to give share the capacity evenly, none gets more than its own rate,
//! and none is sent more than its receive buffer holds.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use inrush::sys::{Handle, Op, descriptor};

use super::chance::Chance;
use super::memory::{KernelMemory, Retransmission};
use super::origin::Fault;
use super::plumbing::End;
use super::secure::Server;
use super::seeds;
use super::world::{Socket, World};

/// Time for which the model gives out bytes at once, in microseconds: its resolution.
const STEP_US: u64 = 500;

/// A socket's receive buffer, in bytes: as Linux lets it grow to (tcp_rmem), scaled like the
/// capacities here.
const RECEIVE_BUFFER_BYTES: u64 = 512 << 10;

/// A byte in the unit that is counted in: bytes a second and microseconds need no fractions then.
const BYTE: u64 = 1_000_000;

/// What a scenario wants.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Of all connections together, in bytes a second.
    pub(crate) capacity: u64,
    /// Of each connection, in bytes a second; each one's own is up to a quarter more or less.
    pub(crate) rate: u64,
    /// From a request to the first byte of its answer, in microseconds; up to a quarter more.
    pub(crate) latency_us: u64,
    /// Nanoseconds a byte for which the server reads each answer, one after the other, before it
    /// sends any of it; also for clients that have gone meanwhile.
    pub(crate) read_ns: u64,
    /// With more connections than this, each doubling costs 3 % of the capacity.
    pub(crate) knee: u64,
    /// Requests a second that are answered; the others get 503. 0: all are.
    pub(crate) requests_per_second: u64,
    /// Of objects whose keys begin so; the requests for others are all answered.
    pub(crate) throttled: &'static str,
    /// Connections that are served at a time; the others wait until one of them is closed. 0: all.
    pub(crate) served_at_once: usize,
    /// When others take their part of the capacity.
    pub(crate) neighbour_us: Range<u64>,
    /// That part, in thousandths.
    pub(crate) neighbour_per_mille: u64,
    /// Time of a call that creates, publishes or writes a whole file, in microseconds.
    pub(crate) file_call_us: u64,
    /// Bytes a second that the disk writes; 0: any number.
    pub(crate) disk_rate: u64,
    /// Objects of one length hold the same bytes: to make them takes longer than to fetch them.
    pub(crate) alike: bool,
}

impl Terms {
    pub(crate) const fn new(capacity: u64, rate: u64, latency_us: u64) -> Self {
        Self {
            capacity,
            rate,
            latency_us,
            read_ns: 0,
            knee: u64::MAX,
            requests_per_second: 0,
            throttled: "",
            served_at_once: 0,
            neighbour_us: 0..0,
            neighbour_per_mille: 0,
            file_call_us: 0,
            disk_rate: 0,
            alike: false,
        }
    }
}

/// The origin's side of one connection; amounts in [`BYTE`]s.
#[derive(Debug)]
struct Link {
    rate: u64,
    /// When the first byte comes.
    begins_us: u64,
    /// What has come of the answer now on its way.
    come: u64,
    total: u64,
    retransmission: Retransmission,
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) terms: Terms,
    links: Vec<Link>,
    /// Those with an answer on its way.
    active: Vec<usize>,
    /// Until when bytes were given out.
    now_us: u64,
    /// Requests that may be answered now, in millionths.
    tokens: u64,
    tokens_us: u64,
    disk_free_us: u64,
    /// Connections that are served, and those that wait with a request.
    seated: Vec<usize>,
    waiting: VecDeque<usize>,
    /// When the server has read all that it was asked for.
    read_us: u64,
    /// Requests that were answered with 503, and all of them.
    pub(crate) refused: u64,
    pub(crate) requests: u64,
}

impl Network {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            links: Vec::new(),
            active: Vec::new(),
            now_us: 0,
            tokens: u64::MAX,
            tokens_us: 0,
            disk_free_us: 0,
            read_us: 0,
            seated: Vec::new(),
            waiting: VecDeque::new(),
            refused: 0,
            requests: 0,
        }
    }

    /// The key whose bytes an object has.
    pub(super) fn model_of<'key>(&self, key: &'key str) -> &'key str {
        let length_at = key.rfind('-').filter(|_| self.terms.alike);
        &key[length_at.unwrap_or(0)..]
    }

    /// A socket is made.
    pub(super) fn open(&mut self, chance: &mut Chance) {
        let rate = self.terms.rate * (750 + chance.below(500)) / 1000;
        let retransmission = Retransmission::default();
        self.links.push(Link { rate, begins_us: 0, come: 0, total: 0, retransmission });
    }

    /// True where one more request is more than the server takes: a bucket of a tenth of a second,
    /// and of three requests at least.
    pub(super) fn refuses(&mut self, key: &str, now_us: u64) -> bool {
        self.requests += 1;
        let rate = self.terms.requests_per_second;
        if rate == 0 || !key.starts_with(self.terms.throttled) {
            return false;
        }
        let elapsed_us = now_us - std::mem::replace(&mut self.tokens_us, now_us);
        self.tokens =
            self.tokens.saturating_add(elapsed_us * rate).min((rate * 100_000).max(3_000_000));
        let refused = self.tokens < 1_000_000;
        self.refused += u64::from(refused);
        self.tokens -= if refused { 0 } else { 1_000_000 };
        refused
    }

    /// True where a request waits until fewer connections are open.
    pub(super) fn keeps_waiting(&mut self, socket: usize, sockets: &[Socket]) -> bool {
        let most = self.terms.served_at_once;
        if most == 0 || self.seated.contains(&socket) {
            return false;
        }
        self.seated.retain(|seated| sockets[*seated].is_open());
        let has_place = self.seated.len() < most;
        if has_place {
            self.seated.push(socket)
        } else {
            self.waiting.push_back(socket)
        }
        !has_place
    }

    /// The next whose request is read, and who is still there.
    fn next_served(&mut self, sockets: &[Socket]) -> Option<usize> {
        self.seated.retain(|seated| sockets[*seated].is_open());
        self.waiting.retain(|waiting| sockets[*waiting].is_open());
        if self.terms.served_at_once > 0 && self.seated.len() >= self.terms.served_at_once {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Sends an answer of `length` bytes on its way.
    pub(super) fn answer(&mut self, socket: usize, length: usize, now_us: u64, jitter: u64) {
        let mut begins_us = now_us + self.terms.latency_us + self.terms.latency_us * jitter / 4000;
        if self.terms.read_ns > 0 {
            self.read_us = self.read_us.max(now_us) + length as u64 * self.terms.read_ns / 1000;
            begins_us += self.read_us - now_us;
        }
        let link = &mut self.links[socket];
        (link.begins_us, link.come, link.total) = (begins_us, 0, length as u64 * BYTE);
        if !self.active.contains(&socket) {
            self.active.push(socket);
        }
    }

    /// Bytes of the answer that have come.
    fn come(&self, socket: usize) -> usize {
        usize::try_from(self.links[socket].come / BYTE).expect("small")
    }

    /// When a write that begins now is done.
    fn written_us(&mut self, length: u32, now_us: u64) -> u64 {
        if self.terms.disk_rate == 0 {
            return now_us;
        }
        let time_us = u64::from(length) * 1_000_000 / self.terms.disk_rate;
        seeds::note("slow disk", u64::from(self.disk_free_us > now_us));
        self.disk_free_us = self.disk_free_us.max(now_us) + time_us;
        self.disk_free_us
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) {
        self.active.clear();
    }

    /// When bytes may come next, by what the sockets have room for now.
    fn next_us(&self, sockets: &[Socket]) -> u64 {
        let next = self.active.iter().filter_map(|socket| {
            let link = &self.links[*socket];
            let has_room = link.room(&sockets[*socket]) > 0;
            has_room.then_some(link.retransmission.again_us)
        });
        next.min().map_or(u64::MAX, |again_us| again_us.max(self.now_us + STEP_US))
    }

    /// Time passes.
    fn advance(&mut self, now_us: u64, sockets: &[Socket], memory: &mut KernelMemory) {
        while self.now_us < now_us {
            if self.next_us(sockets) > now_us.max(self.now_us + STEP_US) {
                // Nobody takes anything meanwhile: no step would bring a byte.
                self.now_us = now_us;
                return;
            }
            let until_us = now_us.min(self.now_us + STEP_US);
            let step_us = until_us - self.now_us;
            self.now_us = until_us;
            self.step(step_us, sockets, memory);
        }
    }

    fn step(&mut self, step_us: u64, sockets: &[Socket], memory: &mut KernelMemory) {
        let links = &mut self.links;
        self.active.retain(|socket| {
            links[*socket].come < links[*socket].total && sockets[*socket].is_open()
        });
        let now_us = self.now_us;
        let wishes = self.active.iter().filter_map(|socket| {
            let link = &links[*socket];
            let room = link.room(&sockets[*socket]);
            let wish = (link.rate * step_us).min(link.total - link.come).min(room);
            let begins_us = link.begins_us.max(link.retransmission.again_us);
            (begins_us <= now_us && wish > 0).then_some((wish, *socket))
        });
        // Whoever wants less than its share leaves the rest to the others.
        let mut wishes: Vec<(u64, usize)> = wishes.collect();
        wishes.sort_unstable();
        let mut left = self.terms.shared(now_us, wishes.len() as u64) * step_us;
        for (index, (wish, socket)) in wishes.iter().enumerate() {
            let given = (left / (wishes.len() - index) as u64).min(*wish);
            left -= given;
            let link = &mut links[*socket];
            let bytes = (link.come + given) / BYTE - link.come / BYTE;
            // What is dropped has used the network all the same.
            if memory.accepts(bytes, &mut link.retransmission, now_us) {
                link.come += given;
            }
        }
    }
}

impl Link {
    /// How much more its receive buffer takes.
    fn room(&self, socket: &Socket) -> u64 {
        let unread = self.come - socket.given as u64 * BYTE;
        (RECEIVE_BUFFER_BYTES * BYTE).saturating_sub(unread)
    }
}

impl Terms {
    /// Capacity that `connections` connections share, in bytes a second.
    fn shared(&self, now_us: u64, connections: u64) -> u64 {
        let is_beside = self.neighbour_us.contains(&now_us);
        seeds::note("capacity taken by others", u64::from(is_beside));
        let taken = if is_beside { self.neighbour_per_mille } else { 0 };
        let doublings = (connections / self.knee).checked_ilog2().map_or(0, |beyond| beyond + 1);
        let lost = 30 * u64::from(doublings);
        self.capacity * (1000 - taken) / 1000 * (1000 - lost) / 1000
    }
}

/// The parts of the machine that depend on the network.
impl World {
    pub(super) fn open(&mut self, server: Option<Server>) -> Handle {
        if let Some(network) = &mut self.network {
            assert!(server.is_none(), "the network counts bytes of answers, not of TLS");
            network.open(&mut self.chance);
        }
        let number = self.sockets.len();
        let (handle, held) = self.make_end(End::Socket(number));
        self.sockets.push(Socket::new(held, server));
        self.memory.open_socket(number);
        handle
    }

    /// Until when the ring may sleep at most, where there is a network.
    pub(super) fn next_look_us(&self) -> u64 {
        self.network.as_ref().map_or(u64::MAX, |network| network.next_us(&self.sockets))
    }

    /// Lets the server read requests that waited for others to go.
    pub(super) fn serve_waiting(&mut self) {
        let next = |world: &mut Self| world.network.as_mut()?.next_served(&world.sockets);
        while let Some(socket) = next(self) {
            self.sockets[socket].waits = false;
            self.serve(socket);
        }
    }

    /// Lets come what has come meanwhile.
    pub(super) fn advance_network(&mut self) {
        self.serve_waiting();
        self.count_memory();
        if let Some(network) = &mut self.network {
            network.advance(self.now_us, &self.sockets, &mut self.memory);
        }
    }

    /// What has come of a socket's answer, of all that will.
    pub(super) fn come(&self, socket: usize, stop: usize) -> usize {
        match &self.network {
            Some(network) => network.come(socket).min(stop),
            None if self.plumbing.arrives => self.sockets[socket].transit.arrived().min(stop),
            None => stop,
        }
    }

    /// False for an operation that waits for bytes which are still on their way.
    pub(super) fn is_due(&self, op: &Op) -> bool {
        let (socket, wish, fill) = match op {
            Op::Receive { socket, length, fill, .. } => {
                (self.socket(socket), *length as usize, *fill)
            }
            Op::Poll { handle, events } => match self.end(handle) {
                End::Socket(socket) => (socket, 1, false),
                End::Writer(pipe) => return self.pipe_readiness(pipe, *events) != 0,
                // Who raises a counter ends the wait for it.
                End::Reader(_) | End::Counter => return true,
            },
            _ => return true,
        };
        let found = &self.sockets[socket];
        if found.waits {
            return false;
        }
        let stop = found.stop();
        let come = self.come(socket, stop);
        let enough = if fill { wish } else { found.low_water.max(1) };
        let is_all = come == stop && (found.end.is_none() || self.has_ended(socket));
        is_all || come - found.given >= enough
    }

    /// When an operation that is submitted now is done, but for the bytes that it waits for.
    pub(super) fn done_us(&mut self, op: &Op, usual_us: u64) -> u64 {
        match (&mut self.network, op) {
            (None, _) | (_, Op::Poll { .. }) => usual_us,
            (Some(network), Op::Write { length, .. }) => network.written_us(*length, self.now_us),
            (Some(_), _) if usual_us == u64::MAX => usual_us,
            (Some(_), _) => self.now_us,
        }
    }

    /// How long a call of the file system takes.
    pub(super) fn file_call_us(&self) -> u64 {
        self.network.as_ref().map_or(0, |network| network.terms.file_call_us)
    }

    /// What goes wrong with an answer because the server is asked for too much.
    pub(super) fn overload(&mut self, key: &str) -> Option<Fault> {
        let refuses = self.network.as_mut()?.refuses(key, self.now_us);
        refuses.then_some(Fault::TooMany)
    }

    /// An answer goes on its way.
    pub(super) fn depart(&mut self, socket: usize, length: usize) {
        if self.plumbing.arrives && self.network.is_none() {
            return self.send_in_pieces(socket);
        }
        let Some(network) = &mut self.network else { return };
        network.answer(socket, length, self.now_us, self.chance.below(1000));
    }
}

fn open_socket(handle: &Handle) -> Socket {
    let Handle::Descriptor(held) = handle else { unreachable!("a descriptor") };
    Socket::new(Arc::downgrade(held), None)
}

#[test]
fn what_one_leaves_the_others_take() {
    let mut network = Network::new(Terms::new(9_000_000, 100_000_000, 1000));
    let mut chance = Chance(1);
    let held = descriptor::event_counter().expect("a descriptor");
    let sockets: Vec<Socket> = (0..3).map(|_| open_socket(&held)).collect();
    let mut memory = KernelMemory::default();
    for socket in 0..3 {
        network.open(&mut chance);
        network.answer(socket, if socket == 0 { 1000 } else { 100_000 }, 0, 0);
    }
    network.advance(500, &sockets, &mut memory);
    assert_eq!([0, 1, 2].map(|socket| network.come(socket)), [0; 3], "before the first byte");
    network.advance(11_000, &sockets, &mut memory);
    let come = [0, 1, 2].map(|socket| network.come(socket));
    // 9 bytes a microsecond, from the step on in which the first byte comes.
    assert_eq!(come[0], 1000);
    assert_eq!(come[1], come[2]);
    assert_eq!(come.iter().sum::<usize>(), 9 * 10_500);
}

#[test]
fn nobody_is_sent_more_than_it_has_room_for_or_its_rate_allows() {
    let mut network = Network::new(Terms::new(1 << 30, 1_000_000, 0));
    let held = descriptor::event_counter().expect("a descriptor");
    let mut sockets = vec![open_socket(&held)];
    let mut memory = KernelMemory::default();
    network.open(&mut Chance(1));
    network.answer(0, 2 << 20, 0, 0);
    network.advance(100_000, &sockets, &mut memory);
    assert!((75_000..=125_000).contains(&network.come(0)), "{}", network.come(0));
    network.advance(10_000_000, &sockets, &mut memory);
    assert_eq!(network.come(0) as u64, RECEIVE_BUFFER_BYTES);
    sockets[0].given = 1000;
    network.advance(11_000_000, &sockets, &mut memory);
    assert_eq!(network.come(0) as u64, RECEIVE_BUFFER_BYTES + 1000);
}

/// Above the bound of the machine a connection gets nothing, and what was dropped comes again
/// after a timer; once there is room all of it comes.
#[test]
fn a_full_machine_drops_packets_and_they_come_again() {
    let mut network = Network::new(Terms::new(10 * BYTE, BYTE, 0));
    let held = descriptor::event_counter().expect("a descriptor");
    let mut sockets: Vec<Socket> = (0..2).map(|_| open_socket(&held)).collect();
    let mut memory = KernelMemory::default();
    memory.drops_above_bytes = 100_000;
    for socket in 0..2 {
        network.open(&mut Chance(1));
        network.answer(socket, 80_000, 0, 0);
    }
    network.advance(1_000_000, &sockets, &mut memory);
    let come = [0, 1].map(|socket| network.come(socket));
    let all = come.iter().sum::<usize>();
    assert!((99_000..=100_000).contains(&all), "{come:?}");
    assert!((2..20).contains(&memory.drops), "{} drops", memory.drops);
    // The program takes everything.
    sockets.iter_mut().zip(come).for_each(|(socket, come)| socket.given = come);
    memory.set_socket_bytes(0);
    network.advance(1_100_000, &sockets, &mut memory);
    assert_eq!([0, 1].map(|socket| network.come(socket)), come, "nothing is sent before its time");
    network.advance(3_000_000, &sockets, &mut memory);
    assert_eq!([0, 1].map(|socket| network.come(socket)), [80_000; 2]);
    drop(held);
    network.answer(0, 80_000, 3_000_000, 0);
    sockets[0].given = 0;
    network.advance(4_000_000, &sockets, &mut memory);
    assert_eq!(network.come(0), 0, "nobody has it any more");
}
