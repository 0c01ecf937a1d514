//! Tests of the connection: every split of an answer, every early end, and what is refused.

use std::ops::Range;

use super::*;
use crate::checksum::{Algorithm, AnswerCheck};
use crate::limits::{
    CONNECT_TIMEOUT_US, CONTROL_SLOT_BYTES, HEAD_BYTES_MAX, HEAD_ROOM_BYTES, SLOT_BYTES_MIN,
};
use crate::link::attempt::Timeouts;
use crate::link::failure::Remedy;

const SLOT: u32 = SLOT_BYTES_MIN;

/// A driver without ring or clock: it feeds `answer` in steps chosen by `step`.
struct Driver {
    conn: Conn,
    control: Vec<u8>,
    data: Vec<u8>,
    delivered: Vec<(u64, Vec<u8>)>,
    failure: Option<Failure>,
    refusal: Vec<u8>,
    requests: Vec<Option<ByteRange>>,
    finished: bool,
    closed: bool,
    /// Length of the CONNECT, where there is a proxy.
    tunnel: Option<u32>,
    secured: u32,
    /// TLS has begun.
    handshake: bool,
    /// The server keeps the connection open: nothing comes after the answer.
    is_kept: bool,
}

impl Driver {
    fn new(ask: Ask) -> Self {
        Self::with_slot(ask, SLOT)
    }

    fn with_slot(ask: Ask, slot_length: u32) -> Self {
        let mut conn = Conn::new(slot_length);
        conn.ask(ask);
        Self {
            conn,
            control: vec![0; CONTROL_SLOT_BYTES as usize],
            data: vec![0; slot_length as usize],
            delivered: Vec::new(),
            failure: None,
            refusal: Vec::new(),
            requests: Vec::new(),
            finished: false,
            closed: false,
            tunnel: None,
            secured: 0,
            handshake: false,
            is_kept: false,
        }
    }

    fn receive(&mut self, target: Target, at: usize, bytes: &[u8]) {
        let buffer = match target {
            Target::Control => &mut self.control,
            Target::Data => &mut self.data,
        };
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
        let count = u32::try_from(bytes.len()).expect("small");
        self.conn.handle(Event::Received(count, buffer));
    }

    fn decode(&mut self, target: Target, range: Range<usize>) {
        let buffer = match target {
            Target::Control => &mut self.control,
            Target::Data => &mut self.data,
        };
        let count = self.conn.decode(&mut buffer[range]);
        self.conn.handle(Event::Decoded(count, buffer));
    }

    fn drop_headers(&mut self, target: Target, filled: u32) {
        let buffer = match target {
            Target::Control => &mut self.control,
            Target::Data => &mut self.data,
        };
        let left = http::drop_headers(&mut buffer[..filled as usize]);
        self.conn.handle(Event::Dropped(u32::try_from(left).expect("small"), buffer));
    }

    /// Runs until there are no more actions; returns how much of the answer was taken.
    fn run(&mut self, answer: &[u8], step: impl FnMut() -> usize) -> usize {
        self.run_while(answer, step, |_| true)
    }

    /// Runs until TLS begins, which [`Self::run`] then ends.
    fn run_until_secure(&mut self, answer: &[u8], step: impl FnMut() -> usize) -> usize {
        self.run_while(answer, step, |driver| driver.secured == 0)
    }

    fn run_while(
        &mut self,
        answer: &[u8],
        mut step: impl FnMut() -> usize,
        goes_on: impl Fn(&Self) -> bool,
    ) -> usize {
        let mut position = 0;
        if std::mem::take(&mut self.handshake) {
            self.conn.handle(Event::Connected);
        }
        while goes_on(self)
            && let Some(action) = self.conn.poll()
        {
            match action {
                Action::Connect => match self.tunnel {
                    Some(length) => self.conn.handle(Event::Tunnel { length }),
                    None => self.conn.handle(Event::Connected),
                },
                Action::Send { at, length } if self.conn.is_connecting() => {
                    assert_eq!(Some(at + length), self.tunnel, "the whole request");
                    let count = length.min(u32::try_from(step()).expect("small"));
                    self.conn.handle(Event::Sent(count));
                }
                Action::Secure => {
                    self.secured += 1;
                    self.handshake = true;
                }
                Action::Write(range) => {
                    self.requests.push(range);
                    self.conn.handle(Event::Written { length: 300 });
                }
                Action::Send { at, length } => {
                    assert!(at + length == 300, "the whole request");
                    let count = length.min(u32::try_from(step()).expect("small"));
                    self.conn.handle(Event::Sent(count));
                }
                Action::Receive { target, at, length, fill } => {
                    let rest = &answer[position..];
                    let hangs = self.is_kept && fill && length as usize > rest.len();
                    assert!(!hangs, "{length} bytes are waited for");
                    let count = step().min(length as usize).min(rest.len());
                    self.receive(target, at as usize, &rest[..count]);
                    position += count;
                }
                Action::DropHeaders { target, filled } => self.drop_headers(target, filled),
                Action::Decode { target, at, length } => {
                    self.decode(target, at as usize..(at + length) as usize);
                }
                Action::Copy { from, to, length } => {
                    let (from, to, length) = (from as usize, to as usize, length as usize);
                    self.data[to..to + length].copy_from_slice(&self.control[from..from + length]);
                }
                Action::Deliver { at, length, offset } => {
                    let bytes = &self.data[at as usize..(at + length) as usize];
                    self.delivered.push((offset, bytes.to_vec()));
                    self.data.fill(0xee);
                }
                Action::Move { from, length } => {
                    position += self.move_on(from..from + length, &answer[position..], &mut step);
                }
                Action::Finished => self.finished = true,
                Action::Fail { failure, body } => {
                    self.failure = Some(failure);
                    if let Some(BufferRange { target, at, length }) = body {
                        let buffer = match target {
                            Target::Control => &self.control,
                            Target::Data => &self.data,
                        };
                        self.refusal = buffer[at as usize..(at + length) as usize].to_vec();
                    }
                }
                Action::Close => self.closed = true,
            }
        }
        position
    }

