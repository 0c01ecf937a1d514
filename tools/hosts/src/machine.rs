//! The host: steps of virtual time, in which requests go out, bytes come in, and slots are filled
//! and written.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use inrush::download::spread::Spread;
use inrush::engine::config::{Config, HostFacts, ResourceOptions};
use inrush::engine::endpoints::EndpointSet;
use inrush::engine::pace::{Pacer, Totals};
use inrush::engine::placement::Ground;
use inrush::engine::schedule::{Recipient, Room, Scheduler, Supply};
use inrush::error::Result;
use inrush::files::file_download::{FileDownload, Outcome};
use inrush::s3::{Endpoint, Object};
use inrush::sys::Handle;
use inrush::sys::topology::{Interface, Node};

use crate::network::{Crew, Flight, Side, exact};
use crate::{Costs, Course, Findings, Host, Placement};

/// One step, in microseconds.
const STEP_US: u64 = 1_000;
/// One step, in seconds.
const STEP: f64 = 0.001;
/// The goodput is looked at so often, in microseconds, to say when it settled.
const LOOK_US: u64 = 100_000;

/// A host at work.
#[derive(Debug)]
pub struct Machine {
    host: Host,
    costs: Costs,
    course: Course,
    config: Config,
    scheduler: Scheduler,
    pacer: Pacer,
    endpoint: Arc<Endpoint>,
    crews: Vec<Crew>,
    now_us: u64,
    chance: u64,
    listed: u64,
    lock_us: f64,
    lock_free_us: f64,
    /// The disks that are used.
    disks: Vec<Disk>,
    spread: Option<Spread>,
    /// Bytes that came of each object, until it is complete, and the number of its disk.
    came: HashMap<String, (u64, u8)>,
    /// Bytes that went between the nodes.
    across: f64,
    objects: u64,
    waiting: f64,
    reading: f64,
    read_at_half: f64,
    across_at_half: f64,
}

/// A disk: until when it has to write, and the slots that it writes: until when, and whose.
#[derive(Debug, Default)]
struct Disk {
    free_us: f64,
    writes: VecDeque<(f64, usize)>,
}

/// Runs a host for the course's time.
///
/// # Errors
/// When a wish of the course is out of bounds.
pub fn simulate(host: Host, costs: Costs, course: Course) -> Result<Findings> {
    let mut machine = Machine::new(host, costs, course)?;
    let mut looks = Vec::new();
    let mut half = (0.0, 0.0, vec![0.0; machine.crews.len()]);
    let half_us = course.time_us / 2;
    while machine.now_us < course.time_us {
        machine.step();
        if machine.now_us.is_multiple_of(LOOK_US) {
            looks.push(machine.bytes());
        }
        if machine.now_us == half_us / STEP_US * STEP_US {
            let used = machine.crews.iter().map(|crew| crew.used_us).collect();
            half = (machine.bytes(), machine.lock_us, used);
            (machine.waiting, machine.reading) = (0.0, 0.0);
            machine.read_at_half = machine.bytes_read();
            machine.across_at_half = machine.across;
        }
    }
    Ok(machine.findings(&half, &looks))
}

impl Machine {
    fn new(host: Host, costs: Costs, course: Course) -> Result<Self> {
        let facts = HostFacts {
            processors: host.processors,
            memory_bytes: host.memory_bytes,
            descriptors: 1 << 20,
        };
        let wishes = ResourceOptions {
            max_connections: course.connections_max,
            part_size_bytes: course.part_bytes,
            ..ResourceOptions::default()
        };
        let config = Config::resolve(wishes, facts)?;
        let config = if course.tls { config.secured() } else { config };
        let config = config.fitted(course.object_bytes);
        let sides = sides(&host, course.placement, config.workers);
        let crew =
            |(number, side)| Crew { free_slots: config.share(number).1, side, ..Crew::default() };
        let disks = if course.spread { host.disks } else { 1 };
        let spread = (disks > 1).then(|| {
            Spread::new((0..disks).map(|number| (format!("/disk{number}"), None)).collect(), false)
        });
        let counters = (0..config.workers).map(|_| Handle::Simulated(0)).collect();
        Ok(Self {
            host,
            costs,
            course,
            config,
            scheduler: Scheduler::new(counters),
            pacer: Pacer::new(config.pace, config.workers),
            endpoint: Arc::new(Endpoint::new("b", course.tls, "h", "/", "r", vec![])),
            crews: sides.into_iter().enumerate().map(crew).collect(),
            now_us: 0,
            chance: course.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            listed: 0,
            lock_us: 0.0,
            lock_free_us: 0.0,
            disks: (0..disks).map(|_| Disk::default()).collect(),
            spread,
            came: HashMap::new(),
            across: 0.0,
            objects: 0,
            waiting: 0.0,
            reading: 0.0,
            read_at_half: 0.0,
            across_at_half: 0.0,
        })
    }

