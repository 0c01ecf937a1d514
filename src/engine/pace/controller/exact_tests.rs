//! The controller at its thresholds: networks without noise that bring slightly more or less than
//! what decides, or take slightly more or less time.

use super::*;

/// A run in virtual time, with a call every [`STEP_US`].
struct Exact {
    controller: Controller,
    totals: Totals,
    now_us: u64,
    /// Bytes per request.
    size: u64,
    /// Time of a request to its first byte.
    first_byte_us: u64,
    /// Time of a request to its last byte; 0: computed from the requests in flight (Little's law).
    request_us: u64,
    /// Time of the first answer.
    answers_from_us: u64,
    /// Bytes arrive in crowds at this interval in microseconds.
    crowd_us: u64,
    /// How long new requests bring nothing.
    connect_us: u64,
    /// Recent numbers of requests in flight, and the time from which they bring bytes.
    bring: VecDeque<(u64, u32)>,
    /// Millionths of a byte in flight.
    due: u128,
}

const STEP_US: u64 = 5_000;

/// A network's goodput is given in thousandths of this, in bytes per second.
const BASE: u64 = 4_000_000_000;

impl Exact {
    fn new() -> Self {
        Self::with(BOUNDS)
    }

    /// A stream.
    fn in_order() -> Self {
        Self::with(Bounds { is_ordered: true, ..BOUNDS })
    }

    fn with(bounds: Bounds) -> Self {
        Self {
            controller: Controller::new(bounds),
            totals: Totals { is_bound: true, ..Totals::default() },
            now_us: 0,
            size: 1_000_000,
            first_byte_us: 500,
            request_us: 0,
            answers_from_us: 0,
            crowd_us: STEP_US,
            connect_us: 0,
            bring: VecDeque::from([(0, 0)]),
            due: 0,
        }
    }

    /// Runs for a time, with goodput by time and requests in thousandths of [`BASE`].
    fn run_at(&mut self, milliseconds: u64, brings: impl Fn(u64, u32) -> u64) {
        for _ in 0..milliseconds * 1000 / STEP_US {
            self.now_us += STEP_US;
            let busy = self.requests();
            self.bring.push_back((self.now_us + self.connect_us, busy));
            while self.bring.get(1).is_some_and(|(from_us, _)| *from_us <= self.now_us) {
                self.bring.pop_front();
            }
            self.totals.asked = self.totals.answers + u64::from(busy);
            self.totals.asked_bytes = self.totals.asked * self.size;
            self.totals.busy = busy;
            self.totals.reader_waited_us = self.now_us;
            if self.now_us >= self.answers_from_us {
                let bringing = self.bring[0].1;
                self.due += u128::from(BASE / 1000 * brings(self.now_us, bringing) * STEP_US);
                if self.now_us.is_multiple_of(self.crowd_us) {
                    self.totals.bytes = u64::try_from(self.due / 1_000_000).expect("few");
                }
                let rate = BASE / 1000 * brings(self.now_us, bringing);
                let request_us = match self.request_us {
                    0 => u64::from(busy) * self.size * 1_000_000 / rate.max(1),
                    request_us => request_us,
                };
                let ended = (self.totals.bytes - self.totals.ended_bytes) / self.size;
                self.totals.ended += ended;
                self.totals.ended_us += ended * request_us;
                self.totals.ended_bytes += ended * self.size;
                let answers = self.totals.ended + u64::from(busy);
                self.totals.answers = answers.max(self.totals.answers);
            }
            self.totals.first_byte_us = self.totals.answers * self.first_byte_us;
            self.controller.handle(self.now_us, self.totals);
        }
    }

    /// Runs for a time, with goodput by requests in thousandths of [`BASE`].
    fn run(&mut self, milliseconds: u64, brings: impl Fn(u32) -> u64) {
        self.run_at(milliseconds, |_, requests| brings(requests));
    }

    /// Like [`Self::run`] until the controller has reached a state, for at most 20 seconds.
    fn run_until(&mut self, is_there: impl Fn(&Self) -> bool, brings: impl Fn(u32) -> u64) {
        for _ in 0..20_000_000 / STEP_US {
            if is_there(self) {
                return;
            }
            self.run(STEP_US / 1000, &brings);
        }
        panic!("{:?}", self.controller);
    }

