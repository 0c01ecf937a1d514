//! The words of comments, names, messages and documents: those of the field, and none that hide the
//! subject or the number.

use crate::documents::{self, Document};
use crate::{assert_none, rust, sources};

/// Words that hide the subject or the number, also as parts of names. In pieces, so that this file
/// does not find itself.
const VAGUE: [&str; 10] = [
    "to-ld",
    "te-ll",
    "te-lls",
    "so ma-ny",
    "so mu-ch",
    "so lo-ng",
    "er-rand",
    "pati-ence",
    "stum-bles",
    "up-keep",
];

/// Words that readers of English documentation do not expect: the field has others.
const UNUSUAL: [&str; 13] = [
    "held against",
    "anew",
    "asked for",
    "believe",
    "brings",
    "fetch",
    "goes on",
    "have to do with",
    "here and there",
    "may take",
    "one's own",
    "stands",
    "to be had",
];

/// Further ones that help texts do not have.
const UNUSUAL_IN_HELP: [&str; 4] = ["hold against", "go on", "is gone", "as many as bring"];

/// Beginnings of comments and docstrings.
const COMMENTS: [&str; 6] = ["//! ", "/// ", "// ", "# ", "#: ", "\"\"\""];

/// The words of a text in lower case, with their lines. Names are several: `wait_for`, `WaitFor`.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::<(usize, String)>::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut before = ' ';
        for letter in line.chars() {
            let begins =
                !before.is_alphanumeric() || before.is_lowercase() && letter.is_uppercase();
            match words.last_mut().filter(|_| !begins) {
                Some((_, word)) if letter.is_alphanumeric() => word.extend(letter.to_lowercase()),
                None if letter.is_alphanumeric() => {
                    words.push((number, letter.to_lowercase().collect()));
                }
                _ => {}
            }
            before = letter;
        }
    }
    words
}

/// The vague words of a text, with their lines; a phrase may be broken between two lines.
fn vague(text: &str) -> Vec<(usize, String)> {
    // A position in a file is the method's name in Python.
    let words = words(&text.replace(".tell()", "").replace("def tell(self)", ""));
    let pairs = words.windows(2).map(|pair| (pair[0].0, format!("{} {}", pair[0].1, pair[1].1)));
    let all = VAGUE.map(|word| word.replace('-', ""));
    let is_vague = |(_, word): &(usize, String)| all.contains(word);
    words.iter().cloned().chain(pairs).filter(is_vague).collect()
}

#[test]
fn sources_have_the_words_of_the_field() {
    let mut files = rust();
    files.extend([".py", ".pyi", ".sh", ".yaml"].iter().flat_map(|end| sources(&["tools"], end)));
    files.extend(sources(&["tests"], ".py"));
    let mut complaints = Vec::new();
    for file in files {
        let found = vague(&file.text).into_iter();
        complaints.extend(found.map(|(number, word)| format!("{}:{number}: {word}", file.path)));
        for (number, line) in (1..).zip(file.text.lines()) {
            let line = line.trim_start();
            if COMMENTS.iter().any(|mark| line.starts_with(&format!("{mark}The same"))) {
                complaints.push(format!("{}:{number}: name what is the same", file.path));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn a_word_is_found_in_names_and_across_lines() {
    let text = VAGUE[0].replace('-', "");
    let name = format!("{}{}", text[..1].to_uppercase(), &text[1..]);
    let phrase = VAGUE[3].replace('-', "").replace(' ', "\n    // ");
    for found in [format!("// {text}."), format!("is_{text}_once"), format!("What{name}Is"), phrase]
    {
        assert_eq!(vague(&format!("fn\n{found}")).len(), 1, "{found}");
        assert_eq!(vague(&format!("fn\n{found}"))[0].0, 2, "{found}");
    }
    assert!(vague(&format!("un{text} {text}able file.tell()")).is_empty());
}

#[test]
fn documents_have_the_words_of_the_field() {
    let more = ["CHANGELOG.md", "tools/cluster/README.md", "tools/python/README.md"];
    let mut complaints = Vec::new();
    for document in documents::all().into_iter().chain(more.map(Document::read)) {
        // Names of fields and what programs print stand between backticks.
        let prose = document.prose();
        let prose = prose.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let words = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        let hits = UNUSUAL.iter().filter(|unusual| words.contains(*unusual));
        let hits = hits.map(|word| (*word).to_owned());
        let hits = hits.chain(vague(&words).into_iter().map(|(_, word)| word));
        complaints.extend(hits.map(|word| format!("{}: {word}", document.path.display())));
    }
    assert_none(complaints);
}

#[test]
fn help_has_the_words_of_the_field() {
    let mut complaints = Vec::new();
    let commands = documents::help_rows("Commands:").into_iter().map(|(name, _)| name);
    for command in std::iter::once(String::new()).chain(commands) {
        let words = [command.as_str(), "--help"];
        let help = documents::printed(&words[usize::from(command.is_empty())..]);
        assert!(help.contains("--"), "{command}: {help}");
        let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let unusual = UNUSUAL.iter().chain(&UNUSUAL_IN_HELP).filter(|word| text.contains(**word));
        let hits = unusual.map(|word| (*word).to_owned());
        let hits = hits.chain(vague(&text).into_iter().map(|(_, word)| word));
        complaints.extend(hits.map(|word| format!("{command} --help: {word}")));
    }
    assert_none(complaints);
}
