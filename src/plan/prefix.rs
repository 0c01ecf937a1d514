//! Literal prefixes like `S3Prefix` of a SageMaker channel: which part of a key is its path below
//! the destination, and which paths of one prefix conflict.
//!
//! A prefix that ends in a slash, or is empty, is a folder, and a path is what follows it. Any
//! other prefix is the start of names: `data/train` takes `data/train/a`, `data/train2/b` and the
//! object `data/train`, whose paths are `a`, `train2/b` and `train`. Names that begin with it keep
//! the last name of the prefix, and the folder of exactly that name is the destination itself.
//! SageMaker jobs do so for folders (`input` maps `input/test` to `test`) and for names
//! (`data/train` maps `data/train-data.csv` to `train-data.csv`); a job with both is not known.
//!
//! Paths listed in key order are sorted only if all keys are in the folder, or none is.

use std::collections::BTreeSet;

use super::path::PathProblem;

/// Offset of the path in the key, which starts with the prefix.
///
/// # Panics
/// If it does not.
#[must_use]
pub fn path_start(prefix: &str, key: &str) -> usize {
    let rest = key.strip_prefix(prefix).expect("a key of this prefix");
    if is_folder(prefix) {
        prefix.len()
    } else if rest.starts_with('/') {
        prefix.len() + 1
    } else {
        name_start(prefix)
    }
}

/// True if the prefix is a folder: its paths are in key order.
#[must_use]
pub fn is_folder(prefix: &str) -> bool {
    prefix.is_empty() || prefix.ends_with('/')
}

/// True if the key is beside the folder, so that its path keeps the last name of the prefix.
#[must_use]
pub fn is_beside_folder(prefix: &str, key: &str) -> bool {
    !is_folder(prefix) && !key[prefix.len()..].starts_with('/')
}

/// Offset of the last name of a prefix.
fn name_start(prefix: &str) -> usize {
    prefix.rfind('/').map_or(0, |at| at + 1)
}

/// The paths in the folder of a prefix that begin with the prefix's last name: only these can
/// conflict with paths beside the folder. There are rarely any.
#[derive(Debug, Default)]
pub struct Namesakes {
    /// A folder's path ends in a slash.
    paths: BTreeSet<String>,
}

impl Namesakes {
    /// Key prefix of these paths.
    #[must_use]
    pub fn prefix(prefix: &str) -> String {
        format!("{prefix}/{}", &prefix[name_start(prefix)..])
    }

    /// Adds one of these paths; returns their number.
    pub fn insert(&mut self, relative: String) -> usize {
        self.paths.insert(relative);
        self.paths.len()
    }

    /// Checks a path beside the folder, of this source; a folder's path ends in a slash.
    ///
    /// # Errors
    /// If it conflicts with one of these paths.
    pub fn check(&self, source: usize, relative: &str) -> Result<(), PathProblem> {
        let clash = PathProblem::FileAndFolder { file: source, below: source };
        let mut above = relative.match_indices('/').map(|(at, _)| &relative[..at]);
        if above.any(|folder| self.paths.contains(folder)) {
            return Err(clash);
        }
        if relative.ends_with('/') {
            return Ok(());
        }
        if self.paths.contains(relative) {
            return Err(PathProblem::SharedPath);
        }
        let below = format!("{relative}/");
        let next = self.paths.range(below.clone()..).next();
        if next.is_some_and(|path| path.starts_with(&below)) { Err(clash) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::path::RelativePath;
    use proptest::prelude::*;

    fn path<'a>(prefix: &str, key: &'a str) -> &'a str {
        &key[path_start(prefix, key)..]
    }

    #[test]
    fn paths_are_those_of_a_job_on_sagemaker() {
        for (prefix, key, expected) in [
            // Known from SageMaker jobs.
            ("data/train", "data/train-data.csv", "train-data.csv"),
            ("data/train", "data/train-ground-truth.csv", "train-ground-truth.csv"),
            ("converts/00c7b0fe", "converts/00c7b0fe.zip", "00c7b0fe.zip"),
            ("Task1/input", "Task1/input/test", "test"),
            ("state", "state/algo-1/state_1", "algo-1/state_1"),
            // A folder.
            ("data/train/", "data/train/a", "a"),
            ("data/train/", "data/train/b/c", "b/c"),
            ("data/train/", "data/train/", ""),
            ("", "data/train/a", "data/train/a"),
            ("", "a", "a"),
            // An object of exactly this name.
            ("data/train.csv", "data/train.csv", "train.csv"),
            ("train.csv", "train.csv", "train.csv"),
            // Names with this beginning, and the folder.
            ("train", "train/a", "a"),
            ("train", "train2/b", "train2/b"),
            ("train", "train/", ""),
            ("train", "train2/", "train2/"),
            ("d/tr", "d/train/a", "train/a"),
            ("d/t", "d/t//a", "/a"),
            ("d//", "d///a", "/a"),
        ] {
            assert_eq!(path(prefix, key), expected, "{prefix} {key}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_seen() {
        let mut namesakes = Namesakes::default();
        for path in ["train2", "train3/x", "train4/"] {
            namesakes.insert(path.to_owned());
        }
        let clash = Err(PathProblem::FileAndFolder { file: 3, below: 3 });
        for (path, expected) in [
            ("train", Ok(())),
            ("train2", Err(PathProblem::SharedPath)),
            ("train2/", clash),
            ("train2/a", clash),
            ("train2/a/b", clash),
            ("train2a", Ok(())),
            ("train3", clash),
            ("train3/", Ok(())),
            ("train3/x", Err(PathProblem::SharedPath)),
            ("train3/x/y", clash),
            ("train3/y", Ok(())),
            ("train4", clash),
            ("train4/", Ok(())),
            ("train4/z", Ok(())),
        ] {
            assert_eq!(namesakes.check(3, path), expected, "{path}");
        }
        assert_eq!(Namesakes::prefix("d/train"), "d/train/train");
        assert_eq!(Namesakes::prefix("train"), "train/train");
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Compared with all pairs: two keys of a prefix conflict exactly if one is beside the
        /// folder, the other is in it and begins with its name, and this check finds it.
        #[test]
        fn namesakes_are_all_that_can_be_in_the_way(
            keys in prop::collection::btree_set("t(/t|t|/){1,3}", 0..12),
        ) {
            let prefix = "t";
            // Paths with a problem of their own are not checked.
            let clear = |key: &String| {
                let relative = path(prefix, key);
                RelativePath::parse(relative.strip_suffix('/').unwrap_or(relative)).is_ok()
            };
            let mut namesakes = Namesakes::default();
            for key in &keys {
                if clear(key) && key.starts_with(&Namesakes::prefix(prefix)) {
                    namesakes.insert(path(prefix, key).to_owned());
                }
            }
            for one in keys.iter().filter(|key| clear(key)) {
                let beside = is_beside_folder(prefix, one);
                let one = path(prefix, one);
                let mut others = keys.iter().filter(|key| clear(key));
                let meets = others.any(|key| {
                    let other = path(prefix, key);
                    let through = |file: &str, below: &str| {
                        !file.ends_with('/') && below.starts_with(&format!("{file}/"))
                    };
                    let same = one == other && !one.ends_with('/');
                    is_beside_folder(prefix, key) != beside
                        && (same || through(one, other) || through(other, one))
                });
                if beside {
                    prop_assert_eq!(namesakes.check(0, one).is_err(), meets, "{} {:?}", one, keys);
                }
            }
        }
    }
}
