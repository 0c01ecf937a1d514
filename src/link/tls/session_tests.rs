//! A session against rustls's own server, in memory: every split, every end, every flipped bit.

use std::io::{Read as _, Write as _};

use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;
use crate::limits::TLS_SLOT_BYTES_MIN;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

struct Pair {
    session: Session,
    buffer: Vec<u8>,
    server: ServerConnection,
    /// Bytes that the server has sent, and how many of them the session was given.
    wire: Vec<u8>,
    given: usize,
}

type Sides = (Arc<ClientConfig>, Arc<ServerConfig>);

fn sides(version: &'static SupportedProtocolVersion) -> Sides {
    sides_of(version, rustls::crypto::aws_lc_rs::default_provider(), 300)
}

/// Sides with this version and these suites; `fragment` limits the server's records.
fn sides_of(
    version: &'static SupportedProtocolVersion,
    provider: rustls::crypto::CryptoProvider,
    fragment: usize,
) -> Sides {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let params = rcgen::CertificateParams::new(vec!["lab".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let provider = Arc::new(provider);
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("a certificate");
    server.max_fragment_size = Some(fragment);
    server.send_half_rtt_data = true;
    (Arc::new(client), Arc::new(server))
}

impl Pair {
    fn new(sides: &Sides, name: &str) -> Self {
        let session = Session::new(Arc::clone(&sides.0), name, TLS_SLOT_BYTES_MIN).expect("a name");
        let server = ServerConnection::new(Arc::clone(&sides.1)).expect("a configuration");
        let buffer = vec![0; TLS_SLOT_BYTES_MIN as usize];
        Self { session, buffer, server, wire: Vec::new(), given: 0 }
    }

    fn flush_server(&mut self) {
        while self.server.wants_write() {
            self.server.write_tls(&mut self.wire).expect("memory");
        }
    }

    /// Moves bytes as the session needs them, at most `most` at a time; false when none are left.
    fn exchange(&mut self, most: usize) -> Result<bool, Fault> {
        match self.session.need(&mut self.buffer)? {
            Need::Send { at, length } => {
                let length = (length as usize).min(most);
                let mut bytes = &self.buffer[at as usize..at as usize + length];
                while !bytes.is_empty() {
                    self.server.read_tls(&mut bytes).expect("memory");
                    self.server.process_new_packets().expect("good records");
                }
                self.session.sent(u32::try_from(length).expect("small"));
                self.flush_server();
            }
            Need::Receive { at, length } => {
                let left = &self.wire[self.given..];
                let length = left.len().min(length as usize).min(most);
                if length == 0 {
                    return Ok(false);
                }
                let at = at as usize;
                self.buffer[at..at + length].copy_from_slice(&left[..length]);
                self.given += length;
                self.session.received(u32::try_from(length).expect("small"));
            }
        }
        Ok(true)
    }

    fn open(&mut self, most: usize) -> Result<(), Fault> {
        while !self.session.handshake(&mut self.buffer)? {
            if !self.exchange(most)? {
                self.session.received(0);
            }
        }
        Ok(())
    }

    /// Sends a request, and lets the server answer with these bytes.
    fn ask(&mut self, answer: &[u8], close: bool) {
        self.session.write(&mut self.buffer, b"GET /").expect("a session");
        while !self.session.is_flushed() {
            self.exchange(1 << 20).expect("a session");
        }
        let mut asked = Vec::new();
        let _ = self.server.reader().read_to_end(&mut asked);
        assert_eq!(asked, b"GET /");
        let (front, back) = answer.split_at(answer.len() / 2);
        self.server.writer().write_all(front).expect("memory");
        self.flush_server();
        if self.server.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
            self.server.refresh_traffic_keys().expect("TLS 1.3");
        }
        self.server.writer().write_all(back).expect("memory");
        if close {
            self.server.send_close_notify();
        }
        self.flush_server();
    }

    /// Reads `length` bytes, in pieces.
    fn read_exactly(&mut self, length: usize, room: usize) -> Vec<u8> {
        let mut all = vec![0; length];
        let mut at = 0;
        while at < length {
            let end = length.min(at + room);
            match self.session.read(&mut self.buffer, &mut all[at..end]).expect("good records") {
                Read::Bytes(count) => at += count,
                Read::More => assert!(self.exchange(1 << 20).expect("a session"), "it ends"),
                Read::End => panic!("it ends after {at} bytes"),
            }
        }
        all
    }

    /// Reads to the end in pieces; returns the bytes and the result at the end.
    fn read_all(&mut self, most: usize, room: usize) -> (Vec<u8>, Result<(), Fault>) {
        let (mut all, mut piece) = (Vec::new(), vec![0; room]);
        loop {
            match self.session.read(&mut self.buffer, &mut piece) {
                Ok(Read::Bytes(count)) => all.extend_from_slice(&piece[..count]),
                Ok(Read::End) => return (all, Ok(())),
                Ok(Read::More) => match self.exchange(most) {
                    Ok(true) => {}
                    Ok(false) => self.session.received(0),
                    Err(fault) => return (all, Err(fault)),
                },
                Err(fault) => return (all, Err(fault)),
            }
        }
    }
}

fn answer(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).expect("a byte")).collect()
}

