//! The fields of a description: each is read by its name, and what is wrong with it is said with
//! the path that leads to it.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::problem::{Problem, Problems};
use super::{TrainingInput, document};
use crate::text::shown::shortened;

/// Names that are so alike are thought to be one that was mistyped.
const NEAR_EDITS_MAX: usize = 2;

/// How the values of an enumeration may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As the API has them, or all in capitals, as the files of the training agent do: `S3Prefix`
    /// or `S3_PREFIX`.
    Api,
    /// However, as on a command line.
    Any,
}

/// Reads a text whose outermost value is an object, which `read` reads.
///
/// # Errors
/// All that is wrong with it.
pub(super) fn read_description(
    text: &str,
    read: impl FnOnce(&Object<'_>, &mut Problems) -> TrainingInput,
) -> Result<TrainingInput, Vec<Problem>> {
    let value = document::parse(text).map_err(|problem| vec![problem])?;
    let mut problems = Problems::default();
    let input = Object::of(&value, String::new(), &mut problems);
    let input = input.map(|object| read(&object, &mut problems)).unwrap_or_default();
    problems.settle(input)
}

/// Names as one of them is expected: `A, B or C`.
fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.join(", "),
    }
}

/// The value of this name.
pub(super) fn choice<T: Copy>(
    text: &str,
    all: &[(&str, T)],
    spelling: Spelling,
) -> Result<T, String> {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    let is_loose = spelling == Spelling::Any || !text.contains(|c: char| c.is_ascii_lowercase());
    let is_it = |name: &str| name == text || (is_loose && plain(name) == plain(text));
    let found = all.iter().find(|(name, _)| is_it(name));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("invalid value '{}': expected {}", shortened(text), one_of(&names))
    })
}

/// An object of a description, and the path that leads to it.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The value as an object.
    pub(super) fn of(value: &'a Value, path: String, problems: &mut Problems) -> Option<Self> {
        if let Value::Object(fields) = value {
            return Some(Self { path, fields });
        }
        problems.add(path, expected("an object", value));
        None
    }

    /// The path of a field.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value of a field; `null` is as good as none.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Every field with a value, in the order of names.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.fields.iter().filter(|(_, value)| !value.is_null())
    }

    /// Refuses fields that are neither read nor known to be without effect.
    pub(super) fn refuse_unknown(&self, known: &[&str], problems: &mut Problems) {
        for (name, _) in self.values().filter(|(name, _)| !known.contains(&name.as_str())) {
            let what = near(name, known).unwrap_or_else(|| {
                format!("unknown field; it may change the data. Known are {}", known.join(", "))
            });
            problems.add(self.at(&shortened(name)), what);
        }
    }

    /// Refuses fields that are nearly the same as one that is read; ignores all others.
    pub(super) fn refuse_mistyped(&self, read: &[&str], problems: &mut Problems) {
        for (name, _) in self.values().filter(|(name, _)| !read.contains(&name.as_str())) {
            if let Some(what) = near(name, read) {
                problems.add(self.at(&shortened(name)), what);
            }
        }
    }

    /// A field that must be there.
    pub(super) fn required(&self, name: &str, problems: &mut Problems) {
        if self.value(name).is_none() {
            problems.add(self.at(name), "missing");
        }
    }

    pub(super) fn object(&self, name: &str, problems: &mut Problems) -> Option<Self> {
        self.value(name).and_then(|value| Self::of(value, self.at(name), problems))
    }

    /// A text whose number of characters is in the range.
    pub(super) fn text(
        &self,
        name: &str,
        chars: &RangeInclusive<usize>,
        problems: &mut Problems,
    ) -> Option<&'a str> {
        self.value(name).and_then(|value| text(value, &self.at(name), chars, problems))
    }

    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        all: &[(&str, T)],
        spelling: Spelling,
        problems: &mut Problems,
    ) -> Option<T> {
        let text = self.text(name, &(0..=usize::MAX), problems)?;
        choice(text, all, spelling).map_err(|what| problems.add(self.at(name), what)).ok()
    }

    /// A list whose length is in the range, each item with its path.
    pub(super) fn list(
        &self,
        name: &str,
        length: &RangeInclusive<usize>,
        problems: &mut Problems,
    ) -> Vec<(String, &'a Value)> {
        let (path, Some(value)) = (self.at(name), self.value(name)) else { return Vec::new() };
        let Value::Array(items) = value else {
            problems.add(path, expected("a list", value));
            return Vec::new();
        };
        if !length.contains(&items.len()) {
            let (least, most) = (length.start(), length.end());
            problems.add(&*path, format!("{} items; {least} to {most} are allowed", items.len()));
        }
        let item = |(at, value)| (format!("{path}[{at}]"), value);
        items.iter().take(*length.end()).enumerate().map(item).collect()
    }

    pub(super) fn boolean(&self, name: &str, problems: &mut Problems) -> Option<bool> {
        let value = self.value(name)?;
        if value.as_bool().is_none() {
            problems.add(self.at(name), expected("true or false", value));
        }
        value.as_bool()
    }

    /// A whole number in the range.
    pub(super) fn whole(
        &self,
        name: &str,
        range: &RangeInclusive<i64>,
        problems: &mut Problems,
    ) -> Option<i64> {
        let value = self.value(name)?;
        let whole = value.as_i64().filter(|whole| range.contains(whole));
        if whole.is_none() {
            let is_quoted = |text: &str| text.trim().parse::<i64>().is_ok();
            problems.add(
                self.at(name),
                match value {
                    Value::String(text) if is_quoted(text) => format!(
                        "expected a number, but it is the string '{}': remove the quotes",
                        shortened(text)
                    ),
                    _ => expected(&format!("{} to {}", range.start(), range.end()), value),
                },
            );
        }
        whole
    }
}