    fn requests(&self) -> u32 {
        self.controller.limits(self.now_us).requests_in_flight
    }

    fn moments(&self) -> &[Moment] {
        self.controller.timeline().moments()
    }

    /// The choices after this time.
    fn choices(mut self, milliseconds: u64, brings: impl Fn(u32) -> u64) -> Vec<(Change, u32)> {
        self.run(milliseconds, brings);
        self.moments().iter().map(|moment| (moment.change, moment.requests_in_flight)).collect()
    }
}

/// The choice after this one.
fn next(choices: &[(Change, u32)], choice: (Change, u32)) -> (Change, u32) {
    let at = choices.iter().position(|made| *made == choice);
    choices[at.unwrap_or_else(|| panic!("no {choice:?}: {choices:?}")) + 1]
}

/// A network that yields 1000 with 32 requests or more, 700 with fewer, and `brings` with `number`.
fn flat_but(number: u32, brings: u64) -> impl Fn(u32) -> u64 {
    move |requests| match requests {
        _ if requests == number => brings,
        ..32 => 700,
        _ => 1000,
    }
}

#[test]
fn a_climb_goes_on_after_a_gain_of_11_percent_and_not_of_6() {
    for (twice, is_last) in [(1060, true), (1110, false)] {
        let brings = |requests| match requests {
            ..32 => 700,
            32 => 1000,
            _ => twice,
        };
        let choices = Exact::new().choices(3_000, brings);
        let most = choices.iter().map(|(_, requests)| *requests).max();
        assert_eq!(most < Some(128), is_last, "{twice}: {choices:?}");
    }
}

#[test]
fn a_step_up_is_kept_for_4_percent_and_not_for_2() {
    for (above, is_kept) in [(1020, false), (1045, true)] {
        let choices = Exact::new().choices(2_000, flat_but(45, above));
        let expected = if is_kept { (Change::More, 91) } else { (Change::Back, 32) };
        assert_eq!(next(&choices, (Change::More, 45)), expected, "{above}: {choices:?}");
    }
}

#[test]
fn a_step_down_is_kept_where_it_costs_1_percent_and_not_2() {
    for (below, is_kept) in [(988, true), (980, false)] {
        let choices = Exact::new().choices(2_000, flat_but(23, below));
        let expected = if is_kept { (Change::Fewer, 16) } else { (Change::Back, 32) };
        assert_eq!(next(&choices, (Change::Fewer, 23)), expected, "{below}: {choices:?}");
    }
}

#[test]
fn with_the_disk_as_the_limit_a_step_up_is_kept_for_20_percent_not_for_11() {
    for (above, is_kept) in [(1110, false), (1200, true)] {
        let mut exact = Exact::new();
        exact.totals.held_up = 8;
        let choices = exact.choices(2_000, flat_but(45, above));
        let expected = if is_kept { (Change::More, 91) } else { (Change::Back, 32) };
        assert_eq!(next(&choices, (Change::More, 45)), expected, "{above}: {choices:?}");
    }
}

#[test]
fn the_disk_is_the_limit_where_3_of_32_requests_have_no_slot_not_where_1() {
    for (held_up, second) in [(1, (Change::More, 64)), (3, (Change::Fewer, 23))] {
        let mut exact = Exact::new();
        exact.totals.held_up = held_up;
        let choices = exact.choices(500, flat_but(32, 1000));
        assert_eq!(choices[1], second, "{held_up}: {choices:?}");
    }
}

#[test]
fn a_number_between_is_tried_at_once_after_a_gain_of_30_percent() {
    for (twice, is_tried) in [(1300, true), (1550, false)] {
        let brings = |requests| if requests > 32 { twice } else { 1000 };
        let choices = Exact::new().choices(1_500, brings);
        let is_look = choices.contains(&(Change::Fewer, 45));
        assert_eq!(is_look, is_tried, "{twice}: {choices:?}");
    }
}

