//! The body of an answer: large pieces, zero-copy where bytes exist, and the faults within it.
//!
//! Held bytes leave as slices of one mapping; synthetic ones are made in buffers that come back
//! when the kernel has taken them, so that no piece pays for fresh pages.
//!
//! Not here: the head of an answer (`respond.rs`) and what becomes of a connection whose body
//! ended in an error (`wire.rs`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::fault::Fault;
use crate::link::{Act, Link};
use crate::pace::Pace;
use crate::source::{MADE_FRAME_BYTES, Source, slice};
use crate::stats::Counters;
use crate::synthetic::{fill, index};

/// Held bytes go out in pieces of this size: each costs one poll, and none costs memory.
const HELD_FRAME_BYTES_MAX: u64 = 4 << 20;
/// Buffers that wait for reuse on one thread: 32 MiB.
const POOLED_BUFFERS_MAX: usize = 256;
/// Between the last byte before a reset or close and the act itself, so that the kernel has sent
/// what it has: a reset throws away what is still queued.
const FLUSH_TIME: Duration = Duration::from_millis(20);
/// What is due within this time leaves now: timers are no finer.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// The connection is to be closed before the body, or the answer, is complete: on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the fault plan ended this answer")]
pub(crate) struct Ended;

/// Counts an answer as in flight while it lives.
#[derive(Debug)]
pub(crate) struct InFlight(Rc<Cell<usize>>);

impl InFlight {
    pub(crate) fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What a body belongs to.
#[derive(Debug)]
pub(crate) struct BodyOf {
    pub(crate) link: Rc<Link>,
    pub(crate) counters: Arc<Counters>,
    /// The connection's own.
    pub(crate) rate: Option<NonZeroU64>,
    /// That of all connections, by the time since `started`.
    pub(crate) pace: Arc<Pace>,
    pub(crate) started: Instant,
    /// Held, never read: dropping it is what counts.
    pub(crate) _in_flight: InFlight,
}

/// A range of an object, or a text, on its way out.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    source: Source,
    /// The next byte of the object.
    position: u64,
    end: u64,
    ending: Option<(u64, Ending)>,
    flip_at: Option<u64>,
    drip: Option<(u64, Duration)>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// What the connection's own pace allows now; `None`: nothing was asked of it yet.
    batch: Option<u64>,
    /// What the pace of all connections allows now; `None`: it does not know of this body yet.
    reserved: Option<u64>,
    /// It has no Content-Length: in chunks.
    chunked: bool,
    /// What is to be counted when it is carried out.
    uncounted: Option<Fault>,
    of: BodyOf,
}

/// What happens at a position instead of the next byte.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// The bytes so far are given time to leave; then comes `Due`.
    Flush(Turn),
    Due(Turn),
    Stall(Option<Duration>),
}

/// What a connection does when the bytes so far have left.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Close,
    Reset,
    Tls(Act),
}

impl ReplyBody {
    pub(crate) fn new(
        source: Source,
        offset: u64,
        length_bytes: u64,
        fault: Option<Fault>,
        of: BodyOf,
    ) -> Self {
        let (mut ending, mut flip_at, mut drip) = (None, None, None);
        // The last byte at the latest: behind it HTTP has ended the answer already.
        let at = |bytes: u64| offset + bytes.min(length_bytes.saturating_sub(1));
        let mut turn = |bytes, turn| ending = Some((at(bytes), Ending::Flush(turn)));
        match fault {
            Some(Fault::ResetAfter { bytes }) => turn(bytes, Turn::Reset),
            Some(Fault::Truncate { bytes }) => turn(bytes, Turn::Close),
            Some(Fault::TlsAlert { bytes }) => turn(bytes, Turn::Tls(Act::Alert)),
            Some(Fault::TlsCloseNotify { bytes }) => turn(bytes, Turn::Tls(Act::CloseNotify)),
            Some(Fault::TlsCut { bytes }) => turn(bytes, Turn::Tls(Act::Cut)),
            Some(Fault::TlsGarbage { bytes }) => turn(bytes, Turn::Tls(Act::Garbage)),
            Some(Fault::TlsKeyUpdate { bytes }) => turn(bytes, Turn::Tls(Act::KeyUpdate)),
            Some(Fault::StallAfter { bytes, duration }) => {
                ending = Some((at(bytes), Ending::Stall(duration)));
            }
            Some(Fault::FlipByte { at: bytes }) => flip_at = Some(at(bytes)),
            Some(Fault::FlipObjectByte { at }) => flip_at = Some(at),
            Some(Fault::Drip { bytes, pause }) => drip = Some((u64::from(bytes.max(1)), pause)),
            _ => {}
        }
        let end = offset + length_bytes;
        let chunked = fault == Some(Fault::Chunked);
        let uncounted = fault.filter(Fault::is_of_body);
        Self {
            source,
            position: offset,
            end,
            ending,
            flip_at,
            drip,
            sleep: None,
            batch: None,
            reserved: None,
            chunked,
            uncounted,
            of,
        }
    }

    /// It has happened.
    fn count(&mut self) {
        if let Some(fault) = self.uncounted.take() {
            self.of.counters.count_fault(&fault);
        }
    }

