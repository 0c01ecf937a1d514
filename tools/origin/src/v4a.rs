//! Signature Version 4A, the verifying side: the key pair of an access key, and for which regions
//! a signature is.
//!
//! Written without the code that clients sign with, from `aws-c-auth`. The curve itself is the
//! library's that clients have, too.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Its name in requests.
pub(crate) const ALGORITHM: &str = "AWS4-ECDSA-P256-SHA256";
/// The header that names the regions.
pub(crate) const REGION_SET: &str = "x-amz-region-set";
/// The order of P-256, in two halves.
const ORDER: (u128, u128) =
    (0xffff_ffff_0000_0000_ffff_ffff_ffff_ffff, 0xbce6_faad_a717_9e84_f3b9_cac2_fc63_2551);

/// A point of the curve, uncompressed.
pub(crate) type PublicKey = Vec<u8>;

/// The public key that belongs to an access key and its secret.
pub(crate) fn public_key(access_key: &str, secret: &str) -> PublicKey {
    let key = format!("AWS4A{secret}");
    let mut number = 1_u8;
    let (high, low) = loop {
        let context = [access_key.as_bytes(), &[number]].concat();
        let input = [&[0, 0, 0, 1], ALGORITHM.as_bytes(), &[0], &context, &[0, 0, 1, 0]].concat();
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("of every length");
        mac.update(&input);
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        let whole = bytes.map(u128::from);
        let half = |part: &[u128]| part.iter().fold(0, |number, byte| number << 8 | byte);
        let candidate = (half(&whole[..16]), half(&whole[16..]));
        if candidate <= (ORDER.0, ORDER.1 - 2) {
            break candidate;
        }
        number += 1;
    };
    let (low, carries) = low.overflowing_add(1);
    let private = [(high + u128::from(carries)).to_be_bytes(), low.to_be_bytes()].concat();
    let private = PrivateKey::from_private_key(&ECDH_P256, &private).expect("below the order");
    private.compute_public_key().expect("it has a point").as_ref().to_vec()
}

/// True if this is a signature of the text, in DER.
pub(crate) fn is_signature(public_key: &PublicKey, text: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key).verify(text, signature).is_ok()
}

/// True if a list of regions has this one: `*`, `us-west-2`, or `us-*`.
pub(crate) fn includes(regions: &str, region: &str) -> bool {
    regions.split(',').any(|named| match named.trim().strip_suffix('*') {
        Some(start) => region.starts_with(start),
        None => named.trim() == region,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key pair of all cases of `aws-c-auth` (`public-key.json`).
    #[test]
    fn the_published_key_pair() {
        let key = public_key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "04b6618f6a65740a99e650b33b6b4b5bd0d43b176d721a3edfea7e7d2d56d936b1\
             865ed22a7eadc9c5cb9d2cbaca1b3699139fedc5043dc6661864218330c8e518"
        );
    }

    #[test]
    fn lists_of_regions() {
        for (regions, expected) in [
            ("*", true),
            ("us-west-2", true),
            ("eu-west-1, us-west-2", true),
            ("us-*", true),
            ("us-west-1,eu-*", false),
            ("us-west-22", false),
            ("", false),
        ] {
            assert_eq!(includes(regions, "us-west-2"), expected, "{regions}");
        }
    }
}
