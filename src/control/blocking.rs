//! Runs blocking work on helper threads of the runtime: a slow file system must not delay the
//! control plane's timers, progress, signals and deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{JoinHandle, spawn_blocking};

/// Runs `work` on a helper thread. It continues there when the future is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("work on a helper thread does not panic")
}

/// True once the result of the work is no longer awaited.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// To be called between two steps of the work.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A state with blocking calls, lent to a helper thread for one piece of work at a time.
#[derive(Debug)]
pub(crate) struct BlockingState<S, T> {
    /// `None` while it is lent, and after its work was cancelled.
    state: Option<S>,
    under_way: Option<JoinHandle<(S, T)>>,
    given_up: GivenUp,
}

impl<S: Send + 'static, T: Send + 'static> BlockingState<S, T> {
    pub(crate) fn new(state: S) -> Self {
        Self { state: Some(state), under_way: None, given_up: GivenUp::default() }
    }

    /// Starts a piece of work.
    ///
    /// # Panics
    /// If one is in progress, or was cancelled.
    pub(crate) fn begin(&mut self, work: impl FnOnce(&mut S, &GivenUp) -> T + Send + 'static) {
        let mut state = self.state.take().expect("one piece of work at a time");
        let given_up = self.given_up.clone();
        self.under_way = Some(spawn_blocking(move || {
            let done = work(&mut state, &given_up);
            (state, done)
        }));
    }

    /// True while a piece of work is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// The result of the work; pending forever if none is in progress. Cancel safe.
    pub(crate) async fn next(&mut self) -> T {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let (state, done) = under_way.await.expect("work on a helper thread does not panic");
        self.under_way = None;
        self.state = Some(state);
        done
    }
}

impl<S, T> BlockingState<S, T> {
    /// The state, unless it is lent or its work was cancelled.
    pub(crate) fn state(&self) -> Option<&S> {
        self.state.as_ref()
    }

    /// Cancels the work in progress; it ends at its next step. No other may begin.
    pub(crate) fn give_up(&mut self) {
        self.given_up.0.store(true, Ordering::Relaxed);
        self.under_way = None;
    }
}

impl<S, T> Drop for BlockingState<S, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(all(test, not(target_env = "musl")))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Only so that the test ends if the work runs on the timers' thread.
    const AT_MOST: Duration = Duration::from_secs(20);

    #[test]
    fn timers_go_on_while_the_work_blocks() {
        tokio_uring::start(async {
            let mut counted = BlockingState::new(7u32);
            for round in 1..=3u32 {
                let (release, released) = mpsc::channel::<()>();
                counted.begin(move |state, _| {
                    *state += 1;
                    // It ends only after the timer has fired: on one thread it never would.
                    released.recv_timeout(AT_MOST).is_ok()
                });
                assert!(counted.is_busy());
                let mut tick = tokio::time::interval(Duration::from_millis(1));
                let mut ticks = 0;
                let ended = loop {
                    tokio::select! {
                        ended = counted.next() => break ended,
                        _ = tick.tick() => {
                            ticks += 1;
                            if ticks == 5 {
                                release.send(()).expect("the work waits for it");
                            }
                        }
                    }
                };
                assert!(ended && ticks >= 5, "{ticks} ticks in round {round}");
                assert!(!counted.is_busy());
                assert_eq!(counted.state, Some(7 + round), "it came back");
            }
        });
    }

    #[test]
    fn work_that_is_given_up_learns_of_it() {
        tokio_uring::start(async {
            for dropped in [false, true] {
                let (sender, receiver) = mpsc::channel();
                let (begun_sender, begun) = tokio::sync::oneshot::channel();
                let mut endless = BlockingState::new(());
                endless.begin(move |(), given_up| {
                    begun_sender.send(()).expect("it is waited for");
                    while !given_up.get() {
                        std::thread::yield_now();
                    }
                    sender.send(()).expect("it is waited for");
                });
                begun.await.expect("it begins");
                if dropped {
                    drop(endless);
                } else {
                    endless.give_up();
                    assert!(!endless.is_busy());
                }
                receiver.recv_timeout(AT_MOST).expect("it ends");
            }
        });
    }
}
