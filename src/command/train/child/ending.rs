//! The end of a command: who asked for it, how long it may take, and when it is killed. Pure.

use std::time::Duration;

use rustix::process::Signal as KernelSignal;
use tokio::time::Instant;

use crate::command::interrupts::FirstSignal;

/// An action on a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Send(KernelSignal),
    /// Kill it and its group.
    Kill,
}

/// The progress of a command's end. Times may be of any one clock.
#[derive(Debug)]
pub(super) struct Ending {
    grace: Duration,
    /// The first signal that asked it to end.
    asked: Option<FirstSignal>,
    /// It was asked to end, and is killed at this time.
    pub(super) kill_at: Option<Instant>,
}

impl Ending {
    /// Not asked to end yet.
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, asked: None, kill_at: None }
    }

    /// A signal for the command; a second one that asks for the end kills it. One that was sent
    /// twice is forwarded once.
    pub(super) fn signal(
        &mut self,
        signal: KernelSignal,
        ends: bool,
        now: Instant,
    ) -> Option<Deed> {
        match (ends, self.asked) {
            (false, _) => Some(Deed::Send(signal)),
            (true, Some(asked)) => asked.is_again(signal, now).then_some(Deed::Kill),
            (true, None) => {
                self.asked = Some(FirstSignal { by: signal, at: now });
                self.kill_at = Some(now + self.grace);
                Some(Deed::Send(signal))
            }
        }
    }

    /// Asks the command to end for a reason of ours.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Deed> {
        match self.asked {
            None => self.signal(KernelSignal::TERM, true, now),
            Some(_) => None,
        }
    }

    /// The action that is due.
    pub(super) fn due(&self, now: Instant) -> Option<Deed> {
        self.kill_at.filter(|at| *at <= now).map(|_| Deed::Kill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::interrupts::AGAIN_AFTER;

    const GRACE: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    /// A command that was not asked to end, and some time.
    fn running() -> (Ending, Instant) {
        (Ending::new(GRACE), Instant::now())
    }

    #[test]
    fn it_is_asked_once_and_killed_when_its_time_is_over() {
        let (mut ending, now) = running();
        assert_eq!(ending.due(now), None);
        let deed = ending.signal(KernelSignal::INT, true, now);
        assert_eq!(deed, Some(Deed::Send(KernelSignal::INT)));
        assert_eq!(ending.due(now + GRACE - SECOND), None);
        assert_eq!(ending.ask(now + SECOND), None, "it was asked already");
        assert_eq!(ending.due(now + GRACE), Some(Deed::Kill));
    }

    #[test]
    fn a_second_signal_kills_whichever_it_is() {
        let (mut ending, now) = running();
        ending.signal(KernelSignal::INT, true, now);
        assert_eq!(ending.signal(KernelSignal::TERM, true, now), Some(Deed::Kill));
        let (mut ending, now) = running();
        assert_eq!(ending.ask(now), Some(Deed::Send(KernelSignal::TERM)));
        assert_eq!(ending.signal(KernelSignal::HUP, true, now), Some(Deed::Kill));
    }

    #[test]
    fn a_signal_that_is_sent_twice_at_once_is_forwarded_once() {
        let (mut ending, now) = running();
        let deed = ending.signal(KernelSignal::TERM, true, now);
        assert_eq!(deed, Some(Deed::Send(KernelSignal::TERM)));
        assert_eq!(ending.signal(KernelSignal::TERM, true, now + AGAIN_AFTER / 2), None);
        let again = ending.signal(KernelSignal::TERM, true, now + AGAIN_AFTER);
        assert_eq!(again, Some(Deed::Kill));
    }

    #[test]
    fn what_asks_for_no_end_is_only_forwarded() {
        let (mut ending, now) = running();
        for _ in 0..3 {
            let deed = ending.signal(KernelSignal::USR1, false, now);
            assert_eq!(deed, Some(Deed::Send(KernelSignal::USR1)));
        }
        assert_eq!(ending.due(now + 2 * GRACE), None);
        ending.signal(KernelSignal::TERM, true, now);
        let deed = ending.signal(KernelSignal::USR2, false, now);
        assert_eq!(deed, Some(Deed::Send(KernelSignal::USR2)));
        assert_eq!(ending.due(now + GRACE), Some(Deed::Kill));
    }

    #[test]
    fn without_grace_it_is_killed_at_once() {
        let (_, now) = running();
        let mut ending = Ending::new(Duration::ZERO);
        ending.signal(KernelSignal::TERM, true, now);
        assert_eq!(ending.due(now), Some(Deed::Kill));
    }
}
