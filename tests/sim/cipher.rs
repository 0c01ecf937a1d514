//! TLS under the simulated sockets of Pipe mode: the origin's end of it, and what becomes of its
//! records on their way: cut at any byte, one bit wrong, ended early in good order, or by an alert.

use inrush::sys::{Errno, Handle};

use super::origin::Fault;
use super::plumbing::{End, Lab, PAGE, small};

/// Alerts as they come unencrypted: a level and a description (RFC 8446 section 6).
const ALERTS: [[u8; 2]; 4] = [
    [2, 40], // There will be no session: handshake_failure.
    [2, 80], // internal_error
    [2, 20], // bad_record_mac
    [1, 0],  // close_notify
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

impl Lab {
    /// The origin takes ciphertext, and answers what TLS itself or a request asks for.
    pub(super) fn take_secure(&mut self, index: usize, bytes: &[u8]) {
        let socket = &mut self.sockets[index];
        if socket.end.is_some() || socket.ended.is_some() {
            // It has closed: nobody reads that.
            return;
        }
        let server = socket.server.as_mut().expect("over TLS");
        let taken = server.take(bytes);
        let reply = server.flush();
        match taken {
            Ok(plain) => socket.request.extend(plain),
            Err(error) => {
                assert!(socket.garbled, "what the feeder sends is good: {error}");
                return self.arrive(index, &reply, Some(Fault::End));
            }
        }
        if !reply.is_empty() {
            self.reply(index, reply);
        }
        if self.sockets[index].request.ends_with(b"\n") {
            self.serve(index);
        }
    }

    /// What TLS itself has to say; a handshake may go wrong in every known way.
    fn reply(&mut self, index: usize, mut reply: Vec<u8>) {
        let rate = self.rates.network_per_mille / 4;
        if self.sockets[index].answers > 0 || !self.chance.hits(rate) {
            return self.arrive(index, &reply, None);
        }
        let at = small(self.chance.below(reply.len() as u64));
        let end = match self.chance.below(5) {
            0 => {
                self.inject("garbled handshake");
                reply[at] ^= 1 << self.chance.below(8);
                self.sockets[index].garbled = true;
                return self.arrive(index, &reply, None);
            }
            1 => {
                self.inject("alert in a handshake");
                self.alert(&mut reply);
                return self.arrive(index, &reply, Some(Fault::End));
            }
            2 => Fault::End,
            3 => Fault::Reset,
            _ => Fault::Stall,
        };
        self.inject("cut handshake");
        self.arrive(index, &reply[..at], Some(end));
    }

    /// Ends records with an alert, at the end of one of them.
    fn alert(&mut self, records: &mut Vec<u8>) {
        let borders = borders(records);
        records.truncate(borders[small(self.chance.below(borders.len() as u64))]);
        records.extend_from_slice(&[21, 3, 3, 0, 2]);
        records.extend_from_slice(&ALERTS[small(self.chance.below(4))]);
    }

    /// Sends an answer as ciphertext. With `end` it is cut at any byte; what `closes` after it is
    /// whole.
    pub(super) fn seal(&mut self, index: usize, plain: &[u8], end: Option<Fault>, closes: bool) {
        let rate = self.rates.network_per_mille / 2;
        let early = self.chance.hits(rate);
        let most = plain.len() as u64 + 1;
        let length = if early { small(self.chance.below(most)) } else { plain.len() };
        let socket = &mut self.sockets[index];
        let server = socket.server.as_mut().expect("over TLS");
        let mut sealed = server.seal(&plain[..length], &mut self.chance);
        if early || (closes && self.chance.hits(500)) {
            sealed.extend(server.close());
        }
        let cuts = end.is_some() && !closes;
        let mut end = end.or(early.then_some(Fault::End));
        if early {
            self.inject("early close_notify");
        }
        if self.chance.hits(rate) && !sealed.is_empty() {
            self.inject("wrong bit");
            let at = small(self.chance.below(sealed.len() as u64));
            sealed[at] ^= 1 << self.chance.below(8);
            self.sockets[index].garbled = true;
        }
        if cuts {
            sealed.truncate(small(self.chance.below(sealed.len() as u64 + 1)));
        } else if self.chance.hits(rate) {
            self.inject("alert");
            self.alert(&mut sealed);
            end = Some(Fault::End);
        }
        self.arrive(index, &sealed, end);
    }

    /// Writes plaintext into a line's own pipe.
    pub(super) fn write(&mut self, to: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let End::Pipe(target) = self.end(to) else { unreachable!("into a pipe") };
        assert!(!bytes.is_empty(), "a write of nothing");
        // An empty pipe has room.
        if self.pipes[target].bytes() > 0 && (self.pipes[target].is_full() || self.interrupted()) {
            return Err(Errno::AGAIN);
        }
        let short = self.chance.hits(300);
        let length = if short { 1 + self.chance.below(bytes.len() as u64) } else { u64::MAX };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        let pipe = &mut self.pipes[target];
        let mut moved = 0;
        for slot in bytes[..length].chunks(PAGE) {
            if pipe.is_full() {
                break;
            }
            pipe.slots.push_back(slot.iter().copied().collect());
            moved += slot.len();
        }
        self.events += 1;
        Ok(moved)
    }
}
