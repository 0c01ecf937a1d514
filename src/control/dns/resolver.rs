//! Resolves a host name to all its addresses and their time to live.
//!
//! In the usual order (nsswitch.conf(5)): hosts(5), then the name servers of resolv.conf(5), with
//! its search domains and options; A and AAAA at once, with `hickory-resolver`, because
//! getaddrinfo(3) returns no time to live. getaddrinfo(3) comes last: it also knows the names from
//! other sources (mDNS, NSS modules, a resolver without that file).
//!
//! Both files are read again for each lookup: a network that comes up later writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, Resolver as Dns, TokioResolver};
use tokio::net::lookup_host;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};

use crate::control::limits::{NAME_SERVER_TIMEOUT_MAX, OTHER_FAMILY_WAIT, RESOLVE_TIMEOUT};
use crate::sys::descriptor;

/// Where names are looked up.
#[derive(Debug, Default)]
pub(in crate::control) enum Resolver {
    /// By this machine's configuration.
    #[default]
    System,
    /// Only at these name servers.
    #[cfg(test)]
    Servers(Box<ResolverConfig>, Box<ResolverOpts>),
}

/// The addresses of a name; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::control) struct Resolved {
    pub(in crate::control) addresses: Vec<IpAddr>,
    /// Time to live, if known.
    pub(super) ttl: Option<Duration>,
}

/// Why there is no address, for all sources tried.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::control) struct NotFound {
    pub(in crate::control) why: String,
    /// The name does not exist or has no address: a retry changes nothing.
    pub(super) is_unknown: bool,
}

/// The files that configure name resolution.
type Files = (Hosts, Result<(ResolverConfig, ResolverOpts), NetError>);

impl Resolver {
    /// All addresses of the name, reachable or not.
    pub(in crate::control) async fn look_up(&self, name: &str) -> Result<Resolved, NotFound> {
        if let Ok(address) = name.parse() {
            return Ok(Resolved { addresses: vec![address], ttl: Some(Duration::MAX) });
        }
        match self {
            Self::System => look_up_by_system(name).await,
            #[cfg(test)]
            Self::Servers(config, options) => {
                let asked = ask_servers(name, (**config).clone(), (**options).clone()).await;
                asked.map_err(|(why, is_unknown)| NotFound { why, is_unknown })
            }
        }
    }
}

async fn look_up_by_system(name: &str) -> Result<Resolved, NotFound> {
    if is_local(name) {
        // RFC 6761 section 6.3: not resolved by DNS.
        let addresses = ask_system("localhost").await.unwrap_or_else(|_| {
            vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)]
        });
        return Ok(Resolved { addresses, ttl: None });
    }
    let files: Result<Files, _> =
        spawn_blocking(|| (Hosts::from_system().unwrap_or_default(), read_system_conf())).await;
    let of_servers = match files {
        Ok((hosts, servers)) => {
            let addresses = in_hosts(&hosts, name);
            if !addresses.is_empty() {
                return Ok(Resolved { addresses, ttl: None });
            }
            match servers {
                Ok((config, options)) => match ask_servers(name, config, options).await {
                    Ok(found) => return Ok(found),
                    Err((why, _)) => why,
                },
                Err(error) => format!("/etc/resolv.conf: {error}"),
            }
        }
        Err(error) => format!("/etc/resolv.conf: {error}"),
    };
    let why = match ask_system(name).await {
        Ok(addresses) => return Ok(Resolved { addresses, ttl: None }),
        Err(why) => why,
    };
    let is_unknown = is_unknown_name(&why);
    Err(NotFound { why: format!("{of_servers}; getaddrinfo: {why}"), is_unknown })
}

/// True for `localhost` and names below it, which are this machine (RFC 6761 section 6.3).
pub(in crate::control) fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The addresses in hosts(5); for a host found there, name servers are not asked.
fn in_hosts(hosts: &Hosts, name: &str) -> Vec<IpAddr> {
    let Ok(name) = Name::from_str_relaxed(name.to_ascii_lowercase()) else { return vec![] };
    let kinds = [RecordType::A, RecordType::AAAA];
    let found = kinds.map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)));
    found.iter().flatten().flat_map(addresses_of).collect()
}

fn addresses_of(lookup: &Lookup) -> impl Iterator<Item = IpAddr> {
    lookup.answers().iter().filter_map(|record| record.data.ip_addr())
}

