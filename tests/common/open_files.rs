//! How many files the process of the tests may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows as many as the hard limit: the soft limit of a session is 1,024, for all tests of this
/// process and their servers' connections together.
pub(crate) fn allow_all() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
