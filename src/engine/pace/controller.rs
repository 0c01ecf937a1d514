//! The controller: takes windows of goodput, and sets the number of requests in flight.

mod climb;
mod first;
mod ordered;
mod reader;

use self::climb::Below;
use self::ordered::ordered_ended;
use self::reader::{Step, StreamReader};
use super::levels::{Levels, per_mille};
use super::rate::Rate;
use super::timeline::{Change, Moment, Timeline};
use super::window::{Came, Measured, Ramp, Window, whole_rounds};
use super::{Bounds, EndpointTotals, Limits, Totals};
use crate::engine::endpoints::EndpointNumber;
use crate::limits::{
    PACE_CHANGED_PER_MILLE, PACE_CHANGED_WINDOWS, PACE_CLIMB_PER_MILLE, PACE_DOWN_PAUSE_MAX_US,
    PACE_DOWN_PAUSE_US, PACE_DOWN_PER_MILLE, PACE_FULL_UP_PER_MILLE, PACE_NEARLY_BEST_PER_MILLE,
    PACE_ORDERED_UP_PER_MILLE, PACE_PAUSE_MIN_US, PACE_ROUND_FIRST_BYTES, PACE_SETTLE_MAX_US,
    PACE_SETTLE_MIN_US, PACE_TICK_US, PACE_UP_PER_MILLE, PACE_WINDOW_HOLD_MIN_US,
    PACE_WINDOW_MAX_US, PACE_WINDOW_MIN_US, PACE_WINDOW_PIECES, TURN_WAIT_MAX_US,
};

/// The state of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is known yet. `filled_us`: when nearly all allowed requests had been sent;
    /// `has_leapt`: more are allowed than at the start.
    First { filled_us: Option<u64>, has_leapt: bool },
    /// Doubles the level while that pays, or quadruples it; `below` is the previous level and its
    /// bytes per request. A step that brought only a little more is measured twice, since new
    /// connections need time.
    Climb { below: Option<Below>, again: bool },
    /// Stays, and probes neighbouring levels from time to time.
    Hold,
    /// The reader of a stream is the limit; `step`: the last step down, while it may still prove
    /// too much.
    Reader { step: Option<Step> },
    /// Measures a level beside `home`; `was_full`: this machine was the limit there.
    Probe { home: usize, was_full: bool },
}

/// Chooses the number of requests in flight.
#[derive(Debug)]
pub struct Controller {
    bounds: Bounds,
    levels: Levels,
    level: usize,
    /// The level where the last climb began.
    climbed_from: usize,
    stage: Stage,
    ramp: Ramp,
    window: Window,
    /// The request rate of each endpoint, and its previous totals.
    rates: Vec<(Rate, EndpointTotals)>,
    timeline: Timeline,
    /// For a stream: whether the reader or the network is the limit.
    reader: StreamReader,
    /// When to probe above next, and below.
    look_up_us: u64,
    look_down_us: u64,
    /// Time between two probes above, and below.
    up_pause_us: u64,
    down_pause_us: u64,
    /// Consecutive windows that differ much from what is known.
    strange: u32,
    before: Totals,
    ticked_us: u64,
    /// Usual time to a first byte, in microseconds.
    first_byte_us: u64,
    /// Usual time of a connection for a piece of a body, or a small object.
    piece_us: u64,
    /// Usual time of a request from start to end; 0 if unknown.
    request_us: u64,
    /// When the first answers arrived, and their usual time to a first byte.
    answered: Option<(u64, u64)>,
}