    /// Bytes that came over the interfaces.
    fn bytes(&self) -> f64 {
        self.crews.iter().map(|crew| crew.came).sum()
    }

    /// Those that were read, for the disks where there are some; others are in sockets' buffers.
    fn bytes_read(&self) -> f64 {
        self.crews.iter().map(|crew| crew.bytes).sum()
    }

    fn step(&mut self) {
        self.now_us += STEP_US;
        self.list();
        let now_us = exact(self.now_us);
        for disk in &mut self.disks {
            while let Some((_, worker)) =
                disk.writes.pop_front_if(|(done_us, _)| *done_us <= now_us)
            {
                self.crews[worker].free_slots += 1;
            }
        }
        for worker in 0..self.crews.len() {
            let crew = &mut self.crews[worker];
            crew.left_us = crew.left_us.min(0.0) + exact(STEP_US);
            self.ask(worker);
        }
        self.bring();
        for worker in 0..self.crews.len() {
            self.read(worker);
            self.note(worker);
        }
        let mut outcomes = Vec::new();
        self.scheduler.collect(&mut outcomes);
        self.objects += outcomes.len() as u64;
    }

    fn list(&mut self) {
        let size_bytes = self.course.object_bytes;
        let mut new = Vec::new();
        for _ in 0..self.scheduler.room() {
            let at = self.spread.as_mut().map(|all| all.hand_out(None, size_bytes, self.now_us));
            let Some(disk) = at.unwrap_or(Some(0)) else { break };
            self.listed += 1;
            let key = format!("{:012}", self.listed);
            self.came.insert(key.clone(), (0, disk));
            let object = Object { key: key.clone(), size_bytes, ..Object::default() };
            new.push(FileDownload::new(object, Arc::clone(&self.endpoint), key, self.config.cut()));
        }
        self.scheduler.push(new);
    }

