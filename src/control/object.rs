//! One object: whether it is there, by a HEAD, and what the answer says of it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use http::Method;

use super::client::{Answer, Question};
use super::limits::HEADS_KEPT_MAX;
use super::{Ask, Control, refusal, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::answer::{CHECKSUM_MODE, ERROR_BODY_BYTES_MAX, may_refuse_header};
use crate::s3::grants::GrantTarget;
use crate::s3::uri::{encode_key, encode_query, quote_etag, shown};
use crate::s3::{Object, iso_date};

/// Answers to HEADs of single objects that were asked for their checksums, too: one request shows
/// that the object is there, and its checksum.
#[derive(Debug, Default)]
pub(super) struct CheckedHeads {
    is_wanted: Cell<bool>,
    /// By bucket, key and version; at most [`HEADS_KEPT_MAX`].
    answers: RefCell<HashMap<[String; 3], Answer>>,
}

impl CheckedHeads {
    /// Keeps an answer, if there is room.
    fn keep(&self, bucket: &str, key: &str, version: &str, answer: Answer) {
        let mut answers = self.answers.borrow_mut();
        if answers.len() < HEADS_KEPT_MAX {
            answers.insert([bucket, key, version].map(str::to_owned), answer);
        }
    }

    /// Takes the answer about an object, if there is one.
    pub(super) fn take(&self, bucket: &str, object: &Object) -> Option<Answer> {
        let name = [bucket, &object.key, &object.version_id].map(str::to_owned);
        self.answers.borrow_mut().remove(&name)
    }
}

impl Control {
    /// Makes HEADs of single objects request their checksums, too, because [`Self::checksum`] will
    /// be called for each.
    pub(crate) fn check_heads(&self) {
        self.checked_heads.is_wanted.set(true);
    }

    /// The object's size, ETag and date; `None` if there is none of this key and version. An empty
    /// version means the newest.
    pub async fn head(&self, bucket: &str, key: &str, version: &str) -> Result<Option<Object>> {
        let what = format!("head s3://{bucket}/{}", shown(key));
        let mut target = encode_key(key).to_string();
        if !version.is_empty() {
            target.push_str(&format!("?versionId={}", encode_query(version)));
        }
        let mut question = Question {
            method: Method::HEAD,
            target,
            of_object: true,
            headers: Vec::new(),
            body_bytes_max: ERROR_BODY_BYTES_MAX,
            leaves_rest: false,
        };
        let about = GrantTarget::Object(key);
        if self.checked_heads.is_wanted.get()
            && !self.endpoint(bucket, about).await?.habits.omits_checksum_mode()
        {
            question.headers = vec![(CHECKSUM_MODE, "ENABLED".into())];
        }
        let ask = Ask { bucket, about, question: question.clone(), what: &what };
        let mut answer = self.ask(ask).await?;
        if !question.headers.is_empty() && may_refuse_header(answer.status) {
            question.headers.clear();
            let question = question.clone();
            answer = self.ask(Ask { bucket, about, question, what: &what }).await?;
        }
        let has_no_length =
            |answer: &Answer| answer.status == 200 && answer.header("content-length").is_none();
        if has_no_length(&answer) {
            // Servers that decompress gzip objects for clients that do not accept gzip know no
            // length.
            question.headers = vec![("accept-encoding", "gzip, identity".into())];
            let question = question.clone();
            answer = self.ask(Ask { bucket, about, question, what: &what }).await?;
        }
        let answer = match answer.status {
            404 => return Ok(None),
            200 if !has_no_length(&answer) => answer,
            200 | 400 | 401 | 403 | 405 => {
                // An answer to HEAD has no body, so the reason is requested with the smallest GET.
                question.method = Method::GET;
                question.headers = vec![("range", "bytes=0-0".into())];
                let question = question.clone();
                self.ask(Ask { bucket, about, question, what: &what }).await?
            }
            _ => answer,
        };
        match answer.status {
            200 | 206 | 416 => {
                let object = object_of(key, &answer).map_err(|error| error.within(what))?;
                let is_checked = question.headers.iter().any(|(name, _)| *name == CHECKSUM_MODE);
                if is_checked && object.size_bytes > 0 {
                    self.checked_heads.keep(bucket, key, version, answer);
                }
                Ok(Some(Object { version_id: version.to_owned(), ..object }))
            }
            404 if server_error(&answer).code != "NoSuchBucket" => Ok(None),
            _ => Err(refusal(&answer, &what)),
        }
    }
}

/// The object in the headers of a HEAD, or of a GET of its first byte.
pub(super) fn object_of(key: &str, answer: &Answer) -> Result<Object> {
    let trouble = |why: &str| Error::new(ErrorKind::Endpoint, format!("the answer {why}"));
    let size = match answer.status {
        // `bytes 0-0/17`, or `bytes */0` for an empty object.
        206 | 416 => {
            answer.header("content-range").and_then(|range| Some(range.split_once('/')?.1))
        }
        _ => answer.header("content-length"),
    };
    let size = size.ok_or_else(|| trouble("does not say how long the object is"))?;
    let size = Object::parse_size(size)
        .map_err(|why| trouble(&format!("gives '{key}' a length that {why}")))?;
    let etag = quote_etag(answer.header("etag").unwrap_or(""));
    Ok(Object {
        key: key.to_owned(),
        etag: etag.ok_or_else(|| trouble("has an ETag with bad characters"))?,
        size_bytes: size,
        last_modified: answer.header("last-modified").map_or_else(String::new, iso_date),
        ..Object::default()
    })
}
