//! What the sources use of `std::sync`, as loom explores it.

use std::fmt;
use std::time::Duration;

pub use loom::sync::{Mutex, MutexGuard, RwLock};
pub use std::sync::{Arc, LockResult, PoisonError, TryLockError};

/// A condition variable whose waits have no timeout: a model in which nobody notifies it has a
/// deadlock, which loom reports.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

/// Whether a wait ended by its timeout: never.
#[derive(Debug)]
pub struct WaitTimeoutResult;

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.0.wait(guard)?;
        }
        Ok(guard)
    }

    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _at_most: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let guard = self.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner);
        Ok((guard, WaitTimeoutResult))
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub mod mpsc {
    //! Channels with a bound, which end with their last sender or their receiver.

    use std::collections::VecDeque;
    pub use std::sync::mpsc::{RecvError, SendError};

    use super::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

    struct State<T> {
        values: VecDeque<T>,
        bound: usize,
        senders: usize,
        has_receiver: bool,
    }

    struct Channel<T> {
        state: Mutex<State<T>>,
        changed: Condvar,
    }

    impl<T> Channel<T> {
        fn lock(&self) -> MutexGuard<'_, State<T>> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn wait_while(&self, condition: impl Fn(&State<T>) -> bool) -> MutexGuard<'_, State<T>> {
            let waited = self.changed.wait_while(self.lock(), |state| condition(state));
            waited.unwrap_or_else(PoisonError::into_inner)
        }

        fn change(&self, change: impl FnOnce(&mut State<T>)) {
            change(&mut self.lock());
            self.changed.notify_all();
        }
    }

    pub struct SyncSender<T>(Arc<Channel<T>>);

    pub struct Receiver<T>(Arc<Channel<T>>);

    pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
        let (values, senders, has_receiver) = (VecDeque::new(), 1, true);
        let state = Mutex::new(State { values, bound, senders, has_receiver });
        let channel = Arc::new(Channel { state, changed: Condvar::new() });
        (SyncSender(Arc::clone(&channel)), Receiver(channel))
    }

    impl<T> SyncSender<T> {
        pub fn send(&self, value: T) -> Result<(), SendError<T>> {
            let is_full = |state: &State<T>| state.values.len() >= state.bound;
            let mut state = self.0.wait_while(|state| state.has_receiver && is_full(state));
            if !state.has_receiver {
                return Err(SendError(value));
            }
            state.values.push_back(value);
            drop(state);
            self.0.changed.notify_all();
            Ok(())
        }
    }

    impl<T> Clone for SyncSender<T> {
        fn clone(&self) -> Self {
            self.0.change(|state| state.senders += 1);
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for SyncSender<T> {
        fn drop(&mut self) {
            self.0.change(|state| state.senders -= 1);
        }
    }

    impl<T> Receiver<T> {
        pub fn recv(&self) -> Result<T, RecvError> {
            let mut state = self.0.wait_while(|state| state.values.is_empty() && state.senders > 0);
            let value = state.values.pop_front().ok_or(RecvError);
            drop(state);
            self.0.changed.notify_all();
            value
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            self.0.change(|state| state.has_receiver = false);
        }
    }
}

pub mod atomic {
    //! Loom takes a first value for one that was not stored with `SeqCst`, so that a later load
    //! might return it for ever. The first value happens before all others (C++20,
    //! \[atomics.order\]): it is stored once more.

    use super::fmt;

    pub use std::sync::atomic::Ordering;

    macro_rules! atomics {
        ($($name:ident $value:ty;)*) => {$(
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                pub fn new(value: $value) -> Self {
                    let new = loom::sync::atomic::$name::new(value);
                    new.store(value, Ordering::SeqCst);
                    Self(new)
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(Default::default())
                }
            }

            impl std::ops::Deref for $name {
                type Target = loom::sync::atomic::$name;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(stringify!($name))
                }
            }
        )*};
    }

    atomics! {
        AtomicBool bool;
        AtomicI64 i64;
        AtomicU32 u32;
        AtomicU64 u64;
        AtomicUsize usize;
    }
}

pub mod thread {
    //! Threads of a model. A stack is larger than loom's, for what the sources have there.

    use super::fmt;

    const STACK_BYTES: usize = 256 << 10;

    pub struct JoinHandle<T>(loom::thread::JoinHandle<T>);

    impl<T> JoinHandle<T> {
        pub fn join(self) -> std::thread::Result<T> {
            self.0.join()
        }
    }

    impl<T> fmt::Debug for JoinHandle<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JoinHandle")
        }
    }

    #[derive(Default)]
    pub struct Builder;

    impl Builder {
        pub fn new() -> Self {
            Self
        }

        pub fn name(self, _name: String) -> Self {
            self
        }

        pub fn stack_size(self, _bytes: usize) -> Self {
            self
        }

        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> std::io::Result<JoinHandle<T>> {
            // Loom counts a stack in words.
            let builder = loom::thread::Builder::new().stack_size(STACK_BYTES / size_of::<usize>());
            builder.spawn(work).map(JoinHandle)
        }
    }

    pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        Builder.spawn(work).expect("loom has room for it")
    }
}
