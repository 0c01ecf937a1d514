//! The origin's end of TLS, in memory, and what can go wrong with it.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerSessionMemoryCache;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion,
};

use super::chance::Chance;
use super::seeds;

/// Both sides' configurations for one version.
#[derive(Debug, Clone)]
pub(crate) struct Sides {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// Sessions that each side keeps.
const SESSIONS: usize = 64;

/// The name that the certificate is for.
pub(crate) const NAME: &str = "origin";

impl Sides {
    /// For TLS 1.2 or 1.3. The key is of a kind whose signatures all have one length, so that a
    /// seed means the same bytes' lengths each time.
    pub(crate) fn new(version: &'static SupportedProtocolVersion) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("a certificate");
        Self { client: Arc::new(client), server: Arc::new(server) }
    }
}

thread_local! {
    static SIDES: [OnceCell<Sides>; 2] = const { [OnceCell::new(), OnceCell::new()] };
}

/// The sides of an even seed speak TLS 1.3, of an odd one 1.2.
pub(crate) fn sides(seed: u64) -> Sides {
    let odd = usize::from(seed % 2 == 1);
    let version = [&rustls::version::TLS13, &rustls::version::TLS12][odd];
    let sides = SIDES.with(|sides| sides[odd].get_or_init(|| Sides::new(version)).clone());
    // Sessions are resumed within a run, and none from another seed's.
    let (mut client, mut server) = (ClientConfig::clone(&sides.client), (*sides.server).clone());
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    server.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    Sides { client: Arc::new(client), server: Arc::new(server) }
}

/// The server's side of one connection.
#[derive(Debug)]
pub(crate) struct Server(ServerConnection);

impl Server {
    pub(crate) fn new(sides: &Sides) -> Self {
        Self(ServerConnection::new(Arc::clone(&sides.server)).expect("a good configuration"))
    }

    /// Takes ciphertext; returns the plaintext in it. What the client breaks ends the connection.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes).expect("memory can be read");
            self.0.process_new_packets()?;
            // Where nothing more can be read now, the error is `WouldBlock`.
            let _ = self.0.reader().read_to_end(&mut plain);
        }
        Ok(plain)
    }

    /// What it has to send now.
    pub(crate) fn flush(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut out).expect("memory can be written");
        }
        out
    }

    /// Encrypts an answer in records of drawn lengths, with new keys now and then.
    pub(crate) fn seal(&mut self, mut answer: &[u8], chance: &mut Chance) -> Vec<u8> {
        let mut out = self.flush();
        while !answer.is_empty() {
            let most = if chance.hits(200) { 40 } else { 16 << 10 };
            let length = 1 + usize::try_from(chance.below(most)).expect("small");
            let (piece, rest) = answer.split_at(length.min(answer.len()));
            self.0.writer().write_all(piece).expect("memory can be written");
            out.extend(self.flush());
            // TLS 1.2 has no new keys without a handshake.
            if chance.hits(20)
                && self.0.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3)
            {
                self.0.refresh_traffic_keys().expect("TLS 1.3");
                seeds::note("new keys", 1);
                out.extend(self.flush());
            }
            answer = rest;
        }
        out
    }

    /// Ends it in good order.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        self.0.send_close_notify();
        self.flush()
    }
}
