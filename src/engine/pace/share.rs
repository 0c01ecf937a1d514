//! One worker's or feeder's share of a pacer: how many requests it may have in flight, and when it
//! may send the next one.

use std::sync::Arc;

use super::{EndpointTotals, Pacer, Timeline, Totals};
use crate::engine::endpoints::EndpointNumber;
use crate::limits::{ENDPOINTS_MAX, PACE_FIRST_LOOKS_US, PACE_TICK_US};

/// A worker's share of a run's limits.
#[derive(Debug)]
pub struct Share {
    pacer: Arc<Pacer>,
    /// Its number among the sharers of the pacer.
    number: usize,
    /// Its right to send to each endpoint.
    rights: [Right; ENDPOINTS_MAX],
    /// When the next bytes may be requested under the user's limit, in microseconds.
    bytes_next_us: u64,
    /// The answers of each endpoint.
    said: Vec<EndpointTotals>,
    /// Requests sent, and bytes requested.
    asked: u64,
    asked_bytes: u64,
    /// Time of the first request.
    asked_us: u64,
}

/// A worker's right to send a request to one endpoint.
#[derive(Debug, Clone, Copy, Default)]
struct Right {
    /// When the next request may be sent under the endpoint's rate, in microseconds.
    next_us: u64,
    /// The right was taken and not used yet.
    is_taken: bool,
}

impl Share {
    /// The share of worker `number`.
    #[must_use]
    pub fn new(pacer: Arc<Pacer>, number: usize) -> Self {
        let rights = [Right::default(); ENDPOINTS_MAX];
        Self {
            pacer,
            number,
            rights,
            bytes_next_us: 0,
            said: vec![EndpointTotals::default()],
            asked: 0,
            asked_bytes: 0,
            asked_us: 0,
        }
    }

    /// How many more requests may be in flight if `busy` are.
    #[must_use]
    pub fn room(&self, busy: usize) -> usize {
        self.pacer.share(self.number).saturating_sub(busy)
    }

    /// True if a request may be sent to an endpoint now. The right is kept until [`Self::sent`].
    pub fn may_send(&mut self, endpoint: EndpointNumber, now_us: u64) -> bool {
        self.bytes_next_us = now_us.saturating_add(self.pacer.bandwidth_wait_us(now_us));
        self.bytes_next_us <= now_us && self.may_send_again(endpoint, now_us)
    }

    /// Like [`Self::may_send`], for a request whose bytes are charged already.
    pub fn may_send_again(&mut self, endpoint: EndpointNumber, now_us: u64) -> bool {
        let right = &mut self.rights[endpoint.index()];
        if !right.is_taken && right.next_us <= now_us {
            let taken = self.pacer.take_request(endpoint, now_us);
            right.is_taken = taken.is_ok();
            right.next_us = taken.err().map_or(right.next_us, |wait_us| now_us + wait_us);
        }
        right.is_taken
    }

    /// Records that a request of `bytes` bytes was sent to an endpoint, after [`Self::may_send`].
    pub fn sent(&mut self, endpoint: EndpointNumber, now_us: u64, bytes: u64) {
        self.rights[endpoint.index()].is_taken = false;
        self.pacer.charge(now_us, bytes);
    }

    /// True while the next request to an endpoint must wait for the endpoint's rate or the user's
    /// limit.
    #[must_use]
    pub fn is_slowed(&self, endpoint: EndpointNumber, now_us: u64) -> bool {
        now_us < self.next_us(endpoint)
    }

    /// Until when it must wait, or had to, in microseconds.
    #[must_use]
    pub fn next_us(&self, endpoint: EndpointNumber) -> u64 {
        self.next_again_us(endpoint).max(self.bytes_next_us)
    }

    /// Like [`Self::next_us`], for a request whose bytes are charged already: the endpoint's rate
    /// only.
    #[must_use]
    pub fn next_again_us(&self, endpoint: EndpointNumber) -> u64 {
        self.rights[endpoint.index()].next_us
    }

    /// Counts a request of `bytes` bytes.
    pub fn asked(&mut self, now_us: u64, bytes: u64) {
        if self.asked == 0 {
            self.asked_us = now_us;
        }
        self.asked += 1;
        self.asked_bytes += bytes;
    }

