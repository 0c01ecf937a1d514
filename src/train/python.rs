//! Values as Python reads them from JSON and prints them: the variables of a training container
//! are made by a program in Python, and scripts parse what it prints.
//!
//! As `json.loads`, `json.dumps(sort_keys=True, separators=(",", ":"))`, `str` and `repr` of
//! CPython 3. What differs: an integer of more than 64 bits that is inside of a list or an object
//! is read as a float, `NaN` and `Infinity` are read where they are the whole value, half of a
//! surrogate pair makes the value a text, and `repr` escapes no characters beyond ASCII.

use std::fmt::Write as _;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Python {
    None,
    Bool(bool),
    /// As an integer is printed by all functions.
    Integer(String),
    Float(f64),
    Text(String),
    List(Vec<Python>),
    /// In the order of the text, which `repr` keeps.
    Dict(Vec<(String, Python)>),
}

impl Python {
    /// The value that a JSON text has; `None` where it is no JSON.
    pub(super) fn loads(text: &str) -> Option<Self> {
        let plain = text.trim_matches([' ', '\t', '\n', '\r']);
        match plain {
            "NaN" => return Some(Self::Float(f64::NAN)),
            "Infinity" => return Some(Self::Float(f64::INFINITY)),
            "-Infinity" => return Some(Self::Float(f64::NEG_INFINITY)),
            "-0" => return Some(Self::Integer("0".to_owned())),
            _ => {}
        }
        let digits = plain.strip_prefix('-').unwrap_or(plain);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_whole && (digits == "0" || !digits.starts_with('0')) {
            return Some(Self::Integer(plain.to_owned()));
        }
        serde_json::from_str(plain).ok().or_else(|| too_large(plain))
    }

    /// What `json.dumps` prints.
    pub(super) fn dumps(&self) -> String {
        let mut out = String::new();
        self.dump(&mut out);
        out
    }

    fn dump(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(digits) => out.push_str(digits),
            Self::Float(value) if value.is_nan() => out.push_str("NaN"),
            Self::Float(value) if value.is_infinite() => {
                out.push_str(if *value > 0.0 { "Infinity" } else { "-Infinity" });
            }
            Self::Float(value) => out.push_str(&float(*value)),
            Self::Text(text) => dump_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    item.dump(out);
                }
                out.push(']');
            }
            Self::Dict(pairs) => {
                let mut pairs: Vec<_> = pairs.iter().collect();
                pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
                out.push('{');
                for (at, (name, value)) in pairs.into_iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    dump_text(name, out);
                    out.push(':');
                    value.dump(out);
                }
                out.push('}');
            }
        }
    }

    /// What `str` returns.
    pub(super) fn str(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            _ => self.repr(),
        }
    }

    fn repr(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Integer(digits) => digits.clone(),
            Self::Float(value) if value.is_nan() => "nan".to_owned(),
            Self::Float(value) if value.is_infinite() => {
                if *value > 0.0 { "inf" } else { "-inf" }.to_owned()
            }
            Self::Float(value) => float(*value),
            Self::Text(text) => repr_text(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::repr).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Dict(pairs) => {
                let pair = |(name, value): &(String, Self)| {
                    format!("{}: {}", repr_text(name), value.repr())
                };
                let pairs: Vec<String> = pairs.iter().map(pair).collect();
                format!("{{{}}}", pairs.join(", "))
            }
        }
    }

    /// Whether it counts as true.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(value) => *value,
            Self::Integer(digits) => digits != "0",
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Dict(pairs) => !pairs.is_empty(),
        }
    }
}

impl From<&Value> for Python {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::None,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => {
                let whole = number.is_i64() || number.is_u64();
                let float = number.as_f64().filter(|_| !whole);
                float.map_or_else(|| Self::Integer(number.to_string()), Self::Float)
            }
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(fields) => Self::Dict(
                fields.iter().map(|(name, value)| (name.clone(), value.into())).collect(),
            ),
        }
    }
}

/// A number that no float is large enough for: Python reads it as infinite.
fn too_large(text: &str) -> Option<Python> {
    let is_number = text.ends_with(|c: char| c.is_ascii_digit())
        && text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && text.bytes().all(|c| c.is_ascii_digit() || b".eE+-".contains(&c));
    let value = text.parse::<f64>().ok().filter(|value| is_number && value.is_infinite());
    value.map(Python::Float)
}

/// A finite float as `repr` prints it: the shortest digits that mean it, with an exponent below
/// 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let digits = mantissa.replace('.', "");
    if !(-4..16).contains(&exponent) {
        let sign_of = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{sign_of}{:02}", exponent.abs());
    }
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    };
    match digits.len().checked_sub(whole) {
        _ if whole == 0 => format!("{sign}0.{digits}"),
        None | Some(0) => format!("{sign}{digits}{}.0", "0".repeat(whole - digits.len())),
        Some(_) => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
    }
}

