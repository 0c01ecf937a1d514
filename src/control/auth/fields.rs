//! The JSON object that has keys: what a command prints, and what a container's agent answers.

use aws_credential_types::Credentials;
use serde_json::{Map, Value};
use zeroize::Zeroize as _;

use crate::s3::uri::shown;
use crate::text::instant::parse_instant;

/// The usual field with the expiry of keys.
pub(super) const EXPIRATION: &str = "Expiration";

/// The fields of the object; their names are compared without case. They are wiped when they are
/// dropped.
pub(super) struct Fields {
    fields: Map<String, Value>,
    /// Verb of messages: a command `prints` fields, an answer `has` them.
    verb: &'static str,
}

impl Drop for Fields {
    fn drop(&mut self) {
        wipe(&mut self.fields);
    }
}

/// Wipes all texts below.
pub(super) fn wipe(fields: &mut Map<String, Value>) {
    for value in fields.values_mut() {
        match value {
            Value::String(text) => text.zeroize(),
            Value::Object(inner) => wipe(inner),
            _ => {}
        }
    }
}

impl Fields {
    /// `None` if it is no JSON object. The parser's error may quote secrets.
    pub(super) fn parse(text: &[u8], verb: &'static str) -> Option<Self> {
        let fields = serde_json::from_slice(text).ok()?;
        Some(Self { fields, verb })
    }

    /// These fields.
    pub(super) const fn of(fields: Map<String, Value>, verb: &'static str) -> Self {
        Self { fields, verb }
    }

    /// The value of a field; `None` if it is missing or null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// The code and the message of a refusal, by the names of their fields; those that there are.
    pub(super) fn said(&self, names: [&str; 2]) -> String {
        let said: Vec<&str> =
            names.into_iter().filter_map(|name| self.get(name)?.as_str()).collect();
        said.join(": ")
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        let verb = self.verb;
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => {
                Err(format!("{verb} {name}, which is empty"))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{verb} {name}, which is no text")),
        }
    }

    fn needed(&self, name: &str) -> Result<&str, String> {
        self.text(name)?.ok_or_else(|| format!("{} no {name}", self.verb))
    }

    /// The keys; `token` and `expiration` are the names of the fields with the session token and
    /// with the expiry.
    ///
    /// # Errors
    /// The reason why there are none, without a value that could be secret.
    pub(super) fn keys(
        &self,
        token: &str,
        expiration: &str,
        provider: &'static str,
    ) -> Result<Credentials, String> {
        let mut builder = Credentials::builder()
            .provider_name(provider)
            .access_key_id(self.needed("AccessKeyId")?)
            .secret_access_key(self.needed("SecretAccessKey")?);
        // An empty token is none.
        let is_none = self.get(token).is_some_and(|token| token == "");
        let token = if is_none { None } else { self.text(token)? };
        builder.set_session_token(token.map(str::to_owned));
        let expiry = self.text(expiration)?.map(|text| {
            let verb = self.verb;
            parse_instant(text)
                .ok_or_else(|| format!("{verb} {expiration}, which is no time: {}", shown(text)))
        });
        builder.set_expiry(expiry.transpose()?);
        Ok(builder.build())
    }
}
