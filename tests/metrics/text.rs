//! The text format of Prometheus, read strictly: every line is what the format allows, every sample
//! has its `HELP` and `TYPE` before it, and no name comes twice.

use std::collections::{BTreeMap, BTreeSet};

/// One scrape: types by names, and samples by names with their labels.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) types: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<String, f64>,
    pub(crate) labels: BTreeMap<String, BTreeMap<String, String>>,
}

impl Scrape {
    /// Reads a text, or fails with the line that is wrong.
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has an end: {text:?}");
        let (mut scrape, mut helped) = (Self::default(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and its help");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                assert!(helped.insert(name.to_owned()), "twice: {line}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and its type");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                assert!(helped.contains(name), "{line}: no help");
                let before = scrape.types.insert(name.to_owned(), kind.to_owned());
                assert!(before.is_none(), "twice: {line}");
                continue;
            }
            assert!(!line.starts_with('#'), "{line}");
            scrape.sample(line);
        }
        scrape
    }

    fn sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').expect("an end of the labels")),
            None => (series, ""),
        };
        assert!(is_name(name) && self.types.contains_key(name), "{line}");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && value >= 0.0, "{line}");
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (key, text) = label.split_once('=').expect("a label's value");
            let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            let text = text.expect("quotes").to_owned();
            assert!(is_name(key) && !text.contains(['"', '\\']), "{line}");
            self.labels.entry(name.to_owned()).or_default().insert(key.to_owned(), text);
        }
        assert!(self.samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
    }

    /// The value of this name.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> f64 {
        *self.samples.get(name).unwrap_or_else(|| panic!("no {name}"))
    }
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