    /// Moves a body on: the bytes that came with the head, then `answer`; returns how much of that.
    fn move_on(
        &mut self,
        with_head: Range<u32>,
        answer: &[u8],
        step: &mut impl FnMut() -> usize,
    ) -> usize {
        let (mut at, end) = (with_head.start as usize, with_head.end as usize);
        let mut position = 0;
        loop {
            let offset = OFFSET + self.conn.reached();
            let piece = match at < end {
                true => &self.control[at..end.min(at + step())],
                false => {
                    let left = usize::try_from(self.conn.body_left()).expect("small");
                    &answer[position..answer.len().min(position + step().min(left))]
                }
            };
            match at < end {
                true => at += piece.len(),
                false => position += piece.len(),
            }
            self.delivered.push((offset, piece.to_vec()));
            self.conn.handle(Event::Moved(piece.len() as u64));
            if piece.is_empty() || self.conn.body_left() == 0 {
                return position;
            }
        }
    }

    fn bytes(&self, start: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (offset, piece) in &self.delivered {
            assert_eq!(*offset, start + bytes.len() as u64, "in order, without a gap");
            bytes.extend_from_slice(piece);
        }
        bytes
    }
}

fn object(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).expect("below 251")).collect()
}

fn range_answer(offset: u64, body: &[u8], size: u64) -> Vec<u8> {
    let last = offset + body.len() as u64 - 1;
    let mut answer = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes \
         {offset}-{last}/{size}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn whole_answer(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

const OFFSET: u64 = SLOT as u64 * 3;

fn ask(range: ByteRange, size: u64, manner: Manner) -> Ask {
    let (etag, last_modified, check) = (None, None, None);
    Ask { range, size, manner, etag, last_modified, is_whole_only: false, check }
}

fn range_ask(length: u64) -> Ask {
    ask(ByteRange { offset: OFFSET, length }, OFFSET + length + 9, Manner::Slots)
}

fn whole_ask(length: u64) -> Ask {
    ask(ByteRange { offset: 0, length }, length, Manner::Whole)
}

#[test]
fn every_step_size_gives_the_same_range() {
    for length in [1, 500, u64::from(SLOT) - 1, u64::from(SLOT), u64::from(SLOT) + 1, 150_000] {
        let body = object(usize::try_from(length).expect("small"));
        let answer = range_answer(OFFSET, &body, OFFSET + length + 9);
        for step in (1..=130).chain([1000, 4096, 65_536, 1 << 20]) {
            let mut driver = Driver::new(range_ask(length));
            let taken = driver.run(&answer, || step);
            assert_eq!(taken, answer.len());
            assert!(driver.finished && !driver.closed && driver.conn.is_idle(), "step {step}");
            assert!(driver.bytes(OFFSET) == body, "length {length} step {step}");
        }
    }
}

#[test]
fn every_step_size_moves_the_same_range_on() {
    for length in [1, 500, 4000, 5000, 150_000] {
        let body = object(usize::try_from(length).expect("small"));
        let ask = Ask { manner: Manner::Stream, ..range_ask(length) };
        let answer = range_answer(OFFSET, &body, OFFSET + length + 9);
        for step in (1..=130).chain([1000, 4096, 65_536, 1 << 20]) {
            let mut driver = Driver::new(ask);
            let taken = driver.run(&answer, || step);
            assert_eq!(taken, answer.len());
            assert!(driver.finished && driver.conn.is_idle(), "step {step}");
            assert!(driver.bytes(OFFSET) == body, "length {length} step {step}");
        }
        for end in answer.len() - body.len().min(700)..answer.len() {
            let mut driver = Driver::new(ask);
            driver.run(&answer[..end], || 300);
            assert_eq!(driver.failure, Some(Failure::Truncated), "{end}");
            let reached = driver.conn.reached();
            let moved = usize::try_from(reached).expect("small");
            assert_eq!(moved, end + body.len() - answer.len(), "{end}");
            driver.conn.resume();
            let rest = &body[moved..];
            driver.run(&range_answer(OFFSET + reached, rest, OFFSET + length + 9), || 300);
            assert!(driver.finished && driver.bytes(OFFSET) == body, "{end}");
        }
    }
}

/// RFC 9110, section 15.2: a client must be able to parse them, whether it expects any or not.
#[test]
fn interim_answers_are_passed_over_whatever_the_split() {
    let body = object(5000);
    let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nETag: \"no\"\r\n\r\n";
    let interim = [&hints[..], b"HTTP/1.1 100 Continue\r\n\r\n"].concat();
    let ranged = [&interim[..], &range_answer(OFFSET, &body, OFFSET + 5009)].concat();
    let whole = [&interim[..], &whole_answer(&body)].concat();
    let moved = Ask { manner: Manner::Stream, ..range_ask(5000) };
    for (ask, answer, offset) in
        [(range_ask(5000), &ranged, OFFSET), (moved, &ranged, OFFSET), (whole_ask(5000), &whole, 0)]
    {
        for step in (1..=300).chain([1000, 4096, 65_536]) {
            let mut driver = Driver::new(ask);
            let taken = driver.run(answer, || step);
            assert_eq!(taken, answer.len(), "step {step}");
            assert!(driver.finished && !driver.closed && driver.conn.is_idle(), "step {step}");
            assert!(driver.bytes(offset) == body, "step {step}");
        }
        for end in 1..interim.len() {
            let mut driver = Driver::new(ask);
            driver.run(&answer[..end], || 64);
            assert_eq!(driver.failure, Some(Failure::Truncated), "{end}");
        }
    }
    let endless = interim.repeat(2 * HEAD_BYTES_MAX as usize / interim.len());
    let mut driver = Driver::new(range_ask(5000));
    driver.run(&endless, || 4096);
    assert_eq!(driver.failure, Some(Failure::HeadTooLong), "they are bounded, too");
}

/// If a head is longer than its buffer, irrelevant headers are dropped; the body that comes with it
/// does not count towards its length.
#[test]
fn a_long_head_is_passed_over() {
    let (body, large) = (object(5000), object(200_000));
    let ranged = range_answer(OFFSET, &body, OFFSET + 5009);
    let moved = Ask { manner: Manner::Stream, ..range_ask(5000) };
    let one = format!("x-amz-meta-a: {}\r\n", "v".repeat(20_000));
    let many: String = (0..200).map(|at| format!("x-amz-m{at}: {}\r\n", "v".repeat(200))).collect();
    for meta in [one.clone(), many, one.repeat(3)] {
        for (ask, plain, body, offset) in [
            (range_ask(5000), &ranged, &body, OFFSET),
            (moved, &ranged, &body, OFFSET),
            (whole_ask(5000), &whole_answer(&body), &body, 0),
            (whole_ask(200_000), &whole_answer(&large), &large, 0),
        ] {
            let begin = plain.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
            let answer = [&plain[..begin], meta.as_bytes(), &plain[begin..]].concat();
            for step in [61, 1000, 4096, 16_384, 65_536, 1 << 20] {
                let mut driver = Driver::with_slot(ask, 4 * SLOT);
                let taken = driver.run(&answer, || step);
                assert_eq!((taken, driver.failure), (answer.len(), None), "step {step}");
                assert!(driver.finished && driver.bytes(offset) == *body, "step {step}");
            }
        }
    }
}

/// A head of 64 KiB is accepted, a longer one is not, whatever its body.
#[test]
fn heads_have_a_length_to_end_at() {
    for body in [object(5000), object(200_000)] {
        let plain = whole_answer(&body);
        let begin = plain.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let room = HEAD_BYTES_MAX as usize - (plain.len() - body.len());
        for (length, failure) in [(room, None), (room + 1, Some(Failure::HeadTooLong))] {
            let meta = format!("x-meta: {}\r\n", "v".repeat(length - "x-meta: \r\n".len()));
            let answer = [&plain[..begin], meta.as_bytes(), &plain[begin..]].concat();
            for step in [4096, 1 << 20] {
                let mut driver = Driver::with_slot(whole_ask(body.len() as u64), 4 * SLOT);
                driver.run(&answer, || step);
                assert_eq!(driver.failure, failure, "{length} bytes, step {step}");
            }
        }
    }
}

/// A server that ignores ranges sends the first byte again: received bytes are skipped.
#[test]
fn a_whole_object_that_comes_again_goes_on_where_it_was_cut() {
    let length = u64::from(SLOT) + 9000;
    let (body, range) = (object(75_000 - 464), ByteRange { offset: 0, length });
    assert_eq!(body.len() as u64, length);
    let bare = whole_answer(&body);
    let tag = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\n";
    let answer = [&tag[..], &bare[b"HTTP/1.1 200 OK\r\n".len()..]].concat();
    let (slots, stream) = (Manner::Slots, Manner::Stream);
    for (manner, offset) in [(slots, 0), (stream, OFFSET)] {
        let etag = Some(EtagDigest::of(b"\"a\""));
        let ask = Ask { etag, ..ask(range, length, manner) };
        let head = answer.len() - body.len();
        for end in [head, head + 1, head + 3000, head + 5000, head + 70_000, answer.len() - 1] {
            for step in [1, 7, 4096, 5000, 1 << 20] {
                let mut driver = Driver::new(ask);
                driver.run(&answer[..end], || 300);
                assert_eq!(driver.failure, Some(Failure::Truncated), "{end}");
                driver.conn.resume();
                assert_eq!(driver.run(&answer, || step), answer.len(), "{end} {step}");
                assert!(driver.finished && driver.conn.is_idle(), "{end} {step}");
                assert!(driver.bytes(offset) == body, "{end} {step}");
            }
        }
        // It may be cut again on the way there.
        let mut driver = Driver::new(ask);
        for end in [head + 50_000, head + 20_000, answer.len()] {
            driver.run(&answer[..end], || 300);
            if end < answer.len() {
                driver.conn.resume();
            }
        }
        assert!(driver.finished && driver.bytes(offset) == body);
        // An answer without its version is not joined to earlier bytes.
        let mut driver = Driver::new(ask);
        driver.run(&answer[..head + 70_000], || 300);
        driver.conn.resume();
        driver.run(&bare, || 300);
        assert_eq!(driver.failure, Some(Failure::Unversioned));
    }
}

/// The rest of a range goes to another connection, which gets the whole object, too.
#[test]
fn the_rest_of_a_whole_object_follows_what_another_connection_had() {
    let at = usize::try_from(OFFSET).expect("small");
    let (body, head) = (object(at + 9000), b"HTTP/1.1 200 OK\r\n");
    let answer = |header: &str| {
        let bare = whole_answer(&body);
        [&head[..], header.as_bytes(), &bare[head.len()..]].concat()
    };
    let known = EtagDigest::of(b"1");
    let tagged = ("ETag: \"1\"\r\n", "ETag: \"2\"\r\n", Some(known), None);
    let dated = ("Last-Modified: 1\r\n", "Last-Modified: 2\r\n", None, Some(known));
    for manner in [Manner::Slots, Manner::Stream] {
        for (same, other, etag, last_modified) in [tagged, dated] {
            let rest = ByteRange { offset: OFFSET, length: 9000 };
            let rest = ask(rest, OFFSET + 9000, manner);
            let rest = Ask { etag, last_modified, is_whole_only: true, ..rest };
            let mut driver = Driver::new(rest);
            driver.run(&answer(same), || 4000);
            assert!(driver.finished && driver.bytes(OFFSET) == body[at..], "{same}");
            for (header, failure) in [(other, Failure::WrongEtag), ("", Failure::Unversioned)] {
                let mut driver = Driver::new(rest);
                driver.run(&answer(header), || 4000);
                assert_eq!(driver.failure, Some(failure), "{manner:?} {header}");
            }
            let mut driver = Driver::new(Ask { is_whole_only: false, ..rest });
            driver.run(&answer(same), || 4000);
            assert_eq!(driver.failure, Some(Failure::WholeAnswer));
        }
    }
}

/// RFC 9112, section 6.3: such a body ends with its connection.
#[test]
fn a_body_without_a_length_is_as_long_as_what_was_asked_for() {
    let body = object(5000);
    let bare = |answer: Vec<u8>| {
        let text = answer.windows(16).position(|at| at == b"Content-Length: ").expect("there");
        let end = answer[text..].iter().position(|byte| *byte == b'\n').expect("a line") + text;
        [&answer[..text], &answer[end + 1..]].concat()
    };
    let ranged = bare(range_answer(OFFSET, &body, OFFSET + 5009));
    for (ask, answer, offset) in [
        (range_ask(5000), &ranged, OFFSET),
        (Ask { manner: Manner::Stream, ..range_ask(5000) }, &ranged, OFFSET),
        (whole_ask(5000), &bare(whole_answer(&body)), 0),
    ] {
        let mut driver = Driver::new(ask);
        driver.run(answer, || 700);
        assert!(driver.finished && driver.closed && driver.bytes(offset) == body);
        let mut driver = Driver::new(ask);
        driver.run(&answer[..answer.len() - 1], || 700);
        assert_eq!(driver.failure, Some(Failure::Truncated));
    }
    // The end of a whole object must come, too: more may follow than was listed.
    let (range, size) = (ByteRange { offset: 0, length: 5000 }, 5000);
    let slots = ask(range, size, Manner::Slots);
    let whole = bare(whole_answer(&body));
    for ask in [slots, whole_ask(5000)] {
        for step in [1, 700, 4096, 1 << 20] {
            let mut driver = Driver::new(ask);
            driver.run(&whole, || step);
            assert!(driver.finished && driver.bytes(0) == body, "{step}");
            let mut driver = Driver::new(ask);
            driver.run(&[&whole[..], b"x"].concat(), || step);
            let failure = driver.failure.expect("one byte more");
            assert!(matches!(failure, Failure::WrongLength | Failure::WrongRange), "{failure}");
            assert!(driver.delivered.is_empty(), "{step}");
        }
    }
    let mut driver = Driver::new(Ask { manner: Manner::Stream, ..slots });
    driver.run(&whole, || 700);
    assert_eq!(driver.failure, Some(Failure::WrongLength), "its bytes would be gone");
}

#[test]
fn who_must_send_an_etag_and_does_not_is_refused() {
    let etag = Some(EtagDigest::of(b"\"a\""));
    let answer = range_answer(OFFSET, &object(300), OFFSET + 309);
    for failure in [None, Some(Failure::WrongEtag), Some(Failure::Unversioned)] {
        let mut driver = Driver::new(Ask { etag, ..range_ask(300) });
        driver.conn.set_without_etag(failure);
        driver.run(&answer, || 700);
        assert_eq!(driver.failure, failure);
    }
}

#[test]
fn every_step_size_gives_the_same_small_object() {
    for length in [1, 39_000, u64::from(SLOT) - u64::from(HEAD_ROOM_BYTES)] {
        let body = object(usize::try_from(length).expect("small"));
        let answer = whole_answer(&body);
        for step in (1..=130).chain([1000, 4096, 65_536]) {
            let mut driver = Driver::new(whole_ask(length));
            driver.run(&answer, || step);
            assert!(driver.finished && driver.conn.is_idle(), "step {step}");
            assert_eq!(driver.requests, [None]);
            assert!(driver.bytes(0) == body, "length {length} step {step}");
        }
    }
}

#[test]
fn an_early_end_at_every_byte_is_a_failure_and_goes_on_from_there() {
    let body = object(300);
    let answer = range_answer(OFFSET, &body, OFFSET + 309);
    let head = answer.len() - body.len();
    for end in 0..answer.len() {
        let mut driver = Driver::new(range_ask(300));
        driver.run(&answer[..end], || 64);
        let unanswered = if end == 0 { Failure::ClosedUnanswered } else { Failure::Truncated };
        assert_eq!(driver.failure, Some(unanswered), "{end}");
        assert!(driver.closed && !driver.finished && driver.delivered.is_empty());
        let reached = end.saturating_sub(head) as u64;
        assert_eq!(driver.conn.reached(), reached, "{end}");
        driver.conn.resume();
        let rest = usize::try_from(reached).expect("small");
        driver.run(&range_answer(OFFSET + reached, &body[rest..], OFFSET + 309), || 50);
        let asked = ByteRange { offset: OFFSET + reached, length: 300 - reached };
        assert_eq!(driver.requests.last(), Some(&Some(asked)));
        assert!(driver.finished && driver.bytes(OFFSET) == body, "{end}");
    }
}

#[test]
fn what_had_come_when_a_receive_was_ended_counts() {
    const LENGTH: u64 = SLOT as u64 + 1000;
    const SIZE: u64 = OFFSET + LENGTH + 9;
    let body = object(usize::try_from(LENGTH).expect("small"));
    for begun in [500, u64::from(SLOT) + 500] {
        for part in [0, 1, 3, 4] {
            let mut driver = Driver::new(range_ask(LENGTH));
            let answer = range_answer(OFFSET, &body, SIZE);
            driver.run_while(&answer, || 500, |driver| driver.conn.reached() < begun);
            let Some(Action::Receive { at, length, .. }) = driver.conn.poll() else {
                unreachable!("the body goes on")
            };
            let (reached, count) = (driver.conn.reached(), length * part / 4);
            let bytes = &body[usize::try_from(reached).expect("small")..][..count as usize];
            driver.data[at as usize..][..count as usize].copy_from_slice(bytes);
            driver.conn.handle(Event::Cut(count));
            driver.run(&[], || 1);
            let reached = reached + u64::from(count);
            let is_whole = reached == LENGTH;
            assert_eq!(driver.finished, is_whole, "{begun} {part}");
            assert_eq!(driver.failure, (!is_whole).then_some(Failure::Stall), "{begun} {part}");
            assert_eq!(driver.conn.reached(), reached, "{begun} {part}");
            if is_whole {
                continue;
            }
            let undelivered = driver.conn.undelivered() as usize;
            assert_eq!(undelivered as u64, reached % u64::from(SLOT), "{begun} {part}");
            let end = usize::try_from(reached).expect("small");
            assert_eq!(driver.data[..undelivered], body[end - undelivered..end]);
            driver.conn.resume();
            driver.run(&range_answer(OFFSET + reached, &body[end..], SIZE), || 50);
            assert!(driver.finished && driver.bytes(OFFSET) == body, "{begun} {part}");
        }
    }
}

#[test]
fn a_small_object_starts_over() {
    let body = object(2000);
    let answer = whole_answer(&body);
    for end in [0, 10, 60, 1000, answer.len() - 1] {
        let mut driver = Driver::new(whole_ask(2000));
        driver.run(&answer[..end], || 700);
        let unanswered = if end == 0 { Failure::ClosedUnanswered } else { Failure::Truncated };
        assert_eq!((driver.failure, driver.conn.reached()), (Some(unanswered), 0));
        driver.conn.resume();
        driver.run(&answer, || 700);
        assert!(driver.finished && driver.bytes(0) == body);
    }
}

#[test]
fn a_kept_connection_that_the_server_closed_is_stale_not_broken() {
    let body = object(10);
    let mut driver = Driver::new(whole_ask(10));
    driver.run(&whole_answer(&body), || 4096);
    driver.conn.ask(whole_ask(10));
    driver.run(b"", || 4096);
    assert_eq!(driver.failure, Some(Failure::Stale));
    assert_eq!(Failure::Stale.remedy(), Remedy::Repeat);
    driver.conn.resume();
    driver.run(b"", || 4096);
    let failure = Some(Failure::ClosedUnanswered);
    assert_eq!(driver.failure, failure, "a fresh one has no such excuse");
}

fn check_refusal(head: &str, expected: Failure) {
    let mut driver = Driver::new(range_ask(8));
    let answer = format!("{head}\r\n\r\n12345678");
    driver.run(answer.as_bytes(), || 4096);
    assert_eq!(driver.failure, Some(expected), "{head:?}");
    assert!(driver.closed && driver.delivered.is_empty(), "{head:?}");
}

#[test]
fn an_answer_that_was_not_asked_for_is_refused() {
    let first = OFFSET;
    let last = OFFSET + 7;
    let size = OFFSET + 17;
    check_refusal("HTTP/1.1 200 OK\r\nContent-Length: 8", Failure::WholeAnswer);
    let wrong = format!(
        "HTTP/1.1 206 P\r\nContent-Length: 9\r\nContent-Range: bytes {first}-{last}/{size}"
    );
    check_refusal(&wrong, Failure::WrongLength);
    for wrong in [
        "HTTP/1.1 206 P\r\nContent-Length: 8".to_owned(),
        format!("HTTP/1.1 206 P\r\nContent-Length: 8\r\nContent-Range: bytes 0-7/{size}"),
    ] {
        check_refusal(&wrong, Failure::WrongRange);
    }
    // The right range of an object of another size, and a shorter object's part of it.
    for (last, size) in [(last, size + 1), (last - 1, last)] {
        let other = format!(
            "HTTP/1.1 206 P\r\nContent-Length: 8\r\nContent-Range: bytes {first}-{last}/{size}"
        );
        check_refusal(&other, Failure::OtherLength);
    }
    let coded = format!(
        "HTTP/1.1 206 P\r\nTransfer-Encoding: gzip, chunked\r\nContent-Range: bytes \
         {first}-{last}/{size}"
    );
    check_refusal(&coded, Failure::Chunked);
    check_refusal("HTTP/1.1 101 Switching Protocols", Failure::Interim);
    check_refusal("garbage", Failure::BadHead);
}

/// The answer in chunks of these lengths in turn, with its other headers.
fn in_chunks(answer: &[u8], lengths: &[usize]) -> Vec<u8> {
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
    let head = std::str::from_utf8(&answer[..end]).expect("text");
    let lines = head.split_inclusive("\r\n").filter(|line| !line.starts_with("Content-Length"));
    let head: String = lines.collect();
    let head = head.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (mut bytes, mut body) = (head.into_bytes(), &answer[end..]);
    for length in lengths.iter().copied().cycle() {
        let (chunk, rest) = body.split_at(length.min(body.len()));
        bytes.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        body = rest;
        if chunk.is_empty() {
            break;
        }
    }
    bytes
}

/// Every manner, the body of its answer, and that body's offset.
fn every_manner(body: &[u8]) -> [(Ask, Vec<u8>, u64); 3] {
    let length = body.len() as u64;
    let ranged = range_answer(OFFSET, body, OFFSET + length + 9);
    let stream = Ask { manner: Manner::Stream, ..range_ask(length) };
    [
        (range_ask(length), ranged.clone(), OFFSET),
        (stream, ranged, OFFSET),
        (whole_ask(length), whole_answer(body), 0),
    ]
}

/// RFC 9112, section 7.1.
#[test]
fn a_body_in_chunks_is_the_same_whatever_the_split() {
    for length in [1, 500, 5000, 17_000, 150_000] {
        let body = object(length);
        for (ask, plain, offset) in every_manner(&body) {
            for lengths in [&[1usize << 20][..], &[4096], &[100, 1, 20_000], &[16_384, 3]] {
                let answer = in_chunks(&plain, lengths);
                for step in (1..=60).chain([1000, 4096, 16_384, 65_536, 1 << 20]) {
                    let mut driver = Driver::with_slot(ask, 4 * SLOT);
                    let taken = driver.run(&answer, || step);
                    let seen = (taken, driver.failure);
                    assert_eq!(seen, (answer.len(), None), "{:?} {lengths:?} {step}", ask.manner);
                    assert!(driver.finished && !driver.closed && driver.conn.is_idle());
                    assert!(driver.bytes(offset) == body, "{:?} {lengths:?} {step}", ask.manner);
                }
            }
        }
    }
}

#[test]
fn a_cut_body_in_chunks_goes_on_where_it_was_cut() {
    let body = object(5000);
    for (ask, plain, offset) in every_manner(&body) {
        let answer = in_chunks(&plain, &[700, 33]);
        for end in (1..answer.len()).filter(|end| end % 13 == 0 || answer.len() - end < 12) {
            let mut driver = Driver::new(ask);
            driver.run(&answer[..end], || 300);
            assert_eq!(driver.failure, Some(Failure::Truncated), "{:?} {end}", ask.manner);
            assert!(driver.closed && driver.bytes(offset).len() < body.len(), "not before its end");
            driver.conn.resume();
            let reached = driver.conn.reached();
            let rest = &body[usize::try_from(reached).expect("small")..];
            match ask.manner {
                Manner::Whole => driver.run(&answer, || 300),
                _ => driver.run(&range_answer(OFFSET + reached, rest, OFFSET + 5009), || 300),
            };
            assert!(driver.finished && driver.bytes(offset) == body, "{:?} {end}", ask.manner);
        }
    }
}

/// No byte counts that is not known to be the object's.
#[test]
fn a_body_in_chunks_of_another_length_is_none() {
    for (size, end) in [(5000, None), (150_000, Some(70_000))] {
        let body = object(size);
        for (ask, plain, offset) in every_manner(&body) {
            let longer = [&plain[..], b"x"].concat();
            let shorter = &plain[..end.unwrap_or(plain.len() - 1)];
            let slot_length = if ask.manner == Manner::Whole { 4 * SLOT } else { SLOT };
            for answer in [&longer[..], shorter].map(|answer| in_chunks(answer, &[900, 3])) {
                for step in [1, 64, 5000, 1 << 20] {
                    let mut driver = Driver::with_slot(ask, slot_length);
                    driver.is_kept = true;
                    driver.run(&answer, || step);
                    // Bytes that were used earlier cannot be taken back.
                    let (expected, reached) = match driver.delivered.is_empty() {
                        true => (Failure::Chunked, 0),
                        false => (Failure::OtherLength, driver.conn.reached()),
                    };
                    assert_eq!(driver.failure, Some(expected), "{:?} {step}", ask.manner);
                    assert_eq!(driver.conn.reached(), reached, "{:?} {step}", ask.manner);
                    assert!(!driver.finished && driver.closed);
                    assert!(driver.bytes(offset).len() < body.len(), "{:?} {step}", ask.manner);
                }
            }
            let answer = in_chunks(&plain, &[900]);
            let last = answer.len() - b"0;a=b\r\n\r\n".len();
            let answer = [&answer[..last], b"!", &answer[last + 1..]].concat();
            let mut driver = Driver::with_slot(ask, 4 * SLOT);
            driver.run(&answer, || 4096);
            assert_eq!(driver.failure, Some(Failure::BadChunks), "{:?}", ask.manner);
        }
    }
    assert_eq!(Failure::OtherLength.remedy(), Remedy::GiveUp);
}

/// A whole object that comes in chunks although more than a slot was requested may be decompressed
/// on its way: its bytes are used at once, and its length is known at its end. A file has no name
/// before that.
#[test]
fn a_whole_object_in_chunks_is_taken_of_who_sends_what_is_stored() {
    let body = object(150_000);
    let answer = in_chunks(&whole_answer(&body), &[4096]);
    let encoded = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n";
    let packed = [&encoded[..], &answer[b"HTTP/1.1 200 OK\r\n".len()..]].concat();
    let range = ByteRange { offset: 0, length: 150_000 };
    for (manner, offset) in [(Manner::Slots, 0), (Manner::Stream, OFFSET)] {
        let ask = ask(range, 150_000, manner);
        for (accepts, answer, failure) in [
            (false, &answer, Some(Failure::Chunked)),
            (true, &answer, (manner == Manner::Stream).then_some(Failure::Chunked)),
            (true, &packed, Some(Failure::Encoded)),
        ] {
            let mut driver = Driver::new(ask);
            driver.conn.set_accepts_gzip(accepts);
            driver.run(answer, || 5000);
            assert_eq!(driver.failure, failure, "{manner:?} {accepts}");
            assert_eq!(driver.bytes(offset) == body, failure.is_none(), "{manner:?}");
        }
    }
}

/// Without a length its end may be the end of what was compressed: the next attempt must not go on
/// behind it.
#[test]
fn an_encoded_body_of_unknown_length_counts_as_a_whole_or_not_at_all() {
    let (first, last, size) = (OFFSET, OFFSET + 99_999, OFFSET + 100_009);
    let range = format!("Content-Range: bytes {first}-{last}/{size}\r\n");
    for (encoding, slots, failure, reached) in [
        ("", 0, Failure::Truncated, 300),
        ("Content-Encoding: gzip\r\n", 0, Failure::Encoded, 0),
        ("Content-Encoding: gzip\r\n", 1, Failure::OtherLength, u64::from(SLOT) + 300),
    ] {
        let body = object(slots * SLOT as usize + 300);
        let head = format!("HTTP/1.1 206 P\r\n{range}{encoding}\r\n");
        let mut driver = Driver::new(range_ask(100_000));
        driver.run(&[head.as_bytes(), &body].concat(), || 4096);
        assert_eq!(driver.failure, Some(failure), "{encoding}");
        assert_eq!(driver.conn.reached(), reached, "{encoding}");
    }
}

#[test]
fn the_end_of_chunks_does_not_drip_for_ever() {
    for (ask, plain, offset) in every_manner(&object(500)) {
        let answer = in_chunks(&plain, &[500]);
        let trailers = "a: b\r\n".repeat(100);
        let answer = [&answer[..answer.len() - 2], trailers.as_bytes(), b"\r\n"].concat();
        for (step, failure) in [(1, Some(Failure::BadChunks)), (64, None)] {
            let mut driver = Driver::new(ask);
            driver.run(&answer, || step);
            assert_eq!(driver.failure, failure, "{:?}", ask.manner);
            assert_eq!(driver.bytes(offset).len() == 500, failure.is_none(), "{:?}", ask.manner);
        }
    }
}

/// RFC 9112, section 6.3: the chunks count, and the connection is not used again.
#[test]
fn chunks_win_over_a_length() {
    let body = object(500);
    let answer = in_chunks(&range_answer(OFFSET, &body, OFFSET + 509), &[99]);
    let head = b"HTTP/1.1 206 Partial Content\r\n";
    let both = [&head[..], b"Content-Length: 7\r\n", &answer[head.len()..]].concat();
    let mut driver = Driver::new(range_ask(500));
    driver.run(&both, || 64);
    assert!(driver.finished && driver.closed && driver.bytes(OFFSET) == body);
}

#[test]
fn more_bytes_than_the_answer_has_are_refused() {
    let mut answer = range_answer(OFFSET, &object(300), OFFSET + 309);
    answer.extend_from_slice(b"surplus");
    let mut driver = Driver::new(range_ask(300));
    driver.run(&answer, || 4096);
    assert_eq!(driver.failure, Some(Failure::WrongLength));
}

#[test]
fn an_error_body_is_kept_for_its_explanation() {
    let xml = "<Error><Code>AccessDenied</Code></Error>";
    let plain = format!("HTTP/1.1 403 F\r\nContent-Length: {}\r\n\r\n{xml}", xml.len());
    let chunked = format!(
        "HTTP/1.1 403 F\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{xml}\r\n0\r\n\r\n",
        xml.len()
    );
    let closed = format!("HTTP/1.1 403 F\r\nConnection: close\r\n\r\n{xml}");
    for answer in [&plain, &chunked, &closed] {
        for step in [1, 7, 4096] {
            for ask in [range_ask(100), whole_ask(100)] {
                let mut driver = Driver::new(ask);
                driver.run(answer.as_bytes(), || step);
                assert_eq!(driver.failure, Some(Failure::Status(403)));
                let body = String::from_utf8(driver.refusal).expect("text");
                assert!(body.contains(xml), "{answer:?} step {step}: {body:?}");
            }
        }
    }
}

#[test]
fn a_server_that_closes_after_its_answer_costs_a_connect_only() {
    let body = object(20);
    let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 20\r\n\r\n".to_vec();
    answer.extend_from_slice(&body);
    let mut driver = Driver::new(whole_ask(20));
    driver.run(&answer, || 4096);
    assert!(driver.finished && driver.closed && driver.conn.is_free() && !driver.conn.is_idle());
}

#[test]
fn a_broken_operation_is_named_by_where_it_broke() {
    let mut conn = Conn::new(SLOT);
    conn.ask(whole_ask(5));
    assert_eq!(conn.poll(), Some(Action::Connect));
    conn.handle(Event::Failed(Errno::REFUSED));
    let failure = Failure::Connect(Errno::REFUSED);
    assert_eq!(conn.poll(), Some(Action::Fail { failure, body: None }));
    assert_eq!(conn.poll(), Some(Action::Close));
    assert_eq!(conn.poll(), None);
    conn.resume();
    assert_eq!(conn.poll(), Some(Action::Connect));
    conn.handle(Event::Expired);
    let failure = Failure::ConnectTimeout;
    assert_eq!(conn.poll(), Some(Action::Fail { failure, body: None }));
    assert_eq!(conn.poll(), Some(Action::Close));
    conn.forget();
    assert!(conn.is_free());
}

#[test]
fn an_answer_with_another_etag_is_another_version() {
    let answer = b"HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 3\r\n\r\nabc";
    for (listed, expected) in
        [(&b"\"a\""[..], Some(Failure::WrongEtag)), (b"\"b\"", None), (b"W/\"b\"", None)]
    {
        let mut ask = whole_ask(3);
        ask.etag = Some(EtagDigest::of(listed));
        let mut driver = Driver::new(ask);
        driver.run(answer, || 4096);
        assert_eq!(driver.failure, expected);
        assert_eq!(driver.finished, expected.is_none());
    }
}

#[test]
fn going_on_across_a_slot_border_within_the_head_receive() {
    let length = u64::from(SLOT) + 100;
    let body = object(usize::try_from(length).expect("small"));
    let size = OFFSET + length + 9;
    let first = range_answer(OFFSET, &body, size);
    let cut = first.len() - 200;
    let mut driver = Driver::new(range_ask(length));
    driver.run(&first[..cut], || 4096);
    assert_eq!(driver.failure, Some(Failure::Truncated));
    driver.conn.resume();
    let reached = usize::try_from(driver.conn.reached()).expect("small");
    let mut rest = range_answer(OFFSET + reached as u64, &body[reached..], size);
    let close = b"HTTP/1.1 206 P\r\nConnection: close\r\n";
    rest.splice(..rest.iter().position(|byte| *byte == b'\n').expect("a line") + 1, *close);
    driver.run(&rest, || 4096);
    assert!(driver.finished && driver.closed && driver.bytes(OFFSET) == body);
}

#[test]
fn without_etags_another_last_modified_is_another_version() {
    let body = object(3 * SLOT as usize);
    let size = OFFSET + body.len() as u64 + 9;
    let at = |time: &str, from: usize| {
        let answer = range_answer(OFFSET + from as u64, &body[from..], size);
        let line = b"HTTP/1.1 206 Partial Content\r\n";
        [&line[..], format!("Last-Modified: {time}\r\n").as_bytes(), &answer[line.len()..]].concat()
    };
    for (time, expected) in [("Monday", None), ("Tuesday", Some(Failure::WrongEtag))] {
        let mut driver = Driver::new(range_ask(body.len() as u64));
        driver.run(&at("Monday", 0)[..SLOT as usize + 4000], || 4096);
        assert_eq!(driver.failure.take(), Some(Failure::Truncated));
        driver.conn.resume();
        let reached = usize::try_from(driver.conn.reached()).expect("small");
        driver.run(&at(time, reached), || 4096);
        assert_eq!((driver.failure, driver.finished), (expected, expected.is_none()));
    }
}

/// RFC 9112, section 6.3.
#[test]
fn answers_that_never_have_a_body_end_with_their_head() {
    for status in [204, 304] {
        for ask in [range_ask(100), whole_ask(100)] {
            let mut driver = Driver::new(ask);
            driver.is_kept = true;
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 100\r\n\r\n");
            assert_eq!(driver.run(head.as_bytes(), || 4096), head.len());
            assert_eq!(driver.failure, Some(Failure::Status(status)));
        }
    }
}

#[test]
fn a_receive_waits_for_many_bytes_only_while_as_many_come_beyond_it() {
    let mark = SLOT / 2;
    for (length, whole, receive, expected) in [
        (u64::from(SLOT) * 2, false, SLOT, mark),
        (u64::from(SLOT + mark), false, SLOT, mark),
        (u64::from(SLOT + mark) - 1, false, SLOT, 1),
        (u64::from(SLOT), false, SLOT, 1),
        (u64::from(SLOT - HEAD_ROOM_BYTES), true, 100, 1),
    ] {
        let mut conn = Conn::new(SLOT);
        conn.ask(if whole { whole_ask(length) } else { range_ask(length) });
        assert_eq!(conn.low_water(receive, true), expected, "{length} {whole}");
        assert_eq!(conn.low_water(receive, false), 1);
    }
}

fn checked(ask: Ask, strict: bool) -> Ask {
    Ask { check: Some(AnswerCheck { strict, etag: None }), ..ask }
}

fn with_checksum(answer: &[u8], body: &[u8]) -> Vec<u8> {
    let header = format!("x-amz-checksum-crc32c: {}\r\n", Algorithm::Crc32c.digest(body));
    let at = answer.iter().position(|byte| *byte == b'\n').expect("a status line") + 1;
    [&answer[..at], header.as_bytes(), &answer[at..]].concat()
}

#[test]
fn a_small_object_of_wrong_bytes_is_not_delivered() {
    let body = object(2000);
    let mut wrong = body.clone();
    wrong[777] ^= 1;
    for step in [1, 64, 700, 1 << 20] {
        let mut driver = Driver::new(checked(whole_ask(2000), false));
        driver.run(&with_checksum(&whole_answer(&wrong), &body), || step);
        assert_eq!(driver.failure, Some(Failure::Checksum), "{step}");
        assert_eq!(Failure::Checksum.remedy(), Remedy::Backoff);
        assert!(driver.closed && !driver.finished && driver.delivered.is_empty());
        let mismatch = driver.conn.comparison().mismatch().expect("they differ");
        assert_eq!(mismatch.computed, Algorithm::Crc32c.digest(&wrong));
        driver.conn.resume();
        driver.run(&with_checksum(&whole_answer(&body), &body), || step);
        assert!(driver.finished && driver.bytes(0) == body, "{step}");
        let basis =
            driver.conn.comparison().basis().expect("it was asked for").expect("there is one");
        assert_eq!(basis.algorithm, Algorithm::Crc32c);
    }
}

#[test]
fn an_answer_without_a_checksum_is_refused_only_where_one_must_be() {
    let body = object(2000);
    for strict in [false, true] {
        let mut driver = Driver::new(checked(whole_ask(2000), strict));
        driver.run(&whole_answer(&body), || 700);
        assert_eq!(driver.failure, strict.then_some(Failure::NoChecksum));
        assert_eq!(driver.delivered.is_empty(), strict);
        assert!(matches!(driver.conn.comparison().basis(), Some(Err(_))));
    }
    assert_eq!(Failure::NoChecksum.remedy(), Remedy::GiveUp);
}

#[test]
fn a_range_that_is_the_whole_object_is_asked_for_as_such() {
    let length = u64::from(SLOT) + 5000;
    let body = object(usize::try_from(length).expect("small"));
    let range = ByteRange { offset: 0, length };
    let ask = ask(range, length, Manner::Slots);
    let mut driver = Driver::new(ask);
    driver.run(&range_answer(0, &body, length), || 1000);
    assert!(
        driver.finished
            && driver.requests == [Some(range)]
            && driver.conn.comparison().basis().is_none()
    );
    let mut driver = Driver::new(checked(ask, true));
    let answer = with_checksum(&whole_answer(&body), &body);
    let head = answer.len() - body.len();
    driver.run(&answer[..head + 100], || 1000);
    assert_eq!(driver.failure, Some(Failure::Truncated));
    // The rest is requested as a range; the checksum of the whole object stays known.
    driver.conn.resume();
    driver.run(&range_answer(100, &body[100..], length), || 1000);
    let left = ByteRange { offset: 100, length: length - 100 };
    assert_eq!(driver.requests, [None, Some(left)]);
    assert!(driver.finished && driver.bytes(0) == body);
    let basis = driver.conn.comparison().basis().expect("it was asked for").expect("there is one");
    assert_eq!(basis.check(Algorithm::Crc32c.digest(&body)), Ok(()));
}

/// A driver whose connection goes through a proxy.
fn tunnelled() -> Driver {
    Driver { tunnel: Some(120), ..Driver::new(range_ask(300)) }
}

const OPENED: &[u8] = b"HTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\n";

#[test]
fn a_tunnel_opens_whatever_the_split() {
    let body = object(300);
    // The server speaks only once TLS has begun.
    for split in 1..OPENED.len() {
        let mut driver = tunnelled();
        let steps = &mut [120, split, OPENED.len() - split].into_iter();
        let taken = driver.run_until_secure(OPENED, || steps.next().expect("no more steps"));
        assert_eq!((taken, driver.secured, driver.failure), (OPENED.len(), 1, None), "{split}");
        driver.run(&range_answer(OFFSET, &body, OFFSET + 309), || 100);
        assert!(driver.finished && driver.bytes(OFFSET) == body, "{split}");
    }
    for step in 1..130 {
        let mut driver = tunnelled();
        driver.run_until_secure(OPENED, || step);
        assert_eq!((driver.secured, driver.failure), (1, None), "{step}");
        assert!(driver.conn.is_connecting(), "the handshake has the same deadline");
    }
    // A proxy's headers may be as long as a server's.
    let begin = OPENED.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let room = HEAD_BYTES_MAX as usize - OPENED.len();
    for (length, failure) in [(room, None), (room + 1, Some(Failure::HeadTooLong))] {
        let more = format!("Via: {}\r\n", "v".repeat(length - "Via: \r\n".len()));
        let long = [&OPENED[..begin], more.as_bytes(), &OPENED[begin..]].concat();
        for step in [61, 4096, 1 << 20] {
            let mut driver = tunnelled();
            driver.run_until_secure(&long, || step);
            let secured = u32::from(failure.is_none());
            assert_eq!((driver.secured, driver.failure), (secured, failure), "{length} {step}");
        }
    }
}

#[test]
fn a_tunnel_that_does_not_open_is_the_connections_failure() {
    let check = |answer: &[u8], expected: Failure| {
        for step in [1, 7, 4096] {
            let mut driver = tunnelled();
            driver.run(answer, || step);
            assert_eq!(driver.failure, Some(expected), "{}", String::from_utf8_lossy(answer));
            assert!(driver.closed && driver.secured == 0 && driver.refusal.is_empty());
            assert!(driver.requests.is_empty(), "nothing is asked of the server");
        }
    };
    for end in 0..OPENED.len() {
        check(&OPENED[..end], Failure::Connect(Errno::RESET));
    }
    let page =
        "HTTP/1.1 407 Denied\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n<html></html";
    check(page.as_bytes(), Failure::Proxy(407));
    check(b"HTTP/1.0 403 Forbidden\r\n\r\n", Failure::Proxy(403));
    check(b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", Failure::Proxy(302));
    check(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", Failure::Proxy(502));
    check(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", Failure::BadHead);
    check(b"HTTP/1.1 100 Continue\r\n\r\n", Failure::Connect(Errno::RESET));
    check(b"SSH-2.0-x\r\n", Failure::BadHead);
    let mut endless = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
    endless.resize(HEAD_BYTES_MAX as usize + 9, b'y');
    check(&endless, Failure::HeadTooLong);
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(300));
    check(many.as_bytes(), Failure::TooManyHeaders);
}

#[test]
fn nothing_may_follow_the_proxys_answer() {
    let mut driver = tunnelled();
    driver.run(&[OPENED, b"x"].concat(), || 4096);
    assert_eq!((driver.failure, driver.secured), (Some(Failure::BadHead), 0));
}

#[test]
fn a_tunnel_is_part_of_connecting() {
    for (event, expected) in [
        (Event::Expired, Failure::ConnectTimeout),
        (Event::Failed(Errno::RESET), Failure::Connect(Errno::RESET)),
    ] {
        let mut conn = Conn::new(SLOT);
        conn.ask(range_ask(300));
        assert_eq!(conn.poll(), Some(Action::Connect));
        assert_eq!(conn.poll(), None);
        conn.handle(Event::Tunnel { length: 50 });
        assert_eq!(conn.poll(), Some(Action::Send { at: 0, length: 50 }));
        assert_eq!((conn.poll(), conn.timeout_us(Timeouts::default())), (None, CONNECT_TIMEOUT_US));
        assert!(conn.is_connecting() && !conn.awaits_head());
        conn.handle(event);
        assert_eq!(conn.poll(), Some(Action::Fail { failure: expected, body: None }));
    }
}
