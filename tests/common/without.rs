//! Runs without something of the kernel: `without.py` forbids it to one process.

use std::path::Path;
use std::process::Command;

/// What to start a program by way of, so that it has no `what`: `io_uring:ERRNO` or another
/// call that fails with an errno, `tmpfile` or `direct`.
/// `None`, said on standard error, where there is no Python 3 to do it.
pub(crate) fn without(what: &str) -> Option<[String; 3]> {
    // The interpreter itself: a wrapper would need an environment.
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Some(found) = asked.ok().filter(|output| output.status.success()) else {
        crate::skip::skip(&format!("there is no python3 to forbid {what} with"));
        return None;
    };
    let python = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/without.py");
    Some([python, script.to_str().expect("UTF-8").to_owned(), what.to_owned()])
}
