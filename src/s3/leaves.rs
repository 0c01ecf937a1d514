//! The texts of an XML answer, element by element, and the keys among them.
//!
//! Pure. An error says what is wrong with the answer and quotes none of it.

use std::time::SystemTime;

use quick_xml::Reader;
use quick_xml::events::Event;
use zeroize::Zeroizing;

use super::list::resolve_reference;
use crate::text::instant::parse_instant;

/// The error of keys with characters that no key has, or of another length.
pub(super) const NO_KEYS: &str = "its keys cannot be keys";

/// Calls `leaf` with the path of each element below `root`, and its text, until `root` ends.
pub(super) fn read_leaves(
    body: &[u8],
    root: &str,
    mut leaf: impl FnMut(&[&str], Zeroizing<String>),
) -> Result<(), &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "it is not UTF-8")?;
    let mut reader = Reader::from_str(text);
    let mut path: Vec<String> = Vec::new();
    let mut piece = Zeroizing::new(String::new());
    loop {
        match reader.read_event().map_err(|_| "it is not XML")? {
            Event::Start(start) => {
                path.push(start.local_name().as_ref().to_owned());
                piece.clear();
            }
            Event::Text(text) => piece.push_str(&text.xml10_content()),
            Event::CData(text) => piece.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => piece.extend(resolve_reference(&reference)),
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                let text = std::mem::take(&mut piece);
                match names.split_first() {
                    Some((first, [])) if *first == root => return Ok(()),
                    Some((first, below)) if *first == root => leaf(below, text),
                    _ => {}
                }
                path.pop();
            }
            Event::Eof => return Err("it holds no complete answer"),
            _ => {}
        }
    }
}

/// The fields of temporary keys, as STS and S3 name them.
#[derive(Default)]
pub(super) struct KeyFields {
    access_key: Option<Zeroizing<String>>,
    secret: Option<Zeroizing<String>>,
    token: Option<Zeroizing<String>>,
    expiration: Option<Zeroizing<String>>,
}

impl KeyFields {
    /// Takes the field of this name, if it is one.
    pub(super) fn take(&mut self, name: &str, text: Zeroizing<String>) {
        let field = match name {
            "AccessKeyId" => &mut self.access_key,
            "SecretAccessKey" => &mut self.secret,
            "SessionToken" => &mut self.token,
            "Expiration" => &mut self.expiration,
            _ => return,
        };
        *field = Some(text);
    }

    /// Access key, secret, session token and expiry.
    pub(super) fn parts(&self) -> Result<(&str, &str, &str, SystemTime), &'static str> {
        let (Some(access_key), Some(secret), Some(token)) =
            (&self.access_key, &self.secret, &self.token)
        else {
            return Err("a part of the keys is missing");
        };
        // Without a token they would be other keys.
        if token.trim().is_empty() {
            return Err(NO_KEYS);
        }
        let expires = self.expiration.as_ref().and_then(|text| parse_instant(text));
        let expires = expires.ok_or("it does not say when the keys end")?;
        Ok((access_key, secret, token, expires))
    }
}
