//! A rate of few requests per second, for a client with 32 requests in flight, or a wanted number
//! per second, that pauses before each retry.

use super::tests::Random;
use super::*;

/// A server of `rate` requests per 1,000 seconds, and `burst` at once after a pause, that also
/// refuses at random.
#[derive(Debug, Clone, Copy)]
struct Terms {
    rate: u64,
    burst: u64,
    random_per_mille: u64,
}

struct Client {
    rate: Rate,
    now_us: u64,
    terms: Terms,
    random: Random,
    /// Millionths of requests per 1,000 seconds that the server may serve.
    tokens: u64,
    due_ns: u64,
    /// When each waiting request may be sent, and its number of attempts.
    waiting: Vec<(u64, u32)>,
    /// When each answer arrives: attempts, and whether it is a refusal.
    answers: Vec<(u64, u32, bool)>,
    served: u64,
    refused: u64,
    most_tries: u32,
    /// New requests per second, however many are answered.
    wanted: Option<u64>,
}

const TOKEN: u64 = 1_000_000_000;

impl Client {
    fn new(seed: u64, terms: Terms) -> Self {
        Self {
            rate: Rate::default(),
            now_us: 0,
            terms,
            random: Random(seed),
            tokens: terms.burst * TOKEN,
            due_ns: 0,
            waiting: vec![(0, 1); 32],
            answers: Vec::new(),
            served: 0,
            refused: 0,
            most_tries: 0,
            wanted: None,
        }
    }

    /// A client that wants this many per second, however many are answered.
    fn wanting(wanted: u64, seed: u64, terms: Terms) -> Self {
        Self { wanted: Some(wanted), waiting: Vec::new(), ..Self::new(seed, terms) }
    }

    fn serves(&mut self) -> bool {
        if self.terms.rate > 0 {
            if self.tokens < TOKEN {
                return false;
            }
            self.tokens -= TOKEN;
        }
        self.random.refused(1, self.terms.random_per_mille) == 0
    }

    /// Advances by a millisecond.
    fn step(&mut self) {
        self.now_us += 1_000;
        self.tokens = (self.tokens + self.terms.rate * 1_000).min(self.terms.burst * TOKEN);
        if let Some(wanted) = self.wanted
            && (self.now_us * wanted) % 1_000_000 < 1_000 * wanted
        {
            self.waiting.push((self.now_us, 1));
        }
        let (mut answers, mut refusals) = (0, 0);
        let now_us = self.now_us;
        let (came, rest): (Vec<_>, Vec<_>) =
            self.answers.drain(..).partition(|(at_us, ..)| *at_us <= now_us);
        self.answers = rest;
        for (_, tries, is_refused) in came {
            if is_refused {
                refusals += 1;
                let ceiling_us = (100_000 << (tries - 1).min(10)).min(2_000_000);
                let pause_us = self.random.next_below(ceiling_us);
                self.waiting.push((now_us + pause_us, tries + 1));
            } else {
                answers += 1;
                self.most_tries = self.most_tries.max(tries);
                if self.wanted.is_none() {
                    self.waiting.push((now_us, 1));
                }
            }
        }
        self.served += answers;
        self.refused += refusals;
        if answers + refusals > 0 || now_us.is_multiple_of(5_000) {
            self.rate.handle(now_us, answers, refusals);
        }
        let interval_ns = self.rate.interval_ns(now_us).unwrap_or(0);
        let now_ns = now_us * 1000;
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 > now_us {
                index += 1;
                continue;
            }
            if interval_ns > 0 {
                if self.due_ns > now_ns {
                    break;
                }
                self.due_ns = self.due_ns.max(now_ns.saturating_sub(10_000_000)) + interval_ns;
            }
            let (_, tries) = self.waiting.remove(index);
            let is_served = self.serves();
            self.answers.push((now_us + 2_000, tries, !is_served));
        }
    }

    /// Runs until `count` are served; returns the seconds, and the refusals.
    fn serve(&mut self, count: u64) -> (f64, u64) {
        let (from_us, served, refused) = (self.now_us, self.served, self.refused);
        while self.served < served + count && self.now_us < from_us + 3_000_000_000 {
            self.step();
        }
        ((self.now_us - from_us) as f64 / 1e6, self.refused - refused)
    }
}