/// With `ensure_ascii`: what is no printable ASCII is escaped, beyond 16 bits as a surrogate pair.
fn dump_text(text: &str, out: &mut String) {
    out.push('"');
    for found in text.chars() {
        match found {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(found),
            _ => {
                for unit in found.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("a string takes all");
                }
            }
        }
    }
    out.push('"');
}

fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for found in text.chars() {
        match found {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                write!(out, "\\x{:02x}", u32::from(found)).expect("a string takes all");
            }
            _ if found == quote => out.extend(['\\', quote]),
            _ => out.push(found),
        }
    }
    out.push(quote);
    out
}

impl<'de> Deserialize<'de> for Python {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PythonVisitor)
    }
}

struct PythonVisitor;

impl<'de> Visitor<'de> for PythonVisitor {
    type Value = Python;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Python, E> {
        Ok(Python::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Python, E> {
        Ok(Python::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Python, E> {
        Ok(Python::Integer(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Python, E> {
        Ok(Python::Integer(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Python, E> {
        Ok(Python::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Python, E> {
        Ok(Python::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Python, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Python::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Python, A::Error> {
        let mut pairs: Vec<(String, Python)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        while let Some((name, value)) = from.next_entry::<String, Python>()? {
            // The last of a name, where the first was.
            match places.get(&name) {
                Some(&at) => {
                    let (_, old): &mut (String, Python) = &mut pairs[at];
                    *old = value;
                }
                None => {
                    places.insert(name.clone(), pairs.len());
                    pairs.push((name, value));
                }
            }
        }
        Ok(Python::Dict(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second is what `json.dumps` of CPython 3.11 prints for what `json.loads` reads from the
    /// first, the third is its `str`.
    #[test]
    fn values_are_read_and_printed_as_python_does() {
        let check = |text: &str, dumped: &str, shown: &str| {
            let value = Python::loads(text).expect("JSON");
            assert_eq!((value.dumps().as_str(), value.str().as_str()), (dumped, shown), "{text}");
        };
        check("5", "5", "5");
        check(" -0 ", "0", "0");
        check("-0.0", "-0.0", "-0.0");
        check("0.5", "0.5", "0.5");
        check("-12.5", "-12.5", "-12.5");
        check("0.0001", "0.0001", "0.0001");
        check("0.00012", "0.00012", "0.00012");
        check("0.00001", "1e-05", "1e-05");
        check("1.25e-7", "1.25e-07", "1.25e-07");
        check("100.0", "100.0", "100.0");
        check("1e15", "1000000000000000.0", "1000000000000000.0");
        check("1e16", "1e+16", "1e+16");
        check("123456789012345680.0", "1.2345678901234568e+17", "1.2345678901234568e+17");
        check("1.5E+300", "1.5e+300", "1.5e+300");
        check(
            "123456789012345678901234567890",
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        );
        check("NaN", "NaN", "nan");
        check("\t-Infinity\n", "-Infinity", "-inf");
        check("-1e999", "-Infinity", "-inf");
        check("null", "null", "None");
        check("true", "true", "True");
        check(
            r#""a \u00e4\u007f/\"q\" \ud83d\ude00""#,
            r#""a \u00e4\u007f/\"q\" \ud83d\ude00""#,
            "a ä\u{7f}/\"q\" 😀",
        );
        check(
            r#"[1, 2.50, "x'y", null, {"b": 1e16, "a": [true, "\n\u0001\\"]}]"#,
            r#"[1,2.5,"x'y",null,{"a":[true,"\n\u0001\\"],"b":1e+16}]"#,
            r#"[1, 2.5, "x'y", None, {'b': 1e+16, 'a': [True, '\n\x01\\']}]"#,
        );
        check(
            r#"{"a": 1, "b": "x", "a": "'\""}"#,
            r#"{"a":"'\"","b":"x"}"#,
            r#"{'a': '\'"', 'b': 'x'}"#,
        );
        for text in ["", "hello", "01", "- 1", "-", "1.", "+1", "nan", "'a'", "1e999x", "{"] {
            assert_eq!(Python::loads(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_empty_is_false() {
        for text in ["null", "false", "0", "0.0", "\"\"", "[]", "{}"] {
            assert!(!Python::loads(text).expect("JSON").is_true(), "{text}");
        }
        for text in ["true", "-1", "0.5", "NaN", "\"0\"", "[0]", "{\"a\":0}"] {
            assert!(Python::loads(text).expect("JSON").is_true(), "{text}");
        }
    }
}
