//! A simulated machine: ring, sockets, an origin behind them, and a file system, all driven by one
//! seed. Time is virtual; nothing here waits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use inrush::limits::ALIKE_TRIES_MAX;
use inrush::s3::Endpoint;
use inrush::sys::{Errno, Handle, Op};

use super::arrivals::Transit;
use super::chance::Chance;
use super::files::File;
use super::jobs::Jobs;
use super::memory::KernelMemory;
use super::network::Network;
use super::origin::{Fault, Rates, answer, object_bytes, size};
use super::pieces::Pieces;
use super::plumbing::{End, Plumbing};
use super::secure::{Server, Sides};
use super::seeds;

/// What a receive leaves where nothing came.
const SCRIBBLE: u8 = 0xee;

/// One TCP connection as both sides see it.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// What the program and its operations hold of it: a descriptor of the test's process, so that
    /// its drop is seen.
    held: Weak<OwnedFd>,
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) given: usize,
    /// What happens when `answer[..cut]` has been given.
    pub(super) end: Option<(usize, Fault)>,
    pub(super) closed: bool,
    /// What was wrong in its handshake's bytes may have been trusted.
    pub(super) garbled: bool,
    /// Bytes that must be there before a receive is woken.
    pub(super) low_water: usize,
    pub(super) answers: u32,
    /// Its request waits: the server serves others.
    pub(super) waits: bool,
    /// Over TLS: the origin's side of it.
    pub(super) server: Option<Server>,
    /// What of the answer is on its way, where that takes time.
    pub(super) transit: Transit,
    /// Calls on it return at once, and a ring's operations fail.
    pub(super) nonblocking: bool,
    /// Where it leads, once it is connected.
    pub(super) address: Option<SocketAddr>,
}

impl Socket {
    /// One that is open; over TLS with the origin's side of it.
    pub(super) fn new(held: Weak<OwnedFd>, server: Option<Server>) -> Self {
        Self { held, server, ..Self::default() }
    }

    /// True while the program has it, or an operation on it.
    pub(super) fn is_open(&self) -> bool {
        self.held.strong_count() > 0
    }

    /// Where its answer ends, or breaks off.
    pub(super) fn stop(&self) -> usize {
        self.end.map_or(self.answer.len(), |(cut, _)| cut)
    }
}

/// The whole simulated machine.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) rates: Rates,
    pub(crate) now_us: u64,
    /// From the first to the second the origin refuses connections and resets those it has.
    pub(crate) outage_us: Range<u64>,
    /// Bytes after which every answer breaks off.
    pub(crate) cut_bytes: usize,
    pub(super) sockets: Vec<Socket>,
    /// What is in the kernel of bytes that have come.
    pub(crate) memory: KernelMemory,
    /// Where bytes come over time.
    pub(crate) network: Option<Network>,
    pub(super) files: Vec<File>,
    /// What was delivered of each object, by its key and how often it was begun again.
    pub(crate) delivered: HashMap<(String, u32), Pieces>,
    /// Bytes that were delivered, of all objects.
    pub(crate) bytes: u64,
    /// What stands under final names.
    pub(crate) published: BTreeMap<String, Vec<u8>>,
    pub(crate) folders: Vec<String>,
    /// Empty files and folders that were made in this turn.
    pub(super) made_empty: usize,
    pub(crate) jobs: Jobs,
    /// Ranges that were asked for twice, those where the second answer was first, and ranges that
    /// were moved.
    pub(crate) late: [u64; 3],
    /// Faults that were injected, by name.
    pub(crate) injected: BTreeMap<&'static str, u64>,
    /// Wrong answers, by request and fault.
    wrong: HashMap<(String, &'static str), u32>,
    /// What each object consists of.
    models: HashMap<String, Rc<Vec<u8>>>,
    /// Bytes of bodies that were sent for each object.
    pub(crate) served: HashMap<String, u64>,
    /// Objects of which a wrong bit was sent.
    pub(crate) flipped: HashMap<String, u64>,
    /// The origin speaks TLS.
    pub(crate) sides: Option<Sides>,
    /// Where connections were begun to, and when.
    pub(crate) connects: Vec<(SocketAddr, u64)>,
    /// Nobody listens at this address; when that was found out first.
    pub(crate) dead: Option<SocketAddr>,
    pub(crate) dead_found_us: Option<u64>,
    /// What serves this address has another last byte of every object than is stored.
    pub(crate) wrong_at: Option<SocketAddr>,
    /// What serves this address takes requests, and never answers.
    pub(crate) silent_at: Option<SocketAddr>,
    /// Answers of a thousand that never begin.
    pub(crate) silent_per_mille: u64,
    /// Endpoints that redirect to nodes.
    pub(crate) gateways: Vec<Arc<Endpoint>>,
    /// Pipes, and the streams that go through them.
    pub(crate) plumbing: Plumbing,
}

