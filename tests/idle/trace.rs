//! The system calls of a process and its threads, as strace(1) sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// How long is counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Most calls of one kind by one thread in a window: one a second, and two at its ends.
const CALLS_MAX: usize = 12;

/// Most calls of a whole process in a window, besides those of one kind for each of its threads: a
/// channel looks once a second whether its pipe is still there, and helper threads end.
const MORE_CALLS_MAX: usize = 30;

/// Windows until one is quiet, at most: first comes what is fetched ahead, and connections are open
/// for some seconds.
const WINDOWS_MAX: usize = 6;

/// False, said on standard error, where nothing can be traced.
pub(crate) fn can_trace() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let tried = Trace::of(&folder)
        .command()
        .and_then(|(program, words)| Command::new(program).args(words).arg("true").output().ok());
    let can = tried.is_some_and(|tried| tried.status.success());
    if !can {
        crate::skip::skip("strace cannot trace a program here");
    }
    can
}

/// The trace of a process and its threads.
pub(crate) struct Trace {
    path: PathBuf,
    name: String,
    /// Length of the file when the window began.
    begun: usize,
}

impl Trace {
    pub(crate) fn of(folder: &TempDir) -> Self {
        Self { path: folder.path().join("trace"), name: String::new(), begun: 0 }
    }

    /// Names the process in failures.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// What starts a program that is traced. The tracer is no ancestor of it: it is signalled, and
    /// killed, like any other child.
    pub(crate) fn words(&self) -> Vec<String> {
        let path = self.path.to_str().expect("UTF-8").to_owned();
        let words = ["strace", "-D", "-f", "-qq", "-ttt", "-o", &path];
        words.map(str::to_owned).to_vec()
    }

    fn command(&self) -> Option<(String, Vec<String>)> {
        let mut words = self.words().into_iter();
        Some((words.next()?, words.collect()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.path).expect("a trace")).into_owned()
    }

    /// Calls that began since the window began, by thread and kind.
    fn calls(&self) -> BTreeMap<(u32, String), usize> {
        let text = self.text();
        let mut calls = BTreeMap::new();
        for line in text.get(self.begun..).unwrap_or_default().lines() {
            // PID TIME CALL(...; what is resumed has been counted, and signals are no calls.
            let mut words = line.split_ascii_whitespace();
            let thread = words.next().and_then(|word| word.parse::<u32>().ok());
            let (Some(thread), Some(call)) = (thread, words.nth(1)) else { continue };
            let Some((call, _)) = call.split_once('(') else { continue };
            if call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                *calls.entry((thread, call.to_owned())).or_insert(0) += 1;
            }
        }
        calls
    }
}

/// Fails unless these processes come to rest: in some window no thread of them makes any call more
/// than once a second, and none of them many.
#[track_caller]
pub(crate) fn assert_idle(mut traces: Vec<Trace>) {
    let mut seen = String::new();
    for _ in 0..WINDOWS_MAX {
        for trace in &mut traces {
            trace.begun = trace.text().len();
        }
        std::thread::sleep(WINDOW);
        traces.retain(|trace| {
            let calls = trace.calls();
            let all: usize = calls.values().sum();
            let threads: BTreeSet<u32> = calls.keys().map(|(thread, _)| *thread).collect();
            let most = MORE_CALLS_MAX + threads.len() * CALLS_MAX;
            let often = calls.values().any(|count| *count > CALLS_MAX);
            let each: Vec<String> = calls
                .iter()
                .map(|((thread, call), count)| format!("{thread} {call} {count}"))
                .collect();
            let line = format!("{}: {all} calls in {WINDOW:?}: {}", trace.name, each.join(", "));
            eprintln!("{line}");
            seen += &format!("{line}\n");
            often || all > most
        });
        if traces.is_empty() {
            return;
        }
    }
    panic!("more than {CALLS_MAX} calls of one kind, or too many in all:\n{seen}");
}
