//! Normalizes the credential chain's requests and answers to the notation that aws-config accepts.
//! Servers and files have further notations, all of which the AWS CLI accepts.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::s3::uri::shown;
use crate::text::instant::{instant_text, parse_instant};

/// Parameter of a form that has a web identity's token.
const TOKEN: &str = "WebIdentityToken=";
/// The encoded line breaks at the end of a token file.
const LINE_BREAKS: [&str; 2] = ["%0A", "%0D"];
/// The part of STS's answer that names the assumed role. It is not needed.
const ROLE_USER: (&str, &str) = ("<AssumedRoleUser>", "</AssumedRoleUser>");

/// The body of a request, without the line break at the end of a web identity's token.
pub(super) fn asked(body: Bytes) -> Bytes {
    let Some(form) = std::str::from_utf8(&body).ok().filter(|form| form.contains(TOKEN)) else {
        return body;
    };
    let mut parts: Vec<&str> = form.split('&').collect();
    for part in parts.iter_mut().filter(|part| part.starts_with(TOKEN)) {
        while let Some(less) = LINE_BREAKS.iter().find_map(|end| part.strip_suffix(end)) {
            *part = less;
        }
    }
    parts.join("&").into()
}

/// The body of an answer: `Expiration` in the accepted notation, and without unneeded parts, which
/// some servers leave empty.
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

    #[test]
    fn a_token_has_no_line_break() {
        let form = |token: &str| format!("Action=A&WebIdentityToken={token}&Version=2011-06-15%0A");
        for end in ["", "%0A", "%0D%0A", "%0A%0A"] {
            let body = asked(form(&format!("a%0Ab{end}")).into());
            assert_eq!(body, form("a%0Ab"), "{end}");
        }
        assert_eq!(asked(Bytes::from("x%0A")), "x%0A");
    }
}
