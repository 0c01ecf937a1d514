//! The Python 3 of this machine.

use std::process::Command;

/// Its interpreter itself: a wrapper would need an environment. `None`, said on standard error with
/// what it was wanted for, where there is none.
pub(crate) fn interpreter(wanted_for: &str) -> Option<String> {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Some(found) = asked.ok().filter(|output| output.status.success()) else {
        crate::skip::skip(&format!("there is no python3 {wanted_for}"));
        return None;
    };
    Some(String::from_utf8_lossy(&found.stdout).trim().to_owned())
}
