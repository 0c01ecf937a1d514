//! An authority and the certificate that it signs, made for one run and never written here.
//!
//! Validity is between fixed years, so that no clock is needed to make or to judge one.

use std::str::FromStr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::error::Error;
use crate::parse::ParseError;

/// A name that nobody asks for.
const OTHER_NAME: &str = "elsewhere.invalid";

/// Whether a client that knows the origin's authority should believe its certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CertificateKind {
    /// It should.
    #[default]
    Good,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// It is for another name.
    WrongName,
    /// It is signed by itself.
    SelfSigned,
    /// It is signed by itself and an authority's, as `openssl req -x509` makes them. It is its own
    /// authority: `ca_pem` has it.
    SelfSignedAuthority,
    /// It is signed by an authority that nobody knows.
    UnknownAuthority,
}

impl CertificateKind {
    /// The names of all kinds, as they are read.
    pub const NAMES: [&str; 7] = [
        "good",
        "expired",
        "not-yet-valid",
        "wrong-name",
        "self-signed",
        "self-signed-authority",
        "unknown-authority",
    ];
}

impl FromStr for CertificateKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Ok(match text {
            "good" => Self::Good,
            "expired" => Self::Expired,
            "not-yet-valid" => Self::NotYetValid,
            "wrong-name" => Self::WrongName,
            "self-signed" => Self::SelfSigned,
            "self-signed-authority" => Self::SelfSignedAuthority,
            "unknown-authority" => Self::UnknownAuthority,
            _ => {
                let known = Self::NAMES.join(", ");
                return Err(ParseError(format!("invalid certificate '{text}', expected {known}")));
            }
        })
    }
}

/// What a server shows, and what a client needs in order to believe it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) ca_pem: String,
}

impl Identity {
    /// A new authority, and a certificate with what is wrong with it.
    pub(crate) fn make(kind: CertificateKind, names: &[String]) -> Result<Self, Error> {
        let (authority, ca_pem) = authority("inrush-origin's authority of this run")?;
        let names = match kind {
            CertificateKind::WrongName => vec![OTHER_NAME.to_owned()],
            _ => names.to_vec(),
        };
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name.push(DnType::CommonName, "inrush-origin");
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (leaf.not_before, leaf.not_after) = match kind {
            CertificateKind::Expired => (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1)),
            CertificateKind::NotYetValid => (date_time_ymd(2998, 1, 1), date_time_ymd(2999, 1, 1)),
            _ => (date_time_ymd(2000, 1, 1), date_time_ymd(2999, 1, 1)),
        };
        if kind == CertificateKind::SelfSignedAuthority {
            leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (leaf.key_usages, leaf.extended_key_usages) = (Vec::new(), Vec::new());
        }
        let key = KeyPair::generate()?;
        let certificate = match kind {
            CertificateKind::SelfSigned | CertificateKind::SelfSignedAuthority => {
                leaf.self_signed(&key)?
            }
            CertificateKind::UnknownAuthority => {
                let (unknown, _) = self::authority("an authority that nobody knows")?;
                leaf.signed_by(&key, &unknown)?
            }
            _ => leaf.signed_by(&key, &authority)?,
        };
        let ca_pem = match kind {
            CertificateKind::SelfSignedAuthority => certificate.pem(),
            _ => ca_pem,
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self { chain: vec![certificate.der().clone()], key, ca_pem })
    }
}

/// An authority of that name, and its certificate as PEM.
fn authority(name: &str) -> Result<(Issuer<'static, KeyPair>, String), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let (not_before, not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2999, 1, 1));
    (params.not_before, params.not_after) = (not_before, not_after);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}
