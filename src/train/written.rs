//! What runs wrote below a base folder, so that a later one knows it again: its own
//! `resourceconfig.json` does not say which host this is, and the lists of channels that are gone
//! may be removed. Kept in a file beside the others, [`super::files::WRITTEN`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What runs wrote, by its text or by what a file system says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Written {
    /// Texts of `resourceconfig.json`, of which the file has one, unless somebody else wrote it.
    #[serde(default)]
    resource_configs: Vec<String>,
    /// Names of lists of objects, and the files that had them.
    #[serde(default)]
    lists: BTreeMap<String, FileState>,
}

/// Distinguishes a file from a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its length.
    pub bytes: u64,
    /// When it was last written to: seconds since the Epoch.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: i64,
}

impl Written {
    /// What an earlier run has noted; nothing where that cannot be read.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// True where a run wrote this text of `resourceconfig.json`.
    #[must_use]
    pub fn has_resource_config(&self, text: &str) -> bool {
        self.resource_configs.iter().any(|own| own == text)
    }

    /// A run will write `text` in the place of `current`. It is noted before: a run that is killed
    /// in between leaves one of the two.
    pub fn note_resource_config(&mut self, current: Option<&str>, text: &str) {
        self.resource_configs.retain(|own| current == Some(own) && own != text);
        self.resource_configs.push(text.to_owned());
    }

    /// Takes the lists out that are not among these names.
    pub fn take_other_lists(&mut self, names: &BTreeSet<String>) -> BTreeMap<String, FileState> {
        let all = std::mem::take(&mut self.lists);
        let (kept, others) = all.into_iter().partition(|(name, _)| names.contains(name));
        self.lists = kept;
        others
    }

    /// A list has been written.
    pub fn note_list(&mut self, name: String, state: FileState) {
        self.lists.insert(name, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: FileState = FileState { bytes: 3, seconds: -1, nanoseconds: 999_999_999 };

    #[test]
    fn what_was_written_is_known_again() {
        let mut written = Written::default();
        written.note_resource_config(None, "{\"a\": 1}");
        written.note_list("t-manifest".to_owned(), STATE);
        let read = Written::parse(written.text().as_bytes());
        assert_eq!(read, written);
        assert!(read.has_resource_config("{\"a\": 1}") && !read.has_resource_config("{\"a\":1}"));
        for text in ["", "[]", "{\"lists\": 7}"] {
            assert_eq!(Written::parse(text.as_bytes()), Written::default(), "{text}");
        }
        // Fields of other versions are none of ours.
        assert_eq!(Written::parse(b"{\"more\": 7}"), Written::default());
    }

    #[test]
    fn a_run_that_is_killed_leaves_a_text_that_is_known() {
        let mut written = Written::default();
        written.note_resource_config(None, "first");
        written.note_resource_config(Some("first"), "second");
        assert!(written.has_resource_config("first") && written.has_resource_config("second"));
        // The third finds the second, and the first is of nobody any more.
        written.note_resource_config(Some("second"), "third");
        assert!(!written.has_resource_config("first") && written.has_resource_config("second"));
        written.note_resource_config(Some("third"), "third");
        assert_eq!(written.resource_configs, ["third"]);
        // In the place of somebody else's.
        written.note_resource_config(Some("other"), "fourth");
        assert_eq!(written.resource_configs, ["fourth"]);
    }

    #[test]
    fn lists_of_other_channels_are_taken_out() {
        let mut written = Written::default();
        for name in ["a-manifest", "b-manifest"] {
            written.note_list(name.to_owned(), STATE);
        }
        let others = written.take_other_lists(&BTreeSet::from(["b-manifest".to_owned()]));
        assert_eq!(others, BTreeMap::from([("a-manifest".to_owned(), STATE)]));
        assert_eq!(written.take_other_lists(&BTreeSet::new()).len(), 1);
        assert_eq!(written, Written::default());
    }
}
