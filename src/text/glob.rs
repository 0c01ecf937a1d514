//! Glob patterns, matched by characters.
//!
//! The crate globset parses them, but its `?` and `[...]` match bytes, and so parts of non-ASCII
//! characters. Patterns with these are compiled from the same expressions in Unicode mode.

use globset::{Error, GlobBuilder};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

/// Patterns per regular expression: the memory for matching grows with their number.
const TOGETHER_MAX: usize = 64;
/// Memory of a compiled expression, in bytes.
const COMPILED_BYTES_MAX: usize = 8 << 20;
/// Memory of its lazy DFA cache, in bytes.
const LEARNT_BYTES_MAX: usize = 2 << 20;

/// One parsed pattern.
#[derive(Debug, Clone)]
pub struct Glob {
    glob: globset::Glob,
    is_by_character: bool,
}

impl Glob {
    /// Parses a pattern. `*`, `?` and `[!...]` do not match a slash; a backslash escapes the next
    /// character.
    ///
    /// # Errors
    /// If it is not a pattern.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let glob =
            GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build()?;
        Ok(Self { glob, is_by_character: pattern.contains(['?', '[']) })
    }
}

/// A set of numbered patterns.
#[derive(Debug, Clone, Default)]
pub struct GlobSet {
    by_byte: globset::GlobSet,
    /// The number of each pattern of `by_byte`.
    byte_numbers: Vec<usize>,
    /// [`TOGETHER_MAX`] patterns each.
    by_character: Vec<Regex>,
    /// The number of each pattern of `by_character`.
    character_numbers: Vec<usize>,
}

impl GlobSet {
    /// Compiles patterns; their numbers are their indexes.
    ///
    /// # Errors
    /// If they are too large together.
    pub fn new(globs: Vec<Glob>) -> Result<Self, String> {
        let mut bytes = globset::GlobSetBuilder::new();
        let (mut byte_numbers, mut character_numbers) = (Vec::new(), Vec::new());
        let mut expressions = Vec::new();
        for (number, Glob { glob, is_by_character }) in globs.into_iter().enumerate() {
            if is_by_character {
                expressions.push(in_unicode(glob.regex()));
                character_numbers.push(number);
            } else {
                bytes.add(glob);
                byte_numbers.push(number);
            }
        }
        let by_byte = bytes.build().map_err(|error| error.kind().to_string())?;
        let by_character =
            expressions.chunks(TOGETHER_MAX).map(compiled).collect::<Result<_, _>>()?;
        Ok(Self { by_byte, byte_numbers, by_character, character_numbers })
    }

    /// The largest number among the patterns that match this text.
    #[must_use]
    pub fn last_match(&self, text: &str) -> Option<usize> {
        let by_byte = self.by_byte.matches(text).into_iter().max();
        let by_byte = by_byte.map(|place| self.byte_numbers[place]);
        let numbers = self.character_numbers.chunks(TOGETHER_MAX);
        let by_character =
            self.by_character.iter().zip(numbers).rev().find_map(|(regex, numbers)| {
                let mut found = PatternSet::new(regex.pattern_len());
                regex.which_overlapping_matches(&Input::new(text), &mut found);
                found.iter().map(|pattern| numbers[pattern.as_usize()]).max()
            });
        by_byte.max(by_character)
    }
}

fn compiled(expressions: &[String]) -> Result<Regex, String> {
    let config = Regex::config()
        .match_kind(MatchKind::All)
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .which_captures(WhichCaptures::None)
        .hybrid_cache_capacity(LEARNT_BYTES_MAX);
    Regex::builder()
        .syntax(syntax::Config::new().dot_matches_new_line(true))
        .configure(config)
        .build_many(expressions)
        .map_err(|error| match error.size_limit() {
            Some(_) => "the patterns are too large".to_owned(),
            None => error.to_string(),
        })
}

/// Converts a byte expression of globset to characters: non-ASCII characters, which globset writes
/// byte by byte (`\xc3\xa9`), become themselves; and `[!...]` excludes the slash.
fn in_unicode(of_bytes: &str) -> String {
    let of_bytes = of_bytes.strip_prefix("(?-u)").unwrap_or(of_bytes);
    let mut text = Vec::with_capacity(of_bytes.len());
    let mut rest = of_bytes.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let byte = str::from_utf8(&digits).ok().map(|hex| u8::from_str_radix(hex, 16));
                let Some(Ok(byte)) = byte else { unreachable!("globset writes two digits") };
                text.push(byte);
                rest = behind;
            }
            // Any escaped character, including a backslash.
            (b'\\', [escaped, behind @ ..]) => {
                text.extend([b'\\', *escaped]);
                rest = behind;
            }
            // A negated set does not match a slash, like the other wildcards.
            (b'[', [b'^', behind @ ..]) => {
                text.extend(b"[^/");
                rest = behind;
            }
            _ => text.push(*first),
        }
    }
    String::from_utf8(text).expect("all bytes of each character")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: bool) {
        let set = GlobSet::new(vec![Glob::new(pattern).expect("a pattern")]).expect("small");
        assert_eq!(set.last_match(text).is_some(), expected, "{pattern} {text}");
    }

    #[test]
    fn a_wildcard_is_one_character() {
        for (pattern, text, expected) in [
            ("?1.txt", "é1.txt", true),
            ("?1.txt", "e1.txt", true),
            ("??1.txt", "é1.txt", false),
            ("??.txt", "日本.txt", true),
            ("??????.txt", "日本.txt", false),
            ("[é]*", "ô9.txt", false),
            ("[é]*", "é9.txt", true),
            ("[!e]1", "é1", true),
            ("[!é]1", "é1", false),
            ("[!é]1", "ô1", true),
            ("[à-ü]1", "é1", true),
            ("[à-ü]1", "z1", false),
            ("é?", "éé", true),
            ("?", "/", false),
            ("[!a]", "/", false),
            ("**/?br.txt", "a/übr.txt", true),
            ("{?,日本}.txt", "日本.txt", true),
            ("?\n*", "a\nb", true),
            (r"?\\x41", r"a\x41", true),
            (r"?\\xc3", r"a\xc3", true),
            ("?.|(+$^", "a.|(+$^", true),
            ("[.-]?", "-a", true),
            ("*é*", "aéb", true),
        ] {
            check(pattern, text, expected);
        }
    }

    #[test]
    fn the_last_of_all_that_match_counts() {
        let patterns = ["*.txt", "?.txt", "a*", "[a-c]*", "zz"];
        let globs = patterns.map(|pattern| Glob::new(pattern).expect("a pattern"));
        let set = GlobSet::new(globs.to_vec()).expect("small");
        for (text, last) in [
            ("x1.txt", Some(0)),
            ("x.txt", Some(1)),
            ("a.txt", Some(3)),
            ("c", Some(3)),
            ("zz", Some(4)),
            ("y", None),
        ] {
            assert_eq!(set.last_match(text), last, "{text}");
        }
        assert_eq!(GlobSet::default().last_match("a"), None);
    }

    #[test]
    fn thousands_of_patterns_have_room() {
        let globs = (0..20_000).map(|n| Glob::new(&format!("**/{n}?.[ch]")).expect("a pattern"));
        let set = GlobSet::new(globs.collect()).expect("not too large");
        assert_eq!(set.last_match("a/b/19999ü.c"), Some(19_999));
        assert_eq!(set.last_match("a/b/19999.c"), Some(1_999), "its last digit is the character");
    }
}
