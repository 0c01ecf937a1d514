//! A rate at its thresholds: slightly more or less than what decides, slightly sooner or later.

use super::*;

/// A server that is judged every 5 milliseconds.
struct Server {
    rate: Rate,
    now_us: u64,
    /// Thousandths of an answer and of a refusal that are due.
    due: (u64, u64),
}

impl Server {
    fn new() -> Self {
        Self { rate: Rate::default(), now_us: 0, due: (0, 0) }
    }

    /// A server of 1,000 requests per second that was asked for more, and no longer refuses.
    fn slowed() -> Self {
        let mut server = Self::new();
        assert!((0..20).any(|_| server.goes_on(50, 1000, 300)), "it is cut");
        server.goes_on(1_000, 1000, 0);
        assert!(server.rate.limit.is_some(), "it has a rate");
        server
    }

    /// Runs for a time with answers and refusals per second. True if the rate was cut.
    fn goes_on(&mut self, milliseconds: u64, answers: u64, refused: u64) -> bool {
        let mut is_cut = false;
        for _ in 0..milliseconds / 5 {
            self.now_us += 5_000;
            self.due = (self.due.0 + answers * 5, self.due.1 + refused * 5);
            let came = (self.due.0 / 1000, self.due.1 / 1000);
            self.due = (self.due.0 % 1000, self.due.1 % 1000);
            is_cut |= self.rate.handle(self.now_us, came.0, came.1);
        }
        is_cut
    }

    fn per_second(&self) -> Option<u64> {
        self.rate.per_second(self.now_us)
    }
}

#[test]
fn refusals_of_50_ms_make_no_rate_and_those_of_100_do() {
    let mut server = Server::new();
    assert!(!server.goes_on(50, 1000, 1000) && !server.goes_on(500, 1000, 0));
    assert_eq!(server.per_second(), None);
    assert!(Server::new().goes_on(100, 1000, 1000));
}

#[test]
fn a_rate_needs_40_requests_of_which_many_are_refused() {
    // Half of 100 per second.
    let mut server = Server::new();
    assert!(!server.goes_on(350, 50, 50));
    assert!(server.goes_on(150, 50, 50));
}

#[test]
fn a_rate_of_few_requests_needs_2_seconds() {
    // Half of 8 per second.
    let mut server = Server::new();
    assert!(!server.goes_on(1_800, 4, 4));
    assert!(server.goes_on(700, 4, 4));
}

#[test]
fn a_refusal_alone_says_nothing_and_two_among_70_requests_do() {
    let mut server = Server::slowed();
    for (between_ms, is_cut) in [(120, false), (70, true)] {
        server.goes_on(1_000, 1000, 0);
        let mut is_new = || {
            server.goes_on(5, 1000, 0);
            server.rate.slice.answers == 0
        };
        assert!((0..200).any(|_| is_new()), "a slice ends");
        server.rate.handle(server.now_us, 0, 1);
        assert!(!server.goes_on(between_ms, 1000, 0), "{between_ms}");
        assert_eq!(server.rate.handle(server.now_us, 0, 1), is_cut, "{between_ms}");
    }
}

#[test]
fn a_rate_is_cut_for_3_percent_of_refusals_and_not_for_1_and_a_half() {
    for (refused, is_cut) in [(30, false), (62, true)] {
        assert_eq!(Server::slowed().goes_on(500, 2000, refused), is_cut, "{refused}");
    }
}

#[test]
fn a_rate_grows_where_90_percent_of_it_are_used_and_not_where_it_is_80() {
    for (percent, grows) in [(90, true), (80, false)] {
        let mut server = Server::slowed();
        for _ in 0..60 {
            let rate = server.per_second().unwrap_or(u64::from(u32::MAX));
            server.goes_on(50, rate.min(100_000) * percent / 100, 0);
        }
        let rate = server.per_second();
        assert_eq!(rate.is_none_or(|rate| rate > 1_500), grows, "{percent}: {rate:?}");
    }
}

#[test]
fn two_of_three_refusals_are_not_taken_for_faults_and_two_of_five_are() {
    for (refused, are_faults) in [(667, false), (400, true)] {
        let mut server = Server::new();
        for _ in 0..100 {
            let asked = server.per_second().unwrap_or(1000);
            server.goes_on(50, asked * (1000 - refused) / 1000, asked * refused / 1000);
        }
        assert_eq!(server.per_second().is_none(), are_faults, "{refused}: {:?}", server.rate);
    }
}

#[test]
fn after_30_seconds_of_faults_the_rate_is_tried_again() {
    let mut server = Server::new();
    server.goes_on(2_000, 900, 100);
    assert_eq!(server.per_second(), None, "they are faults");
    assert!(!server.goes_on(26_000, 900, 100));
    assert!(server.goes_on(6_000, 900, 100));
}

#[test]
fn with_faults_12_percent_are_tolerated_and_20_are_not() {
    for (refused, is_cut) in [(120, false), (200, true)] {
        let mut server = Server::new();
        server.goes_on(2_000, 970, 30);
        assert_eq!(server.per_second(), None, "they are faults");
        assert_eq!(server.goes_on(1_000, 1000 - refused, refused), is_cut, "{refused}");
    }
}

#[test]
fn a_server_that_still_refuses_some_after_the_first_cut_keeps_its_rate() {
    let mut server = Server::new();
    assert!(server.goes_on(100, 1000, 300));
    // Requests sent before the cut.
    assert!(!server.goes_on(150, 1000, 300), "no second cut for that");
    server.goes_on(50, 1000, 0);
    server.goes_on(50, 1000, 300);
    server.goes_on(500, 1000, 0);
    assert!(server.per_second().is_some(), "{:?}", server.rate);
}

#[test]
fn refusals_2_seconds_apart_are_in_a_row_and_4_seconds_apart_are_not() {
    for (rest_ms, is_cut) in [(2_000, true), (4_500, false)] {
        let mut server = Server::new();
        assert!(!server.goes_on(50, 1000, 500));
        server.goes_on(rest_ms, 0, 0);
        assert_eq!(server.goes_on(50, 1000, 500), is_cut, "{rest_ms}");
    }
}

#[test]
fn a_rate_begins_5_percent_below_what_was_served() {
    let mut server = Server::new();
    assert!((0..200).any(|_| server.goes_on(5, 1000, 300)), "it is cut");
    let rate = server.per_second().expect("a rate");
    assert!((930..970).contains(&rate), "{rate}");
}

#[test]
fn few_requests_need_longer_to_come_back_but_no_longer_than_3_seconds() {
    let after = |served: u64, elapsed_us| {
        let new = Limit { served: served * 1000, ..Limit::default() };
        new.rate(elapsed_us) / 1000
    };
    // Twice the time of 100 requests: as far above as it was below.
    assert!((51..=54).contains(&after(50, 4_000_000)), "{}", after(50, 4_000_000));
    // Three times the longest time: eight times as far above.
    assert!((13..=15).contains(&after(10, 9_000_000)), "{}", after(10, 9_000_000));
}

#[test]
fn a_rate_is_as_few_as_are_served() {
    for (serves, rates) in [(45, 36..=56), (10, 9..=12)] {
        let mut server = Server::new();
        let mut seen = Vec::new();
        for _ in 0..200 {
            let asked = server.per_second().unwrap_or(200);
            server.goes_on(50, asked.min(serves), asked.saturating_sub(serves));
            seen.extend(server.per_second());
        }
        let middle = seen.len() / 2;
        let (_, rate, _) = seen.select_nth_unstable(middle);
        assert!(rates.contains(rate), "{serves}: {rate}");
    }
}
