//! The connections of a server on loopback: plain, or over TLS with a certificate of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A connection.
pub(crate) trait Wire: Read + Write {}
impl<W: Read + Write> Wire for W {}

/// A certificate for loopback, written where clients find it.
pub(crate) fn certify(bundle: &Path) -> Arc<ServerConfig> {
    let certified =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(bundle, certified.cert.pem()).expect("room");
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .expect("a certificate");
    Arc::new(config)
}

/// A connection over TLS, if there is a certificate.
pub(crate) fn wrap(stream: TcpStream, config: Option<Arc<ServerConfig>>) -> Box<dyn Wire> {
    match config {
        None => Box::new(stream),
        Some(config) => {
            let session = ServerConnection::new(config).expect("a good configuration");
            Box::new(StreamOwned::new(session, stream))
        }
    }
}