impl Controller {
    /// A controller at the start of its bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let levels = Levels::new(bounds);
        let level = levels.of(bounds.start);
        let mut new = Self {
            bounds,
            level,
            climbed_from: level,
            levels,
            stage: Stage::First { filled_us: None, has_leapt: false },
            ramp: Ramp::default(),
            // A stream's first requests also had to connect: measure those after them.
            window: Window {
                ended_least: u64::from(bounds.start) + ordered_ended(bounds.start),
                ..Window::default()
            },
            rates: vec![Default::default()],
            timeline: Timeline::default(),
            reader: StreamReader::default(),
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
            answered: None,
        };
        new.record(0, Change::Start, 0);
        new
    }

    /// The current limits.
    #[must_use]
    pub fn limits(&self, now_us: u64) -> Limits {
        Limits {
            requests_in_flight: self.ramp.requests(self.levels.requests(self.level), now_us),
            requests_per_second: self.rate(EndpointNumber::FIRST, now_us),
        }
    }

    /// Requests per second that an endpoint currently allows; `None` while it has not asked for
    /// fewer.
    #[must_use]
    pub fn rate(&self, endpoint: EndpointNumber, now_us: u64) -> Option<u64> {
        self.rates.get(endpoint.index()).and_then(|(rate, _)| rate.per_second(now_us))
    }

    /// Time between two requests to an endpoint, in nanoseconds; `None` while it has not asked for
    /// fewer.
    #[must_use]
    pub fn interval_ns(&self, endpoint: EndpointNumber, now_us: u64) -> Option<u64> {
        self.rates.get(endpoint.index()).and_then(|(rate, _)| rate.interval_ns(now_us))
    }

    /// The choices so far.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Takes the totals so far. Calls within [`PACE_TICK_US`] of the last one are ignored.
    pub fn handle(&mut self, now_us: u64, totals: Totals) {
        let Totals { answers, refused, .. } = totals;
        self.handle_each(now_us, totals, &[EndpointTotals { answers, refused }]);
    }

    /// Like [`Self::handle`], with the totals of each endpoint by number.
    pub fn handle_each(&mut self, now_us: u64, totals: Totals, endpoints: &[EndpointTotals]) {
        if now_us < self.ticked_us + PACE_TICK_US {
            return;
        }
        let before_us = std::mem::replace(&mut self.ticked_us, now_us);
        let answers = totals.answers.saturating_sub(self.before.answers);
        self.learn(now_us, answers, &totals);
        self.before = totals;
        let is_cut = self.judge_rates((before_us, now_us), endpoints);
        // Workers did not look, because they had nothing in flight or were stopped.
        let has_rested = before_us + 2 * TURN_WAIT_MAX_US < now_us && self.window.begun.is_some();
        if is_cut || has_rested {
            self.begin_window(now_us, self.piece_us);
        }
        if !self.bounds.is_adaptive() {
            return;
        }
        self.leap_unanswered(now_us, &totals);
        if self.bounds.is_ordered {
            self.fit_room(now_us, &totals);
            self.pass_over_rest(now_us, &totals);
            self.look_at_reader(now_us, &totals);
            if matches!(self.stage, Stage::Reader { .. }) {
                return;
            }
        }
        if let Some(measured) = self.measure(now_us, &totals) {
            self.decide(now_us, measured);
        }
    }

    /// Updates each endpoint's rate; true if one was cut.
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
            self.record_of(now_us, Some(EndpointNumber::at(index)), Change::Refused, 0);
            if let (Stage::First { .. } | Stage::Climb { .. }, true) = (self.stage, is_only) {
                // A refusing endpoint cannot show what more requests would bring. With several
                // endpoints the others still can.
                self.hold(now_us);
            }
        }
        is_cut
    }

    /// Updates the usual times of a request, to its first byte and to its last.
    fn learn(&mut self, now_us: u64, answers: u64, totals: &Totals) {
        let first_byte_us = totals.first_byte_us.saturating_sub(self.before.first_byte_us);
        if let Some(mean_us) = first_byte_us.checked_div(answers) {
            self.first_byte_us = usual(self.first_byte_us, mean_us);
            let (_, usual_us) = self.answered.get_or_insert((now_us, mean_us));
            if totals.answers <= u64::from(self.bounds.start) {
                // The first to be answered are the fastest.
                *usual_us = totals.first_byte_us / totals.answers;
            }
        }
        let ended = totals.ended.saturating_sub(self.before.ended);
        let ended_us = totals.ended_us.saturating_sub(self.before.ended_us);
        if let Some(mean_us) = ended_us.checked_div(ended) {
            self.request_us = usual(self.request_us, mean_us);
        }
    }

    /// Starts a window once a choice has taken effect, after the time of a piece; if requests bring
    /// their bytes in waves, once new ones have brought theirs.
    fn begin_window(&mut self, now_us: u64, piece_us: u64) {
        let effect_us = (self.first_byte_us * 3 / 2 + piece_us).max(self.round_us());
        let settle_us = effect_us.clamp(PACE_SETTLE_MIN_US, PACE_SETTLE_MAX_US);
        // The requests in flight now, and those of the new level.
        let before = self.before.busy.max(self.levels.requests(self.level));
        // A climb also counts requests that were in flight before, because each step costs time.
        let is_climb = matches!(self.stage, Stage::First { .. } | Stage::Climb { .. });
        let beside = if is_climb { 0 } else { ordered_ended(self.levels.requests(self.level)) };
        self.window = Window {
            settled_us: now_us + settle_us,
            chosen_us: now_us,
            ended_least: self.before.ended + u64::from(before) + beside,
            ..Window::default()
        };
    }

    /// Length of a window; longer, and so more exact, in a steady state.
    fn window_us(&self) -> u64 {
        // Connections that began together bring their pieces together: measure several rounds of
        // them.
        let usual_us = self.first_byte_us + PACE_WINDOW_PIECES * self.piece_us;
        let usual_us = usual_us.clamp(PACE_WINDOW_MIN_US, PACE_WINDOW_MAX_US);
        let length_us = match self.stage {
            Stage::First { .. } | Stage::Climb { .. } => usual_us,
            Stage::Hold | Stage::Probe { .. } | Stage::Reader { .. } => {
                (usual_us * 2).max(PACE_WINDOW_HOLD_MIN_US)
            }
        };
        whole_rounds(length_us, self.round_us())
    }

    /// Shortest window if enough requests ended in it.
    fn window_least_us(&self) -> u64 {
        match self.stage {
            Stage::First { .. } | Stage::Climb { .. } => PACE_WINDOW_MIN_US,
            Stage::Hold | Stage::Probe { .. } | Stage::Reader { .. } => PACE_WINDOW_HOLD_MIN_US,
        }
    }

    /// Usual time of a request from start to end, if rounds matter: requests that began together
    /// wait together, and then bring their bytes together. 0 if waiting is only a small part of
    /// their time.
    fn round_us(&self) -> u64 {
        let waits = self.first_byte_us * PACE_ROUND_FIRST_BYTES >= self.request_us;
        if waits { self.request_us } else { 0 }
    }

    /// True if the choice has taken effect.
    fn is_steady(&self, now_us: u64, is_filled: bool, totals: &Totals) -> bool {
        let wanted = u64::from(self.levels.requests(self.level));
        // Requests above a lowered limit end by themselves, and those below a raised one need a
        // moment; neither is awaited indefinitely.
        let is_near = is_filled && u64::from(totals.busy) * 8 <= wanted * 9;
        let is_first = matches!(self.stage, Stage::First { .. } | Stage::Climb { below: None, .. });
        let is_answered = !is_first || self.is_begun(now_us, wanted, totals);
        let is_late = now_us >= self.window.settled_us + PACE_SETTLE_MAX_US;
        let is_steady = (is_near && is_answered) || (totals.answers > 0 && is_late);
        now_us >= self.window.settled_us && is_steady
    }

    /// The result of the window, if it is over and meaningful.
    fn measure(&mut self, now_us: u64, totals: &Totals) -> Option<Measured> {
        let wanted = u64::from(self.levels.requests(self.level));
        // A stream whose byte budget is used up has all requests that it may have.
        let is_filled = u64::from(totals.busy) * 8 >= wanted * 7
            || self.bounds.is_ordered && totals.held_up > 0;
        match self.bounds.is_ordered {
            true => self.measure_ordered(now_us, totals, is_filled),
            false => self.measure_bytes(now_us, totals, is_filled),
        }
    }

    /// Measures bytes by the time in which they arrived.
    fn measure_bytes(&mut self, now_us: u64, totals: &Totals, is_filled: bool) -> Option<Measured> {
        let Some((begun_us, at)) = self.window.begun else {
            if self.is_steady(now_us, is_filled, totals) {
                self.window.begun = Some((now_us, *totals));
            }
            return None;
        };
        self.window.note(totals, is_filled);
        let came = Came::between(&at, totals, now_us - begun_us);
        let pieces = came.pieces(self.bounds.piece_bytes);
        let is_clear = self.is_clear(now_us, came.elapsed_us, (pieces, came.work()));
        if came.elapsed_us < self.window_us() && !is_clear {
            return None;
        }
        let begun = Some((now_us, *totals));
        let window = std::mem::replace(&mut self.window, Window { begun, ..Window::default() });
        self.piece_us = came.each_us(&window, self.bounds.piece_bytes).min(PACE_SETTLE_MAX_US);
        window.measured(&came, (came.bytes_per_second(), came.work()), is_clear)
    }

    fn decide(&mut self, now_us: u64, measured: Measured) {
        match self.stage {
            Stage::First { has_leapt, .. } => self.begun(now_us, has_leapt, measured),
            Stage::Climb { below, again } => self.climbed(now_us, below, again, measured),
            Stage::Hold => self.held(now_us, measured),
            Stage::Reader { .. } => {}
            Stage::Probe { home, was_full } => self.probed(now_us, home, was_full, measured),
        }
    }

    fn held(&mut self, now_us: u64, measured: Measured) {
        let known = self.levels.known(self.level, now_us).unwrap_or(measured.work);
        let differs = known.abs_diff(measured.work) > per_mille(known, PACE_CHANGED_PER_MILLE);
        self.strange = if differs { self.strange + 1 } else { 0 };
        let rises = match self.bounds.is_ordered {
            true => differs && measured.work > known,
            false => measured.work >= per_mille(known, PACE_CLIMB_PER_MILLE),
        };
        let may_rise = !measured.is_full && self.level < self.levels.last();
        if rises && may_rise {
            // A neighbour may have left: do not probe below, and do not wait.
            if self.bounds.is_ordered {
                self.levels.note(self.level, measured.work, now_us);
            }
            return self.probe(now_us, self.level + 1, Change::More, measured);
        }
        if self.strange >= PACE_CHANGED_WINDOWS {
            self.levels.forget();
            self.levels.note(self.level, measured.work, now_us);
            if may_rise && !self.bounds.is_ordered {
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

    /// Probes a neighbouring level.
    fn probe(&mut self, now_us: u64, level: usize, change: Change, measured: Measured) {
        self.stage = Stage::Probe { home: self.level, was_full: measured.is_full };
        self.go_to(now_us, level, change, measured);
    }

    fn probed(&mut self, now_us: u64, home: usize, was_full: bool, measured: Measured) {
        self.levels.note(self.level, measured.work, now_us);
        let Some(before) = self.levels.known(home, now_us) else {
            // Too long ago to compare with.
            self.hold(now_us);
            return self.go_to(now_us, home, Change::Back, measured);
        };
        let best = self.levels.best(now_us);
        let needed = match (measured.is_full, self.bounds.is_ordered) {
            (true, _) => PACE_FULL_UP_PER_MILLE,
            (false, true) => PACE_ORDERED_UP_PER_MILLE,
            (false, false) => PACE_UP_PER_MILLE,
        };
        if self.level > home && measured.work >= per_mille(before, needed) {
            // There is room: a neighbour left, or there always was.
            self.up_pause_us = PACE_PAUSE_MIN_US;
            if self.level < self.levels.last() && self.is_worth_a_climb(before, measured) {
                return self.climb_on(now_us, Change::More, measured);
            }
            return self.hold(now_us);
        }
        let is_far_more = measured.work >= per_mille(before, PACE_CLIMB_PER_MILLE);
        if self.level < home && is_far_more && !was_full && !self.bounds.is_ordered {
            // Fewer requests cannot bring this much more: a neighbour has left.
            return self.climb_on(now_us, Change::Changed, measured);
        }
        let is_enough = measured.work >= per_mille(before, PACE_DOWN_PER_MILLE)
            && measured.work >= per_mille(best, PACE_NEARLY_BEST_PER_MILLE);
        if self.level < home && is_enough {
            self.down_pause_us = PACE_DOWN_PAUSE_US;
            self.look_down_us = now_us + PACE_PAUSE_MIN_US;
            return self.hold(now_us);
        }
        // A probe above costs almost nothing; one below costs what is missing there.
        if self.level > home {
            self.up_pause_us = self.longer_up_pause_us();
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
        let each_us = self.piece_us;
        let mut effect_us = each_us;
        if level > self.level {
            let from = self.levels.requests(self.level);
            // If more requests bring no more, each takes longer, and a window must include each of
            // them once. A leap happens only far below that point.
            if !self.is_leap(self.level, level) {
                let longer_us = self.piece_us * u64::from(self.levels.requests(level));
                self.piece_us = (longer_us / u64::from(from)).min(PACE_SETTLE_MAX_US);
            }
            // If doubling doubled the goodput, none takes longer yet.
            effect_us = if measured.is_clear { effect_us } else { self.piece_us };
            // An ordered measurement waits for the last of them anyway.
            let time_us = if self.bounds.is_ordered { each_us / 2 } else { effect_us };
            self.ramp = Ramp { from, begun_us: now_us, time_us };
        }
        self.level = level;
        self.record(now_us, change, measured.bytes_per_second);
        self.begin_window(now_us, effect_us);
    }

    fn record(&mut self, now_us: u64, change: Change, bytes_per_second: u64) {
        self.record_of(now_us, None, change, bytes_per_second);
    }

    fn record_of(
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

/// Moving average: seven eighths of the old value and one eighth of the new one.
fn usual(before_us: u64, new_us: u64) -> u64 {
    if before_us == 0 { new_us } else { before_us * 7 / 8 + new_us / 8 }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
