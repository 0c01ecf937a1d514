//! Detects a closed standard output.
//!
//! If it is closed, Rust opens /dev/null in its place before `main`, so that no other file gets its
//! number. From then on it looks as if the parent had chosen /dev/null, which is legitimate; so it
//! must be checked earlier.

use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

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
