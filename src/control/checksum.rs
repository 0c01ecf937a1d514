//! Requests the stored checksum of an object that is fetched in ranges: the answers to ranges do
//! not have it.

use futures_util::{StreamExt as _, stream};
use http::Method;

use super::client::{Answer, Question};
#[cfg(doc)]
use super::limits::CHECKSUMS_ASKED_MAX;
use super::limits::PARTS_ASKED_MAX;
use super::{Ask, Control, object_of, refusal};
use crate::checksum::{Algorithm, Form, InOrder, Stored, etag_md5, unverified};
use crate::error::Result;
use crate::s3::Object;
use crate::s3::answer::{CHECKSUM_MODE, ERROR_BODY_BYTES_MAX, may_refuse_header};
use crate::s3::grants::GrantTarget;
use crate::s3::habit::Habit;
use crate::s3::uri::{encode_key, encode_query, quote_etag, shown};

/// An object's checksum, with the facts needed to compute it from pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChecksums {
    /// The checksum, or why there is none.
    pub stored: Result<Stored, &'static str>,
    /// Length of each part but the last, in bytes; 0 if they differ or it is unknown.
    pub part_bytes: u64,
    /// The ETag as an MD5, if it is one.
    pub etag: Option<Stored>,
}

impl StoredChecksums {
    /// The checksum to compare bytes with that come in order; if `strict`, an ETag that is an MD5
    /// counts.
    ///
    /// # Errors
    /// Why there is none.
    pub fn in_order(&self, strict: bool) -> Result<InOrder, &'static str> {
        let stored = match (self.stored, self.etag) {
            (Err(_), Some(etag)) if strict => etag,
            (stored, _) => stored?,
        };
        InOrder::new(stored, self.part_bytes).ok_or(unverified::PARTS_DIFFER)
    }
}

/// The parts of an object whose length is requested, by a HEAD each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartsAsked {
    /// Two parts, which determine the others if they are alike, as uploads make them.
    FirstAndLast,
    /// All parts: bytes that do not match the checksum may be right, with parts of unusual lengths.
    All,
}

impl Control {
    /// The stored checksum of an object. An object that has changed since its listing has none: its
    /// GETs will notice. For a checksum of parts, `asked` selects the parts whose length is
    /// requested. At most [`CHECKSUMS_ASKED_MAX`] objects at once; others wait.
    pub async fn checksum(
        &self,
        bucket: &str,
        object: &Object,
        asked: PartsAsked,
    ) -> Result<StoredChecksums> {
        let _turn = self.checksums_asked.acquire().await.expect("it is never closed");
        let what = format!("head s3://{bucket}/{}", shown(&object.key));
        let answer = match self.checked_heads.take(bucket, object) {
            Some(answer) => answer,
            None => self.ask_head(bucket, object, "", &what).await?,
        };
        let found = object_of(&object.key, &answer).map_err(|error| error.within(&what))?;
        let changed = !object.etag.is_empty() && found.etag != object.etag;
        let is_other =
            StoredChecksums { stored: Err(unverified::CHANGED), part_bytes: 0, etag: None };
        if changed || found.size_bytes != object.size_bytes {
            return Ok(is_other);
        }
        let opaque = answer.header("x-amz-server-side-encryption-customer-algorithm").is_some()
            || answer
                .header("x-amz-server-side-encryption")
                .is_some_and(|kind| !kind.eq_ignore_ascii_case("AES256"));
        let stored = stored(&answer);
        let part_bytes = match stored {
            Ok(Stored { form: Form::Composite { parts: parts @ 2.. }, .. }) => {
                let object = Object { etag: found.etag.clone(), ..object.clone() };
                match self.part_bytes(bucket, &object, (parts, asked), &what).await? {
                    Some(part_bytes) => part_bytes,
                    None => return Ok(is_other),
                }
            }
            _ => 0,
        };
        let etag = etag_md5(&found.etag).filter(|_| !opaque);
        Ok(StoredChecksums { stored, part_bytes, etag })
    }

