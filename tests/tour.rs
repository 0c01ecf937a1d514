//! The tour of `README.md`, with the real programs: its commands run in its order, and what they
//! print is what the page shows.
//!
//! Compared is the text, with these exceptions. A time (`0.62 s`, `81 ms`) and a rate (`1.79 GB/s`)
//! may be any. The server takes a free port of the loopback interface for the `:9000` of the page.
//! Lines that only a busy machine adds (`waiting for ..`, `.. retries: ..`) are left out.
//!
//! `INRUSH_TOUR=write cargo test --test tour` writes what is printed into the page.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and an environment of its own"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for one command, and for the server's start.
const COMMAND_SECONDS: u64 = 60;
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// The server's address on the page.
const ADDRESS: &str = "127.0.0.1:9000";

/// A command of the page, and what the page shows of its output.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    shown: String,
}

/// The commands of all blocks that begin with ```` ```console ````. A command starts with `$ ` and
/// goes on below a line that ends in a backslash; what follows is its output.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().expect("a block");
        let mut continues = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), shown: String::new() });
            } else {
                let step = steps.last_mut().expect("a block begins with a command");
                let text = if continues { &mut step.command } else { &mut step.shown };
                *text += if continues { "\n" } else { "" };
                *text += line;
                *text += if continues { "" } else { "\n" };
                continues &= line.ends_with('\\');
                continue;
            }
            continues = line.ends_with('\\');
        }
    }
    steps
}

/// The page with other outputs below its commands.
fn page_with(page: &str, outputs: &[String]) -> String {
    let mut outputs = outputs.iter();
    let mut parts = page.split("```console\n");
    let mut written = parts.next().expect("a beginning").to_owned();
    for part in parts {
        let (block, rest) = part.split_once("```").expect("a block ends");
        written += "```console\n";
        for step in steps(&format!("```console\n{block}```")) {
            written += &format!("$ {}\n{}", step.command, outputs.next().expect("an output"));
        }
        written += &format!("```{rest}");
    }
    written
}

/// What is compared of an output: see the head of this file.
fn normal(output: &str) -> String {
    without_added(output).lines().map(|line| normal_line(line) + "\n").collect()
}

/// An output without the lines that only a busy machine adds.
fn without_added(output: &str) -> String {
    let added = |line: &&str| line.starts_with("waiting for ") || is_retries(line);
    output.lines().filter(|line| !added(line)).map(|line| format!("{line}\n")).collect()
}

fn is_retries(line: &str) -> bool {
    let mut words = line.split(' ');
    words.next().is_some_and(is_number) && words.next().is_some_and(|word| word.starts_with("retr"))
}

fn normal_line(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        let unit = words[at].trim_end_matches([',', ';', ')', '.']);
        let is_measured = matches!(unit, "s" | "ms") || unit.ends_with("B/s");
        let end = words[at][unit.len()..].to_owned();
        let number = words[at - 1].trim_start_matches('(');
        if is_measured && is_number(number) {
            let start = words[at - 1].strip_suffix(number).expect("its end").to_owned();
            words[at] = format!("measured{end}");
            words[at - 1] = format!("{start}#");
        }
    }
    words.join(" ")
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
}

/// The folder of the programs, with the server's program in it.
fn programs() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_inrush")).parent().expect("a folder").to_owned();
    // `cargo test` builds it, for its own tests need it; `cargo test --test tour` does not.
    if !folder.join("inrush-origin").exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "inrush-origin"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let target = folder.parent().expect("a folder");
        build.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().expect("cargo starts").success(), "inrush-origin is not built");
    }
    folder
}

/// A shell in the tour's folder, without this process's environment.
struct Shell {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
    address: Option<String>,
    background: Vec<Child>,
}

impl Shell {
    fn new() -> Self {
        // On the build's disk: the machine's temporary folder may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs().display());
        let home = folder.path().join("home").display().to_string();
        let variables = vec![("PATH".to_owned(), path), ("HOME".to_owned(), home)];
        Self { folder, variables, address: None, background: Vec::new() }
    }

