//! The controller: windows of goodput in, a number of requests in flight out.

use super::levels::{Levels, per_mille};
use super::rate::Rate;
use super::timeline::{Change, Moment, Timeline};
use super::{Bounds, EndpointTotals, Limits, Totals};
use crate::engine::endpoints::EndpointNumber;
use crate::limits::{
    PACE_CHANGED_PER_MILLE, PACE_CHANGED_WINDOWS, PACE_CLEAR_PER_MILLE, PACE_CLIMB_PER_MILLE,
    PACE_DOWN_PAUSE_MAX_US, PACE_DOWN_PAUSE_US, PACE_DOWN_PER_MILLE, PACE_FLAT_PER_MILLE,
    PACE_FULL_CLIMB_PER_MILLE, PACE_FULL_UP_PER_MILLE, PACE_HELD_UP_PER_MILLE, PACE_KNEE_PER_MILLE,
    PACE_LEAP_BYTES_MAX, PACE_LEAP_FIRST_BYTE_US, PACE_LEAP_WAIT_PER_MILLE,
    PACE_NEARLY_BEST_PER_MILLE, PACE_PAUSE_MIN_US, PACE_REQUEST_BYTES, PACE_ROUND_FIRST_BYTES,
    PACE_SETTLE_MAX_US, PACE_SETTLE_MIN_US, PACE_TICK_US, PACE_UP_PAUSE_MAX_US, PACE_UP_PER_MILLE,
    PACE_WINDOW_HOLD_MIN_US, PACE_WINDOW_MAX_US, PACE_WINDOW_MIN_US, PACE_WINDOW_PIECES,
};

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Doubles while that pays, or leaps to four times as many; `below` is the level before. What
    /// brought a little more in one window is measured once more: new connections need their time.
    Climb { below: Option<usize>, again: bool },
    /// Stays, and looks beside from time to time.
    Hold,
    /// Looks at a level beside `home`, where this machine was the limit or was not.
    Probe { home: usize, was_full: bool },
}

/// One measurement: it begins when what was chosen has come into effect.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Not before this time.
    settled_us: u64,
    /// Begun then, with what had come.
    begun: Option<(u64, Totals)>,
    ticks: u64,
    /// Those of them in which there was more to ask for.
    bound_ticks: u64,
    /// Those in which many of the requests found no slot.
    full_ticks: u64,
    busy_ticks: u64,
}

/// What a window came to.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Bytes a second, and what requests count besides.
    work: u64,
    bytes_per_second: u64,
    /// This machine was the limit: more requests bring nothing, whatever was measured.
    is_full: bool,
    /// It was clear before the end of its time.
    is_clear: bool,
    /// Bytes of one request, about.
    request_bytes: u64,
}

/// A raised level comes into effect little by little: requests that are all sent at once are all
/// answered at once, and a window then sees one crowd of answers more than its time brings, or one
/// less.
#[derive(Debug, Clone, Copy, Default)]
struct Ramp {
    from: u32,
    begun_us: u64,
    time_us: u64,
}

impl Ramp {
    /// How many there may be on the way to so many.
    fn requests(&self, to: u32, now_us: u64) -> u32 {
        let elapsed_us = now_us.saturating_sub(self.begun_us);
        let Some(more) = to.checked_sub(self.from).filter(|_| elapsed_us < self.time_us) else {
            return to;
        };
        let reached = u64::from(more) * elapsed_us / self.time_us;
        self.from + u32::try_from(reached).unwrap_or(more)
    }
}

/// Chooses how many requests are in flight.
#[derive(Debug)]
pub struct Controller {
    bounds: Bounds,
    levels: Levels,
    level: usize,
    /// The level that it climbed from last.
    climbed_from: usize,
    stage: Stage,
    ramp: Ramp,
    window: Window,
    /// What each endpoint takes, and what it had said before.
    rates: Vec<(Rate, EndpointTotals)>,
    timeline: Timeline,
    /// When it looks above next, and below.
    look_up_us: u64,
    look_down_us: u64,
    /// Time between two looks above, and below.
    up_pause_us: u64,
    down_pause_us: u64,
    /// Windows in a row that were far from what is known.
    strange: u32,
    before: Totals,
    ticked_us: u64,
    /// Usual time to a first byte, in microseconds.
    first_byte_us: u64,
    /// Usual time of a connection for a piece of a body, or a small object.
    piece_us: u64,
    /// Usual time of a request, from its beginning to its end; 0 while that is not known.
    request_us: u64,
    /// When the first answer had come.
    answered_us: Option<u64>,
}

