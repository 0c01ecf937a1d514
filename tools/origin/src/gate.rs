//! Between hyper and the connection: the head of an answer, slow, after others, or not true.
//!
//! hyper writes no head that is wrong, and none in pieces. What is behind a head passes untouched.
//! Not here: when; a fault says so through the connection's [`Link`].

use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::link::{HeadAct, Link};

/// The writing half is watched for heads; the reading half is the connection's own.
#[derive(Debug)]
pub(crate) struct Gate<S> {
    inner: S,
    link: Rc<Link>,
    out: Option<Outgoing>,
}

/// What is written instead of bytes that hyper gave.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Number of hyper's bytes that are done when all of these are.
    stands_for: usize,
    drip: Option<(usize, Duration)>,
    /// The last piece is to leave before the next is made.
    flush: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> Gate<S> {
    pub(crate) fn new(inner: S, link: Rc<Link>) -> Self {
        Self { inner, link, out: None }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }
}

impl Outgoing {
    fn new(bytes: &[u8], head: &Range<usize>, act: HeadAct) -> Self {
        let text = &bytes[head.clone()];
        let (mut out, mut drip) = (bytes[..head.start].to_vec(), None);
        match act {
            HeadAct::Drip { bytes, pause } => {
                drip = Some((bytes.max(1), pause));
                out.extend_from_slice(text);
            }
            HeadAct::Interim { status, count } => {
                for _ in 0..count {
                    out.extend_from_slice(interim(status).as_bytes());
                }
                out.extend_from_slice(text);
            }
            HeadAct::Length { by } => out.extend_from_slice(with_length(text, by).as_bytes()),
        }
        Self { bytes: out, sent: 0, stands_for: head.end, drip, flush: false, sleep: None }
    }

    fn poll_all<S: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        while self.sent < self.bytes.len() {
            if self.flush {
                ready!(Pin::new(&mut *inner).poll_flush(context))?;
                self.flush = false;
            }
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            let most = self.drip.map_or(usize::MAX, |(bytes, _)| bytes);
            let end = self.sent.saturating_add(most).min(self.bytes.len());
            let piece = &self.bytes[self.sent..end];
            let count = ready!(Pin::new(&mut *inner).poll_write(context, piece))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            if let Some((_, pause)) = self.drip {
                self.flush = true;
                self.sleep = Some(Box::pin(sleep(pause)));
            }
        }
        Poll::Ready(Ok(self.stands_for))
    }
}

/// Where a head is in what hyper writes; the body of an earlier answer may still be before it.
fn head_in(bytes: &[u8]) -> Option<Range<usize>> {
    let find = |text: &[u8], from: usize| {
        let rest = bytes.get(from..)?;
        rest.windows(text.len()).position(|window| window == text).map(|at| from + at)
    };
    let start = find(b"HTTP/1.", 0)?;
    Some(start..find(b"\r\n\r\n", start)? + 4)
}

fn interim(status: u16) -> &'static str {
    match status {
        103 => "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n",
        102 => "HTTP/1.1 102 Processing\r\n\r\n",
        _ => "HTTP/1.1 100 Continue\r\n\r\n",
    }
}

fn with_length(head: &[u8], by: i32) -> String {
    let head = String::from_utf8_lossy(head);
    let changed = head.split_inclusive("\r\n").map(|line| {
        let value =
            line.strip_prefix("content-length: ").and_then(|rest| rest.strip_suffix("\r\n"));
        match value.and_then(|digits| digits.parse::<u64>().ok()) {
            Some(length) => {
                format!("content-length: {}\r\n", length.saturating_add_signed(i64::from(by)))
            }
            None => line.to_owned(),
        }
    });
    changed.collect()
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.out.is_none()
            && let Some(act) = this.link.head_act.get()
            && let Some(head) = head_in(bytes)
        {
            this.link.head_act.set(None);
            this.out = Some(Outgoing::new(bytes, &head, act));
        }
        match &mut this.out {
            Some(out) => {
                let done = ready!(out.poll_all(&mut this.inner, context));
                this.out = None;
                Poll::Ready(done)
            }
            None => Pin::new(&mut this.inner).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.out.is_none() && self.link.head_act.get().is_none() {
            return Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        }
        // A head is in one piece of its own, or before a body.
        let first = bytes.iter().find(|piece| !piece.is_empty());
        self.poll_write(context, first.map_or(&[][..], |piece| piece))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 206 Partial Content\r\ncontent-length: 10\r\nserver: x\r\n\r\n";

    #[test]
    fn heads_are_found_behind_bodies() {
        let mut bytes = b"body".to_vec();
        bytes.extend_from_slice(HEAD);
        bytes.extend_from_slice(b"0123\r\n\r\n");
        assert_eq!(head_in(&bytes), Some(4..4 + HEAD.len()));
        assert_eq!(head_in(&HEAD[..HEAD.len() - 1]), None);
        assert_eq!(head_in(b"\r\n\r\nHTTP/1.1 200 OK\r\n"), None);
        let out = Outgoing::new(&bytes, &(4..4 + HEAD.len()), HeadAct::Length { by: -3 });
        assert!(out.bytes.starts_with(b"bodyHTTP/1.1 206") && out.bytes.ends_with(b": x\r\n\r\n"));
        assert_eq!((out.bytes.len(), out.stands_for), (bytes.len() - 9, bytes.len() - 8));
    }

    #[test]
    fn lengths_are_changed_and_nothing_else() {
        let head = String::from_utf8(HEAD.to_vec()).unwrap();
        assert_eq!(with_length(HEAD, 5), head.replace("10", "15"));
        assert_eq!(with_length(HEAD, -11), head.replace("10", "0"));
    }
}
