//! Request headers from the user's options: requester pays, and the key of SSE-C.
//!
//! Pure. They are built once per endpoint and are signed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind, Result};

/// Length of a customer's key in bytes: AES-256.
const CUSTOMER_KEY_BYTES: usize = 32;
/// Longest text of a key: its base64 with some white space around it.
pub const CUSTOMER_KEY_TEXT_BYTES_MAX: usize = 256;

/// The customer's key of SSE-C, encoded for the headers. It is never shown, and wiped from memory
/// on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct CustomerKey {
    key: Zeroizing<String>,
    md5: Zeroizing<String>,
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(..)")
    }
}

impl CustomerKey {
    /// Parses the content of a key file: 32 bytes, or the base64 of 32 bytes.
    pub fn from_file(bytes: &[u8]) -> Result<Self> {
        match <[u8; CUSTOMER_KEY_BYTES]>::try_from(bytes) {
            Ok(key) => Ok(Self::new(&Zeroizing::new(key))),
            Err(_) => Self::from_text(std::str::from_utf8(bytes).unwrap_or_default()),
        }
    }

    /// Parses a key in base64.
    pub fn from_text(text: &str) -> Result<Self> {
        let key = STANDARD.decode(text.trim()).ok().map(Zeroizing::new);
        let key = key.as_ref().and_then(|key| <&[u8; CUSTOMER_KEY_BYTES]>::try_from(&key[..]).ok());
        key.map(Self::new).ok_or_else(|| {
            Error::new(ErrorKind::Usage, "the SSE-C key is neither 32 bytes nor their base64")
                .advise("make one with: openssl rand -base64 32")
        })
    }

    fn new(key: &[u8; CUSTOMER_KEY_BYTES]) -> Self {
        let md5 = STANDARD.encode(Md5::digest(key));
        Self { key: Zeroizing::new(STANDARD.encode(key)), md5: Zeroizing::new(md5) }
    }
}

/// One header.
#[derive(Clone, PartialEq, Eq)]
struct Extra {
    name: &'static str,
    value: Zeroizing<String>,
    /// Not sent with listings.
    of_object: bool,
}

/// The added headers, in the order of their names. Values are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtraHeaders(Vec<Extra>);

impl fmt::Debug for ExtraHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|extra| extra.name)).finish()
    }
}

impl ExtraHeaders {
    /// The headers of these options.
    #[must_use]
    pub fn new(requester_pays: bool, customer_key: Option<&CustomerKey>) -> Self {
        let mut extras = Vec::new();
        let mut add = |name, value: &str, of_object| {
            extras.push(Extra { name, value: Zeroizing::new(value.to_owned()), of_object });
        };
        if requester_pays {
            add("x-amz-request-payer", "requester", false);
        }
        if let Some(CustomerKey { key, md5 }) = customer_key {
            add("x-amz-server-side-encryption-customer-algorithm", "AES256", true);
            add("x-amz-server-side-encryption-customer-key", key, true);
            add("x-amz-server-side-encryption-customer-key-md5", md5, true);
        }
        assert!(extras.is_sorted_by(|one, other| one.name < other.name), "signatures want order");
        Self(extras)
    }

    /// True if objects are encrypted with a customer's key.
    #[must_use]
    pub fn has_customer_key(&self) -> bool {
        self.0.iter().any(|extra| extra.of_object)
    }

    /// Names and values for a request: all of them for an object, otherwise those that every
    /// request has.
    pub fn iter(&self, of_object: bool) -> impl Iterator<Item = (&'static str, &str)> {
        let wanted = move |extra: &&Extra| of_object || !extra.of_object;
        self.0.iter().filter(wanted).map(|extra| (extra.name, extra.value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = *b"0123456789abcdef0123456789ABCDEF";
    /// `printf 0123456789abcdef0123456789ABCDEF | base64`, and through `openssl md5 -binary`.
    const KEY_BASE64: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY=";
    const KEY_MD5: &str = "V5euSAsQOO0sIBHETfEa4w==";

    #[test]
    fn keys_come_as_bytes_or_as_base64() {
        let key = CustomerKey::from_file(&KEY).expect("32 bytes");
        assert_eq!((key.key.as_str(), key.md5.as_str()), (KEY_BASE64, KEY_MD5));
        let text = format!(" {KEY_BASE64}\n");
        assert_eq!(CustomerKey::from_file(text.as_bytes()).as_ref(), Ok(&key));
        assert_eq!(CustomerKey::from_text(&text).as_ref(), Ok(&key));
        for bad in
            [&KEY[..31], b"", b"\xff\xfe", b"c2hvcnQ=", KEY_BASE64.replace('=', "").as_bytes()]
        {
            let error = CustomerKey::from_file(bad).expect_err("no key");
            assert!(error.to_string().contains("neither 32 bytes nor their base64"), "{error}");
        }
    }

    #[test]
    fn a_key_is_not_shown_and_wiped() {
        fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let key = CustomerKey::from_file(&KEY).expect("32 bytes");
        wiped(&key.key);
        wiped(&key.md5);
        ExtraHeaders::new(true, Some(&key)).0.iter().for_each(|extra| wiped(&extra.value));
        let shown = format!("{key:?} {:?}", ExtraHeaders::new(true, Some(&key)));
        assert!(!shown.contains("MDEy") && !shown.contains(KEY_MD5), "{shown}");
        assert!(shown.contains("customer-key-md5"), "{shown}");
        let almost = format!("{}!", &KEY_BASE64[..43]);
        let error = CustomerKey::from_text(&almost).expect_err("no base64");
        assert!(!error.to_string().contains("MDEy"), "{error}");
    }

    #[test]
    fn listings_do_not_get_the_key() {
        let key = CustomerKey::from_file(&KEY).expect("32 bytes");
        let extras = ExtraHeaders::new(true, Some(&key));
        let names = |of_object| extras.iter(of_object).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(false), ["x-amz-request-payer"]);
        assert_eq!(names(true).len(), 4);
        assert_eq!(ExtraHeaders::default().iter(true).count(), 0);
    }
}