    /// The length of all parts but the last, in bytes; 0 if they differ, and `None` if the object
    /// has changed meanwhile. If only the first and the last part are requested, the first one's
    /// length is assumed for the others if the last one's is the remainder then: with four or more
    /// parts that may be wrong.
    async fn part_bytes(
        &self,
        bucket: &str,
        object: &Object,
        (parts, asked): (u32, PartsAsked),
        what: &str,
    ) -> Result<Option<u64>> {
        let first = match self.part_length(bucket, object, (1, parts), what).await? {
            Some(length @ 1..) => length,
            other => return Ok(other),
        };
        let Some(last) = self.part_length(bucket, object, (parts, parts), what).await? else {
            return Ok(None);
        };
        let others = first.checked_mul(u64::from(parts) - 1);
        let fit = others.and_then(|others| others.checked_add(last)) == Some(object.size_bytes);
        if !fit || last == 0 || last > first {
            return Ok(Some(0));
        }
        let between = match asked {
            PartsAsked::FirstAndLast => 2..2,
            PartsAsked::All => 2..parts,
        };
        let lengths = between.map(|number| self.part_length(bucket, object, (number, parts), what));
        let mut lengths = stream::iter(lengths).buffered(PARTS_ASKED_MAX);
        while let Some(length) = lengths.next().await {
            match length? {
                Some(length) if length == first => {}
                other => return Ok(other.map(|_| 0)),
            }
        }
        Ok(Some(first))
    }

    /// The length of one of an object's parts, in bytes; 0 if unknown, and `None` if the object has
    /// changed meanwhile.
    async fn part_length(
        &self,
        bucket: &str,
        object: &Object,
        (number, parts): (u32, u32),
        what: &str,
    ) -> Result<Option<u64>> {
        let query = format!("partNumber={number}");
        let answer = self.ask_head(bucket, object, &query, what).await?;
        if answer
            .header("etag")
            .is_some_and(|etag| quote_etag(etag).as_deref() != Some(&object.etag))
        {
            return Ok(None);
        }
        let counted = answer.header("x-amz-mp-parts-count").and_then(|text| text.parse().ok());
        let length = answer.header("content-length").filter(|_| counted == Some(parts));
        Ok(Some(length.and_then(|text| Object::parse_size(text).ok()).unwrap_or(0)))
    }

    async fn ask_head(
        &self,
        bucket: &str,
        object: &Object,
        query: &str,
        what: &str,
    ) -> Result<Answer> {
        let mut target = encode_key(&object.key).to_string();
        let version = match object.version_id.as_str() {
            "" => String::new(),
            version => format!("versionId={}", encode_query(version)),
        };
        for (pair, sign) in
            [query, &version].into_iter().filter(|pair| !pair.is_empty()).zip("?&".chars())
        {
            target.push(sign);
            target.push_str(pair);
        }
        let about = GrantTarget::Object(&object.key);
        let endpoint = self.endpoint(bucket, about).await?;
        let ask = async |with_mode: bool| {
            let question = Question {
                method: Method::HEAD,
                target: target.clone(),
                of_object: true,
                headers: with_mode.then(|| (CHECKSUM_MODE, "ENABLED".into())).into_iter().collect(),
                body_bytes_max: ERROR_BODY_BYTES_MAX,
                leaves_rest: false,
            };
            self.ask(Ask { bucket, about, question, what }).await
        };
        let with_mode = !endpoint.habits.omits_checksum_mode();
        let mut answer = ask(with_mode).await?;
        if with_mode && (200..300).contains(&answer.status) {
            endpoint.habits.note(Habit::AcceptsChecksumMode);
        }
        if with_mode && may_refuse_header(answer.status) {
            // The answer to a HEAD does not name the cause: it is the checksum header only if
            // nothing else differs.
            let without = ask(false).await?;
            if (200..300).contains(&without.status) {
                answer = ask(true).await?;
                if may_refuse_header(answer.status) {
                    endpoint.note_habit(Habit::RefusesChecksumMode);
                    answer = without;
                }
            }
        }
        match answer.status {
            200 | 206 => Ok(answer),
            _ => Err(refusal(&answer, what)),
        }
    }
}