pub(crate) type Shared = Rc<RefCell<World>>;

impl World {
    pub(crate) fn new(seed: u64, rates: Rates) -> Shared {
        Rc::new(RefCell::new(Self {
            chance: Chance(seed),
            rates,
            now_us: 0,
            outage_us: 0..0,
            cut_bytes: usize::MAX,
            sockets: Vec::new(),
            memory: KernelMemory::default(),
            network: None,
            files: Vec::new(),
            delivered: HashMap::new(),
            bytes: 0,
            published: BTreeMap::new(),
            folders: Vec::new(),
            made_empty: 0,
            jobs: Jobs::of(seed),
            late: [0; 3],
            injected: BTreeMap::new(),
            wrong: HashMap::new(),
            models: HashMap::new(),
            served: HashMap::new(),
            flipped: HashMap::new(),
            sides: None,
            connects: Vec::new(),
            dead: None,
            dead_found_us: None,
            wrong_at: None,
            silent_at: None,
            silent_per_mille: 0,
            gateways: Vec::new(),
            plumbing: Plumbing::default(),
        }))
    }

    /// The loop is kept from its work for this time or up to 128 times as long.
    pub(super) fn pause(&mut self, what: &'static str, least_us: u64) {
        // Drawn only where it can be: the seeds of the other runs stay what they are.
        if self.rates.pause_per_mille > 0 && self.chance.hits(self.rates.pause_per_mille) {
            let pause_us = least_us << self.chance.below(8);
            self.now_us += pause_us;
            self.plumbing.stopped_us += pause_us;
            self.count(what);
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.injected.entry(what).or_default() += 1;
        seeds::note(what, 1);
        self.plumbing.events += 1;
    }

    /// What an object's file must hold.
    pub(crate) fn model(&mut self, key: &str) -> Rc<Vec<u8>> {
        let key = self.network.as_ref().map_or(key, |network| network.model_of(key));
        if let Some(model) = self.models.get(key) {
            return Rc::clone(model);
        }
        let model = Rc::new(object_bytes(key, size(key)));
        self.models.insert(key.to_owned(), Rc::clone(&model));
        model
    }
}

pub(super) fn number(handle: &Handle) -> usize {
    let Handle::Simulated(number) = handle else { unreachable!("simulated") };
    usize::try_from(*number).expect("small")
}

impl World {
    /// Carries an operation out; `None` when it goes on for ever.
    pub(super) fn complete(&mut self, op: &mut Op, cancelled: bool) -> Option<Result<u32, Errno>> {
        match op {
            Op::Poll { .. } if cancelled => Some(Err(Errno::CANCELED)),
            Op::Poll { handle, events } => match self.end(handle) {
                End::Counter => Some(Ok(1)),
                End::Socket(socket) => self.is_readable(socket).then_some(Ok(1)),
                End::Writer(pipe) => Some(Ok(u32::from(self.pipe_readiness(pipe, *events)))),
                End::Reader(_) => unreachable!("nobody polls that"),
            },
            Op::Connect { socket, address } => {
                if cancelled {
                    return Some(Err(Errno::CANCELED));
                }
                let socket = self.socket(socket);
                self.sockets[socket].address = Some(*address);
                if Some(*address) == self.dead {
                    seeds::note("dead address", 1);
                    self.dead_found_us.get_or_insert(self.now_us);
                    return Some(Err(Errno::REFUSED));
                }
                let rate = self.rates.network_per_mille;
                let refused = self.outage_us.contains(&self.now_us) || self.chance.hits(rate);
                if refused {
                    self.count("refused");
                }
                Some(if refused { Err(Errno::REFUSED) } else { Ok(0) })
            }
            Op::Send { socket, slot, at, length } => {
                let (from, length) = (*at as usize, *length as usize);
                let bytes = slot[from..from + length].to_vec();
                Some(self.send(self.socket(socket), &bytes))
            }
            Op::Receive { socket, slot, at, length, fill } => {
                let (from, length) = (*at as usize, *length as usize);
                let into = &mut slot[from..from + length];
                let socket = self.socket(socket);
                let result = self.receive(socket, into, *fill, cancelled);
                // The rest is the kernel's until it gives the operation back, however that ends.
                let count = result.map_or(0, |result| result.unwrap_or(0)) as usize;
                into[count..].fill(SCRIBBLE);
                result
            }
            Op::Write { file, slot, at, length, offset } => {
                let (from, length) = (*at as usize, *length as usize);
                Some(self.write(number(file), &slot[from..from + length], *offset, from))
            }
        }
    }