#[test]
fn every_split_brings_the_same_bytes() {
    for version in VERSIONS {
        let sides = sides(version);
        let answer = answer(2000);
        for most in (1..400).chain([1000, 5000]) {
            let mut pair = Pair::new(&sides, "lab");
            pair.open(most).expect("a handshake");
            pair.ask(&answer, true);
            let (all, end) = pair.read_all(most, 1 + most * 3 % 700);
            assert!(all == answer && end.is_ok(), "{version:?} in pieces of {most}");
        }
    }
}

/// One side's suites, each alone; those for another kind of certificate do not differ otherwise.
fn each_suite() -> impl Iterator<Item = (&'static SupportedProtocolVersion, Sides)> {
    let provider = rustls::crypto::aws_lc_rs::default_provider;
    provider().cipher_suites.into_iter().filter_map(move |suite| {
        let (version, name) = (suite.version(), suite.suite());
        let name = name.as_str().expect("a known suite");
        let fits = name.starts_with("TLS13") || name.contains("ECDSA");
        let alone = rustls::crypto::CryptoProvider { cipher_suites: vec![suite], ..provider() };
        fits.then(|| (version, sides_of(version, alone, 16 << 10)))
    })
}

#[test]
fn each_suite_brings_the_same_bytes_again_and_again() {
    let answer = answer(100_000);
    let mut suites = 0;
    for (version, sides) in each_suite() {
        suites += 1;
        for room in [700, 20_000, 200_000] {
            let mut pair = Pair::new(&sides, "lab");
            pair.open(1 << 20).expect("a handshake");
            let agreed = pair.server.protocol_version();
            assert!(agreed.is_some() && pair.session.version() == agreed);
            for round in 0..4 {
                // The keys of TLS 1.3 change within each answer, and the client's before the next.
                pair.ask(&answer, round == 3);
                if round == 3 {
                    let (all, end) = pair.read_all(5000, room);
                    assert!(all == answer && end.is_ok(), "{version:?}");
                } else {
                    assert!(pair.read_exactly(answer.len(), room) == answer, "{version:?}");
                }
            }
        }
    }
    assert_eq!(suites, 6, "three of each version");
}

#[test]
fn keys_are_renewed_before_they_are_worn_out() {
    for version in VERSIONS {
        let sides = sides(version);
        let mut pair = Pair::new(&sides, "lab");
        pair.open(1 << 20).expect("a handshake");
        let SessionStage::Open(traffic) = &mut pair.session.stage else { panic!("open") };
        traffic.send_limit = 4;
        let is_tls13 = pair.session.version() == Some(ProtocolVersion::TLSv1_3);
        for round in 0..10 {
            if !is_tls13 && round == 2 {
                let written = pair.session.write(&mut pair.buffer, b"GET /");
                assert!(matches!(written, Err(Fault::Tls { lasting: false, .. })), "{written:?}");
                break;
            }
            pair.ask(b"answer", false);
            assert!(pair.read_exactly(6, 64) == b"answer");
        }
    }
}

#[test]
fn tickets_in_pieces_let_the_next_session_resume() {
    for version in VERSIONS {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let sides = sides_of(version, provider, 40);
        for round in 0..3 {
            let mut pair = Pair::new(&sides, "lab");
            pair.open(13).expect("a handshake");
            pair.ask(&answer(500), false);
            assert!(pair.read_exactly(500, 64) == answer(500));
            let resumed = pair.server.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            assert_eq!(resumed, round > 0, "{version:?}, round {round}");
        }
    }
}

#[test]
fn what_comes_with_the_last_of_the_handshake_is_kept() {
    let sides = sides(&rustls::version::TLS13);
    let mut pair = Pair::new(&sides, "lab");
    assert_eq!(pair.session.handshake(&mut pair.buffer), Ok(false));
    // Its first flight, immediately followed by data.
    while !pair.session.is_flushed() {
        pair.exchange(1 << 20).expect("memory");
    }
    pair.server.writer().write_all(b"unasked").expect("memory");
    pair.flush_server();
    while pair.given < pair.wire.len() {
        pair.exchange(1 << 20).expect("memory");
    }
    assert_eq!(pair.session.handshake(&mut pair.buffer), Ok(true));
    let mut plain = [0; 20];
    assert_eq!(pair.session.read(&mut pair.buffer, &mut plain), Ok(Read::Bytes(7)));
    assert_eq!(plain[..7], b"unasked"[..]);
}

