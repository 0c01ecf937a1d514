//! JSON or YAML as one kind of tree, so that one reader serves both.
//!
//! YAML is that of version 1.2 with its core schema (sections 10.2 and 10.3 of the specification):
//! `yes` and `on` are text. A name that an object has twice is refused in both, where parsers
//! usually take the last.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::problem::Problem;
use crate::limits::{JOB_BYTES_MAX, JOB_DEPTH_MAX, JOB_VALUE_BYTES, JOB_VALUES_MAX};
use crate::text::shown::shortened;

/// Reads a text that is JSON if it begins with a brace or a bracket, and else YAML.
pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    if text.len() > JOB_BYTES_MAX {
        let what = format!("{} bytes, at most {JOB_BYTES_MAX} are read", text.len());
        return Err(Problem::new("", what));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        let strict = serde_json::from_str(text).map(|Strict(value)| value);
        return strict.map_err(|why| Problem::new("", not_json(&why)));
    }
    yaml(text).map_err(|what| Problem::new("", format!("not YAML: {what}")))
}

/// JSON whose objects have no name twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = from.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = from.next_entry::<String, Strict>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!(
                    "'{}' is given twice",
                    shortened(&name)
                )));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Why a text is not JSON. serde_json counts columns from 1, and has 0 for the start of a line.
pub(super) fn not_json(why: &serde_json::Error) -> String {
    let message = shortened(&why.to_string());
    match message.strip_suffix(" column 0") {
        Some(line) => format!("not JSON: {line} column 1"),
        None => format!("not JSON: {message}"),
    }
}

fn yaml(text: &str) -> Result<Value, String> {
    let mut tree = GrowingTree::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|why| at(why.marker(), &shortened(why.info())))?;
        tree.take(event).map_err(|what| at(&span.start, &what))?;
    }
    tree.root.ok_or_else(|| "it is empty".to_owned())
}

fn at(place: &Marker, what: &str) -> String {
    format!("{what} at line {} column {}", place.line(), place.col() + 1)
}

/// A list or an object that is not complete.
enum OpenValue {
    List(Vec<Value>),
    /// With the name whose value comes next.
    Object(Map<String, Value>, Option<String>),
}

/// A tree as it grows from events.
#[derive(Default)]
struct GrowingTree {
    root: Option<Value>,
    /// What is open, the outermost first, with its anchor, and how many values there were before.
    open: Vec<(OpenValue, usize, usize)>,
    /// What aliases may name, with how many values it has.
    anchors: HashMap<usize, (Value, usize)>,
    documents: usize,
    values: usize,
}

impl GrowingTree {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("a second document begins".to_owned());
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref())?;
                let before = self.values;
                self.count(1 + text.len() / JOB_VALUE_BYTES)?;
                self.complete(value, anchor, before)
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(OpenValue::List(Vec::new()), anchor, tag.as_deref(), "seq")
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(OpenValue::Object(Map::new(), None), anchor, tag.as_deref(), "map")
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (open, anchor, before) = self.open.pop().expect("ends match their starts");
                let value = match open {
                    OpenValue::List(list) => Value::Array(list),
                    OpenValue::Object(object, _) => Value::Object(object),
                };
                self.complete(value, anchor, before)
            }
            Event::Alias(anchor) => {
                let Some((value, values)) = self.anchors.get(&anchor) else {
                    return Err("an alias of what is not complete".to_owned());
                };
                let (values, before) = (*values, self.values);
                // Counted before it is copied.
                let value =
                    if before + values > JOB_VALUES_MAX { Value::Null } else { value.clone() };
                self.count(values)?;
                self.complete(value, 0, before)
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn count(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        if self.values > JOB_VALUES_MAX {
            return Err(format!("more than {JOB_VALUES_MAX} values"));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        open: OpenValue,
        anchor: usize,
        tag: Option<&Tag>,
        kind: &str,
    ) -> Result<(), String> {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema() || tag.suffix != kind) {
            return Err(unknown(tag));
        }
        if self.open.len() == JOB_DEPTH_MAX {
            return Err(format!("nested deeper than {JOB_DEPTH_MAX}"));
        }
        let before = self.values;
        self.count(1)?;
        self.open.push((open, anchor, before));
        Ok(())
    }

    /// Puts a complete value where it belongs.
    fn complete(&mut self, value: Value, anchor: usize, before: usize) -> Result<(), String> {
        if anchor != 0 {
            let values = self.values - before;
            // The copy that aliases are made from.
            self.count(values)?;
            self.anchors.insert(anchor, (value.clone(), values));
        }
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some((OpenValue::List(list), ..)) => list.push(value),
            Some((OpenValue::Object(object, name), ..)) => match name.take() {
                Some(name) => drop(object.insert(name, value)),
                None => {
                    // As in JSON: `1: a` names "1".
                    let given = match value {
                        Value::String(text) => text,
                        Value::Number(number) => number.to_string(),
                        Value::Bool(value) => value.to_string(),
                        _ => return Err("a name that is no text".to_owned()),
                    };
                    if object.contains_key(&given) {
                        return Err(format!("'{}' is given twice", shortened(&given)));
                    }
                    *name = Some(given);
                }
            },
        }
        Ok(())
    }
}

