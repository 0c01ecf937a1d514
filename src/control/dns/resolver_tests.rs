//! The resolver against a name server of its own, on the loopback interface.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hickory_resolver::system_conf::parse_resolv_conf;

use super::*;
use crate::control::loopback::run;

/// The name server's answers for its only name.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Zone {
    pub(in super::super) v4: Vec<Ipv4Addr>,
    pub(in super::super) v6: Vec<Ipv6Addr>,
    /// The response code (RFC 1035 section 4.1.1): 2 for a failure of the server, 3 for no such
    /// name. Every other name than [`NAME`] has 3.
    pub(in super::super) code: u8,
    /// Queries for IPv6 are not answered.
    pub(in super::super) hides_v6: bool,
}

pub(in super::super) const NAME: &str = "store.lab.test";

/// Names that begin with this get no answer.
pub(in super::super) const SILENT: &str = "silent";

/// A name server (RFC 1035) for one name, whose answers live for a second.
#[derive(Debug)]
pub(in super::super) struct NameServer {
    port: u16,
    zone: Arc<Mutex<Zone>>,
    /// The queries so far: names and types.
    asked: Arc<Mutex<Vec<(String, u16)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    pub(in super::super) fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let port = socket.local_addr().expect("an address").port();
        let (zone, asked) = (Arc::new(Mutex::new(zone)), Arc::<Mutex<Vec<_>>>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (its_zone, its_asked, its_stop) = (zone.clone(), asked.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut question = [0; 512];
            while !its_stop.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                let (name, kind, end) = parse(&question[..length]);
                let zone = its_zone.lock().expect("no panic").clone();
                its_asked.lock().expect("no panic").push((name.clone(), kind));
                let is_silent = name.starts_with(SILENT) || kind == AAAA && zone.hides_v6;
                if !is_silent {
                    let answer = answer(&question[..end], &name, kind, &zone);
                    socket.send_to(&answer, from).expect("it is there");
                }
            }
        });
        Self { port, zone, asked, stop, thread: Some(thread) }
    }

    pub(in super::super) fn set(&self, zone: Zone) {
        *self.zone.lock().expect("no panic") = zone;
    }

    pub(in super::super) fn asked(&self) -> Vec<(String, u16)> {
        self.asked.lock().expect("no panic").clone()
    }

    /// A resolver that uses only this server, with more lines of resolv.conf(5).
    pub(in super::super) fn resolver(&self, lines: &str) -> Resolver {
        let text = format!("nameserver 127.0.0.1\n{lines}");
        let (config, options) = parse_resolv_conf(text).expect("good lines");
        let (domain, search) = (config.domain().cloned(), config.search().to_vec());
        let mut servers = config.name_servers().to_vec();
        for connection in servers.iter_mut().flat_map(|server| &mut server.connections) {
            connection.port = self.port;
        }
        let config = ResolverConfig::from_parts(domain, search, servers);
        Resolver::Servers(Box::new(config), Box::new(options))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it runs").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the name server panicked");
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;
/// Bytes of a message's header.
const HEAD: usize = 12;

/// The name and the type of a query, and its end.
fn parse(message: &[u8]) -> (String, u16, usize) {
    let (mut at, mut labels) = (HEAD, Vec::new());
    while message[at] > 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..=at + length]).to_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes([message[at + 1], message[at + 2]]);
    (labels.join("."), kind, at + 5)
}

fn answer(question: &[u8], name: &str, kind: u16, zone: &Zone) -> Vec<u8> {
    let code = if name == NAME { zone.code } else { 3 };
    let data: Vec<Vec<u8>> = match kind {
        _ if code != 0 => vec![],
        A => zone.v4.iter().map(|address| address.octets().to_vec()).collect(),
        AAAA => zone.v6.iter().map(|address| address.octets().to_vec()).collect(),
        _ => vec![],
    };
    let mut message = question.to_vec();
    // The header of an answer to one query, with recursion available.
    message[2..HEAD].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
    message[7] = u8::try_from(data.len()).expect("few");
    for bytes in data {
        // A pointer to the query's name, its type, class IN, TTL 1 s, the length.
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 1, 0]);
        message.push(u8::try_from(bytes.len()).expect("short"));
        message.extend(bytes);
    }
    message
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn zone() -> Zone {
    let v4 = (1..=8).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect();
    let v6 = vec!["2001:db8::1".parse().expect("IPv6"), "2001:db8::2".parse().expect("IPv6")];
    Zone { v4, v6, ..Zone::default() }
}