#[test]
fn what_another_number_brought_20_seconds_ago_binds_no_more() {
    // A step down yields nearly as much as 32 do, but far less than 64 once did.
    let mut exact = Exact::new();
    let mut brings = |seconds: u64| {
        exact.run(seconds * 1000, |requests| match requests {
            ..23 => 700,
            23 => 987,
            64 => 1020,
            _ => 1000,
        });
        exact.requests()
    };
    assert!(brings(18) >= 32);
    assert!((0..15).any(|_| brings(1) == 23));
}

#[test]
fn requests_that_wait_for_80_percent_of_their_time_leap_and_those_of_67_do_not() {
    for (request_us, second) in [(25_000, 128), (30_000, 64)] {
        let exact = Exact { first_byte_us: 20_000, request_us, size: 100_000, ..Exact::new() };
        let choices = exact.choices(500, |requests| u64::from(requests) * 10);
        assert_eq!(choices[1], (Change::More, second), "{request_us}: {choices:?}");
    }
}

#[test]
fn requests_of_700_kb_leap_and_those_of_1500_kb_do_not() {
    for (size, second) in [(700_000, 128), (1_500_000, 64)] {
        let exact = Exact { first_byte_us: 20_000, request_us: 22_000, size, ..Exact::new() };
        let choices = exact.choices(500, |requests| u64::from(requests) * 10);
        assert_eq!(choices[1], (Change::More, second), "{size}: {choices:?}");
    }
}

#[test]
fn a_leap_is_taken_back_where_requests_take_3_times_as_long() {
    for (takes_us, after) in [(60_000, Change::Back), (30_000, Change::More)] {
        let exact = Exact {
            first_byte_us: 20_000,
            request_us: takes_us,
            size: 40_000,
            answers_from_us: 40_000,
            ..Exact::new()
        };
        let brings = |requests| u64::from(requests) * 40_000 * 1_000_000 / takes_us * 1000 / BASE;
        let choices = exact.choices(500, brings);
        assert_eq!(choices[2], (Change::More, 256), "{takes_us}: {choices:?}");
        assert_eq!(choices[3].0, after, "{takes_us}: {choices:?}");
    }
}

#[test]
fn new_connections_have_20_ms_to_bring_something_and_no_longer() {
    let mut exact = Exact { connect_us: 18_000, ..Exact::new() };
    exact.run(400, |requests| u64::from(requests) * 50);
    let moments = exact.moments();
    for pair in moments.windows(2).skip(2) {
        let brings = u64::from(pair[0].requests_in_flight) * BASE / 20;
        let measured = pair[1].bytes_per_second;
        assert!(measured >= brings * 95 / 100, "{measured} of {brings}: {moments:?}");
    }
    assert!(moments.iter().any(|moment| moment.requests_in_flight == 1024), "{moments:?}");
    let took_us = between_us(moments, 128, 256);
    assert!(took_us >= 60_000, "{took_us} us show little: {moments:?}");
}

/// Time between the choice of `before` requests and that of `after`.
fn between_us(moments: &[Moment], before: u32, after: u32) -> u64 {
    let pair = moments
        .windows(2)
        .find(|pair| (pair[0].requests_in_flight, pair[1].requests_in_flight) == (before, after));
    let pair = pair.unwrap_or_else(|| panic!("none from {before} to {after}: {moments:?}"));
    pair[1].at_us - pair[0].at_us
}

#[test]
fn requests_that_wait_for_a_fifth_of_their_time_are_measured_in_rounds() {
    let brings = |request_us| move |requests| u64::from(requests) * 2_000_000 / request_us;
    let request_us = 200_000;
    let first_byte_us = 40_000;
    // Requests that began together bring their bytes at the same time.
    let mut exact =
        Exact { size: 8 << 20, request_us, first_byte_us, crowd_us: request_us, ..Exact::new() };
    exact.run(2_000, brings(request_us));
    for pair in exact.moments().windows(2).skip(1) {
        let right = BASE / 1000 * brings(request_us)(pair[0].requests_in_flight);
        let measured = pair[1].bytes_per_second;
        assert!(
            right.abs_diff(measured) < right / 20,
            "{measured} of {right}: {:?}",
            exact.moments()
        );
    }
    // If they wait for a twelfth of their time, rounds would only take longer.
    let (request_us, first_byte_us) = (380_000, 32_000);
    let mut exact = Exact { size: 8 << 20, request_us, first_byte_us, ..Exact::new() };
    exact.run(2_000, brings(request_us));
    assert!(between_us(exact.moments(), 128, 256) < 300_000, "{:?}", exact.moments());
}