    /// Below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % bound.max(1)
    }

    /// A worker waits for the lock and holds it.
    fn lock(&mut self, worker: usize) {
        let from_us = self.lock_free_us.max(exact(self.now_us));
        self.lock_free_us = from_us + self.costs.lock_us;
        self.lock_us += self.costs.lock_us;
        self.crews[worker].spend(self.lock_free_us - exact(self.now_us));
    }

    /// Requests go out while there may be more and there is time for them.
    fn ask(&mut self, worker: usize) {
        loop {
            let crew = &self.crews[worker];
            let room = self.pacer.share(worker).saturating_sub(crew.flights.len());
            if room == 0 || crew.left_us <= 0.0 {
                return;
            }
            if crew.ready.is_empty() {
                self.lock(worker);
                let room = Room { ranges: room, all: room };
                let ready = &mut self.crews[worker].ready;
                if self.scheduler.take(worker, room, EndpointSet::EMPTY, ready) != Supply::Given {
                    return;
                }
            }
            let begins_us =
                self.now_us + self.costs.latency_us + self.below(self.costs.latency_us / 4);
            let rate = self.costs.connection_rate * (0.75 + exact(self.below(1000)) / 2000.0);
            let crew = &mut self.crews[worker];
            let Some(next) = crew.ready.pop_front() else { return };
            let Recipient::File(download) = next.recipient else { unreachable!("no client asks") };
            crew.spend(self.costs.request_us);
            crew.asked += 1;
            crew.asked_bytes += next.range.length;
            crew.flights.push(Flight {
                rate,
                left: exact(next.range.length),
                download,
                range: next.range,
                begins_us,
                is_answered: false,
                unread: 0.0,
                slot: None,
                read: 0.0,
            });
        }
    }

    /// Bytes come over the interfaces: all connections of one share it evenly, and those whose
    /// bytes go to another node share the way there.
    fn bring(&mut self) {
        let now_us = self.now_us;
        let wish = |crew: &Crew| -> f64 {
            crew.flights.iter().map(|flight| flight.wish(STEP, now_us)).sum()
        };
        let mut wished = vec![0.0; self.host.interfaces];
        for crew in &self.crews {
            wished[crew.side.interface] += wish(crew);
        }
        let shares: Vec<f64> = wished
            .into_iter()
            .map(|wished: f64| (self.host.interface_rate * STEP / wished.max(1.0)).min(1.0))
            .collect();
        let remote = self.crews.iter().filter(|crew| !crew.side.is_near);
        let across: f64 = remote.map(|crew| wish(crew) * shares[crew.side.interface]).sum();
        let way = (self.costs.interconnect_rate * STEP / across.max(1.0)).min(1.0);
        self.across += across * way;
        for crew in &mut self.crews {
            let share = shares[crew.side.interface] * if crew.side.is_near { 1.0 } else { way };
            for flight in &mut crew.flights {
                let came = flight.wish(STEP, now_us) * share;
                flight.left -= came;
                crew.came += came;
                flight.unread += came;
                if came > 0.0 && !flight.is_answered {
                    flight.is_answered = true;
                    crew.answers += 1;
                    let asked_us = flight.begins_us.saturating_sub(self.costs.latency_us);
                    crew.first_byte_us += now_us.saturating_sub(asked_us);
                }
            }
        }
    }

    /// A worker reads what has come into slots, in turns, while it has time.
    fn read(&mut self, worker: usize) {
        let slot_bytes = f64::from(self.config.slot_length_bytes);
        let factor = if self.crews[worker].side.is_near { 1.0 } else { self.costs.remote_factor };
        let byte_us = self.costs.byte_ns / 1000.0 * factor;
        let mut index = 0;
        while index < self.crews[worker].flights.len() {
            let crew = &mut self.crews[worker];
            let flight = &mut crew.flights[index];
            if flight.unread > 0.0 {
                self.reading += 1.0;
            }
            let mut is_out_of_slots = false;
            while flight.unread > 0.0 && crew.left_us > 0.0 {
                if flight.wants_slot() {
                    is_out_of_slots = crew.free_slots == 0;
                    if is_out_of_slots {
                        break;
                    }
                    crew.free_slots -= 1;
                    flight.slot = Some(0.0);
                }
                let filled = flight.slot.unwrap_or(0.0);
                let affordable = (crew.left_us / byte_us).max(1.0);
                let count = flight.unread.min(slot_bytes - filled).min(affordable);
                flight.unread -= count;
                flight.read += count;
                crew.bytes += count;
                crew.left_us -= count * byte_us;
                crew.used_us += count * byte_us;
                let is_end = flight.read > flight.length() - 0.5;
                flight.slot = Some(filled + count).filter(|_| !is_end);
                if is_end || filled + count > slot_bytes - 0.5 {
                    flight.slot = None;
                    match self.host.disk_rate {
                        None => crew.free_slots += 1,
                        Some(rate) => {
                            let (_, place) = self.came[&flight.download.object.listed.key];
                            let disk = &mut self.disks[usize::from(place)];
                            let from_us = disk.free_us.max(exact(self.now_us));
                            disk.free_us = from_us + (filled + count) / rate * 1e6;
                            disk.writes.push_back((disk.free_us, worker));
                        }
                    }
                }
                if is_end {
                    break;
                }
            }
            self.waiting += f64::from(u8::from(is_out_of_slots));
            if flight.read > flight.length() - 0.5 {
                let flight = crew.flights.remove(index);
                self.end(worker, flight);
            } else {
                index += 1;
            }
        }
        // Whoever waits for a slot is first the next time.
        let crew = &mut self.crews[worker];
        if !crew.flights.is_empty() {
            crew.flights.rotate_left(1);
        }
    }

    /// A range is complete.
    fn end(&mut self, worker: usize, flight: Flight) {
        let asked_us = flight.begins_us.saturating_sub(self.costs.latency_us);
        self.crews[worker].ended += 1;
        self.crews[worker].ended_us += self.now_us.saturating_sub(asked_us);
        let Flight { download, range, .. } = flight;
        let key = &download.object.listed.key;
        let (came, disk) = self.came.get_mut(key).expect("it was listed");
        *came += range.length;
        let disk = *disk;
        if !download.settle() {
            return;
        }
        let came = self.came.remove(key);
        let size_bytes = self.course.object_bytes;
        assert_eq!(came, Some((size_bytes, disk)), "{key}: every byte once");
        if let Some(spread) = &mut self.spread {
            spread.end(disk, size_bytes, (Some(size_bytes), Some(0)), self.now_us);
        }
        self.lock(worker);
        self.scheduler.finish(Outcome { download, elapsed_us: 0, result: Ok(()) });
    }

    fn note(&mut self, worker: usize) {
        let crew = &self.crews[worker];
        let busy = crew.flights.len();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^53")]
        let counts = Totals {
            bytes: crew.bytes as u64,
            asked: crew.asked,
            asked_bytes: crew.asked_bytes,
            answers: crew.answers,
            refused: 0,
            first_byte_us: crew.first_byte_us,
            ended: crew.ended,
            ended_us: crew.ended_us,
            ended_bytes: crew.bytes as u64,
            busy: u32::try_from(busy).unwrap_or(u32::MAX),
            is_bound: busy >= self.pacer.share(worker),
            ..Totals::default()
        };
        self.pacer.note(worker, self.now_us, counts);
    }

    fn findings(&self, half: &(f64, f64, Vec<f64>), looks: &[f64]) -> Findings {
        let time_us = exact(self.course.time_us - self.course.time_us / 2);
        let goodput = (self.bytes() - half.0) / time_us * 1e6;
        let read = (self.bytes_read() - self.read_at_half) / time_us * 1e6;
        let across = (self.across - self.across_at_half) / time_us * 1e6;
        let used_interfaces = match self.course.placement {
            Placement::Route => 1,
            Placement::Anywhere | Placement::Near => self.host.interfaces,
        };
        let line_rate = self.host.interface_rate * f64::from(short(self.host.interfaces));
        let used = self.crews.iter().zip(&half.2).map(|(crew, before)| crew.used_us - before);
        let used: Vec<f64> = used.map(|used_us| used_us / time_us).collect();
        let paces = looks.windows(2).map(|pair| (pair[1] - pair[0]) / exact(LOOK_US) * 1e6);
        let settled = paces.into_iter().position(|pace| pace >= goodput * 0.9);
        let timeline = self.pacer.timeline();
        let last = timeline.moments().last();
        let mut findings = Findings {
            goodput,
            of_line_rate: goodput / line_rate,
            connections: last.map_or(0, |moment| moment.requests_in_flight),
            connections_max: self.config.pace.most,
            settled_us: settled.map_or(self.course.time_us, |at| (at as u64 + 2) * LOOK_US),
            processors: used.iter().sum::<f64>() / f64::from(short(used.len())),
            busiest: used.iter().copied().fold(0.0, f64::max),
            lock: (self.lock_us - half.1) / time_us,
            of_used_interfaces: goodput
                / self.host.interface_rate
                / f64::from(short(used_interfaces)),
            remote: across / goodput.max(1.0),
            interconnect: across / self.costs.interconnect_rate,
            of_used_disks: self
                .host
                .disk_rate
                .map_or(0.0, |rate| read / rate / f64::from(short(self.disks.len()))),
            disk: self
                .host
                .disk_rate
                .map_or(0.0, |rate| read / rate / f64::from(short(self.host.disks))),
            waited_for_slots: self.waiting / self.reading.max(1.0),
            objects: self.objects,
            memory_bytes: self.config.memory_bytes,
            limit: "",
        };
        findings.limit = findings.first_limit();
        findings
    }
}