/// Refusals per served request, and the time needed in percent of the server's minimum for this
/// many.
fn served(client: &mut Client, count: u64) -> (f64, f64) {
    let (seconds, refused) = client.serve(count);
    let percent = seconds * client.terms.rate as f64 * 100.0 / (count * 1000) as f64;
    (refused as f64 / count as f64, percent)
}

/// A token bucket without bursts refuses every second request at a rate that is slightly too high:
/// finding it takes longer.
#[test]
fn a_server_of_few_requests_a_second_refuses_few_and_is_used_up() {
    let rates = [1_000, 3_000, 5_000, 10_000, 16_000, 20_000, 25_000, 30_000];
    let cases = rates.into_iter().flat_map(|rate| [1, 3, 20].map(|burst| (rate, burst)));
    for (rate, burst) in cases {
        for seed in 0..4 {
            let mut client = Client::new(seed, Terms { rate, burst, random_per_mille: 0 });
            let (refused, percent) = served(&mut client, 300);
            let (later, percent_later) = served(&mut client, 300);
            let case = format!("{rate} at {burst}: {refused}, {percent}; {later}, {percent_later}");
            // Without a rate there are about 70 at first: the initial requests, and their retries.
            assert!(refused <= if rate < 5_000 { 0.55 } else { 0.4 }, "{case}");
            assert!(later <= 0.16, "{case}");
            let most = if burst == 1 { 175.0 } else { 105.0 };
            assert!(percent <= most && percent_later <= most, "{case}");
            assert!(client.most_tries < 8, "{case}: {} tries", client.most_tries);
        }
    }
}

#[test]
fn few_requests_a_second_become_many_within_half_a_minute_when_a_server_allows_them() {
    for (rate, seconds) in [(1_000, 25), (10_000, 10)] {
        for burst in [1, 20] {
            let mut client = Client::new(1, Terms { rate, burst, random_per_mille: 0 });
            client.serve(20 + rate / 50);
            client.terms.rate = 500_000;
            let from_us = client.now_us;
            while client.now_us < from_us + seconds * 1_000_000 {
                client.step();
            }
            let (after, _) = client.serve(1_000);
            assert!(after <= 2.2, "{rate} at {burst}: 1,000 in {after} s");
        }
    }
}

/// A client of large objects sends few requests per second anyway.
#[test]
fn few_requests_that_are_refused_at_random_are_sent_all_the_same() {
    for wanted in [2, 5, 10, 20, 40] {
        for random_per_mille in [50, 200, 400] {
            let mut served = 0;
            for seed in 0..8 {
                let terms = Terms { rate: 0, burst: 1, random_per_mille };
                let mut client = Client::wanting(wanted, seed, terms);
                (0..120_000).for_each(|_| client.step());
                served += client.served;
            }
            let all = wanted * 120 * 8;
            assert!(served * 100 >= all * 96, "{wanted}, {random_per_mille}: {served} of {all}");
        }
    }
}

/// A server that also refuses a fifth at random is still used for a third of its rate.
#[test]
fn a_rate_of_few_requests_and_faults_together_do_not_bring_it_to_a_stop() {
    for rate in [1_000, 5_000, 10_000, 25_000, 50_000] {
        let mut taken = 0.0;
        for seed in 0..8 {
            let terms = Terms { rate, burst: 3, random_per_mille: 200 };
            let mut client = Client::new(seed, terms);
            taken += served(&mut client, 600).1;
        }
        assert!(taken / 8.0 <= 300.0, "{rate}: {} %", taken / 8.0);
    }
}

