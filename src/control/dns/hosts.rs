//! The addresses of all hosts of a run, refreshed in the background.
//!
//! A name is looked up before its bucket is used, and then again in the background whenever its TTL
//! has passed. A failed lookup discards nothing.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;

use super::cache::DnsCache;
use super::resolver::{Resolved, Resolver, reachable};
use crate::control::limits::{NAMES_ASKED_MAX, RESOLVE_TRIES_MAX};
use crate::control::retry_budget::{RetryBudget, pause};
use crate::error::{Error, ErrorKind, Result};
use crate::link::attempt::{Attempts, Cause, NextTry};
use crate::s3::Endpoint;
use crate::sys::topology::Interface;

/// All names that were looked up, once each however many buckets share them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    resolver: Resolver,
    known: RefCell<HashMap<String, DnsCache>>,
    /// Network interfaces over which the addresses must be reachable.
    interfaces: Vec<Arc<str>>,
}

impl Names {
    /// Uses these network interfaces; if empty, the routing table.
    pub(crate) fn over(interfaces: &[Interface]) -> Self {
        let names = interfaces.iter().map(|interface| Arc::clone(&interface.name));
        Self { interfaces: names.collect(), ..Self::default() }
    }

    /// Sets the endpoint's addresses, or its proxy's instead. While name servers do not answer, the
    /// lookup is retried as `retry_budget` allows.
    pub(crate) async fn resolve(
        &self,
        endpoint: &Endpoint,
        retry_budget: &RetryBudget,
    ) -> Result<()> {
        let (name, _) = endpoint.next_hop();
        let is_fresh = |cache: &DnsCache| cache.next_us() > retry_budget.now_us();
        if !self.known.borrow().get(name).is_some_and(is_fresh) {
            let found = self.look_up(name, retry_budget).await.map_err(|error| {
                error.advise(endpoint.advice(match endpoint.is_multi_region() {
                    true => {
                        "check the access point's alias, the network and the name servers of \
                         /etc/resolv.conf"
                    }
                    false => {
                        "check --endpoint-url, --region, the network and the name servers of \
                         /etc/resolv.conf"
                    }
                }))
            })?;
            self.take_in(name, &found, retry_budget.now_us());
        }
        self.give(endpoint);
        Ok(())
    }

    /// Looks up again the names of these endpoints that are due, several at once; `now_us` is of
    /// the clock of [`Names::resolve`]. Failures are retried later.
    pub(crate) async fn refresh(&self, endpoints: &[Arc<Endpoint>], now_us: u64) {
        let names: BTreeSet<_> = endpoints.iter().map(|endpoint| endpoint.next_hop().0).collect();
        let due = names.into_iter().filter(|name| self.is_due(name, now_us));
        let look_ups = due.map(async |name| match self.resolver.look_up(name).await {
            Ok(found) => {
                self.take_in(name, &found, now_us);
                let of_name = endpoints.iter().filter(|endpoint| endpoint.next_hop().0 == name);
                of_name.for_each(|endpoint| self.give(endpoint));
            }
            Err(_) => {
                self.known.borrow_mut().entry(name.to_owned()).or_default().failed(now_us);
            }
        });
        stream::iter(look_ups).buffer_unordered(NAMES_ASKED_MAX).collect::<()>().await;
    }

    /// When the first name of these endpoints is due for a lookup, in microseconds of that clock;
    /// `None` without endpoints.
    pub(crate) fn next_us(&self, endpoints: &[Arc<Endpoint>]) -> Option<u64> {
        let known = self.known.borrow();
        let next_us = |endpoint: &Arc<Endpoint>| {
            known.get(endpoint.next_hop().0).map_or(0, DnsCache::next_us)
        };
        endpoints.iter().map(next_us).min()
    }

    /// Forgets the name of an endpoint. If another one has it, too, it is looked up again.
    pub(crate) fn forget(&self, endpoint: &Endpoint) {
        self.known.borrow_mut().remove(endpoint.next_hop().0);
    }

    fn is_due(&self, name: &str, now_us: u64) -> bool {
        self.known.borrow().get(name).is_none_or(|answers| answers.next_us() <= now_us)
    }

    fn take_in(&self, name: &str, found: &Resolved, now_us: u64) {
        let mut known = self.known.borrow_mut();
        known.entry(name.to_owned()).or_default().merge(&found.addresses, found.ttl, now_us);
    }