impl Findings {
    fn first_limit(&self) -> &'static str {
        match self {
            _ if self.of_line_rate > 0.95 => "network interfaces",
            _ if self.of_used_interfaces > 0.95 => "one of the interfaces",
            _ if self.interconnect > 0.95 => "way between the nodes",
            _ if self.disk > 0.9 => "disks",
            _ if self.of_used_disks > 0.9 => "one of the disks",
            _ if self.lock > 0.9 => "lock of the hand-out",
            _ if self.processors > 0.95 => "processors",
            _ if self.connections * 10 >= self.connections_max * 9 => "bound of connections",
            _ if self.waited_for_slots > 0.2 => "slots",
            _ => "pace",
        }
    }
}

/// The interface of each worker, and whether it is on the worker's node, by the worker's number.
fn sides(host: &Host, placement: Placement, workers: usize) -> Vec<Side> {
    let nodes: Vec<Node> = (0..host.nodes)
        .map(|node| {
            let cores =
                (0..host.processors).filter(|core| core * host.nodes / host.processors == node);
            (short(node), cores.map(short).collect())
        })
        .collect();
    let node_of = |core: u32| nodes.iter().position(|(_, cores)| cores.contains(&core));
    let interfaces: Vec<Interface> = (0..host.interfaces)
        .map(|number| Interface {
            name: format!("eth{number}").into(),
            node: Some(short(number * host.nodes / host.interfaces)),
        })
        .collect();
    let cores: Vec<u32> = (0..short(host.processors)).collect();
    let ground = Ground {
        cores: &cores,
        nodes: if placement == Placement::Near { &nodes } else { &[] },
        interfaces: if placement == Placement::Route { &[] } else { &interfaces },
    };
    let side = |(number, place): (usize, inrush::engine::placement::WorkerPlace)| {
        let interface = place.interfaces.first().copied().unwrap_or(0);
        let core = place.cores.first().copied().unwrap_or(short(number % host.processors));
        let node = interfaces[interface].node.and_then(|node| usize::try_from(node).ok());
        Side { interface, is_near: node_of(core) == node }
    };
    ground.places(workers).into_iter().enumerate().map(side).collect()
}

/// A small count.
fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
