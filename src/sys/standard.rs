//! Standard output as the process was started with it.
//!
//! Where it is closed, Rust opens /dev/null in its place before `main` begins, so that no other
//! file gets its number. From then on it looks as if a parent had chosen /dev/null, which is a
//! good choice; so it is looked at before.

use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// What the dynamic linker, or the start code of a static program, calls before `main` (gABI,
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

/// Whether the process was started without a standard output (`>&-`).
#[must_use]
pub fn is_stdout_closed() -> bool {
    // So that the linker takes it along.
    let _ = black_box(&LOOK);
    IS_CLOSED.load(Ordering::Relaxed)
}