#[test]
fn all_addresses_of_both_families_come_with_their_time_to_live() {
    let server = NameServer::start(zone());
    run(async {
        let found = server.resolver("").look_up(NAME).await.expect("an answer");
        let mut addresses = found.addresses;
        addresses.sort_unstable();
        let mut expected: Vec<_> = (1..=8).map(v4).collect();
        expected.extend(zone().v6.into_iter().map(IpAddr::from));
        assert_eq!(addresses, expected);
        assert_eq!(found.ttl, Some(Duration::from_secs(1)));
    });
}

#[test]
fn each_lookup_asks_again() {
    let server = NameServer::start(zone());
    run(async {
        let resolver = server.resolver("");
        resolver.look_up(NAME).await.expect("an answer");
        server.set(Zone { v4: vec![Ipv4Addr::new(192, 0, 2, 77)], ..Zone::default() });
        let found = resolver.look_up(NAME).await.expect("another answer");
        assert_eq!(found.addresses, [v4(77)]);
    });
}

#[test]
fn search_domains_and_dots_are_heeded() {
    let server = NameServer::start(zone());
    run(async {
        let resolver = server.resolver("search none.test lab.test\noptions ndots:2");
        let found = resolver.look_up("store").await.expect("an answer");
        assert_eq!(found.addresses.len(), 10);
    });
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|(name, _)| name == NAME).count(), 2, "{asked:?}");
    assert!(asked.iter().any(|(name, _)| name == "store.none.test"), "{asked:?}");
}

#[test]
fn a_server_that_is_silent_about_ipv6_does_not_hold_ipv4_up() {
    let server = NameServer::start(Zone { hides_v6: true, ..zone() });
    run(async {
        let found = server.resolver("").look_up(NAME).await.expect("an answer");
        assert_eq!(found.addresses.len(), 8);
    });
}

#[test]
fn what_is_wrong_is_said_with_the_servers_that_were_asked() {
    let server = NameServer::start(Zone { code: 3, ..Zone::default() });
    run(async {
        let resolver = server.resolver("");
        let look_up = async || resolver.look_up(NAME).await.expect_err("nothing there");
        let unknown = look_up().await;
        assert!(unknown.is_unknown, "{unknown:?}");
        assert_eq!(unknown.why, "name servers 127.0.0.1: no such name");
        server.set(Zone::default());
        let empty = look_up().await;
        assert!(empty.is_unknown, "{empty:?}");
        assert_eq!(empty.why, "name servers 127.0.0.1: it has no address");
        server.set(Zone { code: 2, ..Zone::default() });
        let failed = look_up().await;
        assert!(!failed.is_unknown && failed.why.starts_with("name servers 127.0.0.1: "));
        assert!(!failed.why.contains("no such name"), "{failed:?}");
    });
}

#[test]
fn literal_addresses_and_localhost_need_no_name_server() {
    run(async {
        let found = async |name: &str| Resolver::System.look_up(name).await.expect("addresses");
        assert_eq!(found("192.0.2.7").await.addresses, [v4(7)]);
        assert_eq!(found("::1").await.addresses, [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        for name in ["localhost", "LOCALHOST", "bucket.localhost"] {
            let local = found(name).await.addresses;
            assert!(!local.is_empty() && local.iter().all(IpAddr::is_loopback), "{name}");
        }
        assert!(!is_local("localhost.example.com") && !is_local("notlocalhost"));
    });
}

#[test]
fn hosts_come_before_name_servers() {
    let mut hosts = Hosts::default();
    let text = "192.0.2.7 Store store.lab.test\n2001:db8::7 store.lab.test # both\n";
    hosts.read_hosts_conf(text.as_bytes()).expect("good lines");
    let both = [v4(7), "2001:db8::7".parse().expect("IPv6")];
    assert_eq!(in_hosts(&hosts, NAME), both);
    assert_eq!(in_hosts(&hosts, "STORE.lab.test"), both);
    assert_eq!(in_hosts(&hosts, "other.lab.test"), [] as [IpAddr; 0]);
}

#[test]
fn only_addresses_with_a_route_are_used_where_there_are_some() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    // connect(2) refuses the broadcast address without SO_BROADCAST.
    let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 80));
    assert!(has_route(local, None) && !has_route(nowhere, None));
    assert_eq!(reachable(vec![nowhere, local], &[]), [local]);
    assert_eq!(reachable(vec![nowhere], &[]), [nowhere]);
    let lo = ["lo".into()];
    assert!(has_route(local, Some("lo")) && !has_route(local, Some("gone0")));
    assert_eq!(reachable(vec![nowhere, local], &lo), [local]);
    let ip = |text: &str| text.parse().expect("an address");
    assert!(leads_to(ip("2001:db8::1"), ip("2a00::1")) && leads_to(ip("::1"), ip("::1")));
    assert!(leads_to(ip("fd00::1"), ip("fd00::2")) && !leads_to(ip("fd00::1"), ip("2a00::1")));
    assert!(leads_to(ip("10.0.0.1"), ip("192.0.2.1")));
}
