//! Changes the environment of this process.

use std::env;
use std::fs;

/// Removes these variables where they are empty. An empty variable counts as unset, but libraries
/// take these for the path of a file or folder. Does nothing once the process has a second thread.
pub fn unset_empty(names: &[&str]) {
    for name in names {
        if env::var_os(name).is_some_and(|value| value.is_empty()) && is_only_thread() {
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