    /// Runs a command; returns what it printed, on both streams.
    fn run(&mut self, command: &str) -> String {
        let command = match &self.address {
            Some(address) => command.replace(ADDRESS, address),
            None => command.replace(ADDRESS, "127.0.0.1:0 --ready-file ready"),
        };
        if let Some(settings) = command.strip_prefix("export ") {
            let pairs = settings.split(' ').map(|pair| pair.split_once('=').expect("NAME=VALUE"));
            self.variables.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            return String::new();
        }
        if let Some(command) = command.strip_suffix(" &") {
            let child = self.start(&format!("exec {command}"), "background");
            self.background.push(child);
            if self.address.is_none() {
                let ready = self.folder.path().join("ready");
                let began = Instant::now();
                while !ready.exists() {
                    let waited = began.elapsed();
                    assert!(waited < Duration::from_secs(COMMAND_SECONDS), "no server: {command}");
                    std::thread::sleep(LOOK);
                }
                let address = fs::read_to_string(ready).expect("an address");
                self.address = Some(address.trim().to_owned());
            }
            return String::new();
        }
        let mut child = self.start(&command, "output");
        self.wait(&mut child, &command);
        let bytes = fs::read(self.folder.path().join("home/output")).expect("an output");
        let output = String::from_utf8(bytes).expect("UTF-8");
        self.address.as_ref().map_or(output.clone(), |address| output.replace(address, ADDRESS))
    }

    fn start(&self, command: &str, output: &str) -> Child {
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home).expect("a home");
        let output = File::create(home.join(output)).expect("a file");
        Command::new("bash")
            .args(["-c", command])
            .current_dir(&self.folder)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("bash starts")
    }

    fn wait(&self, child: &mut Child, command: &str) {
        let began = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if began.elapsed() > Duration::from_secs(COMMAND_SECONDS) {
                // What ends now cannot be killed, and need not be.
                let _ = child.kill();
                panic!("not done after {COMMAND_SECONDS} s: {command}");
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for child in &mut self.background {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_tour_prints_what_the_readme_shows() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = fs::read_to_string(&readme).expect("README.md");
    let steps = steps(&page);
    assert!(steps.len() > 10, "{steps:?}");
    let mut shell = Shell::new();
    let outputs: Vec<String> = steps.iter().map(|step| shell.run(&step.command)).collect();
    if std::env::var_os("INRUSH_TOUR").is_some_and(|value| value == "write") {
        let outputs: Vec<String> = outputs.iter().map(|output| without_added(output)).collect();
        fs::write(&readme, page_with(&page, &outputs)).expect("README.md");
        return;
    }
    let mut complaints = Vec::new();
    for (step, output) in steps.iter().zip(&outputs) {
        if normal(&step.shown) != normal(output) {
            complaints.push(format!(
                "$ {}\n--- README.md shows\n{}--- printed\n{output}",
                step.command, step.shown
            ));
        }
    }
    assert!(
        complaints.is_empty(),
        "{}\nwrite what is printed into README.md with INRUSH_TOUR=write cargo test --test tour",
        complaints.join("\n")
    );
}

#[test]
fn only_what_was_measured_may_differ() {
    let line = "1,004 objects, 307 MB -> data/ in 0.88 s (348 MB/s), all verified";
    let other = line.replace("0.88 s", "12 ms").replace("348 MB/s", "1.1 GB/s");
    assert_eq!(normal(line), normal(&other));
    assert_eq!(normal("1 retry: 1 stale\nwaiting for x\na\n"), "a\n");
    for drifted in ["1,005 objects", "308 MB", "in 0.88 s, all", "data"] {
        let from = ["1,004 objects", "307 MB", "in 0.88 s (348 MB/s), all", "data/"];
        for from in from {
            assert_ne!(normal(line), normal(&line.replace(from, drifted)), "{from}: {drifted}");
        }
    }
}

#[test]
fn a_page_gets_other_outputs_and_nothing_else() {
    let page = "# A\n```console\n$ a \\\n  b\n1\n2\n$ c\n```\ntext\n```console\n$ d\n3\n```\nend\n";
    let step = |command: &str, shown: &str| Step { command: command.into(), shown: shown.into() };
    assert_eq!(steps(page), [step("a \\\n  b", "1\n2\n"), step("c", ""), step("d", "3\n")]);
    let same: Vec<String> = steps(page).into_iter().map(|step| step.shown).collect();
    assert_eq!(page_with(page, &same), page);
    let other = ["4\n".to_owned(), String::new(), "5\n6\n".to_owned()];
    let expected = page.replace("1\n2\n", "4\n").replace("3\n", "5\n6\n");
    assert_eq!(page_with(page, &other), expected);
}
