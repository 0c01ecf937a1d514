//! README and the guide against the program: commands, options, exit codes, links, file names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use inrush::guide::TOPICS;

use crate::{COLUMNS_MAX, assert_none, project, sources};

/// Most lines of README: more belongs into the guide.
const README_LINES_MAX: usize = 250;

/// A Markdown file of the project.
pub(crate) struct Document {
    /// Below the project's folder.
    pub(crate) path: PathBuf,
    text: String,
}

impl Document {
    pub(crate) fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = std::fs::read_to_string(project().join(&path)).expect("a document");
        Self { path, text }
    }

    /// The text without its blocks of code.
    pub(crate) fn prose(&self) -> String {
        self.text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
    }

    /// The anchors of its headings, as GitHub and rustdoc make them.
    fn anchors(&self) -> BTreeSet<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
    }

    /// The targets of its links and of its definitions of links.
    fn targets(&self) -> Vec<String> {
        let prose = self.prose();
        let end = |rest: &str| rest.split([')', '\n']).next().unwrap_or_default().to_owned();
        let inline = prose.split("](").skip(1).map(end);
        let defined = prose.lines().filter(|line| line.starts_with('['));
        let defined = defined.filter_map(|line| Some(line.split_once("]: ")?.1.to_owned()));
        inline.chain(defined).collect()
    }

    /// What stands between backticks.
    fn codes(&self) -> Vec<String> {
        let prose = self.prose();
        prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn readme() -> Document {
    Document::read("README.md")
}

fn guide() -> Vec<Document> {
    let page = |topic: &inrush::guide::Topic| {
        let page = Document::read(format!("src/guide/{}.md", topic.name));
        assert_eq!(page.text, topic.text, "{}: another file's text", topic.name);
        page
    };
    TOPICS.iter().map(page).collect()
}

pub(crate) fn all() -> Vec<Document> {
    std::iter::once(readme()).chain(guide()).collect()
}

/// What the program prints for these words.
pub(crate) fn printed(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_inrush")).args(words).env_clear().output();
    String::from_utf8(output.expect("the program starts").stdout).expect("UTF-8")
}

/// The rows that the help of the program has below a heading: a name, and what it means.
pub(crate) fn help_rows(heading: &str) -> Vec<(String, String)> {
    let help = printed(&["--help"]);
    let rows = help.split_once(&format!("\n{heading}\n")).expect("a heading").1;
    let rows = rows.lines().take_while(|line| !line.is_empty());
    let row = |line: &str| line.trim().split_once("  ").map(|(a, b)| (a.into(), b.trim().into()));
    rows.map(|line| row(line).expect("a name and its meaning")).collect()
}

/// The cells of the rows of a table, if each has two.
fn pairs<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let rows = text.split_once(heading).expect("a table").1;
    let rows = rows.lines().take_while(|line| line.starts_with('|')).skip(1);
    let cells = |row: &'a str| row.trim_matches('|').split_once(" | ").expect("two cells");
    rows.map(cells).map(|(a, b)| (a.trim(), b.trim())).collect()
}

#[test]
fn the_readme_is_short() {
    let lines = readme().text.lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines");
}

#[test]
fn the_readme_has_the_commands_as_the_help_has_them() {
    let readme = readme();
    let listed = pairs(&readme.text, "| command | what it does |\n");
    let help = help_rows("Commands:");
    let help: Vec<(String, String)> =
        help.into_iter().map(|(name, about)| (format!("`inrush {name}`"), about)).collect();
    let help: Vec<(&str, &str)> = help.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(listed, help);
}

#[test]
fn the_readme_lists_the_topics_of_the_guide() {
    let readme = readme();
    let topics: Vec<(String, &str)> = TOPICS
        .iter()
        .map(|topic| (format!("[{0}](src/guide/{0}.md)", topic.name), topic.summary))
        .collect();
    let topics: Vec<(&str, &str)> = topics.iter().map(|(a, b)| (a.as_str(), *b)).collect();
    assert_eq!(pairs(&readme.text, "| topic | about |\n"), topics);
}

#[test]
fn the_guide_has_the_exit_codes_as_the_help_has_them() {
    let reports = Document::read("src/guide/reports.md");
    let listed = pairs(&reports.text, "| code | meaning |\n");
    let help = help_rows("Exit codes:");
    let help: Vec<(&str, &str)> = help.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(listed, help);
}

