//! One worker's or feeder's side of a pacer: how many requests it may have in flight, and when it
//! may send the next.

use std::sync::Arc;

use super::{Pacer, Timeline, Totals};

/// A worker's part of what a run may ask for.
#[derive(Debug)]
pub struct Share {
    pacer: Arc<Pacer>,
    /// Its number among those that share the pacer.
    number: usize,
    /// When the next request may be sent, where the server asked for less, in microseconds.
    next_us: u64,
    /// When the next bytes may be asked for, where the user bounds them, in microseconds.
    bytes_next_us: u64,
    /// The right to send one was taken, and not used yet.
    has_right: bool,
}

impl Share {
    /// The part of worker `number`.
    #[must_use]
    pub fn new(pacer: Arc<Pacer>, number: usize) -> Self {
        Self { pacer, number, next_us: 0, bytes_next_us: 0, has_right: false }
    }

    /// How many more requests it may have in flight than those that are `busy`.
    #[must_use]
    pub fn room(&self, busy: usize) -> usize {
        self.pacer.share(self.number).saturating_sub(busy)
    }

    /// Whether a request may be sent now. The right to it is kept until one was [`Self::sent`].
    pub fn may_send(&mut self, now_us: u64) -> bool {
        self.bytes_next_us = now_us.saturating_add(self.pacer.bandwidth_wait_us(now_us));
        self.bytes_next_us <= now_us && self.may_send_again(now_us)
    }

    /// The same of a request whose bytes are charged already.
    pub fn may_send_again(&mut self, now_us: u64) -> bool {
        if !self.has_right && self.next_us <= now_us {
            let taken = self.pacer.take_request(now_us);
            self.has_right = taken.is_ok();
            self.next_us = taken.err().map_or(self.next_us, |wait_us| now_us + wait_us);
        }
        self.has_right
    }

    /// A request for so many bytes was sent, after [`Self::may_send`].
    pub fn sent(&mut self, now_us: u64, bytes: u64) {
        self.has_right = false;
        self.pacer.charge(now_us, bytes);
    }

    /// True while the next request has to wait because the server asked for less, or the user.
    #[must_use]
    pub fn is_slowed(&self, now_us: u64) -> bool {
        now_us < self.next_us()
    }

    /// Until when it has to, or had to, in microseconds.
    #[must_use]
    pub fn next_us(&self) -> u64 {
        self.next_us.max(self.bytes_next_us)
    }

    /// The same of a request whose bytes are charged already.
    #[must_use]
    pub fn next_again_us(&self) -> u64 {
        self.next_us
    }

    /// Tells the pacer what has come.
    pub fn note(&self, now_us: u64, came: Totals) {
        self.pacer.note(self.number, now_us, came);
    }

    /// What was chosen so far.
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
        assert!((0..100).all(|_| share.may_send(now_us)), "nothing was sent");
        let mut sent = 0;
        while share.may_send(now_us) {
            share.sent(now_us, 0);
            sent += 1;
        }
        assert!((1..100).contains(&sent), "a burst, and then it waits: {sent}");
        assert!(share.is_slowed(now_us) && !share.may_send(share.next_us() - 1));
        assert!(share.may_send(share.next_us()));
    }
}
