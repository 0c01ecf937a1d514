//! A whole origin with TLS, asked by a rustls client: what a client really sees.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use inrush_origin::{
    CertificateKind, Config, Credentials, Fault, FaultPlan, Match, ObjectSpec, Origin, Profile,
    SyntheticSet, TlsConfig, TlsResumption, TlsSuite, TlsVersions, synthetic_bytes,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
};

const BIG_BYTES: u64 = 3_000_017;
const KEY: &str = "big/000001.bin";

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn config(tls: TlsConfig) -> Config {
    Config {
        objects: vec![ObjectSpec::new("b", "small", &b"0123456789"[..])],
        synthetic: vec![SyntheticSet::new("b", "big/", 10, BIG_BYTES)],
        tls: Some(tls),
        ..Config::default()
    }
}

fn start(tls: TlsConfig) -> Origin {
    Origin::start(config(tls)).unwrap()
}

fn faulty(versions: TlsVersions, fault: Fault) -> Origin {
    let faults = FaultPlan::none().with_rule(Match::default(), fault);
    let tls = TlsConfig { versions, ..TlsConfig::default() };
    Origin::start(Config { faults, ..config(tls) }).unwrap()
}

/// A client that trusts the origin's authority and no other.
fn client(origin: &Origin) -> Arc<ClientConfig> {
    let pem = origin.ca_pem().expect("an authority");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A connection whose handshake is done.
fn connect(address: SocketAddr, client: &Arc<ClientConfig>, name: &str) -> io::Result<Stream> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut session = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// The body of one answer as far as it came, and how it ended if it ended early.
fn ask(stream: &mut Stream, path: &str, headers: &str) -> (Vec<u8>, io::Result<()>) {
    let request = format!("GET /b/{path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) => return (Vec::new(), Err(io::Error::other("an end in the head"))),
            Err(error) => return (Vec::new(), Err(error)),
        }
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let (_, length) = head.split_once("content-length: ").expect("a length");
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    let (mut body, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while body.len() < length {
        match stream.read(&mut buffer) {
            // What rustls gives for a session that ended in good order.
            Ok(0) => return (body, Ok(())),
            Ok(count) => body.extend_from_slice(&buffer[..count]),
            Err(error) => return (body, Err(error)),
        }
    }
    (body, Ok(()))
}

fn expected(key: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    synthetic_bytes(key, 0, &mut bytes);
    bytes
}

fn whole() -> Vec<u8> {
    expected(KEY, 3_000_017)
}

#[test]
fn versions_suites_and_names() {
    use TlsSuite::{Aes128Gcm, ChaCha20Poly1305};
    for (versions, suite, version, negotiated) in [
        (TlsVersions::Both, Aes128Gcm, "TLSv1_3", CipherSuite::TLS13_AES_128_GCM_SHA256),
        (
            TlsVersions::Only13,
            ChaCha20Poly1305,
            "TLSv1_3",
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ),
        (
            TlsVersions::Only12,
            Aes128Gcm,
            "TLSv1_2",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            TlsVersions::Only12,
            TlsSuite::Aes256Gcm,
            "TLSv1_2",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
    ] {
        let suites = vec![suite];
        let origin = start(TlsConfig { versions, suites, ..TlsConfig::default() });
        assert!(origin.url().starts_with("https://127.0.0.1:"), "{}", origin.url());
        for name in ["localhost", "127.0.0.1", "::1"] {
            let mut stream = connect(origin.address(), &client(&origin), name).unwrap();
            let session = &stream.conn;
            assert_eq!(session.negotiated_cipher_suite().unwrap().suite(), negotiated);
            assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
            // Many answers, and one of many records.
            assert_eq!(ask(&mut stream, "small", "").0, b"0123456789");
            assert!(ask(&mut stream, KEY, "").0 == whole());
        }
        let stats = origin.stop();
        assert_eq!((stats.tls_handshakes, stats.tls_failed, stats.gets), (3, 0, 6));
        let expected = format!("{version} {}", negotiated.as_str().unwrap());
        assert_eq!(stats.tls_suites.get(&expected), Some(&3), "{:?}", stats.tls_suites);
        assert!(stats.bytes_sent > stats.body_bytes);
    }
}

#[test]
fn sessions_are_resumed_unless_they_are_not() {
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        for (resumption, resumed) in
            [(TlsResumption::Tickets, 2), (TlsResumption::Cache, 2), (TlsResumption::Off, 0)]
        {
            let origin = start(TlsConfig { versions, resumption, ..TlsConfig::default() });
            let client = client(&origin);
            for index in 0..3 {
                let mut stream = connect(origin.address(), &client, "localhost").unwrap();
                assert_eq!(ask(&mut stream, "small", "").0, b"0123456789");
                let again = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
                assert_eq!(again, resumed > 0 && index > 0, "{versions:?} {resumption:?}");
            }
            let stats = origin.stop();
            assert_eq!((stats.tls_handshakes, stats.tls_resumed), (3, resumed));
        }
    }
}

#[test]
fn certificates_that_nobody_should_believe() {
    use CertificateKind as Kind;
    for (certificate, words) in [
        (Kind::Expired, "Expired"),
        (Kind::NotYetValid, "NotValidYet"),
        (Kind::WrongName, "NotValidForName"),
        (Kind::SelfSigned, "UnknownIssuer"),
        (Kind::UnknownAuthority, "UnknownIssuer"),
    ] {
        let origin = start(TlsConfig { certificate, ..TlsConfig::default() });
        let error = connect(origin.address(), &client(&origin), "localhost").unwrap_err();
        let message = format!("{error:?}");
        assert!(message.contains(words), "{certificate:?}: {message}");
        let gone = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            origin.stats().tls_failed == 1
        });
        assert!(gone, "{:?}", origin.stats());
        assert_eq!(origin.stop().tls_handshakes, 0);
    }
    let names = vec!["bucket.lab".to_owned()];
    let origin = start(TlsConfig { names, ..TlsConfig::default() });
    assert!(connect(origin.address(), &client(&origin), "bucket.lab").is_ok());
    assert!(connect(origin.address(), &client(&origin), "localhost").is_err());
}