/// It refuses everything for a while, which gives no rate.
#[test]
fn a_server_that_comes_back_serves_as_before_after_six_seconds() {
    for (from_ms, away_ms) in [(0, 5_000), (0, 20_000), (5_000, 3_000), (5_000, 15_000)] {
        for rate in [300_000, 2_000_000] {
            let mut client = Client::new(3, Terms { rate, burst: 20, random_per_mille: 0 });
            (0..from_ms).for_each(|_| client.step());
            client.terms.random_per_mille = 1000;
            (0..away_ms).for_each(|_| client.step());
            client.terms.random_per_mille = 0;
            (0..6_000).for_each(|_| client.step());
            let (seconds, _) = client.serve(rate / 1000);
            assert!(seconds <= 1.2, "{from_ms}, {away_ms}, {rate}: {seconds} s");
        }
    }
}

#[test]
fn no_rate_is_below_one_request_in_4_seconds() {
    let limit = Limit { served: 400, is_few: true, is_doubled: true, ..Limit::default() };
    let mut rate = Rate { limit: Some(limit), ..Rate::default() };
    assert!(rate.handle(8_000_000, 0, 2), "it is cut");
    assert_eq!(rate.limit.map(|limit| limit.served), Some(250), "in 1,000 seconds");
    assert_eq!(rate.per_second(8_000_000), Some(1), "at least one is reported");
}

#[test]
fn who_serves_nothing_at_first_is_sent_32_requests_a_second() {
    let mut rate = Rate::default();
    let is_cut = (0..40).any(|tick| rate.handle(tick * 5_000, 0, 5));
    assert!(is_cut && rate.limit.is_some_and(|limit| limit.served == 32_000), "{rate:?}");
}

#[test]
fn only_who_refuses_four_of_five_gets_less_than_16_requests_a_second() {
    for (refused, is_less) in [(700, false), (850, true)] {
        let mut rate = Rate::default();
        let (mut least, mut due) = (u64::MAX, (0, 0));
        for tick in 0..4_000 {
            let now_us = tick * 5_000;
            let asked = rate.limit.map_or(300_000, |limit| limit.rate(now_us));
            due.0 += asked * (1000 - refused) / 1000 * 5;
            due.1 += asked * refused / 1000 * 5;
            rate.handle(now_us, due.0 / 1_000_000, due.1 / 1_000_000);
            due = (due.0 % 1_000_000, due.1 % 1_000_000);
            least = least.min(rate.limit.map_or(u64::MAX, |limit| limit.served));
        }
        assert_eq!(least < 16_000, is_less, "{refused}: {least}");
    }
}

#[test]
fn four_refusals_of_seven_show_that_a_rate_is_far_too_high_and_three_do_not() {
    let limit = Limit { served: 8_000, cut_us: 0, is_few: true, ..Limit::default() };
    for (answers, refused, expected) in [(3, 4, true), (0, 3, false), (4, 4, false)] {
        let slice = Slice { begun_us: 300_000, answers, refused };
        assert_eq!(limit.is_conclusive(1_500_000, slice), expected, "{refused} after {answers}");
    }
}

#[test]
fn one_request_a_second_is_one_again_after_6_and_is_doubled_after_12() {
    let limit = Limit { served: 1_000, cut_us: 0, is_few: true, ..Limit::default() };
    let at = |second: u64| limit.rate(second * 1_000_000);
    assert!(at(4) < 1_000 && at(9) > 1_000, "{} {}", at(4), at(9));
    let may_double = |second: u64| limit.may_double(second * 1_000_000);
    assert!(!may_double(11) && may_double(12));
}

/// What the client was served in each second.
fn each_second(client: &mut Client, seconds: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..seconds {
        let before = client.served;
        (0..1_000).for_each(|_| client.step());
        all.push(client.served - before);
    }
    all
}

