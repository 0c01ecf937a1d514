//! /proc and /sys, or a folder that replaces them.

use std::path::{Path, PathBuf};

use crate::doctor::parse;

/// The variable with a folder that replaces `/` for reading /proc and /sys: for tests.
const ROOT_VARIABLE: &str = "INRUSH_DOCTOR_ROOT";

/// The location of /proc and /sys.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn of_environment() -> Self {
        let root = std::env::var_os(ROOT_VARIABLE).filter(|root| !root.is_empty());
        Self { root: root.map_or_else(|| PathBuf::from("/"), PathBuf::from) }
    }

    /// The folder that replaces `/`.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file or folder below `/`.
    pub(super) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    pub(super) fn text(&self, below: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.path(below)).ok()
    }

    /// The first word of a file.
    pub(super) fn word(&self, below: impl AsRef<Path>) -> Option<String> {
        self.text(below)?.split_whitespace().next().map(str::to_owned)
    }

    pub(super) fn number(&self, below: impl AsRef<Path>) -> Option<u64> {
        parse::number(&self.text(below)?)
    }

    /// The names in a folder, sorted.
    pub(super) fn names(&self, below: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(below)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}
