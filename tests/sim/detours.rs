//! Servers that lead elsewhere: gateways redirect requests to nodes, which have the objects for a
//! while and get no keys; and keys that expire, and clocks that differ.

use std::net::SocketAddr;
use std::sync::Arc;

use inrush::error::{Error, ErrorKind};
use inrush::s3::Endpoint;
use inrush::s3::redirect::Redirects;
use inrush::s3::web::WebUrl;

use super::*;

/// Nodes that a gateway redirects to.
const NODES: u64 = 3;

/// Number of the first node's port; all have the name that the certificate is for.
const PORT: u64 = 8001;

fn is_node(address: SocketAddr) -> bool {
    address.ip().to_string().starts_with("127.0.1.")
}

/// Where a node of this name listens.
fn address_of(host: &str) -> SocketAddr {
    let (_, port) = host.split_once(':').expect("a port");
    let number: u64 = port.parse().expect("a number");
    format!("127.0.1.{}:80", number - PORT + 1).parse().expect("an address")
}

/// An endpoint whose redirects are followed.
pub(crate) fn gateway(number: u64, tls: bool) -> Arc<Endpoint> {
    let endpoint = Arc::into_inner(endpoint(number, tls)).expect("nobody else has it");
    Arc::new(Endpoint { redirects: Some(Redirects::default()), ..endpoint })
}

impl World {
    /// A request without its server's name, and whether that is a node. It came where it belongs.
    pub(super) fn received_by(&self, socket: usize, request: String) -> (String, bool) {
        let address = self.sockets[socket].address.expect("it is connected");
        match request.split_once(" @") {
            Some((own, host)) => {
                assert_eq!(address, address_of(host.trim_end()), "a request for a node");
                note("request to a node", 1);
                (format!("{own}\n"), true)
            }
            None => {
                assert!(!is_node(address), "a signed request at a node");
                (request, false)
            }
        }
    }

    /// The answer that leads to one of the nodes.
    pub(super) fn redirect(&mut self, key: &str) -> Vec<u8> {
        let scheme = if self.sides.is_some() { "https" } else { "http" };
        let port = PORT + self.chance.below(NODES);
        let to = format!("{scheme}://{}:{port}/{key}", secure::NAME);
        format!("HTTP/1.1 307 T\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    }

    /// The control plane looks up nodes. Some have no address.
    pub(super) fn look_up_nodes(&mut self) {
        if self.gateways.is_empty() || !self.chance.hits(200) {
            return;
        }
        let gateways = self.gateways.clone();
        for redirects in gateways.iter().filter_map(|gateway| gateway.redirects.as_ref()) {
            for url in redirects.take_wanted() {
                let is_nowhere = self.rates.fatal_per_mille > 0 && self.chance.hits(300);
                let error = || Error::new(ErrorKind::Endpoint, "the node has no address");
                note("node without an address", u64::from(is_nowhere));
                let found = if is_nowhere { Err(error()) } else { Ok(self.node(&url)) };
                redirects.settle(&url, found);
            }
        }
    }

    fn node(&self, url: &WebUrl) -> Arc<Endpoint> {
        let origin = url.origin().to_string();
        let host = origin.rsplit('/').next().expect("a host");
        let tls = self.sides.is_some();
        Arc::new(Endpoint::new("", tls, host, "/", "us-east-1", vec![address_of(host)]))
    }
}

/// True for the error of a range that a node has refused again after its gateway had led there
/// again: that is final.
pub(super) fn is_refused_twice(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("where a redirect leads") && !text.contains("after 1 try")
}

/// Files through two gateways whose nodes come and go.
fn detoured(seed: u64, rates: Rates) -> (Shared, Vec<Outcome>) {
    let (tls, mut chance) = (seed.is_multiple_of(4), Chance(seed));
    let scenario = Scenario { rates, stop: seed % 5 == 1, sink: Sink::File, tls, verify: true };
    let gateways = [gateway(0, tls), gateway(1, tls)];
    let part = u64::from(SLOT_BYTES_MIN) * (1 + chance.below(4));
    let sizes = sizes(&mut chance, part);
    let bench = set_up_at(&gateways, seed, scenario, &mut chance, part, &sizes);
    bench.world.borrow_mut().gateways = gateways.to_vec();
    checked(bench, seed, scenario)
}

#[test]
fn redirects_and_keys_that_expire_lose_nothing() {
    seeds("redirects_and_keys_that_expire_lose_nothing", 400, |seed| {
        let network_per_mille = if seed % 3 == 0 { 20 } else { 0 };
        let (redirect_per_mille, keys_per_mille) = (400, 40);
        let rates = Rates { network_per_mille, redirect_per_mille, keys_per_mille, ..CALM };
        let (world, outcomes) = detoured(seed, rates);
        for error in outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
            let is_stopped = error.kind() == ErrorKind::Interrupted;
            let is_refused = world.borrow().has_refused(error) || is_refused_twice(error);
            assert!(is_stopped || is_refused, "{error}");
        }
    });
}

#[test]
fn redirects_that_lead_nowhere_are_named() {
    seeds("redirects_that_lead_nowhere_are_named", 200, |seed| {
        let rates = Rates { fatal_per_mille: 20, redirect_per_mille: 400, ..CALM };
        let (_, outcomes) = detoured(seed, rates);
        for error in outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
            let named = ["no address", "AccessDenied", "changed since", "stopped"];
            let is_named = named.iter().any(|part| error.to_string().contains(part));
            assert!(is_named || is_refused_twice(error), "{error}");
        }
    });
}
