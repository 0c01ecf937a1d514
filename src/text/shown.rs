//! Makes untrusted text safe for a screen: keys, paths and servers' messages without terminal
//! control characters and without characters that change the direction of other text.
//!
//! Everything that is shown to people passes through here; JSON has the exact text, with JSON's own
//! escapes.

/// Most characters of a name in a message.
const NAME_CHARS_MAX: usize = 300;

/// True for characters that are escaped: control characters, line ends, and those that change the
/// direction of the text around them (Unicode's Bidi_Control), which make a name look like another.
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

/// Escapes these characters, as in `\u{1b}` and `\n`. Idempotent.
#[must_use]
pub fn shown(text: &str) -> String {
    // Fast path: nearly every name, and a listing has millions.
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

/// Like [`shown`], for a name that may be long: cut after `NAME_CHARS_MAX` characters.
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
        // A combining accent, and the joiner of an emoji sequence: ordinary text.
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