#[test]
fn no_option_is_named_that_is_not_there() {
    let help: String = COMMANDS.iter().map(|command| printed(&[command, "--help"])).collect();
    let known: BTreeSet<&str> = help.split(|c: char| !c.is_ascii_lowercase() && c != '-').collect();
    let mut complaints = Vec::new();
    for document in all() {
        let codes = document.codes();
        // Options of other programs stand behind the program's name.
        let ours = codes.iter().filter(|code| {
            let first = code.split_whitespace().next().unwrap_or_default();
            first.starts_with("--") || first == "inrush" || COMMANDS.contains(&first)
        });
        let words = ours.flat_map(|code| code.split_whitespace());
        for word in words.filter(|word| word.starts_with("--")) {
            let end = word.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            let option = &word[..end.unwrap_or(word.len())];
            if !known.contains(option) && !OTHERS.contains(&option) {
                complaints.push(format!("{}: {option}", document.path.display()));
            }
        }
    }
    assert_none(complaints);
}

/// Commands that have options.
const COMMANDS: [&str; 11] =
    ["get", "sync", "load", "verify", "ls", "pipe", "cat", "train", "mount", "demo", "bench"];

/// Options of the project's tools, which the guide names without their program.
const OTHERS: [&str; 2] = ["--help", "--minutes"];

#[test]
fn links_lead_somewhere() {
    let mut complaints = Vec::new();
    for document in all() {
        let targets = document.targets();
        for target in targets.iter().filter(|target| !target.starts_with("https://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = document.path.parent().expect("a folder");
            let path = if file.is_empty() { document.path.clone() } else { folder.join(file) };
            let is_file = project().join(&path).is_file();
            let is_there =
                is_file && (anchor.is_empty() || Document::read(path).anchors().contains(anchor));
            if !is_there {
                complaints.push(format!("{}: {target}", document.path.display()));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn names_in_brackets_are_links_for_every_reader() {
    // Readers of the repository have a page's own definitions, rustdoc those of the modules.
    let for_rustdoc = Document::read("src/guide/rustdoc-links.txt");
    let mut complaints = Vec::new();
    for document in guide() {
        let prose = document.prose();
        let prose = prose.split('`').step_by(2).collect::<String>();
        let names: BTreeSet<&str> = prose
            .split('[')
            .skip(1)
            .filter_map(|rest| rest.split_once(']'))
            .filter(|(_, rest)| !rest.starts_with('('))
            .map(|(name, _)| name)
            .collect();
        for name in names {
            let is_used = prose.matches(&format!("[{name}]")).count() > 1;
            let definition = format!("[{name}]: ");
            let defined = |text: &str| text.lines().any(|line| line.starts_with(&definition));
            if !is_used || !defined(&document.text) || !defined(&for_rustdoc.text) {
                complaints.push(format!("{}: [{name}]", document.path.display()));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn files_that_are_named_are_there() {
    let mut complaints = Vec::new();
    for document in all() {
        for code in document.codes() {
            let path = code.split(' ').next().expect("a word");
            let folders = ["src/", "tests/", "tools/", ".ci/"];
            let is_ours = folders.iter().any(|folder| path.starts_with(folder));
            if is_ours && !is_there(path) {
                complaints.push(format!("{}: {path}", document.path.display()));
            }
        }
    }
    assert_none(complaints);
}

fn is_there(path: &str) -> bool {
    Path::exists(&project().join(path))
}

#[test]
fn lines_of_the_guide_fit_a_terminal() {
    let mut complaints = Vec::new();
    for document in guide() {
        for (number, line) in (1..).zip(document.text.lines()) {
            // A row of a table cannot be broken.
            if line.chars().count() > COLUMNS_MAX && !line.starts_with('|') {
                complaints.push(format!("{}:{number}", document.path.display()));
            }
        }
    }
    assert_none(complaints);
}

/// What the map says of a byte's way through the program names functions that exist.
#[test]
fn the_journeys_name_functions() {
    let map = std::fs::read_to_string(project().join("src/lib.rs")).expect("the map");
    let (_, journeys) = map.split_once("# Three journeys").expect("the section");
    let (journeys, _) = journeys.split_once("//! # ").expect("another section");
    let sources = sources(&["src"], ".rs");
    let has = |kind: &str, name: &str| {
        let has_type = |text: &str| {
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| word == kind)
        };
        let functions = [format!("fn {name}("), format!("fn {name}<")];
        sources.iter().any(|source| {
            functions.iter().any(|function| source.text.contains(function))
                && has_type(&source.text)
        })
    };
    let named = journeys.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"));
    let functions: Vec<_> =
        named.filter(|(kind, _)| kind.starts_with(char::is_uppercase)).collect();
    assert!(functions.len() > 20, "{functions:?}");
    let missing = functions.iter().filter(|(kind, name)| !has(kind, name));
    assert_none(missing.map(|(kind, name)| format!("src/lib.rs: {kind}::{name}")).collect());
}
