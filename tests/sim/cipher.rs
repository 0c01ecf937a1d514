//! TLS under the simulated sockets: what becomes of its records on their way: cut at any byte, one
//! bit wrong, ended early in good order, or by an alert.

use inrush::error::{Error, ErrorKind};

use super::origin::Fault;
use super::plumbing::small;
use super::seeds;
use super::world::World;

/// Alerts as they come unencrypted: a level and a description (RFC 8446 section 6). After the first
/// there will be no session.
const ALERTS: [([u8; 2], &str); 4] = [
    ([2, 40], "handshake_failure"),
    ([2, 80], "internal_error"),
    ([2, 20], "bad_record_mac"),
    ([1, 0], "close_notify"),
];

/// Length of a record's header.
const HEADER: usize = 5;

/// Where records end, and where the first begins.
fn borders(records: &[u8]) -> Vec<usize> {
    let mut borders = vec![0];
    let mut at = 0;
    while let Some(header) = records.get(at..at + HEADER) {
        at += HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
        borders.push(at.min(records.len()));
    }
    borders
}

impl World {
    /// Ends what a socket still has to give with an alert, at the end of one of its records.
    fn alert(&mut self, socket: usize) {
        let found = &mut self.sockets[socket];
        let borders = borders(&found.answer[found.given..]);
        let border = borders[small(self.chance.below(borders.len() as u64))];
        // What has come already is not taken back.
        let border = (found.given + border).max(found.transit.arrived());
        found.answer.truncate(border);
        found.answer.extend_from_slice(&[21, 3, 3, 0, 2]);
        let (alert, name) = ALERTS[small(self.chance.below(4))];
        seeds::note(name, 1);
        found.answer.extend_from_slice(&alert);
        found.end = Some((found.answer.len(), Fault::End));
        // Where a record was cut by it, what follows may be taken for something else.
        found.garbled = true;
    }

    /// True for an error of TLS that no retry heals: an alert that says that there will never be a
    /// session, or a certificate with a wrong bit; if one of them was injected.
    pub(super) fn has_refused(&self, error: &Error) -> bool {
        let causes = ["alert in a handshake", "garbled handshake"];
        let is_of_tls = error.to_string().contains("TLS with origin");
        error.kind() == ErrorKind::Endpoint
            && is_of_tls
            && causes.iter().any(|cause| self.injected.contains_key(cause))
    }

    /// A handshake may be cut or garbled at any byte.
    pub(super) fn break_handshake(&mut self, socket: usize) {
        let rate = self.rates.network_per_mille / 4;
        let found = &mut self.sockets[socket];
        let fresh = found.answers == 0 && found.end.is_none() && !found.answer.is_empty();
        if !fresh || !self.chance.hits(rate) {
            return;
        }
        if self.chance.hits(200) {
            self.alert(socket);
            return self.count("alert in a handshake");
        }
        let found = &mut self.sockets[socket];
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
    pub(super) fn seal(&mut self, socket: usize, plain: &[u8]) {
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
        found.transit.forget(found.given);
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
        if self.sockets[socket].end.is_none() && self.chance.hits(rate) {
            self.alert(socket);
            self.count("alert");
        }
        self.depart(socket, 0);
    }
}