#[test]
fn signatures_are_verified_here_too() {
    let credentials = vec![Credentials::new("AKID", "secret")];
    let config = Config { credentials, ..config(TlsConfig::default()) };
    let origin = Origin::start(config).unwrap();
    let mut stream = connect(origin.address(), &client(&origin), "localhost").unwrap();
    let (body, _) = ask(&mut stream, "small", "");
    assert!(String::from_utf8(body).unwrap().contains("<Code>AccessDenied</Code>"));
    assert_eq!(origin.stop().errors, 1);
}

#[test]
fn sessions_that_end_in_the_middle() {
    let bytes = 70_000;
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let ask_with = |fault| {
            let origin = faulty(versions, fault);
            let mut stream = connect(origin.address(), &client(&origin), "localhost").unwrap();
            let (body, end) = ask(&mut stream, KEY, "");
            assert!(body == whole()[..70_000], "{fault:?}: {}", body.len());
            if matches!(fault, Fault::TlsCloseNotify { .. }) {
                // The connection lives as long as its client.
                assert_eq!(origin.stats().connections_open, 1);
                stream.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                let waited = stream.sock.read(&mut [0]).unwrap_err();
                assert_eq!(waited.kind(), io::ErrorKind::WouldBlock);
            }
            let stats = origin.stop();
            assert_eq!(stats.faults.get(fault.name()), Some(&1), "{fault:?}");
            end
        };
        let alert = ask_with(Fault::TlsAlert { bytes }).unwrap_err();
        assert!(format!("{alert:?}").contains("AlertReceived(BadRecordMac)"), "{alert:?}");
        let cut = ask_with(Fault::TlsCut { bytes }).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let garbage = ask_with(Fault::TlsGarbage { bytes }).unwrap_err();
        assert_eq!(garbage.kind(), io::ErrorKind::InvalidData);
        assert!(garbage.to_string().contains("cannot decrypt"), "{garbage}");
        ask_with(Fault::TlsCloseNotify { bytes }).unwrap();
        // The faults of plain connections too: one in good order, the other not.
        ask_with(Fault::Truncate { bytes }).unwrap();
        let reset = ask_with(Fault::ResetAfter { bytes }).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn what_only_looks_wrong() {
    let ask_with = |versions, fault: Fault, count| {
        let origin = faulty(versions, fault);
        let mut stream = connect(origin.address(), &client(&origin), "localhost").unwrap();
        for _ in 0..count {
            let (body, end) = ask(&mut stream, KEY, "");
            assert!(body == whole() && end.is_ok(), "{fault:?}: {} {end:?}", body.len());
        }
        origin.stop()
    };
    let keys = Fault::TlsKeyUpdate { bytes: 1_000_000 };
    assert_eq!(ask_with(TlsVersions::Only13, keys, 3).faults.get(keys.name()), Some(&3));
    // TLS 1.2 cannot.
    assert_eq!(ask_with(TlsVersions::Only12, keys, 1).faults_total(), 0);
    let tiny = Fault::TlsTinyRecords { bytes: 100 };
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let stats = ask_with(versions, tiny, 1);
        // 22 to 29 bytes more for each of 30,000 records.
        assert!(stats.bytes_sent > BIG_BYTES * 12 / 10, "{}", stats.bytes_sent);
    }
    let flip = faulty(TlsVersions::Both, Fault::FlipByte { at: 5 });
    let mut stream = connect(flip.address(), &client(&flip), "localhost").unwrap();
    assert_eq!(ask(&mut stream, "small", "").0, b"01234\xca6789");
}

