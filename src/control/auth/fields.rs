//! The JSON object that has keys: what a command prints, and what a container's agent answers.

use aws_credential_types::Credentials;
use serde_json::{Map, Value};

use crate::s3::uri::shown;
use crate::text::instant::parse_instant;

/// The field with the expiry of keys.
const EXPIRATION: &str = "Expiration";

/// The fields of the object; their names are compared without case.
pub(super) struct Fields {
    fields: Map<String, Value>,
    /// Verb of messages: a command `prints` fields, an answer `has` them.
    verb: &'static str,
}

impl Fields {
    /// `None` if it is no JSON object. The parser's error may quote secrets.
    pub(super) fn parse(text: &[u8], verb: &'static str) -> Option<Self> {
        let fields = serde_json::from_slice(text).ok()?;
        Some(Self { fields, verb })
    }

    /// The value of a field; `None` if it is missing or null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
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

    /// The keys; `token` is the name of the session token's field.
    ///
    /// # Errors
    /// The reason why there are none, without a value that could be secret.
    pub(super) fn keys(&self, token: &str, provider: &'static str) -> Result<Credentials, String> {
        let mut builder = Credentials::builder()
            .provider_name(provider)
            .access_key_id(self.needed("AccessKeyId")?)
            .secret_access_key(self.needed("SecretAccessKey")?);
        // An empty token is none.
        let is_none = self.get(token).is_some_and(|token| token == "");
        let token = if is_none { None } else { self.text(token)? };
        builder.set_session_token(token.map(str::to_owned));
        let expiry = self.text(EXPIRATION)?.map(|text| {
            let verb = self.verb;
            parse_instant(text)
                .ok_or_else(|| format!("{verb} {EXPIRATION}, which is no time: {}", shown(text)))
        });
        builder.set_expiry(expiry.transpose()?);
        Ok(builder.build())
    }
}