/// The value as a text whose number of characters is in the range.
pub(super) fn text<'a>(
    value: &'a Value,
    path: &str,
    chars: &RangeInclusive<usize>,
    problems: &mut Problems,
) -> Option<&'a str> {
    let Some(text) = value.as_str() else {
        problems.add(path, expected("a string", value));
        return None;
    };
    let length = text.chars().count();
    if !chars.contains(&length) {
        let (least, most) = (chars.start(), chars.end());
        problems.add(path, format!("{length} characters; {least} to {most} are allowed"));
        return None;
    }
    Some(text)
}

fn expected(what: &str, value: &Value) -> String {
    match value {
        Value::Array(_) => format!("expected {what}, but it is a list"),
        Value::Object(_) => format!("expected {what}, but it is an object"),
        Value::String(text) => format!("expected {what}, but it is '{}'", shortened(text)),
        Value::Number(_) | Value::Bool(_) if what == "a string" => {
            format!("expected a string, but it is {value}: put it between quotes")
        }
        _ => format!("expected {what}, but it is {value}"),
    }
}

/// Which name was probably meant.
fn near(name: &str, known: &[&str]) -> Option<String> {
    let edits = |other: &str| {
        strsim::damerau_levenshtein(&name.to_ascii_lowercase(), &other.to_ascii_lowercase())
    };
    // The distance takes time by the product of both lengths.
    let known = known.iter().filter(|other| name.len().abs_diff(other.len()) <= NEAR_EDITS_MAX);
    let (edits, meant) = known.map(|other| (edits(other), other)).min()?;
    (edits <= NEAR_EDITS_MAX).then(|| format!("unknown field; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_says_what_is_wrong_with_it() {
        let value = json!({
            "Text": 7, "Long": "äöü", "Null": null, "Choice": "s3prefix", "List": [1, 2, 3],
            "Flag": "true", "Whole": 1.5, "Far": 12, "Naem": 1, "Other": 1,
            "Quoted": "2", "Word": "x",
        });
        let mut problems = Problems::default();
        let object = Object::of(&value, "A[1]".to_owned(), &mut problems).expect("an object");
        let all = [("S3Prefix", 1), ("ManifestFile", 2)];
        assert_eq!(object.text("Text", &(0..=9), &mut problems), None);
        assert_eq!(object.text("Long", &(4..=9), &mut problems), None);
        assert_eq!(object.text("Long", &(3..=3), &mut problems), Some("äöü"));
        assert_eq!(object.text("Null", &(1..=2), &mut problems), None);
        assert_eq!(object.choice("Choice", &all, Spelling::Api, &mut problems), None);
        assert_eq!(object.choice("Choice", &all, Spelling::Any, &mut problems), Some(1));
        assert_eq!(object.list("List", &(1..=2), &mut problems).len(), 2);
        assert_eq!(object.boolean("Flag", &mut problems), None);
        assert_eq!(object.whole("Whole", &(0..=9), &mut problems), None);
        assert_eq!(object.whole("Far", &(0..=9), &mut problems), None);
        assert_eq!(object.whole("Quoted", &(0..=9), &mut problems), None);
        assert_eq!(object.whole("Word", &(0..=9), &mut problems), None);
        object.required("Null", &mut problems);
        assert!(object.object("Whole", &mut problems).is_none());
        object.refuse_mistyped(&["Name"], &mut problems);
        let problems = problems.settle(()).expect_err("problems");
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "A[1].Text: expected a string, but it is 7: put it between quotes",
            "A[1].Long: 3 characters; 4 to 9 are allowed",
            "A[1].Choice: invalid value 's3prefix': expected S3Prefix or ManifestFile",
            "A[1].List: 3 items; 1 to 2 are allowed",
            "A[1].Flag: expected true or false, but it is 'true'",
            "A[1].Whole: expected 0 to 9, but it is 1.5",
            "A[1].Far: expected 0 to 9, but it is 12",
            "A[1].Quoted: expected a number, but it is the string '2': remove the quotes",
            "A[1].Word: expected 0 to 9, but it is 'x'",
            "A[1].Null: missing",
            "A[1].Whole: expected an object, but it is 1.5",
            "A[1].Naem: unknown field; did you mean Name?",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn unknown_fields_are_named() {
        let value = json!({"S3Url": "a", "Name": "b", "Extra\n": {}, "Gone": null});
        let mut problems = Problems::default();
        let object = Object::of(&value, String::new(), &mut problems).expect("an object");
        object.refuse_unknown(&["Name", "S3Uri"], &mut problems);
        let problems = problems.settle(()).expect_err("problems");
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "Extra\\n: unknown field; it may change the data. Known are Name, S3Uri",
            "S3Url: unknown field; did you mean S3Uri?",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn enumerations_are_spelled_in_two_ways() {
        let all = [("S3Prefix", 1), ("FastFile", 2)];
        let api = |text| choice(text, &all, Spelling::Api);
        assert_eq!((api("S3Prefix"), api("S3_PREFIX"), api("FASTFILE")), (Ok(1), Ok(1), Ok(2)));
        assert_eq!(api("FAST_FILE"), Ok(2));
        let message = api("S3Prefx\n").expect_err("a problem");
        assert_eq!(message, "invalid value 'S3Prefx\\n': expected S3Prefix or FastFile");
        assert!(api("fastfile").is_err());
        assert_eq!(choice("fastfile", &all, Spelling::Any), Ok(2));
    }
}