#[test]
fn handshakes_that_never_end() {
    let when = || Match { attempts: Some(1..=1), ..Match::default() };
    let ask_with = |fault| {
        let faults = FaultPlan::none().with_rule(when(), fault);
        let origin = Origin::start(Config { faults, ..config(TlsConfig::default()) }).unwrap();
        let error = connect(origin.address(), &client(&origin), "localhost").unwrap_err();
        // The next connection is as good as any.
        let mut stream = connect(origin.address(), &client(&origin), "localhost").unwrap();
        assert_eq!(ask(&mut stream, "small", "").0, b"0123456789");
        assert_eq!(origin.stop().faults.get(fault.name()), Some(&1));
        error
    };
    let reset = ask_with(Fault::TlsHandshakeCut { reset: true });
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    let cut = ask_with(Fault::TlsHandshakeCut { reset: false });
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    let plain = ask_with(Fault::TlsPlaintext);
    assert_eq!(plain.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_client_that_retries_gets_everything_in_the_end() {
    let faults = FaultPlan::seeded(7, Profile::Tls);
    let origin = Origin::start(Config {
        synthetic: vec![SyntheticSet::new("b", "k/", 200, 10_000)],
        faults,
        ..config(TlsConfig::default())
    });
    let origin = origin.unwrap();
    let client = client(&origin);
    for index in 0..200 {
        let path = format!("k/{index:06}.bin");
        let come = (0..20).any(|_| {
            connect(origin.address(), &client, "localhost")
                .is_ok_and(|mut stream| ask(&mut stream, &path, "").0 == expected(&path, 10_000))
        });
        assert!(come, "{path} after 20 attempts");
    }
    let stats = origin.stop();
    assert!(stats.faults.len() > 5, "{:?}", stats.faults);
    assert!(stats.tls_resumed > 150, "{stats:?}");
}

#[test]
fn plain_requests_are_no_handshakes() {
    let origin = start(TlsConfig::default());
    let mut stream = TcpStream::connect(origin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /b/small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // An alert, or a reset that was quicker.
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let stats = origin.stop();
    assert_eq!((stats.requests, stats.tls_failed), (0, 1));
}