fn unknown(tag: &Tag) -> String {
    format!("the tag {} has no meaning here", shortened(&tag.to_string()))
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let as_text = || Ok(Value::from(text));
    match tag {
        None if style == ScalarStyle::Plain => Ok(plain(text)),
        None => as_text(),
        // `!` alone: a text, whatever it looks like.
        Some(tag) if matches!((&*tag.handle, &*tag.suffix), ("", "!") | ("!", "")) => as_text(),
        Some(tag) if tag.is_yaml_core_schema() => {
            let value = plain(text);
            let fits = match tag.suffix.as_str() {
                "str" => return as_text(),
                "null" => value.is_null(),
                "bool" => value.is_boolean(),
                "int" => value.is_i64() || value.is_u64(),
                "float" => value.is_number(),
                _ => return Err(unknown(tag)),
            };
            if fits {
                Ok(value)
            } else {
                Err(format!("'{}' is no {}", shortened(text), tag.suffix))
            }
        }
        Some(tag) => Err(unknown(tag)),
    }
}

/// What a scalar without quotes means (YAML 1.2.2, section 10.3.2).
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    if digits(unsigned, 10) {
        let text = text.strip_prefix('+').unwrap_or(text);
        let whole =
            text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
        if let Ok(whole) = whole {
            return whole;
        }
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(rest) = text.strip_prefix(prefix).filter(|rest| digits(rest, radix)) {
            return u64::from_str_radix(rest, radix).map_or_else(|_| text.into(), Value::from);
        }
    }
    let is_float = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.bytes().all(|c| c.is_ascii_digit() || b".eE+-".contains(&c));
    let number = text.parse().ok().filter(|_| is_float).and_then(Number::from_f64);
    number.map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(text: &str) -> String {
        parse(text).expect_err("a problem").to_string()
    }

    #[test]
    fn json_and_yaml_are_one_tree() {
        let expected = json!({
            "A": [{"B": "x y", "C": null}, {"B": "2"}],
            "D": {"E": 7, "F": -1.5, "G": true, "H": "yes", "I": "two\nlines\n"},
        });
        assert_eq!(parse(&expected.to_string()), Ok(expected.clone()));
        let yaml = "# a job\nA:\n  - B: x y\n    C: ~\n  - {B: '2'}\nD:\n  E: 7\n  F: -1.5\n  \
                    G: true\n  H: yes\n  I: |\n    two\n    lines\n";
        assert_eq!(parse(yaml), Ok(expected.clone()));
        assert_eq!(parse(&format!("\u{feff}---\r\n{yaml}...\n")), Ok(expected));
    }

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        let check = |text: &str, expected: Value| {
            assert_eq!(parse(&format!("a: {text}\n")), Ok(json!({"a": expected})), "{text}");
        };
        check("NULL", json!(null));
        check("", json!(null));
        check("False", json!(false));
        check("no", json!("no"));
        check("+12", json!(12));
        check("-0", json!(0));
        check("18446744073709551615", json!(u64::MAX));
        check("18446744073709551616", json!(18_446_744_073_709_551_616.0));
        check("0x1F", json!(31));
        check("0o17", json!(15));
        check("017", json!(17));
        check("1e3", json!(1000.0));
        check(".5", json!(0.5));
        check("1.", json!(1.0));
        check(".inf", json!(".inf"));
        check("inf", json!("inf"));
        check("1.2.3", json!("1.2.3"));
        check("2026-11-22", json!("2026-11-22"));
        check("'12'", json!("12"));
        check("!!str 12", json!("12"));
        check("! 12", json!("12"));
        check("!!int '12'", json!(12));
        check("!!map {b: 1}", json!({"b": 1}));
        check("s3://b/k", json!("s3://b/k"));
    }

    #[test]
    fn anchors_repeat_what_they_name() {
        let text = "a: &x {k: [1, 2]}\nb: *x\nc: [*x, &y v, *y]\n";
        let object = json!({"k": [1, 2]});
        assert_eq!(parse(text), Ok(json!({"a": object, "b": object, "c": [object, "v", "v"]})));
    }

    #[test]
    fn what_cannot_be_read_has_its_place() {
        let check = |text: &str, expected: &str| assert_eq!(problem(text), expected, "{text}");
        check("{\"a\": 1,\n\"a\": 2}", "not JSON: 'a' is given twice at line 2 column 7");
        check("{\"a\": 1", "not JSON: EOF while parsing an object at line 1 column 7");
        check("{\"a\": 1,\n", "not JSON: EOF while parsing a value at line 2 column 1");
        check("a: 1\nb: 2\na: 3\n", "not YAML: 'a' is given twice at line 3 column 1");
        check("a: 1\n---\nb: 2\n", "not YAML: a second document begins at line 2 column 1");
        check("? [a]\n: 1\n", "not YAML: a name that is no text at line 1 column 5");
        check("a: !Ref b\n", "not YAML: the tag !Ref has no meaning here at line 1 column 4");
        check("a: !!int x\n", "not YAML: 'x' is no int at line 1 column 4");
        check("# nothing\n", "not YAML: it is empty");
        assert!(problem("a: [1\nb: 2\n").contains(" at line 2 column "));
        assert!(problem("a: &x [*x]\n").contains("alias"));
    }

    #[test]
    fn every_bound_holds() {
        let long = format!("\"{}\"", "x".repeat(JOB_BYTES_MAX));
        assert_eq!(
            problem(&long),
            format!("{} bytes, at most {JOB_BYTES_MAX} are read", long.len())
        );
        let deep = |depth: usize| format!("- {}1{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(parse(&deep(JOB_DEPTH_MAX)).is_ok());
        assert!(problem(&deep(JOB_DEPTH_MAX + 1)).contains("nested deeper than 64"));
        assert!(problem(&("[".repeat(500) + &"]".repeat(500))).contains("recursion limit"));
        let repeated =
            format!("a: &a {}\nb: [{}]\n", "x".repeat(60_000), vec!["*a"; 100].join(", "));
        assert!(problem(&repeated).contains("more than"), "long texts count");
        // A copy for each of sixty anchors, one within the other.
        let anchors: String = (0..60).map(|at| format!("&a{at} [")).collect();
        let nested = format!("a: {anchors}{}{}\n", "1, ".repeat(2000), "]".repeat(60));
        assert!(problem(&nested).contains("more than"), "anchors count");
        // Ten to the ninth values from a few lines.
        let mut laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
        for level in 1..9 {
            let alias = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs += &format!("a{level}: &a{level} [{alias}]\n");
        }
        let message = problem(&laughs);
        let ours = format!("more than {JOB_VALUES_MAX} values");
        assert!(message.contains(&ours) || message.contains("alias"), "{message}");
    }
}
