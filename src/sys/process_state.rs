//! The statics of the process, each with who needs it where no context reaches. All others are
//! fields of what is handed on; only the queue of standard error, which is not this room's, and a
//! buffer of the threads of mounts stand elsewhere: see `tests/tidy`.

use std::cell::Cell;
use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::process::Rlimit;

use super::tcp_memory::Sampler;

/// Number of children of our own that other code waits for: the thread of signals, which reaps
/// orphans, must not take the child of any other thread.
pub(super) static AWAITED: Mutex<usize> = Mutex::new(0);

/// The signal mask that this process was started with. Whoever starts a child gives it that: the
/// control plane does, too, for programs that print credentials.
pub(super) static MASK: OnceLock<libc::sigset_t> = OnceLock::new();

/// The limit of descriptors that this process was started with, for the same.
pub(super) static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();

/// Descriptors that the engines of a process count on, which each new one leaves to the others: the
/// process in the upper 32 bits, because a forked one has none of them, and the number.
pub(super) static DESCRIPTORS_SHARED: AtomicU64 = AtomicU64::new(0);

/// The machine's TCP memory, which all engines of the process sample together.
pub(super) static TCP_MEMORY: Mutex<Sampler> = Mutex::new(Sampler::new());

thread_local! {
    /// A library is starting a thread here, and may panic: for the panic hook.
    pub(super) static IS_STARTING: Cell<bool> = const { Cell::new(false) };
}

/// The process was started without a standard output. If it is closed, Rust opens /dev/null in its
/// place before `main`, so that no other file gets its number. From then on it looks as if the
/// parent had chosen /dev/null, which is legitimate; so it must be checked earlier.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the dynamic linker, or by the start code of a static program, before `main` (gABI,
/// "Initialization and Termination Functions").
#[used]
// SAFETY: the section holds pointers to functions of the C ABI, as this is; arguments that the
// caller passes are ignored. The function makes one system call and needs nothing of std.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the number is used for one call, which answers EBADF where it is closed.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    let found = rustix::io::fcntl_getfd(stdout);
    IS_CLOSED.store(found == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
}

/// True if the process was started without a standard output (`>&-`).
#[must_use]
pub fn is_stdout_closed() -> bool {
    // Makes the linker keep it.
    let _ = black_box(&LOOK);
    IS_CLOSED.load(Ordering::Relaxed)
}