    /// True when poll(2) says so.
    fn is_readable(&self, socket: usize) -> bool {
        let found = &self.sockets[socket];
        let stop = found.stop();
        // The end or reset of a connection is readable, too.
        let is_over = found.end.is_some_and(|(_, fault)| fault != Fault::Stall);
        let is_over = found.closed || is_over && self.has_ended(socket);
        let come = self.come(socket, stop);
        let least = if found.nonblocking { found.low_water.max(1) } else { 1 };
        let woken = found.end.is_some() || stop == found.given || stop - found.given >= least;
        assert!(woken, "so few bytes wake no poll");
        come - found.given >= least || come == stop && is_over
    }

    /// Looks whether the kernel would wait for what an operation is about to be begun on.
    pub(super) fn check_submit(&self, op: &Op) {
        if let Op::Connect { socket, .. } | Op::Send { socket, .. } | Op::Receive { socket, .. } =
            op
        {
            let nonblocking = self.sockets[self.socket(socket)].nonblocking;
            assert!(!nonblocking, "the ring does not wait on such a socket: {op:?}");
        }
    }

    fn send(&mut self, socket: usize, bytes: &[u8]) -> Result<u32, Errno> {
        if self.sockets[socket].closed || self.outage_us.contains(&self.now_us) {
            seeds::note("send on a broken connection", 1);
            return Err(Errno::RESET);
        }
        let rate = self.rates.network_per_mille;
        let mut count = bytes.len();
        if self.chance.hits(rate * 3) {
            self.count("short send");
            count = usize::try_from(1 + self.chance.below(bytes.len() as u64)).expect("small");
        }
        let found = &mut self.sockets[socket];
        match &mut found.server {
            None => found.request.extend_from_slice(&bytes[..count]),
            Some(server) => {
                match server.take(&bytes[..count]) {
                    Ok(plain) => found.request.extend(plain),
                    Err(error) => {
                        // The two sides did not agree on keys: the server hangs up.
                        assert!(found.garbled, "what the client sends is good: {error}");
                        found.closed = true;
                        return Err(Errno::RESET);
                    }
                }
                let reply = server.flush();
                let is_reply = !reply.is_empty();
                found.answer.extend(reply);
                self.break_handshake(socket);
                if is_reply {
                    self.depart(socket, 0);
                }
            }
        }
        if self.sockets[socket].request.ends_with(b"\n") {
            self.serve(socket);
        }
        Ok(u32::try_from(count).expect("small"))
    }

    /// A third answer that is wrong in the same way ends a range (`ALIKE_TRIES_MAX`). Where a retry
    /// is to heal every fault, no request gets one.
    fn can_be_healed(&mut self, request: &str, fault: Fault) -> bool {
        let is_wrong = matches!(fault, Fault::WrongRange | Fault::WrongLength | Fault::Garbage);
        if !is_wrong || self.rates.fatal_per_mille > 0 {
            return true;
        }
        let count = self.wrong.entry((request.to_owned(), fault.name())).or_default();
        *count += 1;
        *count < ALIKE_TRIES_MAX
    }

