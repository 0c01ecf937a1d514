//! Which files of a model's folder a loader of safetensors reads. Pure.
//!
//! Repositories of models often have the same weights twice: in an older format, or as one file
//! beside several. Loaders take the safetensors files, and of those the ones that an index
//! (`model.safetensors.index.json`) names, where there is one:
//! <https://huggingface.co/docs/safetensors/metadata_parsing>.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;

/// How the name of an index ends.
const INDEX_END: &str = ".safetensors.index.json";
/// How the name of a file in the format ends.
const SAFETENSORS_END: &str = ".safetensors";
/// How the names of weights in other formats end.
const OTHER_ENDS: [&str; 12] = [
    ".bin",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".pt",
    ".pth",
    ".tflite",
    ".bin.index.json",
];

/// The weights in a folder of a model, and their indexes.
#[derive(Debug, Default)]
pub(super) struct ModelFiles {
    /// Size in bytes of each file by its path below the source.
    files: BTreeMap<String, u64>,
    /// Paths of the indexes.
    indexes: Vec<String>,
}

/// What a loader does not read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Paths below the source.
    pub(super) paths: BTreeSet<String>,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// The part of an index that names files.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl ModelFiles {
    /// Adds an object of the listing, if it has weights or is an index; true for an index, whose
    /// contents [`Self::left_out`] needs.
    pub(super) fn add(&mut self, path: &str, size_bytes: u64) -> bool {
        let is_index = path.ends_with(INDEX_END);
        if is_index {
            self.indexes.push(path.to_owned());
        } else if path.ends_with(SAFETENSORS_END) || is_of_another_format(path) {
            self.files.insert(path.to_owned(), size_bytes);
        }
        is_index
    }

    /// Number of files and indexes so far.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.files.len() + self.indexes.len()
    }

    /// The files that a loader does not read: safetensors beside an index that no index there
    /// names, and weights of another format in a folder with safetensors or below one. `contents`
    /// are those of the indexes, in the order in which they were added.
    ///
    /// # Errors
    /// [`ErrorKind::Objects`] if an index is none; [`ErrorKind::NotFound`] if a file that it names
    /// is missing.
    pub(super) fn left_out(&self, contents: &[Vec<u8>]) -> Result<LeftOut> {
        let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (path, content) in self.indexes.iter().zip(contents) {
            let folder = folder_of(path);
            let files = named.entry(folder).or_default();
            for name in self.named_by(path, content)? {
                files.insert(format!("{folder}{name}"));
            }
        }
        let is_read = |path: &str| named.get(folder_of(path)).is_none_or(|all| all.contains(path));
        let safetensors = self.files.keys().filter(|path| path.ends_with(SAFETENSORS_END));
        let (read, unnamed): (Vec<_>, Vec<_>) = safetensors.partition(|path| is_read(path));
        let with_weights: BTreeSet<&str> = read.into_iter().map(|path| folder_of(path)).collect();
        let replaced = self.files.keys().filter(|path| {
            is_of_another_format(path) && above(path).any(|above| with_weights.contains(above))
        });
        let paths: BTreeSet<String> = unnamed.into_iter().chain(replaced).cloned().collect();
        let bytes = paths.iter().map(|path| self.files[path]).sum();
        Ok(LeftOut { paths, bytes })
    }

    /// The names in an index, whose files are there.
    fn named_by(&self, path: &str, content: &[u8]) -> Result<BTreeSet<String>> {
        let index: Index = serde_json::from_slice(content).map_err(|error| {
            let message = format!("{}: it is no index of safetensors files: {error}", shown(path));
            Error::new(ErrorKind::Objects, message)
                .advise("expected {\"weight_map\": {\"TENSOR\": \"FILE\", ...}}; upload it again")
        })?;
        let named: BTreeSet<String> = index.weight_map.into_values().collect();
        let folder = folder_of(path);
        match named.iter().find(|name| !self.files.contains_key(&format!("{folder}{name}"))) {
            None => Ok(named),
            Some(missing) => {
                let message = format!(
                    "{folder}{missing}: {} names it, and it is missing",
                    shown(path),
                    folder = shown(folder),
                    missing = shown(missing)
                );
                Err(Error::new(ErrorKind::NotFound, message)
                    .advise("upload the rest of the model, or use get for what is there"))
            }
        }
    }
}

