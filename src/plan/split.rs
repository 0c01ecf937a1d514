//! Lists with several requests at once: chooses the next request, and puts the pages in order.
//!
//! Pure. A page that lists after a key contains every key between that key and its own last one. So
//! pages may begin anywhere, and wherever they overlap or leave gaps, each key is returned once.
//! The key space is cut into segments, in order. The beginning of each is known, and the rest is a
//! gap up to the next segment. The start of a segment is a guess ([`super::guess`]); a bad guess
//! costs a request and no key.
//!
//! This needs a server that lists in the order of UTF-8 bytes and supports `start-after`. Each page
//! is checked against both, and two pages that meet must agree on the key that follows, so what is
//! returned is always a prefix of the server's own listing. A violation ends the splitting: the
//! listing continues with one request at a time, by continuation tokens, which promise neither.

use std::collections::{BTreeMap, VecDeque};

use super::guess::{Alphabet, Density};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Object;
use crate::s3::cycle::CycleGuard;
use crate::s3::list::Page;

/// Pages that are fetched one after the other before a listing is split: a short listing costs no
/// more requests than it has pages.
pub const PAGES_BEFORE_SPLIT: u32 = 2;
/// Most pages per segment. With unevenly spread keys half of each segment's last page is wasted.
const SEGMENT_PAGES_MAX: u64 = 8;
/// Fewest pages per segment: with fewer, more pages would be fetched twice than waits saved.
const SEGMENT_PAGES_MIN: u64 = 2;

/// Limits of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitLimits {
    /// Concurrent requests.
    pub requests: usize,
    /// Pages buffered or requested; one more if all of these are behind the next page in order.
    pub pages: usize,
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListFrom {
    /// At the first key.
    Start,
    /// At a continuation token.
    Token(String),
    /// After this key (`start-after`).
    After(String),
}

/// A page to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// To be returned with the answer.
    pub number: u64,
    /// Where it begins.
    pub from: ListFrom,
}

/// The state of one listing.
#[derive(Debug)]
pub struct Split {
    limits: SplitLimits,
    alphabet: Alphabet,
    segments: VecDeque<Segment>,
    /// Requests in flight.
    asked: BTreeMap<u64, RequestInFlight>,
    next_number: u64,
    /// Current limit of concurrent requests.
    window: usize,
    /// The server has asked for fewer requests: the window then grows by one at a time.
    is_slowed: bool,
    /// Pages received.
    pages_seen: u32,
    /// Pages buffered.
    buffered: usize,
    /// Most keys seen on one page.
    page_keys: u64,
    /// The last key returned.
    taken: String,
    mode: Mode,
}

#[derive(Debug, PartialEq, Eq)]
enum Mode {
    Split,
    /// One request at a time, in the server's order.
    Single,
    /// One request at a time, from the start again: keys that were returned are skipped.
    Again,
}

/// Keys after one key, up to the next segment.
#[derive(Debug)]
struct Segment {
    /// The key after which it begins.
    start: String,
    /// The key up to which everything is known; `start` while nothing is.
    reached: String,
    pages: VecDeque<Vec<Object>>,
    next: Continuation,
    cycle: CycleGuard,
    /// The request in flight for its next page.
    asked: Option<u64>,
    /// Density of its last page, or of the segment that it was split off.
    density: Option<Density>,
    /// Density of all its pages, or of the segment that it was split off.
    wide: Option<Density>,
    /// Pages of it that were received.
    pages_seen: u32,
    /// Its first key, if it has one, and the last one known.
    first_key: Option<String>,
    last_key: Option<String>,
    /// All of it was listed by tokens from the start, so it did not depend on the order.
    is_plain: bool,
    /// Probable number of keys between what is known and the next segment; `None` if unknown.
    rest_keys: Option<u64>,
    /// Nothing followed the last cut: keys are denser here than over all its pages.
    is_overshot: bool,
}

/// A request in flight.
#[derive(Debug)]
struct RequestInFlight {
    /// The key after which it begins.
    after: String,
    /// It continues by tokens from the listing's start.
    is_plain: bool,
}

/// How a segment continues.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Continuation {
    Start,
    Token(String),
    After,
    End,
}

