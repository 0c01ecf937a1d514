//! A simulated machine: ring, sockets, an origin behind them, and a file system, all driven by one
//! seed. Time is virtual; nothing here waits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use inrush::error::Error;
use inrush::host::Host;
use inrush::limits::EMPTY_OBJECTS_PER_TURN_MAX;
use inrush::s3::ByteRange;
use inrush::sys::{Completion, Errno, Handle, Op, Ring, descriptor};
use inrush::transfer::Transfer;

use super::chance::Chance;
use super::crew::is_raised;
use super::files::File;
use super::network::Network;
use super::origin::{Fault, Rates, answer, object_bytes, size};
use super::pieces::Pieces;
use super::secure::{Server, Sides};

/// One TCP connection as both sides see it.
#[derive(Debug, Default)]
pub(super) struct Socket {
    request: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) given: usize,
    /// What happens when `answer[..cut]` has been given.
    pub(super) end: Option<(usize, Fault)>,
    closed: bool,
    /// What was wrong in its handshake's bytes may have been believed.
    garbled: bool,
    /// A receive is not woken before so many bytes are there.
    pub(super) low_water: usize,
    answers: u32,
    /// Over TLS: the origin's side of it.
    pub(super) server: Option<Server>,
}

/// The whole simulated machine.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) rates: Rates,
    pub(crate) now_us: u64,
    /// From the first to the second the origin refuses connections and resets those it has.
    pub(crate) outage_us: Range<u64>,
    /// Every answer breaks off after so many bytes.
    pub(crate) cut_bytes: usize,
    pub(super) sockets: Vec<Socket>,
    /// Where bytes come over time.
    pub(crate) network: Option<Network>,
    pub(super) files: Vec<File>,
    /// What was delivered of each object, by its key and how often it was begun anew.
    pub(crate) delivered: HashMap<(String, u32), Pieces>,
    /// Bytes that were delivered, of all objects.
    pub(crate) bytes: u64,
    /// What stands under final names.
    pub(crate) published: BTreeMap<String, Vec<u8>>,
    pub(crate) folders: Vec<String>,
    /// Empty files and folders that were made in this turn.
    pub(super) made_empty: usize,
    /// Ranges that were asked for twice, those where the second answer was first, and ranges that
    /// were moved.
    pub(crate) late: [u64; 3],
    /// Faults that were injected, by name.
    pub(crate) injected: BTreeMap<&'static str, u64>,
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
            network: None,
            files: Vec::new(),
            delivered: HashMap::new(),
            bytes: 0,
            published: BTreeMap::new(),
            folders: Vec::new(),
            made_empty: 0,
            late: [0; 3],
            injected: BTreeMap::new(),
            models: HashMap::new(),
            served: HashMap::new(),
            flipped: HashMap::new(),
            sides: None,
            connects: Vec::new(),
            dead: None,
            dead_found_us: None,
        }))
    }

    /// The loop is kept from its work for this time or up to 128 times as long.
    pub(super) fn pause(&mut self, what: &'static str, least_us: u64) {
        // Drawn only where it can be: the seeds of the other runs stay what they are.
        if self.rates.pause_per_mille > 0 && self.chance.hits(self.rates.pause_per_mille) {
            self.now_us += least_us << self.chance.below(8);
            self.count(what);
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.injected.entry(what).or_default() += 1;
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

/// The worker's machine.
#[derive(Debug)]
pub(crate) struct SimHost(pub(crate) Shared);

impl Host for SimHost {
    fn now_us(&mut self) -> u64 {
        let mut world = self.0.borrow_mut();
        world.pause("stopped", STOP_US);
        world.now_us += 1;
        world.now_us
    }

    fn random(&mut self) -> u64 {
        self.0.borrow_mut().chance.next()
    }

    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno> {
        let mut world = self.0.borrow_mut();
        let rate = world.rates.network_per_mille / 4;
        if world.chance.hits(rate) {
            world.count("no socket");
            return Err(Errno::new(24));
        }
        let now_us = world.now_us;
        world.connects.push((*address, now_us));
        let server = world.sides.as_ref().map(Server::new);
        world.open(server);
        Ok(Handle::Simulated(world.sockets.len() as u64 - 1))
    }

    fn set_low_water(&mut self, socket: &Handle, bytes: u32) {
        let mut world = self.0.borrow_mut();
        world.sockets[number(socket)].low_water = bytes as usize;
    }

    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
    ) -> Result<u32, Error> {
        let range = range
            .map(|range| format!("{}-{}", range.offset, range.offset + range.length - 1))
            .unwrap_or_default();
        let text = format!("{} {range}\n", transfer.object.key);
        out[..text.len()].copy_from_slice(text.as_bytes());
        Ok(u32::try_from(text.len()).expect("short"))
    }
}

/// An operation that the simulated kernel owns.
#[derive(Debug)]
struct Flight {
    token: u64,
    op: Op,
    /// When it completes; `u64::MAX` when only a cancel ends it.
    ready_us: u64,
    cancelled: bool,
}

/// A ring over the world.
#[derive(Debug)]
pub(crate) struct SimRing {
    world: Shared,
    flights: Vec<Flight>,
    done: Vec<Completion>,
    /// The last three calls of a turn.
    calls: [Call; 3],
    /// When they were made: each look at the clock moves it.
    called_us: u64,
}

/// A call of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Enter,
    Submit(u64),
    Cancel(u64),
}