#[test]
fn an_end_at_any_byte_is_an_end_or_a_fault() {
    for version in VERSIONS {
        let sides = sides(version);
        let answer = answer(900);
        let mut whole = 0;
        for left in 0.. {
            let mut pair = Pair::new(&sides, "lab");
            pair.open(1 << 20).expect("a handshake");
            pair.ask(&answer, false);
            let from = pair.given;
            if from + left > pair.wire.len() {
                break;
            }
            pair.wire.truncate(from + left);
            let (all, _) = pair.read_all(1 << 20, 4096);
            assert!(answer.starts_with(&all), "{version:?}: {left} bytes of ciphertext");
            assert!(all.len() < left.max(1), "records are longer than what is in them");
            whole += usize::from(all == answer);
        }
        assert_eq!(whole, 1, "all of it needs all of the records");
    }
}

#[test]
fn a_handshake_that_ends_at_any_byte_is_a_fault() {
    for version in VERSIONS {
        let sides = sides(version);
        for cut in 0..400 {
            let mut pair = Pair::new(&sides, "lab");
            let fault = loop {
                match pair.session.handshake(&mut pair.buffer) {
                    Ok(true) => unreachable!("{cut} bytes are no handshake"),
                    Ok(false) => {}
                    Err(fault) => break fault,
                }
                let left = cut - pair.given.min(cut);
                let need = pair.session.need(&mut pair.buffer).expect("room");
                if matches!(need, Need::Receive { .. }) && left == 0 {
                    pair.session.received(0);
                } else {
                    pair.exchange(if left == 0 { 1 << 20 } else { left }).expect("room");
                }
            };
            assert_eq!(fault, Fault::Ended, "{cut}");
            assert_eq!(fault.failure(), Failure::TlsEnded);
        }
    }
}

#[test]
fn a_wrong_bit_gives_no_wrong_byte() {
    for version in VERSIONS {
        let sides = sides(version);
        let answer = answer(900);
        for at in 0..1000 {
            let mut pair = Pair::new(&sides, "lab");
            pair.open(1 << 20).expect("a handshake");
            pair.ask(&answer, true);
            let place = pair.given + at;
            // The version in a record's header is to be ignored (RFC 8446 section 5.1).
            let mut header = pair.given;
            while header < pair.wire.len() && header + 5 <= place {
                let length = [pair.wire[header + 3], pair.wire[header + 4]];
                header += 5 + usize::from(u16::from_be_bytes(length));
            }
            let ignored = (header + 1..header + 3).contains(&place);
            let Some(byte) = pair.wire.get_mut(place) else { break };
            *byte ^= 0x10;
            let (all, end) = pair.read_all(1 << 20, 64);
            assert!(answer.starts_with(&all), "{version:?}: byte {at}");
            let is_noticed = all != answer || end.is_err();
            assert!(is_noticed || ignored, "{version:?}: nobody saw byte {at}");
        }
    }
}

#[test]
fn who_is_not_believed_is_refused_for_good() {
    let good = sides(&rustls::version::TLS13);
    let other = sides(&rustls::version::TLS13);
    let mut stranger = Pair::new(&(Arc::clone(&other.0), Arc::clone(&good.1)), "lab");
    let mut misnamed = Pair::new(&good, "somebody.else");
    for pair in [&mut stranger, &mut misnamed] {
        let fault = pair.open(1 << 20).expect_err("not believed");
        assert_eq!(fault.failure(), Failure::TlsRefused, "{fault:?}");
        let line = explain_failure(fault.failure(), Some(&fault), "lab").to_string();
        assert!(line.contains("certificate"), "{line}");
    }
    assert!(Session::new(good.0, "no name", TLS_SLOT_BYTES_MIN).is_err());
}

#[test]
fn a_server_without_tls_is_a_fault() {
    let mut pair = Pair::new(&sides(&rustls::version::TLS13), "lab");
    assert_eq!(pair.session.handshake(&mut pair.buffer), Ok(false));
    while !pair.session.is_flushed() {
        let Ok(Need::Send { length, .. }) = pair.session.need(&mut pair.buffer) else { break };
        pair.session.sent(length);
    }
    pair.wire = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    pair.exchange(1 << 20).expect("room");
    let fault = pair.session.handshake(&mut pair.buffer).expect_err("no TLS");
    let line = explain_failure(fault.failure(), Some(&fault), "lab:80").to_string();
    assert!(line.contains("does not speak TLS") && line.contains("http://"), "{line}");
}