impl Segment {
    fn new(start: String, next: Continuation) -> Self {
        Self {
            reached: start.clone(),
            start,
            pages: VecDeque::new(),
            is_plain: next == Continuation::Start,
            next,
            cycle: CycleGuard::default(),
            asked: None,
            density: None,
            wide: None,
            pages_seen: 0,
            first_key: None,
            last_key: None,
            rest_keys: None,
            is_overshot: false,
        }
    }
}

impl Segment {
    /// How the segment continues after a page with these objects.
    ///
    /// # Errors
    /// If pages repeat.
    fn go_on(&mut self, objects: &[Object], token: Option<String>) -> Result<Continuation> {
        let Some(token) = token else { return Ok(Continuation::End) };
        self.cycle.follow(objects.first().map(|first| first.key.as_str()), &token)?;
        Ok(Continuation::Token(token))
    }
}

impl Split {
    /// A listing whose first page was received.
    #[must_use]
    pub fn new(prefix: &str, first: Page, limits: SplitLimits) -> Self {
        let mut split = Self {
            limits,
            alphabet: Alphabet::new(prefix),
            segments: VecDeque::from([Segment::new(String::new(), Continuation::Start)]),
            asked: BTreeMap::from([(0, RequestInFlight { after: String::new(), is_plain: true })]),
            next_number: 1,
            window: 1,
            is_slowed: false,
            pages_seen: 0,
            buffered: 0,
            page_keys: 1,
            taken: String::new(),
            mode: if limits.requests > 1 { Mode::Split } else { Mode::Single },
        };
        split.segments[0].asked = Some(0);
        split.answer(0, first).expect("a first page is in no order that it could break");
        split
    }

    /// Takes the next page in order, if it was received. It has at least one object.
    pub fn take_page(&mut self) -> Option<Vec<Object>> {
        let page = self.segments[0].pages.pop_front()?;
        self.buffered -= 1;
        if let Some(object) = page.last() {
            self.taken.clone_from(&object.key);
        }
        self.drop_complete();
        Some(page)
    }

    /// True if [`Self::take_page`] would return a page.
    #[must_use]
    pub fn has_page(&self) -> bool {
        !self.segments[0].pages.is_empty()
    }

    /// Drops complete segments whose pages were all taken.
    fn drop_complete(&mut self) {
        while self.segments.len() > 1 && self.segments[0].pages.is_empty() && self.is_complete(0) {
            self.segments.pop_front();
        }
    }

