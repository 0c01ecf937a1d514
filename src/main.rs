//! The program: parse, run, exit code.

use std::process::ExitCode;
use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "a run begins when the process does")]
fn main() -> ExitCode {
    let begun = Instant::now();
    inrush::sys::environment::unset_meaningless();
    let words: Vec<_> = std::env::args_os().collect();
    ExitCode::from(inrush::command::main(&words, begun))
}