fn is_of_another_format(path: &str) -> bool {
    OTHER_ENDS.iter().any(|end| path.ends_with(end))
}

/// The folder of a file, with a slash at its end; empty for the top.
fn folder_of(path: &str) -> &str {
    &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
}

/// The folder of a file, and all above it.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let below = path.match_indices('/').map(|(slash, _)| &path[..=slash]);
    std::iter::once("").chain(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(files: &str) -> ModelFiles {
        let mut model = ModelFiles::default();
        for path in files.split_whitespace() {
            let _ = model.add(path, 10);
        }
        model
    }

    fn left_out(files: &str, contents: &[&str]) -> Result<String> {
        let contents: Vec<Vec<u8>> = contents.iter().map(|text| text.as_bytes().into()).collect();
        let left_out = model(files).left_out(&contents)?;
        assert_eq!(left_out.bytes, 10 * left_out.paths.len() as u64);
        Ok(left_out.paths.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_a_loader_does_not_read() {
        let check = |files: &str, contents: &[&str], expected: &str| {
            assert_eq!(left_out(files, contents).expect("a model"), expected, "{files}");
        };
        check("config.json a.bin a.pt", &[], "");
        check("a.safetensors b.safetensors tokenizer.model", &[], "");
        check(
            "model.safetensors pytorch_model.bin tf_model.h5",
            &[],
            "pytorch_model.bin tf_model.h5",
        );
        // Below a folder with safetensors, not above or beside it.
        check("a.safetensors original/x.pth onnx/m.onnx", &[], "onnx/m.onnx original/x.pth");
        check("vae/a.safetensors vae/a.bin unet/a.bin a.bin", &[], "vae/a.bin");
        let index = r#"{"metadata": {"total_size": 7}, "weight_map": {"a": "1.safetensors",
            "b": "2.safetensors", "c": "1.safetensors"}}"#;
        let files = "m.safetensors.index.json 1.safetensors 2.safetensors";
        check(files, &[index], "");
        let more = format!("{files} consolidated.safetensors m.bin sub/3.safetensors");
        check(&more, &[index], "consolidated.safetensors m.bin");
        // What any index of the folder names is read.
        let more = format!("{files} m.fp16.safetensors.index.json 3.safetensors 4.safetensors");
        let other = r#"{"weight_map": {"a": "3.safetensors"}}"#;
        check(&more, &[index, other], "4.safetensors");
        check(
            "d/m.safetensors.index.json d/3.safetensors d/4.safetensors",
            &[other],
            "d/4.safetensors",
        );
    }

    #[test]
    fn an_index_that_is_wrong_is_reported() {
        let check = |files: &str, content: &str, kind: ErrorKind, expected: &str| {
            let error = left_out(files, &[content]).expect_err(expected);
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().starts_with(expected), "{error}");
        };
        let files = "d/m.safetensors.index.json d/1.safetensors";
        let index = r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
        let expected = "d/2.safetensors: d/m.safetensors.index.json names it, and it is missing";
        check(files, index, ErrorKind::NotFound, expected);
        let index = r#"{"weight_map": {"a": "../1.safetensors"}}"#;
        check(files, index, ErrorKind::NotFound, "d/../1.safetensors: ");
        for content in ["", "[]", "{}", r#"{"weight_map": {"a": 1}}"#, r#"{"weight_map": []}"#] {
            let expected = "d/m.safetensors.index.json: it is no index of safetensors files: ";
            check(files, content, ErrorKind::Objects, expected);
        }
    }
}