    /// How long the worker may sleep: before the first answer, the pacer must be called often.
    #[must_use]
    pub fn sleep_max_us(&self, now_us: u64) -> u64 {
        let is_new = self.asked > 0 && now_us < self.asked_us + PACE_FIRST_LOOKS_US;
        let is_answered = || self.said.iter().any(|said| said.answers > 0);
        if is_new && !is_answered() { PACE_TICK_US } else { u64::MAX }
    }

    /// The answer counts of an endpoint, to be updated.
    pub fn said(&mut self, endpoint: EndpointNumber) -> &mut EndpointTotals {
        EndpointTotals::of(&mut self.said, endpoint)
    }

    /// The pacer.
    #[must_use]
    pub fn pacer(&self) -> Arc<Pacer> {
        Arc::clone(&self.pacer)
    }

    /// Reports the totals so far to the pacer, with the requests and the endpoints' answers.
    pub fn note(&self, now_us: u64, came: Totals) {
        let came = Totals { asked: self.asked, asked_bytes: self.asked_bytes, ..came };
        self.pacer.note_each(self.number, now_us, came, &self.said);
    }

    /// The choices so far.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.pacer.timeline()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bounds;
    use super::*;

    #[test]
    fn a_right_is_kept_until_it_is_used() {
        let pacer = Arc::new(Pacer::slowed(Bounds::fixed(4), 1_000));
        let mut share = Share::new(pacer, 0);
        assert_eq!((share.room(1), share.room(9)), (3, 0));
        let now_us = 5_000_000;
        let to = EndpointNumber::FIRST;
        assert!((0..100).all(|_| share.may_send(to, now_us)), "nothing was sent");
        let mut sent = 0;
        while share.may_send(to, now_us) {
            share.sent(to, now_us, 0);
            sent += 1;
        }
        assert!((1..100).contains(&sent), "a burst, and then it waits: {sent}");
        assert!(share.is_slowed(to, now_us) && !share.may_send(to, share.next_us(to) - 1));
        assert!(share.may_send(to, share.next_us(to)));
    }

    #[test]
    fn a_worker_looks_often_until_the_first_answer_and_not_for_long() {
        let mut share = Share::new(Arc::new(Pacer::new(Bounds::fixed(4), 1)), 0);
        assert_eq!(share.sleep_max_us(7_000), u64::MAX, "nothing was asked");
        share.asked(7_000, 1);
        share.asked(8_000, 1);
        // Connecting over TLS takes three round trips: of 25 ms, that is not too long.
        assert_eq!(share.sleep_max_us(82_000), PACE_TICK_US);
        assert_eq!(share.sleep_max_us(157_000), u64::MAX);
        share.said(EndpointNumber::at(1)).answers += 1;
        assert_eq!(share.sleep_max_us(9_000), u64::MAX, "there is something to measure");
    }

    #[test]
    fn what_one_endpoint_asks_for_is_no_matter_of_another() {
        let [quiet, busy] = [0, 1].map(EndpointNumber::at);
        let pacer = Arc::new(Pacer::new(Bounds::fixed(64), 1));
        let mut share = Share::new(Arc::clone(&pacer), 0);
        let mut now_us = 0;
        for _ in 0..60 {
            now_us += crate::limits::PACE_TICK_US;
            share.said(quiet).answers += 20;
            let said = share.said(busy);
            (said.answers, said.refused) = (said.answers + 10, said.refused + 15);
            share.note(now_us, Totals { busy: 32, ..Totals::default() });
        }
        let mut send = |endpoint| {
            let sent = (0..1000).take_while(|_| {
                let may = share.may_send(endpoint, now_us);
                if may {
                    share.sent(endpoint, now_us, 0);
                }
                may
            });
            sent.count()
        };
        assert_eq!(send(quiet), 1000, "it asked for nothing");
        assert!(send(busy) < 100);
        assert!(share.is_slowed(busy, now_us) && !share.is_slowed(quiet, now_us));
        let timeline = share.timeline();
        let refused: Vec<_> =
            timeline.moments().iter().filter_map(|moment| moment.endpoint).collect();
        assert!(!refused.is_empty() && refused.iter().all(|endpoint| *endpoint == busy));
    }
}
