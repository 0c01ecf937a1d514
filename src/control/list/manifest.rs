//! Fetches manifests and indexes from objects: in pieces, completely or not at all.

use std::fmt;

use http::Method;

use crate::control::client::{Question, no_memory};
use crate::control::limits::{
    MANIFEST_BYTES_MAX, MANIFEST_OBJECTS_MAX, MANIFEST_PIECE_BYTES, MODEL_INDEX_BYTES_MAX,
};
use crate::control::{Ask, Control, refusal, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::AUGMENTED_BYTES_MAX;
use crate::plan::manifest::{Layout, parse};
use crate::s3::grants::GrantTarget;
use crate::s3::uri::{S3Uri, encode_key, shown};

impl Control {
    /// The objects in the manifest with this key, in its order.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::Usage`] if it is invalid, or exceeds
    /// [`MANIFEST_BYTES_MAX`] or [`MANIFEST_OBJECTS_MAX`].
    pub async fn manifest(&self, bucket: &str, key: &str, layout: Layout) -> Result<Vec<S3Uri>> {
        let bytes = self.fetch(bucket, key, ("manifest", MANIFEST_BYTES_MAX as u64)).await?;
        let parsed = parse(&bytes, layout, MANIFEST_OBJECTS_MAX);
        parsed.map_err(|error| error.within(format!("s3://{bucket}/{}", shown(key))))
    }

    /// The text of the augmented manifest with this key.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::Usage`] if it, together with those
    /// fetched before, exceeds [`AUGMENTED_BYTES_MAX`].
    pub async fn augmented_manifest(&self, bucket: &str, key: &str) -> Result<Vec<u8>> {
        let text = self.fetch(bucket, key, ("manifest", AUGMENTED_BYTES_MAX)).await?;
        let sum = self.augmented_bytes.get().saturating_add(text.len() as u64);
        if sum > AUGMENTED_BYTES_MAX {
            let message = format!(
                "get s3://{bucket}/{}: the augmented manifests of a job have at most \
                 {AUGMENTED_BYTES_MAX} bytes together",
                shown(key)
            );
            return Err(Error::new(ErrorKind::Usage, message).advise("split the job"));
        }
        self.augmented_bytes.set(sum);
        Ok(text)
    }

    /// The text of the index of a model with this key.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::Usage`] if it exceeds
    /// [`MODEL_INDEX_BYTES_MAX`].
    pub async fn model_index(&self, bucket: &str, key: &str) -> Result<Vec<u8>> {
        self.fetch(bucket, key, ("index", MODEL_INDEX_BYTES_MAX)).await
    }

    /// The bytes of a list: a `noun` that has at most `bytes_max`.
    async fn fetch(
        &self,
        bucket: &str,
        key: &str,
        (noun, bytes_max): (&str, u64),
    ) -> Result<Vec<u8>> {
        let what = format!("get s3://{bucket}/{}", shown(key));
        let trouble =
            |why: &str| Err(Error::new(ErrorKind::Endpoint, format!("{what}: the answer {why}")));
        let mut bytes: Vec<u8> = Vec::new();
        let mut first_etag = None;
        // Total length by the first piece.
        let mut first_total = None;
        loop {
            let asked = Piece::after(bytes.len() as u64);
            let question = Question {
                method: Method::GET,
                target: encode_key(key).to_string(),
                of_object: true,
                headers: vec![("range", asked.to_string().into())],
                // A server without ranges sends all of it.
                body_bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
                leaves_rest: false,
            };
            let answer = self
                .ask(Ask { bucket, about: GrantTarget::Object(key), question, what: &what })
                .await?;
            match answer.status {
                // The manifest is empty.
                416 if bytes.is_empty() && server_error(&answer).code == "InvalidRange" => {
                    return Ok(bytes);
                }
                200 | 206 => {}
                404 if server_error(&answer).code != "NoSuchBucket" => {
                    let message = format!("s3://{bucket}/{}: there is no such {noun}", shown(key));
                    return Err(Error::new(ErrorKind::NotFound, message)
                        .advise("check the bucket and the key"));
                }
                _ => return Err(refusal(&answer, &what)),
            }
            let replaced = || {
                let message = format!("{what}: it was replaced while it was read");
                Err(Error::new(ErrorKind::Objects, message).advise("run it again"))
            };
            let etag = answer.header("etag").unwrap_or_default().to_owned();
            if *first_etag.get_or_insert_with(|| etag.clone()) != etag {
                return replaced();
            }
            if answer.status == 200 {
                return Ok(answer.body.into());
            }
            let Some((piece, total)) = answer.header("content-range").and_then(Piece::parse) else {
                return trouble("does not say which bytes of how many it has");
            };
            if *first_total.get_or_insert(total) != total {
                return replaced();
            }
            if total > bytes_max {
                let message = format!("{what}: the {noun} has more than {bytes_max} bytes");
                return Err(Error::new(ErrorKind::Usage, message)
                    .advise("split it, or give a common prefix"));
            }
            if piece != asked.within(total) || answer.body.len() as u64 != piece.length() {
                return trouble("has other bytes than were requested");
            }
            // One allocation, for all of it.
            let left = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            let all = bytes.len().saturating_add(left);
            bytes
                .try_reserve_exact(left)
                .map_err(|_| no_memory(&format!("the {noun}"), all).within(&what))?;
            bytes.extend_from_slice(&answer.body);
            if bytes.len() as u64 == total {
                return Ok(bytes);
            }
        }
    }
}

/// A range of a manifest's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    first: u64,
    last: u64,
}

