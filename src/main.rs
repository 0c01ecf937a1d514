//! The program: parse, resolve, run, report, exit code.
fn main() {}