/// The checksum in an answer's headers.
fn stored(answer: &Answer) -> Result<Stored, &'static str> {
    let kind = answer.header("x-amz-checksum-type").map(str::as_bytes);
    let mut unknown = false;
    let mut best: Option<(Algorithm, &[u8])> = None;
    for (name, value) in &answer.headers {
        let name = name.as_str();
        match Algorithm::of_header(name) {
            Some(algorithm) if best.is_none_or(|(other, _)| algorithm < other) => {
                best = Some((algorithm, value.as_bytes()));
            }
            Some(_) => {}
            None => {
                let other = name.strip_prefix("x-amz-checksum-");
                unknown |= other.is_some_and(|other| other != "type");
            }
        }
    }
    match best {
        Some((algorithm, value)) => {
            let etag = answer.header("etag").unwrap_or_default();
            Stored::of_headers(algorithm, value, kind, etag.as_bytes())
        }
        None if unknown => Err(unverified::UNSUPPORTED),
        None => Err(unverified::NOT_STORED),
    }
}

#[cfg(test)]
mod tests {
    use super::super::loopback::{AtOnce, Reply, Server, control, run};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const CRC: &str = "y/Q5Jg==";

    fn asked(
        object: &Object,
        answer: impl Fn(&str, Reply) -> Reply + Send + Sync + 'static,
    ) -> (Result<StoredChecksums>, Vec<String>) {
        let server = Server::start(move |head| {
            let size = match head {
                head if head.contains("partNumber=1 ") => "8",
                head if head.contains("partNumber=3 ") => "4",
                _ => "20",
            };
            let status = if head.contains("partNumber") { 206 } else { 200 };
            let reply = Reply::new(status, "").header("Content-Length", size);
            answer(head, reply.header("ETag", "\"e\"").header("x-amz-mp-parts-count", "3"))
        });
        let outcome = run(async {
            control(&server).await.checksum("bkt", object, PartsAsked::FirstAndLast).await
        });
        (outcome, server.seen())
    }

    fn object() -> Object {
        let (key, etag) = ("a b".to_owned(), "\"e\"".to_owned());
        Object { key, etag, size_bytes: 20, ..Object::default() }
    }