    /// True if everything was returned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.segments.len() == 1 && self.segments[0].pages.is_empty() && self.is_complete(0)
    }

    /// True if it continues with one request at a time because the server's pages were out of order
    /// or did not begin where requested.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.mode != Mode::Split && self.limits.requests > 1
    }

    /// Reports that the caller waits for the next page: more concurrent requests would help.
    pub fn note_wait(&mut self) {
        if self.mode != Mode::Split || self.pages_seen < PAGES_BEFORE_SPLIT {
            return;
        }
        if self.is_busy() {
            let grown = if self.is_slowed { self.window + 1 } else { self.window * 2 };
            self.window = grown.min(self.limits.requests);
        }
        // Pages far ahead must not limit the next ones to one request at a time.
        let has_stalled = self.asked.len() <= self.window / 2;
        if self.is_full() && (has_stalled || self.next_cut(0, SEGMENT_PAGES_MIN).is_some()) {
            while self.segments.len() > 1 && self.buffered > self.limits.pages / 2 {
                self.buffered -= self.segments.pop_back().map_or(0, |last| last.pages.len());
            }
        }
    }

    /// True if the page limit is reached.
    fn is_full(&self) -> bool {
        self.buffered + self.asked.len() >= self.limits.pages
    }

    /// True if the request limit is reached.
    fn is_busy(&self) -> bool {
        self.asked.len() >= self.window
    }

    /// Reports that the server wants fewer requests.
    pub fn slow_down(&mut self) {
        self.window = (self.window / 2).max(1);
        self.is_slowed = true;
    }

    /// The next request to make; call until it returns `None`.
    pub fn next_request(&mut self) -> Option<PageRequest> {
        let open = if self.is_busy() { 1 } else { self.segments.len() };
        if let Some(request) = (0..open).find_map(|at| self.ask(at)) {
            return Some(request);
        }
        let segment = self.cut()?;
        self.ask(segment)
    }

    fn ask(&mut self, at: usize) -> Option<PageRequest> {
        if self.is_complete(at) {
            return None;
        }
        let may_be_ahead = !self.is_full() && !self.is_busy() && self.window > 1;
        let segment = &mut self.segments[at];
        // The next page in order is always requested. No second page is requested ahead of it until
        // the caller has waited.
        let is_wanted = at == 0 && segment.pages.is_empty();
        if segment.asked.is_some() || !(is_wanted || may_be_ahead) {
            return None;
        }
        let from = match &segment.next {
            Continuation::Start => ListFrom::Start,
            Continuation::Token(token) => ListFrom::Token(token.clone()),
            Continuation::After => ListFrom::After(segment.reached.clone()),
            Continuation::End => return None,
        };
        let number = self.next_number;
        self.next_number += 1;
        segment.asked = Some(number);
        let (after, is_plain) = (segment.reached.clone(), segment.is_plain);
        self.asked.insert(number, RequestInFlight { after, is_plain });
        Some(PageRequest { number, from })
    }

    /// Starts a segment where it helps most; returns its index.
    fn cut(&mut self) -> Option<usize> {
        let may_split = self.mode == Mode::Split && self.pages_seen >= PAGES_BEFORE_SPLIT;
        if !may_split || self.is_full() || self.is_busy() {
            return None;
        }
        let pages = (self.window as u64 / 2).clamp(SEGMENT_PAGES_MIN, SEGMENT_PAGES_MAX);
        let may_go_on = self.planned_pages(pages) + pages <= self.limits.pages as u64;
        let last = self.segments.len() - 1;
        let cut = |pages, at: usize| Some((at, self.next_cut(at, pages)?));
        // Cut in order, so that the pages needed first arrive first. Then halve what is waited for:
        // the first segment, or the largest if nothing follows the last.
        let found = (0..last + usize::from(may_go_on)).find_map(|at| cut(pages, at));
        let found = found.or_else(|| {
            let waited_for = if self.is_complete(last) { last } else { 1.min(last) };
            let open = (0..waited_for).filter(|at| !self.is_complete(*at));
            let rests = open.filter_map(|at| Some((at, self.segments[at].rest_keys?)));
            let (at, rest) = rests.max_by_key(|(_, rest)| *rest)?;
            let pages = rest / self.page_keys / 2;
            if pages < SEGMENT_PAGES_MIN { None } else { cut(pages, at) }
        });
        let (at, start) = found?;
        let (density, wide) = (self.segments[at].density.clone(), self.segments[at].wide.clone());
        let segment = Segment { density, wide, ..Segment::new(start, Continuation::After) };
        self.segments.insert(at + 1, segment);
        self.measure(at);
        self.measure(at + 1);
        Some(at + 1)
    }

    /// Where to cut a segment so that it has `pages` more pages; `None` if it is shorter, or its
    /// length is unknown.
    fn next_cut(&self, at: usize, pages: u64) -> Option<String> {
        let segment = &self.segments[at];
        let keys = pages * self.page_keys;
        // A cut must leave more than a page after it.
        let is_short = |rest: Option<u64>| rest.is_some_and(|rest| rest <= self.page_keys);
        if self.is_complete(at) || is_short(segment.rest_keys.map(|rest| rest.saturating_sub(keys)))
        {
            return None;
        }
        let (near, is_beyond) =
            self.alphabet.advance(segment.density.as_ref()?, &segment.reached, keys)?;
        let wide = segment.wide.as_ref().filter(|_| is_beyond && !segment.is_overshot);
        let far = wide.and_then(|wide| self.alphabet.advance(wide, &segment.reached, keys));
        let start = far.map_or(near.clone(), |(far, _)| far.max(near));
        let Some(next) = self.segments.get(at + 1) else { return Some(start) };
        let rest = self.keys_between(segment, &start, &next.start);
        (start < next.start && !is_short(rest)).then_some(start)
    }

    /// Probable number of keys between two keys, at this segment's density.
    fn keys_between(&self, segment: &Segment, from: &str, to: &str) -> Option<u64> {
        let near = self.alphabet.keys_between(segment.density.as_ref()?, from, to);
        match (near, &segment.wide) {
            (None | Some((_, true)), Some(wide)) if !segment.is_overshot => {
                self.alphabet.keys_between(wide, from, to)
            }
            _ => near,
        }
        .map(|(keys, _)| keys)
    }

    /// Estimates how many keys a segment still lacks.
    fn measure(&mut self, at: usize) {
        let (segment, next) = (&self.segments[at], self.segments.get(at + 1));
        let rest = next.and_then(|next| self.keys_between(segment, &segment.reached, &next.start));
        self.segments[at].rest_keys = rest;
    }

    /// Estimated number of pages of all segments, at most `SEGMENT_PAGES_MAX` each.
    fn planned_pages(&self, pages: u64) -> u64 {
        let rest = |segment: &Segment| {
            let rest = segment.rest_keys.map(|keys| keys.div_ceil(self.page_keys));
            rest.unwrap_or(pages).clamp(1, SEGMENT_PAGES_MAX)
        };
        let open = (0..self.segments.len()).filter(|at| !self.is_complete(*at));
        self.buffered as u64 + open.map(|at| rest(&self.segments[at])).sum::<u64>()
    }

    fn is_complete(&self, at: usize) -> bool {
        let segment = &self.segments[at];
        segment.next == Continuation::End
            || self.segments.get(at + 1).is_some_and(|next| segment.reached >= next.start)
    }

    /// Takes an answer; one to an abandoned request is ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Endpoint`] if the server's listing has no order and cannot be continued.
    pub fn answer(&mut self, number: u64, page: Page) -> Result<()> {
        let Some(RequestInFlight { after, is_plain }) = self.asked.remove(&number) else {
            return Ok(());
        };
        if self.mode != Mode::Split {
            return self.append(page);
        }
        // The last segment that starts at or before it; keys before the first one were returned.
        let behind = self.segments.partition_point(|segment| segment.start <= after);
        let at = behind.saturating_sub(1);
        if !is_in_order(&after, &page.objects) {
            // What was listed by tokens alone continues by tokens, in any order.
            let is_next = at == 0 && is_plain && self.segments[0].is_plain;
            self.go_single();
            return if is_next { self.append(page) } else { Ok(()) };
        }
        self.pages_seen = self.pages_seen.saturating_add(1);
        self.alphabet.learn(&page.objects);
        self.page_keys = self.page_keys.max(page.objects.len() as u64);
        let segment = &mut self.segments[at];
        if segment.asked == Some(number) {
            segment.asked = None;
        }
        let segment = &self.segments[at];
        // If its segment was abandoned, there may be other keys between what is known and this
        // page.
        if after <= segment.reached && !self.is_complete(at) {
            if self.agrees(at, &after, &page) {
                self.segments[at].is_plain &= is_plain;
                self.extend(at, &after, page)?;
                self.measure(at);
                if self.segments[at].last_key.is_none() && self.is_complete(at) {
                    self.note_overshoot(at);
                }
                self.drop_complete();
            } else {
                self.go_single();
            }
        }
        Ok(())
    }

    /// Records that this segment is empty: it was cut off too far after the one before.
    fn note_overshoot(&mut self, at: usize) {
        if let Some(before) = (0..at).rfind(|before| !self.is_complete(*before)) {
            self.segments[before].is_overshot = true;
            self.measure(before);
        }
    }

    /// True if a page of a segment agrees with the known keys before and after it.
    fn agrees(&self, at: usize, after: &str, page: &Page) -> bool {
        let segment = &self.segments[at];
        let key = |at: usize| page.objects.get(at).map(|object| object.key.as_str());
        let up_to = |end: &str| page.objects.partition_point(|object| object.key.as_str() <= end);
        // The known part may end without a key: at the start of an abandoned segment.
        let known = up_to(&segment.reached);
        let last = segment.last_key.as_deref().filter(|last| *last > after);
        let begins = after == segment.reached
            || known == page.objects.len()
            || known.checked_sub(1).and_then(key) == last;
        let Some(next) =
            (at + 1..self.segments.len()).find(|next| self.segments[*next].pages_seen > 0)
        else {
            return begins;
        };
        let is_cut = page.next_token.is_none()
            || key(page.objects.len().wrapping_sub(1)) > Some(&self.segments[next].start);
        begins && (!is_cut || self.follows(next, key(up_to(&self.segments[next].start))))
    }

    /// True if `key` may be the first one after the start of a segment; `None`: there is none at
    /// all.
    fn follows(&self, at: usize, key: Option<&str>) -> bool {
        for (at, segment) in self.segments.iter().enumerate().skip(at) {
            match &segment.first_key {
                Some(first) => return key == Some(first.as_str()),
                None if segment.next == Continuation::End => return key.is_none(),
                // It is empty, up to the next one.
                None if self.is_complete(at) => {}
                None => return true,
            }
        }
        true
    }

    /// Extends a segment by a page, which covers everything from `after` to its last key.
    fn extend(&mut self, at: usize, after: &str, page: Page) -> Result<()> {
        let mut objects = page.objects;
        let page_end = objects.last().map_or(after, |last| last.key.as_str()).to_owned();
        let is_end = page.next_token.is_none();
        let reached = self.segments[at].reached.as_str();
        let is_known = page_end == reached && after < reached && !is_end;
        if page_end.as_str() < reached || is_known {
            return Ok(());
        }
        if let Some(density) = Density::of(&objects) {
            let segment = &mut self.segments[at];
            let before = segment.wide.take().filter(|_| segment.pages_seen > 0);
            segment.wide = Some(before.map_or(density.clone(), |before| before.with(&density)));
            segment.density = Some(density);
        }
        let mut end = None;
        while let Some(next) = self.segments.get(at + 1) {
            if !is_end && page_end <= next.start {
                break;
            }
            if next.pages_seen > 0 {
                end = Some(next.start.clone());
                break;
            }
            // The page covers the next segment's start. That segment's request may give more.
            let next = self.segments.remove(at + 1);
            let asked = next.and_then(|next| next.asked);
            self.segments[at].asked = asked.or(self.segments[at].asked);
        }
        let segment = &mut self.segments[at];
        objects.drain(..objects.partition_point(|object| object.key <= segment.reached));
        segment.pages_seen = segment.pages_seen.saturating_add(1);
        if segment.first_key.is_none() {
            segment.first_key = objects.first().map(|first| first.key.clone());
        }
        (segment.reached, segment.next) = match end {
            Some(end) => {
                objects.truncate(objects.partition_point(|object| object.key <= end));
                segment.is_plain = false;
                (end, Continuation::After)
            }
            None => (page_end, segment.go_on(&objects, page.next_token)?),
        };
        if let Some(last) = objects.last() {
            segment.last_key = Some(last.key.clone());
            segment.pages.push_back(objects);
            self.buffered += 1;
        }
        Ok(())
    }

    /// Reports a failed request; true if the listing can do without it: it was abandoned, or it was
    /// based on a guess, and the listing continues by tokens alone.
    pub fn refused(&mut self, number: u64) -> bool {
        match self.asked.get(&number) {
            None => true,
            Some(RequestInFlight { is_plain: true, .. }) => false,
            Some(_) => {
                self.go_single();
                true
            }
        }
    }

    /// Drops everything that was split off.
    fn go_single(&mut self) {
        self.mode = Mode::Single;
        self.window = 1;
        self.asked.clear();
        self.segments.truncate(1);
        self.segments[0].asked = None;
        if !self.segments[0].is_plain {
            self.mode = if self.taken.is_empty() { Mode::Single } else { Mode::Again };
            self.segments[0] = Segment::new(String::new(), Continuation::Start);
        }
        self.buffered = self.segments[0].pages.len();
    }

    /// Appends the next page, in whatever order.
    fn append(&mut self, page: Page) -> Result<()> {
        let segment = &mut self.segments[0];
        segment.asked = None;
        segment.next = segment.go_on(&page.objects, page.next_token)?;
        let mut objects = page.objects;
        if self.mode == Mode::Again {
            let known = objects.iter().position(|object| object.key > self.taken);
            let known = known.unwrap_or(objects.len());
            if !is_in_order(&segment.reached, &objects[..known]) {
                let message = "the server's listing changes its order";
                return Err(Error::new(ErrorKind::Endpoint, message)
                    .advise("list with one request at a time: --list-requests 1"));
            }
            if let Some(last) = objects[..known].last() {
                segment.reached.clone_from(&last.key);
            }
            if known < objects.len() {
                self.mode = Mode::Single;
            }
            objects.drain(..known);
        }
        if !objects.is_empty() {
            segment.pages.push_back(objects);
            self.buffered += 1;
        }
        Ok(())
    }
}

/// True if all keys are after `after`, in ascending order.
fn is_in_order(after: &str, objects: &[Object]) -> bool {
    let keys = objects.iter().map(|object| object.key.as_str());
    std::iter::once(after).chain(keys).is_sorted_by(|one, next| one < next)
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
