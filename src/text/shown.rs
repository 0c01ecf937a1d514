//! Text of the world on a screen: keys, paths and servers' words without what a terminal would obey
//! and without what would turn other text round.
//!
//! Whatever goes to people goes through here; JSON has the exact text, with JSON's own escapes.

/// How much of a name goes into a message, in characters.
const NAME_CHARS_MAX: usize = 300;

/// True for what is not written as it is: control characters, ends of lines, and what changes the
/// direction of the text around it (Unicode's Bidi_Control), so that a name looks like another.
fn is_escaped(found: char) -> bool {
    found.is_control()
        || matches!(
            found,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// The text with all of these escaped, as in `\u{1b}` and `\n`. Once more it stays as it is.
#[must_use]
pub fn shown(text: &str) -> String {
    // Nearly every name, and a listing has millions.
    if text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for found in text.chars() {
        match is_escaped(found) {
            true if found.is_control() => shown.extend(found.escape_debug()),
            true => shown.extend(found.escape_unicode()),
            false => shown.push(found),
        }
    }
    shown
}

/// The same of a name, which may be long: no more of it than helps.
#[must_use]
pub fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => shown(&name[..end]) + "…",
        None => shown(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let check = |text: &str, expected: &str| {
            assert_eq!(shown(text), expected);
            assert_eq!(shown(expected), expected, "once more");
        };
        check("a b/ü\u{1b}[2J\n\u{9b}", "a b/ü\\u{1b}[2J\\n\\u{9b}");
        check("\t\r\0\u{7f}", "\\t\\r\\0\\u{7f}");
        check("line\u{2028}paragraph\u{2029}", "line\\u{2028}paragraph\\u{2029}");
        check("'quotes\" \\ stay'", "'quotes\" \\ stay'");
        // An accent of its own, and what joins a family of emoji: text like any other.
        check("e\u{301} 👨\u{200d}👩", "e\u{301} 👨\u{200d}👩");
    }

    #[test]
    fn what_turns_text_round_is_escaped() {
        let mut all: Vec<char> = ['\u{61c}', '\u{200e}', '\u{200f}'].into();
        all.extend('\u{202a}'..='\u{202e}');
        all.extend('\u{2066}'..='\u{2069}');
        assert_eq!(all.len(), 12, "all that Unicode has");
        for found in all {
            let expected = format!("a\\u{{{:x}}}gpj.exe", u32::from(found));
            assert_eq!(shown(&format!("a{found}gpj.exe")), expected);
        }
    }

    #[test]
    fn long_names_are_cut() {
        let name = "\u{202e}".repeat(NAME_CHARS_MAX);
        assert_eq!(shortened(&name), "\\u{202e}".repeat(NAME_CHARS_MAX));
        let more = shortened(&format!("{name}x"));
        assert!(more.ends_with("\\u{202e}…") && more.chars().count() == NAME_CHARS_MAX * 8 + 1);
    }
}