#[test]
fn a_step_of_a_climb_takes_at_most_800_ms_with_slow_connections() {
    // A piece takes 0.3 s, and 0.42.
    for (piece_us, first) in [(300_000, 28), (420_000, 20)] {
        let (request_us, size) = (piece_us * 8, 8 << 20);
        let mut exact = Exact { size, request_us, first_byte_us: 1_000, ..Exact::new() };
        // Each step yields 45 % more.
        exact.run(4_000, |requests| match requests {
            ..=32 => first,
            33..=64 => first * 145 / 100,
            65..=128 => first * 210 / 100,
            _ => first * 305 / 100,
        });
        let took_us = between_us(exact.moments(), 64, 128);
        assert!(took_us < 850_000, "{piece_us}: {:?}", exact.moments());
    }
}

#[test]
fn a_measurement_ends_early_after_a_gain_of_70_percent_and_not_of_45() {
    for (twice, is_early) in [(145, false), (170, true)] {
        // A piece takes 60 ms, and a measurement four of them.
        let (request_us, size) = (480_000, 8 << 20);
        let mut exact = Exact { size, request_us, first_byte_us: 1_000, ..Exact::new() };
        exact.run(2_000, |requests| if requests > 32 { 140 * twice / 100 } else { 140 });
        let took_us = between_us(exact.moments(), 64, 128);
        assert_eq!(took_us < 400_000, is_early, "{twice}: {:?}", exact.moments());
    }
}

#[test]
fn goodput_that_goes_up_and_down_4_times_a_second_is_not_followed() {
    let mut exact = Exact::new();
    exact.run_at(20_000, |now_us, requests| {
        let is_high = now_us % 250_000 < 125_000;
        flat_but(32, 1000)(requests) / 10 * if is_high { 11 } else { 9 }
    });
    let is_kept =
        |pair: &[Moment]| pair[0].requests_in_flight == 45 && pair[1].requests_in_flight != 32;
    assert!(!exact.moments().windows(2).any(is_kept), "{:?}", exact.moments());
}

#[test]
fn half_a_second_of_30_percent_less_is_no_change_and_a_second_is() {
    for (milliseconds, left, has_changed) in [(550, 7, false), (1_250, 7, true), (1_250, 8, false)]
    {
        let mut exact = Exact::new();
        exact.run(10_000, flat_but(32, 1000));
        let is_quiet = |exact: &Exact| {
            let Controller { stage, look_up_us, .. } = exact.controller;
            stage == Stage::Hold && look_up_us >= exact.now_us + 900_000
        };
        exact.run_until(is_quiet, flat_but(32, 1000));
        exact.run(milliseconds, |requests| flat_but(32, 1000)(requests) * left / 10);
        let choices = exact.choices(1000, flat_but(32, 1000));
        let is_recorded = choices.iter().any(|(change, _)| *change == Change::Changed);
        assert_eq!(is_recorded, has_changed, "{milliseconds} ms, {left}: {choices:?}");
    }
}

#[test]
fn looks_above_come_each_second_and_looks_below_each_8_seconds() {
    let mut exact = Exact::new();
    exact.run(60_000, flat_but(32, 1000));
    let moments = exact.moments();
    let first_us = between_us(&moments[3..], 32, 45);
    assert!(first_us < 300_000, "after {first_us} us: {moments:?}");
    let looks_below = |moments: &[Moment]| {
        let below = moments.iter().filter(|moment| moment.change == Change::Fewer);
        below.map(|moment| moment.at_us).collect::<Vec<_>>()
    };
    // The first pause of 2 s is doubled, because the probe was in vain.
    let below = looks_below(moments);
    let pause_us = below[1] - below[0];
    assert!((3_500_000..6_000_000).contains(&pause_us), "{pause_us} us: {moments:?}");
    let late = &moments[moments.len() - 30..];
    let pause_us = between_us(&late[1..], 32, 45);
    assert!((1_000_000..1_600_000).contains(&pause_us), "{pause_us} us: {late:?}");
    let below = looks_below(late);
    let pause_us = below[1] - below[0];
    assert!((7_000_000..10_000_000).contains(&pause_us), "{pause_us} us: {late:?}");
}

