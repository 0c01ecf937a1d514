//! What is mounted and what is hidden, for users: with `--check`, and once it is mounted.

use std::path::Path;

use crate::command::ending::Done;
use crate::error::Result;
use crate::mount::serving::names::Names;
use crate::plan::path::PathProblem;
use crate::report::document::MountedCounts;
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::s3::uri::shown;
use crate::text::size::{Binary, Count, counted};

/// Counts of the mounted objects.
pub(super) fn counts(names: &Names) -> MountedCounts {
    let totals = names.totals();
    MountedCounts {
        files: totals.files,
        bytes: totals.bytes,
        hidden_keys: names.hidden_count(),
        lazy: matches!(names, Names::Lazy(_)),
    }
}

/// Prints the names that would be mounted, and the keys that would be hidden.
pub(super) fn check(names: &Names) -> Result<Done> {
    let mut lines = Lines::stdout();
    let mut print = |line: &str| lines.line(line);
    let hidden = names.hidden_keys();
    for (key, problem) in hidden {
        let why = why_hidden(*problem);
        if print(&format!("hidden: {}: {why}", shown(key)))?.is_break() {
            return Ok(Done::default());
        }
    }
    let rest = names.hidden_count() - hidden.len() as u64;
    if rest > 0 && print(&format!("hidden: {} more", Count(rest)))?.is_break() {
        return Ok(Done::default());
    }
    let _ = print(&summary(names))?;
    lines.flush().map(|_| Done::default())
}

/// Why a key is hidden: below a mount point, not in a folder of files.
fn why_hidden(problem: PathProblem) -> String {
    match problem {
        PathProblem::DotSegment => "the key has a '.' or '..' between slashes, which would be \
             another folder below the mount point: use --exclude"
            .to_owned(),
        PathProblem::Duplicate { .. } => "another source has the same name: give each a mount \
             point of its own"
            .to_owned(),
        problem => problem.explain(),
    }
}

/// The number of files, their bytes, and the hidden keys.
fn summary(names: &Names) -> String {
    let totals = names.totals();
    let files = counted(totals.files, "file", "files");
    let hidden = match names.hidden_count() {
        0 => String::new(),
        count => format!(", {} hidden", counted(count, "key", "keys")),
    };
    format!("{files}, {}{hidden}", Binary(totals.bytes))
}

/// Notes that it is mounted, and what is hidden.
pub(super) fn print_mounted(names: &Names, point: &Path, progress: &Progress) {
    let point = point.display();
    if let Names::Lazy(_) = names {
        return progress.note(format!("mounted at {point}: folders are listed when they are used"));
    }
    progress.note(format!("mounted at {point}: {}", summary(names)));
    let hidden = names.hidden_count();
    let repeated = names.repeated_count();
    if repeated > 0 {
        let keys = counted(repeated, "key is", "keys are");
        progress.note(format!(
            "{keys} hidden because another source has the same name: see inrush mount --check"
        ));
    }
    if hidden > repeated {
        progress.note("keys that cannot be names are hidden: inrush mount --check lists them");
    }
}