impl Controller {
    /// One that begins at the start of its bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let levels = Levels::new(bounds);
        let level = levels.of(bounds.start);
        let mut new = Self {
            bounds,
            level,
            climbed_from: level,
            levels,
            stage: Stage::Climb { below: None, again: false },
            ramp: Ramp::default(),
            window: Window::default(),
            rates: vec![Default::default()],
            timeline: Timeline::default(),
            look_up_us: 0,
            look_down_us: 0,
            up_pause_us: PACE_PAUSE_MIN_US,
            down_pause_us: PACE_DOWN_PAUSE_US,
            strange: 0,
            before: Totals::default(),
            ticked_us: 0,
            first_byte_us: 0,
            piece_us: 0,
            request_us: 0,
            answered_us: None,
        };
        new.tell(0, Change::Start, 0);
        new
    }

    /// What may be asked for now.
    #[must_use]
    pub fn limits(&self, now_us: u64) -> Limits {
        Limits {
            requests_in_flight: self.ramp.requests(self.levels.requests(self.level), now_us),
            requests_per_second: self.rate(EndpointNumber::FIRST, now_us),
        }
    }

    /// Requests a second that may be sent to an endpoint now; `None` while it has not asked for
    /// less.
    #[must_use]
    pub fn rate(&self, endpoint: EndpointNumber, now_us: u64) -> Option<u64> {
        self.rates.get(endpoint.index()).and_then(|(rate, _)| rate.per_second(now_us))
    }

    /// What it chose so far.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Takes what has come so far. Calls within [`PACE_TICK_US`] of the last one are ignored.
    pub fn handle(&mut self, now_us: u64, totals: Totals) {
        let Totals { answers, refused, .. } = totals;
        self.handle_each(now_us, totals, &[EndpointTotals { answers, refused }]);
    }

    /// The same, with what each endpoint has said of that, by its number.
    pub fn handle_each(&mut self, now_us: u64, totals: Totals, endpoints: &[EndpointTotals]) {
        if now_us < self.ticked_us + PACE_TICK_US {
            return;
        }
        let before_us = std::mem::replace(&mut self.ticked_us, now_us);
        let answers = totals.answers.saturating_sub(self.before.answers);
        self.learn(now_us, answers, &totals);
        self.before = totals;
        if self.judge_rates((before_us, now_us), endpoints) {
            self.begin_window(now_us, self.piece_us);
        }
        if self.bounds.is_adaptive()
            && let Some(measured) = self.measure(now_us, &totals)
        {
            self.decide(now_us, measured);
        }
    }

    /// Finds out what each endpoint takes; true when one asked for less, and gets it.
    fn judge_rates(
        &mut self,
        (before_us, now_us): (u64, u64),
        endpoints: &[EndpointTotals],
    ) -> bool {
        if self.rates.len() < endpoints.len() {
            let new = || (Rate::begun(before_us), EndpointTotals::default());
            self.rates.resize_with(endpoints.len(), new);
        }
        let is_only = self.rates.len() == 1;
        let mut is_cut = false;
        for (index, came) in endpoints.iter().enumerate() {
            let (rate, before) = &mut self.rates[index];
            let answers = came.answers.saturating_sub(before.answers);
            let refused = came.refused.saturating_sub(before.refused);
            *before = *came;
            if !rate.handle(now_us, answers, refused) {
                continue;
            }
            is_cut = true;
            self.tell_of(now_us, Some(EndpointNumber::at(index)), Change::Refused, 0);
            if let (Stage::Climb { .. }, true) = (self.stage, is_only) {
                // What more requests would bring is not for them to say now. The others of several
                // endpoints may still say it.
                self.hold(now_us);
            }
        }
        is_cut
    }

    /// Keeps the usual times of a request, to its first byte and to its last.
    fn learn(&mut self, now_us: u64, answers: u64, totals: &Totals) {
        let first_byte_us = totals.first_byte_us.saturating_sub(self.before.first_byte_us);
        if let Some(mean_us) = first_byte_us.checked_div(answers) {
            self.first_byte_us = usual(self.first_byte_us, mean_us);
            self.answered_us.get_or_insert(now_us);
        }
        let ended = totals.ended.saturating_sub(self.before.ended);
        let ended_us = totals.ended_us.saturating_sub(self.before.ended_us);
        if let Some(mean_us) = ended_us.checked_div(ended) {
            self.request_us = usual(self.request_us, mean_us);
        }
    }

    /// Begins to measure once a choice has come into effect: pieces take so long. Where requests
    /// bring their bytes in waves, new ones have brought theirs once.
    fn begin_window(&mut self, now_us: u64, piece_us: u64) {
        let effect_us = (self.first_byte_us * 3 / 2 + piece_us).max(self.round_us());
        let settle_us = effect_us.clamp(PACE_SETTLE_MIN_US, PACE_SETTLE_MAX_US);
        self.window = Window { settled_us: now_us + settle_us, ..Window::default() };
    }

    /// How long a window lasts; where nothing is new, it may be longer and tell more.
    fn window_us(&self) -> u64 {
        // Connections that began together bring their pieces together: several rounds of them.
        let usual_us = self.first_byte_us + PACE_WINDOW_PIECES * self.piece_us;
        let usual_us = usual_us.clamp(PACE_WINDOW_MIN_US, PACE_WINDOW_MAX_US);
        let length_us = match self.stage {
            Stage::Climb { .. } => usual_us,
            Stage::Hold | Stage::Probe { .. } => (usual_us * 2).max(PACE_WINDOW_HOLD_MIN_US),
        };
        whole_rounds(length_us, self.round_us())
    }

    /// Usual time of a request, from its beginning to its end, where that matters: requests that
    /// began together wait together, and then bring their bytes together. 0 where they wait for a
    /// small part of their time.
    fn round_us(&self) -> u64 {
        let waits = self.first_byte_us * PACE_ROUND_FIRST_BYTES >= self.request_us;
        if waits { self.request_us } else { 0 }
    }

    /// At first they connect, and a stream's later ranges come before they can be handed on: what
    /// requests bring is seen once each has brought a piece, or a small object; of those that wait
    /// long for their first byte, once they have ended.
    fn is_begun(&self, now_us: u64, wanted: u64, totals: &Totals) -> bool {
        let pieces = totals.bytes / self.bounds.piece_bytes;
        if totals.answers < wanted || (totals.answers < wanted * 2 && pieces < wanted) {
            return false;
        }
        let long_us = self.first_byte_us * PACE_ROUND_FIRST_BYTES;
        let is_long = self.answered_us.is_some_and(|first_us| now_us >= first_us + long_us);
        is_long || totals.ended * 2 >= wanted || totals.answers >= wanted * 2
    }

    /// True when so much more came already than before that the rest of the window cannot change
    /// what follows: the best number is far above, and each step on the way to it costs time.
    fn is_clear(&self, now_us: u64, elapsed_us: u64, (pieces, work): (u64, u64)) -> bool {
        let Stage::Climb { below: Some(below), .. } = self.stage else { return false };
        // Requests that began together bring their pieces together: what came of a part of the time
        // that one of them takes at most (see `go_to`) would say too much.
        let requests = u64::from(self.levels.requests(self.level));
        let needed_us = whole_rounds(PACE_WINDOW_MIN_US.max(self.piece_us), self.round_us());
        let is_long = elapsed_us >= needed_us;
        let is_seen = pieces >= requests;
        let known = self.levels.known(below, now_us);
        let needed = self.gain(below, PACE_CLEAR_PER_MILLE);
        is_long && is_seen && known.is_some_and(|before| work >= per_mille(before, needed))
    }

    /// What the step from the level below has to bring, where twice as many have to bring this.
    fn gain(&self, below: usize, doubled_per_mille: u64) -> u64 {
        match self.is_leap(below, self.level) {
            true => per_mille(doubled_per_mille, doubled_per_mille),
            false => doubled_per_mille,
        }
    }

    fn is_leap(&self, below: usize, level: usize) -> bool {
        self.levels.requests(level) / self.levels.requests(below).max(1) > 2
    }

    /// Whether requests do nothing but wait, so that the best number is far above.
    fn mostly_waits(&self, measured: Measured) -> bool {
        self.request_us > 0
            && self.first_byte_us >= PACE_LEAP_FIRST_BYTE_US
            && self.first_byte_us >= per_mille(self.request_us, PACE_LEAP_WAIT_PER_MILLE)
            && measured.request_bytes <= PACE_LEAP_BYTES_MAX
            && !measured.is_full
    }

    /// The window's work, when it is over and says something.
    fn measure(&mut self, now_us: u64, totals: &Totals) -> Option<Measured> {
        let wanted = u64::from(self.levels.requests(self.level));
        let busy = u64::from(totals.busy);
        let is_filled = busy * 8 >= wanted * 7;
        let Some((begun_us, at)) = self.window.begun else {
            // Requests above a lowered limit end by themselves, and those below a raised one need
            // a moment; neither is waited for without end.
            let is_near = is_filled && busy * 8 <= wanted * 9;
            let is_first = matches!(self.stage, Stage::Climb { below: None, .. });
            let is_answered = !is_first || self.is_begun(now_us, wanted, totals);
            let is_late = now_us >= self.window.settled_us + PACE_SETTLE_MAX_US;
            let is_steady = (is_near && is_answered) || (totals.answers > 0 && is_late);
            if now_us >= self.window.settled_us && is_steady {
                self.window.begun = Some((now_us, *totals));
            }
            return None;
        };
        self.window.ticks += 1;
        // A busy worker comes late to those of its connections that are free again.
        self.window.bound_ticks += u64::from(totals.is_bound || is_filled);
        let held_up = u64::from(totals.held_up) * 1000;
        let is_full = totals.held_up > 0 && held_up >= busy * PACE_HELD_UP_PER_MILLE;
        self.window.full_ticks += u64::from(is_full);
        self.window.busy_ticks += busy;
        let elapsed_us = now_us - begun_us;
        let (bytes, answers) = (totals.bytes - at.bytes, totals.answers - at.answers);
        let pieces = (bytes / self.bounds.piece_bytes).max(answers);
        let work = (bytes + answers * PACE_REQUEST_BYTES) * 1000 / (elapsed_us / 1000).max(1);
        let is_clear = self.is_clear(now_us, elapsed_us, (pieces, work));
        if elapsed_us < self.window_us() && !is_clear {
            return None;
        }
        let Window { ticks, bound_ticks, full_ticks, busy_ticks, .. } = self.window;
        self.window = Window { begun: Some((now_us, *totals)), ..Window::default() };
        let each_us = elapsed_us * busy_ticks / ticks.max(1) / pieces.max(1);
        self.piece_us = each_us.min(PACE_SETTLE_MAX_US);
        // Where there was nothing more to ask for, more requests would have brought nothing.
        (bound_ticks * 2 >= ticks).then(|| Measured {
            work,
            bytes_per_second: bytes * 1000 / (elapsed_us / 1000).max(1),
            is_full: full_ticks * 2 >= ticks,
            is_clear,
            request_bytes: bytes / answers.max(1),
        })
    }

    fn decide(&mut self, now_us: u64, measured: Measured) {
        match self.stage {
            Stage::Climb { below, again } => self.climbed(now_us, below, again, measured),
            Stage::Hold => self.held(now_us, measured),
            Stage::Probe { home, was_full } => self.probed(now_us, home, was_full, measured),
        }
    }

    fn climbed(&mut self, now_us: u64, below: Option<usize>, again: bool, measured: Measured) {
        self.levels.note(self.level, measured.work, now_us);
        // A disk that is the limit may still take more at once: not for noise.
        let needed =
            if measured.is_full { PACE_FULL_CLIMB_PER_MILLE } else { PACE_CLIMB_PER_MILLE };
        let before = below.and_then(|below| self.levels.known(below, now_us));
        if let Some((below, before)) = below.zip(before)
            && self.is_leap(below, self.level)
            && measured.work < per_mille(before, self.gain(below, PACE_KNEE_PER_MILLE))
        {
            // It was too far: from the level between it goes on as always.
            let between = self.levels.requests(below).saturating_mul(2);
            self.stage = Stage::Climb { below: Some(below), again: false };
            return self.go_to(now_us, self.levels.of(between), Change::Back, measured);
        }
        let pays =
            before.map_or(!measured.is_full, |before| measured.work >= per_mille(before, needed));
        let is_knee =
            before.is_some_and(|before| measured.work < per_mille(before, PACE_KNEE_PER_MILLE));
        if pays && (again || !is_knee) && self.level < self.levels.last() {
            let is_far = before.is_none() || measured.is_clear;
            let is_leap = is_far && self.mostly_waits(measured);
            return self.multiply(now_us, if is_leap { 4 } else { 2 }, Change::More, measured);
        }
        let is_more = before.is_none_or(|before| measured.work >= before);
        if is_more && !measured.is_full && !again {
            self.stage = Stage::Climb { below, again: true };
            return;
        }
        let best = self.levels.choose(now_us).unwrap_or(self.level);
        // Where twice as many as at first bring no more, fewer may bring as much, and so they may
        // where the last step that paid brought far less than twice as much; elsewhere they do not.
        let is_first = below.is_some_and(|below| best <= below && self.climbed_from == below);
        let half = self.levels.of(self.levels.requests(best) / 2);
        let is_near_knee = self
            .levels
            .known(half, now_us)
            .zip(self.levels.known(best, now_us))
            .is_some_and(|(half, best)| best < per_mille(half, PACE_KNEE_PER_MILLE));
        let looks_at_once = is_first || is_near_knee || measured.is_full;
        self.down_pause_us = PACE_DOWN_PAUSE_US;
        self.look_down_us = if looks_at_once { now_us } else { now_us + self.down_pause_us };
        self.hold(now_us);
        if best != self.level {
            self.go_to(now_us, best, Change::Back, measured);
        }
    }

    fn held(&mut self, now_us: u64, measured: Measured) {
        let known = self.levels.known(self.level, now_us).unwrap_or(measured.work);
        let differs = known.abs_diff(measured.work) > per_mille(known, PACE_CHANGED_PER_MILLE);
        self.strange = if differs { self.strange + 1 } else { 0 };
        let rises = measured.work >= per_mille(known, PACE_CLIMB_PER_MILLE);
        let may_rise = !measured.is_full && self.level < self.levels.last();
        if rises && may_rise {
            // Somebody may have left: this is no time to look below, nor to wait.
            return self.probe(now_us, self.level + 1, Change::More, measured);
        }
        if self.strange >= PACE_CHANGED_WINDOWS {
            self.levels.forget();
            self.levels.note(self.level, measured.work, now_us);
            if may_rise {
                return self.climb_on(now_us, Change::Changed, measured);
            }
            self.strange = 0;
        } else if !differs {
            self.levels.note(self.level, measured.work, now_us);
        }
        if self.strange > 0 {
            return;
        }
        if now_us >= self.look_down_us && self.level > 0 {
            self.probe(now_us, self.level - 1, Change::Fewer, measured);
        } else if now_us >= self.look_up_us && self.level < self.levels.last() {
            self.probe(now_us, self.level + 1, Change::More, measured);
        }
    }

    /// Looks at a level beside.
    fn probe(&mut self, now_us: u64, level: usize, change: Change, measured: Measured) {
        self.stage = Stage::Probe { home: self.level, was_full: measured.is_full };
        self.go_to(now_us, level, change, measured);
    }

    /// Twice as many may pay again.
    fn climb_on(&mut self, now_us: u64, change: Change, measured: Measured) {
        self.climbed_from = self.level;
        self.multiply(now_us, 2, change, measured);
    }

    fn multiply(&mut self, now_us: u64, factor: u32, change: Change, measured: Measured) {
        self.stage = Stage::Climb { below: Some(self.level), again: false };
        let multiplied = self.levels.requests(self.level).saturating_mul(factor);
        self.go_to(now_us, self.levels.of(multiplied), change, measured);
    }

    fn probed(&mut self, now_us: u64, home: usize, was_full: bool, measured: Measured) {
        self.levels.note(self.level, measured.work, now_us);
        let before = self.levels.known(home, now_us).unwrap_or(0);
        let best = self.levels.best(now_us);
        let needed = if measured.is_full { PACE_FULL_UP_PER_MILLE } else { PACE_UP_PER_MILLE };
        if self.level > home && measured.work >= per_mille(before, needed) {
            // There is room again: somebody left, or more was there all the time.
            self.up_pause_us = PACE_PAUSE_MIN_US;
            if self.level < self.levels.last() {
                return self.climb_on(now_us, Change::More, measured);
            }
            return self.hold(now_us);
        }
        let is_far_more = measured.work >= per_mille(before, PACE_CLIMB_PER_MILLE);
        if self.level < home && is_far_more && !was_full {
            // Fewer do not bring so much more: somebody has left.
            return self.climb_on(now_us, Change::Changed, measured);
        }
        let is_enough = measured.work >= per_mille(before, PACE_DOWN_PER_MILLE)
            && measured.work >= per_mille(best, PACE_NEARLY_BEST_PER_MILLE);
        if self.level < home && is_enough {
            self.down_pause_us = PACE_DOWN_PAUSE_US;
            // The next step costs no less than this one: where this one did, it is not for now.
            let is_flat = measured.work >= per_mille(best, PACE_FLAT_PER_MILLE);
            let pause_us = if is_flat { PACE_PAUSE_MIN_US } else { PACE_DOWN_PAUSE_US };
            self.look_down_us = now_us + pause_us;
            return self.hold(now_us);
        }
        // A look above costs next to nothing, one below what is missing there.
        if self.level > home {
            self.up_pause_us = (self.up_pause_us * 2).min(PACE_UP_PAUSE_MAX_US);
        } else {
            self.down_pause_us = (self.down_pause_us * 2).min(PACE_DOWN_PAUSE_MAX_US);
            self.look_down_us = now_us + self.down_pause_us;
        }
        self.hold(now_us);
        self.go_to(now_us, home, Change::Back, measured);
    }

    fn hold(&mut self, now_us: u64) {
        self.stage = Stage::Hold;
        self.strange = 0;
        self.look_up_us = now_us + self.up_pause_us;
    }

    fn go_to(&mut self, now_us: u64, level: usize, change: Change, measured: Measured) {
        let mut effect_us = self.piece_us;
        if level > self.level {
            let from = self.levels.requests(self.level);
            // Where more bring no more, each takes the longer; a window must see all of them once.
            // Nobody leaps where that is near.
            if !self.is_leap(self.level, level) {
                let longer_us = self.piece_us * u64::from(self.levels.requests(level));
                self.piece_us = (longer_us / u64::from(from)).min(PACE_SETTLE_MAX_US);
            }
            // Where twice as many brought twice as much, none takes longer yet.
            effect_us = if measured.is_clear { effect_us } else { self.piece_us };
            self.ramp = Ramp { from, begun_us: now_us, time_us: effect_us };
        }
        self.level = level;
        self.tell(now_us, change, measured.bytes_per_second);
        self.begin_window(now_us, effect_us);
    }

    fn tell(&mut self, now_us: u64, change: Change, bytes_per_second: u64) {
        self.tell_of(now_us, None, change, bytes_per_second);
    }

    fn tell_of(
        &mut self,
        now_us: u64,
        endpoint: Option<EndpointNumber>,
        change: Change,
        bytes_per_second: u64,
    ) {
        let requests_in_flight = self.levels.requests(self.level);
        let only = (self.rates.len() == 1).then_some(EndpointNumber::FIRST);
        let rate = endpoint.or(only).and_then(|endpoint| self.rate(endpoint, now_us));
        self.timeline.push(Moment {
            at_us: now_us,
            change,
            endpoint,
            requests_in_flight,
            requests_per_second: rate,
            bytes_per_second,
        });
    }
}

/// The mean of what was usual, and an eighth of what is new.
fn usual(before_us: u64, new_us: u64) -> u64 {
    if before_us == 0 { new_us } else { before_us * 7 / 8 + new_us / 8 }
}

/// The whole rounds of requests that are nearest to this time, at least one: what begins together
/// waits together, and a part of a round brings all of it or nothing. Rounds that are longer than a
/// window are ignored: most of such a time bytes come.
fn whole_rounds(time_us: u64, round_us: u64) -> u64 {
    if !(1..=PACE_WINDOW_MAX_US).contains(&round_us) {
        return time_us;
    }
    let rounds = (time_us + round_us / 2) / round_us;
    let whole_us = rounds.max(1) * round_us;
    if whole_us < PACE_WINDOW_MIN_US { time_us } else { whole_us }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