    /// The origin reads a request and prepares its answer.
    pub(super) fn serve(&mut self, socket: usize) {
        let keeps =
            self.network.as_mut().map(|network| network.keeps_waiting(socket, &self.sockets));
        if keeps == Some(true) {
            // It has nothing more of the answer before.
            let found = &mut self.sockets[socket];
            (found.waits, found.given, found.end) = (true, 0, None);
            seeds::note("request that waits for others to go", 1);
            found.answer.clear();
            return;
        }
        let request = std::mem::take(&mut self.sockets[socket].request);
        let request = String::from_utf8(request).expect("text");
        let (request, is_node) = self.received_by(socket, request);
        let kept = self.sockets[socket].answers > 0;
        let key = request.split(' ').next().expect("a key").to_owned();
        let overload = self.overload(&key);
        let fault = overload.or_else(|| self.rates.draw(&mut self.chance, kept, is_node));
        let fault = fault.filter(|fault| self.can_be_healed(&request, *fault));
        if let Some(fault) = fault {
            self.count(fault.name());
        }
        let model = self.model(&key);
        if fault == Some(Fault::WrongBit) {
            *self.flipped.entry(key.clone()).or_default() += 1;
        }
        let (mut bytes, end) = match fault {
            Some(Fault::Redirect) => (self.redirect(&key), None),
            _ => answer(&request, &model, fault, &mut self.chance),
        };
        if self.wrong_at.is_some() && self.sockets[socket].address == self.wrong_at {
            *bytes.last_mut().expect("an answer") ^= 1;
            seeds::note("wrong bytes of an address", 1);
        }
        let is_cut = self.cut_bytes < bytes.len();
        seeds::note("answer cut", u64::from(is_cut));
        let end = end.or(is_cut.then_some((self.cut_bytes, Fault::End)));
        let is_there = self.silent_at.is_some() && self.sockets[socket].address == self.silent_at;
        // Drawn only where it can be: the seeds of the other runs stay what they are.
        let is_drawn = self.silent_per_mille > 0 && self.chance.hits(self.silent_per_mille);
        seeds::note("silent address", u64::from(is_there));
        seeds::note("silent answer", u64::from(is_drawn));
        let end = if is_there || is_drawn { Some((0, Fault::Stall)) } else { end };
        let served = self.served.entry(key);
        *served.or_default() += bytes.len() as u64;
        let found = &mut self.sockets[socket];
        found.answers += 1;
        found.end = end;
        if found.server.is_some() {
            return self.seal(socket, &bytes);
        }
        found.given = 0;
        found.transit = Transit::default();
        let length = bytes.len();
        found.answer = bytes;
        self.depart(socket, length);
    }

    fn receive(
        &mut self,
        socket: usize,
        into: &mut [u8],
        fill: bool,
        cancelled: bool,
    ) -> Option<Result<u32, Errno>> {
        let wish = into.len() as u64;
        let short = !fill || self.chance.hits(100);
        let limit = if short { 1 + self.chance.below(wish) } else { wish };
        seeds::note("short receive", u64::from(fill && limit < wish));
        let found = &self.sockets[socket];
        let stop = found.stop();
        let come = self.come(socket, stop);
        let found = &mut self.sockets[socket];
        // All that there is, and what of it has come.
        let left = stop - found.given;
        let come = come - found.given;
        // What is to be filled stays with the kernel until it is full, or its end is asked for.
        let stalls = matches!(found.end, Some((_, Fault::Stall)));
        if fill && !short && !cancelled && stalls && left < into.len() {
            return None;
        }
        // What is to be filled takes what is there and sleeps again: its tail must not be all that
        // still comes, for that is too few to wake it.
        let woken = left >= into.len() + found.low_water || found.low_water <= 1;
        assert!(!fill || woken || found.end.is_some(), "a receive's tail does not wake it");
        if left < found.low_water && left > 0 && found.end.is_none() {
            // Too few to wake it, and no more to come.
            return cancelled.then_some(Err(Errno::CANCELED));
        }
        let count = come.min(usize::try_from(limit).expect("small"));
        into[..count].copy_from_slice(&found.answer[found.given..found.given + count]);
        found.given += count;
        if count > 0 {
            return Some(Ok(u32::try_from(count).expect("small")));
        }
        if left > 0 {
            return cancelled.then_some(Err(Errno::CANCELED));
        }
        match found.end {
            Some((_, Fault::Stall)) if cancelled => Some(Err(Errno::CANCELED)),
            Some((_, Fault::Stall)) => None,
            Some((_, Fault::Reset)) => {
                found.closed = true;
                Some(Err(Errno::RESET))
            }
            Some(_) => {
                found.closed = true;
                Some(Ok(0))
            }
            None if cancelled => Some(Err(Errno::CANCELED)),
            None => None,
        }
    }
}