impl Piece {
    /// The piece to request after this many bytes.
    const fn after(bytes: u64) -> Self {
        Self { first: bytes, last: bytes + MANIFEST_PIECE_BYTES as u64 - 1 }
    }

    /// The part of the piece that exists if the total is `total` bytes.
    fn within(self, total: u64) -> Self {
        Self { last: self.last.min(total.saturating_sub(1)), ..self }
    }

    /// The range and the total length of a Content-Range.
    fn parse(text: &str) -> Option<(Self, u64)> {
        let (bytes, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = bytes.split_once('-')?;
        let [first, last, total] = [first, last, total].map(|number| number.parse::<u64>().ok());
        let (first, last, total) = (first?, last?, total?);
        (first <= last && last < total).then_some((Self { first, last }, total))
    }

    const fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes={}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, control, run};
    use crate::s3::answer::ERROR_BODY_BYTES_MAX;

    fn fetched(server: &Server) -> Result<Vec<u8>> {
        let most = MANIFEST_BYTES_MAX as u64;
        run(async { control(server).await.fetch("bkt", "a b/list", ("manifest", most)).await })
    }

    /// Serves the ranges of this text with this status.
    fn serve(
        text: String,
        status: u16,
        etag: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Server {
        Server::start(move |head| {
            let range = head.split("range: bytes=").nth(1).and_then(|rest| rest.lines().next());
            let (start, end) = range.and_then(|range| range.split_once('-')).expect("a range");
            let start: usize = start.parse().expect("a number");
            let end = end.parse::<usize>().expect("a number").min(text.len() - 1);
            let range = format!("bytes {start}-{end}/{}", text.len());
            let reply = Reply::new(status, &text[start..=end]).header("Content-Range", &range);
            reply.header("ETag", &etag(start))
        })
    }

    #[test]
    fn a_long_one_comes_in_pieces() {
        let text = "0123456789".repeat(MANIFEST_PIECE_BYTES / 8);
        for status in [206, 200] {
            let server = serve(text.clone(), status, |_| "\"e\"".to_owned());
            let bytes = fetched(&server).expect("it is there");
            assert!(bytes == text.as_bytes());
            let seen = server.seen();
            assert_eq!(seen.len(), 2);
            assert!(seen[0].starts_with("GET /bkt/a%20b/list HTTP/1.1\r\n"), "{}", seen[0]);
            assert!(seen[1].contains("\r\nrange: bytes=8388608-16777215\r\n"), "{}", seen[1]);
        }

        let server = serve(text, 206, |start| format!("\"{start}\""));
        let error = fetched(&server).expect_err("two versions");
        assert!(error.to_string().contains("it was replaced while it was read"), "{error}");
    }

    #[test]
    fn other_answers() {
        let check = |reply: fn() -> Reply, expected: &str| {
            let fetched = fetched(&Server::start(move |_| reply()));
            let outcome = match fetched {
                Ok(bytes) => format!("{} bytes", bytes.len()),
                Err(error) => format!("{:?}: {error}", error.kind()),
            };
            assert!(outcome.contains(expected), "{outcome}");
        };
        check(|| Reply::new(200, "[]"), "2 bytes");
        let empty = || Reply::new(416, "<Error><Code>InvalidRange</Code></Error>");
        check(empty, "0 bytes");
        let none = || Reply::new(404, "<Error><Code>NoSuchKey</Code></Error>");
        check(none, "NotFound: s3://bkt/a b/list: there is no such manifest");
        let none = || Reply::new(404, "<Error><Code>NoSuchBucket</Code></Error>");
        check(none, "NotFound: get s3://bkt/a b/list: the server answered 404 NoSuchBucket");
        let refused = || Reply::new(403, "<Error><Code>AccessDenied</Code></Error>");
        check(refused, "Access: get s3://bkt/a b/list");
        check(|| Reply::new(206, "x"), "does not say which bytes of how many it has");
        let long = || Reply::new(206, "x").header("Content-Range", "bytes 0-0/134217729");
        check(long, "Usage: get s3://bkt/a b/list: the manifest has more than 134217728 bytes");
        let other = || Reply::new(206, "xyz").header("Content-Range", "bytes 0-1/2");
        check(other, "has other bytes than were requested");
        let nothing = || Reply::new(206, "").header("Content-Range", "bytes 0-1/2");
        check(nothing, "has other bytes than were requested");
        let from_its_middle = || Reply::new(206, "xy").header("Content-Range", "bytes 1-2/3");
        check(from_its_middle, "has other bytes than were requested");
        let short = || Reply::new(206, "xy").header("Content-Range", "bytes 0-1/3");
        check(short, "has other bytes than were requested");
        let mad = || Reply::new(206, "xy").header("Content-Range", "bytes 1-0/3");
        check(mad, "does not say which bytes of how many it has");
        let long = || Reply::new(206, " ".repeat(MANIFEST_PIECE_BYTES + 2));
        check(long, "has more than 8388609 bytes");
        let long = || Reply::new(403, " ".repeat(ERROR_BODY_BYTES_MAX + 1));
        check(long, "has more than 65536 bytes");
    }

    /// Serves two pieces of a manifest, the second with this Content-Range.
    fn second(range: &'static str) -> String {
        let server = Server::start(move |head| {
            let (length, range) = match head.contains("range: bytes=0-") {
                true => (MANIFEST_PIECE_BYTES, "bytes 0-8388607/8388618"),
                false => (10, range),
            };
            Reply::new(206, "x".repeat(length)).header("Content-Range", range)
        });
        match fetched(&server) {
            Ok(bytes) => format!("{} bytes", bytes.len()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_piece_is_what_was_asked_for() {
        assert_eq!(second("bytes 8388608-8388617/8388618"), "8388618 bytes");
        for wrong in ["bytes 0-9/8388618", "bytes 8388607-8388616/8388618"] {
            let outcome = second(wrong);
            assert!(outcome.contains("has other bytes than were requested"), "{wrong}: {outcome}");
        }
        let outcome = second("bytes 8388608-8388617/8388619");
        assert!(outcome.contains("it was replaced while it was read"), "{outcome}");
    }

    #[test]
    fn augmented_ones_of_a_job_share_a_bound() {
        let server = Server::start(|_| Reply::new(200, "{}"));
        let outcome = run(async {
            let control = control(&server).await;
            control.augmented_bytes.set(AUGMENTED_BYTES_MAX - 3);
            control.augmented_manifest("bkt", "l").await.expect("there is room");
            control.augmented_manifest("bkt", "l").await
        });
        let error = outcome.expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("at most 4294967296 bytes together"), "{error}");
    }

    #[test]
    fn an_augmented_one_may_be_longer() {
        let server =
            Server::start(|_| Reply::new(206, "x").header("Content-Range", "bytes 0-0/4294967297"));
        let fetched = run(async { control(&server).await.augmented_manifest("bkt", "l").await });
        let error = fetched.expect_err("too long").to_string();
        assert!(error.contains("the manifest has more than 4294967296 bytes"), "{error}");
        let server = Server::start(|_| Reply::new(200, "{}"));
        let fetched = run(async { control(&server).await.augmented_manifest("bkt", "l").await });
        assert_eq!(fetched.expect("it is there"), b"{}");
    }

    #[test]
    fn what_is_wrong_in_it_is_reported_with_its_name() {
        let server = Server::start(|_| Reply::new(200, r#"[{"prefix":"s3://bkt/"},7]"#));
        let parsed = run(async {
            let control = control(&server).await;
            control.manifest("bkt", "list", Layout::Relative).await
        });
        let error = parsed.expect_err("no manifest").to_string();
        assert!(error.starts_with("s3://bkt/list: it is not a manifest: "), "{error}");
        assert!(error.contains("expected a string in entry 1"), "{error}");
    }
}
