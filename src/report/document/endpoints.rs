//! Counts for each endpoint, address, network interface and destination: for `--json` and for
//! people.

use serde::Serialize;

use super::seconds;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::metrics::{AddressCount, WorkerMetrics};
use crate::sys::topology::Interface;
use crate::text::shown::shown;
use crate::text::size::{Decimal, Short, counted, rate};

/// What came from one address of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddressLine {
    /// The endpoint's address in requests.
    pub endpoint: String,
    /// The IP address and port.
    pub address: String,
    /// Connections attempted.
    pub connects: u64,
    /// Ranges received.
    pub ranges: u64,
    /// Bytes of these ranges.
    pub bytes: u64,
    /// How often the address did not answer, or was far slower than the others.
    pub failures: u64,
    /// Responses that asked for fewer requests (503, 429).
    pub slow_downs: u64,
    /// Mean time from a request to the head of its response; null without responses.
    pub first_byte_seconds: Option<f64>,
    /// Bytes per second of one connection while it received bodies; null without bodies.
    pub bytes_per_second: Option<f64>,
    /// Bytes per second of all connections together, from the first request to the last byte; null
    /// if nothing was received.
    pub goodput_bytes_per_second: Option<f64>,
}

/// What one of several destinations received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DestinationLine {
    /// The folder, as typed.
    pub path: String,
    /// Objects that this run completed there.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why it receives no more objects; `None` if it does.
    pub left_out: Option<String>,
    /// Objects planned for it that went to other destinations instead.
    pub moved_objects: u64,
}

/// What came over one of the named network interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceLine {
    /// Its name.
    pub interface: String,
    /// The NUMA node of its device; null if the kernel names none.
    pub numa_node: Option<u32>,
    /// The numbers of the workers that connected over it.
    pub workers: Vec<usize>,
    /// Bytes of these workers; null if one of them has other interfaces, too.
    pub bytes: Option<u64>,
}

/// What came from one endpoint: the sum of its addresses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndpointLine {
    /// The endpoint's address in requests.
    pub endpoint: String,
    /// Connections attempted.
    pub connects: u64,
    /// Ranges received.
    pub ranges: u64,
    /// Bytes of these ranges.
    pub bytes: u64,
    /// How often one of its addresses did not answer, or was far slower than the others.
    pub failures: u64,
    /// Responses that asked for fewer requests (503, 429).
    pub slow_downs: u64,
    /// Mean time from a request to the head of its response; null without responses.
    pub first_byte_seconds: Option<f64>,
    /// Bytes per second of all connections together, from the first request to the last byte; null
    /// if nothing was received.
    pub goodput_bytes_per_second: Option<f64>,
}

/// The name of an endpoint of the run.
pub(super) fn name_of(endpoint: EndpointNumber, names: &[String]) -> String {
    names.get(endpoint.index()).cloned().unwrap_or_default()
}

fn mean_first_byte(count: &AddressCount) -> Option<f64> {
    (count.ranges > 0).then(|| seconds(count.first_byte_us) / count.ranges as f64)
}

fn goodput(count: &AddressCount) -> Option<f64> {
    let (begun_us, ended_us) = count.busy_us?;
    (ended_us > begun_us).then(|| count.bytes as f64 / seconds(ended_us - begun_us))
}

impl InterfaceLine {
    /// Makes the line of each interface, given the numbers of its workers.
    pub(super) fn all(
        interfaces: &[(Interface, Vec<usize>)],
        counted: &[WorkerMetrics],
    ) -> Vec<Self> {
        let has_one = |worker: &usize| {
            interfaces.iter().filter(|(_, workers)| workers.contains(worker)).count() == 1
        };
        let line = |(interface, workers): &(Interface, Vec<usize>)| Self {
            interface: interface.name.to_string(),
            numa_node: interface.node,
            workers: workers.clone(),
            bytes: workers.iter().all(has_one).then(|| {
                workers.iter().filter_map(|worker| counted.get(*worker)).map(|all| all.bytes).sum()
            }),
        };
        interfaces.iter().map(line).collect()
    }
}

impl AddressLine {
    pub(super) fn all(counts: &[AddressCount], names: &[String]) -> Vec<Self> {
        counts.iter().map(|count| Self::new(count, names)).collect()
    }

    fn new(count: &AddressCount, names: &[String]) -> Self {
        let body = seconds(count.body_us);
        Self {
            endpoint: name_of(count.endpoint, names),
            address: count.address.to_string(),
            connects: count.connects,
            ranges: count.ranges,
            bytes: count.bytes,
            failures: count.failures,
            slow_downs: count.refused,
            first_byte_seconds: mean_first_byte(count),
            bytes_per_second: (count.body_us > 0).then(|| count.bytes as f64 / body),
            goodput_bytes_per_second: goodput(count),
        }
    }
}