/// Two or more of three servers behind an address are down.
#[test]
fn what_is_mostly_refused_whatever_the_rate_keeps_a_quarter_of_32_requests_a_second() {
    for random_per_mille in [600, 670, 750, 850] {
        for seed in 0..8 {
            let terms = Terms { rate: 0, burst: 1, random_per_mille };
            let served = each_second(&mut Client::new(seed, terms), 300);
            let whole = 32 * (1000 - random_per_mille) * 60 / 1000;
            for minute in served.chunks(60) {
                let served: u64 = minute.iter().sum();
                assert!(served * 4 >= whole, "{random_per_mille}, {seed}: {served} of {whole}");
            }
        }
    }
}

#[test]
fn an_outage_of_a_minute_and_then_faults_are_over_within_15_seconds() {
    for random_per_mille in [0, 300] {
        for seed in 0..8 {
            let away = Terms { rate: 0, burst: 1, random_per_mille: 1000 };
            let mut client = Client::new(seed, away);
            each_second(&mut client, 60);
            client.terms.random_per_mille = random_per_mille;
            each_second(&mut client, 15);
            let served: u64 = each_second(&mut client, 10).iter().sum();
            // 32 per second.
            let whole = 320 * (1000 - random_per_mille) / 1000;
            assert!(served >= whole, "{random_per_mille}, {seed}: {served} of {whole}");
        }
    }
}

/// It may be down: its ranges must end like those of any other server.
#[test]
fn who_serves_nothing_is_sent_16_requests_a_second_for_ever() {
    for from_ms in [0, 3_000] {
        let mut client = Client::new(1, Terms { rate: 0, burst: 1, random_per_mille: 0 });
        (0..from_ms).for_each(|_| client.step());
        client.terms.random_per_mille = 1000;
        for second in 0..180 {
            each_second(&mut client, 1);
            let rate = client.rate.limit.map_or(u64::MAX, |limit| limit.rate(client.now_us));
            assert!(rate >= 15_200, "{from_ms}, {second}: {rate} in 1,000 seconds");
        }
    }
}

#[test]
fn a_limit_of_few_requests_that_falls_is_not_taken_for_faults() {
    for (rate, falls_to) in [(10_000, 1_000), (25_000, 5_000)] {
        for seed in 0..4 {
            let terms = Terms { rate, burst: 20, random_per_mille: 0 };
            let mut client = Client::new(seed, terms);
            each_second(&mut client, 60);
            client.terms.rate = falls_to;
            let refused = client.refused;
            each_second(&mut client, 120);
            let refused = client.refused - refused;
            assert!(refused <= 100, "{rate}, {falls_to}, {seed}: {refused} are refused");
        }
    }
}

#[test]
fn a_rate_of_few_is_lifted_after_two_cuts_in_vain() {
    let mut row = Row::default();
    let mut in_vain = |rate, requests, refused| {
        row.since_cut = Count { requests, refused };
        row.judge_few(rate);
        row.in_vain
    };
    // 4 per second were served.
    assert_eq!(in_vain(16_000, 20, 15), 0);
    assert_eq!((in_vain(4_000, 20, 15), in_vain(1_000, 8, 6)), (1, 2));
    assert_eq!(in_vain(1_000, 20, 4), 0, "it helps");
    for (known, is_lifted) in [(0, false), (1, true)] {
        let limit = Limit { served: 1_000, is_few: true, ..Limit::default() };
        let row = Row { most_served: 4_000, in_vain: known, is_cut: true, ..Row::default() };
        let mut rate = Rate { limit: Some(limit), row: Some(row), ..Rate::default() };
        let is_cut = rate.handle(5_000_000, 2, 6);
        let served = rate.limit.map_or(0, |limit| limit.served);
        assert_eq!((is_cut, served == 32_000), (!is_lifted, is_lifted), "{known}: {rate:?}");
    }
}