/// A poll that completes for nothing does so after this time at the earliest, in microseconds.
const POLL_US: u64 = 10_000;

/// A process is stopped for this time at least, in microseconds.
const STOP_US: u64 = 500_000;

impl SimRing {
    pub(crate) fn new(world: Shared) -> Self {
        Self { world, flights: Vec::new(), done: Vec::new(), calls: [Call::Enter; 3], called_us: 0 }
    }
}

impl SimRing {
    /// Notes a call, and that no connection takes a range from its rival only to be ended itself.
    fn note(&mut self, call: Call) {
        let now_us = self.world.borrow().now_us;
        if std::mem::replace(&mut self.called_us, now_us) != now_us {
            // Another turn has begun: the run may have been stopped meanwhile.
            self.calls = [Call::Enter; 3];
        }
        if let [earlier, Call::Cancel(rival), Call::Submit(begun)] = self.calls {
            // What follows a part of a late operation's bytes is ended at once, rival or not.
            let is_rival = earlier != Call::Submit(rival);
            assert!(!is_rival || call != Call::Cancel(begun), "a rival was ended for nothing");
        }
        self.calls = [self.calls[1], self.calls[2], call];
    }

    /// Lets a raised counter end the wait for it. The wake-up may be lost.
    fn look_at_counters(&mut self) {
        let mut world = self.world.borrow_mut();
        for flight in self.flights.iter_mut().filter(|flight| !flight.cancelled) {
            let Op::Poll { handle: handle @ Handle::Descriptor(_), .. } = &flight.op else {
                continue;
            };
            if !is_raised(handle) {
                continue;
            }
            let rate = (world.rates.network_per_mille * 4).min(500);
            if world.chance.hits(rate) {
                descriptor::lower(handle);
                world.count("wake-up lost");
            } else {
                flight.ready_us = world.now_us;
            }
        }
    }
}