/// Asks for both families at once. A name server that answers for only one of them causes no delay.
/// The error is the reason, and true if the name does not exist.
async fn ask_servers(
    name: &str,
    config: ResolverConfig,
    mut options: ResolverOpts,
) -> Result<Resolved, (String, bool)> {
    let mut servers: Vec<_> =
        config.name_servers().iter().map(|server| server.ip.to_string()).collect();
    servers.dedup();
    let at_servers = |why: &str| format!("name servers {}: {why}", servers.join(", "));
    options.use_hosts_file = ResolveHosts::Never;
    // The callers cache answers until their expiry.
    options.cache_size = 0;
    options.timeout = options.timeout.min(NAME_SERVER_TIMEOUT_MAX);
    let mut builder = Dns::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    let dns: TokioResolver =
        builder.build().map_err(|error| (at_servers(&error.to_string()), false))?;
    let mut asked = JoinSet::new();
    for kind in [RecordType::A, RecordType::AAAA] {
        let (dns, name) = (dns.clone(), name.to_owned());
        asked.spawn(async move { dns.lookup(name, kind).await });
    }
    let mut deadline = Instant::now() + RESOLVE_TIMEOUT;
    let (mut addresses, mut seconds) = (Vec::new(), u32::MAX);
    let (mut why, mut is_unknown) = (String::new(), true);
    loop {
        match timeout_at(deadline, asked.join_next()).await {
            Ok(None) => break,
            Ok(Some(Ok(Ok(lookup)))) => {
                addresses.extend(addresses_of(&lookup));
                // Aliases (CNAME) have a time to live, too.
                seconds = lookup.answers().iter().map(|record| record.ttl).fold(seconds, u32::min);
                deadline = deadline.min(Instant::now() + OTHER_FAMILY_WAIT);
            }
            Ok(Some(Ok(Err(error)))) if error.is_nx_domain() => why = "no such name".to_owned(),
            Ok(Some(Ok(Err(error)))) if error.is_no_records_found() => {
                if why.is_empty() {
                    why = "it has no address".to_owned();
                }
            }
            Ok(Some(Ok(Err(error)))) => (why, is_unknown) = (error.to_string(), false),
            Ok(Some(Err(error))) => (why, is_unknown) = (error.to_string(), false),
            Err(_) => {
                why = format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs());
                is_unknown = false;
                break;
            }
        }
    }
    match addresses.is_empty() {
        true => Err((at_servers(&why), is_unknown)),
        false => Ok(Resolved { addresses, ttl: Some(Duration::from_secs(seconds.into())) }),
    }
}

/// Asks getaddrinfo(3).
async fn ask_system(name: &str) -> Result<Vec<IpAddr>, String> {
    match timeout(RESOLVE_TIMEOUT, lookup_host((name, 0))).await {
        Ok(Ok(found)) => {
            let mut addresses: Vec<_> = found.map(|address| address.ip()).collect();
            addresses.dedup();
            match addresses.is_empty() {
                true => Err("it has no address".to_owned()),
                false => Ok(addresses),
            }
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs())),
    }
}

/// True if name servers have answered that there is no such name or no address of it. The standard
/// library returns getaddrinfo(3)'s reason only as a text: these are EAI_NONAME and EAI_NODATA in
/// glibc and in musl.
fn is_unknown_name(why: &str) -> bool {
    let texts = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
        "it has no address",
    ];
    texts.iter().any(|text| why.contains(text))
}

/// The addresses to which this machine has a route, over each of these network interfaces if any;
/// all, if it has a route to none: then connecting returns the error.
pub(in crate::control) fn reachable(
    addresses: Vec<SocketAddr>,
    interfaces: &[Arc<str>],
) -> Vec<SocketAddr> {
    let has = |at: SocketAddr| match interfaces {
        [] => has_route(at, None),
        each => each.iter().all(|name| has_route(at, Some(name))),
    };
    let reachable: Vec<_> = addresses.iter().copied().filter(|at| has(*at)).collect();
    if reachable.is_empty() { addresses } else { reachable }
}

/// Asks the kernel: connect(2) of a UDP socket finds a route, and sends nothing (udp(7)).
fn has_route(address: SocketAddr, interface: Option<&str>) -> bool {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        if let Some(name) = interface {
            descriptor::bind_to_interface(socket.as_fd(), name)
                .map_err(|errno| std::io::Error::from_raw_os_error(errno.number()))?;
        }
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| leads_to(source.ip(), address.ip()))
}

/// False if a machine whose IPv6 is only local would connect to the internet: RFC 6724 orders such
/// an address after those of IPv4 (section 5, rules 2 and 5).
fn leads_to(source: IpAddr, destination: IpAddr) -> bool {
    // RFC 4291 section 2.4 and its successors: global addresses are allocated from 2000::/3.
    let is_global = |address: Ipv6Addr| address.segments()[0] & 0xe000 == 0x2000;
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            is_global(source) || !is_global(destination)
        }
        _ => true,
    }
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
pub(in crate::control) mod tests;
