//! What must hold of inrush's parsers whatever comes in: one function for each.
//!
//! A function takes any bytes and panics when something does not hold. Two callers: the smoke test
//! of this crate, which gives each the inputs in `seeds/` and some thousand changes to them on
//! every run of `cargo test`; and the programs of `libfuzzer/`, which look for hours:
//!
//! ```text
//! cargo +nightly fuzz run --fuzz-dir tools/fuzz/libfuzzer head \
//!     tools/fuzz/libfuzzer/corpus/head tools/fuzz/seeds/head
//! ```
//!
//! An input that was found becomes a file in `seeds/`. A new function needs its line in
//! [`TARGETS`], its folder in `seeds/`, and its program in `libfuzzer/`; the smoke test says what
//! is missing.

mod answers;
mod heads;
mod journals;
mod listings;
mod names;

pub use answers::{error, grant, session};
pub use heads::{chunks, content_range, head};
pub use journals::journal;
pub use listings::list;
pub use names::{paths, uri, web};

/// What takes any bytes and panics when something does not hold.
pub type Target = fn(&[u8]);

/// All functions by name.
pub const TARGETS: [(&str, Target); 11] = [
    ("chunks", chunks),
    ("content_range", content_range),
    ("error", error),
    ("grant", grant),
    ("head", head),
    ("journal", journal),
    ("list", list),
    ("paths", paths),
    ("session", session),
    ("uri", uri),
    ("web", web),
];

/// Most places at which an input is cut in two.
const SPLITS_MAX: usize = 12;

/// Places to cut an input of this length at: all of a short one, some of a long one, and the last
/// few of either, where heads and pages end.
fn splits(length: usize) -> impl Iterator<Item = usize> {
    let step = length.div_ceil(SPLITS_MAX).max(1);
    let last = length.saturating_sub(5)..length;
    (0..length).step_by(step).chain(last)
}