impl Ring for SimRing {
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op> {
        assert!(self.flights.iter().all(|flight| flight.token != token), "tokens are unique");
        self.note(Call::Submit(token));
        let mut world = self.world.borrow_mut();
        let rates = world.rates;
        if world.chance.hits(rates.network_per_mille / 8) {
            world.count("ring full");
            return Err(op);
        }
        // Some take far longer than others, and come all the same.
        let is_slow = rates.hang_per_mille > 0 && world.chance.hits(rates.hang_per_mille / 2);
        let delay =
            if is_slow { 50_000 << world.chance.below(6) } else { world.chance.below(2000) };
        let never = matches!(op, Op::Connect { .. }) && world.chance.hits(rates.hang_per_mille);
        let ready_us = match op {
            _ if never => u64::MAX,
            Op::Poll { handle: Handle::Simulated(_), .. } => world.now_us + delay,
            // A counter ends it, see `look_at_counters`; or it completes for nothing.
            Op::Poll { .. } if !world.chance.hits(4 * rates.network_per_mille) => u64::MAX,
            Op::Poll { .. } => world.now_us + POLL_US + delay,
            _ => world.now_us + delay,
        };
        let ready_us = world.done_us(&op, ready_us);
        self.flights.push(Flight { token, op, ready_us, cancelled: false });
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        self.note(Call::Cancel(token));
        let mut world = self.world.borrow_mut();
        let rate = (world.rates.network_per_mille * 4).min(500);
        if world.chance.hits(rate) {
            return world.count("cancel lost");
        }
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.token == token) {
            flight.cancelled = true;
        }
    }

    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        self.note(Call::Enter);
        self.look_at_counters();
        let mut world = self.world.borrow_mut();
        let at_work = std::mem::take(&mut world.made_empty) == EMPTY_OBJECTS_PER_TURN_MAX;
        assert!(!at_work || wait_us == 0, "a worker that left work for its next turn sleeps");
        let next = self
            .flights
            .iter()
            .filter(|flight| flight.cancelled || world.is_due(&flight.op))
            .map(|flight| if flight.cancelled { 0 } else { flight.ready_us })
            .min()
            .unwrap_or(u64::MAX)
            .min(world.next_look_us());
        let until = world.now_us + wait_us;
        world.now_us = world.now_us.max(next.min(until));
        let before_us = world.now_us;
        world.pause("stopped in the ring", STOP_US);
        if world.now_us > before_us {
            // What was on its way needed the worker, too, and goes on now.
            for flight in self.flights.iter_mut().filter(|flight| flight.ready_us != u64::MAX) {
                flight.ready_us = world.now_us + world.chance.below(2000);
            }
        }
        world.advance_network();
        let mut index = 0;
        while index < self.flights.len() {
            let flight = &self.flights[index];
            let is_ready = flight.ready_us <= world.now_us && world.is_due(&flight.op);
            if !is_ready && !flight.cancelled {
                index += 1;
                continue;
            }
            let Flight { token, mut op, cancelled, .. } = self.flights.swap_remove(index);
            match world.complete(&mut op, cancelled) {
                Some(result) => self.done.push(Completion { token, op, result }),
                // It hangs: only a cancel ends it.
                None => {
                    self.flights.push(Flight { token, op, ready_us: u64::MAX, cancelled });
                    index += 1;
                }
            }
        }
        // Completions come in any order.
        for last in (1..self.done.len()).rev() {
            let other = usize::try_from(world.chance.below(last as u64 + 1)).expect("small");
            self.done.swap(last, other);
        }
        Ok(())
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop()
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }
}

pub(super) fn number(handle: &Handle) -> usize {
    let Handle::Simulated(number) = handle else { unreachable!("simulated") };
    usize::try_from(*number).expect("small")
}

impl World {
    /// Carries an operation out; `None` when it goes on for ever.
    fn complete(&mut self, op: &mut Op, cancelled: bool) -> Option<Result<u32, Errno>> {
        match op {
            Op::Poll { .. } if cancelled => Some(Err(Errno::CANCELED)),
            Op::Poll { handle: handle @ Handle::Simulated(_), .. } => {
                let found = &self.sockets[number(handle)];
                let stop = found.end.map_or(found.answer.len(), |(cut, _)| cut);
                // A server that has closed, or reset, is something to be told, too.
                let is_over = found.end.is_some_and(|(_, fault)| fault != Fault::Stall);
                let come = self.come(number(handle), stop);
                let is_ready = found.given < come || come == stop && (is_over || found.closed);
                is_ready.then_some(Ok(1))
            }
            Op::Poll { .. } => Some(Ok(1)),
            Op::Connect { address, .. } => {
                if cancelled {
                    return Some(Err(Errno::CANCELED));
                }
                if Some(*address) == self.dead {
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
                Some(self.send(number(socket), &bytes))
            }
            Op::Receive { socket, slot, at, length, fill } => {
                let (from, length) = (*at as usize, *length as usize);
                let into = &mut slot[from..from + length];
                self.receive(number(socket), into, *fill, cancelled)
            }
            Op::Write { file, slot, at, length, offset } => {
                let (from, length) = (*at as usize, *length as usize);
                Some(self.write(number(file), &slot[from..from + length], *offset, from))
            }
        }
    }

    fn send(&mut self, socket: usize, bytes: &[u8]) -> Result<u32, Errno> {
        if self.sockets[socket].closed || self.outage_us.contains(&self.now_us) {
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
                found.answer.extend(server.flush());
                self.break_handshake(socket);
            }
        }
        if self.sockets[socket].request.ends_with(b"\n") {
            self.serve(socket);
        }
        Ok(u32::try_from(count).expect("small"))
    }