impl EndpointLine {
    /// Makes the line of each endpoint that was used, in the order of their numbers.
    pub(super) fn all(counts: &[AddressCount], names: &[String]) -> Vec<Self> {
        let mut all: Vec<AddressCount> = Vec::new();
        for count in counts {
            match all.iter_mut().find(|known| known.endpoint == count.endpoint) {
                Some(known) => known.add(count),
                None => all.push(*count),
            }
        }
        all.sort_by_key(|count| count.endpoint);
        all.iter().map(|count| Self::new(count, names)).collect()
    }

    fn new(count: &AddressCount, names: &[String]) -> Self {
        Self {
            endpoint: name_of(count.endpoint, names),
            connects: count.connects,
            ranges: count.ranges,
            bytes: count.bytes,
            failures: count.failures,
            slow_downs: count.refused,
            first_byte_seconds: mean_first_byte(count),
            goodput_bytes_per_second: goodput(count),
        }
    }

    /// A line for each endpoint, for people; none for a single endpoint.
    pub(super) fn in_words(all: &[Self]) -> Vec<String> {
        if all.len() < 2 {
            return Vec::new();
        }
        all.iter().map(Self::line).collect()
    }

    fn line(&self) -> String {
        let mut line = format!("{}: {}", shown(&self.endpoint), Decimal(self.bytes));
        let elapsed = self.goodput_bytes_per_second.map(|goodput| self.bytes as f64 / goodput);
        if let Some(rate) = elapsed.and_then(|elapsed| rate(self.bytes, elapsed)) {
            line += &format!(" ({rate})");
        }
        line += &format!(", {}", counted(self.connects, "connection", "connections"));
        if let Some(first_byte) = self.first_byte_seconds {
            line += &format!(", first byte after {}", Short(first_byte));
        }
        if self.slow_downs > 0 {
            let slow_downs = counted(self.slow_downs, "answer", "answers");
            line += &format!(", {slow_downs} to slow down");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(endpoint: usize, last: u8) -> AddressCount {
        let address = ([10, 0, 0, last], 443).into();
        AddressCount {
            connects: 2,
            ranges: 4,
            bytes: 8_000_000,
            first_byte_us: 2_000_000,
            body_us: 4_000_000,
            busy_us: Some((1_000_000, 3_000_000 + u64::from(last) * 1_000_000)),
            ..AddressCount::new(EndpointNumber::at(endpoint), address)
        }
    }

    #[test]
    fn interfaces_have_what_came_for_their_workers() {
        let counted = [3, 5, 7].map(|bytes| WorkerMetrics { bytes, ..WorkerMetrics::default() });
        let of = |name: &str, workers: &[usize]| {
            (Interface { name: name.into(), node: Some(1) }, workers.to_vec())
        };
        let lines = InterfaceLine::all(&[of("eth0", &[0, 2]), of("eth1", &[1])], &counted);
        assert_eq!((lines[0].bytes, lines[1].bytes), (Some(10), Some(5)));
        assert_eq!((lines[1].interface.as_str(), lines[1].numa_node), ("eth1", Some(1)));
        let lines = InterfaceLine::all(&[of("eth0", &[0]), of("eth1", &[0])], &counted[..1]);
        assert_eq!(lines[0].bytes, None, "of both together");
        assert!(InterfaceLine::all(&[], &counted).is_empty());
    }

    #[test]
    fn addresses_are_of_their_endpoint_and_endpoints_of_all_their_addresses() {
        let names = ["https://a", "https://b"].map(String::from);
        let counts = [count(1, 1), count(0, 2), AddressCount { refused: 7, ..count(1, 3) }];
        let addresses = AddressLine::all(&counts, &names);
        assert_eq!(
            addresses.iter().map(|line| &line.endpoint).collect::<Vec<_>>(),
            ["https://b", "https://a", "https://b"]
        );
        assert_eq!(addresses[1].goodput_bytes_per_second, Some(2e6));
        assert_eq!(addresses[1].bytes_per_second, Some(2e6));
        let endpoints = EndpointLine::all(&counts, &names);
        assert_eq!(
            EndpointLine::in_words(&endpoints),
            [
                "https://a: 8 MB (2 MB/s), 2 connections, first byte after 0.50 s",
                "https://b: 16 MB (3.20 MB/s), 4 connections, first byte after 0.50 s, 7 answers \
                 to slow down"
            ]
        );
        assert!(EndpointLine::in_words(&endpoints[..1]).is_empty(), "one says nothing new");
        let nothing = AddressCount::new(EndpointNumber::FIRST, ([10, 0, 0, 1], 80).into());
        let nothing = &EndpointLine::all(&[nothing], &names)[0];
        assert_eq!((nothing.first_byte_seconds, nothing.goodput_bytes_per_second), (None, None));
    }
}
