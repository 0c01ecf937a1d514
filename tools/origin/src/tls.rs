//! How TLS is spoken: plain values, and the server's configuration that is made of them.
//!
//! Not here: certificates (`certificate.rs`) and the bytes of a connection (`tunnel.rs`).

use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{Ticketer, cipher_suite, default_provider};
use rustls::server::{NoServerSessionStorage, ServerConfig, ServerSessionMemoryCache};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::certificate::{CertificateKind, Identity};
use crate::error::Error;
use crate::parse::ParseError;

/// What S3 is spoken in: nobody here understands HTTP/2.
const ALPN: &[u8] = b"http/1.1";
/// Sessions that are remembered for clients that come back without a ticket.
const SESSIONS_REMEMBERED_MAX: usize = 1024;

/// How an origin speaks TLS. The authority that signs its certificate is made when it starts:
/// [`Origin::ca_pem`](crate::Origin::ca_pem).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Which versions are spoken.
    pub versions: TlsVersions,
    /// Which suites are spoken, in each of those versions; empty: all.
    pub suites: Vec<TlsSuite>,
    /// What is wrong with the certificate.
    pub certificate: CertificateKind,
    /// Names and addresses that the certificate is for.
    pub names: Vec<String>,
    /// How clients that come back are known.
    pub resumption: TlsResumption,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            versions: TlsVersions::Both,
            suites: Vec::new(),
            certificate: CertificateKind::Good,
            names: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            resumption: TlsResumption::Tickets,
        }
    }
}

/// Versions of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersions {
    /// TLS 1.3, and 1.2 for who does not know it.
    #[default]
    Both,
    /// TLS 1.2 alone.
    Only12,
    /// TLS 1.3 alone.
    Only13,
}

impl TlsVersions {
    fn protocols(self) -> Vec<&'static SupportedProtocolVersion> {
        match self {
            Self::Both => vec![&version::TLS13, &version::TLS12],
            Self::Only12 => vec![&version::TLS12],
            Self::Only13 => vec![&version::TLS13],
        }
    }
}

impl FromStr for TlsVersions {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "1.2" => Ok(Self::Only12),
            "1.3" => Ok(Self::Only13),
            _ => Err(ParseError(format!("invalid TLS version '{text}', expected 1.2 or 1.3"))),
        }
    }
}

/// What records are sealed with, in either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsSuite {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl TlsSuite {
    /// The suite of TLS 1.3 and that of TLS 1.2; the certificate's key is ECDSA.
    fn suites(self) -> [SupportedCipherSuite; 2] {
        use cipher_suite as known;
        match self {
            Self::Aes128Gcm => {
                [known::TLS13_AES_128_GCM_SHA256, known::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
            }
            Self::Aes256Gcm => {
                [known::TLS13_AES_256_GCM_SHA384, known::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]
            }
            Self::ChaCha20Poly1305 => [
                known::TLS13_CHACHA20_POLY1305_SHA256,
                known::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
        }
    }
}

/// How a client that comes back is spared half of the handshake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsResumption {
    /// By what it was handed, sealed: nothing is remembered.
    #[default]
    Tickets,
    /// By what is remembered of it.
    Cache,
    /// Not at all.
    Off,
}

/// The server's side of every handshake; its identity is made again.
pub(crate) fn server(config: &TlsConfig) -> Result<(Arc<ServerConfig>, String), Error> {
    let identity = Identity::make(config.certificate, &config.names)?;
    let mut provider: CryptoProvider = default_provider();
    if !config.suites.is_empty() {
        provider.cipher_suites = config.suites.iter().flat_map(|suite| suite.suites()).collect();
    }
    let mut server = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&config.versions.protocols())
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(identity.chain, identity.key)
        })
        .map_err(Error::Tls)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    match config.resumption {
        TlsResumption::Tickets => server.ticketer = Ticketer::new().map_err(Error::Tls)?,
        TlsResumption::Cache => {
            server.session_storage = ServerSessionMemoryCache::new(SESSIONS_REMEMBERED_MAX);
        }
        TlsResumption::Off => {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
    }
    Ok((Arc::new(server), identity.ca_pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for name in CertificateKind::NAMES {
            assert!(name.parse::<CertificateKind>().is_ok(), "{name}");
        }
        let bad = "bad".parse::<CertificateKind>().unwrap_err().to_string();
        assert!(bad.contains("self-signed"), "{bad}");
        assert_eq!("1.2".parse(), Ok(TlsVersions::Only12));
        assert!("1.1".parse::<TlsVersions>().is_err());
    }

    #[test]
    fn a_suite_stands_for_both_versions_and_no_other() {
        let config = TlsConfig { suites: vec![TlsSuite::Aes128Gcm], ..TlsConfig::default() };
        let (server, ca_pem) = server(&config).unwrap();
        let names: Vec<_> = server
            .crypto_provider()
            .cipher_suites
            .iter()
            .map(|suite| suite.suite().as_str().unwrap())
            .collect();
        assert_eq!(names, ["TLS13_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]);
        assert!(ca_pem.starts_with("-----BEGIN CERTIFICATE-----"), "{ca_pem}");
    }
}