    /// The origin reads a request and prepares its answer.
    fn serve(&mut self, socket: usize) {
        let request = std::mem::take(&mut self.sockets[socket].request);
        let request = String::from_utf8(request).expect("text");
        let kept = self.sockets[socket].answers > 0;
        let fault = self.overload().or_else(|| self.rates.draw(&mut self.chance, kept));
        if let Some(fault) = fault {
            self.count(fault.name());
        }
        let key = request.split(' ').next().expect("a key").to_owned();
        let model = self.model(&key);
        if fault == Some(Fault::WrongBit) {
            *self.flipped.entry(key.clone()).or_default() += 1;
        }
        let (bytes, end) = answer(&request, &model, fault, &mut self.chance);
        let end = end.or((self.cut_bytes < bytes.len()).then_some((self.cut_bytes, Fault::End)));
        let served = self.served.entry(key);
        *served.or_default() += bytes.len() as u64;
        let found = &mut self.sockets[socket];
        found.answers += 1;
        found.end = end;
        if found.server.is_some() {
            return self.seal(socket, &bytes);
        }
        found.given = 0;
        let length = bytes.len();
        found.answer = bytes;
        self.depart(socket, length);
    }

    /// A handshake may be cut or garbled at any byte.
    fn break_handshake(&mut self, socket: usize) {
        let rate = self.rates.network_per_mille / 4;
        let found = &mut self.sockets[socket];
        let fresh = found.answers == 0 && found.end.is_none() && !found.answer.is_empty();
        if !fresh || !self.chance.hits(rate) {
            return;
        }
        let left = (found.answer.len() - found.given) as u64;
        let at = found.given + usize::try_from(self.chance.below(left.max(1))).expect("small");
        if left > 0 && self.chance.hits(500) {
            found.answer[at] ^= 1 << self.chance.below(8);
            self.sockets[socket].garbled = true;
            return self.count("garbled handshake");
        }
        found.end = Some((at, if self.chance.hits(500) { Fault::End } else { Fault::Reset }));
        self.count("cut handshake");
    }

    /// The answer as ciphertext: it may be cut at any byte, or ended too early in good order, or
    /// one of its bits may be wrong.
    fn seal(&mut self, socket: usize, plain: &[u8]) {
        let rate = self.rates.network_per_mille / 2;
        let found = &mut self.sockets[socket];
        let server = found.server.as_mut().expect("over TLS");
        let early = self.chance.hits(rate);
        let length = match early {
            true => usize::try_from(self.chance.below(plain.len() as u64 + 1)).expect("small"),
            false => plain.len(),
        };
        let mut sealed = server.seal(&plain[..length], &mut self.chance);
        if early {
            sealed.extend(server.close());
        }
        let wrong = !sealed.is_empty() && self.chance.hits(rate);
        let place = usize::try_from(self.chance.below(sealed.len() as u64)).expect("small");
        if wrong {
            sealed[place] ^= 1 << self.chance.below(8);
        }
        found.answer.drain(..found.given);
        found.given = 0;
        found.answer.extend(sealed);
        let cut = usize::try_from(self.chance.below(found.answer.len() as u64 + 1)).expect("small");
        found.end = match found.end {
            Some((_, fault)) => Some((cut, fault)),
            // Whoever has closed, or sent what cannot be read, waits for the other to go.
            None if early || wrong => Some((found.answer.len(), Fault::End)),
            None => None,
        };
        if early {
            self.count("early close_notify");
        }
        if wrong {
            self.count("wrong bit");
        }
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
        let found = &self.sockets[socket];
        let stop = found.end.map_or(found.answer.len(), |(cut, _)| cut);
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