    #[test]
    fn one_question_for_a_checksum_of_all_bytes() {
        let object = Object { version_id: "v+1".to_owned(), ..object() };
        let (outcome, seen) = asked(&object, |_, reply| {
            reply
                .header("x-amz-checksum-sha1", "AAAA")
                .header("x-amz-checksum-crc32", CRC)
                .header("x-amz-checksum-type", "FULL_OBJECT")
        });
        let outcome = outcome.expect("an answer");
        let stored = outcome.stored.expect("a checksum");
        assert_eq!((stored.algorithm, stored.form), (Algorithm::Crc32, Form::FullObject));
        assert_eq!((outcome.part_bytes, outcome.etag), (0, None));
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with("HEAD /bkt/a%20b?versionId=v%2B1 HTTP/1.1\r\n"), "{}", seen[0]);
        assert!(seen[0].contains("\r\nx-amz-checksum-mode: ENABLED\r\n"), "{}", seen[0]);
        assert!(seen[0].contains(";x-amz-checksum-mode;"), "it is signed: {}", seen[0]);
    }

    /// The stored checksum of one object, requested twice by one control plane.
    fn stored_twice(server: &Server) -> [Result<Stored, &'static str>; 2] {
        run(async {
            let (control, object) = (control(server).await, object());
            let ask = || control.checksum("bkt", &object, PartsAsked::FirstAndLast);
            [ask().await, ask().await].map(|outcome| outcome.expect("an answer").stored)
        })
    }

    #[test]
    fn a_server_that_refuses_to_be_asked_is_asked_without() {
        for refusal in [400, 501] {
            let server = Server::start(move |head| match head.contains("x-amz-checksum-mode") {
                true => Reply::new(refusal, ""),
                false => Reply::new(200, "").header("Content-Length", "20").header("ETag", "\"e\""),
            });
            assert_eq!(stored_twice(&server), [Err(unverified::NOT_STORED); 2]);
            assert_eq!(server.seen().len(), 4, "the second time it knows");
        }
        // For example, credentials that had just expired.
        let refused = AtomicBool::new(false);
        let server = Server::start(move |_| match refused.swap(true, Ordering::Relaxed) {
            false => Reply::new(400, ""),
            true => Reply::new(200, "")
                .header("Content-Length", "20")
                .header("ETag", "\"e\"")
                .header("x-amz-checksum-crc32", CRC),
        });
        assert!(stored_twice(&server).iter().all(Result::is_ok), "one refusal is no rule");
        assert_eq!(server.seen().len(), 4);
    }

    #[test]
    fn parts_are_of_one_length_when_first_and_last_say_so() {
        let check = |header: &'static str, size_bytes: u64, expected: u64| {
            let object = Object { size_bytes, ..object() };
            let (outcome, seen) = asked(&object, move |head, reply| {
                let whole = !head.contains("partNumber");
                let reply = reply.header("x-amz-checksum-crc32", header);
                match whole && size_bytes != 20 {
                    true => Reply::new(200, "")
                        .header("Content-Length", &size_bytes.to_string())
                        .header("ETag", "\"e\"")
                        .header("x-amz-checksum-crc32", header),
                    false => reply,
                }
            });
            assert_eq!(outcome.expect("an answer").part_bytes, expected, "{header} {size_bytes}");
            seen
        };
        let seen = check("y/Q5Jg==-3", 20, 8);
        assert_eq!(seen.len(), 3);
        assert!(seen[1].starts_with("HEAD /bkt/a%20b?partNumber=1 "), "{}", seen[1]);
        // A part in the middle is longer or shorter.
        check("y/Q5Jg==-3", 21, 0);
        check("y/Q5Jg==-3", 19, 0);
        // The number of parts is another.
        assert_eq!(check("y/Q5Jg==-4", 20, 0).len(), 2);
        // There is only one part.
        assert_eq!(check("y/Q5Jg==-1", 20, 0).len(), 1);
    }

    /// The answer to a HEAD of an object of these parts, or of one of them, whose ETag is this one.
    fn answer_of_parts(head: &str, lengths: &[u64], etag: &str) -> Reply {
        let number = head.split_once("partNumber=").map(|(_, rest)| {
            let digits = rest.split([' ', '&']).next().expect("a word");
            digits.parse::<usize>().expect("a number")
        });
        let (status, length, etag) = match number {
            Some(number) => (206, lengths[number - 1], etag),
            None => (200, lengths.iter().sum(), "\"e\""),
        };
        let parts = lengths.len();
        let reply = Reply::new(status, "").header("Content-Length", &length.to_string());
        let reply = reply.header("ETag", etag);
        let reply = reply.header("x-amz-mp-parts-count", &parts.to_string());
        reply.header("x-amz-checksum-crc32", &format!("{CRC}-{parts}"))
    }

    /// The checksum of an object of these parts, with this ETag in the answers to all but the first
    /// question; and how many questions there were.
    fn checksum_of_parts(
        lengths: &'static [u64],
        etag: &'static str,
        asked: PartsAsked,
    ) -> (StoredChecksums, usize) {
        let server = Server::start(move |head| answer_of_parts(head, lengths, etag));
        let object = Object { size_bytes: lengths.iter().sum(), ..object() };
        let found = run(async { control(&server).await.checksum("bkt", &object, asked).await });
        (found.expect("an answer"), server.seen().len())
    }

    #[test]
    fn parts_that_differ_in_the_middle_are_found_where_all_are_asked_for() {
        let odd = &[8, 6, 10, 4][..];
        for (lengths, asked, part_bytes, questions) in [
            (odd, PartsAsked::FirstAndLast, 8, 3..=3),
            // The others may be under way when the first odd one is known.
            (odd, PartsAsked::All, 0, 4..=5),
            (&[8, 8, 8, 4], PartsAsked::All, 8, 5..=5),
            (&[8, 4], PartsAsked::All, 8, 3..=3),
        ] {
            let (found, seen) = checksum_of_parts(lengths, "\"e\"", asked);
            assert_eq!(found.part_bytes, part_bytes, "{lengths:?} {asked:?}");
            assert!(questions.contains(&seen), "{lengths:?} {asked:?}: {seen}");
        }
    }

    #[test]
    fn many_parts_are_asked_for_at_once() {
        static AT_ONCE: AtOnce = AtOnce::new();
        let server = Server::start(|head| {
            AT_ONCE.take_a_moment();
            answer_of_parts(head, &[8; 100], "\"e\"")
        });
        let object = Object { size_bytes: 800, ..object() };
        let all = PartsAsked::All;
        let found = run(async { control(&server).await.checksum("bkt", &object, all).await });
        assert_eq!(found.expect("an answer").part_bytes, 8);
        assert_eq!(server.seen().len(), 101, "one question for each, and one for the object");
        let most = AT_ONCE.most();
        assert!((2..=PARTS_ASKED_MAX).contains(&most), "{most} at once");
    }

    #[test]
    fn parts_of_another_version_prove_nothing() {
        let (outcome, _) = checksum_of_parts(&[8, 8, 4], "\"f\"", PartsAsked::FirstAndLast);
        assert_eq!((outcome.stored, outcome.part_bytes), (Err(unverified::CHANGED), 0));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let check = |object: &Object, name: &'static str, value: &'static str, word: &str| {
            let (outcome, _) = asked(object, move |_, reply| reply.header(name, value));
            let why = outcome.expect("an answer").stored.expect_err("no checksum");
            assert!(why.contains(word), "{why}");
        };
        check(&object(), "x-other", "x", "no checksum");
        check(&object(), "x-amz-checksum-blake3", "x", "not supported");
        check(&object(), "x-amz-checksum-crc32", "x", "cannot be read");
        let changed = Object { etag: "\"f\"".to_owned(), ..object() };
        check(&changed, "x-amz-checksum-crc32", CRC, "has changed");
        let longer = Object { size_bytes: 21, ..object() };
        check(&longer, "x-amz-checksum-crc32", CRC, "has changed");
    }

    #[test]
    fn an_etag_is_an_md5_unless_keys_are_in_play() {
        const MD5: &str = "\"25f9e794323b453885f5181f1b624d0b\"";
        let check = |name: &'static str, value: &'static str, expected: bool| {
            let object = Object { etag: MD5.to_owned(), ..object() };
            let (outcome, _) = asked(&object, move |_, _| {
                let reply = Reply::new(200, "").header("Content-Length", "20");
                reply.header("ETag", MD5).header(name, value)
            });
            assert_eq!(outcome.expect("an answer").etag.is_some(), expected, "{name}: {value}");
        };
        check("x-other", "x", true);
        check("x-amz-server-side-encryption", "AES256", true);
        check("x-amz-server-side-encryption", "aws:kms", false);
        check("x-amz-server-side-encryption-customer-algorithm", "AES256", false);
    }

    #[test]
    fn a_refusal_is_an_error() {
        let server = Server::start(|_| Reply::new(403, ""));
        let outcome = run(async {
            control(&server).await.checksum("bkt", &object(), PartsAsked::FirstAndLast).await
        });
        let error = outcome.expect_err("refused");
        assert_eq!(error.kind(), crate::error::ErrorKind::Access, "{error}");
    }
}