#[test]
fn more_small_objects_count_as_more_work_than_their_bytes() {
    // As many bytes, in objects of 64 KiB instead of 256.
    let mut exact = Exact { size: 256 << 10, ..Exact::new() };
    exact.run_until(|exact| exact.requests() > 32, |_| 1000);
    exact.size = 64 << 10;
    exact.run(200, |_| 1000);
    let took_us = between_us(exact.moments(), 64, 128);
    assert!(took_us < 100_000, "it had to be measured twice: {:?}", exact.moments());
}

#[test]
fn requests_of_a_stream_that_bring_5_times_as_much_are_not_compared() {
    for (factor, third) in [(3, Some((Change::More, 128))), (5, None)] {
        let mut exact = Exact { size: 1 << 20, ..Exact::in_order() };
        exact.run_until(|exact| exact.requests() > 32, |requests| u64::from(requests) * 10);
        exact.size *= factor;
        let choices = exact.choices(300, |requests| u64::from(requests) * 10);
        assert_eq!(choices.get(2).copied(), third, "{factor}: {choices:?}");
    }
}

#[test]
fn a_step_up_of_a_stream_is_kept_for_7_percent_and_doubled_for_30() {
    for (above, expected) in [
        (1040, (Change::Back, 32)),
        (1070, (Change::More, 64)),
        (1150, (Change::More, 64)),
        (1300, (Change::More, 91)),
    ] {
        let choices = Exact::in_order().choices(6_000, flat_but(45, above));
        assert_eq!(next(&choices, (Change::More, 45)), expected, "{above}: {choices:?}");
    }
}

#[test]
fn a_look_that_costs_13_percent_ends_after_2_rounds_and_one_of_7_after_6() {
    for (below, least_us, most_us) in [(870, 900_000, 1_400_000), (930, 2_000_000, 3_000_000)] {
        // A request takes 0.4 s.
        let mut exact = Exact { size: 50_000_000, ..Exact::in_order() };
        exact.run(10_000, flat_but(23, below));
        let took_us = between_us(exact.moments(), 23, 32);
        let moments = exact.moments();
        assert!((least_us..most_us).contains(&took_us), "{took_us} us for {below}: {moments:?}");
    }
}

/// Bytes passed on while no request ends say nothing about their number.
#[test]
fn a_stream_is_measured_once_its_requests_have_ended_however_long_they_take() {
    let mut exact = Exact { size: 800_000_000, ..Exact::in_order() };
    exact.run(6_000, flat_but(32, 1000));
    assert_eq!(exact.moments().len(), 1, "{:?}", exact.moments());
    exact.run(12_000, flat_but(32, 1000));
    assert_eq!(exact.moments()[1].requests_in_flight, 64, "{:?}", exact.moments());
}

#[test]
fn a_reader_that_waits_for_4_percent_of_the_time_is_the_limit_not_for_9() {
    for (waits, is_limit) in [(45, true), (90, false)] {
        let mut reading = Reading::new();
        let brings = EACH * 32.0;
        reading.read_from(1_500, brings * 1e3 / (1e3 - f64::from(waits)), |requests| {
            brings.min(requests * EACH)
        });
        let moments = reading.controller.timeline().moments();
        let is_recorded = moments.iter().any(|moment| moment.change == Change::Reader);
        assert_eq!(is_recorded, is_limit, "{waits}: {moments:?}");
    }
}

#[test]
fn a_measurement_goes_on_after_a_rest_of_70_ms_and_not_of_150() {
    for (rest_ms, is_measured) in [(70, true), (150, false)] {
        let mut reading = Reading { size: LARGE * 4.0, ..Reading::new() };
        for _ in 0..20 {
            reading.read(300 - rest_ms, 1e10, EACH);
            reading.read(rest_ms, 0.0, EACH);
        }
        let moments = reading.controller.timeline().moments();
        assert_eq!(moments.len() > 1, is_measured, "{rest_ms} ms: {moments:?}");
    }
}