    /// The next piece; `length` is bounded by what the source likes and by what is to happen.
    fn piece(&mut self) -> Bytes {
        let mut length = self.end - self.position;
        if let Some((at, _)) = self.ending {
            length = length.min(at - self.position);
        }
        if let Some((bytes, _)) = self.drip {
            length = length.min(bytes);
        }
        if let Some(batch) = self.batch {
            length = length.min(batch);
        }
        if let Some(reserved) = self.reserved {
            length = length.min(reserved);
        }
        let mut piece = match &self.source {
            Source::Bytes(bytes) => slice(bytes, self.position, length.min(HELD_FRAME_BYTES_MAX)),
            Source::Synthetic { seed } => made(*seed, self.position, length),
        };
        let sent = piece.len() as u64;
        self.batch = self.batch.map(|batch| batch - sent);
        self.reserved = self.reserved.map(|reserved| reserved - sent);
        let next = self.position + sent;
        if let Some(at) = self.flip_at.filter(|at| (self.position..next).contains(at)) {
            let mut copy = piece.to_vec();
            copy[index(at - self.position)] ^= 0xff;
            piece = Bytes::from(copy);
            self.count();
        }
        self.position = next;
        piece
    }

    /// Waits until the next piece may leave: for the connection's own pace, then for that of all.
    fn poll_pace(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            let left = self.end - self.position;
            let (now, due);
            if let Some(rate) = self.of.rate
                && self.batch.is_none_or(|batch| batch == 0)
            {
                now = self.of.started.elapsed();
                let mut own = self.of.link.own_pace.get();
                let (length, at) = own.batch(now, rate, left, self.batch.is_none());
                self.of.link.own_pace.set(own);
                (self.batch, due) = (Some(length), at);
            } else if self.of.pace.has_capacity()
                && self.reserved.is_none_or(|reserved| reserved == 0)
            {
                now = self.of.started.elapsed();
                if self.reserved.is_none() {
                    self.of.pace.count_sender(true);
                    self.reserved = Some(0);
                }
                let most = self.batch.unwrap_or(left);
                let Some((length, at)) = self.of.pace.reserve(now, most) else {
                    return Poll::Ready(());
                };
                (self.reserved, due) = (Some(length), at);
            } else {
                return Poll::Ready(());
            }
            if due > now + TIMER_STEP {
                self.sleep_until(self.of.started + due);
            }
        }
    }

    fn sleep_until(&mut self, deadline: Instant) {
        self.sleep = Some(Box::pin(sleep_until(deadline)));
    }

    /// Acts out the ending that is due; `Ready(Ok)` when bytes may follow.
    fn meet_ending(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            match self.ending {
                Some((at, ending)) if at == self.position => match ending {
                    Ending::Flush(turn) => {
                        self.ending = Some((at, Ending::Due(turn)));
                        self.sleep_until(Instant::now() + FLUSH_TIME);
                    }
                    Ending::Due(Turn::Tls(act)) => {
                        self.count();
                        self.ending = None;
                        self.of.link.act.set(Some(act));
                        return Poll::Ready(if act.is_end() { Err(Ended) } else { Ok(()) });
                    }
                    Ending::Due(turn) => {
                        self.count();
                        self.of.link.reset.set(matches!(turn, Turn::Reset));
                        return Poll::Ready(Err(Ended));
                    }
                    Ending::Stall(Some(duration)) => {
                        self.count();
                        self.ending = None;
                        self.sleep_until(Instant::now() + duration);
                    }
                    // Nothing wakes this body again; the connection ends with its socket.
                    Ending::Stall(None) => {
                        self.count();
                        return Poll::Pending;
                    }
                },
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if self.reserved.is_some() {
            self.of.pace.count_sender(false);
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Ended;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Ended>>> {
        let this = self.get_mut();
        if let Err(ended) = ready!(this.meet_ending(context)) {
            return Poll::Ready(Some(Err(ended)));
        }
        if this.position == this.end {
            return Poll::Ready(None);
        }
        ready!(this.poll_pace(context));
        let piece = this.piece();
        if let Some((_, pause)) = this.drip {
            this.count();
            this.sleep_until(Instant::now() + pause);
        }
        this.of.counters.body_bytes.add(piece.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.end
    }

    fn size_hint(&self) -> SizeHint {
        if self.chunked {
            return SizeHint::default();
        }
        SizeHint::with_exact(self.end - self.position)
    }
}

/// A buffer that goes back to its thread when the last slice of it is dropped.
#[derive(Debug)]
struct Pooled {
    buffer: Vec<u8>,
    length: usize,
}

thread_local! {
    static POOL: RefCell<VecDeque<Vec<u8>>> = const { RefCell::new(VecDeque::new()) };
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the end of a thread the pool may be gone before its last buffer.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_BUFFERS_MAX {
                pool.push_back(buffer);
            }
        });
    }
}

fn made(seed: u64, offset: u64, length: u64) -> Bytes {
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MADE_FRAME_BYTES);
    // The last one in is the first one out: it is the warmest.
    let buffer = POOL.with(|pool| pool.borrow_mut().pop_back());
    let mut buffer = buffer.unwrap_or_else(|| vec![0; MADE_FRAME_BYTES]);
    fill(seed, offset, &mut buffer[..length]);
    Bytes::from_owner(Pooled { buffer, length })
}
