//! The certificates that TLS trusts: the system's roots, a bundle of the user's, or (with a
//! warning) any.
//!
//! Connections are in `client`.

pub(super) mod bundle;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;

use self::bundle::Bundle;
use super::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::grants::GrantTarget;
use crate::s3::uri::S3Uri;

/// The trusted certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those signed by the system's roots.
    #[default]
    System,
    /// Those signed by the roots in this PEM file, and these roots themselves.
    Bundle(PathBuf),
    /// All: the server may be anyone. The caller warns about it.
    Anyone,
}

/// The TLS configuration of every connection of the run.
pub fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>> {
    let mut provider = aws_lc_rs::default_provider();
    // The cheapest suite first, if the CPU has AES; the order of the others stays.
    provider.cipher_suites.sort_by_key(|suite| {
        let aes_128 = suite.suite().as_str().is_some_and(|name| name.contains("AES_128_GCM"));
        !(aes_128 && has_aes())
    });
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs has the suites of TLS 1.2 and 1.3");
    let builder = match trust {
        Trust::System => builder.with_platform_verifier().map_err(|error| {
            Error::new(ErrorKind::Host, format!("the system's root certificates: {error}"))
                .advise("install ca-certificates")
                .caused_by(error)
        })?,
        Trust::Bundle(path) => {
            let bundle = Bundle::read(path, provider)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(bundle))
        }
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified { provider }))
        }
    };
    let mut config = builder.with_no_client_auth();
    // Only HTTP/1.1 is used (RFC 7301).
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // The data plane decrypts its records itself, with the negotiated keys of rustls.
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// True if the CPU has AES instructions; without them ChaCha20 is as good a choice.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// Accepts any certificate, but verifies that the server has its key.
#[derive(Debug)]
struct Unverified {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Control {
    /// The data plane's TLS configuration, if one of these buckets is served over TLS.
    pub(crate) async fn tls_for(
        &self,
        uris: impl IntoIterator<Item = &S3Uri>,
    ) -> Result<Option<Arc<ClientConfig>>> {
        let mut has_urls = false;
        for uri in uris {
            if uri.url.is_some() {
                has_urls = true;
                continue;
            }
            let endpoint = match &self.grants {
                None => self.endpoint(&uri.bucket, GrantTarget::ALL).await?,
                // A grant is requested when it is known what the source is.
                Some(_) => Arc::new(self.service.place(&uri.bucket, &self.region)?),
            };
            if endpoint.tls {
                return self.tls_config().map(Some);
            }
        }
        let endpoints = self.endpoints();
        let mut known = endpoints.iter().filter(|endpoint| endpoint.is_web()).peekable();
        // Where a URL leads to is known when it was looked up.
        let may_be = has_urls && (known.peek().is_none() || known.any(|known| known.tls));
        may_be.then(|| self.tls_config()).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_is_none_is_refused() {
        let missing = Trust::Bundle("does/not/exist.pem".into());
        let error = client_config(&missing).expect_err("no file");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("does/not/exist.pem"), "{error}");
        let empty = Trust::Bundle("/dev/null".into());
        let error = client_config(&empty).expect_err("no certificates");
        assert!(error.to_string().contains("there are none"), "{error}");
        assert!(client_config(&Trust::Anyone).is_ok());
    }

    #[test]
    fn what_is_offered() {
        let config = client_config(&Trust::Anyone).expect("a configuration");
        assert_eq!(config.alpn_protocols, [b"http/1.1".to_vec()]);
        let first = config.crypto_provider().cipher_suites[0].suite();
        let expected = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
        assert!(first == expected || !has_aes(), "{first:?}");
    }
}