    /// Sets the known addresses, as far as this machine can reach them.
    fn give(&self, endpoint: &Endpoint) {
        let (name, port) = endpoint.next_hop();
        let known = self.known.borrow();
        let Some(answers) = known.get(name) else { return };
        let all = answers.addresses().map(|address| SocketAddr::new(address, port)).collect();
        let all = reachable(all, &self.interfaces);
        *endpoint.addresses.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    async fn look_up(&self, name: &str, retry_budget: &RetryBudget) -> Result<Resolved> {
        let policy = retry_budget.policy(RESOLVE_TRIES_MAX);
        let mut attempts = Attempts::default();
        let ticket = retry_budget.begin("name servers", format!("to resolve {name}"));
        loop {
            let failed = match self.resolver.look_up(name).await {
                Ok(found) => return Ok(found),
                Err(failed) => failed,
            };
            let now_us = retry_budget.now_us();
            let next = match failed.is_unknown {
                true => NextTry::GiveUp,
                false => attempts.failed(now_us, Cause::Unreachable, policy),
            };
            let NextTry::Again { ceiling_us } = next else {
                let (why, tried) = (failed.why, attempts.tried(now_us).times());
                let message = format!("the name {name} cannot be resolved: {why}, {tried}");
                return Err(Error::new(ErrorKind::Endpoint, message).attempted(attempts.tries()));
            };
            ticket.try_again(attempts.tries(), &failed.why);
            sleep(pause(ceiling_us)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::control::dns::resolver::tests::{NAME, NameServer, SILENT, Zone};
    use crate::control::limits::{ADDRESS_UNSEEN_MAX, LOOKUP_PAUSE_MIN};
    use crate::control::loopback::run;
    use crate::s3::sign::ALL_REGIONS;

    fn zone(last: impl IntoIterator<Item = u8>) -> Zone {
        let v4 = last.into_iter().map(|last| Ipv4Addr::new(127, 0, 0, last)).collect();
        Zone { v4, ..Zone::default() }
    }

    fn endpoint(host: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint::new("bkt", false, host, "/", "us-east-1", vec![]))
    }

    fn names(server: &NameServer) -> Names {
        Names { resolver: server.resolver(""), ..Names::default() }
    }

    /// The last octets of an endpoint's addresses, sorted.
    fn known(endpoint: &Endpoint, port: u16) -> Vec<u8> {
        let numbers = endpoint.addresses().into_iter().map(|address| match address {
            SocketAddr::V4(address) if address.port() == port => address.ip().octets()[3],
            other => panic!("{other}"),
        });
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn answers_that_change_are_gathered_when_they_have_ended() {
        let server = NameServer::start(zone(1..=3));
        let (names, retry_budget) = (names(&server), RetryBudget::default());
        let [one, other] = [":9000", ":9001"].map(|port| endpoint(&format!("{NAME}{port}")));
        let both = [one.clone(), other.clone()];
        run(async {
            names.resolve(&one, &retry_budget).await.expect("addresses");
            assert_eq!(known(&one, 9000), [1, 2, 3]);
            names.resolve(&other, &retry_budget).await.expect("the same addresses");
            assert_eq!(known(&other, 9001), [1, 2, 3]);
            assert_eq!(server.asked().len(), 2, "A and AAAA, once for both");

            server.set(zone(3..=5));
            names.refresh(&both, 0).await;
            assert_eq!(server.asked().len(), 2, "the answer has not ended");
            let mut now_us = due_us(&names);
            names.refresh(&both, now_us).await;
            assert_eq!(server.asked().len(), 4, "once for both");
            assert_eq!(
                (known(&one, 9000), known(&other, 9001)),
                (vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5])
            );

            // A failing name server discards nothing, and is asked less often.
            server.set(Zone { code: 2, ..Zone::default() });
            let mut pauses_us = vec![];
            for _ in 0..3 {
                now_us = due_us(&names);
                names.refresh(&both, now_us).await;
                pauses_us.push(due_us(&names) - now_us);
            }
            let least_us = u64::try_from(LOOKUP_PAUSE_MIN.as_micros()).expect("short");
            assert_eq!(pauses_us, [least_us, 2 * least_us, 4 * least_us]);
            assert_eq!(known(&one, 9000), [1, 2, 3, 4, 5]);

            server.set(zone(6..=6));
            now_us += u64::try_from(ADDRESS_UNSEEN_MAX.as_micros()).expect("short");
            names.refresh(&both, now_us).await;
            assert_eq!(known(&one, 9000), [6], "nobody names the others any more");
        });
    }

    #[test]
    fn a_name_without_an_answer_holds_up_no_other() {
        let server = NameServer::start(zone(1..=1));
        let (names, retry_budget) = (names(&server), RetryBudget::default());
        let [silent, other] = [&format!("{SILENT}.{NAME}"), NAME].map(endpoint);
        run(async {
            names.resolve(&other, &retry_budget).await.expect("an address");
            server.set(zone(2..=2));
            let (both, now_us) = ([silent, other.clone()], due_us(&names));
            let is_known = async {
                while known(&other, 80) != [1, 2] {
                    sleep(std::time::Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                biased;
                () = names.refresh(&both, now_us) => panic!("both came at once"),
                () = is_known => {}
            }
        });
    }

    fn due_us(names: &Names) -> u64 {
        names.known.borrow()[NAME].next_us()
    }

    #[test]
    fn a_name_that_is_unknown_is_reported_with_all_that_was_tried() {
        let server = NameServer::start(Zone { code: 3, ..Zone::default() });
        let (names, retry_budget) = (names(&server), RetryBudget::default());
        run(async {
            let error =
                names.resolve(&endpoint(NAME), &retry_budget).await.expect_err("no such name");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            let line = error.to_string();
            let reason = "name store.lab.test cannot be resolved: name servers 127.0.0.1: no such";
            assert!(line.contains(reason), "{line}");
            assert!(line.contains("check --endpoint-url"), "{line}");
            // Only its alias is the user's, and it is in no region.
            let point = Endpoint::new("arn:", true, NAME, "/", ALL_REGIONS, vec![]);
            let error = names.resolve(&point, &retry_budget).await.expect_err("no such name");
            let advice = error.advice().expect("advice");
            assert!(advice.contains("alias") && !advice.contains("--"), "{advice}");
        });
        assert_eq!(server.asked().len(), 4, "asking again changes nothing");
    }

    #[test]
    fn literal_addresses_are_taken_as_they_are() {
        let (names, retry_budget) = (Names::default(), RetryBudget::default());
        run(async {
            let endpoint = endpoint("127.0.0.1:9000");
            names.resolve(&endpoint, &retry_budget).await.expect("an address");
            names.refresh(std::slice::from_ref(&endpoint), u64::MAX).await;
            assert_eq!(known(&endpoint, 9000), [1]);
        });
    }
}
