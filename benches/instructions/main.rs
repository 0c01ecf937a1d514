//! How many instructions the steps of a download take: each case runs under callgrind, and one that
//! takes more than a tenth over its recorded figure fails.
//!
//! `cargo bench --bench instructions` counts and compares with `recorded.txt`; `-- --record` behind
//! it writes the figures there. Needs valgrind.
//!
//! A case runs twice as a process of its own, once doing its work once and once more often: the
//! difference is the work alone, without the start of the process and what is prepared. So it
//! counts the program as it is shipped, without symbols, by which gungraun would have to find the
//! functions that it counts; and gungraun needs a runner of its own version beside it.
#![expect(clippy::print_stdout, reason = "the table is the output")]

mod cases;
mod machine;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use cases::{CASES, Case};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/recorded.txt");
/// A figure above this percentage of the recorded one fails the comparison.
const MOST_PERCENT: u64 = 110;
const LEAST_PERCENT: u64 = 90;
/// How often a case does its work in its two runs.
const TIMES: [u64; 2] = [1, 3];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] => compare(),
        ["--record"] => record(),
        ["--case", name, times] => {
            let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
            (case.run)(times.parse().expect("TIMES is a number"));
            Ok(())
        }
        _ => Err("usage: instructions [--record]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What a program says of its version.
fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output =
        output.map_err(|error| format!("cannot run {program}: {error}; install {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What the figures depend on besides the source.
fn tools() -> Result<String, String> {
    let compiler = version(&std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))?;
    Ok(format!("{compiler}, {}, {}", version("valgrind")?, std::env::consts::ARCH))
}

/// Instructions of the whole process.
fn total(folder: &Path, case: &Case, times: u64) -> Result<u64, String> {
    let out = folder.join(format!("{}.{times}", case.name));
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--case", case.name, &times.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() {
        return Err(format!("{} under valgrind: {}: {said}", case.name, run.status));
    }
    let text = std::fs::read_to_string(&out).map_err(|error| format!("no counts: {error}"))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = totals.and_then(|total| total.trim().parse().ok());
    total.ok_or_else(|| format!("callgrind wrote no totals for {}: {said}", case.name))
}

/// Instructions of a unit of each case, as many cases at the same time as there are processors.
fn count() -> Result<Vec<u64>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let next = AtomicUsize::new(0);
    let runs: Vec<(&Case, u64)> =
        CASES.iter().flat_map(|case| TIMES.map(|times| (case, times))).collect();
    let work = || {
        let mut done = Vec::new();
        while let Some((case, times)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(((case.name, *times), total(folder.path(), case, *times)?));
        }
        Ok::<_, String>(done)
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut totals = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            totals.extend(thread.join().expect("it does not panic")?);
        }
        Ok::<(), String>(())
    })?;
    let each = |case: &Case| {
        let [once, more] = TIMES.map(|times| totals[&(case.name, times)]);
        more.saturating_sub(once) / ((TIMES[1] - TIMES[0]) * case.units)
    };
    Ok(CASES.iter().map(each).collect())
}

fn record() -> Result<(), String> {
    let mut text = format!(
        "# Instructions of a unit of each case, as callgrind counts them. Written by\n\
         # cargo bench --bench instructions -- --record\n\
         tools: {}\n",
        tools()?
    );
    for (case, count) in CASES.iter().zip(count()?) {
        writeln!(text, "{}: {count}", case.name).expect("room");
    }
    print!("{text}");
    std::fs::write(RECORD, text).map_err(|error| format!("cannot write {RECORD}: {error}"))
}

fn compare() -> Result<(), String> {
    let recorded = std::fs::read_to_string(RECORD)
        .map_err(|error| format!("cannot read {RECORD}: {error}"))?;
    let recorded: BTreeMap<&str, &str> =
        recorded.lines().filter_map(|line| line.split_once(": ")).collect();
    let now = tools()?;
    let before = recorded.get("tools").copied().unwrap_or("nothing");
    let is_same = now == before;
    println!("{now}{}", if is_same { String::new() } else { format!("; recorded with {before}") });
    println!("{:<14} {:>10} {:>10} {:>8}", "CASE", "COUNTED", "RECORDED", "PER CENT");
    let mut grown = Vec::new();
    for (case, count) in CASES.iter().zip(count()?) {
        let figure = recorded.get(case.name).and_then(|figure| figure.parse::<u64>().ok());
        let figure =
            figure.ok_or_else(|| format!("{} is not recorded: use --record", case.name))?;
        let percent = count * 100 / figure.max(1);
        let note = if count * 100 > figure * MOST_PERCENT {
            grown.push(case.name);
            "  GREW"
        } else if count * 100 < figure * LEAST_PERCENT {
            "  less: record it anew"
        } else {
            ""
        };
        let Case { name, unit, .. } = case;
        println!("{name:<14} {count:>10} {figure:>10} {percent:>8}{note}  each {unit}");
    }
    if grown.is_empty() {
        return Ok(());
    }
    let tools = if is_same { "" } else { " (or another compiler does; recorded with another)" };
    Err(format!(
        "{} takes over {} % more instructions than recorded{tools}: find out why, or where it is \
         meant, record it with cargo bench --bench instructions -- --record",
        grown.join(", "),
        MOST_PERCENT - 100
    ))
}
