//! What the credential chain is answered, in the one notation that aws-config takes. Others read
//! more: the AWS CLI takes all of this as it is.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::s3::uri::shown;
use crate::text::instant::{instant_text, parse_instant};

/// The part of STS's answer that says who was asked for. Nobody needs it.
const ROLE_USER: (&str, &str) = ("<AssumedRoleUser>", "</AssumedRoleUser>");

/// An answer: `Expiration` in the one notation that is read, and without what nobody needs and some
/// servers leave empty.
///
/// # Errors
/// If `Expiration` is not a time, in words.
pub(super) fn answered(body: Bytes) -> Result<Bytes, String> {
    if let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(&body) {
        let mut is_new = false;
        for (name, value) in &mut fields {
            if let (true, Value::String(text)) = (name.eq_ignore_ascii_case("Expiration"), value) {
                *text = parse_instant(text)
                    .and_then(instant_text)
                    .ok_or_else(|| format!("its {name} is no time: {}", shown(text)))?;
                is_new = true;
            }
        }
        let written = is_new.then(|| serde_json::to_vec(&fields).ok()).flatten();
        return Ok(written.map_or(body, Bytes::from));
    }
    let Ok(text) = std::str::from_utf8(&body) else { return Ok(body) };
    let around = text.split_once(ROLE_USER.0).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(ROLE_USER.1)?;
        Some([before, after].concat())
    });
    Ok(around.map_or_else(|| body.clone(), Bytes::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_answers_are_written_in_one_notation() {
        let written = |text: &str| {
            let body = format!(r#"{{"Code":"Success","Expiration":"{text}","Token":"t"}}"#);
            let body = answered(body.into())?;
            Ok::<_, String>(serde_json::from_slice::<Value>(&body).expect("JSON"))
        };
        for text in ["2024-01-02T03:04:05Z", "2024-01-02T04:04:05+01:00", "2024-01-02T03:04:05UTC"]
        {
            let found = written(text).expect("a time");
            assert_eq!(found["Expiration"], "2024-01-02T03:04:05Z", "{text}");
            assert_eq!((&found["Code"], &found["Token"]), (&"Success".into(), &"t".into()));
        }
        assert!(written("0001-01-01T00:00:00Z").is_err());
        assert_eq!(written("soon"), Err("its Expiration is no time: soon".to_owned()));
        for other in ["", "role-name", "[1]", r#"{"Token":"t"}"#, r#"{"Expiration":null}"#] {
            assert_eq!(answered(other.into()), Ok(Bytes::from(other)));
        }
        assert_eq!(answered(Bytes::from_static(b"\xff")), Ok(Bytes::from_static(b"\xff")));
    }

    #[test]
    fn who_was_asked_for_is_left_out() {
        let answer = "<R><AssumedRoleUser><Arn></Arn></AssumedRoleUser><Credentials/></R>";
        assert_eq!(answered(answer.into()), Ok("<R><Credentials/></R>".into()));
        let other = "<R><AssumedRoleUser><Arn>";
        assert_eq!(answered(other.into()), Ok(other.into()));
    }
}
