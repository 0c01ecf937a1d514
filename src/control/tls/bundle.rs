//! Certificate verifier for `--ca-bundle`: trusts certificates that the bundle's certificates have
//! signed, and the bundle's certificates themselves.

use std::path::Path;
use std::sync::Arc;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, ErrorKind, Result};

/// Verifies servers by the certificates of one PEM file.
///
/// Each certificate is an authority. A server may also present one of them as its own, as users of
/// self-signed certificates expect: `openssl req -x509` makes an authority's certificate, which the
/// rules of chains (RFC 5280 section 6.1) allow only to sign others. Its name and dates are checked
/// like any other's, and the handshake is signed with its key.
#[derive(Debug)]
pub(super) struct Bundle {
    chains: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Bundle {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it is not a file of PEM certificates.
    pub(super) fn read(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self> {
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| trouble(path, &error))?;
        Self::new(certificates, provider).map_err(|why| trouble(path, &why))
    }

    fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("there are none".to_owned());
        }
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let chains = chains.build().map_err(|error| error.to_string())?;
        Ok(Self { chains, certificates })
    }
}

fn trouble(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("certificates in {}: {why}", path.display()))
        .advise("give a file of PEM certificates")
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = self.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let Err(error) = chain else { return chain };
        if !self.certificates.contains(end_entity)
            || is_for_other_use(&error)
            || !may_serve(end_entity)
        {
            return Err(error);
        }
        verify_dates(end_entity, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// True if the certificate itself excludes use by servers (RFC 5280 section 4.2.1.12).
fn is_for_other_use(error: &rustls::Error) -> bool {
    use CertificateError::{InvalidPurpose, InvalidPurposeContext};
    let rustls::Error::InvalidCertificate(certificate) = error else { return false };
    matches!(certificate, InvalidPurpose | InvalidPurposeContext { .. })
}

/// DER of the object identifiers id-ce-extKeyUsage, id-kp-serverAuth and anyExtendedKeyUsage
/// (RFC 5280 section 4.2.1.12).
const EXTENDED_KEY_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const ANY_USAGE: &[u8] = &[0x06, 0x04, 0x55, 0x1d, 0x25, 0x00];

/// False if the certificate restricts its use and does not allow servers. The chain's check does
/// not get this far if the certificate is an authority's.
fn may_serve(certificate: &CertificateDer<'_>) -> bool {
    let has = |name: &[u8]| certificate.windows(name.len()).any(|bytes| bytes == name);
    !has(EXTENDED_KEY_USAGE) || has(SERVER_AUTH) || has(ANY_USAGE)
}

/// Checks a certificate's validity period.
fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let [not_before, not_after] = dates(certificate).map_err(|_| CertificateError::BadEncoding)?;
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

/// The validity period of a certificate (RFC 5280 sections 4.1 and 4.1.2.5).
fn dates(certificate: &[u8]) -> der::Result<[UnixTime; 2]> {
    let mut certificate = inside(AnyRef::from_der(certificate)?)?;
    let mut fields = inside(certificate.decode()?)?;
    // The version is optional, the serial number is not.
    if Tag::peek(&fields)?.is_context_specific() {
        fields.decode::<AnyRef<'_>>()?;
    }
    for _serial_number_signature_issuer in 0..3 {
        fields.decode::<AnyRef<'_>>()?;
    }
    let mut validity = inside(fields.decode()?)?;
    let dates = [date(&mut validity)?, date(&mut validity)?];
    validity.finish()?;
    Ok(dates)
}

/// The elements of a sequence.
fn inside(element: AnyRef<'_>) -> der::Result<SliceReader<'_>> {
    element.tag().assert_eq(Tag::Sequence)?;
    SliceReader::new(element.value())
}

fn date(reader: &mut SliceReader<'_>) -> der::Result<UnixTime> {
    let since_1970 = match Tag::peek(reader)? {
        Tag::UtcTime => reader.decode::<UtcTime>()?.to_unix_duration(),
        _ => reader.decode::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(UnixTime::since_unix_epoch(since_1970))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        date_time_ymd,
    };
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    const DAY: u64 = 86_400;

    /// 2030-01-01.
    const NOW_S: u64 = 21_915 * DAY;

    /// An authority's certificate for that name, valid in these years.
    fn params(name: &str, years: [i32; 2]) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(years[0], 1, 1);
        params.not_after = date_time_ymd(years[1], 1, 1);
        params
    }

    fn signed(params: &CertificateParams) -> CertificateDer<'static> {
        signed_with(params, &KeyPair::generate().expect("a key"))
    }

    fn signed_with(params: &CertificateParams, key: &KeyPair) -> CertificateDer<'static> {
        params.self_signed(key).expect("a certificate").der().clone()
    }

    /// The result for this server's certificate when the others are in the bundle.
    fn verify_at(
        bundle: &[&CertificateDer<'static>],
        shown: &CertificateDer<'static>,
        now_s: u64,
    ) -> Result<(), CertificateError> {
        let certificates = bundle.iter().map(|&certificate| certificate.clone()).collect();
        let bundle = Bundle::new(certificates, Arc::new(default_provider())).expect("certificates");
        let name = ServerName::try_from("a.s3.lab").expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
        match bundle.verify_server_cert(shown, &[], &name, &[], now) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn who_shows_a_certificate_of_the_bundle_is_believed() {
        let other = signed(&params("other.lab", [2029, 2031]));
        let shown = signed(&params("a.s3.lab", [2029, 2031]));
        assert_eq!(verify_at(&[&other, &shown], &shown, NOW_S), Ok(()));
        // A certificate signed by an unknown authority is trusted alike.
        let mut leaf = params("a.s3.lab", [2029, 2031]);
        leaf.is_ca = IsCa::NoCa;
        let unknown_key = KeyPair::generate().expect("a key");
        let unknown = rcgen::Issuer::new(params("unknown.lab", [2029, 2031]), unknown_key);
        let key = KeyPair::generate().expect("a key");
        let shown = leaf.signed_by(&key, &unknown).expect("a certificate").der().clone();
        assert_eq!(verify_at(&[&other], &shown, NOW_S), Err(CertificateError::UnknownIssuer));
        assert_eq!(verify_at(&[&other, &shown], &shown, NOW_S), Ok(()));
    }

    #[test]
    fn its_name_must_be_asked_for() {
        for name in ["a.s4.lab", "s3.lab", "a.s3.lab.lab", "127.0.0.1"] {
            let shown = signed(&params(name, [2029, 2031]));
            let refused = verify_at(&[&shown], &shown, NOW_S);
            let expected = CertificateError::NotValidForName;
            let is_refused =
                matches!(refused, Err(CertificateError::NotValidForNameContext { .. }));
            assert!(is_refused || refused == Err(expected), "{name}: {refused:?}");
        }
        let wildcard = signed(&params("*.s3.lab", [2029, 2031]));
        assert_eq!(verify_at(&[&wildcard], &wildcard, NOW_S), Ok(()));
        // The common name is not used (RFC 9525 section 2).
        let mut nameless = params("a.s3.lab", [2029, 2031]);
        nameless.subject_alt_names.clear();
        let nameless = signed(&nameless);
        assert!(verify_at(&[&nameless], &nameless, NOW_S).is_err());
    }

    #[test]
    fn its_dates_count() {
        // To the second, in both encodings: years from 2050 on are GeneralizedTime.
        for (years, first_s, last_s) in [
            ([2030, 2031], NOW_S, NOW_S + 365 * DAY),
            ([2030, 2050], NOW_S, 29_220 * DAY),
            ([2050, 2051], 29_220 * DAY, 29_585 * DAY),
        ] {
            let shown = signed(&params("a.s3.lab", years));
            let at = |now_s| verify_at(&[&shown], &shown, now_s);
            assert_eq!([at(first_s), at(last_s)], [Ok(()), Ok(())], "{years:?}");
            let early = at(first_s - 1);
            let is_refused = matches!(early, Err(CertificateError::NotValidYetContext { .. }));
            assert!(is_refused, "{years:?}: {early:?}");
            let late = at(last_s + 1);
            let is_refused = matches!(late, Err(CertificateError::ExpiredContext { .. }));
            assert!(is_refused, "{years:?}: {late:?}");
            let expected =
                [first_s, last_s].map(|s| UnixTime::since_unix_epoch(Duration::from_secs(s)));
            assert_eq!(dates(&shown), Ok(expected));
        }
    }

    #[test]
    fn only_the_very_certificate_is_believed() {
        let key = KeyPair::generate().expect("a key");
        let named = signed_with(&params("a.s3.lab", [2029, 2031]), &key);
        // Equal name and key, other dates.
        let alike = signed_with(&params("a.s3.lab", [2029, 2032]), &key);
        let refused = verify_at(&[&named], &alike, NOW_S).expect_err("it is another");
        assert!(format!("{refused:?}").contains("CaUsedAsEndEntity"), "{refused:?}");
        assert_eq!(verify_at(&[&named, &alike], &alike, NOW_S), Ok(()));
        let stranger = signed(&params("a.s3.lab", [2029, 2031]));
        verify_at(&[&named], &stranger, NOW_S).expect_err("it is a stranger's");
    }

    #[test]
    fn one_that_is_for_no_server_is_refused() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        for (is_ca, usages, may_serve) in [
            (IsCa::NoCa, vec![ClientAuth], false),
            (IsCa::Ca(BasicConstraints::Unconstrained), vec![ClientAuth], false),
            (IsCa::Ca(BasicConstraints::Unconstrained), vec![ClientAuth, ServerAuth], true),
            (IsCa::Ca(BasicConstraints::Unconstrained), vec![Any], true),
        ] {
            let mut leaf = params("a.s3.lab", [2029, 2031]);
            (leaf.is_ca, leaf.extended_key_usages) = (is_ca, usages);
            let leaf = signed(&leaf);
            assert_eq!(verify_at(&[&leaf], &leaf, NOW_S).is_ok(), may_serve);
        }
    }

    #[test]
    fn damaged_certificates_have_no_dates() {
        let whole = signed(&params("a.s3.lab", [2029, 2031]));
        assert!((0..whole.len()).all(|length| dates(&whole[..length]).is_err()));
        assert!(dates(&[&whole[..], &[0]].concat()).is_err());
    }
}
