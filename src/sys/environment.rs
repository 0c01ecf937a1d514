//! Changes the environment of this process.

use std::env;
use std::ffi::OsStr;
use std::fs;

/// Removes variables that count as unset, but not for the libraries that read them: paths that are
/// empty, and a terminal of 0 columns. Does nothing once the process has a second thread.
pub fn unset_meaningless() {
    unset(&["SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR"], OsStr::is_empty);
    let is_zero = |value: &OsStr| value.to_str().is_some_and(|text| text.parse() == Ok(0usize));
    unset(&["COLUMNS"], is_zero);
}

fn unset(names: &[&str], is_meaningless: impl Fn(&OsStr) -> bool) {
    for name in names {
        if env::var_os(name).is_some_and(|value| is_meaningless(&value)) && is_only_thread() {
            // SAFETY: `remove_var` requires that no other thread reads or writes the environment.
            // This process has no other thread, and only this one could start one.
            unsafe { env::remove_var(name) };
        }
    }
}

/// True if this process certainly has one thread (proc_pid_task(5)).
fn is_only_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
